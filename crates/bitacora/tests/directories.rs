//! Data directories that cannot be served, and those that a crash has left torn.
//!
//! A refusal is one line with cause and cure on stderr, exit code 1, and leaves the directory as it was. After a crash
//! only the torn end of the log may be missing.

#![allow(clippy::disallowed_methods, reason = "tests wait for a process and its sockets")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use common::{CLUSTER, Client, Server, folder, formatted, ports, refused};
use compression::KafkaCodecs;
use protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::{
    CreateTopicsRequest, FetchRequest, InitProducerIdRequest, ListOffsetsRequest, ProduceRequest,
};
use protocol::{ErrorCode, Records};
use record::{BatchOptions, RecordBatchBuilder};

/// Every file's content, by path.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files.insert(path.clone(), Vec::new());
                folders.push(path);
            } else {
                files.insert(path.clone(), fs::read(path).unwrap());
            }
        }
    }
    files
}

/// Starts on the directory; it must be refused with one line that has all the words, and nothing changed.
fn check_refused(properties: &Path, words: &[&str]) {
    let data = properties.parent().unwrap().join("data");
    let before = if data.is_dir() { tree(&data) } else { BTreeMap::new() };
    let output = refused(properties);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert_eq!(error.lines().count(), 1, "one line, not:\n{error}");
    for word in words {
        assert!(error.contains(word), "no {word:?} in: {error}");
    }
    let after = if data.is_dir() { tree(&data) } else { BTreeMap::new() };
    let names = |tree: &BTreeMap<PathBuf, Vec<u8>>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&before), names(&after), "files came or went: {error}");
    assert!(before == after, "a file's content changed: {error}");
}

/// A formatted folder.
fn prepared(name: &str) -> (PathBuf, PathBuf) {
    let dir = folder(name);
    let properties = formatted(&dir, ports(), "");
    (dir, properties)
}

fn replace(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(file, text.replace(from, to)).unwrap();
}

#[test]
fn an_unformatted_directory_is_refused() {
    let (dir, properties) = prepared("unformatted");
    fs::remove_dir_all(dir.join("data")).unwrap();
    check_refused(&properties, &["No `meta.properties` found in", "kafka-storage format"]);
    fs::create_dir(dir.join("data")).unwrap();
    check_refused(&properties, &["No `meta.properties` found in", "kafka-storage format"]);
}

#[test]
fn a_directory_of_another_node_or_cluster_is_refused() {
    let (dir, properties) = prepared("other-node");
    let meta = dir.join("data/meta.properties");
    replace(&meta, "node.id=1", "node.id=7");
    check_refused(&properties, &["Stored node id 7 doesn't match previous node id 1"]);
    replace(&meta, "node.id=7", "node.id=1");
    let second = dir.join("second");
    fs::create_dir(&second).unwrap();
    fs::copy(&meta, second.join("meta.properties")).unwrap();
    replace(&second.join("meta.properties"), CLUSTER, "AAAAAAAAAAAAAAAAAAAAAA");
    replace(&properties, "log.dirs=", &format!("log.dirs={},", second.display()));
    check_refused(&properties, &["Invalid cluster.id in", CLUSTER, "AAAAAAAAAAAAAAAAAAAAAA"]);
}

#[test]
fn a_garbled_meta_properties_is_refused() {
    let (dir, properties) = prepared("meta");
    let meta = dir.join("data/meta.properties");
    replace(&meta, "version=1", "version=9");
    check_refused(&properties, &["Encountered I/O error in metadata log directory", "version number 9"]);
    replace(&meta, "version=9", "version=1");
    replace(&meta, "node.id=1", "node.id=one");
    check_refused(
        &properties,
        &["Encountered I/O error in metadata log directory", "node.id as a base-10 number"],
    );
}

#[test]
fn a_directory_in_use_is_refused() {
    let server = Server::start("locked", "");
    let dir = folder("locked-second");
    let properties = formatted(&dir, ports(), "");
    replace(
        &properties,
        &dir.join("data").display().to_string(),
        &server.dir.join("data").display().to_string(),
    );
    let output = refused(&properties);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("Failed to acquire lock on file .lock in"), "{error}");
    assert!(error.contains("is using this directory"), "{error}");
}

#[test]
fn a_file_in_place_of_the_directory_is_refused() {
    let (dir, properties) = prepared("file");
    fs::remove_dir_all(dir.join("data")).unwrap();
    fs::write(dir.join("data"), "x").unwrap();
    check_refused(&properties, &[&dir.join("data").display().to_string()]);
    assert_eq!(fs::read(dir.join("data")).unwrap(), b"x");
}

#[test]
fn an_unreadable_directory_is_refused() {
    if is_root() {
        // Permissions do not bind root; the file in place of a directory above is the same path.
        eprintln!("skipped: root reads everything");
        return;
    }
    let (dir, properties) = prepared("unreadable");
    fs::set_permissions(dir.join("data"), fs::Permissions::from_mode(0o000)).unwrap();
    let output = refused(&properties);
    fs::set_permissions(dir.join("data"), fs::Permissions::from_mode(0o755)).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{error}");
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().unwrap();
    output.stdout == b"0\n"
}

#[test]
fn a_garbled_metadata_log_is_refused() {
    let mut server = Server::start("metadata", "");
    with_topic(&server, "t");
    let port = server.port;
    let dir = std::mem::take(&mut server.dir);
    drop(server);
    // Another start begins another epoch, before which everything was synced.
    let mut server = Server::open(dir, port);
    let dir = std::mem::take(&mut server.dir);
    drop(server);
    let properties = dir.join("server.properties");
    let log = dir.join("data/__cluster_metadata-0/00000000000000000000.log");
    let good = fs::read(&log).unwrap();
    // In the middle, where what follows was acknowledged: nothing may be cut off silently.
    let mut bad = good.clone();
    bad[good.len() / 3] ^= 0xff;
    fs::write(&log, &bad).unwrap();
    let output = refused(&properties);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("__cluster_metadata-0"), "{error}");
    assert_eq!(fs::read(&log).unwrap(), bad, "nothing on disk changed");
    fs::write(&log, &good).unwrap();
    let server = Server::open(dir, port);
    assert_eq!(end_offset(&mut server.connect(), "t"), 0);
}

fn with_topic(server: &Server, name: &str) -> Client {
    let mut client = server.connect();
    let configs = vec![CreatableTopicConfig { name: "segment.bytes".into(), value: Some("1048576".into()) }];
    let topic = CreatableTopic {
        name: name.into(),
        num_partitions: 1,
        replication_factor: 1,
        configs,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..Default::default() };
    assert_eq!(client.call(&request, 7).topics[0].error_code, 0);
    while end_offset(&mut client, name) < 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    client
}

fn end_offset(client: &mut Client, topic: &str) -> i64 {
    let partition = ListOffsetsPartition { timestamp: -1, ..Default::default() };
    let topic = ListOffsetsTopic { name: topic.into(), partitions: vec![partition] };
    let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
    client.call(&request, 7).topics[0].partitions[0].offset
}

fn offset_for_time(client: &mut Client, timestamp: i64) -> i64 {
    let partition = ListOffsetsPartition { timestamp, ..Default::default() };
    let topic = ListOffsetsTopic { name: "t".into(), partitions: vec![partition] };
    let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
    client.call(&request, 7).topics[0].partitions[0].offset
}

/// One record of ten with its sequence.
fn produce(client: &mut Client, producer_id: i64, sequence: i32, size: usize) -> (ErrorCode, i64) {
    let options =
        BatchOptions { producer_id, producer_epoch: 0, base_sequence: sequence, ..BatchOptions::default() };
    let mut builder = RecordBatchBuilder::new(options);
    for i in 0..10 {
        let timestamp = 1_700_000_000_000 + i64::from(sequence + i);
        builder.append(timestamp, None, Some(&vec![b'v'; size]), &[]).unwrap();
    }
    let records = builder.build(&KafkaCodecs).unwrap();
    let partition = PartitionProduceData { records: Some(Records::Bytes(records)), ..Default::default() };
    let topic = TopicProduceData { name: "t".into(), partition_data: vec![partition], ..Default::default() };
    let request =
        ProduceRequest { acks: -1, timeout_ms: 10_000, topic_data: vec![topic], ..Default::default() };
    let answer = client.call(&request, 9);
    let partition = &answer.responses[0].partition_responses[0];
    (ErrorCode::from_code(partition.error_code), partition.base_offset)
}

/// Bytes that a fetch from an offset gives.
fn fetch(client: &mut Client, offset: i64) -> (ErrorCode, Bytes) {
    let partition = FetchPartition {
        fetch_offset: offset,
        partition_max_bytes: 1 << 26,
        current_leader_epoch: -1,
        ..Default::default()
    };
    let topic = FetchTopic { topic: "t".into(), partitions: vec![partition], ..Default::default() };
    let request = FetchRequest {
        replica_id: -1,
        max_bytes: 1 << 26,
        session_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    };
    let answer = client.call(&request, 11);
    let partition = &answer.responses[0].partitions[0];
    let bytes = match &partition.records {
        Some(Records::Bytes(bytes)) => bytes.clone(),
        _ => Bytes::new(),
    };
    (ErrorCode::from_code(partition.error_code), bytes)
}

fn producer_id(client: &mut Client) -> i64 {
    let request = InitProducerIdRequest {
        transaction_timeout_ms: 60_000,
        producer_id: -1,
        producer_epoch: -1,
        ..Default::default()
    };
    client.call(&request, 4).producer_id
}

/// Records written before the kill.
const WRITTEN: i64 = 4_000;

fn crashed() -> (PathBuf, u16, i64) {
    let mut server = Server::start("torn", "");
    let mut client = with_topic(&server, "t");
    let id = producer_id(&mut client);
    for sequence in (0..4_000).step_by(10) {
        assert_eq!(produce(&mut client, id, sequence, 400).0, ErrorCode::NONE);
    }
    // Small files are written in the background, within seconds.
    let epochs = server.dir.join("data/t-0/leader-epoch-checkpoint");
    for _ in 0..6_000 {
        if epochs.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let port = server.port;
    let dir = std::mem::take(&mut server.dir);
    drop(server);
    (dir, port, id)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy(&path, &target) } else { fs::copy(&path, &target).map(drop).unwrap() }
    }
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no .{extension} in {}", dir.display());
    found
}

fn append(file: &Path, bytes: &[u8]) {
    let mut content = fs::read(file).unwrap();
    content.extend(bytes);
    fs::write(file, content).unwrap();
}

/// What is done to the partition's folder, and how many records may be missing.
type Damage = (&'static str, i64, fn(&Path));

const DAMAGES: &[Damage] = &[
    ("nothing", 0, |_| {}),
    ("4 KiB of zeros behind the end", 0, |t| append(files(t, "log").last().unwrap(), &[0; 4096])),
    ("half a batch behind the end", 0, |t| {
        let log = files(t, "log").pop().unwrap();
        let start = fs::read(&log).unwrap()[..100].to_vec();
        append(&log, &start);
    }),
    ("garbage behind the end", 0, |t| append(files(t, "log").last().unwrap(), &[0x5a; 333])),
    ("a flipped bit in the last batch", 10, |t| {
        let log = files(t, "log").pop().unwrap();
        let mut content = fs::read(&log).unwrap();
        let last = content.len() - 5;
        content[last] ^= 1;
        fs::write(log, content).unwrap();
    }),
    ("the last batch cut", 10, |t| {
        let log = files(t, "log").pop().unwrap();
        let content = fs::read(&log).unwrap();
        fs::write(log, &content[..content.len() - 7]).unwrap();
    }),
    ("no .index", 0, |t| files(t, "index").iter().for_each(|f| fs::remove_file(f).unwrap())),
    ("no .timeindex", 0, |t| files(t, "timeindex").iter().for_each(|f| fs::remove_file(f).unwrap())),
    ("empty .index", 0, |t| files(t, "index").iter().for_each(|f| fs::write(f, "").unwrap())),
    ("garbage in .index", 0, |t| files(t, "index").iter().for_each(|f| fs::write(f, [0xa5; 803]).unwrap())),
    ("garbage in .timeindex", 0, |t| {
        files(t, "timeindex").iter().for_each(|f| fs::write(f, [0xa5; 803]).unwrap())
    }),
    ("no .snapshot", 0, |t| files(t, "snapshot").iter().for_each(|f| fs::remove_file(f).unwrap())),
    ("garbage in .snapshot", 0, |t| {
        files(t, "snapshot").iter().for_each(|f| fs::write(f, [0x11; 77]).unwrap())
    }),
    ("no leader-epoch-checkpoint", 0, |t| fs::remove_file(t.join("leader-epoch-checkpoint")).unwrap()),
    ("no checkpoints of the directory", 0, |t| {
        for name in [
            "recovery-point-offset-checkpoint",
            "log-start-offset-checkpoint",
            "replication-offset-checkpoint",
        ] {
            let _ = fs::remove_file(t.parent().unwrap().join(name));
        }
    }),
    ("garbage in the recovery point", 0, |t| {
        fs::write(t.parent().unwrap().join("recovery-point-offset-checkpoint"), "0\nx\n\u{0}").unwrap();
    }),
];

#[test]
fn after_a_crash_only_the_torn_end_is_missing() {
    let (original, port, id) = crashed();
    let mut wrong = Vec::new();
    for (name, may_miss, damage) in DAMAGES {
        let dir = folder("torn-copy");
        copy(&original, &dir);
        replace(&dir.join("server.properties"), &original.display().to_string(), &dir.display().to_string());
        damage(&dir.join("data/t-0"));
        let server = Server::open(dir, port);
        let mut client = server.connect();
        while end_offset(&mut client, "t") < 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let end = end_offset(&mut client, "t");
        if end != WRITTEN - may_miss {
            wrong.push(format!("{name}: the log ends at {end}"));
        }
        let mut next = 0;
        while next < end {
            let (error, bytes) = fetch(&mut client, next);
            let before = next;
            for batch in record::Batches::new(&bytes).flatten() {
                next = batch.last_offset() + 1;
            }
            if error != ErrorCode::NONE || next == before {
                wrong.push(format!("{name}: offset {next} is not served: {}", error.name()));
                break;
            }
        }
        for record in [0, 1_234, 3_900] {
            let found = offset_for_time(&mut client, 1_700_000_000_000 + record);
            if found != record {
                wrong.push(format!("{name}: time of record {record} is at {found}"));
            }
        }
        let sequence = i32::try_from(end).unwrap();
        let answer = produce(&mut client, id, sequence, 10);
        if answer != (ErrorCode::NONE, end) {
            wrong.push(format!("{name}: the producer gets {} at {}", answer.0.name(), answer.1));
        }
        if server.log().contains("panicked") {
            wrong.push(format!("{name}: a panic"));
        }
    }
    let _ = fs::remove_dir_all(original);
    assert!(wrong.is_empty(), "{wrong:#?}");
}
