//! Batches: their header, a view over one batch of any message format, iteration over a region of a log.
//!
//! Layout of v2 (big-endian, KIP-98): base offset 0..8, length 8..12, partition leader epoch 12..16, magic 16,
//! CRC-32C 17..21 (over 21..), attributes 21..23, last offset delta 23..27, base timestamp 27..35 (or the delete
//! horizon, KIP-534), max timestamp 35..43, producer id 43..51, producer epoch 51..53, base sequence 53..57,
//! record count 57..61, records. Base offset and leader epoch stand outside the CRC so that a leader can set them.

use bytes::Bytes;
use std::ops::Deref;

use crate::append::TimestampType;
use crate::codec::{BufferSupplier, Codecs, CompressionType};
use crate::crc;
use crate::error::RecordError;
use crate::legacy::{self, LegacyIter};
use crate::record::{OwnedRecord, RecordIter, increment_sequence};
use crate::stream::RecordStream;
use crate::varint::Cursor;
use crate::{
    HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, MAGIC_VALUE_V0, MAGIC_VALUE_V2, MAX_RECORD_BODY_SIZE,
    NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD, RECORD_OVERHEAD_V0, RECORD_OVERHEAD_V1,
};

/// Where the length of a batch stands.
pub const LENGTH_OFFSET: usize = 8;
pub const PARTITION_LEADER_EPOCH_OFFSET: usize = 12;
pub const MAGIC_OFFSET: usize = 16;
pub const CRC_OFFSET: usize = 17;
/// First byte under the CRC.
pub const ATTRIBUTES_OFFSET: usize = 21;

const COMPRESSION_MASK: i16 = 0x07;
const TIMESTAMP_TYPE_MASK: i16 = 0x08;
const TRANSACTIONAL_MASK: i16 = 0x10;
const CONTROL_MASK: i16 = 0x20;
const DELETE_HORIZON_MASK: i16 = 0x40;

/// Upper limit of what one batch may decompress to where the whole of it is needed at once.
pub const MAX_DECOMPRESSED_SIZE: usize = i32::MAX as usize;

/// The fields in front of a batch's records.
///
/// For a v0 or v1 message the fields it lacks have the reference's values for "none"; `base_offset` is the offset in
/// front of the message, which for a compressed message is the offset of the **last** inner record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: i64,
    /// Bytes behind this field: the size of the batch without its first 12 bytes.
    pub batch_length: i32,
    pub partition_leader_epoch: i32,
    pub magic: i8,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    /// Number of records; -1 for v0 and v1, which do not say.
    pub count: i32,
}

impl BatchHeader {
    /// Reads the header that starts `bytes` (which may end behind the header: the way a log file is scanned).
    ///
    /// `Ok(None)`: too few bytes to hold it, so a torn tail. Errors are CORRUPT_MESSAGE.
    pub fn parse(bytes: &[u8]) -> Result<Option<BatchHeader>, RecordError> {
        let Some((base_offset, batch_length)) = overhead(bytes)? else { return Ok(None) };
        let Some(&magic) = bytes.get(MAGIC_OFFSET) else { return Ok(None) };
        match magic as i8 {
            MAGIC_VALUE_V2 => Self::parse_v2(bytes, batch_length),
            magic @ (0 | 1) => Self::parse_legacy(bytes, base_offset, batch_length, magic),
            magic => Err(RecordError::Corrupt(format!("Batch has the unknown magic {magic}").into())),
        }
    }

    fn parse_v2(bytes: &[u8], batch_length: i32) -> Result<Option<BatchHeader>, RecordError> {
        if (batch_length as usize) < RECORD_BATCH_OVERHEAD - LOG_OVERHEAD {
            return Err(too_small(batch_length));
        }
        let mut cursor = Cursor::new(bytes);
        let mut read = || {
            Some(BatchHeader {
                base_offset: cursor.i64()?,
                batch_length: cursor.i32()?,
                partition_leader_epoch: cursor.i32()?,
                magic: cursor.i8()?,
                crc: cursor.u32()?,
                attributes: cursor.i16()?,
                last_offset_delta: cursor.i32()?,
                base_timestamp: cursor.i64()?,
                max_timestamp: cursor.i64()?,
                producer_id: cursor.i64()?,
                producer_epoch: cursor.i16()?,
                base_sequence: cursor.i32()?,
                count: cursor.i32()?,
            })
        };
        Ok(read())
    }

    fn parse_legacy(
        bytes: &[u8],
        base_offset: i64,
        batch_length: i32,
        magic: i8,
    ) -> Result<Option<BatchHeader>, RecordError> {
        let overhead = if magic == MAGIC_VALUE_V0 { RECORD_OVERHEAD_V0 } else { RECORD_OVERHEAD_V1 };
        if (batch_length as usize) < overhead {
            return Err(too_small(batch_length));
        }
        let mut cursor = Cursor::new(bytes);
        let mut read = || {
            cursor.bytes(LOG_OVERHEAD)?;
            let crc = cursor.u32()?;
            cursor.u8()?;
            let attributes = i16::from(cursor.u8()?);
            let timestamp = if magic == MAGIC_VALUE_V0 { NO_TIMESTAMP } else { cursor.i64()? };
            Some(BatchHeader {
                base_offset,
                batch_length,
                partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
                magic,
                crc,
                attributes,
                last_offset_delta: 0,
                base_timestamp: timestamp,
                max_timestamp: timestamp,
                producer_id: NO_PRODUCER_ID,
                producer_epoch: NO_PRODUCER_EPOCH,
                base_sequence: NO_SEQUENCE,
                count: -1,
            })
        };
        Ok(read())
    }

    /// The bytes of a v2 header, with `crc` as it stands.
    pub fn encode(&self) -> [u8; RECORD_BATCH_OVERHEAD] {
        let mut bytes = [0; RECORD_BATCH_OVERHEAD];
        bytes[0..8].copy_from_slice(&self.base_offset.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.batch_length.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.partition_leader_epoch.to_be_bytes());
        bytes[16] = self.magic as u8;
        bytes[17..21].copy_from_slice(&self.crc.to_be_bytes());
        bytes[21..23].copy_from_slice(&self.attributes.to_be_bytes());
        bytes[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        bytes[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        bytes[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        bytes[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        bytes[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        bytes[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        bytes[57..61].copy_from_slice(&self.count.to_be_bytes());
        bytes
    }

    /// Sets `crc` to what it must be for these fields (v2) and `records`.
    pub fn update_crc(&mut self, records: &[u8]) {
        let header = self.encode();
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        digest.update(&header[ATTRIBUTES_OFFSET..]);
        digest.update(records);
        self.crc = digest.finalize() as u32;
    }

    /// The whole batch, first 12 bytes included.
    pub fn size_in_bytes(&self) -> usize {
        LOG_OVERHEAD + self.batch_length as usize
    }

    pub fn last_offset(&self) -> i64 {
        self.base_offset.wrapping_add(i64::from(self.last_offset_delta))
    }

    pub fn next_offset(&self) -> i64 {
        self.last_offset().wrapping_add(1)
    }

    /// Number of records where the format says it (v2).
    pub fn count_or_none(&self) -> Option<i32> {
        (self.magic >= MAGIC_VALUE_V2).then_some(self.count)
    }

    /// `None`: a number that no codec has.
    pub fn compression_type(&self) -> Option<CompressionType> {
        CompressionType::from_id((self.attributes & COMPRESSION_MASK) as u8)
    }

    pub(crate) fn known_compression_type(&self) -> Result<CompressionType, RecordError> {
        self.compression_type().ok_or_else(|| {
            let id = self.attributes & COMPRESSION_MASK;
            RecordError::Codec(crate::CodecError::Malformed(
                format!("Unknown compression type id: {id}").into(),
            ))
        })
    }

    pub fn is_compressed(&self) -> bool {
        self.attributes & COMPRESSION_MASK != 0
    }

    pub fn timestamp_type(&self) -> TimestampType {
        if self.magic == MAGIC_VALUE_V0 {
            TimestampType::NoTimestampType
        } else if self.attributes & TIMESTAMP_TYPE_MASK == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    pub(crate) fn is_log_append_time(&self) -> bool {
        self.timestamp_type() == TimestampType::LogAppendTime
    }

    fn flag(&self, mask: i16) -> bool {
        self.magic >= MAGIC_VALUE_V2 && self.attributes & mask != 0
    }

    pub fn is_transactional(&self) -> bool {
        self.flag(TRANSACTIONAL_MASK)
    }

    pub fn is_control_batch(&self) -> bool {
        self.flag(CONTROL_MASK)
    }

    /// When tombstones and markers of this batch may be removed (KIP-534): stands in place of the base timestamp.
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        self.flag(DELETE_HORIZON_MASK).then_some(self.base_timestamp)
    }

    pub fn has_producer_id(&self) -> bool {
        self.producer_id > NO_PRODUCER_ID
    }

    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence == NO_SEQUENCE {
            NO_SEQUENCE
        } else {
            increment_sequence(self.base_sequence, self.last_offset_delta)
        }
    }

    /// The attributes of a v2 batch; bits nobody uses are zero.
    pub(crate) fn attributes_of(
        compression: CompressionType,
        timestamp_type: TimestampType,
        is_transactional: bool,
        is_control: bool,
        has_delete_horizon: bool,
    ) -> i16 {
        let flag = |set: bool, mask: i16| if set { mask } else { 0 };
        i16::from(compression.id())
            | flag(timestamp_type == TimestampType::LogAppendTime, TIMESTAMP_TYPE_MASK)
            | flag(is_transactional, TRANSACTIONAL_MASK)
            | flag(is_control, CONTROL_MASK)
            | flag(has_delete_horizon, DELETE_HORIZON_MASK)
    }
}

/// Offset and length, once there are enough bytes for the magic too.
fn overhead(bytes: &[u8]) -> Result<Option<(i64, i32)>, RecordError> {
    let mut cursor = Cursor::new(bytes);
    let (Some(base_offset), Some(length)) = (cursor.i64(), cursor.i32()) else { return Ok(None) };
    if length < RECORD_OVERHEAD_V0 as i32 {
        let message =
            format!("Batch has a length of {length}, below the least possible, {RECORD_OVERHEAD_V0}");
        return Err(RecordError::Corrupt(message.into()));
    }
    if bytes.len() < HEADER_SIZE_UP_TO_MAGIC {
        return Ok(None);
    }
    Ok(Some((base_offset, length)))
}

#[cold]
fn too_small(batch_length: i32) -> RecordError {
    let size = i64::from(batch_length) + LOG_OVERHEAD as i64;
    let message = format!("Batch of {size} bytes is smaller than the header of its format");
    RecordError::Corrupt(message.into())
}

/// One complete batch of any format. Its header's getters are its own.
#[derive(Copy, Clone, Debug)]
pub struct RecordBatch<'a> {
    header: BatchHeader,
    bytes: &'a [u8],
}

impl Deref for RecordBatch<'_> {
    type Target = BatchHeader;

    fn deref(&self) -> &BatchHeader {
        &self.header
    }
}

impl<'a> RecordBatch<'a> {
    /// The batch that starts `bytes`; `Ok(None)` when it is not there completely.
    pub fn first(bytes: &'a [u8]) -> Result<Option<RecordBatch<'a>>, RecordError> {
        // Size and magic are judged before completeness, and only then the rest: the order of the reference.
        let Some((_, length)) = overhead(bytes)? else { return Ok(None) };
        let magic = bytes.get(MAGIC_OFFSET).copied().unwrap_or_default() as i8;
        if !(0..=MAGIC_VALUE_V2).contains(&magic) {
            return Err(RecordError::Corrupt(format!("Batch has the unknown magic {magic}").into()));
        }
        let Some(batch) = bytes.get(..LOG_OVERHEAD + length as usize) else { return Ok(None) };
        let header = BatchHeader::parse(batch)?;
        Ok(header.map(|header| RecordBatch { header, bytes: batch }))
    }

    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The whole batch.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// What stands behind the header of a v2 batch, as it is (perhaps compressed).
    pub fn records_section(&self) -> &'a [u8] {
        self.bytes.get(RECORD_BATCH_OVERHEAD..).unwrap_or_default()
    }

    /// The checksum the bytes have, for comparison with `crc`.
    pub fn computed_crc(&self) -> u32 {
        if self.header.magic >= MAGIC_VALUE_V2 {
            crc::crc32c(self.bytes.get(ATTRIBUTES_OFFSET..).unwrap_or_default())
        } else {
            crc::crc32(self.bytes.get(LOG_OVERHEAD + 4..).unwrap_or_default())
        }
    }

    pub fn is_valid(&self) -> bool {
        self.header.crc == self.computed_crc()
    }

    pub fn ensure_valid(&self) -> Result<(), RecordError> {
        let computed = self.computed_crc();
        if self.header.crc == computed {
            return Ok(());
        }
        let stored = self.header.crc;
        let message = format!("Batch is corrupt: it says CRC {stored}, its bytes have {computed}");
        Err(RecordError::Corrupt(message.into()))
    }

    /// All records; a compressed batch is decompressed into `buffers` first (at most [`MAX_DECOMPRESSED_SIZE`]).
    pub fn records<'s>(
        &self,
        codecs: &dyn Codecs,
        buffers: &'s mut BufferSupplier,
    ) -> Result<RecordIter<'s>, RecordError>
    where
        'a: 's,
    {
        self.records_within(codecs, buffers, MAX_DECOMPRESSED_SIZE)
    }

    /// [`RecordBatch::records`] with the caller's limit of decompressed bytes.
    pub fn records_within<'s>(
        &self,
        codecs: &dyn Codecs,
        buffers: &'s mut BufferSupplier,
        limit: usize,
    ) -> Result<RecordIter<'s>, RecordError>
    where
        'a: 's,
    {
        let buffer = buffers.decompressed();
        self.records_in(codecs, buffer, limit)
    }

    fn records_in<'s>(
        &self,
        codecs: &dyn Codecs,
        buffer: &'s mut Vec<u8>,
        limit: usize,
    ) -> Result<RecordIter<'s>, RecordError>
    where
        'a: 's,
    {
        if self.header.magic < MAGIC_VALUE_V2 {
            return Ok(RecordIter::of_legacy(LegacyIter::new(self, codecs, buffer, limit)?));
        }
        if !self.header.is_compressed() || self.header.count == 0 {
            return RecordIter::of_section(&self.header, self.records_section());
        }
        let kind = self.header.known_compression_type()?;
        codecs.decompress(kind, self.header.magic, self.records_section(), limit, buffer)?;
        RecordIter::of_section(&self.header, buffer)
    }

    /// The records of a v2 batch one at a time through a small window: memory is bounded by the largest record
    /// (whose body may have `max_record_body_size` bytes), not by the batch.
    pub fn stream<'s>(
        &self,
        codecs: &dyn Codecs,
        buffers: &'s mut BufferSupplier,
        max_record_body_size: usize,
    ) -> Result<RecordStream<'s>, RecordError>
    where
        'a: 's,
    {
        if self.header.magic < MAGIC_VALUE_V2 {
            return Err(RecordError::invalid("Only batches of message format v2 can be streamed"));
        }
        let kind = self.header.known_compression_type()?;
        let reader = codecs.reader(kind, self.header.magic, self.records_section())?;
        RecordStream::new(&self.header, reader, buffers.window(), max_record_body_size)
    }

    /// All records as owners of their bytes. `owner` is the buffer this batch was read from; without compression the
    /// records are slices of it, with it slices of one new buffer.
    pub fn owned_records(
        &self,
        owner: &Bytes,
        codecs: &dyn Codecs,
        limit: usize,
    ) -> Result<Vec<OwnedRecord>, RecordError> {
        let collect = |iter: RecordIter<'_>, owner: &Bytes| {
            iter.map(|record| record.map(|record| OwnedRecord::of(&record, owner))).collect()
        };
        if !self.header.is_compressed() {
            return collect(self.records_in(codecs, &mut Vec::new(), limit)?, owner);
        }
        let kind = self.header.known_compression_type()?;
        let source = match self.header.magic {
            MAGIC_VALUE_V2 => self.records_section(),
            _ => legacy::compressed_value(self)?,
        };
        let mut buffer = Vec::new();
        codecs.decompress(kind, self.header.magic, source, limit, &mut buffer)?;
        let owner = Bytes::from(buffer);
        let iter = match self.header.magic {
            MAGIC_VALUE_V2 => RecordIter::of_section(&self.header, &owner)?,
            _ => RecordIter::of_legacy(LegacyIter::of_decompressed(self, &owner)?),
        };
        collect(iter, &owner)
    }

    /// Offset of the first record. Only a compressed v0 or v1 message must be decompressed to know it.
    pub fn first_record_offset(
        &self,
        codecs: &dyn Codecs,
        buffers: &mut BufferSupplier,
    ) -> Result<i64, RecordError> {
        if self.header.magic >= MAGIC_VALUE_V2 || !self.header.is_compressed() {
            return Ok(self.header.base_offset);
        }
        match self.records_within(codecs, buffers, MAX_RECORD_BODY_SIZE)?.next() {
            Some(record) => Ok(record?.offset),
            None => Ok(self.header.base_offset),
        }
    }
}

/// The complete batches at the start of a region. What is cut off at its end is left out without an error; after an
/// error it ends.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    rest: &'a [u8],
    position: usize,
    failed: bool,
}

impl<'a> Batches<'a> {
    pub fn new(bytes: &'a [u8]) -> Batches<'a> {
        Batches { rest: bytes, position: 0, failed: false }
    }

    /// Bytes of the batches that were returned so far.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<RecordBatch<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        match RecordBatch::first(self.rest) {
            Ok(Some(batch)) => {
                let size = batch.bytes.len();
                self.rest = self.rest.get(size..).unwrap_or_default();
                self.position += size;
                Some(Ok(batch))
            }
            Ok(None) => None,
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}
