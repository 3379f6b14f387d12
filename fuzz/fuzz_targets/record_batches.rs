//! Arbitrary bytes as a region of a log: every reader of batches of all formats, with every codec.
#![no_main]

use bytes::Bytes;
use compression::KafkaCodecs;
use libfuzzer_sys::fuzz_target;
use record::{
    BatchHeader, Batches, BufferSupplier, Compression, ControlRecordType, EndTransactionMarker, legacy,
};

/// Enough for any input to swell visibly, little enough to stay within libFuzzer's memory limit.
const LIMIT: usize = 4 << 20;

fuzz_target!(|data: &[u8]| {
    let _ = BatchHeader::parse(data);
    let mut buffers = BufferSupplier::new();
    for batch in Batches::new(data) {
        let Ok(batch) = batch else { break };
        let _ = (batch.is_valid(), batch.last_offset(), batch.last_sequence(), batch.delete_horizon_ms());
        if let Ok(records) = batch.records_within(&KafkaCodecs, &mut buffers, LIMIT) {
            for record in records {
                let Ok(record) = record else { break };
                assert_eq!(record.headers.iter().count(), record.headers.len());
                if let (true, Some(key)) = (batch.is_control_batch(), record.key) {
                    let _ = ControlRecordType::parse(key);
                    let _ = EndTransactionMarker::deserialize(key, record.value.unwrap_or_default());
                }
            }
        }
        let owner = Bytes::copy_from_slice(batch.bytes());
        if let Ok(Some(owned)) = record::RecordBatch::first(&owner) {
            let _ = owned.owned_records(&owner, &KafkaCodecs, LIMIT);
        }
        if let Ok(stream) = batch.stream(&KafkaCodecs, &mut buffers, LIMIT) {
            let mut stream = stream.limit_window(LIMIT);
            while let Some(Ok(_)) = stream.next_record() {}
        }
        let _ = legacy::up_convert(&batch, Compression::None, &KafkaCodecs, &mut buffers, LIMIT);
    }
});
