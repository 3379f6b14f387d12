//! The log: segments, indexes, producer state, and the directories that hold them, in Apache Kafka 4.4.0's layout.
//!
//! Owns: everything below `log.dirs`. All IO goes through `env::FileSystem`.
//! Invariants: one writer per partition; offsets of a log never go back except by truncation.
//! Concurrency: `UnifiedLog` is internally locked, readers take no lock that is held across IO.
//! Crash: what was flushed is there; recovery cuts a log at the first bad byte behind its recovery point.
#![forbid(unsafe_code)]

pub mod checkpoint;
mod cleaner;
mod config;
mod context;
pub mod epoch_cache;
mod error;
pub mod format;
pub mod index;
mod log;
mod log_dir;
mod log_manager;
pub mod metadata_log;
pub mod names;
mod offsets;
pub mod producer;
mod regions;
pub mod segment;
pub mod txn_index;
pub mod verify;

pub use crate::checkpoint::EpochEntry;
pub use crate::cleaner::{CleanerConfig, CleanerHost, CleanerStats, CleanerThread};
pub use crate::config::LogConfig;
pub use crate::context::{LogContext, LogDir};
pub use crate::error::{AppendError, LogDirError, ReadError, StorageError};
pub use crate::log::*;
pub use crate::log_manager::{
    CreateParams, LoadSummary, LogManager, LogManagerConfig, Promotion, TickReport,
};
pub use crate::offsets::LogOffsetMetadata;
pub use crate::segment::{FileSlice, LogSegment};
pub use crate::txn_index::AbortedTxn;
