//! kafka-log-dirs: what the brokers' log directories hold, and how large it is.

use std::collections::BTreeSet;

use client::{ApiError, Target};
use protocol::ErrorCode;
use protocol::messages::DescribeLogDirsRequest;
use protocol::messages::describe_log_dirs_response::DescribeLogDirsResult;
use serde_json::{Value, json};

use super::common::timeout;
use crate::admin::{Admin, load_config};
use crate::failure::Failure;
use crate::io::{End, Io};
use crate::java::{hash_order, string_hash, topic_partition_hash};
use crate::options::{CommandOptions, OptionError, Spec, flag, value};
use crate::output::Format;

const TERSE: &str = "org.apache.kafka.tools.TerseException";

fn specs() -> Vec<Spec> {
    vec![
        value("bootstrap-server", "REQUIRED: a broker to start from.")
            .described("The server(s) to use for bootstrapping"),
        value("command-config", "A file of client properties.").described("Admin client property file"),
        flag("describe", "Describe the log directories."),
        value("topic-list", "The topics, separated by commas; all when not given.")
            .described("Topic list")
            .default_value(""),
        value("broker-list", "The brokers, separated by commas; all when not given.")
            .described("Broker list")
            .default_value(""),
    ]
}

pub async fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let result = execute(arguments, io).await;
    result.map_err(|failure| {
        failure.report(|failure| match failure {
            Failure::Text { exception, message } if *exception == TERSE => io.error_line(message),
            Failure::Api(_) => {
                io.error_line(failure.as_exception());
                let trace = format!("java.util.concurrent.ExecutionException: {}\n", failure.as_exception());
                io.error_line(trace);
            }
            other => {
                io.error_line(other.to_string());
                io.error_line(format!("{}\n", other.as_exception()));
            }
        })
    })
}

async fn execute(arguments: &[String], io: &mut Io) -> Result<(), Failure> {
    let options = CommandOptions::parse(CommandOptions::declare(specs()), arguments)?;
    options.maybe_help_or_version(
        "This tool helps to query log directory usage on the specified brokers.",
        io,
    )?;
    options.check_required(&["bootstrap-server", "describe"], io)?;
    let set = &options.options;
    let format = Format::of(set)?;
    let mut config = match set.given("command-config")? {
        Some(file) => load_config(&file)?,
        None => client::ClientConfig::new(),
    };
    config.set("bootstrap.servers", set.value_of("bootstrap-server")?.unwrap_or_default());
    config.set_if_absent("client.id", "log-dirs-tool");
    let admin = Admin::new(config, timeout(set)?)?;
    let list = |name: &str| -> Result<Vec<String>, OptionError> {
        let text = set.value_of(name)?.unwrap_or_default();
        Ok(text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect())
    };
    let topics = list("topic-list")?;
    let brokers = brokers(&admin, &list("broker-list")?).await?;
    if format.is_table() {
        io.line("Querying brokers for log directories information");
    }
    let mut described = Vec::new();
    for broker in &brokers {
        described.push(describe(&admin, *broker, &topics).await?);
    }
    let value = json!({ "brokers": described, "version": 1 });
    if format.is_table() {
        io.line(format!("Received log directory information from brokers {}", joined(&brokers)));
        io.line(value.to_string());
    } else {
        format.emit(|| value, io);
    }
    Ok(())
}

fn joined(brokers: &BTreeSet<i32>) -> String {
    brokers.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

async fn brokers(admin: &Admin, wanted: &[String]) -> Result<BTreeSet<i32>, Failure> {
    let parse = |text: &String| {
        let message = || format!("For input string: \"{text}\"");
        text.parse::<i32>().map_err(|_| Failure::text("java.lang.NumberFormatException", message()))
    };
    let wanted = wanted.iter().map(parse).collect::<Result<BTreeSet<i32>, Failure>>()?;
    let nodes = admin.retry(|| admin.cluster.describe(false)).await?;
    let existing: BTreeSet<i32> = nodes.iter().map(|node| node.id).collect();
    if wanted.is_empty() {
        return Ok(existing);
    }
    let unknown: BTreeSet<i32> = wanted.difference(&existing).copied().collect();
    if unknown.is_empty() {
        return Ok(wanted);
    }
    let message = format!(
        "ERROR: The given brokers do not exist from --broker-list: {}. Current existent brokers: {}",
        joined(&unknown),
        joined(&existing)
    );
    Err(Failure::text(TERSE, message))
}

async fn describe(admin: &Admin, broker: i32, topics: &[String]) -> Result<Value, Failure> {
    let request = DescribeLogDirsRequest { topics: None };
    let response = admin.send(Target::Node(broker), &request).await?;
    ApiError::check(response.error_code, None)?;
    if response.results.is_empty() {
        // Brokers answer with nothing but an error when the client may not ask.
        ApiError::check(ErrorCode::CLUSTER_AUTHORIZATION_FAILED.code(), None)?;
    }
    let directories = hash_order(response.results, |result| string_hash(&result.log_dir));
    let shown: Vec<Value> = directories.into_iter().map(|result| directory(result, topics)).collect();
    Ok(json!({ "broker": broker, "logDirs": shown }))
}

/// Partitions pass through two hash maps: all of them, then those of the wanted topics.
fn directory(result: DescribeLogDirsResult, topics: &[String]) -> Value {
    let code = ErrorCode::from_code(result.error_code);
    let error = code.is_error().then(|| ApiError::new(code, None).exception());
    let mut replicas = Vec::new();
    for topic in result.topics {
        replicas.extend(topic.partitions.into_iter().map(|partition| (topic.name.clone(), partition)));
    }
    let hash = |(topic, partition): &(
        String,
        protocol::messages::describe_log_dirs_response::DescribeLogDirsPartition,
    )| { topic_partition_hash(topic, partition.partition_index) };
    let all = hash_order(replicas, hash);
    let wanted = all.into_iter().filter(|(topic, _)| topics.is_empty() || topics.contains(topic));
    let partitions = hash_order(wanted.collect(), hash).into_iter().map(|(topic, partition)| {
        json!({
            "partition": format!("{topic}-{}", partition.partition_index),
            "size": partition.partition_size,
            "offsetLag": partition.offset_lag,
            "isFuture": partition.is_future_key,
        })
    });
    json!({ "partitions": partitions.collect::<Vec<_>>(), "error": error, "logDir": result.log_dir })
}
