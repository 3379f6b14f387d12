//! Replicas on their way from one log directory to another (KIP-113, KIP-858).
//!
//! Owns: future logs: making, dropping and promoting them, and what a start makes of a move that was cut short.
//! Invariants: a partition has at most one future log, in another directory than its current one. A log is dropped only
//! when the one that stays holds all of it.
//! Concurrency: `creation` serialises all of it. A promotion blocks appends for the last bytes and two renames, no sync.
//! Crash: of two current logs the one in the assigned directory counts; a future log in the assigned directory counts
//! when it holds what the current one does, else the move goes on.

use std::path::Path;
use std::sync::Arc;

use protocol::Uuid;
use record::{Time, TopicPartition};

use super::{CreateParams, LogManager};
use crate::context::LogDir;
use crate::error::{LogDirError, StorageError};
use crate::log::{FollowError, UnifiedLog};
use crate::log_dir::sync_dir;
use crate::names::{self, DirKind};

/// Partitions whose directory is kept until their logs are made; anybody who may alter the cluster can name any.
const MAX_PREFERRED: usize = 100_000;

/// What became of a promotion.
pub enum Promotion {
    /// The future log is the current one.
    Done(Arc<UnifiedLog>),
    /// There is more to copy first.
    Behind,
}

/// A log that was found although its partition has one of its kind.
pub(super) type Duplicate = (DirKind, Arc<UnifiedLog>);

impl LogManager {
    /// One of `log.dirs` by its path, as DescribeLogDirs shows it.
    pub fn log_dir(&self, path: &Path) -> Option<Arc<LogDir>> {
        self.log_dirs().into_iter().find(|dir| dir.path() == path)
    }

    /// `cordoned.log.dirs`.
    pub fn set_cordoned_dirs(&self, dirs: Vec<std::path::PathBuf>) {
        *self.cordoned.write() = dirs;
    }

    /// The next log that is made for the partition goes to `dir`, unless it has one there.
    pub fn prefer_dir(&self, partition: &TopicPartition, dir: &Arc<LogDir>) {
        let is_there = |log: Option<Arc<UnifiedLog>>| log.is_some_and(|log| Arc::ptr_eq(log.log_dir(), dir));
        if is_there(self.get_log(partition)) || is_there(self.get_future_log(partition)) {
            return;
        }
        let mut preferred = self.preferred.lock();
        if preferred.len() < MAX_PREFERRED || preferred.contains_key(partition) {
            preferred.insert(partition.clone(), dir.clone());
        }
    }

    /// Makes the partition's future log in `dir`; the one that is there when there is one, or the current log of `dir`.
    pub fn get_or_create_future_log(
        &self,
        partition: &TopicPartition,
        dir: &Arc<LogDir>,
        now: Time,
    ) -> Result<Arc<UnifiedLog>, LogDirError> {
        let _creation = self.creation.lock();
        if let Some(log) = self.get_future_log(partition) {
            return Ok(log);
        }
        let Some(current) = self.get_log(partition) else {
            return Err(StorageError::Closed(partition.to_string()).into());
        };
        if Arc::ptr_eq(current.log_dir(), dir) {
            // It has just arrived.
            return Ok(current);
        }
        // A recovery point that an earlier future log left in the checkpoint would be taken for this one's.
        self.checkpoint_recovery_points();
        let name = names::log_future_dir_name(partition, self.context.env.random.uuid_bytes());
        let params = CreateParams {
            config: current.config(),
            topic_id: current.topic_id(),
            is_new: true,
            directory_id: dir.id(),
        };
        let log = self.create_in(dir, &name, partition, &params, now)?;
        self.preferred.lock().remove(partition);
        self.drop_cleaner_checkpoint(partition, dir);
        self.logs.write().future.insert(partition.clone(), log.clone());
        // No cleaner begins with a log that has a future one.
        self.abort_cleaning(partition);
        tracing::info!(target: "kafka.log.LogManager", "Created future log for partition {partition} in {}", dir.path().display());
        Ok(log)
    }

    /// Gives a move up; false when there was none.
    pub fn delete_future_log(&self, partition: &TopicPartition, now: Time) -> Result<bool, StorageError> {
        let _creation = self.creation.lock();
        let removed = self.logs.write().future.remove(partition);
        let Some(log) = removed else { return Ok(false) };
        self.retire(&log, false, self.removal_due(now))?;
        self.sync_names(log.log_dir())?;
        self.checkpoint_recovery_points();
        self.checkpoint_log_start_offsets();
        Ok(true)
    }

    /// Makes the future log the current one when at most `max_tail` bytes are left to copy.
    pub fn replace_current_with_future_log(
        &self,
        partition: &TopicPartition,
        max_tail: u32,
        now: Time,
    ) -> Result<Promotion, FollowError> {
        let _creation = self.creation.lock();
        let (Some(current), Some(future)) = (self.get_log(partition), self.get_future_log(partition)) else {
            return Err(StorageError::Closed(partition.to_string()).into());
        };
        let name = names::log_dir_name(partition);
        let deleted = names::log_delete_dir_name(partition, self.context.env.random.uuid_bytes());
        if !current.hand_over_to(&future, (&name, &deleted), max_tail, now)? {
            return Ok(Promotion::Behind);
        }
        self.abort_and_pause_cleaning(partition);
        {
            let mut logs = self.logs.write();
            logs.future.remove(partition);
            logs.current.insert(partition.clone(), future.clone());
        }
        self.alter_cleaner_checkpoint_dir(partition, current.log_dir(), future.log_dir());
        self.resume_cleaning(partition);
        // The new name first: whatever happens to the other one, the assignment leads to this.
        if let Err(error) = self.sync_names(future.log_dir()) {
            // The directory went offline with the replica in it.
            tracing::error!("{error}");
        }
        current.close_quietly();
        if !current.log_dir().is_offline() && self.sync_names(current.log_dir()).is_ok() {
            self.doomed.lock().push_back((self.removal_due(now), super::Doomed::Log(current.clone())));
        }
        self.checkpoint_recovery_points();
        self.checkpoint_log_start_offsets();
        self.checkpoint_high_watermarks();
        tracing::info!(
            target: "kafka.log.LogManager",
            "The current replica is successfully replaced with the future replica for {partition}"
        );
        Ok(Promotion::Done(future))
    }

    fn sync_names(&self, dir: &Arc<LogDir>) -> Result<(), StorageError> {
        sync_dir(self.fs(), dir.path()).map_err(|e| dir.fail("Error while renaming logs in", dir.path(), e))
    }

    /// After everything is loaded: lets at most one current and one future log per partition stay. `assigned` is the
    /// directory that the metadata log has for a partition of this broker.
    pub(super) fn settle_moves(
        &self,
        duplicates: Vec<Duplicate>,
        assigned: &(dyn Fn(&UnifiedLog) -> Option<Uuid> + Sync),
        now: Time,
    ) -> Result<(), LogDirError> {
        let _creation = self.creation.lock();
        let is_assigned =
            |log: &UnifiedLog| log.log_dir().id().is_some() && assigned(log) == log.log_dir().id();
        for (kind, second) in duplicates {
            self.unless_offline(self.settle_duplicate(kind, second, &is_assigned, now))?;
        }
        let futures: Vec<Arc<UnifiedLog>> = self.logs.read().future.values().cloned().collect();
        for future in futures.into_iter().filter(|log| is_assigned(log)) {
            let partition = future.topic_partition().clone();
            let current = self.get_log(&partition);
            if current.as_ref().is_some_and(|current| !future.covers(current)) {
                // The power went off while the last records were copied.
                continue;
            }
            self.unless_offline(self.recover_abandoned(future, current, now))?;
        }
        Ok(())
    }

    /// The move was decided: only the names are missing.
    fn recover_abandoned(
        &self,
        future: Arc<UnifiedLog>,
        current: Option<Arc<UnifiedLog>>,
        now: Time,
    ) -> Result<(), LogDirError> {
        let partition = future.topic_partition().clone();
        tracing::info!(target: "kafka.log.LogManager", "Attempting to recover abandoned future log for {partition} at {}", future.dir().display());
        future.flush(now)?;
        {
            let mut logs = self.logs.write();
            logs.future.remove(&partition);
            logs.current.remove(&partition);
        }
        if let Some(current) = current {
            self.drop_log(&current, false, now)?;
        }
        future.take_name(&names::log_dir_name(&partition))?;
        self.logs.write().current.insert(partition.clone(), future);
        tracing::info!(target: "kafka.log.LogManager", "Successfully recovered abandoned future log for {partition}");
        Ok(())
    }

    /// A directory that fails meanwhile is left to whoever takes failed directories out of service.
    fn unless_offline(&self, result: Result<(), LogDirError>) -> Result<(), LogDirError> {
        match result {
            Err(LogDirError::Storage(error)) if self.has_offline_log_dirs() => {
                tracing::error!("{error}");
                Ok(())
            }
            other => other,
        }
    }

    fn settle_duplicate(
        &self,
        kind: DirKind,
        second: Arc<UnifiedLog>,
        is_assigned: &dyn Fn(&UnifiedLog) -> bool,
        now: Time,
    ) -> Result<(), LogDirError> {
        let partition = second.topic_partition().clone();
        let is_future = kind == DirKind::Future;
        let first = if is_future { self.get_future_log(&partition) } else { self.get_log(&partition) };
        let Some(first) = first else { return Ok(()) };
        let (stays, goes) = match (is_assigned(&first), is_assigned(&second)) {
            (true, false) => (first, second),
            (false, true) => (second, first),
            // A future log is a copy, of which one is enough.
            _ if is_future => (first, second),
            _ => {
                return Err(LogDirError::DuplicateLog {
                    first: second.dir().to_path_buf(),
                    second: first.dir().to_path_buf(),
                });
            }
        };
        tracing::warn!(
            target: "kafka.log.LogManager",
            "Two logs of {partition} are found in {} and {}; the first counts",
            stays.dir().display(),
            goes.dir().display()
        );
        stays.flush(now)?;
        // What nobody can tell the worth of is kept for a person to look at.
        let keep = if is_future { self.get_log(&partition).is_none() } else { !stays.covers(&goes) };
        self.drop_log(&goes, keep, now)?;
        let mut logs = self.logs.write();
        let map = if is_future { &mut logs.future } else { &mut logs.current };
        map.insert(partition, stays);
        Ok(())
    }

    fn drop_log(&self, log: &Arc<UnifiedLog>, keep: bool, now: Time) -> Result<(), StorageError> {
        self.retire(log, keep, self.removal_due(now))?;
        self.sync_names(log.log_dir())
    }
}
