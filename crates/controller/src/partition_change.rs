//! The change of one partition: leader election, ISR, ELR (KIP-966), reassignment and directories, as one record.
//!
//! Owns the rules that turn a wish (a new ISR, new replicas, an election) into a `PartitionChangeRecord`, or into
//! nothing when nothing changes. Invariants: a clean election picks from the ISR, or from the ELR when the ISR is
//! empty; an unclean one leaves the leader recovering; ISR and ELR stay disjoint.

use std::collections::BTreeMap;

use metadata::partition::{NO_LEADER, NO_LEADER_CHANGE, NO_RECOVERY_STATE_CHANGE};
use metadata::{LeaderRecoveryState, MetadataVersion, PartitionRegistration, VersionedRecord};
use protocol::Uuid;
use protocol::records::metadata::PartitionChangeRecord;

use crate::reassignment::Reassignment;

/// Which leaders an election may pick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Election {
    /// The preferred replica if it can lead, or else whoever leads now.
    Preferred,
    /// Whoever leads now if it can, or else any replica that is in sync.
    Online,
    /// As [`Election::Online`], or else any replica that is alive, at the loss of records.
    Unclean,
}

/// What is known about the cluster around the partition.
pub(crate) struct PartitionContext<'a> {
    pub(crate) metadata_version: MetadataVersion,
    pub(crate) min_isr: usize,
    pub(crate) elr_enabled: bool,
    /// Whether a broker can lead this partition: alive, and its directory online.
    pub(crate) is_acceptable_leader: &'a dyn Fn(i32) -> bool,
    /// The directory of a new replica.
    pub(crate) default_dir: &'a dyn Fn(i32) -> Uuid,
}

/// Builds the record of one partition's change.
pub(crate) struct PartitionChangeBuilder<'a> {
    partition: &'a PartitionRegistration,
    topic_id: Uuid,
    partition_id: i32,
    context: PartitionContext<'a>,
    directories: BTreeMap<i32, Uuid>,
    pub(crate) isr: Vec<i32>,
    pub(crate) replicas: Vec<i32>,
    pub(crate) removing: Vec<i32>,
    pub(crate) adding: Vec<i32>,
    elr: Vec<i32>,
    pub(crate) unclean_shutdown_replica: Option<i32>,
    pub(crate) election: Election,
    pub(crate) recovery_state: LeaderRecoveryState,
}

struct ElectionResult {
    leader: i32,
    unclean: bool,
}

fn contains_all(list: &[i32], members: &[i32]) -> bool {
    members.iter().all(|m| list.contains(m))
}

impl<'a> PartitionChangeBuilder<'a> {
    pub(crate) fn new(
        partition: &'a PartitionRegistration,
        topic_id: Uuid,
        partition_id: i32,
        context: PartitionContext<'a>,
    ) -> Self {
        Self {
            partition,
            topic_id,
            partition_id,
            context,
            directories: partition
                .replicas
                .iter()
                .copied()
                .zip(partition.directories.iter().copied())
                .collect(),
            isr: partition.isr.clone(),
            replicas: partition.replicas.clone(),
            removing: partition.removing_replicas.clone(),
            adding: partition.adding_replicas.clone(),
            elr: partition.elr.clone(),
            unclean_shutdown_replica: None,
            election: Election::Online,
            recovery_state: partition.leader_recovery_state,
        }
    }

    /// Moves a replica to a directory.
    pub(crate) fn set_directory(&mut self, broker: i32, directory: Uuid) {
        self.directories.insert(broker, directory);
    }

    /// The record, or nothing when nothing changes.
    pub(crate) fn build(mut self) -> Option<VersionedRecord> {
        let mut record = PartitionChangeRecord {
            topic_id: self.topic_id,
            partition_id: self.partition_id,
            ..Default::default()
        };
        self.complete_reassignment_if_needed();
        self.populate_target_elr();
        self.try_election(&mut record);
        // A replica that leaves while the leader stays must not be fetched from any more (KIP-455).
        if record.leader == NO_LEADER_CHANGE && !contains_all(&self.replicas, &self.partition.replicas) {
            record.leader = self.partition.leader;
        }
        self.update_record_elr(&mut record);
        let may_set_isr = !self.isr.is_empty() || self.context.elr_enabled;
        if record.isr.is_none() && may_set_isr && self.isr != self.partition.isr {
            record.isr = Some(self.isr.clone());
        }
        self.bump_leader_epoch_on_isr_shrink(&mut record);
        self.update_last_known_leader(&mut record);
        self.set_assignment_changes(&mut record);
        if self.recovery_state != self.partition.leader_recovery_state {
            record.leader_recovery_state = self.recovery_state.value();
        }
        if is_no_op(&record) {
            return None;
        }
        Some(VersionedRecord::new(record, self.context.metadata_version.partition_change_record_version()))
    }

    fn complete_reassignment_if_needed(&mut self) {
        let reassignment = Reassignment {
            removing: self.removing.clone(),
            adding: self.adding.clone(),
            replicas: self.replicas.clone(),
        };
        if let Some(completed) = reassignment.maybe_complete(&self.isr) {
            self.isr = completed.isr;
            self.replicas = completed.replicas;
            self.removing.clear();
            self.adding.clear();
        }
    }

    fn populate_target_elr(&mut self) {
        if !self.context.elr_enabled {
            return;
        }
        if self.isr.len() >= self.context.min_isr {
            self.elr.clear();
            return;
        }
        let mut candidates = std::mem::take(&mut self.elr);
        candidates.extend_from_slice(&self.partition.isr);
        let unclean = self.unclean_shutdown_replica;
        candidates.retain(|r| !self.isr.contains(r) && unclean != Some(*r));
        candidates.sort_unstable();
        candidates.dedup();
        self.elr = candidates;
    }

    fn is_valid_new_leader(&self, replica: i32) -> bool {
        let in_sync = self.isr.contains(&replica) || (self.isr.is_empty() && self.elr.contains(&replica));
        in_sync && (self.context.is_acceptable_leader)(replica)
    }

    /// The last known leader, when nobody else is left and it is back (KIP-966's balanced recovery).
    fn last_known_leader(&self) -> Option<i32> {
        if !self.context.elr_enabled || !self.elr.is_empty() || !self.isr.is_empty() {
            return None;
        }
        match self.partition.last_known_elr.as_slice() {
            [leader] if (self.context.is_acceptable_leader)(*leader) => Some(*leader),
            _ => None,
        }
    }

    fn elect_leader(&self) -> ElectionResult {
        let clean = |leader| ElectionResult { leader, unclean: false };
        let unclean = |leader| ElectionResult { leader, unclean: true };
        let leader = self.partition.leader;
        if self.election == Election::Preferred
            && let Some(preferred) = self.replicas.first().filter(|r| self.is_valid_new_leader(**r))
        {
            return clean(*preferred);
        }
        if self.is_valid_new_leader(leader) {
            return clean(leader);
        }
        if let Some(online) = self.replicas.iter().find(|r| self.is_valid_new_leader(**r)) {
            return clean(*online);
        }
        if let Some(last_known) = self.last_known_leader() {
            return unclean(last_known);
        }
        if self.election == Election::Unclean
            && let Some(alive) = self.replicas.iter().find(|r| (self.context.is_acceptable_leader)(**r))
        {
            return unclean(*alive);
        }
        clean(NO_LEADER)
    }

    fn try_election(&mut self, record: &mut PartitionChangeRecord) {
        let elected = self.elect_leader();
        if elected.leader == self.partition.leader {
            return;
        }
        if self.elr.contains(&elected.leader) {
            self.isr = vec![elected.leader];
            self.elr.retain(|r| *r != elected.leader);
        }
        record.leader = elected.leader;
        if elected.unclean {
            record.isr = Some(vec![elected.leader]);
            if self.partition.leader_recovery_state != LeaderRecoveryState::Recovering {
                record.leader_recovery_state = LeaderRecoveryState::Recovering.value();
            }
        }
    }

    fn update_record_elr(&mut self, record: &mut PartitionChangeRecord) {
        let is_clean = record.isr.is_none();
        if !is_clean || !self.context.elr_enabled {
            self.elr.clear();
        }
        if self.elr != self.partition.elr {
            record.eligible_leader_replicas = Some(self.elr.clone());
        }
    }

    fn bump_leader_epoch_on_isr_shrink(&self, record: &mut PartitionChangeRecord) {
        if self.context.metadata_version.is_leader_epoch_bump_required_on_isr_shrink()
            && record.leader == NO_LEADER_CHANGE
            && record.isr.as_ref().is_some_and(|isr| !contains_all(isr, &self.partition.isr))
        {
            record.leader = self.partition.leader;
        }
    }

    fn update_last_known_leader(&self, record: &mut PartitionChangeRecord) {
        if !self.context.elr_enabled {
            return;
        }
        if record.leader == NO_LEADER && self.partition.last_known_elr.is_empty() {
            record.last_known_elr = Some(vec![self.partition.leader]);
        } else if record.leader >= 0 && !self.partition.last_known_elr.is_empty() {
            record.last_known_elr = Some(Vec::new());
        }
    }

    fn set_assignment_changes(&self, record: &mut PartitionChangeRecord) {
        if !self.replicas.is_empty() {
            if self.context.metadata_version.is_directory_assignment_supported() {
                let directories: Vec<Uuid> = self
                    .replicas
                    .iter()
                    .map(|r| {
                        self.directories.get(r).copied().unwrap_or_else(|| (self.context.default_dir)(*r))
                    })
                    .collect();
                if directories != self.partition.directories {
                    record.directories = Some(directories);
                }
            }
            if self.replicas != self.partition.replicas {
                record.replicas = Some(self.replicas.clone());
            }
        }
        if self.removing != self.partition.removing_replicas {
            record.removing_replicas = Some(self.removing.clone());
        }
        if self.adding != self.partition.adding_replicas {
            record.adding_replicas = Some(self.adding.clone());
        }
    }
}

fn is_no_op(record: &PartitionChangeRecord) -> bool {
    record.isr.is_none()
        && record.eligible_leader_replicas.is_none()
        && record.last_known_elr.is_none()
        && record.leader == NO_LEADER_CHANGE
        && record.replicas.is_none()
        && record.removing_replicas.is_none()
        && record.adding_replicas.is_none()
        && record.leader_recovery_state == NO_RECOVERY_STATE_CHANGE
        && record.directories.is_none()
}
