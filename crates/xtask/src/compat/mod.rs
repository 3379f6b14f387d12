//! `cargo xtask compat [SUITE…]`: client suites of other languages against a running binary.
//!
//! Each suite is pinned by a lock file in `compat/<suite>` and installed here from its language's registry, below
//! `target/compat`. A suite's results are read test by test: every test has to pass unless `allowed.txt` names it with
//! a reason, and at least `minimum` tests have to pass, so that an empty run is not a success.

mod broker;

use broker::Broker;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    Skipped,
}

struct Suite {
    name: &'static str,
    /// Broker settings that the suite assumes.
    settings: &'static [(&'static str, &'static str)],
    minimum: usize,
    /// Installs what the suite needs; the paths are the repository's suite folder and a work folder.
    install: fn(&Path, &Path) -> Result<(), String>,
    /// The command to run against the broker.
    command: fn(&Path, &Path, &Broker) -> Command,
    /// Verdicts in the command's output.
    parse: fn(&str) -> Vec<(String, Verdict)>,
}

const SUITES: &[Suite] = &[
    Suite {
        name: "kafkajs",
        settings: &[("num.partitions", "1")],
        minimum: 5,
        install: install_npm,
        command: |_, work, broker| {
            let mut command = Command::new("node");
            command.args(["--test", "--test-concurrency=1", "--test-reporter=tap"]);
            command.current_dir(work).env("BOOTSTRAP", broker.address());
            command
        },
        parse: parse_tap,
    },
    Suite {
        name: "kafka-python",
        settings: &[("node.id", "0"), ("num.partitions", "4"), ("group.min.session.timeout.ms", "1000")],
        minimum: 30,
        install: install_kafka_python,
        command: |_, work, broker| {
            let mut command = Command::new(work.join("venv/bin/python"));
            command.args([
                "-m",
                "pytest",
                "-v",
                "-rA",
                "--tb=short",
                "-p",
                "no:cacheprovider",
                "--timeout=120",
            ]);
            command.args([
                "test/integration/test_admin_integration.py",
                "test/integration/test_consumer_integration.py",
            ]);
            command.arg("test/integration/test_producer_integration.py");
            command.current_dir(work.join("source"));
            command.env("KAFKA_URI", format!("kafka://{}", broker.address())).env("KAFKA_VERSION", "4.2.0");
            command
        },
        parse: parse_pytest,
    },
    Suite {
        name: "franz-go",
        settings: &[],
        minimum: 100,
        install: |suite, _| run(Command::new("go").args(["mod", "download"]).current_dir(suite)),
        command: |suite, _, broker| {
            let mut command = Command::new("go");
            command.args(["test", "-count=1", "-v", "-timeout=900s", "-skip"]);
            command.arg(fs::read_to_string(suite.join("skip.txt")).unwrap_or_default().trim());
            command.arg("github.com/twmb/franz-go/pkg/kgo");
            command.current_dir(suite);
            command
                .env("KGO_SEEDS", broker.address())
                .env("KGO_TEST_RF", "1")
                .env("KGO_TEST_STABLE_FETCH", "true");
            command.env("KGO_TEST_RECORDS", "50000");
            command
        },
        parse: parse_go,
    },
];

/// Runs the named suites, or all.
pub fn run_suites(root: &Path, binary: &Path, names: &[&str]) -> Result<(), String> {
    for name in names {
        if !SUITES.iter().any(|suite| suite.name == *name) {
            let known: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
            return Err(format!("no suite {name}; there are {}", known.join(", ")));
        }
    }
    let mut failures = Vec::new();
    for suite in SUITES.iter().filter(|suite| names.is_empty() || names.contains(&suite.name)) {
        if let Err(error) = run_suite(root, binary, suite) {
            eprintln!("{}: {error}", suite.name);
            failures.push(suite.name);
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(format!("suites failed: {}", failures.join(", "))) }
}

fn run_suite(root: &Path, binary: &Path, suite: &Suite) -> Result<(), String> {
    let folder = root.join("compat").join(suite.name);
    let work = root.join("target/compat").join(suite.name);
    fs::create_dir_all(&work).map_err(|error| error.to_string())?;
    (suite.install)(&folder, &work)?;
    let mut broker = Broker::start(binary, &work.join("broker"), suite.settings)?;
    let output = (suite.command)(&folder, &work, &broker)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    fs::write(work.join("output.txt"), &text).map_err(|error| error.to_string())?;
    broker.check_alive()?;
    let allowed = allow_list(&folder.join("allowed.txt"))?;
    judge(suite, &(suite.parse)(&text), &allowed).inspect_err(|_| {
        let lines: Vec<&str> = text.lines().collect();
        eprintln!(
            "{}\n--- the broker's log ends with\n{}",
            lines[lines.len().saturating_sub(120)..].join("\n"),
            broker.log_tail()
        );
    })
}

fn judge(
    suite: &Suite,
    verdicts: &[(String, Verdict)],
    allowed: &BTreeMap<String, String>,
) -> Result<(), String> {
    let count = |wanted: Verdict| verdicts.iter().filter(|(_, verdict)| *verdict == wanted).count();
    let unexpected: Vec<&str> = verdicts
        .iter()
        .filter(|(name, verdict)| *verdict == Verdict::Failed && !allowed.contains_key(name))
        .map(|(name, _)| name.as_str())
        .collect();
    let tolerated: Vec<&str> = verdicts
        .iter()
        .filter(|(name, verdict)| *verdict == Verdict::Failed && allowed.contains_key(name))
        .map(|(name, _)| name.as_str())
        .collect();
    for name in &tolerated {
        println!("{}: {name} fails as allowed: {}", suite.name, allowed[*name]);
    }
    let passed = count(Verdict::Passed);
    println!(
        "{}: {passed} passed, {} failed as allowed, {} unexpectedly, {} skipped",
        suite.name,
        tolerated.len(),
        unexpected.len(),
        count(Verdict::Skipped)
    );
    if !unexpected.is_empty() {
        return Err(format!("failed: {}", unexpected.join(", ")));
    }
    if passed < suite.minimum {
        return Err(format!("only {passed} tests passed, at least {} must", suite.minimum));
    }
    Ok(())
}

/// Lines of `test name: reason`; `#` starts a comment.
fn allow_list(path: &Path) -> Result<BTreeMap<String, String>, String> {
    let Ok(text) = fs::read_to_string(path) else { return Ok(BTreeMap::new()) };
    text.lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (name, reason) =
                line.split_once(": ").ok_or_else(|| format!("{}: no reason in: {line}", path.display()))?;
            Ok((name.to_owned(), reason.to_owned()))
        })
        .collect()
}

fn run(command: &mut Command) -> Result<(), String> {
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

fn install_npm(suite: &Path, work: &Path) -> Result<(), String> {
    copy_flat(suite, work)?;
    run(Command::new("npm").args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(work))
}

fn install_kafka_python(suite: &Path, work: &Path) -> Result<(), String> {
    let venv = work.join("venv");
    if venv.join("installed").exists() {
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
    fs::write(venv.join("installed"), "").map_err(|error| error.to_string())
}

/// `ok 1 - name` and `not ok 2 - name`, top level only.
fn parse_tap(text: &str) -> Vec<(String, Verdict)> {
    text.lines()
        .filter_map(|line| {
            let (verdict, rest) = match line.strip_prefix("ok ") {
                Some(rest) => (Verdict::Passed, rest),
                None => (Verdict::Failed, line.strip_prefix("not ok ")?),
            };
            let name = rest.split_once(" - ")?.1;
            let skipped = name.contains("# SKIP");
            Some((name.split(" # ").next()?.to_owned(), if skipped { Verdict::Skipped } else { verdict }))
        })
        .collect()
}

/// The lines of pytest's `-rA` summary.
fn parse_pytest(text: &str) -> Vec<(String, Verdict)> {
    text.lines()
        .filter_map(|line| {
            let (word, rest) = line.split_once(' ')?;
            let verdict = match word {
                "PASSED" => Verdict::Passed,
                "FAILED" | "ERROR" => Verdict::Failed,
                "SKIPPED" => Verdict::Skipped,
                _ => return None,
            };
            Some((rest.split(" - ").next()?.rsplit("::").next()?.to_owned(), verdict))
        })
        .collect()
}

/// The lines of `go test -v`, subtests included.
fn parse_go(text: &str) -> Vec<(String, Verdict)> {
    text.lines()
        .filter_map(|line| {
            let line = line.trim_start();
            let (verdict, rest) = if let Some(rest) = line.strip_prefix("--- PASS: ") {
                (Verdict::Passed, rest)
            } else if let Some(rest) = line.strip_prefix("--- FAIL: ") {
                (Verdict::Failed, rest)
            } else {
                (Verdict::Skipped, line.strip_prefix("--- SKIP: ")?)
            };
            Some((rest.split(' ').next()?.to_owned(), verdict))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_read_from_each_runner() {
        assert_eq!(
            parse_tap("ok 1 - a b\nnot ok 2 - c\n    not ok 1 - inner"),
            vec![("a b".into(), Verdict::Passed), ("c".into(), Verdict::Failed)]
        );
        assert_eq!(
            parse_pytest("PASSED test/x.py::test_a\nFAILED test/x.py::test_b - assert"),
            vec![("test_a".into(), Verdict::Passed), ("test_b".into(), Verdict::Failed)]
        );
        assert_eq!(
            parse_go("--- PASS: TestA (0.1s)\n    --- FAIL: TestA/b (1s)\n"),
            vec![("TestA".into(), Verdict::Passed), ("TestA/b".into(), Verdict::Failed)]
        );
    }

    #[test]
    fn a_run_without_results_or_with_an_unlisted_failure_is_a_failure() {
        let suite = &SUITES[0];
        assert!(judge(suite, &[], &BTreeMap::new()).is_err());
        let mut verdicts: Vec<(String, Verdict)> =
            (0..suite.minimum).map(|i| (format!("t{i}"), Verdict::Passed)).collect();
        assert!(judge(suite, &verdicts, &BTreeMap::new()).is_ok());
        verdicts.push(("bad".into(), Verdict::Failed));
        assert!(judge(suite, &verdicts, &BTreeMap::new()).is_err());
        assert!(judge(suite, &verdicts, &BTreeMap::from([("bad".into(), "known".into())])).is_ok());
    }
}
