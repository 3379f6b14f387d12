//! How this broker and controller introduce themselves: registrations, heartbeats and their answers, wired between the
//! lifecycle machine and the controller.

use crate::controller_service::{ControllerRequest, Origin};
use crate::lifecycle::{BrokerState, HeartbeatResult, LifecycleRequest};
use crate::node::Node;
use crate::reply::NodeEvent;
use config::Endpoint;
use metadata::directory_id;
use metadata::feature::default_supported_features;
use protocol::ErrorCode;
use protocol::messages::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest, BrokerRegistrationResponse,
    ControllerRegistrationRequest, broker_registration_request, controller_registration_request,
};
use record::Time;
use std::time::Duration;

/// How long a controlled shutdown may take before the broker stops anyway.
const CONTROLLED_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

impl Node {
    /// The metadata are known: the broker may register.
    pub(crate) fn begin_registration(&self) {
        self.lifecycle.lock().start();
        self.outbox.wake_timers();
    }

    /// The listeners accept: the broker asks to be unfenced.
    pub fn set_ready(&self) {
        self.lifecycle.lock().set_ready_to_unfence(self.now());
        self.outbox.wake_timers();
    }

    /// Asks the controller to move what this broker leads; [`NodeEvent::ShutDown`] follows.
    pub fn begin_shutdown(&self) {
        let now = self.now();
        {
            let mut lifecycle = self.lifecycle.lock();
            let timeout = if self.settings().controlled_shutdown_enable {
                CONTROLLED_SHUTDOWN_TIMEOUT
            } else {
                Duration::ZERO
            };
            lifecycle.begin_controlled_shutdown(now, timeout);
        }
        self.run_lifecycle(now);
        self.outbox.wake_timers();
    }

    pub(crate) fn send_assignments(&self, now: Time) {
        let epoch = self.broker_epoch();
        let request = self.assignments.lock().poll(now, self.node_id(), epoch, &self.image());
        if let Some(request) = request {
            self.submit(ControllerRequest::AssignReplicasToDirs(request), Origin::Assignments);
        }
    }

    pub(crate) fn run_lifecycle(&self, now: Time) {
        let (before, request, after) = {
            let mut lifecycle = self.lifecycle.lock();
            let before = lifecycle.state();
            let request = lifecycle.poll(now);
            (before, request, lifecycle.state())
        };
        self.announce_state(before, after);
        match request {
            Some(LifecycleRequest::Register) => {
                self.submit(
                    ControllerRequest::BrokerRegistration(self.broker_registration()),
                    Origin::Lifecycle,
                );
            }
            Some(LifecycleRequest::Heartbeat {
                broker_epoch,
                want_fence,
                want_shut_down,
                offline_log_dirs,
            }) => {
                let request = BrokerHeartbeatRequest {
                    broker_id: self.node_id(),
                    broker_epoch,
                    current_metadata_offset: self.metadata_offset(),
                    want_fence,
                    want_shut_down,
                    offline_log_dirs,
                    cordoned_log_dirs: (after != BrokerState::Starting)
                        .then(|| self.cordoned_directory_ids()),
                };
                self.submit(ControllerRequest::BrokerHeartbeat(request), Origin::Lifecycle);
            }
            None => {}
        }
    }

    pub(crate) fn handle_registered(&self, response: &BrokerRegistrationResponse) {
        let error = ErrorCode::from_code(response.error_code);
        let result =
            if error == ErrorCode::NONE { Ok(response.broker_epoch) } else { Err(error.name().to_owned()) };
        self.lifecycle.lock().handle_registration(self.now(), result);
        self.outbox.wake_timers();
    }

    pub(crate) fn handle_heartbeat_answered(&self, response: &BrokerHeartbeatResponse) {
        let result = (response.error_code == ErrorCode::NONE.code()).then_some(HeartbeatResult {
            is_caught_up: response.is_caught_up,
            is_fenced: response.is_fenced,
            should_shut_down: response.should_shut_down,
        });
        let (before, after) = {
            let mut lifecycle = self.lifecycle.lock();
            let before = lifecycle.state();
            lifecycle.handle_heartbeat(self.now(), result);
            (before, lifecycle.state())
        };
        self.announce_state(before, after);
        self.outbox.wake_timers();
    }

    fn announce_state(&self, before: BrokerState, after: BrokerState) {
        if before != after {
            match after {
                BrokerState::Running => self.outbox.event(NodeEvent::Running),
                BrokerState::ShuttingDown => self.outbox.event(NodeEvent::ShutDown),
                _ => {}
            }
        }
    }

    /// The epoch of this broker's registration; −1 before it is registered.
    pub(crate) fn broker_epoch(&self) -> i64 {
        self.lifecycle.lock().broker_epoch().unwrap_or(-1)
    }

    fn broker_registration(&self) -> BrokerRegistrationRequest {
        let listener = |endpoint: &Endpoint| broker_registration_request::Listener {
            name: endpoint.listener.clone(),
            host: endpoint.host.clone().unwrap_or_default(),
            port: u16::try_from(endpoint.port).unwrap_or(0),
            security_protocol: endpoint.security_protocol.id(),
        };
        let mut log_dirs = self.logs.directory_ids();
        log_dirs.sort_by(directory_id::compare);
        BrokerRegistrationRequest {
            broker_id: self.node_id(),
            cluster_id: self.cluster_id().to_owned(),
            incarnation_id: self.identity.incarnation_id,
            listeners: self.identity.advertised_listeners.iter().map(listener).collect(),
            features: default_supported_features(self.settings().unstable_feature_versions_enable)
                .into_iter()
                .map(|(name, range)| broker_registration_request::Feature {
                    name,
                    min_supported_version: range.min,
                    max_supported_version: range.max,
                })
                .collect(),
            rack: self.settings().broker_rack.clone(),
            is_migrating_zk_broker: false,
            log_dirs,
            previous_broker_epoch: self.identity.previous_broker_epoch,
        }
    }

    pub(crate) fn controller_registration(&self) -> ControllerRegistrationRequest {
        let listener = |endpoint: &Endpoint| controller_registration_request::Listener {
            name: endpoint.listener.clone(),
            host: endpoint.host.clone().unwrap_or_default(),
            port: u16::try_from(endpoint.port).unwrap_or(0),
            security_protocol: endpoint.security_protocol.id(),
        };
        ControllerRegistrationRequest {
            controller_id: self.node_id(),
            incarnation_id: self.identity.incarnation_id,
            zk_migration_ready: false,
            listeners: self.identity.advertised_controller_listeners.iter().map(listener).collect(),
            features: default_supported_features(self.settings().unstable_feature_versions_enable)
                .into_iter()
                .map(|(name, range)| controller_registration_request::Feature {
                    name,
                    min_supported_version: range.min,
                    max_supported_version: range.max,
                })
                .collect(),
        }
    }
}
