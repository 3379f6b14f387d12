//! Recovery that begins inside a segment.
//!
//! Owns: [`LogSegment::resume_at`].
//! Invariants: everything below the recovery point was synced with its index entries before the point was written down,
//! so that recovery may leave it unread. What does not fit together all the same (files of another node, damage) is not
//! resumed: then the whole segment is read.
//! Concurrency: nobody else uses the log yet.
//! Crash: behind the recovery point an index may hold anything; it is cut to the entries that rise below it.

use std::io;
use std::ops::ControlFlow;

use env::FileSystem;

use super::LogSegment;

impl LogSegment {
    /// Cuts the indexes to what lies below `offset` and returns the position of the first batch that does not; `None`
    /// when the segment has to be recovered from its beginning.
    pub(crate) fn resume_at(&self, fs: &dyn FileSystem, offset: i64) -> io::Result<Option<u32>> {
        match self.try_resume_at(fs, offset) {
            Err(e) if matches!(e.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
                Ok(None)
            }
            other => other,
        }
    }

    fn try_resume_at(&self, fs: &dyn FileSystem, offset: i64) -> io::Result<Option<u32>> {
        if offset <= self.base_offset() || self.size() == 0 {
            return Ok(None);
        }
        let entry = self.with_offset_index(fs, |index, at| index.keep_rising_below(at, offset))?;
        let from = entry.map_or(0, |entry| entry.position);
        let mut is_entry_right = entry.is_none();
        let (mut end, mut next_offset, mut found) = (from, self.base_offset(), None);
        let scanned = self.scan(fs, from, self.size(), |batch| {
            if let Some(entry) = entry.filter(|_| batch.position == from) {
                is_entry_right = batch.header.last_offset() == entry.offset;
            }
            if batch.header.base_offset < next_offset {
                // Not written below the recovery point: a torn base offset, which no checksum covers, looks old.
                return ControlFlow::Break(());
            }
            if batch.header.base_offset >= offset {
                found = Some(batch.position);
                return ControlFlow::Break(());
            }
            end = batch.position.saturating_add(batch.size());
            next_offset = batch.header.next_offset();
            if next_offset > offset { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // Where the records end exactly at the recovery point, what follows need not be a batch.
        let position = match found {
            Some(position) => position,
            None if next_offset == offset => end,
            None => return scanned.map(|()| None),
        };
        if !is_entry_right {
            return Ok(None);
        }
        let last = self.with_time_index(fs, |index, at| index.keep_rising_below(at, offset))?;
        let Some(max) = self.largest_timestamp_below(fs, position, last)? else { return Ok(None) };
        self.with_txn_index(fs, |index, at| index.truncate_to(at, offset))?;
        self.with_txn_index(fs, |index, at| index.remove_if_empty(at))?;
        let mut times = self.times.lock();
        times.max = Some(max);
        times.first_batch = None;
        times.last_batch = None;
        times.bytes_since_last_index_entry = 0;
        Ok(Some(position))
    }
}
