//! What a log should hold, kept beside it while it is written, and the comparison after a reboot.

use std::collections::BTreeMap;

use bytes::Bytes;
use record::{Batches, NoCodecs};
use storage::{FetchIsolation, UnifiedLog};

/// A batch as it must be in the log.
#[derive(Clone, Debug)]
pub struct Written {
    pub bytes: Bytes,
    pub base_offset: i64,
    pub last_offset: i64,
    pub epoch: i32,
}

impl Written {
    pub fn header(&self) -> record::BatchHeader {
        *Batches::new(&self.bytes).next().unwrap().unwrap().header()
    }

    /// Offsets, producer and sequence, for messages.
    fn summary(&self) -> (i64, i64, i64, i32) {
        let batch = self.header();
        (self.base_offset, self.last_offset, batch.producer_id, batch.base_sequence)
    }
}

/// What a log should hold.
#[derive(Clone, Default)]
pub struct Model {
    pub batches: Vec<Written>,
    /// Records below are durable.
    pub flushed: i64,
    /// The greatest log start asked for.
    pub log_start: i64,
    /// A log start that is durable: no reboot may take it back.
    pub durable_start: i64,
    /// Where the log ends if it holds nothing: a start behind everything that survived begins an empty log there.
    pub empty_end: i64,
    pub epoch: i32,
    pub next_sequence: BTreeMap<i64, i32>,
    pub open_txns: BTreeMap<i64, i64>,
    /// Batches that may have reached the log although their append failed.
    pub in_flight: Vec<Bytes>,
    /// A truncation that was interrupted.
    pub truncating: Option<i64>,
}

impl Model {
    pub fn end(&self) -> i64 {
        self.batches.last().map_or(0, |batch| batch.last_offset + 1).max(self.empty_end)
    }

    pub fn truncate(&mut self, offset: i64) {
        self.batches.retain(|batch| batch.last_offset < offset);
        self.flushed = self.flushed.min(offset);
        self.empty_end = self.empty_end.min(offset);
        self.log_start = self.log_start.min(offset);
        self.durable_start = self.durable_start.min(offset);
        self.replay();
    }

    /// Everything below the log's end was cut, and it goes on at `offset`.
    pub fn start_anew(&mut self, offset: i64) {
        self.batches.clear();
        (self.flushed, self.log_start, self.durable_start) = (offset, offset, offset);
        self.empty_end = offset;
        self.replay();
    }

    /// Producer expectations from the batches.
    pub fn replay(&mut self) {
        self.next_sequence.clear();
        self.open_txns.clear();
        for written in &self.batches {
            let batch = Batches::new(&written.bytes).next().unwrap().unwrap();
            let id = batch.producer_id;
            if batch.is_control_batch() {
                self.open_txns.remove(&id);
                continue;
            }
            self.next_sequence.insert(id, batch.last_sequence() + 1);
            if batch.is_transactional() {
                self.open_txns.entry(id).or_insert(written.base_offset);
            }
        }
    }

    /// Whether only markers are left of a producer in a log that starts at `start`. Then, as in the reference, its next
    /// records are out of order: a marker gives it an epoch, but no sequence.
    pub fn has_only_markers(&self, producer_id: i64, start: i64) -> bool {
        let mut visible = self.batches.iter().filter(|written| written.last_offset >= start);
        visible.all(|written| {
            let batch = Batches::new(&written.bytes).next().unwrap().unwrap();
            batch.producer_id != producer_id || batch.is_control_batch()
        })
    }

    /// The batch that a running log has at `offset`, taken over.
    pub fn take_over(&mut self, log: &UnifiedLog, offset: i64) -> Result<i64, String> {
        let read = log.read(offset, 1, FetchIsolation::LogEnd, true).map_err(|e| e.to_string())?;
        let records = read.records.ok_or_else(|| format!("nothing at {offset}"))?;
        let bytes = records.read().map_err(|e| e.to_string())?;
        let batch = Batches::new(&bytes).next().unwrap().unwrap();
        let (base_offset, last_offset, epoch) =
            (batch.base_offset, batch.last_offset(), batch.partition_leader_epoch);
        self.batches.push(Written { bytes: bytes.clone(), base_offset, last_offset, epoch });
        self.replay();
        Ok(last_offset + 1)
    }
}

/// After a reboot: what must hold of the log, whatever was lost. The model becomes what is there.
pub fn check(log: &UnifiedLog, model: &mut Model, context: &str) {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    assert!(end >= model.flushed, "{context}: log ends at {end}, {} was flushed", model.flushed);
    // Between two checkpoints a new start may be lost, as the reference's: deleted records are there again. They are
    // at most those since the last start that was made durable.
    assert!(start >= model.durable_start, "{context}: starts at {start}, not {}", model.durable_start);
    assert!(start <= model.log_start, "{context}: starts at {start}, not {}", model.log_start);
    let mut expected: Vec<Written> = model.batches.clone();
    let found = check_records(log, model, context);
    // What lies below the log's start is gone for good; the rest is what the log holds now.
    expected.retain(|written| written.last_offset < start);
    model.empty_end = if found.is_empty() { end } else { 0 };
    expected.extend(found);
    model.batches = expected;
    model.in_flight.clear();
    model.truncating = None;
    model.flushed = model.flushed.min(end);
    model.log_start = start;
    // What a start has read is durable: it syncs what it takes a log's start from.
    model.durable_start = start;
    model.replay();
    check_producers(log, model, start, context);
}

/// Every record from the log's start to its end: written by somebody, at the place it was acknowledged for, found by
/// every offset and by its timestamp.
pub fn check_records(log: &UnifiedLog, model: &Model, context: &str) -> Vec<Written> {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let mut found = Vec::new();
    let mut offset = start;
    let mut max_timestamp = -1;
    let below = model.batches.iter().filter(|written| written.last_offset < start);
    let hidden = below.map(|written| written.header().max_timestamp).max().unwrap_or(-1);
    while offset < end {
        let info = log.read(offset, 1, FetchIsolation::LogEnd, true);
        let info = info.unwrap_or_else(|e| panic!("{context}: reading {offset}: {e}"));
        let bytes = info.records.unwrap_or_else(|| panic!("{context}: nothing at {offset} below {end}"));
        let bytes = bytes.read().unwrap();
        let batch = Batches::new(&bytes).next().unwrap().unwrap();
        assert!(batch.is_valid(), "{context}: bad checksum at {offset}");
        assert!(batch.base_offset <= offset && batch.last_offset() >= offset, "{context}: gap at {offset}");
        let written = match model.batches.iter().find(|w| w.base_offset == batch.base_offset) {
            Some(written) => {
                assert_eq!(written.bytes, bytes, "{context}: other bytes at {offset}");
                written.clone()
            }
            None => {
                // Only an append that failed may be new, and only at the end.
                let was_sent = model.in_flight.iter().any(|sent| sent[61..] == bytes[61..]);
                assert!(was_sent, "{context}: unknown batch at {offset}");
                assert_eq!(batch.base_offset, model.end(), "{context}: unknown batch at {offset}");
                let (base_offset, last_offset) = (batch.base_offset, batch.last_offset());
                let epoch = batch.partition_leader_epoch;
                Written { bytes: bytes.clone(), base_offset, last_offset, epoch }
            }
        };
        assert_eq!(log.epoch_for_offset(offset), Some(written.epoch), "{context}: epoch of {offset}");
        // Every offset finds its batch through the indexes.
        for offset in written.base_offset.max(start)..=written.last_offset {
            let read = log.read(offset, 1, FetchIsolation::LogEnd, true).unwrap();
            assert_eq!(read.fetch_offset.message_offset, written.base_offset, "{context}: index at {offset}");
        }
        if batch.max_timestamp > max_timestamp {
            max_timestamp = batch.max_timestamp;
            let by_time = log.fetch_offset_by_timestamp(max_timestamp).unwrap();
            match by_time {
                Some(found) => {
                    let expected = written.base_offset.max(start);
                    assert_eq!(found.offset, expected, "{context}: timestamp {max_timestamp}");
                }
                // As in the reference the first segment that is young enough answers, also when the record that makes it
                // so lies below the log's start.
                None => assert!(hidden >= max_timestamp, "{context}: no offset for {max_timestamp}"),
            }
        }
        offset = batch.next_offset();
        found.push(written);
    }
    assert_eq!(offset, end, "{context}");
    if max_timestamp >= 0 {
        let behind = log.fetch_offset_by_timestamp(max_timestamp + 1).unwrap();
        assert!(behind.is_none(), "{context}: a record younger than the youngest: {behind:?}");
    }
    found
}

/// Producers' sequences, open transactions and aborted ones, as the records of the log say.
pub fn check_producers(log: &UnifiedLog, model: &Model, start: i64, context: &str) {
    log.update_high_watermark(log.log_end_offset());
    // Of a transaction that began below the log's start a start that reads the log knows a later beginning, if any.
    let batches = model.batches.iter().filter(|w| w.last_offset >= start).cloned().collect();
    let mut visible = Model { batches, ..Model::default() };
    visible.replay();
    let end = log.log_end_offset();
    let earliest = model.open_txns.values().min().map_or(end, |first| (*first).max(start));
    let latest = visible.open_txns.values().min().map_or(end, |first| (*first).max(start));
    let stable = log.last_stable_offset();
    assert!(
        (earliest..=latest).contains(&stable),
        "{context}: last stable offset {stable}, not in {earliest}..={latest}, start {start}, open {:?} {:?}: {:?}",
        model.open_txns,
        log.active_producers(),
        model.batches.iter().map(Written::summary).collect::<Vec<_>>()
    );
    for producer in log.active_producers() {
        let id = producer.producer_id;
        let last = model.next_sequence.get(&id).map(|next| next - 1);
        // A sequence that was cut, or never was, would refuse what comes or take it for a duplicate.
        assert!(
            producer.last_sequence < 0 || last == Some(producer.last_sequence),
            "{context}: producer {id} is known for {}, not {last:?}, in {:?}",
            producer.last_sequence,
            model.batches.iter().map(Written::summary).collect::<Vec<_>>()
        );
    }
    let known = log.active_producers();
    for (id, next) in &visible.next_sequence {
        let producer = known.iter().find(|producer| producer.producer_id == *id);
        let producer = producer.unwrap_or_else(|| panic!("{context}: producer {id} is unknown"));
        assert_eq!(producer.last_sequence, next - 1, "{context}: producer {id}");
    }
    check_aborted(log, model, start, context);
}

/// The transaction indexes list exactly the aborted transactions of the log.
fn check_aborted(log: &UnifiedLog, model: &Model, start: i64, context: &str) {
    // First offset, and first offset that is in the log.
    let mut open: BTreeMap<i64, (i64, Option<i64>)> = BTreeMap::new();
    let mut expected = Vec::new();
    for written in &model.batches {
        let batch = Batches::new(&written.bytes).next().unwrap().unwrap();
        if !batch.is_control_batch() {
            if batch.is_transactional() {
                let entry = open.entry(batch.producer_id).or_insert((written.base_offset, None));
                if written.last_offset >= start {
                    entry.1 = entry.1.or(Some(written.base_offset.max(start)));
                }
            }
            continue;
        }
        let first = open.remove(&batch.producer_id);
        let mut buffers = record::BufferSupplier::new();
        let record = batch.records(&NoCodecs, &mut buffers).unwrap().next().unwrap().unwrap();
        let (key, value) = (record.key.unwrap(), record.value.unwrap());
        let marker = record::EndTransactionMarker::deserialize(key, value).unwrap();
        if let Some((first, visible)) = first.filter(|_| !marker.committed) {
            expected.push((batch.producer_id, first, visible, written.last_offset));
        }
    }
    let found = log.collect_aborted_transactions(start, i64::MAX).unwrap();
    let found: Vec<_> = found.iter().map(|t| (t.producer_id, t.first_offset, t.last_offset)).collect();
    for (id, first, visible, last) in &expected {
        // Of a transaction that began below the log's start the index may name a later beginning, but none of its
        // records that is there may be taken for committed.
        let Some(visible) = visible else { continue };
        let is_listed = found.iter().any(|(i, f, l)| (i, l) == (id, last) && (first..=visible).contains(&f));
        assert!(is_listed, "{context}: aborted {:?} is not among {found:?}", (id, first, visible, last));
    }
    for (id, first, last) in found.iter().filter(|(_, _, last)| *last >= start) {
        let is_known = expected.iter().any(|(i, f, _, l)| (i, l) == (id, last) && f <= first);
        assert!(is_known, "{context}: {:?} was not aborted", (id, first, last));
    }
}
