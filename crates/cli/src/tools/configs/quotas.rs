//! Quotas of users, clients and addresses, and SCRAM credentials as far as they can be shown.

use std::collections::BTreeMap;

use client::{ApiError, Target};
use protocol::ErrorCode;
use protocol::messages::describe_client_quotas_request::ComponentData;
use protocol::messages::describe_user_scram_credentials_request::UserName;
use protocol::messages::{
    AlterClientQuotasRequest, DescribeClientQuotasRequest, DescribeUserScramCredentialsRequest,
    alter_client_quotas_request,
};
use serde_json::{Value, json};

use super::{INVALID_CONFIGURATION, Tool};
use crate::failure::Failure;
use crate::io::Io;

const QUOTAS: [&str; 4] =
    ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"];
const IP_QUOTAS: [&str; 1] = ["connection_creation_rate"];

/// Match types of DescribeClientQuotas.
const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const ANY: i8 = 2;

struct Quota {
    /// Entity type and name; the default has none.
    entity: Vec<(String, Option<String>)>,
    values: BTreeMap<String, f64>,
}

fn is_scram(name: &str) -> bool {
    matches!(name, "SCRAM-SHA-256" | "SCRAM-SHA-512")
}

fn quota_type(entity_type: &str) -> &'static str {
    match entity_type {
        "users" => "user",
        "clients" => "client-id",
        _ => "ip",
    }
}

impl Tool<'_> {
    pub(super) async fn alter_quotas(
        &self,
        added: &BTreeMap<String, String>,
        deleted: &[String],
    ) -> Result<(), Failure> {
        self.check_quotas(added, deleted)?;
        let current = self.quotas().await?;
        let known = current.first().map(|quota| &quota.values);
        let missing: Vec<&str> = deleted
            .iter()
            .filter(|name| !known.is_some_and(|values| values.contains_key(*name)))
            .map(String::as_str)
            .collect();
        if !missing.is_empty() {
            return Err(Failure::text(
                INVALID_CONFIGURATION,
                format!("Invalid config(s): {}", missing.join(",")),
            ));
        }
        let mut ops = Vec::new();
        for (key, value) in added {
            let message = || format!("Cannot parse quota configuration value for {key}: {value}");
            let value = value.trim().parse().map_err(|_| Failure::illegal_argument(message()))?;
            ops.push(alter_client_quotas_request::OpData { key: key.clone(), value, remove: false });
        }
        let removed =
            |key: &String| alter_client_quotas_request::OpData { key: key.clone(), value: 0.0, remove: true };
        ops.extend(deleted.iter().map(removed));
        let entity = self.options.types.iter().zip(&self.options.names).map(|(kind, name)| {
            alter_client_quotas_request::EntityData {
                entity_type: quota_type(kind).to_owned(),
                entity_name: (!name.is_empty()).then(|| name.clone()),
            }
        });
        let entry = alter_client_quotas_request::EntryData { entity: entity.collect(), ops };
        let request = AlterClientQuotasRequest { entries: vec![entry], validate_only: false };
        let response = self.admin.send(Target::Controller, &request).await?;
        for entry in &response.entries {
            ApiError::check(entry.error_code, entry.error_message.as_ref())?;
        }
        Ok(())
    }

    fn check_quotas(&self, added: &BTreeMap<String, String>, deleted: &[String]) -> Result<(), Failure> {
        let types: Vec<&str> = self.options.types.iter().map(String::as_str).collect();
        let names = || added.keys().chain(deleted).map(String::as_str);
        if types.first() == Some(&"ips") {
            let unknown: Vec<&str> = names().filter(|name| !IP_QUOTAS.contains(name)).collect();
            if unknown.is_empty() {
                return Ok(());
            }
            return Err(Failure::illegal_argument(format!(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server. Unexpected config \
                 names: {}",
                unknown.join(", ")
            )));
        }
        let of_clients = types.first() == Some(&"clients") || types.len() == 2;
        let (what, of) = if of_clients {
            ("quota configs", "clients")
        } else {
            ("quota and SCRAM credential configs", "users")
        };
        let wrong = |name: &&str| !QUOTAS.contains(name) && (of_clients || !is_scram(name));
        for (verb, listed) in [
            ("added", added.keys().map(String::as_str).filter(wrong).collect::<Vec<_>>()),
            ("deleted", deleted.iter().map(String::as_str).filter(wrong).collect()),
        ] {
            if !listed.is_empty() {
                return Err(Failure::illegal_argument(format!(
                    "Only {what} can be {verb} for '{of}' using --bootstrap-server. Unexpected config names: {}",
                    listed.join(",")
                )));
            }
        }
        if names().any(is_scram) {
            let message = "SCRAM credentials cannot be altered by this tool yet";
            return Err(ApiError::new(ErrorCode::UNSUPPORTED_VERSION, Some(message.to_owned())).into());
        }
        Ok(())
    }

    async fn quotas(&self) -> Result<Vec<Quota>, Failure> {
        let component = |(index, kind): (usize, &String)| {
            let name = self.options.names.get(index);
            ComponentData {
                entity_type: quota_type(kind).to_owned(),
                match_type: match name.map(String::as_str) {
                    None => ANY,
                    Some("") => DEFAULT,
                    Some(_) => EXACT,
                },
                match_: name.filter(|name| !name.is_empty()).cloned(),
            }
        };
        let components = self.options.types.iter().enumerate().map(component).collect();
        let request = DescribeClientQuotasRequest { components, strict: true };
        let response = self.admin.send(Target::Any, &request).await?;
        ApiError::check(response.error_code, response.error_message.as_ref())?;
        let quota = |entry: protocol::messages::describe_client_quotas_response::EntryData| Quota {
            entity: entry.entity.into_iter().map(|entity| (entity.entity_type, entity.entity_name)).collect(),
            values: entry.values.into_iter().map(|value| (value.key, value.value)).collect(),
        };
        Ok(response.entries.unwrap_or_default().into_iter().map(quota).collect())
    }

    pub(super) async fn describe_quotas(&self, io: &mut Io) -> Result<(), Failure> {
        let quotas = self.quotas().await?;
        let value = || Value::Array(quotas.iter().map(quota_value).collect());
        if self.format.emit(value, io) {
            return Ok(());
        }
        for quota in &quotas {
            let values: Vec<String> =
                quota.values.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
            io.line(format!("Quota configs for {} are {}", entity_text(quota), values.join(", ")));
        }
        let users = self.options.types.iter().all(|kind| kind == "users");
        if users && !self.options.names.iter().any(String::is_empty) {
            self.describe_scram(io).await?;
        }
        Ok(())
    }

    async fn describe_scram(&self, io: &mut Io) -> Result<(), Failure> {
        let users = self.options.names.iter().map(|name| UserName { name: name.clone() }).collect();
        let request = DescribeUserScramCredentialsRequest { users: Some(users) };
        let response = self.admin.send(Target::Any, &request).await?;
        ApiError::check(response.error_code, response.error_message.as_ref())?;
        for result in response.results {
            let user = result.user;
            match ApiError::check(result.error_code, result.error_message.as_ref()) {
                Err(error) if error.code == ErrorCode::RESOURCE_NOT_FOUND => {}
                Err(error) => {
                    io.line(format!(
                        "Error retrieving SCRAM credential configs for user-principal '{user}': \
                         ExecutionException: {}: {error}",
                        error.exception()
                    ));
                }
                Ok(()) => {
                    let info = |info: &protocol::messages::describe_user_scram_credentials_response::CredentialInfo| {
                        let mechanism = if info.mechanism == 1 { "SCRAM-SHA-256" } else { "SCRAM-SHA-512" };
                        format!("{mechanism}=iterations={}", info.iterations)
                    };
                    let infos: Vec<String> = result.credential_infos.iter().map(info).collect();
                    io.line(format!(
                        "SCRAM credential configs for user-principal '{user}' are {}",
                        infos.join(", ")
                    ));
                }
            }
        }
        Ok(())
    }
}

fn entity_text(quota: &Quota) -> String {
    let mut parts = Vec::new();
    for (kind, shown) in [("user", "user-principal"), ("client-id", "client-id"), ("ip", "ip")] {
        if let Some((_, name)) = quota.entity.iter().find(|(entity, _)| entity == kind) {
            parts.push(match name.as_deref() {
                None | Some("") => format!("the default {shown}"),
                Some(name) => format!("{shown} '{name}'"),
            });
        }
    }
    parts.join(", ")
}

fn quota_value(quota: &Quota) -> Value {
    let entity: BTreeMap<&str, &Option<String>> =
        quota.entity.iter().map(|(kind, name)| (&**kind, name)).collect();
    json!({ "entity": entity, "quotas": quota.values })
}
