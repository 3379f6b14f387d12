//! Every response in every version, as a client or a follower reads it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    macro_rules! dispatch {
        ($($response:ty),* $(,)?) => { fuzz::by_first_bytes!(data, $($response),*) };
    }
    protocol::for_each_response!(dispatch);
});
