//! DescribeProducers (key 61): the idempotent producers that a partition remembers (KIP-664).

use super::Answer;
use crate::context::RequestContext;
use crate::node::Node;
use protocol::messages::describe_producers_response::{PartitionResponse, ProducerState, TopicResponse};
use protocol::messages::{DescribeProducersRequest, DescribeProducersResponse};

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
                .map(|index| match node.find_partition(&topic.name, *index) {
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
                    Err(error) => PartitionResponse {
                        partition_index: *index,
                        error_code: error.code(),
                        error_message: Some(error.message().to_owned()),
                        ..PartitionResponse::default()
                    },
                })
                .collect();
            TopicResponse { name: topic.name, partitions }
        })
        .collect();
    Answer::Now(DescribeProducersResponse { topics, ..DescribeProducersResponse::default() })
}
