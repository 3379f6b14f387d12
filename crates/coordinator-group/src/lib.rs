//! The group coordinator: consumer groups of the classic protocol and their committed offsets.
//!
//! Owns the state behind one partition of `__consumer_offsets` ([`GroupShard`]): JoinGroup, SyncGroup, Heartbeat,
//! LeaveGroup, OffsetCommit, OffsetFetch, OffsetDelete, DescribeGroups, ListGroups, DeleteGroups, TxnOffsetCommit and
//! the expiration of offsets and groups, with the records, error codes and order of checks of Apache Kafka 4.4.0.
//! Groups of the newer protocols (KIP-848, KIP-932, KIP-1071) found in the log are kept as they are, and their offsets
//! are served; running them is a later step.
//!
//! Architecture invariants: no clock, randomness, lock or thread; topics, ids and times are arguments. One shard is one
//! value behind one mutex of the broker.
#![forbid(unsafe_code)]

mod classic;
mod config;
mod deferred;
mod events;
mod groups;
mod hash;
mod message;
mod metrics;
mod modern;
mod offsets;
mod operations;
mod outbox;
mod records;
mod resolve;
mod service;
mod shard;
mod state;
mod subscription;

pub use config::GroupCoordinatorConfig;
pub use coordinator::{
    AppendContent, CoordinatorOptions, CoordinatorState, LoadError, PendingAppend, Producer, RawRecord,
    RequestToken, RuntimeMetrics, TransactionResult,
};
pub use events::{GroupEvent, Removal};
pub use hash::{java_string_hash, partition_for};
pub use message::{GroupRequest, GroupResponse, RequestContext, describe_groups_error};
pub use metrics::{GroupGauges, GroupMetrics};
pub use outbox::Reply;
pub use records::GroupRecord;
pub use resolve::{
    OffsetCommitPlan, OffsetDeletePlan, OffsetFetchPlan, TopicResolver, finish_offset_fetch,
    merge_list_groups, offset_fetch_groups,
};
pub use service::{DeletedTopic, GroupShard};

/// The topic whose partitions the shards are.
pub const GROUP_METADATA_TOPIC_NAME: &str = "__consumer_offsets";
