//! A limit on warning lines that a peer can cause, so that a port scan cannot fill the log.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Lines allowed in each [`WINDOW`].
const LINES: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct WarnLimit {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    window_start: Option<Instant>,
    written: u32,
    suppressed: u64,
}

impl WarnLimit {
    /// Whether a line may be written now, and how many were held back before it.
    pub(crate) fn admit(&self) -> Option<u64> {
        let now = Instant::now();
        let mut state = self.state.lock();
        if state.window_start.is_none_or(|start| now.duration_since(start) >= WINDOW) {
            state.window_start = Some(now);
            state.written = 0;
        }
        if state.written >= LINES {
            state.suppressed += 1;
            return None;
        }
        state.written += 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}
