//! Cleaned segments taking the place of those they were made from, and what the cleaner asks of a log.
//!
//! Owns: [`UnifiedLog::replace_segments`].
//! Invariants: the log's offsets, end, high watermark and start do not change. Everything that stays was synced before
//! anything goes: a replaced record's successor is as durable as its replacement.
//! Concurrency: `flushing` keeps truncation, retention, flushes and renames of the directory away; `writer` is held for
//! the moment in which the list changes. Readers of the old segments go on in their files.
//! Crash: before the new files are `.swap` the old segments are the log; from then on the new ones are. Names reach
//! the disk in the order of the renames.

use std::sync::Arc;

use record::Time;

use super::{UnifiedLog, delay};
use crate::context::Task;
use crate::error::StorageError;
use crate::names;
use crate::producer::ignore_missing;
use crate::segment::{LogSegment, Stage, is_full};

/// Where an active producer stands: what compaction must not take away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastRecord {
    /// Last offset of its last batch of data; `None`: it has only written a marker.
    pub(crate) last_data_offset: Option<i64>,
    pub(crate) producer_epoch: i16,
}

impl UnifiedLog {
    /// The segments that may hold offsets of `[from, to)`: from the one that would hold `from`.
    pub(crate) fn log_segments(&self, from: i64, to: i64) -> Vec<Arc<LogSegment>> {
        let segments = self.segments.load_full();
        let first = Self::floor_segment(&segments, from).unwrap_or(0);
        let in_range = segments.iter().skip(first).take_while(|segment| segment.base_offset() < to);
        if from >= to { Vec::new() } else { in_range.cloned().collect() }
    }

    /// The same without an end, and without the active segment.
    pub(crate) fn non_active_log_segments_from(&self, from: i64) -> Vec<Arc<LogSegment>> {
        self.log_segments(from, self.active_segment().base_offset())
    }

    /// Base offset of the active segment.
    pub(crate) fn active_segment_base_offset(&self) -> i64 {
        self.active_segment().base_offset()
    }

    /// By producer id.
    pub(crate) fn last_records_of_active_producers(&self) -> std::collections::HashMap<i64, LastRecord> {
        let writer = self.writer.lock();
        let entries = writer.producers.producers().values();
        entries
            .map(|entry| {
                let last_data_offset = Some(entry.last_data_offset()).filter(|offset| *offset >= 0);
                (entry.producer_id, LastRecord { last_data_offset, producer_epoch: entry.producer_epoch })
            })
            .collect()
    }

    /// A segment for the cleaner to write.
    pub(crate) fn create_cleaned_segment(&self, base_offset: i64, now: Time) -> std::io::Result<LogSegment> {
        let jitter = self.config.load().random_segment_jitter(self.context.env.random.next_u64());
        LogSegment::create_cleaned(self.fs(), self.dir.clone(), base_offset, now.wall_ms, jitter)
    }

    /// Puts a complete, synced cleaned segment in the place of `old`, which must be neighbours. False when the log has
    /// changed meanwhile: nothing was done then.
    pub(crate) fn replace_segments(
        &self,
        new: Arc<LogSegment>,
        old: &[Arc<LogSegment>],
        now: Time,
    ) -> Result<bool, StorageError> {
        let failed = |e| self.fail("Error while replacing segments of", e);
        let _flushing = self.flushing.lock();
        drop(self.lock_writer()?);
        let Some(at) = self.place_of(old) else { return Ok(false) };
        if let Err(e) = new.rename_to(self.fs(), Stage::Swap) {
            new.discard(self.fs()).map_err(failed)?;
            return Err(failed(e));
        }
        // From here on there is no way back: a failure, be it for want of room, is the directory's.
        let fatal = |e: std::io::Error| failed(std::io::Error::other(e));
        for segment in old {
            segment.rename_to(self.fs(), Stage::Deleted).map_err(fatal)?;
        }
        new.rename_to(self.fs(), Stage::InUse).map_err(fatal)?;
        let forgotten: Vec<i64> = {
            let mut writer = self.writer.lock();
            // Appends only add segments at the end: the place is the same.
            self.publish_segments(|segments| drop(segments.splice(at..at + old.len(), [new.clone()])));
            let gone = old.iter().map(|segment| segment.base_offset());
            gone.filter(|base| *base != new.base_offset() && writer.producers.forget_snapshot(*base))
                .collect()
        };
        let due = now.monotonic + delay(self.config.load().file_delete_delay_ms);
        for base in forgotten {
            self.retire_snapshot_file(base, due)?;
        }
        self.fs().sync_dir(&self.dir.path()).map_err(fatal)?;
        new.set_durable();
        let log_dir = self.log_dir.clone();
        self.context.defer(due, Task::DeleteSegments { segments: old.to_vec(), log_dir });
        Ok(true)
    }

    /// Where in the list these segments are, all of them in a row and none of them active.
    fn place_of(&self, old: &[Arc<LogSegment>]) -> Option<usize> {
        let segments = self.segments.load();
        let first = old.first()?;
        let at = segments.iter().position(|segment| Arc::ptr_eq(segment, first))?;
        let found = segments.get(at..at + old.len())?;
        let same = found.iter().zip(old).all(|(found, old)| Arc::ptr_eq(found, old));
        (same && at + old.len() < segments.len()).then_some(at)
    }

    /// Renames a producer snapshot that is no longer known and removes it after a while.
    pub(super) fn retire_snapshot_file(
        &self,
        offset: i64,
        due: std::time::Duration,
    ) -> Result<(), StorageError> {
        let name = names::segment_file(offset, names::PRODUCER_SNAPSHOT_FILE_SUFFIX);
        let deleted = format!("{name}{}", names::DELETED_FILE_SUFFIX);
        let dir = self.dir.path();
        let renamed = match self.fs().rename(&dir.join(&name), &dir.join(&deleted)) {
            Err(e) if is_full(&e) => self.fs().remove_file(&dir.join(&name)),
            renamed => renamed,
        };
        ignore_missing(renamed)
            .map_err(|e| self.fail("Error while deleting producer state snapshots for", e))?;
        let log_dir = self.log_dir.clone();
        self.context.defer(due, Task::DeleteFile { dir: self.dir.clone(), name: deleted, log_dir });
        Ok(())
    }
}
