//! Errors of reading records and of appending them, with the reference's messages and error codes.

use std::borrow::Cow;
use std::fmt;

use crate::codec::CodecError;

/// Why bytes are not records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The batch is not what was written: CORRUPT_MESSAGE.
    Corrupt(Cow<'static, str>),
    /// The batch is intact but its contents are wrong: INVALID_RECORD.
    Invalid(Cow<'static, str>),
    /// The records could not be decompressed. The reference answers UNKNOWN_SERVER_ERROR.
    Codec(CodecError),
}

impl RecordError {
    pub(crate) const fn invalid(message: &'static str) -> RecordError {
        RecordError::Invalid(Cow::Borrowed(message))
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Corrupt(message) | RecordError::Invalid(message) => f.write_str(message),
            RecordError::Codec(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RecordError {}

impl From<CodecError> for RecordError {
    fn from(error: CodecError) -> RecordError {
        RecordError::Codec(error)
    }
}

/// One refused record of a batch (KIP-467): goes into ProduceResponse's `record_errors`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchIndexError {
    /// Index of the record in its batch, from 0.
    pub batch_index: i32,
    pub message: String,
}

/// Why an append was refused. Nothing of the batch was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// CORRUPT_MESSAGE.
    Corrupt(String),
    /// INVALID_RECORD for the batch as a whole; the reference keeps the message to its own log.
    InvalidBatch(String),
    /// INVALID_RECORD for single records, message and records go to the client.
    InvalidRecords { message: String, record_errors: Vec<BatchIndexError> },
    /// INVALID_TIMESTAMP, message and records go to the client.
    InvalidTimestamps { message: String, record_errors: Vec<BatchIndexError> },
    /// MESSAGE_TOO_LARGE.
    RecordTooLarge(String),
    /// UNSUPPORTED_COMPRESSION_TYPE.
    UnsupportedCompressionType(String),
    /// UNSUPPORTED_FOR_MESSAGE_FORMAT.
    UnsupportedForMessageFormat(String),
    /// Offsets of a follower's append do not rise; never seen by clients (UNKNOWN_SERVER_ERROR).
    OffsetsOutOfOrder(String),
    /// Records that do not decompress, or a codec that does not exist: UNKNOWN_SERVER_ERROR as the reference.
    Unreadable(String),
}

impl AppendError {
    /// The Kafka error code.
    pub fn error_code(&self) -> i16 {
        match self {
            AppendError::Corrupt(_) => 2,
            AppendError::InvalidBatch(_) | AppendError::InvalidRecords { .. } => 87,
            AppendError::InvalidTimestamps { .. } => 32,
            AppendError::RecordTooLarge(_) => 10,
            AppendError::UnsupportedCompressionType(_) => 76,
            AppendError::UnsupportedForMessageFormat(_) => 43,
            AppendError::OffsetsOutOfOrder(_) | AppendError::Unreadable(_) => -1,
        }
    }

    /// What stands in the broker's log.
    pub fn message(&self) -> &str {
        match self {
            AppendError::Corrupt(message)
            | AppendError::InvalidBatch(message)
            | AppendError::InvalidRecords { message, .. }
            | AppendError::InvalidTimestamps { message, .. }
            | AppendError::RecordTooLarge(message)
            | AppendError::UnsupportedCompressionType(message)
            | AppendError::UnsupportedForMessageFormat(message)
            | AppendError::OffsetsOutOfOrder(message)
            | AppendError::Unreadable(message) => message,
        }
    }

    /// ProduceResponse's `error_message`: only errors about single records carry one (KIP-467).
    pub fn client_message(&self) -> Option<&str> {
        match self {
            AppendError::InvalidRecords { message, .. } | AppendError::InvalidTimestamps { message, .. } => {
                Some(message)
            }
            _ => None,
        }
    }

    /// ProduceResponse's `record_errors`.
    pub fn record_errors(&self) -> &[BatchIndexError] {
        match self {
            AppendError::InvalidRecords { record_errors, .. }
            | AppendError::InvalidTimestamps { record_errors, .. } => record_errors,
            _ => &[],
        }
    }
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for AppendError {}

impl From<RecordError> for AppendError {
    fn from(error: RecordError) -> AppendError {
        match error {
            RecordError::Corrupt(message) => AppendError::Corrupt(message.into_owned()),
            RecordError::Invalid(message) => AppendError::InvalidBatch(message.into_owned()),
            RecordError::Codec(error @ CodecError::TooLarge { .. }) => {
                AppendError::RecordTooLarge(error.to_string())
            }
            RecordError::Codec(error) => AppendError::Unreadable(error.to_string()),
        }
    }
}
