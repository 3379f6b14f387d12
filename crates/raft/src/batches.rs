//! Record batches of the metadata log: writing the quorum's control records and the state machine's data, and reading
//! what is needed back.
//!
//! Owns no state. Invariants: batches are never compressed and carry no producer; bytes from elsewhere are only accepted
//! as whole batches with a right checksum whose offsets continue the log.

use bytes::Bytes;
use protocol::records::raft::leader_change_message::Voter;
use protocol::records::raft::{KRaftVersionRecord, LeaderChangeMessage, VotersRecord};
use protocol::{Decoder, Encoder, Message};
use record::{
    BatchOptions, Batches, BufferSupplier, ControlRecordType, NoCodecs, RECORD_BATCH_OVERHEAD,
    RecordBatchBuilder,
};

use crate::types::{KRaftVersion, VoterSet};

/// Bytes of a batch in front of its records.
pub(crate) const OVERHEAD: usize = RECORD_BATCH_OVERHEAD;

/// A control record of the quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlRecord {
    KRaftVersion(KRaftVersion),
    Voters(VoterSet),
    /// LeaderChange, snapshot header or footer: nothing the quorum keeps.
    Other,
}

/// A batch that was received and may be appended.
pub(crate) struct ValidBatch {
    pub(crate) base_offset: i64,
    pub(crate) next_offset: i64,
    pub(crate) epoch: i32,
    pub(crate) bytes: Bytes,
}

fn encode(message: &impl Message) -> Bytes {
    let mut encoder = Encoder::new();
    let written = message.encode(&mut encoder, 0).and_then(|()| encoder.finish_contiguous());
    // Version 0 of these records holds all their fields, and their sizes are those of the voter set.
    written.expect("a control record of version 0 holds what it is given")
}

pub(crate) fn leader_change(leader_id: i32, voters: &[i32], granting: &[i32]) -> (ControlRecordType, Bytes) {
    let ids = |ids: &[i32]| ids.iter().map(|id| Voter { voter_id: *id, ..Voter::default() }).collect();
    let message =
        LeaderChangeMessage { version: 0, leader_id, voters: ids(voters), granting_voters: ids(granting) };
    (ControlRecordType::LeaderChange, encode(&message))
}

pub(crate) fn kraft_version(version: KRaftVersion) -> (ControlRecordType, Bytes) {
    let record = KRaftVersionRecord { version: 0, k_raft_version: version.level() };
    (ControlRecordType::KRaftVersion, encode(&record))
}

pub(crate) fn voters(voters: &VoterSet) -> (ControlRecordType, Bytes) {
    (ControlRecordType::KRaftVoters, encode(&voters.to_record()))
}

fn options(base_offset: i64, epoch: i32, is_control_batch: bool) -> BatchOptions {
    BatchOptions { base_offset, partition_leader_epoch: epoch, is_control_batch, ..BatchOptions::default() }
}

pub(crate) fn control_batch(
    base_offset: i64,
    epoch: i32,
    timestamp: i64,
    records: &[(ControlRecordType, Bytes)],
) -> Bytes {
    let mut builder = RecordBatchBuilder::new(options(base_offset, epoch, true));
    let appended =
        records.iter().try_for_each(|(kind, value)| builder.append_control_record(timestamp, *kind, value));
    appended.and_then(|()| builder.build(&NoCodecs)).expect("control records fit a batch")
}

pub(crate) fn data_batch(base_offset: i64, epoch: i32, timestamp: i64, records: &[Bytes]) -> Bytes {
    let mut builder = RecordBatchBuilder::new(options(base_offset, epoch, false));
    let appended = records.iter().try_for_each(|value| builder.append(timestamp, None, Some(value), &[]));
    appended.and_then(|()| builder.build(&NoCodecs)).expect("the accumulator bounds what a batch holds")
}

/// Bytes that `records` take in a batch that holds `present` records already; all share the batch's timestamp.
pub(crate) fn records_size(present: usize, records: &[Bytes]) -> usize {
    let size = |(index, value): (usize, &Bytes)| {
        // Attributes, timestamp delta 0, offset delta, null key, value, no headers.
        let body = 1 + 1 + varint_size(present + index) + 1 + varint_size(value.len()) + value.len() + 1;
        varint_size(body) + body
    };
    records.iter().enumerate().map(size).sum()
}

/// Size of a non-negative number as a zigzag varint.
fn varint_size(value: usize) -> usize {
    let bits = usize::BITS - (value << 1).leading_zeros();
    usize::try_from(bits.div_ceil(7)).unwrap_or(1).max(1)
}

/// The quorum's control records in `bytes`, each with its offset. Ends at the first batch that cannot be read.
pub fn control_records(bytes: &Bytes) -> Vec<(i64, ControlRecord)> {
    let mut found = Vec::new();
    let mut buffers = BufferSupplier::new();
    for batch in Batches::new(bytes) {
        let Ok(batch) = batch else { break };
        if !batch.is_control_batch() {
            continue;
        }
        let Ok(records) = batch.records(&NoCodecs, &mut buffers) else { break };
        for record in records {
            let Ok(record) = record else { return found };
            let kind = record.key.and_then(|key| ControlRecordType::parse(key).ok());
            let control = kind.and_then(|kind| parse(kind, record.value.unwrap_or_default()));
            found.push((record.offset, control.unwrap_or(ControlRecord::Other)));
        }
    }
    found
}

fn parse(kind: ControlRecordType, value: &[u8]) -> Option<ControlRecord> {
    let mut decoder = Decoder::new(Bytes::copy_from_slice(value));
    match kind {
        ControlRecordType::KRaftVersion => {
            let record = KRaftVersionRecord::decode(&mut decoder, 0).ok()?;
            KRaftVersion::from_level(record.k_raft_version).map(ControlRecord::KRaftVersion)
        }
        ControlRecordType::KRaftVoters => {
            let record = VotersRecord::decode(&mut decoder, 0).ok()?;
            Some(ControlRecord::Voters(VoterSet::from_record(&record)))
        }
        _ => Some(ControlRecord::Other),
    }
}

/// The batches at the start of `bytes` that continue a log ending at `end_offset` and are not of a later epoch than the
/// leader's.
pub(crate) fn valid_batches(bytes: &Bytes, mut end_offset: i64, leader_epoch: i32) -> Vec<ValidBatch> {
    let mut valid = Vec::new();
    for batch in Batches::new(bytes) {
        let Ok(batch) = batch else { break };
        let epoch = batch.partition_leader_epoch;
        let continues = batch.base_offset == end_offset && batch.next_offset() > end_offset;
        if batch.magic < record::MAGIC_VALUE_V2
            || !batch.is_valid()
            || !continues
            || !(0..=leader_epoch).contains(&epoch)
        {
            break;
        }
        end_offset = batch.next_offset();
        let bytes = bytes.slice_ref(batch.bytes());
        valid.push(ValidBatch { base_offset: batch.base_offset, next_offset: end_offset, epoch, bytes });
    }
    valid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Endpoints, ReplicaKey, VoterNode};
    use protocol::Uuid;

    fn voter_set() -> VoterSet {
        let directory_id: Uuid = "AYUiSWl1RD2TTjSjSEo6Xw".parse().unwrap();
        let node = VoterNode {
            key: ReplicaKey::new(1, directory_id),
            listeners: Endpoints::single("CONTROLLER", "127.0.0.1", 21501),
            supported_kraft_versions: (0, 1),
        };
        [node].into_iter().collect()
    }

    #[test]
    fn the_start_of_an_epoch_has_the_bytes_of_the_reference() {
        // First batch of a log that Apache Kafka 4.4.0 wrote after `format --standalone`.
        let records = [leader_change(1, &[1], &[1]), kraft_version(KRaftVersion::V1), voters(&voter_set())];
        let batch = control_batch(0, 1, 1_795_964_744_390, &records);
        assert_eq!(batch.len(), 174);
        let parsed = record::RecordBatch::first(&batch).unwrap().unwrap();
        assert_eq!((parsed.crc, parsed.partition_leader_epoch, parsed.count), (2_758_212_262, 1, 3));
        assert_eq!(
            control_records(&batch),
            [
                (0, ControlRecord::Other),
                (1, ControlRecord::KRaftVersion(KRaftVersion::V1)),
                (2, ControlRecord::Voters(voter_set()))
            ]
        );
    }

    #[test]
    fn sizes_are_known_before_a_batch_is_built() {
        for values in [vec![vec![0_u8; 3]; 200], vec![vec![1; 70_000], vec![], vec![2; 63], vec![3; 64]]] {
            let records: Vec<Bytes> = values.into_iter().map(Bytes::from).collect();
            let batch = data_batch(7, 1, 1, &records);
            assert_eq!(batch.len(), OVERHEAD + records_size(0, &records));
        }
    }

    #[test]
    fn only_whole_batches_that_continue_the_log_are_taken() {
        let records = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
        let (first, second) = (data_batch(5, 2, 1, &records), data_batch(7, 3, 1, &records));
        let both = Bytes::from([first.clone(), second.clone()].concat());
        let taken = |bytes: &Bytes, end, epoch| {
            valid_batches(bytes, end, epoch).iter().map(|b| b.next_offset).collect::<Vec<_>>()
        };
        assert_eq!(taken(&both, 5, 3), [7, 9]);
        assert_eq!(taken(&both, 5, 2), [7], "a batch of a later epoch than the leader's");
        assert_eq!(taken(&both, 4, 3), [0_i64; 0], "a gap");
        assert_eq!(taken(&both.slice(..both.len() - 1), 5, 3), [7], "a cut batch");
        let mut corrupt = both.to_vec();
        corrupt[first.len() - 2] ^= 1;
        assert_eq!(taken(&corrupt.into(), 5, 3), [0_i64; 0], "a wrong checksum");
    }
}
