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
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, PartitionData,
};
use protocol::messages::{FetchRequest, FetchResponse};
use protocol::{ErrorCode, Records, Uuid};
use record::Time;
use replication::fetch_session::{
    FetchContext, FetchPartition, PartitionRequest, PartitionSummary, SessionRequest,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use storage::FileSlice;

/// Topics are named by id from this version on (KIP-516).
const FIRST_TOPIC_ID_VERSION: i16 = 13;
/// The replica that fetches moves into a tagged structure in this version (KIP-903).
const FIRST_REPLICA_STATE_VERSION: i16 = 15;
/// From this version on a partition's answer names the current leader when it has moved (KIP-951).
const FIRST_LEADER_HINT_VERSION: i16 = 16;
const READ_UNCOMMITTED: i8 = 0;
const READ_COMMITTED: i8 = 1;
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
    if !(READ_UNCOMMITTED..=READ_COMMITTED).contains(&request.isolation_level)
        && names_existing(node, &request, version)
    {
        return Answer::Now(refusal(request, version));
    }
    let params = FetchParams {
        max_bytes: request.max_bytes.min(node.settings().fetch_max_bytes).max(0),
        min_bytes: request.min_bytes.min(request.max_bytes).max(0),
        max_wait: Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)),
        read_committed: request.isolation_level == READ_COMMITTED,
        by_replica: replica_id >= 0,
    };
    let session = session_request(request, version, replica_id >= 0);
    let fetch = node.fetch_sessions.lock().handle_request(context.now, session);
    if let FetchContext::Error(error) = fetch {
        return Answer::Now(FetchResponse { error_code: error.code(), ..FetchResponse::default() });
    }
    let outcome = read_all(node, &fetch, &params, version, &[]);
    if outcome.is_enough(&params) || params.max_wait.is_zero() {
        return answer(node, context.now, &fetch, outcome, version);
    }
    park(node, context, params, fetch)
}

/// Whether any of the request's partitions is here; the isolation level of a request without any does not matter.
fn names_existing(node: &Node, request: &FetchRequest, version: i16) -> bool {
    request.topics.iter().any(|topic| {
        let by_id = version >= FIRST_TOPIC_ID_VERSION;
        let id = if by_id { Some(topic.topic_id) } else { node.topic_id(&topic.topic) };
        id.is_some_and(|id| {
            topic.partitions.iter().any(|asked| node.partition(id, asked.partition).is_some())
        })
    })
}

/// The answer to a request that cannot be understood; topics named by id are not repeated.
fn refusal(request: FetchRequest, version: i16) -> FetchResponse {
    let error = ErrorCode::UNKNOWN_SERVER_ERROR;
    let named = request.topics.into_iter().filter(|_| version < FIRST_TOPIC_ID_VERSION);
    let responses = named
        .map(|topic| FetchableTopicResponse {
            topic: topic.topic,
            partitions: topic.partitions.iter().map(|asked| unread(asked.partition, error)).collect(),
            ..FetchableTopicResponse::default()
        })
        .collect();
    FetchResponse {
        error_code: error.code(),
        session_id: request.session_id,
        responses,
        ..FetchResponse::default()
    }
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
    let partitions = last_of_each(partitions);
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

/// Each partition once, at its first place with what was asked last.
fn last_of_each(
    partitions: Vec<(FetchPartition, PartitionRequest)>,
) -> Vec<(FetchPartition, PartitionRequest)> {
    if partitions.len() < 2 {
        return partitions;
    }
    let mut places: HashMap<FetchPartition, usize> = HashMap::with_capacity(partitions.len());
    let mut unique: Vec<(FetchPartition, PartitionRequest)> = Vec::with_capacity(partitions.len());
    for (key, asked) in partitions {
        match places.get(&key).and_then(|place| unique.get_mut(*place)) {
            Some(first) => first.1 = asked,
            None => {
                places.insert(key.clone(), unique.len());
                unique.push((key, asked));
            }
        }
    }
    unique
}

fn find(node: &Node, key: &FetchPartition) -> Option<Arc<Partition>> {
    let id = if key.topic.is_empty() { key.topic_id } else { node.topic_id(&key.topic)? };
    node.partition(id, key.partition)
}

/// Why a partition was not read.
enum ReadFailure {
    /// The topic or partition does not exist.
    Unknown(ErrorCode),
    /// The partition was deleted while the fetch waited.
    Gone,
    /// The partition exists but does not serve this read.
    Refused(ErrorCode, Arc<Partition>),
}

impl ReadFailure {
    fn error(&self) -> ErrorCode {
        match self {
            Self::Unknown(error) | Self::Refused(error, _) => *error,
            Self::Gone => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        }
    }
}

/// The results of one pass over a fetch's partitions, in their order.
struct ReadOutcome {
    results: Vec<Result<ReadInfo, ReadFailure>>,
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

/// `existed` tells which of the partitions were there when a parked fetch was first served; empty at first.
fn read_all(
    node: &Node,
    fetch: &FetchContext,
    params: &FetchParams,
    version: i16,
    existed: &[bool],
) -> ReadOutcome {
    let by_id = version >= FIRST_TOPIC_ID_VERSION;
    let partitions = fetch.partitions();
    let mut outcome =
        ReadOutcome { results: Vec::with_capacity(partitions.len()), bytes: 0, urgent: false, readable: 0 };
    let mut left = i64::from(params.max_bytes);
    for (key, asked) in partitions {
        let Some(partition) = find(node, key) else {
            if existed.get(outcome.results.len()).copied().unwrap_or(false) {
                outcome.results.push(Err(ReadFailure::Gone));
                outcome.urgent = true;
                continue;
            }
            let unknown_id = by_id && !node.has_topic_id(key.topic_id);
            let error =
                if unknown_id { ErrorCode::UNKNOWN_TOPIC_ID } else { ErrorCode::UNKNOWN_TOPIC_OR_PARTITION };
            outcome.results.push(Err(ReadFailure::Unknown(error)));
            continue;
        };
        outcome.readable += 1;
        let readable = if asked.max_bytes < 0 {
            Err(ErrorCode::UNKNOWN_SERVER_ERROR)
        } else if params.by_replica {
            // No other broker holds a replica of what this one leads.
            Err(ErrorCode::NOT_LEADER_OR_FOLLOWER)
        } else {
            Ok(())
        };
        let request = ReadRequest {
            offset: asked.fetch_offset,
            max_bytes: i64::from(asked.max_bytes).min(left).max(0) as u32,
            // The first batch is returned whole however large it is, so that a reader always advances (KIP-74).
            min_one_message: outcome.bytes == 0,
            read_committed: params.read_committed,
            current_leader_epoch: asked.current_leader_epoch,
            last_fetched_epoch: asked.last_fetched_epoch,
        };
        let result = readable.and_then(|()| partition.read(request));
        match &result {
            Ok(info) => {
                let size = info.size();
                outcome.bytes += size;
                left -= size as i64;
                outcome.urgent |= info.diverging.is_some();
            }
            Err(_) => outcome.urgent = true,
        }
        outcome.results.push(result.map_err(|error| ReadFailure::Refused(error, partition)));
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
    let found: Vec<Option<Arc<Partition>>> =
        fetch.partitions().iter().map(|(key, _)| find(node, key)).collect();
    let existed = found.iter().map(Option::is_some).collect();
    let watched: Vec<Arc<Partition>> = found.into_iter().flatten().collect();
    let delayed = Arc::new(DelayedFetch::new(context.reply_to, params, fetch, existed, deadline));
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

fn read_again(node: &Node, delayed: &DelayedFetch) -> ReadOutcome {
    read_all(node, &delayed.context, &delayed.params, delayed.reply_to.api_version, &delayed.existed)
}

/// Answers a parked fetch when there is enough to read now.
pub(crate) fn try_complete(node: &Node, now: Time, delayed: &Arc<DelayedFetch>) {
    if delayed.is_done() {
        return;
    }
    let outcome = read_again(node, delayed);
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
        let outcome = read_again(node, delayed);
        finish(node, now, delayed, outcome);
    }
}

fn finish(node: &Node, now: Time, delayed: &DelayedFetch, outcome: ReadOutcome) {
    let reply_to = delayed.reply_to;
    match answer(node, now, &delayed.context, outcome, reply_to.api_version) {
        Answer::WithFiles(response, files) => node.reply_with_files(reply_to, &response, files),
        Answer::Now(response) => node.reply(reply_to, &response),
        Answer::Later | Answer::Never | Answer::Close(_) => {}
    }
}

fn answer(
    node: &Node,
    now: Time,
    fetch: &FetchContext,
    outcome: ReadOutcome,
    version: i16,
) -> Answer<FetchResponse> {
    let summaries: Vec<PartitionSummary> = outcome.results.iter().map(summary).collect();
    let session =
        node.fetch_sessions.lock().handle_results(now, fetch, &summaries, &mut || node.random_i32());
    if session.error != ErrorCode::NONE {
        return Answer::Now(FetchResponse { error_code: session.error.code(), ..FetchResponse::default() });
    }
    let mut files = Vec::new();
    let mut response = FetchResponse { session_id: session.session_id, ..FetchResponse::default() };
    let parts = fetch.partitions().iter().zip(outcome.results).zip(session.include);
    let told = parts.filter(|(_, include)| *include).map(|(((key, _), result), _)| (key, result));
    // What does not exist is told last.
    let (unknown, known): (Vec<_>, Vec<_>) =
        told.partition(|(_, result)| matches!(result, Err(ReadFailure::Unknown(_))));
    for (key, result) in known.into_iter().chain(unknown) {
        let data = partition_data(key, result, version, &mut files);
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

fn summary(result: &Result<ReadInfo, ReadFailure>) -> PartitionSummary {
    match result {
        Ok(info) => PartitionSummary {
            error: ErrorCode::NONE,
            records_size: info.size(),
            high_watermark: info.high_watermark,
            log_start_offset: info.log_start_offset,
            must_respond: info.diverging.is_some(),
        },
        Err(failure) => PartitionSummary {
            error: failure.error(),
            records_size: 0,
            high_watermark: UNKNOWN,
            log_start_offset: UNKNOWN,
            must_respond: false,
        },
    }
}

/// The answer for a partition that was not even looked for.
fn unread(partition_index: i32, error: ErrorCode) -> PartitionData {
    PartitionData {
        partition_index,
        error_code: error.code(),
        high_watermark: UNKNOWN,
        aborted_transactions: Some(Vec::new()),
        records: Some(Records::Bytes(Bytes::new())),
        ..PartitionData::default()
    }
}

fn partition_data(
    key: &FetchPartition,
    result: Result<ReadInfo, ReadFailure>,
    version: i16,
    files: &mut Vec<FileSlice>,
) -> PartitionData {
    let empty = Some(Records::Bytes(Bytes::new()));
    let info = match result {
        Ok(info) => info,
        Err(ReadFailure::Unknown(error)) => return unread(key.partition, error),
        Err(failure @ ReadFailure::Gone) => {
            return PartitionData { aborted_transactions: None, ..unread(key.partition, failure.error()) };
        }
        Err(ReadFailure::Refused(error, partition)) => {
            let moved = matches!(error, ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH);
            let current_leader = if moved && version >= FIRST_LEADER_HINT_VERSION {
                let (leader_id, leader_epoch) = partition.leader();
                LeaderIdAndEpoch { leader_id, leader_epoch }
            } else {
                LeaderIdAndEpoch::default()
            };
            let aborted_transactions = None;
            return PartitionData { current_leader, aborted_transactions, ..unread(key.partition, error) };
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
