//! One partition: its files, its batches from the first to the last, and where recovery would stop.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use env::{File, FileSystem, OpenMode};
use record::{BatchHeader, BufferSupplier, Codecs, MAGIC_VALUE_V2, RecordBatch};

use super::indexes::IndexCheck;
use super::state::StateCheck;
use super::{Checkpoints, Cut, CutWhen, Finding, PartitionReport, Severity};
use crate::checkpoint;
use crate::index::relative_offset;
use crate::log::recovery::BatchReader;
use crate::names::{
    self, CLEANED_FILE_SUFFIX, DELETED_FILE_SUFFIX, INDEX_FILE_SUFFIX, LOG_FILE_SUFFIX,
    PRODUCER_SNAPSHOT_FILE_SUFFIX, SWAP_FILE_SUFFIX, TIME_INDEX_FILE_SUFFIX, TXN_INDEX_FILE_SUFFIX,
};

/// Findings of one partition that are told; more of them say nothing new.
const MAX_FINDINGS: usize = 1000;

pub(super) struct Scan<'a> {
    fs: &'a dyn FileSystem,
    dir: &'a Path,
    checkpoints: &'a Checkpoints,
    codecs: &'a dyn Codecs,
    buffers: BufferSupplier,
    names: BTreeSet<String>,
    segments: Vec<i64>,
    state: StateCheck,
    report: PartitionReport,
}

/// What was found of one segment.
struct Walked {
    /// Bytes up to the first bad one.
    good: u32,
    size: u32,
    next_offset: i64,
    bad: Option<String>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        fs: &'a dyn FileSystem,
        dir: &'a Path,
        checkpoints: &'a Checkpoints,
        codecs: &'a dyn Codecs,
    ) -> Self {
        let report = PartitionReport {
            name: names::file_name(dir).unwrap_or_default().to_owned(),
            dir: dir.to_owned(),
            segments: 0,
            bytes: 0,
            log_start_offset: 0,
            next_offset: 0,
            batches: 0,
            records: 0,
            recovery_point: checkpoints.recovery_point,
            cut: None,
            findings: Vec::new(),
        };
        Scan {
            fs,
            dir,
            checkpoints,
            codecs,
            buffers: BufferSupplier::new(),
            names: BTreeSet::new(),
            segments: Vec::new(),
            state: StateCheck::default(),
            report,
        }
    }

    pub(super) fn run(mut self) -> io::Result<PartitionReport> {
        self.list_files()?;
        self.state.load_epochs(self.fs, self.dir, &mut self.report.findings)?;
        let mut segments = self.segments.clone().into_iter().peekable();
        self.report.segments = segments.len();
        let first = segments.peek().copied().unwrap_or(0);
        self.report.log_start_offset = self.checkpoints.log_start_offset.unwrap_or(0).max(first);
        self.report.next_offset = first;
        self.state.begin_at(first);
        while let Some(base) = segments.next() {
            if self.report.cut.is_some() {
                self.walk_lost_segment(base)?;
                continue;
            }
            let walked = self.walk_segment(base)?;
            self.report.next_offset = walked.next_offset;
            self.conclude(base, &walked, segments.peek().copied())?;
        }
        if self.report.cut.is_none() {
            self.check_snapshots(i64::MAX)?;
        }
        self.check_checkpoints();
        self.report.findings.truncate(MAX_FINDINGS);
        Ok(self.report)
    }

    fn find(&mut self, severity: Severity, file: impl Into<String>, what: impl Into<String>) {
        self.report.findings.push(Finding { severity, file: file.into(), what: what.into() });
    }

    fn list_files(&mut self) -> io::Result<()> {
        for entry in self.fs.list(self.dir)?.into_iter().filter(|entry| !entry.is_dir) {
            if let Ok(name) = entry.name.into_string() {
                self.names.insert(name);
            }
        }
        for name in self.names.clone() {
            self.list_file(&name)?;
        }
        self.segments.sort_unstable();
        if let Err(e) = checkpoint::read_partition_metadata(self.fs, self.dir) {
            self.find(Severity::Damage, names::PARTITION_METADATA_FILE, e.to_string());
        }
        Ok(())
    }

    fn list_file(&mut self, name: &str) -> io::Result<()> {
        let Some(base) = names::parse_offset(name) else { return Ok(()) };
        let log = names::segment_file(base, LOG_FILE_SUFFIX);
        if name == log {
            self.segments.push(base);
            self.report.bytes += self.fs.metadata(&self.dir.join(name))?.len;
        } else if name.ends_with(DELETED_FILE_SUFFIX) || name.ends_with(CLEANED_FILE_SUFFIX) {
            self.find(Severity::Note, name, "left over; the next start removes it");
        } else if name.ends_with(SWAP_FILE_SUFFIX) {
            self.find(Severity::Note, name, "a finished compaction; the next start puts it in place");
        } else if [INDEX_FILE_SUFFIX, TIME_INDEX_FILE_SUFFIX, TXN_INDEX_FILE_SUFFIX]
            .iter()
            .any(|suffix| name.ends_with(suffix))
            && !self.names.contains(&log)
        {
            self.find(Severity::Repairable, name, "an index without its log; the next start removes it");
        }
        Ok(())
    }

    fn open(&self, name: &str) -> io::Result<(std::sync::Arc<dyn File>, u32)> {
        let file = self.fs.open(&self.dir.join(name), OpenMode::Read)?;
        let size = u32::try_from(file.len()?).unwrap_or(u32::MAX);
        Ok((file, size))
    }

    fn walk_segment(&mut self, base: i64) -> io::Result<Walked> {
        let name = names::segment_file(base, LOG_FILE_SUFFIX);
        let (file, size) = self.open(&name)?;
        let mut walked = Walked { good: 0, size, next_offset: base.max(self.report.next_offset), bad: None };
        if i32::try_from(size).is_err() {
            self.find(
                Severity::Damage,
                &name,
                "it is longer than 2 GiB, and a node refuses to start with it",
            );
        }
        self.check_snapshots(base)?;
        let mut indexes = IndexCheck::load(self.fs, self.dir, base, &mut self.report.findings)?;
        let mut reader = BatchReader::new(&*file, u64::from(size));
        let mut gaps = Gaps::default();
        while walked.good < size {
            let batch = match reader.batch(u64::from(walked.good))? {
                Ok(Some(batch)) => batch,
                Ok(None) => {
                    walked.bad = Some("a batch is cut off".to_owned());
                    break;
                }
                Err(e) => {
                    walked.bad = Some(e.to_string());
                    break;
                }
            };
            if let Err(why) = check_batch(base, &batch, walked.next_offset) {
                walked.bad = Some(why);
                break;
            }
            gaps.add(walked.next_offset, batch.base_offset);
            self.take_batch(&name, &batch, walked.good, &mut indexes);
            walked.next_offset = batch.header().next_offset();
            walked.good += batch.header().size_in_bytes() as u32;
        }
        if let Some(what) = gaps.text() {
            self.find(Severity::Note, &name, what);
        }
        if walked.bad.is_none() {
            indexes.finish(&mut self.report.findings);
            self.state.end_of_segment(self.fs, self.dir, base, &mut self.report.findings)?;
        }
        Ok(walked)
    }

    /// A batch that recovery keeps.
    fn take_batch(&mut self, file: &str, batch: &RecordBatch<'_>, position: u32, indexes: &mut IndexCheck) {
        let header = batch.header();
        let contents = match read_records(batch, self.codecs, &mut self.buffers) {
            Ok(contents) => contents,
            Err(why) => {
                // The checksum is right: recovery keeps it, and readers cannot use it.
                self.find(Severity::Damage, file, format!("offset {}: {why}", header.base_offset));
                Contents {
                    count: u64::from(header.count_or_none().unwrap_or(0).unsigned_abs()),
                    marker: None,
                }
            }
        };
        indexes.batch(header, position, &mut self.report.findings);
        self.state.batch(header, contents.marker, &mut self.report.findings);
        self.report.batches += 1;
        self.report.records += contents.count;
    }

    /// Decides what a segment's end means for the log.
    fn conclude(&mut self, base: i64, walked: &Walked, next: Option<i64>) -> io::Result<()> {
        let name = names::segment_file(base, LOG_FILE_SUFFIX);
        if let Some(next) = next.filter(|next| walked.bad.is_none() && *next > walked.next_offset) {
            let what = format!(
                "offsets {} to {} are missing before the next segment: compaction leaves such gaps, and so does loss",
                walked.next_offset,
                next - 1
            );
            self.find(Severity::Note, &name, what);
        }
        let overlaps = next.is_some_and(|next| next < walked.next_offset);
        let why = match &walked.bad {
            Some(why) => why.clone(),
            None if overlaps => format!("the next segment begins before offset {}", walked.next_offset),
            None => return Ok(()),
        };
        let recovery_point = self.checkpoints.recovery_point.unwrap_or(0);
        // Recovery reads on from there; what lies before was synced.
        let is_recovered = walked.next_offset >= recovery_point;
        let when = match (is_recovered, self.checkpoints.had_clean_shutdown) {
            (false, _) => CutWhen::Never,
            (true, true) => CutWhen::AfterUncleanStop,
            (true, false) => CutWhen::NextStart,
        };
        let (file, _) = self.open(&name)?;
        self.report.cut = Some(Cut {
            segment: base,
            position: walked.good,
            offset: walked.next_offset,
            bytes: u64::from(walked.size - walked.good),
            records: readable_behind(&*file, walked.good, walked.size, self.codecs, &mut self.buffers),
            segments: 0,
            why,
            when,
        });
        Ok(())
    }

    fn walk_lost_segment(&mut self, base: i64) -> io::Result<()> {
        let (file, size) = self.open(&names::segment_file(base, LOG_FILE_SUFFIX))?;
        let records = readable_in(&*file, 0, size, self.codecs, &mut self.buffers);
        if let Some(cut) = &mut self.report.cut {
            cut.bytes += u64::from(size);
            cut.records += records;
            cut.segments += 1;
        }
        Ok(())
    }

    /// Compares the producer snapshots up to `offset` that were not looked at yet.
    fn check_snapshots(&mut self, offset: i64) -> io::Result<()> {
        let at_end = offset == i64::MAX;
        let reached = if at_end { self.report.next_offset } else { offset };
        let snapshots: Vec<i64> = self
            .names
            .iter()
            .filter(|name| name.ends_with(PRODUCER_SNAPSHOT_FILE_SUFFIX))
            .filter_map(|name| names::parse_offset(name))
            .filter(|snapshot| if at_end { *snapshot >= reached } else { *snapshot == reached })
            .collect();
        for snapshot in snapshots {
            let name = names::segment_file(snapshot, PRODUCER_SNAPSHOT_FILE_SUFFIX);
            if snapshot > reached {
                let what =
                    format!("it is of an offset behind the log's end {reached}; the next start removes it");
                self.find(Severity::Repairable, name, what);
                continue;
            }
            self.state.compare_snapshot(self.fs, self.dir, &name, &mut self.report.findings)?;
        }
        Ok(())
    }

    fn check_checkpoints(&mut self) {
        let end = self.report.next_offset;
        let first = self.segments.first().copied().unwrap_or(0);
        let checkpoints = *self.checkpoints;
        let mut too_high = |file: &str, what: &str, offset: Option<i64>, severity: Severity| {
            if let Some(offset) = offset.filter(|offset| *offset > end) {
                let what = format!("{what} {offset} is behind the log's readable end {end}");
                self.report.findings.push(Finding { severity, file: file.to_owned(), what });
            }
        };
        // A log that ends before a point up to which it was synced has lost records.
        too_high(
            names::RECOVERY_POINT_CHECKPOINT_FILE,
            "the recovery point",
            checkpoints.recovery_point,
            Severity::Damage,
        );
        too_high(
            names::HIGH_WATERMARK_CHECKPOINT_FILE,
            "the high watermark",
            checkpoints.high_watermark,
            Severity::Damage,
        );
        too_high(
            names::LOG_START_OFFSET_CHECKPOINT_FILE,
            "the log start offset",
            checkpoints.log_start_offset,
            Severity::Damage,
        );
        if checkpoints.log_start_offset.is_some_and(|start| start < first) {
            let what = format!("the log start offset lies before the first segment {first}");
            self.find(Severity::Note, names::LOG_START_OFFSET_CHECKPOINT_FILE, what);
        }
    }
}

/// Offsets that no batch has, inside one segment.
#[derive(Default)]
struct Gaps {
    first: Option<(i64, i64)>,
    count: u64,
    offsets: i64,
}

impl Gaps {
    fn add(&mut self, expected: i64, found: i64) {
        if found > expected {
            self.first.get_or_insert((expected, found - 1));
            self.count += 1;
            self.offsets = self.offsets.saturating_add(found - expected);
        }
    }

    fn text(&self) -> Option<String> {
        let (from, to) = self.first?;
        Some(format!(
            "{} offsets are missing at {} places, first {from} to {to}: compaction leaves such gaps, and so does loss",
            self.offsets, self.count
        ))
    }
}

/// What recovery checks of a batch.
fn check_batch(base: i64, batch: &RecordBatch<'_>, next_offset: i64) -> Result<(), String> {
    let last_offset = batch.last_offset();
    if batch.base_offset < next_offset || last_offset < batch.base_offset {
        return Err(format!("offsets {} to {last_offset} do not follow {next_offset}", batch.base_offset));
    }
    if relative_offset(base, last_offset).is_none() {
        return Err(format!("offset {last_offset} is too far from the segment's base"));
    }
    batch.ensure_valid().map_err(|e| e.to_string())
}

struct Contents {
    count: u64,
    /// Of a control batch that ends a transaction: whether it commits.
    marker: Option<bool>,
}

/// Reads every record, as a consumer will.
fn read_records(
    batch: &RecordBatch<'_>,
    codecs: &dyn Codecs,
    buffers: &mut BufferSupplier,
) -> Result<Contents, String> {
    let header = *batch.header();
    let mut contents = Contents { count: 0, marker: None };
    let mut next = i64::MIN;
    let records = batch.records(codecs, buffers).map_err(|e| e.to_string())?;
    for record in records {
        let record = record.map_err(|e| e.to_string())?;
        if record.offset < next || record.offset > header.last_offset() {
            return Err(format!("record {} is not at its place in the batch", record.offset));
        }
        next = record.offset + 1;
        contents.count += 1;
        if header.is_control_batch()
            && let Some(key) = record.key
        {
            contents.marker = match record::ControlRecordType::parse(key) {
                Ok(record::ControlRecordType::Commit) => Some(true),
                Ok(record::ControlRecordType::Abort) => Some(false),
                Ok(_) => None,
                Err(e) => return Err(e.to_string()),
            };
        }
    }
    if header.magic >= MAGIC_VALUE_V2
        && header.count_or_none().is_some_and(|count| i64::from(count) != contents.count.cast_signed())
    {
        return Err(format!("{} records instead of {:?}", contents.count, header.count_or_none()));
    }
    Ok(contents)
}

/// Records of whole, valid batches from `position` on, up to the first that is not.
fn readable_in(
    file: &dyn File,
    position: u32,
    size: u32,
    codecs: &dyn Codecs,
    buffers: &mut BufferSupplier,
) -> u64 {
    let mut reader = BatchReader::new(file, u64::from(size));
    let (mut position, mut records) = (position, 0);
    while position < size {
        let Ok(Ok(Some(batch))) = reader.batch(u64::from(position)) else { return records };
        if !batch.is_valid() {
            return records;
        }
        records += read_records(&batch, codecs, buffers).map_or(0, |contents| contents.count);
        position += batch.header().size_in_bytes() as u32;
    }
    records
}

/// The same behind a bad batch, whose length may still be right.
fn readable_behind(
    file: &dyn File,
    position: u32,
    size: u32,
    codecs: &dyn Codecs,
    buffers: &mut BufferSupplier,
) -> u64 {
    let mut bytes = [0; record::RECORD_BATCH_OVERHEAD];
    let behind = (|| {
        env::read_exact_at(file, &mut bytes, u64::from(position)).ok()?;
        let header = BatchHeader::parse(&bytes).ok().flatten()?;
        position.checked_add(u32::try_from(header.size_in_bytes()).ok()?)
    })();
    match behind.filter(|behind| *behind < size) {
        Some(behind) => readable_in(file, behind, size, codecs, buffers),
        // Whole batches that do not follow what is before them.
        None => readable_in(file, position, size, codecs, buffers),
    }
}
