//! Crate `controller`: the decisions of a KRaft controller as a sans-IO state machine.
//!
//! Owns: [`QuorumController`], which turns requests, heartbeats and the clock into records of the metadata log and
//! responses, and replays those records into its state. Invariants, concurrency and what a crash leaves: see there.
//! Absent on purpose: raft, sockets, storage, clocks, randomness.
#![forbid(unsafe_code)]

mod api;
mod decide;
mod deferred;
mod heartbeat;
mod partition_change;
mod periodic;
pub mod placer;
mod quorum;
mod reassignment;
mod settings;
mod state;
mod topic_configs;
pub mod topic_name;

pub use api::{
    Access, AccessCheck, AllowAll, ApiError, ControllerResult, MAX_RECORDS_PER_BATCH,
    MAX_RECORDS_PER_USER_OP, RequestContext, SeededRandom,
};
pub use deferred::DeferredEventQueue;
pub use quorum::{Completion, QuorumController};
pub use settings::{ControllerSettings, LocalFeatures};
