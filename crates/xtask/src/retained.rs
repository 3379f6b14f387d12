//! `cargo xtask retained`: what remains of generated topics after retention, compaction and trimming, side by side with
//! Apache Kafka (`compat/retained/src/Retained.java`).
//!
//! Owns the choice of runs: the ways of writing take turns, each run has its own seed and its own pair of brokers.

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::compat::free_ports;
use crate::java::{execute, prepare, target};

/// Topics that share one pair of brokers.
const TOPICS_PER_RUN: u64 = 50;
const DEFAULT_SCENARIOS: u64 = 300;
const DEFAULT_SEED: u64 = 20_261_129;
/// Transactions are in the copied runs only, so these are every other run.
const MODES: [&str; 6] = ["copied", "restart", "copied", "direct", "copied", "kill"];

/// What the gate repeats: our broker against digests of the reference's answers.
const GOLDEN: &str = "compat/retained/golden.txt";
const GOLDEN_SEED: u64 = 44;
const GOLDEN_TOPICS: u64 = 60;

pub fn run(root: &Path, binary: &Path, options: &[&str]) -> Result<()> {
    let (mut scenarios, mut seed, mut only) = (DEFAULT_SCENARIOS, DEFAULT_SEED, None);
    let mut words = options.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match *word {
            "--scenarios" => scenarios = value()?.parse()?,
            "--seed" => seed = value()?.parse()?,
            "--mode" => only = Some(*value()?),
            "--record" => return side_by_side(root, binary, "record", GOLDEN_SEED, GOLDEN_TOPICS),
            _ => return Err(format!("unknown option {word}").into()),
        }
    }
    let (mut failed, mut number) = (Vec::new(), 0);
    while scenarios > 0 {
        let topics = scenarios.min(TOPICS_PER_RUN);
        let mode = only.unwrap_or(MODES[number as usize % MODES.len()]);
        if side_by_side(root, binary, mode, seed + number, topics).is_err() {
            failed.push(format!("{mode} with seed {}", seed + number));
        }
        scenarios -= topics;
        number += 1;
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("runs that differ: {}", failed.join(", ")).into()) }
}

/// The gate's part.
pub fn gate(root: &Path, binary: &Path) -> Result<()> {
    side_by_side(root, binary, "golden", GOLDEN_SEED, GOLDEN_TOPICS)
}

fn side_by_side(root: &Path, binary: &Path, mode: &str, seed: u64, topics: u64) -> Result<()> {
    let classpath = prepare("retained")?;
    let work = target().join("retained/work").join(format!("{mode}-{seed}"));
    if work.exists() {
        std::fs::remove_dir_all(&work)?;
    }
    let mut java = Command::new("java");
    java.args(["-Xmx512m", "-XX:TieredStopAtLevel=1"]);
    java.arg(format!("-Dlog4j2.configurationFile={}", root.join("compat/retained/log4j2.xml").display()));
    java.args(["-cp", &classpath, "Retained"]).arg(target().join("retained/libs")).arg(binary).arg(&work);
    java.arg(free_ports()?.to_string()).arg(free_ports()?.to_string());
    java.args([mode, &seed.to_string(), &topics.to_string()]);
    java.arg(root.join(GOLDEN));
    execute(&mut java, "the comparison of what remains")
}
