//! Fetching: sessions with each leader (KIP-227), and turning answers into records.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use protocol::messages::fetch_response::PartitionData;
use protocol::messages::{FetchRequest, FetchResponse};
use protocol::{Records, Uuid};
use record::record::OwnedHeader;
use record::{Batches, ControlRecordType, TimestampType, TopicPartition};

use super::config::ConsumerConfig;
use crate::error::{ApiError, ClientError};

/// A batch is decompressed to at most this size; no broker accepts larger ones.
const MAX_DECOMPRESSED_BYTES: usize = 1 << 30;

/// A record as it is handed out; key, value and header values are slices of the fetched batch.
#[derive(Clone, Debug, PartialEq)]
pub struct ConsumerRecord {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
    pub timestamp: i64,
    pub timestamp_type: TimestampType,
    pub leader_epoch: i32,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<OwnedHeader>,
}

/// What is asked of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) topic_id: Uuid,
    pub(super) offset: i64,
    pub(super) leader_epoch: i32,
    /// Tells answers of an earlier assignment or position from those of this one.
    pub(super) epoch: u64,
}

/// The session with one node: what it has been told, so that only changes are sent.
#[derive(Debug, Default)]
pub(super) struct FetchSession {
    id: i32,
    epoch: i32,
    known: BTreeMap<TopicPartition, Wanted>,
}

impl FetchSession {
    /// The next request of the session for `wanted`.
    pub(super) fn request(
        &mut self,
        wanted: &BTreeMap<TopicPartition, Wanted>,
        config: &ConsumerConfig,
    ) -> FetchRequest {
        let full = self.epoch == 0;
        let is_new =
            |partition: &TopicPartition, want: &Wanted| full || self.known.get(partition) != Some(want);
        let mut topics: BTreeMap<(Arc<str>, Uuid), Vec<FetchPartition>> = BTreeMap::new();
        for (partition, want) in wanted.iter().filter(|(partition, want)| is_new(partition, want)) {
            topics.entry((Arc::clone(&partition.topic), want.topic_id)).or_default().push(FetchPartition {
                partition: partition.partition,
                current_leader_epoch: want.leader_epoch,
                fetch_offset: want.offset,
                last_fetched_epoch: -1,
                log_start_offset: -1,
                partition_max_bytes: config.max_partition_fetch_bytes,
                ..Default::default()
            });
        }
        let mut forgotten: BTreeMap<(Arc<str>, Uuid), Vec<i32>> = BTreeMap::new();
        for (partition, old) in &self.known {
            let moved = wanted.get(partition).is_none_or(|want| want.topic_id != old.topic_id);
            if !full && moved {
                forgotten
                    .entry((Arc::clone(&partition.topic), old.topic_id))
                    .or_default()
                    .push(partition.partition);
            }
        }
        self.known.clone_from(wanted);
        FetchRequest {
            max_wait_ms: i32::try_from(config.fetch_max_wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: config.fetch_min_bytes,
            max_bytes: config.fetch_max_bytes,
            isolation_level: config.isolation_level(),
            session_id: self.id,
            session_epoch: self.epoch,
            topics: topics
                .into_iter()
                .map(|((topic, topic_id), partitions)| FetchTopic {
                    topic: topic.to_string(),
                    topic_id,
                    partitions,
                })
                .collect(),
            forgotten_topics_data: forgotten
                .into_iter()
                .map(|((topic, topic_id), partitions)| ForgottenTopic {
                    topic: topic.to_string(),
                    topic_id,
                    partitions,
                })
                .collect(),
            rack_id: config.client_rack.clone(),
            ..Default::default()
        }
    }

    /// Follows the answer; the codes about the session start a new one with the next request.
    pub(super) fn answered(&mut self, response: &FetchResponse) -> Result<(), ClientError> {
        match ApiError::check(response.error_code, None) {
            Ok(()) if response.session_id == 0 => self.reset(),
            Ok(()) => {
                self.id = response.session_id;
                self.epoch = if self.epoch == i32::MAX { 1 } else { self.epoch + 1 };
            }
            Err(error) => {
                self.reset();
                return Err(error.into());
            }
        }
        Ok(())
    }

    pub(super) fn reset(&mut self) {
        *self = FetchSession::default();
    }
}

/// Records of one partition's answer from `offset` on, and where the next fetch goes on.
pub(super) fn records_of(
    partition: &TopicPartition,
    data: &PartitionData,
    offset: i64,
    config: &ConsumerConfig,
) -> Result<(VecDeque<ConsumerRecord>, i64), ClientError> {
    let corrupt = |error: record::RecordError| {
        ClientError::Api(ApiError::new(protocol::ErrorCode::CORRUPT_MESSAGE, Some(error.to_string())))
    };
    let Some(Records::Bytes(bytes)) = &data.records else { return Ok((VecDeque::new(), offset)) };
    let mut aborted: VecDeque<(i64, i64)> = data
        .aborted_transactions
        .iter()
        .flatten()
        .map(|transaction| (transaction.first_offset, transaction.producer_id))
        .collect();
    aborted.make_contiguous().sort_unstable();
    let mut aborting: BTreeSet<i64> = BTreeSet::new();
    let mut records = VecDeque::new();
    let mut next = offset;
    for batch in Batches::new(bytes) {
        let batch = batch.map_err(corrupt)?;
        let header = batch.header();
        if config.check_crcs {
            batch.ensure_valid().map_err(corrupt)?;
        }
        while aborted.front().is_some_and(|(first, _)| *first <= header.last_offset()) {
            aborting.extend(aborted.pop_front().map(|(_, producer)| producer));
        }
        let wanted = header.last_offset() >= offset;
        if header.is_control_batch() {
            if is_abort(&batch, bytes).map_err(corrupt)? {
                aborting.remove(&header.producer_id);
            }
        } else if wanted
            && !(config.read_committed && header.is_transactional() && aborting.contains(&header.producer_id))
        {
            let owned = batch
                .owned_records(bytes, &compression::KafkaCodecs, MAX_DECOMPRESSED_BYTES)
                .map_err(corrupt)?;
            records.extend(owned.into_iter().filter(|record| record.offset >= offset).map(|record| {
                ConsumerRecord {
                    topic: Arc::clone(&partition.topic),
                    partition: partition.partition,
                    offset: record.offset,
                    timestamp: record.timestamp,
                    timestamp_type: header.timestamp_type(),
                    leader_epoch: header.partition_leader_epoch,
                    key: record.key,
                    value: record.value,
                    headers: record.headers,
                }
            }));
        }
        if wanted {
            next = header.next_offset();
        }
    }
    Ok((records, next))
}

fn is_abort(batch: &record::RecordBatch<'_>, bytes: &Bytes) -> Result<bool, record::RecordError> {
    let records = batch.owned_records(bytes, &compression::KafkaCodecs, MAX_DECOMPRESSED_BYTES)?;
    let Some(key) = records.first().and_then(|record| record.key.as_deref()) else { return Ok(false) };
    Ok(ControlRecordType::parse(key)? == ControlRecordType::Abort)
}
