//! `cargo xtask bench`: the same work against us, Apache Kafka 4.4.0 and the floor, in alternation; a table of ratios.
//!
//! Owns nothing but what it measures. Started programs are children and end with it; a SIGKILL of the bench leaves
//! them behind, with their data under the work directory.

#![allow(clippy::disallowed_methods, reason = "a bench measures real time and waits for processes")]

mod floor;
mod load;
mod log_scenarios;
mod results;
mod scenarios;
mod subject;
mod wire;

use scenarios::{Plan, Run};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use subject::{Kind, Programs};
use wire::Result;

const USAGE: &str = "usage: bench [OPTION VALUE]...
  --bitacora FILE        the binary under test (target/release/bitacora)
  --kafka-libs DIR       the reference's jars; without it only we and the floor are measured
  --work DIR             where data directories are made (target/bench-data)
  --first-port N         first of 6 ports (any free ones)
  --only PHASE,...       starts, loads, partitions (these three); wide, fsync, recovery, clean, cold
  --subjects NAME,...    bitacora, kafka, floor (all)
  --rounds N             alternating rounds; the table shows medians (3)
  --warm-records N       records before anything is counted (10000000)
  --load-mb N            payload of one measured produce or consume (1000)
  --steady-s N           length of a run of one-record requests, and of acknowledged syncs (20)
  --rate N               one-record requests per second (2000)
  --idle-s N             length of a measurement at rest (10)
  --partitions N         for the restarts with many partitions (5000)
  --large-log-mb N       the log's size for recovery, restarts and reading from disk (10000)
  --out FILE             writes the table there as well
       bench floor PORT DIR
  load produce|consume|single PORT TOPIC SIZE COUNT   one part of the load, for a profiler";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["floor", port, dir] => {
            port.parse().map_err(Into::into).and_then(|port| floor::serve(port, dir.as_ref()))
        }
        ["load", kind, port, topic, size, count] => one_load(kind, port, topic, size, count),
        options => run(options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn one_load(kind: &str, port: &str, topic: &str, size: &str, count: &str) -> Result<()> {
    let (port, size, count): (u16, usize, u64) = (port.parse()?, size.parse()?, count.parse()?);
    let partitions = if kind == "single" { 1 } else { 4 };
    wire::Client::connect(port)?.create_topic(topic, partitions, &[])?;
    match kind {
        "produce" => println!("{:?}", load::produce(port, topic, partitions, size, count)?),
        "consume" => println!("{:?}", load::consume(port, topic, partitions, count)?),
        "single" => {
            let lasting = Duration::from_secs(count.div_ceil(2000));
            let steady = load::one_record_requests(port, topic, size, 2000, lasting, true)?;
            println!("ack p50 {} p99 {}", steady.ack.percentile(50.0), steady.ack.percentile(99.0));
            println!(
                "end to end p50 {} p99 {}",
                steady.end_to_end.percentile(50.0),
                steady.end_to_end.percentile(99.0)
            );
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn run(options: &[&str]) -> Result<()> {
    let mut programs = Programs {
        bitacora: "target/release/bitacora".into(),
        kafka_libs: None,
        floor: std::env::current_exe()?,
        work: "target/bench-data".into(),
        first_port: 0,
    };
    let mut plan = Plan {
        rounds: 3,
        warm_records: 10_000_000,
        load_bytes: 1_000_000_000,
        steady: Duration::from_secs(20),
        rate: 2000,
        idle: Duration::from_secs(10),
        partitions: 5000,
        large_log_bytes: 10_000_000_000,
        subjects: vec![Kind::Bitacora, Kind::Kafka, Kind::Floor],
    };
    let (mut only, mut out): (Vec<&str>, Option<PathBuf>) = (vec!["starts", "loads", "partitions"], None);
    for pair in options.chunks(2) {
        let [option, value] = pair else { return Err(USAGE.into()) };
        match *option {
            "--bitacora" => programs.bitacora = value.into(),
            "--kafka-libs" => programs.kafka_libs = Some(value.into()),
            "--work" => programs.work = value.into(),
            "--first-port" => programs.first_port = value.parse()?,
            "--only" => only = value.split(',').collect(),
            "--subjects" => plan.subjects = value.split(',').map(kind_of).collect::<Result<_>>()?,
            "--rounds" => plan.rounds = value.parse()?,
            "--warm-records" => plan.warm_records = value.parse()?,
            "--load-mb" => plan.load_bytes = value.parse::<u64>()? * 1_000_000,
            "--steady-s" => plan.steady = Duration::from_secs(value.parse()?),
            "--rate" => plan.rate = value.parse()?,
            "--idle-s" => plan.idle = Duration::from_secs(value.parse()?),
            "--partitions" => plan.partitions = value.parse()?,
            "--large-log-mb" => plan.large_log_bytes = value.parse::<u64>()? * 1_000_000,
            "--out" => out = Some(value.into()),
            _ => return Err(USAGE.into()),
        }
    }
    std::fs::create_dir_all(&programs.work)?;
    programs.work = programs.work.canonicalize()?;
    programs.bitacora =
        programs.bitacora.canonicalize().map_err(|e| format!("{}: {e}", programs.bitacora.display()))?;
    if programs.kafka_libs.is_none() {
        plan.subjects.retain(|kind| *kind != Kind::Kafka);
    }
    let mut run = Run { programs: &programs, plan: &plan, results: results::Results::default() };
    let outcome = phases(&mut run, &only);
    let table = run.results.table();
    println!("\n{table}");
    if let Some(out) = out {
        std::fs::write(out, table)?;
    }
    outcome
}

fn kind_of(name: &str) -> Result<Kind> {
    let known = [Kind::Bitacora, Kind::Kafka, Kind::Floor];
    known.into_iter().find(|kind| kind.name() == name).ok_or_else(|| format!("no subject {name}").into())
}

fn phases(run: &mut Run<'_>, only: &[&str]) -> Result<()> {
    for phase in only {
        match *phase {
            "starts" => run.starts()?,
            "loads" => run.loads()?,
            "partitions" => run.partitions()?,
            "wide" => run.wide()?,
            "fsync" => run.fsync()?,
            "recovery" => run.recovery()?,
            "clean" => run.clean()?,
            "cold" => run.cold()?,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(())
}
