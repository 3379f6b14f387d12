//! Snapshots of the metadata log: `NNNNNNNNNNNNNNNNNNNN-EEEEEEEEEE.checkpoint` (KIP-630).
//!
//! Owns the names, the writing through a `.part` file, and the reading. A snapshot is a sequence of record batches:
//! a control batch with SnapshotHeader (and, under `kraft.version` 1, KRaftVersion and KRaftVoters, KIP-853), data
//! batches, a control batch with SnapshotFooter.
//! Invariants: a file under its final name is whole, synced and never written again; ids only name committed ends.
//! Concurrency: one writer per id. Crash: leaves a `.part` file, which the next start removes, or the whole snapshot.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use env::{Env, File, FileSystem, OpenMode};
use protocol::records::raft::{KRaftVersionRecord, SnapshotFooterRecord, SnapshotHeaderRecord, VotersRecord};
use protocol::{Decoder, Encoder, Message};
use record::{
    BatchOptions, Batches, BufferSupplier, ControlRecordType, NoCodecs, RECORD_BATCH_OVERHEAD, RecordBatch,
    RecordBatchBuilder,
};

use crate::log_dir::sync_dir;
use crate::metadata_log::invalid_data;

/// Largest batch of a snapshot; readers of the reference allocate no more.
const MAX_BATCH_SIZE_BYTES: usize = 8 << 20;
/// Largest snapshot that is read; far beyond what a controller can hold in memory as an image.
const MAX_SNAPSHOT_BYTES: u64 = 8 << 30;

const SUFFIX: &str = ".checkpoint";
const PARTIAL_SUFFIX: &str = ".checkpoint.part";
const DELETED_SUFFIX: &str = ".checkpoint.deleted";

/// Where a snapshot ends: the offset behind its last record and that record's epoch. Later epochs are later snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SnapshotId {
    pub epoch: i32,
    pub end_offset: i64,
}

impl SnapshotId {
    /// The snapshot that formatting writes.
    pub const BOOTSTRAP: SnapshotId = SnapshotId { epoch: 0, end_offset: 0 };

    pub fn new(end_offset: i64, epoch: i32) -> Self {
        Self { epoch, end_offset }
    }

    fn stem(self) -> String {
        format!("{:020}-{:010}", self.end_offset, self.epoch)
    }

    pub fn file_name(self) -> String {
        self.stem() + SUFFIX
    }

    pub(crate) fn deleted_file_name(self) -> String {
        self.stem() + DELETED_SUFFIX
    }
}

/// What a file name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotFile {
    Whole(SnapshotId),
    /// Partial or marked for deletion.
    Leftover,
}

pub(crate) fn parse_file_name(name: &str) -> Option<SnapshotFile> {
    let leftover = name.ends_with(PARTIAL_SUFFIX) || name.ends_with(DELETED_SUFFIX);
    if !leftover && !name.ends_with(SUFFIX) {
        return None;
    }
    let end_offset = name.get(..20)?.parse().ok()?;
    let epoch = name.get(21..31)?.parse().ok()?;
    Some(if leftover {
        SnapshotFile::Leftover
    } else {
        SnapshotFile::Whole(SnapshotId { epoch, end_offset })
    })
}

/// What a snapshot's header batch says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SnapshotHeader {
    /// Append time of the last record the snapshot contains, milliseconds since the epoch.
    pub last_contained_log_timestamp: i64,
    /// `kraft.version` level.
    pub kraft_version: i16,
    pub voters: Option<VotersRecord>,
}

/// A snapshot file that is being written; dropped unfrozen it leaves its `.part` file for the next start to remove.
pub struct RawSnapshotWriter {
    env: Env,
    dir: PathBuf,
    id: SnapshotId,
    temporary: PathBuf,
    file: Arc<dyn File>,
    size: u64,
}

impl RawSnapshotWriter {
    pub fn create(env: &Env, dir: &Path, id: SnapshotId) -> io::Result<Self> {
        let temporary = dir.join(format!("{}-{}{PARTIAL_SUFFIX}", id.stem(), env.random.next_u64()));
        let file = env.fs.open(&temporary, OpenMode::CreateNew)?;
        Ok(Self { env: env.clone(), dir: dir.to_owned(), id, temporary, file, size: 0 })
    }

    pub fn id(&self) -> SnapshotId {
        self.id
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(bytes, self.size)?;
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// Makes the snapshot durable under its name; returns its size.
    pub fn freeze(self) -> io::Result<u64> {
        self.file.sync_all()?;
        let path = self.dir.join(self.id.file_name());
        self.env.fs.set_read_only(&self.temporary)?;
        self.env.fs.rename(&self.temporary, &path)?;
        sync_dir(&*self.env.fs, &self.dir)?;
        Ok(self.size)
    }

    /// Gives up.
    pub fn discard(self) -> io::Result<()> {
        self.env.fs.remove_file(&self.temporary)
    }
}

/// Writes a snapshot record by record, in the batches that the reference would write.
pub struct SnapshotWriter {
    raw: RawSnapshotWriter,
    next_offset: i64,
    pending: Option<RecordBatchBuilder>,
    pending_timestamp: i64,
    header: Option<Bytes>,
}

impl SnapshotWriter {
    pub fn create(env: &Env, dir: &Path, id: SnapshotId, header: &SnapshotHeader) -> io::Result<Self> {
        let raw = RawSnapshotWriter::create(env, dir, id)?;
        let mut records = vec![(
            ControlRecordType::SnapshotHeader,
            encode(&SnapshotHeaderRecord {
                version: 0,
                last_contained_log_timestamp: header.last_contained_log_timestamp,
            })?,
        )];
        if header.kraft_version > 0 {
            let version = KRaftVersionRecord { version: 0, k_raft_version: header.kraft_version };
            records.push((ControlRecordType::KRaftVersion, encode(&version)?));
            if let Some(voters) = &header.voters {
                records.push((ControlRecordType::KRaftVoters, encode(voters)?));
            }
        }
        let batch = control_batch(0, id.epoch, env.now().wall_ms, &records)?;
        let next_offset = i64::try_from(records.len()).map_err(invalid_data)?;
        Ok(Self { raw, next_offset, pending: None, pending_timestamp: 0, header: Some(batch) })
    }

    pub fn id(&self) -> SnapshotId {
        self.raw.id
    }

    /// Appends the records of one part of the image; they are never split over two batches.
    pub fn append(&mut self, records: &[Bytes]) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let timestamp = self.raw.env.now().wall_ms;
        let size: usize = records.iter().map(|record| record.len() + MAX_RECORD_OVERHEAD).sum();
        let used = self.pending.as_ref().map_or(RECORD_BATCH_OVERHEAD, RecordBatchBuilder::uncompressed_size);
        let overflows = self.pending.is_some() && used + size > MAX_BATCH_SIZE_BYTES;
        if overflows {
            self.drain()?;
        }
        let (epoch, base_offset) = (self.raw.id.epoch, self.next_offset);
        if self.pending.is_none() {
            self.pending_timestamp = timestamp;
        }
        let builder =
            self.pending.get_or_insert_with(|| RecordBatchBuilder::new(options(base_offset, epoch, false)));
        for record in records {
            builder.append(self.pending_timestamp, None, Some(record), &[]).map_err(invalid_data)?;
        }
        if builder.uncompressed_size() > MAX_BATCH_SIZE_BYTES {
            return Err(invalid_data(format!(
                "The total record(s) size of {} exceeds the maximum allowed batch size of {MAX_BATCH_SIZE_BYTES}",
                builder.uncompressed_size()
            )));
        }
        self.next_offset += i64::try_from(records.len()).map_err(invalid_data)?;
        // The reference writes out whatever is complete and what is gathered with it: the first part goes out with the
        // header, a part that overflowed a batch goes out behind it.
        if overflows || self.header.is_some() {
            self.drain()?;
        }
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        if let Some(header) = self.header.take() {
            self.raw.append(&header)?;
        }
        if let Some(builder) = self.pending.take() {
            let batch = builder.build(&NoCodecs).map_err(invalid_data)?;
            self.raw.append(&batch)?;
        }
        Ok(())
    }

    /// Writes the footer and makes the snapshot durable under its name; returns its size.
    pub fn freeze(mut self) -> io::Result<u64> {
        self.drain()?;
        let footer = [(ControlRecordType::SnapshotFooter, encode(&SnapshotFooterRecord { version: 0 })?)];
        let batch = control_batch(self.next_offset, self.raw.id.epoch, self.raw.env.now().wall_ms, &footer)?;
        self.raw.append(&batch)?;
        self.raw.freeze()
    }

    pub fn discard(self) -> io::Result<()> {
        self.raw.discard()
    }
}

/// More than any record adds to its value: five varints, attributes, header count.
const MAX_RECORD_OVERHEAD: usize = 24;

fn options(base_offset: i64, epoch: i32, is_control_batch: bool) -> BatchOptions {
    BatchOptions { base_offset, partition_leader_epoch: epoch, is_control_batch, ..BatchOptions::default() }
}

fn control_batch(
    base_offset: i64,
    epoch: i32,
    timestamp: i64,
    records: &[(ControlRecordType, Bytes)],
) -> io::Result<Bytes> {
    let mut builder = RecordBatchBuilder::new(options(base_offset, epoch, true));
    for (kind, value) in records {
        builder.append_control_record(timestamp, *kind, value).map_err(invalid_data)?;
    }
    builder.build(&NoCodecs).map_err(invalid_data)
}

fn encode(message: &impl Message) -> io::Result<Bytes> {
    let mut encoder = Encoder::new();
    message.encode(&mut encoder, 0).map_err(invalid_data)?;
    encoder.finish_contiguous().map_err(invalid_data)
}

/// A whole snapshot in memory.
#[derive(Clone, Debug)]
pub struct SnapshotReader {
    id: SnapshotId,
    bytes: Bytes,
    header: SnapshotHeader,
}

impl SnapshotReader {
    pub fn open(fs: &dyn FileSystem, dir: &Path, id: SnapshotId) -> io::Result<Self> {
        let path = dir.join(id.file_name());
        let bytes = Bytes::from(env::read_file(fs, &path, MAX_SNAPSHOT_BYTES)?);
        let corrupt =
            |cause: &dyn std::fmt::Display| invalid_data(format!("Snapshot {}: {cause}", path.display()));
        let mut end = 0;
        for batch in Batches::new(&bytes) {
            let batch = batch.map_err(|e| corrupt(&e))?;
            batch.ensure_valid().map_err(|e| corrupt(&e))?;
            end += batch.size_in_bytes();
        }
        if end != bytes.len() {
            return Err(corrupt(&format_args!("it is cut off at byte {}", bytes.len())));
        }
        let header = read_header(&bytes).map_err(|e| corrupt(&e))?;
        Ok(Self { id, bytes, header })
    }

    pub fn id(&self) -> SnapshotId {
        self.id
    }

    pub fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The values of the data records, batch by batch.
    pub fn batches(&self) -> io::Result<Vec<Vec<Bytes>>> {
        let mut all = Vec::new();
        for batch in Batches::new(&self.bytes) {
            let batch = batch.map_err(invalid_data)?;
            if batch.is_control_batch() {
                continue;
            }
            let records =
                batch.owned_records(&self.bytes, &NoCodecs, MAX_BATCH_SIZE_BYTES).map_err(invalid_data)?;
            all.push(records.into_iter().map(|record| record.value.unwrap_or_default()).collect());
        }
        Ok(all)
    }
}

/// What a snapshot's header says, without reading the rest.
pub(crate) fn read_snapshot_header(
    fs: &dyn FileSystem,
    dir: &Path,
    id: SnapshotId,
) -> io::Result<SnapshotHeader> {
    let file = fs.open(&dir.join(id.file_name()), OpenMode::Read)?;
    let len = file.len()?.min(MAX_BATCH_SIZE_BYTES as u64);
    let mut start = [0; 12];
    env::read_exact_at(&*file, &mut start, 0)?;
    // The size field follows the base offset and does not count the two.
    let [.., a, b, c, d] = start;
    let size = u64::from(u32::from_be_bytes([a, b, c, d])) + 12;
    let mut batch = vec![0; usize::try_from(size.min(len)).map_err(invalid_data)?];
    env::read_exact_at(&*file, &mut batch, 0)?;
    read_header(&Bytes::from(batch))
}

/// The header batch that starts a snapshot.
fn read_header(bytes: &Bytes) -> io::Result<SnapshotHeader> {
    let batch = RecordBatch::first(bytes).map_err(invalid_data)?;
    let Some(batch) = batch.filter(|batch| batch.is_control_batch()) else {
        return Err(invalid_data("it does not begin with a header batch"));
    };
    let mut header = None;
    let mut rest = SnapshotHeader::default();
    let mut buffers = BufferSupplier::new();
    for record in batch.records(&NoCodecs, &mut buffers).map_err(invalid_data)? {
        let record = record.map_err(invalid_data)?;
        let mut value = Decoder::new(Bytes::copy_from_slice(record.value.unwrap_or_default()));
        match ControlRecordType::parse(record.key.unwrap_or_default()).map_err(invalid_data)? {
            ControlRecordType::SnapshotHeader => {
                let read = SnapshotHeaderRecord::decode(&mut value, 0).map_err(invalid_data)?;
                header = Some(read.last_contained_log_timestamp);
            }
            ControlRecordType::KRaftVersion => {
                rest.kraft_version =
                    KRaftVersionRecord::decode(&mut value, 0).map_err(invalid_data)?.k_raft_version;
            }
            ControlRecordType::KRaftVoters => {
                rest.voters = Some(VotersRecord::decode(&mut value, 0).map_err(invalid_data)?);
            }
            _ => {}
        }
    }
    let timestamp = header.ok_or_else(|| invalid_data("its first record is not a header"))?;
    Ok(SnapshotHeader { last_contained_log_timestamp: timestamp, ..rest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Sim;

    #[test]
    fn names_round_trip() {
        let id = SnapshotId::new(1234, 7);
        assert_eq!(id.file_name(), "00000000000000001234-0000000007.checkpoint");
        assert_eq!(parse_file_name(&id.file_name()), Some(SnapshotFile::Whole(id)));
        assert_eq!(parse_file_name(&id.deleted_file_name()), Some(SnapshotFile::Leftover));
        assert_eq!(
            parse_file_name("00000000000000001234-0000000007-991.checkpoint.part"),
            Some(SnapshotFile::Leftover)
        );
        for other in ["00000000000000000000.log", "x.checkpoint", "leader-epoch-checkpoint"] {
            assert_eq!(parse_file_name(other), None, "{other}");
        }
    }

    #[test]
    fn a_snapshot_is_read_back_as_written_and_appears_only_when_frozen() {
        let sim = Sim::new(1);
        let (env, dir) = (sim.env(), Path::new("/data/__cluster_metadata-0"));
        env.fs.create_dir_all(dir).unwrap();
        let id = SnapshotId::new(10, 2);
        let header = SnapshotHeader { last_contained_log_timestamp: 5, kraft_version: 1, voters: None };
        let mut writer = SnapshotWriter::create(&env, dir, id, &header).unwrap();
        writer.append(&[Bytes::from_static(b"a"), Bytes::from_static(b"b")]).unwrap();
        writer.append(&[Bytes::from_static(b"c")]).unwrap();
        writer.append(&[Bytes::from_static(b"d")]).unwrap();
        assert!(SnapshotReader::open(&*env.fs, dir, id).is_err());
        let size = writer.freeze().unwrap();
        let reader = SnapshotReader::open(&*env.fs, dir, id).unwrap();
        assert_eq!((reader.header(), reader.size()), (&header, size));
        assert_eq!(&read_snapshot_header(&*env.fs, dir, id).unwrap(), reader.header());
        let values: Vec<Vec<&[u8]>> = vec![vec![b"a", b"b"], vec![b"c", b"d"]];
        assert_eq!(reader.batches().unwrap(), values);
    }

    #[test]
    fn a_damaged_snapshot_is_refused_and_never_panics() {
        let sim = Sim::new(1);
        let (env, dir) = (sim.env(), Path::new("/d"));
        env.fs.create_dir_all(dir).unwrap();
        let id = SnapshotId::new(10, 2);
        let mut writer = SnapshotWriter::create(&env, dir, id, &SnapshotHeader::default()).unwrap();
        writer.append(&[Bytes::from_static(b"abc")]).unwrap();
        writer.freeze().unwrap();
        let path = dir.join(id.file_name());
        let whole = env::read_file(&*env.fs, &path, 10_000).unwrap();
        for position in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[position] ^= 0x55;
            env::write_atomic(&*env.fs, &path, &damaged, false).unwrap();
            let read = SnapshotReader::open(&*env.fs, dir, id).and_then(|reader| reader.batches());
            let in_base_offset_or_epoch = [0..8, 12..16].iter().any(|r| r.contains(&position));
            // The checksum covers neither base offset nor leader epoch; everything else of the first batch is covered.
            assert!(read.is_err() || position >= 83 || in_base_offset_or_epoch, "position {position}");
            env::write_atomic(&*env.fs, &path, &whole[..position], false).unwrap();
            let cut = SnapshotReader::open(&*env.fs, dir, id).and_then(|reader| reader.batches());
            // Between two batches nothing shows that more should follow.
            assert!(cut.is_err() || position >= 83, "position {position}");
            let _ = read_snapshot_header(&*env.fs, dir, id);
        }
    }
}
