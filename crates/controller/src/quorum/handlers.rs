//! One method per request. Each gives the response that the reference sends, errors included, and the records that
//! must be committed before it is sent. Requests as a whole (`CLUSTER_ACTION`, `ALTER` on the cluster) are authorised
//! before; what depends on topics and resources is asked of the context.

use protocol::ErrorCode;
use protocol::messages::{
    AllocateProducerIdsRequest, AllocateProducerIdsResponse, AlterClientQuotasRequest,
    AlterClientQuotasResponse, AlterConfigsRequest, AlterConfigsResponse, AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse, AlterPartitionRequest, AlterPartitionResponse,
    AssignReplicasToDirsRequest, AssignReplicasToDirsResponse, BrokerHeartbeatRequest,
    BrokerHeartbeatResponse, BrokerRegistrationRequest, BrokerRegistrationResponse,
    ControllerRegistrationRequest, ControllerRegistrationResponse, CreatePartitionsRequest,
    CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest,
    DeleteTopicsResponse, ElectLeadersRequest, ElectLeadersResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
    UnregisterBrokerRequest, UnregisterBrokerResponse, UnregisterControllerRequest,
    UnregisterControllerResponse, UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use record::Time;

use super::QuorumController;
use crate::api::{ApiError, ControllerResult, RequestContext};
use crate::decide::producer_ids::PRODUCER_ID_BLOCK_SIZE;
use crate::decide::{
    Decider, client_quotas, configs, create_topics, elections, features, partitions, reassignments, topics,
};

impl QuorumController {
    /// What those are told who ask a controller that is not active.
    pub fn wrong_controller(&self) -> ApiError {
        let message = match self.leader {
            Some(leader) => format!("The active controller appears to be node {leader}."),
            None => "No controller appears to be active.".to_owned(),
        };
        ApiError::new(ErrorCode::NOT_CONTROLLER, message)
    }

    fn decide<T>(
        &self,
        now: Time,
        decision: impl FnOnce(&Decider<'_>) -> Result<ControllerResult<T>, ApiError>,
        refused: impl FnOnce(&ApiError) -> T,
    ) -> ControllerResult<T> {
        if !self.is_active() {
            return ControllerResult::just(refused(&self.wrong_controller()));
        }
        decision(&self.decider(now)).unwrap_or_else(|error| ControllerResult::just(refused(&error)))
    }

    /// BrokerRegistration.
    pub fn handle_broker_registration(
        &mut self,
        now: Time,
        context: &RequestContext<'_>,
        request: &BrokerRegistrationRequest,
    ) -> ControllerResult<BrokerRegistrationResponse> {
        let next_offset = self.next_write_offset;
        self.decide(
            now,
            |d| {
                let registered = d.register_broker(request, context.api_version, next_offset)?;
                Ok(registered
                    .map(|broker_epoch| BrokerRegistrationResponse { broker_epoch, ..Default::default() }))
            },
            |e| BrokerRegistrationResponse { error_code: e.code.code(), ..Default::default() },
        )
    }

    /// BrokerHeartbeat.
    pub fn handle_broker_heartbeat(
        &mut self,
        now: Time,
        request: &BrokerHeartbeatRequest,
    ) -> ControllerResult<BrokerHeartbeatResponse> {
        let broker = request.broker_id;
        if self.is_active() {
            self.heartbeats.update_contact_time(now, broker, request.broker_epoch);
        }
        let mut fenced = None;
        let result = self.decide(
            now,
            |d| {
                let processed = d.process_heartbeat(request)?;
                fenced = Some(processed.response.is_fenced);
                Ok(processed.map(|reply| BrokerHeartbeatResponse {
                    is_caught_up: reply.is_caught_up,
                    is_fenced: reply.is_fenced,
                    should_shut_down: reply.should_shut_down,
                    ..Default::default()
                }))
            },
            |e| BrokerHeartbeatResponse { error_code: e.code.code(), ..Default::default() },
        );
        if let Some(fenced) = fenced {
            self.heartbeats.touch(broker, fenced, request.current_metadata_offset);
        }
        result
    }

    /// UnregisterBroker.
    pub fn handle_unregister_broker(
        &mut self,
        now: Time,
        request: &UnregisterBrokerRequest,
    ) -> ControllerResult<UnregisterBrokerResponse> {
        self.decide(
            now,
            |d| Ok(d.unregister_broker(request.broker_id)?.map(|()| UnregisterBrokerResponse::default())),
            |e| UnregisterBrokerResponse {
                error_code: e.code.code(),
                error_message: e.message.clone(),
                ..Default::default()
            },
        )
    }

    /// ControllerRegistration.
    pub fn handle_controller_registration(
        &mut self,
        now: Time,
        request: &ControllerRegistrationRequest,
    ) -> ControllerResult<ControllerRegistrationResponse> {
        self.decide(
            now,
            |d| Ok(d.register_controller(request)?.map(|()| ControllerRegistrationResponse::default())),
            |e| ControllerRegistrationResponse {
                error_code: e.code.code(),
                error_message: Some(e.code.message().to_owned()),
                ..Default::default()
            },
        )
    }

    /// UnregisterController.
    pub fn handle_unregister_controller(
        &mut self,
        now: Time,
        request: &UnregisterControllerRequest,
    ) -> ControllerResult<UnregisterControllerResponse> {
        self.decide(
            now,
            |d| {
                let unregistered = d.unregister_controller(request.controller_id)?;
                Ok(unregistered.map(|()| UnregisterControllerResponse::default()))
            },
            |e| UnregisterControllerResponse {
                error_code: e.code.code(),
                error_message: e.message.clone(),
                ..Default::default()
            },
        )
    }

    /// CreateTopics.
    pub fn handle_create_topics(
        &mut self,
        now: Time,
        context: &RequestContext<'_>,
        request: &CreateTopicsRequest,
    ) -> ControllerResult<CreateTopicsResponse> {
        self.decide(now, |d| d.create_topics(context, request), |e| create_topics::error_response(request, e))
    }

    /// DeleteTopics.
    pub fn handle_delete_topics(
        &mut self,
        now: Time,
        context: &RequestContext<'_>,
        request: &DeleteTopicsRequest,
    ) -> ControllerResult<DeleteTopicsResponse> {
        self.decide(
            now,
            |d| d.delete_topics(context, request, &self.stable_image().topics),
            |e| topics::error_response(request, context.api_version, e),
        )
    }

    /// CreatePartitions.
    pub fn handle_create_partitions(
        &mut self,
        now: Time,
        context: &RequestContext<'_>,
        request: &CreatePartitionsRequest,
    ) -> ControllerResult<CreatePartitionsResponse> {
        self.decide(
            now,
            |d| d.create_partitions(context, request),
            |e| partitions::error_response(request, e),
        )
    }

    /// AlterPartition.
    pub fn handle_alter_partition(
        &mut self,
        now: Time,
        context: &RequestContext<'_>,
        request: &AlterPartitionRequest,
    ) -> ControllerResult<AlterPartitionResponse> {
        self.decide(
            now,
            |d| d.alter_partition(request, context.api_version),
            |e| AlterPartitionResponse { error_code: e.code.code(), ..Default::default() },
        )
    }

    /// ElectLeaders.
    pub fn handle_elect_leaders(
        &mut self,
        now: Time,
        request: &ElectLeadersRequest,
    ) -> ControllerResult<ElectLeadersResponse> {
        self.decide(now, |d| d.elect_leaders(request), |e| elections::error_response(request, e))
    }

    /// AlterPartitionReassignments.
    pub fn handle_alter_partition_reassignments(
        &mut self,
        now: Time,
        request: &AlterPartitionReassignmentsRequest,
    ) -> ControllerResult<AlterPartitionReassignmentsResponse> {
        self.decide(
            now,
            |d| Ok(d.alter_partition_reassignments(request)),
            |e| reassignments::error_response(request, e),
        )
    }

    /// ListPartitionReassignments, as of the last stable offset.
    pub fn handle_list_partition_reassignments(
        &self,
        request: &ListPartitionReassignmentsRequest,
    ) -> ListPartitionReassignmentsResponse {
        reassignments::list(self.stable_state(), request)
    }

    /// AssignReplicasToDirs.
    pub fn handle_assign_replicas_to_dirs(
        &mut self,
        now: Time,
        request: &AssignReplicasToDirsRequest,
    ) -> ControllerResult<AssignReplicasToDirsResponse> {
        self.decide(
            now,
            |d| d.assign_replicas_to_dirs(request),
            |e| AssignReplicasToDirsResponse { error_code: e.code.code(), ..Default::default() },
        )
    }

    /// AlterConfigs. Broker loggers are the broker's own business and must not be among the resources.
    pub fn handle_alter_configs(
        &mut self,
        now: Time,
        context: &RequestContext<'_>,
        request: &AlterConfigsRequest,
    ) -> ControllerResult<AlterConfigsResponse> {
        self.decide(now, |d| d.alter_configs(context, request), |e| configs::alter_error_response(request, e))
    }

    /// IncrementalAlterConfigs. Broker loggers are the broker's own business and must not be among the resources.
    pub fn handle_incremental_alter_configs(
        &mut self,
        now: Time,
        context: &RequestContext<'_>,
        request: &IncrementalAlterConfigsRequest,
    ) -> ControllerResult<IncrementalAlterConfigsResponse> {
        self.decide(
            now,
            |d| d.incremental_alter_configs(context, request),
            |e| configs::incremental_error_response(request, e),
        )
    }

    /// AlterClientQuotas. DescribeClientQuotas is answered from the image.
    pub fn handle_alter_client_quotas(
        &mut self,
        now: Time,
        request: &AlterClientQuotasRequest,
    ) -> ControllerResult<AlterClientQuotasResponse> {
        self.decide(now, |d| d.alter_client_quotas(request), |e| client_quotas::error_response(request, e))
    }

    /// UpdateFeatures.
    pub fn handle_update_features(
        &mut self,
        now: Time,
        context: &RequestContext<'_>,
        request: &UpdateFeaturesRequest,
    ) -> ControllerResult<UpdateFeaturesResponse> {
        self.decide(now, |d| Ok(d.update_features(request, context.api_version)), features::error_response)
    }

    /// AllocateProducerIds.
    pub fn handle_allocate_producer_ids(
        &mut self,
        now: Time,
        request: &AllocateProducerIdsRequest,
    ) -> ControllerResult<AllocateProducerIdsResponse> {
        self.decide(
            now,
            |d| {
                let block = d.next_producer_ids(request.broker_id, request.broker_epoch)?;
                Ok(block.map(|producer_id_start| AllocateProducerIdsResponse {
                    producer_id_start,
                    producer_id_len: PRODUCER_ID_BLOCK_SIZE,
                    ..Default::default()
                }))
            },
            |e| AllocateProducerIdsResponse { error_code: e.code.code(), ..Default::default() },
        )
    }
}
