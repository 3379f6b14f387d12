//! Which peer may be sent a request now: at most one request is in flight per peer, a failed one backs off.
//!
//! Owns one connection state per destination. Invariant: a response is accepted only under the correlation id of the
//! request that is in flight. Nothing survives a crash or a change of role; both start with all peers ready.

use std::collections::BTreeMap;
use std::time::Duration;

/// A peer as the network layer addresses it. Bootstrap servers of unknown id carry ids from -2 downwards.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    pub id: i32,
    pub host: String,
    pub port: u16,
}

#[derive(Clone, Copy, Debug)]
enum Connection {
    AwaitingResponse { correlation_id: i32, sent: Duration },
    BackingOff { failed: Duration },
}

#[derive(Clone, Debug)]
pub(crate) struct RequestManager {
    connections: BTreeMap<i32, Connection>,
    bootstrap_servers: Vec<Destination>,
    retry_backoff: Duration,
    request_timeout: Duration,
}

impl RequestManager {
    pub(crate) fn new(
        bootstrap_servers: Vec<Destination>,
        retry_backoff: Duration,
        request_timeout: Duration,
    ) -> Self {
        Self { connections: BTreeMap::new(), bootstrap_servers, retry_backoff, request_timeout }
    }

    /// Forgets waits that are over.
    pub(crate) fn settle(&mut self, now: Duration) {
        let (backoff, timeout) = (self.retry_backoff, self.request_timeout);
        self.connections.retain(|_, connection| match connection {
            Connection::AwaitingResponse { sent, .. } => now < *sent + timeout,
            Connection::BackingOff { failed } => now < *failed + backoff,
        });
    }

    pub(crate) fn is_ready(&mut self, id: i32, now: Duration) -> bool {
        self.settle(now);
        !self.connections.contains_key(&id)
    }

    pub(crate) fn is_backing_off(&mut self, id: i32, now: Duration) -> bool {
        self.settle(now);
        matches!(self.connections.get(&id), Some(Connection::BackingOff { .. }))
    }

    pub(crate) fn has_request_timed_out(&self, id: i32, now: Duration) -> bool {
        matches!(self.connections.get(&id), Some(Connection::AwaitingResponse { sent, .. }) if now >= *sent + self.request_timeout)
    }

    pub(crate) fn has_any_inflight_request(&mut self, now: Duration) -> bool {
        self.settle(now);
        self.connections.values().any(|connection| matches!(connection, Connection::AwaitingResponse { .. }))
    }

    /// When the next request to a bootstrap server may go out: when the first present wait ends.
    pub(crate) fn next_ready_at(&self) -> Option<Duration> {
        self.connections.values().map(|connection| self.ends_at(connection)).min()
    }

    fn ends_at(&self, connection: &Connection) -> Duration {
        match connection {
            Connection::AwaitingResponse { sent, .. } => *sent + self.request_timeout,
            Connection::BackingOff { failed } => *failed + self.retry_backoff,
        }
    }

    /// A ready bootstrap server, looked for from the `start`-th on; none while any request is in flight.
    pub(crate) fn find_ready_bootstrap_server(&mut self, now: Duration, start: u64) -> Option<Destination> {
        if self.bootstrap_servers.is_empty() || self.has_any_inflight_request(now) {
            return None;
        }
        let count = self.bootstrap_servers.len();
        let start = usize::try_from(start % count as u64).unwrap_or(0);
        let ready = (0..count)
            .map(|i| (start + i) % count)
            .find(|i| !self.connections.contains_key(&self.bootstrap_servers[*i].id));
        ready.map(|i| self.bootstrap_servers[i].clone())
    }

    pub(crate) fn on_request_sent(&mut self, id: i32, correlation_id: i32, now: Duration) {
        self.connections.insert(id, Connection::AwaitingResponse { correlation_id, sent: now });
    }

    pub(crate) fn is_response_expected(&self, id: i32, correlation_id: i32) -> bool {
        matches!(self.connections.get(&id), Some(Connection::AwaitingResponse { correlation_id: expected, .. }) if *expected == correlation_id)
    }

    /// Ends the wait for an expected response; `success` decides between ready and backing off.
    pub(crate) fn on_response_result(&mut self, id: i32, correlation_id: i32, success: bool, now: Duration) {
        if self.is_response_expected(id, correlation_id) {
            if success {
                self.connections.remove(&id);
            } else {
                self.connections.insert(id, Connection::BackingOff { failed: now });
            }
        }
    }

    pub(crate) fn reset(&mut self, id: i32) {
        self.connections.remove(&id);
    }

    pub(crate) fn reset_all(&mut self) {
        self.connections.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn one_request_is_in_flight_until_answered_failed_or_timed_out() {
        let mut manager = RequestManager::new(vec![], MS(20), MS(2000));
        assert!(manager.is_ready(1, MS(0)));
        manager.on_request_sent(1, 7, MS(0));
        assert!(!manager.is_ready(1, MS(10)));
        assert!(!manager.is_response_expected(1, 6));
        manager.on_response_result(1, 7, false, MS(10));
        assert!(manager.is_backing_off(1, MS(29)));
        assert!(manager.is_ready(1, MS(30)));
        manager.on_request_sent(1, 8, MS(30));
        assert!(manager.has_request_timed_out(1, MS(2030)));
        assert!(manager.is_ready(1, MS(2030)));
    }

    #[test]
    fn bootstrap_servers_are_tried_in_turn_and_not_while_a_request_is_in_flight() {
        let server = |id: i32| Destination { id, host: "h".into(), port: 1 };
        let mut manager = RequestManager::new(vec![server(-2), server(-3)], MS(20), MS(2000));
        assert_eq!(manager.find_ready_bootstrap_server(MS(0), 3).map(|s| s.id), Some(-3));
        manager.on_request_sent(-3, 1, MS(0));
        assert_eq!(manager.find_ready_bootstrap_server(MS(1), 0), None);
        manager.on_response_result(-3, 1, false, MS(1));
        assert_eq!(manager.find_ready_bootstrap_server(MS(2), 1).map(|s| s.id), Some(-2));
    }
}
