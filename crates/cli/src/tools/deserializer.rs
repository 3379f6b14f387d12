//! The deserializers of the reference by class name, as far as they give something printable.

/// How the bytes of a key, value or header are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deserializer {
    String,
    Bytes,
    Boolean,
    Short,
    Integer,
    Long,
    Float,
    Double,
    Uuid,
    Void,
}

impl Deserializer {
    pub(super) fn by_class(class: &str) -> Option<Self> {
        let name = class.strip_prefix("org.apache.kafka.common.serialization.")?;
        Some(match name {
            "StringDeserializer" => Deserializer::String,
            "BytesDeserializer" => Deserializer::Bytes,
            "BooleanDeserializer" => Deserializer::Boolean,
            "ShortDeserializer" => Deserializer::Short,
            "IntegerDeserializer" => Deserializer::Integer,
            "LongDeserializer" => Deserializer::Long,
            "FloatDeserializer" => Deserializer::Float,
            "DoubleDeserializer" => Deserializer::Double,
            "UUIDDeserializer" => Deserializer::Uuid,
            "VoidDeserializer" => Deserializer::Void,
            _ => return None,
        })
    }

    /// The value as text, or the reference's complaint.
    pub(super) fn show(self, bytes: &[u8]) -> Result<String, String> {
        match self {
            Deserializer::String => Ok(crate::java::utf8_lossy(bytes)),
            Deserializer::Bytes => Ok(escape(bytes)),
            Deserializer::Boolean => match bytes {
                [1] => Ok("true".to_owned()),
                [0] => Ok("false".to_owned()),
                [other] => Err(format!("Unexpected byte received by BooleanDeserializer: {}", *other as i8)),
                _ => Err("Size of data received by BooleanDeserializer is not 1".to_owned()),
            },
            Deserializer::Short => {
                fixed(bytes, "ShortDeserializer", "2", |b| i16::from_be_bytes(b).to_string())
            }
            Deserializer::Integer => {
                fixed(bytes, "IntegerDeserializer", "4", |b| i32::from_be_bytes(b).to_string())
            }
            Deserializer::Long => {
                fixed(bytes, "LongDeserializer", "8", |b| i64::from_be_bytes(b).to_string())
            }
            Deserializer::Float => {
                let show =
                    |b| java_double(f64::from(f32::from_be_bytes(b)), f32::from_be_bytes(b).to_string());
                fixed(bytes, "Deserializer", "4", show)
            }
            Deserializer::Double => {
                let show = |b| java_double(f64::from_be_bytes(b), f64::from_be_bytes(b).to_string());
                fixed(bytes, "Deserializer", "8", show)
            }
            Deserializer::Uuid => Ok(crate::java::utf8_lossy(bytes).to_lowercase()),
            Deserializer::Void => Err("Data should be null for a VoidDeserializer.".to_owned()),
        }
    }
}

fn fixed<const N: usize>(
    bytes: &[u8],
    name: &str,
    size: &str,
    show: impl Fn([u8; N]) -> String,
) -> Result<String, String> {
    match <[u8; N]>::try_from(bytes) {
        Ok(bytes) => Ok(show(bytes)),
        Err(_) => Err(format!("Size of data received by {name} is not {size}")),
    }
}

/// Java's `Double.toString`: always a fraction, an exponent outside 10^-3..10^7.
fn java_double(value: f64, shortest: String) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-3..1e7).contains(&magnitude) {
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let mantissa = if mantissa.contains('.') { mantissa.to_owned() } else { format!("{mantissa}.0") };
        return format!("{mantissa}E{exponent}");
    }
    if shortest.contains('.') { shortest } else { format!("{shortest}.0") }
}

/// Printable ASCII as it is, everything else as `\xNN`, as the reference's Bytes print themselves.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b' '..=b'~' if *byte != b'\\' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\x{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_java_prints_them() {
        let double = |value: f64| Deserializer::Double.show(&value.to_be_bytes()).unwrap();
        for (value, text) in [(1.0, "1.0"), (0.5, "0.5"), (1e7, "1.0E7"), (1.5e-5, "1.5E-5"), (0.0, "0.0")] {
            assert_eq!(double(value), text);
        }
        assert_eq!(Deserializer::Integer.show(&[0, 0, 1, 0]).unwrap(), "256");
        let error = Deserializer::Integer.show(b"null!").unwrap_err();
        assert_eq!(error, "Size of data received by IntegerDeserializer is not 4");
        assert_eq!(Deserializer::Bytes.show(b"a\x01\\").unwrap(), "a\\x01\\x5C");
    }
}
