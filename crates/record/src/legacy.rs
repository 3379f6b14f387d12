//! Message sets of formats v0 and v1 (Kafka < 0.11): read, never written, except as v2 by [`up_convert`].
//!
//! A message is offset 8, size 4, CRC-32 4, magic 1, attributes 1, (v1) timestamp 8, key and value each with a size of
//! 4 (-1: null). A compressed message holds a message set as its value; its own offset is that of the last inner one.
//! Inner offsets are absolute in v0 and relative to the first in v1 (KIP-31).

use bytes::Bytes;

use crate::append::TimestampType;
use crate::batch::RecordBatch;
use crate::builder::{BatchOptions, BuildError, RecordBatchBuilder};
use crate::codec::{BufferSupplier, CodecError, Codecs, Compression, CompressionType};
use crate::error::RecordError;
use crate::record::{Headers, Record};
use crate::varint::Cursor;
use crate::{LOG_OVERHEAD, MAGIC_VALUE_V0, MAGIC_VALUE_V1, NO_SEQUENCE, NO_TIMESTAMP, RECORD_OVERHEAD_V0};

const CUT_OFF: RecordError = RecordError::Corrupt(std::borrow::Cow::Borrowed("Message is cut off"));
const COMPRESSION_MASK: u8 = 0x07;

/// One message behind its offset and size.
struct Message<'a> {
    magic: i8,
    attributes: u8,
    timestamp: i64,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
}

impl<'a> Message<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Message<'a>, RecordError> {
        let mut cursor = Cursor::new(bytes);
        cursor.u32().ok_or(CUT_OFF)?;
        let magic = cursor.i8().ok_or(CUT_OFF)?;
        let attributes = cursor.u8().ok_or(CUT_OFF)?;
        let timestamp = match magic {
            MAGIC_VALUE_V0 => NO_TIMESTAMP,
            MAGIC_VALUE_V1 => cursor.i64().ok_or(CUT_OFF)?,
            _ => {
                let message = format!("Magic {magic} inside a message set of an old format");
                return Err(RecordError::Invalid(message.into()));
            }
        };
        let mut nullable = || {
            let size = cursor.i32()?;
            usize::try_from(size).map_or(Some(None), |length| cursor.bytes(length).map(Some))
        };
        let key = nullable().ok_or(CUT_OFF)?;
        let value = nullable().ok_or(CUT_OFF)?;
        Ok(Message { magic, attributes, timestamp, key, value })
    }

    fn record(&self, offset: i64, timestamp: i64, message_size: usize) -> Record<'a> {
        Record {
            offset,
            timestamp,
            sequence: NO_SEQUENCE,
            key: self.key,
            value: self.value,
            headers: Headers::default(),
            size_in_bytes: message_size + LOG_OVERHEAD,
        }
    }
}

/// Records of one v0 or v1 batch: a single message, or the messages inside a compressed one.
#[derive(Debug)]
pub(crate) enum LegacyIter<'a> {
    Single(Option<Record<'a>>),
    Deep(DeepIter<'a>),
}

#[derive(Debug)]
pub(crate) struct DeepIter<'a> {
    rest: Cursor<'a>,
    /// Added to inner offsets.
    absolute_base_offset: i64,
    /// Timestamp of all v1 messages when the wrapper has LogAppendTime.
    log_append_time: Option<i64>,
}

/// The compressed bytes of a wrapper.
pub(crate) fn compressed_value<'a>(batch: &RecordBatch<'a>) -> Result<&'a [u8], RecordError> {
    let message = Message::parse(batch.bytes().get(LOG_OVERHEAD..).unwrap_or_default())?;
    if batch.compression_type() == Some(CompressionType::Zstd) {
        return Err(RecordError::Codec(CodecError::Unsupported(CompressionType::Zstd)));
    }
    message.value.ok_or(RecordError::invalid("A compressed message has no value"))
}

impl<'a> LegacyIter<'a> {
    pub(crate) fn new<'b: 'a>(
        batch: &RecordBatch<'b>,
        codecs: &dyn Codecs,
        buffer: &'a mut Vec<u8>,
        limit: usize,
    ) -> Result<LegacyIter<'a>, RecordError> {
        if !batch.is_compressed() {
            return LegacyIter::of_single(batch);
        }
        let source = compressed_value(batch)?;
        let kind = batch.known_compression_type()?;
        codecs.decompress(kind, batch.magic, source, limit, buffer)?;
        LegacyIter::of_decompressed(batch, buffer)
    }

    /// Over a message that is not compressed.
    pub(crate) fn of_single(batch: &RecordBatch<'a>) -> Result<LegacyIter<'a>, RecordError> {
        let bytes = batch.bytes().get(LOG_OVERHEAD..).unwrap_or_default();
        let message = Message::parse(bytes)?;
        let record = message.record(batch.base_offset, message.timestamp, bytes.len());
        Ok(LegacyIter::Single(Some(record)))
    }

    /// Over the message set that was inside `wrapper`.
    pub(crate) fn of_decompressed(
        wrapper: &RecordBatch<'_>,
        message_set: &'a [u8],
    ) -> Result<LegacyIter<'a>, RecordError> {
        let mut cursor = Cursor::new(message_set);
        let mut last_inner_offset = None;
        while let Some((offset, _)) = next_entry(&mut cursor)? {
            last_inner_offset = Some(offset);
        }
        let Some(last_inner_offset) = last_inner_offset else {
            return Err(RecordError::invalid("A compressed message holds no message"));
        };
        let absolute_base_offset = match (wrapper.magic, wrapper.base_offset) {
            (MAGIC_VALUE_V0, _) | (_, 0) => 0,
            (_, last) if last < last_inner_offset => {
                let message = format!(
                    "Offset {last} of a compressed message is below its last inner offset {last_inner_offset}"
                );
                return Err(RecordError::Invalid(message.into()));
            }
            (_, last) => last.wrapping_sub(last_inner_offset),
        };
        Ok(LegacyIter::Deep(DeepIter {
            rest: Cursor::new(message_set),
            absolute_base_offset,
            log_append_time: wrapper.is_log_append_time().then_some(wrapper.max_timestamp),
        }))
    }

    pub(crate) fn next(&mut self) -> Option<Result<Record<'a>, RecordError>> {
        match self {
            LegacyIter::Single(record) => record.take().map(Ok),
            LegacyIter::Deep(deep) => {
                let result = deep.next().transpose();
                if matches!(result, Some(Err(_))) {
                    deep.rest = Cursor::new(&[]);
                }
                result
            }
        }
    }
}

impl<'a> DeepIter<'a> {
    fn next(&mut self) -> Result<Option<Record<'a>>, RecordError> {
        let Some((offset, bytes)) = next_entry(&mut self.rest)? else { return Ok(None) };
        let message = Message::parse(bytes)?;
        if message.attributes & COMPRESSION_MASK != 0 {
            return Err(RecordError::invalid("A message inside a compressed one is compressed too"));
        }
        let timestamp = match self.log_append_time {
            Some(time) if message.magic == MAGIC_VALUE_V1 => time,
            _ => message.timestamp,
        };
        let offset = self.absolute_base_offset.wrapping_add(offset);
        Ok(Some(message.record(offset, timestamp, bytes.len())))
    }
}

/// Offset and message; `None` at the end or at a torn tail.
fn next_entry<'a>(cursor: &mut Cursor<'a>) -> Result<Option<(i64, &'a [u8])>, RecordError> {
    let (Some(offset), Some(size)) = (cursor.i64(), cursor.i32()) else { return Ok(None) };
    match usize::try_from(size) {
        Ok(length) if length >= RECORD_OVERHEAD_V0 => Ok(cursor.bytes(length).map(|bytes| (offset, bytes))),
        _ => {
            let message = format!("Message size {size} is below the least possible, {RECORD_OVERHEAD_V0}");
            Err(RecordError::Corrupt(message.into()))
        }
    }
}

/// The records of a v0 or v1 batch as one v2 batch with the same offsets and timestamps, for readers that only know v2.
pub fn up_convert(
    batch: &RecordBatch<'_>,
    compression: Compression,
    codecs: &dyn Codecs,
    buffers: &mut BufferSupplier,
    limit: usize,
) -> Result<Bytes, BuildError> {
    let timestamp_type = match batch.timestamp_type() {
        TimestampType::LogAppendTime => TimestampType::LogAppendTime,
        _ => TimestampType::CreateTime,
    };
    let mut builder: Option<RecordBatchBuilder> = None;
    for record in batch.records_within(codecs, buffers, limit)? {
        let record = record?;
        let options = || BatchOptions {
            base_offset: record.offset,
            compression,
            timestamp_type,
            log_append_time: batch.max_timestamp,
            ..BatchOptions::default()
        };
        let builder = builder.get_or_insert_with(|| RecordBatchBuilder::new(options()));
        builder.append_with_offset(record.offset, record.timestamp, record.key, record.value, &[])?;
    }
    builder.map_or(Ok(Bytes::new()), |builder| builder.build(codecs))
}
