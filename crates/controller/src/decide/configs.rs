//! AlterConfigs and IncrementalAlterConfigs (KIP-339), and what ELR asks of `min.insync.replicas` (KIP-966).
//!
//! Invariants: a resource's change is taken whole or not at all; AlterConfigs replaces the whole dynamic set.

use std::collections::{BTreeMap, BTreeSet};

use config::alter::{incremental_deltas, legacy_deltas, validate_alter};
use config::{AlterContext, ConfigChange, ConfigDelta, ConfigError, ResourceKind};
use metadata::VersionedRecord;
use metadata::image::{ConfigResource, resource_type};
use metadata::record::MetadataRecord;
use protocol::ErrorCode;
use protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, alter_configs_response, incremental_alter_configs_response,
};
use protocol::records::metadata::{ClearElrRecord, ConfigRecord};

use super::{Decider, MIN_INSYNC_REPLICAS};
use crate::api::{Access, ApiError, BoundedRecords, ControllerResult, RequestContext};

/// A resource of a request: what to do, or why it is refused before anything is looked at.
struct Parsed<T> {
    wanted: BTreeMap<ConfigResource, T>,
    refused: Vec<(i8, String, ApiError)>,
}

fn config_record(resource: &ConfigResource, name: &str, value: Option<String>) -> VersionedRecord {
    let record = ConfigRecord {
        resource_type: resource.resource_type,
        resource_name: resource.name.to_string(),
        name: name.to_owned(),
        value,
    };
    VersionedRecord::new(record, 0)
}

fn config_records(resource: &ConfigResource, deltas: Vec<ConfigDelta>) -> Vec<VersionedRecord> {
    deltas.into_iter().map(|delta| config_record(resource, &delta.name, delta.value)).collect()
}

fn kind(resource: &ConfigResource) -> Result<ResourceKind, ApiError> {
    let unknown = || ApiError::silent(ErrorCode::UNKNOWN_SERVER_ERROR);
    ResourceKind::from_id(resource.resource_type).ok_or_else(unknown)
}

impl From<ConfigError> for ApiError {
    fn from(error: ConfigError) -> Self {
        match ErrorCode(error.error_code()) {
            ErrorCode::UNKNOWN_SERVER_ERROR => ApiError::silent(ErrorCode::UNKNOWN_SERVER_ERROR),
            code => ApiError::new(code, error.message),
        }
    }
}

/// Resources of a request, without those of unknown types and those named twice.
fn parse<R, T>(
    context: &RequestContext<'_>,
    resources: &[R],
    key: impl Fn(&R) -> (i8, &str),
    value: impl Fn(&R) -> T,
) -> Parsed<T> {
    let mut parsed = Parsed { wanted: BTreeMap::new(), refused: Vec::new() };
    let mut duplicates = BTreeSet::new();
    for resource in resources {
        let (kind, name) = key(resource);
        if ResourceKind::from_id(kind).is_none() {
            let error =
                ApiError::new(ErrorCode::UNSUPPORTED_VERSION, format!("Unknown resource type {kind}."));
            parsed.refused.push((kind, name.to_owned(), error));
            continue;
        }
        let resource_key = ConfigResource::new(kind, name);
        if duplicates.contains(&resource_key) {
            continue;
        }
        if parsed.wanted.insert(resource_key.clone(), value(resource)).is_some() {
            parsed.wanted.remove(&resource_key);
            duplicates.insert(resource_key);
            let error = ApiError::new(ErrorCode::INVALID_REQUEST, "Duplicate resource.");
            parsed.refused.push((kind, name.to_owned(), error));
        }
    }
    let Parsed { wanted, refused } = &mut parsed;
    wanted.retain(|resource, _| {
        let allowed = context.access.allowed(Access::AlterConfigs(resource));
        if !allowed {
            let code = match resource.resource_type {
                resource_type::TOPIC => ErrorCode::TOPIC_AUTHORIZATION_FAILED,
                resource_type::GROUP => ErrorCode::GROUP_AUTHORIZATION_FAILED,
                _ => ErrorCode::CLUSTER_AUTHORIZATION_FAILED,
            };
            refused.push((resource.resource_type, resource.name.to_string(), ApiError::of(code)));
        }
        allowed
    });
    parsed
}

/// The answer that gives every resource the same error.
pub(crate) fn alter_error_response(request: &AlterConfigsRequest, error: &ApiError) -> AlterConfigsResponse {
    let results = request.resources.iter().map(|r| (r.resource_type, r.resource_name.clone(), error.clone()));
    alter_response(results)
}

/// The answer that gives every resource the same error.
pub(crate) fn incremental_error_response(
    request: &IncrementalAlterConfigsRequest,
    error: &ApiError,
) -> IncrementalAlterConfigsResponse {
    let results = request.resources.iter().map(|r| (r.resource_type, r.resource_name.clone(), error.clone()));
    incremental_response(results)
}

fn alter_response(results: impl Iterator<Item = (i8, String, ApiError)>) -> AlterConfigsResponse {
    let responses = results.map(|(resource_type, resource_name, error)| {
        alter_configs_response::AlterConfigsResourceResponse {
            error_code: error.code.code(),
            error_message: error.message,
            resource_type,
            resource_name,
        }
    });
    AlterConfigsResponse { responses: responses.collect(), ..Default::default() }
}

fn incremental_response(
    results: impl Iterator<Item = (i8, String, ApiError)>,
) -> IncrementalAlterConfigsResponse {
    let responses = results.map(|(resource_type, resource_name, error)| {
        incremental_alter_configs_response::AlterConfigsResourceResponse {
            error_code: error.code.code(),
            error_message: error.message,
            resource_type,
            resource_name,
        }
    });
    IncrementalAlterConfigsResponse { responses: responses.collect(), ..Default::default() }
}

fn answered(resource: &ConfigResource, error: ApiError) -> (i8, String, ApiError) {
    (resource.resource_type, resource.name.to_string(), error)
}

impl Decider<'_> {
    pub(crate) fn incremental_alter_configs(
        &self,
        context: &RequestContext<'_>,
        request: &IncrementalAlterConfigsRequest,
    ) -> Result<ControllerResult<IncrementalAlterConfigsResponse>, ApiError> {
        let parsed = parse(
            context,
            &request.resources,
            |r| (r.resource_type, &r.resource_name),
            |r| {
                let change = |name: &String, op, value: &Option<String>| ConfigChange {
                    name: name.clone(),
                    op,
                    value: value.clone(),
                };
                r.configs.iter().map(|c| change(&c.name, c.config_operation, &c.value)).collect::<Vec<_>>()
            },
        );
        let mut results = parsed.refused;
        let mut records = BoundedRecords::default();
        for (resource, changes) in parsed.wanted {
            let error = match self.incremental_alter_resource(&resource, &changes, false, context.forwarded) {
                Ok(new) => {
                    records.extend(new)?;
                    ApiError::NONE
                }
                Err(error) => error,
            };
            results.push(answered(&resource, error));
        }
        let clears = self.clear_elr_records(records.as_slice());
        records.extend(clears)?;
        let response = incremental_response(results.into_iter());
        let decided = ControllerResult::atomic_of(records.into_vec(), response);
        Ok(if request.validate_only { decided.without_records() } else { decided })
    }

    pub(crate) fn alter_configs(
        &self,
        context: &RequestContext<'_>,
        request: &AlterConfigsRequest,
    ) -> Result<ControllerResult<AlterConfigsResponse>, ApiError> {
        let parsed = parse(
            context,
            &request.resources,
            |r| (r.resource_type, &r.resource_name),
            |r| r.configs.iter().map(|c| (c.name.clone(), c.value.clone())).collect::<BTreeMap<_, _>>(),
        );
        let mut results = parsed.refused;
        let mut records = BoundedRecords::default();
        for (resource, values) in parsed.wanted {
            let error = match self.alter_resource(&resource, &values, context.forwarded) {
                Ok(new) => {
                    records.extend(new)?;
                    ApiError::NONE
                }
                Err(error) => error,
            };
            results.push(answered(&resource, error));
        }
        let clears = self.clear_elr_records(records.as_slice());
        records.extend(clears)?;
        let decided = ControllerResult::atomic_of(records.into_vec(), alter_response(results.into_iter()));
        Ok(if request.validate_only { decided.without_records() } else { decided })
    }

    /// The records of one resource's incremental changes; a resource that is being created need not exist.
    pub(crate) fn incremental_alter_resource(
        &self,
        resource: &ConfigResource,
        changes: &[ConfigChange],
        newly_created: bool,
        forwarded: bool,
    ) -> Result<Vec<VersionedRecord>, ApiError> {
        let current = self.state.image.configs.config_map(resource);
        let deltas = incremental_deltas(kind(resource)?, &current, changes)?;
        self.check_alteration(resource, &current, &deltas, newly_created, forwarded)?;
        Ok(config_records(resource, deltas))
    }

    fn alter_resource(
        &self,
        resource: &ConfigResource,
        values: &BTreeMap<String, Option<String>>,
        forwarded: bool,
    ) -> Result<Vec<VersionedRecord>, ApiError> {
        let current = self.state.image.configs.config_map(resource);
        let replacement = values.iter().filter_map(|(k, v)| Some((k.clone(), v.clone()?))).collect();
        let deltas = legacy_deltas(kind(resource)?, &current, &replacement);
        self.check_alteration(resource, &current, &deltas, false, forwarded)?;
        Ok(config_records(resource, deltas))
    }

    fn check_alteration(
        &self,
        resource: &ConfigResource,
        current: &BTreeMap<String, String>,
        deltas: &[ConfigDelta],
        newly_created: bool,
        forwarded: bool,
    ) -> Result<(), ApiError> {
        let context = AlterContext {
            elr_enabled: self.elr_enabled(),
            cordoned_log_dirs_supported: self.state.metadata_version().is_cordoned_log_dirs_supported(),
            forwarded,
        };
        let server = &self.settings.server;
        validate_alter(server, kind(resource)?, &resource.name, current, deltas, context)?;
        if newly_created { Ok(()) } else { self.check_existence(resource) }
    }

    fn check_existence(&self, resource: &ConfigResource) -> Result<(), ApiError> {
        let name = &*resource.name;
        match resource.resource_type {
            resource_type::BROKER if !name.is_empty() => {
                let Ok(id) = name.parse::<i32>() else {
                    let message = format!("Invalid broker name {name}");
                    return Err(ApiError::new(ErrorCode::INVALID_REQUEST, message));
                };
                let known = self.state.broker(id).is_some()
                    || self.settings.local.quorum_node_ids.contains(&id)
                    || self.state.image.cluster.controllers.contains_key(&id);
                if !known {
                    let message = format!("No node with id {id} found.");
                    return Err(ApiError::new(ErrorCode::BROKER_ID_NOT_REGISTERED, message));
                }
                Ok(())
            }
            resource_type::TOPIC if self.state.image.topics.id_of(name).is_none() => Err(ApiError::new(
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                format!("The topic '{name}' does not exist."),
            )),
            _ => Ok(()),
        }
    }

    /// A new `min.insync.replicas` makes the ELRs that were computed from the old one worthless (KIP-966).
    pub(crate) fn clear_elr_records(&self, records: &[VersionedRecord]) -> Vec<VersionedRecord> {
        if !self.elr_enabled() {
            return Vec::new();
        }
        let clear = |record: &VersionedRecord| match &record.record {
            MetadataRecord::ConfigRecord(r) if r.name == MIN_INSYNC_REPLICAS => {
                let is_topic = r.resource_type == resource_type::TOPIC;
                let topic_name = if is_topic { r.resource_name.clone() } else { String::new() };
                Some(VersionedRecord::new(ClearElrRecord { topic_name }, 0))
            }
            _ => None,
        };
        records.iter().filter_map(clear).collect()
    }

    /// What must be set before ELR is enabled: the cluster's `min.insync.replicas`, and no broker's own.
    pub(crate) fn elr_safety_records(&self) -> Vec<VersionedRecord> {
        let mut records = Vec::new();
        let cluster = ConfigResource::cluster_default();
        let has = |resource: &ConfigResource| {
            self.state.image.configs.get(resource).is_some_and(|c| c.contains_key(MIN_INSYNC_REPLICAS))
        };
        if !has(&cluster) {
            let value = self.settings.server.min_insync_replicas.to_string();
            records.push(config_record(&cluster, MIN_INSYNC_REPLICAS, Some(value)));
        }
        let brokers = self
            .state
            .image
            .configs
            .resources
            .keys()
            .filter(|r| r.resource_type == resource_type::BROKER && !r.name.is_empty() && has(r));
        records.extend(brokers.map(|broker| config_record(broker, MIN_INSYNC_REPLICAS, None)));
        records
    }
}
