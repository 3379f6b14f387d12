//! The tables: one row per key and scope, and everything else is computed from them.
//!
//! A row of `tables/*.txt` is `name | type | default | validator | dynamic update | flags | documentation`:
//! * default: `required`, `null`, or `=` and the text;
//! * validator: `-`, a range `1..10` (either end may be absent), `one-of(a,b)`, `one-of-ignoring-case(A,B)`,
//!   `list`, `list-not-empty`, `list-or-null`, `list-not-empty-or-null` (each with an optional `(a,b)` of
//!   permitted elements), `not-empty`, `not-null`, or the name of a special one;
//! * dynamic update: `read-only`, `per-broker`, `cluster-wide`;
//! * flags: `internal` (never listed unless set), `dynamic-only` (exists only as a dynamic broker config),
//!   and `served` or `pending`: whether this server acts on the key yet.
//!
//! Invariants: rows are sorted by name; every default passes its own validator (tested). The tables are
//! parsed once, on first use, into borrowed rows: about a hundred microseconds, no allocation per cell.

use std::fmt;
use std::sync::OnceLock;

use crate::error::ConfigError;
use crate::validator::Validator;
use crate::value::ConfigValue;

/// The type of a key; its discriminant is the protocol's `ConfigType` in DescribeConfigs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum ConfigType {
    Boolean = 1,
    String = 2,
    Int = 3,
    Short = 4,
    Long = 5,
    Double = 6,
    List = 7,
    Class = 8,
    Password = 9,
}

impl ConfigType {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "BOOLEAN" => Self::Boolean,
            "STRING" => Self::String,
            "INT" => Self::Int,
            "SHORT" => Self::Short,
            "LONG" => Self::Long,
            "DOUBLE" => Self::Double,
            "LIST" => Self::List,
            "CLASS" => Self::Class,
            "PASSWORD" => Self::Password,
            _ => return None,
        })
    }
}

impl fmt::Display for ConfigType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Boolean => "BOOLEAN",
            Self::String => "STRING",
            Self::Int => "INT",
            Self::Short => "SHORT",
            Self::Long => "LONG",
            Self::Double => "DOUBLE",
            Self::List => "LIST",
            Self::Class => "CLASS",
            Self::Password => "PASSWORD",
        })
    }
}

/// Whether and at which level a key of a running broker can be changed (KIP-226).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateMode {
    ReadOnly,
    PerBroker,
    ClusterWide,
}

impl fmt::Display for UpdateMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadOnly => "read-only",
            Self::PerBroker => "per-broker",
            Self::ClusterWide => "cluster-wide",
        })
    }
}

/// What a key has when nobody set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultValue {
    /// The user must set it.
    Required,
    Null,
    Text(&'static str),
}

/// One row.
#[derive(Debug, Clone)]
pub struct ConfigKey {
    pub name: &'static str,
    pub kind: ConfigType,
    pub default: DefaultValue,
    pub validator: Validator,
    pub update_mode: UpdateMode,
    /// Not listed by DescribeConfigs unless somebody set it.
    pub internal: bool,
    /// Known only as a dynamic broker config, not in a server's file.
    pub dynamic_only: bool,
    /// Whether this server already acts on it.
    pub effective: bool,
    pub documentation: &'static str,
    default_value: ConfigValue,
}

impl ConfigKey {
    pub fn sensitive(&self) -> bool {
        self.kind == ConfigType::Password
    }

    /// The default as a value; `Null` also when the key is required.
    pub fn default_value(&self) -> &ConfigValue {
        &self.default_value
    }

    /// The default as text, absent when there is none.
    pub fn default_text(&self) -> Option<&'static str> {
        match self.default {
            DefaultValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Reads and checks one value. Repeated elements of a list are dropped first (KIP-1161).
    pub fn parse(&self, text: &str) -> Result<ConfigValue, ConfigError> {
        let mut value = ConfigValue::parse(self.name, text, self.kind)?;
        if let (Validator::List { .. }, ConfigValue::List(elements)) = (&self.validator, &mut value) {
            let mut seen = std::collections::BTreeSet::new();
            elements.retain(|element| seen.insert(element.clone()));
        }
        self.validator.check(self.name, &value)?;
        Ok(value)
    }

    /// Reads and checks one value as a dynamic broker config, where repeated elements are refused.
    pub fn parse_strictly(&self, text: &str) -> Result<ConfigValue, ConfigError> {
        let value = ConfigValue::parse(self.name, text, self.kind)?;
        self.validator.check(self.name, &value)?;
        Ok(value)
    }
}

/// All keys of one scope, sorted by name.
#[derive(Debug)]
pub struct ConfigTable {
    keys: Vec<ConfigKey>,
}

impl ConfigTable {
    pub fn keys(&self) -> &[ConfigKey] {
        &self.keys
    }

    pub fn get(&self, name: &str) -> Option<&ConfigKey> {
        self.index_of(name).map(|i| &self.keys[i])
    }

    /// The position of `name` in [`ConfigTable::keys`].
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.keys.binary_search_by(|key| key.name.cmp(name)).ok()
    }

    pub fn contains(&self, name: &str) -> bool {
        self.index_of(name).is_some()
    }

    /// The known key whose name is nearest to `name`, if any is near enough to be meant.
    pub fn nearest(&self, name: &str) -> Option<&'static str> {
        crate::suggest::nearest(name, self.keys.iter().filter(|key| !key.internal).map(|key| key.name))
    }

    fn load(text: &'static str) -> Self {
        let rows = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        // A malformed row is a bug of ours that the tests of this file catch.
        let keys: Vec<ConfigKey> = rows
            .map(|row| parse_row(row).unwrap_or_else(|| panic!("malformed row of a config table: {row}")))
            .collect();
        debug_assert!(keys.is_sorted_by(|a, b| a.name < b.name));
        Self { keys }
    }
}

fn parse_row(row: &'static str) -> Option<ConfigKey> {
    let mut cells = row.splitn(7, '|').map(str::trim);
    let name = cells.next()?;
    let kind = ConfigType::from_name(cells.next()?)?;
    let default = match cells.next()? {
        "required" => DefaultValue::Required,
        "null" => DefaultValue::Null,
        text => DefaultValue::Text(text.strip_prefix('=')?),
    };
    let validator = Validator::parse(cells.next()?)?;
    let update_mode = match cells.next()? {
        "read-only" => UpdateMode::ReadOnly,
        "per-broker" => UpdateMode::PerBroker,
        "cluster-wide" => UpdateMode::ClusterWide,
        _ => return None,
    };
    let flags = cells.next()?;
    let documentation = cells.next()?;
    let default_value = match default {
        DefaultValue::Text(text) => ConfigValue::parse(name, text, kind).ok()?,
        _ => ConfigValue::Null,
    };
    let has = |flag: &str| flags.split(',').any(|f| f == flag);
    Some(ConfigKey {
        name,
        kind,
        default,
        validator,
        update_mode,
        internal: has("internal"),
        dynamic_only: has("dynamic-only"),
        effective: has("served"),
        documentation,
        default_value,
    })
}

macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident = $file:literal;)*) => {$(
        $(#[$doc])*
        pub fn $name() -> &'static ConfigTable {
            static TABLE: OnceLock<ConfigTable> = OnceLock::new();
            TABLE.get_or_init(|| ConfigTable::load(include_str!($file)))
        }
    )*};
}

tables! {
    /// Keys of a server's file and dynamic broker configs (`KafkaConfig`).
    broker_table = "tables/broker.txt";
    /// Keys of a topic (`LogConfig`).
    topic_table = "tables/topic.txt";
    /// Keys of a group (`GroupConfig`).
    group_table = "tables/group.txt";
    /// Keys of a client metrics subscription (`ClientMetricsConfigs`).
    client_metrics_table = "tables/client_metrics.txt";
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: [(&str, fn() -> &'static ConfigTable, usize, usize); 4] = [
        ("broker", broker_table, 350, 382),
        ("topic", topic_table, 37, 38),
        ("group", group_table, 21, 27),
        ("client-metrics", client_metrics_table, 3, 3),
    ];

    #[test]
    fn tables_have_the_number_of_keys_of_the_reference() {
        for (scope, table, listed, all) in TABLES {
            let keys = table().keys();
            assert_eq!(keys.len(), all, "{scope}");
            assert_eq!(keys.iter().filter(|k| !k.internal && !k.dynamic_only).count(), listed, "{scope}");
            assert!(keys.is_sorted_by(|a, b| a.name < b.name), "{scope} is not sorted");
        }
    }

    #[test]
    fn every_default_passes_its_own_validator_and_shows_as_written() {
        for (scope, table, ..) in TABLES {
            for key in table().keys() {
                let DefaultValue::Text(text) = key.default else { continue };
                let value = key.parse(text).unwrap_or_else(|e| panic!("{scope} {}: {e}", key.name));
                assert_eq!(value.to_config_string().as_deref(), Some(text), "{scope} {}", key.name);
            }
        }
    }

    #[test]
    fn every_key_is_documented_in_one_sentence() {
        for (scope, table, ..) in TABLES {
            for key in table().keys() {
                assert!(
                    key.documentation.len() > 20 && key.documentation.ends_with('.'),
                    "{scope} {}",
                    key.name
                );
            }
        }
    }
}
