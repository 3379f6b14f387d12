//! Typed values: how text becomes a value of a key's type and how a value is shown again.
//!
//! Both directions follow Java (trimming, number syntax, `Double.toString`), because the text is
//! visible in DescribeConfigs answers and in error messages. Pure; nothing here can panic on input.

use std::fmt;

use crate::error::ConfigError;
use crate::table::ConfigType;

/// A parsed value. `Null` is what a key without a value and without a default has.
#[derive(Debug, Clone, PartialEq)]
pub enum ConfigValue {
    Null,
    Boolean(bool),
    String(String),
    Int(i32),
    Short(i16),
    Long(i64),
    Double(f64),
    List(Vec<String>),
    Class(String),
    Password(String),
}

impl ConfigValue {
    /// Reads `text` as a value of type `kind`, as `ConfigDef.parseType` does.
    pub fn parse(name: &str, text: &str, kind: ConfigType) -> Result<Self, ConfigError> {
        let trimmed = java_trim(text);
        let not_a_number =
            || ConfigError::invalid_value(name, text, format_args!("Not a number of type {kind}"));
        Ok(match kind {
            ConfigType::Boolean if trimmed.eq_ignore_ascii_case("true") => Self::Boolean(true),
            ConfigType::Boolean if trimmed.eq_ignore_ascii_case("false") => Self::Boolean(false),
            ConfigType::Boolean => {
                return Err(ConfigError::invalid_value(
                    name,
                    text,
                    "Expected value to be either true or false",
                ));
            }
            ConfigType::String => Self::String(trimmed.to_owned()),
            ConfigType::Password => Self::Password(trimmed.to_owned()),
            ConfigType::Class => Self::Class(trimmed.to_owned()),
            ConfigType::Int => Self::Int(trimmed.parse().map_err(|_| not_a_number())?),
            ConfigType::Short => Self::Short(trimmed.parse().map_err(|_| not_a_number())?),
            ConfigType::Long => Self::Long(trimmed.parse().map_err(|_| not_a_number())?),
            ConfigType::Double => Self::Double(parse_double(trimmed).ok_or_else(not_a_number)?),
            ConfigType::List => Self::List(split_list(trimmed)),
        })
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The number, for range checks; `None` for values that are no numbers.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(v) => Some(f64::from(*v)),
            Self::Short(v) => Some(f64::from(*v)),
            // The reference compares as doubles too.
            #[allow(clippy::cast_precision_loss)]
            Self::Long(v) => Some(*v as f64),
            Self::Double(v) => Some(*v),
            _ => None,
        }
    }

    pub fn as_list(&self) -> Option<&[String]> {
        match self {
            Self::List(v) => Some(v),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(v) | Self::Class(v) | Self::Password(v) => Some(v),
            _ => None,
        }
    }

    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(v) => Some(i64::from(*v)),
            Self::Short(v) => Some(i64::from(*v)),
            Self::Long(v) => Some(*v),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Boolean(v) => Some(*v),
            _ => None,
        }
    }

    /// As DescribeConfigs shows it: a list joined by commas, `None` for no value. Never called
    /// for passwords, which are always hidden.
    pub fn to_config_string(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::List(v) => Some(v.join(",")),
            other => Some(other.to_string()),
        }
    }
}

/// Java's `toString`, as error messages show a parsed value.
impl fmt::Display for ConfigValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Boolean(v) => v.fmt(f),
            Self::String(v) | Self::Class(v) => f.write_str(v),
            Self::Int(v) => v.fmt(f),
            Self::Short(v) => v.fmt(f),
            Self::Long(v) => v.fmt(f),
            Self::Double(v) => f.write_str(&double_to_string(*v)),
            Self::List(v) => write!(f, "[{}]", v.join(", ")),
            Self::Password(_) => f.write_str("[hidden]"),
        }
    }
}

/// `String.trim`: everything up to and including the space character goes, at both ends.
pub fn java_trim(text: &str) -> &str {
    text.trim_matches(|c: char| c <= ' ')
}

/// Splits at commas and drops the white space around them; an empty text is an empty list.
pub fn split_list(trimmed: &str) -> Vec<String> {
    if trimmed.is_empty() {
        return Vec::new();
    }
    let space = |c: char| matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r');
    let parts: Vec<&str> = trimmed.split(',').collect();
    let last = parts.len() - 1;
    parts
        .iter()
        .enumerate()
        .map(|(i, part)| {
            // Only the white space next to a comma belongs to the separator.
            let part = if i > 0 { part.trim_start_matches(space) } else { part };
            (if i < last { part.trim_end_matches(space) } else { part }).to_owned()
        })
        .collect()
}

/// `Double.parseDouble` for a trimmed text, hexadecimal notation left out.
fn parse_double(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    match unsigned {
        "NaN" => return Some(f64::NAN),
        "Infinity" if text.starts_with('-') => return Some(f64::NEG_INFINITY),
        "Infinity" => return Some(f64::INFINITY),
        _ => {}
    }
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text).parse().ok()
}

/// `Double.toString`: plain between 10^-3 and 10^7, otherwise `d.dddE±n`.
pub fn double_to_string(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-3..1e7).contains(&magnitude) {
        let plain = value.to_string();
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let point = if digits.contains('.') { "" } else { ".0" };
    format!("{digits}{point}E{exponent}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_shown_as_java_shows_them() {
        for (value, expected) in [
            (0.5, "0.5"),
            (0.0, "0.0"),
            (1.0, "1.0"),
            (f64::MAX, "1.7976931348623157E308"),
            (1e7, "1.0E7"),
            (1234567.0, "1234567.0"),
            (0.001, "0.001"),
            (0.0001, "1.0E-4"),
            (-12.25, "-12.25"),
        ] {
            assert_eq!(double_to_string(value), expected);
        }
    }

    #[test]
    fn text_is_read_as_java_reads_it() {
        let ok = |text: &str, kind, expected: ConfigValue| {
            assert_eq!(ConfigValue::parse("k", text, kind), Ok(expected), "{text:?}");
        };
        ok(" TRUE ", ConfigType::Boolean, ConfigValue::Boolean(true));
        ok("+5", ConfigType::Int, ConfigValue::Int(5));
        ok(" a , b,c ", ConfigType::List, ConfigValue::List(vec!["a".into(), "b".into(), "c".into()]));
        ok("", ConfigType::List, ConfigValue::List(vec![]));
        ok("a,", ConfigType::List, ConfigValue::List(vec!["a".into(), String::new()]));
        ok("1e3", ConfigType::Double, ConfigValue::Double(1000.0));
        ok("-Infinity", ConfigType::Double, ConfigValue::Double(f64::NEG_INFINITY));
        ok("2d", ConfigType::Double, ConfigValue::Double(2.0));
        for (text, kind, message) in [
            ("abc", ConfigType::Long, "Invalid value abc for configuration k: Not a number of type LONG"),
            ("", ConfigType::Int, "Invalid value  for configuration k: Not a number of type INT"),
            (
                "99999",
                ConfigType::Short,
                "Invalid value 99999 for configuration k: Not a number of type SHORT",
            ),
            ("inf", ConfigType::Double, "Invalid value inf for configuration k: Not a number of type DOUBLE"),
            (
                "yes",
                ConfigType::Boolean,
                "Invalid value yes for configuration k: Expected value to be either true or false",
            ),
        ] {
            assert_eq!(ConfigValue::parse("k", text, kind).unwrap_err().message, message);
        }
    }
}
