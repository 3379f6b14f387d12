//! Cleaning one log.
//!
//! Owns: [`CleanerThread`], the memory of one cleaner thread, and the two passes over a log.
//! Invariants: of a key the record with the highest offset in the dirty part stays; records behind the last offset
//! that the map holds all stay. A batch with a wrong checksum is never rewritten: the log is uncleanable then.
//! Concurrency: reads the log's files like any reader; takes no lock of it but to put the new segments in place.
//! Crash: until then only `.cleaned` files exist.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use env::{File, read_exact_at};
use record::filter::{BatchRetention, FilterBuffers, FilterParams, filter_batch};
use record::{Batches, BufferSupplier, LOG_OVERHEAD, MAGIC_VALUE_V2, Record, RecordBatch, Time};

use super::group::group_segments;
use super::offset_map::OffsetMap;
use super::transactions::CleanedTransactionMetadata;
use super::{CleanerConfig, CleanerHost, LogCleaner, LogToClean};
use crate::config::LogConfig;
use crate::error::{StorageError, invalid_data};
use crate::index::relative_offset;
use crate::log::{LastRecord, UnifiedLog};
use crate::segment::LogSegment;
use crate::txn_index::AbortedTxn;

/// How long a throttled cleaner sleeps before it looks whether it is still wanted.
const LONGEST_NAP: Duration = Duration::from_millis(100);

/// Why a log was not cleaned.
#[derive(Debug)]
pub(crate) enum CleanFailure {
    /// The thread is to end.
    Stopping,
    /// Somebody else needs the log, or it has changed.
    Aborted,
    /// The disk failed or is full.
    Storage(StorageError),
    /// The log's contents make no sense; nothing of it was changed.
    Uncleanable(String),
}

impl From<StorageError> for CleanFailure {
    fn from(error: StorageError) -> Self {
        CleanFailure::Storage(error)
    }
}

/// What a cleaning did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CleanerStats {
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub records_read: u64,
    pub records_written: u64,
    /// Records without a key, which a compacted log cannot keep.
    pub invalid_records: u64,
    pub map_bytes_read: u64,
    pub map_records_read: u64,
    /// Of the map's memory, from 0 to 1.
    pub buffer_utilization: f64,
    pub index_time: Duration,
    pub elapsed: Duration,
}

/// One log's cleaning.
pub(crate) struct Job<'a> {
    pub(crate) cleaner: &'a LogCleaner,
    pub(crate) host: &'a dyn CleanerHost,
    pub(crate) log: &'a UnifiedLog,
    pub(crate) config: Arc<LogConfig>,
    pub(crate) now: Time,
}

impl Job<'_> {
    fn check(&self) -> Result<(), CleanFailure> {
        if self.host.is_stopping() {
            return Err(CleanFailure::Stopping);
        }
        // Whoever takes `compact` away wants the records that are left.
        if self.cleaner.manager.is_aborted(self.log.topic_partition()) || !self.log.config().compact {
            return Err(CleanFailure::Aborted);
        }
        Ok(())
    }

    /// Sleeps when reads and writes go beyond the configured rate.
    fn throttle(&self, bytes: usize) -> Result<(), CleanFailure> {
        let now = self.cleaner.env.now().monotonic;
        let Some(sleep) = self.cleaner.throttler.observe(bytes, now) else { return Ok(()) };
        let until = now.saturating_add(sleep);
        loop {
            self.check()?;
            let left = until.saturating_sub(self.cleaner.env.now().monotonic);
            if left.is_zero() {
                return Ok(());
            }
            self.host.sleep(left.min(LONGEST_NAP));
        }
    }

    /// Also those that end below the log's start, which a power cut may set back: their records must not count then.
    fn aborted_transactions(&self, start: i64, end: i64) -> io::Result<Vec<AbortedTxn>> {
        self.log.aborted_transactions(0, start, end)
    }

    fn failed(&self, error: io::Error) -> CleanFailure {
        if error.kind() == io::ErrorKind::InvalidData {
            return CleanFailure::Uncleanable(error.to_string());
        }
        CleanFailure::Storage(self.log.fail("Failed to clean up log for", error))
    }

    fn unreadable(&self, segment: &LogSegment, position: u32, error: impl std::fmt::Display) -> CleanFailure {
        let path = segment.path(crate::names::LOG_FILE_SUFFIX);
        CleanFailure::Uncleanable(format!("{error}, at position {position} of {}", path.display()))
    }
}

/// What one pass through a group of segments carries along.
struct Group<'a> {
    transactions: &'a mut CleanedTransactionMetadata,
    producers: HashMap<i64, LastRecord>,
    legacy_delete_horizon_ms: i64,
}

/// How the records of one segment are judged.
struct SegmentRules {
    high_watermark: i64,
    /// Tombstones of old formats, which have no delete horizon, still stay.
    retains_legacy_deletes: bool,
}

/// The memory of one cleaner thread. Buffers are large only while a log is cleaned.
pub struct CleanerThread {
    id: usize,
    config: Option<Arc<CleanerConfig>>,
    map: OffsetMap,
    buffer_size: usize,
    read: Vec<u8>,
    write: Vec<u8>,
    buffers: BufferSupplier,
    filter: FilterBuffers,
    stats: CleanerStats,
}

impl CleanerThread {
    /// Threads are numbered from 0.
    pub fn new(id: usize) -> Self {
        CleanerThread {
            id,
            config: None,
            map: OffsetMap::new(0, 0.0, [0; 2]),
            buffer_size: 0,
            read: Vec::new(),
            write: Vec::new(),
            buffers: BufferSupplier::new(),
            filter: FilterBuffers::default(),
            stats: CleanerStats::default(),
        }
    }

    pub fn id(&self) -> usize {
        self.id
    }

    /// Of the last log this thread cleaned.
    pub fn last_stats(&self) -> CleanerStats {
        self.stats
    }

    /// Takes over the settings when they have changed.
    fn configure(&mut self, cleaner: &LogCleaner) {
        let config = cleaner.config();
        if self.config.as_ref().is_some_and(|current| Arc::ptr_eq(current, &config)) {
            return;
        }
        let random = &cleaner.env.random;
        let key = [random.next_u64(), random.next_u64()];
        self.map = OffsetMap::new(config.map_memory(), config.dedupe_buffer_load_factor, key);
        self.buffer_size = config.buffer_size();
        self.config = Some(config);
    }

    /// Cleans a log; returns the offset up to which it is clean.
    pub(crate) fn clean(&mut self, job: &Job<'_>, cleanable: &LogToClean) -> Result<i64, CleanFailure> {
        self.configure(job.cleaner);
        self.stats = CleanerStats::default();
        let result = self.do_clean(job, cleanable);
        self.map.release();
        self.read = Vec::new();
        self.write = Vec::new();
        result
    }

    fn do_clean(&mut self, job: &Job<'_>, cleanable: &LogToClean) -> Result<i64, CleanFailure> {
        let log = job.log;
        let started = job.cleaner.env.now().monotonic;
        let since = |job: &Job<'_>| job.cleaner.env.now().monotonic.saturating_sub(started);
        tracing::debug!("Beginning cleaning of log {}", log.topic_partition());
        let first_dirty = cleanable.first_dirty_offset;
        let first_uncleanable = cleanable.first_uncleanable_offset;
        let legacy_delete_horizon_ms = match log.log_segments(0, first_dirty).last() {
            Some(last) => {
                let modified_ms = last.last_modified_ms(log.fs()).map_err(|e| job.failed(e))?;
                modified_ms.saturating_sub(job.config.delete_retention_ms)
            }
            None => 0,
        };
        self.build_offset_map(job, first_dirty, first_uncleanable)?;
        let end_offset = self.map.latest_offset().saturating_add(1).max(first_dirty);
        self.stats.buffer_utilization = self.map.utilization();
        self.stats.index_time = since(job);
        let segments = log.log_segments(0, end_offset);
        let groups = group_segments(log.fs(), &segments, &job.config, first_uncleanable);
        let mut transactions = CleanedTransactionMetadata::default();
        for segments in groups.map_err(|e| job.failed(e))? {
            let group = Group {
                transactions: &mut transactions,
                producers: log.last_records_of_active_producers(),
                legacy_delete_horizon_ms,
            };
            self.clean_segments(job, &segments, group)?;
        }
        self.stats.elapsed = since(job);
        Ok(end_offset)
    }

    /// Notes the last offset of every key in `[start, end)`, or of as many as the map holds.
    fn build_offset_map(&mut self, job: &Job<'_>, start: i64, end: i64) -> Result<(), CleanFailure> {
        self.map.reset(u64::try_from(end.saturating_sub(start)).unwrap_or(0));
        let dirty = job.log.log_segments(start, end);
        let mut transactions = CleanedTransactionMetadata::default();
        // Not those that ended before: their markers are not met any more, and the producer's next ones would count as
        // aborted with them.
        let aborted = job.log.aborted_transactions(start, start, end).map_err(|e| job.failed(e))?;
        transactions.add_aborted_transactions(aborted);
        for (i, segment) in dirty.iter().enumerate() {
            if self.map_segment(job, segment, start, &mut transactions)? {
                tracing::debug!(
                    "Offset map is full, {i} segments fully mapped, segment with base offset {} is partially mapped",
                    segment.base_offset()
                );
                return Ok(());
            }
            let next = dirty.get(i + 1).map_or(end, |next| next.base_offset());
            self.map.update_latest_offset(next.saturating_sub(1));
        }
        Ok(())
    }

    /// True when the map is full.
    fn map_segment(
        &mut self,
        job: &Job<'_>,
        segment: &LogSegment,
        start: i64,
        transactions: &mut CleanedTransactionMetadata,
    ) -> Result<bool, CleanFailure> {
        let fs = job.log.fs();
        let codecs = &*job.log.context().codecs;
        let file = segment.log_file(fs).map_err(|e| job.failed(e))?;
        let mut position = segment.position_for_offset(fs, start).map_err(|e| job.failed(e))?;
        let size = segment.size();
        while position < size {
            let len = self.fill(job, segment, &*file, position, size)?;
            let unreadable = |e: &dyn std::fmt::Display| job.unreadable(segment, position, e);
            let mut batches = Batches::new(self.read.get(..len).unwrap_or_default());
            for batch in batches.by_ref() {
                let batch = batch.map_err(|e| unreadable(&e))?;
                batch.ensure_valid().map_err(|e| unreadable(&e))?;
                self.stats.map_records_read += u64::try_from(batch.count_or_none().unwrap_or(1)).unwrap_or(0);
                if batch.is_control_batch() {
                    let noted = transactions.on_control_batch(&batch, codecs, &mut self.buffers);
                    noted.map_err(|e| unreadable(&e))?;
                } else if !transactions.on_batch(&batch) {
                    let records = batch.records(codecs, &mut self.buffers).map_err(|e| unreadable(&e))?;
                    for record in records {
                        let record = record.map_err(|e| unreadable(&e))?;
                        let Some(key) = record.key.filter(|_| record.offset >= start) else { continue };
                        if !self.map.put(key, record.offset) {
                            return Ok(true);
                        }
                    }
                }
                if batch.last_offset() >= start {
                    self.map.update_latest_offset(batch.last_offset());
                }
            }
            let read = batches.position() as u32;
            self.stats.map_bytes_read += u64::from(read);
            position += read;
        }
        Ok(false)
    }

    /// Reads at `position` into `read`, at least one whole batch; returns how many bytes are there.
    fn fill(
        &mut self,
        job: &Job<'_>,
        segment: &LogSegment,
        file: &dyn File,
        position: u32,
        size: u32,
    ) -> Result<usize, CleanFailure> {
        job.check()?;
        let available = (size - position) as usize;
        let mut len = available.min(self.buffer_size);
        for _ in 0..2 {
            if self.read.len() < len {
                self.read.resize(len, 0);
            } else if self.read.len() > len.max(self.buffer_size) {
                // What one large batch needed is not kept for the rest of the log.
                self.read.truncate(len.max(self.buffer_size));
                self.read.shrink_to_fit();
            }
            let target = self.read.get_mut(..len).unwrap_or_default();
            read_exact_at(file, target, u64::from(position)).map_err(|e| job.failed(e))?;
            let batch = whole_batch_size(target).ok_or_else(|| {
                let message = format!("{available} bytes are left, fewer than a batch has");
                job.unreadable(segment, position, message)
            })?;
            if batch <= len {
                job.throttle(len)?;
                return Ok(len);
            }
            if batch > available {
                let message =
                    format!("batch size {batch} > {available} bytes left in segment, which may be corrupt");
                return Err(job.unreadable(segment, position, message));
            }
            len = batch;
        }
        Err(job.unreadable(segment, position, "The log changes while it is cleaned"))
    }

    /// Copies what is current of a group of segments into one, which takes their place.
    fn clean_segments(
        &mut self,
        job: &Job<'_>,
        segments: &[Arc<LogSegment>],
        mut group: Group<'_>,
    ) -> Result<(), CleanFailure> {
        let log = job.log;
        let (Some(first), Some(last)) = (segments.first(), segments.last()) else { return Ok(()) };
        let cleaned = log.create_cleaned_segment(first.base_offset(), job.now).map_err(|e| job.failed(e))?;
        let cleaned = Arc::new(cleaned);
        let written = segments.iter().enumerate().try_for_each(|(i, segment)| {
            let next = segments.get(i + 1).map(|next| next.base_offset());
            self.clean_segment(job, segment, next, &cleaned, &mut group)
        });
        let replaced = written.and_then(|()| {
            let complete = || {
                cleaned.on_become_inactive(log.fs())?;
                cleaned.flush(log.fs())?;
                cleaned.set_last_modified_ms(log.fs(), last.last_modified_ms(log.fs())?)
            };
            complete().map_err(|e| job.failed(e))?;
            job.check()?;
            Ok(log.replace_segments(cleaned.clone(), segments, job.cleaner.env.now())?)
        });
        match replaced {
            Ok(true) => {
                tracing::debug!(
                    "Swapped in cleaned segment {} for {} segments of {}",
                    cleaned.base_offset(),
                    segments.len(),
                    log.topic_partition()
                );
                Ok(())
            }
            other => {
                cleaned.close();
                if !cleaned.is_in_use()
                    && let Err(e) = cleaned.discard(log.fs())
                {
                    tracing::warn!("Removing an unfinished segment of {}: {e}", log.topic_partition());
                }
                other.and(Err(CleanFailure::Aborted))
            }
        }
    }

    fn clean_segment(
        &mut self,
        job: &Job<'_>,
        segment: &LogSegment,
        next_base: Option<i64>,
        cleaned: &LogSegment,
        group: &mut Group<'_>,
    ) -> Result<(), CleanFailure> {
        let (log, fs) = (job.log, job.log.fs());
        let upper_bound = match next_base {
            Some(base) => base,
            None => segment.read_next_offset(fs).map_err(|e| job.failed(e))?,
        };
        let aborted = job.aborted_transactions(segment.base_offset(), upper_bound);
        group.transactions.add_aborted_transactions(aborted.map_err(|e| job.failed(e))?);
        let modified_ms = segment.last_modified_ms(fs).map_err(|e| job.failed(e))?;
        let rules = SegmentRules {
            high_watermark: log.high_watermark(),
            retains_legacy_deletes: modified_ms > group.legacy_delete_horizon_ms,
        };
        let file = segment.log_file(fs).map_err(|e| job.failed(e))?;
        let (mut position, size) = (0, segment.size());
        while position < size {
            let len = self.fill(job, segment, &*file, position, size)?;
            let read = std::mem::take(&mut self.read);
            let mut batches = Batches::new(read.get(..len).unwrap_or_default());
            let result = batches.by_ref().try_for_each(|batch| {
                let batch = batch.map_err(|e| job.unreadable(segment, position, e))?;
                self.clean_batch(job, segment, &batch, cleaned, group, &rules)?;
                if self.write.len() >= self.buffer_size { self.write_out(job, cleaned) } else { Ok(()) }
            });
            let consumed = batches.position() as u32;
            self.read = read;
            result?;
            self.stats.bytes_read += u64::from(consumed);
            position += consumed;
        }
        self.write_out(job, cleaned)
    }

    fn clean_batch(
        &mut self,
        job: &Job<'_>,
        segment: &LogSegment,
        batch: &RecordBatch<'_>,
        cleaned: &LogSegment,
        group: &mut Group<'_>,
        rules: &SegmentRules,
    ) -> Result<(), CleanFailure> {
        let unreadable = |e: &dyn std::fmt::Display| {
            let path = segment.path(crate::names::LOG_FILE_SUFFIX);
            CleanFailure::Uncleanable(format!(
                "{e}, in the batch at offset {} of {}",
                batch.base_offset,
                path.display()
            ))
        };
        batch.ensure_valid().map_err(|e| unreadable(&e))?;
        let codecs = &*job.log.context().codecs;
        let now_ms = job.now.wall_ms;
        let can_discard = if batch.is_control_batch() {
            let verdict = group.transactions.on_control_batch(batch, codecs, &mut self.buffers);
            let verdict = verdict.map_err(|e| unreadable(&e))?;
            if let Some(aborted) = verdict.index {
                cleaned.append_aborted(job.log.fs(), aborted).map_err(|e| job.failed(e))?;
            }
            verdict.can_discard
        } else {
            group.transactions.on_batch(batch)
        };
        let horizon_passed = batch.delete_horizon_ms().is_some_and(|horizon| horizon <= now_ms);
        let discards = can_discard && (!batch.is_control_batch() || horizon_passed);
        let is_last_of_producer = batch.has_producer_id()
            && group.producers.get(&batch.producer_id).is_some_and(|last| match last.last_data_offset {
                Some(offset) => batch.last_offset() == offset,
                None => batch.is_control_batch() && batch.producer_epoch == last.producer_epoch,
            });
        let retention = if is_last_of_producer || batch.next_offset() == rules.high_watermark {
            BatchRetention::RetainEmpty
        } else if discards {
            BatchRetention::Delete
        } else {
            BatchRetention::DeleteEmpty
        };
        let params = FilterParams {
            retention,
            contains_marker_for_empty_txn: can_discard && batch.is_control_batch(),
            new_delete_horizon_ms: now_ms.saturating_add(job.config.delete_retention_ms),
        };
        let retains_deletes = if batch.magic >= MAGIC_VALUE_V2 {
            batch.delete_horizon_ms().is_none_or(|horizon| now_ms < horizon)
        } else {
            rules.retains_legacy_deletes
        };
        let is_control = batch.is_control_batch();
        let (map, invalid) = (&self.map, &mut self.stats.invalid_records);
        let retain = |record: &Record<'_>| {
            !discards && (is_control || is_current(map, record, retains_deletes, invalid))
        };
        let out = &mut self.write;
        let filtered = filter_batch(batch, &params, codecs, &mut self.buffers, &mut self.filter, retain, out)
            .map_err(|e| unreadable(&e))?;
        self.stats.records_read += filtered.records_read;
        self.stats.records_written += filtered.records_retained;
        self.stats.bytes_written += filtered.bytes_retained as u64;
        Ok(())
    }

    fn write_out(&mut self, job: &Job<'_>, cleaned: &LogSegment) -> Result<(), CleanFailure> {
        if self.write.is_empty() {
            return Ok(());
        }
        let batches = Batches::new(&self.write).map_while(|batch| batch.ok().map(|batch| *batch.header()));
        if let Some(last) = batches.clone().last()
            && relative_offset(cleaned.base_offset(), last.last_offset()).is_none()
        {
            let message = format!(
                "Offset {} is too far from the base offset {} of its segment",
                last.last_offset(),
                cleaned.base_offset()
            );
            return Err(CleanFailure::Uncleanable(message));
        }
        if cleaned.size() as usize + self.write.len() > i32::MAX as usize {
            return Err(job.failed(invalid_data("Segments of an old format do not fit into one of the new")));
        }
        let bytes = [IoSlice::new(&self.write)];
        cleaned
            .append(job.log.fs(), &bytes, batches, job.config.index_interval_bytes)
            .map_err(|e| job.failed(e))?;
        let len = self.write.len();
        self.write.clear();
        self.write.shrink_to(2 * self.buffer_size);
        job.throttle(len)
    }
}

/// Whether a record of data stays.
fn is_current(map: &OffsetMap, record: &Record<'_>, retains_deletes: bool, invalid: &mut u64) -> bool {
    if record.offset > map.latest_offset() {
        return true;
    }
    let Some(key) = record.key else {
        *invalid += 1;
        return false;
    };
    record.offset >= map.get(key) && (record.value.is_some() || retains_deletes)
}

/// The size that the first batch says it has; `None` when not even that is there.
fn whole_batch_size(bytes: &[u8]) -> Option<usize> {
    let length = i32::from_be_bytes(bytes.get(8..LOG_OVERHEAD)?.try_into().ok()?);
    Some(LOG_OVERHEAD + usize::try_from(length).unwrap_or(0))
}
