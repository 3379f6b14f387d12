//! LZ4 with effort: a search through chains of earlier places with the same four bytes.
//!
//! Owns: the block compressor behind `compression.lz4.level`. A higher level looks at more places for the longest match
//! and so makes smaller blocks, which any reader takes. As in Apache Kafka the default level, 9, is not made here but by
//! the fast compressor. Pure; a table of a fixed size per compressor, reused from block to block.

/// Blocks are at most this long, so that every earlier byte is within reach of an offset.
const MAX_BLOCK: usize = 64 << 10;
const HASH_BITS: u32 = 15;
const MIN_MATCH: usize = 4;
/// The last match must begin this far before the end, and the last bytes are literals.
const MATCH_LIMIT: usize = 12;
const LAST_LITERALS: usize = 5;
/// Levels above find next to nothing more, and on some data cost seconds for a block.
const MAX_EFFECTIVE_LEVEL: i32 = 11;
const NOWHERE: u32 = u32::MAX;

pub(crate) struct HighCompressor {
    attempts: u32,
    /// Last place of each hash.
    heads: Vec<u32>,
    /// The place before a place with the same hash.
    before: Vec<u32>,
}

#[derive(Clone, Copy, Default)]
struct Match {
    from: usize,
    len: usize,
}

fn word(block: &[u8], at: usize) -> u32 {
    let bytes = block.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    u32::from_le_bytes(bytes.unwrap_or_default())
}

fn hash(block: &[u8], at: usize) -> usize {
    (word(block, at).wrapping_mul(2_654_435_761) >> (32 - HASH_BITS)) as usize
}

fn common(block: &[u8], a: usize, b: usize, end: usize) -> usize {
    let (x, y) = (block.get(a..end).unwrap_or_default(), block.get(b..end).unwrap_or_default());
    x.iter().zip(y).take_while(|(x, y)| x == y).count()
}

impl HighCompressor {
    pub(crate) fn new(level: i32) -> Self {
        let attempts = 1 << (level.clamp(1, MAX_EFFECTIVE_LEVEL) - 1);
        HighCompressor { attempts, heads: vec![NOWHERE; 1 << HASH_BITS], before: vec![NOWHERE; MAX_BLOCK] }
    }

    fn insert(&mut self, block: &[u8], at: usize) {
        let slot = hash(block, at);
        if let (Some(head), Some(before)) = (self.heads.get_mut(slot), self.before.get_mut(at)) {
            *before = std::mem::replace(head, at as u32);
        }
    }

    /// The longest match for `at` among the places inserted so far.
    fn longest(&self, block: &[u8], at: usize) -> Match {
        let end = block.len() - LAST_LITERALS;
        let mut best = Match::default();
        let mut place = self.heads.get(hash(block, at)).copied().unwrap_or(NOWHERE);
        for _ in 0..self.attempts {
            let from = place as usize;
            if place == NOWHERE || from >= at || best.len >= end - at {
                break;
            }
            let may_be_longer =
                best.len < MIN_MATCH || block.get(from + best.len) == block.get(at + best.len);
            if may_be_longer && word(block, from) == word(block, at) {
                let len = common(block, from, at, end);
                // Of a place that overlaps the current one the bytes repeat, and match as far as they do.
                if len > best.len {
                    best = Match { from, len };
                }
            }
            place = self.before.get(from).copied().unwrap_or(NOWHERE);
        }
        if best.len < MIN_MATCH { Match::default() } else { best }
    }

    /// Appends the compressed block. `block` is at most 64 KiB.
    pub(crate) fn compress(&mut self, block: &[u8], out: &mut Vec<u8>) {
        self.heads.fill(NOWHERE);
        let (mut anchor, mut at, mut inserted) = (0, 0, 0);
        let limit = block.len().min(MAX_BLOCK).saturating_sub(MATCH_LIMIT);
        while at < limit {
            while inserted < at {
                self.insert(block, inserted);
                inserted += 1;
            }
            let mut found = self.longest(block, at);
            if found.len == 0 {
                at += 1;
                continue;
            }
            // A longer match one byte on is worth one more literal.
            while at + 1 < limit {
                self.insert(block, inserted);
                inserted += 1;
                let next = self.longest(block, at + 1);
                if next.len <= found.len {
                    break;
                }
                (found, at) = (next, at + 1);
            }
            put_sequence(out, block.get(anchor..at).unwrap_or_default(), Some((at - found.from, found.len)));
            at += found.len;
            anchor = at;
        }
        put_sequence(out, block.get(anchor..).unwrap_or_default(), None);
    }
}

/// Literals, then a match: how far back and how long.
fn put_sequence(out: &mut Vec<u8>, literals: &[u8], copy: Option<(usize, usize)>) {
    let extra = copy.map_or(0, |(_, len)| len - MIN_MATCH);
    out.push(((literals.len().min(15) as u8) << 4) | extra.min(15) as u8);
    put_length(out, literals.len());
    out.extend_from_slice(literals);
    if let Some((back, _)) = copy {
        out.extend_from_slice(&(back as u16).to_le_bytes());
        put_length(out, extra);
    }
}

/// What of a length does not fit into a token's half.
fn put_length(out: &mut Vec<u8>, len: usize) {
    let Some(mut rest) = len.checked_sub(15) else { return };
    while rest >= 255 {
        out.push(255);
        rest -= 255;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks() -> Vec<Vec<u8>> {
        let mut state = 1_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let text: Vec<u8> =
            (0..9000_u32).flat_map(|n| format!("{} of {} ", n * n % 977, n % 131).into_bytes()).collect();
        let noise: Vec<u8> = (0..MAX_BLOCK).map(|_| random() as u8).collect();
        let few: Vec<u8> = (0..MAX_BLOCK / 16).map(|_| b"ab"[(random() % 2) as usize]).collect();
        let mut blocks = vec![vec![7; MAX_BLOCK], noise, few, text[..MAX_BLOCK].to_vec()];
        for len in 0..40 {
            blocks.push(vec![1; len]);
            blocks.push(text[..len].to_vec());
            blocks.push(text[..len].repeat(3));
        }
        blocks
    }

    #[test]
    fn what_it_makes_is_read_back_and_smaller_with_more_effort() {
        for block in blocks() {
            let mut sizes = Vec::new();
            for level in [1, 4, 11, 17] {
                let mut out = Vec::new();
                HighCompressor::new(level).compress(&block, &mut out);
                let mut back = vec![0; block.len()];
                let read = lz4_flex::block::decompress_into(&out, &mut back).unwrap();
                assert_eq!((read, &back), (block.len(), &block), "level {level}, {} bytes", block.len());
                sizes.push(out.len());
            }
            if block.len() == MAX_BLOCK {
                assert!(sizes.first() >= sizes.last(), "{sizes:?}");
            }
        }
    }

    #[test]
    fn a_compressor_forgets_the_block_before() {
        let blocks = blocks();
        let mut one = HighCompressor::new(9);
        for block in &blocks {
            let (mut reused, mut fresh) = (Vec::new(), Vec::new());
            one.compress(block, &mut reused);
            HighCompressor::new(9).compress(block, &mut fresh);
            assert_eq!(reused, fresh);
        }
    }
}
