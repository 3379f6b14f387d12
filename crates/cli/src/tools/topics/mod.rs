//! kafka-topics: list, describe, create, alter and delete topics.

mod view;

use std::collections::{BTreeMap, BTreeSet};

use client::{ApiError, Target};
use protocol::messages::create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic};
use protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use protocol::messages::delete_topics_request::DeleteTopicState;
use protocol::messages::list_partition_reassignments_request::ListPartitionReassignmentsTopics;
use protocol::messages::list_partition_reassignments_response::OngoingPartitionReassignment;
use protocol::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, ListPartitionReassignmentsRequest,
};
use protocol::{ErrorCode, Uuid};
use serde_json::{Value, json};

use super::common::timeout;
use crate::admin::{Admin, PARTITIONS_PER_RESPONSE, PartitionInfo, ResourceType, TopicDescription};
use crate::failure::Failure;
use crate::filter::{TopicFilter, is_internal_topic};
use crate::io::{End, Io};
use crate::options::{CommandOptions, Kind, Spec, flag, value};
use crate::output::Format;
use view::{TopicView, partition_value};

const LOGGER: &str = "org.apache.kafka.tools.TopicCommand";

fn specs() -> Vec<Spec> {
    vec![
        value("bootstrap-server", "REQUIRED: a broker to start from.").described("server to connect to"),
        value("command-config", "A file of client properties.").described("command config property file"),
        flag("list", "List all topics."),
        flag("create", "Create a topic."),
        flag("delete", "Delete topics."),
        flag("alter", "Change the number of partitions (kafka-configs changes a topic's configuration)."),
        flag("describe", "Describe topics."),
        value("topic", "The topic; for all but --create also a regular expression.").described("topic"),
        value("topic-id", "The id of the topic to describe.").described("topic-id"),
        value("config", "Configuration for the topic to create; may be repeated.").described("name=value"),
        value("delete-config", "No longer supported; use kafka-configs.").described("name"),
        value("partitions", "The number of partitions; the cluster's default when it is not given.")
            .kind(Kind::Integer)
            .described("# of partitions"),
        value("replication-factor", "The number of replicas; the cluster's default when it is not given.")
            .kind(Kind::Integer)
            .described("replication factor"),
        value("replica-assignment", "Brokers for each partition's replicas.").described(
            "broker_id_for_part1_replica1 : broker_id_for_part1_replica2 , broker_id_for_part2_replica1 : \
             broker_id_for_part2_replica2 , ...",
        ),
        flag("under-replicated-partitions", "Describe only partitions that lack in-sync replicas."),
        flag("unavailable-partitions", "Describe only partitions without a live leader."),
        flag("under-min-isr-partitions", "Describe only partitions below their min.insync.replicas."),
        flag("at-min-isr-partitions", "Describe only partitions exactly at their min.insync.replicas."),
        flag("topics-with-overrides", "Describe only topics with a configuration of their own."),
        flag("if-exists", "Do nothing when the topic does not exist (alter, delete, describe)."),
        flag("if-not-exists", "Do not fail when the topic exists already (create)."),
        flag("exclude-internal", "Leave internal topics out (list, describe)."),
        value("partition-size-limit-per-response", "How many partitions one answer may describe.")
            .kind(Kind::Integer)
            .described("maximum number of partitions per response"),
    ]
}

const ACTIONS: [&str; 5] = ["create", "list", "alter", "describe", "delete"];
/// The order in which the reference looks for actions that contradict an option.
const REPORTS: [&str; 4] = [
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
];

pub async fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let options = match options(arguments, io) {
        Ok(options) => options,
        Err(failure) => {
            return Err(failure.report(|failure| {
                io.error_line(failure.to_string());
                io.error_line(format!("{}\n", failure.as_exception()));
            }));
        }
    };
    let result = execute(&options, io).await;
    result.map_err(|failure| {
        failure.report(|failure| {
            io.line(format!("Error while executing topic command : {failure}"));
            io.log("ERROR", &failure.as_exception(), LOGGER);
        })
    })
}

fn options(arguments: &[String], io: &mut Io) -> Result<CommandOptions, Failure> {
    let options = CommandOptions::parse(CommandOptions::declare(specs()), arguments)?;
    if options.is_without_arguments() {
        return Err(options.usage_and_exit("Create, delete, describe, or change a topic.", io).into());
    }
    options.maybe_help_or_version("This tool helps to create, delete, describe, or change a topic.", io)?;
    if ACTIONS.iter().filter(|action| options.has(action)).count() != 1 {
        let message =
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete";
        return Err(options.usage_and_exit(message, io).into());
    }
    if options.has("delete-config") {
        io.error_line(
            "delete-config option is no longer supported and deprecated since version 4.0. The config will be fully \
             removed in future releases.",
        );
    }
    check_required(&options, io)?;
    check_invalid(&options, io)?;
    Ok(options)
}

fn check_required(options: &CommandOptions, io: &mut Io) -> Result<(), Failure> {
    if !options.has("bootstrap-server") {
        return Err(Failure::illegal_argument("--bootstrap-server must be specified"));
    }
    if options.has("describe") && options.has("if-exists") {
        match (options.has("topic"), options.has("topic-id")) {
            (false, false) => {
                let message = "--topic or --topic-id is required to describe a topic";
                return Err(options.usage_and_exit(message, io).into());
            }
            (true, true) => io.line(
                "Only topic id will be used when both --topic and --topic-id are specified and topicId is not \
                 Uuid.ZERO_UUID",
            ),
            _ => {}
        }
    }
    if !options.has("list") && !options.has("describe") {
        options.check_required(&["topic"], io)?;
    }
    if options.has("alter") {
        if options.has("config") {
            let message = "Option combination \"[[bootstrap-server], [config]]\" can't be used with option \
                           \"[alter]\" (To alter topic configurations, the kafka-configs tool can be used.)";
            return Err(options.usage_and_exit(message, io).into());
        }
        options.check_required(&["partitions"], io)?;
    }
    Ok(())
}

fn check_invalid(options: &CommandOptions, io: &mut Io) -> Result<(), End> {
    let actions_but = |allowed: &[&str]| {
        let mut others: Vec<&str> = ACTIONS.into_iter().filter(|action| !allowed.contains(action)).collect();
        others.sort_unstable();
        others
    };
    options.check_invalid("config", &actions_but(&["alter", "create"]), io)?;
    options.check_invalid("partitions", &actions_but(&["alter", "create"]), io)?;
    options.check_invalid("replication-factor", &actions_but(&["create"]), io)?;
    options.check_invalid("replica-assignment", &actions_but(&["alter", "create"]), io)?;
    if options.has("create") {
        options.check_invalid("replica-assignment", &["partitions", "replication-factor"], io)?;
    }
    for report in REPORTS {
        let mut invalid = actions_but(&["describe"]);
        invalid.push("topics-with-overrides");
        options.check_invalid(report, &invalid, io)?;
    }
    let mut invalid = actions_but(&["describe"]);
    invalid.extend(REPORTS);
    options.check_invalid("topics-with-overrides", &invalid, io)?;
    options.check_invalid("if-exists", &actions_but(&["alter", "delete", "describe"]), io)?;
    options.check_invalid("if-not-exists", &actions_but(&["create"]), io)?;
    options.check_invalid("exclude-internal", &actions_but(&["list", "describe"]), io)
}

async fn execute(options: &CommandOptions, io: &mut Io) -> Result<(), Failure> {
    let set = &options.options;
    let bootstrap = set.value_of("bootstrap-server")?;
    let file = set.value_of("command-config")?;
    let admin = Admin::connect(bootstrap.as_deref(), file.as_deref(), timeout(set)?)?;
    let tool = Tool { options, admin, format: Format::of(set)? };
    match ACTIONS.into_iter().find(|action| options.has(action)) {
        Some("create") => tool.create(io).await,
        Some("alter") => tool.alter().await,
        Some("list") => tool.list(io).await,
        Some("describe") => tool.describe(io).await,
        _ => tool.delete().await,
    }
}

struct Tool<'a> {
    options: &'a CommandOptions,
    admin: Admin,
    format: Format,
}

impl Tool<'_> {
    fn topic(&self) -> Result<Option<String>, Failure> {
        Ok(self.options.options.given("topic")?)
    }

    async fn topics(&self) -> Result<Vec<String>, Failure> {
        let exclude_internal = self.options.has("exclude-internal");
        let all = self.admin.topic_names(!exclude_internal).await?;
        match self.topic()? {
            Some(pattern) => {
                let filter = TopicFilter::new(&pattern)?;
                Ok(all.into_iter().filter(|topic| filter.allows(topic, exclude_internal)).collect())
            }
            None => {
                Ok(all.into_iter().filter(|topic| !(exclude_internal && is_internal_topic(topic))).collect())
            }
        }
    }

    fn ensure_exists(&self, found: &[String]) -> Result<(), Failure> {
        match self.topic()? {
            Some(topic) if !topic.is_empty() && found.is_empty() && !self.options.has("if-exists") => {
                Err(Failure::illegal_argument(format!("Topic '{topic}' does not exist as expected")))
            }
            _ => Ok(()),
        }
    }

    async fn list(&self, io: &mut Io) -> Result<(), Failure> {
        let topics = self.topics().await?;
        if !self.format.emit(|| json!(topics), io) {
            io.line(topics.join("\n"));
        }
        Ok(())
    }

    async fn create(&self, io: &mut Io) -> Result<(), Failure> {
        let set = &self.options.options;
        let name = self.topic()?.unwrap_or_default();
        let partitions = set.integer("partitions")?;
        let replication_factor = set.integer("replication-factor")?;
        let assignment = parse_assignment(set.given("replica-assignment")?)?;
        let configs = parse_configs(&set.values_of("config")?)?;
        if name.contains(['.', '_']) {
            io.line(
                "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could \
                 collide. To avoid issues it is best to use either, but not both.",
            );
        }
        if replication_factor.is_some_and(|factor| !(1..=i32::from(i16::MAX)).contains(&factor)) {
            return Err(Failure::illegal_argument(
                "The replication factor must be between 1 and 32767 inclusive",
            ));
        }
        if partitions.is_some_and(|partitions| partitions < 1) {
            return Err(Failure::illegal_argument("The partitions must be greater than 0"));
        }
        let assignments =
            assignment.into_iter().enumerate().map(|(index, broker_ids)| CreatableReplicaAssignment {
                partition_index: i32::try_from(index).unwrap_or(i32::MAX),
                broker_ids,
            });
        let topic = CreatableTopic {
            name: name.clone(),
            num_partitions: partitions.unwrap_or(-1),
            replication_factor: replication_factor
                .and_then(|factor| i16::try_from(factor).ok())
                .unwrap_or(-1),
            assignments: assignments.collect(),
            configs: configs
                .into_iter()
                .map(|(name, value)| CreatableTopicConfig { name, value: Some(value) })
                .collect(),
        };
        let request = CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: self.admin.timeout_ms(),
            validate_only: false,
        };
        let response = self.admin.send(Target::Controller, &request).await?;
        for topic in &response.topics {
            match ApiError::check(topic.error_code, topic.error_message.as_ref()) {
                Err(error)
                    if error.code == ErrorCode::TOPIC_ALREADY_EXISTS && self.options.has("if-not-exists") =>
                {
                    return Ok(());
                }
                other => other?,
            }
        }
        if !self.format.emit(|| json!({ "created": name }), io) {
            io.line(format!("Created topic {name}."));
        }
        Ok(())
    }

    async fn alter(&self) -> Result<(), Failure> {
        let set = &self.options.options;
        let count = set.integer("partitions")?.unwrap_or(-1);
        let assignment = parse_assignment(set.given("replica-assignment")?)?;
        let topics = self.topics().await?;
        self.ensure_exists(&topics)?;
        if topics.is_empty() {
            return Ok(());
        }
        let described = match assignment.is_empty() {
            true => Vec::new(),
            false => self.admin.describe_topics(&topics, PARTITIONS_PER_RESPONSE).await?,
        };
        let changed = topics.into_iter().map(|name| {
            let existing =
                described.iter().find(|topic| topic.name == name).map(|topic| topic.partitions.len());
            let added = |existing: usize| {
                let added = assignment.iter().skip(existing);
                added.map(|brokers| CreatePartitionsAssignment { broker_ids: brokers.clone() }).collect()
            };
            CreatePartitionsTopic { name, count, assignments: existing.map(added) }
        });
        let request = CreatePartitionsRequest {
            topics: changed.collect(),
            timeout_ms: self.admin.timeout_ms(),
            validate_only: false,
        };
        let response = self.admin.send(Target::Controller, &request).await?;
        for result in &response.results {
            ApiError::check(result.error_code, result.error_message.as_ref())?;
        }
        Ok(())
    }

    async fn delete(&self) -> Result<(), Failure> {
        let topics = self.topics().await?;
        self.ensure_exists(&topics)?;
        if topics.is_empty() {
            return Ok(());
        }
        let connection = self.admin.retry(|| self.admin.cluster.connection(Target::Controller)).await?;
        let version = connection.version_of::<DeleteTopicsRequest>()?;
        let mut request = DeleteTopicsRequest { timeout_ms: self.admin.timeout_ms(), ..Default::default() };
        if version >= 6 {
            let named = |name: String| DeleteTopicState { name: Some(name), topic_id: Uuid::ZERO };
            request.topics = topics.into_iter().map(named).collect();
        } else {
            request.topic_names = topics;
        }
        let response = connection.send_version(&request, version).await?;
        for result in &response.responses {
            ApiError::check(result.error_code, result.error_message.as_ref())?;
        }
        Ok(())
    }

    async fn describe(&self, io: &mut Io) -> Result<(), Failure> {
        let descriptions = self.described().await?;
        let live: BTreeSet<i32> = self
            .admin
            .retry(|| self.admin.cluster.describe(false))
            .await?
            .iter()
            .map(|node| node.id)
            .collect();
        let reassignments = self.reassignments(&descriptions).await?;
        let mut values = Vec::new();
        for topic in &descriptions {
            let configs = self.admin.describe_configs(ResourceType::Topic, &topic.name, false).await?;
            let view = TopicView { topic, configs, live: &live, reassignments: &reassignments };
            if self.format.is_table() {
                self.print(&view, io);
            } else {
                values.extend(self.value(&view));
            }
        }
        self.format.emit(|| Value::Array(values), io);
        Ok(())
    }

    async fn described(&self) -> Result<Vec<TopicDescription>, Failure> {
        let set = &self.options.options;
        let given = set.given("topic-id")?;
        let id = given.as_deref().map(parse_uuid).transpose()?.filter(|id| *id != Uuid::ZERO);
        if let Some(id) = id {
            let metadata = self.admin.retry(|| self.admin.cluster.metadata(None)).await?;
            if metadata.topics.iter().any(|topic| topic.topic_id == id) {
                return self.admin.describe_topic_by_id(id).await;
            }
            if self.options.has("if-exists") {
                return Ok(Vec::new());
            }
            return Err(Failure::illegal_argument(format!("TopicId '{id}' does not exist as expected")));
        }
        let topics = self.topics().await?;
        self.ensure_exists(&topics)?;
        let limit = set.integer("partition-size-limit-per-response")?.unwrap_or(PARTITIONS_PER_RESPONSE);
        self.admin.describe_topics(&topics, limit).await
    }

    /// Ongoing reassignments; a broker that does not serve the API has none to show.
    async fn reassignments(
        &self,
        topics: &[TopicDescription],
    ) -> Result<BTreeMap<(String, i32), OngoingPartitionReassignment>, Failure> {
        let wanted = topics.iter().map(|topic| ListPartitionReassignmentsTopics {
            name: topic.name.clone(),
            partition_indexes: topic.partitions.iter().map(|partition| partition.partition).collect(),
        });
        let request = ListPartitionReassignmentsRequest {
            timeout_ms: self.admin.timeout_ms(),
            topics: Some(wanted.collect()),
        };
        let response = match self.admin.send(Target::Controller, &request).await {
            Ok(response) => response,
            Err(failure) if failure.code() == Some(ErrorCode::UNSUPPORTED_VERSION) => {
                return Ok(BTreeMap::new());
            }
            Err(failure) => return Err(failure),
        };
        match ApiError::check(response.error_code, response.error_message.as_ref()) {
            Err(error) if error.code == ErrorCode::CLUSTER_AUTHORIZATION_FAILED => return Ok(BTreeMap::new()),
            other => other?,
        }
        let ongoing = response.topics.into_iter().flat_map(|topic| {
            let name = topic.name;
            topic
                .partitions
                .into_iter()
                .map(move |partition| ((name.clone(), partition.partition_index), partition))
        });
        Ok(ongoing.collect())
    }

    fn reports(&self) -> Vec<&'static str> {
        REPORTS.into_iter().filter(|report| self.options.has(report)).collect()
    }

    fn shows_header(&self, view: &TopicView<'_>) -> bool {
        self.reports().is_empty() && (!self.options.has("topics-with-overrides") || view.has_overrides())
    }

    fn shows(&self, view: &TopicView<'_>, partition: &PartitionInfo) -> bool {
        if self.options.has("topics-with-overrides") {
            return false;
        }
        let reports = self.reports();
        reports.is_empty() || reports.iter().any(|report| view.is_reported(report, partition))
    }

    fn print(&self, view: &TopicView<'_>, io: &mut Io) {
        if self.shows_header(view) {
            io.line(view.header());
        }
        for partition in view.sorted() {
            if self.shows(view, partition) {
                io.line(view.line(partition));
            }
        }
    }

    fn value(&self, view: &TopicView<'_>) -> Option<Value> {
        let shown: Vec<Value> = view
            .sorted()
            .into_iter()
            .filter(|partition| self.shows(view, partition))
            .map(partition_value)
            .collect();
        if shown.is_empty() && !self.shows_header(view) {
            return None;
        }
        let configs: serde_json::Map<String, Value> =
            view.overrides().map(|config| (config.name.clone(), json!(config.value))).collect();
        Some(json!({
            "topic": view.topic.name,
            "topicId": view.topic.id.to_string(),
            "partitionCount": view.topic.partitions.len(),
            "replicationFactor": view.replication_factor(),
            "configs": configs,
            "partitions": shown,
        }))
    }
}

fn parse_uuid(text: &str) -> Result<Uuid, Failure> {
    text.parse()
        .map_err(|_| Failure::illegal_argument(format!("Input string `{text}` is not a valid topic id")))
}

/// `1:2,2:3`: the replicas of partition 0, then of partition 1.
fn parse_assignment(text: Option<String>) -> Result<Vec<Vec<i32>>, Failure> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(Vec::new()) };
    let mut assignment: Vec<Vec<i32>> = Vec::new();
    for (index, partition) in text.split(',').enumerate() {
        let mut brokers = Vec::new();
        for broker in partition.split(':').map(str::trim) {
            let message = || format!("For input string: \"{broker}\"");
            brokers.push(
                broker
                    .parse::<i32>()
                    .map_err(|_| Failure::text("java.lang.NumberFormatException", message()))?,
            );
        }
        let duplicates: BTreeSet<i32> = brokers
            .iter()
            .copied()
            .filter(|id| brokers.iter().filter(|other| *other == id).count() > 1)
            .collect();
        if !duplicates.is_empty() {
            let listed: Vec<String> = duplicates.iter().map(i32::to_string).collect();
            return Err(Failure::text(
                "org.apache.kafka.tools.AdminCommandFailedException",
                format!("Partition replica lists may not contain duplicate entries: {}", listed.join(",")),
            ));
        }
        if assignment.first().is_some_and(|first| first.len() != brokers.len()) {
            return Err(Failure::text(
                "org.apache.kafka.tools.AdminOperationException",
                format!("Partition {index} has different replication factor: {brokers:?}"),
            ));
        }
        assignment.push(brokers);
    }
    Ok(assignment)
}

fn parse_configs(given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let invalid = || {
        Failure::illegal_argument(
            "requirement failed: Invalid topic config: all configs to be added must be in the format \"key=val\".",
        )
    };
    let split = |text: &String| match text.split('=').collect::<Vec<_>>().as_slice() {
        [key, value] if !value.is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err(invalid()),
    };
    given.iter().map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_assignments_are_checked_as_the_reference_does() {
        assert_eq!(parse_assignment(Some("1:2, 2 :3".into())).unwrap(), [[1, 2], [2, 3]]);
        let table = [
            ("1:1", "Partition replica lists may not contain duplicate entries: 1"),
            ("1:2,3", "Partition 1 has different replication factor: [3]"),
            ("x", "For input string: \"x\""),
        ];
        for (text, message) in table {
            assert_eq!(parse_assignment(Some(text.into())).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn a_config_is_exactly_one_key_and_one_value() {
        assert_eq!(parse_configs(&["a = b".into()]).unwrap().get("a").map(String::as_str), Some("b"));
        for wrong in ["a", "a=", "a=b=c"] {
            assert!(parse_configs(&[wrong.into()]).is_err(), "{wrong}");
        }
    }
}
