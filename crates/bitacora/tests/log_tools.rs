//! The tools around a topic's log, against the real process: kafka-delete-records and kafka-get-offsets by time,
//! `topics explain-retention`, `log verify`.

#![allow(clippy::disallowed_methods, reason = "tests wait for a process and its sockets")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::{Client, Server, bitacora};
use compression::KafkaCodecs;
use protocol::Records;
use protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::{CreateTopicsRequest, ProduceRequest};
use record::{BatchOptions, Compression, RecordBatchBuilder};

fn create(client: &mut Client, name: &str, configs: &[(&str, &str)]) {
    let configs = configs.iter().map(|(name, value)| CreatableTopicConfig {
        name: (*name).to_owned(),
        value: Some((*value).to_owned()),
    });
    let topic = CreatableTopic {
        name: name.to_owned(),
        num_partitions: 1,
        replication_factor: 1,
        configs: configs.collect(),
        ..CreatableTopic::default()
    };
    let request =
        CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..CreateTopicsRequest::default() };
    assert_eq!(client.call(&request, 7).topics[0].error_code, 0);
}

fn produce(client: &mut Client, topic: &str, compression: Compression, timestamps: &[i64], size: usize) {
    let mut builder = RecordBatchBuilder::new(BatchOptions { compression, ..BatchOptions::default() });
    for timestamp in timestamps {
        builder.append(*timestamp, None, Some(&vec![b'v'; size]), &[]).unwrap();
    }
    let records = Records::Bytes(builder.build(&KafkaCodecs).unwrap());
    let data = PartitionProduceData { index: 0, records: Some(records) };
    let topic = TopicProduceData {
        name: topic.to_owned(),
        partition_data: vec![data],
        ..TopicProduceData::default()
    };
    let request =
        ProduceRequest { acks: -1, timeout_ms: 10_000, topic_data: vec![topic], ..ProduceRequest::default() };
    let answer = client.call(&request, 12);
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn tool(server: &Server, args: &[&str]) -> Output {
    let address = format!("127.0.0.1:{}", server.port);
    bitacora(args).args(["--bootstrap-server", &address]).output().unwrap()
}

/// C05, read back with the tools.
#[test]
fn deleted_records_and_offsets_by_time_are_told_by_the_tools() {
    let server = Server::start("offsets-by-time", "");
    let mut client = server.connect();
    for (codec, compression) in [
        ("none", Compression::None),
        ("gzip", Compression::Gzip(-1)),
        ("snappy", Compression::Snappy),
        ("lz4", Compression::Lz4(9)),
        ("zstd", Compression::Zstd(3)),
    ] {
        create(&mut client, codec, &[("retention.ms", "-1")]);
        produce(&mut client, codec, compression, &[100, 200, 300], 10);
        produce(&mut client, codec, compression, &[250, 400], 10);
        let at = |time: i64| {
            let output = tool(&server, &["get-offsets", "--topic", codec, "--time", &time.to_string()]);
            assert!(output.status.success(), "{}", text(&output));
            String::from_utf8(output.stdout).unwrap()
        };
        for (time, offset) in [(0, "0"), (150, "1"), (250, "2"), (301, "4"), (-2, "0"), (-1, "5")] {
            assert_eq!(at(time), format!("{codec}:0:{offset}\n"), "{time}");
        }
        let file = server.dir.join("offsets.json");
        let wanted =
            format!(r#"{{"partitions":[{{"topic":"{codec}","partition":0,"offset":2}}],"version":1}}"#);
        fs::write(&file, wanted).unwrap();
        let output = tool(&server, &["delete-records", "--offset-json-file", file.to_str().unwrap()]);
        assert!(text(&output).contains("low_watermark: 2"), "{}", text(&output));
        for (time, offset) in [(0, "2"), (150, "2"), (250, "2"), (301, "4"), (-2, "2"), (-1, "5")] {
            assert_eq!(at(time), format!("{codec}:0:{offset}\n"), "{time}");
        }
    }
}

#[test]
fn explain_retention_says_why_records_stay_and_when_they_go() {
    let server = Server::start("explain", "log.retention.check.interval.ms=600000");
    let mut client = server.connect();
    let now = cli_now();
    let hour = 3_600_000;
    create(&mut client, "held", &[("retention.ms", "3600000")]);
    produce(&mut client, "held", Compression::None, &[now - 5 * hour], 10);
    produce(&mut client, "held", Compression::None, &[now], 10);
    create(&mut client, "rolled", &[("retention.ms", "18000000"), ("segment.ms", "3600000")]);
    produce(&mut client, "rolled", Compression::Gzip(-1), &[now - 4 * hour, now - 4 * hour + 5], 10);
    produce(&mut client, "rolled", Compression::None, &[now - hour], 10);
    create(&mut client, "due", &[("retention.ms", "3600000")]);
    produce(&mut client, "due", Compression::None, &[now - 2 * hour], 10);
    create(&mut client, "future", &[("retention.ms", "1000"), ("segment.ms", "1000")]);
    produce(&mut client, "future", Compression::None, &[now - hour, now + hour / 2], 10);
    create(&mut client, "compacted", &[("cleanup.policy", "compact")]);
    create(&mut client, "large", &[("segment.bytes", "1048576"), ("retention.bytes", "1048576")]);
    for _ in 0..15 {
        produce(&mut client, "large", Compression::None, &[now], 100_000);
    }
    let explain = |topic: &str| -> serde_json::Value {
        let output = tool(&server, &["topics", "explain-retention", topic, "-o", "json"]);
        assert!(output.status.success(), "{}", text(&output));
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        value["partitions"][0].clone()
    };
    for (topic, reasons, goes_at) in [
        ("held", serde_json::json!(["active-segment"]), Some(now + hour + 1)),
        ("rolled", serde_json::json!(["retention-ms-not-reached"]), Some(now + hour + 6)),
        ("future", serde_json::json!(["future-timestamp"]), Some(now + hour / 2 + 1001)),
        ("compacted", serde_json::json!(["empty"]), None),
        (
            "large",
            serde_json::json!(["retention-ms-not-reached", "below-retention-bytes"]),
            Some(now + 604_800_001),
        ),
    ] {
        let partition = explain(topic);
        assert_eq!(partition["reasons"], reasons, "{topic}: {partition}");
        assert_eq!(partition["goesAt"].as_i64(), goes_at, "{topic}: {partition}");
    }
    let due = explain("due");
    assert_eq!(due["reasons"], serde_json::json!(["due"]), "{due}");
    let rolled = explain("rolled");
    assert_eq!((&rolled["segment"]["active"], &rolled["segment"]["nextOffset"]), (&false.into(), &2.into()));
    let large = explain("large");
    assert_eq!(large["segment"]["nextOffset"], 10, "{large}");
    assert_eq!(large["frees"], large["segment"]["bytes"], "{large}");
    let table = text(&tool(&server, &["topics", "explain-retention", "held"]));
    for part in ["PARTITION", "older than retention.ms (1 h)", "segment.ms (7 d) outlives retention.ms (1 h)"]
    {
        assert!(table.contains(part), "{table}");
    }
    let missing = tool(&server, &["topics", "explain-retention", "no-such"]);
    assert_eq!(missing.status.code(), Some(1));
    let log = server.log();
    assert!(log.contains("Topic held: segment.ms=604800000 outlives retention.ms=3600000"), "{log}");
    assert!(!log.contains("Topic rolled: segment.ms"), "{log}");
}

fn cli_now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

fn verify(dir: &Path) -> (Option<i32>, serde_json::Value) {
    let output = bitacora(&["log", "verify"]).arg(dir).args(["-o", "json"]).output().unwrap();
    let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)));
    (output.status.code(), value)
}

fn log_of(data: &Path, topic: &str) -> PathBuf {
    data.join(format!("{topic}-0/00000000000000000000.log"))
}

#[test]
fn log_verify_finds_nothing_after_a_kill_and_names_each_damage() {
    let server = Server::start("verify", "");
    let mut client = server.connect();
    create(&mut client, "t", &[]);
    for n in 0..20 {
        produce(&mut client, "t", Compression::Gzip(-1), &[cli_now() + n; 5], 200);
    }
    let data = server.dir.join("data");
    let dir = server.kill();
    let (code, report) = verify(&data);
    assert_eq!((code, &report["good"]), (Some(0), &true.into()), "{report}");
    assert_eq!(report["cleanShutdown"], false);
    let partitions = report["partitions"].as_array().unwrap();
    let of_topic = partitions.iter().find(|partition| partition["partition"] == "t-0").unwrap();
    assert_eq!((&of_topic["records"], &of_topic["nextOffset"]), (&100.into(), &100.into()));

    let before: Vec<u8> = fs::read(log_of(&data, "t")).unwrap();
    let mut damaged = before.clone();
    let at = before.len() * 3 / 4;
    damaged[at] ^= 1;
    fs::write(log_of(&data, "t"), &damaged).unwrap();
    for path in [data.clone(), data.join("t-0")] {
        let (code, report) = verify(&path);
        assert_eq!(code, Some(1));
        let partitions = report["partitions"].as_array().unwrap();
        let cut = &partitions.iter().find(|partition| partition["partition"] == "t-0").unwrap()["cut"];
        assert_eq!((&cut["when"], &cut["offset"]), (&"next-start".into(), &75.into()), "{cut}");
        // The bad batch's own records cannot be read; the four batches behind it could.
        assert_eq!(cut["records"], 20, "{cut}");
    }
    assert_eq!(fs::read(log_of(&data, "t")).unwrap(), damaged, "nothing is changed");
    let table = bitacora(&["log", "verify"]).arg(&data).output().unwrap();
    assert!(text(&table).contains("will be cut"), "{}", text(&table));
    let server = Server::open(dir, server_port(&data));
    let offsets = tool(&server, &["get-offsets", "--topic", "t"]);
    assert_eq!(text(&offsets), "t:0:75\n", "recovery cuts where it was said");
    for wrong in [&["log"][..], &["log", "verify"], &["log", "verify", "/no/such/dir"]] {
        assert_eq!(bitacora(wrong).output().unwrap().status.code(), Some(1), "{wrong:?}");
    }
}

fn server_port(data: &Path) -> u16 {
    let text = fs::read_to_string(data.parent().unwrap().join("server.properties")).unwrap();
    let line = text.lines().find(|line| line.starts_with("listeners=")).unwrap();
    line.split(',').next().unwrap().rsplit(':').next().unwrap().parse().unwrap()
}
