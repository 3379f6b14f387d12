//! The index of aborted transactions of one segment (KIP-98).
//!
//! Owns: the `.txnindex` file; it exists only where a transaction was aborted.
//! Invariants: entries rise by last offset; 34 bytes each: version, producer id, first, last and last stable offset.
//! Concurrency: the single writer appends; readers read the entries there were when they began.
//! Entries that found no room on the disk wait in memory and are served from there.
//! Crash: like other indexes; torn entries at the end are not read.

use std::io;
use std::sync::Arc;

use env::{File, OpenMode, read_exact_at};
use parking_lot::Mutex;

use crate::error::invalid_data;
use crate::index::At;

const ENTRY_SIZE: usize = 34;
const VERSION: i16 = 0;
/// Entries read at once.
const CHUNK: usize = 120;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTxn {
    pub producer_id: i64,
    pub first_offset: i64,
    pub last_offset: i64,
    pub last_stable_offset: i64,
}

impl AbortedTxn {
    fn encode(self) -> [u8; ENTRY_SIZE] {
        let mut bytes = [0; ENTRY_SIZE];
        bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
        let fields = [self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset];
        for (slot, field) in bytes[2..].chunks_exact_mut(8).zip(fields) {
            slot.copy_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> io::Result<Self> {
        let (version, fields) = bytes.split_first_chunk::<2>().ok_or(io::ErrorKind::UnexpectedEof)?;
        if i16::from_be_bytes(*version) != VERSION {
            return Err(invalid_data(format!(
                "Unexpected aborted transaction version {}, supported version range is 0 to 0",
                i16::from_be_bytes(*version)
            )));
        }
        let mut fields = fields
            .as_chunks::<8>()
            .0
            .iter()
            .map(|field| i64::from_be_bytes(*field))
            .chain(std::iter::repeat(0));
        let mut next = || fields.next().unwrap_or(0);
        Ok(AbortedTxn {
            producer_id: next(),
            first_offset: next(),
            last_offset: next(),
            last_stable_offset: next(),
        })
    }
}

impl AbortedTxn {
    /// The whole entries of a file.
    pub(crate) fn decode_all(bytes: &[u8]) -> io::Result<Vec<Self>> {
        bytes.chunks_exact(ENTRY_SIZE).map(Self::decode).collect()
    }
}

struct State {
    file: Option<Arc<dyn File>>,
    /// Entries in the file, once known.
    len: Option<u32>,
    /// Entries after them: the records are in the log, and whoever reads them must learn of it.
    waiting: Vec<AbortedTxn>,
    /// There is a file, as far as is known: even an empty one must be synced, it may have been cut.
    exists: bool,
    used: bool,
}

impl State {
    fn new(len: Option<u32>) -> Self {
        State { file: None, len, waiting: Vec::new(), exists: len.is_none(), used: false }
    }
}

pub struct TransactionIndex {
    state: Mutex<State>,
}

impl TransactionIndex {
    /// An index that may have a file.
    pub fn existing() -> Self {
        TransactionIndex { state: Mutex::new(State::new(None)) }
    }

    /// An index that has none.
    pub fn empty() -> Self {
        TransactionIndex { state: Mutex::new(State::new(Some(0))) }
    }

    fn load(state: &mut State, at: At<'_>) -> io::Result<u32> {
        if let Some(len) = state.len {
            return Ok(len);
        }
        let len = match at.open(OpenMode::ReadWrite) {
            Ok(file) => {
                let len = u32::try_from(file.len()? / ENTRY_SIZE as u64);
                state.file = Some(file);
                len.map_err(|_| invalid_data("transaction index too long"))?
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                state.exists = false;
                0
            }
            Err(e) => return Err(e),
        };
        state.len = Some(len);
        Ok(len)
    }

    fn file(state: &mut State, at: At<'_>) -> io::Result<Arc<dyn File>> {
        state.used = true;
        if let Some(file) = &state.file {
            return Ok(file.clone());
        }
        let file = at.open(OpenMode::Create)?;
        state.exists = true;
        state.file = Some(file.clone());
        Ok(file)
    }

    /// Adds an entry. When it cannot be written that is an error, but it counts, and is written with the next.
    pub fn append(&self, at: At<'_>, txn: AbortedTxn) -> io::Result<()> {
        if let Some(last) = self.last_offset(at)?.filter(|last| *last >= txn.last_offset) {
            return Err(invalid_data(format!(
                "The last offset of appended transactions must increase sequentially, but {} is not greater than \
                 current last offset {last} of index {}",
                txn.last_offset,
                at.locate.path().display()
            )));
        }
        self.state.lock().waiting.push(txn);
        self.write(at)
    }

    /// The last offset of the last entry.
    fn last_offset(&self, at: At<'_>) -> io::Result<Option<i64>> {
        let (file, len) = {
            let mut state = self.state.lock();
            let len = Self::load(&mut state, at)?;
            if let Some(last) = state.waiting.last() {
                return Ok(Some(last.last_offset));
            }
            if len == 0 {
                return Ok(None);
            }
            (Self::file(&mut state, at)?, len)
        };
        let mut bytes = [0; ENTRY_SIZE];
        read_exact_at(&*file, &mut bytes, u64::from(len - 1) * ENTRY_SIZE as u64)?;
        AbortedTxn::decode(&bytes).map(|last| Some(last.last_offset))
    }

    /// Writes what waits. Entries come and go by the single writer; a flush at the same time writes the same bytes.
    fn write(&self, at: At<'_>) -> io::Result<()> {
        let (file, len, waiting) = {
            let mut state = self.state.lock();
            let len = Self::load(&mut state, at)?;
            if state.waiting.is_empty() {
                return Ok(());
            }
            (Self::file(&mut state, at)?, len, state.waiting.clone())
        };
        let bytes: Vec<u8> = waiting.iter().flat_map(|txn| txn.encode()).collect();
        file.write_at(&bytes, u64::from(len) * ENTRY_SIZE as u64)?;
        let mut state = self.state.lock();
        if state.len == Some(len) {
            state.len = Some(len + waiting.len() as u32);
            state.waiting.drain(..waiting.len());
        }
        Ok(())
    }

    fn for_each(
        &self,
        at: At<'_>,
        mut f: impl FnMut(u32, AbortedTxn) -> std::ops::ControlFlow<()>,
    ) -> io::Result<()> {
        let (file, len, waiting) = {
            let mut state = self.state.lock();
            let len = Self::load(&mut state, at)?;
            let file = if len > 0 { Some(Self::file(&mut state, at)?) } else { None };
            (file, len, state.waiting.clone())
        };
        let mut bytes = [0; CHUNK * ENTRY_SIZE];
        let mut slot = 0;
        while let Some(file) = file.as_ref().filter(|_| slot < len) {
            let count = (len - slot).min(CHUNK as u32);
            let chunk = bytes.get_mut(..count as usize * ENTRY_SIZE).ok_or(io::ErrorKind::InvalidData)?;
            read_exact_at(&**file, chunk, u64::from(slot) * ENTRY_SIZE as u64)?;
            for entry in chunk.chunks_exact(ENTRY_SIZE) {
                if f(slot, AbortedTxn::decode(entry)?).is_break() {
                    return Ok(());
                }
                slot += 1;
            }
        }
        for txn in waiting {
            if f(slot, txn).is_break() {
                break;
            }
            slot += 1;
        }
        Ok(())
    }

    /// Transactions that overlap `[fetch_offset, upper_bound)`; true when later segments can hold no more of them.
    pub fn collect_aborted(
        &self,
        at: At<'_>,
        fetch_offset: i64,
        upper_bound: i64,
        out: &mut Vec<AbortedTxn>,
    ) -> io::Result<bool> {
        let mut complete = false;
        self.for_each(at, |_, txn| {
            if txn.last_offset >= fetch_offset && txn.first_offset < upper_bound {
                out.push(txn);
            }
            complete = txn.last_stable_offset >= upper_bound;
            if complete { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
        })?;
        Ok(complete)
    }

    pub fn all(&self, at: At<'_>) -> io::Result<Vec<AbortedTxn>> {
        let mut all = Vec::new();
        self.for_each(at, |_, txn| {
            all.push(txn);
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(all)
    }

    /// Whether the file's entries can be those of a segment that begins at `base`: whole, of transactions with records
    /// and an end, which lies in the segment, one after the other. An index without entries has no file.
    pub fn is_sound(&self, at: At<'_>, base: i64) -> io::Result<bool> {
        let (mut previous, mut entries) = (base - 1, 0_u64);
        let read = self.for_each(at, |_, txn| {
            if txn.last_offset <= previous || txn.first_offset < 0 || txn.first_offset >= txn.last_offset {
                return std::ops::ControlFlow::Break(());
            }
            previous = txn.last_offset;
            entries += 1;
            std::ops::ControlFlow::Continue(())
        });
        let file = {
            let mut state = self.state.lock();
            Self::load(&mut state, at)?;
            if !state.exists {
                return Ok(true);
            }
            Self::file(&mut state, at)?
        };
        match read {
            Ok(()) => Ok(entries > 0 && file.len()? == entries * ENTRY_SIZE as u64),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Removes the file of an index that has no entries.
    pub fn remove_if_empty(&self, at: At<'_>) -> io::Result<()> {
        let mut state = self.state.lock();
        if Self::load(&mut state, at)? > 0 || !state.waiting.is_empty() || !state.exists {
            return Ok(());
        }
        state.file = None;
        state.exists = false;
        crate::producer::ignore_missing(at.fs.remove_file(&at.locate.path()))
    }

    /// Removes transactions that end at or after `offset`.
    pub fn truncate_to(&self, at: At<'_>, offset: i64) -> io::Result<()> {
        let mut kept = None;
        self.for_each(at, |slot, txn| {
            if txn.last_offset >= offset {
                kept = Some(slot);
                return std::ops::ControlFlow::Break(());
            }
            std::ops::ControlFlow::Continue(())
        })?;
        if let Some(kept) = kept {
            let mut state = self.state.lock();
            let len = Self::load(&mut state, at)?;
            state.waiting.truncate(kept.saturating_sub(len) as usize);
            if kept < len {
                Self::file(&mut state, at)?.set_len(u64::from(kept) * ENTRY_SIZE as u64)?;
                state.len = Some(kept);
            }
        }
        Ok(())
    }

    pub fn reset(&self, at: At<'_>) -> io::Result<()> {
        let mut state = self.state.lock();
        Self::load(&mut state, at)?;
        state.len = Some(0);
        state.waiting.clear();
        if state.exists { Self::file(&mut state, at)?.set_len(0) } else { Ok(()) }
    }

    pub fn flush(&self, at: At<'_>) -> io::Result<()> {
        self.write(at)?;
        let file = {
            let mut state = self.state.lock();
            Self::load(&mut state, at)?;
            if !state.exists {
                return Ok(());
            }
            Self::file(&mut state, at)?
        };
        file.sync_data().map_err(crate::log_dir::sync_failed)
    }

    pub fn close_if_idle(&self) {
        let mut state = self.state.lock();
        if !std::mem::take(&mut state.used) {
            state.file = None;
        }
    }

    pub fn close(&self) {
        self.state.lock().file = None;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use env::FileSystem as _;
    use testkit::Sim;

    use super::*;

    fn txn(first_offset: i64, last_offset: i64, last_stable_offset: i64) -> AbortedTxn {
        AbortedTxn { producer_id: 7, first_offset, last_offset, last_stable_offset }
    }

    #[test]
    fn transactions_are_found_by_overlap_and_truncated_by_end() {
        let sim = Sim::new(1);
        let path = Path::new("/0.txnindex");
        let at = At { fs: &*sim.fs, locate: &|| path.to_path_buf() };
        let index = TransactionIndex::existing();
        assert!(index.all(at).unwrap().is_empty());
        index.flush(at).unwrap();
        assert!(sim.fs.metadata(path).is_err(), "no aborted transaction, no file");
        let txns = [txn(0, 10, 2), txn(5, 15, 16), txn(18, 35, 25), txn(32, 50, 40)];
        for txn in txns {
            index.append(at, txn).unwrap();
        }
        assert!(index.append(at, txn(1, 50, 60)).is_err(), "last offsets rise");
        for index in [index, TransactionIndex::existing()] {
            for (fetch, upper, found, complete) in [
                (0, 100, &txns[..], false),
                (0, 32, &txns[..3], true),
                (0, 35, &txns[..], true),
                (10, 35, &txns[..], true),
                (11, 35, &txns[1..], true),
                (50, 51, &txns[3..], false),
                (51, 52, &[], false),
            ] {
                let mut out = Vec::new();
                assert_eq!(
                    index.collect_aborted(at, fetch, upper, &mut out).unwrap(),
                    complete,
                    "{fetch} {upper}"
                );
                assert_eq!(out, found, "{fetch} {upper}");
            }
            assert_eq!(sim.fs.metadata(path).unwrap().len, 4 * 34);
        }
        sim.fs.set_capacity(4 * 34);
        let index = TransactionIndex::existing();
        assert!(index.append(at, txn(60, 70, 80)).is_err() && index.append(at, txn(61, 71, 81)).is_err());
        assert_eq!(index.all(at).unwrap().len(), 6, "what finds no room waits, and counts");
        index.truncate_to(at, 71).unwrap();
        assert!(index.flush(at).is_err());
        sim.fs.set_capacity(u64::MAX);
        index.flush(at).unwrap();
        assert_eq!(sim.fs.metadata(path).unwrap().len, 5 * 34);
        let index = TransactionIndex::existing();
        index.truncate_to(at, 51).unwrap();
        assert_eq!(index.all(at).unwrap().len(), 4);
        index.truncate_to(at, 35).unwrap();
        assert_eq!(index.all(at).unwrap(), txns[..2]);
        index.reset(at).unwrap();
        assert!(index.all(at).unwrap().is_empty());
    }
}
