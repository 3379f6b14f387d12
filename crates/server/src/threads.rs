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

/// Syncs that run at once on one directory. A journaling file system commits the syncs that meet in one transaction:
/// on ext4 sixteen at once come to some fifty times the syncs of one at a time.
const SYNC_THREADS_PER_DIR: usize = 16;
/// A thread that waits for syncs looks up this often; stopping wakes it.
const SYNC_WAIT: Duration = Duration::from_secs(3600);

fn named(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

impl Threads {
    pub(crate) fn start(node: &Arc<Node>, shell: &Arc<Shell>) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let log_waker = Arc::new(Waker::default());
        let controller = {
            let (node, shell, stop) = (node.clone(), shell.clone(), stop.clone());
            named("controller", move || {
                while !stop.load(Ordering::Acquire) {
                    let deadline = node.run_controller();
                    shell.controller.wait(until(&node, deadline));
                }
            })?
        };
        let timers = {
            let (node, shell, stop) = (node.clone(), shell.clone(), stop.clone());
            named("timers", move || {
                while !stop.load(Ordering::Acquire) {
                    let deadline = node.run_timers();
                    shell.timers.wait(until(&node, deadline));
                }
            })?
        };
        let log = {
            let (node, waker, stop) = (node.clone(), log_waker.clone(), stop.clone());
            named("log", move || {
                while !stop.load(Ordering::Acquire) {
                    node.run_log_tasks();
                    waker.wait(Some(LOG_TASK_INTERVAL));
                }
            })?
        };
        let loader = {
            let (node, shell, stop) = (node.clone(), shell.clone(), stop.clone());
            named("loader", move || {
                while !stop.load(Ordering::Acquire) {
                    node.run_loader();
                    shell.loader.wait(None);
                }
            })?
        };
        let cleaner_stop = Arc::new(CleanerStop::default());
        let cleaner = {
            let (node, stop) = (node.clone(), cleaner_stop.clone());
            named("cleaner", move || crate::cleaner::run(&node, &stop))?
        };
        let log_dirs = {
            let (node, shell, stop) = (node.clone(), shell.clone(), stop.clone());
            named("log-dirs", move || {
                while !stop.load(Ordering::Acquire) {
                    node.run_log_dir_events();
                    shell.log_dirs.wait(None);
                }
            })?
        };
        let mut handles = vec![controller, timers, log, loader, log_dirs, cleaner];
        for number in 0..node.replica_mover_threads() {
            let (node, shell, stop) = (node.clone(), shell.clone(), stop.clone());
            handles.push(named(&format!("alter-log-dirs-{number}"), move || {
                while !stop.load(Ordering::Acquire) {
                    match node.move_replicas() {
                        Some(Duration::ZERO) => {}
                        wait => shell.movers.wait(wait.map(|wait| wait.min(LONGEST_MOVER_WAIT))),
                    }
                }
            })?);
        }
        for dir in 0..node.log_dir_count() {
            for number in 0..SYNC_THREADS_PER_DIR {
                let (node, stop) = (node.clone(), stop.clone());
                handles.push(named(&format!("sync-{dir}-{number}"), move || {
                    while !stop.load(Ordering::Acquire) {
                        node.run_syncs(dir, SYNC_WAIT);
                    }
                })?);
            }
        }
        Ok(Self { stop, shell: shell.clone(), node: node.clone(), log_waker, cleaner: cleaner_stop, handles })
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
