//! Three controllers on three simulated disks, their drivers' messages passed by hand: election, replication through
//! Fetch, a snapshot fetched by a replica that was away, and truncation of what was never committed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use broker::raft_driver::{MetadataLogDriver, RaftDriverConfig, RaftEvent};
use bytes::Bytes;
use config::ServerConfig;
use env::Env;
use raft::{InboundRequest, OffsetAndEpoch, RaftRequest};
use record::{NoCodecs, Time};
use storage::format::{FormatOptions, MetaProperties, format};
use storage::{LogContext, LogDir};
use testkit::Sim;

const CLUSTER_ID: &str = "5L6g3nShT-eMCtK--X86sw";
const VOTERS: &str = "1@127.0.0.1:9001:JEXY6aqzQY-32P5TStzaFg,2@127.0.0.1:9002:MvDxzVmcRsaTz33bUuRU6A,\
                      3@127.0.0.1:9003:07R5amHmR32VDA6jHkGbTA";

struct Controller {
    sim: Sim,
    env: Env,
    config: ServerConfig,
    running: Option<(Arc<LogContext>, MetadataLogDriver)>,
    values: Vec<String>,
    next_offset: i64,
    loaded_snapshots: usize,
    open_requests: BTreeMap<u64, (i32, i32, i32)>,
}

struct Quorum {
    controllers: BTreeMap<i32, Controller>,
    now_ms: u64,
    next_request: u64,
    unreachable: Option<i32>,
}

impl Quorum {
    fn formatted() -> Quorum {
        let controllers = (1..=3).map(|id| (id, Controller::formatted(id))).collect();
        let mut quorum = Quorum { controllers, now_ms: 1, next_request: 0, unreachable: None };
        (1..=3).for_each(|id| quorum.start(id));
        quorum
    }

    fn now(&self) -> Time {
        Time::new(Duration::from_millis(self.now_ms), 1_795_964_744_390 + i64::try_from(self.now_ms).unwrap())
    }

    fn start(&mut self, id: i32) {
        let now = self.now();
        let controller = self.controllers.get_mut(&id).unwrap();
        let context = LogContext::new(controller.env.clone(), Arc::new(NoCodecs));
        let properties = MetaProperties::read(&*controller.env.fs, Path::new("/data")).unwrap().unwrap();
        let directory_id = properties.directory_id.unwrap();
        let log_dir = LogDir::new("/data".into(), Some(directory_id));
        let seed = u64::try_from(id).unwrap();
        let config =
            RaftDriverConfig::from_server(&controller.config, CLUSTER_ID, directory_id, "127.0.0.1", seed);
        let driver = MetadataLogDriver::open(&context, &log_dir, config, now).unwrap();
        controller.running = Some((context, driver));
        controller.values.clear();
        controller.next_offset = 0;
        controller.loaded_snapshots = 0;
        controller.open_requests.clear();
    }

    fn crash(&mut self, id: i32) {
        let controller = self.controllers.get_mut(&id).unwrap();
        controller.running = None;
        controller.sim.fs.crash(self.now_ms);
    }

    /// One millisecond: polls everyone that is due and passes messages on.
    fn step(&mut self) {
        self.now_ms += 1;
        let now = self.now();
        for id in 1..=3 {
            if let Some((context, driver)) = &mut self.controllers.get_mut(&id).unwrap().running
                && driver.deadline(now) <= now.monotonic
            {
                driver.poll(context, now).unwrap();
            }
            self.drain(id);
        }
    }

    fn drain(&mut self, id: i32) {
        while let Some(event) = {
            let running = self.controllers.get_mut(&id).unwrap().running.as_mut();
            running.and_then(|(_, driver)| driver.poll_event())
        } {
            self.take(id, event);
        }
    }

    fn take(&mut self, id: i32, event: RaftEvent) {
        let now = self.now();
        let controller = self.controllers.get_mut(&id).unwrap();
        match event {
            RaftEvent::Snapshot(snapshot) if snapshot.is_bootstrap() => {}
            RaftEvent::Snapshot(snapshot) => {
                controller.loaded_snapshots += 1;
                controller.next_offset = snapshot.id.offset;
                let values = snapshot.batches.concat();
                controller.values = values.iter().map(|v| String::from_utf8(v.to_vec()).unwrap()).collect();
            }
            RaftEvent::Commit(batch) => {
                assert_eq!(batch.base_offset, controller.next_offset);
                controller.next_offset = batch.last_offset + 1;
                controller
                    .values
                    .extend(batch.records.iter().map(|v| String::from_utf8(v.to_vec()).unwrap()));
            }
            RaftEvent::LeaderChange(_) => {}
            RaftEvent::SendRequest { destination, correlation_id, request } => {
                let to = i32::from(destination.port) - 9000;
                self.pass_request(id, to, destination.id, correlation_id, request);
            }
            RaftEvent::SendResponse { request_id, response } => {
                let (asker, asked_as, correlation_id) = controller.open_requests.remove(&request_id).unwrap();
                let cut = self.unreachable == Some(id) || self.unreachable == Some(asker);
                let asker = &mut self.controllers.get_mut(&asker).unwrap().running;
                if let Some((context, driver)) = asker
                    && !cut
                {
                    driver.handle_response(context, now, asked_as, correlation_id, response).unwrap();
                }
            }
        }
    }

    fn pass_request(&mut self, from: i32, to: i32, asked_as: i32, correlation_id: i32, request: RaftRequest) {
        let now = self.now();
        let cut = self.unreachable == Some(from) || self.unreachable == Some(to);
        let receiver = self.controllers.get_mut(&to).unwrap();
        match &mut receiver.running {
            Some((context, driver)) if !cut => {
                self.next_request += 1;
                let request_id = self.next_request;
                receiver.open_requests.insert(request_id, (from, asked_as, correlation_id));
                let api_version = if matches!(request, RaftRequest::Fetch(_)) { 18 } else { 1 };
                let inbound =
                    InboundRequest { request_id, api_version, listener_name: "CONTROLLER".into(), request };
                driver.handle_request(context, now, inbound).unwrap();
            }
            _ => {
                if let Some((_, driver)) = &mut self.controllers.get_mut(&from).unwrap().running {
                    driver.handle_request_failure(now, asked_as, correlation_id);
                }
            }
        }
    }

    fn driver(&mut self, id: i32) -> &mut MetadataLogDriver {
        &mut self.controllers.get_mut(&id).unwrap().running.as_mut().unwrap().1
    }

    fn leader(&mut self) -> Option<i32> {
        let leads = |c: &Controller| c.running.as_ref().is_some_and(|(_, driver)| driver.node().is_leader());
        let leaders = self.controllers.iter().filter(|(id, c)| leads(c) && self.unreachable != Some(**id));
        leaders.map(|(id, _)| *id).next()
    }

    fn await_leader(&mut self) -> i32 {
        for _ in 0..20_000 {
            self.step();
            if let Some(leader) = self.leader()
                && self.driver(leader).node().high_watermark().is_some()
            {
                return leader;
            }
        }
        panic!("no leader");
    }

    fn write(&mut self, leader: i32, value: &str) {
        let now = self.now();
        let driver = self.driver(leader);
        let epoch = driver.node().epoch();
        driver.propose(now, epoch, vec![Bytes::from(value.to_owned())]).unwrap();
        (0..60).for_each(|_| self.step());
    }

    fn settle(&mut self) {
        (0..3000).for_each(|_| self.step());
    }
}

impl Controller {
    fn formatted(id: i32) -> Controller {
        let sim = Sim::new(u64::try_from(id).unwrap());
        let env = sim.env();
        let properties = [
            ("process.roles", "controller".to_owned()),
            ("node.id", id.to_string()),
            (
                "controller.quorum.bootstrap.servers",
                "127.0.0.1:9001,127.0.0.1:9002,127.0.0.1:9003".to_owned(),
            ),
            ("listeners", format!("CONTROLLER://127.0.0.1:{}", 9000 + id)),
            ("controller.listener.names", "CONTROLLER".to_owned()),
            ("log.dirs", "/data".to_owned()),
            ("metadata.max.retention.bytes", "1".to_owned()),
        ];
        let config = properties.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let config = ServerConfig::from_map(config).unwrap();
        let options = FormatOptions {
            cluster_id: CLUSTER_ID.to_owned(),
            initial_controllers: Some(VOTERS.to_owned()),
            ..FormatOptions::default()
        };
        format(&env, &config, &options, &mut Vec::new()).unwrap();
        Controller {
            sim,
            env,
            config,
            running: None,
            values: Vec::new(),
            next_offset: 0,
            loaded_snapshots: 0,
            open_requests: BTreeMap::new(),
        }
    }
}

#[test]
fn three_controllers_elect_replicate_and_survive_their_leader() {
    let mut quorum = Quorum::formatted();
    let first = quorum.await_leader();
    for value in ["a", "b", "c"] {
        quorum.write(first, value);
    }
    quorum.settle();
    for controller in quorum.controllers.values() {
        assert_eq!(controller.values, ["a", "b", "c"]);
    }
    quorum.crash(first);
    let second = quorum.await_leader();
    assert_ne!(second, first);
    quorum.write(second, "d");
    quorum.start(first);
    quorum.settle();
    for controller in quorum.controllers.values() {
        assert_eq!(controller.values, ["a", "b", "c", "d"]);
    }
    assert_eq!(quorum.driver(first).node().voters().len(), 3);
}

#[test]
fn a_replica_that_was_away_too_long_fetches_the_snapshot() {
    let mut quorum = Quorum::formatted();
    let leader = quorum.await_leader();
    quorum.write(leader, "a");
    let away = if leader == 1 { 2 } else { 1 };
    quorum.crash(away);
    for value in ["b", "c", "d"] {
        quorum.write(leader, value);
    }
    let end = quorum.controllers[&leader].next_offset;
    let epoch = quorum.driver(leader).node().epoch();
    let now = quorum.now();
    let image = quorum.controllers[&leader].values.iter().map(|v| Bytes::from(v.clone())).collect();
    let id = OffsetAndEpoch::new(end, epoch);
    assert!(quorum.driver(leader).create_snapshot(now, id, now.wall_ms, [image]).unwrap());
    // Cleaning runs once a minute; then the log begins at the snapshot.
    (0..61_000).for_each(|_| quorum.step());
    let leader = quorum.await_leader();
    quorum.write(leader, "e");
    quorum.start(away);
    quorum.settle();
    for (id, controller) in &quorum.controllers {
        assert_eq!(controller.values, ["a", "b", "c", "d", "e"], "{id}");
    }
    assert_eq!(quorum.controllers[&away].loaded_snapshots, 1);
    assert!(quorum.driver(away).log().log_start_offset() >= end);
    quorum.crash(away);
    quorum.start(away);
    quorum.settle();
    assert_eq!(quorum.controllers[&away].values, ["a", "b", "c", "d", "e"]);
    assert_eq!(
        quorum.driver(away).node().voters().len(),
        3,
        "the voters come from the fetched snapshot's header"
    );
}

#[test]
fn records_of_a_leader_that_lost_its_quorum_are_cut_off() {
    let mut quorum = Quorum::formatted();
    let old = quorum.await_leader();
    quorum.write(old, "kept");
    quorum.settle();
    quorum.unreachable = Some(old);
    quorum.write(old, "lost");
    let new = quorum.await_leader();
    assert_ne!(new, old);
    quorum.write(new, "won");
    quorum.unreachable = None;
    quorum.settle();
    for (id, controller) in &quorum.controllers {
        assert_eq!(controller.values, ["kept", "won"], "{id}");
    }
    assert!(!quorum.driver(old).node().is_leader());
    let ends: Vec<i64> = (1..=3).map(|id| quorum.driver(id).log().log_end_offset()).collect();
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
}
