//! The sender task: asks the accumulator what is due, sends it, tells the accumulator what came back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::produce_response::PartitionProduceResponse;
use protocol::messages::{InitProducerIdRequest, ProduceRequest, ProduceResponse};
use protocol::{ErrorCode, Records, Uuid};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Shared;
use super::accumulator::{Delivery, Sent};
use crate::cluster::Target;
use crate::connection::Connection;
use crate::error::{ApiError, ClientError};

/// How long the sender sleeps at most; expiry of batches is checked that often.
const TICK: Duration = Duration::from_millis(500);

pub(super) async fn run(shared: Arc<Shared>) {
    let mut metadata_at = Instant::now();
    let mut links = Links::new();
    loop {
        if shared.config.enable_idempotence
            && !shared.lock().has_producer_id()
            && shared.lock().incomplete() > 0
        {
            init_producer_id(&shared).await;
        }
        let now = Instant::now();
        let stale = now >= metadata_at + shared.config.metadata_max_age;
        if stale || std::mem::take(&mut shared.lock().metadata_wanted) {
            refresh_metadata(&shared).await;
            metadata_at = now;
        }
        let expired = shared.lock().expire(now);
        for (sent, error) in expired {
            give_back(&shared, &sent, &error);
        }
        let memory_wanted = shared.waiting_for_memory.load(Ordering::Relaxed) > 0;
        links.collect(&shared);
        let (ready, next) = {
            let mut is_connected = |node| links.is_open(node);
            shared.lock().drain(now, &compression::KafkaCodecs, memory_wanted, &mut is_connected)
        };
        links.open_wanted(&shared);
        let idle = ready.is_empty();
        for (node, batches) in ready {
            start(&shared, links.get(node), node, batches);
        }
        if shared.lock().is_closing() && shared.lock().incomplete() == 0 {
            return;
        }
        if idle {
            let wake = next.unwrap_or(now + TICK).min(now + TICK);
            let _ = tokio::time::timeout_at(wake, shared.work.notified()).await;
        }
    }
}

async fn init_producer_id(shared: &Shared) {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: i32::MAX,
        ..Default::default()
    };
    let answer = match shared.cluster.send(Target::Any, &request).await {
        Ok(response) => match ErrorCode::from_code(response.error_code) {
            ErrorCode::NONE => Ok((response.producer_id, response.producer_epoch)),
            code => Err(ClientError::from(code)),
        },
        Err(error) => Err(error),
    };
    match answer {
        Ok((id, epoch)) => shared.lock().set_producer(id, epoch),
        Err(error) => {
            tracing::debug!(%error, "no producer id yet");
            tokio::time::sleep(shared.config.retry_backoff).await;
        }
    }
}

async fn refresh_metadata(shared: &Shared) {
    let topics = shared.lock().topic_names();
    if topics.is_empty() {
        return;
    }
    match shared.cluster.metadata(Some(&topics)).await {
        Ok(metadata) => shared.lock().update_metadata(&metadata),
        Err(error) => {
            tracing::debug!(%error, "no metadata");
            shared.lock().metadata_wanted = true;
            tokio::time::sleep(shared.config.retry_backoff).await;
        }
    }
}

/// Puts one request on its way, in the order of the calls, and leaves its answer to a task.
fn start(shared: &Arc<Shared>, connection: Option<Connection>, node: i32, batches: Vec<Sent>) {
    let queued = match &connection {
        Some(connection) => queue(shared, connection, &batches),
        None => Err(ErrorCode::BROKER_NOT_AVAILABLE.into()),
    };
    let shared = Arc::clone(shared);
    match queued {
        Ok(Some((version, answer))) => {
            tokio::spawn(async move {
                let result = answer.await.map(|response| assign(response, &batches, version));
                finish(&shared, node, batches, result);
            });
        }
        Ok(None) => finish(&shared, node, batches, Ok(Answers::new())),
        Err(error) => finish(&shared, node, batches, Err(error)),
    }
}

fn finish(shared: &Shared, node: i32, batches: Vec<Sent>, result: Result<Answers, ClientError>) {
    shared.lock().request_ended(node);
    match result {
        Ok(mut answers) => {
            for sent in batches {
                let key = (sent.topic_id, sent.topic.to_string(), sent.partition);
                match answers.remove(&key) {
                    Some(answer) => settle(shared, sent, Some(answer)),
                    None if shared.config.acks == 0 => settle(shared, sent, None),
                    None => retry_or_give_back(shared, sent, ErrorCode::UNKNOWN_SERVER_ERROR.into()),
                }
            }
        }
        Err(error) => {
            for sent in batches {
                retry_or_give_back(shared, sent, error.clone());
            }
        }
    }
    shared.progress.notify_waiters();
    shared.work.notify_one();
}

type Answers = BTreeMap<(Uuid, String, i32), PartitionProduceResponse>;

/// Queues the produce request; `None` when it gets no answer (acks=0).
fn queue(
    shared: &Shared,
    connection: &Connection,
    batches: &[Sent],
) -> Result<
    Option<(i16, impl Future<Output = Result<ProduceResponse, ClientError>> + Send + use<>)>,
    ClientError,
> {
    let version = connection.version_of::<ProduceRequest>()?;
    let mut topics: BTreeMap<(Uuid, &str), Vec<PartitionProduceData>> = BTreeMap::new();
    for sent in batches {
        let records: Bytes = sent.records.clone();
        let data = PartitionProduceData { index: sent.partition, records: Some(Records::Bytes(records)) };
        topics.entry((sent.topic_id, &sent.topic)).or_default().push(data);
    }
    let topic_data = topics.into_iter().map(|((topic_id, name), partition_data)| TopicProduceData {
        name: name.to_owned(),
        topic_id,
        partition_data,
    });
    let request = ProduceRequest {
        transactional_id: None,
        acks: shared.config.acks,
        timeout_ms: i32::try_from(shared.config.request_timeout.as_millis()).unwrap_or(i32::MAX),
        topic_data: topic_data.collect(),
    };
    if shared.config.acks == 0 {
        connection.send_one_way(&request, version)?;
        return Ok(None);
    }
    Ok(Some((version, connection.start(&request, version, shared.config.request_timeout)?)))
}

/// Finds for each partition of an answer the batch it is about.
fn assign(response: ProduceResponse, batches: &[Sent], version: i16) -> Answers {
    let mut answers = Answers::new();
    for topic in response.responses {
        for partition in topic.partition_responses {
            // Either the name or the id identifies a topic, depending on the version (KIP-516).
            let found = batches.iter().find(|sent| {
                sent.partition == partition.index
                    && if version >= 13 {
                        sent.topic_id == topic.topic_id
                    } else {
                        *sent.topic == *topic.name
                    }
            });
            if let Some(sent) = found {
                answers.insert((sent.topic_id, sent.topic.to_string(), sent.partition), partition);
            }
        }
    }
    answers
}

/// The sender's connections. They are opened by tasks, so that a dead node holds up nobody else.
struct Links {
    open: BTreeMap<i32, Connection>,
    opening: BTreeSet<i32>,
    wanted: BTreeSet<i32>,
    opened: mpsc::UnboundedReceiver<(i32, Option<Connection>)>,
    report: mpsc::UnboundedSender<(i32, Option<Connection>)>,
}

impl Links {
    fn new() -> Self {
        let (report, opened) = mpsc::unbounded_channel();
        Links { open: BTreeMap::new(), opening: BTreeSet::new(), wanted: BTreeSet::new(), opened, report }
    }

    fn get(&self, node: i32) -> Option<Connection> {
        self.open.get(&node).cloned()
    }

    fn is_open(&mut self, node: i32) -> bool {
        let open = self.open.get(&node).is_some_and(|connection| !connection.is_closed());
        if !open {
            self.wanted.insert(node);
        }
        open
    }

    fn collect(&mut self, shared: &Shared) {
        while let Ok((node, connection)) = self.opened.try_recv() {
            self.opening.remove(&node);
            match connection {
                Some(connection) => drop(self.open.insert(node, connection)),
                None => shared.lock().metadata_wanted = true,
            }
        }
    }

    fn open_wanted(&mut self, shared: &Arc<Shared>) {
        for node in std::mem::take(&mut self.wanted) {
            if !self.opening.insert(node) {
                continue;
            }
            let (shared, report) = (Arc::clone(shared), self.report.clone());
            tokio::spawn(async move {
                let connection = shared.cluster.connection(Target::Node(node)).await;
                if let Err(error) = &connection {
                    tracing::debug!(%error, node, "no connection");
                    tokio::time::sleep(shared.config.retry_backoff).await;
                }
                let _ = report.send((node, connection.ok()));
                shared.work.notify_one();
            });
        }
    }
}

fn settle(shared: &Shared, sent: Sent, answer: Option<PartitionProduceResponse>) {
    let (code, base_offset) =
        answer.as_ref().map_or((0, -1), |answer| (answer.error_code, answer.base_offset));
    match ErrorCode::from_code(code) {
        // A duplicate is a retry of a batch that is in already.
        ErrorCode::NONE | ErrorCode::DUPLICATE_SEQUENCE_NUMBER => {
            shared.lock().succeeded(&sent);
            report(shared, &sent, base_offset, Ok(()));
        }
        code => {
            let message = answer.and_then(|answer| answer.error_message);
            retry_or_give_back(shared, sent, ApiError::new(code, message).into());
        }
    }
}

fn retry_or_give_back(shared: &Shared, sent: Sent, error: ClientError) {
    let given_back = shared.lock().failed(sent, error, Instant::now());
    if let Some((sent, error)) = given_back {
        give_back(shared, &sent, &error);
    }
}

fn give_back(shared: &Shared, sent: &Sent, error: &ClientError) {
    shared.lock().release(sent);
    report(shared, sent, -1, Err(error));
    shared.progress.notify_waiters();
}

fn report(shared: &Shared, sent: &Sent, base_offset: i64, result: Result<(), &ClientError>) {
    let delivery = Delivery {
        topic: &sent.topic,
        partition: sent.partition,
        base_offset,
        tokens: &sent.batch.tokens,
        result,
    };
    (shared.handler)(&delivery);
}
