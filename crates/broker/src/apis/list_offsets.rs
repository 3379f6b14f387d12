//! ListOffsets (key 2): offsets by timestamp and by the special timestamps.

use super::{Answer, group};
use crate::context::RequestContext;
use crate::node::Node;
use protocol::ErrorCode;
use protocol::messages::list_offsets_request::ListOffsetsPartition;
use protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

/// The end of the log: last stable offset or high watermark, by isolation level.
pub(crate) const LATEST_TIMESTAMP: i64 = -1;
/// The start of the log.
pub(crate) const EARLIEST_TIMESTAMP: i64 = -2;
/// The record with the largest timestamp (KIP-734), from version 7 on.
pub(crate) const MAX_TIMESTAMP: i64 = -3;
/// The start of what is on the local disk (KIP-405), from version 8 on.
pub(crate) const EARLIEST_LOCAL_TIMESTAMP: i64 = -4;
/// The end of what has been tiered (KIP-1005), from version 9 on.
pub(crate) const LATEST_TIERED_TIMESTAMP: i64 = -5;
/// The first offset that is not tiered yet (KIP-1023), from version 11 on.
pub(crate) const EARLIEST_PENDING_UPLOAD_TIMESTAMP: i64 = -6;

/// Answers name the leader epoch of the offset from this version on.
const FIRST_LEADER_EPOCH_VERSION: i16 = 4;

/// "Debugging" replica id: answers without being the leader.
const DEBUGGING_REPLICA_ID: i32 = -2;

pub(crate) fn handle(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: ListOffsetsRequest,
) -> Answer<ListOffsetsResponse> {
    let version = context.version();
    let known_isolation = (0..=1).contains(&request.isolation_level);
    let asker = Asker {
        version,
        read_committed: request.isolation_level == 1,
        is_client: request.replica_id == -1,
        debugging: request.replica_id == DEBUGGING_REPLICA_ID,
    };
    let topics = group(request.topics.into_iter().map(|topic| (topic.name, topic.partitions)), |partition| {
        partition.partition_index
    })
    .into_iter()
    .map(|(name, partitions)| {
        let partitions = partitions
            .iter()
            .map(|asked| match asked.as_slice() {
                [partition] if known_isolation => look_up(node, &name, partition, &asker),
                [partition] => failed(partition, ErrorCode::UNKNOWN_SERVER_ERROR),
                [partition, ..] => failed(partition, ErrorCode::INVALID_REQUEST),
                [] => ListOffsetsPartitionResponse::default(),
            })
            .collect();
        ListOffsetsTopicResponse { name, partitions }
    })
    .collect();
    Answer::Now(ListOffsetsResponse { topics, ..ListOffsetsResponse::default() })
}

struct Asker {
    version: i16,
    read_committed: bool,
    is_client: bool,
    debugging: bool,
}

impl Asker {
    /// Versions know only the special timestamps of their time; negative ones beyond are refused.
    fn knows(&self, timestamp: i64) -> bool {
        let first_version = match timestamp {
            0.. | LATEST_TIMESTAMP | EARLIEST_TIMESTAMP => 0,
            MAX_TIMESTAMP => 7,
            EARLIEST_LOCAL_TIMESTAMP => 8,
            LATEST_TIERED_TIMESTAMP => 9,
            EARLIEST_PENDING_UPLOAD_TIMESTAMP => 11,
            _ => return false,
        };
        self.version >= first_version
    }
}

fn look_up(
    node: &Node,
    topic: &str,
    asked: &ListOffsetsPartition,
    asker: &Asker,
) -> ListOffsetsPartitionResponse {
    if !asker.knows(asked.timestamp) {
        return failed(asked, ErrorCode::UNSUPPORTED_VERSION);
    }
    let partition = match node.find_partition(topic, asked.partition_index) {
        Ok(partition) => partition,
        Err(error) => return failed(asked, error),
    };
    let isolation = asker.is_client.then_some(asker.read_committed);
    match partition.list_offset(asked.timestamp, isolation, asked.current_leader_epoch, asker.debugging) {
        Ok(Some(found)) => ListOffsetsPartitionResponse {
            partition_index: asked.partition_index,
            timestamp: found.timestamp,
            offset: found.offset,
            leader_epoch: if asker.version >= FIRST_LEADER_EPOCH_VERSION { found.leader_epoch } else { -1 },
            ..ListOffsetsPartitionResponse::default()
        },
        Ok(None) => failed(asked, ErrorCode::NONE),
        Err(error) => failed(asked, error),
    }
}

/// No offset; with [`ErrorCode::NONE`] it says that no record fits.
fn failed(asked: &ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse {
    ListOffsetsPartitionResponse {
        partition_index: asked.partition_index,
        error_code: error.code(),
        ..ListOffsetsPartitionResponse::default()
    }
}
