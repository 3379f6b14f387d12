//! Metadata (key 3): brokers, topics and partitions; creates missing topics where both sides allow it.

use super::Answer;
use crate::context::RequestContext;
use crate::metadata_view::{
    ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS, OPERATIONS_NOT_ASKED, ViewOptions, brokers,
    is_internal_topic, missing_topic_error, partition_view, partitions_in_order,
};
use crate::node::Node;
use metadata::MetadataImage;
use metadata::image::TopicImage;
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use protocol::messages::{MetadataRequest, MetadataResponse};
use protocol::{ErrorCode, Uuid};
use std::collections::HashSet;

/// Topics may be asked for by id from this version on.
const FIRST_TOPIC_ID_VERSION: i16 = 12;

pub(crate) fn handle(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: MetadataRequest,
) -> Answer<MetadataResponse> {
    let version = context.version();
    let image = node.image();
    let view = View {
        image: &image,
        listener: &context.session.listener,
        version,
        with_operations: request.include_topic_authorized_operations,
    };
    let topics = match request.topics {
        None => view.all_topics(),
        Some(topics) if version == 0 && topics.is_empty() => view.all_topics(),
        Some(topics) => {
            let by_id = topics.iter().any(|topic| topic.topic_id != Uuid::ZERO);
            let nameless = topics.iter().any(|topic| topic.name.is_none());
            if version < FIRST_TOPIC_ID_VERSION && (by_id || nameless) {
                return Answer::Now(refusal(topics, ErrorCode::INVALID_REQUEST));
            }
            if by_id {
                let mut seen = HashSet::new();
                topics
                    .into_iter()
                    .filter(|topic| topic.topic_id != Uuid::ZERO && seen.insert(topic.topic_id))
                    .map(|topic| view.by_id(topic.topic_id))
                    .collect()
            } else if nameless {
                return Answer::Now(refusal(topics, ErrorCode::UNKNOWN_SERVER_ERROR));
            } else {
                let mut seen = HashSet::new();
                let names = topics.into_iter().filter_map(|topic| topic.name);
                let names: Vec<String> = names.filter(|name| seen.insert(name.clone())).collect();
                view.by_names(node, context, names, request.allow_auto_topic_creation)
            }
        }
    };
    let nodes = brokers(&image, &context.session.listener, false);
    let asked_cluster_operations =
        request.include_cluster_authorized_operations && (8..=10).contains(&version);
    Answer::Now(MetadataResponse {
        controller_id: node.any_alive_broker(&image),
        brokers: nodes
            .into_iter()
            .map(|broker| MetadataResponseBroker {
                node_id: broker.id,
                host: broker.host,
                port: broker.port,
                rack: broker.rack,
            })
            .collect(),
        cluster_id: Some(node.cluster_id().to_owned()),
        topics,
        cluster_authorized_operations: if asked_cluster_operations {
            ALL_CLUSTER_OPERATIONS
        } else {
            OPERATIONS_NOT_ASKED
        },
        ..MetadataResponse::default()
    })
}

struct View<'a> {
    image: &'a MetadataImage,
    listener: &'a str,
    version: i16,
    with_operations: bool,
}

impl View<'_> {
    fn all_topics(&self) -> Vec<MetadataResponseTopic> {
        self.image.topics.iter_by_name().map(|topic| self.topic(topic)).collect()
    }

    fn by_id(&self, id: Uuid) -> MetadataResponseTopic {
        match self.image.topics.topic(&id) {
            Some(topic) => self.topic(topic),
            None => error_topic(ErrorCode::UNKNOWN_TOPIC_ID, None, id),
        }
    }

    fn by_names(
        &self,
        node: &Node,
        context: &RequestContext<'_>,
        names: Vec<String>,
        allow_creation: bool,
    ) -> Vec<MetadataResponseTopic> {
        let (known, missing): (Vec<String>, Vec<String>) =
            names.into_iter().partition(|name| self.image.topics.topic_by_name(name).is_some());
        let mut topics: Vec<MetadataResponseTopic> = known
            .iter()
            .filter_map(|name| self.image.topics.topic_by_name(name))
            .map(|topic| self.topic(topic))
            .collect();
        for name in missing {
            let error = missing_topic_error(&name);
            if error == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                && allow_creation
                && node.settings().auto_create_topics_enable
            {
                node.auto_create_topic(context.now, &name);
            }
            let internal = is_internal_topic(&name);
            topics.push(MetadataResponseTopic {
                is_internal: internal,
                topic_authorized_operations: self.operations(),
                ..error_topic(error, Some(name), Uuid::ZERO)
            });
        }
        topics
    }

    fn operations(&self) -> i32 {
        if self.with_operations { ALL_TOPIC_OPERATIONS } else { OPERATIONS_NOT_ASKED }
    }

    fn topic(&self, topic: &TopicImage) -> MetadataResponseTopic {
        let options = ViewOptions {
            error_unavailable_replicas: self.version == 0,
            error_missing_listener: self.version >= 6,
        };
        let partitions = partitions_in_order(topic)
            .into_iter()
            .map(|(index, partition)| {
                let view = partition_view(self.image, partition, self.listener, options);
                MetadataResponsePartition {
                    error_code: view.error.code(),
                    partition_index: index,
                    leader_id: view.leader,
                    leader_epoch: view.leader_epoch,
                    replica_nodes: view.replicas,
                    isr_nodes: view.isr,
                    offline_replicas: view.offline,
                }
            })
            .collect();
        MetadataResponseTopic {
            error_code: ErrorCode::NONE.code(),
            name: Some(topic.name.to_string()),
            topic_id: topic.id,
            is_internal: is_internal_topic(&topic.name),
            partitions,
            topic_authorized_operations: self.operations(),
        }
    }
}

/// The answer to a request that cannot be understood: every topic has the error, and nothing else is told.
fn refusal(topics: Vec<MetadataRequestTopic>, error: ErrorCode) -> MetadataResponse {
    MetadataResponse {
        topics: topics
            .into_iter()
            .map(|topic| error_topic(error, Some(topic.name.unwrap_or_default()), topic.topic_id))
            .collect(),
        error_code: error.code(),
        ..MetadataResponse::default()
    }
}

fn error_topic(error: ErrorCode, name: Option<String>, topic_id: Uuid) -> MetadataResponseTopic {
    MetadataResponseTopic { error_code: error.code(), name, topic_id, ..MetadataResponseTopic::default() }
}
