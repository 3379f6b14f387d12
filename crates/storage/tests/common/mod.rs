//! What the integration tests of `storage` share.
#![allow(dead_code)]

pub mod cleaning;
pub mod model;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use env::{Clock, FileSystem, OpenMode};
use record::{BatchOptions, NoCodecs, RecordBatchBuilder, Time, TopicPartition};
use storage::{LogConfig, LogContext, LogDir, OpenParams, UnifiedLog};
use testkit::Sim;

pub const LOG_DIR: &str = "/data";

/// One simulated machine with one log directory.
pub struct World {
    pub sim: Sim,
    pub context: Arc<LogContext>,
    pub log_dir: Arc<LogDir>,
}

impl World {
    pub fn new(seed: u64) -> World {
        let sim = Sim::new(seed);
        sim.fs.create_dir_all(Path::new(LOG_DIR)).unwrap();
        sim.fs.sync_dir(Path::new("/")).unwrap();
        World::on(sim)
    }

    /// A new process on the machine.
    pub fn on(sim: Sim) -> World {
        let context = LogContext::new(sim.env(), Arc::new(NoCodecs));
        World { context, log_dir: LogDir::new(LOG_DIR.into(), None), sim }
    }

    pub fn now(&self) -> Time {
        self.sim.clock.now()
    }

    pub fn advance_ms(&self, ms: u64) {
        self.sim.clock.advance(Duration::from_millis(ms));
    }

    pub fn open(&self, config: LogConfig, change: impl FnOnce(&mut OpenParams)) -> Arc<UnifiedLog> {
        self.try_open(config, change).unwrap()
    }

    pub fn try_open(
        &self,
        config: LogConfig,
        change: impl FnOnce(&mut OpenParams),
    ) -> Result<Arc<UnifiedLog>, storage::LogDirError> {
        let path = Path::new(LOG_DIR).join("t-0");
        let is_new = !self.sim.fs.exists(&path).unwrap();
        let mut params = OpenParams {
            config: Arc::new(config),
            log_start_offset: 0,
            recovery_point: Some(0),
            had_clean_shutdown: is_new,
            durable_end: 0,
            topic_id: None,
            is_new,
        };
        change(&mut params);
        UnifiedLog::open(&self.context, &self.log_dir, path, partition(), params, self.now())
    }

    /// Another, new log beside the first.
    pub fn open_second(&self, topic: &str, config: LogConfig) -> Arc<UnifiedLog> {
        let params = OpenParams {
            config: Arc::new(config),
            log_start_offset: 0,
            recovery_point: Some(0),
            had_clean_shutdown: true,
            durable_end: 0,
            topic_id: None,
            is_new: true,
        };
        let partition = TopicPartition::new(topic, 0);
        let path = Path::new(LOG_DIR).join(partition.to_string());
        UnifiedLog::open(&self.context, &self.log_dir, path, partition, params, self.now()).unwrap()
    }

    pub fn files(&self, dir: &Path) -> Vec<String> {
        let entries = self.sim.fs.list(dir).unwrap();
        entries.into_iter().map(|e| e.name.into_string().unwrap()).collect()
    }

    pub fn content(&self, path: &Path) -> Vec<u8> {
        env::read_file(&*self.sim.fs, path, 1 << 30).unwrap()
    }
}

pub fn partition() -> TopicPartition {
    TopicPartition::new("t", 0)
}

/// A producer's batch of `count` records; record `i` has the value `value(i)`.
pub fn batch_with(options: BatchOptions, timestamp: i64, values: &[&[u8]]) -> Bytes {
    let mut builder = RecordBatchBuilder::new(options);
    for value in values {
        builder.append(timestamp, None, Some(value), &[]).unwrap();
    }
    builder.build(&NoCodecs).unwrap()
}

pub fn batch(timestamp: i64, values: &[&[u8]]) -> Bytes {
    batch_with(BatchOptions::default(), timestamp, values)
}

pub fn idempotent(producer_id: i64, epoch: i16, sequence: i32, timestamp: i64, values: &[&[u8]]) -> Bytes {
    let options = BatchOptions {
        producer_id,
        producer_epoch: epoch,
        base_sequence: sequence,
        ..BatchOptions::default()
    };
    batch_with(options, timestamp, values)
}

pub fn transactional(producer_id: i64, epoch: i16, sequence: i32, timestamp: i64, values: &[&[u8]]) -> Bytes {
    let options = BatchOptions {
        producer_id,
        producer_epoch: epoch,
        base_sequence: sequence,
        is_transactional: true,
        ..BatchOptions::default()
    };
    batch_with(options, timestamp, values)
}

pub fn marker(
    producer_id: i64,
    epoch: i16,
    timestamp: i64,
    committed: bool,
    coordinator_epoch: i32,
) -> Bytes {
    let options = BatchOptions {
        producer_id,
        producer_epoch: epoch,
        is_transactional: true,
        is_control_batch: true,
        ..BatchOptions::default()
    };
    let mut builder = RecordBatchBuilder::new(options);
    let marker = record::EndTransactionMarker { committed, coordinator_epoch };
    builder.append_end_txn_marker(timestamp, marker).unwrap();
    builder.build(&NoCodecs).unwrap()
}

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Copies a directory of fixtures onto the simulated disk, durably.
pub fn copy_fixture(sim: &Sim, name: &str, to: &Path) {
    sim.fs.create_dir_all(to).unwrap();
    for (name, content) in fixture_files(name) {
        let file = sim.fs.open(&to.join(name), OpenMode::Truncate).unwrap();
        file.write_at(&content, 0).unwrap();
        file.sync_all().unwrap();
    }
    sim.fs.sync_dir(to).unwrap();
}

pub fn fixture_files(name: &str) -> Vec<(String, Vec<u8>)> {
    let real = env::real::RealFileSystem;
    let dir = fixtures().join(name);
    let entries = real.list(&dir).unwrap().into_iter().filter(|e| !e.is_dir);
    entries
        .map(|e| {
            let content = env::read_file(&real, &dir.join(&e.name), 1 << 30).unwrap();
            (e.name.into_string().unwrap(), content)
        })
        .collect()
}

/// The `directory.id` of a directory of [`format_dirs`].
pub fn directory_id(dir: &str) -> protocol::Uuid {
    let mut id = [7; 16];
    id[15] = dir.bytes().last().unwrap_or(0);
    protocol::Uuid(id)
}

/// Makes directories with `meta.properties`, durably.
pub fn format_dirs(sim: &Sim, dirs: &[&str]) {
    for dir in dirs {
        let path = Path::new(dir);
        sim.fs.create_dir_all(path).unwrap();
        let id = directory_id(dir);
        let text = format!("version=1\nnode.id=1\ndirectory.id={id}\ncluster.id=AAAAAAAAAAAAAAAAAAAABA\n");
        env::write_atomic(&*sim.fs, &path.join("meta.properties"), text.as_bytes(), true).unwrap();
    }
    sim.fs.sync_dir(Path::new("/")).unwrap();
}
