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
use storage::UnifiedLog;

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
        .logs()
        .into_iter()
        .filter(|log| {
            let partition = log.topic_partition();
            wanted
                .as_ref()
                .is_none_or(|wanted| wanted.contains(&(partition.topic.to_string(), partition.partition)))
        })
        .collect();
    let cordoned: BTreeSet<String> = node.settings().cordoned_log_dirs().iter().cloned().collect();
    let results = node
        .logs
        .log_dirs()
        .into_iter()
        .map(|dir| {
            let path = dir.path().display().to_string();
            let is_cordoned = cordoned.contains(&path) || cordoned.contains("*");
            if dir.is_offline() {
                return DescribeLogDirsResult {
                    error_code: ErrorCode::KAFKA_STORAGE_ERROR.code(),
                    log_dir: path,
                    is_cordoned,
                    ..DescribeLogDirsResult::default()
                };
            }
            let mut topics: BTreeMap<Arc<str>, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
            for log in logs.iter().filter(|log| Arc::ptr_eq(log.log_dir(), &dir)) {
                let partition = log.topic_partition();
                topics.entry(partition.topic.clone()).or_default().push(DescribeLogDirsPartition {
                    partition_index: partition.partition,
                    partition_size: i64::try_from(log.size()).unwrap_or(i64::MAX),
                    offset_lag: (log.high_watermark() - log.log_end_offset()).max(0),
                    is_future_key: log.is_future(),
                });
            }
            let space = node.env.fs.space(dir.path()).ok();
            let bytes = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
            DescribeLogDirsResult {
                error_code: ErrorCode::NONE.code(),
                log_dir: path,
                topics: topics
                    .into_iter()
                    .map(|(name, partitions)| DescribeLogDirsTopic { name: name.to_string(), partitions })
                    .collect(),
                total_bytes: space.map_or(-1, |space| bytes(space.total)),
                usable_bytes: space.map_or(-1, |space| bytes(space.usable)),
                is_cordoned,
            }
        })
        .collect();
    Answer::Now(DescribeLogDirsResponse { results, ..DescribeLogDirsResponse::default() })
}
