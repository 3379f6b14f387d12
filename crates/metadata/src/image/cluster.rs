//! The registered brokers and controllers.

use std::sync::Arc;

use protocol::records::metadata::{
    BrokerRegistrationChangeRecord, RegisterBrokerRecord, RegisterControllerRecord, UnregisterBrokerRecord,
    UnregisterControllerRecord,
};
use timeline::TimelineMap;

use super::{ReplayError, WriteLoss, WriteOptions};
use crate::record::VersionedRecord;
use crate::registration::{BrokerRegistration, ControllerRegistration};

/// The registered brokers and controllers by id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterImage {
    /// Brokers by id.
    pub brokers: TimelineMap<i32, Arc<BrokerRegistration>>,
    /// Controllers by id.
    pub controllers: TimelineMap<i32, Arc<ControllerRegistration>>,
}

impl ClusterImage {
    /// A broker's registration.
    pub fn broker(&self, id: i32) -> Option<&Arc<BrokerRegistration>> {
        self.brokers.get(&id)
    }

    /// A broker's epoch, -1 when it is not registered.
    pub fn broker_epoch(&self, id: i32) -> i64 {
        self.broker(id).map_or(-1, |b| b.epoch)
    }

    fn broker_at(&self, id: i32, epoch: i64) -> Result<&BrokerRegistration, ReplayError> {
        let found = self.broker(id).filter(|b| b.epoch == epoch);
        found.map(Arc::as_ref).ok_or(ReplayError::UnknownBroker { id, epoch })
    }

    pub(super) fn replay_register_broker(&mut self, record: &RegisterBrokerRecord) {
        self.brokers.insert(record.broker_id, Arc::new(BrokerRegistration::from_record(record)));
    }

    pub(super) fn replay_unregister_broker(&mut self, record: &UnregisterBrokerRecord) {
        self.brokers.remove(&record.broker_id);
    }

    pub(super) fn replay_fencing(&mut self, id: i32, epoch: i64, fenced: bool) -> Result<(), ReplayError> {
        let mut next = self.broker_at(id, epoch)?.clone();
        next.fenced = fenced;
        self.brokers.insert(id, Arc::new(next));
        Ok(())
    }

    pub(super) fn replay_change(
        &mut self,
        record: &BrokerRegistrationChangeRecord,
    ) -> Result<(), ReplayError> {
        let next = self.broker_at(record.broker_id, record.broker_epoch)?.changed(record)?;
        self.brokers.insert(record.broker_id, Arc::new(next));
        Ok(())
    }

    pub(super) fn replay_register_controller(&mut self, record: &RegisterControllerRecord) {
        self.controllers.insert(record.controller_id, Arc::new(ControllerRegistration::from_record(record)));
    }

    pub(super) fn replay_unregister_controller(&mut self, record: &UnregisterControllerRecord) {
        self.controllers.remove(&record.controller_id);
    }

    pub(super) fn write(
        &self,
        options: WriteOptions,
        out: &mut Vec<VersionedRecord>,
    ) -> Result<(), WriteLoss> {
        for broker in self.brokers.values() {
            out.push(broker.to_record(options)?);
        }
        if !self.controllers.is_empty() && !options.metadata_version.is_controller_registration_supported() {
            return Err(options.loss("controller registration data"));
        }
        out.extend(self.controllers.values().map(|c| c.to_record()));
        Ok(())
    }
}
