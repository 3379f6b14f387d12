//! A topic's configuration (`LogConfig`): synonyms on the broker, typed view, checks.
//!
//! A topic has what it overrides and otherwise what its broker says under another name
//! (`segment.ms` ← `log.roll.ms`, `log.roll.hours`). Immutable values; pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{ConfigError, ErrorKind};
use crate::server::ServerConfig;
use crate::table::topic_table;
use crate::value::ConfigValue;

/// A broker key that stands for a topic key; its number times `factor` is the topic's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerSynonym {
    pub name: &'static str,
    pub factor: i64,
}

const fn same(name: &'static str) -> ServerSynonym {
    ServerSynonym { name, factor: 1 }
}

const fn hours(name: &'static str) -> ServerSynonym {
    ServerSynonym { name, factor: 3_600_000 }
}

const fn minutes(name: &'static str) -> ServerSynonym {
    ServerSynonym { name, factor: 60_000 }
}

/// Topic key to broker keys, the strongest first. Sorted by topic key.
const SYNONYMS: &[(&str, &[ServerSynonym])] = &[
    ("cleanup.policy", &[same("log.cleanup.policy")]),
    ("compression.gzip.level", &[same("compression.gzip.level")]),
    ("compression.lz4.level", &[same("compression.lz4.level")]),
    ("compression.type", &[same("compression.type")]),
    ("compression.zstd.level", &[same("compression.zstd.level")]),
    ("delete.retention.ms", &[same("log.cleaner.delete.retention.ms")]),
    ("file.delete.delay.ms", &[same("log.segment.delete.delay.ms")]),
    ("flush.messages", &[same("log.flush.interval.messages")]),
    ("flush.ms", &[same("log.flush.interval.ms"), same("log.flush.scheduler.interval.ms")]),
    ("index.interval.bytes", &[same("log.index.interval.bytes")]),
    ("local.retention.bytes", &[same("log.local.retention.bytes")]),
    ("local.retention.ms", &[same("log.local.retention.ms")]),
    ("max.compaction.lag.ms", &[same("log.cleaner.max.compaction.lag.ms")]),
    ("max.decompressed.message.bytes", &[same("max.decompressed.message.bytes")]),
    ("max.message.bytes", &[same("message.max.bytes")]),
    ("message.timestamp.after.max.ms", &[same("log.message.timestamp.after.max.ms")]),
    ("message.timestamp.before.max.ms", &[same("log.message.timestamp.before.max.ms")]),
    ("message.timestamp.type", &[same("log.message.timestamp.type")]),
    ("min.cleanable.dirty.ratio", &[same("log.cleaner.min.cleanable.ratio")]),
    ("min.compaction.lag.ms", &[same("log.cleaner.min.compaction.lag.ms")]),
    ("min.insync.replicas", &[same("min.insync.replicas")]),
    ("preallocate", &[same("log.preallocate")]),
    ("remote.copy.lag.bytes", &[same("log.remote.copy.lag.bytes")]),
    ("remote.copy.lag.ms", &[same("log.remote.copy.lag.ms")]),
    ("retention.bytes", &[same("log.retention.bytes")]),
    (
        "retention.ms",
        &[same("log.retention.ms"), minutes("log.retention.minutes"), hours("log.retention.hours")],
    ),
    ("segment.bytes", &[same("log.segment.bytes")]),
    ("segment.index.bytes", &[same("log.index.size.max.bytes")]),
    ("segment.jitter.ms", &[same("log.roll.jitter.ms"), hours("log.roll.jitter.hours")]),
    ("segment.ms", &[same("log.roll.ms"), hours("log.roll.hours")]),
    ("unclean.leader.election.enable", &[same("unclean.leader.election.enable")]),
];

/// The broker keys that stand for a topic key, the strongest first.
pub fn server_synonyms(topic_key: &str) -> &'static [ServerSynonym] {
    SYNONYMS.binary_search_by(|(name, _)| name.cmp(&topic_key)).map_or(&[], |i| SYNONYMS[i].1)
}

/// The strongest broker key for a topic key.
pub fn server_synonym(topic_key: &str) -> Option<&'static str> {
    server_synonyms(topic_key).first().map(|synonym| synonym.name)
}

/// Which codec the log stores batches in (`compression.type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokerCompressionType {
    /// Keep what the producer chose.
    Producer,
    Uncompressed,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// Whose clock a record's timestamp is from (`message.timestamp.type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

/// A topic's configuration in effect. Times in milliseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct LogConfig {
    /// `segment.bytes`, or `internal.segment.bytes` where a test sets it.
    pub segment_bytes: i32,
    pub segment_ms: i64,
    pub segment_jitter_ms: i64,
    pub segment_index_bytes: i32,
    pub flush_messages: i64,
    pub flush_ms: i64,
    pub retention_bytes: i64,
    pub retention_ms: i64,
    pub max_message_bytes: i32,
    pub max_decompressed_message_bytes: i32,
    pub index_interval_bytes: i32,
    pub file_delete_delay_ms: i64,
    pub delete_retention_ms: i64,
    pub min_compaction_lag_ms: i64,
    pub max_compaction_lag_ms: i64,
    pub min_cleanable_dirty_ratio: f64,
    /// `cleanup.policy` holds `compact`.
    pub compact: bool,
    /// `cleanup.policy` holds `delete`.
    pub delete: bool,
    pub unclean_leader_election_enable: bool,
    pub min_insync_replicas: i32,
    pub compression_type: BrokerCompressionType,
    pub compression_gzip_level: i32,
    pub compression_lz4_level: i32,
    pub compression_zstd_level: i32,
    pub preallocate: bool,
    pub message_timestamp_type: TimestampType,
    pub message_timestamp_before_max_ms: i64,
    pub message_timestamp_after_max_ms: i64,
    pub leader_replication_throttled_replicas: Vec<String>,
    pub follower_replication_throttled_replicas: Vec<String>,
    pub errors_deadletterqueue_group_enable: bool,
    pub remote_storage_enable: bool,
    pub remote_log_copy_disable: bool,
    pub remote_log_delete_on_disable: bool,
    pub local_retention_bytes: i64,
    pub local_retention_ms: i64,
    pub remote_copy_lag_bytes: i64,
    pub remote_copy_lag_ms: i64,
    /// The keys that the topic itself sets.
    pub overridden: BTreeSet<String>,
    values: Vec<ConfigValue>,
}

impl LogConfig {
    /// What a topic with these overrides has on this server. Names nobody knows are ignored.
    pub fn new(server: &ServerConfig, overrides: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        Ok(Self::from_values(parse(server, overrides)?, overrides))
    }

    /// What a topic without overrides has on a server without a file: every default.
    pub fn defaults() -> Self {
        let values = topic_table().keys().iter().map(|key| key.default_value().clone()).collect();
        Self::from_values(values, &BTreeMap::new())
    }

    fn from_values(values: Vec<ConfigValue>, overrides: &BTreeMap<String, String>) -> Self {
        let value = |key: &str| &values[topic_table().index_of(key).unwrap_or_default()];
        let int = |key: &str| i32::try_from(value(key).as_i64().unwrap_or_default()).unwrap_or(i32::MAX);
        let long = |key: &str| value(key).as_i64().unwrap_or_default();
        let flag = |key: &str| value(key).as_bool().unwrap_or_default();
        let list = |key: &str| value(key).as_list().unwrap_or_default();
        let policy = |name: &str| list("cleanup.policy").iter().any(|p| p.eq_ignore_ascii_case(name));
        Self {
            segment_bytes: match value("internal.segment.bytes") {
                ConfigValue::Int(bytes) => *bytes,
                _ => int("segment.bytes"),
            },
            segment_ms: long("segment.ms"),
            segment_jitter_ms: long("segment.jitter.ms"),
            segment_index_bytes: int("segment.index.bytes"),
            flush_messages: long("flush.messages"),
            flush_ms: long("flush.ms"),
            retention_bytes: long("retention.bytes"),
            retention_ms: long("retention.ms"),
            max_message_bytes: int("max.message.bytes"),
            max_decompressed_message_bytes: int("max.decompressed.message.bytes"),
            index_interval_bytes: int("index.interval.bytes"),
            file_delete_delay_ms: long("file.delete.delay.ms"),
            delete_retention_ms: long("delete.retention.ms"),
            min_compaction_lag_ms: long("min.compaction.lag.ms"),
            max_compaction_lag_ms: long("max.compaction.lag.ms"),
            min_cleanable_dirty_ratio: value("min.cleanable.dirty.ratio").as_f64().unwrap_or_default(),
            compact: policy("compact"),
            delete: policy("delete"),
            unclean_leader_election_enable: flag("unclean.leader.election.enable"),
            min_insync_replicas: int("min.insync.replicas"),
            compression_type: compression_type(value("compression.type").as_str().unwrap_or_default()),
            compression_gzip_level: int("compression.gzip.level"),
            compression_lz4_level: int("compression.lz4.level"),
            compression_zstd_level: int("compression.zstd.level"),
            preallocate: flag("preallocate"),
            message_timestamp_type: match value("message.timestamp.type").as_str() {
                Some("LogAppendTime") => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            message_timestamp_before_max_ms: long("message.timestamp.before.max.ms"),
            message_timestamp_after_max_ms: long("message.timestamp.after.max.ms"),
            leader_replication_throttled_replicas: list("leader.replication.throttled.replicas").to_vec(),
            follower_replication_throttled_replicas: list("follower.replication.throttled.replicas").to_vec(),
            errors_deadletterqueue_group_enable: flag("errors.deadletterqueue.group.enable"),
            remote_storage_enable: flag("remote.storage.enable"),
            remote_log_copy_disable: flag("remote.log.copy.disable"),
            remote_log_delete_on_disable: flag("remote.log.delete.on.disable"),
            local_retention_bytes: long("local.retention.bytes"),
            local_retention_ms: long("local.retention.ms"),
            remote_copy_lag_bytes: long("remote.copy.lag.bytes"),
            remote_copy_lag_ms: long("remote.copy.lag.ms"),
            overridden: overrides.keys().cloned().collect(),
            values,
        }
    }

    /// The value of a topic key; `Null` for one that nobody knows.
    pub fn value(&self, key: &str) -> &ConfigValue {
        topic_table().index_of(key).and_then(|i| self.values.get(i)).unwrap_or(&ConfigValue::Null)
    }

    /// After how long a segment is rolled: compacted topics roll for `max.compaction.lag.ms` too.
    pub fn max_segment_ms(&self) -> i64 {
        if self.compact && self.max_compaction_lag_ms > 0 {
            return self.segment_ms.min(self.max_compaction_lag_ms);
        }
        self.segment_ms
    }

    /// The jitter of one segment, from a random number.
    pub fn segment_jitter(&self, random: u64) -> i64 {
        let bound = self.segment_jitter_ms.min(self.segment_ms);
        u64::try_from(bound).ok().filter(|bound| *bound > 0).map_or(0, |bound| (random % bound).cast_signed())
    }

    /// The size a new segment file is given at once.
    pub fn init_file_size(&self) -> i32 {
        if self.preallocate { self.segment_bytes } else { 0 }
    }

    /// Local retention with tiered storage; -2 means that of the topic.
    pub fn effective_local_retention_ms(&self) -> i64 {
        if self.local_retention_ms == -2 { self.retention_ms } else { self.local_retention_ms }
    }

    /// Local retention with tiered storage; -2 means that of the topic.
    pub fn effective_local_retention_bytes(&self) -> i64 {
        if self.local_retention_bytes == -2 { self.retention_bytes } else { self.local_retention_bytes }
    }
}

fn compression_type(name: &str) -> BrokerCompressionType {
    match name {
        "uncompressed" => BrokerCompressionType::Uncompressed,
        "gzip" => BrokerCompressionType::Gzip,
        "snappy" => BrokerCompressionType::Snappy,
        "lz4" => BrokerCompressionType::Lz4,
        "zstd" => BrokerCompressionType::Zstd,
        // The table's validator admits these names only.
        _ => BrokerCompressionType::Producer,
    }
}

/// What the server says about a topic key that the topic does not set.
fn server_value(server: &ServerConfig, topic_key: &str) -> Option<ConfigValue> {
    Some(match topic_key {
        "segment.ms" => ConfigValue::Long(server.log_roll_time_ms()),
        "segment.jitter.ms" => ConfigValue::Long(server.log_roll_jitter_time_ms()),
        "flush.ms" => ConfigValue::Long(server.log_flush_time_ms()),
        "retention.ms" => ConfigValue::Long(server.log_retention_time_ms()),
        _ => server.value(server_synonym(topic_key)?).clone(),
    })
}

fn parse(
    server: &ServerConfig,
    overrides: &BTreeMap<String, String>,
) -> Result<Vec<ConfigValue>, ConfigError> {
    let keys = topic_table().keys().iter();
    keys.map(|key| match overrides.get(key.name) {
        Some(text) => key.parse(text),
        None => {
            let value = server_value(server, key.name).unwrap_or_else(|| key.default_value().clone());
            if !value.is_null() {
                key.validator.check(key.name, &value)?;
            }
            Ok(value)
        }
    })
    .collect()
}

/// The longest legal topic name.
const MAX_TOPIC_NAME_LENGTH: usize = 249;

/// Whether a topic may have this name.
pub fn validate_topic_name(name: &str) -> Result<(), ConfigError> {
    let why = match name {
        "" => "the empty string is not allowed".to_owned(),
        "." => "'.' is not allowed".to_owned(),
        ".." => "'..' is not allowed".to_owned(),
        _ if name.encode_utf16().count() > MAX_TOPIC_NAME_LENGTH => {
            format!("the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}")
        }
        _ if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) => {
            format!(
                "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
            )
        }
        _ => return Ok(()),
    };
    Err(ConfigError { kind: ErrorKind::InvalidTopic, message: format!("Topic name is invalid: {why}") })
}

/// Checks a topic's whole set of overrides, as the controller does before it accepts them.
/// `existing` are the overrides the topic has now.
pub fn validate_topic_configs(
    server: &ServerConfig,
    existing: &BTreeMap<String, String>,
    proposed: &BTreeMap<String, String>,
) -> Result<(), ConfigError> {
    if let Some(unknown) = proposed.keys().find(|name| !topic_table().contains(name)) {
        return Err(ConfigError::invalid_configuration(format!("Unknown topic config name: {unknown}")));
    }
    let config = LogConfig::new(server, proposed)?;
    validate_compaction_lag(&config)?;
    if !config.remote_storage_enable {
        let was_remote =
            existing.get("remote.storage.enable").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        if was_remote && !config.remote_log_delete_on_disable {
            return Err(ConfigError::invalid_configuration(
                "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote \
                 data and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If \
                 you want to disable remote storage and delete all remote data, please set \
                 `remote.storage.enable=false,remote.log.delete.on.disable=true`.",
            ));
        }
        return Ok(());
    }
    validate_remote_storage(server, &config)
}

/// Checks what a broker's configuration says about topics, as a broker does before it opens its log.
pub fn validate_broker_topic_defaults(server: &ServerConfig) -> Result<(), ConfigError> {
    let config = LogConfig::new(server, &BTreeMap::new())?;
    validate_compaction_lag(&config)?;
    if server.remote_log_storage_system_enable {
        validate_local_retention(&config)?;
    }
    Ok(())
}

fn validate_compaction_lag(config: &LogConfig) -> Result<(), ConfigError> {
    let (min, max) = (config.min_compaction_lag_ms, config.max_compaction_lag_ms);
    if min > max {
        return Err(ConfigError::invalid_configuration(format!(
            "conflict topic config setting min.compaction.lag.ms ({min}) > max.compaction.lag.ms ({max})"
        )));
    }
    Ok(())
}

fn validate_remote_storage(server: &ServerConfig, config: &LogConfig) -> Result<(), ConfigError> {
    if !server.remote_log_storage_system_enable {
        return Err(ConfigError::config(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log \
             storage.",
        ));
    }
    if config.compact {
        return Err(ConfigError::config(
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list.",
        ));
    }
    validate_local_retention(config)?;
    for (key, lag, limit_key, limit) in [
        (
            "remote.copy.lag.bytes",
            config.remote_copy_lag_bytes,
            "local.retention.bytes",
            config.effective_local_retention_bytes(),
        ),
        (
            "remote.copy.lag.ms",
            config.remote_copy_lag_ms,
            "local.retention.ms",
            config.effective_local_retention_ms(),
        ),
    ] {
        if lag > 0 && limit >= 0 && lag > limit {
            let why = format!("Value must not exceed {limit_key} (effective value: {limit})");
            return Err(ConfigError::invalid_value(key, lag, why));
        }
    }
    if config.remote_log_copy_disable {
        for (local_key, local, key, total) in [
            (
                "local.retention.bytes",
                config.local_retention_bytes,
                "retention.bytes",
                config.retention_bytes,
            ),
            ("local.retention.ms", config.local_retention_ms, "retention.ms", config.retention_ms),
        ] {
            if local != -2 && local != total {
                return Err(ConfigError::invalid_configuration(format!(
                    "When `remote.log.copy.disable` is set to true, the `{local_key}` and `{key}` must be set to the \
                     identical value because there will be no more logs copied to the remote storage."
                )));
            }
        }
    }
    Ok(())
}

fn validate_local_retention(config: &LogConfig) -> Result<(), ConfigError> {
    for (local_key, local, key, total) in [
        ("local.retention.bytes", config.local_retention_bytes, "retention.bytes", config.retention_bytes),
        ("local.retention.ms", config.local_retention_ms, "retention.ms", config.retention_ms),
    ] {
        if total <= -1 || local == -2 {
            continue;
        }
        if local == -1 {
            let why = format!("Value must not be -1 as {key} value is set as {total}.");
            return Err(ConfigError::invalid_value(local_key, local, why));
        }
        if local > total {
            let why = format!("Value must not be more than {key} property value: {total}");
            return Err(ConfigError::invalid_value(local_key, local, why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::broker_table;

    #[test]
    fn synonyms_are_sorted_and_known_on_both_sides() {
        assert!(SYNONYMS.is_sorted_by(|a, b| a.0 < b.0));
        for (topic, servers) in SYNONYMS {
            assert!(topic_table().contains(topic), "{topic}");
            for server in *servers {
                assert!(broker_table().contains(server.name), "{}", server.name);
            }
        }
    }

    #[test]
    fn defaults_are_those_of_the_reference() {
        let config = LogConfig::defaults();
        assert_eq!(config.retention_ms, 604_800_000);
        assert_eq!((config.compact, config.delete), (false, true));
        assert_eq!(config.compression_type, BrokerCompressionType::Producer);
        assert_eq!(config.max_segment_ms(), 604_800_000);
        assert_eq!(config.segment_jitter(12345), 0);
    }
}
