//! A frame as it comes from a connection: header, then the body of any request in the version that the header names.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use protocol::{Decoder, Message, Request, RequestHeader};

fuzz_target!(|data: &[u8]| {
    let mut r = Decoder::new(Bytes::copy_from_slice(data));
    let Ok(header) = RequestHeader::decode(&mut r) else { return };
    let body = r.take_rest();
    macro_rules! dispatch {
        ($($request:ty),* $(,)?) => {
            $(if header.api_key == <$request as Request>::API_KEY {
                if <$request as Message>::supports(header.api_version) {
                    fuzz::round_trip::<$request>(body, header.api_version);
                }
                return;
            })*
        };
    }
    protocol::for_each_request!(dispatch);
});
