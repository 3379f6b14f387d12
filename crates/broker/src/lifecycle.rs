//! A broker's life as the controller sees it: registration, heartbeats, unfencing, controlled shutdown.
//!
//! Sans-IO: inputs are `handle_*`, the next thing to send comes from [`BrokerLifecycle::poll`].
//!
//! States and transitions (the numbers are the values of Kafka's BrokerState metric)
//! * `Starting` (1) → `Recovery` (2): the controller says that the broker has caught up with the metadata log.
//! * `Recovery` → `Running` (3): the controller has unfenced it, which it asks for once it is ready to serve.
//! * `Running`, `Recovery`, `Starting` → `PendingControlledShutdown` (6): the broker was asked to stop.
//! * `PendingControlledShutdown` → `ShuttingDown` (7): the controller has moved its leaders, or does not answer in time.
//!
//! Invariants: at most one request is outstanding; a heartbeat is only sent with the epoch of a successful registration.

use protocol::Uuid;
use record::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// Wait before a failed registration is tried again.
const REGISTRATION_RETRY: Duration = Duration::from_millis(100);
/// Between heartbeats while the broker waits to change state, as opposed to the steady interval.
const EAGER_INTERVAL: Duration = Duration::from_millis(10);

/// Where the broker is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokerState {
    Starting,
    Recovery,
    Running,
    PendingControlledShutdown,
    ShuttingDown,
}

/// What to send to the active controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifecycleRequest {
    Register,
    Heartbeat { broker_epoch: i64, want_fence: bool, want_shut_down: bool, offline_log_dirs: Vec<Uuid> },
}

/// A failed log directory, and what the controller knows of it.
#[derive(Debug, Clone, Copy)]
struct OfflineDir {
    /// When the broker stops unless it is told.
    deadline: Duration,
    is_sent: bool,
    is_told: bool,
}

/// The machine; see the file's header.
#[derive(Debug)]
pub struct BrokerLifecycle {
    node_id: i32,
    state: BrokerState,
    heartbeat_interval: Duration,
    broker_epoch: Option<i64>,
    ready_to_unfence: bool,
    fenced: bool,
    outstanding: bool,
    next_send: Duration,
    shutdown_deadline: Option<Duration>,
    started: bool,
    offline_dirs: BTreeMap<Uuid, OfflineDir>,
    /// When a failed registration may be told of again.
    next_complaint: Duration,
}

impl BrokerLifecycle {
    /// `heartbeat_interval` is `broker.heartbeat.interval.ms`.
    pub fn new(node_id: i32, heartbeat_interval: Duration) -> Self {
        Self {
            node_id,
            state: BrokerState::Starting,
            heartbeat_interval,
            broker_epoch: None,
            ready_to_unfence: false,
            fenced: true,
            outstanding: false,
            next_send: Duration::ZERO,
            shutdown_deadline: None,
            started: false,
            offline_dirs: BTreeMap::new(),
            next_complaint: Duration::ZERO,
        }
    }

    /// The broker knows the metadata; only now it may register.
    pub fn start(&mut self) {
        self.started = true;
    }

    pub fn state(&self) -> BrokerState {
        self.state
    }

    /// The epoch of this incarnation, once it is registered.
    pub fn broker_epoch(&self) -> Option<i64> {
        self.broker_epoch
    }

    /// When [`Self::poll`] may have something to send.
    pub fn deadline(&self) -> Option<Duration> {
        if self.state == BrokerState::ShuttingDown {
            return None;
        }
        let send = (self.started && !self.outstanding).then_some(self.next_send);
        let untold = self.offline_dirs.values().filter(|dir| !dir.is_told).map(|dir| dir.deadline);
        send.into_iter().chain(untold).min()
    }

    /// The request to send now, if any.
    pub fn poll(&mut self, now: Time) -> Option<LifecycleRequest> {
        if self.shutdown_deadline.is_some_and(|deadline| now.monotonic >= deadline) {
            self.enter(BrokerState::ShuttingDown, "The controlled shutdown timed out.");
        }
        if let Some((id, _)) = self.untold_too_long(now)
            && self.state != BrokerState::ShuttingDown
        {
            tracing::error!(target: "org.apache.kafka.server.BrokerLifecycleManager", "[BrokerLifecycleManager id={}] Shutting down because couldn't communicate offline log dir {id} with controllers", self.node_id);
            self.enter(BrokerState::ShuttingDown, "A failed log dir is not known to the controller.");
        }
        if !self.started
            || self.outstanding
            || self.state == BrokerState::ShuttingDown
            || now.monotonic < self.next_send
        {
            return None;
        }
        self.outstanding = true;
        Some(match self.broker_epoch {
            None => LifecycleRequest::Register,
            Some(broker_epoch) => LifecycleRequest::Heartbeat {
                broker_epoch,
                want_fence: !self.ready_to_unfence,
                want_shut_down: self.state == BrokerState::PendingControlledShutdown,
                offline_log_dirs: self.send_offline_dirs(),
            },
        })
    }

    fn untold_too_long(&self, now: Time) -> Option<(Uuid, Duration)> {
        let late = self.offline_dirs.iter().find(|(_, dir)| !dir.is_told && now.monotonic >= dir.deadline);
        late.map(|(id, dir)| (*id, dir.deadline))
    }

    fn send_offline_dirs(&mut self) -> Vec<Uuid> {
        self.offline_dirs.values_mut().for_each(|dir| dir.is_sent = true);
        self.offline_dirs.keys().copied().collect()
    }

    /// A log directory has failed. The controller is told with the next heartbeat, at once; if it cannot be told within
    /// `timeout` (`log.dir.failure.timeout.ms`) the broker stops, so that the controller moves what it leads (KIP-858).
    pub fn handle_offline_dir(&mut self, now: Time, directory: Uuid, timeout: Duration) {
        let deadline = now.monotonic + timeout;
        self.offline_dirs.entry(directory).or_insert(OfflineDir { deadline, is_sent: false, is_told: false });
        if self.broker_epoch.is_some() {
            self.next_send = now.monotonic;
        }
    }

    /// The broker's logs are loaded and its listeners can serve.
    pub fn set_ready_to_unfence(&mut self, now: Time) {
        self.ready_to_unfence = true;
        self.next_send = now.monotonic;
    }

    /// Asks for a controlled shutdown; after `timeout` the broker stops anyway.
    pub fn begin_controlled_shutdown(&mut self, now: Time, timeout: Duration) {
        if self.state == BrokerState::ShuttingDown {
            return;
        }
        if self.broker_epoch.is_none() {
            self.enter(BrokerState::ShuttingDown, "The broker was not registered.");
            return;
        }
        self.enter(BrokerState::PendingControlledShutdown, "Beginning controlled shutdown.");
        self.shutdown_deadline = Some(now.monotonic + timeout);
        self.next_send = now.monotonic;
    }

    /// The answer to a registration: the broker's epoch, or that it failed.
    pub fn handle_registration(&mut self, now: Time, result: Result<i64, String>) {
        self.outstanding = false;
        match result {
            Ok(epoch) => {
                tracing::info!(target: "org.apache.kafka.server.BrokerLifecycleManager", "[BrokerLifecycleManager id={}] Successfully registered broker {} with broker epoch {epoch}", self.node_id, self.node_id);
                self.broker_epoch = Some(epoch);
                self.next_send = now.monotonic;
            }
            Err(error) => {
                if now.monotonic >= self.next_complaint {
                    self.next_complaint = now.monotonic + self.heartbeat_interval;
                    tracing::info!(target: "org.apache.kafka.server.BrokerLifecycleManager", "[BrokerLifecycleManager id={}] Unable to register broker {} because the controller returned error {error}", self.node_id, self.node_id);
                }
                self.next_send = now.monotonic + REGISTRATION_RETRY;
            }
        }
    }

    /// The answer to a heartbeat; `None` = it failed.
    pub fn handle_heartbeat(&mut self, now: Time, result: Option<HeartbeatResult>) {
        self.outstanding = false;
        self.next_send = now.monotonic + self.heartbeat_interval;
        let Some(result) = result else {
            self.offline_dirs.values_mut().for_each(|dir| dir.is_sent = dir.is_told);
            return;
        };
        for dir in self.offline_dirs.values_mut() {
            dir.is_told |= dir.is_sent;
            if !dir.is_told {
                // It failed while this heartbeat was under way.
                self.next_send = now.monotonic;
            }
        }
        self.fenced = result.is_fenced;
        match self.state {
            BrokerState::Starting => {
                if result.is_caught_up {
                    self.enter(BrokerState::Recovery, "The broker has caught up.");
                }
                self.next_send = now.monotonic + EAGER_INTERVAL;
                if result.is_caught_up {
                    self.next_send = now.monotonic;
                }
            }
            BrokerState::Recovery => {
                if !result.is_fenced {
                    self.enter(BrokerState::Running, "The broker has been unfenced.");
                } else if self.ready_to_unfence {
                    self.next_send = now.monotonic + EAGER_INTERVAL;
                }
            }
            BrokerState::PendingControlledShutdown => {
                if result.should_shut_down {
                    self.enter(
                        BrokerState::ShuttingDown,
                        "The controller has asked us to exit controlled shutdown.",
                    );
                } else {
                    self.next_send = now.monotonic + EAGER_INTERVAL;
                }
            }
            BrokerState::Running | BrokerState::ShuttingDown => {}
        }
    }

    fn enter(&mut self, state: BrokerState, why: &str) {
        let name = |state| match state {
            BrokerState::Starting => "STARTING",
            BrokerState::Recovery => "RECOVERY",
            BrokerState::Running => "RUNNING",
            BrokerState::PendingControlledShutdown => "PENDING_CONTROLLED_SHUTDOWN",
            BrokerState::ShuttingDown => "SHUTTING_DOWN",
        };
        if state != self.state {
            tracing::info!(target: "org.apache.kafka.server.BrokerLifecycleManager", "[BrokerLifecycleManager id={}] {why} Transitioning from {} to {}.", self.node_id, name(self.state), name(state));
            self.state = state;
        }
    }
}

/// What a heartbeat's answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatResult {
    pub is_caught_up: bool,
    pub is_fenced: bool,
    pub should_shut_down: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time { monotonic: Duration::from_millis(ms), wall_ms: 0 }
    }

    fn beat(is_caught_up: bool, is_fenced: bool, should_shut_down: bool) -> Option<HeartbeatResult> {
        Some(HeartbeatResult { is_caught_up, is_fenced, should_shut_down })
    }

    fn heartbeat(
        broker_epoch: i64,
        want_fence: bool,
        want_shut_down: bool,
        offline: &[Uuid],
    ) -> LifecycleRequest {
        let offline_log_dirs = offline.to_vec();
        LifecycleRequest::Heartbeat { broker_epoch, want_fence, want_shut_down, offline_log_dirs }
    }

    /// A broker that runs; its next heartbeat is due at 2004.
    fn running() -> BrokerLifecycle {
        let mut life = BrokerLifecycle::new(1, Duration::from_secs(2));
        life.start();
        life.poll(at(0));
        life.handle_registration(at(1), Ok(7));
        life.poll(at(1));
        life.handle_heartbeat(at(2), beat(true, true, false));
        life.set_ready_to_unfence(at(3));
        life.poll(at(3));
        life.handle_heartbeat(at(4), beat(true, false, false));
        life
    }

    #[test]
    fn a_failed_directory_is_told_at_once_and_with_every_heartbeat() {
        let (dir, second) = (Uuid([1; 16]), Uuid([2; 16]));
        let mut life = running();
        life.handle_offline_dir(at(10), dir, Duration::from_secs(30));
        assert_eq!(life.deadline(), Some(Duration::from_millis(10)));
        assert_eq!(life.poll(at(10)), Some(heartbeat(7, false, false, &[dir])));
        // Another one fails while the heartbeat is under way: it was not told with it.
        life.handle_offline_dir(at(11), second, Duration::from_secs(30));
        life.handle_heartbeat(at(12), beat(true, false, false));
        assert_eq!(life.poll(at(12)), Some(heartbeat(7, false, false, &[dir, second])));
        life.handle_heartbeat(at(13), beat(true, false, false));
        assert_eq!(life.poll(at(2013)), Some(heartbeat(7, false, false, &[dir, second])));
        life.handle_heartbeat(at(2014), None);
        life.poll(at(60_000));
        assert_eq!(life.state(), BrokerState::Running, "it was told once");
    }

    #[test]
    fn a_broker_that_cannot_tell_of_a_failed_directory_stops() {
        let mut life = running();
        life.handle_offline_dir(at(10), Uuid([1; 16]), Duration::from_secs(30));
        life.poll(at(10));
        life.handle_heartbeat(at(20), None);
        assert!(life.poll(at(2020)).is_some());
        assert_eq!(life.deadline(), Some(Duration::from_millis(30_010)));
        life.poll(at(30_009));
        assert_eq!(life.state(), BrokerState::Running);
        life.poll(at(30_010));
        assert_eq!(life.state(), BrokerState::ShuttingDown);
    }

    #[test]
    fn a_broker_registers_catches_up_is_unfenced_and_stops() {
        let mut life = BrokerLifecycle::new(1, Duration::from_secs(2));
        assert_eq!(life.poll(at(0)), None, "not before the metadata are known");
        life.start();
        assert_eq!(life.poll(at(0)), Some(LifecycleRequest::Register));
        assert_eq!(life.poll(at(0)), None, "one request at a time");
        life.handle_registration(at(1), Ok(7));
        let fenced = heartbeat(7, true, false, &[]);
        assert_eq!(life.poll(at(1)), Some(fenced));
        life.handle_heartbeat(at(2), beat(true, true, false));
        assert_eq!(life.state(), BrokerState::Recovery);
        life.set_ready_to_unfence(at(3));
        let ready = heartbeat(7, false, false, &[]);
        assert_eq!(life.poll(at(3)), Some(ready));
        life.handle_heartbeat(at(4), beat(true, false, false));
        assert_eq!(life.state(), BrokerState::Running);
        assert_eq!(life.deadline(), Some(Duration::from_millis(2004)));
        life.begin_controlled_shutdown(at(10), Duration::from_secs(60));
        let stopping = heartbeat(7, false, true, &[]);
        assert_eq!(life.poll(at(10)), Some(stopping));
        life.handle_heartbeat(at(11), beat(true, false, true));
        assert_eq!(life.state(), BrokerState::ShuttingDown);
        assert_eq!(life.poll(at(5000)), None);
    }

    #[test]
    fn a_failed_registration_is_tried_again() {
        let mut life = BrokerLifecycle::new(1, Duration::from_secs(2));
        assert_eq!(life.poll(at(0)), None, "not before the metadata are known");
        life.start();
        life.poll(at(0));
        life.handle_registration(at(0), Err("DUPLICATE_BROKER_REGISTRATION".into()));
        assert_eq!(life.poll(at(50)), None);
        assert_eq!(life.poll(at(100)), Some(LifecycleRequest::Register));
    }

    #[test]
    fn a_controlled_shutdown_ends_by_its_deadline() {
        let mut life = BrokerLifecycle::new(1, Duration::from_secs(2));
        assert_eq!(life.poll(at(0)), None, "not before the metadata are known");
        life.start();
        life.poll(at(0));
        life.handle_registration(at(0), Ok(1));
        life.begin_controlled_shutdown(at(0), Duration::from_secs(1));
        life.poll(at(1000));
        assert_eq!(life.state(), BrokerState::ShuttingDown);
    }
}
