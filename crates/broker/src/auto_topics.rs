//! Topics that are created because somebody asked for them: clients' topics (`auto.create.topics.enable`) and the
//! group coordinator's own.
//!
//! Invariant: of each topic at most one creation is on its way to the controller.

use crate::controller_service::{ControllerRequest, Origin};
use crate::node::Node;
use protocol::ErrorCode;
use protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};
use record::Time;
use std::collections::BTreeSet;

/// The topic of the group coordinator.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Names on their way.
#[derive(Debug, Default)]
pub(crate) struct AutoTopics {
    in_flight: BTreeSet<String>,
}

impl Node {
    /// Asks the controller for the topic unless that has been done. Nobody waits: clients ask for metadata again.
    pub(crate) fn auto_create_topic(&self, _: Time, name: &str) {
        if !self.auto_topics.lock().in_flight.insert(name.to_owned()) {
            return;
        }
        let request = CreateTopicsRequest {
            topics: vec![self.creatable(name)],
            timeout_ms: self.settings().request_timeout_ms,
            validate_only: false,
        };
        self.submit(ControllerRequest::CreateTopics(request), Origin::AutoCreate(name.to_owned()));
    }

    fn creatable(&self, name: &str) -> CreatableTopic {
        let settings = self.settings();
        if name != OFFSETS_TOPIC {
            return CreatableTopic {
                name: name.to_owned(),
                num_partitions: settings.num_partitions,
                replication_factor: i16::try_from(settings.default_replication_factor).unwrap_or(i16::MAX),
                ..CreatableTopic::default()
            };
        }
        let live = self.image().cluster.brokers.iter().filter(|(_, broker)| !broker.fenced).count();
        let factor = settings.offsets_topic_replication_factor();
        let replicas = factor.for_live_brokers(live);
        if let config::ReplicationFactor::Auto { up_to } = factor
            && replicas < up_to
        {
            tracing::warn!(target: "kafka.server.DefaultAutoTopicCreationManager", "Topic {name} gets {replicas} instead of {up_to} replicas because {live} brokers are alive and offsets.topic.replication.factor is not set; an explicit value would be obeyed strictly");
        }
        let config =
            |key: &str, value: String| CreatableTopicConfig { name: key.to_owned(), value: Some(value) };
        CreatableTopic {
            name: name.to_owned(),
            num_partitions: settings.offsets_topic_num_partitions,
            replication_factor: replicas,
            configs: vec![
                config("cleanup.policy", "compact".into()),
                config("compression.type", "producer".into()),
                config("segment.bytes", settings.offsets_topic_segment_bytes.to_string()),
            ],
            ..CreatableTopic::default()
        }
    }

    /// The controller's answer to a creation of ours.
    pub(crate) fn handle_auto_created(&self, name: &str, response: &CreateTopicsResponse) {
        self.auto_topics.lock().in_flight.remove(name);
        let Some(result) = response.topics.first() else { return };
        let error = ErrorCode::from_code(result.error_code);
        if error != ErrorCode::NONE && error != ErrorCode::TOPIC_ALREADY_EXISTS {
            let message = result.error_message.as_deref().unwrap_or(error.message());
            tracing::warn!(target: "kafka.server.DefaultAutoTopicCreationManager", "Auto topic creation of {name} failed: {}: {message}", error.name());
        }
    }
}
