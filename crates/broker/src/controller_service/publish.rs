//! From a metadata update to what this broker does: dynamic configs, partitions, group shards, and the image itself.

use crate::auto_topics::OFFSETS_TOPIC;
use crate::log_config::log_config;
use crate::node::Node;
use crate::partition::Partition;
use config::{LogConfig, ServerConfig};
use coordinator_group::DeletedTopic;
use metadata::{ConfigResource, MetadataImage, MetadataUpdate, PartitionInfo};
use record::TopicPartition;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// `ConfigResource` type "topic".
const TOPIC: i8 = 2;
/// `ConfigResource` type "broker".
const BROKER: i8 = 4;

impl Node {
    /// Brings this broker to the update's state, then shows the image to clients.
    pub(super) fn publish(&self, update: &MetadataUpdate) -> Result<(), String> {
        let now = self.now();
        let image = Arc::new(update.image.clone());
        let settings_changed = self.publish_broker_configs(update);
        let changes = update.delta.local_changes(self.node_id());
        for deleted in &changes.deletes {
            self.stop_partition(deleted);
        }
        for (partition, info) in changes.leaders.iter().chain(&changes.followers) {
            if let Err(error) = self.start_partition(&image, partition, info) {
                tracing::error!(target: "kafka.server.ReplicaManager", "[ReplicaManager broker={}] The partition {partition} cannot be opened: {error}", self.node_id());
            }
        }
        self.publish_topic_configs(update, &image, settings_changed);
        self.set_image(image.clone());
        for (partition, info) in &changes.leaders {
            if *partition.topic == *OFFSETS_TOPIC
                && let Some(hosted) = self.partition(info.topic_id, partition.partition)
            {
                self.groups.lead(self, now, partition.partition, hosted);
                self.outbox.wake_loader();
            }
        }
        let deleted_topics = deleted_topics(update);
        if !deleted_topics.is_empty() {
            self.groups.topics_deleted(self, now, &deleted_topics);
        }
        Ok(())
    }

    fn stop_partition(&self, name: &TopicPartition) {
        let image = self.image();
        let removed = image.topics.id_of(&name.topic).and_then(|id| self.partitions.write().remove(&(id, name.partition)));
        drop(image);
        if *name.topic == *OFFSETS_TOPIC {
            self.groups.resign(self, self.now(), name.partition);
        }
        if let Some(partition) = removed {
            // Waiting readers learn that the partition is gone.
            self.complete_fetches(self.now(), &partition);
        }
        if let Err(error) = self.logs.async_delete(name, self.now()) {
            tracing::error!(target: "kafka.server.ReplicaManager", "[ReplicaManager broker={}] Deleting {name} failed: {error}", self.node_id());
        }
    }

    fn start_partition(&self, image: &MetadataImage, name: &TopicPartition, info: &PartitionInfo) -> Result<(), String> {
        let topic_config = self.topic_config(image, &name.topic)?;
        let key = (info.topic_id, name.partition);
        let existing = self.partitions.read().get(&key).cloned();
        if let Some(partition) = existing {
            partition.update(info.partition.clone(), topic_config.min_insync_replicas);
            return Ok(());
        }
        let directory = info.partition.directory(self.node_id());
        let log = self
            .logs
            .get_or_create_log(name, info.topic_id, Arc::new(log_config(&topic_config)), directory, self.now())
            .map_err(|error| error.to_string())?;
        let partition =
            Partition::new(self.node_id(), log, info.topic_id, info.partition.clone(), topic_config.min_insync_replicas);
        self.partitions.write().insert(key, Arc::new(partition));
        Ok(())
    }

    pub(crate) fn topic_config(&self, image: &MetadataImage, topic: &str) -> Result<LogConfig, String> {
        let overrides = image.configs.config_map(&ConfigResource::topic(topic));
        LogConfig::new(&self.settings(), &overrides).map_err(|error| error.to_string())
    }

    /// Takes over dynamic broker configs; true when a setting that topics inherit may have changed.
    fn publish_broker_configs(&self, update: &MetadataUpdate) -> bool {
        let changed = update.delta.configs.as_ref().is_some_and(|set| set.iter().any(|resource| resource.resource_type == BROKER));
        if !changed {
            return false;
        }
        let layer = |resource: ConfigResource| -> BTreeMap<String, String> { update.image.configs.config_map(&resource) };
        let cluster = layer(ConfigResource::cluster_default());
        let own = layer(ConfigResource::broker(self.node_id()));
        let (configs, notices) = self.broker_configs().with_layers(cluster, own);
        for notice in notices {
            tracing::warn!(target: "kafka.server.DynamicBrokerConfig", "{notice}");
        }
        let effective: Arc<ServerConfig> = configs.effective().clone();
        self.set_broker_configs(configs);
        self.logs.reconfigure(&effective);
        true
    }

    fn publish_topic_configs(&self, update: &MetadataUpdate, image: &MetadataImage, all: bool) {
        let touched: BTreeSet<Arc<str>> = match &update.delta.configs {
            Some(changed) => changed.iter().filter(|r| r.resource_type == TOPIC).map(|r| r.name.clone()).collect(),
            None => BTreeSet::new(),
        };
        if touched.is_empty() && !all {
            return;
        }
        let partitions: Vec<Arc<Partition>> = self.partitions.read().values().cloned().collect();
        let mut known: BTreeMap<String, Result<LogConfig, String>> = BTreeMap::new();
        for partition in partitions.iter().filter(|partition| all || touched.contains(partition.topic())) {
            let config = known.entry(partition.topic().to_owned()).or_insert_with(|| self.topic_config(image, partition.topic()));
            match config {
                Ok(config) => {
                    partition.log.update_config(Arc::new(log_config(config)));
                    partition.set_min_insync_replicas(config.min_insync_replicas);
                }
                Err(error) => {
                    tracing::error!(target: "kafka.server.TopicConfigHandler", "The configuration of topic {} cannot be applied: {error}", partition.topic());
                }
            }
        }
    }
}

fn deleted_topics(update: &MetadataUpdate) -> Vec<DeletedTopic> {
    let Some(topics) = &update.delta.topics else { return Vec::new() };
    topics
        .deleted
        .iter()
        .filter_map(|id| update.delta.base().topics.topic(id))
        .map(|topic| DeletedTopic { id: topic.id, name: topic.name.to_string() })
        .collect()
}
