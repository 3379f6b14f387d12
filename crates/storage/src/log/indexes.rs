//! Repair of indexes that a reader found wrong.
//!
//! Owns: when they are rebuilt. Invariants: none of its own; answers are right before and after.
//! Concurrency: the writer lock, while the headers of one segment are read. Crash: as for any index.

use super::UnifiedLog;

impl UnifiedLog {
    /// Rebuilds the indexes that were found wrong since the last call.
    pub(super) fn rebuild_wrong_indexes(&self) {
        let is_wrong = |segment: &crate::segment::LogSegment| segment.indexes_are_wrong();
        if !self.segments.load().iter().any(|segment| is_wrong(segment)) {
            return;
        }
        let Ok(_writer) = self.lock_writer() else { return };
        let segments = self.segments.load_full();
        let interval = self.config.load().index_interval_bytes;
        for (i, segment) in segments.iter().enumerate().filter(|(_, segment)| is_wrong(segment)) {
            let is_active = i + 1 == segments.len();
            match segment.rebuild_indexes(self.fs(), interval, is_active) {
                Ok(()) => tracing::info!(
                    "Rebuilt the indexes of segment {} of {}",
                    segment.base_offset(),
                    self.topic_partition
                ),
                Err(e) => {
                    segment.distrust_indexes_again();
                    tracing::warn!("{}", self.fail("Error while rebuilding indexes in", e));
                }
            }
        }
    }
}
