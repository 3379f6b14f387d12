//! `cargo xtask compat [SUITE…]`: client suites of other languages against a running binary.
//!
//! Each suite is pinned by a lock file in `compat/<suite>` and installed here from its language's registry, below
//! `target/compat`. A suite's results are read test by test: every test has to pass unless `allowed.txt` names it with
//! a reason, and at least `minimum` tests have to pass, so that an empty run is not a success. Tests that a suite
//! leaves out are in `skipped.txt`, each with its reason.

pub mod broker;
mod install;
mod kafka_own_tests;
mod librdkafka;
mod parse;

pub use broker::free_ports;

use broker::Broker;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::java;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    Skipped,
}

struct Suite {
    name: &'static str,
    /// The folder in `compat/`.
    folder: &'static str,
    /// Whether the suite runs when none is named, as in the gate.
    in_gate: bool,
    /// Broker settings that the suite assumes.
    settings: &'static [(&'static str, &'static str)],
    minimum: usize,
    /// Why a run with failing tests is repeated, once and whole, with both results printed.
    rerun: Option<&'static str>,
    /// Installs what the suite needs; the paths are the repository's suite folder and a work folder.
    install: fn(&Path, &Path) -> Result<(), String>,
    /// Runs the suite.
    run: fn(&Target<'_>) -> Result<Outcome, String>,
}

/// What a suite runs with.
struct Target<'a> {
    /// The suite's folder in the repository.
    folder: &'a Path,
    /// The suite's folder below `target/compat`.
    work: &'a Path,
    binary: &'a Path,
    broker: &'a Broker,
}

/// What a suite's runner said.
struct Outcome {
    verdicts: Vec<(String, Verdict)>,
    text: String,
}

const SUITES: &[Suite] = &[
    Suite {
        name: "kafkajs",
        folder: "kafkajs",
        in_gate: true,
        settings: &[("num.partitions", "1")],
        minimum: 5,
        rerun: None,
        install: install::npm,
        run: |target| {
            let mut command = Command::new("node");
            command.args(["--test", "--test-concurrency=1", "--test-reporter=tap", "--test-timeout=120000"]);
            command.current_dir(target.work).env("BOOTSTRAP", target.broker.address());
            one_process(command, parse::tap)
        },
    },
    Suite {
        name: "java-clients",
        folder: "java-clients",
        in_gate: true,
        settings: &[],
        minimum: 10,
        rerun: None,
        install: |_, _| Ok(()),
        run: |target| {
            let classpath = java::prepare("java-clients").map_err(|error| error.to_string())?;
            let mut command = Command::new("java");
            command.args(["-Xmx512m", "-Djava.security.manager=allow", "-cp", &classpath, "Clients"]);
            command.arg(target.broker.address()).current_dir(target.work);
            one_process(command, parse::tap)
        },
    },
    Suite {
        name: "kafka-python",
        folder: "kafka-python",
        in_gate: true,
        // Some tests write records with old timestamps.
        settings: &[
            ("node.id", "0"),
            ("num.partitions", "4"),
            ("group.min.session.timeout.ms", "1000"),
            ("log.retention.ms", "-1"),
        ],
        minimum: 45,
        rerun: Some(
            "its consumer forgets a subscription that is made while its first metadata request is under way; Apache Kafka's run shows the same",
        ),
        install: install::kafka_python,
        run: |target| {
            let source = target.work.join("source");
            let mut command = Command::new(target.work.join("venv/bin/python"));
            command.args([
                "-m",
                "pytest",
                "-v",
                "-rA",
                "--tb=short",
                "--show-capture=no",
                "-p",
                "no:cacheprovider",
            ]);
            command.arg("--timeout=120");
            for file in ["admin", "consumer", "producer"] {
                command.arg(format!("test/integration/test_{file}_integration.py"));
            }
            command.env("PYTHONPATH", &source).env("KAFKA_ROOT", &source).current_dir(&source);
            // The newest version that the client tells from its table of API versions.
            command.env("KAFKA_VERSION", "4.3.0");
            command.env("KAFKA_URI", format!("kafka://{}", target.broker.address()));
            one_process(command, parse::pytest)
        },
    },
    Suite {
        name: "franz-go",
        folder: "franz-go",
        in_gate: true,
        settings: &[],
        minimum: 450,
        rerun: Some("its tests wait for times of their own"),
        install: |suite, _| install::run(Command::new("go").args(["mod", "download"]).current_dir(suite)),
        run: |target| {
            let skipped = reasons(&target.folder.join("skipped.txt"))?;
            let pattern: Vec<&str> = skipped.keys().map(String::as_str).collect();
            let mut command = Command::new("go");
            command.args(["test", "-count=1", "-v", "-timeout=900s", "-skip", &pattern.join("|")]);
            command.arg("github.com/twmb/franz-go/pkg/kgo").current_dir(target.folder);
            command.env("KGO_SEEDS", target.broker.address());
            command.env("KGO_TEST_RF", "1").env("KGO_TEST_STABLE_FETCH", "true");
            command.env("KGO_TEST_RECORDS", "50000");
            one_process(command, parse::go)
        },
    },
    Suite {
        name: "librdkafka",
        folder: "librdkafka",
        in_gate: true,
        settings: librdkafka::SETTINGS,
        minimum: 40,
        rerun: Some("its tests wait for times of their own"),
        install: librdkafka::install,
        run: |target| librdkafka::run(target, librdkafka::Selection::Quick),
    },
    Suite {
        name: "librdkafka-all",
        folder: "librdkafka",
        in_gate: false,
        settings: librdkafka::SETTINGS,
        minimum: 70,
        rerun: Some("its tests wait for times of their own"),
        install: librdkafka::install,
        run: |target| librdkafka::run(target, librdkafka::Selection::All),
    },
    Suite {
        name: "kafka-own-tests-quick",
        folder: kafka_own_tests::FOLDER,
        in_gate: true,
        settings: &[],
        minimum: 15,
        rerun: None,
        install: |_, _| Ok(()),
        run: |target| kafka_own_tests::run(target, kafka_own_tests::Selection::Quick),
    },
    Suite {
        name: "kafka-own-tests",
        folder: kafka_own_tests::FOLDER,
        in_gate: false,
        settings: &[],
        minimum: 150,
        rerun: None,
        install: |_, _| Ok(()),
        run: |target| kafka_own_tests::run(target, kafka_own_tests::Selection::All),
    },
    Suite {
        name: "wire",
        folder: "wire",
        in_gate: true,
        settings: &[
            ("num.partitions", "2"),
            ("offsets.topic.replication.factor", "1"),
            ("transaction.state.log.replication.factor", "1"),
            ("transaction.state.log.min.isr", "1"),
            ("share.coordinator.state.topic.replication.factor", "1"),
            ("share.coordinator.state.topic.min.isr", "1"),
        ],
        minimum: 4900,
        rerun: None,
        install: |_, _| Ok(()),
        run: |target| {
            let mut command = Command::new("python3");
            command.arg("-B").arg(target.folder.join("wire.py")).arg("check");
            command.args(target.broker.ports().map(|port| port.to_string()));
            command.arg(target.folder.join("reference.txt"));
            one_process(command, parse::tap)
        },
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
    let chosen = |suite: &&Suite| if names.is_empty() { suite.in_gate } else { names.contains(&suite.name) };
    for suite in SUITES.iter().filter(chosen) {
        if let Err(error) = run_twice_at_most(root, binary, suite) {
            eprintln!("{}: {error}", suite.name);
            failures.push(suite.name);
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(format!("suites failed: {}", failures.join(", "))) }
}

/// A broker that ended is never forgiven.
fn run_twice_at_most(root: &Path, binary: &Path, suite: &Suite) -> Result<(), String> {
    match (run_suite(root, binary, suite)?, suite.rerun) {
        (Err(first), Some(reason)) => {
            println!("{}: {first}; running it once more: {reason}", suite.name);
            run_suite(root, binary, suite)?
        }
        (result, _) => result,
    }
}

/// The outer error is ours or the broker's, the inner one says which tests failed.
fn run_suite(root: &Path, binary: &Path, suite: &Suite) -> Result<Result<(), String>, String> {
    let root = root.canonicalize().map_err(|error| error.to_string())?;
    let folder = root.join("compat").join(suite.folder);
    let work = root.join("target/compat").join(suite.folder);
    fs::create_dir_all(&work).map_err(|error| error.to_string())?;
    (suite.install)(&folder, &work)?;
    let mut broker = Broker::start(binary, &work.join("broker"), suite.settings)?;
    let target = Target { folder: &folder, work: &work, binary, broker: &broker };
    let outcome = (suite.run)(&target)?;
    fs::write(work.join("output.txt"), &outcome.text).map_err(|error| error.to_string())?;
    broker.check_alive()?;
    let allowed = reasons(&folder.join("allowed.txt"))?;
    Ok(judge(suite, &outcome.verdicts, &allowed).inspect_err(|_| {
        let lines: Vec<&str> = outcome.text.lines().collect();
        eprintln!(
            "{}\n--- the broker's log ends with\n{}",
            lines[lines.len().saturating_sub(120)..].join("\n"),
            broker.log_tail()
        );
    }))
}

/// Runs a suite that is one process.
fn one_process(mut command: Command, parse: fn(&str) -> Vec<(String, Verdict)>) -> Result<Outcome, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Ok(Outcome { verdicts: parse(&text), text })
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
fn reasons(path: &Path) -> Result<BTreeMap<String, String>, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_read_from_each_runner() {
        assert_eq!(
            parse::tap("ok 1 - a b\nnot ok 2 - c\n    not ok 1 - inner"),
            vec![("a b".into(), Verdict::Passed), ("c".into(), Verdict::Failed)]
        );
        assert_eq!(
            parse::pytest("PASSED test/x.py::test_a\nFAILED test/x.py::test_b - assert\nFAILED   [ 91%]"),
            vec![("test_a".into(), Verdict::Passed), ("test_b".into(), Verdict::Failed)]
        );
        assert_eq!(
            parse::go("--- PASS: TestA (0.1s)\n    --- FAIL: TestA/b (1s)\n"),
            vec![("TestA".into(), Verdict::Passed), ("TestA/b".into(), Verdict::Failed)]
        );
    }

    #[test]
    fn the_summary_of_librdkafka_is_read_through_its_colours() {
        let row = |name: &str, state: &str, note: &str| {
            format!("|\u{1b}[32m {name}   |  {state} |   1.0s \u{1b}[0m|\u{1b}[36m {note}\u{1b}[0m\n")
        };
        let text = [
            "TEST 20260101000000 (bare, scenario default) SUMMARY\n".to_owned(),
            row("<MAIN>", "PASSED", ""),
            row("0001_multiobj", "PASSED", ""),
            row("0022_local", "SKIPPED", "Filtered due to negative test flags"),
            row("0045_scenario", "SKIPPED", ""),
            row("0002_unkpart", "FAILED", ""),
        ];
        let expected = [
            ("0001_multiobj", Verdict::Passed),
            ("0045_scenario", Verdict::Skipped),
            ("0002_unkpart", Verdict::Failed),
        ];
        let expected: Vec<_> =
            expected.into_iter().map(|(name, verdict)| (name.to_owned(), verdict)).collect();
        assert_eq!(parse::librdkafka(&text.concat()), expected);
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
