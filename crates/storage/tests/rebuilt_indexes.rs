//! Power cuts while indexes are rebuilt that the recovery point says are durable: whatever becomes of the rebuilding, no
//! later start misses an aborted transaction, and every offset is found.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{World, marker, transactional};
use env::{FileSystem, OpenMode};
use record::AppendOrigin;
use storage::txn_index::AbortedTxn;
use storage::{AppendOptions, FetchIsolation, LogConfig, UnifiedLog};
use testkit::Sim;

const DIR: &str = "/data/t-0";
const CRASHES_PER_PLACE: u64 = 1;

fn config() -> LogConfig {
    LogConfig { segment_size_bytes: 2000, index_interval_bytes: 100, ..LogConfig::default() }
}

fn aborted(log: &UnifiedLog) -> Vec<AbortedTxn> {
    log.collect_aborted_transactions(0, i64::MAX).unwrap()
}

/// Three segments full of transactions, most of them aborted, all of it flushed; what is aborted and the bases.
fn written() -> (World, Vec<AbortedTxn>, Vec<i64>, i64) {
    let world = World::new(1);
    let log = world.open(config(), |_| {});
    let append = |records, origin| {
        let options = AppendOptions { transaction_version: 0, ..AppendOptions::new(0, origin) };
        log.append_as_leader_with(world.now(), records, options).unwrap();
    };
    for sequence in 0..12 {
        for producer in 1..4 {
            let records = transactional(producer, 0, sequence, world.now().wall_ms, &[b"value"]);
            append(records, AppendOrigin::Client);
        }
        for producer in [3, 1, 2] {
            let ends = marker(producer, 0, world.now().wall_ms, producer == 3, 0);
            append(ends, AppendOrigin::Coordinator);
        }
    }
    let bases: Vec<i64> = log.segments().iter().map(|segment| segment.base_offset()).collect();
    assert!(bases.len() >= 3, "{bases:?}");
    let found = aborted(&log);
    assert_eq!(found.len(), 24);
    let end = log.log_end_offset();
    log.close(world.now()).unwrap();
    world.sim.fs.sync_dir(Path::new(DIR)).unwrap();
    (world, found, bases, end)
}

fn file(base: i64, suffix: &str) -> PathBuf {
    Path::new(DIR).join(format!("{base:020}{suffix}"))
}

type Damage = fn(&Sim, i64);

const DAMAGES: &[(&str, Damage)] = &[
    ("the offset index is gone", |sim, base| sim.fs.remove_file(&file(base, ".index")).unwrap()),
    ("all indexes are gone", |sim, base| {
        for suffix in [".index", ".timeindex", ".txnindex"] {
            sim.fs.remove_file(&file(base, suffix)).unwrap();
        }
    }),
    ("an aborted transaction is wrong", |sim, base| {
        sim.fs.corrupt(&file(base, ".txnindex"), 34 + 18, &[0xff; 8]);
    }),
    ("half an aborted transaction follows", |sim, base| {
        let file = sim.fs.open(&file(base, ".txnindex"), OpenMode::ReadWrite).unwrap();
        let len = file.len().unwrap();
        file.write_at(&[0; 17], len).unwrap();
        file.sync_data().unwrap();
    }),
];

fn check(log: &Arc<UnifiedLog>, expected: &[AbortedTxn], end: i64, context: &str) {
    assert_eq!(log.log_end_offset(), end, "{context}");
    assert_eq!(aborted(log), expected, "{context}");
    for offset in 0..end {
        let read = log.read(offset, 1, FetchIsolation::LogEnd, true).unwrap();
        assert_eq!(read.fetch_offset.message_offset, offset, "{context}");
    }
}

/// The power goes off at the start's `place`-th change; false when it was done by then.
fn cut_at(place: u64, seed: u64, damage: Damage, segment: usize, is_clean: bool, context: &str) -> bool {
    let (world, expected, bases, end) = written();
    damage(&world.sim, bases[segment]);
    let world = World::on(world.sim);
    let fs = &world.sim.fs;
    fs.power_off_at(fs.operations() + place);
    let opened = world.try_open(config(), |params| {
        params.had_clean_shutdown = is_clean;
        params.recovery_point = Some(end);
    });
    if let Ok(log) = &opened
        && !fs.is_off()
    {
        check(log, &expected, end, context);
    }
    let was_cut = fs.is_off();
    drop(opened);
    fs.crash(seed);
    let world = World::on(world.sim);
    let log = world.open(config(), |params| params.recovery_point = Some(end));
    check(&log, &expected, end, context);
    was_cut
}

#[test]
fn no_power_cut_while_indexes_are_rebuilt_hides_an_aborted_transaction() {
    for (name, damage) in DAMAGES {
        for segment in [0, 2] {
            for is_clean in [false, true] {
                let mut place = 1;
                let mut is_cut = true;
                while is_cut {
                    is_cut = false;
                    for seed in 0..CRASHES_PER_PLACE {
                        let seed = seed + CRASHES_PER_PLACE * place;
                        let context =
                            format!("{name} in segment {segment}, clean {is_clean}, {place}, {seed}");
                        is_cut |= cut_at(place, seed, *damage, segment, is_clean, &context);
                    }
                    place += 1;
                }
            }
        }
    }
}
