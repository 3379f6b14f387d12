//! A persistent ordered set: a [`TimelineMap`] without values, with the same costs and guarantees.

use std::borrow::Borrow;
use std::fmt;

use crate::TimelineMap;

/// An ordered set whose copies are free.
pub struct TimelineSet<K> {
    map: TimelineMap<K, ()>,
}

impl<K> Clone for TimelineSet<K> {
    fn clone(&self) -> Self {
        Self { map: self.map.clone() }
    }
}

impl<K> Default for TimelineSet<K> {
    fn default() -> Self {
        Self { map: TimelineMap::default() }
    }
}

impl<K> TimelineSet<K> {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// All members in order.
    pub fn iter(&self) -> impl Iterator<Item = &K> {
        self.map.keys()
    }
}

impl<K: Ord> TimelineSet<K> {
    /// Whether `key` is a member.
    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.map.contains_key(key)
    }

    /// The members that are at least `from`, in order.
    pub fn iter_from<'a, Q: Ord + ?Sized>(&'a self, from: &Q) -> impl Iterator<Item = &'a K> + use<'a, K, Q>
    where
        K: Borrow<Q>,
    {
        self.map.iter_from(from).map(|(k, _)| k)
    }

    /// The least member.
    pub fn first(&self) -> Option<&K> {
        self.map.first().map(|(k, _)| k)
    }
}

impl<K: Ord + Clone> TimelineSet<K> {
    /// Adds a member; `false` when it was one already (which copies nothing).
    pub fn insert(&mut self, key: K) -> bool {
        !self.map.contains_key(&key) && self.map.insert(key, ()).is_none()
    }

    /// Removes a member; `false` when it was none.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.map.remove(key).is_some()
    }
}

impl<K: Ord + Clone> FromIterator<K> for TimelineSet<K> {
    fn from_iter<I: IntoIterator<Item = K>>(iter: I) -> Self {
        Self { map: iter.into_iter().map(|k| (k, ())).collect() }
    }
}

impl<K: PartialEq> PartialEq for TimelineSet<K> {
    fn eq(&self, other: &Self) -> bool {
        self.map == other.map
    }
}

impl<K: Eq> Eq for TimelineSet<K> {}

impl<K: fmt::Debug> fmt::Debug for TimelineSet<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
