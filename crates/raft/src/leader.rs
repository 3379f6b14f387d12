//! What a leader knows of the other replicas: how far each has fetched, whether a majority still follows.
//!
//! Owns the replica states, the high watermark and the check-quorum and BeginQuorumEpoch timers of one epoch.
//! Invariants: the high watermark only rises, and never before a record of this epoch is on a majority (the leader's
//! own log counts up to what is flushed); the leader is in its voter set while it leads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use record::Time;

use crate::accumulator::BatchAccumulator;
use crate::types::{Endpoints, ReplicaKey, VoterNode, VoterSet};

/// An observer that has not fetched for this long is forgotten.
const OBSERVER_SESSION_TIMEOUT: Duration = Duration::from_millis(300_000);

/// Observers that are remembered at once; far more than a cluster has brokers. Others are served but not described.
const MAX_OBSERVERS: usize = 10_000;

/// What the leader knows of one replica.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaState {
    pub(crate) key: ReplicaKey,
    pub(crate) listeners: Endpoints,
    pub(crate) end_offset: Option<i64>,
    /// Wall clock, for DescribeQuorum; -1 before the first fetch.
    pub(crate) last_fetch_timestamp: i64,
    pub(crate) last_caught_up_timestamp: i64,
    last_fetch: Option<Duration>,
    last_fetch_leader_end_offset: i64,
    pub(crate) has_acknowledged_leader: bool,
}

impl ReplicaState {
    fn new(key: ReplicaKey, listeners: Endpoints, has_acknowledged_leader: bool) -> Self {
        Self {
            key,
            listeners,
            end_offset: None,
            last_fetch_timestamp: -1,
            last_caught_up_timestamp: -1,
            last_fetch: None,
            last_fetch_leader_end_offset: -1,
            has_acknowledged_leader,
        }
    }

    fn fetched(&mut self, now: Time, fetch_offset: i64, leader_end_offset: Option<i64>) {
        if let Some(leader_end) = leader_end_offset {
            if fetch_offset >= leader_end {
                self.last_caught_up_timestamp = self.last_caught_up_timestamp.max(now.wall_ms);
            } else if self.last_fetch_leader_end_offset > 0
                && fetch_offset >= self.last_fetch_leader_end_offset
            {
                self.last_caught_up_timestamp = self.last_caught_up_timestamp.max(self.last_fetch_timestamp);
            }
            self.last_fetch_leader_end_offset = leader_end;
        }
        self.last_fetch_timestamp = self.last_fetch_timestamp.max(now.wall_ms);
        self.last_fetch = Some(now.monotonic);
        self.end_offset = Some(fetch_offset);
        self.has_acknowledged_leader = true;
    }
}

#[derive(Clone, Debug)]
pub(crate) struct LeaderState {
    local: VoterNode,
    epoch: i32,
    epoch_start_offset: i64,
    high_watermark: Option<i64>,
    /// The leader's log end, flushed or not: what followers are compared with.
    log_end_offset: i64,
    voters: BTreeMap<i32, ReplicaState>,
    observers: BTreeMap<ReplicaKey, ReplicaState>,
    fetched_voters: BTreeSet<i32>,
    check_quorum_timeout: Duration,
    check_quorum_deadline: Duration,
    begin_quorum_epoch_interval: Duration,
    pub(crate) begin_quorum_epoch_at: Duration,
    pub(crate) accumulator: BatchAccumulator,
    pub(crate) resign_requested: bool,
    /// Whether the listener has been told; it is told once it has seen the first record of the epoch.
    pub(crate) announced: bool,
}

impl LeaderState {
    pub(crate) fn new(
        now: Time,
        local: VoterNode,
        epoch: i32,
        epoch_start_offset: i64,
        voters: &VoterSet,
        accumulator: BatchAccumulator,
        fetch_timeout: Duration,
    ) -> Self {
        assert!(voters.is_voter(&local.key), "a leader is a voter");
        let states = voters.nodes().map(|node| {
            (node.key.id, ReplicaState::new(node.key, node.listeners.clone(), node.key.matches(&local.key)))
        });
        let check_quorum_timeout = fetch_timeout.mul_f64(1.5);
        Self {
            voters: states.collect(),
            local,
            epoch,
            epoch_start_offset,
            high_watermark: None,
            log_end_offset: epoch_start_offset,
            observers: BTreeMap::new(),
            fetched_voters: BTreeSet::new(),
            check_quorum_timeout,
            check_quorum_deadline: now.monotonic + check_quorum_timeout,
            begin_quorum_epoch_interval: fetch_timeout / 2,
            begin_quorum_epoch_at: now.monotonic,
            accumulator,
            resign_requested: false,
            announced: false,
        }
    }

    pub(crate) fn epoch(&self) -> i32 {
        self.epoch
    }

    pub(crate) fn epoch_start_offset(&self) -> i64 {
        self.epoch_start_offset
    }

    pub(crate) fn endpoints(&self) -> &Endpoints {
        &self.local.listeners
    }

    pub(crate) fn high_watermark(&self) -> Option<i64> {
        self.high_watermark
    }

    pub(crate) fn voter_states(&self) -> impl Iterator<Item = &ReplicaState> {
        self.voters.values()
    }

    pub(crate) fn observer_states(&mut self, now: Time) -> impl Iterator<Item = &ReplicaState> {
        self.forget_inactive_observers(now);
        self.observers.values()
    }

    fn forget_inactive_observers(&mut self, now: Time) {
        let local = self.local.key;
        let is_active = |at: Duration| now.monotonic.saturating_sub(at) < OBSERVER_SESSION_TIMEOUT;
        self.observers.retain(|key, state| *key == local || state.last_fetch.is_some_and(is_active));
    }

    /// When the leader gives up for want of a following majority; never while it is the only voter.
    pub(crate) fn check_quorum_deadline(&self) -> Option<Duration> {
        (self.voters.len() > 1).then_some(self.check_quorum_deadline)
    }

    /// Counts a Fetch or FetchSnapshot of a voter towards the majority that keeps this leader in office.
    pub(crate) fn update_check_quorum(&mut self, key: ReplicaKey, now: Time) {
        if key.id == self.local.key.id {
            return;
        }
        if self.voters.get(&key.id).is_some_and(|state| state.key.matches(&key)) {
            self.fetched_voters.insert(key.id);
        }
        let mut majority = self.voters.len() / 2 + 1;
        if self.voters.contains_key(&self.local.key.id) {
            majority -= 1;
        }
        if self.fetched_voters.len() >= majority {
            self.fetched_voters.clear();
            self.check_quorum_deadline = now.monotonic + self.check_quorum_timeout;
        }
    }

    /// The voters that must be told of this leader: those that have not fetched lately.
    pub(crate) fn take_begin_quorum_epoch_targets(&mut self, now: Time) -> Vec<ReplicaKey> {
        if now.monotonic < self.begin_quorum_epoch_at {
            return Vec::new();
        }
        self.begin_quorum_epoch_at = now.monotonic + self.begin_quorum_epoch_interval;
        let interval = self.begin_quorum_epoch_interval;
        let quiet = |state: &&ReplicaState| {
            state.key.id != self.local.key.id
                && state.last_fetch.is_none_or(|at| now.monotonic.saturating_sub(at) >= interval)
        };
        self.voters.values().filter(quiet).map(|state| state.key).collect()
    }

    pub(crate) fn acknowledge(&mut self, voter_id: i32) {
        if let Some(state) = self.voters.get_mut(&voter_id) {
            state.has_acknowledged_leader = true;
        }
    }

    pub(crate) fn non_leader_voters_by_descending_fetch_offset(&self) -> Vec<ReplicaKey> {
        let mut states: Vec<_> =
            self.voters.values().filter(|state| state.key.id != self.local.key.id).collect();
        states.sort_by(|a, b| b.end_offset.cmp(&a.end_offset).then(a.key.cmp(&b.key)));
        states.into_iter().map(|state| state.key).collect()
    }

    pub(crate) fn log_appended(&mut self, log_end_offset: i64) {
        self.log_end_offset = self.log_end_offset.max(log_end_offset);
    }

    /// Takes the leader's flushed end offset and the voter set of its log; true when the high watermark rose.
    pub(crate) fn update_local_state(&mut self, flushed_offset: i64, voters: &VoterSet) -> bool {
        let local = self.local.key;
        self.replica_state(local).end_offset = Some(flushed_offset);
        self.update_voters(voters);
        self.maybe_update_high_watermark()
    }

    /// Takes a fetch position of another replica; true when the high watermark rose.
    pub(crate) fn update_replica_state(&mut self, key: ReplicaKey, now: Time, fetch_offset: i64) -> bool {
        if key.id < 0 || key.id == self.local.key.id {
            return false;
        }
        if !self.is_voter(&key) && self.observers.len() >= MAX_OBSERVERS && !self.observers.contains_key(&key)
        {
            self.forget_inactive_observers(now);
            if self.observers.len() >= MAX_OBSERVERS {
                return false;
            }
        }
        let leader_end = Some(self.log_end_offset);
        self.replica_state(key).fetched(now, fetch_offset, leader_end);
        self.update_check_quorum(key, now);
        self.is_voter(&key) && self.maybe_update_high_watermark()
    }

    fn is_voter(&self, key: &ReplicaKey) -> bool {
        self.voters.get(&key.id).is_some_and(|state| state.key.matches(key))
    }

    fn replica_state(&mut self, key: ReplicaKey) -> &mut ReplicaState {
        if self.is_voter(&key)
            && let Some(state) = self.voters.get_mut(&key.id)
        {
            return state;
        }
        self.observers.entry(key).or_insert_with(|| ReplicaState::new(key, Endpoints::empty(), false))
    }

    fn update_voters(&mut self, voters: &VoterSet) {
        let mut old = std::mem::take(&mut self.voters);
        for node in voters.nodes() {
            let mut state = match old.remove(&node.key.id) {
                Some(state) if state.key.matches(&node.key) => state,
                other => {
                    if let Some(state) = other {
                        old.insert(node.key.id, state);
                    }
                    self.observers
                        .remove(&node.key)
                        .unwrap_or_else(|| ReplicaState::new(node.key, node.listeners.clone(), false))
                }
            };
            state.key = node.key;
            state.listeners = node.listeners.clone();
            self.voters.insert(node.key.id, state);
        }
        for mut state in old.into_values() {
            state.listeners = Endpoints::empty();
            self.observers.entry(state.key).or_insert(state);
        }
    }

    /// The offset that more than half of the voters have, once it lies in this epoch (Raft §5.4.2).
    fn maybe_update_high_watermark(&mut self) -> bool {
        let mut ends: Vec<_> = self.voters.values().map(|state| state.end_offset).collect();
        ends.sort_by(|a, b| b.cmp(a));
        let Some(Some(candidate)) = ends.get(ends.len() / 2).copied() else { return false };
        if candidate <= self.epoch_start_offset
            || self.high_watermark.is_some_and(|current| candidate <= current)
        {
            return false;
        }
        self.high_watermark = Some(candidate);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Uuid;

    fn time(ms: u64) -> Time {
        Time::new(Duration::from_millis(ms), i64::try_from(ms).unwrap_or_default() + 1_000_000)
    }

    fn node(id: i32) -> VoterNode {
        VoterNode {
            key: ReplicaKey::new(id, Uuid([u8::try_from(id).unwrap_or_default(); 16])),
            listeners: Endpoints::single("C", "h", 1),
            supported_kraft_versions: (0, 1),
        }
    }

    fn leader(voters: &VoterSet, epoch_start: i64) -> LeaderState {
        let accumulator = BatchAccumulator::new(5, epoch_start, Duration::ZERO);
        LeaderState::new(time(0), node(1), 5, epoch_start, voters, accumulator, Duration::from_millis(2000))
    }

    #[test]
    fn the_high_watermark_waits_for_a_majority_in_this_epoch() {
        let voters: VoterSet = [node(1), node(2), node(3)].into_iter().collect();
        let mut leader = leader(&voters, 10);
        assert!(!leader.update_local_state(12, &voters));
        assert!(
            !leader.update_replica_state(node(2).key, time(1), 10),
            "nothing of this epoch is replicated"
        );
        assert!(leader.update_replica_state(node(2).key, time(2), 11));
        assert_eq!(leader.high_watermark(), Some(11));
        assert!(!leader.update_replica_state(node(2).key, time(3), 9), "it never falls");
        assert!(
            leader.update_replica_state(node(3).key, time(4), 40),
            "the flushed end of the leader bounds it"
        );
        assert_eq!(leader.high_watermark(), Some(12));
    }

    #[test]
    fn an_observer_does_not_move_the_high_watermark() {
        let voters: VoterSet = [node(1), node(2), node(3)].into_iter().collect();
        let mut leader = leader(&voters, 0);
        leader.update_local_state(5, &voters);
        let impostor = ReplicaKey::new(2, Uuid([77; 16]));
        assert!(!leader.update_replica_state(impostor, time(1), 5));
        assert_eq!(leader.observer_states(time(1)).map(|state| state.key).collect::<Vec<_>>(), [impostor]);
        assert_eq!(leader.observer_states(time(400_000)).count(), 0);
    }

    #[test]
    fn a_leader_that_a_majority_stops_following_runs_out() {
        let voters: VoterSet = [node(1), node(2), node(3)].into_iter().collect();
        let mut leader = leader(&voters, 0);
        assert_eq!(leader.check_quorum_deadline(), Some(Duration::from_millis(3000)));
        leader.update_replica_state(node(3).key, time(100), 0);
        assert_eq!(leader.check_quorum_deadline(), Some(Duration::from_millis(3100)));
        assert_eq!(self::leader(&[node(1)].into_iter().collect(), 0).check_quorum_deadline(), None);
    }

    #[test]
    fn caught_up_times_follow_the_fetches() {
        let voters: VoterSet = [node(1), node(2)].into_iter().collect();
        let mut leader = leader(&voters, 0);
        leader.log_appended(10);
        leader.update_replica_state(node(2).key, time(10), 4);
        leader.log_appended(12);
        leader.update_replica_state(node(2).key, time(20), 10);
        let state = leader
            .voter_states()
            .find(|state| state.key.id == 2)
            .map(|s| (s.last_fetch_timestamp, s.last_caught_up_timestamp));
        assert_eq!(state, Some((1_000_020, 1_000_010)));
    }
}
