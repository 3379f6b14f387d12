//! From a metadata update to what this broker does: dynamic configs, partitions, group shards, and the image itself.

use crate::auto_topics::OFFSETS_TOPIC;
use crate::log_config::{cleaner_config, log_config};
use crate::node::Node;
use crate::partition::Partition;
use crate::reply::NodeEvent;
use config::LogConfig;
use coordinator_group::DeletedTopic;
use metadata::{
    ConfigResource, LocalReplicaChanges, MetadataImage, MetadataUpdate, PartitionInfo, directory_id,
};
use parking_lot::Mutex;
use record::TopicPartition;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use storage::{CreateParams, LogDirError, UnifiedLog};

/// `ConfigResource` type "topic".
const TOPIC: i8 = 2;
/// `ConfigResource` type "broker".
const BROKER: i8 = 4;

impl Node {
    /// The first publication: loads the logs, now that it is known which topics they belong to.
    pub(super) fn publish_first(&self, image: &MetadataImage) -> Result<(), String> {
        self.publish_broker_configs(image);
        let hosted = |log: &UnifiedLog| {
            let partition = log.topic_partition();
            let Some(topic) = image.topics.topic_by_name(&partition.topic) else { return false };
            let same_topic = log.topic_id().is_none_or(|id| id == topic.id);
            let assigned = topic
                .partitions
                .get(&partition.partition)
                .is_some_and(|p| p.replicas.contains(&self.node_id()));
            same_topic && assigned
        };
        let configs = TopicConfigs::new(self, image);
        let config_of = |topic: &str| match configs.of(topic) {
            Ok(config) => config.log,
            Err(_) => self.logs.default_config(),
        };
        let assigned = |log: &UnifiedLog| {
            let partition = log.topic_partition();
            let topic = image.topics.topic_by_name(&partition.topic)?;
            topic.partitions.get(&partition.partition)?.directory(self.node_id())
        };
        self.logs
            .load_assigned(self.now(), &config_of, &|log| !hosted(log), &assigned)
            .map_err(|error| error.to_string())?;
        let mut changes = LocalReplicaChanges::default();
        for topic in image.topics.iter() {
            for (index, registration) in
                topic.partitions.iter().filter(|(_, p)| p.replicas.contains(&self.node_id()))
            {
                let name = TopicPartition { topic: topic.name.clone(), partition: *index };
                let info = PartitionInfo { topic_id: topic.id, partition: registration.clone() };
                if let Some(directory) = registration.directory(self.node_id()) {
                    changes.directory_ids.insert(name.clone(), (topic.id, directory));
                }
                if registration.leader == self.node_id() {
                    changes.leaders.insert(name, info);
                } else {
                    changes.followers.insert(name, info);
                }
            }
        }
        self.apply(&changes, Arc::new(image.clone()));
        self.outbox.event(NodeEvent::CaughtUp);
        self.begin_registration();
        Ok(())
    }

    /// Brings this broker to the update's state, then shows the image to clients.
    pub(super) fn publish(&self, update: &MetadataUpdate) -> Result<(), String> {
        let brokers_changed = update
            .delta
            .configs
            .as_ref()
            .is_some_and(|set| set.iter().any(|resource| resource.resource_type == BROKER));
        if brokers_changed {
            self.publish_broker_configs(&update.image);
        }
        self.apply(&update.delta.local_changes(self.node_id()), Arc::new(update.image.clone()));
        self.publish_topic_configs(update, brokers_changed);
        let deleted_topics = deleted_topics(update);
        if !deleted_topics.is_empty() {
            self.groups.topics_deleted(self, self.now(), &deleted_topics);
        }
        Ok(())
    }

    /// Stops, starts and updates partitions, shows the image, and hands group partitions to the coordinator.
    fn apply(&self, changes: &LocalReplicaChanges, image: Arc<MetadataImage>) {
        self.stop_partitions(&changes.deletes);
        let configs = TopicConfigs::new(self, &image);
        for (partition, info) in changes.leaders.iter().chain(&changes.followers) {
            if let Err(error) = self.start_partition(&configs, partition, info) {
                tracing::error!(target: "kafka.server.ReplicaManager", "[ReplicaManager broker={}] The partition {partition} cannot be opened: {error}", self.node_id());
            }
        }
        self.set_image(image);
        self.check_directories(changes);
        for (name, info) in changes.leaders.iter().filter(|(name, _)| *name.topic == *OFFSETS_TOPIC) {
            if let Some(partition) = self.partition(info.topic_id, name.partition) {
                self.groups.lead(self, self.now(), name.partition, partition);
                self.outbox.wake_loader();
            }
        }
        for name in changes.followers.keys().filter(|name| *name.topic == *OFFSETS_TOPIC) {
            self.groups.resign(self, self.now(), name.partition);
        }
    }

    /// Opens partitions that found no room when they were assigned.
    pub(super) fn reopen_partitions(&self) {
        let image = self.image().clone();
        let mut changes = LocalReplicaChanges::default();
        for (name, topic_id) in std::mem::take(&mut *self.unopened.lock()) {
            let Some(registration) = image.topics.partition(&topic_id, name.partition) else { continue };
            if let Some(directory) = registration.directory(self.node_id()) {
                changes.directory_ids.insert(name.clone(), (topic_id, directory));
            }
            let info = PartitionInfo { topic_id, partition: registration.clone() };
            if registration.leader == self.node_id() {
                changes.leaders.insert(name, info);
            } else {
                changes.followers.insert(name, info);
            }
        }
        self.apply(&changes, image);
    }

    /// Tells the controller of replicas that are elsewhere than it thinks, and goes on with moves.
    fn check_directories(&self, changes: &LocalReplicaChanges) {
        let now = self.now();
        for (name, (topic_id, directory)) in &changes.directory_ids {
            self.check_directory(now, name, *topic_id, *directory);
        }
        if self.logs.log_dirs().len() > 1 {
            for (name, info) in changes.leaders.iter().chain(&changes.followers) {
                self.resume_move(now, name, info.topic_id);
            }
        }
    }

    fn stop_partitions(&self, names: &BTreeSet<TopicPartition>) {
        if names.is_empty() {
            return;
        }
        let now = self.now();
        for name in names {
            let id = self.image().topics.id_of(&name.topic);
            let removed = id.and_then(|id| self.partitions.write().remove(&(id, name.partition)));
            self.moves.forget(name);
            if *name.topic == *OFFSETS_TOPIC {
                self.groups.resign(self, now, name.partition);
            }
            if let Some(partition) = removed {
                // Waiting readers learn that the partition is gone.
                self.complete_fetches(now, &partition);
            }
        }
        let names: Vec<TopicPartition> = names.iter().cloned().collect();
        for (name, error) in self.logs.async_delete(&names, false, now) {
            tracing::error!(target: "kafka.server.ReplicaManager", "[ReplicaManager broker={}] Deleting {name} failed: {error}", self.node_id());
        }
    }

    fn start_partition(
        &self,
        configs: &TopicConfigs<'_>,
        name: &TopicPartition,
        info: &PartitionInfo,
    ) -> Result<(), String> {
        let topic_config = configs.of(&name.topic)?;
        let key = (info.topic_id, name.partition);
        let existing = self.partitions.read().get(&key).cloned();
        if let Some(partition) = existing {
            partition.update(info.partition.clone(), topic_config.min_insync_replicas);
            if !partition.is_leader() {
                self.fail_produces_of_former_leader(&partition);
            }
            return Ok(());
        }
        let directory = info.partition.directory(self.node_id()).unwrap_or(directory_id::UNASSIGNED);
        // It may be in a directory that is offline: a second, empty log would look like a replica that lost everything.
        let may_be_offline = directory != directory_id::UNASSIGNED
            && self.logs.has_offline_log_dirs()
            && !self.logs.directory_ids().contains(&directory);
        let params = CreateParams {
            config: topic_config.log,
            topic_id: Some(info.topic_id),
            is_new: !may_be_offline,
            directory_id: Some(directory),
        };
        let log = self.logs.get_or_create_log(name, params, self.now()).map_err(|error| {
            if matches!(&error, LogDirError::Storage(error) if error.is_full()) {
                self.unopened.lock().insert(name.clone(), info.topic_id);
            }
            error.to_string()
        })?;
        let partition =
            Partition::new(self.node_id(), log, info.partition.clone(), topic_config.min_insync_replicas);
        let partition = Arc::new(partition);
        self.partitions.write().insert(key, partition.clone());
        // The sync that recovery asked for may have ended before anybody could find the partition.
        partition.handle_synced();
        Ok(())
    }

    pub(crate) fn topic_config(&self, image: &MetadataImage, topic: &str) -> Result<LogConfig, String> {
        let overrides = image.configs.config_map(&ConfigResource::topic(topic));
        LogConfig::new(&self.settings(), &overrides).map_err(|error| error.to_string())
    }

    /// Takes over dynamic broker configs.
    fn publish_broker_configs(&self, image: &MetadataImage) {
        let layer =
            |resource: ConfigResource| -> BTreeMap<String, String> { image.configs.config_map(&resource) };
        let cluster = layer(ConfigResource::cluster_default());
        let own = layer(ConfigResource::broker(self.node_id()));
        let (configs, notices) = self.broker_configs().with_layers(&cluster, &own);
        for notice in notices {
            tracing::warn!(target: "kafka.server.DynamicBrokerConfig", "{notice}");
        }
        self.set_broker_configs(configs);
        self.logs.set_cordoned_dirs(self.cordoned_log_dirs());
        let expiration_ms = i64::from(self.settings().producer_id_expiration_ms);
        self.logs.context().set_producer_id_expiration_ms(expiration_ms);
        if let Ok(defaults) = LogConfig::new(&self.settings(), &BTreeMap::new()) {
            self.logs.reconfigure_default_config(Arc::new(log_config(&defaults)));
        }
        self.logs.reconfigure_cleaner(cleaner_config(&self.settings()));
    }

    /// Little-written partitions keep records for `segment.ms` longer than `retention.ms` says, which surprises many.
    fn warn_of_long_segments(&self, image: &MetadataImage, topic: &str) {
        let Ok(config) = self.topic_config(image, topic) else { return };
        let (segment_ms, retention_ms) = (config.max_segment_ms(), config.retention_ms);
        let is_overridden = ["segment.ms", "retention.ms", "cleanup.policy", "max.compaction.lag.ms"]
            .iter()
            .any(|key| config.overridden.contains(*key));
        if config.delete && retention_ms >= 0 && segment_ms > retention_ms && is_overridden {
            tracing::warn!(target: "kafka.server.TopicConfigHandler", "Topic {topic}: segment.ms={segment_ms} outlives retention.ms={retention_ms}. A segment goes as a whole and may take records in for {segment_ms} ms, so where little is written records stay that much longer than retention.ms says. Set segment.ms to retention.ms or less.");
        }
    }

    fn publish_topic_configs(&self, update: &MetadataUpdate, all: bool) {
        let image = &update.image;
        let touched: BTreeSet<Arc<str>> = match &update.delta.configs {
            Some(changed) => {
                changed.iter().filter(|r| r.resource_type == TOPIC).map(|r| r.name.clone()).collect()
            }
            None => BTreeSet::new(),
        };
        if touched.is_empty() && !all {
            return;
        }
        let partitions: Vec<Arc<Partition>> = self.partitions.read().values().cloned().collect();
        touched.iter().for_each(|topic| self.warn_of_long_segments(image, topic));
        let configs = TopicConfigs::new(self, image);
        for partition in partitions.iter().filter(|partition| all || touched.contains(partition.topic())) {
            match configs.of(partition.topic()) {
                Ok(config) => {
                    if let Some(future) = self.logs.get_future_log(partition.topic_partition()) {
                        future.update_config(config.log.clone());
                    }
                    partition.log().update_config(config.log);
                    partition.set_min_insync_replicas(config.min_insync_replicas);
                }
                Err(error) => {
                    tracing::error!(target: "kafka.server.TopicConfigHandler", "The configuration of topic {} cannot be applied: {error}", partition.topic());
                }
            }
        }
    }
}

/// What a topic's settings say to its partitions.
#[derive(Clone)]
struct TopicConfig {
    log: Arc<storage::LogConfig>,
    min_insync_replicas: i32,
}

/// The settings of an image's topics, each made once: thousands of partitions share theirs, and topics without
/// settings of their own share one.
struct TopicConfigs<'a> {
    node: &'a Node,
    image: &'a MetadataImage,
    defaults: OnceLock<Result<TopicConfig, String>>,
    known: Mutex<BTreeMap<String, Result<TopicConfig, String>>>,
}

impl<'a> TopicConfigs<'a> {
    fn new(node: &'a Node, image: &'a MetadataImage) -> Self {
        Self { node, image, defaults: OnceLock::new(), known: Mutex::default() }
    }

    fn of(&self, topic: &str) -> Result<TopicConfig, String> {
        if self.image.configs.config_map(&ConfigResource::topic(topic)).is_empty() {
            return self.defaults.get_or_init(|| self.make(topic)).clone();
        }
        let mut known = self.known.lock();
        if let Some(config) = known.get(topic) {
            return config.clone();
        }
        let config = self.make(topic);
        known.insert(topic.to_owned(), config.clone());
        config
    }

    fn make(&self, topic: &str) -> Result<TopicConfig, String> {
        let config = self.node.topic_config(self.image, topic)?;
        Ok(TopicConfig {
            log: Arc::new(log_config(&config)),
            min_insync_replicas: config.min_insync_replicas,
        })
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
