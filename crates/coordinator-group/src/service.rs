//! One shard as the broker sees it: requests in, batches and answers out.
//!
//! Owns the checks that need no group (ids, timeouts), what differs between versions of an API, and the mapping from
//! operations to the coordinator runtime. Concurrency: one mutex of the broker per shard. After every call the broker
//! drains [`GroupShard::poll_append`] (append, [`GroupShard::handle_appended`], then the high watermark) and
//! [`GroupShard::poll_reply`], and sleeps until [`GroupShard::poll_deadline`] at most.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coordinator::{
    CoordinatorContext, CoordinatorState, LoadError, PendingAppend, Producer, RequestToken, RuntimeMetrics,
    TransactionResult,
};
use protocol::messages::describe_groups_response::DescribedGroup;
use protocol::messages::leave_group_request::MemberIdentity;
use protocol::messages::list_groups_response::ListedGroup;
use protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, LeaveGroupRequest, ListGroupsRequest,
    OffsetCommitRequest, OffsetDeleteRequest, SyncGroupRequest, TxnOffsetCommitRequest,
};
use protocol::{ErrorCode, Uuid};
use record::{Codecs, Time};

use crate::config::GroupCoordinatorConfig;
use crate::deferred::Deferred;
use crate::events::GroupEvent;
use crate::message::{
    GroupRequest, GroupResponse, RequestContext, describe_groups_error, offset_fetch_error, shape_join_group,
};
use crate::metrics::{GroupGauges, GroupMetrics};
use crate::outbox::{Reply, join_error};
use crate::shard::GroupCoordinatorShard;

/// A topic that is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedTopic {
    pub id: Uuid,
    pub name: String,
}

/// One partition of `__consumer_offsets` that this node leads, or is about to.
pub struct GroupShard {
    config: Arc<GroupCoordinatorConfig>,
    context: CoordinatorContext<GroupCoordinatorShard>,
    /// Answers that did not come from the state machine.
    replies: VecDeque<Reply>,
}

impl GroupShard {
    /// A shard that serves nothing yet.
    pub fn new(config: Arc<GroupCoordinatorConfig>) -> Self {
        let context = CoordinatorContext::new(config.coordinator_options());
        Self { config, context, replies: VecDeque::new() }
    }

    pub fn state(&self) -> CoordinatorState {
        self.context.state()
    }

    /// The leader epoch that was loaded last, -1 before.
    pub fn epoch(&self) -> i32 {
        self.context.epoch()
    }

    pub fn runtime_metrics(&self) -> &RuntimeMetrics {
        self.context.metrics()
    }

    /// Nothing while the shard does not serve.
    pub fn metrics(&self) -> Option<&GroupMetrics> {
        self.context.shard().ok().map(|shard| &shard.metrics)
    }

    /// Nothing while the shard does not serve. Walks all groups: meant for once a minute.
    pub fn gauges(&self) -> Option<GroupGauges> {
        self.context.shard().ok().map(GroupCoordinatorShard::gauges)
    }

    /// This node leads the partition since `epoch`. When it returns true the broker reads the log from its start to its
    /// end into [`Self::handle_loaded_batches`], then calls [`Self::finish_load`], or [`Self::fail_load`].
    pub fn begin_load(&mut self, epoch: i32) -> bool {
        self.context.begin_load(epoch, GroupCoordinatorShard::new(self.config.clone()))
    }

    pub fn handle_loaded_batches(
        &mut self,
        now: Time,
        bytes: &Bytes,
        codecs: &dyn Codecs,
        high_watermark: i64,
    ) -> Result<(), LoadError> {
        self.context.handle_loaded_batches(now, bytes, codecs, high_watermark)
    }

    pub fn finish_load(
        &mut self,
        now: Time,
        log_end_offset: i64,
        high_watermark: i64,
    ) -> Result<(), LoadError> {
        self.context.finish_load(now, log_end_offset, high_watermark)
    }

    pub fn fail_load(&mut self, now: Time) {
        self.context.fail_load(now);
        self.collect_stopped();
    }

    /// This node no longer leads the partition in `epoch`, or in any. Whoever waits gets NOT_COORDINATOR.
    pub fn unload(&mut self, now: Time, epoch: Option<i32>) {
        self.context.unload(now, epoch);
        self.collect_stopped();
    }

    /// True once when the log and the shard contradict each other: the broker must load again, in the same epoch.
    pub fn take_reload(&mut self) -> bool {
        self.context.take_reload()
    }

    /// Takes any request. The answer comes out of [`Self::poll_reply`], at once or later.
    pub fn handle(
        &mut self,
        now: Time,
        context: &RequestContext,
        request: GroupRequest,
        token: RequestToken,
    ) {
        match request {
            GroupRequest::JoinGroup(request) => self.handle_join_group(now, context, request, token),
            GroupRequest::SyncGroup(request) => self.handle_sync_group(now, context, request, token),
            GroupRequest::Heartbeat(request) => self.handle_heartbeat(now, context, request, token),
            GroupRequest::LeaveGroup(request) => self.handle_leave_group(now, context, request, token),
            GroupRequest::OffsetCommit(request) => self.handle_offset_commit(now, context, request, token),
            GroupRequest::TxnOffsetCommit(request) => {
                self.handle_txn_offset_commit(now, context, request, token);
            }
            GroupRequest::OffsetFetch { group, require_stable } => {
                self.handle_offset_fetch(now, context, group, require_stable, token);
            }
            GroupRequest::OffsetDelete(request) => self.handle_offset_delete(now, context, request, token),
            GroupRequest::DeleteGroups(groups) => self.handle_delete_groups(now, context, groups, token),
        }
    }

    pub fn handle_join_group(
        &mut self,
        now: Time,
        context: &RequestContext,
        mut request: JoinGroupRequest,
        token: RequestToken,
    ) {
        if context.api_version == 0 {
            // Version 0 has no rebalance timeout.
            request.rebalance_timeout_ms = request.session_timeout_ms;
        }
        let timeouts = self.config.group_min_session_timeout_ms..=self.config.group_max_session_timeout_ms;
        let invalid = if request.group_id.is_empty() {
            Some(ErrorCode::INVALID_GROUP_ID)
        } else if !timeouts.contains(&request.session_timeout_ms) {
            Some(ErrorCode::INVALID_SESSION_TIMEOUT)
        } else {
            None
        };
        if let Some(error) = invalid {
            let mut response = join_error(&request.member_id, error);
            shape_join_group(&mut response, context.api_version);
            return self.reply(token, GroupResponse::JoinGroup(response));
        }
        match self.context.shard_mut() {
            Ok((shard, timers)) => {
                let result = shard.classic_group_join(now, timers, context, request, token);
                self.append(now, result);
            }
            Err(error) => self.reply_error(context, &GroupRequest::JoinGroup(request), error, token),
        }
    }

    pub fn handle_sync_group(
        &mut self,
        now: Time,
        context: &RequestContext,
        request: SyncGroupRequest,
        token: RequestToken,
    ) {
        // KIP-559: from version 5 on both must be there; the reference looks before it does anything else.
        let incomplete =
            context.api_version >= 5 && (request.protocol_type.is_none() || request.protocol_name.is_none());
        let ready = if incomplete {
            Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL)
        } else if request.group_id.is_empty() {
            Err(ErrorCode::INVALID_GROUP_ID)
        } else {
            self.context.shard_mut()
        };
        match ready {
            Ok((shard, timers)) => {
                let result = shard.classic_group_sync(now, timers, context.api_version, request, token);
                self.append(now, result);
            }
            Err(error) => self.reply_error(context, &GroupRequest::SyncGroup(request), error, token),
        }
    }

    pub fn handle_heartbeat(
        &mut self,
        now: Time,
        context: &RequestContext,
        request: HeartbeatRequest,
        token: RequestToken,
    ) {
        let outcome = require_group_id(&request.group_id)
            .and_then(|()| self.context.shard_mut())
            .and_then(|(shard, timers)| shard.classic_group_heartbeat(now, timers, &request));
        match outcome {
            Ok(error) => {
                let response = HeartbeatResponse { error_code: error.code(), ..Default::default() };
                let response = GroupResponse::Heartbeat(response);
                let deferred = Deferred::Response { token, api_version: context.api_version, response };
                self.append(now, crate::shard::GroupResult::new(Vec::new(), deferred));
            }
            Err(error) => self.reply_error(context, &GroupRequest::Heartbeat(request), error, token),
        }
    }

    pub fn handle_leave_group(
        &mut self,
        now: Time,
        context: &RequestContext,
        mut request: LeaveGroupRequest,
        token: RequestToken,
    ) {
        if context.api_version < 3 {
            // Before KIP-345 a request named one member.
            let member_id = std::mem::take(&mut request.member_id);
            request.members = vec![MemberIdentity { member_id, ..Default::default() }];
        }
        let ready = require_group_id(&request.group_id).and_then(|()| self.context.shard_mut());
        match ready {
            Ok((shard, timers)) => {
                let result = shard.classic_group_leave(now, timers, context.api_version, request, token);
                self.append(now, result);
            }
            Err(error) => self.reply_error(context, &GroupRequest::LeaveGroup(request), error, token),
        }
    }

    /// Topics must have been resolved: [`crate::OffsetCommitPlan`].
    pub fn handle_offset_commit(
        &mut self,
        now: Time,
        context: &RequestContext,
        request: OffsetCommitRequest,
        token: RequestToken,
    ) {
        let outcome = self.context.shard_mut().and_then(|(shard, timers)| {
            shard.commit_offset(now, timers, context.api_version, &request, token)
        });
        match outcome {
            Ok(result) => self.append(now, result),
            Err(error) => self.reply_error(context, &GroupRequest::OffsetCommit(request), error, token),
        }
    }

    /// The transaction must have been verified (KIP-890) and the topics resolved.
    pub fn handle_txn_offset_commit(
        &mut self,
        now: Time,
        context: &RequestContext,
        request: TxnOffsetCommitRequest,
        token: RequestToken,
    ) {
        let outcome = require_group_id(&request.group_id).and_then(|()| self.context.shard_mut()).and_then(
            |(shard, _)| shard.commit_transactional_offset(now, context.api_version, &request, token),
        );
        match outcome {
            Ok(result) => self.append(now, result),
            Err(error) => self.reply_error(context, &GroupRequest::TxnOffsetCommit(request), error, token),
        }
    }

    /// Ends a transaction on this partition (WriteTxnMarkers).
    pub fn handle_complete_transaction(
        &mut self,
        now: Time,
        producer: Producer,
        coordinator_epoch: i32,
        result: TransactionResult,
        token: RequestToken,
    ) {
        let response = GroupResponse::CompleteTransaction(ErrorCode::NONE);
        let deferred = Deferred::Response { token, api_version: 0, response };
        let ended = self.context.complete_transaction(now, producer, coordinator_epoch, result, deferred);
        if let Err((error, _)) = ended {
            self.reply(token, GroupResponse::CompleteTransaction(error));
        }
    }

    /// One group of an OffsetFetch. Without `require_stable` the answer is there at once.
    pub fn handle_offset_fetch(
        &mut self,
        now: Time,
        context: &RequestContext,
        group: OffsetFetchRequestGroup,
        require_stable: bool,
        token: RequestToken,
    ) {
        let fetched = self.context.shard().and_then(|shard| shard.fetch_offsets(&group, require_stable));
        let api_version = context.api_version;
        match fetched {
            Ok(response) => {
                let response = GroupResponse::OffsetFetch(response);
                if require_stable {
                    let deferred = Deferred::Response { token, api_version, response };
                    self.append(now, crate::shard::GroupResult::new(Vec::new(), deferred));
                } else {
                    self.reply(token, response);
                }
            }
            Err(error) => {
                let response = offset_fetch_error(&group, api_version, error);
                self.reply(token, GroupResponse::OffsetFetch(response));
            }
        }
    }

    pub fn handle_offset_delete(
        &mut self,
        now: Time,
        context: &RequestContext,
        request: OffsetDeleteRequest,
        token: RequestToken,
    ) {
        let outcome = require_group_id(&request.group_id)
            .and_then(|()| self.context.shard_mut())
            .and_then(|(shard, _)| shard.delete_offsets(context.api_version, &request, token));
        match outcome {
            Ok(result) => self.append(now, result),
            Err(error) => self.reply_error(context, &GroupRequest::OffsetDelete(request), error, token),
        }
    }

    /// Groups of this shard; the caller drops duplicates, as the reference does.
    pub fn handle_delete_groups(
        &mut self,
        now: Time,
        context: &RequestContext,
        groups: Vec<String>,
        token: RequestToken,
    ) {
        match self.context.shard_mut() {
            Ok((shard, _)) => {
                let result = shard.delete_groups(context.api_version, &groups, token);
                self.append(now, result);
            }
            Err(error) => self.reply_error(context, &GroupRequest::DeleteGroups(groups), error, token),
        }
    }

    /// Groups of this shard as readers may see them.
    pub fn describe_groups(&self, api_version: i16, groups: &[String]) -> Vec<DescribedGroup> {
        match self.context.shard() {
            Ok(shard) => shard.describe_groups(api_version, groups),
            Err(error) => describe_groups_error(groups, error),
        }
    }

    /// All groups of this shard that pass the filters. See [`crate::merge_list_groups`].
    pub fn list_groups(&self, request: &ListGroupsRequest) -> Result<Vec<ListedGroup>, ErrorCode> {
        self.context.shard().map(|shard| shard.list_groups(request))
    }

    /// Topics were deleted: their offsets go. Nothing happens while the shard does not serve.
    pub fn handle_topics_deleted(&mut self, now: Time, topics: &[DeletedTopic]) {
        if let Ok(shard) = self.context.shard() {
            let result = shard.on_topics_deleted(topics);
            self.append(now, result);
        }
    }

    /// The next batch to append to the partition, if the log has none in its hands.
    pub fn poll_append(&mut self, now: Time) -> Option<PendingAppend> {
        self.context.poll_append(now)
    }

    /// The log took the batch (`Ok` with the offset of its last record) or failed.
    pub fn handle_appended(&mut self, now: Time, append_id: u64, result: Result<i64, ErrorCode>) {
        self.context.handle_appended(now, append_id, result);
        self.collect_stopped();
    }

    pub fn handle_high_watermark(&mut self, now: Time, offset: i64) {
        self.context.handle_high_watermark(now, offset);
    }

    /// The next answer that is ready.
    pub fn poll_reply(&mut self) -> Option<Reply> {
        let ready = self.context.shard_mut().ok().and_then(|(shard, _)| shard.outbox.pop());
        ready.or_else(|| self.replies.pop_front())
    }

    /// Something that happened, for the log; polled or not, at most the last thousand are kept.
    pub fn poll_event(&mut self) -> Option<GroupEvent> {
        self.context.shard_mut().ok().and_then(|(shard, _)| shard.outbox.events.pop())
    }

    /// When [`Self::handle_timeout`] and [`Self::poll_append`] must be called at the latest, on the monotonic clock.
    pub fn poll_deadline(&mut self) -> Option<Duration> {
        self.context.poll_deadline()
    }

    pub fn handle_timeout(&mut self, now: Time) {
        self.context.handle_timeout(now);
    }

    /// How many JoinGroups and SyncGroups wait for other members.
    pub fn waiting_requests(&self) -> usize {
        self.context.shard().map_or(0, |shard| shard.outbox.open_len())
    }

    fn append(&mut self, now: Time, result: crate::shard::GroupResult) {
        let appended = self.context.append(now, result);
        debug_assert!(appended.is_ok(), "decided on a shard that does not serve");
    }

    fn reply(&mut self, token: RequestToken, response: GroupResponse) {
        self.replies.push_back(Reply { token, response });
    }

    fn reply_error(
        &mut self,
        context: &RequestContext,
        request: &GroupRequest,
        error: ErrorCode,
        token: RequestToken,
    ) {
        let response = request.error_response(context.api_version, error);
        self.reply(token, response);
    }

    fn collect_stopped(&mut self) {
        if let Some(mut shard) = self.context.take_stopped() {
            while let Some(reply) = shard.outbox.pop() {
                self.replies.push_back(reply);
            }
        }
    }
}

fn require_group_id(group_id: &str) -> Result<(), ErrorCode> {
    if group_id.is_empty() { Err(ErrorCode::INVALID_GROUP_ID) } else { Ok(()) }
}
