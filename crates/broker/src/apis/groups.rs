//! The APIs of consumer groups: each request goes to the shard of its group, some are split over shards.

use super::Answer;
use crate::context::RequestContext;
use crate::group_service::ImageTopics;
use crate::node::Node;
use coordinator_group::{
    GroupRequest, OffsetCommitPlan, OffsetDeletePlan, OffsetFetchPlan, offset_fetch_groups,
};
use protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, ListGroupsRequest, ListGroupsResponse, OffsetCommitRequest, OffsetCommitResponse,
    OffsetDeleteRequest, OffsetDeleteResponse, OffsetFetchRequest, OffsetFetchResponse, SyncGroupRequest,
    SyncGroupResponse,
};
use std::collections::BTreeSet;

/// Every operation that exists on a group, as a bit set (KIP-430).
const ALL_GROUP_OPERATIONS: i32 = 3400;

fn group_context(node: &Node, context: &RequestContext<'_>) -> coordinator_group::RequestContext {
    let [high, low, ..] = node.random_seed();
    coordinator_group::RequestContext {
        api_version: context.version(),
        client_id: context.client_id.to_owned(),
        client_host: context.session.client_host.to_string(),
        random: (u128::from(high) << 64) | u128::from(low),
    }
}

macro_rules! plain {
    ($name:ident, $request:ty, $response:ty, $variant:ident) => {
        pub(crate) fn $name(
            node: &Node,
            context: &mut RequestContext<'_>,
            request: $request,
        ) -> Answer<$response> {
            let group = request.group_id.clone();
            let request = GroupRequest::$variant(request);
            node.groups.handle(
                node,
                context.now,
                &group_context(node, context),
                context.reply_to,
                &group,
                request,
            );
            Answer::Later
        }
    };
}

plain!(join_group, JoinGroupRequest, JoinGroupResponse, JoinGroup);
plain!(sync_group, SyncGroupRequest, SyncGroupResponse, SyncGroup);
plain!(heartbeat, HeartbeatRequest, HeartbeatResponse, Heartbeat);
plain!(leave_group, LeaveGroupRequest, LeaveGroupResponse, LeaveGroup);

pub(crate) fn offset_commit(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: OffsetCommitRequest,
) -> Answer<OffsetCommitResponse> {
    let plan = OffsetCommitPlan::new(context.version(), request, &ImageTopics(&node.image()));
    node.groups.handle_commit(node, context.now, &group_context(node, context), context.reply_to, plan);
    Answer::Later
}

pub(crate) fn offset_fetch(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: OffsetFetchRequest,
) -> Answer<OffsetFetchResponse> {
    let version = context.version();
    let require_stable = request.require_stable;
    let image = node.image();
    let plans = offset_fetch_groups(version, request)
        .into_iter()
        .map(|group| OffsetFetchPlan::new(version, group, &ImageTopics(&image)))
        .collect();
    drop(image);
    node.groups.handle_fetch(
        node,
        context.now,
        &group_context(node, context),
        context.reply_to,
        plans,
        require_stable,
    );
    Answer::Later
}

pub(crate) fn offset_delete(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: OffsetDeleteRequest,
) -> Answer<OffsetDeleteResponse> {
    let plan = OffsetDeletePlan::new(request, &ImageTopics(&node.image()));
    node.groups.handle_offset_delete(
        node,
        context.now,
        &group_context(node, context),
        context.reply_to,
        plan,
    );
    Answer::Later
}

pub(crate) fn delete_groups(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: DeleteGroupsRequest,
) -> Answer<DeleteGroupsResponse> {
    let mut seen = BTreeSet::new();
    let groups = request.groups_names.into_iter().filter(|group| seen.insert(group.clone())).collect();
    node.groups.handle_delete(node, context.now, &group_context(node, context), context.reply_to, groups);
    Answer::Later
}

pub(crate) fn describe_groups(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: DescribeGroupsRequest,
) -> Answer<DescribeGroupsResponse> {
    let version = context.version();
    let mut groups = Vec::with_capacity(request.groups.len());
    for group in &request.groups {
        groups.extend(node.groups.describe(node, version, group));
    }
    if request.include_authorized_operations {
        for group in groups.iter_mut().filter(|group| group.error_code == 0) {
            group.authorized_operations = ALL_GROUP_OPERATIONS;
        }
    }
    Answer::Now(DescribeGroupsResponse { groups, ..DescribeGroupsResponse::default() })
}

pub(crate) fn list_groups(
    node: &Node,
    _: &mut RequestContext<'_>,
    request: ListGroupsRequest,
) -> Answer<ListGroupsResponse> {
    Answer::Now(node.groups.list(&request))
}
