//! What of a log may be cleaned, and how urgent that is.
//!
//! Owns: [`LogToClean`]. Invariants: as 4.4.0's LogCleanerManager decides: from the first dirty offset up to the first
//! segment that holds an unstable offset, is active, or is younger than `min.compaction.lag.ms`.
//! Concurrency, crash: reads only.

use std::io;
use std::sync::Arc;

use crate::log::UnifiedLog;
use crate::segment::LogSegment;

/// A log with something to clean.
pub(crate) struct LogToClean {
    pub(crate) log: Arc<UnifiedLog>,
    /// Records below have been cleaned.
    pub(crate) first_dirty_offset: i64,
    /// Base offset of the first segment that must not be cleaned.
    pub(crate) first_uncleanable_offset: i64,
    /// A record waits for longer than `max.compaction.lag.ms` by this much; 0: none does.
    pub(crate) compaction_delay_ms: i64,
    /// The checkpoint was nonsense: `first_dirty_offset` belongs into it.
    pub(crate) update_checkpoint: bool,
    pub(crate) cleanable_bytes: u64,
    pub(crate) total_bytes: u64,
}

impl LogToClean {
    pub(crate) fn of(log: &Arc<UnifiedLog>, last_clean: Option<i64>, now_ms: i64) -> io::Result<Self> {
        let (first_dirty_offset, update_checkpoint) = first_dirty_offset(log, last_clean);
        let compaction_delay_ms = compaction_delay_ms(log, first_dirty_offset, now_ms)?;
        let uncleanable = first_uncleanable_offset(log, first_dirty_offset, now_ms)?;
        let first_uncleanable_offset = {
            let behind = log.non_active_log_segments_from(uncleanable.max(first_dirty_offset));
            behind.first().map_or_else(|| log.active_segment_base_offset(), |segment| segment.base_offset())
        };
        let clean_bytes = total_size(&log.log_segments(-1, first_dirty_offset));
        let from = first_dirty_offset.min(first_uncleanable_offset);
        let cleanable_bytes = total_size(&log.log_segments(from, first_uncleanable_offset));
        Ok(LogToClean {
            log: log.clone(),
            first_dirty_offset,
            first_uncleanable_offset,
            compaction_delay_ms,
            update_checkpoint,
            cleanable_bytes,
            total_bytes: clean_bytes + cleanable_bytes,
        })
    }

    pub(crate) fn cleanable_ratio(&self) -> f64 {
        if self.total_bytes == 0 { 0.0 } else { self.cleanable_bytes as f64 / self.total_bytes as f64 }
    }

    /// Whether it is to be cleaned now.
    pub(crate) fn is_due(&self) -> bool {
        self.compaction_delay_ms > 0 && self.cleanable_bytes > 0
            || self.cleanable_ratio() > self.log.config().min_cleanable_dirty_ratio
    }
}

fn total_size(segments: &[Arc<LogSegment>]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.size())).sum()
}

/// The checkpoint's offset, or the log's start where that makes no sense; then true.
fn first_dirty_offset(log: &UnifiedLog, last_clean: Option<i64>) -> (i64, bool) {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let checkpointed = last_clean.unwrap_or(start);
    let name = log.topic_partition();
    if checkpointed < start {
        let config = log.config();
        // With retention the start moves behind what was cleaned all the time.
        if !(config.compact && config.delete) {
            tracing::warn!(
                "Resetting first dirty offset of {name} to log start offset {start} since the checkpointed offset \
                 {checkpointed} is invalid."
            );
        }
        (start, true)
    } else if checkpointed > end {
        tracing::warn!(
            "The last checkpoint dirty offset for partition {name} is {checkpointed}, which is larger than the log end \
             offset {end}. Resetting to the log start offset {start}."
        );
        (start, true)
    } else {
        (checkpointed, false)
    }
}

fn first_uncleanable_offset(log: &UnifiedLog, first_dirty_offset: i64, now_ms: i64) -> io::Result<i64> {
    let mut first = log.last_stable_offset().min(log.active_segment_base_offset());
    let lag_ms = log.config().min_compaction_lag_ms;
    if lag_ms > 0 {
        for segment in log.non_active_log_segments_from(first_dirty_offset) {
            if segment.largest_timestamp(log.fs())? > now_ms.saturating_sub(lag_ms) {
                first = first.min(segment.base_offset());
                break;
            }
        }
    }
    Ok(first)
}

/// By how much the oldest dirty record is beyond `max.compaction.lag.ms` (KIP-354).
fn compaction_delay_ms(log: &UnifiedLog, first_dirty_offset: i64, now_ms: i64) -> io::Result<i64> {
    let mut earliest = i64::MAX;
    for segment in log.non_active_log_segments_from(first_dirty_offset) {
        let first = segment.first_batch_timestamp(log.fs())?.filter(|timestamp| *timestamp > 0);
        earliest = earliest.min(first.unwrap_or(i64::MAX));
    }
    let clean_until = now_ms.saturating_sub(log.config().max_compaction_lag_ms.max(0));
    Ok(if earliest < clean_until { clean_until - earliest } else { 0 })
}
