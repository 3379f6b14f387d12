//! What can be learnt about retention over the wire: configurations, sizes, offsets, and the oldest batches themselves.
//!
//! No API tells where segments begin. The tool replays the rule by which they are rolled (`segment.bytes`, `segment.ms`)
//! over the oldest batches; how much it reads for that has a limit, beyond which the rest is estimated.

use std::collections::BTreeMap;

use client::{ApiError, Target};
use protocol::messages::DescribeLogDirsRequest;
use protocol::messages::FetchRequest;
use protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::{Records, Uuid};
use record::{BatchHeader, Batches, TopicPartition};

use super::verdict::{Facts, OldestSegment, Rules};
use crate::admin::{Admin, ResourceType, TopicDescription};
use crate::failure::Failure;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
/// Bytes asked for at once.
const FETCH_BYTES: i32 = 4 << 20;

pub async fn rules(admin: &Admin, topic: &str, leader: Option<i32>) -> Result<Rules, Failure> {
    let configs = admin.describe_configs(ResourceType::Topic, topic, false).await?;
    let values: BTreeMap<String, String> =
        configs.into_iter().filter_map(|config| Some((config.name, config.value?))).collect();
    let number = |key: &str, default: i64| values.get(key).and_then(|v| v.parse().ok()).unwrap_or(default);
    let policy = values.get("cleanup.policy").map_or("delete", String::as_str);
    let has = |name: &str| policy.split(',').any(|part| part.trim().eq_ignore_ascii_case(name));
    let compact = has("compact");
    let segment_ms = number("segment.ms", 604_800_000);
    let lag = number("max.compaction.lag.ms", i64::MAX);
    Ok(Rules {
        delete: has("delete"),
        compact,
        retention_ms: number("retention.ms", 604_800_000),
        retention_bytes: number("retention.bytes", -1),
        segment_ms: if compact && lag > 0 { segment_ms.min(lag) } else { segment_ms },
        segment_bytes: number("segment.bytes", 1 << 30),
        check_interval_ms: check_interval(admin, leader).await,
        file_delete_delay_ms: number("file.delete.delay.ms", 60_000),
    })
}

/// `log.retention.check.interval.ms`; its default where the broker does not tell.
async fn check_interval(admin: &Admin, leader: Option<i32>) -> i64 {
    let told = match leader {
        Some(id) => admin.describe_configs(ResourceType::Broker, &id.to_string(), false).await.ok(),
        None => None,
    };
    let entry = told.into_iter().flatten().find(|entry| entry.name == "log.retention.check.interval.ms");
    entry.and_then(|entry| entry.value?.parse().ok()).unwrap_or(300_000)
}

/// Facts about every partition that has a leader; the others' numbers.
pub async fn collect(
    admin: &Admin,
    topic: &TopicDescription,
    rules: &Rules,
    max_read_bytes: u64,
) -> Result<(Vec<Facts>, Vec<i32>), Failure> {
    let leaders: BTreeMap<i32, i32> =
        topic.partitions.iter().filter_map(|p| Some((p.partition, p.leader?))).collect();
    let without: Vec<i32> =
        topic.partitions.iter().filter(|p| p.leader.is_none()).map(|p| p.partition).collect();
    let names: Vec<TopicPartition> =
        leaders.keys().map(|index| TopicPartition::new(&*topic.name, *index)).collect();
    let sizes = sizes(admin, &topic.name, &leaders).await?;
    let mut listed: BTreeMap<i64, BTreeMap<i32, (i64, i64)>> = BTreeMap::new();
    for timestamp in [EARLIEST, LATEST, MAX_TIMESTAMP] {
        let of_timestamp = listed.entry(timestamp).or_default();
        match admin.list_offsets(&names, timestamp, 0).await {
            Ok(offsets) => {
                for (partition, offset) in offsets {
                    let offset = offset?;
                    of_timestamp.insert(partition.partition, (offset.offset, offset.timestamp));
                }
            }
            // Brokers before 3.0 do not know the largest timestamp.
            Err(_) if timestamp == MAX_TIMESTAMP => {}
            Err(error) => return Err(error),
        }
    }
    let of = |timestamp: i64, partition: i32| {
        listed.get(&timestamp).and_then(|offsets| offsets.get(&partition)).copied()
    };
    let mut facts = Vec::new();
    for (partition, leader) in &leaders {
        let log_start_offset = of(EARLIEST, *partition).map_or(0, |(offset, _)| offset);
        let high_watermark = of(LATEST, *partition).map_or(0, |(offset, _)| offset);
        let size = sizes.get(partition).copied();
        let max_timestamp = of(MAX_TIMESTAMP, *partition).map(|(_, timestamp)| timestamp);
        let segment = if log_start_offset < high_watermark {
            let reader = Reader { admin, leader: *leader, topic, partition: *partition };
            oldest_segment(
                &reader,
                rules,
                log_start_offset,
                high_watermark,
                size,
                max_timestamp,
                max_read_bytes,
            )
            .await?
        } else {
            None
        };
        facts.push(Facts { partition: *partition, log_start_offset, high_watermark, size, segment });
    }
    Ok((facts, without))
}

/// Bytes of the leaders' replicas.
async fn sizes(
    admin: &Admin,
    topic: &str,
    leaders: &BTreeMap<i32, i32>,
) -> Result<BTreeMap<i32, u64>, Failure> {
    let mut by_leader: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for (partition, leader) in leaders {
        by_leader.entry(*leader).or_default().push(*partition);
    }
    let mut sizes = BTreeMap::new();
    for (leader, partitions) in by_leader {
        let wanted = DescribableLogDirTopic { topic: topic.to_owned(), partitions };
        let request = DescribeLogDirsRequest { topics: Some(vec![wanted]) };
        let response = admin.send(Target::Node(leader), &request).await?;
        let described = response.results.into_iter().flat_map(|result| result.topics);
        for partition in
            described.filter(|described| described.name == topic).flat_map(|topic| topic.partitions)
        {
            if !partition.is_future_key
                && let Ok(size) = u64::try_from(partition.partition_size)
            {
                sizes.insert(partition.partition_index, size);
            }
        }
    }
    Ok(sizes)
}

struct Reader<'a> {
    admin: &'a Admin,
    leader: i32,
    topic: &'a TopicDescription,
    partition: i32,
}

/// A fetched batch's header, and the timestamp of its first record.
struct Seen {
    header: BatchHeader,
    first_timestamp: i64,
}

impl Reader<'_> {
    /// The batches from `offset` on that one answer brings.
    async fn fetch(&self, offset: i64, max_bytes: i32) -> Result<Vec<Seen>, Failure> {
        let partition = FetchPartition {
            partition: self.partition,
            current_leader_epoch: -1,
            fetch_offset: offset,
            last_fetched_epoch: -1,
            log_start_offset: -1,
            partition_max_bytes: max_bytes,
            ..FetchPartition::default()
        };
        let connection =
            self.admin.retry(|| self.admin.cluster.connection(Target::Node(self.leader))).await?;
        let version = connection.version_of::<FetchRequest>()?;
        // Versions up to 12 name topics, later ones give their ids.
        let (name, topic_id) =
            if version < 13 { (self.topic.name.clone(), Uuid::ZERO) } else { (String::new(), self.topic.id) };
        let topic = FetchTopic { topic: name, topic_id, partitions: vec![partition] };
        let request = FetchRequest {
            max_wait_ms: 0,
            min_bytes: 0,
            max_bytes: i32::MAX,
            session_epoch: -1,
            topics: vec![topic],
            ..FetchRequest::default()
        };
        let response = self.admin.retry(|| connection.send_version(&request, version)).await?;
        ApiError::check(response.error_code, None)?;
        let partition = response.responses.into_iter().flat_map(|topic| topic.partitions).next();
        let Some(partition) = partition else { return Ok(Vec::new()) };
        ApiError::check(partition.error_code, None)?;
        let Some(Records::Bytes(bytes)) = partition.records else { return Ok(Vec::new()) };
        let mut seen = Vec::new();
        for batch in Batches::new(&bytes).map_while(Result::ok) {
            let header = *batch.header();
            let first_timestamp = if header.magic < record::MAGIC_VALUE_V2 {
                header.max_timestamp
            } else {
                header.base_timestamp
            };
            seen.push(Seen { header, first_timestamp });
        }
        Ok(seen)
    }
}

async fn oldest_segment(
    reader: &Reader<'_>,
    rules: &Rules,
    log_start_offset: i64,
    high_watermark: i64,
    size: Option<u64>,
    max_timestamp: Option<i64>,
    max_read_bytes: u64,
) -> Result<Option<OldestSegment>, Failure> {
    let mut walk = Walk::new(rules, high_watermark);
    let mut offset = log_start_offset;
    let mut max_bytes = 1;
    loop {
        let seen = reader.fetch(offset, max_bytes).await?;
        let Some(last) = seen.last() else { break };
        offset = last.header.next_offset();
        for seen in &seen {
            if walk.batch(&seen.header, seen.first_timestamp) {
                return Ok(walk.segment);
            }
        }
        if offset >= high_watermark {
            break;
        }
        if max_bytes == 1 {
            // One look may be enough: a log that is small and young has a single segment.
            if walk.is_single(size, max_timestamp) {
                return Ok(walk.single(size, max_timestamp, high_watermark));
            }
            max_bytes = FETCH_BYTES;
        } else if walk.bytes() >= max_read_bytes {
            return Ok(walk.estimate(size));
        }
    }
    Ok(walk.segment)
}

/// Replays the rolling of segments over the oldest batches.
struct Walk<'a> {
    rules: &'a Rules,
    high_watermark: i64,
    segment: Option<OldestSegment>,
}

impl<'a> Walk<'a> {
    fn new(rules: &'a Rules, high_watermark: i64) -> Self {
        Walk { rules, high_watermark, segment: None }
    }

    fn bytes(&self) -> u64 {
        self.segment.as_ref().map_or(0, |segment| segment.bytes)
    }

    /// Takes the next batch; true when it begins the next segment.
    fn batch(&mut self, header: &BatchHeader, first_timestamp: i64) -> bool {
        let size = header.size_in_bytes() as u64;
        let Some(segment) = &mut self.segment else {
            self.segment = Some(OldestSegment {
                oldest_timestamp: first_timestamp,
                first_timestamp: header.max_timestamp,
                largest_timestamp: header.max_timestamp,
                next_offset: header.next_offset(),
                bytes: size,
                is_active: true,
                is_exact: true,
            });
            return false;
        };
        let limit = u64::try_from(self.rules.segment_bytes).unwrap_or(u64::MAX);
        let is_full = segment.bytes > limit.saturating_sub(size);
        let is_old = segment.first_timestamp >= 0
            && header.max_timestamp.saturating_sub(segment.first_timestamp) > self.rules.segment_ms;
        if is_full || is_old {
            segment.is_active = false;
            return true;
        }
        segment.bytes += size;
        segment.largest_timestamp = segment.largest_timestamp.max(header.max_timestamp);
        segment.next_offset = header.next_offset();
        false
    }

    fn is_single(&self, size: Option<u64>, max_timestamp: Option<i64>) -> bool {
        let (Some(segment), Some(size), Some(max)) = (&self.segment, size, max_timestamp) else {
            return false;
        };
        let limit = u64::try_from(self.rules.segment_bytes).unwrap_or(u64::MAX);
        size <= limit
            && segment.first_timestamp >= 0
            && max.saturating_sub(segment.first_timestamp) <= self.rules.segment_ms
    }

    fn single(
        &self,
        size: Option<u64>,
        max_timestamp: Option<i64>,
        next_offset: i64,
    ) -> Option<OldestSegment> {
        let segment = self.segment.clone()?;
        Some(OldestSegment {
            largest_timestamp: max_timestamp
                .unwrap_or(segment.largest_timestamp)
                .max(segment.largest_timestamp),
            bytes: size.unwrap_or(segment.bytes),
            next_offset,
            ..segment
        })
    }

    /// What a segment whose end was not reached comes to at most.
    fn estimate(&self, size: Option<u64>) -> Option<OldestSegment> {
        let segment = self.segment.clone()?;
        let limit = u64::try_from(self.rules.segment_bytes).unwrap_or(u64::MAX);
        Some(OldestSegment {
            bytes: limit.min(size.unwrap_or(limit)).max(segment.bytes),
            is_active: segment.next_offset >= self.high_watermark,
            is_exact: false,
            ..segment
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(base_offset: i64, timestamp: i64, size: usize) -> BatchHeader {
        let mut builder = record::RecordBatchBuilder::new(record::BatchOptions::default());
        builder.append(timestamp, None, Some(&vec![0; size]), &[]).unwrap();
        let bytes = builder.build(&record::NoCodecs).unwrap();
        let mut header = BatchHeader::parse(&bytes).unwrap().unwrap();
        header.base_offset = base_offset;
        header
    }

    #[test]
    fn segments_are_told_apart_by_the_rule_of_rolling() {
        let rules = Rules { segment_bytes: 1000, segment_ms: 100, ..Rules::default() };
        let batches: [&[(i64, usize)]; 4] = [
            // Too old for the segment, though it is small.
            &[(1000, 10), (1100, 10), (1101, 10)],
            // Too much.
            &[(1000, 400), (1001, 300), (1002, 300)],
            // Steps back do not count.
            &[(1000, 10), (900, 10), (1100, 10), (1000, 10)],
            &[(1000, 10)],
        ];
        let expected = [(2, false, 1100), (2, false, 1001), (4, true, 1100), (1, true, 1000)];
        for (batches, (count, is_active, largest)) in batches.iter().zip(expected) {
            let mut walk = Walk::new(&rules, 100);
            for (offset, (timestamp, size)) in (0..).zip(batches.iter()) {
                if walk.batch(&header(offset, *timestamp, *size), *timestamp) {
                    break;
                }
            }
            let segment = walk.segment.unwrap();
            assert_eq!(
                (segment.next_offset, segment.is_active, segment.largest_timestamp),
                (count, is_active, largest),
                "{batches:?}"
            );
        }
    }
}
