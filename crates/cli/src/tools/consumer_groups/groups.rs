//! Listing, reading and deleting groups at their coordinators.

use std::collections::BTreeMap;

use client::consumer::decode_assignment;
use client::offsets::{CommittedOffset, fetch_committed};
use client::{ApiError, CoordinatorKind, Node, Target};
use protocol::messages::{
    ConsumerGroupDescribeRequest, DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest,
    consumer_group_describe_response,
};
use protocol::{ApiKey, ErrorCode};
use record::TopicPartition;
use serde_json::json;

use super::{Tool, print_error};
use crate::failure::Failure;
use crate::io::Io;

/// The states of classic and consumer groups.
const STATES: [&str; 7] =
    ["Stable", "Assigning", "PreparingRebalance", "Empty", "Dead", "Reconciling", "CompletingRebalance"];

pub(super) struct Listed {
    pub(super) id: String,
    state: String,
    kind: String,
}

/// A group with its members, of either protocol.
pub(super) struct Description {
    pub(super) id: String,
    pub(super) state: String,
    pub(super) assignor: String,
    pub(super) coordinator: Option<Node>,
    pub(super) group_epoch: Option<i32>,
    pub(super) assignment_epoch: Option<i32>,
    pub(super) members: Vec<Member>,
}

pub(super) struct Member {
    pub(super) id: String,
    pub(super) instance_id: String,
    pub(super) client_id: String,
    pub(super) host: String,
    pub(super) epoch: Option<i32>,
    pub(super) partitions: Vec<TopicPartition>,
    pub(super) target: Vec<TopicPartition>,
    /// Whether a member of a consumer group speaks the new protocol; `None` in classic groups.
    pub(super) upgraded: Option<bool>,
}

/// An error as `ExecutionException` prints its cause.
pub(super) fn executed(error: ApiError) -> Failure {
    let message = format!("{}: {error}", error.exception());
    Failure::text("java.util.concurrent.ExecutionException", message)
}

impl Tool<'_> {
    pub(super) async fn list(&self, io: &mut Io) -> Result<(), Failure> {
        let set = &self.options.options;
        let (with_state, with_type) = (self.options.has("state"), self.options.has("type"));
        let states = match set.value_of("state")?.filter(|states| !states.is_empty()) {
            Some(states) => parse_states(&states)?,
            None => Vec::new(),
        };
        let types = match set.value_of("type")?.filter(|types| !types.is_empty()) {
            Some(types) => parse_types(&types)?,
            None => Vec::new(),
        };
        let groups = self.listed(states, types).await?;
        let value = || {
            json!(
                groups
                    .iter()
                    .map(|group| json!({ "group": group.id, "type": group.kind, "state": group.state }))
                    .collect::<Vec<_>>()
            )
        };
        if self.format.emit(value, io) {
            return Ok(());
        }
        if !with_state && !with_type {
            groups.iter().for_each(|group| io.line(&group.id));
            return Ok(());
        }
        let width = groups.iter().map(|group| group.id.chars().count()).max().unwrap_or(0).max(15) + 10;
        let mut line = |id: &str, kind: &str, state: &str| {
            let mut text = format!("{id:<width$}");
            for (shown, cell) in [(with_type, kind), (with_state, state)] {
                if shown {
                    text.push_str(&format!(" {cell:<20}"));
                }
            }
            io.line(text);
        };
        line("GROUP", "TYPE", "STATE");
        for group in &groups {
            line(&group.id, &group.kind, &group.state);
        }
        Ok(())
    }

    /// Groups of consumers on all brokers, by id.
    pub(super) async fn listed(
        &self,
        states: Vec<String>,
        types: Vec<String>,
    ) -> Result<Vec<Listed>, Failure> {
        self.admin.retry(|| self.admin.cluster.refresh_nodes()).await?;
        let mut groups = BTreeMap::new();
        for node in self.admin.cluster.nodes() {
            let connection =
                self.admin.retry(|| self.admin.cluster.connection(Target::Node(node.id))).await?;
            let version = connection.version_of::<ListGroupsRequest>()?;
            let default_types = || vec!["Classic".to_owned(), "Consumer".to_owned()];
            let request = ListGroupsRequest {
                states_filter: if version >= 4 { states.clone() } else { Vec::new() },
                types_filter: match version {
                    5.. if types.is_empty() => default_types(),
                    5.. => types.clone(),
                    _ => Vec::new(),
                },
            };
            let response = self.admin.send(Target::Node(node.id), &request).await?;
            ApiError::check(response.error_code, None)?;
            for group in response.groups {
                // A group that has only committed offsets has no protocol type.
                if matches!(group.protocol_type.as_str(), "" | "consumer") {
                    let or_unknown = |text: String| if text.is_empty() { "Unknown".to_owned() } else { text };
                    let kind = capitalised(&or_unknown(group.group_type));
                    let listed =
                        Listed { id: group.group_id.clone(), state: or_unknown(group.group_state), kind };
                    groups.insert(group.group_id, listed);
                }
            }
        }
        Ok(groups.into_values().collect())
    }

    /// The groups of `--group`, or all.
    pub(super) async fn selected(&self) -> Result<Vec<String>, Failure> {
        if self.options.has("all-groups") {
            let listed = self.listed(Vec::new(), Vec::new()).await?;
            return Ok(listed.into_iter().map(|group| group.id).collect());
        }
        Ok(self.options.options.values_of("group")?)
    }

    /// Describes a group by the protocol it uses.
    pub(super) async fn description(&self, group: &str) -> Result<Description, Failure> {
        let lookup = || self.admin.cluster.coordinator(CoordinatorKind::Group, group);
        let node = self.admin.retry(lookup).await.map_err(wrap)?;
        let connection = self.admin.retry(|| self.admin.cluster.connection(Target::Node(node))).await?;
        if connection.served(ApiKey::ConsumerGroupDescribe).is_some() {
            let request =
                ConsumerGroupDescribeRequest { group_ids: vec![group.to_owned()], ..Default::default() };
            let first = |response: &protocol::messages::ConsumerGroupDescribeResponse| {
                response.groups.first().map_or(0, |group| group.error_code)
            };
            let response = self.admin.send_to_coordinator(group, &request, first).await?;
            if let Some(described) = response.groups.into_iter().next() {
                match ErrorCode::from_code(described.error_code) {
                    ErrorCode::NONE => return Ok(self.of_consumer_group(described, node)),
                    ErrorCode::GROUP_ID_NOT_FOUND | ErrorCode::UNSUPPORTED_VERSION => {}
                    code => return Err(executed(ApiError::new(code, described.error_message))),
                }
            }
        }
        self.classic_description(group, node).await
    }

    fn of_consumer_group(
        &self,
        group: consumer_group_describe_response::DescribedGroup,
        node: i32,
    ) -> Description {
        let partitions = |assignment: &consumer_group_describe_response::Assignment| {
            let topics = assignment.topic_partitions.iter();
            topics
                .flat_map(|topic| {
                    let name: std::sync::Arc<str> = topic.topic_name.as_str().into();
                    topic
                        .partitions
                        .iter()
                        .map(move |partition| TopicPartition { topic: name.clone(), partition: *partition })
                })
                .collect::<Vec<_>>()
        };
        let member = |member: &consumer_group_describe_response::Member| Member {
            id: member.member_id.clone(),
            instance_id: member.instance_id.clone().unwrap_or_default(),
            client_id: member.client_id.clone(),
            host: member.client_host.clone(),
            epoch: Some(member.member_epoch),
            partitions: partitions(&member.assignment),
            target: partitions(&member.target_assignment),
            upgraded: match member.member_type {
                0 => Some(false),
                1 => Some(true),
                _ => None,
            },
        };
        Description {
            members: group.members.iter().map(member).collect(),
            id: group.group_id,
            state: group.group_state,
            assignor: group.assignor_name,
            coordinator: self.admin.cluster.node(node),
            group_epoch: Some(group.group_epoch),
            assignment_epoch: Some(group.assignment_epoch),
        }
    }

    async fn classic_description(&self, group: &str, node: i32) -> Result<Description, Failure> {
        let request = DescribeGroupsRequest { groups: vec![group.to_owned()], ..Default::default() };
        let first = |response: &protocol::messages::DescribeGroupsResponse| {
            response.groups.first().map_or(0, |group| group.error_code)
        };
        let response = self.admin.send_to_coordinator(group, &request, first).await?;
        let Some(described) = response.groups.into_iter().next() else {
            return Err(executed(ApiError::new(ErrorCode::GROUP_ID_NOT_FOUND, None)));
        };
        ApiError::check(described.error_code, described.error_message.as_ref()).map_err(executed)?;
        if !matches!(described.protocol_type.as_str(), "" | "consumer") {
            let message = format!("GroupId {group} is not a consumer group ({}).", described.protocol_type);
            return Err(Failure::text(
                "java.util.concurrent.ExecutionException",
                format!("java.lang.IllegalArgumentException: {message}"),
            ));
        }
        let mut members = Vec::new();
        for member in described.members {
            members.push(Member {
                id: member.member_id,
                instance_id: member.group_instance_id.unwrap_or_default(),
                client_id: member.client_id,
                host: member.client_host,
                epoch: None,
                partitions: decode_assignment(member.member_assignment)?,
                target: Vec::new(),
                upgraded: None,
            });
        }
        Ok(Description {
            id: described.group_id,
            state: described.group_state,
            assignor: described.protocol_data,
            coordinator: self.admin.cluster.node(node),
            group_epoch: None,
            assignment_epoch: None,
            members,
        })
    }

    pub(super) async fn committed(
        &self,
        group: &str,
    ) -> Result<BTreeMap<TopicPartition, CommittedOffset>, Failure> {
        let fetched = self.admin.retry(|| fetch_committed(&self.admin.cluster, group, None, false)).await;
        fetched.map_err(wrap)
    }

    pub(super) async fn delete(&self, io: &mut Io) -> Result<(), Failure> {
        let mut deleted = Vec::new();
        let mut failed = Vec::new();
        for group in self.selected().await? {
            let request = DeleteGroupsRequest { groups_names: vec![group.clone()] };
            let first = |response: &protocol::messages::DeleteGroupsResponse| {
                response.results.first().map_or(0, |result| result.error_code)
            };
            let result = match self.admin.send_to_coordinator(&group, &request, first).await {
                Ok(response) => match response.results.first() {
                    Some(result) => ApiError::check(result.error_code, result.error_message.as_ref()),
                    None => Ok(()),
                },
                Err(Failure::Api(error)) => Err(error),
                Err(other) => return Err(other),
            };
            match result {
                Ok(()) => deleted.push(group),
                Err(error) => failed.push((group, error)),
            }
        }
        let quoted = deleted.iter().map(|group| format!("'{group}'")).collect::<Vec<_>>().join(", ");
        let value = || {
            let failed: BTreeMap<_, _> =
                failed.iter().map(|(group, error)| (group, error.to_string())).collect();
            json!({ "deleted": deleted, "failed": failed })
        };
        if self.format.emit(value, io) {
            return Ok(());
        }
        if failed.is_empty() {
            io.line(format!("Deletion of requested consumer groups ({quoted}) was successful."));
            return Ok(());
        }
        print_error("Deletion of some consumer groups failed:", io);
        for (group, error) in &failed {
            let error = format!("{}: {error}", error.exception());
            io.line(format!("* Group '{group}' could not be deleted due to: {error}"));
        }
        if !deleted.is_empty() {
            io.line(format!("\nThese consumer groups were deleted successfully: {quoted}"));
        }
        Ok(())
    }
}

/// An answer's error inside the `RuntimeException` that the reference puts around it.
fn wrap(failure: Failure) -> Failure {
    match failure {
        Failure::Api(error) => {
            let message = format!("java.util.concurrent.ExecutionException: {}: {error}", error.exception());
            Failure::text("java.lang.RuntimeException", message)
        }
        other => other,
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

fn parse_states(text: &str) -> Result<Vec<String>, Failure> {
    let find = |name: &str| STATES.iter().find(|state| state.eq_ignore_ascii_case(name.trim()));
    let found: Option<Vec<String>> =
        text.split(',').map(|name| find(name).map(|s| (*s).to_owned())).collect();
    let message = || format!("Invalid state list '{text}'. Valid states are: {}", STATES.join(", "));
    found.ok_or_else(|| Failure::illegal_argument(message()))
}

fn parse_types(text: &str) -> Result<Vec<String>, Failure> {
    let find =
        |name: &str| ["Classic", "Consumer"].iter().find(|kind| kind.eq_ignore_ascii_case(name.trim()));
    let found: Option<Vec<String>> =
        text.split(',').map(|name| find(name).map(|s| (*s).to_owned())).collect();
    let message = || format!("Invalid types list '{text}'. Valid types are: Classic, Consumer");
    found.ok_or_else(|| Failure::illegal_argument(message()))
}
