//! The producer's settings, by the reference's names and defaults.

use std::time::Duration;

use record::{Compression, CompressionType};

use crate::config::ClientConfig;
use crate::error::ClientError;

#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// 0, 1 or -1 (all).
    pub acks: i16,
    pub enable_idempotence: bool,
    pub linger: Duration,
    pub batch_size: usize,
    pub buffer_memory: usize,
    pub max_request_size: usize,
    pub retries: u32,
    pub retry_backoff: Duration,
    pub delivery_timeout: Duration,
    pub request_timeout: Duration,
    pub max_block: Duration,
    pub max_in_flight: usize,
    pub compression: Compression,
    pub metadata_max_age: Duration,
    pub ignore_keys: bool,
}

impl ProducerConfig {
    pub fn from_config(config: &ClientConfig) -> Result<Self, ClientError> {
        let acks = match config.get("acks").unwrap_or("all") {
            "all" | "-1" => -1,
            "0" => 0,
            "1" => 1,
            other => {
                let message = format!(
                    "Invalid value {other} for configuration acks: String must be one of: all, -1, 0, 1"
                );
                return Err(ClientError::Config(message));
            }
        };
        let max_in_flight = size(config, "max.in.flight.requests.per.connection", 5)?.max(1);
        let retries = config.int("retries", i32::MAX)?;
        // Idempotence is on unless it is switched off or settings contradict it (KIP-679).
        let wanted = config.boolean("enable.idempotence", true)?;
        let possible = acks == -1 && max_in_flight <= 5 && retries > 0;
        if config.contains("enable.idempotence") && wanted && !possible {
            let message = "Must set acks to all, retries above 0 and max.in.flight.requests.per.connection to at most 5 \
                           in order to use the idempotent producer.";
            return Err(ClientError::Config(message.to_owned()));
        }
        if config.contains("transactional.id") {
            return Err(ClientError::Config(
                "transactional.id is not supported by this client yet".to_owned(),
            ));
        }
        Ok(ProducerConfig {
            acks,
            enable_idempotence: wanted && possible,
            linger: config.millis("linger.ms", 5)?,
            batch_size: size(config, "batch.size", 16_384)?,
            buffer_memory: size(config, "buffer.memory", 32 << 20)?,
            max_request_size: size(config, "max.request.size", 1 << 20)?,
            retries: u32::try_from(retries).unwrap_or(0),
            retry_backoff: config.millis("retry.backoff.ms", 100)?,
            delivery_timeout: config.millis("delivery.timeout.ms", 120_000)?,
            request_timeout: config.millis("request.timeout.ms", 30_000)?,
            max_block: config.millis("max.block.ms", 60_000)?,
            max_in_flight,
            compression: compression(config)?,
            metadata_max_age: config.millis("metadata.max.age.ms", 300_000)?,
            ignore_keys: config.boolean("partitioner.ignore.keys", false)?,
        })
    }
}

fn size(config: &ClientConfig, name: &str, default: i64) -> Result<usize, ClientError> {
    let value = config.long(name, default)?;
    let message = || format!("Invalid value {value} for configuration {name}: Value must be at least 0");
    usize::try_from(value).map_err(|_| ClientError::Config(message()))
}

fn compression(config: &ClientConfig) -> Result<Compression, ClientError> {
    let name = config.get("compression.type").unwrap_or("none");
    let kind = CompressionType::from_name(name).ok_or_else(|| {
        ClientError::Config(format!(
            "Invalid value {name} for configuration compression.type: String must be one of: none, gzip, snappy, lz4, zstd"
        ))
    })?;
    Ok(match Compression::of(kind) {
        Compression::Gzip(level) => Compression::Gzip(config.int("compression.gzip.level", level)?),
        Compression::Lz4(level) => Compression::Lz4(config.int("compression.lz4.level", level)?),
        Compression::Zstd(level) => Compression::Zstd(config.int("compression.zstd.level", level)?),
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<ProducerConfig, ClientError> {
        let values = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ProducerConfig::from_config(&ClientConfig::from_map(values))
    }

    #[test]
    fn idempotence_is_on_unless_settings_contradict_it() {
        assert!(read(&[]).unwrap().enable_idempotence);
        assert!(!read(&[("acks", "1")]).unwrap().enable_idempotence);
        assert!(!read(&[("retries", "0")]).unwrap().enable_idempotence);
        assert!(read(&[("acks", "1"), ("enable.idempotence", "true")]).is_err());
        assert!(read(&[("compression.type", "brotli")]).is_err());
        let zstd = read(&[("compression.type", "zstd"), ("compression.zstd.level", "9")]).unwrap();
        assert_eq!(zstd.compression, Compression::Zstd(9));
    }
}
