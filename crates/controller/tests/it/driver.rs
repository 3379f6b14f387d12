//! A controller with an in-memory log in place of raft: every decision is appended and, unless held back, committed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use config::ServerConfig;
use controller::{ControllerResult, ControllerSettings, QuorumController, RequestContext};
use metadata::feature::default_supported_features;
use metadata::record::MetadataRecord;
use metadata::{BootstrapMetadata, FormatFeatures, MetadataVersion, PartitionRegistration, VersionedRecord};
use protocol::Uuid;
use protocol::messages::broker_registration_request::{Feature, Listener};
use protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use protocol::messages::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest, CreateTopicsRequest,
    CreateTopicsResponse,
};
use record::Time;

pub const CLUSTER_ID: &str = "5L6g3nShT-eMCtK--X86sw";

pub struct Driver {
    pub controller: QuorumController,
    pub log: Vec<VersionedRecord>,
    pub committed: usize,
    /// Whether appended batches are committed at once.
    pub auto_commit: bool,
    pub now: Time,
    seed: u64,
}

pub fn server(extra: &[(&str, &str)]) -> Arc<ServerConfig> {
    let mut properties = BTreeMap::new();
    let base = [
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        ("controller.quorum.voters", "1@127.0.0.1:9093"),
        ("listeners", "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"),
        ("controller.listener.names", "CONTROLLER"),
    ];
    for (key, value) in base.iter().chain(extra) {
        properties.insert((*key).to_owned(), (*value).to_owned());
    }
    Arc::new(ServerConfig::from_map(properties).unwrap())
}

pub fn bootstrap(version: MetadataVersion, features: &[(&str, i16)]) -> BootstrapMetadata {
    let asked = FormatFeatures {
        release_version: Some(version),
        features: features.iter().map(|(n, l)| ((*n).to_owned(), *l)).collect(),
        ..Default::default()
    };
    let (version, levels) = asked.effective_levels().unwrap();
    BootstrapMetadata::from_versions(version, &levels, "test")
}

pub fn dir(broker: i32, n: u8) -> Uuid {
    Uuid([9, n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, broker as u8])
}

impl Driver {
    pub fn new(extra: &[(&str, &str)], bootstrap: BootstrapMetadata) -> Self {
        let settings = ControllerSettings::new(CLUSTER_ID, server(extra), vec![1]);
        let mut driver = Self {
            controller: QuorumController::new(settings, bootstrap),
            log: Vec::new(),
            committed: 0,
            auto_commit: true,
            now: Time { monotonic: Duration::from_secs(100), wall_ms: 0 },
            seed: 1,
        };
        driver.activate(1);
        driver
    }

    /// A cluster of the newest metadata version with so many unfenced brokers, 1, 2, …
    pub fn with_brokers(count: i32) -> Self {
        let mut driver = Self::new(&[], bootstrap(MetadataVersion::LATEST_PRODUCTION, &[]));
        for id in 1..=count {
            driver.register_and_unfence(id);
        }
        driver
    }

    pub fn activate(&mut self, epoch: i32) {
        let next = self.log.len() as i64;
        let result = self.controller.become_active(self.now, epoch, next).unwrap();
        self.submit(result);
    }

    pub fn context(&mut self, api_version: i16) -> RequestContext<'static> {
        self.seed += 1;
        RequestContext::allow_all(api_version, [self.seed, 2, 3, 4])
    }

    pub fn advance(&mut self, ms: u64) {
        self.now.monotonic += Duration::from_millis(ms);
    }

    /// Appends, replays and (unless held back) commits a decision; returns its response and records.
    pub fn submit<T>(&mut self, result: ControllerResult<T>) -> (T, Vec<MetadataRecord>) {
        let records = result.records.clone();
        let batches: Vec<Vec<VersionedRecord>> = result.batches().map(<[_]>::to_vec).collect();
        for batch in batches {
            let base = self.log.len() as i64;
            for record in &batch {
                let decoded = VersionedRecord::decode(record.encode().unwrap()).unwrap();
                assert_eq!(&decoded, record, "what is written can be read");
            }
            self.controller.replay_appended(base, &batch).unwrap();
            self.log.extend(batch);
        }
        let completion = self.controller.complete(self.now, result);
        if self.auto_commit {
            self.commit();
            assert!(completion.wait_for.is_none_or(|o| o <= self.controller.last_stable_offset()));
        }
        (completion.response, records.into_iter().map(|r| r.record).collect())
    }

    pub fn commit(&mut self) {
        let batch = self.log[self.committed..].to_vec();
        self.controller.handle_commit(self.committed as i64, 1, &batch).unwrap();
        self.committed = self.log.len();
    }

    pub fn tick(&mut self) -> Vec<MetadataRecord> {
        let mut all = Vec::new();
        while let Some(result) = self.controller.tick(self.now) {
            all.extend(self.submit(result).1);
        }
        all
    }

    pub fn registration(id: i32, incarnation: u8) -> BrokerRegistrationRequest {
        BrokerRegistrationRequest {
            broker_id: id,
            cluster_id: CLUSTER_ID.to_owned(),
            incarnation_id: Uuid([incarnation, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, id as u8]),
            listeners: vec![Listener {
                name: "PLAINTEXT".to_owned(),
                host: "127.0.0.1".to_owned(),
                port: 9000 + id as u16,
                security_protocol: 0,
            }],
            features: default_supported_features(false)
                .into_iter()
                .map(|(name, range)| Feature {
                    name,
                    min_supported_version: range.min,
                    max_supported_version: range.max,
                })
                .collect(),
            rack: None,
            log_dirs: vec![dir(id, 1)],
            ..Default::default()
        }
    }

    pub fn register(&mut self, request: &BrokerRegistrationRequest) -> (i16, i64, Vec<MetadataRecord>) {
        let context = self.context(4);
        let result = self.controller.handle_broker_registration(self.now, &context, request);
        let (response, records) = self.submit(result);
        (response.error_code, response.broker_epoch, records)
    }

    pub fn epoch(&self, broker: i32) -> i64 {
        self.controller.image().cluster.broker_epoch(broker)
    }

    /// A heartbeat of a broker that has read everything; `change` makes it another.
    pub fn heartbeat(
        &mut self,
        broker: i32,
        change: impl FnOnce(&mut BrokerHeartbeatRequest),
    ) -> (BrokerHeartbeatResponse, Vec<MetadataRecord>) {
        let mut request = BrokerHeartbeatRequest {
            broker_id: broker,
            broker_epoch: self.epoch(broker),
            current_metadata_offset: self.log.len() as i64 - 1,
            cordoned_log_dirs: Some(Vec::new()),
            ..Default::default()
        };
        change(&mut request);
        let result = self.controller.handle_broker_heartbeat(self.now, &request);
        self.submit(result)
    }

    pub fn register_and_unfence(&mut self, id: i32) {
        let (error, _, _) = self.register(&Self::registration(id, 1));
        assert_eq!(error, 0);
        let (response, _) = self.heartbeat(id, |_| {});
        assert!(!response.is_fenced);
    }

    pub fn create(&mut self, topics: Vec<CreatableTopic>) -> (CreateTopicsResponse, Vec<MetadataRecord>) {
        let request = CreateTopicsRequest { topics, ..Default::default() };
        let context = self.context(7);
        let result = self.controller.handle_create_topics(self.now, &context, &request);
        self.submit(result)
    }

    /// Creates a topic with these assignments; it must succeed.
    pub fn create_assigned(&mut self, name: &str, assignments: &[&[i32]]) -> Uuid {
        let topic = assigned(name, assignments);
        let (response, _) = self.create(vec![topic]);
        assert_eq!(response.topics[0].error_code, 0, "{:?}", response.topics[0].error_message);
        response.topics[0].topic_id
    }

    pub fn partition(&self, topic: &Uuid, partition: i32) -> PartitionRegistration {
        PartitionRegistration::clone(self.controller.image().topics.partition(topic, partition).unwrap())
    }
}

pub fn topic(name: &str, num_partitions: i32, replication_factor: i16) -> CreatableTopic {
    CreatableTopic { name: name.to_owned(), num_partitions, replication_factor, ..Default::default() }
}

pub fn with_configs(mut topic: CreatableTopic, configs: &[(&str, Option<&str>)]) -> CreatableTopic {
    topic.configs = configs
        .iter()
        .map(|(name, value)| CreatableTopicConfig {
            name: (*name).to_owned(),
            value: value.map(str::to_owned),
        })
        .collect();
    topic
}

pub fn assigned(name: &str, assignments: &[&[i32]]) -> CreatableTopic {
    let mut topic = topic(name, -1, -1);
    topic.assignments = (0..)
        .zip(assignments)
        .map(|(partition_index, brokers)| CreatableReplicaAssignment {
            partition_index,
            broker_ids: brokers.to_vec(),
        })
        .collect();
    topic
}

pub fn names(records: &[MetadataRecord]) -> Vec<&'static str> {
    records.iter().map(MetadataRecord::name).collect()
}
