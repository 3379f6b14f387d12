//! Committed offsets: who may commit, what is read when, what expires.

mod common;

use common::*;
use coordinator_group::*;
use protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use protocol::messages::offset_fetch_request::OffsetFetchRequestTopics;
use protocol::messages::*;
use protocol::records::group::{RecordKey, RecordValue};
use protocol::{ErrorCode, Uuid};

const DAY_MS: u64 = 24 * 3_600_000;

fn delete(h: &mut Harness, group: &str) -> Result<ErrorCode, ErrorCode> {
    let request = OffsetDeleteRequest {
        group_id: group.to_owned(),
        topics: vec![OffsetDeleteRequestTopic {
            name: "t".to_owned(),
            partitions: vec![OffsetDeleteRequestPartition { partition_index: 0 }],
        }],
    };
    match h.call(0, GroupRequest::OffsetDelete(request)) {
        GroupResponse::OffsetDelete(answer) if answer.error_code != 0 => Err(ErrorCode(answer.error_code)),
        GroupResponse::OffsetDelete(answer) => Ok(ErrorCode(answer.topics[0].partitions[0].error_code)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_commit_is_written_in_the_version_that_fits_it() {
    let mut h = Harness::new();
    let id: Uuid = "RMHX28iRQYWDARqi55Xc_g".parse().unwrap();
    let mut request = Commit { metadata: "m".into(), ..Commit::simple("g", 5) }.request();
    request.topics[0].topic_id = id;
    request.topics[0].partitions[0].committed_leader_epoch = 4;
    h.send(10, GroupRequest::OffsetCommit(request));
    h.commit_offset(&Commit { version: 4, retention_ms: 1000, ..Commit::simple("g", 6) });
    let records = h.records();
    let Some(RecordValue::OffsetCommitValue(first)) = &records[0].value else { panic!("{records:?}") };
    assert_eq!((first.offset, first.leader_epoch, &*first.metadata, first.topic_id), (5, 4, "m", id));
    assert_eq!((first.commit_timestamp, first.expire_timestamp), (h.now.wall_ms, -1));
    assert_eq!(records[0].encode().unwrap().value.unwrap()[..2], [0, 4]);
    let Some(RecordValue::OffsetCommitValue(second)) = &records[1].value else { panic!("{records:?}") };
    assert_eq!(second.expire_timestamp, h.now.wall_ms + 1000);
    assert_eq!(records[1].encode().unwrap().value.unwrap()[..2], [0, 1]);
    assert_eq!(records[1].encode().unwrap().key[..2], [0, 1]);
}

#[test]
fn commits_are_accepted_from_whom_the_group_belongs_to() {
    let mut h = Harness::new();
    let members = h.stable_group("g", 2);
    let generation = h.generation("g", &members[0]);
    let by = |member: &str, generation, version| Commit {
        member: member.into(),
        generation,
        version,
        ..Commit::simple("g", 1)
    };
    for (commit, error) in [
        (by(&members[0], generation, 9), ErrorCode::NONE),
        (by(&members[0], generation - 1, 9), ErrorCode::ILLEGAL_GENERATION),
        (by("stranger", generation, 9), ErrorCode::UNKNOWN_MEMBER_ID),
        (by("", -1, 9), ErrorCode::UNKNOWN_MEMBER_ID),
        (
            Commit { instance: Some("i".into()), ..by(&members[0], generation, 9) },
            ErrorCode::UNKNOWN_MEMBER_ID,
        ),
        (Commit { group: "new".into(), ..by("m", 3, 9) }, ErrorCode::GROUP_ID_NOT_FOUND),
        (Commit { group: "new".into(), ..by("m", 3, 8) }, ErrorCode::ILLEGAL_GENERATION),
        (Commit::simple("new", 1), ErrorCode::NONE),
        (Commit { group: "new".into(), ..by("m", 3, 9) }, ErrorCode::UNKNOWN_MEMBER_ID),
        (Commit { metadata: "x".repeat(4096), ..Commit::simple("new", 1) }, ErrorCode::NONE),
        (Commit { metadata: "ä".repeat(4096), ..Commit::simple("new", 1) }, ErrorCode::NONE),
        (
            Commit { metadata: "x".repeat(4097), ..Commit::simple("new", 1) },
            ErrorCode::OFFSET_METADATA_TOO_LARGE,
        ),
        (
            Commit { metadata: "😀".repeat(2049), ..Commit::simple("new", 1) },
            ErrorCode::OFFSET_METADATA_TOO_LARGE,
        ),
    ] {
        assert_eq!(h.commit_offset(&commit), error, "{commit:?}");
    }
    // While the assignment is awaited nobody may commit; while members gather the old generation may.
    h.join(&Join::of("g", &members[0]));
    assert_eq!(h.state_of("g"), "PreparingRebalance");
    assert_eq!(h.commit_offset(&by(&members[0], generation, 9)), ErrorCode::NONE);
    h.join(&Join::of("g", &members[1]));
    assert_eq!(h.state_of("g"), "CompletingRebalance");
    assert_eq!(h.commit_offset(&by(&members[0], generation + 1, 9)), ErrorCode::REBALANCE_IN_PROGRESS);
}

#[test]
fn a_commit_counts_as_a_heartbeat() {
    let mut h = Harness::new();
    let members = h.stable_group("g", 1);
    for _ in 0..3 {
        h.advance(8_000);
        let commit = Commit { member: members[0].clone(), generation: 1, ..Commit::simple("g", 1) };
        assert_eq!(h.commit_offset(&commit), ErrorCode::NONE);
    }
    assert_eq!(h.state_of("g"), "Stable");
}

#[test]
fn readers_see_what_is_committed_and_stable_readers_wait_for_it() {
    let mut h = Harness::new();
    assert_eq!(h.commit_offset(&Commit::simple("g", 1)), ErrorCode::NONE);
    h.hold_commits = true;
    h.send(9, GroupRequest::OffsetCommit(Commit::simple("g", 2).request()));
    h.send(9, GroupRequest::OffsetCommit(Commit::simple("new", 2).request()));
    assert_eq!(h.committed("g"), 1);
    assert_eq!(h.committed("new"), -1);
    assert_eq!(h.state_of("new"), "Dead");
    let stable = h.send(9, GroupRequest::OffsetFetch { group: fetch_one("g", "t", 0), require_stable: true });
    assert!(!h.replies.contains_key(&stable));
    h.commit();
    match h.take(stable) {
        Some(GroupResponse::OffsetFetch(answer)) => {
            assert_eq!(answer.topics[0].partitions[0].committed_offset, 2);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((h.committed("g"), h.committed("new")), (2, 2));
    // A stable reader whose offsets are lost looks for another coordinator.
    h.send(9, GroupRequest::OffsetCommit(Commit::simple("g", 3).request()));
    let stable = h.send(9, GroupRequest::OffsetFetch { group: fetch_one("g", "t", 0), require_stable: true });
    h.advance(5_000);
    match h.take(stable) {
        Some(GroupResponse::OffsetFetch(answer)) => {
            assert_eq!(ErrorCode(answer.error_code), ErrorCode::NOT_COORDINATOR);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lost_commit_leaves_the_offset_as_it_was() {
    let mut h = Harness::new();
    h.commit_offset(&Commit::simple("g", 1));
    for (error, shown) in [
        (ErrorCode::NOT_ENOUGH_REPLICAS, ErrorCode::COORDINATOR_NOT_AVAILABLE),
        (ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::NOT_COORDINATOR),
        (ErrorCode::KAFKA_STORAGE_ERROR, ErrorCode::NOT_COORDINATOR),
        (ErrorCode::MESSAGE_TOO_LARGE, ErrorCode::UNKNOWN_SERVER_ERROR),
        (ErrorCode::REQUEST_TIMED_OUT, ErrorCode::COORDINATOR_NOT_AVAILABLE),
    ] {
        h.fail_append = Some(error);
        assert_eq!(h.commit_offset(&Commit::simple("g", 2)), shown);
        assert_eq!(h.committed("g"), 1);
        let stable = h.fetch(fetch_one("g", "t", 0), true);
        assert_eq!(stable.topics[0].partitions[0].committed_offset, 1);
    }
    assert_eq!(h.commit_offset(&Commit::simple("g", 3)), ErrorCode::NONE);
    assert_eq!(h.committed("g"), 3);
}

#[test]
fn fetches_answer_for_every_partition_asked_and_mind_topic_ids() {
    let mut h = Harness::new();
    let (id, other): (Uuid, Uuid) =
        ("RMHX28iRQYWDARqi55Xc_g".parse().unwrap(), "AAAAAAAAAAAAAAAAAAAAFA".parse().unwrap());
    let mut request = Commit::simple("g", 5).request();
    request.topics[0].topic_id = id;
    h.send(10, GroupRequest::OffsetCommit(request));
    h.commit_offset(&Commit { topic: "u".into(), partition: 3, ..Commit::simple("g", 6) });
    for (topic_id, offset) in [(id, 5), (Uuid::ZERO, 5), (other, -1)] {
        let mut fetch = fetch_one("g", "t", 0);
        fetch.topics.as_mut().unwrap()[0] =
            OffsetFetchRequestTopics { name: "t".into(), topic_id, partition_indexes: vec![0, 1] };
        let answer = h.fetch(fetch, false).topics.remove(0);
        assert_eq!(answer.topic_id, topic_id);
        assert_eq!(
            (answer.partitions[0].committed_offset, answer.partitions[1].committed_offset),
            (offset, -1)
        );
        assert_eq!(answer.partitions[1].metadata.as_deref(), Some(""));
    }
    let all = h.fetch(fetch_all("g"), false);
    let names: Vec<&str> = all.topics.iter().map(|t| &*t.name).collect();
    assert_eq!(names, ["t", "u"]);
    let none = h.fetch(fetch_one("none", "t", 0), false);
    assert_eq!((none.error_code, none.topics[0].partitions[0].committed_offset), (0, -1));
    assert!(h.fetch(fetch_all("none"), false).topics.is_empty());
}

#[test]
fn offsets_that_members_consume_cannot_be_deleted() {
    let mut h = Harness::new();
    assert_eq!(delete(&mut h, ""), Err(ErrorCode::INVALID_GROUP_ID));
    assert_eq!(delete(&mut h, "none"), Err(ErrorCode::GROUP_ID_NOT_FOUND));
    h.commit_offset(&Commit::simple("idle", 1));
    assert_eq!(delete(&mut h, "idle"), Ok(ErrorCode::NONE));
    assert_eq!(h.committed("idle"), -1);
    assert_eq!(delete(&mut h, "idle"), Ok(ErrorCode::NONE));
    assert_eq!(h.records().len(), 2, "nothing to delete, nothing written");
    let members = h.stable_group("busy", 1);
    assert_eq!(delete(&mut h, "busy"), Ok(ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC));
    h.leave("busy", &[(&members[0], None)]);
    assert_eq!(delete(&mut h, "busy"), Ok(ErrorCode::NONE));
    let token = h.join(&Join { version: 3, protocol_type: "connect".into(), ..Join::new("connect") });
    h.advance(0);
    h.joined(token);
    assert_eq!(delete(&mut h, "connect"), Err(ErrorCode::NON_EMPTY_GROUP));
}

#[test]
fn offsets_of_a_simple_group_expire_after_their_last_commit() {
    let mut h = Harness::new();
    h.commit_offset(&Commit::simple("g", 1));
    h.commit_offset(&Commit { version: 4, retention_ms: DAY_MS as i64, ..Commit::simple("short", 1) });
    h.advance(DAY_MS + 600_000);
    assert_eq!((h.committed("g"), h.committed("short")), (1, -1));
    h.commit_offset(&Commit { partition: 1, ..Commit::simple("g", 1) });
    h.advance(6 * DAY_MS);
    assert_eq!(h.committed("g"), -1);
    assert_eq!(h.state_of("g"), "Empty", "another partition was committed later");
    h.advance(DAY_MS + 600_000);
    assert_eq!(h.state_of("g"), "Dead");
    let last = h.records().pop().unwrap();
    assert!(matches!((last.key, last.value), (RecordKey::GroupMetadataKey(_), None)));
    assert_eq!(h.shard.metrics().unwrap().offset_expirations, 3);
}

#[test]
fn offsets_of_a_group_age_from_when_it_became_empty() {
    // C08: twenty minutes after the members left everything is still there.
    let mut h = Harness::with_config(GroupCoordinatorConfig {
        offsets_retention_ms: DAY_MS as i64,
        group_initial_rebalance_delay_ms: 0,
        ..Default::default()
    });
    let members = h.stable_group("g", 1);
    let commit = Commit { member: members[0].clone(), generation: 1, ..Commit::simple("g", 1) };
    h.commit_offset(&commit);
    for _ in 0..(2 * DAY_MS / 9_000) {
        h.advance(9_000);
        h.heartbeat("g", &members[0], 1);
    }
    assert_eq!(h.committed("g"), 1, "consumed offsets do not age");
    h.leave("g", &[(&members[0], None)]);
    h.advance(20 * 60_000);
    assert_eq!(h.committed("g"), 1);
    h.advance(DAY_MS - 25 * 60_000);
    assert_eq!(h.committed("g"), 1);
    h.advance(25 * 60_000);
    assert_eq!((h.committed("g"), &*h.state_of("g")), (-1, "Dead"));
}

#[test]
fn a_failed_expiration_is_tried_again() {
    let mut h =
        Harness::with_config(GroupCoordinatorConfig { offsets_retention_ms: 1, ..Default::default() });
    h.commit_offset(&Commit::simple("g", 1));
    h.fail_append = Some(ErrorCode::NOT_ENOUGH_REPLICAS);
    h.advance(600_000);
    assert_eq!(h.committed("g"), 1);
    h.advance(600_000);
    assert_eq!(h.committed("g"), -1);
}

#[test]
fn offsets_of_a_deleted_topic_go_but_not_those_of_its_namesake() {
    let mut h = Harness::new();
    let (id, other): (Uuid, Uuid) =
        ("RMHX28iRQYWDARqi55Xc_g".parse().unwrap(), "AAAAAAAAAAAAAAAAAAAAFA".parse().unwrap());
    for (group, topic_id) in [("same", id), ("other", other), ("unknown", Uuid::ZERO)] {
        let mut request = Commit::simple(group, 5).request();
        request.topics[0].topic_id = topic_id;
        h.send(10, GroupRequest::OffsetCommit(request));
    }
    h.shard.handle_topics_deleted(h.now, &[DeletedTopic { id, name: "t".into() }]);
    h.pump();
    assert_eq!((h.committed("same"), h.committed("other"), h.committed("unknown")), (-1, 5, -1));
}

#[test]
fn transactional_commits_are_pending_until_the_marker() {
    let mut h = Harness::new();
    let plain = Commit::simple("g", 5).request();
    let commit = |group: &str, member: &str, generation| TxnOffsetCommitRequest {
        transactional_id: "tx".into(),
        group_id: group.into(),
        producer_id: 7,
        producer_epoch: 0,
        generation_id_or_member_epoch: generation,
        member_id: member.into(),
        topics: plain
            .topics
            .iter()
            .map(|t| txn_offset_commit_request::TxnOffsetCommitRequestTopic {
                name: t.name.clone(),
                partitions: vec![txn_offset_commit_request::TxnOffsetCommitRequestPartition {
                    committed_offset: 5,
                    ..Default::default()
                }],
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let error =
        |h: &mut Harness, version, request| match h.call(version, GroupRequest::TxnOffsetCommit(request)) {
            GroupResponse::TxnOffsetCommit(answer) => ErrorCode(answer.topics[0].partitions[0].error_code),
            other => panic!("{other:?}"),
        };
    assert_eq!(error(&mut h, 5, commit("", "", -1)), ErrorCode::INVALID_GROUP_ID);
    assert_eq!(error(&mut h, 5, commit("g", "m", 3)), ErrorCode::ILLEGAL_GENERATION);
    assert_eq!(error(&mut h, 6, commit("g", "m", 3)), ErrorCode::GROUP_ID_NOT_FOUND);
    assert_eq!(error(&mut h, 5, commit("g", "", -1)), ErrorCode::NONE);
    assert_eq!(h.committed("g"), -1);
    let unstable = h.fetch(fetch_one("g", "t", 0), true).topics.remove(0).partitions.remove(0);
    assert_eq!(ErrorCode(unstable.error_code), ErrorCode::UNSTABLE_OFFSET_COMMIT);
    let producer = Producer { id: 7, epoch: 0 };
    h.shard.handle_complete_transaction(h.now, producer, 3, TransactionResult::Commit, 900);
    h.pump();
    assert_eq!(h.committed("g"), 5);
    // A lost marker leaves the transaction open.
    assert_eq!(error(&mut h, 5, commit("g", "", -1)), ErrorCode::NONE);
    h.fail_append = Some(ErrorCode::NOT_ENOUGH_REPLICAS);
    h.shard.handle_complete_transaction(h.now, producer, 3, TransactionResult::Abort, 901);
    h.pump();
    assert_eq!(h.take(901), Some(GroupResponse::CompleteTransaction(ErrorCode::NOT_ENOUGH_REPLICAS)));
    let unstable = h.fetch(fetch_one("g", "t", 0), true).topics.remove(0).partitions.remove(0);
    assert_eq!(ErrorCode(unstable.error_code), ErrorCode::UNSTABLE_OFFSET_COMMIT);
    h.shard.unload(h.now, None);
    h.load(1);
    let unstable = h.fetch(fetch_one("g", "t", 0), true).topics.remove(0).partitions.remove(0);
    assert_eq!(ErrorCode(unstable.error_code), ErrorCode::UNSTABLE_OFFSET_COMMIT);
}
