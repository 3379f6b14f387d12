//! Kills a broker process at random times under load and checks what it serves after each start; `cargo xtask crash`.
//!
//!   crash BINARY WORKDIR PORT RUNS SEED
//!
//! Two idempotent producers and a group consumer live through all runs. After each start: every acknowledged record is
//! at the offset it was acknowledged with, no record is there twice, each producer's records are in order in each
//! partition, offsets by timestamp are right, and the group's committed offsets are the last acknowledged ones.
//! Exit code 1 when any of it fails; the data directory is left in WORKDIR.

#![allow(clippy::disallowed_methods, reason = "a load runs on real time and ends processes")]

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use client::consumer::{Consumer, ConsumerConfig, Position};
use client::offsets::fetch_committed;
use client::producer::{Delivery, Producer, ProducerConfig, ProducerRecord};
use client::{ClientConfig, Cluster, Target};
use protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::{CreateTopicsRequest, ListOffsetsRequest};
use record::TopicPartition;

const TOPIC: &str = "load";
const GROUP: &str = "crash-group";
const PARTITIONS: i32 = 4;
const PRODUCERS: u64 = 2;
const READY: &str = "Kafka Server started";

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What the load knows to be true.
#[derive(Default)]
struct Known {
    /// Offset that each record was acknowledged with.
    acknowledged: HashMap<u64, (i32, i64)>,
    /// Offsets whose commit was acknowledged, and those whose commit was sent.
    committed: BTreeMap<i32, i64>,
    sent_commit: BTreeMap<i32, i64>,
    failures: Vec<String>,
}

#[derive(Default)]
struct Shared {
    known: Mutex<Known>,
    sent: AtomicU64,
    consumed: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn fail(&self, what: String) {
        eprintln!("FAILED: {what}");
        self.known().failures.push(what);
    }
}

/// A record's identity: producer, partition, number.
fn token(producer: u64, partition: i32, number: u64) -> u64 {
    producer << 56 | u64::try_from(partition).unwrap_or(0) << 48 | number
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

struct Broker {
    binary: PathBuf,
    dir: PathBuf,
    child: Option<Child>,
}

impl Broker {
    fn format(binary: &Path, dir: &Path, port: u16) -> Result<Self, Error> {
        let _ = std::fs::remove_dir_all(dir);
        std::fs::create_dir_all(dir)?;
        let properties = dir.join("server.properties");
        let controller = port + 1;
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\nlog.dirs={}\ngroup.initial.rebalance.delay.ms=0\n\
             offsets.topic.num.partitions=3\nmetadata.log.max.record.bytes.between.snapshots=5000\n",
            dir.join("data").display()
        );
        std::fs::write(&properties, text)?;
        let format = ["storage", "format", "--standalone", "-t", "5L6g3nShT-eMCtK--X86sw", "-c"];
        let status = Command::new(binary).args(format).arg(&properties).stdout(Stdio::null()).status()?;
        if !status.success() {
            return Err(format!("formatting failed: {status}").into());
        }
        Ok(Self { binary: binary.to_owned(), dir: dir.to_owned(), child: None })
    }

    async fn start(&mut self) -> Result<Duration, Error> {
        let begin = Instant::now();
        let log = self.dir.join("server.log");
        if log.exists() {
            std::fs::rename(&log, self.dir.join("server.log.before"))?;
        }
        let out = std::fs::File::create(&log)?;
        let mut child = Command::new(&self.binary)
            .arg("server")
            .arg(self.dir.join("server.properties"))
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()?;
        while !std::fs::read_to_string(&log)?.contains(READY) {
            if begin.elapsed() > Duration::from_secs(60) || child.try_wait()?.is_some() {
                let _ = child.kill();
                return Err(format!("the broker did not start:\n{}", std::fs::read_to_string(&log)?).into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.child = Some(child);
        Ok(begin.elapsed())
    }

    fn kill(&mut self) -> Result<(), Error> {
        if let Some(mut child) = self.child.take() {
            if let Some(status) = child.try_wait()? {
                return Err(format!("the broker ended by itself: {status}").into());
            }
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn config(port: u16, pairs: &[(&str, &str)]) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", format!("127.0.0.1:{port}"));
    for (name, value) in pairs {
        config.set(name, *value);
    }
    config
}

async fn produce(shared: Arc<Shared>, port: u16, producer: u64, seed: u64) -> Result<(), Error> {
    let settings =
        config(port, &[("linger.ms", "2"), ("batch.size", "4096"), ("request.timeout.ms", "10000")]);
    let told = shared.clone();
    let handler = move |delivery: &Delivery<'_>| match &delivery.result {
        Ok(()) => {
            let mut known = told.known();
            for (offset, token) in (delivery.base_offset..).zip(delivery.tokens) {
                if delivery.base_offset >= 0 {
                    known.acknowledged.insert(*token, (delivery.partition, offset));
                }
            }
        }
        Err(error) => told.fail(format!("producer {producer}: {error}")),
    };
    let producing =
        Producer::new(Cluster::new(&settings)?, ProducerConfig::from_config(&settings)?, Arc::new(handler));
    let mut random = Random(seed | 1);
    let mut number = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        for partition in 0..PARTITIONS {
            let token = token(producer, partition, number);
            let mut value = vec![b'x'; 8 + usize::try_from(random.below(900))?];
            value[..8].copy_from_slice(&token.to_be_bytes());
            let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
            let record = ProducerRecord {
                topic: TOPIC,
                partition: Some(partition),
                timestamp: now - 5_000 + i64::try_from(random.below(5_000))?,
                key: Some(b"key"),
                value: Some(&value),
                headers: &[],
            };
            producing.send(&record, token).await?;
            shared.sent.fetch_add(1, Ordering::Relaxed);
        }
        number += 1;
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
    producing.flush().await;
    producing.close().await;
    Ok(())
}

/// Reads as a member of the group and commits after each poll. Records continue where they ended, or at the last
/// commit when the group had to be joined again.
async fn consume(shared: Arc<Shared>, port: u16) -> Result<(), Error> {
    let settings = config(
        port,
        &[
            ("group.id", GROUP),
            ("auto.offset.reset", "earliest"),
            ("enable.auto.commit", "false"),
            ("fetch.max.wait.ms", "50"),
        ],
    );
    let mut consumer = Consumer::new(Cluster::new(&settings)?, ConsumerConfig::from_config(&settings)?);
    consumer.subscribe(vec![TOPIC.to_owned()]);
    let mut next: BTreeMap<i32, i64> = BTreeMap::new();
    while !shared.stop.load(Ordering::Relaxed) {
        let Ok(records) = consumer.poll(Duration::from_millis(100)).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        for record in &records {
            let expected = next.get(&record.partition).copied().unwrap_or(0);
            if record.offset != expected {
                let known = shared.known();
                let commits =
                    [&known.committed, &known.sent_commit].map(|c| c.get(&record.partition).copied());
                drop(known);
                if !commits.contains(&Some(record.offset)) {
                    shared.fail(format!(
                        "the group got offset {} of partition {} and not {expected} or a commit {commits:?}",
                        record.offset, record.partition
                    ));
                }
            }
            next.insert(record.partition, record.offset + 1);
            shared.consumed.fetch_add(1, Ordering::Relaxed);
        }
        if records.is_empty() {
            continue;
        }
        shared.known().sent_commit.extend(next.clone());
        if consumer.commit().await.is_ok() {
            shared.known().committed.extend(next.clone());
        }
    }
    consumer.close().await?;
    Ok(())
}

/// What has been read back of each partition: identity and timestamp by offset.
#[derive(Default)]
struct Content {
    records: Vec<(u64, i64)>,
    last_number: HashMap<u64, u64>,
}

struct Checker {
    cluster: Cluster,
    port: u16,
    contents: BTreeMap<i32, Content>,
    runs: u64,
}

impl Checker {
    /// Reads what is new, from a little before the known end, up to the end.
    async fn read(&mut self, shared: &Shared, overlap: usize) -> Result<(), Error> {
        let settings = config(self.port, &[("enable.auto.commit", "false"), ("fetch.max.wait.ms", "20")]);
        let mut ends = BTreeMap::new();
        for partition in 0..PARTITIONS {
            ends.insert(partition, self.list_offset(partition, -1).await?);
        }
        let mut consumer =
            Consumer::new(self.cluster.with_own_connections(), ConsumerConfig::from_config(&settings)?);
        let topic: Arc<str> = TOPIC.into();
        let partitions: Vec<TopicPartition> =
            (0..PARTITIONS).map(|partition| TopicPartition { topic: topic.clone(), partition }).collect();
        consumer.assign(&partitions);
        let mut next = BTreeMap::new();
        for partition in &partitions {
            let known = self.contents.entry(partition.partition).or_default().records.len();
            let from = i64::try_from(known.saturating_sub(overlap))?;
            consumer.seek(partition, Position::Offset(from));
            next.insert(partition.partition, from);
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while next.iter().any(|(partition, at)| *at < ends[partition]) {
            if Instant::now() > deadline {
                return Err(format!("reading back does not end: at {next:?} of {ends:?}").into());
            }
            for record in consumer.poll(Duration::from_millis(50)).await? {
                let expected = next.insert(record.partition, record.offset + 1).unwrap_or(0);
                if record.offset != expected {
                    shared.fail(format!(
                        "partition {}: offset {} follows {}",
                        record.partition,
                        record.offset,
                        expected - 1
                    ));
                }
                let value = record.value.unwrap_or_default();
                let token = value.first_chunk().map_or(u64::MAX, |bytes| u64::from_be_bytes(*bytes));
                self.note(shared, record.partition, record.offset, token, record.timestamp);
            }
        }
        consumer.close().await?;
        Ok(())
    }

    fn note(&mut self, shared: &Shared, partition: i32, offset: i64, token: u64, timestamp: i64) {
        let content = self.contents.entry(partition).or_default();
        let index = usize::try_from(offset).unwrap_or(usize::MAX);
        match content.records.get(index) {
            Some(before) if *before != (token, timestamp) => {
                shared.fail(format!("partition {partition}, offset {offset}: {before:?} became {token:x}"));
            }
            Some(_) => {}
            None => {
                content.records.push((token, timestamp));
                let (producer, number) = (token >> 48, token & 0xffff_ffff_ffff);
                let before = content.last_number.insert(producer, number);
                if before.map_or(0, |n| n + 1) != number {
                    shared.fail(format!(
                        "partition {partition}, offset {offset}: record {number} of producer {producer:x} follows {before:?}"
                    ));
                }
            }
        }
    }

    /// Everything acknowledged so far is where it was acknowledged.
    fn check_acknowledged(&self, shared: &Shared, acknowledged: &HashMap<u64, (i32, i64)>) {
        let mut missing = 0;
        for (token, (partition, offset)) in acknowledged {
            let found = self
                .contents
                .get(partition)
                .and_then(|content| content.records.get(usize::try_from(*offset).ok()?));
            if found.map(|(token, _)| token) != Some(token) {
                missing += 1;
                if missing < 4 {
                    shared.fail(format!(
                        "record {token:x} was acknowledged at {partition}/{offset}, which has {found:x?}"
                    ));
                }
            }
        }
    }

    async fn list_offset(&self, partition: i32, timestamp: i64) -> Result<i64, Error> {
        let wanted = ListOffsetsPartition { partition_index: partition, timestamp, ..Default::default() };
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic { name: TOPIC.into(), partitions: vec![wanted] }],
            ..Default::default()
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let answer = match self.cluster.connection(Target::Any).await {
                Ok(connection) => connection.send_version(&request, 7).await,
                Err(error) => Err(error),
            };
            if let Ok(answer) = &answer
                && let Some(found) = answer.topics.first().and_then(|topic| topic.partitions.first())
                && found.error_code == 0
            {
                return Ok(found.offset);
            }
            if Instant::now() > deadline {
                return Err(format!("ListOffsets of partition {partition} fails: {answer:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The first record, in offset order, with at least a timestamp.
    async fn check_timestamps(&self, shared: &Shared, random: &mut Random) -> Result<(), Error> {
        for (partition, content) in &self.contents {
            let Some(len) = u64::try_from(content.records.len()).ok().filter(|len| *len > 0) else {
                continue;
            };
            let (_, timestamp) = content.records[usize::try_from(random.below(len))?];
            let expected = content.records.iter().position(|(_, t)| *t >= timestamp);
            let found = self.list_offset(*partition, timestamp).await?;
            if expected.map(i64::try_from).transpose()? != Some(found) {
                shared
                    .fail(format!("partition {partition}: time {timestamp} is at {found}, not {expected:?}"));
            }
        }
        Ok(())
    }

    async fn check_commits(&self, shared: &Shared, before: &BTreeMap<i32, i64>) -> Result<(), Error> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let found = loop {
            match fetch_committed(&self.cluster, GROUP, None, false).await {
                Ok(found) => break found,
                Err(error) if Instant::now() > deadline => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        for (partition, offset) in before {
            let key = TopicPartition { topic: TOPIC.into(), partition: *partition };
            let found = found.get(&key).map(|committed| committed.offset);
            if found.is_none_or(|found| found < *offset) {
                shared.fail(format!("partition {partition}: committed {offset}, found {found:?}"));
            }
        }
        Ok(())
    }
}

async fn create_topic(cluster: &Cluster) -> Result<(), Error> {
    let setting =
        |name: &str, value: &str| CreatableTopicConfig { name: name.into(), value: Some(value.into()) };
    let topic = CreatableTopic {
        name: TOPIC.into(),
        num_partitions: PARTITIONS,
        replication_factor: 1,
        configs: vec![setting("segment.bytes", "1048576"), setting("index.interval.bytes", "512")],
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..Default::default() };
    let answer = cluster.send(Target::Any, &request).await?;
    match answer.topics.first().map(|topic| topic.error_code) {
        Some(0) => Ok(()),
        other => Err(format!("the topic cannot be made: {other:?}").into()),
    }
}

async fn run(binary: &Path, dir: &Path, port: u16, runs: u64, seed: u64) -> Result<bool, Error> {
    let mut broker = Broker::format(binary, dir, port)?;
    broker.start().await?;
    let settings = config(port, &[("request.timeout.ms", "10000")]);
    let cluster = Cluster::new(&settings)?;
    create_topic(&cluster).await?;
    let shared = Arc::new(Shared::default());
    let mut tasks: Vec<_> = (0..PRODUCERS)
        .map(|producer| tokio::spawn(produce(shared.clone(), port, producer, seed + producer)))
        .collect();
    tasks.push(tokio::spawn(consume(shared.clone(), port)));
    let mut random = Random(seed | 1);
    let mut checker = Checker { cluster, port, contents: BTreeMap::new(), runs: 0 };
    let mut starts = Vec::new();
    for _ in 0..runs {
        tokio::time::sleep(Duration::from_millis(200 + random.below(700))).await;
        broker.kill()?;
        let (acknowledged, committed) = {
            let known = shared.known();
            (known.acknowledged.clone(), known.committed.clone())
        };
        starts.push(broker.start().await?);
        checker.read(&shared, 500).await?;
        checker.check_acknowledged(&shared, &acknowledged);
        checker.check_timestamps(&shared, &mut random).await?;
        checker.check_commits(&shared, &committed).await?;
        checker.runs += 1;
    }
    shared.stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await??;
    }
    checker.read(&shared, usize::MAX).await?;
    let known = std::mem::take(&mut *shared.known());
    checker.check_acknowledged(&shared, &known.acknowledged);
    checker.check_commits(&shared, &known.committed).await?;
    let records: usize = checker.contents.values().map(|content| content.records.len()).sum();
    let sent = shared.sent.load(Ordering::Relaxed);
    starts.sort();
    println!(
        "crash: {} kills, seed {seed}: {sent} records sent, {} acknowledged, {records} in the log, {} consumed by the group; \
         restart median {} ms, longest {} ms; {} failures",
        checker.runs,
        known.acknowledged.len(),
        shared.consumed.load(Ordering::Relaxed),
        starts.get(starts.len() / 2).map_or(0, Duration::as_millis),
        starts.last().map_or(0, Duration::as_millis),
        known.failures.len() + shared.known().failures.len()
    );
    Ok(known.failures.is_empty() && shared.known().failures.is_empty() && u64::try_from(records)? == sent)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [binary, dir, port, runs, seed] = args.as_slice() else {
        eprintln!("usage: crash BINARY WORKDIR PORT RUNS SEED");
        return ExitCode::FAILURE;
    };
    let (Ok(port), Ok(runs), Ok(seed)) = (port.parse(), runs.parse(), seed.parse()) else {
        eprintln!("PORT, RUNS and SEED are numbers");
        return ExitCode::FAILURE;
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(Path::new(binary), Path::new(dir), port, runs, seed)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
