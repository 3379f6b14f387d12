//! `cargo xtask …`: the project's own tools. This file owns only the dispatch; each command has its module.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod bench;
mod ci;
mod codegen;
mod compat;
mod crash;
mod disk;
mod fuzz;
mod goldens;
mod import;
mod java;
mod oracle;
mod retained;
mod schema;
mod tidy;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const USAGE: &str = "usage: cargo xtask COMMAND
  schema import JAR...   read the message schemas in Apache Kafka's jars into crates/protocol/schema
  codegen [--check]      write crates/protocol/src/generated from the schema tables
  oracle [--instances N] [--seed S]
                         compare our codec with Apache Kafka's own classes (needs java and mvn)
  tidy                   check layering, purity, sizes, licences and generated code
  compat [SUITE...]      run client suites of other languages against the release binary (or $BITACORA)
  goldens                run our tools against the release binary (or $BITACORA) and compare their output with
                         what the reference's tools printed against the reference's broker
  disk                   take turns with Apache Kafka on one data directory (needs java and mvn)
  crash [--runs N] [--seed S]
                         kill the broker under load and check what is left
  retained [--scenarios N] [--seed S] [--mode direct|restart|kill|copied] [--record]
                         write, clean, trim and expire generated topics beside Apache Kafka and compare what remains;
                         --record: write the digests that the gate compares with (needs java and mvn)
  fuzz [--seconds N] [--minimize] [TARGET...]
                         run the targets of fuzz/ (needs a nightly compiler and cargo-fuzz)
  bench [OPTION VALUE]...
                         measure against Apache Kafka and the floor (needs java, mvn, a C compiler); options: crates/bench
  test                   unit tests and client suites
  ci                     the gate: format, lints, tidy, test";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["schema", "import", jars @ ..] if !jars.is_empty() => import::run(jars),
        ["codegen"] => codegen::run(false),
        ["codegen", "--check"] => codegen::run(true),
        ["oracle", options @ ..] => oracle::run(options),
        ["tidy"] => tidy::run(&root()).map_err(Into::into),
        ["compat", suites @ ..] => compat::run_suites(&root(), &binary(), suites).map_err(Into::into),
        ["goldens"] => goldens::run(&root(), &binary()).map_err(Into::into),
        ["disk"] => disk::run(&root(), &binary()),
        ["crash", options @ ..] => crash::run(&binary(), options),
        ["retained", options @ ..] => retained::run(&root(), &binary(), options),
        ["fuzz", options @ ..] => fuzz::run(&root(), options),
        ["bench", options @ ..] => bench::run(&root(), options),
        ["test"] => ci::run(&root(), &tests()).map_err(Into::into),
        ["ci"] => ci::run(&root(), &gate()).map_err(Into::into),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The binary under test: `$BITACORA`, or the release build.
fn binary() -> PathBuf {
    std::env::var_os("BITACORA").map_or_else(|| root().join("target/release/bitacora"), PathBuf::from)
}

fn tests() -> Vec<ci::Step> {
    vec![
        ci::Step::cargo("unit tests", &["test", "--workspace", "--locked"]),
        ci::Step::function("java oracle", |_| oracle::run(&[]).map_err(|error| error.to_string())),
        ci::Step::cargo("release build", &["build", "--release", "--locked"]),
        ci::Step::function("tool outputs", |root| goldens::run(root, &binary())),
        ci::Step::function("disk, both ways", |root| {
            disk::run(root, &binary()).map_err(|error| error.to_string())
        }),
        ci::Step::function("what remains", |root| {
            retained::gate(root, &binary()).map_err(|error| error.to_string())
        }),
        ci::Step::function("crashes", |_| crash::run(&binary(), &[]).map_err(|error| error.to_string())),
        ci::Step::function("client suites", |root| compat::run_suites(root, &binary(), &[])),
    ]
}

fn gate() -> Vec<ci::Step> {
    let mut steps = vec![
        ci::Step::cargo("format", &["fmt", "--all", "--check"]),
        ci::Step::function("generated code", |_| codegen::run(true).map_err(|error| error.to_string())),
        ci::Step::function("tidy", tidy::run),
        ci::Step::cargo(
            "lints",
            &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
        ),
    ];
    steps.extend(tests());
    steps
}
