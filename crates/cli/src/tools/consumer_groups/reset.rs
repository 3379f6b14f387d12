//! `--reset-offsets` with all its scenarios, and `--delete-offsets`.

use std::collections::{BTreeMap, BTreeSet};

use client::offsets::{CommittedOffset, Membership, commit};
use client::{ApiError, ClientError};
use protocol::ErrorCode;
use protocol::messages::OffsetDeleteRequest;
use protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use record::TopicPartition;
use serde_json::{Value, json};

use super::{SCENARIOS, Tool, print_error};
use crate::admin::PARTITIONS_PER_RESPONSE;
use crate::failure::Failure;
use crate::io::Io;
use crate::text::{parse_datetime, parse_duration};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const LOGGER: &str = "org.apache.kafka.tools.GroupOffsetsResetter";

type Offsets = BTreeMap<TopicPartition, i64>;

impl Tool<'_> {
    pub(super) async fn reset(&self, io: &mut Io) -> Result<(), Failure> {
        let mut plan: BTreeMap<String, Offsets> = BTreeMap::new();
        for group in self.selected().await? {
            let state = match self.description(&group).await {
                Ok(description) => description.state,
                Err(Failure::Text { exception: "java.util.concurrent.ExecutionException", message })
                    if message.contains("GroupIdNotFoundException") =>
                {
                    "Dead".to_owned()
                }
                Err(failure) => return Err(failure),
            };
            let offsets = match state.as_str() {
                "Empty" | "Dead" => self.reset_group(&group, io).await?,
                state => {
                    let message = format!(
                        "Assignments can only be reset if the group '{group}' is inactive, but the current state is \
                         {state}."
                    );
                    print_error(&message, io);
                    Offsets::new()
                }
            };
            plan.insert(group, offsets);
        }
        let rows =
            || plan.iter().flat_map(|(group, offsets)| offsets.iter().map(move |entry| (group, entry)));
        let value = || {
            let row = |(group, (partition, offset)): (&String, (&TopicPartition, &i64))| {
                json!({
                    "group": group,
                    "topic": &*partition.topic,
                    "partition": partition.partition,
                    "newOffset": offset,
                })
            };
            Value::Array(rows().map(row).collect())
        };
        if self.format.emit(value, io) {
            return Ok(());
        }
        if self.options.has("export") {
            let single = self.options.options.values_of("group")?.len() == 1;
            let line = |(group, (partition, offset)): (&String, (&TopicPartition, &i64))| {
                let group = if single { String::new() } else { format!("{},", csv(group)) };
                format!("{group}{},{},{offset}\n", csv(&partition.topic), partition.partition)
            };
            io.line(rows().map(line).collect::<String>());
            return Ok(());
        }
        let widest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0).max(15);
        let group_width = widest(&mut plan.keys().map(|group| group.chars().count()));
        let topic_width = widest(&mut rows().map(|(_, (partition, _))| partition.topic.chars().count()));
        if !plan.is_empty() {
            let header = ("GROUP", "TOPIC", "PARTITION");
            let (group, topic, partition) = header;
            io.print(format!("\n{group:<group_width$} {topic:<topic_width$} {partition:<10} NEW-OFFSET"));
        }
        for (group, (partition, offset)) in rows() {
            let (topic, number) = (&partition.topic, partition.partition);
            io.print(format!("\n{group:<group_width$} {topic:<topic_width$} {number:<10} {offset}"));
        }
        io.line("");
        Ok(())
    }

    async fn reset_group(&self, group: &str, io: &mut Io) -> Result<Offsets, Failure> {
        let partitions = self.scope(group, io).await?;
        self.check_valid(&partitions).await?;
        let offsets = self.prepare(group, &partitions, io).await?;
        if self.options.has("execute") && !self.options.has("dry-run") {
            let committed = |(partition, offset): (&TopicPartition, &i64)| {
                let committed =
                    CommittedOffset { offset: *offset, leader_epoch: -1, metadata: String::new() };
                (partition.clone(), committed)
            };
            let offsets: BTreeMap<TopicPartition, CommittedOffset> = offsets.iter().map(committed).collect();
            let outside = Membership::none();
            let results = self.admin.retry(|| commit(&self.admin.cluster, group, &outside, &offsets)).await?;
            if let Some(code) = results.values().find(|code| code.is_error()) {
                return Err(ClientError::from(*code).into());
            }
        }
        Ok(offsets)
    }

    async fn scope(&self, group: &str, io: &mut Io) -> Result<Vec<TopicPartition>, Failure> {
        if self.options.has("all-topics") {
            return Ok(self.committed(group).await?.into_keys().collect());
        }
        if self.options.has("topic") {
            return self.named_partitions(&self.options.options.values_of("topic")?).await;
        }
        if !self.options.has("from-file") {
            let message = "One of the reset scopes should be defined: --all-topics, --topic.";
            return Err(self.options.usage_and_exit(message, io).into());
        }
        Ok(Vec::new())
    }

    /// `topic` stands for all its partitions, `topic:0,1` for these.
    async fn named_partitions(&self, topics: &[String]) -> Result<Vec<TopicPartition>, Failure> {
        let (exact, whole): (Vec<&String>, Vec<&String>) =
            topics.iter().partition(|topic| topic.contains(':'));
        let mut partitions = Vec::new();
        for argument in exact {
            partitions.extend(parse_partitions(argument)?);
        }
        let whole: Vec<String> = whole.into_iter().cloned().collect();
        for topic in self.admin.describe_topics(&whole, PARTITIONS_PER_RESPONSE).await? {
            let name: std::sync::Arc<str> = topic.name.as_str().into();
            partitions.extend(
                topic
                    .partitions
                    .iter()
                    .map(|info| TopicPartition { topic: name.clone(), partition: info.partition }),
            );
        }
        Ok(partitions)
    }

    async fn check_valid(&self, partitions: &[TopicPartition]) -> Result<(), Failure> {
        let topics: BTreeSet<String> =
            partitions.iter().map(|partition| partition.topic.to_string()).collect();
        let topics: Vec<String> = topics.into_iter().collect();
        let mut leaders = BTreeMap::new();
        for topic in self.admin.describe_topics(&topics, PARTITIONS_PER_RESPONSE).await? {
            for info in topic.partitions {
                leaders.insert((topic.name.clone(), info.partition), info.leader);
            }
        }
        let leader =
            |partition: &TopicPartition| leaders.get(&(partition.topic.to_string(), partition.partition));
        let list = |wrong: &dyn Fn(&TopicPartition) -> bool| {
            let listed: Vec<String> =
                partitions.iter().filter(|partition| wrong(partition)).map(ToString::to_string).collect();
            listed.join(",")
        };
        let missing = list(&|partition| leader(partition).is_none());
        if !missing.is_empty() {
            let message = format!("The partitions \"{missing}\" do not exist");
            return Err(ApiError::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, Some(message)).into());
        }
        let leaderless = list(&|partition| leader(partition) == Some(&None));
        if !leaderless.is_empty() {
            let message = format!("The partitions \"{leaderless}\" have no leader");
            return Err(ApiError::new(ErrorCode::LEADER_NOT_AVAILABLE, Some(message)).into());
        }
        Ok(())
    }

    async fn prepare(
        &self,
        group: &str,
        partitions: &[TopicPartition],
        io: &mut Io,
    ) -> Result<Offsets, Failure> {
        let set = &self.options.options;
        let has = |scenario: &str| self.options.has(scenario);
        if has("to-offset") {
            let offset = set.longs("to-offset")?.first().copied().unwrap_or(0);
            let wanted = partitions.iter().map(|partition| (partition.clone(), offset)).collect();
            return self.in_range(wanted, io).await;
        }
        if has("to-earliest") {
            return self.at(partitions, EARLIEST, "starting offset").await;
        }
        if has("to-latest") {
            return self.at(partitions, LATEST, "ending offset").await;
        }
        if has("shift-by") {
            let shift = set.long("shift-by")?.unwrap_or(0);
            let committed = self.committed(group).await?;
            let mut wanted = Offsets::new();
            for partition in partitions {
                let current = committed.get(partition).ok_or_else(|| {
                    Failure::illegal_argument(format!(
                        "Cannot shift offset for partition {partition} since there is no current committed offset"
                    ))
                })?;
                wanted.insert(partition.clone(), current.offset.saturating_add(shift));
            }
            return self.in_range(wanted, io).await;
        }
        if has("to-datetime") {
            let text = set.values_of("to-datetime")?.into_iter().next().unwrap_or_default();
            let unparseable = || {
                let message = format!("java.text.ParseException: Error parsing timestamp with value: {text}");
                Failure::text("java.lang.RuntimeException", message)
            };
            let timestamp = parse_datetime(&text).ok_or_else(unparseable)?;
            return self.at_timestamp(partitions, timestamp, io).await;
        }
        if has("by-duration") {
            let text = set.value_of("by-duration")?.unwrap_or_default();
            let unparseable = || {
                Failure::text(
                    "java.time.format.DateTimeParseException",
                    "Text cannot be parsed to a Duration",
                )
            };
            let back = parse_duration(&text).ok_or_else(unparseable)?;
            return self.at_timestamp(partitions, crate::now_ms() - back, io).await;
        }
        if has("from-file") {
            return self.read_plan(group, io).await;
        }
        if has("to-current") {
            return self.to_current(group, partitions).await;
        }
        let scenarios: Vec<String> = SCENARIOS.iter().map(|scenario| format!("[{scenario}]")).collect();
        let message = format!(
            "Option '[reset-offsets]' requires one of the following scenarios: [{}]",
            scenarios.join(", ")
        );
        Err(self.options.usage_and_exit(&message, io).into())
    }

    async fn at(
        &self,
        partitions: &[TopicPartition],
        timestamp: i64,
        what: &str,
    ) -> Result<Offsets, Failure> {
        let mut offsets = Offsets::new();
        for (partition, listed) in self.admin.list_offsets(partitions, timestamp, 0).await? {
            let error = |_| {
                Failure::illegal_argument(format!("Error getting {what} of topic partition: {partition}"))
            };
            let offset = listed.map_err(error)?.offset;
            offsets.insert(partition, offset);
        }
        Ok(offsets)
    }

    /// Offsets beyond the log are moved to its ends, with a warning.
    async fn in_range(&self, wanted: Offsets, io: &mut Io) -> Result<Offsets, Failure> {
        let partitions: Vec<TopicPartition> = wanted.keys().cloned().collect();
        let starts = self.at(&partitions, EARLIEST, "starting offset").await?;
        let ends = self.at(&partitions, LATEST, "ending offset").await?;
        let mut offsets = Offsets::new();
        for (partition, offset) in wanted {
            let (start, end) = (starts.get(&partition).copied(), ends.get(&partition).copied());
            let moved = match (start, end) {
                (_, Some(end)) if offset > end => Some(("higher than latest", end)),
                (Some(start), _) if offset < start => Some(("lower than earliest", start)),
                _ => None,
            };
            if let Some((how, limit)) = moved {
                let message = format!(
                    "New offset ({offset}) is {how} offset for topic partition {partition}. Value will be set to \
                     {limit}."
                );
                io.log("WARN", &message, LOGGER);
            }
            offsets.insert(partition, moved.map_or(offset, |(_, limit)| limit));
        }
        Ok(offsets)
    }

    async fn at_timestamp(
        &self,
        partitions: &[TopicPartition],
        timestamp: i64,
        io: &mut Io,
    ) -> Result<Offsets, Failure> {
        let mut offsets = self.at(partitions, timestamp, "offset by timestamp").await?;
        let empty: Vec<TopicPartition> = offsets
            .iter()
            .filter(|(_, offset)| **offset == -1)
            .map(|(partition, _)| partition.clone())
            .collect();
        for partition in &empty {
            io.line(format!(
                "\nWarn: Partition {} from topic {} is empty. Falling back to latest known offset.",
                partition.partition, partition.topic
            ));
        }
        if !empty.is_empty() {
            offsets.extend(self.at(&empty, LATEST, "ending offset").await?);
        }
        Ok(offsets)
    }

    async fn to_current(&self, group: &str, partitions: &[TopicPartition]) -> Result<Offsets, Failure> {
        let committed = self.committed(group).await?;
        let mut offsets = Offsets::new();
        let mut without = Vec::new();
        for partition in partitions {
            match committed.get(partition) {
                Some(found) => drop(offsets.insert(partition.clone(), found.offset)),
                None => without.push(partition.clone()),
            }
        }
        if !without.is_empty() {
            offsets.extend(self.at(&without, LATEST, "ending offset").await?);
        }
        Ok(offsets)
    }

    /// Lines of `topic,partition,offset`, or with the group in front.
    async fn read_plan(&self, group: &str, io: &mut Io) -> Result<Offsets, Failure> {
        let set = &self.options.options;
        let path = set.values_of("from-file")?.into_iter().next().unwrap_or_default();
        let unreadable = |_| {
            Failure::text("java.lang.RuntimeException", format!("java.nio.file.NoSuchFileException: {path}"))
        };
        let text = std::fs::read_to_string(&path).map_err(unreadable)?;
        let single = set.values_of("group")?.len() == 1;
        let mut plans: BTreeMap<String, Offsets> = BTreeMap::new();
        for line in text.split('\n').filter(|line| !line.trim().is_empty()) {
            let cells: Vec<String> = line.trim_end_matches('\r').split(',').map(uncsv).collect();
            let parsed = match cells.as_slice() {
                [topic, partition, offset] if single => row(group, topic, partition, offset),
                [group, topic, partition, offset] => row(group, topic, partition, offset),
                _ => None,
            };
            let unparseable = || {
                Failure::text("java.lang.RuntimeException", format!("{path}: cannot read the line '{line}'"))
            };
            let (group, partition, offset) = parsed.ok_or_else(unparseable)?;
            plans.entry(group).or_default().insert(partition, offset);
        }
        match plans.remove(group) {
            Some(plan) => self.in_range(plan, io).await,
            None => {
                print_error(&format!("No reset plan for group {group} found."), io);
                Ok(Offsets::new())
            }
        }
    }

    pub(super) async fn delete_offsets(&self, io: &mut Io) -> Result<(), Failure> {
        let set = &self.options.options;
        let group = set.value_of("group")?.unwrap_or_default();
        let mut results: BTreeMap<(String, i32), Option<String>> = BTreeMap::new();
        let mut partitions = Vec::new();
        for topic in set.values_of("topic")? {
            match self.named_partitions(std::slice::from_ref(&topic)).await {
                Ok(found) => partitions.extend(found),
                Err(Failure::Api(error)) => {
                    let shown = format!("{}: {error}", error.exception());
                    results.insert((topic, -1), Some(shown));
                }
                Err(other) => return Err(other),
            }
        }
        let (top, answered) = self.send_delete_offsets(&group, &partitions).await?;
        results.extend(answered);
        if self.format.emit(|| delete_value(&results), io) {
            return Ok(());
        }
        match top {
            ErrorCode::NONE => io.line(format!("Request succeeded for deleting offsets from group {group}.")),
            ErrorCode::INVALID_GROUP_ID
            | ErrorCode::GROUP_ID_NOT_FOUND
            | ErrorCode::GROUP_AUTHORIZATION_FAILED
            | ErrorCode::NON_EMPTY_GROUP => print_error(top.message(), io),
            ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC
            | ErrorCode::TOPIC_AUTHORIZATION_FAILED
            | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {
                print_error("Encountered some partition-level error, see the follow-up details.", io);
            }
            other => print_error(&format!("Encountered some unknown error: {}", other.name()), io),
        }
        let topic_width = results.keys().map(|(topic, _)| topic.chars().count()).max().unwrap_or(0).max(15);
        let mut line = |topic: &str, partition: &str, status: &str| {
            io.print(format!("\n{topic:<topic_width$} {partition:<10} {status:<15}"));
        };
        line("TOPIC", "PARTITION", "STATUS");
        for ((topic, partition), error) in &results {
            let partition = if *partition < 0 { "-".to_owned() } else { partition.to_string() };
            let status = error.as_ref().map_or("Successful".to_owned(), |error| format!("Error: {error}"));
            line(topic, &partition, &status);
        }
        io.line("");
        Ok(())
    }

    /// The code for the whole request, and each partition's own error.
    async fn send_delete_offsets(
        &self,
        group: &str,
        partitions: &[TopicPartition],
    ) -> Result<(ErrorCode, BTreeMap<(String, i32), Option<String>>), Failure> {
        let topics = client::offsets::by_topic(partitions).into_iter().map(|(name, numbers)| {
            OffsetDeleteRequestTopic {
                name,
                partitions: numbers
                    .into_iter()
                    .map(|partition_index| OffsetDeleteRequestPartition { partition_index })
                    .collect(),
            }
        });
        let request = OffsetDeleteRequest { group_id: group.to_owned(), topics: topics.collect() };
        let response =
            self.admin.send_to_coordinator(group, &request, |response| response.error_code).await?;
        let top = ErrorCode::from_code(response.error_code);
        let shown = |code: ErrorCode| {
            let error = ApiError::new(code, None);
            code.is_error().then(|| format!("{}: {error}", error.exception()))
        };
        let key = |partition: &TopicPartition| (partition.topic.to_string(), partition.partition);
        let mut results: BTreeMap<(String, i32), Option<String>> =
            partitions.iter().map(|partition| (key(partition), shown(top))).collect();
        let mut first = top;
        for topic in response.topics {
            for partition in topic.partitions {
                let code = ErrorCode::from_code(partition.error_code);
                if code.is_error() && !first.is_error() {
                    first = code;
                }
                results.insert((topic.name.clone(), partition.partition_index), shown(code));
            }
        }
        Ok((first, results))
    }
}

fn delete_value(results: &BTreeMap<(String, i32), Option<String>>) -> Value {
    let row = |((topic, partition), error): (&(String, i32), &Option<String>)| json!({ "topic": topic, "partition": partition, "error": error });
    Value::Array(results.iter().map(row).collect())
}

fn row(group: &str, topic: &str, partition: &str, offset: &str) -> Option<(String, TopicPartition, i64)> {
    let partition = TopicPartition { topic: topic.into(), partition: partition.trim().parse().ok()? };
    Some((group.to_owned(), partition, offset.trim().parse().ok()?))
}

fn parse_partitions(argument: &str) -> Result<Vec<TopicPartition>, Failure> {
    let parts: Vec<&str> = argument.split(':').collect();
    let &[topic, numbers] = parts.as_slice() else {
        let message = format!("Invalid topic arg '{argument}', expected topic name and partitions");
        return Err(Failure::illegal_argument(message));
    };
    let topic: std::sync::Arc<str> = topic.into();
    let parse = |number: &str| {
        let message = || format!("Invalid partition '{number}' specified in topic arg '{argument}''");
        let partition = number.parse().map_err(|_| Failure::illegal_argument(message()))?;
        Ok(TopicPartition { topic: topic.clone(), partition })
    };
    numbers.split(',').map(parse).collect()
}

/// A CSV cell, quoted when it has to be.
fn csv(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

fn uncsv(cell: &str) -> String {
    match cell.strip_prefix('"').and_then(|cell| cell.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => cell.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_an_argument_are_checked() {
        let found = parse_partitions("t:0,2").unwrap();
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), ["t-0", "t-2"]);
        let table = [
            ("t:x", "Invalid partition 'x' specified in topic arg 't:x''"),
            ("t:0:1", "Invalid topic arg 't:0:1', expected topic name and partitions"),
        ];
        for (argument, message) in table {
            assert_eq!(parse_partitions(argument).unwrap_err().to_string(), message);
        }
    }
}
