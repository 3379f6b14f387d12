//! Upkeep: checkpoints, retention, expiry, flushes, removal of what was deleted, failed directories.
//!
//! Owns: [`LogManager::tick`] and the times at which each task is next due.
//! Invariants: timers run on monotonic time. Checkpoints that would say the same are not written again.
//! Concurrency: one tick at a time; it may wait for the disk and holds no lock then that readers or writers want.
//! Crash: every task can be repeated; checkpoints are only ever behind.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use record::crc::crc32c;
use record::{Time, TopicPartition};

use super::{Doomed, LogManager, LogManagerConfig};
use crate::checkpoint;
use crate::context::LogDir;
use crate::log::{UnifiedLog, delay};
use crate::names;
use crate::producer::ignore_missing;

/// `partition.metadata` files written per pass: none is synced, and a pass must not hold up the others for long.
const SMALL_FILES_PER_PASS: usize = 10_000;
const SMALL_FILES_INTERVAL: Duration = Duration::from_secs(1);
/// Files that nobody used for one to two of these are closed.
const IDLE_FILES_INTERVAL: Duration = Duration::from_secs(15);

/// What a tick did that others must know.
#[derive(Debug, Default)]
pub struct TickReport {
    /// Directories that went offline, with the cause, and the partitions that were in them.
    pub failed_dirs: Vec<(Arc<LogDir>, String, Vec<TopicPartition>)>,
    pub segments_deleted: usize,
    pub logs_deleted: usize,
}

#[derive(Debug)]
pub(super) struct Schedule {
    small_files: Duration,
    idle_files: Duration,
    flush: Duration,
    recovery_points: Duration,
    log_start_offsets: Duration,
    high_watermarks: Duration,
    retention: Duration,
    producer_expiry: Duration,
}

impl Schedule {
    pub(super) fn new(config: &LogManagerConfig, now: Duration) -> Self {
        let first = now + delay(config.initial_task_delay_ms);
        Schedule {
            small_files: now,
            idle_files: now + IDLE_FILES_INTERVAL,
            flush: first,
            recovery_points: first,
            log_start_offsets: first,
            high_watermarks: now + delay(config.high_watermark_checkpoint_interval_ms),
            retention: first,
            producer_expiry: now + delay(config.producer_id_expiration_check_interval_ms),
        }
    }
}

/// Whether a task is due; if so it is due again one interval from now.
fn is_due(next: &mut Duration, now: Duration, interval: Duration) -> bool {
    if *next > now {
        return false;
    }
    *next = now.saturating_add(interval.max(Duration::from_millis(1)));
    true
}

#[derive(Clone, Copy)]
enum Checkpoint {
    RecoveryPoints,
    LogStartOffsets,
    HighWatermarks,
}

impl LogManager {
    /// Does what is due. To be called about once a second from a thread that may wait for disks.
    pub fn tick(&self, now: Time) -> TickReport {
        let mut report = TickReport::default();
        let Some(mut schedule) = self.schedule.try_lock() else { return report };
        let at = now.monotonic;
        self.context.run_due(now);
        self.live_log_dirs().iter().for_each(|dir| dir.look_at_space(self.fs()));
        if is_due(&mut schedule.small_files, at, SMALL_FILES_INTERVAL) {
            self.write_small_files();
        }
        if is_due(&mut schedule.idle_files, at, IDLE_FILES_INTERVAL) {
            self.all_logs().iter().for_each(|log| log.tidy());
        }
        let config = &self.config;
        if is_due(&mut schedule.flush, at, delay(config.flush_scheduler_interval_ms)) {
            self.flush_dirty_logs(now);
        }
        if is_due(&mut schedule.recovery_points, at, delay(config.flush_offset_checkpoint_interval_ms)) {
            self.flush_synced_logs(now);
            self.checkpoint_recovery_points();
        }
        let interval = delay(config.flush_start_offset_checkpoint_interval_ms);
        if is_due(&mut schedule.log_start_offsets, at, interval) {
            self.checkpoint_log_start_offsets();
        }
        let interval = delay(config.high_watermark_checkpoint_interval_ms);
        if is_due(&mut schedule.high_watermarks, at, interval) {
            self.checkpoint_high_watermarks();
        }
        if is_due(&mut schedule.retention, at, delay(config.retention_check_interval_ms)) {
            report.segments_deleted = self.cleanup_logs(now);
        }
        let interval = delay(config.producer_id_expiration_check_interval_ms);
        if is_due(&mut schedule.producer_expiry, at, interval) {
            self.all_logs().iter().for_each(|log| log.remove_expired_producers(now));
        }
        report.logs_deleted = self.delete_doomed(now);
        report.failed_dirs = self.handle_failed_dirs();
        report
    }

    fn write_small_files(&self) {
        let mut written = 0;
        for log in self.all_logs() {
            if written == SMALL_FILES_PER_PASS {
                break;
            }
            if log.log_dir().is_offline() {
                continue;
            }
            match log.write_metadata() {
                Ok(wrote) => written += usize::from(wrote),
                Err(e) => tracing::warn!("{e}"),
            }
        }
    }

    fn flush_dirty_logs(&self, now: Time) {
        for log in self.all_logs() {
            let interval = log.config().flush_ms;
            let is_old = now.wall_ms.saturating_sub(log.last_flush_ms()) >= interval;
            if is_old && let Err(e) = log.flush(now) {
                tracing::warn!("Error flushing topic {}: {e}", log.topic_partition());
            }
        }
    }

    /// Applies retention; compacted logs are the cleaner's.
    fn cleanup_logs(&self, now: Time) -> usize {
        let mut deleted = 0;
        self.with_cleaning_paused(|logs| {
            let futures = logs.iter().filter_map(|log| self.get_future_log(log.topic_partition()));
            let futures: Vec<Arc<UnifiedLog>> = futures.collect();
            for log in logs.iter().chain(&futures) {
                match log.delete_old_segments(now) {
                    Ok(count) => deleted += count,
                    Err(e) => tracing::warn!("{e}"),
                }
            }
        });
        deleted
    }

    fn delete_doomed(&self, now: Time) -> usize {
        let mut deleted = 0;
        loop {
            let doomed = {
                let mut queue = self.doomed.lock();
                match queue.front() {
                    Some((due, _)) if *due <= now.monotonic => queue.pop_front(),
                    _ => None,
                }
            };
            let result = match doomed {
                None => return deleted,
                Some((_, Doomed::Log(log))) => log.delete(),
                Some((_, Doomed::Dir { dir, path })) => ignore_missing(self.fs().remove_dir_all(&path))
                    .map_err(|e| dir.fail("Error while deleting log in", &path, e)),
            };
            match result {
                Ok(()) => deleted += 1,
                Err(e) => tracing::error!("{e}"),
            }
        }
    }

    /// Takes the logs of failed directories out of service. To be called when [`LogDir::on_failure`] tells of one.
    pub fn handle_failed_dirs(&self) -> Vec<(Arc<LogDir>, String, Vec<TopicPartition>)> {
        let mut failed = Vec::new();
        for dir in self.log_dirs() {
            let Some(cause) = dir.take_failure() else { continue };
            let _creation = self.creation.lock();
            let mut gone: Vec<Arc<UnifiedLog>> = Vec::new();
            {
                let mut logs = self.logs.write();
                let super::Logs { current, future } = &mut *logs;
                for map in [current, future] {
                    map.retain(|_, log| {
                        let stays = !Arc::ptr_eq(log.log_dir(), &dir);
                        if !stays {
                            gone.push(log.clone());
                        }
                        stays
                    });
                }
            }
            gone.iter().for_each(|log| log.close_quietly());
            let mut partitions: Vec<TopicPartition> =
                gone.iter().map(|log| log.topic_partition().clone()).collect();
            partitions.sort();
            tracing::warn!("Stopping serving logs in dir {}: {cause}", dir.path().display());
            for state in self.dirs.lock().iter().filter(|state| Arc::ptr_eq(&state.dir, &dir)) {
                state.lock.lock().take();
            }
            failed.push((dir, cause, partitions));
        }
        failed
    }

    pub fn checkpoint_recovery_points(&self) {
        self.write_checkpoints(Checkpoint::RecoveryPoints, |log| Some(log.recovery_point()));
    }

    /// Only starts that lie inside a segment, and those below which segments were removed that a power cut may bring
    /// back: the others are told by the files.
    pub fn checkpoint_log_start_offsets(&self) {
        self.write_checkpoints(Checkpoint::LogStartOffsets, |log| {
            let start = log.log_start_offset();
            let segments = log.segments();
            let first = segments.first()?;
            let is_told = start <= first.base_offset() && (start == 0 || !first.has_new_names());
            Some(start).filter(|_| !is_told)
        });
    }

    pub fn checkpoint_high_watermarks(&self) {
        self.write_checkpoints(Checkpoint::HighWatermarks, |log| Some(log.high_watermark()));
    }

    fn write_checkpoints(&self, which: Checkpoint, offset_of: impl Fn(&UnifiedLog) -> Option<i64>) {
        let logs = self.all_logs();
        let mut dirs = self.dirs.lock();
        for state in dirs.iter_mut().filter(|state| state.loaded && !state.dir.is_offline()) {
            let in_dir = logs.iter().filter(|log| Arc::ptr_eq(log.log_dir(), &state.dir));
            let offsets: BTreeMap<TopicPartition, i64> =
                in_dir.filter_map(|log| Some((log.topic_partition().clone(), offset_of(log)?))).collect();
            let file = match which {
                Checkpoint::RecoveryPoints => names::RECOVERY_POINT_CHECKPOINT_FILE,
                Checkpoint::LogStartOffsets => names::LOG_START_OFFSET_CHECKPOINT_FILE,
                Checkpoint::HighWatermarks => names::HIGH_WATERMARK_CHECKPOINT_FILE,
            };
            let sum = checksum(&offsets);
            let Some(written) = state.written.get_mut(which as usize) else { continue };
            if *written == Some(sum) {
                continue;
            }
            let path = state.dir.path().join(file);
            match checkpoint::write_offset_checkpoint(self.fs(), &path, &offsets) {
                Ok(()) => *written = Some(sum),
                Err(e) => {
                    let error = state.dir.fail("Disk error while writing checkpoint", &path, e);
                    tracing::error!("{error}");
                }
            }
        }
    }
}

fn checksum(offsets: &BTreeMap<TopicPartition, i64>) -> u32 {
    let mut text = String::new();
    for (partition, offset) in offsets {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{partition} {offset}");
    }
    crc32c(text.as_bytes()) ^ offsets.len() as u32
}
