//! Topic filters: a Java regular expression in which a comma means "or".

use fancy_regex::Regex;

use crate::failure::Failure;

/// The topics Kafka keeps for itself.
pub fn is_internal_topic(topic: &str) -> bool {
    matches!(topic, "__consumer_offsets" | "__transaction_state" | "__share_group_state")
}

/// Matches whole topic names.
#[derive(Debug)]
pub struct TopicFilter {
    pattern: Regex,
}

impl TopicFilter {
    pub fn new(raw: &str) -> Result<Self, Failure> {
        let text = raw.trim().replace(',', "|").replace(' ', "");
        Self::plain(text.trim_matches(['"', '\'']))
    }

    /// A regular expression as it stands, for consumers' subscriptions.
    pub fn plain(text: &str) -> Result<Self, Failure> {
        let invalid = |_| Failure::text("java.lang.RuntimeException", format!("{text} is an invalid regex."));
        let pattern = Regex::new(&format!("^(?:{text})$")).map_err(invalid)?;
        Ok(TopicFilter { pattern })
    }

    pub fn allows(&self, topic: &str, exclude_internal: bool) -> bool {
        self.pattern.is_match(topic).unwrap_or(false) && !(exclude_internal && is_internal_topic(topic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_matches_whole_names_and_takes_commas_as_alternatives() {
        let table = [
            ("a.*", "ab", true),
            ("a", "ab", false),
            ("a,b", "b", true),
            ("'a, b'", "b", true),
            ("(?!__).*", "__x", false),
            (".*", "__consumer_offsets", false),
        ];
        for (raw, topic, expected) in table {
            assert_eq!(TopicFilter::new(raw).unwrap().allows(topic, true), expected, "{raw} {topic}");
        }
        assert_eq!(TopicFilter::new("[").unwrap_err().to_string(), "[ is an invalid regex.");
    }
}
