//! Apache Kafka's wire protocol: every message, record, header, api key and error code of 4.4.0.
//!
//! Owns the encoding of values to bytes and back, nothing else: no IO, no clock, no state. `generated/` comes from
//! the tables in `schema/` through `cargo xtask codegen`; the rest is small and written by hand.
//! Invariants: bytes from outside never panic and never allocate more than a constant times what was received; a
//! message that was decoded encodes to the same bytes.

#![forbid(unsafe_code)]

mod api_key;
mod error_code;
#[allow(clippy::single_match, clippy::manual_range_patterns, reason = "every match over tags has one shape")]
mod generated;
mod header;
mod json;
mod message;
mod primitives;
mod record_keys;

pub use api_key::{ApiKey, Listener};
pub use error_code::ErrorCode;
pub use generated::messages;
pub use header::{HeaderError, RequestHeader, ResponseHeader, encode_request, encode_response};
pub use json::{JsonWriter, ToJson};
pub use message::{Message, Request};
pub use primitives::{
    Chunk, DecodeError, Decoder, EncodeError, Encoded, Encoder, MAX_STRING_LENGTH, ParseUuidError, Records,
    Uuid, Wire,
};

/// Records as they stand in the metadata log, in the coordinators' topics, in control batches and in side files.
pub mod records {
    pub use crate::generated::records::{group, metadata, raft, share, storage, transaction};
    pub(crate) use crate::record_keys::{coordinator_records, framed_records};
}

/// The schema tables as text, for tools that show records field by field (JSON in the reference's form).
pub mod schema {
    pub const DATA: &str = include_str!("../schema/data.txt");
    pub const GROUP: &str = include_str!("../schema/group.txt");
    pub const METADATA: &str = include_str!("../schema/metadata.txt");
    pub const RAFT: &str = include_str!("../schema/raft.txt");
    pub const SHARE: &str = include_str!("../schema/share.txt");
    pub const STORAGE: &str = include_str!("../schema/storage.txt");
    pub const TRANSACTION: &str = include_str!("../schema/transaction.txt");
}
