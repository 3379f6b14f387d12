//! The controller of a KRaft cluster: decides, replays, reverts (KIP-631, KIP-866, KIP-868).
//!
//! Owns the replicated state with a snapshot per appended batch, the heartbeats, the periodic work and the offsets
//! between them. Invariants: only replay changes the replicated state; while active, the state runs ahead of what is
//! committed and goes back to the last stable offset on resignation; while not active it holds committed records only.
//! Concurrency: one owner, no locks, no IO. A crash leaves nothing: log and snapshots are replayed.
//!
//! How it is driven, as a decision goes through raft:
//! 1. `handle_*` or [`QuorumController::tick`] gives a [`ControllerResult`];
//! 2. each of its batches is appended, then [`QuorumController::replay_appended`] with the offset it got;
//! 3. [`QuorumController::complete`] says until which offset the response must wait;
//! 4. [`QuorumController::handle_commit`] on every committed batch moves [`QuorumController::last_stable_offset`],
//!    which releases responses.

mod handlers;

use std::time::Duration;

use metadata::image::{MetadataImage, ReplayError};
use metadata::record::MetadataRecord;
use metadata::{BootstrapMetadata, VersionedRecord};
use protocol::records::metadata::{
    AbortTransactionRecord, BeginTransactionRecord, ConfigRecord, EndTransactionRecord, NoOpRecord,
};
use record::Time;
use timeline::SnapshotRegistry;

use crate::api::{AfterAppend, ControllerResult};
use crate::decide::{Decider, MIN_INSYNC_REPLICAS};
use crate::heartbeat::BrokerHeartbeatManager;
use crate::periodic::{PeriodicTasks, Task};
use crate::settings::ControllerSettings;
use crate::state::ControllerState;

/// The shortest period in which stale brokers are looked for.
const MIN_FENCE_STALE_BROKER_PERIOD: Duration = Duration::from_millis(1);

/// A response and the offset that must be stable before it is sent; none when it can be sent at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion<T> {
    /// The response.
    pub response: T,
    /// Send it when [`QuorumController::last_stable_offset`] has reached this.
    pub wait_for: Option<i64>,
}

/// The controller of one node, active or standing by.
#[derive(Clone)]
pub struct QuorumController {
    settings: ControllerSettings,
    bootstrap: BootstrapMetadata,
    registry: SnapshotRegistry<ControllerState>,
    heartbeats: BrokerHeartbeatManager,
    tasks: PeriodicTasks,
    /// What raft says of `kraft.version`.
    kraft_version: i16,
    /// Whom raft says to be the leader.
    leader: Option<i32>,
    claim_epoch: Option<i32>,
    last_committed_offset: i64,
    last_committed_epoch: i32,
    last_stable_offset: i64,
    transaction_start_offset: Option<i64>,
    next_write_offset: i64,
    last_appended_offset: i64,
}

/// No record yet.
const NO_OFFSET: i64 = -1;

fn inconsistent(message: String) -> ReplayError {
    ReplayError::Inconsistent(message)
}

impl QuorumController {
    /// A controller that stands by with an empty log. `bootstrap` is what the active one writes into an empty log.
    pub fn new(settings: ControllerSettings, bootstrap: BootstrapMetadata) -> Self {
        let fence_period = (settings.session_timeout() / 8).max(MIN_FENCE_STALE_BROKER_PERIOD);
        let tasks = PeriodicTasks::new([
            (Task::WriteNoOpRecord, settings.max_idle_interval()),
            (Task::FenceStaleBroker, Some(fence_period)),
            (Task::ElectPreferred, settings.leader_imbalance_check_interval()),
            (Task::ElectUnclean, Some(settings.unclean_leader_election_check_interval())),
        ]);
        let mut registry = SnapshotRegistry::new(ControllerState::default());
        registry.get_or_create_snapshot(NO_OFFSET);
        Self {
            heartbeats: BrokerHeartbeatManager::new(settings.session_timeout()),
            settings,
            bootstrap,
            registry,
            tasks,
            kraft_version: 0,
            leader: None,
            claim_epoch: None,
            last_committed_offset: NO_OFFSET,
            last_committed_epoch: -1,
            last_stable_offset: NO_OFFSET,
            transaction_start_offset: None,
            next_write_offset: NO_OFFSET,
            last_appended_offset: NO_OFFSET,
        }
    }

    // Getters.

    /// Whether this node decides.
    pub fn is_active(&self) -> bool {
        self.claim_epoch.is_some()
    }

    /// The raft epoch in which this node decides.
    pub fn claim_epoch(&self) -> Option<i32> {
        self.claim_epoch
    }

    /// Up to here records are committed and belong to no open transaction: responses that wait for less may be sent.
    pub fn last_stable_offset(&self) -> i64 {
        self.last_stable_offset
    }

    /// The last committed record's offset, -1 before the first.
    pub fn last_committed_offset(&self) -> i64 {
        self.last_committed_offset
    }

    /// The epoch of the last committed record, -1 before the first.
    pub fn last_committed_epoch(&self) -> i32 {
        self.last_committed_epoch
    }

    /// Where the next record will stand, while active.
    pub fn next_write_offset(&self) -> i64 {
        self.next_write_offset
    }

    /// The metadata with everything appended, committed or not. Its provenance is not kept up.
    pub fn image(&self) -> &MetadataImage {
        &self.registry.image
    }

    /// The metadata as of the last stable offset: what clients may be told.
    pub fn stable_image(&self) -> &MetadataImage {
        &self.stable_state().image
    }

    /// What this controller was told at its start.
    pub fn settings(&self) -> &ControllerSettings {
        &self.settings
    }

    /// When [`Self::tick`] has something to do next, on the monotonic clock.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.tasks.next_deadline()
    }

    fn stable_state(&self) -> &ControllerState {
        self.registry.at(self.last_stable_offset).unwrap_or(&self.registry)
    }

    fn decider(&self, now: Time) -> Decider<'_> {
        Decider {
            now,
            state: &self.registry,
            settings: &self.settings,
            heartbeats: &self.heartbeats,
            kraft_version: self.kraft_version,
        }
    }

    // What raft tells.

    /// Whom raft says to be the leader, for the message to those who ask the wrong controller.
    pub fn set_leader(&mut self, leader: Option<i32>) {
        self.leader = leader;
    }

    /// What raft says of `kraft.version`.
    pub fn set_kraft_version(&mut self, level: i16) {
        self.kraft_version = level;
    }

    /// Bootstrap records that were read from the bootstrap checkpoint.
    pub fn set_bootstrap(&mut self, bootstrap: BootstrapMetadata) {
        self.bootstrap = bootstrap;
    }

    /// Replaces all state by a snapshot that ends at `offset`. Never called while active.
    pub fn load_snapshot<'a>(
        &mut self,
        offset: i64,
        epoch: i32,
        records: impl IntoIterator<Item = &'a VersionedRecord>,
    ) -> Result<(), ReplayError> {
        if self.is_active() {
            return Err(inconsistent(format!("a snapshot at {offset} while this is the active controller")));
        }
        self.registry.reset();
        for record in records {
            if is_transaction_marker(&record.record) {
                return Err(inconsistent(format!("{} within a snapshot", record.record.name())));
            }
            self.registry.replay(&record.record, offset, &self.settings.local)?;
        }
        self.registry.get_or_create_snapshot(offset);
        self.last_committed_offset = offset;
        self.last_committed_epoch = epoch;
        self.last_stable_offset = offset;
        self.transaction_start_offset = None;
        Ok(())
    }

    /// A batch was committed. The active controller has replayed it already; the others do now.
    pub fn handle_commit(
        &mut self,
        base_offset: i64,
        epoch: i32,
        records: &[VersionedRecord],
    ) -> Result<(), ReplayError> {
        if records.is_empty() {
            return Ok(());
        }
        if !self.is_active() {
            for (offset, record) in (base_offset..).zip(records) {
                self.replay(&record.record, offset)?;
            }
        }
        self.last_committed_offset = base_offset + i64::try_from(records.len()).unwrap_or(i64::MAX) - 1;
        self.last_committed_epoch = epoch;
        self.advance_stable_offset();
        Ok(())
    }

    fn advance_stable_offset(&mut self) {
        let open = self.transaction_start_offset.map_or(i64::MAX, |start| start - 1);
        let stable = open.min(self.last_committed_offset);
        if stable <= self.last_stable_offset {
            return;
        }
        // Snapshots are per batch: one exactly here is kept, or else the newest before it, which later offsets refine.
        if self.registry.has_snapshot(stable) {
            self.registry.delete_snapshots_up_to(stable);
        } else if !self.is_active() {
            self.registry.get_or_create_snapshot(stable);
            self.registry.delete_snapshots_up_to(stable);
        } else {
            return;
        }
        self.last_stable_offset = stable;
    }

    /// This node leads the quorum from `epoch` on; its first record will stand at `next_write_offset`, and every record
    /// before that was given to [`Self::handle_commit`]. The result completes the activation: it must be appended
    /// before any other.
    pub fn become_active(
        &mut self,
        now: Time,
        epoch: i32,
        next_write_offset: i64,
    ) -> Result<ControllerResult<()>, ReplayError> {
        if let Some(current) = self.claim_epoch {
            return Err(inconsistent(format!("active in epoch {current} already")));
        }
        self.registry.get_or_create_snapshot(self.last_stable_offset);
        self.claim_epoch = Some(epoch);
        self.leader = Some(self.settings.local.node_id);
        self.next_write_offset = next_write_offset;
        self.last_appended_offset = NO_OFFSET;
        self.heartbeats = BrokerHeartbeatManager::new(self.settings.session_timeout());
        // The only controller starts with its process, so what is registered under its own id is the broker of a process
        // that is gone; waiting for that session to end would only delay the restart after a crash.
        let local = &self.settings.local;
        let gone = (local.quorum_node_ids == [local.node_id]).then_some(local.node_id);
        for broker in self.registry.image.cluster.brokers.values() {
            self.heartbeats.register(broker.id, broker.fenced);
            if !broker.fenced && gone != Some(broker.id) {
                self.heartbeats.update_contact_time(now, broker.id, broker.epoch);
            }
        }
        let mut result = self.activation_records()?;
        result.after = AfterAppend::CompleteActivation;
        Ok(result)
    }

    /// The leader stays this node in a newer epoch.
    pub fn renew_claim(&mut self, epoch: i32) {
        if self.is_active() {
            self.claim_epoch = Some(epoch);
        }
    }

    /// This node decides no more: everything uncommitted is forgotten, responses that wait are to be refused.
    pub fn resign(&mut self) -> Result<(), ReplayError> {
        if self.claim_epoch.take().is_none() {
            return Ok(());
        }
        self.leader = None;
        self.next_write_offset = NO_OFFSET;
        self.last_appended_offset = NO_OFFSET;
        self.tasks.deactivate();
        self.heartbeats = BrokerHeartbeatManager::new(self.settings.session_timeout());
        if self.transaction_start_offset.is_some_and(|start| start > self.last_committed_offset) {
            self.transaction_start_offset = None;
        }
        // What is committed of an open transaction stays: whoever leads next may still end it.
        let committed = self.last_committed_offset;
        let target = if self.registry.has_snapshot(committed) { committed } else { self.last_stable_offset };
        self.registry.revert_to(target).map_err(|e| inconsistent(e.to_string()))
    }

    fn activation_records(&self) -> Result<ControllerResult<()>, ReplayError> {
        let mut records = Vec::new();
        let abort = || {
            let reason = Some("Controller failover".to_owned());
            VersionedRecord::new(AbortTransactionRecord { reason }, 0)
        };
        // An open transaction will be aborted, so what counts is what was there before it.
        let start = self.transaction_start_offset.and_then(|start| self.registry.at(start - 1).ok());
        let current = start.unwrap_or(&self.registry).image.features.metadata_version;
        let version = current.unwrap_or(self.bootstrap.metadata_version());
        let transactions = version.is_metadata_transaction_supported();
        if self.transaction_start_offset.is_some() {
            if !transactions {
                return Err(inconsistent(format!(
                    "a transaction is open, but metadata.version {version} does not support transactions"
                )));
            }
            records.push(abort());
        }
        if current.is_some() {
            return Ok(ControllerResult::atomic_of(records, ()));
        }
        if transactions {
            let name = Some("Bootstrap records".to_owned());
            records.push(VersionedRecord::new(BeginTransactionRecord { name }, 0));
        }
        records.extend_from_slice(self.bootstrap.records());
        if self.bootstrap.feature_level(metadata::feature::ELIGIBLE_LEADER_REPLICAS_VERSION) > 0 {
            let record = ConfigRecord {
                resource_type: metadata::image::resource_type::BROKER,
                resource_name: String::new(),
                name: MIN_INSYNC_REPLICAS.to_owned(),
                value: Some(self.settings.server.min_insync_replicas.to_string()),
            };
            records.push(VersionedRecord::new(record, 0));
        }
        if !transactions {
            return Ok(ControllerResult::atomic_of(records, ()));
        }
        records.push(VersionedRecord::new(EndTransactionRecord::default(), 0));
        Ok(ControllerResult::of(records, ()))
    }

    // What the driver does with a decision.

    /// Replays a batch of a decision that raft has appended (not yet committed). Returns the batch's last offset.
    /// An error means that a decision of ours was wrong: the node must stop.
    pub fn replay_appended(
        &mut self,
        base_offset: i64,
        batch: &[VersionedRecord],
    ) -> Result<i64, ReplayError> {
        let mut last = base_offset - 1;
        for (offset, record) in (base_offset..).zip(batch) {
            self.replay(&record.record, offset)?;
            last = offset;
        }
        if last >= base_offset {
            self.next_write_offset = last + 1;
            self.last_appended_offset = last;
            self.registry.get_or_create_snapshot(last);
        }
        Ok(last)
    }

    /// A decision's batches were all appended and replayed; says what its response waits for.
    pub fn complete<T>(&mut self, now: Time, result: ControllerResult<T>) -> Completion<T> {
        match result.after {
            AfterAppend::Nothing => {}
            AfterAppend::ControlledShutdown { broker_id } => {
                let end = self.next_write_offset - 1;
                self.heartbeats.maybe_update_controlled_shutdown_offset(broker_id, end);
            }
            AfterAppend::CompleteActivation => self.tasks.activate(now),
        }
        // Without records of its own a response waits for what its decision has looked at.
        let wait_for = Some(self.last_appended_offset).filter(|offset| *offset > self.last_stable_offset);
        Completion { response: result.response, wait_for }
    }

    /// The next piece of periodic work that writes something; call again until there is none.
    pub fn tick(&mut self, now: Time) -> Option<ControllerResult<()>> {
        while self.is_active() {
            let task = self.tasks.due(now)?;
            let result = self.run_task(now, task);
            self.tasks.reschedule(now, task, result.response);
            if !result.records.is_empty() {
                return Some(result.map(|_| ()));
            }
        }
        None
    }

    fn run_task(&mut self, now: Time, task: Task) -> ControllerResult<bool> {
        match task {
            Task::WriteNoOpRecord => {
                ControllerResult::of(vec![VersionedRecord::new(NoOpRecord::default(), 0)], false)
            }
            Task::ElectPreferred => self.decider(now).balance_partition_leaders(),
            Task::ElectUnclean => self.decider(now).elect_unclean_leaders(),
            Task::FenceStaleBroker => {
                let Some((broker, epoch)) = self.heartbeats.remove_one_expired(now) else {
                    return ControllerResult::of(Vec::new(), false);
                };
                let records = self.decider(now).fence_stale_broker(broker, epoch);
                if !records.is_empty() {
                    self.heartbeats.fence(broker);
                } else if self.registry.broker(broker).is_none() {
                    self.heartbeats.remove(broker);
                }
                ControllerResult::of(records, true)
            }
        }
    }

    // Replay.

    fn replay(&mut self, record: &MetadataRecord, offset: i64) -> Result<(), ReplayError> {
        match record {
            MetadataRecord::BeginTransactionRecord(_) => {
                if let Some(start) = self.transaction_start_offset {
                    return Err(inconsistent(format!(
                        "a transaction begins at {offset} while the one at {start} was never closed"
                    )));
                }
                self.registry.get_or_create_snapshot(offset - 1);
                self.transaction_start_offset = Some(offset);
                return Ok(());
            }
            MetadataRecord::EndTransactionRecord(_) => {
                let open = self.transaction_start_offset.take();
                let message = || inconsistent(format!("a transaction ends at {offset}, but none is open"));
                return open.map(|_| ()).ok_or_else(message);
            }
            MetadataRecord::AbortTransactionRecord(_) => {
                let open = self.transaction_start_offset.take();
                let message =
                    || inconsistent(format!("a transaction is aborted at {offset}, but none is open"));
                let start = open.ok_or_else(message)?;
                return self.registry.revert_to(start - 1).map_err(|e| inconsistent(e.to_string()));
            }
            _ => {}
        }
        self.registry.replay(record, offset, &self.settings.local)?;
        if self.is_active() {
            self.track_registration(record);
        }
        Ok(())
    }

    fn track_registration(&mut self, record: &MetadataRecord) {
        match record {
            MetadataRecord::RegisterBrokerRecord(r) => {
                self.heartbeats.remove(r.broker_id);
                self.heartbeats.register(r.broker_id, r.fenced);
            }
            MetadataRecord::UnregisterBrokerRecord(r) => self.heartbeats.remove(r.broker_id),
            MetadataRecord::BrokerRegistrationChangeRecord(r) => self.track_fencing(r.broker_id),
            MetadataRecord::FenceBrokerRecord(r) => self.track_fencing(r.id),
            MetadataRecord::UnfenceBrokerRecord(r) => self.track_fencing(r.id),
            _ => {}
        }
    }

    fn track_fencing(&mut self, broker: i32) {
        if let Some(fenced) = self.registry.broker(broker).map(|b| b.fenced) {
            self.heartbeats.register(broker, fenced);
        }
    }
}

fn is_transaction_marker(record: &MetadataRecord) -> bool {
    matches!(
        record,
        MetadataRecord::BeginTransactionRecord(_)
            | MetadataRecord::EndTransactionRecord(_)
            | MetadataRecord::AbortTransactionRecord(_)
    )
}
