//! The coordinator runtime: one replicated state machine per partition of an internal topic.
//!
//! Owns what every coordinator of Kafka needs and what none of them should repeat: an operation decides on the
//! state of a shard and yields records and an answer; the records are replayed at once, batched, handed out to be
//! appended, and the answer is parked until the high watermark has passed them ([`CoordinatorContext`]).
//! `coordinator-group` runs on it; transactions and share groups are the next users.
//!
//! Architecture invariants: no clock, no randomness, no thread, no lock, no channel. One context is one value that
//! its user guards with one mutex; nothing in it waits.
//! A crash leaves the log; [`CoordinatorContext::begin_load`] rebuilds everything else from it.
#![forbid(unsafe_code)]

mod append;
mod context;
mod error;
mod load;
mod shard;
#[cfg(test)]
mod tests;
mod timer;

pub use append::{AppendContent, AppendId, PendingAppend};
pub use context::{CoordinatorContext, CoordinatorOptions, CoordinatorState, RuntimeMetrics};
pub use error::{map_group_metadata_append_error, map_operation_error};
pub use load::LoadError;
pub use shard::{
    CoordinatorResult, CoordinatorShard, DecodeRecordError, Producer, RawRecord, ReplayError, Timers,
    TransactionResult,
};
pub use timer::CoordinatorTimer;

/// Identifies a request towards whoever holds its connection. Unique for the life of a node.
pub type RequestToken = u64;
