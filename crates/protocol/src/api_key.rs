//! What is known about each API beyond its messages: number, name, versions, listeners, header versions.

use std::fmt;

pub use crate::generated::api_keys::ApiKey;
use crate::generated::api_keys::TABLE;

/// The two kinds of listener, which serve different APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    Broker,
    Controller,
}

pub(crate) struct ApiInfo {
    pub(crate) key: ApiKey,
    pub(crate) name: &'static str,
    pub(crate) min: i16,
    pub(crate) max: i16,
    pub(crate) request_flexible: i16,
    pub(crate) response_flexible: i16,
    pub(crate) unstable: bool,
    pub(crate) broker: bool,
    pub(crate) controller: bool,
}

impl ApiKey {
    pub fn all() -> impl Iterator<Item = ApiKey> {
        TABLE.iter().map(|info| info.key)
    }

    pub fn from_code(code: i16) -> Option<ApiKey> {
        TABLE.get(usize::try_from(code).ok()?).map(|info| info.key)
    }

    pub fn code(self) -> i16 {
        self as i16
    }

    fn info(self) -> &'static ApiInfo {
        &TABLE[self as usize]
    }

    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The oldest version with a message; 0 for a removed API.
    pub fn min_version(self) -> i16 {
        self.info().min.max(0)
    }

    /// The newest version, stable or not; -1 for a removed API.
    pub fn max_version(self) -> i16 {
        self.info().max
    }

    /// The newest version that is served without `unstable.api.versions.enable`.
    pub fn max_stable_version(self) -> i16 {
        self.info().max - i16::from(self.info().unstable)
    }

    /// Whether no version of this API is left.
    pub fn is_removed(self) -> bool {
        self.max_version() < self.min_version()
    }

    pub fn is_supported(self, version: i16) -> bool {
        (self.min_version()..=self.max_version()).contains(&version)
    }

    pub fn is_on(self, listener: Listener) -> bool {
        match listener {
            Listener::Broker => self.info().broker,
            Listener::Controller => self.info().controller,
        }
    }

    /// What ApiVersions says on a listener of this kind: keys in ascending order with the versions of each.
    ///
    /// Produce is listed from version 0 although 0 to 2 are refused: librdkafka takes a higher minimum for a broker
    /// without any support for compression (KAFKA-18659). The telemetry APIs belong to the list only when the node
    /// has somewhere to send client metrics, which the caller knows.
    pub fn advertised(listener: Listener, unstable: bool) -> impl Iterator<Item = (ApiKey, i16, i16)> {
        TABLE.iter().map(|info| info.key).filter_map(move |key| {
            let min = if key == ApiKey::Produce { 0 } else { key.min_version() };
            let max = if unstable { key.max_version() } else { key.max_stable_version() };
            (key.is_on(listener) && min <= max).then_some((key, min, max))
        })
    }

    pub fn request_header_version(self, version: i16) -> i16 {
        if version >= self.info().request_flexible { 2 } else { 1 }
    }

    /// ApiVersions keeps the oldest header, so that a client that knows nothing about the broker can read it.
    pub fn response_header_version(self, version: i16) -> i16 {
        i16::from(self != ApiKey::ApiVersions && version >= self.info().response_flexible)
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_indexed_by_key() {
        for (index, info) in TABLE.iter().enumerate() {
            assert_eq!(info.key as usize, index);
            assert_eq!(ApiKey::from_code(index as i16), Some(info.key));
        }
        for code in [-1, i16::MIN, TABLE.len() as i16, i16::MAX] {
            assert_eq!(ApiKey::from_code(code), None);
        }
    }

    #[test]
    fn advertised_versions_are_the_references() {
        let broker: Vec<_> = ApiKey::advertised(Listener::Broker, false).collect();
        assert_eq!(broker[0], (ApiKey::Produce, 0, 13));
        assert!(broker.contains(&(ApiKey::InitProducerId, 0, 5)));
        assert!(!broker.iter().any(|(key, ..)| *key == ApiKey::LeaderAndIsr || *key == ApiKey::Vote));
        let controller: Vec<_> = ApiKey::advertised(Listener::Controller, false).collect();
        assert_eq!(controller[0], (ApiKey::Fetch, 4, 18));
        assert!(controller.contains(&(ApiKey::Vote, 0, 2)));
    }

    #[test]
    fn headers_follow_the_first_flexible_version() {
        for (key, version, request, response) in [
            (ApiKey::Produce, 8, 1, 0),
            (ApiKey::Produce, 9, 2, 1),
            (ApiKey::ApiVersions, 2, 1, 0),
            (ApiKey::ApiVersions, 3, 2, 0),
            (ApiKey::ApiVersions, i16::MAX, 2, 0),
            (ApiKey::SaslHandshake, 1, 1, 0),
        ] {
            assert_eq!(
                (key.request_header_version(version), key.response_header_version(version)),
                (request, response)
            );
        }
    }
}
