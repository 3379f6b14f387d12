//! `cargo xtask oracle`: runs the comparison of our codec with Apache Kafka's classes (`protocol`'s example `oracle`).
//!
//! Owns `target/java-oracle`: the jars that `compat/java-oracle/pom.xml` pins, fetched on first use, and the compiled
//! `Oracle.java`. A file of the pom's text marks a complete set of jars, so an interrupted fetch is repeated.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    let classpath = prepare()?;
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--package", "protocol", "--example", "oracle", "--", &classpath]);
    command.arg(import::schema_dir()).args([instances.to_string(), seed.to_string()]);
    execute(&mut command, "the comparison")
}

/// Fetches and compiles what is missing; gives the class path.
fn prepare() -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let source = root.join("compat/java-oracle");
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), PathBuf::from)
        .join("java-oracle");
    let (libs, classes, mark) = (target.join("libs"), target.join("classes"), target.join("complete-for"));
    let pom = source.join("pom.xml");
    fs::create_dir_all(&target)?;
    if fs::read(&mark).ok() != Some(fs::read(&pom)?) {
        if libs.exists() {
            fs::remove_dir_all(&libs)?;
        }
        let mut maven = Command::new("mvn");
        maven.args(["--quiet", "--batch-mode", "--file"]).arg(&pom).arg("dependency:copy-dependencies");
        maven.arg("-DincludeScope=runtime").arg(format!("-DoutputDirectory={}", libs.display()));
        execute(&mut maven, "mvn")?;
        fs::write(&mark, fs::read(&pom)?)?;
    }
    let jars = format!("{}/*", libs.display());
    let mut javac = Command::new("javac");
    javac.args(["-cp", &jars, "-d"]).arg(&classes).arg(source.join("src/Oracle.java"));
    execute(&mut javac, "javac")?;
    Ok(format!("{}:{jars}", classes.display()))
}

fn execute(command: &mut Command, what: &str) -> Result<()> {
    let status = command.status().map_err(|e| format!("cannot run {what}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{what} failed ({status})").into()) }
}
