//! InitProducerId (key 22): an id for an idempotent producer (KIP-98). Transactional ids are not served.

use super::Answer;
use crate::context::RequestContext;
use crate::controller_service::{ControllerRequest, Origin};
use crate::node::Node;
use crate::producer_ids::NextId;
use crate::reply::ReplyTo;
use protocol::ErrorCode;
use protocol::messages::{
    AllocateProducerIdsRequest, AllocateProducerIdsResponse, InitProducerIdRequest, InitProducerIdResponse,
};

pub(crate) fn handle(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: InitProducerIdRequest,
) -> Answer<InitProducerIdResponse> {
    if let Some(id) = request.transactional_id {
        let error = if id.is_empty() { ErrorCode::INVALID_REQUEST } else { ErrorCode::UNSUPPORTED_VERSION };
        return Answer::Now(failed(error));
    }
    if (request.producer_id == -1) != (request.producer_epoch == -1) {
        return Answer::Now(failed(ErrorCode::INVALID_REQUEST));
    }
    let (next, must_ask) = {
        let mut ids = node.producer_ids.lock();
        let next = ids.take(context.reply_to);
        (next, ids.must_ask())
    };
    if must_ask {
        let request =
            AllocateProducerIdsRequest { broker_id: node.node_id(), broker_epoch: node.broker_epoch() };
        node.submit(ControllerRequest::AllocateProducerIds(request), Origin::ProducerIds);
    }
    match next {
        NextId::Now(id) => Answer::Now(granted(id)),
        NextId::Parked => Answer::Later,
    }
}

fn granted(producer_id: i64) -> InitProducerIdResponse {
    InitProducerIdResponse { producer_id, producer_epoch: 0, ..InitProducerIdResponse::default() }
}

fn failed(error: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse {
        error_code: error.code(),
        producer_id: -1,
        producer_epoch: -1,
        ..InitProducerIdResponse::default()
    }
}

/// The controller's answer to our request for a block.
pub(crate) fn handle_block(node: &Node, response: &AllocateProducerIdsResponse) {
    if response.error_code == ErrorCode::NONE.code() {
        let served = node
            .producer_ids
            .lock()
            .handle_block(response.producer_id_start, i64::from(response.producer_id_len));
        for (to, id) in served {
            node.reply(to, &granted(id));
        }
        return;
    }
    let waiting: Vec<ReplyTo> = node.producer_ids.lock().handle_failure();
    for to in waiting {
        node.reply(to, &failed(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS));
    }
}
