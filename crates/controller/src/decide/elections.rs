//! ElectLeaders, and the elections that the controller holds by itself: back to preferred leaders, and unclean ones
//! where they are enabled (KIP-460).

use metadata::VersionedRecord;
use protocol::ErrorCode;
use protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use protocol::messages::{ElectLeadersRequest, ElectLeadersResponse};

use super::Decider;
use crate::api::{ApiError, BoundedRecords, ControllerResult};
use crate::partition_change::Election;

/// How many elections one periodic task holds before it lets others work.
pub(crate) const MAX_ELECTIONS_PER_IMBALANCE: usize = 1_000;

const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;

/// The answer that gives every partition the same error.
pub(crate) fn error_response(request: &ElectLeadersRequest, error: &ApiError) -> ElectLeadersResponse {
    let topics = request.topic_partitions.as_deref().unwrap_or_default();
    let result = |partition: &i32| PartitionResult {
        partition_id: *partition,
        error_code: error.code.code(),
        error_message: error.message.clone(),
    };
    ElectLeadersResponse {
        error_code: error.code.code(),
        replica_election_results: topics
            .iter()
            .map(|t| ReplicaElectionResult {
                topic: t.topic.clone(),
                partition_result: t.partitions.iter().map(result).collect(),
            })
            .collect(),
        ..Default::default()
    }
}

impl Decider<'_> {
    pub(crate) fn elect_leaders(
        &self,
        request: &ElectLeadersRequest,
    ) -> Result<ControllerResult<ElectLeadersResponse>, ApiError> {
        if request.topic_partitions.as_ref().is_some_and(Vec::is_empty) {
            return Ok(ControllerResult::just(ElectLeadersResponse::default()));
        }
        let election = match request.election_type {
            PREFERRED => Election::Preferred,
            UNCLEAN => Election::Unclean,
            other => {
                let message = format!("Unknown election type {other}");
                return Err(ApiError::new(ErrorCode::INVALID_REQUEST, message));
            }
        };
        let wanted: Vec<(String, Vec<i32>)> = match &request.topic_partitions {
            Some(topics) => topics.iter().map(|t| (t.topic.clone(), t.partitions.clone())).collect(),
            None => {
                let all = self.state.image.topics.iter_by_name();
                all.map(|t| (t.name.to_string(), t.partitions.keys().copied().collect())).collect()
            }
        };
        let mut records = BoundedRecords::default();
        let mut response = ElectLeadersResponse::default();
        for (topic, partitions) in wanted {
            let mut partition_result = Vec::new();
            for partition_id in partitions {
                let error = match self.elect_leader(&topic, partition_id, election) {
                    Ok(record) => {
                        records.push(record)?;
                        ApiError::NONE
                    }
                    Err(error) => error,
                };
                // Who asks for all partitions is told only of those where there was something to elect.
                if request.topic_partitions.is_none() && error.code == ErrorCode::ELECTION_NOT_NEEDED {
                    continue;
                }
                partition_result.push(PartitionResult {
                    partition_id,
                    error_code: error.code.code(),
                    error_message: error.message,
                });
            }
            response.replica_election_results.push(ReplicaElectionResult { topic, partition_result });
        }
        Ok(ControllerResult::of(records.into_vec(), response))
    }

    fn elect_leader(
        &self,
        topic_name: &str,
        partition_id: i32,
        election: Election,
    ) -> Result<VersionedRecord, ApiError> {
        let unknown = |what| Err(ApiError::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, what));
        let Some(topic) = self.state.image.topics.topic_by_name(topic_name) else {
            return unknown(format!("No such topic as {topic_name}"));
        };
        let Some(partition) = topic.partitions.get(&partition_id) else {
            return unknown(format!("No such partition as {topic_name}-{partition_id}"));
        };
        let not_needed = match election {
            Election::Preferred => partition.has_preferred_leader(),
            _ => partition.has_leader(),
        };
        if not_needed {
            return Err(ApiError::of(ErrorCode::ELECTION_NOT_NEEDED));
        }
        let record = self.change_partition(topic, partition_id, partition, |b| b.election = election);
        record.ok_or_else(|| {
            ApiError::of(match election {
                Election::Preferred => ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE,
                _ => ErrorCode::ELIGIBLE_LEADERS_NOT_AVAILABLE,
            })
        })
    }

    /// Moves leaderships back to preferred replicas; the response is whether there may be more to do at once.
    pub(crate) fn balance_partition_leaders(&self) -> ControllerResult<bool> {
        let mut records = Vec::new();
        for (topic_id, partition_id) in self.state.imbalanced.iter() {
            if records.len() >= MAX_ELECTIONS_PER_IMBALANCE {
                break;
            }
            let Some(topic) = self.state.image.topics.topic(topic_id) else { continue };
            let Some(partition) = topic.partitions.get(partition_id) else { continue };
            records.extend(
                self.change_partition(topic, *partition_id, partition, |b| b.election = Election::Preferred),
            );
        }
        let more = records.len() >= MAX_ELECTIONS_PER_IMBALANCE;
        ControllerResult::of(records, more)
    }

    /// Elects uncleanly where there is no leader and the topic allows it.
    pub(crate) fn elect_unclean_leaders(&self) -> ControllerResult<bool> {
        let mut records = Vec::new();
        for (topic_id, partition_id) in self.state.partitions_with_no_leader() {
            if records.len() >= MAX_ELECTIONS_PER_IMBALANCE {
                break;
            }
            let Some(topic) = self.state.image.topics.topic(&topic_id) else { continue };
            if self.unclean_election_enabled(&topic.name) {
                records.extend(self.elect_leader(&topic.name, partition_id, Election::Unclean).ok());
            }
        }
        let more = records.len() >= MAX_ELECTIONS_PER_IMBALANCE;
        ControllerResult::of(records, more)
    }
}
