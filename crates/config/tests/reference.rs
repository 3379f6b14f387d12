//! Comparison with facts recorded from Apache Kafka 4.4.0 (`golden/*.tsv`).
//!
//! `describe*.tsv` hold DescribeConfigs answers of a running node, `errors.tsv` and `values.tsv` what its
//! validators say, `alter.tsv` what its IncrementalAlterConfigs answers. Documentation is ours and not compared.

use std::collections::BTreeMap;

use config::alter::{
    AlterContext, AlterOp, ConfigChange, ResourceKind, check_broker_change, incremental_deltas,
    validate_alter, validate_resource, without_nulls,
};
use config::describe::{
    DescribedConfig, describe_broker, describe_broker_default, describe_client_metrics, describe_group,
    describe_topic,
};
use config::{BrokerConfigs, ConfigError, ErrorKind, Properties, ServerConfig};

/// The node that `describe.tsv` was recorded from.
const NODE: &str = "process.roles=broker,controller\nnode.id=1\n\
    controller.quorum.bootstrap.servers=127.0.0.1:21301\n\
    listeners=PLAINTEXT://127.0.0.1:21300,CONTROLLER://127.0.0.1:21301\n\
    advertised.listeners=PLAINTEXT://127.0.0.1:21300,CONTROLLER://127.0.0.1:21301\n\
    controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\nlog.dirs=/data\n\
    offsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n\
    transaction.state.log.min.isr=1\nshare.coordinator.state.topic.replication.factor=1\n\
    share.coordinator.state.topic.min.isr=1\ngroup.initial.rebalance.delay.ms=0\n";

/// What was added to the file for `describe_layers.tsv` and `alter.tsv`.
const MORE: &str = "log.retention.hours=5\nlog.roll.ms=100000000\nfoo.bar=baz\nlog.initial.task.delay.ms=1000\n\
    ssl.key.password=secret\nlog.cleanup.policy= compact , delete\nAUTO.x=1\n\
    group.consumer.session.timeout.ms=46000\ngroup.consumer.assignor.offload.enable=false\n\
    log.cleaner.min.cleanable.ratio=0.25\n";

/// The base of the `base`, `broker` and other cases of `errors.tsv`.
const BASE: &str = "process.roles=broker,controller;;node.id=1;;listeners=PLAINTEXT://:9092,CONTROLLER://:9093;;\
    controller.listener.names=CONTROLLER;;controller.quorum.voters=1@localhost:9093";

fn server(text: &str) -> ServerConfig {
    ServerConfig::from_properties(&Properties::parse_str(text).unwrap()).unwrap()
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn golden(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect())
}

fn line(resource: &str, entry: &DescribedConfig) -> String {
    const TYPES: [&str; 10] =
        ["UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"];
    let null = |value: &Option<String>| value.clone().unwrap_or_else(|| "\\N".to_owned());
    let synonyms: Vec<String> = entry
        .synonyms
        .iter()
        .map(|synonym| format!("{}:{}={}", synonym.source.name(), synonym.name, null(&synonym.value)))
        .collect();
    [
        resource,
        &entry.name,
        &null(&entry.value),
        entry.source.name(),
        TYPES[usize::try_from(entry.config_type).unwrap()],
        if entry.read_only { "ro" } else { "rw" },
        if entry.sensitive { "sensitive" } else { "-" },
        &synonyms.join(";"),
    ]
    .join("\t")
}

struct Overrides {
    topic: BTreeMap<String, String>,
    group: BTreeMap<String, String>,
    client_metrics: BTreeMap<String, String>,
}

fn compare(configs: &BrokerConfigs, overrides: &Overrides, golden_text: &'static str) {
    let mut ours = Vec::new();
    let mut add = |resource: &str, entries: Vec<DescribedConfig>| {
        ours.extend(entries.iter().map(|entry| line(resource, entry)));
    };
    add("topic", describe_topic(configs, &overrides.topic).unwrap());
    add("broker", describe_broker(configs));
    add("broker", describe_broker_default(configs));
    add("group", describe_group(configs, &overrides.group).unwrap());
    add("client_metrics", describe_client_metrics(&overrides.client_metrics).unwrap());
    let mut theirs: Vec<String> = golden(golden_text).map(|cells| cells.join("\t")).collect();
    ours.sort();
    theirs.sort();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn a_fresh_node_describes_what_the_reference_describes() {
    // ELR, on in a fresh cluster, writes min.insync.replicas for the whole cluster.
    let elr = map(&[("min.insync.replicas", "1")]);
    let (configs, complaints) = BrokerConfigs::new(server(NODE)).with_layers(&elr, &map(&[]));
    assert_eq!(complaints, Vec::<String>::new());
    let overrides = Overrides {
        topic: map(&[("retention.ms", "1000"), ("compression.type", "gzip")]),
        group: map(&[]),
        client_metrics: map(&[]),
    };
    compare(&configs, &overrides, include_str!("golden/describe.tsv"));
}

fn layered() -> BrokerConfigs {
    let cluster = map(&[
        ("min.insync.replicas", "1"),
        ("message.max.bytes", "2000000"),
        ("log.retention.ms", "500000"),
    ]);
    let broker = map(&[
        ("message.max.bytes", "3000000"),
        ("compression.type", "zstd"),
        ("my.key", "1"),
        ("listener.name.other.ssl.key.password", "pw"),
        ("leader.replication.throttled.rate", "1000"),
    ]);
    let (configs, complaints) =
        BrokerConfigs::new(server(&format!("{NODE}{MORE}"))).with_layers(&cluster, &broker);
    assert_eq!(complaints, Vec::<String>::new());
    configs
}

#[test]
fn a_node_with_every_layer_describes_what_the_reference_describes() {
    let overrides = Overrides {
        topic: map(&[
            ("retention.ms", "1000"),
            ("compression.type", "gzip"),
            ("segment.bytes", "2000000"),
            ("internal.segment.bytes", "3000"),
        ]),
        group: map(&[("consumer.session.timeout.ms", "50000")]),
        client_metrics: map(&[("interval.ms", "1000"), ("match", "client_id=a.*,client_source_port=1")]),
    };
    compare(&layered(), &overrides, include_str!("golden/describe_layers.tsv"));
}

/// `k=v;;k=v` with `\N` for null.
fn pairs(text: &str) -> Vec<(String, Option<String>)> {
    let parts = text.split(";;").filter(|pair| !pair.is_empty());
    parts
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap();
            (key.to_owned(), (value != "\\N").then(|| value.to_owned()))
        })
        .collect()
}

fn properties(text: &str) -> BTreeMap<String, String> {
    pairs(text).into_iter().map(|(k, v)| (k, v.unwrap())).collect()
}

fn run_error_case(what: &str, argument: &str) -> Result<(), ConfigError> {
    let base = properties(BASE);
    let with = |extra: &str| base.clone().into_iter().chain(properties(extra)).collect::<BTreeMap<_, _>>();
    let node = || ServerConfig::from_map(base.clone()).unwrap();
    let resource = |kind, name: &str, configs: &str, what: &str, existing: &BTreeMap<String, String>| {
        let configs = without_nulls(what, pairs(configs))?;
        validate_resource(&node(), kind, name, existing, &configs)
    };
    match what {
        "server" => ServerConfig::from_map(properties(argument)).map(drop),
        "base" => ServerConfig::from_map(with(argument)).map(drop),
        "topic" => resource(ResourceKind::Topic, "t", argument, "topic", &map(&[])),
        "topic-was-remote" => {
            resource(ResourceKind::Topic, "t", argument, "topic", &map(&[("remote.storage.enable", "true")]))
        }
        "tiered" => {
            let tiered =
                with("remote.log.storage.system.enable=true;;remote.log.storage.manager.class.name=X");
            let server = ServerConfig::from_map(tiered).unwrap();
            validate_resource(&server, ResourceKind::Topic, "t", &map(&[]), &properties(argument))
        }
        "topic-name" => resource(ResourceKind::Topic, argument, "", "topic", &map(&[])),
        "broker-name" => resource(ResourceKind::Broker, argument, "", "broker", &map(&[])),
        "group-name" => resource(ResourceKind::Group, argument, "", "group", &map(&[])),
        "client-metrics-name" => {
            resource(ResourceKind::ClientMetrics, argument, "", "client metrics", &map(&[]))
        }
        "group" => resource(ResourceKind::Group, "g", argument, "group", &map(&[])),
        "client-metrics" => resource(ResourceKind::ClientMetrics, "m", argument, "client metrics", &map(&[])),
        "broker" => BrokerConfigs::new(node()).validate(&properties(argument), true),
        "cluster" => BrokerConfigs::new(node()).validate(&properties(argument), false),
        other => panic!("{other}"),
    }
}

/// Java prints a hash set in any order: the names between the last brackets are sorted.
fn with_sorted_set(message: &str) -> String {
    match (message.starts_with("Cannot update"), message.rfind('[')) {
        (true, Some(start)) => {
            let mut names: Vec<&str> = message[start + 1..message.len() - 1].split(", ").collect();
            names.sort_unstable();
            format!("{}[{}]", &message[..start], names.join(", "))
        }
        _ => message.to_owned(),
    }
}

#[test]
fn configurations_are_refused_in_the_words_of_the_reference() {
    let mut failures = Vec::new();
    let cases = golden(include_str!("golden/errors.tsv")).chain(golden(include_str!("golden/values.tsv")));
    for cells in cases {
        let [what, argument, exception, message] = cells[..] else { panic!("{cells:?}") };
        let ours = match run_error_case(what, argument) {
            Ok(()) => ("ok", String::new()),
            Err(e) => (
                match e.kind {
                    ErrorKind::Config => "ConfigException",
                    ErrorKind::IllegalArgument => "IllegalArgumentException",
                    ErrorKind::InvalidConfiguration => "InvalidConfigurationException",
                    ErrorKind::InvalidRequest => "InvalidRequestException",
                    ErrorKind::InvalidTopic => "InvalidTopicException",
                },
                e.message,
            ),
        };
        // Sub- and superclasses that no caller tells apart.
        let exception = match exception {
            "NumberFormatException" => "IllegalArgumentException",
            "KafkaException" => "ConfigException",
            other => other,
        };
        if (exception, with_sorted_set(message)) != (ours.0, ours.1.clone()) {
            failures.push(format!(
                "{what} {argument}\n  theirs: {exception} {message}\n  ours:   {} {}",
                ours.0, ours.1
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn alter(
    configs: &BrokerConfigs,
    kind: ResourceKind,
    name: &str,
    changes: &[ConfigChange],
) -> Result<(), ConfigError> {
    if kind == ResourceKind::Broker {
        check_broker_change(configs, name, changes)?;
    }
    let current = match kind {
        ResourceKind::Broker if name.is_empty() => configs.cluster_default().clone(),
        ResourceKind::Broker => configs.broker().clone(),
        ResourceKind::Topic if name == "t1" => map(&[("retention.ms", "1000"), ("compression.type", "gzip")]),
        ResourceKind::Group => map(&[("consumer.session.timeout.ms", "50000")]),
        ResourceKind::ClientMetrics => map(&[("interval.ms", "1000")]),
        _ => map(&[]),
    };
    let deltas = incremental_deltas(kind, &current, changes)?;
    let context = AlterContext { elr_enabled: true, cordoned_log_dirs_supported: true, forwarded: true };
    validate_alter(configs.file(), kind, name, &current, &deltas, context)
}

#[test]
fn changes_are_answered_with_the_code_and_message_of_the_reference() {
    let configs = layered();
    let mut failures = Vec::new();
    for cells in golden(include_str!("golden/alter.tsv")) {
        let [resource, name, changes, code, message] = cells[..] else { panic!("{cells:?}") };
        if code == "UNKNOWN_TOPIC_OR_PARTITION" {
            continue; // The controller's check, not ours.
        }
        let kind =
            [ResourceKind::Topic, ResourceKind::Broker, ResourceKind::Group, ResourceKind::ClientMetrics]
                .into_iter()
                .find(|kind| kind.name() == resource)
                .unwrap();
        let changes: Vec<ConfigChange> = changes
            .split(";;")
            .map(|change| {
                let (op, change) = change.split_once(' ').unwrap();
                let op = match op {
                    "SET" => AlterOp::Set,
                    "DELETE" => AlterOp::Delete,
                    "APPEND" => AlterOp::Append,
                    _ => AlterOp::Subtract,
                };
                let (key, value) = match change.split_once('=') {
                    Some((key, value)) => (key, Some(value.to_owned())),
                    None => (change, None),
                };
                ConfigChange { name: key.to_owned(), op: op as i8, value }
            })
            .collect();
        let (ours, our_message) = match alter(&configs, kind, name, &changes) {
            Ok(()) => ("NONE", String::new()),
            Err(e) => (
                match e.error_code() {
                    17 => "INVALID_TOPIC_EXCEPTION",
                    40 => "INVALID_CONFIG",
                    42 => "INVALID_REQUEST",
                    _ => "UNKNOWN_SERVER_ERROR",
                },
                e.message,
            ),
        };
        if (code, message) != (ours, our_message.as_str()) {
            failures.push(format!("{}\n  ours: {ours} {our_message}", cells.join(" ")));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_created_topics_configs_are_those_of_the_reference() {
    let overrides = map(&[("retention.ms", "77"), ("cleanup.policy", "compact")]);
    let ours: Vec<String> = config::describe::effective_topic_configs(&layered(), &overrides)
        .into_iter()
        .map(|(name, value, source, _)| {
            format!("{name}\t{}\t{}", value.unwrap_or("\\N".into()), source.name())
        })
        .collect();
    let theirs: Vec<String> =
        golden(include_str!("golden/create.tsv")).map(|cells| cells.join("\t")).collect();
    assert_eq!(ours, theirs);
}
