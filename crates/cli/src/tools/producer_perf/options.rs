//! The command line of kafka-producer-perf-test, checked as the reference checks it.

use client::ClientConfig;

use crate::admin::load_config;
use crate::argparse::{Action, Argument, Kind, Namespace, Parser, Refusal, option};
use crate::failure::Failure;
use crate::io::{End, Io};
use crate::output::Format;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyDistribution {
    None,
    Range,
    Random,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Payload {
    /// Letters, that many.
    Random(usize),
    Lines(Vec<String>),
    Monotonic,
}

#[derive(Debug)]
pub(super) struct Settings {
    pub topic: String,
    pub num_records: i64,
    pub warmup_records: i64,
    pub payload: Payload,
    pub throughput: f64,
    pub config: ClientConfig,
    pub print_metrics: bool,
    pub reporting_interval_ms: i64,
    pub key_range: u32,
    pub key_distribution: KeyDistribution,
    pub random_seed: i64,
    pub format: Format,
}

fn valued(
    dest: &'static str,
    flag: &'static str,
    metavar: &'static str,
    kind: Kind,
    help: &'static str,
) -> Argument {
    option(dest, &[flag], help).kind(kind).metavar(metavar)
}

fn text(dest: &'static str, flag: &'static str, metavar: &'static str, help: &'static str) -> Argument {
    valued(dest, flag, metavar, Kind::String, help)
}

fn long(dest: &'static str, flag: &'static str, metavar: &'static str, help: &'static str) -> Argument {
    valued(dest, flag, metavar, Kind::Long, help)
}

fn switch(dest: &'static str, flag: &'static str, help: &'static str) -> Argument {
    option(dest, &[flag], help).action(Action::StoreTrue)
}

fn parser() -> Parser {
    const PROPERTY: &str = "PROP-NAME=PROP-VALUE";
    let parser = Parser::new("kafka-producer-perf-test", "Measures how fast records can be produced.")
        .showing_defaults()
        .with(text("bootstrap_server", "--bootstrap-server", "BOOTSTRAP-SERVER", "Brokers to start from."))
        .with(text("topic", "--topic", "TOPIC", "The topic that gets the records.").required())
        .with(long("num_records", "--num-records", "NUM-RECORDS", "How many records.").required())
        .with(
            text("payload_delimiter", "--payload-delimiter", "PAYLOAD-DELIMITER", "What separates payloads.")
                .default_value("\\n"),
        )
        .with(
            valued(
                "throughput",
                "--throughput",
                "THROUGHPUT",
                Kind::Double,
                "Records per second; -1: no limit.",
            )
            .required(),
        )
        .with(
            text("producer_props", "--producer-props", PROPERTY, "Deprecated, use --command-property.")
                .action(Action::StoreMany),
        )
        .with(
            text("command_property", "--command-property", PROPERTY, "Producer properties; win over files.")
                .action(Action::StoreMany),
        )
        .with(text(
            "producer_config",
            "--producer.config",
            "CONFIG-FILE",
            "Deprecated, use --command-config.",
        ))
        .with(text("command_config", "--command-config", "CONFIG-FILE", "A file of producer properties."))
        .with(switch("print_metrics", "--print-metrics", "Print metrics at the end."));
    with_records(parser).online()
}

/// The options that say which records are sent, and when.
fn with_records(parser: Parser) -> Parser {
    parser
        .with(text("transactional_id", "--transactional-id", "TRANSACTIONAL-ID", "The transactional id."))
        .with(long(
            "transaction_duration_ms",
            "--transaction-duration-ms",
            "TRANSACTION-DURATION",
            "How long each transaction is.",
        ))
        .with(
            long(
                "warmup_records",
                "--warmup-records",
                "WARMUP-RECORDS",
                "Records that do not count as steady.",
            )
            .default_value("0"),
        )
        .with(
            long("reporting_interval", "--reporting-interval", "INTERVAL-MS", "Time between two reports.")
                .default_value("5000"),
        )
        .with(valued(
            "record_key_range",
            "--record-key-range",
            "KEY-RANGE",
            Kind::Integer,
            "Keys are numbers below this.",
        ))
        .with(
            valued(
                "key_distribution",
                "--key-distribution",
                "KEY-DISTRIBUTION",
                Kind::OneOf(&["none", "range", "random"]),
                "No keys, keys in turn, or random ones.",
            )
            .default_value("none"),
        )
        .with(
            long("random_seed", "--random-seed", "RANDOM-SEED", "Seed of what is random.").default_value("0"),
        )
        .exclusive(
            true,
            vec![
                valued("record_size", "--record-size", "RECORD-SIZE", Kind::Integer, "Bytes of each record."),
                text("payload_file", "--payload-file", "PAYLOAD-FILE", "A file to take payloads from."),
                switch("payload_monotonic", "--payload-monotonic", "Payloads are numbers that rise by one."),
            ],
        )
}

/// Settings, or the end of the tool.
pub(super) fn settings(arguments: &[String], io: &mut Io) -> Result<Settings, End> {
    let parser = parser();
    let namespace = match parser.parse(arguments) {
        Ok(namespace) => namespace,
        // Without any argument the reference shows help and is content; asked for help it is not.
        Err(Refusal::Error { .. }) if arguments.is_empty() => {
            if let Err(Refusal::Help(text)) = parser.parse(&["--help".to_owned()]) {
                io.print(text);
            }
            return Err(End::code(0));
        }
        Err(Refusal::Help(text)) => {
            io.print(text);
            return Err(End::code(1));
        }
        Err(Refusal::Error { text, .. }) => {
            io.error(&text);
            return Err(End::code(1));
        }
    };
    if let Err(message) = check(&namespace) {
        if let Refusal::Error { text, .. } = parser.error(&message) {
            io.error(&text);
        }
        return Err(End::code(1));
    }
    build(&namespace, io).map_err(|failure| super::uncaught(failure, io))
}

fn check(namespace: &Namespace) -> Result<(), String> {
    let number = |dest| namespace.number::<i64>(dest);
    let given = |dest| namespace.list(dest).is_some();
    let positive = |dest: &'static str, flag: &str| match number(dest) {
        Some(value) if value <= 0 => Err(format!("{flag} should be greater than zero.")),
        _ => Ok(()),
    };
    positive("num_records", "--num-records")?;
    if number("warmup_records").unwrap_or(0).max(0) >= number("num_records").unwrap_or(0) {
        return Err(
            "The value for --warmup-records must be strictly fewer than the number of records in the test, \
                    --num-records."
                .to_owned(),
        );
    }
    positive("record_size", "--record-size")?;
    let sources =
        ["bootstrap_server", "command_property", "producer_props", "producer_config", "command_config"];
    if !sources.into_iter().any(given) {
        return Err(
            "At least one of --bootstrap-server, --command-property, --producer-props, --producer.config or \
                    --command-config must be specified."
                .to_owned(),
        );
    }
    if given("command_property") && given("producer_props") {
        return Err("--command-property and --producer-props cannot be specified together.".to_owned());
    }
    if given("command_config") && given("producer_config") {
        return Err("--command-config and --producer.config cannot be specified together.".to_owned());
    }
    positive("transaction_duration_ms", "--transaction-duration-ms")?;
    positive("reporting_interval", "--reporting-interval")?;
    positive("record_key_range", "--record-key-range")?;
    match (namespace.get("key_distribution"), given("record_key_range")) {
        (Some("none"), true) => {
            Err("--key-distribution must be 'range' or 'random' when --record-key-range is \
                                     specified."
                .to_owned())
        }
        (Some("range" | "random"), false) => {
            Err("--record-key-range is required when --key-distribution is 'range' or 'random'.".to_owned())
        }
        _ => Ok(()),
    }
}

fn build(namespace: &Namespace, io: &mut Io) -> Result<Settings, Failure> {
    let number = |dest| namespace.number::<i64>(dest);
    let payload = match (namespace.get("payload_file"), number("record_size")) {
        (Some(file), _) => {
            let delimiter = match namespace.get("payload_delimiter") {
                None | Some("\\n") => "\n",
                Some(other) => other,
            };
            Payload::Lines(super::read_payloads(file, delimiter, io)?)
        }
        (None, Some(size)) => Payload::Random(usize::try_from(size).unwrap_or(0)),
        (None, None) => Payload::Monotonic,
    };
    let mut deprecated = |dest, flag: &str, instead: &str| {
        let given = namespace.list(dest);
        if given.is_some() {
            io.line(format!(
                "Option {flag} has been deprecated and will be removed in a future version. Use {instead} instead."
            ));
        }
        given
    };
    let properties = deprecated("producer_props", "--producer-props", "--command-property");
    let properties = properties.or_else(|| namespace.list("command_property"));
    let file = deprecated("producer_config", "--producer.config", "--command-config");
    let file =
        file.and_then(<[String]>::last).map(String::as_str).or_else(|| namespace.get("command_config"));
    let mut config = match file {
        Some(file) => load_config(file)?,
        None => ClientConfig::new(),
    };
    for property in properties.unwrap_or_default() {
        // Java's split drops empty strings at the end, so `a=` has one piece.
        match property.trim_end_matches('=').split('=').collect::<Vec<_>>().as_slice() {
            [key, value] => config.set(key, *value),
            _ => return Err(Failure::illegal_argument(format!("Invalid property: {property}"))),
        };
    }
    config.set_if_absent("client.id", "perf-producer-client");
    config.set_if_absent("max.block.ms", namespace.get("timeout").unwrap_or("10000"));
    if let Some(servers) = namespace.get("bootstrap_server") {
        config.set("bootstrap.servers", servers);
    }
    if let Some(id) = namespace.get("transactional_id") {
        config.set("transactional.id", id);
    } else if namespace.get("transaction_duration_ms").is_some() {
        config.set_if_absent("transactional.id", "performance-producer-");
    }
    Ok(Settings {
        topic: namespace.get("topic").unwrap_or_default().to_owned(),
        num_records: number("num_records").unwrap_or(0),
        warmup_records: number("warmup_records").unwrap_or(0).max(0),
        payload,
        throughput: namespace.get("throughput").and_then(|text| text.trim().parse().ok()).unwrap_or(-1.0),
        config,
        print_metrics: namespace.has("print_metrics"),
        reporting_interval_ms: number("reporting_interval").unwrap_or(5000),
        key_range: number("record_key_range").and_then(|range| u32::try_from(range).ok()).unwrap_or(1),
        key_distribution: match namespace.get("key_distribution") {
            Some("range") => KeyDistribution::Range,
            Some("random") => KeyDistribution::Random,
            _ => KeyDistribution::None,
        },
        random_seed: number("random_seed").unwrap_or(0),
        format: namespace.get("output").map_or(Ok(Format::Table), Format::parse)?,
    })
}
