//! A group's configuration (`GroupConfig`, KIP-848, KIP-932, KIP-1071): synonyms on the broker, checks.
//!
//! A group has what it overrides and otherwise what its broker says under `group.<kind>.<key>`. Pure.

use std::collections::BTreeMap;

use crate::error::ConfigError;
use crate::server::ServerConfig;
use crate::table::{ConfigKey, group_table};
use crate::value::{ConfigValue, java_trim, split_list};

/// The broker key that stands for a group key.
pub fn broker_synonym(group_key: &str) -> Option<&'static str> {
    Some(match group_key {
        "consumer.session.timeout.ms" => "group.consumer.session.timeout.ms",
        "consumer.heartbeat.interval.ms" => "group.consumer.heartbeat.interval.ms",
        "consumer.assignment.interval.ms" => "group.consumer.assignment.interval.ms",
        "consumer.assignor.offload.enable" => "group.consumer.assignor.offload.enable",
        "share.session.timeout.ms" => "group.share.session.timeout.ms",
        "share.heartbeat.interval.ms" => "group.share.heartbeat.interval.ms",
        "share.record.lock.duration.ms" => "group.share.record.lock.duration.ms",
        "share.delivery.count.limit" => "group.share.delivery.count.limit",
        "share.partition.max.record.locks" => "group.share.partition.max.record.locks",
        "share.assignment.interval.ms" => "group.share.assignment.interval.ms",
        "share.assignor.offload.enable" => "group.share.assignor.offload.enable",
        "streams.session.timeout.ms" => "group.streams.session.timeout.ms",
        "streams.heartbeat.interval.ms" => "group.streams.heartbeat.interval.ms",
        "streams.num.standby.replicas" => "group.streams.num.standby.replicas",
        "streams.initial.rebalance.delay.ms" => "group.streams.initial.rebalance.delay.ms",
        "streams.assignment.interval.ms" => "group.streams.assignment.interval.ms",
        "streams.assignor.offload.enable" => "group.streams.assignor.offload.enable",
        "streams.task.offset.interval.ms" => "group.streams.task.offset.interval.ms",
        "streams.num.warmup.replicas" => "group.streams.num.warmup.replicas",
        "streams.rack.aware.assignment.tags" => "group.streams.rack.aware.assignment.tags",
        "streams.acceptable.recovery.lag" => "group.streams.acceptable.recovery.lag",
        "streams.assignor.name" => "group.streams.assignors",
        _ => return None,
    })
}

fn default_value(server: &ServerConfig, key: &ConfigKey) -> ConfigValue {
    let Some(synonym) = broker_synonym(key.name) else { return key.default_value().clone() };
    match (key.name, server.value(synonym)) {
        ("streams.assignor.name", ConfigValue::List(assignors)) => {
            assignors.first().map_or(ConfigValue::Null, |name| ConfigValue::String(name.clone()))
        }
        (_, value) => value.clone(),
    }
}

/// The value of every group key, in the order of the table.
pub fn group_values(
    server: &ServerConfig,
    overrides: &BTreeMap<String, String>,
) -> Result<Vec<ConfigValue>, ConfigError> {
    let keys = group_table().keys().iter();
    keys.map(|key| match overrides.get(key.name) {
        Some(text) => key.parse(text),
        None => Ok(default_value(server, key)),
    })
    .collect()
}

/// A group's configuration in effect: its own values brought into the broker's present bounds, and the broker's
/// values otherwise. Times in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupConfig {
    values: Vec<ConfigValue>,
}

impl GroupConfig {
    /// Evaluates what is stored for a group; bounds may have changed since it was accepted. Gives what to log, too.
    pub fn new(
        server: &ServerConfig,
        group_id: &str,
        overrides: &BTreeMap<String, String>,
    ) -> Result<(Self, Vec<String>), ConfigError> {
        let mut config = Self { values: group_values(server, overrides)? };
        let mut warnings = Vec::new();
        for (name, min, max) in RANGES {
            if overrides.contains_key(*name) {
                config.clamp(server, group_id, name, (min, max), &mut warnings);
            }
        }
        for kind in ["consumer", "share", "streams"] {
            let (session, heartbeat) =
                (format!("{kind}.session.timeout.ms"), format!("{kind}.heartbeat.interval.ms"));
            if !overrides.contains_key(&session) && !overrides.contains_key(&heartbeat) {
                continue;
            }
            let (timeout, interval) = (config.int(&session), config.int(&heartbeat));
            if timeout <= interval {
                warnings.push(format!(
                    "The effective {session} ({timeout}) for group '{group_id}' is not greater than {heartbeat} \
                     ({interval}). Check that the broker-level min/max bounds for session timeout and heartbeat \
                     interval do not overlap."
                ));
            }
        }
        Ok((config, warnings))
    }

    fn clamp(
        &mut self,
        server: &ServerConfig,
        group_id: &str,
        name: &str,
        (min, max): (&str, &str),
        warnings: &mut Vec<String>,
    ) {
        let bound = |key: &str| server.value(key).as_i64().and_then(|bound| i32::try_from(bound).ok());
        let Some(index) = group_table().index_of(name) else { return };
        let ConfigValue::Int(value) = self.values[index] else { return };
        let (low, high) = (bound(min), bound(max));
        let (capped, how) = match (low, high) {
            (Some(low), _) if value < low => (low, format!("is below the broker's allowed minimum {low}")),
            (_, Some(high)) if value > high => (high, format!("exceeds the broker's allowed maximum {high}")),
            _ => return,
        };
        warnings.push(format!(
            "The group config '{name}' for group '{group_id}' has value {value} which {how}. The effective value will \
             be capped to {capped}."
        ));
        self.values[index] = ConfigValue::Int(capped);
    }

    /// The value of a group key; `Null` for one that nobody knows.
    pub fn value(&self, key: &str) -> &ConfigValue {
        group_table().index_of(key).and_then(|i| self.values.get(i)).unwrap_or(&ConfigValue::Null)
    }

    fn int(&self, key: &str) -> i32 {
        self.value(key).as_i64().and_then(|value| i32::try_from(value).ok()).unwrap_or_default()
    }
}

macro_rules! group_values {
    ($($name:ident: $kind:ty = $key:literal, $read:ident;)*) => {
        impl GroupConfig {$(
            #[doc = concat!("`", $key, "`")]
            pub fn $name(&self) -> $kind {
                self.$read($key)
            }
        )*}
    };
}

impl GroupConfig {
    fn flag(&self, key: &str) -> bool {
        self.value(key).as_bool().unwrap_or_default()
    }

    fn text(&self, key: &str) -> &str {
        self.value(key).as_str().unwrap_or_default()
    }
}

group_values! {
    consumer_session_timeout_ms: i32 = "consumer.session.timeout.ms", int;
    consumer_heartbeat_interval_ms: i32 = "consumer.heartbeat.interval.ms", int;
    consumer_assignment_interval_ms: i32 = "consumer.assignment.interval.ms", int;
    consumer_assignor_offload_enable: bool = "consumer.assignor.offload.enable", flag;
    share_session_timeout_ms: i32 = "share.session.timeout.ms", int;
    share_heartbeat_interval_ms: i32 = "share.heartbeat.interval.ms", int;
    share_assignment_interval_ms: i32 = "share.assignment.interval.ms", int;
    share_record_lock_duration_ms: i32 = "share.record.lock.duration.ms", int;
    share_delivery_count_limit: i32 = "share.delivery.count.limit", int;
    share_partition_max_record_locks: i32 = "share.partition.max.record.locks", int;
    share_auto_offset_reset: &str = "share.auto.offset.reset", text;
    share_isolation_level: &str = "share.isolation.level", text;
    share_renew_acknowledge_enable: bool = "share.renew.acknowledge.enable", flag;
    errors_deadletterqueue_topic_name: &str = "errors.deadletterqueue.topic.name", text;
    errors_deadletterqueue_copy_record_enable: bool = "errors.deadletterqueue.copy.record.enable", flag;
    streams_session_timeout_ms: i32 = "streams.session.timeout.ms", int;
    streams_heartbeat_interval_ms: i32 = "streams.heartbeat.interval.ms", int;
    streams_assignment_interval_ms: i32 = "streams.assignment.interval.ms", int;
    streams_num_standby_replicas: i32 = "streams.num.standby.replicas", int;
    streams_initial_rebalance_delay_ms: i32 = "streams.initial.rebalance.delay.ms", int;
    streams_task_offset_interval_ms: i32 = "streams.task.offset.interval.ms", int;
    streams_num_warmup_replicas: i32 = "streams.num.warmup.replicas", int;
    streams_assignor_name: &str = "streams.assignor.name", text;
}

/// Group keys whose bounds are broker keys: `(group key, minimum, maximum)`; the checks are made in this order.
const RANGES: &[(&str, &str, &str)] = &[
    (
        "consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    (
        "consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    (
        "consumer.assignment.interval.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
    (
        "share.heartbeat.interval.ms",
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    ("share.session.timeout.ms", "group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"),
    (
        "share.record.lock.duration.ms",
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    (
        "share.delivery.count.limit",
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    (
        "share.partition.max.record.locks",
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
    (
        "share.assignment.interval.ms",
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
    (
        "streams.heartbeat.interval.ms",
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
    ),
    (
        "streams.session.timeout.ms",
        "group.streams.min.session.timeout.ms",
        "group.streams.max.session.timeout.ms",
    ),
    ("streams.num.standby.replicas", "", "group.streams.max.standby.replicas"),
    (
        "streams.assignment.interval.ms",
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
    ),
    ("streams.task.offset.interval.ms", "group.streams.min.task.offset.interval.ms", ""),
    ("streams.num.warmup.replicas", "", "group.streams.max.warmup.replicas"),
];

/// Checks a group's whole set of overrides, as the controller does before it accepts them.
pub fn validate_group_configs(
    server: &ServerConfig,
    proposed: &BTreeMap<String, String>,
) -> Result<(), ConfigError> {
    let refuse = |message: String| Err(ConfigError::invalid_configuration(message));
    if let Some(unknown) = proposed.keys().find(|name| !group_table().contains(name)) {
        return refuse(format!("Unknown group config name: {unknown}"));
    }
    if let Some(tags) = proposed.get("streams.rack.aware.assignment.tags") {
        let tags = split_list(java_trim(tags));
        if (1..tags.len()).any(|i| tags[..i].contains(&tags[i])) {
            return refuse(
                "streams.rack.aware.assignment.tags must not contain duplicate tag keys.".to_owned(),
            );
        }
    }
    let mut parsed = BTreeMap::new();
    for key in group_table().keys() {
        if let Some(text) = proposed.get(key.name) {
            parsed.insert(key.name, key.parse(text)?);
        }
    }
    for (key, min, max) in RANGES {
        let Some(value) = parsed.get(key).and_then(ConfigValue::as_i64) else { continue };
        let (low, high) = (server.value(min).as_i64(), server.value(max).as_i64());
        match (low, high) {
            (Some(low), Some(high)) if value < low || value > high => {
                return refuse(format!("{key} must be in the range {low} to {high} inclusive."));
            }
            (None, Some(high)) if value > high => {
                return refuse(format!("{key} must be less than or equal to {high}"));
            }
            (Some(low), None) if value < low => {
                return refuse(format!("{key} must be greater than or equal to {low}"));
            }
            _ => {}
        }
    }
    if let Some(name) = parsed.get("streams.assignor.name").and_then(ConfigValue::as_str) {
        let registered = &server.group_streams_assignors;
        if !registered.iter().any(|assignor| assignor == name) {
            return refuse(format!(
                "streams.assignor.name '{name}' is not a registered task assignor. Registered assignors are: [{}].",
                registered.join(", ")
            ));
        }
    }
    check_session_exceeds_heartbeat(server, &parsed)?;
    match parsed.get("errors.deadletterqueue.topic.name").and_then(ConfigValue::as_str) {
        Some(topic) if topic.starts_with("__") => {
            refuse("errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'".to_owned())
        }
        _ => Ok(()),
    }
}

fn check_session_exceeds_heartbeat(
    server: &ServerConfig,
    parsed: &BTreeMap<&str, ConfigValue>,
) -> Result<(), ConfigError> {
    for kind in ["consumer", "share", "streams"] {
        let (session, heartbeat) =
            (format!("{kind}.session.timeout.ms"), format!("{kind}.heartbeat.interval.ms"));
        if !parsed.contains_key(session.as_str()) && !parsed.contains_key(heartbeat.as_str()) {
            continue;
        }
        let effective = |key: &str| {
            let proposed = parsed.get(key).and_then(ConfigValue::as_i64);
            proposed.unwrap_or_else(|| server.int(broker_synonym(key).unwrap_or_default()))
        };
        if effective(&session) <= effective(&heartbeat) {
            return Err(ConfigError::invalid_configuration(format!(
                "{session} must be greater than {heartbeat}"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::default_properties;
    use crate::table::broker_table;

    #[test]
    fn every_synonym_is_a_broker_key() {
        for key in group_table().keys() {
            assert!(
                broker_synonym(key.name).is_none_or(|name| broker_table().contains(name)),
                "{}",
                key.name
            );
        }
        for (key, min, max) in RANGES {
            assert!(group_table().contains(key), "{key}");
            assert!([min, max].iter().all(|name| name.is_empty() || broker_table().contains(name)), "{key}");
        }
    }

    #[test]
    fn stored_values_are_brought_into_the_present_bounds() {
        let server = ServerConfig::from_properties(&default_properties()).unwrap();
        let overrides = [("consumer.session.timeout.ms", "1"), ("consumer.heartbeat.interval.ms", "99999")];
        let overrides = overrides.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let (config, warnings) = GroupConfig::new(&server, "g", &overrides).unwrap();
        assert_eq!(config.consumer_session_timeout_ms(), 45_000);
        assert_eq!(config.consumer_heartbeat_interval_ms(), 15_000);
        assert_eq!(warnings.len(), 2);
        assert_eq!(
            warnings[1],
            "The group config 'consumer.session.timeout.ms' for group 'g' has value 1 which is below the broker's \
             allowed minimum 45000. The effective value will be capped to 45000."
        );
        assert_eq!(config.streams_assignor_name(), "sticky");
        assert_eq!(config.share_auto_offset_reset(), "latest");
    }
}
