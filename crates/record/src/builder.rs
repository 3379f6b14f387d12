//! Building v2 batches: byte for byte what the reference builds from the same records when they are not compressed.
//!
//! Records are written once, into the buffer that becomes the batch; compression happens once, at the end.

use bytes::Bytes;
use std::fmt;

use crate::append::TimestampType;
use crate::batch::{ATTRIBUTES_OFFSET, BatchHeader, CRC_OFFSET};
use crate::codec::{CodecError, Codecs, Compression};
use crate::control::{ControlRecordType, EndTransactionMarker};
use crate::crc;
use crate::error::RecordError;
use crate::record::{Header, Record};
use crate::varint::{size_of_varint, size_of_varlong, write_varint, write_varlong};
use crate::{
    LOG_OVERHEAD, MAGIC_VALUE_V2, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE,
    NO_TIMESTAMP, RECORD_BATCH_OVERHEAD,
};

/// What a batch says of itself besides its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    pub base_offset: i64,
    pub compression: Compression,
    pub timestamp_type: TimestampType,
    /// The batch's timestamp where the type is LogAppendTime.
    pub log_append_time: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub is_transactional: bool,
    pub is_control_batch: bool,
    pub partition_leader_epoch: i32,
    /// KIP-534: stands in the place of the base timestamp.
    pub delete_horizon_ms: Option<i64>,
}

impl Default for BatchOptions {
    fn default() -> BatchOptions {
        BatchOptions {
            base_offset: 0,
            compression: Compression::None,
            timestamp_type: TimestampType::CreateTime,
            log_append_time: NO_TIMESTAMP,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            base_sequence: NO_SEQUENCE,
            is_transactional: false,
            is_control_batch: false,
            partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
            delete_horizon_ms: None,
        }
    }
}

/// Why a batch cannot be built from what was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// Offsets of a batch must rise.
    OffsetNotIncreasing {
        offset: i64,
        last_offset: i64,
    },
    /// The distance to the base offset must fit 31 bits.
    OffsetTooFar {
        offset: i64,
        base_offset: i64,
    },
    /// A timestamp is -1 or not negative.
    NegativeTimestamp(i64),
    /// Control records go into control batches and nothing else does.
    ControlMismatch,
    /// Producer id, epoch and sequence contradict each other.
    ProducerState(&'static str),
    /// A record or the batch does not fit its 31-bit size.
    TooLarge,
    /// The records to convert could not be read.
    Record(RecordError),
    Codec(CodecError),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::OffsetNotIncreasing { offset, last_offset } => {
                write!(f, "Offset {offset} does not follow offset {last_offset}")
            }
            BuildError::OffsetTooFar { offset, base_offset } => {
                write!(f, "Offset {offset} is too far from the batch's base offset {base_offset}")
            }
            BuildError::NegativeTimestamp(timestamp) => write!(f, "Timestamp {timestamp} is negative"),
            BuildError::ControlMismatch => {
                f.write_str("Control records go into control batches and nothing else does")
            }
            BuildError::ProducerState(cause) => f.write_str(cause),
            BuildError::TooLarge => f.write_str("Record or batch exceeds the size the format can hold"),
            BuildError::Record(error) => error.fmt(f),
            BuildError::Codec(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BuildError {}

impl From<RecordError> for BuildError {
    fn from(error: RecordError) -> BuildError {
        BuildError::Record(error)
    }
}

impl From<CodecError> for BuildError {
    fn from(error: CodecError) -> BuildError {
        BuildError::Codec(error)
    }
}

/// Gathers the records of one batch.
#[derive(Debug)]
pub struct RecordBatchBuilder {
    options: BatchOptions,
    /// Space for the header, then the records.
    buffer: Vec<u8>,
    base_timestamp: Option<i64>,
    max_timestamp: i64,
    last_offset: Option<i64>,
    count: i32,
}

impl RecordBatchBuilder {
    pub fn new(options: BatchOptions) -> RecordBatchBuilder {
        RecordBatchBuilder::with_buffer(options, Vec::with_capacity(512))
    }

    /// Uses `buffer`'s memory; its contents are dropped.
    pub fn with_buffer(options: BatchOptions, mut buffer: Vec<u8>) -> RecordBatchBuilder {
        buffer.clear();
        buffer.resize(RECORD_BATCH_OVERHEAD, 0);
        RecordBatchBuilder {
            options,
            buffer,
            base_timestamp: options.delete_horizon_ms,
            max_timestamp: NO_TIMESTAMP,
            last_offset: None,
            count: 0,
        }
    }

    /// Appends at the offset behind the last one.
    pub fn append(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> Result<(), BuildError> {
        self.append_with_offset(self.next_offset(), timestamp, key, value, headers)
    }

    pub fn append_with_offset(
        &mut self,
        offset: i64,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> Result<(), BuildError> {
        if self.options.is_control_batch {
            return Err(BuildError::ControlMismatch);
        }
        self.write(offset, timestamp, key, value, headers.iter().copied(), headers.len())
    }

    /// Appends a record that was read elsewhere, its own timestamp and headers included, at `offset`. Header names
    /// that are not UTF-8 are replaced as in Java, where they are strings.
    pub fn append_record(&mut self, offset: i64, record: &Record<'_>) -> Result<(), BuildError> {
        let headers = record.headers;
        if headers.iter().any(|header| std::str::from_utf8(header.key).is_err()) {
            let keys: Vec<_> = headers.iter().map(|header| (header.key_lossy(), header.value)).collect();
            let headers = keys.iter().map(|(key, value)| Header::new(key, *value));
            return self.write(offset, record.timestamp, record.key, record.value, headers, keys.len());
        }
        self.write(offset, record.timestamp, record.key, record.value, headers.iter(), headers.len())
    }

    /// Appends a control record; the value is the message that crate `protocol` encodes.
    pub fn append_control_record(
        &mut self,
        timestamp: i64,
        kind: ControlRecordType,
        value: &[u8],
    ) -> Result<(), BuildError> {
        if !self.options.is_control_batch || kind == ControlRecordType::Unknown {
            return Err(BuildError::ControlMismatch);
        }
        self.write(self.next_offset(), timestamp, Some(&kind.record_key()), Some(value), [].into_iter(), 0)
    }

    pub fn append_end_txn_marker(
        &mut self,
        timestamp: i64,
        marker: EndTransactionMarker,
    ) -> Result<(), BuildError> {
        if self.options.producer_id == NO_PRODUCER_ID {
            return Err(BuildError::ProducerState("An end transaction marker needs a producer id"));
        }
        if !self.options.is_transactional {
            return Err(BuildError::ProducerState(
                "An end transaction marker goes into a transactional batch",
            ));
        }
        self.append_control_record(timestamp, marker.control_type(), &marker.serialize_value())
    }

    fn write<'h>(
        &mut self,
        offset: i64,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl Iterator<Item = Header<'h>> + Clone,
        header_count: usize,
    ) -> Result<(), BuildError> {
        let offset_delta = self.check(offset, timestamp)?;
        let base_timestamp = *self.base_timestamp.get_or_insert(timestamp);
        let timestamp_delta = timestamp.wrapping_sub(base_timestamp);
        let body = body_size(offset_delta, timestamp_delta, key, value, headers.clone(), header_count);
        let body_size = i32::try_from(body).map_err(|_| BuildError::TooLarge)?;
        let out = &mut self.buffer;
        if out.len() + body > i32::MAX as usize {
            return Err(BuildError::TooLarge);
        }
        write_varint(out, body_size);
        out.push(0);
        write_varlong(out, timestamp_delta);
        write_varint(out, offset_delta);
        write_nullable(out, key);
        write_nullable(out, value);
        write_varint(out, header_count as i32);
        for header in headers {
            write_nullable(out, Some(header.key));
            write_nullable(out, header.value);
        }
        self.count += 1;
        self.last_offset = Some(offset);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        Ok(())
    }

    /// The record's offset delta, if it may follow.
    fn check(&self, offset: i64, timestamp: i64) -> Result<i32, BuildError> {
        if let Some(last_offset) = self.last_offset
            && offset <= last_offset
        {
            return Err(BuildError::OffsetNotIncreasing { offset, last_offset });
        }
        if timestamp < NO_TIMESTAMP {
            return Err(BuildError::NegativeTimestamp(timestamp));
        }
        if self.count == i32::MAX {
            return Err(BuildError::TooLarge);
        }
        let base_offset = self.options.base_offset;
        offset
            .checked_sub(base_offset)
            .and_then(|delta| i32::try_from(delta).ok())
            .ok_or(BuildError::OffsetTooFar { offset, base_offset })
    }

    /// Offset the next [`append`](Self::append) will use.
    pub fn next_offset(&self) -> i64 {
        self.last_offset.map_or(self.options.base_offset, |offset| offset.saturating_add(1))
    }

    pub fn count(&self) -> i32 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn options(&self) -> &BatchOptions {
        &self.options
    }

    /// Largest timestamp so far, or -1.
    pub fn max_timestamp(&self) -> i64 {
        match self.options.timestamp_type {
            TimestampType::LogAppendTime => self.options.log_append_time,
            _ => self.max_timestamp,
        }
    }

    /// Size of the batch as it is now, before compression.
    pub fn uncompressed_size(&self) -> usize {
        self.buffer.len()
    }

    /// What the batch's uncompressed size would be with one record more.
    pub fn size_with(
        &self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> usize {
        let offset_delta = self.next_offset().wrapping_sub(self.options.base_offset) as i32;
        let timestamp_delta = timestamp.wrapping_sub(self.base_timestamp.unwrap_or(timestamp));
        let headers_iter = headers.iter().copied();
        let body = body_size(offset_delta, timestamp_delta, key, value, headers_iter, headers.len());
        self.buffer.len() + body + size_of_varint(i32::try_from(body).unwrap_or(i32::MAX))
    }

    /// Lets the batch end at a higher offset than its last record, as a compacted one does.
    pub fn override_last_offset(&mut self, last_offset: i64) {
        self.last_offset = Some(last_offset);
    }

    /// Replaces the producer's state, which a producer knows only when it sends.
    pub fn set_producer_state(&mut self, id: i64, epoch: i16, base_sequence: i32, is_transactional: bool) {
        self.options.producer_id = id;
        self.options.producer_epoch = epoch;
        self.options.base_sequence = base_sequence;
        self.options.is_transactional = is_transactional;
    }

    /// The finished batch; no bytes at all when it has no records.
    pub fn build(self, codecs: &dyn Codecs) -> Result<Bytes, BuildError> {
        self.check_producer_state()?;
        if self.count == 0 {
            return Ok(Bytes::new());
        }
        let header = self.header();
        let mut batch = self.buffer;
        if header.is_compressed() {
            let records = batch.get(RECORD_BATCH_OVERHEAD..).unwrap_or_default();
            let mut compressed = Vec::with_capacity(RECORD_BATCH_OVERHEAD + records.len() / 2);
            compressed.resize(RECORD_BATCH_OVERHEAD, 0);
            codecs.compress(self.options.compression, MAGIC_VALUE_V2, records, &mut compressed)?;
            batch = compressed;
        }
        finish(batch, header).map(Bytes::from)
    }

    /// Appends the finished batch to `out` and gives the builder's memory back, for the next one.
    pub fn build_into(mut self, codecs: &dyn Codecs, out: &mut Vec<u8>) -> Result<Vec<u8>, BuildError> {
        self.check_producer_state()?;
        if self.count == 0 {
            return Ok(self.buffer);
        }
        let mut header = self.header();
        let start = out.len();
        if header.is_compressed() {
            out.resize(start + RECORD_BATCH_OVERHEAD, 0);
            let records = self.buffer.get(RECORD_BATCH_OVERHEAD..).unwrap_or_default();
            codecs.compress(self.options.compression, MAGIC_VALUE_V2, records, out)?;
            seal(out.get_mut(start..).unwrap_or_default(), &mut header)?;
        } else {
            seal(&mut self.buffer, &mut header)?;
            out.extend_from_slice(&self.buffer);
        }
        Ok(self.buffer)
    }

    fn check_producer_state(&self) -> Result<(), BuildError> {
        let options = &self.options;
        let cause = if options.producer_id == NO_PRODUCER_ID {
            options.is_transactional.then_some("A transactional batch needs a producer id")
        } else if options.producer_epoch == NO_PRODUCER_EPOCH {
            Some("A producer id needs a producer epoch")
        } else if options.base_sequence < 0 && !options.is_control_batch {
            Some("A producer id needs a sequence number")
        } else {
            None
        };
        cause.map_or(Ok(()), |cause| Err(BuildError::ProducerState(cause)))
    }

    fn header(&self) -> BatchHeader {
        let options = &self.options;
        let last_offset = self.last_offset.unwrap_or(options.base_offset);
        BatchHeader {
            base_offset: options.base_offset,
            batch_length: 0,
            partition_leader_epoch: options.partition_leader_epoch,
            magic: MAGIC_VALUE_V2,
            crc: 0,
            attributes: BatchHeader::attributes_of(
                options.compression.kind(),
                options.timestamp_type,
                options.is_transactional,
                options.is_control_batch,
                options.delete_horizon_ms.is_some(),
            ),
            last_offset_delta: last_offset.wrapping_sub(options.base_offset) as i32,
            base_timestamp: self.base_timestamp.unwrap_or(NO_TIMESTAMP),
            max_timestamp: self.max_timestamp(),
            producer_id: options.producer_id,
            producer_epoch: options.producer_epoch,
            base_sequence: options.base_sequence,
            count: self.count,
        }
    }
}

/// A batch without records that keeps an offset range and a producer's state alive, as compaction leaves them.
pub fn empty_batch(options: &BatchOptions, last_offset: i64, timestamp: i64) -> Bytes {
    let builder = RecordBatchBuilder {
        options: *options,
        buffer: Vec::new(),
        base_timestamp: Some(NO_TIMESTAMP),
        max_timestamp: timestamp,
        last_offset: Some(last_offset),
        count: 0,
    };
    let mut header = builder.header();
    header.max_timestamp = timestamp;
    header.attributes = BatchHeader::attributes_of(
        crate::CompressionType::None,
        options.timestamp_type,
        options.is_transactional,
        options.is_control_batch,
        false,
    );
    header.batch_length = (RECORD_BATCH_OVERHEAD - LOG_OVERHEAD) as i32;
    header.update_crc(&[]);
    Bytes::copy_from_slice(&header.encode())
}

/// Writes `header` into the space in front of the records, with length and CRC.
fn finish(mut batch: Vec<u8>, mut header: BatchHeader) -> Result<Vec<u8>, BuildError> {
    seal(&mut batch, &mut header)?;
    Ok(batch)
}

fn seal(batch: &mut [u8], header: &mut BatchHeader) -> Result<(), BuildError> {
    header.batch_length =
        i32::try_from(batch.len().saturating_sub(LOG_OVERHEAD)).map_err(|_| BuildError::TooLarge)?;
    let bytes = header.encode();
    if let Some(space) = batch.get_mut(..RECORD_BATCH_OVERHEAD) {
        space.copy_from_slice(&bytes);
    }
    let crc = crc::crc32c(batch.get(ATTRIBUTES_OFFSET..).unwrap_or_default());
    if let Some(space) = batch.get_mut(CRC_OFFSET..CRC_OFFSET + 4) {
        space.copy_from_slice(&crc.to_be_bytes());
    }
    Ok(())
}

#[inline]
fn write_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        // Sizes were added up and found to fit before anything is written.
        Some(bytes) => {
            write_varint(out, bytes.len() as i32);
            out.extend_from_slice(bytes);
        }
        None => write_varint(out, -1),
    }
}

#[inline]
fn size_of_nullable(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| {
        bytes.len().saturating_add(size_of_varint(i32::try_from(bytes.len()).unwrap_or(i32::MAX)))
    })
}

fn body_size<'h>(
    offset_delta: i32,
    timestamp_delta: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl Iterator<Item = Header<'h>>,
    header_count: usize,
) -> usize {
    let mut size = 1 + size_of_varint(offset_delta) + size_of_varlong(timestamp_delta);
    size = size.saturating_add(size_of_nullable(key)).saturating_add(size_of_nullable(value));
    size += size_of_varint(i32::try_from(header_count).unwrap_or(i32::MAX));
    headers.fold(size, |size, header| {
        size.saturating_add(size_of_nullable(Some(header.key))).saturating_add(size_of_nullable(header.value))
    })
}
