//! Membership in a classic group: one task that joins, syncs and heartbeats.
//!
//! The task and the consumer talk through two channels. The task says [`Event::Assigned`] after a rebalance and
//! [`Event::Revoke`] before one; it goes on heartbeating until the consumer has answered the latter (it commits
//! first), so a slow consumer keeps its session. Protocol EAGER: everything is given up before each rebalance.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::messages::join_group_request::JoinGroupRequestProtocol;
use protocol::messages::leave_group_request::MemberIdentity;
use protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use protocol::messages::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, HeartbeatRequest, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, SyncGroupRequest, consumer_protocol_assignment,
};
use protocol::{Decoder, Encoder, ErrorCode, Message, Request};
use record::TopicPartition;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::assignor::{Assignor, Counts, Member, Members, subscribed_topics};
use super::config::ConsumerConfig;
use crate::cluster::{Cluster, CoordinatorKind, Target};
use crate::connection::Connection;
use crate::error::{ApiError, ClientError};
use crate::offsets::Membership;

const PROTOCOL_TYPE: &str = "consumer";
/// The broker parks a JoinGroup for up to the rebalance timeout; beyond it the answer gets this much more.
const JOIN_GRACE: Duration = Duration::from_secs(5);
/// Version of our subscription and assignment messages; readers accept later ones.
const CONSUMER_PROTOCOL_VERSION: i16 = 3;

#[derive(Debug)]
pub(super) enum Event {
    Assigned {
        membership: Membership,
        partitions: Vec<TopicPartition>,
    },
    /// The partitions will be lost when this is answered.
    Revoke(oneshot::Sender<()>),
    Failed(ClientError),
}

/// What a rebalance depends on: the topics, and how many partitions they have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Subscribed {
    topics: Vec<String>,
    partitions: usize,
}

pub(super) struct GroupMember {
    pub(super) events: mpsc::UnboundedReceiver<Event>,
    subscription: watch::Sender<Subscribed>,
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

impl GroupMember {
    pub(super) fn join(
        cluster: Cluster,
        config: Arc<ConsumerConfig>,
        group: String,
        topics: Vec<String>,
        partitions: usize,
    ) -> Self {
        let (report, events) = mpsc::unbounded_channel();
        let (subscription, subscribed) = watch::channel(Subscribed { topics, partitions });
        let (stop, stopped) = oneshot::channel();
        let session = Session { cluster, config, group, report, subscribed, member_id: String::new() };
        let task = tokio::spawn(session.run(stopped));
        GroupMember { events, subscription, stop: Some(stop), task }
    }

    /// When the topics or their partitions have changed, the group rebalances.
    pub(super) fn resubscribe(&self, topics: Vec<String>, partitions: usize) {
        let new = Subscribed { topics, partitions };
        self.subscription.send_if_modified(|old| {
            let changed = *old != new;
            *old = new;
            changed
        });
    }

    /// Leaves the group.
    pub(super) async fn leave(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let _ = self.task.await;
    }
}

struct Session {
    cluster: Cluster,
    config: Arc<ConsumerConfig>,
    group: String,
    report: mpsc::UnboundedSender<Event>,
    subscribed: watch::Receiver<Subscribed>,
    member_id: String,
}

/// A generation this member belongs to.
struct Generation {
    id: i32,
    connection: Connection,
}

impl Session {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        loop {
            let cycle = tokio::select! {
                cycle = self.cycle() => cycle,
                _ = &mut stopped => {
                    self.leave().await;
                    return;
                }
            };
            match cycle {
                Ok(()) => {}
                Err(error) if error.is_retriable() || matches!(error, ClientError::TimedOut { .. }) => {
                    self.cluster.forget_coordinator(CoordinatorKind::Group, &self.group);
                    tokio::time::sleep(self.config.retry_backoff).await;
                }
                Err(error) => {
                    let _ = self.report.send(Event::Failed(error));
                    return;
                }
            }
        }
    }

    /// Joins, then heartbeats until there is a reason to join again.
    async fn cycle(&mut self) -> Result<(), ClientError> {
        let node = self.cluster.coordinator(CoordinatorKind::Group, &self.group).await?;
        let connection = self.cluster.dedicated_connection(node, self.cluster.connection_options()).await?;
        let Some(joined) = self.join(&connection).await? else { return Ok(()) };
        let generation = Generation { id: joined.generation_id, connection };
        let Some(partitions) = self.sync(&generation, &joined).await? else { return Ok(()) };
        let membership = Membership {
            member_id: self.member_id.clone(),
            generation: generation.id,
            instance_id: self.config.group_instance_id.clone(),
        };
        let _ = self.report.send(Event::Assigned { membership, partitions });
        let ended = self.heartbeat_until_rebalance(&generation).await;
        self.revoke(&generation).await;
        ended
    }

    async fn join(&mut self, connection: &Connection) -> Result<Option<JoinGroupResponse>, ClientError> {
        let version = connection.version_of::<JoinGroupRequest>()?;
        let topics = self.subscribed.borrow_and_update().topics.clone();
        let metadata = encode_versioned(&ConsumerProtocolSubscription { topics, ..Default::default() })?;
        let protocols = self.config.assignors.iter().map(|assignor| JoinGroupRequestProtocol {
            name: assignor.name().to_owned(),
            metadata: metadata.clone(),
        });
        let request = JoinGroupRequest {
            group_id: self.group.clone(),
            session_timeout_ms: millis(self.config.session_timeout),
            rebalance_timeout_ms: millis(self.config.max_poll_interval),
            member_id: self.member_id.clone(),
            group_instance_id: self.config.group_instance_id.clone().filter(|_| version >= 5),
            protocol_type: PROTOCOL_TYPE.to_owned(),
            protocols: protocols.collect(),
            reason: None,
        };
        let limit = self.config.max_poll_interval + JOIN_GRACE;
        let response = connection.send_within(&request, version, limit).await?;
        match ErrorCode::from_code(response.error_code) {
            ErrorCode::NONE => {
                self.member_id.clone_from(&response.member_id);
                Ok(Some(response))
            }
            // KIP-394: the broker has named this member and wants to see it again under that name.
            ErrorCode::MEMBER_ID_REQUIRED => {
                self.member_id = response.member_id;
                Ok(None)
            }
            code => self.rejoin_after(code).map(|()| None),
        }
    }

    /// The codes after which a member joins again; any other one is an error.
    fn rejoin_after(&mut self, code: ErrorCode) -> Result<(), ClientError> {
        match code {
            ErrorCode::UNKNOWN_MEMBER_ID => {
                self.member_id.clear();
                Ok(())
            }
            ErrorCode::REBALANCE_IN_PROGRESS | ErrorCode::ILLEGAL_GENERATION => Ok(()),
            ErrorCode::FENCED_INSTANCE_ID => Err(ClientError::Api(ApiError::new(code, None))),
            code => Err(code.into()),
        }
    }

    async fn sync(
        &mut self,
        generation: &Generation,
        joined: &JoinGroupResponse,
    ) -> Result<Option<Vec<TopicPartition>>, ClientError> {
        let version = generation.connection.version_of::<SyncGroupRequest>()?;
        let chosen = joined.protocol_name.clone().unwrap_or_default();
        let mut assignments = Vec::new();
        if joined.leader == self.member_id && !joined.skip_assignment {
            assignments = self.assign(&chosen, joined).await?;
        }
        let request = SyncGroupRequest {
            group_id: self.group.clone(),
            generation_id: generation.id,
            member_id: self.member_id.clone(),
            group_instance_id: self.config.group_instance_id.clone().filter(|_| version >= 3),
            protocol_type: (version >= 5).then(|| PROTOCOL_TYPE.to_owned()),
            protocol_name: (version >= 5).then_some(chosen),
            assignments,
        };
        let limit = self.config.max_poll_interval + JOIN_GRACE;
        let response = generation.connection.send_within(&request, version, limit).await?;
        match ErrorCode::from_code(response.error_code) {
            ErrorCode::NONE => Ok(Some(decode_assignment(response.assignment)?)),
            code => self.rejoin_after(code).map(|()| None),
        }
    }

    /// The leader's part.
    async fn assign(
        &self,
        chosen: &str,
        joined: &JoinGroupResponse,
    ) -> Result<Vec<SyncGroupRequestAssignment>, ClientError> {
        let unknown =
            || ClientError::Config(format!("the group chose the assignor {chosen}, which is not known here"));
        let assignor = Assignor::parse(chosen).ok_or_else(unknown)?;
        let mut members = Members::new();
        for member in &joined.members {
            let subscription: ConsumerProtocolSubscription = decode_versioned(member.metadata.clone())?;
            let owned = subscription.owned_partitions.iter();
            let owned =
                owned.flat_map(|topic| topic.partitions.iter().map(|number| (topic.topic.clone(), *number)));
            let described = Member {
                order: member.group_instance_id.clone().unwrap_or_else(|| member.member_id.clone()),
                owned: owned.collect(),
                generation: subscription.generation_id,
                topics: subscription.topics,
            };
            members.insert(member.member_id.clone(), described);
        }
        let metadata = self.cluster.metadata(Some(&subscribed_topics(&members))).await?;
        let mut counts = Counts::new();
        for topic in metadata.topics.into_iter().filter(|topic| topic.error_code == 0) {
            let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
            counts.insert(topic.name.unwrap_or_default(), count);
        }
        let assigned = assignor.assign(&members, &counts);
        let encode = |(member_id, partitions): (String, Vec<(String, i32)>)| {
            let message =
                ConsumerProtocolAssignment { assigned_partitions: grouped(partitions), user_data: None };
            Ok(SyncGroupRequestAssignment { member_id, assignment: encode_versioned(&message)? })
        };
        assigned.into_iter().map(encode).collect()
    }

    async fn heartbeat_until_rebalance(&mut self, generation: &Generation) -> Result<(), ClientError> {
        let mut subscribed = self.subscribed.clone();
        let mut next = Instant::now() + self.config.heartbeat_interval;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                changed = subscribed.changed() => {
                    // The consumer is gone when this fails; its handle stops this task then.
                    if changed.is_ok() {
                        return Ok(());
                    }
                }
            }
            next = Instant::now() + self.config.heartbeat_interval;
            match self.heartbeat(generation).await? {
                ErrorCode::NONE => {}
                code => return self.rejoin_after(code),
            }
        }
    }

    async fn heartbeat(&self, generation: &Generation) -> Result<ErrorCode, ClientError> {
        let version = generation.connection.version_of::<HeartbeatRequest>()?;
        let request = HeartbeatRequest {
            group_id: self.group.clone(),
            generation_id: generation.id,
            member_id: self.member_id.clone(),
            group_instance_id: self.config.group_instance_id.clone().filter(|_| version >= 3),
        };
        let response = generation.connection.send_version(&request, version).await?;
        Ok(ErrorCode::from_code(response.error_code))
    }

    /// Waits until the consumer has let go of its partitions.
    async fn revoke(&mut self, generation: &Generation) {
        let (answer, answered) = oneshot::channel();
        if self.report.send(Event::Revoke(answer)).is_err() {
            return;
        }
        tokio::pin!(answered);
        loop {
            match tokio::time::timeout(self.config.heartbeat_interval, &mut answered).await {
                Ok(_) => return,
                Err(_) => drop(self.heartbeat(generation).await),
            }
        }
    }

    async fn leave(&mut self) {
        // A static member stays, so that it finds its partitions again when it comes back (KIP-345).
        if self.member_id.is_empty() || self.config.group_instance_id.is_some() {
            return;
        }
        let Ok(node) = self.cluster.coordinator(CoordinatorKind::Group, &self.group).await else { return };
        let Ok(connection) = self.cluster.connection(Target::Node(node)).await else { return };
        let Ok(version) = connection.version_of::<LeaveGroupRequest>() else { return };
        let mut request = LeaveGroupRequest { group_id: self.group.clone(), ..Default::default() };
        if version >= 3 {
            let reason = (version >= 5).then(|| "the consumer is being closed".to_owned());
            request.members =
                vec![MemberIdentity { member_id: self.member_id.clone(), reason, ..Default::default() }];
        } else {
            request.member_id.clone_from(&self.member_id);
        }
        if let Err(error) = connection.send_version(&request, version).await {
            tracing::debug!(%error, "leaving the group failed; the session times out instead");
        }
    }
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

fn grouped(partitions: Vec<(String, i32)>) -> Vec<consumer_protocol_assignment::TopicPartition> {
    let mut topics: Vec<consumer_protocol_assignment::TopicPartition> = Vec::new();
    for (topic, partition) in partitions {
        match topics.last_mut() {
            Some(last) if last.topic == topic => last.partitions.push(partition),
            _ => topics
                .push(consumer_protocol_assignment::TopicPartition { topic, partitions: vec![partition] }),
        }
    }
    topics
}

/// Consumer protocol messages carry their version in front.
fn encode_versioned<M: Message>(message: &M) -> Result<Bytes, ClientError> {
    let error = |error| ClientError::Encode { api: JoinGroupRequest::API_KEY, error };
    let version = CONSUMER_PROTOCOL_VERSION.min(M::MAX_VERSION);
    let mut encoder = Encoder::new();
    encoder.i16(version);
    message.encode(&mut encoder, version).map_err(error)?;
    encoder.finish_contiguous().map_err(error)
}

/// Versions from the future are read as the newest known one: fields are only ever added at the end.
pub fn decode_versioned<M: Message>(bytes: Bytes) -> Result<M, ClientError> {
    let error = |error| ClientError::Decode { api: JoinGroupRequest::API_KEY, error };
    let mut decoder = Decoder::new(bytes);
    let version = decoder.i16().map_err(error)?;
    M::decode(&mut decoder, version.clamp(M::MIN_VERSION, M::MAX_VERSION)).map_err(error)
}

/// The partitions of an assignment; an empty one has none.
pub fn decode_assignment(bytes: Bytes) -> Result<Vec<TopicPartition>, ClientError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let assignment: ConsumerProtocolAssignment = decode_versioned(bytes)?;
    let mut partitions = Vec::new();
    for topic in assignment.assigned_partitions {
        let name: Arc<str> = topic.topic.as_str().into();
        partitions.extend(
            topic
                .partitions
                .into_iter()
                .map(|partition| TopicPartition { topic: Arc::clone(&name), partition }),
        );
    }
    Ok(partitions)
}
