//! Retention and the start of the log.
//!
//! Owns: which segments may go, and moving the log start.
//! Invariants: whole segments go, oldest first, never one that holds records at or above the high watermark; the log
//! never loses its active segment without getting another.
//! Concurrency: the writer lock.
//! Crash: a segment that was about to go is there again; the log start comes back from its checkpoint, or as the
//! first segment's base.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use record::Time;

use super::{UnifiedLog, Writer};
use crate::error::{ReadError, StorageError};
use crate::segment::LogSegment;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStartOffsetIncrementReason {
    LeaderOffsetIncremented,
    SegmentDeletion,
    ClientRecordDeletion,
    SnapshotGenerated,
}

impl LogStartOffsetIncrementReason {
    fn text(self) -> &'static str {
        match self {
            Self::LeaderOffsetIncremented => "leader offset increment",
            Self::SegmentDeletion => "segment deletion",
            Self::ClientRecordDeletion => "client delete records request",
            Self::SnapshotGenerated => "snapshot generated",
        }
    }
}

impl UnifiedLog {
    /// Moves the log start up to `new_start`, never behind the high watermark; true when it moved.
    pub fn maybe_increment_log_start_offset(
        &self,
        new_start: i64,
        reason: LogStartOffsetIncrementReason,
    ) -> Result<bool, ReadError> {
        let mut writer = self.lock_writer()?;
        if new_start > self.high_watermark() {
            return Err(ReadError::OffsetOutOfRange(format!(
                "Cannot increment the log start offset to {new_start} of partition {} since it is larger than the high \
                 watermark {}",
                self.topic_partition,
                self.high_watermark()
            )));
        }
        Ok(self.increment_log_start(&mut writer, new_start, reason))
    }

    fn increment_log_start(
        &self,
        writer: &mut Writer,
        new_start: i64,
        reason: LogStartOffsetIncrementReason,
    ) -> bool {
        if new_start <= self.log_start_offset() {
            return false;
        }
        self.log_start_offset.store(new_start, Ordering::Release);
        tracing::info!(
            "Incremented log start offset of {} to {new_start} due to {}",
            self.topic_partition,
            reason.text()
        );
        self.epochs.lock().truncate_from_start(new_start);
        writer.producers.on_log_start_offset_incremented(new_start);
        self.update_first_unstable_offset(writer);
        true
    }

    /// Removes what retention allows to remove now; returns the number of segments.
    pub fn delete_old_segments(&self, now: Time) -> Result<usize, StorageError> {
        let config = self.config.load_full();
        let mut deleted = self.delete_below_log_start(now)?;
        if config.delete {
            deleted += self.delete_beyond_size(config.retention_bytes, now)?;
            deleted += self.delete_beyond_age(config.retention_ms, now)?;
        }
        Ok(deleted)
    }

    fn delete_below_log_start(&self, now: Time) -> Result<usize, StorageError> {
        let start = self.log_start_offset();
        self.delete_while(
            now,
            |_, next| Ok(next.is_some_and(|next| next.base_offset() <= start)),
            |_| format!("log start offset {start} breach"),
        )
    }

    fn delete_beyond_size(&self, retention_bytes: i64, now: Time) -> Result<usize, StorageError> {
        let size = i64::try_from(self.size()).unwrap_or(i64::MAX);
        if retention_bytes < 0 || size < retention_bytes {
            return Ok(0);
        }
        let mut excess = size - retention_bytes;
        self.delete_while(
            now,
            |segment, _| {
                let left = excess - i64::from(segment.size());
                if left >= 0 {
                    excess = left;
                }
                Ok(left >= 0)
            },
            |_| format!("log retention size {retention_bytes} breach"),
        )
    }

    fn delete_beyond_age(&self, retention_ms: i64, now: Time) -> Result<usize, StorageError> {
        if retention_ms < 0 {
            return Ok(0);
        }
        self.delete_while(
            now,
            |segment, _| {
                let largest = segment.largest_timestamp(self.fs())?;
                if largest > now.wall_ms && segment.is_first_sight_of_the_future() {
                    tracing::warn!(
                        "Segment {} of {} holds a timestamp of the future, {largest}: retention.ms does not remove it \
                         before that is past",
                        segment.base_offset(),
                        self.topic_partition
                    );
                }
                Ok(now.wall_ms.saturating_sub(largest) > retention_ms)
            },
            |segment| {
                let by = match segment.max_timestamp_so_far(self.fs()) {
                    Ok(max) if max.timestamp >= 0 => "the largest record timestamp",
                    _ => "the last modified time",
                };
                format!("log retention time {retention_ms}ms breach based on {by} in the segment")
            },
        )
    }

    fn delete_while(
        &self,
        now: Time,
        mut condition: impl FnMut(&LogSegment, Option<&LogSegment>) -> std::io::Result<bool>,
        reason: impl Fn(&LogSegment) -> String,
    ) -> Result<usize, StorageError> {
        let _flushing = self.flushing.lock();
        let mut writer = self.lock_writer()?;
        let segments = self.segments.load_full();
        let mut deletable: Vec<Arc<LogSegment>> = Vec::new();
        for (i, segment) in segments.iter().enumerate() {
            let next = segments.get(i + 1).map(|next| &**next);
            let upper_bound = next.map_or(self.log_end_offset(), LogSegment::base_offset);
            let is_last_and_empty = next.is_none() && segment.size() == 0;
            if is_last_and_empty || self.high_watermark() < upper_bound {
                break;
            }
            if !condition(segment, next).map_err(|e| self.fail("Error while deleting segments for", e))? {
                break;
            }
            deletable.push(segment.clone());
        }
        let count = deletable.len();
        if count == 0 {
            return Ok(0);
        }
        for segment in &deletable {
            tracing::info!(
                "Deleting segment {} of {} ({} bytes) due to {}",
                segment.base_offset(),
                self.topic_partition,
                segment.size(),
                reason(segment)
            );
        }
        if count == segments.len() {
            self.roll(now, &mut writer, 0)?;
            // Its name first: without any segment the log would begin at 0 again.
            self.sync_names()?;
        }
        self.sync_snapshots()?;
        let kept = self.segments.load_full();
        let new_start = kept.get(count).map_or(self.log_end_offset(), |segment| segment.base_offset());
        self.increment_log_start(&mut writer, new_start, LogStartOffsetIncrementReason::SegmentDeletion);
        self.publish_segments(|segments| {
            segments.drain(..count.min(segments.len().saturating_sub(1)));
        });
        self.delete_segments(&mut writer, deletable, now)?;
        Ok(count)
    }
}
