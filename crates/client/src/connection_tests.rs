//! The connection against a peer that says what each test wants.

use protocol::messages::{HeartbeatRequest, api_versions_response};
use tokio::net::TcpListener;

use super::*;

/// How the peer answers one request, given its header.
type Script = fn(&RequestHeader) -> Option<Bytes>;

fn body<M: Message>(header: &RequestHeader, message: &M, version: i16) -> Bytes {
    let mut encoder = Encoder::new();
    encoder.i32(header.correlation_id);
    if header.api_key != ApiKey::ApiVersions
        && header.api_key.response_header_version(header.api_version) >= 1
    {
        encoder.no_tags();
    }
    message.encode(&mut encoder, version).unwrap();
    encoder.finish_contiguous().unwrap()
}

fn versions(header: &RequestHeader) -> Bytes {
    let serve = |key: ApiKey, max_version: i16| api_versions_response::ApiVersion {
        api_key: key.code(),
        min_version: 0,
        max_version,
    };
    let api_keys = vec![serve(ApiKey::ApiVersions, 3), serve(ApiKey::Heartbeat, 2)];
    let answer = ApiVersionsResponse { api_keys, ..Default::default() };
    if header.api_version > 3 {
        // An older broker answers in version 0 (KIP-511).
        let code = ErrorCode::UNSUPPORTED_VERSION.code();
        return body(header, &ApiVersionsResponse { error_code: code, ..answer }, 0);
    }
    body(header, &answer, header.api_version)
}

async fn peer(script: Script) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        loop {
            let Ok(size) = socket.read_u32().await else { return };
            let mut frame = vec![0; size as usize];
            socket.read_exact(&mut frame).await.unwrap();
            let header = RequestHeader::decode(&mut Decoder::new(frame.into())).unwrap();
            let Some(answer) = script(&header) else { return };
            socket.write_u32(answer.len() as u32).await.unwrap();
            socket.write_all(&answer).await.unwrap();
        }
    });
    address
}

async fn heartbeat(script: Script) -> Result<i16, ClientError> {
    let address = peer(script).await;
    let options = ConnectionOptions { request_timeout: Duration::from_millis(300), ..Default::default() };
    let connection = Connection::connect(&address, options).await?;
    assert_eq!(connection.version_of::<HeartbeatRequest>().unwrap(), 2);
    let request = HeartbeatRequest { group_id: "g".to_owned(), ..Default::default() };
    Ok(connection.send(&request).await?.error_code)
}

fn answering(header: &RequestHeader) -> Option<Bytes> {
    match header.api_key {
        ApiKey::ApiVersions => Some(versions(header)),
        _ => {
            let answer = protocol::messages::HeartbeatResponse { error_code: 27, ..Default::default() };
            Some(body(header, &answer, header.api_version))
        }
    }
}

#[tokio::test]
async fn versions_are_agreed_with_an_older_broker() {
    assert_eq!(heartbeat(answering).await.unwrap(), 27);
}

#[tokio::test]
async fn an_answer_nobody_asked_for_ends_the_connection() {
    let result = heartbeat(|header| match header.api_key {
        ApiKey::ApiVersions => Some(versions(header)),
        _ => Some(Bytes::from_static(&[0, 0, 0, 99, 0, 0])),
    });
    assert!(matches!(result.await.unwrap_err(), ClientError::Disconnected { .. }));
}

#[tokio::test]
async fn a_closed_connection_fails_what_waits() {
    let result = heartbeat(|header| match header.api_key {
        ApiKey::ApiVersions => Some(versions(header)),
        _ => None,
    });
    assert!(matches!(result.await.unwrap_err(), ClientError::Disconnected { .. }));
}

#[tokio::test]
async fn bytes_that_are_not_kafka_give_an_error_and_no_memory() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let _ = socket.read_u8().await;
    });
    let error = Connection::connect(&address, ConnectionOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("is this a Kafka listener?"), "{error}");
}
