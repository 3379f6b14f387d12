//! Apache Kafka's own tests of what a broker answers, against our process.
//!
//! `compat/kafka-own-tests/pom.xml` pins Kafka's test jars; one class of ours replaces the one of the test runtime that
//! starts brokers inside the JVM, so that each test starts our binary. `reference.txt` is what the same run gave with
//! Apache Kafka 4.4.0 as the process under test: every test that passed there has to pass here too, or be in
//! `allowed.txt` with a reason, and none may be missing.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use super::{Outcome, Target, Verdict, parse};
use crate::java;

/// The folder in `compat/`.
pub const FOLDER: &str = "kafka-own-tests";

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// The classes that `quick.txt` names.
    Quick,
    All,
}

pub fn run(target: &Target<'_>, selection: Selection) -> Result<Outcome, String> {
    let classpath = java::prepare(FOLDER).map_err(|error| error.to_string())?;
    let list = if selection == Selection::Quick { "quick.txt" } else { "classes.txt" };
    let list = target.folder.join(list);
    let classes = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    let classes: Vec<&str> = classes.lines().filter(|line| !line.starts_with('#')).collect();
    let scratch = target.work.join("tmp");
    fs::create_dir_all(&scratch).map_err(|error| error.to_string())?;
    let binary = target.binary.canonicalize().map_err(|error| error.to_string())?;
    let errors = fs::File::create(target.work.join("errors.txt")).map_err(|error| error.to_string())?;
    let output = Command::new("java")
        .args(["-Xmx512m", "-Djava.net.preferIPv4Stack=true"])
        .arg(format!("-Djava.io.tmpdir={}", scratch.display()))
        .arg(format!("-Dbroker.binary={}", binary.display()))
        .args(["-cp", &classpath, "OwnTests"])
        .args(&classes)
        .stdin(Stdio::null())
        .stderr(errors)
        .output()
        .map_err(|error| format!("java: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut verdicts = parse::tap(&text);
    let reference = target.folder.join("reference.txt");
    let reference =
        fs::read_to_string(&reference).map_err(|error| format!("{}: {error}", reference.display()))?;
    verdicts.extend(missing(&reference, &verdicts, &classes));
    Ok(Outcome { verdicts, text })
}

/// Tests of these classes that the reference's run had and ours had not.
fn missing(reference: &str, verdicts: &[(String, Verdict)], classes: &[&str]) -> Vec<(String, Verdict)> {
    let ran: BTreeSet<&str> = verdicts.iter().map(|(name, _)| name.as_str()).collect();
    let classes: BTreeSet<&str> = classes.iter().filter_map(|class| class.rsplit('.').next()).collect();
    parse::tap(reference)
        .into_iter()
        .filter(|(name, _)| !ran.contains(name.as_str()))
        .filter(|(name, _)| name.split('.').next().is_some_and(|class| classes.contains(class)))
        .map(|(name, _)| (name, Verdict::Failed))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_did_not_run_is_a_failure() {
        let reference =
            "ok 1 - ATest.a[1]\nok 2 - ATest.b[1] # SKIP x\nnot ok 3 - ATest.c[1] # y\nok 4 - BTest.a[1]\n";
        let verdicts = vec![("ATest.a[1]".to_owned(), Verdict::Passed)];
        let names: Vec<String> = missing(reference, &verdicts, &["kafka.server.ATest"])
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["ATest.b[1]", "ATest.c[1]"]);
    }
}
