//! The driver on a simulated disk: a single voter from format to restart, snapshots, cleaning, power cuts.

use std::path::Path;

use super::*;
use env::Env;
use storage::format::{FormatOptions, MetaProperties, format};
use testkit::Sim;

const CLUSTER_ID: &str = "5L6g3nShT-eMCtK--X86sw";

fn server_config(extra: &[(&str, &str)]) -> ServerConfig {
    let base = [
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        ("controller.quorum.bootstrap.servers", "127.0.0.1:21501"),
        ("listeners", "PLAINTEXT://127.0.0.1:21500,CONTROLLER://127.0.0.1:21501"),
        ("controller.listener.names", "CONTROLLER"),
        ("log.dirs", "/data"),
    ];
    // An empty value takes a property away.
    let mut all = std::collections::BTreeMap::new();
    for (key, value) in base.iter().chain(extra) {
        all.insert((*key).to_owned(), (*value).to_owned());
    }
    all.retain(|_, value| !value.is_empty());
    ServerConfig::from_map(all).expect("the configuration of a test is right")
}

struct Node {
    sim: Sim,
    env: Env,
    config: ServerConfig,
    /// Time goes on over restarts.
    now_ms: u64,
}

/// What a run of the node was told.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    snapshots: Vec<OffsetAndEpoch>,
    records: Vec<(i64, Bytes)>,
    next_offset: i64,
    leader: Option<LeaderAndEpoch>,
}

impl Seen {
    fn take(&mut self, driver: &mut MetadataLogDriver) {
        while let Some(event) = driver.poll_event() {
            match event {
                RaftEvent::Snapshot(snapshot) => {
                    self.snapshots.push(snapshot.id);
                    self.next_offset = snapshot.id.offset;
                    if !snapshot.is_bootstrap() {
                        self.records =
                            snapshot.batches.concat().into_iter().map(|value| (-1, value)).collect();
                    }
                }
                RaftEvent::Commit(batch) => {
                    assert_eq!(batch.base_offset, self.next_offset, "batches come without gaps");
                    self.next_offset = batch.last_offset + 1;
                    self.records.extend((batch.base_offset..).zip(batch.records));
                }
                RaftEvent::LeaderChange(leader) => self.leader = Some(leader),
                other => panic!("a single voter talks to nobody: {other:?}"),
            }
        }
    }

    fn values(&self) -> Vec<&[u8]> {
        self.records.iter().map(|(_, value)| &value[..]).collect()
    }
}

impl Node {
    fn formatted(seed: u64, extra: &[(&str, &str)]) -> Node {
        let sim = Sim::new(seed);
        let env = sim.env();
        let config = server_config(extra);
        let standalone = config.quorum_voters().is_empty();
        let options =
            FormatOptions { cluster_id: CLUSTER_ID.to_owned(), standalone, ..FormatOptions::default() };
        format(&env, &config, &options, &mut Vec::new()).unwrap();
        Node { sim, env, config, now_ms: 0 }
    }

    fn now(&mut self, step_ms: u64) -> Time {
        self.now_ms += step_ms;
        Time::new(Duration::from_millis(self.now_ms), 1_795_964_744_390 + i64::try_from(self.now_ms).unwrap())
    }

    fn open(&mut self) -> Result<(Arc<LogContext>, MetadataLogDriver), RaftDriverError> {
        let context = LogContext::new(self.env.clone(), Arc::new(NoCodecs));
        let props = MetaProperties::read(&*self.env.fs, Path::new("/data"))
            .map_err(|e| RaftDriverError::Corrupt(e.to_string()))?;
        let directory_id = props.and_then(|props| props.directory_id).unwrap_or(Uuid::ZERO);
        let log_dir = LogDir::new("/data".into(), Some(directory_id));
        let config = RaftDriverConfig::from_server(&self.config, CLUSTER_ID, directory_id, "localhost", 1);
        let now = self.now(1);
        let driver = MetadataLogDriver::open(&context, &log_dir, config, now)?;
        Ok((context, driver))
    }
}

fn propose(node: &mut Node, driver: &mut MetadataLogDriver, epoch: i32, value: &str) -> i64 {
    let now = node.now(1);
    driver.propose(now, epoch, vec![Bytes::from(value.to_owned())]).unwrap()
}

#[test]
fn a_single_voter_leads_at_once_and_each_start_bumps_the_epoch() {
    let mut node = Node::formatted(1, &[]);
    for epoch in 1..4 {
        let (context, mut driver) = node.open().unwrap();
        let now = node.now(0);
        driver.poll(&context, now).unwrap();
        let mut seen = Seen::default();
        seen.take(&mut driver);
        assert_eq!(seen.leader, Some(LeaderAndEpoch { leader_id: Some(1), epoch }));
        // The first epoch writes LeaderChange, KRaftVersion and KRaftVoters, later ones LeaderChange only.
        assert_eq!(seen.next_offset, i64::from(2 + epoch + (epoch - 1)));
        assert_eq!(seen.snapshots, [OffsetAndEpoch::BOOTSTRAP_SNAPSHOT]);
        assert_eq!(driver.node().high_watermark(), Some(seen.next_offset));
        let last = propose(&mut node, &mut driver, epoch, &format!("record {epoch}"));
        let later = node.now(25);
        driver.poll(&context, later).unwrap();
        seen.take(&mut driver);
        assert_eq!(seen.next_offset, last + 1);
        let state = read_quorum_state(&*node.env.fs, driver.log().dir()).unwrap().unwrap();
        assert_eq!((state.leader_epoch, state.leader_id, state.voted_id), (epoch, Some(1), None));
        if epoch == 2 {
            let now = node.now(0);
            driver.close(now).unwrap();
        }
        node.sim.fs.kill();
    }
    let (context, mut driver) = node.open().unwrap();
    let now = node.now(0);
    driver.poll(&context, now).unwrap();
    let mut seen = Seen::default();
    seen.take(&mut driver);
    assert_eq!(seen.values(), [b"record 1", b"record 2", b"record 3"]);
}

#[test]
fn a_static_quorum_of_one_keeps_its_quorum_state_in_version_0() {
    let voters =
        [("controller.quorum.bootstrap.servers", ""), ("controller.quorum.voters", "1@127.0.0.1:21501")];
    let mut node = Node::formatted(1, &voters);
    for epoch in 1..3 {
        let (context, mut driver) = node.open().unwrap();
        let now = node.now(0);
        driver.poll(&context, now).unwrap();
        let mut seen = Seen::default();
        seen.take(&mut driver);
        assert_eq!(seen.leader, Some(LeaderAndEpoch { leader_id: Some(1), epoch }));
        assert_eq!(
            seen.next_offset,
            i64::from(epoch),
            "LeaderChange only: the voters are in the configuration"
        );
        let path = driver.log().dir().join("quorum-state");
        let text = env::read_file(&*node.env.fs, &path, 1000).unwrap();
        let expected = format!(
            r#"{{"clusterId":"","leaderId":1,"leaderEpoch":{epoch},"votedId":-1,"appliedOffset":0,"currentVoters":[{{"voterId":1}}],"data_version":0}}"#
        );
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        node.sim.fs.kill();
    }
}

#[test]
fn a_single_voter_that_resigns_leads_again_in_a_later_epoch() {
    let mut node = Node::formatted(1, &[]);
    let (context, mut driver) = node.open().unwrap();
    let now = node.now(0);
    driver.poll(&context, now).unwrap();
    driver.resign(1);
    let now = node.now(1);
    driver.poll(&context, now).unwrap();
    assert_eq!(driver.node().state_name(), "Resigned");
    assert_eq!(driver.propose(now, 1, vec![Bytes::from_static(b"x")]), Err(ProposeError::NotLeader));
    let due = driver.deadline(now);
    node.now_ms = u64::try_from(due.as_millis()).unwrap();
    let now = node.now(0);
    driver.poll(&context, now).unwrap();
    assert!(driver.node().is_leader() && driver.node().epoch() == 3);
}

#[test]
fn a_failed_disk_stops_the_driver_for_good() {
    let mut node = Node::formatted(1, &[]);
    let (context, mut driver) = node.open().unwrap();
    let now = node.now(0);
    driver.poll(&context, now).unwrap();
    let fault = testkit::Fault {
        op: testkit::Op::Sync,
        path: "__cluster_metadata-0".to_owned(),
        nth: 1,
        kind: std::io::ErrorKind::Other,
    };
    let high_watermark = driver.node().high_watermark();
    propose(&mut node, &mut driver, 1, "a");
    node.sim.fs.inject(fault);
    let now = node.now(30);
    assert!(driver.poll(&context, now).is_err());
    assert_eq!(driver.node().high_watermark(), high_watermark, "nothing that may be lost is committed");
    node.sim.fs.clear_faults();
    assert!(matches!(driver.poll(&context, now), Err(RaftDriverError::Failed)));
}

#[test]
fn records_linger_for_one_batch_and_one_flush() {
    let mut node = Node::formatted(1, &[]);
    let (context, mut driver) = node.open().unwrap();
    let now = node.now(0);
    driver.poll(&context, now).unwrap();
    let first = propose(&mut node, &mut driver, 1, "a");
    let second = propose(&mut node, &mut driver, 1, "b");
    assert_eq!(second, first + 1);
    let syncs = node.sim.fs.syncs();
    let now = node.now(1);
    driver.poll(&context, now).unwrap();
    assert_eq!(driver.node().high_watermark(), Some(first), "they linger");
    let now = node.now(30);
    driver.poll(&context, now).unwrap();
    assert_eq!(driver.node().high_watermark(), Some(second + 1));
    let one_flush = node.sim.fs.syncs() - syncs;
    propose(&mut node, &mut driver, 1, "c");
    let now = node.now(30);
    driver.poll(&context, now).unwrap();
    assert_eq!(node.sim.fs.syncs() - syncs, 2 * one_flush, "two records cost as much as one");
    assert_eq!(driver.propose(now, 2, vec![Bytes::from_static(b"x")]), Err(ProposeError::NotLeader));
}

#[test]
fn a_snapshot_replaces_the_log_below_it_and_old_ones_are_cleaned_up() {
    let limits =
        [("metadata.max.retention.bytes", "1"), ("metadata.log.max.record.bytes.between.snapshots", "200")];
    let mut node = Node::formatted(1, &limits);
    let (context, mut driver) = node.open().unwrap();
    let now = node.now(0);
    driver.poll(&context, now).unwrap();
    let mut seen = Seen::default();
    for i in 0..5 {
        propose(&mut node, &mut driver, 1, &format!("record {i}"));
        let now = node.now(30);
        driver.poll(&context, now).unwrap();
        seen.take(&mut driver);
    }
    let now = node.now(0);
    assert!(driver.snapshot_due(now).is_some());
    let id = OffsetAndEpoch::new(seen.next_offset, 1);
    let image = vec![Bytes::from_static(b"image")];
    let ahead = OffsetAndEpoch::new(seen.next_offset + 1, 1);
    assert!(driver.create_snapshot(now, ahead, 1, [image.clone()]).is_err(), "not committed");
    assert!(driver.create_snapshot(now, id, 1, [image.clone()]).unwrap());
    assert!(!driver.create_snapshot(now, id, 1, [image]).unwrap(), "it exists");
    assert_eq!(driver.snapshot_due(now), None);
    let now = node.now(60_001);
    driver.poll(&context, now).unwrap();
    assert_eq!(driver.log().log_start_offset(), id.offset);
    assert_eq!(driver.log().snapshots().map(|(id, _)| id.end_offset).collect::<Vec<_>>(), [id.offset]);
    propose(&mut node, &mut driver, 1, "after");
    let now = node.now(30);
    driver.poll(&context, now).unwrap();
    node.sim.fs.kill();

    let (context, mut driver) = node.open().unwrap();
    let now = node.now(0);
    driver.poll(&context, now).unwrap();
    let mut seen = Seen::default();
    seen.take(&mut driver);
    assert_eq!(seen.snapshots, [id]);
    assert_eq!(seen.values(), [&b"image"[..], b"after"]);
    assert_eq!(driver.node().voters().len(), 1, "the voters come from the snapshot's header");
    assert_eq!(driver.node().epoch(), 2);
}

/// `RAFT_CUT_SEEDS=n` tries the first n seeds, four cuts each.
#[test]
fn power_cuts_lose_no_committed_record_and_epochs_never_go_back() {
    let (mut cuts, mut records) = (0, 0);
    let seeds = std::env::var("RAFT_CUT_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    for seed in 0..seeds {
        let mut node = Node::formatted(seed, &[("metadata.max.retention.bytes", "2000")]);
        let mut committed: Vec<String> = Vec::new();
        let mut last_epoch = 0;
        for round in 0..4_u64 {
            let operations = node.sim.fs.operations();
            node.sim.fs.power_off_at(operations + 1 + (seed * 7 + round * 13) % 60);
            run_until_cut(&mut node, &mut committed, &mut last_epoch, round);
            cuts += 1;
            node.sim.fs.crash(seed * 31 + round);
        }
        let (context, mut driver) = node.open().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let now = node.now(0);
        driver.poll(&context, now).unwrap();
        let mut seen = Seen::default();
        seen.take(&mut driver);
        let values: Vec<String> =
            seen.values().iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect();
        records += committed.len();
        for value in &committed {
            assert!(
                values.iter().any(|seen| seen.split(',').any(|v| v == value)),
                "seed {seed}: {value} is lost: {values:?}"
            );
        }
        assert!(driver.node().epoch() > last_epoch, "seed {seed}");
    }
    assert!(records > cuts, "the cuts come too early to show anything: {records} records");
}

/// Opens and writes until the power goes off; takes down what was committed. A snapshot is one record that joins all
/// values so far with commas.
fn run_until_cut(node: &mut Node, committed: &mut Vec<String>, last_epoch: &mut i32, round: u64) {
    let Ok((context, mut driver)) = node.open() else { return };
    let mut seen = Seen::default();
    for i in 0..30 {
        let now = node.now(30);
        let polled = driver.poll(&context, now);
        seen.take(&mut driver);
        let values: Vec<String> =
            seen.values().iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect();
        for value in values.iter().flat_map(|value| value.split(',')) {
            if !committed.iter().any(|known| known == value) {
                committed.push(value.to_owned());
            }
        }
        if let Some(leader) = seen.leader {
            assert!(leader.epoch >= *last_epoch, "epochs never go back");
            *last_epoch = leader.epoch;
        }
        if polled.is_err() {
            return;
        }
        let epoch = driver.node().epoch();
        let _ = driver.propose(now, epoch, vec![Bytes::from(format!("{round}-{i}"))]);
        if i % 7 == 6 {
            let id = OffsetAndEpoch::new(seen.next_offset, epoch);
            let image = vec![Bytes::from(values.join(","))];
            if !values.is_empty() && driver.create_snapshot(now, id, now.wall_ms, [image]).is_err() {
                return;
            }
        }
        if i % 11 == 10 {
            node.now_ms += 60_000;
        }
    }
}
