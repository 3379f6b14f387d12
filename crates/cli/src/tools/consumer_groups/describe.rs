//! The three views of `--describe`: offsets, members, state.

use std::collections::BTreeMap;

use client::offsets::CommittedOffset;
use record::TopicPartition;
use serde_json::{Value, json};

use super::groups::{Description, Member};
use super::{Tool, print_error};
use crate::failure::Failure;
use crate::io::Io;

const LATEST: i64 = -1;
const MISSING: &str = "-";

/// A line of the offsets view.
struct Row {
    group: String,
    topic: String,
    partition: i32,
    leader_epoch: Option<i32>,
    offset: Option<i64>,
    end: Option<i64>,
    consumer: String,
    host: String,
    client: String,
}

impl Row {
    fn lag(&self) -> Option<i64> {
        Some(self.end? - self.offset?)
    }
}

fn show<T: ToString>(value: Option<T>) -> String {
    value.map_or(MISSING.to_owned(), |value| value.to_string())
}

fn or_missing(text: &str) -> &str {
    if text.is_empty() { MISSING } else { text }
}

impl Tool<'_> {
    pub(super) async fn describe(&self, io: &mut Io) -> Result<(), Failure> {
        let mut groups = self.selected().await?;
        groups.sort();
        groups.dedup();
        let mut descriptions = Vec::new();
        for group in &groups {
            descriptions.push(self.description(group).await?);
        }
        let verbose = self.options.has("verbose");
        let mut values = Vec::new();
        if self.options.has("members") {
            for group in &descriptions {
                values.push(members_value(group));
                if self.format.is_table() && shows(group, io) {
                    print_members(group, verbose, io);
                }
            }
        } else if self.options.has("state") {
            for group in &descriptions {
                values.push(state_value(group));
                if self.format.is_table() && shows(group, io) {
                    print_state(group, verbose, io);
                }
            }
        } else {
            let mut tables = Vec::new();
            for group in &descriptions {
                tables.push((group, self.rows(group).await?));
            }
            for (group, rows) in tables {
                values.extend(rows.iter().map(row_value));
                if self.format.is_table() && shows(group, io) && !rows.is_empty() {
                    print_offsets(&rows, verbose, io);
                }
            }
        }
        self.format.emit(|| Value::Array(values), io);
        Ok(())
    }

    /// Partitions of members first, by the number they have; then those that only have an offset.
    async fn rows(&self, group: &Description) -> Result<Vec<Row>, Failure> {
        let committed = self.committed(&group.id).await?;
        let mut members: Vec<&Member> =
            group.members.iter().filter(|member| !member.partitions.is_empty()).collect();
        members.sort_by_key(|member| std::cmp::Reverse(member.partitions.len()));
        let mut sections: Vec<(Vec<TopicPartition>, [&str; 3])> = members
            .iter()
            .map(|member| (member.partitions.clone(), [&*member.id, &*member.host, &*member.client_id]))
            .collect();
        let is_assigned =
            |partition: &TopicPartition| members.iter().any(|m| m.partitions.contains(partition));
        let rest: Vec<TopicPartition> = committed.keys().filter(|key| !is_assigned(key)).cloned().collect();
        sections.push((rest, [MISSING; 3]));
        let mut rows = Vec::new();
        for (partitions, who) in sections {
            rows.extend(self.section(&group.id, partitions, &committed, who).await?);
        }
        Ok(rows)
    }

    async fn section(
        &self,
        group: &str,
        mut partitions: Vec<TopicPartition>,
        committed: &BTreeMap<TopicPartition, CommittedOffset>,
        [consumer, host, client]: [&str; 3],
    ) -> Result<Vec<Row>, Failure> {
        partitions.sort();
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        let ends = self.admin.list_offsets(&partitions, LATEST, 0).await?;
        let row = |partition: &TopicPartition| {
            let found = committed.get(partition);
            Row {
                group: group.to_owned(),
                topic: partition.topic.to_string(),
                partition: partition.partition,
                leader_epoch: found.map(|found| found.leader_epoch).filter(|epoch| *epoch >= 0),
                offset: found.map(|found| found.offset),
                end: ends.get(partition).and_then(|end| end.as_ref().ok()).map(|end| end.offset),
                consumer: consumer.to_owned(),
                host: host.to_owned(),
                client: client.to_owned(),
            }
        };
        Ok(partitions.iter().map(row).collect())
    }
}

/// Says what the state means for the reader; `false` when there is nothing more to show.
fn shows(group: &Description, io: &mut Io) -> bool {
    let id = &group.id;
    match group.state.as_str() {
        "Dead" => {
            print_error(&format!("Consumer group '{id}' does not exist."), io);
            return false;
        }
        "Empty" => io.error_line(format!("\nConsumer group '{id}' has no active members.")),
        "PreparingRebalance" | "CompletingRebalance" | "Assigning" | "Reconciling" => {
            io.error_line(format!("\nWarning: Consumer group '{id}' is rebalancing."));
        }
        _ => {}
    }
    true
}

fn width<'a>(cells: impl Iterator<Item = &'a str>, least: usize) -> usize {
    cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(least)
}

fn print_offsets(rows: &[Row], verbose: bool, io: &mut Io) {
    let group_width = width(rows.iter().map(|row| row.group.as_str()), 15);
    let topic_width = width(rows.iter().map(|row| row.topic.as_str()), 15);
    let consumer_width = width(rows.iter().map(|row| row.consumer.as_str()), 15);
    let host_width = width(rows.iter().map(|row| row.host.as_str()), 15);
    let mut line = |cells: [&str; 10]| {
        let [group, topic, partition, epoch, offset, end, lag, consumer, host, client] = cells;
        let epoch = if verbose { format!("{epoch:<15} ") } else { String::new() };
        io.print(format!(
            "\n{group:<group_width$} {topic:<topic_width$} {partition:<10} {epoch}{offset:<15} {end:<15} {lag:<15} \
             {consumer:<consumer_width$} {host:<host_width$} {client}"
        ));
    };
    line([
        "GROUP",
        "TOPIC",
        "PARTITION",
        "LEADER-EPOCH",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    ]);
    for row in rows {
        let (partition, epoch) = (row.partition.to_string(), show(row.leader_epoch));
        let (offset, end, lag) = (show(row.offset), show(row.end), show(row.lag()));
        let who = [row.consumer.as_str(), &row.host, &row.client];
        line([&row.group, &row.topic, &partition, &epoch, &offset, &end, &lag, who[0], who[1], who[2]]);
    }
    io.line("");
}

fn row_value(row: &Row) -> Value {
    json!({
        "group": row.group,
        "topic": row.topic,
        "partition": row.partition,
        "leaderEpoch": row.leader_epoch,
        "currentOffset": row.offset,
        "logEndOffset": row.end,
        "lag": row.lag(),
        "consumerId": row.consumer,
        "host": row.host,
        "clientId": row.client,
    })
}

/// `topic:0,1;other:2`.
fn assignment(partitions: &[TopicPartition]) -> String {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        topics.entry(&partition.topic).or_default().push(partition.partition);
    }
    let one = |(topic, mut numbers): (&str, Vec<i32>)| {
        numbers.sort_unstable();
        let listed: Vec<String> = numbers.iter().map(i32::to_string).collect();
        format!("{topic}:{}", listed.join(","))
    };
    let mut listed: Vec<String> = topics.into_iter().map(one).collect();
    listed.sort();
    or_missing(&listed.join(";")).to_owned()
}

fn print_members(group: &Description, verbose: bool, io: &mut Io) {
    let members = &group.members;
    let least = if members.is_empty() { 0 } else { group.id.chars().count() };
    let group_width = least.max(15);
    let id_width = width(members.iter().map(|member| member.id.as_str()), 15);
    let instance_width = width(members.iter().map(|member| member.instance_id.as_str()), 17);
    let host_width = width(members.iter().map(|member| member.host.as_str()), 15);
    let client_width = width(members.iter().map(|member| member.client_id.as_str()), 15);
    let current: Vec<String> = members.iter().map(|member| assignment(&member.partitions)).collect();
    let target: Vec<String> = members.iter().map(|member| assignment(&member.target)).collect();
    let current_width = width(current.iter().map(String::as_str), 20);
    let target_width = width(target.iter().map(String::as_str), 20);
    let with_instance = members.iter().any(|member| !member.instance_id.is_empty());
    let any = |upgraded: bool| members.iter().any(|member| member.upgraded == Some(upgraded));
    let migrating = any(false) && any(true);
    io.print("\n");
    let mut line = |cells: [&str; 11]| {
        let [group, id, instance, host, client, count, epoch, current, target_epoch, target, upgraded] =
            cells;
        let instance = if with_instance { format!("{instance:<instance_width$} ") } else { String::new() };
        let mut text = format!(
            "{group:<group_width$} {id:<id_width$} {instance}{host:<host_width$} {client:<client_width$} {count:<15} "
        );
        if verbose {
            text.push_str(&format!(
                "{epoch:<15} {current:<current_width$} {target_epoch:<15} {target:<target_width$}"
            ));
            if migrating {
                text.push_str(&format!(" {upgraded}"));
            }
        }
        io.line(text);
    };
    line([
        "GROUP",
        "CONSUMER-ID",
        "GROUP-INSTANCE-ID",
        "HOST",
        "CLIENT-ID",
        "#PARTITIONS",
        "CURRENT-EPOCH",
        "CURRENT-ASSIGNMENT",
        "TARGET-EPOCH",
        "TARGET-ASSIGNMENT",
        "UPGRADED",
    ]);
    for ((member, current), target) in members.iter().zip(&current).zip(&target) {
        let count = member.partitions.len().to_string();
        let (epoch, target_epoch) = (show(member.epoch), show(group.assignment_epoch));
        let upgraded = show(member.upgraded);
        let who = [&*member.instance_id, &*member.host, &*member.client_id];
        let [instance, host, client] = who;
        line([
            &group.id,
            &member.id,
            instance,
            host,
            client,
            &count,
            &epoch,
            current,
            &target_epoch,
            target,
            &upgraded,
        ]);
    }
}

fn members_value(group: &Description) -> Value {
    let member = |member: &Member| {
        json!({
            "consumerId": member.id,
            "groupInstanceId": member.instance_id,
            "host": member.host,
            "clientId": member.client_id,
            "epoch": member.epoch,
            "assignment": member.partitions.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    };
    json!({ "group": group.id, "state": group.state, "members": group.members.iter().map(member).collect::<Vec<_>>() })
}

fn coordinator(group: &Description) -> String {
    match &group.coordinator {
        Some(node) => format!("{}:{}  ({})", node.host, node.port, node.id),
        None => MISSING.to_owned(),
    }
}

fn print_state(group: &Description, verbose: bool, io: &mut Io) {
    let coordinator = coordinator(group);
    let coordinator_width = coordinator.chars().count().max(25);
    let group_width = group.id.chars().count().max(15);
    let members = group.members.len().to_string();
    let (epoch, assignment_epoch) = (show(group.group_epoch), show(group.assignment_epoch));
    let mut line = |cells: [&str; 7]| {
        let [group, coordinator, strategy, state, epoch, assignment_epoch, members] = cells;
        let epochs = if verbose { format!("{epoch:<15} {assignment_epoch:<25} ") } else { String::new() };
        io.print(format!(
            "\n{group:<group_width$} {coordinator:<coordinator_width$} {strategy:<20} {state:<20} {epochs}{members}"
        ));
    };
    line([
        "GROUP",
        "COORDINATOR (ID)",
        "ASSIGNMENT-STRATEGY",
        "STATE",
        "GROUP-EPOCH",
        "TARGET-ASSIGNMENT-EPOCH",
        "#MEMBERS",
    ]);
    let strategy = or_missing(&group.assignor);
    line([&group.id, &coordinator, strategy, &group.state, &epoch, &assignment_epoch, &members]);
    io.line("");
}

fn state_value(group: &Description) -> Value {
    json!({
        "group": group.id,
        "coordinator": group.coordinator.as_ref().map(|node| node.id),
        "assignmentStrategy": group.assignor,
        "state": group.state,
        "groupEpoch": group.group_epoch,
        "targetAssignmentEpoch": group.assignment_epoch,
        "members": group.members.len(),
    })
}
