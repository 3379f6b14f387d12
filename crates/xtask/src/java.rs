//! Java programs of ours that run against Apache Kafka's classes: the codec's oracle, the client suite and
//! the turns on one data directory.
//!
//! Owns `target/<name>`: the jars that `compat/<name>/pom.xml` pins, fetched on first use, and the compiled sources. A
//! file of the pom's text marks a complete set of jars, so an interrupted fetch is repeated.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;

/// Fetches and compiles what `compat/<name>` still lacks; gives the class path.
pub fn prepare(name: &str) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let source = root.join("compat").join(name);
    let target = target().join(name);
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
    javac.args(["-nowarn", "-cp", &jars, "-d"]).arg(&classes);
    for entry in fs::read_dir(source.join("src"))? {
        javac.arg(entry?.path());
    }
    execute(&mut javac, "javac")?;
    Ok(format!("{}:{jars}", classes.display()))
}

/// Cargo's target folder.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from)
}

pub fn execute(command: &mut Command, what: &str) -> Result<()> {
    let status = command.status().map_err(|e| format!("cannot run {what}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{what} failed ({status})").into()) }
}
