//! Reading by offset.
//!
//! Owns: finding the region of a file that answers a fetch. Invariants: a region begins with a whole batch, the one
//! that holds the offset or the next that survived compaction, and never reaches behind what its isolation allows.
//! Concurrency: no lock across IO; a segment that is deleted meanwhile is read through its open file.
//! Crash: nothing is written.

use std::io;

use super::UnifiedLog;
use crate::error::{ReadError, StorageError};
use crate::offsets::LogOffsetMetadata;
use crate::segment::{FileSlice, LogSegment};
use crate::txn_index::AbortedTxn;

/// Up to where a reader may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchIsolation {
    /// Followers.
    LogEnd,
    /// Consumers.
    HighWatermark,
    /// Consumers with `isolation.level=read_committed`.
    TxnCommitted,
}

/// A transaction of which a `read_committed` consumer must drop the records from `first_offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
}

/// The answer to a read.
#[derive(Clone, Debug)]
pub struct FetchDataInfo {
    pub fetch_offset: LogOffsetMetadata,
    /// `None`: nothing to read yet.
    pub records: Option<FileSlice>,
    /// The first batch is larger than what was asked for, and is cut off.
    pub first_entry_incomplete: bool,
    /// With [`FetchIsolation::TxnCommitted`] only.
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
}

impl FetchDataInfo {
    fn empty(fetch_offset: LogOffsetMetadata, isolation: FetchIsolation) -> Self {
        let aborted_transactions = (isolation == FetchIsolation::TxnCommitted).then(Vec::new);
        FetchDataInfo { fetch_offset, records: None, first_entry_incomplete: false, aborted_transactions }
    }

    /// Bytes of records.
    pub fn len(&self) -> u32 {
        self.records.as_ref().map_or(0, |slice| slice.len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl UnifiedLog {
    /// At most `max_length` bytes from the batch that holds `start_offset`; with `min_one_message` at least that batch.
    pub fn read(
        &self,
        start_offset: i64,
        max_length: u32,
        isolation: FetchIsolation,
        min_one_message: bool,
    ) -> Result<FetchDataInfo, ReadError> {
        self.log_dir.check_online()?;
        // A segment may vanish between its choice and its opening; what is left then answers.
        for _ in 0..3 {
            match self.try_read(start_offset, max_length, isolation, min_one_message)? {
                Ok(info) => return Ok(info),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(self.read_failure(e)),
            }
        }
        Err(StorageError::Closed(self.topic_partition.to_string()).into())
    }

    pub(super) fn read_failure(&self, error: io::Error) -> ReadError {
        if error.kind() == io::ErrorKind::InvalidData {
            return ReadError::CorruptRecord(format!(
                "Found no record batch where one should be in {}: {error}",
                self.dir.path().display()
            ));
        }
        self.fail("Exception while reading from", error).into()
    }

    fn try_read(
        &self,
        start_offset: i64,
        max_length: u32,
        isolation: FetchIsolation,
        min_one_message: bool,
    ) -> Result<io::Result<FetchDataInfo>, ReadError> {
        let log_start = self.log_start_offset();
        if start_offset < log_start {
            return Err(ReadError::OffsetOutOfRange(format!(
                "Received request for offset {start_offset} for partition {}, but we only have log segments starting \
                 from offset: {log_start}.",
                self.topic_partition
            )));
        }
        let max = match isolation {
            FetchIsolation::LogEnd => self.log_end.load(),
            FetchIsolation::HighWatermark => self.high_watermark_metadata()?,
            FetchIsolation::TxnCommitted => self.last_stable_offset_metadata()?,
        };
        let end = self.log_end.load();
        let segments = self.segments.load_full();
        let floor =
            Self::floor_segment(&segments, start_offset).filter(|_| start_offset <= end.message_offset);
        let Some(floor) = floor else {
            return Err(ReadError::OffsetOutOfRange(format!(
                "Received request for offset {start_offset} for partition {}, but we only have log segments upto {}.",
                self.topic_partition, end.message_offset
            )));
        };
        if start_offset == max.message_offset {
            return Ok(Ok(FetchDataInfo::empty(max, isolation)));
        }
        if start_offset > max.message_offset {
            let at = self.convert_to_offset_metadata(start_offset)?;
            return Ok(Ok(FetchDataInfo::empty(at, isolation)));
        }
        for (i, segment) in segments.iter().enumerate().skip(floor) {
            let read = self.read_segment(segment, start_offset, max_length, &max, isolation, min_one_message);
            match read {
                Ok(None) => {}
                Ok(Some(mut info)) => {
                    if isolation == FetchIsolation::TxnCommitted && info.aborted_transactions.is_some() {
                        let found =
                            self.aborted_in(segments.get(i..).unwrap_or_default(), start_offset, &info);
                        match found {
                            Ok(aborted) => info.aborted_transactions = Some(aborted),
                            Err(e) => return Ok(Err(e)),
                        }
                    }
                    return Ok(Ok(info));
                }
                Err(e) if e.kind() == io::ErrorKind::InvalidData && self.check_tail_for_reader()? => {
                    return self.try_read(start_offset, max_length, isolation, min_one_message);
                }
                Err(e) => return Ok(Err(e)),
            }
        }
        if self.check_tail_for_reader()? {
            return self.try_read(start_offset, max_length, isolation, min_one_message);
        }
        // All records behind the offset were compacted away.
        Ok(Ok(FetchDataInfo {
            aborted_transactions: None,
            ..FetchDataInfo::empty(self.log_end.load(), isolation)
        }))
    }

    fn read_segment(
        &self,
        segment: &LogSegment,
        start_offset: i64,
        max_length: u32,
        max: &LogOffsetMetadata,
        isolation: FetchIsolation,
        min_one_message: bool,
    ) -> io::Result<Option<FetchDataInfo>> {
        let max_position = if segment.base_offset() < max.segment_base_offset {
            Some(segment.size())
        } else if segment.base_offset() == max.segment_base_offset && !max.is_offset_only() {
            u32::try_from(max.relative_position).ok().map(|position| position.min(segment.size()))
        } else {
            None
        };
        let Some(batch) = segment.translate_offset(self.fs(), start_offset)? else { return Ok(None) };
        let fetch_offset =
            LogOffsetMetadata::new(batch.header.base_offset, segment.base_offset(), batch.position);
        let allowed = if min_one_message { max_length.max(batch.size()) } else { max_length };
        let (Some(max_position), 1..) = (max_position, allowed) else {
            return Ok(Some(FetchDataInfo::empty(fetch_offset, isolation)));
        };
        // A limit from before the segment was cleaned may lie behind its end.
        let end = max_position.min(segment.size());
        let len = end.saturating_sub(batch.position).min(allowed);
        let records =
            FileSlice { file: segment.log_file(self.fs())?, position: u64::from(batch.position), len };
        Ok(Some(FetchDataInfo {
            records: Some(records).filter(|slice| slice.len > 0),
            first_entry_incomplete: allowed < batch.size(),
            ..FetchDataInfo::empty(fetch_offset, isolation)
        }))
    }

    fn aborted_in(
        &self,
        segments: &[std::sync::Arc<LogSegment>],
        start_offset: i64,
        info: &FetchDataInfo,
    ) -> io::Result<Vec<AbortedTransaction>> {
        let Some((first, higher)) = segments.split_first() else { return Ok(Vec::new()) };
        let position = u32::try_from(info.fetch_offset.relative_position).unwrap_or(0);
        let upper_bound = match first.fetch_upper_bound_offset(self.fs(), position, info.len())? {
            Some(offset) => offset,
            None => higher.first().map_or(self.log_end_offset(), |segment| segment.base_offset()),
        };
        let mut aborted = Vec::new();
        self.collect_from(segments, start_offset, upper_bound, &mut aborted)?;
        let transaction = |txn: &AbortedTxn| AbortedTransaction {
            producer_id: txn.producer_id,
            first_offset: txn.first_offset,
        };
        Ok(aborted.iter().map(transaction).collect())
    }

    fn collect_from(
        &self,
        segments: &[std::sync::Arc<LogSegment>],
        start_offset: i64,
        upper_bound: i64,
        out: &mut Vec<AbortedTxn>,
    ) -> io::Result<()> {
        for segment in segments {
            let collect = |index: &crate::txn_index::TransactionIndex, at: crate::index::At<'_>| {
                index.collect_aborted(at, start_offset, upper_bound, out)
            };
            if segment.with_txn_index(self.fs(), collect)? {
                break;
            }
        }
        Ok(())
    }

    /// Aborted transactions that touch `[start_offset, upper_bound)`.
    pub fn collect_aborted_transactions(
        &self,
        start_offset: i64,
        upper_bound: i64,
    ) -> Result<Vec<AbortedTxn>, ReadError> {
        // From the log's start: a transaction that began before `start_offset` may end behind it.
        self.aborted_transactions(self.log_start_offset(), start_offset, upper_bound)
            .map_err(|e| self.read_failure(e))
    }

    /// Those that end at or behind `least_end`, from the indexes of the segments from the one of `start_offset` on.
    pub(crate) fn aborted_transactions(
        &self,
        least_end: i64,
        start_offset: i64,
        upper_bound: i64,
    ) -> io::Result<Vec<AbortedTxn>> {
        let segments = self.segments.load_full();
        let mut aborted = Vec::new();
        if let Some(floor) = Self::floor_segment(&segments, start_offset) {
            let segments = segments.get(floor..).unwrap_or_default();
            self.collect_from(segments, least_end, upper_bound, &mut aborted)?;
        }
        Ok(aborted)
    }
}
