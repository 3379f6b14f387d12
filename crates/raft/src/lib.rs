//! KRaft: the quorum that replicates the cluster metadata log (KIP-595, KIP-630, KIP-853, KIP-996).
//!
//! [`RaftNode`] is the whole of one replica as a value: inputs go in, [`Output`]s come out, nothing else happens. It
//! reads no clock, draws no ambient randomness, opens no file and no socket. `node.rs` has the contract with the driver
//! that executes the outputs, `state.rs` the states and their transitions.
//!
//! Left for later, and refused nowhere by accident because no message of theirs is taken: changing the voter set at run
//! time (AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter, auto-join) and raising `kraft.version` from 0 to 1.
#![forbid(unsafe_code)]

mod accumulator;
pub mod batches;
mod election;
mod inbound;
mod leader;
mod log_view;
mod messages;
mod node;
mod poll;
mod request_manager;
mod responses;
mod state;
mod types;

pub use crate::accumulator::{CompletedBatch, MAX_BATCH_SIZE_BYTES, ProposeError};
pub use crate::inbound::InboundRequest;
pub use crate::log_view::LogInit;
pub use crate::messages::{METADATA_PARTITION, METADATA_TOPIC, RaftRequest, RaftResponse};
pub use crate::node::{InitError, Output, RaftConfig, RaftNode, ReadRequest, SnapshotError};
pub use crate::request_manager::Destination;
pub use crate::types::{
    ElectionState, Endpoints, HostPort, KRaftVersion, LeaderAndEpoch, OffsetAndEpoch, ReplicaKey, VoterNode,
    VoterSet,
};
