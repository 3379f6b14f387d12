//! A node with one compacted log and a cleaner, for the tests of cleaning.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use compression::KafkaCodecs;
use env::{Clock, FileSystem};
use record::{
    AppendOrigin, BatchHeader, BatchOptions, Batches, BufferSupplier, Compression, RecordBatchBuilder, Time,
    TopicPartition,
};
use storage::{
    AppendOptions, CleanerConfig, CleanerHost, CleanerThread, CreateParams, FetchIsolation, LogConfig,
    LogManager, LogManagerConfig, UnifiedLog,
};
use testkit::{Sim, VirtualClock};

/// Sleeping passes virtual time; never to stop.
pub struct Host(pub Arc<VirtualClock>);

impl CleanerHost for Host {
    fn is_stopping(&self) -> bool {
        false
    }

    fn sleep(&self, timeout: Duration) {
        self.0.advance(timeout);
    }
}

/// One record as a consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
}

pub struct Node {
    pub sim: Sim,
    pub manager: LogManager,
    pub log: Arc<UnifiedLog>,
    pub thread: CleanerThread,
}

pub fn partition() -> TopicPartition {
    TopicPartition::new("topic", 0)
}

/// Compacted as soon as anything is dirty; small segments.
pub fn compacted() -> LogConfig {
    LogConfig {
        compact: true,
        delete: false,
        segment_size_bytes: 1 << 20,
        min_cleanable_dirty_ratio: 0.01,
        index_interval_bytes: 200,
        file_delete_delay_ms: 1000,
        ..LogConfig::default()
    }
}

pub fn manager_config(config: &LogConfig, cleaner: CleanerConfig) -> LogManagerConfig {
    LogManagerConfig {
        num_recovery_threads_per_data_dir: 1,
        default_config: Arc::new(config.clone()),
        initial_task_delay_ms: 0,
        flush_offset_checkpoint_interval_ms: 3000,
        flush_start_offset_checkpoint_interval_ms: 3000,
        cleaner,
        ..LogManagerConfig::new(vec!["/data".into()])
    }
}

impl Node {
    pub fn new(config: LogConfig) -> Node {
        let sim = Sim::new(1);
        sim.fs.create_dir_all(Path::new("/data")).unwrap();
        sim.fs.sync_dir(Path::new("/")).unwrap();
        Node::start(sim, config, CleanerConfig::default())
    }

    /// A process on a machine that may have logs already.
    pub fn start(sim: Sim, config: LogConfig, cleaner: CleanerConfig) -> Node {
        Node::try_start(sim, config, cleaner).map_err(|(_, e)| e).unwrap()
    }

    pub fn try_start(sim: Sim, config: LogConfig, cleaner: CleanerConfig) -> Result<Node, (Sim, String)> {
        let now = sim.clock.now();
        let opened = || {
            let manager = LogManager::new(sim.env(), Arc::new(KafkaCodecs), manager_config(&config, cleaner))
                .map_err(|e| e.to_string())?;
            let topic = Arc::new(config.clone());
            manager.load(now, &|_| topic.clone(), &|_| false).map_err(|e| e.to_string())?;
            let params = CreateParams { config: topic, topic_id: None, is_new: true, directory_id: None };
            let log = manager.get_or_create_log(&partition(), params, now).map_err(|e| e.to_string())?;
            Ok((manager, log))
        };
        match opened() {
            Ok((manager, log)) => Ok(Node { manager, log, thread: CleanerThread::new(0), sim }),
            Err(e) => Err((sim, e)),
        }
    }

    pub fn now(&self) -> Time {
        self.sim.clock.now()
    }

    pub fn wall_ms(&self) -> i64 {
        self.now().wall_ms
    }

    pub fn advance_ms(&self, ms: u64) {
        self.sim.clock.advance(Duration::from_millis(ms));
    }

    /// Appends records with a key, all in one batch; the high watermark follows. Returns the first offset.
    pub fn append(&self, records: &[(&str, Option<&str>)]) -> i64 {
        self.append_batch(keyed(BatchOptions::default(), self.wall_ms(), records))
    }

    pub fn append_batch(&self, batch: Bytes) -> i64 {
        self.append_from(batch, AppendOrigin::Client)
    }

    pub fn append_from(&self, batch: Bytes, origin: AppendOrigin) -> i64 {
        let options = AppendOptions { transaction_version: 0, ..AppendOptions::new(0, origin) };
        let info = self.log.append_as_leader_with(self.now(), batch, options).unwrap();
        self.log.update_high_watermark(self.log.log_end_offset());
        info.first_offset
    }

    pub fn roll(&self) {
        self.log.roll_segment(self.now()).unwrap();
    }

    /// One round of the cleaner.
    pub fn clean(&mut self) -> bool {
        let host = Host(self.sim.clock.clone());
        self.manager.run_cleaner(&mut self.thread, &host)
    }

    /// Rolls, cleans everything that can be cleaned.
    pub fn compact(&mut self) {
        self.roll();
        assert!(self.clean(), "there is something to clean");
        while self.clean() {}
        assert!(self.manager.uncleanable_partitions(self.log.log_dir()).is_empty());
    }

    pub fn batches(&self) -> Vec<BatchHeader> {
        batches_of(&self.log).iter().map(header).collect()
    }

    /// All records, markers left out, aborted ones included.
    pub fn records(&self) -> Vec<Seen> {
        batches_of(&self.log).iter().flat_map(records_of).collect()
    }

    pub fn offsets(&self) -> Vec<i64> {
        self.records().iter().map(|record| record.offset).collect()
    }

    /// What a consumer that reads from the start ends up with.
    pub fn last_values(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        last_values(&self.records())
    }

    pub fn checkpoint(&self) -> Option<i64> {
        self.manager.cleaner_checkpoint(&self.log)
    }

    pub fn files(&self) -> Vec<String> {
        let entries = self.sim.fs.list(Path::new("/data/topic-0")).unwrap();
        entries.into_iter().map(|e| e.name.into_string().unwrap()).collect()
    }
}

pub fn header(bytes: &Bytes) -> BatchHeader {
    BatchHeader::parse(bytes).unwrap().unwrap()
}

pub fn keyed(options: BatchOptions, timestamp: i64, records: &[(&str, Option<&str>)]) -> Bytes {
    let mut builder = RecordBatchBuilder::new(options);
    for (key, value) in records {
        builder.append(timestamp, Some(key.as_bytes()), value.map(str::as_bytes), &[]).unwrap();
    }
    builder.build(&KafkaCodecs).unwrap()
}

pub fn of_producer(id: i64, epoch: i16, sequence: i32, is_transactional: bool) -> BatchOptions {
    BatchOptions {
        producer_id: id,
        producer_epoch: epoch,
        base_sequence: sequence,
        is_transactional,
        ..BatchOptions::default()
    }
}

pub fn with_compression(compression: Compression) -> BatchOptions {
    BatchOptions { compression, ..BatchOptions::default() }
}

/// Reads a log from start to end as a follower would; checks what every read must hold to.
pub fn batches_of(log: &UnifiedLog) -> Vec<Bytes> {
    let (mut offset, end) = (log.log_start_offset(), log.log_end_offset());
    let mut batches: Vec<Bytes> = Vec::new();
    while offset < end {
        let info = log.read(offset, 1, FetchIsolation::LogEnd, true).unwrap();
        let Some(slice) = info.records else { break };
        let bytes = slice.read().unwrap();
        let batch = Batches::new(&bytes).next().unwrap().unwrap();
        batch.ensure_valid().unwrap();
        assert!(batch.last_offset() >= offset, "a read at {offset} gives {}", batch.last_offset());
        assert_eq!(info.fetch_offset.message_offset, batch.base_offset);
        offset = batch.next_offset();
        batches.push(bytes.slice(..batch.size_in_bytes()));
    }
    batches
}

pub fn records_of(bytes: &Bytes) -> Vec<Seen> {
    let batch = Batches::new(bytes).next().unwrap().unwrap();
    if batch.is_control_batch() {
        return Vec::new();
    }
    let mut buffers = BufferSupplier::new();
    let records = batch.records(&KafkaCodecs, &mut buffers).unwrap();
    records
        .map(|record| {
            let record = record.unwrap();
            Seen {
                offset: record.offset,
                timestamp: record.timestamp,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
            }
        })
        .collect()
}

pub fn last_values(records: &[Seen]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut values = BTreeMap::new();
    for record in records {
        let key = record.key.clone().unwrap();
        match &record.value {
            Some(value) => values.insert(key, value.clone()),
            None => values.remove(&key),
        };
    }
    values
}
