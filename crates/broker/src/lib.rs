//! One node of a cluster (broker, controller or both) as a synchronous, thread-safe object.
//!
//! Owns the request handlers, the partitions this broker hosts, the controller's event loop and the group coordinator's
//! shards. Knows no socket, no thread and no timer: the shell (`server`) or the simulator drives it; see [`node`].
//!
//! Architecture invariant: no tokio, and no way to the disk, the clock or randomness but through `env`.
#![forbid(unsafe_code)]

mod apis;
mod assignments;
mod auto_topics;
mod context;
mod controller_service;
mod delayed_produce;
mod group_service;
mod lifecycle;
mod log_config;
mod log_dirs;
mod metadata_view;
mod node;
mod open;
mod partition;
mod producer_ids;
mod purgatory;
pub mod raft_driver;
mod registration;
mod reply;

pub use apis::Outcome;
pub use context::{ListenerRole, Session};
pub use node::Node;
pub use open::{StartOptions, format_when_new};
pub use reply::{NodeEvent, Outbox, Reply, RequestToken};
