//! What a start says about the logs it loads.
//!
//! Owns: the lines, worded as the reference's. A line per log is only told when its log took time, or when nothing was
//! told for a while: tens of thousands of lines help nobody.
//! Concurrency: counters. Crash: nothing is written.

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::{DirJobs, Job, LoadSummary};
use crate::log::UnifiedLog;

/// A log that took this long is told of.
const LONG: Duration = Duration::from_millis(500);
/// Nothing is told for at most this long while logs are being loaded.
const SILENCE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Progress {
    completed: AtomicUsize,
    /// Monotonic time of the last line, ms.
    last_told_ms: AtomicU64,
}

impl Progress {
    /// One more log is loaded, or could not be.
    pub(super) fn note(
        &self,
        jobs: &DirJobs,
        job: &Job,
        log: Option<&UnifiedLog>,
        begin: Duration,
        now: Duration,
    ) {
        let completed = self.completed.fetch_add(1, Ordering::Relaxed) + 1;
        let took = now.saturating_sub(begin);
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let silent_ms = now_ms.saturating_sub(self.last_told_ms.load(Ordering::Relaxed));
        if took < LONG && u128::from(silent_ms) < SILENCE.as_millis() {
            return;
        }
        self.last_told_ms.store(now_ms, Ordering::Relaxed);
        let (ms, total, dir) = (took.as_millis(), jobs.jobs.len(), jobs.dir.path().display());
        match log {
            Some(log) => tracing::info!(
                "Completed load of {log:?} with {} segments, local-log-start-offset {} and log-end-offset {} in {ms}ms \
                 ({completed}/{total} completed in {dir})",
                log.number_of_segments(),
                log.local_log_start_offset(),
                log.log_end_offset(),
            ),
            None => tracing::info!(
                "Completed load of {} in {ms}ms ({completed}/{total} completed in {dir})",
                job.path.display()
            ),
        }
    }
}

pub(super) fn names<'a>(dirs: impl Iterator<Item = &'a Path>) -> String {
    let names: Vec<String> = dirs.map(|dir| dir.display().to_string()).collect();
    format!("[{}]", names.join(", "))
}

pub(super) fn announce(jobs: &DirJobs) {
    let (count, dir) = (jobs.jobs.len(), jobs.dir.path().display());
    if count == 0 {
        tracing::info!("No logs found to be loaded in {dir}");
    } else if jobs.had_clean_shutdown {
        tracing::info!("Skipping recovery of {count} logs from {dir} since clean shutdown file was found");
    } else {
        tracing::info!("Recovering {count} logs from {dir} since no clean shutdown file was found");
    }
}

pub(super) fn announce_end(summary: &LoadSummary, took: Duration) {
    let unclean = if summary.unclean_dirs.is_empty() {
        String::new()
    } else {
        format!(" (unclean log dirs = {})", names(summary.unclean_dirs.iter().map(|dir| dir.as_path())))
    };
    tracing::info!("Loaded {} logs in {}ms{unclean}", summary.logs, took.as_millis());
}
