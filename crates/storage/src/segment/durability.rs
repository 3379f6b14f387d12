//! What makes a segment's files durable, and how long its file is.
//!
//! Owns: flushes, the sync of the `.log` alone that group commit wants, and the trimming of preallocated files.
//! Invariants: a flag that says "dirty" is lowered before the sync that it is lowered for, so that what is written
//! meanwhile counts as dirty; a failed sync takes the directory offline whatever its kind, since the kernel marks the
//! pages clean and the next sync would succeed (fsyncgate).
//! Concurrency: callers hold the log's `flushing` lock across syncs, or nobody else uses the log yet.
//! Crash: a preallocated file keeps its length, with zeros behind the last record that was written; recovery cuts it.

use std::io;
use std::sync::atomic::Ordering;

use env::FileSystem;

use super::{LogSegment, is_full};
use crate::log_dir::sync_failed;

impl LogSegment {
    /// Makes all contents durable; true when the directory must be synced too.
    pub fn flush(&self, fs: &dyn FileSystem) -> io::Result<bool> {
        self.is_dirty.store(false, Ordering::Release);
        let has_new_names = self.has_new_names.swap(false, Ordering::AcqRel);
        let has_new_log_name = self.has_new_log_name.swap(false, Ordering::AcqRel);
        let flushed = self.flush_files(fs);
        if flushed.is_err() {
            self.is_dirty.store(true, Ordering::Release);
            self.has_new_names.fetch_or(has_new_names, Ordering::AcqRel);
            self.has_new_log_name.fetch_or(has_new_log_name, Ordering::AcqRel);
        }
        flushed.map(|()| has_new_names)
    }

    fn flush_files(&self, fs: &dyn FileSystem) -> io::Result<()> {
        let file = self.log_file(fs)?;
        if self.is_log_dirty.swap(false, Ordering::AcqRel) {
            file.sync_data().map_err(sync_failed)?;
        }
        self.flush_txn_and_offset_index(fs)?;
        self.with_time_index(fs, |index, at| index.flush(at))
    }

    fn flush_txn_and_offset_index(&self, fs: &dyn FileSystem) -> io::Result<()> {
        self.with_txn_index(fs, |index, at| index.flush(at))?;
        if self.offset_index.is_withheld() {
            fs.sync_dir(&self.dir.path()).map_err(sync_failed)?;
        }
        self.with_offset_index(fs, |index, at| index.flush(at))
    }

    /// Starts the indexes over where the recovery point says that they are durable. A transaction index does not show
    /// that it lacks entries, and the next start would believe half of it. So while it is being rebuilt there is no
    /// offset index, which makes a start rebuild both.
    pub(crate) fn begin_rebuild(&self, fs: &dyn FileSystem) -> io::Result<()> {
        self.with_offset_index(fs, |index, at| index.withhold(at))?;
        fs.sync_dir(&self.dir.path()).map_err(sync_failed)?;
        self.reset_indexes(fs)
    }

    /// Makes the rebuilt transaction index durable and, after it, the offset index appear. Without room on the disk that
    /// waits for a flush.
    pub(crate) fn finish_rebuild(&self, fs: &dyn FileSystem) -> io::Result<()> {
        self.with_txn_index(fs, |index, at| index.remove_if_empty(at))?;
        self.note_names();
        if self.offset_index.is_withheld() {
            match self.flush_txn_and_offset_index(fs) {
                Err(e) if is_full(&e) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Makes the records durable and leaves the indexes to the next flush, or to recovery. True when the directory must
    /// be synced too.
    pub(crate) fn sync_log(&self, fs: &dyn FileSystem) -> io::Result<bool> {
        let file = self.log_file(fs)?;
        if self.is_log_dirty.swap(false, Ordering::AcqRel) {
            file.sync_data().map_err(sync_failed)?;
        }
        Ok(self.has_new_log_name.swap(false, Ordering::AcqRel))
    }

    /// The files are as the last clean shutdown left them.
    pub(crate) fn set_durable(&self) {
        for flag in [&self.has_new_names, &self.is_dirty, &self.has_new_log_name, &self.is_log_dirty] {
            flag.store(false, Ordering::Release);
        }
    }

    /// Names of files in the directory changed: its next flush must sync it.
    pub(crate) fn note_names(&self) {
        self.has_new_names.store(true, Ordering::Release);
        self.is_dirty.store(true, Ordering::Release);
    }

    pub(crate) fn has_new_names(&self) -> bool {
        self.has_new_names.load(Ordering::Acquire)
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty.load(Ordering::Acquire)
    }

    /// Completes the indexes (the last time index entry, and files where there are none yet) and gives the log file the
    /// length of its records.
    pub(crate) fn on_become_inactive(&self, fs: &dyn FileSystem) -> io::Result<()> {
        self.complete_indexes(fs)?;
        let offsets = self.with_offset_index(fs, |index, at| index.trim(at))?;
        let times = self.with_time_index(fs, |index, at| index.trim(at))?;
        if offsets || times {
            self.is_dirty.store(true, Ordering::Release);
        }
        if self.is_preallocated.swap(false, Ordering::AcqRel) {
            self.log_file(fs)?.set_len(u64::from(self.size()))?;
            // Records of the next segment must not become durable before this: recovery ends a log at the first gap.
            self.is_log_dirty.store(true, Ordering::Release);
            self.is_dirty.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Cuts the file at `size`, durably, without looking at the indexes.
    pub(crate) fn cut(&self, fs: &dyn FileSystem, size: u32) -> io::Result<()> {
        self.size.store(size, Ordering::Release);
        let file = self.log_file(fs)?;
        if file.len()? > u64::from(size) {
            file.set_len(u64::from(size))?;
            file.sync_data().map_err(sync_failed)?;
        }
        Ok(())
    }
}
