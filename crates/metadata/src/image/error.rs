//! What can go wrong between records and images. A replay error means that the log contradicts itself (or that one
//! of our own decisions was wrong): the node must stop rather than serve from it.

use std::fmt;

use protocol::Uuid;

use crate::version::MetadataVersion;

/// Why a record cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayError {
    /// No topic has this id.
    UnknownTopicId(Uuid),
    /// No topic has this name.
    UnknownTopicName(String),
    /// The topic has no such partition.
    UnknownPartition {
        /// The topic.
        topic_id: Uuid,
        /// The partition.
        partition: i32,
    },
    /// The broker is not registered, or under another epoch.
    UnknownBroker {
        /// The broker.
        id: i32,
        /// The epoch in the record.
        epoch: i64,
    },
    /// No ACL has this id.
    UnknownAcl(Uuid),
    /// There is not one directory per replica.
    ReplicaDirectories {
        /// The topic.
        topic_id: Uuid,
        /// The partition.
        partition: i32,
    },
    /// A field has a value that this release does not know.
    BadValue {
        /// The record's type.
        record: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// The metadata version is too old or too new for this release.
    UnsupportedMetadataVersion(i16),
    /// The record contradicts the state in another way.
    Inconsistent(String),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTopicId(id) => write!(f, "no topic has ID {id}"),
            Self::UnknownTopicName(name) => write!(f, "no topic is named {name}"),
            Self::UnknownPartition { topic_id, partition } => {
                write!(f, "no partition {partition} in the topic with ID {topic_id}")
            }
            Self::UnknownBroker { id, epoch } => write!(f, "no broker {id} is registered at epoch {epoch}"),
            Self::UnknownAcl(id) => write!(f, "no ACL has ID {id}"),
            Self::ReplicaDirectories { topic_id, partition } => {
                write!(f, "replicas and directories of {topic_id}:{partition} do not match")
            }
            Self::BadValue { record, field, value } => write!(f, "{record} has {field} {value}"),
            Self::UnsupportedMetadataVersion(level) => write!(
                f,
                "metadata.version {level} is not supported; raise it to {} or higher with kafka-features before \
                 upgrading the software",
                MetadataVersion::MINIMUM
            ),
            Self::Inconsistent(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ReplayError {}

/// How records are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteOptions {
    /// The metadata version that chooses record versions.
    pub metadata_version: MetadataVersion,
    /// Whether ELR is written.
    pub eligible_leader_replicas_enabled: bool,
}

impl WriteOptions {
    pub(crate) fn loss(self, what: &str) -> WriteLoss {
        WriteLoss { metadata_version: self.metadata_version, what: what.to_owned() }
    }
}

/// What cannot be written at a metadata version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteLoss {
    /// The version asked for.
    pub metadata_version: MetadataVersion,
    /// What would be lost.
    pub what: String,
}

impl fmt::Display for WriteLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "metadata.version {} cannot hold {}", self.metadata_version, self.what)
    }
}

impl std::error::Error for WriteLoss {}
