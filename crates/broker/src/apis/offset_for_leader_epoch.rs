//! OffsetForLeaderEpoch (key 23): where a leader epoch ended (KIP-101, KIP-320).

use super::Answer;
use crate::context::RequestContext;
use crate::node::Node;
use protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

pub(crate) fn handle(
    node: &Node,
    _: &mut RequestContext<'_>,
    request: OffsetForLeaderEpochRequest,
) -> Answer<OffsetForLeaderEpochResponse> {
    let topics = request
        .topics
        .into_iter()
        .map(|topic| {
            let partitions = topic
                .partitions
                .iter()
                .map(|asked| {
                    let found = node.find_partition(&topic.topic, asked.partition).and_then(|partition| {
                        partition.last_offset_for_epoch(asked.current_leader_epoch, asked.leader_epoch)
                    });
                    match found {
                        Ok((leader_epoch, end_offset)) => EpochEndOffset {
                            partition: asked.partition,
                            leader_epoch,
                            end_offset,
                            ..EpochEndOffset::default()
                        },
                        Err(error) => EpochEndOffset {
                            partition: asked.partition,
                            error_code: error.code(),
                            ..EpochEndOffset::default()
                        },
                    }
                })
                .collect();
            OffsetForLeaderTopicResult { topic: topic.topic, partitions }
        })
        .collect();
    Answer::Now(OffsetForLeaderEpochResponse { topics, ..OffsetForLeaderEpochResponse::default() })
}
