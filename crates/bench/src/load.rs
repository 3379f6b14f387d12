//! The load: librdkafka producing, consuming, and sending one record per request at a steady rate.

use crate::wire::Result;
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A batch's size: full batches whatever the machine's speed, so that runs send the same requests.
const BATCH_BYTES: &str = "65536";
/// Long enough to fill a batch on a slow machine.
const LINGER_MS: &str = "200";
const TIMEOUT: Duration = Duration::from_secs(300);

fn config(port: u16) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", format!("127.0.0.1:{port}")).set("log_level", "0");
    config
}

/// Payloads that do not compress and differ from each other.
fn payload(size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..size).map(next).collect()
}

#[derive(Default)]
struct Failures(AtomicU64);

impl ClientContext for Failures {}

impl ProducerContext for Failures {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_err() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Produces `count` records of `size` bytes round robin; the time until the last acknowledgement.
pub fn produce(port: u16, topic: &str, partitions: i32, size: usize, count: u64) -> Result<Duration> {
    let mut config = config(port);
    config
        .set("acks", "all")
        .set("linger.ms", LINGER_MS)
        .set("batch.size", BATCH_BYTES)
        .set("queue.buffering.max.messages", "1000000")
        .set("queue.buffering.max.kbytes", "131072");
    let producer: BaseProducer<Failures> = config.create_with_context(Failures::default())?;
    let payload = payload(size + 256);
    let begin = Instant::now();
    for i in 0..count {
        let at = (i % 256) as usize;
        let mut record: BaseRecord<'_, (), [u8]> =
            BaseRecord::to(topic).payload(&payload[at..at + size]).partition((i % partitions as u64) as i32);
        while let Err((error, again)) = producer.send(record) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(error.into());
            }
            producer.poll(Duration::from_millis(5));
            record = again;
        }
        if i % 1024 == 0 {
            producer.poll(Duration::ZERO);
        }
    }
    producer.flush(TIMEOUT)?;
    match producer.context().0.load(Ordering::Relaxed) {
        0 => Ok(begin.elapsed()),
        failed => Err(format!("{failed} records were not acknowledged").into()),
    }
}

fn assigned(config: &mut ClientConfig, topic: &str, partitions: i32, from: Offset) -> Result<BaseConsumer> {
    let consumer: BaseConsumer =
        config.set("group.id", "bench").set("enable.auto.commit", "false").create()?;
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        list.add_partition_offset(topic, partition, from)?;
    }
    consumer.assign(&list)?;
    Ok(consumer)
}

/// Consumes `count` records from the beginning; the time that took.
pub fn consume(port: u16, topic: &str, partitions: i32, count: u64) -> Result<Duration> {
    let begin = Instant::now();
    let consumer = assigned(&mut config(port), topic, partitions, Offset::Beginning)?;
    let mut seen = 0;
    while seen < count {
        match consumer.poll(Duration::from_secs(1)) {
            Some(Ok(_)) => seen += 1,
            Some(Err(error)) => return Err(error.into()),
            None if begin.elapsed() > TIMEOUT => return Err(format!("only {seen} of {count} came").into()),
            None => {}
        }
    }
    Ok(begin.elapsed())
}

/// Latencies in microseconds, sorted.
pub struct Latencies(Vec<u32>);

impl Latencies {
    pub fn new(mut micros: Vec<u32>) -> Self {
        micros.sort_unstable();
        Self(micros)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Milliseconds.
    pub fn percentile(&self, percent: f64) -> f64 {
        let rank = (self.0.len() as f64 * percent / 100.0).ceil() as usize;
        let index = rank.saturating_sub(1).min(self.0.len().saturating_sub(1));
        self.0.get(index).map_or(0.0, |micros| f64::from(*micros) / 1000.0)
    }
}

struct Acks {
    begin: Instant,
    /// When each record was handed over, and how long its acknowledgement took.
    micros: Mutex<Vec<u32>>,
    failed: AtomicU64,
}

impl ClientContext for Acks {}

impl ProducerContext for Acks {
    type DeliveryOpaque = Box<u64>;

    fn delivery(&self, result: &DeliveryResult<'_>, sent_at: Box<u64>) {
        let now = self.begin.elapsed().as_nanos() as u64;
        if result.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        if let Ok(mut micros) = self.micros.lock() {
            micros.push(((now - *sent_at) / 1000) as u32);
        }
    }
}

/// What a steady run measured.
pub struct Steady {
    pub ack: Latencies,
    pub end_to_end: Latencies,
}

/// Sends one record per request at `rate` per second while a consumer reads them as they come.
pub fn one_record_requests(
    port: u16,
    topic: &str,
    size: usize,
    rate: u64,
    lasting: Duration,
    consume: bool,
) -> Result<Steady> {
    let begin = Instant::now();
    let done = Arc::new(AtomicBool::new(false));
    let count = rate * lasting.as_millis() as u64 / 1000;
    let reader = consume.then(|| {
        let (done, topic) = (done.clone(), topic.to_owned());
        std::thread::spawn(move || read_steadily(port, &topic, begin, count, &done))
    });
    let acks = Acks { begin, micros: Mutex::default(), failed: AtomicU64::new(0) };
    let mut config = config(port);
    config
        .set("acks", "all")
        .set("linger.ms", "0")
        .set("batch.num.messages", "1")
        .set("socket.nagle.disable", "true");
    // Its own thread serves acknowledgements as they come.
    let producer: ThreadedProducer<Acks> = config.create_with_context(acks)?;
    producer.client().fetch_metadata(Some(topic), TIMEOUT)?;
    // The consumer's first fetch should be there before the first record.
    std::thread::sleep(Duration::from_millis(700));
    let start = Instant::now();
    let mut bytes = payload(size);
    for i in 0..count {
        let due = start + Duration::from_nanos(i * 1_000_000_000 / rate);
        while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            std::thread::sleep(left);
        }
        let sent_at = begin.elapsed().as_nanos() as u64;
        bytes[..8].copy_from_slice(&sent_at.to_le_bytes());
        let record: BaseRecord<'_, (), [u8], Box<u64>> =
            BaseRecord::with_opaque_to(topic, Box::new(sent_at)).payload(bytes.as_slice()).partition(0);
        producer.send(record).map_err(|(error, _)| error)?;
    }
    producer.flush(TIMEOUT)?;
    done.store(true, Ordering::Release);
    let end_to_end = match reader {
        Some(reader) => reader.join().map_err(|_| "the reader failed")??,
        None => Vec::new(),
    };
    let context = producer.context();
    if context.failed.load(Ordering::Relaxed) > 0 {
        return Err("a record was not acknowledged".into());
    }
    let micros = context.micros.lock().map_err(|_| "poisoned")?.clone();
    Ok(Steady { ack: Latencies::new(micros), end_to_end: Latencies::new(end_to_end) })
}

fn read_steadily(port: u16, topic: &str, begin: Instant, count: u64, done: &AtomicBool) -> Result<Vec<u32>> {
    let mut config = config(port);
    config.set("socket.nagle.disable", "true").set("fetch.queue.backoff.ms", "0");
    let consumer = assigned(&mut config, topic, 1, Offset::End)?;
    let mut micros = Vec::with_capacity(count as usize);
    let mut quiet_since = Instant::now();
    while (micros.len() as u64) < count {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                let sent_at = message.payload().and_then(|p| p.first_chunk::<8>()).ok_or("short record")?;
                let now = begin.elapsed().as_nanos() as u64;
                micros.push((now.saturating_sub(u64::from_le_bytes(*sent_at)) / 1000) as u32);
                quiet_since = Instant::now();
            }
            Some(Err(error)) => return Err(error.into()),
            None if done.load(Ordering::Acquire) && quiet_since.elapsed() > Duration::from_secs(5) => break,
            None => {}
        }
    }
    Ok(micros)
}
