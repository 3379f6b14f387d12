//! Which names topics may have, and which two names would collide in metrics (`.` and `_` are the same there).

/// The longest name, in UTF-16 units as the reference counts.
const MAX_NAME_LENGTH: usize = 249;

/// The internal topics.
pub const INTERNAL_TOPICS: [&str; 3] = ["__consumer_offsets", "__share_group_state", "__transaction_state"];
/// The metadata log's own topic, which nobody can create.
pub const CLUSTER_METADATA_TOPIC: &str = "__cluster_metadata";

/// Why a name is no topic's, with the reference's message.
pub fn validate(name: &str) -> Result<(), String> {
    let reason = if name.is_empty() {
        "the empty string is not allowed".to_owned()
    } else if name == "." || name == ".." {
        format!("'{name}' is not allowed")
    } else if name.encode_utf16().count() > MAX_NAME_LENGTH {
        format!("the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}")
    } else if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) {
        format!("'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")
    } else {
        return Ok(());
    };
    Err(format!("Topic name is invalid: {reason}"))
}

/// Whether a name can collide with another.
pub fn has_collision_chars(name: &str) -> bool {
    name.contains(['_', '.'])
}

/// The name with `.` as `_`.
pub fn unify_collision_chars(name: &str) -> String {
    name.replace('.', "_")
}

/// Whether the brokers keep their own data in it.
pub fn is_internal(name: &str) -> bool {
    INTERNAL_TOPICS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_with_the_reference_messages() {
        let check = |name: &str, expected: Result<(), &str>| {
            let expected = expected.map_err(|m| format!("Topic name is invalid: {m}"));
            assert_eq!(validate(name), expected, "{name}");
        };
        check("a.b_c-D9", Ok(()));
        check(&"x".repeat(249), Ok(()));
        check("", Err("the empty string is not allowed"));
        check(".", Err("'.' is not allowed"));
        check("..", Err("'..' is not allowed"));
        check("...", Ok(()));
        let long = "x".repeat(250);
        check(&long, Err(&format!("the length of '{long}' is longer than the max allowed length 249")));
        for bad in ["ä", "a/b", "a b", "a\u{0}"] {
            let message = format!(
                "'{bad}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
            );
            check(bad, Err(&message));
        }
    }
}
