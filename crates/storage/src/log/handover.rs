//! Moving a partition to another log directory (KIP-113).
//!
//! Owns: how a future log follows the current one, and the moment in which it takes its place.
//! Invariants: the future log holds a prefix of the current one, apart from a tail that [`UnifiedLog::follow`] cuts. At the
//! handover it holds all of it, and has on disk everything that the current one has.
//! Concurrency: following takes no lock of the current log. The handover holds its flush lock across the future log's
//! sync, and its writer lock only for the rest that is left to copy and two renames.
//! Crash: before the renames both logs are there and the move goes on; between them two logs have the current name, or
//! none has, and the assignment in the metadata log says which directory counts (`log_manager/moves.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use record::Time;

use super::{FetchIsolation, LogStartOffsetIncrementReason, UnifiedLog};
use crate::error::{AppendError, ReadError, StorageError};
use crate::log_dir::sync_dir;

/// Why a future log cannot follow.
#[derive(Debug)]
pub enum FollowError {
    Read(ReadError),
    Append(AppendError),
    Storage(StorageError),
}

impl std::fmt::Display for FollowError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FollowError::Read(error) => error.fmt(f),
            FollowError::Append(error) => error.fmt(f),
            FollowError::Storage(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FollowError {}

impl From<ReadError> for FollowError {
    fn from(error: ReadError) -> Self {
        FollowError::Read(error)
    }
}

impl From<AppendError> for FollowError {
    fn from(error: AppendError) -> Self {
        FollowError::Append(error)
    }
}

impl From<StorageError> for FollowError {
    fn from(error: StorageError) -> Self {
        FollowError::Storage(error)
    }
}

impl UnifiedLog {
    /// The log that took this one's place when its partition moved.
    pub fn successor(&self) -> Option<&Arc<UnifiedLog>> {
        self.successor.get()
    }

    /// Cuts what this future log has and `current` has not, by their leader epochs (KIP-101).
    pub fn truncate_to_prefix_of(&self, current: &UnifiedLog, now: Time) -> Result<(), StorageError> {
        let end = self.log_end_offset();
        let mut common = None;
        let mut epoch = self.latest_epoch();
        while let Some(asked) = epoch {
            let Some((found, its_end)) = current.end_offset_for_epoch(asked) else { break };
            let Some((own, own_end)) = self.end_offset_for_epoch(found) else { break };
            if own == found {
                common = Some(its_end.min(own_end).min(end));
                break;
            }
            epoch = Some(own).filter(|own| *own < asked);
        }
        let start = current.log_start_offset();
        match common {
            Some(offset) if offset >= start && offset >= self.log_start_offset() => {
                if offset < end {
                    self.lower_recovery_point(offset);
                    self.truncate_to(offset, now)?;
                }
                Ok(())
            }
            // Nothing in common, or nothing that `current` still has.
            _ if end == self.log_start_offset() && end == start => Ok(()),
            _ => self.truncate_fully_and_start_at(start, Some(start), now),
        }
    }

    /// Copies at most `max_bytes` of what this future log lacks, but at least a batch; returns the bytes copied.
    pub fn follow(&self, current: &UnifiedLog, max_bytes: u32, now: Time) -> Result<u32, FollowError> {
        if self.log_end_offset() < current.log_start_offset() {
            let start = current.log_start_offset();
            self.truncate_fully_and_start_at(start, Some(start), now)?;
        }
        if !self.is_prefix_of(current) {
            self.truncate_to_prefix_of(current, now)?;
        }
        // Whatever is appended at once goes into one segment.
        let max_bytes = max_bytes.min(self.config().segment_size_bytes);
        let read = current.read(self.log_end_offset(), max_bytes, FetchIsolation::LogEnd, true)?;
        let mut copied = 0;
        if let Some(slice) = read.records {
            let records = slice.read().map_err(|e| current.read_failure(e))?;
            let epoch = current.latest_epoch().unwrap_or(-1);
            let info = self.append_as_follower(now, records, epoch)?;
            copied = u32::try_from(info.valid_bytes).unwrap_or(u32::MAX);
        }
        self.take_over_offsets(current)?;
        Ok(copied)
    }

    fn is_prefix_of(&self, current: &UnifiedLog) -> bool {
        let end = self.log_end_offset();
        end <= current.log_end_offset()
            && (end == self.log_start_offset()
                || self.epoch_for_offset(end - 1) == current.epoch_for_offset(end - 1))
    }

    fn take_over_offsets(&self, current: &UnifiedLog) -> Result<(), StorageError> {
        self.update_high_watermark(current.high_watermark());
        let start = current.log_start_offset().min(self.high_watermark());
        if start > self.log_start_offset() {
            let reason = LogStartOffsetIncrementReason::LeaderOffsetIncremented;
            match self.maybe_increment_log_start_offset(start, reason) {
                Ok(_) | Err(ReadError::OffsetOutOfRange(_) | ReadError::CorruptRecord(_)) => {}
                Err(ReadError::Storage(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Lets `future` take this log's place, under the current log's name, while this one is renamed to `deleted_name`.
    /// `Ok(false)`: more than `max_tail` bytes are still to be copied. Making both names durable is the caller's; a flush
    /// of the new log does it for its own.
    pub(crate) fn hand_over_to(
        &self,
        future: &Arc<UnifiedLog>,
        (name, deleted_name): (&str, &str),
        max_tail: u32,
        now: Time,
    ) -> Result<bool, FollowError> {
        let _flushing = self.flushing.lock();
        // No flush of this log ends before the handover does, nor does a sync that acknowledgements wait for. So what is
        // durable here is what is durable now.
        let durable = self.recovery_point().max(self.synced_end_offset());
        if future.log_end_offset() < durable || !future.is_prefix_of(self) {
            return Ok(false);
        }
        future.flush(now)?;
        let mut writer = self.lock_writer()?;
        // Reading on behalf of the future log would look at the tail itself, and wait for the lock that is held here.
        self.check_tail(&mut writer, now)?;
        let mut copied = 0_u32;
        while future.log_end_offset() < self.log_end_offset() {
            if copied > max_tail {
                return Ok(false);
            }
            let step = future.follow(self, max_tail, now)?;
            if step == 0 {
                return Ok(false);
            }
            copied = copied.saturating_add(step);
        }
        future.take_over_offsets(self)?;
        future.dir_synced.store(false, Ordering::Release);
        future.rename_dir(name)?;
        if let Err(error) = self.rename_locked(deleted_name) {
            // Its directory has just failed: the metadata log's assignment will tell which of the two counts.
            tracing::error!("{error}");
        }
        writer.closed = true;
        let _ = self.successor.set(future.clone());
        Ok(true)
    }

    /// Takes a name of a current log, or of one to be deleted, before anybody uses it.
    pub(crate) fn take_name(&self, name: &str) -> Result<(), StorageError> {
        self.dir_synced.store(false, Ordering::Release);
        self.rename_dir(name)?;
        sync_dir(self.fs(), self.log_dir.path())
            .map_err(|e| self.log_dir.fail("Error while renaming logs in", self.log_dir.path(), e))
    }

    /// Whether this log, found at a start, holds all that `other` does. Both are parts of one history.
    pub(crate) fn covers(&self, other: &UnifiedLog) -> bool {
        self.log_end_offset() >= other.log_end_offset() && self.latest_epoch() >= other.latest_epoch()
    }
}
