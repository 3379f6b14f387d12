//! What is checked of records before the log looks at their contents: on the wire ([`validate_produce_records`]) and
//! at the start of every append ([`analyze_and_validate_records`]).

use crate::batch::{Batches, RecordBatch};
use crate::codec::CompressionType;
use crate::error::AppendError;
use crate::topic_partition::TopicPartition;
use crate::validate::AppendOrigin;
use crate::{MAGIC_VALUE_V2, NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP};

/// Where a record's timestamp comes from.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// Message format v0.
    NoTimestampType,
    #[default]
    CreateTime,
    LogAppendTime,
}

impl TimestampType {
    pub fn id(self) -> i32 {
        match self {
            TimestampType::NoTimestampType => -1,
            TimestampType::CreateTime => 0,
            TimestampType::LogAppendTime => 1,
        }
    }

    /// Name in `message.timestamp.type` and in tools' output.
    pub fn name(self) -> &'static str {
        match self {
            TimestampType::NoTimestampType => "NoTimestampType",
            TimestampType::CreateTime => "CreateTime",
            TimestampType::LogAppendTime => "LogAppendTime",
        }
    }

    pub fn from_name(name: &str) -> Option<TimestampType> {
        match name {
            "NoTimestampType" => Some(TimestampType::NoTimestampType),
            "CreateTime" => Some(TimestampType::CreateTime),
            "LogAppendTime" => Some(TimestampType::LogAppendTime),
            _ => None,
        }
    }
}

/// The records of one partition in a Produce request of `version`: exactly one batch of format v2, zstd only since
/// version 7 (KIP-110).
pub fn validate_produce_records(version: i16, records: &[u8]) -> Result<(), AppendError> {
    let mut batches = Batches::new(records);
    let Some(batch) = batches.next().transpose()? else {
        let message =
            format!("A Produce request of version {version} has a partition without a record batch");
        return Err(AppendError::InvalidBatch(message));
    };
    if batch.magic != MAGIC_VALUE_V2 {
        let message =
            format!("A Produce request of version {version} has records of message format v{}", batch.magic);
        return Err(AppendError::InvalidBatch(message));
    }
    match batch.compression_type() {
        Some(CompressionType::Zstd) if version < 7 => {
            let message = format!("A Produce request of version {version} cannot carry zstd (needs 7)");
            return Err(AppendError::UnsupportedCompressionType(message));
        }
        _ => {}
    }
    if batches.next().transpose()?.is_some() {
        let message =
            format!("A Produce request of version {version} has more than one record batch for a partition");
        return Err(AppendError::InvalidBatch(message));
    }
    Ok(())
}

/// How an append is to be looked at.
#[derive(Clone, Copy, Debug)]
pub struct AnalyzeParams<'a> {
    pub topic_partition: &'a TopicPartition,
    pub origin: AppendOrigin,
    /// `max.message.bytes`; `None`: do not judge the size (internal topics, replication).
    pub max_message_size: Option<usize>,
    /// Followers: offsets must rise.
    pub require_offsets_monotonic: bool,
    /// Epoch of the leader that appends or is fetched from.
    pub leader_epoch: i32,
}

/// What an append holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogAppendInfo {
    /// Base offset of the first batch where the format says it (v2), or -1.
    pub first_offset: i64,
    pub last_offset: i64,
    pub last_leader_epoch: Option<i32>,
    /// -1 when there is none.
    pub max_timestamp: i64,
    pub source_compression: CompressionType,
    /// Bytes of complete batches; what follows is not taken.
    pub valid_bytes: usize,
    pub last_offset_of_first_batch: i64,
    /// KAFKA-18723: from here on batches carry a higher leader epoch than the replica knows and are left out.
    pub skipped_batches: usize,
}

/// Checks sizes and CRCs of all batches, in order, without looking at their records.
pub fn analyze_and_validate_records(
    records: &[u8],
    params: &AnalyzeParams<'_>,
) -> Result<LogAppendInfo, AppendError> {
    let mut info = LogAppendInfo {
        first_offset: -1,
        last_offset: -1,
        last_leader_epoch: None,
        max_timestamp: NO_TIMESTAMP,
        source_compression: CompressionType::None,
        valid_bytes: 0,
        last_offset_of_first_batch: -1,
        skipped_batches: 0,
    };
    let mut is_first = true;
    let mut is_monotonic = true;
    for batch in Batches::new(records) {
        let batch = batch?;
        check_batch_origin(&batch, params)?;
        if info.skipped_batches > 0 || has_higher_leader_epoch(&batch, params) {
            info.skipped_batches += 1;
        } else {
            if is_first {
                is_first = false;
                if batch.magic >= MAGIC_VALUE_V2 {
                    info.first_offset = batch.base_offset;
                }
                info.last_offset_of_first_batch = batch.last_offset();
            }
            is_monotonic &= info.last_offset < batch.last_offset();
            take_batch(&batch, params, &mut info)?;
        }
        if params.require_offsets_monotonic && !is_monotonic {
            let message = format!(
                "Offsets of the append to {} do not rise: the batch [{}, {}] follows offset {}",
                params.topic_partition,
                batch.base_offset,
                batch.last_offset(),
                info.last_offset
            );
            return Err(AppendError::OffsetsOutOfOrder(message));
        }
    }
    Ok(info)
}

fn check_batch_origin(batch: &RecordBatch<'_>, params: &AnalyzeParams<'_>) -> Result<(), AppendError> {
    let partition = params.topic_partition;
    if params.origin == AppendOrigin::RaftLeader && batch.partition_leader_epoch != params.leader_epoch {
        return Err(AppendError::InvalidBatch(format!(
            "A batch of the raft leader of {partition} has epoch {} instead of {}",
            batch.partition_leader_epoch, params.leader_epoch
        )));
    }
    if batch.magic >= MAGIC_VALUE_V2 && params.origin == AppendOrigin::Client && batch.base_offset != 0 {
        return Err(AppendError::InvalidBatch(format!(
            "A client's batch for {partition} has base offset {}, it must be 0",
            batch.base_offset
        )));
    }
    Ok(())
}

fn has_higher_leader_epoch(batch: &RecordBatch<'_>, params: &AnalyzeParams<'_>) -> bool {
    params.origin == AppendOrigin::Replication
        && batch.partition_leader_epoch != NO_PARTITION_LEADER_EPOCH
        && batch.partition_leader_epoch > params.leader_epoch
}

fn take_batch(
    batch: &RecordBatch<'_>,
    params: &AnalyzeParams<'_>,
    info: &mut LogAppendInfo,
) -> Result<(), AppendError> {
    let size = batch.size_in_bytes();
    if let Some(limit) = params.max_message_size
        && size > limit
    {
        return Err(AppendError::RecordTooLarge(format!(
            "A batch for {} has {size} bytes, max.message.bytes allows {limit}",
            params.topic_partition
        )));
    }
    if !batch.is_valid() {
        return Err(AppendError::Corrupt(format!(
            "A batch for {} is corrupt: its CRC {} does not match its bytes",
            params.topic_partition, batch.crc
        )));
    }
    let epoch = batch.partition_leader_epoch;
    info.last_offset = batch.last_offset();
    info.last_leader_epoch = (epoch != NO_PARTITION_LEADER_EPOCH).then_some(epoch);
    info.max_timestamp = info.max_timestamp.max(batch.max_timestamp);
    info.valid_bytes += size;
    let compression = batch.known_compression_type()?;
    if compression != CompressionType::None {
        info.source_compression = compression;
    }
    Ok(())
}
