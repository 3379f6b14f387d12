//! Produce (key 0): appends record batches to the partitions this broker leads.

use super::Answer;
use crate::context::RequestContext;
use crate::node::Node;
use crate::partition::{AppendFailure, Partition};
use protocol::messages::produce_request::PartitionProduceData;
use protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, PartitionProduceResponse, TopicProduceResponse,
};
use protocol::messages::{ProduceRequest, ProduceResponse};
use protocol::{ErrorCode, Records, Uuid};
use std::sync::Arc;

/// Client id that Apache Kafka's own administration client uses; it alone may write to internal topics.
const ADMIN_CLIENT_ID: &str = "__admin_client";
/// Zstandard may be used from this version on (KIP-110).
const FIRST_ZSTD_VERSION: i16 = 7;
/// From this version on a partition's answer names the current leader when it has moved (KIP-951).
const FIRST_LEADER_HINT_VERSION: i16 = 10;
/// Topics are named by id from this version on (KIP-516).
const FIRST_TOPIC_ID_VERSION: i16 = 13;
/// "No offset" and "no time" in answers.
const NONE: i64 = -1;

pub(crate) fn handle(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: ProduceRequest,
) -> Answer<ProduceResponse> {
    let by_id = context.version() >= FIRST_TOPIC_ID_VERSION;
    let mut failed = false;
    let mut touched = Vec::new();
    let mut responses = Vec::with_capacity(request.topic_data.len());
    for topic in request.topic_data {
        let id = if by_id { Some(topic.topic_id) } else { node.topic_id(&topic.name) };
        let mut partition_responses = Vec::with_capacity(topic.partition_data.len());
        for data in topic.partition_data {
            let index = data.index;
            let mut response = match append(
                node,
                context,
                request.acks,
                request.transactional_id.is_some(),
                (id, by_id),
                data,
            ) {
                Ok((response, partition)) => {
                    touched.push(partition);
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
        return Answer::Now(ProduceResponse { responses, ..ProduceResponse::default() });
    }
    if failed {
        // Without an answer this is the only way to tell the producer that it has to refresh its metadata.
        return Answer::Close(
            "a produce request with acks=0 failed; closing so that the producer notices".into(),
        );
    }
    Answer::Never
}

type Appended = (PartitionProduceResponse, Arc<Partition>);

fn append(
    node: &Node,
    context: &RequestContext<'_>,
    acks: i16,
    transactional: bool,
    (topic_id, by_id): (Option<Uuid>, bool),
    data: PartitionProduceData,
) -> Result<Appended, PartitionProduceResponse> {
    let unknown = if by_id { ErrorCode::UNKNOWN_TOPIC_ID } else { ErrorCode::UNKNOWN_TOPIC_OR_PARTITION };
    let topic_id = topic_id.ok_or_else(|| refuse(unknown, None))?;
    if !(-1..=1).contains(&acks) {
        return Err(refuse(ErrorCode::INVALID_REQUIRED_ACKS, None));
    }
    let partition = match node.partition(topic_id, data.index) {
        Some(partition) => partition,
        None if by_id && !node.has_topic_id(topic_id) => {
            return Err(refuse(ErrorCode::UNKNOWN_TOPIC_ID, None));
        }
        None => return Err(refuse(node.why_no_partition(topic_id, data.index), None)),
    };
    if partition.is_internal() && context.client_id != ADMIN_CLIENT_ID {
        return Err(refuse(
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            Some(format!("Cannot append to internal topic {}", partition.topic())),
        ));
    }
    let Some(Records::Bytes(records)) = data.records else {
        return Err(refuse(ErrorCode::INVALID_RECORD, Some("Produce requests must have records".into())));
    };
    check_batches(context.version(), transactional, &records)?;
    match partition.append_as_leader(context.now, records, acks) {
        Ok(info) => Ok((
            PartitionProduceResponse {
                base_offset: info.first_offset,
                log_append_time_ms: info.log_append_time,
                log_start_offset: info.log_start_offset,
                ..PartitionProduceResponse::default()
            },
            partition,
        )),
        Err(failure) => Err(failed_append(context.version(), &partition, failure)),
    }
}

/// What a produce request's partition must hold: exactly one batch of format v2.
fn check_batches(version: i16, transactional: bool, records: &[u8]) -> Result<(), PartitionProduceResponse> {
    let first = match record::RecordBatch::first(records) {
        Ok(Some(batch)) => batch,
        Ok(None) => return Err(refuse(ErrorCode::INVALID_RECORD, None)),
        Err(_) => return Err(refuse(ErrorCode::CORRUPT_MESSAGE, None)),
    };
    let header = first.header();
    if header.magic != record::MAGIC_VALUE_V2 || header.size_in_bytes() != records.len() {
        return Err(refuse(ErrorCode::INVALID_RECORD, None));
    }
    if version < FIRST_ZSTD_VERSION && header.compression_type() == Some(record::CompressionType::Zstd) {
        return Err(refuse(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, None));
    }
    if transactional || header.is_transactional() {
        // Nobody holds a transaction here: InitProducerId with a transactional id is not served.
        return Err(refuse(
            ErrorCode::INVALID_TXN_STATE,
            Some("transactions are not served by this broker".into()),
        ));
    }
    Ok(())
}

fn refuse(error: ErrorCode, message: Option<String>) -> PartitionProduceResponse {
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
