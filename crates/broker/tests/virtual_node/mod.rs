//! A whole node on a simulated disk, in one thread, with a clock that moves only when told to.

#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use broker::{
    ListenerRole, Node, NodeEvent, Outbox, Outcome, Reply, RequestToken, Session, StartOptions,
    format_when_new,
};
use bytes::{Bytes, BytesMut};
use compression::KafkaCodecs;
use config::{Properties, ServerConfig};
use env::FileSystem;
use parking_lot::Mutex;
use protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use protocol::messages::describe_producers_request::TopicRequest;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::messages::fetch_response::PartitionData;
use protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::list_offsets_response::ListOffsetsPartitionResponse;
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::metadata_response::MetadataResponseTopic;
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::produce_response::PartitionProduceResponse;
use protocol::messages::{
    CreateTopicsRequest, DeleteRecordsRequest, DescribeProducersRequest, FetchRequest,
    IncrementalAlterConfigsRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest,
};
use protocol::{Chunk, Decoder, Encoded, Encoder, Message, Records, Request, RequestHeader, Uuid};
use record::{BatchOptions, Compression, RecordBatchBuilder};
use testkit::Sim;

pub const CLUSTER_ID: &str = "5L6g3nShT-eMCtK--X86sw";
pub const TOPIC: i8 = 2;
pub const BROKER: i8 = 4;

#[derive(Default)]
struct Mailbox {
    replies: Mutex<BTreeMap<RequestToken, Option<Reply>>>,
    events: Mutex<Vec<NodeEvent>>,
}

impl Outbox for Mailbox {
    fn deliver(&self, to: RequestToken, reply: Option<Reply>) {
        self.replies.lock().insert(to, reply);
    }
    fn wake_timers(&self) {}
    fn wake_controller(&self) {}
    fn wake_loader(&self) {}
    fn wake_log_dirs(&self) {}
    fn wake_movers(&self) {}
    fn event(&self, event: NodeEvent) {
        self.events.lock().push(event);
    }
}

pub struct VirtualNode {
    pub sim: Sim,
    pub node: Arc<Node>,
    mailbox: Arc<Mailbox>,
    session: Session,
    next: i32,
}

impl VirtualNode {
    /// A new node; `extra` are lines of its properties.
    pub fn start(extra: &str) -> VirtualNode {
        let sim = Sim::new(1);
        sim.fs.create_dir_all(Path::new("/data")).unwrap();
        sim.fs.sync_dir(Path::new("/")).unwrap();
        VirtualNode::on(sim, extra)
    }

    /// A node on what an earlier one left.
    pub fn on(sim: Sim, extra: &str) -> VirtualNode {
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=127.0.0.1:9093\n\
             listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n\
             controller.listener.names=CONTROLLER\nlog.dirs=/data\nlog.initial.task.delay.ms=0\n\
             log.retention.check.interval.ms=1000\n{extra}\n"
        );
        let config = ServerConfig::from_properties(&Properties::parse_str(&text).unwrap()).unwrap();
        let env = sim.env();
        format_when_new(&env, &config, CLUSTER_ID).unwrap();
        let mailbox = Arc::new(Mailbox::default());
        let options = StartOptions {
            advertised_listeners: config.advertised_broker_listeners().to_vec(),
            advertised_controller_listeners: Vec::new(),
        };
        let node = Node::open(env, config, options, mailbox.clone()).unwrap();
        let address: SocketAddr = "127.0.0.1:40000".parse().unwrap();
        let session = Session::new(1, "PLAINTEXT".into(), ListenerRole::Broker, address);
        let mut started = VirtualNode { sim, node: Arc::new(node), mailbox, session, next: 0 };
        started.settle();
        assert!(started.mailbox.events.lock().contains(&NodeEvent::CaughtUp));
        started.node.set_ready();
        for _ in 0..20 {
            started.advance(Duration::from_millis(100));
        }
        assert!(started.mailbox.events.lock().contains(&NodeEvent::Running));
        started
    }

    /// Stops cleanly and starts again.
    pub fn restart(self, extra: &str) -> VirtualNode {
        self.node.close().unwrap();
        let VirtualNode { sim, node, .. } = self;
        drop(node);
        sim.clock.restart();
        VirtualNode::on(sim, extra)
    }

    /// Cuts the power and starts again.
    pub fn crash(self, extra: &str) -> VirtualNode {
        let VirtualNode { sim, node, .. } = self;
        sim.fs.crash(7);
        drop(node);
        sim.clock.restart();
        VirtualNode::on(sim, extra)
    }

    /// Lets the node do all that is due now.
    pub fn settle(&mut self) {
        for _ in 0..8 {
            self.node.run_controller();
            self.node.run_timers();
            self.node.run_loader();
            self.node.run_syncs(0, Duration::ZERO);
        }
    }

    /// Moves the clock, then the node's chores run, retention among them.
    pub fn advance(&mut self, by: Duration) {
        self.sim.clock.advance(by);
        self.settle();
        self.node.run_log_tasks();
    }

    pub fn now_ms(&self) -> i64 {
        self.node.now().wall_ms
    }

    pub fn call<R: Request>(&mut self, request: &R, version: i16) -> R::Response {
        self.next += 1;
        let id = self.next;
        let header = RequestHeader {
            api_key: R::API_KEY,
            api_version: version,
            correlation_id: id,
            client_id: Some("test".to_owned()),
        };
        let mut w = Encoder::new();
        header.encode(&mut w).unwrap();
        request.encode(&mut w, version).unwrap();
        let token = RequestToken { connection: 1, sequence: u64::try_from(id).unwrap() };
        let outcome = self.node.handle(&mut self.session, token, w.finish_contiguous().unwrap());
        let reply = match outcome {
            Outcome::Reply(reply) => reply,
            Outcome::NoReply => panic!("no reply"),
            Outcome::Close(why) => panic!("closed: {why}"),
            Outcome::Deferred => self.wait_for(token),
        };
        let mut r = Decoder::new(bytes_of(reply));
        assert_eq!(r.i32().unwrap(), id, "correlation id");
        if R::API_KEY.response_header_version(version) > 0 {
            assert_eq!(r.i8().unwrap(), 0, "no tags in the header");
        }
        R::Response::decode(&mut r, version).unwrap()
    }

    fn wait_for(&mut self, token: RequestToken) -> Reply {
        for _ in 0..100 {
            self.settle();
            if let Some(reply) = self.mailbox.replies.lock().remove(&token) {
                return reply.expect("an answer");
            }
            self.sim.clock.advance(Duration::from_millis(100));
        }
        panic!("no answer comes");
    }

    pub fn try_create(&mut self, name: &str, configs: &[(&str, &str)]) -> (i16, Option<String>) {
        self.try_create_with(name, 1, configs)
    }

    pub fn try_create_with(
        &mut self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> (i16, Option<String>) {
        let configs = configs.iter().map(|(name, value)| CreatableTopicConfig {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        });
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs.collect(),
            ..CreatableTopic::default()
        };
        let request =
            CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..CreateTopicsRequest::default() };
        let response = self.call(&request, 7);
        let result = response.topics.into_iter().next().unwrap();
        self.settle();
        (result.error_code, result.error_message)
    }

    pub fn create(&mut self, name: &str, configs: &[(&str, &str)]) {
        assert_eq!(self.try_create(name, configs), (0, None), "{name} {configs:?}");
    }

    /// What creating the topic would be answered.
    pub fn validate_create(&mut self, name: &str, configs: &[(&str, &str)]) -> (i16, Option<String>) {
        let configs = configs.iter().map(|(name, value)| CreatableTopicConfig {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        });
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: 1,
            replication_factor: 1,
            configs: configs.collect(),
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, validate_only: true };
        let result = self.call(&request, 7).topics.remove(0);
        (result.error_code, result.error_message)
    }

    /// Sets configs; `None` deletes one. The answer's error.
    pub fn alter(&mut self, kind: i8, name: &str, changes: &[(&str, Option<&str>)]) -> (i16, Option<String>) {
        self.alter_or_validate(kind, name, changes, false)
    }

    pub fn alter_or_validate(
        &mut self,
        kind: i8,
        name: &str,
        changes: &[(&str, Option<&str>)],
        validate_only: bool,
    ) -> (i16, Option<String>) {
        let configs = changes.iter().map(|(name, value)| AlterableConfig {
            name: (*name).to_owned(),
            config_operation: i8::from(value.is_none()),
            value: value.map(str::to_owned),
        });
        let resource = AlterConfigsResource {
            resource_type: kind,
            resource_name: name.to_owned(),
            configs: configs.collect(),
        };
        let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only };
        let response = self.call(&request, 1);
        let result = response.responses.into_iter().next().unwrap();
        self.settle();
        (result.error_code, result.error_message)
    }

    pub fn set(&mut self, kind: i8, name: &str, key: &str, value: &str) {
        let (error, message) = self.alter(kind, name, &[(key, Some(value))]);
        assert_eq!((error, message.as_deref().unwrap_or("")), (0, ""), "{key}={value}");
    }

    pub fn leader_epoch(&mut self, name: &str) -> i32 {
        self.metadata(name).partitions[0].leader_epoch
    }

    pub fn topic_id(&mut self, name: &str) -> Uuid {
        self.metadata(name).topic_id
    }

    fn metadata(&mut self, name: &str) -> MetadataResponseTopic {
        let topic = MetadataRequestTopic { name: Some(name.to_owned()), ..MetadataRequestTopic::default() };
        let request = MetadataRequest {
            topics: Some(vec![topic]),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        self.call(&request, 12).topics.remove(0)
    }

    pub fn produce(&mut self, topic: &str, records: Bytes) -> PartitionProduceResponse {
        self.produce_to(topic, 0, records)
    }

    pub fn produce_to(&mut self, topic: &str, index: i32, records: Bytes) -> PartitionProduceResponse {
        let data = PartitionProduceData { index, records: Some(Records::Bytes(records)) };
        let topic = TopicProduceData {
            name: topic.to_owned(),
            partition_data: vec![data],
            ..TopicProduceData::default()
        };
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 1000,
            topic_data: vec![topic],
            ..ProduceRequest::default()
        };
        self.call(&request, 12).responses.remove(0).partition_responses.remove(0)
    }

    /// Produces and expects success; the base offset.
    pub fn put(&mut self, topic: &str, timestamps: &[i64], size: usize) -> i64 {
        let answer = self.produce(topic, batch(timestamps, size, Compression::None));
        assert_eq!(answer.error_code, 0, "{answer:?}");
        answer.base_offset
    }

    pub fn fetch(&mut self, topic: &str, offset: i64) -> PartitionData {
        self.fetch_at(topic, offset, -1)
    }

    pub fn fetch_at(&mut self, topic: &str, offset: i64, current_leader_epoch: i32) -> PartitionData {
        let topic_id = self.topic_id(topic);
        let partition = FetchPartition {
            partition: 0,
            fetch_offset: offset,
            current_leader_epoch,
            partition_max_bytes: 1 << 30,
            ..FetchPartition::default()
        };
        let topic = FetchTopic { topic_id, partitions: vec![partition], ..FetchTopic::default() };
        let request = FetchRequest {
            max_wait_ms: 0,
            min_bytes: 0,
            max_bytes: 1 << 30,
            session_epoch: -1,
            topics: vec![topic],
            ..FetchRequest::default()
        };
        self.call(&request, 13).responses.remove(0).partitions.remove(0)
    }

    pub fn list(&mut self, topic: &str, timestamp: i64) -> ListOffsetsPartitionResponse {
        self.list_at(topic, timestamp, -1)
    }

    pub fn list_at(
        &mut self,
        topic: &str,
        timestamp: i64,
        current_leader_epoch: i32,
    ) -> ListOffsetsPartitionResponse {
        let partition = ListOffsetsPartition { partition_index: 0, current_leader_epoch, timestamp };
        let topic = ListOffsetsTopic { name: topic.to_owned(), partitions: vec![partition] };
        let request =
            ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..ListOffsetsRequest::default() };
        self.call(&request, 9).topics.remove(0).partitions.remove(0)
    }

    /// Ids of the producers that partition 0 knows.
    pub fn producers(&mut self, topic: &str) -> Vec<i64> {
        let topic = TopicRequest { name: topic.to_owned(), partition_indexes: vec![0] };
        let request = DescribeProducersRequest { topics: vec![topic] };
        let answer = self.call(&request, 0).topics.remove(0).partitions.remove(0);
        answer.active_producers.iter().map(|producer| producer.producer_id).collect()
    }

    /// The low watermark, or the error.
    pub fn delete_records(&mut self, topic: &str, offset: i64) -> Result<i64, i16> {
        let partition = DeleteRecordsPartition { partition_index: 0, offset };
        let topic = DeleteRecordsTopic { name: topic.to_owned(), partitions: vec![partition] };
        let request = DeleteRecordsRequest { topics: vec![topic], timeout_ms: 1000 };
        let answer = self.call(&request, 2).topics.remove(0).partitions.remove(0);
        if answer.error_code == 0 { Ok(answer.low_watermark) } else { Err(answer.error_code) }
    }

    /// Log start offset.
    pub fn earliest(&mut self, topic: &str) -> i64 {
        self.list(topic, -2).offset
    }

    pub fn latest(&mut self, topic: &str) -> i64 {
        self.list(topic, -1).offset
    }

    /// Names and sizes of the files of partition 0.
    pub fn files(&self, topic: &str) -> BTreeMap<String, u64> {
        let dir = Path::new("/data").join(format!("{topic}-0"));
        let entries = self.sim.fs.list(&dir).unwrap().into_iter();
        entries
            .map(|entry| {
                let len = self.sim.fs.metadata(&dir.join(&entry.name)).unwrap().len;
                (entry.name.into_string().unwrap(), len)
            })
            .collect()
    }

    /// Base offsets of its segments.
    pub fn segments(&self, topic: &str) -> Vec<i64> {
        let files = self.files(topic);
        files.keys().filter_map(|name| name.strip_suffix(".log")?.parse().ok()).collect()
    }
}

fn bytes_of(reply: Reply) -> Bytes {
    let Encoded { chunks, .. } = reply.encoded;
    let mut all = BytesMut::new();
    for chunk in chunks {
        match chunk {
            Chunk::Bytes(bytes) => all.extend_from_slice(&bytes),
            Chunk::External { token, .. } => {
                let file = &reply.files[usize::try_from(token).unwrap()];
                all.extend_from_slice(&file.read().unwrap());
            }
        }
    }
    all.freeze()
}

/// A producer's batch: one record per timestamp, with a value of `size` bytes that do not compress.
pub fn batch(timestamps: &[i64], size: usize, compression: Compression) -> Bytes {
    let mut builder = RecordBatchBuilder::new(BatchOptions { compression, ..BatchOptions::default() });
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for (index, timestamp) in timestamps.iter().enumerate() {
        let value: Vec<u8> = (0..size)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_be_bytes()[0]
            })
            .collect();
        let key = format!("k{index}");
        builder.append(*timestamp, Some(key.as_bytes()), Some(&value), &[]).unwrap();
    }
    builder.build(&KafkaCodecs).unwrap()
}
