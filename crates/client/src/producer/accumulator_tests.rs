//! Order, sequences and memory of the accumulator, with the time as an argument.

use std::time::Duration;

use protocol::messages::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};

use super::*;
use crate::config::ClientConfig;

const NODE: i32 = 7;

fn accumulator(pairs: &[(&str, &str)]) -> Accumulator {
    let values = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let config = ProducerConfig::from_config(&ClientConfig::from_map(values)).unwrap();
    let mut accumulator = Accumulator::new(config, 1);
    let partition = MetadataResponsePartition { leader_id: NODE, ..Default::default() };
    let topic = MetadataResponseTopic {
        name: Some("t".to_owned()),
        partitions: vec![partition],
        ..Default::default()
    };
    accumulator.update_metadata(&MetadataResponse { topics: vec![topic], ..Default::default() });
    accumulator.set_producer(42, 0);
    accumulator
}

fn append(accumulator: &mut Accumulator, value: &[u8], token: u64, now: Instant) -> Result<bool, Refusal> {
    let record = ProducerRecord {
        topic: "t",
        partition: None,
        timestamp: 1,
        key: None,
        value: Some(value),
        headers: &[],
    };
    accumulator.append(&record, token, now)
}

fn drain(accumulator: &mut Accumulator, now: Instant) -> Vec<Sent> {
    let (ready, _) = accumulator.drain(now, &compression::KafkaCodecs, false, &mut |_| true);
    ready.into_values().flatten().collect()
}

fn header(sent: &Sent) -> BatchHeader {
    BatchHeader::parse(&sent.records).unwrap().unwrap()
}

#[test]
fn a_batch_waits_for_company_until_linger_is_over_or_it_is_full() {
    let now = Instant::now();
    let mut accumulator = accumulator(&[("linger.ms", "50"), ("batch.size", "200")]);
    append(&mut accumulator, b"first", 1, now).unwrap();
    assert!(drain(&mut accumulator, now).is_empty());
    append(&mut accumulator, b"second", 2, now).unwrap();
    let sent = drain(&mut accumulator, now + Duration::from_millis(50));
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].batch.tokens, [1, 2]);
    for token in 3..6 {
        append(&mut accumulator, &[0; 100], token, now).unwrap();
    }
    let full = drain(&mut accumulator, now);
    assert_eq!(full[0].batch.tokens, [3]);
}

#[test]
fn retries_keep_their_sequence_and_go_first() {
    let now = Instant::now();
    let mut accumulator = accumulator(&[("linger.ms", "0"), ("batch.size", "1")]);
    for token in 0..3 {
        append(&mut accumulator, b"x", token, now).unwrap();
    }
    let first = drain(&mut accumulator, now).pop().unwrap();
    let second = drain(&mut accumulator, now).pop().unwrap();
    assert_eq!((header(&first).base_sequence, header(&second).base_sequence), (0, 1));
    let lost = ClientError::Disconnected { address: String::new(), cause: String::new() };
    assert!(accumulator.failed(first, lost, now).is_none());
    // The second one came before the first: it is tried again too, not given up.
    let early = ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER.into();
    assert!(accumulator.failed(second, early, now).is_none());
    let later = now + Duration::from_secs(1);
    let mut order = Vec::new();
    while let Some(sent) = drain(&mut accumulator, later).pop() {
        order.push((header(&sent).base_sequence, sent.batch.tokens.clone()));
        accumulator.request_ended(NODE);
        accumulator.succeeded(&sent);
    }
    assert_eq!(order, [(0, vec![0]), (1, vec![1]), (2, vec![2])]);
    assert_eq!((accumulator.incomplete(), accumulator.buffered), (0, 0));
}

#[test]
fn sequences_start_again_under_the_next_epoch_when_a_batch_is_given_up() {
    let now = Instant::now();
    let mut accumulator = accumulator(&[("linger.ms", "0"), ("batch.size", "1")]);
    append(&mut accumulator, b"x", 0, now).unwrap();
    append(&mut accumulator, b"y", 1, now).unwrap();
    let first = drain(&mut accumulator, now).pop().unwrap();
    let refused = ErrorCode::INVALID_RECORD.into();
    let (first, _) = accumulator.failed(first, refused, now).unwrap();
    accumulator.release(&first);
    accumulator.request_ended(NODE);
    let second = drain(&mut accumulator, now).pop().unwrap();
    let header = header(&second);
    assert_eq!((header.producer_epoch, header.base_sequence), (1, 0));
    assert!(RecordBatch::first(&second.records).unwrap().unwrap().is_valid());
}

#[test]
fn a_batch_too_large_for_the_broker_is_halved() {
    let now = Instant::now();
    let mut accumulator = accumulator(&[("linger.ms", "0"), ("batch.size", "10000")]);
    for token in 0..4 {
        append(&mut accumulator, b"value", token, now).unwrap();
    }
    let sent = drain(&mut accumulator, now).pop().unwrap();
    assert!(accumulator.failed(sent, ErrorCode::MESSAGE_TOO_LARGE.into(), now).is_none());
    accumulator.request_ended(NODE);
    let mut halves = Vec::new();
    while let Some(half) = drain(&mut accumulator, now).pop() {
        halves.push((header(&half).base_sequence, half.batch.tokens.clone()));
        accumulator.request_ended(NODE);
        accumulator.succeeded(&half);
    }
    assert_eq!(halves, [(0, vec![0, 1]), (2, vec![2, 3])]);
    assert_eq!((accumulator.incomplete(), accumulator.buffered), (0, 0));
}

#[test]
fn memory_and_sizes_are_bounded() {
    let now = Instant::now();
    let mut accumulator = accumulator(&[("buffer.memory", "300"), ("max.request.size", "250")]);
    append(&mut accumulator, &[0; 100], 0, now).unwrap();
    assert_eq!(append(&mut accumulator, &[0; 200], 1, now), Err(Refusal::NoMemory));
    assert!(matches!(append(&mut accumulator, &[0; 400], 1, now), Err(Refusal::TooLarge(_))));
    let expired = accumulator.expire(now + Duration::from_secs(200));
    assert_eq!(expired.len(), 1);
    accumulator.release(&expired[0].0);
    assert_eq!((accumulator.incomplete(), accumulator.buffered), (0, 0));
}
