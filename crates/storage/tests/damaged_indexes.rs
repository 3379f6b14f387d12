//! Indexes damaged by hand after a clean stop: no answer changes, appends go on, and the files become what they were.

mod common;

use std::path::{Path, PathBuf};

use common::{LOG_DIR, World, batch};
use env::{FileSystem, OpenMode};
use record::AppendOrigin;
use storage::{FetchIsolation, LogConfig, UnifiedLog};

const START: i64 = 1_700_000_000_000;
const RECORDS: i64 = 120;

fn config() -> LogConfig {
    LogConfig { segment_size_bytes: 6000, index_interval_bytes: 300, ..LogConfig::default() }
}

/// Timestamps that rise, with steps back and some that are equal.
fn time_of(offset: i64) -> i64 {
    START + (offset / 3) * 100 - if offset % 7 == 3 { 450 } else { 0 }
}

fn written(world: &World) {
    let log = world.open(config(), |_| {});
    for offset in 0..RECORDS {
        let value = [b'v'; 90];
        log.append_as_leader(world.now(), batch(time_of(offset), &[&value]), 0, AppendOrigin::Client)
            .unwrap();
    }
    log.update_high_watermark(RECORDS);
    log.close(world.now()).unwrap();
}

fn reopened(world: &World) -> std::sync::Arc<UnifiedLog> {
    let log = world.open(config(), |params| {
        params.had_clean_shutdown = true;
        params.recovery_point = Some(RECORDS);
    });
    log.update_high_watermark(RECORDS);
    log
}

/// All that a client can ask.
fn answers(world: &World, log: &UnifiedLog) -> Vec<String> {
    let mut answers = Vec::new();
    for offset in (0..=RECORDS).step_by(2) {
        let read = log.read(offset, 1, FetchIsolation::HighWatermark, true).unwrap();
        let at = read.records.map(|slice| (slice.position, slice.len));
        answers.push(format!("{offset} {:?} {at:?}", read.fetch_offset));
    }
    for timestamp in (START - 500..START + 4200).step_by(50).chain([-3, i64::MAX]) {
        answers.push(format!("{timestamp} {:?}", log.fetch_offset_by_timestamp(timestamp).unwrap()));
    }
    for segment in log.segments().iter() {
        answers.push(format!("{} {:?}", segment.base_offset(), segment.largest_timestamp(&*world.sim.fs)));
    }
    answers
}

fn overwrite(world: &World, path: &Path, content: &[u8]) {
    let file = world.sim.fs.open(path, OpenMode::Truncate).unwrap();
    file.write_at(content, 0).unwrap();
}

fn index_files(world: &World) -> Vec<PathBuf> {
    let dir = Path::new(LOG_DIR).join("t-0");
    let names = world.files(&dir).into_iter().filter(|name| name.ends_with("index"));
    names.map(|name| dir.join(name)).filter(|path| !world.content(path).is_empty()).collect()
}

/// The file's content with one thing wrong.
fn damages(good: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut damages = Vec::new();
    for at in 0..good.len() {
        for mask in [0x01, 0x80] {
            let mut bytes = good.to_vec();
            bytes[at] ^= mask;
            damages.push((format!("byte {at} xor {mask:#x}"), bytes));
        }
        damages.push((format!("cut at {at}"), good[..at].to_vec()));
    }
    let half = good.len() / 2;
    damages.push(("all ones".into(), vec![0xff; good.len()]));
    damages.push(("all zero".into(), vec![0; good.len()]));
    damages.push(("longer, garbage".into(), [good, &[0x5a; 40]].concat()));
    damages.push(("longer, zero".into(), [good, &[0; 48]].concat()));
    damages.push(("its first half twice".into(), [&good[..half], &good[..half]].concat()));
    damages.push(("backwards".into(), good.iter().rev().copied().collect()));
    damages
}

#[test]
fn damaged_indexes_change_no_answer_and_are_rebuilt() {
    let world = World::new(1);
    written(&world);
    let expected = answers(&world, &reopened(&world));
    let files = index_files(&world);
    assert!(files.len() >= 4, "{files:?}");
    let mut tried = 0;
    for path in [&files[0], &files[1], &files[files.len() - 2], &files[files.len() - 1]] {
        let good = world.content(path);
        for (what, bytes) in damages(&good) {
            overwrite(&world, path, &bytes);
            let log = reopened(&world);
            let actual = answers(&world, &log);
            let wrong = actual.iter().zip(&expected).find(|(actual, expected)| actual != expected);
            assert_eq!(wrong, None, "{}: {what}", path.display());
            overwrite(&world, path, &good);
            tried += 1;
        }
    }
    assert!(tried > 700, "{tried}");
}

#[test]
fn a_log_whose_last_indexes_are_garbage_takes_appends_and_gets_them_rebuilt() {
    for suffix in [".index", ".timeindex"] {
        let world = World::new(1);
        written(&world);
        let files = index_files(&world);
        let path = files.iter().rfind(|path| path.to_string_lossy().ends_with(suffix)).unwrap();
        let good = world.content(path);
        overwrite(&world, path, &vec![0xee; good.len()]);
        let log = reopened(&world);
        for offset in RECORDS..RECORDS + 6 {
            let records = batch(time_of(offset), &[&[b'v'; 90]]);
            let info = log.append_as_leader(world.now(), records, 0, AppendOrigin::Client).unwrap();
            assert_eq!(info.first_offset, offset, "{suffix}");
        }
        log.tidy();
        log.flush(world.now()).unwrap();
        let repaired = world.content(path);
        assert_eq!(repaired.get(..good.len() - 12), good.get(..good.len() - 12), "{suffix}");
        assert_eq!(
            log.fetch_offset_by_timestamp(-3).unwrap().map(|found| found.offset),
            Some(123),
            "{suffix}"
        );
    }
}
