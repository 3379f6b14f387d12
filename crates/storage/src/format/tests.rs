//! Formatting on a simulated disk: outputs, errors and bytes of the reference.

use super::*;
use crate::metadata_log::snapshot::SnapshotReader;
use record::{Batches, ControlRecordType};
use testkit::Sim;

const CLUSTER_ID: &str = "5L6g3nShT-eMCtK--X86sw";

fn config(lines: &[(&str, &str)]) -> ServerConfig {
    let base = [
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        ("controller.quorum.bootstrap.servers", "127.0.0.1:21501"),
        ("listeners", "PLAINTEXT://127.0.0.1:21500,CONTROLLER://127.0.0.1:21501"),
        ("controller.listener.names", "CONTROLLER"),
        ("log.dirs", "/data"),
    ];
    let mut map: BTreeMap<String, String> =
        base.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    for (key, value) in lines {
        if value.is_empty() {
            map.remove(*key);
        } else {
            map.insert((*key).to_owned(), (*value).to_owned());
        }
    }
    ServerConfig::from_map(map).expect("the configuration of a test is right")
}

fn static_quorum() -> ServerConfig {
    config(&[("controller.quorum.bootstrap.servers", ""), ("controller.quorum.voters", "1@127.0.0.1:21501")])
}

fn options() -> FormatOptions {
    FormatOptions { cluster_id: CLUSTER_ID.to_owned(), ..FormatOptions::default() }
}

fn standalone() -> FormatOptions {
    FormatOptions { standalone: true, ..options() }
}

#[test]
fn a_standalone_controller_gets_the_bytes_of_the_reference() {
    let sim = Sim::new(7);
    let env = sim.env();
    let mut out = Vec::new();
    format(&env, &config(&[]), &standalone(), &mut out).unwrap();
    assert_eq!(
        out,
        [
            "Bootstrap metadata: BootstrapMetadata(records=[ApiMessageAndVersion(FeatureLevelRecord(\
             name='metadata.version', featureLevel=33) at version 0), ApiMessageAndVersion(FeatureLevelRecord(\
             name='eligible.leader.replicas.version', featureLevel=1) at version 0), ApiMessageAndVersion(\
             FeatureLevelRecord(name='group.version', featureLevel=1) at version 0), ApiMessageAndVersion(\
             FeatureLevelRecord(name='share.version', featureLevel=2) at version 0), ApiMessageAndVersion(\
             FeatureLevelRecord(name='streams.version', featureLevel=1) at version 0), ApiMessageAndVersion(\
             FeatureLevelRecord(name='transaction.version', featureLevel=2) at version 0)], metadataVersionLevel=33, \
             source=format command)",
            "Formatting dynamic metadata voter directory /data with metadata.version 4.4-IV2.",
        ]
    );
    let props = MetaProperties::read(&*env.fs, Path::new("/data")).unwrap().unwrap();
    assert_eq!((props.node_id, props.cluster_id.as_deref()), (Some(1), Some(CLUSTER_ID)));
    let partition = Path::new("/data/__cluster_metadata-0");
    let bytes = env::read_file(&*env.fs, &partition.join(SnapshotId::BOOTSTRAP.file_name()), 10_000).unwrap();
    // Batch starts, counts and sizes of the reference's file of 494 bytes.
    let seen: Vec<_> = Batches::new(&bytes)
        .map(|batch| {
            batch.map(|b| (b.base_offset, b.count, b.size_in_bytes(), b.is_control_batch())).unwrap()
        })
        .collect();
    assert_eq!(seen, [(0, 3, 166, true), (3, 6, 253, false), (9, 1, 75, true)]);
    let reader = SnapshotReader::open(&*env.fs, partition, SnapshotId::BOOTSTRAP).unwrap();
    let voters = reader.header().voters.clone().unwrap();
    assert_eq!(reader.header().kraft_version, 1);
    assert_eq!(voters.voters[0].voter_directory_id, props.directory_id.unwrap());
    assert_eq!(voters.voters[0].endpoints[0].port, 21501);
}

#[test]
fn the_checkpoint_of_a_static_quorum_is_byte_for_byte_the_references() {
    let sim = Sim::new(7);
    let env = sim.env();
    let scram = "SCRAM-SHA-256=[name=alice,salt=\"MWx2NHBkbnc0ZndxN25vdGN4bTB5MXM4ZHA=\",password=alice-secret,\
                 iterations=8192]";
    let asked = FormatOptions { add_scram: vec![scram.to_owned()], ..options() };
    let mut out = Vec::new();
    format(&env, &static_quorum(), &asked, &mut out).unwrap();
    assert_eq!(out[1], "Formatting metadata directory /data with metadata.version 4.4-IV2.");
    let path = Path::new("/data/__cluster_metadata-0").join(SnapshotId::BOOTSTRAP.file_name());
    let ours = env::read_file(&*env.fs, &path, 10_000).unwrap();
    let reference = include_bytes!("testdata/static-scram.checkpoint");
    assert_eq!(mask_times(&ours), mask_times(reference));
}

/// Zeroes checksums and timestamps, and the timestamp within the header record.
fn mask_times(bytes: &[u8]) -> Vec<u8> {
    let mut masked = bytes.to_vec();
    let mut position = 0;
    for batch in Batches::new(bytes) {
        let batch = batch.unwrap();
        masked[position + 17..position + 21].fill(0);
        masked[position + 27..position + 43].fill(0);
        let is_header = batch
            .records(&record::NoCodecs, &mut record::BufferSupplier::new())
            .unwrap()
            .any(|record| record.unwrap().key == Some(&ControlRecordType::SnapshotHeader.record_key()[..]));
        if is_header {
            // Length, attributes, deltas, key length, key, value length, version, then eight bytes of timestamp.
            masked[position + 61 + 12..position + 61 + 20].fill(0);
        }
        position += batch.size_in_bytes();
    }
    masked
}

#[test]
fn formatting_twice_is_refused_or_ignored() {
    let sim = Sim::new(7);
    let (env, config) = (sim.env(), config(&[("log.dirs", "/d/a1,/d/a2")]));
    let mut out = Vec::new();
    assert_eq!(info(&env, &config, &mut out), 1);
    assert_eq!(out, ["Found problems:", "  /d/a1 does not exist", "  /d/a2 does not exist", ""]);
    format(&env, &config, &standalone(), &mut Vec::new()).unwrap();
    let error = format(&env, &config, &standalone(), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().ends_with(
        "is already formatted. Use --ignore-formatted to ignore this directory and format the others."
    ));
    let mut out = Vec::new();
    let again = FormatOptions { ignore_formatted: true, ..standalone() };
    format(&env, &config, &again, &mut out).unwrap();
    assert_eq!(out, ["All of the log directories are already formatted."]);
    let other = FormatOptions { cluster_id: "4L6g3nShT-eMCtK--X86sw".into(), ..again };
    assert_eq!(
        format(&env, &config, &other, &mut Vec::new()),
        Err(FormatError::runtime(
            "Invalid cluster.id in: /d/a1/meta.properties. Expected 4L6g3nShT-eMCtK--X86sw, but read \
             5L6g3nShT-eMCtK--X86sw"
        ))
    );
    let mut out = Vec::new();
    assert_eq!(info(&env, &config, &mut out), 0);
    assert_eq!(out[..3], ["Found log directories:", "  /d/a1", "  /d/a2"]);
    assert!(out[4].starts_with("Found metadata: {cluster.id=5L6g3nShT-eMCtK--X86sw, directory.id="));
}

#[test]
fn directories_are_listed_in_the_order_of_the_reference() {
    let (a1, a2) = ("/data/a1".to_owned(), "/data/a2".to_owned());
    assert_eq!(hash_order(vec![&a1, &a2], growing_map_capacity(2)), [&a2, &a1]);
    assert_eq!(hash_order(vec![&a1, &a2], copied_map_capacity(2)), [&a2, &a1]);
    let disks = [1, 2, 3].map(|n| format!("/var/lib/kafka/disk{n}"));
    let disks: Vec<&String> = disks.iter().collect();
    assert_eq!(hash_order(disks.clone(), growing_map_capacity(3)), disks);
    assert_eq!(hash_order(disks.clone(), copied_map_capacity(3)), disks);
}

#[test]
fn what_cannot_be_formatted_is_refused_and_leaves_nothing() {
    let check = |config: &ServerConfig, options: FormatOptions, expected: &str| {
        let sim = Sim::new(7);
        let env = sim.env();
        let error = format(&env, config, &options, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert!(!env.fs.exists(Path::new("/data")).unwrap());
    };
    check(
        &config(&[]),
        options(),
        "Because controller.quorum.voters is not set on this controller, you must specify one of the following: \
         --standalone, --initial-controllers, or --no-initial-controllers.",
    );
    check(
        &static_quorum(),
        standalone(),
        "You cannot specify controller.quorum.voters and format the node with --initial-controllers or --standalone. \
         If you want to use dynamic quorum, please remove controller.quorum.voters and specify \
         controller.quorum.bootstrap.servers instead.",
    );
    let broker = config(&[("process.roles", "broker"), ("listeners", "PLAINTEXT://127.0.0.1:21500")]);
    check(&broker, standalone(), "You can only use --standalone on a controller.");
    let feature = |text: &str| FormatOptions { features: vec![text.to_owned()], ..standalone() };
    check(&config(&[]), feature("x"), "Can't parse feature=level string x: equals sign not found.");
    check(
        &config(&[]),
        feature("group.version=y"),
        "Can't parse feature=level string group.version=y: unable to parse y as a short.",
    );
    let release = FormatOptions { release_version: Some("9.9".into()), ..standalone() };
    let sim = Sim::new(7);
    let error = format(&sim.env(), &config(&[]), &release, &mut Vec::new()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("Unknown metadata.version '9.9'. Supported metadata.version are: 3.3-IV3, ")
    );
}

#[test]
fn a_power_cut_leaves_a_directory_formatted_whole_or_not_at_all() {
    for cut in 1..40 {
        let sim = Sim::new(cut);
        let env = sim.env();
        sim.fs.power_off_at(cut);
        let done = format(&env, &config(&[]), &standalone(), &mut Vec::new()).is_ok();
        sim.fs.crash(cut);
        let props = MetaProperties::read(&*env.fs, Path::new("/data")).unwrap();
        assert!(props.is_some() || !done, "cut {cut}: an acknowledged format is lost");
        let partition = Path::new("/data/__cluster_metadata-0");
        if props.is_some() {
            SnapshotReader::open(&*env.fs, partition, SnapshotId::BOOTSTRAP).unwrap();
        } else {
            format(&env, &config(&[]), &standalone(), &mut Vec::new()).unwrap();
            SnapshotReader::open(&*env.fs, partition, SnapshotId::BOOTSTRAP).unwrap();
        }
    }
}

#[test]
fn mappings_and_dependencies_are_printed_as_the_reference_prints_them() {
    let mut out = Vec::new();
    version_mapping(Some("4.0"), &mut out).unwrap();
    assert_eq!(out[0], "metadata.version=25 (4.0)");
    let mut out = Vec::new();
    let features = ["metadata.version=33", "eligible.leader.replicas.version=1", "group.version=0"];
    feature_dependencies(&features.map(str::to_owned), &mut out).unwrap();
    assert_eq!(
        out,
        [
            "metadata.version=33 (4.4-IV2) has no dependencies.",
            "eligible.leader.replicas.version=1 requires:",
            "    metadata.version=23 (4.0-IV1)",
            "group.version=0 has no dependencies.",
        ]
    );
    for (argument, expected) in [
        ("x", "Invalid feature format: x. Expected format: 'feature=version' (e.g. 'group.version=1')"),
        ("x=y", "Invalid version format: y for feature x"),
        ("x=1", "Unknown feature: x"),
        ("group.version=9", "Feature level 9 is not supported for feature group.version"),
        ("metadata.version=99", "Unknown metadata.version 99"),
    ] {
        let error = feature_dependencies(&[argument.to_owned()], &mut Vec::new()).unwrap_err();
        assert_eq!(error, FormatError::Terse(expected.to_owned()));
    }
}
