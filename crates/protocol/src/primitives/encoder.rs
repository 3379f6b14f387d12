//! `Encoder`: writes one message; records and large byte arrays are spliced in, not copied.
//!
//! Invariants: splices are ordered by their place in the buffer. The first error is kept and reported by `status`
//! and the `finish` calls, so that generated code stays straight-line; after an error the bytes mean nothing.

use bytes::{BufMut, Bytes, BytesMut};

use super::{EncodeError, MAX_STRING_LENGTH, Uuid, Wire};

/// Byte arrays from this size on are spliced; below it, one copy is cheaper than one more chunk to send.
const SPLICE_FROM: usize = 1024;

/// Record batches: in memory, or a slice of something the shell can send without reading it (a file).
#[derive(Clone, Debug, PartialEq)]
pub enum Records {
    Bytes(Bytes),
    External { token: u64, len: u32 },
}

impl Records {
    pub fn len(&self) -> usize {
        match self {
            Records::Bytes(bytes) => bytes.len(),
            Records::External { len, .. } => *len as usize,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, when they are in memory.
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Records::Bytes(bytes) => Some(bytes),
            Records::External { .. } => None,
        }
    }
}

impl From<Bytes> for Records {
    fn from(bytes: Bytes) -> Records {
        Records::Bytes(bytes)
    }
}

/// A part of an encoded message.
#[derive(Clone, Debug, PartialEq)]
pub enum Chunk {
    Bytes(Bytes),
    External { token: u64, len: u32 },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Encoded {
    pub chunks: Vec<Chunk>,
    pub total_len: usize,
}

#[derive(Debug)]
struct Splice {
    at: usize,
    records: Records,
}

/// The tagged fields of one struct while they are written.
#[derive(Debug)]
pub struct Tags {
    at: usize,
    count: u8,
}

#[derive(Debug, Default)]
pub struct Encoder {
    buf: BytesMut,
    splices: Vec<Splice>,
    spliced_len: usize,
    error: Option<EncodeError>,
}

impl Encoder {
    pub fn new() -> Encoder {
        Encoder::default()
    }

    pub fn with_capacity(capacity: usize) -> Encoder {
        Encoder { buf: BytesMut::with_capacity(capacity), ..Encoder::default() }
    }

    /// Bytes written so far, spliced ones included.
    pub fn len(&self) -> usize {
        self.buf.len() + self.spliced_len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first error, if there was one.
    pub fn status(&self) -> Result<(), EncodeError> {
        self.error.map_or(Ok(()), Err)
    }

    #[cold]
    pub fn fail(&mut self, error: EncodeError) {
        self.error.get_or_insert(error);
    }

    pub fn finish(mut self) -> Result<Encoded, EncodeError> {
        self.status()?;
        let total_len = self.len();
        let mut chunks = Vec::with_capacity(2 * self.splices.len() + 1);
        let mut start = 0;
        for splice in self.splices {
            if splice.at > start {
                chunks.push(Chunk::Bytes(self.buf.split_to(splice.at - start).freeze()));
                start = splice.at;
            }
            chunks.push(match splice.records {
                Records::Bytes(bytes) => Chunk::Bytes(bytes),
                Records::External { token, len } => Chunk::External { token, len },
            });
        }
        if !self.buf.is_empty() {
            chunks.push(Chunk::Bytes(self.buf.freeze()));
        }
        Ok(Encoded { chunks, total_len })
    }

    /// The message as one slice; spliced bytes are copied.
    pub fn finish_contiguous(self) -> Result<Bytes, EncodeError> {
        self.status()?;
        if self.splices.is_empty() {
            return Ok(self.buf.freeze());
        }
        let mut out = BytesMut::with_capacity(self.len());
        for chunk in self.finish()?.chunks {
            match chunk {
                Chunk::Bytes(bytes) => out.put_slice(&bytes),
                Chunk::External { .. } => return Err(EncodeError::ExternalRecords),
            }
        }
        Ok(out.freeze())
    }

    pub fn bool(&mut self, value: bool) {
        self.buf.put_u8(u8::from(value));
    }

    pub fn i8(&mut self, value: i8) {
        self.buf.put_i8(value);
    }

    pub fn i16(&mut self, value: i16) {
        self.buf.put_i16(value);
    }

    pub fn u16(&mut self, value: u16) {
        self.buf.put_u16(value);
    }

    pub fn i32(&mut self, value: i32) {
        self.buf.put_i32(value);
    }

    pub fn u32(&mut self, value: u32) {
        self.buf.put_u32(value);
    }

    pub fn i64(&mut self, value: i64) {
        self.buf.put_i64(value);
    }

    pub fn f64(&mut self, value: f64) {
        self.buf.put_f64(value);
    }

    pub fn uuid(&mut self, value: Uuid) {
        self.buf.put_slice(&value.0);
    }

    /// Bytes as they are, without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buf.put_slice(bytes);
    }

    pub fn unsigned_varint(&mut self, value: u32) {
        self.unsigned_varlong(u64::from(value));
    }

    pub fn unsigned_varlong(&mut self, mut value: u64) {
        while value > 0x7f {
            self.buf.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.buf.put_u8(value as u8);
    }

    pub fn varint(&mut self, value: i32) {
        self.unsigned_varint(((value << 1) ^ (value >> 31)) as u32);
    }

    pub fn varlong(&mut self, value: i64) {
        self.unsigned_varlong(((value << 1) ^ (value >> 63)) as u64);
    }

    fn length(&mut self, compact: bool, length: usize) {
        match i32::try_from(length) {
            Ok(length) if compact && length < i32::MAX => self.unsigned_varint(length as u32 + 1),
            Ok(length) if !compact => self.i32(length),
            _ => self.fail(EncodeError::TooLong { length }),
        }
    }

    fn null(&mut self, compact: bool, nullable: bool) {
        if !nullable {
            self.fail(EncodeError::UnexpectedNull);
        } else if compact {
            self.buf.put_u8(0);
        } else {
            self.i32(-1);
        }
    }

    pub fn string(&mut self, compact: bool, value: &str) {
        if value.len() > MAX_STRING_LENGTH {
            return self.fail(EncodeError::TooLong { length: value.len() });
        }
        if compact {
            self.unsigned_varint(value.len() as u32 + 1);
        } else {
            self.i16(value.len() as i16);
        }
        self.raw(value.as_bytes());
    }

    pub fn opt_string(&mut self, compact: bool, nullable: bool, value: Option<&str>) {
        match value {
            Some(value) => self.string(compact, value),
            None if nullable && !compact => self.i16(-1),
            None => self.null(compact, nullable),
        }
    }

    pub fn bytes(&mut self, compact: bool, value: &Bytes) {
        self.length(compact, value.len());
        if value.len() < SPLICE_FROM {
            self.raw(value);
        } else {
            self.splice(Records::Bytes(value.clone()));
        }
    }

    pub fn opt_bytes(&mut self, compact: bool, nullable: bool, value: Option<&Bytes>) {
        match value {
            Some(value) => self.bytes(compact, value),
            None => self.null(compact, nullable),
        }
    }

    fn splice(&mut self, records: Records) {
        self.spliced_len += records.len();
        self.splices.push(Splice { at: self.buf.len(), records });
    }

    pub fn records(&mut self, compact: bool, nullable: bool, value: Option<&Records>) {
        match value {
            Some(Records::Bytes(bytes)) => self.bytes(compact, bytes),
            Some(external) => {
                self.length(compact, external.len());
                if !external.is_empty() {
                    self.splice(external.clone());
                }
            }
            None => self.null(compact, nullable),
        }
    }

    pub fn array<T>(&mut self, compact: bool, values: &[T], mut element: impl FnMut(&mut Encoder, &T)) {
        self.length(compact, values.len());
        for value in values {
            element(self, value);
        }
    }

    pub fn opt_array<T>(
        &mut self,
        compact: bool,
        nullable: bool,
        values: Option<&[T]>,
        element: impl FnMut(&mut Encoder, &T),
    ) {
        match values {
            Some(values) => self.array(compact, values, element),
            None => self.null(compact, nullable),
        }
    }

    pub fn structs<T: Wire>(&mut self, compact: bool, version: i16, values: &[T]) {
        self.array(compact, values, |w, value| value.write(w, version));
    }

    pub fn opt_structs<T: Wire>(
        &mut self,
        compact: bool,
        nullable: bool,
        version: i16,
        values: Option<&[T]>,
    ) {
        self.opt_array(compact, nullable, values, |w, value| value.write(w, version));
    }

    pub fn opt_struct<T: Wire>(&mut self, nullable: bool, version: i16, value: Option<&T>) {
        match value {
            Some(value) => {
                if nullable {
                    self.i8(1);
                }
                value.write(self, version);
            }
            None if nullable => self.i8(-1),
            None => self.fail(EncodeError::UnexpectedNull),
        }
    }

    /// A nullable struct in a tagged field: there the marker is a varint, and zero is null.
    pub fn tagged_struct<T: Wire>(&mut self, version: i16, value: Option<&T>) {
        self.unsigned_varint(u32::from(value.is_some()));
        if let Some(value) = value {
            value.write(self, version);
        }
    }

    /// Refuses a value that this version cannot carry.
    pub fn require_default(&mut self, is_default: bool, field: &'static str, version: i16) {
        if !is_default {
            self.fail(EncodeError::UnsupportedField { field, version });
        }
    }

    /// Starts the tagged fields of a struct; their number is known at `tags_end`.
    pub fn tags_start(&mut self) -> Tags {
        let at = self.buf.len();
        self.buf.put_u8(0);
        Tags { at, count: 0 }
    }

    /// One tagged field; call in ascending order of tags.
    pub fn tag(&mut self, tags: &mut Tags, tag: u32, body: impl FnOnce(&mut Encoder)) {
        tags.count += 1;
        self.unsigned_varint(tag);
        let at = self.buf.len();
        let spliced_before = self.spliced_len;
        body(self);
        let size = self.buf.len() - at + (self.spliced_len - spliced_before);
        self.insert_size(at, size);
    }

    /// Puts the size of a tagged field in front of it. Fields are short: moving them costs less than sizing twice.
    fn insert_size(&mut self, at: usize, size: usize) {
        let mut prefix = [0_u8; 5];
        let mut length = 0;
        let mut rest = size;
        for slot in &mut prefix {
            length += 1;
            *slot = (rest & 0x7f) as u8;
            rest >>= 7;
            if rest == 0 {
                break;
            }
            *slot |= 0x80;
        }
        if rest != 0 || size > i32::MAX as usize {
            return self.fail(EncodeError::TooLong { length: size });
        }
        let end = self.buf.len();
        self.buf.resize(end + length, 0);
        self.buf.copy_within(at..end, at + length);
        self.buf[at..at + length].copy_from_slice(&prefix[..length]);
        for splice in self.splices.iter_mut().rev().take_while(|splice| splice.at >= at) {
            splice.at += length;
        }
    }

    pub fn tags_end(&mut self, tags: Tags) {
        self.buf[tags.at] = tags.count;
    }

    /// Tagged fields of a struct that has none.
    pub fn no_tags(&mut self) {
        self.buf.put_u8(0);
    }
}
