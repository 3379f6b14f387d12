//! Group commit across logs: who syncs, and what follows.
//!
//! Owns: the directories' queues as their threads see them.
//! Invariants: every demand ends in one [`SyncOutcome`], whether its sync succeeded or not.
//! Concurrency: any number of threads per directory; each takes another log. Crash: see `log/group_commit.rs`.

use std::time::Duration;

use record::Time;

use super::LogManager;
use crate::log::SyncOutcome;

impl LogManager {
    /// Syncs the next log of a directory (by its place in `log.dirs`) whose appends wait for it. Waits up to `wait` for
    /// one; `None` when there was none.
    pub fn sync_next(&self, dir: usize, wait: Duration) -> Option<SyncOutcome> {
        let dir = self.dirs.lock().get(dir).map(|state| state.dir.clone())?;
        let log = dir.syncs.next(wait)?;
        let result = log.run_demanded_sync();
        Some(SyncOutcome { log, result })
    }

    /// Ends all waiting in [`LogManager::sync_next`].
    pub fn close_syncs(&self) {
        self.log_dirs().iter().for_each(|dir| dir.syncs.close());
    }

    /// Brings the recovery points of logs under group commit to what is durable already, before they are written down.
    pub(super) fn flush_synced_logs(&self, now: Time) {
        for log in self.all_logs() {
            if log.synced_end_offset() > log.recovery_point()
                && !log.log_dir().is_offline()
                && let Err(e) = log.flush(now)
            {
                tracing::warn!("Error flushing topic {}: {e}", log.topic_partition());
            }
        }
    }
}
