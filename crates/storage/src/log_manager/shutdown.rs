//! A clean shutdown.
//!
//! Owns: [`LogManager::shutdown`]. Invariants: `.kafka_cleanshutdown` is written last, and only into a directory whose
//! logs were all loaded, flushed and closed.
//! Concurrency: as loading. Crash: without the file the next start recovers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use record::Time;

use super::LogManager;
use crate::checkpoint;
use crate::context::LogDir;
use crate::error::StorageError;
use crate::log::UnifiedLog;
use crate::names;
use crate::producer::ignore_missing;

/// Closing is waiting for syncs, some ten of each log, and a journaling file system commits those that meet in one
/// transaction: thousands of logs are closed many times faster than by the two threads of the default.
const CLOSING_THREADS: usize = 32;

impl LogManager {
    /// Closes all logs, writes the checkpoints and the marker of a clean shutdown, and unlocks the directories.
    /// The first error is returned, after everything else was done.
    pub fn shutdown(&self, now: Time, broker_epoch: i64) -> Result<(), StorageError> {
        let _creation = self.creation.lock();
        let mut result = Ok(());
        let mut note = |outcome: Result<(), StorageError>| {
            if result.is_ok() {
                result = outcome;
            }
        };
        let logs = self.all_logs();
        let mut closed: Vec<Arc<LogDir>> = Vec::new();
        for dir in self.live_log_dirs() {
            let in_dir: Vec<Arc<UnifiedLog>> =
                logs.iter().filter(|log| Arc::ptr_eq(log.log_dir(), &dir)).cloned().collect();
            let outcome = self.close_all(&in_dir, now);
            if outcome.is_ok() && !dir.is_offline() {
                closed.push(dir);
            }
            note(outcome);
        }
        self.checkpoint_recovery_points();
        self.checkpoint_log_start_offsets();
        self.checkpoint_high_watermarks();
        for state in self.dirs.lock().iter() {
            let dir = &state.dir;
            let is_clean = closed.iter().any(|closed| Arc::ptr_eq(closed, dir)) && state.loaded;
            if is_clean && !dir.is_offline() {
                let written = checkpoint::write_clean_shutdown(self.fs(), dir.path(), broker_epoch);
                note(written.map_err(|e| {
                    dir.fail("Error while writing the clean shutdown marker in", dir.path(), e)
                }));
            }
            if let Some(lock) = state.lock.lock().take() {
                // Removed while it is held: whoever comes next makes a new one.
                let removed = ignore_missing(self.fs().remove_file(&dir.path().join(names::LOCK_FILE)));
                drop(lock);
                note(removed.map_err(|e| dir.fail("Error while unlocking", dir.path(), e)));
            }
        }
        result
    }

    fn close_all(&self, logs: &[Arc<UnifiedLog>], now: Time) -> Result<(), StorageError> {
        // One thread, where that is asked for, closes one log after the other.
        let threads = match self.config.num_recovery_threads_per_data_dir {
            0 | 1 => 1,
            threads => threads.max(CLOSING_THREADS).min(logs.len()),
        };
        let next = AtomicUsize::new(0);
        let failure = Mutex::new(Ok(()));
        let work = || {
            while let Some(log) = logs.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(e) = log.close(now) {
                    tracing::error!("{e}");
                    *failure.lock() = Err(e);
                }
            }
        };
        if threads <= 1 {
            work();
        } else {
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(work);
                }
            });
        }
        failure.into_inner()
    }
}
