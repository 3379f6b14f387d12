//! What cleaning relies on must outlast a power cut.

mod common;

use common::cleaning::{Node, compacted};
use storage::{CleanerConfig, LogConfig, LogStartOffsetIncrementReason};

/// Tombstones below the log's start begin to age although values there are not dropped for them: a log that began lower
/// again would lose the tombstone first and show the value it deleted.
#[test]
fn the_start_of_a_log_that_was_cleaned_is_durable() {
    let config = LogConfig { delete: true, retention_ms: -1, ..compacted() };
    let mut node = Node::new(config.clone());
    node.append(&[("a", Some("1"))]);
    node.append(&[("a", None)]);
    node.append(&[("b", Some("1"))]);
    node.append(&[("b", Some("2"))]);
    let reason = LogStartOffsetIncrementReason::ClientRecordDeletion;
    node.log.maybe_increment_log_start_offset(2, reason).unwrap();
    node.compact();
    let Node { sim, manager, log, .. } = node;
    drop((manager, log));
    sim.fs.crash(1);
    sim.clock.restart();
    let node = Node::start(sim, config, CleanerConfig::default());
    assert_eq!(node.log.log_start_offset(), 2);
    assert_eq!(node.offsets(), [3]);
}
