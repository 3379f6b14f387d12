//! Where recovery of a log begins, and what it says while it runs.
//!
//! Owns: the decision whether a segment that holds the recovery point is read from there or from its beginning.
//! Invariants: producer state, leader epochs and indexes are those at the offset where reading begins.
//! Concurrency: nobody else uses the log yet. Crash: every step can be repeated.

use std::io;

use env::{FileSystem, read_exact_at};
use protocol::Uuid;

use super::Loader;
use crate::checkpoint;
use crate::log::recovery::Resume;
use crate::log::tail::{Whole, end_of_whole_batches};
use crate::log_dir::sync_dir;
use crate::names;
use crate::producer::ignore_missing;
use crate::segment::LogSegment;

/// Reading this much is worth a line in the log.
const WORTH_TELLING_BYTES: u32 = 1 << 20;

/// So much of a file's end is looked at to see that it is blank.
const MAX_BLANK_READ: u32 = 4096;

/// Cuts what was never written behind the records of a segment that the one at `next_base` continues: a preallocated file
/// whose roll trimmed it after the last flush.
pub(super) fn trim_blank_tail(fs: &dyn FileSystem, sealed: &LogSegment, next_base: i64) -> io::Result<()> {
    let Whole { position, next: next_offset, .. } = end_of_whole_batches(sealed, fs)?;
    if position == sealed.size() || next_offset != next_base {
        return Ok(());
    }
    let mut tail = vec![0; (sealed.size() - position).min(MAX_BLANK_READ) as usize];
    read_exact_at(&*sealed.log_file(fs)?, &mut tail, u64::from(position))?;
    if tail.iter().all(|byte| *byte == 0) { sealed.cut(fs, position) } else { Ok(()) }
}

impl Loader<'_> {
    /// Brings the producer state to where recovery begins: the recovery point, when everything below it can be taken as
    /// it is, or the beginning of its segment.
    pub(super) fn resume(
        &mut self,
        unflushed: usize,
        recovery_point: i64,
        damaged: &[i64],
    ) -> io::Result<Option<Resume>> {
        let Some(segment) = self.segments.get(unflushed).cloned() else { return Ok(None) };
        let base = segment.base_offset();
        // The reference raises the recovery point to the log's start whatever was synced. And a log of which more is
        // known than its recovery point says is read whole, so that damage is noticed.
        // Producers whose last batch lies in this segment but below the log's start are known from there only.
        let is_trusted = recovery_point > self.params.log_start_offset
            && base >= self.params.log_start_offset
            && self.params.durable_end == 0
            && !damaged.contains(&base);
        if is_trusted && let Some(position) = segment.resume_at(self.fs, recovery_point)? {
            self.rebuild_producers_below(unflushed + 1, recovery_point)?;
            return Ok(Some(Resume { position, offset: recovery_point }));
        }
        self.rebuild_producers_below(unflushed, base).map(|()| None)
    }

    pub(super) fn report_progress(
        &self,
        segment: &LogSegment,
        resume: Option<Resume>,
        recovered: usize,
        unflushed: usize,
    ) {
        let bytes = segment.size() - resume.map_or(0, |resume| resume.position).min(segment.size());
        let base = segment.base_offset();
        if bytes >= WORTH_TELLING_BYTES {
            tracing::info!(
                "Recovering unflushed segment {base}. {recovered}/{unflushed} recovered for {}.",
                self.partition
            );
        } else {
            tracing::debug!(
                "Recovering unflushed segment {base}. {recovered}/{unflushed} recovered for {}.",
                self.partition
            );
        }
    }

    /// The topic's id. A file that a power cut damaged is removed, and written again when the topic is known.
    pub(super) fn read_topic_id(&self) -> io::Result<Option<Uuid>> {
        match checkpoint::read_partition_metadata(self.fs, &self.path) {
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                tracing::warn!("{e}; the topic's id is taken from the cluster's metadata");
                ignore_missing(self.fs.remove_file(&self.path.join(names::PARTITION_METADATA_FILE)))?;
                sync_dir(self.fs, &self.path).map(|()| None)
            }
            other => other,
        }
    }
}
