//! What an operation still has to do when its records are committed or could not be written.
//!
//! Data instead of closures: a parked operation can be looked at, and dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use coordinator::RequestToken;
use protocol::messages::join_group_request::JoinGroupRequestProtocol;

use crate::message::GroupResponse;
use crate::records::GroupRecord;
use crate::state::ClassicGroupRef;

/// A timer of a shard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerKey {
    /// A member's session: group, member.
    Heartbeat(Arc<str>, Arc<str>),
    /// The end of a group's join phase.
    Join(Arc<str>),
    /// The end of the time for SyncGroups.
    Sync(Arc<str>),
    GroupMetadataExpiration,
}

/// What a timer needs to know when it fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Timeout {
    Simple,
    /// The first rebalance of an empty group waits in steps (KIP-134).
    InitialRebalance {
        delay_ms: i32,
        remaining_ms: i32,
    },
    Sync {
        generation_id: i32,
    },
}

/// What the group does when a record of it is committed or lost. The classic group protocol enters its next state
/// before the record is written, or after, as it is in each case safe.
#[derive(Debug, Default)]
pub(crate) enum AppendAction {
    #[default]
    None,
    /// A group was created by the JoinGroup with this token.
    EmptyGroup { token: RequestToken },
    /// The leader's assignment: given out once it is committed.
    Assignment { group: ClassicGroupRef, generation_id: i32, assignment: BTreeMap<Arc<str>, Bytes> },
    /// A static member came back under a new member id (KIP-345).
    StaticMember(Box<StaticMemberReplacement>),
}

#[derive(Debug)]
pub(crate) struct StaticMemberReplacement {
    pub(crate) group: ClassicGroupRef,
    pub(crate) group_instance_id: String,
    pub(crate) old_member_id: Arc<str>,
    pub(crate) new_member_id: Arc<str>,
    pub(crate) old_protocols: Vec<JoinGroupRequestProtocol>,
    pub(crate) old_rebalance_timeout_ms: i32,
    pub(crate) old_session_timeout_ms: i32,
    pub(crate) old_leader: Option<String>,
    pub(crate) token: RequestToken,
    pub(crate) supports_skipping_assignment: bool,
}

/// A parked operation.
#[derive(Debug)]
pub(crate) enum Deferred {
    /// Answered when committed; a failure turns the answer into an error.
    Response { token: RequestToken, api_version: i16, response: GroupResponse },
    /// JoinGroup or SyncGroup: answered by the action, earlier, or when other members come. A failure answers it.
    Waiting { token: RequestToken, action: AppendAction },
    /// Nobody waits. A timer with `retry` is scheduled again when it failed.
    Internal { action: AppendAction, retry: Option<TimerKey> },
}

/// What a step of the group's protocol decided: its record, already in effect in memory, and what follows.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) records: Vec<GroupRecord>,
    pub(crate) action: AppendAction,
}

impl Step {
    pub(crate) fn nothing() -> Self {
        Self::default()
    }

    pub(crate) fn record(record: GroupRecord, action: AppendAction) -> Self {
        Self { records: vec![record], action }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.records.is_empty() && matches!(self.action, AppendAction::None)
    }
}
