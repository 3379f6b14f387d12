//! Variable-length integers (zigzag, base 128) and a cursor over a slice that answers `None` instead of panicking.
//!
//! Accepts exactly what the reference accepts: a varint of at most five bytes whose surplus high bits are dropped, a
//! varlong of at most ten.

/// A read position in a slice. Every read either advances or answers `None`; after a `None` the position is
/// unspecified and the caller gives up.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: bytes }
    }

    #[inline]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    #[inline]
    pub fn i8(&mut self) -> Option<i8> {
        self.u8().map(|byte| byte as i8)
    }

    #[inline]
    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*chunk)
    }

    #[inline]
    pub fn i16(&mut self) -> Option<i16> {
        self.chunk().map(i16::from_be_bytes)
    }

    #[inline]
    pub fn i32(&mut self) -> Option<i32> {
        self.chunk().map(i32::from_be_bytes)
    }

    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_be_bytes)
    }

    #[inline]
    pub fn i64(&mut self) -> Option<i64> {
        self.chunk().map(i64::from_be_bytes)
    }

    #[inline]
    pub fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    /// Bytes behind a varint length; a negative length is null.
    #[inline]
    pub fn nullable_varint_bytes(&mut self) -> Option<Option<&'a [u8]>> {
        match usize::try_from(self.varint()?) {
            Ok(length) => Some(Some(self.bytes(length)?)),
            Err(_) => Some(None),
        }
    }

    #[inline]
    pub fn unsigned_varint(&mut self) -> Option<u32> {
        let first = self.u8()?;
        if first < 0x80 {
            return Some(u32::from(first));
        }
        let second = self.u8()?;
        let mut value = u32::from(first & 0x7f) | u32::from(second & 0x7f) << 7;
        if second < 0x80 {
            return Some(value);
        }
        for shift in [14, 21, 28] {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    #[inline]
    pub fn varint(&mut self) -> Option<i32> {
        self.unsigned_varint().map(zigzag_decode_32)
    }

    #[inline]
    pub fn varlong(&mut self) -> Option<i64> {
        let first = self.u8()?;
        let mut value = u64::from(first & 0x7f);
        if first < 0x80 {
            return Some(zigzag_decode_64(value));
        }
        for shift in [7, 14, 21, 28, 35, 42, 49, 56, 63] {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(zigzag_decode_64(value));
            }
        }
        None
    }
}

#[inline]
pub(crate) fn zigzag_decode_32(value: u32) -> i32 {
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

#[inline]
pub(crate) fn zigzag_decode_64(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[inline]
fn zigzag_encode_32(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

#[inline]
fn zigzag_encode_64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[inline]
pub fn write_varint(out: &mut Vec<u8>, value: i32) {
    write_unsigned(out, u64::from(zigzag_encode_32(value)));
}

#[inline]
pub fn write_varlong(out: &mut Vec<u8>, value: i64) {
    write_unsigned(out, zigzag_encode_64(value));
}

#[inline]
fn write_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
pub fn size_of_varint(value: i32) -> usize {
    size_of_unsigned(u64::from(zigzag_encode_32(value)))
}

#[inline]
pub fn size_of_varlong(value: i64) -> usize {
    size_of_unsigned(zigzag_encode_64(value))
}

#[inline]
fn size_of_unsigned(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_know_their_size() {
        for value in [0, -1, 1, 63, 64, -64, -65, 8191, 8192, 1 << 20, i32::MAX, i32::MIN] {
            let mut out = Vec::new();
            write_varint(&mut out, value);
            assert_eq!(out.len(), size_of_varint(value), "{value}");
            assert_eq!(Cursor::new(&out).varint(), Some(value));
            let mut long = Vec::new();
            write_varlong(&mut long, i64::from(value));
            assert_eq!(Cursor::new(&long).varlong(), Some(i64::from(value)));
        }
        for value in [i64::MAX, i64::MIN, 1 << 34, -(1 << 48)] {
            let mut out = Vec::new();
            write_varlong(&mut out, value);
            assert_eq!(out.len(), size_of_varlong(value), "{value}");
            assert_eq!(Cursor::new(&out).varlong(), Some(value));
        }
    }

    #[test]
    fn too_long_or_cut_off_is_none() {
        assert_eq!(Cursor::new(&[0xff; 5]).varint(), None);
        assert_eq!(Cursor::new(&[0xff; 10]).varlong(), None);
        assert_eq!(Cursor::new(&[0x80]).varint(), None);
        assert_eq!(Cursor::new(&[]).varlong(), None);
        assert_eq!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x7f]).varint(), Some(i32::MIN));
    }
}
