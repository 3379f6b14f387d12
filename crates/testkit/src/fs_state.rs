//! The bytes and names behind [`crate::SimFileSystem`], and what a power cut leaves of them.
//!
//! Owns: inodes and directories, each as the pair *durable* (on the platter) and *current* (page cache), with the
//! list of changes between the two.
//! Invariants: `current` is `durable` with all of `pending` applied, except after a failed sync, which empties
//! `pending` without touching `durable` (the kernel marks the pages clean).
//! Concurrency: one lock in the owner.
//! Crash: of each file's pending writes a seeded choice of sectors survives, in any order; of each directory's
//! pending name changes a prefix survives, since file systems journal them in order.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use crate::random::SeededRandom;

pub(crate) const SECTOR: usize = 512;

pub(crate) type InodeId = u64;

#[derive(Clone)]
pub(crate) enum Change {
    Write { position: usize, data: Vec<u8> },
    SetLen(usize),
}

#[derive(Clone, Default)]
pub(crate) struct Inode {
    pub(crate) durable: Vec<u8>,
    pub(crate) current: Vec<u8>,
    pub(crate) pending: Vec<Change>,
    pub(crate) modified_ms: i64,
}

impl Inode {
    pub(crate) fn apply(&mut self, change: Change) {
        apply(&mut self.current, &change);
        self.pending.push(change);
    }

    pub(crate) fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            apply(&mut self.durable, &change);
        }
    }

    /// What a failed sync does: the pages count as clean from now on.
    pub(crate) fn drop_pending(&mut self) {
        self.pending.clear();
    }

    fn crash(&mut self, random: &SeededRandom) {
        let mode = random.pick(0..4);
        for change in std::mem::take(&mut self.pending) {
            match (mode, change) {
                (0, _) => {}
                (1, change) => apply(&mut self.durable, &change),
                (_, Change::SetLen(len)) => {
                    if random.one_in(2) {
                        apply(&mut self.durable, &Change::SetLen(len));
                    }
                }
                (2, Change::Write { position, mut data }) => {
                    data.truncate(usize::try_from(random.pick(0..data.len() as u64 + 1)).unwrap_or(0));
                    apply(&mut self.durable, &Change::Write { position, data });
                }
                (_, Change::Write { position, data }) => {
                    for (start, sector) in sectors(position, &data) {
                        if random.one_in(2) {
                            apply(
                                &mut self.durable,
                                &Change::Write { position: start, data: sector.to_vec() },
                            );
                        }
                    }
                }
            }
        }
        self.current = self.durable.clone();
    }
}

fn sectors(position: usize, data: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == data.len() {
            return None;
        }
        let start = position + at;
        let end = data.len().min(at + SECTOR - start % SECTOR);
        let sector = &data[at..end];
        at = end;
        Some((start, sector))
    })
}

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::SetLen(len) => content.resize(*len, 0),
        Change::Write { position, data } => {
            let end = position + data.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*position..end].copy_from_slice(data);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    File(InodeId),
    Dir(u64),
}

#[derive(Clone)]
pub(crate) enum NameChange {
    Link(OsString, Node),
    Unlink(OsString),
    /// One step of the journal: never half done.
    Rename(OsString, OsString),
}

#[derive(Clone, Default)]
pub(crate) struct Dir {
    durable: BTreeMap<OsString, Node>,
    pub(crate) current: BTreeMap<OsString, Node>,
    pending: Vec<NameChange>,
}

impl Dir {
    pub(crate) fn change(&mut self, change: NameChange) {
        apply_name(&mut self.current, &change);
        self.pending.push(change);
    }

    pub(crate) fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            apply_name(&mut self.durable, &change);
        }
    }

    fn crash(&mut self, random: &SeededRandom) {
        let pending = std::mem::take(&mut self.pending);
        let kept = usize::try_from(random.pick(0..pending.len() as u64 + 1)).unwrap_or(0);
        for change in &pending[..kept] {
            apply_name(&mut self.durable, change);
        }
        self.current = self.durable.clone();
    }
}

fn apply_name(names: &mut BTreeMap<OsString, Node>, change: &NameChange) {
    match change {
        NameChange::Link(name, node) => {
            names.insert(name.clone(), *node);
        }
        NameChange::Unlink(name) => {
            names.remove(name);
        }
        NameChange::Rename(from, to) => {
            if let Some(node) = names.remove(from) {
                names.insert(to.clone(), node);
            }
        }
    }
}

/// The whole volume.
#[derive(Clone, Default)]
pub(crate) struct Volume {
    pub(crate) inodes: BTreeMap<InodeId, Inode>,
    pub(crate) dirs: BTreeMap<u64, Dir>,
    next_id: u64,
}

pub(crate) const ROOT: u64 = 0;

impl Volume {
    pub(crate) fn new() -> Self {
        let mut volume = Volume { next_id: 1, ..Volume::default() };
        volume.dirs.insert(ROOT, Dir::default());
        volume
    }

    pub(crate) fn fresh_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    pub(crate) fn dir(&self, path: &Path) -> Option<u64> {
        let mut at = ROOT;
        for name in names(path) {
            match self.dirs.get(&at)?.current.get(&name)? {
                Node::Dir(id) => at = *id,
                Node::File(_) => return None,
            }
        }
        Some(at)
    }

    pub(crate) fn node(&self, path: &Path) -> Option<Node> {
        match path.file_name() {
            None => Some(Node::Dir(ROOT)),
            Some(name) => self.dirs.get(&self.dir(parent(path))?)?.current.get(name).copied(),
        }
    }

    pub(crate) fn used(&self) -> u64 {
        self.inodes.values().map(|inode| inode.current.len() as u64).sum()
    }

    pub(crate) fn crash(&mut self, random: &SeededRandom) {
        for inode in self.inodes.values_mut() {
            inode.crash(random);
        }
        for dir in self.dirs.values_mut() {
            dir.crash(random);
        }
        self.collect_garbage(|_| false);
    }

    /// Forgets directories and unopened files that no name leads to, now or after a crash.
    pub(crate) fn collect_garbage(&mut self, is_open: impl Fn(InodeId) -> bool) {
        let mut live_dirs = std::collections::BTreeSet::from([ROOT]);
        let mut live_files = std::collections::BTreeSet::new();
        let mut todo = vec![ROOT];
        while let Some(id) = todo.pop() {
            let Some(dir) = self.dirs.get(&id) else { continue };
            let pending = dir.pending.iter().filter_map(|change| match change {
                NameChange::Link(_, node) => Some(node),
                _ => None,
            });
            for node in dir.current.values().chain(dir.durable.values()).chain(pending) {
                match node {
                    Node::Dir(child) => {
                        if live_dirs.insert(*child) {
                            todo.push(*child);
                        }
                    }
                    Node::File(file) => {
                        live_files.insert(*file);
                    }
                }
            }
        }
        self.dirs.retain(|id, _| live_dirs.contains(id));
        self.inodes.retain(|id, _| live_files.contains(id) || is_open(*id));
    }
}

pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

pub(crate) fn names(path: &Path) -> impl Iterator<Item = OsString> {
    let names: Vec<OsString> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            _ => None,
        })
        .collect();
    names.into_iter()
}

/// `/a/./b` as `/a/b`.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    normal.extend(names(path));
    normal
}
