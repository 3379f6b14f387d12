//! Kafka record batches: reading, validating and building them as Apache Kafka 4.4.0 does.
//!
//! Owns the byte layout of message format v2 (KIP-98), the reading of message sets v0 and v1, the checks that a
//! leader makes before it appends (`validate`), control records, and a few value types every crate shares.
//!
//! Invariants: pure values, no I/O, no clock, no threads. Bytes that come from a network or a disk never panic and
//! never make this crate allocate more than a limit that the caller names. Compression lives in another crate and is
//! reached through [`Codecs`].
#![forbid(unsafe_code)]

pub mod append;
pub mod batch;
pub mod builder;
pub mod codec;
pub mod control;
pub mod crc;
pub mod error;
pub mod filter;
pub mod legacy;
pub mod record;
pub mod stream;
pub mod time;
pub mod topic_partition;
pub mod validate;
pub mod varint;

pub use append::{
    AnalyzeParams, LogAppendInfo, TimestampType, analyze_and_validate_records, validate_produce_records,
};
pub use batch::{BatchHeader, Batches, RecordBatch};
pub use builder::{BatchOptions, BuildError, RecordBatchBuilder};
pub use codec::{BufferSupplier, CodecError, Codecs, Compression, CompressionType, NoCodecs};
pub use control::{ControlRecordType, EndTransactionMarker};
pub use error::{AppendError, BatchIndexError, RecordError};
pub use record::{Header, Headers, OwnedRecord, Record, RecordIter};
pub use stream::{PartialRecord, RecordStream};
pub use time::Time;
pub use topic_partition::TopicPartition;
pub use validate::{
    AppendOrigin, ValidatedBatch, ValidationParams, ValidationStats, validate_and_assign_offsets,
};

/// Message format v0 (no timestamps).
pub const MAGIC_VALUE_V0: i8 = 0;
/// Message format v1 (KIP-32, timestamps).
pub const MAGIC_VALUE_V1: i8 = 1;
/// Message format v2 (KIP-98), the only one that is written.
pub const MAGIC_VALUE_V2: i8 = 2;
/// The format that is written.
pub const CURRENT_MAGIC_VALUE: i8 = MAGIC_VALUE_V2;

/// "No timestamp" in a record or a batch.
pub const NO_TIMESTAMP: i64 = -1;
/// "No producer id": the batch is not idempotent.
pub const NO_PRODUCER_ID: i64 = -1;
pub const NO_PRODUCER_EPOCH: i16 = -1;
pub const NO_SEQUENCE: i32 = -1;
pub const NO_PARTITION_LEADER_EPOCH: i32 = -1;

/// Offset and size: what stands before every batch or message, in all formats.
pub const LOG_OVERHEAD: usize = 12;
/// Bytes up to and including the magic byte, in all formats.
pub const HEADER_SIZE_UP_TO_MAGIC: usize = 17;
/// Header of a v2 batch, [`LOG_OVERHEAD`] included.
pub const RECORD_BATCH_OVERHEAD: usize = 61;
/// Smallest legal value of the size field (a v0 message without key and value).
pub const RECORD_OVERHEAD_V0: usize = 14;
/// The same for v1.
pub const RECORD_OVERHEAD_V1: usize = 22;

/// Largest body of one record that the reference could allocate: the default of `max.decompressed.message.bytes`.
pub const MAX_RECORD_BODY_SIZE: usize = 0x7FFF_FFF7;
