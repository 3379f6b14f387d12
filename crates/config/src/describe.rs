//! DescribeConfigs: every entry of a resource, with value, source, synonyms, type and documentation.
//!
//! Pure functions of the layers. The order of entries is that of names; the order of synonyms is the order in
//! which they win. Values of sensitive keys are never given out.

use std::collections::{BTreeMap, BTreeSet};

use crate::dynamic::{BrokerConfigs, broker_key, broker_synonyms};
use crate::error::ConfigError;
use crate::server::ServerConfig;
use crate::table::{
    ConfigKey, ConfigTable, UpdateMode, broker_table, client_metrics_table, group_table, topic_table,
};
use crate::topic::{LogConfig, server_synonym, server_synonyms};
use crate::value::ConfigValue;

/// Where a value comes from; the discriminant is the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum ConfigSource {
    DynamicTopic = 1,
    DynamicBroker = 2,
    DynamicDefaultBroker = 3,
    StaticBroker = 4,
    Default = 5,
    DynamicBrokerLogger = 6,
    ClientMetrics = 7,
    Group = 8,
}

impl ConfigSource {
    pub fn id(self) -> i8 {
        self as i8
    }

    /// The name admin tools print.
    pub fn name(self) -> &'static str {
        match self {
            Self::DynamicTopic => "DYNAMIC_TOPIC_CONFIG",
            Self::DynamicBroker => "DYNAMIC_BROKER_CONFIG",
            Self::DynamicDefaultBroker => "DYNAMIC_DEFAULT_BROKER_CONFIG",
            Self::StaticBroker => "STATIC_BROKER_CONFIG",
            Self::Default => "DEFAULT_CONFIG",
            Self::DynamicBrokerLogger => "DYNAMIC_BROKER_LOGGER_CONFIG",
            Self::ClientMetrics => "DYNAMIC_CLIENT_METRICS_CONFIG",
            Self::Group => "DYNAMIC_GROUP_CONFIG",
        }
    }
}

/// One place a value can come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigSynonym {
    pub name: String,
    pub value: Option<String>,
    pub source: ConfigSource,
}

/// One entry of an answer. The caller leaves out synonyms and documentation when they were not asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedConfig {
    pub name: String,
    /// Absent when there is none, and always for sensitive keys.
    pub value: Option<String>,
    pub source: ConfigSource,
    pub read_only: bool,
    pub sensitive: bool,
    pub synonyms: Vec<ConfigSynonym>,
    /// The protocol's type id; 0 for keys nobody knows.
    pub config_type: i8,
    pub documentation: Option<&'static str>,
}

/// Which keys an answer should have: no list and an empty list both mean all (KIP-226).
pub fn select(entries: Vec<DescribedConfig>, keys: Option<&[String]>) -> Vec<DescribedConfig> {
    match keys {
        None | Some([]) => entries,
        Some(keys) => {
            let wanted: BTreeSet<&str> = keys.iter().map(String::as_str).collect();
            entries.into_iter().filter(|entry| wanted.contains(entry.name.as_str())).collect()
        }
    }
}

/// A topic with these overrides.
pub fn describe_topic(
    configs: &BrokerConfigs,
    overrides: &BTreeMap<String, String>,
) -> Result<Vec<DescribedConfig>, ConfigError> {
    let config = LogConfig::new(configs.effective(), overrides)?;
    Ok(describe_overridable(topic_table(), overrides, ConfigSource::DynamicTopic, &BTreeSet::new(), |key| {
        let synonyms = server_synonym(key.name).map(|name| server_layers(configs, name, key.sensitive()));
        (config.value(key.name).clone(), synonyms.unwrap_or_default())
    }))
}

/// A group with these overrides.
pub fn describe_group(
    configs: &BrokerConfigs,
    overrides: &BTreeMap<String, String>,
) -> Result<Vec<DescribedConfig>, ConfigError> {
    let values = crate::group::group_values(configs.effective(), overrides)?;
    let set_on_broker: BTreeSet<&str> = group_table()
        .keys()
        .iter()
        .filter(|key| {
            crate::group::broker_synonym(key.name).is_some_and(|name| configs.effective().was_set(name))
        })
        .map(|key| key.name)
        .collect();
    let mut values = values.into_iter();
    Ok(describe_overridable(group_table(), overrides, ConfigSource::Group, &set_on_broker, |key| {
        let value = values.next().unwrap_or(ConfigValue::Null);
        let synonyms = match crate::group::broker_synonym(key.name) {
            Some(name) => server_layers(configs, name, key.sensitive()),
            None => key
                .default_text()
                .map(|text| synonym(key.name, text, ConfigSource::Default, false))
                .into_iter()
                .collect(),
        };
        (value, synonyms)
    }))
}

/// A client metrics subscription with these settings.
pub fn describe_client_metrics(
    overrides: &BTreeMap<String, String>,
) -> Result<Vec<DescribedConfig>, ConfigError> {
    let keys = client_metrics_table().keys();
    let parsed = keys.iter().map(|key| match overrides.get(key.name) {
        Some(text) => key.parse(text),
        None => Ok(key.default_value().clone()),
    });
    let mut values = parsed.collect::<Result<Vec<_>, _>>()?.into_iter();
    Ok(describe_overridable(
        client_metrics_table(),
        overrides,
        ConfigSource::ClientMetrics,
        &BTreeSet::new(),
        |_| (values.next().unwrap_or(ConfigValue::Null), Vec::new()),
    ))
}

/// Resources whose entries are the keys of a table with overrides on top. `value_of` is called for every row in order.
fn describe_overridable(
    table: &'static ConfigTable,
    overrides: &BTreeMap<String, String>,
    source: ConfigSource,
    listed_though_internal: &BTreeSet<&str>,
    mut value_of: impl FnMut(&'static ConfigKey) -> (ConfigValue, Vec<ConfigSynonym>),
) -> Vec<DescribedConfig> {
    let mut entries = Vec::with_capacity(table.keys().len());
    for key in table.keys() {
        let (value, mut synonyms) = value_of(key);
        let overridden = overrides.contains_key(key.name);
        let listed =
            !key.internal || ((overridden || listed_though_internal.contains(key.name)) && !value.is_null());
        if !listed {
            continue;
        }
        let sensitive = key.sensitive();
        let value = if sensitive { None } else { value.to_config_string() };
        if overridden {
            synonyms.insert(0, ConfigSynonym { name: key.name.to_owned(), value: value.clone(), source });
        }
        entries.push(DescribedConfig {
            name: key.name.to_owned(),
            value,
            source: synonyms.first().map_or(ConfigSource::Default, |first| first.source),
            read_only: false,
            sensitive,
            synonyms,
            config_type: key.kind as i8,
            documentation: Some(key.documentation),
        });
    }
    // Names that no table knows are kept in the metadata log by older versions; they are shown without a value.
    for name in overrides.keys().filter(|name| !table.contains(name)) {
        entries.push(unknown_entry(name, source));
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
}

fn unknown_entry(name: &str, source: ConfigSource) -> DescribedConfig {
    DescribedConfig {
        name: name.to_owned(),
        value: None,
        source,
        read_only: false,
        sensitive: true,
        synonyms: vec![ConfigSynonym { name: name.to_owned(), value: None, source }],
        config_type: 0,
        documentation: None,
    }
}

/// This broker: every key of the table, and everything else that was set.
pub fn describe_broker(configs: &BrokerConfigs) -> Vec<DescribedConfig> {
    let effective: &ServerConfig = configs.effective();
    let table = broker_table();
    let listed = |key: &&ConfigKey| !key.internal && !key.dynamic_only;
    let mut entries: Vec<DescribedConfig> = table
        .keys()
        .iter()
        .filter(listed)
        .map(|key| broker_entry(configs, key.name, effective.value(key.name).to_config_string(), true))
        .collect();
    for (name, text) in effective.originals() {
        if !table.get(name).is_some_and(|key| listed(&key)) {
            entries.push(broker_entry(configs, name, Some(text.clone()), true));
        }
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
}

/// The cluster-wide default of all brokers (`BROKER ""`): only what was set there.
pub fn describe_broker_default(configs: &BrokerConfigs) -> Vec<DescribedConfig> {
    let set = configs.cluster_default().iter();
    set.map(|(name, text)| broker_entry(configs, name, Some(text.clone()), false)).collect()
}

fn broker_entry(
    configs: &BrokerConfigs,
    name: &str,
    value: Option<String>,
    per_broker: bool,
) -> DescribedConfig {
    let key = broker_key(name);
    let sensitive = key.is_none_or(ConfigKey::sensitive);
    let mut synonyms = server_layers(configs, name, sensitive);
    if !per_broker {
        synonyms.retain(|synonym| synonym.source == ConfigSource::DynamicDefaultBroker);
    }
    let own = broker_table().get(name);
    DescribedConfig {
        name: name.to_owned(),
        value: if sensitive { None } else { value },
        source: synonyms.first().map_or(ConfigSource::Default, |first| first.source),
        read_only: own.is_none_or(|key| key.update_mode == UpdateMode::ReadOnly),
        sensitive,
        synonyms,
        config_type: key.map_or(0, |key| key.kind as i8),
        documentation: own.filter(|key| !key.dynamic_only).map(|key| key.documentation),
    }
}

/// All places a broker key's value can come from, the strongest first, starting at the key's own name.
fn server_layers(configs: &BrokerConfigs, name: &str, sensitive: bool) -> Vec<ConfigSynonym> {
    let names = broker_synonyms(name, true);
    let mut found = Vec::new();
    for (layer, source) in [
        (configs.broker(), ConfigSource::DynamicBroker),
        (configs.cluster_default(), ConfigSource::DynamicDefaultBroker),
        (configs.file().originals(), ConfigSource::StaticBroker),
    ] {
        for synonym_name in &names {
            if let Some(text) = layer.get(*synonym_name) {
                found.push(synonym(synonym_name, text, source, sensitive));
            }
        }
    }
    for synonym_name in &names {
        let key = broker_table().get(synonym_name).filter(|key| !key.dynamic_only);
        if let Some(text) = key.and_then(ConfigKey::default_text) {
            found.push(synonym(synonym_name, text, ConfigSource::Default, sensitive));
        }
    }
    let start = found.iter().position(|synonym| synonym.name == name).unwrap_or(found.len());
    found.split_off(start)
}

fn synonym(name: &str, value: &str, source: ConfigSource, sensitive: bool) -> ConfigSynonym {
    let value = (!sensitive).then(|| value.to_owned());
    ConfigSynonym { name: name.to_owned(), value, source }
}

/// A topic's configuration as the controller computes it, for CreateTopics answers: it knows its own file, the
/// cluster's default and its own dynamic configs, and no synonyms are reported.
pub fn effective_topic_configs(
    configs: &BrokerConfigs,
    overrides: &BTreeMap<String, String>,
) -> Vec<(String, Option<String>, ConfigSource, bool)> {
    let mut effective = Vec::with_capacity(topic_table().keys().len());
    for key in topic_table().keys().iter().filter(|key| !key.internal || overrides.contains_key(key.name)) {
        let (value, source) = effective_topic_config(configs, key, overrides);
        effective.push((key.name.to_owned(), value, source, key.sensitive()));
    }
    effective
}

fn effective_topic_config(
    configs: &BrokerConfigs,
    key: &ConfigKey,
    overrides: &BTreeMap<String, String>,
) -> (Option<String>, ConfigSource) {
    if let Some(text) = overrides.get(key.name) {
        return (Some(text.clone()), ConfigSource::DynamicTopic);
    }
    for (layer, source) in [
        (configs.broker(), ConfigSource::DynamicBroker),
        (configs.cluster_default(), ConfigSource::DynamicDefaultBroker),
        (configs.file().originals(), ConfigSource::StaticBroker),
    ] {
        for synonym in server_synonyms(key.name) {
            if let Some(text) = layer.get(synonym.name) {
                let value = match synonym.factor {
                    1 => text.clone(),
                    factor => (text.trim().parse::<i64>().unwrap_or(0).saturating_mul(factor)).to_string(),
                };
                return (Some(value), source);
            }
        }
    }
    (key.default_text().map(str::to_owned), ConfigSource::Default)
}
