//! AlterConfigs and IncrementalAlterConfigs.

use std::collections::BTreeMap;

use metadata::image::{ConfigResource, resource_type};
use metadata::record::MetadataRecord;
use protocol::ErrorCode;
use protocol::messages::{
    AlterConfigsRequest, IncrementalAlterConfigsRequest, alter_configs_request,
    incremental_alter_configs_request,
};

use crate::driver::{Driver, assigned, names, with_configs};

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

type Answer = (ErrorCode, Option<String>, Vec<MetadataRecord>);

fn incremental(
    d: &mut Driver,
    kind: i8,
    name: &str,
    ops: &[(&str, i8, Option<&str>)],
    validate_only: bool,
) -> Answer {
    let config =
        |(name, op, value): &(&str, i8, Option<&str>)| incremental_alter_configs_request::AlterableConfig {
            name: (*name).to_owned(),
            config_operation: *op,
            value: value.map(str::to_owned),
        };
    let request = IncrementalAlterConfigsRequest {
        resources: vec![incremental_alter_configs_request::AlterConfigsResource {
            resource_type: kind,
            resource_name: name.to_owned(),
            configs: ops.iter().map(config).collect(),
        }],
        validate_only,
    };
    let context = d.context(1);
    let result = d.controller.handle_incremental_alter_configs(d.now, &context, &request);
    let (response, records) = d.submit(result);
    let answer = &response.responses[0];
    (ErrorCode(answer.error_code), answer.error_message.clone(), records)
}

fn configs(d: &Driver, resource: &ConfigResource) -> BTreeMap<String, String> {
    d.controller.image().configs.config_map(resource)
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn incremental_changes_touch_named_keys_only_and_a_resource_is_all_or_nothing() {
    let mut d = Driver::with_brokers(1);
    let created = with_configs(
        assigned("t", &[&[1]]),
        &[("retention.ms", Some("1")), ("cleanup.policy", Some("delete"))],
    );
    d.create(vec![created]);
    let t = ConfigResource::topic("t");
    let mut alter = |ops: &[(&str, i8, Option<&str>)]| {
        let (code, message, _) = incremental(&mut d, resource_type::TOPIC, "t", ops, false);
        (code, message, configs(&d, &t))
    };
    let both = map(&[("retention.ms", "1"), ("cleanup.policy", "delete,compact")]);
    assert_eq!(alter(&[("cleanup.policy", APPEND, Some("compact"))]), (ErrorCode::NONE, None, both.clone()));
    let (code, message, after) =
        alter(&[("segment.ms", SET, Some("5")), ("retention.ms", APPEND, Some("2"))]);
    assert_eq!((code, after), (ErrorCode::INVALID_CONFIG, both));
    assert_eq!(message.as_deref(), Some("Can't APPEND to key retention.ms because its type is not LIST."));
    let compact = map(&[("retention.ms", "1"), ("cleanup.policy", "compact")]);
    assert_eq!(alter(&[("cleanup.policy", SUBTRACT, Some("delete"))]), (ErrorCode::NONE, None, compact));
    let left = map(&[("cleanup.policy", "compact")]);
    assert_eq!(alter(&[("retention.ms", DELETE, None)]), (ErrorCode::NONE, None, left));
}

#[test]
fn what_cannot_be_altered_is_refused() {
    let mut d = Driver::with_brokers(1);
    d.create_assigned("t", &[&[1]]);
    let table: [(i8, &str, (&str, i8, Option<&str>), ErrorCode, &str); 8] = [
        (
            2,
            "nope",
            ("retention.ms", SET, Some("1")),
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'nope' does not exist.",
        ),
        (
            2,
            "",
            ("retention.ms", SET, Some("1")),
            ErrorCode::INVALID_REQUEST,
            "Default topic resources are not allowed.",
        ),
        (
            4,
            "9",
            ("log.cleaner.threads", SET, Some("1")),
            ErrorCode::BROKER_ID_NOT_REGISTERED,
            "No node with id 9 found.",
        ),
        (
            4,
            "x",
            ("log.cleaner.threads", SET, Some("1")),
            ErrorCode::INVALID_REQUEST,
            "Unable to parse broker name as a base 10 number.",
        ),
        (8, "1", ("x", SET, Some("INFO")), ErrorCode::INVALID_REQUEST, "Unknown resource type BROKER_LOGGER"),
        (99, "1", ("x", SET, Some("1")), ErrorCode::UNSUPPORTED_VERSION, "Unknown resource type 99."),
        (
            4,
            "1",
            ("min.insync.replicas", SET, Some("1")),
            ErrorCode::INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        ),
        (
            4,
            "",
            ("min.insync.replicas", DELETE, None),
            ErrorCode::INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        ),
    ];
    for (kind, name, op, code, message) in table {
        let (answer, text, records) = incremental(&mut d, kind, name, &[op], false);
        assert_eq!((answer, text.as_deref(), records.len()), (code, Some(message), 0));
    }
    let long = "x".repeat(32_768);
    let (code, _, _) =
        incremental(&mut d, 2, "t", &[("leader.replication.throttled.replicas", SET, Some(&long))], false);
    assert_eq!(code, ErrorCode::INVALID_CONFIG);
}

#[test]
fn a_new_min_isr_clears_elrs_and_validating_only_changes_nothing() {
    let mut d = Driver::with_brokers(1);
    d.create_assigned("t", &[&[1]]);
    let op = [("min.insync.replicas", SET, Some("2"))];
    let (code, _, records) = incremental(&mut d, resource_type::TOPIC, "t", &op, true);
    assert_eq!((code, records.len()), (ErrorCode::NONE, 0));
    let (_, _, records) = incremental(&mut d, resource_type::TOPIC, "t", &op, false);
    assert_eq!(names(&records), ["ConfigRecord", "ClearElrRecord"]);
    let (_, _, records) = incremental(&mut d, resource_type::TOPIC, "t", &op, false);
    assert!(records.is_empty(), "a topic's value that stays needs no record");
    let (_, _, records) = incremental(&mut d, resource_type::BROKER, "", &op, false);
    assert_eq!(names(&records), ["ConfigRecord", "ClearElrRecord"]);
    let (_, _, records) = incremental(&mut d, resource_type::BROKER, "", &op, false);
    assert_eq!(names(&records), ["ConfigRecord", "ClearElrRecord"], "a broker's is always written");
}

#[test]
fn altering_replaces_the_whole_set() {
    let mut d = Driver::with_brokers(1);
    let created = with_configs(
        assigned("t", &[&[1]]),
        &[("retention.ms", Some("1")), ("compression.type", Some("gzip"))],
    );
    d.create(vec![created]);
    let alter = |d: &mut Driver, names: &[&str]| {
        let resource = |name: &&str| alter_configs_request::AlterConfigsResource {
            resource_type: resource_type::TOPIC,
            resource_name: (*name).to_owned(),
            configs: vec![alter_configs_request::AlterableConfig {
                name: "compression.type".to_owned(),
                value: Some("lz4".to_owned()),
            }],
        };
        let request =
            AlterConfigsRequest { resources: names.iter().map(resource).collect(), validate_only: false };
        let context = d.context(2);
        let result = d.controller.handle_alter_configs(d.now, &context, &request);
        let (response, _) = d.submit(result);
        response.responses.iter().map(|r| (r.resource_name.clone(), r.error_code)).collect::<Vec<_>>()
    };
    assert_eq!(alter(&mut d, &["t", "nope"]), [("nope".to_owned(), 3), ("t".to_owned(), 0)]);
    assert_eq!(configs(&d, &ConfigResource::topic("t")), map(&[("compression.type", "lz4")]));
    assert_eq!(alter(&mut d, &["t", "t"]), [("t".to_owned(), ErrorCode::INVALID_REQUEST.code())]);
}

#[test]
fn deleting_a_topic_deletes_its_configuration() {
    let mut d = Driver::with_brokers(1);
    d.create(vec![with_configs(assigned("t", &[&[1]]), &[("retention.ms", Some("1"))])]);
    let request =
        protocol::messages::DeleteTopicsRequest { topic_names: vec!["t".to_owned()], ..Default::default() };
    let context = d.context(5);
    let result = d.controller.handle_delete_topics(d.now, &context, &request);
    d.submit(result);
    assert!(configs(&d, &ConfigResource::topic("t")).is_empty());
}
