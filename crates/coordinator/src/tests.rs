//! The runtime under a state machine that adds numbers.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use protocol::ErrorCode;
use record::{BatchOptions, Compression, NoCodecs, RecordBatch, RecordBatchBuilder, Time};

use crate::*;

/// Numbers arrive as records; the sum is the state. `u8::MAX` cannot be replayed, `u8::MAX - 1` not be encoded.
#[derive(Default)]
struct Sum {
    sum: i64,
    snapshots: Vec<(i64, i64)>,
    committed: i64,
    done: VecDeque<(u32, Result<(), ErrorCode>)>,
    ended: Vec<(i64, TransactionResult)>,
    unloaded: bool,
}

impl CoordinatorShard for Sum {
    type Record = u8;
    type Deferred = u32;
    type TimerKey = u8;
    type Timeout = u8;

    fn encode(record: &u8) -> Result<RawRecord, ErrorCode> {
        match *record {
            254 => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
            number => Ok(RawRecord { key: Bytes::copy_from_slice(&[number]), value: None }),
        }
    }

    fn decode(record: RawRecord) -> Result<u8, DecodeRecordError> {
        match record.key.as_ref() {
            [number] => Ok(*number),
            [_, _] => Err(DecodeRecordError::UnknownRecordType(9)),
            _ => Err(DecodeRecordError::Malformed("no number".into())),
        }
    }

    fn replay(&mut self, _: Time, _: i64, _: Option<Producer>, record: u8) -> Result<(), ReplayError> {
        if record == u8::MAX {
            return Err(ReplayError("too much".into()));
        }
        self.sum += i64::from(record);
        Ok(())
    }

    fn replay_end_transaction_marker(
        &mut self,
        producer: Producer,
        result: TransactionResult,
    ) -> Result<(), ReplayError> {
        self.ended.push((producer.id, result));
        Ok(())
    }

    fn create_snapshot(&mut self, offset: i64) {
        self.snapshots.push((offset, self.sum));
    }

    fn revert_to(&mut self, offset: i64) {
        self.snapshots.retain(|(at, _)| *at <= offset);
        let (at, sum) = *self.snapshots.last().unwrap();
        assert_eq!(at, offset, "a snapshot at every offset that is reverted to");
        self.sum = sum;
    }

    fn commit_up_to(&mut self, offset: i64) {
        if let Some((_, sum)) = self.snapshots.iter().rfind(|(at, _)| *at <= offset) {
            self.committed = *sum;
        }
    }

    fn handle_loaded(&mut self, now: Time, timers: &mut Timers<Self>) {
        timers.schedule_in(now.monotonic, 1, 1_000, 7);
    }

    fn handle_unloaded(&mut self, _: Time) {
        self.unloaded = true;
    }

    fn handle_timer(
        &mut self,
        _: Time,
        _: &mut Timers<Self>,
        _: u8,
        timeout: u8,
    ) -> CoordinatorResult<u8, u32> {
        CoordinatorResult::new(vec![timeout], 1000)
    }

    fn complete(&mut self, _: Time, _: &mut Timers<Self>, deferred: u32, result: Result<(), ErrorCode>) {
        self.done.push_back((deferred, result));
    }
}

fn at(ms: u64) -> Time {
    Time::new(Duration::from_millis(ms), 1_000_000 + ms as i64)
}

fn active(options: CoordinatorOptions) -> CoordinatorContext<Sum> {
    let mut context = CoordinatorContext::new(options);
    assert!(context.begin_load(0, Sum::default()));
    context.finish_load(at(0), 0, 0).unwrap();
    context
}

fn write(context: &mut CoordinatorContext<Sum>, now: u64, numbers: &[u8], id: u32) {
    context.append(at(now), CoordinatorResult::new(numbers.to_vec(), id)).unwrap();
}

fn done(context: &mut CoordinatorContext<Sum>) -> Vec<(u32, Result<(), ErrorCode>)> {
    context.shard_mut().unwrap().0.done.drain(..).collect()
}

fn appended(context: &mut CoordinatorContext<Sum>, now: u64) -> PendingAppend {
    let append = context.poll_append(at(now)).unwrap();
    let AppendContent::Records(records) = &append.content else { panic!("{append:?}") };
    let last = append.base_offset + records.len() as i64 - 1;
    context.handle_appended(at(now), append.append_id, Ok(last));
    append
}

#[test]
fn what_comes_while_the_log_is_busy_shares_a_batch() {
    let mut c = active(CoordinatorOptions::default());
    write(&mut c, 0, &[1], 1);
    let first = c.poll_append(at(0)).unwrap();
    write(&mut c, 0, &[2], 2);
    write(&mut c, 0, &[3, 4], 3);
    assert_eq!(c.poll_append(at(0)), None, "one batch at a time");
    c.handle_appended(at(0), first.append_id, Ok(0));
    let second = appended(&mut c, 0);
    assert_eq!(second.base_offset, 1);
    assert!(matches!(&second.content, AppendContent::Records(records) if records.len() == 3));
    assert_eq!(done(&mut c), []);
    assert_eq!((c.shard().unwrap().sum, c.shard().unwrap().committed), (10, 0));
    c.handle_high_watermark(at(0), 1);
    assert_eq!((done(&mut c), c.shard().unwrap().committed), (vec![(1, Ok(()))], 1));
    // A high watermark in the middle of a batch commits none of it.
    c.handle_high_watermark(at(0), 3);
    assert_eq!((done(&mut c), c.shard().unwrap().committed), (vec![], 1));
    c.handle_high_watermark(at(0), 4);
    assert_eq!(done(&mut c), [(2, Ok(())), (3, Ok(()))]);
    assert_eq!(c.shard().unwrap().committed, 10);
}

#[test]
fn an_operation_without_records_waits_for_what_it_may_have_seen() {
    let mut c = active(CoordinatorOptions::default());
    write(&mut c, 0, &[], 1);
    assert_eq!(done(&mut c), [(1, Ok(()))], "nothing to wait for");
    write(&mut c, 0, &[5], 2);
    write(&mut c, 0, &[], 3);
    let append = c.poll_append(at(0)).unwrap();
    write(&mut c, 0, &[], 4);
    c.handle_appended(at(0), append.append_id, Ok(0));
    write(&mut c, 0, &[], 5);
    assert_eq!(done(&mut c), []);
    c.handle_high_watermark(at(0), 1);
    assert_eq!(done(&mut c), [2, 3, 4, 5].map(|id| (id, Ok(()))));
}

#[test]
fn a_failed_batch_takes_all_with_it_that_was_decided_after_it() {
    let mut c = active(CoordinatorOptions::default());
    write(&mut c, 0, &[1], 1);
    appended(&mut c, 0);
    write(&mut c, 0, &[10], 2);
    let append = c.poll_append(at(0)).unwrap();
    write(&mut c, 0, &[20], 3);
    write(&mut c, 0, &[], 4);
    c.handle_appended(at(0), append.append_id, Err(ErrorCode::NOT_ENOUGH_REPLICAS));
    let failed = Err(ErrorCode::NOT_ENOUGH_REPLICAS);
    assert_eq!(done(&mut c), [(2, failed), (3, failed), (4, failed)]);
    assert_eq!((c.shard().unwrap().sum, c.next_offset()), (1, Some(1)));
    write(&mut c, 0, &[7], 5);
    assert_eq!(appended(&mut c, 0).base_offset, 1);
    c.handle_high_watermark(at(0), 2);
    assert_eq!(done(&mut c), [(1, Ok(())), (5, Ok(()))]);
    assert_eq!(c.metrics().failed_writes, 3);
}

#[test]
fn batches_keep_below_their_limit_and_atomic_operations_stay_whole() {
    let mut c = active(CoordinatorOptions { max_batch_size: 61 + 3 * 33, ..Default::default() });
    write(&mut c, 0, &[1, 2], 1);
    write(&mut c, 0, &[3, 4], 2);
    c.append(at(0), CoordinatorResult::non_atomic(vec![5, 6, 7], 3)).unwrap();
    let mut sizes = Vec::new();
    while let Some(append) = c.poll_append(at(0)) {
        let AppendContent::Records(records) = &append.content else { panic!("{append:?}") };
        sizes.push(records.len());
        c.handle_appended(at(0), append.append_id, Ok(append.base_offset + records.len() as i64 - 1));
    }
    assert_eq!(sizes, [2, 3, 2]);
    c.handle_high_watermark(at(0), 6);
    assert_eq!(done(&mut c), [(1, Ok(())), (2, Ok(()))], "an operation is done with its last batch");
    c.handle_high_watermark(at(0), 7);
    assert_eq!(done(&mut c), [(3, Ok(()))]);
}

#[test]
fn records_may_linger_for_company() {
    let linger = Some(Duration::from_millis(10));
    let mut c = active(CoordinatorOptions { append_linger: linger, ..Default::default() });
    write(&mut c, 5, &[1], 1);
    assert_eq!(c.poll_append(at(14)), None);
    assert_eq!(c.poll_deadline(), Some(Duration::from_millis(15)));
    assert!(c.poll_append(at(15)).is_some());
}

#[test]
fn waiting_ends_after_the_write_timeout() {
    let mut c = active(CoordinatorOptions::default());
    write(&mut c, 0, &[1], 1);
    appended(&mut c, 0);
    assert_eq!(c.poll_deadline(), Some(Duration::from_secs(1)), "the shard's own timer");
    c.handle_timeout(at(4_999));
    assert_eq!(done(&mut c), []);
    c.handle_timeout(at(5_000));
    assert_eq!(done(&mut c), [(1, Err(ErrorCode::REQUEST_TIMED_OUT))]);
    c.handle_high_watermark(at(5_001), 1);
    assert_eq!(done(&mut c), [], "once only");
    assert_eq!(c.shard().unwrap().committed, 1);
}

#[test]
fn timers_write_too() {
    let mut c = active(CoordinatorOptions::default());
    c.handle_timeout(at(1_000));
    appended(&mut c, 1_000);
    c.handle_high_watermark(at(1_000), 1);
    assert_eq!((done(&mut c), c.shard().unwrap().sum), (vec![(1000, Ok(()))], 7));
}

#[test]
fn a_decision_that_cannot_be_encoded_or_applied_fails() {
    let mut c = active(CoordinatorOptions::default());
    write(&mut c, 0, &[1], 1);
    write(&mut c, 0, &[254], 2);
    let failed = Err(ErrorCode::UNKNOWN_SERVER_ERROR);
    assert_eq!(done(&mut c), [(2, failed)], "before anything has changed");
    write(&mut c, 0, &[2, 255], 3);
    assert_eq!(done(&mut c), [(1, failed), (3, failed)], "with the whole batch");
    assert_eq!((c.shard().unwrap().sum, c.poll_append(at(0))), (0, None));
}

#[test]
fn an_unexpected_offset_stops_the_shard_until_it_is_loaded_again() {
    let mut c = active(CoordinatorOptions::default());
    write(&mut c, 0, &[1], 1);
    let append = c.poll_append(at(0)).unwrap();
    c.handle_appended(at(0), append.append_id, Ok(5));
    assert_eq!(c.state(), CoordinatorState::Failed);
    let stopped = c.take_stopped().unwrap();
    assert!(stopped.unloaded);
    assert_eq!(stopped.done, [(1, Err(ErrorCode::NOT_COORDINATOR))]);
    assert!(c.take_reload() && !c.take_reload());
    assert!(c.begin_load(0, Sum::default()));
}

#[test]
fn an_inactive_context_gives_the_operation_back() {
    let mut c: CoordinatorContext<Sum> = CoordinatorContext::new(CoordinatorOptions::default());
    let refused =
        |c: &mut CoordinatorContext<Sum>| c.append(at(0), CoordinatorResult::new(vec![1], 1)).unwrap_err().0;
    assert_eq!(refused(&mut c), ErrorCode::NOT_COORDINATOR);
    assert!(c.begin_load(3, Sum::default()));
    assert_eq!(refused(&mut c), ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
    assert!(!c.begin_load(3, Sum::default()) && !c.begin_load(2, Sum::default()));
    assert!(!c.unload(at(0), Some(3)), "the resignation of an epoch that has begun again");
    c.fail_load(at(0));
    assert_eq!((refused(&mut c), c.metrics().failed_loads), (ErrorCode::NOT_COORDINATOR, 1));
    assert!(c.begin_load(3, Sum::default()), "a failed load may be tried again");
    assert!(c.unload(at(0), Some(4)));
    assert_eq!(c.state(), CoordinatorState::Initial);
    assert_eq!(c.finish_load(at(0), 0, 0), Err(LoadError::NotLoading));
}

fn batch(base_offset: i64, keys: &[&[u8]]) -> Bytes {
    let mut builder = RecordBatchBuilder::new(BatchOptions { base_offset, ..Default::default() });
    for key in keys {
        builder.append(0, Some(key), None, &[]).unwrap();
    }
    builder.build(&NoCodecs).unwrap()
}

#[test]
fn loading_applies_what_it_knows_and_shows_what_is_committed() {
    let mut c = CoordinatorContext::new(CoordinatorOptions::default());
    c.begin_load(0, Sum::default());
    let marker = PendingAppend {
        append_id: 1,
        base_offset: 3,
        timestamp_ms: 0,
        producer: Some(Producer { id: 8, epoch: 2 }),
        content: AppendContent::EndTransactionMarker {
            result: TransactionResult::Abort,
            coordinator_epoch: 4,
        },
    };
    let marker = marker.to_batch(Compression::None, &NoCodecs).unwrap();
    for bytes in [batch(0, &[&[1], &[9, 9], &[2]]), marker, batch(4, &[&[4]])] {
        c.handle_loaded_batches(at(0), &bytes, &NoCodecs, 4).unwrap();
    }
    c.finish_load(at(0), 5, 4).unwrap();
    let shard = c.shard().unwrap();
    assert_eq!((shard.sum, shard.committed), (7, 3));
    assert_eq!(shard.ended, [(8, TransactionResult::Abort)]);
    assert_eq!((c.next_offset(), c.last_committed_offset()), (Some(5), Some(4)));
    c.handle_high_watermark(at(0), 5);
    assert_eq!(c.shard().unwrap().committed, 7);
    assert_eq!(c.metrics().loaded_records, 5);
}

#[test]
fn garbage_in_the_log_fails_the_load() {
    for (bytes, replay) in [
        (batch(0, &[&[]]), false),
        (batch(0, &[&[255]]), true),
        (Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0, 0, 9]), false),
    ] {
        let mut c = CoordinatorContext::new(CoordinatorOptions::default());
        c.begin_load(0, Sum::default());
        let error = c.handle_loaded_batches(at(0), &bytes, &NoCodecs, 1).unwrap_err();
        assert_eq!(matches!(error, LoadError::Replay(_)), replay, "{error}");
    }
}

#[test]
fn transactions_have_batches_of_their_own() {
    let mut c = active(CoordinatorOptions::default());
    write(&mut c, 0, &[1], 1);
    let producer = Producer { id: 8, epoch: 0 };
    let transactional =
        CoordinatorResult { producer: Some(producer), ..CoordinatorResult::new(vec![2u8, 3], 2u32) };
    c.append(at(0), transactional).unwrap();
    write(&mut c, 0, &[4], 3);
    c.complete_transaction(at(0), producer, 5, TransactionResult::Commit, 4).unwrap();
    let mut seen = Vec::new();
    while let Some(append) = c.poll_append(at(0)) {
        let bytes = append.to_batch(Compression::None, &NoCodecs).unwrap();
        let batch = RecordBatch::first(&bytes).unwrap().unwrap();
        seen.push((batch.base_offset, batch.count, batch.is_transactional(), batch.is_control_batch()));
        c.handle_appended(at(0), append.append_id, Ok(batch.last_offset()));
    }
    assert_eq!(seen, [(0, 1, false, false), (1, 2, true, false), (3, 1, false, false), (4, 1, true, true)]);
    c.handle_high_watermark(at(0), 5);
    assert_eq!(done(&mut c), [1, 2, 3, 4].map(|id| (id, Ok(()))));
}
