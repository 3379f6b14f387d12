//! What the broker's configuration says about groups and offsets.

use std::time::Duration;

use coordinator::CoordinatorOptions;

/// The settings of a shard. `Default` has 4.4.0's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupCoordinatorConfig {
    /// `offset.metadata.max.bytes`, counted in UTF-16 units as the reference counts.
    pub offset_metadata_max_size: usize,
    /// `offsets.retention.minutes`, in milliseconds.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`
    pub offsets_retention_check_interval_ms: i64,
    /// `offsets.commit.timeout.ms`
    pub offset_commit_timeout_ms: u64,
    /// `group.min.session.timeout.ms`
    pub group_min_session_timeout_ms: i32,
    /// `group.max.session.timeout.ms`
    pub group_max_session_timeout_ms: i32,
    /// `group.initial.rebalance.delay.ms`
    pub group_initial_rebalance_delay_ms: i32,
    /// `group.max.size`
    pub group_max_size: i32,
    /// `group.coordinator.append.linger.ms`; -1 batches whatever comes in while an append is under way.
    pub append_linger_ms: i32,
    /// `max.message.bytes` of the offsets topic.
    pub max_batch_size: usize,
}

impl Default for GroupCoordinatorConfig {
    fn default() -> Self {
        Self {
            offset_metadata_max_size: 4096,
            offsets_retention_ms: 10_080 * 60_000,
            offsets_retention_check_interval_ms: 600_000,
            offset_commit_timeout_ms: 5_000,
            group_min_session_timeout_ms: 6_000,
            group_max_session_timeout_ms: 1_800_000,
            group_initial_rebalance_delay_ms: 3_000,
            group_max_size: i32::MAX,
            append_linger_ms: -1,
            max_batch_size: 1_048_588,
        }
    }
}

impl GroupCoordinatorConfig {
    /// How long a member that has joined but never got an answer is kept; a constant of the reference.
    pub const NEW_MEMBER_JOIN_TIMEOUT_MS: i32 = 5 * 60 * 1000;

    pub(crate) fn max_size(&self) -> usize {
        usize::try_from(self.group_max_size).unwrap_or(0)
    }

    pub(crate) fn coordinator_options(&self) -> CoordinatorOptions {
        CoordinatorOptions {
            write_timeout: Duration::from_millis(self.offset_commit_timeout_ms),
            append_linger: u64::try_from(self.append_linger_ms).ok().map(Duration::from_millis),
            max_batch_size: self.max_batch_size,
        }
    }
}
