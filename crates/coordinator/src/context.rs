//! One coordinator partition: loading, operations, batching, and answers parked until their records are committed.
//!
//! States: `Initial` (never loaded, or unloaded) → `Loading` → `Active` → `Failed` (load failed, or the log gave other
//! offsets than expected) or `Initial`. Only `Active` serves; `Loading` answers COORDINATOR_LOAD_IN_PROGRESS,
//! everything else NOT_COORDINATOR.
//!
//! Invariants: at most one batch is in the hands of the log; all batches behind it were decided on a state that
//! includes it, so that they fail with it. `last_committed` ≤ `last_written` ≤ the state's offset; a snapshot exists at
//! `last_committed` and at the end of every batch. An operation's continuation runs exactly once.
//! Concurrency: none; the user's one mutex per context is the only one.
//! A crash loses what was not committed, and whose requests were not answered either.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use protocol::ErrorCode;
use record::Time;

use crate::append::{AppendId, Batch, PendingAppend, size_upper_bound};
use crate::shard::{CoordinatorResult, CoordinatorShard, Producer, RawRecord, Timers, TransactionResult};

/// Settings of a context. `Default` has 4.4.0's defaults of the group coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorOptions {
    /// How long an operation may wait for its commit (`offsets.commit.timeout.ms`).
    pub write_timeout: Duration,
    /// How long records may wait for company (`group.coordinator.append.linger.ms`); `None` (-1) hands them out
    /// whenever the user asks, which batches what came in meanwhile.
    pub append_linger: Option<Duration>,
    /// Largest batch in bytes before compression (`max.message.bytes` of the topic).
    pub max_batch_size: usize,
}

impl Default for CoordinatorOptions {
    fn default() -> Self {
        Self { write_timeout: Duration::from_secs(5), append_linger: None, max_batch_size: 1_048_588 }
    }
}

/// The name of a context's state, for metrics and logs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorState {
    Initial,
    Loading,
    Active,
    Failed,
}

/// Counters of a context since it was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeMetrics {
    pub loads: u64,
    pub failed_loads: u64,
    pub loaded_records: u64,
    pub loaded_bytes: u64,
    pub writes: u64,
    pub failed_writes: u64,
    pub timed_out_writes: u64,
    pub appends: u64,
    pub appended_records: u64,
}

pub(crate) enum State<S: CoordinatorShard> {
    Initial,
    Loading(Loading<S>),
    Active(Box<Active<S>>),
    Failed,
}

pub(crate) struct Loading<S> {
    pub(crate) shard: S,
    pub(crate) last_written: i64,
    pub(crate) last_committed: i64,
}

pub(crate) struct Active<S: CoordinatorShard> {
    pub(crate) shard: S,
    pub(crate) timers: Timers<S>,
    /// The offset after the last record that the log has.
    last_written: i64,
    last_committed: i64,
    high_watermark: i64,
    in_flight: Option<(AppendId, Batch)>,
    sealed: VecDeque<Batch>,
    current: Option<Batch>,
    parked: BTreeMap<u64, S::Deferred>,
    /// Operations whose batch is in the log, by the offset that commits them; offsets never decrease.
    awaiting_commit: VecDeque<(i64, Vec<u64>)>,
    /// All operations wait equally long, so that this queue is in order; completed ones are skipped.
    timeouts: VecDeque<(Duration, u64)>,
    next_event: u64,
}

/// One partition of a coordinator's topic.
pub struct CoordinatorContext<S: CoordinatorShard> {
    pub(crate) options: CoordinatorOptions,
    pub(crate) epoch: i32,
    pub(crate) state: State<S>,
    pub(crate) metrics: RuntimeMetrics,
    next_append: AppendId,
    /// The shard that stopped serving, with what it still has to say.
    stopped: Option<S>,
    /// The log contradicted us; the user must load again.
    pub(crate) reload: bool,
}

impl<S: CoordinatorShard> CoordinatorContext<S> {
    pub fn new(options: CoordinatorOptions) -> Self {
        Self {
            options,
            epoch: -1,
            state: State::Initial,
            metrics: RuntimeMetrics::default(),
            next_append: 0,
            stopped: None,
            reload: false,
        }
    }

    pub fn state(&self) -> CoordinatorState {
        match self.state {
            State::Initial => CoordinatorState::Initial,
            State::Loading(_) => CoordinatorState::Loading,
            State::Active(_) => CoordinatorState::Active,
            State::Failed => CoordinatorState::Failed,
        }
    }

    /// The leader epoch of the partition that was loaded last, -1 before.
    pub fn epoch(&self) -> i32 {
        self.epoch
    }

    pub fn metrics(&self) -> &RuntimeMetrics {
        &self.metrics
    }

    /// The shard, when it serves.
    pub fn shard(&self) -> Result<&S, ErrorCode> {
        match &self.state {
            State::Active(active) => Ok(&active.shard),
            other => Err(inactive_error(other)),
        }
    }

    /// The shard and its timers, for decisions. Replicated state must be changed through [`Self::append`] only.
    pub fn shard_mut(&mut self) -> Result<(&mut S, &mut Timers<S>), ErrorCode> {
        match &mut self.state {
            State::Active(active) => Ok((&mut active.shard, &mut active.timers)),
            other => Err(inactive_error(other)),
        }
    }

    /// The offset up to which readers may see the shard's state.
    pub fn last_committed_offset(&self) -> Option<i64> {
        match &self.state {
            State::Active(active) => Some(active.last_committed),
            _ => None,
        }
    }

    /// The offset that the next record gets.
    pub fn next_offset(&self) -> Option<i64> {
        match &self.state {
            State::Active(active) => Some(active.next_offset()),
            _ => None,
        }
    }

    /// Takes what an operation on [`Self::shard_mut`] decided. An operation without records waits for those before it:
    /// it may have seen their effects. Gives the continuation back when the context does not serve.
    pub fn append(
        &mut self,
        now: Time,
        result: CoordinatorResult<S::Record, S::Deferred>,
    ) -> Result<(), (ErrorCode, S::Deferred)> {
        let State::Active(active) = &mut self.state else {
            return Err((inactive_error(&self.state), result.deferred));
        };
        self.metrics.writes += 1;
        active.append(&self.options, &mut self.metrics, now, result);
        Ok(())
    }

    /// Ends the transaction of `producer` on this partition: the marker is applied and written.
    pub fn complete_transaction(
        &mut self,
        now: Time,
        producer: Producer,
        coordinator_epoch: i32,
        result: TransactionResult,
        deferred: S::Deferred,
    ) -> Result<(), (ErrorCode, S::Deferred)> {
        let State::Active(active) = &mut self.state else {
            return Err((inactive_error(&self.state), deferred));
        };
        self.metrics.writes += 1;
        active.seal_current();
        let base_offset = active.next_offset();
        if active.shard.replay_end_transaction_marker(producer, result).is_err() {
            active.shard.revert_to(base_offset);
            self.metrics.failed_writes += 1;
            active.shard.complete(now, &mut active.timers, deferred, Err(ErrorCode::UNKNOWN_SERVER_ERROR));
            return Ok(());
        }
        let mut batch = Batch::marker(base_offset, now, producer, result, coordinator_epoch);
        batch.events.push(active.park(&self.options, now, deferred));
        active.shard.create_snapshot(batch.next_offset);
        active.sealed.push_back(batch);
        Ok(())
    }

    /// The next batch for the log, when there is one and none is in its hands.
    pub fn poll_append(&mut self, now: Time) -> Option<PendingAppend> {
        let State::Active(active) = &mut self.state else { return None };
        if active.in_flight.is_some() {
            return None;
        }
        if active.sealed.is_empty() && active.current_is_due(&self.options, now.monotonic) {
            active.seal_current();
        }
        let mut batch = active.sealed.pop_front()?;
        self.next_append += 1;
        let append = batch.take_append(self.next_append);
        active.in_flight = Some((self.next_append, batch));
        self.metrics.appends += 1;
        Some(append)
    }

    /// The log took the batch `append_id` and its last record has the offset given, or it failed.
    pub fn handle_appended(&mut self, now: Time, append_id: AppendId, result: Result<i64, ErrorCode>) {
        let State::Active(active) = &mut self.state else { return };
        let Some((_, batch)) = active.in_flight.take_if(|(id, _)| *id == append_id) else { return };
        match result {
            Ok(last_offset) if last_offset.checked_add(1) == Some(batch.next_offset) => {
                self.metrics.appended_records +=
                    u64::try_from(batch.next_offset - batch.base_offset).unwrap_or(0);
                active.last_written = batch.next_offset;
                active.awaiting_commit.push_back((batch.next_offset, batch.events));
                active.advance_committed(now);
            }
            // Somebody else wrote to the partition: our offsets are wrong. The state is rebuilt from the log.
            Ok(_) => {
                active.in_flight = Some((append_id, batch));
                self.fail(now);
                self.reload = true;
            }
            Err(error) => {
                let base_offset = batch.base_offset;
                let mut failed = batch.events;
                failed.extend(active.sealed.drain(..).flat_map(|batch| batch.events));
                failed.extend(active.current.take().map(|batch| batch.events).unwrap_or_default());
                active.shard.revert_to(base_offset);
                self.metrics.failed_writes += failed.len() as u64;
                active.complete_all(now, failed, Err(error));
            }
        }
    }

    /// The high watermark of the partition is `offset`: what lies before it is committed.
    pub fn handle_high_watermark(&mut self, now: Time, offset: i64) {
        let State::Active(active) = &mut self.state else { return };
        active.high_watermark = active.high_watermark.max(offset);
        active.advance_committed(now);
    }

    /// When [`Self::handle_timeout`] (or, for a lingering batch, [`Self::poll_append`]) has something to do next.
    pub fn poll_deadline(&mut self) -> Option<Duration> {
        let State::Active(active) = &mut self.state else { return None };
        while active.timeouts.front().is_some_and(|(_, event)| !active.parked.contains_key(event)) {
            active.timeouts.pop_front();
        }
        let linger = match (&active.current, self.options.append_linger) {
            (Some(batch), Some(linger)) if !batch.is_empty() => Some(batch.opened.monotonic + linger),
            _ => None,
        };
        let timeout = active.timeouts.front().map(|(deadline, _)| *deadline);
        [linger, timeout, active.timers.next_deadline()].into_iter().flatten().min()
    }

    /// Fires the timers that are due and fails the operations that waited too long.
    pub fn handle_timeout(&mut self, now: Time) {
        let State::Active(active) = &mut self.state else { return };
        let mut expired = Vec::new();
        while let Some((_, event)) = active.timeouts.pop_front_if(|(deadline, _)| *deadline <= now.monotonic)
        {
            if active.parked.contains_key(&event) {
                expired.push(event);
            }
        }
        self.metrics.timed_out_writes += expired.len() as u64;
        active.complete_all(now, expired, Err(ErrorCode::REQUEST_TIMED_OUT));
        while let Some((key, timeout)) = active.timers.pop_due(now.monotonic) {
            let result = active.shard.handle_timer(now, &mut active.timers, key, timeout);
            self.metrics.writes += 1;
            active.append(&self.options, &mut self.metrics, now, result);
        }
    }

    /// This node is no longer the leader of the partition in `epoch` (`None`: in any). Returns whether that was news.
    pub fn unload(&mut self, now: Time, epoch: Option<i32>) -> bool {
        if epoch.is_some_and(|epoch| self.epoch >= epoch) {
            return false;
        }
        self.stop(now, State::Initial);
        self.reload = false;
        true
    }

    /// Whether the user must load the partition again: the log and the state do not fit any more.
    pub fn take_reload(&mut self) -> bool {
        std::mem::take(&mut self.reload)
    }

    /// The shard that has just stopped serving: its last answers are still in it.
    pub fn take_stopped(&mut self) -> Option<S> {
        self.stopped.take()
    }

    pub(crate) fn fail(&mut self, now: Time) {
        self.stop(now, State::Failed);
    }

    fn stop(&mut self, now: Time, next: State<S>) {
        match std::mem::replace(&mut self.state, next) {
            State::Active(mut active) => {
                active.timers.cancel_all();
                let failed: Vec<u64> = active.parked.keys().copied().collect();
                active.complete_all(now, failed, Err(ErrorCode::NOT_COORDINATOR));
                active.shard.handle_unloaded(now);
                self.stopped = Some(active.shard);
            }
            State::Loading(mut loading) => {
                loading.shard.handle_unloaded(now);
                self.stopped = Some(loading.shard);
            }
            State::Initial | State::Failed => {}
        }
    }
}

impl<S: CoordinatorShard> Active<S> {
    pub(crate) fn new(shard: S, last_written: i64, last_committed: i64, high_watermark: i64) -> Self {
        Self {
            shard,
            timers: Timers::<S>::default(),
            last_written,
            last_committed,
            high_watermark,
            in_flight: None,
            sealed: VecDeque::new(),
            current: None,
            parked: BTreeMap::new(),
            awaiting_commit: VecDeque::new(),
            timeouts: VecDeque::new(),
            next_event: 0,
        }
    }

    fn next_offset(&self) -> i64 {
        let last = self.current.as_ref().or(self.sealed.back());
        let last = last.or(self.in_flight.as_ref().map(|(_, batch)| batch));
        last.map_or(self.last_written, |batch| batch.next_offset)
    }

    fn park(&mut self, options: &CoordinatorOptions, now: Time, deferred: S::Deferred) -> u64 {
        self.next_event += 1;
        self.parked.insert(self.next_event, deferred);
        self.timeouts.push_back((now.monotonic.saturating_add(options.write_timeout), self.next_event));
        self.next_event
    }

    fn append(
        &mut self,
        options: &CoordinatorOptions,
        metrics: &mut RuntimeMetrics,
        now: Time,
        result: CoordinatorResult<S::Record, S::Deferred>,
    ) {
        if result.records.is_empty() {
            return self.wait_for_pending_writes(options, now, result.deferred);
        }
        let encoded: Result<Vec<RawRecord>, ErrorCode> = result.records.iter().map(S::encode).collect();
        let raw = match encoded {
            Ok(raw) => raw,
            Err(error) => {
                metrics.failed_writes += 1;
                return self.shard.complete(now, &mut self.timers, result.deferred, Err(error));
            }
        };
        let is_atomic = result.is_atomic || result.producer.is_some();
        if result.producer.is_some() {
            self.seal_current();
        }
        let total = raw.iter().map(size_upper_bound).sum();
        if is_atomic && self.current.as_ref().is_some_and(|b| !b.has_room_for(total, options.max_batch_size))
        {
            self.seal_current();
        }
        for (record, raw) in result.records.into_iter().zip(raw) {
            let size = size_upper_bound(&raw);
            if !is_atomic
                && self.current.as_ref().is_some_and(|b| !b.has_room_for(size, options.max_batch_size))
            {
                self.seal_current();
            }
            let offset = self.next_offset();
            if result.replay_records && self.shard.replay(now, offset, result.producer, record).is_err() {
                return self.fail_current(metrics, now, result.deferred);
            }
            self.current.get_or_insert_with(|| Batch::new(offset, now, result.producer)).push(raw);
        }
        let event = self.park(options, now, result.deferred);
        if let Some(batch) = &mut self.current {
            batch.events.push(event);
        }
        if result.producer.is_some() {
            self.seal_current();
        }
    }

    /// A decision of ours cannot be applied to our own state: a bug. As in the reference, its batch fails.
    fn fail_current(&mut self, metrics: &mut RuntimeMetrics, now: Time, deferred: S::Deferred) {
        let batch = self.current.take();
        let base_offset = batch.as_ref().map_or_else(|| self.next_offset(), |batch| batch.base_offset);
        let events = batch.map(|batch| batch.events).unwrap_or_default();
        self.shard.revert_to(base_offset);
        metrics.failed_writes += events.len() as u64 + 1;
        self.complete_all(now, events, Err(ErrorCode::UNKNOWN_SERVER_ERROR));
        self.shard.complete(now, &mut self.timers, deferred, Err(ErrorCode::UNKNOWN_SERVER_ERROR));
    }

    fn wait_for_pending_writes(&mut self, options: &CoordinatorOptions, now: Time, deferred: S::Deferred) {
        let unwritten = self.current.is_some() || !self.sealed.is_empty() || self.in_flight.is_some();
        if !unwritten && self.last_committed >= self.last_written {
            return self.shard.complete(now, &mut self.timers, deferred, Ok(()));
        }
        let event = self.park(options, now, deferred);
        let batch = self.current.as_mut().or(self.sealed.back_mut());
        match batch.or(self.in_flight.as_mut().map(|(_, batch)| batch)) {
            Some(batch) => batch.events.push(event),
            None => self.awaiting_commit.push_back((self.last_written, vec![event])),
        }
    }

    fn seal_current(&mut self) {
        if let Some(batch) = self.current.take() {
            self.shard.create_snapshot(batch.next_offset);
            self.sealed.push_back(batch);
        }
    }

    fn current_is_due(&self, options: &CoordinatorOptions, now: Duration) -> bool {
        self.current.as_ref().is_some_and(|batch| {
            options.append_linger.is_none_or(|linger| now >= batch.opened.monotonic + linger)
                || !batch.has_room_for(1, options.max_batch_size)
        })
    }

    fn advance_committed(&mut self, now: Time) {
        let committed = self.high_watermark.min(self.last_written);
        if committed <= self.last_committed {
            return;
        }
        self.last_committed = committed;
        self.shard.commit_up_to(committed);
        let mut done = Vec::new();
        while let Some((_, events)) = self.awaiting_commit.pop_front_if(|(offset, _)| *offset <= committed) {
            done.extend(events);
        }
        self.complete_all(now, done, Ok(()));
    }

    fn complete_all(&mut self, now: Time, events: Vec<u64>, result: Result<(), ErrorCode>) {
        for event in events {
            if let Some(deferred) = self.parked.remove(&event) {
                self.shard.complete(now, &mut self.timers, deferred, result);
            }
        }
    }
}

fn inactive_error<S: CoordinatorShard>(state: &State<S>) -> ErrorCode {
    match state {
        State::Loading(_) => ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        _ => ErrorCode::NOT_COORDINATOR,
    }
}
