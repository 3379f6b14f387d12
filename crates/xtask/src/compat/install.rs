//! Fetches what a suite needs from its language's registry, as its lock file pins it.
//!
//! Owns nothing but the suite's work folder below `target/compat`. What is complete is marked with a copy of the lock
//! file, so that an interrupted or outdated installation is repeated.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

fn copy_flat(from: &Path, to: &Path) -> Result<(), String> {
    for entry in fs::read_dir(from).map_err(|error| format!("{}: {error}", from.display()))? {
        let entry = entry.map_err(|error| error.to_string())?;
        if entry.path().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

pub fn npm(suite: &Path, work: &Path) -> Result<(), String> {
    copy_flat(suite, work)?;
    run(Command::new("npm").args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(work))
}

pub fn kafka_python(suite: &Path, work: &Path) -> Result<(), String> {
    let venv = work.join("venv");
    let lock = fs::read(suite.join("requirements.txt")).map_err(|error| error.to_string())?;
    if fs::read(venv.join("installed")).ok().as_ref() == Some(&lock) {
        return Ok(());
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let python: PathBuf = venv.join("bin/python");
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r"];
    run(Command::new(&python).args(pip).arg(suite.join("requirements.txt")))?;
    // The source archive holds the integration tests; the wheel does not.
    let download =
        ["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--require-hashes", "-r"];
    run(Command::new(&python)
        .args(download)
        .arg(suite.join("source.txt"))
        .arg("-d")
        .arg(work.join("archive")))?;
    let source = work.join("source");
    fs::create_dir_all(&source).map_err(|error| error.to_string())?;
    let archive = fs::read_dir(work.join("archive"))
        .map_err(|error| error.to_string())?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().ends_with(".tar.gz"))
        .ok_or("no source archive of kafka-python")?;
    run(Command::new("tar").arg("xzf").arg(archive).args(["--strip-components=1", "-C"]).arg(&source))?;
    // The archive's fixtures import two modules that it lacks.
    fs::write(source.join("test/__init__.py"), "").map_err(|error| error.to_string())?;
    fs::copy(suite.join("service.py"), source.join("test/service.py")).map_err(|error| error.to_string())?;
    fs::write(venv.join("installed"), lock).map_err(|error| error.to_string())
}
