//! Partitions that move between log directories, and directories that fail or fill.

mod common;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{batch, directory_id, format_dirs};
use env::{Clock, FileSystem, OpenMode};
use record::{AppendOrigin, Batches, NoCodecs, TopicPartition};
use storage::{
    CreateParams, FetchIsolation, LogConfig, LogDir, LogDirError, LogManager, LogManagerConfig, Promotion,
    UnifiedLog,
};
use testkit::{Fault, Op, Sim};

const DIRS: &[&str] = &["/a", "/b"];

fn partition() -> TopicPartition {
    TopicPartition::new("t", 0)
}

fn config() -> Arc<LogConfig> {
    Arc::new(LogConfig { segment_size_bytes: 400, index_interval_bytes: 64, ..LogConfig::default() })
}

fn machine() -> Sim {
    let sim = Sim::new(1);
    format_dirs(&sim, DIRS);
    sim
}

/// Starts; the metadata log says that the partition is in `assigned`.
fn start(sim: &Sim, assigned: &str) -> Result<LogManager, LogDirError> {
    let config = LogManagerConfig {
        num_recovery_threads_per_data_dir: 1,
        default_config: config(),
        ..LogManagerConfig::new(DIRS.iter().map(Into::into).collect())
    };
    let manager = LogManager::new(sim.env(), Arc::new(NoCodecs), config)?;
    let assigned = directory_id(assigned);
    manager.load_assigned(sim.clock.now(), &|_| self::config(), &|_| false, &|_| Some(assigned))?;
    Ok(manager)
}

fn create(sim: &Sim, manager: &LogManager, dir: &str) -> Arc<UnifiedLog> {
    let params = CreateParams {
        config: config(),
        topic_id: Some("AAAAAAAAAAAAAAAAAAAACA".parse().unwrap()),
        is_new: true,
        directory_id: Some(directory_id(dir)),
    };
    manager.get_or_create_log(&partition(), params, sim.clock.now()).unwrap()
}

fn dir(manager: &LogManager, path: &str) -> Arc<LogDir> {
    manager.log_dir(Path::new(path)).unwrap()
}

fn append(sim: &Sim, log: &UnifiedLog, count: usize) {
    for _ in 0..count {
        let time = sim.clock.now();
        log.append_as_leader(time, batch(time.wall_ms, &[b"0123456789"]), 0, AppendOrigin::Client).unwrap();
        log.update_high_watermark(log.log_end_offset());
    }
}

/// Copies until nothing is left.
fn follow(sim: &Sim, manager: &LogManager) {
    let (current, future) =
        (manager.get_log(&partition()).unwrap(), manager.get_future_log(&partition()).unwrap());
    while future.log_end_offset() != current.log_end_offset() {
        assert!(future.follow(&current, 200, sim.clock.now()).unwrap() > 0);
    }
}

fn promote(sim: &Sim, manager: &LogManager) -> Arc<UnifiedLog> {
    match manager.replace_current_with_future_log(&partition(), 1 << 20, sim.clock.now()).unwrap() {
        Promotion::Done(log) => log,
        Promotion::Behind => panic!("everything was copied"),
    }
}

fn names(sim: &Sim, dir: &str) -> Vec<String> {
    let entries = sim.fs.list(Path::new(dir)).unwrap();
    entries.into_iter().filter(|e| e.is_dir).map(|e| e.name.into_string().unwrap()).collect()
}

/// All records' bytes from the log's start.
fn content(log: &UnifiedLog) -> Vec<u8> {
    let (mut bytes, mut offset) = (Vec::new(), log.log_start_offset());
    while offset < log.log_end_offset() {
        let read =
            log.read(offset, 1, FetchIsolation::LogEnd, true).unwrap().records.unwrap().read().unwrap();
        offset = Batches::new(&read).next().unwrap().unwrap().next_offset();
        bytes.extend_from_slice(&read);
    }
    bytes
}

#[test]
fn a_partition_moves_with_its_records_offsets_and_checkpoints() {
    let sim = machine();
    let manager = start(&sim, "/a").unwrap();
    let old = create(&sim, &manager, "/a");
    append(&sim, &old, 20);
    let future =
        manager.get_or_create_future_log(&partition(), &dir(&manager, "/b"), sim.clock.now()).unwrap();
    assert!(future.is_future() && future.topic_id() == old.topic_id());
    follow(&sim, &manager);
    append(&sim, &old, 3);
    let before = content(&old);
    let log = promote(&sim, &manager);
    assert!(Arc::ptr_eq(&log, &future) && !log.is_future());
    assert_eq!(content(&log), before, "the rest was copied with the handover");
    assert_eq!((log.log_end_offset(), log.high_watermark()), (23, 23));
    assert_eq!(names(&sim, "/b"), ["t-0"]);
    let [left] = &names(&sim, "/a")[..] else { panic!("{:?}", names(&sim, "/a")) };
    assert!(left.starts_with("t-0.") && left.ends_with("-delete"), "{left}");
    let refused = old.append_as_leader(sim.clock.now(), batch(0, &[b"x"]), 0, AppendOrigin::Client);
    assert!(refused.is_err() && old.successor().is_some_and(|s| Arc::ptr_eq(s, &log)));
    append(&sim, &log, 1);
    // Who waits for the old log's flush waits for the new one's.
    old.flush_up_to(24, sim.clock.now()).unwrap();
    assert_eq!(log.recovery_point(), 24);
    sim.fs.crash(5);
    let manager = start(&sim, "/b").unwrap();
    assert_eq!(manager.get_log(&partition()).unwrap().log_end_offset(), 24);
    sim.clock.advance(Duration::from_secs(61));
    assert_eq!(manager.tick(sim.clock.now()).logs_deleted, 1);
    assert!(names(&sim, "/a").is_empty());
}

#[test]
fn a_log_that_starts_late_or_was_cut_is_followed() {
    let sim = machine();
    let manager = start(&sim, "/a").unwrap();
    let log = create(&sim, &manager, "/a");
    append(&sim, &log, 30);
    let reason = storage::LogStartOffsetIncrementReason::ClientRecordDeletion;
    log.maybe_increment_log_start_offset(17, reason).unwrap();
    log.delete_old_segments(sim.clock.now()).unwrap();
    let future =
        manager.get_or_create_future_log(&partition(), &dir(&manager, "/b"), sim.clock.now()).unwrap();
    follow(&sim, &manager);
    assert_eq!((future.log_start_offset(), future.log_end_offset()), (17, 30));
    // A follower's log may be cut under the copy, and go on differently.
    manager.truncate_to(&partition(), 22, sim.clock.now()).unwrap();
    log.assign_epoch_start_offset(3, 22);
    let time = sim.clock.now();
    for _ in 0..20 {
        log.append_as_leader(time, batch(time.wall_ms, &[b"other"]), 3, AppendOrigin::Client).unwrap();
    }
    follow(&sim, &manager);
    let before = content(&log);
    assert_eq!(content(&promote(&sim, &manager)), before);
}

#[test]
fn a_move_is_given_up_and_begun_again_elsewhere() {
    let sim = machine();
    let manager = start(&sim, "/a").unwrap();
    let log = create(&sim, &manager, "/a");
    append(&sim, &log, 20);
    manager.get_or_create_future_log(&partition(), &dir(&manager, "/b"), sim.clock.now()).unwrap();
    follow(&sim, &manager);
    assert!(manager.delete_future_log(&partition(), sim.clock.now()).unwrap());
    assert!(!manager.delete_future_log(&partition(), sim.clock.now()).unwrap());
    assert!(manager.get_future_log(&partition()).is_none());
    append(&sim, &log, 1);
    let future =
        manager.get_or_create_future_log(&partition(), &dir(&manager, "/b"), sim.clock.now()).unwrap();
    assert_eq!(future.log_end_offset(), 0, "a new copy");
    assert_eq!(names(&sim, "/b").iter().filter(|name| name.ends_with("-future")).count(), 1);
}

#[test]
fn a_restart_in_the_middle_goes_on_with_the_copy() {
    let sim = machine();
    let manager = start(&sim, "/a").unwrap();
    let log = create(&sim, &manager, "/a");
    append(&sim, &log, 20);
    manager.get_or_create_future_log(&partition(), &dir(&manager, "/b"), sim.clock.now()).unwrap();
    let future = manager.get_future_log(&partition()).unwrap();
    future.follow(&log, 200, sim.clock.now()).unwrap();
    let copied = future.log_end_offset();
    assert!((1..20).contains(&copied));
    manager.shutdown(sim.clock.now(), 1).unwrap();
    let manager = start(&sim, "/a").unwrap();
    assert_eq!(manager.get_future_log(&partition()).unwrap().log_end_offset(), copied);
    follow(&sim, &manager);
    assert_eq!(promote(&sim, &manager).log_end_offset(), 20);
}

/// What a kill between a promotion's steps leaves, by hand: names in /a and /b, where the metadata log has the
/// partition, and which directory's log counts.
#[test]
fn exactly_one_log_counts_after_an_interrupted_promotion() {
    let unique = "0".repeat(32);
    let (current, future) = ("t-0".to_owned(), format!("t-0.{unique}-future"));
    let gone = format!("t-0.{unique}-delete");
    for (in_a, in_b, assigned, counts, other) in [
        (&current, &future, "/a", "/a", "-future"),
        (&current, &future, "/b", "/b", "-delete"),
        (&current, &current, "/b", "/b", "-delete"),
        (&current, &current, "/a", "/a", "-delete"),
        (&gone, &future, "/b", "/b", "-delete"),
        (&gone, &current, "/b", "/b", "-delete"),
    ] {
        let sim = machine();
        let manager = start(&sim, "/a").unwrap();
        append(&sim, &create(&sim, &manager, "/a"), 9);
        manager.get_or_create_future_log(&partition(), &dir(&manager, "/b"), sim.clock.now()).unwrap();
        follow(&sim, &manager);
        let made = names(&sim, "/b").remove(0);
        drop(manager);
        sim.fs.kill();
        let _ = sim.fs.rename(&Path::new("/b").join(made), &Path::new("/b").join(in_b));
        let _ = sim.fs.rename(Path::new("/a/t-0"), &Path::new("/a").join(in_a));
        let manager = start(&sim, assigned).unwrap();
        let log = manager.get_log(&partition()).unwrap();
        assert_eq!((log.log_dir().path(), log.log_end_offset()), (Path::new(counts), 9), "{in_a} {in_b}");
        assert_eq!(names(&sim, counts), ["t-0"], "{in_a} {in_b}");
        let other_dir = if counts == "/a" { "/b" } else { "/a" };
        assert!(names(&sim, other_dir)[0].ends_with(other), "{:?}", names(&sim, other_dir));
        append(&sim, &log, 1);
    }
}

#[test]
fn a_copy_that_lacks_records_does_not_replace_the_log_that_has_them() {
    let sim = machine();
    let manager = start(&sim, "/a").unwrap();
    let log = create(&sim, &manager, "/a");
    append(&sim, &log, 9);
    manager.get_or_create_future_log(&partition(), &dir(&manager, "/b"), sim.clock.now()).unwrap();
    follow(&sim, &manager);
    // The controller has the new directory; then more is written, and the node is killed.
    append(&sim, &log, 4);
    drop(manager);
    sim.fs.kill();
    let manager = start(&sim, "/b").unwrap();
    let log = manager.get_log(&partition()).unwrap();
    assert_eq!((log.log_dir().path(), log.log_end_offset()), (Path::new("/a"), 13));
    follow(&sim, &manager);
    assert_eq!(promote(&sim, &manager).log_end_offset(), 13);
}

#[test]
fn a_failing_target_ends_the_move_and_nothing_else() {
    let sim = machine();
    let manager = start(&sim, "/a").unwrap();
    let log = create(&sim, &manager, "/a");
    append(&sim, &log, 9);
    let told = Arc::new(AtomicUsize::new(0));
    for dir in manager.log_dirs() {
        let told = told.clone();
        dir.on_failure(move || {
            told.fetch_add(1, Ordering::Relaxed);
        });
    }
    manager.get_or_create_future_log(&partition(), &dir(&manager, "/b"), sim.clock.now()).unwrap();
    follow(&sim, &manager);
    sim.fs.inject(Fault { op: Op::Rename, path: "/b/".into(), nth: 1, kind: io::ErrorKind::Other });
    let failed = manager.replace_current_with_future_log(&partition(), 1 << 20, sim.clock.now());
    assert!(failed.is_err());
    assert_eq!(told.load(Ordering::Relaxed), 1, "whoever takes directories out of service is told once");
    append(&sim, &log, 1);
    let [(failed, _, partitions)] = &manager.handle_failed_dirs()[..] else { panic!() };
    assert_eq!((failed.path(), &partitions[..]), (Path::new("/b"), &[partition()][..]));
    assert!(manager.get_future_log(&partition()).is_none());
    append(&sim, &manager.get_log(&partition()).unwrap(), 1);
}

#[test]
fn a_sync_that_fails_for_want_of_room_takes_the_directory_offline() {
    for target in [".log", ".index", ".timeindex", "leader-epoch-checkpoint.tmp"] {
        let sim = machine();
        let manager = start(&sim, "/a").unwrap();
        let log = create(&sim, &manager, "/a");
        append(&sim, &log, 9);
        sim.fs.inject(Fault { op: Op::Sync, path: target.into(), nth: 1, kind: io::ErrorKind::StorageFull });
        assert!(log.flush(sim.clock.now()).is_err(), "{target}");
        let is_records = !target.ends_with(".tmp");
        assert_eq!(
            log.log_dir().is_offline(),
            is_records,
            "{target}: what a checkpoint lost is written again"
        );
        if is_records {
            assert!(log.flush(sim.clock.now()).is_err(), "a second sync does not make good for the first");
        } else {
            log.flush(sim.clock.now()).unwrap();
        }
    }
}

#[test]
fn an_index_without_room_is_flushed_later_and_not_forgotten() {
    let sim = machine();
    let manager = start(&sim, "/a").unwrap();
    let log = create(&sim, &manager, "/a");
    append(&sim, &log, 9);
    sim.fs.inject(Fault { op: Op::Write, path: ".index".into(), nth: 1, kind: io::ErrorKind::StorageFull });
    assert!(log.flush(sim.clock.now()).is_err());
    assert!(!log.log_dir().is_offline() && log.recovery_point() == 0);
    log.flush(sim.clock.now()).unwrap();
    assert_eq!(log.recovery_point(), 9);
    sim.fs.crash(3);
    assert_eq!(start(&sim, "/a").unwrap().get_log(&partition()).unwrap().log_end_offset(), 9);
}

#[test]
fn a_full_volume_refuses_records_keeps_room_for_the_node_and_recovers() {
    let sim = machine();
    let manager = start(&sim, "/a").unwrap();
    let log = create(&sim, &manager, "/a");
    append(&sim, &log, 3);
    let used = |sim: &Sim| u64::MAX - sim.fs.space(Path::new("/")).unwrap().usable;
    let before = used(&sim);
    sim.fs.set_capacity(before + 64_000);
    manager.tick(sim.clock.now());
    let value = vec![b'v'; 1000];
    let try_append = |log: &UnifiedLog| {
        log.append_as_leader(sim.clock.now(), batch(0, &[&value[..200]]), 0, AppendOrigin::Client)
    };
    let mut appended = 3;
    let refused = loop {
        match try_append(&log) {
            Ok(info) => appended = info.last_offset + 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, storage::AppendError::Storage(error) if error.is_full()), "{refused}");
    assert_eq!(refused.error_code(), 56);
    let free = sim.fs.space(Path::new("/")).unwrap();
    assert!(free.usable >= (before + 64_000) / 16, "{} bytes are kept", free.usable);
    assert!(free.usable < (before + 64_000) / 8, "not more than needed: {}", free.usable);
    assert!(log.log_dir().is_full() && !log.log_dir().is_offline());
    // Reads, flushes, checkpoints and deletions go on.
    assert_eq!(log.log_end_offset(), appended);
    content(&log);
    log.flush(sim.clock.now()).unwrap();
    manager.checkpoint_recovery_points();
    drop(manager);
    sim.fs.kill();
    let manager = start(&sim, "/a").unwrap();
    let log = manager.get_log(&partition()).unwrap();
    assert_eq!(log.log_end_offset(), appended, "it starts on the full volume");
    assert!(try_append(&log).is_err());
    log.update_high_watermark(appended);
    let reason = storage::LogStartOffsetIncrementReason::ClientRecordDeletion;
    log.maybe_increment_log_start_offset(appended, reason).unwrap();
    log.delete_old_segments(sim.clock.now()).unwrap();
    sim.clock.advance(Duration::from_secs(61));
    manager.tick(sim.clock.now());
    // The simulated volume frees a file when its removal is durable, at the next removal.
    sim.fs.sync_dir(Path::new("/a/t-0")).unwrap();
    sim.fs.open(Path::new("/x"), OpenMode::Create).unwrap();
    sim.fs.remove_file(Path::new("/x")).unwrap();
    try_append(&log).unwrap();
    assert!(!log.log_dir().is_full());
}

#[test]
fn a_log_that_finds_no_room_leaves_nothing_behind() {
    let sim = machine();
    let manager = start(&sim, "/a").unwrap();
    for dir in DIRS {
        sim.fs.inject(Fault {
            op: Op::Create,
            path: format!("{dir}/t-0"),
            nth: 1,
            kind: io::ErrorKind::StorageFull,
        });
    }
    let params = CreateParams {
        config: config(),
        topic_id: None,
        is_new: true,
        directory_id: Some(directory_id("/c")),
    };
    let refused = manager.get_or_create_log(&partition(), params, sim.clock.now());
    assert!(matches!(refused, Err(LogDirError::Storage(error)) if error.is_full()));
    assert!(names(&sim, "/a").is_empty() && names(&sim, "/b").is_empty());
    append(&sim, &create(&sim, &manager, "/b"), 1);
}

#[test]
fn a_torn_append_leaves_nothing_behind() {
    let sim = machine();
    let manager = start(&sim, "/a").unwrap();
    let log = create(&sim, &manager, "/a");
    append(&sim, &log, 2);
    sim.fs.inject(Fault { op: Op::Write, path: ".log".into(), nth: 1, kind: io::ErrorKind::StorageFull });
    let size = log.size();
    assert!(log.append_as_leader(sim.clock.now(), batch(0, &[b"torn"]), 0, AppendOrigin::Client).is_err());
    assert_eq!((log.size(), log.log_end_offset()), (size, 2));
    append(&sim, &log, 1);
    drop(manager);
    sim.fs.kill();
    assert_eq!(start(&sim, "/a").unwrap().get_log(&partition()).unwrap().log_end_offset(), 3);
}
