//! IncrementalAlterConfigs (key 44) and AlterConfigs (key 33): what the receiving broker checks before the controller
//! decides, and the answers of both put together in the order of the request.

use super::Answer;
use crate::context::{ListenerRole, RequestContext};
use crate::controller_service::{ControllerRequest, Origin};
use crate::node::Node;
use config::alter::{
    ConfigChange, check_broker_change, check_broker_replacement, check_broker_resource_name, check_request,
};
use config::{ConfigError, ResourceKind};
use protocol::ErrorCode;
use protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, alter_configs_response, incremental_alter_configs_response,
};
use std::collections::BTreeMap;

/// Operation "set", which every entry of AlterConfigs is.
const SET: i8 = 0;

/// A resource's verdict: type, name, error and message.
pub(crate) type Verdict = (i8, String, ErrorCode, Option<String>);

/// One answer for each resource of the request, in its order; those the broker refused already have their verdict.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    order: Vec<(i8, String)>,
    refused: Vec<Verdict>,
}

impl Plan {
    /// The verdicts of broker and controller in the request's order.
    fn merge(&self, decided: Vec<Verdict>) -> Vec<Verdict> {
        let mut left: Vec<Verdict> = self.refused.iter().cloned().chain(decided).collect();
        self.order
            .iter()
            .map(|(kind, name)| {
                let position = left.iter().position(|(k, n, _, _)| k == kind && n == name);
                position
                    .map(|position| left.swap_remove(position))
                    .unwrap_or_else(|| (*kind, name.clone(), ErrorCode::UNKNOWN_SERVER_ERROR, None))
            })
            .collect()
    }

    pub(crate) fn incremental_answer(
        &self,
        response: IncrementalAlterConfigsResponse,
    ) -> IncrementalAlterConfigsResponse {
        let decided = response
            .responses
            .into_iter()
            .map(|r| (r.resource_type, r.resource_name, ErrorCode::from_code(r.error_code), r.error_message))
            .collect();
        let responses = self
            .merge(decided)
            .into_iter()
            .map(|(resource_type, resource_name, error, error_message)| {
                incremental_alter_configs_response::AlterConfigsResourceResponse {
                    error_code: error.code(),
                    error_message,
                    resource_type,
                    resource_name,
                }
            })
            .collect();
        IncrementalAlterConfigsResponse { throttle_time_ms: response.throttle_time_ms, responses }
    }

    pub(crate) fn legacy_answer(&self, response: AlterConfigsResponse) -> AlterConfigsResponse {
        let decided = response
            .responses
            .into_iter()
            .map(|r| (r.resource_type, r.resource_name, ErrorCode::from_code(r.error_code), r.error_message))
            .collect();
        let responses = self
            .merge(decided)
            .into_iter()
            .map(|(resource_type, resource_name, error, error_message)| {
                alter_configs_response::AlterConfigsResourceResponse {
                    error_code: error.code(),
                    error_message,
                    resource_type,
                    resource_name,
                }
            })
            .collect();
        AlterConfigsResponse { throttle_time_ms: response.throttle_time_ms, responses }
    }
}

pub(crate) fn incremental(
    node: &Node,
    context: &mut RequestContext<'_>,
    mut request: IncrementalAlterConfigsRequest,
) -> Answer<IncrementalAlterConfigsResponse> {
    let keys: Vec<(i8, String)> =
        request.resources.iter().map(|r| (r.resource_type, r.resource_name.clone())).collect();
    let mut plan = Plan { order: keys.clone(), refused: Vec::new() };
    request.resources.retain(|resource| {
        let changes: Vec<ConfigChange> = resource
            .configs
            .iter()
            .map(|c| ConfigChange { name: c.name.clone(), op: c.config_operation, value: c.value.clone() })
            .collect();
        let check = || {
            if context.session.role == ListenerRole::Controller {
                return match ResourceKind::from_id(resource.resource_type) {
                    Some(ResourceKind::BrokerLogger) => {
                        check_loggers(node, &resource.resource_name, &changes)
                    }
                    _ => Ok(true),
                };
            }
            check_request_of(resource.resource_type, &resource.resource_name, &changes, &keys)?;
            if resource.resource_type == ResourceKind::BrokerLogger.id() {
                return check_loggers(node, &resource.resource_name, &changes);
            }
            check_kind(node, resource.resource_type, &resource.resource_name)?;
            if resource.resource_type == ResourceKind::Broker.id() {
                check_broker_change(&node.broker_configs(), &resource.resource_name, &changes)?;
            }
            Ok(true)
        };
        keep(&mut plan, resource.resource_type, &resource.resource_name, check())
    });
    if request.resources.is_empty() {
        return Answer::Now(plan.incremental_answer(IncrementalAlterConfigsResponse::default()));
    }
    node.submit(
        ControllerRequest::IncrementalAlterConfigs(request),
        Origin::AlterConfigs(context.reply_to, plan),
    );
    Answer::Later
}

pub(crate) fn legacy(
    node: &Node,
    context: &mut RequestContext<'_>,
    mut request: AlterConfigsRequest,
) -> Answer<AlterConfigsResponse> {
    let keys: Vec<(i8, String)> =
        request.resources.iter().map(|r| (r.resource_type, r.resource_name.clone())).collect();
    let mut plan = Plan { order: keys.clone(), refused: Vec::new() };
    request.resources.retain(|resource| {
        let changes: Vec<ConfigChange> = resource
            .configs
            .iter()
            .map(|c| ConfigChange { name: c.name.clone(), op: SET, value: c.value.clone() })
            .collect();
        let check = || {
            if context.session.role == ListenerRole::Controller {
                return match ResourceKind::from_id(resource.resource_type) {
                    Some(ResourceKind::BrokerLogger) => {
                        Err(ConfigError::invalid_request("Unexpected resource type BROKER_LOGGER."))
                    }
                    _ => Ok(true),
                };
            }
            check_request_of(resource.resource_type, &resource.resource_name, &changes, &keys)?;
            check_kind(node, resource.resource_type, &resource.resource_name)?;
            if resource.resource_type == ResourceKind::Broker.id() {
                let layer: BTreeMap<String, String> =
                    changes.iter().map(|c| (c.name.clone(), c.value.clone().unwrap_or_default())).collect();
                check_broker_replacement(&node.broker_configs(), &resource.resource_name, &layer)?;
            }
            Ok(true)
        };
        keep(&mut plan, resource.resource_type, &resource.resource_name, check())
    });
    if request.resources.is_empty() {
        return Answer::Now(plan.legacy_answer(AlterConfigsResponse::default()));
    }
    node.submit(ControllerRequest::AlterConfigs(request), Origin::AlterConfigs(context.reply_to, plan));
    Answer::Later
}

/// Notes the verdict of what is decided here; true when the controller has to be asked.
fn keep(plan: &mut Plan, kind: i8, name: &str, check: Result<bool, ConfigError>) -> bool {
    match check {
        Ok(true) => true,
        Ok(false) => {
            plan.refused.push((kind, name.to_owned(), ErrorCode::NONE, None));
            false
        }
        Err(error) => {
            plan.refused.push((
                kind,
                name.to_owned(),
                ErrorCode::from_code(error.error_code()),
                Some(error.message),
            ));
            false
        }
    }
}

fn check_request_of(
    kind: i8,
    name: &str,
    changes: &[ConfigChange],
    all: &[(i8, String)],
) -> Result<(), ConfigError> {
    if all.iter().filter(|(k, n)| *k == kind && n == name).count() > 1 {
        return Err(ConfigError::invalid_request("Each resource must appear at most once."));
    }
    check_request(changes)
}

/// Changes of logger levels concern this node alone. It has no loggers whose level can be changed while it runs, so
/// every name is unknown; Ok(false) for no change at all.
fn check_loggers(node: &Node, name: &str, changes: &[ConfigChange]) -> Result<bool, ConfigError> {
    let this = node.node_id();
    let id: i32 = name.parse().map_err(|_| {
        ConfigError::invalid_request(format!("Node id must be an integer, but it is: {name}"))
    })?;
    if id != this {
        let message = format!("Unexpected node id. Expected {this}, but received {id}");
        return Err(ConfigError::invalid_request(message));
    }
    match changes.first() {
        None => Ok(false),
        Some(change) => {
            Err(ConfigError::invalid_configuration(format!("Logger {} does not exist!", change.name)))
        }
    }
}

fn check_kind(node: &Node, kind: i8, name: &str) -> Result<(), ConfigError> {
    match ResourceKind::from_id(kind) {
        Some(ResourceKind::Broker) => check_broker_resource_name(name, node.node_id()),
        Some(ResourceKind::Topic | ResourceKind::Group | ResourceKind::ClientMetrics) => Ok(()),
        _ => Err(ConfigError::invalid_request(format!("Unknown resource type {kind}"))),
    }
}
