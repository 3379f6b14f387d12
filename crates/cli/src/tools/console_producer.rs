//! kafka-console-producer: each line of standard input becomes a record.

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client::producer::{Delivery, DeliveryHandler, Producer, ProducerConfig, ProducerRecord};
use client::{ClientConfig, ClientError, Cluster, Target};
use record::Header;
use tokio::time::Instant;

use super::line_reader::{Line, LineReader};
use crate::admin::load_config;
use crate::failure::Failure;
use crate::io::{End, Io};
use crate::options::{CommandOptions, Kind, Spec, flag, parse_key_value_args, value};

const LINE_READER: &str = "org.apache.kafka.tools.LineMessageReader";
const CALLBACK: &str = "org.apache.kafka.clients.producer.internals.ErrorLoggingCallback";
const KAFKA_EXCEPTION: &str = "org.apache.kafka.common.KafkaException";
/// How long the first connection may take; later ones are retried for as long as a record lives.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

const READER_PROPERTIES: &str = "Settings of the line reader as key=value:\n parse.key, parse.headers, ignore.error \
    (true or false)\n key.separator (a tab), headers.delimiter (a tab), headers.separator (,), \
    headers.key.separator (:)\n null.marker: a field equal to it is null";

fn specs() -> Vec<Spec> {
    vec![
        value("topic", "REQUIRED: the topic to write to.").described("topic"),
        value("bootstrap-server", "REQUIRED: brokers to start from, HOST1:PORT1,HOST2:PORT2.")
            .described("server to connect to"),
        flag("sync", "Wait for each record's acknowledgement before the next one is read."),
        value("compression-codec", "none, gzip (when no codec is named), snappy, lz4 or zstd.")
            .optional_argument()
            .described("compression-codec"),
        number("batch-size", Kind::Integer, "size", "16384", "Bytes gathered per partition: batch.size."),
        number("message-send-max-retries", Kind::Integer, "", "3", "How often a send is repeated: retries."),
        number("retry-backoff-ms", Kind::Long, "", "100", "Pause before a retry: retry.backoff.ms."),
        number(
            "timeout",
            Kind::Long,
            "timeout_ms",
            "1000",
            "How long a record waits for company: linger.ms.",
        ),
        value("request-required-acks", "The acknowledgements to wait for: acks.")
            .described("request required acks")
            .default_value("-1"),
        number("request-timeout-ms", Kind::Integer, "request timeout ms", "1500", "request.timeout.ms."),
        number(
            "metadata-expiry-ms",
            Kind::Long,
            "metadata expiration interval",
            "300000",
            "metadata.max.age.ms.",
        ),
        number(
            "max-block-ms",
            Kind::Long,
            "max block on send",
            "60000",
            "How long a send may block: max.block.ms.",
        ),
        number("max-memory-bytes", Kind::Long, "total memory in bytes", "33554432", "buffer.memory."),
        number(
            "max-partition-memory-bytes",
            Kind::Integer,
            "memory in bytes per partition",
            "16384",
            "Deprecated, use --batch-size.",
        ),
        value("line-reader", "The class that reads lines; there is one.")
            .described("reader_class")
            .default_value(LINE_READER),
        number("socket-buffer-size", Kind::Integer, "size", "102400", "send.buffer.bytes."),
        value("property", "Deprecated, use --reader-property.").described("prop"),
        value("reader-property", READER_PROPERTIES).described("prop"),
        value("reader-config", "A file of reader properties; --reader-property wins.")
            .described("config file"),
        value("producer-property", "Deprecated, use --command-property.").described("producer_prop"),
        value("command-property", "A producer property, key=value.").described("producer_prop"),
        value("producer.config", "Deprecated, use --command-config.").described("config file"),
        value("command-config", "A file of producer properties; --command-property wins.")
            .described("config file"),
    ]
}

fn number(
    name: &'static str,
    kind: Kind,
    described: &'static str,
    default: &'static str,
    description: &'static str,
) -> Spec {
    value(name, description).kind(kind).described(described).default_value(default)
}

/// Options that set a producer property when they are given or the property is not.
const MERGED: [(&str, &str); 11] = [
    ("linger.ms", "timeout"),
    ("acks", "request-required-acks"),
    ("request.timeout.ms", "request-timeout-ms"),
    ("retries", "message-send-max-retries"),
    ("retry.backoff.ms", "retry-backoff-ms"),
    ("send.buffer.bytes", "socket-buffer-size"),
    ("buffer.memory", "max-memory-bytes"),
    ("batch.size", "batch-size"),
    ("batch.size", "max-partition-memory-bytes"),
    ("metadata.max.age.ms", "metadata-expiry-ms"),
    ("max.block.ms", "max-block-ms"),
];

pub async fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let result = start(arguments, io).await;
    result.map_err(|failure| {
        failure.report(|failure| match failure {
            Failure::Text { exception: "joptsimple.OptionException", message } => io.error_line(message),
            other => io.error_line(other.as_exception()),
        })
    })
}

/// The names under which properties may stand: the new option, or the deprecated one with a warning.
struct Names {
    command_property: &'static str,
    command_config: &'static str,
    reader_property: &'static str,
}

fn check(options: &CommandOptions, io: &mut Io) -> Result<Names, Failure> {
    options.maybe_help_or_version(
        "This tool helps to read data from standard input and publish it to Kafka.",
        io,
    )?;
    options.check_required(&["topic"], io)?;
    let pairs = [
        ("command-config", "producer.config"),
        ("command-property", "producer-property"),
        ("reader-property", "property"),
    ];
    for (new, old) in pairs {
        if options.has(new) && options.has(old) {
            let message = format!("Options --{new} and --{old} cannot be specified together.");
            return Err(options.usage_and_exit(&message, io).into());
        }
    }
    let mut choose = |new: &'static str, old: &'static str| {
        if options.has(old) {
            io.line(format!(
                "Warning: --{old} is deprecated and will be removed in a future version. Use --{new} instead."
            ));
            return old;
        }
        new
    };
    let names = Names {
        command_property: choose("command-property", "producer-property"),
        command_config: choose("command-config", "producer.config"),
        reader_property: choose("reader-property", "property"),
    };
    if options.has("max-partition-memory-bytes") {
        io.line(
            "Warning: --max-partition-memory-bytes is deprecated and will be removed in Apache Kafka 5.0. Use \
             --batch-size instead.",
        );
    }
    let bootstrap = options.options.value_of("bootstrap-server")?;
    super::common::validate_bootstrap(bootstrap.as_deref())
        .map_err(|message| options.usage_and_exit(message, io))?;
    Ok(names)
}

fn producer_config(options: &CommandOptions, names: &Names) -> Result<ClientConfig, Failure> {
    let set = &options.options;
    let mut config = match set.value_of(names.command_config)? {
        Some(file) => load_config(&file)?,
        None => ClientConfig::new(),
    };
    config.extend(parse_key_value_args(&set.values_of(names.command_property)?));
    config.set("bootstrap.servers", set.value_of("bootstrap-server")?.unwrap_or_default());
    let codec = match (options.has("compression-codec"), set.value_of("compression-codec")?) {
        (false, _) => "none".to_owned(),
        (true, None) => "gzip".to_owned(),
        (true, Some(name)) if name.is_empty() => "gzip".to_owned(),
        (true, Some(name)) => name,
    };
    config.set("compression.type", codec);
    config.set_if_absent("client.id", "console-producer");
    for (property, option) in MERGED {
        if options.has(option) || !config.contains(property) {
            config.set(property, set.value_of(option)?.unwrap_or_default());
        }
    }
    Ok(config)
}

fn reader_properties(options: &CommandOptions, names: &Names) -> Result<BTreeMap<String, String>, Failure> {
    let set = &options.options;
    let mut properties = BTreeMap::new();
    if let Some(file) = set.given("reader-config")? {
        let text =
            std::fs::read(&file).map_err(|_| Failure::text("java.nio.file.NoSuchFileException", file))?;
        properties = client::config::parse_properties(&String::from_utf8_lossy(&text));
    }
    properties.extend(parse_key_value_args(&set.values_of(names.reader_property)?));
    Ok(properties)
}

async fn start(arguments: &[String], io: &mut Io) -> Result<(), Failure> {
    let options = CommandOptions::parse_or_usage(CommandOptions::declare(specs()), arguments, io)?;
    let names = check(&options, io)?;
    let reader_class = options.options.value_of("line-reader")?.unwrap_or_default();
    if reader_class != LINE_READER {
        return Err(Failure::text("java.lang.ClassNotFoundException", reader_class));
    }
    let reader = LineReader::new(&reader_properties(&options, &names)?)
        .map_err(|message| Failure::text(KAFKA_EXCEPTION, message))?;
    let config = producer_config(&options, &names)?;
    let topic = options.options.value_of("topic")?.unwrap_or_default();
    let producer_config = ProducerConfig::from_config(&config)?;
    let cluster = Cluster::new(&config)?;
    connect(&cluster).await?;
    let errors = Errors::default();
    let producer = Producer::new(cluster, producer_config, errors.handler());
    let sync = options.has("sync");
    let result = send_lines(&producer, &reader, &topic, sync, &errors, io).await;
    // Also after a failure, what was read before is sent.
    producer.close().await;
    errors.print(io);
    result
}

async fn connect(cluster: &Cluster) -> Result<(), Failure> {
    let deadline = Instant::now() + CONNECT_LIMIT;
    cluster.retry(deadline, || cluster.connection(Target::Any)).await?;
    Ok(())
}

async fn send_lines(
    producer: &Producer,
    reader: &LineReader,
    topic: &str,
    sync: bool,
    errors: &Errors,
    io: &mut Io,
) -> Result<(), Failure> {
    let prompt = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let mut input = std::io::stdin().lock();
    let mut number = 0;
    let mut text = Vec::new();
    loop {
        number += 1;
        if prompt {
            io.print(">");
            io.flush();
        }
        if !read_line(&mut input, &mut text) {
            return Ok(());
        }
        let line = String::from_utf8_lossy(&text);
        let parsed =
            reader.parse(&line, number).map_err(|message| Failure::text(KAFKA_EXCEPTION, message))?;
        let sent = send_line(producer, topic, &parsed).await;
        match sent {
            Ok(()) => {}
            Err(error) if sync => return Err(error.into()),
            Err(error) => errors.add(topic, parsed.token(), &error),
        }
        if sync {
            producer.flush().await;
            if let Some(error) = errors.take_first() {
                return Err(error.into());
            }
        }
        errors.print(io);
    }
}

async fn send_line(producer: &Producer, topic: &str, line: &Line) -> Result<(), ClientError> {
    let headers: Vec<Header<'_>> = line
        .headers
        .iter()
        .map(|(key, value)| Header::new(key, value.as_deref().map(str::as_bytes)))
        .collect();
    let record = ProducerRecord {
        topic,
        partition: None,
        timestamp: crate::now_ms(),
        key: line.key.as_deref().map(str::as_bytes),
        value: line.value.as_deref().map(str::as_bytes),
        headers: &headers,
    };
    producer.send(&record, line.token()).await
}

/// Reads up to `\n`, `\r` or `\r\n`, as Java's BufferedReader does; `false` at the end of the input.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> bool {
    line.clear();
    let Ok(count) = input.read_until(b'\n', line) else { return false };
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    }
    count > 0
}

/// Failures of deliveries, kept until the tool prints them.
#[derive(Clone, Default)]
struct Errors {
    failed: Arc<Mutex<Vec<(String, ClientError)>>>,
}

impl Errors {
    fn handler(&self) -> DeliveryHandler {
        let errors = self.clone();
        Arc::new(move |delivery: &Delivery<'_>| {
            if let Err(error) = delivery.result {
                for token in delivery.tokens {
                    errors.add(delivery.topic, *token, error);
                }
            }
        })
    }

    fn add(&self, topic: &str, token: u64, error: &ClientError) {
        let bytes = |size: u64| if size == 0 { "null".to_owned() } else { format!("{} bytes", size - 1) };
        let line = format!(
            "Error when sending message to topic {topic} with key: {}, value: {} with error:",
            bytes(token >> 32),
            bytes(token & 0xffff_ffff)
        );
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).push((line, error.clone()));
    }

    fn take_first(&self) -> Option<ClientError> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let first = failed.first().map(|(_, error)| error.clone());
        failed.clear();
        first
    }

    fn print(&self, io: &mut Io) {
        let failed = std::mem::take(&mut *self.failed.lock().unwrap_or_else(PoisonError::into_inner));
        for (line, error) in failed {
            io.log("ERROR", &line, CALLBACK);
            io.error_line(error.api().map_or(error.to_string(), |api| format!("{}: {api}", api.exception())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_as_on_every_platform() {
        let mut input = std::io::Cursor::new(b"a\r\nb\n\nlast".to_vec());
        let mut line = Vec::new();
        let mut lines = Vec::new();
        while read_line(&mut input, &mut line) {
            lines.push(String::from_utf8(line.clone()).unwrap());
        }
        assert_eq!(lines, ["a", "b", "", "last"]);
    }
}
