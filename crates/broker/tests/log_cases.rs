//! Situations that other brokers got wrong, and what is right: limits of a fetch (KIP-74), offsets by time inside
//! compressed batches and behind a trimmed start, retention with clocks that lie.

mod virtual_node;

use std::time::Duration;

use protocol::Records;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use protocol::messages::{FetchRequest, OffsetForLeaderEpochRequest};
use record::{Batches, Compression};
use virtual_node::{VirtualNode, batch};

const SECOND: Duration = Duration::from_secs(1);
const CODECS: [(&str, Compression); 5] = [
    ("none", Compression::None),
    ("gzip", Compression::Gzip(-1)),
    ("snappy", Compression::Snappy),
    ("lz4", Compression::Lz4(9)),
    ("zstd", Compression::Zstd(3)),
];

/// How many batches each of the partitions got, in the order asked.
fn fetch_in_order(
    node: &mut VirtualNode,
    topic: &str,
    order: &[i32],
    max_bytes: i32,
    partition_max_bytes: i32,
) -> Vec<usize> {
    let topic_id = node.topic_id(topic);
    let partition = |index: &i32| FetchPartition {
        partition: *index,
        fetch_offset: 0,
        partition_max_bytes,
        ..FetchPartition::default()
    };
    let topic =
        FetchTopic { topic_id, partitions: order.iter().map(partition).collect(), ..FetchTopic::default() };
    let request = FetchRequest {
        max_wait_ms: 5000,
        min_bytes: 1,
        max_bytes,
        session_epoch: -1,
        topics: vec![topic],
        ..FetchRequest::default()
    };
    let before = node.now_ms();
    let response = node.call(&request, 13);
    assert_eq!(node.now_ms(), before, "the answer is there at once");
    let partitions = response.responses.into_iter().flat_map(|topic| topic.partitions);
    let count = |records: Option<Records>| match records {
        Some(Records::Bytes(bytes)) => {
            // The last one may be cut off, the first may not.
            let whole = Batches::new(&bytes).filter_map(Result::ok).count();
            assert!(whole > 0 || bytes.is_empty(), "what cannot be used is not sent");
            whole
        }
        _ => 0,
    };
    let counts: Vec<(i32, usize)> = partitions
        .map(|partition| {
            assert_eq!(partition.error_code, 0);
            (partition.partition_index, count(partition.records))
        })
        .collect();
    order.iter().map(|index| counts.iter().find(|(at, _)| at == index).map_or(0, |(_, n)| *n)).collect()
}

/// C02: franz-go#809, kafka-python#377, cp-docker-images#882.
#[test]
fn a_limit_smaller_than_the_first_batch_lets_that_batch_through_alone() {
    const MIB: usize = 1 << 20;
    let mut node = VirtualNode::start("");
    assert_eq!(node.try_create_with("t", 3, &[("max.message.bytes", "2097152")]), (0, None));
    let now = node.now_ms();
    for index in 0..3 {
        for _ in 0..2 {
            let answer = node.produce_to("t", index, batch(&[now], MIB, Compression::None));
            assert_eq!(answer.error_code, 0);
        }
    }
    // Each partition that stands first gets its turn, and the others wait.
    for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        assert_eq!(fetch_in_order(&mut node, "t", &order, 1024, 512), [1, 0, 0], "{order:?}");
        assert_eq!(fetch_in_order(&mut node, "t", &order, 1, 1), [1, 0, 0], "{order:?}");
        assert_eq!(fetch_in_order(&mut node, "t", &order, 0, 0), [1, 0, 0], "{order:?}");
    }
    let batch_size = i32::try_from(MIB + 200).unwrap();
    for (what, max_bytes, partition_max_bytes, expected) in [
        ("a partition's limit below its first batch", 1 << 30, 512, [1, 0, 0]),
        ("room for one more, not for a third", 2 * batch_size + 10, batch_size, [1, 1, 0]),
        ("room that is too small for a second whole one", batch_size + 1000, batch_size, [1, 0, 0]),
        ("a partition's limit for two", 1 << 30, 2 * batch_size, [2, 2, 2]),
        ("the whole limit within the first partition", 3 * batch_size, 3 * batch_size, [2, 1, 0]),
    ] {
        let got = fetch_in_order(&mut node, "t", &[0, 1, 2], max_bytes, partition_max_bytes);
        assert_eq!(got, expected, "{what}");
    }
}

#[test]
fn an_empty_partition_in_front_does_not_use_up_the_one_batch() {
    let mut node = VirtualNode::start("");
    assert_eq!(node.try_create_with("t", 3, &[]), (0, None));
    let now = node.now_ms();
    for index in [1, 2] {
        node.produce_to("t", index, batch(&[now], 5000, Compression::None));
    }
    assert_eq!(fetch_in_order(&mut node, "t", &[0, 1, 2], 100, 100), [0, 1, 0]);
    assert_eq!(fetch_in_order(&mut node, "t", &[0, 2, 1], 100, 100), [0, 1, 0]);
}

#[test]
fn a_batch_above_the_topics_limit_is_refused_and_leaves_nothing() {
    let mut node = VirtualNode::start("");
    node.create("t", &[("max.message.bytes", "1000")]);
    let now = node.now_ms();
    for codec in [Compression::None, Compression::Gzip(-1)] {
        let answer = node.produce("t", batch(&[now], 2000, codec));
        assert_eq!((answer.error_code, answer.base_offset), (10, -1));
    }
    assert_eq!((node.earliest("t"), node.latest("t")), (0, 0));
    assert_eq!(node.files("t")["00000000000000000000.log"], 0);
    assert_eq!(node.put("t", &[now], 500), 0);
}

/// C05: redpanda#25769, kop#334, redpanda#18599.
#[test]
fn offsets_by_time_look_inside_batches_and_never_below_the_start() {
    for (name, codec) in CODECS {
        let mut node = VirtualNode::start("");
        node.create("t", &[("retention.ms", "-1")]);
        node.produce("t", batch(&[100, 200, 300], 50, codec));
        node.produce("t", batch(&[250, 400], 50, codec));
        let find = |node: &mut VirtualNode, expected: [(i64, i64, i64); 7]| {
            for (timestamp, offset, found) in expected {
                let answer = node.list("t", timestamp);
                assert_eq!(
                    (answer.error_code, answer.offset, answer.timestamp),
                    (0, offset, found),
                    "{name}: {timestamp}"
                );
            }
        };
        find(
            &mut node,
            [
                (0, 0, 100),
                (100, 0, 100),
                (150, 1, 200),
                (200, 1, 200),
                (250, 2, 300),
                (301, 4, 400),
                (401, -1, -1),
            ],
        );
        assert_eq!(node.delete_records("t", 6), Err(1), "{name}: above the high watermark");
        assert_eq!(node.delete_records("t", -2), Err(1), "{name}");
        assert_eq!(node.delete_records("t", 2), Ok(2), "{name}");
        assert_eq!(node.delete_records("t", 1), Ok(2), "{name}: it does not go back");
        let trimmed = [
            (0, 2, 300),
            (100, 2, 300),
            (150, 2, 300),
            (200, 2, 300),
            (250, 2, 300),
            (301, 4, 400),
            (401, -1, -1),
        ];
        find(&mut node, trimmed);
        assert_eq!((node.earliest("t"), node.latest("t")), (2, 5), "{name}");
        assert_eq!(node.fetch("t", 1).error_code, 1, "{name}: below the start");
        let mut node = node.restart("");
        find(&mut node, trimmed);
        assert_eq!(node.earliest("t"), 2, "{name}: the checkpoint");
        assert_eq!(node.delete_records("t", -1), Ok(5), "{name}: up to the high watermark");
        assert_eq!(node.earliest("t"), 5, "{name}");
        let mut nothing = trimmed;
        nothing.iter_mut().for_each(|(_, offset, found)| (*offset, *found) = (-1, -1));
        find(&mut node, nothing);
    }
}

#[test]
fn the_start_survives_a_power_cut_once_it_was_checkpointed() {
    let mut node = VirtualNode::start("log.flush.start.offset.checkpoint.interval.ms=1000");
    node.create("t", &[("flush.messages", "1")]);
    let now = node.now_ms();
    for _ in 0..10 {
        node.put("t", &[now], 10);
    }
    assert_eq!(node.delete_records("t", 7), Ok(7));
    node.advance(2 * SECOND);
    let mut node = node.crash("");
    assert_eq!((node.earliest("t"), node.latest("t")), (7, 10));
}

#[test]
fn records_are_deleted_on_request_only_where_the_policy_deletes() {
    let mut node = VirtualNode::start("");
    for (policy, expected) in
        [("delete", Ok(1)), ("compact", Err(44)), ("compact,delete", Ok(1)), ("", Err(44))]
    {
        let topic = format!("t-{}", policy.replace(',', "-"));
        node.create(&topic, &[("cleanup.policy", policy)]);
        let now = node.now_ms();
        node.put(&topic, &[now], 10);
        assert_eq!(node.delete_records(&topic, -1), expected, "{policy:?}");
    }
}

/// C06, the part of one node: redpanda#12086, librdkafka#4425.
#[test]
fn the_end_of_each_leader_epoch_is_told() {
    let mut node = VirtualNode::start("");
    node.create("t", &[("retention.ms", "-1")]);
    let mut starts: Vec<(i32, i64)> = Vec::new();
    for _ in 0..4 {
        let epoch = node.leader_epoch("t");
        let from = node.latest("t");
        starts.push((epoch, from));
        let now = node.now_ms();
        for _ in 0..10 {
            node.put("t", &[now], 10);
        }
        node = node.restart("");
    }
    // Leads, and has written nothing yet.
    let current = node.leader_epoch("t");
    starts.push((current, 40));
    assert!(starts.windows(2).all(|pair| pair[0].0 < pair[1].0), "{starts:?}");
    let expected = |starts: &[(i32, i64)], asked: i32| {
        if asked > current {
            return (-1, -1);
        }
        let after = starts.iter().position(|(epoch, _)| *epoch > asked);
        match after {
            // Before all that is known.
            Some(0) => (asked, starts[0].1),
            Some(after) => (starts[after - 1].0, starts[after].1),
            None => (current, 40),
        }
    };
    for asked in 0..current + 4 {
        for known in [-1, current] {
            assert_eq!(
                ask_epoch(&mut node, known, asked),
                Ok(expected(&starts, asked)),
                "{asked} {starts:?}"
            );
        }
        assert_eq!(ask_epoch(&mut node, current - 1, asked), Err(74));
        assert_eq!(ask_epoch(&mut node, current + 1, asked), Err(75));
    }
    assert_eq!(ask_epoch(&mut node, -1, -1), Ok((-1, -1)));
    // Trimmed: the epochs before the start are forgotten.
    assert_eq!(node.delete_records("t", 25), Ok(25));
    let trimmed = [(starts[2].0, 25), starts[3], starts[4]];
    for asked in 0..current + 2 {
        assert_eq!(
            ask_epoch(&mut node, current, asked),
            Ok(expected(&trimmed, asked)),
            "{asked} {trimmed:?}"
        );
    }
    // The same two errors where offsets are listed and records fetched.
    for (epoch, error) in [(current - 1, 74), (current + 1, 75), (current, 0), (-1, 0)] {
        assert_eq!(node.list_at("t", -1, epoch).error_code, error, "{epoch}");
        assert_eq!(node.fetch_at("t", 30, epoch).error_code, error, "{epoch}");
    }
}

fn ask_epoch(node: &mut VirtualNode, current: i32, asked: i32) -> Result<(i32, i64), i16> {
    let partition =
        OffsetForLeaderPartition { partition: 0, current_leader_epoch: current, leader_epoch: asked };
    let topic = OffsetForLeaderTopic { topic: "t".into(), partitions: vec![partition] };
    let request = OffsetForLeaderEpochRequest { replica_id: -1, topics: vec![topic] };
    let answer = node.call(&request, 4).topics.remove(0).partitions.remove(0);
    if answer.error_code == 0 { Ok((answer.leader_epoch, answer.end_offset)) } else { Err(answer.error_code) }
}

/// C23: redpanda#11922, KAFKA-6482, redpanda#9820.
#[test]
fn log_append_time_is_immune_to_the_clients_clocks() {
    let mut node = VirtualNode::start("");
    let configs =
        [("message.timestamp.type", "LogAppendTime"), ("retention.ms", "60000"), ("segment.ms", "10000")];
    node.create("t", &configs);
    let now = node.now_ms();
    let lies = [now * 1000, now + 365 * 86_400_000, 0, -1];
    for timestamp in lies {
        node.put("t", &[timestamp], 10);
    }
    assert_eq!(node.segments("t"), [0], "the clients' clocks roll nothing");
    for timestamp in [now - 1, now] {
        let answer = node.list("t", timestamp);
        assert_eq!((answer.offset, answer.timestamp), (0, now), "the index knows the broker's clock only");
    }
    assert_eq!(node.list("t", now + 1).offset, -1);
    node.advance(59 * SECOND);
    assert_eq!(node.earliest("t"), 0);
    node.advance(3 * SECOND);
    assert_eq!(node.earliest("t"), 4);
}

#[test]
fn create_time_is_held_within_its_bounds() {
    let mut node = VirtualNode::start("");
    node.create(
        "t",
        &[("message.timestamp.after.max.ms", "3600000"), ("retention.ms", "60000"), ("segment.ms", "10000")],
    );
    let now = node.now_ms();
    for (timestamp, accepted) in [
        (now * 1000, false),
        (now + 365 * 86_400_000, false),
        (now + 3_600_001, false),
        (now + 3_600_000, true),
        (now, true),
        (0, true),
        (-1, true),
    ] {
        let answer = node.produce("t", batch(&[now, timestamp], 10, Compression::None));
        if accepted {
            assert_eq!(answer.error_code, 0, "{timestamp}");
            continue;
        }
        assert_eq!(answer.error_code, 32, "{timestamp}");
        let errors: Vec<i32> = answer.record_errors.iter().map(|error| error.batch_index).collect();
        assert_eq!(errors, [1], "{timestamp}: which record it was");
    }
    assert_eq!(node.latest("t"), 8);
    node.create("before", &[("message.timestamp.before.max.ms", "3600000")]);
    for (timestamp, error) in [(now - 3_600_000, 0), (now - 3_600_001, 32), (0, 32), (-1, 0)] {
        let answer = node.produce("before", batch(&[timestamp], 10, Compression::None));
        assert_eq!(answer.error_code, error, "{timestamp}");
    }
}

#[test]
fn one_record_and_silence_is_gone_in_time() {
    let mut node = VirtualNode::start("");
    for (topic, timestamp_type) in [("create", "CreateTime"), ("append", "LogAppendTime")] {
        node.create(
            topic,
            &[("message.timestamp.type", timestamp_type), ("retention.ms", "60000"), ("segment.ms", "10000")],
        );
        let now = node.now_ms();
        node.put(topic, &[now], 10);
        node.advance(58 * SECOND);
        assert_eq!(node.earliest(topic), 0, "{topic}");
        node.advance(5 * SECOND);
        assert_eq!(node.earliest(topic), 1, "{topic}: the active segment, though nothing rolled it");
        assert_eq!(node.segments(topic), [1], "{topic}");
        let now = node.now_ms();
        assert_eq!(node.put(topic, &[now], 10), 1, "{topic}: offsets go on");
    }
}

#[test]
fn a_segment_without_timestamps_is_as_old_as_its_file() {
    let mut node = VirtualNode::start("");
    node.create("t", &[("retention.ms", "60000")]);
    node.put("t", &[-1, -1], 10);
    node.advance(50 * SECOND);
    node.put("t", &[-1], 10);
    node.advance(50 * SECOND);
    assert_eq!(node.earliest("t"), 0, "written to fifty seconds ago");
    node.advance(15 * SECOND);
    assert_eq!(node.earliest("t"), 3);
}

#[test]
fn a_record_of_the_future_holds_its_segment_until_then_and_old_ones_go_at_once() {
    let mut node = VirtualNode::start("");
    node.create("t", &[("retention.ms", "60000"), ("message.timestamp.after.max.ms", "9000000")]);
    let now = node.now_ms();
    node.put("t", &[now + 7_200_000], 10);
    node.advance(Duration::from_secs(7200));
    assert_eq!(node.earliest("t"), 0);
    node.advance(Duration::from_secs(62));
    assert_eq!(node.earliest("t"), 1);
    node.create("old", &[("retention.ms", "60000")]);
    node.put("old", &[1000], 10);
    node.advance(2 * SECOND);
    assert_eq!(node.earliest("old"), 1);
}

#[test]
fn retention_by_size_moves_the_start_by_whole_segments() {
    let mut node = VirtualNode::start("");
    node.create("t", &[("segment.bytes", "1048576"), ("retention.bytes", "1048576")]);
    let mut starts = vec![0];
    for _ in 0..50 {
        let now = node.now_ms();
        node.put("t", &[now], 100_000);
        node.advance(2 * SECOND);
        let start = node.earliest("t");
        let size: u64 = node.files("t").iter().filter(|(n, _)| n.ends_with(".log")).map(|(_, s)| s).sum();
        assert!(size >= 1_048_576 || start == 0, "never less than the limit is kept: {size}");
        if starts.last() != Some(&start) {
            starts.push(start);
        }
        assert_eq!(node.segments("t").first(), Some(&start), "a whole segment");
    }
    assert_eq!(starts, [0, 10, 20, 30]);
}
