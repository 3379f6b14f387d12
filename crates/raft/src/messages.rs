//! The quorum's requests and responses as this crate exchanges them, and the one partition they are about.
//!
//! Every raft message names topics and partitions in lists although there is only `__cluster_metadata-0`; here they are
//! wrapped and unwrapped, so that the rest of the crate sees one partition. Owns no state.

use protocol::messages::{
    BeginQuorumEpochRequest, BeginQuorumEpochResponse, DescribeQuorumRequest, DescribeQuorumResponse,
    EndQuorumEpochRequest, EndQuorumEpochResponse, FetchRequest, FetchResponse, FetchSnapshotRequest,
    FetchSnapshotResponse, VoteRequest, VoteResponse, begin_quorum_epoch_request,
    begin_quorum_epoch_response, describe_quorum_response, end_quorum_epoch_request,
    end_quorum_epoch_response, fetch_request, fetch_response, fetch_snapshot_request,
    fetch_snapshot_response, vote_request, vote_response,
};
use protocol::{ErrorCode, Uuid};

use crate::types::{Endpoints, OffsetAndEpoch, ReplicaKey};

/// Name of the topic whose single partition is the metadata log.
pub const METADATA_TOPIC: &str = "__cluster_metadata";
/// Its partition.
pub const METADATA_PARTITION: i32 = 0;

/// A request between replicas, or DescribeQuorum from a client.
#[derive(Clone, Debug, PartialEq)]
pub enum RaftRequest {
    Vote(VoteRequest),
    BeginQuorumEpoch(BeginQuorumEpochRequest),
    EndQuorumEpoch(EndQuorumEpochRequest),
    Fetch(FetchRequest),
    FetchSnapshot(FetchSnapshotRequest),
    DescribeQuorum(DescribeQuorumRequest),
}

/// The answer to the request of the same name.
#[derive(Clone, Debug, PartialEq)]
pub enum RaftResponse {
    Vote(VoteResponse),
    BeginQuorumEpoch(BeginQuorumEpochResponse),
    EndQuorumEpoch(EndQuorumEpochResponse),
    Fetch(FetchResponse),
    FetchSnapshot(FetchSnapshotResponse),
    DescribeQuorum(DescribeQuorumResponse),
}

/// Who answers and in whose name: what every partition-level response carries.
pub(crate) struct Answerer {
    pub(crate) epoch: i32,
    pub(crate) leader_id: i32,
    pub(crate) leader_endpoints: Endpoints,
    /// The listener the request came in on; endpoints are given for that one.
    pub(crate) listener_name: String,
    pub(crate) api_version: i16,
}

impl Answerer {
    /// The leader's address for a response of `from_version` on, when leader and address are known.
    fn leader_address(&self, from_version: i16) -> Option<(i32, String, u16)> {
        let address = self.leader_endpoints.address(&self.listener_name)?;
        (self.api_version >= from_version && self.leader_id >= 0)
            .then(|| (self.leader_id, address.host.clone(), address.port))
    }
}

pub(crate) fn only<T>(items: &[T]) -> Option<&T> {
    match items {
        [item] => Some(item),
        _ => None,
    }
}

/// The partition a request is about, when it is about the metadata partition alone.
macro_rules! metadata_partition {
    ($topics:expr, $name:ident, $index:ident) => {
        only(&$topics)
            .filter(|topic| topic.$name == METADATA_TOPIC)
            .and_then(|topic| only(&topic.partitions))
            .filter(|partition| partition.$index == METADATA_PARTITION)
    };
}
pub(crate) use metadata_partition;

pub(crate) fn vote_response(by: &Answerer, error: ErrorCode, vote_granted: bool) -> VoteResponse {
    let partition = vote_response::PartitionData {
        partition_index: METADATA_PARTITION,
        error_code: error.0,
        leader_id: by.leader_id,
        leader_epoch: by.epoch,
        vote_granted,
    };
    VoteResponse {
        topics: vec![vote_response::TopicData {
            topic_name: METADATA_TOPIC.into(),
            partitions: vec![partition],
        }],
        node_endpoints: by
            .leader_address(1)
            .map(|(node_id, host, port)| vote_response::NodeEndpoint { node_id, host, port })
            .into_iter()
            .collect(),
        ..VoteResponse::default()
    }
}

pub(crate) fn begin_quorum_epoch_response(by: &Answerer, error: ErrorCode) -> BeginQuorumEpochResponse {
    let partition = begin_quorum_epoch_response::PartitionData {
        partition_index: METADATA_PARTITION,
        error_code: error.0,
        leader_id: by.leader_id,
        leader_epoch: by.epoch,
    };
    let topic = begin_quorum_epoch_response::TopicData {
        topic_name: METADATA_TOPIC.into(),
        partitions: vec![partition],
    };
    BeginQuorumEpochResponse {
        topics: vec![topic],
        node_endpoints: by
            .leader_address(1)
            .map(|(node_id, host, port)| begin_quorum_epoch_response::NodeEndpoint { node_id, host, port })
            .into_iter()
            .collect(),
        ..BeginQuorumEpochResponse::default()
    }
}

pub(crate) fn end_quorum_epoch_response(by: &Answerer, error: ErrorCode) -> EndQuorumEpochResponse {
    let partition = end_quorum_epoch_response::PartitionData {
        partition_index: METADATA_PARTITION,
        error_code: error.0,
        leader_id: by.leader_id,
        leader_epoch: by.epoch,
    };
    let topic = end_quorum_epoch_response::TopicData {
        topic_name: METADATA_TOPIC.into(),
        partitions: vec![partition],
    };
    EndQuorumEpochResponse {
        topics: vec![topic],
        node_endpoints: by
            .leader_address(1)
            .map(|(node_id, host, port)| end_quorum_epoch_response::NodeEndpoint { node_id, host, port })
            .into_iter()
            .collect(),
        ..EndQuorumEpochResponse::default()
    }
}

/// A fetch response of one partition; the caller fills in what is particular.
pub(crate) fn fetch_response(by: &Answerer, mut partition: fetch_response::PartitionData) -> FetchResponse {
    partition.partition_index = METADATA_PARTITION;
    partition.current_leader =
        fetch_response::LeaderIdAndEpoch { leader_id: by.leader_id, leader_epoch: by.epoch };
    let topic = fetch_response::FetchableTopicResponse {
        topic: METADATA_TOPIC.into(),
        topic_id: Uuid::METADATA_TOPIC_ID,
        partitions: vec![partition],
    };
    FetchResponse {
        responses: vec![topic],
        node_endpoints: by
            .leader_address(17)
            .map(|(node_id, host, port)| fetch_response::NodeEndpoint {
                node_id,
                host,
                port: port.into(),
                rack: None,
            })
            .into_iter()
            .collect(),
        ..FetchResponse::default()
    }
}

pub(crate) fn fetch_snapshot_response(
    by: &Answerer,
    topic_name: &str,
    partition: fetch_snapshot_response::PartitionSnapshot,
) -> FetchSnapshotResponse {
    let topic =
        fetch_snapshot_response::TopicSnapshot { name: topic_name.to_owned(), partitions: vec![partition] };
    FetchSnapshotResponse {
        topics: vec![topic],
        node_endpoints: by
            .leader_address(1)
            .map(|(node_id, host, port)| fetch_snapshot_response::NodeEndpoint { node_id, host, port })
            .into_iter()
            .collect(),
        ..FetchSnapshotResponse::default()
    }
}

/// A DescribeQuorum answer that carries the same error for every partition that was asked for.
pub(crate) fn describe_quorum_error(
    request: &DescribeQuorumRequest,
    error: ErrorCode,
) -> DescribeQuorumResponse {
    let message = Some(error.message().to_owned());
    let topics = request.topics.iter().map(|topic| describe_quorum_response::TopicData {
        topic_name: topic.topic_name.clone(),
        partitions: topic
            .partitions
            .iter()
            .map(|partition| describe_quorum_response::PartitionData {
                partition_index: partition.partition_index,
                error_code: error.0,
                error_message: message.clone(),
                ..Default::default()
            })
            .collect(),
    });
    DescribeQuorumResponse { topics: topics.collect(), ..DescribeQuorumResponse::default() }
}

pub(crate) fn vote_request(
    cluster_id: &str,
    epoch: i32,
    candidate: ReplicaKey,
    voter: ReplicaKey,
    log_end: OffsetAndEpoch,
    pre_vote: bool,
) -> VoteRequest {
    let partition = vote_request::PartitionData {
        partition_index: METADATA_PARTITION,
        replica_epoch: epoch,
        replica_id: candidate.id,
        replica_directory_id: candidate.directory_id_or_zero(),
        voter_directory_id: voter.directory_id_or_zero(),
        last_offset_epoch: log_end.epoch,
        last_offset: log_end.offset,
        pre_vote,
    };
    VoteRequest {
        cluster_id: Some(cluster_id.to_owned()),
        voter_id: voter.id,
        topics: vec![vote_request::TopicData {
            topic_name: METADATA_TOPIC.into(),
            partitions: vec![partition],
        }],
    }
}

pub(crate) fn begin_quorum_epoch_request(
    cluster_id: &str,
    epoch: i32,
    leader_id: i32,
    endpoints: &Endpoints,
    voter: ReplicaKey,
) -> BeginQuorumEpochRequest {
    let partition = begin_quorum_epoch_request::PartitionData {
        partition_index: METADATA_PARTITION,
        voter_directory_id: voter.directory_id_or_zero(),
        leader_id,
        leader_epoch: epoch,
    };
    let leader_endpoints =
        endpoints.iter().map(|(name, address)| begin_quorum_epoch_request::LeaderEndpoint {
            name: name.to_owned(),
            host: address.host.clone(),
            port: address.port,
        });
    BeginQuorumEpochRequest {
        cluster_id: Some(cluster_id.to_owned()),
        voter_id: voter.id,
        topics: vec![begin_quorum_epoch_request::TopicData {
            topic_name: METADATA_TOPIC.into(),
            partitions: vec![partition],
        }],
        leader_endpoints: leader_endpoints.collect(),
    }
}

pub(crate) fn end_quorum_epoch_request(
    cluster_id: &str,
    epoch: i32,
    leader_id: i32,
    successors: &[ReplicaKey],
) -> EndQuorumEpochRequest {
    let candidates = successors.iter().map(|key| end_quorum_epoch_request::ReplicaInfo {
        candidate_id: key.id,
        candidate_directory_id: key.directory_id_or_zero(),
    });
    let partition = end_quorum_epoch_request::PartitionData {
        partition_index: METADATA_PARTITION,
        leader_id,
        leader_epoch: epoch,
        preferred_successors: successors.iter().map(|key| key.id).collect(),
        preferred_candidates: candidates.collect(),
    };
    EndQuorumEpochRequest {
        cluster_id: Some(cluster_id.to_owned()),
        topics: vec![end_quorum_epoch_request::TopicData {
            topic_name: METADATA_TOPIC.into(),
            partitions: vec![partition],
        }],
        leader_endpoints: Vec::new(),
    }
}

/// What a follower says when it fetches.
pub(crate) struct FetchPosition {
    pub(crate) epoch: i32,
    pub(crate) log_end: OffsetAndEpoch,
    pub(crate) high_watermark: i64,
}

pub(crate) fn fetch_request(
    cluster_id: &str,
    replica: ReplicaKey,
    position: &FetchPosition,
    max_bytes: i32,
    max_wait_ms: i32,
) -> FetchRequest {
    let partition = fetch_request::FetchPartition {
        partition: METADATA_PARTITION,
        current_leader_epoch: position.epoch,
        fetch_offset: position.log_end.offset,
        last_fetched_epoch: position.log_end.epoch,
        replica_directory_id: replica.directory_id_or_zero(),
        high_watermark: position.high_watermark,
        ..Default::default()
    };
    let topic = fetch_request::FetchTopic {
        topic: METADATA_TOPIC.into(),
        topic_id: Uuid::METADATA_TOPIC_ID,
        partitions: vec![partition],
    };
    FetchRequest {
        cluster_id: Some(cluster_id.to_owned()),
        replica_state: fetch_request::ReplicaState { replica_id: replica.id, ..Default::default() },
        max_wait_ms,
        max_bytes,
        topics: vec![topic],
        ..FetchRequest::default()
    }
}

pub(crate) fn fetch_snapshot_request(
    cluster_id: &str,
    replica: ReplicaKey,
    epoch: i32,
    id: OffsetAndEpoch,
    position: i64,
    max_bytes: i32,
) -> FetchSnapshotRequest {
    let partition = fetch_snapshot_request::PartitionSnapshot {
        partition: METADATA_PARTITION,
        current_leader_epoch: epoch,
        snapshot_id: fetch_snapshot_request::SnapshotId { end_offset: id.offset, epoch: id.epoch },
        position,
        replica_directory_id: replica.directory_id_or_zero(),
    };
    FetchSnapshotRequest {
        cluster_id: Some(cluster_id.to_owned()),
        replica_id: replica.id,
        max_bytes,
        topics: vec![fetch_snapshot_request::TopicSnapshot {
            name: METADATA_TOPIC.into(),
            partitions: vec![partition],
        }],
    }
}
