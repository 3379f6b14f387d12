//! Groups of the newer protocols, as their records in the log describe them.
//!
//! This node does not run them yet. It keeps them as they are so that their offsets can be read, committed under the
//! rules of their members and protected from expiration, and so that a node which does run them finds them unharmed.
//! Loading is lenient where the reference stops: a tombstone removes what it names, whatever else is still there.

use std::collections::{BTreeMap, BTreeSet};

use protocol::records::group::{
    ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupMemberMetadataKey, ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey, ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMetadataKey, RecordKey, RecordValue,
    ShareGroupCurrentMemberAssignmentKey, ShareGroupMemberMetadataKey, ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey, ShareGroupTargetAssignmentMetadataKey,
    StreamsGroupCurrentMemberAssignmentKey, StreamsGroupMemberMetadataKey, StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTopologyKey,
};
use protocol::{ErrorCode, Uuid};

use crate::records::GroupRecord;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModernKind {
    Consumer,
    Share,
    Streams,
}

impl ModernKind {
    /// Both the group type and the protocol type.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Consumer => "consumer",
            Self::Share => "share",
            Self::Streams => "streams",
        }
    }
}

/// What partitions are assigned by: a topic, or a part of a streams topology.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Topic(Uuid),
    Subtopology(String),
}

/// Partitions with the epoch each was assigned in.
type Assignment = BTreeMap<Owner, BTreeMap<i32, i32>>;

#[derive(Clone, Debug, Default, PartialEq)]
struct ModernMember {
    epoch: i32,
    state: i8,
    instance_id: Option<String>,
    uses_classic_protocol: bool,
    subscribed_topics: Vec<String>,
    subscribed_regex: Option<String>,
    assigned: Assignment,
    pending_revocation: Assignment,
}

#[derive(Clone, Debug, PartialEq)]
struct Topology {
    epoch: i32,
    /// The subtopology that reads each source topic.
    source_topics: BTreeMap<String, String>,
}

/// A consumer, share or streams group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModernGroup {
    kind: ModernKind,
    group_id: String,
    group_epoch: i32,
    assignment_epoch: i32,
    members: BTreeMap<String, ModernMember>,
    /// Resolved regular expressions and the topics they stand for.
    regexes: BTreeMap<String, BTreeSet<String>>,
    topology: Option<Topology>,
    validated_topology_epoch: i32,
    /// A share group has state in `__share_group_state`.
    has_share_state: bool,
}

/// Whether each partition of an OffsetCommit must be checked against the member's assignment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartitionCheck {
    None,
    AssignmentEpoch,
}

/// The group that a record of a newer protocol belongs to, `None` for records of the classic protocol.
pub(crate) fn owner_of(key: &RecordKey) -> Option<(ModernKind, &str)> {
    use ModernKind::{Consumer, Share, Streams};
    use RecordKey as K;
    Some(match key {
        K::LegacyOffsetCommitKey(_) | K::OffsetCommitKey(_) | K::GroupMetadataKey(_) => return None,
        K::ConsumerGroupMetadataKey(k) => (Consumer, &k.group_id),
        K::ConsumerGroupPartitionMetadataKey(k) => (Consumer, &k.group_id),
        K::ConsumerGroupMemberMetadataKey(k) => (Consumer, &k.group_id),
        K::ConsumerGroupTargetAssignmentMetadataKey(k) => (Consumer, &k.group_id),
        K::ConsumerGroupTargetAssignmentMemberKey(k) => (Consumer, &k.group_id),
        K::ConsumerGroupCurrentMemberAssignmentKey(k) => (Consumer, &k.group_id),
        K::ConsumerGroupRegularExpressionKey(k) => (Consumer, &k.group_id),
        K::ShareGroupMemberMetadataKey(k) => (Share, &k.group_id),
        K::ShareGroupMetadataKey(k) => (Share, &k.group_id),
        K::ShareGroupTargetAssignmentMetadataKey(k) => (Share, &k.group_id),
        K::ShareGroupTargetAssignmentMemberKey(k) => (Share, &k.group_id),
        K::ShareGroupCurrentMemberAssignmentKey(k) => (Share, &k.group_id),
        K::ShareGroupStatePartitionMetadataKey(k) => (Share, &k.group_id),
        K::StreamsGroupMetadataKey(k) => (Streams, &k.group_id),
        K::StreamsGroupMemberMetadataKey(k) => (Streams, &k.group_id),
        K::StreamsGroupTargetAssignmentMetadataKey(k) => (Streams, &k.group_id),
        K::StreamsGroupTargetAssignmentMemberKey(k) => (Streams, &k.group_id),
        K::StreamsGroupCurrentMemberAssignmentKey(k) => (Streams, &k.group_id),
        K::StreamsGroupTopologyKey(k) => (Streams, &k.group_id),
    })
}

/// Whether a tombstone of this key removes the whole group.
pub(crate) fn is_group_key(key: &RecordKey) -> bool {
    matches!(
        key,
        RecordKey::ConsumerGroupMetadataKey(_)
            | RecordKey::ShareGroupMetadataKey(_)
            | RecordKey::StreamsGroupMetadataKey(_)
    )
}

impl ModernGroup {
    pub(crate) fn new(kind: ModernKind, group_id: &str) -> Self {
        Self {
            kind,
            group_id: group_id.to_owned(),
            // The reference starts at 1 so that a first member that owns nothing yet is behind.
            group_epoch: 1,
            assignment_epoch: -1,
            members: BTreeMap::new(),
            regexes: BTreeMap::new(),
            topology: None,
            validated_topology_epoch: -1,
            has_share_state: false,
        }
    }

    pub(crate) fn kind(&self) -> ModernKind {
        self.kind
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn has_share_state(&self) -> bool {
        self.has_share_state
    }

    pub(crate) fn state_name(&self) -> &'static str {
        if self.members.is_empty() {
            return "Empty";
        }
        let stable = match self.kind {
            ModernKind::Share => return "Stable",
            ModernKind::Consumer => 0,
            ModernKind::Streams => 1,
        };
        let validated = self.topology.as_ref().is_some_and(|t| t.epoch == self.validated_topology_epoch);
        if self.kind == ModernKind::Streams && !validated {
            return "NotReady";
        }
        if self.group_epoch > self.assignment_epoch {
            return "Assigning";
        }
        let reconciled = |m: &ModernMember| m.state == stable && m.epoch == self.assignment_epoch;
        if self.members.values().all(reconciled) { "Stable" } else { "Reconciling" }
    }

    pub(crate) fn is_subscribed_to_topic(&self, topic: &str) -> bool {
        if self.kind == ModernKind::Streams {
            let reads = self.topology.as_ref().is_some_and(|t| t.source_topics.contains_key(topic));
            return !self.members.is_empty() && reads;
        }
        self.members.values().any(|member| {
            let regex = member.subscribed_regex.as_ref().and_then(|regex| self.regexes.get(regex));
            member.subscribed_topics.iter().any(|name| name == topic)
                || regex.is_some_and(|topics| topics.contains(topic))
        })
    }

    pub(crate) fn validate_offset_commit(
        &self,
        member_id: &str,
        group_instance_id: Option<&str>,
        member_epoch: i32,
        is_transactional: bool,
        api_version: i16,
    ) -> Result<PartitionCheck, ErrorCode> {
        if self.kind == ModernKind::Share {
            return Err(ErrorCode::GROUP_ID_NOT_FOUND);
        }
        let from_outside =
            is_transactional && member_epoch == -1 && member_id.is_empty() && group_instance_id.is_none();
        if from_outside || (member_epoch < 0 && self.members.is_empty()) {
            return Ok(PartitionCheck::None);
        }
        let member = self.members.get(member_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        if !is_transactional && !member.uses_classic_protocol && api_version < 9 {
            return Err(ErrorCode::UNSUPPORTED_VERSION);
        }
        match member_epoch.cmp(&member.epoch) {
            std::cmp::Ordering::Equal => Ok(PartitionCheck::None),
            std::cmp::Ordering::Greater => Err(member.stale_epoch_error()),
            std::cmp::Ordering::Less => Ok(PartitionCheck::AssignmentEpoch),
        }
    }

    /// A commit with an older epoch counts where the partition has been the member's since.
    pub(crate) fn validate_partition(
        &self,
        member_id: &str,
        member_epoch: i32,
        topic: &str,
        topic_id: Uuid,
        partition: i32,
    ) -> Result<(), ErrorCode> {
        let member = self.members.get(member_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        let owner = match self.kind {
            ModernKind::Streams => {
                let reader = self.topology.as_ref().and_then(|t| t.source_topics.get(topic));
                Owner::Subtopology(reader.ok_or(ErrorCode::STALE_MEMBER_EPOCH)?.clone())
            }
            _ => Owner::Topic(topic_id),
        };
        let assigned_in = |assignment: &Assignment| assignment.get(&owner)?.get(&partition).copied();
        let epoch = assigned_in(&member.assigned).or_else(|| assigned_in(&member.pending_revocation));
        match epoch {
            Some(epoch) if member_epoch >= epoch => Ok(()),
            _ => Err(member.stale_epoch_error()),
        }
    }

    pub(crate) fn validate_offset_fetch(
        &self,
        member_id: Option<&str>,
        member_epoch: i32,
    ) -> Result<(), ErrorCode> {
        if self.kind == ModernKind::Share {
            return Err(ErrorCode::GROUP_ID_NOT_FOUND);
        }
        if member_id.is_none() && member_epoch < 0 {
            return Ok(());
        }
        let member = self.members.get(member_id.unwrap_or_default());
        let member = member.ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        if member.epoch == member_epoch { Ok(()) } else { Err(member.stale_epoch_error()) }
    }

    /// The checks that a request of the classic protocol meets in a consumer group; `Ok` for a member that uses the
    /// classic protocol and is up to date.
    pub(crate) fn validate_classic_request(
        &self,
        member_id: &str,
        group_instance_id: Option<&str>,
        generation_id: i32,
    ) -> Result<(), ErrorCode> {
        if self.kind != ModernKind::Consumer {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        let member = match group_instance_id {
            None => self.members.get(member_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?,
            Some(instance_id) => {
                let mut members = self.members.iter();
                let found = members.find(|(_, m)| m.instance_id.as_deref() == Some(instance_id));
                let (found_id, member) = found.ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
                if found_id != member_id {
                    return Err(ErrorCode::FENCED_INSTANCE_ID);
                }
                member
            }
        };
        if !member.uses_classic_protocol {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        if member.epoch == generation_id { Ok(()) } else { Err(ErrorCode::ILLEGAL_GENERATION) }
    }

    /// The check that a LeaveGroup meets for one member.
    pub(crate) fn validate_leaving_member(
        &self,
        member_id: &str,
        group_instance_id: Option<&str>,
    ) -> Result<(), ErrorCode> {
        if self.kind != ModernKind::Consumer {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        let Some(instance_id) = group_instance_id else {
            return if self.members.contains_key(member_id) {
                Ok(())
            } else {
                Err(ErrorCode::UNKNOWN_MEMBER_ID)
            };
        };
        let mut members = self.members.iter();
        let found = members.find(|(_, m)| m.instance_id.as_deref() == Some(instance_id));
        let (found_id, _) = found.ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        if member_id.is_empty() || found_id == member_id {
            Ok(())
        } else {
            Err(ErrorCode::FENCED_INSTANCE_ID)
        }
    }

    /// The records that remove the group, in the reference's order.
    pub(crate) fn tombstones(&self) -> Vec<GroupRecord> {
        let mut records = Vec::new();
        let group_id = || self.group_id.clone();
        match self.kind {
            ModernKind::Consumer => {
                for member_id in self.members.keys().cloned() {
                    records.push(GroupRecord::tombstone(ConsumerGroupCurrentMemberAssignmentKey {
                        group_id: group_id(),
                        member_id,
                    }));
                }
                for member_id in self.members.keys().cloned() {
                    records.push(GroupRecord::tombstone(ConsumerGroupTargetAssignmentMemberKey {
                        group_id: group_id(),
                        member_id,
                    }));
                }
                records.push(GroupRecord::tombstone(ConsumerGroupTargetAssignmentMetadataKey {
                    group_id: group_id(),
                }));
                for member_id in self.members.keys().cloned() {
                    records.push(GroupRecord::tombstone(ConsumerGroupMemberMetadataKey {
                        group_id: group_id(),
                        member_id,
                    }));
                }
                for regular_expression in self.regexes.keys().cloned() {
                    records.push(GroupRecord::tombstone(ConsumerGroupRegularExpressionKey {
                        group_id: group_id(),
                        regular_expression,
                    }));
                }
                records
                    .push(GroupRecord::tombstone(ConsumerGroupPartitionMetadataKey { group_id: group_id() }));
                records.push(GroupRecord::tombstone(ConsumerGroupMetadataKey { group_id: group_id() }));
            }
            // Only empty groups are removed: there are no members to name.
            ModernKind::Share => records.extend([
                GroupRecord::tombstone(ShareGroupTargetAssignmentMetadataKey { group_id: group_id() }),
                GroupRecord::tombstone(ShareGroupStatePartitionMetadataKey { group_id: group_id() }),
                GroupRecord::tombstone(ShareGroupMetadataKey { group_id: group_id() }),
            ]),
            ModernKind::Streams => records.extend([
                GroupRecord::tombstone(StreamsGroupTargetAssignmentMetadataKey { group_id: group_id() }),
                GroupRecord::tombstone(StreamsGroupMetadataKey { group_id: group_id() }),
                GroupRecord::tombstone(StreamsGroupTopologyKey { group_id: group_id() }),
            ]),
        }
        records
    }

    /// Applies a record of this group that is not a tombstone of the group itself.
    pub(crate) fn replay(&mut self, key: &RecordKey, value: Option<RecordValue>) {
        use RecordKey as K;
        match (key, value) {
            (_, Some(value)) => self.replay_value(key, value),
            (K::ConsumerGroupMemberMetadataKey(ConsumerGroupMemberMetadataKey { member_id, .. }), None)
            | (K::ShareGroupMemberMetadataKey(ShareGroupMemberMetadataKey { member_id, .. }), None)
            | (K::StreamsGroupMemberMetadataKey(StreamsGroupMemberMetadataKey { member_id, .. }), None) => {
                self.members.remove(member_id);
            }
            (
                K::ConsumerGroupCurrentMemberAssignmentKey(ConsumerGroupCurrentMemberAssignmentKey {
                    member_id,
                    ..
                })
                | K::ShareGroupCurrentMemberAssignmentKey(ShareGroupCurrentMemberAssignmentKey {
                    member_id,
                    ..
                })
                | K::StreamsGroupCurrentMemberAssignmentKey(StreamsGroupCurrentMemberAssignmentKey {
                    member_id,
                    ..
                }),
                None,
            ) => {
                if let Some(member) = self.members.get_mut(member_id) {
                    member.epoch = -1;
                    member.assigned.clear();
                    member.pending_revocation.clear();
                }
            }
            (
                K::ConsumerGroupTargetAssignmentMetadataKey(_)
                | K::ShareGroupTargetAssignmentMetadataKey(_)
                | K::StreamsGroupTargetAssignmentMetadataKey(_),
                None,
            ) => self.assignment_epoch = -1,
            (K::ConsumerGroupRegularExpressionKey(k), None) => {
                self.regexes.remove(&k.regular_expression);
            }
            (K::ShareGroupStatePartitionMetadataKey(_), None) => self.has_share_state = false,
            (K::StreamsGroupTopologyKey(_), None) => self.topology = None,
            _ => {}
        }
    }

    fn replay_value(&mut self, key: &RecordKey, value: RecordValue) {
        use RecordValue as V;
        match value {
            V::ConsumerGroupMetadataValue(v) => self.group_epoch = v.epoch,
            V::ShareGroupMetadataValue(v) => self.group_epoch = v.epoch,
            V::StreamsGroupMetadataValue(v) => {
                self.group_epoch = v.epoch;
                self.validated_topology_epoch = v.validated_topology_epoch;
            }
            V::ConsumerGroupTargetAssignmentMetadataValue(v) => self.assignment_epoch = v.assignment_epoch,
            V::ShareGroupTargetAssignmentMetadataValue(v) => self.assignment_epoch = v.assignment_epoch,
            V::StreamsGroupTargetAssignmentMetadataValue(v) => self.assignment_epoch = v.assignment_epoch,
            V::ShareGroupStatePartitionMetadataValue(v) => {
                self.has_share_state = !(v.initializing_topics.is_empty() && v.initialized_topics.is_empty());
            }
            V::ConsumerGroupRegularExpressionValue(v) => {
                if let RecordKey::ConsumerGroupRegularExpressionKey(k) = key {
                    self.regexes.insert(k.regular_expression.clone(), v.topics.into_iter().collect());
                }
            }
            V::StreamsGroupTopologyValue(v) => {
                let sources = v.subtopologies.into_iter().flat_map(|part| {
                    let id = part.subtopology_id;
                    part.source_topics.into_iter().map(move |topic| (topic, id.clone()))
                });
                self.topology = Some(Topology { epoch: v.epoch, source_topics: sources.collect() });
            }
            other => self.replay_member(key, other),
        }
    }

    fn replay_member(&mut self, key: &RecordKey, value: RecordValue) {
        use RecordKey as K;
        use RecordValue as V;
        let member_id = match key {
            K::ConsumerGroupMemberMetadataKey(k) => &k.member_id,
            K::ConsumerGroupCurrentMemberAssignmentKey(k) => &k.member_id,
            K::ShareGroupMemberMetadataKey(k) => &k.member_id,
            K::ShareGroupCurrentMemberAssignmentKey(k) => &k.member_id,
            K::StreamsGroupMemberMetadataKey(k) => &k.member_id,
            K::StreamsGroupCurrentMemberAssignmentKey(k) => &k.member_id,
            // Target assignments and partition metadata: only who runs the group needs them.
            _ => return,
        };
        let member = self.members.entry(member_id.clone()).or_default();
        match value {
            V::ConsumerGroupMemberMetadataValue(v) => {
                member.instance_id = v.instance_id;
                member.uses_classic_protocol = v.classic_member_metadata.is_some();
                member.subscribed_topics = v.subscribed_topic_names;
                member.subscribed_regex = v.subscribed_topic_regex.filter(|regex| !regex.is_empty());
            }
            V::ShareGroupMemberMetadataValue(v) => member.subscribed_topics = v.subscribed_topic_names,
            V::StreamsGroupMemberMetadataValue(v) => member.instance_id = v.instance_id,
            V::ConsumerGroupCurrentMemberAssignmentValue(v) => {
                member.epoch = v.member_epoch;
                member.state = v.state;
                let by_topic = |list: Vec<_>| -> Assignment {
                    let topics = list.into_iter().map(
                        |t: protocol::records::group::consumer_group_current_member_assignment_value::TopicPartitions| {
                            (Owner::Topic(t.topic_id), with_epochs(t.partitions, t.assignment_epochs, v.member_epoch))
                        },
                    );
                    topics.collect()
                };
                member.assigned = by_topic(v.assigned_partitions);
                member.pending_revocation = by_topic(v.partitions_pending_revocation);
            }
            V::ShareGroupCurrentMemberAssignmentValue(v) => {
                member.epoch = v.member_epoch;
                member.state = v.state;
            }
            V::StreamsGroupCurrentMemberAssignmentValue(v) => {
                member.epoch = v.member_epoch;
                member.state = v.state;
                let by_part = |list: Vec<_>| -> Assignment {
                    let parts = list.into_iter().map(
                        |t: protocol::records::group::streams_group_current_member_assignment_value::TaskIds| {
                            let owner = Owner::Subtopology(t.subtopology_id);
                            (owner, with_epochs(t.partitions, t.assignment_epochs, v.member_epoch))
                        },
                    );
                    parts.collect()
                };
                member.assigned = by_part(v.active_tasks);
                member.pending_revocation = by_part(v.active_tasks_pending_revocation);
            }
            _ => {}
        }
    }
}

impl ModernMember {
    fn stale_epoch_error(&self) -> ErrorCode {
        if self.uses_classic_protocol { ErrorCode::ILLEGAL_GENERATION } else { ErrorCode::STALE_MEMBER_EPOCH }
    }
}

/// Partitions with their epochs; without usable epochs all have the member's.
fn with_epochs(partitions: Vec<i32>, epochs: Option<Vec<i32>>, member_epoch: i32) -> BTreeMap<i32, i32> {
    match epochs {
        Some(epochs) if epochs.len() == partitions.len() => partitions.into_iter().zip(epochs).collect(),
        _ => partitions.into_iter().map(|partition| (partition, member_epoch.max(0))).collect(),
    }
}
