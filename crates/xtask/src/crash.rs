//! `cargo xtask crash`: kills the broker under load, again and again (`client`'s example `crash`).

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::compat::free_ports;
use crate::java::{execute, target};

/// Runs in the gate; more are for a release.
const DEFAULT_RUNS: u64 = 5;
const DEFAULT_SEED: u64 = 1;

pub fn run(binary: &Path, options: &[&str]) -> Result<()> {
    let (mut runs, mut seed) = (DEFAULT_RUNS, DEFAULT_SEED);
    for pair in options.chunks(2) {
        match pair {
            ["--runs", value] => runs = value.parse()?,
            ["--seed", value] => seed = value.parse()?,
            _ => return Err(format!("unknown option {}", pair.join(" ")).into()),
        }
    }
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--package", "client", "--example", "crash", "--"]);
    command.arg(binary).arg(target().join("crash")).arg(free_ports()?.to_string());
    command.args([runs.to_string(), seed.to_string()]);
    execute(&mut command, "the crash test")
}
