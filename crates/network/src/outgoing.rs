//! Answers as lists of byte chunks and file ranges, and how they get onto a socket.
//!
//! File ranges leave by `sendfile`; bytes before a range are sent with `MSG_MORE` so that header and data share
//! packets. A range whose pages are not cached is read in on a blocking thread first.

use bytes::{Bytes, BytesMut};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// A range of a file to be sent. The file must hold the whole range for as long as this exists.
#[derive(Clone)]
pub struct FileRange {
    pub file: Arc<dyn env::File>,
    pub position: u64,
    pub len: u32,
}

/// One piece of an answer.
#[derive(Clone)]
pub enum OutChunk {
    Bytes(Bytes),
    File(FileRange),
}

impl OutChunk {
    fn len(&self) -> usize {
        match self {
            OutChunk::Bytes(bytes) => bytes.len(),
            OutChunk::File(range) => range.len as usize,
        }
    }
}

/// An answer without its size prefix.
#[derive(Clone, Default)]
pub struct Outgoing {
    pub chunks: Vec<OutChunk>,
}

impl From<Bytes> for Outgoing {
    fn from(bytes: Bytes) -> Self {
        Self { chunks: vec![OutChunk::Bytes(bytes)] }
    }
}

impl Outgoing {
    /// Length on the wire without the size prefix.
    pub fn len(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.len() as u64).sum()
    }

    /// True for an answer of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// As much of an answer is copied behind the size prefix so that one `send` carries all of it. For a file range of this
/// size two calls that copy are cheaper than the four of a `sendfile`.
const COALESCE: usize = 16 * 1024;

/// Writes the answer with its size prefix.
pub(crate) async fn write(stream: &TcpStream, outgoing: Outgoing) -> io::Result<()> {
    let len = outgoing.len();
    let size = i32::try_from(len).map_err(|_| io::Error::other("answer exceeds 2 GiB"))?;
    let mut head = BytesMut::with_capacity(4 + len.min(COALESCE as u64) as usize);
    head.extend_from_slice(&size.to_be_bytes());
    let mut chunks = outgoing.chunks.into_iter().peekable();
    while let Some(chunk) = chunks.next_if(|chunk| chunk.len() <= COALESCE.saturating_sub(head.len())) {
        match chunk {
            OutChunk::Bytes(bytes) => head.extend_from_slice(&bytes),
            OutChunk::File(range) => copy_range(&range, &mut head).await?,
        }
    }
    send_all(stream, &head, chunks.peek().is_some()).await?;
    while let Some(chunk) = chunks.next() {
        match chunk {
            OutChunk::Bytes(bytes) => send_all(stream, &bytes, chunks.peek().is_some()).await?,
            OutChunk::File(range) => send_range(stream, &range).await?,
        }
    }
    Ok(())
}

async fn send_all(stream: &TcpStream, mut bytes: &[u8], more: bool) -> io::Result<()> {
    let flags = if more { SendFlags::MORE | SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL };
    while !bytes.is_empty() {
        let sent = when_writable(stream, || Ok(rustix::net::send(stream.as_fd(), bytes, flags)?)).await?;
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = bytes.get(sent..).unwrap_or_default();
    }
    Ok(())
}

/// Tries the operation at once and waits for the socket only when it is full.
async fn when_writable(
    stream: &TcpStream,
    mut operation: impl FnMut() -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        match stream.try_io(Interest::WRITABLE, &mut operation) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Appends a small range to `out`, from the page cache at once or else read by a blocking thread.
async fn copy_range(range: &FileRange, out: &mut BytesMut) -> io::Result<()> {
    let at = out.len();
    out.resize(at + range.len as usize, 0);
    let target = out.get_mut(at..).unwrap_or_default();
    let wanted = target.len();
    let cached = match range.file.as_fd() {
        Some(fd) => {
            let buffers = &mut [io::IoSliceMut::new(target)];
            rustix::io::preadv2(fd, buffers, range.position, rustix::io::ReadWriteFlags::NOWAIT).ok()
        }
        None => None,
    };
    if cached == Some(wanted) {
        return Ok(());
    }
    let cold = range.clone();
    let bytes = tokio::task::spawn_blocking(move || read_all(&cold)).await.map_err(io::Error::other)??;
    out.truncate(at);
    out.extend_from_slice(&bytes);
    Ok(())
}

fn read_all(range: &FileRange) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; range.len as usize];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match range.file.read_at(rest, range.position + filled as u64)? {
            0 => return Err(short()),
            read => filled += read,
        }
    }
    Ok(bytes)
}

fn short() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the log file is shorter than the range that was promised")
}

async fn send_range(stream: &TcpStream, range: &FileRange) -> io::Result<()> {
    if range.file.as_fd().is_none() {
        return send_copied(stream, range).await;
    }
    warm(range).await?;
    let end = range.position + u64::from(range.len);
    let mut position = range.position;
    while position < end {
        let sent = when_writable(stream, || {
            let Some(fd) = range.file.as_fd() else { return Err(io::ErrorKind::Unsupported.into()) };
            let mut offset = position;
            Ok(rustix::fs::sendfile(stream.as_fd(), fd, Some(&mut offset), (end - position) as usize)?)
        })
        .await?;
        if sent == 0 {
            return Err(short());
        }
        position += sent as u64;
    }
    Ok(())
}

async fn send_copied(stream: &TcpStream, range: &FileRange) -> io::Result<()> {
    let mut buffer = vec![0; range.len.min(64 * 1024) as usize];
    let mut position = range.position;
    let mut left = range.len as usize;
    while left > 0 {
        let want = left.min(buffer.len());
        let read = range.file.read_at(&mut buffer[..want], position)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        send_all(stream, &buffer[..read], left > read).await?;
        position += read as u64;
        left -= read;
    }
    Ok(())
}

/// Distance between the probed bytes: the kernel reads ahead in units of this order.
const PROBE_STEP: u64 = 128 * 1024;

/// Makes sure that the range is in the page cache, reading it on a blocking thread where it is not.
async fn warm(range: &FileRange) -> io::Result<()> {
    let end = range.position + u64::from(range.len);
    let mut position = range.position;
    while position < end {
        if !is_cached(range, position) {
            let cold = FileRange { file: range.file.clone(), position, len: (end - position) as u32 };
            return tokio::task::spawn_blocking(move || read_in(&cold)).await.map_err(io::Error::other)?;
        }
        position += PROBE_STEP;
    }
    if is_cached(range, end - 1) {
        return Ok(());
    }
    let cold = FileRange { file: range.file.clone(), position: end - 1, len: 1 };
    tokio::task::spawn_blocking(move || read_in(&cold)).await.map_err(io::Error::other)?
}

/// Asks the kernel for one byte without waiting for a disk. Where that is not supported the answer is yes.
fn is_cached(range: &FileRange, position: u64) -> bool {
    let Some(fd) = range.file.as_fd() else { return true };
    let mut byte = [0u8; 1];
    let buffers = &mut [io::IoSliceMut::new(&mut byte)];
    !matches!(
        rustix::io::preadv2(fd, buffers, position, rustix::io::ReadWriteFlags::NOWAIT),
        Err(Errno::AGAIN)
    )
}

fn read_in(range: &FileRange) -> io::Result<()> {
    let mut buffer = vec![0; PROBE_STEP as usize];
    let end = range.position + u64::from(range.len);
    let mut position = range.position;
    while position < end {
        let want = (end - position).min(PROBE_STEP) as usize;
        let read = range.file.read_at(&mut buffer[..want], position)?;
        if read == 0 {
            break;
        }
        position += read as u64;
    }
    Ok(())
}
