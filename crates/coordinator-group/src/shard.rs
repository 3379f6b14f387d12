//! The state machine behind one partition of `__consumer_offsets`.
//!
//! Owns the replicated state (which groups, which offsets) with its snapshots, the soft state of classic groups, and
//! the answers that are ready. Invariants: replicated state changes in replay; the committed state is what readers see;
//! a classic group's members, generation and state run ahead of its record, as in the reference, and are told to
//! clients only when losing the record does no harm.

use std::sync::Arc;

use coordinator::{
    CoordinatorResult, CoordinatorShard, DecodeRecordError, Producer, RawRecord, ReplayError, RequestToken,
    Timers, TransactionResult, map_group_metadata_append_error, map_operation_error,
};
use protocol::ErrorCode;
use protocol::messages::SyncGroupResponse;
use protocol::records::group::{OffsetCommitKey, OffsetCommitValue, RecordKey, RecordValue};
use record::Time;
use timeline::SnapshotRegistry;

use crate::classic::{ClassicGroup, ClassicGroupState};
use crate::config::GroupCoordinatorConfig;
use crate::deferred::{AppendAction, Deferred, StaticMemberReplacement, Step, Timeout, TimerKey};
use crate::groups::ClassicGroups;
use crate::message::GroupResponse;
use crate::metrics::{GroupGauges, GroupMetrics};
use crate::modern::{self, ModernGroup, ModernKind};
use crate::operations::Steps;
use crate::outbox::{Outbox, join_error, sync_error};
use crate::records::GroupRecord;
use crate::state::{ClassicGroupRef, Group, GroupState};

pub(crate) type GroupResult = CoordinatorResult<GroupRecord, Deferred>;
pub(crate) type GroupTimers = Timers<GroupCoordinatorShard>;

pub(crate) struct GroupCoordinatorShard {
    pub(crate) config: Arc<GroupCoordinatorConfig>,
    pub(crate) state: SnapshotRegistry<GroupState>,
    committed: GroupState,
    pub(crate) classic: ClassicGroups,
    pub(crate) outbox: Outbox,
    pub(crate) metrics: GroupMetrics,
}

impl GroupCoordinatorShard {
    pub(crate) fn new(config: Arc<GroupCoordinatorConfig>) -> Self {
        Self {
            config,
            state: SnapshotRegistry::default(),
            committed: GroupState::default(),
            classic: ClassicGroups::default(),
            outbox: Outbox::default(),
            metrics: GroupMetrics::default(),
        }
    }

    /// What readers may see.
    pub(crate) fn committed(&self) -> &GroupState {
        &self.committed
    }

    pub(crate) fn group(&self, group_id: &str) -> Option<&Group> {
        self.state.groups.get(group_id)
    }

    /// The classic group of that name.
    pub(crate) fn classic_ref(&self, group_id: &str) -> Option<ClassicGroupRef> {
        match self.group(group_id)? {
            Group::Classic(group) => Some(group.clone()),
            Group::Modern(_) => None,
        }
    }

    pub(crate) fn create_classic_group(&mut self, now: Time, group_id: &str) -> ClassicGroupRef {
        let group_id: Arc<str> = Arc::from(group_id);
        let group = self.classic.insert(ClassicGroup::new_empty(group_id.clone(), now.wall_ms));
        self.state.groups.insert(group_id, Group::Classic(group.clone()));
        group
    }

    /// The group and what the steps of its protocol need besides it.
    pub(crate) fn steps<'a>(
        &'a mut self,
        now: Time,
        timers: &'a mut GroupTimers,
        group: &ClassicGroupRef,
    ) -> Option<(&'a mut ClassicGroup, Steps<'a>)> {
        let group = self.classic.get_mut(group)?;
        Some((group, Steps { now, timers, config: &self.config, outbox: &mut self.outbox }))
    }

    pub(crate) fn gauges(&self) -> GroupGauges {
        let mut gauges = GroupGauges { offsets: self.committed.offsets.offsets.len(), ..Default::default() };
        for group in self.committed.groups.values() {
            match group {
                Group::Classic(group) => match self.classic.get(group).map(ClassicGroup::state) {
                    Some(ClassicGroupState::Empty) => gauges.classic_empty += 1,
                    Some(ClassicGroupState::PreparingRebalance) => gauges.classic_preparing_rebalance += 1,
                    Some(ClassicGroupState::CompletingRebalance) => gauges.classic_completing_rebalance += 1,
                    Some(ClassicGroupState::Stable) => gauges.classic_stable += 1,
                    Some(ClassicGroupState::Dead) | None => gauges.classic_dead += 1,
                },
                Group::Modern(group) => match group.kind() {
                    ModernKind::Consumer => gauges.consumer_groups += 1,
                    ModernKind::Share => gauges.share_groups += 1,
                    ModernKind::Streams => gauges.streams_groups += 1,
                },
            }
        }
        gauges
    }

    fn replay_offset_commit(
        &mut self,
        now: Time,
        offset: i64,
        producer: Option<Producer>,
        key: &OffsetCommitKey,
        value: Option<OffsetCommitValue>,
    ) {
        let Some(value) = value else {
            return self.state.offsets.replay_tombstone(&key.group, &key.topic, key.partition);
        };
        if self.group(&key.group).is_none() {
            self.create_classic_group(now, &key.group);
        }
        let place = (key.group.as_str(), key.topic.as_str(), key.partition);
        self.state.offsets.replay_commit(offset, producer.map(|producer| producer.id), place, value);
    }

    fn replay_modern(
        &mut self,
        kind: ModernKind,
        group_id: &str,
        record: &RecordKey,
        value: Option<RecordValue>,
    ) -> Result<(), ReplayError> {
        let contradiction = || ReplayError(format!("group {group_id} is not a {} group", kind.name()));
        match self.state.groups.get(group_id) {
            Some(Group::Modern(group)) if group.kind() == kind => {}
            Some(Group::Modern(_)) => return Err(contradiction()),
            _ if value.is_none() => return Ok(()),
            // A group that only committed offsets so far may become any kind of group.
            Some(Group::Classic(group))
                if kind == ModernKind::Share
                    || !self.classic.get(group).is_some_and(ClassicGroup::is_simple_group) =>
            {
                return Err(contradiction());
            }
            _ => {
                let group = Arc::new(ModernGroup::new(kind, group_id));
                self.state.groups.insert(Arc::from(group_id), Group::Modern(group));
                self.classic.mark_dirty();
            }
        }
        if value.is_none() && modern::is_group_key(record) {
            self.state.groups.remove(group_id);
        } else if let Some(Group::Modern(group)) = self.state.groups.get_mut(group_id) {
            Arc::make_mut(group).replay(record, value);
        }
        Ok(())
    }

    /// What follows when a group's record is committed or lost.
    fn run_action(
        &mut self,
        now: Time,
        timers: &mut GroupTimers,
        action: AppendAction,
        result: Result<(), ErrorCode>,
    ) {
        let error = result.map_err(map_group_metadata_append_error).err();
        match action {
            AppendAction::None => {}
            AppendAction::EmptyGroup { token } => {
                if let Some(error) = error {
                    self.outbox.join(token, join_error("", error));
                }
            }
            AppendAction::Assignment { group, generation_id, assignment } => {
                let Some((group, mut steps)) = self.steps(now, timers, &group) else { return };
                if !group.is_in_state(ClassicGroupState::CompletingRebalance)
                    || group.generation_id() != generation_id
                {
                    return;
                }
                if let Some(error) = error {
                    steps.reset_and_propagate_assignment_with_error(group, error);
                    // The record of a group that got empty here is not written, as in the reference: its members are
                    // gone, and the next load finds them timing out.
                    let reason = format!("the assignment could not be stored: {}", error.name());
                    steps.maybe_prepare_rebalance_or_complete_join(group, reason);
                } else {
                    group.set_assignments(|member| assignment.get(member).cloned().unwrap_or_default());
                    let protocol_type = group.protocol_type().map(str::to_owned);
                    let protocol_name = group.protocol_name().map(str::to_owned);
                    steps.propagate_assignment(group, |assignment| SyncGroupResponse {
                        protocol_type: protocol_type.clone(),
                        protocol_name: protocol_name.clone(),
                        assignment,
                        ..Default::default()
                    });
                    group.transition_to(ClassicGroupState::Stable, now.wall_ms);
                    self.metrics.completed_rebalances += 1;
                }
            }
            AppendAction::StaticMember(replacement) => {
                self.static_member_written(now, timers, *replacement, error);
            }
        }
    }

    fn static_member_written(
        &mut self,
        now: Time,
        timers: &mut GroupTimers,
        replaced: StaticMemberReplacement,
        error: Option<ErrorCode>,
    ) {
        let Some((group, mut steps)) = self.steps(now, timers, &replaced.group) else { return };
        let new_member_id = replaced.new_member_id;
        let Some(error) = error else {
            let leads = group.is_leader(&new_member_id);
            group.complete_join(&new_member_id, steps.outbox, |group| {
                let mut response = group.join_response(&new_member_id, false);
                if replaced.supports_skipping_assignment {
                    // The leader learns the members, but that the assignment stands (KIP-814).
                    response = group.join_response(&new_member_id, leads);
                    response.skip_assignment = leads;
                } else {
                    // An older leader is not told that it leads: it would assign (KAFKA-12759).
                    response.leader = replaced.old_leader.unwrap_or_default();
                }
                response
            });
            return;
        };
        let answered = JoinRefusal { token: replaced.token, leader: replaced.old_leader, error };
        if group.has_member(&new_member_id) {
            group.update_member(
                &new_member_id,
                replaced.old_protocols,
                replaced.old_rebalance_timeout_ms,
                replaced.old_session_timeout_ms,
                None,
                steps.outbox,
            );
            let instance_id = &replaced.group_instance_id;
            let old_member_id = replaced.old_member_id;
            group.replace_static_member(instance_id, &new_member_id, old_member_id.clone(), steps.outbox);
            steps.reschedule_heartbeat(group, &old_member_id);
        }
        answered.send(group, steps.outbox);
    }
}

/// The answer to a static member whose return could not be recorded.
struct JoinRefusal {
    token: RequestToken,
    leader: Option<String>,
    error: ErrorCode,
}

impl JoinRefusal {
    fn send(self, group: &ClassicGroup, outbox: &mut Outbox) {
        let mut response = group.join_response("", false);
        response.leader = self.leader.unwrap_or_default();
        response.error_code = self.error.code();
        outbox.join(self.token, response);
    }
}

impl CoordinatorShard for GroupCoordinatorShard {
    type Record = GroupRecord;
    type Deferred = Deferred;
    type TimerKey = TimerKey;
    type Timeout = Timeout;

    fn encode(record: &GroupRecord) -> Result<RawRecord, ErrorCode> {
        record.encode().map_err(|_| ErrorCode::UNKNOWN_SERVER_ERROR)
    }

    fn decode(record: RawRecord) -> Result<GroupRecord, DecodeRecordError> {
        GroupRecord::decode(record)
    }

    fn replay(
        &mut self,
        now: Time,
        offset: i64,
        producer: Option<Producer>,
        record: GroupRecord,
    ) -> Result<(), ReplayError> {
        if let Some((kind, group_id)) = modern::owner_of(&record.key) {
            return self.replay_modern(kind, group_id, &record.key, record.value);
        }
        match (record.key, record.value) {
            (RecordKey::OffsetCommitKey(key), None) => {
                self.replay_offset_commit(now, offset, producer, &key, None);
            }
            (RecordKey::OffsetCommitKey(key), Some(RecordValue::OffsetCommitValue(value))) => {
                self.replay_offset_commit(now, offset, producer, &key, Some(value));
            }
            (RecordKey::LegacyOffsetCommitKey(key), value) => {
                let key = OffsetCommitKey { group: key.group, topic: key.topic, partition: key.partition };
                let value = match value {
                    Some(RecordValue::LegacyOffsetCommitValue(value)) => Some(OffsetCommitValue {
                        offset: value.offset,
                        metadata: value.metadata,
                        commit_timestamp: value.commit_timestamp,
                        ..Default::default()
                    }),
                    _ => None,
                };
                self.replay_offset_commit(now, offset, producer, &key, value);
            }
            (RecordKey::GroupMetadataKey(key), None) => {
                self.state.groups.remove(key.group.as_str());
                self.classic.mark_dirty();
            }
            (RecordKey::GroupMetadataKey(key), Some(RecordValue::GroupMetadataValue(value))) => {
                let group_id: Arc<str> = Arc::from(key.group);
                let group = ClassicGroup::from_record(group_id.clone(), &value).map_err(ReplayError)?;
                let group = self.classic.insert(group);
                self.state.groups.insert(group_id, Group::Classic(group));
                self.classic.mark_dirty();
            }
            (key, _) => return Err(ReplayError(format!("key {key:?} with the value of another"))),
        }
        Ok(())
    }

    fn replay_end_transaction_marker(
        &mut self,
        producer: Producer,
        result: TransactionResult,
    ) -> Result<(), ReplayError> {
        self.state.offsets.replay_end_transaction_marker(producer.id, result);
        Ok(())
    }

    fn create_snapshot(&mut self, offset: i64) {
        self.state.get_or_create_snapshot(offset);
    }

    fn revert_to(&mut self, offset: i64) {
        let reverted = self.state.revert_to(offset);
        debug_assert!(reverted.is_ok(), "no snapshot at {offset}");
        self.classic.mark_dirty();
        self.classic.sweep();
    }

    fn commit_up_to(&mut self, offset: i64) {
        let newest = self.state.offsets().filter(|snapshot| *snapshot <= offset).last();
        if let Some(committed) = newest
            && let Ok(state) = self.state.at(committed)
        {
            self.committed = state.clone();
            self.state.delete_snapshots_up_to(committed);
        }
        self.classic.sweep();
    }

    fn handle_loaded(&mut self, now: Time, timers: &mut GroupTimers) {
        let groups: Vec<Group> = self.state.groups.values().cloned().collect();
        let max_size = self.config.max_size();
        for group in groups {
            let Group::Classic(group) = group else { continue };
            let Some((group, mut steps)) = self.steps(now, timers, &group) else { continue };
            let members: Vec<Arc<str>> = group.members().map(|m| m.member_id().clone()).collect();
            for member_id in &members {
                steps.reschedule_heartbeat(group, member_id);
            }
            if members.len() > max_size && group.can_rebalance() {
                // Over capacity: a rebalance lets members commit before some of them are refused (KIP-389).
                steps.prepare_rebalance(group, format!("loaded with more than {max_size} members"));
            }
        }
        self.schedule_group_metadata_expiration(now, timers);
    }

    fn handle_unloaded(&mut self, now: Time) {
        let groups: Vec<Group> = self.state.groups.values().cloned().collect();
        for group in groups {
            let Group::Classic(group) = group else { continue };
            let Some(group) = self.classic.get_mut(&group) else { continue };
            group.transition_to(ClassicGroupState::Dead, now.wall_ms);
            let members: Vec<Arc<str>> = group.members().map(|m| m.member_id().clone()).collect();
            for member_id in members {
                let error = ErrorCode::NOT_COORDINATOR;
                group.complete_join(&member_id, &mut self.outbox, |_| join_error(&member_id, error));
                group.complete_sync(&member_id, &mut self.outbox, |_| sync_error(error));
            }
        }
        self.outbox.fail_all_open(ErrorCode::NOT_COORDINATOR);
    }

    fn handle_timer(
        &mut self,
        now: Time,
        timers: &mut GroupTimers,
        key: TimerKey,
        timeout: Timeout,
    ) -> GroupResult {
        let internal = |step: Step| {
            let deferred = Deferred::Internal { action: step.action, retry: None };
            GroupResult::without_replay(step.records, deferred)
        };
        let group_id = match &key {
            TimerKey::GroupMetadataExpiration => return self.cleanup_group_metadata(now, timers),
            TimerKey::Heartbeat(group_id, _) | TimerKey::Join(group_id) | TimerKey::Sync(group_id) => {
                group_id
            }
        };
        let Some(group) = self.classic_ref(group_id) else { return internal(Step::nothing()) };
        let Some((group, mut steps)) = self.steps(now, timers, &group) else {
            return internal(Step::nothing());
        };
        internal(match (&key, timeout) {
            (TimerKey::Heartbeat(_, member_id), _) => steps.expire_heartbeat(group, member_id),
            (TimerKey::Join(_), Timeout::InitialRebalance { delay_ms, remaining_ms }) => {
                steps.try_complete_initial_rebalance(group, delay_ms, remaining_ms)
            }
            (TimerKey::Join(_), _) => steps.complete_join(group),
            (_, Timeout::Sync { generation_id }) => steps.expire_pending_sync(group, generation_id),
            _ => Step::nothing(),
        })
    }

    fn complete(
        &mut self,
        now: Time,
        timers: &mut GroupTimers,
        deferred: Deferred,
        result: Result<(), ErrorCode>,
    ) {
        match deferred {
            Deferred::Response { token, api_version, response } => {
                let response = match result {
                    Ok(()) => response,
                    Err(error) => {
                        let error = map_response_error(&response, error);
                        response.into_error(api_version, error)
                    }
                };
                self.outbox.reply(token, response);
            }
            Deferred::Waiting { token, action } => {
                self.run_action(now, timers, action, result);
                if let Err(error) = result {
                    self.outbox.fail(token, map_operation_error(error));
                }
            }
            Deferred::Internal { action, retry } => {
                self.run_action(now, timers, action, result);
                let failed = result.is_err_and(|error| error != ErrorCode::NOT_COORDINATOR);
                if failed && retry.is_some() {
                    self.schedule_group_metadata_expiration(now, timers);
                }
            }
        }
    }
}

/// OffsetFetch has a mapping of its own: a client that cannot read offsets must look for another coordinator.
fn map_response_error(response: &GroupResponse, error: ErrorCode) -> ErrorCode {
    match (response, error) {
        (
            GroupResponse::OffsetFetch(_),
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::NOT_ENOUGH_REPLICAS
            | ErrorCode::REQUEST_TIMED_OUT,
        ) => ErrorCode::NOT_COORDINATOR,
        // The transaction coordinator that waits for a marker is no client: it sees the log's error.
        (GroupResponse::CompleteTransaction(_), error) => error,
        (_, error) => map_operation_error(error),
    }
}
