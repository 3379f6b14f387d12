//! A topic's configuration as the log understands it, and the cleaner's.

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
        preallocate: topic.preallocate,
        index_interval_bytes: size(topic.index_interval_bytes),
        file_delete_delay_ms: topic.file_delete_delay_ms,
        compact: topic.compact,
        delete: topic.delete,
        min_cleanable_dirty_ratio: topic.min_cleanable_dirty_ratio,
        min_compaction_lag_ms: topic.min_compaction_lag_ms,
        delete_retention_ms: topic.delete_retention_ms,
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

/// The cleaner's settings.
pub(crate) fn cleaner_config(config: &config::ServerConfig) -> storage::CleanerConfig {
    storage::CleanerConfig {
        enable: config.log_cleaner_enable,
        threads: usize::try_from(config.log_cleaner_threads).unwrap_or(0),
        dedupe_buffer_size: u64::try_from(config.log_cleaner_dedupe_buffer_size).unwrap_or(0),
        dedupe_buffer_load_factor: config.log_cleaner_io_buffer_load_factor,
        io_buffer_size: usize::try_from(config.log_cleaner_io_buffer_size).unwrap_or(0),
        max_io_bytes_per_second: config.log_cleaner_io_max_bytes_per_second,
        backoff_ms: config.log_cleaner_backoff_ms,
    }
}
