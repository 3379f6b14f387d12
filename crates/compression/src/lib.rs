//! The codecs of record batches: gzip, snappy, lz4 and zstd as Kafka frames them, behind [`record::Codecs`].
//!
//! Readers yield decompressed bytes a piece at a time and hold no more than one block (or one codec window), so a
//! caller bounds what it takes. Contexts and block buffers are kept per thread and used again; a context that one
//! unusual batch made large is given back. No state is shared between threads.
//!
//! Levels (KIP-780): gzip -1 and 1–9, zstd -131072–22 are zlib's and zstd's own. lz4 1–17 is accepted, and compressed
//! with the one fast algorithm that exists in Rust: any level gives valid frames, none of them those of LZ4-HC.
#![forbid(unsafe_code)]

mod gzip;
mod lz4;
mod lz4_high;
mod snappy;
mod zstd;

use std::io::{self, Read};

use record::{CodecError, Codecs, Compression, CompressionType};

/// All codecs of Kafka 4.4.
#[derive(Copy, Clone, Debug, Default)]
pub struct KafkaCodecs;

impl Codecs for KafkaCodecs {
    fn compress(
        &self,
        compression: Compression,
        magic: i8,
        source: &[u8],
        destination: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        match compression {
            Compression::None => {
                destination.extend_from_slice(source);
                Ok(())
            }
            Compression::Gzip(level) => gzip::compress(level, source, destination),
            Compression::Snappy => snappy::compress(source, destination),
            Compression::Lz4(level) => lz4::compress(magic, level, source, destination),
            Compression::Zstd(level) => zstd::compress(level, source, destination),
        }
    }

    fn reader<'a>(
        &self,
        kind: CompressionType,
        magic: i8,
        source: &'a [u8],
    ) -> Result<Box<dyn Read + 'a>, CodecError> {
        let malformed = |error: io::Error| CodecError::Malformed(error.to_string().into());
        Ok(match kind {
            CompressionType::None => Box::new(source),
            CompressionType::Gzip => Box::new(gzip::GzipReader::new(source).map_err(malformed)?),
            CompressionType::Snappy => Box::new(snappy::SnappyReader::new(source).map_err(malformed)?),
            CompressionType::Lz4 => Box::new(lz4::Lz4Reader::new(magic, source).map_err(malformed)?),
            CompressionType::Zstd => Box::new(zstd::ZstdReader::new(source)),
        })
    }
}

/// The levels a codec takes, in the words of the reference's configuration errors; `None`: it has no levels.
pub fn levels(kind: CompressionType) -> Option<&'static str> {
    match kind {
        CompressionType::Gzip => Some("[1,...,9] or -1"),
        CompressionType::Lz4 => Some("[1,...,17]"),
        CompressionType::Zstd => Some("[-131072,...,22]"),
        CompressionType::None | CompressionType::Snappy => None,
    }
}

/// The codec with that level, if it has it.
pub fn with_level(kind: CompressionType, level: i32) -> Option<Compression> {
    match (kind, level) {
        (CompressionType::Gzip, -1 | 1..=9) => Some(Compression::Gzip(level)),
        (CompressionType::Lz4, 1..=17) => Some(Compression::Lz4(level)),
        (CompressionType::Zstd, -131_072..=22) => Some(Compression::Zstd(level)),
        _ => None,
    }
}

/// Moves bytes from `block[*position..]` into `buffer`.
fn take_from(block: &[u8], position: &mut usize, buffer: &mut [u8]) -> usize {
    let rest = block.get(*position..).unwrap_or_default();
    let count = rest.len().min(buffer.len());
    if let (Some(from), Some(to)) = (rest.get(..count), buffer.get_mut(..count)) {
        to.copy_from_slice(from);
    }
    *position += count;
    count
}

fn invalid(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, cause)
}

/// Things one thread uses again. At most [`Pool::LIMIT`] are kept: a thread rarely reads two batches at a time.
struct Pool<T>(std::cell::RefCell<Vec<T>>);

impl<T> Pool<T> {
    const LIMIT: usize = 4;

    const fn new() -> Pool<T> {
        Pool(std::cell::RefCell::new(Vec::new()))
    }

    fn take(&self) -> Option<T> {
        self.0.borrow_mut().pop()
    }

    fn take_where(&self, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let mut pool = self.0.borrow_mut();
        let index = pool.iter().position(wanted)?;
        Some(pool.swap_remove(index))
    }

    fn put(&self, value: T) {
        let mut pool = self.0.borrow_mut();
        if pool.len() >= Self::LIMIT {
            pool.swap_remove(0);
        }
        pool.push(value);
    }
}

thread_local! {
    /// Block buffers of snappy and lz4, at most 4 MiB each.
    static BLOCKS: Pool<Vec<u8>> = const { Pool::new() };
}

const KEPT_BLOCK_SIZE: usize = 4 << 20;

fn take_block() -> Vec<u8> {
    BLOCKS.with(Pool::take).unwrap_or_default()
}

fn put_block(block: Vec<u8>) {
    if block.capacity() <= KEPT_BLOCK_SIZE {
        // Fails only while the thread ends.
        let _ = BLOCKS.try_with(|pool| pool.put(block));
    }
}
