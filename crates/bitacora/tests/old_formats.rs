//! Segments of message formats v0 and v1, as an upgraded cluster has them: served byte for byte, found by offset and by
//! time, exactly as Apache Kafka 4.4.0 does. `compat/old-formats/record.sh` made the segments and the expected answers.

#![allow(clippy::disallowed_methods, reason = "tests wait for a process and its sockets")]

mod common;

use std::fs;
use std::path::Path;

use common::{Client, Server};
use protocol::messages::create_topics_request::CreatableTopic;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::{CreateTopicsRequest, FetchRequest, ListOffsetsRequest, MetadataRequest};
use protocol::{Records, Uuid};

const CODECS: [&str; 4] = ["none", "gzip", "snappy", "lz4"];

fn fixtures() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/old_formats"))
}

fn create(client: &mut Client, name: &str) {
    let topic = CreatableTopic {
        name: name.to_owned(),
        num_partitions: 1,
        replication_factor: 1,
        ..CreatableTopic::default()
    };
    let request =
        CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..CreateTopicsRequest::default() };
    assert_eq!(client.call(&request, 7).topics[0].error_code, 0);
}

fn topic_id(client: &mut Client, name: &str) -> Uuid {
    let topic = MetadataRequestTopic { name: Some(name.to_owned()), ..MetadataRequestTopic::default() };
    let request = MetadataRequest { topics: Some(vec![topic]), ..MetadataRequest::default() };
    client.call(&request, 12).topics[0].topic_id
}

fn fetch(client: &mut Client, topic_id: Uuid, offset: i64, max_bytes: i32, log: &[u8]) -> String {
    let partition =
        FetchPartition { fetch_offset: offset, partition_max_bytes: max_bytes, ..FetchPartition::default() };
    let topic = FetchTopic { topic_id, partitions: vec![partition], ..FetchTopic::default() };
    let request = FetchRequest {
        max_bytes: 1 << 30,
        session_epoch: -1,
        topics: vec![topic],
        ..FetchRequest::default()
    };
    let partition = client.call(&request, 13).responses.remove(0).partitions.remove(0);
    if partition.error_code != 0 {
        return format!("error {}", partition.error_code);
    }
    let records = match partition.records {
        Some(Records::Bytes(bytes)) => bytes,
        _ => bytes::Bytes::new(),
    };
    let position = log.windows(records.len().max(1)).position(|window| window == records);
    format!(
        "{} {}",
        if records.is_empty() { 0 } else { position.expect("the file's own bytes") },
        records.len()
    )
}

fn list(client: &mut Client, topic: &str, timestamp: i64) -> String {
    let partition = ListOffsetsPartition { partition_index: 0, current_leader_epoch: -1, timestamp };
    let topic = ListOffsetsTopic { name: topic.to_owned(), partitions: vec![partition] };
    let request = ListOffsetsRequest {
        replica_id: -1,
        timeout_ms: 5000,
        topics: vec![topic],
        ..ListOffsetsRequest::default()
    };
    let found = client.call(&request, 11).topics.remove(0).partitions.remove(0);
    match found.error_code {
        0 => format!("{} {} {}", found.offset, found.timestamp, found.leader_epoch),
        error => format!("error {error}"),
    }
}

#[test]
fn segments_of_old_formats_are_served_as_the_reference_serves_them() {
    let server = Server::start("old-formats", "log.retention.ms=-1");
    let mut client = server.connect();
    CODECS.iter().for_each(|codec| create(&mut client, &format!("old-{codec}")));
    let port = server.port;
    let dir = server.kill();
    for codec in CODECS {
        let partition = dir.join(format!("data/old-{codec}-0"));
        for entry in fs::read_dir(&partition).unwrap() {
            let path = entry.unwrap().path();
            let is_derived = path.extension().is_none_or(|suffix| suffix != "log" && suffix != "metadata");
            if is_derived {
                fs::remove_file(path).unwrap();
            }
        }
        let log = partition.join("00000000000000000000.log");
        fs::copy(fixtures().join(format!("{codec}.log")), log).unwrap();
    }
    let server = Server::open(dir, port);
    let mut client = server.connect();
    let expected = fs::read_to_string(fixtures().join("expected.txt")).unwrap();
    let mut asked = 0;
    for line in expected.lines() {
        let (question, expected) = line.split_once(": ").unwrap();
        let words: Vec<&str> = question.split(' ').collect();
        let topic = format!("old-{}", words[0]);
        let actual = if words[1] == "fetch" {
            let log = fs::read(fixtures().join(format!("{}.log", words[0]))).unwrap();
            let id = topic_id(&mut client, &topic);
            fetch(&mut client, id, words[2].parse().unwrap(), words[3].parse().unwrap(), &log)
        } else {
            list(&mut client, &topic, words[2].parse().unwrap())
        };
        if words[1..] == ["list", "-1"] {
            // The current leader epoch depends on how often the node was started.
            let without_epoch = |answer: &str| answer.rsplit_once(' ').map(|(rest, _)| rest.to_owned());
            assert_eq!(without_epoch(&actual), without_epoch(expected), "{question}");
        } else {
            assert_eq!(actual, expected, "{question}");
        }
        asked += 1;
    }
    assert!(asked > 700, "{asked}");
}
