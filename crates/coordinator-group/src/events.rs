//! What happened in groups, for whoever writes the log.
//!
//! Events are data; the broker turns them into lines. Losing some is harmless, so that they are bounded.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Events that wait to be polled: more than the largest burst of one operation on a sane group, small in memory.
const MAX_EVENTS: usize = 1_000;

/// Why a member is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Its session timed out.
    SessionExpired,
    /// It got a member id and never came with it.
    NeverJoined,
    /// It left, with the reason it gave (KIP-800).
    Left(String),
    /// It did not come to a rebalance in time.
    NotRejoined,
    /// It did not fetch its assignment in time.
    NotSynced,
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SessionExpired => f.write_str("its session timed out"),
            Self::NeverJoined => f.write_str("it did not join with the member id it was given"),
            Self::Left(reason) => write!(f, "it left; client reason: {reason}"),
            Self::NotRejoined => f.write_str("it did not rejoin before the rebalance timeout"),
            Self::NotSynced => f.write_str("it did not sync before the rebalance timeout"),
        }
    }
}

/// Something an operator may want to know about a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupEvent {
    MemberIdAssigned {
        group_id: Arc<str>,
        member_id: Arc<str>,
    },
    MemberAdded {
        group_id: Arc<str>,
        member_id: Arc<str>,
        group_instance_id: Option<String>,
    },
    StaticMemberReplaced {
        group_id: Arc<str>,
        group_instance_id: String,
        old_member_id: Arc<str>,
        new_member_id: Arc<str>,
    },
    MemberRemoved {
        group_id: Arc<str>,
        member_id: Arc<str>,
        removal: Removal,
    },
    PreparingRebalance {
        group_id: Arc<str>,
        generation_id: i32,
        reason: String,
    },
    Stabilized {
        group_id: Arc<str>,
        generation_id: i32,
        members: usize,
    },
    AssignmentReceived {
        group_id: Arc<str>,
        generation_id: i32,
        leader: Arc<str>,
        members: usize,
    },
    Empty {
        group_id: Arc<str>,
        generation_id: i32,
    },
    /// Tombstones that the periodic clean-up wrote.
    MetadataExpired {
        tombstones: usize,
    },
}

impl GroupEvent {
    /// The group, where it is about one.
    pub fn group_id(&self) -> Option<&str> {
        match self {
            Self::MemberIdAssigned { group_id, .. }
            | Self::MemberAdded { group_id, .. }
            | Self::StaticMemberReplaced { group_id, .. }
            | Self::MemberRemoved { group_id, .. }
            | Self::PreparingRebalance { group_id, .. }
            | Self::Stabilized { group_id, .. }
            | Self::AssignmentReceived { group_id, .. }
            | Self::Empty { group_id, .. } => Some(group_id),
            Self::MetadataExpired { .. } => None,
        }
    }
}

impl fmt::Display for GroupEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(group_id) = self.group_id() {
            write!(f, "[Group {group_id}] ")?;
        }
        match self {
            Self::MemberIdAssigned { member_id, .. } => {
                write!(f, "A new member must rejoin as {member_id}.")
            }
            Self::MemberAdded { member_id, group_instance_id, .. } => {
                let instance = group_instance_id.as_deref().unwrap_or("none");
                write!(f, "Added member {member_id} (group instance id: {instance}).")
            }
            Self::StaticMemberReplaced { group_instance_id, old_member_id, new_member_id, .. } => {
                write!(
                    f,
                    "Static member {group_instance_id} is back as {new_member_id} instead of {old_member_id}."
                )
            }
            Self::MemberRemoved { member_id, removal, .. } => {
                write!(f, "Removed member {member_id}: {removal}.")
            }
            Self::PreparingRebalance { generation_id, reason, .. } => {
                write!(f, "Preparing to rebalance, old generation {generation_id} (reason: {reason}).")
            }
            Self::Stabilized { generation_id, members, .. } => {
                write!(f, "Generation {generation_id} has {members} members.")
            }
            Self::AssignmentReceived { generation_id, leader, members, .. } => {
                write!(f, "Leader {leader} assigned generation {generation_id} to {members} members.")
            }
            Self::Empty { generation_id, .. } => write!(f, "Empty in generation {generation_id}."),
            Self::MetadataExpired { tombstones } => {
                write!(f, "Expired offsets and groups, {tombstones} tombstones.")
            }
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Events {
    waiting: VecDeque<GroupEvent>,
}

impl Events {
    /// Keeps the event; the oldest goes when there are too many.
    pub(crate) fn push(&mut self, event: GroupEvent) {
        if self.waiting.len() >= MAX_EVENTS {
            self.waiting.pop_front();
        }
        self.waiting.push_back(event);
    }

    pub(crate) fn pop(&mut self) -> Option<GroupEvent> {
        self.waiting.pop_front()
    }
}
