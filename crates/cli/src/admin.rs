//! Administrative operations that several tools share, over `client`.
//!
//! An [`Admin`] retries what may pass until its time limit; then the operation fails with one line that says what was
//! waited for. Answers come back sorted, so that output does not depend on hash order.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use client::{ApiError, ClientConfig, ClientError, Cluster, CoordinatorKind, Target};
use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::{
    DescribeConfigsRequest, DescribeTopicPartitionsRequest, ListOffsetsRequest, MetadataResponse,
};
use protocol::{ApiKey, ErrorCode, Request, Uuid};
use record::TopicPartition;
use tokio::time::Instant;

use crate::failure::Failure;

/// How many partitions one DescribeTopicPartitions answer may carry, as the reference's admin client asks.
pub const PARTITIONS_PER_RESPONSE: i32 = 2000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceType {
    Topic = 2,
    Broker = 4,
    BrokerLogger = 8,
    ClientMetrics = 16,
    Group = 32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TopicDescription {
    pub name: String,
    pub id: Uuid,
    pub is_internal: bool,
    pub partitions: Vec<PartitionInfo>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PartitionInfo {
    pub partition: i32,
    pub leader: Option<i32>,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
    /// `None` when the broker's answer has no place for it (KIP-966).
    pub elr: Option<Vec<i32>>,
    pub last_known_elr: Option<Vec<i32>>,
}

/// What a ListOffsets answer says of a partition; `offset` is -1 when there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedOffset {
    pub offset: i64,
    pub timestamp: i64,
    pub leader_epoch: i32,
}

#[derive(Clone, Debug)]
pub struct Admin {
    pub cluster: Cluster,
    pub timeout: Duration,
}

impl Admin {
    /// From the tool's properties, in which bootstrap addresses are already set.
    pub fn new(mut config: ClientConfig, timeout: Duration) -> Result<Admin, Failure> {
        let limit = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX).max(1);
        config.set_if_absent("request.timeout.ms", limit.to_string());
        config.set_if_absent("socket.connection.setup.timeout.ms", limit.to_string());
        config.set_if_absent("client.id", "adminclient-1");
        Ok(Admin { cluster: Cluster::new(&config)?, timeout })
    }

    /// Properties of `--command-config`, with `--bootstrap-server`.
    pub fn connect(bootstrap: Option<&str>, file: Option<&str>, timeout: Duration) -> Result<Admin, Failure> {
        let mut config = match file {
            Some(file) => load_config(file)?,
            None => ClientConfig::new(),
        };
        if let Some(bootstrap) = bootstrap {
            config.set("bootstrap.servers", bootstrap);
        }
        Admin::new(config, timeout)
    }

    /// Repeats an operation that fails in a passing way until the time limit.
    pub async fn retry<T, F>(&self, attempt: impl FnMut() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let deadline = Instant::now() + self.timeout;
        let what = "a request".to_owned();
        match tokio::time::timeout_at(
            deadline + Duration::from_millis(50),
            self.cluster.retry(deadline, attempt),
        )
        .await
        {
            Ok(result) => Ok(result?),
            Err(_) => Err(ClientError::TimedOut { what, after: self.timeout }.into()),
        }
    }

    /// Sends one request, repeated only when it could not be delivered.
    pub async fn send<R: Request>(&self, target: Target, request: &R) -> Result<R::Response, Failure> {
        self.retry(|| self.cluster.send(target, request)).await
    }

    /// Sends to the coordinator of `key`; `check` finds the error code that may mean "ask another node".
    pub async fn send_to_coordinator<R: Request>(
        &self,
        key: &str,
        request: &R,
        check: impl Fn(&R::Response) -> i16,
    ) -> Result<R::Response, Failure> {
        self.retry(|| async {
            let node = self.cluster.coordinator(CoordinatorKind::Group, key).await?;
            let response = self.cluster.send(Target::Node(node), request).await;
            let code = match &response {
                Ok(response) => ErrorCode::from_code(check(response)),
                Err(error) if error.is_retriable() => ErrorCode::NOT_COORDINATOR,
                Err(_) => ErrorCode::NONE,
            };
            if matches!(code, ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE) {
                self.cluster.forget_coordinator(CoordinatorKind::Group, key);
            }
            if matches!(
                code,
                ErrorCode::NOT_COORDINATOR
                    | ErrorCode::COORDINATOR_NOT_AVAILABLE
                    | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
            ) {
                return Err(code.into());
            }
            response
        })
        .await
    }

    pub fn timeout_ms(&self) -> i32 {
        i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX)
    }

    /// Names of all topics, sorted.
    pub async fn topic_names(&self, include_internal: bool) -> Result<Vec<String>, Failure> {
        let metadata = self.retry(|| self.cluster.metadata(None)).await?;
        let topics = metadata.topics.into_iter();
        let listed = topics.filter(|topic| topic.error_code == 0 && (include_internal || !topic.is_internal));
        let mut names: Vec<String> = listed.filter_map(|topic| topic.name).collect();
        names.sort();
        Ok(names)
    }

    /// Describes topics by name; the first topic in error fails the whole.
    pub async fn describe_topics(
        &self,
        names: &[String],
        partitions_per_response: i32,
    ) -> Result<Vec<TopicDescription>, Failure> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let connection = self.retry(|| self.cluster.connection(Target::Any)).await?;
        if connection.served(ApiKey::DescribeTopicPartitions).is_none() {
            let metadata = self.retry(|| self.cluster.metadata(Some(names))).await?;
            return from_metadata(metadata);
        }
        let mut sorted = names.to_vec();
        sorted.sort();
        sorted.dedup();
        let mut described: BTreeMap<String, TopicDescription> = BTreeMap::new();
        let mut cursor: Option<Cursor> = None;
        loop {
            let remaining =
                sorted.iter().filter(|name| cursor.as_ref().is_none_or(|at| **name >= at.topic_name));
            let request = DescribeTopicPartitionsRequest {
                topics: remaining.map(|name| TopicRequest { name: name.clone() }).collect(),
                response_partition_limit: partitions_per_response,
                cursor: cursor.clone(),
            };
            let response = self.send(Target::Any, &request).await?;
            for topic in response.topics {
                ApiError::check(topic.error_code, None)?;
                let name = topic.name.unwrap_or_default();
                let entry = described.entry(name.clone()).or_insert_with(|| TopicDescription {
                    name,
                    id: topic.topic_id,
                    is_internal: topic.is_internal,
                    partitions: Vec::new(),
                });
                entry.partitions.extend(topic.partitions.into_iter().map(|partition| PartitionInfo {
                    partition: partition.partition_index,
                    leader: self.known_leader(partition.leader_id),
                    replicas: partition.replica_nodes,
                    isr: partition.isr_nodes,
                    elr: Some(partition.eligible_leader_replicas.unwrap_or_default()),
                    last_known_elr: Some(partition.last_known_elr.unwrap_or_default()),
                }));
            }
            match response.next_cursor {
                Some(next) => {
                    cursor =
                        Some(Cursor { topic_name: next.topic_name, partition_index: next.partition_index });
                }
                None => return Ok(described.into_values().collect()),
            }
        }
    }

    fn known_leader(&self, leader: i32) -> Option<i32> {
        (leader >= 0).then_some(leader)
    }

    pub async fn describe_topic_by_id(&self, id: Uuid) -> Result<Vec<TopicDescription>, Failure> {
        let ids = [id];
        let metadata = self.retry(|| self.cluster.metadata_by_id(&ids)).await?;
        from_metadata(metadata)
    }

    /// The configuration entries of one resource.
    pub async fn describe_configs(
        &self,
        kind: ResourceType,
        name: &str,
        include_synonyms: bool,
    ) -> Result<Vec<DescribeConfigsResourceResult>, Failure> {
        let target = match kind {
            ResourceType::Broker | ResourceType::BrokerLogger => {
                name.parse().map_or(Target::Any, |id: i32| match self.cluster.is_controller_bootstrap() {
                    true => Target::Any,
                    false => Target::Node(id),
                })
            }
            _ => Target::Any,
        };
        let resource = DescribeConfigsResource {
            resource_type: kind as i8,
            resource_name: name.to_owned(),
            configuration_keys: None,
        };
        let request =
            DescribeConfigsRequest { resources: vec![resource], include_synonyms, ..Default::default() };
        let response = self.send(target, &request).await?;
        let Some(result) = response.results.into_iter().next() else { return Ok(Vec::new()) };
        ApiError::check(result.error_code, result.error_message.as_ref())?;
        Ok(result.configs)
    }

    /// Offsets of `partitions` for a timestamp or one of the special values (-1 latest, -2 earliest, …). A partition's
    /// own error stands in its result.
    pub async fn list_offsets(
        &self,
        partitions: &[TopicPartition],
        timestamp: i64,
        isolation_level: i8,
    ) -> Result<BTreeMap<TopicPartition, Result<ListedOffset, ApiError>>, Failure> {
        self.retry(|| self.try_list_offsets(partitions, timestamp, isolation_level)).await
    }

    async fn try_list_offsets(
        &self,
        partitions: &[TopicPartition],
        timestamp: i64,
        isolation_level: i8,
    ) -> Result<BTreeMap<TopicPartition, Result<ListedOffset, ApiError>>, ClientError> {
        let mut results = BTreeMap::new();
        for (leader, partitions) in self.by_leader(partitions).await? {
            let Some(leader) = leader else {
                let error = ApiError::new(ErrorCode::LEADER_NOT_AVAILABLE, None);
                results.extend(partitions.into_iter().map(|partition| (partition, Err(error.clone()))));
                continue;
            };
            let mut topics: BTreeMap<String, Vec<ListOffsetsPartition>> = BTreeMap::new();
            for partition in &partitions {
                let wanted = ListOffsetsPartition {
                    partition_index: partition.partition,
                    current_leader_epoch: -1,
                    timestamp,
                };
                topics.entry(partition.topic.to_string()).or_default().push(wanted);
            }
            let topics = topics.into_iter().map(|(name, partitions)| ListOffsetsTopic { name, partitions });
            let request = ListOffsetsRequest {
                replica_id: -1,
                isolation_level,
                topics: topics.collect(),
                timeout_ms: self.timeout_ms(),
            };
            let connection = self.cluster.connection(Target::Node(leader)).await?;
            let version = connection.version_of::<ListOffsetsRequest>()?;
            // Versions before 10 have no field for the time limit of tiered lookups (KIP-1075).
            let request = ListOffsetsRequest {
                timeout_ms: if version < 10 { 0 } else { request.timeout_ms },
                ..request
            };
            let response = connection.send_version(&request, version).await?;
            for topic in response.topics {
                for partition in topic.partitions {
                    let key = TopicPartition {
                        topic: topic.name.as_str().into(),
                        partition: partition.partition_index,
                    };
                    let code = ErrorCode::from_code(partition.error_code);
                    if code.is_error() && code.is_retriable() && code != ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                    {
                        return Err(code.into());
                    }
                    let listed = ApiError::check(partition.error_code, None).map(|()| ListedOffset {
                        offset: partition.offset,
                        timestamp: partition.timestamp,
                        leader_epoch: partition.leader_epoch,
                    });
                    results.insert(key, listed);
                }
            }
        }
        Ok(results)
    }

    /// `partitions` grouped by their leader; `None` holds those that have none. An unknown topic fails the whole.
    pub async fn by_leader(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<Option<i32>, Vec<TopicPartition>>, ClientError> {
        let mut names: Vec<String> = partitions.iter().map(|partition| partition.topic.to_string()).collect();
        names.sort();
        names.dedup();
        let metadata = self.cluster.metadata(Some(&names)).await?;
        let mut leaders = BTreeMap::new();
        for topic in &metadata.topics {
            ApiError::check(topic.error_code, None)?;
            let name = topic.name.clone().unwrap_or_default();
            for partition in &topic.partitions {
                leaders.insert((name.clone(), partition.partition_index), partition.leader_id);
            }
        }
        let mut grouped: BTreeMap<Option<i32>, Vec<TopicPartition>> = BTreeMap::new();
        for partition in partitions {
            let leader = match leaders.get(&(partition.topic.to_string(), partition.partition)) {
                Some(leader) => (*leader >= 0).then_some(*leader),
                None => return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.into()),
            };
            grouped.entry(leader).or_default().push(partition.clone());
        }
        Ok(grouped)
    }
}

fn from_metadata(metadata: MetadataResponse) -> Result<Vec<TopicDescription>, Failure> {
    let mut topics = Vec::new();
    for topic in metadata.topics {
        ApiError::check(topic.error_code, None)?;
        let partitions = topic.partitions.into_iter().map(|partition| PartitionInfo {
            partition: partition.partition_index,
            leader: (partition.leader_id >= 0).then_some(partition.leader_id),
            replicas: partition.replica_nodes,
            isr: partition.isr_nodes,
            elr: None,
            last_known_elr: None,
        });
        topics.push(TopicDescription {
            name: topic.name.unwrap_or_default(),
            id: topic.topic_id,
            is_internal: topic.is_internal,
            partitions: partitions.collect(),
        });
    }
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(topics)
}

/// A properties file; a missing one is reported by its path alone, as Java's exception does.
pub fn load_config(file: &str) -> Result<ClientConfig, Failure> {
    match std::fs::metadata(file) {
        Ok(_) => Ok(ClientConfig::from_file(Path::new(file))?),
        Err(_) => Err(Failure::text("java.nio.file.NoSuchFileException", file)),
    }
}
