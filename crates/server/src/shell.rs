//! The node's way back to the sockets and threads: delivers late answers and wakes the threads that wait for work.

use broker::{NodeEvent, Outbox, Outcome, Reply, RequestToken, Session};
use bytes::Bytes;
use network::{Connections, FileRange, Handled, OutChunk, Outgoing, Peer, RequestId};
use parking_lot::{Condvar, Mutex};
use protocol::Chunk;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Lets one thread sleep until there is something to do.
#[derive(Default)]
pub(crate) struct Waker {
    woken: Mutex<bool>,
    condition: Condvar,
}

impl Waker {
    pub(crate) fn wake(&self) {
        *self.woken.lock() = true;
        self.condition.notify_one();
    }

    /// Wakes every thread that waits; one that does not finds it out when it looks for work again.
    pub(crate) fn wake_all(&self) {
        *self.woken.lock() = true;
        self.condition.notify_all();
    }

    /// Returns when woken, or after `timeout`; at once when woken since the last call.
    pub(crate) fn wait(&self, timeout: Option<Duration>) {
        let mut woken = self.woken.lock();
        if !*woken {
            match timeout {
                Some(timeout) => {
                    self.condition.wait_for(&mut woken, timeout);
                }
                None => self.condition.wait(&mut woken),
            }
        }
        *woken = false;
    }
}

/// See the file's header.
pub(crate) struct Shell {
    pub(crate) connections: Arc<Connections>,
    pub(crate) timers: Waker,
    pub(crate) controller: Waker,
    pub(crate) loader: Waker,
    pub(crate) log_dirs: Waker,
    pub(crate) movers: Waker,
    events: UnboundedSender<NodeEvent>,
}

impl Shell {
    /// The shell and the events that its node will raise.
    pub(crate) fn new() -> (Arc<Self>, UnboundedReceiver<NodeEvent>) {
        let (events, receiver) = unbounded_channel();
        let shell = Self {
            connections: Arc::default(),
            timers: Waker::default(),
            controller: Waker::default(),
            loader: Waker::default(),
            log_dirs: Waker::default(),
            movers: Waker::default(),
            events,
        };
        (Arc::new(shell), receiver)
    }
}

impl Outbox for Shell {
    fn deliver(&self, to: RequestToken, reply: Option<Reply>) {
        self.connections
            .deliver(RequestId { connection: to.connection, sequence: to.sequence }, reply.map(outgoing));
    }

    fn wake_timers(&self) {
        self.timers.wake();
    }

    fn wake_controller(&self) {
        self.controller.wake();
    }

    fn wake_loader(&self) {
        self.loader.wake();
    }

    fn wake_log_dirs(&self) {
        self.log_dirs.wake();
    }

    fn wake_movers(&self) {
        self.movers.wake_all();
    }

    fn event(&self, event: NodeEvent) {
        // Nobody listens any more while the process ends.
        let _ = self.events.send(event);
    }
}

/// Puts the file ranges of an answer into their places.
fn outgoing(reply: Reply) -> Outgoing {
    let Reply { encoded, files } = reply;
    let chunks = encoded
        .chunks
        .into_iter()
        .filter_map(|chunk| match chunk {
            Chunk::Bytes(bytes) => Some(OutChunk::Bytes(bytes)),
            Chunk::External { token, len } => {
                let slice = files.get(usize::try_from(token).ok()?)?;
                Some(OutChunk::File(FileRange { file: slice.file.clone(), position: slice.position, len }))
            }
        })
        .collect();
    Outgoing { chunks }
}

/// A node behind a listener.
pub(crate) struct NodeService {
    pub(crate) node: Arc<broker::Node>,
    pub(crate) role: broker::ListenerRole,
}

impl network::Service for NodeService {
    type Session = Session;

    fn open_session(&self, peer: Peer) -> Session {
        Session::new(peer.connection_id, peer.listener, self.role, peer.remote)
    }

    fn handle(&self, session: &mut Session, request: RequestId, frame: Bytes) -> Handled {
        let token = RequestToken { connection: request.connection, sequence: request.sequence };
        match self.node.handle(session, token, frame) {
            Outcome::Reply(reply) => Handled::Reply(outgoing(reply)),
            Outcome::NoReply => Handled::NoReply,
            Outcome::Deferred => Handled::Deferred,
            Outcome::Close(reason) => Handled::Close(reason),
        }
    }

    fn close_session(&self, session: Session) {
        self.node.close_session(&session);
    }
}
