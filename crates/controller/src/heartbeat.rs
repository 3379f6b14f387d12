//! Which brokers are alive: soft state of the active controller only.
//!
//! Owns contact times and, per broker, the metadata offset it has read and where its controlled shutdown began.
//! Invariants: every registered broker is tracked while this controller is active; a fenced broker is not active.
//! Concurrency: one writer. A crash or failover leaves nothing: the next controller grants unfenced brokers one
//! whole session.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use record::Time;

/// What a broker is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BrokerControlState {
    Fenced,
    Unfenced,
    ControlledShutdown,
    ShutdownNow,
}

impl BrokerControlState {
    pub(crate) fn is_fenced(self) -> bool {
        matches!(self, Self::Fenced | Self::ShutdownNow)
    }
}

#[derive(Debug, Clone, Copy)]
struct BrokerHeartbeatState {
    fenced: bool,
    metadata_offset: i64,
    /// Where the controlled shutdown began; negative when there is none.
    controlled_shutdown_offset: i64,
}

impl BrokerHeartbeatState {
    fn is_shutting_down(&self) -> bool {
        self.controlled_shutdown_offset >= 0
    }
}

/// What a heartbeat says, as far as the next state depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heartbeat {
    pub(crate) want_fence: bool,
    pub(crate) want_shut_down: bool,
    pub(crate) metadata_offset: i64,
    pub(crate) registration_offset: i64,
}

/// The brokers as the active controller sees them.
#[derive(Debug, Clone)]
pub(crate) struct BrokerHeartbeatManager {
    session_timeout: Duration,
    contact_times: BTreeMap<(i32, i64), Duration>,
    brokers: BTreeMap<i32, BrokerHeartbeatState>,
    /// (metadata offset, broker) of every unfenced broker that is not shutting down.
    active: BTreeSet<(i64, i32)>,
}

impl BrokerHeartbeatManager {
    pub(crate) fn new(session_timeout: Duration) -> Self {
        Self {
            session_timeout,
            contact_times: BTreeMap::new(),
            brokers: BTreeMap::new(),
            active: BTreeSet::new(),
        }
    }

    /// Notes that a broker was heard of.
    pub(crate) fn update_contact_time(&mut self, now: Time, broker: i32, epoch: i64) {
        self.contact_times.insert((broker, epoch), now.monotonic);
    }

    fn is_expired(&self, now: Time, contact: Duration) -> bool {
        now.monotonic > contact && contact + self.session_timeout < now.monotonic
    }

    /// Whether a broker was heard of within the session timeout.
    pub(crate) fn has_valid_session(&self, now: Time, broker: i32, epoch: i64) -> bool {
        self.contact_times.get(&(broker, epoch)).is_some_and(|t| !self.is_expired(now, *t))
    }

    /// Removes one session that has timed out.
    pub(crate) fn remove_one_expired(&mut self, now: Time) -> Option<(i32, i64)> {
        let key = *self.contact_times.iter().find(|(_, t)| self.is_expired(now, **t))?.0;
        self.contact_times.remove(&key);
        Some(key)
    }

    pub(crate) fn fence(&mut self, broker: i32) {
        if let Some(state) = self.brokers.get_mut(&broker) {
            state.fenced = true;
            self.active.remove(&(state.metadata_offset, broker));
        }
    }

    pub(crate) fn remove(&mut self, broker: i32) {
        if let Some(state) = self.brokers.remove(&broker) {
            self.active.remove(&(state.metadata_offset, broker));
        }
    }

    /// Tracks a broker whose registration was replayed.
    pub(crate) fn register(&mut self, broker: i32, fenced: bool) {
        let metadata_offset = match self.brokers.get(&broker) {
            Some(state) if state.fenced != fenced => state.metadata_offset,
            _ => -1,
        };
        self.brokers.entry(broker).or_insert(BrokerHeartbeatState {
            fenced,
            metadata_offset: -1,
            controlled_shutdown_offset: -1,
        });
        self.touch(broker, fenced, metadata_offset);
    }

    /// Notes a tracked broker's state and how far it has read.
    pub(crate) fn touch(&mut self, broker: i32, fenced: bool, metadata_offset: i64) {
        let Some(state) = self.brokers.get_mut(&broker) else { return };
        self.active.remove(&(state.metadata_offset, broker));
        state.fenced = fenced;
        state.metadata_offset = metadata_offset;
        if fenced {
            state.controlled_shutdown_offset = -1;
        } else if !state.is_shutting_down() {
            self.active.insert((metadata_offset, broker));
        }
    }

    fn lowest_active_offset(&self) -> i64 {
        self.active.first().map_or(i64::MAX, |(offset, _)| *offset)
    }

    /// Notes where a broker's controlled shutdown stands in the log, unless it was noted before.
    pub(crate) fn maybe_update_controlled_shutdown_offset(&mut self, broker: i32, offset: i64) {
        let Some(state) = self.brokers.get_mut(&broker).filter(|s| !s.fenced) else { return };
        self.active.remove(&(state.metadata_offset, broker));
        if state.controlled_shutdown_offset < 0 {
            state.controlled_shutdown_offset = offset;
        }
    }

    /// The brokers that can be given partitions: (id, fenced), without those that are shutting down.
    pub(crate) fn usable_brokers(&self) -> impl Iterator<Item = (i32, bool)> + '_ {
        self.brokers.iter().filter(|(_, s)| !s.is_shutting_down()).map(|(id, s)| (*id, s.fenced))
    }

    /// A tracked broker's state before and after a heartbeat.
    pub(crate) fn next_state(
        &self,
        broker: i32,
        heartbeat: Heartbeat,
        has_leaderships: bool,
    ) -> Option<(BrokerControlState, BrokerControlState)> {
        use BrokerControlState::{ControlledShutdown, Fenced, ShutdownNow, Unfenced};
        let state = self.brokers.get(&broker)?;
        let caught_up = heartbeat.metadata_offset >= heartbeat.registration_offset;
        Some(if state.is_shutting_down() {
            let done = !has_leaderships && state.controlled_shutdown_offset <= self.lowest_active_offset();
            (ControlledShutdown, if done { ShutdownNow } else { ControlledShutdown })
        } else if state.fenced {
            let next = match (heartbeat.want_shut_down, heartbeat.want_fence) {
                (true, _) => ShutdownNow,
                (false, false) if caught_up => Unfenced,
                (false, _) => Fenced,
            };
            (Fenced, next)
        } else {
            let next = match (heartbeat.want_fence, heartbeat.want_shut_down) {
                (true, true) => ShutdownNow,
                (true, false) => Fenced,
                (false, true) if has_leaderships => ControlledShutdown,
                (false, true) => ShutdownNow,
                (false, false) => Unfenced,
            };
            (Unfenced, next)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BrokerControlState::{ControlledShutdown, Fenced, ShutdownNow, Unfenced};

    fn at(seconds: u64) -> Time {
        Time { monotonic: Duration::from_secs(seconds), wall_ms: 0 }
    }

    #[test]
    fn sessions_expire_after_the_timeout_and_once() {
        let mut m = BrokerHeartbeatManager::new(Duration::from_secs(9));
        m.update_contact_time(at(1), 1, 10);
        assert!(m.has_valid_session(at(10), 1, 10), "exactly the timeout is still valid");
        assert!(!m.has_valid_session(at(11), 1, 10));
        assert!(!m.has_valid_session(at(2), 1, 11), "another epoch has no session");
        assert_eq!(m.remove_one_expired(at(10)), None);
        assert_eq!(m.remove_one_expired(at(11)), Some((1, 10)));
        assert_eq!(m.remove_one_expired(at(11)), None);
    }

    #[test]
    fn the_next_state_follows_from_what_a_broker_wants() {
        // (state before, wants fence, wants shutdown, has read its registration, leads, state after)
        let table = [
            (Fenced, false, false, true, false, Unfenced),
            (Fenced, false, false, false, false, Fenced),
            (Fenced, true, false, true, false, Fenced),
            (Fenced, true, true, true, false, ShutdownNow),
            (Unfenced, false, false, true, true, Unfenced),
            (Unfenced, true, false, true, true, Fenced),
            (Unfenced, true, true, true, true, ShutdownNow),
            (Unfenced, false, true, true, true, ControlledShutdown),
            (Unfenced, false, true, true, false, ShutdownNow),
            (ControlledShutdown, false, true, true, true, ControlledShutdown),
            (ControlledShutdown, false, true, true, false, ShutdownNow),
        ];
        for (before, want_fence, want_shut_down, read, leads, after) in table {
            let mut m = BrokerHeartbeatManager::new(Duration::from_secs(9));
            m.register(1, before == Fenced);
            if before == ControlledShutdown {
                m.maybe_update_controlled_shutdown_offset(1, 100);
            }
            let heartbeat = Heartbeat {
                want_fence,
                want_shut_down,
                metadata_offset: if read { 50 } else { 49 },
                registration_offset: 50,
            };
            assert_eq!(m.next_state(1, heartbeat, leads), Some((before, after)));
        }
    }

    #[test]
    fn a_controlled_shutdown_waits_until_all_active_brokers_have_read_it() {
        let mut m = BrokerHeartbeatManager::new(Duration::from_secs(9));
        m.register(1, false);
        m.register(2, false);
        m.touch(2, false, 99);
        m.maybe_update_controlled_shutdown_offset(1, 100);
        let beat = Heartbeat {
            want_fence: false,
            want_shut_down: true,
            metadata_offset: 100,
            registration_offset: 1,
        };
        assert_eq!(m.next_state(1, beat, false), Some((ControlledShutdown, ControlledShutdown)));
        m.touch(2, false, 100);
        assert_eq!(m.next_state(1, beat, false), Some((ControlledShutdown, ShutdownNow)));
        assert_eq!(m.usable_brokers().collect::<Vec<_>>(), [(2, false)]);
    }
}
