//! A partition that this broker replicates: its log, its leadership, and who waits for its data.
//!
//! Invariants
//! * Appends and client reads are served by the leader only; `leader_epoch` never goes back.
//! * With one replica in the ISR the high watermark follows the log's end within the append itself, or, where records
//!   have to be durable first (`flush.messages`), after the sync.
//!
//! Concurrency: the log locks its own writer; leadership is one small lock, never held across IO. The log is another one
//! after the partition has moved to another directory: who was refused by the old one asks its successor.

use crate::apis::list_offsets::{EARLIEST_LOCAL_TIMESTAMP, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP};
use crate::metadata_view::is_internal_topic;
use crate::purgatory::Watchers;
use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;
use metadata::PartitionRegistration;
use parking_lot::RwLock;
use protocol::ErrorCode;
use record::{AppendOrigin, Time, TopicPartition};
use std::sync::Arc;
use storage::{
    ActiveProducer, AppendError, AppendInfo, FetchIsolation, FileSlice, LogStartOffsetIncrementReason,
    ReadError, StorageError, UnifiedLog,
};

/// A request's epoch when the client knows none.
const NO_EPOCH: i32 = -1;

/// What the metadata says of a partition, as far as serving it depends on it.
#[derive(Debug, Clone)]
struct Leadership {
    registration: Arc<PartitionRegistration>,
    /// `min.insync.replicas` of the topic.
    min_insync_replicas: i32,
}

/// See the file's header.
pub(crate) struct Partition {
    topic_partition: TopicPartition,
    node_id: i32,
    internal: bool,
    log: ArcSwap<UnifiedLog>,
    leadership: RwLock<Leadership>,
    pub(crate) watchers: Watchers,
}

/// Why records were not appended, as the producer is told.
#[derive(Debug)]
pub(crate) struct AppendFailure {
    pub(crate) error: ErrorCode,
    pub(crate) message: Option<String>,
    pub(crate) record_errors: Vec<(i32, Option<String>)>,
    pub(crate) log_start_offset: i64,
}

/// What a reader asks of a partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadRequest {
    pub(crate) offset: i64,
    pub(crate) max_bytes: u32,
    pub(crate) min_one_message: bool,
    pub(crate) read_committed: bool,
    pub(crate) current_leader_epoch: i32,
    pub(crate) last_fetched_epoch: i32,
}

/// What a reader gets.
#[derive(Debug)]
pub(crate) struct ReadInfo {
    pub(crate) records: Option<FileSlice>,
    pub(crate) high_watermark: i64,
    pub(crate) last_stable_offset: i64,
    pub(crate) log_start_offset: i64,
    /// Aborted transactions that touch the records: producer id and first offset. Only for read_committed.
    pub(crate) aborted: Option<Vec<(i64, i64)>>,
    /// The reader's last epoch ended earlier here: epoch and end offset (KIP-595).
    pub(crate) diverging: Option<(i32, i64)>,
}

impl ReadInfo {
    pub(crate) fn size(&self) -> u64 {
        self.records.as_ref().map_or(0, |slice| u64::from(slice.len))
    }
}

/// An offset found by timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundOffset {
    pub(crate) timestamp: i64,
    pub(crate) offset: i64,
    pub(crate) leader_epoch: i32,
}

impl Partition {
    pub(crate) fn new(
        node_id: i32,
        log: Arc<UnifiedLog>,
        registration: Arc<PartitionRegistration>,
        min_insync_replicas: i32,
    ) -> Self {
        let topic_partition = log.topic_partition().clone();
        let internal = is_internal_topic(&topic_partition.topic);
        let partition = Self {
            topic_partition,
            node_id,
            internal,
            log: ArcSwap::new(log),
            leadership: RwLock::new(Leadership { registration: registration.clone(), min_insync_replicas }),
            watchers: Watchers::default(),
        };
        partition.lead(&registration);
        partition
    }

    /// Takes over a change of the partition's metadata.
    pub(crate) fn update(&self, registration: Arc<PartitionRegistration>, min_insync_replicas: i32) {
        {
            let mut leadership = self.leadership.write();
            if registration.leader_epoch < leadership.registration.leader_epoch {
                return;
            }
            *leadership = Leadership { registration: registration.clone(), min_insync_replicas };
        }
        self.lead(&registration);
    }

    pub(crate) fn set_min_insync_replicas(&self, min_insync_replicas: i32) {
        self.leadership.write().min_insync_replicas = min_insync_replicas;
    }

    /// A new leader notes where its epoch starts (KIP-101), and as the only replica moves the high watermark to the end.
    fn lead(&self, registration: &PartitionRegistration) {
        if registration.leader == self.node_id {
            let log = self.log();
            log.assign_epoch_start_offset(registration.leader_epoch, log.log_end_offset());
            self.advance_high_watermark(registration);
        }
    }

    fn advance_high_watermark(&self, registration: &PartitionRegistration) {
        if registration.isr.iter().all(|replica| *replica == self.node_id) {
            self.log().advance_high_watermark_to_end();
        }
    }

    /// Records became durable that had to be before anybody sees them.
    pub(crate) fn handle_synced(&self) {
        let registration = self.leadership.read().registration.clone();
        if registration.leader == self.node_id {
            self.advance_high_watermark(&registration);
        }
    }

    /// The log in force: from the moment of a handover its successor, so that whoever was acknowledged there is seen.
    pub(crate) fn log(&self) -> Guard<Arc<UnifiedLog>> {
        let mut log = self.log.load();
        while let Some(successor) = log.successor().cloned() {
            log = Guard::from_inner(successor);
        }
        log
    }

    /// The partition has moved to another directory.
    pub(crate) fn replace_log(&self, log: Arc<UnifiedLog>) {
        self.log.store(log);
        // Whoever did this to the old log meanwhile did it too late.
        let registration = self.leadership.read().registration.clone();
        self.lead(&registration);
    }

    pub(crate) fn topic(&self) -> &str {
        &self.topic_partition.topic
    }

    pub(crate) fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    pub(crate) fn is_internal(&self) -> bool {
        self.internal
    }

    /// Leader and its epoch.
    pub(crate) fn leader(&self) -> (i32, i32) {
        let leadership = self.leadership.read();
        (leadership.registration.leader, leadership.registration.leader_epoch)
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.leader().0 == self.node_id
    }

    /// Appends a client's batch. `acks` −1 needs `min.insync.replicas` in the ISR.
    pub(crate) fn append_as_leader(
        &self,
        now: Time,
        records: Bytes,
        acks: i16,
    ) -> Result<AppendInfo, AppendFailure> {
        let (registration, min_insync_replicas) = {
            let leadership = self.leadership.read();
            (leadership.registration.clone(), leadership.min_insync_replicas)
        };
        let in_sync = registration.isr.len() as i32;
        // A topic with fewer replicas than the setting asks for is in sync with all it has.
        let min_insync_replicas = min_insync_replicas.min(registration.replicas.len() as i32);
        if registration.leader != self.node_id {
            return Err(self.failure(ErrorCode::NOT_LEADER_OR_FOLLOWER, None));
        }
        if acks == -1 && in_sync < min_insync_replicas {
            let log_start_offset = self.log().log_start_offset();
            return Err(AppendFailure {
                log_start_offset,
                ..self.failure(ErrorCode::NOT_ENOUGH_REPLICAS, None)
            });
        }
        self.append(now, records, &registration, AppendOrigin::Client)
    }

    /// Appends a coordinator's records, of `leader_epoch` only.
    pub(crate) fn append_as_coordinator(
        &self,
        now: Time,
        records: Bytes,
        leader_epoch: i32,
    ) -> Result<AppendInfo, AppendFailure> {
        let registration = self.leadership.read().registration.clone();
        if registration.leader != self.node_id || registration.leader_epoch != leader_epoch {
            return Err(self.failure(ErrorCode::NOT_LEADER_OR_FOLLOWER, None));
        }
        self.append(now, records, &registration, AppendOrigin::Coordinator)
    }

    fn append(
        &self,
        now: Time,
        records: Bytes,
        registration: &PartitionRegistration,
        origin: AppendOrigin,
    ) -> Result<AppendInfo, AppendFailure> {
        let mut log = Guard::into_inner(self.log());
        let appended = loop {
            let appended = log.append_as_leader(now, records.clone(), registration.leader_epoch, origin);
            match (&appended, log.successor()) {
                (Err(AppendError::Storage(StorageError::Closed(_))), Some(successor)) => {
                    log = successor.clone();
                }
                _ => break appended,
            }
        };
        let info = appended.map_err(|error| self.refused(error))?;
        self.advance_high_watermark(registration);
        Ok(info)
    }

    fn failure(&self, error: ErrorCode, message: Option<String>) -> AppendFailure {
        AppendFailure { error, message, record_errors: Vec::new(), log_start_offset: -1 }
    }

    fn refused(&self, error: AppendError) -> AppendFailure {
        let code = ErrorCode::from_code(error.error_code());
        let mut failure = self.failure(code, None);
        // Errors of these kinds tell nothing of the log.
        let expected =
            [ErrorCode::CORRUPT_MESSAGE, ErrorCode::MESSAGE_TOO_LARGE, ErrorCode::RECORD_LIST_TOO_LARGE];
        if !expected.contains(&code) && !matches!(error, AppendError::Storage(_)) {
            failure.log_start_offset = self.log().log_start_offset();
        }
        match &error {
            // Only errors of single records are put in words (KIP-467).
            AppendError::Records(records) if !records.record_errors().is_empty() => {
                failure.record_errors = records
                    .record_errors()
                    .iter()
                    .map(|r| (r.batch_index, Some(r.message.clone())))
                    .collect();
                failure.message = Some(records.to_string());
            }
            // Told of once, by the directory.
            AppendError::Storage(storage) if storage.is_full() => {}
            AppendError::Storage(storage) => {
                tracing::error!(target: "kafka.server.ReplicaManager", "[ReplicaManager broker={}] Error processing append operation on partition {}: {storage}", self.node_id, self.topic_partition);
            }
            _ => {}
        }
        failure
    }

    /// Whether a request that knows `epoch` may be served by this leader.
    fn check_epoch(&self, epoch: i32, need_leader: bool) -> Result<(), ErrorCode> {
        let (leader, current) = self.leader();
        if epoch != NO_EPOCH && epoch < current {
            return Err(ErrorCode::FENCED_LEADER_EPOCH);
        }
        if epoch > current {
            return Err(ErrorCode::UNKNOWN_LEADER_EPOCH);
        }
        if need_leader && leader != self.node_id {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        Ok(())
    }

    /// Finds records for a client. The data stay in the file.
    pub(crate) fn read(&self, request: ReadRequest) -> Result<ReadInfo, ErrorCode> {
        self.check_epoch(request.current_leader_epoch.max(NO_EPOCH), true)?;
        let log = self.log();
        if request.last_fetched_epoch >= 0 {
            // An epoch above all known ones cannot be compared with this log.
            let (epoch, end_offset) =
                log.end_offset_for_epoch(request.last_fetched_epoch).ok_or(ErrorCode::OFFSET_OUT_OF_RANGE)?;
            if epoch < request.last_fetched_epoch || end_offset < request.offset {
                return Ok(ReadInfo { diverging: Some((epoch, end_offset)), ..self.nothing() });
            }
        }
        let isolation =
            if request.read_committed { FetchIsolation::TxnCommitted } else { FetchIsolation::HighWatermark };
        let found = log
            .read(request.offset, request.max_bytes, isolation, request.min_one_message)
            .map_err(|error| ErrorCode::from_code(error.error_code()))?;
        Ok(ReadInfo {
            // A batch that does not fit is left out; a reader could do nothing with its beginning.
            records: found.records.filter(|_| !found.first_entry_incomplete),
            aborted: found.aborted_transactions.map(|list| {
                list.into_iter().map(|aborted| (aborted.producer_id, aborted.first_offset)).collect()
            }),
            ..self.nothing()
        })
    }

    fn nothing(&self) -> ReadInfo {
        let log = self.log();
        ReadInfo {
            records: None,
            high_watermark: log.high_watermark(),
            last_stable_offset: log.last_stable_offset(),
            log_start_offset: log.log_start_offset(),
            aborted: None,
            diverging: None,
        }
    }

    /// Moves the log start offset; −1 = to the high watermark. Returns the low watermark.
    pub(crate) fn delete_records(&self, offset: i64) -> Result<i64, ErrorCode> {
        if !self.is_leader() {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        let mut log = Guard::into_inner(self.log());
        let config = log.config();
        if !config.delete {
            return Err(ErrorCode::POLICY_VIOLATION);
        }
        let high_watermark = log.high_watermark();
        let target = if offset == -1 { high_watermark } else { offset };
        if target < 0 || target > high_watermark {
            return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
        }
        loop {
            let reason = LogStartOffsetIncrementReason::ClientRecordDeletion;
            match (log.maybe_increment_log_start_offset(target, reason), log.successor()) {
                (Ok(_), _) => return Ok(log.log_start_offset()),
                (Err(ReadError::Storage(StorageError::Closed(_))), Some(successor)) => {
                    log = successor.clone();
                }
                (Err(error), _) => return Err(ErrorCode::from_code(error.error_code())),
            }
        }
    }

    /// The offset of a (special) timestamp; `isolation` is whether a client reads committed data only, `None` for replicas.
    pub(crate) fn list_offset(
        &self,
        timestamp: i64,
        isolation: Option<bool>,
        current_leader_epoch: i32,
        debugging: bool,
    ) -> Result<Option<FoundOffset>, ErrorCode> {
        self.check_epoch(current_leader_epoch, !debugging)?;
        let log = self.log();
        let last_fetchable = match isolation {
            Some(true) => log.last_stable_offset(),
            Some(false) => log.high_watermark(),
            None => log.log_end_offset(),
        };
        if timestamp == LATEST_TIMESTAMP {
            return Ok(Some(FoundOffset {
                timestamp: -1,
                offset: last_fetchable,
                leader_epoch: self.leader().1,
            }));
        }
        let found = log
            .fetch_offset_by_timestamp(timestamp)
            .map_err(|error| ErrorCode::from_code(error.error_code()))?
            .map(|found| FoundOffset {
                timestamp: found.timestamp,
                offset: found.offset,
                leader_epoch: found.leader_epoch.unwrap_or(-1),
            });
        let bounded = !matches!(timestamp, EARLIEST_TIMESTAMP | EARLIEST_LOCAL_TIMESTAMP);
        Ok(found.filter(|found| !bounded || found.offset < last_fetchable))
    }

    /// Epoch and end offset of the largest epoch not above `epoch`; −1 and −1 when there is none.
    pub(crate) fn last_offset_for_epoch(
        &self,
        current_leader_epoch: i32,
        epoch: i32,
    ) -> Result<(i32, i64), ErrorCode> {
        self.check_epoch(current_leader_epoch, true)?;
        Ok(self.log().end_offset_for_epoch(epoch).unwrap_or((-1, -1)))
    }

    pub(crate) fn active_producers(&self) -> Vec<ActiveProducer> {
        self.log().active_producers()
    }
}
