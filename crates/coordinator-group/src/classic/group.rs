//! The state machine of a classic group.
//!
//! States: `Empty` (no members, offsets may exist) → `PreparingRebalance` (collecting JoinGroups) →
//! `CompletingRebalance` (waiting for the leader's assignment) → `Stable`; from each of the last three back to
//! `PreparingRebalance`, from `PreparingRebalance` to `Empty` when all are gone, from everywhere to `Dead`.
//!
//! Invariants: `awaiting_join` counts the members that wait for a JoinGroup answer; `supported_protocols` counts for each
//! protocol the members that support it; every static member id names a member; the leader is a member, or there is
//! none. A pending member is no member.
//! Nothing here is replicated: the shard writes a record when a generation gets its assignment or the group gets empty.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use coordinator::RequestToken;
use protocol::ErrorCode;
use protocol::messages::join_group_request::JoinGroupRequestProtocol;
use protocol::messages::join_group_response::JoinGroupResponseMember;
use protocol::messages::{JoinGroupResponse, SyncGroupResponse};
use protocol::records::group::GroupMetadataValue;

use crate::hash::java_map_order;
use crate::outbox::{Outbox, join_error, sync_error};
use crate::subscription::subscribed_topics;

use super::member::ClassicGroupMember;

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClassicGroupState {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
    Dead,
}

impl ClassicGroupState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
            Self::Dead => "Dead",
        }
    }

    fn may_follow(self, previous: Self) -> bool {
        use ClassicGroupState::{CompletingRebalance, Dead, Empty, PreparingRebalance, Stable};
        match self {
            Empty | CompletingRebalance => previous == PreparingRebalance,
            PreparingRebalance => matches!(previous, Stable | CompletingRebalance | Empty),
            Stable => previous == CompletingRebalance,
            Dead => true,
        }
    }
}

#[derive(Debug)]
pub(crate) struct ClassicGroup {
    pub(super) group_id: Arc<str>,
    pub(super) state: ClassicGroupState,
    previous_state: ClassicGroupState,
    /// Wall clock, milliseconds since the epoch.
    pub(super) current_state_timestamp: Option<i64>,
    pub(super) protocol_type: Option<String>,
    protocol_name: Option<String>,
    pub(super) generation_id: i32,
    leader_id: Option<Arc<str>>,
    members: BTreeMap<Arc<str>, ClassicGroupMember>,
    pub(super) static_members: BTreeMap<Arc<str>, Arc<str>>,
    pending_join_members: BTreeSet<Arc<str>>,
    awaiting_join: usize,
    supported_protocols: BTreeMap<String, usize>,
    pending_sync_members: BTreeSet<Arc<str>>,
    pub(super) subscribed_topics: Option<BTreeSet<String>>,
    pub(crate) new_member_added: bool,
}

impl ClassicGroup {
    pub(crate) fn new_empty(group_id: Arc<str>, wall_ms: i64) -> Self {
        Self {
            group_id,
            state: ClassicGroupState::Empty,
            previous_state: ClassicGroupState::Dead,
            current_state_timestamp: Some(wall_ms),
            protocol_type: None,
            protocol_name: None,
            generation_id: 0,
            leader_id: None,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            pending_join_members: BTreeSet::new(),
            awaiting_join: 0,
            supported_protocols: BTreeMap::new(),
            pending_sync_members: BTreeSet::new(),
            subscribed_topics: None,
            new_member_added: false,
        }
    }

    /// The group that a record describes: stable when it has members, empty otherwise.
    pub(crate) fn from_record(group_id: Arc<str>, value: &GroupMetadataValue) -> Result<Self, String> {
        let mut group = Self::new_empty(group_id, 0);
        group.generation_id = value.generation;
        group.protocol_type = Some(value.protocol_type.clone()).filter(|kind| !kind.is_empty());
        group.protocol_name = value.protocol.clone();
        group.leader_id = value.leader.as_deref().map(Arc::from);
        group.current_state_timestamp =
            (value.current_state_timestamp != -1).then_some(value.current_state_timestamp);
        if !value.members.is_empty() {
            group.state = ClassicGroupState::Stable;
        }
        for loaded in &value.members {
            let rebalance_timeout_ms = match loaded.rebalance_timeout {
                -1 => loaded.session_timeout,
                timeout => timeout,
            };
            let protocol = JoinGroupRequestProtocol {
                name: value.protocol.clone().unwrap_or_default(),
                metadata: loaded.subscription.clone(),
            };
            let member = ClassicGroupMember::new(
                Arc::from(loaded.member_id.as_str()),
                loaded.group_instance_id.as_deref().map(Arc::from),
                (loaded.client_id.clone(), loaded.client_host.clone()),
                rebalance_timeout_ms,
                loaded.session_timeout,
                value.protocol_type.clone(),
                vec![protocol],
            );
            group.add(member.with_assignment(loaded.assignment.clone()), None)?;
        }
        group.subscribed_topics = group.compute_subscribed_topics();
        Ok(group)
    }

    pub(crate) fn group_id(&self) -> &Arc<str> {
        &self.group_id
    }

    pub(crate) fn state(&self) -> ClassicGroupState {
        self.state
    }

    pub(crate) fn previous_state(&self) -> ClassicGroupState {
        self.previous_state
    }

    pub(crate) fn is_in_state(&self, state: ClassicGroupState) -> bool {
        self.state == state
    }

    pub(crate) fn generation_id(&self) -> i32 {
        self.generation_id
    }

    pub(crate) fn protocol_type(&self) -> Option<&str> {
        self.protocol_type.as_deref()
    }

    pub(crate) fn protocol_name(&self) -> Option<&str> {
        self.protocol_name.as_deref()
    }

    pub(crate) fn leader(&self) -> Option<&str> {
        self.leader_id.as_deref()
    }

    pub(crate) fn is_leader(&self, member_id: &str) -> bool {
        self.leader() == Some(member_id)
    }

    pub(crate) fn current_state_timestamp_or_default(&self) -> i64 {
        self.current_state_timestamp.unwrap_or(-1)
    }

    /// Never had members or a protocol: somebody only commits offsets under its name.
    pub(crate) fn is_simple_group(&self) -> bool {
        self.protocol_type.is_none()
            && self.is_in_state(ClassicGroupState::Empty)
            && self.pending_join_members.is_empty()
    }

    pub(crate) fn uses_consumer_group_protocol(&self) -> bool {
        self.protocol_type() == Some("consumer")
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &ClassicGroupMember> {
        self.members.values()
    }

    pub(crate) fn member(&self, member_id: &str) -> Option<&ClassicGroupMember> {
        self.members.get(member_id)
    }

    pub(crate) fn has_member(&self, member_id: &str) -> bool {
        self.members.contains_key(member_id)
    }

    pub(crate) fn num_members(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn num_awaiting_join(&self) -> usize {
        self.awaiting_join
    }

    pub(crate) fn static_member_id(&self, group_instance_id: &str) -> Option<&Arc<str>> {
        self.static_members.get(group_instance_id)
    }

    pub(crate) fn is_pending_member(&self, member_id: &str) -> bool {
        self.pending_join_members.contains(member_id)
    }

    pub(crate) fn add_pending_member(&mut self, member_id: Arc<str>) {
        debug_assert!(!self.has_member(&member_id));
        self.pending_join_members.insert(member_id);
    }

    /// Adds a member whose protocols the group supports. The first member decides the protocol type and leads.
    pub(crate) fn add(
        &mut self,
        member: ClassicGroupMember,
        awaiting: Option<RequestToken>,
    ) -> Result<(), String> {
        if let Some(instance_id) = &member.group_instance_id {
            if self.static_members.contains_key(instance_id) {
                return Err(format!("static member {instance_id} is in group {} already", self.group_id));
            }
            self.static_members.insert(instance_id.clone(), member.member_id.clone());
        }
        if self.members.is_empty() {
            self.protocol_type = Some(member.protocol_type.clone());
        }
        let names = member.supported_protocols.iter().map(|protocol| protocol.name.as_str());
        if self.protocol_type() != Some(&member.protocol_type)
            || !self.supports_protocols(&member.protocol_type, names)
        {
            return Err(format!("group {} does not support the protocols of a member", self.group_id));
        }
        self.leader_id.get_or_insert_with(|| member.member_id.clone());
        self.count_protocols(&member.supported_protocols);
        let member_id = member.member_id.clone();
        self.pending_join_members.remove(&member_id);
        self.members.insert(member_id.clone(), member);
        if let Some(token) = awaiting {
            self.set_awaiting_join(&member_id, Some(token));
        }
        Ok(())
    }

    /// Removes a member or pending member. Another member becomes the leader if it was it. What it still waits for is
    /// answered: the reference leaves a SyncGroup of a removed member without any answer.
    pub(crate) fn remove(&mut self, member_id: &str, outbox: &mut Outbox) {
        if let Some(mut removed) = self.members.remove(member_id) {
            self.uncount_protocols(&removed.supported_protocols);
            if let Some(token) = removed.awaiting_join.take() {
                self.awaiting_join -= 1;
                outbox.join(token, join_error("", ErrorCode::UNKNOWN_MEMBER_ID));
            }
            if let Some(token) = removed.awaiting_sync.take() {
                outbox.sync(token, sync_error(ErrorCode::UNKNOWN_MEMBER_ID));
            }
            if let Some(instance_id) = &removed.group_instance_id {
                self.static_members.remove(instance_id);
            }
        }
        if self.is_leader(member_id) {
            self.leader_id = self.members.keys().next().cloned();
        }
        self.pending_join_members.remove(member_id);
        self.pending_sync_members.remove(member_id);
    }

    /// Makes sure that a member which has joined leads. `false`: no leader, or nobody has joined.
    pub(crate) fn maybe_elect_new_joined_leader(&mut self) -> bool {
        let Some(leader) = self.leader_id.as_deref().and_then(|leader| self.members.get(leader)) else {
            return false;
        };
        if leader.is_awaiting_join() {
            return true;
        }
        let Some(joined) = self.members.values().find(|member| member.is_awaiting_join()) else {
            return false;
        };
        self.leader_id = Some(joined.member_id.clone());
        true
    }

    /// Gives the static member `old_member_id` a new member id (KIP-345); whoever still waits under the old one is fenced.
    pub(crate) fn replace_static_member(
        &mut self,
        group_instance_id: &str,
        old_member_id: &str,
        new_member_id: Arc<str>,
        outbox: &mut Outbox,
    ) {
        self.complete_join(old_member_id, outbox, |_| JoinGroupResponse {
            protocol_name: None,
            ..join_error(old_member_id, ErrorCode::FENCED_INSTANCE_ID)
        });
        self.complete_sync(old_member_id, outbox, |_| SyncGroupResponse {
            protocol_name: None,
            protocol_type: None,
            ..sync_error(ErrorCode::FENCED_INSTANCE_ID)
        });
        let Some(removed) = self.members.remove(old_member_id) else {
            debug_assert!(false, "no member {old_member_id} to replace");
            return;
        };
        let replaced = ClassicGroupMember { member_id: new_member_id.clone(), is_new: false, ..removed };
        self.members.insert(new_member_id.clone(), replaced);
        if self.is_leader(old_member_id) {
            self.leader_id = Some(new_member_id.clone());
        }
        self.static_members.insert(Arc::from(group_instance_id), new_member_id);
    }

    pub(crate) fn has_all_members_joined(&self) -> bool {
        self.members.len() == self.awaiting_join && self.pending_join_members.is_empty()
    }

    /// Members that have not sent a JoinGroup for the generation to come and have no instance id.
    pub(crate) fn not_yet_rejoined_dynamic_members(&self) -> Vec<Arc<str>> {
        let missing = self.members.values().filter(|m| !m.is_awaiting_join() && !m.is_static_member());
        missing.map(|member| member.member_id.clone()).collect()
    }

    pub(crate) fn add_pending_sync_member(&mut self, member_id: Arc<str>) {
        self.pending_sync_members.insert(member_id);
    }

    pub(crate) fn remove_pending_sync_member(&mut self, member_id: &str) {
        self.pending_sync_members.remove(member_id);
    }

    pub(crate) fn clear_pending_sync_members(&mut self) {
        self.pending_sync_members.clear();
    }

    pub(crate) fn pending_sync_members(&self) -> &BTreeSet<Arc<str>> {
        &self.pending_sync_members
    }

    /// The longest rebalance timeout of the members, 0 without members.
    pub(crate) fn rebalance_timeout_ms(&self) -> i32 {
        self.members.values().map(|member| member.rebalance_timeout_ms).max().unwrap_or(0).max(0)
    }

    pub(crate) fn can_rebalance(&self) -> bool {
        ClassicGroupState::PreparingRebalance.may_follow(self.state)
    }

    pub(crate) fn transition_to(&mut self, state: ClassicGroupState, wall_ms: i64) {
        assert!(state.may_follow(self.state), "group {}: {:?} after {:?}", self.group_id, state, self.state);
        self.previous_state = self.state;
        self.state = state;
        self.current_state_timestamp = Some(wall_ms);
    }

    /// The protocol that most members like best among those that all support. Ties go to the one that comes first in a
    /// Java map, as in the reference.
    pub(crate) fn select_protocol(&self) -> Option<String> {
        let count = self.members.len();
        let candidates: BTreeSet<&str> = self
            .supported_protocols
            .iter()
            .filter(|(_, supporters)| **supporters == count)
            .map(|(name, _)| name.as_str())
            .collect();
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for vote in self.members.values().filter_map(|member| member.vote(&candidates)) {
            *votes.entry(vote).or_default() += 1;
        }
        let entries = votes.len();
        let winner = votes
            .into_iter()
            .min_by_key(|(name, count)| (std::cmp::Reverse(*count), java_map_order(name, entries)));
        winner.map(|(name, _)| name.to_owned())
    }

    /// Whether a member with these protocols may join.
    pub(crate) fn supports_protocols<'a>(
        &self,
        protocol_type: &str,
        mut protocols: impl Iterator<Item = &'a str>,
    ) -> bool {
        if self.is_in_state(ClassicGroupState::Empty) {
            return !protocol_type.is_empty() && protocols.next().is_some();
        }
        self.protocol_type() == Some(protocol_type)
            && protocols
                .any(|name| self.supported_protocols.get(name).copied().unwrap_or(0) == self.members.len())
    }

    /// Takes what a JoinGroup of a known member says. A JoinGroup it superseded is told to come again.
    pub(crate) fn update_member(
        &mut self,
        member_id: &str,
        protocols: Vec<JoinGroupRequestProtocol>,
        rebalance_timeout_ms: i32,
        session_timeout_ms: i32,
        awaiting: Option<RequestToken>,
        outbox: &mut Outbox,
    ) {
        let Some(member) = self.members.get_mut(member_id) else {
            debug_assert!(false, "no member {member_id} to update");
            return;
        };
        member.rebalance_timeout_ms = rebalance_timeout_ms;
        member.session_timeout_ms = session_timeout_ms;
        let old = std::mem::replace(&mut member.supported_protocols, protocols.clone());
        self.uncount_protocols(&old);
        self.count_protocols(&protocols);
        if let Some(superseded) = self.set_awaiting_join(member_id, awaiting)
            && awaiting.is_some()
        {
            outbox.join(superseded, join_error(member_id, ErrorCode::REBALANCE_IN_PROGRESS));
        }
    }

    /// Lets the member wait for its assignment. A SyncGroup it superseded is told that the group rebalances.
    pub(crate) fn await_sync(&mut self, member_id: &str, token: RequestToken, outbox: &mut Outbox) {
        let Some(member) = self.members.get_mut(member_id) else { return };
        if let Some(superseded) = member.awaiting_sync.replace(token) {
            outbox.sync(superseded, sync_error(ErrorCode::REBALANCE_IN_PROGRESS));
        }
    }

    pub(crate) fn complete_join(
        &mut self,
        member_id: &str,
        outbox: &mut Outbox,
        response: impl FnOnce(&Self) -> JoinGroupResponse,
    ) -> bool {
        let Some(token) = self.set_awaiting_join(member_id, None) else { return false };
        outbox.join(token, response(self));
        true
    }

    pub(crate) fn complete_sync(
        &mut self,
        member_id: &str,
        outbox: &mut Outbox,
        response: impl FnOnce(&ClassicGroupMember) -> SyncGroupResponse,
    ) -> bool {
        let Some(member) = self.members.get_mut(member_id) else { return false };
        let Some(token) = member.awaiting_sync.take() else { return false };
        outbox.sync(token, response(member));
        true
    }

    /// Sets every member's assignment.
    pub(crate) fn set_assignments(&mut self, assignment: impl Fn(&str) -> Bytes) {
        for member in self.members.values_mut() {
            member.assignment = assignment(&member.member_id);
        }
    }

    pub(crate) fn set_not_new(&mut self, member_id: &str) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.is_new = false;
        }
    }

    pub(crate) fn init_next_generation(&mut self, wall_ms: i64) {
        self.generation_id = self.generation_id.wrapping_add(1);
        if self.members.is_empty() {
            self.protocol_name = None;
            self.subscribed_topics = self.compute_subscribed_topics();
            self.transition_to(ClassicGroupState::Empty, wall_ms);
        } else {
            self.protocol_name = self.select_protocol();
            self.subscribed_topics = self.compute_subscribed_topics();
            self.transition_to(ClassicGroupState::CompletingRebalance, wall_ms);
        }
        self.clear_pending_sync_members();
    }

    /// The successful JoinGroup answer for a member; the leader's lists all members.
    pub(crate) fn join_response(&self, member_id: &str, with_members: bool) -> JoinGroupResponse {
        JoinGroupResponse {
            members: if with_members { self.current_members() } else { Vec::new() },
            member_id: member_id.to_owned(),
            generation_id: self.generation_id,
            protocol_name: self.protocol_name.clone(),
            protocol_type: self.protocol_type.clone(),
            leader: self.leader().unwrap_or_default().to_owned(),
            skip_assignment: false,
            ..Default::default()
        }
    }

    fn current_members(&self) -> Vec<JoinGroupResponseMember> {
        let protocol = self.protocol_name.as_deref();
        let members = self.members.values().map(|member| JoinGroupResponseMember {
            member_id: member.member_id.to_string(),
            group_instance_id: member.group_instance_id.as_deref().map(str::to_owned),
            metadata: protocol.map(|protocol| member.metadata(protocol)).unwrap_or_default(),
        });
        members.collect()
    }

    fn compute_subscribed_topics(&self) -> Option<BTreeSet<String>> {
        if !self.uses_consumer_group_protocol() {
            return None;
        }
        if self.members.is_empty() {
            return Some(BTreeSet::new());
        }
        let protocol = self.protocol_name.as_deref()?;
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            topics.append(&mut subscribed_topics(&member.metadata(protocol))?);
        }
        Some(topics)
    }

    fn set_awaiting_join(&mut self, member_id: &str, awaiting: Option<RequestToken>) -> Option<RequestToken> {
        let member = self.members.get_mut(member_id)?;
        let before = std::mem::replace(&mut member.awaiting_join, awaiting);
        match (before.is_some(), awaiting.is_some()) {
            (false, true) => self.awaiting_join += 1,
            (true, false) => self.awaiting_join -= 1,
            _ => {}
        }
        before
    }

    fn count_protocols(&mut self, protocols: &[JoinGroupRequestProtocol]) {
        for protocol in protocols {
            *self.supported_protocols.entry(protocol.name.clone()).or_default() += 1;
        }
    }

    fn uncount_protocols(&mut self, protocols: &[JoinGroupRequestProtocol]) {
        for protocol in protocols {
            if let Some(count) = self.supported_protocols.get_mut(&protocol.name) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.supported_protocols.remove(&protocol.name);
                }
            }
        }
    }
}
