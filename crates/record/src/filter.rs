//! What compaction leaves of one batch: byte for byte what the reference's cleaner writes (KIP-534), except that
//! compressed bytes may differ where compressors do.
//!
//! A batch of which every record stays is copied as it is. One that loses records is built anew: offsets, timestamps
//! and the producer's state stay, and so does the offset range; the codec stays, at its default level. Batches of
//! formats v0 and v1 are always built anew, as v2.
//! Invariants: a record is never changed, only left out. Memory is bounded by the decompressed size of one batch.

use crate::append::TimestampType;
use crate::batch::{MAX_DECOMPRESSED_SIZE, RecordBatch};
use crate::builder::{BatchOptions, BuildError, RecordBatchBuilder, empty_batch};
use crate::codec::{BufferSupplier, Codecs, Compression};
use crate::legacy::{self, LegacyIter};
use crate::record::{Record, RecordIter};
use crate::{MAGIC_VALUE_V2, RECORD_BATCH_OVERHEAD};

/// What becomes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchRetention {
    /// It goes, unread.
    Delete,
    /// When no record is left it stays, without records: it says where its producer or the log stands.
    RetainEmpty,
    /// When no record is left it goes.
    DeleteEmpty,
}

/// How one batch is filtered.
#[derive(Clone, Copy, Debug)]
pub struct FilterParams {
    pub retention: BatchRetention,
    /// A marker whose transaction has no records any more: its removal is scheduled like a tombstone's.
    pub contains_marker_for_empty_txn: bool,
    /// What a batch without a delete horizon gets for one when it needs it.
    pub new_delete_horizon_ms: i64,
}

/// What was read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterResult {
    pub records_read: u64,
    pub records_retained: u64,
    /// Bytes appended to the output: 0, or one batch.
    pub bytes_retained: usize,
}

/// Memory that is used again from batch to batch.
#[derive(Debug, Default)]
pub struct FilterBuffers {
    retained: Vec<bool>,
    build: Vec<u8>,
}

impl FilterBuffers {
    /// Gives back what one unusual batch needed.
    fn shrink(&mut self) {
        self.build.clear();
        self.build.shrink_to(BufferSupplier::KEPT_CAPACITY);
        self.retained.clear();
        self.retained.shrink_to(BufferSupplier::KEPT_CAPACITY);
    }
}

/// Appends to `out` what is left of `batch`.
pub fn filter_batch(
    batch: &RecordBatch<'_>,
    params: &FilterParams,
    codecs: &dyn Codecs,
    buffers: &mut BufferSupplier,
    scratch: &mut FilterBuffers,
    mut retain: impl FnMut(&Record<'_>) -> bool,
    out: &mut Vec<u8>,
) -> Result<FilterResult, BuildError> {
    if params.retention == BatchRetention::Delete {
        return Ok(FilterResult::default());
    }
    scratch.shrink();
    let section = decompressed(batch, codecs, buffers)?;
    let mut all_retained = batch.magic >= MAGIC_VALUE_V2;
    let mut contains_tombstones = false;
    let mut result = FilterResult::default();
    for record in records(batch, section)? {
        let record = record?;
        result.records_read += 1;
        let is_retained = retain(&record);
        scratch.retained.push(is_retained);
        if is_retained {
            result.records_retained += 1;
            contains_tombstones |= record.value.is_none();
        } else {
            all_retained = false;
        }
    }
    let start = out.len();
    if result.records_retained > 0 {
        let needs_horizon = (contains_tombstones || params.contains_marker_for_empty_txn)
            && batch.delete_horizon_ms().is_none();
        if all_retained && !needs_horizon {
            out.extend_from_slice(batch.bytes());
        } else {
            let horizon =
                if needs_horizon { Some(params.new_delete_horizon_ms) } else { batch.delete_horizon_ms() };
            rebuild(batch, section, horizon, codecs, scratch, out)?;
        }
    } else if params.retention == BatchRetention::RetainEmpty {
        out.extend_from_slice(&empty_batch(
            &options(batch, batch.base_offset, None),
            batch.last_offset(),
            batch.max_timestamp,
        ));
    }
    result.bytes_retained = out.len() - start;
    Ok(result)
}

/// The records' bytes: of a v2 batch its decompressed section, of a compressed message the message set inside.
fn decompressed<'s>(
    batch: &RecordBatch<'s>,
    codecs: &dyn Codecs,
    buffers: &'s mut BufferSupplier,
) -> Result<&'s [u8], BuildError> {
    let is_v2 = batch.magic >= MAGIC_VALUE_V2;
    if !batch.is_compressed() || is_v2 && batch.count == 0 {
        return Ok(batch.records_section());
    }
    let source = if is_v2 { batch.records_section() } else { legacy::compressed_value(batch)? };
    let kind = batch.known_compression_type()?;
    let buffer = buffers.decompressed();
    codecs.decompress(kind, batch.magic, source, MAX_DECOMPRESSED_SIZE, buffer)?;
    Ok(buffer)
}

fn records<'s>(batch: &RecordBatch<'s>, section: &'s [u8]) -> Result<RecordIter<'s>, BuildError> {
    if batch.magic >= MAGIC_VALUE_V2 {
        return Ok(RecordIter::of_section(batch.header(), section)?);
    }
    let legacy = if batch.is_compressed() {
        LegacyIter::of_decompressed(batch, section)?
    } else {
        LegacyIter::of_single(batch)?
    };
    Ok(RecordIter::of_legacy(legacy))
}

fn options(batch: &RecordBatch<'_>, base_offset: i64, delete_horizon_ms: Option<i64>) -> BatchOptions {
    let timestamp_type = match batch.timestamp_type() {
        TimestampType::LogAppendTime => TimestampType::LogAppendTime,
        _ => TimestampType::CreateTime,
    };
    BatchOptions {
        base_offset,
        compression: batch.compression_type().map(Compression::of).unwrap_or_default(),
        timestamp_type,
        log_append_time: batch.max_timestamp,
        producer_id: batch.producer_id,
        producer_epoch: batch.producer_epoch,
        base_sequence: batch.base_sequence,
        is_transactional: batch.is_transactional(),
        is_control_batch: batch.is_control_batch(),
        partition_leader_epoch: batch.partition_leader_epoch,
        delete_horizon_ms,
    }
}

/// A v2 batch of the records that `scratch` says stay.
fn rebuild(
    batch: &RecordBatch<'_>,
    section: &[u8],
    delete_horizon_ms: Option<i64>,
    codecs: &dyn Codecs,
    scratch: &mut FilterBuffers,
    out: &mut Vec<u8>,
) -> Result<(), BuildError> {
    let mut buffer = std::mem::take(&mut scratch.build);
    buffer.reserve(section.len() + RECORD_BATCH_OVERHEAD);
    let mut spare = Some(buffer);
    let mut builder: Option<RecordBatchBuilder> = None;
    for (record, is_retained) in records(batch, section)?.zip(&scratch.retained) {
        if !is_retained {
            continue;
        }
        let record = record?;
        let builder = builder.get_or_insert_with(|| {
            // A message set's own offset is that of its last record.
            let base_offset = if batch.magic >= MAGIC_VALUE_V2 { batch.base_offset } else { record.offset };
            let options = options(batch, base_offset, delete_horizon_ms);
            RecordBatchBuilder::with_buffer(options, spare.take().unwrap_or_default())
        });
        builder.append_record(record.offset, &record)?;
    }
    if let Some(mut builder) = builder {
        if batch.magic >= MAGIC_VALUE_V2 {
            builder.override_last_offset(batch.last_offset());
        }
        scratch.build = builder.build_into(codecs, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::batch::Batches;
    use crate::codec::NoCodecs;
    use crate::record::Header;
    use crate::{ControlRecordType, EndTransactionMarker};

    fn params(retention: BatchRetention) -> FilterParams {
        FilterParams { retention, contains_marker_for_empty_txn: false, new_delete_horizon_ms: 5000 }
    }

    fn filter(
        batch: &Bytes,
        params: &FilterParams,
        retain: impl FnMut(&Record<'_>) -> bool,
    ) -> (FilterResult, Bytes) {
        let mut out = Vec::new();
        let batch = RecordBatch::first(batch).unwrap().unwrap();
        let (mut buffers, mut scratch) = (BufferSupplier::new(), FilterBuffers::default());
        let result =
            filter_batch(&batch, params, &NoCodecs, &mut buffers, &mut scratch, retain, &mut out).unwrap();
        (result, out.into())
    }

    fn batch(options: BatchOptions, records: &[(i64, &str, Option<&str>)]) -> Bytes {
        let mut builder = RecordBatchBuilder::new(options);
        for (timestamp, key, value) in records {
            let headers = [Header::new("h", None)];
            builder.append(*timestamp, Some(key.as_bytes()), value.map(str::as_bytes), &headers).unwrap();
        }
        builder.build(&NoCodecs).unwrap()
    }

    fn sample() -> Bytes {
        let options = BatchOptions {
            base_offset: 10,
            producer_id: 7,
            producer_epoch: 1,
            base_sequence: 3,
            partition_leader_epoch: 4,
            ..BatchOptions::default()
        };
        batch(options, &[(100, "a", Some("1")), (300, "b", Some("2")), (200, "c", None)])
    }

    #[test]
    fn a_batch_that_loses_nothing_is_copied() {
        let full = batch(BatchOptions::default(), &[(1, "a", Some("1")), (2, "b", Some("2"))]);
        let (result, out) = filter(&full, &params(BatchRetention::DeleteEmpty), |_| true);
        assert_eq!(out, full);
        assert_eq!((result.records_read, result.records_retained), (2, 2));
        let (result, out) = filter(&full, &params(BatchRetention::Delete), |_| true);
        assert_eq!((result, out), (FilterResult::default(), Bytes::new()));
    }

    #[test]
    fn what_stays_keeps_offsets_timestamps_headers_and_the_producers_state() {
        let (_, out) = filter(&sample(), &params(BatchRetention::DeleteEmpty), |r| r.offset == 11);
        let left = Batches::new(&out).next().unwrap().unwrap();
        left.ensure_valid().unwrap();
        let before = sample();
        let before = Batches::new(&before).next().unwrap().unwrap();
        assert_eq!((left.base_offset, left.last_offset()), (10, 12));
        assert_eq!((left.base_timestamp, left.max_timestamp, left.count), (300, 300, 1));
        assert_eq!(left.delete_horizon_ms(), None);
        assert_eq!(left.partition_leader_epoch, 4);
        assert_eq!((left.producer_id, left.producer_epoch), (7, 1));
        assert_eq!((left.base_sequence, left.last_sequence()), (3, before.last_sequence()));
        let mut buffers = BufferSupplier::new();
        let record = left.records(&NoCodecs, &mut buffers).unwrap().next().unwrap().unwrap();
        assert_eq!((record.offset, record.timestamp, record.key), (11, 300, Some(&b"b"[..])));
        assert_eq!(record.headers.len(), 1);
    }

    #[test]
    fn tombstones_get_a_delete_horizon_once() {
        let (_, out) = filter(&sample(), &params(BatchRetention::DeleteEmpty), |r| r.offset != 10);
        let left = Batches::new(&out).next().unwrap().unwrap();
        assert_eq!(left.delete_horizon_ms(), Some(5000));
        let mut buffers = BufferSupplier::new();
        let records = left.records(&NoCodecs, &mut buffers).unwrap();
        let timestamps: Vec<i64> = records.map(|record| record.unwrap().timestamp).collect();
        assert_eq!(timestamps, [300, 200], "timestamps are relative to the horizon and stay the same");
        let later = FilterParams { new_delete_horizon_ms: 9000, ..params(BatchRetention::DeleteEmpty) };
        let (_, again) = filter(&out, &later, |_| true);
        assert_eq!(again, out, "a horizon is not moved");
        let (_, again) = filter(&out, &later, |r| r.offset == 11);
        let left = Batches::new(&again).next().unwrap().unwrap();
        assert_eq!(left.delete_horizon_ms(), Some(5000), "nor lost with the tombstone");
    }

    #[test]
    fn an_empty_batch_keeps_its_range_where_it_must() {
        let (result, out) = filter(&sample(), &params(BatchRetention::RetainEmpty), |_| false);
        assert_eq!((result.records_read, result.records_retained, out.len()), (3, 0, 61));
        let left = Batches::new(&out).next().unwrap().unwrap();
        left.ensure_valid().unwrap();
        assert_eq!((left.base_offset, left.last_offset(), left.count), (10, 12, 0));
        assert_eq!((left.base_timestamp, left.max_timestamp), (-1, 300));
        assert_eq!((left.producer_id, left.base_sequence, left.last_sequence()), (7, 3, 5));
        assert_eq!(filter(&sample(), &params(BatchRetention::DeleteEmpty), |_| false).1, Bytes::new());
        let (_, again) = filter(&out, &params(BatchRetention::RetainEmpty), |_| true);
        assert_eq!(again, out, "an empty batch stays as it is");
        assert_eq!(filter(&out, &params(BatchRetention::DeleteEmpty), |_| true).1, Bytes::new());
    }

    #[test]
    fn a_marker_of_an_empty_transaction_gets_a_horizon() {
        let options = BatchOptions {
            base_offset: 5,
            producer_id: 7,
            producer_epoch: 0,
            is_transactional: true,
            is_control_batch: true,
            ..BatchOptions::default()
        };
        let mut builder = RecordBatchBuilder::new(options);
        let marker = EndTransactionMarker { committed: true, coordinator_epoch: 3 };
        builder.append_end_txn_marker(100, marker).unwrap();
        let marker = builder.build(&NoCodecs).unwrap();
        let empty =
            FilterParams { contains_marker_for_empty_txn: true, ..params(BatchRetention::DeleteEmpty) };
        let (_, out) = filter(&marker, &empty, |_| true);
        let left = Batches::new(&out).next().unwrap().unwrap();
        assert_eq!((left.delete_horizon_ms(), left.max_timestamp), (Some(5000), 100));
        assert!(left.is_control_batch() && left.is_transactional());
        let mut buffers = BufferSupplier::new();
        let record = left.records(&NoCodecs, &mut buffers).unwrap().next().unwrap().unwrap();
        assert_eq!(ControlRecordType::parse(record.key.unwrap()).unwrap(), ControlRecordType::Commit);
        assert_eq!(record.timestamp, 100);
    }

    #[test]
    fn log_append_time_is_every_records_timestamp() {
        let options = BatchOptions {
            timestamp_type: TimestampType::LogAppendTime,
            log_append_time: 777,
            ..BatchOptions::default()
        };
        let full = batch(options, &[(777, "a", Some("1")), (777, "b", Some("2"))]);
        let (_, out) = filter(&full, &params(BatchRetention::DeleteEmpty), |r| r.offset == 1);
        let left = Batches::new(&out).next().unwrap().unwrap();
        assert_eq!(left.timestamp_type(), TimestampType::LogAppendTime);
        assert_eq!((left.base_timestamp, left.max_timestamp), (777, 777));
    }
}
