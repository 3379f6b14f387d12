//! A history of three brokers on Apache Kafka 4.4.0, decided again by us record by record.
//!
//! `data/reference-cluster-log.hex` is the metadata log of a cluster with `min.insync.replicas=2` and racks: topics
//! `x` (three replicas), `y` (two, `min.insync.replicas=1`) and `z` (one, unclean election allowed) are created;
//! brokers 3 and then 2 are killed, fenced, and come back after unclean stops; partitions are reassigned and led by
//! their preferred replicas again; all brokers stop. What a client or broker asked is inferred from each record;
//! our decision must then be that record, or the same set where one request changed many partitions.

use std::time::Duration;

use bytes::Bytes;
use controller::{ControllerResult, ControllerSettings, QuorumController};
use metadata::record::MetadataRecord;
use metadata::{MetadataVersion, PartitionRegistration, VersionedRecord};
use protocol::Uuid;
use protocol::messages::alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
use protocol::messages::alter_partition_request::{BrokerState, PartitionData, TopicData};
use protocol::messages::create_topics_request::CreatableTopic;
use protocol::messages::elect_leaders_request::TopicPartitions;
use protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionRequest, AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest, CreateTopicsRequest, ElectLeadersRequest, assign_replicas_to_dirs_request,
};
use protocol::records::metadata::{BrokerRegistrationChangeRecord, PartitionChangeRecord};
use record::Time;

use crate::driver::{CLUSTER_ID, assigned, bootstrap, server, with_configs};
use crate::reference::{broker_registration, controller_registration, records_of, with_ids_of};

struct History {
    controller: QuorumController,
    log: Vec<(i64, Bytes)>,
    position: usize,
    now: Time,
    seed: u64,
    compared: usize,
}

impl History {
    fn record(&self, ahead: usize) -> Option<MetadataRecord> {
        let (_, value) = self.log.get(self.position + ahead)?;
        Some(VersionedRecord::decode(value.clone()).unwrap().record)
    }

    fn context(&mut self) -> controller::RequestContext<'static> {
        self.seed += 1;
        controller::RequestContext::allow_all(3, [self.seed, 1, 1, 1])
    }

    /// The reference's next records are this decision; they are replayed in its place.
    fn expect<T>(&mut self, result: ControllerResult<T>) {
        let count = result.records.len();
        let at = self.log[self.position].0;
        assert!(count > 0, "nothing was decided at {at}: {:?}", self.record(0));
        let mut theirs: Vec<Bytes> =
            self.log[self.position..].iter().take(count).map(|(_, value)| value.clone()).collect();
        let decoded: Vec<_> =
            theirs.iter().map(|value| VersionedRecord::decode(value.clone()).unwrap()).collect();
        let mut ours: Vec<Bytes> = result
            .records
            .iter()
            .zip(&decoded)
            .map(|(o, t)| with_ids_of(o.clone(), t).encode().unwrap())
            .collect();
        // The reference walks partitions in the order of a hash table.
        theirs.sort();
        ours.sort();
        assert_eq!(ours, theirs, "at {at}: ours {:?}\ntheirs {decoded:?}", result.records);
        self.compared += count;
        self.replay(count);
        let _ = self.controller.complete(self.now, result);
    }

    fn replay(&mut self, count: usize) {
        for (offset, value) in self.log[self.position..].iter().take(count) {
            let record = VersionedRecord::decode(value.clone()).unwrap();
            self.controller.replay_appended(*offset, std::slice::from_ref(&record)).unwrap();
            self.controller.handle_commit(*offset, 1, &[record]).unwrap();
        }
        self.position += count;
    }

    fn heartbeat(
        &mut self,
        broker_id: i32,
        change: impl FnOnce(&mut BrokerHeartbeatRequest),
    ) -> ControllerResult<protocol::messages::BrokerHeartbeatResponse> {
        let mut request = BrokerHeartbeatRequest {
            broker_id,
            broker_epoch: self.controller.image().cluster.broker_epoch(broker_id),
            current_metadata_offset: self.controller.next_write_offset() - 1,
            cordoned_log_dirs: None,
            ..Default::default()
        };
        change(&mut request);
        self.controller.handle_broker_heartbeat(self.now, &request)
    }

    fn partition(&self, record: &PartitionChangeRecord) -> PartitionRegistration {
        let topics = &self.controller.image().topics;
        PartitionRegistration::clone(topics.partition(&record.topic_id, record.partition_id).unwrap())
    }

    fn topic_name(&self, id: &Uuid) -> String {
        self.controller.image().topics.topic(id).unwrap().name.to_string()
    }

    fn step(&mut self) {
        match self.record(0).unwrap() {
            MetadataRecord::RegisterBrokerRecord(_) => self.register(0),
            MetadataRecord::RegisterControllerRecord(r) => {
                let request = controller_registration(&r);
                let result = self.controller.handle_controller_registration(self.now, &request);
                self.expect(result);
            }
            MetadataRecord::TopicRecord(_) => self.create_topic(),
            MetadataRecord::BrokerRegistrationChangeRecord(r) => self.registration_change(&r),
            MetadataRecord::PartitionChangeRecord(r) => self.partition_change(&r),
            other => panic!("unexpected {other:?}"),
        }
    }

    fn register(&mut self, ahead: usize) {
        let Some(MetadataRecord::RegisterBrokerRecord(r)) = self.record(ahead) else { unreachable!() };
        let known = self.controller.image().cluster.broker(r.broker_id);
        if known.is_some_and(|b| b.incarnation_id != r.incarnation_id) {
            self.now.monotonic += Duration::from_secs(10);
        }
        let request = broker_registration(&r);
        let mut context = self.context();
        context.api_version = 4;
        let result = self.controller.handle_broker_registration(self.now, &context, &request);
        assert_eq!(result.response.error_code, 0);
        self.expect(result);
    }

    fn create_topic(&mut self) {
        let MetadataRecord::TopicRecord(topic) = self.record(0).unwrap() else { unreachable!() };
        let (mut assignments, mut configs) = (Vec::new(), Vec::new());
        for ahead in 1.. {
            match self.record(ahead) {
                Some(MetadataRecord::PartitionRecord(p)) => assignments.push(p.replicas),
                Some(MetadataRecord::ConfigRecord(c)) => configs.push((c.name, c.value)),
                Some(MetadataRecord::ClearElrRecord(_)) => {}
                _ => break,
            }
        }
        let lists: Vec<&[i32]> = assignments.iter().map(Vec::as_slice).collect();
        let configs: Vec<_> = configs.iter().map(|(k, v)| (k.as_str(), v.as_deref())).collect();
        let creatable: CreatableTopic = with_configs(assigned(&topic.name, &lists), &configs);
        let request = CreateTopicsRequest { topics: vec![creatable], ..Default::default() };
        let context = self.context();
        let result = self.controller.handle_create_topics(self.now, &context, &request);
        self.expect(result);
    }

    fn registration_change(&mut self, r: &BrokerRegistrationChangeRecord) {
        let broker = self.controller.image().cluster.broker(r.broker_id).unwrap().clone();
        if r.fenced == 1 && broker.fenced {
            // A session of a fenced broker ran out: it is fenced again.
            self.replay(1);
            return;
        }
        let result = if r.in_controlled_shutdown == 1 {
            self.heartbeat(r.broker_id, |h| h.want_shut_down = true)
        } else if r.fenced == -1 {
            self.heartbeat(r.broker_id, |_| {})
        } else if r.fenced == 1 {
            self.fence(r.broker_id)
        } else {
            let cordoned = r.cordoned_log_dirs.clone();
            self.heartbeat(r.broker_id, |h| {
                h.want_fence = broker.fenced;
                h.cordoned_log_dirs = cordoned;
            })
        };
        self.expect(result);
    }

    /// A broker goes: because it has nothing left to lead when it stops, or because it is silent.
    fn fence(&mut self, broker_id: i32) -> ControllerResult<protocol::messages::BrokerHeartbeatResponse> {
        let brokers: Vec<_> = self.controller.image().cluster.brokers.values().cloned().collect();
        let stopping = brokers.iter().any(|b| b.id == broker_id && b.in_controlled_shutdown);
        if !stopping {
            return self.heartbeat(broker_id, |h| h.want_fence = true);
        }
        for other in brokers.iter().filter(|b| b.id != broker_id && b.is_active()) {
            let read = self.heartbeat(other.id, |_| {});
            assert!(read.records.is_empty());
        }
        self.heartbeat(broker_id, |h| h.want_shut_down = true)
    }

    fn partition_change(&mut self, r: &PartitionChangeRecord) {
        let before = self.partition(r);
        let only_directories = PartitionChangeRecord {
            topic_id: r.topic_id,
            partition_id: r.partition_id,
            directories: r.directories.clone(),
            ..Default::default()
        };
        if r.directories.is_some() && *r == only_directories {
            self.assign_directory(r, &before);
        } else if r.replicas.is_some() && r.isr.is_none() || self.is_immediate_reassignment(r, &before) {
            self.reassign(r);
        } else if let Some(end) = self.end_of_broker_change(r, &before) {
            match self.record(end).unwrap() {
                MetadataRecord::RegisterBrokerRecord(_) => self.register(end),
                MetadataRecord::BrokerRegistrationChangeRecord(change) => {
                    let result = self.fence(change.broker_id);
                    self.expect(result);
                }
                other => panic!("unexpected {other:?}"),
            }
        } else if r.isr.is_some() {
            self.alter_isr(r, &before);
        } else {
            self.elect_preferred(r);
        }
    }

    fn is_immediate_reassignment(&self, r: &PartitionChangeRecord, before: &PartitionRegistration) -> bool {
        r.replicas.is_some() && !before.is_reassigning()
    }

    /// Where the fencing or registration stands that this change belongs to, if it does.
    fn end_of_broker_change(
        &self,
        r: &PartitionChangeRecord,
        before: &PartitionRegistration,
    ) -> Option<usize> {
        let lost = |members: &[i32], after: &Option<Vec<i32>>, broker: i32| {
            members.contains(&broker) && after.as_ref().is_some_and(|list| !list.contains(&broker))
        };
        for ahead in 1.. {
            match self.record(ahead)? {
                MetadataRecord::PartitionChangeRecord(_) => {}
                MetadataRecord::RegisterBrokerRecord(b) => {
                    return lost(&before.elr, &r.eligible_leader_replicas, b.broker_id).then_some(ahead);
                }
                MetadataRecord::BrokerRegistrationChangeRecord(b) if b.fenced == 1 => {
                    return lost(&before.isr, &r.isr, b.broker_id).then_some(ahead);
                }
                _ => return None,
            }
        }
        None
    }

    fn assign_directory(&mut self, r: &PartitionChangeRecord, before: &PartitionRegistration) {
        let after = r.directories.clone().unwrap();
        let changed = before.directories.iter().zip(&after).position(|(a, b)| a != b).unwrap();
        let broker_id = before.replicas[changed];
        let request = AssignReplicasToDirsRequest {
            broker_id,
            broker_epoch: self.controller.image().cluster.broker_epoch(broker_id),
            directories: vec![assign_replicas_to_dirs_request::DirectoryData {
                id: after[changed],
                topics: vec![assign_replicas_to_dirs_request::TopicData {
                    topic_id: r.topic_id,
                    partitions: vec![assign_replicas_to_dirs_request::PartitionData {
                        partition_index: r.partition_id,
                    }],
                }],
            }],
        };
        let result = self.controller.handle_assign_replicas_to_dirs(self.now, &request);
        self.expect(result);
    }

    fn reassign(&mut self, r: &PartitionChangeRecord) {
        let removing = r.removing_replicas.clone().unwrap_or_default();
        let target = r.replicas.iter().flatten().copied().filter(|b| !removing.contains(b)).collect();
        let partition = ReassignablePartition { partition_index: r.partition_id, replicas: Some(target) };
        let request = AlterPartitionReassignmentsRequest {
            allow_replication_factor_change: true,
            topics: vec![ReassignableTopic {
                name: self.topic_name(&r.topic_id),
                partitions: vec![partition],
            }],
            ..Default::default()
        };
        let result = self.controller.handle_alter_partition_reassignments(self.now, &request);
        self.expect(result);
    }

    fn alter_isr(&mut self, r: &PartitionChangeRecord, before: &PartitionRegistration) {
        let mut isr = r.isr.clone().unwrap();
        if before.is_reassigning() {
            isr = before.isr.iter().chain(&before.adding_replicas).copied().collect();
            isr.sort_unstable();
        }
        let state = match r.leader_recovery_state {
            -1 => before.leader_recovery_state.value(),
            state => state,
        };
        let cluster = &self.controller.image().cluster;
        let member = |b: &i32| BrokerState { broker_id: *b, broker_epoch: cluster.broker_epoch(*b) };
        let request = AlterPartitionRequest {
            broker_id: before.leader,
            broker_epoch: cluster.broker_epoch(before.leader),
            topics: vec![TopicData {
                topic_id: r.topic_id,
                partitions: vec![PartitionData {
                    partition_index: r.partition_id,
                    leader_epoch: before.leader_epoch,
                    new_isr_with_epochs: isr.iter().map(member).collect(),
                    leader_recovery_state: state,
                    partition_epoch: before.partition_epoch,
                    ..Default::default()
                }],
            }],
        };
        let context = self.context();
        let result = self.controller.handle_alter_partition(self.now, &context, &request);
        self.expect(result);
    }

    fn elect_preferred(&mut self, r: &PartitionChangeRecord) {
        let topic = TopicPartitions { topic: self.topic_name(&r.topic_id), partitions: vec![r.partition_id] };
        let request = ElectLeadersRequest {
            election_type: 0,
            topic_partitions: Some(vec![topic]),
            ..Default::default()
        };
        let result = self.controller.handle_elect_leaders(self.now, &request);
        self.expect(result);
    }
}

#[test]
fn three_brokers_through_failures_and_reassignments_as_on_the_reference() {
    let boot = bootstrap(MetadataVersion::LATEST_PRODUCTION, &[]);
    let server = server(&[("min.insync.replicas", "2")]);
    let mut controller = QuorumController::new(ControllerSettings::new(CLUSTER_ID, server, vec![1]), boot);
    controller.set_kraft_version(1);
    let log = records_of(include_str!("../data/reference-cluster-log.hex"));
    let now = Time { monotonic: Duration::from_secs(100), wall_ms: 0 };
    let first = log[0].0;
    let total = log.len();
    let mut history = History { controller, log, position: 0, now, seed: 0, compared: 0 };
    let activation = history.controller.become_active(now, 1, first).unwrap();
    history.expect(activation);
    while history.position < total {
        history.step();
    }
    assert!(history.compared >= total - 8, "only {} of {total} records were compared", history.compared);
}
