//! Offsets by timestamp, and the special timestamps of ListOffsets.
//!
//! Owns: [`UnifiedLog::fetch_offset_by_timestamp`]. Invariants: as 4.4.0 answers for a log without tiers.
//! Concurrency: as reading. Crash: nothing is written.

use std::io;

use record::{MAGIC_VALUE_V0, RecordBatch, RecordError};

use super::UnifiedLog;
use crate::error::{ReadError, invalid_data};
use crate::segment::{BatchPosition, FileSlice, LogSegment};

pub const LATEST_TIMESTAMP: i64 = -1;
pub const EARLIEST_TIMESTAMP: i64 = -2;
/// KIP-734
pub const MAX_TIMESTAMP: i64 = -3;
/// KIP-405
pub const EARLIEST_LOCAL_TIMESTAMP: i64 = -4;
/// KIP-1005
pub const LATEST_TIERED_TIMESTAMP: i64 = -5;
/// KIP-1023
pub const EARLIEST_PENDING_UPLOAD_TIMESTAMP: i64 = -6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampAndOffset {
    pub timestamp: i64,
    pub offset: i64,
    pub leader_epoch: Option<i32>,
}

impl UnifiedLog {
    /// The first offset whose timestamp is at least `timestamp`, or what the special (negative) values mean.
    /// `None`: there is no such record.
    pub fn fetch_offset_by_timestamp(&self, timestamp: i64) -> Result<Option<TimestampAndOffset>, ReadError> {
        self.log_dir.check_online()?;
        let answer = |offset, leader_epoch| TimestampAndOffset { timestamp: -1, offset, leader_epoch };
        match timestamp {
            EARLIEST_TIMESTAMP | EARLIEST_LOCAL_TIMESTAMP => {
                let start = self.log_start_offset();
                let earliest = self.epochs.lock().earliest();
                let epoch = earliest.filter(|entry| entry.start_offset <= start).map(|entry| entry.epoch);
                Ok(Some(answer(start, epoch)))
            }
            LATEST_TIMESTAMP => Ok(Some(answer(self.log_end_offset(), self.latest_epoch()))),
            LATEST_TIERED_TIMESTAMP | EARLIEST_PENDING_UPLOAD_TIMESTAMP => Ok(Some(answer(-1, Some(-1)))),
            MAX_TIMESTAMP => self.look_up(|| self.offset_of_max_timestamp()),
            _ => self.look_up(|| self.search_timestamp(timestamp)),
        }
    }

    /// What stops a search may be bytes that somebody put behind the log's end while the node was down.
    fn look_up(
        &self,
        search: impl Fn() -> io::Result<Option<TimestampAndOffset>>,
    ) -> Result<Option<TimestampAndOffset>, ReadError> {
        let found = match search() {
            Err(e) if e.kind() == io::ErrorKind::InvalidData && self.check_tail_for_reader()? => search(),
            found => found,
        };
        found.map_err(|e| self.read_failure(e))
    }

    fn search_timestamp(&self, timestamp: i64) -> io::Result<Option<TimestampAndOffset>> {
        let starting_offset = self.log_start_offset();
        for segment in self.segments.load_full().iter() {
            // The one record that is young enough may lie below the log's start: as in 4.4.0, no later segment is
            // asked then.
            if segment.largest_timestamp(self.fs())? >= timestamp {
                return self.search_segment(segment, timestamp, starting_offset);
            }
        }
        Ok(None)
    }

    fn search_segment(
        &self,
        segment: &LogSegment,
        timestamp: i64,
        starting_offset: i64,
    ) -> io::Result<Option<TimestampAndOffset>> {
        let mut found = Ok(None);
        segment.scan_for_timestamp(self.fs(), timestamp, starting_offset, |batch| {
            if batch.header.max_timestamp < timestamp {
                return Self::NEXT;
            }
            found =
                self.first_record(segment, &batch, |at, offset| at >= timestamp && offset >= starting_offset);
            if matches!(found, Ok(None)) { Self::NEXT } else { Self::STOP }
        })?;
        found
    }

    fn offset_of_max_timestamp(&self) -> io::Result<Option<TimestampAndOffset>> {
        let mut latest: Option<(i64, i64, std::sync::Arc<LogSegment>)> = None;
        for segment in self.segments.load_full().iter() {
            let max = segment.max_timestamp_so_far(self.fs())?;
            if latest.as_ref().is_none_or(|(timestamp, _, _)| max.timestamp > *timestamp) {
                latest = Some((max.timestamp, max.offset, segment.clone()));
            }
        }
        let Some((timestamp, offset, segment)) = latest else { return Ok(None) };
        let mut found = Ok(None);
        segment.scan_for_offset(self.fs(), offset, |batch| {
            if batch.header.max_timestamp != timestamp {
                return Self::NEXT;
            }
            if batch.header.magic > MAGIC_VALUE_V0 {
                found = self.first_record(&segment, &batch, |at, _| at == timestamp);
            }
            Self::STOP
        })?;
        found
    }

    /// The first record of a batch that `matches(timestamp, offset)`.
    fn first_record(
        &self,
        segment: &LogSegment,
        batch: &BatchPosition,
        matches: impl Fn(i64, i64) -> bool,
    ) -> io::Result<Option<TimestampAndOffset>> {
        let leader_epoch = Some(batch.header.partition_leader_epoch).filter(|epoch| *epoch >= 0);
        let position = u64::from(batch.position);
        let bytes = FileSlice { file: segment.log_file(self.fs())?, position, len: batch.size() }.read()?;
        let unreadable = |e: RecordError| invalid_data(e.to_string());
        let Some(batch) = RecordBatch::first(&bytes).map_err(unreadable)? else { return Ok(None) };
        self.context.with_buffers(|buffers| {
            for record in batch.records(&*self.context.codecs, buffers).map_err(unreadable)? {
                let record = record.map_err(unreadable)?;
                if matches(record.timestamp, record.offset) {
                    let (timestamp, offset) = (record.timestamp, record.offset);
                    return Ok(Some(TimestampAndOffset { timestamp, offset, leader_epoch }));
                }
            }
            Ok(None)
        })
    }
}
