//! What is derived from the records and kept beside them: leader epochs, producers, aborted transactions.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use env::FileSystem;
use record::{BatchHeader, MAGIC_VALUE_V2};

use super::{Finding, Severity};
use crate::checkpoint::{self, EpochEntry};
use crate::names::{self, TXN_INDEX_FILE_SUFFIX, segment_file};
use crate::producer::decode_snapshot;
use crate::txn_index::AbortedTxn;

const MAX_STATE_BYTES: u64 = 512 << 20;

#[derive(Clone, Copy, Debug)]
struct Producer {
    epoch: i16,
    /// Of its last data batch.
    last_sequence: i32,
    last_offset: i64,
    open_since: Option<i64>,
}

#[derive(Default)]
pub(super) struct StateCheck {
    first_offset: i64,
    epochs: Vec<EpochEntry>,
    epochs_wrong: bool,
    has_epochs: bool,
    producers: BTreeMap<i64, Producer>,
    /// Transactions that this segment's markers aborted: producer and marker's offset, first offset when known.
    aborted: Vec<(i64, i64, Option<i64>)>,
}

fn finding(severity: Severity, file: &str, what: impl Into<String>) -> Finding {
    Finding { severity, file: file.to_owned(), what: what.into() }
}

impl StateCheck {
    pub(super) fn begin_at(&mut self, offset: i64) {
        self.first_offset = offset;
    }

    pub(super) fn load_epochs(
        &mut self,
        fs: &dyn FileSystem,
        dir: &Path,
        findings: &mut Vec<Finding>,
    ) -> io::Result<()> {
        let file = names::LEADER_EPOCH_CHECKPOINT_FILE;
        match checkpoint::read_leader_epochs(fs, &dir.join(file)) {
            Ok(epochs) => {
                let rises = |pair: &[EpochEntry]| matches!(pair, [a, b] if a.epoch < b.epoch && a.start_offset <= b.start_offset);
                if !epochs.windows(2).all(rises) {
                    findings.push(finding(Severity::Repairable, file, "its epochs or offsets do not rise"));
                    self.epochs_wrong = true;
                }
                self.has_epochs = !epochs.is_empty();
                self.epochs = epochs;
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                let what = format!("it cannot be read, and is made from the log again: {e}");
                findings.push(finding(Severity::Repairable, file, what));
                self.epochs_wrong = true;
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    pub(super) fn batch(&mut self, header: &BatchHeader, marker: Option<bool>, findings: &mut Vec<Finding>) {
        if header.magic < MAGIC_VALUE_V2 {
            return;
        }
        self.check_epoch(header, findings);
        if header.has_producer_id() {
            self.replay(header, marker);
        }
    }

    fn check_epoch(&mut self, header: &BatchHeader, findings: &mut Vec<Finding>) {
        let epoch = header.partition_leader_epoch;
        if self.epochs_wrong || !self.has_epochs || epoch < 0 {
            return;
        }
        let at = self.epochs.partition_point(|entry| entry.start_offset <= header.base_offset);
        let said = at.checked_sub(1).and_then(|at| self.epochs.get(at));
        // Epochs before the log's start are dropped from the file.
        if said.is_some_and(|said| said.epoch != epoch) {
            let what = format!(
                "offset {} is of epoch {epoch}, not {}",
                header.base_offset,
                said.map_or(-1, |said| said.epoch)
            );
            findings.push(finding(Severity::Damage, names::LEADER_EPOCH_CHECKPOINT_FILE, what));
            self.epochs_wrong = true;
        }
    }

    fn replay(&mut self, header: &BatchHeader, marker: Option<bool>) {
        let entry = self.producers.entry(header.producer_id).or_insert(Producer {
            epoch: header.producer_epoch,
            last_sequence: -1,
            last_offset: -1,
            open_since: None,
        });
        entry.epoch = header.producer_epoch;
        if header.is_control_batch() {
            let first = entry.open_since.take();
            if marker == Some(false) {
                self.aborted.push((header.producer_id, header.last_offset(), first));
            }
            return;
        }
        entry.last_sequence = header.last_sequence();
        entry.last_offset = header.last_offset();
        if header.is_transactional() && entry.open_since.is_none() {
            entry.open_since = Some(header.base_offset);
        }
    }

    /// Compares the segment's transaction index with its markers.
    pub(super) fn end_of_segment(
        &mut self,
        fs: &dyn FileSystem,
        dir: &Path,
        base: i64,
        findings: &mut Vec<Finding>,
    ) -> io::Result<()> {
        let file = segment_file(base, TXN_INDEX_FILE_SUFFIX);
        let aborted = std::mem::take(&mut self.aborted);
        let bytes = match env::read_file(fs, &dir.join(&file), MAX_STATE_BYTES) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(e),
        };
        let entries = match AbortedTxn::decode_all(&bytes) {
            Ok(entries) => entries,
            Err(e) => {
                findings.push(finding(Severity::Repairable, &file, e.to_string()));
                return Ok(());
            }
        };
        for (producer_id, marker, first) in &aborted {
            let entry = entries
                .iter()
                .find(|entry| entry.last_offset == *marker && entry.producer_id == *producer_id);
            let what = match entry {
                // Compaction may have left nothing of it but the marker.
                None if first.is_none() => continue,
                None => format!("the abort of producer {producer_id} at offset {marker} is missing"),
                Some(entry) if first.is_some_and(|first| first < entry.first_offset) => format!(
                    "the transaction of producer {producer_id} that ends at {marker} begins before offset {}",
                    entry.first_offset
                ),
                Some(_) => continue,
            };
            findings.push(finding(Severity::Damage, &file, what));
        }
        for entry in &entries {
            let known =
                aborted.iter().any(|(id, at, _)| *id == entry.producer_id && *at == entry.last_offset);
            if !known {
                let what = format!(
                    "producer {} is said to have aborted at offset {}, where it did not",
                    entry.producer_id, entry.last_offset
                );
                findings.push(finding(Severity::Damage, &file, what));
            }
        }
        Ok(())
    }

    /// Compares a producer snapshot with the producers as the records up to its offset say.
    pub(super) fn compare_snapshot(
        &self,
        fs: &dyn FileSystem,
        dir: &Path,
        file: &str,
        findings: &mut Vec<Finding>,
    ) -> io::Result<()> {
        let bytes = env::read_file(fs, &dir.join(file), MAX_STATE_BYTES)?;
        let entries = match decode_snapshot(&bytes) {
            Ok(entries) => entries,
            Err(e) => {
                let what = format!("it cannot be used, and the log is read instead: {e}");
                findings.push(finding(Severity::Repairable, file, what));
                return Ok(());
            }
        };
        for entry in entries {
            let last_offset = entry.last_data_offset();
            if last_offset < self.first_offset {
                continue;
            }
            let known = self.producers.get(&entry.producer_id);
            let agrees = known.is_some_and(|known| {
                known.last_offset == last_offset
                    && known.last_sequence == entry.last_sequence()
                    && known.open_since.is_some() == entry.current_txn_first_offset.is_some()
            });
            if !agrees {
                let what = format!(
                    "producer {} is said to have written sequence {} at offset {last_offset} last, but the log has {}",
                    entry.producer_id,
                    entry.last_sequence(),
                    known.map_or("nothing of it".to_owned(), |known| format!(
                        "sequence {} at offset {}",
                        known.last_sequence, known.last_offset
                    ))
                );
                findings.push(finding(Severity::Damage, file, what));
            }
        }
        Ok(())
    }
}
