//! What stands between a request on the wire and a shard: topic names, ids, existence and rights.
//!
//! A plan is made from a request, holds what can be answered without a coordinator, names what one must do, and is
//! finished with its answer. The order of errors and of the answer's topics is 4.4.0's.

use protocol::messages::list_groups_response::ListedGroup;
use protocol::messages::offset_commit_request::OffsetCommitRequestTopic;
use protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use protocol::messages::offset_delete_request::OffsetDeleteRequestTopic;
use protocol::messages::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use protocol::messages::{
    ListGroupsResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    OffsetFetchRequest, OffsetFetchResponse,
};
use protocol::{ErrorCode, Uuid};

use crate::message::no_offset;

/// From here on OffsetCommit and OffsetFetch name topics by id (KIP-848).
const TOPIC_ID_MIN_VERSION: i16 = 10;
/// From here on OffsetFetch asks for several groups (KIP-709).
const BATCH_MIN_VERSION: i16 = 8;

/// The topics as the broker's metadata image and authorizer have them.
pub trait TopicResolver {
    fn topic_name(&self, topic_id: Uuid) -> Option<String>;
    /// `Uuid::ZERO` when there is no such topic.
    fn topic_id(&self, topic: &str) -> Uuid;
    fn has_partition(&self, topic: &str, partition: i32) -> bool;
    /// Whether the client may consume the topic.
    fn may_read(&self, topic: &str) -> bool;
    /// Whether the client may know of the topic.
    fn may_describe(&self, topic: &str) -> bool;
}

/// An OffsetCommit with its topics resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct OffsetCommitPlan {
    /// What the coordinator must commit; nothing when all partitions are refused.
    pub request: Option<OffsetCommitRequest>,
    refused: OffsetCommitResponse,
    use_topic_ids: bool,
}

impl OffsetCommitPlan {
    pub fn new(api_version: i16, mut request: OffsetCommitRequest, topics: &dyn TopicResolver) -> Self {
        let use_topic_ids = api_version >= TOPIC_ID_MIN_VERSION;
        let mut plan = Self { request: None, refused: OffsetCommitResponse::default(), use_topic_ids };
        let mut accepted = Vec::new();
        for mut topic in std::mem::take(&mut request.topics) {
            if use_topic_ids {
                topic.name = topics.topic_name(topic.topic_id).unwrap_or_default();
                if topic.name.is_empty() {
                    plan.refuse(&topic, ErrorCode::UNKNOWN_TOPIC_ID);
                    continue;
                }
            }
            if !topics.may_read(&topic.name) {
                plan.refuse(&topic, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
                continue;
            }
            if !use_topic_ids {
                topic.topic_id = topics.topic_id(&topic.name);
            }
            let (name, exists) = (topic.name.clone(), topic.topic_id != Uuid::ZERO);
            let (known, unknown): (Vec<_>, Vec<_>) = std::mem::take(&mut topic.partitions)
                .into_iter()
                .partition(|partition| exists && topics.has_partition(&name, partition.partition_index));
            if !unknown.is_empty() {
                let unknown = OffsetCommitRequestTopic { partitions: unknown, ..topic.clone() };
                plan.refuse(&unknown, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
            }
            if !known.is_empty() {
                accepted.push(OffsetCommitRequestTopic { partitions: known, ..topic });
            }
        }
        if !accepted.is_empty() {
            plan.request = Some(OffsetCommitRequest { topics: accepted, ..request });
        }
        plan
    }

    /// The whole answer; `coordinator` is the answer to [`Self::request`], if there was one.
    pub fn finish(self, coordinator: Option<OffsetCommitResponse>) -> OffsetCommitResponse {
        let mut response = self.refused;
        for topic in coordinator.into_iter().flat_map(|answer| answer.topics) {
            match find_topic(&mut response, self.use_topic_ids, topic.topic_id, &topic.name) {
                Some(existing) => existing.partitions.extend(topic.partitions),
                None => response.topics.push(topic),
            }
        }
        response
    }

    fn refuse(&mut self, topic: &OffsetCommitRequestTopic, error: ErrorCode) {
        let partitions = topic.partitions.iter().map(|partition| OffsetCommitResponsePartition {
            partition_index: partition.partition_index,
            error_code: error.code(),
        });
        match find_topic(&mut self.refused, self.use_topic_ids, topic.topic_id, &topic.name) {
            Some(existing) => existing.partitions.extend(partitions),
            None => self.refused.topics.push(OffsetCommitResponseTopic {
                name: topic.name.clone(),
                topic_id: topic.topic_id,
                partitions: partitions.collect(),
            }),
        }
    }
}

fn find_topic<'a>(
    response: &'a mut OffsetCommitResponse,
    use_topic_ids: bool,
    topic_id: Uuid,
    name: &str,
) -> Option<&'a mut OffsetCommitResponseTopic> {
    let is_same = |topic: &&mut OffsetCommitResponseTopic| {
        if use_topic_ids { topic.topic_id == topic_id } else { topic.name == name }
    };
    response.topics.iter_mut().find(is_same)
}

/// An OffsetDelete with its topics checked.
#[derive(Clone, Debug, PartialEq)]
pub struct OffsetDeletePlan {
    /// Asked even when it names no topic: the group may be wrong as well.
    pub request: OffsetDeleteRequest,
    refused: Vec<OffsetDeleteResponseTopic>,
}

impl OffsetDeletePlan {
    pub fn new(mut request: OffsetDeleteRequest, topics: &dyn TopicResolver) -> Self {
        let asked = std::mem::take(&mut request.topics);
        let mut plan = Self { request, refused: Vec::new() };
        for topic in asked {
            let exists = topics.topic_id(&topic.name) != Uuid::ZERO;
            let may_read = topics.may_read(&topic.name);
            let (known, unknown): (Vec<_>, Vec<_>) = topic.partitions.into_iter().partition(|partition| {
                may_read && exists && topics.has_partition(&topic.name, partition.partition_index)
            });
            if !unknown.is_empty() {
                let error = if may_read {
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                } else {
                    ErrorCode::TOPIC_AUTHORIZATION_FAILED
                };
                let partitions = unknown.iter().map(|partition| OffsetDeleteResponsePartition {
                    partition_index: partition.partition_index,
                    error_code: error.code(),
                });
                plan.refused.push(OffsetDeleteResponseTopic {
                    name: topic.name.clone(),
                    partitions: partitions.collect(),
                });
            }
            if !known.is_empty() {
                plan.request.topics.push(OffsetDeleteRequestTopic { name: topic.name, partitions: known });
            }
        }
        plan
    }

    /// The whole answer, given the coordinator's.
    pub fn finish(self, coordinator: OffsetDeleteResponse) -> OffsetDeleteResponse {
        if coordinator.error_code != ErrorCode::NONE.code() {
            return coordinator;
        }
        let mut topics = self.refused;
        for topic in coordinator.topics {
            match topics.iter_mut().find(|existing| existing.name == topic.name) {
                Some(existing) => existing.partitions.extend(topic.partitions),
                None => topics.push(topic),
            }
        }
        OffsetDeleteResponse { topics, ..coordinator }
    }
}

/// One group of an OffsetFetch with its topics resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct OffsetFetchPlan {
    /// What the coordinator is asked.
    pub group: OffsetFetchRequestGroup,
    refused: Vec<OffsetFetchResponseTopics>,
    use_topic_ids: bool,
}

impl OffsetFetchPlan {
    pub fn new(api_version: i16, mut group: OffsetFetchRequestGroup, topics: &dyn TopicResolver) -> Self {
        let use_topic_ids = api_version >= TOPIC_ID_MIN_VERSION;
        let mut refused = Vec::new();
        if let Some(asked) = group.topics.take() {
            let mut accepted = Vec::with_capacity(asked.len());
            for mut topic in asked {
                if use_topic_ids && topic.topic_id != Uuid::ZERO {
                    topic.name = topics.topic_name(topic.topic_id).unwrap_or_default();
                }
                if use_topic_ids && topic.name.is_empty() {
                    refused.push(refused_topic(topic, ErrorCode::UNKNOWN_TOPIC_ID));
                } else if !topics.may_describe(&topic.name) {
                    refused.push(refused_topic(topic, ErrorCode::TOPIC_AUTHORIZATION_FAILED));
                } else {
                    accepted.push(topic);
                }
            }
            group.topics = Some(accepted);
        }
        Self { group, refused, use_topic_ids }
    }

    /// The group's whole answer, given the coordinator's.
    pub fn finish(
        self,
        mut coordinator: OffsetFetchResponseGroup,
        topics: &dyn TopicResolver,
    ) -> OffsetFetchResponseGroup {
        if coordinator.error_code != ErrorCode::NONE.code() {
            return coordinator;
        }
        if self.group.topics.is_some() {
            coordinator.topics.extend(self.refused);
            return coordinator;
        }
        // All topics were asked for: those are shown that the client may know of and, by id, that still exist.
        coordinator.topics.retain_mut(|topic| {
            if self.use_topic_ids && topic.topic_id == Uuid::ZERO {
                topic.topic_id = topics.topic_id(&topic.name);
            }
            topics.may_describe(&topic.name) && !(self.use_topic_ids && topic.topic_id == Uuid::ZERO)
        });
        coordinator
    }
}

fn refused_topic(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics {
    let partitions = topic.partition_indexes.iter().map(|index| no_offset(*index, error));
    OffsetFetchResponseTopics { partitions: partitions.collect(), name: topic.name, topic_id: topic.topic_id }
}

/// The groups of an OffsetFetch of any version.
pub fn offset_fetch_groups(api_version: i16, request: OffsetFetchRequest) -> Vec<OffsetFetchRequestGroup> {
    if api_version >= BATCH_MIN_VERSION {
        return request.groups;
    }
    let topics = request.topics.map(|topics| {
        let topics = topics.into_iter().map(|topic| OffsetFetchRequestTopics {
            name: topic.name,
            partition_indexes: topic.partition_indexes,
            ..Default::default()
        });
        topics.collect()
    });
    vec![OffsetFetchRequestGroup { group_id: request.group_id, topics, ..Default::default() }]
}

/// The answer to an OffsetFetch of any version. Before version 8 there is one group.
pub fn finish_offset_fetch(
    api_version: i16,
    mut groups: Vec<OffsetFetchResponseGroup>,
) -> OffsetFetchResponse {
    if api_version >= BATCH_MIN_VERSION {
        return OffsetFetchResponse { groups, ..Default::default() };
    }
    let Some(group) = groups.pop() else { return OffsetFetchResponse::default() };
    let topics = group.topics.into_iter().map(|topic| OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic
            .partitions
            .into_iter()
            .map(|partition| OffsetFetchResponsePartition {
                partition_index: partition.partition_index,
                committed_offset: partition.committed_offset,
                committed_leader_epoch: partition.committed_leader_epoch,
                metadata: partition.metadata,
                error_code: partition.error_code,
            })
            .collect(),
    });
    OffsetFetchResponse { topics: topics.collect(), error_code: group.error_code, ..Default::default() }
}

/// The answer to a ListGroups from those of all shards. A shard that is no longer ours has no groups; one that is
/// loading makes the whole answer an error.
pub fn merge_list_groups(
    shards: impl IntoIterator<Item = Result<Vec<ListedGroup>, ErrorCode>>,
) -> ListGroupsResponse {
    let mut response = ListGroupsResponse::default();
    for shard in shards {
        match shard {
            Ok(groups) => response.groups.extend(groups),
            Err(ErrorCode::NOT_COORDINATOR) => {}
            Err(error) => {
                return ListGroupsResponse { error_code: error.code(), ..Default::default() };
            }
        }
    }
    response
}
