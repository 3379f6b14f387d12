//! The file traits: what storage may ask of a disk.
//!
//! Owns: [`FileSystem`], [`File`], and the helpers built only from them.
//! Invariants: writes are positional; a `File` has no cursor, so readers and the writer share one handle.
//! Concurrency: `&self` everywhere; two overlapping writes of one range have no defined winner.
//! Crash: see the crate's header. [`write_atomic`] leaves either the old or the new content under the name.

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

/// How [`FileSystem::open`] treats an existing or missing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Must exist; opened read-only.
    Read,
    /// Must exist; opened for reading and writing.
    ReadWrite,
    /// Created when missing; opened for reading and writing; content kept.
    Create,
    /// Created when missing, emptied when present.
    Truncate,
    /// Must not exist.
    CreateNew,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    pub name: OsString,
    pub is_dir: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub len: u64,
    pub is_dir: bool,
    /// Last modification, milliseconds since the epoch.
    pub modified_ms: i64,
}

/// Bytes of the volume that holds a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub total: u64,
    /// What an unprivileged process may still write.
    pub usable: u64,
}

/// An advisory lock on a file, held until dropped.
pub trait FileLock: Send + Sync {}

/// An open file.
pub trait File: Send + Sync {
    /// Reads at most `buf.len()` bytes; 0 means the end of the file.
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize>;

    /// Writes all of `buf`, extending the file when needed. On an error any prefix may have been written.
    fn write_at(&self, buf: &[u8], position: u64) -> io::Result<()>;

    /// Writes all buffers one after the other, in one system call where possible.
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], position: u64) -> io::Result<()>;

    fn len(&self) -> io::Result<u64>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes contents durable, and of the metadata what is needed to read them back (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;

    fn sync_all(&self) -> io::Result<()>;

    /// The descriptor for `sendfile`; `None` where there is none (simulated files).
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A volume of files and directories.
pub trait FileSystem: Send + Sync {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// Replaces `to` when it exists. Durable only after the directories of both names are synced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory and everything below it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// The entries of a directory, sorted by name.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;

    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// `NotFound` when there is no such path.
    fn metadata(&self, path: &Path) -> io::Result<Metadata>;

    /// Sets the modification time; segments carry their retention age in it.
    fn set_modified(&self, path: &Path, modified_ms: i64) -> io::Result<()>;

    /// Takes away the permission to write; snapshots of the metadata log are sealed this way. A volume without
    /// permissions does nothing.
    fn set_read_only(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Ok(())
    }

    /// Takes an exclusive advisory lock on the file, creating it when missing; `WouldBlock` when someone else has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;

    fn space(&self, path: &Path) -> io::Result<Space>;

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The path with links resolved, so that one directory named twice is seen as one.
    fn canonical(&self, path: &Path) -> io::Result<std::path::PathBuf>;
}

/// Fills `buf` from `position`; `UnexpectedEof` when the file ends before.
pub fn read_exact_at(file: &dyn File, mut buf: &mut [u8], mut position: u64) -> io::Result<()> {
    while !buf.is_empty() {
        let n = file.read_at(buf, position)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let taken = buf;
        buf = &mut taken[n..];
        position += n as u64;
    }
    Ok(())
}

/// Reads a whole small file; refuses one that is longer than `limit` bytes.
pub fn read_file(fs: &dyn FileSystem, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = fs.open(path, OpenMode::Read)?;
    let len = file.len()?;
    if len > limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} has {len} bytes, more than the {limit} it may have", path.display()),
        ));
    }
    let mut content = vec![0; usize::try_from(len).map_err(|_| io::ErrorKind::InvalidData)?];
    read_exact_at(&*file, &mut content, 0)?;
    Ok(content)
}

/// Replaces the content of `path` so that a crash leaves the old or the new one: write `path.tmp`, sync it, rename,
/// and sync the directory when `durable_name` is set.
pub fn write_atomic(fs: &dyn FileSystem, path: &Path, content: &[u8], durable_name: bool) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = Path::new(&temporary);
    let file = fs.open(temporary, OpenMode::Truncate)?;
    file.write_at(content, 0)?;
    file.sync_data()?;
    drop(file);
    fs.rename(temporary, path)?;
    if durable_name && let Some(dir) = path.parent() {
        fs.sync_dir(dir)?;
    }
    Ok(())
}
