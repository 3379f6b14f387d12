//! A client metrics subscription (`ClientMetricsConfigs`, KIP-714): its checks. Pure.

use std::collections::BTreeMap;

use regex::Regex;

use crate::error::ConfigError;
use crate::table::client_metrics_table;

/// What a subscription may match clients by.
const MATCH_PARAMETERS: &[&str] = &[
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
];

const MIN_INTERVAL_MS: i64 = 100;
const MAX_INTERVAL_MS: i64 = 3_600_000;

/// Checks a subscription's whole set of configs, as the controller does before it accepts them.
pub fn validate_client_metrics_configs(
    name: &str,
    proposed: &BTreeMap<String, String>,
) -> Result<(), ConfigError> {
    if name.is_empty() {
        return Err(ConfigError::invalid_request("Subscription name can't be empty"));
    }
    if let Some(unknown) = proposed.keys().find(|key| !client_metrics_table().contains(key)) {
        return Err(ConfigError::invalid_request(format!("Unknown client metrics configuration: {unknown}")));
    }
    let mut patterns = Vec::new();
    let mut interval = None;
    for key in client_metrics_table().keys() {
        let Some(text) = proposed.get(key.name) else { continue };
        let value = key.parse(text)?;
        match key.name {
            "interval.ms" => interval = value.as_i64(),
            "match" => patterns = value.as_list().unwrap_or_default().to_vec(),
            _ => {}
        }
    }
    if let Some(ms) = interval.filter(|ms| !(MIN_INTERVAL_MS..=MAX_INTERVAL_MS).contains(ms)) {
        return Err(ConfigError::invalid_request(format!(
            "Invalid value {ms} for interval.ms, interval must be between {MIN_INTERVAL_MS} and {MAX_INTERVAL_MS} (1 hour)"
        )));
    }
    parse_match_patterns(&patterns).map(drop)
}

/// The patterns of `match`: parameter to the expression that its whole value must satisfy.
pub fn parse_match_patterns(patterns: &[String]) -> Result<BTreeMap<String, Regex>, ConfigError> {
    let mut parsed = BTreeMap::new();
    for pattern in patterns {
        let illegal =
            || ConfigError::invalid_configuration(format!("Illegal client matching pattern: {pattern}"));
        let (parameter, expression) = pattern.split_once('=').ok_or_else(illegal)?;
        let (parameter, expression) = (parameter.trim(), expression.trim());
        if expression.is_empty() || expression.contains('=') || !MATCH_PARAMETERS.contains(&parameter) {
            return Err(illegal());
        }
        // An expression is checked alone, so that it cannot close our group.
        Regex::new(expression).map_err(|_| illegal())?;
        let whole = Regex::new(&format!("^(?:{expression})$")).map_err(|_| illegal())?;
        parsed.insert(parameter.to_owned(), whole);
    }
    Ok(parsed)
}
