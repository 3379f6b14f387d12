//! AlterPartitionReassignments and ListPartitionReassignments (KIP-455).

use std::collections::BTreeSet;

use metadata::image::TopicImage;
use metadata::{PartitionRegistration, VersionedRecord};
use protocol::ErrorCode;
use protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use protocol::messages::list_partition_reassignments_response::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use super::Decider;
use crate::api::{ApiError, BoundedRecords, ControllerResult};
use crate::partition_change::Election;
use crate::reassignment::{Reassignment, Revert};
use crate::state::ControllerState;

fn result(partition_index: i32, error: ApiError) -> ReassignablePartitionResponse {
    ReassignablePartitionResponse {
        partition_index,
        error_code: error.code.code(),
        error_message: error.message,
    }
}

/// The answer that gives every partition the same error.
pub(crate) fn error_response(
    request: &AlterPartitionReassignmentsRequest,
    error: &ApiError,
) -> AlterPartitionReassignmentsResponse {
    AlterPartitionReassignmentsResponse {
        error_code: error.code.code(),
        error_message: error.message.clone(),
        responses: request
            .topics
            .iter()
            .map(|t| ReassignableTopicResponse {
                name: t.name.clone(),
                partitions: t.partitions.iter().map(|p| result(p.partition_index, error.clone())).collect(),
            })
            .collect(),
        ..Default::default()
    }
}

fn ongoing(topic: &TopicImage, partitions: impl Iterator<Item = i32>) -> Option<OngoingTopicReassignment> {
    let partitions: Vec<_> = partitions
        .filter_map(|number| {
            let partition = topic.partitions.get(&number).filter(|p| p.is_reassigning())?;
            Some(OngoingPartitionReassignment {
                partition_index: number,
                replicas: partition.replicas.clone(),
                adding_replicas: partition.adding_replicas.clone(),
                removing_replicas: partition.removing_replicas.clone(),
            })
        })
        .collect();
    (!partitions.is_empty()).then(|| OngoingTopicReassignment { name: topic.name.to_string(), partitions })
}

/// The reassignments in progress as of a state.
pub(crate) fn list(
    state: &ControllerState,
    request: &ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let topics = match &request.topics {
        Some(wanted) => wanted
            .iter()
            .filter_map(|t| {
                let topic = state.image.topics.topic_by_name(&t.name)?;
                ongoing(topic, t.partition_indexes.iter().copied())
            })
            .collect(),
        None => {
            let ids: BTreeSet<_> = state.reassigning.iter().map(|(topic, _)| *topic).collect();
            let topics = ids.iter().filter_map(|id| state.image.topics.topic(id));
            topics.filter_map(|t| ongoing(t, t.partitions.keys().copied())).collect()
        }
    };
    ListPartitionReassignmentsResponse { topics, error_message: None, ..Default::default() }
}

impl Decider<'_> {
    pub(crate) fn alter_partition_reassignments(
        &self,
        request: &AlterPartitionReassignmentsRequest,
    ) -> ControllerResult<AlterPartitionReassignmentsResponse> {
        if request.topics.is_empty() {
            return ControllerResult::just(AlterPartitionReassignmentsResponse::default());
        }
        let allow_factor_change = request.allow_replication_factor_change;
        let mut response = AlterPartitionReassignmentsResponse {
            allow_replication_factor_change: allow_factor_change,
            error_message: None,
            ..Default::default()
        };
        let mut records = BoundedRecords::default();
        for topic in &request.topics {
            let mut partitions = Vec::new();
            for target in &topic.partitions {
                let index = target.partition_index;
                let changed = self.alter_reassignment(
                    &topic.name,
                    index,
                    target.replicas.as_deref(),
                    allow_factor_change,
                );
                let added = changed.map(|record| record.is_none_or(|r| records.push(r).is_ok()));
                let error = match added {
                    Ok(true) => ApiError::NONE,
                    Ok(false) => ApiError::silent(ErrorCode::UNKNOWN_SERVER_ERROR),
                    Err(error) => error,
                };
                partitions.push(result(index, error));
            }
            response.responses.push(ReassignableTopicResponse { name: topic.name.clone(), partitions });
        }
        ControllerResult::atomic_of(records.into_vec(), response)
    }

    fn alter_reassignment(
        &self,
        name: &str,
        index: i32,
        target: Option<&[i32]>,
        allow_factor_change: bool,
    ) -> Result<Option<VersionedRecord>, ApiError> {
        let unknown = |what| ApiError::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, what);
        let topic = self.state.image.topics.topic_by_name(name);
        let topic = topic.ok_or_else(|| unknown(format!("Unable to find a topic named {name}.")))?;
        let partition = topic.partitions.get(&index);
        let partition =
            partition.ok_or_else(|| unknown(format!("Unable to find partition {name}:{index}.")))?;
        match target {
            None => self.cancel_reassignment(topic, index, partition),
            Some(target) => self.change_reassignment(topic, index, partition, target, allow_factor_change),
        }
    }

    fn cancel_reassignment(
        &self,
        topic: &TopicImage,
        index: i32,
        partition: &PartitionRegistration,
    ) -> Result<Option<VersionedRecord>, ApiError> {
        if !partition.is_reassigning() {
            return Err(ApiError::silent(ErrorCode::NO_REASSIGNMENT_IN_PROGRESS));
        }
        let invalid = |message: String| ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message);
        let revert = Revert::of(partition).ok_or_else(|| {
            invalid("Invalid replica assignment: addingReplicas contains all replicas.".to_owned())
        })?;
        let may_be_unclean = self.unclean_election_enabled(&topic.name);
        if revert.unclean && !may_be_unclean {
            return Err(invalid(format!(
                "Unable to revert partition assignment for {}:{index} because it would require an unclean leader \
                 election.",
                topic.name
            )));
        }
        Ok(self.change_partition(topic, index, partition, |builder| {
            if may_be_unclean {
                builder.election = Election::Unclean;
            }
            builder.isr = revert.to.isr;
            builder.replicas = revert.to.replicas;
            builder.removing.clear();
            builder.adding.clear();
        }))
    }

    fn change_reassignment(
        &self,
        topic: &TopicImage,
        index: i32,
        partition: &PartitionRegistration,
        target: &[i32],
        allow_factor_change: bool,
    ) -> Result<Option<VersionedRecord>, ApiError> {
        self.validate_manual_assignment(target, None)?;
        if !allow_factor_change {
            let current = current_replication_factor(partition);
            if current != target.len() {
                let message = format!("The replication factor is changed from {current} to {}", target.len());
                return Err(ApiError::new(ErrorCode::INVALID_REPLICATION_FACTOR, message));
            }
        }
        let reassignment = Reassignment::between(&partition.replicas, target);
        Ok(self.change_partition(topic, index, partition, |builder| {
            builder.replicas = reassignment.replicas;
            if !reassignment.removing.is_empty() {
                builder.removing = reassignment.removing;
            }
            if !reassignment.adding.is_empty() {
                builder.adding = reassignment.adding;
            }
        }))
    }
}

/// The replication factor that a reassignment in progress is heading for, or the current one.
fn current_replication_factor(partition: &PartitionRegistration) -> usize {
    if !partition.is_reassigning() {
        return partition.replicas.len();
    }
    let mut set: BTreeSet<i32> =
        partition.replicas.iter().chain(&partition.adding_replicas).copied().collect();
    partition.removing_replicas.iter().for_each(|r| {
        set.remove(r);
    });
    set.len()
}
