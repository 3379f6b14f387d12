//! The finalized features. `kraft.version` is not among them: it lives in raft's control records.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::records::metadata::FeatureLevelRecord;

use super::{ReplayError, WriteOptions};
use crate::feature::{ELIGIBLE_LEADER_REPLICAS_VERSION, KRAFT_VERSION};
use crate::record::VersionedRecord;
use crate::version::{METADATA_VERSION, MetadataVersion};

/// The finalized features.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeaturesImage {
    /// `metadata.version`; `None` before the first record of the log.
    pub metadata_version: Option<MetadataVersion>,
    /// All other features with a level above 0.
    pub finalized_versions: Arc<BTreeMap<String, i16>>,
}

impl FeaturesImage {
    /// The level of a feature other than `metadata.version`; 0 when it is not finalized.
    pub fn level(&self, name: &str) -> i16 {
        self.finalized_versions.get(name).copied().unwrap_or(0)
    }

    /// Whether eligible leader replicas are in use (KIP-966).
    pub fn is_elr_enabled(&self) -> bool {
        self.level(ELIGIBLE_LEADER_REPLICAS_VERSION) >= 1
    }

    /// All levels with `metadata.version`, as ApiVersions lists them.
    pub fn all_levels(&self) -> BTreeMap<String, i16> {
        let mut all = BTreeMap::clone(&self.finalized_versions);
        if let Some(version) = self.metadata_version {
            all.insert(METADATA_VERSION.to_owned(), version.feature_level());
        }
        all
    }

    pub(super) fn replay(&mut self, record: &FeatureLevelRecord) -> Result<(), ReplayError> {
        let level = record.feature_level;
        if record.name == METADATA_VERSION {
            let version = MetadataVersion::from_feature_level(level)
                .map_err(|_| ReplayError::UnsupportedMetadataVersion(level))?;
            self.metadata_version = Some(version);
        } else if record.name != KRAFT_VERSION {
            let versions = Arc::make_mut(&mut self.finalized_versions);
            if level == 0 {
                versions.remove(&record.name);
            } else {
                versions.insert(record.name.clone(), level);
            }
        }
        Ok(())
    }

    pub(super) fn write(&self, options: WriteOptions, out: &mut Vec<VersionedRecord>) {
        let first = (METADATA_VERSION.to_owned(), options.metadata_version.feature_level());
        let rest = self.finalized_versions.iter().map(|(n, l)| (n.clone(), *l));
        for (name, feature_level) in std::iter::once(first).chain(rest) {
            out.push(VersionedRecord::new(FeatureLevelRecord { name, feature_level }, 0));
        }
    }
}
