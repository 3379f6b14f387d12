//! Decompression of arbitrary bytes, and the round trip of arbitrary bytes, with every codec.
#![no_main]

use compression::KafkaCodecs;
use libfuzzer_sys::fuzz_target;
use record::{Codecs, Compression, CompressionType};

const LIMIT: usize = 4 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    let kind = CompressionType::from_id(choice % 5).unwrap_or_default();
    let magic = (choice / 5 % 3) as i8;
    let mut out = Vec::new();
    let _ = KafkaCodecs.decompress(kind, magic, data, LIMIT, &mut out);
    assert!(out.len() <= LIMIT);
    let mut packed = Vec::new();
    KafkaCodecs.compress(Compression::of(kind), magic, data, &mut packed).expect("compresses");
    out.clear();
    if data.is_empty() && kind == CompressionType::Snappy {
        return;
    }
    KafkaCodecs.decompress(kind, magic, &packed, LIMIT, &mut out).expect("its own output");
    assert_eq!(out, data);
});
