//! zstd: whole frames are written; any sequence of frames is read through a pooled context.

use record::CodecError;
use std::io::{self, Read};
use zstd::zstd_safe::{
    CCtx, CParameter, DCtx, InBuffer, OutBuffer, ResetDirective, compress_bound, get_error_name,
};

use crate::{Pool, invalid};

/// A context that grew beyond this for one unusual batch is given back.
const KEPT_CONTEXT_SIZE: usize = 16 << 20;

thread_local! {
    static COMPRESSORS: Pool<CCtx<'static>> = const { Pool::new() };
    static DECOMPRESSORS: Pool<DCtx<'static>> = const { Pool::new() };
}

pub(crate) fn compress(level: i32, source: &[u8], destination: &mut Vec<u8>) -> Result<(), CodecError> {
    let failed = |code| CodecError::Malformed(get_error_name(code).into());
    let mut context = COMPRESSORS.with(Pool::take).unwrap_or_else(CCtx::create);
    context.set_parameter(CParameter::CompressionLevel(level)).map_err(failed)?;
    let start = destination.len();
    destination.resize(start + compress_bound(source.len()), 0);
    let space = destination.get_mut(start..).unwrap_or_default();
    let written = context.compress2(space, source).map_err(failed)?;
    destination.truncate(start + written);
    if context.sizeof() <= KEPT_CONTEXT_SIZE {
        let _ = COMPRESSORS.try_with(|pool| pool.put(context));
    }
    Ok(())
}

pub(crate) struct ZstdReader<'a> {
    rest: &'a [u8],
    context: Option<DCtx<'static>>,
    /// Between frames: here the stream may end.
    is_frame_finished: bool,
}

impl<'a> ZstdReader<'a> {
    pub(crate) fn new(source: &'a [u8]) -> ZstdReader<'a> {
        let context = DECOMPRESSORS.with(Pool::take).unwrap_or_else(DCtx::create);
        ZstdReader { rest: source, context: Some(context), is_frame_finished: true }
    }
}

impl Read for ZstdReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(context) = &mut self.context else { return Ok(0) };
        while !(buffer.is_empty() || self.rest.is_empty() && self.is_frame_finished) {
            let mut input = InBuffer::around(self.rest);
            let mut output = OutBuffer::around(buffer);
            let hint = context
                .decompress_stream(&mut output, &mut input)
                .map_err(|code| invalid(get_error_name(code)))?;
            let (consumed, produced) = (input.pos(), output.pos());
            self.rest = self.rest.get(consumed..).unwrap_or_default();
            self.is_frame_finished = hint == 0;
            if produced > 0 {
                return Ok(produced);
            }
            if consumed == 0 && !self.is_frame_finished {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "zstd stream ends early"));
            }
        }
        Ok(0)
    }
}

impl Drop for ZstdReader<'_> {
    fn drop(&mut self) {
        let Some(mut context) = self.context.take() else { return };
        if context.sizeof() <= KEPT_CONTEXT_SIZE && context.reset(ResetDirective::SessionOnly).is_ok() {
            let _ = DECOMPRESSORS.try_with(|pool| pool.put(context));
        }
    }
}
