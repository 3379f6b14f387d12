//! The replicated state of a shard: which groups exist and what they committed.
//!
//! Invariant: changes only in replay, except that a classic group enters the map when its first member comes, together
//! with the record that says so. A copy costs reference counts.
//! The insides of a classic group are not here: they are soft state, held by the shard under a [`ClassicGroupRef`].

use std::sync::Arc;

use timeline::TimelineMap;

use crate::modern::ModernGroup;
use crate::offsets::OffsetState;

/// Names a classic group in the shard's arena. The group is dropped when no state refers to it any more.
#[derive(Clone, Debug)]
pub(crate) struct ClassicGroupRef(pub(crate) Arc<u64>);

impl ClassicGroupRef {
    pub(crate) fn id(&self) -> u64 {
        *self.0
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Group {
    Classic(ClassicGroupRef),
    Modern(Arc<ModernGroup>),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct GroupState {
    pub(crate) groups: TimelineMap<Arc<str>, Group>,
    pub(crate) offsets: OffsetState,
}
