//! Batches on their way into the log.
//!
//! Invariants: records get offsets in the order of the batches; a batch with a producer holds the records of exactly
//! one operation; no batch but one with a single record, or with a single atomic operation, is larger than the limit.

use bytes::Bytes;
use record::{BatchOptions, BuildError, Codecs, Compression, EndTransactionMarker, RecordBatchBuilder, Time};

use crate::shard::{Producer, RawRecord, TransactionResult};

/// Identifies a [`PendingAppend`] within its context.
pub type AppendId = u64;

/// Header of a record batch (message format v2).
const BATCH_OVERHEAD: usize = 61;
/// Upper bound of what a record needs besides key and value: length, attributes, deltas and the lengths of key, value
/// and headers as varints.
const RECORD_OVERHEAD: usize = 5 + 1 + 10 + 5 + 5 + 5 + 1;

/// What is to be appended to the coordinator's partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingAppend {
    pub append_id: AppendId,
    /// The offset that the first record must get.
    pub base_offset: i64,
    /// The create time of every record, in milliseconds since the epoch.
    pub timestamp_ms: i64,
    /// Set for a transactional batch and for an end marker.
    pub producer: Option<Producer>,
    pub content: AppendContent,
}

/// The records of a [`PendingAppend`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendContent {
    /// Data records, to be compressed with the coordinator topic's codec.
    Records(Vec<RawRecord>),
    /// An end-of-transaction marker.
    EndTransactionMarker { result: TransactionResult, coordinator_epoch: i32 },
}

impl PendingAppend {
    /// The batch as it goes into the log, at the offsets expected and without a leader epoch. `compression` is that of
    /// the coordinator's topic; markers are never compressed.
    pub fn to_batch(&self, compression: Compression, codecs: &dyn Codecs) -> Result<Bytes, BuildError> {
        let options = BatchOptions { base_offset: self.base_offset, ..BatchOptions::default() };
        let with_producer = |options: BatchOptions, base_sequence: i32| match self.producer {
            Some(producer) => BatchOptions {
                producer_id: producer.id,
                producer_epoch: producer.epoch,
                base_sequence,
                is_transactional: true,
                ..options
            },
            None => options,
        };
        match &self.content {
            AppendContent::Records(records) => {
                // Every batch has sequence 0, with a producer or without, as those of 4.4.0.
                let options = BatchOptions { compression, base_sequence: 0, ..options };
                let options = with_producer(options, 0);
                let mut builder = RecordBatchBuilder::new(options);
                for record in records {
                    builder.append(self.timestamp_ms, Some(&record.key), record.value.as_deref(), &[])?;
                }
                builder.build(codecs)
            }
            AppendContent::EndTransactionMarker { result, coordinator_epoch } => {
                let options = with_producer(BatchOptions { is_control_batch: true, ..options }, -1);
                let mut builder = RecordBatchBuilder::new(options);
                let committed = *result == TransactionResult::Commit;
                let marker = EndTransactionMarker { committed, coordinator_epoch: *coordinator_epoch };
                builder.append_end_txn_marker(self.timestamp_ms, marker)?;
                builder.build(codecs)
            }
        }
    }
}

/// A batch that is being filled, sealed, or in the hands of the log.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) base_offset: i64,
    pub(crate) next_offset: i64,
    pub(crate) opened: Time,
    pub(crate) producer: Option<Producer>,
    pub(crate) content: AppendContent,
    /// Parked operations that complete with this batch.
    pub(crate) events: Vec<u64>,
    size: usize,
}

impl Batch {
    pub(crate) fn new(base_offset: i64, opened: Time, producer: Option<Producer>) -> Self {
        Self {
            base_offset,
            next_offset: base_offset,
            opened,
            producer,
            content: AppendContent::Records(Vec::new()),
            events: Vec::new(),
            size: BATCH_OVERHEAD,
        }
    }

    pub(crate) fn marker(
        base_offset: i64,
        opened: Time,
        producer: Producer,
        result: TransactionResult,
        coordinator_epoch: i32,
    ) -> Self {
        Self {
            next_offset: base_offset + 1,
            content: AppendContent::EndTransactionMarker { result, coordinator_epoch },
            ..Self::new(base_offset, opened, Some(producer))
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.next_offset == self.base_offset
    }

    /// Whether `size` more bytes fit. An empty batch takes anything: the log decides about a record that is too large.
    pub(crate) fn has_room_for(&self, size: usize, max_batch_size: usize) -> bool {
        self.is_empty() || self.size.saturating_add(size) <= max_batch_size
    }

    pub(crate) fn push(&mut self, record: RawRecord) {
        if let AppendContent::Records(records) = &mut self.content {
            self.size = self.size.saturating_add(size_upper_bound(&record));
            self.next_offset += 1;
            records.push(record);
        }
    }

    /// The records leave; offsets and parked operations stay.
    pub(crate) fn take_append(&mut self, append_id: AppendId) -> PendingAppend {
        PendingAppend {
            append_id,
            base_offset: self.base_offset,
            timestamp_ms: self.opened.wall_ms,
            producer: self.producer,
            content: std::mem::replace(&mut self.content, AppendContent::Records(Vec::new())),
        }
    }
}

/// An upper bound of the uncompressed size of `record` in a batch.
pub(crate) fn size_upper_bound(record: &RawRecord) -> usize {
    RECORD_OVERHEAD + record.key.len() + record.value.as_ref().map_or(0, |value| value.len())
}
