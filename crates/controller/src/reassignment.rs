//! Reassignment of a partition's replicas (KIP-455): what is added and removed, when it is complete, how it is undone.

use metadata::PartitionRegistration;

/// A reassignment in progress, or none when nothing is added or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reassignment {
    pub(crate) removing: Vec<i32>,
    pub(crate) adding: Vec<i32>,
    pub(crate) replicas: Vec<i32>,
}

/// Replicas and ISR after a completed or reverted reassignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reassigned {
    pub(crate) replicas: Vec<i32>,
    pub(crate) isr: Vec<i32>,
}

fn difference(a: &[i32], b: &[i32]) -> Vec<i32> {
    let mut result: Vec<i32> = a.iter().copied().filter(|r| !b.contains(r)).collect();
    result.sort_unstable();
    result.dedup();
    result
}

fn without(list: &[i32], removed: &[i32]) -> Vec<i32> {
    list.iter().copied().filter(|r| !removed.contains(r)).collect()
}

impl Reassignment {
    /// From the current replicas to a target.
    pub(crate) fn between(current: &[i32], target: &[i32]) -> Self {
        let removing = difference(current, target);
        let adding = difference(target, current);
        let replicas = target.iter().chain(&removing).copied().collect();
        Self { removing, adding, replicas }
    }

    /// The end of the reassignment, once enough replicas are in sync.
    pub(crate) fn maybe_complete(&self, isr: &[i32]) -> Option<Reassigned> {
        if self.removing.is_empty() && self.adding.is_empty() {
            return None;
        }
        let isr = without(isr, &self.removing);
        let replicas = without(&self.replicas, &self.removing);
        if !self.removing.is_empty() && (isr.is_empty() || replicas.is_empty()) {
            return None;
        }
        if !self.adding.iter().all(|r| isr.contains(r)) {
            return None;
        }
        // When the replication factor shrinks, nothing else may be out of sync.
        if self.adding.len() < self.removing.len() && !replicas.iter().all(|r| isr.contains(r)) {
            return None;
        }
        Some(Reassigned { replicas, isr })
    }
}

/// How a reassignment in progress is undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Revert {
    pub(crate) to: Reassigned,
    /// Whether no replica that stays is in sync.
    pub(crate) unclean: bool,
}

impl Revert {
    /// `None` when all replicas are being added, so that none would stay.
    pub(crate) fn of(partition: &PartitionRegistration) -> Option<Self> {
        let replicas = without(&partition.replicas, &partition.adding_replicas);
        let isr = without(&partition.isr, &partition.adding_replicas);
        if isr.is_empty() {
            let first = *replicas.first()?;
            return Some(Self { to: Reassigned { replicas, isr: vec![first] }, unclean: true });
        }
        Some(Self { to: Reassigned { replicas, isr }, unclean: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reassignment_adds_first_and_completes_when_what_is_added_is_in_sync() {
        let r = Reassignment::between(&[1, 2, 3], &[4, 2, 5]);
        assert_eq!(
            r,
            Reassignment { removing: vec![1, 3], adding: vec![4, 5], replicas: vec![4, 2, 5, 1, 3] }
        );
        assert_eq!(r.maybe_complete(&[1, 2, 3]), None);
        assert_eq!(r.maybe_complete(&[1, 2, 3, 4]), None);
        assert_eq!(
            r.maybe_complete(&[1, 4, 5]),
            Some(Reassigned { replicas: vec![4, 2, 5], isr: vec![4, 5] })
        );
    }

    #[test]
    fn a_smaller_replication_factor_needs_all_that_stay_in_sync() {
        let r = Reassignment::between(&[1, 2, 3], &[1, 2]);
        assert_eq!(r.maybe_complete(&[1, 3]), None);
        assert_eq!(r.maybe_complete(&[1, 2, 3]), Some(Reassigned { replicas: vec![1, 2], isr: vec![1, 2] }));
        assert_eq!(r.maybe_complete(&[3]), None, "the ISR would be empty");
        assert_eq!(Reassignment::between(&[1, 2], &[2, 1]).maybe_complete(&[1, 2]), None);
    }
}
