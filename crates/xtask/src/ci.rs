//! `cargo xtask ci` and `test`: the one gate, as a list of steps with their times.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A named part of the gate.
pub struct Step {
    pub name: &'static str,
    pub run: Box<dyn Fn(&Path) -> Result<(), String>>,
}

impl Step {
    /// A step that runs a cargo command.
    pub fn cargo(name: &'static str, arguments: &'static [&'static str]) -> Self {
        Self { name, run: Box::new(move |root| command(root, env!("CARGO"), arguments)) }
    }

    /// A step that calls a function.
    pub fn function(name: &'static str, run: impl Fn(&Path) -> Result<(), String> + 'static) -> Self {
        Self { name, run: Box::new(run) }
    }
}

/// Runs a command in `root` with inherited output.
pub fn command(root: &Path, program: &str, arguments: &[&str]) -> Result<(), String> {
    let status = Command::new(program)
        .args(arguments)
        .current_dir(root)
        .status()
        .map_err(|error| format!("{program}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{program} {} failed: {status}", arguments.join(" "))) }
}

/// Runs all steps, the later ones also when an earlier one failed, and sums up.
#[allow(clippy::disallowed_methods)] // a developer's tool measures its own steps
pub fn run(root: &Path, steps: &[Step]) -> Result<(), String> {
    let mut results: Vec<(&str, Duration, Result<(), String>)> = Vec::new();
    for step in steps {
        println!("==> {}", step.name);
        let start = Instant::now();
        let result = (step.run)(root);
        if let Err(error) = &result {
            eprintln!("==> {} FAILED: {error}", step.name);
        }
        results.push((step.name, start.elapsed(), result));
    }
    println!("\nstep                              seconds  result");
    for (name, time, result) in &results {
        println!("{name:<32} {:>8.1}  {}", time.as_secs_f64(), if result.is_ok() { "ok" } else { "FAILED" });
    }
    let failed = results.iter().filter(|(_, _, result)| result.is_err()).count();
    println!("ci: {} passed, {failed} failed", results.len() - failed);
    if failed == 0 { Ok(()) } else { Err(format!("{failed} steps failed")) }
}
