//! UpdateFeatures (KIP-584, KIP-1022): which levels a cluster may move to, and what must be written with them.

use std::collections::BTreeMap;

use metadata::feature::{ELIGIBLE_LEADER_REPLICAS_VERSION, Feature, KRAFT_VERSION, VersionRange};
use metadata::version::METADATA_VERSION;
use metadata::{MetadataVersion, VersionedRecord};
use protocol::ErrorCode;
use protocol::messages::update_features_response::UpdatableFeatureResult;
use protocol::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};
use protocol::records::metadata::{FeatureLevelRecord, NoOpRecord};

use super::Decider;
use crate::api::{ApiError, ControllerResult};

/// The last UpdateFeatures version whose answer lists every feature.
const LAST_WITH_RESULTS: i16 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UpgradeType {
    Unknown,
    Upgrade,
    SafeDowngrade,
    UnsafeDowngrade,
}

impl UpgradeType {
    fn from_code(code: i8) -> Self {
        match code {
            1 => Self::Upgrade,
            2 => Self::SafeDowngrade,
            3 => Self::UnsafeDowngrade,
            _ => Self::Unknown,
        }
    }
}

fn invalid_update(feature: &str, level: i16, message: &str) -> ApiError {
    ApiError::new(
        ErrorCode::INVALID_UPDATE_VERSION,
        format!("Invalid update version {level} for feature {feature}. {message}"),
    )
}

fn level_record(name: &str, feature_level: i16) -> VersionedRecord {
    VersionedRecord::new(FeatureLevelRecord { name: name.to_owned(), feature_level }, 0)
}

fn reason_not_supported(level: i16, what: &str, range: VersionRange) -> Option<String> {
    if range.contains(level) {
        None
    } else if range.max == 0 {
        Some(format!("{what} does not support this feature."))
    } else {
        Some(format!("{what} only supports versions {range}"))
    }
}

/// The answer to a request that fails as a whole.
pub(crate) fn error_response(error: &ApiError) -> UpdateFeaturesResponse {
    UpdateFeaturesResponse {
        error_code: error.code.code(),
        error_message: error.message.clone(),
        ..Default::default()
    }
}

impl Decider<'_> {
    pub(crate) fn update_features(
        &self,
        request: &UpdateFeaturesRequest,
        api_version: i16,
    ) -> ControllerResult<UpdateFeaturesResponse> {
        let updates: BTreeMap<String, (i16, UpgradeType)> = request
            .feature_updates
            .iter()
            .map(|u| (u.feature.clone(), (u.max_version_level, UpgradeType::from_code(u.upgrade_type))))
            .collect();
        let records = match self.feature_records(&updates) {
            Ok(records) => records,
            Err(error) => {
                let message = format!(
                    "The update failed for all features since the following feature had an error: {}",
                    error.message.as_deref().unwrap_or("null")
                );
                let error = ApiError { code: error.code, message: Some(message) };
                return ControllerResult::just(error_response(&error));
            }
        };
        let mut response = UpdateFeaturesResponse { error_message: None, ..Default::default() };
        if api_version <= LAST_WITH_RESULTS {
            let result = |feature: &str| UpdatableFeatureResult {
                feature: feature.to_owned(),
                error_code: ErrorCode::NONE.code(),
                error_message: Some(ErrorCode::NONE.message().to_owned()),
            };
            response.results = request.feature_updates.iter().map(|u| result(&u.feature)).collect();
        }
        if request.validate_only {
            return ControllerResult::just(response);
        }
        let enables_elr = updates.get(ELIGIBLE_LEADER_REPLICAS_VERSION).is_some_and(|(level, _)| *level > 0);
        let mut all = if enables_elr { self.elr_safety_records() } else { Vec::new() };
        all.extend(records);
        ControllerResult::atomic_of(all, response)
    }

    fn feature_records(
        &self,
        updates: &BTreeMap<String, (i16, UpgradeType)>,
    ) -> Result<Vec<VersionedRecord>, ApiError> {
        let mut proposed = self.state.image.features.all_levels();
        proposed.extend(updates.iter().map(|(name, (level, _))| (name.clone(), *level)));
        let mut records = Vec::new();
        for (name, (level, upgrade)) in updates {
            records.extend(self.feature_record(name, *level, *upgrade, &proposed)?);
        }
        Ok(records)
    }

    fn feature_record(
        &self,
        name: &str,
        level: i16,
        upgrade: UpgradeType,
        proposed: &BTreeMap<String, i16>,
    ) -> Result<Option<VersionedRecord>, ApiError> {
        let invalid = |message: &str| Err(invalid_update(name, level, message));
        if upgrade == UpgradeType::Unknown {
            return invalid("The controller does not support the given upgrade type.");
        }
        let current = match name {
            METADATA_VERSION => self.state.metadata_version().feature_level(),
            KRAFT_VERSION => self.kraft_version,
            _ => self.state.image.features.level(name),
        };
        if level < 0 {
            return invalid("A feature version cannot be less than 0.");
        }
        if let Some(reason) = self.reason_feature_not_supported(name, level) {
            return invalid(&reason);
        }
        if level < current && upgrade == UpgradeType::Upgrade {
            return invalid(
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe \
                 downgrade.",
            );
        }
        if level > current && upgrade != UpgradeType::Upgrade {
            return invalid("Can't downgrade to a newer version.");
        }
        match name {
            METADATA_VERSION => self.metadata_version_record(level, upgrade).map(Some),
            KRAFT_VERSION => self.kraft_version_record(level, upgrade),
            _ => {
                let feature = Feature::from_name(name);
                let feature = feature
                    .ok_or_else(|| invalid_update(name, level, &format!("Feature {name} not found.")))?;
                let known = feature.from_feature_level(level, true);
                known
                    .and_then(|l| feature.validate_version(l, proposed))
                    .map_err(|m| invalid_update(name, level, &m))?;
                Ok(Some(level_record(name, level)))
            }
        }
    }

    /// `kraft.version` is raft's to raise; here only what needs no raise is answered.
    fn kraft_version_record(
        &self,
        level: i16,
        upgrade: UpgradeType,
    ) -> Result<Option<VersionedRecord>, ApiError> {
        if level == self.kraft_version {
            let record = VersionedRecord::new(NoOpRecord::default(), 0);
            return Ok((upgrade == UpgradeType::Upgrade).then_some(record));
        }
        if level < self.kraft_version {
            return Err(invalid_update(KRAFT_VERSION, level, "Can't downgrade the version of this feature."));
        }
        Err(ApiError::new(
            ErrorCode::UNSUPPORTED_VERSION,
            "kraft.version cannot be raised by this release; format the quorum with --standalone or \
             --initial-controllers instead.",
        ))
    }

    fn metadata_version_record(&self, level: i16, upgrade: UpgradeType) -> Result<VersionedRecord, ApiError> {
        let current = self.state.metadata_version();
        let Ok(target) = MetadataVersion::from_feature_level(level) else {
            return Err(ApiError::new(
                ErrorCode::INVALID_UPDATE_VERSION,
                format!(
                    "Invalid metadata.version {level}. Valid versions are from {} to {}.",
                    MetadataVersion::MINIMUM.feature_level(),
                    MetadataVersion::LATEST_TESTING.feature_level()
                ),
            ));
        };
        if target < current && MetadataVersion::metadata_changed_between(current, target) {
            let why = if upgrade == UpgradeType::UnsafeDowngrade {
                "Unsafe metadata downgrade is not supported in this version."
            } else {
                "Refusing to perform the requested downgrade because it might delete metadata information."
            };
            return Err(ApiError::new(
                ErrorCode::INVALID_UPDATE_VERSION,
                format!(
                    "Unsupported metadata.version downgrade from {} to {level}. {why}",
                    current.feature_level()
                ),
            ));
        }
        Ok(level_record(METADATA_VERSION, level))
    }

    fn reason_feature_not_supported(&self, name: &str, level: i16) -> Option<String> {
        let local = &self.settings.local;
        let range = |supported: &BTreeMap<String, VersionRange>| {
            supported.get(name).copied().unwrap_or(VersionRange::DISABLED)
        };
        let own = format!("Local controller {}", local.node_id);
        if let Some(reason) = reason_not_supported(level, &own, local.range(name)) {
            return Some(reason);
        }
        for broker in self.state.image.cluster.brokers.values() {
            let what = format!("Broker {}", broker.id);
            if let Some(reason) = reason_not_supported(level, &what, range(&broker.supported_features)) {
                return Some(reason);
            }
        }
        if !self.state.metadata_version().is_controller_registration_supported() {
            return None;
        }
        let controllers = &self.state.image.cluster.controllers;
        for controller in controllers.values().filter(|c| c.id != local.node_id) {
            let what = format!("Controller {}", controller.id);
            if let Some(reason) = reason_not_supported(level, &what, range(&controller.supported_features)) {
                return Some(reason);
            }
        }
        let missing =
            local.quorum_node_ids.iter().find(|id| **id != local.node_id && !controllers.contains_key(id));
        missing.map(|id| format!("controller {id} has not registered, and may not support this feature"))
    }
}
