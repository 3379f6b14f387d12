//! The small text files beside and inside partitions' directories.
//!
//! Owns: reading and writing of offset checkpoints, `leader-epoch-checkpoint`, `partition.metadata`,
//! `.kafka_cleanshutdown`.
//! Invariants: files are replaced whole. Readers are strict, as the reference's, and bounded.
//! Concurrency: callers serialise writers of one file.
//! Crash: the old or the new content, never a mixture; an unfinished `.tmp` is ignored and overwritten.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use env::{FileSystem, OpenMode};
use protocol::Uuid;
use record::TopicPartition;

use crate::error::invalid_data;
use crate::log_dir::sync_dir;
use crate::names;

const VERSION: i32 = 0;
/// Nobody has a million partitions in a directory; a longer file is not ours.
const MAX_CHECKPOINT_BYTES: u64 = 512 << 20;
const MAX_SMALL_FILE_BYTES: u64 = 64 << 10;

/// A checkpoint's text: version, number of entries, entries.
pub fn encode_checkpoint(entries: impl ExactSizeIterator<Item = String>) -> String {
    let mut text = format!("{VERSION}\n{}\n", entries.len());
    for entry in entries {
        text.push_str(&entry);
        text.push('\n');
    }
    text
}

/// The entries' fields, each entry with exactly `fields` of them.
pub fn decode_checkpoint<'a>(text: &'a str, fields: usize, location: &Path) -> io::Result<Vec<Vec<&'a str>>> {
    let malformed = |line: &str| {
        invalid_data(format!("Malformed line in checkpoint file [{}]: {line}", location.display()))
    };
    let mut lines = text.lines();
    let (Some(version), Some(count)) = (lines.next(), lines.next()) else { return Ok(Vec::new()) };
    let version: i32 = version.parse().map_err(|_| malformed(version))?;
    if version != VERSION {
        return Err(invalid_data(format!(
            "Unrecognised version:{version}, expected version: {VERSION} in checkpoint file at: {}",
            location.display()
        )));
    }
    let count: usize = count.parse().map_err(|_| malformed(count))?;
    let mut entries = Vec::new();
    for line in lines {
        let parts: Vec<&str> = line.split_whitespace().collect();
        if parts.len() != fields {
            return Err(malformed(line));
        }
        entries.push(parts);
    }
    if entries.len() != count {
        return Err(invalid_data(format!(
            "Expected [{count}] entries in checkpoint file [{}], but found only [{}]",
            location.display(),
            entries.len()
        )));
    }
    Ok(entries)
}

fn read_text(fs: &dyn FileSystem, path: &Path, limit: u64) -> io::Result<Option<String>> {
    match env::read_file(fs, path, limit) {
        Ok(bytes) => String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| invalid_data(format!("{} is no text", path.display()))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Writes a file whole. That its content found no room is no harm done: the next attempt writes and syncs all of it again.
/// A directory that could not be synced is another matter.
pub(crate) fn replace(fs: &dyn FileSystem, path: &Path, text: &str) -> io::Result<()> {
    env::write_atomic(fs, path, text.as_bytes(), false)?;
    path.parent().map_or(Ok(()), |dir| sync_dir(fs, dir))
}

/// An offset per partition: recovery points, log start offsets, high watermarks. A missing file is an empty map.
pub fn read_offset_checkpoint(fs: &dyn FileSystem, path: &Path) -> io::Result<BTreeMap<TopicPartition, i64>> {
    let Some(text) = read_text(fs, path, MAX_CHECKPOINT_BYTES)? else { return Ok(BTreeMap::new()) };
    let mut offsets = BTreeMap::new();
    for entry in decode_checkpoint(&text, 3, path)? {
        let [topic, partition, offset] = entry[..] else { continue };
        let number = |e| invalid_data(format!("{} in {}: {e}", entry.join(" "), path.display()));
        let partition: i32 = partition.parse().map_err(number)?;
        let offset: i64 = offset.parse().map_err(number)?;
        offsets.insert(TopicPartition::new(topic, partition), offset);
    }
    Ok(offsets)
}

pub fn write_offset_checkpoint(
    fs: &dyn FileSystem,
    path: &Path,
    offsets: &BTreeMap<TopicPartition, i64>,
) -> io::Result<()> {
    let mut text = format!("{VERSION}\n{}\n", offsets.len());
    for (partition, offset) in offsets {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {} {offset}", partition.topic, partition.partition);
    }
    replace(fs, path, &text)
}

/// Where a leader epoch began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEntry {
    pub epoch: i32,
    pub start_offset: i64,
}

pub fn read_leader_epochs(fs: &dyn FileSystem, path: &Path) -> io::Result<Vec<EpochEntry>> {
    let Some(text) = read_text(fs, path, MAX_CHECKPOINT_BYTES)? else { return Ok(Vec::new()) };
    if !text.is_empty() && !text.ends_with('\n') {
        // The last start offset may have lost digits; the log knows them all.
        return Err(invalid_data(format!("The last line of {} is cut off", path.display())));
    }
    let mut epochs = Vec::new();
    for entry in decode_checkpoint(&text, 2, path)? {
        let [epoch, start_offset] = entry[..] else { continue };
        let number = |e| invalid_data(format!("{} in {}: {e}", entry.join(" "), path.display()));
        let epoch = EpochEntry {
            epoch: epoch.parse().map_err(number)?,
            start_offset: start_offset.parse().map_err(number)?,
        };
        if epoch.epoch < 0 || epoch.start_offset < 0 {
            return Err(invalid_data(format!("Negative leader epoch or offset in {}", path.display())));
        }
        epochs.push(epoch);
    }
    Ok(epochs)
}

pub fn write_leader_epochs(
    fs: &dyn FileSystem,
    path: &Path,
    epochs: impl ExactSizeIterator<Item = EpochEntry>,
) -> io::Result<()> {
    let text = encode_checkpoint(epochs.map(|e| format!("{} {}", e.epoch, e.start_offset)));
    replace(fs, path, &text)
}

/// The topic id in `partition.metadata`; `None` when there is no such file.
pub fn read_partition_metadata(fs: &dyn FileSystem, dir: &Path) -> io::Result<Option<Uuid>> {
    let path = dir.join(names::PARTITION_METADATA_FILE);
    let Some(text) = read_text(fs, &path, MAX_SMALL_FILE_BYTES)? else { return Ok(None) };
    let mut lines = text.lines();
    let mut value = || {
        let line = lines.next().unwrap_or("");
        let parts: Vec<&str> = line.split_whitespace().collect();
        match parts[..] {
            [_, value] => Ok(value.to_owned()),
            _ => Err(invalid_data(format!(
                "Malformed line in partition metadata file [{}]: {line}",
                path.display()
            ))),
        }
    };
    let version = value()?;
    if !version.parse::<i32>().is_ok_and(|v| v >= 0) {
        return Err(invalid_data(format!(
            "Unrecognized version of partition metadata file ({}): {version}",
            path.display()
        )));
    }
    let id = value()?;
    match id.parse::<Uuid>() {
        Ok(id) if id != Uuid::ZERO => Ok(Some(id)),
        _ => Err(invalid_data(format!("Invalid topic ID in partition metadata file ({})", path.display()))),
    }
}

/// Not durable before the file and its directory are synced: what a power cut makes of it is taken for no file.
pub fn write_partition_metadata(fs: &dyn FileSystem, dir: &Path, topic_id: Uuid) -> io::Result<()> {
    let text = format!("version: {VERSION}\ntopic_id: {topic_id}");
    let temporary = dir.join(format!("{}.tmp", names::PARTITION_METADATA_FILE));
    fs.open(&temporary, OpenMode::Truncate)?.write_at(text.as_bytes(), 0)?;
    fs.rename(&temporary, &dir.join(names::PARTITION_METADATA_FILE))
}

/// Says that every log below `log_dir` was flushed and closed, and by which incarnation of the broker (KIP-966).
pub fn write_clean_shutdown(fs: &dyn FileSystem, log_dir: &Path, broker_epoch: i64) -> io::Result<()> {
    let path = log_dir.join(names::CLEAN_SHUTDOWN_FILE);
    let file = fs.open(&path, OpenMode::Truncate)?;
    file.write_at(format!("{{\"version\":{VERSION},\"brokerEpoch\":{broker_epoch}}}").as_bytes(), 0)?;
    file.sync_all()?;
    sync_dir(fs, log_dir)
}

/// The broker epoch of a clean shutdown: `None` when the shutdown was unclean, `Some(None)` when it was clean but
/// the file (a 3.x node leaves it empty) names no epoch.
pub fn read_clean_shutdown(fs: &dyn FileSystem, log_dir: &Path) -> io::Result<Option<Option<i64>>> {
    let path = log_dir.join(names::CLEAN_SHUTDOWN_FILE);
    match read_text(fs, &path, MAX_SMALL_FILE_BYTES) {
        Ok(text) => Ok(text.map(|text| json_number(&text, "brokerEpoch"))),
        // That it is there is what counts.
        Err(e) if e.kind() == io::ErrorKind::InvalidData => Ok(Some(None)),
        Err(e) => Err(e),
    }
}

/// A number's value in a flat JSON object.
fn json_number(text: &str, key: &str) -> Option<i64> {
    let object = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    for member in object.split(',') {
        let (name, value) = member.split_once(':')?;
        if name.trim().trim_matches('"') == key {
            return value.trim().parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use testkit::Sim;

    use super::*;

    fn put(sim: &Sim, path: &str, text: &str) {
        sim.fs.open(Path::new(path), OpenMode::Truncate).unwrap().write_at(text.as_bytes(), 0).unwrap();
    }

    fn get(sim: &Sim, path: &str) -> String {
        String::from_utf8(env::read_file(&*sim.fs, Path::new(path), 1 << 16).unwrap()).unwrap()
    }

    #[test]
    fn offset_checkpoints_have_the_references_text() {
        let sim = Sim::new(1);
        let offsets = BTreeMap::from([(TopicPartition::new("a", 1), 5), (TopicPartition::new("b-c", 0), 0)]);
        write_offset_checkpoint(&*sim.fs, Path::new("/c"), &offsets).unwrap();
        assert_eq!(get(&sim, "/c"), "0\n2\na 1 5\nb-c 0 0\n");
        assert_eq!(read_offset_checkpoint(&*sim.fs, Path::new("/c")).unwrap(), offsets);
        assert!(read_offset_checkpoint(&*sim.fs, Path::new("/none")).unwrap().is_empty());
    }

    #[test]
    fn damaged_checkpoints_are_refused() {
        let sim = Sim::new(1);
        for (text, wrong) in [
            ("", false),
            ("0\n", false),
            ("0\n0\n", false),
            ("0\n1\na 0 1\n", false),
            ("1\n0\n", true),
            ("x\n0\n", true),
            ("0\n2\na 0 1\n", true),
            ("0\n1\na 0\n", true),
            ("0\n1\na 0 x\n", true),
            ("0\n1\na 0 99999999999999999999\n", true),
            ("\0\0\0\0", false),
        ] {
            put(&sim, "/c", text);
            let read = read_offset_checkpoint(&*sim.fs, Path::new("/c"));
            assert_eq!(read.is_err(), wrong, "{text:?}: {read:?}");
        }
    }

    #[test]
    fn leader_epochs_whose_last_digits_may_be_missing_are_refused() {
        let sim = Sim::new(1);
        for (text, wrong) in
            [("0\n1\n3 120\n", false), ("0\n1\n3 120", true), ("0\n1\n3 12", true), ("", false)]
        {
            put(&sim, "/e", text);
            assert_eq!(read_leader_epochs(&*sim.fs, Path::new("/e")).is_err(), wrong, "{text:?}");
        }
    }

    #[test]
    fn partition_metadata_and_clean_shutdown_have_the_references_text() {
        let sim = Sim::new(1);
        let id: Uuid = "AAAAAAAAAAAAAAAAAAAAAQ".parse().unwrap();
        assert_eq!(read_partition_metadata(&*sim.fs, Path::new("/")).unwrap(), None);
        write_partition_metadata(&*sim.fs, Path::new("/"), id).unwrap();
        assert_eq!(get(&sim, "/partition.metadata"), "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(read_partition_metadata(&*sim.fs, Path::new("/")).unwrap(), Some(id));
        for text in
            ["", "version: 0", "version: -1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", "version: 0\ntopic_id: x"]
        {
            put(&sim, "/partition.metadata", text);
            assert!(read_partition_metadata(&*sim.fs, Path::new("/")).is_err(), "{text:?}");
        }
        assert_eq!(read_clean_shutdown(&*sim.fs, Path::new("/")).unwrap(), None);
        write_clean_shutdown(&*sim.fs, Path::new("/"), 7).unwrap();
        assert_eq!(get(&sim, "/.kafka_cleanshutdown"), "{\"version\":0,\"brokerEpoch\":7}");
        assert_eq!(read_clean_shutdown(&*sim.fs, Path::new("/")).unwrap(), Some(Some(7)));
        put(&sim, "/.kafka_cleanshutdown", "");
        assert_eq!(read_clean_shutdown(&*sim.fs, Path::new("/")).unwrap(), Some(None));
        sim.fs.replace(Path::new("/.kafka_cleanshutdown"), vec![0xff; 9]);
        assert_eq!(read_clean_shutdown(&*sim.fs, Path::new("/")).unwrap(), Some(None));
    }
}
