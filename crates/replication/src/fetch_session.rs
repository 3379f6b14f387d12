//! Incremental fetch sessions (KIP-227, topic ids per KIP-516).
//!
//! Owns: the sessions, their partitions in answer order, ids, epochs and eviction. Knows nothing of logs: the caller
//! reads the partitions that [`FetchContext`] names and asks it which results have to be in the answer.
//!
//! Invariants
//! * A session's epoch grows by one with each accepted incremental request and wraps from `i32::MAX` to 1.
//! * A partition that returned records moves to the end of its session's order, so that none starves under
//!   `fetch.max.bytes`.
//! * The cache never holds more than its slots; a privileged (follower's) session is only evicted when it is idle.
//!
//! Concurrency: the caller holds one lock per cache shard for the length of a call; no call does IO.

use protocol::{ErrorCode, Uuid};
use record::Time;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// "No session."
pub const INVALID_SESSION_ID: i32 = 0;
/// Epoch of a full fetch that wants a session.
pub const INITIAL_EPOCH: i32 = 0;
/// Epoch of a full fetch that wants none, or that ends one.
pub const FINAL_EPOCH: i32 = -1;

/// The epoch that follows `epoch` (wraps to 1: 0 and below have meanings of their own).
pub fn next_epoch(epoch: i32) -> i32 {
    match epoch {
        e if e < 0 => FINAL_EPOCH,
        i32::MAX => 1,
        e => e + 1,
    }
}

/// A partition as a fetch names it: by id from version 13, by name before. The name is empty for an unknown id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FetchPartition {
    pub topic_id: Uuid,
    pub topic: Arc<str>,
    pub partition: i32,
}

/// What a fetch asks of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionRequest {
    pub fetch_offset: i64,
    pub log_start_offset: i64,
    pub max_bytes: i32,
    /// −1 = not given.
    pub current_leader_epoch: i32,
    /// −1 = not given.
    pub last_fetched_epoch: i32,
}

/// What of a partition's result decides whether an incremental answer names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionSummary {
    pub error: ErrorCode,
    pub records_size: u64,
    pub high_watermark: i64,
    pub log_start_offset: i64,
    /// The answer carries something that must be said now: a preferred read replica or a diverging epoch.
    pub must_respond: bool,
}

#[derive(Debug)]
struct CachedPartition {
    order: u64,
    request: PartitionRequest,
    high_watermark: i64,
    local_log_start_offset: i64,
}

#[derive(Debug)]
struct Session {
    privileged: bool,
    uses_topic_ids: bool,
    created_at: Duration,
    last_used: Duration,
    epoch: i32,
    partitions: HashMap<FetchPartition, CachedPartition>,
    order: BTreeMap<u64, FetchPartition>,
    next_order: u64,
}

impl Session {
    fn put(&mut self, key: FetchPartition, request: PartitionRequest) {
        if let Some(cached) = self.partitions.get_mut(&key) {
            cached.request = request;
            return;
        }
        let order = self.next_order;
        self.next_order += 1;
        self.order.insert(order, key.clone());
        self.partitions
            .insert(key, CachedPartition { order, request, high_watermark: -1, local_log_start_offset: -1 });
    }

    fn forget(&mut self, key: &FetchPartition) {
        if let Some(cached) = self.partitions.remove(key) {
            self.order.remove(&cached.order);
        }
    }

    fn in_order(&self) -> Vec<(FetchPartition, PartitionRequest)> {
        self.order
            .values()
            .filter_map(|key| self.partitions.get(key).map(|cached| (key.clone(), cached.request)))
            .collect()
    }

    /// Records what is answered for a partition; true when an incremental answer has to name it.
    fn update(&mut self, key: &FetchPartition, summary: &PartitionSummary) -> bool {
        let Some(cached) = self.partitions.get_mut(key) else { return true };
        let mut respond = summary.records_size > 0 || summary.must_respond;
        if cached.high_watermark != summary.high_watermark {
            cached.high_watermark = summary.high_watermark;
            respond = true;
        }
        if cached.local_log_start_offset != summary.log_start_offset {
            cached.local_log_start_offset = summary.log_start_offset;
            respond = true;
        }
        if summary.error != ErrorCode::NONE {
            // Forget what was said so that the recovery is announced as well.
            cached.high_watermark = -1;
            respond = true;
        }
        if summary.records_size > 0 {
            let order = self.next_order;
            self.next_order += 1;
            self.order.remove(&cached.order);
            cached.order = order;
            self.order.insert(order, key.clone());
        }
        respond
    }
}

/// How a request relates to a session; decides which partitions are read and answered.
#[derive(Debug)]
pub enum FetchContext {
    /// No session: every partition of the request is answered.
    Sessionless { partitions: Vec<(FetchPartition, PartitionRequest)> },
    /// A full fetch that asks for a session.
    Full { partitions: Vec<(FetchPartition, PartitionRequest)>, privileged: bool, uses_topic_ids: bool },
    /// A fetch within a session.
    Incremental { session_id: i32, epoch: i32, partitions: Vec<(FetchPartition, PartitionRequest)> },
    /// The request's session cannot be used.
    Error(ErrorCode),
}

impl FetchContext {
    /// The partitions to read, in answer order.
    pub fn partitions(&self) -> &[(FetchPartition, PartitionRequest)] {
        match self {
            Self::Sessionless { partitions }
            | Self::Full { partitions, .. }
            | Self::Incremental { partitions, .. } => partitions,
            Self::Error(_) => &[],
        }
    }
}

/// A fetch request's session part.
#[derive(Debug, Clone)]
pub struct SessionRequest {
    pub session_id: i32,
    pub epoch: i32,
    /// Version 13 and above.
    pub uses_topic_ids: bool,
    /// A replica's fetch.
    pub privileged: bool,
    pub partitions: Vec<(FetchPartition, PartitionRequest)>,
    pub forgotten: Vec<FetchPartition>,
}

/// What the answer's head says and which partitions it names.
#[derive(Debug, PartialEq, Eq)]
pub struct SessionAnswer {
    pub error: ErrorCode,
    pub session_id: i32,
    /// One flag for each partition of [`FetchContext::partitions`], in order.
    pub include: Vec<bool>,
}

/// The sessions of a broker, or of one shard of it.
#[derive(Debug)]
pub struct FetchSessionCache {
    slots: usize,
    eviction: Duration,
    sessions: HashMap<i32, Session>,
}

impl FetchSessionCache {
    /// `slots` is `max.incremental.fetch.session.cache.slots`; sessions idle for `eviction` (2 minutes in Apache Kafka) may be evicted.
    pub fn new(slots: usize, eviction: Duration) -> Self {
        Self { slots, eviction, sessions: HashMap::new() }
    }

    /// Number of live sessions.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// True when no session lives.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Decides how a request is served and applies its changes to the session.
    pub fn handle_request(&mut self, now: Time, request: SessionRequest) -> FetchContext {
        let SessionRequest { session_id, epoch, uses_topic_ids, privileged, partitions, forgotten } = request;
        if epoch == INITIAL_EPOCH || epoch == FINAL_EPOCH {
            if session_id != INVALID_SESSION_ID {
                self.sessions.remove(&session_id);
            }
            return if epoch == FINAL_EPOCH {
                FetchContext::Sessionless { partitions }
            } else {
                FetchContext::Full { partitions, privileged, uses_topic_ids }
            };
        }
        let Some(session) = self.sessions.get_mut(&session_id) else {
            return FetchContext::Error(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        };
        if session.uses_topic_ids != uses_topic_ids {
            return FetchContext::Error(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        if session.epoch != epoch {
            return FetchContext::Error(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        for (key, request) in partitions {
            session.put(key, request);
        }
        for key in &forgotten {
            session.forget(key);
        }
        if session.partitions.is_empty() {
            self.sessions.remove(&session_id);
            return FetchContext::Sessionless { partitions: Vec::new() };
        }
        session.last_used = now.monotonic;
        session.epoch = next_epoch(epoch);
        FetchContext::Incremental { session_id, epoch: session.epoch, partitions: session.in_order() }
    }

    /// Decides which of the results are answered. `summaries` are in the order of [`FetchContext::partitions`];
    /// `new_id` yields random ids for a new session.
    pub fn handle_results(
        &mut self,
        now: Time,
        context: &FetchContext,
        summaries: &[PartitionSummary],
        new_id: &mut dyn FnMut() -> i32,
    ) -> SessionAnswer {
        let all = vec![true; summaries.len()];
        match context {
            FetchContext::Error(error) => {
                SessionAnswer { error: *error, session_id: INVALID_SESSION_ID, include: Vec::new() }
            }
            FetchContext::Sessionless { .. } => {
                SessionAnswer { error: ErrorCode::NONE, session_id: INVALID_SESSION_ID, include: all }
            }
            FetchContext::Full { partitions, privileged, uses_topic_ids } => {
                let session_id =
                    self.create(now, partitions, summaries, (*privileged, *uses_topic_ids), new_id);
                SessionAnswer { error: ErrorCode::NONE, session_id, include: all }
            }
            FetchContext::Incremental { session_id, epoch, partitions } => {
                match self.sessions.get_mut(session_id) {
                    Some(session) if session.epoch == *epoch => {
                        let include = partitions
                            .iter()
                            .zip(summaries)
                            .map(|((key, _), summary)| session.update(key, summary))
                            .collect();
                        SessionAnswer { error: ErrorCode::NONE, session_id: *session_id, include }
                    }
                    _ => SessionAnswer {
                        error: ErrorCode::INVALID_FETCH_SESSION_EPOCH,
                        session_id: INVALID_SESSION_ID,
                        include: Vec::new(),
                    },
                }
            }
        }
    }

    /// Remembers what a full answer says so that the next ones can name changes only; 0 when there is no room.
    fn create(
        &mut self,
        now: Time,
        partitions: &[(FetchPartition, PartitionRequest)],
        summaries: &[PartitionSummary],
        (privileged, uses_topic_ids): (bool, bool),
        new_id: &mut dyn FnMut() -> i32,
    ) -> i32 {
        if self.sessions.len() >= self.slots && !self.evict_for(now, privileged, partitions.len()) {
            return INVALID_SESSION_ID;
        }
        let session_id = loop {
            let id = new_id() & i32::MAX;
            if id != INVALID_SESSION_ID && !self.sessions.contains_key(&id) {
                break id;
            }
        };
        let mut session = Session {
            privileged,
            uses_topic_ids,
            created_at: now.monotonic,
            last_used: now.monotonic,
            epoch: next_epoch(INITIAL_EPOCH),
            partitions: HashMap::with_capacity(partitions.len()),
            order: BTreeMap::new(),
            next_order: 0,
        };
        for ((key, request), summary) in partitions.iter().zip(summaries) {
            session.put(key.clone(), *request);
            if let Some(cached) = session.partitions.get_mut(key) {
                let failed = summary.error != ErrorCode::NONE;
                cached.high_watermark = if failed { -1 } else { summary.high_watermark };
                cached.local_log_start_offset = summary.log_start_offset;
            }
        }
        self.sessions.insert(session_id, session);
        session_id
    }

    /// Makes room for a session of `size` partitions: the longest idle one goes when it is idle for long enough;
    /// otherwise a smaller, old, unprivileged one (any smaller one for a privileged newcomer).
    fn evict_for(&mut self, now: Time, privileged: bool, size: usize) -> bool {
        let idle = self
            .sessions
            .iter()
            .min_by_key(|(id, session)| (session.last_used, **id))
            .map(|(id, session)| (*id, session.last_used));
        if let Some((id, last_used)) = idle
            && now.monotonic.saturating_sub(last_used) > self.eviction
        {
            self.sessions.remove(&id);
            return true;
        }
        let eviction = self.eviction;
        let evictable = self
            .sessions
            .iter()
            .filter(|(_, session)| {
                let old = now.monotonic.saturating_sub(session.created_at) > eviction;
                if privileged { !session.privileged || old } else { !session.privileged && old }
            })
            .min_by_key(|(id, session)| (session.privileged, session.partitions.len(), **id))
            .map(|(id, session)| (*id, session.privileged, session.partitions.len()));
        match evictable {
            Some((id, was_privileged, its_size)) if its_size < size || (privileged && !was_privileged) => {
                self.sessions.remove(&id);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time { monotonic: Duration::from_secs(seconds), wall_ms: 0 }
    }

    fn key(topic: &str, partition: i32) -> FetchPartition {
        FetchPartition { topic_id: Uuid::ZERO, topic: topic.into(), partition }
    }

    fn ask(offset: i64) -> PartitionRequest {
        PartitionRequest {
            fetch_offset: offset,
            log_start_offset: -1,
            max_bytes: 100,
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
        }
    }

    fn got(records_size: u64, high_watermark: i64) -> PartitionSummary {
        PartitionSummary {
            error: ErrorCode::NONE,
            records_size,
            high_watermark,
            log_start_offset: 0,
            must_respond: false,
        }
    }

    fn request(
        session_id: i32,
        epoch: i32,
        partitions: &[(&str, i32, i64)],
        forgotten: &[(&str, i32)],
    ) -> SessionRequest {
        SessionRequest {
            session_id,
            epoch,
            uses_topic_ids: false,
            privileged: false,
            partitions: partitions
                .iter()
                .map(|(topic, partition, offset)| (key(topic, *partition), ask(*offset)))
                .collect(),
            forgotten: forgotten.iter().map(|(topic, partition)| key(topic, *partition)).collect(),
        }
    }

    fn open(cache: &mut FetchSessionCache, now: u64, id: i32, partitions: &[(&str, i32, i64)]) -> i32 {
        let context = cache.handle_request(at(now), request(0, INITIAL_EPOCH, partitions, &[]));
        let summaries = vec![got(0, 5); partitions.len()];
        cache.handle_results(at(now), &context, &summaries, &mut || id).session_id
    }

    #[test]
    fn an_incremental_answer_names_only_what_changed() {
        let mut cache = FetchSessionCache::new(10, Duration::from_secs(120));
        let id = open(&mut cache, 0, 7, &[("a", 0, 0), ("a", 1, 0), ("b", 0, 0)]);
        assert_eq!(id, 7);
        let context = cache.handle_request(at(1), request(7, 1, &[("a", 1, 3)], &[("b", 0)]));
        assert_eq!(context.partitions().len(), 2);
        assert_eq!(context.partitions()[1].1.fetch_offset, 3);
        let answer = cache.handle_results(at(1), &context, &[got(0, 5), got(10, 6)], &mut || 0);
        assert_eq!(
            answer,
            SessionAnswer { error: ErrorCode::NONE, session_id: 7, include: vec![false, true] }
        );
    }

    #[test]
    fn a_partition_with_records_moves_to_the_end() {
        let mut cache = FetchSessionCache::new(10, Duration::from_secs(120));
        open(&mut cache, 0, 7, &[("a", 0, 0), ("a", 1, 0)]);
        let context = cache.handle_request(at(1), request(7, 1, &[], &[]));
        cache.handle_results(at(1), &context, &[got(10, 9), got(0, 5)], &mut || 0);
        let context = cache.handle_request(at(2), request(7, 2, &[], &[]));
        let order: Vec<i32> = context.partitions().iter().map(|(key, _)| key.partition).collect();
        assert_eq!(order, vec![1, 0]);
    }

    #[test]
    fn wrong_ids_epochs_and_id_kinds_are_refused() {
        let mut cache = FetchSessionCache::new(10, Duration::from_secs(120));
        open(&mut cache, 0, 7, &[("a", 0, 0)]);
        let mut with_ids = request(7, 1, &[], &[]);
        with_ids.uses_topic_ids = true;
        for (request, expected) in [
            (request(8, 1, &[], &[]), ErrorCode::FETCH_SESSION_ID_NOT_FOUND),
            (request(7, 2, &[], &[]), ErrorCode::INVALID_FETCH_SESSION_EPOCH),
            (with_ids, ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR),
        ] {
            assert!(
                matches!(cache.handle_request(at(1), request), FetchContext::Error(error) if error == expected)
            );
        }
    }

    #[test]
    fn a_session_ends_by_the_final_epoch_and_when_it_has_no_partitions() {
        let mut cache = FetchSessionCache::new(10, Duration::from_secs(120));
        open(&mut cache, 0, 7, &[("a", 0, 0)]);
        cache.handle_request(at(1), request(7, FINAL_EPOCH, &[], &[]));
        assert!(cache.is_empty());
        open(&mut cache, 0, 8, &[("a", 0, 0)]);
        cache.handle_request(at(1), request(8, 1, &[], &[("a", 0)]));
        assert!(cache.is_empty());
    }

    #[test]
    fn an_error_is_answered_and_so_is_the_recovery_from_it() {
        let mut cache = FetchSessionCache::new(10, Duration::from_secs(120));
        open(&mut cache, 0, 7, &[("a", 0, 0)]);
        let failed = PartitionSummary { error: ErrorCode::NOT_LEADER_OR_FOLLOWER, ..got(0, 5) };
        for (epoch, summary, included) in
            [(1, got(0, 5), false), (2, failed, true), (3, got(0, 5), true), (4, got(0, 5), false)]
        {
            let context = cache.handle_request(at(1), request(7, epoch, &[], &[]));
            assert_eq!(
                cache.handle_results(at(1), &context, &[summary], &mut || 0).include,
                vec![included],
                "epoch {epoch}"
            );
        }
    }

    #[test]
    fn a_full_cache_evicts_idle_or_smaller_old_sessions_only() {
        let mut cache = FetchSessionCache::new(1, Duration::from_secs(120));
        assert_eq!(open(&mut cache, 0, 7, &[("a", 0, 0)]), 7);
        assert_eq!(open(&mut cache, 1, 8, &[("a", 0, 0), ("a", 1, 0)]), INVALID_SESSION_ID);
        assert_eq!(open(&mut cache, 200, 8, &[("a", 0, 0), ("a", 1, 0)]), 8);
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn epochs_wrap_to_one() {
        assert_eq!(next_epoch(i32::MAX), 1);
        assert_eq!(next_epoch(0), 1);
        assert_eq!(next_epoch(-1), -1);
    }
}
