//! The one error of this crate: what was wrong with a configuration, in the reference's words.
//!
//! Owns the mapping from the kind of exception Apache Kafka raises to the error code that an
//! admin request answers with. No state, nothing on disk.

use std::fmt;

/// Which of the reference's exceptions a message comes from; decides the error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A value that a key's type, range or pattern refuses (`ConfigException`).
    Config,
    /// Keys that contradict each other in a server's file (`IllegalArgumentException`).
    IllegalArgument,
    /// A resource's set of keys that is refused as a whole (`InvalidConfigurationException`).
    InvalidConfiguration,
    /// A request that makes no sense (`InvalidRequestException`).
    InvalidRequest,
    /// A topic name that is not legal (`InvalidTopicException`).
    InvalidTopic,
}

/// A refused configuration. `message` is exactly what Apache Kafka 4.4.0 says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    pub kind: ErrorKind,
    pub message: String,
}

/// `INVALID_TOPIC_EXCEPTION`.
const INVALID_TOPIC_EXCEPTION: i16 = 17;
/// `INVALID_CONFIG`.
const INVALID_CONFIG: i16 = 40;
/// `INVALID_REQUEST`.
const INVALID_REQUEST: i16 = 42;
/// `UNKNOWN_SERVER_ERROR`.
const UNKNOWN_SERVER_ERROR: i16 = -1;

impl ConfigError {
    pub fn config(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Config, message: message.into() }
    }

    pub fn illegal_argument(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::IllegalArgument, message: message.into() }
    }

    pub fn invalid_configuration(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::InvalidConfiguration, message: message.into() }
    }

    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::InvalidRequest, message: message.into() }
    }

    /// `Invalid value V for configuration K: why`, the commonest sentence of all.
    pub fn invalid_value(name: &str, value: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::config(format!("Invalid value {value} for configuration {name}: {why}"))
    }

    /// The protocol's error code that an admin request gets for this error.
    pub fn error_code(&self) -> i16 {
        match self.kind {
            ErrorKind::Config | ErrorKind::InvalidConfiguration => INVALID_CONFIG,
            ErrorKind::InvalidRequest => INVALID_REQUEST,
            ErrorKind::InvalidTopic => INVALID_TOPIC_EXCEPTION,
            ErrorKind::IllegalArgument => UNKNOWN_SERVER_ERROR,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Scala's `require` puts two words in front that say nothing to a person.
        f.write_str(self.message.strip_prefix("requirement failed: ").unwrap_or(&self.message))
    }
}

impl std::error::Error for ConfigError {}
