//! What the controller is told at its start: the cluster, this node, its configuration, and what it supports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use config::ServerConfig;
use metadata::VersionRange;
use metadata::feature::default_supported_features;

/// What this node supports of each feature, and who votes.
#[derive(Debug, Clone)]
pub struct LocalFeatures {
    /// This node.
    pub node_id: i32,
    /// What it supports.
    pub supported: BTreeMap<String, VersionRange>,
    /// The voters of the metadata quorum.
    pub quorum_node_ids: Vec<i32>,
}

impl LocalFeatures {
    /// What this node supports of a feature.
    pub(crate) fn range(&self, name: &str) -> VersionRange {
        self.supported.get(name).copied().unwrap_or(VersionRange::DISABLED)
    }
}

/// Everything the controller is told at its start. Intervals and defaults come from the node's own properties.
#[derive(Debug, Clone)]
pub struct ControllerSettings {
    /// The cluster.
    pub cluster_id: String,
    /// This node and what it supports.
    pub local: LocalFeatures,
    /// The node's own properties: defaults of topics, and what configurations are checked against.
    pub server: Arc<ServerConfig>,
}

impl ControllerSettings {
    /// Settings of a node that supports what this release supports.
    pub fn new(cluster_id: &str, server: Arc<ServerConfig>, quorum_node_ids: Vec<i32>) -> Self {
        let local = LocalFeatures {
            node_id: server.node_id,
            supported: default_supported_features(server.unstable_feature_versions_enable),
            quorum_node_ids,
        };
        Self { cluster_id: cluster_id.to_owned(), local, server }
    }

    /// `broker.session.timeout.ms`.
    pub(crate) fn session_timeout(&self) -> Duration {
        millis(i64::from(self.server.broker_session_timeout_ms))
    }

    /// `metadata.max.idle.interval.ms`; 0 writes no NoOpRecords (KIP-835).
    pub(crate) fn max_idle_interval(&self) -> Option<Duration> {
        Some(millis(i64::from(self.server.metadata_max_idle_interval_ms))).filter(|d| !d.is_zero())
    }

    /// `leader.imbalance.check.interval.seconds`, when leaders are balanced at all.
    pub(crate) fn leader_imbalance_check_interval(&self) -> Option<Duration> {
        let seconds = self.server.leader_imbalance_check_interval_seconds;
        self.server.auto_leader_rebalance_enable.then(|| Duration::from_secs(seconds.unsigned_abs()))
    }

    /// `unclean.leader.election.interval.ms`.
    pub(crate) fn unclean_leader_election_check_interval(&self) -> Duration {
        millis(self.server.unclean_leader_election_interval_ms)
    }

    pub(crate) fn default_replication_factor(&self) -> i16 {
        i16::try_from(self.server.default_replication_factor).unwrap_or(i16::MAX)
    }
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
