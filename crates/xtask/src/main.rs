//! `cargo xtask …`: the project's own tools. This file owns only the dispatch; each command has its module.

use std::process::ExitCode;

mod codegen;
mod import;
mod oracle;
mod schema;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const USAGE: &str = "usage: cargo xtask COMMAND
  schema import JAR...   read the message schemas in Apache Kafka's jars into crates/protocol/schema
  codegen [--check]      write crates/protocol/src/generated from the schema tables
  oracle [--instances N] [--seed S]
                         compare our codec with Apache Kafka's own classes (needs java and mvn)";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["schema", "import", jars @ ..] if !jars.is_empty() => import::run(jars),
        ["codegen"] => codegen::run(false),
        ["codegen", "--check"] => codegen::run(true),
        ["oracle", options @ ..] => oracle::run(options),
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
