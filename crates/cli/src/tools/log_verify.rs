//! `bitacora log verify DIR`: checks a log directory, or one partition's, offline.
//!
//! Not a tool of Kafka. Only reads. Exit code 1 when something is wrong, a torn tail included.

use std::path::Path;

use compression::KafkaCodecs;
use env::real::RealFileSystem;
use serde_json::{Value, json};
use storage::verify::{
    CutWhen, Finding, LogDirReport, PartitionReport, Severity, verify_log_dir, verify_partition_alone,
};

use crate::failure::Failure;
use crate::io::{End, Io};
use crate::options::{CommandOptions, OptionParser};
use crate::output::{Format, pretty_table};

const USAGE: &str = "bitacora log verify DIR [-o json|yaml]\n\
                     Checks the files of a log directory, or of one partition in it, without changing them: checksums, \
                     batches, offsets, indexes, leader epochs, producers, checkpoints. The node must be stopped. Exit \
                     code 1 when something is wrong.";

pub fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let result = execute(arguments, io);
    result.map_err(|failure| failure.report(|failure| io.error_line(format!("Error: {failure}"))))
}

fn execute(arguments: &[String], io: &mut Io) -> Result<(), Failure> {
    let parser: OptionParser = CommandOptions::declare(Vec::new());
    let (words, rest): (Vec<&String>, Vec<&String>) = {
        let at = arguments.iter().position(|word| word.starts_with('-')).unwrap_or(arguments.len());
        let (words, rest) = arguments.split_at(at);
        (words.iter().collect(), rest.iter().collect())
    };
    let rest: Vec<String> = rest.into_iter().cloned().collect();
    let options = CommandOptions::parse(parser, &rest)?;
    let [word, directory] = words.as_slice() else {
        return Err(options.usage_and_exit(USAGE, io).into());
    };
    if *word != "verify" || options.has("help") {
        return Err(options.usage_and_exit(USAGE, io).into());
    }
    let format = Format::of(&options.options)?;
    let report = verify(Path::new(directory.as_str()))
        .map_err(|error| Failure::illegal_argument(format!("{directory} cannot be checked: {error}")))?;
    if !format.emit(|| document(&report), io) {
        show(&report, io);
    }
    if report.is_good() { Ok(()) } else { Err(End::code(1).into()) }
}

/// A directory that holds segments is one partition's; its report stands alone then.
fn verify(directory: &Path) -> std::io::Result<LogDirReport> {
    let fs = RealFileSystem;
    let is_partition = std::fs::read_dir(directory)?
        .filter_map(Result::ok)
        .any(|entry| entry.file_name().to_string_lossy().ends_with(".log"));
    if !is_partition {
        return verify_log_dir(&fs, directory, &KafkaCodecs);
    }
    let partition = verify_partition_alone(&fs, &std::path::absolute(directory)?, &KafkaCodecs)?;
    let when = partition.cut.as_ref().map(|cut| cut.when);
    Ok(LogDirReport {
        dir: directory.to_owned(),
        had_clean_shutdown: when.is_none_or(|when| when != CutWhen::NextStart),
        findings: Vec::new(),
        partitions: vec![partition],
    })
}

fn findings_value(findings: &[Finding]) -> Vec<Value> {
    let value = |finding: &Finding| json!({ "severity": finding.severity.name(), "file": finding.file, "what": finding.what });
    findings.iter().map(value).collect()
}

fn document(report: &LogDirReport) -> Value {
    let partitions = report.partitions.iter().map(|partition| {
        json!({
            "partition": partition.name,
            "good": partition.is_good(),
            "segments": partition.segments,
            "bytes": partition.bytes,
            "logStartOffset": partition.log_start_offset,
            "nextOffset": partition.next_offset,
            "batches": partition.batches,
            "records": partition.records,
            "recoveryPoint": partition.recovery_point,
            "cut": partition.cut.as_ref().map(|cut| json!({
                "when": cut.when.name(),
                "segment": cut.segment,
                "position": cut.position,
                "offset": cut.offset,
                "bytes": cut.bytes,
                "records": cut.records,
                "laterSegments": cut.segments,
                "why": cut.why,
            })),
            "findings": findings_value(&partition.findings),
        })
    });
    json!({
        "directory": report.dir.display().to_string(),
        "good": report.is_good(),
        "cleanShutdown": report.had_clean_shutdown,
        "findings": findings_value(&report.findings),
        "partitions": partitions.collect::<Vec<_>>(),
    })
}

fn show(report: &LogDirReport, io: &mut Io) {
    let headers = ["PARTITION", "SEGMENTS", "BYTES", "OFFSETS", "RECORDS", "STATUS"];
    let rows: Vec<Vec<String>> = report.partitions.iter().map(row).collect();
    pretty_table(&headers, &rows, io);
    for finding in &report.findings {
        io.line(format!("{}: {}: {}", finding.severity.name(), finding.file, finding.what));
    }
    for partition in &report.partitions {
        for finding in &partition.findings {
            let (severity, file) = (finding.severity.name(), &finding.file);
            io.line(format!("{severity}: {}/{file}: {}", partition.name, finding.what));
        }
        if let Some(cut) = &partition.cut {
            let when = match cut.when {
                CutWhen::NextStart => "the next start cuts the log there",
                CutWhen::AfterUncleanStop => {
                    "the last stop was clean: only a recovery would cut the log there, readers fail before"
                }
                CutWhen::Never => {
                    "it lies before the recovery point, where recovery does not look: readers fail there. Restore the \
                     file from a copy"
                }
            };
            io.line(format!(
                "{}: damaged in segment {} at byte {}, offset {}: {}. Behind it are {} bytes with {} readable records, {} \
                 later segments among them; {when}.",
                partition.name, cut.segment, cut.position, cut.offset, cut.why, cut.bytes, cut.records, cut.segments
            ));
        }
    }
    let bad = report.partitions.iter().filter(|partition| !partition.is_good()).count();
    io.line(format!("{} partitions checked, {bad} with something wrong", report.partitions.len()));
}

fn row(partition: &PartitionReport) -> Vec<String> {
    let worst = partition.findings.iter().map(|finding| finding.severity).max();
    let status = match (&partition.cut, worst) {
        (Some(cut), _) => match cut.when {
            CutWhen::NextStart => "will be cut",
            CutWhen::AfterUncleanStop | CutWhen::Never => "damaged",
        },
        (None, Some(Severity::Damage)) => "damaged",
        (None, Some(Severity::Repairable)) => "repairable",
        (None, _) => "good",
    };
    vec![
        partition.name.clone(),
        partition.segments.to_string(),
        partition.bytes.to_string(),
        format!("{}..{}", partition.log_start_offset, partition.next_offset),
        partition.records.to_string(),
        status.to_owned(),
    ]
}
