//! The logs of a node: start, creation, deletion, upkeep, failing directories, shutdown.

mod common;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::batch;
use env::{Clock, FileSystem, OpenMode};
use record::{AppendOrigin, NoCodecs, Time, TopicPartition};
use storage::{
    CreateParams, FetchIsolation, LogConfig, LogDirError, LogManager, LogManagerConfig, UnifiedLog,
};
use testkit::{Fault, Op, Sim};

fn config(dirs: &[&str]) -> LogManagerConfig {
    LogManagerConfig {
        num_recovery_threads_per_data_dir: 1,
        default_config: Arc::new(LogConfig { segment_size_bytes: 300, ..LogConfig::default() }),
        ..LogManagerConfig::new(dirs.iter().map(Into::into).collect())
    }
}

fn start(sim: &Sim, dirs: &[&str]) -> Result<LogManager, LogDirError> {
    let config = config(dirs);
    let topic = config.default_config.clone();
    let manager = LogManager::new(sim.env(), Arc::new(NoCodecs), config)?;
    manager.load(now(sim), &|_| topic.clone(), &|_| false)?;
    Ok(manager)
}

fn now(sim: &Sim) -> Time {
    sim.clock.now()
}

fn create(sim: &Sim, manager: &LogManager, topic: &str, partition: i32) -> Arc<UnifiedLog> {
    let params = CreateParams {
        config: manager.default_config(),
        topic_id: Some("AAAAAAAAAAAAAAAAAAAACA".parse().unwrap()),
        is_new: true,
        directory_id: None,
    };
    manager.get_or_create_log(&TopicPartition::new(topic, partition), params, now(sim)).unwrap()
}

fn append(sim: &Sim, log: &UnifiedLog) {
    let time = now(sim);
    log.append_as_leader(time, batch(time.wall_ms, &[b"0123456789"]), 0, AppendOrigin::Client).unwrap();
    log.update_high_watermark(log.log_end_offset());
}

fn names(sim: &Sim, dir: &str) -> Vec<String> {
    let entries = sim.fs.list(Path::new(dir)).unwrap();
    entries.into_iter().map(|e| e.name.into_string().unwrap()).collect()
}

fn text(sim: &Sim, path: &str) -> String {
    String::from_utf8(env::read_file(&*sim.fs, Path::new(path), 1 << 20).unwrap()).unwrap()
}

#[test]
fn a_clean_stop_leaves_what_a_start_needs() {
    let sim = Sim::new(1);
    let manager = start(&sim, &["/data"]).unwrap();
    assert!(names(&sim, "/data").contains(&".lock".to_owned()));
    for partition in 0..3 {
        let log = create(&sim, &manager, "topic", partition);
        (0..=partition).for_each(|_| append(&sim, &log));
    }
    manager.shutdown(now(&sim), 42).unwrap();
    let expected = "0\n3\ntopic 0 1\ntopic 1 2\ntopic 2 3\n";
    assert_eq!(text(&sim, "/data/recovery-point-offset-checkpoint"), expected);
    assert_eq!(text(&sim, "/data/replication-offset-checkpoint"), expected);
    assert_eq!(text(&sim, "/data/log-start-offset-checkpoint"), "0\n0\n");
    assert_eq!(text(&sim, "/data/.kafka_cleanshutdown"), "{\"version\":0,\"brokerEpoch\":42}");
    assert_eq!(text(&sim, "/data/topic-0/leader-epoch-checkpoint"), "0\n1\n0 0\n");
    assert!(!names(&sim, "/data").contains(&".lock".to_owned()));
    for suffix in [".log", ".index", ".timeindex"] {
        assert!(names(&sim, "/data/topic-1").contains(&format!("00000000000000000000{suffix}")), "{suffix}");
    }
    sim.fs.crash(7);
    let syncs = sim.fs.syncs();
    let manager = start(&sim, &["/data"]).unwrap();
    let log = manager.get_log(&TopicPartition::new("topic", 2)).unwrap();
    assert_eq!((log.log_end_offset(), log.high_watermark()), (3, 3));
    assert!(!names(&sim, "/data").contains(&".kafka_cleanshutdown".to_owned()));
    manager.shutdown(now(&sim), 43).unwrap();
    assert!(sim.fs.syncs() - syncs < 12, "logs that did not change are not synced again");
}

#[test]
fn directories_are_locked_checked_and_named_once() {
    let sim = Sim::new(1);
    let first = start(&sim, &["/data"]).unwrap();
    let second = start(&sim, &["/data"]);
    assert!(matches!(&second, Err(LogDirError::Locked(dir)) if dir == Path::new("/data")));
    first.shutdown(now(&sim), 1).unwrap();
    assert!(matches!(start(&sim, &["/data", "/./data"]), Err(LogDirError::Duplicate(_))));
    sim.fs.create_dir_all(Path::new("/foreign/lost+found")).unwrap();
    let clean = sim.fs.open(Path::new("/foreign/.kafka_cleanshutdown"), OpenMode::Create).unwrap();
    clean.sync_all().unwrap();
    let foreign = start(&sim, &["/foreign"]);
    assert!(matches!(&foreign, Err(LogDirError::ForeignDir { name, .. }) if name == "lost+found"));
    assert!(names(&sim, "/foreign").contains(&".kafka_cleanshutdown".to_owned()), "nothing changed");
    sim.fs.open(Path::new("/file"), OpenMode::Create).unwrap();
    assert!(matches!(start(&sim, &["/file"]), Err(LogDirError::NoUsableDir(_))));
}

#[test]
fn logs_go_where_fewest_are_and_duplicates_are_refused() {
    let sim = Sim::new(1);
    let manager = start(&sim, &["/a", "/b"]).unwrap();
    for partition in 0..6 {
        create(&sim, &manager, "topic", partition);
    }
    let in_a = names(&sim, "/a").iter().filter(|name| name.starts_with("topic")).count();
    assert_eq!(in_a, 3);
    manager.shutdown(now(&sim), 1).unwrap();
    for dir in ["/a", "/b"] {
        sim.fs.create_dir_all(&Path::new(dir).join("topic-9")).unwrap();
    }
    assert!(matches!(start(&sim, &["/a", "/b"]), Err(LogDirError::DuplicateLog { .. })));
}

#[test]
fn deleted_logs_are_renamed_at_once_and_removed_later() {
    let sim = Sim::new(1);
    let manager = start(&sim, &["/data"]).unwrap();
    let log = create(&sim, &manager, "topic", 0);
    create(&sim, &manager, "topic", 1);
    append(&sim, &log);
    assert!(manager.async_delete(&[TopicPartition::new("topic", 0)], false, now(&sim)).is_empty());
    assert!(manager.get_log(&TopicPartition::new("topic", 0)).is_none());
    let renamed: Vec<String> =
        names(&sim, "/data").into_iter().filter(|name| name.ends_with("-delete")).collect();
    assert!(renamed.len() == 1 && renamed[0].starts_with("topic-0."), "{renamed:?}");
    let again = create(&sim, &manager, "topic", 0);
    assert_eq!(again.log_end_offset(), 0, "a topic of the same name begins anew");
    sim.clock.advance(Duration::from_secs(59));
    assert_eq!(manager.tick(now(&sim)).logs_deleted, 0);
    sim.fs.crash(3);
    drop(manager);
    let manager = start(&sim, &["/data"]).unwrap();
    assert!(manager.has_logs_to_be_deleted(), "a restart goes on with it");
    sim.clock.advance(Duration::from_secs(60));
    assert_eq!(manager.tick(now(&sim)).logs_deleted, 1);
    assert!(!names(&sim, "/data").iter().any(|name| name.ends_with("-delete")));
}

#[test]
fn deletion_and_upkeep_at_the_same_time_leave_the_directory_online() {
    let sim = Sim::new(1);
    let manager = start(&sim, &["/a"]).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                sim.clock.advance(Duration::from_secs(1));
                manager.tick(now(&sim));
            }
        });
        for partition in 0..500 {
            create(&sim, &manager, "t", partition);
            let deleted = [TopicPartition::new("t", partition)];
            assert!(manager.async_delete(&deleted, false, now(&sim)).is_empty());
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(!manager.log_dirs()[0].is_offline());
}

#[test]
fn strays_are_set_aside() {
    let sim = Sim::new(1);
    let manager = start(&sim, &["/data"]).unwrap();
    create(&sim, &manager, "mine", 0);
    append(&sim, &create(&sim, &manager, "other", 0));
    manager.shutdown(now(&sim), 1).unwrap();
    let manager = LogManager::new(sim.env(), Arc::new(NoCodecs), config(&["/data"])).unwrap();
    let topic = manager.default_config();
    let is_stray = |log: &UnifiedLog| &*log.topic_partition().topic == "other";
    let summary = manager.load(now(&sim), &|_| topic.clone(), &is_stray).unwrap();
    assert_eq!((summary.logs, summary.strays), (1, vec![TopicPartition::new("other", 0)]));
    assert!(names(&sim, "/data").iter().any(|name| name.starts_with("other-0.") && name.ends_with("-stray")));
}

#[test]
fn a_failing_directory_leaves_the_others_working() {
    let sim = Sim::new(1);
    let manager = start(&sim, &["/a", "/b"]).unwrap();
    let logs: Vec<_> = (0..2).map(|partition| create(&sim, &manager, "topic", partition)).collect();
    logs.iter().for_each(|log| append(&sim, log));
    sim.fs.inject(Fault { op: Op::Write, path: "/a/topic-0/".into(), nth: 1, kind: io::ErrorKind::Other });
    let time = now(&sim);
    let failed = logs[0].append_as_leader(time, batch(0, &[b"x"]), 0, AppendOrigin::Client).unwrap_err();
    assert_eq!(failed.error_code(), 56);
    let report = manager.tick(time);
    let [(dir, _, partitions)] = &report.failed_dirs[..] else { panic!("{report:?}") };
    assert_eq!((dir.path(), &partitions[..]), (Path::new("/a"), &[TopicPartition::new("topic", 0)][..]));
    assert!(manager.tick(time).failed_dirs.is_empty(), "reported once");
    append(&sim, &logs[1]);
    assert_eq!(logs[1].read(0, 1, FetchIsolation::LogEnd, true).unwrap().fetch_offset.message_offset, 0);
    let params =
        CreateParams { config: manager.default_config(), topic_id: None, is_new: false, directory_id: None };
    let lost = manager.get_or_create_log(&TopicPartition::new("topic", 0), params, time);
    assert!(matches!(lost, Err(LogDirError::Storage(_))), "it may be in the directory that is gone");
    create(&sim, &manager, "fresh", 0);
    manager.shutdown(time, 1).unwrap();
    assert!(names(&sim, "/b").contains(&".kafka_cleanshutdown".to_owned()));
    assert!(!names(&sim, "/a").contains(&".kafka_cleanshutdown".to_owned()));
}

#[test]
fn upkeep_writes_checkpoints_applies_retention_and_flushes() {
    let sim = Sim::new(1);
    let manager = start(&sim, &["/data"]).unwrap();
    let retention =
        LogConfig { retention_ms: 1000, flush_ms: 1000, segment_size_bytes: 300, ..LogConfig::default() };
    manager.reconfigure_default_config(Arc::new(retention));
    let log = create(&sim, &manager, "topic", 0);
    (0..10).for_each(|_| append(&sim, &log));
    manager.tick(now(&sim));
    assert_eq!(
        text(&sim, "/data/topic-0/partition.metadata"),
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACA"
    );
    sim.clock.advance(Duration::from_secs(31));
    let report = manager.tick(now(&sim));
    assert_eq!((report.segments_deleted, log.log_start_offset()), (4, 10));
    assert_eq!(text(&sim, "/data/replication-offset-checkpoint"), "0\n1\ntopic 0 10\n");
    let before = sim.fs.operations();
    sim.clock.advance(Duration::from_secs(300));
    manager.tick(now(&sim));
    sim.clock.advance(Duration::from_secs(61));
    manager.tick(now(&sim));
    let after_deletions = sim.fs.operations();
    sim.clock.advance(Duration::from_secs(61));
    manager.tick(now(&sim));
    assert!(before < after_deletions);
    assert_eq!(sim.fs.operations(), after_deletions, "an idle node writes nothing");
}
