//! A produced batch: the first bytes choose the parameters, the rest are records (compressed here when the choice
//! says so) behind a header that is right as far as a client can make it. What is accepted must read back.
#![no_main]

use bytes::Bytes;
use compression::KafkaCodecs;
use libfuzzer_sys::fuzz_target;
use record::{
    AppendOrigin, BatchHeader, BufferSupplier, Codecs, Compression, CompressionType, RecordBatch,
    TimestampType, TopicPartition, ValidationParams, validate_and_assign_offsets,
};

const LIMIT: usize = 4 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((&[kind, target, flags, count], section)) = data.split_first_chunk::<4>() else { return };
    let kind = CompressionType::from_id(kind % 5).unwrap_or_default();
    let target = CompressionType::from_id(target % 5).unwrap_or_default();
    let mut bytes = vec![0; 61];
    if flags & 1 == 0 {
        if KafkaCodecs.compress(Compression::of(kind), 2, section, &mut bytes).is_err() {
            return;
        }
    } else {
        bytes.extend_from_slice(section);
    }
    let mut header = BatchHeader {
        base_offset: 0,
        batch_length: bytes.len() as i32 - 12,
        partition_leader_epoch: -1,
        magic: 2,
        crc: 0,
        attributes: i16::from(kind.id()) | i16::from(flags & 0x08),
        last_offset_delta: i32::from(count) - 1,
        base_timestamp: 1000,
        max_timestamp: 1000,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        count: i32::from(count),
    };
    header.update_crc(&bytes[61..]);
    bytes[..61].copy_from_slice(&header.encode());

    let partition = TopicPartition::new("t", 0);
    let mut buffers = BufferSupplier::new();
    let params = ValidationParams {
        target_compression: Compression::of(target),
        compacted_topic: flags & 2 != 0,
        timestamp_type: if flags & 4 == 0 { TimestampType::CreateTime } else { TimestampType::LogAppendTime },
        origin: if flags & 0x10 == 0 { AppendOrigin::Client } else { AppendOrigin::Coordinator },
        max_record_body_size: LIMIT,
        max_decompressed_size: LIMIT,
        ..ValidationParams::new(&partition, 2000, 77)
    };
    let Ok(batch) = validate_and_assign_offsets(Bytes::from(bytes), &params, &KafkaCodecs, &mut buffers)
    else {
        return;
    };
    let (first_offset, last_offset, is_rebuilt) = (batch.first_offset, batch.last_offset, batch.is_rebuilt);
    let stored = batch.into_bytes();
    let stored = RecordBatch::first(&stored).expect("readable").expect("complete");
    assert!(stored.is_valid());
    assert_eq!(stored.last_offset(), last_offset);
    assert!(first_offset == 77);
    if is_rebuilt {
        let records = stored.records_within(&KafkaCodecs, &mut buffers, 2 * LIMIT).expect("readable");
        for (offset, record) in (first_offset..).zip(records) {
            assert_eq!(record.expect("checked").offset, offset);
        }
    }
});
