//! The traits of whole messages.

use crate::{ApiKey, DecodeError, Decoder, EncodeError, Encoder, Wire};

/// A message or record of the schema, in all its versions.
pub trait Message: Wire + Default {
    /// The schema's name.
    const NAME: &'static str;
    const MIN_VERSION: i16;
    const MAX_VERSION: i16;
    /// The first version with compact types and tagged fields; `i16::MAX` when there is none (KIP-482).
    const FIRST_FLEXIBLE: i16;

    /// Reads the message; bytes after it are left in the decoder.
    fn decode(r: &mut Decoder, version: i16) -> Result<Self, DecodeError> {
        if !Self::supports(version) {
            return Err(DecodeError::UnsupportedVersion { message: Self::NAME, version });
        }
        Self::read(r, version)
    }

    /// Writes the message. Fails when a field holds what this version cannot carry; the encoder is then unusable.
    fn encode(&self, w: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        if !Self::supports(version) {
            w.fail(EncodeError::UnsupportedVersion { message: Self::NAME, version });
        } else {
            self.write(w, version);
        }
        w.status()
    }

    fn supports(version: i16) -> bool {
        (Self::MIN_VERSION..=Self::MAX_VERSION).contains(&version)
    }
}

pub trait Request: Message {
    const API_KEY: ApiKey;
    type Response: Message;
}
