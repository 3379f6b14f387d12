//! Configuration: one table per scope, and everything that is computed from it.
//!
//! Owns the names, types, defaults, checks and documentation of every key Apache Kafka 4.4.0 knows, and turns
//! text into them: a server's `.properties` file, a container's environment, a topic's, group's or broker's
//! dynamic configs. Answers DescribeConfigs and checks AlterConfigs as pure functions of those maps.
//!
//! Invariants: pure (no files, no environment, no clock); a message is the reference's, word for word; the order of
//! every result is the order of names. Concurrency: immutable values, shared by `Arc`. Leaves nothing on disk.

#![forbid(unsafe_code)]

pub mod alter;
pub mod client_metrics;
pub mod container;
pub mod describe;
pub mod dynamic;
pub mod error;
pub mod group;
pub mod meta;
pub mod net;
pub mod properties;
pub mod reference;
pub mod server;
pub mod suggest;
pub mod table;
pub mod topic;
pub mod validator;
pub mod value;

pub use alter::{AlterContext, AlterOp, ConfigChange, ConfigDelta, ResourceKind};
pub use describe::{ConfigSource, ConfigSynonym, DescribedConfig};
pub use dynamic::BrokerConfigs;
pub use error::{ConfigError, ErrorKind};
pub use group::GroupConfig;
pub use net::{Endpoint, SecurityProtocol};
pub use properties::{Properties, PropertiesError};
pub use reference::reference_page;
pub use server::{ConfigWarning, ProcessRole, ReplicationFactor, ServerConfig, ServerValues};
pub use table::{
    ConfigKey, ConfigTable, ConfigType, DefaultValue, UpdateMode, broker_table, client_metrics_table,
    group_table, topic_table,
};
pub use topic::{BrokerCompressionType, LogConfig, TimestampType};
pub use validator::Validator;
pub use value::ConfigValue;
