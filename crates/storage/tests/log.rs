//! What one log does: producers, transactions, reading, timestamps, retention, truncation, failing disks.

mod common;

use std::io;
use std::path::Path;
use std::sync::Arc;

use common::{World, batch, batch_with, idempotent, marker, partition, transactional};
use env::{FileSystem, OpenMode};
use record::{AppendOrigin, BatchOptions, Batches};
use storage::{
    AbortedTransaction, AppendError, AppendInfo, AppendOptions, EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP, EARLIEST_TIMESTAMP, FetchIsolation, LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP, LogConfig, LogStartOffsetIncrementReason, MAX_TIMESTAMP, ReadError, TimestampAndOffset,
    UnifiedLog,
};
use testkit::{Fault, Op};

fn produce(world: &World, log: &UnifiedLog, records: bytes::Bytes) -> Result<AppendInfo, AppendError> {
    log.append_as_leader(world.now(), records, 1, AppendOrigin::Client)
}

fn end_txn(
    world: &World,
    log: &UnifiedLog,
    producer_id: i64,
    epoch: i16,
    committed: bool,
    coordinator_epoch: i32,
    transaction_version: i16,
) -> Result<AppendInfo, AppendError> {
    let records = marker(producer_id, epoch, world.now().wall_ms, committed, coordinator_epoch);
    let options = AppendOptions { transaction_version, ..AppendOptions::new(1, AppendOrigin::Coordinator) };
    log.append_as_leader_with(world.now(), records, options)
}

fn small_segments() -> LogConfig {
    LogConfig { segment_size_bytes: 300, index_interval_bytes: 0, ..LogConfig::default() }
}

/// Batches of one record each, one second apart, in segments of about three.
fn filled(world: &World, log: &UnifiedLog, count: i64) {
    for _ in 0..count {
        world.advance_ms(1000);
        produce(world, log, batch(world.now().wall_ms, &[b"0123456789"])).unwrap();
    }
    log.update_high_watermark(log.log_end_offset());
}

fn offsets(log: &UnifiedLog, from: i64, max: u32, isolation: FetchIsolation) -> Vec<i64> {
    let info = log.read(from, max, isolation, true).unwrap();
    let bytes = info.records.map(|slice| slice.read().unwrap()).unwrap_or_default();
    Batches::new(&bytes).map(|b| b.unwrap().base_offset).collect()
}

#[test]
fn duplicates_get_their_old_offsets_and_gaps_are_refused() {
    let world = World::new(1);
    let log = world.open(LogConfig::default(), |_| {});
    let t = world.now().wall_ms;
    for sequence in 0..6 {
        let info = produce(&world, &log, idempotent(7, 0, sequence * 2, t, &[b"a", b"b"])).unwrap();
        assert_eq!(
            (info.first_offset, info.last_offset, info.is_duplicate),
            (2 * i64::from(sequence), 2 * i64::from(sequence) + 1, false)
        );
    }
    for sequence in 1..6 {
        let info = produce(&world, &log, idempotent(7, 0, sequence * 2, t, &[b"a", b"b"])).unwrap();
        assert_eq!(
            (info.first_offset, info.is_duplicate),
            (2 * i64::from(sequence), true),
            "five batches are known"
        );
    }
    assert_eq!(log.log_end_offset(), 12, "duplicates never reach the log");
    let code = |result: Result<AppendInfo, AppendError>| result.unwrap_err().error_code();
    assert_eq!(code(produce(&world, &log, idempotent(7, 0, 0, t, &[b"a", b"b"]))), 45, "forgotten duplicate");
    assert_eq!(code(produce(&world, &log, idempotent(7, 0, 13, t, &[b"a"]))), 45, "gap");
    assert_eq!(code(produce(&world, &log, idempotent(7, 1, 1, t, &[b"a"]))), 45, "a new epoch begins at 0");
    produce(&world, &log, idempotent(7, 1, 0, t, &[b"a"])).unwrap();
    assert_eq!(code(produce(&world, &log, idempotent(7, 0, 12, t, &[b"a"]))), 47, "old epoch");
    produce(&world, &log, idempotent(8, 3, 500, t, &[b"a"])).expect("an unknown producer may begin anywhere");
    assert_eq!(log.log_end_offset(), 14);
    let producers: Vec<_> = log.active_producers().iter().map(|p| (p.producer_id, p.last_sequence)).collect();
    assert_eq!(producers, [(7, 0), (8, 500)]);
}

#[test]
fn sequences_wrap_and_producers_expire() {
    let world = World::new(1);
    let log = world.open(LogConfig::default(), |_| {});
    let t = world.now().wall_ms;
    produce(&world, &log, idempotent(1, 0, i32::MAX - 1, t, &[b"a", b"b"])).unwrap();
    produce(&world, &log, idempotent(1, 0, 0, t, &[b"a"])).expect("0 follows the largest sequence");
    produce(&world, &log, transactional(2, 0, 0, t, &[b"a"])).unwrap();
    world.context.set_producer_id_expiration_ms(1000);
    world.advance_ms(999);
    log.remove_expired_producers(world.now());
    assert_eq!(log.producer_id_count(), 2);
    world.advance_ms(1);
    log.remove_expired_producers(world.now());
    assert_eq!(log.active_producers()[0].producer_id, 2, "an open transaction keeps its producer");
}

#[test]
fn transactions_bound_what_read_committed_sees() {
    let world = World::new(1);
    let log = world.open(LogConfig::default(), |_| {});
    let t = world.now().wall_ms;
    produce(&world, &log, batch(t, &[b"plain"])).unwrap(); // 0
    produce(&world, &log, transactional(1, 0, 0, t, &[b"a"])).unwrap(); // 1
    produce(&world, &log, transactional(2, 0, 0, t, &[b"b"])).unwrap(); // 2
    log.update_high_watermark(3);
    assert_eq!(log.last_stable_offset(), 1);
    assert_eq!(offsets(&log, 0, 1000, FetchIsolation::TxnCommitted), [0]);
    assert_eq!(offsets(&log, 0, 1000, FetchIsolation::HighWatermark), [0, 1, 2]);
    let again = produce(&world, &log, idempotent(1, 0, 1, t, &[b"x"])).unwrap_err();
    assert_eq!(again.error_code(), 48, "a plain write inside a transaction");
    end_txn(&world, &log, 1, 0, false, 5, 1).unwrap(); // 3
    assert_eq!(log.last_stable_offset(), 1, "not replicated yet");
    log.update_high_watermark(4);
    assert_eq!(log.last_stable_offset(), 2);
    end_txn(&world, &log, 2, 0, true, 5, 1).unwrap(); // 4
    log.update_high_watermark(5);
    assert_eq!(log.last_stable_offset(), 5);
    let info = log.read(0, 1000, FetchIsolation::TxnCommitted, true).unwrap();
    assert_eq!(info.aborted_transactions, Some(vec![AbortedTransaction { producer_id: 1, first_offset: 1 }]));
    assert_eq!(log.read(0, 1000, FetchIsolation::HighWatermark, true).unwrap().aborted_transactions, None);
    let fenced = end_txn(&world, &log, 2, 0, true, 4, 1).unwrap_err();
    assert_eq!(fenced.error_code(), 52, "an older coordinator");
    // KIP-890: with version 2 a marker carries a higher epoch than the records.
    produce(&world, &log, transactional(3, 0, 0, t, &[b"c"])).unwrap();
    assert_eq!(end_txn(&world, &log, 3, 0, true, 5, 2).unwrap_err().error_code(), 47);
    end_txn(&world, &log, 3, 1, true, 5, 2).unwrap();
    end_txn(&world, &log, 3, 1, true, 5, 2).expect("a marker that is sent again");
}

#[test]
fn transactions_and_producers_survive_a_restart() {
    for clean in [true, false] {
        let world = World::new(1);
        let t = world.now().wall_ms;
        let log = world.open(small_segments(), |_| {});
        produce(&world, &log, transactional(1, 0, 0, t, &[b"a"])).unwrap();
        produce(&world, &log, transactional(2, 0, 0, t, &[b"b"])).unwrap();
        for sequence in 0..9 {
            produce(&world, &log, idempotent(9, 0, sequence, t, &[b"c"])).unwrap();
        }
        end_txn(&world, &log, 2, 0, false, 0, 1).unwrap();
        assert!(log.number_of_segments() > 2);
        let end = log.log_end_offset();
        let before = log.active_producers();
        if clean {
            log.close(world.now()).unwrap();
        }
        let log = world.open(small_segments(), |params| {
            params.had_clean_shutdown = clean;
            params.recovery_point = Some(if clean { end } else { 0 });
        });
        assert_eq!(log.log_end_offset(), end);
        assert_eq!(log.active_producers(), before);
        log.update_high_watermark(end);
        assert_eq!(log.last_stable_offset(), 0);
        assert!(
            produce(&world, &log, idempotent(9, 0, 8, t, &[b"c"])).unwrap().is_duplicate,
            "clean: {clean}"
        );
        end_txn(&world, &log, 1, 0, true, 0, 1).unwrap();
        log.update_high_watermark(log.log_end_offset());
        assert_eq!(log.last_stable_offset(), log.log_end_offset());
        let aborted: Vec<_> =
            log.collect_aborted_transactions(0, 100).unwrap().iter().map(|t| t.first_offset).collect();
        assert_eq!(aborted, [1]);
    }
}

#[test]
fn reads_give_whole_batches_within_limits() {
    let world = World::new(1);
    let log = world.open(small_segments(), |_| {});
    for i in 0..10_i64 {
        let values: Vec<&[u8]> = vec![b"0123456789"; 2];
        let info = produce(&world, &log, batch(world.now().wall_ms, &values)).unwrap();
        assert_eq!(info.first_offset, i * 2);
    }
    log.update_high_watermark(14);
    assert_eq!(offsets(&log, 3, 1, FetchIsolation::LogEnd), [2], "the batch that holds the offset");
    assert_eq!(
        log.read(3, 1, FetchIsolation::LogEnd, false).unwrap().len(),
        1,
        "and a part of it without minOneMessage"
    );
    assert!(log.read(3, 1, FetchIsolation::LogEnd, false).unwrap().first_entry_incomplete);
    assert!(log.read(3, 0, FetchIsolation::LogEnd, false).unwrap().is_empty());
    let all = offsets(&log, 12, 10_000, FetchIsolation::HighWatermark);
    assert_eq!(all, [12], "nothing at or above the high watermark");
    assert!(log.read(14, 10_000, FetchIsolation::HighWatermark, true).unwrap().is_empty());
    assert!(log.read(17, 10_000, FetchIsolation::HighWatermark, true).unwrap().is_empty());
    assert!(log.read(20, 10_000, FetchIsolation::LogEnd, true).unwrap().is_empty());
    for offset in [-1, 21] {
        assert_eq!(
            log.read(offset, 1, FetchIsolation::LogEnd, true).unwrap_err().error_code(),
            1,
            "{offset}"
        );
    }
    let snapshot = log.fetch_offset_snapshot().unwrap();
    assert_eq!((snapshot.high_watermark.message_offset, snapshot.log_end_offset.message_offset), (14, 20));
    assert!(!snapshot.high_watermark.is_offset_only());
}

#[test]
fn gaps_of_compaction_are_skipped() {
    let world = World::new(1);
    let log = world.open(LogConfig { compact: true, ..small_segments() }, |_| {});
    // A follower of a compacted log gets offsets with gaps, inside and between segments.
    for base_offset in [3, 4, 50, 51, 52, 90] {
        let options = BatchOptions { base_offset, partition_leader_epoch: 1, ..BatchOptions::default() };
        let records = batch_with(options, world.now().wall_ms, &[b"0123456789"]);
        log.append_as_follower(world.now(), records, 1).unwrap();
    }
    assert_eq!(log.log_end_offset(), 91);
    let next = [(0, 3), (3, 3), (4, 4), (5, 50), (49, 50), (50, 50), (53, 90), (89, 90), (90, 90)];
    for (offset, found) in next {
        assert_eq!(offsets(&log, offset, 1, FetchIsolation::LogEnd), [found], "{offset}");
    }
    let log = world.open(LogConfig { compact: true, ..small_segments() }, |p| p.had_clean_shutdown = false);
    assert_eq!(log.log_end_offset(), 91, "recovery keeps them");
    let unexpected = log.append_as_follower(
        world.now(),
        {
            let options =
                BatchOptions { base_offset: 90, partition_leader_epoch: 1, ..BatchOptions::default() };
            batch_with(options, 0, &[b"x"])
        },
        1,
    );
    assert!(matches!(unexpected, Err(AppendError::UnexpectedOffset { first_offset: 90, .. })));
}

#[test]
fn timestamps_find_offsets() {
    let world = World::new(1);
    let log = world.open(small_segments(), |_| {});
    let none = log.fetch_offset_by_timestamp(MAX_TIMESTAMP).unwrap();
    assert_eq!(none, None, "an empty log has no timestamp");
    let times = [10, 30, 20, 50, 40, 60, 60, 55];
    for (i, time) in times.iter().enumerate() {
        let info = produce(&world, &log, batch(*time, &[b"0123456789"])).unwrap();
        assert_eq!(info.first_offset, i as i64);
    }
    let at = |timestamp, offset| Some(TimestampAndOffset { timestamp, offset, leader_epoch: Some(1) });
    for (timestamp, found) in [
        (0, at(10, 0)),
        (10, at(10, 0)),
        (11, at(30, 1)),
        (31, at(50, 3)),
        (51, at(60, 5)),
        (60, at(60, 5)),
        (61, None),
        (MAX_TIMESTAMP, at(60, 5)),
        (EARLIEST_TIMESTAMP, at(-1, 0)),
        (EARLIEST_LOCAL_TIMESTAMP, at(-1, 0)),
        (LATEST_TIMESTAMP, at(-1, 8)),
        (
            LATEST_TIERED_TIMESTAMP,
            Some(TimestampAndOffset { timestamp: -1, offset: -1, leader_epoch: Some(-1) }),
        ),
        (
            EARLIEST_PENDING_UPLOAD_TIMESTAMP,
            Some(TimestampAndOffset { timestamp: -1, offset: -1, leader_epoch: Some(-1) }),
        ),
    ] {
        assert_eq!(log.fetch_offset_by_timestamp(timestamp).unwrap(), found, "{timestamp}");
    }
    log.update_high_watermark(8);
    let reason = LogStartOffsetIncrementReason::ClientRecordDeletion;
    log.maybe_increment_log_start_offset(4, reason).unwrap();
    // 4.4.0 asks only the first segment that is young enough, even when that one's records lie below the start.
    assert_eq!(log.fetch_offset_by_timestamp(11).unwrap(), None);
    assert_eq!(log.fetch_offset_by_timestamp(31).unwrap(), at(40, 4));
    assert_eq!(log.fetch_offset_by_timestamp(EARLIEST_TIMESTAMP).unwrap(), at(-1, 4));
}

#[test]
fn segments_roll_by_size_time_index_and_distance() {
    let world = World::new(1);
    let log = world.open(small_segments(), |_| {});
    filled(&world, &log, 9);
    assert_eq!(log.segments().iter().map(|s| s.base_offset()).collect::<Vec<_>>(), [0, 3, 6]);
    let world = World::new(1);
    let log = world.open(LogConfig { segment_ms: 2500, ..LogConfig::default() }, |_| {});
    filled(&world, &log, 7);
    assert_eq!(log.segments().iter().map(|s| s.base_offset()).collect::<Vec<_>>(), [0, 3, 6]);
    let world = World::new(1);
    let log = world.open(
        LogConfig { max_index_size_bytes: 48, index_interval_bytes: 0, ..LogConfig::default() },
        |_| {},
    );
    filled(&world, &log, 10);
    assert_eq!(log.number_of_segments(), 3, "four entries fit");
    let world = World::new(1);
    let log = world.open(LogConfig::default(), |_| {});
    for base_offset in [0, i64::from(i32::MAX), i64::from(i32::MAX) + 1] {
        let options = BatchOptions { base_offset, partition_leader_epoch: 1, ..BatchOptions::default() };
        log.append_as_follower(world.now(), batch_with(options, 1, &[b"x"]), 1).unwrap();
    }
    assert_eq!(
        log.segments().iter().map(|s| s.base_offset()).collect::<Vec<_>>(),
        [0, i64::from(i32::MAX) + 1]
    );
    let too_large = world.open_second("big", LogConfig { segment_size_bytes: 60, ..LogConfig::default() });
    assert_eq!(produce(&world, &too_large, batch(1, &[b"x"])).unwrap_err().error_code(), 18);
    let limited = world.open_second("limited", LogConfig { max_message_bytes: 60, ..LogConfig::default() });
    assert_eq!(produce(&world, &limited, batch(1, &[b"x"])).unwrap_err().error_code(), 10);
}

#[test]
fn retention_removes_whole_segments_below_the_high_watermark() {
    let world = World::new(1);
    let log = world.open(LogConfig { retention_ms: -1, ..small_segments() }, |_| {});
    filled(&world, &log, 12);
    log.update_high_watermark(12);
    let per_segment = u64::from(log.segments()[0].size());
    assert_eq!(log.size(), 4 * per_segment);
    let retention_bytes = i64::try_from(2 * per_segment).unwrap();
    log.update_config(Arc::new(LogConfig { retention_bytes, retention_ms: -1, ..small_segments() }));
    assert_eq!(log.delete_old_segments(world.now()).unwrap(), 2);
    assert_eq!((log.log_start_offset(), log.size()), (6, 2 * per_segment));
    let dir = log.dir();
    let deleted = world.files(&dir).iter().filter(|name| name.ends_with(".deleted")).count();
    assert!(deleted >= 6, "renamed, and removed after file.delete.delay.ms");
    world.context.run_due(world.now());
    world.advance_ms(60_000);
    world.context.run_due(world.now());
    assert!(!world.files(&dir).iter().any(|name| name.ends_with(".deleted")));
    log.update_config(Arc::new(LogConfig { retention_ms: 30_000, retention_bytes: -1, ..small_segments() }));
    assert_eq!(log.delete_old_segments(world.now()).unwrap(), 2, "the active segment too when it is due");
    assert_eq!((log.log_start_offset(), log.log_end_offset(), log.size()), (12, 12, 0));
    assert_eq!(log.delete_old_segments(world.now()).unwrap(), 0, "an empty log stays");
    filled(&world, &log, 1);
    assert_eq!(offsets(&log, 12, 1000, FetchIsolation::LogEnd), [12]);
}

#[test]
fn retention_waits_for_the_high_watermark_and_for_compaction() {
    let world = World::new(1);
    let log = world.open(LogConfig { retention_ms: 1, ..small_segments() }, |_| {});
    for _ in 0..9 {
        produce(&world, &log, batch(world.now().wall_ms, &[b"0123456789"])).unwrap();
    }
    log.update_high_watermark(5);
    world.advance_ms(1000);
    assert_eq!(log.delete_old_segments(world.now()).unwrap(), 1, "only what lies below the high watermark");
    log.update_high_watermark(9);
    log.update_config(Arc::new(LogConfig {
        delete: false,
        compact: true,
        retention_ms: 1,
        ..small_segments()
    }));
    assert_eq!(log.delete_old_segments(world.now()).unwrap(), 0);
    let reason = LogStartOffsetIncrementReason::ClientRecordDeletion;
    assert!(log.maybe_increment_log_start_offset(7, reason).unwrap());
    assert!(!log.maybe_increment_log_start_offset(6, reason).unwrap(), "never back");
    assert_eq!(log.delete_old_segments(world.now()).unwrap(), 1);
    let beyond = log.maybe_increment_log_start_offset(10, reason);
    assert!(matches!(beyond, Err(ReadError::OffsetOutOfRange(_))));
}

#[test]
fn truncation_takes_back_offsets_epochs_and_producers() {
    let world = World::new(1);
    let log = world.open(small_segments(), |_| {});
    for sequence in 0..10 {
        log.append_as_leader(
            world.now(),
            idempotent(5, 0, sequence, world.now().wall_ms, &[b"x"]),
            sequence / 4,
            AppendOrigin::Client,
        )
        .unwrap();
    }
    log.update_high_watermark(10);
    assert!(!log.truncate_to(10, world.now()).unwrap());
    assert!(log.truncate_to(5, world.now()).unwrap());
    assert_eq!((log.log_end_offset(), log.high_watermark(), log.latest_epoch()), (5, 5, Some(1)));
    assert_eq!(log.active_producers()[0].last_sequence, 4);
    assert_eq!(log.end_offset_for_epoch(0), Some((0, 4)));
    produce(&world, &log, idempotent(5, 0, 5, 0, &[b"x"])).unwrap();
    assert_eq!(offsets(&log, 5, 1, FetchIsolation::LogEnd), [5]);
    log.truncate_fully_and_start_at(100, None, world.now()).unwrap();
    assert_eq!((log.log_start_offset(), log.log_end_offset(), log.high_watermark()), (100, 100, 100));
    assert!(log.active_producers().is_empty() && log.leader_epochs().is_empty());
    produce(&world, &log, idempotent(5, 0, 6, 0, &[b"x"])).unwrap();
    let log = world.open(small_segments(), |params| params.had_clean_shutdown = false);
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (100, 101));
}

#[test]
fn a_full_disk_refuses_appends_and_nothing_else() {
    let world = World::new(1);
    let log = world.open(LogConfig::default(), |_| {});
    produce(&world, &log, idempotent(1, 0, 0, 0, &[b"before"])).unwrap();
    let used = world.sim.fs.space(Path::new("/")).unwrap();
    world.sim.fs.set_capacity(used.total - used.usable + 20);
    for _ in 0..3 {
        let refused = produce(&world, &log, idempotent(1, 0, 1, 0, &[b"does not fit"])).unwrap_err();
        assert_eq!(refused.error_code(), 56);
    }
    assert!(!world.log_dir.is_offline());
    assert_eq!(log.log_end_offset(), 1);
    assert_eq!(offsets(&log, 0, 1000, FetchIsolation::LogEnd), [0], "reads go on");
    assert_eq!(
        u64::from(log.segments()[0].size()),
        world.sim.fs.metadata(&log.segments()[0].path(".log")).unwrap().len
    );
    world.sim.fs.set_capacity(u64::MAX);
    assert_eq!(produce(&world, &log, idempotent(1, 0, 1, 0, &[b"fits"])).unwrap().first_offset, 1);
}

#[test]
fn a_failing_disk_takes_the_directory_offline() {
    for (op, path) in [(Op::Write, ".log"), (Op::Sync, ".log"), (Op::Sync, "leader-epoch")] {
        let world = World::new(1);
        let log = world.open(LogConfig::default(), |_| {});
        produce(&world, &log, batch(0, &[b"x"])).unwrap();
        world.sim.fs.inject(Fault { op, path: path.into(), nth: 1, kind: io::ErrorKind::Other });
        let failed = match op {
            Op::Write => produce(&world, &log, batch(0, &[b"x"])).unwrap_err().error_code(),
            _ => {
                assert!(log.flush(world.now()).is_err());
                56
            }
        };
        assert_eq!(failed, 56);
        assert!(world.log_dir.is_offline() && world.log_dir.take_failure().is_some(), "{op:?} {path}");
        assert_eq!(produce(&world, &log, batch(0, &[b"x"])).unwrap_err().error_code(), 56);
        assert!(log.flush(world.now()).is_err(), "a failed sync is never tried again");
        assert!(log.read(0, 1, FetchIsolation::LogEnd, true).is_err());
    }
}

#[test]
fn temporary_files_of_deletion_and_cleaning_are_dealt_with() {
    let world = World::new(1);
    let log = world.open(small_segments(), |_| {});
    filled(&world, &log, 9);
    log.close(world.now()).unwrap();
    let dir = log.dir();
    let fs = &*world.sim.fs;
    let put = |name: &str, content: &[u8]| {
        fs.open(&dir.join(name), OpenMode::Truncate).unwrap().write_at(content, 0).unwrap();
    };
    // A cleaner merged the first two segments into one and was killed before it removed its sources.
    let merged = [
        world.content(&dir.join("00000000000000000000.log")),
        world.content(&dir.join("00000000000000000003.log")),
    ]
    .concat();
    put("00000000000000000000.log.swap", &merged);
    put("00000000000000000000.index.swap", &[]);
    put("00000000000000000000.timeindex.swap", &[]);
    put("00000000000000000006.log.cleaned", b"unfinished");
    put("00000000000000000002.log.deleted", b"gone");
    put("00000000000000000002.index", b"orphaned");
    let log = world.open(small_segments(), |params| {
        params.had_clean_shutdown = true;
        params.recovery_point = Some(9);
    });
    assert_eq!(log.segments().iter().map(|s| s.base_offset()).collect::<Vec<_>>(), [0, 6]);
    let mut read = Vec::new();
    for offset in 0..9 {
        read.extend(offsets(&log, offset, 1, FetchIsolation::LogEnd));
    }
    assert_eq!(read, (0..9).collect::<Vec<_>>());
    let files = world.files(&dir);
    assert!(
        !files.iter().any(|f| f.contains(".swap") || f.contains(".cleaned") || f.contains(".deleted")),
        "{files:?}"
    );
    assert!(!files.contains(&"00000000000000000002.index".to_owned()));
}

#[test]
fn idle_logs_hold_no_files_and_ids_must_agree() {
    let world = World::new(1);
    let id = "AAAAAAAAAAAAAAAAAAAABA".parse().unwrap();
    let log = world.open(LogConfig::default(), |params| params.topic_id = Some(id));
    assert!(
        !world.files(&log.dir()).contains(&"partition.metadata".to_owned()),
        "written with the first records"
    );
    produce(&world, &log, batch(0, &[b"x"])).unwrap();
    assert!(world.files(&log.dir()).contains(&"partition.metadata".to_owned()));
    assert!(log.assign_topic_id("AAAAAAAAAAAAAAAAAAAABQ".parse().unwrap()).is_err());
    log.close(world.now()).unwrap();
    assert_eq!(produce(&world, &log, batch(0, &[b"x"])).unwrap_err().error_code(), 56);
    let other = world.try_open(LogConfig::default(), |params| {
        params.topic_id = Some("AAAAAAAAAAAAAAAAAAAABQ".parse().unwrap());
        params.had_clean_shutdown = true;
    });
    assert!(matches!(other, Err(storage::LogDirError::InconsistentTopicId(_))));
    assert_eq!(world.open(LogConfig::default(), |p| p.had_clean_shutdown = true).topic_id(), Some(id));
    assert_eq!(log.topic_partition(), &partition());
}

#[test]
fn a_log_whose_offsets_are_used_up_refuses_records() {
    let world = World::new(1);
    let log = world.open(LogConfig::default(), |_| {});
    log.truncate_fully_and_start_at(i64::MAX - 1, None, world.now()).unwrap();
    produce(&world, &log, batch(0, &[b"last"])).unwrap();
    for values in [&[b"x".as_slice()][..], &[b"x", b"y"]] {
        assert_eq!(produce(&world, &log, batch(0, values)).unwrap_err().error_code(), 56);
    }
    assert_eq!(log.log_end_offset(), i64::MAX);
}
