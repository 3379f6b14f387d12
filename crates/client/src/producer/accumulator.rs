//! The producer's state between `send` and the network: batches per partition, sequences, memory.
//!
//! A plain value, driven by `append`, `drain`, and the `complete_*` methods with the time as an argument; it does no I/O.
//! Invariants: batches of a partition leave in the order they were filled; with idempotence a batch keeps its sequence
//! through every retry, retried batches go before new ones, and a partition has at most `max_in_flight` batches under
//! way; `buffered` is the sum of the sizes of all batches that have not completed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use protocol::messages::MetadataResponse;
use protocol::{ErrorCode, Uuid};
use record::{BatchHeader, BatchOptions, Codecs, Header, RecordBatch, RecordBatchBuilder};
use tokio::time::Instant;

use super::config::ProducerConfig;
use super::partitioner::{Sticky, partition_of_key};
use crate::error::{ApiError, ClientError};

/// A batch to split came from this process; the bound only guards against a bug.
const MAX_SPLIT_BYTES: usize = 1 << 30;

/// A record on its way in; the timestamp is in milliseconds since the epoch.
#[derive(Clone, Copy, Debug)]
pub struct ProducerRecord<'a> {
    pub topic: &'a str,
    pub partition: Option<i32>,
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [Header<'a>],
}

/// What became of a batch; `tokens` are those given with its records, in their order.
#[derive(Debug)]
pub struct Delivery<'a> {
    pub topic: &'a str,
    pub partition: i32,
    /// Offset of the first record, -1 when the broker did not say.
    pub base_offset: i64,
    pub tokens: &'a [u64],
    pub result: Result<(), &'a ClientError>,
}

#[derive(Debug)]
pub(super) struct Batch {
    builder: Option<RecordBatchBuilder>,
    encoded: Bytes,
    pub(super) tokens: Vec<u64>,
    created: Instant,
    size: usize,
    base_sequence: Option<i32>,
    attempts: u32,
    not_before: Option<Instant>,
}

/// A batch under way, with where it belongs.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) topic: Arc<str>,
    pub(super) topic_id: Uuid,
    pub(super) partition: i32,
    pub(super) records: Bytes,
    pub(super) batch: Batch,
}

#[derive(Debug, Default)]
struct Partition {
    leader: Option<i32>,
    queue: VecDeque<Batch>,
    in_flight: usize,
    next_sequence: i32,
    /// The sequence that the oldest unacknowledged batch has.
    expected_sequence: i32,
    /// Producer id and epoch of the sequences above.
    producer: Option<(i64, i16)>,
}

impl Partition {
    fn forget_sequences(&mut self) {
        self.producer = None;
        for batch in &mut self.queue {
            batch.base_sequence = None;
        }
    }
}

#[derive(Debug)]
struct Topic {
    id: Uuid,
    partitions: Vec<Partition>,
    sticky: Sticky,
}

#[derive(Debug)]
pub(super) struct Accumulator {
    config: ProducerConfig,
    topics: BTreeMap<Arc<str>, Topic>,
    node_in_flight: BTreeMap<i32, usize>,
    buffered: usize,
    incomplete: usize,
    flushing: usize,
    closing: bool,
    producer: Option<(i64, i16)>,
    pub(super) metadata_wanted: bool,
    seed: u64,
}

impl Topic {
    /// The partition for a record, and whether it is the sticky one.
    fn choose(&mut self, record: &ProducerRecord<'_>, ignore_keys: bool) -> Result<(usize, bool), Refusal> {
        let count = self.partitions.len();
        match (record.partition, record.key) {
            (Some(partition), _) => {
                let index = usize::try_from(partition).ok().filter(|index| *index < count);
                Ok((index.ok_or(Refusal::NoSuchPartition(partition))?, false))
            }
            (None, Some(key)) if !ignore_keys => Ok((partition_of_key(key, count), false)),
            _ => {
                let available = |(index, partition): (usize, &Partition)| partition.leader.map(|_| index);
                let available: Vec<usize> =
                    self.partitions.iter().enumerate().filter_map(available).collect();
                Ok((self.sticky.partition(count, &available), true))
            }
        }
    }
}

/// Why a record was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    UnknownTopic,
    NoMemory,
    TooLarge(usize),
    NoSuchPartition(i32),
}

impl Accumulator {
    pub(super) fn new(config: ProducerConfig, seed: u64) -> Self {
        Accumulator {
            config,
            topics: BTreeMap::new(),
            node_in_flight: BTreeMap::new(),
            buffered: 0,
            incomplete: 0,
            flushing: 0,
            closing: false,
            producer: None,
            metadata_wanted: false,
            seed,
        }
    }

    pub(super) fn topic_names(&self) -> Vec<String> {
        self.topics.keys().map(|name| name.to_string()).collect()
    }

    pub(super) fn incomplete(&self) -> usize {
        self.incomplete
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    pub(super) fn flush_started(&mut self) {
        self.flushing += 1;
    }

    pub(super) fn flush_ended(&mut self) {
        self.flushing -= 1;
    }

    pub(super) fn has_producer_id(&self) -> bool {
        self.producer.is_some()
    }

    pub(super) fn set_producer(&mut self, id: i64, epoch: i16) {
        self.producer = Some((id, epoch));
    }

    /// Takes leaders and partition counts from an answer.
    pub(super) fn update_metadata(&mut self, metadata: &MetadataResponse) {
        for answer in metadata.topics.iter().filter(|topic| topic.error_code == 0) {
            let name: Arc<str> = answer.name.as_deref().unwrap_or_default().into();
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let seed = self.seed;
            let topic = self.topics.entry(name).or_insert_with(|| Topic {
                id: answer.topic_id,
                partitions: Vec::new(),
                sticky: Sticky::new(seed),
            });
            topic.id = answer.topic_id;
            for partition in &answer.partitions {
                let Ok(index) = usize::try_from(partition.partition_index) else { continue };
                if topic.partitions.len() <= index {
                    topic.partitions.resize_with(index + 1, Partition::default);
                }
                topic.partitions[index].leader = (partition.leader_id >= 0).then_some(partition.leader_id);
            }
        }
    }

    /// Adds a record to its partition's last batch. Says whether the sender has something to do now.
    pub(super) fn append(
        &mut self,
        record: &ProducerRecord<'_>,
        token: u64,
        now: Instant,
    ) -> Result<bool, Refusal> {
        let config = &self.config;
        let Some(topic) = self.topics.get_mut(record.topic) else { return Err(Refusal::UnknownTopic) };
        if topic.partitions.is_empty() {
            return Err(Refusal::UnknownTopic);
        }
        let (index, sticky) = topic.choose(record, config.ignore_keys)?;
        let partition = &mut topic.partitions[index];
        let (size, fits) = match partition.queue.back().and_then(|batch| batch.builder.as_ref()) {
            Some(builder) => {
                let size = builder.size_with(record.timestamp, record.key, record.value, record.headers);
                (size - builder.uncompressed_size(), size <= config.batch_size)
            }
            None => (0, false),
        };
        let added = if fits {
            size
        } else {
            let empty = RecordBatchBuilder::with_buffer(BatchOptions::default(), Vec::new());
            empty.size_with(record.timestamp, record.key, record.value, record.headers)
        };
        if added > config.max_request_size {
            return Err(Refusal::TooLarge(added));
        }
        if self.buffered + added > config.buffer_memory.max(added) {
            return Err(Refusal::NoMemory);
        }
        let was_waiting = !partition.queue.is_empty();
        if !fits {
            let options = BatchOptions { compression: config.compression, ..Default::default() };
            let capacity = config.batch_size.max(added).min(1 << 20);
            partition.queue.push_back(Batch {
                builder: Some(RecordBatchBuilder::with_buffer(options, Vec::with_capacity(capacity))),
                encoded: Bytes::new(),
                tokens: Vec::new(),
                created: now,
                size: 0,
                base_sequence: None,
                attempts: 0,
                not_before: None,
            });
            self.incomplete += 1;
        }
        let Some(batch) = partition.queue.back_mut() else { return Err(Refusal::UnknownTopic) };
        let Some(builder) = batch.builder.as_mut() else { return Err(Refusal::UnknownTopic) };
        if builder.append(record.timestamp, record.key, record.value, record.headers).is_err() {
            return Err(Refusal::TooLarge(added));
        }
        batch.tokens.push(token);
        batch.size += added;
        self.buffered += added;
        let full = batch.size >= config.batch_size;
        if sticky {
            topic.sticky.written(added, config.batch_size);
        }
        Ok(full || !was_waiting || !fits)
    }

    /// Takes what may be sent now, by node, and says when to look again.
    pub(super) fn drain(
        &mut self,
        now: Instant,
        codecs: &dyn Codecs,
        memory_wanted: bool,
        is_connected: &mut dyn FnMut(i32) -> bool,
    ) -> (BTreeMap<i32, Vec<Sent>>, Option<Instant>) {
        let mut ready: BTreeMap<i32, Vec<Sent>> = BTreeMap::new();
        let mut sizes: BTreeMap<i32, usize> = BTreeMap::new();
        let mut next: Option<Instant> = None;
        let urgent = memory_wanted || self.closing || self.flushing > 0;
        let wait_for_producer_id = self.config.enable_idempotence && self.producer.is_none();
        for (name, topic) in &mut self.topics {
            for (index, partition) in topic.partitions.iter_mut().enumerate() {
                let several = partition.queue.len() > 1;
                let Some(head) = partition.queue.front() else { continue };
                let Some(leader) = partition.leader else {
                    self.metadata_wanted = true;
                    continue;
                };
                let due = match (head.not_before, head.base_sequence) {
                    (Some(at), _) => at,
                    (None, Some(_)) => now,
                    (None, None) if urgent || several || head.size >= self.config.batch_size => now,
                    (None, None) => head.created + self.config.linger,
                };
                if due > now {
                    next = Some(next.map_or(due, |at| at.min(due)));
                    continue;
                }
                if !is_connected(leader) {
                    continue;
                }
                // One batch under way per partition when order matters and a retry is pending; else up to the limit.
                let blocked = wait_for_producer_id
                    || partition.in_flight >= self.config.max_in_flight
                    || (head.attempts > 0 && partition.in_flight > 0)
                    || self.node_in_flight.get(&leader).copied().unwrap_or(0) >= self.config.max_in_flight;
                let size = sizes.entry(leader).or_default();
                if blocked || (*size > 0 && *size + head.size > self.config.max_request_size) {
                    continue;
                }
                let Some(batch) = partition.queue.pop_front() else { continue };
                *size += batch.size;
                let Some(sent) = prepare(partition, batch, self.producer, &self.config, codecs) else {
                    continue;
                };
                let (records, batch) = sent;
                partition.in_flight += 1;
                ready.entry(leader).or_default().push(Sent {
                    topic: Arc::clone(name),
                    topic_id: topic.id,
                    partition: i32::try_from(index).unwrap_or(i32::MAX),
                    records,
                    batch,
                });
            }
        }
        for leader in ready.keys() {
            *self.node_in_flight.entry(*leader).or_default() += 1;
        }
        (ready, next)
    }

    /// A request to `node` has ended, with or without an answer.
    pub(super) fn request_ended(&mut self, node: i32) {
        if let Some(count) = self.node_in_flight.get_mut(&node) {
            *count = count.saturating_sub(1);
        }
    }

    /// Decides what becomes of a batch whose request failed or was answered with an error: `Some` gives it back to
    /// its owner with the error, `None` means that it waits for another attempt.
    pub(super) fn failed(
        &mut self,
        mut sent: Sent,
        error: ClientError,
        now: Instant,
    ) -> Option<(Sent, ClientError)> {
        let code = error.code();
        let retriable = error.is_retriable() || matches!(error, ClientError::TimedOut { .. });
        if code.is_none_or(|code| code.is_invalid_metadata()) {
            self.metadata_wanted = true;
        }
        let idempotent = self.config.enable_idempotence;
        let expired = now >= sent.batch.created + self.config.delivery_timeout;
        let attempts_left = sent.batch.attempts < self.config.retries;
        let Some(partition) = self.partition_mut(&sent) else { return Some((sent, error)) };
        partition.in_flight = partition.in_flight.saturating_sub(1);
        // An earlier batch of the partition failed, so this one came too early; it follows once that one is in.
        let too_early = idempotent
            && code == Some(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER)
            && sent.batch.base_sequence != Some(partition.expected_sequence);
        let lost_state = idempotent
            && matches!(code, Some(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER | ErrorCode::UNKNOWN_PRODUCER_ID))
            && !too_early;
        if code == Some(ErrorCode::MESSAGE_TOO_LARGE) && sent.batch.tokens.len() > 1 && !expired {
            match self.split(Box::new(sent)) {
                Ok(()) => return None,
                Err(unreadable) => sent = *unreadable,
            }
        }
        if expired || !(too_early || lost_state || (retriable && attempts_left)) {
            if sent.batch.base_sequence.is_some() {
                // Its sequences will never arrive, so those after them would be refused.
                self.bump_epoch();
            }
            return Some((sent, error));
        }
        sent.batch.attempts += 1;
        sent.batch.not_before = Some(now + self.config.retry_backoff);
        self.requeue(sent);
        if lost_state {
            self.bump_epoch();
        }
        None
    }

    /// Halves a batch that the broker finds too large; both halves keep their records' sequences.
    fn split(&mut self, sent: Box<Sent>) -> Result<(), Box<Sent>> {
        let read = || {
            let batch = RecordBatch::first(&sent.records).ok()??;
            batch.owned_records(&sent.records, &compression::KafkaCodecs, MAX_SPLIT_BYTES).ok()
        };
        let Some(records) = read().filter(|records| records.len() == sent.batch.tokens.len()) else {
            return Err(sent);
        };
        let middle = records.len() / 2;
        let mut halves = Vec::new();
        for (start, end) in [(0, middle), (middle, records.len())] {
            let options = BatchOptions { compression: self.config.compression, ..Default::default() };
            let mut builder = RecordBatchBuilder::new(options);
            for record in records.get(start..end).unwrap_or_default() {
                let header =
                    |header: &record::record::OwnedHeader| (header.key.clone(), header.value.clone());
                let headers: Vec<(String, Option<Bytes>)> = record.headers.iter().map(header).collect();
                let headers: Vec<Header<'_>> =
                    headers.iter().map(|(key, value)| Header::new(key, value.as_deref())).collect();
                let (key, value) = (record.key.as_deref(), record.value.as_deref());
                if builder.append(record.timestamp, key, value, &headers).is_err() {
                    return Err(sent);
                }
            }
            let tokens = sent.batch.tokens.get(start..end).unwrap_or_default().to_vec();
            halves.push(Batch {
                builder: Some(builder),
                encoded: Bytes::new(),
                size: sent.batch.size * tokens.len() / records.len(),
                tokens,
                created: sent.batch.created,
                base_sequence: sent.batch.base_sequence.map(|base| advance(base, start)),
                attempts: sent.batch.attempts + 1,
                not_before: None,
            });
        }
        let total: usize = halves.iter().map(|half| half.size).sum();
        self.buffered = self.buffered.saturating_sub(sent.batch.size.saturating_sub(total));
        self.incomplete += 1;
        if let Some(partition) = self.partition_mut(&sent) {
            for half in halves.into_iter().rev() {
                partition.queue.push_front(half);
            }
        }
        Ok(())
    }

    /// Puts a batch back before all that follow it.
    fn requeue(&mut self, sent: Sent) {
        let sequence = sent.batch.base_sequence;
        let mut batch = sent;
        let records = std::mem::take(&mut batch.records);
        if let Some(partition) = self.partition_mut(&batch) {
            batch.batch.encoded = records;
            let after = |other: &Batch| match (other.base_sequence, sequence) {
                (Some(other), Some(own)) => other > own,
                (None, _) => true,
                (Some(_), None) => false,
            };
            let at = partition.queue.iter().position(after).unwrap_or(partition.queue.len());
            partition.queue.insert(at, batch.batch);
        }
    }

    /// The broker has forgotten this producer: sequences start again at 0 under the next epoch (KIP-360).
    fn bump_epoch(&mut self) {
        self.producer = match self.producer {
            Some((id, epoch)) if epoch < i16::MAX => Some((id, epoch + 1)),
            _ => None,
        };
        for topic in self.topics.values_mut() {
            for partition in topic.partitions.iter_mut().filter(|partition| partition.in_flight == 0) {
                partition.forget_sequences();
            }
        }
    }

    /// A batch is in: its memory is free again and the partition's next sequence is expected.
    pub(super) fn succeeded(&mut self, sent: &Sent) {
        let next = sent.batch.base_sequence.map(|base| advance(base, sent.batch.tokens.len()));
        if let Some(partition) = self.partition_mut(sent) {
            partition.in_flight = partition.in_flight.saturating_sub(1);
            if let Some(next) = next {
                partition.expected_sequence = next;
            }
        }
        self.release(sent);
    }

    /// Forgets a batch that has been given back to its owner.
    pub(super) fn release(&mut self, sent: &Sent) {
        self.buffered = self.buffered.saturating_sub(sent.batch.size);
        self.incomplete = self.incomplete.saturating_sub(1);
    }

    /// Batches whose delivery time is over before they could be sent.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<(Sent, ClientError)> {
        let limit = self.config.delivery_timeout;
        let mut expired = Vec::new();
        for (name, topic) in &mut self.topics {
            for (index, partition) in topic.partitions.iter_mut().enumerate() {
                while partition.queue.front().is_some_and(|head| now >= head.created + limit) {
                    let Some(batch) = partition.queue.pop_front() else { break };
                    let what = format!("deliver {} record(s) for {name}-{index}", batch.tokens.len());
                    let sent = Sent {
                        topic: Arc::clone(name),
                        topic_id: topic.id,
                        partition: i32::try_from(index).unwrap_or(i32::MAX),
                        records: Bytes::new(),
                        batch,
                    };
                    expired.push((sent, ClientError::TimedOut { what, after: limit }));
                }
            }
        }
        if expired.iter().any(|(sent, _)| sent.batch.base_sequence.is_some()) {
            self.bump_epoch();
        }
        expired
    }

    fn partition_mut(&mut self, sent: &Sent) -> Option<&mut Partition> {
        let index = usize::try_from(sent.partition).ok()?;
        self.topics.get_mut(&sent.topic)?.partitions.get_mut(index)
    }
}

fn advance(sequence: i32, count: usize) -> i32 {
    let next = i64::from(sequence) + i64::try_from(count).unwrap_or(0);
    (next % (i64::from(i32::MAX) + 1)) as i32
}

/// Closes a batch for the wire, or patches the sequence of one that was closed before.
fn prepare(
    partition: &mut Partition,
    mut batch: Batch,
    producer: Option<(i64, i16)>,
    config: &ProducerConfig,
    codecs: &dyn Codecs,
) -> Option<(Bytes, Batch)> {
    let mut state = None;
    if config.enable_idempotence {
        let (id, epoch) = producer?;
        if partition.producer.is_none_or(|old| old != (id, epoch) && partition.in_flight == 0) {
            partition.forget_sequences();
            partition.producer = Some((id, epoch));
            partition.next_sequence = 0;
            partition.expected_sequence = 0;
            batch.base_sequence = None;
        }
        let sequence = batch.base_sequence.unwrap_or_else(|| {
            let sequence = partition.next_sequence;
            partition.next_sequence = advance(sequence, batch.tokens.len());
            sequence
        });
        batch.base_sequence = Some(sequence);
        let (id, epoch) = partition.producer?;
        state = Some((id, epoch, sequence));
    }
    match batch.builder.take() {
        Some(mut builder) => {
            if let Some((id, epoch, sequence)) = state {
                builder.set_producer_state(id, epoch, sequence, false);
            }
            let records = builder.build(codecs).ok()?;
            Some((records, batch))
        }
        None => {
            let records = std::mem::take(&mut batch.encoded);
            Some((with_producer_state(records, state), batch))
        }
    }
}

fn with_producer_state(records: Bytes, state: Option<(i64, i16, i32)>) -> Bytes {
    let Some((id, epoch, sequence)) = state else { return records };
    let Ok(Some(mut header)) = BatchHeader::parse(&records) else { return records };
    if (header.producer_id, header.producer_epoch, header.base_sequence) == (id, epoch, sequence) {
        return records;
    }
    (header.producer_id, header.producer_epoch, header.base_sequence) = (id, epoch, sequence);
    let body = records.slice(record::RECORD_BATCH_OVERHEAD..);
    header.update_crc(&body);
    let mut patched = BytesMut::with_capacity(records.len());
    patched.extend_from_slice(&header.encode());
    patched.extend_from_slice(&body);
    patched.freeze()
}

impl Refusal {
    pub(super) fn into_error(self, config: &ProducerConfig) -> ClientError {
        match self {
            Refusal::TooLarge(size) => ApiError::new(
                ErrorCode::MESSAGE_TOO_LARGE,
                Some(format!(
                    "The message is {size} bytes when serialized which is larger than {}, which is the value of the \
                     max.request.size configuration.",
                    config.max_request_size
                )),
            )
            .into(),
            Refusal::NoSuchPartition(_) | Refusal::UnknownTopic => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.into(),
            Refusal::NoMemory => ClientError::TimedOut {
                what: "get memory of buffer.memory for a record".to_owned(),
                after: config.max_block,
            },
        }
    }
}

#[cfg(test)]
#[path = "accumulator_tests.rs"]
mod tests;
