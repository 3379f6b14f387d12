//! `Decoder`: reads one message out of a `Bytes` without copying byte arrays or records.
//!
//! Invariants: `position <= limit <= data.len()`; every length is compared with what remains before anything is
//! allocated, so the memory of a decoded message is bounded by a constant times the bytes received.

use bytes::Bytes;

use super::{DecodeError, MAX_STRING_LENGTH, Records, Uuid, Wire};

/// What an array's vector may reserve before its elements have been seen; beyond it, it grows as they arrive.
const MAX_INITIAL_ARRAY_BYTES: usize = 64 * 1024;

/// The reference refuses an array with more elements.
const MAX_ARRAY_COUNT: usize = 1_000_000;

/// The reference refuses a struct with more tagged fields.
const MAX_TAGS: usize = 10_000;

/// A tag and its size take at least this many bytes each.
const MIN_TAG_SIZE: usize = 2;

#[derive(Clone, Debug)]
pub struct Decoder {
    data: Bytes,
    position: usize,
    limit: usize,
}

impl Decoder {
    pub fn new(data: Bytes) -> Decoder {
        let limit = data.len();
        Decoder { data, position: 0, limit }
    }

    pub fn position(&self) -> usize {
        self.position
    }

    pub fn remaining(&self) -> usize {
        self.limit - self.position
    }

    /// Fails when bytes remain.
    pub fn expect_end(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            remaining => Err(DecodeError::TrailingBytes { remaining }),
        }
    }

    /// Everything that remains, without copying.
    pub fn take_rest(&mut self) -> Bytes {
        let rest = self.data.slice(self.position..self.limit);
        self.position = self.limit;
        rest
    }

    #[cold]
    fn underflow(&self, needed: usize) -> DecodeError {
        DecodeError::Underflow { position: self.position, needed, remaining: self.remaining() }
    }

    #[cold]
    fn invalid_length(&self, length: i64) -> DecodeError {
        DecodeError::InvalidLength { position: self.position, length }
    }

    #[cold]
    fn null(&self) -> DecodeError {
        DecodeError::UnexpectedNull { position: self.position }
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = self.data.get(self.position..self.limit).and_then(|rest| rest.first_chunk::<N>());
        let bytes = *bytes.ok_or_else(|| self.underflow(N))?;
        self.position += N;
        Ok(bytes)
    }

    fn slice(&mut self, length: usize) -> Result<&[u8], DecodeError> {
        if length > self.remaining() {
            return Err(self.underflow(length));
        }
        let start = self.position;
        self.position += length;
        Ok(self.data.get(start..start + length).unwrap_or_default())
    }

    /// The next `length` bytes, without copying.
    pub fn take(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        if length > self.remaining() {
            return Err(self.underflow(length));
        }
        let start = self.position;
        self.position += length;
        Ok(self.data.slice(start..start + length))
    }

    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.i8()? != 0)
    }

    pub fn i8(&mut self) -> Result<i8, DecodeError> {
        self.fixed().map(i8::from_be_bytes)
    }

    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        self.fixed().map(i16::from_be_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.fixed().map(u16::from_be_bytes)
    }

    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.fixed().map(i32::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.fixed().map(u32::from_be_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.fixed().map(i64::from_be_bytes)
    }

    pub fn f64(&mut self) -> Result<f64, DecodeError> {
        self.fixed().map(f64::from_be_bytes)
    }

    pub fn uuid(&mut self) -> Result<Uuid, DecodeError> {
        self.fixed().map(Uuid)
    }

    /// Seven bits a byte, the lowest first; at most five bytes. Bits above the 32nd are dropped, as Java does.
    pub fn unsigned_varint(&mut self) -> Result<u32, DecodeError> {
        let start = self.position;
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.fixed()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::InvalidVarint { position: start })
    }

    pub fn unsigned_varlong(&mut self) -> Result<u64, DecodeError> {
        let start = self.position;
        let mut value = 0_u64;
        for shift in [0, 7, 14, 21, 28, 35, 42, 49, 56, 63] {
            let [byte] = self.fixed()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::InvalidVarint { position: start })
    }

    /// Zigzag: small negative numbers are short as well.
    pub fn varint(&mut self) -> Result<i32, DecodeError> {
        let raw = self.unsigned_varint()?;
        Ok((raw >> 1) as i32 ^ -((raw & 1) as i32))
    }

    pub fn varlong(&mut self) -> Result<i64, DecodeError> {
        let raw = self.unsigned_varlong()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// The length before a compact (length + 1 as varint) or classic value; `None` is null.
    fn length(&mut self, compact: bool, short: bool) -> Result<Option<usize>, DecodeError> {
        let length = if compact {
            i64::from(self.unsigned_varint()? as i32) - 1
        } else if short {
            i64::from(self.i16()?)
        } else {
            i64::from(self.i32()?)
        };
        match usize::try_from(length) {
            Ok(length) => Ok(Some(length)),
            Err(_) if length >= -1 || !compact => Ok(None),
            Err(_) => Err(self.invalid_length(length)),
        }
    }

    pub fn opt_string(&mut self, compact: bool, nullable: bool) -> Result<Option<String>, DecodeError> {
        let Some(length) = self.length(compact, true)? else {
            return if nullable { Ok(None) } else { Err(self.null()) };
        };
        if length > MAX_STRING_LENGTH {
            return Err(self.invalid_length(length as i64));
        }
        // Malformed UTF-8 is replaced, not refused: so does Java.
        Ok(Some(String::from_utf8_lossy(self.slice(length)?).into_owned()))
    }

    pub fn string(&mut self, compact: bool) -> Result<String, DecodeError> {
        self.opt_string(compact, false)?.ok_or_else(|| self.null())
    }

    pub fn opt_bytes(&mut self, compact: bool, nullable: bool) -> Result<Option<Bytes>, DecodeError> {
        match self.length(compact, false)? {
            Some(length) => self.take(length).map(Some),
            None if nullable => Ok(None),
            None => Err(self.null()),
        }
    }

    pub fn bytes(&mut self, compact: bool) -> Result<Bytes, DecodeError> {
        self.opt_bytes(compact, false)?.ok_or_else(|| self.null())
    }

    pub fn records(&mut self, compact: bool, nullable: bool) -> Result<Option<Records>, DecodeError> {
        Ok(self.opt_bytes(compact, nullable)?.map(Records::Bytes))
    }

    /// The count of an array whose elements take at least `min_size` bytes each.
    fn count(&mut self, compact: bool, min_size: usize) -> Result<Option<usize>, DecodeError> {
        let count = self.length(compact, false)?;
        let most = MAX_ARRAY_COUNT.min(self.remaining() / min_size.max(1));
        match count {
            Some(count) if count > most => Err(self.invalid_length(count as i64)),
            count => Ok(count),
        }
    }

    pub fn opt_array<T>(
        &mut self,
        compact: bool,
        nullable: bool,
        min_size: usize,
        mut element: impl FnMut(&mut Decoder) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let Some(count) = self.count(compact, min_size)? else {
            return if nullable { Ok(None) } else { Err(self.null()) };
        };
        let mut out = Vec::with_capacity(count.min(MAX_INITIAL_ARRAY_BYTES / size_of::<T>().max(1) + 1));
        for _ in 0..count {
            out.push(element(self)?);
        }
        Ok(Some(out))
    }

    pub fn array<T>(
        &mut self,
        compact: bool,
        min_size: usize,
        element: impl FnMut(&mut Decoder) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        Ok(self.opt_array(compact, false, min_size, element)?.unwrap_or_default())
    }

    pub fn structs<T: Wire>(&mut self, compact: bool, version: i16) -> Result<Vec<T>, DecodeError> {
        self.array(compact, T::MIN_SIZE, |r| T::read(r, version))
    }

    pub fn opt_structs<T: Wire>(
        &mut self,
        compact: bool,
        nullable: bool,
        version: i16,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        self.opt_array(compact, nullable, T::MIN_SIZE, |r| T::read(r, version))
    }

    /// A nullable struct: a byte below zero is null.
    pub fn opt_struct<T: Wire>(&mut self, nullable: bool, version: i16) -> Result<Option<T>, DecodeError> {
        if nullable && self.i8()? < 0 {
            return Ok(None);
        }
        T::read(self, version).map(Some)
    }

    /// A nullable struct in a tagged field: there the marker is a varint, and zero is null.
    pub fn tagged_struct<T: Wire>(&mut self, version: i16) -> Result<Option<T>, DecodeError> {
        if self.unsigned_varint()? == 0 {
            return Ok(None);
        }
        T::read(self, version).map(Some)
    }

    /// Reads tagged fields. What `known` leaves unread is skipped.
    pub fn tags(
        &mut self,
        known: &mut dyn FnMut(&mut Decoder, u32) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        let count = self.unsigned_varint()? as usize;
        if count > MAX_TAGS || count > self.remaining() / MIN_TAG_SIZE {
            return Err(self.invalid_length(count as i64));
        }
        for _ in 0..count {
            let tag = self.unsigned_varint()?;
            let size = self.unsigned_varint()? as usize;
            if size > self.remaining() {
                return Err(self.underflow(size));
            }
            let end = self.position + size;
            let outer = std::mem::replace(&mut self.limit, end);
            known(self, tag)?;
            self.position = end;
            self.limit = outer;
        }
        Ok(())
    }

    /// Tagged fields of a struct that knows none.
    pub fn skip_tags(&mut self) -> Result<(), DecodeError> {
        self.tags(&mut |_, _| Ok(()))
    }
}
