//! Snapshots of a state by offset: what the controller reverts to when it loses leadership or aborts a transaction.
//!
//! Owns the current state and one copy of it per snapshot. Invariants: a snapshot holds the state exactly as it
//! was when taken; snapshots newer than one that is reverted to are gone. Meant for states built from
//! [`crate::TimelineMap`] and [`crate::TimelineSet`], whose copies are free.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// There is no snapshot at the offset asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoSuchSnapshot {
    /// The offset asked for.
    pub offset: i64,
}

impl fmt::Display for NoSuchSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no in-memory snapshot for offset {}", self.offset)
    }
}

impl std::error::Error for NoSuchSnapshot {}

/// The current state and its snapshots. Dereferences to the current state.
#[derive(Debug, Clone, Default)]
pub struct SnapshotRegistry<S> {
    current: S,
    snapshots: BTreeMap<i64, S>,
}

impl<S: Clone + Default> SnapshotRegistry<S> {
    /// A registry of `state` without snapshots.
    pub fn new(state: S) -> Self {
        Self { current: state, snapshots: BTreeMap::new() }
    }

    /// The state as it was at `offset`, for reads that must not see what is uncommitted.
    pub fn at(&self, offset: i64) -> Result<&S, NoSuchSnapshot> {
        self.snapshots.get(&offset).ok_or(NoSuchSnapshot { offset })
    }

    /// Whether there is a snapshot at `offset`.
    pub fn has_snapshot(&self, offset: i64) -> bool {
        self.snapshots.contains_key(&offset)
    }

    /// The offsets of all snapshots in order.
    pub fn offsets(&self) -> impl Iterator<Item = i64> + '_ {
        self.snapshots.keys().copied()
    }

    /// Takes a snapshot at `offset` unless there is one.
    pub fn get_or_create_snapshot(&mut self, offset: i64) {
        self.snapshots.entry(offset).or_insert_with(|| self.current.clone());
    }

    /// Makes the snapshot at `offset` the current state and forgets all later snapshots; this one stays.
    pub fn revert_to(&mut self, offset: i64) -> Result<(), NoSuchSnapshot> {
        let state = self.snapshots.get(&offset).ok_or(NoSuchSnapshot { offset })?.clone();
        self.current = state;
        self.snapshots.retain(|o, _| *o <= offset);
        Ok(())
    }

    /// Forgets the snapshots before `offset`; one at `offset` stays.
    pub fn delete_snapshots_up_to(&mut self, offset: i64) {
        self.snapshots = self.snapshots.split_off(&offset);
    }

    /// Forgets everything, snapshots and state.
    pub fn reset(&mut self) {
        self.snapshots.clear();
        self.current = S::default();
    }
}

impl<S> Deref for SnapshotRegistry<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.current
    }
}

impl<S> DerefMut for SnapshotRegistry<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.current
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TimelineMap;
    use proptest::prelude::*;

    #[derive(Debug, Clone, PartialEq)]
    enum Op {
        Put(u8, u8),
        Remove(u8),
        Snapshot,
        Revert(usize),
        Delete(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0u8..16, any::<u8>()).prop_map(|(k, v)| Op::Put(k, v)),
            2 => (0u8..16).prop_map(Op::Remove),
            2 => Just(Op::Snapshot),
            1 => any::<usize>().prop_map(Op::Revert),
            1 => any::<usize>().prop_map(Op::Delete),
        ]
    }

    proptest! {
        #[test]
        fn reverting_restores_exactly_what_a_snapshot_saw(ops in proptest::collection::vec(op(), 0..200)) {
            let mut registry: SnapshotRegistry<TimelineMap<u8, u8>> = SnapshotRegistry::default();
            let mut model: BTreeMap<i64, BTreeMap<u8, u8>> = BTreeMap::new();
            let mut current = BTreeMap::new();
            let mut next = 0i64;
            for op in ops {
                match op {
                    Op::Put(k, v) => { registry.insert(k, v); current.insert(k, v); }
                    Op::Remove(k) => { registry.remove(&k); current.remove(&k); }
                    Op::Snapshot => {
                        next += 1;
                        registry.get_or_create_snapshot(next);
                        model.insert(next, current.clone());
                    }
                    Op::Revert(n) => {
                        let Some(&offset) = model.keys().nth(n % model.len().max(1)) else { continue };
                        registry.revert_to(offset).unwrap();
                        current = model[&offset].clone();
                        model.retain(|o, _| *o <= offset);
                    }
                    Op::Delete(n) => {
                        let Some(&offset) = model.keys().nth(n % model.len().max(1)) else { continue };
                        registry.delete_snapshots_up_to(offset);
                        model.retain(|o, _| *o >= offset);
                    }
                }
                prop_assert!(registry.iter().eq(current.iter()));
                prop_assert!(registry.offsets().eq(model.keys().copied()));
                for (offset, state) in &model {
                    prop_assert!(registry.at(*offset).unwrap().iter().eq(state.iter()));
                }
            }
        }
    }

    #[test]
    fn reverting_to_an_offset_without_snapshot_is_refused() {
        let mut registry: SnapshotRegistry<TimelineMap<u8, u8>> = SnapshotRegistry::default();
        registry.insert(1, 1);
        assert_eq!(registry.revert_to(5), Err(NoSuchSnapshot { offset: 5 }));
        assert_eq!(registry.get(&1), Some(&1), "a refused revert changes nothing");
    }
}
