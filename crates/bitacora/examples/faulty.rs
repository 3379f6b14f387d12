//! A broker on a disk that fails when told: `faulty CONTROL FILE` is `bitacora server FILE`, where each line
//! `OPERATION PATH-PART` of the file CONTROL makes every such operation on such a path fail with EIO, or with ENOSPC where
//! OPERATION ends in `-full`.
//!
//! OPERATION is `write`, `sync` (of files and directories), `create` or `rename`. Tests rewrite CONTROL while it runs.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use env::{DirEntry, Env, File, FileLock, FileSystem, Metadata, OpenMode, Space};

/// The kernel's number of "input/output error".
const EIO: i32 = 5;
/// "No space left on device".
const ENOSPC: i32 = 28;

#[derive(Clone)]
struct Faults {
    control: PathBuf,
}

impl Faults {
    fn check(&self, operation: &str, path: &Path) -> io::Result<()> {
        let rules = std::fs::read_to_string(&self.control).unwrap_or_default();
        let path = path.to_string_lossy();
        for (rule, part) in rules.lines().filter_map(|line| line.split_once(' ')) {
            if path.contains(part.trim_end()) {
                if rule == operation {
                    return Err(io::Error::from_raw_os_error(EIO));
                }
                if rule.strip_suffix("-full") == Some(operation) {
                    return Err(io::Error::from_raw_os_error(ENOSPC));
                }
            }
        }
        Ok(())
    }
}

struct FaultyDisk {
    inner: Arc<dyn FileSystem>,
    faults: Faults,
}

struct FaultyFile {
    inner: Arc<dyn File>,
    path: PathBuf,
    faults: Faults,
}

impl File for FaultyFile {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        self.inner.read_at(buf, position)
    }

    fn write_at(&self, buf: &[u8], position: u64) -> io::Result<()> {
        self.faults.check("write", &self.path)?;
        self.inner.write_at(buf, position)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        self.faults.check("write", &self.path)?;
        self.inner.write_vectored_at(bufs, position)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.faults.check("write", &self.path)?;
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.faults.check("sync", &self.path)?;
        self.inner.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.faults.check("sync", &self.path)?;
        self.inner.sync_all()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.as_fd()
    }
}

impl FileSystem for FaultyDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        if !matches!(mode, OpenMode::Read | OpenMode::ReadWrite) {
            self.faults.check("create", path)?;
        }
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(FaultyFile { inner, path: path.to_owned(), faults: self.faults.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.check("rename", from)?;
        self.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.faults.check("create", dir)?;
        self.inner.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.faults.check("sync", dir)?;
        self.inner.sync_dir(dir)
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.inner.metadata(path)
    }

    fn set_modified(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        self.inner.set_modified(path, modified_ms)
    }

    fn set_read_only(&self, path: &Path) -> io::Result<()> {
        self.inner.set_read_only(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.inner.space(path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.canonical(path)
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let Some(control) = words.next() else {
        eprintln!("usage: faulty CONTROL FILE [--override NAME=VALUE]...");
        return ExitCode::FAILURE;
    };
    let real = Env::real();
    let faults = Faults { control: control.into() };
    let env = Env { fs: Arc::new(FaultyDisk { inner: real.fs.clone(), faults }), ..real };
    server::commands::server_on(&words.collect::<Vec<_>>(), env)
}
