//! SaslHandshake (key 17): refused, as on every listener without SASL.

use super::Answer;
use crate::context::RequestContext;
use crate::node::Node;
use protocol::ErrorCode;
use protocol::messages::{SaslHandshakeRequest, SaslHandshakeResponse};

pub(crate) fn handle(
    _: &Node,
    _: &mut RequestContext<'_>,
    _: SaslHandshakeRequest,
) -> Answer<SaslHandshakeResponse> {
    Answer::Now(SaslHandshakeResponse {
        error_code: ErrorCode::ILLEGAL_SASL_STATE.code(),
        mechanisms: Vec::new(),
    })
}
