//! The floor: what any broker must at least do for a produce request. It reads frames, checks the CRC, patches the
//! base offset, appends to a file and answers. One blocking thread per connection, one write per request, no state
//! but a file per partition. It serves just what librdkafka needs to produce.

use crate::wire::Result;
use bytes::Bytes;
use protocol::messages::api_versions_response::ApiVersion;
use protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use protocol::messages::{
    ApiVersionsResponse, CreateTopicsResponse, DeleteTopicsResponse, MetadataRequest, MetadataResponse,
    ProduceRequest, ProduceResponse,
};
use protocol::messages::{CreateTopicsRequest, create_topics_response::CreatableTopicResult};
use protocol::{ApiKey, Chunk, Decoder, Message, Records, RequestHeader, encode_response};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What is advertised: enough for librdkafka, versions that name topics.
const APIS: &[(ApiKey, i16, i16)] = &[
    (ApiKey::Produce, 3, 9),
    (ApiKey::Fetch, 4, 11),
    (ApiKey::ListOffsets, 1, 2),
    (ApiKey::Metadata, 4, 9),
    (ApiKey::ApiVersions, 0, 3),
    (ApiKey::CreateTopics, 2, 7),
    (ApiKey::DeleteTopics, 1, 5),
];
/// Partitions of every topic; the load names those that it writes to.
const PARTITIONS: i32 = 16;
/// Base offset, length, leader epoch and magic come before the CRC, the checked bytes after it.
const CRC_AT: usize = 17;
const CHECKED_FROM: usize = 21;
const LAST_OFFSET_DELTA_AT: usize = 23;

#[derive(Default)]
struct Files {
    open: HashMap<(String, i32), Arc<Mutex<PartitionFile>>>,
}

struct PartitionFile {
    file: File,
    next_offset: i64,
}

struct Floor {
    port: u16,
    dir: PathBuf,
    files: Mutex<Files>,
}

/// Serves until it is killed.
pub fn serve(port: u16, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let floor = Arc::new(Floor { port, dir: dir.to_owned(), files: Mutex::default() });
    for stream in listener.incoming() {
        let (stream, floor) = (stream?, floor.clone());
        // A connection that fails ends alone.
        std::thread::spawn(move || floor.connection(stream).is_ok());
    }
    Ok(())
}

impl Floor {
    fn connection(&self, mut stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut reading = stream.try_clone()?;
        loop {
            let mut size = [0; 4];
            reading.read_exact(&mut size)?;
            let mut frame = vec![0; u32::from_be_bytes(size) as usize];
            reading.read_exact(&mut frame)?;
            let mut decoder = Decoder::new(frame.into());
            let header = RequestHeader::decode(&mut decoder)?;
            let answer = self.answer(&header, &mut decoder)?;
            let prefix = (answer.len() as u32).to_be_bytes();
            stream.write_all(&[&prefix[..], &answer].concat())?;
        }
    }

    fn answer(&self, header: &RequestHeader, body: &mut Decoder) -> Result<Bytes> {
        let version = header.api_version;
        match header.api_key {
            ApiKey::Produce => encode(header, &self.produce(ProduceRequest::decode(body, version)?)?),
            ApiKey::Metadata => encode(header, &self.metadata(MetadataRequest::decode(body, version)?)),
            ApiKey::CreateTopics => encode(header, &created(CreateTopicsRequest::decode(body, version)?)),
            ApiKey::DeleteTopics => encode(header, &DeleteTopicsResponse::default()),
            ApiKey::ApiVersions => encode(header, &api_versions()),
            other => Err(format!("{} is not served", other.name()).into()),
        }
    }

    fn produce(&self, request: ProduceRequest) -> Result<ProduceResponse> {
        let mut responses = Vec::with_capacity(request.topic_data.len());
        for topic in request.topic_data {
            let mut partition_responses = Vec::with_capacity(topic.partition_data.len());
            for data in topic.partition_data {
                let Some(Records::Bytes(records)) = data.records else { return Err("no records".into()) };
                let file = self.file(&topic.name, data.index)?;
                let base_offset = append(&file, &records)?;
                partition_responses.push(PartitionProduceResponse {
                    index: data.index,
                    base_offset,
                    ..PartitionProduceResponse::default()
                });
            }
            responses.push(TopicProduceResponse {
                name: topic.name,
                partition_responses,
                ..TopicProduceResponse::default()
            });
        }
        Ok(ProduceResponse { responses, ..ProduceResponse::default() })
    }

    fn file(&self, topic: &str, index: i32) -> Result<Arc<Mutex<PartitionFile>>> {
        let mut files = self.files.lock().map_err(|_| "poisoned")?;
        let key = (topic.to_owned(), index);
        if let Some(file) = files.open.get(&key) {
            return Ok(file.clone());
        }
        let path = self.dir.join(format!("{topic}-{index}.log"));
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let file = Arc::new(Mutex::new(PartitionFile { file, next_offset: 0 }));
        files.open.insert(key, file.clone());
        Ok(file)
    }

    fn metadata(&self, request: MetadataRequest) -> MetadataResponse {
        let partition = |index| MetadataResponsePartition {
            partition_index: index,
            leader_id: 1,
            replica_nodes: vec![1],
            isr_nodes: vec![1],
            ..MetadataResponsePartition::default()
        };
        let topics = request.topics.unwrap_or_default().into_iter().map(|topic| MetadataResponseTopic {
            name: topic.name,
            partitions: (0..PARTITIONS).map(partition).collect(),
            ..MetadataResponseTopic::default()
        });
        MetadataResponse {
            brokers: vec![MetadataResponseBroker {
                node_id: 1,
                host: "127.0.0.1".into(),
                port: i32::from(self.port),
                ..MetadataResponseBroker::default()
            }],
            controller_id: 1,
            topics: topics.collect(),
            ..MetadataResponse::default()
        }
    }
}

fn append(file: &Mutex<PartitionFile>, records: &[u8]) -> Result<i64> {
    let checked = records.get(CHECKED_FROM..).ok_or("short batch")?;
    let at = |from: usize| records.get(from..from + 4).and_then(|b| b.first_chunk::<4>().copied());
    if at(CRC_AT).map(u32::from_be_bytes) != Some(record::crc::crc32c(checked)) {
        return Err("bad CRC".into());
    }
    let delta = at(LAST_OFFSET_DELTA_AT).map(i32::from_be_bytes).ok_or("short batch")?;
    let mut file = file.lock().map_err(|_| "poisoned")?;
    let base_offset = file.next_offset;
    let head = base_offset.to_be_bytes();
    let written = file.file.write_vectored(&[IoSlice::new(&head), IoSlice::new(&records[8..])])?;
    if written != records.len() {
        return Err("short write".into());
    }
    file.next_offset += i64::from(delta) + 1;
    Ok(base_offset)
}

fn encode<M: Message>(header: &RequestHeader, response: &M) -> Result<Bytes> {
    let encoded = encode_response(header.api_key, header.api_version, header.correlation_id, response)?;
    let bytes = encoded.chunks.into_iter().map(|chunk| match chunk {
        Chunk::Bytes(bytes) => Ok(bytes),
        Chunk::External { .. } => Err("no files here".into()),
    });
    Ok(bytes.collect::<Result<Vec<Bytes>>>()?.concat().into())
}

fn created(request: CreateTopicsRequest) -> CreateTopicsResponse {
    let topics = request
        .topics
        .into_iter()
        .map(|topic| CreatableTopicResult { name: topic.name, ..CreatableTopicResult::default() });
    CreateTopicsResponse { topics: topics.collect(), ..CreateTopicsResponse::default() }
}

fn api_versions() -> ApiVersionsResponse {
    let api_keys = APIS
        .iter()
        .map(|(key, min_version, max_version)| ApiVersion {
            api_key: key.code(),
            min_version: *min_version,
            max_version: *max_version,
        })
        .collect();
    ApiVersionsResponse { api_keys, ..ApiVersionsResponse::default() }
}
