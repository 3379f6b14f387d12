//! The records of `__consumer_offsets` that this coordinator writes, in the versions that 4.4.0 writes.

use bytes::Bytes;
use coordinator::{DecodeRecordError, RawRecord};
use protocol::records::group::group_metadata_value::MemberMetadata;
use protocol::records::group::{
    GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue, RecordKey, RecordValue,
};
use protocol::{DecodeError, EncodeError};

use crate::classic::ClassicGroup;
use crate::offsets::OffsetAndMetadata;

/// A record: no value is a tombstone.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupRecord {
    pub key: RecordKey,
    pub value: Option<RecordValue>,
}

impl GroupRecord {
    pub(crate) fn tombstone(key: impl Into<RecordKey>) -> Self {
        Self { key: key.into(), value: None }
    }

    /// The version that the value is written in. GroupMetadata stays at 3 (KIP-915 forbids the flexible 4 yet);
    /// an offset with an expiration of its own needs version 1, all others are flexible for the topic id (KIP-848).
    fn value_version(value: &RecordValue) -> i16 {
        match value {
            RecordValue::GroupMetadataValue(_) => 3,
            RecordValue::OffsetCommitValue(offset) if offset.expire_timestamp != -1 => 1,
            RecordValue::OffsetCommitValue(_) => 4,
            _ => 0,
        }
    }

    pub fn encode(&self) -> Result<RawRecord, EncodeError> {
        let value = match &self.value {
            Some(value) => Some(value.to_bytes(Self::value_version(value))?),
            None => None,
        };
        Ok(RawRecord { key: self.key.to_bytes()?, value })
    }

    pub fn decode(raw: RawRecord) -> Result<Self, DecodeRecordError> {
        let key = RecordKey::decode(raw.key).map_err(|error| match error {
            DecodeError::UnknownKey { key } => {
                DecodeRecordError::UnknownRecordType(i16::try_from(key).unwrap_or(i16::MAX))
            }
            other => DecodeRecordError::Malformed(other.to_string()),
        })?;
        let value = match raw.value {
            Some(value) => {
                let decoded = RecordValue::decode(key.record_type(), value);
                Some(decoded.map_err(|error| DecodeRecordError::Malformed(error.to_string()))?.0)
            }
            None => None,
        };
        Ok(Self { key, value })
    }
}

pub(crate) fn offset_commit_record(
    group_id: &str,
    topic: &str,
    partition: i32,
    offset: &OffsetAndMetadata,
) -> GroupRecord {
    let value = OffsetCommitValue {
        offset: offset.committed_offset,
        leader_epoch: offset.leader_epoch.unwrap_or(-1),
        metadata: offset.metadata.clone(),
        commit_timestamp: offset.commit_timestamp_ms,
        expire_timestamp: offset.expire_timestamp_ms.unwrap_or(-1),
        topic_id: offset.topic_id,
    };
    GroupRecord { key: offset_commit_key(group_id, topic, partition).into(), value: Some(value.into()) }
}

pub(crate) fn offset_commit_tombstone(group_id: &str, topic: &str, partition: i32) -> GroupRecord {
    GroupRecord::tombstone(offset_commit_key(group_id, topic, partition))
}

fn offset_commit_key(group_id: &str, topic: &str, partition: i32) -> OffsetCommitKey {
    OffsetCommitKey { group: group_id.to_owned(), topic: topic.to_owned(), partition }
}

pub(crate) fn group_metadata_tombstone(group_id: &str) -> GroupRecord {
    GroupRecord::tombstone(GroupMetadataKey { group: group_id.to_owned() })
}

/// The record of a group that exists but never had a generation.
pub(crate) fn empty_group_metadata_record(group: &ClassicGroup) -> GroupRecord {
    let value = GroupMetadataValue {
        protocol_type: String::new(),
        generation: 0,
        protocol: None,
        leader: None,
        current_state_timestamp: group.current_state_timestamp_or_default(),
        members: Vec::new(),
    };
    GroupRecord {
        key: GroupMetadataKey { group: group.group_id().to_string() }.into(),
        value: Some(value.into()),
    }
}

/// The record of a generation; `assignment` gives the bytes for each member.
pub(crate) fn group_metadata_record(group: &ClassicGroup, assignment: impl Fn(&str) -> Bytes) -> GroupRecord {
    let protocol = group.protocol_name();
    let members = group.members().map(|member| MemberMetadata {
        member_id: member.member_id().to_string(),
        group_instance_id: member.group_instance_id().map(str::to_owned),
        client_id: member.client_id().to_owned(),
        client_host: member.client_host().to_owned(),
        rebalance_timeout: member.rebalance_timeout_ms(),
        session_timeout: member.session_timeout_ms(),
        subscription: protocol.map(|protocol| member.metadata(protocol)).unwrap_or_default(),
        assignment: assignment(member.member_id()),
    });
    let value = GroupMetadataValue {
        protocol_type: group.protocol_type().unwrap_or_default().to_owned(),
        generation: group.generation_id(),
        protocol: protocol.map(str::to_owned),
        leader: group.leader().map(str::to_owned),
        current_state_timestamp: group.current_state_timestamp_or_default(),
        members: members.collect(),
    };
    GroupRecord {
        key: GroupMetadataKey { group: group.group_id().to_string() }.into(),
        value: Some(value.into()),
    }
}
