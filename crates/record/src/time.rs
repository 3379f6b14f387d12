//! The instant that decision code is given: never read, always an argument.

use std::time::Duration;

/// Now, as an argument.
///
/// `monotonic` drives every timer; `wall_ms` is only ever written into timestamps.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Time since the node started; never goes back.
    pub monotonic: Duration,
    /// Milliseconds since the Unix epoch; may jump.
    pub wall_ms: i64,
}

impl Time {
    pub const ZERO: Time = Time { monotonic: Duration::ZERO, wall_ms: 0 };

    pub fn new(monotonic: Duration, wall_ms: i64) -> Time {
        Time { monotonic, wall_ms }
    }
}
