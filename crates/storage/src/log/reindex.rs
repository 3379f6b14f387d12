//! Indexes of one segment, read from its log again.
//!
//! Owns: finding aborted transactions without a producer state.
//! Invariants: the log is not changed: records below the recovery point are not recovery's to cut. What cannot be read
//! of the segment is in no index.
//! Concurrency: nobody else uses the log yet. Crash: indexes below the recovery point are checked when they are used.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use env::read_exact_at;
use record::RecordBatch;

use super::append::end_txn_marker;
use crate::context::LogContext;
use crate::names;
use crate::producer::{MAX_SNAPSHOT_BYTES, decode_snapshot};
use crate::segment::{BatchPosition, LogSegment};
use crate::txn_index::AbortedTxn;

/// First offsets of the transactions that are open at some offset, by producer.
type Open = BTreeMap<i64, i64>;

/// Rebuilds all indexes of `segment`; `before` are the segments in front of it.
pub(super) fn rebuild(
    context: &LogContext,
    dir: &Path,
    before: &[Arc<LogSegment>],
    segment: &LogSegment,
    interval: u32,
) -> io::Result<()> {
    let fs = &*context.env.fs;
    let mut open = open_at(context, dir, before, segment.base_offset())?;
    segment.begin_rebuild(fs)?;
    let mut failure = Ok(());
    let scanned = segment.scan(fs, 0, segment.size(), |batch| {
        failure = segment.reindex(fs, &batch.header, batch.position, interval).and_then(|()| {
            match follow(context, segment, &batch, &mut open)? {
                Some(aborted) => segment.append_aborted(fs, aborted),
                None => Ok(()),
            }
        });
        if failure.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    failure?;
    segment.finish_rebuild(fs)?;
    match scanned {
        // The rest is not readable, and not found by any index.
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            tracing::warn!(
                "Segment {} of {} is not readable to its end: {e}",
                segment.base_offset(),
                dir.display()
            );
            segment.complete_indexes(fs)
        }
        Err(e) => Err(e),
        Ok(()) => segment.complete_indexes(fs),
    }
}

/// The transactions that are open where a segment begins: from the snapshot of its roll, or else from the log.
fn open_at(context: &LogContext, dir: &Path, before: &[Arc<LogSegment>], base: i64) -> io::Result<Open> {
    let fs = &*context.env.fs;
    let path = dir.join(names::segment_file(base, names::PRODUCER_SNAPSHOT_FILE_SUFFIX));
    match env::read_file(fs, &path, MAX_SNAPSHOT_BYTES).and_then(|bytes| decode_snapshot(&bytes)) {
        Ok(entries) => {
            let open = entries.iter().filter_map(|e| Some((e.producer_id, e.current_txn_first_offset?)));
            return Ok(open.collect());
        }
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidData | io::ErrorKind::NotFound) => {}
        Err(e) => return Err(e),
    }
    let mut open = Open::new();
    for segment in before {
        let mut failure = Ok(());
        let scanned = segment.scan(fs, 0, segment.size(), |batch| {
            failure = follow(context, segment, &batch, &mut open).map(|_| ());
            if failure.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        failure?;
        match scanned {
            Err(e) if e.kind() != io::ErrorKind::InvalidData => return Err(e),
            _ => segment.close(),
        }
    }
    Ok(open)
}

/// What a batch does to the open transactions; the transaction that it aborts.
fn follow(
    context: &LogContext,
    segment: &LogSegment,
    batch: &BatchPosition,
    open: &mut Open,
) -> io::Result<Option<AbortedTxn>> {
    let header = &batch.header;
    if !header.has_producer_id() || !header.is_transactional() {
        return Ok(None);
    }
    if !header.is_control_batch() {
        open.entry(header.producer_id).or_insert(header.base_offset);
        return Ok(None);
    }
    let Some(first_offset) = open.remove(&header.producer_id) else { return Ok(None) };
    let mut bytes = vec![0; header.size_in_bytes()];
    read_exact_at(&*segment.log_file(&*context.env.fs)?, &mut bytes, u64::from(batch.position))?;
    let marker = context.with_buffers(|buffers| match RecordBatch::first(&bytes)? {
        Some(batch) => end_txn_marker(&batch, &*context.codecs, buffers),
        None => Ok(None),
    });
    // A marker that cannot be read ends nothing for those who read the log either.
    let Ok(Some((marker, _))) = marker else { return Ok(None) };
    let last_offset = header.last_offset();
    let last_stable_offset = open.values().min().copied().unwrap_or(last_offset + 1);
    Ok((!marker.committed).then_some(AbortedTxn {
        producer_id: header.producer_id,
        first_offset,
        last_offset,
        last_stable_offset,
    }))
}
