//! What a Produce request and the start of an append refuse, and what they find.

use record::{
    AnalyzeParams, AppendError, AppendOrigin, BatchHeader, BatchOptions, CompressionType, LogAppendInfo,
    NoCodecs, RecordBatchBuilder, TopicPartition, analyze_and_validate_records, validate_produce_records,
};

fn batch(base_offset: i64, count: i64, leader_epoch: i32) -> Vec<u8> {
    let options =
        BatchOptions { base_offset, partition_leader_epoch: leader_epoch, ..BatchOptions::default() };
    let mut builder = RecordBatchBuilder::new(options);
    for i in 0..count {
        builder.append(1000 + i, None, Some(b"value"), &[]).unwrap();
    }
    builder.build(&NoCodecs).unwrap().to_vec()
}

/// The batch with other attributes and a right CRC.
fn with_attributes(batch: &[u8], attributes: i16) -> Vec<u8> {
    let mut header = BatchHeader::parse(batch).unwrap().unwrap();
    header.attributes = attributes;
    header.update_crc(&batch[61..]);
    [&header.encode()[..], &batch[61..]].concat()
}

#[test]
fn produce_requests_carry_one_batch_of_v2() {
    let good = batch(0, 2, -1);
    let mut v1 = good.clone();
    v1[16] = 1;
    let mut v3 = good.clone();
    v3[16] = 3;
    let mut short = good.clone();
    short[8..12].copy_from_slice(&13i32.to_be_bytes());
    let zstd = with_attributes(&good, 4);
    let cases: [(&str, i16, Vec<u8>, Option<i16>); 11] = [
        ("good", 9, good.clone(), None),
        ("empty", 9, vec![], Some(87)),
        ("only part of a batch", 9, good[..good.len() - 1].to_vec(), Some(87)),
        ("two batches", 9, good.repeat(2), Some(87)),
        ("a torn second batch", 9, [&good[..], &good[..40]].concat(), None),
        ("an unreadable second batch", 9, [&good[..], &v3[..]].concat(), Some(2)),
        ("message format v1", 9, v1, Some(87)),
        ("unknown magic", 9, v3, Some(2)),
        ("length below any message", 9, short, Some(2)),
        ("zstd before version 7", 6, zstd.clone(), Some(76)),
        ("zstd since version 7", 7, zstd, None),
    ];
    for (name, version, bytes, code) in cases {
        let result = validate_produce_records(version, &bytes);
        assert_eq!(result.err().map(|error| error.error_code()), code, "{name}");
    }
}

fn analyze(bytes: &[u8], change: impl FnOnce(&mut AnalyzeParams<'_>)) -> Result<LogAppendInfo, AppendError> {
    let partition = TopicPartition::new("t", 0);
    let mut params = AnalyzeParams {
        topic_partition: &partition,
        origin: AppendOrigin::Client,
        max_message_size: Some(1000),
        require_offsets_monotonic: false,
        leader_epoch: 5,
    };
    change(&mut params);
    analyze_and_validate_records(bytes, &params)
}

#[test]
fn an_append_is_summed_up() {
    let batches = [batch(10, 2, 3), batch(12, 3, 4)];
    let mut bytes = batches.concat();
    let valid_bytes = bytes.len();
    bytes.extend_from_slice(&batches[0][..30]);
    let info = analyze(&bytes, |params| {
        params.origin = AppendOrigin::Replication;
        params.require_offsets_monotonic = true;
    });
    let expected = LogAppendInfo {
        first_offset: 10,
        last_offset: 14,
        last_leader_epoch: Some(4),
        max_timestamp: 1002,
        source_compression: CompressionType::None,
        valid_bytes,
        last_offset_of_first_batch: 11,
        skipped_batches: 0,
    };
    assert_eq!(info, Ok(expected));
}

#[test]
fn batches_of_a_later_leader_are_left_out_of_replication() {
    let bytes = [batch(10, 1, 5), batch(11, 1, 6), batch(12, 1, 5)].concat();
    let info = analyze(&bytes, |params| params.origin = AppendOrigin::Replication).unwrap();
    assert_eq!((info.last_offset, info.skipped_batches), (10, 2));
    assert_eq!(info.valid_bytes, batch(10, 1, 5).len());
}

#[test]
fn appends_that_cannot_be_taken_are_refused() {
    let good = batch(0, 2, 5);
    let mut broken = good.clone();
    *broken.last_mut().unwrap() ^= 1;
    let codec_7 = with_attributes(&good, 7);
    let code = |result: Result<LogAppendInfo, AppendError>| result.unwrap_err().error_code();
    assert!(analyze(&good, |_| {}).is_ok());
    assert_eq!(code(analyze(&broken, |_| {})), 2);
    assert_eq!(code(analyze(&codec_7, |_| {})), -1);
    assert_eq!(code(analyze(&good, |params| params.max_message_size = Some(good.len() - 1))), 10);
    assert!(analyze(&good, |params| params.max_message_size = Some(good.len())).is_ok());
    assert_eq!(code(analyze(&batch(1, 1, 5), |_| {})), 87);
    let raft = |epoch| {
        analyze(&good, move |params| {
            params.origin = AppendOrigin::RaftLeader;
            params.leader_epoch = epoch;
        })
    };
    assert!(raft(5).is_ok());
    assert_eq!(code(raft(6)), 87);
    let follower = analyze(&[batch(5, 2, 5), batch(6, 1, 5)].concat(), |params| {
        params.origin = AppendOrigin::Replication;
        params.require_offsets_monotonic = true;
    });
    assert!(matches!(follower, Err(AppendError::OffsetsOutOfOrder(_))));
}
