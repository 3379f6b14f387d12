//! The classic groups of a shard: an arena that the replicated state refers into.
//!
//! Invariant: a group lives as long as some copy of the state, or a parked operation, holds its [`ClassicGroupRef`].

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::classic::ClassicGroup;
use crate::state::ClassicGroupRef;

#[derive(Debug, Default)]
pub(crate) struct ClassicGroups {
    slots: BTreeMap<u64, (Weak<u64>, ClassicGroup)>,
    next_id: u64,
    /// Some reference may have gone since the last sweep.
    dirty: bool,
}

impl ClassicGroups {
    pub(crate) fn insert(&mut self, group: ClassicGroup) -> ClassicGroupRef {
        self.next_id += 1;
        let id = Arc::new(self.next_id);
        self.slots.insert(self.next_id, (Arc::downgrade(&id), group));
        ClassicGroupRef(id)
    }

    pub(crate) fn get(&self, group: &ClassicGroupRef) -> Option<&ClassicGroup> {
        self.slots.get(&group.id()).map(|(_, group)| group)
    }

    pub(crate) fn get_mut(&mut self, group: &ClassicGroupRef) -> Option<&mut ClassicGroup> {
        self.slots.get_mut(&group.id()).map(|(_, group)| group)
    }

    pub(crate) fn mark_dirty(&mut self) {
        self.dirty = true;
    }

    /// Drops the groups that nothing refers to.
    pub(crate) fn sweep(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.slots.retain(|_, (alive, _)| alive.strong_count() > 0);
        }
    }
}
