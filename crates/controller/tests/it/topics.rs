//! CreateTopics, DeleteTopics, CreatePartitions: limits, names, collisions, assignments, answers.

use metadata::partition::NO_LEADER;
use protocol::messages::create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic};
use protocol::messages::create_topics_request::CreatableTopic;
use protocol::messages::delete_topics_request::DeleteTopicState;
use protocol::messages::{CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest};
use protocol::{ErrorCode, Uuid};

use crate::driver::{Driver, assigned, names, topic, with_configs};

#[test]
fn what_cannot_be_created_is_refused_with_the_reference_code_and_message() {
    let long = "x".repeat(250);
    check_refused(vec![
        (topic("exists", 1, 1), ErrorCode::TOPIC_ALREADY_EXISTS, "Topic 'exists' already exists.".into()),
        (
            topic("a_b", 1, 1),
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            "Topic 'a_b' collides with existing topic: a.b".into(),
        ),
        (
            topic("", 1, 1),
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: the empty string is not allowed".into(),
        ),
        (
            topic(&long, 1, 1),
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            format!("Topic name is invalid: the length of '{long}' is longer than the max allowed length 249"),
        ),
        (
            topic("t", 1, 3),
            ErrorCode::INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because \
             only 2 broker(s) are registered or some brokers have all their log directories cordoned."
                .into(),
        ),
        (
            topic("t", 1, 0),
            ErrorCode::INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.".into(),
        ),
        (
            topic("t", 0, 1),
            ErrorCode::INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.".into(),
        ),
        (
            with_configs(topic("t", 1, 1), &[("retention.ms", Some("abc"))]),
            ErrorCode::INVALID_CONFIG,
            "Invalid value abc for configuration retention.ms: Not a number of type LONG".into(),
        ),
        (
            with_configs(topic("t", 1, 1), &[("nope", Some("1"))]),
            ErrorCode::INVALID_CONFIG,
            "Unknown topic config name: nope".into(),
        ),
        (
            with_configs(topic("t", 1, 1), &[("retention.ms", None), ("segment.ms", None)]),
            ErrorCode::INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms,segment.ms".into(),
        ),
        (
            topic("__cluster_metadata", 1, 1),
            ErrorCode::INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.".into(),
        ),
    ]);
}

#[test]
fn manual_assignments_that_cannot_be_are_refused_with_the_reference_code_and_message() {
    let mut hole = assigned("t", &[&[1], &[1]]);
    hole.assignments[1].partition_index = 2;
    let mut twice = assigned("t", &[&[1], &[1]]);
    twice.assignments[1].partition_index = 0;
    let mut assigned_with_factor = assigned("t", &[&[1]]);
    assigned_with_factor.replication_factor = 1;
    let mut assigned_with_count = assigned("t", &[&[1]]);
    assigned_with_count.num_partitions = 1;
    check_refused(vec![
        (
            hole,
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence".into(),
        ),
        (
            twice,
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0".into(),
        ),
        (
            assigned_with_factor,
            ErrorCode::INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.".into(),
        ),
        (
            assigned_with_count,
            ErrorCode::INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.".into(),
        ),
        (
            assigned("t", &[&[1, 1]]),
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.".into(),
        ),
        (
            assigned("t", &[&[1, 7]]),
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 7, but no such broker is registered.".into(),
        ),
        (
            assigned("t", &[&[]]),
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.".into(),
        ),
        (
            assigned("t", &[&[1], &[1, 2]]),
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with \
             previous partitions, which have 1 replica(s)."
                .into(),
        ),
    ]);
}

/// On a cluster of two brokers with the topics `a.b` and `exists`.
fn check_refused(table: Vec<(CreatableTopic, ErrorCode, String)>) {
    let mut d = Driver::with_brokers(2);
    d.create_assigned("a.b", &[&[1]]);
    d.create_assigned("exists", &[&[1]]);
    for (request, code, message) in table {
        let (response, records) = d.create(vec![request.clone()]);
        let answer = &response.topics[0];
        assert_eq!(ErrorCode(answer.error_code), code, "{request:?} {:?}", answer.error_message);
        assert_eq!(answer.error_message.as_deref(), Some(message.as_str()), "{request:?}");
        assert!(records.is_empty(), "{request:?}");
    }
}

#[test]
fn one_bad_topic_does_not_touch_the_others_and_duplicates_are_refused_together() {
    let mut d = Driver::with_brokers(1);
    let (response, records) =
        d.create(vec![topic("good", 1, 1), topic("twice", 1, 1), topic("b/d", 1, 1), topic("twice", 2, 1)]);
    let answers: Vec<_> = response.topics.iter().map(|t| (t.name.as_str(), t.error_code)).collect();
    assert_eq!(answers, [("good", 0), ("b/d", 17), ("twice", 42)]);
    assert_eq!(names(&records), ["TopicRecord", "PartitionRecord"]);
    assert_eq!(response.topics[2].error_message.as_deref(), Some("Duplicate topic name."));
}

#[test]
fn deleting_a_topic_frees_the_names_it_collided_with() {
    let mut d = Driver::with_brokers(1);
    let id = d.create_assigned("a.b", &[&[1]]);
    assert_eq!(d.create(vec![topic("a_b", 1, 1)]).0.topics[0].error_code, 17);
    let context = d.context(6);
    let request = DeleteTopicsRequest {
        topics: vec![DeleteTopicState { name: None, topic_id: id }],
        ..Default::default()
    };
    let result = d.controller.handle_delete_topics(d.now, &context, &request);
    let (response, records) = d.submit(result);
    assert_eq!(response.responses[0].name.as_deref(), Some("a.b"));
    assert_eq!((response.responses[0].error_code, response.responses[0].topic_id), (0, id));
    assert_eq!(names(&records), ["RemoveTopicRecord"]);
    assert_eq!(d.create(vec![topic("a_b", 1, 1)]).0.topics[0].error_code, 0);
}

#[test]
fn deletions_are_answered_by_name_and_by_id() {
    let mut d = Driver::with_brokers(1);
    let id = d.create_assigned("t", &[&[1]]);
    let state = |name: Option<&str>, topic_id| DeleteTopicState { name: name.map(str::to_owned), topic_id };
    let unknown = Uuid([3; 16]);
    let check = |d: &mut Driver, topics: Vec<DeleteTopicState>, expected: &[(ErrorCode, Option<&str>)]| {
        let context = d.context(6);
        let request = DeleteTopicsRequest { topics, ..Default::default() };
        let result = d.controller.handle_delete_topics(d.now, &context, &request);
        assert!(result.records.is_empty());
        let answers: Vec<_> = result
            .response
            .responses
            .iter()
            .map(|r| (ErrorCode(r.error_code), r.error_message.as_deref()))
            .collect();
        assert_eq!(answers, expected);
    };
    check(
        &mut d,
        vec![
            state(None, Uuid::ZERO),
            state(Some("t"), id),
            state(Some("nope"), Uuid::ZERO),
            state(None, unknown),
        ],
        &[
            (ErrorCode::INVALID_REQUEST, Some("Neither topic name nor id were specified.")),
            (ErrorCode::INVALID_REQUEST, Some("You may not specify both topic name and topic id.")),
            (ErrorCode::UNKNOWN_TOPIC_ID, Some("This server does not host this topic ID.")),
            (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, Some("This server does not host this topic-partition.")),
        ],
    );
    check(
        &mut d,
        vec![state(Some("t"), Uuid::ZERO), state(None, id)],
        &[(
            ErrorCode::INVALID_REQUEST,
            Some("The provided topic name maps to an ID that was already supplied."),
        )],
    );
    check(
        &mut d,
        vec![state(Some("t"), Uuid::ZERO), state(Some("t"), Uuid::ZERO)],
        &[(ErrorCode::INVALID_REQUEST, Some("Duplicate topic name."))],
    );
}

#[test]
fn an_enormous_request_is_refused_and_the_controller_stays() {
    let mut d = Driver::with_brokers(1);
    let (response, records) = d.create(vec![topic("a", 10_000, 1), topic("b", 10_001, 1)]);
    for answer in &response.topics {
        assert_eq!(ErrorCode(answer.error_code), ErrorCode::POLICY_VIOLATION);
        assert_eq!(
            answer.error_message.as_deref(),
            Some("Excessively large number of partitions per request.")
        );
    }
    assert!(records.is_empty());
    // 10,000 partitions and their topic are one record too many.
    let (response, records) = d.create(vec![topic("a", 10_000, 1)]);
    assert_eq!(ErrorCode(response.topics[0].error_code), ErrorCode::POLICY_VIOLATION);
    assert_eq!(
        response.topics[0].error_message.as_deref(),
        Some("Unable to perform excessively large batch operation.")
    );
    assert!(records.is_empty());
    assert!(d.controller.is_active());
    let (response, records) = d.create(vec![topic("a", 9_999, 1)]);
    assert_eq!((response.topics[0].error_code, records.len()), (0, 10_000));
}

#[test]
fn a_created_topic_is_answered_with_its_configuration_in_effect() {
    let mut d = Driver::with_brokers(1);
    let (response, _) = d.create(vec![with_configs(topic("t", -1, 1), &[("retention.ms", Some("1"))])]);
    let answer = &response.topics[0];
    assert_eq!((answer.error_code, &answer.error_message), (0, &None));
    assert_eq!((answer.num_partitions, answer.replication_factor), (1, 1));
    let configs = answer.configs.as_ref().unwrap();
    assert_eq!(configs.len(), 37, "a topic has 37 keys");
    let find = |name: &str| configs.iter().find(|c| c.name == name).unwrap();
    assert_eq!((find("retention.ms").value.as_deref(), find("retention.ms").config_source), (Some("1"), 1));
    assert_eq!(find("segment.ms").config_source, 5);
    assert_eq!(
        (find("min.insync.replicas").value.as_deref(), find("min.insync.replicas").config_source),
        (Some("1"), 3)
    );
}

#[test]
fn validating_only_answers_the_same_and_changes_nothing() {
    let mut d = Driver::with_brokers(1);
    let request =
        CreateTopicsRequest { topics: vec![topic("t", 2, 1)], validate_only: true, ..Default::default() };
    let context = d.context(7);
    let result = d.controller.handle_create_topics(d.now, &context, &request);
    assert!(result.records.is_empty());
    assert_eq!((result.response.topics[0].error_code, result.response.topics[0].num_partitions), (0, 2));
}

#[test]
fn partitions_are_added_and_impossible_additions_refused() {
    let mut d = Driver::with_brokers(2);
    d.create_assigned("t", &[&[1, 2], &[2, 1]]);
    let ask = |name: &str, count, assignments: Option<Vec<Vec<i32>>>| CreatePartitionsTopic {
        name: name.to_owned(),
        count,
        assignments: assignments.map(|list| {
            list.into_iter().map(|broker_ids| CreatePartitionsAssignment { broker_ids }).collect()
        }),
    };
    let table = [
        (ask("nope", 3, None), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, None),
        (ask("t", 2, None), ErrorCode::INVALID_PARTITIONS, Some("Topic already has 2 partition(s).")),
        (
            ask("t", 1, None),
            ErrorCode::INVALID_PARTITIONS,
            Some("The topic t currently has 2 partition(s); 1 would not be an increase."),
        ),
        (
            ask("t", 4, Some(vec![vec![1, 2]])),
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            Some("Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."),
        ),
        (
            ask("t", 3, Some(vec![vec![1]])),
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            Some(
                "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent \
                 with previous partitions, which have 2 replica(s).",
            ),
        ),
        (ask("t", 4, None), ErrorCode::NONE, None),
        (ask("t", 5, Some(vec![vec![2, 1]])), ErrorCode::NONE, None),
    ];
    for (topic, code, message) in table {
        let context = d.context(3);
        let request = CreatePartitionsRequest { topics: vec![topic.clone()], ..Default::default() };
        let result = d.controller.handle_create_partitions(d.now, &context, &request);
        let (response, _) = d.submit(result);
        assert_eq!(ErrorCode(response.results[0].error_code), code, "{topic:?}");
        assert_eq!(response.results[0].error_message.as_deref(), message, "{topic:?}");
    }
    let id = d.controller.image().topics.id_of("t").unwrap();
    assert_eq!(d.controller.image().topics.topic(&id).unwrap().partitions.len(), 5);
    assert_eq!(d.partition(&id, 4).replicas, [2, 1]);
    assert_ne!(d.partition(&id, 3).leader, NO_LEADER);
}

#[test]
fn a_controller_that_is_not_active_says_who_is() {
    let mut d = Driver::with_brokers(1);
    d.controller.resign().unwrap();
    let (response, _) = d.create(vec![topic("t", 1, 1)]);
    assert_eq!(ErrorCode(response.topics[0].error_code), ErrorCode::NOT_CONTROLLER);
    assert_eq!(response.topics[0].error_message.as_deref(), Some("No controller appears to be active."));
    d.controller.set_leader(Some(3));
    let (response, _) = d.create(vec![topic("t", 1, 1)]);
    assert_eq!(
        response.topics[0].error_message.as_deref(),
        Some("The active controller appears to be node 3.")
    );
}
