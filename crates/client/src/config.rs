//! Client properties: the same names, defaults and checks as the reference's clients.
//!
//! [`ClientConfig`] is a bag of `name=value` pairs with typed access; a component reads from it what it needs. Names that
//! no client knows are kept and ignored, as the reference does.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::error::ClientError;

#[derive(Clone, Debug, Default)]
pub struct ClientConfig {
    values: BTreeMap<String, String>,
}

impl ClientConfig {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn from_map(values: BTreeMap<String, String>) -> Self {
        ClientConfig { values }
    }

    /// Reads a file in the format of Java's properties.
    pub fn from_file(path: &Path) -> Result<Self, ClientError> {
        let text = std::fs::read(path)
            .map_err(|error| ClientError::Config(format!("{}: {error}", path.display())))?;
        Ok(ClientConfig { values: parse_properties(&String::from_utf8_lossy(&text)) })
    }

    pub fn set(&mut self, name: &str, value: impl Into<String>) -> &mut Self {
        self.values.insert(name.to_owned(), value.into());
        self
    }

    pub fn set_if_absent(&mut self, name: &str, value: impl Into<String>) -> &mut Self {
        self.values.entry(name.to_owned()).or_insert_with(|| value.into());
        self
    }

    pub fn remove(&mut self, name: &str) -> Option<String> {
        self.values.remove(name)
    }

    pub fn extend(&mut self, values: BTreeMap<String, String>) -> &mut Self {
        self.values.extend(values);
        self
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|value| value.trim())
    }

    pub fn contains(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    pub fn string(&self, name: &str, default: &str) -> String {
        self.get(name).unwrap_or(default).to_owned()
    }

    pub fn long(&self, name: &str, default: i64) -> Result<i64, ClientError> {
        self.number(name, default, "LONG")
    }

    pub fn int(&self, name: &str, default: i32) -> Result<i32, ClientError> {
        self.number(name, default, "INT")
    }

    fn number<T: std::str::FromStr>(&self, name: &str, default: T, kind: &str) -> Result<T, ClientError> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let message =
            || format!("Invalid value {text} for configuration {name}: Not a number of type {kind}");
        text.parse().map_err(|_| ClientError::Config(message()))
    }

    /// A duration in milliseconds; negative values are refused.
    pub fn millis(&self, name: &str, default_ms: u64) -> Result<Duration, ClientError> {
        let value = self.long(name, i64::try_from(default_ms).unwrap_or(i64::MAX))?;
        let message = || format!("Invalid value {value} for configuration {name}: Value must be at least 0");
        u64::try_from(value).map(Duration::from_millis).map_err(|_| ClientError::Config(message()))
    }

    pub fn boolean(&self, name: &str, default: bool) -> Result<bool, ClientError> {
        match self.get(name) {
            None => Ok(default),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(text) => Err(ClientError::Config(format!(
                "Invalid value {text} for configuration {name}: Expected value to be either true or false"
            ))),
        }
    }

    /// The `host:port` pairs of `bootstrap.servers` or `bootstrap.controllers`.
    pub fn addresses(&self, name: &str) -> Result<Vec<String>, ClientError> {
        let listed = self.get(name).unwrap_or_default();
        let invalid = |url: &str| ClientError::Config(format!("Invalid url in {name}: {url}"));
        let mut addresses = Vec::new();
        for url in listed.split(',').map(str::trim).filter(|url| !url.is_empty()) {
            let (host, port) = host_and_port(url).ok_or_else(|| invalid(url))?;
            addresses.push(if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            });
        }
        if addresses.is_empty() {
            return Err(ClientError::Config(format!("No resolvable bootstrap urls given in {name}")));
        }
        Ok(addresses)
    }

    /// Plaintext is what this client speaks so far; anything else is refused by name instead of failing later.
    pub fn check_security(&self) -> Result<(), ClientError> {
        match self.get("security.protocol").unwrap_or("PLAINTEXT") {
            protocol if protocol.eq_ignore_ascii_case("PLAINTEXT") => Ok(()),
            protocol => Err(ClientError::Config(format!(
                "security.protocol={protocol} is not supported by this client yet; use a PLAINTEXT listener of the broker"
            ))),
        }
    }
}

/// Host and port of `host:port`, `[v6]:port` or `PROTOCOL://host:port`.
pub fn host_and_port(url: &str) -> Option<(String, u16)> {
    let url = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (host, port) = url.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let valid = |c: char| c.is_ascii_alphanumeric() || "._-%:".contains(c);
    if host.is_empty() || !host.chars().all(valid) {
        return None;
    }
    Some((host.to_owned(), port.parse().ok()?))
}

/// Java's properties format: comments, `=`, `:` or blank separators, line continuation, escapes.
pub fn parse_properties(text: &str) -> BTreeMap<String, String> {
    let mut properties = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut logical = line.trim_start().to_owned();
        if logical.is_empty() || logical.starts_with(['#', '!']) {
            continue;
        }
        while logical.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1 {
            logical.pop();
            match lines.next() {
                Some(next) => logical.push_str(next.trim_start()),
                None => break,
            }
        }
        let (key, value) = split_property(&logical);
        properties.insert(key, value);
    }
    properties
}

fn split_property(line: &str) -> (String, String) {
    let mut escaped = false;
    let mut end = line.len();
    for (at, c) in line.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == '=' || c == ':' || c.is_whitespace() {
            end = at;
            break;
        }
    }
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start();
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start();
    (unescape(key), unescape(rest))
}

fn unescape(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            result.push(c);
            continue;
        }
        match chars.next() {
            Some('t') => result.push('\t'),
            Some('n') => result.push('\n'),
            Some('r') => result.push('\r'),
            Some('f') => result.push('\u{c}'),
            Some('u') => {
                let digits: String = chars.by_ref().take(4).collect();
                let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                result.push(code.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            Some(other) => result.push(other),
            None => {}
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_read_as_java_reads_them() {
        let text = "# comment\n! other\na=1\n b : two words \nc d\nlong=x,\\\n   y\nescaped\\=key=v\\tw\\u0041\nempty=\n";
        let properties = parse_properties(text);
        let expected = [
            ("a", "1"),
            ("b", "two words "),
            ("c", "d"),
            ("long", "x,y"),
            ("escaped=key", "v\twA"),
            ("empty", ""),
        ];
        for (key, value) in expected {
            assert_eq!(properties.get(key).map(String::as_str), Some(value), "{key}");
        }
        assert_eq!(properties.len(), expected.len());
    }

    #[test]
    fn addresses_are_checked_before_anything_connects() {
        let table = [
            ("localhost:9092", Some(("localhost", 9092))),
            ("[::1]:9", Some(("::1", 9))),
            ("PLAINTEXT://h:1", Some(("h", 1))),
            ("localhost", None),
            ("h:x", None),
            ("h:99999", None),
            (":1", None),
        ];
        for (url, expected) in table {
            let expected = expected.map(|(host, port)| (host.to_owned(), port));
            assert_eq!(host_and_port(url), expected, "{url}");
        }
    }

    #[test]
    fn only_plaintext_is_spoken_so_far() {
        let mut config = ClientConfig::new();
        assert!(config.check_security().is_ok());
        config.set("security.protocol", "SASL_SSL");
        assert!(config.check_security().unwrap_err().to_string().contains("SASL_SSL"));
    }
}
