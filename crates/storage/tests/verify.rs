//! The offline check: silent on what is good, says of each damage what recovery then does, and changes nothing.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{LOG_DIR, World, batch, idempotent, marker, transactional};
use env::{FileSystem, OpenMode};
use record::{AppendOrigin, NoCodecs};
use storage::verify::{
    Checkpoints, CutWhen, Finding, PartitionReport, Severity, verify_log_dir, verify_partition,
};
use storage::{LogConfig, UnifiedLog};
use testkit::Sim;

fn config() -> LogConfig {
    LogConfig { segment_size_bytes: 1500, index_interval_bytes: 200, ..LogConfig::default() }
}

fn append(world: &World, log: &UnifiedLog, records: bytes::Bytes, origin: AppendOrigin) {
    log.append_as_leader(world.now(), records, 0, origin).unwrap();
    log.update_high_watermark(log.log_end_offset());
    world.advance_ms(10);
}

/// Plain, idempotent and transactional records over several segments.
fn written(world: &World) -> Arc<UnifiedLog> {
    let log = world.open(config(), |_| {});
    let mut sequences = [0, 0];
    for round in 0..12 {
        let now = world.now().wall_ms;
        append(world, &log, batch(now, &[&[b'p'; 60], b"q"]), AppendOrigin::Client);
        append(world, &log, idempotent(7, 0, sequences[0], now, &[&[b'i'; 50]]), AppendOrigin::Client);
        append(
            world,
            &log,
            transactional(8, 0, sequences[1], now, &[b"a", b"b", b"c"]),
            AppendOrigin::Client,
        );
        append(world, &log, marker(8, 0, now, round % 2 == 0, 3), AppendOrigin::Coordinator);
        sequences = [sequences[0] + 1, sequences[1] + 3];
    }
    log
}

fn dir() -> PathBuf {
    Path::new(LOG_DIR).join("t-0")
}

fn unclean(recovery_point: i64) -> Checkpoints {
    Checkpoints { recovery_point: Some(recovery_point), ..Checkpoints::default() }
}

fn verify(sim: &Sim, checkpoints: &Checkpoints) -> PartitionReport {
    verify_partition(&*sim.fs, &dir(), checkpoints, &NoCodecs).unwrap()
}

fn contents(world: &World) -> BTreeMap<String, Vec<u8>> {
    world.files(&dir()).into_iter().map(|name| (name.clone(), world.content(&dir().join(name)))).collect()
}

fn put(world: &World, name: &str, content: &[u8]) {
    world.sim.fs.open(&dir().join(name), OpenMode::Truncate).unwrap().write_at(content, 0).unwrap();
}

#[test]
fn a_good_log_has_no_findings_and_stays_as_it_is() {
    let world = World::new(1);
    let log = written(&world);
    let end = log.log_end_offset();
    log.close(world.now()).unwrap();
    let before = contents(&world);
    assert!(before.keys().filter(|name| name.ends_with(".log")).count() >= 3, "{:?}", before.keys());
    assert!(before.keys().any(|name| name.ends_with(".txnindex")));
    for checkpoints in [
        unclean(0),
        unclean(end),
        Checkpoints { had_clean_shutdown: true, high_watermark: Some(end), ..unclean(end) },
    ] {
        let report = verify(&world.sim, &checkpoints);
        assert_eq!(report.findings, [], "{checkpoints:?}");
        assert_eq!(report.cut, None);
        assert_eq!((report.next_offset, report.records, report.batches), (end, 84, 48));
    }
    assert_eq!(contents(&world), before);
}

#[test]
fn a_log_of_the_reference_has_no_findings() {
    let sim = Sim::new(1);
    common::copy_fixture(&sim, "", Path::new("/data"));
    for name in ["t-none-0", "t-txn-0"] {
        common::copy_fixture(&sim, name, &Path::new("/data").join(name));
    }
    let report = verify_log_dir(&*sim.fs, Path::new("/data"), &NoCodecs).unwrap();
    assert_eq!(report.partitions.len(), 2);
    for partition in &report.partitions {
        assert_eq!(partition.findings, [], "{}", partition.name);
    }
    // The checkpoints name partitions that were not copied.
    assert!(!report.findings.is_empty());
    assert!(report.is_good());
}

/// The foretold cut is the one that recovery makes, wherever a bit is wrong.
#[test]
fn what_it_says_of_a_damaged_log_is_what_recovery_does() {
    let world = World::new(1);
    let log = written(&world);
    let end = log.log_end_offset();
    log.close(world.now()).unwrap();
    let good = contents(&world);
    let segments: Vec<&String> = good.keys().filter(|name| name.ends_with(".log")).collect();
    let mut cuts = 0;
    for (number, name) in segments.iter().enumerate() {
        let bytes = &good[*name];
        for at in (number..bytes.len()).step_by(7) {
            for (name, content) in &good {
                put(&world, name, content);
            }
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x20;
            put(&world, name, &damaged);
            let report = verify(&world.sim, &unclean(0));
            let log = world.open(config(), |params| params.recovery_point = Some(0));
            let recovered = log.log_end_offset();
            log.close(world.now()).unwrap();
            for left in world.files(&dir()) {
                world.sim.fs.remove_file(&dir().join(left)).unwrap();
            }
            assert_eq!(report.next_offset, recovered, "{name} byte {at}: {report:?}");
            // A flipped base offset may leave a gap instead, which recovery takes for compaction's.
            assert!(report.cut.is_some() || recovered >= end, "{name} byte {at}");
            if let Some(cut) = report.cut {
                assert_eq!((cut.offset, cut.when), (recovered, CutWhen::NextStart), "{name} byte {at}");
                assert_eq!(cut.segments, segments.len() - 1 - number, "{name} byte {at}");
                cuts += 1;
            }
        }
    }
    assert!(cuts > 300, "{cuts}");
}

#[test]
fn a_torn_tail_is_counted() {
    let world = World::new(1);
    let log = written(&world);
    log.close(world.now()).unwrap();
    let good = contents(&world);
    let name = good.keys().rfind(|name| name.ends_with(".log")).unwrap();
    let bytes = &good[name];
    // Without its last byte the last batch (a marker) is torn; what is before it stays.
    put(&world, name, &bytes[..bytes.len() - 1]);
    let report = verify(&world.sim, &unclean(0));
    let cut = report.cut.unwrap();
    assert_eq!((cut.offset, cut.records, cut.segments), (83, 0, 0));
    assert_eq!(cut.bytes + u64::from(cut.position), bytes.len() as u64 - 1);
    // One bad byte in the middle: whole batches behind it are lost with it.
    let mut damaged = bytes.clone();
    damaged[70] ^= 1;
    put(&world, name, &damaged);
    let cut = verify(&world.sim, &unclean(0)).cut.unwrap();
    assert_eq!((cut.position, cut.bytes), (0, bytes.len() as u64));
    assert!(cut.records > 0, "{cut:?}");
    assert_eq!(verify(&world.sim, &unclean(cut.offset)).cut.unwrap().when, CutWhen::NextStart);
    assert_eq!(verify(&world.sim, &unclean(84)).cut.unwrap().when, CutWhen::Never);
    let clean = Checkpoints { had_clean_shutdown: true, ..unclean(0) };
    assert_eq!(verify(&world.sim, &clean).cut.unwrap().when, CutWhen::AfterUncleanStop);
    // Where recovery does not look.
    put(&world, name, bytes);
    let first = good.keys().find(|name| name.ends_with(".log")).unwrap();
    let mut damaged = good[first].clone();
    damaged[70] ^= 1;
    put(&world, first, &damaged);
    let cut = verify(&world.sim, &unclean(84)).cut.unwrap();
    assert_eq!((cut.when, cut.offset), (CutWhen::Never, 0));
}

type Damage = (&'static str, (String, Vec<u8>), Severity);

/// Files with one thing wrong each.
fn damages(good: &BTreeMap<String, Vec<u8>>) -> Vec<Damage> {
    let of =
        |suffix: &str| good.keys().find(|name| name.ends_with(suffix) && !good[*name].is_empty()).unwrap();
    let (index, times, txns) = (of(".index"), of(".timeindex"), of(".txnindex"));
    let snapshot = good.keys().rfind(|name| name.ends_with(".snapshot")).unwrap();
    let flipped = |name: &str, at: usize| {
        let mut bytes = good[name].clone();
        bytes[at] ^= 0x01;
        (name.to_owned(), bytes)
    };
    vec![
        ("a position", flipped(index, 7), Severity::Repairable),
        ("an offset", flipped(index, 3), Severity::Repairable),
        ("half an entry", (index.clone(), good[index][..5].to_vec()), Severity::Repairable),
        ("a timestamp", flipped(times, 6), Severity::Repairable),
        ("garbage", (times.clone(), vec![0x7f; 24]), Severity::Repairable),
        ("whose transaction", flipped(txns, 9), Severity::Damage),
        ("where it ended", flipped(txns, 25), Severity::Damage),
        ("a lost transaction", (txns.clone(), Vec::new()), Severity::Damage),
        ("a version", flipped(txns, 1), Severity::Repairable),
        ("a snapshot's checksum", flipped(snapshot, 30), Severity::Repairable),
        (
            "epochs that do not rise",
            ("leader-epoch-checkpoint".into(), b"0\n2\n3 0\n2 5\n".to_vec()),
            Severity::Repairable,
        ),
        ("another epoch", ("leader-epoch-checkpoint".into(), b"0\n1\n5 0\n".to_vec()), Severity::Damage),
        ("no checkpoint", ("leader-epoch-checkpoint".into(), b"x\n0\n".to_vec()), Severity::Repairable),
        ("no metadata", ("partition.metadata".into(), b"version: x".to_vec()), Severity::Damage),
        ("left over", ("00000000000000000000.log.deleted".into(), b"x".to_vec()), Severity::Note),
        ("an orphan", ("00000000000000000099.index".into(), b"x".to_vec()), Severity::Repairable),
        (
            "a snapshot of the future",
            ("00000000000000000099.snapshot".into(), good[snapshot].clone()),
            Severity::Repairable,
        ),
        (
            "another log's snapshot",
            (
                snapshot.clone(),
                storage::producer::encode_snapshot(
                    std::iter::once(&{
                        let mut entry = storage::producer::ProducerStateEntry::new(7, 0, 3, 1, None);
                        let batch = storage::producer::BatchMetadata {
                            last_sequence: 99,
                            last_offset: 2,
                            offset_delta: 0,
                            timestamp: 1,
                        };
                        entry.add_batch(0, batch);
                        entry
                    })
                    .collect::<Vec<_>>()
                    .into_iter(),
                ),
            ),
            Severity::Damage,
        ),
    ]
}

#[test]
fn each_wrong_file_is_named_with_what_is_wrong() {
    let world = World::new(1);
    let log = written(&world);
    log.flush(world.now()).unwrap();
    log.close(world.now()).unwrap();
    let good = contents(&world);
    let cases = damages(&good);
    for (what, (name, content), severity) in cases {
        put(&world, &name, &content);
        let report = verify(&world.sim, &unclean(0));
        let named: Vec<&Finding> = report.findings.iter().filter(|finding| finding.file == name).collect();
        assert!(named.iter().any(|finding| finding.severity == severity), "{what} in {name}: {report:?}");
        assert_eq!(report.is_good(), severity == Severity::Note, "{what} in {name}");
        assert_eq!(report.cut, None, "{what} in {name}");
        match good.get(&name) {
            Some(content) => put(&world, &name, content),
            None => world.sim.fs.remove_file(&dir().join(&name)).unwrap(),
        }
    }
    assert!(verify(&world.sim, &unclean(0)).is_good());
    for checkpoints in [
        Checkpoints { high_watermark: Some(85), ..unclean(0) },
        unclean(85),
        Checkpoints { log_start_offset: Some(85), ..unclean(0) },
    ] {
        assert!(!verify(&world.sim, &checkpoints).is_good(), "{checkpoints:?}");
    }
}
