//! The tools, one module each, and the table by which they are found.

mod api_versions;
mod cluster;
mod common;
mod configs;
mod console_consumer;
mod console_producer;
mod consumer_groups;
mod coordinator_json;
mod delete_records;
mod deserializer;
mod dump_log;
mod features;
mod formatter;
mod get_offsets;
mod line_reader;
mod online;
mod quorum;
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
];

pub fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().copied()
}

pub fn by_name(name: &str) -> Option<&'static str> {
    let name = name.strip_suffix(".sh").unwrap_or(name);
    // `bitacora storage` is short for `bitacora kafka-storage`.
    names().find(|tool| *tool == name || tool.strip_prefix("kafka-") == Some(name))
}

pub async fn run(invocation: &Invocation, io: &mut Io) -> Result<(), End> {
    let arguments = &invocation.arguments;
    match invocation.tool {
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
        "kafka-dump-log" => dump_log::run(arguments, io),
        other => Err(End::message(format!("{other} is not part of this program"))),
    }
}
