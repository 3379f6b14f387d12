//! Keeps the cleaner's reads and writes below a rate.
//!
//! Owns: [`Throttler`]. Invariants: on average over its check interval no more than the rate; it decides, the caller
//! sleeps. Concurrency: shared by all cleaner threads, behind a lock that nobody sleeps under. Crash: nothing to keep.

use std::time::Duration;

use parking_lot::Mutex;

/// Rates are judged over at least this long.
const CHECK_INTERVAL: Duration = Duration::from_millis(300);

struct Period {
    rate: f64,
    start: Duration,
    observed: f64,
}

pub(super) struct Throttler(Mutex<Period>);

impl Throttler {
    /// `rate` is in bytes per second; `now` is monotonic.
    pub(super) fn new(rate: f64, now: Duration) -> Self {
        Throttler(Mutex::new(Period { rate, start: now, observed: 0.0 }))
    }

    pub(super) fn set_rate(&self, rate: f64) {
        self.0.lock().rate = rate;
    }

    /// Notes bytes read or written; returns how long to sleep when they were too many.
    pub(super) fn observe(&self, bytes: usize, now: Duration) -> Option<Duration> {
        let mut period = self.0.lock();
        period.observed += bytes as f64;
        // While another thread sleeps the next period has not begun: what this thread does counts for that one.
        let elapsed = now.saturating_sub(period.start);
        if elapsed <= CHECK_INTERVAL || period.observed <= 0.0 {
            return None;
        }
        let needed = period.observed / period.rate;
        let sleep = Duration::try_from_secs_f64(needed - elapsed.as_secs_f64()).ok();
        let sleep = sleep.filter(|sleep| sleep.as_millis() > 0);
        period.start = now.saturating_add(sleep.unwrap_or_default());
        period.observed = 0.0;
        sleep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_above_the_rate_are_made_up_for_by_sleep() {
        let ms = Duration::from_millis;
        let throttler = Throttler::new(1000.0, ms(0));
        assert_eq!(throttler.observe(10_000, ms(300)), None, "not judged before the interval is over");
        assert_eq!(throttler.observe(0, ms(500)), Some(ms(9500)));
        assert_eq!(throttler.observe(10_000, ms(5000)), None, "another thread, while the first sleeps");
        assert_eq!(throttler.observe(0, ms(10_500)), Some(ms(9500)));
        assert_eq!(throttler.observe(100, ms(30_000)), None, "below the rate");
        throttler.set_rate(f64::MAX);
        assert_eq!(throttler.observe(usize::MAX, ms(40_000)), None);
    }
}
