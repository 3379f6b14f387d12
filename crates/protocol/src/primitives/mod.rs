//! How the protocol's primitive types stand on the wire: bounded reading (`Decoder`), splicing writing (`Encoder`).
//!
//! Small helpers that the generated code calls; no message knowledge. Nothing here panics on any input.

mod decoder;
mod encoder;
mod error;
mod uuid;

pub use decoder::Decoder;
pub use encoder::{Chunk, Encoded, Encoder, Records};
pub use error::{DecodeError, EncodeError};
pub use uuid::{ParseUuidError, Uuid};

/// A string longer than this cannot be serialized, in any encoding.
pub const MAX_STRING_LENGTH: usize = 0x7fff;

/// A part of a message: what the generated structs can do. `MIN_SIZE` is the least number of bytes of one instance
/// in any version, by which the count of an array is bounded before anything is allocated for it.
pub trait Wire: Sized {
    const MIN_SIZE: usize;

    fn read(r: &mut Decoder, version: i16) -> Result<Self, DecodeError>;

    /// Errors are kept in the encoder; see [`Encoder::status`].
    fn write(&self, w: &mut Encoder, version: i16);
}
