//! Why a tool's operation failed, in the words the reference prints.

use std::fmt;

use client::{ApiError, ClientError};
use protocol::ErrorCode;

use crate::io::End;
use crate::options::OptionError;

/// The reference's tools print either the message of a failure or its Java class and message; both are kept.
#[derive(Debug)]
pub enum Failure {
    /// The tool has said what there is to say.
    End(End),
    Api(ApiError),
    Text {
        exception: &'static str,
        message: String,
    },
}

const ILLEGAL_ARGUMENT: &str = "java.lang.IllegalArgumentException";

impl Failure {
    pub fn illegal_argument(message: impl Into<String>) -> Self {
        Failure::Text { exception: ILLEGAL_ARGUMENT, message: message.into() }
    }

    pub fn text(exception: &'static str, message: impl Into<String>) -> Self {
        Failure::Text { exception, message: message.into() }
    }

    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Failure::Api(error) => Some(error.code),
            _ => None,
        }
    }

    /// `org.apache.kafka.common.errors.X: message`, as a Java exception prints itself.
    pub fn as_exception(&self) -> String {
        match self {
            Failure::Api(error) => format!("{}: {error}", error.exception()),
            Failure::Text { exception, message } => format!("{exception}: {message}"),
            Failure::End(_) => String::new(),
        }
    }

    /// Ends the tool with `print` called on every failure that has not been reported yet.
    pub fn report(self, print: impl FnOnce(&Failure)) -> End {
        match self {
            Failure::End(end) => end,
            other => {
                print(&other);
                End::code(1)
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::End(End::Message(message)) => f.write_str(message),
            Failure::End(End::Code(code)) => write!(f, "exit code {code}"),
            Failure::Api(error) => error.fmt(f),
            Failure::Text { message, .. } => f.write_str(message),
        }
    }
}

impl From<End> for Failure {
    fn from(end: End) -> Self {
        Failure::End(end)
    }
}

impl From<OptionError> for Failure {
    fn from(error: OptionError) -> Self {
        Failure::text("joptsimple.OptionException", error.to_string())
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Failure::Api(error)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Api(error) => Failure::Api(error),
            ClientError::UnsupportedVersion { .. } => {
                Failure::Api(ApiError::new(ErrorCode::UNSUPPORTED_VERSION, Some(error.to_string())))
            }
            ClientError::Config(message) => {
                Failure::text("org.apache.kafka.common.config.ConfigException", message)
            }
            other => Failure::End(End::message(with_cure(&other))),
        }
    }
}

/// One line: what is wrong, and what can be done about it.
fn with_cure(error: &ClientError) -> String {
    match error {
        ClientError::Unreachable { .. } => format!(
            "Error: {error}. Is the broker running, and does it listen there? \
             Check --bootstrap-server; --timeout changes how long is waited."
        ),
        ClientError::TimedOut { .. } => format!(
            "Error: {error}. The broker is busy or not ready yet; wait and try again, or raise --timeout."
        ),
        ClientError::Disconnected { .. } => format!(
            "Error: {error}. Is it a PLAINTEXT listener of a Kafka broker? Its log says why it closed the connection."
        ),
        other => format!("Error: {other}"),
    }
}
