//! A topic's configuration as the log understands it.

use config::{BrokerCompressionType, TimestampType};
use record::Compression;

fn compression(topic: &config::LogConfig) -> Option<Compression> {
    match topic.compression_type {
        BrokerCompressionType::Producer => None,
        BrokerCompressionType::Uncompressed => Some(Compression::None),
        BrokerCompressionType::Gzip => Some(Compression::Gzip(topic.compression_gzip_level)),
        BrokerCompressionType::Snappy => Some(Compression::Snappy),
        BrokerCompressionType::Lz4 => Some(Compression::Lz4(topic.compression_lz4_level)),
        BrokerCompressionType::Zstd => Some(Compression::Zstd(topic.compression_zstd_level)),
    }
}

/// Translates; every value has been checked by `config`.
pub(crate) fn log_config(topic: &config::LogConfig) -> storage::LogConfig {
    let size = |value: i32| u32::try_from(value).unwrap_or(0);
    storage::LogConfig {
        segment_size_bytes: size(topic.segment_bytes),
        segment_ms: topic.segment_ms,
        segment_jitter_ms: topic.segment_jitter_ms,
        max_index_size_bytes: size(topic.segment_index_bytes),
        flush_messages: topic.flush_messages,
        flush_ms: topic.flush_ms,
        retention_bytes: topic.retention_bytes,
        retention_ms: topic.retention_ms,
        max_message_bytes: size(topic.max_message_bytes),
        max_decompressed_message_bytes: usize::try_from(topic.max_decompressed_message_bytes).unwrap_or(0),
        index_interval_bytes: size(topic.index_interval_bytes),
        file_delete_delay_ms: topic.file_delete_delay_ms,
        compact: topic.compact,
        delete: topic.delete,
        max_compaction_lag_ms: topic.max_compaction_lag_ms,
        compression: compression(topic),
        message_timestamp_type: match topic.message_timestamp_type {
            TimestampType::CreateTime => record::TimestampType::CreateTime,
            TimestampType::LogAppendTime => record::TimestampType::LogAppendTime,
        },
        message_timestamp_before_max_ms: topic.message_timestamp_before_max_ms,
        message_timestamp_after_max_ms: topic.message_timestamp_after_max_ms,
    }
}
