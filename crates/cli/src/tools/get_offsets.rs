//! kafka-get-offsets: prints `topic:partition:offset`.

use std::collections::BTreeSet;

use fancy_regex::Regex;
use record::TopicPartition;
use serde_json::{Value, json};

use super::common::{timeout, validate_bootstrap};
use crate::admin::{Admin, PARTITIONS_PER_RESPONSE, load_config};
use crate::failure::Failure;
use crate::filter::TopicFilter;
use crate::io::{End, Io};
use crate::options::{CommandOptions, Spec, flag, value};
use crate::output::Format;

const USAGE: &str = "An interactive shell for getting topic-partition offsets.";
const TERSE: &str = "org.apache.kafka.tools.TerseException";
const RULE: &str = "^([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?$";

fn specs() -> Vec<Spec> {
    vec![
        value("bootstrap-server", "REQUIRED: brokers to start from.").described("HOST1:PORT1,...,HOST3:PORT3"),
        value(
            "topic-partitions",
            "Patterns of partitions: a regular expression of topics, then `:` and a number, FROM-TO (without TO), \
             FROM- or -TO.",
        )
        .described("topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3"),
        value("topic", "A regular expression of topics; all topics when it is not given.").described("topic"),
        value("partitions", "Partition numbers; all partitions when it is not given.").described("partition ids"),
        value("time", "Which offset: of the first record from a timestamp on, or one of the names.")
            .described(
                "<timestamp> / -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or earliest-local / -5 or \
                 latest-tiered / -6 or earliest-pending-upload",
            )
            .default_value("latest"),
        value("command-config", "A file of client properties.").described("config file"),
        flag("exclude-internal-topics", "Leave internal topics out."),
    ]
}

pub async fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let result = act(arguments, io).await;
    result.map_err(|failure| {
        failure.report(|failure| {
            io.error_line(format!("Error occurred: {failure}"));
            if !matches!(failure, Failure::Text { exception: TERSE, .. }) {
                io.error_line(format!("{}\n", failure.as_exception()));
            }
        })
    })
}

fn terse(message: impl Into<String>) -> Failure {
    Failure::text(TERSE, message)
}

async fn act(arguments: &[String], io: &mut Io) -> Result<(), Failure> {
    let parser = CommandOptions::declare(specs());
    let options = CommandOptions::parse(parser, arguments).map_err(|error| terse(error.to_string()))?;
    options.maybe_help_or_version(USAGE, io)?;
    options.check_required(&["bootstrap-server"], io)?;
    let set = &options.options;
    let bootstrap = set.value_of("bootstrap-server")?;
    validate_bootstrap(bootstrap.as_deref()).map_err(|message| options.usage_and_exit(message, io))?;
    if options.has("topic-partitions") && (options.has("topic") || options.has("partitions")) {
        return Err(terse("--topic-partitions cannot be used with --topic or --partitions"));
    }
    let timestamp = parse_time(&set.value_of("time")?.unwrap_or_default())?;
    let rules = match set.given("topic-partitions")? {
        Some(patterns) => patterns.split(',').map(parse_rule).collect::<Result<Vec<_>, _>>()?,
        None => vec![Rule {
            topics: TopicFilter::new(&set.given("topic")?.unwrap_or_else(|| ".*".to_owned()))?,
            partitions: Partitions::Set(parse_partitions(set.given("partitions")?)?),
        }],
    };
    let mut config = match set.given("command-config")? {
        Some(file) => load_config(&file)?,
        None => client::ClientConfig::new(),
    };
    config.set("bootstrap.servers", bootstrap.unwrap_or_default()).set("client.id", "GetOffsetShell");
    let admin = Admin::new(config, timeout(set)?)?;
    let mut partitions = matching(&admin, &rules, !options.has("exclude-internal-topics")).await?;
    if partitions.is_empty() {
        return Err(terse("Could not match any topic-partitions with the specified filters"));
    }
    // The reference sorts by the text, so that partition 10 comes before partition 2.
    partitions.sort_by_key(ToString::to_string);
    let offsets = admin.list_offsets(&partitions, timestamp, 0).await?;
    let format = Format::of(set)?;
    let mut rows = Vec::new();
    for partition in &partitions {
        match offsets.get(partition) {
            Some(Ok(listed)) if listed.offset != -1 => rows.push((partition, listed.offset)),
            Some(Err(error)) => io.error_line(format!(
                "Skip getting offsets for topic-partition {partition} due to error: {}: {error}",
                error.exception()
            )),
            _ => {}
        }
    }
    let value = || {
        let row = |(partition, offset): &(&TopicPartition, i64)| json!({ "topic": &*partition.topic, "partition": partition.partition, "offset": offset });
        Value::Array(rows.iter().map(row).collect())
    };
    if !format.emit(value, io) {
        for (partition, offset) in &rows {
            io.line(format!("{}:{}:{offset}", partition.topic, partition.partition));
        }
    }
    Ok(())
}

async fn matching(admin: &Admin, rules: &[Rule], internal: bool) -> Result<Vec<TopicPartition>, Failure> {
    let mut topics = admin.topic_names(internal).await?;
    topics.retain(|topic| rules.iter().any(|rule| rule.topics.allows(topic, false)));
    let mut partitions = Vec::new();
    for topic in admin.describe_topics(&topics, PARTITIONS_PER_RESPONSE).await? {
        let name: std::sync::Arc<str> = topic.name.as_str().into();
        for info in topic.partitions {
            let allowed =
                |rule: &Rule| rule.topics.allows(&topic.name, false) && rule.partitions.allow(info.partition);
            if rules.iter().any(allowed) {
                partitions.push(TopicPartition { topic: name.clone(), partition: info.partition });
            }
        }
    }
    Ok(partitions)
}

/// The timestamp that ListOffsets takes for a name or a number.
fn parse_time(text: &str) -> Result<i64, Failure> {
    Ok(match text {
        "latest" => -1,
        "earliest" => -2,
        "max-timestamp" => -3,
        "earliest-local" => -4,
        "latest-tiered" => -5,
        "earliest-pending-upload" => -6,
        number => number.parse().map_err(|_| {
            terse(format!(
                "Malformed time argument {number}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / -4 \
                 or earliest-local / -5 or latest-tiered / -6 or earliest-pending-upload, or a specified long format \
                 timestamp"
            ))
        })?,
    })
}

enum Partitions {
    /// All when empty.
    Set(BTreeSet<i32>),
    Range {
        from: i32,
        to: i32,
    },
}

impl Partitions {
    fn allow(&self, partition: i32) -> bool {
        match self {
            Partitions::Set(numbers) => numbers.is_empty() || numbers.contains(&partition),
            Partitions::Range { from, to } => (*from..*to).contains(&partition),
        }
    }
}

struct Rule {
    topics: TopicFilter,
    partitions: Partitions,
}

fn parse_partitions(text: Option<String>) -> Result<BTreeSet<i32>, Failure> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(BTreeSet::new()) };
    let message = || {
        terse(format!(
            "--partitions expects a comma separated list of numeric partition ids, but received: {text}"
        ))
    };
    text.split(',').map(|number| number.parse().map_err(|_| message())).collect()
}

fn parse_rule(text: &str) -> Result<Rule, Failure> {
    let invalid = || {
        Failure::text("java.lang.RuntimeException", format!("{TERSE}: Invalid rule specification: {text}"))
    };
    let pattern = Regex::new(RULE).map_err(|_| invalid())?;
    let found = pattern.captures(text).ok().flatten().ok_or_else(invalid)?;
    let group = |index: usize| found.get(index).map(|group| group.as_str()).filter(|group| !group.is_empty());
    let number = |text: &str| text.parse::<i32>().map_err(|_| invalid());
    let topics = TopicFilter::new(group(1).unwrap_or(".*"))?;
    let partitions = match group(2) {
        Some(one) => Partitions::Set(BTreeSet::from([number(one)?])),
        None => Partitions::Range {
            from: group(3).map_or(Ok(0), number)?,
            to: group(4).map_or(Ok(i32::MAX), number)?,
        },
    };
    Ok(Rule { topics, partitions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_take_single_partitions_and_half_open_ranges() {
        let table = [
            ("t:1", "t", 1, true),
            ("t:1", "t", 2, false),
            ("t:1-3", "t", 2, true),
            ("t:1-3", "t", 3, false),
            ("t:-3", "t", 0, true),
            (":5-", "any", 7, true),
            ("t", "t", 9, true),
            ("t", "u", 9, false),
        ];
        for (text, topic, partition, expected) in table {
            let rule = parse_rule(text).unwrap();
            assert_eq!(
                rule.topics.allows(topic, false) && rule.partitions.allow(partition),
                expected,
                "{text}"
            );
        }
        assert!(parse_rule("t:a").is_err());
    }
}
