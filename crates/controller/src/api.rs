//! What goes in and out of the controller besides Kafka's own messages: context, access, errors, results.
//!
//! Invariant: a result is a value; nothing in it refers to a channel, a clock or a source of randomness.

use std::fmt;

use metadata::{ConfigResource, VersionedRecord};
use protocol::{ErrorCode, Uuid};

/// How many records one request may cause (KAFKA-14996): more would not fit a batch of the metadata log.
pub const MAX_RECORDS_PER_USER_OP: usize = 10_000;
/// How many records go into one batch of the metadata log.
pub const MAX_RECORDS_PER_BATCH: usize = 10_000;

/// An error with the message that its response carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// The code.
    pub code: ErrorCode,
    /// The message; `None` where the reference sends null.
    pub message: Option<String>,
}

impl ApiError {
    /// No error.
    pub const NONE: ApiError = ApiError { code: ErrorCode::NONE, message: None };

    /// An error with a message of its own. One that only repeats the code's text is left out, as the reference does.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let message = Some(message.into()).filter(|m| m != code.message());
        Self { code, message }
    }

    /// An error with the text of its code.
    pub fn of(code: ErrorCode) -> Self {
        Self { code, message: Some(code.message().to_owned()) }
    }

    /// An error without a message.
    pub fn silent(code: ErrorCode) -> Self {
        Self { code, message: None }
    }

    /// Whether this is an error at all.
    pub fn is_failure(&self) -> bool {
        self.code != ErrorCode::NONE
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message.as_deref().unwrap_or(self.code.message()))
    }
}

impl std::error::Error for ApiError {}

/// A request would cause more than [`MAX_RECORDS_PER_USER_OP`] records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyRecords;

impl From<TooManyRecords> for ApiError {
    fn from(_: TooManyRecords) -> Self {
        ApiError::new(ErrorCode::POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    }
}

/// Records of one request, up to [`MAX_RECORDS_PER_USER_OP`].
#[derive(Debug, Default)]
pub(crate) struct BoundedRecords(Vec<VersionedRecord>);

impl BoundedRecords {
    pub(crate) fn push(&mut self, record: VersionedRecord) -> Result<(), TooManyRecords> {
        if self.0.len() >= MAX_RECORDS_PER_USER_OP {
            return Err(TooManyRecords);
        }
        self.0.push(record);
        Ok(())
    }

    pub(crate) fn extend(&mut self, records: Vec<VersionedRecord>) -> Result<(), TooManyRecords> {
        if self.0.len() + records.len() > MAX_RECORDS_PER_USER_OP {
            return Err(TooManyRecords);
        }
        self.0.extend(records);
        Ok(())
    }

    pub(crate) fn as_slice(&self) -> &[VersionedRecord] {
        &self.0
    }

    pub(crate) fn into_vec(self) -> Vec<VersionedRecord> {
        self.0
    }
}

/// What somebody wants to do, for [`AccessCheck`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access<'a> {
    /// Create any topic (`CREATE` on the cluster).
    CreateAnyTopic,
    /// Create this topic.
    CreateTopic(&'a str),
    /// Be told this topic's configuration.
    DescribeTopicConfigs(&'a str),
    /// Know that this topic exists.
    DescribeTopic(&'a str),
    /// Delete any topic (`DELETE` on the cluster).
    DeleteAnyTopic,
    /// Delete this topic.
    DeleteTopic(&'a str),
    /// Add partitions to this topic.
    AlterTopic(&'a str),
    /// Change the configuration of this resource.
    AlterConfigs(&'a ConfigResource),
}

/// Decides who may do what within a request. Access to whole requests (`CLUSTER_ACTION`, `ALTER` on the cluster)
/// is checked before the controller is asked.
pub trait AccessCheck {
    /// Whether the request's principal may.
    fn allowed(&self, access: Access<'_>) -> bool;
}

/// Lets everybody do everything: no authorizer is configured.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllowAll;

impl AccessCheck for AllowAll {
    fn allowed(&self, _: Access<'_>) -> bool {
        true
    }
}

/// What a request brings besides its message.
#[derive(Clone, Copy)]
pub struct RequestContext<'a> {
    /// The version of the request.
    pub api_version: i16,
    /// Whether a broker forwarded it (an Envelope).
    pub forwarded: bool,
    /// Fresh randomness for ids and placement.
    pub seed: [u64; 4],
    /// What the request's principal may do.
    pub access: &'a dyn AccessCheck,
}

impl<'a> RequestContext<'a> {
    /// A context in which everything is allowed.
    pub fn allow_all(api_version: i16, seed: [u64; 4]) -> RequestContext<'static> {
        RequestContext { api_version, forwarded: true, seed, access: &AllowAll }
    }
}

/// What must happen after the records were appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum AfterAppend {
    #[default]
    Nothing,
    /// The broker may stop once all others have read this far.
    ControlledShutdown { broker_id: i32 },
    /// Periodic work may begin.
    CompleteActivation,
}

/// A decision: records to append, and the response to send once they are committed.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "records must be appended and replayed"]
pub struct ControllerResult<T> {
    /// What to append to the metadata log, in order.
    pub records: Vec<VersionedRecord>,
    /// Whether all records must stand in one batch.
    pub atomic: bool,
    /// The response.
    pub response: T,
    pub(crate) after: AfterAppend,
}

impl<T> ControllerResult<T> {
    /// Records that may be spread over batches.
    pub(crate) fn of(records: Vec<VersionedRecord>, response: T) -> Self {
        Self { records, atomic: false, response, after: AfterAppend::Nothing }
    }

    /// Records that must stand in one batch.
    pub(crate) fn atomic_of(records: Vec<VersionedRecord>, response: T) -> Self {
        Self { records, atomic: true, response, after: AfterAppend::Nothing }
    }

    /// A response without records.
    pub fn just(response: T) -> Self {
        Self::of(Vec::new(), response)
    }

    /// The same decision with another response.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> ControllerResult<U> {
        ControllerResult {
            records: self.records,
            atomic: self.atomic,
            response: f(self.response),
            after: self.after,
        }
    }

    pub(crate) fn without_records(self) -> Self {
        Self { records: Vec::new(), atomic: false, ..self }
    }

    /// The batches in which to append the records.
    pub fn batches(&self) -> impl Iterator<Item = &[VersionedRecord]> {
        self.records.chunks(MAX_RECORDS_PER_BATCH)
    }
}

/// Deterministic randomness from a request's seed (xoshiro256++).
#[derive(Debug, Clone)]
pub struct SeededRandom {
    state: [u64; 4],
}

impl SeededRandom {
    /// Starts at a seed; all zeros would stay zero and are replaced.
    pub fn new(seed: [u64; 4]) -> Self {
        let state = if seed == [0; 4] { [0x9e37_79b9_7f4a_7c15, 1, 2, 3] } else { seed };
        Self { state }
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let c2 = c ^ a;
        let d2 = d ^ b;
        self.state = [a ^ d2, b ^ c2, c2 ^ (b << 17), d2.rotate_left(45)];
        result
    }

    /// A number below `bound`, 0 when there is none.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 {
            return 0;
        }
        let wide = u128::from(self.next_u64()) * (bound as u128);
        (wide >> 64) as usize
    }

    /// Shuffles a list.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i + 1));
        }
    }

    /// A random id as the reference makes them.
    pub fn uuid(&mut self) -> Uuid {
        loop {
            let (high, low) = (u128::from(self.next_u64()), u128::from(self.next_u64()));
            if let Some(id) = Uuid::from_random(((high << 64) | low).to_be_bytes()) {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_below_a_bound_reach_every_value_and_stay_below() {
        let mut random = SeededRandom::new([1, 2, 3, 4]);
        let mut seen = [0u32; 7];
        for _ in 0..7_000 {
            seen[random.below(7)] += 1;
        }
        assert!(seen.iter().all(|n| (800..1_200).contains(n)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn a_message_that_repeats_its_code_is_left_out() {
        let code = ErrorCode::UNKNOWN_TOPIC_ID;
        assert_eq!(ApiError::new(code, code.message()), ApiError::silent(code));
        assert_eq!(ApiError::of(code).message.as_deref(), Some(code.message()));
    }
}
