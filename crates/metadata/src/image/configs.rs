//! Dynamic configurations.
//!
//! Invariant: a resource without keys is not in the map.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use protocol::records::metadata::ConfigRecord;
use timeline::TimelineMap;

use crate::record::VersionedRecord;

/// The numbers of resource types in records and requests.
#[allow(missing_docs)]
pub mod resource_type {
    pub const UNKNOWN: i8 = 0;
    pub const TOPIC: i8 = 2;
    pub const BROKER: i8 = 4;
    pub const BROKER_LOGGER: i8 = 8;
    pub const CLIENT_METRICS: i8 = 16;
    pub const GROUP: i8 = 32;
}

/// What a configuration belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigResource {
    /// One of [`resource_type`].
    pub resource_type: i8,
    /// The name; empty for the defaults of all brokers.
    pub name: Arc<str>,
}

impl ConfigResource {
    /// A resource of a type and name.
    pub fn new(resource_type: i8, name: &str) -> Self {
        Self { resource_type, name: name.into() }
    }

    /// A topic.
    pub fn topic(name: &str) -> Self {
        Self::new(resource_type::TOPIC, name)
    }

    /// A broker or controller.
    pub fn broker(id: i32) -> Self {
        Self::new(resource_type::BROKER, &id.to_string())
    }

    /// The dynamic defaults of all brokers.
    pub fn cluster_default() -> Self {
        Self::new(resource_type::BROKER, "")
    }

    /// The type's name, such as `TOPIC`.
    pub fn type_name(&self) -> &'static str {
        match self.resource_type {
            resource_type::TOPIC => "TOPIC",
            resource_type::BROKER => "BROKER",
            resource_type::BROKER_LOGGER => "BROKER_LOGGER",
            resource_type::CLIENT_METRICS => "CLIENT_METRICS",
            resource_type::GROUP => "GROUP",
            _ => "UNKNOWN",
        }
    }
}

impl fmt::Display for ConfigResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConfigResource(type={}, name='{}')", self.type_name(), self.name)
    }
}

/// The dynamic configurations of all resources.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigurationsImage {
    /// Keys and values by resource.
    pub resources: TimelineMap<ConfigResource, Arc<BTreeMap<String, String>>>,
}

impl ConfigurationsImage {
    /// The keys and values of a resource, if it has any.
    pub fn get(&self, resource: &ConfigResource) -> Option<&BTreeMap<String, String>> {
        self.resources.get(resource).map(Arc::as_ref)
    }

    /// The keys and values of a resource, none when it has none.
    pub fn config_map(&self, resource: &ConfigResource) -> BTreeMap<String, String> {
        self.get(resource).cloned().unwrap_or_default()
    }

    pub(super) fn replay(&mut self, record: &ConfigRecord) {
        let resource = ConfigResource::new(record.resource_type, &record.resource_name);
        let mut values = self.resources.get(&resource).cloned().unwrap_or_default();
        let map = Arc::make_mut(&mut values);
        match &record.value {
            Some(value) => map.insert(record.name.clone(), value.clone()),
            None => map.remove(&record.name),
        };
        if map.is_empty() {
            self.resources.remove(&resource);
        } else {
            self.resources.insert(resource, values);
        }
    }

    pub(super) fn remove_resource(&mut self, resource: &ConfigResource) {
        self.resources.remove(resource);
    }

    pub(super) fn write(&self, out: &mut Vec<VersionedRecord>) {
        for (resource, values) in &self.resources {
            for (name, value) in values.iter() {
                let record = ConfigRecord {
                    resource_type: resource.resource_type,
                    resource_name: resource.name.to_string(),
                    name: name.clone(),
                    value: Some(value.clone()),
                };
                out.push(VersionedRecord::new(record, 0));
            }
        }
    }
}
