//! Addresses in configurations: listeners, `host:port`, quorum voters, security protocols.
//!
//! Follows the reference's regular expressions by hand, since their corners (brackets, zones,
//! empty hosts) are visible to users. Pure; no name is resolved here.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::error::ConfigError;

/// How a listener's connections are secured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecurityProtocol {
    Plaintext,
    Ssl,
    SaslPlaintext,
    SaslSsl,
}

impl SecurityProtocol {
    pub const ALL: [Self; 4] = [Self::Plaintext, Self::Ssl, Self::SaslPlaintext, Self::SaslSsl];

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name.to_uppercase())
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Plaintext => "PLAINTEXT",
            Self::Ssl => "SSL",
            Self::SaslPlaintext => "SASL_PLAINTEXT",
            Self::SaslSsl => "SASL_SSL",
        }
    }

    /// The id that registration records and requests carry.
    pub fn id(self) -> i16 {
        match self {
            Self::Plaintext => 0,
            Self::Ssl => 1,
            Self::SaslPlaintext => 2,
            Self::SaslSsl => 3,
        }
    }

    pub fn uses_tls(self) -> bool {
        matches!(self, Self::Ssl | Self::SaslSsl)
    }

    pub fn uses_sasl(self) -> bool {
        matches!(self, Self::SaslPlaintext | Self::SaslSsl)
    }
}

impl fmt::Display for SecurityProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One listener as configured: `NAME://host:port`. No host means every interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// In upper case, as the reference normalises it.
    pub listener: String,
    pub security_protocol: SecurityProtocol,
    pub host: Option<String>,
    pub port: i32,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.as_deref().unwrap_or("");
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{}://{open}{host}{close}:{}", self.listener, self.port)
    }
}

/// Whether a host consists of permitted characters only; empty is permitted.
pub fn is_valid_host(host: &str) -> bool {
    host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'%' | b'.' | b'_' | b':'))
}

/// Splits `host:port`, with an optional `scheme://` in front and brackets around the host.
pub fn parse_host_port(text: &str) -> Option<(String, i32)> {
    let scheme_char = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'%' | b'.' | b'_');
    let rest = match text.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(scheme_char) => rest,
        _ => text,
    };
    let (host, port) = rest.rsplit_once(':')?;
    if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let host = host.strip_prefix('[').unwrap_or(host);
    let host = host.strip_suffix(']').unwrap_or(host);
    is_valid_host(host).then(|| port.parse().ok().map(|port| (host.to_owned(), port))).flatten()
}

/// Reads `controller.quorum.voters`: id to host and port, in order of id.
pub fn parse_voters(
    entries: &[String],
    require_routable: bool,
) -> Result<BTreeMap<i32, (String, i32)>, ConfigError> {
    const FORM: &str = "for the configuration controller.quorum.voters. Each entry should be in the form `{id}@{host}:{port}`.";
    let mut voters = BTreeMap::new();
    for entry in entries {
        let mut parts: Vec<&str> = entry.split('@').collect();
        while parts.last().is_some_and(|part| part.is_empty()) {
            parts.pop();
        }
        let [id, address] = parts[..] else {
            return Err(ConfigError::config(
                "Invalid configuration value for controller.quorum.voters. Each entry should be in the form \
                 `{id}@{host}:{port}`.",
            ));
        };
        let id: i32 = id
            .parse()
            .map_err(|_| ConfigError::config(format!("Failed to parse voter ID as an integer from {id}")))?;
        let (host, port) = parse_host_port(address).ok_or_else(|| {
            ConfigError::config(format!("Failed to parse host name from entry {entry} {FORM}"))
        })?;
        if require_routable && host == "0.0.0.0" {
            return Err(ConfigError::config(format!("Host string ({host}) is not routeable")));
        }
        voters.insert(id, (host, port));
    }
    Ok(voters)
}

/// A listener name in upper case; an empty one is refused.
pub fn normalise_listener_name(name: &str) -> Result<String, ConfigError> {
    if name.trim().is_empty() {
        return Err(ConfigError::config("The provided listener name is null or empty string"));
    }
    Ok(name.to_uppercase())
}

/// Reads `a:b, c:d` into a map; the last colon of an entry separates.
pub fn parse_map(property: &str, text: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut map = BTreeMap::new();
    if text.is_empty() {
        return Ok(map);
    }
    let mut entries = crate::value::split_list(text);
    while entries.last().is_some_and(String::is_empty) {
        entries.pop();
    }
    for entry in entries {
        let Some((key, value)) = entry.rsplit_once(':') else {
            return Err(ConfigError::illegal_argument(format!(
                "Error parsing configuration property '{property}': begin 0, end -1, length {}",
                entry.encode_utf16().count()
            )));
        };
        map.insert(key.trim().to_owned(), value.trim().to_owned());
    }
    Ok(map)
}

/// Reads a listener list against a protocol map and checks names and ports for clashes.
pub fn parse_listeners(
    listeners: &[String],
    protocols: &BTreeMap<String, SecurityProtocol>,
    distinct_ports: bool,
) -> Result<Vec<Endpoint>, ConfigError> {
    let shown = || format!("[{}]", listeners.join(", "));
    let parse = || -> Result<Vec<Endpoint>, ConfigError> {
        let endpoints =
            listeners.iter().map(|entry| parse_endpoint(entry, protocols)).collect::<Result<Vec<_>, _>>()?;
        check_clashes(&endpoints, &shown(), distinct_ports)?;
        Ok(endpoints)
    };
    parse().map_err(|e| {
        ConfigError::illegal_argument(format!(
            "Error creating broker listeners from '{}': {}",
            shown(),
            e.message
        ))
    })
}

fn parse_endpoint(
    entry: &str,
    protocols: &BTreeMap<String, SecurityProtocol>,
) -> Result<Endpoint, ConfigError> {
    let unparsable = || ConfigError::config(format!("Unable to parse {entry} to a broker endpoint"));
    let (name, rest) = entry.rsplit_once("://").ok_or_else(unparsable)?;
    let (host, port_text) = rest.rsplit_once(':').ok_or_else(unparsable)?;
    let digits = port_text.strip_prefix('-').unwrap_or(port_text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(unparsable());
    }
    let host = host.strip_prefix('[').unwrap_or(host);
    let host = host.strip_suffix(']').unwrap_or(host);
    if !is_valid_host(host) {
        return Err(unparsable());
    }
    let listener = normalise_listener_name(name)?;
    let port =
        port_text.parse().map_err(|_| ConfigError::config(format!("For input string: \"{port_text}\"")))?;
    let security_protocol = *protocols.get(&listener).ok_or_else(|| {
        ConfigError::illegal_argument(format!("No security protocol defined for listener {listener}"))
    })?;
    Ok(Endpoint { listener, security_protocol, host: (!host.is_empty()).then(|| host.to_owned()), port })
}

fn check_clashes(endpoints: &[Endpoint], shown: &str, distinct_ports: bool) -> Result<(), ConfigError> {
    let refuse = |message: String| Err(ConfigError::illegal_argument(message));
    if (1..endpoints.len()).any(|i| endpoints[..i].iter().any(|e| e.listener == endpoints[i].listener)) {
        return refuse(format!("Each listener must have a different name, listeners: {shown}"));
    }
    if !distinct_ports {
        return Ok(());
    }
    let mut by_port: BTreeMap<i32, Vec<&Endpoint>> = BTreeMap::new();
    for endpoint in endpoints.iter().filter(|e| e.port != 0) {
        by_port.entry(endpoint.port).or_default().push(endpoint);
    }
    for (port, sharing) in by_port.iter().filter(|(_, sharing)| sharing.len() > 1) {
        let (with_ip, without_ip): (Vec<&Endpoint>, Vec<&Endpoint>) =
            sharing.iter().partition(|e| e.host.as_deref().is_some_and(|h| is_ipv4(h) || is_ipv6(h)));
        if without_ip.len() > 1 {
            return refuse(format!("Each listener must have a different port, listeners: {shown}"));
        }
        let family = |e: &Endpoint| e.host.as_deref().is_some_and(is_ipv4);
        match with_ip[..] {
            [] => {}
            [first, second] => {
                if family(first) == family(second) || !without_ip.is_empty() {
                    return refuse(format!(
                        "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, \
                         listeners: {shown}, port: {port}"
                    ));
                }
            }
            _ => {
                return refuse(format!(
                    "Each listener must have a different port unless exactly one listener has an IPv4 address and \
                     the other IPv6 address, listeners: {shown}, port: {port}"
                ));
            }
        }
    }
    Ok(())
}

fn is_ipv4(host: &str) -> bool {
    host.parse::<Ipv4Addr>().is_ok()
}

fn is_ipv6(host: &str) -> bool {
    host.split('%').next().is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_split_as_the_reference_splits_them() {
        for (text, expected) in [
            ("localhost:9093", Some(("localhost", 9093))),
            ("[::1]:9093", Some(("::1", 9093))),
            ("::1:9093", Some(("::1", 9093))),
            ("PLAINTEXT://a-b.c_d:1", Some(("a-b.c_d", 1))),
            (":9093", Some(("", 9093))),
            ("localhost", None),
            ("localhost:", None),
            ("localhost:x", None),
            ("local host:1", None),
            ("a/b:1", None),
            ("h:99999999999", None),
        ] {
            assert_eq!(parse_host_port(text), expected.map(|(h, p)| (h.to_owned(), p)), "{text}");
        }
    }
}
