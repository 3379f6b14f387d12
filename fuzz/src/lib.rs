//! What the fuzz targets share. For messages: decode, and check that what was decoded survives encoding.

pub mod disk;

use bytes::Bytes;
use protocol::{Decoder, EncodeError, Encoder, Message};

/// Decodes `body`; when that works, what is encoded from it must decode and encode to the same bytes again.
pub fn round_trip<M: Message>(body: Bytes, version: i16) {
    let Ok(message) = M::decode(&mut Decoder::new(body), version) else { return };
    let Some(first) = encode(&message, version) else { return };
    let mut r = Decoder::new(first.clone());
    let again = M::decode(&mut r, version).expect("what was encoded decodes");
    assert_eq!(r.remaining(), 0, "{} v{version}", M::NAME);
    assert_eq!(encode(&again, version), Some(first), "{} v{version}", M::NAME);
}

fn encode<M: Message>(message: &M, version: i16) -> Option<Bytes> {
    let mut w = Encoder::new();
    match message.encode(&mut w, version) {
        Ok(()) => Some(w.finish_contiguous().expect("no external records")),
        // Replacing malformed text can lengthen a string beyond the limit.
        Err(EncodeError::TooLong { .. }) => None,
        Err(error) => panic!("{} v{version} decoded but does not encode: {error}", M::NAME),
    }
}

/// Picks one of the types by the first byte, the version by the second, and hands on the rest.
#[macro_export]
macro_rules! by_first_bytes {
    ($data:expr, $($message:ty),* $(,)?) => {{
        let [kind, version, body @ ..] = $data else { return };
        let targets: &[(i16, i16, fn(bytes::Bytes, i16))] = &[$((
            <$message as protocol::Message>::MIN_VERSION,
            <$message as protocol::Message>::MAX_VERSION,
            $crate::round_trip::<$message>,
        )),*];
        // A list has up to 95 entries; the modulus lets every byte mean something.
        let (min, max, run) = targets[usize::from(*kind) % targets.len()];
        run(bytes::Bytes::copy_from_slice(body), min + i16::from(*version) % (max - min + 1));
    }};
}
