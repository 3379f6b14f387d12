//! Power cuts. A seeded workload runs against a node's log directory until the power goes off in the middle of some
//! operation; after the reboot the logs must hold what was flushed, nothing that was never written, and indexes,
//! epochs and producer states that agree with the records. Then the next round begins on what is left.
//!
//! `STORAGE_CRASHES=n` sets the number of power cuts (default 600), `STORAGE_CRASH_SEED=s` runs one seed.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{idempotent, marker, transactional};
use env::{Clock, FileSystem};
use record::{AppendOrigin, Batches, NoCodecs, Time, TopicPartition};
use storage::{
    AppendOptions, CreateParams, FetchIsolation, LogConfig, LogManager, LogManagerConfig,
    LogStartOffsetIncrementReason, UnifiedLog,
};
use testkit::{SeededRandom, Sim};

const ROUNDS: u64 = 4;

/// A batch as it must be in the log.
#[derive(Clone, Debug)]
struct Written {
    bytes: Bytes,
    base_offset: i64,
    last_offset: i64,
    epoch: i32,
}

/// What a log should hold.
#[derive(Default)]
struct Model {
    batches: Vec<Written>,
    /// Records below are durable.
    flushed: i64,
    /// The greatest log start asked for.
    log_start: i64,
    /// The greatest log start there ever was: a start that was lost in a crash brings records back, but not what
    /// their producers were known for.
    producer_floor: i64,
    /// Where the log ends if it holds nothing: a start behind everything that survived begins an empty log there.
    empty_end: i64,
    epoch: i32,
    next_sequence: BTreeMap<i64, i32>,
    open_txns: BTreeMap<i64, i64>,
    /// A batch that may have reached the log although its append failed: the power went off.
    in_flight: Option<Bytes>,
    /// A truncation that was interrupted.
    truncating: Option<i64>,
}

impl Model {
    fn end(&self) -> i64 {
        self.batches.last().map_or(0, |batch| batch.last_offset + 1).max(self.empty_end)
    }

    fn truncate(&mut self, offset: i64) {
        self.batches.retain(|batch| batch.last_offset < offset);
        self.flushed = self.flushed.min(offset);
        self.empty_end = self.empty_end.min(offset);
        self.replay();
    }

    /// Producer expectations from the batches.
    fn replay(&mut self) {
        self.next_sequence.clear();
        self.open_txns.clear();
        for written in &self.batches {
            let batch = Batches::new(&written.bytes).next().unwrap().unwrap();
            let id = batch.producer_id;
            if batch.is_control_batch() {
                self.open_txns.remove(&id);
                continue;
            }
            self.next_sequence.insert(id, batch.last_sequence() + 1);
            if batch.is_transactional() {
                self.open_txns.entry(id).or_insert(written.base_offset);
            }
        }
    }
}

fn config() -> Arc<LogConfig> {
    Arc::new(LogConfig {
        segment_size_bytes: 2048,
        index_interval_bytes: 200,
        file_delete_delay_ms: 1000,
        retention_ms: -1,
        ..LogConfig::default()
    })
}

fn manager(sim: &Sim) -> LogManager {
    let config = LogManagerConfig {
        num_recovery_threads_per_data_dir: 1,
        default_config: config(),
        initial_task_delay_ms: 0,
        flush_offset_checkpoint_interval_ms: 3000,
        flush_start_offset_checkpoint_interval_ms: 3000,
        ..LogManagerConfig::new(vec!["/node/data".into()])
    };
    LogManager::new(sim.env(), Arc::new(NoCodecs), config).unwrap()
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
            72..88 => {
                self.manager.tick(self.now());
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
        self.model.in_flight = Some(records.clone());
        let appended = self.log.append_as_leader_with(self.now(), records, options);
        if let Err(storage::AppendError::OutOfOrderSequence(_)) = &appended
            && self.log.log_start_offset() > 0
        {
            // Of this producer only a marker is left in the log: as in the reference it must begin with a new epoch.
            self.model.in_flight = None;
            return Ok(());
        }
        let info = appended.map_err(|e| e.to_string())?;
        assert!(!info.is_duplicate);
        assert_eq!(info.first_offset, self.model.end(), "offsets continue");
        self.model.in_flight = None;
        let read =
            self.log.read(info.first_offset, 1, FetchIsolation::LogEnd, true).map_err(|e| e.to_string())?;
        let bytes = read.records.unwrap().read().map_err(|e| e.to_string())?;
        let (base_offset, last_offset) = (info.first_offset, info.last_offset);
        self.model.batches.push(Written { bytes, base_offset, last_offset, epoch: self.model.epoch });
        self.model.replay();
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
        self.manager.truncate_to(&partition(), target, self.now()).map_err(|e| e.to_string())?;
        self.model.truncating = None;
        self.model.truncate(target);
        self.model.log_start = self.model.log_start.min(target);
        Ok(())
    }
}

/// After a reboot: what must hold of the log, whatever was lost.
fn check(log: &UnifiedLog, model: &mut Model, context: &str) {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    assert!(end >= model.flushed, "{context}: log ends at {end}, {} was flushed", model.flushed);
    assert!(start <= model.log_start.max(model.flushed), "{context}: starts at {start}");
    let mut expected: Vec<Written> = model.batches.clone();
    let mut found = Vec::new();
    let mut offset = start;
    let mut max_timestamp = -1;
    while offset < end {
        let info = log.read(offset, 1, FetchIsolation::LogEnd, true).expect(context);
        let bytes = info
            .records
            .unwrap_or_else(|| panic!("{context}: nothing at {offset} below {end}"))
            .read()
            .unwrap();
        let batch = Batches::new(&bytes).next().unwrap().unwrap();
        assert!(batch.is_valid(), "{context}: bad checksum at {offset}");
        assert!(batch.base_offset <= offset && batch.last_offset() >= offset, "{context}: gap at {offset}");
        let written = match expected.iter().find(|w| w.base_offset == batch.base_offset) {
            Some(written) => {
                assert_eq!(written.bytes, bytes, "{context}: other bytes at {offset}");
                written.clone()
            }
            None => {
                // Only the append that the power cut interrupted may be new, and only at the end.
                let sent = model
                    .in_flight
                    .as_ref()
                    .unwrap_or_else(|| panic!("{context}: unknown batch at {offset}"));
                assert_eq!(sent[61..], bytes[61..], "{context}: unknown batch at {offset}");
                assert_eq!(batch.base_offset, model.end(), "{context}: unknown batch at {offset}");
                let (base_offset, last_offset) = (batch.base_offset, batch.last_offset());
                Written {
                    bytes: bytes.clone(),
                    base_offset,
                    last_offset,
                    epoch: batch.partition_leader_epoch,
                }
            }
        };
        assert_eq!(log.epoch_for_offset(offset), Some(written.epoch), "{context}: epoch of {offset}");
        // Every offset finds its batch through the indexes.
        for offset in written.base_offset.max(start)..=written.last_offset {
            let read = log.read(offset, 1, FetchIsolation::LogEnd, true).unwrap();
            assert_eq!(read.fetch_offset.message_offset, written.base_offset, "{context}: index at {offset}");
        }
        if batch.max_timestamp > max_timestamp {
            max_timestamp = batch.max_timestamp;
            let by_time = log.fetch_offset_by_timestamp(max_timestamp).unwrap();
            let by_time = by_time.unwrap_or_else(|| panic!("{context}: no offset for {max_timestamp}"));
            assert_eq!(
                by_time.offset,
                written.base_offset.max(start),
                "{context}: timestamp {max_timestamp}"
            );
        }
        offset = batch.next_offset();
        found.push(written);
    }
    assert_eq!(offset, end, "{context}");
    // What lies below the log's start is gone for good; the rest is what the log holds now.
    expected.retain(|written| written.last_offset < start);
    model.empty_end = if found.is_empty() { end } else { 0 };
    expected.extend(found);
    model.batches = expected;
    model.in_flight = None;
    model.truncating = None;
    model.producer_floor = model.producer_floor.max(model.log_start);
    model.flushed = model.flushed.min(end);
    model.log_start = start;
    model.replay();
    check_producers(log, model, start, context);
}

fn check_producers(log: &UnifiedLog, model: &Model, start: i64, context: &str) {
    let floor = start.max(model.producer_floor);
    if model.open_txns.values().all(|first| *first >= floor) {
        let unstable = model.open_txns.values().min().copied();
        log.update_high_watermark(log.log_end_offset());
        assert_eq!(
            log.last_stable_offset(),
            unstable.unwrap_or(log.log_end_offset()),
            "{context}: last stable offset"
        );
    }
    let mut last: BTreeMap<i64, i32> = BTreeMap::new();
    for written in model.batches.iter().filter(|written| written.base_offset >= floor) {
        let batch = Batches::new(&written.bytes).next().unwrap().unwrap();
        last.entry(batch.producer_id).or_insert(-1);
        if !batch.is_control_batch() {
            last.insert(batch.producer_id, batch.last_sequence());
        }
    }
    let known = log.active_producers();
    for (id, sequence) in last {
        let producer = known.iter().find(|producer| producer.producer_id == id);
        let producer = producer.unwrap_or_else(|| panic!("{context}: producer {id} is unknown"));
        if sequence >= 0 {
            assert_eq!(producer.last_sequence, sequence, "{context}: producer {id}");
        }
    }
    check_aborted(log, model, floor, context);
}

/// The transaction indexes list exactly the aborted transactions of the log.
fn check_aborted(log: &UnifiedLog, model: &Model, start: i64, context: &str) {
    let mut open: BTreeMap<i64, i64> = BTreeMap::new();
    let mut expected = Vec::new();
    for written in &model.batches {
        let batch = Batches::new(&written.bytes).next().unwrap().unwrap();
        if !batch.is_control_batch() {
            if batch.is_transactional() {
                open.entry(batch.producer_id).or_insert(written.base_offset);
            }
            continue;
        }
        let first = open.remove(&batch.producer_id);
        let mut buffers = record::BufferSupplier::new();
        let record = batch.records(&NoCodecs, &mut buffers).unwrap().next().unwrap().unwrap();
        let (key, value) = (record.key.unwrap(), record.value.unwrap());
        let marker = record::EndTransactionMarker::deserialize(key, value).unwrap();
        if let Some(first) = first.filter(|_| !marker.committed) {
            expected.push((batch.producer_id, first, written.last_offset));
        }
    }
    let found = log.collect_aborted_transactions(start, i64::MAX).unwrap();
    let found: Vec<_> = found.iter().map(|t| (t.producer_id, t.first_offset, t.last_offset)).collect();
    // Of a transaction that began below the log's start the index may name a later beginning.
    for txn in expected.iter().filter(|(_, first, _)| *first >= start) {
        assert!(found.contains(txn), "{context}: aborted {txn:?} is not among {found:?}");
    }
    for (id, first, last) in found.iter().filter(|(_, first, _)| *first >= start) {
        let is_known = expected.iter().any(|(i, f, l)| (i, l) == (id, last) && f <= first);
        assert!(is_known, "{context}: {:?} was not aborted", (id, first, last));
    }
}

fn open(sim: &Sim) -> (LogManager, Arc<UnifiedLog>) {
    let manager = manager(sim);
    manager.load(sim.clock.now(), &|_| config(), &|_| false).unwrap();
    let params = CreateParams {
        config: config(),
        topic_id: Some("AAAAAAAAAAAAAAAAAAAAAw".parse().unwrap()),
        is_new: true,
        directory_id: None,
    };
    let log = manager.get_or_create_log(&partition(), params, sim.clock.now()).unwrap();
    (manager, log)
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
            let interrupted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(open(&sim))));
            let _ = interrupted;
            // What a kill left in the page cache may be lost now.
            model.flushed = model.flushed.min(durable);
            sim.fs.crash(random.next());
        }
        let (manager, log) = open(&sim);
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
            let (_, log) = open(&sim);
            assert_eq!(log.log_end_offset(), end, "{context}: a clean stop lost records");
            check(&log, &mut model, &context);
            return;
        }
        sim.fs.power_off_at(cut_at);
        while !sim.fs.is_off() {
            let _ = current.step();
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
    let (_, log) = open(&sim);
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
