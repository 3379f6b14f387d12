//! Faults at every call site. A script of everything a log manager does runs once for every call it makes of the file
//! system; that call fails, alone or with all that follow it. Whatever the node then does, it does not panic, serves
//! nothing that was not written, never takes a failed sync for a success, and after the next start everything that was
//! flushed is there, and after a mere kill everything that was acknowledged.
//!
//! `STORAGE_FAULTS=n` lets every n-th call fail (default 41); 1 prints the table of docs/reliability.md.
//! `STORAGE_FAULT="556 EIO"` runs one, `"556 EIO and on"` with everything after it.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::model::{Model, check, check_records};
use common::{idempotent, marker, transactional};
use env::{Clock, FileSystem};
use record::{AppendOrigin, Batches, NoCodecs, Time, TopicPartition};
use storage::{
    AppendOptions, CreateParams, FetchIsolation, LogConfig, LogManager, LogManagerConfig,
    LogStartOffsetIncrementReason, UnifiedLog,
};
use testkit::{Failure, Op, Sim, Site};

const DIR: &str = "/node/a";

fn config() -> LogConfig {
    LogConfig {
        segment_size_bytes: 700,
        index_interval_bytes: 100,
        file_delete_delay_ms: 1000,
        retention_ms: -1,
        ..LogConfig::default()
    }
}

/// What became of the call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Nobody noticed: it was not needed, or is tried again.
    Absorbed,
    /// What was asked for was refused; the directory stays in service.
    Refused,
    Offline,
    StartRefused,
}

impl Outcome {
    fn text(self) -> &'static str {
        match self {
            Outcome::Absorbed => "absorbed",
            Outcome::Refused => "refused",
            Outcome::Offline => "offline",
            Outcome::StartRefused => "start refused",
        }
    }
}

/// A partition with what it should hold.
struct Part {
    partition: TopicPartition,
    model: Model,
    /// Deletion was asked for: it may be there or not.
    doomed: bool,
}

struct Node {
    sim: Sim,
    manager: Option<LogManager>,
    parts: BTreeMap<&'static str, Part>,
    refusals: Vec<String>,
    start_refused: bool,
    went_offline: bool,
}

type Step = fn(&mut Node) -> Result<(), String>;

/// The script. A step that fails is left as it is, as a client's request would be, and the next begins.
const STEPS: &[(&str, Step)] = &[
    ("start", Node::start),
    ("create", |node| node.create("main")),
    ("append", |node| node.append_all("main")),
    ("flush", |node| node.flush("main")),
    ("upkeep", Node::tick),
    ("append", |node| node.append_all("main")),
    ("consume", Node::consume),
    ("upkeep", Node::tick),
    ("delete records", Node::delete_records),
    ("upkeep", Node::tick),
    ("upkeep", Node::tick),
    ("append", |node| node.append_all("main")),
    ("truncate", |node| node.truncate(2)),
    ("append", |node| node.append_all("main")),
    ("truncate", |node| node.truncate(6)),
    ("append", |node| node.append_all("main")),
    ("create", |node| node.create("gone")),
    ("append", |node| node.append_all("gone")),
    ("flush", |node| node.flush("gone")),
    ("delete", Node::delete),
    ("upkeep", Node::tick),
    ("create", |node| node.create("anew")),
    ("append", |node| node.append_all("anew")),
    ("flush", |node| node.flush("anew")),
    ("truncate fully", Node::truncate_fully),
    ("append", |node| node.append_all("anew")),
    ("retention", Node::retention),
    ("upkeep", Node::tick),
    ("stop", Node::stop),
    ("start", Node::start),
    ("append", |node| node.append_all("main")),
    ("kill", Node::kill),
    ("recovery", Node::start),
    ("consume", Node::consume),
    ("append", |node| node.append_all("main")),
    ("flush", |node| node.flush("main")),
    ("upkeep", Node::tick),
];

impl Node {
    fn new() -> Node {
        let sim = Sim::new(7);
        sim.fs.create_dir_all(Path::new("/node")).unwrap();
        sim.fs.sync_dir(Path::new("/")).unwrap();
        let parts = ["main", "gone", "anew"].map(|name| {
            let partition = TopicPartition::new(name, 0);
            (name, Part { partition, model: Model::default(), doomed: false })
        });
        Node {
            sim,
            manager: None,
            parts: parts.into(),
            refusals: Vec::new(),
            start_refused: false,
            went_offline: false,
        }
    }

    fn now(&self) -> Time {
        self.sim.clock.now()
    }

    fn manager(&self) -> Result<&LogManager, String> {
        self.manager.as_ref().ok_or_else(|| "the node is down".to_owned())
    }

    fn log(&self, name: &str) -> Result<Arc<UnifiedLog>, String> {
        self.manager()?.get_log(&self.parts[name].partition).ok_or_else(|| format!("no log {name}"))
    }

    /// Runs the script; stops where the directory goes offline, or the node cannot start.
    fn run(&mut self) {
        for (step, run) in STEPS {
            self.sim.clock.advance(Duration::from_millis(50));
            if let Err(e) = run(self) {
                self.refusals.push(format!("{step}: {e}"));
            }
            if let Some(manager) = &self.manager {
                self.went_offline = manager.live_log_dirs().is_empty();
            }
            if self.went_offline || self.start_refused {
                return;
            }
        }
    }

    fn start(&mut self) -> Result<(), String> {
        let started = start(&self.sim);
        self.start_refused = started.is_err();
        let manager = started?;
        self.sim.fs.exempt(true);
        for (name, part) in self.parts.iter_mut().filter(|(_, part)| !part.doomed) {
            if let Some(log) = manager.get_log(&part.partition) {
                check(&log, &mut part.model, &format!("{name} after a start"));
            }
        }
        self.sim.fs.exempt(false);
        self.manager = Some(manager);
        Ok(())
    }

    fn create(&mut self, name: &'static str) -> Result<(), String> {
        let params = params();
        let partition = self.parts[name].partition.clone();
        self.manager()?.get_or_create_log(&partition, params, self.now()).map_err(|e| e.to_string())?;
        Ok(())
    }

    /// Batches of idempotent and transactional producers, committed and aborted; each is one client's request.
    fn append_all(&mut self, name: &'static str) -> Result<(), String> {
        let mut result = Ok(());
        for producer in [1, 2, 3, 2, 1, 3] {
            self.sim.clock.advance(Duration::from_millis(7));
            if let Err(e) = self.append(name, producer) {
                result = Err(e);
            }
        }
        result
    }

    fn append(&mut self, name: &'static str, id: i64) -> Result<(), String> {
        let log = self.log(name)?;
        let now = self.now();
        let Some(part) = self.parts.get_mut(name) else { return Ok(()) };
        let model = &mut part.model;
        let value = [b'v'; 90];
        let sequence = model.next_sequence.get(&id).copied().unwrap_or(0);
        let (records, origin) = if model.open_txns.contains_key(&id) {
            (marker(id, 0, now.wall_ms, id == 2, 0), AppendOrigin::Coordinator)
        } else if id > 1 {
            (transactional(id, 0, sequence, now.wall_ms, &[&value, &value]), AppendOrigin::Client)
        } else {
            (idempotent(id, 0, sequence, now.wall_ms, &[&value]), AppendOrigin::Client)
        };
        let options = AppendOptions { transaction_version: 0, ..AppendOptions::new(model.epoch, origin) };
        model.in_flight.push(records.clone());
        let appended = log.append_as_leader_with(now, records, options);
        if let Ok(info) = &appended {
            model.in_flight.pop();
            assert!(!info.is_duplicate, "{name}: taken for a duplicate");
            assert_eq!(info.first_offset, model.end(), "{name}: offsets continue");
            log.update_high_watermark(log.log_end_offset());
        }
        self.sim.fs.exempt(true);
        // A refused one may be in the log all the same; what the leader shows to its readers counts.
        let end = model.end();
        if log.log_end_offset() > end && !log.log_dir().is_offline() {
            model.take_over(&log, end)?;
        } else if appended.is_ok() {
            panic!("{name}: acknowledged, but not in the log");
        }
        self.sim.fs.exempt(false);
        appended.map(|_| ()).map_err(|e| e.to_string())
    }

    fn flush(&mut self, name: &'static str) -> Result<(), String> {
        let log = self.log(name)?;
        log.flush(self.now()).map_err(|e| e.to_string())?;
        if let Some(part) = self.parts.get_mut(name) {
            part.model.flushed = part.model.end();
        }
        Ok(())
    }

    /// Everything that is due within some seconds.
    fn tick(&mut self) -> Result<(), String> {
        for _ in 0..4 {
            self.sim.clock.advance(Duration::from_millis(1300));
            self.manager()?.tick(self.now());
        }
        Ok(())
    }

    /// What consumers ask for.
    fn consume(&mut self) -> Result<(), String> {
        let log = self.log("main")?;
        let mut offset = log.log_start_offset();
        while offset < log.high_watermark() {
            let read =
                log.read(offset, 300, FetchIsolation::TxnCommitted, true).map_err(|e| e.to_string())?;
            let Some(records) = read.records else { break };
            let bytes = records.read().map_err(|e| e.to_string())?;
            for batch in Batches::new(&bytes).map_while(Result::ok) {
                assert!(batch.is_valid(), "a bad checksum at {offset}");
                log.fetch_offset_by_timestamp(batch.max_timestamp).map_err(|e| e.to_string())?;
                offset = batch.next_offset();
            }
        }
        log.fetch_offset_by_timestamp(storage::MAX_TIMESTAMP).map(|_| ()).map_err(|e| e.to_string())
    }

    fn delete_records(&mut self) -> Result<(), String> {
        let log = self.log("main")?;
        let target = log.high_watermark() - 3;
        let Some(part) = self.parts.get_mut("main") else { return Ok(()) };
        part.model.log_start = target.max(part.model.log_start);
        let reason = LogStartOffsetIncrementReason::ClientRecordDeletion;
        log.maybe_increment_log_start_offset(target, reason).map_err(|e| e.to_string())?;
        log.delete_old_segments(self.now()).map(|_| ()).map_err(|e| e.to_string())
    }

    /// Cuts the last batches.
    fn truncate(&mut self, batches: usize) -> Result<(), String> {
        let (log, now) = (self.log("main")?, self.now());
        let manager = self.manager()?;
        let part = &self.parts["main"];
        let model = &part.model;
        let at = model.batches.len().saturating_sub(batches);
        let Some(target) = model.batches.get(at).map(|written| written.base_offset) else { return Ok(()) };
        let target = target.max(log.log_start_offset());
        let cut = manager.truncate_to(&part.partition, target, now).map_err(|e| e.to_string());
        let end = log.log_end_offset();
        let Some(part) = self.parts.get_mut("main") else { return Ok(()) };
        part.model.flushed = part.model.flushed.min(target);
        if end == target {
            part.model.truncate(target);
        } else {
            part.model.truncating = Some(target);
            assert!(cut.is_err(), "truncated to {target}, but the log ends at {end}");
        }
        cut.map(|_| ())
    }

    fn delete(&mut self) -> Result<(), String> {
        let (manager, part) = (self.manager()?, &self.parts["gone"]);
        let failed = manager.async_delete(std::slice::from_ref(&part.partition), false, self.now());
        if let Some(part) = self.parts.get_mut("gone") {
            part.doomed = true;
        }
        failed.first().map_or(Ok(()), |(_, e)| Err(e.to_string()))
    }

    fn truncate_fully(&mut self) -> Result<(), String> {
        let (log, now) = (self.log("anew")?, self.now());
        let target = self.parts["anew"].model.end() + 5;
        let partition = &self.parts["anew"].partition;
        let done = self.manager()?.truncate_fully_and_start_at(partition, target, None, now);
        let end = log.log_end_offset();
        let Some(part) = self.parts.get_mut("anew") else { return Ok(()) };
        part.model.flushed = 0;
        if done.is_ok() {
            assert_eq!(end, target, "started anew elsewhere");
            part.model.start_anew(target);
        }
        // Interrupted, it may have gone or be there.
        part.doomed = done.is_err();
        done.map_err(|e| e.to_string())
    }

    fn retention(&mut self) -> Result<(), String> {
        let log = self.log("main")?;
        log.update_config(Arc::new(LogConfig { retention_bytes: 900, ..config() }));
        let deleted = log.delete_old_segments(self.now()).map(|_| ()).map_err(|e| e.to_string());
        if let Some(part) = self.parts.get_mut("main") {
            part.model.log_start = part.model.log_start.max(log.log_start_offset());
        }
        deleted
    }

    fn stop(&mut self) -> Result<(), String> {
        let Some(manager) = self.manager.take() else { return Ok(()) };
        let stopped = manager.shutdown(self.now(), 1).map_err(|e| e.to_string());
        self.went_offline = manager.live_log_dirs().is_empty();
        if stopped.is_ok() {
            for part in self.parts.values_mut() {
                part.model.flushed = part.model.end();
            }
        }
        self.sim.clock.restart();
        stopped
    }

    /// A killed process, half of whose last write got into the file.
    fn kill(&mut self) -> Result<(), String> {
        let segment = self.log("main")?.segments().last().unwrap().clone();
        let path = segment.path(storage::names::LOG_FILE_SUFFIX);
        self.manager = None;
        self.sim.fs.kill();
        self.sim.clock.restart();
        if self.sim.fs.struck().is_empty() {
            self.sim.fs.corrupt(&path, segment.size() as usize, &[0x42; 70]);
        }
        Ok(())
    }

    fn outcome(&self) -> Outcome {
        match () {
            () if self.start_refused => Outcome::StartRefused,
            () if self.went_offline => Outcome::Offline,
            () if !self.refusals.is_empty() => Outcome::Refused,
            () => Outcome::Absorbed,
        }
    }
}

fn params() -> CreateParams {
    CreateParams {
        config: Arc::new(config()),
        topic_id: Some("AAAAAAAAAAAAAAAAAAAAAw".parse().unwrap()),
        is_new: true,
        directory_id: None,
    }
}

fn start(sim: &Sim) -> Result<LogManager, String> {
    let manager_config = LogManagerConfig {
        num_recovery_threads_per_data_dir: 1,
        default_config: Arc::new(config()),
        initial_task_delay_ms: 0,
        flush_offset_checkpoint_interval_ms: 2000,
        flush_start_offset_checkpoint_interval_ms: 2000,
        high_watermark_checkpoint_interval_ms: 2000,
        retention_check_interval_ms: 3000,
        ..LogManagerConfig::new(vec![DIR.into()])
    };
    let manager =
        LogManager::new(sim.env(), Arc::new(NoCodecs), manager_config).map_err(|e| e.to_string())?;
    let config_of = |_: &str| Arc::new(config());
    manager.load(sim.clock.now(), &config_of, &|_| false).map_err(|e| e.to_string())?;
    if manager.live_log_dirs().is_empty() { Err("no directory is left".into()) } else { Ok(manager) }
}

/// The next start, on a disk that works again.
fn check_restart(node: &Node, sim: Sim, was_killed: bool, context: &str) {
    let manager = start(&sim).unwrap_or_else(|e| panic!("{context}: no restart: {e}"));
    let mut node = Node {
        manager: Some(manager),
        parts: node.parts.iter().map(|(name, part)| (*name, part.copy())).collect(),
        refusals: Vec::new(),
        start_refused: false,
        went_offline: false,
        sim,
    };
    let names: Vec<&'static str> = node.parts.keys().copied().collect();
    for name in names {
        let context = format!("{context}: {name}");
        let Ok(log) = node.log(name) else {
            let part = &node.parts[name];
            let may_be_lost =
                if was_killed { part.model.batches.is_empty() } else { part.model.flushed == 0 };
            assert!(part.doomed || may_be_lost, "{context} is gone");
            continue;
        };
        let Some(part) = node.parts.get_mut(name) else { continue };
        if part.doomed {
            continue;
        }
        if was_killed {
            part.model.flushed = part.model.end().min(part.model.truncating.unwrap_or(i64::MAX));
        }
        check(&log, &mut part.model, &context);
        node.append_all(name).unwrap_or_else(|e| panic!("{context}: no append after the restart: {e}"));
    }
    node.stop().unwrap_or_else(|e| panic!("{context}: {e}"));
    node.start().unwrap_or_else(|e| panic!("{context}: after a clean stop: {e}"));
    node.append_all("main").ok();
}

impl Part {
    fn copy(&self) -> Part {
        Part { partition: self.partition.clone(), model: self.model.clone(), doomed: self.doomed }
    }
}

/// One run with a failing call; what failed, and what became of it.
fn run_with(number: u64, failure: Failure, persistent: bool) -> Option<(Site, Outcome)> {
    let mut node = Node::new();
    let last = if persistent { u64::MAX } else { number + 1 };
    node.sim.fs.fail_calls(number..last, failure);
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| node.run()));
    if let Err(cause) = ran {
        panic!(
            "{:?} {} at call {number}: {}",
            node.sim.fs.struck().first(),
            failure.name(),
            text_of(&*cause)
        );
    }
    let site = node.sim.fs.struck().first()?.clone();
    let context =
        format!("{site} {} at call {number}, {}", failure.name(), if persistent { "and on" } else { "once" });
    node.sim.fs.clear_faults();
    let outcome = node.outcome();
    // Checkpoints and the marker are written and synced whole again, and say only what is durable. Their names are another
    // matter: with them goes what else the directory was to keep.
    let is_rewritten =
        failure == Failure::Full && (site.file.ends_with(".tmp") || site.file == ".kafka_cleanshutdown");
    if matches!(site.op, Op::Sync | Op::SyncDir) && outcome != Outcome::StartRefused && !is_rewritten {
        assert_eq!(
            outcome,
            Outcome::Offline,
            "{context}: a failed sync was not the end: {:?}",
            node.refusals
        );
    }
    if outcome != Outcome::Offline {
        for (name, part) in node.parts.iter().filter(|(_, part)| !part.doomed) {
            if let Ok(log) = node.log(name) {
                check_records(&log, &part.model, &format!("{context}: {name} goes on"));
            }
        }
    }
    // Each its own copy of the machine: a killed process, and a power cut.
    let killed = node.sim.fork(1);
    check_restart(&node, killed, true, &format!("{context}, killed"));
    for seed in [number, number + 1] {
        let off = node.sim.fork(1);
        off.fs.crash(seed);
        check_restart(&node, off, false, &format!("{context}, power cut {seed}"));
    }
    Some((site, outcome))
}

fn text_of(cause: &(dyn std::any::Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().cloned();
    text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

#[test]
fn every_call_may_fail() {
    if let Ok(one) = std::env::var("STORAGE_FAULT") {
        let (number, failure) = one.split_once(' ').unwrap();
        let failure = Failure::ALL.into_iter().find(|f| failure.starts_with(f.name())).unwrap();
        println!("{:?}", run_with(number.parse().unwrap(), failure, one.ends_with("on")));
        return;
    }
    let stride: usize = std::env::var("STORAGE_FAULTS").map_or(41, |n| n.parse().unwrap());
    let mut node = Node::new();
    node.run();
    assert_eq!((node.outcome(), &node.refusals[..]), (Outcome::Absorbed, &[][..]), "without faults");
    let calls = node.sim.fs.calls();
    let mut table: BTreeMap<Site, BTreeMap<Failure, BTreeSet<Outcome>>> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut runs = 0;
    std::panic::set_hook(Box::new(|_| {}));
    for number in (1..=calls).step_by(stride) {
        for failure in Failure::ALL {
            for persistent in [false, true] {
                let run = std::panic::catch_unwind(|| run_with(number, failure, persistent));
                match run {
                    Ok(None) => {}
                    Ok(Some((site, outcome))) => {
                        runs += 1;
                        table.entry(site).or_default().entry(failure).or_default().insert(outcome);
                    }
                    Err(cause) => wrong.push(text_of(&*cause)),
                }
            }
        }
    }
    let _ = std::panic::take_hook();
    if stride == 1 {
        print_table(&table, runs, calls);
    }
    assert!(wrong.is_empty(), "{} of {runs} runs:\n{}", wrong.len(), wrong.join("\n"));
}

fn print_table(table: &BTreeMap<Site, BTreeMap<Failure, BTreeSet<Outcome>>>, runs: u64, calls: u64) {
    println!("{calls} calls, {runs} runs\n");
    println!("| site | EIO | ENOSPC | EMFILE |\n|---|---|---|---|");
    for (site, outcomes) in table {
        let cells = Failure::ALL.map(|failure| {
            let found: Vec<_> = outcomes.get(&failure).into_iter().flatten().map(|o| o.text()).collect();
            if found.is_empty() { "–".to_owned() } else { found.join(", ") }
        });
        println!("| {site} | {} |", cells.join(" | "));
    }
}
