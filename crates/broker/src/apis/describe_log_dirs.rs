//! DescribeLogDirs (key 35): the log directories, their partitions and sizes.

use super::Answer;
use crate::context::RequestContext;
use crate::node::Node;
use protocol::ErrorCode;
use protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::{LogDir, UnifiedLog};

pub(crate) fn handle(
    node: &Node,
    _: &mut RequestContext<'_>,
    request: DescribeLogDirsRequest,
) -> Answer<DescribeLogDirsResponse> {
    let wanted: Option<BTreeSet<(String, i32)>> = request.topics.map(|topics| {
        topics
            .into_iter()
            .flat_map(|topic| {
                topic.partitions.into_iter().map(move |partition| (topic.topic.clone(), partition))
            })
            .collect()
    });
    let logs: Vec<Arc<UnifiedLog>> = node
        .logs
        .all_logs()
        .into_iter()
        .filter(|log| {
            let partition = log.topic_partition();
            wanted
                .as_ref()
                .is_none_or(|wanted| wanted.contains(&(partition.topic.to_string(), partition.partition)))
        })
        .collect();
    let cordoned = node.cordoned_log_dirs();
    let describe = |dir: Arc<LogDir>| {
        let mut result = DescribeLogDirsResult {
            log_dir: dir.path().display().to_string(),
            ..DescribeLogDirsResult::default()
        };
        if dir.is_offline() {
            result.error_code = ErrorCode::KAFKA_STORAGE_ERROR.code();
            return result;
        }
        let space = match node.env.fs.space(dir.path()) {
            Ok(space) => space,
            Err(error) => {
                tracing::error!(target: "kafka.server.ReplicaManager", "[ReplicaManager broker={}] Error while describing replica in dir {}: {error}", node.node_id(), dir.path().display());
                result.error_code = ErrorCode::UNKNOWN_SERVER_ERROR.code();
                return result;
            }
        };
        let bytes = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        result.topics = topics_in(node, &logs, &dir);
        result.total_bytes = bytes(space.total);
        result.usable_bytes = bytes(space.usable);
        result.is_cordoned = cordoned.iter().any(|cordoned| *cordoned == dir.path());
        result
    };
    let results = node.logs.log_dirs().into_iter().map(describe).collect();
    Answer::Now(DescribeLogDirsResponse { results, ..DescribeLogDirsResponse::default() })
}

fn topics_in(node: &Node, logs: &[Arc<UnifiedLog>], dir: &Arc<LogDir>) -> Vec<DescribeLogDirsTopic> {
    let mut topics: BTreeMap<Arc<str>, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for log in logs.iter().filter(|log| Arc::ptr_eq(log.log_dir(), dir)) {
        let partition = log.topic_partition();
        topics.entry(partition.topic.clone()).or_default().push(DescribeLogDirsPartition {
            partition_index: partition.partition,
            partition_size: i64::try_from(log.size()).unwrap_or(i64::MAX),
            offset_lag: offset_lag(node, log),
            is_future_key: log.is_future(),
        });
    }
    topics
        .into_iter()
        .map(|(name, partitions)| DescribeLogDirsTopic { name: name.to_string(), partitions })
        .collect()
}

/// Behind the current replica for one on the move, else behind the high watermark; −1 when there is no current one.
fn offset_lag(node: &Node, log: &UnifiedLog) -> i64 {
    match node.logs.get_log(log.topic_partition()) {
        None => -1,
        Some(current) if log.is_future() => current.log_end_offset() - log.log_end_offset(),
        Some(current) => (current.high_watermark() - log.log_end_offset()).max(0),
    }
}
