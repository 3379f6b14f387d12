//! Batches built here are, byte for byte, those that the reference's builder made (`fixtures/generator`).

use record::builder::empty_batch;
use record::{
    BatchOptions, BufferSupplier, ControlRecordType, EndTransactionMarker, Header, NoCodecs, RecordBatch,
    RecordBatchBuilder, TimestampType,
};

const FIXTURES: &str = include_str!("fixtures/builder.tsv");
const TIME: i64 = 1_700_000_000_000;

fn golden(name: &str) -> Vec<u8> {
    let line = FIXTURES.lines().find_map(|line| line.strip_prefix(&format!("{name}\t"))).unwrap();
    (0..line.len()).step_by(2).map(|i| u8::from_str_radix(&line[i..i + 2], 16).unwrap()).collect()
}

fn text(i: u64, length: u64) -> Vec<u8> {
    (0..length).map(|j| b'a' + ((i * 7 + j * j / 3) % 16) as u8).collect()
}

fn mixed(builder: &mut RecordBatchBuilder, time: i64) {
    let long = text(1, 200);
    let headers = [
        Header::new("h1", Some(b"v1")),
        Header::new("", Some(b"")),
        Header::new("nul", None),
        Header::new("schön", Some(&long)),
    ];
    builder.append(time, Some(&text(0, 5)), Some(&text(1, 10)), &[]).unwrap();
    builder.append(time + 7, None, Some(&text(2, 100)), &headers).unwrap();
    builder.append(time - 1000, Some(b""), Some(b""), &[]).unwrap();
    builder.append(time + 100_000, Some(&text(3, 300)), None, &[]).unwrap();
}

fn check(name: &str, options: BatchOptions, fill: impl FnOnce(&mut RecordBatchBuilder)) {
    let mut builder = RecordBatchBuilder::new(options);
    fill(&mut builder);
    let size = builder.uncompressed_size();
    let count = builder.count();
    let built = builder.build(&NoCodecs).unwrap();
    let golden = golden(name);
    assert_eq!(built.as_ref(), golden, "{name}");
    assert_eq!(size, golden.len(), "{name}");
    let batch = RecordBatch::first(&golden).unwrap().unwrap();
    assert!(batch.is_valid(), "{name}");
    assert_eq!(batch.header().encode(), golden[..61], "{name}");
    let mut buffers = BufferSupplier::new();
    let records: Result<Vec<_>, _> = batch.records(&NoCodecs, &mut buffers).unwrap().collect();
    assert_eq!(records.unwrap().len(), count as usize, "{name}");
}

#[test]
fn plain_batches_equal_javas() {
    check("one", BatchOptions::default(), |builder| {
        builder.append(TIME, Some(b"k"), Some(b"v"), &[]).unwrap();
    });
    check("mixed", BatchOptions::default(), |builder| mixed(builder, TIME));
    let options = BatchOptions {
        base_offset: 77,
        timestamp_type: TimestampType::LogAppendTime,
        log_append_time: TIME + 123,
        partition_leader_epoch: 9,
        ..BatchOptions::default()
    };
    check("append-time", options, |builder| mixed(builder, 1000));
}

#[test]
fn transactional_batch_with_gaps_equals_javas() {
    let base_offset = 1 << 40;
    let options = BatchOptions {
        base_offset,
        producer_id: 4242,
        producer_epoch: 7,
        base_sequence: i32::MAX - 1,
        is_transactional: true,
        partition_leader_epoch: 3,
        ..BatchOptions::default()
    };
    check("gaps-txn", options, |builder| {
        builder.append_with_offset(base_offset + 2, -1, None, Some(b"a"), &[]).unwrap();
        builder.append_with_offset(base_offset + 1000, 5, None, Some(b"b"), &[]).unwrap();
        builder.append_with_offset(base_offset + 70000, -1, None, None, &[]).unwrap();
    });
}

#[test]
fn compacted_batch_with_delete_horizon_equals_javas() {
    let options = BatchOptions {
        base_offset: 5,
        partition_leader_epoch: 4,
        delete_horizon_ms: Some(TIME + 99_999),
        ..BatchOptions::default()
    };
    check("delete-horizon", options, |builder| {
        builder.append_with_offset(6, TIME, Some(b"k"), None, &[]).unwrap();
        builder.override_last_offset(11);
    });
    let batch = golden("delete-horizon");
    let batch = RecordBatch::first(&batch).unwrap().unwrap();
    assert_eq!(batch.delete_horizon_ms(), Some(TIME + 99_999));
    assert_eq!(batch.last_offset(), 11);
}

#[test]
fn control_batches_equal_javas() {
    for committed in [true, false] {
        let marker = EndTransactionMarker { committed, coordinator_epoch: 15 };
        let options = BatchOptions {
            base_offset: 12,
            producer_id: 99,
            producer_epoch: 3,
            is_transactional: true,
            is_control_batch: true,
            partition_leader_epoch: 6,
            ..BatchOptions::default()
        };
        let name = format!("end-txn-{}", marker.control_type().name());
        check(&name, options, |builder| builder.append_end_txn_marker(TIME, marker).unwrap());
    }
    for kind in (0..7).map(ControlRecordType::from_type_id) {
        let options =
            BatchOptions { is_control_batch: true, partition_leader_epoch: 6, ..BatchOptions::default() };
        check(&format!("control-{}", kind.name()), options, |builder| {
            builder.append_control_record(TIME, kind, &text(5, 9)).unwrap();
        });
    }
}

#[test]
fn empty_batch_equals_javas() {
    let options = BatchOptions {
        base_offset: 100,
        producer_id: 23,
        producer_epoch: 4,
        base_sequence: 5,
        is_transactional: true,
        partition_leader_epoch: 8,
        ..BatchOptions::default()
    };
    assert_eq!(empty_batch(&options, 150, TIME).as_ref(), golden("empty-header"));
}
