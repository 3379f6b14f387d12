//! Random numbers from a seed (SplitMix64: tiny, well mixed, the same everywhere).
//!
//! Owns: the state word. Invariants: the sequence is a function of the seed. Concurrency: atomic steps.
//! Crash: nothing survives; make a new one.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use env::Random;

pub struct SeededRandom {
    state: AtomicU64,
}

impl SeededRandom {
    pub fn new(seed: u64) -> Self {
        SeededRandom { state: AtomicU64::new(seed) }
    }

    pub fn next(&self) -> u64 {
        let state = self
            .state
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
            .wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `range`, which must not be empty.
    pub fn pick(&self, range: Range<u64>) -> u64 {
        assert!(range.start < range.end, "an empty range has no number");
        range.start + self.next() % (range.end - range.start)
    }

    /// True once in `n` times.
    pub fn one_in(&self, n: u64) -> bool {
        self.pick(0..n) == 0
    }
}

impl Random for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    fn next_u64(&self) -> u64 {
        self.next()
    }
}
