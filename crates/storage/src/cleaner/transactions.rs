//! Which batches of a compacted log belong to transactions that were aborted, or that have no records left.
//!
//! Owns: [`CleanedTransactionMetadata`], fed with every batch of a pass in the order of the log.
//! Invariants: a transaction counts as aborted from its first offset until its marker. A marker may go only when no
//! batch of its transaction was seen in this pass.
//! Concurrency, crash: a value.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use record::{BufferSupplier, Codecs, ControlRecordType, RecordBatch, RecordError};

use crate::txn_index::AbortedTxn;

#[derive(Default)]
pub(super) struct CleanedTransactionMetadata {
    ongoing_committed: HashSet<i64>,
    ongoing_aborted: HashMap<i64, OngoingAborted>,
    /// By first offset, least first.
    aborted: BinaryHeap<Reverse<ByFirstOffset>>,
}

struct OngoingAborted {
    txn: AbortedTxn,
    has_batches: bool,
}

#[derive(PartialEq, Eq)]
struct ByFirstOffset(AbortedTxn);

impl Ord for ByFirstOffset {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |txn: &AbortedTxn| (txn.first_offset, txn.last_offset, txn.producer_id);
        key(&self.0).cmp(&key(&other.0))
    }
}

impl PartialOrd for ByFirstOffset {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// What a control batch means for the pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ControlVerdict {
    /// Nothing of its transaction is left.
    pub(super) can_discard: bool,
    /// An aborted transaction with batches in this pass ends here: the cleaned segment's index must say so.
    pub(super) index: Option<AbortedTxn>,
}

impl CleanedTransactionMetadata {
    /// Adds what the transaction index knows of the segments that come next. The same transaction may be added twice.
    pub(super) fn add_aborted_transactions(&mut self, aborted: Vec<AbortedTxn>) {
        self.aborted.extend(aborted.into_iter().map(|txn| Reverse(ByFirstOffset(txn))));
    }

    fn consume_up_to(&mut self, offset: i64) {
        while let Some(Reverse(ByFirstOffset(txn))) = self.aborted.peek() {
            if txn.first_offset > offset {
                return;
            }
            let txn = *txn;
            self.aborted.pop();
            self.ongoing_aborted.entry(txn.producer_id).or_insert(OngoingAborted { txn, has_batches: false });
        }
    }

    /// Takes note of a control batch.
    pub(super) fn on_control_batch(
        &mut self,
        batch: &RecordBatch<'_>,
        codecs: &dyn Codecs,
        buffers: &mut BufferSupplier,
    ) -> Result<ControlVerdict, RecordError> {
        self.consume_up_to(batch.last_offset());
        let keep = ControlVerdict { can_discard: false, index: None };
        let discard = ControlVerdict { can_discard: true, index: None };
        let Some(record) = batch.records(codecs, buffers)?.next() else { return Ok(discard) };
        Ok(match ControlRecordType::parse(record?.key.unwrap_or_default())? {
            ControlRecordType::Abort => match self.ongoing_aborted.remove(&batch.producer_id) {
                Some(ongoing) if ongoing.has_batches => {
                    ControlVerdict { can_discard: false, index: Some(ongoing.txn) }
                }
                _ => discard,
            },
            ControlRecordType::Commit if !self.ongoing_committed.remove(&batch.producer_id) => discard,
            _ => keep,
        })
    }

    /// Takes note of a batch of data; true when it was aborted.
    pub(super) fn on_batch(&mut self, batch: &RecordBatch<'_>) -> bool {
        self.consume_up_to(batch.last_offset());
        if !batch.is_transactional() {
            return false;
        }
        match self.ongoing_aborted.get_mut(&batch.producer_id) {
            Some(ongoing) => {
                ongoing.has_batches = true;
                true
            }
            None => {
                self.ongoing_committed.insert(batch.producer_id);
                false
            }
        }
    }
}
