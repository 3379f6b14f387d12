//! The features besides `metadata.version`: their levels, since when a new cluster gets them, what they depend on.
//!
//! Owns one table; what `kafka-features`, `kafka-storage` and the controller decide about features comes from it.
//! Invariant: rows of a feature are ordered by level, levels start at 0.

use std::collections::BTreeMap;
use std::fmt;

use crate::version::{METADATA_VERSION, MetadataVersion};

/// The name of `kraft.version`, which lives in raft control records and not in feature records.
pub const KRAFT_VERSION: &str = "kraft.version";
/// The name of `transaction.version`.
pub const TRANSACTION_VERSION: &str = "transaction.version";
/// The name of `group.version`.
pub const GROUP_VERSION: &str = "group.version";
/// The name of `eligible.leader.replicas.version`.
pub const ELIGIBLE_LEADER_REPLICAS_VERSION: &str = "eligible.leader.replicas.version";
/// The name of `share.version`.
pub const SHARE_VERSION: &str = "share.version";
/// The name of `streams.version`.
pub const STREAMS_VERSION: &str = "streams.version";

/// A closed range of feature levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VersionRange {
    /// The lowest level.
    pub min: i16,
    /// The highest level.
    pub max: i16,
}

impl VersionRange {
    /// What a node supports that does not know a feature.
    pub const DISABLED: Self = Self { min: 0, max: 0 };

    /// Whether `level` lies in the range.
    pub fn contains(self, level: i16) -> bool {
        self.min <= level && level <= self.max
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            write!(f, "{}", self.min)
        } else if self.max == i16::MAX {
            write!(f, "{}+", self.min)
        } else {
            write!(f, "{}-{}", self.min, self.max)
        }
    }
}

/// One level of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureLevel {
    /// The level.
    pub level: i16,
    /// The first metadata version whose new clusters get at least this level.
    pub bootstrap: MetadataVersion,
    /// Features and the level they must have first.
    pub dependencies: &'static [(&'static str, i16)],
}

/// A feature and its levels.
#[derive(Debug, PartialEq, Eq)]
pub struct Feature {
    /// The name, such as `group.version`.
    pub name: &'static str,
    /// The newest stable level.
    pub latest_production: i16,
    /// All levels, lowest first.
    pub levels: &'static [FeatureLevel],
}

const fn level(level: i16, bootstrap: MetadataVersion) -> FeatureLevel {
    FeatureLevel { level, bootstrap, dependencies: &[] }
}

/// The production features in the reference's order.
pub static FEATURES: [Feature; 6] = [
    Feature {
        name: KRAFT_VERSION,
        latest_production: 1,
        levels: &[level(0, MetadataVersion::MINIMUM), level(1, MetadataVersion::IBP_3_9_IV0)],
    },
    Feature {
        name: TRANSACTION_VERSION,
        latest_production: 2,
        levels: &[
            level(0, MetadataVersion::MINIMUM),
            level(1, MetadataVersion::IBP_4_0_IV2),
            level(2, MetadataVersion::IBP_4_0_IV2),
        ],
    },
    Feature {
        name: GROUP_VERSION,
        latest_production: 1,
        levels: &[level(0, MetadataVersion::MINIMUM), level(1, MetadataVersion::IBP_4_0_IV0)],
    },
    Feature {
        name: ELIGIBLE_LEADER_REPLICAS_VERSION,
        latest_production: 1,
        levels: &[
            level(0, MetadataVersion::MINIMUM),
            FeatureLevel {
                level: 1,
                bootstrap: MetadataVersion::IBP_4_1_IV0,
                dependencies: &[(METADATA_VERSION, MetadataVersion::IBP_4_0_IV1.feature_level())],
            },
        ],
    },
    Feature {
        name: SHARE_VERSION,
        latest_production: 2,
        levels: &[
            level(0, MetadataVersion::MINIMUM),
            level(1, MetadataVersion::IBP_4_2_IV0),
            level(2, MetadataVersion::IBP_4_4_IV0),
        ],
    },
    Feature {
        name: STREAMS_VERSION,
        latest_production: 1,
        levels: &[level(0, MetadataVersion::MINIMUM), level(1, MetadataVersion::IBP_4_2_IV1)],
    },
];

impl Feature {
    /// The feature of a name.
    pub fn from_name(name: &str) -> Option<&'static Feature> {
        FEATURES.iter().find(|f| f.name == name)
    }

    /// The lowest level.
    pub fn minimum_production(&self) -> i16 {
        self.levels.first().map_or(0, |l| l.level)
    }

    /// The highest level, stable or not.
    pub fn latest_testing(&self) -> i16 {
        self.levels.last().map_or(0, |l| l.level)
    }

    /// The level of a number, or the message of an unknown one.
    pub fn from_feature_level(&self, number: i16, allow_unstable: bool) -> Result<&FeatureLevel, String> {
        self.levels
            .iter()
            .find(|l| l.level == number && (allow_unstable || number <= self.latest_production))
            .ok_or_else(|| format!("No feature:{} with feature level {number}", self.name))
    }

    /// The level a new cluster of that metadata version gets.
    pub fn default_level(&self, metadata_version: MetadataVersion) -> i16 {
        let newest = self.levels.iter().take_while(|l| l.bootstrap <= metadata_version).last();
        newest.map_or(self.minimum_production(), |l| l.level)
    }

    /// Whether a level may be set beside the other `features`; the message says what is missing.
    pub fn validate_version(
        &self,
        level: &FeatureLevel,
        features: &BTreeMap<String, i16>,
    ) -> Result<(), String> {
        let minimum = MetadataVersion::MINIMUM;
        let metadata_version = features.get(METADATA_VERSION).copied();
        if level.level >= 1 && metadata_version.is_none_or(|v| v < minimum.feature_level()) {
            return Err(format!(
                "{} could not be set to {} because it depends on metadata.version={} ({minimum})",
                self.name,
                level.level,
                minimum.feature_level()
            ));
        }
        for (name, needed) in level.dependencies {
            if features.get(*name).is_none_or(|have| have < needed) {
                return Err(format!(
                    "{} could not be set to {} because it depends on {name} level {needed}",
                    self.name, level.level
                ));
            }
        }
        Ok(())
    }
}

/// What this release supports of every feature, as a broker or controller registers it.
pub fn default_supported_features(enable_unstable: bool) -> BTreeMap<String, VersionRange> {
    let newest =
        if enable_unstable { MetadataVersion::LATEST_TESTING } else { MetadataVersion::LATEST_PRODUCTION };
    let mut features = BTreeMap::new();
    features.insert(
        METADATA_VERSION.to_owned(),
        VersionRange { min: MetadataVersion::MINIMUM.feature_level(), max: newest.feature_level() },
    );
    for feature in &FEATURES {
        let max = if enable_unstable { feature.latest_testing() } else { feature.latest_production };
        if max > 0 {
            features.insert(feature.name.to_owned(), VersionRange { min: feature.minimum_production(), max });
        }
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_clusters_get_the_levels_of_their_metadata_version() {
        let check = |mv: MetadataVersion, expected: [i16; 5]| {
            let names = [
                TRANSACTION_VERSION,
                GROUP_VERSION,
                ELIGIBLE_LEADER_REPLICAS_VERSION,
                SHARE_VERSION,
                STREAMS_VERSION,
            ];
            assert_eq!(names.map(|n| Feature::from_name(n).unwrap().default_level(mv)), expected, "{mv}");
        };
        check(MetadataVersion::IBP_3_9_IV0, [0, 0, 0, 0, 0]);
        check(MetadataVersion::IBP_4_0_IV0, [0, 1, 0, 0, 0]);
        check(MetadataVersion::IBP_4_0_IV3, [2, 1, 0, 0, 0]);
        check(MetadataVersion::IBP_4_1_IV1, [2, 1, 1, 0, 0]);
        check(MetadataVersion::IBP_4_2_IV1, [2, 1, 1, 1, 1]);
        check(MetadataVersion::LATEST_PRODUCTION, [2, 1, 1, 2, 1]);
    }

    #[test]
    fn dependencies_are_checked_with_the_features_proposed_beside() {
        let elr = Feature::from_name(ELIGIBLE_LEADER_REPLICAS_VERSION).unwrap();
        let one = elr.from_feature_level(1, false).unwrap();
        let with = |mv: i16| BTreeMap::from([(METADATA_VERSION.to_owned(), mv)]);
        assert_eq!(elr.validate_version(one, &with(23)), Ok(()));
        assert_eq!(
            elr.validate_version(one, &with(22)),
            Err("eligible.leader.replicas.version could not be set to 1 because it depends on \
                 metadata.version level 23"
                .to_owned())
        );
        assert_eq!(
            elr.validate_version(one, &BTreeMap::new()),
            Err("eligible.leader.replicas.version could not be set to 1 because it depends on \
                 metadata.version=7 (3.3-IV3)"
                .to_owned())
        );
        assert_eq!(
            elr.from_feature_level(2, true),
            Err("No feature:eligible.leader.replicas.version with feature level 2".to_owned())
        );
    }

    #[test]
    fn supported_ranges_are_those_a_node_registers() {
        let text: Vec<String> =
            default_supported_features(false).iter().map(|(n, r)| format!("{n}:{r}")).collect();
        assert_eq!(
            text,
            [
                "eligible.leader.replicas.version:0-1",
                "group.version:0-1",
                "kraft.version:0-1",
                "metadata.version:7-33",
                "share.version:0-2",
                "streams.version:0-1",
                "transaction.version:0-2"
            ]
        );
    }
}
