//! `flush.messages`: what an acknowledgement waits for, what a failed sync means, and that a power cut takes nothing that
//! was acknowledged or shown.
//!
//! `STORAGE_CRASHES=n` sets the number of power cuts (default 400), `STORAGE_CRASH_SEED=s` runs one seed.

mod common;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::idempotent;
use env::{Clock, FileSystem};
use record::{AppendOrigin, Batches, NoCodecs, TopicPartition};
use storage::{
    AppendInfo, CreateParams, FetchIsolation, LogConfig, LogManager, LogManagerConfig, StorageError,
    UnifiedLog,
};
use testkit::{Fault, Op, SeededRandom, Sim};

const NOW: Duration = Duration::ZERO;

fn config(flush_messages: i64) -> Arc<LogConfig> {
    Arc::new(LogConfig { flush_messages, segment_size_bytes: 1500, ..LogConfig::default() })
}

fn start(sim: &Sim, flush_messages: i64) -> LogManager {
    let manager = LogManagerConfig {
        num_recovery_threads_per_data_dir: 1,
        default_config: config(flush_messages),
        initial_task_delay_ms: 0,
        flush_offset_checkpoint_interval_ms: 3000,
        ..LogManagerConfig::new(vec!["/data".into()])
    };
    let manager = LogManager::new(sim.env(), Arc::new(NoCodecs), manager).unwrap();
    manager.load(sim.clock.now(), &|_| config(flush_messages), &|_| false).unwrap();
    manager
}

fn log(sim: &Sim, manager: &LogManager, index: i32) -> Arc<UnifiedLog> {
    let params = CreateParams {
        config: manager.default_config(),
        topic_id: Some("AAAAAAAAAAAAAAAAAAAACA".parse().unwrap()),
        is_new: true,
        directory_id: None,
    };
    manager.get_or_create_log(&TopicPartition::new("t", index), params, sim.clock.now()).unwrap()
}

fn produce(
    sim: &Sim,
    log: &UnifiedLog,
    sequence: i32,
    records: usize,
) -> Result<AppendInfo, storage::AppendError> {
    let now = sim.clock.now();
    let values: Vec<&[u8]> = (0..records).map(|_| &b"0123456789"[..]).collect();
    let info =
        log.append_as_leader(now, idempotent(1, 0, sequence, now.wall_ms, &values), 0, AppendOrigin::Client)?;
    log.advance_high_watermark_to_end();
    Ok(info)
}

fn sync(manager: &LogManager) -> Option<Result<i64, StorageError>> {
    let outcome = manager.sync_next(0, NOW)?;
    outcome.log.advance_high_watermark_to_end();
    Some(outcome.result)
}

#[test]
fn an_append_waits_when_as_many_records_as_allowed_are_not_durable() {
    // Records per append; what each waits for; the high watermark meanwhile.
    type Step = (usize, Option<i64>, i64);
    let table: &[(i64, &[Step])] = &[
        (i64::MAX, &[(1, None, 1), (5, None, 6)]),
        (1, &[(1, Some(1), 0), (2, Some(3), 0)]),
        // The third append demands no sync of its own: the one it waits for leaves two records, as in the reference.
        (3, &[(1, None, 1), (2, Some(3), 1), (2, Some(3), 1), (1, Some(6), 1)]),
        (4, &[(5, Some(5), 0), (1, Some(5), 0)]),
    ];
    for (flush_messages, steps) in table {
        let sim = Sim::new(1);
        let manager = start(&sim, *flush_messages);
        let log = log(&sim, &manager, 0);
        let mut sequence = 0;
        for (records, sync_to, high_watermark) in *steps {
            let info = produce(&sim, &log, sequence, *records).unwrap();
            sequence += *records as i32;
            assert_eq!(info.sync_to, *sync_to, "{flush_messages} {sequence}");
            assert_eq!(log.high_watermark(), *high_watermark, "{flush_messages} {sequence}");
        }
        let waits = steps.iter().any(|(_, sync_to, _)| sync_to.is_some());
        assert_eq!(sync(&manager).is_some(), waits, "{flush_messages}: one sync serves all");
        assert!(sync(&manager).is_none(), "{flush_messages}");
        assert_eq!(log.high_watermark(), log.log_end_offset());
    }
}

#[test]
fn a_sync_serves_what_was_there_when_it_began_and_spans_a_roll() {
    let sim = Sim::new(1);
    let manager = start(&sim, 1);
    let log = log(&sim, &manager, 0);
    let first = produce(&sim, &log, 0, 1).unwrap();
    log.roll_segment(sim.clock.now()).unwrap();
    let second = produce(&sim, &log, 1, 1).unwrap();
    assert_eq!((first.sync_to, second.sync_to), (Some(1), Some(2)));
    assert_eq!(sync(&manager).unwrap().unwrap(), 2);
    sim.fs.crash(3);
    let log = self::log(&sim, &start(&sim, 1), 0);
    assert_eq!((log.log_end_offset(), log.number_of_segments()), (2, 2));
}

#[test]
fn a_duplicate_waits_for_the_sync_that_its_first_append_waits_for() {
    let sim = Sim::new(1);
    let manager = start(&sim, 1);
    let log = log(&sim, &manager, 0);
    produce(&sim, &log, 0, 2).unwrap();
    let again = produce(&sim, &log, 0, 2).unwrap();
    assert!(again.is_duplicate);
    assert_eq!(again.sync_to, Some(2));
    sync(&manager).unwrap().unwrap();
    let again = produce(&sim, &log, 0, 2).unwrap();
    assert_eq!((again.is_duplicate, again.sync_to), (true, None));
}

#[test]
fn a_failed_sync_fails_everybody_and_is_never_repeated() {
    for kind in [io::ErrorKind::Other, io::ErrorKind::StorageFull] {
        let sim = Sim::new(1);
        let manager = start(&sim, 1);
        let logs = [log(&sim, &manager, 0), log(&sim, &manager, 1)];
        logs.iter().for_each(|log| assert_eq!(produce(&sim, log, 0, 1).unwrap().sync_to, Some(1)));
        sim.fs.inject(Fault { op: Op::Sync, path: "t-0/0000".into(), nth: 1, kind });
        for log in &logs {
            assert!(sync(&manager).unwrap().is_err(), "{kind:?}");
            assert_eq!((log.high_watermark(), log.synced_end_offset()), (0, 0), "{kind:?}");
        }
        assert!(logs[0].log_dir().is_offline(), "{kind:?}");
        assert!(produce(&sim, &logs[1], 1, 1).is_err());
        assert!(sync(&manager).is_none());
    }
}

#[test]
fn whoever_waits_for_a_log_that_is_deleted_or_truncated_is_told() {
    let sim = Sim::new(1);
    let manager = start(&sim, 1);
    let log = log(&sim, &manager, 0);
    produce(&sim, &log, 0, 1).unwrap();
    assert!(manager.async_delete(&[TopicPartition::new("t", 0)], false, sim.clock.now()).is_empty());
    assert!(matches!(sync(&manager), Some(Err(StorageError::Closed(_)))));

    let log = self::log(&sim, &manager, 1);
    produce(&sim, &log, 0, 3).unwrap();
    manager.truncate_to(&TopicPartition::new("t", 1), 0, sim.clock.now()).unwrap();
    assert_eq!(sync(&manager).unwrap().unwrap(), 0);
    let info = produce(&sim, &log, 0, 1).unwrap();
    assert_eq!((info.first_offset, info.sync_to, log.high_watermark()), (0, Some(1), 0));
}

/// One log of the power cut test.
struct Model {
    log: Arc<UnifiedLog>,
    /// Appends that wait: what for, and the end of their records.
    waiting: Vec<(i64, i64)>,
    next_sequence: i32,
}

#[derive(Default)]
struct Promised {
    /// End of the records that were acknowledged.
    acknowledged: i64,
    /// The greatest high watermark that readers were shown.
    shown: i64,
}

impl Model {
    fn step(&mut self, sim: &Sim, random: &SeededRandom, promised: &mut Promised) {
        let records = random.pick(1..4) as usize;
        let Ok(info) = produce(sim, &self.log, self.next_sequence, records) else { return };
        self.next_sequence += records as i32;
        self.waiting.push((info.sync_to.unwrap_or(0), info.last_offset + 1));
        self.acknowledge(promised);
    }

    /// What the broker does after a sync: answer, and show.
    fn acknowledge(&mut self, promised: &mut Promised) {
        if self.log.log_dir().is_offline() {
            return;
        }
        let synced = self.log.synced_end_offset();
        for (_, end) in self.waiting.extract_if(.., |(sync_to, _)| *sync_to <= synced) {
            promised.acknowledged = promised.acknowledged.max(end);
        }
        promised.shown = promised.shown.max(self.log.high_watermark());
    }
}

fn check(log: &UnifiedLog, promised: &Promised, flush_messages: i64, context: &str) {
    let end = log.log_end_offset();
    let Promised { acknowledged, shown } = promised;
    assert!(end > acknowledged - flush_messages, "{context}: {acknowledged} acknowledged, {end} left");
    assert!(end > shown - flush_messages, "{context}: {shown} shown, {end} left");
    let mut offset = log.log_start_offset();
    while offset < end {
        let read = log.read(offset, 1, FetchIsolation::LogEnd, true).expect(context);
        let bytes = read.records.expect(context).read().unwrap();
        let batch = Batches::new(&bytes).next().unwrap().unwrap();
        assert!(batch.is_valid() && batch.base_offset == offset, "{context}: {offset}");
        offset = batch.next_offset();
    }
}

fn run_seed(seed: u64) {
    let (sim, random) = (Sim::new(seed), SeededRandom::new(seed ^ 0x9e37));
    let flush_messages = [1, 1, 2, 5][(seed % 4) as usize];
    let mut promised: BTreeMap<i32, Promised> = BTreeMap::new();
    sim.fs.create_dir_all(Path::new("/data")).unwrap();
    sim.fs.sync_dir(Path::new("/")).unwrap();
    for round in 0..4 {
        let context = format!("seed {seed} round {round}");
        let manager = start(&sim, flush_messages);
        let mut models: Vec<Model> = Vec::new();
        for index in 0..2 {
            let log = log(&sim, &manager, index);
            let promised = promised.entry(index).or_default();
            check(&log, promised, flush_messages, &context);
            // What a kill or luck kept is not durable, and what was lost within the allowance is gone.
            promised.acknowledged = promised.acknowledged.min(log.log_end_offset());
            promised.shown = promised.shown.min(log.log_end_offset());
            let producer = log.active_producers().first().copied();
            let next_sequence = producer.map_or(0, |producer| producer.last_sequence + 1);
            models.push(Model { log, waiting: Vec::new(), next_sequence });
        }
        sim.fs.power_off_at(sim.fs.operations() + random.pick(1..200));
        while !sim.fs.is_off() {
            sim.clock.advance(Duration::from_millis(random.pick(1..300)));
            let model = random.pick(0..2) as usize;
            match random.pick(0..10) {
                0..6 => models[model].step(&sim, &random, promised.entry(model as i32).or_default()),
                6..9 => {
                    sync(&manager);
                    for (index, model) in models.iter_mut().enumerate() {
                        model.acknowledge(promised.entry(index as i32).or_default());
                    }
                }
                _ => drop(manager.tick(sim.clock.now())),
            }
        }
        drop((models, manager));
        if random.one_in(5) {
            sim.fs.kill()
        } else {
            sim.fs.crash(random.next())
        }
        sim.clock.restart();
    }
}

#[test]
fn power_cuts_take_nothing_that_was_acknowledged_or_shown() {
    if let Ok(seed) = std::env::var("STORAGE_CRASH_SEED") {
        return run_seed(seed.parse().unwrap());
    }
    let cuts: u64 = std::env::var("STORAGE_CRASHES").map_or(400, |n| n.parse().unwrap());
    for seed in 0..cuts.div_ceil(4) {
        if let Err(cause) = std::panic::catch_unwind(|| run_seed(seed)) {
            let text = cause.downcast_ref::<String>().cloned().unwrap_or_default();
            panic!("{text}\nreplay with STORAGE_CRASH_SEED={seed}");
        }
    }
}
