//! Appending.
//!
//! Owns: the path of records into the active segment: checks, offsets, producer state, roll, one write.
//! Invariants: nothing is published unless all of it is in the file; a refused append leaves no trace.
//! Concurrency: the writer lock, held for validation and one write to the page cache.
//! Crash: see the parent module.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use record::{
    AnalyzeParams, AppendOrigin, BatchHeader, Batches, Codecs, EndTransactionMarker, LogAppendInfo,
    RecordBatch, Time, TimestampType, ValidatedBatch, ValidationParams, ValidationStats,
    analyze_and_validate_records, validate_and_assign_offsets,
};

use super::{UnifiedLog, Writer};
use crate::config::LogConfig;
use crate::context::Task;
use crate::error::{AppendError, StorageError, invalid_data};
use crate::names;
use crate::offsets::LogOffsetMetadata;
use crate::producer::{BatchMetadata, CompletedTxn, ProducerAppendInfo, ProducerStateManager};
use crate::segment::{LogSegment, RollParams};

/// Who appends, and what with.
#[derive(Clone, Copy, Debug)]
pub struct AppendOptions {
    pub leader_epoch: i32,
    pub origin: AppendOrigin,
    /// Of a coordinator's transaction marker (KIP-890); -1: unknown.
    pub transaction_version: i16,
}

impl AppendOptions {
    pub fn new(leader_epoch: i32, origin: AppendOrigin) -> Self {
        AppendOptions { leader_epoch, origin, transaction_version: -1 }
    }
}

/// What became of an append.
#[derive(Clone, Debug)]
pub struct AppendInfo {
    /// -1 when nothing was appended.
    pub first_offset: i64,
    pub last_offset: i64,
    pub last_leader_epoch: Option<i32>,
    pub max_timestamp: i64,
    /// -1 unless `message.timestamp.type` is LogAppendTime, or the append was a duplicate.
    pub log_append_time: i64,
    pub log_start_offset: i64,
    pub valid_bytes: usize,
    pub stats: ValidationStats,
    /// The producer sent these records before: the offsets are those they got then.
    pub is_duplicate: bool,
    /// What has to be durable before the append may be acknowledged (`flush.messages`).
    pub sync_to: Option<i64>,
}

/// Records that passed, as they will be written.
enum Prepared {
    /// A leader's batch: new header, records as they came.
    Batch(Box<ValidatedBatch>),
    /// Bytes with their offsets.
    Bytes(Bytes),
}

impl Prepared {
    fn len(&self) -> usize {
        match self {
            Prepared::Batch(batch) => batch.size_in_bytes(),
            Prepared::Bytes(bytes) => bytes.len(),
        }
    }

    fn headers(&self) -> impl Iterator<Item = BatchHeader> + '_ {
        let (one, many) = match self {
            Prepared::Batch(batch) => (Some(*batch.header()), None),
            Prepared::Bytes(bytes) => (None, Some(Batches::new(bytes))),
        };
        one.into_iter().chain(many.into_iter().flatten().map_while(|batch| batch.ok().map(|b| *b.header())))
    }
}

struct ProducerChanges {
    updated: Vec<ProducerAppendInfo>,
    completed: Vec<CompletedTxn>,
    duplicate: Option<BatchMetadata>,
}

impl UnifiedLog {
    /// Validates one batch, gives it offsets and appends it. Records of a raft leader carry theirs already.
    pub fn append_as_leader(
        &self,
        now: Time,
        records: Bytes,
        leader_epoch: i32,
        origin: AppendOrigin,
    ) -> Result<AppendInfo, AppendError> {
        self.append_as_leader_with(now, records, AppendOptions::new(leader_epoch, origin))
    }

    pub fn append_as_leader_with(
        &self,
        now: Time,
        records: Bytes,
        options: AppendOptions,
    ) -> Result<AppendInfo, AppendError> {
        let config = self.config.load_full();
        let limit = Some(config.max_message_bytes as usize);
        let assign = options.origin != AppendOrigin::RaftLeader;
        self.append(now, records, options, &config, limit, assign)
    }

    /// Appends what a leader has; batches of a higher epoch than `leader_epoch` are left out.
    pub fn append_as_follower(
        &self,
        now: Time,
        records: Bytes,
        leader_epoch: i32,
    ) -> Result<AppendInfo, AppendError> {
        let options = AppendOptions::new(leader_epoch, AppendOrigin::Replication);
        let config = self.config.load_full();
        self.append(now, records, options, &config, None, false)
    }

    fn append(
        &self,
        now: Time,
        mut records: Bytes,
        options: AppendOptions,
        config: &LogConfig,
        max_message_size: Option<usize>,
        assign_offsets: bool,
    ) -> Result<AppendInfo, AppendError> {
        self.maybe_flush_metadata()?;
        let params = AnalyzeParams {
            topic_partition: &self.topic_partition,
            origin: options.origin,
            max_message_size,
            require_offsets_monotonic: !assign_offsets,
            leader_epoch: options.leader_epoch,
        };
        let analyzed = analyze_and_validate_records(&records, &params)?;
        let mut info = self.append_info(&analyzed);
        if analyzed.valid_bytes == 0 {
            return Ok(info);
        }
        records.truncate(analyzed.valid_bytes);
        let mut writer = self.lock_writer()?;
        self.check_tail(&mut writer, now)?;
        let prepared = if assign_offsets {
            let batch = self.validate(now, records, options, config, &analyzed, max_message_size)?;
            info.first_offset = batch.first_offset;
            info.last_offset = batch.last_offset;
            info.max_timestamp = batch.max_timestamp;
            info.stats = batch.stats;
            if config.message_timestamp_type == TimestampType::LogAppendTime {
                info.log_append_time = batch.log_append_time_ms;
            }
            Prepared::Batch(Box::new(batch))
        } else {
            self.check_continues(&records, &analyzed)?;
            Prepared::Bytes(records)
        };
        self.append_prepared(now, &mut writer, &prepared, options, config, &mut info)?;
        Ok(info)
    }

    fn append_info(&self, analyzed: &LogAppendInfo) -> AppendInfo {
        AppendInfo {
            first_offset: analyzed.first_offset,
            last_offset: analyzed.last_offset,
            last_leader_epoch: analyzed.last_leader_epoch,
            max_timestamp: analyzed.max_timestamp,
            log_append_time: -1,
            log_start_offset: self.log_start_offset(),
            valid_bytes: analyzed.valid_bytes,
            stats: ValidationStats::default(),
            is_duplicate: false,
            sync_to: None,
        }
    }

    fn validate(
        &self,
        now: Time,
        records: Bytes,
        options: AppendOptions,
        config: &LogConfig,
        analyzed: &LogAppendInfo,
        max_message_size: Option<usize>,
    ) -> Result<ValidatedBatch, AppendError> {
        let params = ValidationParams {
            target_compression: ValidationParams::target_of(config.compression, analyzed.source_compression),
            compacted_topic: config.compact,
            timestamp_type: config.message_timestamp_type,
            timestamp_before_max_ms: config.message_timestamp_before_max_ms,
            timestamp_after_max_ms: config.message_timestamp_after_max_ms,
            partition_leader_epoch: options.leader_epoch,
            origin: options.origin,
            max_record_body_size: config.max_decompressed_message_bytes,
            max_message_size,
            ..ValidationParams::new(&self.topic_partition, now.wall_ms, self.log_end_offset())
        };
        let codecs = &*self.context.codecs;
        let validated = self
            .context
            .with_buffers(|buffers| validate_and_assign_offsets(records, &params, codecs, buffers))?;
        Ok(validated)
    }

    fn check_continues(&self, records: &Bytes, analyzed: &LogAppendInfo) -> Result<(), AppendError> {
        let end = self.log_end_offset();
        let has_first = analyzed.first_offset != -1;
        let first = if has_first { analyzed.first_offset } else { analyzed.last_offset_of_first_batch };
        if first >= end {
            return Ok(());
        }
        let base_offset = match Batches::new(records).next() {
            Some(Ok(batch)) => batch.base_offset,
            _ => first,
        };
        let what = if has_first { "First offset" } else { "Last offset of the first batch" };
        Err(AppendError::UnexpectedOffset {
            message: format!(
                "Unexpected offset in append to {}. {what} {first} is less than the next offset {end}. Last offset in \
                 append: {}. Log start offset = {}",
                self.topic_partition,
                analyzed.last_offset,
                self.log_start_offset()
            ),
            first_offset: if has_first { analyzed.first_offset } else { base_offset },
            last_offset: analyzed.last_offset,
        })
    }

    fn append_prepared(
        &self,
        now: Time,
        writer: &mut Writer,
        prepared: &Prepared,
        options: AppendOptions,
        config: &LogConfig,
        info: &mut AppendInfo,
    ) -> Result<(), AppendError> {
        let size = u32::try_from(prepared.len()).ok().filter(|size| *size <= config.segment_size_bytes);
        let Some(size) = size else {
            return Err(AppendError::RecordBatchTooLarge(format!(
                "Message batch size is {} bytes in append to partition {}, which exceeds the maximum configured segment \
                 size of {}.",
                prepared.len(),
                self.topic_partition,
                config.segment_size_bytes
            )));
        };
        let next_offset = info.last_offset.checked_add(1).filter(|next| *next > self.log_end_offset());
        let Some(next_offset) = next_offset else {
            let error = invalid_data("there are no offsets left behind the end of the log");
            return Err(self.fail("Error while appending records to", error).into());
        };
        let segment = self.maybe_roll(now, writer, config, info, size)?;
        let changes = self.analyze_producers(writer, prepared, options, &segment)?;
        if let Some(duplicate) = changes.duplicate {
            info.first_offset = duplicate.first_offset();
            info.last_offset = duplicate.last_offset;
            info.log_append_time = duplicate.timestamp;
            info.is_duplicate = true;
            info.sync_to = self.sync_of_duplicate(duplicate.last_offset);
            return Ok(());
        }
        self.write(&segment, prepared, config)?;
        self.assign_epochs(prepared);
        self.set_log_end(next_offset);
        self.update_high_watermark_with_log_end(writer);
        self.apply_producers(writer, &segment, changes, info.last_offset)?;
        info.sync_to = self.demand_sync(config.flush_messages);
        Ok(())
    }

    fn write(
        &self,
        segment: &LogSegment,
        prepared: &Prepared,
        config: &LogConfig,
    ) -> Result<(), StorageError> {
        // The metadata log may use what is kept free: by it topics are deleted.
        if &*self.topic_partition.topic != names::CLUSTER_METADATA_TOPIC {
            let len = u32::try_from(prepared.len()).unwrap_or(u32::MAX);
            let admitted = self.log_dir.admit(self.fs(), len);
            admitted.map_err(|e| self.fail("Error while appending records to", e))?;
        }
        let interval = config.index_interval_bytes;
        let written = match prepared {
            Prepared::Batch(batch) => {
                let (header, records) = (batch.header_bytes(), batch.records_section());
                let bufs = [IoSlice::new(&header), IoSlice::new(&records)];
                segment.append(self.fs(), &bufs, prepared.headers(), interval)
            }
            Prepared::Bytes(bytes) => {
                segment.append(self.fs(), &[IoSlice::new(bytes)], prepared.headers(), interval)
            }
        };
        written.map_err(|e| self.fail("Error while appending records to", e))
    }

    fn assign_epochs(&self, prepared: &Prepared) {
        let mut epochs = self.epochs.lock();
        for header in prepared.headers() {
            if header.magic < record::MAGIC_VALUE_V2 {
                epochs.clear();
            } else if header.partition_leader_epoch >= 0 {
                epochs.assign(header.partition_leader_epoch, header.base_offset);
            }
        }
    }

    fn analyze_producers(
        &self,
        writer: &Writer,
        prepared: &Prepared,
        options: AppendOptions,
        segment: &LogSegment,
    ) -> Result<ProducerChanges, AppendError> {
        let mut changes = ProducerChanges { updated: Vec::new(), completed: Vec::new(), duplicate: None };
        let mut position = segment.size();
        for header in prepared.headers() {
            let at = position;
            position += header.size_in_bytes() as u32;
            if !header.has_producer_id() {
                continue;
            }
            let entry = writer.producers.producers().get(&header.producer_id);
            if options.origin == AppendOrigin::Client
                && let Some(duplicate) = entry.and_then(|entry| entry.find_duplicate(&header))
            {
                changes.duplicate = Some(duplicate);
                return Ok(changes);
            }
            if matches!(options.origin, AppendOrigin::Client | AppendOrigin::Coordinator)
                && header.is_transactional()
                && let Some(entry) = entry
                && !writer.producers.has_ongoing_transaction(header.producer_id, header.producer_epoch)
                && header.producer_epoch < entry.producer_epoch
            {
                return Err(AppendError::InvalidProducerEpoch(format!(
                    "Epoch of producer {} is {}, which is smaller than the last seen epoch {}",
                    header.producer_id, header.producer_epoch, entry.producer_epoch
                )));
            }
            let first = LogOffsetMetadata::new(header.base_offset, segment.base_offset(), at);
            let marker = if header.is_control_batch() {
                self.control_marker(prepared, at - segment.size())?
            } else {
                None
            };
            let change = ProducerChange { partition: &self.topic_partition, first, marker, options };
            change.apply(&writer.producers, &header, &mut changes.updated, &mut changes.completed)?;
        }
        Ok(changes)
    }

    /// The marker in the control batch at `position` of the append.
    fn control_marker(
        &self,
        prepared: &Prepared,
        position: u32,
    ) -> Result<Option<(EndTransactionMarker, i64)>, AppendError> {
        let bytes;
        let batch = match prepared {
            Prepared::Batch(batch) => {
                bytes = Bytes::from([&batch.header_bytes()[..], &batch.records_section()].concat());
                RecordBatch::first(&bytes)
            }
            Prepared::Bytes(all) => RecordBatch::first(all.get(position as usize..).unwrap_or_default()),
        };
        let marker = batch.and_then(|batch| match batch {
            Some(batch) => {
                self.context.with_buffers(|buffers| end_txn_marker(&batch, &*self.context.codecs, buffers))
            }
            None => Ok(None),
        });
        marker.map_err(|e| AppendError::Records(e.into()))
    }

    fn apply_producers(
        &self,
        writer: &mut Writer,
        segment: &LogSegment,
        changes: ProducerChanges,
        last_offset: i64,
    ) -> Result<(), StorageError> {
        for update in changes.updated {
            writer.producers.update(update);
        }
        for completed in &changes.completed {
            complete_txn(&mut writer.producers, segment, self.fs(), completed)
                .map_err(|e| self.fail("Error while appending records to", e))?;
        }
        writer.producers.set_map_end_offset(last_offset + 1);
        self.update_first_unstable_offset(writer);
        Ok(())
    }

    fn maybe_roll(
        &self,
        now: Time,
        writer: &mut Writer,
        config: &LogConfig,
        info: &AppendInfo,
        size: u32,
    ) -> Result<Arc<LogSegment>, StorageError> {
        let active = self.active_segment();
        let params = RollParams {
            max_timestamp: info.max_timestamp,
            last_offset: info.last_offset,
            size,
            now_ms: now.wall_ms,
        };
        let rolls = active.should_roll(self.fs(), config, &params);
        if !rolls.map_err(|e| self.fail("Error while rolling log segment for", e))? {
            return Ok(active);
        }
        let expected = match info.first_offset {
            // A compressed v0 or v1 message does not say its first offset: leave room for any it can have.
            -1 => info.last_offset - i64::from(i32::MAX),
            first => first,
        };
        self.roll(now, writer, expected)
    }

    /// Closes the active segment and begins a new one.
    pub fn roll_segment(&self, now: Time) -> Result<(), StorageError> {
        let mut writer = self.lock_writer()?;
        self.roll(now, &mut writer, 0).map(|_| ())
    }

    pub(super) fn roll(
        &self,
        now: Time,
        writer: &mut Writer,
        expected_next_offset: i64,
    ) -> Result<Arc<LogSegment>, StorageError> {
        let doing = "Error while rolling log segment for";
        let new_offset = expected_next_offset.max(self.log_end_offset());
        let active = self.active_segment();
        if active.base_offset() == new_offset && active.size() == 0 {
            // The reference makes another one of the same name; between its two steps a crash could leave none, and
            // the log would begin at 0 again.
            return Ok(active);
        }
        active.on_become_inactive(self.fs()).map_err(|e| self.fail(doing, e))?;
        let jitter = self.config.load().random_segment_jitter(self.context.env.random.next_u64());
        let size = self.config.load().initial_file_size();
        let segment = LogSegment::create(self.fs(), self.dir.clone(), new_offset, now.wall_ms, jitter, size);
        let segment = Arc::new(segment.map_err(|e| self.fail(doing, e))?);
        self.publish_segments(|segments| segments.push(segment.clone()));
        self.set_log_end(self.log_end_offset());
        writer.producers.set_map_end_offset(new_offset);
        let snapshot = writer.producers.take_snapshot(self.fs(), &self.dir.path(), false);
        if snapshot.map_err(|e| self.fail(doing, e))?.is_some() {
            self.unsynced_snapshots.lock().push(new_offset);
        }
        self.update_high_watermark_with_log_end(writer);
        self.context.defer(Duration::ZERO, Task::FlushRolled { log: self.this.clone(), offset: new_offset });
        tracing::debug!("Rolled new log segment of {} at offset {new_offset}", self.topic_partition);
        Ok(segment)
    }
}

/// One batch's effect on its producer.
pub(super) struct ProducerChange<'a> {
    pub(super) partition: &'a record::TopicPartition,
    pub(super) first: LogOffsetMetadata,
    pub(super) marker: Option<(EndTransactionMarker, i64)>,
    pub(super) options: AppendOptions,
}

impl ProducerChange<'_> {
    pub(super) fn apply(
        self,
        producers: &ProducerStateManager,
        header: &BatchHeader,
        updated: &mut Vec<ProducerAppendInfo>,
        completed: &mut Vec<CompletedTxn>,
    ) -> Result<(), AppendError> {
        let producer_id = header.producer_id;
        let slot = match updated.iter().position(|info| info.updated.producer_id == producer_id) {
            Some(slot) => slot,
            None => {
                let current = producers.producers().get(&producer_id);
                updated.push(ProducerAppendInfo::new(producer_id, current, self.options.origin));
                updated.len() - 1
            }
        };
        let Some(info) = updated.get_mut(slot) else { return Ok(()) };
        if !header.is_control_batch() {
            return info.append_data_batch(self.partition, header, self.first);
        }
        if let Some((marker, timestamp)) = self.marker {
            let version = self.options.transaction_version;
            let done = info.append_end_txn_marker(self.partition, marker, header, timestamp, version)?;
            completed.extend(done);
        }
        Ok(())
    }
}

/// The end-of-transaction marker of a control batch and its timestamp; `None` for an empty batch, as compaction
/// leaves them.
pub(super) fn end_txn_marker(
    batch: &RecordBatch<'_>,
    codecs: &dyn Codecs,
    buffers: &mut record::BufferSupplier,
) -> Result<Option<(EndTransactionMarker, i64)>, record::RecordError> {
    let Some(record) = batch.records(codecs, buffers)?.next() else { return Ok(None) };
    let record = record?;
    let (key, value) = (record.key.unwrap_or_default(), record.value.unwrap_or_default());
    Ok(Some((EndTransactionMarker::deserialize(key, value)?, record.timestamp)))
}

/// Notes an ended transaction, in the index too when it was aborted.
pub(super) fn complete_txn(
    producers: &mut ProducerStateManager,
    segment: &LogSegment,
    fs: &dyn env::FileSystem,
    completed: &CompletedTxn,
) -> std::io::Result<()> {
    if completed.is_aborted {
        let aborted = crate::txn_index::AbortedTxn {
            producer_id: completed.producer_id,
            first_offset: completed.first_offset,
            last_offset: completed.last_offset,
            last_stable_offset: producers.last_stable_offset(completed),
        };
        segment.append_aborted(fs, aborted)?;
    }
    producers.complete_txn(completed);
    Ok(())
}
