//! The metadata log on disk: `__cluster_metadata-0` with its segments, snapshots and quorum state (KIP-595, KIP-630).
//!
//! Owns [`MetadataLog`]: a [`UnifiedLog`](crate::UnifiedLog) whose beginning may be replaced by snapshots, and the rules
//! by which old snapshots and segments go. What the records mean and when they are committed is decided elsewhere.
//! Invariants: either the log starts at 0 or a snapshot ends at or above its start; the log never loses records above
//! the latest snapshot; nothing is acknowledged by callers before [`MetadataLog::flush`] returned.
//! Concurrency: one owner. Crash: recovery scans the whole log, as the reference does, and cuts it at the first bad
//! byte; partial snapshots are removed; a snapshot that was fetched but not yet followed by the truncation of the log
//! is found and the truncation made good.

use std::fmt::Display;
use std::io;

mod log;
pub mod quorum_state;
pub mod snapshot;

pub use log::{MetadataLog, MetadataLogConfig, MetadataLogError};

/// Directory of the metadata partition below the metadata log directory.
pub const METADATA_LOG_DIR: &str = "__cluster_metadata-0";

pub(crate) fn invalid_data(cause: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, cause.to_string())
}
