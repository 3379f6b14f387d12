//! Power cuts. A seeded workload runs against a node's log directory until the power goes off in the middle of some
//! operation; after the reboot the logs must hold what was flushed, nothing that was never written, and indexes,
//! epochs and producer states that agree with the records. Then the next round begins on what is left.
//!
//! `STORAGE_CRASHES=n` sets the number of power cuts (default 600), `STORAGE_CRASH_SEED=s` runs one seed.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::model::{Model, check};
use common::{idempotent, marker, transactional};
use env::{Clock, FileSystem};
use record::{AppendOrigin, NoCodecs, Time, TopicPartition};
use storage::{
    AppendOptions, CreateParams, LogConfig, LogManager, LogManagerConfig, LogStartOffsetIncrementReason,
    UnifiedLog,
};
use testkit::{SeededRandom, Sim};

const ROUNDS: u64 = 4;

/// A third of the seeds preallocate their files.
fn config(seed: u64) -> Arc<LogConfig> {
    Arc::new(LogConfig {
        preallocate: seed.is_multiple_of(3),
        segment_size_bytes: 2048,
        index_interval_bytes: 200,
        file_delete_delay_ms: 1000,
        retention_ms: -1,
        ..LogConfig::default()
    })
}

fn manager(sim: &Sim, seed: u64) -> Result<LogManager, String> {
    let config = LogManagerConfig {
        num_recovery_threads_per_data_dir: 1,
        default_config: config(seed),
        initial_task_delay_ms: 0,
        flush_offset_checkpoint_interval_ms: 3000,
        flush_start_offset_checkpoint_interval_ms: 3000,
        ..LogManagerConfig::new(vec!["/node/data".into()])
    };
    LogManager::new(sim.env(), Arc::new(NoCodecs), config).map_err(|e| e.to_string())
}

struct Round<'a> {
    sim: &'a Sim,
    random: &'a SeededRandom,
    manager: LogManager,
    log: Arc<UnifiedLog>,
    model: &'a mut Model,
}

fn partition() -> TopicPartition {
    TopicPartition::new("topic", 3)
}

impl Round<'_> {
    fn now(&self) -> Time {
        self.sim.clock.now()
    }

    /// One random step; an error means the power is off.
    fn step(&mut self) -> Result<(), String> {
        self.sim.clock.advance(Duration::from_millis(self.random.pick(1..400)));
        match self.random.pick(0..100) {
            0..60 => self.append(),
            60..72 => {
                self.log.flush(self.now()).map_err(|e| e.to_string())?;
                self.model.flushed = self.model.end();
                Ok(())
            }
            72..86 => {
                self.manager.tick(self.now());
                Ok(())
            }
            86..88 => {
                self.manager.checkpoint_log_start_offsets();
                if !self.sim.fs.is_off() {
                    self.model.durable_start = self.log.log_start_offset();
                }
                Ok(())
            }
            88..91 => self.log.roll_segment(self.now()).map_err(|e| e.to_string()),
            91..94 => self.delete_records(),
            94..97 => self.truncate(),
            _ => {
                self.model.epoch += 1;
                self.log.assign_epoch_start_offset(self.model.epoch, self.model.end());
                Ok(())
            }
        }
    }

    fn append(&mut self) -> Result<(), String> {
        let id = self.random.pick(1..5) as i64;
        let timestamp = self.now().wall_ms - self.random.pick(0..5000) as i64;
        let value = vec![b'v'; self.random.pick(1..150) as usize];
        let values: Vec<&[u8]> = (0..self.random.pick(1..5)).map(|_| &value[..]).collect();
        let sequence = self.model.next_sequence.get(&id).copied().unwrap_or(0);
        let is_open = self.model.open_txns.contains_key(&id);
        let (records, origin) = if is_open && self.random.one_in(2) {
            (marker(id, 0, timestamp, self.random.one_in(2), 0), AppendOrigin::Coordinator)
        } else if id > 2 || is_open {
            (transactional(id, 0, sequence, timestamp, &values), AppendOrigin::Client)
        } else {
            (idempotent(id, 0, sequence, timestamp, &values), AppendOrigin::Client)
        };
        let options =
            AppendOptions { transaction_version: 0, ..AppendOptions::new(self.model.epoch, origin) };
        self.model.in_flight = vec![records.clone()];
        let appended = self.log.append_as_leader_with(self.now(), records, options);
        if let Err(storage::AppendError::OutOfOrderSequence(_)) = &appended
            && self.model.has_only_markers(id, self.log.log_start_offset())
        {
            self.model.in_flight.clear();
            return Ok(());
        }
        let info = appended.map_err(|e| e.to_string())?;
        assert!(!info.is_duplicate);
        assert_eq!(info.first_offset, self.model.end(), "offsets continue");
        self.model.in_flight.clear();
        self.model.take_over(&self.log, info.first_offset)?;
        if self.random.one_in(3) {
            self.log.update_high_watermark(self.model.end());
        }
        Ok(())
    }

    fn delete_records(&mut self) -> Result<(), String> {
        let high_watermark = self.log.high_watermark();
        let start = self.log.log_start_offset();
        if high_watermark <= start {
            return Ok(());
        }
        let target = self.random.pick(start as u64..high_watermark as u64 + 1) as i64;
        self.model.log_start = self.model.log_start.max(target);
        let reason = LogStartOffsetIncrementReason::ClientRecordDeletion;
        self.log.maybe_increment_log_start_offset(target, reason).map_err(|e| e.to_string())?;
        self.log.delete_old_segments(self.now()).map(|_| ()).map_err(|e| e.to_string())
    }

    fn truncate(&mut self) -> Result<(), String> {
        let (start, end) = (self.log.log_start_offset(), self.model.end());
        if end <= start {
            return Ok(());
        }
        // Truncation is at a batch's start, as epochs make it.
        let target = self.random.pick(start as u64..end as u64 + 1) as i64;
        let target = self.model.batches.iter().map(|b| b.base_offset).find(|o| *o >= target).unwrap_or(end);
        self.model.flushed = self.model.flushed.min(target);
        self.model.truncating = Some(target);
        let is_cut = self.manager.truncate_to(&partition(), target, self.now()).map_err(|e| e.to_string())?;
        if is_cut {
            self.model.durable_start = self.log.log_start_offset();
        }
        self.model.truncating = None;
        self.model.truncate(target);
        Ok(())
    }
}

fn open(sim: &Sim, seed: u64) -> (LogManager, Arc<UnifiedLog>) {
    try_open(sim, seed).unwrap_or_else(|e| panic!("{e}"))
}

/// When one seed is replayed: what a start finds.
fn show(sim: &Sim) {
    if std::env::var("STORAGE_CRASH_SEED").is_err() {
        return;
    }
    for (path, content) in sim.fs.contents() {
        let is_text = path.extension().is_none();
        let text = if is_text { String::from_utf8_lossy(&content).replace('\n', " ") } else { String::new() };
        println!("{} {} {text}", path.display(), content.len());
        if path.extension().is_some_and(|e| e == "snapshot") {
            println!("    {:?}", storage::producer::decode_snapshot(&content));
        }
    }
}

/// An error means the power is off.
fn try_open(sim: &Sim, seed: u64) -> Result<(LogManager, Arc<UnifiedLog>), String> {
    let manager = manager(sim, seed)?;
    show(sim);
    manager.load(sim.clock.now(), &|_| config(seed), &|_| false).map_err(|e| e.to_string())?;
    let params = CreateParams {
        config: config(seed),
        topic_id: Some("AAAAAAAAAAAAAAAAAAAAAw".parse().unwrap()),
        is_new: true,
        directory_id: None,
    };
    let log = manager.get_or_create_log(&partition(), params, sim.clock.now()).map_err(|e| e.to_string())?;
    Ok((manager, log))
}

fn run_seed(seed: u64) {
    let sim = Sim::new(seed);
    let random = SeededRandom::new(seed ^ 0xc0ffee);
    sim.fs.create_dir_all(Path::new("/node")).unwrap();
    sim.fs.sync_dir(Path::new("/")).unwrap();
    let mut model = Model::default();
    let mut durable = 0;
    for round in 0..ROUNDS {
        let context = format!("seed {seed} round {round}");
        // Sometimes the power goes off while the logs are being recovered.
        if round > 0 && random.one_in(3) {
            sim.fs.power_off_at(sim.fs.operations() + random.pick(1..30));
            let opened = try_open(&sim, seed).map(drop);
            assert!(opened.is_ok() || sim.fs.is_off(), "{context}: {opened:?}");
            // What a kill left in the page cache may be lost now.
            model.flushed = model.flushed.min(durable);
            sim.fs.crash(random.next());
        }
        let (manager, log) = open(&sim, seed);
        check(&log, &mut model, &context);
        // Nothing of it is durable that was not: a kill only kept it.
        model.flushed = model.flushed.min(durable);
        let mut current = Round { sim: &sim, random: &random, manager, log, model: &mut model };
        let cut_at = sim.fs.operations() + random.pick(1..250);
        if round + 1 == ROUNDS && random.one_in(4) {
            // A clean stop in between must keep everything.
            for _ in 0..30 {
                current.step().unwrap();
            }
            current.manager.shutdown(sim.clock.now(), 7).unwrap();
            let end = current.model.end();
            current.model.flushed = end;
            sim.fs.crash(random.next());
            let (_, log) = open(&sim, seed);
            assert_eq!(log.log_end_offset(), end, "{context}: a clean stop lost records");
            check(&log, &mut model, &context);
            return;
        }
        sim.fs.power_off_at(cut_at);
        while !sim.fs.is_off() {
            let stepped = current.step();
            assert!(stepped.is_ok() || sim.fs.is_off(), "{context}: {stepped:?}");
        }
        drop(current);
        if random.one_in(4) {
            // A killed process: the page cache stays, and with it everything that was appended.
            durable = model.flushed;
            model.flushed = model.end().min(model.truncating.unwrap_or(i64::MAX));
            sim.fs.kill();
        } else {
            sim.fs.crash(random.next());
            durable = model.flushed;
        }
        sim.clock.restart();
    }
    let (_, log) = open(&sim, seed);
    check(&log, &mut model, &format!("seed {seed} at the end"));
}

#[test]
fn power_cuts_lose_nothing_that_was_flushed() {
    if let Ok(seed) = std::env::var("STORAGE_CRASH_SEED") {
        return run_seed(seed.parse().unwrap());
    }
    let cuts: u64 = std::env::var("STORAGE_CRASHES").map_or(600, |n| n.parse().unwrap());
    std::panic::set_hook(Box::new(|_| {}));
    for seed in 0..cuts.div_ceil(ROUNDS) {
        if let Err(cause) = std::panic::catch_unwind(|| run_seed(seed)) {
            let _ = std::panic::take_hook();
            let text = cause.downcast_ref::<String>().cloned().unwrap_or_default();
            panic!("{text}\nreplay with STORAGE_CRASH_SEED={seed}");
        }
    }
}
