//! Which partition a record goes to: murmur2 of its key as the Java client computes it, else the sticky partition.
//!
//! Sticky partitioning is KIP-794's: records without a key stay with one partition until `batch.size` bytes went there,
//! then another one is drawn among the partitions that have a leader.

/// Kafka's murmur2 of a key.
pub fn murmur2(data: &[u8]) -> i32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash: u32 = 0x9747_b28c ^ (data.len() as u32);
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = words.remainder();
    for (index, byte) in rest.iter().enumerate().rev() {
        hash ^= u32::from(*byte) << (8 * index);
    }
    if !rest.is_empty() {
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    (hash ^ (hash >> 15)) as i32
}

/// The partition of a key among `partitions` (> 0).
pub fn partition_of_key(key: &[u8], partitions: usize) -> usize {
    (murmur2(key) & i32::MAX) as usize % partitions.max(1)
}

/// The sticky choice of one topic.
#[derive(Debug)]
pub(super) struct Sticky {
    state: u64,
    chosen: Option<usize>,
    bytes: usize,
}

impl Sticky {
    pub(super) fn new(seed: u64) -> Self {
        Sticky { state: seed | 1, chosen: None, bytes: 0 }
    }

    /// The partition for the next record without a key; `available` are indexes of partitions with a leader.
    pub(super) fn partition(&mut self, partitions: usize, available: &[usize]) -> usize {
        match self.chosen {
            Some(chosen) if chosen < partitions => chosen,
            _ => {
                let random = self.random() as usize;
                let chosen = match available.len() {
                    0 => random % partitions.max(1),
                    count => available.get(random % count).copied().unwrap_or_default(),
                };
                self.chosen = Some(chosen);
                chosen
            }
        }
    }

    /// Notes what went to the chosen partition; after `batch_size` bytes another one is drawn.
    pub(super) fn written(&mut self, bytes: usize, batch_size: usize) {
        self.bytes += bytes;
        if self.bytes >= batch_size {
            self.chosen = None;
            self.bytes = 0;
        }
    }

    fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state >> 11
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur2_gives_the_java_clients_values() {
        let table: [(&str, i32); 7] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
            ("", 275_646_681),
        ];
        for (key, expected) in table {
            assert_eq!(murmur2(key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn the_sticky_partition_changes_after_a_batch_of_bytes() {
        let mut sticky = Sticky::new(7);
        let first = sticky.partition(8, &[2, 5]);
        assert!([2, 5].contains(&first));
        sticky.written(10, 100);
        assert_eq!(sticky.partition(8, &[2, 5]), first);
        sticky.written(90, 100);
        let seen: std::collections::BTreeSet<usize> = (0..64)
            .map(|_| {
                sticky.written(100, 100);
                sticky.partition(8, &[2, 5])
            })
            .collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [2, 5]);
    }
}
