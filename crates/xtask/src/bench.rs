//! `cargo xtask bench`: builds the release binary and the bench and runs it against the reference's jars.
//!
//! The bench is a workspace of its own because it compiles librdkafka; options are passed on to it.

use crate::{Result, java};
use std::path::Path;
use std::process::Command;

pub fn run(root: &Path, options: &[&str]) -> Result<()> {
    let cargo = || {
        let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
        command.current_dir(root);
        command
    };
    java::execute(cargo().args(["build", "--release", "--locked"]), "the release build")?;
    java::prepare("java-oracle")?;
    let libs = java::target().join("java-oracle/libs");
    let mut bench = cargo();
    bench.args(["run", "--release", "--locked", "--manifest-path", "crates/bench/Cargo.toml"]);
    bench.args(["--target-dir"]).arg(java::target().join("bench"));
    bench.args(["--", "--kafka-libs"]).arg(libs.canonicalize()?).args(options);
    java::execute(&mut bench, "the bench")
}
