//! The shell around a node: sockets, threads, signals, the log, and how a process starts and ends.
//!
//! Owns no decision: it wires `broker::Node` to `network`, calls it when time passes, and prints what tools wait for.
//!
//! Threads: one tokio runtime for connections; `controller` (metadata decisions and the metadata log), `timers`
//! (waits that end), `log` (flush, retention, deletion), `cleaner` (compaction) and those of the log directories, each
//! asleep until woken or due.

mod cleaner;
pub mod commands;
pub mod launch;
pub mod logging;
mod shell;
mod threads;

pub use launch::{Launch, run};
