//! Images, deltas, snapshots and the loader, on records of every kind.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use metadata::record::MetadataRecord;
use metadata::{
    MetadataDelta, MetadataImage, MetadataLoader, MetadataProvenance, ReplayError, VersionedRecord,
};
use proptest::prelude::*;
use protocol::Uuid;
use protocol::records::metadata::client_quota_record::EntityData;
use protocol::records::metadata::*;
use record::TopicPartition;

fn id(n: u8) -> Uuid {
    Uuid([n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 200])
}

fn topic(n: u8) -> MetadataRecord {
    TopicRecord { name: format!("t{n}"), topic_id: id(n) }.into()
}

fn partition(topic: u8, partition_id: i32, replicas: &[i32], leader: i32) -> MetadataRecord {
    PartitionRecord {
        partition_id,
        topic_id: id(topic),
        replicas: replicas.to_vec(),
        isr: replicas.to_vec(),
        leader,
        leader_epoch: 0,
        partition_epoch: 0,
        directories: vec![id(99); replicas.len()],
        ..Default::default()
    }
    .into()
}

fn change(topic: u8, partition_id: i32, leader: i32) -> PartitionChangeRecord {
    PartitionChangeRecord { partition_id, topic_id: id(topic), leader, ..Default::default() }
}

fn feature(name: &str, feature_level: i16) -> MetadataRecord {
    FeatureLevelRecord { name: name.to_owned(), feature_level }.into()
}

fn provenance(offset: i64) -> MetadataProvenance {
    MetadataProvenance { last_contained_offset: offset, last_contained_epoch: 1, ..Default::default() }
}

fn image(records: &[MetadataRecord]) -> MetadataImage {
    let mut delta = MetadataDelta::new(MetadataImage::default());
    for record in records {
        delta.replay(record).unwrap();
    }
    delta.apply(provenance(1))
}

fn tp(n: u8, partition: i32) -> TopicPartition {
    TopicPartition::new(format!("t{n}"), partition)
}

#[test]
fn a_broker_learns_what_changes_for_its_replicas() {
    let before = image(&[
        topic(1),
        partition(1, 0, &[1, 2], 1),
        partition(1, 1, &[1, 2], 2),
        partition(1, 2, &[1, 2], 2),
        partition(1, 3, &[3], 3),
        topic(2),
        partition(2, 0, &[1], 1),
        topic(3),
        partition(3, 0, &[1], 1),
    ]);
    let mut delta = MetadataDelta::new(before);
    let mut isr_only = change(1, 0, -2);
    isr_only.isr = Some(vec![1]);
    let mut moved = change(1, 2, 3);
    (moved.replicas, moved.isr, moved.directories) = (Some(vec![3]), Some(vec![3]), Some(vec![id(99)]));
    let records: [MetadataRecord; 7] = [
        isr_only.into(),
        change(1, 1, 1).into(),
        moved.into(),
        RemoveTopicRecord { topic_id: id(2) }.into(),
        topic(4),
        partition(4, 0, &[2, 1], 2),
        change(1, 3, -1).into(),
    ];
    for record in &records {
        delta.replay(record).unwrap();
    }
    let changes = delta.local_changes(1);
    let keys = |map: &std::collections::BTreeMap<TopicPartition, metadata::PartitionInfo>| {
        map.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(keys(&changes.leaders), [tp(1, 0), tp(1, 1)]);
    assert_eq!(keys(&changes.elected_leaders), [tp(1, 1)], "a new ISR is no election");
    assert_eq!(keys(&changes.followers), [tp(4, 0)]);
    assert_eq!(changes.deletes, BTreeSet::from([tp(1, 2), tp(2, 0)]));
    assert_eq!(changes.directory_ids.keys().cloned().collect::<Vec<_>>(), [tp(4, 0)]);
    let topics = delta.topics.as_ref().unwrap();
    assert_eq!((topics.created.len(), topics.deleted.len()), (1, 1));
    assert_eq!(topics.changed.keys().copied().collect::<Vec<_>>(), [id(1), id(4)]);
}

#[test]
fn a_change_of_one_partition_shares_all_others() {
    let mut records = Vec::new();
    for t in 0..100 {
        records.push(topic(t));
        records.extend((0..100).map(|p| partition(t, p, &[1], 1)));
    }
    let before = image(&records);
    let mut delta = MetadataDelta::new(before.clone());
    delta.replay(&change(7, 7, 1).into()).unwrap();
    let after = delta.apply(provenance(2));
    let mut copied = 0;
    for t in before.topics.iter() {
        let other = after.topics.topic(&t.id).unwrap();
        if !t.partitions.ptr_eq(&other.partitions) {
            assert_eq!(t.id, id(7));
            copied += t
                .partitions
                .iter()
                .filter(|(n, p)| !Arc::ptr_eq(p, other.partitions.get(n).unwrap()))
                .count();
        }
    }
    assert_eq!(copied, 1);
}

#[test]
fn what_a_snapshot_does_not_mention_is_gone() {
    let before = image(&[
        feature("metadata.version", 33),
        feature("group.version", 1),
        topic(1),
        partition(1, 0, &[1], 1),
        partition(1, 1, &[1], 1),
        topic(2),
        ConfigRecord {
            resource_type: 2,
            resource_name: "t1".into(),
            name: "a".into(),
            value: Some("b".into()),
        }
        .into(),
        RegisterControllerRecord { controller_id: 5, ..Default::default() }.into(),
    ]);
    let mut loader = MetadataLoader::new(before);
    let snapshot = [feature("metadata.version", 33), topic(1), partition(1, 0, &[1], 1)];
    let snapshot: Vec<_> = snapshot.into_iter().map(|r| VersionedRecord::new(r, 0)).collect();
    let update = loader.load_snapshot(provenance(9), &snapshot).unwrap();
    assert_eq!(update.image.topics.len(), 1);
    assert_eq!(update.image.features.level("group.version"), 0);
    let delta = &update.delta;
    assert_eq!(delta.topics.as_ref().unwrap().deleted, BTreeSet::from([id(2)]));
    assert!(delta.features.as_ref().unwrap().changed.contains("group.version"));
    assert_eq!(delta.cluster.as_ref().unwrap().changed_controllers, BTreeSet::from([5]));
    assert_eq!(delta.configs.as_ref().unwrap().len(), 1);
    assert_eq!(delta.local_changes(1).deletes, BTreeSet::from([tp(1, 1)]));
}

fn batch(records: Vec<MetadataRecord>) -> Vec<VersionedRecord> {
    records.into_iter().map(|r| VersionedRecord::new(r, 0)).collect()
}

fn begin() -> MetadataRecord {
    BeginTransactionRecord::default().into()
}

fn end() -> MetadataRecord {
    EndTransactionRecord::default().into()
}

fn abort() -> MetadataRecord {
    AbortTransactionRecord::default().into()
}

#[test]
fn transactions_are_published_whole_or_not_at_all() {
    let mut loader = MetadataLoader::default();
    let updates = loader.load_batch(0, 1, 0, &batch(vec![topic(1), begin(), topic(2)])).unwrap();
    assert_eq!(updates.len(), 1, "what stood before the transaction");
    assert_eq!((updates[0].image.offset(), updates[0].image.topics.len()), (0, 1));
    assert!(loader.in_transaction() && loader.flush().is_none());
    assert!(loader.load_batch(3, 1, 0, &batch(vec![topic(3)])).unwrap().is_empty());
    assert!(loader.load_batch(4, 1, 0, &batch(vec![end()])).unwrap().is_empty());
    let update = loader.flush().unwrap();
    assert_eq!((update.image.offset(), update.image.topics.len()), (4, 3));
    assert!(loader.flush().is_none(), "nothing new");

    loader.load_batch(5, 1, 0, &batch(vec![begin(), topic(4)])).unwrap();
    loader.load_batch(7, 1, 0, &batch(vec![abort(), topic(5)])).unwrap();
    let update = loader.flush().unwrap();
    assert_eq!((update.image.offset(), update.image.topics.len()), (8, 4));
    assert!(update.image.topics.topic_by_name("t4").is_none());
}

#[test]
fn logs_that_contradict_themselves_are_refused() {
    let check = |records: Vec<MetadataRecord>| {
        let mut loader = MetadataLoader::default();
        assert!(loader.load_batch(0, 1, 0, &batch(records.clone())).is_err(), "{records:?}");
    };
    check(vec![begin(), begin()]);
    check(vec![end()]);
    check(vec![abort()]);
    check(vec![partition(1, 0, &[1], 1)]);
    check(vec![topic(1), change(1, 0, 1).into()]);
    check(vec![RemoveTopicRecord { topic_id: id(1) }.into()]);
    check(vec![FenceBrokerRecord { id: 1, epoch: 1 }.into()]);
    check(vec![RemoveAccessControlEntryRecord { id: id(1) }.into()]);
    check(vec![feature("metadata.version", 3)]);
    let mut no_dirs = change(1, 0, 1);
    no_dirs.directories = Some(vec![id(3), id(4)]);
    check(vec![topic(1), partition(1, 0, &[1], 1), no_dirs.into()]);
    let error = MetadataImage::default().clone().replay(&feature("metadata.version", 99)).unwrap_err();
    assert_eq!(error, ReplayError::UnsupportedMetadataVersion(99));
}

/// Every record type as often as every other.
fn any_record() -> impl Strategy<Value = MetadataRecord> {
    prop_oneof![5 => node_record(), 7 => topic_record(), 11 => other_record()]
}

fn small() -> std::ops::Range<u8> {
    0..4
}

fn node_record() -> impl Strategy<Value = MetadataRecord> {
    let broker = |(n, fenced): (u8, bool)| {
        RegisterBrokerRecord {
            broker_id: i32::from(n),
            broker_epoch: 7,
            fenced,
            rack: Some(format!("r{n}")),
            log_dirs: vec![id(n), id(200)],
            ..Default::default()
        }
        .into()
    };
    prop_oneof![
        (small(), any::<bool>()).prop_map(broker),
        small().prop_map(|n| UnregisterBrokerRecord { broker_id: i32::from(n), broker_epoch: 7 }.into()),
        (small(), -1i8..=1).prop_map(|(n, fenced)| BrokerRegistrationChangeRecord {
            broker_id: i32::from(n),
            broker_epoch: 7,
            fenced,
            ..Default::default()
        }
        .into()),
        small().prop_map(
            |n| RegisterControllerRecord { controller_id: i32::from(n), ..Default::default() }.into()
        ),
        small().prop_map(|n| UnregisterControllerRecord { controller_id: i32::from(n) }.into()),
    ]
}

fn topic_record() -> impl Strategy<Value = MetadataRecord> {
    let config = |(n, k, v): (u8, u8, Option<u8>)| {
        ConfigRecord {
            resource_type: [2, 4, 16, 32][usize::from(n)],
            resource_name: format!("t{n}"),
            name: format!("k{k}"),
            value: v.map(|v| v.to_string()),
        }
        .into()
    };
    prop_oneof![
        small().prop_map(topic),
        (small(), small()).prop_map(|(t, p)| partition(t, i32::from(p), &[1, 2], 1)),
        (small(), small(), -2i32..3).prop_map(|(t, p, leader)| {
            let mut record = change(t, i32::from(p), leader);
            record.eligible_leader_replicas = Some(vec![2]);
            record.into()
        }),
        small().prop_map(|t| ClearElrRecord { topic_name: format!("t{t}") }.into()),
        Just(ClearElrRecord::default().into()),
        small().prop_map(|t| RemoveTopicRecord { topic_id: id(t) }.into()),
        (small(), small(), any::<Option<u8>>()).prop_map(config),
    ]
}

fn other_record() -> impl Strategy<Value = MetadataRecord> {
    let quota = |(n, remove): (u8, bool)| {
        let entity_name = (n > 0).then(|| n.to_string());
        let entity = vec![EntityData { entity_type: "user".into(), entity_name }];
        ClientQuotaRecord { entity, key: "k".into(), value: 1.5, remove }.into()
    };
    let acl = |(n, host): (u8, u8)| {
        AccessControlEntryRecord {
            id: id(n),
            resource_name: format!("t{n}"),
            principal: "User:a".into(),
            host: host.to_string(),
            ..Default::default()
        }
        .into()
    };
    let scram = |(n, iterations): (u8, u8)| {
        UserScramCredentialRecord {
            name: format!("u{n}"),
            mechanism: 1,
            salt: Bytes::from_static(b"salt"),
            stored_key: Bytes::from_static(b"stored"),
            server_key: Bytes::from_static(b"server"),
            iterations: i32::from(iterations),
        }
        .into()
    };
    let token = |n: u8| DelegationTokenRecord { token_id: n.to_string(), ..Default::default() }.into();
    prop_oneof![
        (small(), any::<bool>()).prop_map(quota),
        small()
            .prop_map(|n| ProducerIdsRecord { next_producer_id: i64::from(n), ..Default::default() }.into()),
        (small(), any::<u8>()).prop_map(acl),
        small().prop_map(|n| RemoveAccessControlEntryRecord { id: id(n) }.into()),
        (small(), any::<u8>()).prop_map(scram),
        small().prop_map(|n| RemoveUserScramCredentialRecord { name: format!("u{n}"), mechanism: 1 }.into()),
        small().prop_map(token),
        small().prop_map(|n| RemoveDelegationTokenRecord { token_id: n.to_string() }.into()),
        (0i16..3).prop_map(|n| feature("share.version", n)),
        Just(feature("eligible.leader.replicas.version", 1)),
        Just(NoOpRecord::default().into()),
    ]
}

proptest! {
    #[test]
    fn any_image_is_what_its_snapshot_loads(records in proptest::collection::vec(any_record(), 0..120)) {
        let mut replayed = MetadataImage::default();
        replayed.replay(&feature("metadata.version", 33)).unwrap();
        replayed.replay(&feature("eligible.leader.replicas.version", 1)).unwrap();
        let mut delta = MetadataDelta::new(replayed.clone());
        for record in &records {
            // Records about what is not there are refused by both alike and change nothing.
            let (a, b) = (replayed.replay(record), delta.replay(record));
            prop_assert_eq!(a, b);
        }
        prop_assert_eq!(delta.image(), &replayed);
        let options = replayed.write_options().unwrap();
        let mut loader = MetadataLoader::default();
        let mut snapshot = Vec::new();
        for value in replayed.write_encoded(options).unwrap() {
            snapshot.push(VersionedRecord::decode(value).unwrap());
        }
        let update = loader.load_snapshot(replayed.provenance, &snapshot).unwrap();
        prop_assert_eq!(update.image, replayed);
    }
}
