//! AssignReplicasToDirs: a broker says in which directory each replica is (KIP-858).

use std::collections::BTreeSet;

use protocol::ErrorCode;
use protocol::messages::assign_replicas_to_dirs_response::{DirectoryData, PartitionData, TopicData};
use protocol::messages::{AssignReplicasToDirsRequest, AssignReplicasToDirsResponse};

use super::{BrokerChange, Decider};
use crate::api::{ApiError, ControllerResult};

impl Decider<'_> {
    pub(crate) fn assign_replicas_to_dirs(
        &self,
        request: &AssignReplicasToDirsRequest,
    ) -> Result<ControllerResult<AssignReplicasToDirsResponse>, ApiError> {
        if !self.state.metadata_version().is_directory_assignment_supported() {
            return Err(ApiError::new(
                ErrorCode::UNSUPPORTED_VERSION,
                "Directory assignment is not supported yet.",
            ));
        }
        let broker = request.broker_id;
        self.check_broker_epoch(broker, request.broker_epoch)?;
        let registration = self.state.broker(broker);
        let (mut records, mut offline) = (Vec::new(), BTreeSet::new());
        let mut response = AssignReplicasToDirsResponse::default();
        for directory in &request.directories {
            let is_offline = !registration.is_some_and(|r| r.has_online_dir(&directory.id));
            let mut answer = DirectoryData { id: directory.id, topics: Vec::new() };
            for topic_data in &directory.topics {
                let topic = self.state.image.topics.topic(&topic_data.topic_id);
                let mut partitions = Vec::new();
                for data in &topic_data.partitions {
                    let index = data.partition_index;
                    let partition = topic.and_then(|t| t.partitions.get(&index));
                    let error = match (topic, partition) {
                        (None, _) => ErrorCode::UNKNOWN_TOPIC_ID,
                        (Some(_), None) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                        (Some(_), Some(p)) if !p.replicas.contains(&broker) => {
                            ErrorCode::NOT_LEADER_OR_FOLLOWER
                        }
                        (Some(topic), Some(partition)) => {
                            records.extend(self.change_partition(topic, index, partition, |b| {
                                b.set_directory(broker, directory.id);
                            }));
                            if is_offline {
                                offline.insert((topic.id, index));
                            }
                            ErrorCode::NONE
                        }
                    };
                    partitions.push(PartitionData { partition_index: index, error_code: error.code() });
                }
                answer.topics.push(TopicData { topic_id: topic_data.topic_id, partitions });
            }
            response.directories.push(answer);
        }
        let change = BrokerChange { remove: Some(broker), ..Default::default() };
        self.leader_and_isr_updates(change, offline, &mut records);
        Ok(ControllerResult::of(records, response))
    }
}
