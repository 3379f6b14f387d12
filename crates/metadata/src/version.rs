//! `metadata.version`: every level of Apache Kafka 4.4.0, what it allows, and which record versions it writes.
//!
//! Owns one table of levels. Invariants: levels are consecutive and ordered as released; a level that is not yet
//! stable (above [`MetadataVersion::LATEST_PRODUCTION`]) can be parsed only when unstable levels are asked for.

use std::fmt;

/// The name of the feature.
pub const METADATA_VERSION: &str = "metadata.version";

/// A level of the feature `metadata.version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetadataVersion(i16);

/// (level, release, name, whether the format of the metadata changed with it)
const TABLE: [(i16, &str, &str, bool); 28] = [
    (7, "3.3", "3.3-IV3", true),
    (8, "3.4", "3.4-IV0", true),
    (9, "3.5", "3.5-IV0", false),
    (10, "3.5", "3.5-IV1", false),
    (11, "3.5", "3.5-IV2", true),
    (12, "3.6", "3.6-IV0", false),
    (13, "3.6", "3.6-IV1", true),
    (14, "3.6", "3.6-IV2", true),
    (15, "3.7", "3.7-IV0", true),
    (16, "3.7", "3.7-IV1", false),
    (17, "3.7", "3.7-IV2", true),
    (18, "3.7", "3.7-IV3", false),
    (19, "3.7", "3.7-IV4", false),
    (20, "3.8", "3.8-IV0", false),
    (21, "3.9", "3.9-IV0", false),
    (22, "4.0", "4.0-IV0", false),
    (23, "4.0", "4.0-IV1", true),
    (24, "4.0", "4.0-IV2", false),
    (25, "4.0", "4.0-IV3", false),
    (26, "4.1", "4.1-IV0", false),
    (27, "4.1", "4.1-IV1", false),
    (28, "4.2", "4.2-IV0", false),
    (29, "4.2", "4.2-IV1", false),
    (30, "4.3", "4.3-IV0", true),
    (31, "4.4", "4.4-IV0", false),
    (32, "4.4", "4.4-IV1", true),
    (33, "4.4", "4.4-IV2", true),
    (34, "4.5", "4.5-IV0", false),
];

/// Why a level or a version string names no metadata version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownMetadataVersion(String);

impl fmt::Display for UnknownMetadataVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnknownMetadataVersion {}

#[allow(missing_docs)]
impl MetadataVersion {
    pub const IBP_3_3_IV3: Self = Self(7);
    pub const IBP_3_4_IV0: Self = Self(8);
    pub const IBP_3_5_IV0: Self = Self(9);
    pub const IBP_3_5_IV1: Self = Self(10);
    pub const IBP_3_5_IV2: Self = Self(11);
    pub const IBP_3_6_IV0: Self = Self(12);
    pub const IBP_3_6_IV1: Self = Self(13);
    pub const IBP_3_6_IV2: Self = Self(14);
    pub const IBP_3_7_IV0: Self = Self(15);
    pub const IBP_3_7_IV1: Self = Self(16);
    pub const IBP_3_7_IV2: Self = Self(17);
    pub const IBP_3_7_IV3: Self = Self(18);
    pub const IBP_3_7_IV4: Self = Self(19);
    pub const IBP_3_8_IV0: Self = Self(20);
    pub const IBP_3_9_IV0: Self = Self(21);
    pub const IBP_4_0_IV0: Self = Self(22);
    pub const IBP_4_0_IV1: Self = Self(23);
    pub const IBP_4_0_IV2: Self = Self(24);
    pub const IBP_4_0_IV3: Self = Self(25);
    pub const IBP_4_1_IV0: Self = Self(26);
    pub const IBP_4_1_IV1: Self = Self(27);
    pub const IBP_4_2_IV0: Self = Self(28);
    pub const IBP_4_2_IV1: Self = Self(29);
    pub const IBP_4_3_IV0: Self = Self(30);
    pub const IBP_4_4_IV0: Self = Self(31);
    pub const IBP_4_4_IV1: Self = Self(32);
    pub const IBP_4_4_IV2: Self = Self(33);
    pub const IBP_4_5_IV0: Self = Self(34);
}

impl MetadataVersion {
    /// The oldest level this release can read.
    pub const MINIMUM: Self = Self::IBP_3_3_IV3;
    /// What a new cluster gets.
    pub const LATEST_PRODUCTION: Self = Self::IBP_4_4_IV2;
    /// The newest level that is known at all.
    pub const LATEST_TESTING: Self = Self::IBP_4_5_IV0;

    /// All levels, oldest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        TABLE.iter().map(|row| Self(row.0))
    }

    /// The version of a feature level.
    pub fn from_feature_level(level: i16) -> Result<Self, UnknownMetadataVersion> {
        if TABLE.iter().any(|row| row.0 == level) {
            return Ok(Self(level));
        }
        Err(UnknownMetadataVersion(format!(
            "No MetadataVersion with feature level {level}. Valid feature levels are from {} to {}.",
            Self::MINIMUM.0,
            Self::LATEST_TESTING.0
        )))
    }

    /// The version of a string like `4.4`, `4.4.0` or `4.4-IV2`.
    pub fn from_version_string(text: &str, unstable_enabled: bool) -> Result<Self, UnknownMetadataVersion> {
        let mut segments = text.split('.');
        let key = match (segments.next(), segments.next(), segments.next()) {
            (Some(a), Some(b), Some(_)) => format!("{a}.{b}"),
            _ => text.to_owned(),
        };
        let by_release = Self::all().rev().find(|v| v.is_production() && v.release() == key);
        let found = by_release.or_else(|| Self::all().find(|v| v.name() == key));
        match found {
            Some(v) if unstable_enabled || v.is_production() => Ok(v),
            _ => {
                let last = if unstable_enabled { Self::LATEST_TESTING } else { Self::LATEST_PRODUCTION };
                let names: Vec<_> = Self::all().filter(|v| *v <= last).map(|v| v.name()).collect();
                Err(UnknownMetadataVersion(format!(
                    "Unknown metadata.version '{text}'. Supported metadata.version are: {}",
                    names.join(", ")
                )))
            }
        }
    }

    /// The level as it stands in a `FeatureLevelRecord`.
    pub const fn feature_level(self) -> i16 {
        self.0
    }

    fn row(self) -> (i16, &'static str, &'static str, bool) {
        TABLE.iter().copied().find(|row| row.0 == self.0).unwrap_or(TABLE[0])
    }

    /// The release, such as `4.4`.
    pub fn release(self) -> &'static str {
        self.row().1
    }

    /// The full name, such as `4.4-IV2`.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Whether the level is stable.
    pub fn is_production(self) -> bool {
        self <= Self::LATEST_PRODUCTION
    }

    /// Whether the format of the metadata changed with this level.
    pub fn did_metadata_change(self) -> bool {
        self.row().3
    }

    /// Whether the format of the metadata changed anywhere between two levels.
    pub fn metadata_changed_between(a: Self, b: Self) -> bool {
        let (low, high) = (a.min(b), a.max(b));
        Self::all().any(|v| low < v && v <= high && v.did_metadata_change())
    }

    /// KIP-900.
    pub fn is_scram_supported(self) -> bool {
        self >= Self::IBP_3_5_IV2
    }

    /// Whether a shrinking ISR must bump the leader epoch (KAFKA-15021 ended that).
    pub fn is_leader_epoch_bump_required_on_isr_shrink(self) -> bool {
        self < Self::IBP_3_6_IV0
    }

    /// KIP-868.
    pub fn is_metadata_transaction_supported(self) -> bool {
        self >= Self::IBP_3_6_IV1
    }

    /// KIP-900's delegation tokens.
    pub fn is_delegation_token_supported(self) -> bool {
        self >= Self::IBP_3_6_IV2
    }

    /// KIP-858.
    pub fn is_directory_assignment_supported(self) -> bool {
        self >= Self::IBP_3_7_IV2
    }

    /// KIP-966.
    pub fn is_elr_supported(self) -> bool {
        self >= Self::IBP_4_0_IV1
    }

    /// Whether ACL hosts may be CIDR ranges.
    pub fn is_cidr_acl_supported(self) -> bool {
        self >= Self::IBP_4_4_IV1
    }

    /// Whether a registration may say that its broker migrates from ZooKeeper.
    pub fn is_migration_supported(self) -> bool {
        self >= Self::IBP_3_4_IV0
    }

    /// KIP-1066.
    pub fn is_cordoned_log_dirs_supported(self) -> bool {
        self >= Self::IBP_4_3_IV0
    }

    /// KIP-919.
    pub fn is_controller_registration_supported(self) -> bool {
        self >= Self::IBP_3_7_IV0
    }

    /// Whether controllers can be unregistered.
    pub fn is_controller_unregistration_supported(self) -> bool {
        self >= Self::IBP_4_4_IV2
    }

    /// The version in which `RegisterBrokerRecord` is written.
    pub fn register_broker_record_version(self) -> i16 {
        if self.is_cordoned_log_dirs_supported() {
            4
        } else if self.is_directory_assignment_supported() {
            3
        } else if self.is_migration_supported() {
            2
        } else {
            1
        }
    }

    /// The version in which `PartitionRecord` is written.
    pub fn partition_record_version(self) -> i16 {
        if self.is_elr_supported() {
            2
        } else if self.is_directory_assignment_supported() {
            1
        } else {
            0
        }
    }

    /// The version in which `PartitionChangeRecord` is written.
    pub fn partition_change_record_version(self) -> i16 {
        self.partition_record_version()
    }

    /// The version in which followers fetch.
    pub fn fetch_request_version(self) -> i16 {
        let steps = [
            (Self::IBP_4_1_IV1, 18),
            (Self::IBP_3_9_IV0, 17),
            (Self::IBP_3_7_IV4, 16),
            (Self::IBP_3_5_IV1, 15),
            (Self::IBP_3_5_IV0, 14),
        ];
        steps.iter().find(|(v, _)| self >= *v).map_or(13, |(_, n)| *n)
    }

    /// The version in which followers list offsets.
    pub fn list_offset_request_version(self) -> i16 {
        let steps = [
            (Self::IBP_4_2_IV1, 11),
            (Self::IBP_4_0_IV3, 10),
            (Self::IBP_3_9_IV0, 9),
            (Self::IBP_3_5_IV0, 8),
        ];
        steps.iter().find(|(v, _)| self >= *v).map_or(7, |(_, n)| *n)
    }
}

impl fmt::Display for MetadataVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_consecutive_and_names_start_with_their_release() {
        for pair in TABLE.windows(2) {
            assert_eq!(pair[0].0 + 1, pair[1].0);
        }
        for (_, release, name, _) in TABLE {
            assert!(name.starts_with(release));
        }
    }

    #[test]
    fn version_strings_name_the_newest_stable_level_of_their_release() {
        let check = |text: &str, unstable: bool, expected: Option<i16>| {
            assert_eq!(
                MetadataVersion::from_version_string(text, unstable).ok().map(|v| v.feature_level()),
                expected,
                "{text}"
            );
        };
        check("4.4", false, Some(33));
        check("4.4.0", false, Some(33));
        check("3.5", false, Some(11));
        check("3.7-IV1", false, Some(16));
        check("4.4-IV1", false, Some(32));
        check("4.5-IV0", false, None);
        check("4.5-IV0", true, Some(34));
        check("4.5", true, None);
        check("2.8", false, None);
        let error = MetadataVersion::from_version_string("9.9", false).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "Unknown metadata.version '9.9'. Supported metadata.version are: 3.3-IV3, 3.4-IV0"
            )
        );
        assert!(error.ends_with("4.4-IV1, 4.4-IV2"));
    }

    #[test]
    fn metadata_change_looks_at_every_level_passed() {
        let v = |l| MetadataVersion::from_feature_level(l).unwrap();
        assert!(!MetadataVersion::metadata_changed_between(v(33), v(33)));
        assert!(MetadataVersion::metadata_changed_between(v(33), v(32)));
        assert!(!MetadataVersion::metadata_changed_between(v(29), v(23)));
        assert!(!MetadataVersion::metadata_changed_between(v(23), v(31 - 2)));
        assert!(MetadataVersion::metadata_changed_between(v(22), v(23)));
    }
}
