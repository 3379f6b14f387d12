//! Records as JSON in the form of the reference's JSON converters, driven by the schema tables.
//!
//! Only for showing records to people (formatters, kafka-dump-log): nothing is decided by what is read here. Bytes come
//! from a disk or a network, so counts are bounded by what remains and nesting by the schema.

use std::collections::BTreeMap;

use protocol::{DecodeError, Decoder};
use serde_json::{Map, Value, json};

/// Ranges as the tables write them: `0`, `1-3`, `2+`, `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Versions {
    low: i16,
    high: i16,
}

impl Versions {
    const NONE: Versions = Versions { low: 1, high: 0 };

    fn parse(text: &str) -> Versions {
        let number = |text: &str| text.parse().unwrap_or(i16::MAX);
        match (text, text.strip_suffix('+'), text.split_once('-')) {
            ("none", ..) => Versions::NONE,
            (_, Some(low), _) => Versions { low: number(low), high: i16::MAX },
            (_, _, Some((low, high))) => Versions { low: number(low), high: number(high) },
            (one, ..) => Versions { low: number(one), high: number(one) },
        }
    }

    fn contain(self, version: i16) -> bool {
        (self.low..=self.high).contains(&version)
    }
}

#[derive(Clone, Debug)]
struct Field {
    name: String,
    kind: String,
    array: bool,
    versions: Versions,
    nullable: Versions,
    tag: Option<(u32, Versions)>,
    fields: Vec<Field>,
}

/// One record's schema.
#[derive(Clone, Debug)]
pub struct Schema {
    pub name: String,
    pub key: i16,
    versions: Versions,
    flexible: Versions,
    fields: Vec<Field>,
    structs: BTreeMap<String, Vec<Field>>,
}

/// The schemas of a table, by kind (`coordinator-key`, `coordinator-value`, `metadata`, `data`) and number or name.
#[derive(Debug)]
pub struct Schemas {
    by_key: BTreeMap<(String, i16), Schema>,
    by_name: BTreeMap<String, Schema>,
}

impl Schemas {
    pub fn parse(table: &str) -> Schemas {
        let mut schemas = Schemas { by_key: BTreeMap::new(), by_name: BTreeMap::new() };
        let mut lines =
            table.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).peekable();
        while let Some(line) = lines.next() {
            let mut words = line.split_whitespace();
            let (kind, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let mut schema = Schema {
                name: name.to_owned(),
                key: -1,
                versions: Versions::NONE,
                flexible: Versions::NONE,
                fields: Vec::new(),
                structs: BTreeMap::new(),
            };
            for word in words {
                match word.split_once('=') {
                    Some(("key", key)) => schema.key = key.parse().unwrap_or(-1),
                    Some(("versions", versions)) => schema.versions = Versions::parse(versions),
                    Some(("flexible", versions)) => schema.flexible = Versions::parse(versions),
                    _ => {}
                }
            }
            schema.fields = parse_fields(&mut lines, 2, &mut schema.structs);
            schemas.by_name.insert(schema.name.clone(), schema.clone());
            schemas.by_key.insert((kind.to_owned(), schema.key), schema);
        }
        schemas
    }

    pub fn by_key(&self, kind: &str, key: i16) -> Option<&Schema> {
        self.by_key.get(&(kind.to_owned(), key))
    }

    pub fn by_name(&self, name: &str) -> Option<&Schema> {
        self.by_name.get(name)
    }
}

fn parse_fields<'a>(
    lines: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
    indent: usize,
    structs: &mut BTreeMap<String, Vec<Field>>,
) -> Vec<Field> {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let mut fields: Vec<Field> = Vec::new();
    while let Some(line) = lines.next_if(|line| depth(line) == indent) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_struct = words.first() == Some(&"struct");
        let nested = match lines.peek() {
            Some(next) if depth(next) > indent => parse_fields(lines, indent + 2, structs),
            _ => Vec::new(),
        };
        if is_struct {
            structs.insert(words.get(1).copied().unwrap_or_default().to_owned(), nested);
        } else {
            fields.push(parse_field(&words, nested));
        }
    }
    fields
}

fn parse_field(words: &[&str], fields: Vec<Field>) -> Field {
    let kind = words.get(1).copied().unwrap_or_default();
    let mut field = Field {
        name: lower_first(words.first().copied().unwrap_or_default()),
        kind: kind.trim_start_matches("[]").to_owned(),
        array: kind.starts_with("[]"),
        versions: Versions::parse(words.get(2).copied().unwrap_or("none")),
        nullable: Versions::NONE,
        tag: None,
        fields,
    };
    let mut tag = None;
    let mut tagged = Versions::NONE;
    for word in words.iter().skip(3) {
        match word.split_once('=') {
            Some(("null", versions)) => field.nullable = Versions::parse(versions),
            Some(("tag", number)) => tag = number.parse().ok(),
            Some(("tagged", versions)) => tagged = Versions::parse(versions),
            _ => {}
        }
    }
    field.tag = tag.map(|tag| (tag, tagged));
    field
}

fn lower_first(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}

impl Schema {
    pub fn has_version(&self, version: i16) -> bool {
        self.versions.contain(version)
    }

    /// Reads the fields of `version` from `decoder`.
    pub fn read(&self, decoder: &mut Decoder, version: i16) -> Result<Value, DecodeError> {
        self.read_struct(&self.fields, decoder, version)
    }

    fn read_struct(
        &self,
        fields: &[Field],
        decoder: &mut Decoder,
        version: i16,
    ) -> Result<Value, DecodeError> {
        let flexible = self.flexible.contain(version);
        let present = |field: &&Field| field.versions.contain(version);
        let is_tagged = |field: &Field| field.tag.is_some_and(|(_, versions)| versions.contain(version));
        let mut values: BTreeMap<&str, Value> = BTreeMap::new();
        for field in fields.iter().filter(present).filter(|field| !is_tagged(field)) {
            values.insert(&field.name, self.read_field(field, decoder, version, flexible)?);
        }
        if flexible {
            for _ in 0..decoder.unsigned_varint()? {
                let tag = decoder.unsigned_varint()?;
                let size = usize::try_from(decoder.unsigned_varint()?).unwrap_or(usize::MAX);
                let body = decoder.take(size)?;
                let known = |field: &&Field| is_tagged(field) && field.tag.is_some_and(|(own, _)| own == tag);
                if let Some(field) = fields.iter().filter(present).find(known) {
                    let value = self.read_field(field, &mut Decoder::new(body), version, flexible)?;
                    values.insert(&field.name, value);
                }
            }
        }
        let mut object = Map::new();
        for field in fields {
            if let Some(value) = values.remove(field.name.as_str()) {
                object.insert(field.name.clone(), value);
            }
        }
        Ok(Value::Object(object))
    }

    fn read_field(
        &self,
        field: &Field,
        decoder: &mut Decoder,
        version: i16,
        flexible: bool,
    ) -> Result<Value, DecodeError> {
        let nullable = field.nullable.contain(version);
        if field.array {
            let element = |decoder: &mut Decoder| self.read_value(field, decoder, version, flexible, false);
            return Ok(decoder.opt_array(flexible, nullable, 1, element)?.map_or(Value::Null, Value::Array));
        }
        self.read_value(field, decoder, version, flexible, nullable)
    }

    fn read_value(
        &self,
        field: &Field,
        decoder: &mut Decoder,
        version: i16,
        flexible: bool,
        nullable: bool,
    ) -> Result<Value, DecodeError> {
        Ok(match field.kind.as_str() {
            "bool" => json!(decoder.bool()?),
            "int8" => json!(decoder.i8()?),
            "int16" => json!(decoder.i16()?),
            "uint16" => json!(decoder.u16()?),
            "int32" => json!(decoder.i32()?),
            "uint32" => json!(decoder.u32()?),
            "int64" => json!(decoder.i64()?),
            "float64" => json!(decoder.f64()?),
            "uuid" => json!(decoder.uuid()?.to_string()),
            "string" => json!(decoder.opt_string(flexible, nullable)?),
            "bytes" | "records" => json!(decoder.opt_bytes(flexible, nullable)?.map(|bytes| base64(&bytes))),
            name => {
                // A nullable struct has a byte in front that says whether it is there; in a tagged field, a varint.
                let tagged = field.tag.is_some_and(|(_, versions)| versions.contain(version));
                let is_null = match (nullable, tagged) {
                    (false, _) => false,
                    (true, false) => decoder.i8()? < 0,
                    (true, true) => decoder.unsigned_varint()? == 0,
                };
                if is_null {
                    return Ok(Value::Null);
                }
                let fields = match field.fields.is_empty() {
                    true => self.structs.get(name).map(Vec::as_slice).unwrap_or_default(),
                    false => &field.fields,
                };
                self.read_struct(fields, decoder, version)?
            }
        })
    }
}

/// Base64 of RFC 4648 with padding, which is how JSON shows bytes.
pub fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for position in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * position) & 63) as usize];
            text.push(if position <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::records::group::OffsetCommitValue;
    use protocol::{Encoder, Message};

    #[test]
    fn a_record_shows_the_fields_of_its_version_in_schema_order() {
        let schemas = Schemas::parse(protocol::schema::GROUP);
        let schema = schemas.by_name("OffsetCommitValue").unwrap();
        let record =
            OffsetCommitValue { offset: 7, leader_epoch: 2, metadata: "m".into(), ..Default::default() };
        let table = [
            (3, r#"{"offset":7,"leaderEpoch":2,"metadata":"m","commitTimestamp":0}"#),
            (4, r#"{"offset":7,"leaderEpoch":2,"metadata":"m","commitTimestamp":0}"#),
        ];
        for (version, expected) in table {
            let mut encoder = Encoder::new();
            record.encode(&mut encoder, version).unwrap();
            let mut decoder = Decoder::new(encoder.finish_contiguous().unwrap());
            assert_eq!(
                schema.read(&mut decoder, version).unwrap().to_string(),
                expected,
                "version {version}"
            );
        }
    }

    #[test]
    fn base64_is_padded() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
