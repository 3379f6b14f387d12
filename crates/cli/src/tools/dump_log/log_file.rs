//! A segment's file, read one batch at a time.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use record::{HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, RECORD_OVERHEAD_V0, RecordBatch, RecordError};

use super::Uncaught;

pub(super) struct LogFile<'a> {
    path: &'a Path,
    file: File,
    length: u64,
}

/// A batch's bytes and where they are.
#[derive(Clone, Debug)]
pub(super) struct FoundBatch {
    pub position: u64,
    pub bytes: Bytes,
}

impl<'a> LogFile<'a> {
    pub fn open(path: &'a Path) -> Result<LogFile<'a>, Uncaught> {
        let fail = |error| Uncaught::io(path, &error);
        let file = File::open(path).map_err(fail)?;
        let length = file.metadata().map_err(fail)?.len();
        Ok(LogFile { path, file, length })
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// The batch at `position` that ends before `end`; `None` when there is no complete one.
    pub fn batch_at(&self, position: u64, end: u64) -> Result<Option<FoundBatch>, Uncaught> {
        let end = end.min(self.length);
        let header_size = HEADER_SIZE_UP_TO_MAGIC as u64;
        if position.saturating_add(header_size) >= end {
            return Ok(None);
        }
        let mut header = [0; HEADER_SIZE_UP_TO_MAGIC];
        self.file.read_exact_at(&mut header, position).map_err(|error| Uncaught::io(self.path, &error))?;
        let size = header.get(8..12).and_then(|bytes| bytes.try_into().ok()).map_or(0, i32::from_be_bytes);
        if usize::try_from(size).is_ok_and(|size| size < RECORD_OVERHEAD_V0) || size < 0 {
            let message = format!(
                "Found record size {size} smaller than minimum record overhead ({RECORD_OVERHEAD_V0}) in file {}.",
                self.path.display()
            );
            return Err(Uncaught::new("org.apache.kafka.common.errors.CorruptRecordException", message));
        }
        let length = u64::from(size.unsigned_abs()) + LOG_OVERHEAD as u64;
        if position + length > end {
            return Ok(None);
        }
        // Bounded by the file's own size.
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut bytes, position).map_err(|error| Uncaught::io(self.path, &error))?;
        Ok(Some(FoundBatch { position, bytes: bytes.into() }))
    }
}

impl FoundBatch {
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub fn batch(&self) -> Result<RecordBatch<'_>, Uncaught> {
        match RecordBatch::first(&self.bytes) {
            Ok(Some(batch)) => Ok(batch),
            Ok(None) => Err(broken(&RecordError::Corrupt("Batch is cut off".into()))),
            Err(error) => Err(broken(&error)),
        }
    }
}

/// Bytes that are no records.
pub(super) fn broken(error: &RecordError) -> Uncaught {
    let exception = match error {
        RecordError::Corrupt(_) => "org.apache.kafka.common.errors.CorruptRecordException",
        RecordError::Invalid(_) => "org.apache.kafka.common.InvalidRecordException",
        RecordError::Codec(_) => "org.apache.kafka.common.KafkaException",
    };
    Uncaught::new(exception, error.to_string())
}
