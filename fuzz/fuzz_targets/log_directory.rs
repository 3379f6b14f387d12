//! A partition's directory that Apache Kafka wrote, with damage anywhere in it: it is opened, or refused with an error.
//! An opened log answers reads, takes records, is cut, and opens again with what it had.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use compression::KafkaCodecs;
use env::FileSystem;
use fuzz::disk::{self, Choices};
use libfuzzer_sys::fuzz_target;
use record::{AppendOrigin, BatchOptions, Batches, RecordBatchBuilder, Time, TopicPartition};
use storage::{FetchIsolation, LogConfig, LogContext, LogDir, OpenParams, UnifiedLog};
use testkit::Sim;

const DIR: &str = "/data/t-txn-0";
const MAX_PATCHES: usize = 8;
const MAX_OPERATIONS: usize = 8;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../../crates/storage/tests/fixtures/t-txn-0/", $name)))),*]
    };
}

/// 404 records of one transactional producer in two segments, an index entry every 512 bytes.
const FILES: &[(&str, &[u8])] = files![
    "00000000000000000000.index",
    "00000000000000000000.log",
    "00000000000000000000.timeindex",
    "00000000000000000217.index",
    "00000000000000000217.log",
    "00000000000000000217.snapshot",
    "00000000000000000217.timeindex",
    "00000000000000000404.snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
];

/// Names that a directory may hold besides.
const OTHERS: &[&str] = &[
    "00000000000000000000.txnindex",
    "00000000000000000217.txnindex",
    "00000000000000000100.snapshot",
    "00000000000000000300.log",
    "00000000000000000217.log.swap",
    "00000000000000000000.log.cleaned",
    "00000000000000000000.log.deleted",
    "09223372036854775807.log",
];

fuzz_target!(|data: &[u8]| {
    let mut choices = Choices(data);
    let sim = Sim::new(1);
    sim.fs.create_dir_all(Path::new(DIR)).expect("an empty disk");
    for (name, content) in FILES {
        disk::put(&sim, &Path::new(DIR).join(name), content);
    }
    for _ in 0..choices.below(MAX_PATCHES + 1) {
        damage(&sim, &mut choices);
    }
    let world = World::on(sim, choices.byte());
    let Some(log) = world.open(choices.byte()) else { return };
    read_everything(&log);
    for _ in 0..choices.below(MAX_OPERATIONS + 1) {
        operate(&world, &log, &mut choices);
    }
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    assert!(start <= end, "{start}..{end}");
    if log.close(world.now()).is_err() {
        return;
    }
    // What was closed cleanly opens again as it was.
    let next = World::on(world.sim, 0);
    if let Some(log) = next.open_at(true, start, Some(end)) {
        assert_eq!(log.log_end_offset(), end);
        read_everything(&log);
    }
});

/// Changes one file.
fn damage(sim: &Sim, choices: &mut Choices<'_>) {
    let [file, kind, high, low, len] = choices.take();
    let which = usize::from(file) % (FILES.len() + OTHERS.len());
    let name = FILES.get(which).map_or_else(|| OTHERS[which - FILES.len()], |(name, _)| name);
    let path = Path::new(DIR).join(name);
    let mut content = if sim.fs.exists(&path).expect("the disk works") {
        disk::get(sim, &path)
    } else {
        FILES[usize::from(high) % FILES.len()].1.to_vec()
    };
    let at = usize::from(u16::from_be_bytes([high, low]));
    let len = usize::from(len).min(choices.0.len());
    let (bytes, rest) = choices.0.split_at(len);
    choices.0 = rest;
    match kind % 8 {
        0 => content.truncate(at),
        1 => content.extend_from_slice(bytes),
        2 => content = bytes.to_vec(),
        3 => content.resize(content.len() + at, 0),
        4 => {
            let _ = sim.fs.remove_file(&path);
            return;
        }
        _ => {
            let len = content.len().max(1);
            for (target, byte) in content.iter_mut().skip(at % len).zip(bytes) {
                *target = *byte;
            }
        }
    }
    if kind & 0x80 == 0 {
        repair(name, &mut content);
    }
    disk::put(sim, &path, &content);
}

/// Puts checksums right: damage behind a wrong one is never looked at.
fn repair(name: &str, content: &mut [u8]) {
    if name.ends_with(".snapshot") && content.len() >= 6 {
        let crc = record::crc::crc32c(&content[6..]);
        content[2..6].copy_from_slice(&crc.to_be_bytes());
    }
    let mut at = 0;
    while name.contains(".log")
        && let Some(batch) = content.get_mut(at..).filter(|rest| rest.len() >= 61)
    {
        let size = i32::from_be_bytes(batch[8..12].try_into().expect("four bytes"));
        let Some(size) = usize::try_from(size).ok().and_then(|size| size.checked_add(12)) else { return };
        if size < 61 || size > batch.len() {
            return;
        }
        let crc = record::crc::crc32c(&batch[21..size]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        at += size;
    }
}

struct World {
    sim: Sim,
    context: Arc<LogContext>,
    log_dir: Arc<LogDir>,
    config: LogConfig,
}

impl World {
    fn on(sim: Sim, flags: u8) -> World {
        let context = LogContext::new(sim.env(), Arc::new(KafkaCodecs));
        let config = LogConfig {
            segment_size_bytes: if flags & 1 == 0 { 16384 } else { 4096 },
            index_interval_bytes: if flags & 2 == 0 { 512 } else { 0 },
            max_index_size_bytes: if flags & 4 == 0 { 10 << 20 } else { 64 },
            ..LogConfig::default()
        };
        World { context, log_dir: LogDir::new("/data".into(), None), sim, config }
    }

    fn now(&self) -> Time {
        env::Clock::now(&*self.sim.clock)
    }

    fn open(&self, flags: u8) -> Option<Arc<UnifiedLog>> {
        let recovery_point =
            [Some(404), Some(217), Some(0), Some(i64::MAX), None][usize::from(flags >> 4) % 5];
        let log_start = [0, 0, 100, 300, 404, i64::MAX][usize::from(flags >> 1 & 7) % 6];
        self.open_at(flags & 1 == 0, log_start, recovery_point)
    }

    fn open_at(
        &self,
        had_clean_shutdown: bool,
        log_start_offset: i64,
        recovery_point: Option<i64>,
    ) -> Option<Arc<UnifiedLog>> {
        let params = OpenParams {
            config: Arc::new(self.config.clone()),
            log_start_offset,
            recovery_point,
            had_clean_shutdown,
            topic_id: None,
            durable_end: 0,
            is_new: false,
        };
        let partition = TopicPartition::new("t-txn", 0);
        UnifiedLog::open(&self.context, &self.log_dir, DIR.into(), partition, params, self.now()).ok()
    }
}

/// Every offset in turn, as a consumer and as a follower ask.
fn read_everything(log: &UnifiedLog) {
    log.update_high_watermark(log.log_end_offset());
    for isolation in [FetchIsolation::LogEnd, FetchIsolation::TxnCommitted] {
        let mut offset = log.log_start_offset();
        while let Ok(info) = log.read(offset, 1000, isolation, true) {
            let Some(read) = info.records.and_then(|slice| slice.read().ok()) else { break };
            let mut next = offset;
            for batch in Batches::new(&read) {
                let Ok(batch) = batch else { break };
                next = next.max(batch.next_offset());
            }
            if next <= offset {
                break;
            }
            offset = next;
        }
    }
    for timestamp in [0, 1_795_965_681_000, i64::MAX, storage::MAX_TIMESTAMP] {
        let _ = log.fetch_offset_by_timestamp(timestamp);
    }
    let _ = (log.active_producers(), log.first_unstable_offset(), log.last_stable_offset());
    let _ = log.collect_aborted_transactions(0, log.log_end_offset());
    for epoch in log.leader_epochs() {
        let _ = log.end_offset_for_epoch(epoch.epoch);
    }
}

fn operate(world: &World, log: &Arc<UnifiedLog>, choices: &mut Choices<'_>) {
    let now = world.now();
    let [operation, high, low] = choices.take();
    let number = i64::from(u16::from_be_bytes([high, low]));
    match operation % 9 {
        0 => {
            let _ = log.read(number, 500, FetchIsolation::LogEnd, true);
        }
        1 => {
            let _ = log.truncate_to(number, now);
        }
        2 => {
            let _ = log.truncate_fully_and_start_at(number, None, now);
        }
        3 => {
            let _ = log.roll_segment(now);
        }
        4 => {
            let _ = log.flush(now);
        }
        5 => {
            let reason = storage::LogStartOffsetIncrementReason::ClientRecordDeletion;
            let _ = log.maybe_increment_log_start_offset(number, reason);
            let _ = log.delete_old_segments(now);
        }
        6 => {
            let _ = log.fetch_offset_by_timestamp(1_795_965_000_000 + number * 100);
        }
        _ => {
            // A leader's append, by a producer that the snapshot knows when the bits say so.
            let options = if operation & 0x80 == 0 {
                BatchOptions::default()
            } else {
                BatchOptions {
                    producer_id: 0,
                    producer_epoch: i16::from(high),
                    base_sequence: i32::from(low),
                    is_transactional: operation & 0x40 != 0,
                    ..BatchOptions::default()
                }
            };
            let mut builder = RecordBatchBuilder::new(options);
            builder.append(now.wall_ms + number, None, Some(&[high; 32]), &[]).expect("small");
            let batch: Bytes = builder.build(&KafkaCodecs).expect("small");
            let end = log.log_end_offset();
            if let Ok(info) = log.append_as_leader(now, batch, i32::from(low >> 4), AppendOrigin::Client)
                && !info.is_duplicate
            {
                assert_eq!(info.first_offset, end);
                assert_eq!(log.log_end_offset(), end + 1);
            }
        }
    }
    world.sim.clock.advance(std::time::Duration::from_secs(61));
    world.context.run_due(world.now());
}
