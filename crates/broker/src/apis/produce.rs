//! Produce (key 0): appends record batches to the partitions this broker leads.

use super::Answer;
use crate::context::RequestContext;
use crate::delayed_produce::{self, Unsynced};
use crate::node::Node;
use crate::partition::{AppendFailure, Partition};
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, PartitionProduceResponse, TopicProduceResponse,
};
use protocol::messages::{ProduceRequest, ProduceResponse};
use protocol::{ErrorCode, Records, Uuid};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Client id that Apache Kafka's own administration client uses; it alone may write to internal topics.
const ADMIN_CLIENT_ID: &str = "__admin_client";
/// Zstandard may be used from this version on (KIP-110).
const FIRST_ZSTD_VERSION: i16 = 7;
/// From this version on a partition's answer names the current leader when it has moved (KIP-951).
const FIRST_LEADER_HINT_VERSION: i16 = 10;
/// Topics are named by id from this version on (KIP-516).
const FIRST_TOPIC_ID_VERSION: i16 = 13;
/// A batch's size stands here and counts what follows it.
const SIZE_OFFSET: usize = 8;
const LOG_OVERHEAD: usize = 12;
const MAGIC_OFFSET: usize = 16;
/// A batch of any format is at least this long behind its size.
const MIN_RECORD_OVERHEAD: i32 = 14;
/// "No offset" and "no time" in answers.
const NONE: i64 = -1;

pub(crate) fn handle(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: ProduceRequest,
) -> Answer<ProduceResponse> {
    let by_id = context.version() >= FIRST_TOPIC_ID_VERSION;
    let transactional = request.transactional_id.is_some();
    let mut failed = false;
    let mut touched = Vec::new();
    let mut unsynced = Vec::new();
    let topic_data = unique(request.topic_data);
    if !transactional
        && topic_data.iter().flat_map(|topic| &topic.partition_data).any(has_transactional_batch)
    {
        return refuse_all(request.acks, topic_data, ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    }
    let mut responses = Vec::with_capacity(topic_data.len());
    for topic in topic_data {
        let id = if by_id { Some(topic.topic_id) } else { node.topic_id(&topic.name) };
        let mut partition_responses = Vec::with_capacity(topic.partition_data.len());
        for data in topic.partition_data {
            let index = data.index;
            let mut response = match append(node, context, request.acks, (id, by_id), data) {
                Ok((response, partition, None)) => {
                    touched.push(partition);
                    response
                }
                Ok((response, partition, Some(sync_to))) => {
                    let place = (responses.len(), partition_responses.len());
                    unsynced.push(Unsynced { partition, sync_to, place });
                    response
                }
                Err(response) => {
                    failed = true;
                    response
                }
            };
            response.index = index;
            partition_responses.push(response);
        }
        responses.push(TopicProduceResponse {
            name: topic.name,
            topic_id: topic.topic_id,
            partition_responses,
        });
    }
    // Only now, with every append done and no lock held, are the readers served that waited for it.
    for partition in &touched {
        node.complete_fetches(context.now, partition);
    }
    if request.acks != 0 {
        let response = ProduceResponse { responses, ..ProduceResponse::default() };
        if unsynced.is_empty() {
            return Answer::Now(response);
        }
        delayed_produce::park(node, context.reply_to, response, unsynced);
        return Answer::Later;
    }
    if failed { failed_without_answer() } else { Answer::Never }
}

/// Without an answer this is the only way to tell the producer that it has to refresh its metadata.
fn failed_without_answer() -> Answer<ProduceResponse> {
    Answer::Close("a produce request with acks=0 failed; closing so that the producer notices".into())
}

/// The request's partitions, each once: the last data named for a partition count, topics without any are dropped.
fn unique(mut topics: Vec<TopicProduceData>) -> Vec<TopicProduceData> {
    if let [topic] = topics.as_slice()
        && let [_] = topic.partition_data.as_slice()
    {
        return topics;
    }
    let mut places: HashMap<(String, Uuid), usize> = HashMap::new();
    let mut unique: Vec<TopicProduceData> = Vec::with_capacity(topics.len());
    for topic in topics.drain(..).filter(|topic| !topic.partition_data.is_empty()) {
        match places.entry((topic.name.clone(), topic.topic_id)) {
            Entry::Occupied(place) => {
                if let Some(first) = unique.get_mut(*place.get()) {
                    first.partition_data.extend(topic.partition_data);
                }
            }
            Entry::Vacant(place) => {
                place.insert(unique.len());
                unique.push(topic);
            }
        }
    }
    for topic in &mut unique {
        let mut places: HashMap<i32, usize> = HashMap::new();
        let mut partitions: Vec<PartitionProduceData> = Vec::with_capacity(topic.partition_data.len());
        for data in topic.partition_data.drain(..) {
            match places.entry(data.index) {
                Entry::Occupied(place) => {
                    if let Some(first) = partitions.get_mut(*place.get()) {
                        *first = data;
                    }
                }
                Entry::Vacant(place) => {
                    place.insert(partitions.len());
                    partitions.push(data);
                }
            }
        }
        topic.partition_data = partitions;
    }
    unique
}

fn has_transactional_batch(data: &PartitionProduceData) -> bool {
    let Some(Records::Bytes(records)) = &data.records else { return false };
    matches!(record::RecordBatch::first(records), Ok(Some(batch)) if batch.header().is_transactional())
}

/// The same error for every partition; nothing is appended.
fn refuse_all(acks: i16, topics: Vec<TopicProduceData>, error: ErrorCode) -> Answer<ProduceResponse> {
    if acks == 0 {
        return failed_without_answer();
    }
    let responses = topics
        .into_iter()
        .map(|topic| TopicProduceResponse {
            partition_responses: topic
                .partition_data
                .iter()
                .map(|data| PartitionProduceResponse { index: data.index, ..refuse(error, None) })
                .collect(),
            name: topic.name,
            topic_id: topic.topic_id,
        })
        .collect();
    Answer::Now(ProduceResponse { responses, ..ProduceResponse::default() })
}

/// With the offset that has to be durable before the answer, where one has to be.
type Appended = (PartitionProduceResponse, Arc<Partition>, Option<i64>);

fn append(
    node: &Node,
    context: &RequestContext<'_>,
    acks: i16,
    (topic_id, by_id): (Option<Uuid>, bool),
    data: PartitionProduceData,
) -> Result<Appended, PartitionProduceResponse> {
    let unknown = if by_id { ErrorCode::UNKNOWN_TOPIC_ID } else { ErrorCode::UNKNOWN_TOPIC_OR_PARTITION };
    let topic_id = topic_id.ok_or_else(|| refuse(unknown, None))?;
    if by_id && !node.has_topic_id(topic_id) {
        return Err(refuse(ErrorCode::UNKNOWN_TOPIC_ID, None));
    }
    if !(-1..=1).contains(&acks) {
        return Err(refuse(ErrorCode::INVALID_REQUIRED_ACKS, None));
    }
    let partition = match node.partition(topic_id, data.index) {
        Some(partition) => partition,
        None => return Err(refuse(node.why_no_partition(topic_id, data.index), None)),
    };
    if partition.is_internal() && context.client_id != ADMIN_CLIENT_ID {
        return Err(refuse(ErrorCode::INVALID_TOPIC_EXCEPTION, None));
    }
    let Some(Records::Bytes(records)) = data.records else {
        return Err(refuse(ErrorCode::INVALID_RECORD, Some("Produce requests must have records".into())));
    };
    let size = check_batches(context.version(), &records)?;
    // What follows the batch is the beginning of another one at most.
    let records = records.slice(..size);
    match partition.append_as_leader(context.now, records, acks) {
        Ok(info) => Ok((
            PartitionProduceResponse {
                base_offset: info.first_offset,
                log_append_time_ms: info.log_append_time,
                log_start_offset: info.log_start_offset,
                ..PartitionProduceResponse::default()
            },
            partition,
            info.sync_to,
        )),
        Err(failure) => Err(failed_append(context.version(), &partition, failure)),
    }
}

/// Size and magic of the batch that begins here, `None` when it is not whole.
fn batch_extent(records: &[u8]) -> Result<Option<usize>, PartitionProduceResponse> {
    let corrupt = |message: String| refuse(ErrorCode::CORRUPT_MESSAGE, Some(message));
    let Some(size) = records.get(SIZE_OFFSET..LOG_OVERHEAD).and_then(|bytes| bytes.try_into().ok()) else {
        return Ok(None);
    };
    let size = i32::from_be_bytes(size);
    if size < MIN_RECORD_OVERHEAD {
        return Err(corrupt(format!(
            "Record size {size} is less than the minimum record overhead ({MIN_RECORD_OVERHEAD})"
        )));
    }
    let Some(magic) = records.get(MAGIC_OFFSET).map(|byte| *byte as i8) else { return Ok(None) };
    if !(0..=record::MAGIC_VALUE_V2).contains(&magic) {
        return Err(corrupt(format!("Invalid magic found in record: {magic}")));
    }
    let end = LOG_OVERHEAD.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
    Ok((end <= records.len()).then_some(end))
}

/// What a produce request's partition must hold: exactly one batch of format v2. Returns its size.
fn check_batches(version: i16, records: &[u8]) -> Result<usize, PartitionProduceResponse> {
    let Some(size) = batch_extent(records)? else { return Err(refuse(ErrorCode::INVALID_RECORD, None)) };
    let first = match record::RecordBatch::first(records) {
        Ok(Some(batch)) => batch,
        Ok(None) => return Err(refuse(ErrorCode::INVALID_RECORD, None)),
        Err(_) => return Err(refuse(ErrorCode::CORRUPT_MESSAGE, None)),
    };
    let header = first.header();
    if batch_extent(records.get(size..).unwrap_or_default())?.is_some()
        || header.magic != record::MAGIC_VALUE_V2
    {
        return Err(refuse(ErrorCode::INVALID_RECORD, None));
    }
    if version < FIRST_ZSTD_VERSION && header.compression_type() == Some(record::CompressionType::Zstd) {
        return Err(refuse(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, None));
    }
    if header.is_transactional() {
        // Nobody holds a transaction here: InitProducerId with a transactional id is not served.
        return Err(refuse(
            ErrorCode::INVALID_TXN_STATE,
            Some("transactions are not served by this broker".into()),
        ));
    }
    Ok(size)
}

pub(crate) fn refuse(error: ErrorCode, message: Option<String>) -> PartitionProduceResponse {
    PartitionProduceResponse {
        error_code: error.code(),
        base_offset: NONE,
        log_start_offset: NONE,
        error_message: message,
        ..PartitionProduceResponse::default()
    }
}

fn failed_append(version: i16, partition: &Partition, failure: AppendFailure) -> PartitionProduceResponse {
    let mut response = refuse(failure.error, failure.message);
    response.log_start_offset = failure.log_start_offset;
    response.record_errors = failure
        .record_errors
        .into_iter()
        .map(|(batch_index, message)| BatchIndexAndErrorMessage {
            batch_index,
            batch_index_error_message: message,
        })
        .collect();
    if version >= FIRST_LEADER_HINT_VERSION && failure.error == ErrorCode::NOT_LEADER_OR_FOLLOWER {
        let (leader_id, leader_epoch) = partition.leader();
        response.current_leader = LeaderIdAndEpoch { leader_id, leader_epoch };
    }
    response
}
