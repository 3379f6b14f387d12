//! What the fuzz targets for files share: a disk in memory, and a reader of the choices that an input's first bytes make.

use std::path::Path;

use env::{FileSystem, OpenMode};
use testkit::Sim;

/// A file as it is found, whatever it holds.
pub fn put(sim: &Sim, path: &Path, content: &[u8]) {
    let file = sim.fs.open(path, OpenMode::Truncate).expect("the disk takes it");
    file.write_at(content, 0).expect("the disk takes it");
}

/// What a file holds now.
pub fn get(sim: &Sim, path: &Path) -> Vec<u8> {
    env::read_file(&*sim.fs, path, u64::MAX).expect("the file is there")
}

/// Takes choices off the front of an input. An input that ran out chooses zeros.
pub struct Choices<'a>(pub &'a [u8]);

impl Choices<'_> {
    pub fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.0 = rest;
                *head
            }
            None => [0; N],
        }
    }

    pub fn byte(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    pub fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.take())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
