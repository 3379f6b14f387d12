//! Producer snapshots as they are found on disk: with whatever checksum they carry, with a right one, and as a list of
//! entries. What is accepted is written again as it was, and the log goes on from it.
#![no_main]

use std::collections::BTreeSet;
use std::path::Path;

use fuzz::disk::{self, Choices};
use libfuzzer_sys::fuzz_target;
use record::{AppendOrigin, BatchHeader, EndTransactionMarker, TopicPartition};
use storage::LogOffsetMetadata;
use storage::producer::{ProducerAppendInfo, ProducerStateManager, decode_snapshot, encode_snapshot};
use testkit::Sim;

const ENTRY_SIZE: usize = 46;
const OFFSET: i64 = 100;

fuzz_target!(|data: &[u8]| {
    let Some((&mode, data)) = data.split_first() else { return };
    let content = match mode % 4 {
        0 => data.to_vec(),
        1 => with_checksum(data.to_vec()),
        // Whole entries behind a right header.
        _ => {
            let entries = data.chunks_exact(ENTRY_SIZE);
            let mut content = vec![0, 1, 0, 0, 0, 0];
            content.extend_from_slice(&(entries.len() as u32).to_be_bytes());
            entries.for_each(|entry| content.extend_from_slice(entry));
            with_checksum(content)
        }
    };
    if let Ok(entries) = decode_snapshot(&content) {
        let encoded = encode_snapshot(entries.iter());
        assert_eq!(decode_snapshot(&encoded).expect("what was encoded decodes"), entries);
    }
    reload(&content, Choices(data));
});

fn with_checksum(mut content: Vec<u8>) -> Vec<u8> {
    if let Some((head, rest)) = content.split_at_mut_checked(6) {
        head[2..].copy_from_slice(&record::crc::crc32c(rest).to_be_bytes());
    }
    content
}

/// The snapshot as a log's start reads it, and the first things that happen to it then.
fn reload(content: &[u8], mut choices: Choices<'_>) {
    let sim = Sim::new(1);
    let dir = Path::new("/");
    disk::put(&sim, &dir.join("00000000000000000100.snapshot"), content);
    let (now_ms, expiration_ms) = (choices.i64(), choices.i64() & i64::MAX);
    let mut state = ProducerStateManager::new(BTreeSet::from([OFFSET]));
    state
        .truncate_and_reload(&*sim.fs, dir, 0, 200, now_ms, expiration_ms)
        .expect("a damaged one is passed over");
    let _ = (state.first_unstable_offset(), state.oldest_txn_last_timestamp(), state.is_empty());
    let producers: Vec<i64> = state.producers().keys().copied().collect();
    for producer_id in producers.into_iter().take(4) {
        append(&mut state, producer_id, &mut choices);
    }
    state.on_high_watermark_updated(choices.i64());
    state.remove_expired(now_ms, expiration_ms);
    let before = state.producers().clone();
    state.set_map_end_offset(150);
    state.take_snapshot(&*sim.fs, dir, true).expect("writable");
    let mut next = ProducerStateManager::new(BTreeSet::from([OFFSET, 150]));
    next.truncate_and_reload(&*sim.fs, dir, 0, 200, now_ms, i64::MAX).expect("readable");
    assert_eq!(next.map_end_offset(), 150);
    let ids = |state: &ProducerStateManager| state.producers().keys().copied().collect::<Vec<_>>();
    assert!(ids(&next).iter().all(|id| before.contains_key(id)));
}

/// The next batch of a producer that was read, or its transaction's marker.
fn append(state: &mut ProducerStateManager, producer_id: i64, choices: &mut Choices<'_>) {
    let partition = TopicPartition::new("t", 0);
    let flags = choices.byte();
    let entry = &state.producers()[&producer_id];
    let header = BatchHeader {
        base_offset: OFFSET,
        batch_length: 100,
        partition_leader_epoch: 0,
        magic: 2,
        crc: 0,
        attributes: if flags & 1 == 0 { 0 } else { 0x10 },
        last_offset_delta: i32::from(flags >> 4),
        base_timestamp: choices.i64(),
        max_timestamp: choices.i64(),
        producer_id,
        producer_epoch: if flags & 2 == 0 { entry.producer_epoch } else { i16::from(choices.byte()) },
        base_sequence: if flags & 4 == 0 {
            entry.last_sequence().wrapping_add(1)
        } else {
            choices.i64() as i32
        },
        count: i32::from(flags >> 4) + 1,
    };
    let _ = entry.find_duplicate(&header);
    let mut info = ProducerAppendInfo::new(producer_id, Some(entry), AppendOrigin::Client);
    let at = LogOffsetMetadata::new(OFFSET, 0, 0);
    if flags & 8 == 0 {
        if info.append_data_batch(&partition, &header, at).is_ok() {
            state.update(info);
        }
    } else {
        let marker =
            EndTransactionMarker { committed: flags & 1 == 0, coordinator_epoch: choices.i64() as i32 };
        let version = i16::from(choices.byte() % 4) - 1;
        if let Ok(completed) = info.append_end_txn_marker(&partition, marker, &header, 7, version) {
            state.update(info);
            if let Some(completed) = completed {
                let _ = state.last_stable_offset(&completed);
                state.complete_txn(&completed);
            }
        }
    }
}
