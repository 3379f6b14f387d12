//! `cargo xtask tidy`: what the compiler does not check. Layering, purity, file sizes, licences, stray machine paths.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Largest hand-written source file, tests included.
const MAX_FILE_LINES: usize = 1000;

/// The crates of each layer and the workspace crates that each may use. Dev-dependencies are not layered.
const EDGES: &[(&str, &[&str])] = &[
    ("record", &[]),
    ("timeline", &[]),
    ("protocol", &["record"]),
    ("config", &["protocol"]),
    ("metadata", &["protocol", "config", "timeline", "record"]),
    ("raft", &["record", "protocol", "config", "metadata", "timeline"]),
    ("controller", &["record", "protocol", "config", "metadata", "timeline"]),
    ("coordinator", &["record", "protocol", "config", "metadata", "timeline"]),
    ("coordinator-group", &["coordinator", "record", "protocol", "config", "metadata", "timeline"]),
    ("replication", &["record", "protocol", "config", "metadata", "timeline"]),
    ("env", &["record"]),
    ("compression", &["record"]),
    ("storage", &["record", "protocol", "config", "metadata", "env", "compression"]),
    (
        "broker",
        &[
            "record",
            "timeline",
            "protocol",
            "config",
            "metadata",
            "raft",
            "controller",
            "coordinator",
            "coordinator-group",
            "replication",
            "env",
            "compression",
            "storage",
        ],
    ),
    ("network", &["record", "protocol", "env"]),
    ("client", &["record", "protocol", "config", "compression"]),
    (
        "server",
        &[
            "record",
            "protocol",
            "config",
            "metadata",
            "env",
            "compression",
            "storage",
            "broker",
            "network",
            "client",
        ],
    ),
    // The command line never links the broker; offline tools read storage and metadata.
    ("cli", &["record", "protocol", "config", "metadata", "compression", "storage", "env", "client"]),
    ("bitacora", &["cli", "server", "config"]),
];

/// Crates whose code must be pure: no IO, threads, ambient clock or randomness, no unsafe.
const PURE: &[&str] = &[
    "record",
    "timeline",
    "protocol",
    "config",
    "metadata",
    "raft",
    "controller",
    "coordinator",
    "coordinator-group",
    "replication",
];

const IMPURE_WORDS: &[&str] = &[
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::thread",
    "Instant::now",
    "SystemTime::now",
    "tokio::",
    "std::process",
    "std::env::",
];

const LICENCES: &[&str] = &[
    "Apache-2.0",
    "MIT",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
    "0BSD",
    "CC0-1.0",
    "BSL-1.0",
    "Apache-2.0 WITH LLVM-exception",
    "MIT-0",
    "CDLA-Permissive-2.0",
];

/// Runs every check; prints each finding on its line.
pub fn run(root: &Path) -> Result<(), String> {
    let metadata = cargo_metadata(root)?;
    let mut findings = Vec::new();
    check_layers(&metadata, &mut findings);
    check_licences(&metadata, &mut findings);
    let files = tracked_files(root)?;
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
        check_source(root, file, &mut findings);
    }
    check_texts(root, &files, &mut findings);
    if findings.is_empty() {
        return Ok(());
    }
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    Err(format!("{} findings", findings.len()))
}

fn cargo_metadata(root: &Path) -> Result<Value, String> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

fn check_layers(metadata: &Value, findings: &mut Vec<String>) {
    let allowed: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    let members: Vec<&str> =
        packages(metadata).filter(|p| p["source"].is_null()).filter_map(|p| p["name"].as_str()).collect();
    for package in packages(metadata).filter(|p| p["source"].is_null()) {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(edges) = allowed.get(name) else { continue };
        for dependency in
            package["dependencies"].as_array().into_iter().flatten().filter(|d| d["kind"].is_null())
        {
            let used = dependency["name"].as_str().unwrap_or_default();
            if members.contains(&used) && !edges.contains(&used) {
                findings.push(format!("layering: {name} must not use {used}"));
            }
            let runtime = matches!(used, "tokio" | "rustls" | "axum" | "hyper");
            if runtime && !["network", "client", "server", "cli"].contains(&name) {
                findings
                    .push(format!("layering: {name} must not use {used}; only the shell and the edges do"));
            }
        }
    }
}

fn check_licences(metadata: &Value, findings: &mut Vec<String>) {
    for package in packages(metadata).filter(|p| !p["source"].is_null()) {
        let licence = package["license"].as_str().unwrap_or("none").replace('/', " OR ");
        let fits = licence.split(" OR ").any(|choice| {
            choice.split(" AND ").all(|part| LICENCES.contains(&part.trim().trim_matches(['(', ')'])))
        });
        if !fits {
            findings.push(format!("licence: {} {} is under {licence}", package["name"], package["version"]));
        }
    }
}

fn tracked_files(root: &Path) -> Result<Vec<PathBuf>, String> {
    let output = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("git: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout)
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        .collect())
}

fn check_source(root: &Path, file: &Path, findings: &mut Vec<String>) {
    let name = file.to_string_lossy();
    let Ok(text) = fs::read_to_string(root.join(file)) else { return };
    if name.contains("/generated/") {
        return;
    }
    let lines = text.lines().count();
    if lines > MAX_FILE_LINES {
        findings.push(format!("size: {name} has {lines} lines, more than {MAX_FILE_LINES}"));
    }
    let Some(crate_name) = PURE.iter().find(|pure| name.starts_with(&format!("crates/{pure}/src/"))) else {
        return;
    };
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    for (number, line) in code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
        for word in IMPURE_WORDS.iter().filter(|word| line.contains(**word)) {
            findings
                .push(format!("purity: {name}:{}: {crate_name} is pure and must not use {word}", number + 1));
        }
    }
    if name.ends_with("src/lib.rs") && !text.contains("#![forbid(unsafe_code)]") {
        findings.push(format!("purity: {name} lacks #![forbid(unsafe_code)]"));
    }
}

/// Texts name nothing of the machine that they were written on.
fn check_texts(root: &Path, files: &[PathBuf], findings: &mut Vec<String>) {
    let stray = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];
    for file in files.iter().filter(|file| !file.ends_with("Cargo.lock")) {
        let Ok(text) = fs::read_to_string(root.join(file)) else { continue };
        for (number, line) in text.lines().enumerate() {
            if stray.iter().any(|word| line.contains(word)) {
                findings.push(format!("machine path: {}:{}", file.display(), number + 1));
            }
        }
    }
}
