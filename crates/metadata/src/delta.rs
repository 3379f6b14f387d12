//! What changed between two images: what publishers look at to do only the work that a change needs.
//!
//! Owns [`MetadataDelta`]: the image it started from, the image so far, and which entities were touched.
//! Invariants: a touched entity may turn out equal; an untouched one is the same in both images.
//! The change sets are `None` until their kind of record is seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::Uuid;
use record::TopicPartition;

use crate::image::{
    ClientQuotaEntity, ClientQuotasImage, ConfigResource, MetadataImage, MetadataProvenance, ReplayError,
};
use crate::partition::{LeaderRecoveryState, PartitionRegistration};
use crate::record::MetadataRecord;
use crate::version::{METADATA_VERSION, MetadataVersion};

/// Which features changed.
#[derive(Debug, Clone, Default)]
pub struct FeaturesDelta {
    /// The features touched, without `metadata.version`.
    pub changed: BTreeSet<String>,
    /// The new `metadata.version`, if a record set it.
    pub metadata_version_change: Option<MetadataVersion>,
}

/// Which registrations changed.
#[derive(Debug, Clone, Default)]
pub struct ClusterDelta {
    /// The brokers touched.
    pub changed_brokers: BTreeSet<i32>,
    /// The controllers touched.
    pub changed_controllers: BTreeSet<i32>,
}

/// What changed in a topic.
#[derive(Debug, Clone, Default)]
pub struct TopicDelta {
    /// The partitions touched.
    pub changed_partitions: BTreeSet<i32>,
    /// How many leaders were elected uncleanly.
    pub unclean_elections: u32,
    /// How many leaders were elected from the ELR.
    pub elr_elections: u32,
}

/// Which topics changed.
#[derive(Debug, Clone, Default)]
pub struct TopicsDelta {
    /// The topics touched that still exist, created ones included.
    pub changed: BTreeMap<Uuid, TopicDelta>,
    /// The topics of the first image that are gone.
    pub deleted: BTreeSet<Uuid>,
    /// The topics created.
    pub created: BTreeSet<Uuid>,
}

/// What a broker has to do for its replicas.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LocalReplicaChanges {
    /// Replicas it has no more.
    pub deletes: BTreeSet<TopicPartition>,
    /// Partitions it leads in a new leader epoch.
    pub elected_leaders: BTreeMap<TopicPartition, PartitionInfo>,
    /// Partitions it leads and whose state changed.
    pub leaders: BTreeMap<TopicPartition, PartitionInfo>,
    /// Partitions it follows and whose state changed.
    pub followers: BTreeMap<TopicPartition, PartitionInfo>,
    /// The ids of the topics above.
    pub topic_ids: BTreeMap<Arc<str>, Uuid>,
    /// The directories that its replicas were assigned to.
    pub directory_ids: BTreeMap<TopicPartition, (Uuid, Uuid)>,
}

/// A partition with its topic's id.
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionInfo {
    /// The topic.
    pub topic_id: Uuid,
    /// The partition's state.
    pub partition: Arc<PartitionRegistration>,
}

/// An image, the image it grows into, and what was touched on the way.
#[derive(Debug, Clone)]
pub struct MetadataDelta {
    base: MetadataImage,
    next: MetadataImage,
    /// Features.
    pub features: Option<FeaturesDelta>,
    /// Brokers and controllers.
    pub cluster: Option<ClusterDelta>,
    /// Topics.
    pub topics: Option<TopicsDelta>,
    /// Resources whose configuration was touched.
    pub configs: Option<BTreeSet<ConfigResource>>,
    /// Entities whose quotas were touched.
    pub client_quotas: Option<BTreeSet<ClientQuotaEntity>>,
    /// The new next producer id.
    pub producer_ids: Option<i64>,
    /// ACLs added or removed, by id.
    pub acls: Option<BTreeSet<Uuid>>,
    /// SCRAM credentials touched, by mechanism and user.
    pub scram: Option<BTreeSet<(i8, String)>>,
    /// Delegation tokens touched.
    pub delegation_tokens: Option<BTreeSet<String>>,
}

impl MetadataDelta {
    /// No change yet to `image`.
    pub fn new(image: MetadataImage) -> Self {
        Self::between(image.clone(), image)
    }

    /// What a snapshot changes in `image`: what it does not mention is gone. Call [`Self::finish_snapshot`] at its end.
    pub fn for_snapshot(image: MetadataImage) -> Self {
        Self::between(image, MetadataImage::default())
    }

    fn between(base: MetadataImage, next: MetadataImage) -> Self {
        Self {
            base,
            next,
            features: None,
            cluster: None,
            topics: None,
            configs: None,
            client_quotas: None,
            producer_ids: None,
            acls: None,
            scram: None,
            delegation_tokens: None,
        }
    }

    /// The image this started from.
    pub fn base(&self) -> &MetadataImage {
        &self.base
    }

    /// The image with every record so far; its provenance is that of the first image.
    pub fn image(&self) -> &MetadataImage {
        &self.next
    }

    /// The new `metadata.version`, if a record set it.
    pub fn metadata_version_changed(&self) -> Option<MetadataVersion> {
        self.features.as_ref()?.metadata_version_change
    }

    /// Applies a record and notes what it touches.
    pub fn replay(&mut self, record: &MetadataRecord) -> Result<(), ReplayError> {
        self.note(record)?;
        self.next.replay(record)
    }

    /// The finished image.
    pub fn apply(&self, provenance: MetadataProvenance) -> MetadataImage {
        MetadataImage { provenance, ..self.next.clone() }
    }

    fn note(&mut self, record: &MetadataRecord) -> Result<(), ReplayError> {
        match record {
            MetadataRecord::RegisterBrokerRecord(r) => self.note_broker(r.broker_id),
            MetadataRecord::UnregisterBrokerRecord(r) => self.note_broker(r.broker_id),
            MetadataRecord::FenceBrokerRecord(r) => self.note_broker(r.id),
            MetadataRecord::UnfenceBrokerRecord(r) => self.note_broker(r.id),
            MetadataRecord::BrokerRegistrationChangeRecord(r) => self.note_broker(r.broker_id),
            MetadataRecord::RegisterControllerRecord(r) => self.note_controller(r.controller_id),
            MetadataRecord::UnregisterControllerRecord(r) => self.note_controller(r.controller_id),
            MetadataRecord::ConfigRecord(r) => {
                let resource = ConfigResource::new(r.resource_type, &r.resource_name);
                self.configs.get_or_insert_default().insert(resource);
            }
            MetadataRecord::FeatureLevelRecord(r) => {
                let features = self.features.get_or_insert_default();
                if r.name == METADATA_VERSION {
                    features.metadata_version_change =
                        MetadataVersion::from_feature_level(r.feature_level).ok();
                } else {
                    features.changed.insert(r.name.clone());
                }
            }
            MetadataRecord::ClientQuotaRecord(r) => {
                self.client_quotas.get_or_insert_default().insert(ClientQuotasImage::entity_of(r));
            }
            MetadataRecord::ProducerIdsRecord(r) => self.producer_ids = Some(r.next_producer_id),
            MetadataRecord::AccessControlEntryRecord(r) => {
                self.acls.get_or_insert_default().insert(r.id);
            }
            MetadataRecord::RemoveAccessControlEntryRecord(r) => {
                self.acls.get_or_insert_default().insert(r.id);
            }
            MetadataRecord::UserScramCredentialRecord(r) => {
                self.scram.get_or_insert_default().insert((r.mechanism, r.name.clone()));
            }
            MetadataRecord::RemoveUserScramCredentialRecord(r) => {
                self.scram.get_or_insert_default().insert((r.mechanism, r.name.clone()));
            }
            MetadataRecord::DelegationTokenRecord(r) => {
                self.delegation_tokens.get_or_insert_default().insert(r.token_id.clone());
            }
            MetadataRecord::RemoveDelegationTokenRecord(r) => {
                self.delegation_tokens.get_or_insert_default().insert(r.token_id.clone());
            }
            _ => self.note_topics(record)?,
        }
        Ok(())
    }

    fn note_broker(&mut self, id: i32) {
        self.cluster.get_or_insert_default().changed_brokers.insert(id);
    }

    fn note_controller(&mut self, id: i32) {
        self.cluster.get_or_insert_default().changed_controllers.insert(id);
    }

    fn note_topics(&mut self, record: &MetadataRecord) -> Result<(), ReplayError> {
        match record {
            MetadataRecord::TopicRecord(r) => {
                let topics = self.topics.get_or_insert_default();
                topics.created.insert(r.topic_id);
                topics.changed.insert(r.topic_id, TopicDelta::default());
            }
            MetadataRecord::PartitionRecord(r) => {
                self.note_partition(r.topic_id, r.partition_id, r.leader, r.leader_recovery_state);
            }
            MetadataRecord::PartitionChangeRecord(r) => {
                self.note_partition(r.topic_id, r.partition_id, r.leader, r.leader_recovery_state);
            }
            MetadataRecord::ClearElrRecord(r) => {
                for id in self.next.topics.topics_to_clear(r)? {
                    let Some(topic) = self.next.topics.topic(&id) else { continue };
                    let cleared: Vec<i32> = topic
                        .partitions
                        .iter()
                        .filter(|(_, p)| !p.elr.is_empty() || !p.last_known_elr.is_empty())
                        .map(|(n, _)| *n)
                        .collect();
                    if !cleared.is_empty() {
                        let delta = self.topics.get_or_insert_default().changed.entry(id).or_default();
                        delta.changed_partitions.extend(cleared);
                    }
                }
            }
            MetadataRecord::RemoveTopicRecord(r) => {
                let in_base = self.base.topics.topic(&r.topic_id).is_some();
                let name = self.next.topics.topic(&r.topic_id).map(|t| t.name.clone());
                let topics = self.topics.get_or_insert_default();
                topics.changed.remove(&r.topic_id);
                topics.created.remove(&r.topic_id);
                if in_base {
                    topics.deleted.insert(r.topic_id);
                }
                if let Some(name) = name {
                    let resource = ConfigResource::topic(&name);
                    if self.next.configs.get(&resource).is_some() {
                        self.configs.get_or_insert_default().insert(resource);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn note_partition(&mut self, topic_id: Uuid, partition: i32, leader: i32, recovery_state: i8) {
        let from_elr =
            self.next.topics.partition(&topic_id, partition).is_some_and(|p| p.elr.contains(&leader));
        let known = self.next.topics.partition(&topic_id, partition).is_some();
        let delta = self.topics.get_or_insert_default().changed.entry(topic_id).or_default();
        delta.changed_partitions.insert(partition);
        if known && recovery_state == LeaderRecoveryState::Recovering.value() {
            delta.unclean_elections += 1;
        }
        if from_elr {
            delta.elr_elections += 1;
        }
    }

    /// Notes everything of the first image that the snapshot did not mention.
    pub fn finish_snapshot(&mut self) {
        let (base, next) = (&self.base, &self.next);
        let topics = self.topics.get_or_insert_default();
        topics.deleted.extend(base.topics.iter().map(|t| t.id).filter(|id| next.topics.topic(id).is_none()));
        topics.created.retain(|id| base.topics.topic(id).is_none());
        let features = self.features.get_or_insert_default();
        features.changed.extend(base.features.finalized_versions.keys().cloned());
        let cluster = self.cluster.get_or_insert_default();
        cluster.changed_brokers.extend(base.cluster.brokers.keys());
        cluster.changed_controllers.extend(base.cluster.controllers.keys());
        self.configs.get_or_insert_default().extend(base.configs.resources.keys().cloned());
        self.client_quotas.get_or_insert_default().extend(base.client_quotas.entities.keys().cloned());
        self.acls.get_or_insert_default().extend(base.acls.acls.keys());
        self.scram.get_or_insert_default().extend(base.scram.credentials.keys().cloned());
        self.delegation_tokens.get_or_insert_default().extend(base.delegation_tokens.tokens.keys().cloned());
        self.producer_ids.get_or_insert(next.producer_ids.next_producer_id);
    }

    /// What `broker` has to do for its replicas.
    pub fn local_changes(&self, broker: i32) -> LocalReplicaChanges {
        let mut changes = LocalReplicaChanges::default();
        let Some(delta) = &self.topics else { return changes };
        for (topic_id, topic_delta) in &delta.changed {
            for partition in &topic_delta.changed_partitions {
                self.local_change(broker, topic_id, *partition, &mut changes);
            }
            self.partitions_left_out(broker, topic_id, &mut changes);
        }
        for topic_id in &delta.deleted {
            let Some(topic) = self.base.topics.topic(topic_id) else { continue };
            let mine = topic.partitions.iter().filter(|(_, p)| p.replicas.contains(&broker));
            changes
                .deletes
                .extend(mine.map(|(n, _)| TopicPartition { topic: topic.name.clone(), partition: *n }));
        }
        changes
    }

    /// Partitions of a touched topic that a snapshot no longer holds.
    fn partitions_left_out(&self, broker: i32, topic_id: &Uuid, changes: &mut LocalReplicaChanges) {
        let (Some(before), Some(after)) =
            (self.base.topics.topic(topic_id), self.next.topics.topic(topic_id))
        else {
            return;
        };
        if before.partitions.len() <= after.partitions.len() {
            return;
        }
        for (n, p) in &before.partitions {
            if p.replicas.contains(&broker) && !after.partitions.contains_key(n) {
                changes.deletes.insert(TopicPartition { topic: before.name.clone(), partition: *n });
            }
        }
    }

    fn local_change(&self, broker: i32, topic_id: &Uuid, number: i32, changes: &mut LocalReplicaChanges) {
        let Some(topic) = self.next.topics.topic(topic_id) else { return };
        let Some(partition) = topic.partitions.get(&number) else { return };
        let before = self.base.topics.partition(topic_id, number);
        let tp = TopicPartition { topic: topic.name.clone(), partition: number };
        if !partition.replicas.contains(&broker) {
            if before.is_some_and(|p| p.replicas.contains(&broker)) {
                changes.deletes.insert(tp);
            }
            return;
        }
        if before.is_none_or(|p| p.partition_epoch != partition.partition_epoch) {
            let info = PartitionInfo { topic_id: *topic_id, partition: partition.clone() };
            if partition.leader == broker {
                if before.is_none_or(|p| p.leader_epoch != partition.leader_epoch) {
                    changes.elected_leaders.insert(tp.clone(), info.clone());
                }
                changes.leaders.insert(tp.clone(), info);
            } else {
                changes.followers.insert(tp.clone(), info);
            }
            changes.topic_ids.insert(topic.name.clone(), *topic_id);
        }
        if let Some(directory) = partition.directory(broker)
            && before.is_none_or(|p| p.directory(broker) != Some(directory))
        {
            changes.directory_ids.insert(tp, (*topic_id, directory));
        }
    }
}
