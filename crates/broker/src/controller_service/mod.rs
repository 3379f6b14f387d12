//! The controller's event loop: requests and periodic work become decisions, decisions become records of the metadata
//! log, committed records become the published image, and only then are requests answered.
//!
//! Invariants
//! * One thread runs the loop. Other threads only put events into the queue, so none of them ever waits for the
//!   metadata log's fsync; all events that are queued when a round begins share its fsync.
//! * A response leaves after its records are committed *and* published here: who created a topic finds it.
//!
//! Crash: answered changes are durable; the next start replays snapshot and log.

mod publish;
mod requests;

use crate::node::Node;
use crate::raft_driver::{CommittedBatch, LoadedSnapshot, MetadataLogDriver, RaftEvent};
use crate::reply::{NodeEvent, ReplyTo};
use controller::{ControllerResult, QuorumController, RequestContext};
use metadata::{BootstrapMetadata, MetadataLoader, MetadataUpdate, VersionedRecord};
use parking_lot::Mutex;
use raft::{InboundRequest, OffsetAndEpoch, RaftRequest, RaftResponse};
use record::Time;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI16, Ordering};
use std::time::Duration;
use storage::LogContext;

pub(crate) use requests::{ControllerRequest, ControllerResponse, Origin};

enum Event {
    Request(ControllerRequest, Origin, i16),
    Raft(RaftRequest, ReplyTo, String),
    /// There is room for partitions that could not be opened.
    Reopen,
}

/// A response that waits for the offset to be stable.
struct Parked {
    wait_for: i64,
    request: ControllerRequest,
    origin: Origin,
    response: ControllerResponse,
}

struct Inner {
    controller: QuorumController,
    driver: MetadataLogDriver,
    loader: MetadataLoader,
    parked: VecDeque<Parked>,
    raft_requests: HashMap<u64, ReplyTo>,
    next_raft_request: u64,
    registered_epoch: Option<i32>,
    /// Nothing is published before everything committed has been read: a log whose topic is not known yet would be
    /// taken for a stray.
    caught_up: bool,
}

/// See the file's header.
pub(crate) struct ControllerService {
    queue: Mutex<Vec<Event>>,
    /// Empty once the node is closed.
    inner: Mutex<Option<Inner>>,
    context: Arc<LogContext>,
    leader: Mutex<(Option<i32>, i32)>,
    kraft_version: AtomicI16,
}

impl ControllerService {
    pub(crate) fn new(
        controller: QuorumController,
        driver: MetadataLogDriver,
        context: Arc<LogContext>,
    ) -> Self {
        Self {
            queue: Mutex::default(),
            inner: Mutex::new(Some(Inner {
                controller,
                driver,
                loader: MetadataLoader::default(),
                parked: VecDeque::new(),
                raft_requests: HashMap::new(),
                next_raft_request: 0,
                registered_epoch: None,
                caught_up: false,
            })),
            context,
            leader: Mutex::new((None, 0)),
            kraft_version: AtomicI16::new(0),
        }
    }

    /// The finalized level of `kraft.version`, which the quorum keeps and not the metadata records.
    pub(crate) fn kraft_version(&self) -> i16 {
        self.kraft_version.load(Ordering::Relaxed)
    }

    /// Closes the metadata log as a clean stop does.
    pub(crate) fn close(&self, now: Time) -> Result<(), String> {
        match self.inner.lock().take() {
            Some(inner) => inner.driver.close(now).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    /// The quorum's leader as last heard, and its epoch.
    pub(crate) fn leader(&self) -> (Option<i32>, i32) {
        *self.leader.lock()
    }
}

impl Node {
    /// Queues a request for the controller.
    pub(crate) fn submit(&self, request: ControllerRequest, origin: Origin) {
        let version = match &origin {
            Origin::Client(to) | Origin::AlterConfigs(to, _) => to.api_version,
            _ => i16::MAX,
        };
        self.controller.queue.lock().push(Event::Request(request, origin, version));
        self.outbox.wake_controller();
    }

    /// Has partitions opened that found no room before, once there may be some.
    pub(crate) fn reopen_when_there_is_room(&self) {
        let has_room = self.logs.live_log_dirs().iter().any(|dir| !dir.is_full());
        if has_room && !self.unopened.lock().is_empty() {
            self.controller.queue.lock().push(Event::Reopen);
            self.outbox.wake_controller();
        }
    }

    /// Queues a request for the metadata quorum.
    pub(crate) fn submit_raft(&self, request: RaftRequest, to: ReplyTo, listener: &str) {
        self.controller.queue.lock().push(Event::Raft(request, to, listener.to_owned()));
        self.outbox.wake_controller();
    }

    /// Runs the controller until it has nothing more to do; returns when it must run again at the latest.
    pub fn run_controller(&self) -> Option<Duration> {
        let mut guard = self.controller.inner.lock();
        let inner = guard.as_mut()?;
        loop {
            let events = std::mem::take(&mut *self.controller.queue.lock());
            let worked = !events.is_empty();
            match self.round(inner, events) {
                Ok(progress) if progress || worked => {}
                Ok(_) => break,
                Err(reason) => {
                    tracing::error!(target: "org.apache.kafka.controller.QuorumController", "[QuorumController id={}] {reason}", self.node_id());
                    self.outbox.event(NodeEvent::Failed(reason));
                    *guard = None;
                    return None;
                }
            }
        }
        let driver = inner.driver.deadline(self.now());
        Some(inner.controller.next_deadline().map_or(driver, |deadline| deadline.min(driver)))
    }

    /// One pass: decide, append, commit, publish, answer. True when something happened.
    fn round(&self, inner: &mut Inner, events: Vec<Event>) -> Result<bool, String> {
        for event in events {
            match event {
                Event::Request(request, origin, version) => self.decide(inner, request, origin, version)?,
                Event::Reopen => self.reopen_partitions(),
                Event::Raft(request, to, listener) => {
                    let request_id = inner.next_raft_request;
                    inner.next_raft_request += 1;
                    inner.raft_requests.insert(request_id, to);
                    let inbound = InboundRequest {
                        request_id,
                        api_version: to.api_version,
                        listener_name: listener,
                        request,
                    };
                    inner
                        .driver
                        .handle_request(&self.controller.context, self.now(), inbound)
                        .map_err(|error| error.to_string())?;
                }
            }
        }
        let now = self.now();
        while let Some(result) = inner.controller.tick(now) {
            append(inner, now, &result)?;
            let _ = inner.controller.complete(now, result);
        }
        inner.driver.poll(&self.controller.context, self.now()).map_err(|error| error.to_string())?;
        let kraft_version = inner.driver.node().kraft_version().level();
        inner.controller.set_kraft_version(kraft_version);
        self.controller.kraft_version.store(kraft_version, Ordering::Relaxed);
        let mut progress = false;
        while let Some(event) = inner.driver.poll_event() {
            progress = true;
            self.handle_raft_event(inner, event)?;
        }
        self.publish_pending(inner)?;
        self.answer(inner);
        self.snapshot_when_due(inner)?;
        Ok(progress)
    }

    fn decide(
        &self,
        inner: &mut Inner,
        request: ControllerRequest,
        origin: Origin,
        version: i16,
    ) -> Result<(), String> {
        let now = self.now();
        let context = RequestContext::allow_all(version, self.random_seed());
        let result = requests::decide(&mut inner.controller, now, &context, &request);
        append(inner, now, &result)?;
        let completion = inner.controller.complete(now, result);
        match completion.wait_for {
            Some(wait_for) => {
                inner.parked.push_back(Parked { wait_for, request, origin, response: completion.response })
            }
            None => requests::finish(self, origin, completion.response),
        }
        Ok(())
    }

    fn handle_raft_event(&self, inner: &mut Inner, event: RaftEvent) -> Result<(), String> {
        match event {
            RaftEvent::Snapshot(snapshot) => self.handle_snapshot(inner, &snapshot),
            RaftEvent::Commit(batch) => self.handle_commit(inner, &batch),
            RaftEvent::LeaderChange(leader) => self.handle_leader(inner, leader.leader_id, leader.epoch),
            RaftEvent::SendResponse { request_id, response } => {
                if let Some(to) = inner.raft_requests.remove(&request_id) {
                    self.reply_raft(to, response);
                }
                Ok(())
            }
            // The only voter sends nothing; clusters of several controllers are refused at start.
            RaftEvent::SendRequest { destination, correlation_id, .. } => {
                inner.driver.handle_request_failure(self.now(), destination.id, correlation_id);
                Ok(())
            }
        }
    }

    fn handle_snapshot(&self, inner: &mut Inner, snapshot: &LoadedSnapshot) -> Result<(), String> {
        let mut records = Vec::new();
        for batch in &snapshot.batches {
            records.extend(decode(batch)?);
        }
        if snapshot.is_bootstrap() {
            let bootstrap = BootstrapMetadata::from_records(records, "the bootstrap snapshot")
                .map_err(|error| error.to_string())?;
            inner.controller.set_bootstrap(bootstrap);
            return Ok(());
        }
        let (offset, epoch) = (snapshot.id.offset - 1, snapshot.id.epoch);
        inner.controller.load_snapshot(offset, epoch, &records).map_err(fault)?;
        let provenance = metadata::MetadataProvenance {
            last_contained_offset: offset,
            last_contained_epoch: epoch,
            last_contained_log_time_ms: snapshot.last_contained_log_timestamp,
            is_offset_batch_aligned: true,
        };
        let update = inner.loader.load_snapshot(provenance, &records).map_err(fault)?;
        self.publish_when_caught_up(inner, &update)
    }

    fn handle_commit(&self, inner: &mut Inner, batch: &CommittedBatch) -> Result<(), String> {
        let records = decode(&batch.records)?;
        inner.controller.handle_commit(batch.base_offset, batch.epoch, &records).map_err(fault)?;
        let updates = inner
            .loader
            .load_batch(batch.base_offset, batch.epoch, batch.append_timestamp, &records)
            .map_err(fault)?;
        updates.iter().try_for_each(|update| self.publish_when_caught_up(inner, update))
    }

    fn handle_leader(&self, inner: &mut Inner, leader: Option<i32>, epoch: i32) -> Result<(), String> {
        let now = self.now();
        *self.controller.leader.lock() = (leader, epoch);
        inner.controller.set_leader(leader);
        if leader.is_some() && !inner.caught_up {
            // Everything committed before this leader's epoch has been handed to us.
            if let Some(update) = inner.loader.flush() {
                drop(update);
            }
            inner.caught_up = true;
            self.publish_first(inner.loader.image())?;
        }
        if leader != Some(self.node_id()) {
            inner.controller.resign().map_err(fault)?;
            self.refuse_parked(inner);
            return Ok(());
        }
        if inner.controller.is_active() {
            inner.controller.renew_claim(epoch);
            return Ok(());
        }
        let Some(next) = inner.driver.node().next_append_offset() else { return Ok(()) };
        tracing::info!(target: "org.apache.kafka.controller.QuorumController", "[QuorumController id={}] Becoming the active controller at epoch {epoch}, next write offset {next}.", self.node_id());
        let result = inner.controller.become_active(now, epoch, next).map_err(fault)?;
        append(inner, now, &result)?;
        let _ = inner.controller.complete(now, result);
        if inner.registered_epoch != Some(epoch) {
            inner.registered_epoch = Some(epoch);
            let request = ControllerRequest::ControllerRegistration(self.controller_registration());
            self.submit(request, Origin::ControllerRegistration);
        }
        Ok(())
    }

    /// Requests whose records will never be committed by us are told who to ask instead.
    fn refuse_parked(&self, inner: &mut Inner) {
        for parked in std::mem::take(&mut inner.parked) {
            let context = RequestContext::allow_all(i16::MAX, [0; 4]);
            let refusal = requests::decide(&mut inner.controller, self.now(), &context, &parked.request);
            requests::finish(self, parked.origin, refusal.response);
        }
    }

    /// Publishes what was committed since the last publication.
    fn publish_pending(&self, inner: &mut Inner) -> Result<(), String> {
        if !inner.caught_up {
            return Ok(());
        }
        match inner.loader.flush() {
            Some(update) => self.publish(&update),
            None => Ok(()),
        }
    }

    fn publish_when_caught_up(&self, inner: &Inner, update: &MetadataUpdate) -> Result<(), String> {
        if inner.caught_up { self.publish(update) } else { Ok(()) }
    }

    fn answer(&self, inner: &mut Inner) {
        let stable = inner.controller.last_stable_offset();
        while let Some(parked) = inner.parked.pop_front_if(|parked| parked.wait_for <= stable) {
            requests::finish(self, parked.origin, parked.response);
        }
    }

    fn snapshot_when_due(&self, inner: &mut Inner) -> Result<(), String> {
        let now = self.now();
        let Some(why) = inner.driver.snapshot_due(now) else { return Ok(()) };
        let image = inner.loader.image().clone();
        let provenance = image.provenance;
        let id = OffsetAndEpoch::new(provenance.last_contained_offset + 1, provenance.last_contained_epoch);
        let Some(options) = image.write_options() else { return Ok(()) };
        let records =
            image.write_encoded(options).map_err(|loss| format!("The snapshot would lose {}", loss.what))?;
        tracing::info!(target: "org.apache.kafka.image.publisher.SnapshotGenerator", "[SnapshotGenerator id={}] Creating new KRaft snapshot file {id} because {why}.", self.node_id());
        inner
            .driver
            .create_snapshot(now, id, provenance.last_contained_log_time_ms, [records])
            .map_err(|error| error.to_string())?;
        Ok(())
    }

    fn reply_raft(&self, to: ReplyTo, response: RaftResponse) {
        match response {
            RaftResponse::Vote(response) => self.reply(to, &response),
            RaftResponse::BeginQuorumEpoch(response) => self.reply(to, &response),
            RaftResponse::EndQuorumEpoch(response) => self.reply(to, &response),
            RaftResponse::Fetch(response) => self.reply(to, &response),
            RaftResponse::FetchSnapshot(response) => self.reply(to, &response),
            RaftResponse::DescribeQuorum(response) => self.reply(to, &response),
        }
    }

    /// The last offset of the metadata log that this broker has published.
    pub(crate) fn metadata_offset(&self) -> i64 {
        self.image().offset()
    }
}

fn fault(error: metadata::ReplayError) -> String {
    format!("The metadata log contradicts the state: {error}")
}

/// Appends a decision's batches and replays them.
fn append<T>(inner: &mut Inner, now: Time, result: &ControllerResult<T>) -> Result<(), String> {
    for batch in result.batches() {
        let Some(epoch) = inner.controller.claim_epoch() else {
            return Err("records were decided by an inactive controller".into());
        };
        let Some(base_offset) = inner.driver.node().next_append_offset() else {
            return Err("the metadata log takes no records from this controller".into());
        };
        let encoded = batch
            .iter()
            .map(VersionedRecord::encode)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())?;
        inner
            .driver
            .propose(now, epoch, encoded)
            .map_err(|error| format!("the metadata log refused records: {error:?}"))?;
        inner
            .controller
            .replay_appended(base_offset, batch)
            .map_err(|error| format!("a decision cannot be replayed: {error}"))?;
    }
    Ok(())
}

fn decode(records: &[bytes::Bytes]) -> Result<Vec<VersionedRecord>, String> {
    records
        .iter()
        .map(|record| VersionedRecord::decode(record.clone()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("The metadata log holds a record that cannot be read: {error:?}"))
}
