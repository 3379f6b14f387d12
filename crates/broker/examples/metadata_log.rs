//! Formats and drives a metadata log from the command line, for the comparison with Apache Kafka in `compat/disk`.
//!
//! `metadata_log format PROPERTIES CLUSTER_ID` formats a stand-alone controller's directories.
//! `metadata_log run PROPERTIES RECORDS [snapshot]` leads the quorum of one voter, reads everything, appends that many
//! NoOpRecords, makes a snapshot when asked to, closes and prints what it saw.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use broker::raft_driver::{MetadataLogDriver, RaftDriverConfig, RaftEvent};
use config::{Properties, ServerConfig};
use env::Env;
use metadata::{MetadataImage, MetadataLoader, MetadataProvenance, VersionedRecord};
use protocol::records::metadata::NoOpRecord;
use raft::OffsetAndEpoch;
use record::NoCodecs;
use storage::format::{FormatOptions, MetaProperties, format};
use storage::{LogContext, LogDir};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (command, properties, rest) = match arguments[..] {
        [command, properties, ref rest @ ..] => (command, properties, rest),
        _ => return Err("usage: metadata_log format|run PROPERTIES ...".into()),
    };
    let config = ServerConfig::from_properties(&Properties::parse(&std::fs::read(properties)?)?)?;
    match (command, rest) {
        ("format", [cluster_id]) => {
            let options = FormatOptions {
                cluster_id: (*cluster_id).to_owned(),
                standalone: config.quorum_voters().is_empty(),
                ..FormatOptions::default()
            };
            let mut lines = Vec::new();
            let done = format(&Env::real(), &config, &options, &mut lines);
            lines.iter().for_each(|line| println!("{line}"));
            Ok(done?)
        }
        ("run", [records, flags @ ..]) => run(&config, records.parse()?, flags.contains(&"snapshot")),
        _ => Err("usage: metadata_log format|run PROPERTIES ...".into()),
    }
}

#[derive(Default)]
struct Replayed {
    loader: MetadataLoader,
    snapshots: usize,
    batches: usize,
    records: usize,
    last: Option<OffsetAndEpoch>,
    last_timestamp: i64,
}

impl Replayed {
    fn take(&mut self, driver: &mut MetadataLogDriver) -> Result<(), Box<dyn Error>> {
        while let Some(event) = driver.poll_event() {
            match event {
                RaftEvent::Snapshot(snapshot) if snapshot.is_bootstrap() => self.snapshots += 1,
                RaftEvent::Snapshot(snapshot) => {
                    self.snapshots += 1;
                    let decode = |value: &bytes::Bytes| VersionedRecord::decode(value.clone());
                    let records =
                        snapshot.batches.iter().flatten().map(decode).collect::<Result<Vec<_>, _>>()?;
                    let provenance = MetadataProvenance {
                        last_contained_offset: snapshot.id.offset - 1,
                        last_contained_epoch: snapshot.id.epoch,
                        last_contained_log_time_ms: snapshot.last_contained_log_timestamp,
                        is_offset_batch_aligned: true,
                    };
                    self.records += records.len();
                    self.loader.load_snapshot(provenance, &records)?;
                }
                RaftEvent::Commit(batch) => {
                    self.batches += 1;
                    self.records += batch.records.len();
                    let records = batch.records.into_iter().map(VersionedRecord::decode);
                    let records = records.collect::<Result<Vec<_>, _>>()?;
                    self.loader.load_batch(
                        batch.base_offset,
                        batch.epoch,
                        batch.append_timestamp,
                        &records,
                    )?;
                    self.loader.flush();
                    self.last = Some(OffsetAndEpoch::new(batch.last_offset + 1, batch.epoch));
                    self.last_timestamp = batch.append_timestamp;
                }
                other => println!("{other:?}"),
            }
        }
        Ok(())
    }

    fn image(&self) -> &MetadataImage {
        self.loader.image()
    }
}

fn run(config: &ServerConfig, records: u32, snapshot: bool) -> Result<(), Box<dyn Error>> {
    let env = Env::real();
    let dir = Path::new(config.metadata_log_dir());
    let properties = MetaProperties::read(&*env.fs, dir)?.ok_or("the directory is not formatted")?;
    let directory_id = properties.directory_id.ok_or("the directory has no id")?;
    let cluster_id = properties.cluster_id.ok_or("the directory has no cluster id")?;
    let driver_config = RaftDriverConfig::from_server(config, &cluster_id, directory_id, "localhost", 1);
    let context = LogContext::new(env.clone(), Arc::new(NoCodecs));
    let log_dir = LogDir::new(dir.to_owned(), Some(directory_id));
    let mut driver = MetadataLogDriver::open(&context, &log_dir, driver_config, env.now())?;
    driver.poll(&context, env.now())?;
    let mut replayed = Replayed::default();
    replayed.take(&mut driver)?;
    for _ in 0..records {
        let value = VersionedRecord::new(NoOpRecord::default(), 0).encode()?;
        driver.propose(env.now(), driver.node().epoch(), vec![value])?;
        let mut later = env.now();
        later.monotonic += std::time::Duration::from_secs(1);
        driver.poll(&context, later)?;
        replayed.take(&mut driver)?;
    }
    if snapshot && let Some(id) = replayed.last {
        let options = replayed.image().write_options().ok_or("the image has no metadata version")?;
        let batch = replayed.image().write_encoded(options).map_err(|e| format!("{e:?}"))?;
        let made = driver.create_snapshot(env.now(), id, replayed.last_timestamp, [batch])?;
        println!("snapshot {id} made: {made}");
    }
    println!(
        "epoch {} end {} snapshots {} batches {} records {} topics {}",
        driver.node().epoch(),
        driver.log().log_end_offset(),
        replayed.snapshots,
        replayed.batches,
        replayed.records,
        replayed.image().topics.len()
    );
    driver.close(env.now())?;
    Ok(())
}
