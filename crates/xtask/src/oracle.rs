//! `cargo xtask oracle`: runs the comparison of our codec with Apache Kafka's classes (`protocol`'s example `oracle`).

use std::process::Command;

use crate::java::{execute, prepare};
use crate::{Result, import};

const DEFAULT_INSTANCES: u64 = 20_000;
const DEFAULT_SEED: u64 = 1;

pub fn run(options: &[&str]) -> Result<()> {
    let (mut instances, mut seed) = (DEFAULT_INSTANCES, DEFAULT_SEED);
    for pair in options.chunks(2) {
        match pair {
            ["--instances", value] => instances = value.parse()?,
            ["--seed", value] => seed = value.parse()?,
            _ => return Err(format!("unknown option {}", pair.join(" ")).into()),
        }
    }
    let classpath = prepare("java-oracle")?;
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--package", "protocol", "--example", "oracle", "--", &classpath]);
    command.arg(import::schema_dir()).args([instances.to_string(), seed.to_string()]);
    execute(&mut command, "the comparison")
}
