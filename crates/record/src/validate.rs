//! A leader's validation of the one batch of an append, and the assignment of its offsets: the reference's
//! `LogValidator`, for message format v2.
//!
//! An uncompressed batch is walked once, in place. A compressed one is walked through a window when its codec stays
//! (keys and values skipped), and is compressed again only when the topic asks for another codec. Base offset, leader
//! epoch and timestamps are then set in the header alone; the records' bytes are never copied for it.

use bytes::{Bytes, BytesMut};
use std::fmt;

use crate::append::TimestampType;
use crate::batch::{BatchHeader, Batches, RecordBatch};
use crate::builder::{BatchOptions, BuildError, RecordBatchBuilder};
use crate::codec::{BufferSupplier, Codecs, Compression, CompressionType};
use crate::error::{AppendError, BatchIndexError, RecordError};
use crate::record::{Record, RecordIter};
use crate::stream::PartialRecord;
use crate::topic_partition::TopicPartition;
use crate::{MAGIC_VALUE_V2, MAX_RECORD_BODY_SIZE, NO_TIMESTAMP, RECORD_BATCH_OVERHEAD};

/// Default of [`ValidationParams::max_decompressed_size`]: 256 times the default of `max.message.bytes`, more than any
/// codec gives on real records.
pub const DEFAULT_MAX_DECOMPRESSED_SIZE: usize = 256 << 20;

/// Who appends.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum AppendOrigin {
    /// A follower, from its leader: validated there.
    Replication,
    /// A group, transaction or share coordinator.
    Coordinator,
    /// A producer.
    Client,
    RaftLeader,
}

/// The topic's and the node's say in a validation.
#[derive(Clone, Copy, Debug)]
pub struct ValidationParams<'a> {
    pub topic_partition: &'a TopicPartition,
    /// `compression.type` with its level; for `producer`: the codec of the batch ([`ValidationParams::target_of`]).
    pub target_compression: Compression,
    /// `cleanup.policy` contains `compact`.
    pub compacted_topic: bool,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    pub partition_leader_epoch: i32,
    pub origin: AppendOrigin,
    /// `max.decompressed.message.bytes`: bound of one record inside a compressed batch.
    pub max_record_body_size: usize,
    /// `max.message.bytes`, judged again when the batch was compressed anew; `None`: not judged.
    pub max_message_size: Option<usize>,
    /// Bound of what is decompressed at once where the topic's codec is not the batch's: a batch that swells beyond it
    /// is MESSAGE_TOO_LARGE. The reference has no such bound and ends with an OutOfMemoryError instead.
    pub max_decompressed_size: usize,
    /// Wall clock, milliseconds since the Unix epoch.
    pub now_ms: i64,
    /// Offset of the first record: the log's end.
    pub first_offset: i64,
}

impl<'a> ValidationParams<'a> {
    /// A client's append with the topic configuration's defaults.
    pub fn new(topic_partition: &'a TopicPartition, now_ms: i64, first_offset: i64) -> ValidationParams<'a> {
        ValidationParams {
            topic_partition,
            target_compression: Compression::None,
            compacted_topic: false,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            partition_leader_epoch: 0,
            origin: AppendOrigin::Client,
            max_record_body_size: MAX_RECORD_BODY_SIZE,
            max_message_size: None,
            max_decompressed_size: DEFAULT_MAX_DECOMPRESSED_SIZE,
            now_ms,
            first_offset,
        }
    }

    /// The codec a batch is stored with: the topic's, or with `compression.type=producer` (`None`) the batch's own.
    pub fn target_of(topic: Option<Compression>, source: CompressionType) -> Compression {
        topic.unwrap_or(Compression::of(source))
    }
}

/// Sizes for the request's metrics.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationStats {
    /// Uncompressed bytes that were handled; 0 for a batch that never was compressed.
    pub temporary_memory_bytes: usize,
    pub records_converted: i32,
}

/// A batch that may be appended: the bytes as they came (or were compressed anew) and the header they get.
#[derive(Clone, Debug)]
pub struct ValidatedBatch {
    header: BatchHeader,
    bytes: Bytes,
    pub first_offset: i64,
    pub last_offset: i64,
    /// Largest timestamp of the records (the append time with LogAppendTime), or -1.
    pub max_timestamp: i64,
    /// Wall clock of the append; answered to the producer with LogAppendTime.
    pub log_append_time_ms: i64,
    /// Compressed anew: the size is another one than the client's.
    pub is_rebuilt: bool,
    pub stats: ValidationStats,
}

impl ValidatedBatch {
    /// The header as it is to be stored.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    pub fn header_bytes(&self) -> [u8; RECORD_BATCH_OVERHEAD] {
        self.header.encode()
    }

    /// What follows [`header_bytes`](Self::header_bytes): writing the two in turn copies nothing.
    pub fn records_section(&self) -> Bytes {
        self.bytes.slice(RECORD_BATCH_OVERHEAD.min(self.bytes.len())..)
    }

    pub fn size_in_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The stored bytes in one piece: set in place when nobody else holds them, else copied once.
    pub fn into_bytes(self) -> Bytes {
        let header = self.header.encode();
        let mut bytes = match self.bytes.try_into_mut() {
            Ok(bytes) => bytes,
            Err(shared) => BytesMut::from(shared.as_ref()),
        };
        if let Some(space) = bytes.get_mut(..RECORD_BATCH_OVERHEAD) {
            space.copy_from_slice(&header);
        }
        bytes.freeze()
    }
}

/// Validates the only batch in `records` (whose CRC and size [`crate::analyze_and_validate_records`] has checked) and
/// assigns offsets from `params.first_offset` on.
pub fn validate_and_assign_offsets(
    records: Bytes,
    params: &ValidationParams<'_>,
    codecs: &dyn Codecs,
    buffers: &mut BufferSupplier,
) -> Result<ValidatedBatch, AppendError> {
    let batch = only_batch(&records)?;
    let source = batch.known_compression_type()?;
    check_batch(&batch, params)?;
    let target = params.target_compression.kind();
    if source == CompressionType::None && target == CompressionType::None {
        let walked = walk_uncompressed(&batch, params)?;
        let stats = ValidationStats::default();
        return Ok(assign(&records, &batch, walked.count, walked.max_timestamp, params, stats));
    }
    let may_stay = source == target || (source == CompressionType::None && batch.is_control_batch());
    let walked = match source {
        CompressionType::None => walk_uncompressed(&batch, params)?,
        _ if may_stay => walk_skipping_contents(&batch, params, codecs, buffers)?,
        _ => walk_compressed(&batch, params, codecs, buffers)?,
    };
    if may_stay && walked.is_contiguous {
        let stats = ValidationStats {
            temporary_memory_bytes: RECORD_BATCH_OVERHEAD + walked.size,
            records_converted: 0,
        };
        return Ok(assign(&records, &batch, walked.count, walked.max_timestamp, params, stats));
    }
    if may_stay && source != CompressionType::None {
        // The reference has skipped the contents by now, cannot build the batch anew and fails likewise.
        return Err(AppendError::Unreadable(format!(
            "Offsets inside a compressed batch for {} are not contiguous",
            params.topic_partition
        )));
    }
    rebuild(&batch, &walked, params, codecs, buffers)
}

fn only_batch(records: &[u8]) -> Result<RecordBatch<'_>, AppendError> {
    let mut batches = Batches::new(records);
    let Some(batch) = batches.next().transpose()? else {
        return Err(AppendError::InvalidBatch("An append without any batch".into()));
    };
    if batch.magic != MAGIC_VALUE_V2 {
        return Err(AppendError::InvalidBatch(format!(
            "A batch of message format v{} cannot be appended, only v2",
            batch.magic
        )));
    }
    if batches.next().transpose()?.is_some() {
        return Err(AppendError::InvalidBatch("An append with more than one batch".into()));
    }
    Ok(batch)
}

fn check_batch(batch: &BatchHeader, params: &ValidationParams<'_>) -> Result<(), AppendError> {
    if params.origin != AppendOrigin::Client {
        return Ok(());
    }
    let partition = params.topic_partition;
    let refuse = |message: String| Err(AppendError::InvalidBatch(message));
    let range = batch.last_offset().wrapping_sub(batch.base_offset).wrapping_add(1);
    let (count, base, last) = (batch.count, batch.base_offset, batch.last_offset());
    if range <= 0 {
        return refuse(format!("Batch for {partition} ends before it begins: [{base}, {last}]"));
    }
    if count <= 0 {
        return refuse(format!("Batch for {partition} has a record count of {count}"));
    }
    if range != i64::from(count) {
        return refuse(format!("Batch for {partition} has offsets [{base}, {last}] but {count} records"));
    }
    if batch.is_control_batch() {
        return refuse(format!("Clients must not write control records, tried in {partition}"));
    }
    if batch.has_producer_id() && batch.base_sequence < 0 {
        let (id, sequence) = (batch.producer_id, batch.base_sequence);
        return refuse(format!("Batch for {partition} of producer {id} has sequence number {sequence}"));
    }
    Ok(())
}

/// What one walk over the records found.
struct Walked {
    count: i64,
    /// Uncompressed bytes of the records.
    size: usize,
    max_timestamp: i64,
    /// Offsets are 0, 1, 2, …: a producer's batch starts at 0.
    is_contiguous: bool,
}

/// The fields of a record that are judged, however much of it was read.
struct Seen {
    offset: i64,
    timestamp: i64,
    key_size: i32,
    value_size: i32,
    is_partial: bool,
    size: usize,
}

impl Seen {
    #[inline]
    fn of(record: &Record<'_>) -> Seen {
        // Inside a record whose size is 31 bits, so the casts are exact.
        let size = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| bytes.len() as i32);
        Seen {
            offset: record.offset,
            timestamp: record.timestamp,
            key_size: size(record.key),
            value_size: size(record.value),
            is_partial: false,
            size: record.size_in_bytes,
        }
    }

    fn of_partial(record: &PartialRecord) -> Seen {
        Seen {
            offset: record.offset,
            timestamp: record.timestamp,
            key_size: record.key_size,
            value_size: record.value_size,
            is_partial: true,
            size: record.size_in_bytes,
        }
    }
}

/// As Java prints the record: this ends up in a client's error message.
impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, least) =
            if self.is_partial { ("PartialDefaultRecord", i32::MIN) } else { ("DefaultRecord", 0) };
        write!(
            f,
            "{name}(offset={}, timestamp={}, key={} bytes, value={} bytes)",
            self.offset,
            self.timestamp,
            self.key_size.max(least),
            self.value_size.max(least)
        )
    }
}

/// Judges records one by one and gathers what is wrong with them.
struct RecordChecks<'a> {
    params: &'a ValidationParams<'a>,
    batch_has_log_append_time: bool,
    walked: Walked,
    record_errors: Vec<BatchIndexError>,
    has_timestamp_error: bool,
}

impl<'a> RecordChecks<'a> {
    fn new(batch: &BatchHeader, params: &'a ValidationParams<'a>) -> RecordChecks<'a> {
        RecordChecks {
            params,
            batch_has_log_append_time: batch.timestamp_type() == TimestampType::LogAppendTime,
            walked: Walked { count: 0, size: 0, max_timestamp: NO_TIMESTAMP, is_contiguous: true },
            record_errors: Vec::new(),
            has_timestamp_error: false,
        }
    }

    #[inline]
    fn record(&mut self, record: &Seen) {
        let index = self.walked.count;
        self.walked.count += 1;
        if self.params.compacted_topic && record.key_size < 0 {
            return self.refuse_key(index);
        }
        if self.params.timestamp_type == TimestampType::CreateTime && record.timestamp != NO_TIMESTAMP {
            let age = self.params.now_ms.wrapping_sub(record.timestamp);
            if age > self.params.timestamp_before_max_ms
                || age.wrapping_neg() > self.params.timestamp_after_max_ms
            {
                return self.refuse_timestamp(index, record);
            }
        } else if self.batch_has_log_append_time {
            return self.refuse_timestamp_type(index, record);
        }
        self.walked.max_timestamp = self.walked.max_timestamp.max(record.timestamp);
        self.walked.is_contiguous &= record.offset == index;
        self.walked.size = self.walked.size.saturating_add(record.size);
    }

    #[cold]
    fn refuse(&mut self, index: i64, message: String) {
        self.record_errors.push(BatchIndexError { batch_index: index as i32, message });
    }

    #[cold]
    fn refuse_key(&mut self, index: i64) {
        let partition = self.params.topic_partition;
        let message =
            format!("Compacted topic cannot accept message without key in topic partition {partition}");
        self.refuse(index, message);
    }

    #[cold]
    fn refuse_timestamp(&mut self, index: i64, record: &Seen) {
        let params = self.params;
        let message = format!(
            "Timestamp {} of message with offset {} is out of range. The timestamp should be within [{}, {}]",
            record.timestamp,
            record.offset,
            params.now_ms.wrapping_sub(params.timestamp_before_max_ms),
            params.now_ms.wrapping_add(params.timestamp_after_max_ms)
        );
        self.has_timestamp_error = true;
        self.refuse(index, message);
    }

    #[cold]
    fn refuse_timestamp_type(&mut self, index: i64, record: &Seen) {
        let message = format!(
            "Invalid timestamp type in message {record}. Producer should not set timestamp type to LogAppendTime."
        );
        self.has_timestamp_error = true;
        self.refuse(index, message);
    }

    fn finish(self) -> Result<Walked, AppendError> {
        let record_errors = self.record_errors;
        if record_errors.is_empty() {
            return Ok(self.walked);
        }
        if self.has_timestamp_error {
            let message = "One or more records have been rejected due to invalid timestamp".into();
            return Err(AppendError::InvalidTimestamps { message, record_errors });
        }
        let first: Vec<String> = record_errors
            .iter()
            .take(3)
            .map(|e| format!("RecordError(batchIndex={}, message='{}')", e.batch_index, e.message))
            .collect();
        let message = format!(
            "One or more records have been rejected due to {} record errors in total, and only showing the first three errors at most: [{}]",
            record_errors.len(),
            first.join(", ")
        );
        Err(AppendError::InvalidRecords { message, record_errors })
    }
}

fn walk_uncompressed(batch: &RecordBatch<'_>, params: &ValidationParams<'_>) -> Result<Walked, AppendError> {
    let mut checks = RecordChecks::new(batch, params);
    for record in RecordIter::of_section(batch, batch.records_section())? {
        checks.record(&Seen::of(&record?));
    }
    checks.finish()
}

fn walk_skipping_contents(
    batch: &RecordBatch<'_>,
    params: &ValidationParams<'_>,
    codecs: &dyn Codecs,
    buffers: &mut BufferSupplier,
) -> Result<Walked, AppendError> {
    let mut checks = RecordChecks::new(batch, params);
    if batch.count != 0 {
        let mut stream = batch.stream(codecs, buffers, params.max_record_body_size)?;
        while let Some(record) = stream.next_partial() {
            checks.record(&Seen::of_partial(&record?));
        }
    }
    checks.finish()
}

fn walk_compressed(
    batch: &RecordBatch<'_>,
    params: &ValidationParams<'_>,
    codecs: &dyn Codecs,
    buffers: &mut BufferSupplier,
) -> Result<Walked, AppendError> {
    let mut checks = RecordChecks::new(batch, params);
    let stream = batch.stream(codecs, buffers, params.max_record_body_size)?;
    let mut stream = stream.limit_window(params.max_decompressed_size);
    while let Some(record) = stream.next_record() {
        checks.record(&Seen::of(&record?));
    }
    checks.finish()
}

/// Sets offsets, leader epoch and timestamps in the header of the batch as it came.
fn assign(
    records: &Bytes,
    batch: &RecordBatch<'_>,
    count: i64,
    records_max_timestamp: i64,
    params: &ValidationParams<'_>,
    stats: ValidationStats,
) -> ValidatedBatch {
    let last_offset = params.first_offset.wrapping_add(count).wrapping_sub(1);
    let max_timestamp = match params.timestamp_type {
        TimestampType::LogAppendTime => params.now_ms,
        _ => records_max_timestamp,
    };
    let mut header = *batch.header();
    header.base_offset = last_offset.wrapping_sub(i64::from(header.last_offset_delta));
    header.partition_leader_epoch = params.partition_leader_epoch;
    if header.timestamp_type() != params.timestamp_type || header.max_timestamp != max_timestamp {
        header.attributes = BatchHeader::attributes_of(
            header.compression_type().unwrap_or_default(),
            params.timestamp_type,
            header.is_transactional(),
            header.is_control_batch(),
            header.delete_horizon_ms().is_some(),
        );
        header.max_timestamp = max_timestamp;
        header.update_crc(batch.records_section());
    }
    ValidatedBatch {
        header,
        bytes: records.slice(..batch.bytes().len()),
        first_offset: params.first_offset,
        last_offset,
        max_timestamp,
        log_append_time_ms: params.now_ms,
        is_rebuilt: false,
        stats,
    }
}

/// Writes the records into a new batch with the topic's codec.
fn rebuild(
    batch: &RecordBatch<'_>,
    walked: &Walked,
    params: &ValidationParams<'_>,
    codecs: &dyn Codecs,
    buffers: &mut BufferSupplier,
) -> Result<ValidatedBatch, AppendError> {
    let options = BatchOptions {
        base_offset: params.first_offset,
        compression: params.target_compression,
        timestamp_type: params.timestamp_type,
        log_append_time: params.now_ms,
        producer_id: batch.producer_id,
        producer_epoch: batch.producer_epoch,
        base_sequence: batch.base_sequence,
        is_transactional: batch.is_transactional(),
        is_control_batch: false,
        partition_leader_epoch: params.partition_leader_epoch,
        delete_horizon_ms: None,
    };
    if walked.size > params.max_decompressed_size {
        return Err(too_large(walked.size, params.max_decompressed_size, params));
    }
    let mut builder = RecordBatchBuilder::new(options);
    let mut offset = params.first_offset;
    let mut append = |record: Record<'_>| {
        builder.append_record(offset, &record).map_err(build_error)?;
        offset = offset.wrapping_add(1);
        Ok::<(), AppendError>(())
    };
    if batch.is_compressed() {
        let mut stream = batch.stream(codecs, buffers, params.max_record_body_size)?;
        while let Some(record) = stream.next_record() {
            append(record?)?;
        }
    } else {
        for record in RecordIter::of_section(batch, batch.records_section())? {
            append(record?)?;
        }
    }
    let stats = ValidationStats {
        temporary_memory_bytes: RECORD_BATCH_OVERHEAD + walked.size + builder.uncompressed_size(),
        records_converted: builder.count(),
    };
    let max_timestamp = builder.max_timestamp();
    let bytes = builder.build(codecs).map_err(build_error)?;
    if let Some(limit) = params.max_message_size
        && bytes.len() > limit
    {
        return Err(too_large(bytes.len(), limit, params));
    }
    let Some(header) = BatchHeader::parse(&bytes)? else {
        return Err(AppendError::InvalidBatch("A compressed batch without records".into()));
    };
    Ok(ValidatedBatch {
        header,
        bytes,
        first_offset: params.first_offset,
        last_offset: offset.wrapping_sub(1),
        max_timestamp,
        log_append_time_ms: params.now_ms,
        is_rebuilt: true,
        stats,
    })
}

#[cold]
fn too_large(size: usize, limit: usize, params: &ValidationParams<'_>) -> AppendError {
    let partition = params.topic_partition;
    AppendError::RecordTooLarge(format!(
        "A batch for {partition} has {size} bytes with the topic's compression, {limit} are allowed"
    ))
}

fn build_error(error: BuildError) -> AppendError {
    match error {
        BuildError::Record(error) => error.into(),
        BuildError::Codec(error) => RecordError::Codec(error).into(),
        // A negative timestamp, for which the reference has no error of its own either.
        other => AppendError::Unreadable(other.to_string()),
    }
}
