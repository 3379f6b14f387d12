//! What the logs of a node share: the machine, the codecs, directories and postponed work.
//!
//! Owns: [`LogContext`], and the queue of deferred tasks.
//! Invariants: tasks run in the order of their due times.
//! Concurrency: tasks run on whatever thread calls [`LogContext::run_due`], with no lock held.
//! Crash: a lost deletion is made good by the next start (files and directories carry their suffix); a lost flush by
//! recovery from the recovery point.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use env::Env;
use parking_lot::Mutex;
use record::{BufferSupplier, Codecs, Time};

use crate::log::UnifiedLog;
pub use crate::log_dir::LogDir;
use crate::producer::ignore_missing;
use crate::segment::{LogSegment, SharedDir};

/// Decompression buffers kept for reuse; appends beyond this many at once make their own.
const KEPT_BUFFERS: usize = 16;

/// `producer.id.expiration.ms`
const DEFAULT_PRODUCER_ID_EXPIRATION_MS: i64 = 86_400_000;

pub(crate) enum Task {
    DeleteSegments { segments: Vec<Arc<LogSegment>>, log_dir: Arc<LogDir> },
    DeleteFile { dir: Arc<SharedDir>, name: String, log_dir: Arc<LogDir> },
    FlushRolled { log: Weak<UnifiedLog>, offset: i64 },
}

/// Shared by all logs of a node.
pub struct LogContext {
    pub env: Env,
    pub codecs: Arc<dyn Codecs>,
    producer_id_expiration_ms: AtomicI64,
    buffers: Mutex<Vec<BufferSupplier>>,
    tasks: Mutex<BTreeMap<(Duration, u64), Task>>,
    next_task: AtomicU64,
}

impl LogContext {
    pub fn new(env: Env, codecs: Arc<dyn Codecs>) -> Arc<Self> {
        Arc::new(LogContext {
            env,
            codecs,
            producer_id_expiration_ms: AtomicI64::new(DEFAULT_PRODUCER_ID_EXPIRATION_MS),
            buffers: Mutex::new(Vec::new()),
            tasks: Mutex::new(BTreeMap::new()),
            next_task: AtomicU64::new(0),
        })
    }

    /// `producer.id.expiration.ms`, which may change at run time.
    pub fn set_producer_id_expiration_ms(&self, ms: i64) {
        self.producer_id_expiration_ms.store(ms, Ordering::Relaxed);
    }

    pub fn producer_id_expiration_ms(&self) -> i64 {
        self.producer_id_expiration_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn with_buffers<T>(&self, f: impl FnOnce(&mut BufferSupplier) -> T) -> T {
        let mut buffers = self.buffers.lock().pop().unwrap_or_default();
        let result = f(&mut buffers);
        let mut kept = self.buffers.lock();
        if kept.len() < KEPT_BUFFERS {
            kept.push(buffers);
        }
        result
    }

    pub(crate) fn defer(&self, due: Duration, task: Task) {
        let id = self.next_task.fetch_add(1, Ordering::Relaxed);
        self.tasks.lock().insert((due, id), task);
    }

    /// When the next postponed task is due.
    pub fn next_due(&self) -> Option<Duration> {
        self.tasks.lock().first_key_value().map(|((due, _), _)| *due)
    }

    /// Runs what is due: removes deleted files, flushes rolled segments. Returns how many tasks ran. May wait for the
    /// disk.
    pub fn run_due(&self, now: Time) -> usize {
        let mut ran = 0;
        loop {
            let task = {
                let mut tasks = self.tasks.lock();
                match tasks.first_entry() {
                    Some(entry) if entry.key().0 <= now.monotonic => entry.remove(),
                    _ => return ran,
                }
            };
            self.run(task, now);
            ran += 1;
        }
    }

    fn run(&self, task: Task, now: Time) {
        let fs = &*self.env.fs;
        match task {
            Task::DeleteSegments { segments, log_dir } => {
                for segment in segments {
                    if let Err(e) = segment.remove_files(fs) {
                        log_dir.fail("Error while deleting segment in", log_dir.path(), e);
                    }
                    segment.close();
                }
            }
            Task::DeleteFile { dir, name, log_dir } => {
                if let Err(e) = ignore_missing(fs.remove_file(&dir.path().join(name))) {
                    log_dir.fail("Error while deleting a file in", log_dir.path(), e);
                }
            }
            Task::FlushRolled { log, offset } => {
                if let Some(log) = log.upgrade()
                    && !log.log_dir().is_offline()
                    && let Err(e) = log.flush_up_to(offset, now)
                {
                    tracing::warn!("{e}");
                }
            }
        }
    }
}
