//! The end of a log that was closed cleanly, looked at before anything is put behind it.
//!
//! Owns: the check of the active segment's last bytes. A start after a clean stop reads no records and believes the
//! length of the file; whoever cut the file or appended to it while the node was down would make the next batch lie
//! behind bytes that no reader gets past.
//! Invariants: only bytes behind the last whole batch are cut, and only when no batch that belongs there follows. Where
//! damage stays, what is appended goes into another segment: behind the damage nobody would find it.
//! Concurrency: the writer lock. Crash: the cut is synced before anything takes its place.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use env::{FileSystem, read_exact_at};
use record::{RecordBatch, Time};

use super::{UnifiedLog, Writer};
use crate::error::{ReadError, StorageError};
use crate::segment::{LogSegment, scan_batches};

/// More bytes than this behind the last whole batch are not searched for a later one: they are kept.
const MAX_SEARCHED: u32 = 8 << 20;

impl UnifiedLog {
    /// Before the first append; true when the log was cut.
    pub(super) fn check_tail(&self, writer: &mut Writer, now: Time) -> Result<bool, StorageError> {
        if self.tail_checked.swap(true, Ordering::AcqRel) {
            return Ok(false);
        }
        let judged = self.judge_tail(writer, now);
        if judged.is_err() {
            self.tail_checked.store(false, Ordering::Release);
        }
        judged
    }

    fn judge_tail(&self, writer: &mut Writer, now: Time) -> Result<bool, StorageError> {
        let failed = |e| self.fail("Error while looking at the end of", e);
        let (active, end) = (self.active_segment(), self.log_end_offset());
        let size = active.size();
        let Whole { position, next, last } = end_of_whole_batches(&active, self.fs()).map_err(failed)?;
        if position == size && (next == end || size == 0) {
            return Ok(false);
        }
        let is_damage = match position < size {
            true => has_end(&active, self.fs(), position, end),
            // Other offsets than those that were written there.
            false => is_valid(&active, self.fs(), last).map(|is_valid| next > end || !is_valid),
        };
        if is_damage.map_err(failed)? {
            tracing::error!(
                "Bytes before or at {position} of {} are damaged; they are kept, and a new segment begins",
                active.path(crate::names::LOG_FILE_SUFFIX).display()
            );
            return self.roll(now, writer, end).map(|_| false);
        }
        tracing::warn!(
            "The end of {} changed while the node was down: cutting {} bytes at {position}, truncating to offset {next}",
            active.path(crate::names::LOG_FILE_SUFFIX).display(),
            size - position
        );
        active.cut(self.fs(), position).map_err(failed)?;
        // Indexes and times go with it.
        active.truncate_to(self.fs(), next, now.wall_ms).map_err(failed)?;
        self.set_log_end(next.min(end));
        if next < end {
            self.epochs.lock().truncate_from_end(next);
            self.rebuild_producers(writer, next, now)?;
        }
        if self.high_watermark() >= self.log_end_offset() {
            let end = self.log_end.load();
            self.set_high_watermark(writer, end);
        }
        self.update_first_unstable_offset(writer);
        Ok(true)
    }

    /// For a reader that finds nothing below the log's end.
    pub(super) fn check_tail_for_reader(&self) -> Result<bool, ReadError> {
        if self.tail_checked.load(Ordering::Acquire) {
            return Ok(false);
        }
        let mut writer = self.lock_writer()?;
        Ok(self.check_tail(&mut writer, self.context.env.now())?)
    }
}

/// The batches that can be reached.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    /// Where the last one ends, and the offset after it.
    pub(super) position: u32,
    pub(super) next: i64,
    /// Where it begins.
    last: u32,
}

pub(super) fn end_of_whole_batches(segment: &LogSegment, fs: &dyn FileSystem) -> io::Result<Whole> {
    let size = segment.size();
    let near = segment.position_for_offset(fs, i64::MAX).unwrap_or(0);
    let file = segment.log_file(fs)?;
    let scan = |from: u32| {
        let mut end: Option<Whole> = None;
        let scanned = scan_batches(&*file, from, size, |batch| {
            if batch.header.base_offset < end.map_or(segment.base_offset(), |end| end.next) {
                return ControlFlow::Break(());
            }
            let position = batch.position + batch.size();
            end = Some(Whole { position, next: batch.header.next_offset(), last: batch.position });
            ControlFlow::Continue(())
        });
        match scanned {
            Err(e) if e.kind() != io::ErrorKind::InvalidData => Err(e),
            _ => Ok(end),
        }
    };
    let end = match scan(near.min(size))? {
        None if near > 0 => scan(0)?,
        end => end,
    };
    Ok(end.unwrap_or(Whole { position: 0, next: segment.base_offset(), last: 0 }))
}

/// Whether the file ends with a valid batch that begins at `position`.
fn is_valid(segment: &LogSegment, fs: &dyn FileSystem, position: u32) -> io::Result<bool> {
    let mut bytes = vec![0; segment.size().saturating_sub(position) as usize];
    read_exact_at(&*segment.log_file(fs)?, &mut bytes, u64::from(position))?;
    let batch = RecordBatch::first(&bytes).ok().flatten();
    Ok(batch.is_some_and(|batch| batch.ensure_valid().is_ok()))
}

/// Whether a valid batch that ends the log at `end` lies somewhere behind `position`, up to the file's end; or, right
/// there, one that was damaged in place: what was torn does not end where its length says.
fn has_end(segment: &LogSegment, fs: &dyn FileSystem, position: u32, end: i64) -> io::Result<bool> {
    let size = segment.size();
    if size - position > MAX_SEARCHED {
        return Ok(true);
    }
    let mut bytes = vec![0; (size - position) as usize];
    read_exact_at(&*segment.log_file(fs)?, &mut bytes, u64::from(position))?;
    Ok((0..bytes.len()).any(|at| {
        let rest = bytes.get(at..).unwrap_or_default();
        let batch = RecordBatch::first(rest).ok().flatten();
        batch
            .filter(|batch| batch.size_in_bytes() == rest.len())
            .is_some_and(|batch| at == 0 || batch.next_offset() == end && batch.ensure_valid().is_ok())
    }))
}
