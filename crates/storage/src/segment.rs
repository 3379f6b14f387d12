//! One segment: a `.log` file and its indexes.
//!
//! Owns: [`LogSegment`].
//! Invariants: bytes below `size` are whole batches with rising offsets; bytes behind it do not exist for anybody.
//! An index may lag behind the log, never run ahead of it.
//! Concurrency: one writer (the log's lock); readers see `size` only after the bytes are in the file. Files open on
//! demand and close when idle, so that an idle partition holds no descriptor.
//! Crash: unsynced bytes and index entries are lost or torn; `recovery` cuts the one and rebuilds the other.

mod durability;
mod files;
mod lookup;
mod resume;

use std::io::{self, IoSlice};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use env::{File, FileSystem, OpenMode};
use parking_lot::{Mutex, RwLock};
use record::BatchHeader;

use crate::config::LogConfig;
use crate::error::invalid_data;
use crate::index::{At, Index, IndexEntry, Locate, OffsetPosition, TimestampOffset, relative_offset};
use crate::log_dir::sync_failed;
use crate::names::{INDEX_FILE_SUFFIX, LOG_FILE_SUFFIX, TIME_INDEX_FILE_SUFFIX, TXN_INDEX_FILE_SUFFIX};
pub use crate::regions::{BatchPosition, FileSlice, SharedDir, scan_batches};
pub(crate) use crate::segment::files::Stage;
use crate::txn_index::{AbortedTxn, TransactionIndex};

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// `None`: not read from the time index yet.
    max: Option<TimestampOffset>,
    /// Maximum timestamp of the first batch; `None`: not read yet.
    first_batch: Option<i64>,
    /// The batch written last by this process, which readers at the log's end ask for.
    last_batch: Option<BatchPosition>,
    created_ms: i64,
    bytes_since_last_index_entry: u32,
}

struct LogHandle {
    file: Option<Arc<dyn File>>,
    used: bool,
}

pub struct LogSegment {
    dir: Arc<SharedDir>,
    base_offset: i64,
    roll_jitter_ms: i64,
    size: AtomicU32,
    /// What the files' names end with. Held to read while a file is opened by name, to write while they are renamed.
    stage: RwLock<Stage>,
    /// Files were made whose names are not known to be durable.
    has_new_names: AtomicBool,
    /// Contents changed since the last flush.
    is_dirty: AtomicBool,
    /// The same two of the `.log` file alone, which group commit syncs without the indexes.
    has_new_log_name: AtomicBool,
    is_log_dirty: AtomicBool,
    /// The file is longer than its records (`preallocate`).
    is_preallocated: AtomicBool,
    /// An index was found wrong: none is used or written until both are rebuilt.
    indexes_wrong: AtomicBool,
    /// That it holds timestamps of the future was said.
    future_noted: AtomicBool,
    log: Mutex<LogHandle>,
    offset_index: Index<OffsetPosition>,
    time_index: Index<TimestampOffset>,
    txn_index: TransactionIndex,
    times: Mutex<Times>,
}

/// When a segment has had enough.
pub(crate) struct RollParams {
    pub(crate) max_timestamp: i64,
    pub(crate) last_offset: i64,
    pub(crate) size: u32,
    pub(crate) now_ms: i64,
}

impl LogSegment {
    /// A segment whose files are there.
    pub fn existing(dir: Arc<SharedDir>, base_offset: i64, size: u32, now_ms: i64, jitter_ms: i64) -> Self {
        LogSegment {
            dir,
            base_offset,
            roll_jitter_ms: jitter_ms,
            size: AtomicU32::new(size),
            stage: RwLock::new(Stage::InUse),
            has_new_names: AtomicBool::new(true),
            is_dirty: AtomicBool::new(true),
            has_new_log_name: AtomicBool::new(true),
            is_log_dirty: AtomicBool::new(true),
            is_preallocated: AtomicBool::new(false),
            indexes_wrong: AtomicBool::new(false),
            future_noted: AtomicBool::new(false),
            log: Mutex::new(LogHandle { file: None, used: false }),
            offset_index: Index::existing(base_offset),
            time_index: Index::existing(base_offset),
            txn_index: TransactionIndex::existing(),
            times: Mutex::new(Times { created_ms: now_ms, ..Times::default() }),
        }
    }

    /// Makes the `.log` file; index files appear with their first entries. What lies under these names is garbage.
    /// `file_size` is not 0 with `preallocate`: the length the file has at once; records fill it from the front.
    pub fn create(
        fs: &dyn FileSystem,
        dir: Arc<SharedDir>,
        base_offset: i64,
        now_ms: i64,
        jitter_ms: i64,
        file_size: u32,
    ) -> io::Result<Self> {
        let segment = Self::empty(dir, base_offset, now_ms, jitter_ms);
        let file = segment.create_log(fs)?;
        if file_size > 0 {
            file.set_len(u64::from(file_size))?;
            segment.is_preallocated.store(true, Ordering::Release);
        }
        Ok(segment)
    }

    fn empty(dir: Arc<SharedDir>, base_offset: i64, now_ms: i64, jitter_ms: i64) -> Self {
        let segment = LogSegment {
            offset_index: Index::empty(base_offset),
            time_index: Index::empty(base_offset),
            txn_index: TransactionIndex::empty(),
            ..Self::existing(dir, base_offset, 0, now_ms, jitter_ms)
        };
        segment.times.lock().max = Some(segment.no_timestamp());
        segment
    }

    fn create_log(&self, fs: &dyn FileSystem) -> io::Result<Arc<dyn File>> {
        self.file(LOG_FILE_SUFFIX).open(fs, OpenMode::Truncate)
    }

    fn no_timestamp(&self) -> TimestampOffset {
        TimestampOffset { timestamp: -1, offset: self.base_offset }
    }

    pub fn base_offset(&self) -> i64 {
        self.base_offset
    }

    pub fn size(&self) -> u32 {
        self.size.load(Ordering::Acquire)
    }

    pub fn log_file(&self, fs: &dyn FileSystem) -> io::Result<Arc<dyn File>> {
        let mut handle = self.log.lock();
        handle.used = true;
        if let Some(file) = &handle.file {
            return Ok(file.clone());
        }
        let file = self.file(LOG_FILE_SUFFIX).open(fs, OpenMode::ReadWrite)?;
        handle.file = Some(file.clone());
        Ok(file)
    }

    fn with_offset_index<T>(
        &self,
        fs: &dyn FileSystem,
        f: impl FnOnce(&Index<OffsetPosition>, At<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        f(&self.offset_index, At { fs, locate: &self.file(INDEX_FILE_SUFFIX) })
    }

    fn with_time_index<T>(
        &self,
        fs: &dyn FileSystem,
        f: impl FnOnce(&Index<TimestampOffset>, At<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        f(&self.time_index, At { fs, locate: &self.file(TIME_INDEX_FILE_SUFFIX) })
    }

    pub(crate) fn with_txn_index<T>(
        &self,
        fs: &dyn FileSystem,
        f: impl FnOnce(&TransactionIndex, At<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        f(&self.txn_index, At { fs, locate: &self.file(TXN_INDEX_FILE_SUFFIX) })
    }

    /// Whether these records go into a new segment.
    pub(crate) fn should_roll(
        &self,
        fs: &dyn FileSystem,
        config: &LogConfig,
        params: &RollParams,
    ) -> io::Result<bool> {
        let size = self.size();
        if size > config.segment_size_bytes.saturating_sub(params.size)
            || relative_offset(self.base_offset, params.last_offset).is_none()
        {
            return Ok(true);
        }
        if size == 0 {
            return Ok(false);
        }
        let waited = self.time_waited_for_roll(fs, params.now_ms, params.max_timestamp)?;
        if waited > config.max_segment_ms() - self.roll_jitter_ms {
            return Ok(true);
        }
        let max_index = config.max_index_size_bytes;
        let offsets = self.with_offset_index(fs, |index, at| index.is_full(at, max_index));
        let times = self.with_time_index(fs, |index, at| index.is_full(at, max_index));
        // A damaged one is rebuilt.
        Ok(self.believe(offsets.map(Some))?.unwrap_or(false)
            || self.believe(times.map(Some))?.unwrap_or(false))
    }

    /// Time between the first batch and `timestamp`; without timestamps the segment's own age.
    fn time_waited_for_roll(&self, fs: &dyn FileSystem, now_ms: i64, timestamp: i64) -> io::Result<i64> {
        Ok(match self.first_batch_timestamp(fs)? {
            Some(first) => timestamp - first,
            None => now_ms - self.times.lock().created_ms,
        })
    }

    /// The first batch's largest timestamp; `None` when there is no batch or it has none.
    pub(crate) fn first_batch_timestamp(&self, fs: &dyn FileSystem) -> io::Result<Option<i64>> {
        if self.times.lock().first_batch.is_none() {
            let mut first = None;
            let read =
                self.first_batch(fs).map(|batch| first = batch.map(|batch| batch.header.max_timestamp));
            self.tolerate_unreadable(read)?;
            self.times.lock().first_batch = first;
        }
        Ok(self.times.lock().first_batch.filter(|first| *first >= 0))
    }

    /// Bytes of the offset index and of the time index.
    pub(crate) fn index_sizes(&self, fs: &dyn FileSystem) -> io::Result<(u64, u64)> {
        let offsets = self.with_offset_index(fs, |index, at| index.entries(at))?;
        let times = self.with_time_index(fs, |index, at| index.entries(at))?;
        let size = |entries: u32, entry: usize| u64::from(entries) * entry as u64;
        Ok((size(offsets, OffsetPosition::SIZE), size(times, TimestampOffset::SIZE)))
    }

    pub(crate) fn first_batch(&self, fs: &dyn FileSystem) -> io::Result<Option<BatchPosition>> {
        let mut first = None;
        self.scan(fs, 0, self.size(), |batch| {
            first = Some(batch);
            ControlFlow::Break(())
        })?;
        Ok(first)
    }

    /// Writes whole batches at the end. `bufs` together are the bytes of `batches`.
    pub(crate) fn append(
        &self,
        fs: &dyn FileSystem,
        bufs: &[IoSlice<'_>],
        batches: impl Iterator<Item = BatchHeader>,
        index_interval: u32,
    ) -> io::Result<()> {
        let mut position = self.size();
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let end = u32::try_from(len).ok().and_then(|len| position.checked_add(len));
        let end = end.ok_or_else(|| invalid_data("segment would exceed 4 GiB"))?;
        let file = self.log_file(fs)?;
        if let Err(e) = file.write_vectored_at(bufs, u64::from(position)) {
            // Half a batch must not stay: the next start would have to find and cut it.
            file.set_len(u64::from(position)).map_err(sync_failed)?;
            return Err(e);
        }
        let mut times = self.loaded_times(fs)?;
        for batch in batches {
            self.index_batch(fs, &mut times, &batch, position, index_interval)?;
            times.last_batch = Some(BatchPosition { header: batch, position });
            position += batch.size_in_bytes() as u32;
        }
        *self.times.lock() = times;
        self.is_dirty.store(true, Ordering::Release);
        self.is_log_dirty.store(true, Ordering::Release);
        debug_assert_eq!(position, end, "headers and bytes disagree");
        self.size.store(end, Ordering::Release);
        Ok(())
    }

    fn index_batch(
        &self,
        fs: &dyn FileSystem,
        times: &mut Times,
        batch: &BatchHeader,
        position: u32,
        index_interval: u32,
    ) -> io::Result<()> {
        let last_offset = batch.last_offset();
        let mut max = times.max.unwrap_or(self.no_timestamp());
        if batch.max_timestamp > max.timestamp {
            max = TimestampOffset { timestamp: batch.max_timestamp, offset: last_offset };
        }
        times.max = Some(max);
        if position == 0 {
            times.first_batch = Some(batch.max_timestamp);
        }
        if times.bytes_since_last_index_entry > index_interval && !self.indexes_are_wrong() {
            times.bytes_since_last_index_entry = 0;
            self.tolerate(self.with_offset_index(fs, |index, at| {
                index.append(at, OffsetPosition { offset: last_offset, position })
            }))?;
            self.tolerate(self.append_time_index(fs, max))?;
        }
        times.bytes_since_last_index_entry =
            times.bytes_since_last_index_entry.saturating_add(batch.size_in_bytes() as u32);
        Ok(())
    }

    /// The records are safe without their index entries, which stay in memory until there is room again; an index that
    /// takes none because it is damaged is rebuilt.
    fn tolerate(&self, result: io::Result<()>) -> io::Result<()> {
        match result {
            Err(e) if is_full(&e) => Ok(()),
            Err(e) if lookup::is_damage(&e) => {
                self.distrust_indexes(&e.to_string());
                Ok(())
            }
            other => other,
        }
    }

    fn append_time_index(&self, fs: &dyn FileSystem, max: TimestampOffset) -> io::Result<()> {
        self.with_time_index(fs, |index, at| {
            if index.last(at)?.map_or(-1, |last| last.timestamp) < max.timestamp {
                index.append(at, max)?;
            }
            Ok(())
        })
    }

    /// The largest timestamp and a last offset of its batch; timestamp -1 when there is none.
    pub fn max_timestamp_so_far(&self, fs: &dyn FileSystem) -> io::Result<TimestampOffset> {
        Ok(self.loaded_times(fs)?.max.unwrap_or(self.no_timestamp()))
    }

    /// What retention goes by: the largest timestamp, or the file's age.
    pub fn largest_timestamp(&self, fs: &dyn FileSystem) -> io::Result<i64> {
        let max = self.max_timestamp_so_far(fs)?.timestamp;
        if max >= 0 { Ok(max) } else { Ok(fs.metadata(&self.path(LOG_FILE_SUFFIX))?.modified_ms) }
    }

    /// True the first time it is asked.
    pub(crate) fn is_first_sight_of_the_future(&self) -> bool {
        !self.future_noted.swap(true, Ordering::AcqRel)
    }

    /// Calls `f` with every batch that begins at or after `from` and before `to`.
    pub fn scan(
        &self,
        fs: &dyn FileSystem,
        from: u32,
        to: u32,
        f: impl FnMut(BatchPosition) -> ControlFlow<()>,
    ) -> io::Result<()> {
        scan_batches(&*self.log_file(fs)?, from, to, f)
    }

    /// Removes `offset` and everything after it; returns the bytes removed.
    pub(crate) fn truncate_to(&self, fs: &dyn FileSystem, offset: i64, now_ms: i64) -> io::Result<u32> {
        let mapping = self.translate_offset(fs, offset)?;
        self.with_offset_index(fs, |index, at| index.truncate_to(at, offset))?;
        self.with_time_index(fs, |index, at| index.truncate_to(at, offset))?;
        self.with_txn_index(fs, |index, at| index.truncate_to(at, offset))?;
        let removed = match mapping {
            None => 0,
            Some(batch) => {
                let old = self.size();
                // Readers must not be offered bytes that are about to go.
                self.size.store(batch.position, Ordering::Release);
                let file = self.log_file(fs)?;
                file.set_len(u64::from(batch.position))?;
                self.is_log_dirty.store(true, Ordering::Release);
                old - batch.position
            }
        };
        let mut times = *self.times.lock();
        times.bytes_since_last_index_entry = 0;
        times.last_batch = None;
        if self.size() == 0 {
            times.created_ms = now_ms;
            times.first_batch = None;
        }
        times.max = Some(self.read_largest_timestamp(fs)?);
        *self.times.lock() = times;
        // What was cut must not come back behind what is written in its place, in the log or in an index.
        let has_new_names = self.flush(fs)?;
        self.has_new_names.store(has_new_names, Ordering::Release);
        Ok(removed)
    }

    /// Gives a segment that was closed its last time index entry if that was lost.
    pub(crate) fn complete_seal(&self, fs: &dyn FileSystem) -> io::Result<()> {
        let max = self.read_largest_timestamp(fs)?;
        self.times.lock().max = Some(max);
        self.is_dirty.store(true, Ordering::Release);
        self.append_time_index(fs, max)?;
        self.with_time_index(fs, |index, at| index.write(at)).map(|_| ())
    }

    /// The largest timestamp of the batches below `end`, of which `known` is the last in the time index; `None` when that is
    /// no batch's: one that is too young would hide everything behind it from lookups.
    fn largest_timestamp_below(
        &self,
        fs: &dyn FileSystem,
        end: u32,
        known: Option<TimestampOffset>,
    ) -> io::Result<Option<TimestampOffset>> {
        let mut max = known.unwrap_or(self.no_timestamp());
        let mut is_known = known.is_none();
        if end > 0 {
            let from = self.position_for_offset(fs, max.offset)?;
            self.scan(fs, from, end, |batch| {
                let header = &batch.header;
                is_known |= known.is_some_and(|known| {
                    (header.base_offset..=header.last_offset()).contains(&known.offset)
                        && header.max_timestamp == known.timestamp
                });
                if header.max_timestamp > max.timestamp {
                    max = TimestampOffset { timestamp: header.max_timestamp, offset: header.last_offset() };
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(is_known.then_some(max))
    }

    pub(crate) fn append_aborted(&self, fs: &dyn FileSystem, txn: AbortedTxn) -> io::Result<()> {
        // Without its entry a reader would take aborted records for committed ones: damage is not passed over here.
        match self.with_txn_index(fs, |index, at| index.append(at, txn)) {
            Err(e) if !is_full(&e) => return Err(e),
            _ => {}
        }
        // The file may be new: it comes with its first entry.
        self.has_new_names.store(true, Ordering::Release);
        self.is_dirty.store(true, Ordering::Release);
        Ok(())
    }

    /// Adds the last time index entry. It may wait in memory with others.
    pub(crate) fn complete_indexes(&self, fs: &dyn FileSystem) -> io::Result<()> {
        let max = self.max_timestamp_so_far(fs)?;
        if self.indexes_are_wrong() {
            return Ok(());
        }
        self.tolerate(self.append_time_index(fs, max))
    }

    pub(crate) fn close_if_idle(&self) {
        {
            let mut handle = self.log.lock();
            if !std::mem::take(&mut handle.used) {
                handle.file = None;
            }
        }
        self.offset_index.close_if_idle();
        self.time_index.close_if_idle();
        self.txn_index.close_if_idle();
    }

    pub(crate) fn close(&self) {
        self.log.lock().file = None;
        self.offset_index.close();
        self.time_index.close();
        self.txn_index.close();
    }

    /// Starts the indexes and the timestamps over; `recovery` fills them.
    pub(crate) fn reset_indexes(&self, fs: &dyn FileSystem) -> io::Result<()> {
        self.with_offset_index(fs, |index, at| index.reset(at))?;
        self.with_time_index(fs, |index, at| index.reset(at))?;
        self.with_txn_index(fs, |index, at| index.reset(at))?;
        let mut times = self.times.lock();
        times.max = Some(self.no_timestamp());
        times.first_batch = None;
        times.bytes_since_last_index_entry = 0;
        Ok(())
    }

    /// As [`LogSegment::append`] for a batch that is in the file already.
    pub(crate) fn reindex(
        &self,
        fs: &dyn FileSystem,
        batch: &BatchHeader,
        position: u32,
        index_interval: u32,
    ) -> io::Result<()> {
        let mut times = *self.times.lock();
        self.index_batch(fs, &mut times, batch, position, index_interval)?;
        *self.times.lock() = times;
        Ok(())
    }
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
