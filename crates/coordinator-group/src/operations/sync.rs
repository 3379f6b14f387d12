//! SyncGroup: the leader brings the assignment, everybody fetches theirs.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use coordinator::RequestToken;
use protocol::ErrorCode;
use protocol::messages::{SyncGroupRequest, SyncGroupResponse};
use record::Time;

use crate::classic::{ClassicGroup, ClassicGroupState};
use crate::deferred::{AppendAction, Deferred, Step};
use crate::events::GroupEvent;
use crate::outbox::{Waiting, sync_error};
use crate::records::group_metadata_record;
use crate::shard::{GroupCoordinatorShard, GroupResult, GroupTimers};
use crate::state::{ClassicGroupRef, Group};

use super::Steps;

impl GroupCoordinatorShard {
    pub(crate) fn classic_group_sync(
        &mut self,
        now: Time,
        timers: &mut GroupTimers,
        api_version: i16,
        request: SyncGroupRequest,
        token: RequestToken,
    ) -> GroupResult {
        self.outbox.open(token, Waiting::Sync, api_version);
        let step = match self.group(&request.group_id).cloned() {
            Some(Group::Classic(group_ref)) => match self.steps(now, timers, &group_ref) {
                Some((group, mut steps)) if !group.is_in_state(ClassicGroupState::Empty) => {
                    sync_to_classic_group(group, &mut steps, group_ref, request, token)
                }
                _ => self.refuse_sync(token, ErrorCode::UNKNOWN_MEMBER_ID),
            },
            Some(Group::Modern(group)) => {
                let instance_id = request.group_instance_id.as_deref();
                let valid =
                    group.validate_classic_request(&request.member_id, instance_id, request.generation_id);
                // A member that is right here must join anew: this node does not assign for newer protocols yet.
                self.refuse_sync(token, valid.err().unwrap_or(ErrorCode::REBALANCE_IN_PROGRESS))
            }
            None => self.refuse_sync(token, ErrorCode::UNKNOWN_MEMBER_ID),
        };
        GroupResult::without_replay(step.records, Deferred::Waiting { token, action: step.action })
    }

    fn refuse_sync(&mut self, token: RequestToken, error: ErrorCode) -> Step {
        self.outbox.sync(token, sync_error(error));
        Step::nothing()
    }
}

fn sync_to_classic_group(
    group: &mut ClassicGroup,
    steps: &mut Steps<'_>,
    group_ref: ClassicGroupRef,
    request: SyncGroupRequest,
    token: RequestToken,
) -> Step {
    if let Err(error) = validate_sync_group(group, &request) {
        steps.outbox.sync(token, sync_error(error));
        return Step::nothing();
    }
    match group.state() {
        ClassicGroupState::PreparingRebalance => {
            steps.outbox.sync(token, sync_error(ErrorCode::REBALANCE_IN_PROGRESS));
        }
        ClassicGroupState::CompletingRebalance => {
            group.await_sync(&request.member_id, token, steps.outbox);
            steps.remove_pending_sync_member(group, &request.member_id);
            if group.is_leader(&request.member_id) {
                let assignment: BTreeMap<Arc<str>, Bytes> = request
                    .assignments
                    .into_iter()
                    .map(|assigned| (Arc::from(assigned.member_id), assigned.assignment))
                    .collect();
                let record = group_metadata_record(group, |member_id| {
                    assignment.get(member_id).cloned().unwrap_or_default()
                });
                let generation_id = group.generation_id();
                steps.outbox.events.push(GroupEvent::AssignmentReceived {
                    group_id: group.group_id().clone(),
                    generation_id,
                    leader: Arc::from(request.member_id),
                    members: group.num_members(),
                });
                return Step::record(
                    record,
                    AppendAction::Assignment { group: group_ref, generation_id, assignment },
                );
            }
        }
        ClassicGroupState::Stable => {
            steps.remove_pending_sync_member(group, &request.member_id);
            let member = group.member(&request.member_id);
            let response = SyncGroupResponse {
                protocol_type: group.protocol_type().map(str::to_owned),
                protocol_name: group.protocol_name().map(str::to_owned),
                assignment: member.map(|member| member.assignment().clone()).unwrap_or_default(),
                ..Default::default()
            };
            steps.outbox.sync(token, response);
        }
        ClassicGroupState::Empty | ClassicGroupState::Dead => {}
    }
    Step::nothing()
}

fn validate_sync_group(group: &ClassicGroup, request: &SyncGroupRequest) -> Result<(), ErrorCode> {
    if group.is_in_state(ClassicGroupState::Dead) {
        return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
    }
    group.validate_member(&request.member_id, request.group_instance_id.as_deref())?;
    if request.generation_id != group.generation_id() {
        return Err(ErrorCode::ILLEGAL_GENERATION);
    }
    if is_inconsistent(request.protocol_type.as_deref(), group.protocol_type())
        || is_inconsistent(request.protocol_name.as_deref(), group.protocol_name())
    {
        return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
    }
    Ok(())
}

/// Both sides say something, and not the same (KIP-559).
fn is_inconsistent(requested: Option<&str>, of_group: Option<&str>) -> bool {
    matches!((requested, of_group), (Some(requested), Some(of_group)) if requested != of_group)
}
