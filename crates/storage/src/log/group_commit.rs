//! Group commit: acknowledgements that wait for the disk (`flush.messages`, `log.flush.interval.messages`).
//!
//! Owns: what has been demanded to be durable and what is, and one directory's queue of logs to sync.
//! Invariants: recovery point ≤ synced end ≤ log end, and synced end ≤ demanded end while anybody waits. At an
//! acknowledgement fewer than `flush.messages` records of the log are not durable, as in the reference, which syncs
//! inside the append that reaches the number. A sync serves every append that was in the file when it began; a log is in
//! the queue, or in the hands of one thread, at most once.
//! Only `.log` files and names are synced: the rest is what recovery makes from them, and the recovery point, which says
//! that recovery need not, stays behind until a flush.
//! Concurrency: `flushing` is held across the sync, `writer` is not: appends go on meanwhile.
//! Crash: what was acknowledged in this mode is there.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::UnifiedLog;
use crate::error::StorageError;
use crate::log_dir::sync_dir;
use crate::offsets::LogOffsetMetadata;

/// A log's part.
pub(super) struct GroupCommit {
    /// Records below are durable.
    synced_end: AtomicI64,
    /// Records below are waited for.
    demanded_end: AtomicI64,
    /// The synced end of the last sync with its place in the files, which saves readers the search for it.
    synced_place: Mutex<Option<LogOffsetMetadata>>,
    /// In the queue of the directory, or being synced.
    is_queued: AtomicBool,
}

impl GroupCommit {
    pub(super) fn new(recovery_point: i64) -> Self {
        GroupCommit {
            synced_end: AtomicI64::new(recovery_point),
            demanded_end: AtomicI64::new(recovery_point),
            synced_place: Mutex::new(None),
            is_queued: AtomicBool::new(false),
        }
    }

    /// The log ends here now: what lies behind is neither durable nor waited for.
    pub(super) fn truncate_to(&self, offset: i64) {
        let demanded = self.demanded_end.fetch_min(offset, Ordering::SeqCst);
        let synced = self.synced_end.fetch_min(offset, Ordering::SeqCst);
        if demanded > offset || synced > offset {
            self.forget_place();
        }
    }

    pub(super) fn forget_place(&self) {
        *self.synced_place.lock() = None;
    }

    pub(super) fn set_synced(&self, offset: i64) {
        self.synced_end.fetch_max(offset, Ordering::SeqCst);
    }
}

/// Logs of one directory that wait for a sync.
#[derive(Default)]
pub(crate) struct SyncQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Arc<UnifiedLog>>,
    is_closed: bool,
}

impl std::fmt::Debug for SyncQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SyncQueue({})", self.state.lock().waiting.len())
    }
}

impl SyncQueue {
    fn push(&self, log: Arc<UnifiedLog>) {
        self.state.lock().waiting.push_back(log);
        self.changed.notify_one();
    }

    /// The next log; waits for one up to `wait`, unless the queue is closed.
    pub(crate) fn next(&self, wait: Duration) -> Option<Arc<UnifiedLog>> {
        let mut state = self.state.lock();
        if state.waiting.is_empty() && !state.is_closed && !wait.is_zero() {
            self.changed.wait_for(&mut state, wait);
        }
        state.waiting.pop_front()
    }

    /// Nobody waits any more.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }
}

/// What became of the syncs that a log's appends waited for.
#[derive(Debug)]
pub struct SyncOutcome {
    pub log: Arc<UnifiedLog>,
    /// The offset below which everything is durable. After an error nothing that was not durable before ever will be.
    pub result: Result<i64, StorageError>,
}

impl UnifiedLog {
    /// The offset below which records are known to be durable.
    pub fn synced_end_offset(&self) -> i64 {
        self.group_commit.synced_end.load(Ordering::SeqCst)
    }

    /// Up to where a leader that is its partition's only replica may show records: nothing that somebody waits for.
    /// To be asked under the writer lock, which orders it with appends.
    pub(super) fn presentable_end(&self) -> LogOffsetMetadata {
        let synced = self.synced_end_offset();
        if self.group_commit.demanded_end.load(Ordering::SeqCst) <= synced {
            return self.log_end.load();
        }
        let place = *self.group_commit.synced_place.lock();
        place.filter(|place| place.message_offset == synced).unwrap_or(LogOffsetMetadata::offset_only(synced))
    }

    /// After an append, under the writer lock: the offset that has to be durable before the append is acknowledged. And
    /// after recovery: nobody may see what a killed node had written but not synced.
    pub(super) fn demand_sync(&self, flush_messages: i64) -> Option<i64> {
        let (end, synced) = (self.log_end_offset(), self.synced_end_offset());
        if end - synced < flush_messages {
            return None;
        }
        let commit = &self.group_commit;
        let demanded = commit.demanded_end.load(Ordering::SeqCst).max(synced);
        if end - demanded < flush_messages {
            return Some(demanded);
        }
        commit.demanded_end.store(end, Ordering::SeqCst);
        self.enqueue_sync();
        Some(end)
    }

    /// The same for records that the log has already: the sync that their first append waits for may be under way.
    pub(super) fn sync_of_duplicate(&self, last_offset: i64) -> Option<i64> {
        let demanded = self.group_commit.demanded_end.load(Ordering::SeqCst);
        let synced = self.synced_end_offset();
        (demanded > synced && last_offset >= synced).then(|| demanded.min(last_offset + 1))
    }

    /// Sees to it that a [`SyncOutcome`] comes for the records below `offset`, here or in the log's successor, if they
    /// are not durable yet.
    pub fn ensure_sync(&self, offset: i64) {
        if self.synced_end_offset() < offset {
            self.group_commit.demanded_end.fetch_max(offset, Ordering::SeqCst);
            self.enqueue_sync();
        }
    }

    fn enqueue_sync(&self) {
        if !self.group_commit.is_queued.swap(true, Ordering::SeqCst)
            && let Some(this) = self.this.upgrade()
        {
            self.log_dir.syncs.push(this);
        }
    }

    /// Syncs what is waited for. Called with a log that [`SyncQueue::next`] gave.
    pub(crate) fn run_demanded_sync(&self) -> Result<i64, StorageError> {
        let result = match self.sync_demanded() {
            // It was handed over between the look and the sync.
            Err(StorageError::Closed(_)) if self.successor().is_some() => self.sync_demanded(),
            result => result,
        };
        let commit = &self.group_commit;
        commit.is_queued.store(false, Ordering::SeqCst);
        // An append that came after the sync had begun found the log queued, and left this to us.
        let demanded = commit.demanded_end.load(Ordering::SeqCst);
        if result.as_ref().is_ok_and(|synced| demanded > *synced && demanded <= self.log_end_offset()) {
            self.enqueue_sync();
        }
        result
    }

    fn sync_demanded(&self) -> Result<i64, StorageError> {
        let flushing = self.flushing.lock();
        if let Some(successor) = self.successor() {
            // The partition has moved to another directory; what was waited for here is there.
            let successor = successor.clone();
            drop(flushing);
            return successor.sync_up_to(successor.log_end_offset());
        }
        drop(flushing);
        self.sync_up_to(self.group_commit.demanded_end.load(Ordering::SeqCst))
    }

    fn sync_up_to(&self, demanded: i64) -> Result<i64, StorageError> {
        let _flushing = self.flushing.lock();
        let synced = self.synced_end_offset();
        if demanded <= synced {
            return Ok(synced);
        }
        self.log_dir.check_online()?;
        if self.is_closed() {
            return Err(StorageError::Closed(self.topic_partition.to_string()));
        }
        let end = self.log_end.load();
        self.sync_records(synced, end.message_offset)
            .map_err(|e| self.fail("Error while flushing log for", e))?;
        *self.group_commit.synced_place.lock() = Some(end);
        self.group_commit.set_synced(end.message_offset);
        Ok(end.message_offset)
    }

    fn sync_records(&self, from: i64, end: i64) -> std::io::Result<()> {
        // Read after `end`: a segment is listed before an end lies in it.
        let segments = self.segments.load_full();
        let first = Self::floor_segment(&segments, from).unwrap_or(0);
        let mut has_new_names = self.sync_metadata()?;
        for segment in segments.iter().skip(first).take_while(|segment| segment.base_offset() < end) {
            has_new_names |= segment.sync_log(self.fs())?;
        }
        if has_new_names {
            sync_dir(self.fs(), &self.dir.path())?;
        }
        self.sync_own_name()
    }

    /// Makes the name of the log's directory durable.
    pub(super) fn sync_own_name(&self) -> std::io::Result<()> {
        if !self.dir_synced.swap(true, Ordering::AcqRel) {
            sync_dir(self.fs(), self.log_dir.path())?;
        }
        Ok(())
    }
}
