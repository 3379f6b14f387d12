//! From committed batches of the metadata log to images (KIP-866, KIP-868): what a broker or a snapshot is made from.
//!
//! Owns the image so far and the delta since the last publication. Invariants: records between a
//! `BeginTransactionRecord` and its `EndTransactionRecord` are published together or, after an
//! `AbortTransactionRecord`, not at all; an image's offset never lies inside a transaction.

use crate::delta::MetadataDelta;
use crate::image::{MetadataImage, MetadataProvenance, ReplayError};
use crate::record::{MetadataRecord, VersionedRecord};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransactionState {
    None,
    Open,
}

/// A new image and what changed to get there.
#[derive(Debug, Clone)]
pub struct MetadataUpdate {
    /// What changed; its base is the image published before.
    pub delta: MetadataDelta,
    /// The new image.
    pub image: MetadataImage,
}

/// Builds images from committed batches and snapshots.
#[derive(Debug, Clone)]
pub struct MetadataLoader {
    image: MetadataImage,
    delta: MetadataDelta,
    transaction: TransactionState,
    last: MetadataProvenance,
}

impl Default for MetadataLoader {
    fn default() -> Self {
        Self::new(MetadataImage::default())
    }
}

impl MetadataLoader {
    /// Starts at an image.
    pub fn new(image: MetadataImage) -> Self {
        Self {
            last: image.provenance,
            delta: MetadataDelta::new(image.clone()),
            transaction: TransactionState::None,
            image,
        }
    }

    /// The image published last.
    pub fn image(&self) -> &MetadataImage {
        &self.image
    }

    /// Whether a transaction is open, so that nothing can be published before it ends.
    pub fn in_transaction(&self) -> bool {
        self.transaction == TransactionState::Open
    }

    /// Applies a committed batch. A transaction that begins inside it publishes what came before.
    pub fn load_batch(
        &mut self,
        base_offset: i64,
        epoch: i32,
        append_time_ms: i64,
        records: &[VersionedRecord],
    ) -> Result<Vec<MetadataUpdate>, ReplayError> {
        let mut updates = Vec::new();
        for (offset, record) in (base_offset..).zip(records) {
            if matches!(record.record, MetadataRecord::BeginTransactionRecord(_))
                && self.transaction == TransactionState::None
                && self.last.last_contained_offset > self.image.offset()
            {
                let aligned = offset == base_offset;
                updates
                    .push(self.publish(MetadataProvenance { is_offset_batch_aligned: aligned, ..self.last }));
            }
            self.replay(&record.record)?;
            self.last = MetadataProvenance {
                last_contained_offset: offset,
                last_contained_epoch: epoch,
                last_contained_log_time_ms: append_time_ms,
                is_offset_batch_aligned: false,
            };
        }
        Ok(updates)
    }

    /// Publishes everything loaded unless a transaction is open or nothing was loaded.
    pub fn flush(&mut self) -> Option<MetadataUpdate> {
        if self.in_transaction() || self.last.last_contained_offset <= self.image.offset() {
            return None;
        }
        Some(self.publish(MetadataProvenance { is_offset_batch_aligned: true, ..self.last }))
    }

    /// Replaces everything by a snapshot's records.
    pub fn load_snapshot<'a>(
        &mut self,
        provenance: MetadataProvenance,
        records: impl IntoIterator<Item = &'a VersionedRecord>,
    ) -> Result<MetadataUpdate, ReplayError> {
        let mut delta = MetadataDelta::for_snapshot(self.image.clone());
        for record in records {
            delta.replay(&record.record)?;
        }
        delta.finish_snapshot();
        self.delta = delta;
        self.transaction = TransactionState::None;
        self.last = provenance;
        Ok(self.publish(provenance))
    }

    fn publish(&mut self, provenance: MetadataProvenance) -> MetadataUpdate {
        let image = self.delta.apply(provenance);
        self.image = image.clone();
        let delta = std::mem::replace(&mut self.delta, MetadataDelta::new(image.clone()));
        MetadataUpdate { delta, image }
    }

    fn replay(&mut self, record: &MetadataRecord) -> Result<(), ReplayError> {
        let misplaced = |what: &str| Err(ReplayError::Inconsistent(format!("{} {what}", record.name())));
        match (record, self.transaction) {
            (MetadataRecord::BeginTransactionRecord(_), TransactionState::Open) => {
                misplaced("while already in a transaction")
            }
            (MetadataRecord::BeginTransactionRecord(_), TransactionState::None) => {
                self.transaction = TransactionState::Open;
                Ok(())
            }
            (
                MetadataRecord::EndTransactionRecord(_) | MetadataRecord::AbortTransactionRecord(_),
                TransactionState::None,
            ) => misplaced("without a BeginTransactionRecord before it"),
            (MetadataRecord::EndTransactionRecord(_), TransactionState::Open) => {
                self.transaction = TransactionState::None;
                Ok(())
            }
            (MetadataRecord::AbortTransactionRecord(_), TransactionState::Open) => {
                // What came before the transaction was published when it began, so the image is its start.
                self.delta = MetadataDelta::new(self.image.clone());
                self.transaction = TransactionState::None;
                Ok(())
            }
            _ => self.delta.replay(record),
        }
    }
}
