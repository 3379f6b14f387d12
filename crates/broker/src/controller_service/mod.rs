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
use crate::raft_driver::{DriverEvent, MetadataLogDriver};
use crate::reply::{NodeEvent, ReplyTo};
use controller::{ControllerResult, QuorumController, RequestContext};
use metadata::{MetadataLoader, VersionedRecord};
use parking_lot::Mutex;
use raft::{InboundRequest, RaftRequest, RaftResponse};
use record::Time;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

pub(crate) use requests::{ControllerRequest, ControllerResponse, Origin};

enum Event {
    Request(ControllerRequest, Origin, i16),
    Raft(RaftRequest, ReplyTo, String),
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
    snapshots: SnapshotSchedule,
    registered_epoch: Option<i32>,
}

/// When the next snapshot is due (KIP-630, KIP-876).
struct SnapshotSchedule {
    max_bytes: i64,
    max_interval: Option<Duration>,
    bytes_since: i64,
    last: Duration,
}

/// See the file's header.
pub(crate) struct ControllerService {
    queue: Mutex<Vec<Event>>,
    inner: Mutex<Inner>,
    leader: Mutex<(Option<i32>, i32)>,
}

impl ControllerService {
    pub(crate) fn new(controller: QuorumController, driver: MetadataLogDriver, now: Time, config: &config::ServerConfig) -> Self {
        let interval = u64::try_from(config.metadata_log_max_snapshot_interval_ms).unwrap_or(0);
        Self {
            queue: Mutex::default(),
            inner: Mutex::new(Inner {
                controller,
                driver,
                loader: MetadataLoader::default(),
                parked: VecDeque::new(),
                raft_requests: HashMap::new(),
                next_raft_request: 0,
                snapshots: SnapshotSchedule {
                    max_bytes: config.metadata_log_max_record_bytes_between_snapshots,
                    max_interval: (interval > 0).then(|| Duration::from_millis(interval)),
                    bytes_since: 0,
                    last: now.monotonic,
                },
                registered_epoch: None,
            }),
            leader: Mutex::new((None, 0)),
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

    /// Queues a request for the metadata quorum.
    pub(crate) fn submit_raft(&self, request: RaftRequest, to: ReplyTo, listener: &str) {
        self.controller.queue.lock().push(Event::Raft(request, to, listener.to_owned()));
        self.outbox.wake_controller();
    }

    /// Runs the controller until it has nothing more to do; returns when it must run again at the latest.
    pub fn run_controller(&self) -> Option<Duration> {
        let mut inner = self.controller.inner.lock();
        loop {
            let events = std::mem::take(&mut *self.controller.queue.lock());
            let worked = !events.is_empty();
            let result = self.round(&mut inner, events);
            match result {
                Ok(progress) if progress || worked => {}
                Ok(_) => break,
                Err(reason) => {
                    tracing::error!(target: "org.apache.kafka.controller.QuorumController", "[QuorumController id={}] {reason}", self.node_id());
                    self.outbox.event(NodeEvent::Failed(reason));
                    return None;
                }
            }
        }
        let now = self.now();
        let mut deadlines = [inner.controller.next_deadline(), inner.driver.deadline(now), inner.snapshots.deadline()];
        deadlines.sort();
        deadlines.into_iter().flatten().next()
    }

    /// One pass: decide, append, commit, publish, answer. True when something happened.
    fn round(&self, inner: &mut Inner, events: Vec<Event>) -> Result<bool, String> {
        for event in events {
            match event {
                Event::Request(request, origin, version) => self.decide(inner, request, origin, version)?,
                Event::Raft(request, to, listener) => {
                    let request_id = inner.next_raft_request;
                    inner.next_raft_request += 1;
                    inner.raft_requests.insert(request_id, to);
                    let inbound = InboundRequest { request_id, api_version: to.api_version, listener_name: listener, request };
                    inner.driver.handle_request(self.now(), inbound);
                }
            }
        }
        let now = self.now();
        while let Some(result) = inner.controller.tick(now) {
            append(inner, now, &result)?;
            let _ = inner.controller.complete(now, result);
        }
        let driver_events = inner.driver.poll(self.now())?;
        let progress = !driver_events.is_empty();
        for event in driver_events {
            self.handle_driver_event(inner, event)?;
        }
        self.publish_pending(inner)?;
        self.answer(inner);
        self.snapshot_when_due(inner)?;
        Ok(progress)
    }

    fn decide(&self, inner: &mut Inner, request: ControllerRequest, origin: Origin, version: i16) -> Result<(), String> {
        let now = self.now();
        let context = RequestContext::allow_all(version, self.random_seed());
        let result = requests::decide(&mut inner.controller, now, &context, &request);
        append(inner, now, &result)?;
        let completion = inner.controller.complete(now, result);
        match completion.wait_for {
            Some(wait_for) => inner.parked.push_back(Parked { wait_for, request, origin, response: completion.response }),
            None => requests::finish(self, origin, completion.response),
        }
        Ok(())
    }

    fn handle_driver_event(&self, inner: &mut Inner, event: DriverEvent) -> Result<(), String> {
        let fault = |error: metadata::ReplayError| format!("The metadata log contradicts itself: {error}");
        match event {
            DriverEvent::Snapshot { offset, epoch, append_time_ms, records } => {
                let records = decode(&records)?;
                inner.controller.load_snapshot(offset, epoch, &records).map_err(fault)?;
                let provenance = metadata::MetadataProvenance {
                    last_contained_offset: offset,
                    last_contained_epoch: epoch,
                    last_contained_log_time_ms: append_time_ms,
                    is_offset_batch_aligned: true,
                };
                let update = inner.loader.load_snapshot(provenance, &records).map_err(fault)?;
                self.publish(&update)
            }
            DriverEvent::Committed { base_offset, epoch, append_time_ms, records, size } => {
                let records = decode(&records)?;
                inner.controller.handle_commit(base_offset, epoch, &records).map_err(fault)?;
                inner.snapshots.bytes_since += size;
                for update in inner.loader.load_batch(base_offset, epoch, append_time_ms, &records).map_err(fault)? {
                    self.publish(&update)?;
                }
                Ok(())
            }
            DriverEvent::Leader { leader_id, epoch } => self.handle_leader(inner, leader_id, epoch),
            DriverEvent::KRaftVersion(level) => {
                inner.controller.set_kraft_version(level);
                Ok(())
            }
            DriverEvent::Response { request_id, response } => {
                if let Some(to) = inner.raft_requests.remove(&request_id) {
                    self.reply_raft(to, response);
                }
                Ok(())
            }
        }
    }

    fn handle_leader(&self, inner: &mut Inner, leader: Option<i32>, epoch: i32) -> Result<(), String> {
        let now = self.now();
        *self.controller.leader.lock() = (leader, epoch);
        inner.controller.set_leader(leader);
        let fault = |error: metadata::ReplayError| format!("The controller's state is inconsistent: {error}");
        if leader != Some(self.node_id()) {
            inner.controller.resign().map_err(fault)?;
            self.refuse_parked(inner);
            return Ok(());
        }
        if inner.controller.is_active() {
            inner.controller.renew_claim(epoch);
            return Ok(());
        }
        let Some(next) = inner.driver.next_append_offset() else { return Ok(()) };
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
        match inner.loader.flush() {
            Some(update) => self.publish(&update),
            None => Ok(()),
        }
    }

    fn answer(&self, inner: &mut Inner) {
        let stable = inner.controller.last_stable_offset();
        while let Some(parked) = inner.parked.pop_front_if(|parked| parked.wait_for <= stable) {
            requests::finish(self, parked.origin, parked.response);
        }
    }

    fn snapshot_when_due(&self, inner: &mut Inner) -> Result<(), String> {
        let now = self.now();
        let schedule = &inner.snapshots;
        let by_size = schedule.bytes_since >= schedule.max_bytes;
        let by_time = schedule.bytes_since > 0 && schedule.deadline().is_some_and(|deadline| deadline <= now.monotonic);
        if !by_size && !by_time {
            if schedule.bytes_since == 0 {
                inner.snapshots.last = now.monotonic;
            }
            return Ok(());
        }
        let image = inner.loader.image().clone();
        inner.snapshots.bytes_since = 0;
        inner.snapshots.last = now.monotonic;
        let Some(options) = image.write_options() else { return Ok(()) };
        let records = image.write_encoded(options).map_err(|loss| format!("The snapshot would lose {}", loss.what))?;
        inner.driver.create_snapshot(&image.provenance, &records)
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

impl SnapshotSchedule {
    fn deadline(&self) -> Option<Duration> {
        Some(self.last + self.max_interval?)
    }
}

/// Appends a decision's batches and replays them.
fn append<T>(inner: &mut Inner, now: Time, result: &ControllerResult<T>) -> Result<(), String> {
    for batch in result.batches() {
        let Some(epoch) = inner.controller.claim_epoch() else { return Err("records were decided by an inactive controller".into()) };
        let Some(base_offset) = inner.driver.next_append_offset() else {
            return Err("the metadata log takes no records from this controller".into());
        };
        let encoded = batch.iter().map(VersionedRecord::encode).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
        inner.driver.propose(now, epoch, encoded).map_err(|error| format!("the metadata log refused records: {error:?}"))?;
        inner.controller.replay_appended(base_offset, batch).map_err(|error| format!("a decision cannot be replayed: {error}"))?;
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
