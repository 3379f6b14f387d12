//! The quorum member: one [`RaftNode`] decides everything about the metadata log and orders it as [`Output`]s.
//!
//! Owns the [`State`] (see `state.rs` for all states and transitions), the view of the log, the requests in flight and
//! the outputs that the driver has not taken yet. Four kinds of methods: getters, `handle_*` inputs, commands
//! (`propose`, `resign`, …) and `poll*` outputs. Nothing waits, blocks or reads a clock.
//!
//! Contract with the driver: outputs are executed **in order, each to its end**; `PersistElection` and `Flush` are
//! durable before the next output is looked at. That order is the whole safety argument: a vote or an acknowledgement
//! is an output behind the one that makes it durable. If executing one fails, the node must be dropped and opened again
//! from disk. After a crash the node starts from [`LogInit`] and the persisted [`ElectionState`]; whatever was only in
//! outputs was never promised to anybody.
//!
//! Concurrency: none inside; one thread at a time.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use protocol::Uuid;
use record::{ControlRecordType, Time};

use crate::accumulator::{BatchAccumulator, ProposeError};
use crate::batches;
use crate::election::EpochElection;
use crate::inbound::PendingFetch;
use crate::leader::LeaderState;
use crate::log_view::{LogInit, LogView};
use crate::messages::{Answerer, RaftRequest, RaftResponse};
use crate::request_manager::{Destination, RequestManager};
use crate::state::{Candidate, Follower, Prospective, Resigned, State, Unattached, quorum_state_version};
use crate::types::{
    ElectionState, Endpoints, KRaftVersion, LeaderAndEpoch, OffsetAndEpoch, ReplicaKey, VoterNode, VoterSet,
};

/// Who this replica is and how patient it is. Times are the `controller.quorum.*` properties.
#[derive(Clone, Debug)]
pub struct RaftConfig {
    pub node_id: i32,
    pub directory_id: Uuid,
    pub cluster_id: String,
    /// The controller listener over which this replica talks to the others.
    pub listener_name: String,
    /// This replica's own controller listeners; empty on a broker.
    pub local_listeners: Endpoints,
    /// Whether the process has the controller role.
    pub can_become_voter: bool,
    /// `controller.quorum.voters`; empty for a dynamic quorum.
    pub static_voters: VoterSet,
    /// `controller.quorum.bootstrap.servers` with ids from -2 downwards; when empty the static voters serve.
    pub bootstrap_servers: Vec<Destination>,
    pub election_timeout: Duration,
    pub fetch_timeout: Duration,
    pub election_backoff_max: Duration,
    pub append_linger: Duration,
    pub request_timeout: Duration,
    pub retry_backoff: Duration,
    pub fetch_max_bytes: i32,
    pub fetch_snapshot_max_bytes: i32,
    /// Spreads election timers; any value that differs between replicas.
    pub random_seed: u64,
}

impl RaftConfig {
    /// A configuration with the reference's default times and limits.
    pub fn new(node_id: i32, directory_id: Uuid, cluster_id: impl Into<String>, listener_name: &str) -> Self {
        Self {
            node_id,
            directory_id,
            cluster_id: cluster_id.into(),
            listener_name: listener_name.to_uppercase(),
            local_listeners: Endpoints::empty(),
            can_become_voter: true,
            static_voters: VoterSet::empty(),
            bootstrap_servers: Vec::new(),
            election_timeout: Duration::from_millis(1000),
            fetch_timeout: Duration::from_millis(2000),
            election_backoff_max: Duration::from_millis(1000),
            append_linger: Duration::from_millis(25),
            request_timeout: Duration::from_millis(2000),
            retry_backoff: Duration::from_millis(20),
            fetch_max_bytes: 1 << 20,
            fetch_snapshot_max_bytes: 1 << 20,
            random_seed: 0,
        }
    }
}

/// What of the log or of a snapshot a response carries. The driver reads it and puts it into the response's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadRequest {
    /// Batches from `offset` on, at most `max_bytes` but at least one batch, committed or not.
    Log {
        offset: i64,
        max_bytes: i32,
    },
    Snapshot {
        id: OffsetAndEpoch,
        position: i64,
        max_bytes: i32,
    },
}

/// What the driver must do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Replace the quorum state durably. `data_version` is the version of the `quorum-state` file.
    PersistElection {
        election: ElectionState,
        data_version: i16,
    },
    /// Append these batches, byte for byte, at `base_offset`, the end of the log.
    Append {
        base_offset: i64,
        next_offset: i64,
        epoch: i32,
        bytes: Bytes,
    },
    /// Make the log durable up to `end_offset`, then call [`RaftNode::handle_log_flushed`].
    Flush {
        end_offset: i64,
    },
    /// Cut the log at `offset`; records at or above it were never committed.
    TruncateTo {
        offset: i64,
    },
    /// Start a partial snapshot file, dropping an unfinished one.
    StartSnapshot {
        id: OffsetAndEpoch,
    },
    AppendSnapshot {
        id: OffsetAndEpoch,
        position: i64,
        bytes: Bytes,
    },
    /// The snapshot is whole: make it durable under its name, then call [`RaftNode::handle_snapshot_fetched`].
    FreezeSnapshot {
        id: OffsetAndEpoch,
        size: i64,
    },
    /// Drop the log and start an empty one at the snapshot's end.
    TruncateFullyAndStartAt {
        id: OffsetAndEpoch,
    },
    /// Records below this offset are committed and may be handed to the state machine.
    HighWatermark {
        offset: i64,
    },
    /// The epoch's leader as far as known. For this replica itself it comes after the high watermark that covers the
    /// beginning of its epoch, so that the state machine has seen everything its predecessors committed.
    LeaderChange(LeaderAndEpoch),
    SendRequest {
        destination: Destination,
        correlation_id: i32,
        request: RaftRequest,
    },
    SendResponse {
        request_id: u64,
        response: RaftResponse,
        read: Option<ReadRequest>,
    },
}

/// Why a node cannot start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitError {
    /// Neither static voters nor bootstrap servers nor a voter set in the log.
    NoBootstrapServers,
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "Missing kraft bootstrap servers. Must specify a value for controller.quorum.bootstrap.servers.",
        )
    }
}

impl std::error::Error for InitError {}

/// Why a snapshot cannot be made at an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// It exists already, or its end lies below the log's start: nothing to do.
    Unneeded,
    /// Its end lies above the high watermark.
    NotCommitted { high_watermark: i64 },
    /// The log has other epochs at that offset.
    NotInLog,
}

/// See the file's header.
#[derive(Debug)]
pub struct RaftNode {
    pub(crate) config: RaftConfig,
    pub(crate) local: ReplicaKey,
    pub(crate) log: LogView,
    pub(crate) state: State,
    pub(crate) requests: RequestManager,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) pending_fetches: Vec<PendingFetch>,
    next_correlation_id: i32,
    random: u64,
    announced: LeaderAndEpoch,
    /// When a graceful shutdown gives up.
    pub(crate) shutdown_deadline: Option<Duration>,
    shutdown_complete: bool,
}

impl RaftNode {
    /// Opens a replica on a log as found on disk. The only voter of its quorum leads when this returns.
    pub fn new(
        now: Time,
        config: RaftConfig,
        log: LogInit,
        election: Option<ElectionState>,
    ) -> Result<RaftNode, InitError> {
        let bootstrap = if config.bootstrap_servers.is_empty() {
            config.static_voters.nodes().filter_map(|node| destination(node, &config.listener_name)).collect()
        } else {
            config.bootstrap_servers.clone()
        };
        if bootstrap.is_empty() && log.voter_sets.is_empty() {
            return Err(InitError::NoBootstrapServers);
        }
        let local = ReplicaKey::new(config.node_id, config.directory_id);
        let mut node = RaftNode {
            local,
            log: LogView::new(log, config.static_voters.clone()),
            state: State::Unattached(Unattached {
                epoch: 0,
                leader_id: None,
                voted: None,
                high_watermark: None,
                election_deadline: None,
            }),
            requests: RequestManager::new(bootstrap, config.retry_backoff, config.request_timeout),
            outputs: VecDeque::new(),
            pending_fetches: Vec::new(),
            next_correlation_id: 0,
            // Any odd mix keeps replicas with neighbouring seeds apart.
            random: config.random_seed
                ^ (config.node_id.unsigned_abs() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15),
            announced: LeaderAndEpoch { leader_id: None, epoch: -1 },
            shutdown_deadline: None,
            shutdown_complete: false,
            config,
        };
        node.initialize(now, election);
        Ok(node)
    }

    fn initialize(&mut self, now: Time, election: Option<ElectionState>) {
        let voters = self.log.last_voter_set().clone();
        let election =
            election.unwrap_or(ElectionState { epoch: 0, leader_id: None, voted: None, voters: Vec::new() });
        let timeout = now.monotonic + self.random_election_timeout();
        let unattached = |epoch, leader_id, voted| {
            State::Unattached(Unattached {
                epoch,
                leader_id,
                voted,
                high_watermark: None,
                election_deadline: Some(timeout),
            })
        };
        let state = if election.epoch < self.log.last_fetched_epoch() {
            // The quorum state is older than the log, as after a restored backup: the log's epoch is known to exist.
            unattached(self.log.last_fetched_epoch(), None, None)
        } else if election.leader_id == Some(self.local.id) {
            State::Resigned(Resigned {
                epoch: election.epoch,
                endpoints: self.config.local_listeners.clone(),
                unacked_voters: voters.ids().filter(|id| *id != self.local.id).collect(),
                preferred_successors: Vec::new(),
                election_deadline: timeout,
            })
        } else if election.is_voted_candidate(&self.local) && voters.is_voter(&self.local) {
            State::Candidate(Candidate {
                epoch: election.epoch,
                election: EpochElection::new(&voters, self.local.id),
                high_watermark: None,
                election_deadline: timeout,
            })
        } else {
            match election.leader_id.map(|id| (id, voters.listeners(id))) {
                Some((leader_id, endpoints)) if !endpoints.is_empty() => State::Follower(Follower {
                    epoch: election.epoch,
                    leader_id,
                    leader_endpoints: endpoints,
                    voted: election.voted,
                    high_watermark: None,
                    fetch_deadline: now.monotonic + self.config.fetch_timeout,
                    has_fetched_from_leader: false,
                    fetching_snapshot: None,
                }),
                _ => unattached(election.epoch, election.leader_id, election.voted),
            }
        };
        self.durable_transition(state);
        if self.is_only_voter() && !matches!(self.state, State::Candidate(_)) {
            self.transition_to_prospective(now);
        } else if matches!(self.state, State::Candidate(_)) {
            self.on_become_candidate(now);
        }
    }

    // ---- getters ----

    pub fn node_id(&self) -> i32 {
        self.local.id
    }

    pub fn epoch(&self) -> i32 {
        self.state.epoch()
    }

    pub fn leader_and_epoch(&self) -> LeaderAndEpoch {
        LeaderAndEpoch { leader_id: self.state.leader_id(self.local.id), epoch: self.epoch() }
    }

    pub fn is_leader(&self) -> bool {
        matches!(self.state, State::Leader(_))
    }

    /// Name of the present state, as the reference's metrics give it.
    pub fn state_name(&self) -> &'static str {
        self.state.name()
    }

    pub fn is_voter(&self) -> bool {
        self.log.last_voter_set().is_voter(&self.local)
    }

    pub fn is_only_voter(&self) -> bool {
        self.log.last_voter_set().is_only_voter(&self.local)
    }

    pub fn high_watermark(&self) -> Option<i64> {
        self.state.high_watermark()
    }

    pub fn log_start_offset(&self) -> i64 {
        self.log.start_offset()
    }

    pub fn log_end_offset(&self) -> i64 {
        self.log.end_offset()
    }

    pub fn latest_snapshot_id(&self) -> Option<OffsetAndEpoch> {
        self.log.latest_snapshot()
    }

    pub fn voters(&self) -> &VoterSet {
        self.log.last_voter_set()
    }

    pub fn kraft_version(&self) -> KRaftVersion {
        self.log.last_kraft_version()
    }

    /// Offset that the next proposed record gets; `None` when this replica does not lead.
    pub fn next_append_offset(&self) -> Option<i64> {
        match &self.state {
            State::Leader(leader) => Some(leader.accumulator.next_offset()),
            _ => None,
        }
    }

    /// When [`RaftNode::poll`] has something to do next if no input comes before; `None`: not by itself.
    pub fn deadline(&mut self, now: Time) -> Option<Duration> {
        let state = self.state_deadline(now);
        let fetches = self.pending_fetches.iter().map(|fetch| fetch.deadline).min();
        [state, fetches, self.shutdown_deadline.filter(|_| !self.shutdown_complete)]
            .into_iter()
            .flatten()
            .min()
    }

    /// The next thing the driver must do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    // ---- commands ----

    /// Accepts records for one atomic batch of `epoch`; returns the offset of the last. They are committed when a
    /// [`Output::HighWatermark`] passes that offset, and lost when this replica stops leading `epoch` before.
    pub fn propose(&mut self, now: Time, epoch: i32, records: Vec<Bytes>) -> Result<i64, ProposeError> {
        match &mut self.state {
            State::Leader(leader) if leader.epoch() == epoch => leader.accumulator.append(now, records),
            _ => Err(ProposeError::NotLeader),
        }
    }

    /// Gives up the leadership of `epoch`; no effect when it is over already.
    pub fn resign(&mut self, epoch: i32) {
        if let State::Leader(leader) = &mut self.state
            && leader.epoch() == epoch
        {
            leader.resign_requested = true;
        }
    }

    /// Starts a graceful shutdown: a leader among others resigns and waits at most `timeout` for a successor.
    pub fn shutdown(&mut self, now: Time, timeout: Duration) {
        self.shutdown_deadline.get_or_insert(now.monotonic + timeout);
    }

    /// True when nothing keeps the process from ending any more.
    pub fn is_shutdown_complete(&self) -> bool {
        self.shutdown_complete
    }

    /// What a snapshot that ends at `id` must say about the quorum in its header batch.
    pub fn snapshot_header(
        &self,
        id: OffsetAndEpoch,
    ) -> Result<(KRaftVersion, Option<VoterSet>), SnapshotError> {
        use crate::log_view::ValidOffsetAndEpoch;
        if id.offset < self.log.start_offset() || self.log.snapshot_size(id).is_some() {
            return Err(SnapshotError::Unneeded);
        }
        let high_watermark = self.high_watermark().unwrap_or(0);
        if id.offset > high_watermark {
            return Err(SnapshotError::NotCommitted { high_watermark });
        }
        if self.log.validate(id.offset, id.epoch) != ValidOffsetAndEpoch::Valid {
            return Err(SnapshotError::NotInLog);
        }
        let last_contained = id.offset - 1;
        let version = self.log.kraft_version_at(last_contained);
        let voters =
            self.log.voter_set_at(last_contained).cloned().filter(|_| version.is_reconfig_supported());
        Ok((version, voters))
    }

    // ---- inputs from the disk ----

    /// The log is durable up to `end_offset`.
    pub fn handle_log_flushed(&mut self, now: Time, end_offset: i64) {
        self.log.flushed(end_offset);
        let flushed = self.log.flushed_offset();
        let voters = self.log.last_voter_set().clone();
        if let State::Leader(leader) = &mut self.state
            && leader.update_local_state(flushed, &voters)
        {
            self.on_leader_high_watermark(now);
        }
    }

    /// A snapshot that this replica made is durable under its name.
    pub fn handle_snapshot_created(&mut self, id: OffsetAndEpoch, size: i64) {
        self.log.add_snapshot(id, size);
        self.log.forget_history_below(id.offset);
    }

    /// A snapshot fetched from the leader is durable; its header holds these.
    pub fn handle_snapshot_fetched(
        &mut self,
        now: Time,
        id: OffsetAndEpoch,
        size: i64,
        version: KRaftVersion,
        voters: Option<VoterSet>,
    ) {
        self.log.add_snapshot(id, size);
        if id <= self.log.end() {
            return;
        }
        self.outputs.push_back(Output::TruncateFullyAndStartAt { id });
        self.log.truncate_fully_and_start_at(id, version, voters);
        self.update_follower_high_watermark(id.offset);
        if let State::Follower(follower) = &mut self.state {
            follower.fetch_deadline = now.monotonic + self.config.fetch_timeout;
        }
    }

    /// The log and its snapshots were cleaned: `earliest` is the oldest snapshot and the log starts at its end.
    pub fn handle_log_cleaned(&mut self, earliest: OffsetAndEpoch) {
        self.log.start_advanced(earliest);
    }

    // ---- transitions ----

    pub(crate) fn durable_transition(&mut self, state: State) {
        assert!(state.epoch() >= self.state.epoch(), "the epoch never goes back");
        let voters = self.log.last_voter_set();
        let election = state.election_state(self.local, voters);
        let data_version = quorum_state_version(self.log.last_kraft_version());
        self.outputs.push_back(Output::PersistElection { election, data_version });
        self.state = state;
    }

    pub(crate) fn transition_to_unattached(&mut self, now: Time, epoch: i32, leader_id: Option<i32>) {
        assert!(
            epoch > self.epoch() || matches!(self.state, State::Prospective(_)),
            "unattached only at a new epoch"
        );
        let election_deadline = if self.is_voter() {
            let fresh = now.monotonic + self.random_election_timeout();
            Some(self.state.carried_election_deadline().unwrap_or(fresh))
        } else {
            None
        };
        let voted = if epoch == self.epoch() { self.state.voted(self.local) } else { None };
        let high_watermark = self.state.high_watermark();
        self.fail_pending_fetches(now);
        self.durable_transition(State::Unattached(Unattached {
            epoch,
            leader_id,
            voted,
            high_watermark,
            election_deadline,
        }));
        self.announce_leader();
        self.requests.reset_all();
    }

    pub(crate) fn transition_to_follower(
        &mut self,
        now: Time,
        epoch: i32,
        leader_id: i32,
        endpoints: Endpoints,
    ) {
        assert!(
            epoch >= self.epoch() && leader_id != self.local.id,
            "follow another replica of this epoch or a later"
        );
        let voted = if epoch == self.epoch() { self.state.voted(self.local) } else { None };
        let high_watermark = self.state.high_watermark();
        self.fail_pending_fetches(now);
        self.durable_transition(State::Follower(Follower {
            epoch,
            leader_id,
            leader_endpoints: endpoints,
            voted,
            high_watermark,
            fetch_deadline: now.monotonic + self.config.fetch_timeout,
            has_fetched_from_leader: false,
            fetching_snapshot: None,
        }));
        self.announce_leader();
        self.requests.reset_all();
    }

    pub(crate) fn transition_to_prospective(&mut self, now: Time) {
        assert!(self.is_voter() && !self.is_leader(), "only a voter that does not lead stands for election");
        let state = State::Prospective(Prospective {
            epoch: self.epoch(),
            leader_id: self.state.leader_id(self.local.id),
            leader_endpoints: self.state.leader_endpoints(),
            voted: self.state.voted(self.local),
            election: EpochElection::new(self.log.last_voter_set(), self.local.id),
            high_watermark: self.state.high_watermark(),
            election_deadline: now.monotonic + self.random_election_timeout(),
        });
        // A pre-vote promises nothing, so nothing is persisted.
        self.state = state;
        self.requests.reset_all();
        self.maybe_advance_election(now);
    }

    pub(crate) fn transition_to_candidate(&mut self, now: Time) {
        assert!(matches!(self.state, State::Prospective(_)), "a candidate was prospective");
        let election_deadline = now.monotonic + self.random_election_timeout();
        let state = State::Candidate(Candidate {
            epoch: self.epoch() + 1,
            election: EpochElection::new(self.log.last_voter_set(), self.local.id),
            high_watermark: self.state.high_watermark(),
            election_deadline,
        });
        self.durable_transition(state);
        self.announce_leader();
        self.on_become_candidate(now);
    }

    fn on_become_candidate(&mut self, now: Time) {
        self.requests.reset_all();
        self.maybe_advance_election(now);
    }

    /// Prospective → Candidate → Leader as far as the votes reach.
    pub(crate) fn maybe_advance_election(&mut self, now: Time) {
        match &self.state {
            State::Prospective(prospective) if prospective.election.is_vote_granted() => {
                self.transition_to_candidate(now)
            }
            State::Candidate(candidate) if candidate.election.is_vote_granted() => {
                let granting = candidate.election.granting_voters();
                self.transition_to_leader(now, &granting);
            }
            _ => {}
        }
    }

    fn transition_to_leader(&mut self, now: Time, granting_voters: &[i32]) {
        let epoch = self.epoch();
        let epoch_start = self.log.end_offset();
        let local = self.local_voter_node();
        let voters = self.log.last_voter_set().clone();
        let mut accumulator = BatchAccumulator::new(epoch, epoch_start, self.config.append_linger);
        accumulator.append_control(now, &self.start_of_epoch_records(&local, &voters, granting_voters));
        let fetch_timeout = self.config.fetch_timeout;
        let leader = LeaderState::new(now, local, epoch, epoch_start, &voters, accumulator, fetch_timeout);
        self.durable_transition(State::Leader(Box::new(leader)));
        self.log.assign_epoch(epoch, epoch_start);
        self.requests.reset_all();
    }

    /// LeaderChange, and the voter set where the log does not hold it yet or holds it with old listeners (KIP-853).
    fn start_of_epoch_records(
        &self,
        local: &VoterNode,
        voters: &VoterSet,
        granting_voters: &[i32],
    ) -> Vec<(ControlRecordType, Bytes)> {
        let voter_ids: Vec<i32> = voters.ids().collect();
        let mut records = vec![batches::leader_change(self.local.id, &voter_ids, granting_voters)];
        let version = self.log.last_kraft_version();
        if version.is_reconfig_supported() {
            let only_in_bootstrap = self.log.last_voter_set_offset() == Some(-1);
            if (only_in_bootstrap || voters.voter_node_needs_update(local))
                && let Some(updated) = voters.with_updated(local.clone())
            {
                records.push(batches::kraft_version(version));
                records.push(batches::voters(&updated));
            }
        }
        records
    }

    pub(crate) fn transition_to_resigned(&mut self, now: Time) {
        let State::Leader(leader) = &self.state else { return };
        let preferred_successors = leader.non_leader_voters_by_descending_fetch_offset();
        let epoch = leader.epoch();
        self.fail_pending_fetches(now);
        let election_deadline = now.monotonic + self.random_election_timeout();
        self.state = State::Resigned(Resigned {
            epoch,
            endpoints: self.config.local_listeners.clone(),
            unacked_voters: self.log.last_voter_set().ids().filter(|id| *id != self.local.id).collect(),
            preferred_successors,
            election_deadline,
        });
        self.requests.reset_all();
    }

    // ---- helpers ----

    pub(crate) fn local_voter_node(&self) -> VoterNode {
        VoterNode {
            key: self.local,
            listeners: self.config.local_listeners.clone(),
            supported_kraft_versions: (0, 1),
        }
    }

    pub(crate) fn on_leader_high_watermark(&mut self, now: Time) {
        let State::Leader(leader) = &mut self.state else { return };
        let Some(offset) = leader.high_watermark() else { return };
        self.outputs.push_back(Output::HighWatermark { offset });
        if !leader.announced && offset > leader.epoch_start_offset() {
            leader.announced = true;
            self.announce_leader();
        }
        self.complete_pending_fetches(now);
    }

    pub(crate) fn update_follower_high_watermark(&mut self, offset: i64) {
        let offset = offset.min(self.log.end_offset());
        if let State::Follower(follower) = &mut self.state
            && follower.high_watermark.is_none_or(|current| offset > current)
        {
            follower.high_watermark = Some(offset);
            self.outputs.push_back(Output::HighWatermark { offset });
        }
    }

    /// Tells the listener of a leader it does not know of yet.
    pub(crate) fn announce_leader(&mut self) {
        let current = self.leader_and_epoch();
        let is_news = current.epoch > self.announced.epoch
            || (current.epoch == self.announced.epoch
                && current.leader_id.is_some()
                && self.announced.leader_id.is_none());
        if is_news {
            self.announced = current;
            self.outputs.push_back(Output::LeaderChange(current));
        }
    }

    /// Takes the control records of appended batches into the view.
    pub(crate) fn note_control_records(&mut self, bytes: &Bytes) {
        for (offset, record) in batches::control_records(bytes) {
            match record {
                batches::ControlRecord::Voters(voters) => self.log.add_voter_set(offset, voters),
                batches::ControlRecord::KRaftVersion(version) => self.log.add_kraft_version(offset, version),
                batches::ControlRecord::Other => {}
            }
        }
    }

    pub(crate) fn answerer(&self, listener_name: &str, api_version: i16) -> Answerer {
        Answerer {
            epoch: self.epoch(),
            leader_id: self.state.leader_id(self.local.id).unwrap_or(-1),
            leader_endpoints: self.state.leader_endpoints(),
            listener_name: listener_name.to_uppercase(),
            api_version,
        }
    }

    pub(crate) fn mark_shutdown_complete(&mut self) {
        self.shutdown_complete = true;
    }

    pub(crate) fn new_correlation_id(&mut self) -> i32 {
        let id = self.next_correlation_id;
        self.next_correlation_id = self.next_correlation_id.checked_add(1).unwrap_or(0);
        id
    }

    /// The election timeout, once to twice, so that replicas do not stand for election together.
    pub(crate) fn random_election_timeout(&mut self) -> Duration {
        let base = u64::try_from(self.config.election_timeout.as_millis()).unwrap_or(u64::MAX);
        if base == 0 {
            return Duration::ZERO;
        }
        Duration::from_millis(base.saturating_add(self.next_random() % base))
    }

    /// SplitMix64.
    pub(crate) fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Where a voter is reached over `listener`.
pub(crate) fn destination(node: &VoterNode, listener: &str) -> Option<Destination> {
    let address = node.listeners.address(listener)?;
    Some(Destination { id: node.key.id, host: address.host.clone(), port: address.port })
}
