//! Which directories this broker's replicas are in, as far as the controller is still to be told (KIP-858).
//!
//! Sans-IO: [`Assignments::assign`] and [`Assignments::handle_response`] are inputs, the next request comes from
//! [`Assignments::poll`].
//!
//! Invariants: one request is in flight at a time; of a partition only the newest directory is sent. What failed is sent
//! again, later each time the controller as a whole did not answer.

use metadata::{MetadataImage, directory_id};
use protocol::messages::assign_replicas_to_dirs_request::{DirectoryData, PartitionData, TopicData};
use protocol::messages::{AssignReplicasToDirsRequest, AssignReplicasToDirsResponse};
use protocol::{ErrorCode, Uuid};
use record::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// Most partitions of a request, so that it stays below 64 KiB.
const MAX_ASSIGNMENTS_PER_REQUEST: usize = 2250;
/// Waits that gather assignments, and between attempts.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// A partition's error is worth a line when it persists.
const NOISY_AFTER: Duration = Duration::from_secs(120);

/// A topic's id and a partition of it.
pub(crate) type TopicIdPartition = (Uuid, i32);

#[derive(Debug, Clone, Copy)]
struct Assignment {
    directory: Uuid,
    submitted: Duration,
}

/// See the file's header.
#[derive(Debug, Default)]
pub(crate) struct Assignments {
    ready: BTreeMap<TopicIdPartition, Assignment>,
    in_flight: BTreeMap<TopicIdPartition, Assignment>,
    failures: u32,
    next_send: Option<Duration>,
}

impl Assignments {
    /// The partition's replica is in the directory.
    pub(crate) fn assign(&mut self, now: Time, partition: TopicIdPartition, directory: Uuid) {
        self.ready.insert(partition, Assignment { directory, submitted: now.monotonic });
        self.schedule(now);
    }

    fn schedule(&mut self, now: Time) {
        let wait = if self.failures > 0 {
            FIRST_WAIT.saturating_mul(1 << self.failures.min(16)).min(LONGEST_WAIT)
        } else if self.ready.len() > MAX_ASSIGNMENTS_PER_REQUEST {
            Duration::ZERO
        } else {
            FIRST_WAIT
        };
        let at = now.monotonic + wait;
        self.next_send = Some(self.next_send.map_or(at, |before| before.min(at)));
    }

    /// When [`Self::poll`] may have something to send.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.next_send.filter(|_| self.in_flight.is_empty())
    }

    /// The request to send now, if any. Partitions that are gone, or whose replica is elsewhere now, are dropped.
    pub(crate) fn poll(
        &mut self,
        now: Time,
        broker: i32,
        broker_epoch: i64,
        image: &MetadataImage,
    ) -> Option<AssignReplicasToDirsRequest> {
        if self.deadline().is_none_or(|deadline| now.monotonic < deadline) {
            return None;
        }
        if broker_epoch < 0 {
            // Not registered yet.
            self.next_send = Some(now.monotonic + FIRST_WAIT);
            return None;
        }
        self.next_send = None;
        while self.in_flight.len() < MAX_ASSIGNMENTS_PER_REQUEST
            && let Some((partition, assignment)) = self.ready.pop_first()
        {
            let registration = image.topics.partition(&partition.0, partition.1);
            if registration.is_some_and(|registration| registration.replicas.contains(&broker)) {
                self.in_flight.insert(partition, assignment);
            }
        }
        if !self.ready.is_empty() {
            self.schedule(now);
        }
        if self.in_flight.is_empty() {
            return None;
        }
        tracing::info!(target: "org.apache.kafka.server.AssignmentsManager", "[AssignmentsManager id={broker}] sending {} assignments", self.in_flight.len());
        Some(AssignReplicasToDirsRequest {
            broker_id: broker,
            broker_epoch,
            directories: by_directory(&self.in_flight),
        })
    }

    /// Takes the answer; returns what the controller has accepted, with the directory.
    pub(crate) fn handle_response(
        &mut self,
        now: Time,
        response: &AssignReplicasToDirsResponse,
    ) -> Vec<(TopicIdPartition, Uuid)> {
        let mut sent = std::mem::take(&mut self.in_flight);
        let error = ErrorCode::from_code(response.error_code);
        let mut accepted = Vec::new();
        if error == ErrorCode::NONE {
            self.failures = 0;
            for topic in response.directories.iter().flat_map(|directory| &directory.topics) {
                for answer in &topic.partitions {
                    let partition = (topic.topic_id, answer.partition_index);
                    let error = ErrorCode::from_code(answer.error_code);
                    if error == ErrorCode::NONE {
                        accepted.extend(sent.remove(&partition).map(|a| (partition, a.directory)));
                    } else if let Some(assignment) = sent.get(&partition)
                        && now.monotonic > assignment.submitted + NOISY_AFTER
                    {
                        tracing::error!(target: "org.apache.kafka.server.AssignmentsManager", "error assigning {partition:?}: {}", error.name());
                    }
                }
            }
        } else {
            self.failures = self.failures.saturating_add(1);
            tracing::error!(target: "org.apache.kafka.server.AssignmentsManager", "{} assignments failed: {}. Retrying.", sent.len(), error.name());
        }
        for (partition, assignment) in sent {
            self.ready.entry(partition).or_insert(assignment);
        }
        if !self.ready.is_empty() {
            self.schedule(now);
        }
        accepted
    }
}

fn by_directory(assignments: &BTreeMap<TopicIdPartition, Assignment>) -> Vec<DirectoryData> {
    let mut directories: Vec<DirectoryData> = Vec::new();
    for ((topic_id, partition_index), assignment) in assignments {
        let at = match directories.iter().position(|d| d.id == assignment.directory) {
            Some(at) => at,
            None => {
                directories.push(DirectoryData { id: assignment.directory, topics: Vec::new() });
                directories.len() - 1
            }
        };
        let Some(directory) = directories.get_mut(at) else { continue };
        // Partitions come in the order of their topics.
        if directory.topics.last().is_none_or(|topic| topic.topic_id != *topic_id) {
            directory.topics.push(TopicData { topic_id: *topic_id, partitions: Vec::new() });
        }
        if let Some(topic) = directory.topics.last_mut() {
            topic.partitions.push(PartitionData { partition_index: *partition_index });
        }
    }
    directories.sort_by(|a, b| directory_id::compare(&a.id, &b.id));
    directories
}

#[cfg(test)]
mod tests {
    use super::*;
    use metadata::MetadataDelta;
    use protocol::messages::assign_replicas_to_dirs_response as response;
    use protocol::records::metadata::{PartitionRecord, TopicRecord};

    const TOPIC: Uuid = Uuid([9; 16]);
    const DIRS: [Uuid; 2] = [Uuid([1; 16]), Uuid([2; 16])];

    fn at(ms: u64) -> Time {
        Time { monotonic: Duration::from_millis(ms), wall_ms: 0 }
    }

    /// A topic with partitions 0 and 1 on broker 1, and 2 elsewhere.
    fn image() -> MetadataImage {
        let mut delta = MetadataDelta::new(MetadataImage::default());
        delta.replay(&TopicRecord { name: "t".into(), topic_id: TOPIC }.into()).unwrap();
        for partition_id in 0..3 {
            let broker = if partition_id == 2 { 2 } else { 1 };
            let record = PartitionRecord {
                topic_id: TOPIC,
                partition_id,
                replicas: vec![broker],
                isr: vec![broker],
                leader: broker,
                directories: vec![directory_id::UNASSIGNED],
                ..PartitionRecord::default()
            };
            delta.replay(&record.into()).unwrap();
        }
        delta.image().clone()
    }

    fn answer(error: ErrorCode, partitions: &[(i32, ErrorCode)]) -> AssignReplicasToDirsResponse {
        let partitions = partitions.iter().map(|(partition_index, error)| response::PartitionData {
            partition_index: *partition_index,
            error_code: error.code(),
        });
        let topic = response::TopicData { topic_id: TOPIC, partitions: partitions.collect() };
        AssignReplicasToDirsResponse {
            error_code: error.code(),
            directories: vec![response::DirectoryData { id: DIRS[0], topics: vec![topic] }],
            ..AssignReplicasToDirsResponse::default()
        }
    }

    #[test]
    fn assignments_are_gathered_sent_once_and_only_for_own_replicas() {
        let mut assignments = Assignments::default();
        let image = image();
        for (partition, dir) in [(0, 0), (1, 1), (2, 0), (0, 1), (7, 1)] {
            assignments.assign(at(0), (TOPIC, partition), DIRS[dir]);
        }
        assert!(assignments.poll(at(99), 1, 5, &image).is_none());
        let request = assignments.poll(at(100), 1, 5, &image).unwrap();
        assert_eq!((request.broker_id, request.broker_epoch), (1, 5));
        let [directory] = &request.directories[..] else { panic!("{request:?}") };
        assert_eq!(directory.id, DIRS[1], "the newest directory of partition 0");
        assert_eq!(directory.topics[0].partitions.len(), 2);
        assignments.assign(at(100), (TOPIC, 0), DIRS[0]);
        assert!(assignments.poll(at(5000), 1, 5, &image).is_none(), "one request at a time");
        let done = answer(ErrorCode::NONE, &[(0, ErrorCode::NONE), (1, ErrorCode::NONE)]);
        let accepted = assignments.handle_response(at(5000), &done);
        assert_eq!(accepted, [((TOPIC, 0), DIRS[1]), ((TOPIC, 1), DIRS[1])]);
        let request = assignments.poll(at(5100), 1, 5, &image).unwrap();
        assert_eq!(request.directories[0].id, DIRS[0]);
    }

    #[test]
    fn what_failed_is_sent_again() {
        let mut assignments = Assignments::default();
        let image = image();
        assignments.assign(at(0), (TOPIC, 0), DIRS[0]);
        assignments.assign(at(0), (TOPIC, 1), DIRS[0]);
        assignments.poll(at(100), 1, 5, &image).unwrap();
        let half = answer(ErrorCode::NONE, &[(0, ErrorCode::NONE), (1, ErrorCode::UNKNOWN_TOPIC_ID)]);
        assert_eq!(assignments.handle_response(at(100), &half), [((TOPIC, 0), DIRS[0])]);
        let mut now = 200;
        for wait in [200, 400, 800] {
            assert!(assignments.poll(at(now - 1), 1, 5, &image).is_none(), "{wait}");
            assignments.poll(at(now), 1, 5, &image).unwrap();
            assert!(assignments.handle_response(at(now), &answer(ErrorCode::NOT_CONTROLLER, &[])).is_empty());
            now += wait;
        }
    }
}
