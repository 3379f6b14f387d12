//! CreateTopics: names, collisions, limits, assignments, configurations (KIP-4, KIP-525).
//!
//! Invariants: a topic is created whole or not at all; one failing topic does not touch the others; names collide
//! only with topics that exist.

use std::collections::{BTreeMap, BTreeSet};

use config::ConfigChange;
use metadata::image::ConfigResource;
use metadata::{PartitionRegistration, VersionedRecord};
use protocol::messages::create_topics_request::CreatableTopic;
use protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};
use protocol::records::metadata::TopicRecord;
use protocol::{ErrorCode, Uuid};

use super::Decider;
use crate::api::{
    Access, ApiError, BoundedRecords, ControllerResult, MAX_RECORDS_PER_USER_OP, RequestContext, SeededRandom,
};
use crate::topic_name;

/// A topic that is about to exist.
struct NewTopic {
    id: Uuid,
    partitions: BTreeMap<i32, PartitionRegistration>,
}

fn error_result(name: &str, error: &ApiError) -> CreatableTopicResult {
    CreatableTopicResult {
        name: name.to_owned(),
        error_code: error.code.code(),
        error_message: error.message.clone(),
        ..Default::default()
    }
}

/// The answer that gives every topic the same error.
pub(crate) fn error_response(request: &CreateTopicsRequest, error: &ApiError) -> CreateTopicsResponse {
    CreateTopicsResponse {
        topics: request.topics.iter().map(|t| error_result(&t.name, error)).collect(),
        ..Default::default()
    }
}

impl Decider<'_> {
    pub(crate) fn create_topics(
        &self,
        context: &RequestContext<'_>,
        request: &CreateTopicsRequest,
    ) -> Result<ControllerResult<CreateTopicsResponse>, ApiError> {
        let (mut unique, mut duplicates) = (BTreeSet::new(), BTreeSet::new());
        for topic in &request.topics {
            if !unique.insert(topic.name.as_str()) {
                duplicates.insert(topic.name.as_str());
            }
        }
        let may_create_any = context.access.allowed(Access::CreateAnyTopic);
        let is_internal = |name: &str| name == topic_name::CLUSTER_METADATA_TOPIC;
        let may_create = |name: &str| may_create_any || context.access.allowed(Access::CreateTopic(name));
        let admitted: Vec<&CreatableTopic> = request
            .topics
            .iter()
            .filter(|t| !duplicates.contains(t.name.as_str()) && !is_internal(&t.name) && may_create(&t.name))
            .collect();
        let mut result = self.create_admitted_topics(context, &admitted)?;
        if request.validate_only {
            result.records.clear();
        }
        let refused = |name: &str, code, message: &str| error_result(name, &ApiError::new(code, message));
        let topics = &mut result.response.topics;
        for name in &duplicates {
            topics.push(refused(name, ErrorCode::INVALID_REQUEST, "Duplicate topic name."));
        }
        for name in unique.iter().filter(|n| !duplicates.contains(**n)) {
            if is_internal(name) {
                topics.push(refused(
                    name,
                    ErrorCode::INVALID_REQUEST,
                    "Creation of internal topic __cluster_metadata is prohibited.",
                ));
            } else if !may_create(name) {
                let error = ApiError {
                    code: ErrorCode::TOPIC_AUTHORIZATION_FAILED,
                    message: Some("Authorization failed.".to_owned()),
                };
                topics.push(error_result(name, &error));
            }
        }
        Ok(result)
    }

    fn create_admitted_topics(
        &self,
        context: &RequestContext<'_>,
        topics: &[&CreatableTopic],
    ) -> Result<ControllerResult<CreateTopicsResponse>, ApiError> {
        self.check_total_partitions(topics)?;
        let mut random = SeededRandom::new(context.seed);
        let mut records = BoundedRecords::default();
        let mut response = CreateTopicsResponse::default();
        for topic in topics {
            let result = match self.create_topic(context, &mut random, topic, &mut records)? {
                Ok(result) => result,
                Err(error) => error_result(&topic.name, &error),
            };
            response.topics.push(result);
        }
        Ok(ControllerResult::atomic_of(records.into_vec(), response))
    }

    fn check_total_partitions(&self, topics: &[&CreatableTopic]) -> Result<(), ApiError> {
        let mut total = 0usize;
        for topic in topics {
            total += if !topic.assignments.is_empty() {
                topic.assignments.len()
            } else if topic.num_partitions == -1 {
                usize::try_from(self.settings.server.num_partitions).unwrap_or(0)
            } else {
                usize::try_from(topic.num_partitions).unwrap_or(0)
            };
            if total > MAX_RECORDS_PER_USER_OP {
                return Err(ApiError::new(
                    ErrorCode::POLICY_VIOLATION,
                    "Excessively large number of partitions per request.",
                ));
            }
        }
        Ok(())
    }

    fn check_name(&self, name: &str) -> Result<(), ApiError> {
        if self.state.image.topics.id_of(name).is_some() {
            let message = format!("Topic '{name}' already exists.");
            return Err(ApiError::new(ErrorCode::TOPIC_ALREADY_EXISTS, message));
        }
        if topic_name::has_collision_chars(name) {
            let unified = topic_name::unify_collision_chars(name);
            let first = self.state.collision_names.iter_from(&(unified.clone(), String::new())).next();
            if let Some((_, existing)) = first.filter(|(u, _)| *u == unified) {
                let message = format!("Topic '{name}' collides with existing topic: {existing}");
                return Err(ApiError::new(ErrorCode::INVALID_TOPIC_EXCEPTION, message));
            }
        }
        topic_name::validate(name).map_err(|m| ApiError::new(ErrorCode::INVALID_TOPIC_EXCEPTION, m))
    }

    /// One topic. The outer error ends the whole request.
    fn create_topic(
        &self,
        context: &RequestContext<'_>,
        random: &mut SeededRandom,
        topic: &CreatableTopic,
        records: &mut BoundedRecords,
    ) -> Result<Result<CreatableTopicResult, ApiError>, ApiError> {
        let checked = self.check_name(&topic.name).and_then(|()| self.creation_configs(context, topic));
        let (configs, config_records) = match checked {
            Ok(checked) => checked,
            Err(error) => return Ok(Err(error)),
        };
        let partitions = match self.new_partitions(random, topic) {
            Ok(partitions) => partitions,
            Err(error) => return Ok(Err(error)),
        };
        let new = NewTopic { id: random.uuid(), partitions };
        records.push(VersionedRecord::new(TopicRecord { name: topic.name.clone(), topic_id: new.id }, 0))?;
        records.extend(config_records)?;
        for (number, partition) in &new.partitions {
            records.push(self.partition_record(new.id, *number, partition)?)?;
        }
        Ok(Ok(self.created(context, &topic.name, &new, &configs)))
    }

    fn creation_configs(
        &self,
        context: &RequestContext<'_>,
        topic: &CreatableTopic,
    ) -> Result<(BTreeMap<String, String>, Vec<VersionedRecord>), ApiError> {
        let nulls: Vec<&str> =
            topic.configs.iter().filter(|c| c.value.is_none()).map(|c| c.name.as_str()).collect();
        if !nulls.is_empty() {
            let message = format!("Null value not supported for topic configs: {}", nulls.join(","));
            return Err(ApiError::new(ErrorCode::INVALID_CONFIG, message));
        }
        let values: BTreeMap<String, String> =
            topic.configs.iter().filter_map(|c| Some((c.name.clone(), c.value.clone()?))).collect();
        if values.is_empty() {
            return Ok((values, Vec::new()));
        }
        let set = |(name, value): (&String, &String)| ConfigChange {
            name: name.clone(),
            op: config::AlterOp::Set as i8,
            value: Some(value.clone()),
        };
        let changes: Vec<ConfigChange> = values.iter().map(set).collect();
        let resource = ConfigResource::topic(&topic.name);
        let mut config_records =
            self.incremental_alter_resource(&resource, &changes, true, context.forwarded)?;
        let clears = self.clear_elr_records(&config_records);
        config_records.extend(clears);
        Ok((values, config_records))
    }

    fn new_partitions(
        &self,
        random: &mut SeededRandom,
        topic: &CreatableTopic,
    ) -> Result<BTreeMap<i32, PartitionRegistration>, ApiError> {
        if topic.assignments.is_empty() {
            self.placed_partitions(random, topic)
        } else {
            self.assigned_partitions(topic)
        }
    }

    fn assigned_partitions(
        &self,
        topic: &CreatableTopic,
    ) -> Result<BTreeMap<i32, PartitionRegistration>, ApiError> {
        let unset = |what: &str| {
            let message =
                format!("A manual partition assignment was specified, but {what} was not set to -1.");
            Err(ApiError::new(ErrorCode::INVALID_REQUEST, message))
        };
        if topic.replication_factor != -1 {
            return unset("replication factor");
        }
        if topic.num_partitions != -1 {
            return unset("numPartitions");
        }
        let invalid = |message| ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message);
        let mut partitions = BTreeMap::new();
        let mut factor = None;
        for assignment in &topic.assignments {
            let index = assignment.partition_index;
            if partitions.contains_key(&index) {
                let message = format!("Found multiple manual partition assignments for partition {index}");
                return Err(invalid(message));
            }
            self.validate_manual_assignment(&assignment.broker_ids, factor)?;
            factor = Some(assignment.broker_ids.len());
            let partition = self.new_partition(assignment.broker_ids.clone()).ok_or_else(|| {
                invalid(format!(
                    "All brokers specified in the manual partition assignment for partition {index} are fenced or in \
                     controlled shutdown."
                ))
            })?;
            partitions.insert(index, partition);
        }
        if partitions.keys().copied().ne((0..).take(partitions.len())) {
            return Err(invalid("partitions should be a consecutive 0-based integer sequence".to_owned()));
        }
        Ok(partitions)
    }

    fn placed_partitions(
        &self,
        random: &mut SeededRandom,
        topic: &CreatableTopic,
    ) -> Result<BTreeMap<i32, PartitionRegistration>, ApiError> {
        if topic.replication_factor < -1 || topic.replication_factor == 0 {
            return Err(ApiError::new(
                ErrorCode::INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            ));
        }
        if topic.num_partitions < -1 || topic.num_partitions == 0 {
            return Err(ApiError::new(
                ErrorCode::INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            ));
        }
        let or_default = |value, default| if value == -1 { default } else { value };
        let count = or_default(topic.num_partitions, self.settings.server.num_partitions);
        let factor = match topic.replication_factor {
            -1 => self.settings.default_replication_factor(),
            factor => factor,
        };
        let unable = |why: &str| {
            let message = format!("Unable to replicate the partition {factor} time(s): {why}");
            ApiError::new(ErrorCode::INVALID_REPLICATION_FACTOR, message)
        };
        let placed = self.place(random, usize::try_from(count).unwrap_or(0), factor);
        let placed = placed.map_err(|e| unable(e.message.as_deref().unwrap_or_default()))?;
        let mut partitions = BTreeMap::new();
        for (number, replicas) in (0..).zip(placed) {
            let partition = self.new_partition(replicas);
            let dead = || unable("All brokers are currently fenced or in controlled shutdown.");
            partitions.insert(number, partition.ok_or_else(dead)?);
        }
        Ok(partitions)
    }

    fn created(
        &self,
        context: &RequestContext<'_>,
        name: &str,
        new: &NewTopic,
        configs: &BTreeMap<String, String>,
    ) -> CreatableTopicResult {
        let mut result = CreatableTopicResult {
            name: name.to_owned(),
            topic_id: new.id,
            error_message: None,
            ..Default::default()
        };
        if !context.access.allowed(Access::DescribeTopicConfigs(name)) {
            result.topic_config_error_code = ErrorCode::TOPIC_AUTHORIZATION_FAILED.code();
            return result;
        }
        let entries = self.with_topic_configs(configs, |layers| layers.all());
        let entries = entries.into_iter().map(|c| CreatableTopicConfigs {
            name: c.name.to_owned(),
            value: c.value.filter(|_| !c.sensitive),
            read_only: false,
            config_source: c.source.id(),
            is_sensitive: c.sensitive,
        });
        result.configs = Some(entries.collect());
        result.num_partitions = i32::try_from(new.partitions.len()).unwrap_or(i32::MAX);
        let replicas = new.partitions.values().next().map_or(0, |p| p.replicas.len());
        result.replication_factor = i16::try_from(replicas).unwrap_or(i16::MAX);
        result
    }
}
