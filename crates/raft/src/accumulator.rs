//! Gathers what the leader is asked to write into record batches, and says when they are due.
//!
//! Owns the records that were accepted under an epoch but not yet appended; a crash or a loss of leadership drops them,
//! which is allowed because none of them was acknowledged. Invariants: offsets are handed out without gaps; the records
//! of one call are in one batch; a batch is never larger than [`MAX_BATCH_SIZE_BYTES`]; control records have batches of
//! their own.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use record::{ControlRecordType, Time};

use crate::batches;

/// Largest batch of the metadata log, a limit that readers of the reference share.
pub const MAX_BATCH_SIZE_BYTES: usize = 8 << 20;

/// Completed batches that may wait for being appended; more means that nobody polls the node.
const MAX_NUMBER_OF_BATCHES: usize = 10;

/// A batch that is ready to be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedBatch {
    pub base_offset: i64,
    pub next_offset: i64,
    pub bytes: Bytes,
}

/// Why records were not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProposeError {
    /// This replica does not lead the epoch; ask the leader.
    NotLeader,
    /// There were no records.
    NoRecords,
    /// The records do not fit into one batch; propose them in parts.
    TooLarge { size: usize, limit: usize },
    /// Too many batches wait; poll the node before proposing more.
    TooManyBatches,
}

impl fmt::Display for ProposeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeader => f.write_str("Append failed because the replica is not the current leader"),
            Self::NoRecords => f.write_str("Append failed because there are no records"),
            Self::TooLarge { size, limit } => {
                write!(
                    f,
                    "The total record(s) size of {size} exceeds the maximum allowed batch size of {limit}"
                )
            }
            Self::TooManyBatches => {
                write!(
                    f,
                    "Attempting to append records when the number of batches reached {MAX_NUMBER_OF_BATCHES}"
                )
            }
        }
    }
}

impl std::error::Error for ProposeError {}

#[derive(Clone, Debug)]
struct CurrentBatch {
    base_offset: i64,
    append_time_ms: i64,
    records: Vec<Bytes>,
    size: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct BatchAccumulator {
    epoch: i32,
    next_offset: i64,
    linger: Duration,
    current: Option<CurrentBatch>,
    completed: VecDeque<CompletedBatch>,
    linger_deadline: Option<Duration>,
}

impl BatchAccumulator {
    pub(crate) fn new(epoch: i32, base_offset: i64, linger: Duration) -> Self {
        Self {
            epoch,
            next_offset: base_offset,
            linger,
            current: None,
            completed: VecDeque::new(),
            linger_deadline: None,
        }
    }

    /// Offset that the next accepted record gets.
    pub(crate) fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// Accepts the records of one atomic change; returns the offset of the last.
    pub(crate) fn append(&mut self, now: Time, records: Vec<Bytes>) -> Result<i64, ProposeError> {
        if records.is_empty() {
            return Err(ProposeError::NoRecords);
        }
        if self.completed.len() >= MAX_NUMBER_OF_BATCHES {
            return Err(ProposeError::TooManyBatches);
        }
        let present = self.current.as_ref().map_or(0, |batch| batch.records.len());
        let needed = batches::records_size(present, &records);
        let used = self.current.as_ref().map_or(batches::OVERHEAD, |batch| batch.size);
        if used + needed > MAX_BATCH_SIZE_BYTES {
            let alone = batches::OVERHEAD + batches::records_size(0, &records);
            if alone > MAX_BATCH_SIZE_BYTES {
                return Err(ProposeError::TooLarge { size: alone, limit: MAX_BATCH_SIZE_BYTES });
            }
            self.complete_current();
        }
        let batch = self.current.get_or_insert_with(|| CurrentBatch {
            base_offset: self.next_offset,
            append_time_ms: now.wall_ms,
            records: Vec::new(),
            size: batches::OVERHEAD,
        });
        batch.size += batches::records_size(batch.records.len(), &records);
        self.next_offset += i64::try_from(records.len()).unwrap_or(i64::MAX);
        batch.records.extend(records);
        self.linger_deadline.get_or_insert(now.monotonic + self.linger);
        Ok(self.next_offset - 1)
    }

    /// Writes control records as a batch of their own, after what was accepted before.
    pub(crate) fn append_control(&mut self, now: Time, records: &[(ControlRecordType, Bytes)]) {
        self.complete_current();
        let bytes = batches::control_batch(self.next_offset, self.epoch, now.wall_ms, records);
        let base_offset = self.next_offset;
        self.next_offset += i64::try_from(records.len()).unwrap_or(i64::MAX);
        self.completed.push_back(CompletedBatch { base_offset, next_offset: self.next_offset, bytes });
    }

    /// When the batches are due: at once when one is complete, else when the oldest record has lingered.
    pub(crate) fn drain_at(&self) -> Option<Duration> {
        if self.completed.is_empty() { self.linger_deadline } else { Some(Duration::ZERO) }
    }

    pub(crate) fn drain(&mut self) -> Vec<CompletedBatch> {
        self.complete_current();
        self.completed.drain(..).collect()
    }

    fn complete_current(&mut self) {
        self.linger_deadline = None;
        let Some(batch) = self.current.take() else { return };
        let bytes = batches::data_batch(batch.base_offset, self.epoch, batch.append_time_ms, &batch.records);
        debug_assert_eq!(bytes.len(), batch.size, "the estimated size of a batch is its size");
        let next_offset = batch.base_offset + i64::try_from(batch.records.len()).unwrap_or(i64::MAX);
        self.completed.push_back(CompletedBatch { base_offset: batch.base_offset, next_offset, bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn at(ms: u64) -> Time {
        Time::new(MS(ms), 1000 + i64::try_from(ms).unwrap_or_default())
    }

    #[test]
    fn records_linger_and_share_a_batch() {
        let mut accumulator = BatchAccumulator::new(3, 10, MS(25));
        assert_eq!(accumulator.append(at(0), vec!["a".into(), "b".into()]), Ok(11));
        assert_eq!(accumulator.append(at(20), vec!["c".into()]), Ok(12));
        assert_eq!(accumulator.drain_at(), Some(MS(25)));
        let batches = accumulator.drain();
        assert_eq!(batches.iter().map(|b| (b.base_offset, b.next_offset)).collect::<Vec<_>>(), [(10, 13)]);
        assert_eq!(accumulator.drain_at(), None);
        assert_eq!(accumulator.append(at(30), vec!["d".into()]), Ok(13));
        assert_eq!(accumulator.drain_at(), Some(MS(55)));
    }

    #[test]
    fn control_records_follow_in_a_batch_of_their_own_and_are_due_at_once() {
        let mut accumulator = BatchAccumulator::new(3, 0, MS(25));
        accumulator.append(at(0), vec!["a".into()]).unwrap();
        accumulator.append_control(at(1), &[(ControlRecordType::LeaderChange, Bytes::from_static(b"x"))]);
        assert_eq!(accumulator.drain_at(), Some(Duration::ZERO));
        let batches = accumulator.drain();
        assert_eq!(
            batches.iter().map(|b| (b.base_offset, b.next_offset)).collect::<Vec<_>>(),
            [(0, 1), (1, 2)]
        );
    }

    #[test]
    fn a_change_that_does_not_fit_goes_into_the_next_batch_and_one_that_never_fits_is_refused() {
        let big = Bytes::from(vec![1; 5 << 20]);
        let mut accumulator = BatchAccumulator::new(3, 0, MS(25));
        accumulator.append(at(0), vec![big.clone()]).unwrap();
        accumulator.append(at(0), vec![big.clone()]).unwrap();
        assert_eq!(accumulator.drain().len(), 2);
        assert!(matches!(
            accumulator.append(at(0), vec![big.clone(), big]),
            Err(ProposeError::TooLarge { .. })
        ));
        assert_eq!(accumulator.append(at(0), vec![]), Err(ProposeError::NoRecords));
    }
}
