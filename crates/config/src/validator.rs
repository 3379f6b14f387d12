//! Validators: what a key's value must satisfy on its own, with the reference's messages.
//!
//! Checks between keys live with their scope ([`crate::server`], [`crate::topic`], [`crate::group`]).
//! Pure; the number limits keep the text they were written with because messages quote it.

use crate::error::ConfigError;
use crate::net::{parse_host_port, parse_voters};
use crate::value::ConfigValue;

/// One end of a range: the number, and the text messages show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    pub value: f64,
    pub text: &'static str,
}

/// What a value must satisfy.
#[derive(Debug, Clone, PartialEq)]
pub enum Validator {
    Any,
    Range { min: Option<Limit>, max: Option<Limit> },
    OneOf(Vec<&'static str>),
    OneOfIgnoringCase(Vec<&'static str>),
    List { allowed: Vec<&'static str>, empty_allowed: bool, null_allowed: bool },
    NotEmpty,
    NotNull,
    GzipLevel,
    QuorumVoters,
    BootstrapServers,
    ThrottledReplicas,
    ShareOffsetReset,
}

impl Validator {
    /// Reads a validator cell of a table.
    pub(crate) fn parse(cell: &'static str) -> Option<Self> {
        let (head, arguments) = match cell.split_once('(') {
            Some((head, rest)) => (head, rest.strip_suffix(')')?.split(',').collect()),
            None => (cell, Vec::new()),
        };
        Some(match head {
            "-" => Self::Any,
            "one-of" => Self::OneOf(arguments),
            "one-of-ignoring-case" => Self::OneOfIgnoringCase(arguments),
            "list" => Self::List { allowed: arguments, empty_allowed: true, null_allowed: false },
            "list-not-empty" => Self::List { allowed: arguments, empty_allowed: false, null_allowed: false },
            "list-or-null" => Self::List { allowed: arguments, empty_allowed: true, null_allowed: true },
            "list-not-empty-or-null" => {
                Self::List { allowed: arguments, empty_allowed: false, null_allowed: true }
            }
            "not-empty" => Self::NotEmpty,
            "not-null" => Self::NotNull,
            "gzip-level" => Self::GzipLevel,
            "quorum-voters" => Self::QuorumVoters,
            "bootstrap-servers" => Self::BootstrapServers,
            "throttled-replicas" => Self::ThrottledReplicas,
            "share-offset-reset" => Self::ShareOffsetReset,
            range => {
                let (min, max) = range.split_once("..")?;
                Self::Range { min: limit(min)?, max: limit(max)? }
            }
        })
    }

    /// Refuses `value` when it does not satisfy this validator.
    pub fn check(&self, name: &str, value: &ConfigValue) -> Result<(), ConfigError> {
        let refuse = |why: String| Err(ConfigError::invalid_value(name, value, why));
        let text = value.as_str();
        match self {
            Self::Any => Ok(()),
            Self::Range { min, max } => check_range(name, value, *min, *max),
            Self::OneOf(allowed) if text.is_none_or(|t| !allowed.contains(&t)) => {
                refuse(format!("String must be one of: {}", allowed.join(", ")))
            }
            Self::OneOfIgnoringCase(allowed)
                if text.is_none_or(|t| !allowed.contains(&t.to_uppercase().as_str())) =>
            {
                refuse(format!("String must be one of (case insensitive): {}", allowed.join(", ")))
            }
            Self::OneOf(_) | Self::OneOfIgnoringCase(_) => Ok(()),
            Self::List { allowed, empty_allowed, null_allowed } => {
                check_list(name, value, allowed, *empty_allowed, *null_allowed)
            }
            Self::NotEmpty if text == Some("") => refuse("String must be non-empty".to_owned()),
            Self::NotNull if value.is_null() => refuse("entry must be non null".to_owned()),
            Self::NotEmpty | Self::NotNull => Ok(()),
            Self::GzipLevel => match value.as_i64() {
                Some(-1 | 1..=9) => Ok(()),
                _ => refuse("Value must be between 1 and 9 or equal to -1".to_owned()),
            },
            Self::QuorumVoters => parse_voters(value.as_list().unwrap_or_default(), false).map(drop),
            Self::BootstrapServers => value
                .as_list()
                .unwrap_or_default()
                .iter()
                .try_for_each(|entry| parse_bootstrap_server(entry).map(drop)),
            Self::ThrottledReplicas => check_throttled_replicas(name, value),
            Self::ShareOffsetReset => match text {
                Some(t) if is_share_offset_reset(t) => Ok(()),
                _ => refuse(format!(
                    "Invalid value `{value}` for configuration {name}. The value must be either 'earliest', \
                     'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
                )),
            },
        }
    }

    /// The permitted values in one phrase, for the reference page; empty when anything goes.
    pub fn describe(&self) -> String {
        match self {
            Self::Any => String::new(),
            Self::Range { min, max } => match (min, max) {
                (Some(min), Some(max)) => format!("{} to {}", min.text, max.text),
                (Some(min), None) => format!("at least {}", min.text),
                (None, Some(max)) => format!("at most {}", max.text),
                (None, None) => String::new(),
            },
            Self::OneOf(allowed) => allowed.join(", "),
            Self::OneOfIgnoringCase(allowed) => format!("{} (in any case)", allowed.join(", ")),
            Self::List { allowed, empty_allowed, .. } => {
                let what = if allowed.is_empty() { "a list" } else { "a list of" };
                let empty = if *empty_allowed { "" } else { ", not empty" };
                format!("{what} {}{empty}", allowed.join(", "))
                    .replace("  ", " ")
                    .replace(" ,", ",")
                    .trim()
                    .to_owned()
            }
            Self::NotEmpty => "not empty".to_owned(),
            Self::NotNull => "any text".to_owned(),
            Self::GzipLevel => "1 to 9, or -1".to_owned(),
            Self::QuorumVoters => "a list of id@host:port".to_owned(),
            Self::BootstrapServers => "a list of host:port".to_owned(),
            Self::ThrottledReplicas => "`*` or a list of partition:broker".to_owned(),
            Self::ShareOffsetReset => "earliest, latest, by_duration:PnDTnHnMn.nS".to_owned(),
        }
    }
}

fn limit(text: &'static str) -> Option<Option<Limit>> {
    if text.is_empty() {
        return Some(None);
    }
    Some(Some(Limit { value: text.parse().ok()?, text }))
}

fn check_range(
    name: &str,
    value: &ConfigValue,
    min: Option<Limit>,
    max: Option<Limit>,
) -> Result<(), ConfigError> {
    let Some(number) = value.as_f64() else {
        return Err(ConfigError::invalid_value(name, value, "Value must be non-null"));
    };
    match (min, max) {
        (Some(min), _) if number < min.value => {
            Err(ConfigError::invalid_value(name, value, format_args!("Value must be at least {}", min.text)))
        }
        (_, Some(max)) if number > max.value => Err(ConfigError::invalid_value(
            name,
            value,
            format_args!("Value must be no more than {}", max.text),
        )),
        _ => Ok(()),
    }
}

fn check_list(
    name: &str,
    value: &ConfigValue,
    allowed: &[&'static str],
    empty_allowed: bool,
    null_allowed: bool,
) -> Result<(), ConfigError> {
    let Some(values) = value.as_list() else {
        return match null_allowed {
            true => Ok(()),
            false => Err(ConfigError::config(format!("Configuration '{name}' values must not be null."))),
        };
    };
    if !empty_allowed && values.is_empty() {
        let valid = match allowed {
            [] => "any non-empty value".to_owned(),
            _ => format!("[{}]", allowed.join(", ")),
        };
        return Err(ConfigError::config(format!(
            "Configuration '{name}' must not be empty. Valid values include: {valid}"
        )));
    }
    if (1..values.len()).any(|i| values[..i].contains(&values[i])) {
        return Err(ConfigError::config(format!("Configuration '{name}' values must not be duplicated.")));
    }
    for element in values {
        if element.is_empty() {
            return Err(ConfigError::config(format!("Configuration '{name}' values must not be empty.")));
        }
        if !allowed.is_empty() && !allowed.contains(&element.as_str()) {
            let why = format!("String must be one of: {}", allowed.join(", "));
            return Err(ConfigError::invalid_value(name, element, why));
        }
    }
    Ok(())
}

fn parse_bootstrap_server(entry: &str) -> Result<(String, i32), ConfigError> {
    const FORM: &str = "for the configuration controller.quorum.bootstrap.servers. \
                        Each entry should be in the form \"{host}:{port}\"";
    parse_host_port(entry)
        .ok_or_else(|| ConfigError::config(format!("Failed to parse host name from {entry} {FORM}")))
}

fn check_throttled_replicas(name: &str, value: &ConfigValue) -> Result<(), ConfigError> {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let proposed: Vec<&str> =
        value.as_list().unwrap_or_default().iter().map(|s| crate::value::java_trim(s)).collect();
    let pair = |s: &&str| s.is_empty() || s.split_once(':').is_some_and(|(p, b)| digits(p) && digits(b));
    if proposed.iter().all(pair) || proposed.concat() == "*" {
        return Ok(());
    }
    let why = format!(
        "{name} must be the literal '*' or a list of replicas in the following format: \
         [partitionId]:[brokerId],[partitionId]:[brokerId],..."
    );
    Err(ConfigError::invalid_value(name, value, why))
}

/// `earliest`, `latest`, or `by_duration:` and an ISO-8601 duration that is not negative (KIP-1106).
pub fn is_share_offset_reset(text: &str) -> bool {
    match text.strip_prefix("by_duration:") {
        Some(duration) => parse_iso_duration_ms(duration).is_some_and(|ms| ms >= 0),
        None => matches!(text, "earliest" | "latest"),
    }
}

/// Milliseconds of an ISO-8601 duration `PnDTnHnMn.nS`, as `java.time.Duration.parse` reads it.
pub fn parse_iso_duration_ms(text: &str) -> Option<i64> {
    let upper = text.to_ascii_uppercase();
    let (negate, rest) = match upper.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, upper.strip_prefix('+').unwrap_or(&upper)),
    };
    let rest = rest.strip_prefix('P')?;
    let (date, time) = match rest.split_once('T') {
        Some((_, "")) => return None,
        Some((date, time)) => (date, time),
        None => (rest, ""),
    };
    let mut nanos: i128 = 0;
    if !date.is_empty() {
        nanos += i128::from(date.strip_suffix('D')?.parse::<i64>().ok()?) * 86_400_000_000_000;
    }
    let mut remaining = time;
    for (unit, factor) in [('H', 3_600_000_000_000_i128), ('M', 60_000_000_000)] {
        if let Some((number, after)) = remaining.split_once(unit) {
            nanos += i128::from(number.parse::<i64>().ok()?) * factor;
            remaining = after;
        }
    }
    if !remaining.is_empty() {
        let seconds = remaining.strip_suffix('S')?;
        let (whole, fraction) = seconds.split_once(['.', ',']).unwrap_or((seconds, ""));
        if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let sign = if whole.starts_with('-') { -1 } else { 1 };
        nanos += i128::from(whole.parse::<i64>().ok()?) * 1_000_000_000;
        nanos += sign * format!("{fraction:0<9}").parse::<i128>().ok()?;
    }
    if date.is_empty() && time.is_empty() {
        return None;
    }
    i64::try_from((if negate { -nanos } else { nanos }).div_euclid(1_000_000)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_offset_reset_takes_iso_durations() {
        for (text, expected) in [
            ("earliest", true),
            ("latest", true),
            ("none", false),
            ("by_duration:PT1H", true),
            ("by_duration:P1DT2H3M4.5S", true),
            ("by_duration:PT", false),
            ("by_duration:P", false),
            ("by_duration:-PT1H", false),
            ("by_duration:PT-1S", false),
            ("by_duration:1h", false),
            ("Earliest", false),
        ] {
            assert_eq!(is_share_offset_reset(text), expected, "{text}");
        }
        assert_eq!(parse_iso_duration_ms("P1DT2H3M4.5S"), Some(93_784_500));
        assert_eq!(parse_iso_duration_ms("pt0.001s"), Some(1));
    }
}
