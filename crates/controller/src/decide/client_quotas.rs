//! AlterClientQuotas (KIP-546, KIP-612).
//!
//! Invariant: an entity's change is taken whole or not at all.

use std::collections::BTreeMap;
use std::net::IpAddr;

use metadata::VersionedRecord;
use metadata::image::ClientQuotaEntity;
use metadata::image::client_quotas::entity_type;
use protocol::ErrorCode;
use protocol::messages::alter_client_quotas_response::{EntityData, EntryData};
use protocol::messages::{AlterClientQuotasRequest, AlterClientQuotasResponse};
use protocol::records::metadata::{ClientQuotaRecord, client_quota_record};

use super::Decider;
use crate::api::{ApiError, BoundedRecords, ControllerResult};

/// How far from a whole number a quota of an integral type may be.
const INTEGRAL_TOLERANCE: f64 = 1e-6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuotaType {
    Int,
    Long,
    Double,
}

const USER_AND_CLIENT_QUOTAS: [(&str, QuotaType); 4] = [
    ("producer_byte_rate", QuotaType::Long),
    ("consumer_byte_rate", QuotaType::Long),
    ("request_percentage", QuotaType::Double),
    ("controller_mutation_rate", QuotaType::Double),
];
const IP_QUOTAS: [(&str, QuotaType); 1] = [("connection_creation_rate", QuotaType::Int)];

/// New values by key; `None` removes.
type Alteration = BTreeMap<String, Option<f64>>;

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::INVALID_REQUEST, message)
}

fn entry(entity: &ClientQuotaEntity, error: ApiError) -> EntryData {
    let entity = entity.entries.iter();
    EntryData {
        error_code: error.code.code(),
        error_message: error.message,
        entity: entity.map(|(t, n)| EntityData { entity_type: t.clone(), entity_name: n.clone() }).collect(),
    }
}

/// The answer that gives every entity the same error.
pub(crate) fn error_response(
    request: &AlterClientQuotasRequest,
    error: &ApiError,
) -> AlterClientQuotasResponse {
    let entries = request.entries.iter().map(|e| EntryData {
        error_code: error.code.code(),
        error_message: Some(error.code.message().to_owned()),
        entity: e
            .entity
            .iter()
            .map(|d| EntityData { entity_type: d.entity_type.clone(), entity_name: d.entity_name.clone() })
            .collect(),
    });
    AlterClientQuotasResponse { entries: entries.collect(), ..Default::default() }
}

/// The quotas that an entity may have.
fn quotas_of(entity: &ClientQuotaEntity) -> Result<&'static [(&'static str, QuotaType)], ApiError> {
    if entity.entries.is_empty() {
        return Err(invalid("Invalid empty client quota entity"));
    }
    for (kind, name) in &entity.entries {
        if ![entity_type::USER, entity_type::CLIENT_ID, entity_type::IP].contains(&kind.as_str()) {
            return Err(invalid(format!("Unhandled client quota entity type: {kind}")));
        }
        if name.as_deref() == Some("") {
            return Err(invalid(format!("Empty {kind} not supported")));
        }
    }
    let Some(ip) = entity.entries.get(entity_type::IP) else { return Ok(&USER_AND_CLIENT_QUOTAS) };
    if entity.entries.len() > 1 {
        return Err(invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ));
    }
    match ip {
        Some(text) if text.parse::<IpAddr>().is_err() => {
            Err(invalid(format!("{text} is not a valid IP or resolvable host.")))
        }
        _ => Ok(&IP_QUOTAS),
    }
}

fn check_value(quotas: &[(&str, QuotaType)], key: &str, value: f64) -> Result<(), ApiError> {
    let Some((_, kind)) = quotas.iter().find(|(name, _)| *name == key) else {
        return Err(invalid(format!("Invalid configuration key {key}")));
    };
    if !value.is_finite() {
        return Err(invalid(format!("Quota {key} must be a finite number")));
    }
    if value <= 0.0 {
        return Err(invalid(format!("Quota {key} must be greater than 0")));
    }
    let too_large = |kind: &str| Err(invalid(format!("Proposed value for {key} is too large for {kind}.")));
    match kind {
        QuotaType::Double => return Ok(()),
        QuotaType::Int if value > f64::from(i32::MAX) => return too_large("an INT"),
        QuotaType::Long if value > i64::MAX as f64 => return too_large("a LONG"),
        QuotaType::Int | QuotaType::Long => {}
    }
    if (value % 1.0).abs() > INTEGRAL_TOLERANCE {
        return Err(invalid(format!("{key} cannot be a fractional value.")));
    }
    Ok(())
}

impl Decider<'_> {
    pub(crate) fn alter_client_quotas(
        &self,
        request: &AlterClientQuotasRequest,
    ) -> Result<ControllerResult<AlterClientQuotasResponse>, ApiError> {
        let mut results: BTreeMap<ClientQuotaEntity, ApiError> = BTreeMap::new();
        let mut records = BoundedRecords::default();
        for data in &request.entries {
            let entity = ClientQuotaEntity {
                entries: data.entity.iter().map(|e| (e.entity_type.clone(), e.entity_name.clone())).collect(),
            };
            let alteration: Alteration =
                data.ops.iter().map(|op| (op.key.clone(), (!op.remove).then_some(op.value))).collect();
            let has_duplicate_key = alteration.len() != data.ops.len();
            if has_duplicate_key || results.contains_key(&entity) {
                let error = invalid(format!("Ignoring duplicate entity {entity}"));
                results.insert(entity, error);
                continue;
            }
            let error = match self.alter_entity(&entity, &alteration) {
                Ok(new) => {
                    records.extend(new)?;
                    ApiError::NONE
                }
                Err(error) => error,
            };
            results.insert(entity, error);
        }
        let entries = results.into_iter().map(|(entity, error)| entry(&entity, error)).collect();
        let response = AlterClientQuotasResponse { entries, ..Default::default() };
        let decided = ControllerResult::atomic_of(records.into_vec(), response);
        Ok(if request.validate_only { decided.without_records() } else { decided })
    }

    fn alter_entity(
        &self,
        entity: &ClientQuotaEntity,
        alteration: &Alteration,
    ) -> Result<Vec<VersionedRecord>, ApiError> {
        let quotas = quotas_of(entity)?;
        let current = self.state.image.client_quotas.entities.get(entity);
        let current = |key: &str| current.and_then(|quotas| quotas.get(key)).copied();
        let record = |key: &str, value: Option<f64>| ClientQuotaRecord {
            entity: entity
                .entries
                .iter()
                .map(|(t, n)| client_quota_record::EntityData {
                    entity_type: t.clone(),
                    entity_name: n.clone(),
                })
                .collect(),
            key: key.to_owned(),
            value: value.unwrap_or_default(),
            remove: value.is_none(),
        };
        let mut records = Vec::new();
        for (key, value) in alteration {
            if let Some(value) = value {
                check_value(quotas, key, *value)?;
            }
            if current(key) != *value {
                records.push(VersionedRecord::new(record(key, *value), 0));
            }
        }
        Ok(records)
    }
}
