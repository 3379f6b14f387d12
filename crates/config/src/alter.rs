//! AlterConfigs and IncrementalAlterConfigs (KIP-339): what a request changes, and whether it may.
//!
//! Two places decide, as in the reference. The broker that receives a request checks what concerns itself
//! ([`check_request`], [`check_broker_change`]); the controller computes the records and checks the resulting
//! set ([`incremental_deltas`] or [`legacy_deltas`], then [`validate_alter`]). One resource is all or nothing.
//! Pure functions of the present maps.

use std::collections::BTreeMap;

use crate::client_metrics::validate_client_metrics_configs;
use crate::dynamic::{BrokerConfigs, as_alter_error};
use crate::error::ConfigError;
use crate::group::validate_group_configs;
use crate::server::ServerConfig;
use crate::table::{ConfigTable, ConfigType, broker_table, topic_table};
use crate::topic::{validate_topic_configs, validate_topic_name};
use crate::value::split_list;

/// What configs belong to; the discriminant is the protocol's resource type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i8)]
pub enum ResourceKind {
    Topic = 2,
    Broker = 4,
    BrokerLogger = 8,
    ClientMetrics = 16,
    Group = 32,
}

impl ResourceKind {
    pub fn from_id(id: i8) -> Option<Self> {
        [Self::Topic, Self::Broker, Self::BrokerLogger, Self::ClientMetrics, Self::Group]
            .into_iter()
            .find(|kind| kind.id() == id)
    }

    pub fn id(self) -> i8 {
        self as i8
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Topic => "TOPIC",
            Self::Broker => "BROKER",
            Self::BrokerLogger => "BROKER_LOGGER",
            Self::ClientMetrics => "CLIENT_METRICS",
            Self::Group => "GROUP",
        }
    }
}

/// What to do with a key; the discriminant is the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum AlterOp {
    Set = 0,
    Delete = 1,
    Append = 2,
    Subtract = 3,
}

impl AlterOp {
    pub fn from_id(id: i8) -> Option<Self> {
        [Self::Set, Self::Delete, Self::Append, Self::Subtract].into_iter().find(|op| *op as i8 == id)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Set => "SET",
            Self::Delete => "DELETE",
            Self::Append => "APPEND",
            Self::Subtract => "SUBTRACT",
        }
    }
}

/// One change of an incremental request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigChange {
    pub name: String,
    /// As the request has it; an unknown number is refused when the change is applied.
    pub op: i8,
    pub value: Option<String>,
}

/// One record to write: the new value of a key, or its removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigDelta {
    pub name: String,
    pub value: Option<String>,
}

/// What the controller knows besides the configs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlterContext {
    /// Eligible leader replicas are on (KIP-966).
    pub elr_enabled: bool,
    /// The metadata version has cordoned log directories (KIP-1066).
    pub cordoned_log_dirs_supported: bool,
    /// The request came through a broker, which has checked it.
    pub forwarded: bool,
}

/// What no request may hold, whatever its resource: a key twice, or a change without a value.
/// For AlterConfigs every change counts as a set.
pub fn check_request(changes: &[ConfigChange]) -> Result<(), ConfigError> {
    if (1..changes.len()).any(|i| changes[..i].iter().any(|other| other.name == changes[i].name)) {
        return Err(ConfigError::invalid_request("Error due to duplicate config keys"));
    }
    let without_value: Vec<&str> = changes
        .iter()
        .filter(|change| change.op != AlterOp::Delete as i8 && change.value.is_none())
        .map(|change| change.name.as_str())
        .collect();
    if !without_value.is_empty() {
        return Err(ConfigError::invalid_request(format!(
            "Null value not supported for : {}",
            without_value.join(", ")
        )));
    }
    Ok(())
}

/// Whether a broker resource's name is this node's id; the empty name is the cluster's default.
pub fn check_broker_resource_name(name: &str, node_id: i32) -> Result<(), ConfigError> {
    if name.is_empty() {
        return Ok(());
    }
    match name.parse::<i32>() {
        Err(_) => Err(ConfigError::invalid_request(format!("Node id must be an integer, but it is: {name}"))),
        Ok(id) if id != node_id => Err(ConfigError::invalid_request(format!(
            "Unexpected broker id, expected {node_id}, but received {name}"
        ))),
        Ok(_) => Ok(()),
    }
}

/// What the receiving broker checks of an incremental change to itself or to the cluster's default.
pub fn check_broker_change(
    configs: &BrokerConfigs,
    resource_name: &str,
    changes: &[ConfigChange],
) -> Result<(), ConfigError> {
    let per_broker = !resource_name.is_empty();
    let mut layer = if per_broker { configs.broker().clone() } else { configs.cluster_default().clone() };
    for change in changes {
        let Some(op) = AlterOp::from_id(change.op) else {
            return Err(ConfigError::invalid_request(format!("Unknown operations type {}", change.op)));
        };
        let operand = change.value.as_deref().unwrap_or_default();
        match op {
            AlterOp::Set => drop(layer.insert(change.name.clone(), operand.to_owned())),
            AlterOp::Delete => drop(layer.remove(&change.name)),
            AlterOp::Append | AlterOp::Subtract => {
                let verb = if op == AlterOp::Append { "append" } else { "subtract" };
                let current = list_to_change(&layer, &change.name, verb)?;
                let changed = change_list(current, op, operand);
                layer.insert(change.name.clone(), changed.join(","));
            }
        }
    }
    configs.validate(&layer, per_broker).map_err(as_alter_error)
}

/// What the receiving broker checks of a complete replacement (AlterConfigs) for itself or the cluster's default.
pub fn check_broker_replacement(
    configs: &BrokerConfigs,
    resource_name: &str,
    layer: &BTreeMap<String, String>,
) -> Result<(), ConfigError> {
    configs.validate(layer, !resource_name.is_empty()).map_err(as_alter_error)
}

fn list_to_change(
    layer: &BTreeMap<String, String>,
    name: &str,
    verb: &str,
) -> Result<Vec<String>, ConfigError> {
    match broker_table().get(name) {
        None => Err(ConfigError::invalid_configuration(format!("Unknown config name: {name}"))),
        Some(key) if key.kind != ConfigType::List => Err(ConfigError::invalid_configuration(format!(
            "Config value {verb} is not allowed for config key: {name}"
        ))),
        Some(key) => {
            Ok(split(layer.get(name).map_or(key.default_text().unwrap_or_default(), String::as_str)))
        }
    }
}

/// Elements without empty ones; white space stays, since the reference keeps it.
fn split(text: &str) -> Vec<String> {
    text.split(',').filter(|element| !element.is_empty()).map(str::to_owned).collect()
}

fn change_list(mut elements: Vec<String>, op: AlterOp, operand: &str) -> Vec<String> {
    for element in operand.split(',') {
        let position = elements.iter().position(|present| present == element);
        match (op, position) {
            (AlterOp::Append, None) => elements.push(element.to_owned()),
            (AlterOp::Subtract, Some(position)) => drop(elements.remove(position)),
            _ => {}
        }
    }
    elements
}

fn table_with_lists(kind: ResourceKind) -> Option<&'static ConfigTable> {
    // Groups and client metrics have lists too, but the reference's controller does not know them as such.
    match kind {
        ResourceKind::Topic => Some(topic_table()),
        ResourceKind::Broker => Some(broker_table()),
        _ => None,
    }
}

/// The records of an incremental change, in order of key. A topic's list that is changed but not overridden
/// starts from Kafka's default, not from the broker's value.
pub fn incremental_deltas(
    kind: ResourceKind,
    current: &BTreeMap<String, String>,
    changes: &[ConfigChange],
) -> Result<Vec<ConfigDelta>, ConfigError> {
    let by_name: BTreeMap<&str, &ConfigChange> =
        changes.iter().map(|change| (change.name.as_str(), change)).collect();
    let mut deltas = Vec::new();
    for (name, change) in by_name {
        let Some(op) = AlterOp::from_id(change.op) else {
            return Err(ConfigError::invalid_request(format!("Unknown operations type {}", change.op)));
        };
        let present = current.get(name);
        let value = match op {
            AlterOp::Set => change.value.clone(),
            AlterOp::Delete => None,
            AlterOp::Append | AlterOp::Subtract => {
                let key = table_with_lists(kind).and_then(|table| table.get(name));
                let Some(key) = key.filter(|key| key.kind == ConfigType::List) else {
                    return Err(ConfigError::config(format!(
                        "Can't {} to key {name} because its type is not LIST.",
                        op.name()
                    )));
                };
                let elements = split(present.map_or(key.default_text().unwrap_or_default(), String::as_str));
                Some(change_list(elements, op, change.value.as_deref().unwrap_or_default()).join(","))
            }
        };
        // A broker's record is written even when nothing changes: it makes the broker read files again.
        if present != value.as_ref() || kind == ResourceKind::Broker {
            deltas.push(ConfigDelta { name: name.to_owned(), value });
        }
    }
    Ok(deltas)
}

/// The records of a complete replacement (AlterConfigs): what is set first, then what is thereby removed.
pub fn legacy_deltas(
    kind: ResourceKind,
    current: &BTreeMap<String, String>,
    replacement: &BTreeMap<String, String>,
) -> Vec<ConfigDelta> {
    let changed = replacement
        .iter()
        .filter(|(name, value)| current.get(*name) != Some(*value) || kind == ResourceKind::Broker)
        .map(|(name, value)| ConfigDelta { name: name.clone(), value: Some(value.clone()) });
    let removed = current
        .keys()
        .filter(|name| !replacement.contains_key(*name))
        .map(|name| ConfigDelta { name: name.clone(), value: None });
    changed.chain(removed).collect()
}

/// The longest value that a record holds.
const MAX_VALUE_LENGTH: usize = i16::MAX as usize;

/// Whether the controller accepts these records for a resource that has `current` now.
pub fn validate_alter(
    server: &ServerConfig,
    kind: ResourceKind,
    resource_name: &str,
    current: &BTreeMap<String, String>,
    deltas: &[ConfigDelta],
    context: AlterContext,
) -> Result<(), ConfigError> {
    let mut proposed = current.clone();
    for delta in deltas {
        check_special_keys(kind, resource_name, current, delta, context)?;
        match &delta.value {
            None => drop(proposed.remove(&delta.name)),
            Some(value) if value.encode_utf16().count() > MAX_VALUE_LENGTH => {
                return Err(ConfigError::config(
                    "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
                ));
            }
            Some(value) => drop(proposed.insert(delta.name.clone(), value.clone())),
        }
    }
    validate_resource(server, kind, resource_name, current, &proposed)
}

/// Rules for `min.insync.replicas` (KIP-966) and `cordoned.log.dirs` (KIP-1066) of brokers.
fn check_special_keys(
    kind: ResourceKind,
    resource_name: &str,
    current: &BTreeMap<String, String>,
    delta: &ConfigDelta,
    context: AlterContext,
) -> Result<(), ConfigError> {
    if kind != ResourceKind::Broker {
        return Ok(());
    }
    match delta.name.as_str() {
        "min.insync.replicas" if context.elr_enabled && !resource_name.is_empty() => Err(
            ConfigError::config("Broker-level min.insync.replicas cannot be altered while ELR is enabled."),
        ),
        "min.insync.replicas" if context.elr_enabled && delta.value.is_none() => Err(ConfigError::config(
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        )),
        "cordoned.log.dirs" if !context.cordoned_log_dirs_supported => Err(ConfigError::config(
            "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0",
        )),
        "cordoned.log.dirs" if !context.forwarded => {
            let dirs = |text: Option<&String>| split_list(text.map_or("", |text| text.trim()));
            let present = dirs(current.get("cordoned.log.dirs"));
            if dirs(delta.value.as_ref()).iter().all(|dir| present.contains(dir)) {
                return Ok(());
            }
            Err(ConfigError::config(
                "When updating cordoned.log.dirs via controllers,  the new value must be a subset of the current \
                 configuration value.",
            ))
        }
        _ => Ok(()),
    }
}

/// Checks a resource's name and its whole proposed set, as `ControllerConfigurationValidator` does.
pub fn validate_resource(
    server: &ServerConfig,
    kind: ResourceKind,
    resource_name: &str,
    current: &BTreeMap<String, String>,
    proposed: &BTreeMap<String, String>,
) -> Result<(), ConfigError> {
    match kind {
        ResourceKind::Topic if resource_name.is_empty() => {
            Err(ConfigError::invalid_request("Default topic resources are not allowed."))
        }
        ResourceKind::Topic => {
            validate_topic_name(resource_name)?;
            validate_topic_configs(server, current, proposed)
        }
        ResourceKind::Broker => validate_broker_name(resource_name),
        ResourceKind::ClientMetrics => validate_client_metrics_configs(resource_name, proposed),
        ResourceKind::Group if resource_name.is_empty() => {
            Err(ConfigError::invalid_request("Default group resources are not allowed."))
        }
        ResourceKind::Group => validate_group_configs(server, proposed),
        ResourceKind::BrokerLogger => {
            Err(ConfigError::invalid_request("Unknown resource type BROKER_LOGGER"))
        }
    }
}

/// Refuses null values before [`validate_resource`], as CreateTopics must (`what` is `topic`, `group`, …).
pub fn without_nulls(
    what: &str,
    configs: impl IntoIterator<Item = (String, Option<String>)>,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut present = BTreeMap::new();
    let mut nulls = Vec::new();
    for (name, value) in configs {
        match value {
            Some(value) => drop(present.insert(name, value)),
            None => nulls.push(name),
        }
    }
    if nulls.is_empty() {
        return Ok(present);
    }
    Err(ConfigError::invalid_configuration(format!(
        "Null value not supported for {what} configs: {}",
        nulls.join(",")
    )))
}

fn validate_broker_name(name: &str) -> Result<(), ConfigError> {
    if name.is_empty() {
        return Ok(());
    }
    match name.parse::<i32>() {
        Err(_) => Err(ConfigError::invalid_request("Unable to parse broker name as a base 10 number.")),
        Ok(id) if id < 0 => Err(ConfigError::invalid_request("Invalid negative broker ID.")),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn change(name: &str, op: AlterOp, value: &str) -> ConfigChange {
        ConfigChange { name: name.to_owned(), op: op as i8, value: Some(value.to_owned()) }
    }

    #[test]
    fn lists_are_appended_to_and_subtracted_from() {
        let value = |current: &[(&str, &str)], op, operand| {
            let deltas = incremental_deltas(
                ResourceKind::Topic,
                &map(current),
                &[change("cleanup.policy", op, operand)],
            );
            deltas.unwrap().first().and_then(|delta| delta.value.clone())
        };
        let set = [("cleanup.policy", "compact,delete")];
        assert_eq!(value(&[], AlterOp::Append, "compact").as_deref(), Some("delete,compact"));
        assert_eq!(value(&[], AlterOp::Append, "delete"), Some("delete".to_owned()));
        assert_eq!(value(&set, AlterOp::Append, "delete"), None, "nothing changes");
        assert_eq!(value(&set, AlterOp::Subtract, "delete").as_deref(), Some("compact"));
        assert_eq!(value(&set, AlterOp::Subtract, "compact,delete").as_deref(), Some(""));
        assert_eq!(value(&set, AlterOp::Subtract, "x"), None);
    }

    #[test]
    fn a_value_that_is_no_list_is_neither_appended_to_nor_subtracted_from() {
        for (kind, name, op, message) in [
            (
                ResourceKind::Topic,
                "retention.ms",
                AlterOp::Append,
                "Can't APPEND to key retention.ms because its type is not LIST.",
            ),
            (
                ResourceKind::Topic,
                "foo",
                AlterOp::Subtract,
                "Can't SUBTRACT to key foo because its type is not LIST.",
            ),
            (
                ResourceKind::ClientMetrics,
                "metrics",
                AlterOp::Append,
                "Can't APPEND to key metrics because its type is not LIST.",
            ),
        ] {
            let error = incremental_deltas(kind, &map(&[]), &[change(name, op, "1")]).unwrap_err();
            assert_eq!((error.message.as_str(), error.error_code()), (message, 40));
        }
    }

    #[test]
    fn a_replacement_removes_what_it_leaves_out() {
        let current = map(&[("retention.ms", "1"), ("compression.type", "gzip")]);
        let deltas = legacy_deltas(ResourceKind::Topic, &current, &map(&[("compression.type", "lz4")]));
        let shown: Vec<_> = deltas.iter().map(|d| (d.name.as_str(), d.value.as_deref())).collect();
        assert_eq!(shown, [("compression.type", Some("lz4")), ("retention.ms", None)]);
    }

    #[test]
    fn requests_with_a_key_twice_or_without_a_value_are_refused() {
        let twice = [change("a", AlterOp::Set, "1"), change("a", AlterOp::Delete, "")];
        assert_eq!(check_request(&twice).unwrap_err().message, "Error due to duplicate config keys");
        let null = ConfigChange { name: "a".into(), op: AlterOp::Set as i8, value: None };
        let error = check_request(&[null]).unwrap_err();
        assert_eq!((error.message.as_str(), error.error_code()), ("Null value not supported for : a", 42));
        let delete = ConfigChange { name: "a".into(), op: AlterOp::Delete as i8, value: None };
        assert_eq!(check_request(&[delete]), Ok(()));
    }
}
