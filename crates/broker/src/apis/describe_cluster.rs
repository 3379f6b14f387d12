//! DescribeCluster (key 60): brokers on a broker listener, controllers on a controller listener (KIP-919).

use super::Answer;
use crate::context::{ListenerRole, RequestContext};
use crate::metadata_view::{ALL_CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED, brokers};
use crate::node::Node;
use protocol::ErrorCode;
use protocol::messages::describe_cluster_response::DescribeClusterBroker;
use protocol::messages::{DescribeClusterRequest, DescribeClusterResponse};

/// Endpoint type "brokers".
const BROKERS: i8 = 1;
/// Endpoint type "controllers".
const CONTROLLERS: i8 = 2;

pub(crate) fn handle(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: DescribeClusterRequest,
) -> Answer<DescribeClusterResponse> {
    let expected = match context.session.role {
        ListenerRole::Broker => BROKERS,
        ListenerRole::Controller => CONTROLLERS,
    };
    if request.endpoint_type != expected {
        let (error, message) = if (BROKERS..=CONTROLLERS).contains(&request.endpoint_type) {
            // Version 0 knows nothing of endpoint types.
            let error = if context.version() == 0 {
                ErrorCode::INVALID_REQUEST
            } else {
                ErrorCode::MISMATCHED_ENDPOINT_TYPE
            };
            let message = if expected == BROKERS {
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
            } else {
                "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
            };
            (error, message.to_owned())
        } else {
            let message = format!("Unsupported endpoint type {}", request.endpoint_type);
            (ErrorCode::UNSUPPORTED_ENDPOINT_TYPE, message)
        };
        return Answer::Now(DescribeClusterResponse {
            error_code: error.code(),
            error_message: Some(message),
            ..DescribeClusterResponse::default()
        });
    }
    let image = node.image();
    let with_fenced = request.include_fenced_brokers;
    let (controller_id, nodes) = match context.session.role {
        ListenerRole::Broker => {
            (node.any_alive_broker(&image), brokers(&image, &context.session.listener, with_fenced))
        }
        ListenerRole::Controller => {
            (node.active_controller(), node.controller_nodes(&context.session.listener))
        }
    };
    let operations = if request.include_cluster_authorized_operations {
        ALL_CLUSTER_OPERATIONS
    } else {
        OPERATIONS_NOT_ASKED
    };
    Answer::Now(DescribeClusterResponse {
        endpoint_type: expected,
        cluster_id: node.cluster_id().to_owned(),
        controller_id,
        brokers: nodes
            .into_iter()
            .map(|broker| DescribeClusterBroker {
                broker_id: broker.id,
                host: broker.host,
                port: broker.port,
                rack: broker.rack,
                is_fenced: broker.fenced,
            })
            .collect(),
        cluster_authorized_operations: operations,
        ..DescribeClusterResponse::default()
    })
}
