//! Decisions: from a state and a request to records and a response, changing nothing.
//!
//! Owns no state: a [`Decider`] only looks at the replicated state, the settings and the heartbeats. Each file is one
//! of the reference's control managers or a part of it.

pub(crate) mod alter_partition;
pub(crate) mod client_quotas;
pub(crate) mod cluster;
pub(crate) mod configs;
pub(crate) mod create_topics;
pub(crate) mod directories;
pub(crate) mod elections;
pub(crate) mod features;
pub(crate) mod partitions;
pub(crate) mod producer_ids;
pub(crate) mod reassignments;
pub(crate) mod topics;

use std::collections::BTreeMap;

use metadata::image::TopicImage;
use metadata::{ConfigResource, PartitionRegistration, VersionedRecord, WriteOptions, directory_id};
use protocol::{ErrorCode, Uuid};
use record::Time;

use crate::api::{ApiError, SeededRandom};
use crate::heartbeat::BrokerHeartbeatManager;
use crate::partition_change::{Election, PartitionChangeBuilder, PartitionContext};
use crate::placer::{self, UsableBroker};
use crate::settings::ControllerSettings;
use crate::state::{ControllerState, TopicIdPartition};
use crate::topic_configs::TopicConfigLayers;

/// What a decision may look at.
pub(crate) struct Decider<'a> {
    pub(crate) now: Time,
    pub(crate) state: &'a ControllerState,
    pub(crate) settings: &'a ControllerSettings,
    pub(crate) heartbeats: &'a BrokerHeartbeatManager,
    /// What raft says of `kraft.version`.
    pub(crate) kraft_version: i16,
}

/// Which brokers change their role in many partitions at once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BrokerChange {
    /// Leaves the ISR and must not lead.
    pub(crate) remove: Option<i32>,
    /// May lead although it is not yet unfenced.
    pub(crate) add: Option<i32>,
    /// Stopped uncleanly: leaves ISR and ELR (KIP-966).
    pub(crate) unclean: Option<i32>,
}

pub(crate) const MIN_INSYNC_REPLICAS: &str = "min.insync.replicas";
pub(crate) const UNCLEAN_LEADER_ELECTION_ENABLE: &str = "unclean.leader.election.enable";

impl<'a> Decider<'a> {
    pub(crate) fn elr_enabled(&self) -> bool {
        self.state.image.features.is_elr_enabled()
    }

    pub(crate) fn write_options(&self) -> WriteOptions {
        WriteOptions {
            metadata_version: self.state.metadata_version(),
            eligible_leader_replicas_enabled: self.elr_enabled(),
        }
    }

    /// Refuses a broker that is not registered under this epoch.
    pub(crate) fn check_broker_epoch(&self, broker: i32, epoch: i64) -> Result<(), ApiError> {
        let stale = |message| Err(ApiError::new(ErrorCode::STALE_BROKER_EPOCH, message));
        match self.state.broker(broker) {
            None => stale(format!("No broker registration found for broker id {broker}")),
            Some(b) if b.epoch != epoch => {
                stale(format!("Expected broker epoch {}, but got broker epoch {epoch}", b.epoch))
            }
            Some(_) => Ok(()),
        }
    }

    /// The directory of a new replica on a broker (KIP-858).
    pub(crate) fn default_dir(&self, broker: i32) -> Uuid {
        if !self.state.metadata_version().is_directory_assignment_supported() {
            return directory_id::MIGRATING;
        }
        match self.state.broker(broker).map(|b| b.directories.as_slice()) {
            None => directory_id::UNASSIGNED,
            Some([]) => directory_id::MIGRATING,
            Some([only]) => *only,
            Some(_) => directory_id::UNASSIGNED,
        }
    }

    /// The configurations of a topic in effect: of one that exists, or of one that is created with `topic`.
    pub(crate) fn with_topic_configs<T>(
        &self,
        topic: &BTreeMap<String, String>,
        look: impl FnOnce(TopicConfigLayers<'_>) -> T,
    ) -> T {
        let empty = BTreeMap::new();
        let of = |resource: ConfigResource| self.state.image.configs.get(&resource);
        look(TopicConfigLayers {
            topic,
            node: of(ConfigResource::broker(self.settings.local.node_id)).unwrap_or(&empty),
            cluster: of(ConfigResource::cluster_default()).unwrap_or(&empty),
            server: &self.settings.server,
        })
    }

    /// One configuration of an existing topic in effect.
    fn topic_config(&self, topic: &str, key: &str) -> Option<String> {
        let empty = BTreeMap::new();
        let own = self.state.image.configs.get(&ConfigResource::topic(topic)).unwrap_or(&empty);
        self.with_topic_configs(own, |layers| layers.value(key))
    }

    pub(crate) fn unclean_election_enabled(&self, topic: &str) -> bool {
        self.topic_config(topic, UNCLEAN_LEADER_ELECTION_ENABLE)
            .is_some_and(|v| v.eq_ignore_ascii_case("true"))
    }

    /// `min.insync.replicas`, at most the replication factor.
    pub(crate) fn effective_min_isr(&self, topic: &TopicImage) -> usize {
        let configured = self.topic_config(&topic.name, MIN_INSYNC_REPLICAS);
        let configured = configured.and_then(|v| v.trim().parse::<usize>().ok()).unwrap_or(1);
        let replicas = topic.partitions.first().map_or(0, |(_, p)| p.replicas.len());
        configured.min(replicas)
    }

    /// Whether `broker`, acceptable as such, has the partition's directory online.
    fn has_online_dir(&self, partition: &PartitionRegistration, broker: i32) -> bool {
        partition
            .directory(broker)
            .is_some_and(|dir| self.state.broker(broker).is_some_and(|b| b.has_online_dir(&dir)))
    }

    /// Builds one partition's change with `change` applied to the builder first.
    pub(crate) fn change_partition(
        &self,
        topic: &TopicImage,
        partition_id: i32,
        partition: &PartitionRegistration,
        change: impl FnOnce(&mut PartitionChangeBuilder<'_>),
    ) -> Option<VersionedRecord> {
        self.change_partition_if(topic, partition_id, partition, &|b| self.state.is_active(b), change)
    }

    fn change_partition_if(
        &self,
        topic: &TopicImage,
        partition_id: i32,
        partition: &PartitionRegistration,
        acceptable: &dyn Fn(i32) -> bool,
        change: impl FnOnce(&mut PartitionChangeBuilder<'_>),
    ) -> Option<VersionedRecord> {
        let is_acceptable_leader = |b: i32| acceptable(b) && self.has_online_dir(partition, b);
        let default_dir = |b: i32| self.default_dir(b);
        let context = PartitionContext {
            metadata_version: self.state.metadata_version(),
            min_isr: self.effective_min_isr(topic),
            elr_enabled: self.elr_enabled(),
            is_acceptable_leader: &is_acceptable_leader,
            default_dir: &default_dir,
        };
        let mut builder = PartitionChangeBuilder::new(partition, topic.id, partition_id, context);
        change(&mut builder);
        builder.build()
    }

    /// The records that a change of brokers causes in many partitions: new ISRs, new leaders.
    pub(crate) fn leader_and_isr_updates(
        &self,
        change: BrokerChange,
        partitions: impl IntoIterator<Item = TopicIdPartition>,
        records: &mut Vec<VersionedRecord>,
    ) {
        let acceptable = |b: i32| {
            change.remove != Some(b)
                && change.unclean != Some(b)
                && (change.add == Some(b) || self.state.is_active(b))
        };
        for (topic_id, partition_id) in partitions {
            let Some(topic) = self.state.image.topics.topic(&topic_id) else { continue };
            let Some(partition) = topic.partitions.get(&partition_id) else { continue };
            let record = self.change_partition_if(topic, partition_id, partition, &acceptable, |builder| {
                if self.unclean_election_enabled(&topic.name) {
                    builder.election = Election::Unclean;
                }
                builder.unclean_shutdown_replica = change.unclean;
                builder.isr.retain(|r| change.remove != Some(*r) && change.unclean != Some(*r));
            });
            records.extend(record);
        }
    }

    /// Replicas for new partitions.
    pub(crate) fn place(
        &self,
        random: &mut SeededRandom,
        partitions: usize,
        replication_factor: i16,
    ) -> Result<Vec<Vec<i32>>, ApiError> {
        let usable = self.heartbeats.usable_brokers().filter_map(|(id, fenced)| {
            let broker = self.state.broker(id).filter(|b| b.has_uncordoned_dirs())?;
            Some(UsableBroker { id, rack: broker.rack.clone(), fenced })
        });
        placer::place(random, usable, partitions, replication_factor)
    }

    /// Refuses replicas that the user named when they cannot be right.
    pub(crate) fn validate_manual_assignment(
        &self,
        replicas: &[i32],
        replication_factor: Option<usize>,
    ) -> Result<(), ApiError> {
        let invalid = |what: String| {
            let message = format!("The manual partition assignment includes {what}");
            Err(ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message))
        };
        if replicas.is_empty() {
            return invalid("an empty replica list.".to_owned());
        }
        let mut sorted = replicas.to_vec();
        sorted.sort_unstable();
        let mut previous = None;
        for broker in sorted {
            let Some(registration) = self.state.broker(broker) else {
                return invalid(format!("broker {broker}, but no such broker is registered."));
            };
            if !registration.has_uncordoned_dirs() {
                return invalid(format!("broker {broker}, but all its log directories are cordoned."));
            }
            if previous == Some(broker) {
                return invalid(format!("the broker {broker} more than once."));
            }
            previous = Some(broker);
        }
        match replication_factor {
            Some(factor) if factor != replicas.len() => invalid(format!(
                "a partition with {} replica(s), but this is not consistent with previous partitions, which have \
                 {factor} replica(s).",
                replicas.len()
            )),
            _ => Ok(()),
        }
    }

    /// A new partition: its ISR is what is alive of its replicas.
    pub(crate) fn new_partition(&self, replicas: Vec<i32>) -> Option<PartitionRegistration> {
        let isr: Vec<i32> = replicas.iter().copied().filter(|b| self.state.is_active(*b)).collect();
        Some(PartitionRegistration {
            directories: replicas.iter().map(|b| self.default_dir(*b)).collect(),
            replicas,
            leader: *isr.first()?,
            isr,
            removing_replicas: Vec::new(),
            adding_replicas: Vec::new(),
            elr: Vec::new(),
            last_known_elr: Vec::new(),
            leader_recovery_state: metadata::LeaderRecoveryState::Recovered,
            leader_epoch: 0,
            partition_epoch: 0,
        })
    }

    /// The record of a new partition.
    pub(crate) fn partition_record(
        &self,
        topic_id: Uuid,
        partition_id: i32,
        partition: &PartitionRegistration,
    ) -> Result<VersionedRecord, ApiError> {
        partition
            .to_record(topic_id, partition_id, self.write_options())
            .map_err(|_| ApiError::silent(ErrorCode::UNKNOWN_SERVER_ERROR))
    }
}
