//! Loading: the log of the partition, batch by batch, becomes the state of the shard.
//!
//! Invariant: snapshots are taken often enough that at the end of a load there is one at or just below the high
//! watermark, so that a new leader does not show what its followers may still lose.

use std::fmt;

use bytes::Bytes;
use record::{Batches, Codecs, ControlRecordType, Time};

use crate::context::{Active, CoordinatorContext, Loading, State};
use crate::shard::{CoordinatorShard, DecodeRecordError, Producer, RawRecord, TransactionResult};

/// Below the high watermark a snapshot is taken every so many offsets while loading; it frees what older ones hold.
const COMMIT_INTERVAL_OFFSETS: i64 = 16_384;
/// What one batch of the internal topic may decompress to: no coordinator writes batches near this size.
const MAX_DECOMPRESSED_BATCH: usize = 512 << 20;

/// Why a partition could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// There is no load going on: it was overtaken by an unload.
    NotLoading,
    /// The log holds something that is not a batch, or a record that cannot be read.
    Corrupt(String),
    /// A record contradicts those before it.
    Replay(String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoading => f.write_str("the partition is not being loaded"),
            Self::Corrupt(why) => write!(f, "cannot read the log: {why}"),
            Self::Replay(why) => write!(f, "the log contradicts itself: {why}"),
        }
    }
}

impl std::error::Error for LoadError {}

impl<S: CoordinatorShard> CoordinatorContext<S> {
    /// This node has become the leader of the partition in `epoch`: loads it into `shard`, which is empty. Returns
    /// whether the user must now feed the log; an older epoch is ignored, and a shard that serves goes on serving. The
    /// same epoch again loads anew what has failed.
    pub fn begin_load(&mut self, epoch: i32, shard: S) -> bool {
        let again = self.epoch == epoch && matches!(self.state, State::Failed);
        if self.epoch >= epoch && !again {
            return false;
        }
        self.reload = false;
        self.epoch = epoch;
        if matches!(self.state, State::Loading(_) | State::Active(_)) {
            return false;
        }
        let mut loading = Loading { shard, last_written: 0, last_committed: -1 };
        loading.shard.create_snapshot(0);
        self.state = State::Loading(loading);
        self.metrics.loads += 1;
        true
    }

    /// The next part of the log: whole batches, in order, while the partition's high watermark is `high_watermark`.
    pub fn handle_loaded_batches(
        &mut self,
        now: Time,
        bytes: &Bytes,
        codecs: &dyn Codecs,
        high_watermark: i64,
    ) -> Result<(), LoadError> {
        let State::Loading(loading) = &mut self.state else { return Err(LoadError::NotLoading) };
        let corrupt = |error: record::RecordError| LoadError::Corrupt(error.to_string());
        for batch in Batches::new(bytes) {
            let batch = batch.map_err(corrupt)?;
            let producer = batch
                .has_producer_id()
                .then_some(Producer { id: batch.producer_id, epoch: batch.producer_epoch });
            let records = batch.owned_records(bytes, codecs, MAX_DECOMPRESSED_BATCH).map_err(corrupt)?;
            self.metrics.loaded_records += records.len() as u64;
            for record in records {
                let key = record.key.unwrap_or_default();
                if batch.is_control_batch() {
                    loading.replay_control(&key, producer)?;
                } else {
                    let raw = RawRecord { key, value: record.value };
                    loading.replay(now, record.offset, producer, raw)?;
                }
            }
            loading.batch_done(batch.next_offset(), high_watermark);
        }
        self.metrics.loaded_bytes += bytes.len() as u64;
        Ok(())
    }

    /// The whole log has been fed: the shard serves. `log_end_offset` is where the next record goes.
    pub fn finish_load(
        &mut self,
        now: Time,
        log_end_offset: i64,
        high_watermark: i64,
    ) -> Result<(), LoadError> {
        let State::Loading(mut loading) = std::mem::replace(&mut self.state, State::Failed) else {
            return Err(LoadError::NotLoading);
        };
        loading.shard.create_snapshot(log_end_offset);
        let committed = high_watermark.min(log_end_offset);
        loading.shard.commit_up_to(committed);
        let mut active = Active::new(loading.shard, log_end_offset, committed, high_watermark);
        active.shard.handle_loaded(now, &mut active.timers);
        self.state = State::Active(Box::new(active));
        Ok(())
    }

    /// The log could not be read or replayed: requests get NOT_COORDINATOR until the partition is led anew.
    pub fn fail_load(&mut self, now: Time) {
        if matches!(self.state, State::Loading(_)) {
            self.fail(now);
            self.metrics.failed_loads += 1;
        }
    }
}

impl<S: CoordinatorShard> Loading<S> {
    fn replay(
        &mut self,
        now: Time,
        offset: i64,
        producer: Option<Producer>,
        raw: RawRecord,
    ) -> Result<(), LoadError> {
        let record = match S::decode(raw) {
            Ok(record) => record,
            Err(DecodeRecordError::UnknownRecordType(_)) => return Ok(()),
            Err(error) => return Err(LoadError::Corrupt(format!("at offset {offset}: {error}"))),
        };
        let replayed = self.shard.replay(now, offset, producer, record);
        replayed.map_err(|error| LoadError::Replay(format!("at offset {offset}: {error}")))
    }

    fn replay_control(&mut self, key: &[u8], producer: Option<Producer>) -> Result<(), LoadError> {
        let kind = ControlRecordType::parse(key).map_err(|error| LoadError::Corrupt(error.to_string()))?;
        let result = match kind {
            ControlRecordType::Commit => TransactionResult::Commit,
            ControlRecordType::Abort => TransactionResult::Abort,
            _ => return Ok(()),
        };
        let Some(producer) = producer else { return Ok(()) };
        let replayed = self.shard.replay_end_transaction_marker(producer, result);
        replayed.map_err(|error| LoadError::Replay(error.to_string()))
    }

    fn batch_done(&mut self, next_offset: i64, high_watermark: i64) {
        let committed = if next_offset >= high_watermark { high_watermark } else { next_offset };
        if next_offset < high_watermark
            && next_offset.saturating_sub(self.last_committed) < COMMIT_INTERVAL_OFFSETS
        {
            return;
        }
        self.shard.create_snapshot(next_offset);
        self.last_written = next_offset;
        if committed > self.last_committed {
            self.shard.commit_up_to(committed);
            self.last_committed = committed;
        }
    }
}
