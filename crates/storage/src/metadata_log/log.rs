//! Segments and snapshots together. See the parent module's header.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use config::ServerConfig;
use protocol::Uuid;
use record::{Time, TopicPartition};

use super::METADATA_LOG_DIR;
use super::snapshot::{
    RawSnapshotWriter, SnapshotFile, SnapshotHeader, SnapshotId, SnapshotReader, SnapshotWriter,
    parse_file_name, read_snapshot_header,
};
use crate::log_dir::sync_failed;
use crate::{
    AppendError, FetchIsolation, LogConfig, LogContext, LogDir, LogDirError, LogStartOffsetIncrementReason,
    OpenParams, ReadError, StorageError, UnifiedLog,
};

/// `file.delete.delay.ms` of the metadata log's segments.
const FILE_DELETE_DELAY_MS: i64 = 60_000;

/// The `metadata.*` properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataLogConfig {
    pub segment_bytes: u32,
    pub segment_ms: i64,
    /// Largest batch.
    pub max_batch_size_bytes: u32,
    /// How long deleted snapshots stay on disk.
    pub delete_delay: Duration,
    /// Bytes of log and snapshots together; negative: no limit.
    pub max_retention_bytes: i64,
    /// Age of a snapshot's last record; negative: no limit.
    pub max_retention_ms: i64,
}

impl Default for MetadataLogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            max_batch_size_bytes: 8 << 20,
            delete_delay: Duration::from_secs(60),
            max_retention_bytes: 100 << 20,
            max_retention_ms: 7 * 24 * 3_600_000,
        }
    }
}

impl MetadataLogConfig {
    pub fn from_server(config: &ServerConfig) -> Self {
        let segment_bytes =
            config.internal_metadata_log_segment_bytes.unwrap_or(config.metadata_log_segment_bytes);
        let delay = u64::try_from(config.internal_metadata_delete_delay_millis).unwrap_or(0);
        Self {
            segment_bytes: u32::try_from(segment_bytes).unwrap_or(u32::MAX),
            segment_ms: config.metadata_log_segment_ms,
            max_batch_size_bytes: u32::try_from(config.internal_metadata_max_batch_size_in_bytes)
                .unwrap_or(u32::MAX),
            delete_delay: Duration::from_millis(delay),
            max_retention_bytes: config.metadata_max_retention_bytes,
            max_retention_ms: config.metadata_max_retention_ms,
        }
    }

    fn log_config(&self) -> LogConfig {
        LogConfig {
            segment_size_bytes: self.segment_bytes,
            segment_ms: self.segment_ms,
            max_message_bytes: self.max_batch_size_bytes,
            file_delete_delay_ms: FILE_DELETE_DELAY_MS,
            retention_bytes: -1,
            retention_ms: -1,
            ..LogConfig::default()
        }
    }
}

/// Why the metadata log failed. The node cannot go on after any of these.
#[derive(Debug)]
pub enum MetadataLogError {
    Io {
        doing: &'static str,
        path: PathBuf,
        cause: io::Error,
    },
    Storage(StorageError),
    Open(LogDirError),
    Append(AppendError),
    Read(ReadError),
    /// Log and snapshots contradict each other; the directory was tampered with or belongs to another replica.
    Inconsistent(String),
}

impl fmt::Display for MetadataLogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, cause } => write!(f, "Error while {doing} {}: {cause}", path.display()),
            Self::Storage(e) => e.fmt(f),
            Self::Open(e) => e.fmt(f),
            Self::Append(e) => write!(f, "The metadata log refused records: {e}"),
            Self::Read(e) => write!(f, "The metadata log cannot be read: {e}"),
            Self::Inconsistent(cause) => f.write_str(cause),
        }
    }
}

impl std::error::Error for MetadataLogError {}

macro_rules! from {
    ($($error:ty => $variant:ident),*) => {$(
        impl From<$error> for MetadataLogError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        }
    )*};
}
from!(StorageError => Storage, LogDirError => Open, AppendError => Append, ReadError => Read);

/// The metadata log of one node.
pub struct MetadataLog {
    context: Arc<LogContext>,
    log: Arc<UnifiedLog>,
    dir: PathBuf,
    config: MetadataLogConfig,
    snapshots: BTreeMap<SnapshotId, u64>,
    /// The active segment whose files and names are durable, and all segments before it.
    synced_segment: Option<i64>,
    /// Snapshots that were renamed for deletion, and when they go.
    deletions: VecDeque<(Duration, SnapshotId)>,
}

impl MetadataLog {
    /// Opens or makes the metadata partition in `log_dir`.
    pub fn open(
        context: &Arc<LogContext>,
        log_dir: &Arc<LogDir>,
        config: MetadataLogConfig,
        now: Time,
    ) -> Result<MetadataLog, MetadataLogError> {
        let fs = &*context.env.fs;
        let dir = log_dir.path().join(METADATA_LOG_DIR);
        let exists = fs.exists(&dir).map_err(|e| failed("looking for", &dir, e))?;
        // `append` syncs what is there before the first record of an epoch, so the last epoch's start proves what must be
        // there: less is damage and not a torn end. A damaged epoch file proves nothing.
        let epochs =
            crate::checkpoint::read_leader_epochs(fs, &dir.join(crate::names::LEADER_EPOCH_CHECKPOINT_FILE))
                .unwrap_or_default();
        let durable_end = epochs.last().map_or(0, |epoch| epoch.start_offset);
        let params = OpenParams {
            config: Arc::new(config.log_config()),
            // As the reference: neither checkpoint is asked, the whole log is checked.
            log_start_offset: 0,
            recovery_point: Some(0),
            had_clean_shutdown: false,
            durable_end,
            topic_id: Some(Uuid::METADATA_TOPIC_ID),
            is_new: !exists,
        };
        let partition = TopicPartition::new("__cluster_metadata", 0);
        let log = UnifiedLog::open(context, log_dir, dir.clone(), partition, params, now)?;
        log.maybe_flush_metadata()?;
        let mut opened = MetadataLog {
            context: context.clone(),
            log,
            dir,
            config,
            snapshots: BTreeMap::new(),
            synced_segment: None,
            deletions: VecDeque::new(),
        };
        opened.recover_snapshots()?;
        opened.truncate_to_latest_snapshot(now)?;
        // What recovery found behind the last flush may be in the page cache only; from here on it counts as durable.
        opened.flush(now)?;
        Ok(opened)
    }

    fn recover_snapshots(&mut self) -> Result<(), MetadataLogError> {
        let fs = &*self.context.env.fs;
        let start = self.log.log_start_offset();
        for entry in fs.list(&self.dir).map_err(|e| failed("listing", &self.dir, e))? {
            let Some(name) = entry.name.to_str() else { continue };
            let path = self.dir.join(name);
            match parse_file_name(name) {
                None => {}
                Some(SnapshotFile::Whole(id)) if id.end_offset >= start => {
                    let size = fs.metadata(&path).map_err(|e| failed("looking at", &path, e))?.len;
                    self.snapshots.insert(id, size);
                }
                Some(_) => {
                    fs.remove_file(&path).map_err(|e| failed("removing", &path, e))?;
                    tracing::info!("Deleted unneeded snapshot file with path {}", path.display());
                }
            }
        }
        if start > 0 && self.snapshots.is_empty() {
            return Err(MetadataLogError::Inconsistent(format!(
                "Inconsistent snapshot state: there must be a snapshot at an offset larger than the current log start \
                 offset {start}, but there is none in {}. Restore the directory from a backup, or format it anew and \
                 let the node fetch the metadata from the other controllers.",
                self.dir.display()
            )));
        }
        Ok(())
    }

    // ---- what there is ----

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn log_start_offset(&self) -> i64 {
        self.log.log_start_offset()
    }

    pub fn log_end_offset(&self) -> i64 {
        self.log.log_end_offset()
    }

    /// Bytes of all segments.
    pub fn size(&self) -> u64 {
        self.log.size()
    }

    /// Epochs with their start offsets, ascending.
    pub fn epochs(&self) -> Vec<(i32, i64)> {
        self.log.leader_epochs().into_iter().map(|entry| (entry.epoch, entry.start_offset)).collect()
    }

    /// Snapshots with their sizes in bytes, oldest first.
    pub fn snapshots(&self) -> impl DoubleEndedIterator<Item = (SnapshotId, u64)> + '_ {
        self.snapshots.iter().map(|(id, size)| (*id, *size))
    }

    pub fn latest_snapshot_id(&self) -> Option<SnapshotId> {
        self.snapshots.last_key_value().map(|(id, _)| *id)
    }

    // ---- records ----

    /// Appends batches that carry their offsets and epochs, all of `[base_offset, next_offset)`. Not durable yet.
    pub fn append(
        &mut self,
        now: Time,
        bytes: Bytes,
        epoch: i32,
        base_offset: i64,
        next_offset: i64,
    ) -> Result<(), MetadataLogError> {
        if self.log.latest_epoch().is_some_and(|latest| latest < epoch) {
            self.flush(now)?;
        }
        let info = self.log.append_as_follower(now, bytes, epoch)?;
        if info.first_offset != base_offset || info.last_offset + 1 != next_offset {
            return Err(MetadataLogError::Inconsistent(format!(
                "Append of offsets {base_offset} to {next_offset} to the metadata log wrote {} to {}",
                info.first_offset,
                info.last_offset + 1
            )));
        }
        Ok(())
    }

    /// Makes everything appended so far durable. While one segment grows, only its records and the epochs are synced:
    /// recovery makes the indexes anew in any case, so that a commit costs one sync instead of three.
    pub fn flush(&mut self, now: Time) -> Result<(), MetadataLogError> {
        let segments = self.log.segments();
        let active = segments.last().map(|segment| (segment.base_offset(), segment));
        match active {
            Some((base_offset, segment)) if self.synced_segment == Some(base_offset) => {
                self.log.flush_epochs()?;
                let fs = &*self.context.env.fs;
                let synced = segment.log_file(fs).and_then(|file| file.sync_data().map_err(sync_failed));
                let doing = "Error while flushing log for";
                synced.map_err(|e| self.log.log_dir().fail(doing, &self.dir, e))?;
            }
            active => {
                self.log.flush(now)?;
                self.synced_segment = active.map(|(base_offset, _)| base_offset);
            }
        }
        Ok(())
    }

    pub fn update_high_watermark(&mut self, offset: i64) {
        self.log.update_high_watermark(offset);
    }

    /// Whole batches from `offset` on, committed or not, about `max_bytes` of them but at least one; empty at the end.
    pub fn read(&self, offset: i64, max_bytes: u32) -> Result<Bytes, MetadataLogError> {
        let info = self.log.read(offset, max_bytes, FetchIsolation::LogEnd, true)?;
        match info.records {
            None => Ok(Bytes::new()),
            Some(slice) => slice.read().map_err(|e| failed("reading", &self.dir, e)),
        }
    }

    /// Cuts the log at `offset`.
    pub fn truncate_to(&mut self, offset: i64, now: Time) -> Result<(), MetadataLogError> {
        self.log.truncate_to(offset, now)?;
        self.synced_segment = None;
        Ok(())
    }

    // ---- snapshots ----

    /// Starts a snapshot; `None` when it exists already.
    pub fn create_snapshot(
        &self,
        id: SnapshotId,
        header: &SnapshotHeader,
    ) -> Result<Option<SnapshotWriter>, MetadataLogError> {
        if self.snapshots.contains_key(&id) {
            return Ok(None);
        }
        let writer = SnapshotWriter::create(&self.context.env, &self.dir, id, header);
        writer.map(Some).map_err(|e| failed("creating a snapshot in", &self.dir, e))
    }

    /// Completes a snapshot; returns its size.
    pub fn freeze_snapshot(&mut self, writer: SnapshotWriter) -> Result<u64, MetadataLogError> {
        let id = writer.id();
        let size = writer.freeze().map_err(|e| self.freezing_failed(e))?;
        self.snapshots.insert(id, size);
        Ok(size)
    }

    /// Its sync is also one of the log's own names.
    fn freezing_failed(&self, cause: io::Error) -> MetadataLogError {
        self.log.log_dir().fail("Error while freezing a snapshot in", &self.dir, cause).into()
    }

    /// Starts a copy of another replica's snapshot.
    pub fn start_fetched_snapshot(&self, id: SnapshotId) -> Result<RawSnapshotWriter, MetadataLogError> {
        let writer = RawSnapshotWriter::create(&self.context.env, &self.dir, id);
        writer.map_err(|e| failed("creating a snapshot in", &self.dir, e))
    }

    /// Completes it; returns its size.
    pub fn freeze_fetched_snapshot(&mut self, writer: RawSnapshotWriter) -> Result<u64, MetadataLogError> {
        let id = writer.id();
        let size = writer.freeze().map_err(|e| self.freezing_failed(e))?;
        self.snapshots.insert(id, size);
        Ok(size)
    }

    pub fn read_snapshot(&self, id: SnapshotId) -> Result<SnapshotReader, MetadataLogError> {
        let read = SnapshotReader::open(&*self.context.env.fs, &self.dir, id);
        read.map_err(|e| failed("reading a snapshot in", &self.dir, e))
    }

    /// At most `max_bytes` of a snapshot's file from `position` on.
    pub fn read_snapshot_bytes(
        &self,
        id: SnapshotId,
        position: u64,
        max_bytes: u32,
    ) -> Result<Bytes, MetadataLogError> {
        let path = self.dir.join(id.file_name());
        let read = || {
            let file = self.context.env.fs.open(&path, env::OpenMode::Read)?;
            let left = file.len()?.saturating_sub(position).min(u64::from(max_bytes));
            let mut bytes = vec![0; usize::try_from(left).unwrap_or(usize::MAX)];
            env::read_exact_at(&*file, &mut bytes, position)?;
            Ok(Bytes::from(bytes))
        };
        read().map_err(|e| failed("reading", &path, e))
    }

    /// Drops the log when the latest snapshot is ahead of it; true when it was.
    pub fn truncate_to_latest_snapshot(&mut self, now: Time) -> Result<bool, MetadataLogError> {
        let Some(latest) = self.latest_snapshot_id() else { return Ok(false) };
        let epoch = self.log.latest_epoch().unwrap_or(0);
        if latest <= SnapshotId::new(self.log_end_offset(), epoch) {
            return Ok(false);
        }
        self.log.truncate_fully_and_start_at(latest.end_offset, None, now)?;
        self.synced_segment = None;
        let due = now.monotonic + self.config.delete_delay;
        self.forget_snapshots_before(latest, due, "the partition was fully truncated")?;
        Ok(true)
    }

    // ---- cleaning ----

    /// Removes snapshots that are too many or too old, and the segments below the oldest that stays; that one is
    /// returned when something went. The latest snapshot always stays.
    pub fn clean(&mut self, now: Time) -> Result<Option<SnapshotId>, MetadataLogError> {
        let before = self.snapshots.keys().next().copied();
        self.clean_by_size(now)?;
        self.clean_by_age(now)?;
        let oldest = self.snapshots.keys().next().copied();
        Ok(oldest.filter(|_| oldest != before))
    }

    fn clean_by_size(&mut self, now: Time) -> Result<(), MetadataLogError> {
        let Ok(limit) = u64::try_from(self.config.max_retention_bytes) else { return Ok(()) };
        loop {
            let total = self.size().saturating_add(self.snapshots.values().sum());
            if total <= limit || !self.delete_oldest_snapshot(now, "of the retention size")? {
                return Ok(());
            }
        }
    }

    fn clean_by_age(&mut self, now: Time) -> Result<(), MetadataLogError> {
        let limit = self.config.max_retention_ms;
        if limit < 0 {
            return Ok(());
        }
        while self.snapshots.len() > 1
            && let Some(oldest) = self.snapshots.keys().next().copied()
        {
            let header = read_snapshot_header(&*self.context.env.fs, &self.dir, oldest)
                .map_err(|e| failed("reading a snapshot in", &self.dir, e))?;
            let age = now.wall_ms.saturating_sub(header.last_contained_log_timestamp);
            if age <= limit || !self.delete_oldest_snapshot(now, "of its age")? {
                break;
            }
        }
        Ok(())
    }

    /// Moves the log start up to the second oldest snapshot and removes what lies below; false when that is not allowed.
    fn delete_oldest_snapshot(&mut self, now: Time, reason: &str) -> Result<bool, MetadataLogError> {
        let Some(next) = self.snapshots.keys().nth(1).copied() else { return Ok(false) };
        if self.log_start_offset() >= next.end_offset {
            return Ok(false);
        }
        let why = LogStartOffsetIncrementReason::SnapshotGenerated;
        if !self.log.maybe_increment_log_start_offset(next.end_offset, why)? {
            return Ok(false);
        }
        self.log.delete_old_segments(now)?;
        self.forget_snapshots_before(next, now.monotonic + self.config.delete_delay, reason)?;
        Ok(true)
    }

    fn forget_snapshots_before(
        &mut self,
        first: SnapshotId,
        due: Duration,
        reason: &str,
    ) -> Result<(), MetadataLogError> {
        let kept = self.snapshots.split_off(&first);
        for id in std::mem::replace(&mut self.snapshots, kept).into_keys() {
            let from = self.dir.join(id.file_name());
            let to = self.dir.join(id.deleted_file_name());
            self.context.env.fs.rename(&from, &to).map_err(|e| failed("renaming", &from, e))?;
            tracing::info!("Marking snapshot {} for deletion because {reason}", from.display());
            self.deletions.push_back((due, id));
        }
        Ok(())
    }

    /// When [`MetadataLog::run_due`] has something to do.
    pub fn next_due(&self) -> Option<Duration> {
        self.deletions.front().map(|(due, _)| *due)
    }

    /// Removes the files of deleted snapshots whose time has come.
    pub fn run_due(&mut self, now: Time) -> Result<(), MetadataLogError> {
        while let Some((due, id)) = self.deletions.front().copied() {
            if due > now.monotonic {
                break;
            }
            self.deletions.pop_front();
            let path = self.dir.join(id.deleted_file_name());
            match self.context.env.fs.remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed("removing", &path, e)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Flushes and closes the log as a clean shutdown does.
    pub fn close(self, now: Time) -> Result<(), MetadataLogError> {
        Ok(self.log.close(now)?)
    }
}

fn failed(doing: &'static str, path: &Path, cause: io::Error) -> MetadataLogError {
    MetadataLogError::Io { doing, path: path.to_owned(), cause }
}
