//! One node as an object: broker, controller or both, without sockets, threads or timers of its own.
//!
//! The shell calls [`Node::handle`] for each frame, [`Node::run_controller`] from the controller's thread,
//! [`Node::run_timers`] when a deadline passes, [`Node::run_syncs`] from some threads per log directory,
//! [`Node::run_log_tasks`] and [`Node::run_cleaner`] from background threads, and takes answers from the [`Outbox`]. The
//! simulator does the same from one thread with a virtual clock.
//!
//! Invariants
//! * `image` is published only after the partitions it gives to this broker exist.
//! * No lock of this file is held across IO.
//!
//! Concurrency: every method takes `&self` and may be called from any thread; `run_controller` from one at a time.
//! Crash: what the metadata log and the partition logs hold is what the next start finds.

use crate::apis::{self, Outcome, fetch};
use crate::assignments::Assignments;
use crate::auto_topics::AutoTopics;
use crate::context::Session;
use crate::controller_service::ControllerService;
use crate::delayed_produce::DelayedProduces;
use crate::group_service::GroupService;
use crate::lifecycle::BrokerLifecycle;
use crate::log_dirs::LogDirMoves;
use crate::metadata_view::BrokerNode;
use crate::partition::Partition;
use crate::producer_ids::ProducerIds;
use crate::purgatory::FetchTimers;
use crate::reply::{Outbox, ReplyTo, RequestToken};
use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;
use config::{BrokerConfigs, ServerConfig};
use env::Env;
use metadata::MetadataImage;
use parking_lot::{Mutex, RwLock};
use protocol::{ErrorCode, Message, Uuid};
use record::{Time, TopicPartition};
use replication::fetch_session::FetchSessionCache;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use storage::{CleanerHost, CleanerThread, FileSlice, LogManager};

/// See the file's header.
pub struct Node {
    pub(crate) env: Env,
    configs: ArcSwap<BrokerConfigs>,
    settings: ArcSwap<ServerConfig>,
    pub(crate) identity: Identity,
    image: ArcSwap<MetadataImage>,
    pub(crate) logs: Arc<LogManager>,
    pub(crate) partitions: RwLock<HashMap<(Uuid, i32), Arc<Partition>>>,
    pub(crate) fetch_sessions: Mutex<FetchSessionCache>,
    pub(crate) fetch_timers: FetchTimers,
    pub(crate) delayed_produces: DelayedProduces,
    pub(crate) outbox: Arc<dyn Outbox>,
    pub(crate) controller: ControllerService,
    pub(crate) groups: GroupService,
    pub(crate) lifecycle: Mutex<BrokerLifecycle>,
    pub(crate) producer_ids: Mutex<ProducerIds>,
    pub(crate) auto_topics: Mutex<AutoTopics>,
    pub(crate) assignments: Mutex<Assignments>,
    pub(crate) moves: LogDirMoves,
    /// Partitions whose logs found no room, with their topics' ids.
    pub(crate) unopened: Mutex<BTreeMap<TopicPartition, Uuid>>,
}

/// Who this node is; fixed for the life of the process.
#[derive(Debug, Clone)]
pub struct Identity {
    pub node_id: i32,
    pub cluster_id: String,
    /// Fresh at each start; tells the controller a restart from a second node of the same id.
    pub incarnation_id: Uuid,
    /// What clients are told to connect to, by listener, with real ports.
    pub advertised_listeners: Vec<config::Endpoint>,
    /// The same for the controller's listeners.
    pub advertised_controller_listeners: Vec<config::Endpoint>,
    /// The broker epoch of the last clean shutdown; −1 when it was not clean (KIP-966).
    pub previous_broker_epoch: i64,
    /// The one of `log.dirs` that holds the metadata log: without it the node cannot go on.
    pub metadata_log_dir: PathBuf,
}

impl Node {
    pub(crate) fn assemble(
        env: Env,
        configs: BrokerConfigs,
        identity: Identity,
        logs: Arc<LogManager>,
        controller: ControllerService,
        outbox: Arc<dyn Outbox>,
    ) -> Self {
        let config = configs.effective().clone();
        let slots = usize::try_from(config.max_incremental_fetch_session_cache_slots).unwrap_or(0);
        let heartbeat =
            Duration::from_millis(u64::try_from(config.broker_heartbeat_interval_ms).unwrap_or(2000));
        Self {
            image: ArcSwap::from_pointee(MetadataImage::default()),
            partitions: RwLock::default(),
            fetch_sessions: Mutex::new(FetchSessionCache::new(slots, FETCH_SESSION_EVICTION)),
            fetch_timers: FetchTimers::default(),
            delayed_produces: DelayedProduces::default(),
            groups: GroupService::new(&config),
            lifecycle: Mutex::new(BrokerLifecycle::new(identity.node_id, heartbeat)),
            producer_ids: Mutex::default(),
            auto_topics: Mutex::default(),
            assignments: Mutex::default(),
            moves: LogDirMoves::default(),
            unopened: Mutex::default(),
            settings: ArcSwap::new(config),
            configs: ArcSwap::from_pointee(configs),
            env,
            identity,
            logs,
            outbox,
            controller,
        }
    }

    /// Handles one request frame, without its size prefix.
    pub fn handle(&self, session: &mut Session, token: RequestToken, frame: Bytes) -> Outcome {
        apis::handle_frame(self, session, token, frame)
    }

    /// The connection is gone, and with it whoever waited on it.
    pub fn close_session(&self, session: &Session) {
        if let Some(delayed) = session.parked.upgrade() {
            fetch::cancel(self, &delayed);
        }
    }

    /// Does what is due; returns when the next thing is.
    pub fn run_timers(&self) -> Option<Duration> {
        let now = self.now();
        for delayed in self.fetch_timers.take_due(now.monotonic) {
            fetch::expire(self, now, &delayed);
        }
        self.groups.run_timers(self, now);
        self.run_lifecycle(now);
        self.send_assignments(now);
        let deadlines = [
            self.fetch_timers.next_deadline(),
            self.groups.next_deadline(),
            self.lifecycle.lock().deadline(),
            self.assignments.lock().deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Retention, flushes, checkpoints, deletions. To be called about once a second from a thread that may wait for disks.
    pub fn run_log_tasks(&self) {
        let report = self.logs.tick(self.now());
        for (dir, cause, _) in &report.failed_dirs {
            self.stop_serving(dir, cause);
        }
        self.reopen_when_there_is_room();
    }

    /// How many threads are to call [`Node::run_cleaner`]; changes with `log.cleaner.threads`.
    pub fn cleaner_threads(&self) -> usize {
        let config = self.logs.cleaner_config();
        if config.enable { config.threads } else { 0 }
    }

    /// Cleans one compacted log and applies retention to all of them. Returns how long the thread may rest.
    pub fn run_cleaner(&self, thread: &mut CleanerThread, host: &dyn CleanerHost) -> Duration {
        if self.logs.run_cleaner(thread, host) {
            return Duration::ZERO;
        }
        Duration::from_millis(u64::try_from(self.logs.cleaner_config().backoff_ms).unwrap_or(0))
    }

    /// Loads group shards from their logs. To be called when [`Outbox::wake_loader`] was, from a thread that may wait for disks.
    pub fn run_loader(&self) {
        self.groups.load_pending(self);
    }

    /// The time, from the node's clock.
    pub fn now(&self) -> Time {
        self.env.clock.now()
    }

    pub fn node_id(&self) -> i32 {
        self.identity.node_id
    }

    pub fn cluster_id(&self) -> &str {
        &self.identity.cluster_id
    }

    /// The settings in force, dynamic ones included.
    pub fn settings(&self) -> Guard<Arc<ServerConfig>> {
        self.settings.load()
    }

    /// The settings with the layers they come from.
    pub(crate) fn broker_configs(&self) -> Guard<Arc<BrokerConfigs>> {
        self.configs.load()
    }

    pub(crate) fn set_broker_configs(&self, configs: BrokerConfigs) {
        self.settings.store(configs.effective().clone());
        self.configs.store(Arc::new(configs));
    }

    /// The metadata as last published.
    pub fn image(&self) -> Guard<Arc<MetadataImage>> {
        self.image.load()
    }

    pub(crate) fn set_image(&self, image: Arc<MetadataImage>) {
        self.image.store(image);
    }

    pub(crate) fn topic_id(&self, name: &str) -> Option<Uuid> {
        self.image().topics.id_of(name)
    }

    pub(crate) fn has_topic_id(&self, id: Uuid) -> bool {
        self.image().topics.topic(&id).is_some()
    }

    /// The partition, when this broker hosts it.
    pub(crate) fn partition(&self, topic_id: Uuid, index: i32) -> Option<Arc<Partition>> {
        self.partitions.read().get(&(topic_id, index)).cloned()
    }

    /// The partition by its topic's name, or the error that a client is told.
    pub(crate) fn find_partition(&self, topic: &str, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        let id = self.topic_id(topic).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        self.partition(id, index).ok_or_else(|| self.why_no_partition(id, index))
    }

    /// Why a partition cannot be served here: it does not exist, is elsewhere, or its disk is offline.
    pub(crate) fn why_no_partition(&self, topic_id: Uuid, index: i32) -> ErrorCode {
        match self.image().topics.partition(&topic_id, index) {
            None => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            Some(partition) if partition.replicas.contains(&self.node_id()) => ErrorCode::KAFKA_STORAGE_ERROR,
            Some(_) => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        }
    }

    /// Serves readers that wait for what was just appended.
    pub(crate) fn complete_fetches(&self, now: Time, partition: &Partition) {
        for delayed in partition.watchers.snapshot() {
            fetch::try_complete(self, now, &delayed);
        }
    }

    /// A broker that clients may take for the controller: any that is alive, as in Apache Kafka with KRaft.
    pub(crate) fn any_alive_broker(&self, image: &MetadataImage) -> i32 {
        let alive = |id: i32| image.cluster.broker(id).is_some_and(|broker| !broker.fenced);
        if alive(self.node_id()) {
            return self.node_id();
        }
        image
            .cluster
            .brokers
            .iter()
            .filter(|(_, broker)| !broker.fenced)
            .map(|(id, _)| *id)
            .min()
            .unwrap_or(-1)
    }

    /// The quorum's leader as this node knows it; −1 when there is none.
    pub(crate) fn active_controller(&self) -> i32 {
        self.controller.leader().0.unwrap_or(-1)
    }

    /// The controllers that have the listener.
    pub(crate) fn controller_nodes(&self, listener: &str) -> Vec<BrokerNode> {
        let image = self.image();
        let nodes = image.cluster.controllers.iter().filter_map(|(id, controller)| {
            let endpoint = controller.listeners.get(listener)?;
            Some(BrokerNode {
                id: *id,
                host: endpoint.host.clone(),
                port: i32::from(endpoint.port),
                rack: None,
                fenced: false,
            })
        });
        nodes.collect()
    }

    pub(crate) fn random_i32(&self) -> i32 {
        self.env.random.next_u64() as i32
    }

    pub(crate) fn random_seed(&self) -> [u64; 4] {
        std::array::from_fn(|_| self.env.random.next_u64())
    }

    /// Answers a parked request.
    pub(crate) fn reply<M: Message>(&self, to: ReplyTo, response: &M) {
        self.reply_with_files(to, response, Vec::new());
    }

    pub(crate) fn reply_with_files<M: Message>(&self, to: ReplyTo, response: &M, files: Vec<FileSlice>) {
        match to.encode_with_files(response, files) {
            Ok(reply) => self.outbox.deliver(to.token, Some(reply)),
            Err(error) => {
                tracing::error!(target: "kafka.server.KafkaApis", "[KafkaApi-{}] The answer to {} v{} cannot be encoded: {error}", self.node_id(), to.api_key.name(), to.api_version);
                self.outbox.deliver(to.token, None);
            }
        }
    }
}

/// A fetch session that idles for this long may be evicted.
const FETCH_SESSION_EVICTION: Duration = Duration::from_secs(120);
