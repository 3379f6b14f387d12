//! ACLs, SCRAM credentials and delegation tokens.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use protocol::Uuid;
use protocol::records::metadata::{
    AccessControlEntryRecord, DelegationTokenRecord, RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord, RemoveUserScramCredentialRecord, UserScramCredentialRecord,
};
use timeline::TimelineMap;

use super::{ReplayError, WriteLoss, WriteOptions};
use crate::record::VersionedRecord;

/// An access control entry without its id; the numbers are those of requests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub struct StandardAcl {
    pub resource_type: i8,
    pub resource_name: String,
    pub pattern_type: i8,
    pub principal: String,
    pub host: String,
    pub operation: i8,
    pub permission_type: i8,
}

/// The access control entries by id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AclsImage {
    /// Entries by id.
    pub acls: TimelineMap<Uuid, Arc<StandardAcl>>,
}

impl AclsImage {
    pub(super) fn replay(&mut self, record: &AccessControlEntryRecord) {
        let acl = StandardAcl {
            resource_type: record.resource_type,
            resource_name: record.resource_name.clone(),
            pattern_type: record.pattern_type,
            principal: record.principal.clone(),
            host: record.host.clone(),
            operation: record.operation,
            permission_type: record.permission_type,
        };
        self.acls.insert(record.id, Arc::new(acl));
    }

    pub(super) fn replay_remove(
        &mut self,
        record: &RemoveAccessControlEntryRecord,
    ) -> Result<(), ReplayError> {
        self.acls.remove(&record.id).map(|_| ()).ok_or(ReplayError::UnknownAcl(record.id))
    }

    pub(super) fn write(&self, out: &mut Vec<VersionedRecord>) {
        for (id, acl) in &self.acls {
            let record = AccessControlEntryRecord {
                id: *id,
                resource_type: acl.resource_type,
                resource_name: acl.resource_name.clone(),
                pattern_type: acl.pattern_type,
                principal: acl.principal.clone(),
                host: acl.host.clone(),
                operation: acl.operation,
                permission_type: acl.permission_type,
            };
            out.push(VersionedRecord::new(record, 0));
        }
    }
}

/// What is kept of a SCRAM password. Debug output hides it.
#[derive(Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ScramCredentialData {
    pub salt: Bytes,
    pub stored_key: Bytes,
    pub server_key: Bytes,
    pub iterations: i32,
}

impl fmt::Debug for ScramCredentialData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScramCredentialData([hidden])")
    }
}

/// SCRAM credentials by mechanism (1 SHA-256, 2 SHA-512) and user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScramImage {
    /// Credentials by mechanism and user.
    pub credentials: TimelineMap<(i8, String), Arc<ScramCredentialData>>,
}

impl ScramImage {
    pub(super) fn replay(&mut self, record: &UserScramCredentialRecord) {
        let data = ScramCredentialData {
            salt: record.salt.clone(),
            stored_key: record.stored_key.clone(),
            server_key: record.server_key.clone(),
            iterations: record.iterations,
        };
        self.credentials.insert((record.mechanism, record.name.clone()), Arc::new(data));
    }

    pub(super) fn replay_remove(&mut self, record: &RemoveUserScramCredentialRecord) {
        self.credentials.remove(&(record.mechanism, record.name.clone()));
    }

    pub(super) fn write(
        &self,
        options: WriteOptions,
        out: &mut Vec<VersionedRecord>,
    ) -> Result<(), WriteLoss> {
        if !self.credentials.is_empty() && !options.metadata_version.is_scram_supported() {
            return Err(options.loss("SCRAM credentials"));
        }
        for ((mechanism, name), data) in &self.credentials {
            let record = UserScramCredentialRecord {
                name: name.clone(),
                mechanism: *mechanism,
                salt: data.salt.clone(),
                stored_key: data.stored_key.clone(),
                server_key: data.server_key.clone(),
                iterations: data.iterations,
            };
            out.push(VersionedRecord::new(record, 0));
        }
        Ok(())
    }
}

/// Delegation tokens by token id (KIP-48).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DelegationTokensImage {
    /// Tokens by id.
    pub tokens: TimelineMap<String, Arc<DelegationTokenRecord>>,
}

impl DelegationTokensImage {
    pub(super) fn replay(&mut self, record: &DelegationTokenRecord) {
        self.tokens.insert(record.token_id.clone(), Arc::new(record.clone()));
    }

    pub(super) fn replay_remove(&mut self, record: &RemoveDelegationTokenRecord) {
        self.tokens.remove(&record.token_id);
    }

    pub(super) fn write(
        &self,
        options: WriteOptions,
        out: &mut Vec<VersionedRecord>,
    ) -> Result<(), WriteLoss> {
        if !self.tokens.is_empty() && !options.metadata_version.is_delegation_token_supported() {
            return Err(options.loss("delegation tokens"));
        }
        out.extend(self.tokens.values().map(|t| VersionedRecord::new(DelegationTokenRecord::clone(t), 0)));
        Ok(())
    }
}
