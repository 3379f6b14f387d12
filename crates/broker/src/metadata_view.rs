//! How the metadata image looks to clients: endpoints by listener, partitions with their errors, topic names.

use metadata::image::TopicImage;
use metadata::{MetadataImage, PartitionRegistration};
use protocol::ErrorCode;
use std::collections::BTreeMap;

/// Every operation that exists on a topic, as a bit set (KIP-430); told where no authorizer restricts it.
pub(crate) const ALL_TOPIC_OPERATIONS: i32 = 3576;
/// Every operation that exists on the cluster.
pub(crate) const ALL_CLUSTER_OPERATIONS: i32 = 8096;
/// "Not asked for."
pub(crate) const OPERATIONS_NOT_ASKED: i32 = i32::MIN;

/// Longest topic name.
const MAX_NAME_LENGTH: usize = 249;

/// Topics that the cluster itself owns.
pub fn is_internal_topic(name: &str) -> bool {
    matches!(name, "__consumer_offsets" | "__transaction_state" | "__share_group_state")
}

/// Whether a topic may have this name.
pub fn is_valid_topic_name(name: &str) -> bool {
    !name.is_empty()
        && name != "."
        && name != ".."
        && name.len() <= MAX_NAME_LENGTH
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// The error of a topic that does not exist, which depends on whether it could.
pub(crate) fn missing_topic_error(name: &str) -> ErrorCode {
    if is_valid_topic_name(name) {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    } else {
        ErrorCode::INVALID_TOPIC_EXCEPTION
    }
}

/// A broker as clients of one listener reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokerNode {
    pub(crate) id: i32,
    pub(crate) host: String,
    pub(crate) port: i32,
    pub(crate) rack: Option<String>,
    pub(crate) fenced: bool,
}

/// The brokers that have the listener; without fenced ones unless asked for.
pub(crate) fn brokers(image: &MetadataImage, listener: &str, with_fenced: bool) -> Vec<BrokerNode> {
    let mut nodes: Vec<BrokerNode> = image
        .cluster
        .brokers
        .iter()
        .filter(|(_, broker)| with_fenced || !broker.fenced)
        .filter_map(|(id, broker)| {
            let endpoint = broker.listeners.get(listener)?;
            Some(BrokerNode {
                id: *id,
                host: endpoint.host.clone(),
                port: i32::from(endpoint.port),
                rack: broker.rack.clone(),
                fenced: broker.fenced,
            })
        })
        .collect();
    nodes.sort_by_key(|node| node.id);
    nodes
}

/// A partition as clients of one listener see it.
pub(crate) struct PartitionView {
    pub(crate) error: ErrorCode,
    pub(crate) leader: i32,
    pub(crate) leader_epoch: i32,
    pub(crate) replicas: Vec<i32>,
    pub(crate) isr: Vec<i32>,
    pub(crate) offline: Vec<i32>,
}

/// What old and new versions of Metadata want told as an error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ViewOptions {
    /// Version 0: a replica that is down is an error of the partition.
    pub(crate) error_unavailable_replicas: bool,
    /// Version 6 and above: a leader without the listener is LISTENER_NOT_FOUND instead of LEADER_NOT_AVAILABLE.
    pub(crate) error_missing_listener: bool,
}

pub(crate) fn partition_view(
    image: &MetadataImage,
    partition: &PartitionRegistration,
    listener: &str,
    options: ViewOptions,
) -> PartitionView {
    let reachable = |id: &i32| {
        image
            .cluster
            .broker(*id)
            .is_some_and(|broker| !broker.fenced && broker.listeners.contains_key(listener))
    };
    let is_offline = |id: &i32| {
        image.cluster.broker(*id).is_none_or(|broker| {
            broker.fenced
                || partition.directory(*id).is_some_and(|directory| !broker.has_online_dir(&directory))
        })
    };
    let offline: Vec<i32> = partition.replicas.iter().copied().filter(|id| is_offline(id)).collect();
    let listed = |ids: &[i32]| -> Vec<i32> {
        ids.iter().copied().filter(|id| !options.error_unavailable_replicas || reachable(id)).collect()
    };
    let leader = image.cluster.broker(partition.leader).filter(|broker| !broker.fenced);
    let (error, leader_id) = match leader {
        Some(broker) if broker.listeners.contains_key(listener) => {
            let replicas_missing = options.error_unavailable_replicas
                && partition.replicas.iter().chain(&partition.isr).any(|id| !reachable(id));
            let error = if replicas_missing { ErrorCode::REPLICA_NOT_AVAILABLE } else { ErrorCode::NONE };
            (error, partition.leader)
        }
        Some(_) if options.error_missing_listener => (ErrorCode::LISTENER_NOT_FOUND, -1),
        _ => (ErrorCode::LEADER_NOT_AVAILABLE, -1),
    };
    PartitionView {
        error,
        leader: leader_id,
        leader_epoch: partition.leader_epoch,
        replicas: listed(&partition.replicas),
        isr: listed(&partition.isr),
        offline,
    }
}

/// A topic's partitions in order of their index.
pub(crate) fn partitions_in_order(topic: &TopicImage) -> BTreeMap<i32, &PartitionRegistration> {
    topic.partitions.iter().map(|(index, partition)| (*index, &**partition)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_names_follow_the_rule() {
        for (name, valid) in [
            ("a", true),
            ("a.b_c-D9", true),
            ("", false),
            (".", false),
            ("..", false),
            ("...", true),
            ("ä", false),
            ("a/b", false),
            (&"x".repeat(249), true),
            (&"x".repeat(250), false),
        ] {
            assert_eq!(is_valid_topic_name(name), valid, "{name}");
        }
    }
}
