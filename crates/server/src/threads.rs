//! The node's named threads. Each ends when the flag is set and its waker called.

use crate::cleaner::CleanerStop;
use crate::shell::{Shell, Waker};
use broker::Node;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Stops and joins the threads when told.
pub(crate) struct Threads {
    stop: Arc<AtomicBool>,
    shell: Arc<Shell>,
    node: Arc<Node>,
    log_waker: Arc<Waker>,
    cleaner: Arc<CleanerStop>,
    handles: Vec<JoinHandle<()>>,
}

/// Between looks for due flushes, checkpoints, retention and deletions.
const LOG_TASK_INTERVAL: Duration = Duration::from_secs(1);
/// A throttle that was lifted is noticed after this.
const LONGEST_MOVER_WAIT: Duration = Duration::from_secs(1);

/// Syncs that run at once on one directory. A journaling file system commits the syncs that meet in one transaction, so
/// that many at once cost hardly more than one.
const SYNC_THREADS_PER_DIR: usize = 16;
/// A thread that waits for syncs looks up this often; stopping wakes it.
const SYNC_WAIT: Duration = Duration::from_secs(3600);

fn named(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// What every thread of the node has at hand.
#[derive(Clone)]
struct Common {
    node: Arc<Node>,
    shell: Arc<Shell>,
    stop: Arc<AtomicBool>,
}

impl Common {
    /// A thread that does its round again and again until it is stopped.
    fn rounds(
        &self,
        name: &str,
        mut round: impl FnMut(&Node, &Shell) + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        let Common { node, shell, stop } = self.clone();
        named(name, move || {
            while !stop.load(Ordering::Acquire) {
                round(&node, &shell);
            }
        })
    }

    /// Those that copy replicas to other directories.
    fn movers(&self) -> std::io::Result<Vec<JoinHandle<()>>> {
        let mover = |number| {
            self.rounds(&format!("alter-log-dirs-{number}"), |node, shell| match node.move_replicas() {
                Some(Duration::ZERO) => {}
                wait => shell.movers.wait(wait.map(|wait| wait.min(LONGEST_MOVER_WAIT))),
            })
        };
        (0..self.node.replica_mover_threads()).map(mover).collect()
    }

    /// Those that acknowledgements wait for where records have to be durable.
    fn syncs(&self) -> std::io::Result<Vec<JoinHandle<()>>> {
        let dirs = 0..self.node.log_dir_count();
        let places = dirs.flat_map(|dir| (0..SYNC_THREADS_PER_DIR).map(move |number| (dir, number)));
        let sync = |(dir, number)| {
            self.rounds(&format!("sync-{dir}-{number}"), move |node, _| node.run_syncs(dir, SYNC_WAIT))
        };
        places.map(sync).collect()
    }
}

impl Threads {
    pub(crate) fn start(node: &Arc<Node>, shell: &Arc<Shell>) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let common = Common { node: node.clone(), shell: shell.clone(), stop: stop.clone() };
        let log_waker = Arc::new(Waker::default());
        let waker = log_waker.clone();
        let cleaner = Arc::new(CleanerStop::default());
        let (cleaned, cleaner_stop) = (node.clone(), cleaner.clone());
        let mut handles = vec![
            common.rounds("controller", |node, shell| {
                let deadline = node.run_controller();
                shell.controller.wait(until(node, deadline));
            })?,
            common.rounds("timers", |node, shell| {
                let deadline = node.run_timers();
                shell.timers.wait(until(node, deadline));
            })?,
            common.rounds("log", move |node, _| {
                node.run_log_tasks();
                waker.wait(Some(LOG_TASK_INTERVAL));
            })?,
            common.rounds("loader", |node, shell| {
                node.run_loader();
                shell.loader.wait(None);
            })?,
            common.rounds("log-dirs", |node, shell| {
                node.run_log_dir_events();
                shell.log_dirs.wait(None);
            })?,
            named("cleaner", move || crate::cleaner::run(&cleaned, &cleaner_stop))?,
        ];
        handles.extend(common.movers()?);
        handles.extend(common.syncs()?);
        Ok(Self { stop, shell: shell.clone(), node: node.clone(), log_waker, cleaner, handles })
    }

    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.shell.controller.wake();
        self.shell.timers.wake();
        self.log_waker.wake();
        self.cleaner.stop();
        self.shell.loader.wake();
        self.shell.log_dirs.wake();
        self.shell.movers.wake_all();
        self.node.close_syncs();
        for handle in self.handles {
            // A panic of the thread has been printed by the panic hook.
            let _ = handle.join();
        }
    }
}

fn until(node: &Node, deadline: Option<Duration>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_sub(node.now().monotonic))
}
