//! The metadata log's driver: executes what [`RaftNode`] orders on a [`MetadataLog`], in order, each to its end.
//!
//! Owns both, and the position up to which committed records were handed out. Invariants: an election or a flush is on
//! disk before any later output is looked at; committed batches are handed out in order, each once per start, and a
//! snapshot in their place where the log no longer holds them; the news that this replica leads comes after the batches
//! that its predecessors committed. Concurrency: one owner, under the caller's lock. Crash: see `raft` and
//! `storage::metadata_log`; a driver whose disk failed answers every call with that failure and must be dropped.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use config::ServerConfig;
use protocol::{Records, Uuid};
use raft::batches::{ControlRecord, control_records};
use raft::{
    Destination, ElectionState, Endpoints, InboundRequest, InitError, KRaftVersion, LeaderAndEpoch, LogInit,
    OffsetAndEpoch, Output, ProposeError, RaftConfig, RaftNode, RaftRequest, RaftResponse, ReadRequest,
    ReplicaKey, SnapshotError, VoterSet,
};
use record::{Batches, NoCodecs, Time};
use storage::metadata_log::quorum_state::{QuorumStateData, read_quorum_state, write_quorum_state};
use storage::metadata_log::snapshot::{RawSnapshotWriter, SnapshotHeader, SnapshotId};
use storage::metadata_log::{MetadataLog, MetadataLogConfig, MetadataLogError};
use storage::{LogContext, LogDir};

/// Bytes that one read of the log takes while it is replayed.
const READ_BYTES: u32 = 4 << 20;
/// Appended bytes that are kept for handing out, so that a leader does not read back what it wrote.
const RECENT_BYTES: usize = 16 << 20;
/// Records of an image that go into a snapshot together, as the reference hands them over.
const SNAPSHOT_PART_RECORDS: usize = 1024;
/// How often old snapshots and segments are looked for.
const CLEAN_INTERVAL: Duration = Duration::from_secs(60);

/// What the driver needs besides the directory.
#[derive(Clone, Debug)]
pub struct RaftDriverConfig {
    pub raft: RaftConfig,
    pub log: MetadataLogConfig,
    /// `metadata.log.max.record.bytes.between.snapshots`
    pub snapshot_max_new_record_bytes: u64,
    /// `metadata.log.max.snapshot.interval.ms`; zero disables snapshots by time.
    pub snapshot_max_interval: Duration,
}

impl RaftDriverConfig {
    /// The configuration of a server. `local_host` stands for a controller listener without a host; `random_seed` spreads
    /// election timers between replicas.
    pub fn from_server(
        config: &ServerConfig,
        cluster_id: &str,
        directory_id: Uuid,
        local_host: &str,
        random_seed: u64,
    ) -> Self {
        let ms = |ms: i32| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        let port = |port: i32| u16::try_from(port).unwrap_or(0);
        let listener = config.controller_listener_names.first().map_or("CONTROLLER", String::as_str);
        let mut raft = RaftConfig::new(config.node_id, directory_id, cluster_id, listener);
        let endpoints = config.advertised_controller_listeners().iter();
        raft.local_listeners = endpoints
            .map(|e| {
                (e.listener.clone(), e.host.clone().unwrap_or_else(|| local_host.to_owned()), port(e.port))
            })
            .collect::<Endpoints>();
        raft.can_become_voter = config.is_controller();
        let voters = config.quorum_voters().iter().map(|(id, (host, p))| (*id, host.clone(), port(*p)));
        raft.static_voters = VoterSet::from_static(listener, voters);
        let servers = config.quorum_bootstrap_servers().into_iter().zip((i32::MIN..=-2).rev());
        raft.bootstrap_servers =
            servers.map(|((host, p), id)| Destination { id, host, port: port(p) }).collect();
        raft.election_timeout = ms(config.controller_quorum_election_timeout_ms);
        raft.fetch_timeout = ms(config.controller_quorum_fetch_timeout_ms);
        raft.election_backoff_max = ms(config.controller_quorum_election_backoff_max_ms);
        raft.append_linger = ms(config.controller_quorum_append_linger_ms);
        raft.request_timeout = ms(config.controller_quorum_request_timeout_ms);
        raft.retry_backoff = ms(config.controller_quorum_retry_backoff_ms);
        raft.fetch_max_bytes = config.controller_quorum_fetch_max_bytes;
        raft.fetch_snapshot_max_bytes = config.controller_quorum_fetch_snapshot_max_bytes;
        raft.random_seed = random_seed;
        let interval = u64::try_from(config.metadata_log_max_snapshot_interval_ms).unwrap_or(0);
        let bytes = u64::try_from(config.metadata_log_max_record_bytes_between_snapshots).unwrap_or(u64::MAX);
        Self {
            raft,
            log: MetadataLogConfig::from_server(config),
            snapshot_max_new_record_bytes: bytes,
            snapshot_max_interval: Duration::from_millis(interval),
        }
    }
}

/// Why the driver cannot go on.
#[derive(Debug)]
pub enum RaftDriverError {
    Log(MetadataLogError),
    Init(InitError),
    /// `quorum-state` or a batch of the log cannot be read.
    Corrupt(String),
    /// An earlier failure; the driver must be dropped.
    Failed,
}

impl fmt::Display for RaftDriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(e) => e.fmt(f),
            Self::Init(e) => e.fmt(f),
            Self::Corrupt(cause) => f.write_str(cause),
            Self::Failed => f.write_str("The metadata log failed before; restart the node"),
        }
    }
}

impl std::error::Error for RaftDriverError {}

impl From<MetadataLogError> for RaftDriverError {
    fn from(error: MetadataLogError) -> Self {
        Self::Log(error)
    }
}

/// One committed batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedBatch {
    pub base_offset: i64,
    /// Offset of the last record.
    pub last_offset: i64,
    pub epoch: i32,
    /// Milliseconds since the epoch.
    pub append_timestamp: i64,
    pub size_bytes: u64,
    /// Values of the records; empty for the quorum's own control batches.
    pub records: Vec<Bytes>,
}

/// A snapshot that takes the place of everything below its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedSnapshot {
    pub id: OffsetAndEpoch,
    pub last_contained_log_timestamp: i64,
    /// Values of the records, batch by batch.
    pub batches: Vec<Vec<Bytes>>,
}

impl LoadedSnapshot {
    /// Whether it is what formatting wrote: the records with which a controller starts a new cluster, not state.
    pub fn is_bootstrap(&self) -> bool {
        self.id == OffsetAndEpoch::BOOTSTRAP_SNAPSHOT
    }
}

/// What the caller is told, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum RaftEvent {
    Snapshot(LoadedSnapshot),
    Commit(CommittedBatch),
    LeaderChange(LeaderAndEpoch),
    SendRequest { destination: Destination, correlation_id: i32, request: RaftRequest },
    SendResponse { request_id: u64, response: RaftResponse },
}

/// See the file's header.
pub struct MetadataLogDriver {
    node: RaftNode,
    log: MetadataLog,
    events: VecDeque<RaftEvent>,
    /// Next offset to hand out; -1 before the first snapshot or record.
    next_offset: i64,
    /// Appended batches `(base, next, bytes)` that were not handed out yet.
    recent: VecDeque<(i64, i64, Bytes)>,
    recent_bytes: usize,
    fetching: Option<RawSnapshotWriter>,
    next_clean: Duration,
    snapshots: SnapshotSchedule,
    failed: bool,
}

struct SnapshotSchedule {
    max_new_record_bytes: u64,
    max_interval: Duration,
    new_record_bytes: u64,
    last: Duration,
}

impl MetadataLogDriver {
    /// Opens the metadata log below `log_dir` and the replica on it. A single voter leads when this returns; its first
    /// records are committed by the first [`MetadataLogDriver::poll`].
    pub fn open(
        context: &Arc<LogContext>,
        log_dir: &Arc<LogDir>,
        config: RaftDriverConfig,
        now: Time,
    ) -> Result<Self, RaftDriverError> {
        let log = MetadataLog::open(context, log_dir, config.log, now)?;
        let stored = read_quorum_state(&*context.env.fs, log.dir());
        let election = stored.map_err(|e| RaftDriverError::Corrupt(e.to_string()))?.map(election_state);
        let init = read_log_init(&log)?;
        let node = RaftNode::new(now, config.raft, init, election).map_err(RaftDriverError::Init)?;
        let snapshots = SnapshotSchedule {
            max_new_record_bytes: config.snapshot_max_new_record_bytes,
            max_interval: config.snapshot_max_interval,
            new_record_bytes: 0,
            last: now.monotonic,
        };
        let mut driver = Self {
            node,
            log,
            events: VecDeque::new(),
            next_offset: -1,
            recent: VecDeque::new(),
            recent_bytes: 0,
            fetching: None,
            next_clean: now.monotonic + CLEAN_INTERVAL,
            snapshots,
            failed: false,
        };
        driver.execute_outputs(context, now)?;
        Ok(driver)
    }

    pub fn node(&self) -> &RaftNode {
        &self.node
    }

    /// The log's directory, offsets and size.
    pub fn log(&self) -> &MetadataLog {
        &self.log
    }

    /// When [`MetadataLogDriver::poll`] has something to do next if nothing comes in before.
    pub fn deadline(&mut self, now: Time) -> Duration {
        let next = [self.node.deadline(now), self.log.next_due(), Some(self.next_clean)];
        next.into_iter().flatten().min().unwrap_or(self.next_clean)
    }

    /// What happened, in order.
    pub fn poll_event(&mut self) -> Option<RaftEvent> {
        self.events.pop_front()
    }

    /// Makes every due step, and its disk writes, now.
    pub fn poll(&mut self, context: &Arc<LogContext>, now: Time) -> Result<(), RaftDriverError> {
        self.check()?;
        self.node.poll(now);
        self.execute_outputs(context, now)?;
        self.clean(now)
    }

    /// Accepts records for one atomic batch; see [`RaftNode::propose`]. They are written by a later poll, when they have
    /// lingered.
    pub fn propose(&mut self, now: Time, epoch: i32, records: Vec<Bytes>) -> Result<i64, ProposeError> {
        if self.failed {
            return Err(ProposeError::NotLeader);
        }
        self.node.propose(now, epoch, records)
    }

    pub fn resign(&mut self, epoch: i32) {
        self.node.resign(epoch);
    }

    pub fn shutdown(&mut self, now: Time, timeout: Duration) {
        self.node.shutdown(now, timeout);
    }

    pub fn handle_request(
        &mut self,
        context: &Arc<LogContext>,
        now: Time,
        request: InboundRequest,
    ) -> Result<(), RaftDriverError> {
        self.check()?;
        self.node.handle_request(now, request);
        self.execute_outputs(context, now)
    }

    pub fn handle_response(
        &mut self,
        context: &Arc<LogContext>,
        now: Time,
        source: i32,
        correlation_id: i32,
        response: RaftResponse,
    ) -> Result<(), RaftDriverError> {
        self.check()?;
        self.node.handle_response(now, source, correlation_id, response);
        self.execute_outputs(context, now)
    }

    /// The request was not answered.
    pub fn handle_request_failure(&mut self, now: Time, source: i32, correlation_id: i32) {
        self.node.handle_request_failure(now, source, correlation_id);
    }

    /// Closes the log as a clean shutdown does.
    pub fn close(self, now: Time) -> Result<(), RaftDriverError> {
        Ok(self.log.close(now)?)
    }

    // ---- snapshots ----

    /// Why a snapshot should be made of what was handed out so far, when it should.
    pub fn snapshot_due(&self, now: Time) -> Option<&'static str> {
        let schedule = &self.snapshots;
        if schedule.new_record_bytes == 0 {
            return None;
        }
        if schedule.new_record_bytes >= schedule.max_new_record_bytes {
            return Some("the maximum number of bytes of new records was exceeded");
        }
        let waited = now.monotonic.saturating_sub(schedule.last);
        let is_due = !schedule.max_interval.is_zero() && waited >= schedule.max_interval;
        is_due.then_some("the maximum interval between snapshots has passed")
    }

    /// Writes a snapshot of the state at `id`, which must end a batch that was handed out. `Ok(false)`: not needed.
    pub fn create_snapshot(
        &mut self,
        now: Time,
        id: OffsetAndEpoch,
        last_contained_log_timestamp: i64,
        batches: impl IntoIterator<Item = Vec<Bytes>>,
    ) -> Result<bool, RaftDriverError> {
        self.check()?;
        self.snapshots.new_record_bytes = 0;
        self.snapshots.last = now.monotonic;
        let (version, voters) = match self.node.snapshot_header(id) {
            Ok(header) => header,
            Err(SnapshotError::Unneeded) => return Ok(false),
            Err(e) => {
                return Err(RaftDriverError::Corrupt(format!("No snapshot can be made at {id}: {e:?}")));
            }
        };
        let header = SnapshotHeader {
            last_contained_log_timestamp,
            kraft_version: version.level(),
            voters: voters.map(|voters| voters.to_record()),
        };
        let Some(mut writer) = self.log.create_snapshot(snapshot_id(id), &header)? else { return Ok(false) };
        for batch in batches {
            for part in batch.chunks(SNAPSHOT_PART_RECORDS) {
                let appended = writer.append(part);
                appended
                    .map_err(|e| RaftDriverError::Corrupt(format!("Snapshot {id} cannot be written: {e}")))?;
            }
        }
        let size = self.log.freeze_snapshot(writer)?;
        self.node.handle_snapshot_created(id, i64::try_from(size).unwrap_or(i64::MAX));
        Ok(true)
    }

    fn clean(&mut self, now: Time) -> Result<(), RaftDriverError> {
        self.log.run_due(now)?;
        if now.monotonic >= self.next_clean {
            self.next_clean = now.monotonic + CLEAN_INTERVAL;
            if let Some(earliest) = self.log.clean(now)? {
                self.node.handle_log_cleaned(offset_and_epoch(earliest));
            }
        }
        Ok(())
    }

    // ---- outputs ----

    fn check(&self) -> Result<(), RaftDriverError> {
        if self.failed { Err(RaftDriverError::Failed) } else { Ok(()) }
    }

    fn execute_outputs(&mut self, context: &Arc<LogContext>, now: Time) -> Result<(), RaftDriverError> {
        while let Some(output) = self.node.poll_output() {
            if let Err(e) = self.execute(context, now, output) {
                self.failed = true;
                return Err(e);
            }
        }
        Ok(())
    }

    fn execute(
        &mut self,
        context: &Arc<LogContext>,
        now: Time,
        output: Output,
    ) -> Result<(), RaftDriverError> {
        match output {
            Output::PersistElection { election, data_version } => {
                let state = quorum_state(&election);
                let written = write_quorum_state(&*context.env.fs, self.log.dir(), &state, data_version);
                written.map_err(|e| {
                    RaftDriverError::Corrupt(format!("The quorum state cannot be written: {e}"))
                })?;
            }
            Output::Append { base_offset, next_offset, epoch, bytes } => {
                self.log.append(now, bytes.clone(), epoch, base_offset, next_offset)?;
                self.remember(base_offset, next_offset, bytes);
            }
            Output::Flush { end_offset } => {
                self.log.flush(now)?;
                self.node.handle_log_flushed(now, end_offset);
            }
            Output::TruncateTo { offset } => {
                self.log.truncate_to(offset, now)?;
                self.forget_recent();
            }
            Output::StartSnapshot { id } => {
                self.discard_fetching();
                self.fetching = Some(self.log.start_fetched_snapshot(snapshot_id(id))?);
            }
            Output::AppendSnapshot { bytes, .. } => {
                if let Some(writer) = &mut self.fetching {
                    let appended = writer.append(&bytes);
                    appended.map_err(|e| {
                        RaftDriverError::Corrupt(format!("A snapshot cannot be written: {e}"))
                    })?;
                }
            }
            Output::FreezeSnapshot { id, size } => self.freeze_fetched(now, id, size)?,
            Output::TruncateFullyAndStartAt { .. } => {
                self.log.truncate_to_latest_snapshot(now)?;
                self.forget_recent();
            }
            Output::HighWatermark { offset } => {
                self.log.update_high_watermark(offset);
                self.hand_out(offset)?;
            }
            Output::LeaderChange(leader) => self.events.push_back(RaftEvent::LeaderChange(leader)),
            Output::SendRequest { destination, correlation_id, request } => {
                self.events.push_back(RaftEvent::SendRequest { destination, correlation_id, request });
            }
            Output::SendResponse { request_id, mut response, read } => {
                if let Some(read) = read {
                    self.fill(&mut response, read)?;
                }
                self.events.push_back(RaftEvent::SendResponse { request_id, response });
            }
        }
        Ok(())
    }

    fn discard_fetching(&mut self) {
        if let Some(unfinished) = self.fetching.take()
            && let Err(e) = unfinished.discard()
        {
            // The next start removes what is left of it.
            tracing::warn!("An unfinished snapshot cannot be removed: {e}");
        }
    }

    fn freeze_fetched(&mut self, now: Time, id: OffsetAndEpoch, size: i64) -> Result<(), RaftDriverError> {
        let Some(writer) = self.fetching.take() else { return Ok(()) };
        self.log.freeze_fetched_snapshot(writer)?;
        let reader = self.log.read_snapshot(snapshot_id(id))?;
        let (version, voters) = quorum_of(reader.header())?;
        self.node.handle_snapshot_fetched(now, id, size, version, voters);
        Ok(())
    }

    fn fill(&self, response: &mut RaftResponse, read: ReadRequest) -> Result<(), RaftDriverError> {
        let bytes = match read {
            ReadRequest::Log { offset, max_bytes } => {
                self.log.read(offset, u32::try_from(max_bytes).unwrap_or(0))?
            }
            ReadRequest::Snapshot { id, position, max_bytes } => {
                let position = u64::try_from(position).unwrap_or(0);
                self.log.read_snapshot_bytes(
                    snapshot_id(id),
                    position,
                    u32::try_from(max_bytes).unwrap_or(0),
                )?
            }
        };
        match response {
            RaftResponse::Fetch(fetch) => {
                let partition = fetch.responses.first_mut().and_then(|topic| topic.partitions.first_mut());
                if let Some(partition) = partition {
                    partition.records = Some(Records::Bytes(bytes));
                }
            }
            RaftResponse::FetchSnapshot(fetch) => {
                let partition = fetch.topics.first_mut().and_then(|topic| topic.partitions.first_mut());
                if let Some(partition) = partition {
                    partition.unaligned_records = Some(Records::Bytes(bytes));
                }
            }
            _ => {}
        }
        Ok(())
    }

    // ---- handing out ----

    fn remember(&mut self, base_offset: i64, next_offset: i64, bytes: Bytes) {
        self.recent_bytes += bytes.len();
        self.recent.push_back((base_offset, next_offset, bytes));
        while self.recent_bytes > RECENT_BYTES
            && let Some((_, _, oldest)) = self.recent.pop_front()
        {
            self.recent_bytes -= oldest.len();
        }
    }

    fn forget_recent(&mut self) {
        self.recent.clear();
        self.recent_bytes = 0;
    }

    /// Hands out everything below `high_watermark` that was not yet.
    fn hand_out(&mut self, high_watermark: i64) -> Result<(), RaftDriverError> {
        if self.next_offset < high_watermark
            && (self.next_offset < 0 || self.next_offset < self.log.log_start_offset())
        {
            self.hand_out_snapshot()?;
        }
        while self.next_offset < high_watermark {
            while self.recent.front().is_some_and(|(_, next, _)| *next <= self.next_offset) {
                if let Some((_, _, bytes)) = self.recent.pop_front() {
                    self.recent_bytes -= bytes.len();
                }
            }
            let bytes = match self.recent.front() {
                Some((base, _, bytes)) if *base == self.next_offset => bytes.clone(),
                _ => self.log.read(self.next_offset, READ_BYTES)?,
            };
            if !self.hand_out_batches(&bytes, high_watermark)? {
                let at = self.next_offset;
                let cause = format!("The metadata log has no batch at offset {at} below its high watermark");
                return Err(RaftDriverError::Corrupt(cause));
            }
        }
        Ok(())
    }

    fn hand_out_snapshot(&mut self) -> Result<(), RaftDriverError> {
        let Some(id) = self.log.latest_snapshot_id() else {
            self.next_offset = 0;
            return Ok(());
        };
        let reader = self.log.read_snapshot(id)?;
        let batches =
            reader.batches().map_err(|e| RaftDriverError::Corrupt(format!("Snapshot {id:?}: {e}")))?;
        self.next_offset = id.end_offset;
        self.snapshots.new_record_bytes = 0;
        self.events.push_back(RaftEvent::Snapshot(LoadedSnapshot {
            id: offset_and_epoch(id),
            last_contained_log_timestamp: reader.header().last_contained_log_timestamp,
            batches,
        }));
        Ok(())
    }

    /// True when at least one batch was handed out.
    fn hand_out_batches(&mut self, bytes: &Bytes, high_watermark: i64) -> Result<bool, RaftDriverError> {
        let mut any = false;
        for batch in Batches::new(bytes) {
            let corrupt = |e: record::RecordError| RaftDriverError::Corrupt(format!("The metadata log: {e}"));
            let batch = batch.map_err(corrupt)?;
            if batch.next_offset() > high_watermark {
                break;
            }
            any = true;
            if batch.last_offset() < self.next_offset {
                continue;
            }
            let records = if batch.is_control_batch() {
                Vec::new()
            } else {
                let records =
                    batch.owned_records(bytes, &NoCodecs, raft::MAX_BATCH_SIZE_BYTES).map_err(corrupt)?;
                records.into_iter().map(|record| record.value.unwrap_or_default()).collect()
            };
            let size_bytes = batch.size_in_bytes() as u64;
            self.next_offset = batch.next_offset();
            self.snapshots.new_record_bytes += size_bytes;
            self.events.push_back(RaftEvent::Commit(CommittedBatch {
                base_offset: batch.base_offset,
                last_offset: batch.last_offset(),
                epoch: batch.partition_leader_epoch,
                append_timestamp: batch.max_timestamp,
                size_bytes,
                records,
            }));
        }
        Ok(any)
    }
}

fn snapshot_id(id: OffsetAndEpoch) -> SnapshotId {
    SnapshotId::new(id.offset, id.epoch)
}

fn offset_and_epoch(id: SnapshotId) -> OffsetAndEpoch {
    OffsetAndEpoch::new(id.end_offset, id.epoch)
}

fn election_state(state: QuorumStateData) -> ElectionState {
    ElectionState {
        epoch: state.leader_epoch.max(0),
        leader_id: state.leader_id,
        voted: state.voted_id.map(|id| ReplicaKey::new(id, state.voted_directory_id)),
        voters: state.current_voters,
    }
}

fn quorum_state(election: &ElectionState) -> QuorumStateData {
    QuorumStateData {
        leader_id: election.leader_id,
        leader_epoch: election.epoch,
        voted_id: election.voted.map(|voted| voted.id),
        voted_directory_id: election.voted.map_or(Uuid::ZERO, |voted| voted.directory_id_or_zero()),
        current_voters: election.voters.clone(),
    }
}

fn quorum_of(header: &SnapshotHeader) -> Result<(KRaftVersion, Option<VoterSet>), RaftDriverError> {
    let version = KRaftVersion::from_level(header.kraft_version).ok_or_else(|| {
        let level = header.kraft_version;
        RaftDriverError::Corrupt(format!(
            "kraft.version {level} in a snapshot is newer than this release knows"
        ))
    })?;
    Ok((version, header.voters.as_ref().map(VoterSet::from_record)))
}

/// What the replica must know of the log: its ends, and the quorum's control records in snapshot and log.
fn read_log_init(log: &MetadataLog) -> Result<LogInit, RaftDriverError> {
    let mut init = LogInit {
        start_offset: log.log_start_offset(),
        end_offset: log.log_end_offset(),
        epochs: log.epochs(),
        snapshots: log
            .snapshots()
            .map(|(id, size)| (offset_and_epoch(id), i64::try_from(size).unwrap_or(i64::MAX)))
            .collect(),
        ..LogInit::default()
    };
    let mut offset = 0;
    if let Some(id) = log.latest_snapshot_id() {
        let reader = log.read_snapshot(id)?;
        let (version, voters) = quorum_of(reader.header())?;
        offset = id.end_offset;
        if version.is_reconfig_supported() {
            init.kraft_versions.push((offset - 1, version));
        }
        init.voter_sets.extend(voters.map(|voters| (offset - 1, voters)));
    }
    while offset < init.end_offset {
        let bytes = log.read(offset, READ_BYTES)?;
        for (at, record) in control_records(&bytes) {
            match record {
                ControlRecord::Voters(voters) if at >= offset => init.voter_sets.push((at, voters)),
                ControlRecord::KRaftVersion(version) if at >= offset => {
                    init.kraft_versions.push((at, version))
                }
                _ => {}
            }
        }
        let next = Batches::new(&bytes).map_while(Result::ok).last().map(|batch| batch.next_offset());
        match next {
            Some(next) if next > offset => offset = next,
            _ => {
                return Err(RaftDriverError::Corrupt(format!(
                    "The metadata log has no batch at offset {offset}"
                )));
            }
        }
    }
    Ok(init)
}

#[cfg(test)]
#[path = "raft_driver_tests.rs"]
mod tests;
