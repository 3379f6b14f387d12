//! JSON as Jackson writes it: no blanks, control characters with capital hexadecimal digits, doubles as Java has them.

use std::io;

use serde_json::Value;
use serde_json::ser::{CharEscape, Formatter, Serializer};

struct Jackson;

impl Formatter for Jackson {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(java_double(value).as_bytes())
    }

    fn write_char_escape<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        let short = match escape {
            CharEscape::Quote => "\\\"",
            CharEscape::ReverseSolidus => "\\\\",
            CharEscape::Solidus => "\\/",
            CharEscape::Backspace => "\\b",
            CharEscape::FormFeed => "\\f",
            CharEscape::LineFeed => "\\n",
            CharEscape::CarriageReturn => "\\r",
            CharEscape::Tab => "\\t",
            CharEscape::AsciiControl(byte) => return write!(writer, "\\u{byte:04X}"),
        };
        writer.write_all(short.as_bytes())
    }
}

pub(super) fn to_text(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, Jackson);
    match serde::Serialize::serialize(value, &mut serializer) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => error.to_string(),
    }
}

/// Java's `Double.toString`: scientific notation from 10^7 up and below 10^-3.
pub(crate) fn java_double(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || (1e-3..1e7).contains(&size) || !value.is_finite() {
        return match value {
            _ if value.is_nan() => "NaN".to_owned(),
            _ if value.is_infinite() => if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
            _ => format!("{value:?}"),
        };
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if digits.contains('.') => format!("{digits}E{exponent}"),
        Some((digits, exponent)) => format!("{digits}.0E{exponent}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_jackson_writes_them() {
        let table = [
            (serde_json::json!({"b": 1, "a": [null, true]}), r#"{"b":1,"a":[null,true]}"#),
            (serde_json::json!("a\u{1f}\n\"é"), "\"a\\u001F\\n\\\"é\""),
            (serde_json::json!(1e7), "1.0E7"),
            (serde_json::json!(12345678.9), "1.23456789E7"),
            (serde_json::json!(100.0), "100.0"),
            (serde_json::json!(0.0001), "1.0E-4"),
        ];
        for (value, expected) in table {
            assert_eq!(to_text(&value), expected);
        }
    }
}
