//! Producer snapshot files: version 1 of the reference's `ProducerSnapshot`.
//!
//! Owns: the bytes: version, CRC-32C of what follows it, count, entries of 46 bytes.
//! Invariants: decoding bounds the count by the bytes there are. Concurrency, crash: pure functions.

use std::io;

use record::crc::crc32c;

use super::{BatchMetadata, ProducerStateEntry};
use crate::error::invalid_data;

const VERSION: i16 = 1;
const ENTRIES_OFFSET: usize = 6;
const ENTRY_SIZE: usize = 46;

pub fn encode_snapshot<'a>(entries: impl ExactSizeIterator<Item = &'a ProducerStateEntry>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(10 + entries.len() * ENTRY_SIZE);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(entries.len() as u32).to_be_bytes());
    for entry in entries {
        bytes.extend_from_slice(&entry.producer_id.to_be_bytes());
        bytes.extend_from_slice(&entry.producer_epoch.to_be_bytes());
        bytes.extend_from_slice(&entry.last_sequence().to_be_bytes());
        bytes.extend_from_slice(&entry.last_data_offset().to_be_bytes());
        bytes.extend_from_slice(&entry.last_offset_delta().to_be_bytes());
        bytes.extend_from_slice(&entry.last_timestamp.to_be_bytes());
        bytes.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
        bytes.extend_from_slice(&entry.current_txn_first_offset.unwrap_or(-1).to_be_bytes());
    }
    let crc = crc32c(&bytes[ENTRIES_OFFSET..]);
    bytes[2..ENTRIES_OFFSET].copy_from_slice(&crc.to_be_bytes());
    bytes
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or_else(|| invalid_data("snapshot cut off"))?;
        self.0 = rest;
        Ok(*head)
    }

    fn i16(&mut self) -> io::Result<i16> {
        self.take().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> io::Result<i32> {
        self.take().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> io::Result<i64> {
        self.take().map(i64::from_be_bytes)
    }
}

/// `InvalidData` when the file is damaged.
pub fn decode_snapshot(bytes: &[u8]) -> io::Result<Vec<ProducerStateEntry>> {
    let mut fields = Fields(bytes);
    let version = fields.i16()?;
    if version != VERSION {
        return Err(invalid_data(format!("Snapshot contained an unknown file version {version}")));
    }
    let stored = u32::from_be_bytes(fields.take()?);
    let computed = crc32c(fields.0);
    if stored != computed {
        return Err(invalid_data(format!(
            "Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {computed}"
        )));
    }
    let count = fields.i32()?;
    let count = usize::try_from(count).ok().filter(|n| *n <= fields.0.len() / ENTRY_SIZE);
    let count = count.ok_or_else(|| invalid_data("Snapshot failed schema validation: entry count"))?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let producer_id = fields.i64()?;
        let producer_epoch = fields.i16()?;
        let last_sequence = fields.i32()?;
        let last_offset = fields.i64()?;
        let offset_delta = fields.i32()?;
        let timestamp = fields.i64()?;
        let coordinator_epoch = fields.i32()?;
        let current_txn_first_offset = Some(fields.i64()?).filter(|offset| *offset >= 0);
        let mut entry = ProducerStateEntry::new(
            producer_id,
            producer_epoch,
            coordinator_epoch,
            timestamp,
            current_txn_first_offset,
        );
        if last_offset >= 0 {
            let batch = BatchMetadata { last_sequence, last_offset, offset_delta, timestamp };
            entry.add_batch(producer_epoch, batch);
        }
        entries.push(entry);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `t-none-0/00000000000000000600.snapshot` of a 4.4.0 node after 600 idempotent records.
    const REFERENCE: &[u8] = include_bytes!("../../tests/fixtures/t-none-0/00000000000000000600.snapshot");

    #[test]
    fn the_references_snapshot_is_read_and_written_byte_for_byte() {
        let entries = decode_snapshot(REFERENCE).unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!((entries[0].last_sequence(), entries[0].last_data_offset()), (599, 599));
        assert_eq!(entries[0].current_txn_first_offset, None);
        assert_eq!(encode_snapshot(entries.iter()), REFERENCE);
    }

    #[test]
    fn every_damage_is_noticed() {
        for at in 0..REFERENCE.len() {
            let mut bytes = REFERENCE.to_vec();
            bytes[at] ^= 0x10;
            assert!(decode_snapshot(&bytes).is_err(), "flipped byte {at}");
            assert!(decode_snapshot(&REFERENCE[..at]).is_err(), "cut at {at}");
        }
    }
}
