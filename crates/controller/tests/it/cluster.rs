//! Brokers: registration, sessions, fencing, shutdown, and what each does to partitions.

use metadata::LeaderRecoveryState;
use metadata::MetadataVersion;
use metadata::partition::NO_LEADER;
use metadata::record::MetadataRecord;
use protocol::messages::alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
use protocol::messages::alter_partition_request::{BrokerState, PartitionData, TopicData};
use protocol::messages::elect_leaders_request::TopicPartitions;
use protocol::messages::{
    AllocateProducerIdsRequest, AlterPartitionReassignmentsRequest, AlterPartitionRequest,
    AssignReplicasToDirsRequest, BrokerRegistrationRequest, ElectLeadersRequest,
    ListPartitionReassignmentsRequest, UnregisterBrokerRequest, UpdateFeaturesRequest,
    assign_replicas_to_dirs_request,
};
use protocol::{ErrorCode, Uuid};

use crate::driver::{Driver, bootstrap, dir, names, topic, with_configs};

const SESSION_MS: u64 = 9_000;

#[test]
fn registrations_that_cannot_be_are_refused() {
    let mut d = Driver::with_brokers(1);
    let check = |d: &mut Driver, code: ErrorCode, change: &dyn Fn(&mut BrokerRegistrationRequest)| {
        let mut request = Driver::registration(2, 1);
        change(&mut request);
        let (error, epoch, records) = d.register(&request);
        assert_eq!((ErrorCode(error), epoch, records.len()), (code, -1, 0));
    };
    check(&mut d, ErrorCode::INCONSISTENT_CLUSTER_ID, &|r| r.cluster_id = "other".to_owned());
    check(&mut d, ErrorCode::BROKER_ID_NOT_REGISTERED, &|r| r.is_migrating_zk_broker = true);
    check(&mut d, ErrorCode::INVALID_REGISTRATION, &|r| r.log_dirs.clear());
    check(&mut d, ErrorCode::INVALID_REGISTRATION, &|r| r.log_dirs = vec![Uuid::METADATA_TOPIC_ID]);
    check(&mut d, ErrorCode::INVALID_REGISTRATION, &|r| r.log_dirs = vec![dir(2, 1); 2]);
    check(&mut d, ErrorCode::INVALID_REGISTRATION, &|r| r.log_dirs = vec![dir(1, 1)]);
    check(&mut d, ErrorCode::INVALID_REGISTRATION, &|r| r.features.retain(|f| f.name != "metadata.version"));
    check(&mut d, ErrorCode::UNSUPPORTED_VERSION, &|r| r.features.retain(|f| f.name != "group.version"));
    check(&mut d, ErrorCode::UNSUPPORTED_VERSION, &|r| {
        r.features
            .iter_mut()
            .filter(|f| f.name == "metadata.version")
            .for_each(|f| f.max_supported_version = 20);
    });
    check(&mut d, ErrorCode::UNKNOWN_SERVER_ERROR, &|r| r.listeners[0].port = 0);
    check(&mut d, ErrorCode::UNKNOWN_SERVER_ERROR, &|r| r.listeners[0].security_protocol = 9);
}

#[test]
fn another_incarnation_must_wait_until_the_session_of_the_first_is_over() {
    let mut d = Driver::with_brokers(1);
    let second = Driver::registration(1, 2);
    assert_eq!(ErrorCode(d.register(&second).0), ErrorCode::DUPLICATE_BROKER_REGISTRATION);
    let (error, epoch, _) = d.register(&Driver::registration(1, 1));
    assert_eq!((error, epoch), (0, d.epoch(1)), "the same incarnation keeps its epoch");
    assert!(!d.controller.image().cluster.broker(1).unwrap().fenced);
    d.advance(SESSION_MS + 1);
    let next = d.log.len() as i64;
    let (error, epoch, _) = d.register(&second);
    assert_eq!((error, epoch), (0, next), "the epoch is the offset of the record");
    assert!(d.controller.image().cluster.broker(1).unwrap().fenced);
}

#[test]
fn heartbeats_of_strangers_and_of_old_epochs_are_stale() {
    let mut d = Driver::with_brokers(1);
    let (response, records) = d.heartbeat(9, |r| r.broker_epoch = 3);
    assert_eq!((ErrorCode(response.error_code), records.len()), (ErrorCode::STALE_BROKER_EPOCH, 0));
    let (response, _) = d.heartbeat(1, |r| r.broker_epoch -= 1);
    assert_eq!(ErrorCode(response.error_code), ErrorCode::STALE_BROKER_EPOCH);
}

#[test]
fn a_broker_is_unfenced_when_it_has_read_its_registration() {
    let mut d = Driver::with_brokers(0);
    d.register(&Driver::registration(1, 1));
    let (response, _) = d.heartbeat(1, |r| r.current_metadata_offset = r.broker_epoch - 1);
    assert!(response.is_fenced && !response.is_caught_up);
    let (response, _) = d.heartbeat(1, |r| r.want_fence = true);
    assert!(response.is_fenced && response.is_caught_up);
    let (response, records) = d.heartbeat(1, |_| {});
    assert!(!response.is_fenced);
    assert_eq!(names(&records), ["BrokerRegistrationChangeRecord"]);
}

#[test]
fn a_silent_broker_is_fenced_and_its_leaderships_move() {
    let mut d = Driver::with_brokers(3);
    let id = d.create_assigned("t", &[&[1, 2, 3]]);
    for _ in 0..4 {
        d.advance(3_000);
        d.heartbeat(2, |_| {});
        d.heartbeat(3, |_| {});
        d.tick();
    }
    let p = d.partition(&id, 0);
    assert_eq!((p.leader, p.isr, p.leader_epoch), (2, vec![2, 3], 1));
    assert!(d.controller.image().cluster.broker(1).unwrap().fenced);
    assert_eq!(p.elr, Vec::<i32>::new(), "two replicas are enough for min.insync.replicas");
}

#[test]
fn the_last_replica_stays_eligible_and_leads_again_when_it_is_back() {
    let mut d = Driver::with_brokers(2);
    let id = d.create_assigned("t", &[&[1, 2]]);
    d.heartbeat(1, |r| r.want_fence = true);
    let p = d.partition(&id, 0);
    assert_eq!((p.leader, p.isr.clone()), (2, vec![2]));
    d.heartbeat(2, |r| r.want_fence = true);
    let p = d.partition(&id, 0);
    assert_eq!((p.leader, p.isr.len(), p.elr.clone()), (NO_LEADER, 0, vec![2]));
    assert_eq!(p.last_known_elr, [2]);
    d.heartbeat(1, |_| {});
    assert_eq!(d.partition(&id, 0).leader, NO_LEADER, "broker 1 may lack records");
    d.heartbeat(2, |_| {});
    let p = d.partition(&id, 0);
    assert_eq!((p.leader, p.isr, p.elr.len(), p.last_known_elr.len()), (2, vec![2], 0, 0));
    assert_eq!(p.leader_recovery_state, LeaderRecoveryState::Recovered);
}

#[test]
fn without_elr_the_last_isr_member_stays_in_the_isr() {
    let mut d = Driver::new(
        &[],
        bootstrap(MetadataVersion::LATEST_PRODUCTION, &[("eligible.leader.replicas.version", 0)]),
    );
    d.register_and_unfence(1);
    let id = d.create_assigned("t", &[&[1]]);
    d.heartbeat(1, |r| r.want_fence = true);
    let p = d.partition(&id, 0);
    assert_eq!((p.leader, p.isr, p.elr.len()), (NO_LEADER, vec![1], 0));
}

#[test]
fn an_unclean_stop_takes_a_broker_out_of_the_elr_and_a_clean_one_does_not() {
    for clean in [true, false] {
        let mut d = Driver::with_brokers(2);
        let id = d.create_assigned("t", &[&[1, 2]]);
        d.heartbeat(2, |r| r.want_fence = true);
        d.heartbeat(1, |r| r.want_fence = true);
        assert_eq!(d.partition(&id, 0).elr, [1]);
        d.advance(SESSION_MS + 1);
        let mut request = Driver::registration(1, 2);
        request.previous_broker_epoch = if clean { d.epoch(1) } else { -1 };
        assert_eq!(d.register(&request).0, 0);
        let expected = if clean { vec![1] } else { vec![] };
        assert_eq!(d.partition(&id, 0).elr, expected);
        d.heartbeat(1, |_| {});
        let p = d.partition(&id, 0);
        assert_eq!(p.leader, 1, "the last known leader leads again");
        let state = if clean { LeaderRecoveryState::Recovered } else { LeaderRecoveryState::Recovering };
        assert_eq!(p.leader_recovery_state, state);
    }
}

#[test]
fn a_controlled_shutdown_ends_when_others_have_read_that_leaderships_moved() {
    let mut d = Driver::with_brokers(2);
    let id = d.create_assigned("t", &[&[1, 2]]);
    d.heartbeat(2, |_| {});
    let (response, records) = d.heartbeat(1, |r| r.want_shut_down = true);
    assert!(!response.should_shut_down);
    assert_eq!(names(&records), ["BrokerRegistrationChangeRecord", "PartitionChangeRecord"]);
    assert_eq!(d.partition(&id, 0).leader, 2);
    let (response, _) = d.heartbeat(1, |r| r.want_shut_down = true);
    assert!(!response.should_shut_down, "broker 2 has not read it yet");
    d.heartbeat(2, |_| {});
    let (response, records) = d.heartbeat(1, |r| r.want_shut_down = true);
    assert!(response.should_shut_down && response.is_fenced);
    assert_eq!(names(&records), ["BrokerRegistrationChangeRecord"]);
}

#[test]
fn unclean_election_happens_by_itself_only_where_the_topic_allows_it() {
    let mut d = Driver::with_brokers(2);
    let careful = d.create_assigned("careful", &[&[1, 2]]);
    let unclean = ("unclean.leader.election.enable", Some("true"));
    let mut bold = with_configs(crate::driver::assigned("bold", &[&[1, 2]]), &[unclean]);
    bold.name = "bold".to_owned();
    let bold = d.create(vec![bold]).0.topics[0].topic_id;
    d.heartbeat(2, |r| r.want_fence = true);
    d.heartbeat(1, |r| r.want_fence = true);
    d.heartbeat(2, |_| {});
    assert_eq!(d.partition(&careful, 0).leader, NO_LEADER);
    let p = d.partition(&bold, 0);
    assert_eq!((p.leader, p.isr), (2, vec![2]));
    assert_eq!(p.leader_recovery_state, LeaderRecoveryState::Recovering);
}

#[test]
fn leaders_move_back_to_preferred_replicas_by_request_and_by_the_clock() {
    let mut d = Driver::with_brokers(2);
    let id = d.create_assigned("t", &[&[1, 2], &[1, 2]]);
    d.heartbeat(1, |r| r.want_fence = true);
    d.heartbeat(1, |_| {});
    let in_isr = |d: &mut Driver, partition: i32| {
        let p = d.partition(&id, partition);
        let request = alter_isr(d, id, partition, &p, &[2, 1]);
        let context = d.context(3);
        let result = d.controller.handle_alter_partition(d.now, &context, &request);
        assert_eq!(result.response.topics[0].partitions[0].error_code, 0);
        d.submit(result);
    };
    in_isr(&mut d, 0);
    in_isr(&mut d, 1);
    let request = ElectLeadersRequest {
        election_type: 0,
        topic_partitions: Some(vec![TopicPartitions { topic: "t".to_owned(), partitions: vec![0, 7] }]),
        ..Default::default()
    };
    let result = d.controller.handle_elect_leaders(d.now, &request);
    let (response, _) = d.submit(result);
    let answers: Vec<_> =
        response.replica_election_results[0].partition_result.iter().map(|p| p.error_code).collect();
    assert_eq!(answers, [0, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.code()]);
    assert_eq!((d.partition(&id, 0).leader, d.partition(&id, 1).leader), (1, 2));
    let result = d.controller.handle_elect_leaders(d.now, &request);
    assert_eq!(
        ErrorCode(result.response.replica_election_results[0].partition_result[0].error_code),
        ErrorCode::ELECTION_NOT_NEEDED
    );
    // leader.imbalance.check.interval.seconds is 300: broker 1 and 2 stay alive meanwhile.
    for _ in 0..61 {
        d.advance(5_000);
        d.heartbeat(1, |_| {});
        d.heartbeat(2, |_| {});
        d.tick();
    }
    assert_eq!(d.partition(&id, 1).leader, 1);
}

fn alter_isr(
    d: &Driver,
    topic_id: Uuid,
    partition: i32,
    p: &metadata::PartitionRegistration,
    isr: &[i32],
) -> AlterPartitionRequest {
    let member = |b: &i32| BrokerState { broker_id: *b, broker_epoch: d.epoch(*b) };
    AlterPartitionRequest {
        broker_id: p.leader,
        broker_epoch: d.epoch(p.leader),
        topics: vec![TopicData {
            topic_id,
            partitions: vec![PartitionData {
                partition_index: partition,
                leader_epoch: p.leader_epoch,
                new_isr_with_epochs: isr.iter().map(member).collect(),
                partition_epoch: p.partition_epoch,
                ..Default::default()
            }],
        }],
    }
}

#[test]
fn an_isr_that_cannot_be_is_refused() {
    let mut d = Driver::with_brokers(3);
    let id = d.create_assigned("t", &[&[1, 2]]);
    d.heartbeat(2, |r| r.want_fence = true);
    d.register(&Driver::registration(4, 1));
    type Change = dyn Fn(&mut AlterPartitionRequest);
    let data =
        |r: &mut AlterPartitionRequest, f: &dyn Fn(&mut PartitionData)| f(&mut r.topics[0].partitions[0]);
    let table: Vec<(ErrorCode, Box<Change>)> = vec![
        (ErrorCode::UNKNOWN_TOPIC_ID, Box::new(|r| r.topics[0].topic_id = Uuid([5; 16]))),
        (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, Box::new(move |r| data(r, &|p| p.partition_index = 9))),
        (ErrorCode::NOT_CONTROLLER, Box::new(move |r| data(r, &|p| p.leader_epoch += 1))),
        (ErrorCode::NOT_CONTROLLER, Box::new(move |r| data(r, &|p| p.partition_epoch += 1))),
        (ErrorCode::FENCED_LEADER_EPOCH, Box::new(move |r| data(r, &|p| p.leader_epoch -= 1))),
        (ErrorCode::INVALID_UPDATE_VERSION, Box::new(move |r| data(r, &|p| p.partition_epoch -= 1))),
        (ErrorCode::INELIGIBLE_REPLICA, Box::new(|_| {})),
        (
            ErrorCode::INVALID_REQUEST,
            Box::new(move |r| data(r, &|p| p.new_isr_with_epochs.retain(|b| b.broker_id != 1))),
        ),
        (ErrorCode::INVALID_REQUEST, Box::new(move |r| data(r, &|p| p.new_isr_with_epochs[1].broker_id = 3))),
        (ErrorCode::INVALID_REQUEST, Box::new(move |r| data(r, &|p| p.leader_recovery_state = 1))),
    ];
    for (code, change) in table {
        let p = d.partition(&id, 0);
        let mut request = alter_isr(&d, id, 0, &p, &[1, 2]);
        change(&mut request);
        let context = d.context(3);
        let result = d.controller.handle_alter_partition(d.now, &context, &request);
        assert_eq!(ErrorCode(result.response.topics[0].partitions[0].error_code), code);
        assert!(result.records.is_empty());
    }
}

#[test]
fn a_reassignment_goes_its_way_and_can_be_cancelled() {
    let mut d = Driver::with_brokers(4);
    let id = d.create_assigned("t", &[&[1, 2]]);
    let ask = |d: &mut Driver, replicas: Option<Vec<i32>>, allow: bool| {
        let partitions = vec![ReassignablePartition { partition_index: 0, replicas }];
        let request = AlterPartitionReassignmentsRequest {
            allow_replication_factor_change: allow,
            topics: vec![ReassignableTopic { name: "t".to_owned(), partitions }],
            ..Default::default()
        };
        let result = d.controller.handle_alter_partition_reassignments(d.now, &request);
        let (response, _) = d.submit(result);
        ErrorCode(response.responses[0].partitions[0].error_code)
    };
    assert_eq!(ask(&mut d, None, true), ErrorCode::NO_REASSIGNMENT_IN_PROGRESS);
    assert_eq!(ask(&mut d, Some(vec![3]), false), ErrorCode::INVALID_REPLICATION_FACTOR);
    assert_eq!(ask(&mut d, Some(vec![9, 1]), true), ErrorCode::INVALID_REPLICA_ASSIGNMENT);
    assert_eq!(ask(&mut d, Some(vec![3, 4]), true), ErrorCode::NONE);
    let p = d.partition(&id, 0);
    assert_eq!((p.replicas.clone(), p.adding_replicas.clone()), (vec![3, 4, 1, 2], vec![3, 4]));
    let all = ListPartitionReassignmentsRequest { topics: None, ..Default::default() };
    let listed = d.controller.handle_list_partition_reassignments(&all);
    assert_eq!(listed.topics[0].partitions[0].removing_replicas, [1, 2]);
    assert_eq!(ask(&mut d, None, true), ErrorCode::NONE);
    assert_eq!((d.partition(&id, 0).replicas, d.partition(&id, 0).is_reassigning()), (vec![1, 2], false));
    assert!(d.controller.handle_list_partition_reassignments(&all).topics.is_empty());
    assert_eq!(ask(&mut d, Some(vec![3, 4]), true), ErrorCode::NONE);
    let p = d.partition(&id, 0);
    let request = alter_isr(&d, id, 0, &p, &[1, 2, 3, 4]);
    let context = d.context(3);
    let result = d.controller.handle_alter_partition(d.now, &context, &request);
    let (response, _) = d.submit(result);
    let code = ErrorCode(response.topics[0].partitions[0].error_code);
    assert_eq!(code, ErrorCode::NEW_LEADER_ELECTED);
    let p = d.partition(&id, 0);
    assert_eq!((p.replicas, p.isr, p.leader), (vec![3, 4], vec![3, 4], 3));
}

#[test]
fn a_directory_that_goes_offline_takes_its_replicas_out() {
    let mut d = Driver::with_brokers(0);
    let mut request = Driver::registration(1, 1);
    request.log_dirs = vec![dir(1, 1), dir(1, 2)];
    d.register(&request);
    d.heartbeat(1, |_| {});
    d.register_and_unfence(2);
    let id = d.create_assigned("t", &[&[1, 2], &[1, 2]]);
    assert_eq!(d.partition(&id, 0).directory(1), Some(metadata::directory_id::UNASSIGNED));
    let assign = |d: &mut Driver, partition: i32, directory: Uuid| {
        let request = AssignReplicasToDirsRequest {
            broker_id: 1,
            broker_epoch: d.epoch(1),
            directories: vec![assign_replicas_to_dirs_request::DirectoryData {
                id: directory,
                topics: vec![assign_replicas_to_dirs_request::TopicData {
                    topic_id: id,
                    partitions: vec![assign_replicas_to_dirs_request::PartitionData {
                        partition_index: partition,
                    }],
                }],
            }],
        };
        let result = d.controller.handle_assign_replicas_to_dirs(d.now, &request);
        assert_eq!(result.response.directories[0].topics[0].partitions[0].error_code, 0);
        d.submit(result);
    };
    assign(&mut d, 0, dir(1, 1));
    assign(&mut d, 1, dir(1, 2));
    assert_eq!(d.partition(&id, 0).directory(1), Some(dir(1, 1)));
    d.heartbeat(1, |r| r.offline_log_dirs = vec![dir(1, 2)]);
    assert_eq!((d.partition(&id, 0).leader, d.partition(&id, 1).leader), (1, 2));
    assert_eq!(d.partition(&id, 1).isr, [2]);
    assert_eq!(d.controller.image().cluster.broker(1).unwrap().directories, [dir(1, 1)]);
}

#[test]
fn brokers_with_all_directories_cordoned_get_no_partitions() {
    let mut d = Driver::with_brokers(2);
    let (_, records) = d.heartbeat(2, |r| r.cordoned_log_dirs = Some(vec![dir(2, 1)]));
    assert_eq!(names(&records), ["BrokerRegistrationChangeRecord"]);
    let (response, _) = d.create(vec![topic("t", 4, 1)]);
    for partition in 0..4 {
        assert_eq!(d.partition(&response.topics[0].topic_id, partition).replicas, [1]);
    }
    assert_eq!(d.create(vec![topic("u", 1, 2)]).0.topics[0].error_code, 38);
}

#[test]
fn an_unregistered_broker_leaves_its_partitions() {
    let mut d = Driver::with_brokers(2);
    let id = d.create_assigned("t", &[&[1, 2]]);
    let request = UnregisterBrokerRequest { broker_id: 1 };
    let result = d.controller.handle_unregister_broker(d.now, &request);
    let (response, _) = d.submit(result);
    assert_eq!((response.error_code, d.partition(&id, 0).leader, d.epoch(1)), (0, 2, -1));
    let result = d.controller.handle_unregister_broker(d.now, &request);
    let response = result.response;
    assert_eq!(ErrorCode(response.error_code), ErrorCode::BROKER_ID_NOT_REGISTERED);
    assert_eq!(response.error_message.as_deref(), Some("Broker ID 1 is not currently registered"));
}

#[test]
fn producer_ids_are_given_in_blocks_of_a_thousand() {
    let mut d = Driver::with_brokers(1);
    for expected in [0, 1_000, 2_000] {
        let request = AllocateProducerIdsRequest { broker_id: 1, broker_epoch: d.epoch(1) };
        let result = d.controller.handle_allocate_producer_ids(d.now, &request);
        let (response, _) = d.submit(result);
        assert_eq!((response.producer_id_start, response.producer_id_len), (expected, 1_000));
    }
    let request = AllocateProducerIdsRequest { broker_id: 1, broker_epoch: 7 };
    let result = d.controller.handle_allocate_producer_ids(d.now, &request);
    assert_eq!(ErrorCode(result.response.error_code), ErrorCode::STALE_BROKER_EPOCH);
}

#[test]
fn idle_controllers_write_no_op_records() {
    let mut d = Driver::with_brokers(0);
    assert!(d.tick().is_empty());
    d.advance(500);
    let records = d.tick();
    assert!(matches!(records.as_slice(), [MetadataRecord::NoOpRecord(_)]), "{records:?}");
    assert!(d.controller.next_deadline().is_some());
}

#[test]
fn features_move_where_every_node_can_follow() {
    let mut d = Driver::with_brokers(1);
    let update = |d: &mut Driver, feature: &str, level: i16, upgrade_type: i8| {
        let request = UpdateFeaturesRequest {
            feature_updates: vec![protocol::messages::update_features_request::FeatureUpdateKey {
                feature: feature.to_owned(),
                max_version_level: level,
                upgrade_type,
                ..Default::default()
            }],
            ..Default::default()
        };
        let context = d.context(2);
        let result = d.controller.handle_update_features(d.now, &context, &request);
        let (response, records) = d.submit(result);
        (ErrorCode(response.error_code), response.error_message, records.len())
    };
    let failed = "The update failed for all features since the following feature had an error: ";
    let table = [
        (
            "streams.version",
            0,
            1,
            "Invalid update version 0 for feature streams.version. Can't downgrade the version of \
             this feature without setting the upgrade type to either safe or unsafe downgrade.",
        ),
        (
            "streams.version",
            5,
            1,
            "Invalid update version 5 for feature streams.version. Local controller 1 only \
             supports versions 0-1",
        ),
        (
            "nope",
            1,
            1,
            "Invalid update version 1 for feature nope. Local controller 1 does not support this feature.",
        ),
        (
            "streams.version",
            1,
            0,
            "Invalid update version 1 for feature streams.version. The controller does not \
             support the given upgrade type.",
        ),
        (
            "metadata.version",
            30,
            2,
            "Unsupported metadata.version downgrade from 33 to 30. Refusing to perform the \
             requested downgrade because it might delete metadata information.",
        ),
        (
            "group.version",
            -1,
            1,
            "Invalid update version -1 for feature group.version. A feature version cannot be \
             less than 0.",
        ),
    ];
    for (feature, level, upgrade, message) in table {
        let (code, answer, records) = update(&mut d, feature, level, upgrade);
        assert_eq!((code, records), (ErrorCode::INVALID_UPDATE_VERSION, 0));
        assert_eq!(answer, Some(format!("{failed}{message}")));
    }
    assert_eq!(update(&mut d, "streams.version", 0, 2), (ErrorCode::NONE, None, 1));
    assert_eq!(d.controller.image().features.level("streams.version"), 0);
    assert_eq!(update(&mut d, "streams.version", 1, 1), (ErrorCode::NONE, None, 1));
}

#[test]
fn every_metadata_version_writes_records_that_it_can_hold() {
    for version in MetadataVersion::all().filter(|v| v.is_production()) {
        let mut d = Driver::new(&[], bootstrap(version, &[]));
        d.register_and_unfence(1);
        d.register_and_unfence(2);
        let id = d.create_assigned("t", &[&[1, 2], &[2, 1]]);
        d.heartbeat(1, |r| {
            r.offline_log_dirs = vec![dir(1, 9)];
            r.cordoned_log_dirs = Some(vec![dir(1, 9)]);
        });
        let p = d.partition(&id, 0);
        let request = alter_isr(&d, id, 0, &p, &[1]);
        let context = d.context(3);
        let result = d.controller.handle_alter_partition(d.now, &context, &request);
        d.submit(result);
        let bumped = version.is_leader_epoch_bump_required_on_isr_shrink();
        assert_eq!(d.partition(&id, 0).leader_epoch, i32::from(bumped), "{version}");
        d.heartbeat(2, |r| r.want_shut_down = true);
        d.heartbeat(2, |r| r.want_fence = true);
        d.advance(SESSION_MS + 1);
        d.register(&Driver::registration(2, 2));
        let image = d.controller.image();
        let snapshot = image.write_encoded(image.write_options().unwrap()).unwrap();
        assert!(snapshot.len() >= 6, "{version}");
        let has_dirs =
            d.partition(&id, 0).directories.iter().any(|d| *d != metadata::directory_id::MIGRATING);
        assert_eq!(has_dirs, version.is_directory_assignment_supported(), "{version}");
    }
}
