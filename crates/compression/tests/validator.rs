//! Every input of `validator.tsv` has the outcome that the reference's LogValidator gave it: error code, the messages
//! clients see, refused records, and the bytes that are stored.

use bytes::Bytes;
use compression::KafkaCodecs;
use record::{
    AppendError, AppendOrigin, BufferSupplier, Codecs, Compression, CompressionType, RecordBatch,
    TimestampType, TopicPartition, ValidatedBatch, ValidationParams, validate_and_assign_offsets,
};

const CASES: &str = include_str!("../../record/tests/fixtures/validator.tsv");

fn unhex(line: &str) -> Vec<u8> {
    (0..line.len()).step_by(2).map(|i| u8::from_str_radix(&line[i..i + 2], 16).unwrap()).collect()
}

/// Error code, then what the line must say.
fn outcome(result: &Result<ValidatedBatch, AppendError>) -> String {
    match result {
        Ok(batch) => {
            let next_offset = batch.last_offset + 1;
            format!("0\t{next_offset}\t{}\t{}", batch.max_timestamp, batch.is_rebuilt)
        }
        Err(error) => match error.client_message() {
            Some(message) => {
                let records: Vec<String> = error
                    .record_errors()
                    .iter()
                    .map(|e| format!("{}={}", e.batch_index, e.message))
                    .collect();
                format!("{}\t{message}\t{}", error.error_code(), records.join("|"))
            }
            None => format!("{}\t", error.error_code()),
        },
    }
}

fn check(line: &str, buffers: &mut BufferSupplier) -> Result<(), String> {
    let mut fields = line.splitn(10, '\t');
    let mut field = || fields.next().unwrap();
    let name = field();
    let partition = TopicPartition::new("t", 3);
    let target = CompressionType::from_name(field()).unwrap();
    let params = ValidationParams {
        target_compression: Compression::of(target),
        timestamp_type: TimestampType::from_name(field()).unwrap(),
        compacted_topic: field() == "true",
        timestamp_before_max_ms: field().parse().unwrap(),
        timestamp_after_max_ms: field().parse().unwrap(),
        origin: if field() == "CLIENT" { AppendOrigin::Client } else { AppendOrigin::Coordinator },
        max_record_body_size: field().parse().unwrap(),
        partition_leader_epoch: 11,
        ..ValidationParams::new(&partition, 1_700_000_000_000, 1000)
    };
    let input = Bytes::from(unhex(field()));
    let expected = field();
    let result = validate_and_assign_offsets(input, &params, &KafkaCodecs, buffers);
    let got = outcome(&result);
    let Ok(batch) = result else {
        return if got == expected { Ok(()) } else { Err(format!("{name}: got {got}, expected {expected}")) };
    };
    let (expected, stored) = expected.rsplit_once('\t').unwrap();
    if got != expected {
        return Err(format!("{name}: got {got}, expected {expected}"));
    }
    let stored = unhex(stored);
    let mut split = batch.header_bytes().to_vec();
    split.extend_from_slice(&batch.records_section());
    let is_rebuilt = batch.is_rebuilt;
    let bytes = batch.into_bytes();
    if split != bytes {
        return Err(format!("{name}: the batch in two pieces is another one"));
    }
    let same = if is_rebuilt { comparable(&bytes) == comparable(&stored) } else { bytes == stored };
    if same { Ok(()) } else { Err(format!("{name}: stored bytes differ\n{bytes:02x?}\n{stored:02x?}")) }
}

/// A compressed batch without what depends on the compressor's implementation.
fn comparable(bytes: &[u8]) -> (record::BatchHeader, Vec<u8>) {
    let batch = RecordBatch::first(bytes).unwrap().unwrap();
    assert!(batch.is_valid());
    let mut header = *batch.header();
    (header.crc, header.batch_length) = (0, 0);
    let mut records = Vec::new();
    let kind = batch.compression_type().unwrap();
    KafkaCodecs.decompress(kind, 2, batch.records_section(), 1 << 20, &mut records).unwrap();
    (header, records)
}

#[test]
fn every_outcome_is_that_of_the_reference() {
    let mut buffers = BufferSupplier::new();
    let failures: Vec<String> = CASES.lines().filter_map(|line| check(line, &mut buffers).err()).collect();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), CASES.lines().count(), failures.join("\n"));
    assert!(CASES.lines().count() > 600);
}

#[test]
#[ignore = "needs cases that `RecordGolden random` wrote, named by VALIDATOR_CASES"]
fn random_outcomes_are_those_of_the_reference() {
    let cases = std::fs::read_to_string(std::env::var("VALIDATOR_CASES").unwrap()).unwrap();
    let mut buffers = BufferSupplier::new();
    let failures: Vec<String> = cases.lines().filter_map(|line| check(line, &mut buffers).err()).collect();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), cases.lines().count(), failures.join("\n"));
}
