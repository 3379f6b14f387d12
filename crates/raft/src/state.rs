//! The states a replica of the metadata quorum can be in, and what each grants and remembers.
//!
//! | state | is | leaves to |
//! |---|---|---|
//! | Unattached | knows an epoch, maybe a leader it cannot reach, maybe whom it voted for | Unattached (higher epoch, or vote added), Prospective (election timeout, voters only), Follower (leader discovered) |
//! | Prospective | asks the voters whether they *would* vote for it (pre-vote, KIP-996), epoch unchanged | Candidate (majority would, or a voter knows no pre-vote), Follower (leader discovered, or the old leader when the round is lost), Unattached (round lost, or higher epoch), Prospective (vote added) |
//! | Candidate | has bumped the epoch and voted for itself | Leader (majority), Prospective (election timeout), Follower (leader discovered), Unattached (higher epoch) |
//! | Leader | appends and replicates; see [`crate::leader`] | Resigned (asked to, or no majority fetched for 1.5 fetch timeouts), Unattached or Follower (higher epoch) |
//! | Follower | fetches from a known leader | Prospective (fetch timeout, voters only), Follower (higher epoch or more endpoints), Unattached (higher epoch) |
//! | Resigned | was leader of this epoch, at start or by resigning; tells the others with EndQuorumEpoch | Unattached (election timeout: epoch + 1, or higher epoch), Follower (higher epoch), Prospective (only voter, at start) |
//!
//! *Voted* is not a state of its own: an Unattached or Prospective replica carries its vote. *Observer* is not one
//! either: it is a replica outside the voter set, which is only ever Unattached or Follower.
//!
//! Invariants: the epoch never decreases; a replica votes for one candidate per epoch; every state that changes what
//! [`ElectionState`] says is persisted before anything is sent that relies on it.

use std::time::Duration;

use crate::election::EpochElection;
use crate::leader::LeaderState;
use crate::types::{ElectionState, Endpoints, KRaftVersion, OffsetAndEpoch, ReplicaKey, VoterSet};

#[derive(Clone, Debug)]
pub(crate) struct Unattached {
    pub(crate) epoch: i32,
    pub(crate) leader_id: Option<i32>,
    pub(crate) voted: Option<ReplicaKey>,
    pub(crate) high_watermark: Option<i64>,
    /// `None` for observers, which never start an election.
    pub(crate) election_deadline: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) struct Prospective {
    pub(crate) epoch: i32,
    pub(crate) leader_id: Option<i32>,
    pub(crate) leader_endpoints: Endpoints,
    pub(crate) voted: Option<ReplicaKey>,
    pub(crate) election: EpochElection,
    pub(crate) high_watermark: Option<i64>,
    pub(crate) election_deadline: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) epoch: i32,
    pub(crate) election: EpochElection,
    pub(crate) high_watermark: Option<i64>,
    pub(crate) election_deadline: Duration,
}

/// A snapshot that is being fetched from the leader.
#[derive(Clone, Debug)]
pub(crate) struct FetchingSnapshot {
    pub(crate) id: OffsetAndEpoch,
    pub(crate) size: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Follower {
    pub(crate) epoch: i32,
    pub(crate) leader_id: i32,
    pub(crate) leader_endpoints: Endpoints,
    pub(crate) voted: Option<ReplicaKey>,
    pub(crate) high_watermark: Option<i64>,
    pub(crate) fetch_deadline: Duration,
    pub(crate) has_fetched_from_leader: bool,
    pub(crate) fetching_snapshot: Option<FetchingSnapshot>,
}

#[derive(Clone, Debug)]
pub(crate) struct Resigned {
    pub(crate) epoch: i32,
    pub(crate) endpoints: Endpoints,
    pub(crate) unacked_voters: Vec<i32>,
    pub(crate) preferred_successors: Vec<ReplicaKey>,
    pub(crate) election_deadline: Duration,
}

#[derive(Clone, Debug)]
pub(crate) enum State {
    Unattached(Unattached),
    Prospective(Prospective),
    Candidate(Candidate),
    Leader(Box<LeaderState>),
    Follower(Follower),
    Resigned(Resigned),
}

/// A candidate's question, as far as the answer depends on it.
pub(crate) struct VoteQuestion {
    pub(crate) candidate: ReplicaKey,
    pub(crate) is_log_up_to_date: bool,
    pub(crate) is_pre_vote: bool,
}

impl State {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            State::Unattached(_) => "Unattached",
            State::Prospective(_) => "Prospective",
            State::Candidate(_) => "Candidate",
            State::Leader(_) => "Leader",
            State::Follower(_) => "Follower",
            State::Resigned(_) => "Resigned",
        }
    }

    pub(crate) fn epoch(&self) -> i32 {
        match self {
            State::Unattached(s) => s.epoch,
            State::Prospective(s) => s.epoch,
            State::Candidate(s) => s.epoch,
            State::Leader(s) => s.epoch(),
            State::Follower(s) => s.epoch,
            State::Resigned(s) => s.epoch,
        }
    }

    /// The leader of this epoch as far as known. A resigned leader still counts as the epoch's leader.
    pub(crate) fn leader_id(&self, local_id: i32) -> Option<i32> {
        match self {
            State::Unattached(s) => s.leader_id,
            State::Prospective(s) => s.leader_id,
            State::Candidate(_) => None,
            State::Leader(_) | State::Resigned(_) => Some(local_id),
            State::Follower(s) => Some(s.leader_id),
        }
    }

    pub(crate) fn leader_endpoints(&self) -> Endpoints {
        match self {
            State::Unattached(_) | State::Candidate(_) => Endpoints::empty(),
            State::Prospective(s) => s.leader_endpoints.clone(),
            State::Leader(s) => s.endpoints().clone(),
            State::Follower(s) => s.leader_endpoints.clone(),
            State::Resigned(s) => s.endpoints.clone(),
        }
    }

    pub(crate) fn high_watermark(&self) -> Option<i64> {
        match self {
            State::Unattached(s) => s.high_watermark,
            State::Prospective(s) => s.high_watermark,
            State::Candidate(s) => s.high_watermark,
            State::Leader(s) => s.high_watermark(),
            State::Follower(s) => s.high_watermark,
            State::Resigned(_) => None,
        }
    }

    pub(crate) fn voted(&self, local: ReplicaKey) -> Option<ReplicaKey> {
        match self {
            State::Unattached(s) => s.voted,
            State::Prospective(s) => s.voted,
            State::Candidate(_) => Some(local),
            State::Follower(s) => s.voted,
            State::Leader(_) | State::Resigned(_) => None,
        }
    }

    /// What of this state must survive a crash.
    pub(crate) fn election_state(&self, local: ReplicaKey, voters: &VoterSet) -> ElectionState {
        ElectionState {
            epoch: self.epoch(),
            leader_id: self.leader_id(local.id),
            voted: self.voted(local),
            voters: voters.ids().collect(),
        }
    }

    pub(crate) fn grants(&self, question: &VoteQuestion) -> bool {
        match self {
            State::Unattached(s) => grants_by_vote(s.leader_id, s.voted, question),
            State::Prospective(s) => grants_by_vote(s.leader_id, s.voted, question),
            State::Candidate(_) | State::Resigned(_) => question.is_pre_vote && question.is_log_up_to_date,
            // A follower that hears from its leader protects it from being deposed (KIP-996).
            State::Follower(s) => {
                question.is_pre_vote && !s.has_fetched_from_leader && question.is_log_up_to_date
            }
            State::Leader(_) => false,
        }
    }

    /// The rest of the present election timer, kept when a higher epoch turns up so that a disturber cannot postpone
    /// elections for ever.
    pub(crate) fn carried_election_deadline(&self) -> Option<Duration> {
        match self {
            State::Unattached(s) => s.election_deadline,
            State::Candidate(s) => Some(s.election_deadline),
            State::Prospective(s) if !s.election.is_vote_rejected() => Some(s.election_deadline),
            State::Resigned(s) => Some(s.election_deadline),
            _ => None,
        }
    }
}

fn grants_by_vote(leader_id: Option<i32>, voted: Option<ReplicaKey>, question: &VoteQuestion) -> bool {
    if question.is_pre_vote {
        return question.is_log_up_to_date;
    }
    if let Some(voted) = voted {
        return voted.matches(&question.candidate);
    }
    leader_id.is_none() && question.is_log_up_to_date
}

/// Persisted version of the quorum state for a `kraft.version`.
pub(crate) fn quorum_state_version(version: KRaftVersion) -> i16 {
    version.quorum_state_version()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(candidate: i32, up_to_date: bool, pre_vote: bool) -> VoteQuestion {
        VoteQuestion {
            candidate: ReplicaKey { id: candidate, directory_id: None },
            is_log_up_to_date: up_to_date,
            is_pre_vote: pre_vote,
        }
    }

    #[test]
    fn an_unattached_replica_grants_one_candidate_with_a_complete_log() {
        let voted = |id| Some(ReplicaKey { id, directory_id: None });
        for (leader_id, vote, q, expected) in [
            (None, None, question(2, true, false), true),
            (None, None, question(2, false, false), false),
            (None, voted(2), question(2, false, false), true),
            (None, voted(3), question(2, true, false), false),
            (Some(3), None, question(2, true, false), false),
            (Some(3), voted(3), question(2, true, true), true),
            (None, None, question(2, false, true), false),
        ] {
            assert_eq!(grants_by_vote(leader_id, vote, &q), expected);
        }
    }

    #[test]
    fn a_follower_grants_pre_votes_only_before_its_first_fetch() {
        let mut follower = Follower {
            epoch: 3,
            leader_id: 1,
            leader_endpoints: Endpoints::empty(),
            voted: None,
            high_watermark: None,
            fetch_deadline: Duration::ZERO,
            has_fetched_from_leader: false,
            fetching_snapshot: None,
        };
        assert!(State::Follower(follower.clone()).grants(&question(2, true, true)));
        assert!(!State::Follower(follower.clone()).grants(&question(2, true, false)));
        follower.has_fetched_from_leader = true;
        assert!(!State::Follower(follower).grants(&question(2, true, true)));
    }
}
