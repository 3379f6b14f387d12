//! Call sites of the file system: which operation on which kind of file, and what can go wrong there.
//!
//! Owns: [`Site`], the names of kinds of files, and [`Failure`], the ways in which a call fails.
//! Invariants: a site's name says nothing of offsets, topics or ids, so that equal steps have equal names.
//! Concurrency and crash: values.

use std::fmt;
use std::io;
use std::path::Path;

use crate::fs::Op;

/// One operation on one kind of file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub op: Op,
    /// As in `.log`, `partition directory`, `leader-epoch-checkpoint.tmp`.
    pub file: String,
}

impl Site {
    pub(crate) fn of(op: Op, path: &Path) -> Site {
        Site { op, file: kind_of(path) }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.op.verb(), self.file)
    }
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// EIO: the device does not answer. A write may have got half way; a sync has lost its pages.
    Device,
    /// ENOSPC. A sync can fail so too, where blocks are given out late.
    Full,
    /// EMFILE: the process has too many open files.
    TooManyFiles,
}

impl Failure {
    pub const ALL: [Failure; 3] = [Failure::Device, Failure::Full, Failure::TooManyFiles];

    pub fn name(self) -> &'static str {
        match self {
            Failure::Device => "EIO",
            Failure::Full => "ENOSPC",
            Failure::TooManyFiles => "EMFILE",
        }
    }

    /// The error a program sees.
    pub fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Failure::Device => 5,
            Failure::Full => 28,
            Failure::TooManyFiles => 24,
        })
    }

    /// Whether an operation can fail like this.
    pub fn strikes(self, op: Op) -> bool {
        match self {
            Failure::Device => true,
            Failure::Full => matches!(
                op,
                Op::Create | Op::Write | Op::SetLen | Op::Sync | Op::SyncDir | Op::Rename | Op::CreateDir
            ),
            // Syncing a directory opens it first.
            Failure::TooManyFiles => matches!(op, Op::Open | Op::Create | Op::List | Op::SyncDir),
        }
    }
}

/// The name of a kind of file: its suffix where its name begins with an offset, its name otherwise.
pub fn kind_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (stem, suffix) = name.split_once('.').unwrap_or((&name, ""));
    if !stem.is_empty() && stem.bytes().all(|b| b.is_ascii_digit()) {
        return format!(".{suffix}");
    }
    for (ending, kind) in [("-delete", "deleted"), ("-stray", "stray"), ("-future", "future")] {
        if name.ends_with(ending) {
            return format!("{kind} partition directory");
        }
    }
    let is_partition = |name: &str| {
        let digits = name.rsplit_once('-').map_or("", |(_, digits)| digits);
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    };
    if is_partition(&name) {
        return "partition directory".to_owned();
    }
    if name.contains('-') || name.contains('.') { name.into_owned() } else { "log directory".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_files_have_names_without_offsets_and_topics() {
        for (path, kind) in [
            ("/d/t-0/00000000000000000042.log", ".log"),
            ("/d/t-0/00000000000000000042.timeindex.deleted", ".timeindex.deleted"),
            ("/d/t-0", "partition directory"),
            ("/d/a.b-12", "partition directory"),
            ("/d/a.b-12.0f-delete", "deleted partition directory"),
            ("/d/a-0.0f-future", "future partition directory"),
            ("/d/t-0/leader-epoch-checkpoint.tmp", "leader-epoch-checkpoint.tmp"),
            ("/d/.lock", ".lock"),
            ("/d", "log directory"),
        ] {
            assert_eq!(kind_of(Path::new(path)), kind, "{path}");
        }
    }
}
