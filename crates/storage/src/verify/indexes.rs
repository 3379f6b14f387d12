//! One segment's offset and time index against its log.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use env::FileSystem;
use record::BatchHeader;

use super::{Finding, Severity};
use crate::index::{IndexEntry, OffsetPosition, TimestampOffset};
use crate::names::{INDEX_FILE_SUFFIX, TIME_INDEX_FILE_SUFFIX, segment_file};

/// `segment.index.bytes` may be 2 GiB, but no index of a segment of 2 GiB gets near this.
const MAX_INDEX_BYTES: u64 = 512 << 20;

/// Entries that wait for their batch.
struct Entries<E> {
    file: String,
    waiting: VecDeque<E>,
    /// One finding per index is enough: the whole is rebuilt.
    is_wrong: bool,
}

impl<E: IndexEntry> Entries<E> {
    fn load(
        fs: &dyn FileSystem,
        dir: &Path,
        base: i64,
        suffix: &str,
        findings: &mut Vec<Finding>,
    ) -> io::Result<Self> {
        let file = segment_file(base, suffix);
        let mut entries = Entries { waiting: VecDeque::new(), is_wrong: false, file };
        let bytes = match env::read_file(fs, &dir.join(&entries.file), MAX_INDEX_BYTES) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(entries),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                entries.wrong("it is far too long", findings);
                return Ok(entries);
            }
            Err(e) => return Err(e),
        };
        let whole = bytes.chunks_exact(E::SIZE);
        if !whole.remainder().is_empty() {
            entries.wrong("its length is no multiple of an entry's", findings);
        }
        let mut rising = true;
        for entry in whole.map_while(|bytes| E::decode(bytes, base)) {
            let last = entries.waiting.back();
            if entry.is_blank(base) && last.is_some_and(|last| entry.key() <= last.key()) {
                // Preallocated by the reference, whose last stop was unclean.
                break;
            }
            rising &= last.is_none_or(|last| entry.key() > last.key() && entry.value() >= last.value());
            entries.waiting.push_back(entry);
        }
        if entries.waiting.len() == 1 && entries.waiting.front().is_some_and(|entry| entry.is_blank(base)) {
            entries.waiting.clear();
        }
        if !rising {
            entries.wrong("its entries do not rise", findings);
        }
        Ok(entries)
    }

    fn wrong(&mut self, what: impl Into<String>, findings: &mut Vec<Finding>) {
        if !std::mem::replace(&mut self.is_wrong, true) {
            let (file, what) = (self.file.clone(), what.into());
            findings.push(Finding { severity: Severity::Repairable, file, what });
        }
    }
}

pub(super) struct IndexCheck {
    offsets: Entries<OffsetPosition>,
    /// Indexed last offsets of batches that come after the one that was indexed: old followers indexed several batches
    /// at once, by the last one's last offset.
    later: VecDeque<i64>,
    times: Entries<TimestampOffset>,
    max_timestamp: i64,
}

impl IndexCheck {
    pub(super) fn load(
        fs: &dyn FileSystem,
        dir: &Path,
        base: i64,
        findings: &mut Vec<Finding>,
    ) -> io::Result<Self> {
        Ok(IndexCheck {
            offsets: Entries::load(fs, dir, base, INDEX_FILE_SUFFIX, findings)?,
            times: Entries::load(fs, dir, base, TIME_INDEX_FILE_SUFFIX, findings)?,
            later: VecDeque::new(),
            max_timestamp: -1,
        })
    }

    /// The next batch of the log.
    pub(super) fn batch(&mut self, header: &BatchHeader, position: u32, findings: &mut Vec<Finding>) {
        self.max_timestamp = self.max_timestamp.max(header.max_timestamp);
        let last_offset = header.last_offset();
        while let Some(entry) =
            self.offsets.waiting.front().copied().filter(|entry| entry.position <= position)
        {
            self.offsets.waiting.pop_front();
            if entry.position == position && entry.offset > last_offset {
                self.later.push_back(entry.offset);
            } else if entry.position < position || entry.offset < last_offset {
                let what = format!(
                    "offset {} is said to be at {}, where no such batch begins",
                    entry.offset, entry.position
                );
                self.offsets.wrong(what, findings);
            }
        }
        while let Some(offset) = self.later.front().copied().filter(|offset| *offset <= last_offset) {
            self.later.pop_front();
            if offset < last_offset {
                self.offsets
                    .wrong(format!("offset {offset} is said to be a batch's last, but is none"), findings);
            }
        }
        while let Some(entry) =
            self.times.waiting.front().copied().filter(|entry| entry.offset <= last_offset)
        {
            self.times.waiting.pop_front();
            if entry.timestamp != self.max_timestamp {
                let what = format!(
                    "the largest timestamp up to offset {} is said to be {}, but it is {}",
                    entry.offset, entry.timestamp, self.max_timestamp
                );
                self.times.wrong(what, findings);
            }
        }
    }

    /// The end of a segment that is whole.
    pub(super) fn finish(mut self, findings: &mut Vec<Finding>) {
        let beyond = self.offsets.waiting.front().map(|entry| entry.offset);
        if let Some(offset) = beyond.or_else(|| self.later.front().copied()) {
            let what = format!("its entry for offset {offset} points behind the log's end");
            self.offsets.wrong(what, findings);
        }
        if let Some(entry) = self.times.waiting.front().copied() {
            let what = format!("its entry for offset {} points behind the log's end", entry.offset);
            self.times.wrong(what, findings);
        }
    }
}
