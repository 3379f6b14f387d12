//! Identities and values shared by every part of the raft crate: replicas, voters, endpoints, offsets.
//!
//! Owns no state. Everything here is a plain value; maps are ordered so that whatever is written or sent
//! has one order on every run (voter ids ascending, listener names ascending).

use std::collections::BTreeMap;
use std::fmt;

use protocol::Uuid;
use protocol::records::raft::VotersRecord;
use protocol::records::raft::voters_record::{Endpoint, KRaftVersionFeature, Voter};

/// An offset together with the epoch of the record before it. Ordered as the quorum orders logs: the epoch decides first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OffsetAndEpoch {
    pub epoch: i32,
    pub offset: i64,
}

impl OffsetAndEpoch {
    /// Id of the snapshot that `kafka-storage format` writes; it is never replicated.
    pub const BOOTSTRAP_SNAPSHOT: OffsetAndEpoch = OffsetAndEpoch { epoch: 0, offset: 0 };

    pub fn new(offset: i64, epoch: i32) -> Self {
        Self { epoch, offset }
    }
}

impl fmt::Display for OffsetAndEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OffsetAndEpoch[offset={}, epoch={}]", self.offset, self.epoch)
    }
}

/// A replica's node id and, when known, the id of its metadata directory (KIP-853).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplicaKey {
    pub id: i32,
    pub directory_id: Option<Uuid>,
}

impl ReplicaKey {
    /// The zero directory id stands for "unknown" on the wire and on disk.
    pub fn new(id: i32, directory_id: Uuid) -> Self {
        Self { id, directory_id: (directory_id != Uuid::ZERO).then_some(directory_id) }
    }

    pub fn directory_id_or_zero(&self) -> Uuid {
        self.directory_id.unwrap_or(Uuid::ZERO)
    }

    /// True when `other` may be this replica: same id, and same directory when this one's is known.
    pub fn matches(&self, other: &ReplicaKey) -> bool {
        self.id == other.id && (self.directory_id.is_none() || self.directory_id == other.directory_id)
    }
}

/// Host and port of one listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    pub host: String,
    pub port: u16,
}

/// A replica's controller listeners by normalised (upper-case) name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Endpoints(BTreeMap<String, HostPort>);

impl Endpoints {
    pub fn empty() -> Self {
        Self::default()
    }

    pub fn single(listener: &str, host: impl Into<String>, port: u16) -> Self {
        Self::from_iter([(listener.to_owned(), host.into(), port)])
    }

    pub fn address(&self, listener: &str) -> Option<&HostPort> {
        self.0.get(listener)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &HostPort)> {
        self.0.iter().map(|(name, address)| (name.as_str(), address))
    }
}

impl FromIterator<(String, String, u16)> for Endpoints {
    fn from_iter<I: IntoIterator<Item = (String, String, u16)>>(items: I) -> Self {
        Self(
            items
                .into_iter()
                .map(|(name, host, port)| (name.to_uppercase(), HostPort { host, port }))
                .collect(),
        )
    }
}

/// The quorum's own feature: 0 is the static voter set of `controller.quorum.voters`, 1 the replicated one (KIP-853).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum KRaftVersion {
    #[default]
    V0,
    V1,
}

impl KRaftVersion {
    pub fn from_level(level: i16) -> Option<Self> {
        match level {
            0 => Some(Self::V0),
            1 => Some(Self::V1),
            _ => None,
        }
    }

    pub fn level(self) -> i16 {
        match self {
            Self::V0 => 0,
            Self::V1 => 1,
        }
    }

    pub fn is_reconfig_supported(self) -> bool {
        self >= Self::V1
    }

    /// `data_version` of the `quorum-state` file under this version.
    pub fn quorum_state_version(self) -> i16 {
        self.level()
    }
}

/// One member of the voter set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoterNode {
    pub key: ReplicaKey,
    pub listeners: Endpoints,
    /// Supported `kraft.version` levels, both ends included.
    pub supported_kraft_versions: (i16, i16),
}

/// The voters of the metadata partition, by node id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VoterSet(BTreeMap<i32, VoterNode>);

impl VoterSet {
    pub fn empty() -> Self {
        Self::default()
    }

    /// The voter set of `controller.quorum.voters`: directory ids unknown, only `kraft.version` 0.
    pub fn from_static(listener: &str, voters: impl IntoIterator<Item = (i32, String, u16)>) -> Self {
        voters
            .into_iter()
            .map(|(id, host, port)| VoterNode {
                key: ReplicaKey { id, directory_id: None },
                listeners: Endpoints::single(listener, host, port),
                supported_kraft_versions: (0, 0),
            })
            .collect()
    }

    pub fn from_record(record: &VotersRecord) -> Self {
        record
            .voters
            .iter()
            .map(|voter| VoterNode {
                key: ReplicaKey::new(voter.voter_id, voter.voter_directory_id),
                listeners: voter.endpoints.iter().map(|e| (e.name.clone(), e.host.clone(), e.port)).collect(),
                supported_kraft_versions: (
                    voter.k_raft_version_feature.min_supported_version,
                    voter.k_raft_version_feature.max_supported_version,
                ),
            })
            .collect()
    }

    pub fn to_record(&self) -> VotersRecord {
        let voters = self.nodes().map(|node| Voter {
            voter_id: node.key.id,
            voter_directory_id: node.key.directory_id_or_zero(),
            endpoints: node
                .listeners
                .iter()
                .map(|(name, address)| Endpoint {
                    name: name.to_owned(),
                    host: address.host.clone(),
                    port: address.port,
                })
                .collect(),
            k_raft_version_feature: KRaftVersionFeature {
                min_supported_version: node.supported_kraft_versions.0,
                max_supported_version: node.supported_kraft_versions.1,
            },
        });
        VotersRecord { version: 0, voters: voters.collect() }
    }

    pub fn nodes(&self) -> impl Iterator<Item = &VoterNode> {
        self.0.values()
    }

    pub fn ids(&self) -> impl Iterator<Item = i32> + '_ {
        self.0.keys().copied()
    }

    pub fn get(&self, id: i32) -> Option<&VoterNode> {
        self.0.get(&id)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn is_voter(&self, key: &ReplicaKey) -> bool {
        self.0.get(&key.id).is_some_and(|node| node.key.matches(key))
    }

    pub fn is_only_voter(&self, key: &ReplicaKey) -> bool {
        self.0.len() == 1 && self.is_voter(key)
    }

    pub fn listeners(&self, id: i32) -> Endpoints {
        self.0.get(&id).map(|node| node.listeners.clone()).unwrap_or_default()
    }

    /// True when the set holds this voter with other listeners or versions than `node` has now.
    pub fn voter_node_needs_update(&self, node: &VoterNode) -> bool {
        self.0.get(&node.key.id).is_some_and(|known| known.key.matches(&node.key) && known != node)
    }

    /// The set with `node` in the place of the voter it matches; `None` when it matches none.
    pub fn with_updated(&self, node: VoterNode) -> Option<VoterSet> {
        if !self.is_voter(&node.key) {
            return None;
        }
        let mut voters = self.0.clone();
        voters.insert(node.key.id, node);
        Some(Self(voters))
    }

    /// Two sets that differ by at most one replica in each direction share every majority (KIP-853).
    pub fn has_overlapping_majority(&self, other: &VoterSet) -> bool {
        let only_in = |a: &VoterSet, b: &VoterSet| {
            a.nodes().filter(|n| b.get(n.key.id).is_none_or(|m| m.key != n.key)).count()
        };
        only_in(self, other) <= 1 && only_in(other, self) <= 1
    }
}

impl FromIterator<VoterNode> for VoterSet {
    fn from_iter<I: IntoIterator<Item = VoterNode>>(nodes: I) -> Self {
        Self(nodes.into_iter().map(|node| (node.key.id, node)).collect())
    }
}

/// What a replica has promised in an epoch; the content of the `quorum-state` file.
///
/// Invariant: `epoch` never decreases, and within one epoch `voted` is set at most once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionState {
    pub epoch: i32,
    pub leader_id: Option<i32>,
    pub voted: Option<ReplicaKey>,
    /// Only written under `kraft.version` 0.
    pub voters: Vec<i32>,
}

impl ElectionState {
    pub fn is_voted_candidate(&self, key: &ReplicaKey) -> bool {
        self.voted.is_some_and(|voted| voted.matches(key))
    }
}

/// The leader of an epoch as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderAndEpoch {
    pub leader_id: Option<i32>,
    pub epoch: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voter(id: i32, directory: u8) -> VoterNode {
        VoterNode {
            key: ReplicaKey::new(id, Uuid([directory; 16])),
            listeners: Endpoints::single("controller", "h", 9093),
            supported_kraft_versions: (0, 1),
        }
    }

    #[test]
    fn logs_compare_by_epoch_before_offset() {
        assert!(OffsetAndEpoch::new(5, 2) > OffsetAndEpoch::new(900, 1));
        assert!(OffsetAndEpoch::new(6, 2) > OffsetAndEpoch::new(5, 2));
    }

    #[test]
    fn a_voter_of_unknown_directory_matches_any_directory() {
        let static_voters = VoterSet::from_static("CONTROLLER", [(1, "h".into(), 1)]);
        assert!(static_voters.is_voter(&ReplicaKey::new(1, Uuid([7; 16]))));
        let dynamic: VoterSet = [voter(1, 7)].into_iter().collect();
        assert!(dynamic.is_only_voter(&ReplicaKey::new(1, Uuid([7; 16]))));
        assert!(!dynamic.is_voter(&ReplicaKey::new(1, Uuid([8; 16]))));
        assert!(!dynamic.is_voter(&ReplicaKey::new(1, Uuid::ZERO)));
    }

    #[test]
    fn a_voters_record_round_trips_with_normalised_listener_names() {
        let set: VoterSet = [voter(2, 2), voter(1, 1)].into_iter().collect();
        let record = set.to_record();
        assert_eq!(record.voters.iter().map(|v| v.voter_id).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(record.voters[0].endpoints[0].name, "CONTROLLER");
        assert_eq!(VoterSet::from_record(&record), set);
    }

    #[test]
    fn sets_one_replica_apart_overlap() {
        let one: VoterSet = [voter(1, 1), voter(2, 2), voter(3, 3)].into_iter().collect();
        let two: VoterSet = [voter(1, 1), voter(2, 9), voter(3, 3)].into_iter().collect();
        let far: VoterSet = [voter(1, 1), voter(2, 9), voter(3, 9)].into_iter().collect();
        assert!(one.has_overlapping_majority(&two));
        assert!(!one.has_overlapping_majority(&far));
    }
}
