//! Compaction: what stays of a log, what a reader finds in it, and when a log is cleaned.

mod common;

use common::cleaning::{
    Node, batches_of, compacted, header, keyed, of_producer, records_of, with_compression,
};
use common::marker;
use record::{AppendOrigin, BatchOptions, Compression};
use storage::{FetchIsolation, LogConfig};

fn one(key: &str, value: &str) -> Vec<(String, String)> {
    vec![(key.to_owned(), value.to_owned())]
}

/// `key` x `count` in batches of `size`.
fn append_many(node: &Node, key: &str, count: usize, size: usize) {
    for first in (0..count).step_by(size) {
        let records: Vec<(String, String)> =
            (first..count.min(first + size)).flat_map(|i| one(key, &i.to_string())).collect();
        let records: Vec<(&str, Option<&str>)> =
            records.iter().map(|(key, value)| (key.as_str(), Some(value.as_str()))).collect();
        node.append(&records);
    }
}

#[test]
fn of_each_key_the_last_value_stays_at_its_offset() {
    let mut node = Node::new(compacted());
    node.append(&[("a", Some("1")), ("b", Some("1")), ("a", Some("2"))]);
    node.append(&[("c", Some("1"))]);
    node.append(&[("a", Some("3"))]);
    let before = node.records();
    let expected = node.last_values();
    node.compact();
    assert_eq!(node.offsets(), [1, 3, 4]);
    let after = node.records();
    assert!(after.iter().all(|record| before.contains(record)), "records are not changed");
    assert_eq!(node.last_values(), expected);
    assert_eq!(node.checkpoint(), Some(5));
    assert_eq!(node.log.log_end_offset(), 5);
    assert!(!node.clean(), "nothing is dirty");
    node.append(&[("b", None)]);
    assert!(!node.clean(), "the active segment is not cleaned");
    node.compact();
    assert_eq!(node.offsets(), [3, 4, 5]);
}

/// Case C01 (a): `key` x 50 in batches of 10, then another key, compacted.
#[test]
fn every_offset_of_a_compacted_log_finds_the_next_record() {
    let mut node = Node::new(compacted());
    append_many(&node, "k", 50, 10);
    node.append(&[("z", Some("last"))]);
    node.roll();
    node.append(&[("active", Some("x"))]);
    node.compact();
    let survivors = node.offsets();
    assert_eq!(survivors, [49, 50, 51]);
    for isolation in [FetchIsolation::LogEnd, FetchIsolation::HighWatermark, FetchIsolation::TxnCommitted] {
        for offset in 0..=52 {
            let info = node.log.read(offset, 1, isolation, true).unwrap();
            let found = info.records.map(|slice| records_of(&slice.read().unwrap()));
            let next = survivors.iter().copied().find(|survivor| *survivor >= offset);
            match (found, next) {
                (Some(records), Some(next)) => {
                    assert!(records.iter().any(|record| record.offset == next), "{offset}: {records:?}");
                }
                (None, None) => assert_eq!(info.fetch_offset.message_offset, 52),
                (found, next) => panic!("at {offset} {found:?} instead of {next:?}"),
            }
        }
    }
    assert!(node.log.read(53, 1, FetchIsolation::LogEnd, true).is_err());
}

/// Case C01 (b): without compaction a fetch in the middle of a batch begins with that batch.
#[test]
fn a_fetch_in_the_middle_of_a_batch_begins_with_it() {
    let node = Node::new(compacted());
    node.append(&[("a", Some("0")), ("a", Some("1"))]);
    node.append(&[("b", Some("2")), ("b", Some("3"))]);
    for (offset, base) in [(0, 0), (1, 0), (2, 2), (3, 2)] {
        let info = node.log.read(offset, 1 << 20, FetchIsolation::HighWatermark, true).unwrap();
        let bytes = info.records.unwrap().read().unwrap();
        assert_eq!(header(&bytes).base_offset, base, "fetch at {offset}");
    }
}

#[test]
fn a_fetch_behind_the_last_survivor_reaches_the_end() {
    let mut node = Node::new(compacted());
    node.append(&[("a", Some("1"))]);
    node.append(&[("b", None)]);
    node.append(&[("b", None)]);
    node.compact();
    node.advance_ms(86_400_001);
    node.append(&[("c", Some("1"))]);
    node.compact();
    node.advance_ms(86_400_001);
    node.append(&[("c", Some("2"))]);
    node.compact();
    // The tombstone at 2 is gone; a reader who waits at 1, 2 or 3 goes on to 4.
    assert_eq!(node.offsets(), [0, 4]);
    for offset in 1..=4 {
        let info = node.log.read(offset, 1, FetchIsolation::HighWatermark, true).unwrap();
        let records = records_of(&info.records.unwrap().read().unwrap());
        assert_eq!(records[0].offset, 4, "fetch at {offset}");
    }
}

#[test]
fn tombstones_stay_for_delete_retention_ms_and_then_go() {
    let mut node = Node::new(LogConfig { delete_retention_ms: 1000, ..compacted() });
    node.append(&[("a", Some("1")), ("b", Some("1"))]);
    node.append(&[("a", None)]);
    node.compact();
    assert_eq!(node.offsets(), [1, 2], "the value goes, the tombstone stays");
    let horizon = node.wall_ms() + 1000;
    let tombstone = node.batches()[1];
    assert_eq!(tombstone.delete_horizon_ms(), Some(horizon), "the first pass sets the horizon");
    assert_eq!(node.records()[1].timestamp, horizon - 1000, "and keeps the timestamps");
    node.advance_ms(999);
    node.append(&[("c", Some("1"))]);
    node.compact();
    assert_eq!(node.offsets(), [1, 2, 3]);
    assert_eq!(node.batches()[1].delete_horizon_ms(), Some(horizon), "it is not moved");
    node.advance_ms(1);
    node.append(&[("c", Some("2"))]);
    node.compact();
    assert_eq!(node.offsets(), [1, 4]);
}

#[test]
fn batches_keep_their_codec_and_shrink() {
    for compression in [
        Compression::Gzip(Compression::GZIP_DEFAULT_LEVEL),
        Compression::Snappy,
        Compression::Lz4(Compression::LZ4_DEFAULT_LEVEL),
        Compression::Zstd(Compression::ZSTD_DEFAULT_LEVEL),
    ] {
        let mut node = Node::new(compacted());
        let value = "v".repeat(300);
        let records: Vec<(&str, Option<&str>)> =
            (0..30).map(|i| (if i % 10 == 0 { "x" } else { "y" }, Some(value.as_str()))).collect();
        node.append_batch(keyed(with_compression(compression), 1000, &records));
        let before = node.batches()[0];
        node.append(&[("y", Some("last"))]);
        node.compact();
        let after = node.batches()[0];
        assert_eq!(after.compression_type(), Some(compression.kind()));
        assert!(after.batch_length < before.batch_length);
        assert_eq!((after.base_offset, after.last_offset(), after.count), (0, 29, 1));
        assert_eq!(node.offsets(), [20, 30], "{compression:?}");
    }
}

#[test]
fn segments_are_merged_and_every_index_finds_its_way() {
    let mut node = Node::new(LogConfig { segment_size_bytes: 2000, ..compacted() });
    for round in 0..40 {
        for key in ["a", "b", "c", "d"] {
            node.advance_ms(10);
            let value = "v".repeat(50 + round);
            node.append(&[(key, Some(&value))]);
        }
    }
    let segments = node.log.number_of_segments();
    assert!(segments > 5);
    let before = node.records();
    node.compact();
    // Segments are grouped by the size they have: what has become small is merged the next time.
    node.advance_ms(10);
    node.append(&[("e", Some("1"))]);
    let before: Vec<_> = before.into_iter().chain(node.records().last().cloned()).collect();
    node.compact();
    assert!(node.log.number_of_segments() <= 3, "{} of {segments}", node.log.number_of_segments());
    let survivors = node.records();
    assert!(survivors.iter().all(|record| before.contains(record)) && survivors.len() < 60);
    for record in &survivors {
        let found = node.log.fetch_offset_by_timestamp(record.timestamp).unwrap().unwrap();
        assert_eq!((found.offset, found.timestamp), (record.offset, record.timestamp));
        assert_eq!(found.leader_epoch, Some(0));
        let found = node.log.fetch_offset_by_timestamp(record.timestamp - 9).unwrap().unwrap();
        assert_eq!(found.offset, record.offset, "the next survivor");
    }
    let last = survivors.last().unwrap();
    assert_eq!(node.log.fetch_offset_by_timestamp(last.timestamp + 1).unwrap(), None);
    let max = node.log.fetch_offset_by_timestamp(storage::MAX_TIMESTAMP).unwrap().unwrap();
    assert_eq!(max.offset, last.offset);
    node.advance_ms(1001);
    node.manager.tick(node.now());
    let leftovers: Vec<String> = node.files().into_iter().filter(|name| name.ends_with(".deleted")).collect();
    assert_eq!(leftovers, Vec::<String>::new(), "removed after file.delete.delay.ms");
    assert!(!node.files().iter().any(|name| name.ends_with(".cleaned") || name.ends_with(".swap")));
}

#[test]
fn records_without_a_key_go() {
    let mut node = Node::new(LogConfig { compact: false, delete: true, ..compacted() });
    node.append_batch(common::batch(1000, &[b"no key"]));
    node.log.update_config(std::sync::Arc::new(compacted()));
    node.append(&[("a", Some("1"))]);
    node.compact();
    assert_eq!(node.offsets(), [1]);
    assert_eq!(node.thread.last_stats().invalid_records, 1);
}

#[test]
fn the_last_batch_of_each_producer_stays_even_if_it_is_empty() {
    let mut node = Node::new(compacted());
    let at = node.wall_ms();
    node.append_batch(keyed(of_producer(7, 0, 0, false), at, &[("a", Some("1"))]));
    node.append_batch(keyed(of_producer(7, 0, 1, false), at, &[("a", Some("2"))]));
    node.append_batch(keyed(of_producer(8, 0, 0, false), at, &[("a", Some("3"))]));
    node.append(&[("a", Some("4"))]);
    node.compact();
    let kept: Vec<(i64, i64, i32, i32)> =
        node.batches().iter().map(|b| (b.base_offset, b.producer_id, b.base_sequence, b.count)).collect();
    assert_eq!(kept, [(1, 7, 1, 0), (2, 8, 0, 0), (3, -1, -1, 1)]);
    assert_eq!(node.offsets(), [3]);
    // The state that a start reads from the log knows both.
    let Node { sim, log, manager, .. } = node;
    drop((log, manager));
    sim.fs.kill();
    let node = Node::start(sim, compacted(), storage::CleanerConfig::default());
    let producers = node.log.active_producers();
    let known: Vec<(i64, i32)> = producers.iter().map(|p| (p.producer_id, p.last_sequence)).collect();
    assert_eq!(known, [(7, 1), (8, 0)]);
    node.append_batch(keyed(of_producer(7, 0, 2, false), 1000, &[("b", Some("1"))]));
}

#[test]
fn nothing_from_an_open_transaction_on_is_cleaned() {
    let mut node = Node::new(compacted());
    node.append(&[("a", Some("1"))]);
    node.append(&[("a", Some("2"))]);
    node.roll();
    node.append(&[("a", Some("3"))]);
    node.append_batch(keyed(of_producer(7, 0, 0, true), 1000, &[("b", Some("1"))]));
    node.append(&[("a", Some("4"))]);
    node.compact();
    assert_eq!(node.log.last_stable_offset(), 3);
    assert_eq!(node.offsets(), [1, 2, 3, 4], "the segment with the open transaction is untouched");
    node.append_from(marker(7, 0, 1000, true, 0), AppendOrigin::Coordinator);
    node.compact();
    assert_eq!(node.offsets(), [3, 4]);
}

/// Case C24: half of the transactions aborted, user keys equal to the markers' keys, forced passes.
#[test]
fn transactions_leave_their_committed_values_and_no_torn_marker() {
    let mut node =
        Node::new(LogConfig { delete_retention_ms: 1000, segment_size_bytes: 1500, ..compacted() });
    // Keys of COMMIT and ABORT markers: version 0, type 1 and 0.
    let keys = ["\0\0\0\x01", "\0\0\0\0", "user"];
    let mut model = std::collections::BTreeMap::new();
    for round in 0..100 {
        let producer = 7 + i64::from(round % 3);
        let key = keys[round as usize % keys.len()];
        let value = round.to_string();
        let commit = round % 2 == 0;
        let options = of_producer(producer, 0, round / 3, true);
        node.append_batch(keyed(options, 1000, &[(key, Some(&value))]));
        node.append_from(marker(producer, 0, 1000, commit, 0), AppendOrigin::Coordinator);
        if commit {
            model.insert(key.as_bytes().to_vec(), value.into_bytes());
        }
        if round % 30 == 29 {
            node.compact();
            assert_eq!(committed_values(&node), model);
        }
    }
    for pass in 0..4 {
        node.advance_ms(1001);
        node.append(&[("pass", Some("x"))]);
        node.compact();
        model.insert(b"pass".to_vec(), b"x".to_vec());
        assert_eq!(committed_values(&node), model, "pass {pass}");
    }
    let batches = node.batches();
    let markers = batches.iter().filter(|batch| batch.is_control_batch()).count();
    // Of three committed values the markers stay, and those behind the last batches of three producers; the others go
    // once their horizon has passed.
    assert!(markers <= 6, "{markers} markers are left: {batches:#?}");
    assert_eq!(node.log.last_stable_offset(), node.log.log_end_offset());
    let Node { sim, log, manager, .. } = node;
    drop((log, manager));
    sim.fs.kill();
    let node = Node::start(
        sim,
        LogConfig { delete_retention_ms: 1000, segment_size_bytes: 1500, ..compacted() },
        storage::CleanerConfig::default(),
    );
    node.log.update_high_watermark(node.log.log_end_offset());
    assert_eq!(committed_values(&node), model, "after a restart");
    assert_eq!(node.log.last_stable_offset(), node.log.log_end_offset(), "no transaction hangs");
}

/// What a `read_committed` consumer ends up with.
fn committed_values(node: &Node) -> std::collections::BTreeMap<Vec<u8>, Vec<u8>> {
    let mut offset = node.log.log_start_offset();
    let mut records = Vec::new();
    while offset < node.log.last_stable_offset() {
        let info = node.log.read(offset, 1, FetchIsolation::TxnCommitted, true).unwrap();
        let Some(slice) = info.records else { break };
        let bytes = slice.read().unwrap();
        let batch = header(&bytes);
        let aborted = info.aborted_transactions.unwrap();
        let is_aborted = batch.is_transactional()
            && aborted.iter().any(|txn| {
                txn.producer_id == batch.producer_id
                    && txn.first_offset <= batch.base_offset
                    && ends_behind(node, txn.producer_id, txn.first_offset) > batch.base_offset
            });
        if !is_aborted {
            records.extend(records_of(&bytes));
        }
        offset = batch.next_offset();
    }
    common::cleaning::last_values(&records)
}

fn ends_behind(node: &Node, producer_id: i64, first_offset: i64) -> i64 {
    let markers = batches_of(&node.log);
    let marker = markers.iter().map(header).find(|batch| {
        batch.is_control_batch() && batch.producer_id == producer_id && batch.base_offset > first_offset
    });
    marker.map_or(i64::MAX, |batch| batch.base_offset)
}

#[test]
fn options_of_batches_survive() {
    let mut node = Node::new(compacted());
    let options = BatchOptions { partition_leader_epoch: 0, ..of_producer(9, 3, 5, false) };
    let records = [("a", Some("1")), ("b", Some("1")), ("a", Some("2"))];
    let batch = keyed(options, 1234, &records);
    node.log.append_as_leader(node.now(), batch, 4, AppendOrigin::Client).unwrap();
    node.log.update_high_watermark(3);
    node.compact();
    let left = node.batches()[0];
    assert_eq!((left.base_offset, left.last_offset(), left.count), (0, 2, 2));
    assert_eq!((left.producer_id, left.producer_epoch, left.base_sequence), (9, 3, 5));
    assert_eq!(left.partition_leader_epoch, 4);
    assert_eq!((left.base_timestamp, left.max_timestamp), (1234, 1234));
}

/// A key per dot: which offsets survive of a log that was written with `records`, compacted with `config`.
fn survivors(config: LogConfig, change: impl Fn(&mut Node)) -> (Vec<i64>, bool) {
    let mut node = Node::new(config);
    change(&mut node);
    node.roll();
    let cleaned = node.clean();
    while node.clean() {}
    (node.offsets(), cleaned)
}

#[test]
fn when_a_log_is_cleaned_depends_on_its_dirt_and_its_age() {
    let write = |node: &mut Node| {
        for value in ["1", "2", "3"] {
            node.append(&[("a", Some(value))]);
        }
        node.roll();
        node.advance_ms(1000);
        node.append(&[("a", Some("4"))]);
    };
    let cases: [(&str, LogConfig, &[i64], bool); 6] = [
        ("all of it is dirty", LogConfig { min_cleanable_dirty_ratio: 0.5, ..compacted() }, &[3], true),
        (
            "a ratio above 1 is never reached",
            LogConfig { min_cleanable_dirty_ratio: 1.0, ..compacted() },
            &[0, 1, 2, 3],
            false,
        ),
        (
            "but the age counts too",
            LogConfig { min_cleanable_dirty_ratio: 1.0, max_compaction_lag_ms: 999, ..compacted() },
            &[3],
            true,
        ),
        (
            "not yet",
            LogConfig { min_cleanable_dirty_ratio: 1.0, max_compaction_lag_ms: 1000, ..compacted() },
            &[0, 1, 2, 3],
            false,
        ),
        ("young records wait", LogConfig { min_compaction_lag_ms: 500, ..compacted() }, &[2, 3], true),
        ("all are young", LogConfig { min_compaction_lag_ms: 2000, ..compacted() }, &[0, 1, 2, 3], false),
    ];
    for (name, config, expected, cleaned) in cases {
        assert_eq!(survivors(config, write), (expected.to_vec(), cleaned), "{name}");
    }
}

#[test]
fn the_filthiest_log_comes_first() {
    let mut node = Node::new(compacted());
    node.append(&[("a", Some("1"))]);
    node.compact();
    for value in ["2", "3", "4"] {
        node.append(&[("a", Some(value))]);
    }
    node.roll();
    let params = storage::CreateParams {
        config: std::sync::Arc::new(compacted()),
        topic_id: None,
        is_new: true,
        directory_id: None,
    };
    let other = record::TopicPartition::new("other", 0);
    let other = node.manager.get_or_create_log(&other, params, node.now()).unwrap();
    let batch = keyed(BatchOptions::default(), 1000, &[("a", Some("1"))]);
    for _ in 0..3 {
        other.append_as_leader(node.now(), batch.clone(), 0, AppendOrigin::Client).unwrap();
    }
    other.update_high_watermark(3);
    other.roll_segment(node.now()).unwrap();
    assert!(node.clean());
    assert_eq!(node.manager.cleaner_checkpoint(&other), Some(3), "it is dirty from its start");
    assert_eq!(node.checkpoint(), Some(1));
    assert!(node.clean());
    assert_eq!(node.checkpoint(), Some(4));
}

#[test]
fn a_small_map_cleans_a_log_piece_by_piece() {
    let config = storage::CleanerConfig { dedupe_buffer_size: 24 * 11, ..storage::CleanerConfig::default() };
    let Node { sim, log, manager, .. } = Node::new(compacted());
    drop((log, manager));
    sim.fs.kill();
    let mut node = Node::start(sim, compacted(), config);
    let keys: Vec<String> = (0..35).map(|i| i.to_string()).collect();
    for round in 0..2 {
        for key in &keys {
            node.append(&[(key, Some(&format!("{key} in {round}")))]);
        }
    }
    let expected = node.last_values();
    node.roll();
    let mut rounds = 0;
    while node.clean() {
        rounds += 1;
        assert_eq!(node.last_values(), expected);
    }
    assert!(rounds > 5, "{rounds} rounds");
    assert_eq!((node.checkpoint(), node.offsets()), (Some(70), (35..70).collect()));
}

#[test]
fn batches_larger_than_the_buffers_are_cleaned() {
    let config = storage::CleanerConfig { io_buffer_size: 1, ..storage::CleanerConfig::default() };
    let Node { sim, log, manager, .. } = Node::new(compacted());
    drop((log, manager));
    sim.fs.kill();
    let mut node = Node::start(sim, compacted(), config);
    let large = "v".repeat(700_000);
    node.append(&[("a", Some(&large)), ("b", Some("1"))]);
    node.append(&[("a", Some("1"))]);
    node.append(&[("c", Some(&large))]);
    node.compact();
    assert_eq!(node.offsets(), [1, 2, 3]);
    assert_eq!(node.records()[2].value.as_ref().map(Vec::len), Some(700_000));
}

#[test]
fn what_goes_beyond_the_rate_is_slept_for() {
    let config =
        storage::CleanerConfig { max_io_bytes_per_second: 100_000.0, ..storage::CleanerConfig::default() };
    let Node { sim, log, manager, .. } = Node::new(compacted());
    drop((log, manager));
    sim.fs.kill();
    let mut node = Node::start(sim, compacted(), config);
    let value = "v".repeat(10_000);
    for key in 0..100 {
        node.append(&[(&key.to_string(), Some(&value))]);
    }
    node.roll();
    let before = node.now().monotonic;
    node.advance_ms(400);
    assert!(node.clean());
    let took = (node.now().monotonic - before).as_secs_f64();
    // A buffer of 262,144 bytes was read when the rate was looked at; no virtual time passes but by sleeping.
    assert!((2.5..2.8).contains(&took), "{took} s");
    node.manager.reconfigure_cleaner(storage::CleanerConfig::default());
    for _ in 0..5 {
        node.append(&[("0", Some(&value))]);
    }
    node.roll();
    let before = node.now().monotonic;
    assert!(node.clean());
    assert_eq!(node.now().monotonic, before, "a new rate counts at once");
}

#[test]
fn a_damaged_batch_makes_a_log_uncleanable_and_stays_as_it_is() {
    let mut node = Node::new(compacted());
    node.append(&[("a", Some("1"))]);
    node.append(&[("a", Some("2"))]);
    node.roll();
    let path = std::path::Path::new("/data/topic-0/00000000000000000000.log");
    let size = node.log.segments()[0].size() as usize;
    node.sim.fs.corrupt(path, size - 2, b"X");
    assert!(!node.clean());
    assert_eq!(node.manager.uncleanable_partitions(node.log.log_dir()), [common::cleaning::partition()]);
    assert!(!node.clean(), "it is left alone");
    assert_eq!(node.log.segments()[0].size() as usize, size);
    assert!(!node.files().iter().any(|name| name.ends_with(".cleaned")));
    assert!(!node.log.log_dir().is_offline());
    let partition = common::cleaning::partition();
    node.manager.async_delete(&[partition], false, node.now());
    node.clean();
    assert!(node.manager.uncleanable_partitions(node.log.log_dir()).is_empty(), "forgotten with the log");
}

#[test]
fn compact_and_delete_together() {
    let config = LogConfig { delete: true, retention_ms: 10_000, segment_size_bytes: 200, ..compacted() };
    let mut node = Node::new(config);
    for i in 0..10 {
        node.append(&[("a", Some("1")), (&format!("key {i}"), Some("1"))]);
        node.advance_ms(1000);
    }
    node.roll();
    node.advance_ms(4500);
    node.manager.tick(node.now());
    assert_eq!(node.log.log_start_offset(), 0, "retention of compacted logs is the cleaner's");
    while node.clean() {}
    let start = node.log.log_start_offset();
    assert!(start > 0 && start < 18, "{start}");
    let kept = node.records();
    assert!(kept.iter().all(|record| record.offset >= start));
    assert_eq!(kept.iter().filter(|record| record.key.as_deref() == Some(b"a")).count(), 1);
    node.append(&[("a", Some("2"))]);
    node.compact();
    assert!(node.checkpoint() > Some(start));
}

#[test]
fn truncation_and_deletion_keep_the_checkpoint_right() {
    let mut node = Node::new(compacted());
    for value in ["1", "2", "3"] {
        node.append(&[("a", Some(value))]);
    }
    node.compact();
    assert_eq!(node.checkpoint(), Some(3));
    let partition = common::cleaning::partition();
    node.manager.truncate_to(&partition, 2, node.now()).unwrap();
    assert_eq!(node.checkpoint(), Some(0), "the active segment is dirty again");
    node.append(&[("a", Some("4"))]);
    node.compact();
    assert_eq!((node.offsets(), node.checkpoint()), (vec![2], Some(3)));
    node.manager.abort_and_pause_cleaning(&partition);
    node.append(&[("a", Some("5"))]);
    node.roll();
    assert!(!node.clean(), "paused");
    node.manager.resume_cleaning(&partition);
    assert!(node.clean());
    node.manager.async_delete(&[partition], false, node.now());
    let path = std::path::Path::new("/data/cleaner-offset-checkpoint");
    assert_eq!(env::read_file(&*node.sim.env().fs, path, 100).unwrap(), b"0\n0\n");
}

#[test]
fn a_nonsensical_checkpoint_begins_at_the_logs_start() {
    for checkpoint in ["0\n1\ntopic 0 99\n", "0\n1\ntopic 0 -5\n", "not a checkpoint"] {
        let node = Node::new(compacted());
        for value in ["1", "2", "3"] {
            node.append(&[("a", Some(value))]);
        }
        node.roll();
        let Node { sim, log, manager, .. } = node;
        manager.shutdown(env::Clock::now(&*sim.clock), 1).unwrap();
        drop((log, manager));
        let path = std::path::Path::new("/data/cleaner-offset-checkpoint");
        env::write_atomic(&*sim.fs, path, checkpoint.as_bytes(), true).unwrap();
        let mut node = Node::start(sim, compacted(), storage::CleanerConfig::default());
        node.log.update_high_watermark(3);
        assert!(node.clean(), "{checkpoint:?}");
        assert_eq!((node.offsets(), node.checkpoint()), (vec![2], Some(3)), "{checkpoint:?}");
    }
}

/// One v0 or v1 message in front of its offset.
fn old_message(
    magic: i8,
    offset: i64,
    timestamp: i64,
    attributes: u8,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Vec<u8> {
    let mut body = vec![magic as u8, attributes];
    if magic == 1 {
        body.extend_from_slice(&timestamp.to_be_bytes());
    }
    for field in [key, value] {
        body.extend_from_slice(&field.map_or(-1, |field| field.len() as i32).to_be_bytes());
        body.extend_from_slice(field.unwrap_or_default());
    }
    let mut message = offset.to_be_bytes().to_vec();
    message.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
    message.extend_from_slice(&record::crc::crc32(&body).to_be_bytes());
    message.extend_from_slice(&body);
    message
}

/// Segments of an upgraded cluster: the reference writes what is left of them as v2.
#[test]
fn old_formats_are_compacted_into_v2() {
    let Node { sim, log, manager, .. } = Node::new(compacted());
    drop((log, manager));
    sim.fs.kill();
    let gzip = {
        let mut inner = Vec::new();
        for (relative, key, value) in [(0, "a", Some("5")), (1, "b", Some("6")), (2, "c", None)] {
            let value = value.map(str::as_bytes);
            inner.extend(old_message(1, relative, 2000 + relative, 0, Some(key.as_bytes()), value));
        }
        let mut compressed = Vec::new();
        let gzip = Compression::Gzip(Compression::GZIP_DEFAULT_LEVEL);
        record::Codecs::compress(&compression::KafkaCodecs, gzip, 1, &inner, &mut compressed).unwrap();
        old_message(1, 7, 2002, 1, None, Some(&compressed))
    };
    let mut bytes = Vec::new();
    bytes.extend(old_message(0, 0, -1, 0, Some(b"a"), Some(b"1")));
    bytes.extend(old_message(0, 1, -1, 0, Some(b"z"), Some(b"2")));
    bytes.extend(old_message(1, 2, 1000, 0, Some(b"b"), Some(b"3")));
    bytes.extend(old_message(1, 3, 1001, 0, None, Some(b"no key")));
    bytes.extend(old_message(1, 4, 1002, 0, Some(b"d"), None));
    bytes.extend(gzip);
    let path = std::path::Path::new("/data/topic-0/00000000000000000000.log");
    let file = env::FileSystem::open(&*sim.fs, path, env::OpenMode::Truncate).unwrap();
    file.write_at(&bytes, 0).unwrap();
    file.sync_all().unwrap();
    let mut node = Node::start(sim, compacted(), storage::CleanerConfig::default());
    assert_eq!(node.log.log_end_offset(), 8);
    node.log.update_high_watermark(8);
    node.append(&[("b", Some("8"))]);
    node.compact();
    // z, the tombstones of d and c, a, and the new b.
    assert_eq!(node.offsets(), [1, 4, 5, 7, 8]);
    let shape: Vec<(i8, i64, i64, i32)> =
        node.batches().iter().map(|b| (b.magic, b.base_offset, b.last_offset(), b.count)).collect();
    assert_eq!(shape, [(2, 1, 1, 1), (2, 4, 4, 1), (2, 5, 7, 2), (2, 8, 8, 1)]);
    let timestamps: Vec<i64> = node.records().iter().take(4).map(|record| record.timestamp).collect();
    assert_eq!(timestamps, [-1, 1002, 2000, 2002]);
    let compressed = node.batches()[2];
    assert_eq!(compressed.compression_type(), Some(record::CompressionType::Gzip));
    assert!(compressed.delete_horizon_ms().is_some() && node.batches()[1].delete_horizon_ms().is_some());
    for offset in 0..=8 {
        let read = node.log.read(offset, 1, FetchIsolation::LogEnd, true).unwrap();
        let next = [1, 4, 5, 8].into_iter().zip([1, 4, 7, 8]).find(|(_, last)| *last >= offset).unwrap();
        assert_eq!(read.fetch_offset.message_offset, next.0, "fetch at {offset}");
    }
}

#[test]
fn readers_go_on_in_segments_that_are_replaced_under_them() {
    let mut node = Node::new(LogConfig { segment_size_bytes: 400, ..compacted() });
    for i in 0..30 {
        node.append(&[("a", Some(&format!("{i}"))), ("b", Some(&format!("{i}")))]);
    }
    let held: Vec<_> = (0..60)
        .map(|offset| node.log.read(offset, 1 << 20, FetchIsolation::LogEnd, true).unwrap().records.unwrap())
        .collect();
    let before: Vec<_> = held.iter().map(|slice| slice.read().unwrap()).collect();
    node.compact();
    node.append(&[("c", Some("1"))]);
    node.compact();
    for (slice, before) in held.iter().zip(before) {
        assert_eq!(slice.read().unwrap(), before, "a region that was found stays readable");
    }
    assert_eq!(node.offsets(), [58, 59, 60]);
    node.advance_ms(1001);
    node.manager.tick(node.now());
    assert_eq!(node.offsets(), [58, 59, 60]);
}
