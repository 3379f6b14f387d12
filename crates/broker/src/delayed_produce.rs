//! Produce requests that wait until their records are durable (group commit, `flush.messages`).
//!
//! A waiting request is listed once for each log in which records of it are not durable yet; the last log to be synced
//! sends the answer.
//!
//! Invariants: an answer without error is sent only after a sync that began after the append has finished; every listed
//! request is answered, with KAFKA_STORAGE_ERROR when the sync failed.
//! Concurrency: one short lock for the list and one per request; none is held across IO.

use crate::apis::produce::refuse;
use crate::node::Node;
use crate::partition::Partition;
use crate::reply::ReplyTo;
use parking_lot::Mutex;
use protocol::ErrorCode;
use protocol::messages::ProduceResponse;
use protocol::messages::produce_response::PartitionProduceResponse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use storage::{StorageError, SyncOutcome, UnifiedLog};

/// An answer that is complete but for its partitions' durability.
pub(crate) struct DelayedProduce {
    reply_to: ReplyTo,
    state: Mutex<State>,
}

struct State {
    response: ProduceResponse,
    waiting: usize,
}

impl DelayedProduce {
    /// `waiting` is how often [`Self::done`] will be called.
    fn new(reply_to: ReplyTo, response: ProduceResponse, waiting: usize) -> Self {
        Self { reply_to, state: Mutex::new(State { response, waiting }) }
    }

    /// One partition's records are durable, or never will be; the answer when nothing else is waited for.
    fn done(&self, (topic, index): (usize, usize), failure: Option<Failure>) -> Option<ProduceResponse> {
        let mut state = self.state.lock();
        if let Some(failure) = failure
            && let Some(place) = state
                .response
                .responses
                .get_mut(topic)
                .and_then(|topic| topic.partition_responses.get_mut(index))
        {
            *place = PartitionProduceResponse { index: place.index, ..failure() };
        }
        state.waiting -= 1;
        (state.waiting == 0).then(|| std::mem::take(&mut state.response))
    }
}

/// What a partition answers instead.
type Failure = fn() -> PartitionProduceResponse;

/// A partition's records of one request, at their place in its answer.
pub(crate) struct Unsynced {
    pub(crate) partition: Arc<Partition>,
    pub(crate) sync_to: i64,
    pub(crate) place: (usize, usize),
}

struct Waiter {
    produce: Arc<DelayedProduce>,
    /// Keeps its address from being another log's.
    log: Arc<UnifiedLog>,
    sync_to: i64,
    place: (usize, usize),
}

/// All requests that wait, by the address of the log they wait for: waiters keep it alive, and a partition that is
/// taken away meanwhile changes nothing for them.
#[derive(Default)]
pub(crate) struct DelayedProduces {
    by_log: Mutex<HashMap<usize, Vec<Waiter>>>,
}

fn address(log: &Arc<UnifiedLog>) -> usize {
    Arc::as_ptr(log).addr()
}

impl DelayedProduces {
    fn add(&self, waiter: Waiter) {
        self.by_log.lock().entry(address(&waiter.log)).or_default().push(waiter);
    }

    /// Takes the waiters for what lies below `synced`.
    fn take(&self, log: &Arc<UnifiedLog>, synced: i64) -> Vec<Waiter> {
        let mut by_log = self.by_log.lock();
        let Some(waiting) = by_log.get_mut(&address(log)) else { return Vec::new() };
        let done = waiting.extract_if(.., |waiter| waiter.sync_to <= synced).collect();
        if waiting.is_empty() {
            by_log.remove(&address(log));
        }
        done
    }
}

/// Sends the answer once all of `unsynced` is durable.
pub(crate) fn park(node: &Node, reply_to: ReplyTo, response: ProduceResponse, unsynced: Vec<Unsynced>) {
    let produce = Arc::new(DelayedProduce::new(reply_to, response, unsynced.len()));
    for Unsynced { partition, sync_to, place } in unsynced {
        let log = partition.log().clone();
        node.delayed_produces.add(Waiter { produce: produce.clone(), log: log.clone(), sync_to, place });
        // The sync may have come before the waiter was listed, or the partition moved to another directory.
        log.ensure_sync(sync_to);
        node.complete_produces(&log, log.synced_end_offset(), None);
    }
}

fn storage_error() -> PartitionProduceResponse {
    refuse(ErrorCode::KAFKA_STORAGE_ERROR, None)
}

fn gone() -> PartitionProduceResponse {
    refuse(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, None)
}

fn not_leader() -> PartitionProduceResponse {
    refuse(ErrorCode::NOT_LEADER_OR_FOLLOWER, None)
}

impl Node {
    /// The partition's next leader decides which of its records stay.
    pub(crate) fn fail_produces_of_former_leader(&self, partition: &Partition) {
        self.complete_produces(&partition.log(), i64::MAX, Some(not_leader));
    }

    /// Syncs logs of one directory (by its place in `log.dirs`) whose appends wait for it, and answers whoever waits.
    /// Waits up to `wait` for the first. To be called in a loop by a few threads per directory.
    pub fn run_syncs(&self, dir: usize, wait: Duration) {
        if let Some(outcome) = self.logs.sync_next(dir, wait) {
            self.handle_sync(&outcome);
        }
    }

    /// Number of `log.dirs`, for [`Node::run_syncs`].
    pub fn log_dir_count(&self) -> usize {
        self.logs.log_dirs().len()
    }

    /// Ends all waiting in [`Node::run_syncs`].
    pub fn close_syncs(&self) {
        self.logs.close_syncs();
    }

    fn handle_sync(&self, outcome: &SyncOutcome) {
        let log = &outcome.log;
        let name = log.topic_partition();
        // After a move it has another log by now, which has been synced in this one's place.
        let partition = log.topic_id().and_then(|id| self.partition(id, name.partition));
        let now = self.now();
        match &outcome.result {
            Ok(synced) => {
                if let Some(partition) = &partition {
                    partition.handle_synced();
                }
                self.complete_produces(log, *synced, None);
                if let Some(partition) = &partition {
                    self.complete_fetches(now, partition);
                    self.groups.handle_committed(self, now, partition);
                }
            }
            Err(StorageError::Closed(_)) => self.complete_produces(log, i64::MAX, Some(gone)),
            Err(error) => {
                tracing::error!(target: "kafka.server.ReplicaManager", "[ReplicaManager broker={}] Records of {name} could not be made durable: {error}", self.node_id());
                self.complete_produces(log, i64::MAX, Some(storage_error));
                // A replica on its way to a failed directory is only not moved.
                if let Some(partition) = partition.filter(|partition| Arc::ptr_eq(&partition.log(), log)) {
                    self.groups.handle_lost(self, now, &partition);
                }
            }
        }
    }

    /// Tells the requests that wait for records below `synced` that these are durable, or what else they are.
    fn complete_produces(&self, log: &Arc<UnifiedLog>, synced: i64, failure: Option<Failure>) {
        for waiter in self.delayed_produces.take(log, synced) {
            if let Some(response) = waiter.produce.done(waiter.place, failure) {
                self.reply(waiter.produce.reply_to, &response);
            }
        }
    }
}
