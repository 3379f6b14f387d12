//! FindCoordinator (key 10): which broker coordinates a group. Creates `__consumer_offsets` at first use.

use super::Answer;
use crate::context::RequestContext;
use crate::metadata_view::{BrokerNode, brokers};
use crate::node::Node;
use protocol::ErrorCode;
use protocol::messages::find_coordinator_response::Coordinator;
use protocol::messages::{FindCoordinatorRequest, FindCoordinatorResponse};

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;
/// Several keys in one request from this version on (KIP-699).
const FIRST_BATCH_VERSION: i16 = 4;
/// Coordinators of share groups may be asked for from this version on (KIP-932).
const FIRST_SHARE_VERSION: i16 = 6;
/// The topic of the group coordinator.
const OFFSETS_TOPIC: &str = "__consumer_offsets";

pub(crate) fn handle(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: FindCoordinatorRequest,
) -> Answer<FindCoordinatorResponse> {
    if context.version() >= FIRST_BATCH_VERSION {
        let coordinators = request
            .coordinator_keys
            .into_iter()
            .map(|key| {
                let (error, broker) = find(node, context, request.key_type, &key);
                // A share coordinator's key that does not parse is refused without a word.
                let silent = error == ErrorCode::NONE
                    || (request.key_type == SHARE && error == ErrorCode::INVALID_REQUEST);
                let (node_id, host, port) =
                    broker.map_or((-1, String::new(), -1), |b| (b.id, b.host, b.port));
                Coordinator {
                    key,
                    node_id,
                    host,
                    port,
                    error_code: error.code(),
                    error_message: Some(if silent { String::new() } else { error.message().to_owned() }),
                }
            })
            .collect();
        return Answer::Now(FindCoordinatorResponse { coordinators, ..FindCoordinatorResponse::default() });
    }
    let (error, broker) = find(node, context, request.key_type, &request.key);
    let (node_id, host, port) = broker.map_or((-1, String::new(), -1), |b| (b.id, b.host, b.port));
    Answer::Now(FindCoordinatorResponse {
        error_code: error.code(),
        error_message: Some(error.message().to_owned()),
        node_id,
        host,
        port,
        ..FindCoordinatorResponse::default()
    })
}

/// A share coordinator's key is `group:topicId:partition`.
fn is_share_key(key: &str) -> bool {
    let mut parts = key.rsplitn(3, ':');
    let (partition, id, group) = (parts.next(), parts.next(), parts.next());
    partition.is_some_and(|text| text.parse::<i32>().is_ok())
        && id.is_some_and(|text| text.parse::<protocol::Uuid>().is_ok())
        && group.is_some_and(|text| !text.is_empty())
}

fn find(
    node: &Node,
    context: &RequestContext<'_>,
    key_type: i8,
    key: &str,
) -> (ErrorCode, Option<BrokerNode>) {
    match key_type {
        GROUP => {}
        SHARE if context.version() < FIRST_SHARE_VERSION || !is_share_key(key) => {
            return (ErrorCode::INVALID_REQUEST, None);
        }
        // No coordinator of these kinds exists in this cluster; a retriable error would keep clients waiting for ever.
        TRANSACTION | SHARE => return (ErrorCode::UNSUPPORTED_VERSION, None),
        _ => return (ErrorCode::INVALID_REQUEST, None),
    }
    let image = node.image();
    let Some(topic) = image.topics.topic_by_name(OFFSETS_TOPIC) else {
        node.auto_create_topic(context.now, OFFSETS_TOPIC);
        return (ErrorCode::COORDINATOR_NOT_AVAILABLE, None);
    };
    let partition = coordinator_group::partition_for(key, topic.partitions.len() as i32);
    let leader = topic.partitions.get(&partition).map(|partition| partition.leader);
    let broker = brokers(&image, &context.session.listener, false)
        .into_iter()
        .find(|broker| Some(broker.id) == leader);
    match broker {
        Some(broker) => (ErrorCode::NONE, Some(broker)),
        None => (ErrorCode::COORDINATOR_NOT_AVAILABLE, None),
    }
}
