//! What a coordinator must provide to run on this runtime.
//!
//! Invariant: the replicated part of a shard changes in [`CoordinatorShard::replay`] and
//! [`CoordinatorShard::replay_end_transaction_marker`] only, so that a load of the log yields the state that a live
//! shard has. What is not replicated (members that wait for an answer, timers) is the shard's own affair.

use std::fmt;

use bytes::Bytes;
use protocol::ErrorCode;
use record::Time;

use crate::timer::CoordinatorTimer;

/// The timers of the shard `S`.
pub type Timers<S> = CoordinatorTimer<<S as CoordinatorShard>::TimerKey, <S as CoordinatorShard>::Timeout>;

/// Key and value as they stand in the log; no value is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRecord {
    pub key: Bytes,
    pub value: Option<Bytes>,
}

/// The transactional producer on whose behalf records are written.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Producer {
    pub id: i64,
    pub epoch: i16,
}

/// How a transaction ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TransactionResult {
    Commit,
    Abort,
}

/// A record in the log that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeRecordError {
    /// Written by a newer version: it is skipped, as in the reference (KIP-915).
    UnknownRecordType(i16),
    /// Garbled: loading fails.
    Malformed(String),
}

impl fmt::Display for DecodeRecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownRecordType(id) => write!(f, "unknown record type {id}"),
            Self::Malformed(why) => write!(f, "malformed record: {why}"),
        }
    }
}

impl std::error::Error for DecodeRecordError {}

/// A record that contradicts the state it is applied to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayError(pub String);

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReplayError {}

/// What a write operation decided.
#[derive(Debug)]
pub struct CoordinatorResult<R, D> {
    /// Written in this order.
    pub records: Vec<R>,
    /// What is to be done when they are committed, or could not be written.
    pub deferred: D,
    /// Whether the records are applied by `replay`. The classic group protocol keeps its state in memory ahead of
    /// its records and says no.
    pub replay_records: bool,
    /// Whether all records must be in one batch.
    pub is_atomic: bool,
    /// Set when the records belong to a transaction; they then have a batch of their own.
    pub producer: Option<Producer>,
}

impl<R, D> CoordinatorResult<R, D> {
    /// Records that are replayed and written in one batch.
    pub fn new(records: Vec<R>, deferred: D) -> Self {
        Self { records, deferred, replay_records: true, is_atomic: true, producer: None }
    }

    /// Records that describe a state which the shard has entered already.
    pub fn without_replay(records: Vec<R>, deferred: D) -> Self {
        Self { replay_records: false, ..Self::new(records, deferred) }
    }

    /// Records that may be spread over several batches.
    pub fn non_atomic(records: Vec<R>, deferred: D) -> Self {
        Self { is_atomic: false, ..Self::new(records, deferred) }
    }
}

/// The state machine of one coordinator partition.
pub trait CoordinatorShard: Sized {
    type Record;
    /// A parked continuation: what a committed or failed operation still has to do. Data, never a closure.
    type Deferred;
    type TimerKey: Ord + Clone;
    type Timeout;

    /// The bytes of a record. The error is what the operation's client gets.
    fn encode(record: &Self::Record) -> Result<RawRecord, ErrorCode>;
    fn decode(record: RawRecord) -> Result<Self::Record, DecodeRecordError>;

    /// Applies the record at `offset`. Producer id and epoch are -1 outside of transactions.
    fn replay(
        &mut self,
        now: Time,
        offset: i64,
        producer: Option<Producer>,
        record: Self::Record,
    ) -> Result<(), ReplayError>;
    fn replay_end_transaction_marker(
        &mut self,
        producer: Producer,
        result: TransactionResult,
    ) -> Result<(), ReplayError>;

    /// Remembers the state as that of `offset`, the offset after the last record applied.
    fn create_snapshot(&mut self, offset: i64);
    /// Returns to the snapshot `offset`, which exists and is not older than the last committed one.
    fn revert_to(&mut self, offset: i64);
    /// Makes the snapshot `offset` the committed state; older ones will not be asked for again.
    fn commit_up_to(&mut self, offset: i64);

    /// The shard has been loaded and serves from now on.
    fn handle_loaded(&mut self, now: Time, timers: &mut Timers<Self>);
    /// The shard stops serving; whoever waits is to be answered.
    fn handle_unloaded(&mut self, now: Time);
    /// The timer `key` fired.
    fn handle_timer(
        &mut self,
        now: Time,
        timers: &mut Timers<Self>,
        key: Self::TimerKey,
        timeout: Self::Timeout,
    ) -> CoordinatorResult<Self::Record, Self::Deferred>;
    /// An operation was committed, or failed with an error of the log (not yet mapped for the client).
    fn complete(
        &mut self,
        now: Time,
        timers: &mut Timers<Self>,
        deferred: Self::Deferred,
        result: Result<(), ErrorCode>,
    );
}
