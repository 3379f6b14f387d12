//! Offset and time indexes: sparse, sorted entries of fixed size in a plain file.
//!
//! Owns: one index file's entries; the last ones are kept in memory and written in groups.
//! Invariants: keys and values rise; an entry is 8 bytes (relative offset, position) or 12 (timestamp, relative
//! offset), big endian, as in Apache Kafka. Files have the length of their entries: they are never preallocated, and
//! a preallocated file of the reference is read up to its first entry that does not rise.
//! Concurrency: a short lock around the entries in memory; lookups in the file take none.
//! Crash: entries may be lost, torn or zero. They are only trusted below the recovery point or after a clean
//! shutdown, and rebuilt from the log otherwise.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use env::{File, FileSystem, OpenMode, read_exact_at};
use parking_lot::Mutex;

use crate::error::invalid_data;

/// Entries that wait in memory before they are written in one go.
const TAIL_CAPACITY: usize = 32;

/// Entries read at once when all are checked.
const CHECKED_AT_ONCE: usize = 1024;

/// One kind of entry.
pub trait IndexEntry: Copy + std::fmt::Debug + PartialEq {
    const SIZE: usize;

    fn encode(self, base_offset: i64, out: &mut Vec<u8>);
    fn decode(bytes: &[u8], base_offset: i64) -> Option<Self>;
    /// What the file is sorted by.
    fn key(self) -> i64;
    /// What rises along with it.
    fn value(self) -> i64;
    fn offset(self) -> i64;
    /// Whether its bytes are zero, as in a file that was preallocated.
    fn is_blank(self, base_offset: i64) -> bool;
    /// Room that the reference keeps free at the end of a file.
    const RESERVED: u32;
}

/// The last offset of some batch lies at or after `position`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetPosition {
    pub offset: i64,
    pub position: u32,
}

/// No record up to `offset` is younger than `timestamp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    pub timestamp: i64,
    pub offset: i64,
}

impl TimestampOffset {
    pub const UNKNOWN: TimestampOffset = TimestampOffset { timestamp: -1, offset: -1 };
}

fn be_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn be_i64(bytes: &[u8], at: usize) -> Option<i64> {
    Some(i64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Offsets that an index of this segment can hold.
pub fn relative_offset(base_offset: i64, offset: i64) -> Option<u32> {
    let relative = offset.checked_sub(base_offset)?;
    i32::try_from(relative).ok().filter(|r| *r >= 0).map(i32::unsigned_abs)
}

impl IndexEntry for OffsetPosition {
    const SIZE: usize = 8;
    const RESERVED: u32 = 0;

    fn encode(self, base_offset: i64, out: &mut Vec<u8>) {
        out.extend_from_slice(&relative_offset(base_offset, self.offset).unwrap_or(0).to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
    }

    fn decode(bytes: &[u8], base_offset: i64) -> Option<Self> {
        let offset = base_offset.checked_add(i64::from(be_u32(bytes, 0)?))?;
        Some(OffsetPosition { offset, position: be_u32(bytes, 4)? })
    }

    fn key(self) -> i64 {
        self.offset
    }

    fn value(self) -> i64 {
        i64::from(self.position)
    }

    fn is_blank(self, base_offset: i64) -> bool {
        self.offset == base_offset && self.position == 0
    }

    fn offset(self) -> i64 {
        self.offset
    }
}

impl IndexEntry for TimestampOffset {
    const SIZE: usize = 12;
    const RESERVED: u32 = 1;

    fn encode(self, base_offset: i64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&relative_offset(base_offset, self.offset).unwrap_or(0).to_be_bytes());
    }

    fn decode(bytes: &[u8], base_offset: i64) -> Option<Self> {
        let offset = base_offset.checked_add(i64::from(be_u32(bytes, 8)?))?;
        Some(TimestampOffset { timestamp: be_i64(bytes, 0)?, offset })
    }

    fn key(self) -> i64 {
        self.timestamp
    }

    fn value(self) -> i64 {
        self.offset
    }

    fn is_blank(self, base_offset: i64) -> bool {
        self.offset == base_offset && self.timestamp == 0
    }

    fn offset(self) -> i64 {
        self.offset
    }
}

struct Loaded<E> {
    /// Entries in the file.
    written: u32,
    /// Entries after them.
    tail: Vec<E>,
    last: Option<E>,
}

struct State<E> {
    /// `None` until first needed: an idle segment costs no memory and no descriptor.
    loaded: Option<Loaded<E>>,
    file: Option<Arc<dyn File>>,
    used: bool,
    /// There is no file, and none is made before a flush.
    is_withheld: bool,
}

impl<E> State<E> {
    fn new(loaded: Option<Loaded<E>>) -> Self {
        State { loaded, file: None, used: false, is_withheld: false }
    }
}

/// A lazily opened index.
pub struct Index<E> {
    base_offset: i64,
    state: Mutex<State<E>>,
    /// Serialises writes to the file: an append and a flush may want to write at the same time.
    writing: Mutex<()>,
}

/// Where the file is. Asked for only when it must be opened: directories are renamed under open segments, and most
/// calls need no path.
#[derive(Clone, Copy)]
pub struct At<'a> {
    pub fs: &'a dyn FileSystem,
    pub locate: &'a dyn Locate,
}

/// A file that may get another name at any time.
pub trait Locate {
    /// What it is called now.
    fn path(&self) -> PathBuf;

    /// Opens it, under whatever name it has.
    fn open(&self, fs: &dyn FileSystem, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        fs.open(&self.path(), mode)
    }
}

impl<F: Fn() -> PathBuf> Locate for F {
    fn path(&self) -> PathBuf {
        self()
    }
}

impl At<'_> {
    pub(crate) fn open(&self, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.locate.open(self.fs, mode)
    }
}

impl<E: IndexEntry> Index<E> {
    /// An index whose file will be looked at when needed.
    pub fn existing(base_offset: i64) -> Self {
        Index { base_offset, state: Mutex::new(State::new(None)), writing: Mutex::new(()) }
    }

    /// An index without entries; its file appears with the first written ones.
    pub fn empty(base_offset: i64) -> Self {
        let loaded = Loaded { written: 0, tail: Vec::new(), last: None };
        Index { base_offset, state: Mutex::new(State::new(Some(loaded))), writing: Mutex::new(()) }
    }

    fn file(state: &mut State<E>, at: At<'_>) -> io::Result<Arc<dyn File>> {
        state.used = true;
        if let Some(file) = &state.file {
            return Ok(file.clone());
        }
        let file = at.open(OpenMode::Create)?;
        state.file = Some(file.clone());
        Ok(file)
    }

    fn read_entry(&self, file: &dyn File, slot: u32) -> io::Result<E> {
        let mut bytes = [0; 12];
        let bytes = bytes.get_mut(..E::SIZE).ok_or(io::ErrorKind::InvalidData)?;
        read_exact_at(file, bytes, u64::from(slot) * E::SIZE as u64)?;
        E::decode(bytes, self.base_offset).ok_or_else(|| invalid_data("index entry out of range"))
    }

    fn load<'a>(&self, state: &'a mut State<E>, at: At<'_>) -> io::Result<&'a mut Loaded<E>> {
        if state.loaded.is_none() {
            let file = match Self::existing_file(state, at)? {
                Some(file) => file,
                None => return Ok(state.loaded.insert(Loaded { written: 0, tail: Vec::new(), last: None })),
            };
            let mut written = u32::try_from(file.len()? / E::SIZE as u64)
                .map_err(|_| invalid_data("index file too long"))?;
            let mut last = None;
            if written > 0 {
                written = self.count_rising(&*file, written)?;
            }
            if written > 0 {
                last = Some(self.read_entry(&*file, written - 1)?);
            }
            state.loaded = Some(Loaded { written, tail: Vec::new(), last });
        }
        state.loaded.as_mut().ok_or_else(|| io::ErrorKind::Other.into())
    }

    fn existing_file(state: &mut State<E>, at: At<'_>) -> io::Result<Option<Arc<dyn File>>> {
        if state.file.is_none() {
            state.used = true;
            match at.open(OpenMode::ReadWrite) {
                Ok(file) => state.file = Some(file),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(state.file.clone())
    }

    /// How many entries really are there: the reference preallocates with zeros, and a killed node leaves them.
    fn count_rising(&self, file: &dyn File, len: u32) -> io::Result<u32> {
        if len == 1 || self.read_entry(file, len - 1)?.key() > self.read_entry(file, len - 2)?.key() {
            return Ok(len);
        }
        let is_blank = |entry: E| entry.is_blank(self.base_offset);
        let (mut low, mut high) = (1, len);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_blank(self.read_entry(file, middle)?) { high = middle } else { low = middle + 1 }
        }
        if low == 1 && is_blank(self.read_entry(file, 0)?) { Ok(0) } else { Ok(low) }
    }

    pub fn entries(&self, at: At<'_>) -> io::Result<u32> {
        let mut state = self.state.lock();
        let loaded = self.load(&mut state, at)?;
        Ok(loaded.written + loaded.tail.len() as u32)
    }

    /// Whether `max_size` bytes hold no further entry.
    pub fn is_full(&self, at: At<'_>, max_size: u32) -> io::Result<bool> {
        let max_entries = max_size / E::SIZE as u32;
        Ok(self.entries(at)? >= max_entries.saturating_sub(E::RESERVED))
    }

    pub fn last(&self, at: At<'_>) -> io::Result<Option<E>> {
        Ok(self.load(&mut self.state.lock(), at)?.last)
    }

    /// Adds an entry, which must rise. Written when enough have gathered, or at [`Index::flush`].
    pub fn append(&self, at: At<'_>, entry: E) -> io::Result<()> {
        let full = {
            let mut state = self.state.lock();
            let loaded = self.load(&mut state, at)?;
            if loaded.last.is_some_and(|last| entry.key() <= last.key() || entry.value() < last.value()) {
                return Err(invalid_data(format!(
                    "Attempt to append {entry:?} to {} after {:?}",
                    at.locate.path().display(),
                    loaded.last
                )));
            }
            loaded.tail.push(entry);
            loaded.last = Some(entry);
            let is_long = loaded.tail.len() >= TAIL_CAPACITY;
            is_long && !state.is_withheld
        };
        if full { self.write(at).map(|_| ()) } else { Ok(()) }
    }

    /// Writes the entries that wait in memory; false when there are none.
    pub fn write(&self, at: At<'_>) -> io::Result<bool> {
        let _writing = self.writing.lock();
        let (file, bytes, position, count) = {
            let mut state = self.state.lock();
            let loaded = self.load(&mut state, at)?;
            let count = loaded.tail.len();
            if count == 0 {
                return Ok(false);
            }
            let position = u64::from(loaded.written) * E::SIZE as u64;
            let mut bytes = Vec::with_capacity(count * E::SIZE);
            for entry in &loaded.tail {
                entry.encode(self.base_offset, &mut bytes);
            }
            (Self::file(&mut state, at)?, bytes, position, count)
        };
        file.write_at(&bytes, position)?;
        if let Some(loaded) = &mut self.state.lock().loaded {
            loaded.tail.drain(..count);
            loaded.written += count as u32;
        }
        Ok(true)
    }

    /// Writes and syncs. Creates the file when it has no entries: the reference expects one.
    pub fn flush(&self, at: At<'_>) -> io::Result<()> {
        self.write(at)?;
        let file = {
            let mut state = self.state.lock();
            state.is_withheld = false;
            Self::file(&mut state, at)?
        };
        file.sync_data().map_err(crate::log_dir::sync_failed)
    }

    /// Removes the file with its entries. New ones wait in memory until a flush, all of them.
    pub fn withhold(&self, at: At<'_>) -> io::Result<()> {
        let mut state = self.state.lock();
        *state = State::new(Some(Loaded { written: 0, tail: Vec::new(), last: None }));
        state.is_withheld = true;
        crate::producer::ignore_missing(at.fs.remove_file(&at.locate.path()))
    }

    pub fn is_withheld(&self) -> bool {
        self.state.lock().is_withheld
    }

    /// The last entry whose key is not above `key`.
    pub fn lookup(&self, at: At<'_>, key: i64) -> io::Result<Option<E>> {
        let (file, written) = {
            let mut state = self.state.lock();
            let loaded = self.load(&mut state, at)?;
            if loaded.last.is_some_and(|last| last.key() <= key) {
                return Ok(loaded.last);
            }
            let waiting = loaded.tail.partition_point(|entry| entry.key() <= key);
            if let Some(found) = waiting.checked_sub(1).and_then(|slot| loaded.tail.get(slot)) {
                return Ok(Some(*found));
            }
            let written = loaded.written;
            if written == 0 {
                return Ok(None);
            }
            (Self::file(&mut state, at)?, written)
        };
        let slot = self.partition_point(&*file, written, |entry| entry.key() <= key)?;
        slot.checked_sub(1).map(|slot| self.read_entry(&*file, slot)).transpose()
    }

    /// The first entry whose value is not below `value`.
    pub fn lookup_value(&self, at: At<'_>, value: i64) -> io::Result<Option<E>> {
        let (file, written, first_waiting) = {
            let mut state = self.state.lock();
            let loaded = self.load(&mut state, at)?;
            let first = loaded.tail.iter().find(|entry| entry.value() >= value).copied();
            let written = loaded.written;
            if written == 0 {
                return Ok(first);
            }
            (Self::file(&mut state, at)?, written, first)
        };
        let slot = self.partition_point(&*file, written, |entry| entry.value() < value)?;
        if slot == written { Ok(first_waiting) } else { self.read_entry(&*file, slot).map(Some) }
    }

    fn partition_point(&self, file: &dyn File, len: u32, below: impl Fn(E) -> bool) -> io::Result<u32> {
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low + (high - low) / 2;
            if below(self.read_entry(file, middle)?) { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// Removes the entries at and after `offset`.
    pub fn truncate_to(&self, at: At<'_>, offset: i64) -> io::Result<()> {
        self.write(at)?;
        let mut state = self.state.lock();
        let written = self.load(&mut state, at)?.written;
        if written == 0 {
            return Ok(());
        }
        let file = Self::file(&mut state, at)?;
        let kept = self.partition_point(&*file, written, |entry| entry.offset() < offset)?;
        self.keep(&mut state, &*file, kept)
    }

    /// Keeps the entries from the front that rise and lie below `offset`; removes the others, of which a crash may have
    /// made anything. Returns the last one kept.
    pub fn keep_rising_below(&self, at: At<'_>, offset: i64) -> io::Result<Option<E>> {
        let mut state = self.state.lock();
        let (mut kept, mut last) = (0, None::<E>);
        let Some(file) = Self::existing_file(&mut state, at)? else {
            state.loaded = Some(Loaded { written: 0, tail: Vec::new(), last });
            return Ok(None);
        };
        let len = file.len()?;
        let mut chunk = vec![0; CHECKED_AT_ONCE * E::SIZE];
        'file: loop {
            let position = u64::from(kept) * E::SIZE as u64;
            let want = usize::try_from(len - position).unwrap_or(usize::MAX).min(chunk.len());
            let whole = want - want % E::SIZE;
            let bytes = chunk.get_mut(..whole).unwrap_or_default();
            read_exact_at(&*file, bytes, position)?;
            for bytes in bytes.chunks_exact(E::SIZE) {
                let entry = E::decode(bytes, self.base_offset).filter(|entry| {
                    let rises = last.is_none_or(|l: E| entry.key() > l.key() && entry.value() >= l.value());
                    rises && entry.offset() < offset && !entry.is_blank(self.base_offset)
                });
                let Some(entry) = entry else { break 'file };
                last = Some(entry);
                kept += 1;
            }
            if whole < chunk.len() {
                break;
            }
        }
        if len != u64::from(kept) * E::SIZE as u64 {
            file.set_len(u64::from(kept) * E::SIZE as u64)?;
        }
        state.loaded = Some(Loaded { written: kept, tail: Vec::new(), last });
        Ok(last)
    }

    /// Removes all entries.
    pub fn reset(&self, at: At<'_>) -> io::Result<()> {
        let mut state = self.state.lock();
        state.loaded = Some(Loaded { written: 0, tail: Vec::new(), last: None });
        match Self::existing_file(&mut state, at)? {
            Some(file) => file.set_len(0),
            None => Ok(()),
        }
    }

    /// Writes what waits and gives the file the length of its entries, making it when there is none. True when that
    /// changed anything.
    pub fn trim(&self, at: At<'_>) -> io::Result<bool> {
        if self.is_withheld() {
            return Ok(false);
        }
        let waited = self.write(at)?;
        let mut state = self.state.lock();
        let written = self.load(&mut state, at)?.written;
        let len = u64::from(written) * E::SIZE as u64;
        let existed = Self::existing_file(&mut state, at)?.is_some();
        let file = Self::file(&mut state, at)?;
        let fits = file.len()? == len;
        if !fits {
            file.set_len(len)?;
        }
        Ok(waited || !existed || !fits)
    }

    fn keep(&self, state: &mut State<E>, file: &dyn File, kept: u32) -> io::Result<()> {
        file.set_len(u64::from(kept) * E::SIZE as u64)?;
        let last = kept.checked_sub(1).map(|slot| self.read_entry(file, slot)).transpose()?;
        state.loaded = Some(Loaded { written: kept, tail: Vec::new(), last });
        Ok(())
    }

    /// Closes the file when nobody used it since the last call.
    pub fn close_if_idle(&self) {
        let mut state = self.state.lock();
        if !std::mem::take(&mut state.used) {
            state.file = None;
        }
    }

    /// Closes the file; it opens again at need, wherever it then is.
    pub fn close(&self) {
        self.state.lock().file = None;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use testkit::Sim;

    use super::*;

    const PATH: &str = "/00000000000000000100.index";

    fn at(sim: &Sim) -> At<'_> {
        At { fs: &*sim.fs, locate: &|| PathBuf::from(PATH) }
    }

    fn entry(offset: i64, position: u32) -> OffsetPosition {
        OffsetPosition { offset, position }
    }

    #[test]
    fn lookups_find_entries_in_memory_and_in_the_file() {
        let sim = Sim::new(1);
        let index = Index::<OffsetPosition>::empty(100);
        assert_eq!(index.lookup(at(&sim), 500).unwrap(), None);
        for i in 1..=100_u32 {
            index.append(at(&sim), entry(100 + i64::from(i) * 10, i * 4096)).unwrap();
        }
        for reopened in [false, true] {
            let opened;
            let index = if reopened {
                index.flush(at(&sim)).unwrap();
                opened = Index::<OffsetPosition>::existing(100);
                &opened
            } else {
                &index
            };
            for (key, found) in [
                (109, None),
                (110, Some(entry(110, 4096))),
                (119, Some(entry(110, 4096))),
                (555, Some(entry(550, 45 * 4096))),
                (9999, Some(entry(1100, 409_600))),
            ] {
                assert_eq!(index.lookup(at(&sim), key).unwrap(), found, "{key} {reopened}");
            }
            for (value, found) in [
                (0, Some(entry(110, 4096))),
                (4097, Some(entry(120, 8192))),
                (409_600, Some(entry(1100, 409_600))),
                (409_601, None),
            ] {
                assert_eq!(index.lookup_value(at(&sim), value).unwrap(), found, "{value} {reopened}");
            }
            assert_eq!(index.entries(at(&sim)).unwrap(), 100);
        }
    }

    #[test]
    fn truncation_keeps_what_is_below() {
        let sim = Sim::new(1);
        let index = Index::<OffsetPosition>::empty(100);
        for i in 1..=40_u32 {
            index.append(at(&sim), entry(100 + i64::from(i) * 10, i)).unwrap();
        }
        index.truncate_to(at(&sim), 450).unwrap();
        assert_eq!(index.last(at(&sim)).unwrap(), Some(entry(440, 34)));
        assert!(index.append(at(&sim), entry(440, 35)).is_err(), "an entry must rise");
        index.append(at(&sim), entry(441, 35)).unwrap();
        index.reset(at(&sim)).unwrap();
        assert_eq!(index.entries(at(&sim)).unwrap(), 0);
        assert_eq!(sim.fs.metadata(Path::new(PATH)).unwrap().len, 0);
    }

    #[test]
    fn zeros_of_a_preallocated_file_are_no_entries() {
        for real in 0..20_u32 {
            let sim = Sim::new(1);
            let index = Index::<OffsetPosition>::empty(100);
            for i in 1..=real {
                index.append(at(&sim), entry(100 + i64::from(i), i * 10)).unwrap();
            }
            index.flush(at(&sim)).unwrap();
            sim.fs.open(Path::new(PATH), OpenMode::ReadWrite).unwrap().set_len(8 * 64).unwrap();
            let index = Index::<OffsetPosition>::existing(100);
            assert_eq!(index.entries(at(&sim)).unwrap(), real);
            index.trim(at(&sim)).unwrap();
            assert_eq!(sim.fs.metadata(Path::new(PATH)).unwrap().len, u64::from(real) * 8);
        }
    }

    #[test]
    fn offsets_beyond_31_bits_do_not_fit() {
        assert_eq!(relative_offset(10, 9), None);
        assert_eq!(relative_offset(10, 10), Some(0));
        assert_eq!(relative_offset(10, 10 + i64::from(i32::MAX)), Some(i32::MAX as u32));
        assert_eq!(relative_offset(10, 11 + i64::from(i32::MAX)), None);
    }
}
