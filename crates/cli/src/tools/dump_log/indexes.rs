//! Offset and time indexes (checked against their log), the index of aborted transactions, producer snapshots.
//!
//! Entries are read as they are in the file. The index of a segment that is being written ends in zeros, and the
//! reference searches it all the same: the search here is its search, step by step, since what it finds among zeros
//! shows in the output.

use std::path::{Path, PathBuf};

use compression::KafkaCodecs;
use record::BufferSupplier;
use storage::producer::decode_snapshot;

use super::log_file::{FoundBatch, LogFile, broken};
use super::segment::parse_offset;
use super::{Findings, Settings, Uncaught, note};
use crate::io::Io;

const OFFSET_ENTRY: usize = 8;
const TIME_ENTRY: usize = 12;
const TRANSACTION_ENTRY: usize = 34;
/// Bytes at an index's end that the reference looks at first.
const WARM_BYTES: usize = 8192;

fn sibling(path: &Path, stem: &str, suffix: &str) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.with_file_name(format!("{stem}{suffix}"))
}

fn stem_of(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

fn read(path: &Path) -> Result<Vec<u8>, Uncaught> {
    std::fs::read(path).map_err(|error| Uncaught::io(path, &error))
}

/// The reference creates an index that is missing, and fails over the size it should get; the message is all we share.
fn read_index(path: &Path) -> Result<Vec<u8>, Uncaught> {
    match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Uncaught::new("java.lang.IllegalArgumentException", "Invalid max index size: -1"))
        }
        read => read.map_err(|error| Uncaught::io(path, &error)),
    }
}

fn corrupt(message: String) -> Uncaught {
    Uncaught::new("org.apache.kafka.storage.internals.log.CorruptIndexException", message)
}

fn be_i32(bytes: &[u8], at: usize) -> i64 {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>);
    field.map_or(0, |field| i64::from(i32::from_be_bytes(*field)))
}

fn be_i64(bytes: &[u8], at: usize) -> i64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk::<8>).map_or(0, |field| i64::from_be_bytes(*field))
}

struct OffsetIndex {
    base_offset: i64,
    bytes: Vec<u8>,
}

impl OffsetIndex {
    fn entries(&self) -> usize {
        self.bytes.len() / OFFSET_ENTRY
    }

    fn offset(&self, slot: usize) -> i64 {
        self.base_offset.wrapping_add(be_i32(&self.bytes, slot * OFFSET_ENTRY))
    }

    fn position(&self, slot: usize) -> i64 {
        be_i32(&self.bytes, slot * OFFSET_ENTRY + 4)
    }

    /// Position of the last entry at or below `target`, in the reference's order of search.
    fn lookup(&self, target: i64) -> i64 {
        let Some(last) = self.entries().checked_sub(1) else { return 0 };
        let first_warm = last.saturating_sub(WARM_BYTES / OFFSET_ENTRY);
        let (mut low, mut high) = match self.offset(first_warm) < target {
            true => (first_warm, last),
            false if self.offset(0) > target => return 0,
            false => (0, first_warm),
        };
        while low < high {
            let middle = (low + high).div_ceil(2);
            match self.offset(middle).cmp(&target) {
                std::cmp::Ordering::Greater => high = middle - 1,
                std::cmp::Ordering::Less => low = middle,
                std::cmp::Ordering::Equal => return self.position(middle),
            }
        }
        self.position(low)
    }

    fn check_sanity(&self, path: &Path) -> Result<(), Uncaught> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        if let Some(last) = self.entries().checked_sub(1)
            && self.offset(last) < self.base_offset
        {
            return Err(corrupt(format!(
                "Corrupt index found, index file {} has non-zero size but the last offset is {} which is less than \
                 the base offset {}",
                path.display(),
                self.offset(last),
                self.base_offset
            )));
        }
        if !self.bytes.len().is_multiple_of(OFFSET_ENTRY) {
            return Err(corrupt(format!(
                "Index file {} is corrupt, found {} bytes which is neither positive nor a multiple of 8",
                path.display(),
                self.bytes.len()
            )));
        }
        Ok(())
    }
}

/// The first batch of a slice of the log, as the reference slices it.
fn first_batch(log: &LogFile<'_>, path: &Path, position: i64, size: i32) -> Result<FoundBatch, Uncaught> {
    let illegal = |message: String| Uncaught::new("java.lang.IllegalArgumentException", message);
    let shown = path.display();
    let start = u64::try_from(position)
        .map_err(|_| illegal(format!("Invalid position: {position} in read from {shown}")))?;
    if start > log.length() {
        return Err(illegal(format!(
            "Slice from position {position} exceeds end position of FileRecords(size={}, file={shown}, start=0, end={})",
            log.length(),
            i32::MAX
        )));
    }
    let size =
        u64::try_from(size).map_err(|_| illegal(format!("Invalid size: {size} in read from {shown}")))?;
    match log.batch_at(start, start.saturating_add(size))? {
        Some(found) => Ok(found),
        None => Err(Uncaught { exception: "java.util.NoSuchElementException", message: None }),
    }
}

pub(super) fn dump_offset_index(
    path: &Path,
    name: &str,
    settings: &Settings,
    findings: &mut Findings,
    io: &mut Io,
) -> Result<(), Uncaught> {
    let stem = stem_of(name);
    let base_offset = parse_offset(stem)?;
    let log_path = sibling(path, stem, ".log");
    let log = LogFile::open(&log_path)?;
    let index = OffsetIndex { base_offset, bytes: read_index(path)? };
    if index.entries() == 0 {
        io.line(format!("{} is empty.", path.display()));
        return Ok(());
    }
    if settings.checks_sanity_only {
        index.check_sanity(path)?;
        io.line(format!("{} passed sanity check.", path.display()));
        return Ok(());
    }
    for slot in 0..index.entries() {
        let (offset, position) = (index.offset(slot), index.position(slot));
        if offset == base_offset && slot > 0 {
            return Ok(());
        }
        let found = first_batch(&log, &log_path, position, settings.max_message_size)?;
        let last_offset = found.batch()?.last_offset();
        if last_offset != offset {
            note(&mut findings.index_mismatches, path, (offset, last_offset));
        }
        if !settings.verifies_only {
            io.line(format!("offset: {offset} position: {position}"));
        }
    }
    Ok(())
}

fn check_time_index(path: &Path, base_offset: i64, bytes: &[u8]) -> Result<(), Uncaught> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if let Some(last) = (bytes.len() / TIME_ENTRY).checked_sub(1) {
        let (first_timestamp, last_timestamp) = (be_i64(bytes, 0), be_i64(bytes, last * TIME_ENTRY));
        let last_offset = base_offset.wrapping_add(be_i32(bytes, last * TIME_ENTRY + 8));
        if last_timestamp < first_timestamp {
            return Err(corrupt(format!(
                "Corrupt time index found, time index file ({}) has non-zero size but the last timestamp is \
                 {last_timestamp} which is less than the first timestamp {first_timestamp}",
                path.display()
            )));
        }
        if last_offset < base_offset {
            return Err(corrupt(format!(
                "Corrupt time index found, time index file ({}) has non-zero size but the last offset is \
                 {last_offset} which is less than the first offset {base_offset}",
                path.display()
            )));
        }
    }
    if !bytes.len().is_multiple_of(TIME_ENTRY) {
        return Err(corrupt(format!(
            "Time index file {} is corrupt, found {} bytes which is neither positive nor a multiple of 12",
            path.display(),
            bytes.len()
        )));
    }
    Ok(())
}

pub(super) fn dump_time_index(
    path: &Path,
    name: &str,
    settings: &Settings,
    findings: &mut Findings,
    io: &mut Io,
) -> Result<(), Uncaught> {
    let stem = stem_of(name);
    let base_offset = parse_offset(stem)?;
    let log_path = sibling(path, stem, ".log");
    let log = LogFile::open(&log_path)?;
    let index = OffsetIndex { base_offset, bytes: read_index(&sibling(path, stem, ".index"))? };
    let bytes = read_index(path)?;
    if settings.checks_sanity_only {
        check_time_index(path, base_offset, &bytes)?;
        io.line(format!("{} passed sanity check.", path.display()));
        return Ok(());
    }
    let mut previous_timestamp = -1;
    for (slot, entry) in bytes.chunks_exact(TIME_ENTRY).enumerate() {
        let timestamp = be_i64(entry, 0);
        let offset = base_offset.wrapping_add(be_i32(entry, 8));
        if offset == base_offset && slot > 0 {
            return Ok(());
        }
        match find_offset(&log, index.lookup(offset), offset)? {
            Some(found) if found.batch()?.last_offset() == offset => {
                let newest = newest_timestamp(&found)?;
                if newest != timestamp {
                    note(&mut findings.time_index_mismatches, path, (timestamp, newest));
                }
                if previous_timestamp >= timestamp {
                    note(&mut findings.out_of_order_timestamps, path, (timestamp, previous_timestamp));
                }
            }
            Some(found) => {
                note(&mut findings.offsets_not_found, path, (offset, found.batch()?.last_offset()));
            }
            None => note(&mut findings.offsets_not_found, path, (offset, -1)),
        }
        if !settings.verifies_only {
            io.line(format!("timestamp: {timestamp} offset: {offset}"));
        }
        previous_timestamp = timestamp;
    }
    Ok(())
}

/// The first batch from `position` on whose last offset is not below `offset`.
fn find_offset(log: &LogFile<'_>, position: i64, offset: i64) -> Result<Option<FoundBatch>, Uncaught> {
    let mut position = u64::try_from(position).unwrap_or(u64::MAX);
    while let Some(found) = log.batch_at(position, log.length())? {
        if found.batch()?.last_offset() >= offset {
            return Ok(Some(found));
        }
        position = found.position + found.size();
    }
    Ok(None)
}

fn newest_timestamp(found: &FoundBatch) -> Result<i64, Uncaught> {
    let mut buffers = BufferSupplier::new();
    let batch = found.batch()?;
    let records = batch.records(&KafkaCodecs, &mut buffers).map_err(|error| broken(&error))?;
    let mut newest = -1;
    for record in records {
        newest = newest.max(record.map_err(|error| broken(&error))?.timestamp);
    }
    Ok(newest)
}

pub(super) fn dump_transaction_index(path: &Path, io: &mut Io) -> Result<(), Uncaught> {
    let bytes = read(path)?;
    for entry in bytes.chunks_exact(TRANSACTION_ENTRY) {
        let version = entry.first_chunk::<2>().map_or(0, |version| i16::from_be_bytes(*version));
        if version != 0 {
            let shown = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            return Err(Uncaught::new(
                "org.apache.kafka.common.KafkaException",
                format!(
                    "Unexpected aborted transaction version {version} in transaction index {}, supported version \
                     range is 0 to 0",
                    shown.display()
                ),
            ));
        }
        io.line(format!(
            "version: {version} producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
            be_i64(entry, 2),
            be_i64(entry, 10),
            be_i64(entry, 18),
            be_i64(entry, 26)
        ));
    }
    Ok(())
}

pub(super) fn dump_producer_snapshot(path: &Path, io: &mut Io) -> Result<(), Uncaught> {
    let entries = match decode_snapshot(&read(path)?) {
        Ok(entries) => entries,
        Err(error) => {
            io.error_line(error.to_string());
            return Ok(());
        }
    };
    for entry in entries {
        let first_offset = match entry.current_txn_first_offset {
            Some(offset) => format!("OptionalLong[{offset}]"),
            None => "OptionalLong.empty".to_owned(),
        };
        io.print(format!(
            "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {first_offset} \
             lastTimestamp: {}",
            entry.producer_id, entry.producer_epoch, entry.coordinator_epoch, entry.last_timestamp
        ));
        if let Some(batch) = entry.batches().first() {
            io.print(format!(
                " firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
                batch.first_sequence(),
                batch.last_sequence,
                batch.last_offset,
                batch.offset_delta,
                batch.timestamp
            ));
        }
        io.line("");
    }
    Ok(())
}
