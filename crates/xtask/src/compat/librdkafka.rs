//! librdkafka's own tests, from the source that crates.io's `rdkafka-sys` carries.
//!
//! `compat/librdkafka/Cargo.lock` pins the crate; its test-runner is built once below `target/compat/librdkafka`. Each
//! test number is a process of its own, several at a time; tests that need no broker are left out (`-L`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{Outcome, Target, Verdict, install, parse, reasons};

/// What the tests expect of a broker. Some write records of 1970, which retention would delete before they are read.
pub const SETTINGS: &[(&str, &str)] =
    &[("num.partitions", "4"), ("group.initial.rebalance.delay.ms", "3000"), ("log.retention.ms", "-1")];
/// Tests mostly wait: for rebalances, for timeouts.
const PARALLEL: usize = 4;
const TEST_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// Those that take a few seconds each.
    Quick,
    All,
}

/// Builds the test-runner.
pub fn install(suite: &Path, work: &Path) -> Result<(), String> {
    let lock = fs::read(suite.join("Cargo.lock")).map_err(|error| error.to_string())?;
    let mark = work.join("built-for");
    if fs::read(&mark).ok().as_ref() == Some(&lock) {
        return Ok(());
    }
    let source = work.join("source");
    let _ = fs::remove_dir_all(&source);
    install::run(Command::new("cp").arg("-a").arg(crate_folder(suite)?.join("librdkafka")).arg(&source))?;
    install::run(
        Command::new("./configure")
            .args(["--disable-gssapi", "--disable-sasl", "--disable-curl"])
            .current_dir(&source),
    )?;
    install::run(Command::new("make").args(["-j2", "libs"]).current_dir(&source))?;
    install::run(Command::new("make").args(["-j2", "-C", "tests", "test-runner"]).current_dir(&source))?;
    fs::write(&mark, lock).map_err(|error| error.to_string())
}

/// Where cargo keeps the crate that the lock file names.
fn crate_folder(suite: &Path) -> Result<PathBuf, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--locked", "--format-version=1", "--manifest-path"])
        .arg(suite.join("Cargo.toml"))
        .output()
        .map_err(|error| error.to_string())?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}\n{}", String::from_utf8_lossy(&output.stderr)))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter(|package| package["name"] == "rdkafka-sys")
        .find_map(|package| Some(Path::new(package["manifest_path"].as_str()?).parent()?.to_owned()))
        .ok_or_else(|| "the lock file names no rdkafka-sys".into())
}

pub fn run(target: &Target<'_>, selection: Selection) -> Result<Outcome, String> {
    let tests = target.work.join("source/tests");
    let queue = Mutex::new(numbers(target, &tests, selection)?.into_iter());
    let config = target.work.join("test.conf");
    fs::write(&config, format!("metadata.broker.list={}\n", target.broker.address()))
        .map_err(|error| error.to_string())?;
    link_tools(target)?;
    let outcome = Mutex::new(Outcome { verdicts: Vec::new(), text: String::new() });
    let result: Result<(), String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..PARALLEL)
            .map(|_| {
                scope.spawn(|| -> Result<(), String> {
                    loop {
                        let Some(number) = queue.lock().map_err(|e| e.to_string())?.next() else {
                            return Ok(());
                        };
                        let (verdicts, text) = run_number(target, &tests, &config, &number)?;
                        let mut outcome = outcome.lock().map_err(|e| e.to_string())?;
                        outcome.verdicts.extend(verdicts);
                        outcome.text.push_str(&text);
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a worker panicked".to_owned())?)
    });
    result?;
    let mut outcome = outcome.into_inner().map_err(|error| error.to_string())?;
    outcome.verdicts.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(outcome)
}

/// The test numbers to run: those of the sources without those that `skipped.txt` and, unless all are wanted,
/// `slow.txt` name.
fn numbers(target: &Target<'_>, tests: &Path, selection: Selection) -> Result<BTreeSet<String>, String> {
    let mut left_out = reasons(&target.folder.join("skipped.txt"))?;
    if selection == Selection::Quick {
        left_out.extend(reasons(&target.folder.join("slow.txt"))?);
    }
    let mut numbers = BTreeSet::new();
    for entry in fs::read_dir(tests).map_err(|error| error.to_string())? {
        let name = entry.map_err(|error| error.to_string())?.file_name().to_string_lossy().into_owned();
        let Some((number, rest)) = name.split_once('-') else { continue };
        let is_test = number.len() == 4 && number.starts_with('0') && rest.contains(".c");
        if is_test && !rest.ends_with(".o") && !left_out.contains_key(number) {
            numbers.insert(number.to_owned());
        }
    }
    Ok(numbers)
}

/// Some tests call `$KAFKA_PATH/bin/kafka-topics.sh`: ours.
fn link_tools(target: &Target<'_>) -> Result<(), String> {
    let link = target.work.join("kafka/bin/kafka-topics.sh");
    fs::create_dir_all(link.parent().unwrap_or(target.work)).map_err(|error| error.to_string())?;
    let _ = fs::remove_file(&link);
    let binary = target.binary.canonicalize().map_err(|error| error.to_string())?;
    std::os::unix::fs::symlink(binary, &link).map_err(|error| error.to_string())
}

#[allow(clippy::disallowed_methods)] // a test runner waits for a process
fn run_number(
    target: &Target<'_>,
    tests: &Path,
    config: &Path,
    number: &str,
) -> Result<(Vec<(String, Verdict)>, String), String> {
    let log = target.work.join(format!("{number}.log"));
    let out = fs::File::create(&log).map_err(|error| error.to_string())?;
    let err = out.try_clone().map_err(|error| error.to_string())?;
    let source = tests.parent().unwrap_or(tests);
    let libraries = format!("{}:{}", source.join("src").display(), source.join("src-cpp").display());
    let mut child = Command::new("./test-runner")
        .args(["-L", "-p1"])
        .current_dir(tests)
        .env("LD_LIBRARY_PATH", libraries)
        .env("RDKAFKA_TEST_CONF", config)
        .env("TESTS", number)
        .env("TEST_KAFKA_VERSION", "4.0.0")
        .env("KAFKA_PATH", target.work.join("kafka"))
        .env("BROKERS", target.broker.address())
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn()
        .map_err(|error| format!("test-runner: {error}"))?;
    let deadline = Instant::now() + TEST_TIMEOUT;
    let ended = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break Some(status),
            None if Instant::now() > deadline => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let text = String::from_utf8_lossy(&fs::read(&log).map_err(|error| error.to_string())?).into_owned();
    let verdicts = parse::librdkafka(&text);
    let has_failed = verdicts.iter().any(|(_, verdict)| *verdict == Verdict::Failed);
    if !has_failed && ended.is_some_and(|status| status.success()) {
        // The text of a test that passed is long and tells nothing.
        return Ok((verdicts, String::new()));
    }
    // The runner aborts at most failures, before its summary.
    Ok((vec![(number.to_owned(), Verdict::Failed)], text))
}
