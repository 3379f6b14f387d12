//! The machine's own clock, random source and files.
//!
//! Owns: nothing but descriptors. Invariants: no `unsafe`; positional system calls only.
//! Concurrency: the kernel's. Crash: the crate's header.

use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use record::Time;
use rustix::fs::FlockOperation;

use crate::fs::{DirEntry, File, FileLock, FileSystem, Metadata, OpenMode, Space};
use crate::{Clock, Random};

/// `CLOCK_MONOTONIC` since construction, and the wall clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    // The one place where ambient time enters.
    #[allow(clippy::disallowed_methods)]
    pub fn new() -> Self {
        SystemClock { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)]
    fn now(&self) -> Time {
        Time { monotonic: self.start.elapsed(), wall_ms: epoch_ms(SystemTime::now()) }
    }
}

/// The kernel's random source.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsRandom;

impl Random for OsRandom {
    fn fill(&self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let request = &mut bytes[..];
            let n = rustix::rand::getrandom(request, rustix::rand::GetRandomFlags::empty())
                .expect("the kernel has a random source");
            let taken = bytes;
            bytes = &mut taken[n..];
        }
    }
}

/// Files through the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFileSystem;

struct RealFile {
    file: fs::File,
}

struct Flock {
    _fd: OwnedFd,
}

impl FileLock for Flock {}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        loop {
            match self.file.read_at(buf, position) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    fn write_at(&self, buf: &[u8], position: u64) -> io::Result<()> {
        self.file.write_all_at(buf, position)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], mut position: u64) -> io::Result<()> {
        let total: usize = bufs.iter().map(|b| b.len()).sum();
        let mut written = match rustix::io::pwritev(&self.file, bufs, position) {
            Ok(n) => n,
            Err(rustix::io::Errno::INTR) => 0,
            Err(e) => return Err(e.into()),
        };
        if written == total {
            return Ok(());
        }
        // A short write is rare (a signal, a nearly full disk): finish buffer by buffer.
        for buf in bufs {
            if written >= buf.len() {
                written -= buf.len();
            } else {
                self.file.write_all_at(&buf[written..], position + written as u64)?;
                written = 0;
            }
            position += buf.len() as u64;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

impl FileSystem for RealFileSystem {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadWrite => {
                options.write(true);
            }
            OpenMode::Create => {
                options.write(true).create(true).truncate(false);
            }
            OpenMode::Truncate => {
                options.write(true).create(true).truncate(true);
            }
            OpenMode::CreateNew => {
                options.write(true).create_new(true);
            }
        }
        Ok(Arc::new(RealFile { file: options.open(path)? }))
    }

    fn set_read_only(&self, path: &Path) -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o400))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let is_dir = if kind.is_symlink() { entry.path().is_dir() } else { kind.is_dir() };
            entries.push(DirEntry { name: entry.file_name(), is_dir });
        }
        entries.sort();
        Ok(entries)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let metadata = fs::metadata(path)?;
        Ok(Metadata {
            len: metadata.len(),
            is_dir: metadata.is_dir(),
            modified_ms: epoch_ms(metadata.modified()?),
        })
    }

    fn set_modified(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        let offset = Duration::from_millis(modified_ms.unsigned_abs());
        let time =
            if modified_ms >= 0 { UNIX_EPOCH.checked_add(offset) } else { UNIX_EPOCH.checked_sub(offset) };
        let time = time.ok_or(io::ErrorKind::InvalidInput)?;
        fs::OpenOptions::new().write(true).open(path)?.set_modified(time)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let fd = OwnedFd::from(file);
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(e) => return Err(e.into()),
        }
        // A JVM takes POSIX record locks, which do not see flock: take both, so that neither kind of node opens a
        // directory that the other one runs on.
        match rustix::fs::fcntl_lock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Box::new(Flock { _fd: fd })),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            Err(e) => Err(e.into()),
        }
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(Space {
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            usable: stat.f_bavail.saturating_mul(stat.f_frsize),
        })
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }
}

fn epoch_ms(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{read_file, write_atomic};

    #[test]
    fn a_lock_is_exclusive_until_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".lock");
        let lock = RealFileSystem.lock(&path).unwrap();
        assert_eq!(RealFileSystem.lock(&path).err().unwrap().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        RealFileSystem.lock(&path).unwrap();
    }

    #[test]
    fn vectored_writes_land_in_order_and_extend_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = RealFileSystem.open(&path, OpenMode::CreateNew).unwrap();
        file.write_vectored_at(&[IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(b"de")], 2).unwrap();
        assert_eq!(read_file(&RealFileSystem, &path, 100).unwrap(), b"\0\0abcde");
        assert!(read_file(&RealFileSystem, &path, 3).is_err());
    }

    #[test]
    fn atomic_writes_replace_and_times_can_be_set() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        write_atomic(&RealFileSystem, &path, b"one", true).unwrap();
        write_atomic(&RealFileSystem, &path, b"two", false).unwrap();
        assert_eq!(read_file(&RealFileSystem, &path, 100).unwrap(), b"two");
        RealFileSystem.set_modified(&path, 1_234_567_890_123).unwrap();
        assert_eq!(RealFileSystem.metadata(&path).unwrap().modified_ms, 1_234_567_890_123);
        let entries = RealFileSystem.list(dir.path()).unwrap();
        assert_eq!(entries, [DirEntry { name: "checkpoint".into(), is_dir: false }]);
    }
}
