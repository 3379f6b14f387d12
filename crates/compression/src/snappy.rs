//! snappy: written in the frames of xerial's `SnappyOutputStream` (32 KiB blocks), read in those frames or raw.
//!
//! Frame: an 8-byte magic, version and least compatible version (4 bytes each, big-endian), then blocks of a 4-byte
//! length and raw snappy. A stream may consist of several such streams.

use record::CodecError;
use std::io::{self, Read};

use crate::{Pool, invalid, put_block, take_block, take_from};

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// The first half of the magic, where a block's length would stand.
const MAGIC_HEAD: u32 = 0x8253_4e41;
const HEADER_SIZE: usize = 16;
const VERSION: u32 = 1;
const BLOCK_SIZE: usize = 32 << 10;
/// Three bytes of snappy give at most 64: a longer claim is a lie, refused before memory is taken for it.
const MAX_RATIO: usize = 22;

thread_local! {
    static ENCODERS: Pool<snap::raw::Encoder> = const { Pool::new() };
}

pub(crate) fn compress(source: &[u8], destination: &mut Vec<u8>) -> Result<(), CodecError> {
    destination.extend_from_slice(&MAGIC);
    destination.extend_from_slice(&VERSION.to_be_bytes());
    destination.extend_from_slice(&VERSION.to_be_bytes());
    let mut encoder = ENCODERS.with(Pool::take).unwrap_or_else(snap::raw::Encoder::new);
    for block in source.chunks(BLOCK_SIZE) {
        let length_at = destination.len();
        let start = length_at + 4;
        destination.resize(start + snap::raw::max_compress_len(block.len()), 0);
        let space = destination.get_mut(start..).unwrap_or_default();
        let written =
            encoder.compress(block, space).map_err(|e| CodecError::Malformed(e.to_string().into()))?;
        destination.truncate(start + written);
        if let Some(length) = destination.get_mut(length_at..start) {
            length.copy_from_slice(&(written as u32).to_be_bytes());
        }
    }
    let _ = ENCODERS.try_with(|pool| pool.put(encoder));
    Ok(())
}

pub(crate) struct SnappyReader<'a> {
    rest: &'a [u8],
    is_framed: bool,
    block: Vec<u8>,
    position: usize,
}

impl<'a> SnappyReader<'a> {
    pub(crate) fn new(source: &'a [u8]) -> io::Result<SnappyReader<'a>> {
        if source.is_empty() {
            return Err(invalid("snappy stream is empty"));
        }
        let framed = skip_header(source);
        let mut block = take_block();
        // What another stream left in it must never be read from this one.
        block.clear();
        Ok(SnappyReader { rest: framed.unwrap_or(source), is_framed: framed.is_some(), block, position: 0 })
    }

    /// Decompresses the next block; `false`: there is none.
    fn next_block(&mut self) -> io::Result<bool> {
        let compressed = if self.is_framed {
            let Some((length, rest)) = self.rest.split_first_chunk::<4>() else { return Ok(false) };
            let length = u32::from_be_bytes(*length);
            if length == MAGIC_HEAD {
                self.rest = skip_header(self.rest).ok_or_else(|| invalid("snappy header is broken"))?;
                self.block.clear();
                self.position = 0;
                return Ok(true);
            }
            let Some((compressed, rest)) = rest.split_at_checked(length as usize) else {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "snappy block is cut off"));
            };
            self.rest = rest;
            compressed
        } else {
            if self.rest.is_empty() {
                return Ok(false);
            }
            std::mem::take(&mut self.rest)
        };
        let size = snap::raw::decompress_len(compressed).map_err(invalid)?;
        if size > compressed.len().saturating_mul(MAX_RATIO) {
            return Err(invalid("snappy block claims an impossible length"));
        }
        self.block.resize(size, 0);
        self.position = 0;
        let written = snap::raw::Decoder::new().decompress(compressed, &mut self.block).map_err(invalid)?;
        self.block.truncate(written);
        Ok(true)
    }
}

impl Read for SnappyReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.position >= self.block.len() {
            if !self.next_block()? {
                return Ok(0);
            }
        }
        Ok(take_from(&self.block, &mut self.position, buffer))
    }
}

impl Drop for SnappyReader<'_> {
    fn drop(&mut self) {
        put_block(std::mem::take(&mut self.block));
    }
}

/// The bytes behind xerial's header; `None`: there is no such header, the bytes are raw snappy. The versions are not
/// looked at, as in xerial's reader.
fn skip_header(source: &[u8]) -> Option<&[u8]> {
    let (header, rest) = source.split_first_chunk::<HEADER_SIZE>()?;
    header.starts_with(&MAGIC).then_some(rest)
}
