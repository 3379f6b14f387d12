//! What a classic group allows, and what it shows.

use protocol::ErrorCode;
use protocol::messages::list_groups_response::ListedGroup;

use crate::offsets::ExpirationCondition;

use super::group::{ClassicGroup, ClassicGroupState};

impl ClassicGroup {
    /// Whether the member exists, and is the one that its instance id stands for.
    pub(crate) fn validate_member(
        &self,
        member_id: &str,
        group_instance_id: Option<&str>,
    ) -> Result<(), ErrorCode> {
        if let Some(instance_id) = group_instance_id {
            match self.static_members.get(instance_id) {
                None => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
                Some(existing) if &**existing != member_id => {
                    return Err(ErrorCode::FENCED_INSTANCE_ID);
                }
                Some(_) => {}
            }
        }
        if self.has_member(member_id) { Ok(()) } else { Err(ErrorCode::UNKNOWN_MEMBER_ID) }
    }

    pub(crate) fn validate_offset_commit(
        &self,
        member_id: &str,
        group_instance_id: Option<&str>,
        generation_id: i32,
        is_transactional: bool,
    ) -> Result<(), ErrorCode> {
        match self.state {
            ClassicGroupState::Dead => return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
            ClassicGroupState::Empty if generation_id < 0 => return Ok(()),
            _ => {}
        }
        if generation_id >= 0 || !member_id.is_empty() || group_instance_id.is_some() {
            self.validate_member(member_id, group_instance_id)?;
            if generation_id != self.generation_id {
                return Err(ErrorCode::ILLEGAL_GENERATION);
            }
        } else if !is_transactional {
            // Not empty, or it would have been answered above: members own the group, an outsider may not commit.
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        if !is_transactional && self.is_in_state(ClassicGroupState::CompletingRebalance) {
            return Err(ErrorCode::REBALANCE_IN_PROGRESS);
        }
        Ok(())
    }

    pub(crate) fn validate_offset_delete(&self) -> Result<(), ErrorCode> {
        match self.state {
            ClassicGroupState::Dead => Err(ErrorCode::GROUP_ID_NOT_FOUND),
            ClassicGroupState::Empty => Ok(()),
            _ if self.uses_consumer_group_protocol() => Ok(()),
            _ => Err(ErrorCode::NON_EMPTY_GROUP),
        }
    }

    pub(crate) fn validate_delete_group(&self) -> Result<(), ErrorCode> {
        match self.state {
            ClassicGroupState::Dead => Err(ErrorCode::GROUP_ID_NOT_FOUND),
            ClassicGroupState::Empty => Ok(()),
            _ => Err(ErrorCode::NON_EMPTY_GROUP),
        }
    }

    /// From when an offset of this group ages, `None` while it does not (KIP-211, KIP-496).
    pub(crate) fn offset_expiration_condition(&self) -> Option<ExpirationCondition> {
        if self.protocol_type.is_none() {
            return Some(ExpirationCondition::SinceCommit);
        }
        match self.state {
            ClassicGroupState::Empty => Some(match self.current_state_timestamp {
                Some(timestamp) => ExpirationCondition::Since(timestamp),
                None => ExpirationCondition::SinceCommit,
            }),
            ClassicGroupState::Stable
                if self.uses_consumer_group_protocol() && self.subscribed_topics.is_some() =>
            {
                Some(ExpirationCondition::SinceCommit)
            }
            _ => None,
        }
    }

    /// Whether the members consume `topic`. When that cannot be known, a consumer group is taken to consume every topic.
    pub(crate) fn is_subscribed_to_topic(&self, topic: &str) -> bool {
        match &self.subscribed_topics {
            Some(topics) => topics.contains(topic),
            None => self.uses_consumer_group_protocol(),
        }
    }

    pub(crate) fn as_listed_group(&self) -> ListedGroup {
        ListedGroup {
            group_id: self.group_id.to_string(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            group_state: self.state.name().to_owned(),
            group_type: "classic".to_owned(),
        }
    }
}
