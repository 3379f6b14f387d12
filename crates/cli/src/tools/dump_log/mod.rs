//! kafka-dump-log: prints what is in a log directory's files: segments, snapshots, indexes, producer snapshots.
//!
//! Works offline, file by file, and only reads; a file may be of a running node (indexes end in zeros then) or torn.
//! Segments are read batch by batch: memory is bounded by the largest batch. Output and complaints are the
//! reference's; where it dies of an exception, the first line of what it prints goes to stderr and the code is 1.

mod decoder;
mod indexes;
mod json;
mod log_file;
mod remote;
mod segment;

use std::path::Path;

use crate::io::{End, Io};
use crate::options::{CommandOptions, Kind, OptionError, OptionParser, Spec, flag, value};

use self::decoder::{MessageDecoder, ValueDecoder};

const USAGE: &str = "This tool helps to parse a log file and dump its contents to the console, useful for debugging a \
                     seemingly corrupt log segment.";
const STRING_DECODER: &str = "org.apache.kafka.tools.api.StringDecoder";

/// An exception that ends the reference's tool.
#[derive(Debug)]
struct Uncaught {
    exception: &'static str,
    message: Option<String>,
}

impl Uncaught {
    fn new(exception: &'static str, message: impl Into<String>) -> Self {
        Uncaught { exception, message: Some(message.into()) }
    }

    fn io(path: &Path, error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::NotFound => {
                Uncaught::new("java.nio.file.NoSuchFileException", path.display().to_string())
            }
            std::io::ErrorKind::PermissionDenied => {
                Uncaught::new("java.nio.file.AccessDeniedException", path.display().to_string())
            }
            _ => Uncaught::new("java.io.IOException", format!("{}: {error}", path.display())),
        }
    }

    fn end(self) -> End {
        let message = self.message.map_or_else(String::new, |message| format!(": {message}"));
        End::message(format!("Exception in thread \"main\" {}{message}", self.exception))
    }
}

impl From<OptionError> for Uncaught {
    fn from(error: OptionError) -> Self {
        Uncaught::new("joptsimple.OptionException", error.to_string())
    }
}

fn decoder_option(name: &'static str, what: &str) -> Spec {
    let text = format!("The class that turns {what} into text: String-, Integer-, Long- or DefaultDecoder.");
    value(name, text).optional_argument().default_value(STRING_DECODER)
}

fn specs() -> Vec<Spec> {
    let log = |topic: &str| format!("The log is one of {topic}; show its records field by field.");
    vec![
        flag("print-data-log", "Print the records' keys and values; implied by every decoder option."),
        flag("verify-index-only", "Check indexes against their logs without printing the entries."),
        flag("index-sanity-check", "Do with indexes only the checks that a starting broker does."),
        value("files", "REQUIRED: the files to dump, separated by commas.").described("file1, file2, ..."),
        value("max-message-size", "The size of the largest batch.")
            .kind(Kind::Integer)
            .described("size")
            .default_value("5242880"),
        value("max-bytes", "How much of each log to read.")
            .kind(Kind::Integer)
            .described("size")
            .default_value(i32::MAX.to_string()),
        flag("deep-iteration", "Print records, not only batches; implied by --print-data-log."),
        decoder_option("value-decoder-class", "values"),
        decoder_option("key-decoder-class", "keys"),
        flag("offsets-decoder", log("__consumer_offsets")),
        flag("transaction-log-decoder", log("__transaction_state")),
        flag("cluster-metadata-decoder", log("__cluster_metadata, or a snapshot of it")),
        flag("remote-log-metadata-decoder", log("__remote_log_metadata")),
        flag("share-group-state-decoder", log("__share_group_state")),
        flag(
            "skip-record-metadata",
            "Print of a record only its key and value, and nothing of control records.",
        ),
    ]
}

/// The options that imply printing, beside `--print-data-log`.
const DECODERS: [&str; 7] = [
    "offsets-decoder",
    "transaction-log-decoder",
    "cluster-metadata-decoder",
    "remote-log-metadata-decoder",
    "share-group-state-decoder",
    "value-decoder-class",
    "key-decoder-class",
];

/// How files are dumped.
struct Settings {
    prints_contents: bool,
    is_deep: bool,
    skips_record_metadata: bool,
    verifies_only: bool,
    checks_sanity_only: bool,
    max_message_size: i32,
    max_bytes: i32,
    /// `None`: a class that is not known. Only files with records complain about it.
    decoder: Option<MessageDecoder>,
}

pub fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let refused = |error: OptionError| Uncaught::from(error).end();
    let mut specs = specs();
    specs.push(flag("help", "Print this text and leave.").for_help());
    specs.push(flag("version", "Print the version of Apache Kafka whose behaviour this is.").for_help());
    let options = CommandOptions::parse(OptionParser::new(specs), arguments).map_err(refused)?;
    options.maybe_help_or_version(USAGE, io)?;
    options.check_required(&["files"], io)?;
    dump(&options, io).map_err(Uncaught::end)
}

fn dump(options: &CommandOptions, io: &mut Io) -> Result<(), Uncaught> {
    let set = &options.options;
    let files = set.value_of("files")?.unwrap_or_default();
    let prints_contents = options.has("print-data-log") || set.has_any(&DECODERS);
    let settings = Settings {
        prints_contents,
        is_deep: prints_contents || options.has("deep-iteration"),
        skips_record_metadata: options.has("skip-record-metadata"),
        verifies_only: options.has("verify-index-only"),
        checks_sanity_only: options.has("index-sanity-check"),
        max_message_size: set.integer("max-message-size")?.unwrap_or_default(),
        max_bytes: set.integer("max-bytes")?.unwrap_or(i32::MAX),
        decoder: decoder(options)?,
    };
    let mut findings = Findings::default();
    for file in split_like_java(&files) {
        dump_file(Path::new(file), &settings, &mut findings, io)?;
    }
    findings.print(io);
    Ok(())
}

/// Java's `split`: empty strings at the end are dropped.
fn split_like_java(text: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = text.split(',').collect();
    while parts.len() > 1 && parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    parts
}

fn decoder(options: &CommandOptions) -> Result<Option<MessageDecoder>, Uncaught> {
    let named = |option: &str| -> Result<Option<ValueDecoder>, Uncaught> {
        Ok(ValueDecoder::of_class(&options.options.value_of(option)?.unwrap_or_default()))
    };
    Ok(match DECODERS.into_iter().find(|option| options.has(option)) {
        Some("offsets-decoder") => Some(MessageDecoder::Offsets),
        Some("transaction-log-decoder") => Some(MessageDecoder::TransactionLog),
        Some("cluster-metadata-decoder") => Some(MessageDecoder::ClusterMetadata),
        Some("remote-log-metadata-decoder") => Some(MessageDecoder::RemoteLogMetadata),
        Some("share-group-state-decoder") => Some(MessageDecoder::ShareGroupState),
        _ => match (named("key-decoder-class")?, named("value-decoder-class")?) {
            (Some(key), Some(value)) => Some(MessageDecoder::Plain { key, value }),
            _ => None,
        },
    })
}

fn dump_file(path: &Path, settings: &Settings, findings: &mut Findings, io: &mut Io) -> Result<(), Uncaught> {
    io.line(format!("Dumping {}", path.display()));
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match name.rsplit_once('.').map(|(_, suffix)| suffix) {
        Some("log" | "checkpoint") => segment::dump(path, &name, settings, findings, io),
        Some("index") => indexes::dump_offset_index(path, &name, settings, findings, io),
        Some("timeindex") => indexes::dump_time_index(path, &name, settings, findings, io),
        Some("snapshot") => indexes::dump_producer_snapshot(path, io),
        Some("txnindex") => indexes::dump_transaction_index(path, io),
        _ => {
            io.error_line(format!("Ignoring unknown file {}", path.display()));
            Ok(())
        }
    }
}

/// Pairs of numbers found wrong, by file, in the order in which the reference shows them.
type ByFile = Vec<(String, Vec<(i64, i64)>)>;

/// What was found wrong; printed at the end.
#[derive(Debug, Default)]
struct Findings {
    index_mismatches: ByFile,
    time_index_mismatches: ByFile,
    out_of_order_timestamps: ByFile,
    offsets_not_found: ByFile,
    non_consecutive: ByFile,
}

fn note(findings: &mut ByFile, path: &Path, pair: (i64, i64)) {
    let name = std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
    match findings.iter_mut().find(|(file, _)| *file == name) {
        Some((_, pairs)) => pairs.push(pair),
        None => findings.push((name, vec![pair])),
    }
}

impl Findings {
    fn print(mut self, io: &mut Io) {
        // Sorted maps in the reference: one pair for each first number, the last one found.
        for (_, pairs) in &mut self.index_mismatches {
            *pairs = sorted(pairs).into_iter().rev().collect();
        }
        for (_, pairs) in &mut self.non_consecutive {
            *pairs = sorted(pairs);
        }
        let mut show = |findings: &ByFile, title: &str, line: &dyn Fn(i64, i64) -> String| {
            for (file, pairs) in findings {
                io.error_line(format!("{title}{file}"));
                for (first, second) in pairs {
                    io.error_line(line(*first, *second));
                }
            }
        };
        show(&self.index_mismatches, "Mismatches in :", &|index, log| {
            format!("  Index offset: {index}, log offset: {log}")
        });
        show(&self.time_index_mismatches, "Found timestamp mismatch in :", &|index, log| {
            format!("  Index timestamp: {index}, log timestamp: {log}")
        });
        show(&self.out_of_order_timestamps, "Found out of order timestamp in :", &|index, before| {
            format!("  Index timestamp: {index}, Previously indexed timestamp: {before}")
        });
        show(&self.offsets_not_found, "The following indexed offsets are not found in :", &|index, log| {
            format!("Indexed offset: {index}, found log offset: {log}")
        });
        show(&self.non_consecutive, "Non-consecutive offsets in ", &|key, next| {
            format!("  {key} is followed by {next}")
        });
    }
}

fn sorted(pairs: &[(i64, i64)]) -> Vec<(i64, i64)> {
    pairs.iter().copied().collect::<std::collections::BTreeMap<i64, i64>>().into_iter().collect()
}
