//! What a handler knows of the request besides its body.

use crate::purgatory::DelayedFetch;
use crate::reply::ReplyTo;
use record::Time;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

/// Which table of APIs a connection is served from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerRole {
    Broker,
    Controller,
}

/// A connection as the node sees it.
pub struct Session {
    pub connection: u64,
    pub listener: Arc<str>,
    pub role: ListenerRole,
    pub remote: SocketAddr,
    /// `/127.0.0.1`, as Apache Kafka shows hosts to users.
    pub client_host: Arc<str>,
    /// From ApiVersions v3 and above; empty before.
    pub software_name: String,
    pub software_version: String,
    /// The fetch of this connection that waits for data, if one does.
    pub(crate) parked: Weak<DelayedFetch>,
}

impl Session {
    pub fn new(connection: u64, listener: Arc<str>, role: ListenerRole, remote: SocketAddr) -> Self {
        let ip = remote.ip().to_canonical();
        Self {
            connection,
            listener,
            role,
            remote,
            client_host: format!("/{ip}").into(),
            software_name: String::new(),
            software_version: String::new(),
            parked: Weak::new(),
        }
    }
}

/// One request.
pub struct RequestContext<'a> {
    pub session: &'a mut Session,
    pub now: Time,
    pub reply_to: ReplyTo,
    /// Empty when the client gave none.
    pub client_id: &'a str,
}

impl RequestContext<'_> {
    pub fn version(&self) -> i16 {
        self.reply_to.api_version
    }
}
