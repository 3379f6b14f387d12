//! The threads that connections live on: one event loop per core, each connection bound to one at a time.
//!
//! Owns: the loops' threads, the choice of a loop for a connection, and the advice to move to another.
//! Why not one runtime that shares its tasks: a request takes microseconds; waking a second worker and moving the task
//! there costs more than the request. For the same reason connections gather on few loops while these have time (a
//! record written on one loop and waited for on another costs a wake-up between cores), and spread when one gets busy.
//! Invariants: a connection's task, its socket's readiness and its timers belong to one loop; it moves only between two
//! requests. A loop ends when it is stopped, and drops what still runs on it.
//! Concurrency: a loop's load is measured by its own connections, at most once per window; the counts are hints.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Threads of one loop that read files in which are not in the page cache.
const COLD_READERS: usize = 32;
/// How long a stopping loop waits for its cold readers.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// After so many polls of tasks a loop looks at its sockets, and tells how long it has been busy.
const EVENT_INTERVAL: u32 = 16;
/// A loop's load is an average over at least this time; at most one of its connections moves in it.
const WINDOW: Duration = Duration::from_millis(100);
/// ... and over this many requests, which show whether one connection makes most of them.
const REQUESTS: u64 = 64;
/// A connection looks at its loop after this many of its requests.
const REVIEW_AFTER: u32 = 16;
/// A loop that is busy for more than this share of its time gives a connection away.
const BUSY: f64 = 0.6;
/// Two loops that together are busy for less than this become one.
const IDLE: f64 = 0.35;
/// Loops that have time take so many more connections than the emptiest one: all clients of a restarted node come at
/// once, before any of them makes load.
const GATHERED: usize = 16;
/// What another loop must have less to do for a move to pay.
const GAIN: f64 = 0.2;
/// A connection that makes this share of its loop's requests stays: its load would only move along.
const DOMINANT: f64 = 0.8;

struct EventLoop {
    handle: Handle,
    connections: AtomicUsize,
    requests: AtomicU64,
    /// Counts the windows.
    window: AtomicU64,
    sample: Mutex<Sample>,
}

/// The loop at the end of its last window.
struct Sample {
    at: Instant,
    busy: Duration,
    requests: u64,
    load: f64,
}

impl EventLoop {
    fn new(handle: Handle) -> Self {
        EventLoop {
            handle,
            connections: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            window: AtomicU64::new(0),
            sample: Mutex::new(Sample { at: Instant::now(), busy: Duration::ZERO, requests: 0, load: 0.0 }),
        }
    }

    fn busy(&self) -> Duration {
        self.handle.metrics().worker_total_busy_duration(0)
    }

    /// The share of its time that it was busy lately.
    fn load(&self) -> f64 {
        let sample = self.sample.lock();
        let elapsed = sample.at.elapsed();
        if elapsed < WINDOW { sample.load } else { share(self.busy().saturating_sub(sample.busy), elapsed) }
    }

    /// Ends the window when it is over: the load in it and the number of requests.
    fn end_window(&self) -> Option<(f64, u64)> {
        let mut sample = self.sample.try_lock()?;
        let elapsed = sample.at.elapsed();
        let requests = self.requests.load(Ordering::Relaxed);
        let handled = requests - sample.requests;
        if elapsed < WINDOW || handled < REQUESTS {
            return None;
        }
        let busy = self.busy();
        let load = share(busy.saturating_sub(sample.busy), elapsed);
        *sample = Sample { at: sample.at + elapsed, busy, requests, load };
        self.window.fetch_add(1, Ordering::Relaxed);
        Some((load, handled))
    }
}

fn share(busy: Duration, elapsed: Duration) -> f64 {
    busy.as_secs_f64() / elapsed.as_secs_f64()
}

/// See the file's header.
pub struct Loops {
    loops: Vec<EventLoop>,
}

/// The loops' threads, which end when this is stopped.
pub struct LoopThreads {
    stops: Vec<oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

/// A connection's place on a loop, for as long as it is there.
pub(crate) struct Place {
    loops: Arc<Loops>,
    index: usize,
    window: u64,
    /// Requests of this connection in the window.
    handled: u32,
}

impl Loops {
    /// Starts `count` loops, at least one.
    pub fn start(count: usize) -> io::Result<(Arc<Self>, LoopThreads)> {
        let mut loops = Vec::new();
        let mut running = LoopThreads { stops: Vec::new(), threads: Vec::new() };
        for index in 0..count.max(1) {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .event_interval(EVENT_INTERVAL)
                .max_blocking_threads(COLD_READERS)
                .build()?;
            loops.push(EventLoop::new(runtime.handle().clone()));
            let (stop, stopped) = oneshot::channel::<()>();
            let body = move || {
                // An error says that the sender was dropped, which stops as well.
                let _ = runtime.block_on(stopped);
                runtime.shutdown_timeout(STOP_TIMEOUT);
            };
            running.threads.push(std::thread::Builder::new().name(format!("network-{index}")).spawn(body)?);
            running.stops.push(stop);
        }
        Ok((Arc::new(Self { loops }), running))
    }

    /// A place for a new connection: the first loop that has time and not many more connections than another, or else
    /// the one with the most time.
    pub(crate) fn place(self: &Arc<Self>) -> Place {
        let loads: Vec<f64> = self.loops.iter().map(EventLoop::load).collect();
        let counts: Vec<usize> =
            self.loops.iter().map(|event_loop| event_loop.connections.load(Ordering::Relaxed)).collect();
        let most = counts.iter().min().map_or(0, |fewest| fewest + GATHERED);
        let first = (0..loads.len()).find(|index| loads[*index] < BUSY && counts[*index] < most);
        self.place_on(first.unwrap_or_else(|| least(&loads)))
    }

    fn place_on(self: &Arc<Self>, index: usize) -> Place {
        if let Some(event_loop) = self.loops.get(index) {
            event_loop.connections.fetch_add(1, Ordering::Relaxed);
        }
        Place { loops: self.clone(), index, window: 0, handled: 0 }
    }
}

fn least(loads: &[f64]) -> usize {
    (0..loads.len()).min_by(|a, b| loads[*a].total_cmp(&loads[*b])).unwrap_or(0)
}

/// Where a connection that makes `own` of its loop's requests should go from loop `index`.
fn better(loads: &[f64], index: usize, connections: usize, own: f64) -> Option<usize> {
    let load = *loads.get(index)?;
    if load > BUSY {
        let target = least(loads);
        let pays = connections > 1 && own < DOMINANT && loads.get(target)? + GAIN < load;
        return pays.then_some(target);
    }
    loads.iter().take(index).position(|other| other + load < IDLE)
}

impl Place {
    pub(crate) fn handle(&self) -> Option<&Handle> {
        Some(&self.loops.loops.get(self.index)?.handle)
    }

    /// Counts a request; at times, the place to move to.
    pub(crate) fn after_request(&mut self) -> Option<Place> {
        let here = self.loops.loops.get(self.index)?;
        here.requests.fetch_add(1, Ordering::Relaxed);
        let window = here.window.load(Ordering::Relaxed);
        if window != self.window {
            (self.window, self.handled) = (window, 0);
        }
        self.handled = self.handled.wrapping_add(1);
        if !self.handled.is_multiple_of(REVIEW_AFTER) || self.loops.loops.len() < 2 {
            return None;
        }
        let (load, requests) = here.end_window()?;
        let own = f64::from(self.handled) / requests.max(1) as f64;
        let loads: Vec<f64> = (0..self.loops.loops.len())
            .zip(&self.loops.loops)
            .map(|(index, other)| if index == self.index { load } else { other.load() })
            .collect();
        let target = better(&loads, self.index, here.connections.load(Ordering::Relaxed), own)?;
        Some(self.loops.place_on(target))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(event_loop) = self.loops.loops.get(self.index) {
            event_loop.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl LoopThreads {
    /// Ends the loops and waits for their threads.
    pub fn stop(self) {
        for stop in self.stops {
            let _ = stop.send(());
        }
        for thread in self.threads {
            // A panic of the thread has been printed by the panic hook.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_moves_away_from_a_busy_loop_and_together_with_others_when_there_is_little_to_do() {
        for (loads, index, connections, own, expected) in [
            (vec![0.1, 0.0], 0, 2, 0.5, None),
            (vec![0.7, 0.1], 0, 2, 0.5, Some(1)),
            (vec![0.7, 0.1, 0.0], 0, 2, 0.5, Some(2)),
            // Its load would only move along.
            (vec![0.7, 0.1], 0, 2, 0.9, None),
            (vec![0.7, 0.1], 0, 1, 0.5, None),
            // Both are busy.
            (vec![0.7, 0.6], 0, 2, 0.5, None),
            (vec![0.1, 0.1], 1, 1, 1.0, Some(0)),
            (vec![0.4, 0.1, 0.1], 2, 1, 1.0, Some(1)),
            (vec![0.3, 0.1], 1, 1, 1.0, None),
            (vec![0.1, 0.9], 1, 2, 0.5, Some(0)),
        ] {
            assert_eq!(better(&loads, index, connections, own), expected, "{loads:?} {index}");
        }
    }

    #[test]
    fn connections_begin_on_the_first_loop_and_give_their_place_back() {
        let (loops, threads) = Loops::start(2).expect("the loops start");
        let counts = || -> Vec<usize> {
            loops.loops.iter().map(|event_loop| event_loop.connections.load(Ordering::Relaxed)).collect()
        };
        let mut places: Vec<Place> = (0..4).map(|_| loops.place()).collect();
        assert_eq!(counts(), [4, 0]);
        places.extend((0..96).map(|_| loops.place()));
        assert_eq!(counts(), [58, 42]);
        drop(places);
        assert_eq!(counts(), [0, 0]);
        let place = loops.place_on(1);
        let (told, heard) = std::sync::mpsc::channel();
        let handle = place.handle().expect("the loop");
        handle.spawn(async move { told.send(std::thread::current().name().map(str::to_owned)) });
        assert_eq!(heard.recv().expect("an answer").as_deref(), Some("network-1"));
        threads.stop();
    }
}
