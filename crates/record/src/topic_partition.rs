//! A topic's name and a partition's number: the key of nearly every map of a broker.

use std::fmt;
use std::sync::Arc;

/// A partition of a topic. Clones share the name. Ordered by topic, then partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    pub topic: Arc<str>,
    pub partition: i32,
}

impl TopicPartition {
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_as_kafka_does() {
        assert_eq!(TopicPartition::new("a-b", 7).to_string(), "a-b-7");
        assert!(TopicPartition::new("a", 9) < TopicPartition::new("b", 0));
    }
}
