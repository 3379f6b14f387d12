//! DeleteRecords (key 21): moves a partition's log start offset forward (KIP-107).

use super::{Answer, group};
use crate::context::RequestContext;
use crate::metadata_view::is_internal_topic;
use crate::node::Node;
use protocol::ErrorCode;
use protocol::messages::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};

/// "Not known": the low watermark of a partition that failed.
const INVALID_LOW_WATERMARK: i64 = -1;

pub(crate) fn handle(
    node: &Node,
    _: &mut RequestContext<'_>,
    request: DeleteRecordsRequest,
) -> Answer<DeleteRecordsResponse> {
    let topics = group(request.topics.into_iter().map(|topic| (topic.name, topic.partitions)), |partition| {
        partition.partition_index
    });
    let topics = topics
        .into_iter()
        .map(|(name, partitions)| {
            let partitions = partitions
                .iter()
                .filter_map(|asked| asked.last())
                .map(|asked| {
                    let deleted = if is_internal_topic(&name) {
                        Err(ErrorCode::INVALID_TOPIC_EXCEPTION)
                    } else {
                        node.find_partition(&name, asked.partition_index)
                            .and_then(|partition| partition.delete_records(asked.offset))
                    };
                    DeleteRecordsPartitionResult {
                        partition_index: asked.partition_index,
                        low_watermark: deleted.unwrap_or(INVALID_LOW_WATERMARK),
                        error_code: deleted.err().unwrap_or(ErrorCode::NONE).code(),
                    }
                })
                .collect();
            DeleteRecordsTopicResult { name, partitions }
        })
        .collect();
    Answer::Now(DeleteRecordsResponse { topics, ..DeleteRecordsResponse::default() })
}
