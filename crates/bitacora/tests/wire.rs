//! What a running broker does with what no client should send: bounds, garbage, unknown APIs and versions.
//!
//! Each case ends with the protocol's error or a closed connection and one log line that has the client's address; the
//! process lives, its memory is bounded by what it received, and others are served.

#![allow(clippy::disallowed_methods, reason = "tests wait for a process and its sockets")]

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use bytes::Bytes;
use common::{Client, Server, decode, encode};
use compression::KafkaCodecs;
use protocol::messages::create_topics_request::CreatableTopic;
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, CreateTopicsRequest, ListOffsetsRequest, MetadataRequest,
    ProduceRequest,
};
use protocol::{Decoder, ErrorCode, Message, Records};
use record::{BatchOptions, Compression, RecordBatchBuilder};

fn api_versions(version: i16) -> ApiVersionsRequest {
    let mut request = ApiVersionsRequest::default();
    if version >= 3 {
        request.client_software_name = "test".into();
        request.client_software_version = "1".into();
    }
    if version >= 5 {
        request.node_id = -1;
    }
    request
}

fn header(key: i16, version: i16, rest: &[u8]) -> Vec<u8> {
    [&key.to_be_bytes()[..], &version.to_be_bytes(), &7i32.to_be_bytes(), &[0xff, 0xff], rest].concat()
}

fn framed(body: &[u8]) -> Vec<u8> {
    [&u32::try_from(body.len()).unwrap().to_be_bytes()[..], body].concat()
}

#[test]
fn bytes_that_are_no_request_close_the_connection_with_one_line() {
    let mut server = Server::start("bad-frames", "");
    let hundred_mib = 100 << 20;
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("negative size", vec![0xff; 4]),
        ("largest size", i32::MAX.to_be_bytes().to_vec()),
        ("one over the limit", (hundred_mib + 1i32).to_be_bytes().to_vec()),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
        ("TLS", vec![0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00]),
        ("empty frame", vec![0; 4]),
        ("cut-off header", framed(&[0, 18, 0])),
        ("unknown api", framed(&header(999, 0, &[]))),
        ("negative api", framed(&header(-1, 0, &[]))),
        ("unknown version of Metadata", framed(&header(3, 99, &[0]))),
        ("negative version", framed(&header(3, -1, &[]))),
        ("removed version of Fetch", framed(&header(1, 0, &[]))),
        ("array of 2^31-1 topics", framed(&header(3, 1, &i32::MAX.to_be_bytes()))),
        ("varint without end", framed(&header(3, 12, &[0xff; 10]))),
        ("cut-off body", framed(&header(0, 7, &[0, 0, 1]))),
        ("controller api on a broker listener", framed(&header(52, 0, &[0, 1, 0]))),
    ];
    for (name, bytes) in &cases {
        let mut client = server.connect();
        let address = client.socket.local_addr().unwrap();
        client.socket.write_all(bytes).unwrap();
        assert!(client.is_closed(), "{name}: not closed");
        let lines = wait_for_lines(&server, &address.to_string());
        assert_eq!(lines.len(), 1, "{name}: {lines:?}");
    }
    assert!(server.is_alive());
    assert!(!server.log().contains("panicked"));
    server.connect().call(&api_versions(3), 3);
}

fn wait_for_lines(server: &Server, word: &str) -> Vec<String> {
    for _ in 0..100 {
        let found: Vec<String> =
            server.log().lines().filter(|line| line.contains(word)).map(str::to_owned).collect();
        if !found.is_empty() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Vec::new()
}

#[test]
fn a_port_scan_cannot_fill_the_log() {
    let server = Server::start("scan", "");
    for _ in 0..200 {
        let mut client = server.connect();
        client.socket.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(client.is_closed());
    }
    let lines = server.log().lines().filter(|line| line.contains("Closing connection from")).count();
    // 20 in each window of 10 s; a slow machine may need a few windows.
    assert!((20..=100).contains(&lines), "{lines} lines");
}

#[test]
fn api_versions_of_any_version_is_answered_and_the_connection_stays() {
    let server = Server::start("api-versions", "");
    let mut client = server.connect();
    for version in 0..=5 {
        let answer = client.call(&api_versions(version), version);
        assert_eq!(answer.error_code, 0, "version {version}");
        assert!(answer.api_keys.len() > 20);
    }
    for version in [6, 99, i16::MAX] {
        client.frame(&header(18, version, &[0, 1, 1, 1, 0]));
        let answer = decode::<ApiVersionsRequest>(client.answer(), 0, 7);
        assert_eq!(answer.error_code, ErrorCode::UNSUPPORTED_VERSION.code());
        let named: Vec<(i16, i16, i16)> =
            answer.api_keys.iter().map(|api| (api.api_key, api.min_version, api.max_version)).collect();
        assert_eq!(named, [(18, 0, 5)]);
    }
    assert_eq!(client.call(&api_versions(3), 3).error_code, 0);
}

/// `Name(key): low to high` or `Name(key): version` of the reference's own tool.
fn reference_ranges() -> BTreeMap<i16, (i16, i16)> {
    let text = include_str!("../../../compat/wire/broker-api-versions.txt");
    let mut ranges = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.trim().split_once(" [usable")) {
        let (name, range) = line.0.split_once(": ").unwrap();
        let key = name.split_once('(').unwrap().1.trim_end_matches(')').parse().unwrap();
        let (low, high) = range.split_once(" to ").unwrap_or((range, range));
        ranges.insert(key, (low.parse().unwrap(), high.parse().unwrap()));
    }
    assert!(ranges.len() > 70);
    ranges
}

#[test]
fn advertised_ranges_are_the_references() {
    let server = Server::start("ranges", "");
    let answer: ApiVersionsResponse = server.connect().call(&api_versions(4), 4);
    let reference = reference_ranges();
    let mut previous = -1;
    for api in &answer.api_keys {
        let range = (api.min_version, api.max_version);
        assert_eq!(Some(&range), reference.get(&api.api_key), "key {}", api.api_key);
        assert!(api.api_key > previous, "keys are in order");
        previous = api.api_key;
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_whatever_the_client_calls_itself() {
    let server = Server::start("pipeline", "");
    let mut client = server.connect();
    let long = "c".repeat(32_767);
    let mut bytes = Vec::new();
    for (id, name) in [(41, None), (7, Some("")), (i32::MAX, Some(long.as_str())), (-3, Some("é")), (0, None)]
    {
        bytes.extend(framed(&encode(&api_versions(3), 3, id, name)));
    }
    client.socket.write_all(&bytes).unwrap();
    for id in [41, 7, i32::MAX, -3, 0] {
        assert_eq!(decode::<ApiVersionsRequest>(client.answer(), 3, id).error_code, 0);
    }
}

#[test]
fn unknown_tags_are_skipped() {
    let server = Server::start("tags", "");
    let mut client = server.connect();
    let tags: Vec<u8> = std::iter::once(10).chain((10..20).flat_map(|tag| [tag, 3, 1, 2, 3])).collect();
    // Metadata v12 of all topics: header tags, null topics, three flags, body tags.
    let mut body = header(3, 12, &tags);
    body.extend([0, 0, 0, 0]);
    body.truncate(body.len() - 1);
    body.extend(&tags);
    client.frame(&body);
    let answer = decode::<MetadataRequest>(client.answer(), 12, 7);
    assert_eq!(answer.brokers.len(), 1);
}

#[test]
fn a_header_of_twenty_million_tags_costs_no_more_than_its_bytes() {
    let mut server = Server::start("many-tags", "");
    let before = server.memory_kib("VmHWM");
    const TAGS: usize = 20_000_000;
    let mut body = header(18, 3, &[0x80, 0xda, 0xc4, 0x09]);
    body.resize(body.len() + 2 * TAGS, 0);
    let mut client = server.connect();
    client.frame(&body);
    // Answered or refused: the limit is on memory.
    let _ = client.is_closed();
    let grown = server.memory_kib("VmHWM").saturating_sub(before);
    assert!(grown < 150 * 1024, "a frame of 40 MB cost {grown} KiB");
    assert!(server.is_alive());
    server.connect().call(&api_versions(3), 3);
}

#[test]
fn half_open_connections_cost_what_they_sent() {
    let mut server = Server::start("half-open", "");
    server.connect().call(&api_versions(3), 3);
    let before = server.memory_kib("VmRSS");
    let mut sockets = Vec::new();
    for _ in 0..1000 {
        let mut client = server.connect();
        client.socket.write_all(&[0x06, 0x40, 0x00, 0x00, 1]).unwrap();
        sockets.push(client);
    }
    server.connect().call(&api_versions(3), 3);
    for client in &mut sockets {
        client.socket.write_all(&[2]).unwrap();
    }
    server.connect().call(&api_versions(3), 3);
    let grown = server.memory_kib("VmRSS").saturating_sub(before);
    assert!(grown < 50 * 1024, "1,000 half-open connections cost {grown} KiB");
    assert!(server.is_alive());
}

#[test]
fn idle_and_half_open_connections_are_closed() {
    let server = Server::start("idle", "connections.max.idle.ms=1000");
    let mut silent = server.connect();
    let mut half = server.connect();
    half.socket.write_all(&[0, 0, 1, 0, 9]).unwrap();
    assert!(silent.is_closed());
    assert!(half.is_closed());
}

fn batch(compression: Compression, values: &[&[u8]]) -> Vec<u8> {
    let mut builder = RecordBatchBuilder::new(BatchOptions { compression, ..BatchOptions::default() });
    for value in values {
        builder.append(1_700_000_000_000, Some(b"k"), Some(value), &[]).unwrap();
    }
    builder.build(&KafkaCodecs).unwrap().to_vec()
}

/// Makes the checksum right again.
fn sealed(mut batch: Vec<u8>) -> Vec<u8> {
    let crc = record::crc::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

fn produce(client: &mut Client, records: &[u8]) -> (ErrorCode, i64) {
    let partition = PartitionProduceData {
        records: Some(Records::Bytes(Bytes::copy_from_slice(records))),
        ..Default::default()
    };
    let topic = TopicProduceData { name: "t".into(), partition_data: vec![partition], ..Default::default() };
    let request =
        ProduceRequest { acks: -1, timeout_ms: 10_000, topic_data: vec![topic], ..Default::default() };
    let answer = client.call(&request, 9);
    let partition = &answer.responses[0].partition_responses[0];
    (ErrorCode::from_code(partition.error_code), partition.base_offset)
}

fn end_offset(client: &mut Client) -> i64 {
    let partition = ListOffsetsPartition { timestamp: -1, ..Default::default() };
    let topic = ListOffsetsTopic { name: "t".into(), partitions: vec![partition] };
    let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
    client.call(&request, 7).topics[0].partitions[0].offset
}

fn with_topic(server: &Server) -> Client {
    let mut client = server.connect();
    let topic =
        CreatableTopic { name: "t".into(), num_partitions: 1, replication_factor: 1, ..Default::default() };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..Default::default() };
    assert_eq!(client.call(&request, 7).topics[0].error_code, 0);
    // A topic is answered before its partitions lead.
    while end_offset(&mut client) < 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    client
}

fn patched(batch: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut batch = batch.to_vec();
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    batch
}

#[test]
fn garbled_batches_are_refused_and_change_nothing() {
    let mut server = Server::start("garbled", "");
    let mut client = with_topic(&server);
    let good = batch(Compression::None, &[b"a", b"b"]);
    let gzip = batch(Compression::Gzip(-1), &[b"a", b"b"]);
    assert_eq!(produce(&mut client, &good), (ErrorCode::NONE, 0), "a new topic");
    assert_eq!(produce(&mut client, &gzip), (ErrorCode::NONE, 2));
    let last = good.len() - 1;
    let garbage_inside = |batch: &[u8]| sealed([&batch[..61], &vec![0x5a; batch.len() - 61]].concat());
    // What the reference answers, run with $WIRE_PEER.
    let cases = [
        ("a flipped bit", patched(&good, last, &[good[last] ^ 1]), ErrorCode::CORRUPT_MESSAGE),
        ("another magic", patched(&good, 16, &[9]), ErrorCode::CORRUPT_MESSAGE),
        (
            "three records announced",
            sealed(patched(&good, 57, &3i32.to_be_bytes())),
            ErrorCode::INVALID_RECORD,
        ),
        ("one record announced", sealed(patched(&good, 57, &1i32.to_be_bytes())), ErrorCode::INVALID_RECORD),
        ("no record announced", sealed(patched(&good, 57, &0i32.to_be_bytes())), ErrorCode::INVALID_RECORD),
        (
            "2^31-1 records announced",
            sealed(patched(&good, 57, &i32::MAX.to_be_bytes())),
            ErrorCode::INVALID_RECORD,
        ),
        ("last delta off", sealed(patched(&good, 23, &5i32.to_be_bytes())), ErrorCode::INVALID_RECORD),
        (
            "negative last delta",
            sealed(patched(&good, 23, &(-5i32).to_be_bytes())),
            ErrorCode::INVALID_RECORD,
        ),
        ("a control batch", sealed(patched(&good, 21, &0x20i16.to_be_bytes())), ErrorCode::INVALID_RECORD),
        ("garbage in gzip", garbage_inside(&gzip), ErrorCode::UNKNOWN_SERVER_ERROR),
        ("size beyond the bytes", patched(&good, 8, &10_000i32.to_be_bytes()), ErrorCode::INVALID_RECORD),
        ("negative size", patched(&good, 8, &(-1i32).to_be_bytes()), ErrorCode::CORRUPT_MESSAGE),
        ("two batches", [good.clone(), good.clone()].concat(), ErrorCode::INVALID_RECORD),
        ("a batch too large", batch(Compression::None, &[&vec![1; 1_100_000]]), ErrorCode::MESSAGE_TOO_LARGE),
    ];
    let mut wrong = Vec::new();
    for (name, records, expected) in &cases {
        let (error, offset) = produce(&mut client, records);
        if (error, offset) != (*expected, -1) {
            wrong.push(format!("{name}: {} at {offset}, not {}", error.name(), expected.name()));
        }
        assert_eq!(end_offset(&mut client), 4, "{name}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(produce(&mut client, &good), (ErrorCode::NONE, 4));
    assert!(server.is_alive());
    assert!(!server.log().contains("panicked"));
}

#[test]
fn decompression_bombs_cost_no_memory() {
    let server = Server::start("bombs", "");
    let mut client = with_topic(&server);
    produce(&mut client, &batch(Compression::None, &[b"a"]));
    let zeros = vec![0; 150 << 20];
    for compression in [Compression::Zstd(1), Compression::Gzip(9)] {
        let bomb = batch(compression, &[&zeros]);
        assert!(bomb.len() < 1_000_000, "{compression:?}: {}", bomb.len());
        let before = server.memory_kib("VmHWM");
        let (error, _) = produce(&mut client, &bomb);
        let grown = server.memory_kib("VmHWM").saturating_sub(before);
        assert!(grown < 64 * 1024, "{compression:?} ({}) cost {grown} KiB", error.name());
        // The count is wrong behind 150 MiB of zeros: refused without keeping them.
        let end = end_offset(&mut client);
        let (error, _) = produce(&mut client, &sealed(patched(&bomb, 57, &2i32.to_be_bytes())));
        assert_eq!(error, ErrorCode::INVALID_RECORD);
        assert_eq!(end_offset(&mut client), end);
    }
}

#[test]
fn a_port_in_use_is_one_line_and_exit_code_1() {
    let server = Server::start("port", "");
    let dir = common::folder("port-second");
    let properties = common::formatted(&dir, server.port, "");
    let output = common::refused(&properties);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains(&format!("Socket server failed to bind to 127.0.0.1:{}", server.port)), "{error}");
}

#[test]
fn the_decoder_reads_its_own_version_of_the_answer() {
    // Guards the helpers above: an answer of version 0 ends where it should.
    let server = Server::start("self-check", "");
    let mut client = server.connect();
    client.frame(&encode(&api_versions(0), 0, 1, None));
    let mut r = Decoder::new(client.answer());
    r.i32().unwrap();
    ApiVersionsResponse::decode(&mut r, 0).unwrap();
    assert_eq!(r.remaining(), 0);
}
