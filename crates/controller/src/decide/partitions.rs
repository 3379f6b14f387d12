//! CreatePartitions (KIP-195).

use std::collections::BTreeSet;

use metadata::VersionedRecord;
use protocol::ErrorCode;
use protocol::messages::create_partitions_request::CreatePartitionsTopic;
use protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};

use super::Decider;
use crate::api::{
    Access, ApiError, BoundedRecords, ControllerResult, MAX_RECORDS_PER_USER_OP, RequestContext, SeededRandom,
};

fn result(name: &str, error: &ApiError) -> CreatePartitionsTopicResult {
    CreatePartitionsTopicResult {
        name: name.to_owned(),
        error_code: error.code.code(),
        error_message: error.message.clone(),
    }
}

/// The answer that gives every topic the same error.
pub(crate) fn error_response(
    request: &CreatePartitionsRequest,
    error: &ApiError,
) -> CreatePartitionsResponse {
    CreatePartitionsResponse {
        results: request.topics.iter().map(|t| result(&t.name, error)).collect(),
        ..Default::default()
    }
}

impl Decider<'_> {
    pub(crate) fn create_partitions(
        &self,
        context: &RequestContext<'_>,
        request: &CreatePartitionsRequest,
    ) -> Result<ControllerResult<CreatePartitionsResponse>, ApiError> {
        let (mut unique, mut duplicates) = (BTreeSet::new(), BTreeSet::new());
        for topic in &request.topics {
            if !unique.insert(topic.name.as_str()) {
                duplicates.insert(topic.name.as_str());
            }
        }
        let duplicate = ApiError::new(ErrorCode::INVALID_REQUEST, "Duplicate topic name.");
        let mut results: Vec<_> = duplicates.iter().map(|n| result(n, &duplicate)).collect();
        let mut admitted = Vec::new();
        for topic in request.topics.iter().filter(|t| !duplicates.contains(t.name.as_str())) {
            if context.access.allowed(Access::AlterTopic(&topic.name)) {
                admitted.push(topic);
            } else {
                results.push(result(&topic.name, &ApiError::silent(ErrorCode::TOPIC_AUTHORIZATION_FAILED)));
            }
        }
        self.check_total_additional_partitions(&admitted)?;
        let mut random = SeededRandom::new(context.seed);
        let mut records = BoundedRecords::default();
        for topic in admitted {
            let created = self.create_topic_partitions(&mut random, topic);
            let error = match created.map(|new| records.extend(new)) {
                Ok(Ok(())) => ApiError::NONE,
                Ok(Err(_)) => ApiError::silent(ErrorCode::UNKNOWN_SERVER_ERROR),
                Err(error) => error,
            };
            results.push(result(&topic.name, &error));
        }
        let response = CreatePartitionsResponse { results, ..Default::default() };
        let decided = ControllerResult::atomic_of(records.into_vec(), response);
        Ok(if request.validate_only { decided.without_records() } else { decided })
    }

    fn check_total_additional_partitions(&self, topics: &[&CreatePartitionsTopic]) -> Result<(), ApiError> {
        let additional = topics.iter().filter_map(|t| {
            let existing = self.state.image.topics.topic_by_name(&t.name)?.partitions.len();
            usize::try_from(t.count).ok()?.checked_sub(existing)
        });
        if additional.sum::<usize>() > MAX_RECORDS_PER_USER_OP {
            return Err(ApiError::new(
                ErrorCode::POLICY_VIOLATION,
                "Excessively large number of additional partitions per request.",
            ));
        }
        Ok(())
    }

    fn create_topic_partitions(
        &self,
        random: &mut SeededRandom,
        request: &CreatePartitionsTopic,
    ) -> Result<Vec<VersionedRecord>, ApiError> {
        let Some(topic) = self.state.image.topics.topic_by_name(&request.name) else {
            return Err(ApiError::silent(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
        };
        let existing = topic.partitions.len();
        let invalid = |message| Err(ApiError::new(ErrorCode::INVALID_PARTITIONS, message));
        let wanted = usize::try_from(request.count).unwrap_or(0);
        if wanted == existing {
            return invalid(format!("Topic already has {existing} partition(s)."));
        }
        if wanted < existing {
            return invalid(format!(
                "The topic {} currently has {existing} partition(s); {} would not be an increase.",
                request.name, request.count
            ));
        }
        let additional = wanted - existing;
        let Some((_, first)) = topic.partitions.first() else {
            return Err(ApiError::silent(ErrorCode::UNKNOWN_SERVER_ERROR));
        };
        let factor = first.replicas.len();
        let refused = |message| ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message);
        let assignments = match &request.assignments {
            Some(assignments) if assignments.len() != additional => {
                return Err(refused(format!(
                    "Attempted to add {additional} additional partition(s), but only {} assignment(s) were specified.",
                    assignments.len()
                )));
            }
            Some(assignments) => assignments.iter().map(|a| a.broker_ids.clone()).collect(),
            None => {
                let factor =
                    i16::try_from(factor).map_err(|_| ApiError::silent(ErrorCode::UNKNOWN_SERVER_ERROR))?;
                self.place(random, additional, factor)?
            }
        };
        let mut records = Vec::with_capacity(additional);
        for (offset, replicas) in assignments.into_iter().enumerate() {
            let number = i32::try_from(existing + offset).unwrap_or(i32::MAX);
            if request.assignments.is_some() {
                self.validate_manual_assignment(&replicas, Some(factor))?;
            }
            let partition = self.new_partition(replicas).ok_or_else(|| {
                if request.assignments.is_some() {
                    refused(format!(
                        "All brokers specified in the manual partition assignment for partition {number} are fenced or \
                         in controlled shutdown."
                    ))
                } else {
                    ApiError::new(
                        ErrorCode::INVALID_REPLICATION_FACTOR,
                        format!(
                            "Unable to replicate the partition {factor} time(s): All brokers are currently fenced or in \
                             controlled shutdown."
                        ),
                    )
                }
            })?;
            records.push(self.partition_record(topic.id, number, &partition)?);
        }
        Ok(records)
    }
}
