//! All logs of a node.
//!
//! Owns: `log.dirs` with their locks, the map of logs, and the schedule of their upkeep.
//! Invariants: a partition has at most one current log. Nothing on disk changes before every directory is locked and
//! every name in it is understood.
//! Concurrency: maps behind short locks; `creation` serialises making and deleting. Upkeep runs on the thread that
//! calls [`LogManager::tick`]; loading and closing use `num.recovery.threads.per.data.dir` threads per directory.
//! Crash: without `.kafka_cleanshutdown` the next start recovers from the recovery points.

mod cleaning;
mod load;
mod moves;
mod shutdown;
mod syncs;
mod tasks;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use env::{Env, FileLock, FileSystem};
use parking_lot::{Mutex, RwLock};
use protocol::Uuid;
use record::{Codecs, Time, TopicPartition};

pub use self::load::LoadSummary;
pub use self::moves::Promotion;
pub use self::tasks::TickReport;
use crate::checkpoint;
use crate::cleaner::{CleanerConfig, LogCleaner};
use crate::config::LogConfig;
use crate::context::{LogContext, LogDir};
use crate::error::{LogDirError, StorageError};
use crate::format::MetaProperties;
use crate::log::{OpenParams, UnifiedLog};
use crate::log_dir::sync_dir;
use crate::names;

/// Settings of the node that concern its logs, named as in Kafka.
#[derive(Clone, Debug)]
pub struct LogManagerConfig {
    /// `log.dirs`
    pub log_dirs: Vec<PathBuf>,
    /// The topic settings' defaults of this broker.
    pub default_config: Arc<LogConfig>,
    /// `num.recovery.threads.per.data.dir`; with one and a single directory no thread is started.
    pub num_recovery_threads_per_data_dir: usize,
    /// `log.flush.scheduler.interval.ms`
    pub flush_scheduler_interval_ms: i64,
    /// `log.flush.offset.checkpoint.interval.ms`
    pub flush_offset_checkpoint_interval_ms: i64,
    /// `log.flush.start.offset.checkpoint.interval.ms`
    pub flush_start_offset_checkpoint_interval_ms: i64,
    /// `replica.high.watermark.checkpoint.interval.ms`
    pub high_watermark_checkpoint_interval_ms: i64,
    /// `log.retention.check.interval.ms`
    pub retention_check_interval_ms: i64,
    /// `producer.id.expiration.ms`
    pub producer_id_expiration_ms: i64,
    /// `producer.id.expiration.check.interval.ms`
    pub producer_id_expiration_check_interval_ms: i64,
    /// `log.initial.task.delay.ms`
    pub initial_task_delay_ms: i64,
    /// `log.cleaner.*`
    pub cleaner: CleanerConfig,
}

impl LogManagerConfig {
    /// Kafka's defaults.
    pub fn new(log_dirs: Vec<PathBuf>) -> Self {
        LogManagerConfig {
            log_dirs,
            default_config: Arc::new(LogConfig::default()),
            num_recovery_threads_per_data_dir: 2,
            flush_scheduler_interval_ms: i64::MAX,
            flush_offset_checkpoint_interval_ms: 60_000,
            flush_start_offset_checkpoint_interval_ms: 60_000,
            high_watermark_checkpoint_interval_ms: 5_000,
            retention_check_interval_ms: 300_000,
            producer_id_expiration_ms: 86_400_000,
            producer_id_expiration_check_interval_ms: 600_000,
            initial_task_delay_ms: 30_000,
            cleaner: CleanerConfig::default(),
        }
    }
}

/// A directory with what the manager keeps of it.
struct DirState {
    dir: Arc<LogDir>,
    lock: Mutex<Option<Box<dyn FileLock>>>,
    loaded: bool,
    /// Checksums of the checkpoints as last written; equal ones are not written again.
    written: [Option<u32>; 3],
}

enum Doomed {
    Log(Arc<UnifiedLog>),
    /// Found at the start.
    Dir {
        dir: Arc<LogDir>,
        path: PathBuf,
    },
}

#[derive(Default)]
struct Logs {
    current: HashMap<TopicPartition, Arc<UnifiedLog>>,
    future: HashMap<TopicPartition, Arc<UnifiedLog>>,
}

pub struct LogManager {
    context: Arc<LogContext>,
    config: LogManagerConfig,
    default_config: RwLock<Arc<LogConfig>>,
    dirs: Mutex<Vec<DirState>>,
    logs: RwLock<Logs>,
    /// Where logs that are made next are to go, as AlterReplicaLogDirs said.
    preferred: Mutex<BTreeMap<TopicPartition, Arc<LogDir>>>,
    /// `cordoned.log.dirs`: nothing new is put there (KIP-1066).
    cordoned: RwLock<Vec<PathBuf>>,
    creation: Mutex<()>,
    doomed: Mutex<VecDeque<(Duration, Doomed)>>,
    schedule: Mutex<tasks::Schedule>,
    cleaner: LogCleaner,
}

/// How a log that is not there is to be made.
#[derive(Clone, Debug)]
pub struct CreateParams {
    pub config: Arc<LogConfig>,
    pub topic_id: Option<Uuid>,
    /// The partition was just assigned; otherwise it may be in an offline directory and is not made anew.
    pub is_new: bool,
    /// `directory.id` of the assignment (KIP-858).
    pub directory_id: Option<Uuid>,
}

impl LogManager {
    /// Checks, makes and locks the directories. A directory that fails is offline; when none is left, or one is locked
    /// or named twice, that is an error and nothing was changed.
    pub fn new(
        env: Env,
        codecs: Arc<dyn Codecs>,
        config: LogManagerConfig,
    ) -> Result<LogManager, LogDirError> {
        let context = LogContext::new(env, codecs);
        context.set_producer_id_expiration_ms(config.producer_id_expiration_ms);
        let fs = &*context.env.fs;
        let mut dirs: Vec<DirState> = Vec::new();
        let mut seen: Vec<PathBuf> = Vec::new();
        for path in &config.log_dirs {
            let state = Self::open_dir(fs, path, &mut seen)?;
            dirs.push(state);
        }
        if dirs.iter().all(|state| state.dir.is_offline()) {
            let names: Vec<String> = config.log_dirs.iter().map(|dir| dir.display().to_string()).collect();
            return Err(LogDirError::NoUsableDir(names.join(", ")));
        }
        Ok(LogManager {
            cleaner: LogCleaner::new(context.env.clone(), config.cleaner.clone()),
            default_config: RwLock::new(config.default_config.clone()),
            schedule: Mutex::new(tasks::Schedule::new(&config, context.env.now().monotonic)),
            context,
            config,
            dirs: Mutex::new(dirs),
            logs: RwLock::default(),
            preferred: Mutex::default(),
            cordoned: RwLock::default(),
            creation: Mutex::new(()),
            doomed: Mutex::default(),
        })
    }

    fn open_dir(fs: &dyn FileSystem, path: &Path, seen: &mut Vec<PathBuf>) -> Result<DirState, LogDirError> {
        let mut lock = None;
        let mut id = None;
        let opened = (|| {
            if !fs.exists(path)? {
                tracing::info!("Log directory {} not found, creating it.", path.display());
                fs.create_dir_all(path)?;
                if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                    fs.sync_dir(parent)?;
                }
            }
            fs.list(path)?;
            fs.canonical(path)
        })();
        let opened = opened.and_then(|canonical| {
            id = MetaProperties::read(fs, path)?.and_then(|properties| properties.directory_id);
            Ok(canonical)
        });
        if let Ok(canonical) = &opened {
            if seen.contains(canonical) {
                return Err(LogDirError::Duplicate(path.to_path_buf()));
            }
            seen.push(canonical.clone());
        }
        let locked = opened.and_then(|_| fs.lock(&path.join(names::LOCK_FILE)));
        let dir = LogDir::new(path.to_path_buf(), id);
        match locked {
            Ok(held) => lock = Some(held),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                return Err(LogDirError::Locked(path.to_path_buf()));
            }
            Err(e) => {
                dir.fail_for_good("Failed to create or validate data directory", e);
            }
        }
        Ok(DirState { dir, lock: Mutex::new(lock), loaded: false, written: [None; 3] })
    }

    /// What the logs share.
    pub fn context(&self) -> &Arc<LogContext> {
        &self.context
    }

    pub fn config(&self) -> &LogManagerConfig {
        &self.config
    }

    fn fs(&self) -> &dyn FileSystem {
        &*self.context.env.fs
    }

    pub fn default_config(&self) -> Arc<LogConfig> {
        self.default_config.read().clone()
    }

    pub fn reconfigure_default_config(&self, config: Arc<LogConfig>) {
        *self.default_config.write() = config;
    }

    /// All of `log.dirs`, in their order; some may be offline.
    pub fn log_dirs(&self) -> Vec<Arc<LogDir>> {
        self.dirs.lock().iter().map(|state| state.dir.clone()).collect()
    }

    pub fn live_log_dirs(&self) -> Vec<Arc<LogDir>> {
        self.log_dirs().into_iter().filter(|dir| !dir.is_offline()).collect()
    }

    pub fn has_offline_log_dirs(&self) -> bool {
        self.dirs.lock().iter().any(|state| state.dir.is_offline())
    }

    /// `directory.id`s of the directories that work.
    pub fn directory_ids(&self) -> Vec<Uuid> {
        self.live_log_dirs().iter().filter_map(|dir| dir.id()).collect()
    }

    pub fn get_log(&self, partition: &TopicPartition) -> Option<Arc<UnifiedLog>> {
        self.logs.read().current.get(partition).cloned()
    }

    pub fn get_future_log(&self, partition: &TopicPartition) -> Option<Arc<UnifiedLog>> {
        self.logs.read().future.get(partition).cloned()
    }

    /// All current logs, by partition.
    pub fn logs(&self) -> Vec<Arc<UnifiedLog>> {
        let mut logs: Vec<Arc<UnifiedLog>> = self.logs.read().current.values().cloned().collect();
        logs.sort_by(|a, b| a.topic_partition().cmp(b.topic_partition()));
        logs
    }

    /// Current and future logs, in no order that means anything.
    pub fn all_logs(&self) -> Vec<Arc<UnifiedLog>> {
        let logs = self.logs.read();
        logs.current.values().chain(logs.future.values()).cloned().collect()
    }

    pub fn log_count(&self) -> usize {
        self.logs.read().current.len()
    }

    pub fn logs_by_topic(&self, topic: &str) -> Vec<Arc<UnifiedLog>> {
        self.logs().into_iter().filter(|log| &*log.topic_partition().topic == topic).collect()
    }

    pub fn update_topic_config(&self, topic: &str, config: &Arc<LogConfig>) {
        for log in self.all_logs() {
            if &*log.topic_partition().topic == topic {
                log.update_config(config.clone());
            }
        }
    }

    /// The broker epoch all directories were cleanly shut down with (KIP-966); `None` when they were not, or disagree.
    /// To be asked before [`LogManager::load`].
    pub fn broker_epoch_of_clean_shutdown(&self) -> Option<i64> {
        let mut epoch = None;
        for dir in self.log_dirs() {
            if dir.is_offline() {
                return None;
            }
            let read = checkpoint::read_clean_shutdown(self.fs(), dir.path()).ok().flatten().flatten()?;
            if *epoch.get_or_insert(read) != read {
                return None;
            }
        }
        epoch
    }

    /// The partition's log, made when there is none.
    pub fn get_or_create_log(
        &self,
        partition: &TopicPartition,
        params: CreateParams,
        now: Time,
    ) -> Result<Arc<UnifiedLog>, LogDirError> {
        let _creation = self.creation.lock();
        if let Some(log) = self.get_log(partition) {
            if let Some(id) = params.topic_id {
                log.assign_topic_id(id)?;
            }
            return Ok(log);
        }
        if !params.is_new
            && let Some(offline) = self.log_dirs().into_iter().find(|dir| dir.is_offline())
        {
            // It may be there: a second, empty log would look like a replica that lost everything.
            return Err(StorageError::Offline(offline.path().to_path_buf()).into());
        }
        let mut error = None;
        let preferred = self.preferred.lock().get(partition).cloned();
        let candidates = match preferred {
            Some(dir) => vec![dir],
            None => self.candidate_dirs(params.directory_id),
        };
        for dir in candidates {
            let name = names::log_dir_name(partition);
            match self.create_in(&dir, &name, partition, &params, now) {
                Ok(log) => {
                    self.preferred.lock().remove(partition);
                    self.logs.write().current.insert(partition.clone(), log.clone());
                    tracing::debug!("Created log for partition {partition} in {}", dir.path().display());
                    return Ok(log);
                }
                Err(e @ LogDirError::InconsistentTopicId(_)) => return Err(e),
                Err(e) => error = Some(e),
            }
        }
        Err(error.unwrap_or_else(|| {
            let dirs: Vec<String> =
                self.config.log_dirs.iter().map(|dir| dir.display().to_string()).collect();
            LogDirError::NoUsableDir(dirs.join(", "))
        }))
    }

    fn create_in(
        &self,
        dir: &Arc<LogDir>,
        name: &str,
        partition: &TopicPartition,
        params: &CreateParams,
        now: Time,
    ) -> Result<Arc<UnifiedLog>, LogDirError> {
        let path = dir.path().join(name);
        let exists = self.fs().exists(&path).map_err(|e| dir.fail("Error while creating log", &path, e))?;
        let params = OpenParams {
            config: params.config.clone(),
            log_start_offset: 0,
            recovery_point: Some(0),
            // A directory that is left over from an interrupted creation is looked through.
            had_clean_shutdown: !exists,
            durable_end: 0,
            topic_id: params.topic_id,
            is_new: !exists,
        };
        let made = UnifiedLog::open(&self.context, dir, path.clone(), partition.clone(), params, now);
        if made.is_err() && !exists {
            // Half a log here and a whole one elsewhere would be two at the next start.
            let _ = self.fs().remove_dir_all(&path);
        }
        made
    }

    /// The assigned directory, or the working ones with the fewest logs first.
    fn candidate_dirs(&self, directory_id: Option<Uuid>) -> Vec<Arc<LogDir>> {
        let live = self.live_log_dirs();
        if let Some(dir) = live.iter().find(|dir| directory_id.is_some() && dir.id() == directory_id) {
            return vec![dir.clone()];
        }
        if live.len() == 1 {
            return live;
        }
        let cordoned = self.cordoned.read().clone();
        let is_open = |dir: &Arc<LogDir>| !cordoned.iter().any(|path| path == dir.path());
        if !live.iter().any(is_open) {
            return live.into_iter().take(1).collect();
        }
        let mut counted: Vec<(usize, Arc<LogDir>)> =
            live.into_iter().filter(is_open).map(|dir| (0, dir)).collect();
        for log in self.all_logs() {
            if let Some((count, _)) = counted.iter_mut().find(|(_, dir)| Arc::ptr_eq(dir, log.log_dir())) {
                *count += 1;
            }
        }
        counted.sort_by_key(|(count, _)| *count);
        counted.into_iter().map(|(_, dir)| dir).collect()
    }

    /// Takes logs out of service: their directories are renamed at once and removed after `file.delete.delay.ms`.
    /// Strays are renamed and kept. Returns those that could not be renamed.
    pub fn async_delete(
        &self,
        partitions: &[TopicPartition],
        is_stray: bool,
        now: Time,
    ) -> Vec<(TopicPartition, StorageError)> {
        let _creation = self.creation.lock();
        let mut failed = Vec::new();
        let mut touched: Vec<Arc<LogDir>> = Vec::new();
        let due = self.removal_due(now);
        for partition in partitions {
            self.preferred.lock().remove(partition);
            let removed = {
                let mut logs = self.logs.write();
                [logs.current.remove(partition), logs.future.remove(partition)]
            };
            if removed.iter().any(Option::is_some) {
                self.abort_cleaning(partition);
            }
            for log in removed.into_iter().flatten() {
                if let Err(e) = self.retire(&log, is_stray, due) {
                    failed.push((partition.clone(), e));
                    continue;
                }
                if !touched.iter().any(|dir| Arc::ptr_eq(dir, log.log_dir())) {
                    touched.push(log.log_dir().clone());
                }
            }
        }
        for dir in &touched {
            if let Err(e) = sync_dir(self.fs(), dir.path()) {
                dir.fail("Error while renaming logs in", dir.path(), e);
            }
            self.forget_in_cleaner_checkpoint(dir);
        }
        self.checkpoint_recovery_points();
        self.checkpoint_log_start_offsets();
        failed
    }

    /// Renames a log that left the maps, and removes it later unless it is to be kept.
    fn retire(&self, log: &Arc<UnifiedLog>, keep: bool, due: Duration) -> Result<(), StorageError> {
        let unique = self.context.env.random.uuid_bytes();
        let partition = log.topic_partition();
        let name = if keep {
            names::log_stray_dir_name(partition, unique)
        } else {
            names::log_delete_dir_name(partition, unique)
        };
        log.rename_dir(&name)?;
        log.close_quietly();
        if !keep {
            self.doomed.lock().push_back((due, Doomed::Log(log.clone())));
        }
        Ok(())
    }

    /// When what is retired now is removed.
    fn removal_due(&self, now: Time) -> Duration {
        now.monotonic + crate::log::delay(self.default_config().file_delete_delay_ms)
    }

    /// Whether deleted logs still wait for their removal.
    pub fn has_logs_to_be_deleted(&self) -> bool {
        !self.doomed.lock().is_empty()
    }

    /// Cuts a log. The recovery points, which may have to go back, are written first: recovery must look at whatever
    /// comes in place of what is cut.
    pub fn truncate_to(
        &self,
        partition: &TopicPartition,
        offset: i64,
        now: Time,
    ) -> Result<bool, StorageError> {
        let Some(log) = self.get_log(partition) else { return Ok(false) };
        if offset < log.recovery_point() {
            log.lower_recovery_point(offset);
            self.checkpoint_recovery_points();
        }
        // What becomes of the producers holds from this start on only: were it lost, open transactions below would be
        // taken for ended.
        self.checkpoint_log_start_offsets();
        // Nor must a cleaner look at records that are being cut.
        let stops_cleaner = offset < log.active_segment_base_offset();
        if !stops_cleaner {
            return log.truncate_to(offset, now);
        }
        self.abort_and_pause_cleaning(partition);
        let truncated = log.truncate_to(offset, now);
        self.truncate_cleaner_checkpoint(&log);
        self.resume_cleaning(partition);
        truncated
    }

    /// Empties a log and lets it go on at `offset`.
    pub fn truncate_fully_and_start_at(
        &self,
        partition: &TopicPartition,
        offset: i64,
        log_start_offset: Option<i64>,
        now: Time,
    ) -> Result<(), StorageError> {
        let Some(log) = self.get_log(partition) else { return Ok(()) };
        log.lower_recovery_point(0);
        self.checkpoint_recovery_points();
        self.abort_and_pause_cleaning(partition);
        let truncated = log.truncate_fully_and_start_at(offset, log_start_offset, now);
        self.truncate_cleaner_checkpoint(&log);
        self.resume_cleaning(partition);
        truncated
    }
}
