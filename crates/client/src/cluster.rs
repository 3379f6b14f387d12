//! A cluster as a client sees it: addresses to start from, nodes, connections, coordinators.
//!
//! Owns the connections (one per node, opened when first needed, replaced when closed) and what is known of the nodes.
//! Handles clone cheaply and may be used from many tasks; no lock is held while the network is awaited, except the
//! one that keeps two tasks from opening the same connection twice. Nothing survives the process.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use protocol::messages::{
    DescribeClusterRequest, FindCoordinatorRequest, MetadataRequest, MetadataResponse,
    metadata_request::MetadataRequestTopic,
};
use protocol::{ErrorCode, Request, Uuid};
use tokio::time::Instant;

use crate::config::ClientConfig;
use crate::connection::{Connection, ConnectionOptions};
use crate::error::{ApiError, ClientError};

/// DescribeCluster's endpoint type of controllers (KIP-919).
const CONTROLLER_ENDPOINTS: i8 = 2;
const BROKER_ENDPOINTS: i8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub id: i32,
    pub host: String,
    pub port: i32,
    pub rack: Option<String>,
    /// Only known from [`Cluster::describe`].
    pub is_fenced: bool,
}

impl Node {
    pub fn address(&self) -> String {
        let Node { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Any node that answers.
    Any,
    /// The node that metadata names as controller; brokers of a KRaft cluster forward to the real one.
    Controller,
    Node(i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CoordinatorKind {
    Group = 0,
    Transaction = 1,
    Share = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bootstrap {
    Brokers,
    Controllers,
}

#[derive(Clone, Debug, Default)]
struct Known {
    nodes: BTreeMap<i32, Node>,
    controller: i32,
    cluster_id: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Cluster {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    bootstrap: Vec<String>,
    kind: Bootstrap,
    options: ConnectionOptions,
    retry_backoff: Duration,
    retry_backoff_max: Duration,
    known: Mutex<Known>,
    connections: tokio::sync::Mutex<BTreeMap<String, Connection>>,
    coordinators: Mutex<BTreeMap<(CoordinatorKind, String), i32>>,
}

impl Cluster {
    /// Prepares a handle; the first request connects. Fails only on properties that cannot be used.
    pub fn new(config: &ClientConfig) -> Result<Cluster, ClientError> {
        config.check_security()?;
        let controllers = config.contains("bootstrap.controllers");
        let (kind, property) = match controllers {
            true => (Bootstrap::Controllers, "bootstrap.controllers"),
            false => (Bootstrap::Brokers, "bootstrap.servers"),
        };
        let options = ConnectionOptions {
            client_id: config.string("client.id", ""),
            connect_timeout: config.millis("socket.connection.setup.timeout.ms", 10_000)?,
            request_timeout: config.millis("request.timeout.ms", 30_000)?,
            ..Default::default()
        };
        let inner = Inner {
            bootstrap: config.addresses(property)?,
            kind,
            options,
            retry_backoff: config.millis("retry.backoff.ms", 100)?,
            retry_backoff_max: config.millis("retry.backoff.max.ms", 1000)?,
            known: Mutex::default(),
            connections: tokio::sync::Mutex::default(),
            coordinators: Mutex::default(),
        };
        Ok(Cluster { inner: Arc::new(inner) })
    }

    /// The same cluster with connections of its own, so that long requests hold up nobody else's.
    pub fn with_own_connections(&self) -> Cluster {
        let inner = Inner {
            bootstrap: self.inner.bootstrap.clone(),
            kind: self.inner.kind,
            options: self.inner.options.clone(),
            retry_backoff: self.inner.retry_backoff,
            retry_backoff_max: self.inner.retry_backoff_max,
            known: Mutex::new(self.known(|known| known.clone())),
            connections: tokio::sync::Mutex::default(),
            coordinators: Mutex::default(),
        };
        Cluster { inner: Arc::new(inner) }
    }

    /// The addresses to start from, for messages.
    pub fn bootstrap(&self) -> String {
        self.inner.bootstrap.join(",")
    }

    pub fn is_controller_bootstrap(&self) -> bool {
        self.inner.kind == Bootstrap::Controllers
    }

    pub fn request_timeout(&self) -> Duration {
        self.inner.options.request_timeout
    }

    /// The nodes known so far, by id.
    pub fn nodes(&self) -> Vec<Node> {
        self.known(|known| known.nodes.values().cloned().collect())
    }

    pub fn node(&self, id: i32) -> Option<Node> {
        self.known(|known| known.nodes.get(&id).cloned())
    }

    pub fn cluster_id(&self) -> Option<String> {
        self.known(|known| known.cluster_id.clone())
    }

    fn known<T>(&self, read: impl FnOnce(&mut Known) -> T) -> T {
        read(&mut self.inner.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends one request, without retries.
    pub async fn send<R: Request>(&self, target: Target, request: &R) -> Result<R::Response, ClientError> {
        self.connection(target).await?.send(request).await
    }

    /// An open connection to `target`.
    pub async fn connection(&self, target: Target) -> Result<Connection, ClientError> {
        match target {
            Target::Any => self.any_connection().await,
            Target::Node(id) => self.node_connection(id).await,
            Target::Controller => {
                if self.known(|known| known.nodes.is_empty()) {
                    self.refresh_nodes().await?;
                }
                let id = self.known(|known| known.controller);
                if id < 0 { self.any_connection().await } else { self.node_connection(id).await }
            }
        }
    }

    async fn node_connection(&self, id: i32) -> Result<Connection, ClientError> {
        if self.node(id).is_none() {
            self.refresh_nodes().await?;
        }
        let Some(node) = self.node(id) else {
            return Err(ErrorCode::BROKER_NOT_AVAILABLE.into());
        };
        self.open(&node.address()).await
    }

    async fn any_connection(&self) -> Result<Connection, ClientError> {
        let mut addresses: Vec<String> = self.nodes().iter().map(Node::address).collect();
        addresses.extend(self.inner.bootstrap.iter().cloned());
        {
            let connections = self.inner.connections.lock().await;
            if let Some(open) =
                addresses.iter().find_map(|address| connections.get(address).filter(|c| !c.is_closed()))
            {
                return Ok(open.clone());
            }
        }
        let mut last = String::new();
        for address in &addresses {
            match self.open(address).await {
                Ok(connection) => return Ok(connection),
                Err(ClientError::Unreachable { cause, .. }) => last = cause,
                Err(error @ ClientError::Disconnected { .. }) => last = error.to_string(),
                Err(error) => return Err(error),
            }
        }
        Err(ClientError::Unreachable { addresses: self.bootstrap(), cause: last })
    }

    async fn open(&self, address: &str) -> Result<Connection, ClientError> {
        let mut connections = self.inner.connections.lock().await;
        if let Some(connection) = connections.get(address).filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let connection = Connection::connect(address, self.inner.options.clone()).await?;
        connections.insert(address.to_owned(), connection.clone());
        Ok(connection)
    }

    /// A connection of its own, for requests that wait (group membership, long fetches).
    pub async fn dedicated_connection(
        &self,
        node: i32,
        options: ConnectionOptions,
    ) -> Result<Connection, ClientError> {
        if self.node(node).is_none() {
            self.refresh_nodes().await?;
        }
        let Some(node) = self.node(node) else { return Err(ErrorCode::BROKER_NOT_AVAILABLE.into()) };
        Connection::connect(&node.address(), options).await
    }

    pub fn connection_options(&self) -> ConnectionOptions {
        self.inner.options.clone()
    }

    /// Learns nodes, controller and cluster id again.
    pub async fn refresh_nodes(&self) -> Result<(), ClientError> {
        match self.inner.kind {
            Bootstrap::Brokers => self.metadata(Some(&[])).await.map(|_| ()),
            Bootstrap::Controllers => self.describe(false).await.map(|_| ()),
        }
    }

    /// Metadata of `topics`, or of all topics for `None`; never creates a topic.
    pub async fn metadata(&self, topics: Option<&[String]>) -> Result<MetadataResponse, ClientError> {
        let named = |name: &String| MetadataRequestTopic { name: Some(name.clone()), ..Default::default() };
        let topics = topics.map(|topics| topics.iter().map(named).collect());
        self.fetch_metadata(topics, false).await
    }

    /// As [`Self::metadata`], letting the broker create the topics when it is set up to.
    pub async fn metadata_creating(&self, topics: &[String]) -> Result<MetadataResponse, ClientError> {
        let named = |name: &String| MetadataRequestTopic { name: Some(name.clone()), ..Default::default() };
        self.fetch_metadata(Some(topics.iter().map(named).collect()), true).await
    }

    pub async fn metadata_by_id(&self, ids: &[Uuid]) -> Result<MetadataResponse, ClientError> {
        let with_id = |id: &Uuid| MetadataRequestTopic { topic_id: *id, ..Default::default() };
        self.fetch_metadata(Some(ids.iter().map(with_id).collect()), false).await
    }

    async fn fetch_metadata(
        &self,
        topics: Option<Vec<MetadataRequestTopic>>,
        allow_auto_topic_creation: bool,
    ) -> Result<MetadataResponse, ClientError> {
        let request = MetadataRequest { topics, allow_auto_topic_creation, ..Default::default() };
        let response = self.any_connection().await?.send(&request).await?;
        self.known(|known| {
            let node = |broker: &protocol::messages::metadata_response::MetadataResponseBroker| Node {
                id: broker.node_id,
                host: broker.host.clone(),
                port: broker.port,
                rack: broker.rack.clone(),
                is_fenced: false,
            };
            known.nodes = response.brokers.iter().map(|broker| (broker.node_id, node(broker))).collect();
            known.controller = response.controller_id;
            known.cluster_id = response.cluster_id.clone();
        });
        Ok(response)
    }

    /// Nodes from DescribeCluster: brokers or controllers, whichever kind this handle started from.
    pub async fn describe(&self, include_fenced_brokers: bool) -> Result<Vec<Node>, ClientError> {
        let endpoint_type = match self.inner.kind {
            Bootstrap::Brokers => BROKER_ENDPOINTS,
            Bootstrap::Controllers => CONTROLLER_ENDPOINTS,
        };
        let request = DescribeClusterRequest { endpoint_type, include_fenced_brokers, ..Default::default() };
        let response = self.any_connection().await?.send(&request).await?;
        ApiError::check(response.error_code, response.error_message.as_ref())?;
        let nodes: Vec<Node> = response
            .brokers
            .iter()
            .map(|broker| Node {
                id: broker.broker_id,
                host: broker.host.clone(),
                port: broker.port,
                rack: broker.rack.clone(),
                is_fenced: broker.is_fenced,
            })
            .collect();
        self.known(|known| {
            known.nodes = nodes.iter().map(|node| (node.id, node.clone())).collect();
            known.controller = response.controller_id;
            known.cluster_id = Some(response.cluster_id.clone());
        });
        Ok(nodes)
    }

    /// The node that coordinates `key`; asked once and remembered until [`Self::forget_coordinator`].
    pub async fn coordinator(&self, kind: CoordinatorKind, key: &str) -> Result<i32, ClientError> {
        let cached =
            |cluster: &Cluster| cluster.coordinators(|known| known.get(&(kind, key.to_owned())).copied());
        if let Some(node) = cached(self) {
            return Ok(node);
        }
        let request = FindCoordinatorRequest {
            key: key.to_owned(),
            key_type: kind as i8,
            coordinator_keys: vec![key.to_owned()],
        };
        let connection = self.connection(Target::Any).await?;
        let version = connection.version_of::<FindCoordinatorRequest>()?;
        // Version 4 asks for several keys at once (KIP-699), which the older versions cannot carry.
        let request = match version {
            4.. => FindCoordinatorRequest { key: String::new(), ..request },
            _ => FindCoordinatorRequest { coordinator_keys: Vec::new(), ..request },
        };
        let response = connection.send_version(&request, version).await?;
        let (code, message, node) = match response.coordinators.first() {
            Some(found) => (found.error_code, found.error_message.clone(), found.node_id),
            None => (response.error_code, response.error_message.clone(), response.node_id),
        };
        ApiError::check(code, message.as_ref())?;
        self.coordinators(|known| known.insert((kind, key.to_owned()), node));
        Ok(node)
    }

    pub fn forget_coordinator(&self, kind: CoordinatorKind, key: &str) {
        self.coordinators(|known| known.remove(&(kind, key.to_owned())));
    }

    fn coordinators<T>(&self, access: impl FnOnce(&mut BTreeMap<(CoordinatorKind, String), i32>) -> T) -> T {
        access(&mut self.inner.coordinators.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Repeats `attempt` while it fails in a way that may pass, with the reference's exponential backoff, until
    /// `deadline`; then the last error is returned.
    pub async fn retry<T, F>(
        &self,
        deadline: Instant,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut backoff = self.inner.retry_backoff.max(Duration::from_millis(1));
        loop {
            let error = match attempt().await {
                Err(error) if error.is_retriable() => error,
                other => return other,
            };
            if Instant::now() + backoff >= deadline {
                return Err(error);
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(self.inner.retry_backoff_max);
        }
    }
}
