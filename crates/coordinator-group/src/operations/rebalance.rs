//! The steps of a classic group's rebalance, shared by all operations.
//!
//! Each step changes the group in memory, answers who can be answered, and may decide on a record.

use std::sync::Arc;

use bytes::Bytes;
use protocol::ErrorCode;
use protocol::messages::SyncGroupResponse;
use record::Time;

use crate::classic::{ClassicGroup, ClassicGroupState};
use crate::config::GroupCoordinatorConfig;
use crate::deferred::{AppendAction, Step, Timeout, TimerKey};
use crate::events::{GroupEvent, Removal};
use crate::outbox::Outbox;
use crate::records::group_metadata_record;
use crate::shard::GroupTimers;

/// What a step needs besides the group.
pub(crate) struct Steps<'a> {
    pub(crate) now: Time,
    pub(crate) timers: &'a mut GroupTimers,
    pub(crate) config: &'a GroupCoordinatorConfig,
    pub(crate) outbox: &'a mut Outbox,
}

impl Steps<'_> {
    pub(crate) fn maybe_prepare_rebalance_or_complete_join(
        &mut self,
        group: &mut ClassicGroup,
        reason: String,
    ) -> Step {
        if group.can_rebalance() {
            self.prepare_rebalance(group, reason)
        } else {
            self.maybe_complete_join_phase(group)
        }
    }

    pub(crate) fn prepare_rebalance(&mut self, group: &mut ClassicGroup, reason: String) -> Step {
        if group.is_in_state(ClassicGroupState::CompletingRebalance) {
            self.reset_and_propagate_assignment_with_error(group, ErrorCode::REBALANCE_IN_PROGRESS);
        }
        self.remove_sync_expiration(group);
        let is_initial = group.is_in_state(ClassicGroupState::Empty);
        if is_initial {
            let delay_ms = self.config.group_initial_rebalance_delay_ms;
            let remaining_ms = group.rebalance_timeout_ms().saturating_sub(delay_ms).max(0);
            self.schedule(
                TimerKey::Join(group.group_id().clone()),
                delay_ms,
                Timeout::InitialRebalance { delay_ms, remaining_ms },
            );
        }
        group.transition_to(ClassicGroupState::PreparingRebalance, self.now.wall_ms);
        let generation_id = group.generation_id();
        let group_id = group.group_id().clone();
        self.outbox.events.push(GroupEvent::PreparingRebalance { group_id, generation_id, reason });
        if is_initial { Step::nothing() } else { self.maybe_complete_join_else_schedule(group) }
    }

    pub(crate) fn maybe_complete_join_phase(&mut self, group: &mut ClassicGroup) -> Step {
        let is_complete = group.is_in_state(ClassicGroupState::PreparingRebalance)
            && group.previous_state() != ClassicGroupState::Empty
            && group.has_all_members_joined();
        if is_complete { self.complete_join(group) } else { Step::nothing() }
    }

    fn maybe_complete_join_else_schedule(&mut self, group: &mut ClassicGroup) -> Step {
        if group.has_all_members_joined() {
            return self.complete_join(group);
        }
        let timeout_ms = group.rebalance_timeout_ms();
        self.schedule(TimerKey::Join(group.group_id().clone()), timeout_ms, Timeout::Simple);
        Step::nothing()
    }

    /// The first rebalance goes on waiting as long as members keep coming, up to the rebalance timeout (KIP-134).
    pub(crate) fn try_complete_initial_rebalance(
        &mut self,
        group: &mut ClassicGroup,
        delay_ms: i32,
        remaining_ms: i32,
    ) -> Step {
        if !group.new_member_added
            || remaining_ms == 0
            || !group.is_in_state(ClassicGroupState::PreparingRebalance)
        {
            return self.complete_join(group);
        }
        group.new_member_added = false;
        let delay = self.config.group_initial_rebalance_delay_ms.min(remaining_ms);
        let remaining_ms = (remaining_ms - delay_ms).max(0);
        self.schedule(
            TimerKey::Join(group.group_id().clone()),
            delay,
            Timeout::InitialRebalance { delay_ms: delay, remaining_ms },
        );
        Step::nothing()
    }

    /// The join phase is over: who has not come is out, everybody else gets the next generation.
    pub(crate) fn complete_join(&mut self, group: &mut ClassicGroup) -> Step {
        self.timers.cancel(&TimerKey::Join(group.group_id().clone()));
        if !group.is_in_state(ClassicGroupState::PreparingRebalance) {
            // The timer of a group of the same name whose first record was lost.
            return Step::nothing();
        }
        for member_id in group.not_yet_rejoined_dynamic_members() {
            self.remove(group, &member_id, Removal::NotRejoined);
            self.cancel_heartbeat(group, &member_id);
        }
        if !group.maybe_elect_new_joined_leader() && group.num_members() > 0 {
            // Only static members are left and none has come: they have until their sessions end.
            let timeout_ms = group.rebalance_timeout_ms();
            self.schedule(TimerKey::Join(group.group_id().clone()), timeout_ms, Timeout::Simple);
            return Step::nothing();
        }
        group.init_next_generation(self.now.wall_ms);
        let (group_id, generation_id) = (group.group_id().clone(), group.generation_id());
        if group.is_in_state(ClassicGroupState::Empty) {
            self.outbox.events.push(GroupEvent::Empty { group_id, generation_id });
            return Step::record(group_metadata_record(group, |_| Bytes::new()), AppendAction::None);
        }
        let members: Vec<Arc<str>> = group.members().map(|member| member.member_id().clone()).collect();
        for member_id in &members {
            group.complete_join(member_id, self.outbox, |group| {
                group.join_response(member_id, group.is_leader(member_id))
            });
            self.reschedule_heartbeat(group, member_id);
            group.set_not_new(member_id);
            group.add_pending_sync_member(member_id.clone());
        }
        let timeout_ms = group.rebalance_timeout_ms();
        self.outbox.events.push(GroupEvent::Stabilized {
            group_id: group_id.clone(),
            generation_id,
            members: members.len(),
        });
        self.schedule(TimerKey::Sync(group_id), timeout_ms, Timeout::Sync { generation_id });
        Step::nothing()
    }

    pub(crate) fn expire_heartbeat(&mut self, group: &mut ClassicGroup, member_id: &str) -> Step {
        if group.is_in_state(ClassicGroupState::Dead) {
            return Step::nothing();
        }
        if group.is_pending_member(member_id) {
            self.remove(group, member_id, Removal::NeverJoined);
            return self.complete_join_if_all_joined(group);
        }
        match group.member(member_id) {
            Some(member) if !member.has_satisfied_heartbeat() => self.expire_member(group, member_id),
            _ => Step::nothing(),
        }
    }

    /// Removes a member or pending member and says so.
    pub(crate) fn remove(&mut self, group: &mut ClassicGroup, member_id: &str, removal: Removal) {
        group.remove(member_id, self.outbox);
        let group_id = group.group_id().clone();
        let member_id = Arc::from(member_id);
        self.outbox.events.push(GroupEvent::MemberRemoved { group_id, member_id, removal });
    }

    fn expire_member(&mut self, group: &mut ClassicGroup, member_id: &str) -> Step {
        self.remove(group, member_id, Removal::SessionExpired);
        match group.state() {
            ClassicGroupState::Stable | ClassicGroupState::CompletingRebalance => {
                let reason = format!("removing member {member_id} on heartbeat expiration");
                self.maybe_prepare_rebalance_or_complete_join(group, reason)
            }
            _ => self.complete_join_if_all_joined(group),
        }
    }

    fn complete_join_if_all_joined(&mut self, group: &mut ClassicGroup) -> Step {
        if group.is_in_state(ClassicGroupState::PreparingRebalance) && group.has_all_members_joined() {
            return self.complete_join(group);
        }
        Step::nothing()
    }

    /// Members that joined but did not sync within the rebalance timeout are out.
    pub(crate) fn expire_pending_sync(&mut self, group: &mut ClassicGroup, generation_id: i32) -> Step {
        let waits =
            matches!(group.state(), ClassicGroupState::CompletingRebalance | ClassicGroupState::Stable);
        if generation_id != group.generation_id() || !waits || group.pending_sync_members().is_empty() {
            return Step::nothing();
        }
        for member_id in group.pending_sync_members().clone() {
            self.remove(group, &member_id, Removal::NotSynced);
            self.cancel_heartbeat(group, &member_id);
        }
        self.prepare_rebalance(group, "members did not sync in time".to_owned())
    }

    pub(crate) fn reset_and_propagate_assignment_with_error(
        &mut self,
        group: &mut ClassicGroup,
        error: ErrorCode,
    ) {
        group.set_assignments(|_| Bytes::new());
        self.propagate_assignment(group, |assignment| SyncGroupResponse {
            protocol_type: None,
            protocol_name: None,
            assignment,
            error_code: error.code(),
            ..Default::default()
        });
    }

    /// Answers every member that waits for its assignment.
    pub(crate) fn propagate_assignment(
        &mut self,
        group: &mut ClassicGroup,
        response: impl Fn(Bytes) -> SyncGroupResponse,
    ) {
        let members: Vec<Arc<str>> = group.members().map(|member| member.member_id().clone()).collect();
        for member_id in members {
            let answered =
                group.complete_sync(&member_id, self.outbox, |member| response(member.assignment().clone()));
            if answered {
                self.reschedule_heartbeat(group, &member_id);
            }
        }
    }

    pub(crate) fn remove_pending_sync_member(&mut self, group: &mut ClassicGroup, member_id: &str) {
        group.remove_pending_sync_member(member_id);
        if group.pending_sync_members().is_empty() {
            self.timers.cancel(&TimerKey::Sync(group.group_id().clone()));
        }
    }

    fn remove_sync_expiration(&mut self, group: &mut ClassicGroup) {
        group.clear_pending_sync_members();
        self.timers.cancel(&TimerKey::Sync(group.group_id().clone()));
    }

    /// The member has been heard: its session starts anew.
    pub(crate) fn reschedule_heartbeat(&mut self, group: &ClassicGroup, member_id: &str) {
        if let Some(member) = group.member(member_id) {
            self.schedule_heartbeat(group, member.member_id().clone(), member.session_timeout_ms());
        }
    }

    pub(crate) fn schedule_heartbeat(&mut self, group: &ClassicGroup, member_id: Arc<str>, timeout_ms: i32) {
        let key = TimerKey::Heartbeat(group.group_id().clone(), member_id);
        self.schedule(key, timeout_ms, Timeout::Simple);
    }

    pub(crate) fn cancel_heartbeat(&mut self, group: &ClassicGroup, member_id: &Arc<str>) {
        self.timers.cancel(&TimerKey::Heartbeat(group.group_id().clone(), member_id.clone()));
    }

    fn schedule(&mut self, key: TimerKey, delay_ms: i32, timeout: Timeout) {
        self.timers.schedule_in(self.now.monotonic, key, i64::from(delay_ms), timeout);
    }
}
