//! Offsets together with where they are in the files, and cells that publish them without a lock.
//!
//! Owns: [`LogOffsetMetadata`] and [`OffsetCell`].
//! Invariants: a cell is written under the log's writer lock only; readers see one whole value.
//! Concurrency: a sequence lock of atomics: readers retry while a write is under way, writers never wait.
//! Crash: nothing is on disk.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

/// An offset and, when known, the place of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOffsetMetadata {
    pub message_offset: i64,
    /// -1 when unknown.
    pub segment_base_offset: i64,
    /// In the segment's file; -1 when unknown.
    pub relative_position: i64,
}

impl LogOffsetMetadata {
    pub const fn new(message_offset: i64, segment_base_offset: i64, relative_position: u32) -> Self {
        LogOffsetMetadata { message_offset, segment_base_offset, relative_position: relative_position as i64 }
    }

    pub const fn offset_only(message_offset: i64) -> Self {
        LogOffsetMetadata { message_offset, segment_base_offset: -1, relative_position: -1 }
    }

    pub fn is_offset_only(&self) -> bool {
        self.relative_position < 0
    }
}

#[derive(Debug)]
pub(crate) struct OffsetCell {
    sequence: AtomicU64,
    values: [AtomicI64; 3],
}

impl OffsetCell {
    pub(crate) fn new(value: LogOffsetMetadata) -> Self {
        let LogOffsetMetadata { message_offset, segment_base_offset, relative_position } = value;
        OffsetCell {
            sequence: AtomicU64::new(0),
            values: [message_offset, segment_base_offset, relative_position].map(AtomicI64::new),
        }
    }

    pub(crate) fn store(&self, value: LogOffsetMetadata) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let [offset, base, position] = &self.values;
        offset.store(value.message_offset, Ordering::Relaxed);
        base.store(value.segment_base_offset, Ordering::Relaxed);
        position.store(value.relative_position, Ordering::Relaxed);
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    pub(crate) fn load(&self) -> LogOffsetMetadata {
        let [offset, base, position] = &self.values;
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            let value = LogOffsetMetadata {
                message_offset: offset.load(Ordering::Relaxed),
                segment_base_offset: base.load(Ordering::Relaxed),
                relative_position: position.load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return value;
            }
            std::hint::spin_loop();
        }
    }

    pub(crate) fn offset(&self) -> i64 {
        self.values[0].load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_never_see_a_mixture() {
        let cell = OffsetCell::new(LogOffsetMetadata::new(0, 0, 0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..20_000_u32 {
                    cell.store(LogOffsetMetadata::new(i64::from(i), i64::from(i), i));
                }
            });
            let mut last = 0;
            while last < 19_999 {
                let value = cell.load();
                assert_eq!(value.message_offset, value.segment_base_offset);
                assert_eq!(value.message_offset, value.relative_position);
                assert!(value.message_offset >= last);
                last = value.message_offset;
            }
        });
    }
}
