//! DescribeTopicPartitions (key 75, KIP-966): topics page by page, with eligible leader replicas.

use super::Answer;
use crate::context::RequestContext;
use crate::metadata_view::{
    ALL_TOPIC_OPERATIONS, ViewOptions, is_internal_topic, missing_topic_error, partition_view,
    partitions_in_order,
};
use crate::node::Node;
use metadata::MetadataImage;
use metadata::image::TopicImage;
use protocol::ErrorCode;
use protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use protocol::messages::{DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse};
use std::collections::BTreeSet;

pub(crate) fn handle(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: DescribeTopicPartitionsRequest,
) -> Answer<DescribeTopicPartitionsResponse> {
    let image = node.image();
    let (from_topic, from_partition) = match &request.cursor {
        Some(cursor) => (cursor.topic_name.as_str(), cursor.partition_index),
        None => ("", 0),
    };
    let all = request.topics.is_empty();
    let cursor_fits = all
        || request.cursor.is_none()
        || request.topics.iter().any(|topic| topic.name.as_str() == from_topic);
    if from_partition < 0 || !cursor_fits {
        let topics = request.topics.into_iter().map(|topic| DescribeTopicPartitionsResponseTopic {
            error_code: ErrorCode::INVALID_REQUEST.code(),
            name: Some(topic.name),
            ..DescribeTopicPartitionsResponseTopic::default()
        });
        return Answer::Now(DescribeTopicPartitionsResponse {
            topics: topics.collect(),
            ..DescribeTopicPartitionsResponse::default()
        });
    }
    let names: BTreeSet<String> = if all {
        image.topics.iter_by_name().map(|topic| topic.name.to_string()).collect()
    } else {
        request.topics.into_iter().map(|topic| topic.name).collect()
    };
    let limit = node.settings().max_request_partition_size_limit.min(request.response_partition_limit).max(1)
        as usize;
    let mut response = DescribeTopicPartitionsResponse::default();
    let mut left = limit;
    for name in names.into_iter().filter(|name| name.as_str() >= from_topic) {
        let Some(topic) = image.topics.topic_by_name(&name) else {
            let error = missing_topic_error(&name);
            let is_internal = is_internal_topic(&name);
            response.topics.push(DescribeTopicPartitionsResponseTopic {
                error_code: error.code(),
                name: Some(name),
                is_internal,
                topic_authorized_operations: ALL_TOPIC_OPERATIONS,
                ..DescribeTopicPartitionsResponseTopic::default()
            });
            continue;
        };
        let first = if name == from_topic { from_partition } else { 0 };
        if left == 0 {
            response.next_cursor = Some(Cursor { topic_name: name, partition_index: first });
            break;
        }
        let (described, next) = describe(&image, topic, &context.session.listener, first, left);
        left -= described.partitions.len();
        response.topics.push(described);
        if let Some(next) = next {
            response.next_cursor = Some(Cursor { topic_name: name, partition_index: next });
            break;
        }
    }
    Answer::Now(response)
}

/// Up to `limit` partitions from `first` on, and the index to go on with.
fn describe(
    image: &MetadataImage,
    topic: &TopicImage,
    listener: &str,
    first: i32,
    limit: usize,
) -> (DescribeTopicPartitionsResponseTopic, Option<i32>) {
    let options = ViewOptions { error_unavailable_replicas: false, error_missing_listener: true };
    let all = partitions_in_order(topic);
    let mut wanted = all.range(first..);
    let partitions = wanted
        .by_ref()
        .take(limit)
        .map(|(index, partition)| {
            let view = partition_view(image, partition, listener, options);
            DescribeTopicPartitionsResponsePartition {
                error_code: view.error.code(),
                partition_index: *index,
                leader_id: view.leader,
                leader_epoch: view.leader_epoch,
                replica_nodes: view.replicas,
                isr_nodes: view.isr,
                eligible_leader_replicas: Some(partition.elr.clone()),
                last_known_elr: Some(partition.last_known_elr.clone()),
                offline_replicas: view.offline,
            }
        })
        .collect();
    let described = DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode::NONE.code(),
        name: Some(topic.name.to_string()),
        topic_id: topic.id,
        is_internal: is_internal_topic(&topic.name),
        partitions,
        topic_authorized_operations: ALL_TOPIC_OPERATIONS,
    };
    (described, wanted.next().map(|(index, _)| *index))
}
