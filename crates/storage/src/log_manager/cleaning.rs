//! Cleaning, as the manager of all logs sees it.
//!
//! Owns: the choice of the log to clean next, retention of compacted logs, and the calls that keep cleaners out of a
//! log that is truncated, deleted or moved.
//! Invariants: see `cleaner`. Where `log.cleaner.enable` is false nothing here does anything.
//! Concurrency: cleaner threads and anybody else at the same time.
//! Crash: see `cleaner`.

use std::sync::Arc;

use record::{Time, TopicPartition};

use super::LogManager;
use crate::cleaner::{CleanFailure, CleanerConfig, CleanerHost, CleanerThread, Job, LogToClean};
use crate::context::LogDir;
use crate::error::StorageError;
use crate::log::UnifiedLog;

impl LogManager {
    /// The cleaner's settings in force.
    pub fn cleaner_config(&self) -> Arc<CleanerConfig> {
        self.cleaner.config()
    }

    /// Changes the cleaner's settings. `log.cleaner.enable` stays what it was at the start.
    pub fn reconfigure_cleaner(&self, config: CleanerConfig) {
        let enable = self.cleaner.config().enable;
        self.cleaner.reconfigure(CleanerConfig { enable, ..config });
    }

    fn has_cleaner(&self) -> bool {
        self.cleaner.config().enable
    }

    /// Stops the cleaning of a partition and keeps cleaners out until [`LogManager::resume_cleaning`]. Calls nest.
    /// Waits for the cleaner; to be called without locks that it might want.
    pub fn abort_and_pause_cleaning(&self, partition: &TopicPartition) {
        if self.has_cleaner() {
            self.cleaner.manager.abort_and_pause(partition);
            tracing::debug!("The cleaning for partition {partition} is aborted and paused");
        }
    }

    /// Takes back one [`LogManager::abort_and_pause_cleaning`].
    pub fn resume_cleaning(&self, partition: &TopicPartition) {
        if self.has_cleaner() {
            self.cleaner.manager.resume(partition);
            tracing::debug!("Cleaning for partition {partition} is resumed");
        }
    }

    /// Stops the cleaning of a partition that is going on; the next may begin at once.
    pub fn abort_cleaning(&self, partition: &TopicPartition) {
        self.abort_and_pause_cleaning(partition);
        self.resume_cleaning(partition);
    }

    /// What an earlier stay of a partition in a directory left in its checkpoint says nothing about a log that is made
    /// there now.
    pub(super) fn drop_cleaner_checkpoint(&self, partition: &TopicPartition, dir: &LogDir) {
        if self.has_cleaner() {
            self.update_cleaner_checkpoint(dir, |offsets| {
                offsets.remove(partition);
            });
        }
    }

    /// A partition's log is in another directory from now on: what is known of its cleaning goes along.
    pub(super) fn alter_cleaner_checkpoint_dir(
        &self,
        partition: &TopicPartition,
        from: &LogDir,
        to: &LogDir,
    ) {
        if !self.has_cleaner() {
            return;
        }
        let offset = self.cleaner.manager.checkpointed(from, partition);
        self.update_cleaner_checkpoint(from, |offsets| {
            offsets.remove(partition);
        });
        if let Some(offset) = offset {
            self.update_cleaner_checkpoint(to, |offsets| {
                offsets.insert(partition.clone(), offset);
            });
        }
        self.cleaner.manager.move_uncleanable(partition, from.path(), to.path());
    }

    /// Partitions of a directory whose cleaning failed; they are left alone until the next start.
    pub fn uncleanable_partitions(&self, dir: &LogDir) -> Vec<TopicPartition> {
        self.cleaner.manager.uncleanable(dir.path())
    }

    /// Offset up to which a partition has been cleaned; `None`: never.
    pub fn cleaner_checkpoint(&self, log: &UnifiedLog) -> Option<i64> {
        self.cleaner.manager.checkpointed(log.log_dir(), log.topic_partition())
    }

    fn update_cleaner_checkpoint(
        &self,
        dir: &LogDir,
        change: impl FnOnce(&mut std::collections::BTreeMap<TopicPartition, i64>),
    ) {
        let exists = |partition: &TopicPartition| self.logs.read().current.contains_key(partition);
        self.cleaner.manager.update_checkpoint(dir, exists, change);
    }

    /// After a deletion: the checkpoint forgets the partitions that are gone.
    pub(super) fn forget_in_cleaner_checkpoint(&self, dir: &LogDir) {
        if self.has_cleaner() {
            self.update_cleaner_checkpoint(dir, |_| {});
        }
    }

    /// After a truncation: what lies in the active segment is dirty again.
    pub(super) fn truncate_cleaner_checkpoint(&self, log: &UnifiedLog) {
        // Whether it is compacted now does not matter: it was when there is an entry, and may be again.
        if !self.has_cleaner() {
            return;
        }
        let (partition, limit) = (log.topic_partition(), log.active_segment_base_offset());
        self.update_cleaner_checkpoint(log.log_dir(), |offsets| {
            if let Some(offset) = offsets.get_mut(partition) {
                *offset = (*offset).min(limit);
            }
        });
    }

    /// Does `work` on logs that are not compacted and that no cleaner has in hand: should one of them become compacted
    /// meanwhile, the cleaner waits.
    pub(super) fn with_cleaning_paused(&self, work: impl FnOnce(Vec<Arc<UnifiedLog>>)) {
        let logs: Vec<Arc<UnifiedLog>> =
            self.logs().into_iter().filter(|log| !log.config().compact).collect();
        if !self.has_cleaner() {
            return work(logs);
        }
        let manager = &self.cleaner.manager;
        let paused = manager.pause_free(logs.iter().map(|log| log.topic_partition().clone()));
        work(logs.into_iter().filter(|log| paused.binary_search(log.topic_partition()).is_ok()).collect());
        paused.iter().for_each(|partition| manager.resume(partition));
    }

    /// One round of a cleaner thread: cleans the log that needs it most and applies retention to compacted logs. False
    /// when there was nothing to clean, and the thread may rest for `log.cleaner.backoff.ms`.
    pub fn run_cleaner(&self, thread: &mut CleanerThread, host: &dyn CleanerHost) -> bool {
        let is_loaded = || self.dirs.lock().iter().any(|state| state.loaded);
        if !self.has_cleaner() || !is_loaded() {
            return false;
        }
        let now = self.context.env.now();
        let cleaned = match self.grab_filthiest_log(now) {
            Some(cleanable) => self.clean_log(thread, host, &cleanable, now),
            None => false,
        };
        self.delete_old_segments_of_compacted_logs(host, now);
        let exists = |partition: &TopicPartition| self.logs.read().current.contains_key(partition);
        self.cleaner.manager.retain_uncleanable(exists);
        cleaned
    }

    /// Compacted logs that can be cleaned or have old segments deleted now. A log that is being copied to another
    /// directory waits: the copy is to hold what the checkpoint says.
    fn free_compacted_logs(&self) -> Vec<Arc<UnifiedLog>> {
        let manager = &self.cleaner.manager;
        let mut logs = self.logs();
        logs.retain(|log| {
            let dir = log.log_dir();
            let partition = log.topic_partition();
            log.config().compact
                && !dir.is_offline()
                && self.get_future_log(partition).is_none()
                && manager.is_free(partition)
                && !manager.is_uncleanable(dir.path(), partition)
        });
        logs
    }

    fn grab_filthiest_log(&self, now: Time) -> Option<LogToClean> {
        let mut filthiest: Option<LogToClean> = None;
        for log in self.free_compacted_logs() {
            let last_clean = self.cleaner_checkpoint(&log);
            let cleanable = match LogToClean::of(&log, last_clean, now.wall_ms) {
                Ok(cleanable) => cleanable,
                Err(e) => {
                    self.note_failure(&log, e);
                    continue;
                }
            };
            if cleanable.update_checkpoint {
                // What lies below the start is clean only while the log does not begin lower again.
                self.checkpoint_log_start_offsets();
                self.update_cleaner_checkpoint(log.log_dir(), |offsets| {
                    offsets.insert(log.topic_partition().clone(), cleanable.first_dirty_offset);
                });
            }
            let is_filthier =
                filthiest.as_ref().is_none_or(|other| cleanable.cleanable_ratio() > other.cleanable_ratio());
            if cleanable.is_due() && is_filthier {
                filthiest = Some(cleanable);
            }
        }
        let chosen = filthiest.filter(|cleanable| self.begin_cleaning(&cleanable.log))?;
        // Only now nobody else changes it: a truncation may have come between the look and this.
        let log = &chosen.log;
        match LogToClean::of(log, self.cleaner_checkpoint(log), now.wall_ms) {
            Ok(cleanable) if cleanable.is_due() && log.config().compact => Some(cleanable),
            _ => {
                self.cleaner.manager.end(log.topic_partition());
                None
            }
        }
    }

    /// False when the log is no longer free or there: another thread has it, it began to move, or was deleted.
    fn begin_cleaning(&self, log: &UnifiedLog) -> bool {
        let partition = log.topic_partition();
        if !self.cleaner.manager.begin(partition) {
            return false;
        }
        let is_here = self.get_log(partition).is_some_and(|current| std::ptr::eq(&*current, log));
        let begins = is_here && self.get_future_log(partition).is_none();
        if !begins {
            self.cleaner.manager.end(partition);
        }
        begins
    }

    fn note_failure(&self, log: &UnifiedLog, error: std::io::Error) {
        // A segment may vanish, with its log or by truncation, while it is looked at.
        if error.kind() == std::io::ErrorKind::NotFound {
            return;
        }
        let is_contents = error.kind() == std::io::ErrorKind::InvalidData;
        let error = log.fail("Failed to calculate log cleaning stats for", error);
        if is_contents {
            self.mark_uncleanable(log, &error);
        }
    }

    fn mark_uncleanable(&self, log: &UnifiedLog, why: &dyn std::fmt::Display) {
        let partition = log.topic_partition();
        tracing::warn!(
            "Unexpected exception thrown when cleaning log {log:?}. Marking its partition ({partition}) as uncleanable: \
             {why}"
        );
        self.cleaner.manager.mark_uncleanable(log.log_dir().path(), partition);
    }

    fn clean_log(
        &self,
        thread: &mut CleanerThread,
        host: &dyn CleanerHost,
        cleanable: &LogToClean,
        now: Time,
    ) -> bool {
        let log = &cleanable.log;
        let partition = log.topic_partition();
        let release = Release { manager: self, partition };
        let result = self.clean_grabbed(thread, host, cleanable, now);
        match &result {
            Ok(_) | Err(CleanFailure::Stopping) => {}
            Err(CleanFailure::Aborted) => tracing::info!("The cleaning for partition {partition} is aborted"),
            Err(CleanFailure::Storage(e)) => tracing::warn!("{e}"),
            Err(CleanFailure::Uncleanable(why)) => self.mark_uncleanable(log, why),
        }
        let end_offset = *result.as_ref().unwrap_or(&cleanable.first_dirty_offset);
        // Who has aborted this cleaning puts the checkpoint right itself, after `release`.
        if !self.cleaner.manager.is_aborted(partition) {
            self.update_cleaner_checkpoint(log.log_dir(), |offsets| {
                offsets.insert(partition.clone(), end_offset);
            });
        }
        drop(release);
        result.is_ok()
    }

    fn clean_grabbed(
        &self,
        thread: &mut CleanerThread,
        host: &dyn CleanerHost,
        cleanable: &LogToClean,
        now: Time,
    ) -> Result<i64, CleanFailure> {
        let log = &cleanable.log;
        // The records that others are dropped for must be as durable as the drop, and so must the markers that made
        // them count, which may lie anywhere; and recovery must know that gaps below are none of a crash's making.
        log.flush(now)?;
        self.checkpoint_recovery_points();
        // Below its start a log is not cleaned, but tombstones there begin to age: were the start lost, a value could
        // outlive the tombstone that deleted it.
        self.checkpoint_log_start_offsets();
        log.log_dir().check_online()?;
        let job = Job { cleaner: &self.cleaner, host, log, config: log.config(), now };
        let end_offset = thread.clean(&job, cleanable)?;
        self.report(thread, cleanable, end_offset);
        Ok(end_offset)
    }

    fn report(&self, thread: &CleanerThread, cleanable: &LogToClean, end_offset: i64) {
        let stats = thread.last_stats();
        let mb = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        tracing::info!(
            "Log cleaner thread {} cleaned log {} (dirty section = [{}, {end_offset}]): {:.1} MB ({} messages) became \
             {:.1} MB ({} messages) in {:.1} seconds, {:.1} of them for the index; {:.1}% of the buffer used",
            thread.id(),
            cleanable.log.topic_partition(),
            cleanable.first_dirty_offset,
            mb(stats.bytes_read),
            stats.records_read,
            mb(stats.bytes_written),
            stats.records_written,
            stats.elapsed.as_secs_f64(),
            stats.index_time.as_secs_f64(),
            100.0 * stats.buffer_utilization
        );
        if stats.invalid_records > 0 {
            tracing::warn!("\tFound {} invalid messages during compaction.", stats.invalid_records);
        }
    }

    /// Retention of logs with `cleanup.policy=compact,delete`, and of what lies below a compacted log's start.
    fn delete_old_segments_of_compacted_logs(&self, host: &dyn CleanerHost, now: Time) {
        for log in self.free_compacted_logs() {
            if host.is_stopping() || !self.begin_cleaning(&log) {
                continue;
            }
            let _release = Release { manager: self, partition: log.topic_partition() };
            match log.delete_old_segments(now) {
                Ok(_) | Err(StorageError::Closed(_)) => {}
                Err(e) => tracing::warn!("{e}"),
            }
        }
    }
}

/// Lets go of a log however its cleaning ends.
struct Release<'a> {
    manager: &'a LogManager,
    partition: &'a TopicPartition,
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.manager.cleaner.manager.end(self.partition);
    }
}
