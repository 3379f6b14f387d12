//! Timers: what each state does when it is polled, and when it wants to be polled next.
//!
//! Invariant: `poll` makes every due transition and sends every request that may be sent now, so calling it again at the
//! same time changes nothing; `deadline` is never in the past after a `poll` unless a peer must be retried at once.

use std::time::Duration;

use record::Time;

use crate::messages::{
    FetchPosition, RaftRequest, begin_quorum_epoch_request, end_quorum_epoch_request, fetch_request,
    fetch_snapshot_request, vote_request,
};
use crate::node::{Output, RaftNode, destination};
use crate::request_manager::Destination;
use crate::state::State;
use crate::types::ReplicaKey;

/// How long a leader may hold an empty fetch of a follower.
const MAX_FETCH_WAIT_MS: i32 = 500;

impl RaftNode {
    /// Does whatever is due at `now`. Every input does this by itself.
    pub fn poll(&mut self, now: Time) {
        self.expire_pending_fetches(now);
        if self.maybe_complete_shutdown(now) {
            return;
        }
        // A transition may make the next one due at once (Resigned → Unattached → Prospective → …); the number of
        // states bounds the chain.
        for _ in 0..8 {
            let before = (self.state.name(), self.epoch());
            self.poll_state(now);
            if before == (self.state.name(), self.epoch()) {
                break;
            }
        }
        self.requests.settle(now.monotonic);
    }

    fn poll_state(&mut self, now: Time) {
        match &self.state {
            State::Leader(_) => self.poll_leader(now),
            State::Candidate(candidate) => {
                if self.shutdown_deadline.is_none() && now.monotonic >= candidate.election_deadline {
                    self.transition_to_prospective(now);
                } else {
                    self.send_votes(now);
                }
            }
            State::Prospective(prospective) => {
                if self.shutdown_deadline.is_none() && now.monotonic >= prospective.election_deadline {
                    self.prospective_lost(now);
                } else {
                    self.send_votes(now);
                }
            }
            State::Follower(follower) => {
                if self.shutdown_deadline.is_some() {
                    return;
                }
                if self.is_voter() && now.monotonic >= follower.fetch_deadline {
                    self.transition_to_prospective(now);
                } else {
                    self.send_fetch_to_best_node(now);
                }
            }
            State::Unattached(unattached) => {
                let due = unattached.election_deadline.is_some_and(|deadline| now.monotonic >= deadline);
                if !self.is_voter() {
                    self.send_fetch_to_any_bootstrap_server(now);
                } else if self.shutdown_deadline.is_none() {
                    if due {
                        self.transition_to_prospective(now);
                    } else {
                        self.send_fetch_to_any_bootstrap_server(now);
                    }
                }
            }
            State::Resigned(resigned) => {
                let due = self.shutdown_deadline.is_none() && now.monotonic >= resigned.election_deadline;
                self.send_end_quorum_epoch(now);
                if due {
                    self.transition_to_unattached(now, self.epoch() + 1, None);
                }
            }
        }
    }

    pub(crate) fn state_deadline(&mut self, now: Time) -> Option<Duration> {
        let peers = self.requests.next_ready_at();
        let timer = match &self.state {
            State::Leader(leader) => {
                let others = self.log.last_voter_set().len() > 1;
                let begin = others.then_some(leader.begin_quorum_epoch_at);
                let drain = leader.accumulator.drain_at();
                [
                    begin,
                    drain,
                    leader.check_quorum_deadline(),
                    leader.resign_requested.then_some(now.monotonic),
                ]
                .into_iter()
                .flatten()
                .min()
            }
            State::Candidate(candidate) => Some(candidate.election_deadline),
            State::Prospective(prospective) => Some(prospective.election_deadline),
            State::Follower(follower) => {
                let deadline = self.is_voter().then_some(follower.fetch_deadline);
                return [deadline, Some(peers.unwrap_or(now.monotonic))].into_iter().flatten().min();
            }
            State::Unattached(unattached) => {
                let deadline = unattached.election_deadline;
                return [deadline, Some(peers.unwrap_or(now.monotonic))].into_iter().flatten().min();
            }
            State::Resigned(resigned) => Some(resigned.election_deadline),
        };
        match self.state {
            State::Leader(_) => timer,
            _ => [timer, peers].into_iter().flatten().min(),
        }
    }

    fn poll_leader(&mut self, now: Time) {
        let State::Leader(leader) = &mut self.state else { return };
        let quorum_lost = leader.check_quorum_deadline().is_some_and(|deadline| now.monotonic >= deadline);
        if self.shutdown_deadline.is_some() || leader.resign_requested || quorum_lost {
            self.transition_to_resigned(now);
            return;
        }
        if leader.accumulator.drain_at().is_some_and(|due| now.monotonic >= due) {
            self.append_batches(now);
        }
        self.send_begin_quorum_epoch(now);
    }

    fn append_batches(&mut self, now: Time) {
        let State::Leader(leader) = &mut self.state else { return };
        let epoch = leader.epoch();
        let batches = leader.accumulator.drain();
        for batch in batches {
            self.log.append(batch.base_offset, batch.next_offset, epoch);
            self.note_control_records(&batch.bytes);
            self.outputs.push_back(Output::Append {
                base_offset: batch.base_offset,
                next_offset: batch.next_offset,
                epoch,
                bytes: batch.bytes,
            });
        }
        let end_offset = self.log.end_offset();
        if let State::Leader(leader) = &mut self.state {
            leader.log_appended(end_offset);
        }
        self.outputs.push_back(Output::Flush { end_offset });
        self.complete_pending_fetches_below(now, end_offset);
    }

    fn maybe_complete_shutdown(&mut self, now: Time) -> bool {
        let Some(deadline) = self.shutdown_deadline else { return false };
        let has_remote_leader = self.state.leader_id(self.local.id).is_some_and(|id| id != self.local.id);
        if !self.is_voter() || self.is_only_voter() || has_remote_leader || now.monotonic >= deadline {
            self.mark_shutdown_complete();
            return true;
        }
        false
    }

    /// Back to the leader that was known before, or to none.
    pub(crate) fn prospective_lost(&mut self, now: Time) {
        let State::Prospective(prospective) = &self.state else { return };
        let (epoch, leader, endpoints) =
            (prospective.epoch, prospective.leader_id, prospective.leader_endpoints.clone());
        match leader {
            Some(id) if !endpoints.is_empty() && id != self.local.id => {
                self.transition_to_follower(now, epoch, id, endpoints);
            }
            leader => self.transition_to_unattached(now, epoch, leader),
        }
    }

    // ---- requests ----

    /// Sends unless a request to that peer is in flight or backing off.
    fn maybe_send(&mut self, now: Time, to: Destination, request: impl FnOnce(&RaftNode) -> RaftRequest) {
        if !self.requests.is_ready(to.id, now.monotonic) {
            return;
        }
        let correlation_id = self.new_correlation_id();
        self.requests.on_request_sent(to.id, correlation_id, now.monotonic);
        let request = request(self);
        self.outputs.push_back(Output::SendRequest { destination: to, correlation_id, request });
    }

    fn voter_destination(&self, id: i32) -> Option<Destination> {
        self.log.last_voter_set().get(id).and_then(|node| destination(node, &self.config.listener_name))
    }

    fn send_votes(&mut self, now: Time) {
        let (election, pre_vote) = match &self.state {
            State::Prospective(prospective) => (&prospective.election, true),
            State::Candidate(candidate) => (&candidate.election, false),
            _ => return,
        };
        if election.is_vote_rejected() {
            return;
        }
        for voter in election.unrecorded_voters() {
            let Some(to) = self.voter_destination(voter.id) else { continue };
            self.maybe_send(now, to, |node| {
                let (cluster_id, epoch) = (&node.config.cluster_id, node.epoch());
                RaftRequest::Vote(vote_request(
                    cluster_id,
                    epoch,
                    node.local,
                    voter,
                    node.log.end(),
                    pre_vote,
                ))
            });
        }
    }

    fn send_begin_quorum_epoch(&mut self, now: Time) {
        let State::Leader(leader) = &mut self.state else { return };
        let targets: Vec<ReplicaKey> = leader.take_begin_quorum_epoch_targets(now);
        let endpoints = leader.endpoints().clone();
        for voter in targets {
            let Some(to) = self.voter_destination(voter.id) else { continue };
            self.maybe_send(now, to, |node| {
                let (cluster_id, epoch) = (&node.config.cluster_id, node.epoch());
                let request = begin_quorum_epoch_request(cluster_id, epoch, node.local.id, &endpoints, voter);
                RaftRequest::BeginQuorumEpoch(request)
            });
        }
    }

    fn send_end_quorum_epoch(&mut self, now: Time) {
        let State::Resigned(resigned) = &self.state else { return };
        let (voters, successors) = (resigned.unacked_voters.clone(), resigned.preferred_successors.clone());
        for voter in voters {
            let Some(to) = self.voter_destination(voter) else { continue };
            self.maybe_send(now, to, |node| {
                let (cluster_id, epoch) = (&node.config.cluster_id, node.epoch());
                RaftRequest::EndQuorumEpoch(end_quorum_epoch_request(
                    cluster_id,
                    epoch,
                    node.local.id,
                    &successors,
                ))
            });
        }
    }

    /// Fetches from the leader, or asks a bootstrap server for a better leader while that one does not answer.
    fn send_fetch_to_best_node(&mut self, now: Time) {
        let State::Follower(follower) = &self.state else { return };
        let Some(address) = follower.leader_endpoints.address(&self.config.listener_name) else {
            self.send_fetch_to_any_bootstrap_server(now);
            return;
        };
        let leader = Destination { id: follower.leader_id, host: address.host.clone(), port: address.port };
        if self.requests.has_request_timed_out(leader.id, now.monotonic) {
            self.requests.reset(leader.id);
            self.send_fetch_to_any_bootstrap_server(now);
        } else if self.requests.is_backing_off(leader.id, now.monotonic) {
            self.send_fetch_to_any_bootstrap_server(now);
        } else if !self.requests.has_any_inflight_request(now.monotonic) {
            self.maybe_send(now, leader, RaftNode::build_fetch_or_fetch_snapshot);
        }
    }

    fn send_fetch_to_any_bootstrap_server(&mut self, now: Time) {
        let start = self.next_random();
        if let Some(server) = self.requests.find_ready_bootstrap_server(now.monotonic, start) {
            self.maybe_send(now, server, RaftNode::build_fetch);
        }
    }

    fn build_fetch(&self) -> RaftRequest {
        let position = FetchPosition {
            epoch: self.epoch(),
            log_end: self.log.end(),
            high_watermark: self.high_watermark().unwrap_or(-1),
        };
        let (cluster_id, max_bytes) = (&self.config.cluster_id, self.config.fetch_max_bytes);
        RaftRequest::Fetch(fetch_request(cluster_id, self.local, &position, max_bytes, MAX_FETCH_WAIT_MS))
    }

    fn build_fetch_or_fetch_snapshot(&self) -> RaftRequest {
        match &self.state {
            State::Follower(follower) if follower.fetching_snapshot.is_some() => {
                let Some(fetching) = &follower.fetching_snapshot else { return self.build_fetch() };
                let max_bytes = self.config.fetch_snapshot_max_bytes;
                RaftRequest::FetchSnapshot(fetch_snapshot_request(
                    &self.config.cluster_id,
                    self.local,
                    follower.epoch,
                    fetching.id,
                    fetching.size,
                    max_bytes,
                ))
            }
            _ => self.build_fetch(),
        }
    }
}
