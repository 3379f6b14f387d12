//! What shows as key and payload of a record: text, or the fields of Kafka's own records.

use std::sync::LazyLock;

use bytes::Bytes;
use protocol::Decoder;
use record::Record;
use serde_json::{Value, json};

use super::json::to_text;
use super::{Uncaught, remote};
use crate::schema_json::{Schema, Schemas};
use crate::tools::coordinator_json::name_state;

static DATA: LazyLock<Schemas> = LazyLock::new(|| Schemas::parse(protocol::schema::DATA));
static GROUP: LazyLock<Schemas> = LazyLock::new(|| Schemas::parse(protocol::schema::GROUP));
static METADATA: LazyLock<Schemas> = LazyLock::new(|| Schemas::parse(protocol::schema::METADATA));
static SHARE: LazyLock<Schemas> = LazyLock::new(|| Schemas::parse(protocol::schema::SHARE));
static TRANSACTION: LazyLock<Schemas> = LazyLock::new(|| Schemas::parse(protocol::schema::TRANSACTION));

/// The version of the frame around a metadata record.
const FRAME_VERSION: u32 = 1;

/// A class of the reference that turns bytes into text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueDecoder {
    String,
    Integer,
    Long,
    /// The reference prints a Java array's address; the bytes as text say more.
    Default,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageDecoder {
    Plain { key: ValueDecoder, value: ValueDecoder },
    Offsets,
    TransactionLog,
    ClusterMetadata,
    RemoteLogMetadata,
    ShareGroupState,
}

/// Key and payload, each when there is something to show.
type Decoded = (Option<String>, Option<String>);

impl ValueDecoder {
    pub fn of_class(class: &str) -> Option<ValueDecoder> {
        match class.strip_prefix("org.apache.kafka.tools.api.")? {
            "StringDecoder" => Some(ValueDecoder::String),
            "IntegerDecoder" => Some(ValueDecoder::Integer),
            "LongDecoder" => Some(ValueDecoder::Long),
            "DefaultDecoder" => Some(ValueDecoder::Default),
            _ => None,
        }
    }

    fn decode(self, bytes: &[u8]) -> Result<String, Uncaught> {
        let cut_off = || Uncaught { exception: "java.nio.BufferUnderflowException", message: None };
        Ok(match self {
            ValueDecoder::String | ValueDecoder::Default => crate::java::utf8_lossy(bytes),
            ValueDecoder::Integer => {
                i32::from_be_bytes(*bytes.first_chunk().ok_or_else(cut_off)?).to_string()
            }
            ValueDecoder::Long => i64::from_be_bytes(*bytes.first_chunk().ok_or_else(cut_off)?).to_string(),
        })
    }
}

impl MessageDecoder {
    pub fn decode(self, record: &Record<'_>) -> Result<Decoded, Uncaught> {
        let framed = |decode: &dyn Fn(&mut Decoder) -> Result<String, String>, at: &str| {
            let mut body = Decoder::new(Bytes::copy_from_slice(record.value.unwrap_or_default()));
            let text = decode(&mut body);
            text.unwrap_or_else(|error| format!("Error at {at}{}, skipping. {error}", record.offset))
        };
        match self {
            MessageDecoder::Plain { key, value } => Ok((
                record.key.map(|bytes| key.decode(bytes)).transpose()?,
                record.value.map(|bytes| value.decode(bytes)).transpose()?,
            )),
            MessageDecoder::Offsets => coordinator_record(&GROUP, record, show_members),
            MessageDecoder::TransactionLog => {
                coordinator_record(&TRANSACTION, record, |_, value| name_state(value))
            }
            MessageDecoder::ShareGroupState => coordinator_record(&SHARE, record, |_, _| {}),
            MessageDecoder::ClusterMetadata => Ok((None, Some(framed(&cluster_metadata, "")))),
            MessageDecoder::RemoteLogMetadata => Ok((None, Some(framed(&remote::decode, "offset ")))),
        }
    }
}

fn coordinator_record(
    schemas: &Schemas,
    record: &Record<'_>,
    adapt: impl Fn(i16, &mut Value),
) -> Result<Decoded, Uncaught> {
    let offset = record.offset;
    let Some(key) = record.key else {
        let message = format!(
            "Failed to decode message at offset {offset} using the specified decoder (message had a missing key)"
        );
        return Err(Uncaught::new("java.lang.RuntimeException", message));
    };
    let mut key = Decoder::new(Bytes::copy_from_slice(key));
    let Ok(record_type) = key.i16() else {
        let text = format!("Error at offset {offset}, skipping. Could not read version from key's buffer.");
        return Ok((Some(text), None));
    };
    let by_key = |kind| schemas.by_key(kind, record_type);
    let (Some(key_schema), Some(value_schema)) = (by_key("coordinator-key"), by_key("coordinator-value"))
    else {
        return Ok((Some(format!("Unknown record type {record_type} at offset {offset}, skipping.")), None));
    };
    let result = coordinator_key(key_schema, &mut key, record_type).and_then(|key| {
        let value = match record.value {
            None => "<DELETE>".to_owned(),
            Some(value) => coordinator_value(value_schema, value, record_type, &adapt)?,
        };
        Ok((Some(key), Some(value)))
    });
    Ok(result.unwrap_or_else(|error| (Some(format!("Error at offset {offset}, skipping. {error}")), None)))
}

fn coordinator_key(schema: &Schema, body: &mut Decoder, record_type: i16) -> Result<String, String> {
    let data = schema.read(body, 0).map_err(|error| {
        format!("Could not read record with version {record_type} from key's buffer due to: {error}.")
    })?;
    Ok(to_text(&json!({ "type": record_type.to_string(), "data": data })))
}

fn coordinator_value(
    schema: &Schema,
    value: &[u8],
    record_type: i16,
    adapt: &impl Fn(i16, &mut Value),
) -> Result<String, String> {
    let mut body = Decoder::new(Bytes::copy_from_slice(value));
    let version = body.i16().map_err(|_| "Could not read version from value's buffer.".to_owned())?;
    if !schema.has_version(version) {
        return Err(format!("Found an unknown record version {version} for {record_type} type"));
    }
    let mut data = schema.read(&mut body, version).map_err(|error| {
        format!("Could not read record with version {version} from value's buffer due to: {error}.")
    })?;
    adapt(record_type, &mut data);
    Ok(to_text(&json!({ "version": version.to_string(), "data": data })))
}

/// Members of a classic group of consumers show their subscriptions and assignments instead of bytes.
fn show_members(record_type: i16, value: &mut Value) {
    const GROUP_METADATA: i16 = 2;
    let is_consumer = value.get("protocolType").and_then(Value::as_str) == Some("consumer");
    if record_type != GROUP_METADATA || !is_consumer {
        return;
    }
    for member in value.get_mut("members").and_then(Value::as_array_mut).into_iter().flatten() {
        let fields =
            [("subscription", "ConsumerProtocolSubscription"), ("assignment", "ConsumerProtocolAssignment")];
        for (field, schema) in fields {
            let Some(slot) = member.get_mut(field) else { continue };
            let bytes = slot.as_str().and_then(from_base64);
            if let Some(shown) = bytes.and_then(|bytes| versioned(schema, bytes)) {
                *slot = shown;
            }
        }
    }
}

/// A version, then a message of that version. Later versions than ours are read as far as we know them, as the
/// reference does.
fn versioned(schema: &str, bytes: Vec<u8>) -> Option<Value> {
    let schema = DATA.by_name(schema)?;
    let mut body = Decoder::new(bytes.into());
    let version = body.i16().ok()?;
    schema.read(&mut body, version).ok()
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xFF) as u8);
        }
    }
    Some(bytes)
}

/// Type and version of a framed record.
pub(super) fn read_frame(body: &mut Decoder) -> Result<(i16, i16), String> {
    let mut number = |entity: &str| {
        let value = body.unsigned_varint().map_err(|_| format!("Error while reading {entity}"))?;
        i16::try_from(value).map_err(|_| format!("Value for {entity} was too large."))
    };
    match number("frame version")? {
        0 => Err("Could not deserialize metadata record with frame version 0. Note that upgrades from the preview \
                  release of KRaft in 2.8 to newer versions are not supported."
            .to_owned()),
        version if u32::try_from(version) != Ok(FRAME_VERSION) => Err(format!(
            "Could not deserialize metadata record due to unknown frame version {version}(only frame version 1 is \
             supported)"
        )),
        _ => Ok((number("type")?, number("version")?)),
    }
}

fn cluster_metadata(body: &mut Decoder) -> Result<String, String> {
    let (record_type, version) = read_frame(body)?;
    let schema = METADATA.by_key("metadata", record_type).ok_or_else(|| {
        format!(
            "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {record_type}"
        )
    })?;
    let failed = |_| format!("Failed to deserialize record with type {record_type}");
    let data = schema.read(body, version).map_err(failed)?;
    if body.remaining() > 0 {
        return Err(format!("Found {} byte(s) of garbage after {record_type}", body.remaining()));
    }
    Ok(to_text(&json!({ "type": type_name(&schema.name), "version": version, "data": data })))
}

/// `RegisterBrokerRecord` is `REGISTER_BROKER_RECORD`.
fn type_name(schema: &str) -> String {
    let mut name = String::new();
    for letter in schema.chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema_json::base64;

    #[test]
    fn base64_is_read_back() {
        for text in ["", "f", "fo", "foo", "foob", "\u{0}\u{7f}é"] {
            assert_eq!(from_base64(&base64(text.as_bytes())).unwrap(), text.as_bytes());
        }
        assert_eq!(from_base64("*"), None);
    }

    #[test]
    fn what_cannot_be_read_says_why_and_where() {
        let record = |key: Option<&'static [u8]>, value: Option<&'static [u8]>| Record {
            offset: 7,
            timestamp: 0,
            sequence: -1,
            key,
            value,
            headers: record::Headers::default(),
            size_in_bytes: 0,
        };
        let table = [
            (Some(&[0, 99][..]), "Unknown record type 99 at offset 7, skipping."),
            (Some(&[0]), "Error at offset 7, skipping. Could not read version from key's buffer."),
        ];
        for (key, text) in table {
            let decoded = MessageDecoder::Offsets.decode(&record(key, None)).unwrap();
            assert_eq!(decoded, (Some(text.to_owned()), None));
        }
        assert!(MessageDecoder::Offsets.decode(&record(None, None)).is_err());
        let table = [
            (&[0][..], "Error at 7, skipping. Could not deserialize metadata record with frame version 0."),
            (&[1, 99, 0], "Error at 7, skipping. org.apache.kafka.common.errors.UnsupportedVersionException"),
            (&[1, 20, 0, 0, 5], "Error at 7, skipping. Found 1 byte(s) of garbage after 20"),
            (&[1, 20, 0, 0], r#"{"type":"NO_OP_RECORD","version":0,"data":{}}"#),
        ];
        for (value, text) in table {
            let (_, shown) = MessageDecoder::ClusterMetadata.decode(&record(None, Some(value))).unwrap();
            assert!(shown.unwrap().starts_with(text), "{text}");
        }
    }
}
