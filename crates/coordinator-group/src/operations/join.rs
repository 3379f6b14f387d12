//! JoinGroup: a member comes, comes back, or comes back under a new id.

use std::sync::Arc;

use coordinator::RequestToken;
use protocol::ErrorCode;
use protocol::messages::JoinGroupRequest;
use record::Time;

use crate::classic::{ClassicGroup, ClassicGroupMember, ClassicGroupState};
use crate::config::GroupCoordinatorConfig;
use crate::deferred::{AppendAction, Deferred, StaticMemberReplacement, Step};
use crate::events::GroupEvent;
use crate::message::RequestContext;
use crate::modern::ModernKind;
use crate::outbox::{Waiting, join_error};
use crate::records::{empty_group_metadata_record, group_metadata_record};
use crate::shard::{GroupCoordinatorShard, GroupResult, GroupTimers};
use crate::state::{ClassicGroupRef, Group};

use super::Steps;

/// From here on a dynamic member must come with the id it was given (KIP-394).
const REQUIRES_KNOWN_MEMBER_ID: i16 = 4;
/// From here on a leader can be told that the assignment stands (KIP-814).
const SUPPORTS_SKIPPING_ASSIGNMENT: i16 = 9;

/// A JoinGroup on its way through the group.
struct Join<'a> {
    context: &'a RequestContext,
    request: JoinGroupRequest,
    token: RequestToken,
    group_ref: ClassicGroupRef,
}

impl GroupCoordinatorShard {
    pub(crate) fn classic_group_join(
        &mut self,
        now: Time,
        timers: &mut GroupTimers,
        context: &RequestContext,
        request: JoinGroupRequest,
        token: RequestToken,
    ) -> GroupResult {
        self.outbox.open(token, Waiting::Join, context.api_version);
        let waiting =
            |records, action| GroupResult::without_replay(records, Deferred::Waiting { token, action });
        let is_unknown_member = request.member_id.is_empty();
        let mut records = Vec::new();
        if let Some(Group::Modern(group)) = self.group(&request.group_id) {
            if !group.is_empty() || group.kind() == ModernKind::Share {
                self.outbox.join(token, join_error("", ErrorCode::INCONSISTENT_GROUP_PROTOCOL));
                return waiting(records, AppendAction::None);
            }
            if is_unknown_member {
                // An empty group of a newer protocol becomes a classic group.
                records = group.tombstones();
                self.state.groups.remove(request.group_id.as_str());
            }
        }
        let is_new_group = self.group(&request.group_id).is_none();
        let group_ref = match self.classic_ref(&request.group_id) {
            Some(group) => group,
            None if is_unknown_member => self.create_classic_group(now, &request.group_id),
            None => {
                self.outbox.join(token, join_error(&request.member_id, ErrorCode::UNKNOWN_MEMBER_ID));
                return waiting(records, AppendAction::None);
            }
        };
        let Some((group, mut steps)) = self.steps(now, timers, &group_ref) else {
            return waiting(records, AppendAction::None);
        };
        let mut step = if accepts_joining_member(group, &request.member_id, steps.config) {
            let join = Join { context, request, token, group_ref };
            if is_unknown_member {
                join.new_member(group, &mut steps)
            } else {
                join.existing_member(group, &mut steps)
            }
        } else {
            group.remove(&request.member_id, steps.outbox);
            steps.outbox.join(token, join_error("", ErrorCode::GROUP_MAX_SIZE_REACHED));
            Step::nothing()
        };
        if is_new_group && step.is_nothing() {
            step = Step::record(empty_group_metadata_record(group), AppendAction::EmptyGroup { token });
        }
        records.append(&mut step.records);
        waiting(records, step.action)
    }
}

impl Join<'_> {
    fn new_member(self, group: &mut ClassicGroup, steps: &mut Steps<'_>) -> Step {
        if group.is_in_state(ClassicGroupState::Dead) {
            return self.refuse("", ErrorCode::COORDINATOR_NOT_AVAILABLE, steps);
        }
        if !self.supports_protocols(group) {
            return self.refuse("", ErrorCode::INCONSISTENT_GROUP_PROTOCOL, steps);
        }
        let prefix = self.request.group_instance_id.as_deref().unwrap_or(&self.context.client_id);
        let new_member_id: Arc<str> = Arc::from(generate_member_id(prefix, self.context.random));
        if let Some(instance_id) = self.request.group_instance_id.clone() {
            return match group.static_member_id(&instance_id).cloned() {
                Some(old_member_id) => {
                    self.replace_static_member(group, steps, instance_id, old_member_id, new_member_id)
                }
                None => self.add_member(group, steps, new_member_id),
            };
        }
        if self.context.api_version < REQUIRES_KNOWN_MEMBER_ID {
            return self.add_member(group, steps, new_member_id);
        }
        group.add_pending_member(new_member_id.clone());
        steps.outbox.events.push(GroupEvent::MemberIdAssigned {
            group_id: group.group_id().clone(),
            member_id: new_member_id.clone(),
        });
        steps.schedule_heartbeat(group, new_member_id.clone(), self.request.session_timeout_ms);
        self.refuse(&new_member_id, ErrorCode::MEMBER_ID_REQUIRED, steps)
    }

    fn existing_member(self, group: &mut ClassicGroup, steps: &mut Steps<'_>) -> Step {
        let member_id = self.request.member_id.clone();
        let instance_id = self.request.group_instance_id.as_deref();
        if group.is_in_state(ClassicGroupState::Dead) {
            return self.refuse(&member_id, ErrorCode::COORDINATOR_NOT_AVAILABLE, steps);
        }
        if !self.supports_protocols(group) {
            return self.refuse(&member_id, ErrorCode::INCONSISTENT_GROUP_PROTOCOL, steps);
        }
        if group.is_pending_member(&member_id) {
            if instance_id.is_some() {
                // The reference runs into an exception: pending members never have an instance id.
                return self.refuse("", ErrorCode::UNKNOWN_SERVER_ERROR, steps);
            }
            return self.add_member(group, steps, Arc::from(member_id));
        }
        if let Err(error) = group.validate_member(&member_id, instance_id) {
            let response = protocol::messages::JoinGroupResponse {
                protocol_name: None,
                ..join_error(&member_id, error)
            };
            steps.outbox.join(self.token, response);
            return Step::nothing();
        }
        let matches = group.member(&member_id).is_some_and(|m| m.matches(&self.request.protocols));
        let leads = group.is_leader(&member_id);
        match group.state() {
            ClassicGroupState::PreparingRebalance => self.update_member(group, steps),
            // A member that lost our answer gets it again. A leader that comes while the group is stable wants a
            // rebalance; a follower that lost its answer does not.
            ClassicGroupState::CompletingRebalance if matches => {
                steps.outbox.join(self.token, group.join_response(&member_id, leads));
                Step::nothing()
            }
            ClassicGroupState::Stable if !leads && matches => {
                steps.outbox.join(self.token, group.join_response(&member_id, false));
                Step::nothing()
            }
            ClassicGroupState::CompletingRebalance | ClassicGroupState::Stable => {
                self.update_member(group, steps)
            }
            ClassicGroupState::Empty | ClassicGroupState::Dead => {
                self.refuse(&member_id, ErrorCode::UNKNOWN_MEMBER_ID, steps)
            }
        }
    }

    fn supports_protocols(&self, group: &ClassicGroup) -> bool {
        let names = self.request.protocols.iter().map(|protocol| protocol.name.as_str());
        group.supports_protocols(&self.request.protocol_type, names)
    }

    fn refuse(&self, member_id: &str, error: ErrorCode, steps: &mut Steps<'_>) -> Step {
        steps.outbox.join(self.token, join_error(member_id, error));
        Step::nothing()
    }

    /// The client's words, if it has any (KIP-800).
    fn client_reason(&self) -> &str {
        self.request.reason.as_deref().filter(|reason| !reason.is_empty()).unwrap_or("not provided")
    }

    fn update_member(self, group: &mut ClassicGroup, steps: &mut Steps<'_>) -> Step {
        let reason = format!(
            "member {} joins again during {}; client reason: {}",
            self.request.member_id,
            group.state().name(),
            self.client_reason()
        );
        group.update_member(
            &self.request.member_id,
            self.request.protocols,
            self.request.rebalance_timeout_ms,
            self.request.session_timeout_ms,
            Some(self.token),
            steps.outbox,
        );
        steps.maybe_prepare_rebalance_or_complete_join(group, reason)
    }

    fn add_member(self, group: &mut ClassicGroup, steps: &mut Steps<'_>, member_id: Arc<str>) -> Step {
        let member = ClassicGroupMember::new(
            member_id.clone(),
            self.request.group_instance_id.as_deref().map(Arc::from),
            (self.context.client_id.clone(), self.context.client_host.clone()),
            self.request.rebalance_timeout_ms,
            self.request.session_timeout_ms,
            self.request.protocol_type.clone(),
            self.request.protocols.clone(),
        );
        if group.is_in_state(ClassicGroupState::PreparingRebalance)
            && group.previous_state() == ClassicGroupState::Empty
        {
            group.new_member_added = true;
        }
        if group.add(member.into_new(), Some(self.token)).is_err() {
            return self.refuse("", ErrorCode::UNKNOWN_SERVER_ERROR, steps);
        }
        let instance_id = self.request.group_instance_id.as_deref();
        let reason = format!(
            "adding new member {member_id} with group instance id {}; client reason: {}",
            instance_id.unwrap_or("none"),
            self.client_reason()
        );
        steps.outbox.events.push(GroupEvent::MemberAdded {
            group_id: group.group_id().clone(),
            member_id: member_id.clone(),
            group_instance_id: instance_id.map(str::to_owned),
        });
        // It cannot heartbeat before it has an answer; this keeps it through a long rebalance, not for ever.
        steps.schedule_heartbeat(group, member_id, GroupCoordinatorConfig::NEW_MEMBER_JOIN_TIMEOUT_MS);
        steps.maybe_prepare_rebalance_or_complete_join(group, reason)
    }

    /// KIP-345: a restarted static member takes its own place. In a stable group whose protocol stays, nobody else
    /// notices, but the new id must be in the log before it is told (KAFKA-10284).
    fn replace_static_member(
        self,
        group: &mut ClassicGroup,
        steps: &mut Steps<'_>,
        instance_id: String,
        old_member_id: Arc<str>,
        new_member_id: Arc<str>,
    ) -> Step {
        let old_leader = group.leader().map(str::to_owned);
        let reason = format!(
            "static member {instance_id} is back as {new_member_id}; client reason: {}",
            self.client_reason()
        );
        steps.outbox.events.push(GroupEvent::StaticMemberReplaced {
            group_id: group.group_id().clone(),
            group_instance_id: instance_id.clone(),
            old_member_id: old_member_id.clone(),
            new_member_id: new_member_id.clone(),
        });
        group.replace_static_member(&instance_id, &old_member_id, new_member_id.clone(), steps.outbox);
        steps.reschedule_heartbeat(group, &new_member_id);
        let Some(replaced) = group.member(&new_member_id) else { return Step::nothing() };
        let replacement = StaticMemberReplacement {
            group: self.group_ref,
            group_instance_id: instance_id,
            old_member_id,
            new_member_id: new_member_id.clone(),
            old_protocols: replaced.supported_protocols().to_vec(),
            old_rebalance_timeout_ms: replaced.rebalance_timeout_ms(),
            old_session_timeout_ms: replaced.session_timeout_ms(),
            old_leader,
            token: self.token,
            supports_skipping_assignment: self.context.api_version >= SUPPORTS_SKIPPING_ASSIGNMENT,
        };
        group.update_member(
            &new_member_id,
            self.request.protocols,
            self.request.rebalance_timeout_ms,
            self.request.session_timeout_ms,
            Some(self.token),
            steps.outbox,
        );
        match group.state() {
            ClassicGroupState::Stable => {
                if group.protocol_name() == group.select_protocol().as_deref() {
                    let record = group_metadata_record(group, |member_id| {
                        group.member(member_id).map(|m| m.assignment().clone()).unwrap_or_default()
                    });
                    return Step::record(record, AppendAction::StaticMember(Box::new(replacement)));
                }
                steps.maybe_prepare_rebalance_or_complete_join(group, reason)
            }
            ClassicGroupState::CompletingRebalance => steps.prepare_rebalance(group, reason),
            _ => steps.maybe_complete_join_phase(group),
        }
    }
}

/// Whether the group has room (KIP-389). While members gather, those that came first stay.
fn accepts_joining_member(group: &ClassicGroup, member_id: &str, config: &GroupCoordinatorConfig) -> bool {
    match group.state() {
        ClassicGroupState::Empty | ClassicGroupState::Dead => true,
        ClassicGroupState::PreparingRebalance => {
            group.member(member_id).is_some_and(ClassicGroupMember::is_awaiting_join)
                || group.num_awaiting_join() < config.max_size()
        }
        ClassicGroupState::CompletingRebalance | ClassicGroupState::Stable => {
            group.has_member(member_id) || group.num_members() < config.max_size()
        }
    }
}

/// Client id or instance id, then a random UUID (version 4).
fn generate_member_id(prefix: &str, random: u128) -> String {
    let bits = (random & !(0xf << 76) & !(0b11 << 62)) | (0x4 << 76) | (0b10 << 62);
    let hex = format!("{bits:032x}");
    let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    format!("{prefix}-{a}-{b}-{c}-{d}-{e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_ids_end_in_a_version_4_uuid() {
        assert_eq!(generate_member_id("c", 0), "c-00000000-0000-4000-8000-000000000000");
        assert_eq!(generate_member_id("", u128::MAX), "-ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
