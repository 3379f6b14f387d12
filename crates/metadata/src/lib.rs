//! Crate `metadata`: the metadata of a cluster as values.
//!
//! Owns: feature levels and `metadata.version`; the records of the metadata log and their framing; images, deltas
//! between them, their snapshot writer; the bootstrap records of a new cluster; the loader from batches to images.
//! Invariants: pure values, persistent maps, deterministic order everywhere; see each file.
//! Concurrency: images are shared and never changed once published. A crash leaves nothing: the log is the truth.
#![forbid(unsafe_code)]

pub mod bootstrap;
pub mod delta;
pub mod directory_id;
pub mod feature;
pub mod image;
pub mod loader;
pub mod partition;
pub mod record;
pub mod registration;
pub mod version;

pub use bootstrap::{BootstrapMetadata, FormatFeatures};
pub use delta::{LocalReplicaChanges, MetadataDelta, PartitionInfo};
pub use feature::{Feature, VersionRange};
pub use image::{ConfigResource, MetadataImage, MetadataProvenance, ReplayError, WriteOptions};
pub use loader::{MetadataLoader, MetadataUpdate};
pub use partition::{LeaderRecoveryState, PartitionRegistration};
pub use record::{MetadataRecord, VersionedRecord};
pub use registration::{BrokerRegistration, ControllerRegistration, Endpoint};
pub use version::MetadataVersion;
