//! Listeners, framing and socket writes: the part of the shell that turns bytes into request frames and back.
//!
//! Owns: the threads of connections, accept loops, per-connection read and write loops, the registry that delivers
//! late replies, connection limits and the idle sweeper. It decides nothing about requests: a [`Service`] does.
//!
//! Invariants
//! * One request of a connection is in work at a time and replies leave in request order, as in Apache Kafka,
//!   whose channel is muted until its answer is queued.
//! * A frame's buffer grows with the bytes that arrived, never with the length that a peer announced.
//! * No lock is held across `.await`, and a file range that is not in the page cache is read in on a blocking
//!   thread before `sendfile` touches it, so that one cold reader never stalls other connections.
//!
//! What is absent on purpose: TLS, SASL and quotas, which wrap the same loops when they come.

mod connection;
mod frame;
mod listener;
mod loops;
mod outgoing;
mod registry;
mod warn_limit;

pub use frame::{FrameError, FrameReader};
pub use listener::{BindError, Limits, Listener, ListenerConfig};
pub use loops::{LoopThreads, Loops};
pub use outgoing::{FileRange, OutChunk, Outgoing};
pub use registry::{Connections, RequestId};

use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::Arc;

/// What a service may know of the connection that a request arrived on.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Identifies the connection for the life of this process.
    pub connection_id: u64,
    /// Name of the listener that accepted it, for example `PLAINTEXT`.
    pub listener: Arc<str>,
    /// The client's address.
    pub remote: SocketAddr,
    /// Our address that it connected to.
    pub local: SocketAddr,
}

/// What became of one request.
pub enum Handled {
    /// The answer is ready.
    Reply(Outgoing),
    /// The request wants no answer (Produce with acks=0).
    NoReply,
    /// The answer comes later through [`Connections::deliver`].
    Deferred,
    /// The connection has to be closed; the text says why and is logged with the peer's address.
    Close(String),
}

/// The request processor behind the listeners.
pub trait Service: Send + Sync + 'static {
    /// Per-connection memory of the service.
    type Session: Send + 'static;

    /// A connection was accepted.
    fn open_session(&self, peer: Peer) -> Self::Session;

    /// Handles one frame, without its size prefix. Must not wait for a disk or another request.
    fn handle(&self, session: &mut Self::Session, request: RequestId, frame: Bytes) -> Handled;

    /// The connection is gone.
    fn close_session(&self, session: Self::Session);
}
