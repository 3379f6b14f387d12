//! Heartbeat and LeaveGroup.

use std::sync::Arc;

use coordinator::RequestToken;
use protocol::ErrorCode;
use protocol::messages::leave_group_request::MemberIdentity;
use protocol::messages::leave_group_response::MemberResponse;
use protocol::messages::{HeartbeatRequest, LeaveGroupRequest, LeaveGroupResponse};
use record::Time;

use crate::classic::{ClassicGroup, ClassicGroupState};
use crate::deferred::{Deferred, Step};
use crate::events::Removal;
use crate::message::{GroupResponse, shape_leave_group};
use crate::shard::{GroupCoordinatorShard, GroupResult, GroupTimers};
use crate::state::Group;

use super::Steps;

impl GroupCoordinatorShard {
    /// `Ok` carries the error code of a heartbeat that counted, `Err` that of one that did not.
    pub(crate) fn classic_group_heartbeat(
        &mut self,
        now: Time,
        timers: &mut GroupTimers,
        request: &HeartbeatRequest,
    ) -> Result<ErrorCode, ErrorCode> {
        let instance_id = request.group_instance_id.as_deref();
        let group = match self.group(&request.group_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)? {
            Group::Classic(group) => group.clone(),
            Group::Modern(group) => {
                group.validate_classic_request(&request.member_id, instance_id, request.generation_id)?;
                return Ok(ErrorCode::NONE);
            }
        };
        let Some((group, mut steps)) = self.steps(now, timers, &group) else {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        };
        if group.is_in_state(ClassicGroupState::Dead) {
            return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        group.validate_member(&request.member_id, instance_id)?;
        if request.generation_id != group.generation_id() {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        match group.state() {
            ClassicGroupState::Empty | ClassicGroupState::Dead => Ok(ErrorCode::UNKNOWN_MEMBER_ID),
            ClassicGroupState::PreparingRebalance => {
                steps.reschedule_heartbeat(group, &request.member_id);
                Ok(ErrorCode::REBALANCE_IN_PROGRESS)
            }
            ClassicGroupState::CompletingRebalance | ClassicGroupState::Stable => {
                steps.reschedule_heartbeat(group, &request.member_id);
                Ok(ErrorCode::NONE)
            }
        }
    }

    /// The request has the shape of version 3 and later: a list of members.
    pub(crate) fn classic_group_leave(
        &mut self,
        now: Time,
        timers: &mut GroupTimers,
        api_version: i16,
        request: LeaveGroupRequest,
        token: RequestToken,
    ) -> GroupResult {
        let answer = |members: Vec<MemberResponse>, error: ErrorCode| {
            let mut response = LeaveGroupResponse { error_code: error.code(), members, ..Default::default() };
            shape_leave_group(&mut response, api_version);
            Deferred::Response { token, api_version, response: GroupResponse::LeaveGroup(response) }
        };
        let group = match self.group(&request.group_id) {
            Some(Group::Classic(group)) => group.clone(),
            // No such group, or one whose members this node cannot remove yet.
            modern => {
                let error = |member: &MemberIdentity| match modern {
                    Some(Group::Modern(group)) => group
                        .validate_leaving_member(&member.member_id, member.group_instance_id.as_deref())
                        .err()
                        .unwrap_or(ErrorCode::UNKNOWN_MEMBER_ID),
                    _ => ErrorCode::UNKNOWN_MEMBER_ID,
                };
                let members = request.members.iter().map(|member| member_response(member, error(member)));
                return GroupResult::new(Vec::new(), answer(members.collect(), ErrorCode::NONE));
            }
        };
        let Some((group, mut steps)) = self.steps(now, timers, &group) else {
            return GroupResult::new(Vec::new(), answer(Vec::new(), ErrorCode::UNKNOWN_MEMBER_ID));
        };
        if group.is_in_state(ClassicGroupState::Dead) {
            return GroupResult::new(Vec::new(), answer(Vec::new(), ErrorCode::COORDINATOR_NOT_AVAILABLE));
        }
        let mut members = Vec::with_capacity(request.members.len());
        for member in &request.members {
            let error = leave(group, &mut steps, member).err().unwrap_or(ErrorCode::NONE);
            members.push(member_response(member, error));
        }
        let any_left = members.iter().any(|member| member.error_code == ErrorCode::NONE.code());
        let step = match group.state() {
            _ if !any_left => Step::nothing(),
            ClassicGroupState::CompletingRebalance | ClassicGroupState::Stable => {
                let left = members.iter().filter(|member| member.error_code == ErrorCode::NONE.code());
                let left: Vec<&str> = left.map(|member| member.member_id.as_str()).collect();
                let reason = format!("explicit LeaveGroup of {}", left.join(", "));
                steps.maybe_prepare_rebalance_or_complete_join(group, reason)
            }
            ClassicGroupState::PreparingRebalance => steps.maybe_complete_join_phase(group),
            ClassicGroupState::Empty | ClassicGroupState::Dead => Step::nothing(),
        };
        debug_assert!(matches!(step.action, crate::deferred::AppendAction::None));
        GroupResult::without_replay(step.records, answer(members, ErrorCode::NONE))
    }
}

fn leave(group: &mut ClassicGroup, steps: &mut Steps<'_>, member: &MemberIdentity) -> Result<(), ErrorCode> {
    let instance_id = member.group_instance_id.as_deref();
    let member_id: Arc<str> = if member.member_id.is_empty() {
        // An administrator removes a static member whose id it does not know (KIP-345).
        let known = instance_id.and_then(|instance_id| group.static_member_id(instance_id));
        known.cloned().ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?
    } else {
        if !group.is_pending_member(&member.member_id) {
            group.validate_member(&member.member_id, instance_id)?;
        }
        Arc::from(member.member_id.as_str())
    };
    steps.cancel_heartbeat(group, &member_id);
    let reason = member.reason.clone().unwrap_or_else(|| "not provided".to_owned());
    steps.remove(group, &member_id, Removal::Left(reason));
    Ok(())
}

fn member_response(member: &MemberIdentity, error: ErrorCode) -> MemberResponse {
    MemberResponse {
        member_id: member.member_id.clone(),
        group_instance_id: member.group_instance_id.clone(),
        error_code: error.code(),
    }
}
