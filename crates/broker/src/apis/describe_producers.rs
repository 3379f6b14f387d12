//! DescribeProducers (key 61): the idempotent producers that a partition remembers (KIP-664).

use super::Answer;
use crate::context::RequestContext;
use crate::node::Node;
use crate::partition::Partition;
use config::topic::validate_topic_name;
use protocol::ErrorCode;
use protocol::messages::describe_producers_response::{PartitionResponse, ProducerState, TopicResponse};
use protocol::messages::{DescribeProducersRequest, DescribeProducersResponse};
use std::sync::Arc;

pub(crate) fn handle(
    node: &Node,
    _: &mut RequestContext<'_>,
    request: DescribeProducersRequest,
) -> Answer<DescribeProducersResponse> {
    let topics = request
        .topics
        .into_iter()
        .map(|topic| {
            let partitions = topic
                .partition_indexes
                .iter()
                .map(|index| match found(node, &topic.name, *index) {
                    Ok(partition) => PartitionResponse {
                        partition_index: *index,
                        active_producers: partition
                            .active_producers()
                            .into_iter()
                            .map(|producer| ProducerState {
                                producer_id: producer.producer_id,
                                producer_epoch: producer.producer_epoch,
                                last_sequence: producer.last_sequence,
                                last_timestamp: producer.last_timestamp,
                                coordinator_epoch: producer.coordinator_epoch,
                                current_txn_start_offset: producer.current_txn_start_offset,
                            })
                            .collect(),
                        ..PartitionResponse::default()
                    },
                    Err((error, error_message)) => PartitionResponse {
                        partition_index: *index,
                        error_code: error.code(),
                        error_message,
                        ..PartitionResponse::default()
                    },
                })
                .collect();
            TopicResponse { name: topic.name, partitions }
        })
        .collect();
    Answer::Now(DescribeProducersResponse { topics, ..DescribeProducersResponse::default() })
}

/// The partition, or why not; only what concerns the topic is put in words.
fn found(node: &Node, topic: &str, index: i32) -> Result<Arc<Partition>, (ErrorCode, Option<String>)> {
    if let Err(error) = validate_topic_name(topic) {
        return Err((ErrorCode::from_code(error.error_code()), Some(error.message)));
    }
    let in_words = node.topic_id(topic).is_none();
    node.find_partition(topic, index).map_err(|error| (error, in_words.then(|| error.message().to_owned())))
}
