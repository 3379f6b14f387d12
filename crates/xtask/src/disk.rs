//! `cargo xtask disk`: Apache Kafka and our broker take turns on one data directory (`compat/disk/src/Disk.java`).
//!
//! Two chains, one begun by each side, with clean stops and kills. What either wrote has to be served by the other, and
//! the reference's and our log dumps of every file have to be equal.

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::compat::free_ports;
use crate::java::{execute, prepare, target};

/// HOST:STOP of each turn.
const CHAINS: &[&[&str]] = &[
    &["reference:clean", "ours:clean", "reference:kill", "ours:kill", "reference:clean"],
    &["ours:clean", "reference:clean", "ours:kill", "reference:kill", "ours:clean"],
];

pub fn run(root: &Path, binary: &Path) -> Result<()> {
    let folder = root.join("compat/disk");
    let classpath = prepare("disk")?;
    for (number, chain) in CHAINS.iter().enumerate() {
        let work = target().join("disk/work").join(number.to_string());
        if work.exists() {
            std::fs::remove_dir_all(&work)?;
        }
        let mut java = Command::new("java");
        java.args(["-Xmx512m", "-XX:TieredStopAtLevel=1"]);
        java.arg(format!("-Ddisk.libs={}", target().join("disk/libs").display()));
        java.arg(format!("-Dlog4j2.configurationFile={}", folder.join("log4j2.xml").display()));
        java.args(["-cp", &classpath, "Disk"]).arg(binary).arg(&work);
        java.arg(free_ports()?.to_string()).args(*chain);
        execute(&mut java, "the chain of turns")?;
    }
    Ok(())
}
