//! The consumer's settings, by the reference's names and defaults.

use std::time::Duration;

use super::assignor::Assignor;
use crate::config::ClientConfig;
use crate::error::ClientError;

/// Where a partition starts that has no committed offset, or whose offset is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetReset {
    Earliest,
    Latest,
    None,
    /// So far back from now (KIP-1106).
    ByDuration(Duration),
}

#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    pub group_id: Option<String>,
    pub group_instance_id: Option<String>,
    pub assignors: Vec<Assignor>,
    pub offset_reset: OffsetReset,
    pub enable_auto_commit: bool,
    pub auto_commit_interval: Duration,
    pub read_committed: bool,
    pub session_timeout: Duration,
    pub heartbeat_interval: Duration,
    pub max_poll_interval: Duration,
    pub max_poll_records: usize,
    pub fetch_min_bytes: i32,
    pub fetch_max_bytes: i32,
    pub fetch_max_wait: Duration,
    pub max_partition_fetch_bytes: i32,
    pub check_crcs: bool,
    pub retry_backoff: Duration,
    pub request_timeout: Duration,
    pub metadata_max_age: Duration,
    pub allow_auto_create_topics: bool,
    pub client_rack: String,
}

impl ConsumerConfig {
    pub fn from_config(config: &ClientConfig) -> Result<Self, ClientError> {
        if let Some(protocol) =
            config.get("group.protocol").filter(|name| !name.eq_ignore_ascii_case("classic"))
        {
            return Err(ClientError::Config(format!(
                "group.protocol={protocol} is not supported by this client yet; use group.protocol=classic"
            )));
        }
        let group_id = config.get("group.id").filter(|group| !group.is_empty()).map(str::to_owned);
        Ok(ConsumerConfig {
            enable_auto_commit: config.boolean("enable.auto.commit", true)? && group_id.is_some(),
            group_id,
            group_instance_id: config.get("group.instance.id").map(str::to_owned),
            assignors: assignors(config)?,
            offset_reset: offset_reset(config.get("auto.offset.reset").unwrap_or("latest"))?,
            auto_commit_interval: config.millis("auto.commit.interval.ms", 5000)?,
            read_committed: read_committed(config.get("isolation.level").unwrap_or("read_uncommitted"))?,
            session_timeout: config.millis("session.timeout.ms", 45_000)?,
            heartbeat_interval: config.millis("heartbeat.interval.ms", 3000)?,
            max_poll_interval: config.millis("max.poll.interval.ms", 300_000)?,
            max_poll_records: usize::try_from(config.int("max.poll.records", 500)?).unwrap_or(1).max(1),
            fetch_min_bytes: config.int("fetch.min.bytes", 1)?,
            fetch_max_bytes: config.int("fetch.max.bytes", 50 << 20)?,
            fetch_max_wait: config.millis("fetch.max.wait.ms", 500)?,
            max_partition_fetch_bytes: config.int("max.partition.fetch.bytes", 1 << 20)?,
            check_crcs: config.boolean("check.crcs", true)?,
            retry_backoff: config.millis("retry.backoff.ms", 100)?,
            request_timeout: config.millis("request.timeout.ms", 30_000)?,
            metadata_max_age: config.millis("metadata.max.age.ms", 300_000)?,
            allow_auto_create_topics: config.boolean("allow.auto.create.topics", true)?,
            client_rack: config.string("client.rack", ""),
        })
    }

    pub(super) fn isolation_level(&self) -> i8 {
        i8::from(self.read_committed)
    }
}

fn assignors(config: &ClientConfig) -> Result<Vec<Assignor>, ClientError> {
    let Some(listed) = config.get("partition.assignment.strategy") else {
        return Ok(vec![Assignor::Range, Assignor::CooperativeSticky]);
    };
    let parse = |name: &str| {
        let message = || format!("partition.assignment.strategy: there is no assignor {name}");
        Assignor::parse(name).ok_or_else(|| ClientError::Config(message()))
    };
    listed.split(',').map(str::trim).filter(|name| !name.is_empty()).map(parse).collect()
}

fn offset_reset(name: &str) -> Result<OffsetReset, ClientError> {
    let lower = name.to_ascii_lowercase();
    match lower.as_str() {
        "earliest" => Ok(OffsetReset::Earliest),
        "latest" => Ok(OffsetReset::Latest),
        "none" => Ok(OffsetReset::None),
        _ => {
            let invalid = || {
                ClientError::Config(format!(
                    "Invalid value {name} for configuration auto.offset.reset: Invalid value `{name}` for configuration \
                     auto.offset.reset. The value must be either 'earliest', 'latest', 'none' or of the format \
                     'by_duration:<PnDTnHnMn.nS.>'."
                ))
            };
            let duration = lower.strip_prefix("by_duration:").and_then(days_and_time).ok_or_else(invalid)?;
            Ok(OffsetReset::ByDuration(duration))
        }
    }
}

/// `PnDTnHnMnS` in whole numbers.
fn days_and_time(text: &str) -> Option<Duration> {
    let mut seconds = 0u64;
    let mut digits = String::new();
    for letter in text.strip_prefix('p')?.chars() {
        let unit = match letter {
            't' => continue,
            'd' => 86_400,
            'h' => 3600,
            'm' => 60,
            's' => 1,
            digit if digit.is_ascii_digit() => {
                digits.push(digit);
                continue;
            }
            _ => return None,
        };
        seconds = seconds.checked_add(digits.parse::<u64>().ok()?.checked_mul(unit)?)?;
        digits.clear();
    }
    digits.is_empty().then(|| Duration::from_secs(seconds))
}

fn read_committed(name: &str) -> Result<bool, ClientError> {
    match name.to_ascii_lowercase().as_str() {
        "read_committed" => Ok(true),
        "read_uncommitted" => Ok(false),
        _ => Err(ClientError::Config(format!(
            "Invalid value {name} for configuration isolation.level: String must be one of (case insensitive): \
             READ_UNCOMMITTED, READ_COMMITTED"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_resets_are_the_four_of_the_reference() {
        let hour = Duration::from_secs(86_400 + 3600);
        assert_eq!(offset_reset("Earliest").unwrap(), OffsetReset::Earliest);
        assert_eq!(offset_reset("by_duration:P1DT1H").unwrap(), OffsetReset::ByDuration(hour));
        assert!(offset_reset("by_duration:soon").is_err());
        assert!(offset_reset("begin").is_err());
    }
}
