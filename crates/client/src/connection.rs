//! One connection to one broker: framing, version negotiation, correlation, time limits.
//!
//! Owns the socket through two tasks. The writer takes requests in the order of [`Connection::send`], notes each one
//! that wants an answer in a queue, and writes; the reader hands each incoming frame to the head of that queue, because a
//! broker answers a connection's requests in order. Invariants: a request's correlation id is noted before its bytes
//! leave; whatever ends the connection fails every waiting request; a frame's length is bounded before it is read.
//! Handles are cheap to clone and share; the socket closes when the last one is dropped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use protocol::{
    ApiKey, Chunk, Decoder, Encoded, Encoder, ErrorCode, Message, Request, RequestHeader, ResponseHeader,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::error::ClientError;

/// Answers larger than this are taken for garbage; the largest real ones are fetches of `fetch.max.bytes` (50 MiB)
/// plus one oversized batch.
const MAX_FRAME_BYTES: usize = 1 << 30;
/// Requests smaller than this are gathered into one write.
const GATHER_BYTES: usize = 64 << 10;

const SOFTWARE_NAME: &str = "bitacora";
const SOFTWARE_VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    pub client_id: String,
    pub connect_timeout: Duration,
    pub request_timeout: Duration,
    pub max_in_flight: usize,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        ConnectionOptions {
            client_id: String::new(),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            max_in_flight: 100,
        }
    }
}

/// Lowest and highest version of an API that a broker serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRange {
    pub min: i16,
    pub max: i16,
}

#[derive(Clone, Debug)]
pub struct Connection {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: String,
    options: ConnectionOptions,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    in_flight: Semaphore,
    correlation: AtomicI32,
    state: Arc<State>,
    versions: BTreeMap<i16, VersionRange>,
    api_versions: ApiVersionsResponse,
}

/// What both tasks and all handles see.
#[derive(Debug, Default)]
struct State {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<(i32, Reply)>,
    /// Why the connection ended.
    ended: Option<String>,
}

type Reply = oneshot::Sender<Result<Bytes, String>>;

#[derive(Debug)]
struct Outgoing {
    correlation_id: i32,
    encoded: Encoded,
    reply: Option<Reply>,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, cause: &str) {
        let mut waiting = self.lock();
        let cause = waiting.ended.get_or_insert_with(|| cause.to_owned()).clone();
        for (_, reply) in waiting.queue.drain(..) {
            let _ = reply.send(Err(cause.clone()));
        }
    }
}

impl Connection {
    /// Connects to `host:port` and learns which versions the broker serves.
    pub async fn connect(address: &str, options: ConnectionOptions) -> Result<Connection, ClientError> {
        let unreachable = |cause: String| ClientError::Unreachable { addresses: address.to_owned(), cause };
        let socket = tokio::time::timeout(options.connect_timeout, TcpStream::connect(address))
            .await
            .map_err(|_| unreachable("no answer to the connection attempt".to_owned()))?
            .map_err(|error| unreachable(io_cause(&error)))?;
        socket.set_nodelay(true).map_err(|error| unreachable(io_cause(&error)))?;
        let (read_half, write_half) = socket.into_split();
        let state = Arc::new(State::default());
        let (outgoing, queued) = mpsc::unbounded_channel();
        tokio::spawn(write_loop(write_half, queued, Arc::clone(&state)));
        tokio::spawn(read_loop(read_half, Arc::clone(&state)));
        let mut shared = Shared {
            address: address.to_owned(),
            in_flight: Semaphore::new(options.max_in_flight),
            options,
            outgoing,
            correlation: AtomicI32::new(0),
            state,
            versions: BTreeMap::new(),
            api_versions: ApiVersionsResponse::default(),
        };
        shared.api_versions = shared.negotiate().await?;
        let ranges = shared.api_versions.api_keys.iter();
        shared.versions = ranges
            .map(|api| (api.api_key, VersionRange { min: api.min_version, max: api.max_version }))
            .collect();
        Ok(Connection { shared: Arc::new(shared) })
    }

    pub fn address(&self) -> &str {
        &self.shared.address
    }

    pub fn is_closed(&self) -> bool {
        self.shared.state.lock().ended.is_some()
    }

    /// The broker's answer to ApiVersions.
    pub fn api_versions(&self) -> &ApiVersionsResponse {
        &self.shared.api_versions
    }

    /// The versions the broker serves of an API, `None` when it does not know it.
    pub fn served(&self, api: ApiKey) -> Option<VersionRange> {
        self.shared.versions.get(&api.code()).copied()
    }

    /// The highest version of `R` that both sides know.
    pub fn version_of<R: Request>(&self) -> Result<i16, ClientError> {
        let unsupported =
            || ClientError::UnsupportedVersion { api: R::API_KEY, address: self.shared.address.clone() };
        let served = self.served(R::API_KEY).ok_or_else(unsupported)?;
        let version = served.max.min(R::MAX_VERSION);
        if version >= served.min.max(R::MIN_VERSION) { Ok(version) } else { Err(unsupported()) }
    }

    /// Sends `request` in the highest common version and awaits the answer.
    pub async fn send<R: Request>(&self, request: &R) -> Result<R::Response, ClientError> {
        let version = self.version_of::<R>()?;
        self.send_version(request, version).await
    }

    pub async fn send_version<R: Request>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<R::Response, ClientError> {
        self.shared.exchange(request, version, self.shared.options.request_timeout).await
    }

    /// As [`Self::send_version`] for requests that the broker may park, with a time limit of their own.
    pub async fn send_within<R: Request>(
        &self,
        request: &R,
        version: i16,
        limit: Duration,
    ) -> Result<R::Response, ClientError> {
        self.shared.exchange(request, version, limit).await
    }

    /// Puts a request on its way now and returns the wait for its answer, for callers to whom the order of requests
    /// matters and who bound their number themselves.
    pub fn start<R: Request>(
        &self,
        request: &R,
        version: i16,
        limit: Duration,
    ) -> Result<impl Future<Output = Result<R::Response, ClientError>> + Send + use<R>, ClientError> {
        let (reply, answer) = oneshot::channel();
        self.shared.queue(request, version, Some(reply))?;
        let shared = Arc::clone(&self.shared);
        Ok(async move { shared.answer::<R>(answer, version, limit).await })
    }

    /// Sends a request that gets no answer (produce with acks=0).
    pub fn send_one_way<R: Request>(&self, request: &R, version: i16) -> Result<(), ClientError> {
        self.shared.queue(request, version, None).map(|_| ())
    }
}

impl Shared {
    /// Brokers that do not know our ApiVersions version answer in version 0 with the versions they do know (KIP-511).
    async fn negotiate(&self) -> Result<ApiVersionsResponse, ClientError> {
        let request = ApiVersionsRequest {
            client_software_name: SOFTWARE_NAME.to_owned(),
            client_software_version: SOFTWARE_VERSION.to_owned(),
            ..Default::default()
        };
        let limit = self.options.request_timeout;
        let mut version = ApiVersionsRequest::MAX_VERSION;
        loop {
            let answer = self.exchange(&request, version, limit).await?;
            match ErrorCode::from_code(answer.error_code) {
                ErrorCode::NONE => return Ok(answer),
                ErrorCode::UNSUPPORTED_VERSION if version > 0 => {
                    let known = answer.api_keys.iter().find(|api| api.api_key == ApiKey::ApiVersions.code());
                    version = known.map_or(0, |api| api.max_version.clamp(0, version - 1));
                }
                code => return Err(code.into()),
            }
        }
    }

    async fn exchange<R: Request>(
        &self,
        request: &R,
        version: i16,
        limit: Duration,
    ) -> Result<R::Response, ClientError> {
        let _permit = self.in_flight.acquire().await.map_err(|_| ClientError::Closed)?;
        let (reply, answer) = oneshot::channel();
        self.queue(request, version, Some(reply))?;
        self.answer::<R>(answer, version, limit).await
    }

    async fn answer<R: Request>(
        &self,
        answer: oneshot::Receiver<Result<Bytes, String>>,
        version: i16,
        limit: Duration,
    ) -> Result<R::Response, ClientError> {
        let decode_error = |error| ClientError::Decode { api: R::API_KEY, error };
        let answer = match tokio::time::timeout(limit, answer).await {
            Ok(Ok(Ok(frame))) => frame,
            Ok(Ok(Err(cause))) => return Err(self.disconnected(cause)),
            Ok(Err(_)) => return Err(self.disconnected("the connection ended".to_owned())),
            Err(_) => {
                // The answer may still come and would be taken for a later one's: the connection is of no more use.
                self.state.end("a request timed out");
                let what = format!("{} at {}", R::API_KEY.name(), self.address);
                return Err(ClientError::TimedOut { what, after: limit });
            }
        };
        let mut decoder = Decoder::new(answer);
        // An ApiVersions answer may be in version 0 whatever was asked, see `negotiate`.
        if R::API_KEY == ApiKey::ApiVersions {
            return decode_api_versions::<R>(decoder, version);
        }
        ResponseHeader::decode(&mut decoder, R::API_KEY.response_header_version(version))
            .map_err(decode_error)?;
        R::Response::decode(&mut decoder, version).map_err(decode_error)
    }

    fn queue<R: Request>(&self, request: &R, version: i16, reply: Option<Reply>) -> Result<i32, ClientError> {
        let encode_error = |error| ClientError::Encode { api: R::API_KEY, error };
        let correlation_id = self.correlation.fetch_add(1, Ordering::Relaxed) & i32::MAX;
        let header = RequestHeader {
            api_key: R::API_KEY,
            api_version: version,
            correlation_id,
            client_id: Some(self.options.client_id.clone()),
        };
        let mut encoder = Encoder::new();
        header.encode(&mut encoder).map_err(encode_error)?;
        request.encode(&mut encoder, version).map_err(encode_error)?;
        let encoded = encoder.finish().map_err(encode_error)?;
        if let Some(cause) = self.state.lock().ended.clone() {
            return Err(self.disconnected(cause));
        }
        let outgoing = Outgoing { correlation_id, encoded, reply };
        self.outgoing.send(outgoing).map_err(|_| self.disconnected("the connection ended".to_owned()))?;
        Ok(correlation_id)
    }

    fn disconnected(&self, cause: String) -> ClientError {
        ClientError::Disconnected { address: self.address.clone(), cause }
    }
}

/// Decodes in the version asked for, or in version 0 when the answer says UNSUPPORTED_VERSION.
fn decode_api_versions<R: Request>(mut decoder: Decoder, version: i16) -> Result<R::Response, ClientError> {
    let decode_error = |error| ClientError::Decode { api: R::API_KEY, error };
    ResponseHeader::decode(&mut decoder, 0).map_err(decode_error)?;
    let body = decoder.take_rest();
    let refused = body.get(..2) == Some(&ErrorCode::UNSUPPORTED_VERSION.code().to_be_bytes());
    let version = if refused { 0 } else { version };
    R::Response::decode(&mut Decoder::new(body), version).map_err(decode_error)
}

async fn write_loop(
    mut socket: OwnedWriteHalf,
    mut queued: mpsc::UnboundedReceiver<Outgoing>,
    state: Arc<State>,
) {
    let mut gathered = BytesMut::new();
    while let Some(first) = queued.recv().await {
        let mut next = Some(first);
        while let Some(outgoing) = next {
            if let Some(reply) = outgoing.reply {
                let mut waiting = state.lock();
                if let Some(cause) = waiting.ended.clone() {
                    let _ = reply.send(Err(cause));
                    return;
                }
                waiting.queue.push_back((outgoing.correlation_id, reply));
            }
            if let Err(error) = write_request(&mut socket, &mut gathered, outgoing.encoded).await {
                state.end(&io_cause(&error));
                return;
            }
            next = queued.try_recv().ok();
        }
        if let Err(error) = write_gathered(&mut socket, &mut gathered).await {
            state.end(&io_cause(&error));
            return;
        }
    }
    let _ = socket.shutdown().await;
}

async fn write_request(
    socket: &mut OwnedWriteHalf,
    gathered: &mut BytesMut,
    encoded: Encoded,
) -> std::io::Result<()> {
    gathered.put_u32(u32::try_from(encoded.total_len).unwrap_or(u32::MAX));
    for chunk in encoded.chunks {
        match chunk {
            Chunk::Bytes(bytes) if gathered.len() + bytes.len() <= GATHER_BYTES => {
                gathered.extend_from_slice(&bytes)
            }
            Chunk::Bytes(mut bytes) => {
                write_gathered(socket, gathered).await?;
                socket.write_all_buf(&mut bytes).await?;
            }
            Chunk::External { .. } => return Err(std::io::Error::other("a client sends no file slices")),
        }
    }
    Ok(())
}

async fn write_gathered(socket: &mut OwnedWriteHalf, gathered: &mut BytesMut) -> std::io::Result<()> {
    if gathered.is_empty() {
        return Ok(());
    }
    socket.write_all_buf(gathered).await?;
    gathered.clear();
    Ok(())
}

async fn read_loop(socket: OwnedReadHalf, state: Arc<State>) {
    let mut reader = BufReader::with_capacity(GATHER_BYTES, socket);
    loop {
        let frame = match read_frame(&mut reader).await {
            Ok(frame) => frame,
            Err(error) => return state.end(&io_cause(&error)),
        };
        let correlation_id = frame.get(..4).and_then(|id| id.try_into().ok()).map(i32::from_be_bytes);
        let head = {
            let mut waiting = state.lock();
            match waiting.queue.front() {
                Some((expected, _)) if Some(*expected) == correlation_id => waiting.queue.pop_front(),
                _ => None,
            }
        };
        match head {
            Some((_, reply)) => drop(reply.send(Ok(frame))),
            None => return state.end("an answer came that was not asked for"),
        }
    }
}

async fn read_frame(reader: &mut BufReader<OwnedReadHalf>) -> std::io::Result<Bytes> {
    let length = reader.read_u32().await?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if !(4..=MAX_FRAME_BYTES).contains(&length) {
        return Err(std::io::Error::other(format!("an answer of {length} bytes; is this a Kafka listener?")));
    }
    // Grows with what arrives, so that a lying length costs no memory.
    let mut frame = BytesMut::with_capacity(length.min(1 << 20));
    while frame.len() < length {
        let missing = length - frame.len();
        let mut limited = (&mut frame).limit(missing);
        if reader.read_buf(&mut limited).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(frame.freeze())
}

fn io_cause(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        std::io::ErrorKind::UnexpectedEof => "it was closed by the broker".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
