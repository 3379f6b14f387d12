//! One partition's log.
//!
//! Owns: [`UnifiedLog`]: its segments, end, high watermark, start, leader epochs and producer state.
//! Invariants: log start ≤ high watermark ≤ end; recovery point ≤ end; the last segment is the active one; segments do
//! not overlap; the epoch cache and the producer state describe exactly the records below the end.
//! Concurrency: `writer` serialises everything that changes the log. Readers use the published segment list, ends and
//! sizes and take no lock that is held across IO.
//! Crash: records up to the recovery point are there; behind it recovery keeps every whole, valid batch up to the
//! first bad byte.

mod append;
mod flush;
mod group_commit;
mod handover;
mod indexes;
mod leftovers;
mod load;
mod offsets;
mod read;
pub(crate) mod recovery;
mod reindex;
mod replace;
mod retention;
mod tail;
mod timestamps;
mod truncate;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use env::FileSystem;
use parking_lot::{Mutex, MutexGuard};
use protocol::Uuid;
use record::{Time, TopicPartition};

pub use self::append::{AppendInfo, AppendOptions};
use self::group_commit::GroupCommit;
pub use self::group_commit::SyncOutcome;
pub(crate) use self::group_commit::SyncQueue;
pub use self::handover::FollowError;
pub use self::load::OpenParams;
pub use self::read::{AbortedTransaction, FetchDataInfo, FetchIsolation};
pub(crate) use self::replace::LastRecord;
pub use self::retention::LogStartOffsetIncrementReason;
pub use self::timestamps::{
    EARLIEST_LOCAL_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP, EARLIEST_TIMESTAMP, LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP, MAX_TIMESTAMP, TimestampAndOffset,
};
use crate::checkpoint::{self, EpochEntry};
use crate::config::LogConfig;
use crate::context::{LogContext, LogDir, Task};
use crate::epoch_cache::LeaderEpochCache;
use crate::error::{LogDirError, StorageError};
use crate::log_dir::sync_failed;
use crate::names;
use crate::offsets::{LogOffsetMetadata, OffsetCell};
use crate::producer::ProducerStateManager;
use crate::segment::{LogSegment, SharedDir, Stage};

/// What the writer lock guards besides the order of changes.
pub(crate) struct Writer {
    pub(crate) producers: ProducerStateManager,
    closed: bool,
}

pub struct UnifiedLog {
    this: Weak<UnifiedLog>,
    context: Arc<LogContext>,
    log_dir: Arc<LogDir>,
    dir: Arc<SharedDir>,
    topic_partition: TopicPartition,
    topic_id: Mutex<Option<Uuid>>,
    /// Whether `partition.metadata` is still to be written.
    metadata_dirty: AtomicBool,
    /// Whether it was written, but is not known to be durable.
    metadata_unsynced: AtomicBool,
    config: ArcSwap<LogConfig>,
    segments: ArcSwap<Vec<Arc<LogSegment>>>,
    log_end: OffsetCell,
    high_watermark: OffsetCell,
    /// Offset -1: there is none.
    first_unstable: OffsetCell,
    log_start_offset: AtomicI64,
    recovery_point: AtomicI64,
    group_commit: GroupCommit,
    /// Wall clock, ms.
    last_flushed_ms: AtomicI64,
    /// The name of the directory itself is durable.
    dir_synced: AtomicBool,
    epochs: Mutex<LeaderEpochCache>,
    /// Producer snapshots of rolls that are not durable yet.
    unsynced_snapshots: Mutex<Vec<i64>>,
    writer: Mutex<Writer>,
    /// The end of the log's file is what this process or its recovery wrote.
    tail_checked: AtomicBool,
    /// Serialises flushes: taken before `writer`, and held across IO.
    flushing: Mutex<()>,
    /// The log that took this one's place, when the partition moved to another directory.
    successor: OnceLock<Arc<UnifiedLog>>,
}

/// One line of DescribeProducers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    pub producer_id: i64,
    pub producer_epoch: i32,
    pub last_sequence: i32,
    pub last_timestamp: i64,
    pub coordinator_epoch: i32,
    /// -1: no open transaction.
    pub current_txn_start_offset: i64,
}

/// A log's offsets at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOffsetSnapshot {
    pub log_start_offset: i64,
    pub log_end_offset: LogOffsetMetadata,
    pub high_watermark: LogOffsetMetadata,
    pub last_stable_offset: LogOffsetMetadata,
}

impl UnifiedLog {
    pub fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    pub fn topic_id(&self) -> Option<Uuid> {
        *self.topic_id.lock()
    }

    /// The partition's directory as it is now called.
    pub fn dir(&self) -> Arc<Path> {
        self.dir.path()
    }

    /// Which of `log.dirs` it is in.
    pub fn log_dir(&self) -> &Arc<LogDir> {
        &self.log_dir
    }

    /// Whether this is a replica on its way from another log directory.
    pub fn is_future(&self) -> bool {
        names::file_name(&self.dir.path()).is_some_and(|name| name.ends_with(names::FUTURE_DIR_SUFFIX))
    }

    pub fn config(&self) -> Arc<LogConfig> {
        self.config.load_full()
    }

    pub fn update_config(&self, config: Arc<LogConfig>) {
        self.config.store(config);
    }

    /// In the order of their offsets; the last is the active one.
    pub fn segments(&self) -> Arc<Vec<Arc<LogSegment>>> {
        self.segments.load_full()
    }

    pub fn number_of_segments(&self) -> usize {
        self.segments.load().len()
    }

    /// Bytes of all segments.
    pub fn size(&self) -> u64 {
        self.segments.load().iter().map(|segment| u64::from(segment.size())).sum()
    }

    pub fn log_end_offset(&self) -> i64 {
        self.log_end.offset()
    }

    pub fn log_end_offset_metadata(&self) -> LogOffsetMetadata {
        self.log_end.load()
    }

    pub fn log_start_offset(&self) -> i64 {
        self.log_start_offset.load(Ordering::Acquire)
    }

    /// Where the first segment begins: the same as the log start until there are tiers.
    pub fn local_log_start_offset(&self) -> i64 {
        self.log_start_offset()
    }

    pub fn recovery_point(&self) -> i64 {
        self.recovery_point.load(Ordering::Acquire)
    }

    pub fn unflushed_messages(&self) -> i64 {
        self.log_end_offset() - self.recovery_point()
    }

    /// Wall clock of the last flush, ms.
    pub fn last_flush_ms(&self) -> i64 {
        self.last_flushed_ms.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.log_start_offset() == self.log_end_offset()
    }

    /// Whether the log was closed or deleted; appends and reads fail then.
    pub fn is_closed(&self) -> bool {
        self.writer.lock().closed
    }

    pub fn leader_epochs(&self) -> Vec<EpochEntry> {
        self.epochs.lock().entries()
    }

    pub fn latest_epoch(&self) -> Option<i32> {
        self.epochs.lock().latest_epoch()
    }

    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        self.epochs.lock().epoch_for_offset(offset)
    }

    /// The greatest known epoch not above `epoch`, with its end.
    pub fn end_offset_for_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        self.epochs.lock().end_offset_for(epoch, self.log_end_offset())
    }

    /// A new leader's first act.
    pub fn assign_epoch_start_offset(&self, epoch: i32, start_offset: i64) {
        self.epochs.lock().assign(epoch, start_offset);
    }

    pub fn active_producers(&self) -> Vec<ActiveProducer> {
        let writer = self.writer.lock();
        let entries = writer.producers.producers().values();
        entries
            .map(|entry| ActiveProducer {
                producer_id: entry.producer_id,
                producer_epoch: i32::from(entry.producer_epoch),
                last_sequence: entry.last_sequence(),
                last_timestamp: entry.last_timestamp,
                coordinator_epoch: entry.coordinator_epoch,
                current_txn_start_offset: entry.current_txn_first_offset.unwrap_or(-1),
            })
            .collect()
    }

    pub fn producer_id_count(&self) -> usize {
        self.writer.lock().producers.producers().len()
    }

    /// Whether a transaction is open for longer than any coordinator lets it (plus five minutes).
    pub fn has_late_transaction(&self, now_ms: i64, max_transaction_timeout_ms: i64) -> bool {
        const LATE_TRANSACTION_BUFFER_MS: i64 = 300_000;
        let oldest = self.writer.lock().producers.oldest_txn_last_timestamp();
        oldest
            .is_some_and(|at| at > 0 && now_ms - at > max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS)
    }

    pub fn remove_expired_producers(&self, now: Time) {
        let mut writer = self.writer.lock();
        writer.producers.remove_expired(now.wall_ms, self.context.producer_id_expiration_ms());
    }

    /// Gives a log its topic's id; one that it has must be the same.
    pub fn assign_topic_id(&self, topic_id: Uuid) -> Result<(), LogDirError> {
        let mut current = self.topic_id.lock();
        match *current {
            Some(id) if id == topic_id => Ok(()),
            Some(id) => Err(LogDirError::InconsistentTopicId(format!(
                "Tried to assign topic ID {topic_id} to log for topic partition {}, but log already contained topic ID \
                 {id}",
                self.topic_partition
            ))),
            None => {
                *current = Some(topic_id);
                self.metadata_dirty.store(true, Ordering::Release);
                Ok(())
            }
        }
    }

    /// Writes `partition.metadata` when that is still to be done. Happens before the first record is appended, so that
    /// a killed node leaves no records whose topic is not known; it becomes durable with the first records that do.
    pub fn maybe_flush_metadata(&self) -> Result<(), StorageError> {
        if !self.metadata_dirty.load(Ordering::Acquire) {
            return Ok(());
        }
        let topic_id = self.topic_id.lock();
        if let Some(id) = *topic_id
            && self.metadata_dirty.load(Ordering::Acquire)
        {
            let dir = self.dir.path();
            self.metadata_unsynced.store(true, Ordering::Release);
            checkpoint::write_partition_metadata(self.fs(), &dir, id)
                .map_err(|e| self.fail("Error while writing partition metadata file in", e))?;
            self.metadata_dirty.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Makes `partition.metadata` durable; true when its name may still have to be made so.
    fn sync_metadata(&self) -> std::io::Result<bool> {
        if self.metadata_dirty.load(Ordering::Acquire)
            || !self.metadata_unsynced.swap(false, Ordering::AcqRel)
        {
            return Ok(false);
        }
        let path = self.dir.path().join(names::PARTITION_METADATA_FILE);
        match self.fs().open(&path, env::OpenMode::ReadWrite) {
            Ok(file) => file.sync_data().map_err(sync_failed).map(|()| true),
            // A log whose topic has no id, or that was made by a node that knew of none.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    pub(crate) fn context(&self) -> &LogContext {
        &self.context
    }

    pub(crate) fn fs(&self) -> &dyn FileSystem {
        &*self.context.env.fs
    }

    pub(crate) fn fail(&self, doing: &str, error: std::io::Error) -> StorageError {
        self.log_dir.fail(doing, &self.dir.path(), error)
    }

    fn check_open(&self, writer: &Writer) -> Result<(), StorageError> {
        self.log_dir.check_online()?;
        if writer.closed { Err(StorageError::Closed(self.topic_partition.to_string())) } else { Ok(()) }
    }

    fn lock_writer(&self) -> Result<MutexGuard<'_, Writer>, StorageError> {
        let writer = self.writer.lock();
        self.check_open(&writer)?;
        Ok(writer)
    }

    fn active_segment(&self) -> Arc<LogSegment> {
        let segments = self.segments.load();
        // A log is made with a segment, and every change leaves one.
        segments.last().cloned().expect("a log has an active segment")
    }

    /// The segment in which `offset` would be.
    fn floor_segment(segments: &[Arc<LogSegment>], offset: i64) -> Option<usize> {
        segments.partition_point(|segment| segment.base_offset() <= offset).checked_sub(1)
    }

    fn publish_segments(&self, change: impl FnOnce(&mut Vec<Arc<LogSegment>>)) {
        let mut segments = self.segments.load().as_ref().clone();
        change(&mut segments);
        self.segments.store(Arc::new(segments));
    }

    fn set_log_end(&self, offset: i64) {
        let active = self.active_segment();
        self.log_end.store(LogOffsetMetadata::new(offset, active.base_offset(), active.size()));
        self.recovery_point.fetch_min(offset, Ordering::AcqRel);
        self.group_commit.truncate_to(offset);
    }

    /// Renames the files of segments that left the list and removes them, and their snapshots, after a while.
    fn delete_segments(
        &self,
        writer: &mut Writer,
        segments: Vec<Arc<LogSegment>>,
        now: Time,
    ) -> Result<(), StorageError> {
        if segments.is_empty() {
            return Ok(());
        }
        let due = now.monotonic + delay(self.config.load().file_delete_delay_ms);
        if let Some(first) = self.segments.load().first() {
            first.note_names();
        }
        for segment in &segments {
            segment
                .rename_to(self.fs(), Stage::Deleted)
                .map_err(|e| self.fail("Error while deleting segments for", e))?;
            self.delete_snapshot(writer, segment.base_offset(), due)?;
        }
        let log_dir = self.log_dir.clone();
        self.context.defer(due, Task::DeleteSegments { segments, log_dir });
        Ok(())
    }

    fn delete_snapshot(
        &self,
        writer: &mut Writer,
        offset: i64,
        due: std::time::Duration,
    ) -> Result<(), StorageError> {
        if !writer.producers.forget_snapshot(offset) {
            return Ok(());
        }
        self.retire_snapshot_file(offset, due)
    }

    /// Writes `partition.metadata` when it is behind, without making it durable; true when there was anything to write.
    pub(crate) fn write_metadata(&self) -> Result<bool, StorageError> {
        if !self.metadata_dirty.load(Ordering::Acquire) {
            return Ok(false);
        }
        let _flushing = self.flushing.lock();
        if !self.writer.lock().closed {
            self.maybe_flush_metadata()?;
        }
        Ok(true)
    }

    /// Renames the directory, as deletion does. Making the new name durable is the caller's.
    ///
    /// Waits for a flush under way: whoever writes files by name holds `flushing` or `writer`.
    pub(crate) fn rename_dir(&self, name: &str) -> Result<(), StorageError> {
        let _flushing = self.flushing.lock();
        let _writer = self.writer.lock();
        self.rename_locked(name)
    }

    fn rename_locked(&self, name: &str) -> Result<(), StorageError> {
        self.log_dir.check_online()?;
        let from = self.dir.path();
        let to = self.log_dir.path().join(name);
        self.fs().rename(&from, &to).map_err(|e| self.fail("Error while renaming dir for", e))?;
        self.dir.set(to);
        Ok(())
    }

    /// Stops all use; files are closed, nothing is written.
    pub(crate) fn close_quietly(&self) {
        self.writer.lock().closed = true;
        self.segments.load().iter().for_each(|segment| segment.close());
    }

    /// Removes the directory and everything in it.
    pub(crate) fn delete(&self) -> Result<(), StorageError> {
        self.close_quietly();
        // A sync that found the log open may still be under way.
        let _flushing = self.flushing.lock();
        let dir: PathBuf = self.dir.path().to_path_buf();
        crate::producer::ignore_missing(self.fs().remove_dir_all(&dir))
            .map_err(|e| self.fail("Error while deleting log for", e))
    }

    /// Closes files nobody used since the last call, writes what waits in memory and repairs indexes.
    pub fn tidy(&self) {
        self.rebuild_wrong_indexes();
        for segment in self.segments.load().iter() {
            segment.close_if_idle();
        }
    }
}

impl std::fmt::Debug for UnifiedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log(dir={}", self.dir.path().display())?;
        if let Some(id) = self.topic_id() {
            write!(f, ", topicId={id}")?;
        }
        write!(
            f,
            ", topic={}, partition={}, highWatermark={}, lastStableOffset={}, logStartOffset={}, logEndOffset={})",
            self.topic_partition.topic,
            self.topic_partition.partition,
            self.high_watermark(),
            self.last_stable_offset(),
            self.log_start_offset(),
            self.log_end_offset()
        )
    }
}

/// A configured delay; negative ones are none.
pub(crate) fn delay(ms: i64) -> std::time::Duration {
    std::time::Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
