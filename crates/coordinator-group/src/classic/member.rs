//! A member of a classic group.
//!
//! Invariant: `awaiting_join` and `awaiting_sync` change through the group only, which counts them.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use coordinator::RequestToken;
use protocol::messages::describe_groups_response::DescribedGroupMember;
use protocol::messages::join_group_request::JoinGroupRequestProtocol;

/// A member. `client_host` is as Java prints an address: `/127.0.0.1`.
#[derive(Clone, Debug)]
pub(crate) struct ClassicGroupMember {
    pub(super) member_id: Arc<str>,
    pub(super) group_instance_id: Option<Arc<str>>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    pub(super) rebalance_timeout_ms: i32,
    pub(super) session_timeout_ms: i32,
    pub(super) protocol_type: String,
    pub(super) supported_protocols: Vec<JoinGroupRequestProtocol>,
    pub(super) assignment: Bytes,
    pub(super) awaiting_join: Option<RequestToken>,
    pub(super) awaiting_sync: Option<RequestToken>,
    /// Has never been answered: its first answer may be a rebalance away, and it does not heartbeat meanwhile.
    pub(super) is_new: bool,
}

impl ClassicGroupMember {
    pub(crate) fn new(
        member_id: Arc<str>,
        group_instance_id: Option<Arc<str>>,
        client: (String, String),
        rebalance_timeout_ms: i32,
        session_timeout_ms: i32,
        protocol_type: String,
        supported_protocols: Vec<JoinGroupRequestProtocol>,
    ) -> Self {
        Self {
            member_id,
            group_instance_id,
            client_id: client.0,
            client_host: client.1,
            rebalance_timeout_ms,
            session_timeout_ms,
            protocol_type,
            supported_protocols,
            assignment: Bytes::new(),
            awaiting_join: None,
            awaiting_sync: None,
            is_new: false,
        }
    }

    pub(crate) fn with_assignment(self, assignment: Bytes) -> Self {
        Self { assignment, ..self }
    }

    pub(crate) fn into_new(self) -> Self {
        Self { is_new: true, ..self }
    }

    pub(crate) fn member_id(&self) -> &Arc<str> {
        &self.member_id
    }

    pub(crate) fn group_instance_id(&self) -> Option<&str> {
        self.group_instance_id.as_deref()
    }

    pub(crate) fn is_static_member(&self) -> bool {
        self.group_instance_id.is_some()
    }

    pub(crate) fn client_id(&self) -> &str {
        &self.client_id
    }

    pub(crate) fn client_host(&self) -> &str {
        &self.client_host
    }

    pub(crate) fn rebalance_timeout_ms(&self) -> i32 {
        self.rebalance_timeout_ms
    }

    pub(crate) fn session_timeout_ms(&self) -> i32 {
        self.session_timeout_ms
    }

    pub(crate) fn supported_protocols(&self) -> &[JoinGroupRequestProtocol] {
        &self.supported_protocols
    }

    pub(crate) fn assignment(&self) -> &Bytes {
        &self.assignment
    }

    pub(crate) fn is_awaiting_join(&self) -> bool {
        self.awaiting_join.is_some()
    }

    pub(crate) fn is_awaiting_sync(&self) -> bool {
        self.awaiting_sync.is_some()
    }

    /// Whether silence is no reason to remove the member: it waits for us.
    pub(crate) fn has_satisfied_heartbeat(&self) -> bool {
        !self.is_new && (self.is_awaiting_join() || self.is_awaiting_sync())
    }

    /// The member's metadata for `protocol`; nothing when it does not support it, which the group's choice excludes.
    pub(crate) fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.supported_protocols.iter().find(|supported| supported.name == protocol);
        debug_assert!(found.is_some(), "member {} does not support {protocol}", self.member_id);
        found.map(|supported| supported.metadata.clone()).unwrap_or_default()
    }

    pub(crate) fn matches(&self, protocols: &[JoinGroupRequestProtocol]) -> bool {
        self.supported_protocols == protocols
    }

    /// The member's favourite among the protocols that all support.
    pub(crate) fn vote(&self, candidates: &BTreeSet<&str>) -> Option<&str> {
        let mut names = self.supported_protocols.iter().map(|protocol| protocol.name.as_str());
        names.find(|name| candidates.contains(name))
    }

    pub(crate) fn describe(&self, protocol: Option<&str>) -> DescribedGroupMember {
        DescribedGroupMember {
            member_id: self.member_id.to_string(),
            group_instance_id: self.group_instance_id.as_deref().map(str::to_owned),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            member_metadata: protocol.map(|protocol| self.metadata(protocol)).unwrap_or_default(),
            member_assignment: self.assignment.clone(),
        }
    }
}
