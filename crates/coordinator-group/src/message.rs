//! Requests and answers of a shard as values, and what an error looks like in each kind of answer.

use protocol::ErrorCode;
use protocol::messages::delete_groups_response::DeletableGroupResult;
use protocol::messages::describe_groups_response::DescribedGroup;
use protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    SyncGroupRequest, SyncGroupResponse, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};

/// What is known of a request besides its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestContext {
    pub api_version: i16,
    /// Of the request header; none is the empty string.
    pub client_id: String,
    /// As Java prints an address: `/127.0.0.1`.
    pub client_host: String,
    /// Fresh random bits: a member id may be made of them.
    pub random: u128,
}

/// A request for one shard. Requests about several groups are split by the caller, see [`crate::partition_for`].
#[derive(Clone, Debug, PartialEq)]
pub enum GroupRequest {
    JoinGroup(JoinGroupRequest),
    SyncGroup(SyncGroupRequest),
    Heartbeat(HeartbeatRequest),
    LeaveGroup(LeaveGroupRequest),
    OffsetCommit(OffsetCommitRequest),
    TxnOffsetCommit(TxnOffsetCommitRequest),
    /// One group of an OffsetFetch of any version; `require_stable` from version 7 (KIP-447).
    OffsetFetch {
        group: OffsetFetchRequestGroup,
        require_stable: bool,
    },
    OffsetDelete(OffsetDeleteRequest),
    /// Groups of one shard.
    DeleteGroups(Vec<String>),
}

/// The answer to a [`GroupRequest`].
#[derive(Clone, Debug, PartialEq)]
pub enum GroupResponse {
    JoinGroup(JoinGroupResponse),
    SyncGroup(SyncGroupResponse),
    Heartbeat(HeartbeatResponse),
    LeaveGroup(LeaveGroupResponse),
    OffsetCommit(OffsetCommitResponse),
    TxnOffsetCommit(TxnOffsetCommitResponse),
    OffsetFetch(OffsetFetchResponseGroup),
    OffsetDelete(OffsetDeleteResponse),
    DeleteGroups(Vec<DeletableGroupResult>),
    /// The marker of a transaction is written, or why not.
    CompleteTransaction(ErrorCode),
}

impl GroupRequest {
    /// The group, where it is one.
    pub fn group_id(&self) -> Option<&str> {
        match self {
            Self::JoinGroup(request) => Some(&request.group_id),
            Self::SyncGroup(request) => Some(&request.group_id),
            Self::Heartbeat(request) => Some(&request.group_id),
            Self::LeaveGroup(request) => Some(&request.group_id),
            Self::OffsetCommit(request) => Some(&request.group_id),
            Self::TxnOffsetCommit(request) => Some(&request.group_id),
            Self::OffsetFetch { group, .. } => Some(&group.group_id),
            Self::OffsetDelete(request) => Some(&request.group_id),
            Self::DeleteGroups(_) => None,
        }
    }

    /// The answer when the request fails as a whole. NOT_COORDINATOR is right where there is no shard for it.
    pub fn error_response(&self, api_version: i16, error: ErrorCode) -> GroupResponse {
        let error_code = error.code();
        match self {
            Self::JoinGroup(_) => {
                let mut response = JoinGroupResponse { error_code, ..Default::default() };
                shape_join_group(&mut response, api_version);
                GroupResponse::JoinGroup(response)
            }
            Self::SyncGroup(_) => {
                GroupResponse::SyncGroup(SyncGroupResponse { error_code, ..Default::default() })
            }
            Self::Heartbeat(_) => GroupResponse::Heartbeat(heartbeat_error(error)),
            Self::LeaveGroup(_) => {
                GroupResponse::LeaveGroup(LeaveGroupResponse { error_code, ..Default::default() })
            }
            Self::OffsetCommit(request) => GroupResponse::OffsetCommit(offset_commit_error(request, error)),
            Self::TxnOffsetCommit(request) => {
                GroupResponse::TxnOffsetCommit(txn_offset_commit_error(request, error))
            }
            Self::OffsetFetch { group, .. } => {
                GroupResponse::OffsetFetch(offset_fetch_error(group, api_version, error))
            }
            Self::OffsetDelete(_) => {
                GroupResponse::OffsetDelete(OffsetDeleteResponse { error_code, ..Default::default() })
            }
            Self::DeleteGroups(groups) => GroupResponse::DeleteGroups(delete_groups_error(groups, error)),
        }
    }
}

impl GroupResponse {
    /// Turns a prepared answer into that of the same request when its records could not be written.
    pub(crate) fn into_error(self, api_version: i16, error: ErrorCode) -> Self {
        let error_code = error.code();
        match self {
            Self::JoinGroup(_) => {
                let mut response = JoinGroupResponse { error_code, ..Default::default() };
                shape_join_group(&mut response, api_version);
                Self::JoinGroup(response)
            }
            Self::SyncGroup(_) => Self::SyncGroup(SyncGroupResponse { error_code, ..Default::default() }),
            Self::Heartbeat(_) => Self::Heartbeat(heartbeat_error(error)),
            Self::LeaveGroup(_) => Self::LeaveGroup(LeaveGroupResponse { error_code, ..Default::default() }),
            Self::OffsetCommit(mut response) => {
                let partitions = response.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
                partitions.for_each(|partition| partition.error_code = error_code);
                Self::OffsetCommit(response)
            }
            Self::TxnOffsetCommit(mut response) => {
                let partitions = response.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
                partitions.for_each(|partition| partition.error_code = error_code);
                Self::TxnOffsetCommit(response)
            }
            Self::OffsetFetch(mut response) => {
                if api_version >= 2 {
                    response.topics.clear();
                    response.error_code = error_code;
                }
                for partition in response.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                    *partition = no_offset(partition.partition_index, error);
                }
                Self::OffsetFetch(response)
            }
            Self::OffsetDelete(_) => {
                Self::OffsetDelete(OffsetDeleteResponse { error_code, ..Default::default() })
            }
            Self::DeleteGroups(results) => {
                let ids: Vec<String> = results.into_iter().map(|result| result.group_id).collect();
                Self::DeleteGroups(delete_groups_error(&ids, error))
            }
            Self::CompleteTransaction(_) => Self::CompleteTransaction(error),
        }
    }
}

/// Before version 7 "no protocol" is the empty string, from then on null.
pub(crate) fn shape_join_group(response: &mut JoinGroupResponse, api_version: i16) {
    if api_version < 7 {
        response.protocol_name.get_or_insert_default();
    } else if response.protocol_name.as_deref() == Some("") {
        response.protocol_name = None;
    }
}

/// Before version 3 a LeaveGroup answer has one error and no members (KIP-345).
pub(crate) fn shape_leave_group(response: &mut LeaveGroupResponse, api_version: i16) {
    if api_version >= 3 {
        return;
    }
    if response.error_code == ErrorCode::NONE.code() {
        let failed = response.members.iter().find(|member| member.error_code != ErrorCode::NONE.code());
        response.error_code = failed.map_or(ErrorCode::NONE.code(), |member| member.error_code);
    }
    response.members.clear();
}

/// A client whose coordinator is loading is as good as one that has just been heard.
fn heartbeat_error(error: ErrorCode) -> HeartbeatResponse {
    let shown = if error == ErrorCode::COORDINATOR_LOAD_IN_PROGRESS { ErrorCode::NONE } else { error };
    HeartbeatResponse { error_code: shown.code(), ..Default::default() }
}

fn offset_commit_error(request: &OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse {
    let topics = request.topics.iter().map(|topic| OffsetCommitResponseTopic {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| OffsetCommitResponsePartition {
                partition_index: partition.partition_index,
                error_code: error.code(),
            })
            .collect(),
    });
    OffsetCommitResponse { topics: topics.collect(), ..Default::default() }
}

fn txn_offset_commit_error(request: &TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse {
    let topics = request.topics.iter().map(|topic| TxnOffsetCommitResponseTopic {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| TxnOffsetCommitResponsePartition {
                partition_index: partition.partition_index,
                error_code: error.code(),
            })
            .collect(),
    });
    TxnOffsetCommitResponse { topics: topics.collect(), ..Default::default() }
}

/// Before version 2 there is no error of a whole group: every partition carries it.
pub(crate) fn offset_fetch_error(
    group: &OffsetFetchRequestGroup,
    api_version: i16,
    error: ErrorCode,
) -> OffsetFetchResponseGroup {
    let group_id = group.group_id.clone();
    if api_version >= 2 {
        return OffsetFetchResponseGroup { group_id, error_code: error.code(), ..Default::default() };
    }
    let topics = group.topics.iter().flatten().map(|topic| OffsetFetchResponseTopics {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partitions: topic.partition_indexes.iter().map(|index| no_offset(*index, error)).collect(),
    });
    OffsetFetchResponseGroup { group_id, topics: topics.collect(), ..Default::default() }
}

/// The entry of a partition without a committed offset.
pub(crate) fn no_offset(partition_index: i32, error: ErrorCode) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        partition_index,
        committed_offset: -1,
        committed_leader_epoch: -1,
        metadata: Some(String::new()),
        error_code: error.code(),
    }
}

fn delete_groups_error(groups: &[String], error: ErrorCode) -> Vec<DeletableGroupResult> {
    let results = groups.iter().map(|group_id| DeletableGroupResult {
        group_id: group_id.clone(),
        error_code: error.code(),
        ..Default::default()
    });
    results.collect()
}

/// The DescribeGroups entries of groups that nobody here can describe.
pub fn describe_groups_error(groups: &[String], error: ErrorCode) -> Vec<DescribedGroup> {
    let described = groups.iter().map(|group_id| DescribedGroup {
        group_id: group_id.clone(),
        error_code: error.code(),
        ..Default::default()
    });
    described.collect()
}
