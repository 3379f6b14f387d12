//! A minimal blocking client for what must be timed to the millisecond and for set-up: one request, one answer.
//!
//! Used where librdkafka's own back-offs would be measured instead of the broker.

use bytes::Bytes;
use protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::{CreateTopicsRequest, ProduceRequest};
use protocol::{
    Decoder, ErrorCode, Message, Records, Request, RequestHeader, ResponseHeader, encode_request,
};
use record::{BatchOptions, NoCodecs, RecordBatchBuilder};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Versions that both brokers serve and that name topics.
const CREATE_TOPICS_VERSION: i16 = 7;
const PRODUCE_VERSION: i16 = 9;
/// Between attempts to reach a broker that is starting.
const RETRY: Duration = Duration::from_millis(1);
/// Creating thousands of partitions takes the reference many seconds.
const TIMEOUT: Duration = Duration::from_secs(300);

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// One connection.
pub struct Client {
    stream: TcpStream,
    correlation_id: i32,
}

impl Client {
    pub fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { stream, correlation_id: 0 })
    }

    pub fn call<R: Request>(&mut self, request: &R, api_version: i16) -> Result<R::Response> {
        self.correlation_id += 1;
        let header = RequestHeader {
            api_key: R::API_KEY,
            api_version,
            correlation_id: self.correlation_id,
            client_id: Some("bench".into()),
        };
        let body = encode_request(&header, request)?;
        let mut frame = (body.len() as u32).to_be_bytes().to_vec();
        frame.extend_from_slice(&body);
        self.stream.write_all(&frame)?;
        let mut size = [0; 4];
        self.stream.read_exact(&mut size)?;
        let mut answer = vec![0; u32::from_be_bytes(size) as usize];
        self.stream.read_exact(&mut answer)?;
        let mut decoder = Decoder::new(answer.into());
        ResponseHeader::decode(&mut decoder, R::API_KEY.response_header_version(api_version))?;
        Ok(R::Response::decode(&mut decoder, api_version)?)
    }

    /// Creates a topic; an existing one is left as it is.
    pub fn create_topic(&mut self, name: &str, partitions: i32, configs: &[(&str, &str)]) -> Result<()> {
        let configs = configs
            .iter()
            .map(|(key, value)| CreatableTopicConfig { name: (*key).into(), value: Some((*value).into()) })
            .collect();
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions: partitions,
            replication_factor: 1,
            configs,
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
        let response = self.call(&request, CREATE_TOPICS_VERSION)?;
        let code = response.topics.first().map_or(0, |topic| topic.error_code);
        match ErrorCode::from_code(code) {
            ErrorCode::NONE | ErrorCode::TOPIC_ALREADY_EXISTS => Ok(()),
            error => Err(format!("creating {name}: {}", error.name()).into()),
        }
    }

    /// Produces the batch to one partition with acks=all; the error code of the answer.
    pub fn produce(&mut self, topic: &str, index: i32, batch: &Bytes) -> Result<ErrorCode> {
        self.produce_many(topic, &[index], batch)
    }

    /// Produces the batch to several partitions of a topic; the first error of the answer.
    pub fn produce_many(&mut self, topic: &str, partitions: &[i32], batch: &Bytes) -> Result<ErrorCode> {
        let partition_data = partitions
            .iter()
            .map(|index| PartitionProduceData { index: *index, records: Some(Records::Bytes(batch.clone())) })
            .collect();
        let topic = TopicProduceData { name: topic.into(), partition_data, ..TopicProduceData::default() };
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 30_000,
            topic_data: vec![topic],
            ..ProduceRequest::default()
        };
        let response = self.call(&request, PRODUCE_VERSION)?;
        let mut codes = response
            .responses
            .iter()
            .flat_map(|topic| &topic.partition_responses)
            .map(|partition| partition.error_code);
        Ok(ErrorCode::from_code(codes.find(|code| *code != 0).unwrap_or(0)))
    }
}

/// A batch with one small record.
pub fn one_record() -> Result<Bytes> {
    one_record_of(1)
}

/// A batch with one record of so many bytes.
pub fn one_record_of(size: usize) -> Result<Bytes> {
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    builder.append(now_ms(), None, Some(&vec![b'x'; size]), &[])?;
    Ok(builder.build(&NoCodecs)?)
}

fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.as_millis() as i64
}

/// Waits until something listens.
pub fn wait_for_port(port: u16, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    while let Err(error) = Client::connect(port) {
        if Instant::now() > deadline {
            return Err(error);
        }
        std::thread::sleep(RETRY);
    }
    Ok(())
}

/// Repeats until a record is acknowledged on the partition; the topic is created when `create` says so.
pub fn first_ack(port: u16, topic: &str, index: i32, create: bool, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    let batch = one_record()?;
    loop {
        let attempt = attempt(port, topic, index, create, &batch, deadline);
        match attempt {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}

fn attempt(port: u16, topic: &str, index: i32, create: bool, batch: &Bytes, deadline: Instant) -> Result<()> {
    let mut client = Client::connect(port)?;
    if create {
        client.create_topic(topic, 1, &[])?;
    }
    loop {
        match client.produce(topic, index, batch)? {
            ErrorCode::NONE => return Ok(()),
            error if Instant::now() > deadline => return Err(error.name().into()),
            _ => std::thread::sleep(RETRY),
        }
    }
}
