//! AlterReplicaLogDirs (key 34): moves replicas of this broker to other log directories, or says where they are to be made
//! (KIP-113).

use super::Answer;
use crate::context::RequestContext;
use crate::node::Node;
use protocol::ErrorCode;
use protocol::messages::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use protocol::messages::{AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse};
use record::{Time, TopicPartition};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use storage::LogDirError;

/// Longest file name that file systems take.
const MAX_NAME: usize = 255;

/// The work makes and renames directories: another thread does it.
pub(crate) fn handle(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: AlterReplicaLogDirsRequest,
) -> Answer<AlterReplicaLogDirsResponse> {
    node.queue_alter_log_dirs(context.reply_to, request);
    Answer::Later
}

pub(crate) fn alter(
    node: &Node,
    now: Time,
    request: AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse {
    // A partition named twice goes to the last directory.
    let mut wanted: BTreeMap<(String, i32), String> = BTreeMap::new();
    for dir in request.dirs {
        for topic in dir.topics {
            for partition in topic.partitions {
                wanted.insert((topic.name.clone(), partition), dir.path.clone());
            }
        }
    }
    let mut results: Vec<AlterReplicaLogDirTopicResult> = Vec::new();
    for ((topic, partition_index), dir) in wanted {
        let name = TopicPartition::new(topic, partition_index);
        let outcome = alter_one(node, now, &name, &dir);
        if let Err(error) = outcome {
            tracing::warn!(target: "kafka.server.ReplicaManager", "[ReplicaManager broker={}] Unable to alter log dirs for {name}: {}", node.node_id(), error.name());
        }
        let error_code = outcome.err().unwrap_or(ErrorCode::NONE).code();
        let result = AlterReplicaLogDirPartitionResult { partition_index, error_code };
        match results.last_mut().filter(|last| *last.topic_name == *name.topic) {
            Some(last) => last.partitions.push(result),
            None => results.push(AlterReplicaLogDirTopicResult {
                topic_name: name.topic.to_string(),
                partitions: vec![result],
            }),
        }
    }
    AlterReplicaLogDirsResponse { results, ..AlterReplicaLogDirsResponse::default() }
}

fn alter_one(node: &Node, now: Time, name: &TopicPartition, path: &str) -> Result<(), ErrorCode> {
    // `topic-0.<unique id>-future`
    if storage::names::log_future_dir_name(name, [0; 16]).len() > MAX_NAME {
        return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
    }
    let dir = node.logs.log_dir(Path::new(path)).ok_or(ErrorCode::LOG_DIR_NOT_FOUND)?;
    if dir.is_offline() {
        return Err(ErrorCode::KAFKA_STORAGE_ERROR);
    }
    if node.cordoned_log_dirs().iter().any(|cordoned| *cordoned == dir.path()) {
        return Err(ErrorCode::INVALID_REPLICA_ASSIGNMENT);
    }
    let storage = |error: LogDirError| {
        tracing::error!(target: "kafka.server.ReplicaManager", "[ReplicaManager broker={}] Error while changing replica dir for partition {name}: {error}", node.node_id());
        ErrorCode::KAFKA_STORAGE_ERROR
    };
    let found = node.find_partition(&name.topic, name.partition);
    if matches!(found, Err(ErrorCode::KAFKA_STORAGE_ERROR)) {
        return Err(ErrorCode::KAFKA_STORAGE_ERROR);
    }
    if found.is_ok()
        && let Some(future) = node.logs.get_future_log(name)
        && !Arc::ptr_eq(future.log_dir(), &dir)
    {
        node.cancel_move(now, name).map_err(|error| storage(error.into()))?;
    }
    node.logs.prefer_dir(name, &dir);
    let partition = found.map_err(|error| match error {
        // It may be given to this broker later; then it is made there.
        ErrorCode::NOT_LEADER_OR_FOLLOWER => ErrorCode::REPLICA_NOT_AVAILABLE,
        other => other,
    })?;
    if Arc::ptr_eq(partition.log().log_dir(), &dir) {
        tracing::info!(target: "kafka.cluster.Partition", "[Partition {name} broker={}] Current log directory {path} is same as requested log dir {path}. Skipping future replica creation.", node.node_id());
        return Ok(());
    }
    node.logs.get_or_create_future_log(name, &dir, now).map_err(storage)?;
    let topic_id = node.topic_id(&name.topic).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    node.resume_move(now, name, topic_id);
    Ok(())
}
