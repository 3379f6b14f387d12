//! Java's string hash: which partition holds a group, and in which order a Java map would show its entries.

/// `String.hashCode` of Java: over UTF-16 units, wrapping.
pub fn java_string_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// The partition of `__consumer_offsets` that holds `group_id`; `partitions` is the topic's partition count.
pub fn partition_for(group_id: &str, partitions: i32) -> i32 {
    let hash = java_string_hash(group_id);
    let positive = if hash == i32::MIN { 0 } else { hash.abs() };
    positive % partitions.max(1)
}

/// The place of `key` among `entries` of a Java `HashMap` without collisions: what breaks ties in the reference where
/// it takes the first of a map.
pub(crate) fn java_map_order(key: &str, entries: usize) -> u32 {
    let mut capacity = 16u32;
    while u64::from(capacity) * 3 / 4 < entries as u64 && capacity < 1 << 30 {
        capacity *= 2;
    }
    let hash = java_string_hash(key).cast_unsigned();
    (hash ^ (hash >> 16)) & (capacity - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_as_java_does() {
        for (text, hash) in [
            ("", 0),
            ("a", 97),
            ("hello", 99_162_322),
            ("polygenelubricants", i32::MIN),
            ("gruppe-ä", 673_522_898),
            ("😀", 1_772_899),
        ] {
            assert_eq!(java_string_hash(text), hash, "{text}");
        }
    }

    #[test]
    fn a_group_has_its_partition() {
        assert_eq!(
            partition_for("polygenelubricants", 50),
            0,
            "the absolute value of the smallest integer is 0"
        );
        assert_eq!(partition_for("hello", 50), 22);
        assert_eq!(partition_for("g", 0), 0);
    }
}
