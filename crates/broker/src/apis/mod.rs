//! The request table: which APIs each kind of listener serves, and the way from a frame to a handler and back.
//!
//! Invariants
//! * What ApiVersions advertises is exactly what the tables below serve, in the versions of Apache Kafka 4.4.0.
//! * A frame that cannot be decoded, an API that is not served and a version out of range end the connection, as in
//!   Apache Kafka; ApiVersions alone answers an unknown version (KIP-511).

pub(crate) mod alter_configs;
pub(crate) mod alter_replica_log_dirs;
pub(crate) mod api_versions;
pub(crate) mod delete_records;
pub(crate) mod describe_cluster;
pub(crate) mod describe_configs;
pub(crate) mod describe_log_dirs;
pub(crate) mod describe_producers;
pub(crate) mod describe_topic_partitions;
pub(crate) mod fetch;
pub(crate) mod find_coordinator;
pub(crate) mod forwarded;
pub(crate) mod groups;
pub(crate) mod init_producer_id;
pub(crate) mod list_offsets;
pub(crate) mod metadata;
pub(crate) mod offset_for_leader_epoch;
pub(crate) mod produce;
pub(crate) mod sasl_handshake;

use crate::context::{ListenerRole, RequestContext, Session};
use crate::node::Node;
use crate::reply::{Reply, ReplyTo, RequestToken};
use bytes::Bytes;
use protocol::{ApiKey, Decoder, Request, RequestHeader};
use std::collections::HashMap;
use storage::FileSlice;

/// What a handler gives back.
pub(crate) enum Answer<T> {
    Now(T),
    /// External records of the answer are these ranges.
    WithFiles(T, Vec<FileSlice>),
    /// The answer comes through the outbox.
    Later,
    /// The request gets no answer.
    Never,
    /// The connection must end; the text is logged.
    Close(String),
}

/// What becomes of a request, for the shell.
pub enum Outcome {
    Reply(Reply),
    NoReply,
    Deferred,
    Close(String),
}

macro_rules! tables {
    ($(#[$broker_doc:meta])* broker { $($key:ident => $handler:path),* $(,)? } controller { $($ckey:ident => $chandler:path),* $(,)? }) => {
        /// APIs served on broker listeners.
        pub(crate) const BROKER_APIS: &[ApiKey] = &[$(ApiKey::$key),*];
        /// APIs served on controller listeners.
        pub(crate) const CONTROLLER_APIS: &[ApiKey] = &[$(ApiKey::$ckey),*];

        fn dispatch(node: &Node, context: &mut RequestContext<'_>, body: &mut Decoder) -> Outcome {
            match (context.session.role, context.reply_to.api_key) {
                $((ListenerRole::Broker, ApiKey::$key) => run(node, context, body, $handler),)*
                $((ListenerRole::Controller, ApiKey::$ckey) => run(node, context, body, $chandler),)*
                (_, key) => Outcome::Close(format!("the request {} is not served on listener {}", key.name(), context.session.listener)),
            }
        }
    };
}

tables! {
    broker {
        Produce => produce::handle,
        Fetch => fetch::handle,
        ListOffsets => list_offsets::handle,
        Metadata => metadata::handle,
        OffsetCommit => groups::offset_commit,
        OffsetFetch => groups::offset_fetch,
        FindCoordinator => find_coordinator::handle,
        JoinGroup => groups::join_group,
        Heartbeat => groups::heartbeat,
        LeaveGroup => groups::leave_group,
        SyncGroup => groups::sync_group,
        DescribeGroups => groups::describe_groups,
        ListGroups => groups::list_groups,
        SaslHandshake => sasl_handshake::handle,
        ApiVersions => api_versions::handle,
        CreateTopics => forwarded::create_topics,
        DeleteTopics => forwarded::delete_topics,
        DeleteRecords => delete_records::handle,
        InitProducerId => init_producer_id::handle,
        OffsetForLeaderEpoch => offset_for_leader_epoch::handle,
        DescribeConfigs => describe_configs::handle,
        AlterConfigs => alter_configs::legacy,
        AlterReplicaLogDirs => alter_replica_log_dirs::handle,
        DescribeLogDirs => describe_log_dirs::handle,
        CreatePartitions => forwarded::create_partitions,
        DeleteGroups => groups::delete_groups,
        IncrementalAlterConfigs => alter_configs::incremental,
        OffsetDelete => groups::offset_delete,
        DescribeQuorum => forwarded::describe_quorum,
        UnregisterBroker => forwarded::unregister_broker,
        ElectLeaders => forwarded::elect_leaders,
        AlterPartitionReassignments => forwarded::alter_partition_reassignments,
        ListPartitionReassignments => forwarded::list_partition_reassignments,
        UpdateFeatures => forwarded::update_features,
        DescribeCluster => describe_cluster::handle,
        DescribeProducers => describe_producers::handle,
        ListConfigResources => describe_configs::list_resources,
        DescribeTopicPartitions => describe_topic_partitions::handle,
    }
    controller {
        SaslHandshake => sasl_handshake::handle,
        ApiVersions => api_versions::handle,
        CreateTopics => forwarded::create_topics,
        DeleteTopics => forwarded::delete_topics,
        DescribeConfigs => describe_configs::handle,
        AlterConfigs => alter_configs::legacy,
        CreatePartitions => forwarded::create_partitions,
        IncrementalAlterConfigs => alter_configs::incremental,
        DescribeQuorum => forwarded::describe_quorum,
        UnregisterBroker => forwarded::unregister_broker,
        ElectLeaders => forwarded::elect_leaders,
        AlterPartitionReassignments => forwarded::alter_partition_reassignments,
        ListPartitionReassignments => forwarded::list_partition_reassignments,
        UpdateFeatures => forwarded::update_features,
        DescribeCluster => describe_cluster::handle,
        AssignReplicasToDirs => forwarded::assign_replicas_to_dirs,
    }
}

/// The APIs of a kind of listener.
pub(crate) fn served_apis(role: ListenerRole) -> &'static [ApiKey] {
    match role {
        ListenerRole::Broker => BROKER_APIS,
        ListenerRole::Controller => CONTROLLER_APIS,
    }
}

fn run<R: Request>(
    node: &Node,
    context: &mut RequestContext<'_>,
    body: &mut Decoder,
    handler: fn(&Node, &mut RequestContext<'_>, R) -> Answer<R::Response>,
) -> Outcome {
    let reply_to = context.reply_to;
    let request = match R::decode(body, reply_to.api_version) {
        Ok(request) => request,
        Err(error) => return garbled(&reply_to, context.session, &error.to_string()),
    };
    let encoded = match handler(node, context, request) {
        Answer::Now(response) => reply_to.encode(&response),
        Answer::WithFiles(response, files) => reply_to.encode_with_files(&response, files),
        Answer::Later => return Outcome::Deferred,
        Answer::Never => return Outcome::NoReply,
        Answer::Close(reason) => return Outcome::Close(reason),
    };
    match encoded {
        Ok(reply) => Outcome::Reply(reply),
        Err(error) => Outcome::Close(format!(
            "the answer to {} v{} cannot be encoded: {error}",
            reply_to.api_key.name(),
            reply_to.api_version
        )),
    }
}

fn garbled(reply_to: &ReplyTo, session: &Session, error: &str) -> Outcome {
    let software = if session.software_name.is_empty() { "unknown client" } else { &session.software_name };
    Outcome::Close(format!(
        "Error getting request for apiKey: {}, apiVersion: {}, client software: {software}: {error}",
        reply_to.api_key.name(),
        reply_to.api_version
    ))
}

/// Handles one frame.
pub(crate) fn handle_frame(node: &Node, session: &mut Session, token: RequestToken, frame: Bytes) -> Outcome {
    let mut decoder = Decoder::new(frame);
    let header = match RequestHeader::decode(&mut decoder) {
        Ok(header) => header,
        Err(error) => return Outcome::Close(format!("Error parsing request header: {error}")),
    };
    let reply_to = ReplyTo {
        token,
        api_key: header.api_key,
        api_version: header.api_version,
        correlation_id: header.correlation_id,
    };
    if !is_served(session.role, header.api_key, header.api_version) {
        if header.api_key == ApiKey::ApiVersions {
            return api_versions::unsupported_version(session, reply_to);
        }
        return garbled(
            &reply_to,
            session,
            "this API or version is not served; the client may be older than Apache Kafka 2.1 (KIP-896)",
        );
    }
    let client_id = header.client_id.unwrap_or_default();
    let mut context = RequestContext { session, now: node.now(), reply_to, client_id: &client_id };
    dispatch(node, &mut context, &mut decoder)
}

/// A topic's partitions, each with all that was asked of it.
type Grouped<P> = Vec<(String, Vec<Vec<P>>)>;

/// A request's topics, each once, with their partitions in the order of their first naming; topics without
/// partitions are left out.
fn group<P>(topics: impl Iterator<Item = (String, Vec<P>)>, index: impl Fn(&P) -> i32) -> Grouped<P> {
    let mut places: HashMap<String, (usize, HashMap<i32, usize>)> = HashMap::new();
    let mut grouped: Grouped<P> = Vec::new();
    for (name, partitions) in topics.filter(|(_, partitions)| !partitions.is_empty()) {
        let (topic, places) = places.entry(name).or_insert_with_key(|name| {
            grouped.push((name.clone(), Vec::new()));
            (grouped.len() - 1, HashMap::new())
        });
        let Some((_, asked)) = grouped.get_mut(*topic) else { continue };
        for partition in partitions {
            let place = *places.entry(index(&partition)).or_insert_with(|| {
                asked.push(Vec::with_capacity(1));
                asked.len() - 1
            });
            if let Some(asked) = asked.get_mut(place) {
                asked.push(partition);
            }
        }
    }
    grouped
}

/// Whether a request of this version may be handled on such a listener.
fn is_served(role: ListenerRole, key: ApiKey, version: i16) -> bool {
    served_apis(role).contains(&key) && (key.min_version()..=key.max_stable_version()).contains(&version)
}
