//! OffsetDelete (KIP-496), and the offsets of deleted topics.

use coordinator::RequestToken;
use protocol::ErrorCode;
use protocol::messages::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};

use crate::deferred::{AppendAction, Deferred};
use crate::message::GroupResponse;
use crate::modern::ModernKind;
use crate::offsets::Offsets;
use crate::records::{GroupRecord, offset_commit_tombstone};
use crate::service::DeletedTopic;
use crate::shard::{GroupCoordinatorShard, GroupResult};
use crate::state::Group;

impl GroupCoordinatorShard {
    pub(crate) fn delete_offsets(
        &mut self,
        api_version: i16,
        request: &OffsetDeleteRequest,
        token: RequestToken,
    ) -> Result<GroupResult, ErrorCode> {
        let group_id = request.group_id.as_str();
        let group = self.group(group_id).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?;
        match group {
            Group::Classic(group) => {
                self.classic.get(group).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?.validate_offset_delete()?;
            }
            Group::Modern(group) if group.kind() == ModernKind::Share => {
                return Err(ErrorCode::GROUP_ID_NOT_FOUND);
            }
            Group::Modern(_) => {}
        }
        let mut records = Vec::new();
        let mut response = OffsetDeleteResponse::default();
        for topic in &request.topics {
            let is_subscribed = self.is_subscribed_to_topic(group, &topic.name);
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for partition in &topic.partitions {
                let index = partition.partition_index;
                let mut error = ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC;
                if !is_subscribed {
                    error = ErrorCode::NONE;
                    let offsets = &self.state.offsets;
                    if offsets.has_offset(group_id, &topic.name, index)
                        || offsets.open.contains(group_id, &topic.name, index)
                    {
                        records.push(offset_commit_tombstone(group_id, &topic.name, index));
                    }
                }
                partitions
                    .push(OffsetDeleteResponsePartition { partition_index: index, error_code: error.code() });
            }
            response.topics.push(OffsetDeleteResponseTopic { name: topic.name.clone(), partitions });
        }
        self.metrics.offset_deletions += records.len() as u64;
        let response = GroupResponse::OffsetDelete(response);
        Ok(GroupResult::new(records, Deferred::Response { token, api_version, response }))
    }

    /// Tombstones for every offset of the topics, unless it belongs to another topic of the same name.
    pub(crate) fn on_topics_deleted(&self, topics: &[DeletedTopic]) -> GroupResult {
        let mut records = Vec::new();
        append_tombstones_of_topics(&self.state.offsets.offsets, topics, &mut records);
        for (_, pending) in self.state.offsets.pending() {
            append_tombstones_of_topics(pending, topics, &mut records);
        }
        GroupResult::non_atomic(records, Deferred::Internal { action: AppendAction::None, retry: None })
    }

    pub(crate) fn is_subscribed_to_topic(&self, group: &Group, topic: &str) -> bool {
        match group {
            Group::Classic(group) => {
                self.classic.get(group).is_some_and(|group| group.is_subscribed_to_topic(topic))
            }
            Group::Modern(group) => group.is_subscribed_to_topic(topic),
        }
    }
}

fn append_tombstones_of_topics(offsets: &Offsets, deleted: &[DeletedTopic], records: &mut Vec<GroupRecord>) {
    for (group_id, topics) in offsets.groups() {
        for topic in deleted {
            let partitions = topics.get(topic.name.as_str()).into_iter().flatten();
            for (&partition, offset) in partitions {
                if !offset.is_of_other_topic(topic.id) {
                    records.push(offset_commit_tombstone(group_id, &topic.name, partition));
                }
            }
        }
    }
}
