//! Every setting that touches the log, set in each way there is, and what the log does then.
//!
//! A row of [`SETTINGS`] says how a topic behaves with the broker's default and with the value; each layer (the file, the
//! cluster's dynamic default, the broker's dynamic config, the topic's at creation and while it has data) must show
//! the second. Compaction and flushing have tests of their own.

mod virtual_node;

use std::time::Duration;

use protocol::Records;
use record::{Batches, CompressionType};
use virtual_node::{BROKER, TOPIC, VirtualNode, batch};

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

struct Setting {
    topic: &'static str,
    /// The broker's name for it, where there is one.
    broker: Option<&'static str>,
    value: &'static str,
    /// What else the topic has, so that the effect shows.
    with: &'static [(&'static str, &'static str)],
    effect: fn(&mut VirtualNode, &str) -> String,
    by_default: &'static str,
    expected: &'static str,
}

const SETTINGS: &[Setting] = &[
    Setting {
        topic: "segment.bytes",
        broker: Some("log.segment.bytes"),
        value: "1048576",
        with: &[],
        effect: segments_of_two_large_batches,
        by_default: "[0]",
        expected: "[0, 1]",
    },
    Setting {
        topic: "segment.ms",
        broker: Some("log.roll.ms"),
        value: "3600000",
        with: &[],
        effect: segments_of_two_batches_two_hours_apart,
        by_default: "[0]",
        expected: "[0, 1]",
    },
    Setting {
        topic: "segment.index.bytes",
        broker: Some("log.index.size.max.bytes"),
        value: "36",
        with: &[("index.interval.bytes", "0")],
        effect: segments_of_six_batches,
        by_default: "[0]",
        expected: "[0, 3]",
    },
    Setting {
        topic: "index.interval.bytes",
        broker: Some("log.index.interval.bytes"),
        value: "250000",
        with: &[("segment.bytes", "1048576")],
        effect: index_entries_of_a_full_segment,
        by_default: "9 entries",
        expected: "3 entries",
    },
    Setting {
        topic: "retention.ms",
        broker: Some("log.retention.ms"),
        value: "3600000",
        with: &[],
        effect: earliest_after_two_hours,
        by_default: "0",
        expected: "2",
    },
    Setting {
        topic: "retention.bytes",
        broker: Some("log.retention.bytes"),
        value: "800000",
        with: &[("segment.bytes", "1048576")],
        effect: earliest_of_three_large_batches,
        by_default: "0",
        expected: "1",
    },
    Setting {
        topic: "cleanup.policy",
        broker: Some("log.cleanup.policy"),
        value: "compact",
        with: &[],
        effect: error_of_a_record_without_key,
        by_default: "0",
        expected: "87",
    },
    Setting {
        topic: "file.delete.delay.ms",
        broker: Some("log.segment.delete.delay.ms"),
        value: "7200000",
        with: &[("retention.ms", "1000")],
        effect: deleted_files_after_an_hour,
        by_default: "none",
        expected: "kept",
    },
    Setting {
        topic: "message.timestamp.type",
        broker: Some("log.message.timestamp.type"),
        value: "LogAppendTime",
        with: &[],
        effect: whose_timestamp,
        by_default: "the client's",
        expected: "the broker's",
    },
    Setting {
        topic: "message.timestamp.before.max.ms",
        broker: Some("log.message.timestamp.before.max.ms"),
        value: "1000",
        with: &[],
        effect: error_of_a_record_of_yesterday,
        by_default: "0",
        expected: "32",
    },
    Setting {
        topic: "message.timestamp.after.max.ms",
        broker: Some("log.message.timestamp.after.max.ms"),
        value: "172800000",
        with: &[],
        effect: error_of_a_record_of_tomorrow,
        by_default: "32",
        expected: "0",
    },
    Setting {
        topic: "max.message.bytes",
        broker: Some("message.max.bytes"),
        value: "1000",
        with: &[],
        effect: error_of_two_thousand_bytes,
        by_default: "0",
        expected: "10",
    },
    Setting {
        topic: "max.decompressed.message.bytes",
        broker: Some("max.decompressed.message.bytes"),
        value: "1000",
        with: &[],
        effect: error_of_a_large_record_compressed,
        by_default: "0",
        expected: "refused",
    },
    Setting {
        topic: "compression.type",
        broker: Some("compression.type"),
        value: "zstd",
        with: &[],
        effect: codec_in_the_log,
        by_default: "gzip",
        expected: "zstd",
    },
    Setting {
        topic: "compression.gzip.level",
        broker: Some("compression.gzip.level"),
        value: "1",
        with: &[("compression.type", "gzip")],
        effect: |node, topic| effort(node, topic, 25_000),
        by_default: "more",
        expected: "less",
    },
    Setting {
        topic: "compression.lz4.level",
        broker: Some("compression.lz4.level"),
        value: "12",
        with: &[("compression.type", "lz4")],
        effect: |node, topic| effort(node, topic, 28_000),
        by_default: "less",
        expected: "more",
    },
    Setting {
        topic: "compression.zstd.level",
        broker: Some("compression.zstd.level"),
        value: "19",
        with: &[("compression.type", "zstd")],
        effect: |node, topic| effort(node, topic, 16_000),
        by_default: "less",
        expected: "more",
    },
    Setting {
        topic: "internal.segment.bytes",
        broker: None,
        value: "1000000",
        with: &[],
        effect: segments_of_two_large_batches,
        by_default: "[0]",
        expected: "[0, 1]",
    },
];

fn segments_of_two_large_batches(node: &mut VirtualNode, topic: &str) -> String {
    let now = node.now_ms();
    node.put(topic, &[now], 700_000);
    node.put(topic, &[now], 700_000);
    format!("{:?}", node.segments(topic))
}

fn segments_of_two_batches_two_hours_apart(node: &mut VirtualNode, topic: &str) -> String {
    let now = node.now_ms();
    node.put(topic, &[now], 10);
    node.put(topic, &[now + 7_200_000 - 3_600_000], 10);
    node.advance(2 * HOUR);
    let now = node.now_ms();
    node.put(topic, &[now], 10);
    let segments = node.segments(topic);
    format!("{:?}", segments.iter().map(|base| base / 2).collect::<Vec<_>>())
}

fn segments_of_six_batches(node: &mut VirtualNode, topic: &str) -> String {
    for _ in 0..6 {
        let now = node.now_ms();
        node.put(topic, &[now], 10);
        node.advance(SECOND);
    }
    format!("{:?}", node.segments(topic).into_iter().take(2).collect::<Vec<_>>())
}

fn index_entries_of_a_full_segment(node: &mut VirtualNode, topic: &str) -> String {
    for _ in 0..11 {
        let now = node.now_ms();
        node.put(topic, &[now], 100_000);
    }
    node.advance(61 * SECOND);
    format!("{} entries", node.files(topic)["00000000000000000000.index"] / 8)
}

fn earliest_after_two_hours(node: &mut VirtualNode, topic: &str) -> String {
    let now = node.now_ms();
    node.put(topic, &[now, now], 10);
    node.advance(2 * HOUR);
    node.earliest(topic).to_string()
}

fn earliest_of_three_large_batches(node: &mut VirtualNode, topic: &str) -> String {
    for _ in 0..3 {
        let now = node.now_ms();
        node.put(topic, &[now], 700_000);
    }
    node.advance(2 * SECOND);
    node.earliest(topic).to_string()
}

fn without_key(timestamp: i64, value: &[u8], compression: record::Compression) -> bytes::Bytes {
    let options = record::BatchOptions { compression, ..record::BatchOptions::default() };
    let mut builder = record::RecordBatchBuilder::new(options);
    builder.append(timestamp, None, Some(value), &[]).unwrap();
    builder.build(&compression::KafkaCodecs).unwrap()
}

fn error_of_a_record_without_key(node: &mut VirtualNode, topic: &str) -> String {
    let records = without_key(node.now_ms(), b"v", record::Compression::None);
    node.produce(topic, records).error_code.to_string()
}

fn deleted_files_after_an_hour(node: &mut VirtualNode, topic: &str) -> String {
    let now = node.now_ms();
    node.put(topic, &[now], 10);
    node.advance(5 * SECOND);
    assert!(node.files(topic).keys().any(|name| name.ends_with(".log.deleted")));
    node.advance(HOUR);
    let kept = node.files(topic).keys().any(|name| name.ends_with(".deleted"));
    if kept { "kept" } else { "none" }.to_owned()
}

fn whose_timestamp(node: &mut VirtualNode, topic: &str) -> String {
    let client = node.now_ms() - 5000;
    node.put(topic, &[client], 10);
    let stored = headers(node, topic)[0].max_timestamp;
    if stored == client { "the client's" } else { "the broker's" }.to_owned()
}

fn error_at(node: &mut VirtualNode, topic: &str, from_now_ms: i64) -> String {
    let records = batch(&[node.now_ms() + from_now_ms], 10, record::Compression::None);
    node.produce(topic, records).error_code.to_string()
}

fn error_of_a_record_of_yesterday(node: &mut VirtualNode, topic: &str) -> String {
    error_at(node, topic, -86_400_000)
}

fn error_of_a_record_of_tomorrow(node: &mut VirtualNode, topic: &str) -> String {
    error_at(node, topic, 86_400_000)
}

fn error_of_two_thousand_bytes(node: &mut VirtualNode, topic: &str) -> String {
    let records = batch(&[node.now_ms()], 2000, record::Compression::None);
    node.produce(topic, records).error_code.to_string()
}

fn error_of_a_large_record_compressed(node: &mut VirtualNode, topic: &str) -> String {
    let records = without_key(node.now_ms(), &[b'a'; 5000], record::Compression::Gzip(-1));
    match node.produce(topic, records).error_code {
        0 => "0".to_owned(),
        _ => "refused".to_owned(),
    }
}

fn headers(node: &mut VirtualNode, topic: &str) -> Vec<record::BatchHeader> {
    let records = match node.fetch(topic, 0).records {
        Some(Records::Bytes(bytes)) => bytes,
        _ => panic!("no records"),
    };
    Batches::new(&records).map(|batch| *batch.unwrap().header()).collect()
}

fn codec_in_the_log(node: &mut VirtualNode, topic: &str) -> String {
    let records = batch(&[node.now_ms()], 100, record::Compression::Gzip(-1));
    assert_eq!(node.produce(topic, records).error_code, 0);
    match headers(node, topic)[0].compression_type().unwrap() {
        CompressionType::Gzip => "gzip".to_owned(),
        CompressionType::Zstd => "zstd".to_owned(),
        other => format!("{other:?}"),
    }
}

/// More effort makes the same records smaller than `limit`.
fn effort(node: &mut VirtualNode, topic: &str, limit: usize) -> String {
    // Compresses, and better with more effort.
    let text: Vec<u8> =
        (0..6000_u32).flat_map(|n| format!("{} of {} ", n * n % 977, n % 131).into_bytes()).collect();
    let records = without_key(node.now_ms(), &text, record::Compression::None);
    assert_eq!(node.produce(topic, records).error_code, 0);
    let size = headers(node, topic)[0].size_in_bytes();
    if size < limit { "more" } else { "less" }.to_owned()
}

/// Topics are numbered so that each row and layer has its own.
fn behaviour(
    node: &mut VirtualNode,
    setting: &Setting,
    configs: &[(&str, &str)],
    layer: &str,
    before: impl FnOnce(&mut VirtualNode, &str),
) -> String {
    let topic = format!("{}-{layer}", setting.topic);
    let configs: Vec<(&str, &str)> = setting.with.iter().chain(configs).copied().collect();
    node.create(&topic, &configs);
    before(node, &topic);
    (setting.effect)(node, &topic)
}

#[test]
fn every_log_setting_takes_effect_in_every_layer() {
    let mut node = VirtualNode::start("");
    let mut wrong = Vec::new();
    let mut check = |setting: &Setting, layer: &str, actual: String, expected: &str| {
        if actual != expected {
            wrong.push(format!("{} by {layer}: {actual}, not {expected}", setting.topic));
        }
    };
    for setting in SETTINGS {
        let own = [(setting.topic, setting.value)];
        check(
            setting,
            "default",
            behaviour(&mut node, setting, &[], "default", |_, _| {}),
            setting.by_default,
        );
        let created = behaviour(&mut node, setting, &own, "created", |_, _| {});
        check(setting, "the topic's creation", created, setting.expected);
        let altered = behaviour(&mut node, setting, &[], "altered", |node, topic| {
            node.set(TOPIC, topic, setting.topic, setting.value);
        });
        check(setting, "the topic's change", altered, setting.expected);
        let reverted = behaviour(&mut node, setting, &own, "reverted", |node, topic| {
            node.alter(TOPIC, topic, &[(setting.topic, None)]);
        });
        check(setting, "the change's end", reverted, setting.by_default);
        let Some(key) = setting.broker else { continue };
        for (layer, name) in [("cluster", ""), ("broker", "1")] {
            // One topic is there before the change, one comes after it.
            let changed = behaviour(&mut node, setting, &[], &format!("{layer}-before"), |node, _| {
                node.set(BROKER, name, key, setting.value);
            });
            check(setting, layer, changed, setting.expected);
            let later = behaviour(&mut node, setting, &[], &format!("{layer}-after"), |_, _| {});
            check(setting, layer, later, setting.expected);
            node.alter(BROKER, name, &[(key, None)]);
            let ended = behaviour(&mut node, setting, &[], &format!("{layer}-ended"), |_, _| {});
            check(setting, "its end", ended, setting.by_default);
        }
        let mut static_node = VirtualNode::start(&format!("{key}={}", setting.value));
        let by_file = behaviour(&mut static_node, setting, &[], "file", |_, _| {});
        check(setting, "the file", by_file, setting.expected);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_nearest_layer_wins() {
    let mut node = VirtualNode::start("message.max.bytes=5000");
    let limit = |node: &mut VirtualNode, topic: &str| {
        let sizes = [500, 1500, 2500, 3500, 4500, 5500];
        let accepted = sizes.into_iter().filter(|size| {
            let records = batch(&[node.now_ms()], *size, record::Compression::None);
            node.produce(topic, records).error_code == 0
        });
        accepted.max().unwrap_or(0)
    };
    node.create("t", &[]);
    assert_eq!(limit(&mut node, "t"), 4500, "the file");
    node.set(BROKER, "", "message.max.bytes", "4000");
    assert_eq!(limit(&mut node, "t"), 3500, "the cluster's default");
    node.set(BROKER, "1", "message.max.bytes", "3000");
    assert_eq!(limit(&mut node, "t"), 2500, "the broker");
    node.set(TOPIC, "t", "max.message.bytes", "2000");
    assert_eq!(limit(&mut node, "t"), 1500, "the topic");
    let mut node = node.restart("message.max.bytes=5000");
    assert_eq!(limit(&mut node, "t"), 1500, "the topic, after a restart");
    node.alter(TOPIC, "t", &[("max.message.bytes", None)]);
    assert_eq!(limit(&mut node, "t"), 2500);
    node.alter(BROKER, "1", &[("message.max.bytes", None)]);
    assert_eq!(limit(&mut node, "t"), 3500);
    node.alter(BROKER, "", &[("message.max.bytes", None)]);
    assert_eq!(limit(&mut node, "t"), 4500);
}

#[test]
fn of_hours_minutes_and_milliseconds_the_finest_wins() {
    let hours = |n: u32| n * HOUR;
    for (file, kept_for) in [
        ("log.retention.hours=2", hours(2)),
        ("log.retention.hours=9\nlog.retention.minutes=120", hours(2)),
        ("log.retention.hours=9\nlog.retention.minutes=600\nlog.retention.ms=7200000", hours(2)),
        ("log.retention.minutes=120\nlog.retention.ms=18000000", hours(5)),
        ("log.retention.minutes=-1", hours(1_000_000)),
        ("log.retention.ms=-1", hours(1_000_000)),
        ("log.retention.hours=-1", hours(1_000_000)),
        ("", hours(168)),
    ] {
        let mut node = VirtualNode::start(file);
        node.create("t", &[]);
        let now = node.now_ms();
        node.put("t", &[now], 10);
        node.advance(kept_for.saturating_sub(SECOND).min(hours(20_000)));
        assert_eq!(node.earliest("t"), 0, "{file:?}");
        if kept_for < hours(20_000) {
            node.advance(3 * SECOND);
            assert_eq!(node.earliest("t"), 1, "{file:?}");
        }
    }
    for (file, rolls_after_ms) in [
        ("log.roll.hours=2", 7_200_000),
        ("log.roll.hours=9\nlog.roll.ms=7200000", 7_200_000),
        ("", 604_800_000),
    ] {
        let mut node =
            VirtualNode::start(&format!("log.message.timestamp.after.max.ms=999999999999\n{file}"));
        node.create("t", &[]);
        let now = node.now_ms();
        node.put("t", &[now], 10);
        node.put("t", &[now + rolls_after_ms], 10);
        assert_eq!(node.segments("t"), [0], "{file:?}");
        node.put("t", &[now + rolls_after_ms + 1], 10);
        assert_eq!(node.segments("t"), [0, 2], "{file:?}");
    }
}

#[test]
fn a_dynamic_value_displaces_the_coarser_names_of_the_file() {
    let mut node = VirtualNode::start("log.retention.hours=1");
    node.create("t", &[]);
    node.set(BROKER, "", "log.retention.ms", "18000000");
    let now = node.now_ms();
    node.put("t", &[now], 10);
    node.advance(2 * HOUR);
    assert_eq!(node.earliest("t"), 0);
    node.alter(BROKER, "", &[("log.retention.ms", None)]);
    node.advance(2 * SECOND);
    assert_eq!(node.earliest("t"), 1);
}

#[test]
fn the_nodes_own_intervals_are_kept() {
    let mut node = VirtualNode::start(
        "log.retention.check.interval.ms=600000\nlog.flush.start.offset.checkpoint.interval.ms=5000",
    );
    node.create("t", &[("retention.ms", "1000")]);
    let now = node.now_ms();
    node.put("t", &[now], 10);
    node.advance(300 * SECOND);
    assert_eq!(node.earliest("t"), 0, "the next search is not due");
    node.advance(310 * SECOND);
    assert_eq!(node.earliest("t"), 1);

    let mut node = VirtualNode::start("log.initial.task.delay.ms=60000");
    node.create("t", &[("retention.ms", "1000")]);
    let now = node.now_ms();
    node.put("t", &[now], 10);
    node.advance(20 * SECOND);
    assert_eq!(node.earliest("t"), 0, "the first search is not due");
    node.advance(60 * SECOND);
    assert_eq!(node.earliest("t"), 1);
}

/// A segment keeps the jitter it was made with, as in the reference: a change shows in those made later.
#[test]
fn jitter_rolls_segments_before_their_time() {
    let week = 604_800_000;
    // With the largest jitter most segments roll before six days of seven are over.
    let rolled = |node: &mut VirtualNode, topics: &[String]| {
        let now = node.now_ms();
        for topic in topics {
            node.put(topic, &[now - 6 * week / 7], 10);
            node.put(topic, &[now], 10);
        }
        topics.iter().filter(|topic| node.segments(topic).len() == 2).count()
    };
    let topics = |name: &str| (0..20).map(|n| format!("{name}-{n}")).collect::<Vec<_>>();
    let mut node = VirtualNode::start("");
    topics("none").iter().for_each(|topic| node.create(topic, &[]));
    assert_eq!(rolled(&mut node, &topics("none")), 0);
    topics("own").iter().for_each(|topic| node.create(topic, &[("segment.jitter.ms", "604800000")]));
    assert!(rolled(&mut node, &topics("own")) > 10);
    node.set(BROKER, "", "log.roll.jitter.ms", "604800000");
    topics("dynamic").iter().for_each(|topic| node.create(topic, &[]));
    assert!(rolled(&mut node, &topics("dynamic")) > 10);
    let mut node = VirtualNode::start("log.roll.jitter.hours=168");
    topics("file").iter().for_each(|topic| node.create(topic, &[]));
    assert!(rolled(&mut node, &topics("file")) > 10);
}

#[test]
fn producers_are_forgotten_after_the_dynamic_time() {
    let mut node = VirtualNode::start("producer.id.expiration.check.interval.ms=1000");
    node.create("t", &[]);
    let options = record::BatchOptions {
        producer_id: 5,
        producer_epoch: 0,
        base_sequence: 0,
        ..record::BatchOptions::default()
    };
    let mut builder = record::RecordBatchBuilder::new(options);
    builder.append(node.now_ms(), None, Some(b"v"), &[]).unwrap();
    let records = builder.build(&compression::KafkaCodecs).unwrap();
    assert_eq!(node.produce("t", records).error_code, 0);
    let known = |node: &mut VirtualNode| node.producers("t");
    node.advance(HOUR);
    assert_eq!(known(&mut node), [5], "a day is not over");
    node.set(BROKER, "", "producer.id.expiration.ms", "1800000");
    node.advance(2 * SECOND);
    assert_eq!(known(&mut node), [0_i64; 0]);
}

/// `golden/log_config_errors.tsv` is what Apache Kafka 4.4.0 answered.
#[test]
fn what_is_impossible_is_refused_in_the_references_words() {
    let mut node = VirtualNode::start("");
    node.create("base", &[]);
    let mut wrong = Vec::new();
    let golden = include_str!("golden/log_config_errors.tsv");
    for line in golden.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [kind, configs, code, message] = columns[..] else { panic!("{line}") };
        let configs: Vec<(&str, &str)> =
            configs.split(";;").map(|config| config.split_once('=').unwrap()).collect();
        let changes: Vec<(&str, Option<&str>)> =
            configs.iter().map(|(name, value)| (*name, Some(*value))).collect();
        let (actual, said) = match kind {
            "create" => node.validate_create("new", &configs),
            "topic" => node.alter_or_validate(TOPIC, "base", &changes, true),
            "default" => node.alter_or_validate(BROKER, "", &changes, true),
            _ => node.alter_or_validate(BROKER, "1", &changes, true),
        };
        let said = said.map_or("-".to_owned(), |said| said.replace('\n', "\\n"));
        if actual.to_string() != code || said != message {
            wrong.push(format!("{line}\n  ours: {actual} {said}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
