//! The last batches of one producer.
//!
//! Owns: [`ProducerStateEntry`]. Invariants: batches are of `producer_epoch`; an epoch change forgets them.
//! Concurrency, crash: a value.

use record::BatchHeader;
use record::record::decrement_sequence;

/// How many batches a producer may have in flight and still be recognised when it sends them again.
pub const NUM_BATCHES_TO_RETAIN: usize = 5;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchMetadata {
    pub last_sequence: i32,
    pub last_offset: i64,
    pub offset_delta: i32,
    pub timestamp: i64,
}

impl BatchMetadata {
    pub fn first_sequence(&self) -> i32 {
        decrement_sequence(self.last_sequence, self.offset_delta)
    }

    pub fn first_offset(&self) -> i64 {
        self.last_offset.wrapping_sub(i64::from(self.offset_delta))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerStateEntry {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub coordinator_epoch: i32,
    pub last_timestamp: i64,
    pub current_txn_first_offset: Option<i64>,
    batches: [BatchMetadata; NUM_BATCHES_TO_RETAIN],
    len: u8,
}

impl ProducerStateEntry {
    /// A producer that has not written here.
    pub fn empty(producer_id: i64) -> Self {
        Self::new(producer_id, -1, -1, -1, None)
    }

    pub fn new(
        producer_id: i64,
        producer_epoch: i16,
        coordinator_epoch: i32,
        last_timestamp: i64,
        current_txn_first_offset: Option<i64>,
    ) -> Self {
        ProducerStateEntry {
            producer_id,
            producer_epoch,
            coordinator_epoch,
            last_timestamp,
            current_txn_first_offset,
            batches: Default::default(),
            len: 0,
        }
    }

    /// The same producer without its batches: what one append builds on.
    pub(super) fn without_batches(&self) -> Self {
        ProducerStateEntry { batches: Default::default(), len: 0, ..self.clone() }
    }

    /// Oldest first.
    pub fn batches(&self) -> &[BatchMetadata] {
        self.batches.get(..usize::from(self.len)).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn last_sequence(&self) -> i32 {
        self.batches().last().map_or(-1, |batch| batch.last_sequence)
    }

    pub fn last_data_offset(&self) -> i64 {
        self.batches().last().map_or(-1, |batch| batch.last_offset)
    }

    pub fn last_offset_delta(&self) -> i32 {
        self.batches().last().map_or(0, |batch| batch.offset_delta)
    }

    fn set_epoch(&mut self, epoch: i16) {
        if self.producer_epoch != epoch {
            self.len = 0;
            self.producer_epoch = epoch;
        }
    }

    fn push(&mut self, batch: BatchMetadata) {
        let mut len = usize::from(self.len);
        if len == NUM_BATCHES_TO_RETAIN {
            self.batches.rotate_left(1);
            len -= 1;
        }
        if let Some(slot) = self.batches.get_mut(len) {
            *slot = batch;
        }
        self.len = len as u8 + 1;
    }

    pub fn add_batch(&mut self, epoch: i16, batch: BatchMetadata) {
        self.set_epoch(epoch);
        self.push(batch);
        self.last_timestamp = batch.timestamp;
    }

    /// A transaction's end: the batches stay, unless the marker carries a new epoch (KIP-890).
    pub(super) fn end_txn(&mut self, epoch: i16, coordinator_epoch: i32, timestamp: i64) {
        self.set_epoch(epoch);
        self.coordinator_epoch = coordinator_epoch;
        self.current_txn_first_offset = None;
        self.last_timestamp = timestamp;
    }

    /// Takes over what an append added.
    pub(super) fn merge(&mut self, next: &ProducerStateEntry) {
        self.set_epoch(next.producer_epoch);
        for batch in next.batches() {
            self.push(*batch);
        }
        self.coordinator_epoch = next.coordinator_epoch;
        self.current_txn_first_offset = next.current_txn_first_offset;
        self.last_timestamp = next.last_timestamp;
    }

    /// The remembered batch that `batch` repeats.
    pub fn find_duplicate(&self, batch: &BatchHeader) -> Option<BatchMetadata> {
        if batch.producer_epoch != self.producer_epoch {
            return None;
        }
        let (first, last) = (batch.base_sequence, batch.last_sequence());
        self.batches().iter().find(|b| b.first_sequence() == first && b.last_sequence == last).copied()
    }
}
