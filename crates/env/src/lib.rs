//! The seams between decisions and the machine: time, randomness and files.
//!
//! Owns: the traits [`Clock`], [`Random`], [`FileSystem`] and [`File`], the bundle [`Env`] that is handed to
//! everything that touches the outside world, and (in [`real`]) the implementations a node runs with. `testkit`
//! holds the simulated ones.
//! Invariants: every trait is object safe and `Send + Sync`; no method takes ambient state.
//! Concurrency: all methods take `&self` and may be called from any thread.
//! Crash: nothing is promised to survive a power cut before [`File::sync_data`]/[`File::sync_all`] (contents) and
//! [`FileSystem::sync_dir`] (names) have returned `Ok`. After a failed sync the state of the unsynced data is
//! unknown and a later successful sync proves nothing about it.
#![forbid(unsafe_code)]

mod fs;
pub mod real;

use std::fmt;
use std::sync::Arc;

use record::Time;

pub use crate::fs::{
    DirEntry, File, FileLock, FileSystem, Metadata, OpenMode, Space, read_exact_at, read_file, write_atomic,
};

/// Where the time comes from.
pub trait Clock: Send + Sync {
    fn now(&self) -> Time;
}

/// Where unpredictable bytes come from.
pub trait Random: Send + Sync {
    fn fill(&self, bytes: &mut [u8]);

    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A version 4 (random) UUID's 16 bytes.
    fn uuid_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        bytes
    }
}

/// Everything a component needs from outside, cheap to clone.
#[derive(Clone)]
pub struct Env {
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub fs: Arc<dyn FileSystem>,
}

impl Env {
    /// The machine's own clock, random source and file system.
    pub fn real() -> Env {
        Env {
            clock: Arc::new(real::SystemClock::new()),
            random: Arc::new(real::OsRandom),
            fs: Arc::new(real::RealFileSystem),
        }
    }

    pub fn now(&self) -> Time {
        self.clock.now()
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Env")
    }
}
