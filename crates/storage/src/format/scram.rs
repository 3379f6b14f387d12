//! `--add-scram`: SCRAM credentials in the records a cluster starts with (KIP-900).
//!
//! Owns the argument's grammar and the derivation of keys (RFC 5802: PBKDF2 and HMAC). Invariant: the password itself
//! is in no record and in no message.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use env::Random;
use hmac::{Hmac, KeyInit, Mac};
use metadata::VersionedRecord;
use protocol::records::metadata::UserScramCredentialRecord;
use sha2::{Digest, Sha256, Sha512};

use super::FormatError;

const DEFAULT_ITERATIONS: i32 = 4096;
const MIN_ITERATIONS: i32 = 4096;
const MAX_ITERATIONS: i32 = 16384;

/// Standard alphabet, padding optional: what the reference's decoder takes.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mechanism {
    Sha256,
    Sha512,
}

impl Mechanism {
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "SCRAM-SHA-256" => Some(Self::Sha256),
            "SCRAM-SHA-512" => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Number in records, name in messages.
    fn facts(self) -> (i8, &'static str) {
        match self {
            Self::Sha256 => (1, "SCRAM_SHA_256"),
            Self::Sha512 => (2, "SCRAM_SHA_512"),
        }
    }

    fn hash(self, data: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(data).to_vec(),
            Self::Sha512 => Sha512::digest(data).to_vec(),
        }
    }

    fn hmac(self, key: &[u8], data: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => {
                let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
                mac.update(data);
                mac.finalize().into_bytes().to_vec()
            }
            Self::Sha512 => {
                let mut mac = Hmac::<Sha512>::new_from_slice(key).expect("HMAC takes keys of any length");
                mac.update(data);
                mac.finalize().into_bytes().to_vec()
            }
        }
    }

    fn salted_password(self, password: &str, salt: &[u8], iterations: u32) -> Vec<u8> {
        match self {
            Self::Sha256 => {
                let mut out = vec![0; 32];
                pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), salt, iterations, &mut out);
                out
            }
            Self::Sha512 => {
                let mut out = vec![0; 64];
                pbkdf2::pbkdf2_hmac::<Sha512>(password.as_bytes(), salt, iterations, &mut out);
                out
            }
        }
    }
}

/// The records of all `--add-scram` arguments, in order.
pub(super) fn parse(random: &dyn Random, arguments: &[String]) -> Result<Vec<VersionedRecord>, FormatError> {
    arguments.iter().map(|argument| parse_argument(random, argument)).collect()
}

fn refuse<T>(message: impl Into<String>) -> Result<T, FormatError> {
    Err(FormatError::Terse(message.into()))
}

fn parse_argument(random: &dyn Random, argument: &str) -> Result<VersionedRecord, FormatError> {
    let argument = argument.trim();
    let Some((name, configuration)) = argument.split_once('=') else {
        return refuse(format!("Failed to find equals sign in SCRAM argument '{argument}'"));
    };
    let Some(mechanism) = Mechanism::from_name(name) else {
        return refuse(format!("The add-scram mechanism {name} is not supported."));
    };
    let Some(configuration) = configuration.strip_prefix('[') else {
        return refuse("Expected configuration string to start with [");
    };
    let Some(configuration) = configuration.strip_suffix(']') else {
        return refuse("Expected configuration string to end with ]");
    };
    let mut components = BTreeMap::new();
    let mut parts: Vec<&str> = configuration.split(',').collect();
    while parts.len() > 1 && parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    for part in parts {
        let Some((key, value)) = part.split_once('=') else {
            return refuse(format!("No equals sign found in SCRAM component: {part}"));
        };
        let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        components.insert(key, quoted.unwrap_or(value));
    }
    credential(random, mechanism, components)
}

fn credential(
    random: &dyn Random,
    mechanism: Mechanism,
    mut components: BTreeMap<&str, &str>,
) -> Result<VersionedRecord, FormatError> {
    let Some(name) = components.remove("name") else {
        return refuse("You must supply 'name' to add-scram");
    };
    let decode = |what: &str, text: &str| match BASE64.decode(text) {
        Ok(bytes) => Ok(bytes),
        Err(_) => refuse(format!("Failed to decode given {what}: {text}")),
    };
    let salt = components.remove("salt").map(|text| decode("salt", text)).transpose()?;
    let iterations = match components.remove("iterations") {
        None => DEFAULT_ITERATIONS,
        Some(text) => match text.parse::<i32>() {
            Ok(iterations) => iterations,
            Err(_) => return refuse(format!("Failed to parse iterations count: {text}")),
        },
    };
    let password = components.remove("password");
    let salted = match (password, components.remove("saltedpassword")) {
        (Some(_), _) => None,
        (None, None) => return refuse("You must supply one of 'password' or 'saltedpassword' to add-scram"),
        (None, Some(_)) if salt.is_none() => {
            return refuse("You must supply 'salt' with 'saltedpassword' to add-scram");
        }
        (None, Some(text)) => Some(decode("saltedPassword", text)?),
    };
    if !components.is_empty() {
        let names: Vec<_> = components.into_keys().collect();
        return refuse(format!("Unknown SCRAM configurations: {}", names.join(", ")));
    }
    let (number, mechanism_name) = mechanism.facts();
    if iterations < MIN_ITERATIONS {
        return refuse(format!(
            "The 'iterations' value must be >= {MIN_ITERATIONS} for add-scram using {mechanism_name}"
        ));
    }
    if iterations > MAX_ITERATIONS {
        return refuse(format!(
            "The 'iterations' value must be <= {MAX_ITERATIONS} for add-scram using {mechanism_name}"
        ));
    }
    let salt = salt.unwrap_or_else(|| random_salt(random));
    let salted = salted.unwrap_or_else(|| {
        mechanism.salted_password(password.unwrap_or_default(), &salt, iterations.unsigned_abs())
    });
    let client_key = mechanism.hmac(&salted, b"Client Key");
    let record = UserScramCredentialRecord {
        name: name.to_owned(),
        mechanism: number,
        salt: salt.into(),
        stored_key: mechanism.hash(&client_key).into(),
        server_key: mechanism.hmac(&salted, b"Server Key").into(),
        iterations,
    };
    Ok(VersionedRecord::new(record, 0))
}

/// 130 random bits in base 36, as text.
fn random_salt(random: &dyn Random) -> Vec<u8> {
    let mut bits = [0; 17];
    random.fill(&mut bits);
    bits[0] &= 0b11;
    let mut digits = Vec::new();
    while bits.iter().any(|byte| *byte != 0) {
        let mut remainder = 0_u16;
        for byte in &mut bits {
            let value = (remainder << 8) | u16::from(*byte);
            *byte = (value / 36) as u8;
            remainder = value % 36;
        }
        digits.push(b"0123456789abcdefghijklmnopqrstuvwxyz"[usize::from(remainder)]);
    }
    digits.reverse();
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use metadata::MetadataRecord;
    use testkit::SeededRandom;

    fn parse_one(argument: &str) -> Result<UserScramCredentialRecord, FormatError> {
        let records = parse(&SeededRandom::new(1), &[argument.to_owned()])?;
        match records.into_iter().next().map(|record| record.record) {
            Some(MetadataRecord::UserScramCredentialRecord(record)) => Ok(record),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn keys_are_those_of_the_reference() {
        let record = parse_one(
            "SCRAM-SHA-256=[name=alice,salt=\"MWx2NHBkbnc0ZndxN25vdGN4bTB5MXM4ZHA=\",password=alice-secret,iterations=8192]",
        )
        .unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!((record.name.as_str(), record.mechanism, record.iterations), ("alice", 1, 8192));
        assert_eq!(&record.salt[..], b"1lv4pdnw4fwq7notcxm0y1s8dp");
        assert_eq!(
            hex(&record.stored_key),
            "68b02e639853eb63b986904d5d62c9575454fa9009f9fa200b5cfee951d0e4bd"
        );
        assert_eq!(
            hex(&record.server_key),
            "4dc40f6e2eb7b03a503a02318275ad8cf31a96eb55d7664b041183510cd3f1a4"
        );
    }

    #[test]
    fn a_salt_is_drawn_when_none_is_given() {
        let record = parse_one("SCRAM-SHA-512=[name=bob,password=x]").unwrap();
        assert_eq!((record.mechanism, record.iterations, record.stored_key.len()), (2, 4096, 64));
        assert!(record.salt.len() >= 24 && record.salt.iter().all(u8::is_ascii_alphanumeric));
    }

    #[test]
    fn what_is_wrong_is_said_as_the_reference_says_it() {
        for (argument, expected) in [
            ("SCRAM-SHA-256", "Failed to find equals sign in SCRAM argument 'SCRAM-SHA-256'"),
            ("SCRAM-SHA-1=[]", "The add-scram mechanism SCRAM-SHA-1 is not supported."),
            ("SCRAM-SHA-256=name=a", "Expected configuration string to start with ["),
            ("SCRAM-SHA-256=[name=a", "Expected configuration string to end with ]"),
            ("SCRAM-SHA-256=[name]", "No equals sign found in SCRAM component: name"),
            ("SCRAM-SHA-256=[password=a]", "You must supply 'name' to add-scram"),
            ("SCRAM-SHA-256=[name=a]", "You must supply one of 'password' or 'saltedpassword' to add-scram"),
            (
                "SCRAM-SHA-256=[name=a,saltedpassword=YQ==]",
                "You must supply 'salt' with 'saltedpassword' to add-scram",
            ),
            ("SCRAM-SHA-256=[name=a,password=b,salt=!]", "Failed to decode given salt: !"),
            ("SCRAM-SHA-256=[name=a,password=b,x=1,y=2]", "Unknown SCRAM configurations: x, y"),
            ("SCRAM-SHA-256=[name=a,password=b,iterations=x]", "Failed to parse iterations count: x"),
            (
                "SCRAM-SHA-256=[name=a,password=b,iterations=1]",
                "The 'iterations' value must be >= 4096 for add-scram using SCRAM_SHA_256",
            ),
        ] {
            assert_eq!(parse_one(argument).unwrap_err().to_string(), expected);
        }
    }
}
