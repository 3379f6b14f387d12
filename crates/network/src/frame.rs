//! Size-prefixed frames out of a byte stream, with memory bounded by what has been received.
//!
//! Invariants: the buffer's capacity never exceeds twice the bytes received plus [`FIRST_READ`], except up to the
//! size of the largest frame that this connection has already completed (it has shown that it fills them).

use bytes::{Buf, Bytes, BytesMut};

/// Capacity asked for when nothing is known of the peer: a page-sized read that holds most requests.
pub const FIRST_READ: usize = 4 * 1024;
/// Largest capacity granted ahead of data to a peer that has completed frames of that size before.
const MAX_TRUSTED: usize = 4 * 1024 * 1024;
/// Room behind a frame: a read that leaves it empty has drained the socket.
const SLACK: usize = 1;

/// Why a stream cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameError {
    /// The announced size is negative or above `socket.request.max.bytes`; the first four bytes are kept as they hint at the kind of peer.
    Size { announced: i32, limit: usize, first: [u8; 4] },
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self::Size { announced, limit, first } = self;
        write!(f, "Invalid receive (size = {announced}, limit socket.request.max.bytes = {limit}): ")?;
        match first {
            b"GET " | b"POST" | b"HEAD" | b"PUT " | b"OPTI" | b"DELE" => {
                write!(f, "the peer speaks HTTP; this port serves the Kafka protocol")
            }
            [0x16, 0x03, _, _] => write!(
                f,
                "the peer speaks TLS; this listener is PLAINTEXT (set security.protocol=PLAINTEXT at the client)"
            ),
            _ => write!(f, "the peer does not speak the Kafka protocol or its request is too large"),
        }
    }
}

/// Accumulates bytes and yields frames.
#[derive(Debug)]
pub struct FrameReader {
    buffer: BytesMut,
    limit: usize,
    trusted: usize,
    /// Size of the last frame, which the next one is expected to have.
    last: usize,
}

impl FrameReader {
    /// `limit` is `socket.request.max.bytes`.
    pub fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), limit, trusted: FIRST_READ, last: 0 }
    }

    /// True when no partial frame is pending.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Takes the next whole frame without its size prefix, or `None` when more bytes are needed.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(size) = self.announced()? else { return Ok(None) };
        if self.buffer.len() < 4 + size {
            return Ok(None);
        }
        self.buffer.advance(4);
        let frame = self.buffer.split_to(size).freeze();
        self.last = size.min(MAX_TRUSTED);
        self.trusted = self.trusted.max(self.last + 4);
        Ok(Some(frame))
    }

    /// The buffer to read into, with room for the next bytes.
    pub fn spare(&mut self) -> Result<&mut BytesMut, FrameError> {
        let have = self.buffer.len();
        let want = match self.announced()? {
            Some(size) => (4 + size).saturating_sub(have) + SLACK,
            None => FIRST_READ.max(4 + self.last + SLACK),
        };
        let allowed = have.max(FIRST_READ).max((self.trusted + SLACK).saturating_sub(have));
        let room = want.clamp(1, allowed);
        if self.buffer.capacity() - have < room {
            self.buffer.reserve(room);
        }
        Ok(&mut self.buffer)
    }

    /// Gives the buffer back to the allocator while the connection is idle.
    pub fn release_when_idle(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }

    fn announced(&self) -> Result<Option<usize>, FrameError> {
        let Some(first) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let announced = i32::from_be_bytes(*first);
        match usize::try_from(announced) {
            Ok(size) if size <= self.limit => Ok(Some(size)),
            _ => Err(FrameError::Size { announced, limit: self.limit, first: *first }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(reader: &mut FrameReader, bytes: &[u8]) {
        reader.spare().unwrap().extend_from_slice(bytes);
    }

    #[test]
    fn frames_come_out_whole_however_the_bytes_are_split() {
        let stream = [&[0, 0, 0, 3, 1, 2, 3][..], &[0, 0, 0, 0], &[0, 0, 0, 1, 9]].concat();
        for cut in 0..stream.len() {
            let mut reader = FrameReader::new(100);
            let mut frames = Vec::new();
            for part in [&stream[..cut], &stream[cut..]] {
                feed(&mut reader, part);
                while let Some(frame) = reader.next_frame().unwrap() {
                    frames.push(frame.to_vec());
                }
            }
            assert_eq!(frames, vec![vec![1, 2, 3], vec![], vec![9]], "cut at {cut}");
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn sizes_out_of_bounds_are_refused_with_a_hint() {
        for (bytes, hint) in [
            (&b"GET "[..], "HTTP"),
            (&[0x16, 0x03, 0x01, 0x02], "TLS"),
            (&[0xff, 0xff, 0xff, 0xff], "size = -1"),
            (&[0x7f, 0xff, 0xff, 0xff], "too large"),
        ] {
            let mut reader = FrameReader::new(1000);
            feed(&mut reader, bytes);
            let error = reader.next_frame().unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
            assert!(reader.spare().is_err());
        }
    }

    #[test]
    fn memory_follows_received_bytes_not_the_announced_size() {
        let mut reader = FrameReader::new(100 << 20);
        feed(&mut reader, &(100u32 << 20).to_be_bytes());
        feed(&mut reader, &[1]);
        assert!(reader.spare().unwrap().capacity() <= 4 * FIRST_READ);
    }

    #[test]
    fn a_peer_that_fills_its_frames_gets_them_in_one_allocation() {
        let mut reader = FrameReader::new(100 << 20);
        let frame = [&1_000_000u32.to_be_bytes()[..], &vec![7; 1_000_000]].concat();
        feed(&mut reader, &frame);
        assert!(reader.next_frame().unwrap().is_some());
        reader.release_when_idle();
        feed(&mut reader, &1_000_000u32.to_be_bytes());
        assert!(reader.spare().unwrap().capacity() >= 1_000_000);
    }
}
