//! Offsets and groups that nobody used for long (KIP-211, KIP-496).

use std::sync::Arc;

use record::Time;

use crate::classic::ClassicGroupState;
use crate::deferred::{AppendAction, Deferred, Timeout, TimerKey};
use crate::events::GroupEvent;
use crate::modern::ModernKind;
use crate::offsets::ExpirationCondition;
use crate::records::{GroupRecord, group_metadata_tombstone, offset_commit_tombstone};
use crate::shard::{GroupCoordinatorShard, GroupResult, GroupTimers};
use crate::state::Group;

impl GroupCoordinatorShard {
    pub(crate) fn schedule_group_metadata_expiration(&self, now: Time, timers: &mut GroupTimers) {
        timers.schedule_in(
            now.monotonic,
            TimerKey::GroupMetadataExpiration,
            self.config.offsets_retention_check_interval_ms,
            Timeout::Simple,
        );
    }

    /// Removes expired offsets, then empty groups that have none left.
    pub(crate) fn cleanup_group_metadata(&mut self, now: Time, timers: &mut GroupTimers) -> GroupResult {
        let mut records = Vec::new();
        let mut expired = 0;
        let groups: Vec<(Arc<str>, Group)> =
            self.state.groups.iter().map(|(group_id, group)| (group_id.clone(), group.clone())).collect();
        for (group_id, group) in groups {
            let before = records.len();
            let all_expired = self.cleanup_expired_offsets(now, &group_id, &group, &mut records);
            expired += records.len() - before;
            if all_expired && self.is_empty_group(&group) {
                records.extend(self.group_tombstones(&group_id, &group));
            }
        }
        if !records.is_empty() {
            self.outbox.events.push(GroupEvent::MetadataExpired { tombstones: records.len() });
        }
        self.metrics.offset_expirations += expired as u64;
        self.schedule_group_metadata_expiration(now, timers);
        let retry = Some(TimerKey::GroupMetadataExpiration);
        GroupResult::non_atomic(records, Deferred::Internal { action: AppendAction::None, retry })
    }

    /// Appends a tombstone for every expired offset. Returns whether the group has no other.
    fn cleanup_expired_offsets(
        &self,
        now: Time,
        group_id: &str,
        group: &Group,
        records: &mut Vec<GroupRecord>,
    ) -> bool {
        let has_open_transactions = self.state.offsets.open.has_group(group_id);
        let Some(topics) = self.state.offsets.offsets.group(group_id) else {
            return !has_open_transactions;
        };
        let Some(condition) = self.offset_expiration_condition(group) else { return false };
        let mut all_expired = true;
        for (topic, partitions) in topics {
            if self.is_subscribed_to_topic(group, topic) {
                all_expired = false;
                continue;
            }
            for (&partition, offset) in partitions {
                let is_expired = condition.is_expired(offset, now.wall_ms, self.config.offsets_retention_ms);
                if is_expired && !self.state.offsets.open.contains(group_id, topic, partition) {
                    records.push(offset_commit_tombstone(group_id, topic, partition));
                } else {
                    all_expired = false;
                }
            }
        }
        all_expired && !has_open_transactions
    }

    fn offset_expiration_condition(&self, group: &Group) -> Option<ExpirationCondition> {
        match group {
            Group::Classic(group) => self.classic.get(group)?.offset_expiration_condition(),
            Group::Modern(group) => {
                (group.kind() != ModernKind::Share).then_some(ExpirationCondition::SinceCommit)
            }
        }
    }

    /// Whether a group without offsets goes. Share groups stay until somebody deletes them.
    fn is_empty_group(&self, group: &Group) -> bool {
        match group {
            Group::Classic(group) => {
                self.classic.get(group).is_some_and(|group| group.is_in_state(ClassicGroupState::Empty))
            }
            Group::Modern(group) => group.kind() != ModernKind::Share && group.is_empty(),
        }
    }

    pub(crate) fn group_tombstones(&self, group_id: &str, group: &Group) -> Vec<GroupRecord> {
        match group {
            Group::Classic(_) => vec![group_metadata_tombstone(group_id)],
            Group::Modern(group) => group.tombstones(),
        }
    }
}
