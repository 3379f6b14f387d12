//! `cargo xtask fuzz [--seconds N] [TARGET…]`: the targets of `fuzz/`, one after the other, and what each did.
//!
//! Needs a nightly compiler and `cargo install cargo-fuzz`. A target runs on its committed corpus and on a copy below
//! `fuzz/target/corpus` that grows; with `--minimize` the copy, cut down to what covers most, takes the committed one's place.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Result;

/// Of the whole process, in MiB; the sanitizer's own share is the larger part of it.
const RSS_LIMIT_MB: u32 = 512;
/// Of one allocation: no length that was read may be believed before it is bounded.
const MALLOC_LIMIT_MB: u32 = 128;
/// Committed inputs per target.
const MAX_COMMITTED: usize = 120;

/// What libFuzzer counted.
struct Totals {
    runs: String,
    peak_rss_mb: String,
}

pub fn run(root: &Path, options: &[&str]) -> Result<()> {
    let (mut seconds, mut minimize, mut chosen) = (620_u32, false, Vec::new());
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "--seconds" => seconds = options.next().ok_or("--seconds wants a number")?.parse()?,
            "--minimize" => minimize = true,
            target => chosen.push(target.to_owned()),
        }
    }
    let folder = root.join("fuzz").canonicalize()?;
    if chosen.is_empty() {
        chosen = targets(&folder)?;
    }
    let mut failed = Vec::new();
    println!("target                        runs  peak MiB  result");
    for target in &chosen {
        let (totals, is_ok) = run_target(&folder, target, seconds)?;
        let result = if is_ok { "ok" } else { "FAILED" };
        println!("{target:<22} {:>11} {:>9}  {result}", totals.runs, totals.peak_rss_mb);
        if is_ok && minimize {
            keep_smallest(&folder, target)?;
        }
        if !is_ok {
            failed.push(target.as_str());
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("targets failed: {}", failed.join(", ")).into()) }
}

fn targets(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.join("fuzz_targets"))? {
        names.extend(entry?.path().file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

fn cargo_fuzz(folder: &Path, command: &str, target: &str) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(["+nightly", "fuzz", command, target]).current_dir(folder);
    // The toolchain that runs this program must not stand in for the nightly one.
    cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    cargo
}

fn run_target(folder: &Path, target: &str, seconds: u32) -> Result<(Totals, bool)> {
    let grown = folder.join("target/corpus").join(target);
    fs::create_dir_all(&grown)?;
    let log = folder.join("target").join(format!("{target}.log"));
    let out = fs::File::create(&log)?;
    let status = cargo_fuzz(folder, "run", target)
        .arg(&grown)
        .arg(folder.join("corpus").join(target))
        .args(["--", "-print_final_stats=1"])
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-rss_limit_mb={RSS_LIMIT_MB}"))
        .arg(format!("-malloc_limit_mb={MALLOC_LIMIT_MB}"))
        .stdout(out.try_clone()?)
        .stderr(out)
        .status()
        .map_err(|e| format!("cannot run cargo fuzz: {e}"))?;
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if !status.success() {
        let lines: Vec<&str> = text.lines().collect();
        eprintln!("{}", lines[lines.len().saturating_sub(60)..].join("\n"));
    }
    Ok((totals(&text), status.success()))
}

fn totals(text: &str) -> Totals {
    let stat = |name: &str| {
        let line = text.lines().rev().find(|line| line.starts_with("stat::") && line.contains(name));
        line.and_then(|line| line.split_whitespace().last()).unwrap_or("?").to_owned()
    };
    Totals { runs: stat("number_of_executed_units"), peak_rss_mb: stat("peak_rss_mb") }
}

/// The smallest inputs of the minimized corpus become the committed ones.
fn keep_smallest(folder: &Path, target: &str) -> Result<()> {
    let (grown, committed) = (folder.join("target/corpus").join(target), folder.join("corpus").join(target));
    for entry in fs::read_dir(&committed)? {
        let entry = entry?;
        fs::copy(entry.path(), grown.join(entry.file_name()))?;
    }
    let status = cargo_fuzz(folder, "cmin", target).arg(&grown).status()?;
    if !status.success() {
        return Err(format!("the corpus of {target} cannot be minimized ({status})").into());
    }
    let mut inputs = Vec::new();
    for entry in fs::read_dir(&grown)? {
        let entry = entry?;
        inputs.push((entry.metadata()?.len(), entry.path()));
    }
    inputs.sort();
    fs::remove_dir_all(&committed)?;
    fs::create_dir_all(&committed)?;
    for (_, path) in inputs.iter().take(MAX_COMMITTED) {
        fs::copy(path, committed.join(path.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_counts_of_libfuzzer_are_read() {
        let text = "#12 pulse\nstat::number_of_executed_units: 5448\nstat::peak_rss_mb:              178\n";
        let read = totals(text);
        assert_eq!((read.runs.as_str(), read.peak_rss_mb.as_str()), ("5448", "178"));
        assert_eq!(totals("").runs, "?");
    }
}
