//! Start-up: opening every log of every directory.
//!
//! Owns: [`LogManager::load`]. Invariants: names are checked before anything changes; `.kafka_cleanshutdown` is gone,
//! durably, before the first log is touched.
//! Concurrency: `num.recovery.threads.per.data.dir` threads per directory, each taking the next log.
//! Crash: see the parent.

mod progress;

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use protocol::Uuid;
use record::{Time, TopicPartition};

use self::progress::Progress;
use super::moves::Duplicate;
use super::{Doomed, LogManager};
use crate::checkpoint;
use crate::config::LogConfig;
use crate::context::LogDir;
use crate::error::{LogDirError, StorageError};
use crate::log::{OpenParams, UnifiedLog};
use crate::log_dir::sync_dir;
use crate::names::{self, DirKind};
use crate::producer::ignore_missing;

/// What a start found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadSummary {
    pub logs: usize,
    /// Directories without `.kafka_cleanshutdown`: their logs were recovered.
    pub unclean_dirs: Vec<PathBuf>,
    pub strays: Vec<TopicPartition>,
}

struct Job {
    path: PathBuf,
    partition: TopicPartition,
    kind: DirKind,
}

struct DirJobs {
    dir: Arc<LogDir>,
    jobs: Vec<Job>,
    had_clean_shutdown: bool,
    recovery_points: BTreeMap<TopicPartition, i64>,
    log_start_offsets: BTreeMap<TopicPartition, i64>,
    high_watermarks: BTreeMap<TopicPartition, i64>,
    next: AtomicUsize,
    progress: Progress,
}

/// What the broker knows of the logs it loads.
pub(super) struct Lookup<'a> {
    config_of: &'a (dyn Fn(&str) -> Arc<LogConfig> + Sync),
    is_stray: &'a (dyn Fn(&UnifiedLog) -> bool + Sync),
    now: Time,
    strays: Mutex<Vec<TopicPartition>>,
    duplicates: Mutex<Vec<Duplicate>>,
}

impl LogManager {
    /// Opens all logs. `config_of` gives a topic's settings; a log of which `is_stray` holds (its partition is not
    /// assigned to this broker) is set aside.
    pub fn load(
        &self,
        now: Time,
        config_of: &(dyn Fn(&str) -> Arc<LogConfig> + Sync),
        is_stray: &(dyn Fn(&UnifiedLog) -> bool + Sync),
    ) -> Result<LoadSummary, LogDirError> {
        self.load_assigned(now, config_of, is_stray, &|_| None)
    }

    /// As [`LogManager::load`]; `assigned` is the directory that the metadata log has for the log's partition, which
    /// decides what a move that was cut short comes to.
    pub fn load_assigned(
        &self,
        now: Time,
        config_of: &(dyn Fn(&str) -> Arc<LogConfig> + Sync),
        is_stray: &(dyn Fn(&UnifiedLog) -> bool + Sync),
        assigned: &(dyn Fn(&UnifiedLog) -> Option<Uuid> + Sync),
    ) -> Result<LoadSummary, LogDirError> {
        let begin = self.context.env.now().monotonic;
        let live = self.live_log_dirs();
        tracing::info!("Loading logs from log dirs {}", progress::names(live.iter().map(|dir| dir.path())));
        let mut listed = Vec::new();
        for dir in live {
            match self.list_jobs(&dir) {
                Ok(jobs) => listed.push((dir, jobs?)),
                // Half loaded it must not stay in service, whatever the failure.
                Err(e) => dir.fail_for_good("Error while loading log dir", e),
            }
        }
        let mut work = Vec::new();
        let mut summary = LoadSummary::default();
        for (dir, jobs) in listed {
            match self.begin_dir(&dir, jobs) {
                Ok(jobs) => {
                    progress::announce(&jobs);
                    if !jobs.had_clean_shutdown && !jobs.jobs.is_empty() {
                        summary.unclean_dirs.push(dir.path().to_path_buf());
                    }
                    work.push(jobs);
                }
                Err(e) => dir.fail_for_good("Error while loading log dir", e),
            }
        }
        let lookup =
            Lookup { config_of, is_stray, now, strays: Mutex::default(), duplicates: Mutex::default() };
        self.run(&work, &lookup)?;
        let mut duplicates = std::mem::take(&mut *lookup.duplicates.lock());
        duplicates.sort_by_key(|(_, log)| log.dir());
        self.settle_moves(duplicates, assigned, now)?;
        let mut dirs = self.dirs.lock();
        for jobs in work {
            if let Some(state) = dirs.iter_mut().find(|state| Arc::ptr_eq(&state.dir, &jobs.dir)) {
                state.loaded = true;
            }
        }
        summary.logs = self.log_count();
        summary.strays = lookup.strays.into_inner();
        summary.strays.sort();
        let took = self.context.env.now().monotonic.saturating_sub(begin);
        progress::announce_end(&summary, took);
        Ok(summary)
    }

    /// The partitions' directories; the inner error is about a name that is none.
    fn list_jobs(&self, dir: &Arc<LogDir>) -> io::Result<Result<Vec<Job>, LogDirError>> {
        let mut jobs = Vec::new();
        for entry in self.fs().list(dir.path())?.into_iter().filter(|entry| entry.is_dir) {
            let name = entry.name.to_string_lossy().into_owned();
            if name == names::REMOTE_LOG_INDEX_CACHE_DIR {
                continue;
            }
            let path = dir.path().join(&entry.name);
            match names::parse_log_dir(&name) {
                Some((partition, _)) if &*partition.topic == names::CLUSTER_METADATA_TOPIC => {}
                Some((partition, kind)) => jobs.push(Job { path, partition, kind }),
                None => return Ok(Err(LogDirError::ForeignDir { dir: path, name })),
            }
        }
        Ok(Ok(jobs))
    }

    fn begin_dir(&self, dir: &Arc<LogDir>, jobs: Vec<Job>) -> io::Result<DirJobs> {
        let fs = self.fs();
        let had_clean_shutdown = checkpoint::read_clean_shutdown(fs, dir.path())?.is_some();
        if had_clean_shutdown {
            ignore_missing(fs.remove_file(&dir.path().join(names::CLEAN_SHUTDOWN_FILE)))?;
        }
        // Also what a killed node renamed last: recovery must not begin by a checkpoint that a power cut takes back.
        sync_dir(fs, dir.path())?;
        let read = |file: &str| match checkpoint::read_offset_checkpoint(fs, &dir.path().join(file)) {
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                tracing::warn!(
                    "Error occurred while reading {file} of directory {}: {e}",
                    dir.path().display()
                );
                Ok(BTreeMap::new())
            }
            other => other,
        };
        Ok(DirJobs {
            dir: dir.clone(),
            jobs,
            had_clean_shutdown,
            recovery_points: read(names::RECOVERY_POINT_CHECKPOINT_FILE)?,
            log_start_offsets: read(names::LOG_START_OFFSET_CHECKPOINT_FILE)?,
            high_watermarks: read(names::HIGH_WATERMARK_CHECKPOINT_FILE)?,
            next: AtomicUsize::new(0),
            progress: Progress::default(),
        })
    }

    fn run(&self, work: &[DirJobs], lookup: &Lookup<'_>) -> Result<(), LogDirError> {
        let threads = self.config.num_recovery_threads_per_data_dir.max(1);
        if let [jobs] = work
            && (threads == 1 || jobs.jobs.len() < 2)
        {
            return self.run_jobs(jobs, lookup);
        }
        let failure = Mutex::new(Ok(()));
        std::thread::scope(|scope| {
            for jobs in work {
                for _ in 0..threads.min(jobs.jobs.len()) {
                    scope.spawn(|| {
                        if let Err(e) = self.run_jobs(jobs, lookup) {
                            *failure.lock() = Err(e);
                        }
                    });
                }
            }
        });
        failure.into_inner()
    }

    fn run_jobs(&self, jobs: &DirJobs, lookup: &Lookup<'_>) -> Result<(), LogDirError> {
        while let Some(job) = jobs.jobs.get(jobs.next.fetch_add(1, Ordering::Relaxed)) {
            if jobs.dir.is_offline() {
                return Ok(());
            }
            let begin = self.context.env.now().monotonic;
            let loaded = self.load_log(jobs, job, lookup);
            let log = loaded.as_ref().ok().and_then(|()| self.get_log(&job.partition));
            jobs.progress.note(jobs, job, log.as_deref(), begin, self.context.env.now().monotonic);
            match loaded {
                Ok(()) => {}
                // The directory is offline now; the others go on.
                Err(LogDirError::Storage(StorageError::Io { .. } | StorageError::Offline(_)))
                    if jobs.dir.is_offline() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn load_log(&self, jobs: &DirJobs, job: &Job, lookup: &Lookup<'_>) -> Result<(), LogDirError> {
        match job.kind {
            DirKind::Delete => {
                let due =
                    lookup.now.monotonic + crate::log::delay(self.default_config().file_delete_delay_ms);
                let doomed = Doomed::Dir { dir: jobs.dir.clone(), path: job.path.clone() };
                self.doomed.lock().push_back((due, doomed));
                return Ok(());
            }
            DirKind::Stray => {
                tracing::warn!("Loaded stray log: {}", job.path.display());
                return Ok(());
            }
            DirKind::Current | DirKind::Future => {}
        }
        let partition = &job.partition;
        let params = OpenParams {
            config: (lookup.config_of)(&partition.topic),
            log_start_offset: jobs.log_start_offsets.get(partition).copied().unwrap_or(0),
            recovery_point: jobs.recovery_points.get(partition).copied(),
            had_clean_shutdown: jobs.had_clean_shutdown,
            durable_end: 0,
            topic_id: None,
            is_new: false,
        };
        let path = job.path.clone();
        let log = UnifiedLog::open(&self.context, &jobs.dir, path, partition.clone(), params, lookup.now)?;
        if let Some(high_watermark) = jobs.high_watermarks.get(partition) {
            log.update_high_watermark(*high_watermark);
        }
        if (lookup.is_stray)(&log) {
            return self.set_aside(&log, lookup);
        }
        self.add_loaded(log, job.kind, lookup);
        Ok(())
    }

    fn set_aside(&self, log: &UnifiedLog, lookup: &Lookup<'_>) -> Result<(), LogDirError> {
        let partition = log.topic_partition();
        let from = log.dir();
        let name = names::log_stray_dir_name(partition, self.context.env.random.uuid_bytes());
        log.rename_dir(&name)?;
        log.close_quietly();
        tracing::warn!("Log in {} marked stray and renamed to {name}", from.display());
        lookup.strays.lock().push(partition.clone());
        Ok(())
    }

    fn add_loaded(&self, log: Arc<UnifiedLog>, kind: DirKind, lookup: &Lookup<'_>) {
        let mut logs = self.logs.write();
        let map = if kind == DirKind::Future { &mut logs.future } else { &mut logs.current };
        match map.entry(log.topic_partition().clone()) {
            Entry::Vacant(place) => drop(place.insert(log)),
            Entry::Occupied(_) => lookup.duplicates.lock().push((kind, log)),
        }
    }
}
