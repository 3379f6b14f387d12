//! Client quotas by entity (KIP-546), and what DescribeClientQuotas finds among them.
//!
//! Invariant: an entity without quotas is not in the map.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use protocol::ErrorCode;
use protocol::messages::describe_client_quotas_response::{
    EntityData as DescribedEntity, EntryData, ValueData,
};
use protocol::messages::{DescribeClientQuotasRequest, DescribeClientQuotasResponse};
use protocol::records::metadata::ClientQuotaRecord;
use protocol::records::metadata::client_quota_record::EntityData;
use timeline::TimelineMap;

use crate::record::VersionedRecord;

/// The types of entities.
#[allow(missing_docs)]
pub mod entity_type {
    pub const USER: &str = "user";
    pub const CLIENT_ID: &str = "client-id";
    pub const IP: &str = "ip";
}

/// A user, client id or IP, or their combination; a name of `None` is the default entity of its type (KIP-546).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClientQuotaEntity {
    /// Names by type (`user`, `client-id`, `ip`).
    pub entries: BTreeMap<String, Option<String>>,
}

impl fmt::Display for ClientQuotaEntity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.entries.iter().map(|(t, n)| format!("{t}={}", n.as_deref().unwrap_or("null")));
        write!(f, "ClientQuotaEntity(entries={{{}}})", names.collect::<Vec<_>>().join(", "))
    }
}

/// The quotas of all client entities.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClientQuotasImage {
    /// Quotas by entity.
    pub entities: TimelineMap<ClientQuotaEntity, Arc<BTreeMap<String, f64>>>,
}

impl ClientQuotasImage {
    /// The entity that a record is about.
    pub fn entity_of(record: &ClientQuotaRecord) -> ClientQuotaEntity {
        let entries = record.entity.iter().map(|e| (e.entity_type.clone(), e.entity_name.clone())).collect();
        ClientQuotaEntity { entries }
    }

    /// Answers DescribeClientQuotas.
    pub fn describe(&self, request: &DescribeClientQuotasRequest) -> DescribeClientQuotasResponse {
        match Filter::new(request) {
            Ok(filter) => {
                let found = self.entities.iter().filter(|(entity, _)| filter.matches(entity));
                let entries = found.map(|(entity, quotas)| described(entity, quotas)).collect();
                DescribeClientQuotasResponse { entries: Some(entries), ..Default::default() }
            }
            Err((code, message)) => DescribeClientQuotasResponse {
                error_code: code.code(),
                error_message: Some(message),
                entries: None,
                ..Default::default()
            },
        }
    }

    pub(super) fn replay(&mut self, record: &ClientQuotaRecord) {
        let entity = Self::entity_of(record);
        let mut quotas = self.entities.get(&entity).cloned().unwrap_or_default();
        let map = Arc::make_mut(&mut quotas);
        if record.remove {
            map.remove(&record.key);
        } else {
            map.insert(record.key.clone(), record.value);
        }
        if map.is_empty() {
            self.entities.remove(&entity);
        } else {
            self.entities.insert(entity, quotas);
        }
    }

    pub(super) fn write(&self, out: &mut Vec<VersionedRecord>) {
        for (entity, quotas) in &self.entities {
            let data: Vec<EntityData> = entity
                .entries
                .iter()
                .map(|(t, n)| EntityData { entity_type: t.clone(), entity_name: n.clone() })
                .collect();
            for (key, value) in quotas.iter() {
                let record = ClientQuotaRecord {
                    entity: data.clone(),
                    key: key.clone(),
                    value: *value,
                    remove: false,
                };
                out.push(VersionedRecord::new(record, 0));
            }
        }
    }
}

fn described(entity: &ClientQuotaEntity, quotas: &BTreeMap<String, f64>) -> EntryData {
    let entity = entity.entries.iter();
    EntryData {
        entity: entity
            .map(|(t, n)| DescribedEntity { entity_type: t.clone(), entity_name: n.clone() })
            .collect(),
        values: quotas.iter().map(|(key, value)| ValueData { key: key.clone(), value: *value }).collect(),
    }
}

/// What a request looks for: names (`None` for the default entity) by type, and types with any name.
struct Filter {
    exact: BTreeMap<String, Option<String>>,
    specified: BTreeSet<String>,
    strict: bool,
}

impl Filter {
    const EXACT: i8 = 0;
    const DEFAULT: i8 = 1;
    const SPECIFIED: i8 = 2;

    fn new(request: &DescribeClientQuotasRequest) -> Result<Self, (ErrorCode, String)> {
        let invalid = |message: String| Err((ErrorCode::INVALID_REQUEST, message));
        let mut filter = Self { exact: BTreeMap::new(), specified: BTreeSet::new(), strict: request.strict };
        for component in &request.components {
            let kind = component.entity_type.as_str();
            if kind.is_empty() {
                return invalid("Invalid empty entity type.".to_owned());
            }
            if filter.has(kind) {
                return invalid(format!("Entity type {kind} cannot appear more than once in the filter."));
            }
            if ![entity_type::USER, entity_type::CLIENT_ID, entity_type::IP].contains(&kind) {
                return Err((ErrorCode::UNSUPPORTED_VERSION, format!("Unsupported entity type {kind}")));
            }
            match (component.match_type, &component.match_) {
                (Self::EXACT, Some(name)) => {
                    filter.exact.insert(kind.to_owned(), Some(name.clone()));
                }
                (Self::EXACT, None) => {
                    return invalid(
                        "Request specified MATCH_TYPE_EXACT, but set match string to null.".to_owned(),
                    );
                }
                (Self::DEFAULT, None) => {
                    filter.exact.insert(kind.to_owned(), None);
                }
                (Self::SPECIFIED, None) => {
                    filter.specified.insert(kind.to_owned());
                }
                (Self::DEFAULT, Some(_)) => {
                    return invalid(
                        "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.".to_owned(),
                    );
                }
                (Self::SPECIFIED, Some(_)) => {
                    return invalid(
                        "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."
                            .to_owned(),
                    );
                }
                (other, _) => return invalid(format!("Unknown match type {other}")),
            }
        }
        if filter.has(entity_type::IP)
            && (filter.has(entity_type::USER) || filter.has(entity_type::CLIENT_ID))
        {
            return invalid(
                "Invalid entity filter component combination. IP filter component should not be used with user or \
                 clientId filter component."
                    .to_owned(),
            );
        }
        Ok(filter)
    }

    fn has(&self, kind: &str) -> bool {
        self.exact.contains_key(kind) || self.specified.contains(kind)
    }

    fn matches(&self, entity: &ClientQuotaEntity) -> bool {
        let components = self.exact.len() + self.specified.len();
        // Nothing to look for finds everything, or nothing when the match must be strict.
        self.exact.iter().all(|(kind, name)| entity.entries.get(kind) == Some(name))
            && self.specified.iter().all(|kind| entity.entries.contains_key(kind))
            && (!self.strict || (components > 0 && entity.entries.len() == components))
    }
}
