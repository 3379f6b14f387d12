//! Records as JSON, as the reference's tools print them: Kafka's field names, compact, fields at their default left
//! out where they are tagged.
//!
//! Owns a writer into a `String` with Jackson's escapes and Java's way to print a double; the order of fields is the
//! schema's. Only records have this, because only tools that look into logs need it.

use std::fmt::Write;

/// A record, or a part of one, that can be shown.
pub trait ToJson {
    /// Writes what the record holds in this version.
    fn write_json(&self, json: &mut JsonWriter, version: i16);

    fn to_json(&self, version: i16) -> String {
        let mut json = JsonWriter::default();
        self.write_json(&mut json, version);
        json.finish()
    }
}

#[derive(Debug, Default)]
pub struct JsonWriter {
    out: String,
}

impl JsonWriter {
    pub fn finish(self) -> String {
        self.out
    }

    fn separate(&mut self) {
        if !matches!(self.out.chars().next_back(), None | Some('{' | '[' | ':')) {
            self.out.push(',');
        }
    }

    pub fn begin_object(&mut self) {
        self.out.push('{');
    }

    pub fn end_object(&mut self) {
        self.out.push('}');
    }

    /// The name of the next value in an object.
    pub fn field(&mut self, name: &str) {
        self.separate();
        self.string(name);
        self.out.push(':');
    }

    pub fn array<T>(&mut self, values: &[T], mut element: impl FnMut(&mut JsonWriter, &T)) {
        self.out.push('[');
        for (i, value) in values.iter().enumerate() {
            if i > 0 {
                self.out.push(',');
            }
            element(self, value);
        }
        self.out.push(']');
    }

    pub fn null(&mut self) {
        self.out.push_str("null");
    }

    pub fn bool(&mut self, value: bool) {
        self.out.push_str(if value { "true" } else { "false" });
    }

    pub fn number(&mut self, value: impl Into<i64>) {
        let _ = write!(self.out, "{}", value.into());
    }

    /// Java's `Double.toString`: digits as few as tell the number apart, an exponent outside of 0.001 to 10,000,000.
    pub fn double(&mut self, value: f64) {
        if !value.is_finite() {
            let name = if value.is_nan() {
                "NaN"
            } else if value > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            };
            return self.string(name);
        }
        let magnitude = value.abs();
        if magnitude == 0.0 || (1e-3..1e7).contains(&magnitude) {
            let _ = write!(self.out, "{value:?}");
            return;
        }
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let fraction = if digits.contains('.') { "" } else { ".0" };
        let _ = write!(self.out, "{digits}{fraction}E{exponent}");
    }

    pub fn string(&mut self, value: &str) {
        self.out.push('"');
        for c in value.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\u{8}' => self.out.push_str("\\b"),
                '\t' => self.out.push_str("\\t"),
                '\n' => self.out.push_str("\\n"),
                '\u{c}' => self.out.push_str("\\f"),
                '\r' => self.out.push_str("\\r"),
                c if c < ' ' => {
                    let _ = write!(self.out, "\\u{:04X}", u32::from(c));
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    /// Base64 with padding.
    pub fn bytes(&mut self, value: &[u8]) {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        self.out.push('"');
        for chunk in value.chunks(3) {
            let group = chunk.iter().fold(0_u32, |group, byte| (group << 8) | u32::from(*byte));
            let group = group << (8 * (3 - chunk.len()));
            for i in 0..4 {
                let digit = ALPHABET[(group >> (18 - 6 * i)) as usize & 63];
                self.out.push(if i <= chunk.len() { char::from(digit) } else { '=' });
            }
        }
        self.out.push('"');
    }

    pub fn uuid(&mut self, value: crate::Uuid) {
        let _ = write!(self.out, "\"{value}\"");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(write: impl FnOnce(&mut JsonWriter)) -> String {
        let mut json = JsonWriter::default();
        write(&mut json);
        json.finish()
    }

    #[test]
    fn doubles_print_as_in_java() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-1234.5, "-1234.5"),
            (0.001, "0.001"),
            (0.00099, "9.9E-4"),
            (9_999_999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (12_345_678.9, "1.23456789E7"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::NAN, "\"NaN\""),
            (f64::NEG_INFINITY, "\"-Infinity\""),
        ] {
            assert_eq!(shown(|json| json.double(value)), expected);
        }
    }

    #[test]
    fn strings_and_bytes_are_escaped() {
        assert_eq!(shown(|json| json.string("a\"\\\n\u{1}\u{7f}é")), "\"a\\\"\\\\\\n\\u0001\u{7f}é\"");
        for (bytes, expected) in [("", "\"\""), ("f", "\"Zg==\""), ("fo", "\"Zm8=\""), ("foo", "\"Zm9v\"")] {
            assert_eq!(shown(|json| json.bytes(bytes.as_bytes())), expected);
        }
    }
}
