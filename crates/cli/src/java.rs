//! Java's ways that show in output: the order of hash maps, rounding, its seeded random numbers.

/// `String.hashCode`.
pub fn string_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// `TopicPartition.hashCode`.
pub fn topic_partition_hash(topic: &str, partition: i32) -> i32 {
    let hash = 31i32.wrapping_add(partition);
    hash.wrapping_mul(31).wrapping_add(string_hash(topic))
}

/// `items` in the order of a `HashMap` into which they were put one after another. Buckets with so many entries that
/// Java turns them into trees keep their order of insertion here.
pub fn hash_order<T>(mut items: Vec<T>, hash: impl Fn(&T) -> i32) -> Vec<T> {
    const SMALLEST_TABLE: usize = 16;
    let mut table = SMALLEST_TABLE;
    while items.len() * 4 > table * 3 {
        table *= 2;
    }
    items.sort_by_key(|item| {
        let hash = hash(item).cast_unsigned();
        (hash ^ hash >> 16) as usize & (table - 1)
    });
    items
}

/// `String.format("%.Nf")`: the shortest decimal form of `value`, rounded half up.
pub fn fixed(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return match value {
            _ if value.is_nan() => "NaN",
            _ if value > 0.0 => "Infinity",
            _ => "-Infinity",
        }
        .to_owned();
    }
    let text = format!("{}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut number: Vec<u8> =
        whole.bytes().chain(fraction.bytes().chain(std::iter::repeat(b'0')).take(digits)).collect();
    if fraction.as_bytes().get(digits).is_some_and(|next| *next >= b'5') {
        let mut carries = true;
        for digit in number.iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                carries = false;
                break;
            }
            *digit = b'0';
        }
        if carries {
            number.insert(0, b'1');
        }
    }
    let mut text = if value.is_sign_negative() { "-".to_owned() } else { String::new() };
    let point = number.len() - digits;
    for (index, digit) in number.iter().enumerate() {
        if index == point {
            text.push('.');
        }
        text.push(char::from(*digit));
    }
    text
}

/// `java.util.SplittableRandom`.
#[derive(Clone, Debug)]
pub struct SplittableRandom {
    seed: u64,
}

impl SplittableRandom {
    const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

    pub fn new(seed: i64) -> Self {
        SplittableRandom { seed: seed.cast_unsigned() }
    }

    fn next_int(&mut self) -> u32 {
        self.seed = self.seed.wrapping_add(Self::GOLDEN_GAMMA);
        let mixed = (self.seed ^ self.seed >> 33).wrapping_mul(0x62a9_d9ed_7997_05f5);
        ((mixed ^ mixed >> 28).wrapping_mul(0xcb24_d0a5_c88c_35b3) >> 32) as u32
    }

    /// A number from 0 below `bound`, which must be positive.
    pub fn below(&mut self, bound: u32) -> u32 {
        debug_assert!(bound > 0);
        let mask = bound.wrapping_sub(1);
        let first = self.next_int();
        if bound & mask == 0 {
            return first & mask;
        }
        let mut candidate = first >> 1;
        loop {
            let result = candidate % bound;
            // Too near the top: taking it would favour small numbers.
            if candidate.wrapping_add(mask).wrapping_sub(result) <= i32::MAX.cast_unsigned() {
                return result;
            }
            candidate = self.next_int() >> 1;
        }
    }
}

/// `new String(bytes, UTF_8)`: as Rust's lossy decoding, except that a surrogate in three bytes, whole or cut off, becomes
/// one replacement character and not one for each byte.
pub fn utf8_lossy(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(2).position(is_surrogate) {
        let (before, surrogate) = rest.split_at(at);
        text.push_str(&String::from_utf8_lossy(before));
        text.push(char::REPLACEMENT_CHARACTER);
        let third = surrogate.get(2).is_some_and(|byte| byte & 0xc0 == 0x80);
        rest = surrogate.get(if third { 3 } else { 2 }..).unwrap_or_default();
    }
    text.push_str(&String::from_utf8_lossy(rest));
    text
}

fn is_surrogate(pair: &[u8]) -> bool {
    matches!(pair, [0xed, 0xa0..=0xbf])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_text_is_replaced_as_java_does() {
        for (bytes, expected) in [
            (&b"a\xed\xa0\x80b"[..], "a\u{fffd}b"),
            (b"\xed\xa0x", "\u{fffd}x"),
            (b"\xed\xbf", "\u{fffd}"),
            (b"\xe4\xb8x", "\u{fffd}x"),
            (b"\xf0\x9f\x98", "\u{fffd}"),
            (b"\xc0\x80\xf5\x80", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
            ("ñ😀".as_bytes(), "ñ😀"),
        ] {
            assert_eq!(utf8_lossy(bytes), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn hashes_are_those_of_java() {
        assert_eq!(string_hash("hello"), 99_162_322);
        assert_eq!(string_hash("__consumer_offsets"), -970_371_369);
    }

    /// Recorded from Java 17.
    #[test]
    fn random_numbers_are_those_of_a_seed() {
        let mut random = SplittableRandom::new(0);
        let text: String = (0..20).map(|_| char::from(b'A' + random.below(26) as u8)).collect();
        assert_eq!(text, "YQHHNEBSEPDNSEIFGAMS");
        let mut random = SplittableRandom::new(-7);
        let numbers: Vec<u32> =
            [1000, 16, 3, 2_000_000_000].iter().map(|bound| random.below(*bound)).collect();
        assert_eq!(numbers, [221, 1, 1, 1062177434]);
    }

    #[test]
    fn numbers_are_rounded_half_up_in_decimal() {
        let table = [
            (0.25, 1, "0.3"),
            (1.005, 2, "1.01"),
            (999.95, 1, "1000.0"),
            (-0.05, 1, "-0.1"),
            (0.0, 2, "0.00"),
            (1e21, 1, "1000000000000000000000.0"),
            (123.456, 6, "123.456000"),
            (f64::NAN, 1, "NaN"),
            (f64::INFINITY, 1, "Infinity"),
        ];
        for (value, digits, expected) in table {
            assert_eq!(fixed(value, digits), expected);
        }
    }

    #[test]
    fn small_maps_come_in_the_order_of_their_buckets() {
        let order = hash_order(vec!["a", "q", "b", "p"], |text| string_hash(text));
        assert_eq!(order, ["p", "a", "q", "b"]);
    }
}
