//! One connection: read a frame, have it handled, write the answer, again; between two requests it may move to another
//! event loop.

use crate::frame::FrameReader;
use crate::listener::ListenerShared;
use crate::loops::Place;
use crate::outgoing;
use crate::registry::{Mailbox, RequestId};
use crate::{Handled, Peer, Service};
use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::ReadHalf;

/// A peer that sends requests faster than they are handled lets others have their turn after so many of them.
const REQUESTS_IN_A_ROW: u32 = 16;

/// Why a connection's loop ended.
enum End {
    /// The peer closed or reset; nothing to say.
    Peer,
    /// We close, and say why.
    Refused(String),
}

/// Owns the session so that it is closed however the task ends, an abort included.
pub(crate) struct SessionGuard<S: Service> {
    shared: Arc<ListenerShared<S>>,
    session: Option<S::Session>,
    connection_id: u64,
}

impl<S: Service> SessionGuard<S> {
    pub(crate) fn open(shared: &Arc<ListenerShared<S>>, peer: Peer) -> Self {
        let connection_id = peer.connection_id;
        Self { shared: shared.clone(), session: Some(shared.service.open_session(peer)), connection_id }
    }
}

impl<S: Service> Drop for SessionGuard<S> {
    fn drop(&mut self) {
        self.shared.connections.unregister(self.connection_id);
        if let Some(session) = self.session.take() {
            self.shared.service.close_session(session);
        }
    }
}

/// A connection between two requests.
pub(crate) struct Connection<S: Service> {
    guard: SessionGuard<S>,
    remote: SocketAddr,
    mailbox: Arc<Mailbox>,
    reader: FrameReader,
    /// Counts its requests.
    sequence: u64,
}

/// Why a connection's task ended.
enum Outcome {
    End(End),
    /// It goes on at another place.
    Move(Place),
}

impl<S: Service> Connection<S> {
    pub(crate) fn new(guard: SessionGuard<S>, remote: SocketAddr, mailbox: Arc<Mailbox>) -> Self {
        let reader = FrameReader::new(guard.shared.limits.max_request_bytes);
        Connection { guard, remote, mailbox, reader, sequence: 0 }
    }

    /// Starts its task at the place; until the task runs, nobody watches the socket.
    pub(crate) fn start(self, stream: std::net::TcpStream, place: Place) {
        let Some(handle) = place.handle().cloned() else { return };
        let (shared, id) = (self.guard.shared.clone(), self.guard.connection_id);
        let task = handle.spawn(self.run(stream, place));
        shared.connections.set_abort(id, task.abort_handle());
    }

    async fn run(mut self, stream: std::net::TcpStream, mut place: Place) {
        let outcome = match TcpStream::from_std(stream) {
            Ok(mut stream) => match serve(&mut self, &mut stream, &mut place).await {
                Outcome::Move(next) => match stream.into_std() {
                    Ok(stream) => return self.start(stream, next),
                    Err(error) => Outcome::End(End::Refused(format!("moving it failed: {error}"))),
                },
                end => end,
            },
            Err(error) => Outcome::End(End::Refused(format!("watching it failed: {error}"))),
        };
        let shared = &self.guard.shared;
        if let Outcome::End(End::Refused(reason)) = outcome
            && let Some(suppressed) = shared.warn_limit.admit()
        {
            tracing::warn!(target: "org.apache.kafka.common.network.Selector", "[{}] Closing connection from {}: {reason}{}", shared.name, self.remote, Suppressed(suppressed));
        }
    }
}

struct Suppressed(u64);

impl std::fmt::Display for Suppressed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, " ({} similar lines suppressed)", self.0) }
    }
}

async fn serve<S: Service>(
    connection: &mut Connection<S>,
    stream: &mut TcpStream,
    place: &mut Place,
) -> Outcome {
    let shared = connection.guard.shared.clone();
    let (mut incoming, stream) = stream.split();
    let stream: &TcpStream = stream.as_ref();
    let Connection { guard, mailbox, reader, sequence, .. } = connection;
    let mut in_a_row = 0;
    loop {
        let frame = match next_frame(&shared, &mut incoming, reader, mailbox, &mut in_a_row).await {
            Ok(frame) => frame,
            Err(end) => return Outcome::End(end),
        };
        *sequence += 1;
        mailbox.expect(*sequence);
        let Some(session) = guard.session.as_mut() else { return Outcome::End(End::Peer) };
        let request = RequestId { connection: guard.connection_id, sequence: *sequence };
        let reply = match shared.service.handle(session, request, frame) {
            Handled::Reply(reply) => Some(reply),
            Handled::NoReply => None,
            Handled::Deferred => mailbox.take().await,
            Handled::Close(reason) => return Outcome::End(End::Refused(reason)),
        };
        if let Some(reply) = reply
            && let Err(error) = outgoing::write(stream, reply).await
        {
            return Outcome::End(match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => End::Peer,
                _ => End::Refused(format!("writing the answer failed: {error}")),
            });
        }
        mailbox.last_active_s.store(shared.uptime_s(), Ordering::Relaxed);
        if let Some(next) = place.after_request() {
            return Outcome::Move(next);
        }
    }
}

async fn next_frame<S: Service>(
    shared: &ListenerShared<S>,
    incoming: &mut ReadHalf<'_>,
    reader: &mut FrameReader,
    mailbox: &Mailbox,
    in_a_row: &mut u32,
) -> Result<Bytes, End> {
    loop {
        if let Some(frame) = reader.next_frame().map_err(|error| End::Refused(error.to_string()))? {
            *in_a_row += 1;
            if *in_a_row == REQUESTS_IN_A_ROW {
                *in_a_row = 0;
                tokio::task::yield_now().await;
            }
            return Ok(frame);
        }
        *in_a_row = 0;
        reader.release_when_idle();
        incoming.readable().await.map_err(|_| End::Peer)?;
        let buffer = reader.spare().map_err(|error| End::Refused(error.to_string()))?;
        // A read that does not fill the buffer clears the socket's readiness, which saves the one that finds it empty.
        match incoming.read_buf(buffer).await {
            Ok(0) => return Err(End::Peer),
            Ok(_) => mailbox.last_active_s.store(shared.uptime_s(), Ordering::Relaxed),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(End::Peer),
        }
    }
}
