//! Timers of a shard, by key: at most one per key, fired by `handle_timeout`, never by a thread.
//!
//! Invariant: `by_deadline` holds exactly the entries of `by_key`. Deadlines are on the node's monotonic clock.
//! A crash leaves nothing; a loaded shard schedules its timers anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The timers of one shard. `K` names a timer, `P` is what its firing needs to know.
#[derive(Debug)]
pub struct CoordinatorTimer<K, P> {
    by_key: BTreeMap<K, (Duration, u64, P)>,
    by_deadline: BTreeSet<(Duration, u64, K)>,
    /// Breaks ties of deadlines by the order of scheduling.
    sequence: u64,
}

impl<K: Ord + Clone, P> Default for CoordinatorTimer<K, P> {
    fn default() -> Self {
        Self { by_key: BTreeMap::new(), by_deadline: BTreeSet::new(), sequence: 0 }
    }
}

impl<K: Ord + Clone, P> CoordinatorTimer<K, P> {
    /// Schedules `key` for `deadline`, replacing the timer of that name if there is one.
    pub fn schedule(&mut self, key: K, deadline: Duration, payload: P) {
        self.cancel(&key);
        self.sequence += 1;
        self.by_deadline.insert((deadline, self.sequence, key.clone()));
        self.by_key.insert(key, (deadline, self.sequence, payload));
    }

    /// Schedules `key` for `delay_ms` after `now`; a delay that is not positive fires at the next opportunity.
    pub fn schedule_in(&mut self, now: Duration, key: K, delay_ms: i64, payload: P) {
        let delay = Duration::from_millis(u64::try_from(delay_ms).unwrap_or(0));
        self.schedule(key, now.saturating_add(delay), payload);
    }

    /// Forgets the timer `key`.
    pub fn cancel(&mut self, key: &K) {
        if let Some((deadline, sequence, _)) = self.by_key.remove(key) {
            self.by_deadline.remove(&(deadline, sequence, key.clone()));
        }
    }

    pub fn cancel_all(&mut self) {
        self.by_key.clear();
        self.by_deadline.clear();
    }

    pub fn is_scheduled(&self, key: &K) -> bool {
        self.by_key.contains_key(key)
    }

    /// When the timer `key` fires.
    pub fn deadline(&self, key: &K) -> Option<Duration> {
        self.by_key.get(key).map(|(deadline, _, _)| *deadline)
    }

    /// When the next timer fires.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.by_deadline.first().map(|(deadline, _, _)| *deadline)
    }

    /// Takes out the first timer that is due.
    pub fn pop_due(&mut self, now: Duration) -> Option<(K, P)> {
        if self.next_deadline()? > now {
            return None;
        }
        let (_, _, key) = self.by_deadline.pop_first()?;
        let (_, _, payload) = self.by_key.remove(&key)?;
        Some((key, payload))
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn fires_in_order_of_deadline_then_of_scheduling() {
        let mut timers = CoordinatorTimer::default();
        timers.schedule("b", ms(20), 1);
        timers.schedule("z", ms(10), 2);
        timers.schedule("a", ms(10), 3);
        assert_eq!(timers.next_deadline(), Some(ms(10)));
        assert_eq!(timers.pop_due(ms(9)), None);
        assert_eq!(timers.pop_due(ms(30)), Some(("z", 2)));
        assert_eq!(timers.pop_due(ms(30)), Some(("a", 3)));
        assert_eq!(timers.pop_due(ms(30)), Some(("b", 1)));
        assert!(timers.is_empty());
    }

    #[test]
    fn a_second_schedule_replaces_the_first() {
        let mut timers = CoordinatorTimer::default();
        timers.schedule("a", ms(10), 1);
        timers.schedule_in(ms(5), "a", 20, 2);
        assert_eq!(timers.len(), 1);
        assert_eq!(timers.pop_due(ms(24)), None);
        assert_eq!(timers.pop_due(ms(25)), Some(("a", 2)));
        timers.schedule_in(ms(5), "a", -3, 2);
        timers.cancel(&"a");
        assert_eq!(timers.next_deadline(), None);
    }
}
