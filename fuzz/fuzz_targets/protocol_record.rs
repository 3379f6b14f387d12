//! Every record in every version, and the records with their frames and prefixes as a log holds them.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use protocol::records::{group, metadata, share, storage, transaction};

fuzz_target!(|data: &[u8]| {
    let value = Bytes::copy_from_slice(data);
    if let Ok((record, version)) = metadata::MetadataRecord::decode(value.clone()) {
        let _ = record.to_bytes(version);
    }
    let _ = storage::RemoteLogMetadataRecord::decode(value.clone());
    macro_rules! keys_and_values {
        ($($table:ident),*) => {
            $(if let Ok(key) = $table::RecordKey::decode(value.clone()) {
                let _ = $table::RecordValue::decode(key.record_type(), value.clone());
            })*
        };
    }
    keys_and_values!(group, transaction, share);
    macro_rules! dispatch {
        ($($record:ty),* $(,)?) => { fuzz::by_first_bytes!(data, $($record),*) };
    }
    protocol::for_each_record!(dispatch);
});
