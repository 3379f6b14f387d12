//! `bitacora topics explain-retention TOPIC`: why the oldest records of a topic are still there.
//!
//! Not a tool of Kafka. Everything it tells comes over the wire through APIs that any broker serves, so that it works
//! against Apache Kafka as well.

mod facts;
mod verdict;

use serde_json::{Value, json};

use super::common::timeout;
use crate::admin::{Admin, PARTITIONS_PER_RESPONSE};
use crate::failure::Failure;
use crate::io::{End, Io};
use crate::options::{CommandOptions, Kind, OptionParser, Spec, value};
use crate::output::{Format, pretty_table};
use facts::{collect, rules};
use verdict::{Explanation, Facts, Rules, duration, explain, size_text, time_text};

const USAGE: &str = "bitacora topics explain-retention TOPIC --bootstrap-server HOST:PORT [-o json|yaml]\n\
                     Says of each partition how old its oldest record is, why it is still there, when it goes and how \
                     much that frees.";

fn specs() -> Vec<Spec> {
    vec![
        value("bootstrap-server", "REQUIRED: a broker to start from.").described("server to connect to"),
        value("command-config", "A file of client properties.").described("config file"),
        value(
            "max-read-bytes",
            "How much of each partition to read, from its start, to find where its oldest segment ends.",
        )
        .kind(Kind::Long)
        .described("bytes")
        .default_value("67108864"),
    ]
}

pub async fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let result = execute(arguments, io).await;
    result.map_err(|failure| failure.report(|failure| io.error_line(format!("Error: {failure}"))))
}

async fn execute(arguments: &[String], io: &mut Io) -> Result<(), Failure> {
    let parser: OptionParser = CommandOptions::declare(specs());
    let topic = arguments.first().filter(|word| !word.starts_with('-'));
    let rest = arguments.get(usize::from(topic.is_some())..).unwrap_or_default();
    let options = CommandOptions::parse(parser, rest)?;
    let Some(topic) = topic else { return Err(options.usage_and_exit(USAGE, io).into()) };
    options.maybe_help_or_version(USAGE, io)?;
    options.check_required(&["bootstrap-server"], io)?;
    let set = &options.options;
    let format = Format::of(set)?;
    let bootstrap = set.value_of("bootstrap-server")?;
    let config = set.given("command-config")?;
    let admin = Admin::connect(bootstrap.as_deref(), config.as_deref(), timeout(set)?)?;
    let max_read_bytes =
        set.long("max-read-bytes")?.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(64 << 20);
    let described = admin.describe_topics(std::slice::from_ref(topic), PARTITIONS_PER_RESPONSE).await?;
    let Some(described) = described.into_iter().next() else {
        return Err(Failure::illegal_argument(format!("Topic '{topic}' does not exist")));
    };
    let leader = described.partitions.iter().find_map(|partition| partition.leader);
    let rules = rules(&admin, topic, leader).await?;
    let (facts, without_leader) = collect(&admin, &described, &rules, max_read_bytes).await?;
    let now_ms = crate::now_ms();
    let explained: Vec<(Facts, Explanation)> = facts
        .into_iter()
        .map(|facts| {
            let explanation = explain(&facts, &rules, now_ms);
            (facts, explanation)
        })
        .collect();
    let document = || document(topic, &rules, &explained, &without_leader, now_ms);
    if !format.emit(document, io) {
        show(&rules, &explained, &without_leader, now_ms, io);
    }
    Ok(())
}

fn document(
    topic: &str,
    rules: &Rules,
    explained: &[(Facts, Explanation)],
    without_leader: &[i32],
    now_ms: i64,
) -> Value {
    let partitions = explained.iter().map(|(facts, explanation)| {
        let segment = facts.segment.as_ref();
        let known = |value: i64| Some(value).filter(|value| *value >= 0);
        let oldest = segment.and_then(|segment| known(segment.oldest_timestamp));
        let mut value = json!({
            "partition": facts.partition,
            "logStartOffset": facts.log_start_offset,
            "highWatermark": facts.high_watermark,
            "size": facts.size,
            "oldestTimestamp": oldest,
            "ageMs": oldest.map(|oldest| now_ms.saturating_sub(oldest)),
            "segment": segment.map(|segment| json!({
                "nextOffset": segment.next_offset,
                "bytes": segment.bytes,
                "largestTimestamp": known(segment.largest_timestamp),
                "active": segment.is_active,
                "exact": segment.is_exact,
            })),
        });
        if let (Value::Object(all), Value::Object(more)) = (&mut value, explanation.value()) {
            all.extend(more);
        }
        value
    });
    json!({
        "topic": topic,
        "time": now_ms,
        "cleanupPolicy": match (rules.compact, rules.delete) {
            (true, true) => "compact,delete",
            (true, false) => "compact",
            (false, true) => "delete",
            (false, false) => "",
        },
        "retentionMs": rules.retention_ms,
        "retentionBytes": rules.retention_bytes,
        "segmentMs": rules.segment_ms,
        "segmentBytes": rules.segment_bytes,
        "fileDeleteDelayMs": rules.file_delete_delay_ms,
        "retentionCheckIntervalMs": rules.check_interval_ms,
        "partitions": partitions.collect::<Vec<_>>(),
        "withoutLeader": without_leader,
    })
}

fn show(rules: &Rules, explained: &[(Facts, Explanation)], without_leader: &[i32], now_ms: i64, io: &mut Io) {
    let headers = ["PARTITION", "OLDEST-OFFSET", "OLDEST-RECORD", "AGE", "WHY", "GOES", "FREES"];
    let mut is_estimated = false;
    let rows: Vec<Vec<String>> = explained
        .iter()
        .map(|(facts, explanation)| {
            let segment = facts.segment.as_ref();
            let oldest = segment.map(|segment| segment.oldest_timestamp).filter(|oldest| *oldest >= 0);
            let about = if segment.is_some_and(|segment| !segment.is_exact) { "~" } else { "" };
            is_estimated |= !about.is_empty();
            vec![
                facts.partition.to_string(),
                facts.log_start_offset.to_string(),
                oldest.map_or("-".to_owned(), time_text),
                oldest.map_or("-".to_owned(), |oldest| duration(now_ms.saturating_sub(oldest))),
                explanation.why.clone(),
                format!("{about}{}", explanation.goes),
                explanation.frees.map_or("-".to_owned(), |bytes| format!("{about}{}", size_text(bytes))),
            ]
        })
        .collect();
    pretty_table(&headers, &rows, io);
    for partition in without_leader {
        io.line(format!("Partition {partition} has no leader."));
    }
    if is_estimated {
        io.line("~ The end of the oldest segment was not reached; --max-read-bytes sets how much is read.");
    }
    if rules.delete && rules.retention_ms >= 0 && rules.segment_ms > rules.retention_ms {
        io.line(format!(
            "segment.ms ({}) outlives retention.ms ({}): where little is written, records stay up to {} longer than \
             retention.ms says.",
            duration(rules.segment_ms),
            duration(rules.retention_ms),
            duration(rules.segment_ms)
        ));
    }
    if explained.iter().any(|(_, explanation)| explanation.frees.is_some()) {
        io.line(format!(
            "Removed files give their room back {} later (file.delete.delay.ms).",
            duration(rules.file_delete_delay_ms)
        ));
    }
}
