//! A bound port: accepting, connection limits and the idle sweep.

use crate::connection::{Connection, SessionGuard};
use crate::loops::Loops;
use crate::registry::Connections;
use crate::warn_limit::WarnLimit;
use crate::{Peer, Service};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// What bounds a listener's connections.
#[derive(Debug, Clone)]
pub struct Limits {
    /// `socket.request.max.bytes`.
    pub max_request_bytes: usize,
    /// `max.connections`, over all listeners.
    pub max_connections: usize,
    /// `max.connections.per.ip`.
    pub max_connections_per_ip: usize,
    /// `connections.max.idle.ms`; `None` = never closed.
    pub max_idle: Option<Duration>,
    /// `socket.send.buffer.bytes`; `None` = the system's default.
    pub send_buffer: Option<usize>,
    /// `socket.receive.buffer.bytes`; `None` = the system's default.
    pub receive_buffer: Option<usize>,
    /// `socket.listen.backlog.size`.
    pub backlog: i32,
}

/// A listener to bind.
#[derive(Debug, Clone)]
pub struct ListenerConfig {
    /// Its name, for example `PLAINTEXT`.
    pub name: Arc<str>,
    /// Host to bind; empty = every address.
    pub host: String,
    /// Port to bind; 0 = one that is free.
    pub port: u16,
}

/// Why a port could not be bound.
#[derive(Debug)]
pub struct BindError {
    pub listener: Arc<str>,
    pub host: String,
    pub port: u16,
    pub source: io::Error,
}

impl std::fmt::Display for BindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = if self.host.is_empty() { "0.0.0.0" } else { &self.host };
        write!(f, "Socket server failed to bind to {host}:{}: {}.", self.port, self.source)?;
        match self.source.kind() {
            io::ErrorKind::AddrInUse => write!(
                f,
                " Another process serves this port: stop it, or change the port of listener {} in `listeners`.",
                self.listener
            ),
            io::ErrorKind::AddrNotAvailable => write!(
                f,
                " This machine has no such address: correct the host of listener {} in `listeners`.",
                self.listener
            ),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for BindError {}

/// A bound listener that does not accept yet. Connections wait in the backlog until [`Listener::start`].
pub struct Listener {
    name: Arc<str>,
    socket: std::net::TcpListener,
    local: SocketAddr,
}

pub(crate) struct ListenerShared<S> {
    pub(crate) name: Arc<str>,
    pub(crate) service: Arc<S>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) limits: Limits,
    loops: Arc<Loops>,
    pub(crate) warn_limit: WarnLimit,
    started: Instant,
}

impl<S> ListenerShared<S> {
    pub(crate) fn uptime_s(&self) -> u64 {
        self.started.elapsed().as_secs()
    }
}

impl Listener {
    /// Binds the port.
    pub fn bind(config: &ListenerConfig, limits: &Limits) -> Result<Self, BindError> {
        let fail = |source| BindError {
            listener: config.name.clone(),
            host: config.host.clone(),
            port: config.port,
            source,
        };
        let socket = bind_any(config, limits).map_err(fail)?;
        let local = socket.local_addr().map_err(fail)?;
        Ok(Self { name: config.name.clone(), socket, local })
    }

    /// The address that was bound, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The listener's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Starts accepting, on the caller's runtime; connections live on the loops. Ends when the returned tasks are
    /// aborted.
    pub fn start<S: Service>(
        self,
        service: Arc<S>,
        connections: Arc<Connections>,
        limits: Limits,
        loops: Arc<Loops>,
    ) -> io::Result<Vec<JoinHandle<()>>> {
        let socket = TcpListener::from_std(self.socket)?;
        let shared = Arc::new(ListenerShared {
            name: self.name,
            service,
            connections,
            limits,
            loops,
            warn_limit: WarnLimit::default(),
            started: Instant::now(),
        });
        let mut tasks = vec![tokio::spawn(accept(shared.clone(), socket))];
        if let Some(idle) = shared.limits.max_idle {
            tasks.push(tokio::spawn(sweep(shared, idle)));
        }
        Ok(tasks)
    }
}

fn bind_any(config: &ListenerConfig, limits: &Limits) -> io::Result<std::net::TcpListener> {
    if config.host.is_empty() || config.host == "0.0.0.0" {
        // As Java does: one socket for IPv4 and IPv6 where the machine has IPv6.
        return bind_one(SocketAddr::from(([0u16; 8], config.port)), limits)
            .or_else(|_| bind_one(SocketAddr::from(([0u8; 4], config.port)), limits));
    }
    let host = config.host.trim_start_matches('[').trim_end_matches(']');
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "the host name has no address");
    for address in (host, config.port).to_socket_addrs()? {
        match bind_one(address, limits) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn bind_one(address: SocketAddr, limits: &Limits) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    // The receive buffer must be set before listen for the window scale to follow it.
    if let Some(size) = limits.receive_buffer {
        socket.set_recv_buffer_size(size)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(limits.backlog)?;
    Ok(socket.into())
}

/// Wait after an accept error such as EMFILE, so that the loop does not spin.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

async fn accept<S: Service>(shared: Arc<ListenerShared<S>>, socket: TcpListener) {
    loop {
        match socket.accept().await {
            Ok((stream, remote)) => {
                if let Err(error) = admit(&shared, stream, remote) {
                    tracing::debug!(target: "kafka.network.Acceptor", "[{}] Connection from {remote} ended at once: {error}", shared.name);
                }
            }
            Err(error) => {
                if let Some(suppressed) = shared.warn_limit.admit() {
                    tracing::error!(target: "kafka.network.Acceptor", "[{}] Accepting a connection failed: {error} ({suppressed} similar lines suppressed). If the message says too many open files, raise the limit (ulimit -n).", shared.name);
                }
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

fn admit<S: Service>(
    shared: &Arc<ListenerShared<S>>,
    stream: TcpStream,
    remote: SocketAddr,
) -> io::Result<()> {
    let limits = &shared.limits;
    let refusal = if shared.connections.count_of(remote.ip()) >= limits.max_connections_per_ip {
        Some(format!(
            "more than max.connections.per.ip = {} connections from this address",
            limits.max_connections_per_ip
        ))
    } else if limits.max_connections != usize::MAX && shared.connections.count() >= limits.max_connections {
        Some(format!("the broker has max.connections = {} connections", limits.max_connections))
    } else {
        None
    };
    if let Some(reason) = refusal {
        if shared.warn_limit.admit().is_some() {
            tracing::info!(target: "kafka.network.ConnectionQuotas", "[{}] Rejected connection from {remote}: {reason}", shared.name);
        }
        return Ok(());
    }
    let _ = stream.set_nodelay(true);
    let options = socket2::SockRef::from(&stream);
    let _ = options.set_keepalive(true);
    if let Some(size) = limits.send_buffer {
        let _ = options.set_send_buffer_size(size);
    }
    let (id, mailbox) = shared.connections.register(remote.ip());
    mailbox.last_active_s.store(shared.uptime_s(), std::sync::atomic::Ordering::Relaxed);
    let local = stream.local_addr().unwrap_or(remote);
    let peer = Peer { connection_id: id, listener: shared.name.clone(), remote, local };
    let guard = SessionGuard::open(shared, peer);
    // Its readiness is watched by the loop it lives on, from here on.
    Connection::new(guard, remote, mailbox).start(stream.into_std()?, shared.loops.place());
    Ok(())
}

async fn sweep<S: Service>(shared: Arc<ListenerShared<S>>, idle: Duration) {
    let period = (idle / 4).clamp(Duration::from_secs(1), Duration::from_secs(30));
    loop {
        tokio::time::sleep(period).await;
        let ended = shared.connections.sweep(shared.uptime_s(), idle.as_secs().max(1));
        if ended > 0 {
            tracing::info!(target: "org.apache.kafka.common.network.Selector", "[{}] Closed {ended} connections that were idle for longer than connections.max.idle.ms", shared.name);
        }
    }
}
