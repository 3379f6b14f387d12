//! `Uuid`: 16 bytes, printed as Kafka does (URL-safe base64 without padding, 22 characters).

use std::fmt;
use std::str::FromStr;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// No id.
    pub const ZERO: Uuid = Uuid([0; 16]);
    /// The topic id of `__cluster_metadata`.
    pub const METADATA_TOPIC_ID: Uuid = Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

    pub const fn from_halves(most_significant: u64, least_significant: u64) -> Uuid {
        Uuid((((most_significant as u128) << 64) | least_significant as u128).to_be_bytes())
    }

    pub fn is_zero(self) -> bool {
        self == Uuid::ZERO
    }

    /// A random (version 4) id from 16 random bytes; `None` where the reference draws again, that is for ids that
    /// begin with a dash, which command lines would take for an option. Reserved ids are not of version 4.
    pub fn from_random(mut random: [u8; 16]) -> Option<Uuid> {
        random[6] = (random[6] & 0x0f) | 0x40;
        random[8] = (random[8] & 0x3f) | 0x80;
        let uuid = Uuid(random);
        (!uuid.to_string().starts_with('-')).then_some(uuid)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 128 bits, padded with 4 zero bits at the low end to 22 groups of 6.
        let value = u128::from_be_bytes(self.0);
        let mut text = [0_u8; 22];
        for (i, slot) in text.iter_mut().enumerate() {
            let group = if i == 21 { (value << 4) & 63 } else { (value >> (122 - 6 * i)) & 63 };
            *slot = ALPHABET[group as usize];
        }
        f.pad(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseUuidError(String);

impl fmt::Display for ParseUuidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a uuid; expected 22 characters of URL-safe base64", self.0)
    }
}

impl std::error::Error for ParseUuidError {}

impl FromStr for Uuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Uuid, ParseUuidError> {
        let error = || ParseUuidError(text.chars().take(64).collect());
        let digits = text.strip_suffix("==").unwrap_or(text);
        if digits.len() != 22 {
            return Err(error());
        }
        let mut value = 0_u128;
        for (i, byte) in digits.bytes().enumerate() {
            let digit = ALPHABET.iter().position(|c| *c == byte).ok_or_else(error)? as u128;
            value = if i == 21 { (value << 2) | (digit >> 4) } else { (value << 6) | digit };
        }
        Ok(Uuid(value.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_print_and_parse_as_in_kafka() {
        for (uuid, text) in [
            (Uuid::ZERO, "AAAAAAAAAAAAAAAAAAAAAA"),
            (Uuid::METADATA_TOPIC_ID, "AAAAAAAAAAAAAAAAAAAAAQ"),
            (Uuid([0xff; 16]), "_____________________w"),
            (Uuid::from_halves(0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210), "ASNFZ4mrze_-3LqYdlQyEA"),
        ] {
            assert_eq!(uuid.to_string(), text);
            assert_eq!(text.parse(), Ok(uuid));
        }
        for bad in ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAA+", "AAAAAAAAAAAAAAAAAAAAAAA"]
        {
            assert!(bad.parse::<Uuid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn random_uuids_carry_their_version_and_never_begin_with_a_dash() {
        assert_eq!(Uuid::from_random([0; 16]).map(|u| (u.0[6], u.0[8])), Some((0x40, 0x80)));
        assert_eq!(Uuid::from_random([0xf8; 16]), None);
    }
}
