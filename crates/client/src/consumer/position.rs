//! Where a partition starts: at what was sought, what is committed, or what the reset policy says.

use std::collections::BTreeMap;

use protocol::messages::ListOffsetsRequest;
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use record::TopicPartition;

use super::config::OffsetReset;
use super::{Consumer, Partition, Position};
use crate::cluster::Target;
use crate::error::{ApiError, ClientError};
use crate::offsets;

const EARLIEST: i64 = -2;
const LATEST: i64 = -1;

impl Consumer {
    /// Gives every partition without a position one: what was sought, what is committed, or the reset policy's.
    pub(super) async fn find_positions(&mut self) -> Result<(), ClientError> {
        let lost = |(partition, state): (&TopicPartition, &Partition)| {
            (state.position.is_none() && state.seek.is_none()).then(|| partition.clone())
        };
        let lost: Vec<TopicPartition> = self.partitions.iter().filter_map(lost).collect();
        if let (Some(group), false) = (self.config.group_id.clone(), lost.is_empty()) {
            let stable = true;
            let committed = offsets::fetch_committed(&self.cluster, &group, Some(&lost), stable).await?;
            for (partition, found) in committed {
                if let Some(state) = self.partitions.get_mut(&partition) {
                    state.leader_epoch = found.leader_epoch;
                    state.start_at(found.offset);
                }
            }
        }
        let mut lookups: BTreeMap<i64, Vec<TopicPartition>> = BTreeMap::new();
        for (partition, state) in self.partitions.iter().filter(|(_, state)| state.position.is_none()) {
            let timestamp = match (state.seek, self.config.offset_reset) {
                (Some(Position::Beginning), _) | (None, OffsetReset::Earliest) => EARLIEST,
                (Some(Position::End), _) | (None, OffsetReset::Latest) => LATEST,
                (Some(Position::Offset(_)), _) => continue,
                (None, OffsetReset::ByDuration(back)) => {
                    crate::wall_clock_ms() - i64::try_from(back.as_millis()).unwrap_or(i64::MAX)
                }
                (None, OffsetReset::None) => {
                    let message =
                        format!("Undefined offset with no reset policy for partitions: [{partition}]");
                    return Err(ClientError::Config(message));
                }
            };
            lookups.entry(timestamp).or_default().push(partition.clone());
        }
        for (timestamp, partitions) in lookups {
            self.look_up(timestamp, &partitions).await?;
        }
        Ok(())
    }

    async fn look_up(&mut self, timestamp: i64, partitions: &[TopicPartition]) -> Result<(), ClientError> {
        let mut by_node: BTreeMap<i32, BTreeMap<String, Vec<ListOffsetsPartition>>> = BTreeMap::new();
        for partition in partitions {
            let Some(leader) = self.leaders.get(partition).filter(|leader| leader.node >= 0) else {
                self.metadata_wanted = true;
                continue;
            };
            let wanted = ListOffsetsPartition {
                partition_index: partition.partition,
                current_leader_epoch: leader.epoch,
                timestamp,
            };
            by_node
                .entry(leader.node)
                .or_default()
                .entry(partition.topic.to_string())
                .or_default()
                .push(wanted);
        }
        for (node, topics) in by_node {
            let connection = self.cluster.connection(Target::Node(node)).await?;
            let version = connection.version_of::<ListOffsetsRequest>()?;
            let request = ListOffsetsRequest {
                replica_id: -1,
                isolation_level: i8::from(self.config.read_committed),
                topics: topics
                    .into_iter()
                    .map(|(name, partitions)| ListOffsetsTopic { name, partitions })
                    .collect(),
                timeout_ms: if version < 10 { 0 } else { 30_000 },
            };
            let response = connection.send_version(&request, version).await?;
            for topic in response.topics {
                for found in topic.partitions {
                    let partition = TopicPartition {
                        topic: topic.name.as_str().into(),
                        partition: found.partition_index,
                    };
                    ApiError::check(found.error_code, None)?;
                    // Nothing is that young: the end is where such a record will be.
                    let offset = match found.offset {
                        -1 if timestamp >= 0 => None,
                        offset => Some(offset),
                    };
                    match (offset, self.partitions.get_mut(&partition)) {
                        (Some(offset), Some(state)) => state.start_at(offset),
                        (None, Some(state)) => state.seek = Some(Position::End),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }
}
