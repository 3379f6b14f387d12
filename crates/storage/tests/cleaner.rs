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
