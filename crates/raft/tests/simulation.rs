//! Several replicas in one thread with virtual time, a network that delays, drops and partitions, and disks that forget
//! what was not flushed. A seed decides everything; a failure prints it, and `RAFT_SEED=n` replays it alone;
//! `RAFT_SEEDS=n` tries the first n.
//!
//! Checked all the time: one leader per epoch; a vote or an epoch is never taken back, crashes included; committed
//! records are the same on all replicas, in order, and never lost. Checked at the end, when all faults stop: a leader
//! is found and new records are committed everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use protocol::messages::{
    BeginQuorumEpochRequest, DescribeQuorumRequest, EndQuorumEpochRequest, FetchRequest,
    FetchSnapshotRequest, VoteRequest, begin_quorum_epoch_request, describe_quorum_request,
    end_quorum_epoch_request, fetch_request, fetch_snapshot_request, vote_request,
};
use protocol::{ErrorCode, Records, Uuid};
use raft::batches::{ControlRecord, control_records};
use raft::{
    Destination, ElectionState, Endpoints, InboundRequest, KRaftVersion, LogInit, OffsetAndEpoch, Output,
    RaftConfig, RaftNode, RaftRequest, RaftResponse, ReadRequest, ReplicaKey, VoterNode, VoterSet,
};
use record::{Batches, NoCodecs, Time};

const LISTENER: &str = "CONTROLLER";
const CLUSTER_ID: &str = "5L6g3nShT-eMCtK--X86sw";

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone)]
struct Batch {
    base: i64,
    next: i64,
    epoch: i32,
    bytes: Bytes,
}

/// A snapshot's content: all committed values below its end, one per line, and the quorum of its header.
#[derive(Clone)]
struct Snapshot {
    bytes: Bytes,
    version: KRaftVersion,
    voters: Option<VoterSet>,
}

/// What survives a crash, and the log's unflushed tail, which does not.
#[derive(Clone, Default)]
struct Disk {
    election: Option<ElectionState>,
    start: i64,
    batches: Vec<Batch>,
    flushed: i64,
    snapshots: BTreeMap<OffsetAndEpoch, Snapshot>,
    partial: Option<(OffsetAndEpoch, Vec<u8>)>,
}

impl Disk {
    fn end(&self) -> i64 {
        self.batches.last().map_or(self.start, |batch| batch.next)
    }

    fn persist_election(&mut self, election: ElectionState, seed: u64) {
        if let Some(old) = &self.election {
            assert!(election.epoch >= old.epoch, "seed {seed}: an epoch went back");
            if election.epoch == old.epoch && old.voted.is_some() && election.leader_id.is_none() {
                assert_eq!(election.voted, old.voted, "seed {seed}: a vote was taken back");
            }
        }
        self.election = Some(election);
    }

    fn crash(&mut self, keep: u64) {
        // Some of the unflushed batches may have reached the disk all the same.
        let flushed = self.flushed;
        let mut kept = keep;
        self.batches.retain(|batch| {
            let stays = batch.next <= flushed || kept > 0;
            if batch.next > flushed {
                kept = kept.saturating_sub(1);
            }
            stays
        });
        self.flushed = self.end();
        self.partial = None;
    }

    fn log_init(&self) -> LogInit {
        let mut epochs: Vec<(i32, i64)> = Vec::new();
        for batch in &self.batches {
            if epochs.last().is_none_or(|(epoch, _)| batch.epoch > *epoch) {
                epochs.push((batch.epoch, batch.base));
            }
        }
        let mut init = LogInit {
            start_offset: self.start,
            end_offset: self.end(),
            epochs,
            snapshots: self.snapshots.iter().map(|(id, s)| (*id, s.bytes.len() as i64)).collect(),
            ..LogInit::default()
        };
        let mut from = 0;
        if let Some((id, snapshot)) = self.snapshots.last_key_value() {
            from = id.offset;
            init.kraft_versions.push((id.offset - 1, snapshot.version));
            init.voter_sets.extend(snapshot.voters.clone().map(|voters| (id.offset - 1, voters)));
        }
        for batch in self.batches.iter().filter(|batch| batch.base >= from) {
            for (offset, record) in control_records(&batch.bytes) {
                match record {
                    ControlRecord::Voters(voters) => init.voter_sets.push((offset, voters)),
                    ControlRecord::KRaftVersion(version) => init.kraft_versions.push((offset, version)),
                    ControlRecord::Other => {}
                }
            }
        }
        init
    }

    fn read(&self, read: ReadRequest) -> Bytes {
        match read {
            ReadRequest::Log { offset, max_bytes } => {
                let mut out = Vec::new();
                for batch in self.batches.iter().filter(|batch| batch.next > offset) {
                    if !out.is_empty() && out.len() + batch.bytes.len() > max_bytes as usize {
                        break;
                    }
                    out.extend_from_slice(&batch.bytes);
                }
                out.into()
            }
            ReadRequest::Snapshot { id, position, max_bytes } => {
                let bytes = &self.snapshots[&id].bytes;
                let start = position as usize;
                bytes.slice(start..bytes.len().min(start + max_bytes as usize))
            }
        }
    }
}

enum Message {
    Request { from: i32, correlation_id: i32, request: RaftRequest },
    Response { from: i32, correlation_id: i32, response: RaftResponse },
    Failure { from: i32, correlation_id: i32 },
}

struct Replica {
    node: Option<RaftNode>,
    disk: Disk,
    /// Values committed so far as this replica was told, since its last start, and the offset behind them.
    applied: Vec<String>,
    next_offset: i64,
    /// Open requests: id → who asked, under which correlation id.
    asked: BTreeMap<u64, (i32, i32)>,
    incarnation: u64,
}

struct Cluster {
    seed: u64,
    random: Random,
    now_ms: u64,
    voters: i32,
    dynamic: bool,
    replicas: BTreeMap<i32, Replica>,
    /// In flight: due time and sequence → receiver, its incarnation, message.
    messages: BTreeMap<(u64, u64), (i32, Message)>,
    sequence: u64,
    cut_off: BTreeSet<i32>,
    faults: bool,
    leaders: BTreeMap<i32, i32>,
    committed: BTreeMap<i64, String>,
    proposed: u64,
    snapshots_fetched: u64,
}

fn directory(id: i32) -> Uuid {
    Uuid([id as u8; 16])
}

fn endpoints(id: i32) -> Endpoints {
    Endpoints::single(LISTENER, format!("node{id}"), 9093)
}

impl Cluster {
    fn new(seed: u64, voters: i32, observers: i32, dynamic: bool) -> Cluster {
        let mut cluster = Cluster {
            seed,
            random: Random(seed),
            now_ms: 1,
            voters,
            dynamic,
            replicas: BTreeMap::new(),
            messages: BTreeMap::new(),
            sequence: 0,
            cut_off: BTreeSet::new(),
            faults: true,
            leaders: BTreeMap::new(),
            committed: BTreeMap::new(),
            proposed: 0,
            snapshots_fetched: 0,
        };
        for id in 1..=voters + observers {
            let mut disk = Disk::default();
            if dynamic && id <= voters {
                let snapshot = Snapshot {
                    bytes: Bytes::from_static(b"\n"),
                    version: KRaftVersion::V1,
                    voters: Some(cluster.voter_set()),
                };
                disk.snapshots.insert(OffsetAndEpoch::BOOTSTRAP_SNAPSHOT, snapshot);
            }
            let replica = Replica {
                node: None,
                disk,
                applied: Vec::new(),
                next_offset: 0,
                asked: BTreeMap::new(),
                incarnation: 0,
            };
            cluster.replicas.insert(id, replica);
            cluster.start(id);
        }
        cluster
    }

    fn voter_set(&self) -> VoterSet {
        let node = |id| VoterNode {
            key: ReplicaKey::new(id, directory(id)),
            listeners: endpoints(id),
            supported_kraft_versions: (0, 1),
        };
        (1..=self.voters).map(node).collect()
    }

    fn config(&self, id: i32) -> RaftConfig {
        let mut config = RaftConfig::new(id, directory(id), CLUSTER_ID, LISTENER);
        config.local_listeners = if id <= self.voters { endpoints(id) } else { Endpoints::empty() };
        config.can_become_voter = id <= self.voters;
        if self.dynamic {
            let server = |n: i32| Destination { id: -1 - n, host: format!("node{n}"), port: 9093 };
            config.bootstrap_servers = (1..=self.voters).map(server).collect();
        } else {
            config.static_voters =
                VoterSet::from_static(LISTENER, (1..=self.voters).map(|n| (n, format!("node{n}"), 9093)));
        }
        config.fetch_snapshot_max_bytes = 40;
        config.fetch_max_bytes = 400;
        config.append_linger = Duration::from_millis(5);
        config.random_seed = self.seed;
        config
    }

    fn now(&self) -> Time {
        Time::new(Duration::from_millis(self.now_ms), 1_700_000_000_000 + self.now_ms as i64)
    }

    fn start(&mut self, id: i32) {
        let (config, now) = (self.config(id), self.now());
        let replica = self.replicas.get_mut(&id).unwrap();
        let previous = replica.disk.election.clone();
        let node = RaftNode::new(now, config, replica.disk.log_init(), previous.clone()).unwrap();
        if let Some(previous) = previous {
            assert!(node.epoch() >= previous.epoch, "seed {}: an epoch went back at start", self.seed);
        }
        replica.node = Some(node);
        replica.applied.clear();
        replica.next_offset = 0;
        replica.asked.clear();
        replica.incarnation += 1;
        self.drain(id);
    }

    fn stop(&mut self, id: i32) {
        let keep = self.random.below(3);
        let replica = self.replicas.get_mut(&id).unwrap();
        replica.node = None;
        replica.disk.crash(keep);
    }

    fn connected(&self, a: i32, b: i32) -> bool {
        self.cut_off.contains(&a) == self.cut_off.contains(&b)
    }

    fn send(&mut self, from: i32, to: i32, message: Message) {
        let lost = !self.connected(from, to) || (self.faults && self.random.one_in(20));
        let delay =
            if self.faults && self.random.one_in(10) { self.random.below(400) } else { self.random.below(8) };
        self.sequence += 1;
        if !lost {
            self.messages.insert((self.now_ms + 1 + delay, self.sequence), (to, message));
        }
    }

    /// Executes a replica's outputs on its disk, in order.
    fn drain(&mut self, id: i32) {
        loop {
            let replica = self.replicas.get_mut(&id).unwrap();
            let Some(node) = &mut replica.node else { return };
            let Some(output) = node.poll_output() else { return };
            self.execute(id, output);
        }
    }

    fn execute(&mut self, id: i32, output: Output) {
        let (seed, now) = (self.seed, self.now());
        let replica = self.replicas.get_mut(&id).unwrap();
        let (Some(node), disk) = (&mut replica.node, &mut replica.disk) else { return };
        match output {
            Output::PersistElection { election, data_version } => {
                assert!((0..=1).contains(&data_version));
                disk.persist_election(election, seed);
            }
            Output::Append { base_offset, next_offset, epoch, bytes } => {
                assert_eq!(base_offset, disk.end(), "seed {seed}");
                for batch in Batches::new(&bytes) {
                    let batch = batch.unwrap();
                    assert_eq!(batch.partition_leader_epoch, epoch, "seed {seed}");
                }
                disk.batches.push(Batch { base: base_offset, next: next_offset, epoch, bytes });
            }
            Output::Flush { end_offset } => {
                assert!(end_offset <= disk.end());
                disk.flushed = disk.flushed.max(end_offset);
                node.handle_log_flushed(now, end_offset);
            }
            Output::TruncateTo { offset } => {
                assert!(offset >= replica.next_offset, "seed {seed}: committed records are cut off");
                disk.batches.retain(|batch| batch.base < offset);
                assert_eq!(disk.end(), offset, "seed {seed}: truncation is batch aligned");
                disk.flushed = disk.flushed.min(offset);
            }
            Output::StartSnapshot { id } => disk.partial = Some((id, Vec::new())),
            Output::AppendSnapshot { id, position, bytes } => {
                let (partial, content) = disk.partial.as_mut().unwrap();
                assert_eq!((*partial, content.len() as i64), (id, position), "seed {seed}");
                content.extend_from_slice(&bytes);
            }
            Output::FreezeSnapshot { id: snapshot_id, size } => {
                let (partial, content) = disk.partial.take().unwrap();
                assert_eq!((partial, content.len() as i64), (snapshot_id, size), "seed {seed}");
                self.freeze_snapshot(id, snapshot_id, content.into());
            }
            Output::TruncateFullyAndStartAt { id } => {
                disk.batches.clear();
                disk.start = id.offset;
                disk.flushed = id.offset;
                disk.snapshots.retain(|snapshot, _| *snapshot >= id);
            }
            Output::HighWatermark { offset } => self.apply(id, offset),
            Output::LeaderChange(leader) if leader.leader_id == Some(id) => {
                let other = self.leaders.insert(leader.epoch, id);
                let alone = other.is_none_or(|other| other == id);
                assert!(alone, "seed {seed}: two leaders in epoch {}", leader.epoch);
            }
            Output::LeaderChange(_) => {}
            Output::SendRequest { destination, correlation_id, request } => {
                let to: i32 = destination.host.trim_start_matches("node").parse().unwrap();
                // The answer comes back under the id that the request was sent to.
                self.send(
                    id,
                    to,
                    Message::Request { from: pack(id, destination.id), correlation_id, request },
                );
            }
            Output::SendResponse { request_id, mut response, read } => {
                if let Some(read) = read {
                    fill(&mut response, disk.read(read));
                }
                if let Some((from, correlation_id)) = replica.asked.remove(&request_id) {
                    let (to, asked_as) = unpack(from);
                    self.send(id, to, Message::Response { from: asked_as, correlation_id, response });
                }
            }
        }
    }

    fn freeze_snapshot(&mut self, id: i32, snapshot_id: OffsetAndEpoch, bytes: Bytes) {
        self.snapshots_fetched += 1;
        let now = self.now();
        // The header is in the bytes of a real snapshot; here it is looked up where it came from.
        let header =
            self.replicas.values().find_map(|replica| replica.disk.snapshots.get(&snapshot_id)).cloned();
        let version = header.as_ref().map_or(KRaftVersion::V0, |header| header.version);
        let voters = header.and_then(|header| header.voters);
        let replica = self.replicas.get_mut(&id).unwrap();
        let size = bytes.len() as i64;
        replica.disk.snapshots.insert(snapshot_id, Snapshot { bytes, version, voters: voters.clone() });
        if let Some(node) = &mut replica.node {
            node.handle_snapshot_fetched(now, snapshot_id, size, version, voters);
        }
    }

    /// Hands a replica everything that is committed, and compares it with what others were handed.
    fn apply(&mut self, id: i32, high_watermark: i64) {
        let seed = self.seed;
        let replica = self.replicas.get_mut(&id).unwrap();
        if replica.next_offset < high_watermark && replica.next_offset < replica.disk.start.max(1) {
            let latest = replica.disk.snapshots.last_key_value();
            if let Some((snapshot_id, snapshot)) =
                latest.filter(|(id, _)| **id != OffsetAndEpoch::BOOTSTRAP_SNAPSHOT)
            {
                let text = String::from_utf8(snapshot.bytes.to_vec()).unwrap();
                replica.applied = text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
                replica.next_offset = snapshot_id.offset;
                let expected: Vec<&String> = self
                    .committed
                    .range(..snapshot_id.offset)
                    .map(|(_, v)| v)
                    .filter(|v| !v.is_empty())
                    .collect();
                assert_eq!(
                    replica.applied.iter().collect::<Vec<_>>(),
                    expected,
                    "seed {seed}: a snapshot differs"
                );
            }
        }
        for batch in replica.disk.batches.clone() {
            if batch.next <= replica.next_offset || batch.next > high_watermark {
                continue;
            }
            let parsed = record::RecordBatch::first(&batch.bytes).unwrap().unwrap();
            let records = parsed.owned_records(&batch.bytes, &NoCodecs, 1 << 20).unwrap();
            for record in records {
                let is_data = !parsed.is_control_batch();
                let value = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned();
                let value = if is_data { value } else { String::new() };
                if is_data {
                    replica.applied.push(value.clone());
                }
                let known = self.committed.entry(record.offset).or_insert_with(|| value.clone());
                assert_eq!(
                    *known, value,
                    "seed {seed}: replicas committed different records at {}",
                    record.offset
                );
            }
            replica.next_offset = batch.next;
        }
        assert_eq!(
            replica.next_offset, high_watermark,
            "seed {seed}: the high watermark is a batch boundary that is here"
        );
    }

    fn deliver(&mut self, to: i32, message: Message) {
        let now = self.now();
        let request_id = self.sequence;
        let replica = self.replicas.get_mut(&to).unwrap();
        let Some(node) = &mut replica.node else {
            // A connection to a dead process is refused.
            if let Message::Request { from, correlation_id, .. } = message {
                let (asker, asked_as) = unpack(from);
                self.send(to, asker, Message::Failure { from: asked_as, correlation_id });
            }
            return;
        };
        match message {
            Message::Request { from, correlation_id, request } => {
                replica.asked.insert(request_id, (from, correlation_id));
                self.sequence += 1;
                let inbound = InboundRequest {
                    request_id,
                    api_version: version_of(&request),
                    listener_name: LISTENER.into(),
                    request,
                };
                node.handle_request(now, inbound);
            }
            Message::Response { from, correlation_id, response } => {
                node.handle_response(now, from, correlation_id, response);
            }
            Message::Failure { from, correlation_id } => {
                node.handle_request_failure(now, from, correlation_id)
            }
        }
        self.drain(to);
    }

    fn poll(&mut self, id: i32) {
        let now = self.now();
        if let Some(node) = &mut self.replicas.get_mut(&id).unwrap().node {
            node.poll(now);
        }
        self.drain(id);
    }

    fn leader(&self) -> Option<i32> {
        let leads = |replica: &&Replica| replica.node.as_ref().is_some_and(RaftNode::is_leader);
        let leaders = self.replicas.iter().filter(|(_, replica)| leads(replica));
        leaders.max_by_key(|(_, replica)| replica.node.as_ref().map(RaftNode::epoch)).map(|(id, _)| *id)
    }

    fn propose(&mut self) {
        let now = self.now();
        let Some(leader) = self.leader() else { return };
        self.proposed += 1;
        let value = Bytes::from(format!("v{}", self.proposed));
        if let Some(node) = &mut self.replicas.get_mut(&leader).unwrap().node {
            let epoch = node.epoch();
            let _ = node.propose(now, epoch, vec![value]);
        }
    }

    /// A replica makes a snapshot of what it has applied and forgets the log below it.
    fn snapshot(&mut self, id: i32) {
        let replica = self.replicas.get_mut(&id).unwrap();
        let Some(node) = &mut replica.node else { return };
        let end = replica.next_offset;
        let Some(last) = replica.disk.batches.iter().find(|batch| batch.next == end) else { return };
        let snapshot_id = OffsetAndEpoch::new(end, last.epoch);
        let Ok((version, voters)) = node.snapshot_header(snapshot_id) else { return };
        let bytes = Bytes::from(replica.applied.join("\n") + "\n");
        node.handle_snapshot_created(snapshot_id, bytes.len() as i64);
        replica.disk.snapshots.insert(snapshot_id, Snapshot { bytes, version, voters });
        node.handle_log_cleaned(snapshot_id);
        replica.disk.snapshots.retain(|id, _| *id >= snapshot_id);
        // Whole segments go; the records above the snapshot stay.
        replica.disk.batches.retain(|batch| batch.next > end);
        replica.disk.start = end;
        replica.disk.flushed = replica.disk.flushed.max(end);
    }

    fn step(&mut self) {
        self.now_ms += 1;
        while let Some(((due, _), _)) = self.messages.first_key_value()
            && *due <= self.now_ms
        {
            let (_, (to, message)) = self.messages.pop_first().unwrap();
            self.deliver(to, message);
        }
        let now = self.now();
        for id in self.replicas.keys().copied().collect::<Vec<_>>() {
            let node = self.replicas.get_mut(&id).and_then(|replica| replica.node.as_mut());
            if node.and_then(|node| node.deadline(now)).is_some_and(|due| due <= now.monotonic) {
                self.poll(id);
            }
        }
    }

    fn run_with_faults(&mut self, ms: u64) {
        for _ in 0..ms {
            self.step();
            if self.random.one_in(25) {
                self.propose();
            }
            if self.random.one_in(900) {
                let id = 1 + self.random.below(self.replicas.len() as u64) as i32;
                self.stop(id);
            }
            if self.random.one_in(300) {
                let stopped =
                    self.replicas.iter().find(|(_, replica)| replica.node.is_none()).map(|(id, _)| *id);
                if let Some(id) = stopped {
                    self.start(id);
                }
            }
            if self.random.one_in(1500) {
                self.cut_off.clear();
                if self.random.one_in(2) {
                    self.cut_off.insert(1 + self.random.below(self.replicas.len() as u64) as i32);
                }
            }
            if self.random.one_in(400) {
                let id = 1 + self.random.below(self.replicas.len() as u64) as i32;
                self.snapshot(id);
            }
            if self.random.one_in(2000)
                && let Some(leader) = self.leader()
                && let Some(node) = &mut self.replicas.get_mut(&leader).unwrap().node
            {
                node.resign(node.epoch());
            }
        }
    }

    /// All faults stop: everything must come together.
    fn heal(&mut self) {
        self.faults = false;
        self.cut_off.clear();
        for id in self.replicas.keys().copied().collect::<Vec<_>>() {
            if self.replicas[&id].node.is_none() {
                self.start(id);
            }
        }
        for _ in 0..15_000 {
            self.step();
        }
        assert!(self.leader().is_some(), "seed {}: no leader after all faults stopped", self.seed);
        self.propose();
        let wanted = format!("v{}", self.proposed);
        for _ in 0..3000 {
            self.step();
        }
        for (id, replica) in &self.replicas {
            let last = replica.applied.last();
            assert_eq!(last, Some(&wanted), "seed {}: replica {id} is behind", self.seed);
        }
        let leader = self.leader().unwrap();
        let expected: Vec<&String> = self.committed.values().filter(|value| !value.is_empty()).collect();
        assert_eq!(self.replicas[&leader].applied.iter().collect::<Vec<_>>(), expected, "seed {}", self.seed);
    }
}

/// A replica and the id under which it addressed its peer, in one number.
fn pack(id: i32, asked_as: i32) -> i32 {
    id * 1000 + (asked_as + 500)
}

fn unpack(packed: i32) -> (i32, i32) {
    (packed / 1000, packed % 1000 - 500)
}

fn version_of(request: &RaftRequest) -> i16 {
    match request {
        RaftRequest::Vote(_) | RaftRequest::DescribeQuorum(_) => 2,
        RaftRequest::Fetch(_) => 18,
        _ => 1,
    }
}

fn fill(response: &mut RaftResponse, bytes: Bytes) {
    match response {
        RaftResponse::Fetch(fetch) => fetch.responses[0].partitions[0].records = Some(Records::Bytes(bytes)),
        RaftResponse::FetchSnapshot(fetch) => {
            fetch.topics[0].partitions[0].unaligned_records = Some(Records::Bytes(bytes));
        }
        other => panic!("{other:?} carries no records"),
    }
}

#[test]
fn quorums_keep_their_promises_through_crashes_losses_and_partitions() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let only = number("RAFT_SEED");
    let (mut committed, mut leaders, mut fetched) = (0, 0, 0);
    for seed in only.map_or(0..number("RAFT_SEEDS").unwrap_or(40), |seed| seed..seed + 1) {
        let (voters, observers) = [(3, 1), (1, 1), (5, 0), (2, 1)][seed as usize % 4];
        let mut cluster = Cluster::new(seed, voters, observers, seed % 3 != 0);
        cluster.run_with_faults(20_000);
        cluster.heal();
        committed += cluster.committed.len();
        leaders += cluster.leaders.len();
        fetched += cluster.snapshots_fetched;
    }
    if only.is_none() {
        assert!(
            committed > 4000 && leaders > 150 && fetched > 40,
            "{committed} {leaders} {fetched}: too quiet to show anything"
        );
    }
}

#[test]
fn the_quorum_is_described_by_its_leader_only() {
    let mut cluster = Cluster::new(7, 3, 1, true);
    cluster.faults = false;
    for _ in 0..5000 {
        cluster.step();
    }
    let leader = cluster.leader().unwrap();
    let now = cluster.now();
    let mut ask = |id: i32, topic: &str, version| {
        let node = cluster.replicas.get_mut(&id).unwrap().node.as_mut().unwrap();
        let partition = describe_quorum_request::PartitionData { partition_index: 0 };
        let topic =
            describe_quorum_request::TopicData { topic_name: topic.into(), partitions: vec![partition] };
        let request = RaftRequest::DescribeQuorum(DescribeQuorumRequest { topics: vec![topic] });
        let inbound =
            InboundRequest { request_id: 9, api_version: version, listener_name: LISTENER.into(), request };
        node.handle_request(now, inbound);
        match node.poll_output() {
            Some(Output::SendResponse {
                request_id: 9,
                response: RaftResponse::DescribeQuorum(response),
                ..
            }) => response,
            other => panic!("{other:?}"),
        }
    };
    let response = ask(leader, "__cluster_metadata", 2);
    let partition = &response.topics[0].partitions[0];
    assert_eq!((partition.error_code, partition.leader_id), (0, leader));
    assert!(partition.high_watermark > 0);
    let voters: Vec<_> =
        partition.current_voters.iter().map(|v| (v.replica_id, v.replica_directory_id)).collect();
    assert_eq!(voters, [(1, directory(1)), (2, directory(2)), (3, directory(3))]);
    assert!(partition.current_voters.iter().all(|v| v.log_end_offset == partition.high_watermark));
    assert_eq!(partition.observers.iter().map(|o| o.replica_id).collect::<Vec<_>>(), [4]);
    assert_eq!(response.nodes.iter().map(|n| n.node_id).collect::<Vec<_>>(), [1, 2, 3]);
    let old = ask(leader, "__cluster_metadata", 1);
    assert!(
        old.nodes.is_empty()
            && old.topics[0].partitions[0].current_voters[0].replica_directory_id == Uuid::ZERO
    );
    let follower = if leader == 1 { 2 } else { 1 };
    for (id, topic, error) in [
        (follower, "__cluster_metadata", ErrorCode::NOT_LEADER_OR_FOLLOWER),
        (leader, "other", ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
    ] {
        assert_eq!(ask(id, topic, 2).topics[0].partitions[0].error_code, error.0);
    }
}

/// A request with fields drawn from the edges of their ranges and from values that make sense.
fn strange_request(random: &mut Random, epoch: i32, end: i64) -> RaftRequest {
    let name = if random.one_in(20) { "other" } else { "__cluster_metadata" }.to_owned();
    let cluster_id = [None, Some("x"), Some(CLUSTER_ID)][random.below(40).min(2) as usize].map(str::to_owned);
    let kind = random.below(5);
    let mut strange = Strange { random, epoch, end };
    match kind {
        0 => strange.vote(name, cluster_id),
        1 => strange.begin_quorum_epoch(name, cluster_id),
        2 => strange.end_quorum_epoch(name, cluster_id),
        3 => strange.fetch(cluster_id),
        _ => strange.fetch_snapshot(name, cluster_id),
    }
}

struct Strange<'a> {
    random: &'a mut Random,
    epoch: i32,
    end: i64,
}

impl Strange<'_> {
    fn int(&mut self) -> i32 {
        let near = [self.epoch - 1, self.epoch, self.epoch + 1, 0, 1, 2, 3];
        let all = [-1, i32::MIN, i32::MAX, 9];
        if self.random.one_in(6) {
            all[self.random.below(4) as usize]
        } else {
            near[self.random.below(7) as usize]
        }
    }

    fn long(&mut self) -> i64 {
        let values = [-1, i64::MIN, i64::MAX, 0, 1, self.end - 1, self.end, self.end + 1];
        values[self.random.below(8) as usize]
    }

    fn id(&mut self) -> Uuid {
        [directory(1), directory(2), Uuid::ZERO, Uuid([9; 16])][self.random.below(4) as usize]
    }

    fn vote(&mut self, name: String, cluster_id: Option<String>) -> RaftRequest {
        let partition = vote_request::PartitionData {
            partition_index: 0,
            replica_epoch: self.int(),
            replica_id: self.int(),
            replica_directory_id: self.id(),
            voter_directory_id: self.id(),
            last_offset_epoch: self.int(),
            last_offset: self.long(),
            pre_vote: self.random.one_in(2),
        };
        let topic = vote_request::TopicData { topic_name: name, partitions: vec![partition] };
        RaftRequest::Vote(VoteRequest { cluster_id, voter_id: self.int(), topics: vec![topic] })
    }

    fn begin_quorum_epoch(&mut self, name: String, cluster_id: Option<String>) -> RaftRequest {
        let partition = begin_quorum_epoch_request::PartitionData {
            partition_index: 0,
            voter_directory_id: self.id(),
            leader_id: self.int(),
            leader_epoch: self.int(),
        };
        let topic = begin_quorum_epoch_request::TopicData { topic_name: name, partitions: vec![partition] };
        RaftRequest::BeginQuorumEpoch(BeginQuorumEpochRequest {
            cluster_id,
            voter_id: self.int(),
            topics: vec![topic],
            ..Default::default()
        })
    }

    fn end_quorum_epoch(&mut self, name: String, cluster_id: Option<String>) -> RaftRequest {
        let partition = end_quorum_epoch_request::PartitionData {
            leader_id: self.int(),
            leader_epoch: self.int(),
            preferred_successors: vec![self.int(); self.random.below(40) as usize],
            ..Default::default()
        };
        let topic = end_quorum_epoch_request::TopicData { topic_name: name, partitions: vec![partition] };
        RaftRequest::EndQuorumEpoch(EndQuorumEpochRequest {
            cluster_id,
            topics: vec![topic],
            ..Default::default()
        })
    }

    fn fetch(&mut self, cluster_id: Option<String>) -> RaftRequest {
        let partition = fetch_request::FetchPartition {
            current_leader_epoch: self.int(),
            fetch_offset: self.long(),
            last_fetched_epoch: self.int(),
            replica_directory_id: self.id(),
            high_watermark: self.long(),
            ..Default::default()
        };
        let topic = fetch_request::FetchTopic {
            topic_id: Uuid::METADATA_TOPIC_ID,
            partitions: vec![partition],
            ..Default::default()
        };
        let (max_bytes, max_wait_ms) = (self.int(), self.int());
        let replica_state = fetch_request::ReplicaState { replica_id: self.int(), ..Default::default() };
        RaftRequest::Fetch(FetchRequest {
            cluster_id,
            replica_state,
            max_bytes,
            max_wait_ms,
            topics: vec![topic],
            ..Default::default()
        })
    }

    fn fetch_snapshot(&mut self, name: String, cluster_id: Option<String>) -> RaftRequest {
        let snapshot_id = fetch_snapshot_request::SnapshotId { end_offset: self.long(), epoch: self.int() };
        let partition = fetch_snapshot_request::PartitionSnapshot {
            current_leader_epoch: self.int(),
            snapshot_id,
            position: self.long(),
            ..Default::default()
        };
        let topic = fetch_snapshot_request::TopicSnapshot { name, partitions: vec![partition] };
        let (replica_id, max_bytes) = (self.int(), self.int());
        RaftRequest::FetchSnapshot(FetchSnapshotRequest {
            cluster_id,
            replica_id,
            max_bytes,
            topics: vec![topic],
        })
    }
}

#[test]
fn strange_requests_are_answered_once_and_never_panic() {
    for seed in 0..200 {
        let mut cluster = Cluster::new(seed, [1, 3][seed as usize % 2], 1, seed % 3 != 0);
        cluster.faults = false;
        for _ in 0..2500 {
            cluster.step();
        }
        let mut random = Random(seed ^ 0xABCD);
        for request_id in 1_000_000..1_000_060 {
            let id = 1 + random.below(cluster.replicas.len() as u64) as i32;
            let mut now = cluster.now();
            let node = cluster.replicas.get_mut(&id).unwrap().node.as_mut().unwrap();
            let request = strange_request(&mut random, node.epoch(), node.log_end_offset());
            let described = format!("{request:?}");
            let inbound = InboundRequest {
                request_id,
                api_version: version_of(&request),
                listener_name: LISTENER.into(),
                request,
            };
            let epoch = node.epoch();
            node.handle_request(now, inbound);
            // A fetch may wait; none waits longer than it asked to, and none here asks for more than ten seconds or for ever.
            let mut answers = 0;
            for _ in 0..3 {
                while let Some(output) = node.poll_output() {
                    match output {
                        Output::SendResponse { request_id: answered, .. } if answered == request_id => {
                            answers += 1
                        }
                        Output::Flush { end_offset } => node.handle_log_flushed(now, end_offset),
                        _ => {}
                    }
                }
                if answers == 0 {
                    now.monotonic += Duration::from_millis(u64::from(u32::MAX));
                    node.poll(now);
                }
            }
            assert_eq!(answers, 1, "seed {seed}: {described}");
            assert!(node.epoch() >= epoch);
        }
    }
}
