//! A Kafka client: connections, cluster metadata, a producer, a consumer.
//!
//! Used by the command line tools and the console, and meant to carry the links between brokers too. Speaks every
//! version of every API that `protocol` knows and picks the highest one that the broker serves. Asynchronous on tokio;
//! nothing here decides policy for a caller: time limits, retries and targets are arguments.

pub mod cluster;
pub mod config;
pub mod connection;
pub mod error;

pub use cluster::{Cluster, CoordinatorKind, Node, Target};
pub use config::ClientConfig;
pub use connection::{Connection, ConnectionOptions, VersionRange};
pub use error::{ApiError, ClientError};
