//! The configuration of a topic in effect, as the controller sees it: the topic's own, then this node's dynamic ones,
//! then those of all brokers, then this node's properties, then defaults.

use std::collections::BTreeMap;

use config::topic::server_synonyms;
use config::{ConfigKey, ConfigSource, ServerConfig, topic_table};

/// Where a topic's values come from, besides defaults.
pub(crate) struct TopicConfigLayers<'a> {
    pub(crate) topic: &'a BTreeMap<String, String>,
    pub(crate) node: &'a BTreeMap<String, String>,
    pub(crate) cluster: &'a BTreeMap<String, String>,
    pub(crate) server: &'a ServerConfig,
}

/// A value in effect.
pub(crate) struct EffectiveConfig {
    pub(crate) name: &'static str,
    pub(crate) value: Option<String>,
    pub(crate) source: ConfigSource,
    pub(crate) sensitive: bool,
}

impl TopicConfigLayers<'_> {
    /// Every key by name; internal ones only when the topic sets them.
    pub(crate) fn all(&self) -> Vec<EffectiveConfig> {
        let shown = |key: &&ConfigKey| !key.internal || self.topic.contains_key(key.name);
        topic_table().keys().iter().filter(shown).map(|key| self.effective(key)).collect()
    }

    /// The value of one key.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        self.effective(topic_table().get(name)?).value
    }

    fn effective(&self, key: &ConfigKey) -> EffectiveConfig {
        let (value, source) = self.resolve(key);
        EffectiveConfig { name: key.name, value, source, sensitive: key.sensitive() }
    }

    fn resolve(&self, key: &ConfigKey) -> (Option<String>, ConfigSource) {
        if let Some(text) = self.topic.get(key.name) {
            return (Some(text.clone()), ConfigSource::DynamicTopic);
        }
        let layers = [
            (self.node, ConfigSource::DynamicBroker),
            (self.cluster, ConfigSource::DynamicDefaultBroker),
            (self.server.originals(), ConfigSource::StaticBroker),
        ];
        for (layer, source) in layers {
            for synonym in server_synonyms(key.name) {
                if let Some(text) = layer.get(synonym.name) {
                    return (Some(scaled(text, synonym.factor)), source);
                }
            }
        }
        (key.default_text().map(str::to_owned), ConfigSource::Default)
    }
}

/// A broker's hours or minutes as a topic's milliseconds.
fn scaled(text: &str, factor: i64) -> String {
    match factor {
        1 => text.to_owned(),
        factor => text.trim().parse::<i64>().unwrap_or(0).saturating_mul(factor).to_string(),
    }
}
