//! OffsetCommit and TxnOffsetCommit.
//!
//! Topics have been resolved by the caller: names are known, ids where they exist.

use std::sync::Arc;

use coordinator::{Producer, RequestToken};
use protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};
use protocol::{ErrorCode, Uuid};
use record::Time;

use crate::classic::ClassicGroupState;
use crate::deferred::Deferred;
use crate::message::GroupResponse;
use crate::modern::{ModernGroup, PartitionCheck};
use crate::offsets::OffsetAndMetadata;
use crate::records::{GroupRecord, offset_commit_record};
use crate::shard::{GroupCoordinatorShard, GroupResult, GroupTimers};
use crate::state::Group;

/// From here on clients know GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-848).
const KNOWS_NEW_ERRORS: i16 = 9;
/// The same for TxnOffsetCommit.
const TXN_KNOWS_NEW_ERRORS: i16 = 6;

/// Who commits.
struct Committer<'a> {
    group_id: &'a str,
    member_id: &'a str,
    group_instance_id: Option<&'a str>,
    generation_id: i32,
    is_transactional: bool,
    api_version: i16,
}

/// The group whose member's assignment decides about each partition.
type AssignmentCheck = Option<Arc<ModernGroup>>;

impl GroupCoordinatorShard {
    pub(crate) fn commit_offset(
        &mut self,
        now: Time,
        timers: &mut GroupTimers,
        api_version: i16,
        request: &OffsetCommitRequest,
        token: RequestToken,
    ) -> Result<GroupResult, ErrorCode> {
        let committer = Committer {
            group_id: &request.group_id,
            member_id: &request.member_id,
            group_instance_id: request.group_instance_id.as_deref(),
            generation_id: request.generation_id_or_member_epoch,
            is_transactional: false,
            api_version,
        };
        let check = self.validate_offset_commit(now, &committer)?;
        if let Some(group) = self.classic_ref(&request.group_id)
            && let Some((group, mut steps)) = self.steps(now, timers, &group)
            && matches!(group.state(), ClassicGroupState::Stable | ClassicGroupState::PreparingRebalance)
        {
            // A commit is as good as a heartbeat.
            steps.reschedule_heartbeat(group, &request.member_id);
        }
        let expire_timestamp_ms =
            (request.retention_time_ms != -1).then(|| now.wall_ms.saturating_add(request.retention_time_ms));
        let mut records = Vec::new();
        let mut response = OffsetCommitResponse::default();
        for topic in &request.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for partition in &topic.partitions {
                let index = partition.partition_index;
                let metadata = partition.committed_metadata.as_deref();
                let mut error = ErrorCode::OFFSET_METADATA_TOO_LARGE;
                if !self.is_metadata_too_large(metadata) {
                    check_partition(&check, &committer, &topic.name, topic.topic_id, index)?;
                    error = ErrorCode::NONE;
                    let offset = OffsetAndMetadata {
                        record_offset: -1,
                        committed_offset: partition.committed_offset,
                        leader_epoch: known_epoch(partition.committed_leader_epoch),
                        metadata: metadata.unwrap_or_default().to_owned(),
                        commit_timestamp_ms: now.wall_ms,
                        expire_timestamp_ms,
                        topic_id: topic.topic_id,
                    };
                    records.push(offset_commit_record(&request.group_id, &topic.name, index, &offset));
                }
                partitions
                    .push(OffsetCommitResponsePartition { partition_index: index, error_code: error.code() });
            }
            response.topics.push(OffsetCommitResponseTopic {
                name: topic.name.clone(),
                topic_id: topic.topic_id,
                partitions,
            });
        }
        Ok(self.committed_result(records, None, token, api_version, GroupResponse::OffsetCommit(response)))
    }

    pub(crate) fn commit_transactional_offset(
        &mut self,
        now: Time,
        api_version: i16,
        request: &TxnOffsetCommitRequest,
        token: RequestToken,
    ) -> Result<GroupResult, ErrorCode> {
        let committer = Committer {
            group_id: &request.group_id,
            member_id: &request.member_id,
            group_instance_id: request.group_instance_id.as_deref(),
            generation_id: request.generation_id_or_member_epoch,
            is_transactional: true,
            api_version,
        };
        let older = |error| match error {
            ErrorCode::STALE_MEMBER_EPOCH if api_version < TXN_KNOWS_NEW_ERRORS => {
                ErrorCode::ILLEGAL_GENERATION
            }
            other => other,
        };
        let check = self.validate_offset_commit(now, &committer).map_err(older)?;
        let mut records = Vec::new();
        let mut response = TxnOffsetCommitResponse::default();
        for topic in &request.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for partition in &topic.partitions {
                let index = partition.partition_index;
                let metadata = partition.committed_metadata.as_deref();
                let mut error = ErrorCode::OFFSET_METADATA_TOO_LARGE;
                if !self.is_metadata_too_large(metadata) {
                    check_partition(&check, &committer, &topic.name, topic.topic_id, index).map_err(older)?;
                    error = ErrorCode::NONE;
                    let offset = OffsetAndMetadata {
                        record_offset: -1,
                        committed_offset: partition.committed_offset,
                        leader_epoch: known_epoch(partition.committed_leader_epoch),
                        metadata: metadata.unwrap_or_default().to_owned(),
                        commit_timestamp_ms: now.wall_ms,
                        expire_timestamp_ms: None,
                        topic_id: topic.topic_id,
                    };
                    records.push(offset_commit_record(&request.group_id, &topic.name, index, &offset));
                }
                partitions.push(TxnOffsetCommitResponsePartition {
                    partition_index: index,
                    error_code: error.code(),
                });
            }
            response.topics.push(TxnOffsetCommitResponseTopic {
                name: topic.name.clone(),
                topic_id: topic.topic_id,
                partitions,
            });
        }
        let producer = Producer { id: request.producer_id, epoch: request.producer_epoch };
        let response = GroupResponse::TxnOffsetCommit(response);
        Ok(self.committed_result(records, Some(producer), token, api_version, response))
    }

    fn committed_result(
        &mut self,
        records: Vec<GroupRecord>,
        producer: Option<Producer>,
        token: RequestToken,
        api_version: i16,
        response: GroupResponse,
    ) -> GroupResult {
        self.metrics.offset_commits += records.len() as u64;
        let deferred = Deferred::Response { token, api_version, response };
        // Without records there is no transactional batch to open.
        let producer = producer.filter(|_| !records.is_empty());
        GroupResult { producer, ..GroupResult::new(records, deferred) }
    }

    fn validate_offset_commit(
        &mut self,
        now: Time,
        committer: &Committer<'_>,
    ) -> Result<AssignmentCheck, ErrorCode> {
        let group = match self.group(committer.group_id) {
            Some(group) => group.clone(),
            // A consumer without a group protocol: the group exists from its first commit on.
            None if committer.generation_id < 0 => {
                Group::Classic(self.create_classic_group(now, committer.group_id))
            }
            None if committer.knows_new_errors() => return Err(ErrorCode::GROUP_ID_NOT_FOUND),
            None => return Err(ErrorCode::ILLEGAL_GENERATION),
        };
        match group {
            Group::Classic(group) => {
                let Some(group) = self.classic.get(&group) else { return Err(ErrorCode::UNKNOWN_MEMBER_ID) };
                group.validate_offset_commit(
                    committer.member_id,
                    committer.group_instance_id,
                    committer.generation_id,
                    committer.is_transactional,
                )?;
                Ok(None)
            }
            Group::Modern(group) => {
                let check = group.validate_offset_commit(
                    committer.member_id,
                    committer.group_instance_id,
                    committer.generation_id,
                    committer.is_transactional,
                    committer.api_version,
                )?;
                Ok((check == PartitionCheck::AssignmentEpoch).then_some(group))
            }
        }
    }

    /// The limit counts as Java counts characters.
    fn is_metadata_too_large(&self, metadata: Option<&str>) -> bool {
        let limit = self.config.offset_metadata_max_size;
        // UTF-8 never has fewer bytes than UTF-16 has units: most strings need no counting.
        metadata.is_some_and(|text| text.len() > limit && text.encode_utf16().count() > limit)
    }
}

impl Committer<'_> {
    fn knows_new_errors(&self) -> bool {
        let since = if self.is_transactional { TXN_KNOWS_NEW_ERRORS } else { KNOWS_NEW_ERRORS };
        self.api_version >= since
    }
}

fn check_partition(
    check: &AssignmentCheck,
    committer: &Committer<'_>,
    topic: &str,
    topic_id: Uuid,
    partition: i32,
) -> Result<(), ErrorCode> {
    let Some(group) = check else { return Ok(()) };
    group.validate_partition(committer.member_id, committer.generation_id, topic, topic_id, partition)
}

fn known_epoch(leader_epoch: i32) -> Option<i32> {
    (leader_epoch != -1).then_some(leader_epoch)
}
