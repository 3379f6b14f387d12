//! Truncation.
//!
//! Owns: cutting a follower's log back, and starting it anew elsewhere.
//! Invariants: end, epochs, producer state, high watermark and log start are consistent again before the lock goes.
//! Concurrency: the writer lock; readers see sizes shrink before bytes go.
//! Crash: a truncation that was cut short is a log that ends later than wanted; the leader asks again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use record::Time;

use super::{UnifiedLog, Writer};
use crate::error::StorageError;
use crate::log_dir::sync_dir;
use crate::segment::LogSegment;

/// A truncation that stopped in the middle has left a log that nobody may go on with, a full disk or not: its directory
/// goes offline, and the next start makes it whole.
pub(super) fn half_done(error: std::io::Error) -> std::io::Error {
    std::io::Error::other(error)
}

impl UnifiedLog {
    /// Removes all records at and behind `target_offset`; false when there were none.
    pub fn truncate_to(&self, target_offset: i64, now: Time) -> Result<bool, StorageError> {
        debug_assert!(target_offset >= 0, "truncation to a negative offset");
        let _flushing = self.flushing.lock();
        let mut writer = self.lock_writer()?;
        if target_offset < self.high_watermark() {
            tracing::warn!(
                "Truncating {} to offset {target_offset} below high watermark {}",
                self.topic_partition,
                self.high_watermark()
            );
        }
        if target_offset >= self.log_end_offset() {
            self.epochs.lock().truncate_from_end(self.log_end_offset());
            return Ok(false);
        }
        tracing::info!("Truncating {} to offset {target_offset}", self.topic_partition);
        let segments = self.segments.load_full();
        if segments.first().is_some_and(|first| first.base_offset() > target_offset) {
            self.start_anew(&mut writer, target_offset, None, now)?;
            return Ok(true);
        }
        let deleted: Vec<Arc<LogSegment>> =
            segments.iter().filter(|segment| segment.base_offset() > target_offset).cloned().collect();
        self.publish_segments(|segments| segments.retain(|segment| segment.base_offset() <= target_offset));
        let active = self.active_segment();
        let has_deleted = !deleted.is_empty();
        self.delete_segments(&mut writer, deleted, now)?;
        if has_deleted {
            // A deleted segment must not come back behind records that were written in its place.
            self.sync_names()?;
        }
        let truncated = active.truncate_to(self.fs(), target_offset, now.wall_ms);
        truncated.map_err(|e| self.fail("Error while truncating log of", half_done(e)))?;
        self.set_log_end(target_offset);
        self.epochs.lock().truncate_from_end(target_offset);
        self.log_start_offset.fetch_min(target_offset, Ordering::AcqRel);
        self.rebuild_producers(&mut writer, target_offset, now)?;
        if self.high_watermark() >= self.log_end_offset() {
            let end = self.log_end.load();
            self.set_high_watermark(&mut writer, end);
        }
        self.update_first_unstable_offset(&writer);
        // Nor may a producer snapshot of what was cut.
        self.sync_names()?;
        Ok(true)
    }

    pub(super) fn sync_names(&self) -> Result<(), StorageError> {
        sync_dir(self.fs(), &self.dir.path()).map_err(|e| self.fail("Error while truncating log of", e))
    }

    /// Removes everything and goes on at `new_offset`; the log starts there, or at `log_start_offset`.
    pub fn truncate_fully_and_start_at(
        &self,
        new_offset: i64,
        log_start_offset: Option<i64>,
        now: Time,
    ) -> Result<(), StorageError> {
        let _flushing = self.flushing.lock();
        let mut writer = self.lock_writer()?;
        self.start_anew(&mut writer, new_offset, log_start_offset, now)
    }

    fn start_anew(
        &self,
        writer: &mut Writer,
        new_offset: i64,
        log_start_offset: Option<i64>,
        now: Time,
    ) -> Result<(), StorageError> {
        let doing = "Error while truncating the entire log for";
        let old = self.segments.load_full();
        let kept = old.iter().find(|segment| segment.base_offset() == new_offset).cloned();
        // At no time is there no segment: a log without one would begin at 0 again.
        let segment = match kept {
            Some(segment) => {
                let cut = segment.truncate_to(self.fs(), new_offset, now.wall_ms);
                cut.map_err(|e| self.fail(doing, half_done(e)))?;
                segment
            }
            None => {
                let jitter = self.config.load().random_segment_jitter(self.context.env.random.next_u64());
                let size = self.config.load().initial_file_size();
                let made =
                    LogSegment::create(self.fs(), self.dir.clone(), new_offset, now.wall_ms, jitter, size);
                Arc::new(made.map_err(|e| self.fail(doing, e))?)
            }
        };
        self.sync_names()?;
        let deleted = old.iter().filter(|old| old.base_offset() != new_offset).cloned().collect();
        self.segments.store(Arc::new(vec![segment]));
        self.delete_segments(writer, deleted, now)?;
        self.set_log_end(new_offset);
        self.group_commit.forget_place();
        self.epochs.lock().clear();
        let dir = self.dir.path();
        let producers = &mut writer.producers;
        producers
            .truncate_fully_and_start_at(self.fs(), &dir, new_offset)
            .map_err(|e| self.fail(doing, half_done(e)))?;
        self.log_start_offset.store(log_start_offset.unwrap_or(new_offset), Ordering::Release);
        self.rebuild_producers(writer, new_offset, now)?;
        let end = self.log_end.load();
        self.set_high_watermark(writer, end);
        self.update_first_unstable_offset(writer);
        self.sync_names()
    }
}
