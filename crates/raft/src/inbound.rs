//! Requests of other replicas and of clients: what each is answered and what it changes.
//!
//! Owns the fetches that wait for records. Invariants: every request is answered exactly once, now or when its fetch
//! completes; nothing in a request makes this code panic or believe in two leaders of one epoch.

use std::time::Duration;

use bytes::Bytes;
use protocol::messages::{
    BeginQuorumEpochRequest, BeginQuorumEpochResponse, DescribeQuorumRequest, DescribeQuorumResponse,
    EndQuorumEpochRequest, EndQuorumEpochResponse, FetchRequest, FetchResponse, FetchSnapshotRequest,
    FetchSnapshotResponse, VoteRequest, VoteResponse, describe_quorum_response, fetch_request,
    fetch_response, fetch_snapshot_request, fetch_snapshot_response,
};
use protocol::{ErrorCode, Uuid};
use record::Time;

use crate::leader::ReplicaState;
use crate::log_view::ValidOffsetAndEpoch;
use crate::messages::{
    METADATA_PARTITION, METADATA_TOPIC, RaftRequest, RaftResponse, begin_quorum_epoch_response,
    describe_quorum_error, end_quorum_epoch_response, fetch_response, fetch_snapshot_response,
    metadata_partition, only, vote_response,
};
use crate::node::{Output, RaftNode, ReadRequest};
use crate::state::{State, Unattached, VoteQuestion};
use crate::types::{Endpoints, OffsetAndEpoch, ReplicaKey};

/// A request as it came in.
#[derive(Clone, Debug)]
pub struct InboundRequest {
    /// The driver's own name for it; comes back in [`Output::SendResponse`].
    pub request_id: u64,
    pub api_version: i16,
    /// Listener the request came in on; leader endpoints are given for that one.
    pub listener_name: String,
    pub request: RaftRequest,
}

/// A fetch that found nothing new and waits.
#[derive(Clone, Debug)]
pub(crate) struct PendingFetch {
    pub(crate) deadline: Duration,
    request_id: u64,
    api_version: i16,
    listener_name: String,
    replica: ReplicaKey,
    partition: fetch_request::FetchPartition,
    max_bytes: i32,
    /// What it is answered when nothing happens.
    empty_response: FetchResponse,
}

impl RaftNode {
    /// Takes a request; its answer is an [`Output::SendResponse`], at once or later.
    pub fn handle_request(&mut self, now: Time, inbound: InboundRequest) {
        self.answer_request(now, inbound);
        self.poll(now);
    }

    fn answer_request(&mut self, now: Time, inbound: InboundRequest) {
        let InboundRequest { request_id, api_version, listener_name, request } = inbound;
        let response = match request {
            RaftRequest::Vote(r) => {
                RaftResponse::Vote(self.handle_vote(now, &listener_name, api_version, &r))
            }
            RaftRequest::BeginQuorumEpoch(r) => RaftResponse::BeginQuorumEpoch(
                self.handle_begin_quorum_epoch(now, &listener_name, api_version, &r),
            ),
            RaftRequest::EndQuorumEpoch(r) => RaftResponse::EndQuorumEpoch(self.handle_end_quorum_epoch(
                now,
                &listener_name,
                api_version,
                &r,
            )),
            RaftRequest::DescribeQuorum(r) => {
                RaftResponse::DescribeQuorum(self.handle_describe_quorum(now, api_version, &r))
            }
            RaftRequest::Fetch(r) => {
                return self.handle_fetch(now, request_id, listener_name, api_version, r);
            }
            RaftRequest::FetchSnapshot(r) => {
                let (response, read) = self.handle_fetch_snapshot(now, &listener_name, api_version, &r);
                return self.respond(request_id, RaftResponse::FetchSnapshot(response), read);
            }
        };
        self.respond(request_id, response, None);
    }

    fn respond(&mut self, request_id: u64, response: RaftResponse, read: Option<ReadRequest>) {
        self.outputs.push_back(Output::SendResponse { request_id, response, read });
    }

    // ---- elections ----

    fn handle_vote(
        &mut self,
        now: Time,
        listener: &str,
        version: i16,
        request: &VoteRequest,
    ) -> VoteResponse {
        if !self.has_valid_cluster_id(request.cluster_id.as_deref()) {
            return VoteResponse { error_code: ErrorCode::INCONSISTENT_CLUSTER_ID.0, ..Default::default() };
        }
        let Some(partition) = metadata_partition!(request.topics, topic_name, partition_index) else {
            return VoteResponse { error_code: ErrorCode::INVALID_REQUEST.0, ..Default::default() };
        };
        let answer = |node: &RaftNode, error, granted| {
            vote_response(&node.answerer(listener, version), error, granted)
        };
        let (epoch, pre_vote) = (partition.replica_epoch, partition.pre_vote);
        // A candidate has bumped its epoch above its log's; a prospective has not.
        let is_illegal_epoch =
            if pre_vote { partition.last_offset_epoch > epoch } else { partition.last_offset_epoch >= epoch };
        if partition.last_offset < 0 || partition.last_offset_epoch < 0 || is_illegal_epoch {
            return answer(self, ErrorCode::INVALID_REQUEST, false);
        }
        if let Some(error) = self.validate_voter_only_request(partition.replica_id, epoch) {
            return answer(self, error, false);
        }
        if epoch > self.epoch() {
            self.transition_to_unattached(now, epoch, None);
        }
        if !self.is_valid_voter_key(request.voter_id, partition.voter_directory_id) {
            return answer(self, ErrorCode::INVALID_VOTER_KEY, false);
        }
        let candidate = ReplicaKey::new(partition.replica_id, partition.replica_directory_id);
        let candidate_end = OffsetAndEpoch::new(partition.last_offset, partition.last_offset_epoch);
        let question = VoteQuestion {
            candidate,
            is_log_up_to_date: candidate_end >= self.log.end(),
            is_pre_vote: pre_vote,
        };
        let granted = self.state.grants(&question);
        if granted && !pre_vote {
            self.record_vote(now, candidate);
        }
        answer(self, ErrorCode::NONE, granted)
    }

    /// Remembers the vote durably before it is answered.
    fn record_vote(&mut self, now: Time, candidate: ReplicaKey) {
        let deadline = now.monotonic + self.random_election_timeout();
        match &self.state {
            State::Unattached(unattached) if unattached.voted.is_none() => {
                let voted = Unattached {
                    voted: Some(candidate),
                    election_deadline: Some(deadline),
                    ..unattached.clone()
                };
                self.durable_transition(State::Unattached(voted));
            }
            State::Prospective(prospective) if prospective.voted.is_none() => {
                let mut voted = prospective.clone();
                voted.voted = Some(candidate);
                voted.election_deadline = deadline;
                voted.election =
                    crate::election::EpochElection::new(self.log.last_voter_set(), self.local.id);
                self.durable_transition(State::Prospective(voted));
            }
            _ => {}
        }
    }

    fn handle_begin_quorum_epoch(
        &mut self,
        now: Time,
        listener: &str,
        version: i16,
        request: &BeginQuorumEpochRequest,
    ) -> BeginQuorumEpochResponse {
        if !self.has_valid_cluster_id(request.cluster_id.as_deref()) {
            return BeginQuorumEpochResponse {
                error_code: ErrorCode::INCONSISTENT_CLUSTER_ID.0,
                ..Default::default()
            };
        }
        let Some(partition) = metadata_partition!(request.topics, topic_name, partition_index) else {
            return BeginQuorumEpochResponse {
                error_code: ErrorCode::INVALID_REQUEST.0,
                ..Default::default()
            };
        };
        let (leader_id, epoch) = (partition.leader_id, partition.leader_epoch);
        let error = self.validate_voter_only_request(leader_id, epoch).or_else(|| {
            let given =
                request.leader_endpoints.iter().map(|e| (e.name.clone(), e.host.clone(), e.port)).collect();
            self.follow_announced_leader(now, epoch, leader_id, given).err()
        });
        let error =
            error.unwrap_or(if self.is_valid_voter_key(request.voter_id, partition.voter_directory_id) {
                ErrorCode::NONE
            } else {
                ErrorCode::INVALID_VOTER_KEY
            });
        begin_quorum_epoch_response(&self.answerer(listener, version), error)
    }

    fn handle_end_quorum_epoch(
        &mut self,
        now: Time,
        listener: &str,
        version: i16,
        request: &EndQuorumEpochRequest,
    ) -> EndQuorumEpochResponse {
        if !self.has_valid_cluster_id(request.cluster_id.as_deref()) {
            return EndQuorumEpochResponse {
                error_code: ErrorCode::INCONSISTENT_CLUSTER_ID.0,
                ..Default::default()
            };
        }
        let Some(partition) = metadata_partition!(request.topics, topic_name, partition_index) else {
            return EndQuorumEpochResponse { error_code: ErrorCode::INVALID_REQUEST.0, ..Default::default() };
        };
        let (leader_id, epoch) = (partition.leader_id, partition.leader_epoch);
        let error = self.validate_voter_only_request(leader_id, epoch).or_else(|| {
            let given =
                request.leader_endpoints.iter().map(|e| (e.name.clone(), e.host.clone(), e.port)).collect();
            self.follow_announced_leader(now, epoch, leader_id, given).err()
        });
        if error.is_none() {
            let candidates: Vec<ReplicaKey> = if partition.preferred_candidates.is_empty() {
                partition
                    .preferred_successors
                    .iter()
                    .map(|id| ReplicaKey { id: *id, directory_id: None })
                    .collect()
            } else {
                let key = |c: &protocol::messages::end_quorum_epoch_request::ReplicaInfo| {
                    ReplicaKey::new(c.candidate_id, c.candidate_directory_id)
                };
                partition.preferred_candidates.iter().map(key).collect()
            };
            let backoff = self.end_epoch_election_backoff(&candidates);
            if let State::Follower(follower) = &mut self.state
                && follower.leader_id == leader_id
            {
                follower.fetch_deadline = now.monotonic + backoff;
            }
        }
        end_quorum_epoch_response(&self.answerer(listener, version), error.unwrap_or(ErrorCode::NONE))
    }

    /// The first successor stands at once, the others wait exponentially longer.
    fn end_epoch_election_backoff(&self, candidates: &[ReplicaKey]) -> Duration {
        let max = self.config.election_backoff_max;
        match candidates.iter().position(|key| key.matches(&self.local)) {
            Some(0) => Duration::ZERO,
            None => max,
            Some(position) => {
                let halvings = u32::try_from(candidates.len() - 1).unwrap_or(31).min(31);
                let doublings = u32::try_from(position - 1).unwrap_or(31).min(31);
                (max / (1u32 << halvings)).saturating_mul(1u32 << doublings).min(max)
            }
        }
    }

    /// Follows a leader that says of itself that it leads `epoch`.
    fn follow_announced_leader(
        &mut self,
        now: Time,
        epoch: i32,
        leader_id: i32,
        given: Endpoints,
    ) -> Result<(), ErrorCode> {
        let endpoints = if given.is_empty() { self.log.last_voter_set().listeners(leader_id) } else { given };
        if self.maybe_transition(now, Some(leader_id), epoch, endpoints) {
            Ok(())
        } else {
            Err(ErrorCode::INVALID_REQUEST)
        }
    }

    // ---- replication ----

    fn handle_fetch(
        &mut self,
        now: Time,
        request_id: u64,
        listener: String,
        version: i16,
        request: FetchRequest,
    ) {
        let refuse = |error: ErrorCode| {
            RaftResponse::Fetch(FetchResponse { error_code: error.0, ..Default::default() })
        };
        if !self.has_valid_cluster_id(request.cluster_id.as_deref()) {
            return self.respond(request_id, refuse(ErrorCode::INCONSISTENT_CLUSTER_ID), None);
        }
        let partition = only(&request.topics)
            .filter(|topic| topic.topic_id == Uuid::METADATA_TOPIC_ID)
            .and_then(|topic| only(&topic.partitions))
            .filter(|partition| partition.partition == METADATA_PARTITION);
        let Some(partition) = partition.cloned() else {
            return self.respond(request_id, refuse(ErrorCode::INVALID_REQUEST), None);
        };
        if request.max_wait_ms < 0
            || partition.fetch_offset < 0
            || partition.last_fetched_epoch < 0
            || partition.last_fetched_epoch > partition.current_leader_epoch
        {
            let response = self.empty_fetch_response(&listener, version, ErrorCode::INVALID_REQUEST);
            return self.respond(request_id, RaftResponse::Fetch(response), None);
        }
        let replica_id = if request.replica_state.replica_id >= 0 {
            request.replica_state.replica_id
        } else {
            request.replica_id
        };
        let mut pending = PendingFetch {
            deadline: now.monotonic + Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)),
            request_id,
            api_version: version,
            listener_name: listener,
            replica: ReplicaKey::new(replica_id, partition.replica_directory_id),
            partition,
            max_bytes: request.max_bytes,
            empty_response: FetchResponse::default(),
        };
        let (response, read) = self.try_complete_fetch(now, &pending);
        let waits = read.is_none()
            && request.max_wait_ms > 0
            && only(&response.responses).and_then(|topic| only(&topic.partitions)).is_some_and(|answered| {
                answered.error_code == ErrorCode::NONE.0
                    && answered.diverging_epoch.end_offset < 0
                    && answered.diverging_epoch.epoch < 0
                    && answered.snapshot_id.end_offset < 0
                    && answered.snapshot_id.epoch < 0
                    && answered.high_watermark <= pending.partition.high_watermark
            });
        if waits {
            pending.empty_response = response;
            self.pending_fetches.push(pending);
        } else {
            self.respond(request_id, RaftResponse::Fetch(response), read);
        }
    }

    fn try_complete_fetch(
        &mut self,
        now: Time,
        fetch: &PendingFetch,
    ) -> (FetchResponse, Option<ReadRequest>) {
        let (listener, version) = (&fetch.listener_name, fetch.api_version);
        if let Some(error) = self.validate_leader_only_request(fetch.partition.current_leader_epoch) {
            return (self.empty_fetch_response(listener, version, error), None);
        }
        let offset = fetch.partition.fetch_offset;
        let latest = self.log.latest_snapshot().filter(|id| *id != OffsetAndEpoch::BOOTSTRAP_SNAPSHOT);
        let valid = match latest {
            Some(latest) if offset == 0 => ValidOffsetAndEpoch::Snapshot(latest),
            _ => self.log.validate(offset, fetch.partition.last_fetched_epoch),
        };
        let mut read = None;
        let mut partition = fetch_response::PartitionData::default();
        match valid {
            ValidOffsetAndEpoch::Valid => {
                if offset < self.log.end_offset() {
                    read = Some(ReadRequest::Log { offset, max_bytes: fetch.max_bytes });
                }
                let rose = match &mut self.state {
                    State::Leader(leader) => leader.update_replica_state(fetch.replica, now, offset),
                    _ => false,
                };
                if rose {
                    self.on_leader_high_watermark(now);
                }
            }
            ValidOffsetAndEpoch::Diverging(end) => {
                partition.diverging_epoch =
                    fetch_response::EpochEndOffset { epoch: end.epoch, end_offset: end.offset };
            }
            ValidOffsetAndEpoch::Snapshot(id) => {
                partition.snapshot_id = fetch_response::SnapshotId { end_offset: id.offset, epoch: id.epoch };
            }
        }
        partition.error_code = ErrorCode::NONE.0;
        partition.log_start_offset = self.log.start_offset();
        partition.high_watermark = self.high_watermark().unwrap_or(-1);
        partition.records = Some(protocol::Records::Bytes(Bytes::new()));
        (fetch_response(&self.answerer(listener, version), partition), read)
    }

    fn empty_fetch_response(&self, listener: &str, version: i16, error: ErrorCode) -> FetchResponse {
        let partition = fetch_response::PartitionData {
            error_code: error.0,
            log_start_offset: self.log.start_offset(),
            high_watermark: -1,
            records: Some(protocol::Records::Bytes(Bytes::new())),
            ..Default::default()
        };
        fetch_response(&self.answerer(listener, version), partition)
    }

    /// Answers every waiting fetch: the high watermark rose.
    pub(crate) fn complete_pending_fetches(&mut self, now: Time) {
        self.complete_pending_fetches_below(now, i64::MAX);
    }

    /// Answers the waiting fetches below `end_offset`: the log grew.
    pub(crate) fn complete_pending_fetches_below(&mut self, now: Time, end_offset: i64) {
        let (due, waiting) = std::mem::take(&mut self.pending_fetches)
            .into_iter()
            .partition(|fetch| fetch.partition.fetch_offset < end_offset);
        self.pending_fetches = waiting;
        let due: Vec<PendingFetch> = due;
        for fetch in due {
            let (response, read) = self.try_complete_fetch(now, &fetch);
            self.respond(fetch.request_id, RaftResponse::Fetch(response), read);
        }
    }

    pub(crate) fn expire_pending_fetches(&mut self, now: Time) {
        let (due, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending_fetches)
            .into_iter()
            .partition(|fetch| now.monotonic >= fetch.deadline);
        self.pending_fetches = waiting;
        for fetch in due {
            self.respond(fetch.request_id, RaftResponse::Fetch(fetch.empty_response), None);
        }
    }

    /// This replica stops leading: nobody should wait for it.
    pub(crate) fn fail_pending_fetches(&mut self, _now: Time) {
        for fetch in std::mem::take(&mut self.pending_fetches) {
            let error = ErrorCode::NOT_LEADER_OR_FOLLOWER;
            let response = self.empty_fetch_response(&fetch.listener_name, fetch.api_version, error);
            self.respond(fetch.request_id, RaftResponse::Fetch(response), None);
        }
    }

    fn handle_fetch_snapshot(
        &mut self,
        now: Time,
        listener: &str,
        version: i16,
        request: &FetchSnapshotRequest,
    ) -> (FetchSnapshotResponse, Option<ReadRequest>) {
        let refuse =
            |error: ErrorCode| (FetchSnapshotResponse { error_code: error.0, ..Default::default() }, None);
        if !self.has_valid_cluster_id(request.cluster_id.as_deref()) {
            return refuse(ErrorCode::INCONSISTENT_CLUSTER_ID);
        }
        let Some((topic, partition)) =
            only(&request.topics).and_then(|t| only(&t.partitions).map(|p| (t, p)))
        else {
            return refuse(ErrorCode::INVALID_REQUEST);
        };
        let by = self.answerer(listener, version);
        let answer = |mut answered: fetch_snapshot_response::PartitionSnapshot, read| {
            answered.index = partition.partition;
            (fetch_snapshot_response(&by, &topic.name, answered), read)
        };
        if topic.name != METADATA_TOPIC || partition.partition != METADATA_PARTITION {
            let error_code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;
            return answer(
                fetch_snapshot_response::PartitionSnapshot { error_code, ..Default::default() },
                None,
            );
        }
        let mut answered = fetch_snapshot_response::PartitionSnapshot {
            current_leader: fetch_snapshot_response::LeaderIdAndEpoch {
                leader_id: by.leader_id,
                leader_epoch: by.epoch,
            },
            ..Default::default()
        };
        let (error, size) = self.check_fetch_snapshot(partition);
        answered.error_code = error.0;
        if error != ErrorCode::NONE {
            return answer(answered, None);
        }
        if let State::Leader(leader) = &mut self.state {
            leader.update_check_quorum(
                ReplicaKey::new(request.replica_id, partition.replica_directory_id),
                now,
            );
        }
        let id = OffsetAndEpoch::new(partition.snapshot_id.end_offset, partition.snapshot_id.epoch);
        answered.snapshot_id = fetch_snapshot_response::SnapshotId { end_offset: id.offset, epoch: id.epoch };
        answered.size = size;
        answered.position = partition.position;
        let read = ReadRequest::Snapshot { id, position: partition.position, max_bytes: request.max_bytes };
        answer(answered, Some(read))
    }

    fn check_fetch_snapshot(
        &self,
        partition: &fetch_snapshot_request::PartitionSnapshot,
    ) -> (ErrorCode, i64) {
        if let Some(error) = self.validate_leader_only_request(partition.current_leader_epoch) {
            return (error, 0);
        }
        let id = OffsetAndEpoch::new(partition.snapshot_id.end_offset, partition.snapshot_id.epoch);
        match self.log.snapshot_size(id) {
            // The bootstrap snapshot is private to the node that was formatted with it.
            None => (ErrorCode::SNAPSHOT_NOT_FOUND, 0),
            Some(_) if id == OffsetAndEpoch::BOOTSTRAP_SNAPSHOT => (ErrorCode::SNAPSHOT_NOT_FOUND, 0),
            Some(size) if partition.position < 0 || partition.position >= size => {
                (ErrorCode::POSITION_OUT_OF_RANGE, 0)
            }
            Some(size) => (ErrorCode::NONE, size),
        }
    }

    // ---- DescribeQuorum (KIP-595, KIP-836, KIP-853) ----

    fn handle_describe_quorum(
        &mut self,
        now: Time,
        version: i16,
        request: &DescribeQuorumRequest,
    ) -> DescribeQuorumResponse {
        if metadata_partition!(request.topics, topic_name, partition_index).is_none() {
            return describe_quorum_error(request, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        }
        let leader_id = self.local.id;
        let State::Leader(leader) = &mut self.state else {
            return describe_quorum_error(request, ErrorCode::NOT_LEADER_OR_FOLLOWER);
        };
        let describe = |state: &ReplicaState| describe_replica(state, leader_id, now, version);
        let partition = describe_quorum_response::PartitionData {
            partition_index: METADATA_PARTITION,
            error_code: ErrorCode::NONE.0,
            leader_id,
            leader_epoch: leader.epoch(),
            high_watermark: leader.high_watermark().unwrap_or(-1),
            current_voters: leader.voter_states().map(describe).collect(),
            observers: leader.observer_states(now).map(describe).collect(),
            ..Default::default()
        };
        let nodes =
            leader.voter_states().filter(|_| version >= 2).map(|state| describe_quorum_response::Node {
                node_id: state.key.id,
                listeners: state
                    .listeners
                    .iter()
                    .map(|(name, address)| describe_quorum_response::Listener {
                        name: name.to_owned(),
                        host: address.host.clone(),
                        port: address.port,
                    })
                    .collect(),
            });
        let nodes = nodes.collect();
        let topic = describe_quorum_response::TopicData {
            topic_name: METADATA_TOPIC.into(),
            partitions: vec![partition],
        };
        DescribeQuorumResponse { topics: vec![topic], nodes, ..Default::default() }
    }

    // ---- checks ----

    fn has_valid_cluster_id(&self, cluster_id: Option<&str>) -> bool {
        cluster_id.is_none_or(|id| id == self.config.cluster_id)
    }

    fn validate_voter_only_request(&self, remote_id: i32, epoch: i32) -> Option<ErrorCode> {
        if epoch < self.epoch() {
            return Some(ErrorCode::FENCED_LEADER_EPOCH);
        }
        // No election could follow the last epoch there is; nobody gets there but by forging it.
        (remote_id < 0 || epoch == i32::MAX).then_some(ErrorCode::INVALID_REQUEST)
    }

    fn validate_leader_only_request(&self, epoch: i32) -> Option<ErrorCode> {
        if epoch < self.epoch() {
            return Some(ErrorCode::FENCED_LEADER_EPOCH);
        }
        if epoch > self.epoch() {
            return Some(ErrorCode::UNKNOWN_LEADER_EPOCH);
        }
        if !self.is_leader() {
            return Some(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        self.shutdown_deadline.is_some().then_some(ErrorCode::BROKER_NOT_AVAILABLE)
    }

    /// A request may name the voter it is meant for; the zero directory id names any.
    fn is_valid_voter_key(&self, voter_id: i32, directory_id: protocol::Uuid) -> bool {
        voter_id < 0 || ReplicaKey::new(voter_id, directory_id).matches(&self.local)
    }
}

fn describe_replica(
    state: &ReplicaState,
    leader_id: i32,
    now: Time,
    version: i16,
) -> describe_quorum_response::ReplicaState {
    let is_leader = state.key.id == leader_id;
    describe_quorum_response::ReplicaState {
        replica_id: state.key.id,
        replica_directory_id: if version >= 2 {
            state.key.directory_id_or_zero()
        } else {
            protocol::Uuid::ZERO
        },
        log_end_offset: state.end_offset.unwrap_or(-1),
        last_fetch_timestamp: if is_leader { now.wall_ms } else { state.last_fetch_timestamp },
        last_caught_up_timestamp: if is_leader { now.wall_ms } else { state.last_caught_up_timestamp },
    }
}
