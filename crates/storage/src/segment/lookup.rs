//! Where in a segment something is: lookups through indexes of which nothing is believed.
//!
//! Owns: searches by offset and by time, the largest timestamp, and the rebuilding of an index that is wrong.
//! Invariants: an entry only says where a scan may begin, and only after the batch there was looked at. So an answer is
//! that of a scan from the segment's beginning, whatever the index files hold; a wrong one costs time. Indexes once
//! found wrong are left alone until they are rebuilt.
//! Concurrency: readers take no lock across IO; rebuilding happens under the log's writer lock, and readers that find
//! an index half made scan from the beginning.
//! Crash: a rebuilt index is lost or whole, as any other.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use env::{FileSystem, read_exact_at};
use record::RecordBatch;

use super::{BatchPosition, LogSegment, Times};
use crate::index::{OffsetPosition, TimestampOffset};

/// What a scan that began where an index said came to.
enum Scan {
    Done,
    /// No batch begins there, or one with other offsets.
    Misled(&'static str),
}

impl LogSegment {
    /// Calls `f` with the batches behind an index entry, or with all when there is none or it is wrong.
    fn scan_from(
        &self,
        fs: &dyn FileSystem,
        entry: Option<OffsetPosition>,
        mut f: impl FnMut(BatchPosition) -> ControlFlow<()>,
    ) -> io::Result<()> {
        if let Some(entry) = entry {
            match self.scan_from_entry(fs, entry, &mut f)? {
                Scan::Done => return Ok(()),
                Scan::Misled(why) => self.distrust_indexes(why),
            }
        }
        self.scan(fs, 0, self.size(), f)
    }

    fn scan_from_entry(
        &self,
        fs: &dyn FileSystem,
        entry: OffsetPosition,
        f: &mut impl FnMut(BatchPosition) -> ControlFlow<()>,
    ) -> io::Result<Scan> {
        let mut at_first = true;
        let mut misled = Ok(false);
        let scanned = self.scan(fs, entry.position, self.size(), |batch| {
            if std::mem::take(&mut at_first) {
                misled = self.is_where_entry_says(fs, &batch, entry).map(|right| !right);
                if !matches!(misled, Ok(false)) {
                    return ControlFlow::Break(());
                }
            }
            f(batch)
        });
        if misled? {
            return Ok(Scan::Misled("the batch there has other offsets"));
        }
        match scanned {
            _ if at_first => Ok(Scan::Misled("no batch begins there")),
            Err(e) => Err(e),
            Ok(()) => Ok(Scan::Done),
        }
    }

    /// Whether a scan for a later offset may begin at the batch found where an entry points to. Entries name the last
    /// offset of that batch; those of old followers the last offset of several that were appended at once.
    fn is_where_entry_says(
        &self,
        fs: &dyn FileSystem,
        batch: &BatchPosition,
        entry: OffsetPosition,
    ) -> io::Result<bool> {
        if batch.header.last_offset() == entry.offset {
            return Ok(true);
        }
        if batch.header.base_offset > entry.offset || batch.header.base_offset < self.base_offset {
            return Ok(false);
        }
        let mut bytes = vec![0; batch.header.size_in_bytes()];
        read_exact_at(&*self.log_file(fs)?, &mut bytes, u64::from(batch.position))?;
        let whole = RecordBatch::first(&bytes).ok().flatten();
        Ok(whole.is_some_and(|batch| batch.ensure_valid().is_ok()))
    }

    pub(crate) fn indexes_are_wrong(&self) -> bool {
        self.indexes_wrong.load(Ordering::Acquire)
    }

    pub(super) fn distrust_indexes(&self, why: &str) {
        if !self.indexes_wrong.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                "An index of segment {} is wrong ({why}). It is not used and will be rebuilt.",
                self.path(crate::names::LOG_FILE_SUFFIX).display()
            );
        }
    }

    /// They could not be rebuilt.
    pub(crate) fn distrust_indexes_again(&self) {
        self.indexes_wrong.store(true, Ordering::Release);
    }

    /// An index's answer; damage is no answer.
    pub(super) fn believe<T>(&self, answer: io::Result<Option<T>>) -> io::Result<Option<T>> {
        match answer {
            Err(e) if is_damage(&e) => {
                self.distrust_indexes(&e.to_string());
                Ok(None)
            }
            other => other,
        }
    }

    /// The entry from which a scan for `offset` begins.
    fn entry_for_offset(&self, fs: &dyn FileSystem, offset: i64) -> io::Result<Option<OffsetPosition>> {
        if self.indexes_are_wrong() {
            return Ok(None);
        }
        let look_up = |offset| self.believe(self.with_offset_index(fs, |index, at| index.lookup(at, offset)));
        match look_up(offset)? {
            // Of a batch that is being appended right now: the one before it serves as well.
            Some(entry) if entry.position >= self.size() => look_up(entry.offset - 1),
            entry => Ok(entry),
        }
    }

    /// The first batch whose last offset is at least `offset`.
    pub fn translate_offset(&self, fs: &dyn FileSystem, offset: i64) -> io::Result<Option<BatchPosition>> {
        let size = self.size();
        if size == 0 {
            return Ok(None);
        }
        let last = self.times.lock().last_batch;
        if let Some(last) = last.filter(|last| {
            (last.header.base_offset..=last.header.last_offset()).contains(&offset)
                && last.position.saturating_add(last.size()) <= size
        }) {
            return Ok(Some(last));
        }
        let mut found = None;
        self.scan_from(fs, self.entry_for_offset(fs, offset)?, |batch| {
            if batch.header.last_offset() >= offset {
                found = Some(batch);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Calls `f` with the batches from one on that lies before every record that is both at least as young as
    /// `timestamp` and at or after `starting_offset`.
    pub(crate) fn scan_for_timestamp(
        &self,
        fs: &dyn FileSystem,
        timestamp: i64,
        starting_offset: i64,
        f: impl FnMut(BatchPosition) -> ControlFlow<()>,
    ) -> io::Result<()> {
        let mut offset = self.base_offset;
        if !self.indexes_are_wrong() {
            let entry = self.believe(self.with_time_index(fs, |index, at| index.lookup(at, timestamp)))?;
            if let Some(entry) = entry.filter(|entry| entry.offset > offset) {
                match self.is_time_of_batch(fs, entry)? {
                    true => offset = entry.offset,
                    false => self.distrust_indexes("no batch has the indexed timestamp there"),
                }
            }
        }
        self.scan_from(fs, self.entry_for_offset(fs, offset.max(starting_offset))?, f)
    }

    /// Calls `f` with the batches from one on that is not behind the batch of `offset`.
    pub(crate) fn scan_for_offset(
        &self,
        fs: &dyn FileSystem,
        offset: i64,
        f: impl FnMut(BatchPosition) -> ControlFlow<()>,
    ) -> io::Result<()> {
        self.scan_from(fs, self.entry_for_offset(fs, offset)?, f)
    }

    /// Where a scan for `offset` may begin.
    pub(crate) fn position_for_offset(&self, fs: &dyn FileSystem, offset: i64) -> io::Result<u32> {
        let Some(entry) = self.entry_for_offset(fs, offset)? else { return Ok(0) };
        match self.scan_from_entry(fs, entry, &mut |_| ControlFlow::Break(()))? {
            Scan::Done => Ok(entry.position),
            Scan::Misled(why) => {
                self.distrust_indexes(why);
                Ok(0)
            }
        }
    }

    /// Whether the batch of an entry's offset has its timestamp.
    fn is_time_of_batch(&self, fs: &dyn FileSystem, entry: TimestampOffset) -> io::Result<bool> {
        let batch = self.translate_offset(fs, entry.offset)?;
        Ok(batch.is_some_and(|batch| {
            batch.header.base_offset <= entry.offset && batch.header.max_timestamp == entry.timestamp
        }))
    }

    /// An offset that no batch of the region behind `position` exceeds, from the index.
    pub(crate) fn fetch_upper_bound_offset(
        &self,
        fs: &dyn FileSystem,
        position: u32,
        len: u32,
    ) -> io::Result<Option<i64>> {
        if self.indexes_are_wrong() {
            return Ok(None);
        }
        let end = i64::from(position) + i64::from(len);
        let entry = self.believe(self.with_offset_index(fs, |index, at| index.lookup_value(at, end)))?;
        let Some(entry) = entry else { return Ok(None) };
        let is_right =
            matches!(self.scan_from_entry(fs, entry, &mut |_| ControlFlow::Break(()))?, Scan::Done);
        Ok(is_right.then_some(entry.offset))
    }

    /// The offset after the last record, read from the end of the file.
    pub(crate) fn read_next_offset(&self, fs: &dyn FileSystem) -> io::Result<i64> {
        let last = match self.indexes_are_wrong() {
            true => None,
            false => self.believe(self.with_offset_index(fs, |index, at| index.last(at)))?,
        };
        let mut next = self.base_offset;
        self.scan_from(fs, last, |batch| {
            next = batch.header.next_offset();
            ControlFlow::Continue(())
        })?;
        Ok(next)
    }

    pub(super) fn loaded_times(&self, fs: &dyn FileSystem) -> io::Result<Times> {
        let times = *self.times.lock();
        if times.max.is_some() {
            return Ok(times);
        }
        if self.size() == 0 {
            let mut times = self.times.lock();
            times.max.get_or_insert(self.no_timestamp());
            return Ok(*times);
        }
        let was_open = self.log.lock().file.is_some();
        let (max, is_indexed) = self.largest_timestamp_and_whether_indexed(fs)?;
        if !was_open {
            // Retention asks every log's oldest segment at the same time: their files must not all stay open.
            self.close();
        }
        if !is_indexed {
            self.distrust_indexes("it lacks the largest timestamp");
        }
        let mut times = self.times.lock();
        times.max.get_or_insert(max);
        Ok(*times)
    }

    /// The largest timestamp with a last offset of its batch, and whether the time index ends with it, as it does in a
    /// segment that was closed.
    fn largest_timestamp_and_whether_indexed(
        &self,
        fs: &dyn FileSystem,
    ) -> io::Result<(TimestampOffset, bool)> {
        let last = match self.indexes_are_wrong() {
            true => None,
            false => self.believe(self.with_time_index(fs, |index, at| index.last(at)))?,
        };
        let Some(last) = last else {
            let max = self.largest_of_all(fs)?;
            return Ok((max, max.timestamp < 0));
        };
        match self.is_time_of_batch(fs, last) {
            Ok(true) => {}
            Ok(false) => {
                self.distrust_indexes("the last indexed timestamp is no batch's");
                return Ok((self.largest_of_all(fs)?, false));
            }
            // The log is damaged before that batch: all that is left to go by is the index.
            Err(e) if is_damage(&e) => return Ok((last, true)),
            Err(e) => return Err(e),
        }
        let mut max = last;
        let scanned = self.scan_from(fs, self.entry_for_offset(fs, last.offset)?, |batch| {
            raise(&mut max, &batch);
            ControlFlow::Continue(())
        });
        self.tolerate_unreadable(scanned)?;
        Ok((max, max == last))
    }

    /// What cannot be read has no timestamp and is in no index: it must keep neither retention nor appends from going on.
    /// Those who read it are told.
    pub(super) fn tolerate_unreadable(&self, scanned: io::Result<()>) -> io::Result<()> {
        match scanned {
            Err(e) if is_damage(&e) => {
                tracing::warn!(
                    "{} is not readable to its end: {e}",
                    self.path(crate::names::LOG_FILE_SUFFIX).display()
                );
                Ok(())
            }
            other => other,
        }
    }

    fn largest_of_all(&self, fs: &dyn FileSystem) -> io::Result<TimestampOffset> {
        let mut max = self.no_timestamp();
        let scanned = self.scan(fs, 0, self.size(), |batch| {
            raise(&mut max, &batch);
            ControlFlow::Continue(())
        });
        self.tolerate_unreadable(scanned).map(|()| max)
    }

    /// The largest timestamp, wherever the time index ends.
    pub(super) fn read_largest_timestamp(&self, fs: &dyn FileSystem) -> io::Result<TimestampOffset> {
        self.largest_timestamp_and_whether_indexed(fs).map(|(max, _)| max)
    }

    /// Makes offset and time index anew from the log. `is_active`: the last time index entry is still to come.
    pub(crate) fn rebuild_indexes(
        &self,
        fs: &dyn FileSystem,
        index_interval: u32,
        is_active: bool,
    ) -> io::Result<()> {
        self.with_offset_index(fs, |index, at| index.reset(at))?;
        self.with_time_index(fs, |index, at| index.reset(at))?;
        {
            let mut times = self.times.lock();
            times.max = Some(self.no_timestamp());
            times.bytes_since_last_index_entry = 0;
        }
        // Entries are right as soon as they are there, and nobody believes the rest.
        self.indexes_wrong.store(false, Ordering::Release);
        let mut result = Ok(());
        let scanned = self.scan(fs, 0, self.size(), |batch| {
            result = self.reindex(fs, &batch.header, batch.position, index_interval);
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        result?;
        self.tolerate_unreadable(scanned)?;
        if !is_active {
            self.on_become_inactive(fs)?;
        }
        self.is_dirty.store(true, Ordering::Release);
        Ok(())
    }
}

fn raise(max: &mut TimestampOffset, batch: &BatchPosition) {
    if batch.header.max_timestamp > max.timestamp {
        let (timestamp, offset) = (batch.header.max_timestamp, batch.header.last_offset());
        *max = TimestampOffset { timestamp, offset };
    }
}

/// Whether an index file holds nonsense, or less than it did a moment ago.
pub(super) fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}
