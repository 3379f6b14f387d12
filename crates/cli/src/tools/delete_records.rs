//! kafka-delete-records: removes what lies before an offset.

use std::collections::BTreeMap;

use client::{ApiError, ClientError, Target};
use protocol::messages::DeleteRecordsRequest;
use protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use record::TopicPartition;
use serde_json::{Value, json};

use super::common::timeout;
use crate::admin::Admin;
use crate::failure::Failure;
use crate::io::{End, Io};
use crate::options::{CommandOptions, Spec, value};
use crate::output::Format;

const OPERATION: &str = "org.apache.kafka.tools.AdminOperationException";

fn specs() -> Vec<Spec> {
    vec![
        value("bootstrap-server", "REQUIRED: a broker to start from.").described("server(s) to use for bootstrapping"),
        value(
            "offset-json-file",
            "REQUIRED: a file with an offset per partition:\n{\"partitions\":\n  [{\"topic\": \"foo\", \"partition\": \
             1, \"offset\": 1}],\n \"version\":1\n}",
        )
        .described("Offset json file path"),
        value("command-config", "A file of client properties.").described("command config property file path"),
    ]
}

pub async fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let result = act(arguments, io).await;
    result.map_err(|failure| {
        failure.report(|failure| {
            io.error_line(failure.to_string());
            io.error_line(format!("{}\n", failure.as_exception()));
        })
    })
}

async fn act(arguments: &[String], io: &mut Io) -> Result<(), Failure> {
    let options = CommandOptions::parse(CommandOptions::declare(specs()), arguments)?;
    let help = "This tool helps to delete records of the given partitions down to the specified offset.";
    options.maybe_help_or_version(help, io)?;
    options.check_required(&["bootstrap-server", "offset-json-file"], io)?;
    let set = &options.options;
    let (bootstrap, file) = (set.value_of("bootstrap-server")?, set.given("command-config")?);
    let admin = Admin::connect(bootstrap.as_deref(), file.as_deref(), timeout(set)?)?;
    let path = set.value_of("offset-json-file")?.unwrap_or_default();
    let unreadable = |_| Failure::text("java.io.IOException", format!("Unable to read file {path}"));
    let offsets = parse(&std::fs::read_to_string(&path).map_err(unreadable)?)?;
    let format = Format::of(set)?;
    if format.is_table() {
        io.line("Executing records delete operation");
    }
    let results = delete(&admin, &offsets).await?;
    let value = || {
        let row = |(partition, result): (&TopicPartition, &Result<i64, ApiError>)| {
            json!({
                "topic": &*partition.topic,
                "partition": partition.partition,
                "lowWatermark": result.as_ref().ok(),
                "error": result.as_ref().err().map(ToString::to_string),
            })
        };
        Value::Array(results.iter().map(row).collect())
    };
    if format.emit(value, io) {
        return Ok(());
    }
    io.line("Records delete operation completed:");
    for (partition, result) in &results {
        match result {
            Ok(watermark) => io.line(format!("partition: {partition}\tlow_watermark: {watermark}")),
            Err(error) => io.line(format!("partition: {partition}\terror: {}: {error}", error.exception())),
        }
    }
    Ok(())
}

async fn delete(
    admin: &Admin,
    offsets: &BTreeMap<TopicPartition, i64>,
) -> Result<BTreeMap<TopicPartition, Result<i64, ApiError>>, Failure> {
    let partitions: Vec<TopicPartition> = offsets.keys().cloned().collect();
    let mut results = BTreeMap::new();
    let grouped = match admin.retry(|| admin.by_leader(&partitions)).await {
        Ok(grouped) => grouped,
        // One unknown topic must not hide what happens to the others.
        Err(Failure::Api(error)) => {
            results.extend(partitions.into_iter().map(|partition| (partition, Err(error.clone()))));
            return Ok(results);
        }
        Err(failure) => return Err(failure),
    };
    for (leader, partitions) in grouped {
        let Some(leader) = leader else {
            let error = ApiError::new(protocol::ErrorCode::LEADER_NOT_AVAILABLE, None);
            results.extend(partitions.into_iter().map(|partition| (partition, Err(error.clone()))));
            continue;
        };
        let mut topics: BTreeMap<String, Vec<DeleteRecordsPartition>> = BTreeMap::new();
        for partition in &partitions {
            let offset = offsets.get(partition).copied().unwrap_or(-1);
            let wanted = DeleteRecordsPartition { partition_index: partition.partition, offset };
            topics.entry(partition.topic.to_string()).or_default().push(wanted);
        }
        let topics = topics.into_iter().map(|(name, partitions)| DeleteRecordsTopic { name, partitions });
        let request = DeleteRecordsRequest { topics: topics.collect(), timeout_ms: admin.timeout_ms() };
        let attempt = || async {
            let response = admin.cluster.send(Target::Node(leader), &request).await?;
            Ok::<_, ClientError>(response)
        };
        for topic in admin.retry(attempt).await?.topics {
            for partition in topic.partitions {
                let key = TopicPartition {
                    topic: topic.name.as_str().into(),
                    partition: partition.partition_index,
                };
                let result = ApiError::check(partition.error_code, None).map(|()| partition.low_watermark);
                results.insert(key, result);
            }
        }
    }
    Ok(results)
}

fn parse(text: &str) -> Result<BTreeMap<TopicPartition, i64>, Failure> {
    let operation = |message: String| Failure::text(OPERATION, message);
    let json: Value = serde_json::from_str(text)
        .map_err(|_| operation("The input string is not a valid JSON".to_owned()))?;
    match json.get("version").map(Value::as_i64) {
        None | Some(Some(1)) => {}
        Some(version) => {
            let shown = version.map_or_else(|| json["version"].to_string(), |version| version.to_string());
            return Err(operation(format!("Not supported version field value {shown}")));
        }
    }
    let missing = || operation("Missing partitions field".to_owned());
    let partitions = json.get("partitions").and_then(Value::as_array).ok_or_else(missing)?;
    let mut offsets = BTreeMap::new();
    let mut duplicates = Vec::new();
    for entry in partitions {
        let field = |name: &str| {
            let message = format!("No such field exists: `{name}`");
            entry
                .get(name)
                .ok_or_else(|| Failure::text("com.fasterxml.jackson.databind.JsonMappingException", message))
        };
        let number = |name: &str| {
            let value = field(name)?;
            let message = format!("Expected `Long` value, received {value}");
            value
                .as_i64()
                .ok_or_else(|| Failure::text("com.fasterxml.jackson.databind.JsonMappingException", message))
        };
        let topic = field("topic")?.as_str().unwrap_or_default().into();
        let partition = i32::try_from(number("partition")?).unwrap_or(-1);
        let key = TopicPartition { topic, partition };
        if offsets.insert(key.clone(), number("offset")?).is_some() {
            duplicates.push(key.to_string());
        }
    }
    if duplicates.is_empty() {
        return Ok(offsets);
    }
    let message = format!("Offset json file contains duplicate topic partitions: {}", duplicates.join(","));
    Err(Failure::text("org.apache.kafka.tools.AdminCommandFailedException", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_checked_before_anything_is_deleted() {
        let entry = r#"{"topic": "t", "partition": 0, "offset": 3}"#;
        let good = format!(r#"{{"version": 1, "partitions": [{entry}]}}"#);
        assert_eq!(parse(&good).unwrap().into_values().collect::<Vec<_>>(), [3]);
        let table = [
            ("nonsense".to_owned(), "The input string is not a valid JSON"),
            (r#"{"version": 2}"#.to_owned(), "Not supported version field value 2"),
            ("{}".to_owned(), "Missing partitions field"),
            (
                format!(r#"{{"partitions": [{entry}, {entry}]}}"#),
                "Offset json file contains duplicate topic partitions: t-0",
            ),
        ];
        for (text, message) in table {
            assert_eq!(parse(&text).unwrap_err().to_string(), message);
        }
    }
}
