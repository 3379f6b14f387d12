//! Votes of one election round.
//!
//! Owns the granted and rejected votes of a Prospective or Candidate. Invariant: a voter's answer is recorded under
//! its id only when it is in the voter set the round started with; a granted vote of a Candidate is never taken back.

use std::collections::BTreeMap;

use crate::types::{ReplicaKey, VoterSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vote {
    Unrecorded,
    Granted,
    Rejected,
}

#[derive(Clone, Debug)]
pub(crate) struct EpochElection {
    votes: BTreeMap<i32, (ReplicaKey, Vote)>,
}

impl EpochElection {
    /// A round among `voters` in which `local_id` has voted for itself.
    pub(crate) fn new(voters: &VoterSet, local_id: i32) -> Self {
        let votes = voters.nodes().map(|node| (node.key.id, (node.key, Vote::Unrecorded))).collect();
        let mut election = Self { votes };
        election.record(local_id, true);
        election
    }

    /// Records a voter's answer; false when `voter_id` is not a voter of this round.
    pub(crate) fn record(&mut self, voter_id: i32, granted: bool) -> bool {
        match self.votes.get_mut(&voter_id) {
            Some((_, vote)) => {
                *vote = if granted { Vote::Granted } else { Vote::Rejected };
                true
            }
            None => false,
        }
    }

    pub(crate) fn is_granted_by(&self, voter_id: i32) -> bool {
        self.votes.get(&voter_id).is_some_and(|(_, vote)| *vote == Vote::Granted)
    }

    pub(crate) fn is_rejected_by(&self, voter_id: i32) -> bool {
        self.votes.get(&voter_id).is_some_and(|(_, vote)| *vote == Vote::Rejected)
    }

    pub(crate) fn is_vote_granted(&self) -> bool {
        self.count(Vote::Granted) >= self.majority()
    }

    /// True when no majority can be reached any more.
    pub(crate) fn is_vote_rejected(&self) -> bool {
        self.count(Vote::Granted) + self.count(Vote::Unrecorded) < self.majority()
    }

    pub(crate) fn unrecorded_voters(&self) -> Vec<ReplicaKey> {
        self.with(Vote::Unrecorded).collect()
    }

    pub(crate) fn granting_voters(&self) -> Vec<i32> {
        self.with(Vote::Granted).map(|key| key.id).collect()
    }

    fn with(&self, wanted: Vote) -> impl Iterator<Item = ReplicaKey> + '_ {
        self.votes.values().filter(move |(_, vote)| *vote == wanted).map(|(key, _)| *key)
    }

    fn count(&self, wanted: Vote) -> usize {
        self.with(wanted).count()
    }

    fn majority(&self) -> usize {
        self.votes.len() / 2 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(voters: i32) -> EpochElection {
        EpochElection::new(&VoterSet::from_static("C", (1..=voters).map(|id| (id, "h".to_owned(), 1))), 1)
    }

    #[test]
    fn the_only_voter_wins_with_its_own_vote() {
        assert!(round(1).is_vote_granted());
        assert!(!round(2).is_vote_granted());
    }

    #[test]
    fn a_majority_decides_and_a_lost_majority_rejects() {
        for (granted, rejected, is_granted, is_rejected) in [
            (vec![2], vec![], true, false),
            (vec![], vec![2], false, false),
            (vec![], vec![2, 3], false, true),
        ] {
            let mut election = round(3);
            granted.iter().for_each(|id| assert!(election.record(*id, true)));
            rejected.iter().for_each(|id| assert!(election.record(*id, false)));
            assert_eq!((election.is_vote_granted(), election.is_vote_rejected()), (is_granted, is_rejected));
        }
    }

    #[test]
    fn a_vote_of_a_stranger_does_not_count() {
        let mut election = round(2);
        assert!(!election.record(9, true));
        assert!(!election.is_vote_granted());
    }
}
