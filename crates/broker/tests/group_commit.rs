//! A whole node on a simulated machine, with `log.flush.interval.messages=1`: producers, readers and groups are answered
//! after the sync, and a power cut takes back nothing that they were told.

use std::sync::Arc;
use std::time::Duration;

use broker::{
    ListenerRole, Node, NodeEvent, Outbox, Outcome, Reply, RequestToken, Session, StartOptions,
    format_when_new,
};
use bytes::Bytes;
use config::ServerConfig;
use parking_lot::Mutex;
use protocol::messages::create_topics_request::CreatableTopic;
use protocol::messages::find_coordinator_request::FindCoordinatorRequest;
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::{
    CreateTopicsRequest, ListOffsetsRequest, OffsetCommitRequest, OffsetCommitResponse, ProduceRequest,
    ProduceResponse,
};
use protocol::{Chunk, Decoder, ErrorCode, Message, Records, Request, RequestHeader, ResponseHeader};
use record::{BatchOptions, NoCodecs, RecordBatchBuilder};
use testkit::{Fault, Op, SeededRandom, Sim};

const CLUSTER_ID: &str = "5L6g3nShT-eMCtK--X86sw";

#[derive(Default)]
struct Mail {
    delivered: Mutex<Vec<(RequestToken, Option<Bytes>)>>,
    events: Mutex<Vec<NodeEvent>>,
}

fn bytes_of(reply: Reply) -> Bytes {
    let bytes = reply.encoded.chunks.into_iter().map(|chunk| match chunk {
        Chunk::Bytes(bytes) => bytes,
        Chunk::External { .. } => panic!("no files are asked for here"),
    });
    bytes.collect::<Vec<Bytes>>().concat().into()
}

impl Outbox for Mail {
    fn deliver(&self, to: RequestToken, reply: Option<Reply>) {
        self.delivered.lock().push((to, reply.map(bytes_of)));
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

/// A node with one client.
struct World {
    sim: Sim,
    mail: Arc<Mail>,
    node: Node,
    session: Session,
    sequence: u64,
}

fn config() -> ServerConfig {
    let properties = [
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        ("controller.quorum.bootstrap.servers", "127.0.0.1:9093"),
        ("listeners", "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"),
        ("controller.listener.names", "CONTROLLER"),
        ("log.dirs", "/data"),
        ("log.flush.interval.messages", "1"),
        ("offsets.topic.num.partitions", "1"),
        ("offsets.topic.replication.factor", "1"),
        ("group.coordinator.append.linger.ms", "0"),
    ];
    let map = properties.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    ServerConfig::from_map(map).unwrap()
}

impl World {
    fn start(sim: Sim) -> World {
        let (env, config, mail) = (sim.env(), config(), Arc::new(Mail::default()));
        format_when_new(&env, &config, CLUSTER_ID).unwrap();
        let options = StartOptions {
            advertised_listeners: config.advertised_broker_listeners().to_vec(),
            advertised_controller_listeners: config.advertised_controller_listeners().to_vec(),
        };
        let node = Node::open(env, config, options, mail.clone()).unwrap();
        let session =
            Session::new(1, "PLAINTEXT".into(), ListenerRole::Broker, "127.0.0.1:50000".parse().unwrap());
        let mut world = World { sim, mail, node, session, sequence: 0 };
        world.run_until(|events| events.contains(&NodeEvent::CaughtUp));
        world.node.set_ready();
        world.run_until(|events| events.contains(&NodeEvent::Running));
        world
    }

    fn run_until(&mut self, is_there: impl Fn(&[NodeEvent]) -> bool) {
        for _ in 0..5000 {
            if is_there(&self.mail.events.lock()) {
                return;
            }
            self.run();
        }
        panic!("the node does not get there: {:?}", self.mail.events.lock());
    }

    /// What the controller's, timers' and loader's threads do. Not those that sync.
    fn run(&mut self) {
        self.node.run_controller();
        self.node.run_timers();
        self.node.run_loader();
        self.sim.clock.advance(Duration::from_millis(5));
    }

    /// Sends a request; its answer when it came at once.
    fn send<R: Request>(&mut self, request: &R, version: i16) -> (RequestToken, Option<R::Response>) {
        self.sequence += 1;
        let token = RequestToken { connection: 1, sequence: self.sequence };
        let header = RequestHeader {
            api_key: R::API_KEY,
            api_version: version,
            correlation_id: 1,
            client_id: Some("test".into()),
        };
        let frame = protocol::encode_request(&header, request).unwrap();
        let answer = match self.node.handle(&mut self.session, token, frame) {
            Outcome::Reply(reply) => Some(decode::<R>(bytes_of(reply), version)),
            Outcome::Deferred => self.answer::<R>(token, version),
            Outcome::NoReply => None,
            Outcome::Close(reason) => panic!("{reason}"),
        };
        (token, answer)
    }

    /// A late answer, if it has come.
    fn answer<R: Request>(&mut self, token: RequestToken, version: i16) -> Option<R::Response> {
        let mut delivered = self.mail.delivered.lock();
        let at = delivered.iter().position(|(to, _)| *to == token)?;
        delivered.swap_remove(at).1.map(|bytes| decode::<R>(bytes, version))
    }

    fn create_topic(&mut self, name: &str, partitions: i32) {
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions: partitions,
            replication_factor: 1,
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
        let (token, _) = self.send(&request, 5);
        while self.answer::<CreateTopicsRequest>(token, 5).is_none() {
            self.run();
        }
    }

    fn produce(&mut self, partitions: &[i32], acks: i16) -> (RequestToken, Option<ProduceResponse>) {
        let mut builder = RecordBatchBuilder::new(BatchOptions::default());
        builder.append(1_700_000_000_000, None, Some(b"value"), &[]).unwrap();
        let batch = builder.build(&NoCodecs).unwrap();
        let data = partitions.iter().map(|index| PartitionProduceData {
            index: *index,
            records: Some(Records::Bytes(batch.clone())),
        });
        let topic = TopicProduceData {
            name: "t".into(),
            partition_data: data.collect(),
            ..TopicProduceData::default()
        };
        let request =
            ProduceRequest { acks, timeout_ms: 1000, topic_data: vec![topic], ..ProduceRequest::default() };
        self.send(&request, 9)
    }

    fn produced(&mut self, token: RequestToken) -> Option<Vec<(i16, i64)>> {
        self.answer::<ProduceRequest>(token, 9).map(|response| results(&response))
    }

    /// Where a consumer sees the end of the partition.
    fn visible_end(&mut self, index: i32) -> i64 {
        let partition =
            ListOffsetsPartition { partition_index: index, timestamp: -1, current_leader_epoch: -1 };
        let topic = ListOffsetsTopic { name: "t".into(), partitions: vec![partition] };
        let request =
            ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..ListOffsetsRequest::default() };
        let (_, answer) = self.send(&request, 5);
        answer.unwrap().topics[0].partitions[0].offset
    }

    fn sync(&mut self) {
        self.node.run_syncs(0, Duration::ZERO);
    }

    fn commit_offset(&mut self, offset: i64) -> (RequestToken, Option<OffsetCommitResponse>) {
        let partition = OffsetCommitRequestPartition {
            partition_index: 0,
            committed_offset: offset,
            ..OffsetCommitRequestPartition::default()
        };
        let topic = OffsetCommitRequestTopic {
            name: "t".into(),
            partitions: vec![partition],
            ..OffsetCommitRequestTopic::default()
        };
        let request = OffsetCommitRequest {
            group_id: "g".into(),
            generation_id_or_member_epoch: -1,
            topics: vec![topic],
            ..OffsetCommitRequest::default()
        };
        self.send(&request, 7)
    }
}

fn decode<R: Request>(bytes: Bytes, version: i16) -> R::Response {
    let mut decoder = Decoder::new(bytes);
    ResponseHeader::decode(&mut decoder, R::API_KEY.response_header_version(version)).unwrap();
    R::Response::decode(&mut decoder, version).unwrap()
}

/// Error code and base offset of each partition.
fn results(response: &ProduceResponse) -> Vec<(i16, i64)> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partition_responses);
    partitions.map(|partition| (partition.error_code, partition.base_offset)).collect()
}

#[test]
fn producers_and_readers_are_served_after_the_sync() {
    let mut world = World::start(Sim::new(1));
    world.create_topic("t", 3);
    let (first, answer) = world.produce(&[0], -1);
    assert!(answer.is_none());
    let (second, answer) = world.produce(&[0, 1], 1);
    assert!(answer.is_none());
    let (_, none) = world.produce(&[2], 0);
    assert!(none.is_none());
    assert_eq!((world.visible_end(0), world.visible_end(1)), (0, 0), "nobody sees what may be lost");

    world.sync();
    assert_eq!(world.produced(first).unwrap(), [(0, 0)], "one sync serves both");
    assert!(world.produced(second).is_none(), "its other partition is not durable yet");
    assert_eq!((world.visible_end(0), world.visible_end(1)), (2, 0));
    world.sync();
    assert_eq!(world.produced(second).unwrap(), [(0, 1), (0, 0)]);
    assert_eq!(world.visible_end(2), 0);
    world.sync();
    assert_eq!(world.visible_end(2), 1, "without an acknowledgement too");
}

#[test]
fn a_failed_sync_is_told_to_whoever_waits() {
    let mut world = World::start(Sim::new(1));
    world.create_topic("t", 2);
    let (failing, _) = world.produce(&[0], -1);
    let (behind, _) = world.produce(&[1], -1);
    let fault = Fault { op: Op::Sync, path: "t-0/0000".into(), nth: 1, kind: std::io::ErrorKind::Other };
    world.sim.fs.inject(fault);
    world.sync();
    world.sync();
    let error = (ErrorCode::KAFKA_STORAGE_ERROR.code(), -1);
    assert_eq!(world.produced(failing).unwrap(), [error]);
    assert_eq!(world.produced(behind).unwrap(), [error], "the directory is offline");
    let (_, answer) = world.produce(&[1], -1);
    assert_eq!(results(&answer.unwrap())[0].0, ErrorCode::KAFKA_STORAGE_ERROR.code());
}

#[test]
fn commits_of_groups_are_answered_after_the_sync() {
    let mut world = World::start(Sim::new(1));
    world.create_topic("t", 1);
    let find = FindCoordinatorRequest { key: "g".into(), ..FindCoordinatorRequest::default() };
    world.send(&find, 1);
    (0..200).for_each(|_| world.run());
    let (token, answer) = world.commit_offset(5);
    assert!(answer.is_none(), "{answer:?}");
    world.run();
    assert!(world.answer::<OffsetCommitRequest>(token, 7).is_none());
    world.sync();
    let answer = world.answer::<OffsetCommitRequest>(token, 7).unwrap();
    assert_eq!(answer.topics[0].partitions[0].error_code, 0);
}

#[test]
fn a_deleted_topic_fails_its_producers() {
    let mut world = World::start(Sim::new(1));
    world.create_topic("t", 1);
    let (waiting, _) = world.produce(&[0], -1);
    let request = protocol::messages::DeleteTopicsRequest {
        topic_names: vec!["t".into()],
        timeout_ms: 1000,
        ..Default::default()
    };
    let (token, _) = world.send(&request, 5);
    while world.answer::<protocol::messages::DeleteTopicsRequest>(token, 5).is_none() {
        world.run();
    }
    world.sync();
    assert_eq!(world.produced(waiting).unwrap(), [(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.code(), -1)]);
}

/// `STORAGE_CRASHES=n` sets the number of power cuts (default 20).
#[test]
fn power_cuts_take_back_nothing_that_clients_were_told() {
    let cuts: u64 = std::env::var("STORAGE_CRASHES").map_or(20, |n| n.parse().unwrap());
    for seed in 0..cuts {
        let random = SeededRandom::new(seed);
        let mut world = World::start(Sim::new(seed));
        world.create_topic("t", 2);
        world.sim.fs.power_off_at(world.sim.fs.operations() + random.pick(1..150));
        let (mut told, mut waiting) = ([0; 2], Vec::new());
        while !world.sim.fs.is_off() {
            match random.pick(0..10) {
                0..5 => {
                    let index = random.pick(0..2) as i32;
                    let (token, answer) = world.produce(&[index], -1);
                    assert!(answer.is_none_or(|answer| results(&answer)[0].0 != 0), "seed {seed}");
                    waiting.push((index, token));
                }
                5..8 => world.sync(),
                8 => world.node.run_log_tasks(),
                _ => world.sim.clock.advance(Duration::from_secs(20)),
            }
            waiting.retain(|(index, token)| match world.produced(*token) {
                Some(results) => {
                    if results[0].0 == 0 {
                        told[*index as usize] = told[*index as usize].max(results[0].1 + 1);
                    }
                    false
                }
                None => true,
            });
            for (index, told) in told.iter_mut().enumerate() {
                if !world.sim.fs.is_off() {
                    *told = world.visible_end(index as i32).max(*told);
                }
            }
        }
        let World { sim, node, .. } = world;
        drop(node);
        sim.fs.crash(seed);
        sim.clock.restart();
        let mut world = World::start(sim);
        // What recovery found is shown once it is durable.
        (0..5).for_each(|_| world.sync());
        for (index, told) in told.iter().enumerate() {
            assert!(world.visible_end(index as i32) >= *told, "seed {seed} partition {index}");
        }
    }
}
