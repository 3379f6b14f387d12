//! A partition as the metadata knows it: replicas, directories, ISR, ELR, leader and epochs.
//!
//! Owns the merge of a `PartitionChangeRecord`. Invariants: there is one directory per replica; every change
//! raises the partition epoch by one, every record that names a leader raises the leader epoch by one.

use std::fmt;

use protocol::Uuid;
use protocol::records::metadata::{PartitionChangeRecord, PartitionRecord};

use crate::directory_id;
use crate::image::{ReplayError, WriteLoss, WriteOptions};
use crate::record::VersionedRecord;

/// No leader.
pub const NO_LEADER: i32 = -1;
/// The leader stays who it is, in a `PartitionChangeRecord`.
pub const NO_LEADER_CHANGE: i32 = -2;
/// The recovery state stays what it is, in a `PartitionChangeRecord`.
pub const NO_RECOVERY_STATE_CHANGE: i8 = -1;

/// Whether the leader may still have to truncate after an unclean election (KIP-704).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LeaderRecoveryState {
    /// Elected from the ISR, or recovered since.
    #[default]
    Recovered,
    /// Elected uncleanly and not yet recovered.
    Recovering,
}

impl LeaderRecoveryState {
    /// The state of a number in a record or request.
    pub fn from_value(value: i8) -> Option<Self> {
        match value {
            0 => Some(Self::Recovered),
            1 => Some(Self::Recovering),
            _ => None,
        }
    }

    /// The number in records and requests.
    pub fn value(self) -> i8 {
        match self {
            Self::Recovered => 0,
            Self::Recovering => 1,
        }
    }
}

impl fmt::Display for LeaderRecoveryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recovered => "RECOVERED",
            Self::Recovering => "RECOVERING",
        })
    }
}

/// A partition's state in the metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionRegistration {
    /// The replicas, the preferred leader first.
    pub replicas: Vec<i32>,
    /// The log directory of each replica (KIP-858).
    pub directories: Vec<Uuid>,
    /// The in-sync replicas.
    pub isr: Vec<i32>,
    /// Replicas that a reassignment removes.
    pub removing_replicas: Vec<i32>,
    /// Replicas that a reassignment adds.
    pub adding_replicas: Vec<i32>,
    /// The eligible leader replicas (KIP-966).
    pub elr: Vec<i32>,
    /// The last known eligible leader replicas (KIP-966).
    pub last_known_elr: Vec<i32>,
    /// The leader, or [`NO_LEADER`].
    pub leader: i32,
    /// Whether the leader still recovers from an unclean election.
    pub leader_recovery_state: LeaderRecoveryState,
    /// Raised with every leader.
    pub leader_epoch: i32,
    /// Raised with every change.
    pub partition_epoch: i32,
}

fn default_to_migrating(directories: &[Uuid], replicas: usize) -> Vec<Uuid> {
    if directories.iter().all(|d| *d == directory_id::MIGRATING) {
        vec![directory_id::MIGRATING; replicas]
    } else {
        directories.to_vec()
    }
}

impl PartitionRegistration {
    /// The state that a `PartitionRecord` describes.
    pub fn from_record(record: &PartitionRecord) -> Result<Self, ReplayError> {
        let directories = default_to_migrating(&record.directories, record.replicas.len());
        if directories.len() != record.replicas.len() {
            return Err(ReplayError::ReplicaDirectories {
                topic_id: record.topic_id,
                partition: record.partition_id,
            });
        }
        Ok(Self {
            replicas: record.replicas.clone(),
            directories,
            isr: record.isr.clone(),
            removing_replicas: record.removing_replicas.clone(),
            adding_replicas: record.adding_replicas.clone(),
            elr: record.eligible_leader_replicas.clone().unwrap_or_default(),
            last_known_elr: record.last_known_elr.clone().unwrap_or_default(),
            leader: record.leader,
            leader_recovery_state: recovery_state(record.leader_recovery_state)?,
            leader_epoch: record.leader_epoch,
            partition_epoch: record.partition_epoch,
        })
    }

    /// The state after a `PartitionChangeRecord`.
    pub fn merge(&self, record: &PartitionChangeRecord) -> Result<Self, ReplayError> {
        let replicas = record.replicas.as_ref().unwrap_or(&self.replicas).clone();
        let given = record.directories.as_ref().unwrap_or(&self.directories);
        let directories = default_to_migrating(given, replicas.len());
        if directories.len() != replicas.len() {
            return Err(ReplayError::ReplicaDirectories {
                topic_id: record.topic_id,
                partition: record.partition_id,
            });
        }
        let (leader, leader_epoch) = match record.leader {
            NO_LEADER_CHANGE => (self.leader, self.leader_epoch),
            leader => (leader, self.leader_epoch.wrapping_add(1)),
        };
        let leader_recovery_state = match record.leader_recovery_state {
            NO_RECOVERY_STATE_CHANGE => self.leader_recovery_state,
            value => recovery_state(value)?,
        };
        let pick = |new: &Option<Vec<i32>>, old: &Vec<i32>| new.as_ref().unwrap_or(old).clone();
        Ok(Self {
            replicas,
            directories,
            isr: pick(&record.isr, &self.isr),
            removing_replicas: pick(&record.removing_replicas, &self.removing_replicas),
            adding_replicas: pick(&record.adding_replicas, &self.adding_replicas),
            elr: pick(&record.eligible_leader_replicas, &self.elr),
            last_known_elr: pick(&record.last_known_elr, &self.last_known_elr),
            leader,
            leader_recovery_state,
            leader_epoch,
            partition_epoch: self.partition_epoch.wrapping_add(1),
        })
    }

    /// The state without ELR, as after a `ClearElrRecord`; `None` when there was none.
    pub fn without_elr(&self) -> Option<Self> {
        if self.elr.is_empty() && self.last_known_elr.is_empty() {
            return None;
        }
        let mut cleared = self.clone();
        cleared.elr.clear();
        cleared.last_known_elr.clear();
        cleared.partition_epoch = self.partition_epoch.wrapping_add(1);
        Some(cleared)
    }

    /// Whether there is a leader.
    pub fn has_leader(&self) -> bool {
        self.leader != NO_LEADER
    }

    /// The replica that should lead.
    pub fn preferred_replica(&self) -> i32 {
        self.replicas.first().copied().unwrap_or(NO_LEADER)
    }

    /// Whether the preferred replica leads.
    pub fn has_preferred_leader(&self) -> bool {
        self.leader == self.preferred_replica()
    }

    /// Whether replicas are being added or removed.
    pub fn is_reassigning(&self) -> bool {
        !self.removing_replicas.is_empty() || !self.adding_replicas.is_empty()
    }

    /// The directory of a replica; `None` for a broker that is none.
    pub fn directory(&self, replica: i32) -> Option<Uuid> {
        let index = self.replicas.iter().position(|r| *r == replica)?;
        self.directories.get(index).copied()
    }

    /// The `PartitionRecord` of this state.
    pub fn to_record(
        &self,
        topic_id: Uuid,
        partition_id: i32,
        options: WriteOptions,
    ) -> Result<VersionedRecord, WriteLoss> {
        let mut record = PartitionRecord {
            partition_id,
            topic_id,
            replicas: self.replicas.clone(),
            isr: self.isr.clone(),
            removing_replicas: self.removing_replicas.clone(),
            adding_replicas: self.adding_replicas.clone(),
            leader: self.leader,
            leader_recovery_state: self.leader_recovery_state.value(),
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch,
            ..Default::default()
        };
        if options.eligible_leader_replicas_enabled {
            record.eligible_leader_replicas = Some(self.elr.clone()).filter(|l| !l.is_empty());
            record.last_known_elr = Some(self.last_known_elr.clone()).filter(|l| !l.is_empty());
        }
        if options.metadata_version.is_directory_assignment_supported() {
            record.directories = self.directories.clone();
        } else if self.directories.iter().any(|d| *d != directory_id::MIGRATING) {
            return Err(options.loss("the directory assignment state of one or more replicas"));
        }
        Ok(VersionedRecord::new(record, options.metadata_version.partition_record_version()))
    }
}

fn recovery_state(value: i8) -> Result<LeaderRecoveryState, ReplayError> {
    LeaderRecoveryState::from_value(value).ok_or(ReplayError::BadValue {
        record: "PartitionRecord",
        field: "leaderRecoveryState",
        value: i64::from(value),
    })
}
