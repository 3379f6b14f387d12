//! The controller's replicated state: the metadata image and the indices that decisions need beside it.
//!
//! Invariants: the indices follow from the image and the log alone; only [`ControllerState::replay`] changes them.
//! A record that contradicts the state is an error and means that the node must stop.
//! Concurrency: one writer; snapshots are copies that share structure. A crash leaves nothing: the log is replayed.

use std::sync::Arc;

use metadata::image::ReplayError;
use metadata::record::MetadataRecord;
use metadata::{BrokerRegistration, MetadataImage, MetadataVersion, PartitionRegistration, directory_id};
use protocol::Uuid;
use protocol::records::metadata as records;
use timeline::{TimelineMap, TimelineSet};

use crate::settings::LocalFeatures;
use crate::topic_name;

/// A partition of a topic id.
pub(crate) type TopicIdPartition = (Uuid, i32);

/// All replicated state of the controller.
#[derive(Debug, Clone, Default)]
pub(crate) struct ControllerState {
    pub(crate) image: MetadataImage,
    /// Where each broker's registration stands in the log.
    pub(crate) register_broker_offsets: TimelineMap<i32, i64>,
    pub(crate) directory_to_broker: TimelineMap<Uuid, i32>,
    /// (name with `.` as `_`, name) of every topic that has either.
    pub(crate) collision_names: TimelineSet<(String, String)>,
    /// (broker, topic, partition) of every ISR member.
    isr_members: TimelineSet<(i32, Uuid, i32)>,
    /// (leader, topic, partition), with the leader -1 where there is none.
    leaders: TimelineSet<(i32, Uuid, i32)>,
    elr_members: TimelineSet<(i32, Uuid, i32)>,
    directory_replicas: TimelineSet<(Uuid, Uuid, i32)>,
    pub(crate) reassigning: TimelineSet<TopicIdPartition>,
    pub(crate) imbalanced: TimelineSet<TopicIdPartition>,
    /// Whether a block of producer ids was ever given, and the first id of the next.
    pub(crate) next_producer_id: Option<i64>,
}

fn inconsistent<T>(message: String) -> Result<T, ReplayError> {
    Err(ReplayError::Inconsistent(message))
}

fn members_of<'a>(
    set: &'a TimelineSet<(i32, Uuid, i32)>,
    broker: i32,
) -> impl Iterator<Item = TopicIdPartition> + 'a {
    set.iter_from(&(broker, Uuid::ZERO, i32::MIN))
        .take_while(move |(b, _, _)| *b == broker)
        .map(|(_, topic, partition)| (*topic, *partition))
}

impl ControllerState {
    /// `metadata.version`, [`MetadataVersion::MINIMUM`] before the first record.
    pub(crate) fn metadata_version(&self) -> MetadataVersion {
        self.image.features.metadata_version.unwrap_or(MetadataVersion::MINIMUM)
    }

    pub(crate) fn broker(&self, id: i32) -> Option<&Arc<BrokerRegistration>> {
        self.image.cluster.broker(id)
    }

    pub(crate) fn is_active(&self, broker: i32) -> bool {
        self.broker(broker).is_some_and(|b| b.is_active())
    }

    /// Partitions whose ISR holds `broker`.
    pub(crate) fn partitions_with_broker_in_isr(&self, broker: i32) -> Vec<TopicIdPartition> {
        members_of(&self.isr_members, broker).collect()
    }

    /// Partitions whose ELR holds `broker`.
    pub(crate) fn partitions_with_broker_in_elr(&self, broker: i32) -> Vec<TopicIdPartition> {
        members_of(&self.elr_members, broker).collect()
    }

    /// Partitions without a leader.
    pub(crate) fn partitions_with_no_leader(&self) -> Vec<TopicIdPartition> {
        members_of(&self.leaders, metadata::partition::NO_LEADER).collect()
    }

    /// Whether `broker` leads anything.
    pub(crate) fn has_leaderships(&self, broker: i32) -> bool {
        members_of(&self.leaders, broker).next().is_some()
    }

    /// Partitions with a replica in a directory.
    pub(crate) fn partitions_in_directory(&self, directory: Uuid) -> Vec<TopicIdPartition> {
        self.directory_replicas
            .iter_from(&(directory, Uuid::ZERO, i32::MIN))
            .take_while(|(d, _, _)| *d == directory)
            .map(|(_, topic, partition)| (*topic, *partition))
            .collect()
    }

    /// Applies a record of the log, or of a snapshot that ends at `offset`.
    pub(crate) fn replay(
        &mut self,
        record: &MetadataRecord,
        offset: i64,
        local: &LocalFeatures,
    ) -> Result<(), ReplayError> {
        match record {
            MetadataRecord::RegisterBrokerRecord(r) => self.replay_register_broker(record, r, offset),
            MetadataRecord::UnregisterBrokerRecord(r) => self.replay_unregister_broker(record, r),
            MetadataRecord::BrokerRegistrationChangeRecord(r) => {
                self.replay_registration_change(record, r.broker_id, r.broker_epoch)
            }
            MetadataRecord::FenceBrokerRecord(r) => self.replay_registration_change(record, r.id, r.epoch),
            MetadataRecord::UnfenceBrokerRecord(r) => self.replay_registration_change(record, r.id, r.epoch),
            MetadataRecord::UnregisterControllerRecord(r) => {
                if !self.image.cluster.controllers.contains_key(&r.controller_id) {
                    return inconsistent(format!("no controller {} is registered", r.controller_id));
                }
                self.image.replay(record)
            }
            MetadataRecord::TopicRecord(r) => self.replay_topic(record, r),
            MetadataRecord::PartitionRecord(r) => self.replay_partition(record, (r.topic_id, r.partition_id)),
            MetadataRecord::PartitionChangeRecord(r) => {
                self.replay_partition(record, (r.topic_id, r.partition_id))
            }
            MetadataRecord::ClearElrRecord(r) => self.replay_clear_elr(record, r),
            MetadataRecord::RemoveTopicRecord(r) => self.replay_remove_topic(record, r),
            MetadataRecord::FeatureLevelRecord(r) => {
                let range = local.range(&r.name);
                if !range.contains(r.feature_level) {
                    return inconsistent(format!(
                        "level {} of feature {}, but this controller only supports versions {range}",
                        r.feature_level, r.name
                    ));
                }
                self.image.replay(record)
            }
            MetadataRecord::ProducerIdsRecord(r) => {
                if self.next_producer_id.is_some_and(|next| r.next_producer_id <= next) {
                    return inconsistent(format!("next producer id {} goes back", r.next_producer_id));
                }
                self.next_producer_id = Some(r.next_producer_id);
                self.image.replay(record)
            }
            _ => self.image.replay(record),
        }
    }

    fn replay_register_broker(
        &mut self,
        record: &MetadataRecord,
        r: &records::RegisterBrokerRecord,
        offset: i64,
    ) -> Result<(), ReplayError> {
        let before = self.broker(r.broker_id).map(|b| b.directories.clone()).unwrap_or_default();
        self.image.replay(record)?;
        self.register_broker_offsets.insert(r.broker_id, offset);
        self.update_directories(r.broker_id, &before, &r.log_dirs)
    }

    fn replay_unregister_broker(
        &mut self,
        record: &MetadataRecord,
        r: &records::UnregisterBrokerRecord,
    ) -> Result<(), ReplayError> {
        let Some(before) = self.broker(r.broker_id).filter(|b| b.epoch == r.broker_epoch).cloned() else {
            return Err(ReplayError::UnknownBroker { id: r.broker_id, epoch: r.broker_epoch });
        };
        self.image.replay(record)?;
        self.register_broker_offsets.remove(&r.broker_id);
        self.update_directories(r.broker_id, &before.directories, &[])
    }

    fn replay_registration_change(
        &mut self,
        record: &MetadataRecord,
        id: i32,
        epoch: i64,
    ) -> Result<(), ReplayError> {
        let before = self.broker(id).cloned().ok_or(ReplayError::UnknownBroker { id, epoch })?;
        self.image.replay(record)?;
        let after = self.broker(id).map(|b| b.directories.clone()).unwrap_or_default();
        self.update_directories(id, &before.directories, &after)
    }

    fn update_directories(
        &mut self,
        broker: i32,
        before: &[Uuid],
        after: &[Uuid],
    ) -> Result<(), ReplayError> {
        for directory in before {
            if self.directory_to_broker.get(directory) != Some(&broker) {
                return inconsistent(format!("directory {directory} is not assigned to broker {broker}"));
            }
            self.directory_to_broker.remove(directory);
        }
        for directory in after {
            if let Some(other) = self.directory_to_broker.get(directory).filter(|b| **b != broker) {
                return inconsistent(format!("directory {directory} is assigned to broker {other}"));
            }
            self.directory_to_broker.insert(*directory, broker);
        }
        Ok(())
    }

    fn replay_topic(&mut self, record: &MetadataRecord, r: &records::TopicRecord) -> Result<(), ReplayError> {
        if let Some(existing) = self.image.topics.id_of(&r.name) {
            return inconsistent(format!("topic {} exists with ID {existing} already", r.name));
        }
        if self.image.topics.topic(&r.topic_id).is_some() {
            return inconsistent(format!("topic ID {} exists already", r.topic_id));
        }
        if topic_name::has_collision_chars(&r.name) {
            self.collision_names.insert((topic_name::unify_collision_chars(&r.name), r.name.clone()));
        }
        self.image.replay(record)
    }

    fn replay_partition(&mut self, record: &MetadataRecord, at: TopicIdPartition) -> Result<(), ReplayError> {
        let before = self.image.topics.partition(&at.0, at.1).cloned();
        self.image.replay(record)?;
        let after = self.image.topics.partition(&at.0, at.1).cloned();
        self.update_indices(at, before.as_deref(), after.as_deref());
        Ok(())
    }

    fn replay_clear_elr(
        &mut self,
        record: &MetadataRecord,
        r: &records::ClearElrRecord,
    ) -> Result<(), ReplayError> {
        let before = self.image.topics.clone();
        self.image.replay(record)?;
        for id in before.topics_to_clear(r)? {
            let Some(topic) = before.topic(&id) else { continue };
            for (number, old) in &topic.partitions {
                let new = self.image.topics.partition(&id, *number).cloned();
                if new.as_ref().is_some_and(|n| !Arc::ptr_eq(n, old)) {
                    self.update_indices((id, *number), Some(old), new.as_deref());
                }
            }
        }
        Ok(())
    }

    fn replay_remove_topic(
        &mut self,
        record: &MetadataRecord,
        r: &records::RemoveTopicRecord,
    ) -> Result<(), ReplayError> {
        let topic = self.image.topics.topic(&r.topic_id).cloned();
        let topic = topic.ok_or(ReplayError::UnknownTopicId(r.topic_id))?;
        self.image.replay(record)?;
        if topic_name::has_collision_chars(&topic.name) {
            let key = (topic_name::unify_collision_chars(&topic.name), topic.name.to_string());
            self.collision_names.remove(&key);
        }
        for (number, partition) in &topic.partitions {
            self.update_indices((topic.id, *number), Some(partition), None);
        }
        Ok(())
    }

    fn update_indices(
        &mut self,
        at: TopicIdPartition,
        before: Option<&PartitionRegistration>,
        after: Option<&PartitionRegistration>,
    ) {
        let (topic, number) = at;
        if let Some(old) = before {
            for broker in old.isr.iter().filter(|b| after.is_none_or(|n| !n.isr.contains(b))) {
                self.isr_members.remove(&(*broker, topic, number));
            }
            for broker in old.elr.iter().filter(|b| after.is_none_or(|n| !n.elr.contains(b))) {
                self.elr_members.remove(&(*broker, topic, number));
            }
            if after.is_none_or(|n| n.leader != old.leader) {
                self.leaders.remove(&(old.leader, topic, number));
            }
            for directory in
                old.directories.iter().filter(|d| after.is_none_or(|n| !n.directories.contains(d)))
            {
                self.directory_replicas.remove(&(*directory, topic, number));
            }
        }
        if let Some(new) = after {
            for broker in &new.isr {
                self.isr_members.insert((*broker, topic, number));
            }
            for broker in &new.elr {
                self.elr_members.insert((*broker, topic, number));
            }
            self.leaders.insert((new.leader, topic, number));
            for directory in new.directories.iter().filter(|d| !directory_id::is_reserved(d)) {
                self.directory_replicas.insert((*directory, topic, number));
            }
        }
        let set = |set: &mut TimelineSet<TopicIdPartition>, member: bool| {
            if member {
                set.insert(at);
            } else {
                set.remove(&at);
            }
        };
        set(&mut self.reassigning, after.is_some_and(PartitionRegistration::is_reassigning));
        set(&mut self.imbalanced, after.is_some_and(|p| !p.has_preferred_leader()));
    }
}
