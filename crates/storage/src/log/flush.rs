//! Making a log durable, and closing it.
//!
//! Owns: flushes and the recovery point.
//! Invariants: the recovery point moves only after the data, indexes, epochs and names below it are durable. A failed
//! sync takes the directory offline: what it lost cannot be known (KAFKA-10778, fsyncgate).
//! Concurrency: `flushing` is held across the syncs, `writer` is not: appends go on meanwhile. The directory keeps its
//! name while either is held.
//! Crash: recovery begins at the last recovery point that reached its checkpoint.

use std::sync::atomic::Ordering;

use env::OpenMode;
use record::Time;

use super::UnifiedLog;
use crate::error::StorageError;
use crate::log_dir::{sync_dir, sync_failed};
use crate::names;
use crate::producer::ignore_missing;

impl UnifiedLog {
    /// Makes everything appended so far durable and moves the recovery point to the end.
    pub fn flush(&self, now: Time) -> Result<(), StorageError> {
        self.flush_up_to(i64::MAX, now)
    }

    /// Makes the records below `offset` durable, in the log that took this one's place if one did.
    pub fn flush_up_to(&self, offset: i64, now: Time) -> Result<(), StorageError> {
        let flushing = self.flushing.lock();
        match self.successor() {
            Some(successor) => {
                drop(flushing);
                successor.flush_up_to(offset, now)
            }
            None => self.flush_to(offset.min(self.log_end_offset()), now),
        }
    }

    /// Makes the producer snapshots of rolls durable. Without them a log that loses its older segments would forget
    /// what their producers did.
    pub(super) fn sync_snapshots(&self) -> Result<(), StorageError> {
        let snapshots = std::mem::take(&mut *self.unsynced_snapshots.lock());
        if snapshots.is_empty() {
            return Ok(());
        }
        let dir = self.dir.path();
        let synced = snapshots.into_iter().try_for_each(|offset| {
            let path = dir.join(names::segment_file(offset, names::PRODUCER_SNAPSHOT_FILE_SUFFIX));
            ignore_missing(
                self.fs()
                    .open(&path, OpenMode::ReadWrite)
                    .and_then(|file| file.sync_data().map_err(sync_failed)),
            )
        });
        synced
            .and_then(|()| sync_dir(self.fs(), &dir))
            .map_err(|e| self.fail("Error while flushing producer state snapshot for", e))
    }

    fn flush_to(&self, offset: i64, now: Time) -> Result<(), StorageError> {
        self.log_dir.check_online()?;
        let failed = |e| self.fail("Error while flushing log for", e);
        let segments = self.segments.load_full();
        // A segment that was closed since its records were flushed has a last index entry that was not.
        let mut dirty =
            segments.iter().take_while(|s| s.base_offset() < offset).filter(|s| s.is_dirty()).peekable();
        if offset <= self.recovery_point() && dirty.peek().is_none() {
            return Ok(());
        }
        self.flush_epochs()?;
        self.sync_snapshots()?;
        let mut has_new_names = self.sync_metadata().map_err(failed)?;
        let flushed = dirty.try_for_each(|segment| {
            has_new_names |= segment.flush(self.fs())?;
            Ok(())
        });
        // Also when a later segment found no room: the names of the ones before count as durable from here on.
        if has_new_names {
            sync_dir(self.fs(), &self.dir.path()).map_err(failed)?;
        }
        flushed.map_err(failed)?;
        self.sync_own_name().map_err(failed)?;
        self.group_commit.set_synced(offset);
        self.recovery_point.fetch_max(offset, Ordering::AcqRel);
        self.last_flushed_ms.store(now.wall_ms, Ordering::Relaxed);
        Ok(())
    }

    /// Lets recovery begin lower: to be written to the checkpoint before records are cut and others take their place.
    pub(crate) fn lower_recovery_point(&self, offset: i64) {
        let _flushing = self.flushing.lock();
        self.recovery_point.fetch_min(offset, Ordering::AcqRel);
    }

    /// Writes `leader-epoch-checkpoint` when it is behind.
    pub fn flush_epochs(&self) -> Result<(), StorageError> {
        let mut epochs = self.epochs.lock();
        if !epochs.is_dirty() {
            return Ok(());
        }
        epochs
            .flush(self.fs(), &self.dir.path())
            .map_err(|e| self.fail("Error while writing leader epochs of", e))
    }

    /// Completes and flushes everything, takes a producer snapshot and closes. What a clean shutdown does.
    pub fn close(&self, now: Time) -> Result<(), StorageError> {
        let doing = "Error while closing log segments for";
        let _flushing = self.flushing.lock();
        let mut writer = self.writer.lock();
        self.check_open(&writer)?;
        self.maybe_flush_metadata()?;
        let active = self.active_segment();
        active.on_become_inactive(self.fs()).map_err(|e| self.fail(doing, e))?;
        self.flush_to(self.log_end_offset(), now)?;
        self.flush_epochs()?;
        let dir = self.dir.path();
        let synced =
            self.sync_metadata().and_then(|is_new| if is_new { sync_dir(self.fs(), &dir) } else { Ok(()) });
        synced.map_err(|e| self.fail(doing, e))?;
        let taken = writer.producers.take_snapshot(self.fs(), &dir, true);
        // The next start trusts the snapshot instead of the log: its name must be as durable as the records.
        let taken = taken.and_then(|taken| match taken {
            Some(_) => sync_dir(self.fs(), &dir),
            None => Ok(()),
        });
        taken.map_err(|e| self.fail("Error while taking producer state snapshot for", e))?;
        writer.closed = true;
        self.segments.load().iter().for_each(|segment| segment.close());
        Ok(())
    }

    /// Writes a producer snapshot at the end of the log.
    pub fn take_producer_snapshot(&self) -> Result<(), StorageError> {
        let mut writer = self.lock_writer()?;
        let taken = writer.producers.take_snapshot(self.fs(), &self.dir.path(), true);
        taken.map(|_| ()).map_err(|e| self.fail("Error while taking producer state snapshot for", e))
    }
}
