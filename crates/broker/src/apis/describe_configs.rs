//! DescribeConfigs (key 32) and ListConfigResources (key 74): what is configured, where it comes from, and for what.

use super::Answer;
use crate::context::RequestContext;
use crate::node::Node;
use config::describe::{
    DescribedConfig, describe_broker, describe_broker_default, describe_client_metrics, describe_group,
    describe_topic, select,
};
use config::topic::validate_topic_name;
use config::{ConfigError, ResourceKind};
use metadata::ConfigResource;
use protocol::ErrorCode;
use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use protocol::messages::list_config_resources_response::ConfigResource as ListedResource;
use protocol::messages::{
    DescribeConfigsRequest, DescribeConfigsResponse, ListConfigResourcesRequest, ListConfigResourcesResponse,
};
use std::collections::{BTreeMap, BTreeSet};

/// Version 0 of ListConfigResources was ListClientMetricsResources and lists only those.
const FIRST_TYPED_LIST_VERSION: i16 = 1;

pub(crate) fn handle(
    node: &Node,
    _: &mut RequestContext<'_>,
    request: DescribeConfigsRequest,
) -> Answer<DescribeConfigsResponse> {
    let results = request
        .resources
        .into_iter()
        .map(|resource| {
            let mut result = DescribeConfigsResult {
                resource_type: resource.resource_type,
                ..DescribeConfigsResult::default()
            };
            match describe(node, &resource) {
                Ok(entries) => {
                    result.configs = select(entries, resource.configuration_keys.as_deref())
                        .into_iter()
                        .map(|entry| told(entry, request.include_synonyms, request.include_documentation))
                        .collect();
                }
                Err((error, message)) => {
                    result.error_code = error.code();
                    result.error_message = Some(message);
                }
            }
            result.resource_name = resource.resource_name;
            result
        })
        .collect();
    Answer::Now(DescribeConfigsResponse { results, ..DescribeConfigsResponse::default() })
}

type Refusal = (ErrorCode, String);

fn refused(error: &ConfigError) -> Refusal {
    (ErrorCode::from_code(error.error_code()), error.message.clone())
}

fn describe(node: &Node, resource: &DescribeConfigsResource) -> Result<Vec<DescribedConfig>, Refusal> {
    let name = resource.resource_name.as_str();
    let image = node.image();
    let configs = node.broker_configs();
    let overrides = || -> BTreeMap<String, String> {
        image.configs.config_map(&ConfigResource::new(resource.resource_type, name))
    };
    match ResourceKind::from_id(resource.resource_type) {
        Some(ResourceKind::Topic) => {
            validate_topic_name(name).map_err(|error| refused(&error))?;
            if image.topics.topic_by_name(name).is_none() {
                return Err((ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, String::new()));
            }
            describe_topic(&configs, &overrides()).map_err(|error| refused(&error))
        }
        Some(ResourceKind::Broker) if name.is_empty() => Ok(describe_broker_default(&configs)),
        Some(ResourceKind::Broker) => {
            let this = node.node_id();
            if broker_id(name)? != this {
                let message =
                    format!("Unexpected broker id, expected {this} or empty string, but received {name}");
                return Err((ErrorCode::INVALID_REQUEST, message));
            }
            Ok(describe_broker(&configs))
        }
        Some(ResourceKind::BrokerLogger) if name.is_empty() => {
            Err((ErrorCode::INVALID_REQUEST, "Broker id must not be empty".into()))
        }
        Some(ResourceKind::BrokerLogger) => {
            let this = node.node_id();
            if broker_id(name)? != this {
                let message = format!("Unexpected broker id, expected {this} but received {name}");
                return Err((ErrorCode::INVALID_REQUEST, message));
            }
            // This broker has no loggers whose level can be changed while it runs.
            Ok(Vec::new())
        }
        Some(ResourceKind::Group) if name.is_empty() => {
            Err((ErrorCode::INVALID_REQUEST, "Group name must not be empty".into()))
        }
        Some(ResourceKind::Group) => describe_group(&configs, &overrides()).map_err(|error| refused(&error)),
        Some(ResourceKind::ClientMetrics) if name.is_empty() => {
            Err((ErrorCode::INVALID_REQUEST, "Client metrics subscription name must not be empty".into()))
        }
        Some(ResourceKind::ClientMetrics) => {
            describe_client_metrics(&overrides()).map_err(|error| refused(&error))
        }
        None => {
            let error = ErrorCode::INVALID_REQUEST;
            Err((error, error.message().to_owned()))
        }
    }
}

fn broker_id(name: &str) -> Result<i32, Refusal> {
    let refusal =
        |_| (ErrorCode::INVALID_REQUEST, format!("Broker id must be an integer, but it is: {name}"));
    name.parse().map_err(refusal)
}

fn told(
    entry: DescribedConfig,
    with_synonyms: bool,
    with_documentation: bool,
) -> DescribeConfigsResourceResult {
    DescribeConfigsResourceResult {
        name: entry.name,
        value: entry.value,
        read_only: entry.read_only,
        config_source: entry.source.id(),
        is_sensitive: entry.sensitive,
        synonyms: if with_synonyms {
            let told = |s: config::ConfigSynonym| DescribeConfigsSynonym {
                name: s.name,
                value: s.value,
                source: s.source.id(),
            };
            entry.synonyms.into_iter().map(told).collect()
        } else {
            Vec::new()
        },
        config_type: entry.config_type,
        documentation: entry.documentation.filter(|_| with_documentation).map(str::to_owned),
    }
}

pub(crate) fn list_resources(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: ListConfigResourcesRequest,
) -> Answer<ListConfigResourcesResponse> {
    const SUPPORTED: [ResourceKind; 5] = [
        ResourceKind::Topic,
        ResourceKind::Broker,
        ResourceKind::BrokerLogger,
        ResourceKind::ClientMetrics,
        ResourceKind::Group,
    ];
    let asked: BTreeSet<i8> = if context.version() < FIRST_TYPED_LIST_VERSION {
        BTreeSet::from([ResourceKind::ClientMetrics.id()])
    } else if request.resource_types.is_empty() {
        SUPPORTED.iter().map(|kind| kind.id()).collect()
    } else {
        request.resource_types.into_iter().collect()
    };
    if asked.iter().any(|id| !SUPPORTED.iter().any(|kind| kind.id() == *id)) {
        let error_code = ErrorCode::UNSUPPORTED_VERSION.code();
        return Answer::Now(ListConfigResourcesResponse {
            error_code,
            ..ListConfigResourcesResponse::default()
        });
    }
    let image = node.image();
    let mut listed = Vec::new();
    for kind in SUPPORTED.iter().filter(|kind| asked.contains(&kind.id())) {
        let names: Vec<String> = match kind {
            ResourceKind::Topic => image.topics.iter_by_name().map(|topic| topic.name.to_string()).collect(),
            ResourceKind::Broker | ResourceKind::BrokerLogger => {
                image.cluster.brokers.iter().map(|(id, _)| id.to_string()).collect()
            }
            _ => {
                let of_kind = image
                    .configs
                    .resources
                    .iter()
                    .filter(|(resource, _)| resource.resource_type == kind.id());
                of_kind.map(|(resource, _)| resource.name.to_string()).collect()
            }
        };
        listed.extend(
            names.into_iter().map(|resource_name| ListedResource { resource_name, resource_type: kind.id() }),
        );
    }
    Answer::Now(ListConfigResourcesResponse {
        config_resources: listed,
        ..ListConfigResourcesResponse::default()
    })
}
