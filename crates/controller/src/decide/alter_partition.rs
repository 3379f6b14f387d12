//! AlterPartition: a leader proposes its ISR (KIP-497, KIP-841, KIP-903).

use metadata::image::TopicImage;
use metadata::partition::NO_LEADER_CHANGE;
use metadata::record::MetadataRecord;
use metadata::{LeaderRecoveryState, PartitionRegistration, VersionedRecord};
use protocol::messages::alter_partition_request::{BrokerState, PartitionData};
use protocol::messages::{AlterPartitionRequest, AlterPartitionResponse, alter_partition_response};
use protocol::{ErrorCode, Uuid};

use super::Decider;
use crate::api::{ApiError, ControllerResult};
use crate::partition_change::Election;

/// The first version that names the broker epochs of the ISR (KIP-903).
const ISR_WITH_EPOCHS: i16 = 3;
const UNKNOWN_BROKER_EPOCH: i64 = -1;

fn proposed_isr(data: &PartitionData, api_version: i16) -> Vec<BrokerState> {
    if api_version >= ISR_WITH_EPOCHS {
        return data.new_isr_with_epochs.clone();
    }
    let without_epoch = |b: &i32| BrokerState { broker_id: *b, broker_epoch: UNKNOWN_BROKER_EPOCH };
    data.new_isr.iter().map(without_epoch).collect()
}

/// Whether an ISR has no broker twice and only replicas.
fn is_valid_isr(replicas: &[i32], isr: &[i32]) -> bool {
    let mut sorted = isr.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.len() == isr.len() && isr.iter().all(|b| *b >= 0 && replicas.contains(b))
}

impl Decider<'_> {
    pub(crate) fn alter_partition(
        &self,
        request: &AlterPartitionRequest,
        api_version: i16,
    ) -> Result<ControllerResult<AlterPartitionResponse>, ApiError> {
        if request.topics.is_empty() {
            return Ok(ControllerResult::just(AlterPartitionResponse::default()));
        }
        self.check_broker_epoch(request.broker_id, request.broker_epoch)?;
        let mut records = Vec::new();
        let mut response = AlterPartitionResponse::default();
        for topic_data in &request.topics {
            let topic = self.state.image.topics.topic(&topic_data.topic_id);
            let topic = topic.filter(|_| topic_data.topic_id != Uuid::ZERO);
            let partitions = topic_data.partitions.iter().map(|data| {
                let index = data.partition_index;
                let altered = match topic {
                    None => Err(ErrorCode::UNKNOWN_TOPIC_ID),
                    Some(topic) => {
                        let isr = proposed_isr(data, api_version);
                        self.alter_one_partition(request.broker_id, topic, data, &isr, &mut records)
                    }
                };
                match altered {
                    Err(code) => alter_partition_response::PartitionData {
                        partition_index: index,
                        error_code: code.code(),
                        ..Default::default()
                    },
                    Ok(partition) => alter_partition_response::PartitionData {
                        partition_index: index,
                        error_code: ErrorCode::NONE.code(),
                        leader_id: partition.leader,
                        leader_epoch: partition.leader_epoch,
                        isr: partition.isr,
                        leader_recovery_state: partition.leader_recovery_state.value(),
                        partition_epoch: partition.partition_epoch,
                    },
                }
            });
            let partitions = partitions.collect();
            response
                .topics
                .push(alter_partition_response::TopicData { topic_id: topic_data.topic_id, partitions });
        }
        Ok(ControllerResult::of(records, response))
    }

    fn alter_one_partition(
        &self,
        broker: i32,
        topic: &TopicImage,
        data: &PartitionData,
        isr: &[BrokerState],
        records: &mut Vec<VersionedRecord>,
    ) -> Result<PartitionRegistration, ErrorCode> {
        let Some(partition) = topic.partitions.get(&data.partition_index) else {
            return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        };
        let recovery_state = self.validate_alter_partition(broker, partition, data, isr)?;
        let record = self.change_partition(topic, data.partition_index, partition, |builder| {
            if self.unclean_election_enabled(&topic.name) {
                builder.election = Election::Unclean;
            }
            builder.isr = isr.iter().map(|b| b.broker_id).collect();
            builder.recovery_state = recovery_state;
        });
        let Some(record) = record else { return Ok(PartitionRegistration::clone(partition)) };
        let MetadataRecord::PartitionChangeRecord(change) = &record.record else {
            return Err(ErrorCode::UNKNOWN_SERVER_ERROR);
        };
        let (leader, after) = (change.leader, partition.merge(change));
        records.push(record);
        // A completed reassignment may have made somebody else the leader: the old one waits for the metadata.
        if leader != broker && leader != NO_LEADER_CHANGE {
            return Err(ErrorCode::NEW_LEADER_ELECTED);
        }
        after.map_err(|_| ErrorCode::UNKNOWN_SERVER_ERROR)
    }

    fn validate_alter_partition(
        &self,
        broker: i32,
        partition: &PartitionRegistration,
        data: &PartitionData,
        isr: &[BrokerState],
    ) -> Result<LeaderRecoveryState, ErrorCode> {
        // A leader that knows more than we do knows a newer controller.
        if data.leader_epoch > partition.leader_epoch || data.partition_epoch > partition.partition_epoch {
            return Err(ErrorCode::NOT_CONTROLLER);
        }
        if data.leader_epoch < partition.leader_epoch {
            return Err(ErrorCode::FENCED_LEADER_EPOCH);
        }
        if broker != partition.leader {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if data.partition_epoch < partition.partition_epoch {
            return Err(ErrorCode::INVALID_UPDATE_VERSION);
        }
        let ids: Vec<i32> = isr.iter().map(|b| b.broker_id).collect();
        if !is_valid_isr(&partition.replicas, &ids) || !ids.contains(&partition.leader) {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        let state = LeaderRecoveryState::from_value(data.leader_recovery_state);
        let state = state.ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?;
        if state == LeaderRecoveryState::Recovering
            && (ids.len() > 1 || partition.leader_recovery_state == LeaderRecoveryState::Recovered)
        {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        let eligible = |b: &BrokerState| {
            self.state.broker(b.broker_id).is_some_and(|r| {
                r.is_active() && (b.broker_epoch == UNKNOWN_BROKER_EPOCH || b.broker_epoch == r.epoch)
            })
        };
        if !isr.iter().all(eligible) {
            return Err(ErrorCode::INELIGIBLE_REPLICA);
        }
        Ok(state)
    }
}
