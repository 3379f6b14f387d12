//! A size prefix, a request header in any version, and a response header.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use protocol::{Decoder, Encoder, RequestHeader, ResponseHeader};

fuzz_target!(|data: &[u8]| {
    let mut frame = Decoder::new(Bytes::copy_from_slice(data));
    let Ok(size) = frame.i32() else { return };
    let Ok(size) = usize::try_from(size) else { return };
    let Ok(body) = frame.take(size) else { return };
    for version in [0, 1] {
        let _ = ResponseHeader::decode(&mut Decoder::new(body.clone()), version);
    }
    let mut r = Decoder::new(body);
    let Ok(header) = RequestHeader::decode(&mut r) else { return };
    let mut w = Encoder::new();
    if header.encode(&mut w).is_ok() {
        let bytes = w.finish_contiguous().expect("no external records");
        assert_eq!(RequestHeader::decode(&mut Decoder::new(bytes)), Ok(header));
    }
});
