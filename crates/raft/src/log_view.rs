//! What the quorum knows of the metadata log without reading it: its ends, its epochs, its snapshots,
//! and the voter sets and `kraft.version`s that its control records carry.
//!
//! Invariants: `start <= flushed <= end`; epochs ascend strictly with non-decreasing start offsets; every change of the
//! log on disk is decided here first and then ordered as an [`crate::Output`], so this view is never behind the disk.
//! A crash loses nothing: the view is rebuilt by whoever opens the log and handed in as [`LogInit`].

use std::collections::BTreeMap;

use crate::types::{KRaftVersion, OffsetAndEpoch, VoterSet};

/// The log as found on disk at start, with what its latest snapshot and its control records say.
#[derive(Clone, Debug, Default)]
pub struct LogInit {
    pub start_offset: i64,
    pub end_offset: i64,
    /// `(epoch, start offset)`, ascending: the content of `leader-epoch-checkpoint`.
    pub epochs: Vec<(i32, i64)>,
    /// Snapshots on disk with their sizes in bytes.
    pub snapshots: Vec<(OffsetAndEpoch, i64)>,
    /// Voter sets by the offset of the record that holds them; a snapshot's counts as at its last contained offset.
    pub voter_sets: Vec<(i64, VoterSet)>,
    /// `kraft.version` by offset, likewise.
    pub kraft_versions: Vec<(i64, KRaftVersion)>,
}

/// How a fetch position relates to the leader's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValidOffsetAndEpoch {
    Valid,
    /// The logs part at this point at the latest.
    Diverging(OffsetAndEpoch),
    /// The position lies below the log; fetch this snapshot instead.
    Snapshot(OffsetAndEpoch),
}

#[derive(Clone, Debug)]
pub(crate) struct LogView {
    start_offset: i64,
    end_offset: i64,
    flushed_offset: i64,
    epochs: BTreeMap<i32, i64>,
    snapshots: BTreeMap<OffsetAndEpoch, i64>,
    static_voters: VoterSet,
    voter_sets: BTreeMap<i64, VoterSet>,
    kraft_versions: BTreeMap<i64, KRaftVersion>,
}

impl LogView {
    pub(crate) fn new(init: LogInit, static_voters: VoterSet) -> Self {
        Self {
            start_offset: init.start_offset,
            end_offset: init.end_offset,
            flushed_offset: init.end_offset,
            epochs: init.epochs.into_iter().collect(),
            snapshots: init.snapshots.into_iter().collect(),
            static_voters,
            voter_sets: init.voter_sets.into_iter().collect(),
            kraft_versions: init.kraft_versions.into_iter().collect(),
        }
    }

    pub(crate) fn start_offset(&self) -> i64 {
        self.start_offset
    }

    pub(crate) fn end_offset(&self) -> i64 {
        self.end_offset
    }

    pub(crate) fn flushed_offset(&self) -> i64 {
        self.flushed_offset
    }

    /// Epoch of the last record, or of the snapshot the empty log starts after, or 0.
    pub(crate) fn last_fetched_epoch(&self) -> i32 {
        match self.epochs.last_key_value() {
            Some((epoch, _)) => *epoch,
            None => self.latest_snapshot().map_or(0, |snapshot| snapshot.epoch),
        }
    }

    pub(crate) fn end(&self) -> OffsetAndEpoch {
        OffsetAndEpoch::new(self.end_offset, self.last_fetched_epoch())
    }

    pub(crate) fn latest_snapshot(&self) -> Option<OffsetAndEpoch> {
        self.snapshots.last_key_value().map(|(id, _)| *id)
    }

    pub(crate) fn earliest_snapshot(&self) -> Option<OffsetAndEpoch> {
        self.snapshots.first_key_value().map(|(id, _)| *id)
    }

    pub(crate) fn snapshot_size(&self, id: OffsetAndEpoch) -> Option<i64> {
        self.snapshots.get(&id).copied()
    }

    pub(crate) fn last_voter_set(&self) -> &VoterSet {
        self.voter_sets.last_key_value().map_or(&self.static_voters, |(_, voters)| voters)
    }

    /// Offset of the record that holds the last voter set; -1 when it comes from the bootstrap snapshot.
    pub(crate) fn last_voter_set_offset(&self) -> Option<i64> {
        self.voter_sets.last_key_value().map(|(offset, _)| *offset)
    }

    pub(crate) fn last_kraft_version(&self) -> KRaftVersion {
        self.kraft_versions.last_key_value().map_or(KRaftVersion::V0, |(_, version)| *version)
    }

    pub(crate) fn voter_set_at(&self, offset: i64) -> Option<&VoterSet> {
        self.voter_sets.range(..=offset).next_back().map(|(_, voters)| voters)
    }

    pub(crate) fn kraft_version_at(&self, offset: i64) -> KRaftVersion {
        self.kraft_versions.range(..=offset).next_back().map_or(KRaftVersion::V0, |(_, version)| *version)
    }

    /// Records an append of `[base, next)` written under `epoch`.
    pub(crate) fn append(&mut self, base: i64, next: i64, epoch: i32) {
        assert_eq!(base, self.end_offset, "appends continue the log");
        assert!(next > base, "an append holds records");
        self.assign_epoch(epoch, base);
        self.end_offset = next;
    }

    pub(crate) fn assign_epoch(&mut self, epoch: i32, start_offset: i64) {
        if self.epochs.last_key_value().is_none_or(|(last, _)| epoch > *last) {
            // An epoch that began at this very offset wrote nothing, as in the leader epoch cache.
            self.epochs.retain(|_, start| *start < start_offset);
            self.epochs.insert(epoch, start_offset);
        }
    }

    pub(crate) fn add_voter_set(&mut self, offset: i64, voters: VoterSet) {
        self.voter_sets.insert(offset, voters);
    }

    pub(crate) fn add_kraft_version(&mut self, offset: i64, version: KRaftVersion) {
        self.kraft_versions.insert(offset, version);
    }

    pub(crate) fn flushed(&mut self, offset: i64) {
        self.flushed_offset = self.flushed_offset.max(offset.min(self.end_offset));
    }

    pub(crate) fn truncate_to(&mut self, offset: i64) {
        assert!(offset >= self.start_offset, "truncation below the log start");
        self.end_offset = self.end_offset.min(offset);
        self.flushed_offset = self.flushed_offset.min(offset);
        self.epochs.retain(|_, start| *start < offset);
        self.voter_sets.retain(|at, _| *at < offset);
        self.kraft_versions.retain(|at, _| *at < offset);
    }

    /// The whole log gives way to a snapshot.
    pub(crate) fn truncate_fully_and_start_at(
        &mut self,
        id: OffsetAndEpoch,
        version: KRaftVersion,
        voters: Option<VoterSet>,
    ) {
        self.start_offset = id.offset;
        self.end_offset = id.offset;
        self.flushed_offset = id.offset;
        self.epochs.clear();
        self.snapshots.retain(|snapshot, _| *snapshot >= id);
        self.kraft_versions = BTreeMap::from([(id.offset - 1, version)]);
        self.voter_sets = voters.map(|set| (id.offset - 1, set)).into_iter().collect();
    }

    pub(crate) fn add_snapshot(&mut self, id: OffsetAndEpoch, size: i64) {
        self.snapshots.insert(id, size);
    }

    /// Forgets voter sets that a snapshot at `offset` makes unneeded: all but the last at or below it.
    pub(crate) fn forget_history_below(&mut self, offset: i64) {
        fn keep_last<T>(history: &mut BTreeMap<i64, T>, offset: i64) {
            if let Some(last) = history.range(..=offset).next_back().map(|(at, _)| *at) {
                history.retain(|at, _| *at >= last);
            }
        }
        keep_last(&mut self.voter_sets, offset);
        keep_last(&mut self.kraft_versions, offset);
    }

    /// The log and its snapshots were cleaned below `id`, which is now the oldest snapshot.
    pub(crate) fn start_advanced(&mut self, id: OffsetAndEpoch) {
        self.start_offset = self.start_offset.max(id.offset);
        self.snapshots.retain(|snapshot, _| *snapshot >= id);
        let first = self.epochs.iter().rev().find(|(_, start)| **start <= id.offset).map(|(epoch, _)| *epoch);
        if let Some(first) = first {
            self.epochs.retain(|epoch, _| *epoch >= first);
            if let Some(start) = self.epochs.get_mut(&first) {
                *start = (*start).max(id.offset);
            }
        }
    }

    /// End offset of the largest epoch that is not above `epoch`.
    pub(crate) fn end_offset_for_epoch(&self, epoch: i32) -> OffsetAndEpoch {
        if self.epochs.last_key_value().is_some_and(|(last, _)| *last == epoch) {
            return self.end();
        }
        let next = self.epochs.range(epoch.saturating_add(1)..).next();
        let found = match (self.epochs.range(..=epoch).next_back(), next) {
            (_, None) => return self.end(),
            (Some((at, _)), Some((_, next_start))) => OffsetAndEpoch::new(*next_start, *at),
            // All records are of later epochs: nothing of this one is left.
            (None, Some((_, next_start))) => OffsetAndEpoch::new(*next_start, epoch),
        };
        match self.earliest_snapshot() {
            Some(earliest) if found.offset == earliest.offset && found.epoch == epoch => earliest,
            _ => found,
        }
    }

    pub(crate) fn validate(&self, offset: i64, epoch: i32) -> ValidOffsetAndEpoch {
        if self.start_offset == 0 && offset == 0 {
            return ValidOffsetAndEpoch::Valid;
        }
        if let (Some(earliest), Some(latest)) = (self.earliest_snapshot(), self.latest_snapshot())
            && (offset < self.start_offset
                || (offset == self.start_offset && epoch != earliest.epoch)
                || epoch < earliest.epoch)
        {
            return ValidOffsetAndEpoch::Snapshot(latest);
        }
        let end = self.end_offset_for_epoch(epoch);
        if end.epoch != epoch || end.offset < offset {
            ValidOffsetAndEpoch::Diverging(end)
        } else {
            ValidOffsetAndEpoch::Valid
        }
    }

    /// Where to cut this log when the leader says that it ends `leader_end.epoch` at `leader_end.offset`.
    pub(crate) fn truncation_offset(&self, leader_end: OffsetAndEpoch) -> i64 {
        if leader_end.epoch == 0 {
            return leader_end.offset.min(self.end_offset);
        }
        let local_end = self.end_offset_for_epoch(leader_end.epoch);
        if local_end.epoch == leader_end.epoch {
            local_end.offset.min(leader_end.offset)
        } else {
            local_end.offset
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(start: i64, end: i64, epochs: &[(i32, i64)], snapshots: &[(i64, i32)]) -> LogView {
        LogView::new(
            LogInit {
                start_offset: start,
                end_offset: end,
                epochs: epochs.to_vec(),
                snapshots: snapshots
                    .iter()
                    .map(|(offset, epoch)| (OffsetAndEpoch::new(*offset, *epoch), 100))
                    .collect(),
                ..LogInit::default()
            },
            VoterSet::empty(),
        )
    }

    #[test]
    fn a_fetch_position_is_valid_diverging_or_below_the_log() {
        use ValidOffsetAndEpoch::{Diverging, Snapshot, Valid};
        let log = view(20, 60, &[(2, 20), (5, 40)], &[(20, 2), (30, 2)]);
        for (offset, epoch, expected) in [
            (20, 2, Valid),
            (40, 2, Valid),
            (41, 2, Diverging(OffsetAndEpoch::new(40, 2))),
            (60, 5, Valid),
            (61, 5, Diverging(OffsetAndEpoch::new(60, 5))),
            (45, 4, Diverging(OffsetAndEpoch::new(40, 2))),
            (10, 1, Snapshot(OffsetAndEpoch::new(30, 2))),
            (20, 1, Snapshot(OffsetAndEpoch::new(30, 2))),
        ] {
            assert_eq!(log.validate(offset, epoch), expected, "{offset} {epoch}");
        }
        assert_eq!(view(0, 9, &[(1, 0)], &[]).validate(0, 0), Valid);
    }

    #[test]
    fn truncation_cuts_where_the_logs_part() {
        let log = view(0, 60, &[(2, 0), (4, 40)], &[]);
        for (leader_end, expected) in
            [((30, 2), 30), ((50, 2), 40), ((50, 4), 50), ((35, 3), 40), ((7, 0), 7)]
        {
            assert_eq!(
                log.truncation_offset(OffsetAndEpoch::new(leader_end.0, leader_end.1)),
                expected,
                "{leader_end:?}"
            );
        }
    }

    #[test]
    fn an_epoch_that_wrote_nothing_leaves_no_trace() {
        let mut log = view(0, 0, &[], &[]);
        log.assign_epoch(1, 0);
        log.assign_epoch(2, 0);
        log.append(0, 3, 2);
        assert_eq!(log.end(), OffsetAndEpoch::new(3, 2));
        assert_eq!(log.end_offset_for_epoch(1), OffsetAndEpoch::new(0, 1));
        log.truncate_to(0);
        assert_eq!(log.end(), OffsetAndEpoch::new(0, 0));
    }
}
