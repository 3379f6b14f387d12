//! A shard with a log under it: appends are real batches in memory, the high watermark follows at once unless held.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use coordinator_group::*;
use protocol::ErrorCode;
use protocol::messages::join_group_request::JoinGroupRequestProtocol;
use protocol::messages::leave_group_request::MemberIdentity;
use protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use protocol::messages::*;
use record::{Batches, Compression, NoCodecs, RecordBatch, Time};

pub struct Harness {
    pub config: Arc<GroupCoordinatorConfig>,
    pub shard: GroupShard,
    pub now: Time,
    pub log: Vec<Bytes>,
    pub log_end: i64,
    pub high_watermark: i64,
    /// Batches stay uncommitted.
    pub hold_commits: bool,
    /// The next append fails with this.
    pub fail_append: Option<ErrorCode>,
    pub replies: BTreeMap<u64, GroupResponse>,
    next_token: u64,
    pub random: u128,
}

impl Harness {
    pub fn new() -> Self {
        Self::with_config(GroupCoordinatorConfig {
            group_initial_rebalance_delay_ms: 0,
            ..Default::default()
        })
    }

    pub fn with_config(config: GroupCoordinatorConfig) -> Self {
        let config = Arc::new(config);
        let mut harness = Self {
            shard: GroupShard::new(config.clone()),
            config,
            now: Time::new(Duration::from_secs(10), 1_700_000_000_000),
            log: Vec::new(),
            log_end: 0,
            high_watermark: 0,
            hold_commits: false,
            fail_append: None,
            replies: BTreeMap::new(),
            next_token: 0,
            random: 0,
        };
        harness.load(0);
        harness
    }

    pub fn load(&mut self, epoch: i32) {
        assert!(self.shard.begin_load(epoch));
        for batch in &self.log {
            self.shard.handle_loaded_batches(self.now, batch, &NoCodecs, self.high_watermark).unwrap();
        }
        self.shard.finish_load(self.now, self.log_end, self.high_watermark).unwrap();
        self.pump();
    }

    /// What a broker does after every call.
    pub fn pump(&mut self) {
        while let Some(append) = self.shard.poll_append(self.now) {
            let result = match self.fail_append.take() {
                Some(error) => Err(error),
                None => {
                    let batch = append.to_batch(Compression::None, &NoCodecs).unwrap();
                    assert_eq!(append.base_offset, self.log_end);
                    let last = RecordBatch::first(&batch).unwrap().unwrap().last_offset();
                    self.log.push(batch);
                    self.log_end = last + 1;
                    Ok(last)
                }
            };
            self.shard.handle_appended(self.now, append.append_id, result);
            if !self.hold_commits {
                self.commit();
            }
        }
        while let Some(reply) = self.shard.poll_reply() {
            assert!(self.replies.insert(reply.token, reply.response).is_none(), "answered twice");
        }
    }

    pub fn commit(&mut self) {
        self.high_watermark = self.log_end;
        self.shard.handle_high_watermark(self.now, self.log_end);
        while let Some(reply) = self.shard.poll_reply() {
            assert!(self.replies.insert(reply.token, reply.response).is_none(), "answered twice");
        }
    }

    /// Lets time pass, firing every timer at its deadline.
    pub fn advance(&mut self, ms: u64) {
        let target = self.now.monotonic + Duration::from_millis(ms);
        while let Some(deadline) = self.shard.poll_deadline().filter(|deadline| *deadline <= target) {
            self.set_time(deadline.max(self.now.monotonic));
            self.shard.handle_timeout(self.now);
            self.pump();
        }
        self.set_time(target);
    }

    fn set_time(&mut self, monotonic: Duration) {
        let passed = i64::try_from((monotonic - self.now.monotonic).as_millis()).unwrap();
        self.now = Time::new(monotonic, self.now.wall_ms + passed);
    }

    pub fn context(&mut self, api_version: i16, client: &str) -> RequestContext {
        self.random += 1;
        RequestContext {
            api_version,
            client_id: client.to_owned(),
            client_host: "/127.0.0.1".to_owned(),
            random: self.random,
        }
    }

    pub fn send(&mut self, api_version: i16, request: GroupRequest) -> u64 {
        let context = self.context(api_version, "client");
        self.next_token += 1;
        self.shard.handle(self.now, &context, request, self.next_token);
        self.pump();
        self.next_token
    }

    /// The answer, if it is there.
    pub fn take(&mut self, token: u64) -> Option<GroupResponse> {
        self.replies.remove(&token)
    }

    pub fn call(&mut self, api_version: i16, request: GroupRequest) -> GroupResponse {
        let token = self.send(api_version, request);
        self.take(token).expect("an answer at once")
    }

    pub fn join(&mut self, join: &Join) -> u64 {
        self.send(join.version, GroupRequest::JoinGroup(join.request()))
    }

    pub fn joined(&mut self, token: u64) -> JoinGroupResponse {
        match self.take(token) {
            Some(GroupResponse::JoinGroup(response)) => response,
            other => panic!("no JoinGroup answer: {other:?}"),
        }
    }

    pub fn synced(&mut self, token: u64) -> SyncGroupResponse {
        match self.take(token) {
            Some(GroupResponse::SyncGroup(response)) => response,
            other => panic!("no SyncGroup answer: {other:?}"),
        }
    }

    /// A new dynamic member: id first, then the real JoinGroup.
    pub fn join_dynamic(&mut self, join: &Join) -> (String, u64) {
        let token = self.join(join);
        let answer = self.joined(token);
        assert_eq!(answer.error_code, ErrorCode::MEMBER_ID_REQUIRED.code());
        let token = self.join(&Join { member: answer.member_id.clone(), ..join.clone() });
        (answer.member_id, token)
    }

    pub fn sync(&mut self, group: &str, member: &str, generation: i32, assignments: &[(&str, &str)]) -> u64 {
        let request = SyncGroupRequest {
            group_id: group.to_owned(),
            generation_id: generation,
            member_id: member.to_owned(),
            protocol_type: Some("consumer".to_owned()),
            protocol_name: Some("range".to_owned()),
            assignments: assignments
                .iter()
                .map(|(member, bytes)| SyncGroupRequestAssignment {
                    member_id: (*member).to_owned(),
                    assignment: Bytes::copy_from_slice(bytes.as_bytes()),
                })
                .collect(),
            ..Default::default()
        };
        self.send(5, GroupRequest::SyncGroup(request))
    }

    pub fn heartbeat(&mut self, group: &str, member: &str, generation: i32) -> ErrorCode {
        self.static_heartbeat(group, member, None, generation)
    }

    pub fn static_heartbeat(
        &mut self,
        group: &str,
        member: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> ErrorCode {
        let request = HeartbeatRequest {
            group_id: group.to_owned(),
            member_id: member.to_owned(),
            generation_id: generation,
            group_instance_id: instance.map(str::to_owned),
        };
        match self.call(4, GroupRequest::Heartbeat(request)) {
            GroupResponse::Heartbeat(response) => ErrorCode(response.error_code),
            other => panic!("{other:?}"),
        }
    }

    pub fn leave(&mut self, group: &str, members: &[(&str, Option<&str>)]) -> LeaveGroupResponse {
        let request = LeaveGroupRequest {
            group_id: group.to_owned(),
            members: members
                .iter()
                .map(|(member, instance)| MemberIdentity {
                    member_id: (*member).to_owned(),
                    group_instance_id: instance.map(str::to_owned),
                    reason: None,
                })
                .collect(),
            ..Default::default()
        };
        match self.call(5, GroupRequest::LeaveGroup(request)) {
            GroupResponse::LeaveGroup(response) => response,
            other => panic!("{other:?}"),
        }
    }

    pub fn commit_offset(&mut self, commit: &Commit) -> ErrorCode {
        let token = self.send(commit.version, GroupRequest::OffsetCommit(commit.request()));
        match self.take(token) {
            Some(GroupResponse::OffsetCommit(response)) => {
                ErrorCode(response.topics[0].partitions[0].error_code)
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn fetch(
        &mut self,
        group: OffsetFetchRequestGroup,
        require_stable: bool,
    ) -> OffsetFetchResponseGroup {
        match self.call(9, GroupRequest::OffsetFetch { group, require_stable }) {
            GroupResponse::OffsetFetch(response) => response,
            other => panic!("{other:?}"),
        }
    }

    /// The committed offset of `t-0`, -1 for none.
    pub fn committed(&mut self, group: &str) -> i64 {
        let response = self.fetch(fetch_one(group, "t", 0), false);
        response.topics[0].partitions[0].committed_offset
    }

    pub fn state_of(&self, group: &str) -> String {
        self.shard.describe_groups(6, &[group.to_owned()]).remove(0).group_state
    }

    /// A stable group of `count` members; the first leads. Returns their ids.
    pub fn stable_group(&mut self, group: &str, count: usize) -> Vec<String> {
        let mut pending = Vec::new();
        for _ in 0..count {
            pending.push(self.join_dynamic(&Join::new(group)));
        }
        self.advance(1);
        // With no initial delay the first member is alone in generation 1; the others wait for it to come back.
        let mut members: Vec<String> = Vec::new();
        let mut generation = 0;
        let mut leader = String::new();
        let first = pending[0].0.clone();
        let token = if count > 1 && self.replies.contains_key(&pending[0].1) {
            self.take(pending[0].1);
            self.join(&Join { member: first.clone(), ..Join::new(group) })
        } else {
            pending[0].1
        };
        pending[0].1 = token;
        self.advance(1);
        for (member, token) in pending {
            let answer = self.joined(token);
            assert_eq!(answer.error_code, 0, "{answer:?}");
            generation = answer.generation_id;
            leader = answer.leader;
            members.push(member);
        }
        let assignments: Vec<(&str, &str)> = members.iter().map(|m| (m.as_str(), m.as_str())).collect();
        let tokens: Vec<u64> = members
            .iter()
            .map(|m| {
                let list = if *m == leader { assignments.as_slice() } else { &[] };
                self.sync(group, m, generation, list)
            })
            .collect();
        for (token, member) in tokens.into_iter().zip(&members) {
            let answer = self.synced(token);
            assert_eq!(
                (answer.error_code, answer.assignment),
                (0, Bytes::copy_from_slice(member.as_bytes()))
            );
        }
        assert_eq!(self.state_of(group), "Stable");
        members
    }

    pub fn generation(&mut self, group: &str, member: &str) -> i32 {
        (0..100).find(|g| self.heartbeat(group, member, *g) == ErrorCode::NONE).expect("a generation")
    }

    /// Every record of the log.
    pub fn records(&self) -> Vec<GroupRecord> {
        let mut records = Vec::new();
        for bytes in &self.log {
            for batch in Batches::new(bytes) {
                let batch = batch.unwrap();
                if batch.is_control_batch() {
                    continue;
                }
                for record in batch.owned_records(bytes, &NoCodecs, 1 << 20).unwrap() {
                    let raw = RawRecord { key: record.key.unwrap(), value: record.value };
                    records.push(GroupRecord::decode(raw).unwrap());
                }
            }
        }
        records
    }
}

#[derive(Clone, Debug)]
pub struct Join {
    pub version: i16,
    pub group: String,
    pub member: String,
    pub instance: Option<String>,
    pub protocol_type: String,
    pub protocols: Vec<(String, Bytes)>,
    pub session_timeout_ms: i32,
    pub rebalance_timeout_ms: i32,
}

impl Join {
    pub fn new(group: &str) -> Self {
        Self {
            version: 9,
            group: group.to_owned(),
            member: String::new(),
            instance: None,
            protocol_type: "consumer".to_owned(),
            protocols: vec![("range".to_owned(), subscription(&["t"]))],
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 60_000,
        }
    }

    pub fn of(group: &str, member: &str) -> Self {
        Self { member: member.to_owned(), ..Self::new(group) }
    }

    pub fn instance(group: &str, instance: &str) -> Self {
        Self { instance: Some(instance.to_owned()), ..Self::new(group) }
    }

    pub fn request(&self) -> JoinGroupRequest {
        JoinGroupRequest {
            group_id: self.group.clone(),
            session_timeout_ms: self.session_timeout_ms,
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            member_id: self.member.clone(),
            group_instance_id: self.instance.clone(),
            protocol_type: self.protocol_type.clone(),
            protocols: self
                .protocols
                .iter()
                .map(|(name, metadata)| JoinGroupRequestProtocol {
                    name: name.clone(),
                    metadata: metadata.clone(),
                })
                .collect(),
            reason: None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Commit {
    pub version: i16,
    pub group: String,
    pub member: String,
    pub instance: Option<String>,
    pub generation: i32,
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    pub metadata: String,
    pub retention_ms: i64,
}

impl Commit {
    pub fn simple(group: &str, offset: i64) -> Self {
        Self {
            version: 9,
            group: group.to_owned(),
            member: String::new(),
            instance: None,
            generation: -1,
            topic: "t".to_owned(),
            partition: 0,
            offset,
            metadata: String::new(),
            retention_ms: -1,
        }
    }

    pub fn request(&self) -> OffsetCommitRequest {
        OffsetCommitRequest {
            group_id: self.group.clone(),
            generation_id_or_member_epoch: self.generation,
            member_id: self.member.clone(),
            group_instance_id: self.instance.clone(),
            retention_time_ms: self.retention_ms,
            topics: vec![OffsetCommitRequestTopic {
                name: self.topic.clone(),
                partitions: vec![OffsetCommitRequestPartition {
                    partition_index: self.partition,
                    committed_offset: self.offset,
                    committed_metadata: Some(self.metadata.clone()),
                    ..Default::default()
                }],
                ..Default::default()
            }],
        }
    }
}

pub fn fetch_one(group: &str, topic: &str, partition: i32) -> OffsetFetchRequestGroup {
    OffsetFetchRequestGroup {
        group_id: group.to_owned(),
        topics: Some(vec![OffsetFetchRequestTopics {
            name: topic.to_owned(),
            partition_indexes: vec![partition],
            ..Default::default()
        }]),
        ..Default::default()
    }
}

pub fn fetch_all(group: &str) -> OffsetFetchRequestGroup {
    OffsetFetchRequestGroup { group_id: group.to_owned(), topics: None, ..Default::default() }
}

/// A consumer's subscription, version 0.
pub fn subscription(topics: &[&str]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(0);
    out.put_i32(i32::try_from(topics.len()).unwrap());
    for topic in topics {
        out.put_i16(i16::try_from(topic.len()).unwrap());
        out.put_slice(topic.as_bytes());
    }
    out.put_i32(-1);
    out.freeze()
}
