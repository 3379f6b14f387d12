//! kafka-console-consumer: prints the records of a topic.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use client::consumer::{Consumer, ConsumerConfig, ConsumerRecord, Position};
use client::{ClientConfig, ClientError, Cluster, Target};
use record::TopicPartition;
use tokio::time::Instant;

use super::common::{interrupted, timeout};
use super::formatter::Formatter;
use crate::admin::load_config;
use crate::failure::Failure;
use crate::filter::TopicFilter;
use crate::io::{End, Io};
use crate::options::{CommandOptions, Kind, Spec, flag, parse_key_value_args, value};

const LOGGER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const DEFAULT_FORMATTER: &str = "org.apache.kafka.tools.consumer.DefaultMessageFormatter";

const FORMATTER_PROPERTIES: &str = "Settings of the formatter as key=value:\n print.timestamp, print.key, print.offset, \
    print.epoch, print.partition, print.headers, print.delivery, print.value (true or false)\n key.separator, \
    line.separator, headers.separator, null.literal\n key.deserializer, value.deserializer, headers.deserializer";

fn specs() -> Vec<Spec> {
    vec![
        value("topic", "The topic to read.").described("topic"),
        value("include", "A regular expression of the topics to read.").described("Java regex (String)"),
        value("partition", "The partition to read, from its end unless --offset says otherwise.")
            .kind(Kind::Integer)
            .described("partition"),
        value("offset", "Where to begin: a number, 'earliest' or 'latest'.")
            .described("consume offset")
            .default_value("latest"),
        value("consumer-property", "Deprecated, use --command-property.").described("consumer_prop"),
        value("command-property", "A consumer property, key=value.").described("consumer_prop"),
        value("consumer.config", "Deprecated, use --command-config.").described("config file"),
        value("command-config", "A file of consumer properties; --command-property wins.")
            .described("config file"),
        value("formatter", "The class that formats records.")
            .described("class")
            .default_value(DEFAULT_FORMATTER),
        value("property", "Deprecated, use --formatter-property.").described("prop"),
        value("formatter-property", FORMATTER_PROPERTIES).described("prop"),
        value("formatter-config", "A file of formatter properties; --formatter-property wins.")
            .described("config file"),
        flag("from-beginning", "Begin with the oldest record where no offset has been committed."),
        value("max-messages", "Leave after so many records.").kind(Kind::Integer).described("num_messages"),
        value("timeout-ms", "Leave when no record comes for so long.")
            .kind(Kind::Long)
            .described("timeout_ms"),
        flag("skip-message-on-error", "Go on after a record that cannot be formatted."),
        value("bootstrap-server", "REQUIRED: brokers to start from.").described("server to connect to"),
        value("key-deserializer", "The class that reads keys.").described("deserializer for keys"),
        value("value-deserializer", "The class that reads values.").described("deserializer for values"),
        flag("enable-systest-events", "Also print events of the consumer's life, for tests."),
        value(
            "isolation-level",
            "read_committed leaves out records of transactions that were not committed.",
        )
        .default_value("read_uncommitted"),
        value("group", "The consumer group to join.").described("consumer group id"),
    ]
}

/// The command line after all its checks.
struct Settings {
    config: ClientConfig,
    topic: Option<String>,
    include: Option<String>,
    partition: Option<i32>,
    position: Position,
    max_messages: Option<u64>,
    timeout: Option<Duration>,
    formatter: Formatter,
    skip_errors: bool,
    systest_events: bool,
    connect_limit: Duration,
}

pub async fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let settings = settings(arguments, io)
        .map_err(|failure| failure.report(|failure| io.error_line(failure.as_exception())))?;
    let result = consume(settings, io).await;
    result.map_err(|failure| {
        failure.report(|failure| {
            io.log("ERROR", "Unknown error when running consumer: ", LOGGER);
            io.error_line(failure.as_exception());
        })
    })
}

fn settings(arguments: &[String], io: &mut Io) -> Result<Settings, Failure> {
    let options = CommandOptions::parse_or_usage(CommandOptions::declare(specs()), arguments, io)?;
    let set = &options.options;
    options.maybe_help_or_version(
        "This tool helps to read data from Kafka topics and outputs it to standard output.",
        io,
    )?;
    check_required(&options, io)?;
    for (new, old) in [("command-property", "consumer-property"), ("command-config", "consumer.config")] {
        if options.has(new) && options.has(old) {
            let message = format!("Options --{old} and --{new} cannot be specified together.");
            return Err(options.usage_and_exit(&message, io).into());
        }
    }
    let property = deprecated(&options, "command-property", "consumer-property", io);
    let file = deprecated(&options, "command-config", "consumer.config", io);
    let from_file = match set.given(file)? {
        Some(file) => load_config(&file)?,
        None => ClientConfig::new(),
    };
    let extra = parse_key_value_args(&set.values_of(property)?);
    let groups = check_group(&options, &from_file, &extra, io)?;
    let config = consumer_config(&options, from_file, extra, groups.first().cloned())?;
    let position = position(&options, io)?;
    let timeout_ms = set.given("timeout-ms")?.and_then(|text| text.parse::<u64>().ok());
    let formatter = formatter(&options, io)?;
    Ok(Settings {
        config,
        topic: set.given("topic")?,
        include: set.given("include")?,
        partition: if options.has("partition") { set.integer("partition")? } else { None },
        position,
        max_messages: set.integer("max-messages")?.and_then(|count| u64::try_from(count).ok()),
        timeout: timeout_ms.map(Duration::from_millis),
        formatter,
        skip_errors: options.has("skip-message-on-error"),
        systest_events: options.has("enable-systest-events"),
        connect_limit: timeout(set)?,
    })
}

fn check_required(options: &CommandOptions, io: &mut Io) -> Result<(), Failure> {
    options.check_one_of(&["topic", "include"], io)?;
    let message = if options.has("partition") {
        options.options.integer("partition")?;
        if !options.has("topic") {
            Some("The topic is required when partition is specified.")
        } else if options.has("from-beginning") && options.has("offset") {
            Some("Options from-beginning and offset cannot be specified together.")
        } else {
            None
        }
    } else {
        options.has("offset").then_some("The partition is required when offset is specified.")
    };
    if let Some(message) = message {
        return Err(options.usage_and_exit(message, io).into());
    }
    Ok(options.check_required(&["bootstrap-server"], io)?)
}

fn deprecated(options: &CommandOptions, new: &'static str, old: &'static str, io: &mut Io) -> &'static str {
    if options.has(old) {
        io.line(format!(
            "Option --{old} is deprecated and will be removed in a future version. Use --{new} instead."
        ));
        return old;
    }
    new
}

fn check_group(
    options: &CommandOptions,
    from_file: &ClientConfig,
    extra: &BTreeMap<String, String>,
    io: &mut Io,
) -> Result<BTreeSet<String>, Failure> {
    let mut groups: BTreeSet<String> = options.options.given("group")?.into_iter().collect();
    groups.extend(from_file.get("group.id").map(str::to_owned));
    groups.extend(extra.get("group.id").cloned());
    if groups.len() > 1 {
        let listed: Vec<String> = groups.iter().map(|group| format!("'{group}'")).collect();
        let message = format!(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via \
             '--consumer.config') do not match. Detected group ids: {}",
            listed.join(", ")
        );
        return Err(options.usage_and_exit(&message, io).into());
    }
    if !groups.is_empty() && options.has("partition") {
        let message = "Options group and partition cannot be specified together.";
        return Err(options.usage_and_exit(message, io).into());
    }
    Ok(groups)
}

fn consumer_config(
    options: &CommandOptions,
    mut config: ClientConfig,
    extra: BTreeMap<String, String>,
    group: Option<String>,
) -> Result<ClientConfig, Failure> {
    let set = &options.options;
    let from_beginning = options.has("from-beginning");
    config.extend(extra);
    match config.get("auto.offset.reset") {
        Some(reset) if from_beginning && reset != "earliest" => {
            return Err(Failure::End(End::message(format!(
                "Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
            ))));
        }
        Some(_) => {}
        None => drop(config.set("auto.offset.reset", if from_beginning { "earliest" } else { "latest" })),
    }
    config.set("bootstrap.servers", set.value_of("bootstrap-server")?.unwrap_or_default());
    config.set_if_absent("client.id", "console-consumer");
    if options.has("isolation-level") || !config.contains("isolation.level") {
        config.set("isolation.level", set.value_of("isolation-level")?.unwrap_or_default());
    }
    match group {
        Some(group) => config.set("group.id", group),
        None => {
            let number = super::common::random() % 100_000;
            config.set("group.id", format!("console-consumer-{number}"));
            config.set_if_absent("enable.auto.commit", "false")
        }
    };
    Ok(config)
}

fn position(options: &CommandOptions, io: &mut Io) -> Result<Position, Failure> {
    let Some(text) = options.options.given("offset")? else {
        return Ok(if options.has("from-beginning") { Position::Beginning } else { Position::End });
    };
    match text.to_lowercase().as_str() {
        "earliest" => Ok(Position::Beginning),
        "latest" => Ok(Position::End),
        _ => match text.parse::<i64>() {
            Ok(offset) if offset >= 0 => Ok(Position::Offset(offset)),
            _ => {
                let message = format!(
                    "The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a \
                     non-negative long."
                );
                Err(options.usage_and_exit(&message, io).into())
            }
        },
    }
}

fn formatter(options: &CommandOptions, io: &mut Io) -> Result<Formatter, Failure> {
    let set = &options.options;
    let class = set.value_of("formatter")?.unwrap_or_default();
    if !Formatter::exists(&class) {
        return Err(options.usage_and_exit(&class, io).into());
    }
    if options.has("property") && options.has("formatter-property") {
        let message = "Options --property and --formatter-property cannot be specified together.";
        return Err(options.usage_and_exit(message, io).into());
    }
    let property = deprecated(options, "formatter-property", "property", io);
    let mut properties = BTreeMap::new();
    if let Some(file) = set.given("formatter-config")? {
        match std::fs::read(&file) {
            Ok(text) => properties = client::config::parse_properties(&String::from_utf8_lossy(&text)),
            Err(_) => return Err(options.usage_and_exit(&file, io).into()),
        }
    }
    for (property, option) in
        [("key.deserializer", "key-deserializer"), ("value.deserializer", "value-deserializer")]
    {
        if let Some(class) = set.value_of(option)?.filter(|class| !class.is_empty()) {
            properties.insert(property.to_owned(), class);
        }
    }
    properties.extend(parse_key_value_args(&set.values_of(property)?));
    Ok(Formatter::new(&class, &properties, io))
}

async fn consume(mut settings: Settings, io: &mut Io) -> Result<(), Failure> {
    let config = ConsumerConfig::from_config(&settings.config)?;
    let cluster = Cluster::new(&settings.config)?;
    if settings.partition.is_none() {
        io.error_line(
            "The consumer rebalance protocol (KIP-848) is production-ready! Set group.protocol=consumer to try it out. \
             See https://kafka.apache.org/documentation/#consumer_rebalance_protocol",
        );
    }
    let deadline = Instant::now() + settings.connect_limit;
    cluster.retry(deadline, || cluster.connection(Target::Any)).await?;
    let mut consumer = Consumer::new(cluster, config);
    match (&settings.topic, settings.partition) {
        (Some(topic), Some(partition)) => {
            let partition = TopicPartition { topic: topic.as_str().into(), partition };
            consumer.assign(std::slice::from_ref(&partition));
            consumer.seek(&partition, settings.position);
        }
        (Some(topic), None) => consumer.subscribe(vec![topic.clone()]),
        (None, _) => {
            // Unlike the other tools' filters this is a plain regular expression, found anywhere in a whole name.
            let filter = TopicFilter::plain(settings.include.as_deref().unwrap_or_default())?;
            consumer.subscribe_pattern(Box::new(move |topic| filter.allows(topic, true)));
        }
    }
    let mut count = 0;
    let result = process(&mut consumer, &mut settings, &mut count, io).await;
    let closed = consumer.close().await;
    if let Err(error) = closed {
        io.log("WARN", &format!("Commit at the end failed: {error}"), LOGGER);
    }
    io.error_line(format!("Processed a total of {count} messages"));
    if settings.systest_events && matches!(result, Err(Failure::End(_))) {
        io.line("shutdown_complete");
    }
    result
}

async fn process(
    consumer: &mut Consumer,
    settings: &mut Settings,
    count: &mut u64,
    io: &mut Io,
) -> Result<(), Failure> {
    let wanted = settings.max_messages.unwrap_or(u64::MAX);
    let mut interrupt = std::pin::pin!(interrupted());
    while *count < wanted {
        io.flush();
        if io.is_broken() {
            io.error_line("Unable to write to standard out, closing consumer.");
            return Ok(());
        }
        let polled = tokio::select! {
            polled = consumer.poll(settings.timeout.unwrap_or(Duration::MAX)) => polled,
            code = &mut interrupt => return Err(Failure::End(End::code(code))),
        };
        let records = match polled {
            Ok(records) if records.is_empty() => {
                report(&Failure::text("org.apache.kafka.common.errors.TimeoutException", ""), io);
                return Ok(());
            }
            Ok(records) => records,
            Err(ClientError::Config(message)) => {
                report(&Failure::text("org.apache.kafka.common.KafkaException", message), io);
                return Ok(());
            }
            Err(error) => {
                report(&error.into(), io);
                return Ok(());
            }
        };
        if let Some(rest) = print(&records, settings, count, wanted, io)? {
            for (partition, offset) in rest {
                consumer.seek(&partition, Position::Offset(offset));
            }
        }
    }
    Ok(())
}

fn report(failure: &Failure, io: &mut Io) {
    io.log("ERROR", "Error processing message, terminating consumer process: ", LOGGER);
    io.error_line(failure.as_exception().trim_end_matches(": "));
}

/// Prints up to `wanted` records; says where the partitions of those that were left over go on.
fn print(
    records: &[ConsumerRecord],
    settings: &mut Settings,
    count: &mut u64,
    wanted: u64,
    io: &mut Io,
) -> Result<Option<BTreeMap<TopicPartition, i64>>, Failure> {
    let mut left: BTreeMap<TopicPartition, i64> = BTreeMap::new();
    for record in records {
        if *count >= wanted {
            let partition = TopicPartition { topic: record.topic.clone(), partition: record.partition };
            left.entry(partition).or_insert(record.offset);
            continue;
        }
        *count += 1;
        match settings.formatter.write(record, io) {
            Ok(()) => {}
            Err(failure) if settings.skip_errors => {
                io.log("ERROR", "Error processing message, skipping this message: ", LOGGER);
                io.error_line(failure.as_exception());
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok((!left.is_empty()).then_some(left))
}
