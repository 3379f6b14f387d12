//! How a topic and its partitions are shown, and which partitions a report is about.

use std::collections::{BTreeMap, BTreeSet};

use protocol::Uuid;
use protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use protocol::messages::list_partition_reassignments_response::OngoingPartitionReassignment;
use serde_json::{Value, json};

use crate::admin::{PartitionInfo, TopicDescription};
use crate::java::{hash_order, string_hash};

/// DescribeConfigs' source of a value nobody has set.
const DEFAULT_CONFIG: i8 = 5;

pub(super) fn partition_value(partition: &PartitionInfo) -> Value {
    json!({
        "partition": partition.partition,
        "leader": partition.leader,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "elr": partition.elr,
        "lastKnownElr": partition.last_known_elr,
    })
}

/// A topic with what is needed to judge its partitions.
pub(super) struct TopicView<'a> {
    pub(super) topic: &'a TopicDescription,
    pub(super) configs: Vec<DescribeConfigsResourceResult>,
    pub(super) live: &'a BTreeSet<i32>,
    pub(super) reassignments: &'a BTreeMap<(String, i32), OngoingPartitionReassignment>,
}

impl TopicView<'_> {
    pub(super) fn sorted(&self) -> Vec<&PartitionInfo> {
        let mut partitions: Vec<&PartitionInfo> = self.topic.partitions.iter().collect();
        partitions.sort_by_key(|partition| partition.partition);
        partitions
    }

    /// In the order of the hash map that the reference keeps all of a topic's configs in.
    pub(super) fn overrides(&self) -> impl Iterator<Item = &DescribeConfigsResourceResult> {
        let all = hash_order(self.configs.iter().collect(), |config| string_hash(&config.name));
        all.into_iter().filter(|config| config.config_source != DEFAULT_CONFIG)
    }

    pub(super) fn has_overrides(&self) -> bool {
        self.overrides().next().is_some()
    }

    pub(super) fn reassignment(&self, partition: &PartitionInfo) -> Option<&OngoingPartitionReassignment> {
        self.reassignments.get(&(self.topic.name.clone(), partition.partition))
    }

    /// During a reassignment the replicas being added do not count.
    pub(super) fn replicas_of(&self, partition: &PartitionInfo) -> usize {
        match self.reassignment(partition) {
            Some(ongoing) => ongoing.replicas.len().saturating_sub(ongoing.adding_replicas.len()),
            None => partition.replicas.len(),
        }
    }

    pub(super) fn replication_factor(&self) -> usize {
        self.sorted().first().map_or(0, |partition| self.replicas_of(partition))
    }

    pub(super) fn min_isr(&self) -> usize {
        let setting = self.configs.iter().find(|config| config.name == "min.insync.replicas");
        setting.and_then(|config| config.value.as_deref()?.parse().ok()).unwrap_or(1)
    }

    pub(super) fn is_reported(&self, report: &str, partition: &PartitionInfo) -> bool {
        match report {
            "under-replicated-partitions" => self.replicas_of(partition) > partition.isr.len(),
            "unavailable-partitions" => partition.leader.is_none_or(|leader| !self.live.contains(&leader)),
            "under-min-isr-partitions" => partition.leader.is_none() || partition.isr.len() < self.min_isr(),
            _ => partition.isr.len() == self.min_isr(),
        }
    }

    pub(super) fn header(&self) -> String {
        let configs: Vec<String> = self
            .overrides()
            .map(|config| format!("{}={}", config.name, config.value.as_deref().unwrap_or("null")))
            .collect();
        let id = match self.topic.id {
            Uuid::ZERO => String::new(),
            id => format!("\tTopicId: {id}"),
        };
        format!(
            "Topic: {}{id}\tPartitionCount: {}\tReplicationFactor: {}\tConfigs: {}",
            self.topic.name,
            self.topic.partitions.len(),
            self.replication_factor(),
            configs.join(",")
        )
    }

    pub(super) fn line(&self, partition: &PartitionInfo) -> String {
        let ids = |ids: &[i32]| ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
        let optional = |found: &Option<Vec<i32>>| found.as_deref().map_or("N/A".to_owned(), ids);
        let leader = partition.leader.map_or("none".to_owned(), |leader| leader.to_string());
        let reassignment = self.reassignment(partition).map_or(String::new(), |ongoing| {
            let (adding, removing) = (ids(&ongoing.adding_replicas), ids(&ongoing.removing_replicas));
            format!("\tAdding Replicas: {adding}\tRemoving Replicas: {removing}")
        });
        format!(
            "\tTopic: {}\tPartition: {}\tLeader: {leader}\tReplicas: {}\tIsr: {}{reassignment}\tElr: {}\tLastKnownElr: {}",
            self.topic.name,
            partition.partition,
            ids(&partition.replicas),
            ids(&partition.isr),
            optional(&partition.elr),
            optional(&partition.last_known_elr),
        )
    }
}
