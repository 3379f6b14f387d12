//! Records of `__remote_log_metadata` (KIP-405), in the form in which the reference's classes print themselves.

use protocol::Decoder;
use protocol::Message;
use protocol::Uuid;
use protocol::records::storage::{
    RemoteLogSegmentMetadataRecord, RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord, RemotePartitionDeleteMetadataRecord,
};

use super::decoder::read_frame;

const SEGMENT_STATES: [&str; 4] =
    ["COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED"];
const PARTITION_STATES: [&str; 3] =
    ["DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED"];

fn state(names: &[&'static str], id: i8) -> &'static str {
    usize::try_from(id).ok().and_then(|id| names.get(id)).copied().unwrap_or("null")
}

fn custom(metadata: Option<&bytes::Bytes>) -> String {
    match metadata {
        Some(bytes) => format!("Optional[CustomMetadata{{{} bytes}}]", bytes.len()),
        None => "Optional.empty".to_owned(),
    }
}

fn segment_id(topic_id: Uuid, topic: &str, partition: i32, id: Uuid) -> String {
    format!("RemoteLogSegmentId{{topicIdPartition={topic_id}:{topic}-{partition}, id={id}}}")
}

fn epochs(entries: impl Iterator<Item = (i32, i64)>) -> String {
    let sorted: std::collections::BTreeMap<i32, i64> = entries.collect();
    let shown: Vec<String> = sorted.iter().map(|(epoch, offset)| format!("{epoch}={offset}")).collect();
    format!("{{{}}}", shown.join(", "))
}

fn read<M: Message>(body: &mut Decoder, record_type: i16, version: i16) -> Result<M, String> {
    let message = M::decode(body, version)
        .map_err(|_| format!("Failed to deserialize record with type {record_type}"))?;
    match body.remaining() {
        0 => Ok(message),
        rest => Err(format!("Found {rest} byte(s) of garbage after {record_type}")),
    }
}

pub(super) fn decode(body: &mut Decoder) -> Result<String, String> {
    let (record_type, version) = read_frame(body)?;
    Ok(match record_type {
        0 => segment(&read(body, record_type, version)?),
        1 => update(&read(body, record_type, version)?),
        2 => partition_delete(&read(body, record_type, version)?),
        3 => snapshot(&read(body, record_type, version)?),
        other => {
            return Err(format!(
                "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {other}"
            ));
        }
    })
}

fn segment(record: &RemoteLogSegmentMetadataRecord) -> String {
    let id = &record.remote_log_segment_id;
    let partition = &id.topic_id_partition;
    format!(
        "RemoteLogSegmentMetadata{{remoteLogSegmentId={}, startOffset={}, endOffset={}, brokerId={}, \
         maxTimestampMs={}, eventTimestampMs={}, segmentLeaderEpochs={}, segmentSizeInBytes={}, customMetadata={}, \
         state={}, txnIdxEmpty={}}}",
        segment_id(partition.id, &partition.name, partition.partition, id.id),
        record.start_offset,
        record.end_offset,
        record.broker_id,
        record.max_timestamp_ms,
        record.event_timestamp_ms,
        epochs(record.segment_leader_epochs.iter().map(|entry| (entry.leader_epoch, entry.offset))),
        record.segment_size_in_bytes,
        custom(record.custom_metadata.as_ref()),
        state(&SEGMENT_STATES, record.remote_log_segment_state),
        record.txn_index_empty,
    )
}

fn update(record: &RemoteLogSegmentMetadataUpdateRecord) -> String {
    let id = &record.remote_log_segment_id;
    let partition = &id.topic_id_partition;
    format!(
        "RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={}, customMetadata={}, state={}, eventTimestampMs={}, \
         brokerId={}}}",
        segment_id(partition.id, &partition.name, partition.partition, id.id),
        custom(record.custom_metadata.as_ref()),
        state(&SEGMENT_STATES, record.remote_log_segment_state),
        record.event_timestamp_ms,
        record.broker_id,
    )
}

fn partition_delete(record: &RemotePartitionDeleteMetadataRecord) -> String {
    let partition = &record.topic_id_partition;
    format!(
        "RemotePartitionDeleteMetadata{{topicPartition={}:{}-{}, state={}, eventTimestampMs={}, brokerId={}}}",
        partition.id,
        partition.name,
        partition.partition,
        state(&PARTITION_STATES, record.remote_partition_delete_state),
        record.event_timestamp_ms,
        record.broker_id,
    )
}

fn snapshot(record: &RemoteLogSegmentMetadataSnapshotRecord) -> String {
    format!(
        "RemoteLogSegmentMetadataSnapshot{{segmentId={}, startOffset={}, endOffset={}, maxTimestampMs={}, \
         segmentLeaderEpochs={}, segmentSizeInBytes={}, customMetadata={}, state={}, txnIdxEmpty={}}}",
        record.segment_id,
        record.start_offset,
        record.end_offset,
        record.max_timestamp_ms,
        epochs(record.segment_leader_epochs.iter().map(|entry| (entry.leader_epoch, entry.offset))),
        record.segment_size_in_bytes,
        custom(record.custom_metadata.as_ref()),
        state(&SEGMENT_STATES, record.remote_log_segment_state),
        record.txn_index_empty,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Encoder;
    use protocol::records::storage::remote_log_segment_metadata_record::{
        RemoteLogSegmentIdEntry, SegmentLeaderEpochEntry, TopicIdPartitionEntry,
    };

    #[test]
    fn a_segment_prints_itself_as_the_references_class_does() {
        let topic_id_partition =
            TopicIdPartitionEntry { name: "t".into(), id: Uuid::METADATA_TOPIC_ID, partition: 3 };
        let remote_log_segment_id =
            RemoteLogSegmentIdEntry { topic_id_partition, id: Uuid::METADATA_TOPIC_ID };
        let epoch = |leader_epoch, offset| SegmentLeaderEpochEntry { leader_epoch, offset };
        let record = RemoteLogSegmentMetadataRecord {
            remote_log_segment_id,
            start_offset: 5,
            end_offset: 9,
            broker_id: 1,
            max_timestamp_ms: 10,
            event_timestamp_ms: 11,
            segment_leader_epochs: vec![epoch(2, 7), epoch(0, 5)],
            segment_size_in_bytes: 100,
            custom_metadata: Some(bytes::Bytes::from_static(b"abc")),
            remote_log_segment_state: 1,
            ..Default::default()
        };
        let mut encoder = Encoder::new();
        for framed in [1, 0, 0] {
            encoder.unsigned_varint(framed);
        }
        record.encode(&mut encoder, 0).unwrap();
        let mut body = Decoder::new(encoder.finish_contiguous().unwrap());
        assert_eq!(
            decode(&mut body).unwrap(),
            "RemoteLogSegmentMetadata{remoteLogSegmentId=RemoteLogSegmentId{topicIdPartition=\
             AAAAAAAAAAAAAAAAAAAAAQ:t-3, id=AAAAAAAAAAAAAAAAAAAAAQ}, startOffset=5, endOffset=9, brokerId=1, \
             maxTimestampMs=10, eventTimestampMs=11, segmentLeaderEpochs={0=5, 2=7}, segmentSizeInBytes=100, \
             customMetadata=Optional[CustomMetadata{3 bytes}], state=COPY_SEGMENT_FINISHED, txnIdxEmpty=false}"
        );
    }
}
