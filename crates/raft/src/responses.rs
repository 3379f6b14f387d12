//! Answers of other replicas to what this one asked.
//!
//! Invariants: an answer counts only for the request in flight to that peer and only in the epoch it speaks of; bytes
//! that are not whole valid batches continuing the log are dropped, never appended.

use bytes::Bytes;
use protocol::messages::{
    BeginQuorumEpochResponse, EndQuorumEpochResponse, FetchResponse, FetchSnapshotResponse, VoteResponse,
    fetch_response, fetch_snapshot_response,
};
use protocol::{ErrorCode, Uuid};
use record::Time;

use crate::batches;
use crate::messages::{METADATA_PARTITION, METADATA_TOPIC, RaftResponse, metadata_partition, only};
use crate::node::{Output, RaftNode};
use crate::state::{FetchingSnapshot, State};
use crate::types::{Endpoints, OffsetAndEpoch};

/// What a response says about the quorum, apart from its own subject.
struct Common {
    error: ErrorCode,
    leader_id: Option<i32>,
    epoch: i32,
    endpoints: Endpoints,
}

impl RaftNode {
    /// Takes the answer of `source` to the request `correlation_id`.
    pub fn handle_response(&mut self, now: Time, source: i32, correlation_id: i32, response: RaftResponse) {
        if !self.requests.is_response_expected(source, correlation_id) {
            return;
        }
        let success = match response {
            RaftResponse::Vote(response) => self.handle_vote_response(now, source, &response),
            RaftResponse::BeginQuorumEpoch(response) => {
                self.handle_begin_quorum_epoch_response(now, source, &response)
            }
            RaftResponse::EndQuorumEpoch(response) => {
                self.handle_end_quorum_epoch_response(now, source, &response)
            }
            RaftResponse::Fetch(response) => self.handle_fetch_response(now, response),
            RaftResponse::FetchSnapshot(response) => self.handle_fetch_snapshot_response(now, response),
            // This replica never asks that.
            RaftResponse::DescribeQuorum(_) => false,
        };
        self.requests.on_response_result(source, correlation_id, success, now.monotonic);
        self.poll(now);
    }

    /// The request got no answer: the connection failed or the peer does not know it.
    pub fn handle_request_failure(&mut self, now: Time, source: i32, correlation_id: i32) {
        self.requests.on_response_result(source, correlation_id, false, now.monotonic);
        self.poll(now);
    }

    /// The peer does not support the version of the request that was sent. For a pre-vote that means it never will
    /// answer one: stand without (KIP-996).
    pub fn handle_unsupported_version(&mut self, now: Time, source: i32, correlation_id: i32) {
        if self.requests.is_response_expected(source, correlation_id)
            && matches!(self.state, State::Prospective(_))
        {
            self.transition_to_candidate(now);
            self.poll(now);
            return;
        }
        self.handle_request_failure(now, source, correlation_id);
    }

    fn handle_vote_response(&mut self, now: Time, source: i32, response: &VoteResponse) -> bool {
        if response.error_code == ErrorCode::UNSUPPORTED_VERSION.0
            && matches!(self.state, State::Prospective(_))
        {
            self.transition_to_candidate(now);
            return true;
        }
        if response.error_code != ErrorCode::NONE.0 {
            return false;
        }
        let Some(partition) = metadata_partition!(response.topics, topic_name, partition_index) else {
            return false;
        };
        let endpoint = response.node_endpoints.iter().find(|e| e.node_id == partition.leader_id);
        let endpoints = endpoint.map(|e| self.endpoints(&e.host, e.port));
        let common =
            self.common(partition.error_code, partition.leader_id, partition.leader_epoch, endpoints);
        if let Some(handled) = self.handle_common(now, common) {
            return handled;
        }
        if partition.error_code != ErrorCode::NONE.0 {
            return false;
        }
        let granted = partition.vote_granted;
        match &mut self.state {
            State::Prospective(prospective) => {
                prospective.election.record(source, granted);
                if !granted && prospective.election.is_vote_rejected() {
                    self.prospective_lost(now);
                } else {
                    self.maybe_advance_election(now);
                }
            }
            State::Candidate(candidate) => {
                // A vote, once given, stays given: a changed answer is the peer's fault and is not believed.
                let election = &mut candidate.election;
                let contradicts =
                    if granted { election.is_rejected_by(source) } else { election.is_granted_by(source) };
                if contradicts {
                    return false;
                }
                election.record(source, granted);
                self.maybe_advance_election(now);
            }
            _ => {}
        }
        true
    }

    fn handle_begin_quorum_epoch_response(
        &mut self,
        now: Time,
        source: i32,
        response: &BeginQuorumEpochResponse,
    ) -> bool {
        if response.error_code != ErrorCode::NONE.0 {
            return false;
        }
        let Some(partition) = metadata_partition!(response.topics, topic_name, partition_index) else {
            return false;
        };
        let endpoint = response.node_endpoints.iter().find(|e| e.node_id == partition.leader_id);
        let endpoints = endpoint.map(|e| self.endpoints(&e.host, e.port));
        let common =
            self.common(partition.error_code, partition.leader_id, partition.leader_epoch, endpoints);
        if let Some(handled) = self.handle_common(now, common) {
            return handled;
        }
        if partition.error_code != ErrorCode::NONE.0 {
            return false;
        }
        if let State::Leader(leader) = &mut self.state {
            leader.acknowledge(source);
        }
        true
    }

    fn handle_end_quorum_epoch_response(
        &mut self,
        now: Time,
        source: i32,
        response: &EndQuorumEpochResponse,
    ) -> bool {
        if response.error_code != ErrorCode::NONE.0 {
            return false;
        }
        let Some(partition) = metadata_partition!(response.topics, topic_name, partition_index) else {
            return false;
        };
        let endpoint = response.node_endpoints.iter().find(|e| e.node_id == partition.leader_id);
        let endpoints = endpoint.map(|e| self.endpoints(&e.host, e.port));
        let common =
            self.common(partition.error_code, partition.leader_id, partition.leader_epoch, endpoints);
        if let Some(handled) = self.handle_common(now, common) {
            return handled;
        }
        if partition.error_code != ErrorCode::NONE.0 {
            return false;
        }
        if let State::Resigned(resigned) = &mut self.state {
            resigned.unacked_voters.retain(|voter| *voter != source);
        }
        true
    }

    fn handle_fetch_response(&mut self, now: Time, response: FetchResponse) -> bool {
        if response.error_code != ErrorCode::NONE.0 {
            return false;
        }
        let partition = only(&response.responses)
            .filter(|topic| topic.topic_id == Uuid::METADATA_TOPIC_ID)
            .and_then(|topic| only(&topic.partitions))
            .filter(|partition| partition.partition_index == METADATA_PARTITION);
        let Some(partition) = partition else { return false };
        let leader = &partition.current_leader;
        let endpoint = response.node_endpoints.iter().find(|e| e.node_id == leader.leader_id);
        let endpoints =
            endpoint.and_then(|e| u16::try_from(e.port).ok().map(|port| self.endpoints(&e.host, port)));
        let common = self.common(partition.error_code, leader.leader_id, leader.leader_epoch, endpoints);
        if let Some(handled) = self.handle_common(now, common) {
            return handled;
        }
        if partition.error_code != ErrorCode::NONE.0 || !matches!(self.state, State::Follower(_)) {
            return false;
        }
        let handled = if partition.diverging_epoch.epoch >= 0 {
            self.truncate_to_leader(&partition.diverging_epoch)
        } else if partition.snapshot_id.epoch >= 0 || partition.snapshot_id.end_offset >= 0 {
            self.start_fetching_snapshot(&partition.snapshot_id)
        } else {
            let records =
                partition.records.as_ref().and_then(protocol::Records::bytes).cloned().unwrap_or_default();
            self.append_as_follower(&records);
            if partition.high_watermark >= 0 {
                self.update_follower_high_watermark(partition.high_watermark);
            }
            true
        };
        if handled {
            self.fetched_from_leader(now);
        }
        handled
    }

    fn fetched_from_leader(&mut self, now: Time) {
        if let State::Follower(follower) = &mut self.state {
            follower.fetch_deadline = now.monotonic + self.config.fetch_timeout;
            follower.has_fetched_from_leader = true;
        }
    }

    /// Cuts what the leader does not have. Never below the high watermark: that would undo committed records, so such
    /// an answer is refused.
    fn truncate_to_leader(&mut self, diverging: &fetch_response::EpochEndOffset) -> bool {
        let offset = self.log.truncation_offset(OffsetAndEpoch::new(diverging.end_offset, diverging.epoch));
        if offset < self.high_watermark().unwrap_or(0) || offset < self.log.start_offset() {
            return false;
        }
        self.log.truncate_to(offset);
        self.outputs.push_back(Output::TruncateTo { offset });
        true
    }

    fn start_fetching_snapshot(&mut self, id: &fetch_response::SnapshotId) -> bool {
        if id.epoch < 0 || id.end_offset < 0 {
            return false;
        }
        let id = OffsetAndEpoch::new(id.end_offset, id.epoch);
        let is_new = self.log.snapshot_size(id).is_none();
        if let State::Follower(follower) = &mut self.state {
            follower.fetching_snapshot = is_new.then_some(FetchingSnapshot { id, size: 0 });
        }
        if is_new {
            self.outputs.push_back(Output::StartSnapshot { id });
        }
        true
    }

    fn append_as_follower(&mut self, records: &Bytes) {
        let mut appended = false;
        for batch in batches::valid_batches(records, self.log.end_offset(), self.epoch()) {
            if batch.epoch < self.log.last_fetched_epoch() {
                break;
            }
            self.log.append(batch.base_offset, batch.next_offset, batch.epoch);
            self.note_control_records(&batch.bytes);
            let (base_offset, next_offset, epoch) = (batch.base_offset, batch.next_offset, batch.epoch);
            self.outputs.push_back(Output::Append { base_offset, next_offset, epoch, bytes: batch.bytes });
            appended = true;
        }
        // The next fetch acknowledges these records, so they are durable before it goes out. Observers acknowledge nothing.
        if appended && (self.is_voter() || self.config.can_become_voter) {
            self.outputs.push_back(Output::Flush { end_offset: self.log.end_offset() });
        }
    }

    fn handle_fetch_snapshot_response(&mut self, now: Time, response: FetchSnapshotResponse) -> bool {
        if response.error_code != ErrorCode::NONE.0 {
            return false;
        }
        let partition = only(&response.topics)
            .filter(|topic| topic.name == METADATA_TOPIC)
            .and_then(|topic| only(&topic.partitions))
            .filter(|partition| partition.index == METADATA_PARTITION);
        let Some(partition) = partition else { return false };
        let leader = &partition.current_leader;
        let endpoint = response.node_endpoints.iter().find(|e| e.node_id == leader.leader_id);
        let endpoints = endpoint.map(|e| self.endpoints(&e.host, e.port));
        let common = self.common(partition.error_code, leader.leader_id, leader.leader_epoch, endpoints);
        if let Some(handled) = self.handle_common(now, common) {
            return handled;
        }
        let State::Follower(follower) = &mut self.state else { return false };
        if partition.error_code == ErrorCode::SNAPSHOT_NOT_FOUND.0
            || partition.snapshot_id.end_offset < 0
            || partition.snapshot_id.epoch < 0
        {
            follower.fetching_snapshot = None;
            self.fetched_from_leader(now);
            return true;
        }
        if partition.error_code != ErrorCode::NONE.0 {
            return false;
        }
        let handled = self.append_snapshot(partition);
        if handled {
            self.fetched_from_leader(now);
        }
        handled
    }

    fn append_snapshot(&mut self, partition: &fetch_snapshot_response::PartitionSnapshot) -> bool {
        let State::Follower(follower) = &mut self.state else { return false };
        let id = OffsetAndEpoch::new(partition.snapshot_id.end_offset, partition.snapshot_id.epoch);
        let Some(fetching) = &mut follower.fetching_snapshot else { return false };
        let bytes = partition
            .unaligned_records
            .as_ref()
            .and_then(protocol::Records::bytes)
            .cloned()
            .unwrap_or_default();
        let len = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        let end = fetching.size.saturating_add(len);
        if fetching.id != id || fetching.size != partition.position || len == 0 || end > partition.size {
            return false;
        }
        let position = fetching.size;
        fetching.size = end;
        self.outputs.push_back(Output::AppendSnapshot { id, position, bytes });
        if end == partition.size {
            follower.fetching_snapshot = None;
            self.outputs.push_back(Output::FreezeSnapshot { id, size: end });
        }
        true
    }

    // ---- what all answers have in common ----

    fn endpoints(&self, host: &str, port: u16) -> Endpoints {
        Endpoints::single(&self.config.listener_name, host, port)
    }

    fn common(&self, error: i16, leader_id: i32, epoch: i32, endpoints: Option<Endpoints>) -> Common {
        let leader_id = (leader_id >= 0).then_some(leader_id);
        let endpoints = match (leader_id, endpoints) {
            (Some(_), Some(endpoints)) => endpoints,
            (Some(id), None) => self.log.last_voter_set().listeners(id),
            (None, _) => Endpoints::empty(),
        };
        Common { error: ErrorCode(error), leader_id, epoch, endpoints }
    }

    /// Learns epoch and leader from any answer. `Some` ends the handling of the answer.
    fn handle_common(&mut self, now: Time, common: Common) -> Option<bool> {
        let Common { error, leader_id, epoch, endpoints } = common;
        if epoch < self.epoch() || error == ErrorCode::UNKNOWN_LEADER_EPOCH {
            return Some(true);
        }
        if epoch > self.epoch()
            || error == ErrorCode::FENCED_LEADER_EPOCH
            || error == ErrorCode::NOT_LEADER_OR_FOLLOWER
        {
            return Some(self.maybe_transition(now, leader_id, epoch, endpoints));
        }
        if leader_id.is_some() && self.state.leader_id(self.local.id).is_none() {
            if !self.maybe_transition(now, leader_id, epoch, endpoints) {
                return Some(false);
            }
            return if error == ErrorCode::NONE { None } else { Some(true) };
        }
        match error {
            ErrorCode::BROKER_NOT_AVAILABLE | ErrorCode::INVALID_REQUEST => Some(false),
            ErrorCode::INVALID_VOTER_KEY => Some(true),
            _ => None,
        }
    }

    /// Moves to a later epoch or to a leader not known so far; false when the claim contradicts what is known, or when
    /// the leader's endpoints are unknown.
    pub(crate) fn maybe_transition(
        &mut self,
        now: Time,
        leader_id: Option<i32>,
        epoch: i32,
        endpoints: Endpoints,
    ) -> bool {
        let known = self.state.leader_id(self.local.id);
        let is_consistent = match leader_id {
            Some(id) if id == self.local.id => self.is_leader() && epoch == self.epoch(),
            Some(id) => epoch != self.epoch() || known.is_none_or(|known| known == id),
            None => true,
        };
        if !is_consistent || epoch == i32::MAX {
            return false;
        }
        let is_later = epoch > self.epoch();
        match leader_id {
            None if is_later => self.transition_to_unattached(now, epoch, None),
            Some(id) if id != self.local.id => {
                let has_more_endpoints = endpoints.len() > self.state.leader_endpoints().len();
                if is_later || known.is_none() || has_more_endpoints {
                    if endpoints.is_empty() {
                        return false;
                    }
                    self.transition_to_follower(now, epoch, id, endpoints);
                }
            }
            _ => {}
        }
        true
    }
}
