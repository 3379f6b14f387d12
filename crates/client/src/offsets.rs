//! Committed offsets of a group: reading and writing them at the group's coordinator, one attempt each.

use std::collections::BTreeMap;

use protocol::ErrorCode;
use protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use protocol::messages::{OffsetCommitRequest, OffsetFetchRequest};
use record::TopicPartition;

use crate::cluster::{Cluster, CoordinatorKind, Target};
use crate::error::{ApiError, ClientError};

/// From version 10 on topics go by id (KIP-848); names serve every case here.
const LAST_VERSION_WITH_NAMES: i16 = 9;
/// OffsetFetch asks for several groups at once from this version on (KIP-709).
const FIRST_BATCHED_FETCH: i16 = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    pub offset: i64,
    pub leader_epoch: i32,
    pub metadata: String,
}

/// Who commits: a member of the group, or an administrator outside of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub member_id: String,
    pub generation: i32,
    pub instance_id: Option<String>,
}

impl Membership {
    /// Commits without being a member are only accepted while the group is empty.
    pub fn none() -> Self {
        Membership { member_id: String::new(), generation: -1, instance_id: None }
    }
}

type Committed = BTreeMap<TopicPartition, CommittedOffset>;

/// The group's committed offsets, of `partitions` or of all. Partitions without one are left out.
pub async fn fetch_committed(
    cluster: &Cluster,
    group: &str,
    partitions: Option<&[TopicPartition]>,
    require_stable: bool,
) -> Result<Committed, ClientError> {
    let node = cluster.coordinator(CoordinatorKind::Group, group).await?;
    let result = fetch_at(cluster, node, group, partitions, require_stable).await;
    forget_if_moved(cluster, group, result)
}

async fn fetch_at(
    cluster: &Cluster,
    node: i32,
    group: &str,
    partitions: Option<&[TopicPartition]>,
    require_stable: bool,
) -> Result<Committed, ClientError> {
    let connection = cluster.connection(Target::Node(node)).await?;
    let version = connection.version_of::<OffsetFetchRequest>()?.min(LAST_VERSION_WITH_NAMES);
    let topics = partitions.map(by_topic);
    let mut request =
        OffsetFetchRequest { require_stable: require_stable && version >= 7, ..Default::default() };
    if version >= FIRST_BATCHED_FETCH {
        let topic = |(name, partition_indexes)| OffsetFetchRequestTopics {
            name,
            partition_indexes,
            ..Default::default()
        };
        request.groups = vec![OffsetFetchRequestGroup {
            group_id: group.to_owned(),
            topics: topics.map(|topics| topics.into_iter().map(topic).collect()),
            ..Default::default()
        }];
    } else {
        let topic = |(name, partition_indexes)| OffsetFetchRequestTopic { name, partition_indexes };
        request.group_id = group.to_owned();
        request.topics = topics.map(|topics| topics.into_iter().map(topic).collect());
    }
    let response = connection.send_version(&request, version).await?;
    let mut committed = Committed::new();
    let mut add =
        |topic: &str, partition: i32, offset: i64, leader_epoch: i32, metadata: Option<String>, code: i16| {
            ApiError::check(code, None)?;
            if offset >= 0 {
                let key = TopicPartition { topic: topic.into(), partition };
                let metadata = metadata.unwrap_or_default();
                committed.insert(key, CommittedOffset { offset, leader_epoch, metadata });
            }
            Ok::<(), ApiError>(())
        };
    ApiError::check(response.error_code, None)?;
    for topic in response.topics {
        for p in topic.partitions {
            let (offset, epoch) = (p.committed_offset, p.committed_leader_epoch);
            add(&topic.name, p.partition_index, offset, epoch, p.metadata, p.error_code)?;
        }
    }
    for answer in response.groups {
        ApiError::check(answer.error_code, None)?;
        for topic in answer.topics {
            for p in topic.partitions {
                let (offset, epoch) = (p.committed_offset, p.committed_leader_epoch);
                add(&topic.name, p.partition_index, offset, epoch, p.metadata, p.error_code)?;
            }
        }
    }
    Ok(committed)
}

/// Commits offsets; every partition's own result is returned.
pub async fn commit(
    cluster: &Cluster,
    group: &str,
    membership: &Membership,
    offsets: &Committed,
) -> Result<BTreeMap<TopicPartition, ErrorCode>, ClientError> {
    let node = cluster.coordinator(CoordinatorKind::Group, group).await?;
    let result = commit_at(cluster, node, group, membership, offsets).await;
    forget_if_moved(cluster, group, result)
}

async fn commit_at(
    cluster: &Cluster,
    node: i32,
    group: &str,
    membership: &Membership,
    offsets: &Committed,
) -> Result<BTreeMap<TopicPartition, ErrorCode>, ClientError> {
    let connection = cluster.connection(Target::Node(node)).await?;
    let version = connection.version_of::<OffsetCommitRequest>()?.min(LAST_VERSION_WITH_NAMES);
    let mut topics: BTreeMap<String, Vec<OffsetCommitRequestPartition>> = BTreeMap::new();
    for (partition, committed) in offsets {
        topics.entry(partition.topic.to_string()).or_default().push(OffsetCommitRequestPartition {
            partition_index: partition.partition,
            committed_offset: committed.offset,
            committed_leader_epoch: committed.leader_epoch,
            committed_metadata: Some(committed.metadata.clone()),
        });
    }
    let request = OffsetCommitRequest {
        group_id: group.to_owned(),
        generation_id_or_member_epoch: membership.generation,
        member_id: membership.member_id.clone(),
        group_instance_id: membership.instance_id.clone(),
        topics: topics
            .into_iter()
            .map(|(name, partitions)| OffsetCommitRequestTopic { name, partitions, ..Default::default() })
            .collect(),
        ..Default::default()
    };
    let response = connection.send_version(&request, version).await?;
    let mut results = BTreeMap::new();
    for topic in response.topics {
        for partition in topic.partitions {
            let key =
                TopicPartition { topic: topic.name.as_str().into(), partition: partition.partition_index };
            let code = ErrorCode::from_code(partition.error_code);
            if is_about_coordinator(code) {
                return Err(code.into());
            }
            results.insert(key, code);
        }
    }
    Ok(results)
}

fn is_about_coordinator(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NOT_COORDINATOR
            | ErrorCode::COORDINATOR_NOT_AVAILABLE
            | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
    )
}

fn forget_if_moved<T>(
    cluster: &Cluster,
    group: &str,
    result: Result<T, ClientError>,
) -> Result<T, ClientError> {
    let moved = match &result {
        Err(error @ (ClientError::Disconnected { .. } | ClientError::Unreachable { .. })) => {
            error.is_retriable()
        }
        Err(error) => error.code().is_some_and(is_about_coordinator),
        Ok(_) => false,
    };
    if moved {
        cluster.forget_coordinator(CoordinatorKind::Group, group);
    }
    result
}

/// Partition numbers by topic, as most requests want them.
pub fn by_topic(partitions: &[TopicPartition]) -> BTreeMap<String, Vec<i32>> {
    let mut topics: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        topics.entry(partition.topic.to_string()).or_default().push(partition.partition);
    }
    topics
}
