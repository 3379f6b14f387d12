//! A Kafka client: connections, cluster metadata, a producer, a consumer.
//!
//! Used by the command line tools and the console, and meant to carry the links between brokers too. Speaks every
//! version of every API that `protocol` knows and picks the highest one that the broker serves. Asynchronous on tokio;
//! nothing here decides policy for a caller: time limits, retries and targets are arguments.

pub mod cluster;
pub mod config;
pub mod connection;
pub mod consumer;
pub mod error;
pub mod offsets;
pub mod producer;

pub use cluster::{Cluster, CoordinatorKind, Node, Target};
pub use config::ClientConfig;
pub use connection::{Connection, ConnectionOptions, VersionRange};
pub use error::{ApiError, ClientError};

/// Milliseconds since the epoch, only for looking up offsets by age.
#[allow(
    clippy::disallowed_methods,
    reason = "a client is part of the shell; nothing is decided by this clock"
)]
pub(crate) fn wall_clock_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
