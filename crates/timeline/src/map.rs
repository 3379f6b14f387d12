//! A persistent ordered map: copies share every subtree that neither side has changed.
//!
//! Owns one weight-balanced tree (the balance of Adams' trees with ratio 3 and 2). Invariants: in key order; no
//! subtree is more than three times as heavy as its sibling, so depth is logarithmic; `size` counts the subtree.
//! Concurrency: immutable once shared; a writer copies the path it changes (`Arc::make_mut`).

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// How much heavier one subtree may be than the other, and when a double rotation is needed.
const DELTA: usize = 3;
const RATIO: usize = 2;

type Link<K, V> = Option<Arc<Node<K, V>>>;

#[derive(Clone)]
struct Node<K, V> {
    key: K,
    value: V,
    size: usize,
    left: Link<K, V>,
    right: Link<K, V>,
}

/// An ordered map whose copies are free and whose changes copy one path of the tree.
pub struct TimelineMap<K, V> {
    root: Link<K, V>,
}

impl<K, V> Clone for TimelineMap<K, V> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone() }
    }
}

impl<K, V> Default for TimelineMap<K, V> {
    fn default() -> Self {
        Self { root: None }
    }
}

impl<K, V> TimelineMap<K, V> {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        size(&self.root)
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Whether both maps are the same copy; `false` says nothing about their entries.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        match (&self.root, &other.root) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// All entries in key order.
    pub fn iter(&self) -> Iter<'_, K, V> {
        let mut iter = Iter { stack: Vec::new() };
        iter.push_left(&self.root);
        iter
    }

    /// All keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(k, _)| k)
    }

    /// All values in key order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, v)| v)
    }

    /// The entry with the least key.
    pub fn first(&self) -> Option<(&K, &V)> {
        self.iter().next()
    }
}

impl<K: Ord, V> TimelineMap<K, V> {
    /// The value of `key`.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let mut link = &self.root;
        while let Some(node) = link {
            match key.cmp(node.key.borrow()) {
                Ordering::Less => link = &node.left,
                Ordering::Greater => link = &node.right,
                Ordering::Equal => return Some(&node.value),
            }
        }
        None
    }

    /// Whether `key` has a value.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// The entries whose key is at least `from`, in key order.
    pub fn iter_from<Q: Ord + ?Sized>(&self, from: &Q) -> Iter<'_, K, V>
    where
        K: Borrow<Q>,
    {
        let mut iter = Iter { stack: Vec::new() };
        let mut link = &self.root;
        while let Some(node) = link {
            if node.key.borrow() < from {
                link = &node.right;
            } else {
                iter.stack.push(node);
                link = &node.left;
            }
        }
        iter
    }
}

impl<K: Ord + Clone, V: Clone> TimelineMap<K, V> {
    /// Sets the value of `key` and returns the one it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        insert(&mut self.root, key, value)
    }

    /// Removes `key` and returns the value it had.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        // Looked up first, so that removing what is absent copies nothing.
        if !self.contains_key(key) {
            return None;
        }
        remove(&mut self.root, key)
    }

    /// The value of `key` for changing in place; copies the path when it is shared.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        if !self.contains_key(key) {
            return None;
        }
        let mut link = &mut self.root;
        while let Some(arc) = link {
            let node = Arc::make_mut(arc);
            match key.cmp(node.key.borrow()) {
                Ordering::Less => link = &mut node.left,
                Ordering::Greater => link = &mut node.right,
                Ordering::Equal => return Some(&mut node.value),
            }
        }
        None
    }
}

fn size<K, V>(link: &Link<K, V>) -> usize {
    link.as_ref().map_or(0, |n| n.size)
}

impl<K, V> Node<K, V> {
    fn leaf(key: K, value: V) -> Self {
        Self { key, value, size: 1, left: None, right: None }
    }

    fn update(&mut self) {
        self.size = size(&self.left) + size(&self.right) + 1;
    }
}

fn insert<K: Ord + Clone, V: Clone>(link: &mut Link<K, V>, key: K, value: V) -> Option<V> {
    let Some(arc) = link else {
        *link = Some(Arc::new(Node::leaf(key, value)));
        return None;
    };
    let node = Arc::make_mut(arc);
    let old = match key.cmp(&node.key) {
        Ordering::Equal => return Some(std::mem::replace(&mut node.value, value)),
        Ordering::Less => insert(&mut node.left, key, value),
        Ordering::Greater => insert(&mut node.right, key, value),
    };
    if old.is_none() {
        rebalance(node);
    }
    old
}

fn remove<K: Ord + Clone + Borrow<Q>, V: Clone, Q: Ord + ?Sized>(
    link: &mut Link<K, V>,
    key: &Q,
) -> Option<V> {
    let arc = link.as_mut()?;
    match key.cmp(arc.key.borrow()) {
        Ordering::Less => {
            let node = Arc::make_mut(arc);
            let old = remove(&mut node.left, key);
            rebalance(node);
            old
        }
        Ordering::Greater => {
            let node = Arc::make_mut(arc);
            let old = remove(&mut node.right, key);
            rebalance(node);
            old
        }
        Ordering::Equal => {
            let node = Arc::unwrap_or_clone(link.take()?);
            *link = join(node.left, node.right);
            Some(node.value)
        }
    }
}

/// One tree of two whose keys are apart and whose weights are balanced.
fn join<K: Ord + Clone, V: Clone>(mut left: Link<K, V>, mut right: Link<K, V>) -> Link<K, V> {
    let taken = if size(&left) > size(&right) { pop_last(&mut left) } else { pop_first(&mut right) };
    let Some((key, value)) = taken else {
        return left.or(right);
    };
    let mut node = Node { key, value, size: 0, left, right };
    rebalance(&mut node);
    Some(Arc::new(node))
}

fn pop_first<K: Ord + Clone, V: Clone>(link: &mut Link<K, V>) -> Option<(K, V)> {
    let arc = link.as_mut()?;
    if arc.left.is_some() {
        let node = Arc::make_mut(arc);
        let taken = pop_first(&mut node.left);
        rebalance(node);
        return taken;
    }
    let node = Arc::unwrap_or_clone(link.take()?);
    *link = node.right;
    Some((node.key, node.value))
}

fn pop_last<K: Ord + Clone, V: Clone>(link: &mut Link<K, V>) -> Option<(K, V)> {
    let arc = link.as_mut()?;
    if arc.right.is_some() {
        let node = Arc::make_mut(arc);
        let taken = pop_last(&mut node.right);
        rebalance(node);
        return taken;
    }
    let node = Arc::unwrap_or_clone(link.take()?);
    *link = node.left;
    Some((node.key, node.value))
}

fn rebalance<K: Clone, V: Clone>(node: &mut Node<K, V>) {
    node.update();
    let (left, right) = (size(&node.left), size(&node.right));
    if left + right <= 1 {
        return;
    }
    if right > DELTA * left {
        if let Some(child) = &node.right
            && size(&child.left) >= RATIO * size(&child.right)
            && let Some(arc) = &mut node.right
        {
            rotate_right(Arc::make_mut(arc));
        }
        rotate_left(node);
    } else if left > DELTA * right {
        if let Some(child) = &node.left
            && size(&child.right) >= RATIO * size(&child.left)
            && let Some(arc) = &mut node.left
        {
            rotate_left(Arc::make_mut(arc));
        }
        rotate_right(node);
    }
}

fn rotate_left<K: Clone, V: Clone>(node: &mut Node<K, V>) {
    let Some(right) = node.right.take() else { return };
    let mut old = std::mem::replace(node, Arc::unwrap_or_clone(right));
    old.right = node.left.take();
    old.update();
    node.left = Some(Arc::new(old));
    node.update();
}

fn rotate_right<K: Clone, V: Clone>(node: &mut Node<K, V>) {
    let Some(left) = node.left.take() else { return };
    let mut old = std::mem::replace(node, Arc::unwrap_or_clone(left));
    old.left = node.right.take();
    old.update();
    node.right = Some(Arc::new(old));
    node.update();
}

/// Iterates over a [`TimelineMap`] in key order.
pub struct Iter<'a, K, V> {
    stack: Vec<&'a Node<K, V>>,
}

impl<'a, K, V> Iter<'a, K, V> {
    fn push_left(&mut self, mut link: &'a Link<K, V>) {
        while let Some(node) = link {
            self.stack.push(node);
            link = &node.left;
        }
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        let node = self.stack.pop()?;
        self.push_left(&node.right);
        Some((&node.key, &node.value))
    }
}

impl<'a, K, V> IntoIterator for &'a TimelineMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for TimelineMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(iter: I) -> Self {
        let mut map = Self::new();
        for (k, v) in iter {
            map.insert(k, v);
        }
        map
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for TimelineMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.ptr_eq(other) || (self.len() == other.len() && self.iter().eq(other.iter()))
    }
}

impl<K: Eq, V: Eq> Eq for TimelineMap<K, V> {}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for TimelineMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn assert_balanced<K, V>(link: &Link<K, V>) -> usize {
        let Some(node) = link else { return 0 };
        let (l, r) = (assert_balanced(&node.left), assert_balanced(&node.right));
        assert_eq!(node.size, l + r + 1);
        if l + r > 1 {
            assert!(l <= DELTA * r && r <= DELTA * l, "unbalanced: {l} and {r}");
        }
        node.size
    }

    proptest! {
        #[test]
        fn behaves_as_an_ordered_map_and_stays_balanced(
            ops in proptest::collection::vec((any::<bool>(), 0u8..64, any::<u16>()), 0..400)
        ) {
            let mut map = TimelineMap::new();
            let mut model = BTreeMap::new();
            for (put, key, value) in ops {
                let (before, before_model) = (map.clone(), model.clone());
                if put {
                    prop_assert_eq!(map.insert(key, value), model.insert(key, value));
                } else {
                    prop_assert_eq!(map.remove(&key), model.remove(&key));
                }
                assert_balanced(&map.root);
                prop_assert!(map.iter().eq(model.iter()));
                prop_assert!(before.iter().eq(before_model.iter()), "a change reached an older copy");
                prop_assert!(map.iter_from(&key).eq(model.range(key..)));
            }
        }
    }

    #[test]
    fn ascending_and_descending_inserts_stay_balanced() {
        let up: TimelineMap<i32, i32> = (0..10_000).map(|i| (i, i)).collect();
        let mut down: TimelineMap<i32, i32> = (0..10_000).rev().map(|i| (i, i)).collect();
        assert_balanced(&up.root);
        assert_balanced(&down.root);
        assert_eq!(up, down);
        for i in 0..5_000 {
            down.remove(&i);
            assert_balanced(&down.root);
        }
        assert_eq!(down.first(), Some((&5_000, &5_000)));
    }

    #[test]
    fn changing_a_value_in_place_leaves_copies_alone() {
        let mut map: TimelineMap<&str, Vec<i32>> = [("a", vec![1]), ("b", vec![2])].into_iter().collect();
        let copy = map.clone();
        if let Some(v) = map.get_mut("a") {
            v.push(9);
        }
        assert_eq!(map.get("a"), Some(&vec![1, 9]));
        assert_eq!(copy.get("a"), Some(&vec![1]));
        assert!(map.get_mut("c").is_none());
    }
}
