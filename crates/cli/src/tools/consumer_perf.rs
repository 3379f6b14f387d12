//! kafka-consumer-perf-test: reads a topic as fast as it comes and reports throughput.

use std::time::Duration;

use client::consumer::{Consumer, ConsumerConfig};
use client::{ClientConfig, Cluster};
use serde_json::json;
use tokio::time::Instant;

use crate::admin::load_config;
use crate::failure::Failure;
use crate::filter::TopicFilter;
use crate::io::{End, Io};
use crate::java::fixed;
use crate::now_ms;
use crate::options::{CommandOptions, Kind, OptionError, Spec, flag, parse_key_value_args, value};
use crate::output::Format;
use crate::text::format_date;
use crate::tools::common::random;

const MEGABYTE: f64 = 1024.0 * 1024.0;
/// How long one poll waits, as the reference's does.
const POLL: Duration = Duration::from_millis(100);
/// The same while a group is being joined, whose end is to be noticed.
const POLL_WHILE_JOINING: Duration = Duration::from_millis(5);
const NEW_FIELDS: &str = ", rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec";

fn specs() -> Vec<Spec> {
    let number = |name, kind, described, default: &str, text: &str| {
        value(name, text).kind(kind).described(described).default_value(default)
    };
    vec![
        value("bootstrap-server", "REQUIRED: brokers to start from.").described("server to connect to"),
        value("topic", "The topic to read.").described("topic"),
        value("include", "A regular expression for the topics to read.").described("Java regex (String)"),
        value("group", "The group to read in.")
            .described("gid")
            .default_value(format!("perf-consumer-{}", random() % 100_000)),
        number("fetch-size", Kind::Integer, "size", "1048576", "max.partition.fetch.bytes."),
        value("command-property", "A consumer property, key=value.").described("prop1=val1"),
        flag("from-latest", "Begin at the end when the group has no offsets yet."),
        number("socket-buffer-size", Kind::Integer, "size", "2097152", "receive.buffer.bytes."),
        value("consumer.config", "Deprecated, use --command-config.").described("config file"),
        value("command-config", "A file of consumer properties.").described("config file"),
        flag("print-metrics", "Print metrics at the end."),
        flag("show-detailed-stats", "Report at every interval."),
        number("timeout", Kind::Long, "milliseconds", "10000", "The longest time without a record.")
            .optional_argument(),
        value("messages", "Deprecated, use --num-records.").kind(Kind::Long).described("count"),
        value("num-records", "REQUIRED: how many records to read.").kind(Kind::Long).described("count"),
        number("reporting-interval", Kind::Long, "interval_ms", "5000", "Time between two reports."),
        value("date-format", "How times are written, in the letters of SimpleDateFormat.")
            .described("date format")
            .default_value("yyyy-MM-dd HH:mm:ss:SSS"),
        flag("hide-header", "Leave the header out."),
    ]
}

struct Settings {
    topic: Option<String>,
    include: Option<String>,
    num_records: u64,
    timeout_ms: i64,
    interval_ms: i64,
    is_detailed: bool,
    date_format: String,
    format: Format,
}

pub async fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let parser = CommandOptions::declare(specs());
    let options = CommandOptions::parse_or_usage(parser, arguments, io)?;
    check(&options, io)?;
    let result = measure(&options, io).await;
    result.map_err(|failure| {
        failure.report(|failure| {
            io.error_line(failure.to_string());
            io.error_line(format!("{}\n", failure.as_exception()));
        })
    })
}

fn check(options: &CommandOptions, io: &mut Io) -> Result<(), End> {
    options.maybe_help_or_version("This tool is used to verify the consumer performance.", io)?;
    options.check_required(&["bootstrap-server"], io)?;
    options.check_one_of(&["topic", "include"], io)?;
    options.check_one_of(&["messages", "num-records"], io)?;
    options.check_invalid("consumer.config", &["command-config"], io)?;
    if options.has("messages") {
        io.line("Warning: --messages is deprecated. Use --num-records instead.");
    }
    if options.has("consumer.config") {
        io.line("Warning: --consumer.config is deprecated. Use --command-config instead.");
    }
    Ok(())
}

fn config(options: &CommandOptions) -> Result<ClientConfig, Failure> {
    let set = &options.options;
    let file = match set.given("consumer.config")? {
        Some(file) => Some(file),
        None => set.given("command-config")?,
    };
    let mut config = match file {
        Some(file) => load_config(&file)?,
        None => ClientConfig::new(),
    };
    config.extend(parse_key_value_args(&set.values_of("command-property")?));
    let text = |name: &str| -> Result<String, OptionError> { Ok(set.value_of(name)?.unwrap_or_default()) };
    config.set("bootstrap.servers", text("bootstrap-server")?);
    config.set("group.id", text("group")?);
    config.set("receive.buffer.bytes", text("socket-buffer-size")?);
    config.set("max.partition.fetch.bytes", text("fetch-size")?);
    config.set("auto.offset.reset", if options.has("from-latest") { "latest" } else { "earliest" });
    config.set("check.crcs", "false");
    config.set_if_absent("client.id", "perf-consumer-client");
    Ok(config)
}

fn settings(options: &CommandOptions, format: Format) -> Result<Settings, Failure> {
    let set = &options.options;
    let count = match set.given("messages")? {
        Some(_) => set.long("messages")?,
        None => set.long("num-records")?,
    };
    let interval_ms = set.long("reporting-interval")?.unwrap_or_default();
    if interval_ms <= 0 {
        return Err(Failure::illegal_argument("Reporting interval must be greater than 0."));
    }
    Ok(Settings {
        topic: set.given("topic")?,
        include: set.given("include")?,
        num_records: u64::try_from(count.unwrap_or(0)).unwrap_or(0),
        timeout_ms: set.long("timeout")?.unwrap_or(10_000),
        interval_ms,
        is_detailed: options.has("show-detailed-stats"),
        date_format: set.value_of("date-format")?.unwrap_or_default(),
        format,
    })
}

async fn measure(options: &CommandOptions, io: &mut Io) -> Result<(), Failure> {
    let format = Format::of(&options.options)?;
    let is_detailed = options.has("show-detailed-stats");
    if !options.has("hide-header") && format.is_table() {
        let first = if is_detailed { "time, threadId" } else { "start.time, end.time" };
        io.line(format!("{first}, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec{NEW_FIELDS}"));
        io.flush();
    }
    let config = config(options)?;
    let cluster = Cluster::new(&config)?;
    let mut consumer = Consumer::new(cluster, ConsumerConfig::from_config(&config)?);
    let started_ms = now_ms();
    let settings = settings(options, format)?;
    match (&settings.topic, &settings.include) {
        (Some(topic), _) => consumer.subscribe(vec![topic.clone()]),
        (None, pattern) => {
            let filter = TopicFilter::plain(pattern.as_deref().unwrap_or_default())?;
            consumer.subscribe_pattern(Box::new(move |topic| filter.allows(topic, true)));
        }
    }
    let mut count = Count::new(started_ms);
    count.consume(&mut consumer, &settings, io).await?;
    let ended_ms = now_ms();
    count.report(&settings, ended_ms, io);
    if options.has("print-metrics") {
        count.print_metrics(&config.string("client.id", ""), io);
    }
    consumer.close().await?;
    Ok(())
}

/// What has been read so far.
struct Count {
    started_ms: i64,
    records: u64,
    bytes: u64,
    joining_ms: i64,
    /// Of `joining_ms`, what belongs to the current reporting interval.
    joining_in_interval_ms: i64,
    joining_since_ms: Option<i64>,
    reported_ms: i64,
    reported_records: u64,
    reported_bytes: u64,
}

impl Count {
    fn new(now_ms: i64) -> Self {
        Count {
            started_ms: now_ms,
            records: 0,
            bytes: 0,
            joining_ms: 0,
            joining_in_interval_ms: 0,
            joining_since_ms: Some(now_ms),
            reported_ms: now_ms,
            reported_records: 0,
            reported_bytes: 0,
        }
    }

    async fn consume(
        &mut self,
        consumer: &mut Consumer,
        settings: &Settings,
        io: &mut Io,
    ) -> Result<(), Failure> {
        let mut consumed_ms = now_ms();
        self.reported_ms = consumed_ms;
        let mut now = consumed_ms;
        while self.records < settings.num_records && now - consumed_ms <= settings.timeout_ms {
            let records = self.poll(consumer).await?;
            now = now_ms();
            if !records.is_empty() {
                consumed_ms = now;
            }
            for record in records {
                self.records += 1;
                let size =
                    |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
                self.bytes += size(&record.key) + size(&record.value);
                if now - self.reported_ms < settings.interval_ms {
                    continue;
                }
                if settings.is_detailed && settings.format.is_table() {
                    io.line(self.progress(now, &settings.date_format));
                    io.flush();
                }
                self.joining_in_interval_ms = 0;
                self.reported_ms = now;
                self.reported_records = self.records;
                self.reported_bytes = self.bytes;
            }
            if io.is_broken() {
                return Ok(());
            }
        }
        if self.records < settings.num_records && settings.format.is_table() {
            io.line(format!(
                "WARNING: Exiting before consuming the expected number of records: timeout ({} ms) exceeded. You can \
                 use the --timeout option to increase the timeout.",
                settings.timeout_ms
            ));
        }
        Ok(())
    }

    /// One poll of the reference's length, in short steps as long as nothing is assigned.
    async fn poll(
        &mut self,
        consumer: &mut Consumer,
    ) -> Result<Vec<client::consumer::ConsumerRecord>, Failure> {
        let deadline = Instant::now() + POLL;
        loop {
            let limit = if self.joining_since_ms.is_some() { POLL_WHILE_JOINING } else { POLL };
            let records = consumer.poll(limit).await?;
            let is_assigned = consumer.assignment().next().is_some();
            match self.joining_since_ms {
                Some(since) if is_assigned => {
                    let elapsed = now_ms() - since;
                    self.joining_ms += elapsed;
                    self.joining_in_interval_ms += elapsed;
                    self.joining_since_ms = None;
                }
                None if !is_assigned => self.joining_since_ms = Some(now_ms()),
                _ => {}
            }
            if !records.is_empty() || Instant::now() >= deadline {
                return Ok(records);
            }
        }
    }

    fn progress(&self, now_ms: i64, date_format: &str) -> String {
        let elapsed_ms = (now_ms - self.reported_ms) as f64;
        let megabytes = self.bytes as f64 / MEGABYTE;
        let interval_megabytes = (self.bytes - self.reported_bytes) as f64 / MEGABYTE;
        let interval_records = (self.records - self.reported_records) as f64;
        let fetch_ms = now_ms - self.reported_ms - self.joining_in_interval_ms;
        let per_second = |amount: f64| if fetch_ms <= 0 { 0.0 } else { 1000.0 * amount / fetch_ms as f64 };
        format!(
            "{}, 0, {}, {}, {}, {}, {}, {fetch_ms}, {}, {}",
            format_date(date_format, now_ms),
            fixed(megabytes, 4),
            fixed(1000.0 * interval_megabytes / elapsed_ms, 4),
            self.records,
            fixed(interval_records / elapsed_ms * 1000.0, 4),
            self.joining_in_interval_ms,
            fixed(per_second(interval_megabytes), 4),
            fixed(per_second(interval_records), 4),
        )
    }

    fn report(&self, settings: &Settings, ended_ms: i64, io: &mut Io) {
        let seconds = (ended_ms - self.started_ms) as f64 / 1000.0;
        let fetch_ms = ended_ms - self.started_ms - self.joining_ms;
        let fetch_seconds = fetch_ms as f64 / 1000.0;
        let megabytes = self.bytes as f64 / MEGABYTE;
        let records = self.records as f64;
        if settings.format.is_table() {
            if !settings.is_detailed {
                io.line(format!(
                    "{}, {}, {}, {}, {}, {}, {}, {fetch_ms}, {}, {}",
                    format_date(&settings.date_format, self.started_ms),
                    format_date(&settings.date_format, ended_ms),
                    fixed(megabytes, 4),
                    fixed(megabytes / seconds, 4),
                    self.records,
                    fixed(records / seconds, 4),
                    self.joining_ms,
                    fixed(megabytes / fetch_seconds, 4),
                    fixed(records / fetch_seconds, 4),
                ));
            }
            return;
        }
        let value = || {
            json!({
                "startTimeMs": self.started_ms,
                "endTimeMs": ended_ms,
                "records": self.records,
                "bytes": self.bytes,
                "recordsPerSecond": records / seconds,
                "megabytesPerSecond": megabytes / seconds,
                "rebalanceTimeMs": self.joining_ms,
                "fetchTimeMs": fetch_ms,
                "complete": self.records >= settings.num_records,
            })
        };
        settings.format.emit(value, io);
    }

    /// The metrics of the reference that are counted here, in its form.
    fn print_metrics(&self, client_id: &str, io: &mut Io) {
        let name = |metric| format!("consumer-fetch-manager-metrics:{metric}:{{client-id={client_id}}}");
        let metrics =
            [(name("bytes-consumed-total"), self.bytes), (name("records-consumed-total"), self.records)];
        let width = metrics.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        io.line(format!("\n{:<width$}   Value", "Metric Name"));
        for (name, value) in metrics {
            io.line(format!("{name:<width$} : {value}.000"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_written_as_the_reference_writes_it() {
        let mut count = Count::new(0);
        count.records = 3000;
        count.bytes = 3 << 20;
        count.reported_records = 1000;
        count.reported_bytes = 1 << 20;
        count.joining_in_interval_ms = 500;
        let line = count.progress(1000, "SSS");
        assert_eq!(line, "000, 0, 3.0000, 2.0000, 3000, 2000.0000, 500, 500, 4.0000, 4000.0000");
    }
}
