//! The settings of one log: what `storage` needs of a topic's configuration.
//!
//! Owns: [`LogConfig`] with Apache Kafka 4.4.0's defaults. Values come from outside, already validated.
//! Invariants, concurrency, crash: a value.

use record::{Compression, TimestampType};

/// Topic-level settings, named as in Kafka.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// `segment.bytes`, or `internal.segment.bytes` where that is set.
    pub segment_size_bytes: u32,
    /// `segment.ms`
    pub segment_ms: i64,
    /// `segment.jitter.ms`
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`
    pub max_index_size_bytes: u32,
    /// `flush.messages`
    pub flush_messages: i64,
    /// `flush.ms`
    pub flush_ms: i64,
    /// `retention.bytes`; negative: no limit
    pub retention_bytes: i64,
    /// `retention.ms`; negative: no limit
    pub retention_ms: i64,
    /// `max.message.bytes`
    pub max_message_bytes: u32,
    /// `max.decompressed.message.bytes`
    pub max_decompressed_message_bytes: usize,
    /// `preallocate`
    pub preallocate: bool,
    /// `index.interval.bytes`
    pub index_interval_bytes: u32,
    /// `file.delete.delay.ms`
    pub file_delete_delay_ms: i64,
    /// `cleanup.policy` holds `compact`
    pub compact: bool,
    /// `cleanup.policy` holds `delete`
    pub delete: bool,
    /// `min.cleanable.dirty.ratio`
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`
    pub min_compaction_lag_ms: i64,
    /// `delete.retention.ms`
    pub delete_retention_ms: i64,
    /// `max.compaction.lag.ms`
    pub max_compaction_lag_ms: i64,
    /// `compression.type`; `None` keeps the producer's.
    pub compression: Option<Compression>,
    /// `message.timestamp.type`
    pub message_timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`
    pub message_timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`
    pub message_timestamp_after_max_ms: i64,
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig {
            segment_size_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            segment_jitter_ms: 0,
            max_index_size_bytes: 10 << 20,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            retention_bytes: -1,
            retention_ms: 7 * 24 * 3_600_000,
            max_message_bytes: 1_048_588,
            max_decompressed_message_bytes: 0x7fff_fff7,
            preallocate: false,
            index_interval_bytes: 4096,
            file_delete_delay_ms: 60_000,
            compact: false,
            delete: true,
            min_cleanable_dirty_ratio: 0.5,
            min_compaction_lag_ms: 0,
            delete_retention_ms: 86_400_000,
            max_compaction_lag_ms: i64::MAX,
            compression: None,
            message_timestamp_type: TimestampType::CreateTime,
            message_timestamp_before_max_ms: i64::MAX,
            message_timestamp_after_max_ms: 3_600_000,
        }
    }
}

impl LogConfig {
    /// The length that a new segment's file has at once.
    pub(crate) fn initial_file_size(&self) -> u32 {
        if self.preallocate { self.segment_size_bytes } else { 0 }
    }

    /// How old the active segment may get before it is rolled (KIP-354).
    pub fn max_segment_ms(&self) -> i64 {
        if self.compact && self.max_compaction_lag_ms > 0 {
            self.max_compaction_lag_ms.min(self.segment_ms)
        } else {
            self.segment_ms
        }
    }

    /// What a new segment's age limit is shortened by, so that partitions made together do not roll together.
    pub(crate) fn random_segment_jitter(&self, random: u64) -> i64 {
        let bound = self.segment_jitter_ms.min(self.segment_ms);
        if bound <= 0 { 0 } else { (random >> 1) as i64 % bound }
    }
}
