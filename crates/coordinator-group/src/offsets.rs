//! Committed offsets, those of open transactions included.
//!
//! Invariant: an offset is pending for a producer exactly when the producer is among the open transactions of its
//! partition. Everything here is replicated: it changes in `replay_*` only, and copies cost a reference count.

use std::sync::Arc;

use coordinator::TransactionResult;
use protocol::Uuid;
use protocol::records::group::OffsetCommitValue;
use timeline::{TimelineMap, TimelineSet};

/// What a consumer committed for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OffsetAndMetadata {
    /// Where the commit stands in the log; -1 before it is written.
    pub(crate) record_offset: i64,
    pub(crate) committed_offset: i64,
    pub(crate) leader_epoch: Option<i32>,
    pub(crate) metadata: String,
    /// Wall clock, milliseconds since the epoch, like the next.
    pub(crate) commit_timestamp_ms: i64,
    pub(crate) expire_timestamp_ms: Option<i64>,
    pub(crate) topic_id: Uuid,
}

impl OffsetAndMetadata {
    fn from_record(record_offset: i64, value: OffsetCommitValue) -> Self {
        Self {
            record_offset,
            committed_offset: value.offset,
            leader_epoch: (value.leader_epoch != -1).then_some(value.leader_epoch),
            metadata: value.metadata,
            commit_timestamp_ms: value.commit_timestamp,
            expire_timestamp_ms: (value.expire_timestamp != -1).then_some(value.expire_timestamp),
            topic_id: value.topic_id,
        }
    }

    /// Whether the commit was for another topic of the same name. Either side may not know the id (KIP-848).
    pub(crate) fn is_of_other_topic(&self, topic_id: Uuid) -> bool {
        self.topic_id != Uuid::ZERO && topic_id != Uuid::ZERO && self.topic_id != topic_id
    }
}

/// From when a group's offsets age.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExpirationCondition {
    SinceCommit,
    /// Since the group became empty.
    Since(i64),
}

impl ExpirationCondition {
    pub(crate) fn is_expired(self, offset: &OffsetAndMetadata, wall_ms: i64, retention_ms: i64) -> bool {
        if let Some(expire_timestamp_ms) = offset.expire_timestamp_ms {
            return wall_ms >= expire_timestamp_ms;
        }
        let since = match self {
            Self::SinceCommit => offset.commit_timestamp_ms,
            Self::Since(timestamp) => timestamp,
        };
        wall_ms.saturating_sub(since) >= retention_ms
    }
}

pub(crate) type PartitionOffsets = TimelineMap<i32, Arc<OffsetAndMetadata>>;
pub(crate) type TopicOffsets = TimelineMap<Arc<str>, PartitionOffsets>;
type OpenPartitions = TimelineMap<i32, TimelineSet<i64>>;

/// Offsets by group, topic and partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Offsets {
    by_group: TimelineMap<Arc<str>, TopicOffsets>,
    len: usize,
}

impl Offsets {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn group(&self, group_id: &str) -> Option<&TopicOffsets> {
        self.by_group.get(group_id)
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = (&Arc<str>, &TopicOffsets)> {
        self.by_group.iter()
    }

    pub(crate) fn get(&self, group_id: &str, topic: &str, partition: i32) -> Option<&Arc<OffsetAndMetadata>> {
        self.by_group.get(group_id)?.get(topic)?.get(&partition)
    }

    fn put(&mut self, group_id: &str, topic: &str, partition: i32, offset: Arc<OffsetAndMetadata>) {
        let topics = entry(&mut self.by_group, group_id);
        let partitions = entry(topics, topic);
        if partitions.insert(partition, offset).is_none() {
            self.len += 1;
        }
    }

    fn remove(&mut self, group_id: &str, topic: &str, partition: i32) {
        if self.get(group_id, topic, partition).is_none() {
            return;
        }
        let Some(topics) = self.by_group.get_mut(group_id) else { return };
        let Some(partitions) = topics.get_mut(topic) else { return };
        partitions.remove(&partition);
        self.len -= 1;
        if partitions.is_empty() {
            topics.remove(topic);
        }
        if topics.is_empty() {
            self.by_group.remove(group_id);
        }
    }
}

/// Which producers have an offset pending, by group, topic and partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OpenTransactions {
    by_group: TimelineMap<Arc<str>, TimelineMap<Arc<str>, OpenPartitions>>,
}

impl OpenTransactions {
    pub(crate) fn has_group(&self, group_id: &str) -> bool {
        self.by_group.contains_key(group_id)
    }

    pub(crate) fn contains(&self, group_id: &str, topic: &str, partition: i32) -> bool {
        self.get(group_id, topic, partition).is_some()
    }

    pub(crate) fn partitions(&self, group_id: &str) -> impl Iterator<Item = (&Arc<str>, i32)> {
        let topics = self.by_group.get(group_id).into_iter().flat_map(TimelineMap::iter);
        topics.flat_map(|(topic, partitions)| partitions.keys().map(move |partition| (topic, *partition)))
    }

    fn get(&self, group_id: &str, topic: &str, partition: i32) -> Option<&TimelineSet<i64>> {
        self.by_group.get(group_id)?.get(topic)?.get(&partition)
    }

    fn add(&mut self, group_id: &str, topic: &str, partition: i32, producer_id: i64) {
        let topics = entry(&mut self.by_group, group_id);
        let partitions = entry(topics, topic);
        let mut producers = partitions.get(&partition).cloned().unwrap_or_default();
        producers.insert(producer_id);
        partitions.insert(partition, producers);
    }

    fn remove(&mut self, group_id: &str, topic: &str, partition: i32, producer_id: i64) {
        let Some(mut producers) = self.get(group_id, topic, partition).cloned() else { return };
        producers.remove(&producer_id);
        if producers.is_empty() {
            self.clear(group_id, topic, partition);
        } else if let Some(partitions) =
            self.by_group.get_mut(group_id).and_then(|topics| topics.get_mut(topic))
        {
            partitions.insert(partition, producers);
        }
    }

    fn clear(&mut self, group_id: &str, topic: &str, partition: i32) {
        let Some(topics) = self.by_group.get_mut(group_id) else { return };
        let Some(partitions) = topics.get_mut(topic) else { return };
        partitions.remove(&partition);
        if partitions.is_empty() {
            topics.remove(topic);
        }
        if topics.is_empty() {
            self.by_group.remove(group_id);
        }
    }
}

/// All offsets of a shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OffsetState {
    pub(crate) offsets: Offsets,
    /// By producer id.
    pending: TimelineMap<i64, Offsets>,
    pub(crate) open: OpenTransactions,
}

impl OffsetState {
    pub(crate) fn has_offset(&self, group_id: &str, topic: &str, partition: i32) -> bool {
        self.offsets.get(group_id, topic, partition).is_some()
    }

    pub(crate) fn pending(&self) -> impl Iterator<Item = (&i64, &Offsets)> {
        self.pending.iter()
    }

    pub(crate) fn replay_commit(
        &mut self,
        record_offset: i64,
        producer_id: Option<i64>,
        (group_id, topic, partition): (&str, &str, i32),
        value: OffsetCommitValue,
    ) {
        let offset = Arc::new(OffsetAndMetadata::from_record(record_offset, value));
        match producer_id {
            None => self.offsets.put(group_id, topic, partition, offset),
            Some(producer_id) => {
                let mut pending = self.pending.get(&producer_id).cloned().unwrap_or_default();
                pending.put(group_id, topic, partition, offset);
                self.pending.insert(producer_id, pending);
                self.open.add(group_id, topic, partition, producer_id);
            }
        }
    }

    /// A tombstone removes the committed offset and what transactions would still commit.
    pub(crate) fn replay_tombstone(&mut self, group_id: &str, topic: &str, partition: i32) {
        self.offsets.remove(group_id, topic, partition);
        if let Some(producers) = self.open.get(group_id, topic, partition).cloned() {
            for producer_id in producers.iter() {
                if let Some(pending) = self.pending.get_mut(producer_id) {
                    pending.remove(group_id, topic, partition);
                }
            }
            self.open.clear(group_id, topic, partition);
        }
    }

    pub(crate) fn replay_end_transaction_marker(&mut self, producer_id: i64, result: TransactionResult) {
        let Some(ended) = self.pending.remove(&producer_id) else { return };
        for (group_id, topics) in ended.groups() {
            for (topic, partitions) in topics {
                for (&partition, offset) in partitions {
                    self.open.remove(group_id, topic, partition, producer_id);
                    let committed = self.offsets.get(group_id, topic, partition);
                    // A commit outside of the transaction that came later in the log stays.
                    let is_newer = committed.is_none_or(|c| offset.record_offset > c.record_offset);
                    if result == TransactionResult::Commit && is_newer {
                        self.offsets.put(group_id, topic, partition, offset.clone());
                    }
                }
            }
        }
    }
}

/// The value at `key`, created when it is missing; keys are allocated only then.
fn entry<'a, V: Clone + Default>(map: &'a mut TimelineMap<Arc<str>, V>, key: &str) -> &'a mut V {
    if !map.contains_key(key) {
        map.insert(Arc::from(key), V::default());
    }
    map.get_mut(key).expect("inserted above")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(offset: i64) -> OffsetCommitValue {
        OffsetCommitValue { offset, ..Default::default() }
    }

    fn committed(state: &OffsetState) -> Option<i64> {
        state.offsets.get("g", "t", 0).map(|offset| offset.committed_offset)
    }

    #[test]
    fn offsets_of_a_transaction_count_from_its_commit() {
        let mut state = OffsetState::default();
        state.replay_commit(0, None, ("g", "t", 0), value(1));
        state.replay_commit(1, Some(9), ("g", "t", 0), value(5));
        assert_eq!(committed(&state), Some(1));
        assert!(state.open.contains("g", "t", 0));
        let mut aborted = state.clone();
        state.replay_end_transaction_marker(9, TransactionResult::Commit);
        assert_eq!(committed(&state), Some(5));
        aborted.replay_end_transaction_marker(9, TransactionResult::Abort);
        assert_eq!(committed(&aborted), Some(1));
        for state in [state, aborted] {
            assert!(!state.open.has_group("g"));
            assert_eq!(state.pending().count(), 0);
        }
    }

    #[test]
    fn a_later_plain_commit_survives_the_end_of_a_transaction() {
        let mut state = OffsetState::default();
        state.replay_commit(1, Some(9), ("g", "t", 0), value(5));
        state.replay_commit(2, None, ("g", "t", 0), value(3));
        state.replay_end_transaction_marker(9, TransactionResult::Commit);
        assert_eq!(committed(&state), Some(3));
    }

    #[test]
    fn a_tombstone_takes_pending_offsets_with_it() {
        let mut state = OffsetState::default();
        state.replay_commit(0, None, ("g", "t", 0), value(1));
        state.replay_commit(1, Some(9), ("g", "t", 0), value(5));
        state.replay_commit(2, Some(8), ("g", "t", 0), value(6));
        state.replay_tombstone("g", "t", 0);
        assert_eq!(state.offsets.len(), 0);
        state.replay_end_transaction_marker(9, TransactionResult::Commit);
        state.replay_end_transaction_marker(8, TransactionResult::Commit);
        assert_eq!(state, OffsetState::default());
    }

    #[test]
    fn an_expiration_of_its_own_wins_over_retention() {
        let mut offset = OffsetAndMetadata::from_record(0, value(1));
        offset.commit_timestamp_ms = 100;
        let table = [
            (ExpirationCondition::SinceCommit, None, 199, false),
            (ExpirationCondition::SinceCommit, None, 200, true),
            (ExpirationCondition::Since(500), None, 599, false),
            (ExpirationCondition::Since(500), None, 600, true),
            (ExpirationCondition::Since(500), Some(300), 300, true),
            (ExpirationCondition::SinceCommit, Some(300), 299, false),
        ];
        for (condition, expire_timestamp_ms, now, expected) in table {
            offset.expire_timestamp_ms = expire_timestamp_ms;
            assert_eq!(condition.is_expired(&offset, now, 100), expected, "{condition:?} {now}");
        }
    }
}
