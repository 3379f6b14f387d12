//! Which offset each key was last seen at, in a fixed amount of memory.
//!
//! Owns: [`OffsetMap`]: open addressing over slots of 24 bytes, a 16-byte hash of the key and its offset, as many as
//! the reference's map has in the same memory.
//! Invariants: keys themselves are not kept. Two keys are taken for one only if all 128 bits of a keyed hash
//! (SipHash-2-4 with 128 bits) agree; the key is random and secret, so no set of keys can be made for that, and among
//! 2^32 keys the chance is below 2^-64. Memory is taken when a log needs it, for no more slots than it can have keys.
//! Concurrency, crash: one cleaner's own; nothing is written.

/// One entry: hash, then offset + 1, so that zeroed memory is empty.
#[derive(Clone, Copy, Default)]
struct Slot {
    hash: [u64; 2],
    offset_plus_one: u64,
}

/// Bytes of one entry, as in the reference.
pub const BYTES_PER_ENTRY: usize = 24;

pub struct OffsetMap {
    /// Slots that the configured memory has.
    capacity: usize,
    /// How many may be filled.
    max_entries: usize,
    key: [u64; 2],
    slots: Vec<Slot>,
    entries: usize,
    latest_offset: i64,
}

impl OffsetMap {
    /// A map in `memory` bytes that is full at `load_factor` of its slots. `key` is random.
    pub fn new(memory: usize, load_factor: f64, key: [u64; 2]) -> Self {
        let capacity = memory / BYTES_PER_ENTRY;
        let max_entries = (capacity as f64 * load_factor) as usize;
        // An entirely full table would make a search for an absent key endless.
        let max_entries = max_entries.min(capacity.saturating_sub(1)).max(1);
        OffsetMap { capacity, max_entries, key, slots: Vec::new(), entries: 0, latest_offset: -1 }
    }

    /// Empties the map and makes room for at most `keys` keys.
    pub fn reset(&mut self, keys: u64) {
        // Twice the keys: half full, searches are short.
        let wanted = usize::try_from(keys.saturating_mul(2)).unwrap_or(usize::MAX).max(16);
        let slots = wanted.min(self.capacity);
        // Zeroed memory straight from the system costs nothing until it is used.
        self.slots = Vec::new();
        self.slots = vec![Slot::default(); slots];
        self.entries = 0;
        self.latest_offset = -1;
    }

    /// Gives the memory back.
    pub fn release(&mut self) {
        self.slots = Vec::new();
        self.entries = 0;
    }

    pub fn is_full(&self) -> bool {
        self.entries >= self.max_entries
    }

    /// How much of the configured memory is in use, from 0 to 1.
    pub fn utilization(&self) -> f64 {
        self.entries as f64 / self.capacity.max(1) as f64
    }

    /// The offset up to which the log is in the map; -1: nothing is.
    pub fn latest_offset(&self) -> i64 {
        self.latest_offset
    }

    pub fn update_latest_offset(&mut self, offset: i64) {
        self.latest_offset = offset;
    }

    /// Where a key with this hash is, or would be.
    fn find(&self, hash: [u64; 2]) -> usize {
        let len = self.slots.len();
        let mut at = ((u128::from(hash[0]) * len as u128) >> 64) as usize;
        // There is always an empty slot: see `new` and `put`.
        while let Some(slot) = self.slots.get(at) {
            if slot.offset_plus_one == 0 || slot.hash == hash {
                break;
            }
            at += 1;
            if at == len {
                at = 0;
            }
        }
        at
    }

    /// Notes a key's offset. False when the map is full: the offset was not taken.
    pub fn put(&mut self, key: &[u8], offset: i64) -> bool {
        if self.is_full() || self.entries + 1 >= self.slots.len() {
            return false;
        }
        let hash = siphash128(self.key, key);
        let at = self.find(hash);
        let Some(slot) = self.slots.get_mut(at) else { return false };
        if slot.offset_plus_one == 0 {
            slot.hash = hash;
            self.entries += 1;
        }
        slot.offset_plus_one = offset.wrapping_add(1) as u64;
        self.latest_offset = offset;
        true
    }

    /// The last offset of a key; -1: it is not in the map.
    pub fn get(&self, key: &[u8]) -> i64 {
        let at = self.find(siphash128(self.key, key));
        self.slots.get(at).map_or(-1, |slot| (slot.offset_plus_one as i64).wrapping_sub(1))
    }
}

/// SipHash-2-4 with a result of 128 bits (Aumasson and Bernstein).
fn siphash128(key: [u64; 2], data: &[u8]) -> [u64; 2] {
    let mut state = Sip {
        v0: key[0] ^ 0x736f_6d65_7073_6575,
        v1: key[1] ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        v2: key[0] ^ 0x6c79_6765_6e65_7261,
        v3: key[1] ^ 0x7465_6462_7974_6573,
    };
    let (words, rest) = data.as_chunks::<8>();
    for word in words {
        state.absorb(u64::from_le_bytes(*word));
    }
    let mut last = (data.len() as u64) << 56;
    for (i, byte) in rest.iter().enumerate() {
        last |= u64::from(*byte) << (8 * i);
    }
    state.absorb(last);
    state.v2 ^= 0xee;
    let first = state.squeeze();
    state.v1 ^= 0xdd;
    [first, state.squeeze()]
}

struct Sip {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl Sip {
    #[inline(always)]
    fn absorb(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.round();
        self.v0 ^= word;
    }

    #[inline(always)]
    fn squeeze(&mut self) -> u64 {
        for _ in 0..4 {
            self.round();
        }
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }

    #[inline(always)]
    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v2 = self.v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_siphash_2_4_128() {
        // Key 00..0f, messages 00 01 ..: the vectors of the reference implementation.
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let message: Vec<u8> = (0..64).collect();
        let hex = |hash: [u64; 2]| -> String {
            hash.iter().flat_map(|half| half.to_le_bytes()).map(|byte| format!("{byte:02x}")).collect()
        };
        for (length, expected) in [
            (0, "a3817f04ba25a8e66df67214c7550293"),
            (1, "da87c1d86b99af44347659119b22fc45"),
            (8, "3b62a9ba6258f5610f83e264f31497b4"),
            (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
            (63, "5150d1772f50834a503e069a973fbd7c"),
        ] {
            assert_eq!(hex(siphash128(key, &message[..length])), expected, "{length} bytes");
        }
    }

    #[test]
    fn the_last_offset_of_each_key_is_found() {
        let mut map = OffsetMap::new(24 * 1000, 0.9, [1, 2]);
        map.reset(500);
        for offset in 0..2000_i64 {
            assert!(map.put(&(offset % 300).to_be_bytes(), offset));
        }
        assert_eq!((map.entries, map.latest_offset()), (300, 1999));
        for key in 0..300_i64 {
            let last = (0..2000).rev().find(|offset| offset % 300 == key).unwrap();
            assert_eq!(map.get(&key.to_be_bytes()), last, "{key}");
        }
        assert_eq!(map.get(b"absent"), -1);
        map.reset(500);
        assert_eq!((map.get(&0_i64.to_be_bytes()), map.entries, map.latest_offset()), (-1, 0, -1));
        assert!(map.put(b"", 0), "an empty key is a key, and 0 an offset");
        assert_eq!(map.get(b""), 0);
    }

    #[test]
    fn a_full_map_takes_no_more() {
        let mut map = OffsetMap::new(24 * 10 + 23, 0.9, [1, 2]);
        map.reset(u64::MAX);
        for offset in 0..9 {
            assert!(map.put(&[offset], i64::from(offset)));
        }
        assert!(map.is_full() && !map.put(&[9], 9) && !map.put(&[0], 9));
        assert_eq!((map.latest_offset(), map.get(&[0])), (8, 0));
        let mut map = OffsetMap::new(24 * 4, 1.0, [1, 2]);
        map.reset(100);
        assert_eq!((0..10_u8).filter(|key| map.put(&[*key], 1)).count(), 3, "one slot stays empty");
        assert_eq!(map.get(b"absent"), -1);
    }
}
