//! OffsetFetch, for one group.
//!
//! Ordinary readers see committed offsets. With `require_stable` (KIP-447) the newest are read, the answer waits until
//! they are committed, and partitions with an open transaction are refused.

use protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use protocol::{ErrorCode, Uuid};

use crate::classic::ClassicGroupState;
use crate::message::no_offset;
use crate::offsets::OffsetAndMetadata;
use crate::shard::GroupCoordinatorShard;
use crate::state::{Group, GroupState};

impl GroupCoordinatorShard {
    pub(crate) fn fetch_offsets(
        &self,
        request: &OffsetFetchRequestGroup,
        require_stable: bool,
    ) -> Result<OffsetFetchResponseGroup, ErrorCode> {
        let state: &GroupState = if require_stable { &self.state } else { self.committed() };
        let group_exists = match self.validate_offset_fetch(state, request) {
            Ok(()) => true,
            Err(ErrorCode::GROUP_ID_NOT_FOUND) => false,
            Err(error) => return Err(error),
        };
        let topics = match &request.topics {
            None if group_exists => fetch_all(state, &request.group_id, require_stable),
            None => Vec::new(),
            Some(topics) => topics
                .iter()
                .map(|topic| {
                    let partitions = topic.partition_indexes.iter().map(|&index| {
                        let offset = state
                            .offsets
                            .offsets
                            .get(&request.group_id, &topic.name, index)
                            .filter(|offset| group_exists && !offset.is_of_other_topic(topic.topic_id));
                        let place = (request.group_id.as_str(), topic.name.as_str(), index);
                        fetch_one(state, place, offset.map(AsRef::as_ref), require_stable)
                    });
                    OffsetFetchResponseTopics {
                        name: topic.name.clone(),
                        topic_id: topic.topic_id,
                        partitions: partitions.collect(),
                    }
                })
                .collect(),
        };
        Ok(OffsetFetchResponseGroup { group_id: request.group_id.clone(), topics, ..Default::default() })
    }

    fn validate_offset_fetch(
        &self,
        state: &GroupState,
        request: &OffsetFetchRequestGroup,
    ) -> Result<(), ErrorCode> {
        match state.groups.get(request.group_id.as_str()).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)? {
            Group::Classic(group) => match self.classic.get(group) {
                Some(group) if !group.is_in_state(ClassicGroupState::Dead) => Ok(()),
                _ => Err(ErrorCode::GROUP_ID_NOT_FOUND),
            },
            Group::Modern(group) => {
                group.validate_offset_fetch(request.member_id.as_deref(), request.member_epoch)
            }
        }
    }
}

fn fetch_all(state: &GroupState, group_id: &str, require_stable: bool) -> Vec<OffsetFetchResponseTopics> {
    let topics = state.offsets.offsets.group(group_id).into_iter().flatten();
    let topics = topics.map(|(topic, partitions)| OffsetFetchResponseTopics {
        name: topic.to_string(),
        topic_id: Uuid::ZERO,
        partitions: partitions
            .iter()
            .map(|(&index, offset)| fetch_one(state, (group_id, topic, index), Some(offset), require_stable))
            .collect(),
    });
    topics.collect()
}

fn fetch_one(
    state: &GroupState,
    (group_id, topic, partition): (&str, &str, i32),
    offset: Option<&OffsetAndMetadata>,
    require_stable: bool,
) -> OffsetFetchResponsePartitions {
    if require_stable && state.offsets.open.contains(group_id, topic, partition) {
        return no_offset(partition, ErrorCode::UNSTABLE_OFFSET_COMMIT);
    }
    match offset {
        None => no_offset(partition, ErrorCode::NONE),
        Some(offset) => OffsetFetchResponsePartitions {
            partition_index: partition,
            committed_offset: offset.committed_offset,
            committed_leader_epoch: offset.leader_epoch.unwrap_or(-1),
            metadata: Some(offset.metadata.clone()),
            error_code: ErrorCode::NONE.code(),
        },
    }
}
