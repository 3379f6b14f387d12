//! Brokers and controllers: registration, heartbeats, fencing, controlled and other shutdowns (KIP-631, KIP-841,
//! KIP-858, KIP-919, KIP-966, KIP-1066).

use std::collections::{BTreeMap, BTreeSet};

use metadata::feature::{KRAFT_VERSION, VersionRange};
use metadata::version::METADATA_VERSION;
use metadata::{VersionedRecord, directory_id};
use protocol::messages::broker_registration_request::Listener;
use protocol::messages::{
    BrokerHeartbeatRequest, BrokerRegistrationRequest, ControllerRegistrationRequest,
    controller_registration_request,
};
use protocol::records::metadata::register_broker_record::{BrokerEndpoint, BrokerFeature};
use protocol::records::metadata::register_controller_record::{ControllerEndpoint, ControllerFeature};
use protocol::records::metadata::{
    BrokerRegistrationChangeRecord, RegisterBrokerRecord, RegisterControllerRecord, UnregisterBrokerRecord,
    UnregisterControllerRecord,
};
use protocol::{ErrorCode, Uuid};

use super::{BrokerChange, Decider};
use crate::api::{AfterAppend, ApiError, BoundedRecords, ControllerResult};
use crate::heartbeat::{BrokerControlState, Heartbeat};

/// The security protocols' numbers.
const SECURITY_PROTOCOLS: std::ops::RangeInclusive<i16> = 0..=3;
/// The versions of `BrokerRegistrationChangeRecord` that carry what they are used for.
const CHANGE_FENCED: i16 = 0;
const CHANGE_IN_CONTROLLED_SHUTDOWN: i16 = 1;
const CHANGE_LOG_DIRS: i16 = 2;
const CHANGE_CORDONED_LOG_DIRS: i16 = 3;
/// The first BrokerRegistration version that says how the broker stopped (KIP-966).
const CLEAN_SHUTDOWN_DETECTION: i16 = 3;

/// What a broker is told about its heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BrokerHeartbeatReply {
    pub(crate) is_caught_up: bool,
    pub(crate) is_fenced: bool,
    pub(crate) should_shut_down: bool,
}

fn server_error() -> ApiError {
    ApiError::silent(ErrorCode::UNKNOWN_SERVER_ERROR)
}

/// The reference refuses unknown protocols, empty hosts and port 0 with a server error.
fn check_listener(host: &str, port: u16, security_protocol: i16) -> Result<(), ApiError> {
    let usable = SECURITY_PROTOCOLS.contains(&security_protocol) && port != 0 && !host.trim().is_empty();
    usable.then_some(()).ok_or_else(server_error)
}

impl Decider<'_> {
    fn check_log_dirs(&self, request: &BrokerRegistrationRequest) -> Result<(), ApiError> {
        let invalid = |message: String| Err(ApiError::new(ErrorCode::INVALID_REGISTRATION, message));
        if !self.state.metadata_version().is_directory_assignment_supported() {
            return Ok(());
        }
        if request.log_dirs.is_empty() {
            return invalid("No directories specified in request".to_owned());
        }
        if request.log_dirs.iter().any(directory_id::is_reserved) {
            return invalid("Reserved directory ID in request".to_owned());
        }
        if request.log_dirs.iter().collect::<BTreeSet<_>>().len() != request.log_dirs.len() {
            return invalid("Duplicate directory ID in request".to_owned());
        }
        for directory in &request.log_dirs {
            let owner = self.state.directory_to_broker.get(directory);
            if let Some(other) = owner.filter(|b| **b != request.broker_id) {
                return invalid(format!("Broker {other} is already registered with directory {directory}"));
            }
        }
        Ok(())
    }

    fn check_feature(
        finalized: &BTreeMap<String, i16>,
        name: &str,
        range: VersionRange,
    ) -> Result<(), ApiError> {
        let level = finalized.get(name).copied().unwrap_or(0);
        if range.contains(level) {
            return Ok(());
        }
        Err(ApiError::new(
            ErrorCode::UNSUPPORTED_VERSION,
            format!(
                "Unable to register because the broker does not support finalized version {level} of {name}. The \
                 broker wants a version between {} and {}, inclusive.",
                range.min, range.max
            ),
        ))
    }

    fn check_features(&self, request: &BrokerRegistrationRequest) -> Result<(), ApiError> {
        let mut finalized = self.state.image.features.all_levels();
        finalized.insert(KRAFT_VERSION.to_owned(), self.kraft_version);
        for feature in &request.features {
            let range =
                VersionRange { min: feature.min_supported_version, max: feature.max_supported_version };
            Self::check_feature(&finalized, &feature.name, range)?;
        }
        if !request.features.iter().any(|f| f.name == METADATA_VERSION) {
            return Err(ApiError::new(
                ErrorCode::INVALID_REGISTRATION,
                "Request features do not contain 'metadata.version'",
            ));
        }
        for (name, level) in &finalized {
            if *level != 0 && !request.features.iter().any(|f| f.name == *name) {
                Self::check_feature(&finalized, name, VersionRange::DISABLED)?;
            }
        }
        Ok(())
    }

    /// Registers a broker; the response is its epoch, the offset at which the record will stand.
    pub(crate) fn register_broker(
        &self,
        request: &BrokerRegistrationRequest,
        api_version: i16,
        new_epoch: i64,
    ) -> Result<ControllerResult<i64>, ApiError> {
        if request.cluster_id != self.settings.cluster_id {
            return Err(ApiError::new(
                ErrorCode::INCONSISTENT_CLUSTER_ID,
                format!(
                    "Expected cluster ID {}, but got cluster ID {}",
                    self.settings.cluster_id, request.cluster_id
                ),
            ));
        }
        let broker_id = request.broker_id;
        let existing = self.state.broker(broker_id);
        let same_incarnation = existing.filter(|b| b.incarnation_id == request.incarnation_id);
        if let Some(other) = existing
            && same_incarnation.is_none()
            && self.heartbeats.has_valid_session(self.now, broker_id, other.epoch)
        {
            return Err(ApiError::new(
                ErrorCode::DUPLICATE_BROKER_REGISTRATION,
                "Another broker is registered with that broker id. If the broker was recently restarted this should \
                 self-resolve once the heartbeat manager expires the broker's session.",
            ));
        }
        if request.is_migrating_zk_broker {
            return Err(ApiError::new(
                ErrorCode::BROKER_ID_NOT_REGISTERED,
                "Controller does not support registering ZK brokers.",
            ));
        }
        self.check_log_dirs(request)?;
        for listener in &request.listeners {
            check_listener(&listener.host, listener.port, listener.security_protocol)?;
        }
        self.check_features(request)?;

        let mut records = Vec::new();
        let mut record = registration_record(request);
        if !self.state.metadata_version().is_directory_assignment_supported() {
            record.log_dirs.clear();
        }
        if let Some(current) = same_incarnation {
            record.fenced = current.fenced;
            record.in_controlled_shutdown = current.in_controlled_shutdown;
            record.broker_epoch = current.epoch;
        } else {
            let stored_epoch = existing.map_or(-2, |b| b.epoch);
            let is_clean =
                api_version >= CLEAN_SHUTDOWN_DETECTION && stored_epoch == request.previous_broker_epoch;
            self.broker_shutdown(broker_id, is_clean, &mut records);
            record.broker_epoch = new_epoch;
        }
        let epoch = record.broker_epoch;
        let version = self.state.metadata_version().register_broker_record_version();
        records.push(VersionedRecord::new(record, version));
        Ok(ControllerResult::of(records, epoch))
    }

    fn broker_shutdown(&self, broker: i32, is_clean: bool, records: &mut Vec<VersionedRecord>) {
        let in_isr = self.state.partitions_with_broker_in_isr(broker);
        if self.elr_enabled() && !is_clean {
            let change = BrokerChange { unclean: Some(broker), ..Default::default() };
            self.leader_and_isr_updates(change, in_isr, records);
            self.leader_and_isr_updates(change, self.state.partitions_with_broker_in_elr(broker), records);
        } else {
            let change = BrokerChange { remove: Some(broker), ..Default::default() };
            self.leader_and_isr_updates(change, in_isr, records);
        }
    }

    fn fence_records(&self, broker: i32, epoch: i64) -> Vec<VersionedRecord> {
        let mut records = Vec::new();
        let change = BrokerChange { remove: Some(broker), ..Default::default() };
        self.leader_and_isr_updates(change, self.state.partitions_with_broker_in_isr(broker), &mut records);
        let record = BrokerRegistrationChangeRecord {
            broker_id: broker,
            broker_epoch: epoch,
            fenced: 1,
            ..Default::default()
        };
        records.push(VersionedRecord::new(record, CHANGE_FENCED));
        records
    }

    fn unfence_records(&self, broker: i32, epoch: i64) -> Vec<VersionedRecord> {
        let record = BrokerRegistrationChangeRecord {
            broker_id: broker,
            broker_epoch: epoch,
            fenced: -1,
            ..Default::default()
        };
        let mut records = vec![VersionedRecord::new(record, CHANGE_FENCED)];
        let change = BrokerChange { add: Some(broker), ..Default::default() };
        self.leader_and_isr_updates(change, self.state.partitions_with_no_leader(), &mut records);
        records
    }

    fn controlled_shutdown_records(&self, broker: i32, epoch: i64) -> Vec<VersionedRecord> {
        let mut records = Vec::new();
        if !self.state.broker(broker).is_some_and(|b| b.in_controlled_shutdown) {
            let record = BrokerRegistrationChangeRecord {
                broker_id: broker,
                broker_epoch: epoch,
                in_controlled_shutdown: 1,
                ..Default::default()
            };
            records.push(VersionedRecord::new(record, CHANGE_IN_CONTROLLED_SHUTDOWN));
        }
        let change = BrokerChange { remove: Some(broker), ..Default::default() };
        self.leader_and_isr_updates(change, self.state.partitions_with_broker_in_isr(broker), &mut records);
        records
    }

    fn offline_dir_records(
        &self,
        broker: i32,
        epoch: i64,
        offline: &[Uuid],
        records: &mut Vec<VersionedRecord>,
    ) {
        let Some(registration) = self.state.broker(broker) else { return };
        let newly_offline: Vec<Uuid> =
            registration.directories.iter().copied().filter(|d| offline.contains(d)).collect();
        if newly_offline.is_empty() {
            return;
        }
        let change = BrokerChange { remove: Some(broker), ..Default::default() };
        for directory in newly_offline {
            self.leader_and_isr_updates(change, self.state.partitions_in_directory(directory), records);
        }
        let record = BrokerRegistrationChangeRecord {
            broker_id: broker,
            broker_epoch: epoch,
            log_dirs: registration.directories.iter().copied().filter(|d| !offline.contains(d)).collect(),
            ..Default::default()
        };
        records.push(VersionedRecord::new(record, CHANGE_LOG_DIRS));
    }

    fn cordoned_dir_records(
        &self,
        broker: i32,
        epoch: i64,
        cordoned: Option<&Vec<Uuid>>,
        records: &mut Vec<VersionedRecord>,
    ) {
        let (Some(cordoned), Some(registration)) = (cordoned, self.state.broker(broker)) else { return };
        let set = |list: &[Uuid]| list.iter().copied().collect::<BTreeSet<_>>();
        if registration.cordoned_directories.as_ref().is_some_and(|d| set(d) == set(cordoned)) {
            return;
        }
        let record = BrokerRegistrationChangeRecord {
            broker_id: broker,
            broker_epoch: epoch,
            cordoned_log_dirs: Some(cordoned.clone()),
            ..Default::default()
        };
        records.push(VersionedRecord::new(record, CHANGE_CORDONED_LOG_DIRS));
    }

    /// What a heartbeat changes. The caller notes the broker's new state and offset.
    pub(crate) fn process_heartbeat(
        &self,
        request: &BrokerHeartbeatRequest,
    ) -> Result<ControllerResult<BrokerHeartbeatReply>, ApiError> {
        let (broker, epoch) = (request.broker_id, request.broker_epoch);
        let Some(registration_offset) = self.state.register_broker_offsets.get(&broker).copied() else {
            return Err(ApiError::new(
                ErrorCode::STALE_BROKER_EPOCH,
                format!("Receive a heartbeat from broker {broker} before registration"),
            ));
        };
        self.check_broker_epoch(broker, epoch)?;
        let heartbeat = Heartbeat {
            want_fence: request.want_fence,
            want_shut_down: request.want_shut_down,
            metadata_offset: request.current_metadata_offset,
            registration_offset,
        };
        let states = self.heartbeats.next_state(broker, heartbeat, self.state.has_leaderships(broker));
        let (current, next) = states.ok_or_else(server_error)?;
        let mut records = if current == next {
            Vec::new()
        } else {
            match next {
                BrokerControlState::Fenced | BrokerControlState::ShutdownNow => {
                    self.fence_records(broker, epoch)
                }
                BrokerControlState::Unfenced => self.unfence_records(broker, epoch),
                BrokerControlState::ControlledShutdown => self.controlled_shutdown_records(broker, epoch),
            }
        };
        let version = self.state.metadata_version();
        if version.is_directory_assignment_supported() {
            self.offline_dir_records(broker, epoch, &request.offline_log_dirs, &mut records);
        }
        if version.is_cordoned_log_dirs_supported() {
            self.cordoned_dir_records(broker, epoch, request.cordoned_log_dirs.as_ref(), &mut records);
        }
        let reply = BrokerHeartbeatReply {
            is_caught_up: heartbeat.metadata_offset >= registration_offset,
            is_fenced: next.is_fenced(),
            should_shut_down: next == BrokerControlState::ShutdownNow,
        };
        let mut result = ControllerResult::of(records, reply);
        if next == BrokerControlState::ControlledShutdown {
            result.after = AfterAppend::ControlledShutdown { broker_id: broker };
        }
        Ok(result)
    }

    /// Fences a broker whose session has timed out; nothing when it is gone or another incarnation runs.
    pub(crate) fn fence_stale_broker(&self, broker: i32, epoch: i64) -> Vec<VersionedRecord> {
        match self.state.broker(broker) {
            Some(b) if b.epoch == epoch => self.fence_records(broker, epoch),
            _ => Vec::new(),
        }
    }

    /// Removes a broker's registration.
    pub(crate) fn unregister_broker(&self, broker: i32) -> Result<ControllerResult<()>, ApiError> {
        let Some(registration) = self.state.broker(broker) else {
            return Err(ApiError::new(
                ErrorCode::BROKER_ID_NOT_REGISTERED,
                format!("Broker ID {broker} is not currently registered"),
            ));
        };
        let mut records = Vec::new();
        let change = BrokerChange { remove: Some(broker), ..Default::default() };
        self.leader_and_isr_updates(change, self.state.partitions_with_broker_in_isr(broker), &mut records);
        self.leader_and_isr_updates(change, self.state.partitions_with_broker_in_elr(broker), &mut records);
        let record = UnregisterBrokerRecord { broker_id: broker, broker_epoch: registration.epoch };
        records.push(VersionedRecord::new(record, 0));
        let mut bounded = BoundedRecords::default();
        bounded.extend(records)?;
        Ok(ControllerResult::of(bounded.into_vec(), ()))
    }

    /// Registers a controller.
    pub(crate) fn register_controller(
        &self,
        request: &ControllerRegistrationRequest,
    ) -> Result<ControllerResult<()>, ApiError> {
        if !self.state.metadata_version().is_controller_registration_supported() {
            return Err(ApiError::new(
                ErrorCode::UNSUPPORTED_VERSION,
                "The current MetadataVersion is too old to support controller registrations.",
            ));
        }
        for listener in &request.listeners {
            check_listener(&listener.host, listener.port, listener.security_protocol)?;
        }
        let endpoint = |l: &controller_registration_request::Listener| ControllerEndpoint {
            name: l.name.clone(),
            host: l.host.clone(),
            port: l.port,
            security_protocol: l.security_protocol,
        };
        let feature = |f: &controller_registration_request::Feature| ControllerFeature {
            name: f.name.clone(),
            min_supported_version: f.min_supported_version,
            max_supported_version: f.max_supported_version,
        };
        let record = RegisterControllerRecord {
            controller_id: request.controller_id,
            incarnation_id: request.incarnation_id,
            zk_migration_ready: false,
            end_points: request.listeners.iter().map(endpoint).collect(),
            features: request.features.iter().map(feature).collect(),
        };
        Ok(ControllerResult::atomic_of(vec![VersionedRecord::new(record, 0)], ()))
    }

    /// Removes a controller's registration.
    pub(crate) fn unregister_controller(&self, controller: i32) -> Result<ControllerResult<()>, ApiError> {
        if controller == self.settings.local.node_id {
            return Err(ApiError::new(
                ErrorCode::INVALID_REQUEST,
                "Controller cannot unregister itself while it is active.",
            ));
        }
        if !self.state.metadata_version().is_controller_unregistration_supported() {
            return Err(ApiError::new(
                ErrorCode::UNSUPPORTED_VERSION,
                "The current MetadataVersion is too old to support controller unregistration.",
            ));
        }
        if !self.state.image.cluster.controllers.contains_key(&controller) {
            return Err(ApiError::new(
                ErrorCode::CONTROLLER_ID_NOT_REGISTERED,
                format!("Controller ID {controller} is not currently registered."),
            ));
        }
        let record = UnregisterControllerRecord { controller_id: controller };
        Ok(ControllerResult::atomic_of(vec![VersionedRecord::new(record, 0)], ()))
    }
}

/// The record of a registration, fenced and without its epoch.
fn registration_record(request: &BrokerRegistrationRequest) -> RegisterBrokerRecord {
    let endpoint = |l: &Listener| BrokerEndpoint {
        name: l.name.clone(),
        host: l.host.clone(),
        port: l.port,
        security_protocol: l.security_protocol,
    };
    RegisterBrokerRecord {
        broker_id: request.broker_id,
        is_migrating_zk_broker: false,
        incarnation_id: request.incarnation_id,
        end_points: request.listeners.iter().map(endpoint).collect(),
        features: request
            .features
            .iter()
            .map(|f| BrokerFeature {
                name: f.name.clone(),
                min_supported_version: f.min_supported_version,
                max_supported_version: f.max_supported_version,
            })
            .collect(),
        rack: request.rack.clone(),
        fenced: true,
        in_controlled_shutdown: false,
        log_dirs: request.log_dirs.clone(),
        ..Default::default()
    }
}
