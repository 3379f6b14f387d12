//! The metadata log on disk: `__cluster_metadata-0` with its segments, snapshots and quorum state.

use std::fmt::Display;
use std::io;

pub mod quorum_state;
pub mod snapshot;

pub(crate) fn invalid_data(cause: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, cause.to_string())
}

/// Directory of the metadata partition below the metadata log directory.
pub const METADATA_LOG_DIR: &str = "__cluster_metadata-0";
