//! DescribeGroups, ListGroups and DeleteGroups.

use std::collections::BTreeSet;

use coordinator::RequestToken;
use protocol::ErrorCode;
use protocol::messages::ListGroupsRequest;
use protocol::messages::delete_groups_response::DeletableGroupResult;
use protocol::messages::describe_groups_response::DescribedGroup;
use protocol::messages::list_groups_response::ListedGroup;

use crate::classic::{ClassicGroup, ClassicGroupState};
use crate::deferred::Deferred;
use crate::message::GroupResponse;
use crate::records::{GroupRecord, offset_commit_tombstone};
use crate::shard::{GroupCoordinatorShard, GroupResult};
use crate::state::Group;

/// From here on an unknown group is an error; before it was a dead group (KIP-1043).
const KNOWS_GROUP_ID_NOT_FOUND: i16 = 6;

impl GroupCoordinatorShard {
    pub(crate) fn describe_groups(&self, api_version: i16, group_ids: &[String]) -> Vec<DescribedGroup> {
        group_ids.iter().map(|group_id| self.describe_group(api_version, group_id)).collect()
    }

    fn describe_group(&self, api_version: i16, group_id: &str) -> DescribedGroup {
        let found = self.committed().groups.get(group_id);
        let classic = match found {
            Some(Group::Classic(group)) => self.classic.get(group),
            _ => None,
        };
        let Some(group) = classic else {
            let mut dead = DescribedGroup {
                group_id: group_id.to_owned(),
                group_state: ClassicGroupState::Dead.name().to_owned(),
                ..Default::default()
            };
            if api_version >= KNOWS_GROUP_ID_NOT_FOUND {
                dead.error_code = ErrorCode::GROUP_ID_NOT_FOUND.code();
                dead.error_message = Some(match found {
                    Some(_) => format!("Group {group_id} is not a classic group."),
                    None => format!("Group {group_id} not found."),
                });
            }
            return dead;
        };
        // Only a stable group shows its protocol and what the members said about it.
        let protocol = group.protocol_name().filter(|_| group.is_in_state(ClassicGroupState::Stable));
        DescribedGroup {
            group_id: group_id.to_owned(),
            group_state: group.state().name().to_owned(),
            protocol_type: group.protocol_type().unwrap_or_default().to_owned(),
            protocol_data: protocol.unwrap_or_default().to_owned(),
            members: group.members().map(|member| member.describe(protocol)).collect(),
            ..Default::default()
        }
    }

    pub(crate) fn list_groups(&self, request: &ListGroupsRequest) -> Vec<ListedGroup> {
        let lowercase = |list: &[String]| -> BTreeSet<String> {
            list.iter().map(|text| text.to_lowercase().trim().to_owned()).collect()
        };
        let states = lowercase(&request.states_filter);
        // Types are not trimmed by the reference.
        let types: BTreeSet<String> = request.types_filter.iter().map(|text| text.to_lowercase()).collect();
        let groups = self.committed().groups.iter().filter_map(|(group_id, group)| match group {
            Group::Classic(group) => self.classic.get(group).map(ClassicGroup::as_listed_group),
            Group::Modern(group) => Some(ListedGroup {
                group_id: group_id.to_string(),
                protocol_type: group.kind().name().to_owned(),
                group_state: group.state_name().to_owned(),
                group_type: group.kind().name().to_owned(),
            }),
        });
        let wanted = groups.filter(|group| {
            (states.is_empty() || states.contains(&group.group_state.to_lowercase()))
                && (types.is_empty() || types.contains(&group.group_type))
        });
        wanted.collect()
    }

    pub(crate) fn delete_groups(
        &mut self,
        api_version: i16,
        group_ids: &[String],
        token: RequestToken,
    ) -> GroupResult {
        let mut records = Vec::new();
        let mut results = Vec::with_capacity(group_ids.len());
        let mut deleted: BTreeSet<&str> = BTreeSet::new();
        for group_id in group_ids {
            // The same id twice gives two answers and one set of tombstones.
            let error = if deleted.contains(group_id.as_str()) {
                ErrorCode::NONE
            } else {
                self.delete_group(group_id, &mut records).err().unwrap_or(ErrorCode::NONE)
            };
            if error == ErrorCode::NONE {
                deleted.insert(group_id);
            }
            results.push(DeletableGroupResult {
                group_id: group_id.clone(),
                error_code: error.code(),
                ..Default::default()
            });
        }
        let response = GroupResponse::DeleteGroups(results);
        GroupResult::new(records, Deferred::Response { token, api_version, response })
    }

    fn delete_group(&self, group_id: &str, records: &mut Vec<GroupRecord>) -> Result<(), ErrorCode> {
        let group = self.group(group_id).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?;
        match group {
            Group::Classic(group) => {
                self.classic.get(group).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?.validate_delete_group()?;
            }
            Group::Modern(group) if !group.is_empty() => return Err(ErrorCode::NON_EMPTY_GROUP),
            // Its state in `__share_group_state` would have to go first, which this node cannot do yet.
            Group::Modern(group) if group.has_share_state() => {
                return Err(ErrorCode::UNKNOWN_SERVER_ERROR);
            }
            Group::Modern(_) => {}
        }
        let offsets = &self.state.offsets;
        for (topic, partitions) in offsets.offsets.group(group_id).into_iter().flatten() {
            for &partition in partitions.keys() {
                records.push(offset_commit_tombstone(group_id, topic, partition));
            }
        }
        for (topic, partition) in offsets.open.partitions(group_id) {
            if !offsets.has_offset(group_id, topic, partition) {
                records.push(offset_commit_tombstone(group_id, topic, partition));
            }
        }
        records.extend(self.group_tombstones(group_id, group));
        Ok(())
    }
}
