//! The tools, one module each, and the table by which they are found.

mod api_versions;
mod cluster;
mod common;
mod configs;
mod console_consumer;
mod console_producer;
mod consumer_groups;
mod consumer_perf;
mod coordinator_json;
mod delete_records;
mod deserializer;
mod dump_log;
mod explain_retention;
mod features;
mod formatter;
mod get_offsets;
mod line_reader;
mod link;
mod log_dirs;
mod log_verify;
mod online;
mod producer_perf;
mod quorum;
mod server_stop;
mod storage;
mod topics;

use crate::Invocation;
use crate::io::{End, Io};

/// Every tool's name; a trailing `.sh` is accepted too, and a missing `kafka-`.
const NAMES: &[&str] = &[
    "kafka-topics",
    "kafka-console-producer",
    "kafka-console-consumer",
    "kafka-consumer-groups",
    "kafka-configs",
    "kafka-get-offsets",
    "kafka-delete-records",
    "kafka-broker-api-versions",
    "kafka-cluster",
    "kafka-features",
    "kafka-metadata-quorum",
    "kafka-storage",
    "kafka-dump-log",
    "kafka-log-dirs",
    "kafka-producer-perf-test",
    "kafka-consumer-perf-test",
    "kafka-server-stop",
];

/// Not a tool of Kafka: `tools link DIR`.
const LINKS: &str = "tools";
/// Not a tool of Kafka: `log verify DIR`.
const LOG: &str = "log";
/// A word behind `topics` that is no option of kafka-topics.
const EXPLAIN_RETENTION: &str = "explain-retention";

pub fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().copied()
}

pub fn by_name(name: &str) -> Option<&'static str> {
    let name = name.strip_suffix(".sh").unwrap_or(name);
    // `bitacora storage` is short for `bitacora kafka-storage`.
    names().find(|tool| *tool == name || tool.strip_prefix("kafka-") == Some(name))
}

/// A tool by the first argument, which may also be `tools`.
pub fn by_word(word: &str) -> Option<&'static str> {
    [LINKS, LOG].into_iter().find(|own| *own == word).or_else(|| by_name(word))
}

pub async fn run(invocation: &Invocation, io: &mut Io) -> Result<(), End> {
    let arguments = &invocation.arguments;
    match invocation.tool {
        "kafka-topics" if arguments.first().is_some_and(|word| word == EXPLAIN_RETENTION) => {
            explain_retention::run(arguments.get(1..).unwrap_or_default(), io).await
        }
        "kafka-topics" => topics::run(arguments, io).await,
        "kafka-console-consumer" => console_consumer::run(arguments, io).await,
        "kafka-configs" => configs::run(arguments, io).await,
        "kafka-get-offsets" => get_offsets::run(arguments, io).await,
        "kafka-delete-records" => delete_records::run(arguments, io).await,
        "kafka-broker-api-versions" => api_versions::run(arguments, io).await,
        "kafka-cluster" => cluster::run(arguments, io).await,
        "kafka-storage" => storage::run(arguments, io),
        "kafka-features" => features::run(arguments, io).await,
        "kafka-metadata-quorum" => quorum::run(arguments, io).await,
        "kafka-consumer-groups" => consumer_groups::run(arguments, io).await,
        "kafka-console-producer" => console_producer::run(arguments, io).await,
        "kafka-log-dirs" => log_dirs::run(arguments, io).await,
        "kafka-producer-perf-test" => producer_perf::run(arguments, io).await,
        "kafka-consumer-perf-test" => consumer_perf::run(arguments, io).await,
        "kafka-server-stop" => server_stop::run(arguments, io),
        LINKS => link::run(arguments, io),
        LOG => log_verify::run(arguments, io),
        "kafka-dump-log" => dump_log::run(arguments, io),
        other => Err(End::message(format!("{other} is not part of this program"))),
    }
}
