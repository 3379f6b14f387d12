//! Random histories: consumers that come, go, crash and lose answers, a log that fails or lags, coordinators that move.
//!
//! Whatever happens, no partition has two owners in one generation; and when the trouble ends, the group settles with
//! every partition owned.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::*;
use coordinator_group::*;
use proptest::prelude::*;
use protocol::ErrorCode;
use protocol::messages::*;

const PARTITIONS: usize = 6;
const GROUP: &str = "g";

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Idle,
    Joining(u64),
    Joined { generation: i32, members: Vec<String>, skip: bool },
    Syncing(u64, i32),
    Owner { generation: i32, partitions: BTreeSet<usize> },
}

#[derive(Clone, Debug)]
struct Consumer {
    instance: Option<String>,
    member: String,
    phase: Phase,
    is_alive: bool,
}

impl Consumer {
    fn reset(&mut self) {
        self.member.clear();
        self.phase = Phase::Idle;
    }

    fn joined(&mut self, answer: JoinGroupResponse) {
        match ErrorCode(answer.error_code) {
            ErrorCode::NONE => {
                let members = answer.members.into_iter().map(|m| m.member_id).collect();
                self.member = answer.member_id;
                self.phase =
                    Phase::Joined { generation: answer.generation_id, members, skip: answer.skip_assignment };
            }
            ErrorCode::MEMBER_ID_REQUIRED => {
                self.member = answer.member_id;
                self.phase = Phase::Idle;
            }
            ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::FENCED_INSTANCE_ID => self.reset(),
            _ => self.phase = Phase::Idle,
        }
    }

    /// Who owns, across restarts of a static member.
    fn name(&self) -> &str {
        self.instance.as_deref().unwrap_or(&self.member)
    }
}

struct World {
    h: Harness,
    consumers: Vec<Consumer>,
    owners: BTreeMap<(i32, usize), String>,
    epoch: i32,
}

impl World {
    fn new() -> Self {
        let consumer = |i: usize| Consumer {
            instance: (i % 2 == 1).then(|| format!("instance-{i}")),
            member: String::new(),
            phase: Phase::Idle,
            is_alive: true,
        };
        Self {
            h: Harness::new(),
            consumers: (0..5).map(consumer).collect(),
            owners: BTreeMap::new(),
            epoch: 0,
        }
    }

    /// One step of a consumer as a client library takes it.
    fn step(&mut self, index: usize) {
        let mut consumer = self.consumers[index].clone();
        if !consumer.is_alive {
            return;
        }
        match consumer.phase.clone() {
            Phase::Idle => {
                let join = Join {
                    member: consumer.member.clone(),
                    instance: consumer.instance.clone(),
                    ..Join::new(GROUP)
                };
                consumer.phase = Phase::Joining(self.h.join(&join));
            }
            Phase::Joining(token) => {
                if let Some(GroupResponse::JoinGroup(answer)) = self.h.take(token) {
                    consumer.joined(answer);
                }
            }
            Phase::Joined { generation, members, skip } => {
                let token = self.sync(&consumer.member, generation, &members, skip);
                consumer.phase = Phase::Syncing(token, generation);
            }
            Phase::Syncing(token, generation) => {
                if let Some(GroupResponse::SyncGroup(answer)) = self.h.take(token) {
                    self.synced(&mut consumer, generation, &answer);
                }
            }
            Phase::Owner { generation, .. } => {
                let request = HeartbeatRequest {
                    group_id: GROUP.to_owned(),
                    member_id: consumer.member.clone(),
                    generation_id: generation,
                    group_instance_id: consumer.instance.clone(),
                };
                let token = self.h.send(4, GroupRequest::Heartbeat(request));
                // While commits are held back the answer waits, and the client does not care.
                if let Some(GroupResponse::Heartbeat(answer)) = self.h.take(token) {
                    match ErrorCode(answer.error_code) {
                        ErrorCode::NONE => {}
                        ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::FENCED_INSTANCE_ID => consumer.reset(),
                        _ => consumer.phase = Phase::Idle,
                    }
                }
            }
        }
        self.consumers[index] = consumer;
    }

    /// The leader deals the partitions round, unless it is told that the assignment stands.
    fn sync(&mut self, member: &str, generation: i32, members: &[String], skip: bool) -> u64 {
        let mut assignments: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        if !skip && !members.is_empty() {
            for partition in 0..PARTITIONS {
                let owner = members[partition % members.len()].as_str();
                assignments.entry(owner).or_default().push(partition.to_string());
            }
        }
        let joined: Vec<(&str, String)> =
            assignments.into_iter().map(|(member, list)| (member, list.join(","))).collect();
        let list: Vec<(&str, &str)> = joined.iter().map(|(member, list)| (*member, &**list)).collect();
        self.h.sync(GROUP, member, generation, &list)
    }

    fn synced(&mut self, consumer: &mut Consumer, generation: i32, answer: &SyncGroupResponse) {
        match ErrorCode(answer.error_code) {
            ErrorCode::NONE => {
                let text = String::from_utf8(answer.assignment.to_vec()).unwrap();
                let partitions: BTreeSet<usize> = text.split(',').filter_map(|n| n.parse().ok()).collect();
                for &partition in &partitions {
                    let owner = self.owners.entry((generation, partition));
                    let owner = owner.or_insert_with(|| consumer.name().to_owned());
                    assert_eq!(owner, consumer.name(), "{partition} in generation {generation}");
                }
                consumer.phase = Phase::Owner { generation, partitions };
            }
            ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::FENCED_INSTANCE_ID => consumer.reset(),
            _ => consumer.phase = Phase::Idle,
        }
    }

    fn fail_over(&mut self) {
        self.epoch += 1;
        self.h.shard.unload(self.h.now, Some(self.epoch));
        self.h.pump();
        self.h.load(self.epoch);
    }

    fn act(&mut self, action: u8, index: usize) {
        let consumer = index % self.consumers.len();
        match action {
            0..=59 => self.step(consumer),
            60..=69 => self.h.advance(100 * (index as u64 + 1)),
            70..=72 => self.h.advance(11_000),
            73..=75 => {
                self.consumers[consumer].is_alive = !self.consumers[consumer].is_alive;
                self.consumers[consumer].reset();
            }
            76..=78 => {
                let gone = self.consumers[consumer].clone();
                let request = LeaveGroupRequest {
                    group_id: GROUP.to_owned(),
                    members: vec![leave_group_request::MemberIdentity {
                        member_id: gone.member,
                        group_instance_id: gone.instance,
                        reason: None,
                    }],
                    ..Default::default()
                };
                self.h.send(5, GroupRequest::LeaveGroup(request));
                self.consumers[consumer].reset();
            }
            // The answer is lost and the client asks again.
            79..=82 => match self.consumers[consumer].phase {
                Phase::Joining(_) | Phase::Syncing(..) => self.consumers[consumer].phase = Phase::Idle,
                _ => {}
            },
            83..=86 => self.h.fail_append = Some(ErrorCode::NOT_ENOUGH_REPLICAS),
            87..=90 => self.h.hold_commits = !self.h.hold_commits,
            91..=93 => self.fail_over(),
            _ => {
                let commit = Commit { partition: index as i32, ..Commit::simple("other", i64::from(action)) };
                let token = self.h.send(9, GroupRequest::OffsetCommit(commit.request()));
                self.h.take(token);
            }
        }
    }

    fn settle(&mut self) {
        self.h.hold_commits = false;
        self.h.fail_append = None;
        self.h.commit();
        for consumer in &mut self.consumers {
            consumer.is_alive = true;
        }
        for _ in 0..400 {
            for index in 0..self.consumers.len() {
                self.step(index);
            }
            self.h.advance(500);
        }
        let mut covered = BTreeSet::new();
        let mut generations = BTreeSet::new();
        for consumer in &self.consumers {
            let Phase::Owner { generation, partitions } = &consumer.phase else {
                panic!("{consumer:?} has not settled");
            };
            generations.insert(*generation);
            for partition in partitions {
                assert!(covered.insert(*partition), "{partition} has two owners");
            }
        }
        assert_eq!(generations.len(), 1, "{:?}", self.consumers);
        assert_eq!(covered.len(), PARTITIONS);
        assert_eq!(self.h.state_of(GROUP), "Stable");
    }

    fn picture(&mut self) -> (Vec<describe_groups_response::DescribedGroup>, Vec<OffsetFetchAnswer>) {
        let ids: Vec<String> = [GROUP, "other"].map(str::to_owned).into();
        let offsets = ids.iter().map(|id| self.h.fetch(fetch_all(id), false)).collect();
        (self.h.shard.describe_groups(6, &ids), offsets)
    }
}

type OffsetFetchAnswer = offset_fetch_response::OffsetFetchResponseGroup;

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn partitions_have_one_owner_and_groups_settle(
        actions in proptest::collection::vec((0u8..100, 0usize..20), 0..300)
    ) {
        let mut world = World::new();
        for (action, index) in actions {
            world.act(action, index);
        }
        world.settle();
        let live = world.picture();
        world.fail_over();
        prop_assert_eq!(world.picture(), live, "a loaded shard shows what the live one showed");
    }
}
