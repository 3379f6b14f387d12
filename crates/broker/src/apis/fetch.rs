//! Fetch (key 1): reads record batches, within fetch sessions (KIP-227), and waits for `min.bytes`.
//!
//! The data of an answer are file ranges; nothing is copied here. A fetch that finds too little is parked with the
//! partitions it reads and answered by whoever appends, or by its timer.

use super::Answer;
use crate::context::RequestContext;
use crate::node::Node;
use crate::partition::{Partition, ReadInfo, ReadRequest};
use crate::purgatory::{DelayedFetch, FetchParams};
use bytes::Bytes;
use protocol::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, PartitionData,
};
use protocol::messages::{FetchRequest, FetchResponse};
use protocol::{ErrorCode, Records, Uuid};
use record::Time;
use replication::fetch_session::{
    FetchContext, FetchPartition, PartitionRequest, PartitionSummary, SessionRequest,
};
use std::sync::Arc;
use std::time::Duration;
use storage::FileSlice;

/// Topics are named by id from this version on (KIP-516).
const FIRST_TOPIC_ID_VERSION: i16 = 13;
/// The replica that fetches moves into a tagged structure in this version (KIP-903).
const FIRST_REPLICA_STATE_VERSION: i16 = 15;
/// An offset that is not known.
const UNKNOWN: i64 = -1;

pub(crate) fn handle(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: FetchRequest,
) -> Answer<FetchResponse> {
    let version = context.version();
    let replica_id = if version < FIRST_REPLICA_STATE_VERSION {
        request.replica_id
    } else {
        request.replica_state.replica_id
    };
    let params = FetchParams {
        max_bytes: request.max_bytes.min(node.settings().fetch_max_bytes).max(0),
        min_bytes: request.min_bytes.min(request.max_bytes).max(0),
        max_wait: Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)),
        read_committed: request.isolation_level == 1,
    };
    let session = session_request(request, version, replica_id >= 0);
    let fetch = node.fetch_sessions.lock().handle_request(context.now, session);
    if let FetchContext::Error(error) = fetch {
        return Answer::Now(FetchResponse { error_code: error.code(), ..FetchResponse::default() });
    }
    let outcome = read_all(node, &fetch, &params, version);
    if outcome.is_enough(&params) || params.max_wait.is_zero() {
        return answer(node, context.now, &fetch, outcome);
    }
    park(node, context, params, fetch)
}

fn session_request(request: FetchRequest, version: i16, privileged: bool) -> SessionRequest {
    let uses_topic_ids = version >= FIRST_TOPIC_ID_VERSION;
    // A partition is named by one of the two: a topic that is created or recreated meanwhile is found by the next read.
    let name = |topic: String, id: Uuid| -> (Uuid, Arc<str>) {
        if uses_topic_ids { (id, "".into()) } else { (Uuid::ZERO, topic.into()) }
    };
    let mut partitions = Vec::new();
    for topic in request.topics {
        let (topic_id, topic_name) = name(topic.topic, topic.topic_id);
        for partition in topic.partitions {
            let key = FetchPartition { topic_id, topic: topic_name.clone(), partition: partition.partition };
            let asked = PartitionRequest {
                fetch_offset: partition.fetch_offset,
                log_start_offset: partition.log_start_offset,
                max_bytes: partition.partition_max_bytes,
                current_leader_epoch: partition.current_leader_epoch,
                last_fetched_epoch: partition.last_fetched_epoch,
            };
            partitions.push((key, asked));
        }
    }
    let mut forgotten = Vec::new();
    for topic in request.forgotten_topics_data {
        let (topic_id, topic_name) = name(topic.topic, topic.topic_id);
        forgotten.extend(topic.partitions.into_iter().map(|partition| FetchPartition {
            topic_id,
            topic: topic_name.clone(),
            partition,
        }));
    }
    SessionRequest {
        session_id: request.session_id,
        epoch: request.session_epoch,
        uses_topic_ids,
        privileged,
        partitions,
        forgotten,
    }
}

fn find(node: &Node, key: &FetchPartition) -> Option<Arc<Partition>> {
    let id = if key.topic.is_empty() { key.topic_id } else { node.topic_id(&key.topic)? };
    node.partition(id, key.partition)
}

/// The results of one pass over a fetch's partitions, in their order.
struct ReadOutcome {
    results: Vec<Result<ReadInfo, ErrorCode>>,
    bytes: u64,
    /// An error or a diverging epoch has to be told at once.
    urgent: bool,
    /// Number of partitions that exist here; a fetch of none does not wait.
    readable: usize,
}

impl ReadOutcome {
    fn is_enough(&self, params: &FetchParams) -> bool {
        self.urgent || self.readable == 0 || self.bytes >= params.min_bytes as u64
    }
}

fn read_all(node: &Node, fetch: &FetchContext, params: &FetchParams, version: i16) -> ReadOutcome {
    let by_id = version >= FIRST_TOPIC_ID_VERSION;
    let partitions = fetch.partitions();
    let mut outcome =
        ReadOutcome { results: Vec::with_capacity(partitions.len()), bytes: 0, urgent: false, readable: 0 };
    let mut left = i64::from(params.max_bytes);
    for (key, asked) in partitions {
        let Some(partition) = find(node, key) else {
            let unknown_id = by_id && !node.has_topic_id(key.topic_id);
            let error =
                if unknown_id { ErrorCode::UNKNOWN_TOPIC_ID } else { ErrorCode::UNKNOWN_TOPIC_OR_PARTITION };
            outcome.results.push(Err(error));
            continue;
        };
        outcome.readable += 1;
        let result = partition.read(ReadRequest {
            offset: asked.fetch_offset,
            max_bytes: i64::from(asked.max_bytes).min(left).max(0) as u32,
            // The first batch is returned whole however large it is, so that a reader always advances (KIP-74).
            min_one_message: outcome.bytes == 0,
            read_committed: params.read_committed,
            current_leader_epoch: asked.current_leader_epoch,
            last_fetched_epoch: asked.last_fetched_epoch,
        });
        match &result {
            Ok(info) => {
                let size = info.size();
                outcome.bytes += size;
                left -= size as i64;
                outcome.urgent |= info.diverging.is_some();
            }
            Err(_) => outcome.urgent = true,
        }
        outcome.results.push(result);
    }
    outcome
}

fn park(
    node: &Node,
    context: &mut RequestContext<'_>,
    params: FetchParams,
    fetch: FetchContext,
) -> Answer<FetchResponse> {
    let deadline = context.now.monotonic + params.max_wait;
    let watched: Vec<Arc<Partition>> =
        fetch.partitions().iter().filter_map(|(key, _)| find(node, key)).collect();
    let delayed = Arc::new(DelayedFetch::new(context.reply_to, params, fetch, deadline));
    context.session.parked = Arc::downgrade(&delayed);
    for partition in &watched {
        partition.watchers.add(&delayed);
    }
    if node.fetch_timers.add(&delayed) {
        node.outbox.wake_timers();
    }
    // An append may have slipped in between the read and the watch.
    try_complete(node, context.now, &delayed);
    Answer::Later
}

/// Answers a parked fetch when there is enough to read now.
pub(crate) fn try_complete(node: &Node, now: Time, delayed: &Arc<DelayedFetch>) {
    if delayed.is_done() {
        return;
    }
    let outcome = read_all(node, &delayed.context, &delayed.params, delayed.reply_to.api_version);
    if outcome.is_enough(&delayed.params) && delayed.claim() {
        node.fetch_timers.remove(delayed);
        finish(node, now, delayed, outcome);
    }
}

/// Forgets a parked fetch whose connection is gone.
pub(crate) fn cancel(node: &Node, delayed: &DelayedFetch) {
    if delayed.claim() {
        node.fetch_timers.remove(delayed);
    }
}

/// Answers a parked fetch whose time is over, with what there is.
pub(crate) fn expire(node: &Node, now: Time, delayed: &Arc<DelayedFetch>) {
    if delayed.claim() {
        let outcome = read_all(node, &delayed.context, &delayed.params, delayed.reply_to.api_version);
        finish(node, now, delayed, outcome);
    }
}

fn finish(node: &Node, now: Time, delayed: &DelayedFetch, outcome: ReadOutcome) {
    let reply_to = delayed.reply_to;
    match answer(node, now, &delayed.context, outcome) {
        Answer::WithFiles(response, files) => node.reply_with_files(reply_to, &response, files),
        Answer::Now(response) => node.reply(reply_to, &response),
        Answer::Later | Answer::Never | Answer::Close(_) => {}
    }
}

fn answer(node: &Node, now: Time, fetch: &FetchContext, outcome: ReadOutcome) -> Answer<FetchResponse> {
    let summaries: Vec<PartitionSummary> = outcome.results.iter().map(summary).collect();
    let session =
        node.fetch_sessions.lock().handle_results(now, fetch, &summaries, &mut || node.random_i32());
    if session.error != ErrorCode::NONE {
        return Answer::Now(FetchResponse { error_code: session.error.code(), ..FetchResponse::default() });
    }
    let mut files = Vec::new();
    let mut response = FetchResponse { session_id: session.session_id, ..FetchResponse::default() };
    let parts = fetch.partitions().iter().zip(outcome.results).zip(session.include);
    for (((key, _), result), _) in parts.filter(|(_, include)| *include) {
        let data = partition_data(key, result, &mut files);
        match response.responses.last_mut() {
            Some(topic) if topic.topic_id == key.topic_id && *topic.topic == *key.topic => {
                topic.partitions.push(data)
            }
            _ => response.responses.push(FetchableTopicResponse {
                topic: key.topic.to_string(),
                topic_id: key.topic_id,
                partitions: vec![data],
            }),
        }
    }
    Answer::WithFiles(response, files)
}

fn summary(result: &Result<ReadInfo, ErrorCode>) -> PartitionSummary {
    match result {
        Ok(info) => PartitionSummary {
            error: ErrorCode::NONE,
            records_size: info.size(),
            high_watermark: info.high_watermark,
            log_start_offset: info.log_start_offset,
            must_respond: info.diverging.is_some(),
        },
        Err(error) => PartitionSummary {
            error: *error,
            records_size: 0,
            high_watermark: UNKNOWN,
            log_start_offset: UNKNOWN,
            must_respond: false,
        },
    }
}

fn partition_data(
    key: &FetchPartition,
    result: Result<ReadInfo, ErrorCode>,
    files: &mut Vec<FileSlice>,
) -> PartitionData {
    let empty = Some(Records::Bytes(Bytes::new()));
    let info = match result {
        Ok(info) => info,
        Err(error) => {
            return PartitionData {
                partition_index: key.partition,
                error_code: error.code(),
                high_watermark: UNKNOWN,
                aborted_transactions: Some(Vec::new()),
                records: empty,
                ..PartitionData::default()
            };
        }
    };
    let records = match info.records {
        Some(slice) => {
            let len = slice.len;
            files.push(slice);
            Some(Records::External { token: files.len() as u64 - 1, len })
        }
        None => empty,
    };
    PartitionData {
        partition_index: key.partition,
        high_watermark: info.high_watermark,
        last_stable_offset: info.last_stable_offset,
        log_start_offset: info.log_start_offset,
        diverging_epoch: info
            .diverging
            .map(|(epoch, end_offset)| EpochEndOffset { epoch, end_offset })
            .unwrap_or_default(),
        aborted_transactions: info.aborted.map(|list| {
            list.into_iter()
                .map(|(producer_id, first_offset)| AbortedTransaction { producer_id, first_offset })
                .collect()
        }),
        records,
        ..PartitionData::default()
    }
}
