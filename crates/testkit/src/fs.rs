//! A file system in memory that can lose power, fill up and fail, as told.
//!
//! Owns: the volume, the fault rules, the operation counter and the locks.
//! Invariants: after the power went off (at the operation set with [`SimFileSystem::power_off_at`]) every call fails
//! until [`SimFileSystem::crash`]; files opened before a crash stay dead.
//! Concurrency: one lock around everything.
//! Crash: unsynced file contents survive by sectors or not at all, unsynced names by a prefix of the directory's
//! changes; a failed sync loses the pages for good and is reported once.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use env::{Clock, DirEntry, File, FileLock, FileSystem, Metadata, OpenMode, Space};
use parking_lot::Mutex;

use crate::clock::VirtualClock;
use crate::fs_state::{Change, Dir, Inode, InodeId, NameChange, Node, Volume, names, normal, parent};
use crate::random::SeededRandom;
use crate::site::{Failure, Site};

/// The kinds of operations that faults aim at and the counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    Open,
    /// Asks for length, age or existence.
    Stat,
    Create,
    Read,
    Write,
    SetLen,
    Sync,
    SyncDir,
    Rename,
    Remove,
    List,
    CreateDir,
}

impl Op {
    /// Whether the operation changes what a crash may leave.
    fn mutates(self) -> bool {
        !matches!(self, Op::Open | Op::Stat | Op::Read | Op::List)
    }

    /// As in "write .log".
    pub fn verb(self) -> &'static str {
        match self {
            Op::Open => "open",
            Op::Stat => "stat",
            Op::Create => "create",
            Op::Read => "read",
            Op::Write => "write",
            Op::SetLen => "resize",
            Op::Sync | Op::SyncDir => "sync",
            Op::Rename => "rename",
            Op::Remove => "remove",
            Op::List => "list",
            Op::CreateDir => "make",
        }
    }
}

/// One rule: the `nth` (from 1) operation of this kind on a path that contains `path` fails.
#[derive(Clone, Debug)]
pub struct Fault {
    pub op: Op,
    pub path: String,
    pub nth: u64,
    pub kind: io::ErrorKind,
}

struct State {
    volume: Volume,
    generation: u64,
    operations: u64,
    power_off_at: Option<u64>,
    off: bool,
    faults: Vec<Fault>,
    /// Calls of any kind so far.
    calls: u64,
    /// Calls with these numbers fail.
    failing_calls: Option<(Range<u64>, Failure)>,
    /// Where they did.
    struck: Vec<Site>,
    exempt: bool,
    trace: Option<Vec<Site>>,
    capacity: u64,
    locks: Vec<(u64, PathBuf)>,
    next_lock: u64,
    syncs: u64,
    bytes_read: u64,
    /// Handles per inode: an unlinked file lives as long as its handles.
    open: BTreeMap<InodeId, usize>,
}

pub struct SimFileSystem {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    clock: Arc<VirtualClock>,
}

struct SimFile {
    shared: Arc<Shared>,
    inode: InodeId,
    path: PathBuf,
    generation: u64,
    writable: bool,
}

struct SimLock {
    shared: Arc<Shared>,
    id: u64,
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.shared.state.lock().locks.retain(|(id, _)| *id != self.id);
    }
}

impl SimFileSystem {
    pub fn new(clock: Arc<VirtualClock>) -> Self {
        let state = State {
            volume: Volume::new(),
            generation: 0,
            operations: 0,
            power_off_at: None,
            off: false,
            faults: Vec::new(),
            calls: 0,
            failing_calls: None,
            struck: Vec::new(),
            exempt: false,
            trace: None,
            capacity: u64::MAX,
            locks: Vec::new(),
            next_lock: 0,
            syncs: 0,
            bytes_read: 0,
            open: BTreeMap::new(),
        };
        SimFileSystem { shared: Arc::new(Shared { state: Mutex::new(state), clock }) }
    }

    /// Another volume with the same files; nobody has any of them open, and nothing is set to fail.
    pub fn fork(&self, clock: Arc<VirtualClock>) -> Self {
        let fork = SimFileSystem::new(clock);
        let volume = self.shared.state.lock().volume.clone();
        fork.shared.state.lock().volume = volume;
        fork
    }

    /// How many operations that change something have been asked for.
    pub fn operations(&self) -> u64 {
        self.shared.state.lock().operations
    }

    /// How many syncs of files and directories succeeded.
    pub fn syncs(&self) -> u64 {
        self.shared.state.lock().syncs
    }

    /// How many bytes have been read from files.
    pub fn bytes_read(&self) -> u64 {
        self.shared.state.lock().bytes_read
    }

    /// The power goes off in the middle of the changing operation with this number (from 1, counted from the start).
    pub fn power_off_at(&self, operation: u64) {
        self.shared.state.lock().power_off_at = Some(operation);
    }

    pub fn is_off(&self) -> bool {
        self.shared.state.lock().off
    }

    pub fn inject(&self, fault: Fault) {
        self.shared.state.lock().faults.push(fault);
    }

    pub fn clear_faults(&self) {
        let mut state = self.shared.state.lock();
        state.faults.clear();
        state.failing_calls = None;
    }

    /// How many calls of any kind there were.
    pub fn calls(&self) -> u64 {
        self.shared.state.lock().calls
    }

    /// Calls with these numbers (from 1, counted from the start) fail, except those that cannot fail in this way.
    pub fn fail_calls(&self, numbers: Range<u64>, failure: Failure) {
        self.shared.state.lock().failing_calls = Some((numbers, failure));
    }

    /// While exempt, calls are neither counted nor let fail by [`SimFileSystem::fail_calls`]: they are the test's own.
    pub fn exempt(&self, exempt: bool) {
        self.shared.state.lock().exempt = exempt;
    }

    /// The calls that [`SimFileSystem::fail_calls`] let fail.
    pub fn struck(&self) -> Vec<Site> {
        self.shared.state.lock().struck.clone()
    }

    /// Begins to note every call.
    pub fn trace(&self) {
        self.shared.state.lock().trace = Some(Vec::new());
    }

    /// The calls since [`SimFileSystem::trace`].
    pub fn take_trace(&self) -> Vec<Site> {
        self.shared.state.lock().trace.take().unwrap_or_default()
    }

    /// Bytes the volume can hold.
    pub fn set_capacity(&self, bytes: u64) {
        self.shared.state.lock().capacity = bytes;
    }

    /// The power cut and the reboot: page cache, locks and open files are gone; see the header for what survives.
    pub fn crash(&self, seed: u64) {
        let mut state = self.shared.state.lock();
        state.open.clear();
        state.volume.crash(&SeededRandom::new(seed));
        state.generation += 1;
        state.off = false;
        state.power_off_at = None;
        state.locks.clear();
    }

    /// A killed process: open files and locks are gone, the page cache stays.
    pub fn kill(&self) {
        let mut state = self.shared.state.lock();
        state.open.clear();
        state.generation += 1;
        state.off = false;
        state.power_off_at = None;
        state.locks.clear();
    }

    /// Overwrites bytes behind everybody's back, durably.
    pub fn corrupt(&self, path: &Path, position: usize, data: &[u8]) {
        self.change(path, |_| vec![Change::Write { position, data: data.to_vec() }]);
    }

    /// Puts other content in a file's place behind everybody's back, durably.
    pub fn replace(&self, path: &Path, content: Vec<u8>) {
        self.change(path, |_| vec![Change::SetLen(0), Change::Write { position: 0, data: content }]);
    }

    fn change(&self, path: &Path, changes: impl FnOnce(&Inode) -> Vec<Change>) {
        let mut state = self.shared.state.lock();
        let Some(Node::File(id)) = state.volume.node(path) else { panic!("{} is no file", path.display()) };
        let inode = state.volume.inodes.get_mut(&id).expect("a name leads to an inode");
        changes(inode).into_iter().for_each(|change| inode.apply(change));
        inode.sync();
    }

    /// Every file's content as it is now.
    pub fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.shared.state.lock();
        let mut files = BTreeMap::new();
        let mut todo = vec![(PathBuf::from("/"), crate::fs_state::ROOT)];
        while let Some((path, id)) = todo.pop() {
            let Some(dir) = state.volume.dirs.get(&id) else { continue };
            for (name, node) in &dir.current {
                match node {
                    Node::Dir(child) => todo.push((path.join(name), *child)),
                    Node::File(inode) => {
                        let content = state.volume.inodes.get(inode).map(|inode| inode.current.clone());
                        files.insert(path.join(name), content.unwrap_or_default());
                    }
                }
            }
        }
        files
    }
}

impl State {
    fn begin(&mut self, op: Op, path: &Path) -> io::Result<()> {
        if self.off {
            return Err(io::Error::other("the power is off"));
        }
        if !self.exempt {
            self.calls += 1;
        }
        if let Some(trace) = &mut self.trace {
            trace.push(Site::of(op, path));
        }
        if op.mutates() {
            self.operations += 1;
            if self.power_off_at.is_some_and(|at| self.operations >= at) {
                self.off = true;
            }
        }
        if let Some(failure) = self.failure_at(self.calls, op) {
            self.struck.push(Site::of(op, path));
            return Err(failure.error());
        }
        if self.faults.is_empty() {
            return Ok(());
        }
        let text = path.to_string_lossy();
        for fault in &mut self.faults {
            if fault.op == op && fault.nth > 0 && text.contains(&fault.path) {
                fault.nth -= 1;
                if fault.nth == 0 {
                    return Err(fault.kind.into());
                }
            }
        }
        Ok(())
    }

    fn failure_at(&self, call: u64, op: Op) -> Option<Failure> {
        let (numbers, failure) = self.failing_calls.as_ref().filter(|_| !self.exempt)?;
        (numbers.contains(&call) && failure.strikes(op)).then_some(*failure)
    }

    /// After the effect: the caller never learns of an operation that the power cut interrupted.
    fn end<T>(&self, value: T) -> io::Result<T> {
        if self.off { Err(io::Error::other("the power went off")) } else { Ok(value) }
    }

    fn collect_garbage(&mut self) {
        let State { volume, open, .. } = self;
        volume.collect_garbage(|inode| open.contains_key(&inode));
    }

    fn parent_dir(&mut self, path: &Path) -> io::Result<&mut Dir> {
        let id = self.volume.dir(parent(path)).ok_or(io::ErrorKind::NotFound)?;
        self.volume.dirs.get_mut(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl SimFile {
    fn with<T>(&self, op: Op, f: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.shared.state.lock();
        if state.generation != self.generation {
            return Err(io::Error::other("the file was opened before the crash"));
        }
        if let Err(e) = state.begin(op, &self.path) {
            if op == Op::Sync
                && !state.off
                && let Some(inode) = state.volume.inodes.get_mut(&self.inode)
            {
                inode.drop_pending();
            }
            return Err(e);
        }
        let value = f(&mut state)?;
        state.end(value)
    }

    fn inode<'a>(&self, state: &'a mut State) -> &'a mut Inode {
        state.volume.inodes.entry(self.inode).or_default()
    }

    fn write(&self, data: Vec<u8>, position: u64) -> io::Result<()> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let now = self.shared.clock.now().wall_ms;
        let position = usize::try_from(position).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let half = data.get(..data.len() / 2).unwrap_or_default();
        {
            let mut state = self.shared.state.lock();
            if !half.is_empty() && !state.off && state.failure_at(state.calls + 1, Op::Write).is_some() {
                // On an error any prefix may have been written.
                let half = half.to_vec();
                self.inode(&mut state).apply(Change::Write { position, data: half });
            }
        }
        self.with(Op::Write, |state| {
            let free = state.capacity.saturating_sub(state.volume.used());
            let inode = self.inode(state);
            let growth = (position + data.len()).saturating_sub(inode.current.len()) as u64;
            inode.modified_ms = now;
            if growth > free {
                // As write(2) does: what still fits is written, and the rest is refused.
                let fits = data.len() - usize::try_from(growth - free).unwrap_or(data.len()).min(data.len());
                if fits > 0 {
                    inode.apply(Change::Write { position, data: data[..fits].to_vec() });
                }
                return Err(io::ErrorKind::StorageFull.into());
            }
            inode.apply(Change::Write { position, data });
            Ok(())
        })
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if state.generation == self.generation
            && let Some(count) = state.open.get_mut(&self.inode)
        {
            *count -= 1;
            if *count == 0 {
                state.open.remove(&self.inode);
            }
        }
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        self.with(Op::Read, |state| {
            let content = &self.inode(state).current;
            let start = usize::try_from(position).unwrap_or(usize::MAX).min(content.len());
            let n = buf.len().min(content.len() - start);
            buf[..n].copy_from_slice(&content[start..start + n]);
            state.bytes_read += n as u64;
            Ok(n)
        })
    }

    fn write_at(&self, buf: &[u8], position: u64) -> io::Result<()> {
        self.write(buf.to_vec(), position)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        self.write(bufs.iter().flat_map(|buf| buf.iter().copied()).collect(), position)
    }

    fn len(&self) -> io::Result<u64> {
        self.with(Op::Stat, |state| Ok(self.inode(state).current.len() as u64))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.with(Op::SetLen, |state| {
            self.inode(state).apply(Change::SetLen(len));
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(Op::Sync, |state| {
            if !state.off {
                self.inode(state).sync();
                state.syncs += 1;
            }
            Ok(())
        })
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }
}

impl FileSystem for SimFileSystem {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let now = self.shared.clock.now().wall_ms;
        let mut state = self.shared.state.lock();
        let found = state.volume.node(path);
        let creates = found.is_none() && !matches!(mode, OpenMode::Read | OpenMode::ReadWrite);
        state.begin(if creates { Op::Create } else { Op::Open }, path)?;
        let inode = match (found, mode) {
            (Some(Node::Dir(_)), _) => return Err(io::ErrorKind::IsADirectory.into()),
            (Some(Node::File(_)), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(Node::File(id)), OpenMode::Truncate) => {
                let inode = state.volume.inodes.entry(id).or_default();
                inode.apply(Change::SetLen(0));
                inode.modified_ms = now;
                id
            }
            (Some(Node::File(id)), _) => id,
            (None, OpenMode::Read | OpenMode::ReadWrite) => return Err(io::ErrorKind::NotFound.into()),
            (None, _) => {
                let id = state.volume.fresh_id();
                let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
                state.parent_dir(path)?.change(NameChange::Link(name, Node::File(id)));
                state.volume.inodes.insert(id, Inode { modified_ms: now, ..Inode::default() });
                id
            }
        };
        *state.open.entry(inode).or_default() += 1;
        let file = SimFile {
            shared: self.shared.clone(),
            inode,
            path: path.to_owned(),
            generation: state.generation,
            writable: mode != OpenMode::Read,
        };
        let opened = state.end(());
        // The handle takes the lock when dropped.
        drop(state);
        opened.map(|()| -> Arc<dyn File> { Arc::new(file) })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.begin(Op::Rename, from)?;
        let node = state.volume.node(from).ok_or(io::ErrorKind::NotFound)?;
        let (old, new) = (from.file_name().map(ToOwned::to_owned), to.file_name().map(ToOwned::to_owned));
        let (Some(old), Some(new)) = (old, new) else { return Err(io::ErrorKind::InvalidInput.into()) };
        if let (Node::Dir(_), Some(Node::Dir(id))) = (node, state.volume.node(to))
            && state.volume.dirs.get(&id).is_some_and(|dir| !dir.current.is_empty())
        {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        if parent(from) == parent(to) {
            state.parent_dir(from)?.change(NameChange::Rename(old, new));
        } else {
            state.parent_dir(to)?.change(NameChange::Link(new, node));
            state.parent_dir(from)?.change(NameChange::Unlink(old));
        }
        state.end(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.begin(Op::Remove, path)?;
        match (state.volume.node(path), path.file_name()) {
            (Some(Node::File(_)), Some(name)) => {
                let name = name.to_owned();
                state.parent_dir(path)?.change(NameChange::Unlink(name));
            }
            (Some(Node::Dir(_)), _) => return Err(io::ErrorKind::IsADirectory.into()),
            _ => return Err(io::ErrorKind::NotFound.into()),
        }
        state.collect_garbage();
        state.end(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        for entry in self.list(path)? {
            let child = path.join(&entry.name);
            if entry.is_dir { self.remove_dir_all(&child)? } else { self.remove_file(&child)? }
        }
        let mut state = self.shared.state.lock();
        state.begin(Op::Remove, path)?;
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        state.parent_dir(path)?.change(NameChange::Unlink(name));
        state.collect_garbage();
        state.end(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut state = self.shared.state.lock();
        state.begin(Op::List, dir)?;
        let id = state.volume.dir(dir).ok_or(io::ErrorKind::NotFound)?;
        let entries = state.volume.dirs.get(&id).ok_or(io::ErrorKind::NotFound)?;
        let entries = entries.current.iter();
        Ok(entries
            .map(|(name, node)| DirEntry { name: name.clone(), is_dir: matches!(node, Node::Dir(_)) })
            .collect())
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut path = PathBuf::from("/");
        for name in names(dir) {
            path.push(&name);
            let mut state = self.shared.state.lock();
            match state.volume.node(&path) {
                Some(Node::Dir(_)) => {}
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => {
                    state.begin(Op::CreateDir, &path)?;
                    let id = state.volume.fresh_id();
                    state.parent_dir(&path)?.change(NameChange::Link(name, Node::Dir(id)));
                    state.volume.dirs.insert(id, Dir::default());
                    state.end(())?;
                }
            }
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.begin(Op::SyncDir, dir)?;
        let id = state.volume.dir(dir).ok_or(io::ErrorKind::NotFound)?;
        if !state.off {
            state.volume.dirs.get_mut(&id).ok_or(io::ErrorKind::NotFound)?.sync();
            state.syncs += 1;
        }
        state.end(())
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let mut state = self.shared.state.lock();
        state.begin(Op::Stat, path)?;
        match state.volume.node(path) {
            None => Err(io::ErrorKind::NotFound.into()),
            Some(Node::Dir(_)) => Ok(Metadata { len: 0, is_dir: true, modified_ms: 0 }),
            Some(Node::File(id)) => {
                let inode = state.volume.inodes.get(&id).ok_or(io::ErrorKind::NotFound)?;
                let len = inode.current.len() as u64;
                Ok(Metadata { len, is_dir: false, modified_ms: inode.modified_ms })
            }
        }
    }

    fn set_modified(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.begin(Op::Stat, path)?;
        match state.volume.node(path) {
            Some(Node::File(id)) => {
                state.volume.inodes.entry(id).or_default().modified_ms = modified_ms;
                Ok(())
            }
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        drop(self.open(path, OpenMode::Create)?);
        let path = normal(path);
        let mut state = self.shared.state.lock();
        if state.locks.iter().any(|(_, held)| *held == path) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let id = state.next_lock;
        state.next_lock += 1;
        state.locks.push((id, path));
        Ok(Box::new(SimLock { shared: self.shared.clone(), id }))
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        let state = self.shared.state.lock();
        Ok(Space { total: state.capacity, usable: state.capacity.saturating_sub(state.volume.used()) })
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        if self.exists(path)? { Ok(normal(path)) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

#[cfg(test)]
mod tests {
    use env::read_file;

    use super::*;
    use crate::Sim;

    fn content(fs: &SimFileSystem, path: &str) -> Option<Vec<u8>> {
        read_file(fs, Path::new(path), 1 << 20).ok()
    }

    #[test]
    fn synced_contents_and_names_survive_every_crash() {
        for seed in 0..200 {
            let fs = Sim::new(seed).fs;
            fs.create_dir_all(Path::new("/a/b")).unwrap();
            let file = fs.open(Path::new("/a/b/f"), OpenMode::CreateNew).unwrap();
            file.write_at(b"kept", 0).unwrap();
            file.sync_data().unwrap();
            for dir in ["/", "/a", "/a/b"] {
                fs.sync_dir(Path::new(dir)).unwrap();
            }
            file.write_at(&[7; 2000], 4).unwrap();
            fs.crash(seed);
            let content = content(&fs, "/a/b/f").unwrap();
            assert_eq!(&content[..4], b"kept");
            assert!(content[4..].iter().all(|b| *b == 7 || *b == 0));
            assert!(file.len().is_err(), "a file from before the crash is dead");
        }
    }

    #[test]
    fn unsynced_bytes_and_names_are_lost_torn_or_kept() {
        let mut lengths = std::collections::BTreeSet::new();
        let mut names = std::collections::BTreeSet::new();
        for seed in 0..300 {
            let fs = Sim::new(seed).fs;
            let file = fs.open(Path::new("/f"), OpenMode::CreateNew).unwrap();
            fs.sync_dir(Path::new("/")).unwrap();
            file.write_at(&[1; 4096], 0).unwrap();
            fs.rename(Path::new("/f"), Path::new("/g")).unwrap();
            fs.crash(seed);
            let (old, new) = (content(&fs, "/f"), content(&fs, "/g"));
            assert!(old.is_some() != new.is_some(), "a rename is atomic");
            names.insert(new.is_some());
            let bytes = old.or(new).unwrap();
            lengths.insert(bytes.iter().filter(|b| **b == 1).count());
        }
        assert!(names.len() == 2 && lengths.len() > 5, "{lengths:?}");
        assert!(lengths.contains(&0) && lengths.contains(&4096));
    }

    #[test]
    fn a_failed_sync_is_reported_once_and_loses_the_pages() {
        let fs = Sim::new(1).fs;
        let file = fs.open(Path::new("/f"), OpenMode::CreateNew).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        fs.inject(Fault { op: Op::Sync, path: "/f".into(), nth: 1, kind: io::ErrorKind::Other });
        file.write_at(b"x", 0).unwrap();
        assert!(file.sync_data().is_err());
        assert!(file.sync_data().is_ok());
        assert_eq!(content(&fs, "/f").unwrap(), b"x");
        fs.crash(3);
        assert_eq!(content(&fs, "/f").unwrap(), b"");
    }

    #[test]
    fn the_power_goes_off_at_the_operation_named() {
        let fs = Sim::new(1).fs;
        let file = fs.open(Path::new("/f"), OpenMode::CreateNew).unwrap();
        fs.power_off_at(3);
        file.write_at(b"a", 0).unwrap();
        assert!(file.write_at(b"b", 1).is_err());
        assert!(fs.is_off() && file.len().is_err());
        fs.crash(1);
        assert!(fs.open(Path::new("/g"), OpenMode::Create).is_ok());
    }

    #[test]
    fn a_full_disk_takes_what_fits() {
        let fs = Sim::new(1).fs;
        fs.set_capacity(10);
        let file = fs.open(Path::new("/f"), OpenMode::CreateNew).unwrap();
        file.write_at(&[1; 8], 0).unwrap();
        assert_eq!(file.write_at(&[2; 8], 8).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(content(&fs, "/f").unwrap(), [1, 1, 1, 1, 1, 1, 1, 1, 2, 2]);
        assert_eq!(fs.space(Path::new("/")).unwrap().usable, 0);
    }

    #[test]
    fn locks_exclude_until_dropped_or_crashed() {
        let fs = Sim::new(1).fs;
        let lock = fs.lock(Path::new("/.lock")).unwrap();
        assert!(fs.lock(Path::new("/.lock")).is_err());
        drop(lock);
        let _held = fs.lock(Path::new("/.lock")).unwrap();
        fs.crash(0);
        fs.lock(Path::new("/.lock")).unwrap();
    }
}
