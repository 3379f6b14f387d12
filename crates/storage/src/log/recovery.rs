//! Reading segments from end to end: recovery after an unclean stop, and producer state from the log.
//!
//! Owns: the scan that decides where a log ends.
//! Invariants: a batch is kept when it is whole, follows its predecessor and has the right checksum. The first that is
//! not ends the log, whatever follows.
//! Concurrency: one thread per log; several logs at a time.
//! Crash: recovery may be interrupted anywhere and begins again.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use env::{File, read_exact_at};
use record::{AppendOrigin, LOG_OVERHEAD, MAGIC_VALUE_V2, RecordBatch, RecordError, Time, TopicPartition};

use super::append::{ProducerChange, complete_txn, end_txn_marker};
use super::{AppendOptions, UnifiedLog, Writer};
use crate::context::LogContext;
use crate::epoch_cache::LeaderEpochCache;
use crate::error::{StorageError, invalid_data};
use crate::index::relative_offset;
use crate::offsets::LogOffsetMetadata;
use crate::producer::ProducerStateManager;
use crate::segment::LogSegment;

/// Bytes read at once; a batch that is larger is read whole.
const READ_CHUNK: usize = 1 << 20;

/// Offset, size, epoch and magic of a batch; of none are all of these bytes 0.
const MAGIC_END: usize = 17;

/// Where recovery of a segment begins when not at its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resume {
    pub(super) position: u32,
    pub(super) offset: i64,
}

/// What recovery made of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovered {
    /// Bytes that were cut.
    pub(super) cut: u32,
    /// What was cut had never been written.
    pub(super) is_blank: bool,
    /// The offset after the last record.
    pub(super) next_offset: i64,
}

/// Reads whole batches one after the other.
pub(crate) struct BatchReader<'a> {
    file: &'a dyn File,
    buffer: Vec<u8>,
    /// Position in the file of `buffer[0]`.
    start: u64,
    end: u64,
}

impl<'a> BatchReader<'a> {
    pub(crate) fn new(file: &'a dyn File, end: u64) -> Self {
        BatchReader { file, buffer: Vec::new(), start: 0, end }
    }

    /// Makes `buffer` hold `[position, position + len)`, or as much as there is.
    fn fill(&mut self, position: u64, len: usize) -> io::Result<()> {
        let buffered = self.start + self.buffer.len() as u64;
        if position >= self.start && position + len as u64 <= buffered {
            return Ok(());
        }
        let available = usize::try_from(self.end - position).unwrap_or(usize::MAX);
        // Bounded by the file: a length field cannot make this allocate more than there is to read.
        let want = len.max(READ_CHUNK).min(available);
        let kept = usize::try_from(position - self.start).ok().filter(|at| *at <= self.buffer.len());
        match kept {
            Some(at) => drop(self.buffer.drain(..at)),
            None => self.buffer.clear(),
        }
        let have = self.buffer.len();
        self.start = position;
        if want > have {
            self.buffer.resize(want, 0);
            let rest = self.buffer.get_mut(have..).unwrap_or_default();
            read_exact_at(self.file, rest, position + have as u64)?;
        }
        Ok(())
    }

    /// Whether nothing was ever written at `position`: a preallocated file, or one that grew before its bytes arrived.
    fn is_blank(&mut self, position: u64) -> io::Result<bool> {
        self.fill(position, MAGIC_END)?;
        let at = usize::try_from(position - self.start).map_err(|_| io::ErrorKind::InvalidData)?;
        let head = self.buffer.get(at..).unwrap_or_default();
        Ok(head.iter().take(MAGIC_END).all(|byte| *byte == 0))
    }

    /// The batch at `position`; `None` when it is cut off.
    pub(crate) fn batch(
        &mut self,
        position: u64,
    ) -> io::Result<Result<Option<RecordBatch<'_>>, RecordError>> {
        self.fill(position, 256)?;
        let at = usize::try_from(position - self.start).map_err(|_| io::ErrorKind::InvalidData)?;
        let length = self.buffer.get(at + 8..at + LOG_OVERHEAD).and_then(|bytes| bytes.try_into().ok());
        let Some(length) = length.map(i32::from_be_bytes) else { return Ok(Ok(None)) };
        let size = LOG_OVERHEAD + usize::try_from(length).unwrap_or(0);
        if position + size as u64 <= self.end {
            self.fill(position, size)?;
        }
        let at = usize::try_from(position - self.start).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(RecordBatch::first(self.buffer.get(at..).unwrap_or_default()))
    }
}

/// What a scan carries from segment to segment.
pub(super) struct Recovery<'a> {
    pub(super) context: &'a LogContext,
    pub(super) partition: &'a TopicPartition,
    pub(super) index_interval: u32,
    /// 0 where nothing is known of it, and for logs that may be compacted.
    pub(super) durable_end: i64,
    /// Below this offset the next start will believe the indexes.
    pub(super) flushed_end: i64,
    pub(super) epochs: &'a mut LeaderEpochCache,
    pub(super) producers: &'a mut ProducerStateManager,
}

impl Recovery<'_> {
    /// Rebuilds a segment's indexes from its log and cuts it at the first bad byte.
    pub(super) fn recover(&mut self, segment: &LogSegment, resume: Option<Resume>) -> io::Result<Recovered> {
        let fs = &*self.context.env.fs;
        if resume.is_none() {
            if segment.base_offset() < self.flushed_end {
                segment.begin_rebuild(fs)?;
            } else {
                segment.reset_indexes(fs)?;
            }
        }
        let file = segment.log_file(fs)?;
        let size = segment.size();
        let mut reader = BatchReader::new(&*file, u64::from(size));
        let begin = Resume { position: 0, offset: segment.base_offset() };
        let Resume { mut position, offset: mut next_offset } = resume.unwrap_or(begin);
        let mut is_blank = false;
        while position < size {
            if reader.is_blank(u64::from(position))? {
                is_blank = true;
                tracing::info!(
                    "Nothing was written to {} behind byte offset {position}. The log ends there.",
                    segment.path(crate::names::LOG_FILE_SUFFIX).display()
                );
                break;
            }
            let batch = match reader.batch(u64::from(position))? {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(e) => {
                    self.report(segment, position, &e.to_string());
                    break;
                }
            };
            if let Err(why) = self.check(segment, &batch, next_offset) {
                self.report(segment, position, &why);
                break;
            }
            let header = *batch.header();
            if header.magic >= MAGIC_VALUE_V2 {
                let epoch = header.partition_leader_epoch;
                if epoch >= 0 && self.epochs.latest_epoch().is_none_or(|latest| epoch > latest) {
                    self.epochs.assign(epoch, header.base_offset);
                }
                let replayed =
                    replay_producer(self.context, self.partition, self.producers, &batch, |p, txn| {
                        complete_txn(p, segment, fs, txn)
                    })?;
                if let Err(e) = replayed {
                    self.report(segment, position, &e.to_string());
                    break;
                }
            }
            segment.reindex(fs, &header, position, self.index_interval)?;
            next_offset = header.next_offset();
            self.producers.set_map_end_offset(next_offset);
            position += header.size_in_bytes() as u32;
        }
        if position < size && next_offset < self.durable_end {
            return Err(io::Error::other(format!(
                "{} is damaged at byte {position}, offset {next_offset}, although everything before offset {} was synced. \
                 Restore the file from a copy; to give up what follows, cut it there by hand",
                segment.path(crate::names::LOG_FILE_SUFFIX).display(),
                self.durable_end
            )));
        }
        segment.cut(fs, position)?;
        segment.finish_rebuild(fs)?;
        segment.complete_indexes(fs)?;
        Ok(Recovered { cut: size - position, is_blank, next_offset })
    }

    fn check(&self, segment: &LogSegment, batch: &RecordBatch<'_>, next_offset: i64) -> Result<(), String> {
        let last_offset = batch.last_offset();
        // A base offset has no checksum. Where nothing is compacted it leaves no gap either.
        let gap = batch.base_offset > next_offset && self.durable_end > 0;
        if gap || batch.base_offset < next_offset || last_offset < batch.base_offset {
            return Err(format!(
                "offsets {} to {last_offset} do not follow {next_offset}",
                batch.base_offset
            ));
        }
        if relative_offset(segment.base_offset(), last_offset).is_none() {
            return Err(format!("offset {last_offset} is too far from the segment's base"));
        }
        // Below the recovery point too: the reference raises it to the log's start whatever was synced, and the bytes
        // are at hand.
        batch.ensure_valid().map_err(|e| e.to_string())?;
        Ok(())
    }

    fn report(&self, segment: &LogSegment, position: u32, why: &str) {
        tracing::warn!(
            "Found invalid messages in log segment {} at byte offset {position}: {why}. The log ends there.",
            segment.path(crate::names::LOG_FILE_SUFFIX).display()
        );
    }
}

/// Replays one batch of the log into the producer state.
fn replay_producer(
    context: &LogContext,
    partition: &TopicPartition,
    producers: &mut ProducerStateManager,
    batch: &RecordBatch<'_>,
    complete: impl FnOnce(&mut ProducerStateManager, &crate::producer::CompletedTxn) -> io::Result<()>,
) -> io::Result<Result<(), RecordError>> {
    if !batch.has_producer_id() {
        return Ok(Ok(()));
    }
    let marker = if batch.is_control_batch() {
        match context.with_buffers(|buffers| end_txn_marker(batch, &*context.codecs, buffers)) {
            Ok(marker) => marker,
            Err(e) => return Ok(Err(e)),
        }
    } else {
        None
    };
    let (mut updated, mut completed) = (Vec::new(), Vec::new());
    let change = ProducerChange {
        partition,
        first: LogOffsetMetadata::offset_only(batch.base_offset),
        marker,
        options: AppendOptions::new(-1, AppendOrigin::Replication),
    };
    if let Err(e) = change.apply(producers, batch.header(), &mut updated, &mut completed) {
        return Ok(Err(RecordError::Invalid(e.to_string().into())));
    }
    for update in updated {
        producers.update(update);
    }
    match completed.first() {
        Some(txn) => complete(producers, txn).map(Ok),
        None => Ok(Ok(())),
    }
}

/// Brings the producer state to `last_offset`: from the newest usable snapshot, and the log behind it. After a clean
/// shutdown that is the snapshot alone, and no record is read.
pub(super) fn rebuild_producer_state(
    context: &LogContext,
    partition: &TopicPartition,
    dir: &Path,
    producers: &mut ProducerStateManager,
    segments: &[Arc<LogSegment>],
    log_start_offset: i64,
    last_offset: i64,
    now: Time,
) -> io::Result<()> {
    let fs = &*context.env.fs;
    let wanted: Vec<i64> = segments.iter().rev().take(2).map(|segment| segment.base_offset()).collect();
    let was_empty = producers.is_empty() && producers.map_end_offset() >= last_offset;
    let expiration = context.producer_id_expiration_ms();
    producers.truncate_and_reload(fs, dir, log_start_offset, last_offset, now.wall_ms, expiration)?;
    if last_offset > producers.map_end_offset() && !was_empty {
        let first = segments.partition_point(|segment| segment.base_offset() <= producers.map_end_offset());
        for segment in segments.iter().skip(first.saturating_sub(1)) {
            if segment.base_offset() >= last_offset {
                break;
            }
            let start = segment.base_offset().max(producers.map_end_offset()).max(log_start_offset);
            producers.set_map_end_offset(start);
            if wanted.contains(&segment.base_offset()) && start == segment.base_offset() {
                producers.take_snapshot(fs, dir, false)?;
            }
            match replay_segment(context, partition, producers, segment, start, last_offset) {
                // Nobody gets to read what follows in this segment either.
                Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                    tracing::warn!("Producers of {partition} are known only in part: {e}");
                }
                other => other?,
            }
        }
    }
    producers.set_map_end_offset(last_offset);
    producers.take_snapshot(fs, dir, false)?;
    Ok(())
}

/// Replays the batches of `[from, to)`.
fn replay_segment(
    context: &LogContext,
    partition: &TopicPartition,
    producers: &mut ProducerStateManager,
    segment: &LogSegment,
    from: i64,
    to: i64,
) -> io::Result<()> {
    let fs = &*context.env.fs;
    let Some(first) = segment.translate_offset(fs, from)? else { return Ok(()) };
    let file = segment.log_file(fs)?;
    let mut failure = Ok(());
    let mut next_offset = segment.base_offset();
    segment.scan(fs, first.position, segment.size(), |at| {
        // Behind what was flushed, a torn base offset may look like one of long ago.
        if at.header.base_offset >= to || at.header.base_offset < next_offset {
            return ControlFlow::Break(());
        }
        next_offset = at.header.next_offset();
        if !at.header.has_producer_id() {
            return ControlFlow::Continue(());
        }
        failure = replay_at(context, partition, producers, &*file, at);
        if failure.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    failure
}

fn replay_at(
    context: &LogContext,
    partition: &TopicPartition,
    producers: &mut ProducerStateManager,
    file: &dyn File,
    at: crate::segment::BatchPosition,
) -> io::Result<()> {
    // A data batch's header says all; only a marker's record must be read.
    let mut bytes = at.header.encode().to_vec();
    if at.header.is_control_batch() {
        bytes = vec![0; at.header.size_in_bytes()];
        read_exact_at(file, &mut bytes, u64::from(at.position))?;
    } else {
        let records = i32::try_from(bytes.len() - LOG_OVERHEAD).unwrap_or(0);
        if let Some(length) = bytes.get_mut(8..LOG_OVERHEAD) {
            length.copy_from_slice(&records.to_be_bytes());
        }
    }
    let batch = RecordBatch::first(&bytes).map_err(|e| invalid_data(e.to_string()))?;
    let Some(batch) = batch else { return Ok(()) };
    let replayed = replay_producer(context, partition, producers, &batch, |producers, txn| {
        producers.complete_txn(txn);
        Ok(())
    })?;
    replayed.map_err(|e| invalid_data(e.to_string()))
}

impl UnifiedLog {
    pub(super) fn rebuild_producers(
        &self,
        writer: &mut Writer,
        last_offset: i64,
        now: Time,
    ) -> Result<(), StorageError> {
        let rebuilt = rebuild_producer_state(
            &self.context,
            &self.topic_partition,
            &self.dir.path(),
            &mut writer.producers,
            &self.segments.load(),
            self.log_start_offset(),
            last_offset,
            now,
        );
        rebuilt
            .map_err(|e| self.fail("Error while rebuilding producer state of", super::truncate::half_done(e)))
    }
}
