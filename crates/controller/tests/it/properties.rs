//! Random histories: the replayed log, its deltas and its snapshot are the same metadata; what is not committed is
//! forgotten on resignation; a controller rebuilt from a snapshot decides the same.

use controller::QuorumController;
use metadata::record::MetadataRecord;
use metadata::{MetadataImage, MetadataLoader, MetadataProvenance, MetadataVersion, VersionedRecord};
use proptest::prelude::*;
use protocol::messages::alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
use protocol::messages::{
    AllocateProducerIdsRequest, AlterPartitionReassignmentsRequest, DeleteTopicsRequest, ElectLeadersRequest,
    IncrementalAlterConfigsRequest, UnregisterBrokerRequest, incremental_alter_configs_request,
};

use crate::driver::{Driver, bootstrap, server, topic};

const BROKERS: i32 = 4;

#[derive(Debug, Clone)]
enum Op {
    Register(i32, u8),
    Beat(i32, bool, bool),
    Unregister(i32),
    Create(u8, i32, i16),
    Delete(u8),
    Config(u8, u8),
    Reassign(u8, Vec<i32>),
    Elect,
    ProducerIds(i32),
    Wait(u16),
}

fn op() -> impl Strategy<Value = Op> {
    let broker = || 1..=BROKERS;
    prop_oneof![
        3 => (broker(), 1u8..4).prop_map(|(b, i)| Op::Register(b, i)),
        8 => (broker(), prop::bool::weighted(0.2), prop::bool::weighted(0.1)).prop_map(|(b, f, s)| Op::Beat(b, f, s)),
        1 => broker().prop_map(Op::Unregister),
        3 => (0u8..6, 1i32..4, 1i16..4).prop_map(|(t, n, r)| Op::Create(t, n, r)),
        1 => (0u8..6).prop_map(Op::Delete),
        1 => (0u8..6, any::<u8>()).prop_map(|(t, v)| Op::Config(t, v)),
        2 => (0u8..6, proptest::sample::subsequence(vec![1, 2, 3, 4], 1..4)).prop_map(|(t, r)| Op::Reassign(t, r)),
        1 => Just(Op::Elect),
        1 => broker().prop_map(Op::ProducerIds),
        2 => (0u16..12_000).prop_map(Op::Wait),
    ]
}

fn name(n: u8) -> String {
    ["a.b", "a_b", "c", "d.e_f", "g", "h"][usize::from(n)].to_owned()
}

fn run(d: &mut Driver, op: &Op) {
    match op {
        Op::Register(broker, incarnation) => {
            d.register(&Driver::registration(*broker, *incarnation));
        }
        Op::Beat(broker, fence, shut_down) => {
            d.heartbeat(*broker, |r| (r.want_fence, r.want_shut_down) = (*fence, *shut_down));
        }
        Op::Unregister(broker_id) => {
            let request = UnregisterBrokerRequest { broker_id: *broker_id };
            let result = d.controller.handle_unregister_broker(d.now, &request);
            d.submit(result);
        }
        Op::Create(t, partitions, factor) => {
            d.create(vec![topic(&name(*t), *partitions, *factor)]);
        }
        Op::Delete(t) => {
            let request = DeleteTopicsRequest { topic_names: vec![name(*t)], ..Default::default() };
            let context = d.context(5);
            let result = d.controller.handle_delete_topics(d.now, &context, &request);
            d.submit(result);
        }
        Op::Config(t, value) => alter_config(d, &name(*t), *value),
        Op::Reassign(t, replicas) => {
            let partition = ReassignablePartition { partition_index: 0, replicas: Some(replicas.clone()) };
            let request = AlterPartitionReassignmentsRequest {
                allow_replication_factor_change: true,
                topics: vec![ReassignableTopic { name: name(*t), partitions: vec![partition] }],
                ..Default::default()
            };
            let result = d.controller.handle_alter_partition_reassignments(d.now, &request);
            d.submit(result);
        }
        Op::Elect => {
            let request = ElectLeadersRequest { topic_partitions: None, ..Default::default() };
            let result = d.controller.handle_elect_leaders(d.now, &request);
            d.submit(result);
        }
        Op::ProducerIds(broker) => {
            let request = AllocateProducerIdsRequest { broker_id: *broker, broker_epoch: d.epoch(*broker) };
            let result = d.controller.handle_allocate_producer_ids(d.now, &request);
            d.submit(result);
        }
        Op::Wait(ms) => {
            d.advance(u64::from(*ms));
            d.tick();
        }
    }
}

fn alter_config(d: &mut Driver, topic: &str, value: u8) {
    let config = |name: &str, value: String| incremental_alter_configs_request::AlterableConfig {
        name: name.to_owned(),
        config_operation: i8::from(value == "0"),
        value: Some(value),
    };
    let request = IncrementalAlterConfigsRequest {
        resources: vec![incremental_alter_configs_request::AlterConfigsResource {
            resource_type: 2,
            resource_name: topic.to_owned(),
            configs: vec![
                config("min.insync.replicas", (value % 3).to_string()),
                config("unclean.leader.election.enable", value.is_multiple_of(2).to_string()),
            ],
        }],
        ..Default::default()
    };
    let context = d.context(1);
    let result = d.controller.handle_incremental_alter_configs(d.now, &context, &request);
    d.submit(result);
}

fn without_provenance(image: &MetadataImage) -> MetadataImage {
    MetadataImage { provenance: MetadataProvenance::default(), ..image.clone() }
}

fn assert_partitions_are_sound(image: &MetadataImage) {
    for topic in image.topics.iter() {
        for (number, p) in &topic.partitions {
            let at = format!("{}-{number}: {p:?}", topic.name);
            assert_eq!(p.replicas.len(), p.directories.len(), "{at}");
            assert!(p.isr.iter().all(|b| p.replicas.contains(b)), "{at}");
            assert!(p.isr.iter().all(|b| !p.elr.contains(b)), "ISR and ELR overlap: {at}");
            assert!(p.leader == -1 || p.isr.contains(&p.leader), "the leader is not in sync: {at}");
            let alive = image.cluster.broker(p.leader).is_some_and(|b| !b.fenced);
            assert!(p.leader == -1 || alive, "a dead leader: {at}");
        }
    }
}

/// A controller that knows the same from a snapshot, active at the same place.
fn rebuilt(d: &Driver, snapshot: &[VersionedRecord]) -> QuorumController {
    let settings = d.controller.settings().clone();
    let mut other = QuorumController::new(settings, bootstrap(MetadataVersion::LATEST_PRODUCTION, &[]));
    other.load_snapshot(d.log.len() as i64 - 1, 1, snapshot).unwrap();
    let result = other.become_active(d.now, 2, d.log.len() as i64).unwrap();
    assert!(result.records.is_empty());
    let _ = other.complete(d.now, result);
    other
}

fn decisions(c: &mut QuorumController, d: &Driver) -> Vec<Vec<VersionedRecord>> {
    let mut all = Vec::new();
    for broker_id in 1..=BROKERS {
        let request = UnregisterBrokerRequest { broker_id };
        all.push(c.handle_unregister_broker(d.now, &request).records);
        let request = AllocateProducerIdsRequest { broker_id, broker_epoch: d.epoch(broker_id) };
        all.push(c.handle_allocate_producer_ids(d.now, &request).records);
    }
    for election_type in [0, 1] {
        let request = ElectLeadersRequest { election_type, topic_partitions: None, ..Default::default() };
        all.push(c.handle_elect_leaders(d.now, &request).records);
    }
    let all_reassignments =
        protocol::messages::ListPartitionReassignmentsRequest { topics: None, ..Default::default() };
    let listed = c.handle_list_partition_reassignments(&all_reassignments).topics.len();
    all.push(vec![VersionedRecord::new(protocol::records::metadata::NoOpRecord::default(), 0); listed]);
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn replay_deltas_and_snapshots_agree(ops in proptest::collection::vec(op(), 1..120)) {
        let mut d = Driver::new(&[], bootstrap(MetadataVersion::LATEST_PRODUCTION, &[]));
        for broker in 1..=3 {
            d.register_and_unfence(broker);
        }
        let mut loader = MetadataLoader::default();
        let mut loaded = 0;
        for op in &ops {
            run(&mut d, op);
            let updates = loader.load_batch(loaded as i64, 1, 0, &d.log[loaded..]).unwrap();
            loaded = d.log.len();
            for update in updates.into_iter().chain(loader.flush()) {
                prop_assert_eq!(&update.delta.apply(update.image.provenance), &update.image);
            }
            assert_partitions_are_sound(d.controller.image());
        }
        let image = without_provenance(d.controller.image());
        prop_assert_eq!(&without_provenance(loader.image()), &image);
        let snapshot = image.write(image.write_options().unwrap()).unwrap();
        let mut from_snapshot = MetadataLoader::default();
        let update = from_snapshot.load_snapshot(loader.image().provenance, &snapshot).unwrap();
        prop_assert_eq!(&without_provenance(&update.image), &image);
        let mut standby = QuorumController::new(
            d.controller.settings().clone(),
            bootstrap(MetadataVersion::LATEST_PRODUCTION, &[]),
        );
        standby.handle_commit(0, 1, &d.log).unwrap();
        prop_assert_eq!(&without_provenance(standby.image()), &image);
        let mut other = rebuilt(&d, &snapshot);
        let mut own = d.controller.clone();
        prop_assert_eq!(decisions(&mut own, &d), decisions(&mut other, &d));
    }

    #[test]
    fn what_is_not_committed_is_forgotten_on_resignation(
        committed in proptest::collection::vec(op(), 1..40),
        uncommitted in proptest::collection::vec(op(), 1..40),
    ) {
        let mut d = Driver::new(&[], bootstrap(MetadataVersion::LATEST_PRODUCTION, &[]));
        for broker in 1..=3 {
            d.register_and_unfence(broker);
        }
        committed.iter().for_each(|op| run(&mut d, op));
        let before = d.controller.image().clone();
        let stable = d.controller.last_stable_offset();
        d.auto_commit = false;
        uncommitted.iter().for_each(|op| run(&mut d, op));
        prop_assert_eq!(d.controller.stable_image(), &before);
        prop_assert_eq!(d.controller.last_stable_offset(), stable);
        d.controller.resign().unwrap();
        prop_assert_eq!(d.controller.image(), &before);
        // The next leader wrote something else there.
        let record = VersionedRecord::new(protocol::records::metadata::NoOpRecord::default(), 0);
        d.controller.handle_commit(stable + 1, 2, &[record]).unwrap();
        prop_assert_eq!(d.controller.image(), &before);
        prop_assert_eq!(d.controller.last_stable_offset(), stable + 1);
    }
}

#[test]
fn a_bootstrap_transaction_that_was_cut_off_is_aborted_and_written_again() {
    let boot = bootstrap(MetadataVersion::LATEST_PRODUCTION, &[]);
    let settings = controller::ControllerSettings::new("c", server(&[]), vec![1]);
    let mut c = QuorumController::new(settings, boot.clone());
    let now = record::Time::ZERO;
    let whole = c.become_active(now, 1, 0).unwrap();
    assert_eq!(whole.records.first().map(|r| r.record.name()), Some("BeginTransactionRecord"));
    // Only the first three records were committed before the node lost its leadership.
    c.replay_appended(0, &whole.records[..3]).unwrap();
    c.handle_commit(0, 1, &whole.records[..3]).unwrap();
    assert_eq!(c.last_stable_offset(), -1, "an open transaction is not stable");
    c.resign().unwrap();
    let again = c.become_active(now, 2, 3).unwrap();
    let kinds: Vec<_> = again.records.iter().map(|r| r.record.name()).collect();
    assert_eq!(&kinds[..2], ["AbortTransactionRecord", "BeginTransactionRecord"]);
    assert!(matches!(again.records.last().map(|r| &r.record), Some(MetadataRecord::EndTransactionRecord(_))));
    c.replay_appended(3, &again.records).unwrap();
    c.handle_commit(3, 2, &again.records).unwrap();
    assert_eq!(c.image().features.metadata_version, Some(MetadataVersion::LATEST_PRODUCTION));
    assert_eq!(c.last_stable_offset(), 3 + again.records.len() as i64 - 1);
}

proptest! {
    #[test]
    fn garbled_logs_are_refused_or_replayed_but_never_panic(
        flips in proptest::collection::vec((any::<usize>(), any::<usize>(), any::<u8>()), 1..20),
        cluster in any::<bool>(),
    ) {
        let hex = if cluster {
            include_str!("../data/reference-cluster-log.hex")
        } else {
            include_str!("../data/reference-log.hex")
        };
        let mut log: Vec<Vec<u8>> =
            crate::reference::records_of(hex).into_iter().map(|(_, v)| v.to_vec()).collect();
        for (record, byte, xor) in flips {
            let count = log.len();
            let value = &mut log[record % count];
            let length = value.len();
            value[byte % length] ^= xor;
        }
        let settings = controller::ControllerSettings::new("c", server(&[]), vec![1]);
        let mut c = QuorumController::new(settings, bootstrap(MetadataVersion::LATEST_PRODUCTION, &[]));
        let mut loader = MetadataLoader::default();
        for (offset, value) in (0..).zip(log) {
            let Ok(record) = VersionedRecord::decode(value.into()) else { continue };
            let _ = c.handle_commit(offset, 1, std::slice::from_ref(&record));
            let _ = loader.load_batch(offset, 1, 0, std::slice::from_ref(&record));
            loader.flush();
        }
        if let Some(options) = loader.image().write_options() {
            let _ = loader.image().write_encoded(options);
        }
        if let Ok(result) = c.become_active(record::Time::ZERO, 2, 10_000) {
            let _ = c.complete(record::Time::ZERO, result);
        }
    }
}
