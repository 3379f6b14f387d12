//! A machine that obeys a seed: virtual clock, seeded random numbers and a file system that forgets what was not
//! synced.
//!
//! Owns: [`VirtualClock`], [`SeededRandom`], [`SimFileSystem`] and [`Sim`], which bundles them into an `env::Env`.
//! Invariants: nothing here reads the real clock, disk or random source; equal seeds and equal calls give equal
//! results.
//! Concurrency: all types are `Sync`; determinism needs the caller to be single threaded.
//! Crash: [`SimFileSystem::crash`] is the power cut; its header says what survives.
#![forbid(unsafe_code)]

mod clock;
mod fs;
mod fs_state;
mod random;
mod site;

use std::sync::Arc;

pub use crate::clock::VirtualClock;
pub use crate::fs::{Fault, Op, SimFileSystem};
pub use crate::random::SeededRandom;
pub use crate::site::{Failure, Site, kind_of};

/// One simulated machine.
pub struct Sim {
    pub clock: Arc<VirtualClock>,
    pub random: Arc<SeededRandom>,
    pub fs: Arc<SimFileSystem>,
}

impl Sim {
    pub fn new(seed: u64) -> Sim {
        let clock = Arc::new(VirtualClock::new(1_700_000_000_000));
        let fs = Arc::new(SimFileSystem::new(clock.clone()));
        Sim { clock, random: Arc::new(SeededRandom::new(seed)), fs }
    }

    /// A second machine with the same files at the same time: what is done to one does not show on the other. As after
    /// a reboot, monotonic time begins at zero.
    pub fn fork(&self, seed: u64) -> Sim {
        let clock = Arc::new(VirtualClock::new(env::Clock::now(&*self.clock).wall_ms));
        let fs = Arc::new(self.fs.fork(clock.clone()));
        Sim { clock, random: Arc::new(SeededRandom::new(seed)), fs }
    }

    pub fn env(&self) -> env::Env {
        env::Env { clock: self.clock.clone(), random: self.random.clone(), fs: self.fs.clone() }
    }
}
