//! Why bytes could not be read as a message, or a message not be written.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The input ends before `needed` bytes at `position`.
    Underflow { position: usize, needed: usize, remaining: usize },
    /// A length or count at `position` is negative, or larger than its type or the input allows.
    InvalidLength { position: usize, length: i64 },
    /// A field that may not be null in this version is null.
    UnexpectedNull { position: usize },
    /// A varint at `position` is longer than its type.
    InvalidVarint { position: usize },
    /// A known tag occurs in a version that does not have it.
    InvalidTag { tag: u32, version: i16 },
    /// The message has no such version.
    UnsupportedVersion { message: &'static str, version: i16 },
    /// No record, request or frame of this number.
    UnknownKey { key: i32 },
    /// Bytes remain after the last field.
    TrailingBytes { remaining: usize },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            DecodeError::Underflow { position, needed, remaining } => {
                write!(f, "need {needed} bytes at position {position}, only {remaining} remain")
            }
            DecodeError::InvalidLength { position, length } => {
                write!(f, "invalid length {length} at position {position}")
            }
            DecodeError::UnexpectedNull { position } => {
                write!(f, "a field that is not nullable is null at position {position}")
            }
            DecodeError::InvalidVarint { position } => write!(f, "varint at position {position} is too long"),
            DecodeError::InvalidTag { tag, version } => {
                write!(f, "tag {tag} is not valid for version {version}")
            }
            DecodeError::UnsupportedVersion { message, version } => {
                write!(f, "{message} has no version {version}")
            }
            DecodeError::UnknownKey { key } => write!(f, "unknown key {key}"),
            DecodeError::TrailingBytes { remaining } => {
                write!(f, "{remaining} bytes remain after the message")
            }
        }
    }
}

impl std::error::Error for DecodeError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// A field has a value that this version cannot carry.
    UnsupportedField { field: &'static str, version: i16 },
    /// A field that may not be null in this version is null.
    UnexpectedNull,
    /// A string, byte array or array is longer than the protocol allows.
    TooLong { length: usize },
    /// The message has no such version.
    UnsupportedVersion { message: &'static str, version: i16 },
    /// `finish_contiguous` cannot hold records that are outside memory.
    ExternalRecords,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            EncodeError::UnsupportedField { field, version } => {
                write!(f, "attempted to write a non-default {field} at version {version}")
            }
            EncodeError::UnexpectedNull => f.write_str("a field that is not nullable is null"),
            EncodeError::TooLong { length } => write!(f, "length {length} is too long to be serialized"),
            EncodeError::UnsupportedVersion { message, version } => {
                write!(f, "{message} has no version {version}")
            }
            EncodeError::ExternalRecords => {
                f.write_str("records that are outside memory cannot be made contiguous")
            }
        }
    }
}

impl std::error::Error for EncodeError {}
