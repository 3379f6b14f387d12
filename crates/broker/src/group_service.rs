//! The group coordinator on this broker: shards over the partitions of `__consumer_offsets` that it leads, their
//! appends, and the way of answers back to their requests.
//!
//! Invariants
//! * A shard exists for a partition exactly while this broker leads it; its lock covers decision, append and replay,
//!   so that the log's order is the order of decisions. The append goes to the page cache.
//! * Answers are encoded and delivered after the shard's lock is released.
//!
//! Crash: what the log holds is loaded by the next leader; answers are given only for committed records.

use crate::node::Node;
use crate::partition::Partition;
use crate::reply::ReplyTo;
use bytes::Bytes;
use compression::KafkaCodecs;
use config::ServerConfig;
use coordinator_group::{
    DeletedTopic, GroupCoordinatorConfig, GroupRequest, GroupResponse, GroupShard, OffsetCommitPlan,
    OffsetDeletePlan, OffsetFetchPlan, PendingAppend, Reply, RequestContext, TopicResolver,
    finish_offset_fetch, partition_for,
};
use metadata::MetadataImage;
use parking_lot::{Mutex, RwLock};
use protocol::messages::delete_groups_response::DeletableGroupResult;
use protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use protocol::messages::{DeleteGroupsResponse, ListGroupsRequest};
use protocol::{ErrorCode, Uuid};
use record::{Compression, Time};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use storage::FetchIsolation;

/// Bytes read at a time while a shard loads (`offsets.load.buffer.size` bounds it from above).
const LOAD_CHUNK: u32 = 5 * 1024 * 1024;
/// No deadline is announced.
const NEVER: u64 = u64::MAX;

struct Shard {
    partition: Arc<Partition>,
    state: Mutex<GroupShard>,
}

/// What to do with a shard's answer.
enum Pending {
    Plain(ReplyTo),
    OffsetCommit(ReplyTo, Box<OffsetCommitPlan>),
    OffsetDelete(ReplyTo, Box<OffsetDeletePlan>),
    OffsetFetch(Arc<Mutex<Gather<OffsetFetchResponseGroup>>>, usize, Box<OffsetFetchPlan>),
    DeleteGroups(Arc<Mutex<Gather<Vec<DeletableGroupResult>>>>, usize),
}

/// Answers of several shards to parts of one request.
struct Gather<T> {
    to: ReplyTo,
    parts: Vec<Option<T>>,
}

impl<T> Gather<T> {
    /// Puts a part in its place; all parts once the last is there.
    fn put(&mut self, index: usize, part: T) -> Option<Vec<T>> {
        *self.parts.get_mut(index)? = Some(part);
        if self.parts.iter().any(Option::is_none) {
            return None;
        }
        Some(std::mem::take(&mut self.parts).into_iter().flatten().collect())
    }
}

/// See the file's header.
pub(crate) struct GroupService {
    config: Arc<GroupCoordinatorConfig>,
    compression: Compression,
    shards: RwLock<BTreeMap<i32, Arc<Shard>>>,
    to_load: Mutex<Vec<i32>>,
    pending: Mutex<HashMap<u64, Pending>>,
    next_token: AtomicU64,
    /// The announced deadline in nanoseconds of the monotonic clock.
    announced: AtomicU64,
}

impl GroupService {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let codec = u8::try_from(config.offsets_topic_compression_codec).unwrap_or(0);
        let kind = record::CompressionType::from_id(codec).unwrap_or_default();
        Self {
            config: Arc::new(GroupCoordinatorConfig {
                offset_metadata_max_size: usize::try_from(config.offset_metadata_max_bytes).unwrap_or(0),
                offsets_retention_ms: i64::from(config.offsets_retention_minutes) * 60_000,
                offsets_retention_check_interval_ms: config.offsets_retention_check_interval_ms,
                offset_commit_timeout_ms: u64::try_from(config.offsets_commit_timeout_ms).unwrap_or(5_000),
                group_min_session_timeout_ms: config.group_min_session_timeout_ms,
                group_max_session_timeout_ms: config.group_max_session_timeout_ms,
                group_initial_rebalance_delay_ms: config.group_initial_rebalance_delay_ms,
                group_max_size: config.group_max_size,
                append_linger_ms: config.group_coordinator_append_linger_ms,
                max_batch_size: usize::try_from(config.message_max_bytes).unwrap_or(1_048_588),
            }),
            compression: Compression::of(kind),
            shards: RwLock::default(),
            to_load: Mutex::default(),
            pending: Mutex::default(),
            next_token: AtomicU64::new(1),
            announced: AtomicU64::new(NEVER),
        }
    }

    fn shard(&self, index: i32) -> Option<Arc<Shard>> {
        self.shards.read().get(&index).cloned()
    }

    fn shard_of(&self, image: &MetadataImage, group: &str) -> Option<Arc<Shard>> {
        let topic = image.topics.topic_by_name(crate::auto_topics::OFFSETS_TOPIC)?;
        self.shard(partition_for(group, i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX)))
    }

    fn park(&self, pending: Pending) -> u64 {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        self.pending.lock().insert(token, pending);
        token
    }

    /// Hands a request for one group to its shard; the answer goes the way that `pending` says.
    fn submit(
        &self,
        node: &Node,
        now: Time,
        context: &RequestContext,
        group: &str,
        request: GroupRequest,
        pending: Pending,
    ) {
        let Some(shard) = self.shard_of(&node.image(), group) else {
            let response = request.error_response(context.api_version, ErrorCode::NOT_COORDINATOR);
            return finish(node, pending, response);
        };
        let token = self.park(pending);
        let replies = {
            let mut state = shard.state.lock();
            state.handle(now, context, request, token);
            self.pump(now, &shard.partition, &mut state)
        };
        node.complete_fetches(now, &shard.partition);
        self.reload_if_needed(node, &shard);
        self.announce(node, &shard);
        self.finish_all(node, replies);
    }

    /// Appends what the shard has decided and collects the answers that are ready.
    fn pump(&self, now: Time, partition: &Partition, state: &mut GroupShard) -> Vec<Reply> {
        while let Some(append) = state.poll_append(now) {
            let id = append.append_id;
            let result = self.append(now, partition, state.epoch(), append);
            state.handle_appended(now, id, result);
            state.handle_high_watermark(now, partition.log().high_watermark());
        }
        while let Some(event) = state.poll_event() {
            tracing::info!(target: "org.apache.kafka.coordinator.group.GroupMetadataManager", "[GroupCoordinator topic={} partition={}] {event}", partition.topic(), partition.topic_partition().partition);
        }
        let mut replies = Vec::new();
        while let Some(reply) = state.poll_reply() {
            replies.push(reply);
        }
        replies
    }

    /// Has a shard loaded again whose log and state contradict each other.
    fn reload_if_needed(&self, node: &Node, shard: &Shard) {
        let index = shard.partition.topic_partition().partition;
        let must_load = {
            let mut state = shard.state.lock();
            let epoch = state.epoch();
            state.take_reload() && state.begin_load(epoch)
        };
        if must_load {
            self.to_load.lock().push(index);
            node.outbox.wake_loader();
        }
    }

    fn append(
        &self,
        now: Time,
        partition: &Partition,
        epoch: i32,
        append: PendingAppend,
    ) -> Result<i64, ErrorCode> {
        let batch = append.to_batch(self.compression, &KafkaCodecs).map_err(|error| {
            tracing::error!(target: "org.apache.kafka.coordinator.group.GroupCoordinatorService", "A batch of {} cannot be built: {error}", partition.topic_partition());
            ErrorCode::UNKNOWN_SERVER_ERROR
        })?;
        partition
            .append_as_coordinator(now, batch, epoch)
            .map(|info| info.last_offset)
            .map_err(|failure| failure.error)
    }

    fn finish_all(&self, node: &Node, replies: Vec<Reply>) {
        for reply in replies {
            let pending = self.pending.lock().remove(&reply.token);
            if let Some(pending) = pending {
                finish(node, pending, reply.response);
            }
        }
    }

    /// Tells the shell of a deadline earlier than the one it knows.
    fn announce(&self, node: &Node, shard: &Shard) {
        let Some(deadline) = shard.state.lock().poll_deadline() else { return };
        let nanos = u64::try_from(deadline.as_nanos()).unwrap_or(NEVER - 1);
        if self.announced.fetch_min(nanos, Ordering::AcqRel) > nanos {
            node.outbox.wake_timers();
        }
    }

    /// Session and rebalance timeouts, offset expiration, lingering appends.
    pub(crate) fn run_timers(&self, node: &Node, now: Time) {
        self.announced.store(NEVER, Ordering::Release);
        let shards: Vec<Arc<Shard>> = self.shards.read().values().cloned().collect();
        let mut earliest = NEVER;
        for shard in shards {
            let replies = {
                let mut state = shard.state.lock();
                if state.poll_deadline().is_some_and(|deadline| deadline <= now.monotonic) {
                    state.handle_timeout(now);
                }
                let replies = self.pump(now, &shard.partition, &mut state);
                if let Some(deadline) = state.poll_deadline() {
                    earliest = earliest.min(u64::try_from(deadline.as_nanos()).unwrap_or(NEVER - 1));
                }
                replies
            };
            self.finish_all(node, replies);
        }
        self.announced.fetch_min(earliest, Ordering::AcqRel);
    }

    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        Some(self.announced.load(Ordering::Acquire)).filter(|nanos| *nanos != NEVER).map(Duration::from_nanos)
    }

    /// This broker leads the partition in its current epoch. An empty log is loaded at once, others by [`Self::load_pending`].
    pub(crate) fn lead(&self, node: &Node, now: Time, index: i32, partition: Arc<Partition>) {
        let (_, epoch) = partition.leader();
        let shard = {
            let mut shards = self.shards.write();
            let existing =
                shards.get(&index).filter(|shard| Arc::ptr_eq(&shard.partition, &partition)).cloned();
            existing.unwrap_or_else(|| {
                let state = Mutex::new(GroupShard::new(self.config.clone()));
                let shard = Arc::new(Shard { partition: partition.clone(), state });
                shards.insert(index, shard.clone());
                shard
            })
        };
        if !shard.state.lock().begin_load(epoch) {
            return;
        }
        if partition.log().is_empty() {
            self.load(node, now, &shard);
        } else {
            self.to_load.lock().push(index);
        }
    }

    /// This broker no longer leads the partition.
    pub(crate) fn resign(&self, node: &Node, now: Time, index: i32) {
        let Some(shard) = self.shards.write().remove(&index) else { return };
        let replies = {
            let mut state = shard.state.lock();
            state.unload(now, None);
            self.pump(now, &shard.partition, &mut state)
        };
        self.finish_all(node, replies);
    }

    /// Loads the shards that wait for it; called from a thread that may wait for the disk.
    pub(crate) fn load_pending(&self, node: &Node) {
        loop {
            let Some(index) = self.to_load.lock().pop() else { return };
            if let Some(shard) = self.shard(index) {
                self.load(node, node.now(), &shard);
            }
        }
    }

    fn load(&self, node: &Node, now: Time, shard: &Shard) {
        let outcome = self.read_all(now, shard);
        let replies = {
            let mut state = shard.state.lock();
            if let Err(error) = outcome {
                tracing::error!(target: "org.apache.kafka.coordinator.group.GroupCoordinatorService", "Loading {} failed: {error}", shard.partition.topic_partition());
                state.fail_load(now);
            }
            self.pump(now, &shard.partition, &mut state)
        };
        self.announce(node, shard);
        self.finish_all(node, replies);
    }

    fn read_all(&self, now: Time, shard: &Shard) -> Result<(), String> {
        let log = shard.partition.log();
        let mut offset = log.log_start_offset();
        while offset < log.log_end_offset() {
            let found = log
                .read(offset, LOAD_CHUNK, FetchIsolation::LogEnd, true)
                .map_err(|error| error.to_string())?;
            let Some(slice) = found.records else { break };
            let bytes: Bytes = slice.read().map_err(|error| error.to_string())?;
            let mut end = offset;
            let mut whole = 0;
            for batch in record::Batches::new(&bytes) {
                let Ok(batch) = batch else { break };
                end = batch.header().next_offset();
                whole += batch.bytes().len();
            }
            if end <= offset {
                return Err(format!("no whole batch at offset {offset}"));
            }
            let high_watermark = log.high_watermark();
            let mut state = shard.state.lock();
            state
                .handle_loaded_batches(now, &bytes.slice(..whole), &KafkaCodecs, high_watermark)
                .map_err(|error| error.to_string())?;
            offset = end;
        }
        let mut state = shard.state.lock();
        state.finish_load(now, log.log_end_offset(), log.high_watermark()).map_err(|error| error.to_string())
    }

    /// The high watermark of a partition has moved after its append was over (group commit).
    pub(crate) fn handle_committed(&self, node: &Node, now: Time, partition: &Arc<Partition>) {
        let Some(shard) = self.shard_on(partition) else { return };
        let replies = {
            let mut state = shard.state.lock();
            state.handle_high_watermark(now, partition.log().high_watermark());
            self.pump(now, partition, &mut state)
        };
        self.reload_if_needed(node, &shard);
        self.announce(node, &shard);
        self.finish_all(node, replies);
    }

    /// What a partition's log holds can not be made durable: its shard stops.
    pub(crate) fn handle_lost(&self, node: &Node, now: Time, partition: &Arc<Partition>) {
        if self.shard_on(partition).is_some() {
            self.resign(node, now, partition.topic_partition().partition);
        }
    }

    fn shard_on(&self, partition: &Arc<Partition>) -> Option<Arc<Shard>> {
        if !partition.is_internal() {
            return None;
        }
        let shard = self.shard(partition.topic_partition().partition)?;
        Arc::ptr_eq(&shard.partition, partition).then_some(shard)
    }

    /// Topics are gone: their committed offsets go as well.
    pub(crate) fn topics_deleted(&self, node: &Node, now: Time, topics: &[DeletedTopic]) {
        let shards: Vec<Arc<Shard>> = self.shards.read().values().cloned().collect();
        for shard in shards {
            let replies = {
                let mut state = shard.state.lock();
                state.handle_topics_deleted(now, topics);
                self.pump(now, &shard.partition, &mut state)
            };
            self.finish_all(node, replies);
        }
    }

    /// One group's request whose answer needs nothing added.
    pub(crate) fn handle(
        &self,
        node: &Node,
        now: Time,
        context: &RequestContext,
        to: ReplyTo,
        group: &str,
        request: GroupRequest,
    ) {
        self.submit(node, now, context, group, request, Pending::Plain(to));
    }

    pub(crate) fn handle_commit(
        &self,
        node: &Node,
        now: Time,
        context: &RequestContext,
        to: ReplyTo,
        mut plan: OffsetCommitPlan,
    ) {
        match plan.request.take() {
            None => node.reply(to, &plan.finish(None)),
            Some(request) => {
                let group = request.group_id.clone();
                let pending = Pending::OffsetCommit(to, Box::new(plan));
                self.submit(node, now, context, &group, GroupRequest::OffsetCommit(request), pending);
            }
        }
    }

    pub(crate) fn handle_offset_delete(
        &self,
        node: &Node,
        now: Time,
        context: &RequestContext,
        to: ReplyTo,
        plan: OffsetDeletePlan,
    ) {
        let request = plan.request.clone();
        let group = request.group_id.clone();
        self.submit(
            node,
            now,
            context,
            &group,
            GroupRequest::OffsetDelete(request),
            Pending::OffsetDelete(to, Box::new(plan)),
        );
    }

    pub(crate) fn handle_fetch(
        &self,
        node: &Node,
        now: Time,
        context: &RequestContext,
        to: ReplyTo,
        plans: Vec<OffsetFetchPlan>,
        require_stable: bool,
    ) {
        if plans.is_empty() {
            return node.reply(to, &finish_offset_fetch(to.api_version, Vec::new()));
        }
        let gather = Arc::new(Mutex::new(Gather { to, parts: plans.iter().map(|_| None).collect() }));
        for (index, plan) in plans.into_iter().enumerate() {
            let group = plan.group.clone();
            let name = group.group_id.clone();
            let request = GroupRequest::OffsetFetch { group, require_stable };
            self.submit(
                node,
                now,
                context,
                &name,
                request,
                Pending::OffsetFetch(gather.clone(), index, Box::new(plan)),
            );
        }
    }

    pub(crate) fn handle_delete(
        &self,
        node: &Node,
        now: Time,
        context: &RequestContext,
        to: ReplyTo,
        groups: Vec<String>,
    ) {
        if groups.is_empty() {
            return node.reply(to, &DeleteGroupsResponse::default());
        }
        let gather = Arc::new(Mutex::new(Gather { to, parts: groups.iter().map(|_| None).collect() }));
        for (index, group) in groups.into_iter().enumerate() {
            let request = GroupRequest::DeleteGroups(vec![group.clone()]);
            self.submit(node, now, context, &group, request, Pending::DeleteGroups(gather.clone(), index));
        }
    }

    pub(crate) fn describe(
        &self,
        node: &Node,
        api_version: i16,
        group: &str,
    ) -> Vec<protocol::messages::describe_groups_response::DescribedGroup> {
        let names = [group.to_owned()];
        match self.shard_of(&node.image(), group) {
            Some(shard) => shard.state.lock().describe_groups(api_version, &names),
            None => coordinator_group::describe_groups_error(&names, ErrorCode::NOT_COORDINATOR),
        }
    }

    pub(crate) fn list(&self, request: &ListGroupsRequest) -> protocol::messages::ListGroupsResponse {
        let shards: Vec<Arc<Shard>> = self.shards.read().values().cloned().collect();
        coordinator_group::merge_list_groups(
            shards.iter().map(|shard| shard.state.lock().list_groups(request)),
        )
    }
}

/// Topics as the group coordinator asks for them; nothing is hidden while no authorizer is configured.
pub(crate) struct ImageTopics<'a>(pub(crate) &'a MetadataImage);

impl TopicResolver for ImageTopics<'_> {
    fn topic_name(&self, topic_id: Uuid) -> Option<String> {
        self.0.topics.topic(&topic_id).map(|topic| topic.name.to_string())
    }

    fn topic_id(&self, topic: &str) -> Uuid {
        self.0.topics.id_of(topic).unwrap_or(Uuid::ZERO)
    }

    fn has_partition(&self, topic: &str, partition: i32) -> bool {
        self.0.topics.topic_by_name(topic).is_some_and(|topic| topic.partitions.get(&partition).is_some())
    }

    fn may_read(&self, _: &str) -> bool {
        true
    }

    fn may_describe(&self, _: &str) -> bool {
        true
    }
}

/// Sends a shard's answer on its way.
fn finish(node: &Node, pending: Pending, response: GroupResponse) {
    match (pending, response) {
        (Pending::Plain(to), GroupResponse::JoinGroup(response)) => node.reply(to, &response),
        (Pending::Plain(to), GroupResponse::SyncGroup(response)) => node.reply(to, &response),
        (Pending::Plain(to), GroupResponse::Heartbeat(response)) => node.reply(to, &response),
        (Pending::Plain(to), GroupResponse::LeaveGroup(response)) => node.reply(to, &response),
        (Pending::OffsetCommit(to, plan), GroupResponse::OffsetCommit(response)) => {
            node.reply(to, &plan.finish(Some(response)))
        }
        (Pending::OffsetDelete(to, plan), GroupResponse::OffsetDelete(response)) => {
            node.reply(to, &plan.finish(response))
        }
        (Pending::OffsetFetch(gather, index, plan), GroupResponse::OffsetFetch(group)) => {
            let group = plan.finish(group, &ImageTopics(&node.image()));
            let mut gather = gather.lock();
            let to = gather.to;
            if let Some(groups) = gather.put(index, group) {
                node.reply(to, &finish_offset_fetch(to.api_version, groups));
            }
        }
        (Pending::DeleteGroups(gather, index), GroupResponse::DeleteGroups(results)) => {
            let mut gather = gather.lock();
            let to = gather.to;
            if let Some(parts) = gather.put(index, results) {
                let results = parts.into_iter().flatten().collect();
                node.reply(to, &DeleteGroupsResponse { results, ..DeleteGroupsResponse::default() });
            }
        }
        (Pending::Plain(to), _) | (Pending::OffsetCommit(to, _), _) | (Pending::OffsetDelete(to, _), _) => {
            tracing::error!(target: "kafka.server.KafkaApis", "[KafkaApi-{}] the coordinator's answer to {} is of another kind", node.node_id(), to.api_key.name());
            node.outbox.deliver(to.token, None);
        }
        (Pending::OffsetFetch(..) | Pending::DeleteGroups(..), _) => {
            tracing::error!(target: "kafka.server.KafkaApis", "[KafkaApi-{}] the coordinator's answer is of another kind", node.node_id());
        }
    }
}
