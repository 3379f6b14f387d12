//! Regions of segment files: slices to send, and the walk over batch headers.
//!
//! Owns: [`FileSlice`], [`BatchPosition`], [`scan_batches`] and the shared path of a log's directory.
//! Invariants: a walk reads headers only, and never behind the end it is given.
//! Concurrency: positional reads of an immutable region. Crash: nothing is written.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use env::{File, read_exact_at};
use parking_lot::RwLock;
use record::{BatchHeader, RECORD_BATCH_OVERHEAD};

use crate::error::invalid_data;

/// Bytes read at once when batches are small: about two index intervals.
const SCAN_CHUNK: usize = 8192;

/// The directory of a log, which may be renamed while segments are open.
#[derive(Debug)]
pub struct SharedDir(RwLock<Arc<Path>>);

impl SharedDir {
    pub fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(SharedDir(RwLock::new(path.into())))
    }

    pub fn path(&self) -> Arc<Path> {
        self.0.read().clone()
    }

    pub(crate) fn set(&self, path: PathBuf) {
        *self.0.write() = path.into();
    }
}

/// A region of a segment's file, to be sent as it is.
#[derive(Clone)]
pub struct FileSlice {
    pub file: Arc<dyn File>,
    pub position: u64,
    pub len: u32,
}

impl FileSlice {
    /// The bytes; fewer when the log was truncated meanwhile.
    pub fn read(&self) -> io::Result<Bytes> {
        let mut bytes = vec![0; self.len as usize];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let n = self.file.read_at(rest, self.position + filled as u64)?;
            if n == 0 {
                break;
            }
            filled += n;
        }
        bytes.truncate(filled);
        Ok(bytes.into())
    }
}

impl std::fmt::Debug for FileSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileSlice({}+{})", self.position, self.len)
    }
}

/// A batch in a segment's file.
#[derive(Clone, Copy, Debug)]
pub struct BatchPosition {
    pub header: BatchHeader,
    pub position: u32,
}

impl BatchPosition {
    pub fn size(&self) -> u32 {
        self.header.size_in_bytes() as u32
    }
}

/// Walks the headers of the batches that begin in `[from, to)`. Stops without error at a batch that `to` cuts off.
pub fn scan_batches(
    file: &dyn File,
    from: u32,
    to: u32,
    mut f: impl FnMut(BatchPosition) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut chunk = [0; SCAN_CHUNK];
    let (mut start, mut filled) = (0_u32, 0_usize);
    let mut position = from;
    let mut want = SCAN_CHUNK;
    while position < to {
        let in_chunk = |filled: usize| {
            position
                .checked_sub(start)
                .map(|at| at as usize)
                .filter(|at| at + RECORD_BATCH_OVERHEAD <= filled)
        };
        let at = match in_chunk(filled) {
            Some(at) => at,
            None => {
                let len = want.min((to - position) as usize);
                let target = chunk.get_mut(..len).ok_or(io::ErrorKind::InvalidInput)?;
                read_exact_at(file, target, u64::from(position))?;
                (start, filled) = (position, len);
                0
            }
        };
        let header = BatchHeader::parse(chunk.get(at..filled).unwrap_or_default());
        let header = header.map_err(|e| invalid_data(format!("at position {position}: {e}")))?;
        let Some(header) = header else { return Ok(()) };
        if header.last_offset() < header.base_offset {
            return Err(invalid_data(format!(
                "at position {position}: a batch of the offsets {} to {}",
                header.base_offset,
                header.last_offset()
            )));
        }
        let end = position as usize + header.size_in_bytes();
        let Some(end) = u32::try_from(end).ok().filter(|end| *end <= to) else { return Ok(()) };
        if f(BatchPosition { header, position }).is_break() {
            return Ok(());
        }
        // Behind a large batch nothing else of the chunk is of use.
        want = if header.size_in_bytes() > SCAN_CHUNK { 64 } else { SCAN_CHUNK };
        position = end;
    }
    Ok(())
}
