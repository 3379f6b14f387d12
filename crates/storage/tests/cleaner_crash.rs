//! Power cuts during compaction. A seeded workload with keys, tombstones and transactions runs against a compacted log
//! and its cleaner until the power goes off in the middle of some operation. After the reboot, whatever was lost of
//! the log's end, a reader must find for each key what was written last below that end: no value has vanished, none
//! that was replaced has come back. Then the next round begins on what is left.
//!
//! `STORAGE_CRASHES=n` sets the number of power cuts (default 300), `STORAGE_CRASH_SEED=s` runs one seed.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use common::cleaning::{
    Node, Seen, batches_of, compacted, header, keyed, of_producer, partition, records_of,
};
use common::marker;
use env::FileSystem;
use record::{AppendOrigin, BatchOptions};
use storage::{
    AppendError, AppendOptions, CleanerConfig, FetchIsolation, LogConfig, LogStartOffsetIncrementReason,
    UnifiedLog,
};
use testkit::{SeededRandom, Sim};

const ROUNDS: u64 = 4;

/// A batch as it was written.
#[derive(Clone, Debug)]
struct Written {
    base_offset: i64,
    last_offset: i64,
    producer: i64,
    last_sequence: i32,
    is_transactional: bool,
    /// Of a marker: whether it commits.
    marker: Option<bool>,
    records: Vec<Seen>,
}

impl Written {
    fn of(bytes: &Bytes, base_offset: i64, marker: Option<bool>) -> Written {
        let batch = header(bytes);
        let mut records = records_of(bytes);
        for record in &mut records {
            record.offset += base_offset - batch.base_offset;
        }
        Written {
            base_offset,
            last_offset: base_offset + i64::from(batch.last_offset_delta),
            producer: batch.producer_id,
            last_sequence: batch.last_sequence(),
            is_transactional: batch.is_transactional(),
            marker,
            records,
        }
    }
}

#[derive(Default)]
struct Model {
    /// Everything that was ever appended and not truncated.
    history: Vec<Written>,
    flushed: i64,
    log_start: i64,
    in_flight: Option<(Bytes, Option<bool>)>,
    truncating: bool,
    values: u64,
    /// Where the log ends, if that is behind everything that survived.
    empty_end: i64,
    cleanings: u64,
}

impl Model {
    fn end(&self) -> i64 {
        self.history.last().map_or(0, |batch| batch.last_offset + 1).max(self.empty_end)
    }

    fn next_sequence(&self, producer: i64) -> i32 {
        let mut batches = self.history.iter().rev();
        let last = batches.find(|batch| batch.producer == producer && batch.marker.is_none());
        last.map_or(0, |batch| batch.last_sequence + 1)
    }

    /// First offset of each open transaction.
    fn open_transactions(&self) -> BTreeMap<i64, i64> {
        let mut open = BTreeMap::new();
        for batch in self.history.iter().filter(|batch| batch.is_transactional) {
            match batch.marker {
                Some(_) => drop(open.remove(&batch.producer)),
                None => drop(open.entry(batch.producer).or_insert(batch.base_offset)),
            }
        }
        open
    }

    /// What a `read_committed` reader of everything from the log's start up to the last stable offset ends up with.
    fn committed_values(&self, start: i64) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let stable = self.open_transactions().values().copied().min().unwrap_or(self.end());
        let mut seen = Vec::new();
        for (i, batch) in self.history.iter().enumerate() {
            let is_marker_of = |later: &&Written| later.producer == batch.producer && later.marker.is_some();
            let is_committed = !batch.is_transactional
                || self.history.iter().skip(i).find(is_marker_of).and_then(|marker| marker.marker)
                    == Some(true);
            if is_committed && batch.marker.is_none() {
                let readable = batch.records.iter().filter(|r| r.offset >= start && r.offset < stable);
                seen.extend(readable.cloned());
            }
        }
        common::cleaning::last_values(&seen)
    }
}

fn config(seed: u64) -> LogConfig {
    LogConfig {
        segment_size_bytes: 1200,
        delete: seed.is_multiple_of(3),
        retention_ms: -1,
        delete_retention_ms: 2000,
        ..compacted()
    }
}

/// In some runs the map holds few keys and the buffers few batches, so that logs are cleaned piece by piece.
fn cleaner(seed: u64) -> CleanerConfig {
    if seed % 4 == 1 {
        CleanerConfig { dedupe_buffer_size: 24 * 5, io_buffer_size: 1, ..CleanerConfig::default() }
    } else {
        CleanerConfig::default()
    }
}

struct Round<'a> {
    node: Node,
    random: &'a SeededRandom,
    model: &'a mut Model,
}

impl Round<'_> {
    /// One random step; an error means the power is off.
    fn step(&mut self) -> Result<(), String> {
        let now = {
            self.node.advance_ms(self.random.pick(1..400));
            self.node.now()
        };
        let log = self.node.log.clone();
        match self.random.pick(0..100) {
            0..62 => self.append(),
            62..68 => {
                log.flush(now).map_err(|e| e.to_string())?;
                self.model.flushed = self.model.end();
                Ok(())
            }
            68..78 => {
                self.node.manager.tick(now);
                Ok(())
            }
            78..82 => log.roll_segment(now).map_err(|e| e.to_string()),
            82..97 => {
                log.update_high_watermark(self.model.end());
                if self.node.clean() {
                    self.model.cleanings += 1;
                    // Whatever cleaning relied on was made durable first.
                    self.model.flushed = self.model.end();
                }
                let uncleanable = self.node.manager.uncleanable_partitions(log.log_dir());
                assert!(uncleanable.is_empty(), "cleaning failed");
                Ok(())
            }
            97..99 => self.truncate(),
            _ => self.delete_records(),
        }
    }

    fn append(&mut self) -> Result<(), String> {
        let producer = self.random.pick(1..6) as i64;
        let is_open = self.model.open_transactions().contains_key(&producer);
        let timestamp = self.node.wall_ms() - self.random.pick(0..5000) as i64;
        let ends = (is_open && self.random.one_in(2)).then(|| self.random.one_in(2));
        let (batch, origin) = match ends {
            Some(commit) => (marker(producer, 0, timestamp, commit, 0), AppendOrigin::Coordinator),
            None => {
                let records: Vec<(String, Option<String>)> = (0..self.random.pick(1..5))
                    .map(|_| {
                        self.model.values += 1;
                        let value = (!self.random.one_in(6)).then(|| format!("value {}", self.model.values));
                        (format!("key {}", self.random.pick(0..9)), value)
                    })
                    .collect();
                let records: Vec<(&str, Option<&str>)> =
                    records.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
                let sequence = self.model.next_sequence(producer);
                let options = if producer == 1 {
                    BatchOptions::default()
                } else {
                    of_producer(producer, 0, sequence, producer > 3 || is_open)
                };
                (keyed(options, timestamp, &records), AppendOrigin::Client)
            }
        };
        self.model.in_flight = Some((batch.clone(), ends));
        let options = AppendOptions { transaction_version: 0, ..AppendOptions::new(0, origin) };
        let appended = self.node.log.append_as_leader_with(self.node.now(), batch.clone(), options);
        if let Err(AppendError::OutOfOrderSequence(_)) = &appended
            && self.node.log.log_start_offset() > 0
        {
            // The producer was forgotten with what lay below the log's start.
            self.model.in_flight = None;
            return Ok(());
        }
        let info = appended.map_err(|e| e.to_string())?;
        assert_eq!(info.first_offset, self.model.end(), "offsets continue");
        self.model.in_flight = None;
        self.model.history.push(Written::of(&batch, info.first_offset, ends));
        if self.random.one_in(3) {
            self.node.log.update_high_watermark(self.model.end());
        }
        Ok(())
    }

    /// As a follower may: not below the high watermark.
    fn truncate(&mut self) -> Result<(), String> {
        let high_watermark = self.node.log.high_watermark();
        let Some(target) =
            self.model.history.iter().map(|batch| batch.base_offset).find(|base| *base >= high_watermark)
        else {
            return Ok(());
        };
        self.model.flushed = self.model.flushed.min(target);
        self.model.truncating = true;
        self.node.manager.truncate_to(&partition(), target, self.node.now()).map_err(|e| e.to_string())?;
        self.model.truncating = false;
        self.model.history.retain(|batch| batch.last_offset < target);
        self.model.empty_end = self.model.empty_end.min(target);
        Ok(())
    }

    fn delete_records(&mut self) -> Result<(), String> {
        let log = &self.node.log;
        let (start, high_watermark) = (log.log_start_offset(), log.high_watermark());
        if !log.config().delete || high_watermark <= start {
            return Ok(());
        }
        let target = self.random.pick(start as u64..high_watermark as u64 + 1) as i64;
        self.model.log_start = self.model.log_start.max(target);
        let reason = LogStartOffsetIncrementReason::ClientRecordDeletion;
        log.maybe_increment_log_start_offset(target, reason).map_err(|e| e.to_string())?;
        Ok(())
    }
}

/// Reads the log as a `read_committed` consumer does.
fn committed_values(node: &Node, context: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut offset, stable) = (node.log.log_start_offset(), node.log.last_stable_offset());
    let mut seen: Vec<Seen> = Vec::new();
    let mut aborted: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    let mut dropping: Vec<i64> = Vec::new();
    while offset < stable {
        let info = node.log.read(offset, 1, FetchIsolation::TxnCommitted, true).expect(context);
        let Some(slice) = info.records else { break };
        for txn in info.aborted_transactions.unwrap_or_default() {
            let firsts = aborted.entry(txn.producer_id).or_default();
            if !firsts.contains(&txn.first_offset) {
                firsts.push(txn.first_offset);
            }
        }
        let bytes = slice.read().unwrap();
        let batch = header(&bytes);
        if batch.is_control_batch() {
            dropping.retain(|id| *id != batch.producer_id);
            aborted.entry(batch.producer_id).or_default().retain(|first| *first > batch.base_offset);
        } else {
            let begins = aborted.get(&batch.producer_id);
            if begins.is_some_and(|firsts| firsts.iter().any(|first| *first <= batch.last_offset())) {
                dropping.push(batch.producer_id);
            }
            if !(batch.is_transactional() && dropping.contains(&batch.producer_id)) {
                seen.extend(records_of(&bytes).into_iter().filter(|record| record.offset >= offset));
            }
        }
        offset = batch.next_offset();
    }
    common::cleaning::last_values(&seen)
}

/// After a reboot: what must hold of the log, whatever was lost.
fn check(node: &Node, model: &mut Model, context: &str) {
    let log = &node.log;
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    assert!(end >= model.flushed, "{context}: log ends at {end}, {} was flushed", model.flushed);
    assert!(start <= model.log_start, "{context}: starts at {start} instead of {}", model.log_start);
    if let Some((bytes, marker)) = model.in_flight.take()
        && end > model.end()
    {
        model.history.push(Written::of(&bytes, model.end(), marker));
    }
    assert!(end <= model.end(), "{context}: ends at {end}, only {} was written", model.end());
    model.history.retain(|batch| batch.last_offset < end);
    forget_holes(log, model);
    model.truncating = false;
    model.empty_end = end;
    model.flushed = model.flushed.min(end);
    model.log_start = start;
    // What is there was written.
    let mut previous = start;
    for bytes in batches_of(log) {
        let batch = header(&bytes);
        assert!(batch.base_offset >= previous || batch.last_offset() >= start, "{context}: overlap");
        for record in records_of(&bytes).into_iter().filter(|record| record.offset >= start) {
            let written = model.history.iter().flat_map(|batch| &batch.records);
            assert_eq!(written.clone().find(|w| w.offset == record.offset), Some(&record), "{context}");
        }
        // Every offset up to the batch's end finds it, also those that are gone.
        for offset in [previous, batch.base_offset.max(start), batch.last_offset()] {
            let read = log.read(offset, 1, FetchIsolation::LogEnd, true).expect(context);
            assert_eq!(read.fetch_offset.message_offset, batch.base_offset, "{context}: index at {offset}");
        }
        previous = batch.next_offset();
    }
    log.update_high_watermark(end);
    let open = model.open_transactions();
    // Of a transaction that began below the log's start, what is left may be known or not.
    if open.values().all(|first| *first >= start) {
        let stable = open.values().copied().min().unwrap_or(end);
        assert_eq!(log.last_stable_offset(), stable, "{context}: stable offset of {}", describe(node, model));
        let (found, expected) = (committed_values(node, context), model.committed_values(start));
        assert_eq!(found, expected, "{context}: values, of {}", describe(node, model));
    }
    if start == 0 {
        check_producers(node, model, context);
    }
    check_files(node, context);
}

/// Where a log may be compacted, recovery cannot tell a gap that a power cut made from one that cleaning made: records
/// that were not flushed may be missing in front of a segment that survived.
fn forget_holes(log: &UnifiedLog, model: &mut Model) {
    let mut previous = log.log_start_offset();
    for bytes in batches_of(log) {
        let batch = header(&bytes);
        if previous >= model.flushed {
            let hole = previous..batch.base_offset;
            model.history.retain(|written| !hole.contains(&written.base_offset));
        }
        previous = batch.next_offset();
    }
    if previous >= model.flushed {
        model.history.retain(|written| written.base_offset < previous);
    }
}

fn describe(node: &Node, model: &Model) -> String {
    let log = &node.log;
    let mut text = format!("a log of {} to {}", log.log_start_offset(), log.log_end_offset());
    text += &format!(", stable at {:?}", log.last_stable_offset_metadata().unwrap());
    for segment in log.segments().iter() {
        text += &format!("\n  segment {} of {} bytes", segment.base_offset(), segment.size());
    }
    for bytes in batches_of(log) {
        let batch = header(&bytes);
        let (first, last, id) = (batch.base_offset, batch.last_offset(), batch.producer_id);
        text += &format!("\n  {first}..{last} by {id}, {} records", batch.count);
        if let Some(written) = model.history.iter().find(|written| written.base_offset == first) {
            text += &format!(", transactional {}, marker {:?}", written.is_transactional, written.marker);
        }
    }
    text += &format!("\n  flushed {}", model.flushed);
    for w in model.history.iter().filter(|w| w.is_transactional).rev().take(16) {
        text += &format!(
            "\n  history {}..{} by {} marker {:?}",
            w.base_offset, w.last_offset, w.producer, w.marker
        );
    }
    text + &format!("\n  aborted {:?}", log.collect_aborted_transactions(log.log_start_offset(), i64::MAX))
}

fn check_producers(node: &Node, model: &Model, context: &str) {
    let known = node.log.active_producers();
    for producer in 2..6 {
        let expected = model.next_sequence(producer) - 1;
        let found = known.iter().find(|known| known.producer_id == producer);
        if expected >= 0 {
            let found = found.map(|known| known.last_sequence);
            assert_eq!(found, Some(expected), "{context}: producer {producer} in {}", describe(node, model));
        }
    }
}

/// A start leaves nothing half done.
fn check_files(node: &Node, context: &str) {
    for name in node.files() {
        let is_left = [".cleaned", ".swap"].iter().any(|suffix| name.ends_with(suffix));
        assert!(!is_left, "{context}: {name} is left");
    }
}

fn run_seed(seed: u64) -> u64 {
    let mut sim = Sim::new(seed);
    let random = SeededRandom::new(seed ^ 0xc1ea4);
    sim.fs.create_dir_all(Path::new("/data")).unwrap();
    sim.fs.sync_dir(Path::new("/")).unwrap();
    let mut model = Model::default();
    let mut durable = 0;
    for round in 0..ROUNDS {
        let context = format!("seed {seed} round {round}");
        // Sometimes the power goes off while the log is being recovered.
        if round > 0 && random.one_in(3) {
            sim.fs.power_off_at(sim.fs.operations() + random.pick(1..30));
            sim = match Node::try_start(sim, config(seed), cleaner(seed)) {
                Ok(node) => node.sim,
                Err((sim, _)) => sim,
            };
            // What a kill left in the page cache may be lost now.
            model.flushed = model.flushed.min(durable);
            sim.fs.crash(random.next());
        }
        let node = Node::start(sim, config(seed), cleaner(seed));
        check(&node, &mut model, &context);
        // Nothing of it is durable that was not: a kill only kept it.
        model.flushed = model.flushed.min(durable);
        let cut_at = node.sim.fs.operations() + random.pick(1..400);
        let mut current = Round { node, random: &random, model: &mut model };
        current.node.sim.fs.power_off_at(cut_at);
        while !current.node.sim.fs.is_off() {
            let _ = current.step();
        }
        sim = current.node.sim;
        drop((current.node.log, current.node.manager));
        if random.one_in(4) {
            // A killed process: the page cache stays, and with it everything that was appended.
            durable = model.flushed;
            if !model.truncating {
                model.flushed = model.end();
            }
            sim.fs.kill();
        } else {
            sim.fs.crash(random.next());
            durable = model.flushed;
        }
        sim.clock.restart();
    }
    let node = Node::start(sim, config(seed), cleaner(seed));
    check(&node, &mut model, &format!("seed {seed} at the end"));
    model.cleanings
}

#[test]
fn power_cuts_during_compaction_lose_no_value_and_bring_none_back() {
    if let Ok(seed) = std::env::var("STORAGE_CRASH_SEED") {
        run_seed(seed.parse().unwrap());
        return;
    }
    let cuts: u64 = std::env::var("STORAGE_CRASHES").map_or(300, |n| n.parse().unwrap());
    std::panic::set_hook(Box::new(|_| {}));
    let mut cleanings = 0;
    for seed in 0..cuts.div_ceil(ROUNDS) {
        match std::panic::catch_unwind(|| run_seed(seed)) {
            Ok(count) => cleanings += count,
            Err(cause) => {
                let _ = std::panic::take_hook();
                let text = cause.downcast_ref::<String>().cloned().unwrap_or_default();
                panic!("{text}\nreplay with STORAGE_CRASH_SEED={seed}");
            }
        }
    }
    assert!(cleanings >= cuts, "only {cleanings} cleanings in {cuts} rounds");
}
