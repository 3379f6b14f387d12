//! The names of a segment's files, through cleaning, replacement and deletion.
//!
//! Owns: [`Stage`], the suffix that all files of a segment have, and the renames between stages.
//! Invariants: a file is never opened by a name that is being given to another segment's file: opening and renaming
//! exclude each other.
//! Concurrency: readers wait for a rename of this segment only when they have to open a file of it just then.
//! Crash: some files have the old suffix and some the new one, the log first; the next start knows what that means.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use env::{File, FileSystem, OpenMode};

use super::{LogSegment, is_full};
use crate::index::Locate;
use crate::names::{
    CLEANED_FILE_SUFFIX, DELETED_FILE_SUFFIX, INDEX_FILE_SUFFIX, LOG_FILE_SUFFIX, SWAP_FILE_SUFFIX,
    TIME_INDEX_FILE_SUFFIX, TXN_INDEX_FILE_SUFFIX, segment_file,
};
use crate::producer::ignore_missing;
use crate::segment::SharedDir;

/// In the order of renames: the log first. A `.log.swap` says that the files it replaces must go; were it renamed
/// after its indexes, they would be among those.
const SUFFIXES: [&str; 4] =
    [LOG_FILE_SUFFIX, INDEX_FILE_SUFFIX, TIME_INDEX_FILE_SUFFIX, TXN_INDEX_FILE_SUFFIX];

/// Cleaned → Swap → InUse → Deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Being written by the cleaner.
    Cleaned,
    /// Complete, about to take the place of others.
    Swap,
    InUse,
    /// About to be removed; those that hold the files open read on.
    Deleted,
}

impl Stage {
    fn suffix(self) -> &'static str {
        match self {
            Stage::Cleaned => CLEANED_FILE_SUFFIX,
            Stage::Swap => SWAP_FILE_SUFFIX,
            Stage::InUse => "",
            Stage::Deleted => DELETED_FILE_SUFFIX,
        }
    }
}

/// One file of a segment.
pub(super) struct SegmentFile<'a> {
    segment: &'a LogSegment,
    suffix: &'static str,
}

impl SegmentFile<'_> {
    fn path_at(&self, stage: Stage) -> PathBuf {
        let mut name = segment_file(self.segment.base_offset, self.suffix);
        name.push_str(stage.suffix());
        self.segment.dir.path().join(name)
    }
}

impl Locate for SegmentFile<'_> {
    fn path(&self) -> PathBuf {
        self.path_at(*self.segment.stage.read())
    }

    fn open(&self, fs: &dyn FileSystem, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let stage = self.segment.stage.read();
        fs.open(&self.path_at(*stage), mode)
    }
}

impl LogSegment {
    pub(super) fn file(&self, suffix: &'static str) -> SegmentFile<'_> {
        SegmentFile { segment: self, suffix }
    }

    pub fn path(&self, suffix: &'static str) -> PathBuf {
        self.file(suffix).path()
    }

    /// A segment for the cleaner to write, `.cleaned` until it is renamed. What is left of an earlier attempt goes.
    pub(crate) fn create_cleaned(
        fs: &dyn FileSystem,
        dir: Arc<SharedDir>,
        base_offset: i64,
        now_ms: i64,
        jitter_ms: i64,
    ) -> io::Result<Self> {
        let segment = LogSegment::empty(dir, base_offset, now_ms, jitter_ms);
        *segment.stage.write() = Stage::Cleaned;
        segment.remove_files(fs)?;
        segment.create_log(fs)?;
        Ok(segment)
    }

    /// Renames all files to another stage.
    pub(crate) fn rename_to(&self, fs: &dyn FileSystem, stage: Stage) -> io::Result<()> {
        let mut current = self.stage.write();
        for suffix in SUFFIXES {
            let file = self.file(suffix);
            let from = file.path_at(*current);
            match fs.rename(&from, &file.path_at(stage)) {
                // A longer name may need room. Without it the file goes at once; a name that stayed would bring the
                // segment back at the next start.
                Err(e) if stage == Stage::Deleted && is_full(&e) => ignore_missing(fs.remove_file(&from))?,
                renamed => ignore_missing(renamed)?,
            }
        }
        *current = stage;
        Ok(())
    }

    /// Whether the files have the names under which a start finds them.
    pub(crate) fn is_in_use(&self) -> bool {
        *self.stage.read() == Stage::InUse
    }

    /// Removes the files under whatever name they have.
    pub(crate) fn remove_files(&self, fs: &dyn FileSystem) -> io::Result<()> {
        for suffix in SUFFIXES {
            ignore_missing(fs.remove_file(&self.path(suffix)))?;
        }
        Ok(())
    }

    /// Removes what the cleaner wrote, also when it was partly renamed already.
    pub(crate) fn discard(&self, fs: &dyn FileSystem) -> io::Result<()> {
        // `.swap` first: without a `.cleaned` beside it, it would count as complete.
        for stage in [Stage::Swap, Stage::Cleaned] {
            for suffix in SUFFIXES {
                ignore_missing(fs.remove_file(&self.file(suffix).path_at(stage)))?;
            }
        }
        Ok(())
    }

    /// When the log was written last: wall clock, ms.
    pub(crate) fn last_modified_ms(&self, fs: &dyn FileSystem) -> io::Result<i64> {
        Ok(fs.metadata(&self.path(LOG_FILE_SUFFIX))?.modified_ms)
    }

    /// Gives the files the age of those they replace: retention and tombstones of old formats go by it.
    pub(crate) fn set_last_modified_ms(&self, fs: &dyn FileSystem, ms: i64) -> io::Result<()> {
        for suffix in [LOG_FILE_SUFFIX, INDEX_FILE_SUFFIX, TIME_INDEX_FILE_SUFFIX] {
            ignore_missing(fs.set_modified(&self.path(suffix), ms))?;
        }
        Ok(())
    }
}
