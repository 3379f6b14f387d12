//! Log compaction: of each key the last value stays.
//!
//! Owns: [`LogCleaner`], what all cleaner threads of a node share: settings, throttle, and which logs may be cleaned
//! (`manager`). `clean` does the work: one pass over the dirty part of a log notes each key's last offset, a second
//! one copies what is still current into new segments, which then take the place of the old ones.
//! Invariants: offsets never change. Nothing at or above the last stable offset or in the active segment is touched,
//! or younger than `min.compaction.lag.ms`. What a replaced record was replaced by is durable before it goes.
//! Memory is bounded by `log.cleaner.dedupe.buffer.size`, `log.cleaner.io.buffer.size` and the largest batch, and is
//! given back between logs.
//! Concurrency: any number of threads, each with a [`CleanerThread`] of its own and its own log at a time. A log's
//! cleaning can be aborted from elsewhere, which waits until the cleaner has let go.
//! Crash: see `log::replace`. A `.cleaned` file is garbage.

mod clean;
mod config;
mod dirty;
mod group;
mod manager;
mod offset_map;
mod throttler;
mod transactions;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use env::Env;

pub(crate) use self::clean::{CleanFailure, Job};
pub use self::clean::{CleanerStats, CleanerThread};
pub use self::config::CleanerConfig;
pub(crate) use self::dirty::LogToClean;
pub(crate) use self::manager::LogCleanerManager;
use self::throttler::Throttler;

/// The thread that a cleaner runs on.
pub trait CleanerHost {
    /// Whether the thread is to end: cleaning is given up then.
    fn is_stopping(&self) -> bool;

    /// Sleeps, for at most `timeout`.
    fn sleep(&self, timeout: Duration);
}

/// See the file's header.
pub struct LogCleaner {
    config: ArcSwap<CleanerConfig>,
    throttler: Throttler,
    pub(crate) manager: LogCleanerManager,
    env: Env,
}

impl LogCleaner {
    pub(crate) fn new(env: Env, config: CleanerConfig) -> Self {
        LogCleaner {
            throttler: Throttler::new(config.max_io_bytes_per_second, env.now().monotonic),
            config: ArcSwap::from_pointee(config),
            manager: LogCleanerManager::new(env.fs.clone()),
            env,
        }
    }

    pub(crate) fn config(&self) -> Arc<CleanerConfig> {
        self.config.load_full()
    }

    /// New settings: the rate at once, the others with the next log.
    pub(crate) fn reconfigure(&self, config: CleanerConfig) {
        if **self.config.load() == config {
            return;
        }
        self.throttler.set_rate(config.max_io_bytes_per_second);
        self.config.store(Arc::new(config));
    }
}
