//! lz4 frames as Kafka has them (KIP-57): independent blocks of at most 64 KiB, no checksums but the header's.
//!
//! The reader takes blocks up to 4 MiB, block checksums (checked), content size and content checksum (both passed
//! over, as in the reference), but no linked blocks. With message format v0 the header's checksum is computed wrongly
//! by old clients, over the magic too: it is written so and not looked at.

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use record::CodecError;
use std::io::{self, Read};
use twox_hash::XxHash32;

use crate::lz4_high::HighCompressor;
use crate::{Pool, invalid, put_block, take_block, take_from};

const MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();
/// Version 1, independent blocks.
const FLAGS: u8 = 0x60;
/// 64 KiB.
const BLOCK_DESCRIPTOR: u8 = 0x40;
const BLOCK_SIZE: usize = 64 << 10;
const UNCOMPRESSED: u32 = 1 << 31;

const FLAG_CONTENT_CHECKSUM: u8 = 0x04;
const FLAG_CONTENT_SIZE: u8 = 0x08;
const FLAG_BLOCK_CHECKSUM: u8 = 0x10;

thread_local! {
    static TABLES: Pool<CompressTable> = const { Pool::new() };
}

fn header_checksum(descriptor: &[u8]) -> u8 {
    (XxHash32::oneshot(0, descriptor) >> 8) as u8
}

/// The level at which the fast compressor works, as in the reference; others search harder, or less hard.
const DEFAULT_LEVEL: i32 = 9;

pub(crate) fn compress(
    magic: i8,
    level: i32,
    source: &[u8],
    destination: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let [a, b, c, d] = MAGIC;
    let header = [a, b, c, d, FLAGS, BLOCK_DESCRIPTOR];
    destination.extend_from_slice(&header);
    destination.push(header_checksum(if magic == 0 { &header } else { &header[4..] }));
    let mut table = TABLES.with(Pool::take).unwrap_or_else(CompressTable::large);
    let mut high = (level != DEFAULT_LEVEL).then(|| HighCompressor::new(level));
    for block in source.chunks(BLOCK_SIZE) {
        let length_at = destination.len();
        let start = length_at + 4;
        let written = if let Some(high) = &mut high {
            destination.resize(start, 0);
            high.compress(block, destination);
            destination.len() - start
        } else {
            destination.resize(start + get_maximum_output_size(block.len()), 0);
            let space = destination.get_mut(start..).unwrap_or_default();
            compress_into_with_table(block, space, &mut table)
                .map_err(|e| CodecError::Malformed(e.to_string().into()))?
        };
        let mut length = written as u32;
        if written < block.len() {
            destination.truncate(start + written);
        } else {
            destination.truncate(start);
            destination.extend_from_slice(block);
            length = block.len() as u32 | UNCOMPRESSED;
        }
        if let Some(space) = destination.get_mut(length_at..start) {
            space.copy_from_slice(&length.to_le_bytes());
        }
    }
    destination.extend_from_slice(&[0; 4]);
    let _ = TABLES.try_with(|pool| pool.put(table));
    Ok(())
}

pub(crate) struct Lz4Reader<'a> {
    rest: &'a [u8],
    flags: u8,
    max_block_size: usize,
    block: Vec<u8>,
    /// The current block is `block[position..length]`.
    position: usize,
    length: usize,
    is_finished: bool,
}

impl<'a> Lz4Reader<'a> {
    pub(crate) fn new(magic: i8, source: &'a [u8]) -> io::Result<Lz4Reader<'a>> {
        let rest = source
            .strip_prefix(&MAGIC)
            .ok_or_else(|| if source.len() < 6 { ends_early() } else { invalid("Not an lz4 frame") })?;
        let (&[flags, descriptor], mut after) = rest.split_first_chunk().ok_or_else(ends_early)?;
        let max_block_size = max_block_size(flags, descriptor)?;
        let mut descriptor_size = 2;
        if flags & FLAG_CONTENT_SIZE != 0 {
            after = after.get(8..).ok_or_else(ends_early)?;
            descriptor_size += 8;
        }
        let (checksum, after) = after.split_first().ok_or_else(ends_early)?;
        let descriptor = rest.get(..descriptor_size).unwrap_or_default();
        if magic != 0 && *checksum != header_checksum(descriptor) {
            return Err(invalid("lz4 frame header checksum does not match"));
        }
        Ok(Lz4Reader {
            rest: after,
            flags,
            max_block_size,
            block: take_block(),
            position: 0,
            length: 0,
            is_finished: false,
        })
    }

    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(ends_early)?;
        self.rest = rest;
        Ok(taken)
    }

    fn take_u32(&mut self) -> io::Result<u32> {
        let bytes = self.take(4)?;
        Ok(bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
    }

    fn next_block(&mut self) -> io::Result<()> {
        let header = self.take_u32()?;
        let size = (header & !UNCOMPRESSED) as usize;
        (self.position, self.length) = (0, 0);
        if size == 0 {
            self.is_finished = true;
            if self.flags & FLAG_CONTENT_CHECKSUM != 0 {
                self.take_u32()?;
            }
            return Ok(());
        }
        if size > self.max_block_size {
            let limit = self.max_block_size;
            return Err(invalid(format!("lz4 block of {size} bytes, the frame allows {limit}")));
        }
        let data = self.take(size)?;
        if self.flags & FLAG_BLOCK_CHECKSUM != 0 && self.take_u32()? != XxHash32::oneshot(0, data) {
            return Err(invalid("lz4 block checksum does not match"));
        }
        if self.block.len() < self.max_block_size {
            self.block.resize(self.max_block_size, 0);
        }
        let space = self.block.get_mut(..self.max_block_size).unwrap_or_default();
        if header & UNCOMPRESSED == 0 {
            self.length = decompress_into(data, space).map_err(|e| invalid(e.to_string()))?;
        } else if let Some(space) = space.get_mut(..size) {
            space.copy_from_slice(data);
            self.length = size;
        }
        Ok(())
    }
}

impl Read for Lz4Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.position >= self.length {
            if self.is_finished {
                return Ok(0);
            }
            self.next_block()?;
        }
        let block = self.block.get(..self.length).unwrap_or_default();
        Ok(take_from(block, &mut self.position, buffer))
    }
}

impl Drop for Lz4Reader<'_> {
    fn drop(&mut self) {
        put_block(std::mem::take(&mut self.block));
    }
}

fn max_block_size(flags: u8, descriptor: u8) -> io::Result<usize> {
    if flags & 0xe3 != FLAGS {
        return Err(invalid("lz4 frame with linked blocks, reserved bits or of another version"));
    }
    match descriptor {
        0x40 | 0x50 | 0x60 | 0x70 => Ok(1 << (8 + 2 * (descriptor >> 4))),
        _ => Err(invalid("lz4 frame with an unknown block size")),
    }
}

fn ends_early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "lz4 stream ends early")
}
