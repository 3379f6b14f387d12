//! The records with which a new cluster starts, as `kafka-storage format` computes them.
//!
//! Invariant: the first record is `metadata.version`, the other features follow by name, levels of 0 are left out;
//! `kraft.version` is never among them (it is a control record of the checkpoint).

use std::collections::BTreeMap;
use std::fmt;

use protocol::records::metadata::FeatureLevelRecord;

use crate::feature::{FEATURES, Feature, KRAFT_VERSION};
use crate::record::{MetadataRecord, VersionedRecord};
use crate::version::{METADATA_VERSION, MetadataVersion};

/// The records of a new cluster and where they came from.
#[derive(Debug, Clone, PartialEq)]
pub struct BootstrapMetadata {
    records: Vec<VersionedRecord>,
    metadata_version: MetadataVersion,
    source: String,
}

/// Why a cluster cannot start with the features asked for; displays as the reference's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootstrapError(String);

impl fmt::Display for BootstrapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BootstrapError {}

fn feature_record(name: &str, level: i16) -> VersionedRecord {
    VersionedRecord::new(FeatureLevelRecord { name: name.to_owned(), feature_level: level }, 0)
}

impl BootstrapMetadata {
    /// Bootstrap records of a metadata version and feature levels.
    pub fn from_versions(
        metadata_version: MetadataVersion,
        features: &BTreeMap<String, i16>,
        source: &str,
    ) -> Self {
        let mut records = vec![feature_record(METADATA_VERSION, metadata_version.feature_level())];
        let others =
            features.iter().filter(|(n, l)| *n != METADATA_VERSION && *n != KRAFT_VERSION && **l > 0);
        records.extend(others.map(|(name, level)| feature_record(name, *level)));
        Self { records, metadata_version, source: source.to_owned() }
    }

    /// Bootstrap records as they were read from a checkpoint.
    pub fn from_records(records: Vec<VersionedRecord>, source: &str) -> Result<Self, BootstrapError> {
        let mut level = None;
        for record in &records {
            if let MetadataRecord::FeatureLevelRecord(r) = &record.record
                && r.name == METADATA_VERSION
            {
                level = Some(r.feature_level);
            }
        }
        let level = level.ok_or_else(|| {
            BootstrapError(format!(
                "No FeatureLevelRecord for metadata.version was found in the bootstrap metadata from {source}"
            ))
        })?;
        let metadata_version =
            MetadataVersion::from_feature_level(level).map_err(|e| BootstrapError(e.to_string()))?;
        Ok(Self { records, metadata_version, source: source.to_owned() })
    }

    /// All records in order.
    pub fn records(&self) -> &[VersionedRecord] {
        &self.records
    }

    /// The metadata version.
    pub fn metadata_version(&self) -> MetadataVersion {
        self.metadata_version
    }

    /// Where the records came from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The level that the records give a feature, 0 when none does.
    pub fn feature_level(&self, name: &str) -> i16 {
        let mut level = 0;
        for record in &self.records {
            if let MetadataRecord::FeatureLevelRecord(r) = &record.record
                && r.name == name
            {
                level = r.feature_level;
            }
        }
        level
    }

    /// The same records with others after them (SCRAM credentials at format time).
    pub fn with_records(mut self, more: Vec<VersionedRecord>) -> Self {
        self.records.extend(more);
        self
    }
}

/// What the one who formats a directory asks for.
#[derive(Debug, Clone, Default)]
pub struct FormatFeatures {
    /// `--release-version`.
    pub release_version: Option<MetadataVersion>,
    /// `--feature NAME=LEVEL`.
    pub features: BTreeMap<String, i16>,
    /// Whether unstable levels may be asked for.
    pub unstable_enabled: bool,
    /// Whether the quorum is dynamic (`--standalone`, `--initial-controllers`, `--no-initial-controllers`).
    pub has_dynamic_quorum: bool,
}

impl FormatFeatures {
    /// The metadata version and the level of every feature, `kraft.version` included.
    pub fn effective_levels(&self) -> Result<(MetadataVersion, BTreeMap<String, i16>), BootstrapError> {
        let release = self.effective_release()?;
        for name in self.features.keys() {
            if name != METADATA_VERSION && Feature::from_name(name).is_none() {
                let mut names: Vec<_> = FEATURES.iter().map(|f| f.name).collect();
                names.sort_unstable();
                return Err(BootstrapError(format!(
                    "Unsupported feature: {name}. Supported features are: {}",
                    names.join(", ")
                )));
            }
        }
        let mut levels = self.features.clone();
        levels.insert(METADATA_VERSION.to_owned(), release.feature_level());
        for feature in &FEATURES {
            let level = match levels.get(feature.name) {
                asked if feature.name == KRAFT_VERSION => self.kraft_level(asked.copied())?,
                Some(level) => *level,
                None => feature.default_level(release),
            };
            levels.insert(feature.name.to_owned(), level);
        }
        for feature in &FEATURES {
            let number = levels.get(feature.name).copied().unwrap_or(0);
            let level = feature.from_feature_level(number, self.unstable_enabled).map_err(BootstrapError)?;
            feature.validate_version(level, &levels).map_err(BootstrapError)?;
        }
        Ok((release, levels))
    }

    fn effective_release(&self) -> Result<MetadataVersion, BootstrapError> {
        let asked = match (self.features.get(METADATA_VERSION), self.release_version) {
            (Some(_), Some(_)) => {
                return Err(BootstrapError(
                    "Use --release-version instead of --feature metadata.version=X to avoid ambiguity."
                        .to_owned(),
                ));
            }
            (Some(level), None) => {
                MetadataVersion::from_feature_level(*level).map_err(|e| BootstrapError(e.to_string()))?
            }
            (None, Some(version)) => version,
            (None, None) if self.unstable_enabled => MetadataVersion::LATEST_TESTING,
            (None, None) => MetadataVersion::LATEST_PRODUCTION,
        };
        if !self.unstable_enabled && !asked.is_production() {
            return Err(BootstrapError(format!("metadata.version {asked} is not yet stable.")));
        }
        Ok(asked)
    }

    fn kraft_level(&self, asked: Option<i16>) -> Result<i16, BootstrapError> {
        match asked {
            Some(0) if self.has_dynamic_quorum => Err(BootstrapError(
                "Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags \
                 --standalone, --initial-controllers, or --no-initial-controllers is used. For dynamic controllers \
                 support, try removing the --feature flag for kraft.version."
                    .to_owned(),
            )),
            Some(level) if level != 0 && !self.has_dynamic_quorum => Err(BootstrapError(format!(
                "Cannot set kraft.version to {level} unless controller.quorum.voters is empty and one of the flags \
                 --standalone, --initial-controllers, or --no-initial-controllers is used. For dynamic controllers \
                 support, try using one of --standalone, --initial-controllers, or --no-initial-controllers and \
                 removing controller.quorum.voters."
            ))),
            Some(level) => Ok(level),
            None => Ok(i16::from(self.has_dynamic_quorum)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(bootstrap: &BootstrapMetadata) -> Vec<(String, i16)> {
        let level = |r: &VersionedRecord| match &r.record {
            MetadataRecord::FeatureLevelRecord(f) => (f.name.clone(), f.feature_level),
            other => panic!("{other:?}"),
        };
        bootstrap.records().iter().map(level).collect()
    }

    #[test]
    fn a_new_cluster_gets_the_records_of_the_reference() {
        let asked = FormatFeatures { has_dynamic_quorum: true, ..Default::default() };
        let (version, levels) = asked.effective_levels().unwrap();
        assert_eq!(levels.get(KRAFT_VERSION), Some(&1));
        let bootstrap = BootstrapMetadata::from_versions(version, &levels, "format command");
        let expected = [
            ("metadata.version", 33),
            ("eligible.leader.replicas.version", 1),
            ("group.version", 1),
            ("share.version", 2),
            ("streams.version", 1),
            ("transaction.version", 2),
        ];
        assert_eq!(names(&bootstrap), expected.map(|(n, l)| (n.to_owned(), l)));
        let read = BootstrapMetadata::from_records(bootstrap.records().to_vec(), "format command").unwrap();
        assert_eq!(read, bootstrap);
        assert_eq!(read.feature_level("share.version"), 2);
        assert_eq!(read.feature_level("no.such.feature"), 0);
    }

    #[test]
    fn what_cannot_be_formatted_is_refused_with_the_reference_message() {
        let check = |asked: FormatFeatures, expected: &str| {
            assert_eq!(asked.effective_levels().unwrap_err().to_string(), expected);
        };
        let features = |list: &[(&str, i16)]| list.iter().map(|(n, l)| ((*n).to_owned(), *l)).collect();
        check(
            FormatFeatures { features: features(&[("x.version", 1)]), ..Default::default() },
            "Unsupported feature: x.version. Supported features are: eligible.leader.replicas.version, \
             group.version, kraft.version, share.version, streams.version, transaction.version",
        );
        check(
            FormatFeatures { features: features(&[("group.version", 9)]), ..Default::default() },
            "No feature:group.version with feature level 9",
        );
        check(
            FormatFeatures { release_version: Some(MetadataVersion::IBP_4_5_IV0), ..Default::default() },
            "metadata.version 4.5-IV0 is not yet stable.",
        );
        check(
            FormatFeatures {
                release_version: Some(MetadataVersion::IBP_4_0_IV0),
                features: features(&[("eligible.leader.replicas.version", 1)]),
                ..Default::default()
            },
            "eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version level 23",
        );
        let error = FormatFeatures { features: features(&[("kraft.version", 1)]), ..Default::default() }
            .effective_levels()
            .unwrap_err();
        assert!(error.to_string().starts_with("Cannot set kraft.version to 1 unless"));
    }
}
