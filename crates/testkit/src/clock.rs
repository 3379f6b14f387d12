//! The clock that only moves when told to.
//!
//! Owns: the two times. Invariants: monotonic time never goes back; wall time may, as it does in life.
//! Concurrency: a lock. Crash: monotonic time starts again at zero in a new node; call [`VirtualClock::restart`].

use std::time::Duration;

use env::Clock;
use parking_lot::Mutex;
use record::Time;

pub struct VirtualClock {
    now: Mutex<Time>,
}

impl VirtualClock {
    pub fn new(wall_ms: i64) -> Self {
        VirtualClock { now: Mutex::new(Time { monotonic: Duration::ZERO, wall_ms }) }
    }

    /// Moves both times forward.
    pub fn advance(&self, by: Duration) {
        let mut now = self.now.lock();
        now.monotonic += by;
        now.wall_ms += i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    }

    /// Steps the wall clock only, as an operator or NTP would.
    pub fn set_wall_ms(&self, wall_ms: i64) {
        self.now.lock().wall_ms = wall_ms;
    }

    pub fn restart(&self) {
        self.now.lock().monotonic = Duration::ZERO;
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        *self.now.lock()
    }
}
