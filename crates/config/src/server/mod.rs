//! A server's configuration as a value: parsed, checked, typed.
//!
//! Built from `.properties` ([`ServerConfig::from_properties`]) or from those with dynamic broker configs on top
//! (`crate::dynamic`). Invariants: a `ServerConfig` that exists has passed every check that Apache Kafka 4.4.0
//! makes at start, between keys too (`check`). Immutable; a dynamic change builds a new one.

mod check;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use crate::error::ConfigError;
use crate::net::{
    Endpoint, SecurityProtocol, normalise_listener_name, parse_listeners, parse_map, parse_voters,
};
use crate::properties::Properties;
use crate::table::{broker_table, topic_table};
use crate::value::ConfigValue;

pub use values::ServerValues;

/// What this process does (`process.roles`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessRole {
    Broker,
    Controller,
}

impl ProcessRole {
    pub fn name(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::Controller => "controller",
        }
    }
}

/// The replication factor of an internal topic. When the user set none, it is what the live brokers
/// allow, up to Kafka's default, and grows as brokers join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicationFactor {
    Explicit(i16),
    Auto { up_to: i16 },
}

impl ReplicationFactor {
    /// The factor to create the topic with while `live_brokers` are alive; at least one.
    pub fn for_live_brokers(self, live_brokers: usize) -> i16 {
        match self {
            Self::Explicit(factor) => factor,
            Self::Auto { up_to } => up_to.min(i16::try_from(live_brokers).unwrap_or(i16::MAX)).max(1),
        }
    }

    pub fn is_explicit(self) -> bool {
        matches!(self, Self::Explicit(_))
    }
}

/// Something a person should read once at start; the server goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigWarning {
    /// A key nobody knows.
    Unknown { name: String, line: Option<u32>, nearest: Option<String> },
    /// Keys that are known and accepted but that this server does not act on yet.
    NotEffective { names: Vec<String> },
    /// What the reference also warns or complains about, in its words.
    Message(String),
}

impl std::fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown { name, line, nearest } => {
                write!(f, "Unknown configuration '{name}'")?;
                if let Some(line) = line {
                    write!(f, " (line {line})")?;
                }
                match nearest {
                    Some(nearest) => write!(f, ": did you mean '{nearest}'? It is ignored."),
                    None => f.write_str(": it is ignored."),
                }
            }
            Self::NotEffective { names } => {
                write!(f, "These configurations are known but not in effect yet: {}", names.join(", "))
            }
            Self::Message(message) => f.write_str(message),
        }
    }
}

/// A checked configuration of one server. Dereferences to its typed fields.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// What was set, as text; `node.id` and `broker.id` stand for each other.
    originals: BTreeMap<String, String>,
    /// Parallel to the keys of the broker's table.
    values: Vec<ConfigValue>,
    typed: ServerValues,
    process_roles: BTreeSet<ProcessRole>,
    listener_protocols: BTreeMap<String, SecurityProtocol>,
    listeners: Vec<Endpoint>,
    advertised_broker_listeners: Vec<Endpoint>,
    advertised_controller_listeners: Vec<Endpoint>,
    inter_broker_listener: (String, SecurityProtocol),
    early_start_listeners: BTreeSet<String>,
    quorum_voters: BTreeMap<i32, (String, i32)>,
    max_connections_per_ip_overrides: BTreeMap<String, i32>,
    messages: Vec<String>,
}

impl Deref for ServerConfig {
    type Target = ServerValues;

    fn deref(&self) -> &ServerValues {
        &self.typed
    }
}

impl ServerConfig {
    /// Parses and checks a server's properties.
    pub fn from_properties(properties: &Properties) -> Result<Self, ConfigError> {
        Self::from_map(properties.to_map())
    }

    /// Parses and checks a map of texts, keys that nobody knows included.
    pub fn from_map(mut originals: BTreeMap<String, String>) -> Result<Self, ConfigError> {
        // KIP-1108: the old and the new name of the id stand for each other.
        match (originals.get("broker.id").cloned(), originals.get("node.id").cloned()) {
            (None, Some(id)) => originals.insert("broker.id".to_owned(), id),
            (Some(id), None) => originals.insert("node.id".to_owned(), id),
            _ => None,
        };
        let values = parse_values(&originals)?;
        let typed = ServerValues::new(&values);
        let mut config = Self {
            originals,
            values,
            typed,
            process_roles: BTreeSet::new(),
            listener_protocols: BTreeMap::new(),
            listeners: Vec::new(),
            advertised_broker_listeners: Vec::new(),
            advertised_controller_listeners: Vec::new(),
            inter_broker_listener: (String::new(), SecurityProtocol::Plaintext),
            early_start_listeners: BTreeSet::new(),
            quorum_voters: BTreeMap::new(),
            max_connections_per_ip_overrides: BTreeMap::new(),
            messages: Vec::new(),
        };
        config.derive()?;
        config.check()?;
        Ok(config)
    }

    /// Fills what is computed from several keys, in the order in which the reference does.
    fn derive(&mut self) -> Result<(), ConfigError> {
        let roles = self.list("process.roles");
        self.process_roles = roles
            .iter()
            .map(|role| if role == "broker" { ProcessRole::Broker } else { ProcessRole::Controller })
            .collect();
        self.check_group_settings()?;
        self.listener_protocols = self.derive_listener_protocols()?;
        self.listeners = parse_listeners(self.list("listeners"), &self.listener_protocols, true)?;
        self.early_start_listeners = self.derive_early_start_listeners()?;
        self.quorum_voters = parse_voters(self.list("controller.quorum.voters"), false)?;
        let overrides =
            parse_map("max.connections.per.ip.overrides", self.text("max.connections.per.ip.overrides"))?;
        for (address, limit) in overrides {
            let parsed = limit
                .parse()
                .map_err(|_| ConfigError::illegal_argument(format!("For input string: \"{limit}\"")))?;
            self.max_connections_per_ip_overrides.insert(address, parsed);
        }
        self.derive_advertised_listeners()
    }

    fn derive_listener_protocols(&self) -> Result<BTreeMap<String, SecurityProtocol>, ConfigError> {
        const KEY: &str = "listener.security.protocol.map";
        let mut protocols = BTreeMap::new();
        for (name, protocol) in parse_map(KEY, self.text(KEY))? {
            let protocol = SecurityProtocol::from_name(&protocol).ok_or_else(|| {
                ConfigError::config(format!("Invalid security protocol `{protocol}` defined in {KEY}"))
            })?;
            protocols.insert(normalise_listener_name(&name)?, protocol);
        }
        if self.was_set(KEY) {
            return Ok(protocols);
        }
        // Without a map, controller listeners are plaintext, unless anything else is secured (KIP-1147).
        let secured = |name: &str| matches!(name, "SSL" | "SASL_SSL" | "SASL_PLAINTEXT");
        let controllers = &self.typed.controller_listener_names;
        if controllers.iter().any(|name| secured(name)) {
            return Ok(protocols);
        }
        for listener in self.list("listeners") {
            let Some((name, _)) = listener.split_once(':') else {
                return Err(ConfigError::config(format!("Unable to parse a listener name from {listener}")));
            };
            if secured(&name.to_uppercase()) {
                return Ok(protocols);
            }
        }
        for name in controllers.iter().filter(|name| *name != "PLAINTEXT") {
            protocols.insert(name.clone(), SecurityProtocol::Plaintext);
        }
        Ok(protocols)
    }

    fn derive_early_start_listeners(&self) -> Result<BTreeSet<String>, ConfigError> {
        let Some(names) = self.value("early.start.listeners").as_list() else {
            return Ok(self.controller_listeners().map(|e| e.listener.clone()).collect());
        };
        for name in names {
            if !self.listeners.iter().any(|e| e.listener == *name) {
                return Err(ConfigError::config(format!(
                    "early.start.listeners contains listener {name}, but this is not contained in listeners or \
                     controller.listener.names"
                )));
            }
        }
        Ok(names.iter().cloned().collect())
    }

    fn derive_advertised_listeners(&mut self) -> Result<(), ConfigError> {
        let advertised = match self.value("advertised.listeners").as_list() {
            Some(listeners) => Some(parse_listeners(listeners, &self.listener_protocols, false)?),
            None => None,
        };
        let controllers = self.typed.controller_listener_names.clone();
        let is_controller = |endpoint: &&Endpoint| controllers.contains(&endpoint.listener);
        self.advertised_broker_listeners = advertised
            .as_deref()
            .unwrap_or(&self.listeners)
            .iter()
            .filter(|e| !is_controller(e))
            .cloned()
            .collect();
        let mut effective = Vec::new();
        for (i, name) in controllers.iter().enumerate() {
            let name = normalise_listener_name(name)?;
            let found =
                advertised.iter().flatten().filter(is_controller).find(|e| e.listener == name).cloned();
            effective.extend(match (found, self.controller_listeners().find(|e| e.listener == name)) {
                (Some(found), _) => Some(found),
                (None, Some(listener)) => Some(self.advertise(listener, i == 0)?),
                (None, None) => None,
            });
        }
        self.advertised_controller_listeners = effective;
        Ok(())
    }

    /// What a controller listener without an advertised address is announced as: for the first one the
    /// voter's address where it listens on all interfaces.
    fn advertise(&self, endpoint: &Endpoint, is_default: bool) -> Result<Endpoint, ConfigError> {
        let everywhere = endpoint.host.as_deref().is_none_or(|host| host == "0.0.0.0");
        let mut advertised = endpoint.clone();
        if !everywhere {
            return Ok(advertised);
        }
        advertised.host = None;
        if is_default {
            let voters = parse_voters(self.list("controller.quorum.voters"), true)?;
            if let Some((host, port)) = voters.get(&self.node_id) {
                advertised.host = Some(host.clone());
                advertised.port = *port;
            }
        }
        Ok(advertised)
    }
}

/// Lookup by key.
impl ServerConfig {
    /// The value of a known key; `Null` for one that has none or that nobody knows.
    pub fn value(&self, key: &str) -> &ConfigValue {
        broker_table().index_of(key).and_then(|i| self.values.get(i)).unwrap_or(&ConfigValue::Null)
    }

    pub(crate) fn list(&self, key: &str) -> &[String] {
        self.value(key).as_list().unwrap_or_default()
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.value(key).as_str().unwrap_or_default()
    }

    pub(crate) fn int(&self, key: &str) -> i64 {
        self.value(key).as_i64().unwrap_or_default()
    }

    /// Whether the user set the key, as opposed to having its default.
    pub fn was_set(&self, key: &str) -> bool {
        self.originals.contains_key(key)
    }

    /// Everything that was set, as text.
    pub fn originals(&self) -> &BTreeMap<String, String> {
        &self.originals
    }

    /// The value of `base` for one listener: `listener.name.<listener>.<base>` when set, otherwise the key itself.
    pub fn value_for_listener(&self, listener: &str, base: &str) -> Result<ConfigValue, ConfigError> {
        let prefixed = format!("listener.name.{}.{base}", listener.to_lowercase());
        match (self.originals.get(&prefixed), broker_table().get(base)) {
            (Some(text), Some(key)) => key.parse(text),
            _ => Ok(self.value(base).clone()),
        }
    }

    /// What should be said once at start: unknown keys, keys not in effect, doubtful combinations.
    pub fn warnings(&self, properties: &Properties) -> Vec<ConfigWarning> {
        let table = broker_table();
        let mut warnings: Vec<ConfigWarning> =
            self.messages.iter().cloned().map(ConfigWarning::Message).collect();
        let mut not_effective = Vec::new();
        for (name, _) in properties.iter() {
            match table.get(name) {
                Some(key) if key.dynamic_only => warnings.push(unknown(properties, name)),
                Some(key) if !key.effective => not_effective.push(name.to_owned()),
                Some(_) => {}
                None if is_open_ended(self, name) => not_effective.push(name.to_owned()),
                None => warnings.push(unknown(properties, name)),
            }
        }
        if !not_effective.is_empty() {
            warnings.push(ConfigWarning::NotEffective { names: not_effective });
        }
        warnings
    }
}

fn unknown(properties: &Properties, name: &str) -> ConfigWarning {
    let synonym = crate::topic::server_synonym(name).filter(|synonym| *synonym != name);
    let nearest = synonym.or_else(|| broker_table().nearest(name)).map(str::to_owned);
    ConfigWarning::Unknown { name: name.to_owned(), line: properties.line_of(name), nearest }
}

/// Keys that belong to a listener or a plug-in and so are in no table.
fn is_open_ended(config: &ServerConfig, name: &str) -> bool {
    let prefixes = [
        "listener.name.",
        "config.providers.",
        config.text("remote.log.storage.manager.impl.prefix"),
        config.text("remote.log.metadata.manager.impl.prefix"),
    ];
    prefixes.iter().any(|prefix| !prefix.is_empty() && name.starts_with(prefix))
        && !topic_table().contains(name)
}

fn parse_values(originals: &BTreeMap<String, String>) -> Result<Vec<ConfigValue>, ConfigError> {
    // The order in which the reference misses them.
    for name in ["process.roles", "node.id", "controller.listener.names"] {
        if !originals.contains_key(name) {
            return Err(ConfigError::config(format!(
                "Missing required configuration \"{name}\" which has no default value."
            )));
        }
    }
    let keys = broker_table().keys();
    let mut values = Vec::with_capacity(keys.len());
    for key in keys {
        let text = if key.dynamic_only { None } else { originals.get(key.name) };
        values.push(match text {
            Some(text) => key.parse(text)?,
            None => key.default_value().clone(),
        });
    }
    Ok(values)
}

/// Roles, addresses and directories.
impl ServerConfig {
    pub fn process_roles(&self) -> &BTreeSet<ProcessRole> {
        &self.process_roles
    }

    pub fn is_broker(&self) -> bool {
        self.process_roles.contains(&ProcessRole::Broker)
    }

    pub fn is_controller(&self) -> bool {
        self.process_roles.contains(&ProcessRole::Controller)
    }

    /// Every listener of this process, controllers' included, in the order of the file.
    pub fn listeners(&self) -> &[Endpoint] {
        &self.listeners
    }

    /// The listeners clients and brokers connect to.
    pub fn broker_listeners(&self) -> impl Iterator<Item = &Endpoint> {
        self.listeners.iter().filter(|e| !self.controller_listener_names.contains(&e.listener))
    }

    pub fn controller_listeners(&self) -> impl Iterator<Item = &Endpoint> {
        self.listeners.iter().filter(|e| self.typed.controller_listener_names.contains(&e.listener))
    }

    /// What the broker registers with; no host means this machine's name.
    pub fn advertised_broker_listeners(&self) -> &[Endpoint] {
        &self.advertised_broker_listeners
    }

    /// What the controller registers with; no host means this machine's name.
    pub fn advertised_controller_listeners(&self) -> &[Endpoint] {
        &self.advertised_controller_listeners
    }

    pub fn listener_protocols(&self) -> &BTreeMap<String, SecurityProtocol> {
        &self.listener_protocols
    }

    pub fn inter_broker_listener_name(&self) -> &str {
        &self.inter_broker_listener.0
    }

    pub fn inter_broker_security_protocol(&self) -> SecurityProtocol {
        self.inter_broker_listener.1
    }

    /// Listeners that may open before the authorizer is ready.
    pub fn early_start_listeners(&self) -> &BTreeSet<String> {
        &self.early_start_listeners
    }

    /// `controller.quorum.voters`: id to host and port; empty with a dynamic quorum.
    pub fn quorum_voters(&self) -> &BTreeMap<i32, (String, i32)> {
        &self.quorum_voters
    }

    /// `controller.quorum.bootstrap.servers`: host and port.
    pub fn quorum_bootstrap_servers(&self) -> Vec<(String, i32)> {
        let entries = self.list("controller.quorum.bootstrap.servers");
        entries.iter().filter_map(|entry| crate::net::parse_host_port(entry)).collect()
    }

    /// The data directories, in the order of the file.
    pub fn log_dirs(&self) -> &[String] {
        self.value("log.dirs").as_list().unwrap_or_else(|| self.list("log.dir"))
    }

    /// Where the metadata log is.
    pub fn metadata_log_dir(&self) -> &str {
        match self.value("metadata.log.dir").as_str() {
            Some(dir) => dir,
            None => self.log_dirs().first().map_or("", String::as_str),
        }
    }

    /// Directories that take no new partitions (KIP-1066).
    pub fn cordoned_log_dirs(&self) -> &[String] {
        let dirs = self.list("cordoned.log.dirs");
        if dirs.iter().any(|dir| dir == "*") { self.log_dirs() } else { dirs }
    }

    /// The limit of connections from one address.
    pub fn max_connections_from(&self, address: &str) -> i32 {
        *self.max_connections_per_ip_overrides.get(address).unwrap_or(&self.max_connections_per_ip)
    }

    pub fn max_connections_per_ip_overrides(&self) -> &BTreeMap<String, i32> {
        &self.max_connections_per_ip_overrides
    }
}

/// What several keys say together.
impl ServerConfig {
    /// `log.retention.ms`, else minutes, else hours; -1 for ever.
    pub fn log_retention_time_ms(&self) -> i64 {
        let ms = match (self.log_retention_ms, self.log_retention_minutes) {
            (Some(ms), _) => ms,
            (None, Some(minutes)) => i64::from(minutes) * 60_000,
            (None, None) => i64::from(self.log_retention_hours) * 3_600_000,
        };
        ms.max(-1)
    }

    /// `log.roll.ms`, else hours.
    pub fn log_roll_time_ms(&self) -> i64 {
        self.log_roll_ms.unwrap_or_else(|| i64::from(self.log_roll_hours) * 3_600_000)
    }

    /// `log.roll.jitter.ms`, else hours.
    pub fn log_roll_jitter_time_ms(&self) -> i64 {
        self.log_roll_jitter_ms.unwrap_or_else(|| i64::from(self.log_roll_jitter_hours) * 3_600_000)
    }

    /// `log.flush.interval.ms`, else the scheduler's interval.
    pub fn log_flush_time_ms(&self) -> i64 {
        self.log_flush_interval_ms.unwrap_or(self.log_flush_scheduler_interval_ms)
    }

    pub fn offsets_topic_replication_factor(&self) -> ReplicationFactor {
        self.internal_replication_factor("offsets.topic.replication.factor")
    }

    pub fn transaction_state_log_replication_factor(&self) -> ReplicationFactor {
        self.internal_replication_factor("transaction.state.log.replication.factor")
    }

    pub fn share_coordinator_state_topic_replication_factor(&self) -> ReplicationFactor {
        self.internal_replication_factor("share.coordinator.state.topic.replication.factor")
    }

    /// `transaction.state.log.min.isr`; one that the user did not set never exceeds the replicas there are.
    pub fn transaction_state_log_min_isr(&self, replication_factor: i16) -> i32 {
        self.internal_min_isr("transaction.state.log.min.isr", replication_factor)
    }

    /// `share.coordinator.state.topic.min.isr`; one that the user did not set never exceeds the replicas there are.
    pub fn share_coordinator_state_topic_min_isr(&self, replication_factor: i16) -> i32 {
        self.internal_min_isr("share.coordinator.state.topic.min.isr", replication_factor)
    }

    fn internal_replication_factor(&self, key: &str) -> ReplicationFactor {
        let factor = i16::try_from(self.int(key)).unwrap_or(i16::MAX);
        if self.was_set(key) {
            ReplicationFactor::Explicit(factor)
        } else {
            ReplicationFactor::Auto { up_to: factor }
        }
    }

    fn internal_min_isr(&self, key: &str, replication_factor: i16) -> i32 {
        let min_isr = i32::try_from(self.int(key)).unwrap_or(i32::MAX);
        if self.was_set(key) { min_isr } else { min_isr.min(i32::from(replication_factor)).max(1) }
    }
}

#[cfg(test)]
mod tests;
