//! Requests that the controller decides and the broker only passes on.

use super::Answer;
use crate::context::RequestContext;
use crate::controller_service::{ControllerRequest, Origin};
use crate::node::Node;
use protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse, CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest,
    CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse, DescribeQuorumRequest,
    DescribeQuorumResponse, ElectLeadersRequest, ElectLeadersResponse, ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse, UnregisterBrokerRequest, UnregisterBrokerResponse,
    UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use raft::RaftRequest;

macro_rules! forwarded {
    ($name:ident, $variant:ident, $request:ty, $response:ty) => {
        pub(crate) fn $name(
            node: &Node,
            context: &mut RequestContext<'_>,
            request: $request,
        ) -> Answer<$response> {
            node.submit(ControllerRequest::$variant(request), Origin::Client(context.reply_to));
            Answer::Later
        }
    };
}

forwarded!(create_topics, CreateTopics, CreateTopicsRequest, CreateTopicsResponse);
forwarded!(delete_topics, DeleteTopics, DeleteTopicsRequest, DeleteTopicsResponse);
forwarded!(create_partitions, CreatePartitions, CreatePartitionsRequest, CreatePartitionsResponse);
forwarded!(update_features, UpdateFeatures, UpdateFeaturesRequest, UpdateFeaturesResponse);

forwarded!(unregister_broker, UnregisterBroker, UnregisterBrokerRequest, UnregisterBrokerResponse);
forwarded!(elect_leaders, ElectLeaders, ElectLeadersRequest, ElectLeadersResponse);
forwarded!(
    alter_partition_reassignments,
    AlterPartitionReassignments,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse
);

forwarded!(
    list_partition_reassignments,
    ListPartitionReassignments,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse
);

forwarded!(
    assign_replicas_to_dirs,
    AssignReplicasToDirs,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse
);

pub(crate) fn describe_quorum(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: DescribeQuorumRequest,
) -> Answer<DescribeQuorumResponse> {
    let listener = context.session.listener.clone();
    node.submit_raft(RaftRequest::DescribeQuorum(request), context.reply_to, &listener);
    Answer::Later
}
