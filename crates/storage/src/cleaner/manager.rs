//! Which logs are being cleaned, may not be cleaned, or cannot be; and up to where each was cleaned.
//!
//! Owns: [`LogCleanerManager`] with `cleaner-offset-checkpoint` of every directory.
//! Invariants: a log is cleaned, or has its old segments deleted, by one thread at a time. Whoever pauses a log finds
//! no cleaner in it when the call returns, and none comes until as many resumed it as paused it.
//! Concurrency: `state` is held for moments; checkpoints have a lock of their own, held across their IO, which only
//! cleaners and those who pause them wait for.
//! Crash: a checkpoint is behind at worst: what was clean is cleaned again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use env::FileSystem;
use parking_lot::{Condvar, Mutex};
use record::TopicPartition;

use crate::checkpoint;
use crate::context::LogDir;
use crate::names::CLEANER_OFFSET_CHECKPOINT_FILE;

/// Free → InProgress → free; Free → Paused(n) → free; InProgress → Aborted(n) → Paused(n).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogCleaningState {
    InProgress,
    /// The cleaner has been asked to stop, by that many.
    Aborted(u32),
    /// By that many.
    Paused(u32),
}

#[derive(Default)]
struct State {
    /// Logs that are not free.
    in_progress: HashMap<TopicPartition, LogCleaningState>,
    /// By directory.
    uncleanable: BTreeMap<PathBuf, BTreeSet<TopicPartition>>,
}

/// See the file's header.
pub(crate) struct LogCleanerManager {
    fs: Arc<dyn FileSystem>,
    state: Mutex<State>,
    paused: Condvar,
    /// By directory, read when first needed.
    checkpoints: Mutex<BTreeMap<PathBuf, BTreeMap<TopicPartition, i64>>>,
}

impl LogCleanerManager {
    pub(super) fn new(fs: Arc<dyn FileSystem>) -> Self {
        LogCleanerManager {
            fs,
            state: Mutex::default(),
            paused: Condvar::new(),
            checkpoints: Mutex::default(),
        }
    }

    /// Takes a free log for cleaning or deleting; false when it is not free.
    pub(crate) fn begin(&self, partition: &TopicPartition) -> bool {
        let mut state = self.state.lock();
        if state.in_progress.contains_key(partition) {
            return false;
        }
        state.in_progress.insert(partition.clone(), LogCleaningState::InProgress);
        true
    }

    pub(crate) fn is_free(&self, partition: &TopicPartition) -> bool {
        !self.state.lock().in_progress.contains_key(partition)
    }

    /// Whether the cleaner of this log has been asked to stop.
    pub(crate) fn is_aborted(&self, partition: &TopicPartition) -> bool {
        let state = self.state.lock();
        matches!(state.in_progress.get(partition), Some(LogCleaningState::Aborted(_)))
    }

    /// Lets go of a log that [`LogCleanerManager::begin`] took.
    pub(crate) fn end(&self, partition: &TopicPartition) {
        let mut state = self.state.lock();
        match state.in_progress.get(partition).copied() {
            Some(LogCleaningState::Aborted(count)) => {
                state.in_progress.insert(partition.clone(), LogCleaningState::Paused(count));
                self.paused.notify_all();
            }
            Some(LogCleaningState::InProgress) => {
                state.in_progress.remove(partition);
            }
            other => debug_assert!(false, "the cleaner lets go of {partition}, which is {other:?}"),
        }
    }

    /// Stops the cleaning of a log and keeps cleaners out of it; returns when there is none in it.
    pub(crate) fn abort_and_pause(&self, partition: &TopicPartition) {
        let mut state = self.state.lock();
        let next = match state.in_progress.get(partition) {
            None => LogCleaningState::Paused(1),
            Some(LogCleaningState::InProgress) => LogCleaningState::Aborted(1),
            Some(LogCleaningState::Aborted(count)) => LogCleaningState::Aborted(count + 1),
            Some(LogCleaningState::Paused(count)) => LogCleaningState::Paused(count + 1),
        };
        state.in_progress.insert(partition.clone(), next);
        while matches!(state.in_progress.get(partition), Some(LogCleaningState::Aborted(_))) {
            self.paused.wait(&mut state);
        }
    }

    /// Takes back one pause.
    pub(crate) fn resume(&self, partition: &TopicPartition) {
        let mut state = self.state.lock();
        match state.in_progress.get(partition).copied() {
            Some(LogCleaningState::Paused(1)) => {
                state.in_progress.remove(partition);
            }
            Some(LogCleaningState::Paused(count)) => {
                state.in_progress.insert(partition.clone(), LogCleaningState::Paused(count - 1));
            }
            other => debug_assert!(false, "{partition} is resumed, which is {other:?}"),
        }
    }

    /// Pauses those of the partitions that are free, and returns them.
    pub(crate) fn pause_free(&self, partitions: impl Iterator<Item = TopicPartition>) -> Vec<TopicPartition> {
        let mut state = self.state.lock();
        let free: Vec<TopicPartition> =
            partitions.filter(|partition| !state.in_progress.contains_key(partition)).collect();
        for partition in &free {
            state.in_progress.insert(partition.clone(), LogCleaningState::Paused(1));
        }
        free
    }

    pub(crate) fn mark_uncleanable(&self, dir: &Path, partition: &TopicPartition) {
        let mut state = self.state.lock();
        state.uncleanable.entry(dir.to_path_buf()).or_default().insert(partition.clone());
    }

    pub(crate) fn is_uncleanable(&self, dir: &Path, partition: &TopicPartition) -> bool {
        let state = self.state.lock();
        state.uncleanable.get(dir).is_some_and(|partitions| partitions.contains(partition))
    }

    /// Partitions of a directory that are left alone because cleaning them failed.
    pub(crate) fn uncleanable(&self, dir: &Path) -> Vec<TopicPartition> {
        let state = self.state.lock();
        state.uncleanable.get(dir).into_iter().flatten().cloned().collect()
    }

    /// Forgets uncleanable partitions that are gone.
    pub(crate) fn retain_uncleanable(&self, exists: impl Fn(&TopicPartition) -> bool) {
        let mut state = self.state.lock();
        for partitions in state.uncleanable.values_mut() {
            partitions.retain(&exists);
        }
        state.uncleanable.retain(|_, partitions| !partitions.is_empty());
    }

    /// A partition's log is in another directory from now on.
    pub(crate) fn move_uncleanable(&self, partition: &TopicPartition, from: &Path, to: &Path) {
        let mut state = self.state.lock();
        let was = state.uncleanable.get_mut(from).is_some_and(|partitions| partitions.remove(partition));
        if was {
            state.uncleanable.entry(to.to_path_buf()).or_default().insert(partition.clone());
        }
    }

    /// Up to where the log was cleaned, according to its directory's checkpoint.
    pub(crate) fn checkpointed(&self, dir: &LogDir, partition: &TopicPartition) -> Option<i64> {
        let mut checkpoints = self.checkpoints.lock();
        self.load(&mut checkpoints, dir).get(partition).copied()
    }

    /// Changes a directory's checkpoint, without the partitions that do not exist, and writes it when that made a
    /// difference.
    pub(crate) fn update_checkpoint(
        &self,
        dir: &LogDir,
        exists: impl Fn(&TopicPartition) -> bool,
        change: impl FnOnce(&mut BTreeMap<TopicPartition, i64>),
    ) {
        if dir.is_offline() {
            return;
        }
        let mut checkpoints = self.checkpoints.lock();
        let offsets = self.load(&mut checkpoints, dir);
        let before = offsets.clone();
        change(offsets);
        offsets.retain(|partition, _| exists(partition));
        if *offsets == before {
            return;
        }
        let path = dir.path().join(CLEANER_OFFSET_CHECKPOINT_FILE);
        if let Err(e) = checkpoint::write_offset_checkpoint(&*self.fs, &path, offsets) {
            // What is in memory holds until the next start, which cleans from further back.
            let error = dir.fail("Disk error while writing checkpoint", &path, e);
            tracing::error!("{error}");
        }
    }

    fn load<'a>(
        &self,
        checkpoints: &'a mut BTreeMap<PathBuf, BTreeMap<TopicPartition, i64>>,
        dir: &LogDir,
    ) -> &'a mut BTreeMap<TopicPartition, i64> {
        checkpoints.entry(dir.path().to_path_buf()).or_insert_with(|| {
            let path = dir.path().join(CLEANER_OFFSET_CHECKPOINT_FILE);
            match checkpoint::read_offset_checkpoint(&*self.fs, &path) {
                Ok(offsets) => offsets,
                Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                    tracing::warn!(
                        "{e}; the compacted logs of {} are cleaned from their start",
                        dir.path().display()
                    );
                    BTreeMap::new()
                }
                Err(e) => {
                    let error = dir.fail("Disk error while reading checkpoint", &path, e);
                    tracing::error!("{error}");
                    BTreeMap::new()
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use testkit::Sim;

    use super::*;

    fn partition() -> TopicPartition {
        TopicPartition::new("t", 0)
    }

    #[test]
    fn pauses_are_counted_and_keep_cleaners_out() {
        let manager = LogCleanerManager::new(Sim::new(1).fs.clone());
        manager.abort_and_pause(&partition());
        manager.abort_and_pause(&partition());
        assert!(!manager.begin(&partition()));
        manager.resume(&partition());
        assert!(!manager.begin(&partition()));
        assert!(manager.pause_free([partition()].into_iter()).is_empty());
        manager.resume(&partition());
        assert!(manager.begin(&partition()) && !manager.begin(&partition()));
        manager.end(&partition());
        assert_eq!(manager.pause_free([partition()].into_iter()), [partition()]);
    }

    #[test]
    fn who_aborts_waits_until_the_cleaner_has_let_go() {
        let manager = LogCleanerManager::new(Sim::new(1).fs.clone());
        assert!(manager.begin(&partition()));
        std::thread::scope(|scope| {
            let waiting = [0, 1].map(|_| scope.spawn(|| manager.abort_and_pause(&partition())));
            let both = Some(LogCleaningState::Aborted(2));
            while manager.state.lock().in_progress.get(&partition()).copied() != both {
                std::thread::yield_now();
            }
            assert!(manager.is_aborted(&partition()) && waiting.iter().all(|w| !w.is_finished()));
            manager.end(&partition());
        });
        assert!(!manager.is_aborted(&partition()) && !manager.begin(&partition()));
        manager.resume(&partition());
        manager.resume(&partition());
        assert!(manager.begin(&partition()));
    }

    #[test]
    fn the_checkpoint_has_the_references_text_and_survives() {
        let sim = Sim::new(1);
        let dir = LogDir::new("/".into(), None);
        let manager = LogCleanerManager::new(sim.fs.clone());
        assert_eq!(manager.checkpointed(&dir, &partition()), None);
        manager.update_checkpoint(
            &dir,
            |_| true,
            |offsets| {
                offsets.insert(partition(), 42);
                offsets.insert(TopicPartition::new("u", 1), 7);
            },
        );
        let read = || env::read_file(&*sim.fs, Path::new("/cleaner-offset-checkpoint"), 1000).unwrap();
        assert_eq!(read(), b"0\n2\nt 0 42\nu 1 7\n");
        sim.fs.crash(1);
        let manager = LogCleanerManager::new(sim.fs.clone());
        assert_eq!(manager.checkpointed(&dir, &partition()), Some(42));
        manager.update_checkpoint(&dir, |partition| &*partition.topic == "t", |_| {});
        assert_eq!(read(), b"0\n1\nt 0 42\n");
        sim.fs.corrupt(Path::new("/cleaner-offset-checkpoint"), 0, b"x");
        let manager = LogCleanerManager::new(sim.fs.clone());
        assert_eq!(manager.checkpointed(&dir, &partition()), None, "a damaged file counts as none");
        assert!(!dir.is_offline());
    }

    #[test]
    fn uncleanable_partitions_move_and_go_with_their_logs() {
        let manager = LogCleanerManager::new(Sim::new(1).fs.clone());
        let (a, b) = (Path::new("/a"), Path::new("/b"));
        manager.mark_uncleanable(a, &partition());
        assert!(manager.is_uncleanable(a, &partition()) && !manager.is_uncleanable(b, &partition()));
        manager.move_uncleanable(&partition(), a, b);
        assert_eq!((manager.uncleanable(a), manager.uncleanable(b)), (vec![], vec![partition()]));
        manager.retain_uncleanable(|_| false);
        assert!(manager.uncleanable(b).is_empty());
    }
}
