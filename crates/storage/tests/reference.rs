//! Logs that Apache Kafka 4.4.0 wrote (`tests/fixtures`: five codecs, an idempotent producer, transactions; 16 KiB
//! segments, an index entry every 512 bytes): we open them, and write the same bytes from the same batches.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use common::{World, copy_fixture, fixture_files};
use env::{FileSystem, OpenMode};
use record::{Batches, NoCodecs, TopicPartition};
use storage::{
    FetchIsolation, LogConfig, LogContext, LogDir, LogManager, LogManagerConfig, OpenParams, UnifiedLog,
};
use testkit::Sim;

const TOPICS: [(&str, i64); 6] =
    [("t-none", 600), ("t-gzip", 600), ("t-snappy", 600), ("t-lz4", 600), ("t-zstd", 600), ("t-txn", 404)];

fn config() -> LogConfig {
    LogConfig { segment_size_bytes: 16384, index_interval_bytes: 512, ..LogConfig::default() }
}

/// The fixtures as a node's log directory.
fn node() -> Sim {
    let sim = Sim::new(1);
    let data = Path::new("/data");
    copy_fixture(&sim, "", data);
    for (topic, _) in TOPICS {
        copy_fixture(&sim, &format!("{topic}-0"), &data.join(format!("{topic}-0")));
    }
    sim.fs.sync_dir(data).unwrap();
    sim.fs.sync_dir(Path::new("/")).unwrap();
    sim
}

fn manager(sim: &Sim) -> LogManager {
    let config = LogManagerConfig {
        num_recovery_threads_per_data_dir: 1,
        default_config: Arc::new(config()),
        ..LogManagerConfig::new(vec!["/data".into()])
    };
    LogManager::new(sim.env(), Arc::new(NoCodecs), config).unwrap()
}

fn load(manager: &LogManager, sim: &Sim) -> storage::LoadSummary {
    manager.load(env::Clock::now(&*sim.clock), &|_| Arc::new(config()), &|_| false).unwrap()
}

/// All bytes of a log, segment by segment.
fn read_all(log: &UnifiedLog) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut offset = log.log_start_offset();
    while offset < log.log_end_offset() {
        let info = log.read(offset, 1000, FetchIsolation::LogEnd, true).unwrap();
        let read = info.records.unwrap().read().unwrap();
        let mut taken = 0;
        for batch in Batches::new(&read) {
            let batch = batch.unwrap();
            assert!(batch.is_valid());
            offset = batch.next_offset();
            taken += batch.size_in_bytes();
        }
        bytes.extend_from_slice(&read[..taken]);
    }
    bytes
}

fn logs_of(topic: &str) -> Vec<u8> {
    let files = fixture_files(&format!("{topic}-0"));
    files.into_iter().filter(|(name, _)| name.ends_with(".log")).flat_map(|(_, content)| content).collect()
}

fn files_on(sim: &Sim, dir: &str) -> BTreeMap<String, Vec<u8>> {
    let path = Path::new(dir);
    let entries = sim.fs.list(path).unwrap().into_iter().filter(|e| !e.is_dir);
    entries
        .map(|e| {
            (
                e.name.to_str().unwrap().to_owned(),
                env::read_file(&*sim.fs, &path.join(&e.name), 1 << 20).unwrap(),
            )
        })
        .collect()
}

#[test]
fn a_cleanly_stopped_node_is_opened_without_reading_a_segment() {
    let sim = node();
    let manager = manager(&sim);
    assert_eq!(manager.broker_epoch_of_clean_shutdown(), Some(13));
    let before = sim.fs.bytes_read();
    let summary = load(&manager, &sim);
    let read = sim.fs.bytes_read() - before;
    assert!(read < 5000, "{read} bytes were read");
    assert_eq!((summary.logs, summary.unclean_dirs.len()), (6, 0));
    assert!(!sim.fs.exists(Path::new("/data/.kafka_cleanshutdown")).unwrap());
    for (topic, end) in TOPICS {
        let log = manager.get_log(&TopicPartition::new(topic, 0)).unwrap();
        assert_eq!(
            (log.log_end_offset(), log.high_watermark(), log.recovery_point()),
            (end, end, end),
            "{topic}"
        );
        assert_eq!((log.log_start_offset(), log.last_stable_offset()), (0, end));
        assert_eq!(log.end_offset_for_epoch(0), Some((0, end)));
        assert!(log.topic_id().is_some());
        assert_eq!(log.active_producers().len(), 1, "{topic}");
        assert_eq!(read_all(&log), logs_of(topic), "{topic}");
    }
}

#[test]
fn an_uncleanly_stopped_node_gets_the_indexes_it_had() {
    let sim = node();
    sim.fs.remove_file(Path::new("/data/.kafka_cleanshutdown")).unwrap();
    sim.fs.remove_file(Path::new("/data/recovery-point-offset-checkpoint")).unwrap();
    for (topic, _) in TOPICS {
        for (name, _) in fixture_files(&format!("{topic}-0")) {
            if name.ends_with("index") || name.ends_with(".snapshot") {
                // As a killed node leaves them, and worse.
                let file =
                    sim.fs.open(Path::new(&format!("/data/{topic}-0/{name}")), OpenMode::ReadWrite).unwrap();
                file.write_at(&[0; 4096], 0).unwrap();
            }
        }
    }
    let manager = manager(&sim);
    assert_eq!(load(&manager, &sim).unclean_dirs.len(), 1);
    for (topic, end) in TOPICS {
        let log = manager.get_log(&TopicPartition::new(topic, 0)).unwrap();
        assert_eq!((log.log_end_offset(), log.recovery_point()), (end, 0), "{topic}");
    }
    manager.shutdown(env::Clock::now(&*sim.clock), 14).unwrap();
    for (topic, _) in TOPICS {
        let ours = files_on(&sim, &format!("/data/{topic}-0"));
        for (name, theirs) in fixture_files(&format!("{topic}-0")) {
            // Of the snapshots only the last two and the newest are made again, as in the reference.
            if let Some(ours) = ours.get(&name).or(name.ends_with(".snapshot").then_some(&theirs)) {
                assert_eq!(*ours, theirs, "{topic} {name}");
            } else {
                panic!("{topic} {name} is missing");
            }
        }
    }
}

#[test]
fn the_same_batches_give_the_same_files() {
    for (topic, end) in TOPICS {
        let world = World::new(1);
        let context = LogContext::new(world.sim.env(), Arc::new(NoCodecs));
        let dir = LogDir::new("/data".into(), None);
        let theirs: BTreeMap<String, Vec<u8>> = fixture_files(&format!("{topic}-0")).into_iter().collect();
        let id = String::from_utf8(theirs["partition.metadata"].clone()).unwrap();
        let params = OpenParams {
            config: Arc::new(config()),
            log_start_offset: 0,
            recovery_point: Some(0),
            had_clean_shutdown: true,
            durable_end: 0,
            topic_id: Some(id.rsplit(' ').next().unwrap().parse().unwrap()),
            is_new: true,
        };
        let path = format!("/data/{topic}-0");
        let partition = TopicPartition::new(topic, 0);
        let log = UnifiedLog::open(&context, &dir, (&path).into(), partition, params, world.now()).unwrap();
        let bytes = Bytes::from(logs_of(topic));
        let mut position = 0;
        for batch in Batches::new(&bytes) {
            let size = batch.unwrap().size_in_bytes();
            log.append_as_follower(world.now(), bytes.slice(position..position + size), 0).unwrap();
            position += size;
        }
        assert_eq!(log.log_end_offset(), end);
        log.close(world.now()).unwrap();
        let ours = files_on(&world.sim, &path);
        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{topic}");
        for (name, theirs) in theirs {
            assert_eq!(ours[&name], theirs, "{topic} {name}");
        }
    }
}

#[test]
fn timestamps_are_found_in_compressed_batches() {
    let sim = node();
    let config = LogManagerConfig {
        num_recovery_threads_per_data_dir: 1,
        ..LogManagerConfig::new(vec!["/data".into()])
    };
    let manager = LogManager::new(sim.env(), Arc::new(compression::KafkaCodecs), config).unwrap();
    load(&manager, &sim);
    for (topic, _) in TOPICS {
        let log = manager.get_log(&TopicPartition::new(topic, 0)).unwrap();
        let bytes = logs_of(topic);
        let mut records = Vec::new();
        let mut buffers = record::BufferSupplier::new();
        for batch in Batches::new(&bytes) {
            let batch = batch.unwrap();
            for record in batch.records(&compression::KafkaCodecs, &mut buffers).unwrap() {
                let record = record.unwrap();
                records.push((record.timestamp, record.offset));
            }
        }
        let max = records.iter().map(|(timestamp, _)| *timestamp).max().unwrap();
        for timestamp in records.iter().step_by(41).map(|(timestamp, _)| *timestamp).chain([0, max]) {
            let expected = records.iter().find(|(at, _)| *at >= timestamp).unwrap();
            let found = log.fetch_offset_by_timestamp(timestamp).unwrap().unwrap();
            assert_eq!((found.timestamp, found.offset), *expected, "{topic} {timestamp}");
        }
        let first_of_max = records.iter().find(|(at, _)| *at == max).unwrap();
        let found = log.fetch_offset_by_timestamp(storage::MAX_TIMESTAMP).unwrap().unwrap();
        assert_eq!((found.timestamp, found.offset), *first_of_max, "{topic}");
        assert_eq!(log.fetch_offset_by_timestamp(max + 1).unwrap(), None, "{topic}");
    }
}
