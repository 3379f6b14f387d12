//! Names of files and directories inside a log directory.
//!
//! Owns: the mapping between offsets, topic partitions and names, exactly as Apache Kafka 4.4.0 writes them.
//! Invariants: what `parse_*` accepts, the matching function writes. Concurrency and crash: pure functions.

use std::path::Path;

use record::TopicPartition;

pub const LOG_FILE_SUFFIX: &str = ".log";
pub const INDEX_FILE_SUFFIX: &str = ".index";
pub const TIME_INDEX_FILE_SUFFIX: &str = ".timeindex";
pub const TXN_INDEX_FILE_SUFFIX: &str = ".txnindex";
pub const PRODUCER_SNAPSHOT_FILE_SUFFIX: &str = ".snapshot";
/// A file that is to be removed, and must not be read again.
pub const DELETED_FILE_SUFFIX: &str = ".deleted";
/// A cleaner's unfinished output.
pub const CLEANED_FILE_SUFFIX: &str = ".cleaned";
/// A cleaner's finished output that is taking the place of its sources.
pub const SWAP_FILE_SUFFIX: &str = ".swap";
/// A deleted snapshot of the metadata log; it belongs to raft.
pub const DELETED_CHECKPOINT_SUFFIX: &str = ".checkpoint.deleted";

pub const DELETE_DIR_SUFFIX: &str = "-delete";
pub const FUTURE_DIR_SUFFIX: &str = "-future";
pub const STRAY_DIR_SUFFIX: &str = "-stray";

pub const LOCK_FILE: &str = ".lock";
pub const META_PROPERTIES_FILE: &str = "meta.properties";
pub const CLEAN_SHUTDOWN_FILE: &str = ".kafka_cleanshutdown";
pub const RECOVERY_POINT_CHECKPOINT_FILE: &str = "recovery-point-offset-checkpoint";
pub const LOG_START_OFFSET_CHECKPOINT_FILE: &str = "log-start-offset-checkpoint";
pub const HIGH_WATERMARK_CHECKPOINT_FILE: &str = "replication-offset-checkpoint";
pub const CLEANER_OFFSET_CHECKPOINT_FILE: &str = "cleaner-offset-checkpoint";
pub const LEADER_EPOCH_CHECKPOINT_FILE: &str = "leader-epoch-checkpoint";
pub const PARTITION_METADATA_FILE: &str = "partition.metadata";
pub const CLUSTER_METADATA_TOPIC: &str = "__cluster_metadata";
/// Of the tiered storage's cache; no partition.
pub const REMOTE_LOG_INDEX_CACHE_DIR: &str = "remote-log-index-cache";

/// Longest file name that file systems take.
const MAX_NAME: usize = 255;

/// `00000000000000000042.log`
pub fn segment_file(base_offset: i64, suffix: &str) -> String {
    format!("{base_offset:020}{suffix}")
}

/// The offset in front of the first dot.
pub fn parse_offset(name: &str) -> Option<i64> {
    let (digits, _) = name.split_once('.')?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// `topic-0`
pub fn log_dir_name(partition: &TopicPartition) -> String {
    partition.to_string()
}

/// `topic-0.<unique id>-delete`, the topic cut where the name would be too long.
pub fn log_delete_dir_name(partition: &TopicPartition, unique: [u8; 16]) -> String {
    capped(partition, unique, DELETE_DIR_SUFFIX)
}

/// `topic-0.<unique id>-stray`, cut likewise.
pub fn log_stray_dir_name(partition: &TopicPartition, unique: [u8; 16]) -> String {
    capped(partition, unique, STRAY_DIR_SUFFIX)
}

/// `topic-0.<unique id>-future`: a replica that is being moved to this directory.
pub fn log_future_dir_name(partition: &TopicPartition, unique: [u8; 16]) -> String {
    format!("{partition}.{}{FUTURE_DIR_SUFFIX}", hex(unique))
}

fn capped(partition: &TopicPartition, unique: [u8; 16], suffix: &str) -> String {
    let suffix = format!("-{}.{}{suffix}", partition.partition, hex(unique));
    let prefix = partition.topic.len().min(MAX_NAME - suffix.len());
    format!("{}{suffix}", partition.topic.get(..prefix).unwrap_or(&partition.topic))
}

fn hex(unique: [u8; 16]) -> String {
    unique.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a partition's directory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirKind {
    Current,
    Delete,
    Future,
    Stray,
}

/// Reads a directory's name; `None` when it is no partition's.
pub fn parse_log_dir(name: &str) -> Option<(TopicPartition, DirKind)> {
    let suffixes = [
        (DELETE_DIR_SUFFIX, DirKind::Delete),
        (FUTURE_DIR_SUFFIX, DirKind::Future),
        (STRAY_DIR_SUFFIX, DirKind::Stray),
    ];
    let mut kind = DirKind::Current;
    let mut stem = name;
    for (suffix, of) in suffixes {
        if let Some(rest) = name.strip_suffix(suffix) {
            // A topic may be called `my-stray`: without its partition and unique id it is not ours to guess.
            let (base, unique) = rest.rsplit_once('.')?;
            if base.is_empty() || unique.is_empty() || name.contains(char::is_whitespace) {
                return None;
            }
            (stem, kind) = (base, of);
        }
    }
    let (topic, partition) = stem.rsplit_once('-')?;
    let partition: i32 = partition.parse().ok().filter(|p| *p >= 0)?;
    (!topic.is_empty()).then(|| (TopicPartition::new(topic, partition), kind))
}

/// Names are valid UTF-8 wherever Kafka writes them; others are not ours.
pub(crate) fn file_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_have_twenty_digits_and_come_back() {
        assert_eq!(segment_file(42, LOG_FILE_SUFFIX), "00000000000000000042.log");
        assert_eq!(segment_file(i64::MAX, ".index"), "09223372036854775807.index");
        for (name, offset) in [
            ("00000000000000000042.log", Some(42)),
            ("00000000000000000042.log.swap", Some(42)),
            ("00000000000000000000.snapshot", Some(0)),
            ("99999999999999999999.log", None),
            ("-1.log", None),
            (".log", None),
            ("leader-epoch-checkpoint", None),
        ] {
            assert_eq!(parse_offset(name), offset, "{name}");
        }
    }

    #[test]
    fn directory_names_come_back() {
        let partition = TopicPartition::new("my-topic.x", 12);
        let unique = [0xab; 16];
        for (name, kind) in [
            (log_dir_name(&partition), DirKind::Current),
            (log_delete_dir_name(&partition, unique), DirKind::Delete),
            (log_future_dir_name(&partition, unique), DirKind::Future),
            (log_stray_dir_name(&partition, unique), DirKind::Stray),
        ] {
            assert_eq!(parse_log_dir(&name), Some((partition.clone(), kind)), "{name}");
        }
        for name in ["lost+found", "topic", "topic-", "-1", "topic-x", "topic-1-delete", ".x-stray"] {
            assert_eq!(parse_log_dir(name), None, "{name}");
        }
    }

    #[test]
    fn long_topics_are_cut_to_fit_a_file_name() {
        let partition = TopicPartition::new("t".repeat(249), 5);
        assert_eq!(log_delete_dir_name(&partition, [0; 16]).len(), 255);
    }
}
