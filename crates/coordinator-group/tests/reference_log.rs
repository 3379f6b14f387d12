//! A `__consumer_offsets` partition that Apache Kafka 4.4.0 wrote (`data/consumer-offsets-4.4.0.log`).
//!
//! In it: classic groups `classic1` and `static1` (left), `live` (two members, one of them static, stable), `simple1`
//! (offsets only); consumer groups `modern1` (left) and `modern2` (one member); the share group `share1`; and `txg`, whose
//! offsets came in a committed, an aborted and a still open transaction.

mod common;

use bytes::Bytes;
use common::*;
use coordinator_group::*;
use proptest::prelude::*;
use protocol::ErrorCode;
use protocol::messages::*;
use record::{Batches, Compression, EndTransactionMarker, NoCodecs, OwnedRecord};

const LOG: &[u8] = include_bytes!("data/consumer-offsets-4.4.0.log");

fn loaded() -> Harness {
    let mut h = Harness::new();
    h.shard.unload(h.now, None);
    h.log = vec![Bytes::from_static(LOG)];
    h.log_end = Batches::new(LOG).last().unwrap().unwrap().next_offset();
    h.high_watermark = h.log_end;
    // An hour after the last commit in the log.
    h.now.wall_ms = 1_795_970_000_000;
    h.load(1);
    h
}

#[test]
fn its_records_are_written_again_with_the_same_bytes() {
    let mut count = 0;
    for batch in Batches::new(LOG).map(Result::unwrap).filter(|batch| !batch.is_control_batch()) {
        assert_eq!(batch.base_sequence, 0);
        for record in batch.owned_records(&Bytes::from_static(LOG), &NoCodecs, 1 << 20).unwrap() {
            let raw = RawRecord { key: record.key.unwrap(), value: record.value };
            let decoded = GroupRecord::decode(raw.clone()).unwrap();
            assert_eq!(decoded.encode().unwrap(), raw, "{decoded:?}");
            count += 1;
        }
    }
    assert_eq!(count, 52);
}

#[test]
fn its_batches_are_built_again_with_the_same_bytes() {
    let log = Bytes::from_static(LOG);
    for batch in Batches::new(LOG).map(Result::unwrap) {
        let records = batch.owned_records(&log, &NoCodecs, 1 << 20).unwrap();
        let content = if batch.is_control_batch() {
            let (key, value) = (records[0].key.clone().unwrap(), records[0].value.clone().unwrap());
            let marker = EndTransactionMarker::deserialize(&key, &value).unwrap();
            let result = if marker.committed { TransactionResult::Commit } else { TransactionResult::Abort };
            AppendContent::EndTransactionMarker { result, coordinator_epoch: marker.coordinator_epoch }
        } else {
            let raw = |record: &OwnedRecord| RawRecord {
                key: record.key.clone().unwrap(),
                value: record.value.clone(),
            };
            AppendContent::Records(records.iter().map(raw).collect())
        };
        let append = PendingAppend {
            append_id: 0,
            base_offset: batch.base_offset,
            timestamp_ms: batch.base_timestamp,
            producer: batch
                .has_producer_id()
                .then_some(Producer { id: batch.producer_id, epoch: batch.producer_epoch }),
            content,
        };
        let mut built = append.to_batch(Compression::None, &NoCodecs).unwrap().to_vec();
        // The leader epoch is the log's to set.
        built[12..16].copy_from_slice(&batch.partition_leader_epoch.to_be_bytes());
        assert_eq!(built, batch.bytes(), "at offset {}", batch.base_offset);
    }
}

#[test]
fn every_group_is_there_with_its_kind_and_state() {
    let h = loaded();
    let groups = h.shard.list_groups(&ListGroupsRequest::default()).unwrap();
    let listed: Vec<(&str, &str, &str, &str)> =
        groups.iter().map(|g| (&*g.group_id, &*g.group_type, &*g.protocol_type, &*g.group_state)).collect();
    assert_eq!(
        listed,
        [
            ("classic1", "classic", "consumer", "Empty"),
            ("live", "classic", "consumer", "Stable"),
            ("modern1", "consumer", "consumer", "Empty"),
            ("modern2", "consumer", "consumer", "Stable"),
            ("share1", "share", "share", "Empty"),
            ("simple1", "classic", "", "Empty"),
            ("static1", "classic", "consumer", "Empty"),
            ("txg", "classic", "", "Empty"),
        ]
    );
    let gauges = h.shard.gauges().unwrap();
    assert_eq!((gauges.classic_empty, gauges.classic_stable, gauges.consumer_groups), (4, 1, 2));
    let live = h.shard.describe_groups(6, &["live".into()]).remove(0);
    assert_eq!((&*live.protocol_data, live.members.len()), ("range", 2));
    let statics: Vec<_> = live.members.iter().filter_map(|m| m.group_instance_id.as_deref()).collect();
    assert_eq!(statics, ["s1"]);
    let modern = h.shard.describe_groups(6, &["modern2".into()]).remove(0);
    assert_eq!(modern.error_message.as_deref(), Some("Group modern2 is not a classic group."));
}

#[test]
fn the_offsets_of_all_kinds_of_groups_are_served() {
    let mut h = loaded();
    for (group, expected) in [("classic1", 3), ("modern1", 3), ("modern2", 3), ("simple1", 0), ("static1", 3)]
    {
        assert_eq!(h.committed(group), expected, "{group}");
    }
    let all = h.fetch(fetch_all("live"), false);
    assert_eq!(all.topics[0].partitions.len(), 2);
    assert_eq!(all.topics[0].partitions[1].metadata.as_deref(), Some("meta-ä"));
    assert_eq!(all.topics[0].partitions[1].committed_leader_epoch, 0);
    let share = h.fetch(fetch_all("share1"), false);
    assert_eq!((share.error_code, share.topics.len()), (0, 0));
}

#[test]
fn transactions_count_as_they_ended_and_an_open_one_is_unstable() {
    let mut h = loaded();
    assert_eq!(h.committed("txg"), 2);
    let open = h.fetch(fetch_one("txg", "t", 1), false).topics.remove(0).partitions.remove(0);
    assert_eq!((open.committed_offset, open.error_code), (-1, 0));
    let open = h.fetch(fetch_one("txg", "t", 1), true).topics.remove(0).partitions.remove(0);
    assert_eq!(ErrorCode(open.error_code), ErrorCode::UNSTABLE_OFFSET_COMMIT);
    let other = h.fetch(fetch_one("txg", "t", 0), true).topics.remove(0).partitions.remove(0);
    assert_eq!((other.committed_offset, other.error_code), (2, 0));
    // C11: the end of the transaction frees it.
    let producer = Producer { id: 3, epoch: 1 };
    h.shard.handle_complete_transaction(h.now, producer, 0, TransactionResult::Commit, 77);
    h.pump();
    assert_eq!(h.take(77), Some(GroupResponse::CompleteTransaction(ErrorCode::NONE)));
    let done = h.fetch(fetch_one("txg", "t", 1), true).topics.remove(0).partitions.remove(0);
    assert_eq!((done.committed_offset, done.error_code), (7, 0));
    let before = h.fetch(fetch_all("txg"), true);
    h.shard.unload(h.now, None);
    h.load(2);
    assert_eq!(h.fetch(fetch_all("txg"), true), before, "the marker is in the log");
}

#[test]
fn a_group_of_a_newer_kind_answers_classic_requests_as_the_reference_does() {
    let mut h = loaded();
    for (group, member, error) in [
        ("modern2", "", ErrorCode::INCONSISTENT_GROUP_PROTOCOL),
        ("share1", "", ErrorCode::INCONSISTENT_GROUP_PROTOCOL),
        ("modern1", "m", ErrorCode::UNKNOWN_MEMBER_ID),
    ] {
        let token = h.join(&Join::of(group, member));
        assert_eq!(ErrorCode(h.joined(token).error_code), error, "{group}");
        assert_eq!(h.heartbeat(group, "m", 1), ErrorCode::UNKNOWN_MEMBER_ID);
        let token = h.sync(group, "m", 1, &[]);
        assert_eq!(ErrorCode(h.synced(token).error_code), ErrorCode::UNKNOWN_MEMBER_ID);
        assert_eq!(h.leave(group, &[("m", None)]).members[0].error_code, ErrorCode::UNKNOWN_MEMBER_ID.code());
    }
    let commit = |member: &str, generation, version| Commit {
        member: member.into(),
        generation,
        version,
        ..Commit::simple("modern2", 9)
    };
    let member = "MTgFVwQXT6iM2Iic7PAikw";
    for (commit, error) in [
        (commit("", -1, 9), ErrorCode::UNKNOWN_MEMBER_ID),
        (commit("nobody", 2, 9), ErrorCode::UNKNOWN_MEMBER_ID),
        (commit(member, 2, 8), ErrorCode::UNSUPPORTED_VERSION),
        (commit(member, 3, 9), ErrorCode::STALE_MEMBER_EPOCH),
        (commit(member, 1, 9), ErrorCode::STALE_MEMBER_EPOCH),
        (commit(member, 2, 9), ErrorCode::NONE),
        (Commit::simple("modern1", 9), ErrorCode::NONE),
        (Commit::simple("share1", 9), ErrorCode::GROUP_ID_NOT_FOUND),
    ] {
        assert_eq!(h.commit_offset(&commit), error, "{commit:?}");
    }
    assert_eq!((h.committed("modern2"), h.committed("modern1")), (9, 9));
    let mut fetch = fetch_one("modern2", "t", 0);
    fetch.member_id = Some(member.into());
    fetch.member_epoch = 1;
    assert_eq!(ErrorCode(h.fetch(fetch.clone(), false).error_code), ErrorCode::STALE_MEMBER_EPOCH);
    fetch.member_epoch = 2;
    assert_eq!(h.fetch(fetch, false).error_code, 0);
    let ids: Vec<String> = ["modern2", "share1"].map(String::from).into();
    match h.call(2, GroupRequest::DeleteGroups(ids)) {
        GroupResponse::DeleteGroups(results) => {
            assert_eq!(ErrorCode(results[0].error_code), ErrorCode::NON_EMPTY_GROUP);
            assert_ne!(ErrorCode(results[1].error_code), ErrorCode::NONE);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_empty_consumer_group_becomes_a_classic_one_and_keeps_its_offsets() {
    let mut h = loaded();
    let (_, token) = h.join_dynamic(&Join::new("modern1"));
    h.advance(0);
    assert_eq!(h.joined(token).generation_id, 1);
    assert_eq!(h.committed("modern1"), 3);
    h.shard.unload(h.now, None);
    h.load(2);
    let groups = h.shard.list_groups(&ListGroupsRequest::default()).unwrap();
    let modern1 = groups.iter().find(|g| g.group_id == "modern1").unwrap();
    assert_eq!(modern1.group_type, "classic");
    assert_eq!(h.committed("modern1"), 3);
}

#[test]
fn expiration_spares_what_members_consume_and_share_groups() {
    let mut h = loaded();
    let live: Vec<String> = h
        .shard
        .describe_groups(6, &["live".into()])
        .remove(0)
        .members
        .into_iter()
        .map(|m| m.member_id)
        .collect();
    // Eight days in which the members of `live` keep coming.
    for _ in 0..(8 * 24 * 60 * 2) {
        h.advance(30_000);
        h.heartbeat("live", &live[0], 2);
        h.heartbeat("live", &live[1], 2);
    }
    let left: Vec<String> =
        h.shard.list_groups(&ListGroupsRequest::default()).unwrap().into_iter().map(|g| g.group_id).collect();
    // What is left of `txg` is its open transaction.
    assert_eq!(left, ["live", "modern2", "share1", "txg"]);
    assert_eq!((h.committed("live"), h.committed("txg")), (3, -1));
    assert_eq!(h.committed("modern2"), 3);
    assert_eq!(h.committed("classic1"), -1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_garbled_log_is_refused_or_loaded_but_harms_nobody(
        flips in proptest::collection::vec((0..LOG.len(), any::<u8>()), 1..8)
    ) {
        let mut log = LOG.to_vec();
        for (place, byte) in flips {
            log[place] = byte;
        }
        let mut h = Harness::new();
        h.shard.unload(h.now, None);
        prop_assert!(h.shard.begin_load(1));
        let log = Bytes::from(log);
        if h.shard.handle_loaded_batches(h.now, &log, &NoCodecs, 54).is_err() {
            h.shard.fail_load(h.now);
            prop_assert_eq!(h.heartbeat("live", "m", 2), ErrorCode::NOT_COORDINATOR);
            return Ok(());
        }
        h.log_end = 1 << 40;
        h.high_watermark = h.log_end;
        h.shard.finish_load(h.now, h.log_end, h.high_watermark).unwrap();
        h.pump();
        let groups = h.shard.list_groups(&ListGroupsRequest::default()).unwrap();
        let ids: Vec<String> = groups.into_iter().map(|group| group.group_id).collect();
        h.shard.describe_groups(6, &ids);
        for id in &ids {
            h.fetch(fetch_all(id), true);
            let token = h.join(&Join::new(id));
            h.take(token);
        }
        h.advance(8 * 24 * 3_600_000);
    }
}
