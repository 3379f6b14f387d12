//! Opening a log.
//!
//! Owns: [`UnifiedLog::open`]: what a directory's files mean, and the offsets a log comes up with.
//! Invariants: after a clean shutdown no segment is read; after another, segments from the recovery point on are.
//! Files with the suffixes `.deleted` and `.cleaned` are removed, `.swap` files take their place.
//! Concurrency: nobody else uses the directory yet.
//! Crash: every step can be repeated.

mod resume;

use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use env::FileSystem;
use parking_lot::Mutex;
use protocol::Uuid;
use record::{Time, TopicPartition};

use super::group_commit::GroupCommit;
use super::recovery::{Recovered, Recovery, Resume, rebuild_producer_state};
use super::{UnifiedLog, Writer, leftovers};
use crate::config::LogConfig;
use crate::context::{LogContext, LogDir};
use crate::epoch_cache::LeaderEpochCache;
use crate::error::{LogDirError, invalid_data};
use crate::log_dir::sync_dir;
use crate::names::{
    self, INDEX_FILE_SUFFIX, LOG_FILE_SUFFIX, PRODUCER_SNAPSHOT_FILE_SUFFIX, TIME_INDEX_FILE_SUFFIX,
    TXN_INDEX_FILE_SUFFIX, parse_offset,
};
use crate::offsets::{LogOffsetMetadata, OffsetCell};
use crate::producer::{ProducerStateManager, ignore_missing};
use crate::segment::{LogSegment, SharedDir, is_full};
use resume::trim_blank_tail;

/// What is known of a log from outside its directory.
#[derive(Clone, Debug)]
pub struct OpenParams {
    pub config: Arc<LogConfig>,
    /// From `log-start-offset-checkpoint`; 0 when it says nothing.
    pub log_start_offset: i64,
    /// From `recovery-point-offset-checkpoint`; `None` when it says nothing.
    pub recovery_point: Option<i64>,
    pub had_clean_shutdown: bool,
    pub topic_id: Option<Uuid>,
    /// Below this offset everything is known to have been synced and no offset is missing: a log that recovery would cut
    /// there is refused as it is. 0 = nothing is known.
    pub durable_end: i64,
    /// The directory does not exist yet.
    pub is_new: bool,
}

struct Loader<'a> {
    context: &'a LogContext,
    fs: &'a dyn FileSystem,
    dir: Arc<SharedDir>,
    path: PathBuf,
    partition: &'a TopicPartition,
    params: &'a OpenParams,
    now: Time,
    segments: Vec<Arc<LogSegment>>,
    /// Segments from this base on were recovered: their indexes are new.
    recovered_from: i64,
    epochs: LeaderEpochCache,
    producers: ProducerStateManager,
}

struct Offsets {
    log_start: i64,
    recovery_point: i64,
    log_end: i64,
}

impl UnifiedLog {
    /// Opens, and where needed makes or recovers, the log of `partition` in `path`, a directory in `log_dir`.
    pub fn open(
        context: &Arc<LogContext>,
        log_dir: &Arc<LogDir>,
        path: PathBuf,
        partition: TopicPartition,
        params: OpenParams,
        now: Time,
    ) -> Result<Arc<UnifiedLog>, LogDirError> {
        let fs = &*context.env.fs;
        let fail = |e| log_dir.fail("Error while loading log", &path, e);
        log_dir.check_online()?;
        let mut loader = Loader {
            context,
            fs,
            dir: SharedDir::new(path.clone()),
            path: path.clone(),
            partition: &partition,
            params: &params,
            now,
            segments: Vec::new(),
            recovered_from: i64::MAX,
            epochs: LeaderEpochCache::default(),
            producers: ProducerStateManager::default(),
        };
        let offsets = loader.load().map_err(fail)?;
        let stored_id = if params.is_new { None } else { loader.read_topic_id().map_err(fail)? };
        if let (Some(stored), Some(wanted)) = (stored_id, params.topic_id)
            && stored != wanted
        {
            return Err(LogDirError::InconsistentTopicId(format!(
                "Tried to assign topic ID {wanted} to log for topic partition {partition}, but log already contained \
                 topic ID {stored}"
            )));
        }
        let Loader { dir, segments, epochs, producers, .. } = loader;
        let topic_id = stored_id.or(params.topic_id);
        let metadata_dirty = stored_id.is_none() && topic_id.is_some();
        let log = Arc::new_cyclic(|this: &Weak<UnifiedLog>| UnifiedLog {
            this: this.clone(),
            context: context.clone(),
            log_dir: log_dir.clone(),
            dir,
            topic_partition: partition.clone(),
            topic_id: Mutex::new(topic_id),
            metadata_dirty: AtomicBool::new(metadata_dirty),
            metadata_unsynced: AtomicBool::new(!params.had_clean_shutdown),
            config: ArcSwap::new(params.config.clone()),
            segments: ArcSwap::from_pointee(segments),
            log_end: OffsetCell::new(LogOffsetMetadata::offset_only(offsets.log_end)),
            high_watermark: OffsetCell::new(LogOffsetMetadata::offset_only(offsets.log_start)),
            first_unstable: OffsetCell::new(LogOffsetMetadata::offset_only(-1)),
            log_start_offset: AtomicI64::new(offsets.log_start),
            recovery_point: AtomicI64::new(offsets.recovery_point),
            group_commit: GroupCommit::new(offsets.recovery_point),
            last_flushed_ms: AtomicI64::new(now.wall_ms),
            dir_synced: AtomicBool::new(params.had_clean_shutdown && !params.is_new),
            epochs: Mutex::new(epochs),
            unsynced_snapshots: Mutex::default(),
            writer: Mutex::new(Writer { producers, closed: false }),
            tail_checked: AtomicBool::new(params.is_new || !params.had_clean_shutdown),
            flushing: Mutex::new(()),
            successor: std::sync::OnceLock::new(),
        });
        log.set_log_end(offsets.log_end);
        log.update_first_unstable_offset(&log.writer.lock());
        if !params.had_clean_shutdown {
            log.demand_sync(params.config.flush_messages);
        }
        Ok(log)
    }
}

/// On a full disk a start goes on without files that only make the next one faster.
fn tolerate_full<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(e) if is_full(&e) => {
            tracing::warn!("{e}; the log is recovered without this file");
            Ok(None)
        }
        other => other.map(Some),
    }
}

impl Loader<'_> {
    fn load(&mut self) -> io::Result<Offsets> {
        if self.params.is_new {
            self.fs.create_dir_all(&self.path)?;
            return self.begin_at(self.params.log_start_offset);
        }
        let mut files = self.list()?;
        if leftovers::settle(self.fs, &self.path, &files)? {
            files = self.list()?;
        }
        let snapshots = files.iter().filter(|name| name.ends_with(PRODUCER_SNAPSHOT_FILE_SUFFIX));
        self.producers = ProducerStateManager::new(snapshots.filter_map(|name| parse_offset(name)).collect());
        self.epochs = self.load_epochs()?;
        let damaged = self.load_segments(&files)?;
        let first = self.segments.first().map_or(0, |segment| segment.base_offset());
        self.producers.remove_snapshots_below(self.fs, &self.path, first)?;
        let last = self.segments.last().map(|last| last.base_offset());
        let mut known_end =
            self.end_after_clean_shutdown().filter(|_| !damaged.iter().any(|base| Some(*base) == last));
        if !self.params.had_clean_shutdown {
            known_end = self.recover(self.params.recovery_point.unwrap_or(0), &damaged)?;
        } else if let (None, Some(last)) = (known_end, last) {
            tracing::warn!(
                "Recovery point, producer snapshot and indexes of {} are not as a clean shutdown leaves them; its last \
                 segment is recovered",
                self.partition
            );
            known_end = self.recover(last, &damaged)?;
        }
        for base in damaged {
            self.rebuild_indexes(base)?;
        }
        let mut log_end = match (known_end, self.segments.last()) {
            (Some(end), _) => end,
            (None, Some(last)) => last.read_next_offset(self.fs)?,
            (None, None) => self.params.log_start_offset,
        };
        if log_end < self.params.log_start_offset && !self.segments.is_empty() {
            log_end = self.start_anew(log_end)?;
        }
        if self.segments.is_empty() {
            return self.begin_at(log_end);
        }
        let offsets = self.finish(log_end);
        // Descriptors are opened again by those who need them.
        self.segments.iter().for_each(|segment| segment.close());
        offsets
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let entries = self.fs.list(&self.path)?;
        Ok(entries.into_iter().filter(|e| !e.is_dir).filter_map(|e| e.name.into_string().ok()).collect())
    }

    /// Records below the recovery point are not this start's to judge: bytes that are no batch there concern those who
    /// read them.
    fn tolerate_damage(&self, result: io::Result<()>) -> io::Result<()> {
        match result {
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                tracing::warn!("Not all segments of {} are readable: {e}", self.partition);
                Ok(())
            }
            other => other,
        }
    }

    /// A damaged leader epoch file is rebuilt from the log: [`Loader::complete_epochs`].
    fn load_epochs(&self) -> io::Result<LeaderEpochCache> {
        match LeaderEpochCache::load(self.fs, &self.path) {
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                tracing::warn!("{e}; leader epochs are read from the log of {} again", self.partition);
                Ok(LeaderEpochCache::default())
            }
            other => other,
        }
    }

    /// An empty log.
    fn begin_at(&mut self, offset: i64) -> io::Result<Offsets> {
        let segment = LogSegment::create(
            self.fs,
            self.dir.clone(),
            offset,
            self.now.wall_ms,
            self.jitter(),
            self.params.config.initial_file_size(),
        )?;
        self.segments = vec![Arc::new(segment)];
        self.producers.set_map_end_offset(offset);
        Ok(Offsets { log_start: offset, recovery_point: offset, log_end: offset })
    }

    fn jitter(&self) -> i64 {
        self.params.config.random_segment_jitter(self.context.env.random.next_u64())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        ignore_missing(self.fs.remove_file(&self.path.join(name)))
    }

    /// Makes the segment list; returns the bases of segments whose indexes are missing or wrong.
    fn load_segments(&mut self, files: &[String]) -> io::Result<Vec<i64>> {
        let names: BTreeSet<&str> = files.iter().map(String::as_str).collect();
        let mut damaged = Vec::new();
        for name in files {
            let Some(base) = parse_offset(name) else { continue };
            let log = names::segment_file(base, LOG_FILE_SUFFIX);
            let is_index = [INDEX_FILE_SUFFIX, TIME_INDEX_FILE_SUFFIX, TXN_INDEX_FILE_SUFFIX]
                .iter()
                .any(|suffix| name.ends_with(suffix));
            if is_index && !names.contains(log.as_str()) {
                tracing::warn!("Found an orphaned index file {name} of {}", self.partition);
                self.remove(name)?;
            }
            if *name != log {
                continue;
            }
            let metadata = self.fs.metadata(&self.path.join(name))?;
            let size = u32::try_from(metadata.len).ok().filter(|size| i32::try_from(*size).is_ok());
            let size = size.ok_or_else(|| invalid_data(format!("{name} is longer than 2 GiB")))?;
            let segment = LogSegment::existing(self.dir.clone(), base, size, self.now.wall_ms, self.jitter());
            if self.params.had_clean_shutdown {
                segment.set_durable();
            }
            let has = |suffix: &str| names.contains(names::segment_file(base, suffix).as_str());
            let txns_wrong = has(TXN_INDEX_FILE_SUFFIX)
                && !segment.with_txn_index(self.fs, |index, at| index.is_sound(at, base))?;
            // Its last stop was clean, and yet the file is as long as when it was made.
            let is_untrimmed =
                self.params.had_clean_shutdown && size > 0 && size == self.params.config.initial_file_size();
            if txns_wrong || is_untrimmed || (size > 0 && !has(INDEX_FILE_SUFFIX)) {
                damaged.push(base);
            }
            self.segments.push(Arc::new(segment));
        }
        self.segments.sort_by_key(|segment| segment.base_offset());
        Ok(damaged)
    }

    /// The end of a log that was closed, without reading it: the checkpoint and the newest producer snapshot, both
    /// written at the close, must agree.
    fn end_after_clean_shutdown(&self) -> Option<i64> {
        let last = self.segments.last().filter(|_| self.params.had_clean_shutdown)?;
        if last.size() == 0 {
            return Some(last.base_offset());
        }
        let end = self.params.recovery_point?;
        (end > last.base_offset() && self.producers.latest_snapshot_offset() == Some(end)).then_some(end)
    }

    /// Reads the segments that may hold more than the recovery point says is safe; returns where the log ends.
    fn recover(&mut self, recovery_point: i64, damaged: &[i64]) -> io::Result<Option<i64>> {
        let first = self.segments.partition_point(|segment| segment.base_offset() <= recovery_point);
        let unflushed = first.saturating_sub(1);
        let Some(base) = self.segments.get(unflushed).map(|segment| segment.base_offset()) else {
            return Ok(None);
        };
        let mut end = base;
        self.recovered_from = base;
        self.segments.iter().take(unflushed).for_each(|segment| segment.set_durable());
        if let Some(sealed) = unflushed.checked_sub(1).and_then(|at| self.segments.get(at)) {
            // The roll that closed it may have come after the last flush.
            if base == recovery_point {
                trim_blank_tail(self.fs, sealed, base)?;
            }
            let sealed = tolerate_full(sealed.complete_seal(self.fs));
            self.tolerate_damage(sealed.map(|_| ()))?;
        }
        let mut resume = self.resume(unflushed, recovery_point, damaged)?;
        // Entries behind are of records that are read again, or of ones that were cut.
        self.epochs.truncate_from_end(resume.map_or(base, |resume| resume.offset));
        let mut index = unflushed;
        while let Some(segment) = self.segments.get(index).cloned() {
            if let Some(previous) =
                index.checked_sub(1).filter(|at| *at >= unflushed).and_then(|at| self.segments.get(at))
            {
                tolerate_full(self.producers.take_snapshot(self.fs, &self.path, false))?;
                tolerate_full(previous.on_become_inactive(self.fs))?;
                previous.close();
            }
            let resume = resume.take();
            self.report_progress(&segment, resume, index - unflushed, self.segments.len() - unflushed);
            let Recovered { cut, is_blank, next_offset } = self.recover_segment(&segment, resume)?;
            end = next_offset;
            index += 1;
            let next_base = self.segments.get(index).map(|next| next.base_offset());
            // Compaction leaves gaps. Elsewhere, behind the recovery point, a gap is what was lost of a segment whose
            // successor had begun; and an overlap is no log at all.
            let follows = next_base.is_none_or(|next| {
                let allows_gap = self.params.config.compact || next <= recovery_point;
                next == next_offset || allows_gap && next > next_offset
            });
            // Of a file that ends in bytes that were never written nothing is missing when the next segment continues it.
            let is_whole = cut == 0 || is_blank && next_base.is_none_or(|next| next == next_offset);
            if !is_whole || !follows {
                tracing::warn!(
                    "Corruption found in segment {} of {}, truncating to offset {next_offset}",
                    segment.base_offset(),
                    self.partition
                );
                self.remove_segments_from(index)?;
            }
        }
        let expiration = self.context.producer_id_expiration_ms();
        self.producers.remove_expired(self.now.wall_ms, expiration);
        if !self.producers.producers().is_empty() {
            tolerate_full(self.producers.take_snapshot(self.fs, &self.path, false))?;
        }
        Ok(Some(end))
    }

    fn rebuild_producers_below(&mut self, segments: usize, offset: i64) -> io::Result<()> {
        rebuild_producer_state(
            self.context,
            self.partition,
            &self.path,
            &mut self.producers,
            self.segments.get(..segments).unwrap_or_default(),
            self.params.log_start_offset,
            offset,
            self.now,
        )
    }

    fn recover_segment(&mut self, segment: &LogSegment, resume: Option<Resume>) -> io::Result<Recovered> {
        Recovery {
            context: self.context,
            partition: self.partition,
            index_interval: self.params.config.index_interval_bytes,
            durable_end: self.params.durable_end,
            flushed_end: match self.params.had_clean_shutdown {
                true => i64::MAX,
                false => self.params.recovery_point.unwrap_or(0),
            },
            epochs: &mut self.epochs,
            producers: &mut self.producers,
        }
        .recover(segment, resume)
    }

    /// Rebuilds the indexes of one segment that no recovery has read.
    fn rebuild_indexes(&mut self, base: i64) -> io::Result<()> {
        let Some(at) = self.segments.iter().position(|segment| segment.base_offset() == base) else {
            return Ok(());
        };
        let Some(segment) = self.segments.get(at).filter(|_| base < self.recovered_from) else {
            return Ok(());
        };
        tracing::error!(
            "Could not find or read an index file corresponding to log file {}, rebuilding index files...",
            names::segment_file(base, LOG_FILE_SUFFIX)
        );
        let before = self.segments.get(..at).unwrap_or_default();
        let interval = self.params.config.index_interval_bytes;
        super::reindex::rebuild(self.context, &self.path, before, segment, interval)?;
        segment.on_become_inactive(self.fs)?;
        segment.close();
        Ok(())
    }

    /// Removes segments behind a cut. At once: nobody reads them yet.
    fn remove_segments_from(&mut self, index: usize) -> io::Result<()> {
        let removed: Vec<_> = self.segments.drain(index.min(self.segments.len())..).collect();
        for segment in &removed {
            tracing::info!(
                "Deleting segment {} of {} as part of log recovery",
                segment.base_offset(),
                self.partition
            );
            segment.remove_files(self.fs)?;
            if self.producers.forget_snapshot(segment.base_offset()) {
                let name = names::segment_file(segment.base_offset(), PRODUCER_SNAPSHOT_FILE_SUFFIX);
                ignore_missing(self.fs.remove_file(&self.path.join(name)))?;
            }
        }
        // They must not come back behind records that take their place.
        if removed.is_empty() { Ok(()) } else { sync_dir(self.fs, &self.path) }
    }

    /// The checkpoint says the log starts behind its end: its files were lost, and what is left is old.
    fn start_anew(&mut self, log_end: i64) -> io::Result<i64> {
        let start = self.params.log_start_offset;
        tracing::warn!(
            "Deleting all segments of {} because logEndOffset ({log_end}) is smaller than logStartOffset {start}. This \
             could happen if segment files were deleted from the file system.",
            self.partition
        );
        self.remove_segments_from(0)?;
        self.epochs.clear();
        self.producers.truncate_fully_and_start_at(self.fs, &self.path, start)?;
        Ok(start)
    }

    fn finish(&mut self, log_end: i64) -> io::Result<Offsets> {
        let first = self.segments.first().map_or(0, |segment| segment.base_offset());
        let log_start = self.params.log_start_offset.max(first);
        if !self.params.had_clean_shutdown && first > self.params.log_start_offset {
            // A killed node may have removed the segments below without making that durable. What is decided from here
            // on, producers above all, holds only while the log does not start lower again.
            sync_dir(self.fs, &self.path)?;
        }
        self.epochs.truncate_from_end(log_end);
        let completed = self.complete_epochs(log_start, log_end);
        self.tolerate_damage(completed)?;
        self.epochs.truncate_from_start(self.params.log_start_offset);
        let bases: BTreeSet<i64> = self.segments.iter().map(|segment| segment.base_offset()).collect();
        self.producers.remove_stray_snapshots(self.fs, &self.path, &bases)?;
        if self.params.had_clean_shutdown || self.producers.map_end_offset() != log_end {
            rebuild_producer_state(
                self.context,
                self.partition,
                &self.path,
                &mut self.producers,
                &self.segments,
                log_start,
                log_end,
                self.now,
            )?;
        }
        let recovery_point = if self.params.had_clean_shutdown {
            log_end
        } else {
            self.params.recovery_point.unwrap_or(0).min(log_end)
        };
        Ok(Offsets { log_start, recovery_point, log_end })
    }

    /// The epoch file may know of a later log start than this start does, or be gone: what it lacks is read from the
    /// batches' headers.
    fn complete_epochs(&mut self, log_start: i64, log_end: i64) -> io::Result<()> {
        let known_from = self.epochs.earliest().map_or(log_end, |entry| entry.start_offset);
        if known_from <= log_start {
            return Ok(());
        }
        if self.params.had_clean_shutdown && self.epochs.is_empty() {
            // Records from before there were epochs have none to lose.
            let last = self.segments.iter().rev().find(|segment| segment.size() > 0);
            let first = last.map_or(Ok(None), |segment| segment.first_batch(self.fs))?;
            if first.is_none_or(|batch| batch.header.partition_leader_epoch < 0) {
                return Ok(());
            }
        }
        let known = std::mem::take(&mut self.epochs);
        let epochs = &mut self.epochs;
        for segment in self.segments.iter().filter(|segment| segment.base_offset() < known_from) {
            segment.scan(self.fs, 0, segment.size(), |batch| {
                let (epoch, base_offset) = (batch.header.partition_leader_epoch, batch.header.base_offset);
                if base_offset >= known_from {
                    return ControlFlow::Break(());
                }
                if epoch >= 0 && epochs.latest_epoch().is_none_or(|latest| epoch > latest) {
                    epochs.assign(epoch, base_offset);
                }
                ControlFlow::Continue(())
            })?;
        }
        for entry in known.entries() {
            epochs.assign(entry.epoch, entry.start_offset);
        }
        Ok(())
    }
}
