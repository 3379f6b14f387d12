//! Measures what one core does to a batch on its way into the log:
//! `cargo run --release -p record --example throughput`.
#![allow(clippy::disallowed_methods)] // A measurement reads the clock.

use bytes::Bytes;
use record::{
    AnalyzeParams, AppendOrigin, BatchOptions, BufferSupplier, NoCodecs, RecordBatch, RecordBatchBuilder,
    TopicPartition, ValidationParams, analyze_and_validate_records, crc, validate_and_assign_offsets,
};
use std::hint::black_box;
use std::time::{Duration, Instant};

const NOW: i64 = 1_700_000_000_000;
const RUN: Duration = Duration::from_millis(700);

/// Bytes per second of `work`, which handles `size` bytes each time; the best of three.
fn measure(name: &str, size: usize, mut work: impl FnMut()) {
    let mut best = 0.0f64;
    for _ in 0..3 {
        let start = Instant::now();
        let mut rounds = 0u64;
        while start.elapsed() < RUN {
            for _ in 0..64 {
                work();
            }
            rounds += 64;
        }
        best = best.max(rounds as f64 * size as f64 / start.elapsed().as_secs_f64());
    }
    println!("{name:<44} {:>9.0} MB/s", best / 1e6);
}

fn batch(record_size: usize, batch_size: usize) -> Bytes {
    let value: Vec<u8> = (0..record_size).map(|i| (i * 31) as u8).collect();
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    while builder.uncompressed_size() + record_size + 16 < batch_size {
        builder.append(NOW, None, Some(&value), &[]).expect("a good record");
    }
    builder.build(&NoCodecs).expect("a good batch")
}

fn main() {
    let partition = TopicPartition::new("topic", 0);
    println!("crc-fast uses {}", crc_fast::get_calculator_target(crc_fast::CrcAlgorithm::Crc32Iscsi));
    for size in [100, 1 << 10, 16 << 10, 1 << 20] {
        let bytes = vec![7u8; size];
        measure(&format!("crc32c of {size} B"), size, || {
            black_box(crc::crc32c(black_box(&bytes)));
        });
    }
    for (record_size, batch_size) in
        [(100, 16 << 10), (1 << 10, 16 << 10), (100, 1 << 20), (1 << 10, 1 << 20)]
    {
        let bytes = batch(record_size, batch_size);
        let label = format!("{record_size} B records, batch of {} KiB", batch_size >> 10);
        let analyze = AnalyzeParams {
            topic_partition: &partition,
            origin: AppendOrigin::Client,
            max_message_size: Some(2 << 20),
            require_offsets_monotonic: false,
            leader_epoch: 0,
        };
        let validate = ValidationParams::new(&partition, NOW, 1000);
        let mut buffers = BufferSupplier::new();
        measure(&format!("{label}: iterate"), bytes.len(), || {
            let batch = RecordBatch::first(&bytes).expect("good").expect("whole");
            let mut scratch = BufferSupplier::new();
            let records = batch.records(&NoCodecs, &mut scratch).expect("good");
            black_box(records.map(|record| record.expect("good").timestamp).sum::<i64>());
        });
        measure(&format!("{label}: append checks"), bytes.len(), || {
            black_box(analyze_and_validate_records(&bytes, &analyze).expect("good"));
            let batch = validate_and_assign_offsets(bytes.clone(), &validate, &NoCodecs, &mut buffers);
            black_box(batch.expect("good").header_bytes());
        });
        let value = vec![3u8; record_size];
        measure(&format!("{label}: build"), bytes.len(), || {
            let mut builder = RecordBatchBuilder::new(BatchOptions::default());
            while builder.uncompressed_size() + record_size + 16 < batch_size {
                builder.append(NOW, None, Some(&value), &[]).expect("a good record");
            }
            black_box(builder.build(&NoCodecs).expect("a good batch"));
        });
    }
}
