//! Records as borrowed views, and the iterator over the records of one batch.
//!
//! A record is checked completely when it is read (sizes, header bounds), so its headers iterate without errors.
//! Nothing is allocated per record.

use bytes::Bytes;
use std::borrow::Cow;

use crate::batch::BatchHeader;
use crate::codec::CodecError;
use crate::error::RecordError;
use crate::legacy::LegacyIter;
use crate::varint::{Cursor, size_of_varint};

/// One record of any message format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub offset: i64,
    /// Milliseconds since the Unix epoch, or -1.
    pub timestamp: i64,
    /// Producer's sequence number, or -1.
    pub sequence: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
    /// Size in its (uncompressed) batch, length prefix included.
    pub size_in_bytes: usize,
}

/// The headers of a record, read when asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    count: usize,
    bytes: &'a [u8],
}

/// One header: a name (UTF-8 by contract, whatever the client sent in fact) and a value that may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

impl<'a> Header<'a> {
    pub fn new(key: &'a str, value: Option<&'a [u8]>) -> Header<'a> {
        Header { key: key.as_bytes(), value }
    }

    /// The name as text, bad UTF-8 replaced as Java replaces it.
    pub fn key_lossy(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.key)
    }
}

impl<'a> Headers<'a> {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = Header<'a>> + Clone + use<'a> {
        let mut cursor = Cursor::new(self.bytes);
        (0..self.count).map_while(move |_| read_header(&mut cursor).ok())
    }

    /// Value of the last header of that name, as Java's `lastHeader`.
    pub fn last(&self, key: &str) -> Option<Option<&'a [u8]>> {
        self.iter().filter(|header| header.key == key.as_bytes()).last().map(|header| header.value)
    }
}

const INVALID_STRUCTURE: RecordError = RecordError::invalid("Record is cut off or malformed");

fn read_header<'a>(cursor: &mut Cursor<'a>) -> Result<Header<'a>, RecordError> {
    let key_size = cursor.varint().ok_or(INVALID_STRUCTURE)?;
    let Ok(key_length) = usize::try_from(key_size) else {
        let message = format!("Header name has a size of {key_size}");
        return Err(RecordError::Invalid(message.into()));
    };
    let key = cursor.bytes(key_length).ok_or(INVALID_STRUCTURE)?;
    let value = cursor.nullable_varint_bytes().ok_or(INVALID_STRUCTURE)?;
    Ok(Header { key, value })
}

/// What a record needs to know of its batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordContext {
    pub base_offset: i64,
    pub base_timestamp: i64,
    pub base_sequence: i32,
    /// Set when the batch's timestamp type is LogAppendTime: then this is every record's timestamp.
    pub log_append_time: Option<i64>,
}

impl RecordContext {
    pub(crate) fn of(header: &BatchHeader) -> RecordContext {
        RecordContext {
            base_offset: header.base_offset,
            base_timestamp: header.base_timestamp,
            base_sequence: header.base_sequence,
            log_append_time: header.is_log_append_time().then_some(header.max_timestamp),
        }
    }

    #[inline]
    pub(crate) fn offset(&self, delta: i32) -> i64 {
        self.base_offset.wrapping_add(i64::from(delta))
    }

    #[inline]
    pub(crate) fn timestamp(&self, delta: i64) -> i64 {
        self.log_append_time.unwrap_or(self.base_timestamp.wrapping_add(delta))
    }

    #[inline]
    pub(crate) fn sequence(&self, offset_delta: i32) -> i32 {
        if self.base_sequence >= 0 { increment_sequence(self.base_sequence, offset_delta) } else { -1 }
    }
}

/// Sequence numbers wrap from `i32::MAX` to 0 (KIP-98).
pub fn increment_sequence(sequence: i32, increment: i32) -> i32 {
    let room = i32::MAX.wrapping_sub(increment);
    if sequence > room {
        increment.wrapping_sub(i32::MAX.wrapping_sub(sequence)).wrapping_sub(1)
    } else {
        sequence.wrapping_add(increment)
    }
}

/// The inverse of [`increment_sequence`].
pub fn decrement_sequence(sequence: i32, decrement: i32) -> i32 {
    if sequence < decrement {
        i32::MAX.wrapping_sub(decrement.wrapping_sub(sequence)).wrapping_add(1)
    } else {
        sequence.wrapping_sub(decrement)
    }
}

/// Reads the record behind its length prefix and checks all of it.
#[inline]
pub(crate) fn read_record_body<'a>(
    body: &'a [u8],
    context: &RecordContext,
) -> Result<Record<'a>, RecordError> {
    let mut cursor = Cursor::new(body);
    let mut fields = || {
        cursor.u8()?; // attributes: no bit is in use
        let timestamp_delta = cursor.varlong()?;
        let offset_delta = cursor.varint()?;
        let key = cursor.nullable_varint_bytes()?;
        let value = cursor.nullable_varint_bytes()?;
        let header_count = cursor.varint()?;
        Some((timestamp_delta, offset_delta, key, value, header_count))
    };
    let (timestamp_delta, offset_delta, key, value, header_count) = fields().ok_or(INVALID_STRUCTURE)?;
    let headers = if header_count == 0 && cursor.remaining() == 0 {
        Headers::default()
    } else {
        read_headers(&mut cursor, header_count, body.len())?
    };
    Ok(Record {
        offset: context.offset(offset_delta),
        timestamp: context.timestamp(timestamp_delta),
        sequence: context.sequence(offset_delta),
        key,
        value,
        headers,
        size_in_bytes: body.len() + size_of_varint(body.len() as i32),
    })
}

#[cold]
fn invalid_header_count(count: i32) -> RecordError {
    if count < 0 {
        RecordError::Invalid(format!("Record has a header count of {count}").into())
    } else {
        let message = format!("Record has a header count of {count}, more than its bytes can hold");
        RecordError::Invalid(message.into())
    }
}

fn read_headers<'a>(
    cursor: &mut Cursor<'a>,
    header_count: i32,
    body_size: usize,
) -> Result<Headers<'a>, RecordError> {
    let count = usize::try_from(header_count).map_err(|_| invalid_header_count(header_count))?;
    if count > cursor.remaining() {
        return Err(invalid_header_count(header_count));
    }
    let bytes = cursor.rest();
    for _ in 0..count {
        read_header(cursor)?;
    }
    if cursor.remaining() != 0 {
        let read = body_size.saturating_sub(cursor.remaining());
        let message = format!("Record of {body_size} bytes has contents of {read}");
        return Err(RecordError::Invalid(message.into()));
    }
    Ok(Headers { count, bytes })
}

/// The records of one batch, in order. After the first error it ends.
#[derive(Debug)]
pub struct RecordIter<'a> {
    inner: Inner<'a>,
}

#[derive(Debug)]
enum Inner<'a> {
    Default(DefaultIter<'a>),
    Legacy(LegacyIter<'a>),
}

#[derive(Debug)]
struct DefaultIter<'a> {
    cursor: Cursor<'a>,
    context: RecordContext,
    remaining: u32,
}

impl<'a> RecordIter<'a> {
    /// Over the uncompressed records section of a v2 batch.
    pub(crate) fn of_section(header: &BatchHeader, section: &'a [u8]) -> Result<Self, RecordError> {
        let remaining = record_count(header)?;
        let context = RecordContext::of(header);
        Ok(RecordIter {
            inner: Inner::Default(DefaultIter { cursor: Cursor::new(section), context, remaining }),
        })
    }

    pub(crate) fn of_legacy(legacy: LegacyIter<'a>) -> Self {
        RecordIter { inner: Inner::Legacy(legacy) }
    }
}

pub(crate) fn record_count(header: &BatchHeader) -> Result<u32, RecordError> {
    u32::try_from(header.count).map_err(|_| {
        let message = format!("Batch of format v{} has a record count of {}", header.magic, header.count);
        RecordError::Invalid(message.into())
    })
}

pub(crate) const PREMATURE_EOF: RecordError = RecordError::invalid("Batch ends before its last record");
pub(crate) const STILL_REMAINING: RecordError =
    RecordError::invalid("Bytes follow the last record of the batch");

impl<'a> DefaultIter<'a> {
    #[inline]
    fn read(&mut self) -> Result<Record<'a>, RecordError> {
        let before = self.cursor;
        let Some(size) = self.cursor.varint() else { return Err(unreadable_size(before.remaining())) };
        let body = usize::try_from(size).ok().and_then(|length| self.cursor.bytes(length));
        let Some(body) = body else {
            return Err(body_does_not_fit(size, self.cursor.remaining()));
        };
        let record = read_record_body(body, &self.context)?;
        if self.remaining == 0 && self.cursor.remaining() != 0 {
            return Err(STILL_REMAINING);
        }
        Ok(record)
    }
}

/// A size that is cut off is an invalid record; one of more than five bytes the reference answers with
/// UNKNOWN_SERVER_ERROR.
#[cold]
fn unreadable_size(remaining: usize) -> RecordError {
    if remaining < 5 {
        return PREMATURE_EOF;
    }
    RecordError::Codec(CodecError::Malformed("Size of a record has more than five bytes".into()))
}

#[cold]
fn body_does_not_fit(size: i32, remaining: usize) -> RecordError {
    if size < 0 {
        return RecordError::Invalid(format!("Record has a size of {size}").into());
    }
    let message = format!("Record has a size of {size}, but {remaining} bytes of the batch remain");
    RecordError::Invalid(message.into())
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<Record<'a>, RecordError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.inner {
            Inner::Default(iter) => {
                iter.remaining = iter.remaining.checked_sub(1)?;
                let result = iter.read();
                if result.is_err() {
                    iter.remaining = 0;
                }
                Some(result)
            }
            Inner::Legacy(iter) => iter.next(),
        }
    }
}

/// A record that owns its bytes: slices of its batch (or of the decompressed batch), not copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRecord {
    pub offset: i64,
    pub timestamp: i64,
    pub sequence: i32,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<OwnedHeader>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedHeader {
    pub key: String,
    pub value: Option<Bytes>,
}

impl OwnedRecord {
    /// `owner` must be the buffer that `record` was read from.
    pub(crate) fn of(record: &Record<'_>, owner: &Bytes) -> OwnedRecord {
        let own = |slice: Option<&[u8]>| slice.map(|slice| owner.slice_ref(slice));
        OwnedRecord {
            offset: record.offset,
            timestamp: record.timestamp,
            sequence: record.sequence,
            key: own(record.key),
            value: own(record.value),
            headers: record
                .headers
                .iter()
                .map(|header| OwnedHeader { key: header.key_lossy().into_owned(), value: own(header.value) })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_wrap_at_the_largest_int() {
        assert_eq!(increment_sequence(i32::MAX, 1), 0);
        assert_eq!(increment_sequence(i32::MAX - 1, 3), 1);
        assert_eq!(increment_sequence(5, 7), 12);
        assert_eq!(decrement_sequence(0, 1), i32::MAX);
        assert_eq!(decrement_sequence(12, 7), 5);
    }
}
