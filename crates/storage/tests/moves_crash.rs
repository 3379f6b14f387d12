//! Power cuts and kills while a partition moves between directories. After each of them exactly one log counts, it holds
//! all that was flushed (after a kill: all that was appended), and nothing that was never written.
//!
//! `STORAGE_CRASHES=n` sets the number of cuts (default 400), `STORAGE_CRASH_SEED=s` runs one seed.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{batch, directory_id, format_dirs};
use env::{Clock, FileSystem};
use protocol::Uuid;
use record::{AppendOrigin, Batches, NoCodecs, TopicPartition};
use storage::{
    CreateParams, FetchIsolation, LogConfig, LogManager, LogManagerConfig, LogStartOffsetIncrementReason,
    Promotion, UnifiedLog,
};
use testkit::{SeededRandom, Sim};

const DIRS: &[&str] = &["/node/a", "/node/b", "/node/c"];
const ROUNDS: u64 = 4;

fn partition() -> TopicPartition {
    TopicPartition::new("topic", 3)
}

fn config() -> Arc<LogConfig> {
    Arc::new(LogConfig {
        segment_size_bytes: 600,
        index_interval_bytes: 100,
        file_delete_delay_ms: 1000,
        retention_ms: -1,
        ..LogConfig::default()
    })
}

/// What a move is waiting for, as the broker keeps it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Move {
    Copying,
    /// The controller has the new directory.
    Accepted,
}

#[derive(Default)]
struct Model {
    /// The record at each offset; each batch holds one.
    records: Vec<u64>,
    flushed: usize,
    /// The greatest log start ever asked for. A crash may bring back what lies below, in one of two replicas.
    log_start: i64,
    next_value: u64,
    epoch: i32,
    /// What the metadata log says; it is durable with each change.
    assigned: Uuid,
    in_flight: Option<u64>,
}

struct Round<'a> {
    sim: &'a Sim,
    random: &'a SeededRandom,
    manager: LogManager,
    log: Arc<UnifiedLog>,
    moving: Option<Move>,
    model: &'a mut Model,
}

impl Round<'_> {
    /// An error means the power is off.
    fn step(&mut self) -> Result<(), String> {
        self.sim.clock.advance(Duration::from_millis(self.random.pick(1..400)));
        let now = self.sim.clock.now();
        let text = |e: &dyn std::fmt::Display| e.to_string();
        match self.random.pick(0..100) {
            0..45 => self.append()?,
            45..55 => {
                self.log.flush(now).map_err(|e| text(&e))?;
                self.model.flushed = self.model.records.len();
            }
            55..65 => drop(self.manager.tick(now)),
            65..90 => self.move_on()?,
            90..94 => self.cancel()?,
            94..97 => self.log.roll_segment(now).map_err(|e| text(&e))?,
            _ => {
                let start = self.random.pick(0..self.log.high_watermark() as u64 + 1) as i64;
                self.model.log_start = self.model.log_start.max(start);
                let reason = LogStartOffsetIncrementReason::ClientRecordDeletion;
                self.log.maybe_increment_log_start_offset(start, reason).map_err(|e| text(&e))?;
                self.log.delete_old_segments(now).map_err(|e| text(&e))?;
            }
        }
        Ok(())
    }

    fn append(&mut self) -> Result<(), String> {
        let (now, value) = (self.sim.clock.now(), self.model.next_value);
        self.model.next_value += 1;
        self.model.in_flight = Some(value);
        let records = batch(now.wall_ms, &[&value.to_be_bytes()]);
        let info = self
            .log
            .append_as_leader(now, records, self.model.epoch, AppendOrigin::Client)
            .map_err(|e| e.to_string())?;
        assert_eq!(info.first_offset, self.model.records.len() as i64, "offsets continue");
        self.model.in_flight = None;
        self.model.records.push(value);
        self.log.update_high_watermark(info.first_offset + 1);
        Ok(())
    }

    /// The next step of a move, as the broker takes it.
    fn move_on(&mut self) -> Result<(), String> {
        let now = self.sim.clock.now();
        let Some(future) = self.manager.get_future_log(&partition()) else {
            let others: Vec<_> = self
                .manager
                .log_dirs()
                .into_iter()
                .filter(|dir| !Arc::ptr_eq(dir, self.log.log_dir()))
                .collect();
            let target = &others[self.random.pick(0..others.len() as u64) as usize];
            self.manager.get_or_create_future_log(&partition(), target, now).map_err(|e| e.to_string())?;
            self.moving = Some(Move::Copying);
            return Ok(());
        };
        let copied = future.follow(&self.log, 300, now).map_err(|e| e.to_string())?;
        let caught_up = future.log_end_offset() == self.log.log_end_offset();
        match self.moving {
            _ if copied > 0 && !caught_up => {}
            Some(Move::Accepted) => {
                let promoted = self.manager.replace_current_with_future_log(&partition(), 1000, now);
                if let Promotion::Done(log) = promoted.map_err(|e| e.to_string())? {
                    self.log = log;
                    self.moving = None;
                }
            }
            _ if caught_up => {
                self.model.assigned = future.log_dir().id().unwrap();
                self.moving = Some(Move::Accepted);
            }
            _ => {}
        }
        Ok(())
    }

    fn cancel(&mut self) -> Result<(), String> {
        let now = self.sim.clock.now();
        if self.manager.delete_future_log(&partition(), now).map_err(|e| e.to_string())? {
            self.moving = None;
            self.model.assigned = self.log.log_dir().id().unwrap();
        }
        Ok(())
    }
}

fn open(sim: &Sim, model: &mut Model) -> (LogManager, Arc<UnifiedLog>) {
    let manager_config = LogManagerConfig {
        num_recovery_threads_per_data_dir: 1,
        default_config: config(),
        initial_task_delay_ms: 0,
        flush_offset_checkpoint_interval_ms: 3000,
        flush_start_offset_checkpoint_interval_ms: 3000,
        ..LogManagerConfig::new(DIRS.iter().map(Into::into).collect())
    };
    let manager = LogManager::new(sim.env(), Arc::new(NoCodecs), manager_config).unwrap();
    let assigned = model.assigned;
    manager.load_assigned(sim.clock.now(), &|_| config(), &|_| false, &|_| Some(assigned)).unwrap();
    let params = CreateParams {
        config: config(),
        topic_id: Some("AAAAAAAAAAAAAAAAAAAAAw".parse().unwrap()),
        is_new: true,
        directory_id: Some(assigned),
    };
    let log = manager.get_or_create_log(&partition(), params, sim.clock.now()).unwrap();
    // As the broker does when it finds a replica elsewhere than assigned, and not on its way there.
    let future = manager.get_future_log(&partition());
    if future.is_none_or(|future| future.log_dir().id() != Some(assigned)) {
        model.assigned = log.log_dir().id().unwrap();
    }
    (manager, log)
}

/// After a reboot; `must_hold` records were flushed, or survived the kill with the page cache.
fn check(sim: &Sim, log: &UnifiedLog, model: &mut Model, must_hold: usize, context: &str) {
    let mut current = 0;
    for dir in DIRS {
        for entry in sim.fs.list(Path::new(dir)).unwrap() {
            current += usize::from(entry.name == "topic-3");
        }
    }
    assert_eq!(current, 1, "{context}: directories with the current name");
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    assert!(end as usize >= must_hold, "{context}: ends at {end}, {must_hold} had to stay");
    assert!(start <= model.log_start.max(model.flushed as i64), "{context}: starts at {start}");
    let mut offset = start;
    let mut found = Vec::new();
    while offset < end {
        let read = log.read(offset, 1, FetchIsolation::LogEnd, true).expect(context);
        let bytes = read.records.unwrap_or_else(|| panic!("{context}: nothing at {offset}")).read().unwrap();
        let batch = Batches::new(&bytes).next().unwrap().unwrap();
        assert!(batch.is_valid() && batch.base_offset == offset, "{context}: bad batch at {offset}");
        let mut buffers = record::BufferSupplier::new();
        let record = batch.records(&NoCodecs, &mut buffers).unwrap().next().unwrap().unwrap();
        let value = u64::from_be_bytes(record.value.unwrap().try_into().unwrap());
        match model.records.get(offset as usize) {
            Some(expected) => assert_eq!(value, *expected, "{context}: another record at {offset}"),
            None => {
                let sent = model.in_flight.take();
                assert_eq!(Some(value), sent, "{context}: unknown record at {offset}");
            }
        }
        found.push(value);
        offset += 1;
    }
    model.records.truncate(start as usize);
    model.records.resize(start as usize, 0);
    model.records.extend(found);
    model.in_flight = None;
    model.flushed = model.flushed.min(end as usize);
}

fn run_seed(seed: u64) {
    let sim = Sim::new(seed);
    let random = SeededRandom::new(seed ^ 0xd15c);
    sim.fs.create_dir_all(Path::new("/node")).unwrap();
    sim.fs.sync_dir(Path::new("/")).unwrap();
    format_dirs(&sim, DIRS);
    sim.fs.sync_dir(Path::new("/node")).unwrap();
    let mut model = Model { assigned: directory_id(DIRS[0]), ..Model::default() };
    let (mut must_hold, mut durable) = (0, 0);
    for round in 0..ROUNDS {
        let context = format!("seed {seed} round {round}");
        if round > 0 && random.one_in(3) {
            // The power goes off while the logs are loaded and the move is settled.
            sim.fs.power_off_at(sim.fs.operations() + random.pick(1..40));
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(open(&sim, &mut model))));
            must_hold = must_hold.min(durable);
            model.flushed = model.flushed.min(durable);
            sim.fs.crash(random.next());
        }
        let (manager, log) = open(&sim, &mut model);
        check(&sim, &log, &mut model, must_hold, &context);
        model.flushed = model.flushed.min(durable);
        model.epoch += 1;
        log.assign_epoch_start_offset(model.epoch, log.log_end_offset());
        log.update_high_watermark(log.log_end_offset());
        let moving = manager.get_future_log(&partition()).map(|_| Move::Copying);
        let mut current = Round { sim: &sim, random: &random, manager, log, moving, model: &mut model };
        sim.fs.power_off_at(sim.fs.operations() + random.pick(1..300));
        while !sim.fs.is_off() {
            let _ = current.step();
        }
        drop(current);
        durable = model.flushed;
        must_hold = durable;
        if random.one_in(3) {
            must_hold = model.records.len();
            sim.fs.kill();
        } else {
            sim.fs.crash(random.next());
        }
        sim.clock.restart();
    }
    let (_, log) = open(&sim, &mut model);
    check(&sim, &log, &mut model, must_hold, &format!("seed {seed} at the end"));
}

#[test]
fn power_cuts_during_moves_lose_nothing_that_was_flushed() {
    if let Ok(seed) = std::env::var("STORAGE_CRASH_SEED") {
        return run_seed(seed.parse().unwrap());
    }
    let cuts: u64 = std::env::var("STORAGE_CRASHES").map_or(400, |n| n.parse().unwrap());
    std::panic::set_hook(Box::new(|_| {}));
    for seed in 0..cuts.div_ceil(ROUNDS) {
        if let Err(cause) = std::panic::catch_unwind(|| run_seed(seed)) {
            let _ = std::panic::take_hook();
            let text = cause.downcast_ref::<String>().cloned().unwrap_or_default();
            panic!("{text}\nreplay with STORAGE_CRASH_SEED={seed}");
        }
    }
}
