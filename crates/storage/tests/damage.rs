//! Damaged files. Every file of a log directory is cut at every byte, every byte of it is flipped, it is emptied,
//! zeroed, lengthened and deleted, after a clean stop and after a kill. The next start succeeds, and then: nothing is
//! served that was not written, but for a batch whose bytes were changed where no start reads them, which its checksum
//! shows; nothing is lost but what was damaged, and behind it what was not flushed; lookups by offset and by time are
//! right; producers go on, also behind damage that stays.
//!
//! `STORAGE_DAMAGES=n` does every n-th of them (default 53); 1 does all and prints a table. With `STORAGE_DAMAGE_LIST`
//! each one that fails is printed.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::model::{Model, check_producers, check_records};
use common::{idempotent, marker, transactional};
use env::{Clock, FileSystem};
use record::{AppendOrigin, Batches, NoCodecs, TopicPartition};
use storage::{
    AppendOptions, CreateParams, FetchIsolation, LogConfig, LogManager, LogManagerConfig,
    LogStartOffsetIncrementReason, UnifiedLog,
};
use testkit::{Sim, kind_of};

const DIR: &str = "/node/a";

fn config() -> Arc<LogConfig> {
    Arc::new(LogConfig {
        segment_size_bytes: 900,
        index_interval_bytes: 100,
        retention_ms: -1,
        ..LogConfig::default()
    })
}

fn partition() -> TopicPartition {
    TopicPartition::new("main", 0)
}

fn start(sim: &Sim) -> Result<(LogManager, Arc<UnifiedLog>), String> {
    let manager_config = LogManagerConfig {
        num_recovery_threads_per_data_dir: 1,
        default_config: config(),
        initial_task_delay_ms: 0,
        ..LogManagerConfig::new(vec![DIR.into()])
    };
    let manager =
        LogManager::new(sim.env(), Arc::new(NoCodecs), manager_config).map_err(|e| e.to_string())?;
    manager.load(sim.clock.now(), &|_| config(), &|_| false).map_err(|e| e.to_string())?;
    let params = CreateParams {
        config: config(),
        topic_id: Some("AAAAAAAAAAAAAAAAAAAAAw".parse().unwrap()),
        is_new: true,
        directory_id: None,
    };
    let log = manager.get_or_create_log(&partition(), params, sim.clock.now()).map_err(|e| e.to_string())?;
    Ok((manager, log))
}

/// A machine whose node stopped, what it had written, and what was flushed of it.
struct Stopped {
    sim: Sim,
    model: Model,
    /// The recovery point: what follows is read by a start after a kill.
    read_from: i64,
    was_clean: bool,
}

fn append(sim: &Sim, log: &UnifiedLog, model: &mut Model, id: i64) -> Result<(), String> {
    sim.clock.advance(Duration::from_millis(10));
    let now = sim.clock.now();
    let sequence = model.next_sequence.get(&id).copied().unwrap_or(0);
    let value = [b'v'; 60];
    let (records, origin) = if model.open_txns.contains_key(&id) {
        (marker(id, 0, now.wall_ms, id == 2, 0), AppendOrigin::Coordinator)
    } else if id > 1 {
        (transactional(id, 0, sequence, now.wall_ms, &[&value, &value]), AppendOrigin::Client)
    } else {
        (idempotent(id, 0, sequence, now.wall_ms, &[&value]), AppendOrigin::Client)
    };
    let options = AppendOptions { transaction_version: 0, ..AppendOptions::new(model.epoch, origin) };
    let info = log.append_as_leader_with(now, records, options).map_err(|e| e.to_string())?;
    if info.is_duplicate || info.first_offset != model.end() {
        return Err(format!("appended at {}, not {}", info.first_offset, model.end()));
    }
    model.take_over(log, info.first_offset)?;
    log.update_high_watermark(log.log_end_offset());
    Ok(())
}

fn stopped(clean: bool) -> Stopped {
    let sim = Sim::new(3);
    sim.fs.create_dir_all(Path::new("/node")).unwrap();
    let (manager, log) = start(&sim).unwrap();
    let mut model = Model::default();
    let producers = [1, 3, 2, 1, 3, 2, 1, 3, 1, 2, 3, 1, 2, 1, 3, 1];
    for (i, id) in producers.into_iter().enumerate() {
        append(&sim, &log, &mut model, id).unwrap();
        if i == 7 {
            model.epoch = 1;
            log.assign_epoch_start_offset(1, model.end());
        }
        if i == 9 {
            log.flush(sim.clock.now()).unwrap();
            model.flushed = model.end();
        }
    }
    let reason = LogStartOffsetIncrementReason::ClientRecordDeletion;
    log.maybe_increment_log_start_offset(2, reason).unwrap();
    model.log_start = 2;
    sim.clock.advance(Duration::from_secs(1));
    manager.checkpoint_log_start_offsets();
    manager.checkpoint_high_watermarks();
    log.flush_epochs().unwrap();
    let bases: Vec<i64> = log.segments().iter().map(|segment| segment.base_offset()).collect();
    assert!(bases.len() >= 3, "{bases:?}");
    if clean {
        manager.shutdown(sim.clock.now(), 5).unwrap();
        model.flushed = model.end();
        drop((manager, log));
        return Stopped { sim, model, read_from: i64::MAX, was_clean: true };
    }
    manager.checkpoint_recovery_points();
    let read_from = log.recovery_point();
    drop((manager, log));
    sim.fs.kill();
    Stopped { sim, model, read_from, was_clean: false }
}

#[derive(Clone, Debug)]
enum Damage {
    Cut(usize),
    Flip(usize, u8),
    ZeroFrom(usize),
    Append(&'static str, Vec<u8>),
    Overlap,
    Delete,
}

impl Damage {
    fn name(&self) -> &'static str {
        match self {
            Damage::Cut(_) => "cut at every byte",
            Damage::Flip(..) => "every byte flipped",
            Damage::ZeroFrom(_) => "zeros from a byte on",
            Damage::Append(what, _) => what,
            Damage::Overlap => "entries that overlap",
            Damage::Delete => "deleted",
        }
    }

    fn all(path: &Path, content: &[u8]) -> Vec<Damage> {
        let mut all = vec![Damage::Delete];
        all.extend((0..content.len()).map(Damage::Cut));
        all.extend((0..content.len()).flat_map(|at| [0x01, 0x40, 0xff].map(|mask| Damage::Flip(at, mask))));
        all.extend((0..content.len()).step_by(7).map(Damage::ZeroFrom));
        let head = content[..content.len().min(100)].to_vec();
        all.push(Damage::Append("4 KiB of zeros behind", vec![0; 4096]));
        all.push(Damage::Append("garbage behind", vec![0x5a; 333]));
        all.push(Damage::Append("its own beginning behind", head));
        if path.extension().is_some_and(|extension| extension == "index" || extension == "timeindex") {
            all.push(Damage::Overlap);
        }
        all
    }

    fn apply(&self, sim: &Sim, path: &Path, content: &[u8]) {
        let mut content = content.to_vec();
        match self {
            Damage::Cut(at) => content.truncate(*at),
            Damage::Flip(at, mask) => content[*at] ^= mask,
            Damage::ZeroFrom(at) => content[*at..].fill(0),
            Damage::Append(_, bytes) => content.extend(bytes),
            Damage::Overlap => {
                let half = content.len() / 2;
                content.rotate_left(half);
            }
            Damage::Delete => return sim.fs.remove_file(path).unwrap(),
        }
        sim.fs.replace(path, content);
    }
}

/// What a changed number in a text file cannot tell: there is no checksum, so a text that is whole is believed.
fn is_other_number(path: &Path, damage: &Damage, content: &[u8]) -> bool {
    let Damage::Flip(at, mask) = damage else { return false };
    let (old, new) = (content[*at], content[*at] ^ mask);
    let is_text = path.extension().is_none() || kind_of(path) == "partition.metadata";
    is_text
        && (old.is_ascii_alphanumeric() || b"-_ \n".contains(&old))
        && (new.is_ascii_graphic() || new == b' ')
}

fn check(stopped: &Stopped, path: &Path, content: &[u8], damage: &Damage) {
    let sim = stopped.sim.fork(9);
    damage.apply(&sim, path, content);
    let kind = kind_of(path);
    let believed = is_other_number(path, damage, content);
    let (manager, log) = match start(&sim) {
        Ok(started) => started,
        // Another topic's log, for all that can be known.
        Err(e) if kind == "partition.metadata" && believed => {
            assert!(e.contains("topic ID"), "{e}");
            return;
        }
        Err(e) => panic!("no start: {e}"),
    };
    assert!(!log.log_dir().is_offline(), "offline");
    let mut model = stopped.model.clone();
    model.durable_start = 0;
    if kind == ".log" && is_unprotected(stopped, path, damage) {
        // Base offset and leader epoch have no checksum; as in the reference they are believed.
        served(&log);
        return;
    } else if kind == ".log" {
        if !check_damaged_records(stopped, &log, &mut model, path) {
            goes_on_behind_damage(&sim, &log, &mut model);
            return;
        }
    } else if believed {
        // At least nothing that was not written is served.
        served(&log);
        return;
    } else {
        assert_eq!(log.log_end_offset(), model.end(), "records are lost");
        let start = log.log_start_offset();
        let start_is_lost = kind == "log-start-offset-checkpoint" && start == 0;
        assert!(start == model.log_start || start_is_lost, "starts at {start}");
        check_records(&log, &model, "after the start");
        if kind != ".txnindex" {
            check_producers(&log, &model, start, "after the start");
        }
    }
    for id in [1, 2, 3, 2, 1, 3, 1] {
        append(&sim, &log, &mut model, id).unwrap_or_else(|e| panic!("producer {id} cannot go on: {e}"));
    }
    let _ = manager.shutdown(sim.clock.now(), 6);
    let (_manager, log) = start(&sim).unwrap_or_else(|e| panic!("no second start: {e}"));
    assert_eq!(log.log_end_offset(), model.end(), "records are lost at the second start");
}

/// What is written behind damage that stays is found.
fn goes_on_behind_damage(sim: &Sim, log: &UnifiedLog, model: &mut Model) {
    let _ = log.read(log.log_end_offset() - 1, 1, FetchIsolation::LogEnd, true);
    model.truncate(log.log_end_offset());
    let mut written = Vec::new();
    for _ in 0..3 {
        sim.clock.advance(Duration::from_millis(10));
        let records = idempotent(77, 0, written.len() as i32, sim.clock.now().wall_ms, &[b"behind"]);
        let options =
            AppendOptions { transaction_version: 0, ..AppendOptions::new(model.epoch, AppendOrigin::Client) };
        let info = log.append_as_leader_with(sim.clock.now(), records, options);
        written.push(info.unwrap_or_else(|e| panic!("no append behind the damage: {e}")).first_offset);
    }
    for offset in written {
        let read = log.read(offset, 1, FetchIsolation::LogEnd, true);
        let read = read.unwrap_or_else(|e| panic!("{offset}, behind the damage: {e}"));
        assert_eq!(read.fetch_offset.message_offset, offset, "behind the damage");
        let bytes = read.records.unwrap().read().unwrap();
        assert!(Batches::new(&bytes).next().unwrap().unwrap().is_valid(), "behind the damage");
    }
}

/// Whether a flip hits a field of a batch's header that its checksum does not cover.
fn is_unprotected(stopped: &Stopped, path: &Path, damage: &Damage) -> bool {
    let Damage::Flip(at, _) = damage else { return false };
    let base = storage::names::parse_offset(path.file_name().unwrap().to_str().unwrap()).unwrap();
    let mut position = 0;
    for written in stopped.model.batches.iter().skip_while(|written| written.base_offset < base) {
        let field = at.wrapping_sub(position);
        if field < written.bytes.len() {
            return field < 8 || (12..16).contains(&field);
        }
        position += written.bytes.len();
    }
    false
}

/// The batches that a consumer gets, and whether their checksums are right.
fn served(log: &UnifiedLog) -> Vec<(i64, bool, Bytes)> {
    let (mut offset, mut found) = (log.log_start_offset(), Vec::new());
    while offset < log.log_end_offset() {
        let Ok(read) = log.read(offset, 1, FetchIsolation::LogEnd, true) else { break };
        let Some(bytes) = read.records.and_then(|records| records.read().ok()) else { break };
        let Some(Ok(batch)) = Batches::new(&bytes).next() else { break };
        let whole = bytes.slice(..batch.size_in_bytes());
        found.push((batch.base_offset, batch.is_valid(), whole));
        if batch.next_offset() <= offset {
            break;
        }
        offset = batch.next_offset();
    }
    found
}

/// The records themselves are damaged; whether the log is one without damage now.
fn check_damaged_records(stopped: &Stopped, log: &UnifiedLog, model: &mut Model, path: &Path) -> bool {
    let base = storage::names::parse_offset(path.file_name().unwrap().to_str().unwrap()).unwrap();
    let served = served(log);
    for (offset, is_valid, bytes) in &served {
        if *is_valid {
            let written = model.batches.iter().find(|written| written.base_offset == *offset);
            assert!(written.is_some(), "an unknown batch at {offset}");
            assert_eq!(*bytes, written.unwrap().bytes, "other bytes at {offset}");
        } else {
            assert!(*offset < stopped.read_from, "recovery let a bad checksum pass at {offset}");
        }
    }
    // A reader that got to the end has noticed what is missing there.
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    for written in model.batches.iter().filter(|w| w.last_offset < base && w.last_offset >= start) {
        let read = log.read(written.base_offset.max(start), 1, FetchIsolation::LogEnd, true).unwrap();
        assert_eq!(read.fetch_offset.message_offset, written.base_offset, "before the damage");
    }
    // Damage of what was flushed stays where it is, and whoever reads it is told. A torn end is cut, and then the log is
    // as if it had never been.
    let expected = model.batches.iter().filter(|w| w.last_offset >= start && w.last_offset < end);
    let is_whole = expected.map(|written| &written.bytes).eq(served.iter().map(|(_, _, bytes)| bytes));
    if is_whole {
        model.truncate(end);
        check_records(log, model, "up to the damage");
    }
    is_whole
}

#[test]
fn every_file_may_be_damaged() {
    let stride: usize = std::env::var("STORAGE_DAMAGES").map_or(53, |n| n.parse().unwrap());
    let mut table: BTreeMap<(String, &str), u64> = BTreeMap::new();
    let mut wrong: BTreeMap<String, (u64, String)> = BTreeMap::new();
    std::panic::set_hook(Box::new(|_| {}));
    let mut number = 0;
    for stopped in [stopped(false), stopped(true)] {
        let files: Vec<(PathBuf, Vec<u8>)> = stopped.sim.fs.contents().into_iter().collect();
        for (path, content) in files.iter().filter(|(path, _)| !path.ends_with(".lock")) {
            for damage in Damage::all(path, content) {
                number += 1;
                if number % stride != 0 {
                    continue;
                }
                *table.entry((kind_of(path), damage.name())).or_default() += 1;
                let run = std::panic::AssertUnwindSafe(|| check(&stopped, path, content, &damage));
                let Err(cause) = std::panic::catch_unwind(run) else { continue };
                let text = cause.downcast_ref::<String>().cloned();
                let text = text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                let stop = if stopped.was_clean { "clean stop" } else { "kill" };
                let place =
                    format!("{} {} after a {stop}", path.file_name().unwrap().display(), damage.name());
                let damage: String = format!("{damage:?}").chars().take(40).collect();
                let text = text.unwrap_or_default();
                if std::env::var_os("STORAGE_DAMAGE_LIST").is_some() {
                    println!("{place}: {damage}: {text}");
                }
                let entry = wrong.entry(place).or_default();
                *entry = (entry.0 + 1, format!("{damage}: {text}"));
            }
        }
    }
    let _ = std::panic::take_hook();
    if stride == 1 {
        for ((kind, damage), runs) in &table {
            println!("| {kind} | {damage} | {runs} |");
        }
        println!("{} in total", table.values().sum::<u64>());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
