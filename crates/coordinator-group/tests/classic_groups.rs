//! The classic group protocol: joining, rebalancing, static members, leaving, expiring.

mod common;

use bytes::Bytes;
use common::*;
use coordinator_group::*;
use protocol::ErrorCode;
use protocol::messages::*;
use protocol::records::group::{RecordKey, RecordValue};

#[test]
fn requests_are_checked_before_any_group_is_looked_at() {
    let mut h = Harness::new();
    let base = Join::new("g");
    let table = [
        (Join { group: String::new(), ..base.clone() }, ErrorCode::INVALID_GROUP_ID),
        (Join { session_timeout_ms: 5_999, ..base.clone() }, ErrorCode::INVALID_SESSION_TIMEOUT),
        (Join { session_timeout_ms: 1_800_001, ..base.clone() }, ErrorCode::INVALID_SESSION_TIMEOUT),
        (Join { member: "m".into(), ..base.clone() }, ErrorCode::UNKNOWN_MEMBER_ID),
        (Join { protocols: vec![], ..base.clone() }, ErrorCode::INCONSISTENT_GROUP_PROTOCOL),
        (Join { protocol_type: String::new(), ..base.clone() }, ErrorCode::INCONSISTENT_GROUP_PROTOCOL),
    ];
    for (join, error) in table {
        let token = h.join(&join);
        assert_eq!(ErrorCode(h.joined(token).error_code), error, "{join:?}");
    }
    assert_eq!(h.heartbeat("", "m", 1), ErrorCode::INVALID_GROUP_ID);
    assert_eq!(h.heartbeat("nobody", "m", 1), ErrorCode::UNKNOWN_MEMBER_ID);
    let token = h.sync("nobody", "m", 1, &[]);
    assert_eq!(ErrorCode(h.synced(token).error_code), ErrorCode::UNKNOWN_MEMBER_ID);
    let incomplete = SyncGroupRequest { group_id: "g".into(), ..Default::default() };
    for (version, error) in [(5, ErrorCode::INCONSISTENT_GROUP_PROTOCOL), (4, ErrorCode::UNKNOWN_MEMBER_ID)] {
        match h.call(version, GroupRequest::SyncGroup(incomplete.clone())) {
            GroupResponse::SyncGroup(answer) => assert_eq!(ErrorCode(answer.error_code), error),
            other => panic!("{other:?}"),
        }
    }
    let left = h.leave("nobody", &[("m", None)]);
    assert_eq!((left.error_code, left.members[0].error_code), (0, ErrorCode::UNKNOWN_MEMBER_ID.code()));
}

#[test]
fn a_new_member_gets_an_id_first_and_the_group_is_recorded() {
    let mut h = Harness::new();
    let token = h.join(&Join::new("g"));
    let answer = h.joined(token);
    assert_eq!(ErrorCode(answer.error_code), ErrorCode::MEMBER_ID_REQUIRED);
    assert!(answer.member_id.starts_with("client-00000000-0000-4000-8000-"), "{}", answer.member_id);
    assert_eq!((answer.generation_id, answer.protocol_name), (-1, None));
    let records = h.records();
    assert_eq!(records.len(), 1);
    let Some(RecordValue::GroupMetadataValue(value)) = &records[0].value else { panic!("{records:?}") };
    assert_eq!((value.generation, &*value.protocol_type, &value.leader), (0, "", &None));
    assert_eq!(value.current_state_timestamp, h.now.wall_ms);
    // The id is good for one session timeout.
    h.advance(10_001);
    let token = h.join(&Join::of("g", &answer.member_id));
    assert_eq!(ErrorCode(h.joined(token).error_code), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn before_version_4_a_member_joins_at_once() {
    let mut h = Harness::new();
    let token = h.join(&Join { version: 3, ..Join::new("g") });
    h.advance(0);
    let answer = h.joined(token);
    assert_eq!((answer.error_code, answer.generation_id), (0, 1));
    assert_eq!(answer.leader, answer.member_id);
    assert_eq!(answer.members.len(), 1);
}

#[test]
fn the_first_rebalance_waits_for_more_members_up_to_the_rebalance_timeout() {
    let mut h = Harness::with_config(GroupCoordinatorConfig::default());
    let (first, first_join) = h.join_dynamic(&Join { rebalance_timeout_ms: 10_000, ..Join::new("g") });
    h.advance(2_000);
    let (_, second_join) = h.join_dynamic(&Join { rebalance_timeout_ms: 10_000, ..Join::new("g") });
    h.advance(1_000);
    assert!(!h.replies.contains_key(&first_join), "a member came within the delay: another delay begins");
    h.advance(3_000);
    let answer = h.joined(first_join);
    assert_eq!((answer.error_code, answer.generation_id), (0, 1));
    assert_eq!(answer.leader, first);
    assert_eq!(answer.members.len(), 2);
    assert!(h.joined(second_join).members.is_empty(), "only the leader learns the members");
}

#[test]
fn members_get_what_the_leader_assigns_after_it_is_committed() {
    let mut h = Harness::new();
    let (leader, token) = h.join_dynamic(&Join::new("g"));
    h.advance(0);
    assert_eq!(h.joined(token).generation_id, 1);
    h.hold_commits = true;
    let token = h.sync("g", &leader, 1, &[(&leader, "all")]);
    assert!(!h.replies.contains_key(&token));
    h.commit();
    let answer = h.synced(token);
    assert_eq!(answer.assignment, Bytes::from_static(b"all"));
    assert_eq!(
        (answer.protocol_type.as_deref(), answer.protocol_name.as_deref()),
        (Some("consumer"), Some("range"))
    );
    assert_eq!(h.state_of("g"), "Stable");
    assert_eq!(h.shard.metrics().unwrap().completed_rebalances, 1);
    let Some(RecordValue::GroupMetadataValue(value)) = h.records().pop().unwrap().value else { panic!() };
    assert_eq!(
        (value.generation, value.protocol.as_deref(), value.leader.as_deref()),
        (1, Some("range"), Some(&*leader))
    );
    assert_eq!(value.members[0].assignment, Bytes::from_static(b"all"));
    assert_eq!(value.members[0].client_host, "/127.0.0.1");
    assert_eq!((value.members[0].rebalance_timeout, value.members[0].session_timeout), (60_000, 10_000));
}

#[test]
fn a_second_member_rebalances_the_group() {
    let mut h = Harness::new();
    let members = h.stable_group("g", 2);
    let generation = h.generation("g", &members[0]);
    assert_eq!(h.heartbeat("g", &members[1], generation), ErrorCode::NONE);
    assert_eq!(h.heartbeat("g", &members[1], generation - 1), ErrorCode::ILLEGAL_GENERATION);
    assert_eq!(h.heartbeat("g", "stranger", generation), ErrorCode::UNKNOWN_MEMBER_ID);
    let (_, third) = h.join_dynamic(&Join::new("g"));
    assert_eq!(h.state_of("g"), "PreparingRebalance");
    assert_eq!(h.heartbeat("g", &members[0], generation), ErrorCode::REBALANCE_IN_PROGRESS);
    let token = h.sync("g", &members[0], generation, &[]);
    assert_eq!(ErrorCode(h.synced(token).error_code), ErrorCode::REBALANCE_IN_PROGRESS);
    let first = h.join(&Join::of("g", &members[0]));
    let second = h.join(&Join::of("g", &members[1]));
    for token in [first, second, third] {
        assert_eq!(h.joined(token).generation_id, generation + 1);
    }
}

#[test]
fn who_does_not_rejoin_in_time_is_out_and_another_member_leads() {
    let mut h = Harness::new();
    let members = h.stable_group("g", 2);
    let generation = h.generation("g", &members[0]);
    let answer = h.shard.describe_groups(6, &["g".to_owned()]).remove(0);
    assert_eq!(answer.members.len(), 2);
    // The leader goes silent in the rebalance that the follower starts with new metadata.
    let (leader, follower) = (&members[0], &members[1]);
    let token = h.join(&Join {
        protocols: vec![("range".into(), subscription(&["other"]))],
        ..Join::of("g", follower)
    });
    assert!(!h.replies.contains_key(&token));
    for _ in 0..8 {
        h.advance(7_000);
        h.heartbeat("g", leader, generation);
    }
    h.advance(5_000);
    let answer = h.joined(token);
    assert_eq!((answer.error_code, &answer.leader), (0, follower));
    assert_eq!(answer.members.len(), 1);
    assert_eq!(h.heartbeat("g", leader, generation), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_silent_member_is_removed_after_its_session_and_a_waiting_one_is_not() {
    let mut h = Harness::new();
    let members = h.stable_group("g", 2);
    let generation = h.generation("g", &members[0]);
    h.advance(9_000);
    assert_eq!(h.heartbeat("g", &members[0], generation), ErrorCode::NONE);
    h.advance(2_000);
    assert_eq!(h.heartbeat("g", &members[0], generation), ErrorCode::REBALANCE_IN_PROGRESS);
    assert_eq!(h.heartbeat("g", &members[1], generation), ErrorCode::UNKNOWN_MEMBER_ID);
    let token = h.join(&Join::of("g", &members[0]));
    assert_eq!(h.joined(token).generation_id, generation + 1);
    h.advance(10_001);
    assert_eq!(h.state_of("g"), "Empty");
    let Some(RecordValue::GroupMetadataValue(value)) = h.records().pop().unwrap().value else { panic!() };
    assert_eq!((value.generation, value.members.len(), value.protocol), (generation + 2, 0, None));
    assert_eq!(value.protocol_type, "consumer");
}

#[test]
fn members_that_join_but_never_sync_are_out_after_the_rebalance_timeout() {
    let mut h = Harness::new();
    let (member, token) = h.join_dynamic(&Join { session_timeout_ms: 600_000, ..Join::new("g") });
    h.advance(0);
    assert_eq!(h.joined(token).error_code, 0);
    assert_eq!(h.state_of("g"), "CompletingRebalance");
    h.advance(60_001);
    assert_eq!(h.state_of("g"), "Empty");
    assert_eq!(h.heartbeat("g", &member, 1), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn repeated_requests_get_their_answer_again_without_a_rebalance() {
    let mut h = Harness::new();
    let members = h.stable_group("g", 2);
    let generation = h.generation("g", &members[0]);
    let follower = &members[1];
    let token = h.join(&Join::of("g", follower));
    let answer = h.joined(token);
    assert_eq!((answer.error_code, answer.generation_id, answer.members.len()), (0, generation, 0));
    let token = h.sync("g", follower, generation, &[]);
    assert_eq!(h.synced(token).assignment, Bytes::copy_from_slice(follower.as_bytes()));
    assert_eq!(h.state_of("g"), "Stable");
    // The leader that comes again wants a rebalance.
    h.join(&Join::of("g", &members[0]));
    assert_eq!(h.state_of("g"), "PreparingRebalance");
}

#[test]
fn protocols_must_fit_and_the_favourite_of_most_is_chosen() {
    let mut h = Harness::with_config(GroupCoordinatorConfig::default());
    let meta = subscription(&["t"]);
    let with = |names: &[&str]| Join {
        protocols: names.iter().map(|n| ((*n).to_owned(), meta.clone())).collect(),
        ..Join::new("g")
    };
    let (_, a) = h.join_dynamic(&with(&["roundrobin", "range", "sticky"]));
    h.join_dynamic(&with(&["range", "roundrobin"]));
    h.join_dynamic(&with(&["range", "roundrobin"]));
    let token = h.join(&with(&["sticky"]));
    assert_eq!(ErrorCode(h.joined(token).error_code), ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
    let token = h.join(&Join { protocol_type: "connect".into(), ..with(&["range"]) });
    assert_eq!(ErrorCode(h.joined(token).error_code), ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
    h.advance(10_000);
    assert_eq!(h.joined(a).protocol_name.as_deref(), Some("range"));
}

#[test]
fn a_full_group_refuses_but_keeps_its_members() {
    let mut h = Harness::with_config(GroupCoordinatorConfig {
        group_max_size: 2,
        group_initial_rebalance_delay_ms: 0,
        ..Default::default()
    });
    let members = h.stable_group("g", 2);
    let token = h.join(&Join::new("g"));
    let answer = h.joined(token);
    assert_eq!((ErrorCode(answer.error_code), &*answer.member_id), (ErrorCode::GROUP_MAX_SIZE_REACHED, ""));
    let token = h.join(&Join::of("g", &members[1]));
    assert_eq!(h.joined(token).error_code, 0);
}

#[test]
fn a_static_member_takes_its_place_again_without_a_rebalance() {
    let mut h = Harness::new();
    let token = h.join(&Join::instance("g", "i1"));
    h.advance(0);
    let first = h.joined(token);
    assert_eq!(first.generation_id, 1, "a static member needs no id first");
    assert!(first.member_id.starts_with("i1-"));
    let token = h.sync("g", &first.member_id, 1, &[(&first.member_id, "all")]);
    assert_eq!(h.synced(token).error_code, 0);
    // KIP-814: a leader that comes back learns that the assignment stands.
    h.hold_commits = true;
    let token = h.join(&Join::instance("g", "i1"));
    assert!(!h.replies.contains_key(&token), "the new id is told once it is committed");
    h.commit();
    let second = h.joined(token);
    assert_eq!((second.error_code, second.generation_id, second.skip_assignment), (0, 1, true));
    assert_ne!(second.member_id, first.member_id);
    assert_eq!((&second.leader, second.members.len()), (&second.member_id, 1));
    assert_eq!(h.state_of("g"), "Stable");
    h.hold_commits = false;
    h.commit();
    let token = h.sync("g", &second.member_id, 1, &[]);
    assert_eq!(h.synced(token).assignment, Bytes::from_static(b"all"));
    let old = h.static_heartbeat("g", &first.member_id, Some("i1"), 1);
    assert_eq!(old, ErrorCode::FENCED_INSTANCE_ID);
    assert_eq!(h.static_heartbeat("g", &second.member_id, Some("i1"), 1), ErrorCode::NONE);
    assert_eq!(h.static_heartbeat("g", &second.member_id, Some("i2"), 1), ErrorCode::UNKNOWN_MEMBER_ID);
    // C07: another coordinator knows the new id.
    h.shard.unload(h.now, None);
    h.load(1);
    assert_eq!(h.static_heartbeat("g", &second.member_id, Some("i1"), 1), ErrorCode::NONE);
    assert_eq!(h.static_heartbeat("g", &first.member_id, Some("i1"), 1), ErrorCode::FENCED_INSTANCE_ID);
}

#[test]
fn an_older_static_leader_is_not_told_that_it_leads() {
    let mut h = Harness::new();
    let token = h.join(&Join::instance("g", "i1"));
    h.advance(0);
    let first = h.joined(token);
    h.sync("g", &first.member_id, 1, &[(&first.member_id, "all")]);
    let token = h.join(&Join { version: 8, ..Join::instance("g", "i1") });
    let answer = h.joined(token);
    assert_eq!((answer.leader, answer.skip_assignment), (first.member_id, false));
    assert!(answer.members.is_empty());
}

#[test]
fn a_static_member_whose_return_cannot_be_written_stays_who_it_was() {
    let mut h = Harness::new();
    let token = h.join(&Join::instance("g", "i1"));
    h.advance(0);
    let first = h.joined(token);
    let token = h.sync("g", &first.member_id, 1, &[(&first.member_id, "all")]);
    h.synced(token);
    h.fail_append = Some(ErrorCode::NOT_ENOUGH_REPLICAS);
    let token = h.join(&Join::instance("g", "i1"));
    let answer = h.joined(token);
    assert_eq!(ErrorCode(answer.error_code), ErrorCode::COORDINATOR_NOT_AVAILABLE);
    assert_eq!((&*answer.member_id, answer.generation_id), ("", 1));
    assert_eq!(h.static_heartbeat("g", &first.member_id, Some("i1"), 1), ErrorCode::NONE);
}

#[test]
fn two_consumers_with_one_instance_id_fence_the_older_while_it_waits() {
    let mut h = Harness::with_config(GroupCoordinatorConfig::default());
    let old = h.join(&Join::instance("g", "i1"));
    let new = h.join(&Join::instance("g", "i1"));
    assert_eq!(ErrorCode(h.joined(old).error_code), ErrorCode::FENCED_INSTANCE_ID);
    h.advance(10_000);
    assert_eq!(h.joined(new).error_code, 0);
}

#[test]
fn static_members_survive_a_rebalance_they_do_not_notice_and_leave_by_name() {
    let mut h = Harness::new();
    let a = h.join(&Join::instance("g", "a"));
    h.advance(0);
    let a = h.joined(a);
    let b = h.join(&Join::instance("g", "b"));
    let again = h.join(&Join { member: a.member_id.clone(), ..Join::instance("g", "a") });
    let (a, b) = (h.joined(again), h.joined(b));
    let generation = a.generation_id;
    assert_eq!(generation, b.generation_id);
    h.sync("g", &a.member_id, generation, &[]);
    h.sync("g", &b.member_id, generation, &[]);
    let left = h.leave("g", &[("", Some("b")), ("", Some("nobody")), ("wrong", Some("a")), ("", None)]);
    let errors: Vec<ErrorCode> = left.members.iter().map(|m| ErrorCode(m.error_code)).collect();
    assert_eq!(
        errors,
        [
            ErrorCode::NONE,
            ErrorCode::UNKNOWN_MEMBER_ID,
            ErrorCode::FENCED_INSTANCE_ID,
            ErrorCode::UNKNOWN_MEMBER_ID
        ]
    );
    assert_eq!(h.state_of("g"), "PreparingRebalance");
}

#[test]
fn leaving_ends_in_an_empty_group_and_answers_what_waited() {
    let mut h = Harness::new();
    let members = h.stable_group("g", 1);
    let left = h.leave("g", &[(&members[0], None)]);
    assert_eq!((left.error_code, left.members[0].error_code), (0, 0));
    assert_eq!(h.state_of("g"), "Empty");
    let v2 = LeaveGroupRequest { group_id: "g".into(), member_id: "m".into(), ..Default::default() };
    match h.call(2, GroupRequest::LeaveGroup(v2)) {
        GroupResponse::LeaveGroup(answer) => {
            assert_eq!(ErrorCode(answer.error_code), ErrorCode::UNKNOWN_MEMBER_ID);
            assert!(answer.members.is_empty());
        }
        other => panic!("{other:?}"),
    }
    // A follower that waits for its assignment and is removed gets an answer.
    let mut h = Harness::with_config(GroupCoordinatorConfig::default());
    let (_, a) = h.join_dynamic(&Join::new("g"));
    let (follower, b) = h.join_dynamic(&Join::new("g"));
    h.advance(10_000);
    h.joined(a);
    let generation = h.joined(b).generation_id;
    let waiting = h.sync("g", &follower, generation, &[]);
    h.leave("g", &[(&follower, None)]);
    assert_eq!(ErrorCode(h.synced(waiting).error_code), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(h.shard.waiting_requests(), 0);
}

#[test]
fn an_assignment_that_cannot_be_written_is_not_given_out() {
    let mut h = Harness::new();
    let (leader, token) = h.join_dynamic(&Join::new("g"));
    h.advance(0);
    assert_eq!(h.joined(token).error_code, 0);
    for (error, shown) in [
        (ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::NOT_COORDINATOR),
        (ErrorCode::MESSAGE_TOO_LARGE, ErrorCode::UNKNOWN_SERVER_ERROR),
    ] {
        let mut generation = 1;
        if h.state_of("g") == "PreparingRebalance" {
            let token = h.join(&Join::of("g", &leader));
            generation = h.joined(token).generation_id;
        }
        h.fail_append = Some(error);
        let token = h.sync("g", &leader, generation, &[(&leader, "all")]);
        assert_eq!(ErrorCode(h.synced(token).error_code), shown);
        assert_eq!(h.state_of("g"), "PreparingRebalance");
    }
}

#[test]
fn a_group_whose_first_record_is_lost_never_existed() {
    let mut h = Harness::new();
    h.fail_append = Some(ErrorCode::NOT_ENOUGH_REPLICAS);
    // Before version 4 the member waits for the join phase; its group cannot be recorded.
    let token = h.join(&Join { version: 3, ..Join::new("g") });
    assert_eq!(ErrorCode(h.joined(token).error_code), ErrorCode::COORDINATOR_NOT_AVAILABLE);
    assert_eq!(h.state_of("g"), "Dead");
    h.advance(600_000);
    assert!(h.records().is_empty());
}

#[test]
fn a_write_that_is_not_committed_in_time_fails_and_the_group_rebalances() {
    let mut h = Harness::new();
    let (leader, token) = h.join_dynamic(&Join::new("g"));
    h.advance(0);
    h.joined(token);
    h.hold_commits = true;
    let sync = h.sync("g", &leader, 1, &[(&leader, "all")]);
    let commit = h.send(9, GroupRequest::OffsetCommit(Commit::simple("other", 1).request()));
    h.advance(5_000);
    assert_eq!(ErrorCode(h.synced(sync).error_code), ErrorCode::COORDINATOR_NOT_AVAILABLE);
    match h.take(commit) {
        Some(GroupResponse::OffsetCommit(answer)) => {
            let error = ErrorCode(answer.topics[0].partitions[0].error_code);
            assert_eq!(error, ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(h.state_of("g"), "PreparingRebalance");
}

#[test]
fn losing_the_partition_answers_everybody_who_waits() {
    let mut h = Harness::with_config(GroupCoordinatorConfig::default());
    let (_, join) = h.join_dynamic(&Join::new("g"));
    h.hold_commits = true;
    let commit = h.send(9, GroupRequest::OffsetCommit(Commit::simple("other", 1).request()));
    h.shard.unload(h.now, Some(0));
    assert_eq!(h.shard.state(), CoordinatorState::Active, "an older resignation is ignored");
    h.shard.unload(h.now, Some(1));
    h.pump();
    assert_eq!(ErrorCode(h.joined(join).error_code), ErrorCode::NOT_COORDINATOR);
    assert!(h.take(commit).is_some());
    assert_eq!(h.heartbeat("g", "m", 1), ErrorCode::NOT_COORDINATOR);
    assert!(h.shard.begin_load(2));
    assert_eq!(h.heartbeat("g", "m", 1), ErrorCode::NONE, "while loading a heartbeat counts");
    assert_eq!(h.commit_offset(&Commit::simple("x", 1)), ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
    assert_eq!(h.shard.list_groups(&Default::default()), Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS));
    assert!(h.shard.poll_deadline().is_none());
}

#[test]
fn a_log_that_moved_without_us_is_loaded_again() {
    let mut h = Harness::new();
    let token = 1000;
    let context = h.context(9, "c");
    h.shard.handle(h.now, &context, GroupRequest::OffsetCommit(Commit::simple("g", 1).request()), token);
    let append = h.shard.poll_append(h.now).unwrap();
    h.shard.handle_appended(h.now, append.append_id, Ok(7));
    h.pump();
    assert_eq!(h.shard.state(), CoordinatorState::Failed);
    assert!(h.take(token).is_some());
    assert!(h.shard.take_reload());
    h.load(0);
    assert_eq!(h.commit_offset(&Commit::simple("g", 1)), ErrorCode::NONE);
}

#[test]
fn a_loaded_group_goes_on_with_its_generation_and_its_sessions_run() {
    let mut h = Harness::new();
    let members = h.stable_group("g", 2);
    let generation = h.generation("g", &members[0]);
    let before = h.shard.describe_groups(6, &["g".to_owned()]);
    h.shard.unload(h.now, None);
    h.load(1);
    assert_eq!(h.shard.describe_groups(6, &["g".to_owned()]), before);
    for member in &members {
        assert_eq!(h.heartbeat("g", member, generation), ErrorCode::NONE);
    }
    let token = h.sync("g", &members[1], generation, &[]);
    assert_eq!(h.synced(token).assignment, Bytes::copy_from_slice(members[1].as_bytes()));
    h.advance(10_001);
    assert_eq!(h.state_of("g"), "Empty");
}

#[test]
fn a_loaded_group_over_capacity_rebalances() {
    let mut h = Harness::new();
    h.stable_group("g", 3);
    h.shard.unload(h.now, None);
    let config = GroupCoordinatorConfig { group_max_size: 2, ..(*h.config).clone() };
    h.shard = GroupShard::new(std::sync::Arc::new(config));
    h.load(1);
    assert_eq!(h.state_of("g"), "PreparingRebalance");
}

#[test]
fn groups_are_described_and_listed_as_their_state_allows() {
    let mut h = Harness::new();
    let members = h.stable_group("g", 1);
    h.commit_offset(&Commit::simple("simple", 3));
    let described = h.shard.describe_groups(6, &["g".into(), "simple".into(), "none".into()]);
    assert_eq!(described[0].protocol_data, "range");
    assert_eq!(described[0].members[0].member_metadata, subscription(&["t"]));
    assert_eq!(described[0].members[0].client_id, "client");
    assert_eq!((&*described[1].group_state, &*described[1].protocol_type), ("Empty", ""));
    assert_eq!(ErrorCode(described[2].error_code), ErrorCode::GROUP_ID_NOT_FOUND);
    assert_eq!(described[2].error_message.as_deref(), Some("Group none not found."));
    let older = h.shard.describe_groups(5, &["none".into()]);
    assert_eq!((&*older[0].group_state, older[0].error_code), ("Dead", 0));
    let list = |states: &[&str], types: &[&str]| {
        let request = ListGroupsRequest {
            states_filter: states.iter().map(|s| (*s).to_owned()).collect(),
            types_filter: types.iter().map(|s| (*s).to_owned()).collect(),
        };
        let groups = h.shard.list_groups(&request).unwrap();
        groups.into_iter().map(|g| g.group_id).collect::<Vec<_>>()
    };
    assert_eq!(list(&[], &[]), ["g", "simple"]);
    assert_eq!(list(&[" stable "], &[]), ["g"]);
    assert_eq!(list(&["EMPTY"], &["Classic"]), ["simple"]);
    assert_eq!(list(&[], &["consumer"]), Vec::<String>::new());
    // A rebalancing group hides its protocol.
    h.join(&Join::of("g", &members[0]));
    h.join_dynamic(&Join::new("g"));
    let described = h.shard.describe_groups(6, &["g".into()]).remove(0);
    assert_eq!((&*described.protocol_data, described.members.len()), ("", 2));
}

#[test]
fn only_empty_groups_are_deleted_and_their_offsets_with_them() {
    let mut h = Harness::new();
    h.stable_group("busy", 1);
    h.commit_offset(&Commit::simple("idle", 3));
    let ids = vec!["busy".to_owned(), "idle".to_owned(), "none".to_owned()];
    match h.call(2, GroupRequest::DeleteGroups(ids)) {
        GroupResponse::DeleteGroups(results) => {
            let errors: Vec<ErrorCode> = results.iter().map(|r| ErrorCode(r.error_code)).collect();
            assert_eq!(errors, [ErrorCode::NON_EMPTY_GROUP, ErrorCode::NONE, ErrorCode::GROUP_ID_NOT_FOUND]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(h.committed("idle"), -1);
    assert_eq!(h.state_of("idle"), "Dead");
    let tail: Vec<GroupRecord> = h.records().into_iter().rev().take(2).collect();
    assert!(matches!((&tail[0].key, &tail[0].value), (RecordKey::GroupMetadataKey(_), None)));
    assert!(matches!((&tail[1].key, &tail[1].value), (RecordKey::OffsetCommitKey(_), None)));
}

#[test]
fn what_happens_to_a_group_can_be_told() {
    let mut h = Harness::new();
    let members = h.stable_group("g", 1);
    let mut join = Join::of("g", &members[0]).request();
    join.reason = Some("rebalance enforced by user".into());
    h.send(9, GroupRequest::JoinGroup(join));
    let leave = LeaveGroupRequest {
        group_id: "g".into(),
        members: vec![leave_group_request::MemberIdentity {
            member_id: members[0].clone(),
            group_instance_id: None,
            reason: Some("the consumer is being closed".into()),
        }],
        ..Default::default()
    };
    h.send(5, GroupRequest::LeaveGroup(leave));
    let m = &members[0];
    let told: Vec<String> =
        std::iter::from_fn(|| h.shard.poll_event()).map(|event| event.to_string()).collect();
    assert_eq!(
        told,
        [
            format!("[Group g] A new member must rejoin as {m}."),
            format!("[Group g] Added member {m} (group instance id: none)."),
            format!(
                "[Group g] Preparing to rebalance, old generation 0 (reason: adding new member {m} with group \
                 instance id none; client reason: not provided)."
            ),
            "[Group g] Generation 1 has 1 members.".to_owned(),
            format!("[Group g] Leader {m} assigned generation 1 to 1 members."),
            format!(
                "[Group g] Preparing to rebalance, old generation 1 (reason: member {m} joins again during Stable; \
                 client reason: rebalance enforced by user)."
            ),
            "[Group g] Generation 2 has 1 members.".to_owned(),
            format!("[Group g] Removed member {m}: it left; client reason: the consumer is being closed."),
            format!(
                "[Group g] Preparing to rebalance, old generation 2 (reason: explicit LeaveGroup of {m})."
            ),
            "[Group g] Empty in generation 3.".to_owned(),
        ]
    );
}
