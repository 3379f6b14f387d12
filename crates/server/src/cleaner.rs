//! The threads that compact logs: `cleaner`, and as many more as `log.cleaner.threads` says at the time.
//!
//! The first thread starts the others and waits for them at the end; those that are too many end by themselves.

use broker::Node;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use storage::{CleanerHost, CleanerThread};

/// Ends all cleaner threads.
#[derive(Default)]
pub(crate) struct CleanerStop {
    stopping: AtomicBool,
    lock: Mutex<()>,
    condition: Condvar,
}

impl CleanerStop {
    pub(crate) fn stop(&self) {
        let _lock = self.lock.lock();
        self.stopping.store(true, Ordering::Release);
        self.condition.notify_all();
    }
}

impl CleanerStop {
    /// Sleeps, as long as nothing else is to be done.
    fn rest(&self, mut left: Duration, may_rest: impl Fn() -> bool) {
        while !left.is_zero() && !self.is_stopping() && may_rest() {
            let nap = left.min(LONGEST_REST);
            self.sleep(nap);
            left -= nap;
        }
    }
}

impl CleanerHost for CleanerStop {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn sleep(&self, timeout: Duration) {
        let mut lock = self.lock.lock();
        if !self.is_stopping() {
            self.condition.wait_for(&mut lock, timeout);
        }
    }
}

/// The longest rest; a new `log.cleaner.threads` is seen after it at the latest.
const LONGEST_REST: Duration = Duration::from_secs(15);

/// The first thread's body.
pub(crate) fn run(node: &Arc<Node>, stop: &Arc<CleanerStop>) {
    let mut others: Vec<JoinHandle<()>> = Vec::new();
    let mut thread = CleanerThread::new(0);
    while !stop.is_stopping() {
        others.retain(|other| !other.is_finished());
        while others.len() + 1 < node.cleaner_threads() {
            let id = others.len() + 1;
            let (node, stop) = (node.clone(), stop.clone());
            let started = std::thread::Builder::new()
                .name(format!("cleaner-{id}"))
                .spawn(move || helper(&node, &stop, id));
            match started {
                Ok(handle) => others.push(handle),
                Err(error) => {
                    tracing::warn!(target: "kafka.log.LogCleaner", "Cleaner thread {id} cannot be started: {error}");
                    break;
                }
            }
        }
        let rest = node.run_cleaner(&mut thread, &**stop);
        stop.rest(rest, || node.cleaner_threads() == others.len() + 1);
    }
    for other in others {
        // A panic of the thread has been printed by the panic hook.
        let _ = other.join();
    }
}

fn helper(node: &Node, stop: &CleanerStop, id: usize) {
    let mut thread = CleanerThread::new(id);
    while !stop.is_stopping() && id < node.cleaner_threads() {
        let rest = node.run_cleaner(&mut thread, stop);
        stop.rest(rest, || id < node.cleaner_threads());
    }
}
