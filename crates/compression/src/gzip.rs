//! gzip (RFC 1952) over zlib-rs: one member is written; concatenated members are read, and bytes behind the last one
//! that are no member are ignored, as Java's reader does.

use flate2::{Compress, Compression as Level, Decompress, FlushCompress, FlushDecompress, Status};
use record::CodecError;
use std::io::{self, Read};

use crate::{Pool, invalid};

const MAGIC: [u8; 2] = [0x1f, 0x8b];
const DEFLATE: u8 = 8;
/// Magic, method, no flags, no time, no extra flags, unknown system: what Java writes.
const HEADER: [u8; 10] = [0x1f, 0x8b, DEFLATE, 0, 0, 0, 0, 0, 0, 0xff];

const FLAG_HEADER_CRC: u8 = 2;
const FLAG_EXTRA: u8 = 4;
const FLAG_NAME: u8 = 8;
const FLAG_COMMENT: u8 = 16;

thread_local! {
    static DEFLATERS: Pool<(i32, Compress)> = const { Pool::new() };
    static INFLATERS: Pool<Decompress> = const { Pool::new() };
}

pub(crate) fn compress(level: i32, source: &[u8], destination: &mut Vec<u8>) -> Result<(), CodecError> {
    let (_, mut deflater) =
        DEFLATERS.with(|pool| pool.take_where(|(of, _)| *of == level)).unwrap_or_else(|| {
            let zlib_level = u32::try_from(level).map_or(Level::default(), Level::new);
            (level, Compress::new(zlib_level, false))
        });
    deflater.reset();
    destination.extend_from_slice(&HEADER);
    loop {
        destination.reserve((source.len() / 4).clamp(512, 1 << 20));
        let consumed = usize::try_from(deflater.total_in()).unwrap_or(usize::MAX);
        let rest = source.get(consumed..).unwrap_or_default();
        match deflater.compress_vec(rest, destination, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => break,
            Ok(_) => {}
            Err(error) => return Err(CodecError::Malformed(error.to_string().into())),
        }
    }
    destination.extend_from_slice(&crc32fast::hash(source).to_le_bytes());
    destination.extend_from_slice(&(source.len() as u32).to_le_bytes());
    let _ = DEFLATERS.try_with(|pool| pool.put((level, deflater)));
    Ok(())
}

pub(crate) struct GzipReader<'a> {
    /// Compressed bytes that were not used yet.
    rest: &'a [u8],
    inflater: Option<Decompress>,
    crc: crc32fast::Hasher,
    length: u32,
    /// The member's data is over. Its trailer is judged at the next read, so that what precedes it is seen first.
    is_member_finished: bool,
    is_finished: bool,
}

impl<'a> GzipReader<'a> {
    pub(crate) fn new(source: &'a [u8]) -> io::Result<GzipReader<'a>> {
        let rest = skip_header(source)?;
        let mut inflater = INFLATERS.with(Pool::take).unwrap_or_else(|| Decompress::new(false));
        inflater.reset(false);
        let crc = crc32fast::Hasher::new();
        Ok(GzipReader {
            rest,
            inflater: Some(inflater),
            crc,
            length: 0,
            is_member_finished: false,
            is_finished: false,
        })
    }

    /// Checks the trailer of a member and goes on to the next one, if there is one.
    fn finish_member(&mut self) -> io::Result<()> {
        self.is_member_finished = false;
        let Some((trailer, rest)) = self.rest.split_first_chunk::<8>() else {
            return Err(invalid("gzip trailer is cut off"));
        };
        let [a, b, c, d, e, f, g, h] = *trailer;
        let crc = std::mem::take(&mut self.crc).finalize();
        if u32::from_le_bytes([a, b, c, d]) != crc || u32::from_le_bytes([e, f, g, h]) != self.length {
            return Err(invalid("gzip checksum or length does not match"));
        }
        self.length = 0;
        match skip_header(rest) {
            Ok(rest) => {
                self.rest = rest;
                if let Some(inflater) = &mut self.inflater {
                    inflater.reset(false);
                }
            }
            Err(_) => self.is_finished = true,
        }
        Ok(())
    }
}

impl Read for GzipReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.is_finished && !buffer.is_empty() {
            if self.is_member_finished {
                self.finish_member()?;
                continue;
            }
            let Some(inflater) = &mut self.inflater else { break };
            let (before_in, before_out) = (inflater.total_in(), inflater.total_out());
            let status = inflater.decompress(self.rest, buffer, FlushDecompress::None).map_err(invalid)?;
            let consumed = (inflater.total_in() - before_in) as usize;
            let produced = (inflater.total_out() - before_out) as usize;
            self.rest = self.rest.get(consumed..).unwrap_or_default();
            self.crc.update(buffer.get(..produced).unwrap_or_default());
            self.length = self.length.wrapping_add(produced as u32);
            if status == Status::StreamEnd {
                self.is_member_finished = true;
            } else if produced == 0 && (consumed == 0 || self.rest.is_empty()) {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "gzip stream ends early"));
            }
            if produced > 0 {
                return Ok(produced);
            }
        }
        Ok(0)
    }
}

impl Drop for GzipReader<'_> {
    fn drop(&mut self) {
        if let Some(inflater) = self.inflater.take() {
            let _ = INFLATERS.try_with(|pool| pool.put(inflater));
        }
    }
}

fn skip_header(source: &[u8]) -> io::Result<&[u8]> {
    let cut_off = || invalid("gzip header is cut off");
    let (header, mut rest) = source.split_first_chunk::<10>().ok_or_else(cut_off)?;
    let [magic_1, magic_2, method, flags, ..] = *header;
    if [magic_1, magic_2] != MAGIC || method != DEFLATE {
        return Err(invalid("Not in gzip format"));
    }
    if flags & FLAG_EXTRA != 0 {
        let (length, after) = rest.split_first_chunk::<2>().ok_or_else(cut_off)?;
        rest = after.get(usize::from(u16::from_le_bytes(*length))..).ok_or_else(cut_off)?;
    }
    for flag in [FLAG_NAME, FLAG_COMMENT] {
        if flags & flag != 0 {
            let end = rest.iter().position(|byte| *byte == 0).ok_or_else(cut_off)?;
            rest = rest.get(end + 1..).unwrap_or_default();
        }
    }
    if flags & FLAG_HEADER_CRC != 0 {
        let (stored, after) = rest.split_first_chunk::<2>().ok_or_else(cut_off)?;
        let length = source.len() - rest.len();
        let computed = crc32fast::hash(source.get(..length).unwrap_or_default()) as u16;
        if u16::from_le_bytes(*stored) != computed {
            return Err(invalid("gzip header checksum does not match"));
        }
        rest = after;
    }
    Ok(rest)
}
