//! Compression types and the seam through which this crate compresses and decompresses.
//!
//! The codecs themselves are in crate `compression`; `record` stays free of them so that it is a pure value crate.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;

/// Compression of a batch, as its attributes say (bits 0–2).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CompressionType {
    #[default]
    None = 0,
    Gzip = 1,
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

impl CompressionType {
    pub const ALL: [CompressionType; 5] = [
        CompressionType::None,
        CompressionType::Gzip,
        CompressionType::Snappy,
        CompressionType::Lz4,
        CompressionType::Zstd,
    ];

    pub fn from_id(id: u8) -> Option<CompressionType> {
        match id {
            0 => Some(CompressionType::None),
            1 => Some(CompressionType::Gzip),
            2 => Some(CompressionType::Snappy),
            3 => Some(CompressionType::Lz4),
            4 => Some(CompressionType::Zstd),
            _ => None,
        }
    }

    pub fn id(self) -> u8 {
        self as u8
    }

    /// Name in configurations: `none`, `gzip`, `snappy`, `lz4`, `zstd`.
    pub fn name(self) -> &'static str {
        match self {
            CompressionType::None => "none",
            CompressionType::Gzip => "gzip",
            CompressionType::Snappy => "snappy",
            CompressionType::Lz4 => "lz4",
            CompressionType::Zstd => "zstd",
        }
    }

    pub fn from_name(name: &str) -> Option<CompressionType> {
        CompressionType::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for CompressionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What to compress with: a type and, where it has levels, its level (KIP-780).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    #[default]
    None,
    /// -1 (zlib's default) or 1–9.
    Gzip(i32),
    Snappy,
    /// 1–17.
    Lz4(i32),
    /// -131072–22.
    Zstd(i32),
}

impl Compression {
    pub const GZIP_DEFAULT_LEVEL: i32 = -1;
    pub const LZ4_DEFAULT_LEVEL: i32 = 9;
    pub const ZSTD_DEFAULT_LEVEL: i32 = 3;

    pub fn kind(self) -> CompressionType {
        match self {
            Compression::None => CompressionType::None,
            Compression::Gzip(_) => CompressionType::Gzip,
            Compression::Snappy => CompressionType::Snappy,
            Compression::Lz4(_) => CompressionType::Lz4,
            Compression::Zstd(_) => CompressionType::Zstd,
        }
    }

    /// The type with its default level.
    pub fn of(kind: CompressionType) -> Compression {
        match kind {
            CompressionType::None => Compression::None,
            CompressionType::Gzip => Compression::Gzip(Self::GZIP_DEFAULT_LEVEL),
            CompressionType::Snappy => Compression::Snappy,
            CompressionType::Lz4 => Compression::Lz4(Self::LZ4_DEFAULT_LEVEL),
            CompressionType::Zstd => Compression::Zstd(Self::ZSTD_DEFAULT_LEVEL),
        }
    }
}

/// Why compressed bytes could not be read, or records not be compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodecError {
    /// The codec does not exist, or not in this message format.
    Unsupported(CompressionType),
    /// The bytes are not what the codec writes.
    Malformed(Cow<'static, str>),
    /// Decompressing would give more than the limit.
    TooLarge { limit: usize },
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodecError::Unsupported(kind) => write!(f, "Compression type {kind} is not available here"),
            CodecError::Malformed(cause) => write!(f, "Failed to decompress record stream: {cause}"),
            CodecError::TooLarge { limit } => {
                write!(f, "Decompressed records exceed the limit of {limit} bytes")
            }
        }
    }
}

impl std::error::Error for CodecError {}

/// The codecs, object-safe so that a broker picks them once.
///
/// `magic` matters to LZ4 only: the frames of format v0 carry a wrong header checksum (KIP-57).
pub trait Codecs: Send + Sync {
    /// Appends `source`, compressed, to `destination`.
    fn compress(
        &self,
        compression: Compression,
        magic: i8,
        source: &[u8],
        destination: &mut Vec<u8>,
    ) -> Result<(), CodecError>;

    /// A reader of the decompressed bytes. It holds a bounded amount of memory however much it yields; errors of the
    /// stream come out of `read`.
    fn reader<'a>(
        &self,
        kind: CompressionType,
        magic: i8,
        source: &'a [u8],
    ) -> Result<Box<dyn Read + 'a>, CodecError>;

    /// Appends the decompressed bytes to `destination`, of which there may be at most `limit`.
    fn decompress(
        &self,
        kind: CompressionType,
        magic: i8,
        source: &[u8],
        limit: usize,
        destination: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        let start = destination.len();
        let reader = self.reader(kind, magic, source)?;
        let mut limited = reader.take((limit as u64).saturating_add(1));
        limited.read_to_end(destination).map_err(|e| CodecError::Malformed(e.to_string().into()))?;
        if destination.len().saturating_sub(start) > limit {
            destination.truncate(start);
            return Err(CodecError::TooLarge { limit });
        }
        Ok(())
    }
}

/// No codec at all: what a log that is never compressed (the metadata log) and many tests use.
#[derive(Copy, Clone, Debug, Default)]
pub struct NoCodecs;

impl Codecs for NoCodecs {
    fn compress(
        &self,
        compression: Compression,
        _magic: i8,
        source: &[u8],
        destination: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        match compression {
            Compression::None => destination.extend_from_slice(source),
            other => return Err(CodecError::Unsupported(other.kind())),
        }
        Ok(())
    }

    fn reader<'a>(
        &self,
        kind: CompressionType,
        _magic: i8,
        source: &'a [u8],
    ) -> Result<Box<dyn Read + 'a>, CodecError> {
        match kind {
            CompressionType::None => Ok(Box::new(source)),
            other => Err(CodecError::Unsupported(other)),
        }
    }
}

/// Buffers that are used again from batch to batch. One per thread or per log; they keep the capacity that the
/// largest recent batch needed, at most [`BufferSupplier::KEPT_CAPACITY`].
#[derive(Debug, Default)]
pub struct BufferSupplier {
    pub(crate) decompressed: Vec<u8>,
    pub(crate) window: Vec<u8>,
}

impl BufferSupplier {
    /// A buffer that grew beyond this for one unusual batch is given back.
    pub const KEPT_CAPACITY: usize = 4 << 20;

    pub fn new() -> BufferSupplier {
        BufferSupplier::default()
    }

    /// An empty buffer for decompressed bytes.
    pub(crate) fn decompressed(&mut self) -> &mut Vec<u8> {
        self.decompressed.clear();
        self.decompressed.shrink_to(Self::KEPT_CAPACITY);
        &mut self.decompressed
    }

    pub(crate) fn window(&mut self) -> &mut Vec<u8> {
        self.window.truncate(Self::KEPT_CAPACITY);
        self.window.shrink_to(Self::KEPT_CAPACITY);
        &mut self.window
    }
}
