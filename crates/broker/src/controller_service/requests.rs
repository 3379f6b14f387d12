//! The requests that the controller decides, as values, and the way from each to its decision and back.

use crate::apis::alter_configs::Plan;
use crate::node::Node;
use crate::reply::ReplyTo;
use controller::{ControllerResult, QuorumController, RequestContext};
use protocol::messages::{
    AllocateProducerIdsRequest, AllocateProducerIdsResponse, AlterConfigsRequest, AlterConfigsResponse,
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse, BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest,
    BrokerRegistrationResponse, ControllerRegistrationRequest, ControllerRegistrationResponse,
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, ElectLeadersRequest, ElectLeadersResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse, UnregisterBrokerRequest, UnregisterBrokerResponse,
    UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use record::Time;

/// Who asked, and so where the answer goes.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A client; the answer is encoded for it.
    Client(ReplyTo),
    /// A client whose request the broker has partly answered itself.
    AlterConfigs(ReplyTo, Plan),
    /// This broker, for a topic that somebody asked for.
    AutoCreate(String),
    /// This broker, for a block of producer ids.
    ProducerIds,
    /// This broker, for its registration or heartbeat.
    Lifecycle,
    /// This broker, for the directories of its replicas.
    Assignments,
    /// This controller, for its own registration.
    ControllerRegistration,
}

macro_rules! controller_requests {
    ($($name:ident($request:ty) -> $response:ty = |$controller:ident, $now:ident, $context:ident, $r:ident| $body:expr;)*) => {
        /// A request for the active controller.
        #[derive(Debug, Clone)]
        pub(crate) enum ControllerRequest {
            $($name($request),)*
        }

        /// The answer to the request of the same name.
        #[derive(Debug, Clone)]
        pub(crate) enum ControllerResponse {
            $($name($response),)*
        }

        /// Has the controller decide; on one that is not active the decision is the error to answer with.
        pub(super) fn decide(
            controller: &mut QuorumController,
            now: Time,
            context: &RequestContext<'_>,
            request: &ControllerRequest,
        ) -> ControllerResult<ControllerResponse> {
            match request {
                $(ControllerRequest::$name(request) => {
                    let ($controller, $now, $context, $r) = (controller, now, context, request);
                    let _ = $context;
                    $body.map(ControllerResponse::$name)
                })*
            }
        }

        fn reply(node: &Node, to: ReplyTo, response: &ControllerResponse) {
            match response {
                $(ControllerResponse::$name(response) => node.reply(to, response),)*
            }
        }
    };
}

controller_requests! {
    CreateTopics(CreateTopicsRequest) -> CreateTopicsResponse = |c, now, context, r| c.handle_create_topics(now, context, r);
    DeleteTopics(DeleteTopicsRequest) -> DeleteTopicsResponse = |c, now, context, r| c.handle_delete_topics(now, context, r);
    CreatePartitions(CreatePartitionsRequest) -> CreatePartitionsResponse =
        |c, now, context, r| c.handle_create_partitions(now, context, r);
    AlterConfigs(AlterConfigsRequest) -> AlterConfigsResponse = |c, now, context, r| c.handle_alter_configs(now, context, r);
    IncrementalAlterConfigs(IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse =
        |c, now, context, r| c.handle_incremental_alter_configs(now, context, r);
    UpdateFeatures(UpdateFeaturesRequest) -> UpdateFeaturesResponse = |c, now, context, r| c.handle_update_features(now, context, r);
    AllocateProducerIds(AllocateProducerIdsRequest) -> AllocateProducerIdsResponse =
        |c, now, context, r| c.handle_allocate_producer_ids(now, r);
    BrokerRegistration(BrokerRegistrationRequest) -> BrokerRegistrationResponse =
        |c, now, context, r| c.handle_broker_registration(now, context, r);
    BrokerHeartbeat(BrokerHeartbeatRequest) -> BrokerHeartbeatResponse = |c, now, context, r| c.handle_broker_heartbeat(now, r);
    AssignReplicasToDirs(AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse =
        |c, now, context, r| c.handle_assign_replicas_to_dirs(now, r);
    UnregisterBroker(UnregisterBrokerRequest) -> UnregisterBrokerResponse = |c, now, context, r| c.handle_unregister_broker(now, r);
    ElectLeaders(ElectLeadersRequest) -> ElectLeadersResponse = |c, now, context, r| c.handle_elect_leaders(now, r);
    AlterPartitionReassignments(AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse =
        |c, now, context, r| c.handle_alter_partition_reassignments(now, r);
    ListPartitionReassignments(ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse =
        |c, now, context, r| { let _ = now; ControllerResult::just(c.handle_list_partition_reassignments(r)) };
    ControllerRegistration(ControllerRegistrationRequest) -> ControllerRegistrationResponse =
        |c, now, context, r| c.handle_controller_registration(now, r);
}

/// Hands the answer to whoever asked.
pub(super) fn finish(node: &Node, origin: Origin, response: ControllerResponse) {
    match (origin, response) {
        (Origin::Client(to), response) => reply(node, to, &response),
        (Origin::AlterConfigs(to, plan), ControllerResponse::IncrementalAlterConfigs(response)) => {
            node.reply(to, &plan.incremental_answer(response));
        }
        (Origin::AlterConfigs(to, plan), ControllerResponse::AlterConfigs(response)) => {
            node.reply(to, &plan.legacy_answer(response));
        }
        (Origin::AutoCreate(name), ControllerResponse::CreateTopics(response)) => {
            node.handle_auto_created(&name, &response)
        }
        (Origin::ProducerIds, ControllerResponse::AllocateProducerIds(response)) => {
            crate::apis::init_producer_id::handle_block(node, &response);
        }
        (Origin::Lifecycle, ControllerResponse::BrokerRegistration(response)) => {
            node.handle_registered(&response)
        }
        (Origin::Lifecycle, ControllerResponse::BrokerHeartbeat(response)) => {
            node.handle_heartbeat_answered(&response)
        }
        (Origin::Assignments, ControllerResponse::AssignReplicasToDirs(response)) => {
            node.handle_assigned(&response)
        }
        (Origin::ControllerRegistration, ControllerResponse::ControllerRegistration(_)) => {}
        (origin, response) => {
            tracing::error!(target: "kafka.server.ControllerApis", "[ControllerApis nodeId={}] the answer {response:?} does not fit {origin:?}", node.node_id());
        }
    }
}
