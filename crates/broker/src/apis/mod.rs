//! The request table: which APIs each kind of listener serves, and the way from a frame to a handler and back.
//!
//! Invariants
//! * What ApiVersions advertises is exactly what the tables below serve, in the versions of Apache Kafka 4.4.0.
//! * A frame that cannot be decoded, an API that is not served and a version out of range end the connection, as in
//!   Apache Kafka; ApiVersions alone answers an unknown version (KIP-511).

pub(crate) mod api_versions;
pub(crate) mod fetch;
pub(crate) mod produce;

use crate::context::{ListenerRole, RequestContext, Session};
use crate::node::Node;
use crate::reply::{Reply, ReplyTo, RequestToken};
use bytes::Bytes;
use protocol::{ApiKey, Decoder, Request, RequestHeader};
use storage::FileSlice;

/// What a handler gives back.
pub(crate) enum Answer<T> {
    Now(T),
    /// External records of the answer are these ranges.
    WithFiles(T, Vec<FileSlice>),
    /// The answer comes through the outbox.
    Later,
    /// The request gets no answer.
    Never,
    /// The connection must end; the text is logged.
    Close(String),
}

/// What becomes of a request, for the shell.
pub enum Outcome {
    Reply(Reply),
    NoReply,
    Deferred,
    Close(String),
}

macro_rules! tables {
    ($(#[$broker_doc:meta])* broker { $($key:ident => $handler:path),* $(,)? } controller { $($ckey:ident => $chandler:path),* $(,)? }) => {
        /// APIs served on broker listeners.
        pub(crate) const BROKER_APIS: &[ApiKey] = &[$(ApiKey::$key),*];
        /// APIs served on controller listeners.
        pub(crate) const CONTROLLER_APIS: &[ApiKey] = &[$(ApiKey::$ckey),*];

        fn dispatch(node: &Node, context: &mut RequestContext<'_>, body: &mut Decoder) -> Outcome {
            match (context.session.role, context.reply_to.api_key) {
                $((ListenerRole::Broker, ApiKey::$key) => run(node, context, body, $handler),)*
                $((ListenerRole::Controller, ApiKey::$ckey) => run(node, context, body, $chandler),)*
                (_, key) => Outcome::Close(format!("the request {} is not served on listener {}", key.name(), context.session.listener)),
            }
        }
    };
}

tables! {
    broker {
        Produce => produce::handle,
        Fetch => fetch::handle,
        ApiVersions => api_versions::handle,
    }
    controller {
        ApiVersions => api_versions::handle,
    }
}

fn run<R: Request>(
    node: &Node,
    context: &mut RequestContext<'_>,
    body: &mut Decoder,
    handler: fn(&Node, &mut RequestContext<'_>, R) -> Answer<R::Response>,
) -> Outcome {
    let reply_to = context.reply_to;
    let request = match R::decode(body, reply_to.api_version) {
        Ok(request) => request,
        Err(error) => return garbled(&reply_to, context.session, &error.to_string()),
    };
    let encoded = match handler(node, context, request) {
        Answer::Now(response) => reply_to.encode(&response),
        Answer::WithFiles(response, files) => reply_to.encode_with_files(&response, files),
        Answer::Later => return Outcome::Deferred,
        Answer::Never => return Outcome::NoReply,
        Answer::Close(reason) => return Outcome::Close(reason),
    };
    match encoded {
        Ok(reply) => Outcome::Reply(reply),
        Err(error) => Outcome::Close(format!("the answer to {} v{} cannot be encoded: {error}", reply_to.api_key.name(), reply_to.api_version)),
    }
}

fn garbled(reply_to: &ReplyTo, session: &Session, error: &str) -> Outcome {
    let software = if session.software_name.is_empty() { "unknown client" } else { &session.software_name };
    Outcome::Close(format!(
        "Error getting request for apiKey: {}, apiVersion: {}, client software: {software}: {error}",
        reply_to.api_key.name(),
        reply_to.api_version
    ))
}

/// Handles one frame.
pub(crate) fn handle_frame(node: &Node, session: &mut Session, token: RequestToken, frame: Bytes) -> Outcome {
    let mut decoder = Decoder::new(frame);
    let header = match RequestHeader::decode(&mut decoder) {
        Ok(header) => header,
        Err(error) => return Outcome::Close(format!("Error parsing request header: {error}")),
    };
    let reply_to =
        ReplyTo { token, api_key: header.api_key, api_version: header.api_version, correlation_id: header.correlation_id };
    if !is_served(session.role, header.api_key, header.api_version) {
        if header.api_key == ApiKey::ApiVersions {
            return api_versions::unsupported_version(node, session, reply_to);
        }
        return garbled(&reply_to, session, "this API or version is not served; the client may be older than Apache Kafka 2.1 (KIP-896)");
    }
    let client_id = header.client_id.unwrap_or_default();
    let mut context = RequestContext { session, now: node.now(), reply_to, client_id: &client_id };
    dispatch(node, &mut context, &mut decoder)
}

/// Whether a request of this version may be handled on such a listener.
fn is_served(role: ListenerRole, key: ApiKey, version: i16) -> bool {
    let table = match role {
        ListenerRole::Broker => BROKER_APIS,
        ListenerRole::Controller => CONTROLLER_APIS,
    };
    table.contains(&key) && key.valid_versions().contains(&version)
}
