//! Dynamic broker configs (KIP-226): layers over a server's file, and what may change while it runs.
//!
//! Three layers: the file, the cluster-wide default (`BROKER ""`), one broker (`BROKER "1"`). Invariant:
//! [`BrokerConfigs::effective`] is always a checked configuration; a layer that would break it leaves the
//! former one in force, as in the reference. Immutable: a change gives a new value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::{ConfigError, ErrorKind};
use crate::server::ServerConfig;
use crate::table::{ConfigKey, UpdateMode, broker_table};
use crate::value::ConfigValue;

/// Keys that name certificates and their stores; only settable with a listener's prefix.
const SECURITY_KEYS: &[&str] = &[
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
];

/// Keys of a listener that may be set for the whole cluster.
const CLUSTER_LEVEL_LISTENER_KEYS: &[&str] =
    &["max.connections", "max.connection.creation.rate", "num.network.threads"];

/// Keys of a SASL mechanism: the mechanism stands between the listener's prefix and the key.
const LISTENER_MECHANISM_KEYS: &[&str] = &[
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
];

const LOG_ROLL: &[&str] = &["log.roll.ms", "log.roll.hours"];
const LOG_ROLL_JITTER: &[&str] = &["log.roll.jitter.ms", "log.roll.jitter.hours"];
const LOG_RETENTION: &[&str] = &["log.retention.ms", "log.retention.minutes", "log.retention.hours"];
const LOG_FLUSH: &[&str] = &["log.flush.interval.ms", "log.flush.scheduler.interval.ms"];

/// The part of `listener.name.<listener>.<key>` after the prefix.
pub fn without_listener_prefix(name: &str) -> Option<&str> {
    let (_, key) = name.strip_prefix("listener.name.")?.split_once('.')?;
    Some(key)
}

/// The keys that can give `name` its value, the strongest first.
pub fn broker_synonyms(name: &str, match_listener_override: bool) -> Vec<&str> {
    let fixed = |names: &'static [&'static str]| names.to_vec();
    match name {
        _ if LOG_ROLL.contains(&name) => fixed(LOG_ROLL),
        _ if LOG_ROLL_JITTER.contains(&name) => fixed(LOG_ROLL_JITTER),
        _ if LOG_RETENTION.contains(&name) => fixed(LOG_RETENTION),
        "log.flush.interval.ms" => fixed(LOG_FLUSH),
        _ => match without_listener_prefix(name).filter(|_| match_listener_override) {
            Some(base) => {
                let mechanism = LISTENER_MECHANISM_KEYS.iter().find(|key| base.ends_with(**key));
                vec![name, mechanism.copied().unwrap_or(base)]
            }
            None => vec![name],
        },
    }
}

/// The row that describes `name`, also when it has a listener's prefix.
pub fn broker_key(name: &str) -> Option<&'static ConfigKey> {
    let table = broker_table();
    table.get(name).or_else(|| broker_synonyms(name, true).into_iter().find_map(|synonym| table.get(synonym)))
}

/// Config providers are resolved before anything else is looked at, and are not checked themselves.
fn is_config_provider(name: &str) -> bool {
    name.starts_with("config.providers")
}

fn is_per_broker(name: &str) -> bool {
    if broker_table().get(name).is_some_and(|key| key.update_mode == UpdateMode::PerBroker) {
        return true;
    }
    without_listener_prefix(name).is_some_and(|base| !CLUSTER_LEVEL_LISTENER_KEYS.contains(&base))
}

fn is_read_only(name: &str) -> bool {
    broker_table().get(name).is_some_and(|key| key.update_mode == UpdateMode::ReadOnly)
}

/// Puts `layer` over `properties`: a key displaces its synonyms.
fn overlay(properties: &mut BTreeMap<String, String>, layer: &BTreeMap<String, String>) {
    for (name, value) in layer {
        for synonym in broker_synonyms(name, false) {
            properties.remove(synonym);
        }
        properties.insert(name.clone(), value.clone());
    }
}

/// A server's file with the dynamic configs over it.
#[derive(Debug, Clone)]
pub struct BrokerConfigs {
    file: Arc<ServerConfig>,
    cluster_default: BTreeMap<String, String>,
    broker: BTreeMap<String, String>,
    effective: Arc<ServerConfig>,
}

impl BrokerConfigs {
    pub fn new(file: ServerConfig) -> Self {
        let file = Arc::new(file);
        Self { effective: Arc::clone(&file), file, cluster_default: BTreeMap::new(), broker: BTreeMap::new() }
    }

    /// What is in force now.
    pub fn effective(&self) -> &Arc<ServerConfig> {
        &self.effective
    }

    /// What the file alone says.
    pub fn file(&self) -> &Arc<ServerConfig> {
        &self.file
    }

    pub fn cluster_default(&self) -> &BTreeMap<String, String> {
        &self.cluster_default
    }

    pub fn broker(&self) -> &BTreeMap<String, String> {
        &self.broker
    }

    /// The configuration after the two dynamic layers became these, and what to log about it.
    pub fn with_layers(
        &self,
        cluster_default: &BTreeMap<String, String>,
        broker: &BTreeMap<String, String>,
    ) -> (Self, Vec<String>) {
        let mut complaints = Vec::new();
        let cluster_default = admissible(cluster_default, false, &mut complaints);
        let broker = admissible(broker, true, &mut complaints);
        let mut properties = self.file.originals().clone();
        overlay(&mut properties, &cluster_default);
        overlay(&mut properties, &broker);
        let mut next = Self { cluster_default, broker, ..self.clone() };
        clamp_assignment_intervals(&mut properties, &mut complaints);
        match ServerConfig::from_map(properties) {
            Ok(effective) => next.effective = Arc::new(effective),
            Err(e) => {
                complaints.push(format!("Dynamic broker configs could not be applied and are ignored: {e}"))
            }
        }
        (next, complaints)
    }

    /// Checks a complete dynamic layer as an alter request proposes it: for this broker, or for the cluster's default.
    pub fn validate(&self, proposed: &BTreeMap<String, String>, per_broker: bool) -> Result<(), ConfigError> {
        let mut proposed = proposed.clone();
        proposed.retain(|name, _| !is_config_provider(name));
        let proposed = &proposed;
        check_names(proposed, per_broker)?;
        let mut properties = self.file.originals().clone();
        if per_broker {
            overlay(&mut properties, &self.cluster_default);
            overlay(&mut properties, proposed);
        } else {
            overlay(&mut properties, proposed);
            overlay(&mut properties, &self.broker);
        }
        let proposed = ServerConfig::from_map(properties)?;
        if proposed.originals() == self.effective.originals() {
            return Ok(());
        }
        check_reconfiguration(&self.effective, &proposed).map_err(|e| {
            // The reference wraps what its components refuse in this odd sentence.
            ConfigError::config(format!(
                "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic \
                 configuration",
                e.message
            ))
        })
    }
}

/// What remains of a stored layer after keys that cannot be dynamic were left out.
fn admissible(
    layer: &BTreeMap<String, String>,
    per_broker: bool,
    complaints: &mut Vec<String>,
) -> BTreeMap<String, String> {
    let mut kept = layer.clone();
    let mut drop_where = |why: &str, bad: &dyn Fn(&str, &str) -> bool| {
        let names: Vec<String> = kept.iter().filter(|(k, v)| bad(k, v)).map(|(k, _)| k.clone()).collect();
        kept.retain(|name, _| !names.contains(name));
        if !names.is_empty() {
            complaints.push(format!("{why}: [{}]", names.join(", ")));
        }
    };
    let source = if per_broker { "broker" } else { "default cluster" };
    drop_where(
        &format!("Dynamic {source} config contains invalid values, these configs will be ignored"),
        &|name, value| check_type(name, value).is_err(),
    );
    drop_where("Non-dynamic configs will be ignored", &|name, _| is_read_only(name));
    drop_where(
        "Security configs can be dynamically updated only using listener prefix, base configs will be ignored",
        &|name, _| SECURITY_KEYS.contains(&name),
    );
    if !per_broker {
        drop_where("Per-broker configs defined at default cluster level will be ignored", &|name, _| {
            is_per_broker(name)
        });
    }
    kept
}

/// Checks type and range of one dynamic config; names that are no dynamic configs pass.
fn check_type(name: &str, value: &str) -> Result<(), ConfigError> {
    let base = without_listener_prefix(name).unwrap_or(name);
    match broker_table().get(base) {
        _ if is_config_provider(name) => Ok(()),
        Some(key) if key.update_mode != UpdateMode::ReadOnly => key.parse_strictly(value).map(drop),
        _ => Ok(()),
    }
}

fn check_names(proposed: &BTreeMap<String, String>, per_broker: bool) -> Result<(), ConfigError> {
    let refuse = |bad: &dyn Fn(&str) -> bool, why: &str| {
        let names: Vec<&str> = proposed.keys().map(String::as_str).filter(|name| bad(name)).collect();
        match names.is_empty() {
            true => Ok(()),
            false => Err(ConfigError::config(format!("{why}: [{}]", names.join(", ")))),
        }
    };
    refuse(&is_read_only, "Cannot update these configs dynamically")?;
    refuse(
        &|name| SECURITY_KEYS.contains(&name),
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )?;
    proposed.iter().try_for_each(|(name, value)| check_type(name, value))?;
    if !per_broker {
        refuse(
            &is_per_broker,
            "Cannot update these configs at default cluster level, broker id must be specified",
        )?;
    }
    Ok(())
}

/// Intervals between assignments are brought into the bounds of the file instead of being refused.
fn clamp_assignment_intervals(properties: &mut BTreeMap<String, String>, complaints: &mut Vec<String>) {
    for kind in ["consumer", "share", "streams"] {
        let name = format!("group.{kind}.assignment.interval.ms");
        let bound = |which: &str| {
            let key = format!("group.{kind}.{which}.assignment.interval.ms");
            let default = broker_table().get(&key).and_then(|key| key.default_text()).unwrap_or_default();
            properties.get(&key).map_or(default, String::as_str).trim().parse::<i32>().ok()
        };
        let value = properties.get(&name).and_then(|text| text.trim().parse::<i32>().ok());
        let (Some(value), Some(min), Some(max)) = (value, bound("min"), bound("max")) else { continue };
        let capped = value.max(min).min(max);
        if capped != value {
            let side =
                if value < min { "is below the allowed minimum" } else { "exceeds the allowed maximum" };
            complaints.push(format!(
                "The config '{name}' has value {value} which {side} {capped}. The effective value will be capped to \
                 {capped}."
            ));
            properties.insert(name, capped.to_string());
        }
    }
}

const THREAD_POOLS: &[&str] =
    &["num.io.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir", "background.threads"];
const LISTENER_THREAD_POOL: &str = "num.network.threads";
const REMOTE_THREAD_POOLS: &[&str] = &[
    "remote.log.reader.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
];

/// What the running components refuse although the configuration is right in itself.
fn check_reconfiguration(current: &ServerConfig, proposed: &ServerConfig) -> Result<(), ConfigError> {
    for key in THREAD_POOLS.iter().chain([&LISTENER_THREAD_POOL]).chain(REMOTE_THREAD_POOLS) {
        check_thread_count(key, current.int(key), proposed.int(key))?;
    }
    check_cleaner_threads(i64::from(current.log_cleaner_threads), i64::from(proposed.log_cleaner_threads))?;
    check_log_limits(proposed)?;
    check_listeners(current, proposed)
}

fn check_thread_count(key: &str, old: i64, new: i64) -> Result<(), ConfigError> {
    let refuse = |why: String| {
        Err(ConfigError::config(format!(
            "Dynamic thread count update validation failed for {key}={new}, {why}"
        )))
    };
    match new {
        _ if new == old => Ok(()),
        _ if new <= 0 => refuse("value should be at least 1".to_owned()),
        _ if new < old / 2 => refuse(format!("value should be at least half the current value {old}")),
        _ if new > old * 2 => {
            refuse(format!("value should not be greater than double the current value {old}"))
        }
        _ => Ok(()),
    }
}

fn check_cleaner_threads(old: i64, new: i64) -> Result<(), ConfigError> {
    let refuse = |why: String| Err(ConfigError::config(format!("Log cleaner threads {why}")));
    match new {
        _ if new < 1 => refuse("should be at least 1".to_owned()),
        _ if new < old / 2 => refuse(format!("cannot be reduced to less than half the current value {old}")),
        _ if new > old * 2 => {
            refuse(format!("cannot be increased to more than double the current value {old}"))
        }
        _ => Ok(()),
    }
}

fn check_log_limits(proposed: &ServerConfig) -> Result<(), ConfigError> {
    for (local_key, local, total_key, total) in [
        (
            "log.local.retention.ms",
            proposed.log_local_retention_ms,
            "log.retention.ms",
            proposed.log_retention_time_ms(),
        ),
        (
            "log.local.retention.bytes",
            proposed.log_local_retention_bytes,
            "log.retention.bytes",
            proposed.log_retention_bytes,
        ),
    ] {
        if total == -1 || local == -2 {
            continue;
        }
        if local == -1 {
            let why = format!("Value must not be -1 as {total_key} value is set as {total}.");
            return Err(ConfigError::invalid_value(local_key, local, why));
        }
        if local > total {
            let why = format!("Value must not be more than {total_key} property value: {total}");
            return Err(ConfigError::invalid_value(local_key, local, why));
        }
    }
    let dirs = proposed.cordoned_log_dirs();
    if let Some(dir) = dirs.iter().find(|dir| !proposed.log_dirs().contains(dir)) {
        let why = format!(
            "Invalid entry in cordoned.log.dirs: {dir}. All cordoned log dirs must be entries of log.dirs or log.dir."
        );
        return Err(ConfigError::invalid_value("cordoned.log.dirs", ConfigValue::List(dirs.to_vec()), why));
    }
    Ok(())
}

fn check_listeners(current: &ServerConfig, proposed: &ServerConfig) -> Result<(), ConfigError> {
    let names = |config: &ServerConfig| -> BTreeSet<String> {
        config.listeners().iter().map(|e| e.listener.clone()).collect()
    };
    let shown = |names: &BTreeSet<String>| {
        let names: Vec<String> = names.iter().map(|name| format!("ListenerName({name})")).collect();
        format!("Set({})", names.join(", "))
    };
    let (old, new) = (names(current), names(proposed));
    let advertised: BTreeSet<String> =
        current.advertised_broker_listeners().iter().map(|e| e.listener.clone()).collect();
    if !advertised.is_subset(&new) {
        return Err(ConfigError::config(format!(
            "Advertised listeners '{}' must be a subset of listeners '{}'",
            shown(&advertised),
            shown(&new)
        )));
    }
    for listener in new.intersection(&old) {
        if current.listener_protocols().get(listener) != proposed.listener_protocols().get(listener) {
            return Err(ConfigError::config(format!(
                "Security protocol cannot be updated for existing listener ListenerName({listener})"
            )));
        }
    }
    Ok(())
}

/// A refusal of [`BrokerConfigs::validate`] as an alter request answers it: everything is an invalid request,
/// unless a component asked for something else.
pub fn as_alter_error(error: ConfigError) -> ConfigError {
    match error.kind {
        ErrorKind::Config | ErrorKind::IllegalArgument => ConfigError::invalid_request(error.message),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::Properties;

    fn configs() -> BrokerConfigs {
        let text = "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n\
            controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@localhost:9093\nlog.retention.hours=1\n";
        BrokerConfigs::new(ServerConfig::from_properties(&Properties::parse_str(text).unwrap()).unwrap())
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn a_brokers_own_config_wins_over_the_clusters_and_displaces_synonyms() {
        let (configs, complaints) = configs().with_layers(
            &map(&[("log.retention.ms", "5000"), ("message.max.bytes", "7")]),
            &map(&[("message.max.bytes", "9")]),
        );
        assert_eq!(complaints, Vec::<String>::new());
        assert_eq!(configs.effective().message_max_bytes, 9);
        assert_eq!(configs.effective().log_retention_time_ms(), 5000);
        assert!(!configs.effective().was_set("log.retention.hours"));
        assert_eq!(configs.file().log_retention_time_ms(), 3_600_000);
    }

    #[test]
    fn stored_configs_that_cannot_be_dynamic_are_left_out() {
        let (configs, complaints) = configs().with_layers(
            &map(&[("listeners", "PLAINTEXT://:1"), ("num.partitions", "3"), ("message.max.bytes", "x")]),
            &map(&[("ssl.keystore.type", "PEM"), ("min.insync.replicas", "2")]),
        );
        assert_eq!(configs.effective().num_partitions, 1);
        assert_eq!(configs.effective().min_insync_replicas, 2);
        assert_eq!(complaints.len(), 4);
        assert!(configs.cluster_default().is_empty());
    }

    #[test]
    fn a_listeners_key_is_described_by_the_row_of_its_base() {
        for (name, expected) in [
            ("listener.name.internal.ssl.keystore.password", Some("ssl.keystore.password")),
            ("listener.name.internal.plain.sasl.jaas.config", Some("sasl.jaas.config")),
            ("listener.name.internal.nothing", None),
            ("nothing", None),
            ("log.dirs", Some("log.dirs")),
        ] {
            assert_eq!(broker_key(name).map(|key| key.name), expected, "{name}");
        }
    }
}
