//! One of `log.dirs`: whether it works, and whether it has room.
//!
//! Owns: [`LogDir`] with its offline flag, the cause, and the count of bytes that may be written before the volume's free
//! space is looked at again.
//! Invariants: an offline directory stays offline. A failed sync takes the directory offline whatever its cause: what it
//! lost cannot be known. A volume without room does not (unlike the reference): its records are read on, and it can be
//! written again once there is room.
//! Concurrency: flags and one counter; the listener is called from whatever thread met the failure, and only hands over.
//! Crash: nothing is kept; the next start finds out again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use env::FileSystem;
use parking_lot::Mutex;
use protocol::Uuid;

use crate::error::{StorageError, io_error};
use crate::log::SyncQueue;
use crate::segment::is_full;

/// What appends leave free, so that checkpoints, indexes, deletions and the metadata log still have room on a volume
/// that records have filled. A sixteenth of a volume that is smaller than 128 MiB.
const RESERVED_BYTES: u64 = 8 << 20;
const RESERVED_SHARE: u64 = 16;

type Listener = Box<dyn Fn() + Send + Sync>;

/// See the file's header.
pub struct LogDir {
    path: PathBuf,
    id: Option<Uuid>,
    offline: AtomicBool,
    failure: Mutex<Option<String>>,
    /// Told of the failure that takes the directory offline.
    listener: OnceLock<Listener>,
    /// Bytes that may be appended before the free space is looked at again.
    headroom: AtomicI64,
    full: AtomicBool,
    pub(crate) syncs: SyncQueue,
}

impl LogDir {
    pub fn new(path: PathBuf, id: Option<Uuid>) -> Arc<Self> {
        Arc::new(LogDir {
            path,
            id,
            offline: AtomicBool::new(false),
            failure: Mutex::new(None),
            listener: OnceLock::new(),
            headroom: AtomicI64::new(0),
            full: AtomicBool::new(false),
            syncs: SyncQueue::default(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `directory.id` of its `meta.properties` (KIP-858).
    pub fn id(&self) -> Option<Uuid> {
        self.id
    }

    pub fn is_offline(&self) -> bool {
        self.offline.load(Ordering::Acquire)
    }

    /// Whether the volume had no room for the last append.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// The failure that took the directory offline, once.
    pub fn take_failure(&self) -> Option<String> {
        self.failure.lock().take()
    }

    /// Calls `listener` when the directory goes offline. To be set once; it must not block.
    pub fn on_failure(&self, listener: impl Fn() + Send + Sync + 'static) {
        // A second listener would be our own bug; the first one stays.
        let _ = self.listener.set(Box::new(listener));
    }

    pub(crate) fn check_online(&self) -> Result<(), StorageError> {
        if self.is_offline() { Err(StorageError::Offline(self.path.clone())) } else { Ok(()) }
    }

    /// A failure at the start, of whatever kind: the directory is not used.
    pub(crate) fn fail_for_good(&self, doing: &str, error: io::Error) {
        let error = io_error(doing, &self.path, error);
        self.go_offline(&error);
    }

    /// Turns an IO error into a storage error. A full disk and bytes that make no sense leave the directory online.
    pub(crate) fn fail(&self, doing: &str, path: &Path, error: io::Error) -> StorageError {
        let full = is_full(&error);
        let is_disk_failure = !full && error.kind() != io::ErrorKind::InvalidData;
        let error = io_error(doing, path, error);
        if is_disk_failure {
            self.go_offline(&error);
        } else if full {
            self.set_full(&error);
        }
        error
    }

    fn go_offline(&self, error: &StorageError) {
        let mut failure = self.failure.lock();
        if self.offline.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::error!(target: "kafka.server.LogDirFailureChannel", "Log dir {} goes offline: {error}", self.path.display());
        *failure = Some(error.to_string());
        drop(failure);
        if let Some(listener) = self.listener.get() {
            listener();
        }
    }

    fn set_full(&self, error: &StorageError) {
        self.headroom.store(0, Ordering::Relaxed);
        if !self.full.swap(true, Ordering::AcqRel) {
            tracing::error!(
                "Log dir {} is full, appends to it are refused until there is room: {error}",
                self.path.display()
            );
        }
    }

    fn set_room(&self) {
        if self.full.swap(false, Ordering::AcqRel) {
            tracing::info!("Log dir {} has room again", self.path.display());
        }
    }

    /// Bytes that records may take.
    fn room(&self, fs: &dyn FileSystem) -> io::Result<i64> {
        let space = fs.space(&self.path)?;
        let reserved = RESERVED_BYTES.min(space.total / RESERVED_SHARE);
        Ok(i64::try_from(space.usable.saturating_sub(reserved)).unwrap_or(i64::MAX))
    }

    /// Notes how much room there is now, which others may have taken or given.
    pub(crate) fn look_at_space(&self, fs: &dyn FileSystem) {
        if let Ok(room) = self.room(fs) {
            self.headroom.store(room / 2, Ordering::Relaxed);
            if room > 0 {
                self.set_room();
            }
        }
    }

    /// Whether `len` bytes of records may be written. Asks the volume when half of what it had free is written.
    pub(crate) fn admit(&self, fs: &dyn FileSystem, len: u32) -> io::Result<()> {
        let len = i64::from(len);
        if self.headroom.fetch_sub(len, Ordering::Relaxed) >= len {
            return Ok(());
        }
        // A volume that cannot be asked says so when it is written to.
        let Ok(room) = self.room(fs) else { return Ok(()) };
        if room < len {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("{room} bytes are free besides what is kept for the node itself"),
            ));
        }
        // Others write to the volume too.
        self.headroom.store((room - len) / 2, Ordering::Relaxed);
        self.set_room();
        Ok(())
    }
}

impl std::fmt::Debug for LogDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogDir({}, offline={})", self.path.display(), self.is_offline())
    }
}

/// Makes the names in `dir` durable. A failure is final whatever file it was for: the names of all others in `dir` may be
/// lost with it, and the next sync would succeed.
pub(crate) fn sync_dir(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    fs.sync_dir(dir).map_err(sync_failed)
}

/// An error of a sync, which is never taken for a mere lack of room: the records it was to make durable may be lost.
pub(crate) fn sync_failed(error: io::Error) -> io::Error {
    if is_full(&error) { io::Error::other(format!("the sync failed: {error}")) } else { error }
}
