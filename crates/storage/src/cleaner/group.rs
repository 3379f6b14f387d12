//! Which neighbouring segments are cleaned into one.
//!
//! Owns: [`group_segments`]. Invariants: a group's segments together fit into one segment, its indexes, and the
//! distance that an index can hold; as 4.4.0 groups them. Concurrency, crash: reads only.

use std::io;
use std::sync::Arc;

use env::FileSystem;

use crate::config::LogConfig;
use crate::segment::LogSegment;

/// Groups in the order of the log. `first_uncleanable` is where the segment behind the last one begins.
pub(super) fn group_segments(
    fs: &dyn FileSystem,
    segments: &[Arc<LogSegment>],
    config: &LogConfig,
    first_uncleanable: i64,
) -> io::Result<Vec<Vec<Arc<LogSegment>>>> {
    let (max_size, max_index) =
        (u64::from(config.segment_size_bytes), u64::from(config.max_index_size_bytes));
    let mut groups: Vec<Vec<Arc<LogSegment>>> = Vec::new();
    let (mut size, mut offsets, mut times) = (0, 0, 0);
    for (i, segment) in segments.iter().enumerate() {
        let (own_offsets, own_times) = segment.index_sizes(fs)?;
        let own_size = u64::from(segment.size());
        let last_offset =
            segments.get(i + 1).map_or(first_uncleanable, |next| next.base_offset()).saturating_sub(1);
        let fits = groups.last().and_then(|group| group.first()).is_some_and(|first| {
            size + own_size <= max_size
                && offsets + own_offsets <= max_index
                && times + own_times <= max_index
                && (own_size == 0 || last_offset.saturating_sub(first.base_offset()) <= i64::from(i32::MAX))
        });
        match groups.last_mut().filter(|_| fits) {
            Some(group) => {
                group.push(segment.clone());
                (size, offsets, times) = (size + own_size, offsets + own_offsets, times + own_times);
            }
            None => {
                groups.push(vec![segment.clone()]);
                (size, offsets, times) = (own_size, own_offsets, own_times);
            }
        }
    }
    Ok(groups)
}
