//! Checks of log directories that change nothing.
//!
//! Owns: [`verify_log_dir`] and [`verify_partition`]: what in a directory is not as it should be, and what a recovery
//! would cut. Invariants: files are opened for reading only; memory is bounded by the largest batch, one segment's
//! indexes and the producers of one partition. What recovery would keep is decided as recovery decides it.
//! Concurrency: for directories no node is using; a node that writes makes for findings that are none.
//! Crash: nothing is written.

mod indexes;
mod scan;
mod state;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use env::FileSystem;
use record::{Codecs, TopicPartition};

use crate::checkpoint;
use crate::names::{self, DirKind};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing, not wrong: a gap such as compaction leaves, a file that the next start removes.
    Note,
    /// Wrong; the next start, or the first reader, repairs it without loss.
    Repairable,
    /// Records are unreadable, or state is not what the records say.
    Damage,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Repairable => "repairable",
            Severity::Damage => "damage",
        }
    }
}

/// One thing in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    pub file: String,
    pub what: String,
}

/// Where a log ends for whoever recovers it, although its files go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Base offset of the segment that is cut.
    pub segment: i64,
    /// Bytes of it that stay.
    pub position: u32,
    /// The first offset that is gone.
    pub offset: i64,
    /// Bytes that go, those of later segments included.
    pub bytes: u64,
    /// Records in whole, valid batches among them.
    pub records: u64,
    /// Later segments that go.
    pub segments: usize,
    pub why: String,
    pub when: CutWhen,
}

/// Whether the cut will be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutWhen {
    /// The last stop was unclean, and the place is behind the recovery point.
    NextStart,
    /// Only if the log is recovered: the last stop was clean.
    AfterUncleanStop,
    /// It lies before the recovery point, where no recovery looks: readers fail there.
    Never,
}

impl CutWhen {
    pub fn name(self) -> &'static str {
        match self {
            CutWhen::NextStart => "next-start",
            CutWhen::AfterUncleanStop => "after-unclean-stop",
            CutWhen::Never => "never",
        }
    }
}

/// One partition's directory.
#[derive(Clone, Debug)]
pub struct PartitionReport {
    /// The directory's name.
    pub name: String,
    pub dir: PathBuf,
    pub segments: usize,
    /// Of all `.log` files.
    pub bytes: u64,
    pub log_start_offset: i64,
    /// The offset after the last record that can be read from the start without a break.
    pub next_offset: i64,
    pub batches: u64,
    pub records: u64,
    pub recovery_point: Option<i64>,
    pub cut: Option<Cut>,
    pub findings: Vec<Finding>,
}

impl PartitionReport {
    /// Whether everything is as it should be.
    pub fn is_good(&self) -> bool {
        self.cut.is_none() && self.findings.iter().all(|finding| finding.severity == Severity::Note)
    }
}

/// One of `log.dirs`.
#[derive(Clone, Debug)]
pub struct LogDirReport {
    pub dir: PathBuf,
    /// Stopped cleanly: the next start recovers nothing.
    pub had_clean_shutdown: bool,
    /// What concerns no single partition.
    pub findings: Vec<Finding>,
    pub partitions: Vec<PartitionReport>,
}

impl LogDirReport {
    pub fn is_good(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Note)
            && self.partitions.iter().all(PartitionReport::is_good)
    }
}

/// What a log directory's checkpoints say of one partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checkpoints {
    pub had_clean_shutdown: bool,
    pub recovery_point: Option<i64>,
    pub log_start_offset: Option<i64>,
    pub high_watermark: Option<i64>,
}

struct DirCheckpoints {
    recovery_points: BTreeMap<TopicPartition, i64>,
    log_starts: BTreeMap<TopicPartition, i64>,
    high_watermarks: BTreeMap<TopicPartition, i64>,
    had_clean_shutdown: bool,
}

impl DirCheckpoints {
    fn read(fs: &dyn FileSystem, dir: &Path, findings: &mut Vec<Finding>) -> io::Result<Self> {
        let mut offsets = |file: &str| match checkpoint::read_offset_checkpoint(fs, &dir.join(file)) {
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                let what = format!("it cannot be read and counts as empty: {e}");
                findings.push(Finding { severity: Severity::Repairable, file: file.to_owned(), what });
                Ok(BTreeMap::new())
            }
            other => other,
        };
        let recovery_points = offsets(names::RECOVERY_POINT_CHECKPOINT_FILE)?;
        let log_starts = offsets(names::LOG_START_OFFSET_CHECKPOINT_FILE)?;
        let high_watermarks = offsets(names::HIGH_WATERMARK_CHECKPOINT_FILE)?;
        offsets(CLEANER_CHECKPOINT_FILE)?;
        let had_clean_shutdown = checkpoint::read_clean_shutdown(fs, dir).unwrap_or_default().is_some();
        Ok(DirCheckpoints { recovery_points, log_starts, high_watermarks, had_clean_shutdown })
    }

    fn of(&self, partition: &TopicPartition) -> Checkpoints {
        Checkpoints {
            had_clean_shutdown: self.had_clean_shutdown,
            recovery_point: self.recovery_points.get(partition).copied(),
            log_start_offset: self.log_starts.get(partition).copied(),
            high_watermark: self.high_watermarks.get(partition).copied(),
        }
    }
}

const CLEANER_CHECKPOINT_FILE: &str = "cleaner-offset-checkpoint";

/// Checks a whole log directory: its checkpoints, and every partition in it that a node would open.
pub fn verify_log_dir(fs: &dyn FileSystem, dir: &Path, codecs: &dyn Codecs) -> io::Result<LogDirReport> {
    let mut findings = Vec::new();
    let checkpoints = DirCheckpoints::read(fs, dir, &mut findings)?;
    let mut partitions = Vec::new();
    let mut entries = fs.list(dir)?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let mut known = Vec::new();
    for entry in entries.into_iter().filter(|entry| entry.is_dir) {
        let Some(name) = entry.name.to_str().filter(|name| *name != names::REMOTE_LOG_INDEX_CACHE_DIR) else {
            continue;
        };
        let note =
            |what: &str| Finding { severity: Severity::Note, file: name.to_owned(), what: what.to_owned() };
        match names::parse_log_dir(name) {
            None => findings.push(Finding {
                severity: Severity::Damage,
                file: name.to_owned(),
                what: "it is no partition's directory, and a node refuses to start with it".to_owned(),
            }),
            Some((_, DirKind::Delete)) => {
                findings.push(note("a deleted partition; the next start removes it"))
            }
            Some((_, DirKind::Stray)) => findings.push(note("a stray partition; nothing reads it")),
            Some((partition, _)) => {
                let of_partition = checkpoints.of(&partition);
                partitions.push(verify_partition(fs, &dir.join(name), &of_partition, codecs)?);
                known.push(partition);
            }
        }
    }
    for partition in checkpoints.recovery_points.keys().filter(|partition| !known.contains(partition)) {
        findings.push(Finding {
            severity: Severity::Note,
            file: names::RECOVERY_POINT_CHECKPOINT_FILE.to_owned(),
            what: format!("it names {partition}, which is not here"),
        });
    }
    let had_clean_shutdown = checkpoints.had_clean_shutdown;
    Ok(LogDirReport { dir: dir.to_owned(), had_clean_shutdown, findings, partitions })
}

/// Checks one partition's directory; its checkpoints are read from the directory around it.
pub fn verify_partition_alone(
    fs: &dyn FileSystem,
    dir: &Path,
    codecs: &dyn Codecs,
) -> io::Result<PartitionReport> {
    let mut ignored = Vec::new();
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let partition = names::file_name(dir).and_then(names::parse_log_dir).map(|(partition, _)| partition);
    let checkpoints = match partition {
        Some(partition) => DirCheckpoints::read(fs, parent, &mut ignored)?.of(&partition),
        None => Checkpoints::default(),
    };
    verify_partition(fs, dir, &checkpoints, codecs)
}

/// Checks one partition's directory.
pub fn verify_partition(
    fs: &dyn FileSystem,
    dir: &Path,
    checkpoints: &Checkpoints,
    codecs: &dyn Codecs,
) -> io::Result<PartitionReport> {
    scan::Scan::new(fs, dir, checkpoints, codecs).run()
}
