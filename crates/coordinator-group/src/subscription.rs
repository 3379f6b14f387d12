//! The one thing a coordinator reads of the consumers' own protocol: the topics of a subscription.
//!
//! Layout (`ConsumerProtocolSubscription` v0, a prefix of every later version): version i16, array of strings, bytes.

use std::collections::BTreeSet;

use bytes::Buf;

/// The topics in a member's metadata, `None` when it is not a subscription.
pub(crate) fn subscribed_topics(mut metadata: &[u8]) -> Option<BTreeSet<String>> {
    let version = metadata.try_get_i16().ok()?;
    if version < 0 {
        return None;
    }
    let count = usize::try_from(metadata.try_get_i32().ok()?).ok()?;
    // Every name has a length of two bytes: no count can exceed half of what remains.
    if count > metadata.remaining() / 2 {
        return None;
    }
    let mut topics = BTreeSet::new();
    for _ in 0..count {
        let length = usize::try_from(metadata.try_get_i16().ok()?).ok()?;
        let (name, rest) = metadata.split_at_checked(length)?;
        topics.insert(String::from_utf8_lossy(name).into_owned());
        metadata = rest;
    }
    // User data: a nullable byte array must follow.
    let length = metadata.try_get_i32().ok()?;
    let length = if length == -1 { 0 } else { usize::try_from(length).ok()? };
    (length <= metadata.remaining()).then_some(topics)
}

#[cfg(test)]
pub(crate) fn encode_subscription(topics: &[&str]) -> bytes::Bytes {
    use bytes::{BufMut, BytesMut};
    let mut out = BytesMut::new();
    out.put_i16(0);
    out.put_i32(i32::try_from(topics.len()).unwrap());
    for topic in topics {
        out.put_i16(i16::try_from(topic.len()).unwrap());
        out.put_slice(topic.as_bytes());
    }
    out.put_i32(-1);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_topics_of_a_subscription_and_nothing_else() {
        let good = encode_subscription(&["b", "a"]);
        let topics: Vec<String> = subscribed_topics(&good).unwrap().into_iter().collect();
        assert_eq!(topics, ["a", "b"]);
        for cut in 0..good.len() {
            assert_eq!(subscribed_topics(&good[..cut]), None, "cut at {cut}");
        }
        assert_eq!(subscribed_topics(&[0xff, 0xff, 0, 0, 0, 0]), None);
        assert_eq!(subscribed_topics(&[0, 0, 0x7f, 0xff, 0xff, 0xff]), None);
    }
}
