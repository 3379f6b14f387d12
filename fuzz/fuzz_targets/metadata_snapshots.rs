//! Snapshots of the metadata log (`.checkpoint`) as they are found on disk: the bytes as they are, with the checksums
//! put right, and as records in a snapshot that is otherwise whole. What is accepted becomes an image.
#![no_main]

use std::path::Path;

use bytes::Bytes;
use env::FileSystem;
use fuzz::disk::{self, Choices};
use libfuzzer_sys::fuzz_target;
use metadata::{MetadataLoader, MetadataProvenance, VersionedRecord};
use storage::metadata_log::snapshot::{SnapshotHeader, SnapshotId, SnapshotReader, SnapshotWriter};
use testkit::Sim;

const HEADER: usize = 61;
/// Records per snapshot that are made here.
const MAX_RECORDS: usize = 32;

fuzz_target!(|data: &[u8]| {
    let Some((&mode, data)) = data.split_first() else { return };
    let sim = Sim::new(1);
    let (dir, id) = (Path::new("/"), SnapshotId::new(10, 2));
    match mode % 3 {
        0 => disk::put(&sim, &dir.join(id.file_name()), data),
        1 => disk::put(&sim, &dir.join(id.file_name()), &with_checksums(data.to_vec())),
        _ => write(&sim, dir, id, Choices(data)),
    }
    let Ok(reader) = SnapshotReader::open(&*sim.fs, dir, id) else {
        assert!(mode % 3 < 2, "what was written is readable");
        return;
    };
    let Ok(batches) = reader.batches() else { return };
    let records: Result<Vec<_>, _> = batches.into_iter().flatten().map(VersionedRecord::decode).collect();
    let Ok(records) = records else { return };
    let provenance = MetadataProvenance {
        last_contained_offset: 9,
        last_contained_epoch: 2,
        last_contained_log_time_ms: reader.header().last_contained_log_timestamp,
        is_offset_batch_aligned: true,
    };
    let mut loader = MetadataLoader::default();
    if loader.load_snapshot(provenance, &records).is_ok() {
        // The same records as commits on top of the image.
        let _ = loader.load_batch(10, 2, 0, &records);
        let _ = loader.flush();
    }
});

/// Puts the size and the checksum of each batch right, as far as there is one.
fn with_checksums(mut content: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while let Some(batch) = content.get_mut(at..).filter(|rest| rest.len() >= HEADER) {
        let size = i32::from_be_bytes(batch[8..12].try_into().expect("four bytes"));
        let size = usize::try_from(size).map_or(batch.len(), |size| size.saturating_add(12));
        let size = size.clamp(HEADER, batch.len());
        batch[8..12].copy_from_slice(&(size as i32 - 12).to_be_bytes());
        batch[16] = 2;
        let crc = record::crc::crc32c(&batch[21..size]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        at += size;
    }
    content
}

/// A snapshot with these records: each a length and its bytes.
fn write(sim: &Sim, dir: &Path, id: SnapshotId, mut choices: Choices<'_>) {
    let mut records = Vec::new();
    while !choices.is_empty() && records.len() < MAX_RECORDS {
        let len = usize::from(choices.byte()).min(choices.0.len());
        let (record, rest) = choices.0.split_at(len);
        records.push(Bytes::copy_from_slice(record));
        choices.0 = rest;
    }
    let mut writer =
        SnapshotWriter::create(&sim.env(), dir, id, &SnapshotHeader::default()).expect("writable");
    writer.append(&records).expect("small");
    writer.freeze().expect("writable");
    let size = sim.fs.metadata(&dir.join(id.file_name())).expect("the snapshot is there").len;
    assert!(size > 0);
}
