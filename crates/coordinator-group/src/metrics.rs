//! Counters and gauges of a shard. Exporters name them as 4.4.0's `GroupCoordinatorMetrics` does.

/// Counters since the shard was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMetrics {
    /// `offset-commit-count`
    pub offset_commits: u64,
    /// `offset-expiration-count`
    pub offset_expirations: u64,
    /// `offset-deletion-count`
    pub offset_deletions: u64,
    /// `group-completed-rebalance-count`
    pub completed_rebalances: u64,
}

impl GroupMetrics {
    pub fn merge(&mut self, other: &Self) {
        self.offset_commits += other.offset_commits;
        self.offset_expirations += other.offset_expirations;
        self.offset_deletions += other.offset_deletions;
        self.completed_rebalances += other.completed_rebalances;
    }
}

/// What a shard holds now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupGauges {
    /// `NumOffsets`, committed ones.
    pub offsets: usize,
    /// `NumGroups…` of the classic protocol, by state.
    pub classic_empty: usize,
    pub classic_preparing_rebalance: usize,
    pub classic_completing_rebalance: usize,
    pub classic_stable: usize,
    pub classic_dead: usize,
    pub consumer_groups: usize,
    pub share_groups: usize,
    pub streams_groups: usize,
}

impl GroupGauges {
    pub fn merge(&mut self, other: &Self) {
        self.offsets += other.offsets;
        self.classic_empty += other.classic_empty;
        self.classic_preparing_rebalance += other.classic_preparing_rebalance;
        self.classic_completing_rebalance += other.classic_completing_rebalance;
        self.classic_stable += other.classic_stable;
        self.classic_dead += other.classic_dead;
        self.consumer_groups += other.consumer_groups;
        self.share_groups += other.share_groups;
        self.streams_groups += other.streams_groups;
    }
}
