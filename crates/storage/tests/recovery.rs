//! What recovery reads, what preallocated files look like, and that doubtful files are read from the beginning.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{World, batch, idempotent, marker, transactional};
use env::{FileSystem, OpenMode};
use record::AppendOrigin;
use storage::{FetchIsolation, LogConfig, LogStartOffsetIncrementReason, UnifiedLog};

/// A time near the simulated clock's: producers of long ago are forgotten.
const BASE_MS: i64 = 1_700_000_000_000;
const DIR: &str = "/data/t-0";
const LOG: &str = "/data/t-0/00000000000000000000.log";
const INDEX: &str = "/data/t-0/00000000000000000000.index";
const TIME_INDEX: &str = "/data/t-0/00000000000000000000.timeindex";

fn config() -> LogConfig {
    LogConfig { index_interval_bytes: 500, ..LogConfig::default() }
}

fn fill(world: &World, log: &UnifiedLog, count: i32) {
    for i in 0..count {
        let sequence = i32::try_from(log.log_end_offset()).unwrap();
        let records = idempotent(7, 0, sequence, BASE_MS + i64::from(sequence - i % 3), &[&[b'v'; 400]]);
        log.append_as_leader(world.now(), records, 0, AppendOrigin::Client).unwrap();
    }
}

fn len(world: &World, path: &str) -> u64 {
    world.sim.fs.metadata(Path::new(path)).unwrap().len
}

/// Every offset is found, with its producer, by offset and by time.
fn check(log: &UnifiedLog, end: i64, context: &str) {
    assert_eq!(log.log_end_offset(), end, "{context}");
    for offset in 0..end {
        let read = log.read(offset, 1, FetchIsolation::LogEnd, true).unwrap();
        assert_eq!(read.fetch_offset.message_offset, offset, "{context}");
    }
    assert_eq!(log.active_producers()[0].last_sequence, end as i32 - 1, "{context}");
    for after in 1..end - 3 {
        let found = log.fetch_offset_by_timestamp(BASE_MS + after).unwrap().unwrap();
        assert!((after - 3..=after + 3).contains(&found.offset), "{context}: {after} is at {}", found.offset);
    }
}

/// 300 records, of which 250 are known to be durable, and a kill.
fn killed() -> (World, i64) {
    let world = World::new(1);
    let log = world.open(config(), |_| {});
    fill(&world, &log, 250);
    log.flush(world.now()).unwrap();
    fill(&world, &log, 50);
    drop(log);
    world.sim.fs.kill();
    (World::on(world.sim), 250)
}

#[test]
fn only_what_lies_behind_the_recovery_point_is_read() {
    let (world, recovery_point) = killed();
    let before = world.sim.fs.bytes_read();
    let log = world.open(config(), |params| params.recovery_point = Some(recovery_point));
    let read = world.sim.fs.bytes_read() - before;
    let behind = 50 * len(&world, LOG) / 300;
    // Without a snapshot the producers are read from the headers of the rest.
    assert!(read > behind, "{read}");
    check(&log, 300, "resumed");
    log.close(world.now()).unwrap();

    // With a snapshot at the recovery point, as a clean stop leaves it, the rest is not looked at.
    let world = World::on(world.sim);
    let log = world.open(config(), |params| {
        params.recovery_point = Some(300);
        params.had_clean_shutdown = true;
    });
    fill(&world, &log, 20);
    drop(log);
    world.sim.fs.kill();
    let world = World::on(world.sim);
    let before = world.sim.fs.bytes_read();
    let log = world.open(config(), |params| params.recovery_point = Some(300));
    let (read, behind) = (world.sim.fs.bytes_read() - before, 20 * len(&world, LOG) / 320);
    // A few looks at single batches that indexes name, too.
    assert!(read < behind + 24_576, "{read} of {}, {behind} behind the recovery point", len(&world, LOG));
    check(&log, 320, "after a clean stop");
}

#[test]
fn damage_makes_recovery_read_the_whole_segment_or_do_without_the_damaged_file() {
    type Damage = fn(&World);
    let cases: &[(&str, Damage)] = &[
        ("nothing", |_| {}),
        ("index gone", |world| world.sim.fs.remove_file(Path::new(INDEX)).unwrap()),
        ("time index gone", |world| world.sim.fs.remove_file(Path::new(TIME_INDEX)).unwrap()),
        ("index zeroed", |world| {
            let len = usize::try_from(len(world, INDEX)).unwrap();
            world.sim.fs.corrupt(Path::new(INDEX), 0, &vec![0; len]);
        }),
        ("index points elsewhere", |world| {
            world.sim.fs.corrupt(Path::new(INDEX), 8 * 100 + 6, &[0xff, 0xff])
        }),
        ("last entry points into a batch", |world| {
            let file = world.sim.fs.open(Path::new(INDEX), OpenMode::ReadWrite).unwrap();
            file.set_len(8 * 20).unwrap();
            world.sim.fs.corrupt(Path::new(INDEX), 8 * 19 + 7, &[0x01]);
        }),
        ("garbage behind the recovery point", |world| {
            let file = world.sim.fs.open(Path::new(INDEX), OpenMode::ReadWrite).unwrap();
            let end = file.len().unwrap();
            file.write_at(&[0; 8], end).unwrap();
            file.write_at(&[0xee; 800], end + 8).unwrap();
        }),
        ("snapshots gone", |world| {
            for name in world.files(Path::new(DIR)).iter().filter(|name| name.ends_with(".snapshot")) {
                world.sim.fs.remove_file(&Path::new(DIR).join(name)).unwrap();
            }
        }),
        ("epochs gone", |world| {
            world.sim.fs.remove_file(&Path::new(DIR).join("leader-epoch-checkpoint")).unwrap();
        }),
    ];
    for (name, damage) in cases {
        let (world, recovery_point) = killed();
        damage(&world);
        let log = world.open(config(), |params| params.recovery_point = Some(recovery_point));
        check(&log, 300, name);
        assert_eq!(log.epoch_for_offset(10), Some(0), "{name}");
    }
}

#[test]
fn records_lost_below_the_recovery_point_end_the_log_there() {
    let (world, recovery_point) = killed();
    let size = len(&world, LOG);
    world.sim.fs.open(Path::new(LOG), OpenMode::ReadWrite).unwrap().set_len(size / 2).unwrap();
    let log = world.open(config(), |params| params.recovery_point = Some(recovery_point));
    check(&log, 150, "half a file");
    assert_eq!(log.recovery_point(), 150);
}

#[test]
fn producers_whose_last_batch_lies_below_the_log_start_are_remembered_while_their_segment_is_there() {
    let world = World::new(1);
    let log = world.open(config(), |_| {});
    for (producer, sequence) in [(7, 0), (8, 0), (8, 1), (8, 2), (8, 3)] {
        let records = idempotent(producer, 0, sequence, BASE_MS, &[&[b'v'; 400]]);
        log.append_as_leader(world.now(), records, 0, AppendOrigin::Client).unwrap();
    }
    log.update_high_watermark(5);
    log.maybe_increment_log_start_offset(2, LogStartOffsetIncrementReason::ClientRecordDeletion).unwrap();
    log.flush(world.now()).unwrap();
    drop(log);
    world.sim.fs.kill();
    let world = World::on(world.sim);
    let log = world.open(config(), |params| {
        params.recovery_point = Some(4);
        params.log_start_offset = 2;
    });
    let known: Vec<(i64, i32)> = log
        .active_producers()
        .iter()
        .map(|producer| (producer.producer_id, producer.last_sequence))
        .collect();
    assert_eq!(known, [(7, 0), (8, 3)]);
}

#[test]
fn preallocated_files_have_their_full_length_until_they_are_closed() {
    let preallocated =
        || LogConfig { preallocate: true, segment_size_bytes: 4096, index_interval_bytes: 500, ..config() };
    let world = World::new(1);
    let log = world.open(preallocated(), |_| {});
    assert_eq!(len(&world, LOG), 4096);
    let one = batch(5, &[&[b'v'; 400]]);
    let size = one.len() as u64;
    let append = |world: &World, log: &Arc<UnifiedLog>| {
        log.append_as_leader(world.now(), one.clone(), 0, AppendOrigin::Client).unwrap();
    };
    (0..10).for_each(|_| append(&world, &log));
    let second = "/data/t-0/00000000000000000008.log";
    assert_eq!((len(&world, LOG), len(&world, second)), (8 * size, 4096), "trimmed by the roll");
    assert_eq!(log.size(), 10 * size);
    drop(log);

    // Killed: the tail is zeros, and is cut.
    world.sim.fs.kill();
    let world = World::on(world.sim);
    let log = world.open(preallocated(), |_| {});
    assert_eq!((log.log_end_offset(), len(&world, second)), (10, 2 * size));
    log.close(world.now()).unwrap();

    // As a node that closes without trimming leaves it.
    let file = world.sim.fs.open(Path::new(second), OpenMode::ReadWrite).unwrap();
    file.set_len(4096).unwrap();
    let world = World::on(world.sim);
    let log = world.open(preallocated(), |params| {
        params.had_clean_shutdown = true;
        params.recovery_point = Some(10);
    });
    assert_eq!((log.log_end_offset(), log.size(), len(&world, second)), (10, 10 * size, 2 * size));
    append(&world, &log);
    let read = log.read(10, 1, FetchIsolation::LogEnd, true).unwrap();
    assert_eq!(read.fetch_offset.message_offset, 10);
}

/// A base offset has no checksum: one of which the last bytes were lost looks like that of an old batch.
#[test]
fn a_torn_base_offset_behind_the_recovery_point_is_not_taken_for_a_flushed_one() {
    let world = World::new(1);
    let log = world.open(config(), |_| {});
    fill(&world, &log, 20);
    log.flush(world.now()).unwrap();
    let position = usize::try_from(log.size()).unwrap();
    fill(&world, &log, 2);
    drop(log);
    world.sim.fs.kill();
    world.sim.fs.corrupt(Path::new(LOG), position, &[0; 8]);
    let world = World::on(world.sim);
    // A compacted log may have gaps.
    let compacted = LogConfig { compact: true, delete: false, ..config() };
    let log = world.open(compacted, |params| params.recovery_point = Some(20));
    check(&log, 20, "torn");
}

#[test]
fn a_file_whose_trimming_was_lost_ends_where_the_flushed_records_do() {
    let preallocated = || LogConfig { preallocate: true, segment_size_bytes: 4096, ..config() };
    let world = World::new(1);
    let log = world.open(preallocated(), |_| {});
    fill(&world, &log, 6);
    log.flush(world.now()).unwrap();
    let size = log.size();
    log.roll_segment(world.now()).unwrap();
    drop(log);
    world.sim.fs.kill();
    world.sim.fs.open(Path::new(LOG), OpenMode::ReadWrite).unwrap().set_len(4096).unwrap();
    let world = World::on(world.sim);
    let log = world.open(preallocated(), |params| params.recovery_point = Some(6));
    assert_eq!((log.segments().len(), len(&world, LOG)), (2, size));
    check(&log, 6, "untrimmed");
    assert!(log.fetch_offset_by_timestamp(BASE_MS + 1000).unwrap().is_none());
}

/// What lies behind the recovery point may be anything. The producers below are those that were flushed, and what recovery
/// makes of the segment's transactions too.
#[test]
fn torn_bytes_behind_the_recovery_point_take_no_aborted_transaction_with_them() {
    for (name, position, bytes) in [
        ("blank", 0, &[0; 61][..]),
        ("no base offset", 0, &[0; 8]),
        ("no length", 8, &[0; 4]),
        ("negative length", 8, &[0xff; 4]),
        ("too long", 8, &[0x7f, 0, 0, 0]),
        ("other sequence", 53, &[0, 0, 0, 9]),
    ] {
        let world = World::new(1);
        let log = world.open(config(), |_| {});
        let wall_ms = world.now().wall_ms;
        let append = |records, origin| log.append_as_leader(world.now(), records, 0, origin).unwrap();
        append(transactional(9, 0, 0, wall_ms, &[b"v"]), AppendOrigin::Client);
        log.roll_segment(world.now()).unwrap();
        append(marker(9, 0, wall_ms, false, 0), AppendOrigin::Coordinator);
        log.flush(world.now()).unwrap();
        let aborted = log.collect_aborted_transactions(0, i64::MAX).unwrap();
        assert_eq!(aborted.len(), 1);
        let active = log.segments().last().unwrap().clone();
        let end = active.size() as usize;
        append(idempotent(7, 0, 0, wall_ms, &[b"v"]), AppendOrigin::Client);
        append(idempotent(7, 0, 1, wall_ms, &[b"v"]), AppendOrigin::Client);
        drop(log);
        world.sim.fs.kill();
        world.sim.fs.corrupt(&active.path(".log"), end + position, bytes);
        let world = World::on(world.sim);
        let log = world.open(config(), |params| params.recovery_point = Some(2));
        assert_eq!(log.collect_aborted_transactions(0, i64::MAX).unwrap(), aborted, "{name}");
        assert_eq!((log.log_end_offset(), log.active_producers().len()), (2, 1), "{name}");
    }
}
