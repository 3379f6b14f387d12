//! Segments and snapshots of the metadata log: a line for each batch, and a line for each record when asked for.

use std::path::Path;
use std::sync::LazyLock;

use bytes::Bytes;
use compression::KafkaCodecs;
use protocol::Decoder;
use record::batch::MAX_DECOMPRESSED_SIZE;
use record::{
    BufferSupplier, Codecs, CompressionType, ControlRecordType, EndTransactionMarker, LOG_OVERHEAD,
    MAGIC_VALUE_V1, MAGIC_VALUE_V2, Record, RecordBatch, TimestampType,
};
use serde_json::{Value, json};

use super::decoder::MessageDecoder;
use super::json::to_text;
use super::log_file::{LogFile, broken};
use super::{Findings, Settings, Uncaught, note};
use crate::io::Io;
use crate::schema_json::Schemas;

static RAFT: LazyLock<Schemas> = LazyLock::new(|| Schemas::parse(protocol::schema::RAFT));

pub(super) fn dump(
    path: &Path,
    name: &str,
    settings: &Settings,
    findings: &mut Findings,
    io: &mut Io,
) -> Result<(), Uncaught> {
    let unknown = || Uncaught::new("java.lang.RuntimeException", "Failed to load decoder class");
    let decoder = settings.decoder.ok_or_else(unknown)?;
    print_title(name, io)?;
    let log = LogFile::open(path)?;
    let limit = u64::try_from(settings.max_bytes).map_err(|_| {
        let message = format!("Invalid size: {} in read from {}", settings.max_bytes, path.display());
        Uncaught::new("java.lang.IllegalArgumentException", message)
    })?;
    let end = log.length().min(limit);
    let mut position = 0;
    let mut last_offset = -1;
    while let Some(found) = log.batch_at(position, end)? {
        let batch = found.batch()?;
        print_batch(&batch, position, io);
        if settings.is_deep {
            let mut dump = RecordDump { path, settings, decoder, findings, io, last_offset };
            dump.records(&batch)?;
            last_offset = dump.last_offset;
        }
        position += found.size();
        if io.is_broken() {
            return Ok(());
        }
    }
    if end > position && settings.max_bytes == i32::MAX {
        io.line(format!("Found {} invalid bytes at the end of {name}", end - position));
    }
    Ok(())
}

fn print_title(name: &str, io: &mut Io) -> Result<(), Uncaught> {
    let stem = name.split('.').next().unwrap_or_default();
    if name.ends_with(".log") {
        io.line(format!("Log starting offset: {}", parse_offset(stem)?));
    } else if name == "bootstrap.checkpoint" {
        io.line("KRaft bootstrap snapshot");
    } else if name.ends_with(".checkpoint") {
        let parsed = stem
            .split_once('-')
            .and_then(|(offset, epoch)| Some((offset.parse::<i64>().ok()?, epoch.parse::<i32>().ok()?)));
        let missing = || Uncaught::new("java.util.NoSuchElementException", "No value present");
        let (offset, epoch) = parsed.ok_or_else(missing)?;
        io.line(format!("Snapshot end offset: {offset}, epoch: {epoch}"));
    }
    Ok(())
}

pub(super) fn parse_offset(stem: &str) -> Result<i64, Uncaught> {
    let wrong = |_| Uncaught::new("java.lang.NumberFormatException", format!("For input string: \"{stem}\""));
    stem.parse().map_err(wrong)
}

fn timestamp_type(batch: &RecordBatch<'_>) -> &'static str {
    match batch.timestamp_type() {
        TimestampType::NoTimestampType => "NoTimestampType",
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    }
}

fn print_batch(batch: &RecordBatch<'_>, position: u64, io: &mut Io) {
    if batch.magic >= MAGIC_VALUE_V2 {
        let delete_horizon = match batch.delete_horizon_ms() {
            Some(ms) => format!("OptionalLong[{ms}]"),
            None => "OptionalLong.empty".to_owned(),
        };
        io.print(format!(
            "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} \
             producerEpoch: {} partitionLeaderEpoch: {} isTransactional: {} isControl: {} deleteHorizonMs: \
             {delete_horizon}",
            batch.base_offset,
            batch.last_offset(),
            batch.count,
            batch.base_sequence,
            batch.last_sequence(),
            batch.producer_id,
            batch.producer_epoch,
            batch.partition_leader_epoch,
            batch.is_transactional(),
            batch.is_control_batch(),
        ));
    } else {
        io.print(format!("offset: {}", batch.last_offset()));
    }
    io.line(format!(
        " position: {position} {}: {} size: {} magic: {} compresscodec: {} crc: {} isvalid: {}",
        timestamp_type(batch),
        batch.max_timestamp,
        batch.size_in_bytes(),
        batch.magic,
        batch.compression_type().map_or("unknown", CompressionType::name),
        batch.crc,
        batch.is_valid(),
    ));
}

struct RecordDump<'a> {
    path: &'a Path,
    settings: &'a Settings,
    decoder: MessageDecoder,
    findings: &'a mut Findings,
    io: &'a mut Io,
    last_offset: i64,
}

impl RecordDump<'_> {
    fn records(&mut self, batch: &RecordBatch<'_>) -> Result<(), Uncaught> {
        let mut checksums = legacy_checksums(batch)?.into_iter();
        let mut buffers = BufferSupplier::new();
        let records = batch.records(&KafkaCodecs, &mut buffers).map_err(|error| broken(&error))?;
        for record in records {
            let record = record.map_err(|error| broken(&error))?;
            if record.offset != self.last_offset + 1 {
                note(&mut self.findings.non_consecutive, self.path, (self.last_offset, record.offset));
            }
            self.last_offset = record.offset;
            if !self.settings.skips_record_metadata {
                self.metadata(batch, &record, checksums.next())?;
            }
            if self.settings.prints_contents && !batch.is_control_batch() {
                self.contents(&record)?;
            }
            self.io.line("");
        }
        Ok(())
    }

    fn metadata(
        &mut self,
        batch: &RecordBatch<'_>,
        record: &Record<'_>,
        checksum: Option<(bool, u32)>,
    ) -> Result<(), Uncaught> {
        let size =
            |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        self.io.print(format!(
            "| offset: {} {}: {} keySize: {} valueSize: {}",
            record.offset,
            timestamp_type(batch),
            record.timestamp,
            size(record.key),
            size(record.value),
        ));
        if batch.magic >= MAGIC_VALUE_V2 {
            let keys: Vec<_> = record.headers.iter().map(|header| header.key_lossy().into_owned()).collect();
            self.io.print(format!(" sequence: {} headerKeys: [{}]", record.sequence, keys.join(",")));
        }
        if let Some((is_valid, crc)) = checksum {
            self.io.print(format!(" isValid: {is_valid} crc: {crc}"));
        }
        if batch.is_control_batch() {
            let text = control_record(record)?;
            self.io.print(text);
        }
        Ok(())
    }

    fn contents(&mut self, record: &Record<'_>) -> Result<(), Uncaught> {
        let (key, value) = self.decoder.decode(record)?;
        let mut prefix = if self.settings.skips_record_metadata { "| " } else { " " };
        if let Some(key) = key {
            self.io.print(format!("{prefix}key: {key}"));
            prefix = " ";
        }
        if let Some(value) = value {
            self.io.print(format!("{prefix}payload: {value}"));
        }
        Ok(())
    }
}

/// Validity and CRC of each message of a v0 or v1 batch, whose records carry their own.
fn legacy_checksums(batch: &RecordBatch<'_>) -> Result<Vec<(bool, u32)>, Uncaught> {
    if batch.magic >= MAGIC_VALUE_V2 {
        return Ok(Vec::new());
    }
    if !batch.is_compressed() {
        return Ok(vec![(batch.is_valid(), batch.crc)]);
    }
    let unreadable =
        || Uncaught::new("org.apache.kafka.common.InvalidRecordException", "A message is cut off");
    // CRC, magic, attributes, then a timestamp in v1, then the key and the value, each with its size.
    let fixed = if batch.magic == MAGIC_VALUE_V1 { 14 } else { 6 };
    let mut body = Decoder::new(Bytes::copy_from_slice(batch.bytes()));
    let read = |body: &mut Decoder| {
        body.take(LOG_OVERHEAD + fixed).ok()?;
        let key = body.i32().ok()?;
        body.take(usize::try_from(key).unwrap_or(0)).ok()?;
        let value = body.i32().ok()?;
        body.take(usize::try_from(value).ok()?).ok()
    };
    let value = read(&mut body).ok_or_else(unreadable)?;
    let kind = batch.compression_type().ok_or_else(unreadable)?;
    let mut messages = Vec::new();
    KafkaCodecs
        .decompress(kind, batch.magic, &value, MAX_DECOMPRESSED_SIZE, &mut messages)
        .map_err(|error| broken(&error.into()))?;
    let mut inner = Decoder::new(messages.into());
    let mut checksums = Vec::new();
    while inner.remaining() > LOG_OVERHEAD {
        let next = |inner: &mut Decoder| {
            inner.i64().ok()?;
            let size = usize::try_from(inner.i32().ok()?).ok()?;
            inner.take(size).ok()
        };
        let Some(message) = next(&mut inner) else { break };
        let Some((crc, content)) = message.split_first_chunk::<4>() else { break };
        let crc = u32::from_be_bytes(*crc);
        checksums.push((record::crc::crc32(content) == crc, crc));
    }
    Ok(checksums)
}

fn control_record(record: &Record<'_>) -> Result<String, Uncaught> {
    let key = record.key.unwrap_or_default();
    let value = record.value.unwrap_or_default();
    let id = ControlRecordType::parse_type_id(key).map_err(|error| broken(&error))?;
    let control_type = ControlRecordType::from_type_id(id);
    Ok(match control_type {
        ControlRecordType::Abort | ControlRecordType::Commit => {
            let marker = EndTransactionMarker::deserialize(key, value).map_err(|error| broken(&error))?;
            format!(
                " endTxnMarker: {} coordinatorEpoch: {}",
                marker.control_type().name(),
                marker.coordinator_epoch
            )
        }
        ControlRecordType::LeaderChange => format!(" LeaderChange: {}", leader_change(value)?),
        ControlRecordType::SnapshotHeader => {
            format!(" SnapshotHeader {}", raft("SnapshotHeaderRecord", value)?)
        }
        ControlRecordType::SnapshotFooter => {
            format!(" SnapshotFooter {}", raft("SnapshotFooterRecord", value)?)
        }
        ControlRecordType::KRaftVersion => format!(" KRaftVersion {}", raft("KRaftVersionRecord", value)?),
        ControlRecordType::KRaftVoters => format!(" KRaftVoters {}", raft("VotersRecord", value)?),
        ControlRecordType::Unknown => format!(" controlType: {}({id})", control_type.name()),
    })
}

fn raft_value(schema: &str, value: &[u8]) -> Result<Value, Uncaught> {
    let unreadable = |message: String| Uncaught::new("java.lang.RuntimeException", message);
    let schema = RAFT.by_name(schema).ok_or_else(|| unreadable(format!("{schema} has no schema")))?;
    // All versions are read as version 0, as the reference does.
    let mut decoder = Decoder::new(Bytes::copy_from_slice(value));
    schema.read(&mut decoder, 0).map_err(|error| unreadable(error.to_string()))
}

fn raft(schema: &str, value: &[u8]) -> Result<String, Uncaught> {
    raft_value(schema, value).map(|value| to_text(&value))
}

/// A message that says it is of version 1 is shown with that version's fields, at their defaults.
fn leader_change(value: &[u8]) -> Result<String, Uncaught> {
    let mut message = raft_value("LeaderChangeMessage", value)?;
    if message.get("version").and_then(Value::as_i64) == Some(1) {
        for list in ["voters", "grantingVoters"] {
            let voters = message.get_mut(list).and_then(Value::as_array_mut);
            for voter in voters.into_iter().flatten().filter_map(Value::as_object_mut) {
                voter.insert("voterDirectoryId".to_owned(), json!(protocol::Uuid::ZERO.to_string()));
            }
        }
    }
    Ok(to_text(&message))
}
