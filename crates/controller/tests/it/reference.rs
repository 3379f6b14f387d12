//! The same requests on Apache Kafka 4.4.0 and on us: the records are equal, byte for byte once random ids are.
//!
//! `data/reference-log.hex` is the metadata log of a freshly formatted node of the reference on which: a broker
//! registered and was unfenced; topic `a.b` was created with 3 partitions, `retention.ms` and `min.insync.replicas`;
//! topic `m` was created with assignments; `a.b` got 5 partitions, `cleanup.policy` and another
//! `min.insync.replicas`; `m` was deleted; the node was stopped. One record a line: offset, value. NoOpRecords are left out.

use std::collections::BTreeMap;

use bytes::Bytes;
use controller::{ControllerResult, QuorumController};
use metadata::record::MetadataRecord;
use metadata::{MetadataLoader, MetadataVersion, VersionedRecord};
use protocol::messages::broker_registration_request::{Feature, Listener};
use protocol::messages::create_partitions_request::CreatePartitionsTopic;
use protocol::messages::delete_topics_request::DeleteTopicState;
use protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use protocol::messages::{
    BrokerRegistrationRequest, ControllerRegistrationRequest, CreatePartitionsRequest, DeleteTopicsRequest,
    IncrementalAlterConfigsRequest, controller_registration_request,
};
use protocol::records::metadata::{RegisterBrokerRecord, RegisterControllerRecord};
use protocol::{ErrorCode, Uuid};

use crate::driver::{CLUSTER_ID, Driver, assigned, bootstrap, topic, with_configs};

fn reference() -> Vec<(i64, Bytes)> {
    records_of(include_str!("../data/reference-log.hex"))
}

/// Offsets and values of a log, one record a line.
pub fn records_of(hex: &str) -> Vec<(i64, Bytes)> {
    let unhex = |text: &str| -> Vec<u8> {
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
    };
    hex.lines()
        .map(|line| {
            let (offset, value) = line.split_once(' ').unwrap();
            (offset.parse().unwrap(), Bytes::from(unhex(value)))
        })
        .collect()
}

/// Compares a decision with the reference's next records, then replays the reference's records in its place.
struct Follower {
    driver: Driver,
    rest: std::vec::IntoIter<(i64, Bytes)>,
}

impl Follower {
    fn expect<T>(&mut self, result: ControllerResult<T>) {
        assert!(!result.records.is_empty());
        for ours in &result.records {
            let (offset, value) = self.rest.next().unwrap();
            let theirs = VersionedRecord::decode(value.clone()).unwrap();
            assert_eq!(theirs.encode().unwrap(), value, "what we read we write alike");
            let ours = with_ids_of(ours.clone(), &theirs);
            assert_eq!(ours, theirs, "at offset {offset}");
            assert_eq!(ours.encode().unwrap(), value, "at offset {offset}");
            self.driver.controller.replay_appended(offset, std::slice::from_ref(&theirs)).unwrap();
            self.driver.controller.handle_commit(offset, 1, &[theirs]).unwrap();
        }
        let _ = self.driver.controller.complete(self.driver.now, result);
    }

    fn controller(&mut self) -> &mut QuorumController {
        &mut self.driver.controller
    }
}

/// Our record with the topic id that the reference drew.
pub fn with_ids_of(mut ours: VersionedRecord, theirs: &VersionedRecord) -> VersionedRecord {
    match (&mut ours.record, &theirs.record) {
        (MetadataRecord::TopicRecord(a), MetadataRecord::TopicRecord(b)) => a.topic_id = b.topic_id,
        (MetadataRecord::PartitionRecord(a), MetadataRecord::PartitionRecord(b)) => a.topic_id = b.topic_id,
        _ => {}
    }
    ours
}

fn registrations(log: &[(i64, Bytes)]) -> (RegisterControllerRecord, RegisterBrokerRecord) {
    let decoded = log.iter().map(|(_, v)| VersionedRecord::decode(v.clone()).unwrap().record);
    let (mut controller, mut broker) = (None, None);
    for record in decoded {
        match record {
            MetadataRecord::RegisterControllerRecord(r) => controller = Some(r),
            MetadataRecord::RegisterBrokerRecord(r) => broker = Some(r),
            _ => {}
        }
    }
    (controller.unwrap(), broker.unwrap())
}

pub fn controller_registration(record: &RegisterControllerRecord) -> ControllerRegistrationRequest {
    ControllerRegistrationRequest {
        controller_id: record.controller_id,
        incarnation_id: record.incarnation_id,
        zk_migration_ready: false,
        listeners: record
            .end_points
            .iter()
            .map(|e| controller_registration_request::Listener {
                name: e.name.clone(),
                host: e.host.clone(),
                port: e.port,
                security_protocol: e.security_protocol,
            })
            .collect(),
        features: record
            .features
            .iter()
            .map(|f| controller_registration_request::Feature {
                name: f.name.clone(),
                min_supported_version: f.min_supported_version,
                max_supported_version: f.max_supported_version,
            })
            .collect(),
    }
}

pub fn broker_registration(record: &RegisterBrokerRecord) -> BrokerRegistrationRequest {
    BrokerRegistrationRequest {
        broker_id: record.broker_id,
        cluster_id: CLUSTER_ID.to_owned(),
        incarnation_id: record.incarnation_id,
        listeners: record
            .end_points
            .iter()
            .map(|e| Listener {
                name: e.name.clone(),
                host: e.host.clone(),
                port: e.port,
                security_protocol: e.security_protocol,
            })
            .collect(),
        features: record
            .features
            .iter()
            .map(|f| Feature {
                name: f.name.clone(),
                min_supported_version: f.min_supported_version,
                max_supported_version: f.max_supported_version,
            })
            .collect(),
        rack: record.rack.clone(),
        log_dirs: record.log_dirs.clone(),
        ..Default::default()
    }
}

fn set_config(name: &str, value: &str) -> IncrementalAlterConfigsRequest {
    IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: 2,
            resource_name: "a.b".to_owned(),
            configs: vec![AlterableConfig {
                name: name.to_owned(),
                config_operation: 0,
                value: Some(value.to_owned()),
            }],
        }],
        ..Default::default()
    }
}

#[test]
fn the_same_requests_give_the_records_of_the_reference() {
    let log = reference();
    let (controller_record, broker_record) = registrations(&log);
    let mut driver = Driver::new(&[], bootstrap(MetadataVersion::LATEST_PRODUCTION, &[]));
    driver.auto_commit = false;
    // The driver has activated a controller of its own; this one starts where the reference's log starts.
    let settings = driver.controller.settings().clone();
    driver.controller = QuorumController::new(settings, bootstrap(MetadataVersion::LATEST_PRODUCTION, &[]));
    driver.controller.set_kraft_version(1);
    let now = driver.now;
    let mut f = Follower { driver, rest: log.into_iter() };

    let activation = f.controller().become_active(now, 1, 3).unwrap();
    f.expect(activation);
    let request = controller_registration(&controller_record);
    let registered = f.controller().handle_controller_registration(now, &request);
    f.expect(registered);
    // A NoOpRecord stood at 13, so that the broker's epoch is 14.
    let noop = VersionedRecord::new(protocol::records::metadata::NoOpRecord::default(), 0);
    f.controller().replay_appended(13, &[noop]).unwrap();
    let context = f.driver.context(4);
    let request = broker_registration(&broker_record);
    let registered = f.controller().handle_broker_registration(now, &context, &request);
    assert_eq!(registered.response.broker_epoch, 14);
    f.expect(registered);
    let (want_fence, caught_up) = ((true, 14), (false, 16));
    for (fence, offset) in [want_fence, caught_up] {
        let request = protocol::messages::BrokerHeartbeatRequest {
            broker_id: 1,
            broker_epoch: 14,
            current_metadata_offset: offset,
            want_fence: fence,
            cordoned_log_dirs: Some(Vec::new()),
            ..Default::default()
        };
        let beat = f.controller().handle_broker_heartbeat(now, &request);
        f.expect(beat);
    }
    topics_and_configs(&mut f);
    shutdown(&mut f);
    assert_eq!(f.rest.next(), None, "all of the reference's records were compared");
}

/// The broker asks to stop, and asks again when it has read that it may not lead any more.
fn shutdown(f: &mut Follower) {
    let now = f.driver.now;
    while f.rest.len() > 0 {
        let request = protocol::messages::BrokerHeartbeatRequest {
            broker_id: 1,
            broker_epoch: 14,
            current_metadata_offset: f.controller().next_write_offset() - 1,
            want_shut_down: true,
            cordoned_log_dirs: Some(Vec::new()),
            ..Default::default()
        };
        let beat = f.controller().handle_broker_heartbeat(now, &request);
        f.expect(beat);
    }
}

fn topics_and_configs(f: &mut Follower) {
    let now = f.driver.now;
    let configs = [("retention.ms", Some("1000")), ("min.insync.replicas", Some("1"))];
    for topic in [with_configs(topic("a.b", 3, 1), &configs), assigned("m", &[&[1], &[1]])] {
        let context = f.driver.context(7);
        let request = protocol::messages::CreateTopicsRequest { topics: vec![topic], ..Default::default() };
        let created = f.controller().handle_create_topics(now, &context, &request);
        assert_eq!(ErrorCode(created.response.topics[0].error_code), ErrorCode::NONE);
        f.expect(created);
    }
    let context = f.driver.context(3);
    let added = CreatePartitionsTopic { name: "a.b".to_owned(), count: 5, assignments: None };
    let request = CreatePartitionsRequest { topics: vec![added], ..Default::default() };
    let created = f.controller().handle_create_partitions(now, &context, &request);
    f.expect(created);
    for (name, value) in [("cleanup.policy", "compact"), ("min.insync.replicas", "2")] {
        let request = set_config(name, value);
        let altered = f.controller().handle_incremental_alter_configs(now, &context, &request);
        f.expect(altered);
    }
    let context = f.driver.context(6);
    let state = DeleteTopicState { name: Some("m".to_owned()), topic_id: Uuid::ZERO };
    let request = DeleteTopicsRequest { topics: vec![state], ..Default::default() };
    let deleted = f.controller().handle_delete_topics(now, &context, &request);
    f.expect(deleted);
}

#[test]
fn the_log_of_the_reference_loads_and_its_snapshot_loads_alike() {
    let mut loader = MetadataLoader::default();
    let mut kinds = BTreeMap::new();
    for (offset, value) in reference() {
        let record = VersionedRecord::decode(value).unwrap();
        *kinds.entry(record.record.name()).or_insert(0) += 1;
        let updates = loader.load_batch(offset, 1, 0, std::slice::from_ref(&record)).unwrap();
        assert!(updates.is_empty() || offset == 3);
        loader.flush();
    }
    assert_eq!(kinds.get("PartitionRecord"), Some(&7));
    let image = loader.image().clone();
    assert_eq!(image.features.metadata_version, Some(MetadataVersion::LATEST_PRODUCTION));
    assert_eq!(image.topics.topic_by_name("a.b").unwrap().partitions.len(), 5);
    assert!(image.topics.topic_by_name("m").is_none());
    let records = image.write(image.write_options().unwrap()).unwrap();
    let mut other = MetadataLoader::default();
    let update = other.load_snapshot(image.provenance, &records).unwrap();
    assert_eq!(update.image, image);
}
