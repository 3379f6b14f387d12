//! Groups of the classic protocol: members, their state machine, what they answer.

mod checks;
mod group;
mod member;

pub(crate) use group::{ClassicGroup, ClassicGroupState};
pub(crate) use member::ClassicGroupMember;
