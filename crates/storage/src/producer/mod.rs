//! What the log knows about producers: the idempotent producer's sequences and the transactions in progress.
//!
//! Owns: [`ProducerStateManager`], one per log.
//! Invariants: the state is a function of the log up to `map_end_offset`; at most five batches are remembered per
//! producer (KIP-98); an entry without open transaction goes after `producer.id.expiration.ms`.
//! Concurrency: the log's writer lock.
//! Crash: snapshots carry a checksum and are a shortcut only; a damaged one is removed and an older one, or the log
//! itself, is read instead.

mod append;
mod entry;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use env::FileSystem;

pub use self::append::{CompletedTxn, ProducerAppendInfo};
pub use self::entry::{BatchMetadata, ProducerStateEntry};
pub use self::snapshot::{decode_snapshot, encode_snapshot};
use crate::names::{self, PRODUCER_SNAPSHOT_FILE_SUFFIX};
use crate::offsets::LogOffsetMetadata;

/// A snapshot of a million producers has 46 MB.
pub(crate) const MAX_SNAPSHOT_BYTES: u64 = 512 << 20;

/// A transaction of one producer in this log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnMetadata {
    pub producer_id: i64,
    pub first_offset: LogOffsetMetadata,
    /// Of its marker, once there.
    pub last_offset: Option<i64>,
}

#[derive(Debug, Default)]
pub struct ProducerStateManager {
    producers: BTreeMap<i64, ProducerStateEntry>,
    /// By first offset: begun, not ended.
    ongoing: BTreeMap<i64, TxnMetadata>,
    /// By first offset: ended by a marker at or above the high watermark.
    unreplicated: BTreeMap<i64, TxnMetadata>,
    snapshots: BTreeSet<i64>,
    map_end_offset: i64,
    snapshot_offset: i64,
}

impl ProducerStateManager {
    /// An empty state; `snapshots` are the offsets of the files there are.
    pub fn new(snapshots: BTreeSet<i64>) -> Self {
        ProducerStateManager { snapshots, ..Self::default() }
    }

    pub fn map_end_offset(&self) -> i64 {
        self.map_end_offset
    }

    pub fn set_map_end_offset(&mut self, offset: i64) {
        self.map_end_offset = offset;
    }

    pub fn latest_snapshot_offset(&self) -> Option<i64> {
        self.snapshots.last().copied()
    }

    pub fn producers(&self) -> &BTreeMap<i64, ProducerStateEntry> {
        &self.producers
    }

    pub fn is_empty(&self) -> bool {
        self.producers.is_empty() && self.unreplicated.is_empty()
    }

    /// The first offset of any transaction that is not ended and replicated.
    pub fn first_unstable_offset(&self) -> Option<LogOffsetMetadata> {
        let first =
            |txns: &BTreeMap<i64, TxnMetadata>| txns.first_key_value().map(|(_, txn)| txn.first_offset);
        match (first(&self.unreplicated), first(&self.ongoing)) {
            (Some(a), Some(b)) => Some(if b.message_offset < a.message_offset { b } else { a }),
            (a, b) => a.or(b),
        }
    }

    /// When the producer of the oldest open transaction last wrote.
    pub fn oldest_txn_last_timestamp(&self) -> Option<i64> {
        let (_, txn) = self.ongoing.first_key_value()?;
        Some(self.producers.get(&txn.producer_id)?.last_timestamp)
    }

    pub fn has_ongoing_transaction(&self, producer_id: i64, epoch: i16) -> bool {
        let entry = self.producers.get(&producer_id);
        entry.is_some_and(|e| e.current_txn_first_offset.is_some() && e.producer_epoch == epoch)
    }

    pub fn on_high_watermark_updated(&mut self, high_watermark: i64) {
        if !self.unreplicated.is_empty() {
            self.unreplicated.retain(|_, txn| txn.last_offset.is_none_or(|last| last >= high_watermark));
        }
    }

    pub fn on_log_start_offset_incremented(&mut self, log_start_offset: i64) {
        self.on_high_watermark_updated(log_start_offset);
        self.map_end_offset = self.map_end_offset.max(log_start_offset);
        self.snapshot_offset = self.latest_snapshot_offset().unwrap_or(log_start_offset);
    }

    /// Takes over what an append did.
    pub fn update(&mut self, info: ProducerAppendInfo) {
        for txn in &info.started {
            self.ongoing.insert(txn.first_offset.message_offset, *txn);
        }
        match self.producers.entry(info.updated.producer_id) {
            std::collections::btree_map::Entry::Occupied(mut entry) => entry.get_mut().merge(&info.updated),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(info.updated);
            }
        }
    }

    /// The last stable offset as it will be when `completed` is replicated.
    pub fn last_stable_offset(&self, completed: &CompletedTxn) -> i64 {
        let other = self.ongoing.values().find(|txn| txn.producer_id != completed.producer_id);
        other.map_or(completed.last_offset + 1, |txn| txn.first_offset.message_offset)
    }

    /// Ends a transaction. One that did not begin here (its records were removed) is nothing to end.
    pub fn complete_txn(&mut self, completed: &CompletedTxn) {
        if let Some(mut txn) = self.ongoing.remove(&completed.first_offset) {
            txn.last_offset = Some(completed.last_offset);
            self.unreplicated.insert(completed.first_offset, txn);
        }
    }

    fn is_expired(entry: &ProducerStateEntry, now_ms: i64, expiration_ms: i64) -> bool {
        // A snapshot can hold any timestamp; the reference's difference wraps around as well.
        let age_ms = now_ms.wrapping_sub(entry.last_timestamp);
        entry.current_txn_first_offset.is_none() && age_ms >= expiration_ms
    }

    pub fn remove_expired(&mut self, now_ms: i64, expiration_ms: i64) {
        self.producers.retain(|_, entry| !Self::is_expired(entry, now_ms, expiration_ms));
    }

    fn path(dir: &Path, offset: i64) -> PathBuf {
        dir.join(names::segment_file(offset, PRODUCER_SNAPSHOT_FILE_SUFFIX))
    }

    /// Writes a snapshot at `map_end_offset` unless there is one; returns its path. `sync` also makes it durable.
    pub fn take_snapshot(
        &mut self,
        fs: &dyn FileSystem,
        dir: &Path,
        sync: bool,
    ) -> io::Result<Option<PathBuf>> {
        if self.map_end_offset <= self.snapshot_offset {
            return Ok(None);
        }
        let path = Self::path(dir, self.map_end_offset);
        let file = fs.open(&path, env::OpenMode::Truncate)?;
        if let Err(e) = file.write_at(&encode_snapshot(self.producers.values()), 0) {
            // Half a snapshot is none; on a full disk its bytes are of better use elsewhere.
            let _ = fs.remove_file(&path);
            return Err(e);
        }
        if sync {
            file.sync_data().map_err(crate::log_dir::sync_failed)?;
        }
        self.snapshots.insert(self.map_end_offset);
        self.snapshot_offset = self.map_end_offset;
        Ok(Some(path))
    }

    /// Removes snapshots that belong to no segment, except the newest where it lies behind the last segment's start.
    pub fn remove_stray_snapshots(
        &mut self,
        fs: &dyn FileSystem,
        dir: &Path,
        segment_base_offsets: &BTreeSet<i64>,
    ) -> io::Result<()> {
        let strays: Vec<i64> = self.snapshots.difference(segment_base_offsets).copied().collect();
        let last_base = segment_base_offsets.last().copied();
        for (i, stray) in strays.iter().enumerate() {
            let is_last = i + 1 == strays.len();
            if !is_last || last_base.is_some_and(|base| *stray < base) {
                self.remove_snapshot(fs, dir, *stray)?;
            }
        }
        Ok(())
    }

    /// Removes snapshots of a time before the log's first segment: what happened between them and it is not there any
    /// more to be read.
    pub fn remove_snapshots_below(&mut self, fs: &dyn FileSystem, dir: &Path, offset: i64) -> io::Result<()> {
        let outdated: Vec<i64> = self.snapshots.range(..offset).copied().collect();
        outdated.into_iter().try_for_each(|outdated| self.remove_snapshot(fs, dir, outdated))
    }

    fn remove_snapshot(&mut self, fs: &dyn FileSystem, dir: &Path, offset: i64) -> io::Result<()> {
        self.snapshots.remove(&offset);
        ignore_missing(fs.remove_file(&Self::path(dir, offset)))
    }

    /// Forgets a snapshot; its file is the caller's to remove.
    pub fn forget_snapshot(&mut self, offset: i64) -> bool {
        self.snapshots.remove(&offset)
    }

    /// Brings the state to `log_end_offset` or to the newest usable snapshot before it; the caller replays the rest
    /// of the log from `map_end_offset`.
    pub fn truncate_and_reload(
        &mut self,
        fs: &dyn FileSystem,
        dir: &Path,
        log_start_offset: i64,
        log_end_offset: i64,
        now_ms: i64,
        expiration_ms: i64,
    ) -> io::Result<()> {
        let outside: Vec<i64> = self.snapshots.iter().copied().collect();
        for offset in outside.into_iter().filter(|o| *o > log_end_offset || *o <= log_start_offset) {
            self.remove_snapshot(fs, dir, offset)?;
        }
        if log_end_offset == self.map_end_offset {
            self.on_log_start_offset_incremented(log_start_offset);
            return Ok(());
        }
        self.producers.clear();
        self.ongoing.clear();
        self.unreplicated.clear();
        while let Some(offset) = self.latest_snapshot_offset() {
            let path = Self::path(dir, offset);
            let read = env::read_file(fs, &path, MAX_SNAPSHOT_BYTES);
            match read.and_then(|bytes| decode_snapshot(&bytes)) {
                Ok(entries) => {
                    let live = entries.into_iter().filter(|e| !Self::is_expired(e, now_ms, expiration_ms));
                    live.for_each(|entry| self.load_entry(entry));
                    self.snapshot_offset = offset;
                    self.map_end_offset = offset;
                    return Ok(());
                }
                Err(e) if e.kind() == io::ErrorKind::InvalidData || e.kind() == io::ErrorKind::NotFound => {
                    tracing::warn!("Failed to load producer snapshot from '{}': {e}", path.display());
                    self.remove_snapshot(fs, dir, offset)?;
                }
                Err(e) => return Err(e),
            }
        }
        self.snapshot_offset = log_start_offset;
        self.map_end_offset = log_start_offset;
        Ok(())
    }

    fn load_entry(&mut self, entry: ProducerStateEntry) {
        if let Some(offset) = entry.current_txn_first_offset {
            let first_offset = LogOffsetMetadata::offset_only(offset);
            let txn = TxnMetadata { producer_id: entry.producer_id, first_offset, last_offset: None };
            self.ongoing.insert(offset, txn);
        }
        self.producers.insert(entry.producer_id, entry);
    }

    pub fn truncate_fully_and_start_at(
        &mut self,
        fs: &dyn FileSystem,
        dir: &Path,
        offset: i64,
    ) -> io::Result<()> {
        self.producers.clear();
        self.ongoing.clear();
        self.unreplicated.clear();
        while let Some(snapshot) = self.latest_snapshot_offset() {
            self.remove_snapshot(fs, dir, snapshot)?;
        }
        self.snapshot_offset = 0;
        self.map_end_offset = offset;
        Ok(())
    }
}

pub(crate) fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use env::{FileSystem, OpenMode};
    use testkit::Sim;

    use super::*;

    #[test]
    fn any_number_in_a_snapshot_is_taken_without_overflow() {
        let sim = Sim::new(1);
        let dir = Path::new("/");
        for extreme in [i64::MIN, -1, 0, i64::MAX] {
            let mut entry = ProducerStateEntry::new(7, 0, 0, extreme, None);
            let batch = BatchMetadata {
                last_sequence: i32::MIN,
                last_offset: i64::MAX,
                offset_delta: i32::MIN,
                timestamp: extreme,
            };
            entry.add_batch(0, batch);
            let file = sim.fs.open(&ProducerStateManager::path(dir, 100), OpenMode::Truncate).unwrap();
            file.write_at(&encode_snapshot([entry].iter()), 0).unwrap();
            let mut state = ProducerStateManager::new(BTreeSet::from([100]));
            state.truncate_and_reload(&*sim.fs, dir, 0, 200, 1_700_000_000_000, i64::MAX).unwrap();
            state.remove_expired(i64::MIN, i64::MAX);
            for entry in state.producers().values() {
                let _ = entry.batches().iter().map(BatchMetadata::first_offset).count();
                let _ = entry.batches().iter().map(BatchMetadata::first_sequence).count();
            }
        }
    }
}
