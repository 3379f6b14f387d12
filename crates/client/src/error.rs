//! What can go wrong between a client and a cluster.
//!
//! An [`ApiError`] is an answer of the cluster and keeps the broker's own message; every other kind is about getting an
//! answer at all and says which address it concerns.

use std::fmt;
use std::time::Duration;

use protocol::{ApiKey, DecodeError, EncodeError, ErrorCode};

/// An error code of the protocol together with the broker's message, when it sent one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    pub code: ErrorCode,
    pub message: Option<String>,
}

impl ApiError {
    pub fn new(code: ErrorCode, message: Option<String>) -> Self {
        ApiError { code, message }
    }

    /// `Ok` for code 0.
    pub fn check(code: i16, message: Option<&String>) -> Result<(), ApiError> {
        match ErrorCode::from_code(code) {
            ErrorCode::NONE => Ok(()),
            code => Err(ApiError { code, message: message.cloned() }),
        }
    }

    /// Java's name of the exception, which tools of the reference print in front of the message.
    pub fn exception(&self) -> String {
        format!("org.apache.kafka.common.errors.{}", self.code.exception())
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => f.write_str(message),
            None => f.write_str(self.code.message()),
        }
    }
}

impl std::error::Error for ApiError {}

#[derive(Clone, Debug)]
pub enum ClientError {
    /// No connection to any of the addresses; `cause` is the last failure.
    Unreachable {
        addresses: String,
        cause: String,
    },
    /// The connection ended while an answer was awaited.
    Disconnected {
        address: String,
        cause: String,
    },
    /// No answer within the time allowed.
    TimedOut {
        what: String,
        after: Duration,
    },
    /// The other side does not serve this API in a version known here.
    UnsupportedVersion {
        api: ApiKey,
        address: String,
    },
    Decode {
        api: ApiKey,
        error: DecodeError,
    },
    Encode {
        api: ApiKey,
        error: EncodeError,
    },
    /// A property has a value that cannot be used.
    Config(String),
    Api(ApiError),
    /// The handle was used after it had been closed.
    Closed,
}

impl ClientError {
    /// Whether trying again, perhaps at another broker, may help.
    pub fn is_retriable(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } | ClientError::Disconnected { .. } => true,
            ClientError::Api(error) => error.code.is_retriable(),
            _ => false,
        }
    }

    pub fn api(&self) -> Option<&ApiError> {
        match self {
            ClientError::Api(error) => Some(error),
            _ => None,
        }
    }

    pub fn code(&self) -> Option<ErrorCode> {
        self.api().map(|error| error.code)
    }
}

impl From<ApiError> for ClientError {
    fn from(error: ApiError) -> Self {
        ClientError::Api(error)
    }
}

impl From<ErrorCode> for ClientError {
    fn from(code: ErrorCode) -> Self {
        ClientError::Api(ApiError::new(code, None))
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Unreachable { addresses, cause } => {
                write!(f, "cannot connect to {addresses}: {cause}")
            }
            ClientError::Disconnected { address, cause } => {
                write!(f, "{address} closed the connection: {cause}")
            }
            ClientError::TimedOut { what, after } => {
                write!(f, "no answer within {} ms to {what}", after.as_millis())
            }
            ClientError::UnsupportedVersion { api, address } => {
                write!(f, "The node {address} does not support {}", api.name())
            }
            ClientError::Decode { api, error } => {
                write!(f, "cannot read the answer to {}: {error}", api.name())
            }
            ClientError::Encode { api, error } => {
                write!(f, "cannot write the request {}: {error}", api.name())
            }
            ClientError::Config(message) => f.write_str(message),
            ClientError::Api(error) => error.fmt(f),
            ClientError::Closed => f.write_str("the client is closed"),
        }
    }
}

impl std::error::Error for ClientError {}
