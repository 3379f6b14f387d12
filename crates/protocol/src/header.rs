//! Request and response headers, and whole frames without their size prefix.

use std::fmt;

use bytes::Bytes;

use crate::{ApiKey, DecodeError, Decoder, EncodeError, Encoded, Encoder, Message, Request, messages};

#[derive(Clone, Debug, PartialEq)]
pub struct RequestHeader {
    pub api_key: ApiKey,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<String>,
}

/// A header that cannot be read closes the connection; nothing can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    UnknownApiKey(i16),
    /// An API of former versions of Kafka, of which no version is left.
    RemovedApi {
        api_key: ApiKey,
        api_version: i16,
    },
    Decode(DecodeError),
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeaderError::UnknownApiKey(key) => write!(f, "unknown api key {key}"),
            HeaderError::RemovedApi { api_key, api_version } => {
                write!(f, "unsupported api with key {} ({api_key}) and version {api_version}", api_key.code())
            }
            HeaderError::Decode(error) => write!(f, "malformed request header: {error}"),
        }
    }
}

impl std::error::Error for HeaderError {}

impl From<DecodeError> for HeaderError {
    fn from(error: DecodeError) -> HeaderError {
        HeaderError::Decode(error)
    }
}

impl RequestHeader {
    /// Reads the header of a frame; the decoder then stands at the body. Whether the version is supported is left to
    /// the caller, because ApiVersions is answered in any version.
    pub fn decode(r: &mut Decoder) -> Result<RequestHeader, HeaderError> {
        let mut peek = r.clone();
        let (key, api_version) = (peek.i16()?, peek.i16()?);
        let api_key = ApiKey::from_code(key).ok_or(HeaderError::UnknownApiKey(key))?;
        if api_key.is_removed() {
            return Err(HeaderError::RemovedApi { api_key, api_version });
        }
        let raw = messages::RequestHeader::decode(r, api_key.request_header_version(api_version))?;
        Ok(RequestHeader {
            api_key,
            api_version: raw.request_api_version,
            correlation_id: raw.correlation_id,
            client_id: raw.client_id,
        })
    }

    pub fn encode(&self, w: &mut Encoder) -> Result<(), EncodeError> {
        let version = self.api_key.request_header_version(self.api_version);
        w.i16(self.api_key.code());
        w.i16(self.api_version);
        w.i32(self.correlation_id);
        w.opt_string(false, true, self.client_id.as_deref());
        if version >= 2 {
            w.no_tags();
        }
        w.status()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeader {
    pub correlation_id: i32,
}

impl ResponseHeader {
    /// `header_version` comes from [`ApiKey::response_header_version`].
    pub fn decode(r: &mut Decoder, header_version: i16) -> Result<ResponseHeader, DecodeError> {
        let raw = messages::ResponseHeader::decode(r, header_version)?;
        Ok(ResponseHeader { correlation_id: raw.correlation_id })
    }

    pub fn encode(self, w: &mut Encoder, header_version: i16) -> Result<(), EncodeError> {
        messages::ResponseHeader { correlation_id: self.correlation_id }.encode(w, header_version)
    }
}

/// A request frame without its size prefix.
pub fn encode_request<R: Request>(header: &RequestHeader, request: &R) -> Result<Bytes, EncodeError> {
    debug_assert_eq!(header.api_key, R::API_KEY);
    let mut w = Encoder::new();
    header.encode(&mut w)?;
    request.encode(&mut w, header.api_version)?;
    w.finish_contiguous()
}

/// A response frame without its size prefix; records stay where they are.
pub fn encode_response<M: Message>(
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
    response: &M,
) -> Result<Encoded, EncodeError> {
    let mut w = Encoder::new();
    ResponseHeader { correlation_id }.encode(&mut w, api_key.response_header_version(api_version))?;
    response.encode(&mut w, api_version)?;
    w.finish()
}
