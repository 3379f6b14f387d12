//! One connection: read a frame, have it handled, write the answer, again.

use crate::frame::FrameReader;
use crate::listener::ListenerShared;
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

pub(crate) async fn run<S: Service>(
    mut guard: SessionGuard<S>,
    mut stream: TcpStream,
    remote: SocketAddr,
    mailbox: Arc<Mailbox>,
) {
    let shared = guard.shared.clone();
    let end = serve(&shared, &mut stream, &mut guard, &mailbox).await;
    if let End::Refused(reason) = end
        && let Some(suppressed) = shared.warn_limit.admit()
    {
        tracing::warn!(target: "org.apache.kafka.common.network.Selector", "[{}] Closing connection from {remote}: {reason}{}", shared.name, Suppressed(suppressed));
    }
}

struct Suppressed(u64);

impl std::fmt::Display for Suppressed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, " ({} similar lines suppressed)", self.0) }
    }
}

async fn serve<S: Service>(
    shared: &ListenerShared<S>,
    stream: &mut TcpStream,
    guard: &mut SessionGuard<S>,
    mailbox: &Mailbox,
) -> End {
    let (mut incoming, stream) = stream.split();
    let stream: &TcpStream = stream.as_ref();
    let mut reader = FrameReader::new(shared.limits.max_request_bytes);
    let mut sequence = 0;
    loop {
        let frame = match next_frame(shared, &mut incoming, &mut reader, mailbox).await {
            Ok(frame) => frame,
            Err(end) => return end,
        };
        sequence += 1;
        mailbox.expect(sequence);
        let Some(session) = guard.session.as_mut() else { return End::Peer };
        let request = RequestId { connection: guard.connection_id, sequence };
        let reply = match shared.service.handle(session, request, frame) {
            Handled::Reply(reply) => Some(reply),
            Handled::NoReply => None,
            Handled::Deferred => mailbox.take().await,
            Handled::Close(reason) => return End::Refused(reason),
        };
        if let Some(reply) = reply
            && let Err(error) = outgoing::write(stream, reply).await
        {
            return match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => End::Peer,
                _ => End::Refused(format!("writing the answer failed: {error}")),
            };
        }
        mailbox.last_active_s.store(shared.uptime_s(), Ordering::Relaxed);
    }
}

async fn next_frame<S: Service>(
    shared: &ListenerShared<S>,
    incoming: &mut ReadHalf<'_>,
    reader: &mut FrameReader,
    mailbox: &Mailbox,
) -> Result<Bytes, End> {
    loop {
        if let Some(frame) = reader.next_frame().map_err(|error| End::Refused(error.to_string()))? {
            return Ok(frame);
        }
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
