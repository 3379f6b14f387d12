//! The consumer: assigned partitions or a classic group, fetch sessions, positions, commits.
//!
//! A [`Consumer`] has one owner who calls [`Consumer::poll`]; the network is awaited by tasks, so that data arrives while
//! the owner works. Invariants: records of a partition come in offset order and each once, from its position on; a
//! position moves when records are handed out, and only positions are committed; an answer to a fetch that was sent
//! before a seek or a rebalance is dropped.

mod assignor;
mod config;
mod fetch;
mod group;
mod position;

pub use assignor::Assignor;
pub use config::{ConsumerConfig, OffsetReset};
pub use fetch::ConsumerRecord;
pub use group::{decode_assignment, decode_versioned};

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use protocol::messages::{FetchRequest, FetchResponse, MetadataResponse};
use protocol::{ErrorCode, Uuid};
use record::TopicPartition;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::cluster::{Cluster, Target};
use crate::error::{ApiError, ClientError};
use crate::offsets::{self, CommittedOffset, Membership};
use fetch::{FetchSession, Wanted, records_of};
use group::{Event, GroupMember};

/// Answers of one partition that may wait to be handed out while the next one is fetched.
const MAX_BUFFERED_ANSWERS: usize = 2;
/// How often background duties (metadata, commits) are looked at while nothing else happens.
const TICK: Duration = Duration::from_millis(100);

/// Where to read from next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    Beginning,
    End,
    Offset(i64),
}

/// Chooses topics of a pattern subscription.
pub type TopicPredicate = Box<dyn Fn(&str) -> bool + Send>;

enum Subscription {
    None,
    Assigned,
    Topics(Vec<String>),
    Pattern(TopicPredicate),
}

#[derive(Debug, Default)]
struct Partition {
    /// Offset of the next record to hand out; `None` until it is known.
    position: Option<i64>,
    /// A start that was asked for and has to be looked up.
    seek: Option<Position>,
    /// Offset of the next fetch, ahead of the position while answers wait.
    fetch_at: i64,
    buffered: usize,
    leader_epoch: i32,
    epoch: u64,
}

#[derive(Clone, Copy, Debug)]
struct Leader {
    node: i32,
    epoch: i32,
    topic_id: Uuid,
}

struct Buffered {
    partition: TopicPartition,
    epoch: u64,
    records: VecDeque<ConsumerRecord>,
    next: i64,
}

struct Completed {
    node: i32,
    version: i16,
    asked: BTreeMap<TopicPartition, Wanted>,
    result: Result<FetchResponse, ClientError>,
}

pub struct Consumer {
    cluster: Cluster,
    /// Fetches wait at the broker, so they have connections of their own.
    fetch_cluster: Cluster,
    config: Arc<ConsumerConfig>,
    subscription: Subscription,
    group: Option<GroupMember>,
    membership: Option<Membership>,
    partitions: BTreeMap<TopicPartition, Partition>,
    leaders: BTreeMap<TopicPartition, Leader>,
    buffered: VecDeque<Buffered>,
    sessions: BTreeMap<i32, FetchSession>,
    in_flight: BTreeSet<i32>,
    completed: mpsc::UnboundedReceiver<Completed>,
    report: mpsc::UnboundedSender<Completed>,
    metadata_wanted: bool,
    metadata_at: Option<Instant>,
    not_before: Option<Instant>,
    next_commit: Instant,
    epochs: u64,
}

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer").field("partitions", &self.partitions).finish_non_exhaustive()
    }
}

impl Consumer {
    pub fn new(cluster: Cluster, config: ConsumerConfig) -> Self {
        let (report, completed) = mpsc::unbounded_channel();
        Consumer {
            fetch_cluster: cluster.with_own_connections(),
            cluster,
            next_commit: Instant::now() + config.auto_commit_interval,
            config: Arc::new(config),
            subscription: Subscription::None,
            group: None,
            membership: None,
            partitions: BTreeMap::new(),
            leaders: BTreeMap::new(),
            buffered: VecDeque::new(),
            sessions: BTreeMap::new(),
            in_flight: BTreeSet::new(),
            completed,
            report,
            metadata_wanted: true,
            metadata_at: None,
            not_before: None,
            epochs: 0,
        }
    }

    /// Reads these partitions, without group membership.
    pub fn assign(&mut self, partitions: &[TopicPartition]) {
        self.subscription = Subscription::Assigned;
        self.take_assignment(partitions);
        self.metadata_wanted = true;
    }

    /// Joins the group of `group.id` for these topics.
    pub fn subscribe(&mut self, topics: Vec<String>) {
        self.subscription = Subscription::Topics(topics);
        self.metadata_wanted = true;
    }

    /// Joins the group for all topics that `predicate` chooses, also those created later.
    pub fn subscribe_pattern(&mut self, predicate: TopicPredicate) {
        self.subscription = Subscription::Pattern(predicate);
        self.metadata_wanted = true;
    }

    pub fn seek(&mut self, partition: &TopicPartition, position: Position) {
        self.epochs += 1;
        let epoch = self.epochs;
        if let Some(state) = self.partitions.get_mut(partition) {
            *state = Partition { seek: Some(position), epoch, leader_epoch: -1, ..Default::default() };
            if let Position::Offset(offset) = position {
                state.start_at(offset);
            }
        }
        self.buffered.retain(|buffered| buffered.partition != *partition);
    }

    pub fn assignment(&self) -> impl Iterator<Item = &TopicPartition> {
        self.partitions.keys()
    }

    /// Records in order per partition, at most `max.poll.records`; empty when `limit` passes without any.
    pub async fn poll(&mut self, limit: Duration) -> Result<Vec<ConsumerRecord>, ClientError> {
        let now = Instant::now();
        let deadline = now.checked_add(limit).unwrap_or(now + Duration::from_secs(86_400 * 365));
        loop {
            while let Some(event) = self.group.as_mut().and_then(|group| group.events.try_recv().ok()) {
                self.on_event(event).await?;
            }
            self.run_duties().await?;
            while let Ok(completed) = self.completed.try_recv() {
                self.on_fetched(completed)?;
            }
            self.send_fetches().await;
            let records = self.take_records();
            if !records.is_empty() || Instant::now() >= deadline {
                // A partition whose buffer has run empty is fetched again while its records are used.
                self.send_fetches().await;
                return Ok(records);
            }
            let wake = deadline.min(Instant::now() + TICK);
            let event = tokio::select! {
                Some(completed) = self.completed.recv() => Woken::Fetched(completed),
                Some(event) = next_event(&mut self.group) => Woken::Event(event),
                () = tokio::time::sleep_until(wake) => Woken::Tick,
            };
            match event {
                Woken::Fetched(completed) => self.on_fetched(completed)?,
                Woken::Event(event) => self.on_event(event).await?,
                Woken::Tick => {}
            }
        }
    }

    /// Commits the positions.
    pub async fn commit(&mut self) -> Result<(), ClientError> {
        let Some(group) = self.config.group_id.clone() else { return Ok(()) };
        let position = |(partition, state): (&TopicPartition, &Partition)| {
            let offset = state.position?;
            let committed =
                CommittedOffset { offset, leader_epoch: state.leader_epoch, metadata: String::new() };
            Some((partition.clone(), committed))
        };
        let positions: BTreeMap<TopicPartition, CommittedOffset> =
            self.partitions.iter().filter_map(position).collect();
        if positions.is_empty() {
            return Ok(());
        }
        let membership = self.membership.clone().unwrap_or_else(Membership::none);
        let deadline = Instant::now() + self.config.request_timeout;
        let attempt = || offsets::commit(&self.cluster, &group, &membership, &positions);
        let results = self.cluster.retry(deadline, attempt).await?;
        match results.values().find(|code| code.is_error()) {
            Some(code) => Err((*code).into()),
            None => Ok(()),
        }
    }

    /// Commits when commits are automatic, and leaves the group.
    pub async fn close(mut self) -> Result<(), ClientError> {
        let committed = if self.config.enable_auto_commit { self.commit().await } else { Ok(()) };
        if let Some(group) = self.group.take() {
            group.leave().await;
        }
        committed
    }

    fn take_assignment(&mut self, partitions: &[TopicPartition]) {
        self.epochs += 1;
        let epoch = self.epochs;
        let fresh = || Partition { epoch, leader_epoch: -1, ..Default::default() };
        self.partitions = partitions.iter().map(|partition| (partition.clone(), fresh())).collect();
        self.buffered.clear();
    }

    async fn on_event(&mut self, event: Event) -> Result<(), ClientError> {
        match event {
            Event::Assigned { membership, partitions } => {
                self.membership = Some(membership);
                self.take_assignment(&partitions);
                self.metadata_wanted |=
                    partitions.iter().any(|partition| !self.leaders.contains_key(partition));
                Ok(())
            }
            Event::Revoke(answer) => {
                if self.config.enable_auto_commit
                    && let Err(error) = self.commit().await
                {
                    tracing::debug!(%error, "commit before a rebalance failed");
                }
                self.membership = None;
                self.take_assignment(&[]);
                let _ = answer.send(());
                Ok(())
            }
            Event::Failed(error) => Err(error),
        }
    }

    /// Metadata, positions and commits, as far as they are due. Passing failures are tried again later.
    async fn run_duties(&mut self) -> Result<(), ClientError> {
        let now = Instant::now();
        if self.not_before.is_some_and(|at| now < at) {
            return Ok(());
        }
        let stale = self.metadata_at.is_none_or(|at| now >= at + self.config.metadata_max_age);
        if stale || self.metadata_wanted {
            let refreshed = self.refresh_metadata().await;
            if !self.unless_passing(refreshed)? {
                return Ok(());
            }
        }
        let positioned = self.find_positions().await;
        self.unless_passing(positioned)?;
        if self.config.enable_auto_commit && now >= self.next_commit {
            self.next_commit = now + self.config.auto_commit_interval;
            if self.membership.is_some()
                && let Err(error) = self.commit().await
            {
                tracing::debug!(%error, "automatic commit failed");
            }
        }
        Ok(())
    }

    /// `false`, and a pause, for an error that may pass.
    fn unless_passing(&mut self, result: Result<(), ClientError>) -> Result<bool, ClientError> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.is_retriable() => {
                self.metadata_wanted = true;
                self.not_before = Some(Instant::now() + self.config.retry_backoff);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn refresh_metadata(&mut self) -> Result<(), ClientError> {
        let topics = match &self.subscription {
            Subscription::None => return Ok(()),
            Subscription::Topics(topics) => Some(topics.clone()),
            Subscription::Pattern(_) => None,
            Subscription::Assigned => {
                let topics: BTreeSet<String> =
                    self.partitions.keys().map(|key| key.topic.to_string()).collect();
                Some(topics.into_iter().collect())
            }
        };
        let metadata = match &topics {
            Some(topics) if self.config.allow_auto_create_topics => {
                self.cluster.metadata_creating(topics).await?
            }
            topics => self.cluster.metadata(topics.as_deref()).await?,
        };
        self.metadata_at = Some(Instant::now());
        self.metadata_wanted = self.learn_leaders(&metadata)?;
        if self.metadata_wanted {
            self.not_before = Some(Instant::now() + self.config.retry_backoff);
        }
        self.update_subscription(&metadata);
        Ok(())
    }

    /// Says whether something is missing that another look may find.
    fn learn_leaders(&mut self, metadata: &MetadataResponse) -> Result<bool, ClientError> {
        let mut missing = false;
        for topic in &metadata.topics {
            match ApiError::check(topic.error_code, None) {
                Ok(()) => {}
                Err(error) if error.code.is_retriable() => {
                    missing = true;
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            let name: Arc<str> = topic.name.as_deref().unwrap_or_default().into();
            for partition in &topic.partitions {
                let key = TopicPartition { topic: Arc::clone(&name), partition: partition.partition_index };
                let leader = Leader {
                    node: partition.leader_id,
                    epoch: partition.leader_epoch,
                    topic_id: topic.topic_id,
                };
                missing |= partition.leader_id < 0 && self.partitions.contains_key(&key);
                self.leaders.insert(key, leader);
            }
        }
        Ok(missing)
    }

    fn update_subscription(&mut self, metadata: &MetadataResponse) {
        let mut topics: Vec<String> = match &self.subscription {
            Subscription::Topics(topics) => topics.clone(),
            Subscription::Pattern(predicate) => metadata
                .topics
                .iter()
                .filter(|topic| topic.error_code == 0)
                .filter_map(|topic| topic.name.clone())
                .filter(|name| predicate(name))
                .collect(),
            Subscription::None | Subscription::Assigned => return,
        };
        topics.sort();
        let partitions: usize = metadata
            .topics
            .iter()
            .filter(|topic| topic.name.as_ref().is_some_and(|name| topics.contains(name)))
            .map(|topic| topic.partitions.len())
            .sum();
        let group_id = self.config.group_id.clone().unwrap_or_default();
        match &self.group {
            Some(group) => group.resubscribe(topics, partitions),
            None => {
                let (cluster, config) = (self.cluster.clone(), Arc::clone(&self.config));
                self.group = Some(GroupMember::join(cluster, config, group_id, topics, partitions));
            }
        }
    }

    /// One request to each leader that has none under way and partitions to fetch.
    async fn send_fetches(&mut self) {
        let mut wanted: BTreeMap<i32, BTreeMap<TopicPartition, Wanted>> = BTreeMap::new();
        for (partition, state) in &self.partitions {
            let Some(leader) = self.leaders.get(partition).filter(|leader| leader.node >= 0) else {
                continue;
            };
            if state.position.is_none()
                || state.buffered >= MAX_BUFFERED_ANSWERS
                || self.in_flight.contains(&leader.node)
            {
                continue;
            }
            let want = Wanted {
                topic_id: leader.topic_id,
                offset: state.fetch_at,
                leader_epoch: leader.epoch,
                epoch: state.epoch,
            };
            wanted.entry(leader.node).or_default().insert(partition.clone(), want);
        }
        for (node, asked) in wanted {
            let session = self.sessions.entry(node).or_default();
            let request = session.request(&asked, &self.config);
            self.in_flight.insert(node);
            let (cluster, report) = (self.fetch_cluster.clone(), self.report.clone());
            let limit = self.config.request_timeout + self.config.fetch_max_wait;
            tokio::spawn(async move {
                let (version, result) = match fetch_once(&cluster, node, &request, limit).await {
                    Ok((version, response)) => (version, Ok(response)),
                    Err(error) => (0, Err(error)),
                };
                let _ = report.send(Completed { node, version, asked, result });
            });
        }
    }

    fn on_fetched(&mut self, completed: Completed) -> Result<(), ClientError> {
        self.in_flight.remove(&completed.node);
        let session = self.sessions.entry(completed.node).or_default();
        let answered = completed.result.and_then(|response| session.answered(&response).map(|()| response));
        let response = match answered {
            Ok(response) => response,
            Err(error) => {
                session.reset();
                tracing::debug!(%error, node = completed.node, "fetch failed");
                self.metadata_wanted = true;
                self.not_before = Some(Instant::now() + self.config.retry_backoff);
                return match error {
                    ClientError::UnsupportedVersion { .. } | ClientError::Decode { .. } => Err(error),
                    _ => Ok(()),
                };
            }
        };
        for topic in response.responses {
            for data in topic.partitions {
                let matches = |(partition, want): &(&TopicPartition, &Wanted)| {
                    partition.partition == data.partition_index
                        && if completed.version >= 13 {
                            want.topic_id == topic.topic_id
                        } else {
                            *partition.topic == *topic.topic
                        }
                };
                if let Some((partition, want)) = completed.asked.iter().find(matches) {
                    self.on_partition(partition, want, &data)?;
                }
            }
        }
        Ok(())
    }

    fn on_partition(
        &mut self,
        partition: &TopicPartition,
        want: &Wanted,
        data: &protocol::messages::fetch_response::PartitionData,
    ) -> Result<(), ClientError> {
        let current = |state: &&mut Partition| state.epoch == want.epoch && state.fetch_at == want.offset;
        let Some(state) = self.partitions.get_mut(partition).filter(current) else { return Ok(()) };
        match ErrorCode::from_code(data.error_code) {
            ErrorCode::NONE => {
                let (records, next) = records_of(partition, data, want.offset, &self.config)?;
                state.fetch_at = next;
                if records.is_empty() && state.buffered == 0 {
                    state.position = Some(next);
                    return Ok(());
                }
                state.buffered += 1;
                let epoch = want.epoch;
                self.buffered.push_back(Buffered { partition: partition.clone(), epoch, records, next });
            }
            ErrorCode::OFFSET_OUT_OF_RANGE if self.config.offset_reset == OffsetReset::None => {
                let message = format!(
                    "Fetch position {} is out of range for partition {partition} and there is no reset policy",
                    want.offset
                );
                return Err(ClientError::Config(message));
            }
            ErrorCode::OFFSET_OUT_OF_RANGE => {
                // What was fetched before is still handed out; the lookup comes when the position gets there.
                if state.buffered == 0 {
                    let position = match self.config.offset_reset {
                        OffsetReset::Latest => Position::End,
                        _ => Position::Beginning,
                    };
                    self.seek(partition, position);
                }
            }
            code if code.is_retriable() || code.is_invalid_metadata() => {
                self.metadata_wanted = true;
                self.not_before = Some(Instant::now() + self.config.retry_backoff);
            }
            code => return Err(code.into()),
        }
        Ok(())
    }

    fn take_records(&mut self) -> Vec<ConsumerRecord> {
        let mut taken = Vec::new();
        while let Some(front) = self.buffered.front_mut() {
            let current = |state: &&mut Partition| state.epoch == front.epoch;
            let Some(state) = self.partitions.get_mut(&front.partition).filter(current) else {
                self.buffered.pop_front();
                continue;
            };
            let room = self.config.max_poll_records - taken.len();
            let count = room.min(front.records.len());
            taken.extend(front.records.drain(..count));
            if let Some(record) = taken.last().filter(|_| count > 0) {
                state.position = Some(record.offset + 1);
                state.leader_epoch = record.leader_epoch;
            }
            if !front.records.is_empty() {
                break;
            }
            state.position = Some(front.next);
            state.buffered = state.buffered.saturating_sub(1);
            self.buffered.pop_front();
            if taken.len() >= self.config.max_poll_records {
                break;
            }
        }
        taken
    }
}

enum Woken {
    Fetched(Completed),
    Event(Event),
    Tick,
}

async fn next_event(group: &mut Option<GroupMember>) -> Option<Event> {
    match group {
        Some(group) => group.events.recv().await,
        None => None,
    }
}

async fn fetch_once(
    cluster: &Cluster,
    node: i32,
    request: &FetchRequest,
    limit: Duration,
) -> Result<(i16, FetchResponse), ClientError> {
    let connection = cluster.connection(Target::Node(node)).await?;
    let version = connection.version_of::<FetchRequest>()?;
    Ok((version, connection.send_within(request, version, limit).await?))
}

impl Partition {
    fn start_at(&mut self, offset: i64) {
        self.position = Some(offset);
        self.fetch_at = offset;
        self.seek = None;
    }
}
