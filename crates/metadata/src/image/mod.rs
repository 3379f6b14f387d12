//! The metadata as of an offset: what a broker serves from and what a snapshot holds.
//!
//! Owns [`MetadataImage`], the in-place replay of every record on it, and the writer that turns it into records.
//! Invariants: an image is a plain value built of persistent maps, so copying one costs a few reference counts
//! and changing a copy copies only what changes; replaying what [`MetadataImage::write`] returns on an empty image
//! gives the same image (but for its provenance).
//! Concurrency: published images are shared and never changed. A crash leaves nothing: the log and its snapshots hold all.

pub mod client_quotas;
mod cluster;
mod configs;
mod error;
mod features;
mod security;
mod topics;

use bytes::Bytes;

pub use client_quotas::{ClientQuotaEntity, ClientQuotasImage};
pub use cluster::ClusterImage;
pub use configs::{ConfigResource, ConfigurationsImage, resource_type};
pub use error::{ReplayError, WriteLoss, WriteOptions};
pub use features::FeaturesImage;
pub use security::{AclsImage, DelegationTokensImage, ScramCredentialData, ScramImage, StandardAcl};
pub use topics::{TopicImage, TopicsImage};

use crate::record::{MetadataRecord, VersionedRecord};

/// Where an image came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataProvenance {
    /// The last offset it contains, or -1.
    pub last_contained_offset: i64,
    /// The epoch of that offset, or -1.
    pub last_contained_epoch: i32,
    /// When the record at that offset was appended, or -1.
    pub last_contained_log_time_ms: i64,
    /// Whether that offset ends a batch.
    pub is_offset_batch_aligned: bool,
}

impl Default for MetadataProvenance {
    fn default() -> Self {
        Self {
            last_contained_offset: -1,
            last_contained_epoch: -1,
            last_contained_log_time_ms: -1,
            is_offset_batch_aligned: false,
        }
    }
}

/// Producer ids (KIP-730): the first that no broker was given yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerIdsImage {
    /// The next id, or -1 when none was ever given.
    pub next_producer_id: i64,
}

impl Default for ProducerIdsImage {
    fn default() -> Self {
        Self { next_producer_id: -1 }
    }
}

/// All metadata as of an offset.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MetadataImage {
    /// Where it came from.
    pub provenance: MetadataProvenance,
    /// Finalized features.
    pub features: FeaturesImage,
    /// Brokers and controllers.
    pub cluster: ClusterImage,
    /// Topics and partitions.
    pub topics: TopicsImage,
    /// Dynamic configurations.
    pub configs: ConfigurationsImage,
    /// Client quotas.
    pub client_quotas: ClientQuotasImage,
    /// Producer ids.
    pub producer_ids: ProducerIdsImage,
    /// Access control entries.
    pub acls: AclsImage,
    /// SCRAM credentials.
    pub scram: ScramImage,
    /// Delegation tokens.
    pub delegation_tokens: DelegationTokensImage,
}

impl MetadataImage {
    /// Whether nothing was ever replayed.
    pub fn is_empty(&self) -> bool {
        let fresh = Self { provenance: self.provenance, ..Self::default() };
        *self == fresh
    }

    /// The last offset the image contains.
    pub fn offset(&self) -> i64 {
        self.provenance.last_contained_offset
    }

    /// The options with which this image writes its records.
    pub fn write_options(&self) -> Option<WriteOptions> {
        Some(WriteOptions {
            metadata_version: self.features.metadata_version?,
            eligible_leader_replicas_enabled: self.features.is_elr_enabled(),
        })
    }

    /// Applies a record. Markers of transactions are the loader's and the controller's business: they change nothing here.
    pub fn replay(&mut self, record: &MetadataRecord) -> Result<(), ReplayError> {
        match record {
            MetadataRecord::RegisterBrokerRecord(r) => self.cluster.replay_register_broker(r),
            MetadataRecord::UnregisterBrokerRecord(r) => self.cluster.replay_unregister_broker(r),
            MetadataRecord::FenceBrokerRecord(r) => self.cluster.replay_fencing(r.id, r.epoch, true)?,
            MetadataRecord::UnfenceBrokerRecord(r) => self.cluster.replay_fencing(r.id, r.epoch, false)?,
            MetadataRecord::BrokerRegistrationChangeRecord(r) => self.cluster.replay_change(r)?,
            MetadataRecord::RegisterControllerRecord(r) => self.cluster.replay_register_controller(r),
            MetadataRecord::UnregisterControllerRecord(r) => self.cluster.replay_unregister_controller(r),
            MetadataRecord::TopicRecord(r) => self.topics.replay_topic(r),
            MetadataRecord::PartitionRecord(r) => self.topics.replay_partition(r)?,
            MetadataRecord::PartitionChangeRecord(r) => self.topics.replay_partition_change(r)?,
            MetadataRecord::ClearElrRecord(r) => self.topics.replay_clear_elr(r)?,
            MetadataRecord::RemoveTopicRecord(r) => {
                let name = self.topics.replay_remove_topic(r)?;
                self.configs.remove_resource(&ConfigResource::topic(&name));
            }
            MetadataRecord::ConfigRecord(r) => self.configs.replay(r),
            MetadataRecord::FeatureLevelRecord(r) => self.features.replay(r)?,
            MetadataRecord::ClientQuotaRecord(r) => self.client_quotas.replay(r),
            MetadataRecord::ProducerIdsRecord(r) => self.producer_ids.next_producer_id = r.next_producer_id,
            MetadataRecord::AccessControlEntryRecord(r) => self.acls.replay(r),
            MetadataRecord::RemoveAccessControlEntryRecord(r) => self.acls.replay_remove(r)?,
            MetadataRecord::UserScramCredentialRecord(r) => self.scram.replay(r),
            MetadataRecord::RemoveUserScramCredentialRecord(r) => self.scram.replay_remove(r),
            MetadataRecord::DelegationTokenRecord(r) => self.delegation_tokens.replay(r),
            MetadataRecord::RemoveDelegationTokenRecord(r) => self.delegation_tokens.replay_remove(r),
            MetadataRecord::NoOpRecord(_)
            | MetadataRecord::ZkMigrationStateRecord(_)
            | MetadataRecord::BeginTransactionRecord(_)
            | MetadataRecord::EndTransactionRecord(_)
            | MetadataRecord::AbortTransactionRecord(_) => {}
        }
        Ok(())
    }

    /// The records of a snapshot, in the reference's order: features, cluster, topics, configurations, quotas,
    /// producer ids, ACLs, SCRAM, delegation tokens.
    pub fn write(&self, options: WriteOptions) -> Result<Vec<VersionedRecord>, WriteLoss> {
        let mut out = Vec::new();
        self.features.write(options, &mut out);
        self.cluster.write(options, &mut out)?;
        self.topics.write(options, &mut out)?;
        self.configs.write(&mut out);
        self.client_quotas.write(&mut out);
        if self.producer_ids.next_producer_id >= 0 {
            let record = protocol::records::metadata::ProducerIdsRecord {
                broker_id: -1,
                broker_epoch: -1,
                next_producer_id: self.producer_ids.next_producer_id,
            };
            out.push(VersionedRecord::new(record, 0));
        }
        self.acls.write(&mut out);
        self.scram.write(options, &mut out)?;
        self.delegation_tokens.write(options, &mut out)?;
        Ok(out)
    }

    /// The values of a snapshot's records, encoded.
    pub fn write_encoded(&self, options: WriteOptions) -> Result<Vec<Bytes>, WriteLoss> {
        let records = self.write(options)?;
        records.iter().map(|r| r.encode().map_err(|e| options.loss(&format!("{e}")))).collect()
    }
}
