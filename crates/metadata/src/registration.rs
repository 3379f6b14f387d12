//! Registrations of brokers and controllers: listeners, features, directories, and a broker's fencing state.
//!
//! Invariants: directories are in the reference's id order; listener and feature names are unique.

use std::collections::BTreeMap;
use std::fmt;

use protocol::Uuid;
use protocol::records::metadata::register_broker_record::{BrokerEndpoint, BrokerFeature};
use protocol::records::metadata::register_controller_record::{ControllerEndpoint, ControllerFeature};
use protocol::records::metadata::{
    BrokerRegistrationChangeRecord, RegisterBrokerRecord, RegisterControllerRecord,
};

use crate::directory_id;
use crate::feature::VersionRange;
use crate::image::{ReplayError, WriteLoss, WriteOptions};
use crate::record::VersionedRecord;

/// Where a listener can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The host or address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    pub security_protocol: i16,
}

/// A broker's registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerRegistration {
    /// The broker's id.
    pub id: i32,
    /// The broker epoch: the offset of the record that registered this incarnation.
    pub epoch: i64,
    /// New with every start of the broker.
    pub incarnation_id: Uuid,
    /// The listeners by name.
    pub listeners: BTreeMap<String, Endpoint>,
    /// What the broker supports.
    pub supported_features: BTreeMap<String, VersionRange>,
    /// The rack, if any.
    pub rack: Option<String>,
    /// Fenced brokers lead nothing and are in no ISR.
    pub fenced: bool,
    /// Whether the broker moves its leaderships away to stop.
    pub in_controlled_shutdown: bool,
    /// Left over from ZooKeeper.
    pub is_migrating_zk_broker: bool,
    /// The online log directories.
    pub directories: Vec<Uuid>,
    /// The directories that take no new partitions (KIP-1066); `None` until the broker has said.
    pub cordoned_directories: Option<Vec<Uuid>>,
}

impl BrokerRegistration {
    /// The registration that a record describes.
    pub fn from_record(record: &RegisterBrokerRecord) -> Self {
        let mut directories = record.log_dirs.clone();
        directories.sort_by(directory_id::compare);
        Self {
            id: record.broker_id,
            epoch: record.broker_epoch,
            incarnation_id: record.incarnation_id,
            listeners: record
                .end_points
                .iter()
                .map(|e| {
                    let endpoint = Endpoint {
                        host: e.host.clone(),
                        port: e.port,
                        security_protocol: e.security_protocol,
                    };
                    (e.name.clone(), endpoint)
                })
                .collect(),
            supported_features: record
                .features
                .iter()
                .map(|f| {
                    (
                        f.name.clone(),
                        VersionRange { min: f.min_supported_version, max: f.max_supported_version },
                    )
                })
                .collect(),
            rack: record.rack.clone(),
            fenced: record.fenced,
            in_controlled_shutdown: record.in_controlled_shutdown,
            is_migrating_zk_broker: record.is_migrating_zk_broker,
            directories,
            cordoned_directories: record.cordoned_log_dirs.clone(),
        }
    }

    /// The registration after a change record; the epoch has been checked.
    pub fn changed(&self, record: &BrokerRegistrationChangeRecord) -> Result<Self, ReplayError> {
        let bad = |field, value: i8| ReplayError::BadValue {
            record: "BrokerRegistrationChangeRecord",
            field,
            value: i64::from(value),
        };
        let mut next = self.clone();
        match record.fenced {
            0 => {}
            1 => next.fenced = true,
            -1 => next.fenced = false,
            value => return Err(bad("fenced", value)),
        }
        match record.in_controlled_shutdown {
            0 => {}
            1 => next.in_controlled_shutdown = true,
            value => return Err(bad("inControlledShutdown", value)),
        }
        if !record.log_dirs.is_empty() {
            next.directories = record.log_dirs.clone();
            next.directories.sort_by(directory_id::compare);
        }
        if let Some(cordoned) = &record.cordoned_log_dirs {
            next.cordoned_directories = Some(cordoned.clone());
        }
        Ok(next)
    }

    /// Whether a replica in `dir` can be served.
    pub fn has_online_dir(&self, dir: &Uuid) -> bool {
        directory_id::is_online(dir, &self.directories)
    }

    /// Whether new partitions may be placed on this broker (KIP-1066).
    pub fn has_uncordoned_dirs(&self) -> bool {
        match &self.cordoned_directories {
            Some(cordoned) if !self.directories.is_empty() => {
                self.directories.iter().any(|d| !cordoned.contains(d))
            }
            _ => true,
        }
    }

    /// Whether the broker runs and stays.
    pub fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }

    /// The record of this registration.
    pub fn to_record(&self, options: WriteOptions) -> Result<VersionedRecord, WriteLoss> {
        let metadata_version = options.metadata_version;
        if self.is_migrating_zk_broker && !metadata_version.is_migration_supported() {
            return Err(options.loss("the isMigratingZkBroker state of one or more brokers"));
        }
        if !self.directories.is_empty() && !metadata_version.is_directory_assignment_supported() {
            return Err(options.loss("the online log directories of one or more brokers"));
        }
        if self.cordoned_directories.is_some() && !metadata_version.is_cordoned_log_dirs_supported() {
            return Err(options.loss("the cordoned log directories of one or more brokers"));
        }
        let record = RegisterBrokerRecord {
            broker_id: self.id,
            is_migrating_zk_broker: self.is_migrating_zk_broker,
            incarnation_id: self.incarnation_id,
            broker_epoch: self.epoch,
            end_points: self
                .listeners
                .iter()
                .map(|(name, e)| BrokerEndpoint {
                    name: name.clone(),
                    host: e.host.clone(),
                    port: e.port,
                    security_protocol: e.security_protocol,
                })
                .collect(),
            features: self
                .supported_features
                .iter()
                .map(|(name, range)| BrokerFeature {
                    name: name.clone(),
                    min_supported_version: range.min,
                    max_supported_version: range.max,
                })
                .collect(),
            rack: self.rack.clone(),
            fenced: self.fenced,
            in_controlled_shutdown: self.in_controlled_shutdown,
            log_dirs: self.directories.clone(),
            cordoned_log_dirs: self.cordoned_directories.clone(),
        };
        Ok(VersionedRecord::new(record, metadata_version.register_broker_record_version()))
    }
}

impl fmt::Display for BrokerRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broker {} at epoch {}", self.id, self.epoch)
    }
}

/// A controller's registration (KIP-919).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerRegistration {
    /// The controller's node id.
    pub id: i32,
    /// New with every start of the controller.
    pub incarnation_id: Uuid,
    /// Left over from ZooKeeper.
    pub zk_migration_ready: bool,
    /// The listeners by name.
    pub listeners: BTreeMap<String, Endpoint>,
    /// What the controller supports.
    pub supported_features: BTreeMap<String, VersionRange>,
}

impl ControllerRegistration {
    /// The registration that a record describes.
    pub fn from_record(record: &RegisterControllerRecord) -> Self {
        Self {
            id: record.controller_id,
            incarnation_id: record.incarnation_id,
            zk_migration_ready: record.zk_migration_ready,
            listeners: record
                .end_points
                .iter()
                .map(|e| {
                    let endpoint = Endpoint {
                        host: e.host.clone(),
                        port: e.port,
                        security_protocol: e.security_protocol,
                    };
                    (e.name.clone(), endpoint)
                })
                .collect(),
            supported_features: record
                .features
                .iter()
                .map(|f| {
                    (
                        f.name.clone(),
                        VersionRange { min: f.min_supported_version, max: f.max_supported_version },
                    )
                })
                .collect(),
        }
    }

    /// The record of this registration.
    pub fn to_record(&self) -> VersionedRecord {
        let record = RegisterControllerRecord {
            controller_id: self.id,
            incarnation_id: self.incarnation_id,
            zk_migration_ready: self.zk_migration_ready,
            end_points: self
                .listeners
                .iter()
                .map(|(name, e)| ControllerEndpoint {
                    name: name.clone(),
                    host: e.host.clone(),
                    port: e.port,
                    security_protocol: e.security_protocol,
                })
                .collect(),
            features: self
                .supported_features
                .iter()
                .map(|(name, range)| ControllerFeature {
                    name: name.clone(),
                    min_supported_version: range.min,
                    max_supported_version: range.max,
                })
                .collect(),
        };
        VersionedRecord::new(record, 0)
    }
}
