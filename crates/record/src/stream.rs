//! Records of a compressed v2 batch read through a window, so that a batch that swells to gigabytes costs its checks
//! a few kilobytes of memory.
//!
//! Two ways to read, with the reference's two strictnesses: [`RecordStream::next_record`] checks all of a record and
//! shows it; [`RecordStream::next_partial`] skips keys and values and, as the reference does, follows the inner
//! lengths without comparing them with the record's own size.

use std::io::Read;

use crate::batch::BatchHeader;
use crate::codec::CodecError;
use crate::error::RecordError;
use crate::record::{PREMATURE_EOF, Record, RecordContext, STILL_REMAINING, read_record_body, record_count};
use crate::varint::{size_of_varint, zigzag_decode_32, zigzag_decode_64};

/// Bytes of the window before one large record makes it grow.
const WINDOW_SIZE: usize = 64 << 10;

const INVALID_STRUCTURE: RecordError = RecordError::invalid("Record is cut off or malformed");

/// What is known of a record whose key, value and headers were skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialRecord {
    pub offset: i64,
    pub timestamp: i64,
    pub sequence: i32,
    /// Negative: null.
    pub key_size: i32,
    pub value_size: i32,
    pub size_in_bytes: usize,
}

/// A reader of one batch. Ends after the batch's count of records or the first error.
pub struct RecordStream<'a> {
    reader: Box<dyn Read + 'a>,
    /// `window[start..end]` is read but not yet used.
    window: &'a mut Vec<u8>,
    start: usize,
    end: usize,
    context: RecordContext,
    remaining: u32,
    max_record_body_size: usize,
    /// Largest record that is brought into memory as a whole.
    max_window_size: usize,
}

impl<'a> RecordStream<'a> {
    pub(crate) fn new(
        header: &BatchHeader,
        reader: Box<dyn Read + 'a>,
        window: &'a mut Vec<u8>,
        max_record_body_size: usize,
    ) -> Result<RecordStream<'a>, RecordError> {
        let remaining = record_count(header)?;
        if window.len() < WINDOW_SIZE {
            window.resize(WINDOW_SIZE, 0);
        }
        let context = RecordContext::of(header);
        let max_window_size = max_record_body_size;
        Ok(RecordStream {
            reader,
            window,
            start: 0,
            end: 0,
            context,
            remaining,
            max_record_body_size,
            max_window_size,
        })
    }

    /// Makes [`next_record`](Self::next_record) fail with [`CodecError::TooLarge`] at a larger record, which
    /// [`next_partial`](Self::next_partial) would still skip.
    pub fn limit_window(mut self, max_window_size: usize) -> RecordStream<'a> {
        self.max_window_size = max_window_size;
        self
    }

    /// The next record, completely checked. Its bytes live until the next call.
    pub fn next_record(&mut self) -> Option<Result<Record<'_>, RecordError>> {
        self.remaining = self.remaining.checked_sub(1)?;
        let (from, to) = match self.read_body() {
            Ok(range) => range,
            Err(error) => return Some(Err(self.end_with(error))),
        };
        let body = self.window.get(from..to).unwrap_or_default();
        let record = match read_record_body(body, &self.context) {
            Ok(record) => record,
            Err(error) => {
                self.remaining = 0;
                return Some(Err(error));
            }
        };
        if self.remaining == 0 {
            // The record is judged before the end, as in the reference. Looking for more leaves the window as it is.
            let rest = if self.start < self.end { Ok(true) } else { has_more(&mut self.reader) };
            match rest {
                Ok(false) => {}
                Ok(true) => return Some(Err(STILL_REMAINING)),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(record))
    }

    fn end_with(&mut self, error: RecordError) -> RecordError {
        self.remaining = 0;
        error
    }

    /// The next record without its contents.
    pub fn next_partial(&mut self) -> Option<Result<PartialRecord, RecordError>> {
        self.remaining = self.remaining.checked_sub(1)?;
        let result = self.read_partial().and_then(|record| {
            self.check_end()?;
            Ok(record)
        });
        if result.is_err() {
            self.remaining = 0;
        }
        Some(result)
    }

    /// Brings one record into the window; answers where its body stands.
    fn read_body(&mut self) -> Result<(usize, usize), RecordError> {
        let size = self.read_size()?;
        if size > self.max_window_size {
            return Err(CodecError::TooLarge { limit: self.max_window_size }.into());
        }
        while self.end - self.start < size {
            if !self.fill()? {
                let message =
                    format!("Record has a size of {size}, but the decompressed batch ends within it");
                return Err(RecordError::Invalid(message.into()));
            }
        }
        self.start += size;
        Ok((self.start - size, self.start))
    }

    fn check_end(&mut self) -> Result<(), RecordError> {
        if self.remaining != 0 {
            return Ok(());
        }
        if self.start < self.end || has_more(&mut self.reader)? {
            return Err(STILL_REMAINING);
        }
        Ok(())
    }

    fn read_size(&mut self) -> Result<usize, RecordError> {
        let size = self.varint()?.ok_or(PREMATURE_EOF)?;
        let Ok(length) = usize::try_from(size) else {
            return Err(RecordError::Invalid(format!("Record has a size of {size}").into()));
        };
        if length > self.max_record_body_size {
            let limit = self.max_record_body_size;
            let message =
                format!("Record has a size of {size}, max.decompressed.message.bytes allows {limit}");
            return Err(RecordError::Invalid(message.into()));
        }
        Ok(length)
    }

    fn read_partial(&mut self) -> Result<PartialRecord, RecordError> {
        let body = self.read_size()?;
        self.byte()?.ok_or(INVALID_STRUCTURE)?; // attributes
        let timestamp_delta = self.varlong()?.ok_or(INVALID_STRUCTURE)?;
        let offset_delta = self.varint()?.ok_or(INVALID_STRUCTURE)?;
        let key_size = self.varint()?.ok_or(INVALID_STRUCTURE)?;
        self.skip(key_size)?;
        let value_size = self.varint()?.ok_or(INVALID_STRUCTURE)?;
        self.skip(value_size)?;
        let header_count = self.varint()?.ok_or(INVALID_STRUCTURE)?;
        if header_count < 0 {
            let message = format!("Record has a header count of {header_count}");
            return Err(RecordError::Invalid(message.into()));
        }
        for _ in 0..header_count {
            let key_size = self.varint()?.ok_or(INVALID_STRUCTURE)?;
            if key_size < 0 {
                let message = format!("Header name has a size of {key_size}");
                return Err(RecordError::Invalid(message.into()));
            }
            self.skip(key_size)?;
            let value_size = self.varint()?.ok_or(INVALID_STRUCTURE)?;
            self.skip(value_size)?;
        }
        Ok(PartialRecord {
            offset: self.context.offset(offset_delta),
            timestamp: self.context.timestamp(timestamp_delta),
            sequence: self.context.sequence(offset_delta),
            key_size,
            value_size,
            size_in_bytes: body + size_of_varint(body as i32),
        })
    }

    #[inline]
    fn byte(&mut self) -> Result<Option<u8>, RecordError> {
        if self.start == self.end && !self.fill()? {
            return Ok(None);
        }
        let byte = self.window.get(self.start).copied();
        self.start += 1;
        Ok(byte)
    }

    /// `None`: the end came first, or the varint is too long.
    #[inline]
    fn varint(&mut self) -> Result<Option<i32>, RecordError> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let Some(byte) = self.byte()? else { return Ok(None) };
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(Some(zigzag_decode_32(value)));
            }
        }
        Ok(None)
    }

    #[inline]
    fn varlong(&mut self) -> Result<Option<i64>, RecordError> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28, 35, 42, 49, 56, 63] {
            let Some(byte) = self.byte()? else { return Ok(None) };
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(Some(zigzag_decode_64(value)));
            }
        }
        Ok(None)
    }

    /// Skips that many bytes; a negative size (null) is none.
    #[inline]
    fn skip(&mut self, size: i32) -> Result<(), RecordError> {
        let mut left = usize::try_from(size).unwrap_or(0);
        loop {
            let step = left.min(self.end - self.start);
            self.start += step;
            left -= step;
            if left == 0 {
                return Ok(());
            }
            if !self.fill()? {
                let message = format!("Decompressed batch ends {left} bytes before a record does");
                return Err(RecordError::Invalid(message.into()));
            }
        }
    }

    /// Reads more into the window, growing it when it is full. `false`: the end.
    #[cold]
    fn fill(&mut self) -> Result<bool, RecordError> {
        if self.start > 0 {
            self.window.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.window.len() {
            // Doubles as bytes arrive: a record that only claims to be large costs nothing.
            self.window.resize(self.window.len() * 2, 0);
        }
        let free = self.window.get_mut(self.end..).unwrap_or_default();
        let count = read_some(&mut self.reader, free)?;
        self.end += count;
        Ok(count > 0)
    }
}

/// Whether a byte follows; it is lost.
fn has_more(reader: &mut dyn Read) -> Result<bool, RecordError> {
    read_some(reader, &mut [0]).map(|count| count > 0)
}

fn read_some(reader: &mut dyn Read, buffer: &mut [u8]) -> Result<usize, RecordError> {
    loop {
        match reader.read(buffer) {
            Ok(count) => return Ok(count.min(buffer.len())),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CodecError::Malformed(error.to_string().into()).into()),
        }
    }
}

impl std::fmt::Debug for RecordStream<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordStream").field("remaining", &self.remaining).finish_non_exhaustive()
    }
}
