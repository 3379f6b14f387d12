//! Disks that fill and fail under a running broker, and partitions that move between directories while they are written
//! (case C22 with its variants).

#![allow(clippy::disallowed_methods, reason = "tests wait for a process and its sockets")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Client, Server, folder, formatted, ports};
use compression::KafkaCodecs;
use protocol::messages::alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic};
use protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use protocol::messages::delete_topics_request::DeleteTopicState;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::{
    AlterReplicaLogDirsRequest, CreateTopicsRequest, DeleteTopicsRequest, DescribeLogDirsRequest,
    DescribeLogDirsResponse, FetchRequest, IncrementalAlterConfigsRequest, ListOffsetsRequest,
    MetadataRequest, ProduceRequest,
};
use protocol::{ErrorCode, Records};
use record::{BatchOptions, RecordBatchBuilder};

const PATIENCE: Duration = Duration::from_secs(30);
const STORAGE_ERROR: ErrorCode = ErrorCode::KAFKA_STORAGE_ERROR;

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn create(client: &mut Client, name: &str, partitions: i32, configs: &[(&str, &str)]) {
    let configs = configs
        .iter()
        .map(|(name, value)| CreatableTopicConfig { name: (*name).into(), value: Some((*value).into()) });
    let topic = CreatableTopic {
        name: name.into(),
        num_partitions: partitions,
        replication_factor: 1,
        configs: configs.collect(),
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..Default::default() };
    assert_eq!(client.call(&request, 7).topics[0].error_code, 0);
    for partition in 0..partitions {
        eventually("the topic is served", || list_offset(client, name, partition, -1).0 == ErrorCode::NONE);
    }
}

fn delete(client: &mut Client, name: &str) -> ErrorCode {
    let topics = vec![DeleteTopicState { name: Some(name.into()), ..Default::default() }];
    let request = DeleteTopicsRequest { topics, timeout_ms: 10_000, ..Default::default() };
    ErrorCode::from_code(client.call(&request, 6).responses[0].error_code)
}

fn list_offset(client: &mut Client, topic: &str, partition: i32, timestamp: i64) -> (ErrorCode, i64) {
    let partition = ListOffsetsPartition { partition_index: partition, timestamp, ..Default::default() };
    let topic = ListOffsetsTopic { name: topic.into(), partitions: vec![partition] };
    let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
    let answer = client.call(&request, 7);
    let partition = &answer.topics[0].partitions[0];
    (ErrorCode::from_code(partition.error_code), partition.offset)
}

/// One record of `size` bytes whose value begins with `number`.
fn produce(client: &mut Client, topic: &str, partition: i32, number: u64, size: usize) -> (ErrorCode, i64) {
    let mut value = vec![b'v'; size.max(8)];
    value[..8].copy_from_slice(&number.to_be_bytes());
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    builder.append(1_700_000_000_000, None, Some(&value), &[]).unwrap();
    let records = Records::Bytes(builder.build(&KafkaCodecs).unwrap());
    let data = PartitionProduceData { index: partition, records: Some(records) };
    let topic = TopicProduceData { name: topic.into(), partition_data: vec![data], ..Default::default() };
    let request =
        ProduceRequest { acks: -1, timeout_ms: 10_000, topic_data: vec![topic], ..Default::default() };
    let answer = client.call(&request, 9);
    let partition = &answer.responses[0].partition_responses[0];
    (ErrorCode::from_code(partition.error_code), partition.base_offset)
}

/// The numbers of all records, in the order of their offsets, which must be without a gap.
fn consume(client: &mut Client, topic: &str, partition: i32) -> Vec<u64> {
    let (error, end) = list_offset(client, topic, partition, -1);
    assert_eq!(error, ErrorCode::NONE);
    let mut numbers = Vec::new();
    while (numbers.len() as i64) < end {
        let wanted = FetchPartition {
            partition,
            fetch_offset: numbers.len() as i64,
            partition_max_bytes: 1 << 22,
            current_leader_epoch: -1,
            ..Default::default()
        };
        let topic = FetchTopic { topic: topic.into(), partitions: vec![wanted], ..Default::default() };
        let request = FetchRequest {
            replica_id: -1,
            max_bytes: 1 << 22,
            session_epoch: -1,
            topics: vec![topic],
            ..Default::default()
        };
        let answer = client.call(&request, 11);
        let found = &answer.responses[0].partitions[0];
        assert_eq!(ErrorCode::from_code(found.error_code), ErrorCode::NONE);
        let Some(Records::Bytes(bytes)) = &found.records else { panic!("nothing at {}", numbers.len()) };
        let before = numbers.len();
        for batch in record::Batches::new(bytes).flatten() {
            assert!(batch.is_valid() && batch.base_offset == numbers.len() as i64);
            let mut buffers = record::BufferSupplier::new();
            let record = batch.records(&KafkaCodecs, &mut buffers).unwrap().next().unwrap().unwrap();
            numbers.push(u64::from_be_bytes(record.value.unwrap()[..8].try_into().unwrap()));
        }
        assert!(numbers.len() > before, "no progress at {before}");
    }
    numbers
}

fn describe(client: &mut Client) -> DescribeLogDirsResponse {
    client.call(&DescribeLogDirsRequest { topics: None }, 4)
}

/// The directory of each partition's current replica.
fn places(client: &mut Client, topic: &str) -> BTreeMap<i32, String> {
    let mut places = BTreeMap::new();
    for dir in describe(client).results {
        for found in dir.topics.iter().filter(|t| t.name == topic).flat_map(|t| &t.partitions) {
            if !found.is_future_key {
                places.insert(found.partition_index, dir.log_dir.clone());
            }
        }
    }
    places
}

fn leader(client: &mut Client, topic: &str, partition: i32) -> i32 {
    let topics = vec![MetadataRequestTopic { name: Some(topic.into()), ..Default::default() }];
    let request = MetadataRequest { topics: Some(topics), ..Default::default() };
    let answer = client.call(&request, 12);
    let found = answer.topics[0].partitions.iter().find(|p| p.partition_index == partition);
    found.unwrap().leader_id
}

fn move_to(client: &mut Client, topic: &str, partition: i32, dir: &str) -> ErrorCode {
    let topic = AlterReplicaLogDirTopic { name: topic.into(), partitions: vec![partition] };
    let dirs = vec![AlterReplicaLogDir { path: dir.into(), topics: vec![topic] }];
    let answer = client.call(&AlterReplicaLogDirsRequest { dirs }, 2);
    ErrorCode::from_code(answer.results[0].partitions[0].error_code)
}

fn set_broker(client: &mut Client, name: &str, value: Option<&str>) {
    let config = AlterableConfig {
        name: name.into(),
        config_operation: i8::from(value.is_none()),
        value: value.map(str::to_owned),
    };
    let resource =
        AlterConfigsResource { resource_type: 4, resource_name: "1".into(), configs: vec![config] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    assert_eq!(client.call(&request, 1).responses[0].error_code, 0);
}

/// A tmpfs that is unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf, mib: u32) -> Option<SmallDisk> {
        fs::create_dir_all(&at).unwrap();
        let size = format!("size={mib}m");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&at).output().ok()?;
        mount.status.success().then_some(SmallDisk(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A folder with two formatted log directories, `first` (which has the metadata log) and `second`.
fn two_dirs(name: &str, extra: &str) -> (PathBuf, u16) {
    let (dir, port) = (folder(name), ports());
    let log_dirs = format!("log.dirs={},{}", dir.join("first").display(), dir.join("second").display());
    formatted(&dir, port, &format!("{log_dirs}\nlog.segment.delete.delay.ms=500\n{extra}"));
    (dir, port)
}

/// Fills until a write is refused; how many were taken before and are there now.
fn fill(client: &mut Client, topic: &str, partition: i32, taken: &mut Vec<u64>) {
    loop {
        let number = taken.len() as u64;
        let (error, offset) = produce(client, topic, partition, number, 400_000);
        if error != ErrorCode::NONE {
            assert_eq!(error, STORAGE_ERROR);
            return;
        }
        assert_eq!(offset as usize, taken.len());
        taken.push(number);
        assert!(taken.len() < 1000, "the disk is never full");
    }
}

#[test]
fn a_full_disk_refuses_writes_and_nothing_else() {
    let dir = folder("full");
    let Some(_disk) = SmallDisk::mount(dir.join("data"), 64) else {
        eprintln!("skipped: no tmpfs can be mounted here");
        return;
    };
    let port = ports();
    formatted(&dir, port, "log.segment.delete.delay.ms=500\nlog.segment.bytes=4194304");
    let mut server = Server::open(dir.clone(), port);
    let mut client = server.connect();
    create(&mut client, "t", 1, &[]);
    create(&mut client, "ballast", 1, &[]);
    for number in 0..30 {
        assert_eq!(produce(&mut client, "ballast", 0, number, 400_000).0, ErrorCode::NONE);
    }
    let mut taken = Vec::new();
    fill(&mut client, "t", 0, &mut taken);
    assert_eq!(produce(&mut client, "ballast", 0, 0, 400_000).0, STORAGE_ERROR);
    assert_eq!(consume(&mut client, "t", 0), taken, "reads go on");
    assert!(server.log().contains("is full"), "{}", server.log());
    assert_eq!(describe(&mut client).results[0].error_code, 0, "the directory is online");
    // Topics are created and deleted; with the room that gives, writes go on without a restart.
    create(&mut client, "late", 1, &[]);
    assert_eq!(delete(&mut client, "ballast"), ErrorCode::NONE);
    eventually("the deletion makes room", || {
        let (error, _) = produce(&mut client, "t", 0, taken.len() as u64, 400_000);
        error == ErrorCode::NONE
    });
    taken.push(taken.len() as u64);
    fill(&mut client, "t", 0, &mut taken);
    // It starts on the full disk after a kill, and serves what it acknowledged.
    drop(client);
    server.dir = PathBuf::new();
    drop(server);
    let mut server = Server::open(dir.clone(), port);
    let mut client = server.connect();
    eventually("it serves", || list_offset(&mut client, "t", 0, -1).0 == ErrorCode::NONE);
    assert_eq!(consume(&mut client, "t", 0), taken);
    assert_eq!(produce(&mut client, "late", 0, 0, 400_000).0, STORAGE_ERROR);
    assert_eq!(delete(&mut client, "t"), ErrorCode::NONE);
    eventually("the deletion makes room", || {
        produce(&mut client, "late", 0, 0, 400_000).0 == ErrorCode::NONE
    });
    assert!(!server.log().contains("panicked"), "{}", server.log());
    server.dir = PathBuf::new();
    drop(server);
    let _ = fs::remove_dir_all(dir.join("server.log"));
}

#[test]
fn a_full_second_disk_leaves_the_first_alone() {
    let dir = folder("full-second");
    let Some(_disk) = SmallDisk::mount(dir.join("second"), 32) else {
        eprintln!("skipped: no tmpfs can be mounted here");
        return;
    };
    let port = ports();
    let log_dirs = format!("log.dirs={},{}", dir.join("first").display(), dir.join("second").display());
    formatted(&dir, port, &log_dirs);
    let mut server = Server::open(dir.clone(), port);
    let mut client = server.connect();
    create(&mut client, "t", 2, &[]);
    let places = places(&mut client, "t");
    let small = *places.iter().find(|(_, dir)| dir.ends_with("second")).unwrap().0;
    let mut taken = Vec::new();
    fill(&mut client, "t", small, &mut taken);
    for number in 0..50 {
        assert_eq!(produce(&mut client, "t", 1 - small, number, 400_000), (ErrorCode::NONE, number as i64));
    }
    assert_eq!(consume(&mut client, "t", small), taken);
    // What has no room there has some here.
    let first = dir.join("first").display().to_string();
    assert_eq!(move_to(&mut client, "t", small, &first), ErrorCode::NONE);
    eventually("it moves off the full disk", || self::places(&mut client, "t")[&small] == first);
    fill_some(&mut client, small, &mut taken);
    assert_eq!(consume(&mut client, "t", small), taken);
    server.dir = PathBuf::new();
}

fn fill_some(client: &mut Client, partition: i32, taken: &mut Vec<u64>) {
    for _ in 0..5 {
        let number = taken.len() as u64;
        assert_eq!(produce(client, "t", partition, number, 1000), (ErrorCode::NONE, number as i64));
        taken.push(number);
    }
}

/// What a failing second directory must come to, whatever the failure. Returns the folder of the killed broker.
fn check_failed_directory(name: &str, fault: &str, configs: &[(&str, &str)]) {
    let (dir, port) = two_dirs(name, "");
    let server = Server::open_faulty(dir.clone(), port);
    let mut client = server.connect();
    create(&mut client, "t", 2, configs);
    let second = dir.join("second").display().to_string();
    let bad = *places(&mut client, "t").iter().find(|(_, place)| **place == second).unwrap().0;
    let mut taken = [Vec::new(), Vec::new()];
    for partition in 0..2 {
        fill_some(&mut client, partition, &mut taken[partition as usize]);
    }
    fs::write(dir.join("faults"), format!("{fault} {second}\n")).unwrap();
    assert_eq!(produce(&mut client, "t", bad, 99, 10).0, STORAGE_ERROR, "{fault}");
    // The disk works again, but it was not trusted in between.
    fs::write(dir.join("faults"), "").unwrap();
    assert_eq!(produce(&mut client, "t", bad, 99, 10).0, STORAGE_ERROR, "{fault}: no second try");
    eventually("the partition has no leader", || leader(&mut client, "t", bad) == -1);
    assert_eq!(produce(&mut client, "t", bad, 99, 10).0, STORAGE_ERROR);
    assert_eq!(list_offset(&mut client, "t", bad, -1).0, STORAGE_ERROR);
    let described = describe(&mut client);
    let failed = described.results.iter().find(|result| result.log_dir == second).unwrap();
    let numbers = (failed.error_code, failed.total_bytes, failed.usable_bytes, failed.topics.len());
    assert_eq!(numbers, (STORAGE_ERROR.code(), -1, -1, 0));
    // The other directory and the controller go on.
    let good = (1 - bad) as usize;
    fill_some(&mut client, 1 - bad, &mut taken[good]);
    assert_eq!(consume(&mut client, "t", 1 - bad), taken[good]);
    create(&mut client, "new", 2, &[]);
    assert!(places(&mut client, "new").values().all(|place| *place != second));
    assert_eq!(move_to(&mut client, "t", 1 - bad, &second), STORAGE_ERROR);
    assert!(!server.log().contains("panicked"), "{}", server.log());
    let mut server = server;
    server.dir = PathBuf::new();
    drop(server);
    // With the disk repaired everything acknowledged is there.
    let server = Server::open(dir, port);
    let mut client = server.connect();
    eventually("it leads again", || list_offset(&mut client, "t", bad, -1).0 == ErrorCode::NONE);
    for partition in 0..2 {
        let found = consume(&mut client, "t", partition);
        let taken = &taken[partition as usize];
        assert_eq!(found[..taken.len()], taken[..], "{fault}: acknowledged records");
        assert!(found.len() <= taken.len() + 1, "{fault}: only the refused append may have reached the disk");
    }
    assert_eq!(produce(&mut client, "t", bad, 7, 10).0, ErrorCode::NONE);
}

#[test]
fn a_directory_that_cannot_be_written_goes_offline_alone() {
    check_failed_directory("eio-write", "write", &[]);
}

#[test]
fn a_directory_that_cannot_be_synced_goes_offline_alone() {
    check_failed_directory("eio-sync", "sync", &[("flush.messages", "1")]);
}

#[test]
fn a_topic_made_without_room_is_served_once_there_is_some() {
    let (dir, port) = two_dirs("no-room", "");
    let server = Server::open_faulty(dir.clone(), port);
    let mut client = server.connect();
    let rule = |name: &str| format!("create-full {}/t-\n", dir.join(name).display());
    fs::write(dir.join("faults"), rule("first") + &rule("second")).unwrap();
    let topic =
        CreatableTopic { name: "t".into(), num_partitions: 2, replication_factor: 1, ..Default::default() };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..Default::default() };
    assert_eq!(client.call(&request, 7).topics[0].error_code, 0);
    for partition in 0..2 {
        assert_eq!(produce(&mut client, "t", partition, 0, 10).0, STORAGE_ERROR);
    }
    fs::write(dir.join("faults"), "").unwrap();
    for partition in 0..2 {
        eventually("it is served", || produce(&mut client, "t", partition, 0, 10).0 == ErrorCode::NONE);
    }
    let mut server = server;
    server.dir = PathBuf::new();
    drop(server);
    let server = Server::open(dir, port);
    let mut client = server.connect();
    for partition in 0..2 {
        eventually("it leads", || list_offset(&mut client, "t", partition, -1) == (ErrorCode::NONE, 1));
    }
}

#[test]
fn the_metadata_directory_ends_the_node() {
    let (dir, port) = two_dirs("eio-metadata", "");
    let mut server = Server::open_faulty(dir.clone(), port);
    let mut client = server.connect();
    create(&mut client, "t", 4, &[]);
    let first = dir.join("first").display().to_string();
    let (partition, _) = places(&mut client, "t").into_iter().find(|(_, place)| *place == first).unwrap();
    fs::write(dir.join("faults"), format!("write {first}/t-\n")).unwrap();
    assert_eq!(produce(&mut client, "t", partition, 0, 10).0, STORAGE_ERROR);
    assert_eq!(server.wait_for_end(), Some(1));
    let line = format!("Shutdown broker because the metadata log dir {first} has failed");
    assert!(server.log().contains(&line), "{}", server.log());
}

#[test]
fn the_last_directory_ends_the_node() {
    let (dir, port) = (folder("eio-all"), ports());
    formatted(&dir, port, "");
    let mut server = Server::open_faulty(dir.clone(), port);
    let mut client = server.connect();
    create(&mut client, "t", 1, &[]);
    let data = dir.join("data").display().to_string();
    fs::write(dir.join("faults"), format!("write {data}/t-\n")).unwrap();
    assert_eq!(produce(&mut client, "t", 0, 0, 10).0, STORAGE_ERROR);
    assert_eq!(server.wait_for_end(), Some(1));
    let line = format!("Shutdown broker because all log dirs in {data} have failed");
    assert!(server.log().contains(&line), "{}", server.log());
}

#[test]
fn a_partition_moves_while_it_is_written_and_through_a_kill() {
    let (dir, port) = two_dirs("move", "");
    let mut server = Server::open(dir.clone(), port);
    let mut client = server.connect();
    create(&mut client, "t", 1, &[("segment.bytes", "2097152")]);
    let mut taken = Vec::new();
    for number in 0..60 {
        assert_eq!(produce(&mut client, "t", 0, number, 100_000).0, ErrorCode::NONE);
        taken.push(number);
    }
    let from = places(&mut client, "t")[&0].clone();
    let to = dir.join(if from.ends_with("first") { "second" } else { "first" }).display().to_string();
    assert_eq!(move_to(&mut client, "t", 0, "/nowhere"), ErrorCode::LOG_DIR_NOT_FOUND);
    assert_eq!(move_to(&mut client, "t", 5, &to), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(move_to(&mut client, "t", 0, &from), ErrorCode::NONE, "it is there");
    // Slowly, so that it can be seen, given up and killed.
    set_broker(&mut client, "replica.alter.log.dirs.io.max.bytes.per.second", Some("100000"));
    assert_eq!(move_to(&mut client, "t", 0, &to), ErrorCode::NONE);
    let future = |client: &mut Client| {
        let results = describe(client).results;
        let found = results.iter().flat_map(|dir| dir.topics.iter().map(move |topic| (&dir.log_dir, topic)));
        let mut futures =
            found.flat_map(|(dir, topic)| topic.partitions.iter().map(move |partition| (dir, partition)));
        futures
            .find(|(_, partition)| partition.is_future_key)
            .map(|(dir, partition)| (dir.clone(), partition.offset_lag, partition.partition_size))
    };
    eventually("it copies", || future(&mut client).is_some_and(|(_, _, size)| size > 0));
    let (place, lag, _) = future(&mut client).unwrap();
    assert!(place == to && (1..60).contains(&lag), "{place} {lag}");
    assert_eq!(move_to(&mut client, "t", 0, &from), ErrorCode::NONE, "given up");
    assert_eq!(future(&mut client), None);
    assert_eq!(move_to(&mut client, "t", 0, &to), ErrorCode::NONE);
    eventually("it copies again", || future(&mut client).is_some_and(|(_, _, size)| size > 0));
    server.dir = PathBuf::new();
    drop(server);
    let server = Server::open(dir.clone(), port);
    let mut client = server.connect();
    eventually("it leads", || list_offset(&mut client, "t", 0, -1).0 == ErrorCode::NONE);
    assert!(future(&mut client).is_some(), "the move goes on");
    assert_eq!(consume(&mut client, "t", 0), taken);
    set_broker(&mut client, "replica.alter.log.dirs.io.max.bytes.per.second", None);
    let deadline = Instant::now() + PATIENCE;
    while places(&mut client, "t").get(&0) != Some(&to) {
        let number = taken.len() as u64;
        assert_eq!(produce(&mut client, "t", 0, number, 50_000), (ErrorCode::NONE, number as i64));
        taken.push(number);
        let end = list_offset(&mut client, "t", 0, -1);
        assert_eq!(end, (ErrorCode::NONE, taken.len() as i64), "what is acknowledged is seen at once");
        assert!(Instant::now() < deadline, "it never arrives:\n{}", server.log());
    }
    fill_some(&mut client, 0, &mut taken);
    assert_eq!(consume(&mut client, "t", 0), taken);
    assert_eq!(future(&mut client), None);
    let mut server = server;
    server.dir = PathBuf::new();
    drop(server);
    // The new directory is what the metadata log says.
    assert!(Path::new(&to).join("t-0").is_dir());
    let server = Server::open(dir, port);
    let mut client = server.connect();
    eventually("it leads", || list_offset(&mut client, "t", 0, -1).0 == ErrorCode::NONE);
    assert_eq!(places(&mut client, "t")[&0], to);
    assert_eq!(consume(&mut client, "t", 0), taken);
}
