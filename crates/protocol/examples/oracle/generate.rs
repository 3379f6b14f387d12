//! Random instances of any message, straight from the schema: as JSON for Java, and as the text that Rust's `Debug`
//! must give after decoding. Knows nothing of the wire format, so it cannot share a mistake with the codec.

use std::collections::BTreeMap;
use std::fmt::Write;

use bytes::Bytes;
use protocol::{Records, Uuid};

use crate::schema::{Field, Message, Type, snake_case};

/// SplitMix64: small, and equal on every machine for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// How an instance is filled.
#[derive(Clone, Copy, PartialEq)]
pub enum Style {
    /// Every field at its default where the version allows it.
    Default,
    /// No field at its default, no null, no empty array.
    Full,
    Random,
}

/// One value as JSON and as `Debug` text.
pub struct Value {
    pub json: String,
    pub debug: String,
}

impl Value {
    fn new(json: impl ToString, debug: impl ToString) -> Value {
        Value { json: json.to_string(), debug: debug.to_string() }
    }
}

pub struct Generator<'a> {
    pub random: Random,
    pub style: Style,
    version: i16,
    structs: BTreeMap<String, Vec<Field>>,
    message: &'a Message,
}

impl<'a> Generator<'a> {
    pub fn new(message: &'a Message, version: i16, style: Style, seed: u64) -> Generator<'a> {
        let structs = message.all_structs().into_iter().map(|item| (item.name, item.fields)).collect();
        Generator { random: Random(seed), style, version, structs, message }
    }

    pub fn instance(&mut self) -> Value {
        self.struct_value(&self.message.name.clone(), &self.message.fields.clone(), 0)
    }

    /// What `Debug` shows of a fresh struct, and what Java's `toString` shows of it.
    pub fn fresh(&self, name: &str, fields: &[Field], java_name: &str) -> (String, String) {
        let (mut rust, mut java) = (Vec::new(), Vec::new());
        for field in fields {
            let (rust_value, java_value) = self.default_of(field);
            rust.push(format!("{}: {rust_value}", rust_name(field)));
            java.push(format!("{}={java_value}", java_field_name(&field.name)));
        }
        let braces =
            if rust.is_empty() { name.to_owned() } else { format!("{name} {{ {} }}", rust.join(", ")) };
        (braces, format!("{java_name}({})", java.join(", ")))
    }

    fn struct_value(&mut self, name: &str, fields: &[Field], depth: usize) -> Value {
        let (mut json, mut debug) = (Vec::new(), Vec::new());
        for field in fields {
            let text = if field.versions.contains(self.version) {
                let value = self.field_value(field, depth);
                json.push(format!("\"{}\":{}", java_field_name(&field.name), value.json));
                value.debug
            } else {
                self.default_of(field).0
            };
            debug.push(format!("{}: {text}", rust_name(field)));
        }
        let debug =
            if debug.is_empty() { name.to_owned() } else { format!("{name} {{ {} }}", debug.join(", ")) };
        Value { json: format!("{{{}}}", json.join(",")), debug }
    }

    fn field_value(&mut self, field: &Field, depth: usize) -> Value {
        let option = is_option(field);
        let nullable = field.nullable.contains(self.version);
        let null = match self.style {
            Style::Default => field.default == "null" || field.ty == Type::Records,
            Style::Full => false,
            Style::Random => self.random.chance(25),
        };
        if nullable && null {
            return Value::new("null", "None");
        }
        let value = self.value(&field.ty, field, depth);
        if option { Value { debug: format!("Some({})", value.debug), ..value } } else { value }
    }

    fn value(&mut self, ty: &Type, field: &Field, depth: usize) -> Value {
        let default = self.style == Style::Default || (self.style == Style::Random && self.random.chance(20));
        match ty {
            Type::Bool => {
                let initial = field.default.eq_ignore_ascii_case("true");
                let value = if default { initial } else { !initial || self.random.chance(30) };
                Value::new(value, value)
            }
            Type::Int8 => self.integer(field, default, i8::MIN.into(), i8::MAX.into()),
            Type::Int16 => self.integer(field, default, i16::MIN.into(), i16::MAX.into()),
            Type::UInt16 => self.integer(field, default, 0, u16::MAX.into()),
            Type::Int32 => self.integer(field, default, i32::MIN.into(), i32::MAX.into()),
            Type::UInt32 => self.integer(field, default, 0, u32::MAX.into()),
            Type::Int64 => self.integer(field, default, i64::MIN, i64::MAX),
            Type::Float64 => self.float(default),
            Type::String => self.string(default),
            Type::Bytes => {
                let bytes = self.bytes(default);
                Value::new(json_bytes(&bytes), format!("{bytes:?}"))
            }
            Type::Records => {
                let bytes = self.bytes(default);
                Value::new(json_bytes(&bytes), format!("{:?}", Records::Bytes(bytes)))
            }
            Type::Uuid => {
                let uuid = if default { Uuid::ZERO } else { Uuid(self.sixteen_bytes()) };
                Value::new(format!("\"{uuid}\""), format!("{uuid:?}"))
            }
            Type::Struct(name) => {
                let fields = self.structs.get(name).cloned().unwrap_or_default();
                if default && self.style == Style::Random {
                    self.style = Style::Default;
                    let value = self.struct_value(name, &fields, depth + 1);
                    self.style = Style::Random;
                    return value;
                }
                self.struct_value(name, &fields, depth + 1)
            }
            Type::Array(element) => self.array(element, field, default, depth),
        }
    }

    fn array(&mut self, element: &Type, field: &Field, default: bool, depth: usize) -> Value {
        let simple = !matches!(element, Type::Struct(_) | Type::String);
        let count = match self.style {
            _ if default => 0,
            Style::Random if simple && self.random.below(60) == 0 => 120 + self.random.below(200),
            Style::Random if depth == 0 && self.random.below(150) == 0 => 126 + self.random.below(4),
            _ => 1 + self.random.below(if depth < 2 { 3 } else { 2 }),
        };
        // Elements have no default of their own.
        let plain = Field { default: String::new(), ..field.clone() };
        let values: Vec<Value> = (0..count).map(|_| self.value(element, &plain, depth + 1)).collect();
        let join = |part: fn(&Value) -> &str, separator: &str| {
            format!("[{}]", values.iter().map(part).collect::<Vec<_>>().join(separator))
        };
        Value { json: join(|v| &v.json, ","), debug: join(|v| &v.debug, ", ") }
    }

    fn integer(&mut self, field: &Field, default: bool, min: i64, max: i64) -> Value {
        let initial = number(&field.default);
        let span = (i128::from(max) - i128::from(min) + 1) as u128;
        let mut value = if default {
            initial
        } else {
            match self.random.below(6) {
                0 => min,
                1 => max,
                2 => (self.random.below(300) as i64).min(max),
                3 => (self.random.below(2) as i64).max(min),
                _ => (i128::from(min) + (u128::from(self.random.next()) % span) as i128) as i64,
            }
        };
        if self.style == Style::Full && value == initial {
            value = if initial == max { min } else { max };
        }
        Value::new(value, value)
    }

    fn float(&mut self, default: bool) -> Value {
        let value = match self.random.below(4) {
            _ if default => 0.0,
            0 => f64::MAX,
            1 => f64::MIN_POSITIVE,
            2 => self.random.below(1_000_000) as f64 / 64.0 - 7000.0,
            _ => Some(f64::from_bits(self.random.next())).filter(|v| v.is_finite()).unwrap_or(-1.5),
        };
        Value::new(format!("{value:?}"), format!("{value:?}"))
    }

    fn length(&mut self, default: bool) -> usize {
        const BORDERS: [u64; 9] = [126, 127, 128, 255, 1023, 1024, 2000, 16_383, 16_384];
        match self.random.below(250) {
            _ if default => 0,
            0 => BORDERS[self.random.below(BORDERS.len() as u64) as usize] as usize,
            _ => 1 + self.random.below(12) as usize,
        }
    }

    fn string(&mut self, default: bool) -> Value {
        const CHARACTERS: [char; 16] =
            ['a', 'b', 'z', '0', '9', '-', '_', '.', ' ', '"', '\\', '\n', 'é', '日', '😀', '\u{7f}'];
        let length = self.length(default);
        let text: String = (0..length).map(|_| CHARACTERS[self.random.below(16) as usize]).collect();
        // A string of up to 16,384 characters of up to 4 bytes would pass the protocol's limit.
        let text = if text.len() > protocol::MAX_STRING_LENGTH { "x".repeat(length) } else { text };
        Value::new(serde_json::Value::from(text.as_str()), format!("{text:?}"))
    }

    fn bytes(&mut self, default: bool) -> Bytes {
        let length = self.length(default);
        (0..length).map(|_| self.random.next() as u8).collect()
    }

    fn sixteen_bytes(&mut self) -> [u8; 16] {
        (u128::from(self.random.next()) << 64 | u128::from(self.random.next())).to_be_bytes()
    }

    /// The default of a field in Rust's `Debug` and in Java's `toString`.
    fn default_of(&self, field: &Field) -> (String, String) {
        if field.default == "null" || field.ty == Type::Records {
            return ("None".into(), "null".into());
        }
        let (rust, java) = match &field.ty {
            Type::Bool => {
                let value = field.default.eq_ignore_ascii_case("true").to_string();
                (value.clone(), value)
            }
            Type::Float64 => ("0.0".into(), "0.0".into()),
            Type::String => ("\"\"".into(), "''".into()),
            Type::Bytes | Type::Records => {
                let java = if field.zero_copy { "java.nio.HeapByteBuffer[pos=0 lim=0 cap=0]" } else { "[]" };
                (format!("{:?}", Bytes::new()), java.into())
            }
            Type::Uuid => (Uuid::ZERO.to_string(), Uuid::ZERO.to_string()),
            Type::Array(_) => ("[]".into(), "[]".into()),
            Type::Struct(name) => {
                let empty = Vec::new();
                self.fresh(name, self.structs.get(name).unwrap_or(&empty), name)
            }
            _ => (number(&field.default).to_string(), number(&field.default).to_string()),
        };
        (if is_option(field) { format!("Some({rust})") } else { rust }, java)
    }
}

fn is_option(field: &Field) -> bool {
    field.ty == Type::Records || !field.nullable.is_empty()
}

fn number(text: &str) -> i64 {
    match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).unwrap_or_default(),
        None => text.parse().unwrap_or_default(),
    }
}

fn rust_name(field: &Field) -> String {
    let name = snake_case(&field.name);
    // `Debug` shows a field that is named after a keyword with its underscore.
    if matches!(name.as_str(), "type" | "match" | "where" | "ref") { name + "_" } else { name }
}

fn java_field_name(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map_or(String::new(), |first| first.to_lowercase().chain(chars).collect())
}

fn json_bytes(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::from("\"");
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, byte| (group << 8) | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for i in 0..4 {
            if i <= chunk.len() {
                let _ = write!(out, "{}", char::from(ALPHABET[(group >> (18 - 6 * i)) as usize & 63]));
            } else {
                out.push('=');
            }
        }
    }
    out + "\""
}
