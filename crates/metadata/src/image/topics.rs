//! Topics and their partitions, by id and by name.
//!
//! Invariant: `by_name` names exactly the topics of `by_id`. One topic's change copies that topic's path only.

use std::sync::Arc;

use protocol::Uuid;
use protocol::records::metadata::{
    ClearElrRecord, PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord,
};
use timeline::TimelineMap;

use super::{ReplayError, WriteLoss, WriteOptions};
use crate::partition::PartitionRegistration;
use crate::record::VersionedRecord;

/// A topic and its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicImage {
    /// The name.
    pub name: Arc<str>,
    /// The id.
    pub id: Uuid,
    /// The partitions by number.
    pub partitions: TimelineMap<i32, Arc<PartitionRegistration>>,
}

/// All topics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopicsImage {
    by_id: TimelineMap<Uuid, TopicImage>,
    by_name: TimelineMap<Arc<str>, Uuid>,
}

impl TopicsImage {
    /// The number of topics.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is no topic.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The topic of an id.
    pub fn topic(&self, id: &Uuid) -> Option<&TopicImage> {
        self.by_id.get(id)
    }

    /// The topic of a name.
    pub fn topic_by_name(&self, name: &str) -> Option<&TopicImage> {
        self.by_id.get(self.by_name.get(name)?)
    }

    /// The id of a name.
    pub fn id_of(&self, name: &str) -> Option<Uuid> {
        self.by_name.get(name).copied()
    }

    /// A partition by topic id.
    pub fn partition(&self, topic_id: &Uuid, partition: i32) -> Option<&Arc<PartitionRegistration>> {
        self.topic(topic_id)?.partitions.get(&partition)
    }

    /// All topics by id.
    pub fn iter(&self) -> impl Iterator<Item = &TopicImage> {
        self.by_id.values()
    }

    /// All topics by name.
    pub fn iter_by_name(&self) -> impl Iterator<Item = &TopicImage> {
        self.by_name.values().filter_map(|id| self.by_id.get(id))
    }

    /// The topics whose name is at least `from`, by name (for paged descriptions).
    pub fn iter_by_name_from(&self, from: &str) -> impl Iterator<Item = &TopicImage> {
        self.by_name.iter_from(from).filter_map(|(_, id)| self.by_id.get(id))
    }

    pub(super) fn replay_topic(&mut self, record: &TopicRecord) {
        let name: Arc<str> = record.name.as_str().into();
        self.by_name.insert(name.clone(), record.topic_id);
        self.by_id.insert(
            record.topic_id,
            TopicImage { name, id: record.topic_id, partitions: TimelineMap::new() },
        );
    }

    pub(super) fn replay_partition(&mut self, record: &PartitionRecord) -> Result<(), ReplayError> {
        let partition = PartitionRegistration::from_record(record)?;
        let topic =
            self.by_id.get_mut(&record.topic_id).ok_or(ReplayError::UnknownTopicId(record.topic_id))?;
        topic.partitions.insert(record.partition_id, Arc::new(partition));
        Ok(())
    }

    pub(super) fn replay_partition_change(
        &mut self,
        record: &PartitionChangeRecord,
    ) -> Result<(), ReplayError> {
        let topic =
            self.by_id.get_mut(&record.topic_id).ok_or(ReplayError::UnknownTopicId(record.topic_id))?;
        let previous = topic.partitions.get(&record.partition_id).ok_or(ReplayError::UnknownPartition {
            topic_id: record.topic_id,
            partition: record.partition_id,
        })?;
        let next = previous.merge(record)?;
        topic.partitions.insert(record.partition_id, Arc::new(next));
        Ok(())
    }

    /// The ids of the topics that a `ClearElrRecord` means.
    pub fn topics_to_clear(&self, record: &ClearElrRecord) -> Result<Vec<Uuid>, ReplayError> {
        if record.topic_name.is_empty() {
            return Ok(self.by_id.keys().copied().collect());
        }
        let unknown = || ReplayError::UnknownTopicName(record.topic_name.clone());
        Ok(vec![self.id_of(&record.topic_name).ok_or_else(unknown)?])
    }

    pub(super) fn replay_clear_elr(&mut self, record: &ClearElrRecord) -> Result<(), ReplayError> {
        for id in self.topics_to_clear(record)? {
            let Some(topic) = self.by_id.get(&id) else { continue };
            let cleared: Vec<_> =
                topic.partitions.iter().filter_map(|(p, r)| Some((*p, r.without_elr()?))).collect();
            if cleared.is_empty() {
                continue;
            }
            let Some(topic) = self.by_id.get_mut(&id) else { continue };
            for (partition, registration) in cleared {
                topic.partitions.insert(partition, Arc::new(registration));
            }
        }
        Ok(())
    }

    pub(super) fn replay_remove_topic(
        &mut self,
        record: &RemoveTopicRecord,
    ) -> Result<Arc<str>, ReplayError> {
        let topic =
            self.by_id.remove(&record.topic_id).ok_or(ReplayError::UnknownTopicId(record.topic_id))?;
        self.by_name.remove(&*topic.name);
        Ok(topic.name)
    }

    pub(super) fn write(
        &self,
        options: WriteOptions,
        out: &mut Vec<VersionedRecord>,
    ) -> Result<(), WriteLoss> {
        for topic in self.by_id.values() {
            out.push(VersionedRecord::new(
                TopicRecord { name: topic.name.to_string(), topic_id: topic.id },
                0,
            ));
            for (id, partition) in &topic.partitions {
                out.push(partition.to_record(topic.id, *id, options)?);
            }
        }
        Ok(())
    }
}
