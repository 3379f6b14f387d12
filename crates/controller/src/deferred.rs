//! Responses that wait until their records are committed.
//!
//! Owns what waits, by offset. Invariant: what waits for a lower offset comes out first, and for the same offset in
//! the order it went in. One owner; a crash loses it, and clients ask again.

use std::collections::BTreeMap;

/// Responses (or anything else) that wait for an offset to be stable.
#[derive(Debug, Clone)]
pub struct DeferredEventQueue<T> {
    pending: BTreeMap<i64, Vec<T>>,
}

impl<T> Default for DeferredEventQueue<T> {
    fn default() -> Self {
        Self { pending: BTreeMap::new() }
    }
}

impl<T> DeferredEventQueue<T> {
    /// Lets an event wait until `offset` is stable.
    pub fn add(&mut self, offset: i64, event: T) {
        self.pending.entry(offset).or_default().push(event);
    }

    /// What waited for `offset` or less.
    pub fn complete_up_to(&mut self, offset: i64) -> Vec<T> {
        let later = self.pending.split_off(&offset.saturating_add(1));
        std::mem::replace(&mut self.pending, later).into_values().flatten().collect()
    }

    /// Everything that waits: the controller is not active any more, and all must be refused.
    pub fn fail_all(&mut self) -> Vec<T> {
        std::mem::take(&mut self.pending).into_values().flatten().collect()
    }

    /// The highest offset that anything waits for.
    pub fn highest_pending_offset(&self) -> Option<i64> {
        self.pending.keys().next_back().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_in_order_once_their_offset_is_stable() {
        let mut queue = DeferredEventQueue::default();
        for (offset, event) in [(5, 'b'), (3, 'a'), (5, 'c'), (9, 'd')] {
            queue.add(offset, event);
        }
        assert_eq!(queue.complete_up_to(2), []);
        assert_eq!(queue.complete_up_to(5), ['a', 'b', 'c']);
        assert_eq!(queue.highest_pending_offset(), Some(9));
        assert_eq!(queue.fail_all(), ['d']);
        assert_eq!(queue.highest_pending_offset(), None);
    }
}
