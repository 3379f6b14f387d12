//! What one append does to one producer's state: checked first, applied when the records are in the log.
//!
//! Owns: [`ProducerAppendInfo`]. Invariants: nothing is changed before [`super::ProducerStateManager::update`].
//! Concurrency, crash: a value.

use record::{AppendOrigin, BatchHeader, EndTransactionMarker, TopicPartition};

use super::{BatchMetadata, ProducerStateEntry, TxnMetadata};
use crate::error::AppendError;
use crate::offsets::LogOffsetMetadata;

/// Transactions with epoch bump on every end (KIP-890).
const TV_2: i16 = 2;

/// A marker that ended a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTxn {
    pub producer_id: i64,
    pub first_offset: i64,
    pub last_offset: i64,
    pub is_aborted: bool,
}

#[derive(Clone, Debug)]
pub struct ProducerAppendInfo {
    current_epoch: i16,
    current_last_sequence: i32,
    origin: AppendOrigin,
    pub updated: ProducerStateEntry,
    pub started: Vec<TxnMetadata>,
}

impl ProducerAppendInfo {
    pub fn new(producer_id: i64, current: Option<&ProducerStateEntry>, origin: AppendOrigin) -> Self {
        ProducerAppendInfo {
            current_epoch: current.map_or(-1, |entry| entry.producer_epoch),
            current_last_sequence: current.map_or(-1, ProducerStateEntry::last_sequence),
            origin,
            updated: current
                .map_or_else(|| ProducerStateEntry::empty(producer_id), ProducerStateEntry::without_batches),
            started: Vec::new(),
        }
    }

    pub fn append_data_batch(
        &mut self,
        partition: &TopicPartition,
        batch: &BatchHeader,
        first_offset: LogOffsetMetadata,
    ) -> Result<(), AppendError> {
        self.check_epoch(partition, batch.producer_epoch, batch.base_offset, -1)?;
        if self.origin == AppendOrigin::Client {
            self.check_sequence(partition, batch)?;
        }
        let last_offset = batch.last_offset();
        let offset_delta = i32::try_from(last_offset - first_offset.message_offset).unwrap_or(i32::MAX);
        let metadata = BatchMetadata {
            last_sequence: batch.last_sequence(),
            last_offset,
            offset_delta,
            timestamp: batch.max_timestamp,
        };
        self.updated.add_batch(batch.producer_epoch, metadata);
        let producer_id = self.updated.producer_id;
        match (self.updated.current_txn_first_offset, batch.is_transactional()) {
            (Some(_), false) => Err(AppendError::InvalidTxnState(format!(
                "Expected transactional write from producer {producer_id} at offset {} in partition {partition}",
                first_offset.message_offset
            ))),
            (None, true) => {
                self.updated.current_txn_first_offset = Some(first_offset.message_offset);
                self.started.push(TxnMetadata { producer_id, first_offset, last_offset: None });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// `transaction_version` -1: unknown, as in replication.
    pub fn append_end_txn_marker(
        &mut self,
        partition: &TopicPartition,
        marker: EndTransactionMarker,
        batch: &BatchHeader,
        timestamp: i64,
        transaction_version: i16,
    ) -> Result<Option<CompletedTxn>, AppendError> {
        let offset = batch.base_offset;
        self.check_epoch(partition, batch.producer_epoch, offset, transaction_version.max(0))?;
        self.check_coordinator_epoch(partition, marker, offset)?;
        let completed = self.updated.current_txn_first_offset.map(|first_offset| CompletedTxn {
            producer_id: self.updated.producer_id,
            first_offset,
            last_offset: offset,
            is_aborted: !marker.committed,
        });
        self.updated.end_txn(batch.producer_epoch, marker.coordinator_epoch, timestamp);
        Ok(completed)
    }

    fn check_epoch(
        &self,
        partition: &TopicPartition,
        epoch: i16,
        offset: i64,
        transaction_version: i16,
    ) -> Result<(), AppendError> {
        let current = self.updated.producer_epoch;
        let bumps = transaction_version >= TV_2;
        let is_invalid = if bumps { epoch <= current } else { epoch < current };
        if !is_invalid {
            return Ok(());
        }
        // A marker sent again after its transaction ended.
        let is_retry =
            epoch == current && (self.updated.current_txn_first_offset.is_none() || epoch == i16::MAX);
        if bumps && is_retry {
            return Ok(());
        }
        let comparison = if bumps { "<=" } else { "<" };
        let message = format!(
            "Epoch of producer {} at offset {offset} in {partition} is {epoch}, which is {comparison} the last seen \
             epoch {current} (TV{transaction_version})",
            self.updated.producer_id
        );
        if self.origin == AppendOrigin::Replication {
            tracing::warn!("{message}");
            return Ok(());
        }
        Err(AppendError::InvalidProducerEpoch(message))
    }

    fn check_sequence(&self, partition: &TopicPartition, batch: &BatchHeader) -> Result<(), AppendError> {
        let (epoch, first) = (batch.producer_epoch, batch.base_sequence);
        let (producer_id, offset) = (self.updated.producer_id, batch.base_offset);
        if epoch != self.updated.producer_epoch {
            if first != 0 && self.updated.producer_epoch != -1 {
                return Err(AppendError::OutOfOrderSequence(format!(
                    "Invalid sequence number for new epoch of producer {producer_id} at offset {offset} in partition \
                     {partition}: {epoch} (request epoch), {first} (seq. number), {} (current producer epoch)",
                    self.updated.producer_epoch
                )));
            }
            return Ok(());
        }
        let last = if !self.updated.is_empty() {
            self.updated.last_sequence()
        } else if epoch == self.current_epoch {
            self.current_last_sequence
        } else {
            -1
        };
        let follows = i64::from(first) == i64::from(last) + 1 || (first == 0 && last == i32::MAX);
        if self.current_epoch != -1 && !follows {
            return Err(AppendError::OutOfOrderSequence(format!(
                "Out of order sequence number for producer {producer_id} at offset {offset} in partition {partition}: \
                 {first} (incoming seq. number), {last} (current end sequence number)"
            )));
        }
        Ok(())
    }

    fn check_coordinator_epoch(
        &self,
        partition: &TopicPartition,
        marker: EndTransactionMarker,
        offset: i64,
    ) -> Result<(), AppendError> {
        let known = self.updated.coordinator_epoch;
        if known <= marker.coordinator_epoch || self.origin == AppendOrigin::Replication {
            return Ok(());
        }
        Err(AppendError::TransactionCoordinatorFenced(format!(
            "Invalid coordinator epoch for producerId {} at offset {offset} in partition {partition}: {} (zombie), \
             {known} (current)",
            self.updated.producer_id, marker.coordinator_epoch
        )))
    }
}
