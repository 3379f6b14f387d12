//! Fetches that wait for data, and their timers.
//!
//! A waiting fetch is watched by each partition it reads; whoever appends to a partition completes the fetches that
//! now have enough. The first to flip `done` answers; the others drop their reference.
//!
//! Concurrency: one short lock per partition's watch list and one for the timers; none is held while a log is read.

use crate::reply::ReplyTo;
use parking_lot::Mutex;
use replication::fetch_session::FetchContext;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

/// What a fetch asks besides its partitions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchParams {
    pub(crate) min_bytes: i32,
    pub(crate) max_bytes: i32,
    pub(crate) max_wait: Duration,
    pub(crate) read_committed: bool,
    /// A follower asks, not a consumer.
    pub(crate) by_replica: bool,
}

/// A fetch that found less than its `min_bytes`.
pub(crate) struct DelayedFetch {
    pub(crate) reply_to: ReplyTo,
    pub(crate) params: FetchParams,
    pub(crate) context: FetchContext,
    /// Which of the context's partitions were here when the fetch began to wait.
    pub(crate) existed: Vec<bool>,
    deadline: Duration,
    done: AtomicBool,
    timer: AtomicU64,
}

impl DelayedFetch {
    pub(crate) fn new(
        reply_to: ReplyTo,
        params: FetchParams,
        context: FetchContext,
        existed: Vec<bool>,
        deadline: Duration,
    ) -> Self {
        Self {
            reply_to,
            params,
            context,
            existed,
            deadline,
            done: AtomicBool::new(false),
            timer: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// True for exactly one caller, who then has to answer.
    pub(crate) fn claim(&self) -> bool {
        !self.done.swap(true, Ordering::AcqRel)
    }
}

/// The fetches that watch one partition.
#[derive(Default)]
pub(crate) struct Watchers {
    waiting: Mutex<Vec<Arc<DelayedFetch>>>,
    /// Mirrors the list's emptiness so that an append without watchers takes no lock.
    occupied: AtomicBool,
}

/// Watch lists are cleared of answered fetches when they grow past this length.
const COMPACT_AT: usize = 32;

impl Watchers {
    pub(crate) fn add(&self, fetch: &Arc<DelayedFetch>) {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= COMPACT_AT {
            waiting.retain(|other| !other.is_done());
        }
        waiting.push(fetch.clone());
        self.occupied.store(true, Ordering::SeqCst);
        drop(waiting);
        // With the fence of `snapshot`: either the appender sees this watcher, or the watcher, who reads once more
        // after this, sees what was appended.
        fence(Ordering::SeqCst);
    }

    /// The fetches that wait here now; to be called after the new end is published. They stay listed until they are
    /// answered.
    pub(crate) fn snapshot(&self) -> Vec<Arc<DelayedFetch>> {
        fence(Ordering::SeqCst);
        if !self.occupied.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let mut waiting = self.waiting.lock();
        waiting.retain(|fetch| !fetch.is_done());
        self.occupied.store(!waiting.is_empty(), Ordering::SeqCst);
        waiting.clone()
    }
}

/// Deadlines of waiting fetches.
#[derive(Default)]
pub(crate) struct FetchTimers {
    inner: Mutex<TimersInner>,
}

#[derive(Default)]
struct TimersInner {
    next_id: u64,
    /// What [`FetchTimers::next_deadline`] said last. Its caller sleeps no longer than that, so that later deadlines
    /// need not wake it: a reader at the log's end parks thousands of fetches a second, most of them answered at once.
    announced: Option<Duration>,
    by_deadline: BTreeMap<(Duration, u64), Arc<DelayedFetch>>,
}

impl FetchTimers {
    /// Adds a deadline; true when it is earlier than the one announced.
    pub(crate) fn add(&self, fetch: &Arc<DelayedFetch>) -> bool {
        let deadline = fetch.deadline;
        let mut inner = self.inner.lock();
        inner.next_id += 1;
        let id = inner.next_id;
        fetch.timer.store(id, Ordering::Relaxed);
        inner.by_deadline.insert((deadline, id), fetch.clone());
        inner.announced.is_none_or(|announced| deadline < announced)
    }

    /// Forgets an answered fetch.
    pub(crate) fn remove(&self, fetch: &DelayedFetch) {
        self.inner.lock().by_deadline.remove(&(fetch.deadline, fetch.timer.load(Ordering::Relaxed)));
    }

    /// Takes every fetch that is due.
    pub(crate) fn take_due(&self, now: Duration) -> Vec<Arc<DelayedFetch>> {
        let mut inner = self.inner.lock();
        let mut due = Vec::new();
        while let Some(entry) = inner.by_deadline.first_entry().filter(|entry| entry.key().0 <= now) {
            due.push(entry.remove());
        }
        due
    }

    /// The earliest deadline, which the caller has to come back at.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let mut inner = self.inner.lock();
        inner.announced = inner.by_deadline.first_key_value().map(|((deadline, _), _)| *deadline);
        inner.announced
    }
}
