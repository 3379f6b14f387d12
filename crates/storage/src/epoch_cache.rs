//! Which leader epoch began at which offset (KIP-101, KIP-279).
//!
//! Owns: the entries of one log, and the knowledge whether `leader-epoch-checkpoint` is behind them.
//! Invariants: epochs and start offsets both rise strictly, except that the first entries may share an offset with
//! nobody: a new entry removes all that are not below it in both.
//! Concurrency: the owner's lock.
//! Crash: the file is written before the recovery point passes an entry, so what a crash loses lies in segments that
//! recovery reads again; epochs without records are not needed for truncation.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::path::Path;

use env::FileSystem;

use crate::checkpoint::{EpochEntry, read_leader_epochs, write_leader_epochs};
use crate::names;

/// "No epoch."
const UNDEFINED_EPOCH: i32 = -1;

#[derive(Debug, Default)]
pub struct LeaderEpochCache {
    epochs: BTreeMap<i32, i64>,
    dirty: bool,
}

impl LeaderEpochCache {
    /// The entries on disk.
    pub fn load(fs: &dyn FileSystem, dir: &Path) -> io::Result<Self> {
        let mut cache = LeaderEpochCache::default();
        for entry in read_leader_epochs(fs, &dir.join(names::LEADER_EPOCH_CHECKPOINT_FILE))? {
            cache.assign(entry.epoch, entry.start_offset);
        }
        cache.dirty = false;
        Ok(cache)
    }

    /// Writes the file when it is behind.
    pub fn flush(&mut self, fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
        if self.dirty {
            let path = dir.join(names::LEADER_EPOCH_CHECKPOINT_FILE);
            let entries = self.epochs.iter();
            write_leader_epochs(fs, &path, entries.map(|(e, o)| EpochEntry { epoch: *e, start_offset: *o }))?;
            self.dirty = false;
        }
        Ok(())
    }

    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub fn entries(&self) -> Vec<EpochEntry> {
        self.epochs.iter().map(|(e, o)| EpochEntry { epoch: *e, start_offset: *o }).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.epochs.is_empty()
    }

    pub fn latest(&self) -> Option<EpochEntry> {
        self.epochs.last_key_value().map(|(e, o)| EpochEntry { epoch: *e, start_offset: *o })
    }

    pub fn latest_epoch(&self) -> Option<i32> {
        self.epochs.last_key_value().map(|(e, _)| *e)
    }

    pub fn earliest(&self) -> Option<EpochEntry> {
        self.epochs.first_key_value().map(|(e, o)| EpochEntry { epoch: *e, start_offset: *o })
    }

    /// The greatest epoch below `epoch`.
    pub fn previous_epoch(&self, epoch: i32) -> Option<i32> {
        self.epochs.range(..epoch).next_back().map(|(e, _)| *e)
    }

    /// Notes that `epoch` begins at `start_offset`; returns whether that was news.
    pub fn assign(&mut self, epoch: i32, start_offset: i64) -> bool {
        debug_assert!(epoch >= 0 && start_offset >= 0, "leader epoch {epoch} at {start_offset}");
        if let Some(latest) = self.latest()
            && latest.epoch == epoch
            && start_offset >= latest.start_offset
        {
            return false;
        }
        while let Some(latest) = self.latest()
            && (latest.epoch >= epoch || latest.start_offset >= start_offset)
        {
            self.epochs.pop_last();
        }
        self.epochs.insert(epoch, start_offset);
        self.dirty = true;
        true
    }

    /// The greatest epoch not above `requested` and the offset after its last record; `None` when unknown.
    pub fn end_offset_for(&self, requested: i32, log_end_offset: i64) -> Option<(i32, i64)> {
        if requested == UNDEFINED_EPOCH {
            return None;
        }
        if self.latest_epoch() == Some(requested) {
            return Some((requested, log_end_offset));
        }
        let (_, end) = self.epochs.range((Bound::Excluded(requested), Bound::Unbounded)).next()?;
        let found = self.epochs.range(..=requested).next_back().map_or(requested, |(e, _)| *e);
        Some((found, *end))
    }

    /// The epoch of the record at `offset`.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        self.epochs.iter().take_while(|(_, start)| **start <= offset).last().map(|(e, _)| *e)
    }

    /// Forgets epochs that begin at or after `end_offset`.
    pub fn truncate_from_end(&mut self, end_offset: i64) {
        while self.latest().is_some_and(|latest| end_offset >= 0 && latest.start_offset >= end_offset) {
            self.epochs.pop_last();
            self.dirty = true;
        }
    }

    /// Forgets epochs that end before `start_offset`; the one it lies in now begins there.
    pub fn truncate_from_start(&mut self, start_offset: i64) {
        let mut last = None;
        while let Some(first) = self.earliest()
            && first.start_offset <= start_offset
        {
            self.epochs.pop_first();
            last = Some(first);
        }
        if let Some(last) = last {
            self.epochs.insert(last.epoch, start_offset);
            self.dirty |= last.start_offset != start_offset || self.earliest() != Some(last);
        }
    }

    pub fn clear(&mut self) {
        self.dirty |= !self.epochs.is_empty();
        self.epochs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(i32, i64)]) -> LeaderEpochCache {
        let mut cache = LeaderEpochCache::default();
        for (epoch, offset) in entries {
            cache.assign(*epoch, *offset);
        }
        cache
    }

    fn entries(cache: &LeaderEpochCache) -> Vec<(i32, i64)> {
        cache.entries().iter().map(|e| (e.epoch, e.start_offset)).collect()
    }

    #[test]
    fn new_entries_remove_those_they_contradict() {
        for (assigned, left) in [
            (vec![(1, 10), (2, 20), (2, 25)], vec![(1, 10), (2, 20)]),
            (vec![(1, 10), (2, 20), (2, 15)], vec![(1, 10), (2, 15)]),
            (vec![(1, 10), (2, 20), (1, 30)], vec![(1, 30)]),
            (vec![(1, 10), (2, 20), (3, 20)], vec![(1, 10), (3, 20)]),
            (vec![(1, 10), (2, 20), (5, 0)], vec![(5, 0)]),
        ] {
            assert_eq!(entries(&cache(&assigned)), left, "{assigned:?}");
        }
    }

    #[test]
    fn end_offsets_follow_the_next_epoch() {
        let cache = cache(&[(2, 10), (4, 20), (5, 30)]);
        for (requested, end) in [
            (-1, None),
            (0, Some((0, 10))),
            (1, Some((1, 10))),
            (2, Some((2, 20))),
            (3, Some((2, 20))),
            (4, Some((4, 30))),
            (5, Some((5, 99))),
            (6, None),
        ] {
            assert_eq!(cache.end_offset_for(requested, 99), end, "epoch {requested}");
        }
        for (offset, epoch) in [(9, None), (10, Some(2)), (19, Some(2)), (20, Some(4)), (99, Some(5))] {
            assert_eq!(cache.epoch_for_offset(offset), epoch, "offset {offset}");
        }
    }

    #[test]
    fn truncation_cuts_either_end() {
        let mut both = cache(&[(2, 10), (4, 20), (5, 30)]);
        both.truncate_from_end(30);
        assert_eq!(entries(&both), [(2, 10), (4, 20)]);
        both.truncate_from_start(25);
        assert_eq!(entries(&both), [(4, 25)]);
        both.truncate_from_start(3);
        assert_eq!(entries(&both), [(4, 25)]);
        both.truncate_from_end(0);
        assert!(both.is_empty());
    }
}
