//! Compressed batches that were garbled, or made to swell: no panic, and memory as the caller bounds it.

use bytes::Bytes;
use compression::KafkaCodecs;
use proptest::collection::vec;
use proptest::prelude::*;
use record::{
    BatchOptions, BufferSupplier, Codecs, Compression, CompressionType, RecordBatch, RecordBatchBuilder,
    TopicPartition, ValidationParams, validate_and_assign_offsets,
};

fn build(kind: CompressionType, values: &[Vec<u8>]) -> Vec<u8> {
    let options = BatchOptions { compression: Compression::of(kind), ..BatchOptions::default() };
    let mut builder = RecordBatchBuilder::new(options);
    for value in values {
        builder.append(5, Some(b"key"), Some(value), &[]).unwrap();
    }
    builder.build(&KafkaCodecs).unwrap().to_vec()
}

fn exercise(bytes: &[u8]) {
    let mut buffers = BufferSupplier::new();
    let partition = TopicPartition::new("t", 0);
    if let Ok(Some(batch)) = RecordBatch::first(bytes)
        && let Ok(records) = batch.records_within(&KafkaCodecs, &mut buffers, 1 << 20)
    {
        let _ = records.take_while(Result::is_ok).count();
    }
    for target in CompressionType::ALL {
        let params = ValidationParams {
            target_compression: Compression::of(target),
            max_record_body_size: 1 << 20,
            max_decompressed_size: 1 << 20,
            ..ValidationParams::new(&partition, 5, 0)
        };
        let _ =
            validate_and_assign_offsets(Bytes::copy_from_slice(bytes), &params, &KafkaCodecs, &mut buffers);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_codec_round_trips(kind in 0u8..5, values in vec(vec(any::<u8>(), 0..2000), 1..80)) {
        let kind = CompressionType::from_id(kind).unwrap();
        let bytes = build(kind, &values);
        let batch = RecordBatch::first(&bytes).unwrap().unwrap();
        let mut buffers = BufferSupplier::new();
        let read: Vec<Vec<u8>> = batch
            .records(&KafkaCodecs, &mut buffers)
            .unwrap()
            .map(|record| record.unwrap().value.unwrap().to_vec())
            .collect();
        prop_assert_eq!(&read, &values);
        let mut stream = batch.stream(&KafkaCodecs, &mut buffers, 1 << 20).unwrap();
        for value in &values {
            prop_assert_eq!(stream.next_record().unwrap().unwrap().value.unwrap(), &value[..]);
        }
        prop_assert!(stream.next_record().is_none());
    }

    #[test]
    fn garbled_batches_do_not_panic(
        kind in 1u8..5,
        values in vec(vec(0u8..4, 0..300), 1..8),
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut bytes = build(CompressionType::from_id(kind).unwrap(), &values);
        for (index, byte) in flips {
            let index = 21 + index.index(bytes.len() - 21);
            bytes[index] = byte;
        }
        exercise(&bytes);
    }

    #[test]
    fn arbitrary_streams_do_not_panic(kind in 1u8..5, bytes in vec(any::<u8>(), 0..300)) {
        let kind = CompressionType::from_id(kind).unwrap();
        for magic in 0..3 {
            let _ = KafkaCodecs.decompress(kind, magic, &bytes, 1 << 20, &mut Vec::new());
        }
    }
}

#[test]
fn a_swelling_batch_is_judged_record_by_record() {
    let value = vec![0u8; 40 << 20];
    let partition = TopicPartition::new("t", 0);
    for kind in [CompressionType::Gzip, CompressionType::Zstd] {
        let bytes = Bytes::from(build(kind, std::slice::from_ref(&value)));
        assert!(bytes.len() < 1 << 20);
        let validate = |params: &ValidationParams<'_>| {
            let mut buffers = BufferSupplier::new();
            validate_and_assign_offsets(bytes.clone(), params, &KafkaCodecs, &mut buffers)
                .map(|batch| batch.size_in_bytes())
                .map_err(|error| error.error_code())
        };
        let same = ValidationParams {
            target_compression: Compression::of(kind),
            ..ValidationParams::new(&partition, 5, 0)
        };
        assert_eq!(validate(&same), Ok(bytes.len()), "{kind}: its contents are skipped");
        assert_eq!(validate(&ValidationParams { max_record_body_size: 1 << 20, ..same }), Err(87), "{kind}");
        let other = ValidationParams { target_compression: Compression::None, ..same };
        let bounded = ValidationParams { max_decompressed_size: 1 << 20, ..other };
        assert_eq!(validate(&bounded), Err(10), "{kind}: too large to be compressed anew");
        let limited = ValidationParams { max_message_size: Some(1 << 20), ..other };
        assert_eq!(validate(&limited), Err(10), "{kind}: max.message.bytes holds for what is stored");
    }
}
