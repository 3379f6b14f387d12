//! Why a log cannot do what was asked.
//!
//! Owns: the error enums of appending, reading and start-up; `error_code` maps them to Kafka's numbers.
//! Invariants: a text tells what happened and, where a person must act, what to do. Concurrency, crash: values.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The disk or a directory failed; KAFKA_STORAGE_ERROR.
#[derive(Clone, Debug)]
pub enum StorageError {
    /// An operation failed; the directory it names is offline from now on.
    Io { doing: String, cause: Arc<io::Error> },
    /// An earlier failure took the directory offline.
    Offline(PathBuf),
    /// The log was closed or deleted.
    Closed(String),
}

impl StorageError {
    /// Kafka's KAFKA_STORAGE_ERROR.
    pub const ERROR_CODE: i16 = 56;

    /// Whether the volume has no room: it was said once, and passes.
    pub fn is_full(&self) -> bool {
        matches!(self, StorageError::Io { cause, .. } if crate::segment::is_full(cause))
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageError::Io { doing, cause } => write!(f, "{doing}: {cause}"),
            StorageError::Offline(dir) => {
                write!(f, "The log dir {} is already offline due to a previous IO exception.", dir.display())
            }
            StorageError::Closed(what) => write!(f, "The log for {what} is already closed"),
        }
    }
}

impl std::error::Error for StorageError {}

/// Why records were not appended.
#[derive(Clone, Debug)]
pub enum AppendError {
    /// The records themselves are wrong.
    Records(record::AppendError),
    /// RECORD_LIST_TOO_LARGE: the records do not fit in one segment.
    RecordBatchTooLarge(String),
    /// OUT_OF_ORDER_SEQUENCE_NUMBER.
    OutOfOrderSequence(String),
    /// INVALID_PRODUCER_EPOCH.
    InvalidProducerEpoch(String),
    /// INVALID_TXN_STATE.
    InvalidTxnState(String),
    /// TRANSACTION_COORDINATOR_FENCED.
    TransactionCoordinatorFenced(String),
    /// A follower's records do not continue the log.
    UnexpectedOffset {
        message: String,
        first_offset: i64,
        last_offset: i64,
    },
    Storage(StorageError),
}

impl AppendError {
    pub fn error_code(&self) -> i16 {
        match self {
            AppendError::Records(error) => error.error_code(),
            AppendError::RecordBatchTooLarge(_) => 18,
            AppendError::OutOfOrderSequence(_) => 45,
            AppendError::InvalidProducerEpoch(_) => 47,
            AppendError::InvalidTxnState(_) => 48,
            AppendError::TransactionCoordinatorFenced(_) => 52,
            AppendError::UnexpectedOffset { .. } => -1,
            AppendError::Storage(_) => StorageError::ERROR_CODE,
        }
    }
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppendError::Records(error) => error.fmt(f),
            AppendError::Storage(error) => error.fmt(f),
            AppendError::RecordBatchTooLarge(message)
            | AppendError::OutOfOrderSequence(message)
            | AppendError::InvalidProducerEpoch(message)
            | AppendError::InvalidTxnState(message)
            | AppendError::TransactionCoordinatorFenced(message)
            | AppendError::UnexpectedOffset { message, .. } => f.write_str(message),
        }
    }
}

impl std::error::Error for AppendError {}

impl From<StorageError> for AppendError {
    fn from(error: StorageError) -> Self {
        AppendError::Storage(error)
    }
}

impl From<record::AppendError> for AppendError {
    fn from(error: record::AppendError) -> Self {
        AppendError::Records(error)
    }
}

/// Why a log could not be read, or its start not be moved.
#[derive(Clone, Debug)]
pub enum ReadError {
    /// OFFSET_OUT_OF_RANGE.
    OffsetOutOfRange(String),
    /// CORRUPT_MESSAGE: bytes that are no batch are where one should be. Another replica may have it.
    CorruptRecord(String),
    Storage(StorageError),
}

impl ReadError {
    pub fn error_code(&self) -> i16 {
        match self {
            ReadError::OffsetOutOfRange(_) => 1,
            ReadError::CorruptRecord(_) => 2,
            ReadError::Storage(_) => StorageError::ERROR_CODE,
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::OffsetOutOfRange(message) | ReadError::CorruptRecord(message) => f.write_str(message),
            ReadError::Storage(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<StorageError> for ReadError {
    fn from(error: StorageError) -> Self {
        ReadError::Storage(error)
    }
}

/// Why a node cannot use its log directories. One line with cause and cure; nothing was changed on disk.
#[derive(Debug)]
pub enum LogDirError {
    Locked(PathBuf),
    Duplicate(PathBuf),
    NoUsableDir(String),
    /// Not Kafka's: refusing is better than guessing.
    ForeignDir {
        dir: PathBuf,
        name: String,
    },
    DuplicateLog {
        first: PathBuf,
        second: PathBuf,
    },
    /// `partition.metadata` of a log says another topic id than asked for: INCONSISTENT_TOPIC_ID.
    InconsistentTopicId(String),
    Storage(StorageError),
}

impl fmt::Display for LogDirError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogDirError::Locked(dir) => write!(
                f,
                "Failed to acquire lock on file .lock in {}. A Kafka instance in another process or thread is using \
                 this directory: stop it, or set log.dirs to another directory.",
                dir.display()
            ),
            LogDirError::Duplicate(dir) => {
                write!(f, "Duplicate log directory found: {}. Name it once in log.dirs.", dir.display())
            }
            LogDirError::NoUsableDir(dirs) => write!(
                f,
                "None of the specified log dirs ({dirs}) can be created or validated. Check that they exist, are \
                 directories and may be read and written by this user."
            ),
            LogDirError::ForeignDir { dir, name } => write!(
                f,
                "Found directory {}, '{name}' is not in the form of topic-partition or \
                 topic-partition.uniqueId-delete (if marked for deletion). Kafka's log directories (and children) \
                 should only contain Kafka topic data: move it elsewhere.",
                dir.display()
            ),
            LogDirError::DuplicateLog { first, second } => write!(
                f,
                "Duplicate log directories for one partition are found in both {} and {}. It is likely because log \
                 directory failure happened while broker was replacing current replica with future replica. Delete \
                 the one in the log directory that failed recently.",
                first.display(),
                second.display()
            ),
            LogDirError::InconsistentTopicId(message) => f.write_str(message),
            LogDirError::Storage(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LogDirError {}

impl From<StorageError> for LogDirError {
    fn from(error: StorageError) -> Self {
        LogDirError::Storage(error)
    }
}

pub(crate) fn io_error(doing: impl Into<String>, path: &Path, cause: io::Error) -> StorageError {
    StorageError::Io { doing: format!("{} {}", doing.into(), path.display()), cause: Arc::new(cause) }
}

pub(crate) fn invalid_data(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}
