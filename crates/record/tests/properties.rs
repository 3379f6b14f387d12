//! Properties over generated batches and arbitrary bytes: what is built is read back, and no bytes make a reader panic.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use record::{
    AnalyzeParams, AppendOrigin, BatchHeader, BatchOptions, Batches, BufferSupplier, Header, NoCodecs,
    RecordBatch, RecordBatchBuilder, TimestampType, TopicPartition, ValidationParams,
    analyze_and_validate_records, validate_and_assign_offsets, validate_produce_records,
};

#[derive(Clone, Debug)]
struct Input {
    gap: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

fn blob() -> impl Strategy<Value = Option<Vec<u8>>> {
    option::of(vec(any::<u8>(), 0..200))
}

fn input() -> impl Strategy<Value = Input> {
    (1i64..5000, -1i64..i64::MAX / 2, blob(), blob(), vec((".{0,8}", blob()), 0..4))
        .prop_map(|(gap, timestamp, key, value, headers)| Input { gap, timestamp, key, value, headers })
}

fn build(base_offset: i64, inputs: &[Input], contiguous: bool) -> Bytes {
    let mut builder = RecordBatchBuilder::new(BatchOptions { base_offset, ..BatchOptions::default() });
    let mut offset = base_offset - 1;
    for input in inputs {
        offset += if contiguous { 1 } else { input.gap };
        let headers: Vec<Header<'_>> =
            input.headers.iter().map(|(key, value)| Header::new(key, value.as_deref())).collect();
        let (key, value) = (input.key.as_deref(), input.value.as_deref());
        let size = builder.size_with(input.timestamp, key, value, &headers);
        builder.append_with_offset(offset, input.timestamp, key, value, &headers).unwrap();
        if contiguous {
            assert_eq!(builder.uncompressed_size(), size);
        }
    }
    builder.build(&NoCodecs).unwrap()
}

/// Reads everything that can be read of `bytes`, every way there is.
fn exercise(bytes: &[u8]) {
    let _ = BatchHeader::parse(bytes);
    let _ = validate_produce_records(9, bytes);
    let partition = TopicPartition::new("t", 0);
    let mut buffers = BufferSupplier::new();
    for batch in Batches::new(bytes) {
        let Ok(batch) = batch else { break };
        let _ = (batch.is_valid(), batch.last_sequence(), batch.last_offset(), batch.delete_horizon_ms());
        if let Ok(records) = batch.records(&NoCodecs, &mut buffers) {
            for record in records {
                let Ok(record) = record else { break };
                assert_eq!(record.headers.iter().count(), record.headers.len());
            }
        }
        if let Ok(mut stream) = batch.stream(&NoCodecs, &mut buffers, 1 << 16) {
            while let Some(Ok(_)) = stream.next_partial() {}
        }
        if let Ok(mut stream) = batch.stream(&NoCodecs, &mut buffers, 1 << 16) {
            while let Some(Ok(_)) = stream.next_record() {}
        }
        let _ =
            record::legacy::up_convert(&batch, record::Compression::None, &NoCodecs, &mut buffers, 1 << 16);
    }
    for origin in [AppendOrigin::Client, AppendOrigin::Coordinator] {
        let params = ValidationParams { origin, ..ValidationParams::new(&partition, 0, i64::MAX) };
        let _ = validate_and_assign_offsets(Bytes::copy_from_slice(bytes), &params, &NoCodecs, &mut buffers)
            .map(|batch| batch.into_bytes());
        let analyze = AnalyzeParams {
            topic_partition: &partition,
            origin,
            max_message_size: None,
            require_offsets_monotonic: true,
            leader_epoch: 0,
        };
        let _ = analyze_and_validate_records(bytes, &analyze);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_built_is_read(base in 0i64..1 << 50, inputs in vec(input(), 1..20)) {
        let bytes = build(base, &inputs, false);
        let batch = RecordBatch::first(&bytes).unwrap().unwrap();
        prop_assert!(batch.is_valid());
        prop_assert_eq!(batch.count as usize, inputs.len());
        prop_assert_eq!(batch.max_timestamp, inputs.iter().map(|input| input.timestamp).max().unwrap());
        let mut buffers = BufferSupplier::new();
        let records: Vec<_> =
            batch.records(&NoCodecs, &mut buffers).unwrap().collect::<Result<_, _>>().unwrap();
        let mut offset = base - 1;
        for (record, input) in records.iter().zip(&inputs) {
            offset += input.gap;
            prop_assert_eq!(record.offset, offset);
            prop_assert_eq!(record.timestamp, input.timestamp);
            prop_assert_eq!(record.key, input.key.as_deref());
            prop_assert_eq!(record.value, input.value.as_deref());
            let headers: Vec<_> = input.headers.iter().map(|(k, v)| Header::new(k, v.as_deref())).collect();
            prop_assert_eq!(record.headers.iter().collect::<Vec<_>>(), headers);
        }
        prop_assert_eq!(batch.last_offset(), offset);
        let mut stream_buffers = BufferSupplier::new();
        let mut stream = batch.stream(&NoCodecs, &mut stream_buffers, 1 << 20).unwrap();
        for record in &records {
            prop_assert_eq!(&stream.next_record().unwrap().unwrap(), record);
        }
        prop_assert!(stream.next_record().is_none());
        let owned = batch.owned_records(&bytes, &NoCodecs, 1 << 20).unwrap();
        for (owned, record) in owned.iter().zip(&records) {
            prop_assert_eq!(owned.value.as_deref(), record.value);
        }
    }

    #[test]
    fn a_validated_batch_has_its_offsets_and_keeps_its_records(
        first in 0i64..1 << 50, inputs in vec(input(), 1..20), append_time: bool,
    ) {
        let bytes = build(0, &inputs, true);
        let partition = TopicPartition::new("t", 0);
        let timestamp_type =
            if append_time { TimestampType::LogAppendTime } else { TimestampType::CreateTime };
        let params = ValidationParams {
            timestamp_type,
            timestamp_after_max_ms: i64::MAX,
            partition_leader_epoch: 5,
            ..ValidationParams::new(&partition, 777, first)
        };
        let mut buffers = BufferSupplier::new();
        let shared = bytes.clone();
        let kept = validate_and_assign_offsets(bytes, &params, &NoCodecs, &mut buffers).unwrap();
        prop_assert_eq!(kept.last_offset, first + inputs.len() as i64 - 1);
        prop_assert_eq!(kept.records_section().as_ptr(), shared[61..].as_ptr());
        let stored = kept.into_bytes();
        prop_assert_ne!(stored.as_ptr(), shared.as_ptr(), "shared bytes are copied");
        let again = validate_and_assign_offsets(shared, &params, &NoCodecs, &mut buffers).unwrap();
        let address = again.records_section().as_ptr();
        let in_place = again.into_bytes();
        prop_assert_eq!(&in_place, &stored);
        prop_assert_eq!(in_place[61..].as_ptr(), address, "owned bytes are set in place");
        let batch = RecordBatch::first(&stored).unwrap().unwrap();
        prop_assert!(batch.is_valid());
        prop_assert_eq!((batch.base_offset, batch.partition_leader_epoch), (first, 5));
        for record in batch.records(&NoCodecs, &mut BufferSupplier::new()).unwrap() {
            let record = record.unwrap();
            let input = &inputs[(record.offset - first) as usize];
            prop_assert_eq!(record.timestamp, if append_time { 777 } else { input.timestamp });
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..300)) {
        exercise(&bytes);
    }

    #[test]
    fn arbitrary_bytes_behind_a_good_length_do_not_panic(magic in 0u8..4, bytes in vec(any::<u8>(), 17..300)) {
        let mut bytes = bytes;
        let length = bytes.len() as u32 - 12;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[16] = magic;
        exercise(&bytes);
    }

    #[test]
    fn garbled_batches_do_not_panic(
        inputs in vec(input(), 1..6), flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), cut: prop::sample::Index,
    ) {
        let mut bytes = build(0, &inputs, true).to_vec();
        for (index, byte) in flips {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        exercise(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        exercise(&bytes);
    }

    #[test]
    fn iteration_stops_at_a_torn_tail(inputs in vec(input(), 1..5), cut: prop::sample::Index) {
        let batch = build(0, &inputs, true);
        let mut region = batch.repeat(3);
        region.truncate(cut.index(region.len()));
        let mut batches = Batches::new(&region);
        let whole = batches.by_ref().map(Result::unwrap).count();
        prop_assert_eq!(whole, region.len() / batch.len());
        prop_assert_eq!(batches.position(), whole * batch.len());
    }
}
