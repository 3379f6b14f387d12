//! kafka-producer-perf-test: sends records as fast as it may and reports throughput and latency.
//!
//! One task makes and sends records, the producer's own task reports batches; statistics are shared behind a lock that
//! is taken once per batch. Lines of a reporting interval are printed by the sending task, so output has one writer.

mod options;
mod stats;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::producer::{Delivery, DeliveryHandler, Producer, ProducerConfig, ProducerRecord};
use client::{ClientError, Cluster};
use serde_json::json;

use self::options::{KeyDistribution, Payload, Settings};
use self::stats::{Reports, Sample};
use crate::failure::Failure;
use crate::io::{End, Io};
use crate::java::SplittableRandom;
use crate::now_ms;
use crate::output::Format;

/// Sends between two looks at the reports.
const SENDS_PER_LOOK: i64 = 512;
/// Sleeps shorter than this are saved up.
const MIN_SLEEP: Duration = Duration::from_millis(2);

pub async fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let settings = options::settings(arguments, io)?;
    let result = measure(&settings, io).await;
    result.map_err(|failure| uncaught(failure, io))
}

/// The reference dies of such a failure; this is the first line of what it prints.
fn uncaught(failure: Failure, io: &mut Io) -> End {
    failure.report(|failure| {
        io.error_line(format!("Exception in thread \"main\" {}", failure.as_exception()));
    })
}

/// What does not change while records are sent.
struct Run {
    reports: Arc<Reports>,
    producer: Producer,
    errors: Arc<AtomicU64>,
}

fn start(settings: &Settings) -> Result<Run, Failure> {
    let cluster = Cluster::new(&settings.config)?;
    let config = ProducerConfig::from_config(&settings.config)?;
    let reports = Arc::new(Reports::new(settings.num_records, settings.reporting_interval_ms, now_ms()));
    let errors = Arc::new(AtomicU64::new(0));
    let (shared, failed) = (Arc::clone(&reports), Arc::clone(&errors));
    let handler: DeliveryHandler = Arc::new(move |delivery: &Delivery<'_>| match delivery.result {
        Ok(()) => shared.record(delivery.tokens, now_ms()),
        Err(error) => {
            failed.fetch_add(delivery.tokens.len() as u64, Ordering::Relaxed);
            shared.say_error(exception(error));
        }
    });
    Ok(Run { reports, producer: Producer::new(cluster, config, handler), errors })
}

/// As Java prints an exception.
fn exception(error: &ClientError) -> String {
    match error.api() {
        Some(error) => format!("{}: {error}", error.exception()),
        None => error.to_string(),
    }
}

async fn measure(settings: &Settings, io: &mut Io) -> Result<(), Failure> {
    let table = settings.format.is_table();
    let run = start(settings)?;
    if settings.warmup_records > 0 && table {
        let count = settings.warmup_records;
        io.line(format!(
            "Warmup first {count} records. Steady state results will print after the complete test summary."
        ));
    }
    io.flush();
    send_all(settings, &run, io).await?;
    run.producer.close().await;
    print_reports(&run.reports, table, io);
    let now = now_ms();
    match settings.format {
        Format::Table => {
            for line in run.reports.totals(now) {
                io.line(line);
            }
            if settings.print_metrics {
                print_metrics(&run.reports, run.errors.load(Ordering::Relaxed), settings, io);
            }
        }
        format => {
            let failed = run.errors.load(Ordering::Relaxed);
            format.emit(|| json!({ "total": run.reports.values(now), "failed": failed }), io);
        }
    }
    Ok(())
}

async fn send_all(settings: &Settings, run: &Run, io: &mut Io) -> Result<(), Failure> {
    let mut random = SplittableRandom::new(settings.random_seed);
    let mut throttle = Throttle::new(settings.throughput, now_ms());
    let mut payload = Vec::new();
    let table = settings.format.is_table();
    for index in 0..settings.num_records {
        let value = next_payload(&settings.payload, &mut payload, &mut random, index);
        let key = next_key(settings, index, &mut random);
        let sent_at = now_ms();
        if settings.warmup_records > 0 && index == settings.warmup_records {
            run.reports.start_steady_state(settings.num_records - settings.warmup_records, sent_at);
        }
        let record = ProducerRecord {
            topic: &settings.topic,
            partition: None,
            timestamp: sent_at,
            key: key.as_deref(),
            value: Some(value),
            headers: &[],
        };
        let is_steady = settings.warmup_records > 0 && index >= settings.warmup_records;
        let sample = Sample { sent_at, bytes: value.len(), is_steady };
        match run.producer.send(&record, run.reports.token(sample)).await {
            Ok(()) => {}
            Err(error @ (ClientError::Unreachable { .. } | ClientError::TimedOut { .. })) => {
                return Err(error.into());
            }
            Err(error) => {
                run.errors.fetch_add(1, Ordering::Relaxed);
                run.reports.say_error(exception(&error));
            }
        }
        let wait = throttle.wait_after(index, sent_at);
        if index % SENDS_PER_LOOK == 0 || wait.is_some() {
            print_reports(&run.reports, table, io);
            if io.is_broken() {
                return Ok(());
            }
        }
        if let Some(wait) = wait {
            tokio::time::sleep(wait).await;
        }
    }
    Ok(())
}

fn next_payload<'a>(
    payload: &'a Payload,
    buffer: &'a mut Vec<u8>,
    random: &mut SplittableRandom,
    index: i64,
) -> &'a [u8] {
    match payload {
        Payload::Lines(lines) => {
            let count = u32::try_from(lines.len()).unwrap_or(u32::MAX);
            let chosen = random.below(count) as usize;
            lines.get(chosen).map(String::as_bytes).unwrap_or_default()
        }
        Payload::Random(size) => {
            buffer.resize(*size, 0);
            for byte in buffer.iter_mut() {
                *byte = b'A' + random.below(26) as u8;
            }
            buffer
        }
        Payload::Monotonic => {
            buffer.clear();
            buffer.extend_from_slice(index.to_string().as_bytes());
            buffer
        }
    }
}

fn next_key(settings: &Settings, index: i64, random: &mut SplittableRandom) -> Option<Vec<u8>> {
    let range = settings.key_range;
    let key = match settings.key_distribution {
        KeyDistribution::None => return None,
        KeyDistribution::Range => index % i64::from(range),
        KeyDistribution::Random => i64::from(random.below(range)),
    };
    Some(key.to_string().into_bytes())
}

fn print_reports(reports: &Reports, table: bool, io: &mut Io) {
    if !reports.has_news() {
        return;
    }
    for report in reports.take() {
        match report {
            stats::News::Line(line) if table => io.line(line),
            stats::News::Line(_) => {}
            stats::News::Error(line) => io.error_line(line),
        }
    }
    io.flush();
}

/// The metrics of the reference that are counted here, in its form.
fn print_metrics(reports: &Reports, errors: u64, settings: &Settings, io: &mut Io) {
    let tags = format!("{{client-id={}}}", settings.config.string("client.id", ""));
    let (records, bytes) = reports.counts();
    let metrics = [
        (format!("producer-metrics:record-error-total:{tags}"), errors),
        (format!("producer-metrics:record-send-total:{tags}"), records),
        (format!("producer-metrics:record-value-bytes-total:{tags}"), bytes),
    ];
    let width = metrics.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    io.line(format!("\n{:<width$}   Value", "Metric Name"));
    for (name, value) in metrics {
        io.line(format!("{name:<width$} : {value}.000"));
    }
}

/// Keeps to a rate by sleeping when too much has been sent, as the reference does.
struct Throttle {
    started_ms: i64,
    rate: f64,
    deficit: Duration,
}

impl Throttle {
    fn new(rate: f64, started_ms: i64) -> Self {
        Throttle { started_ms, rate, deficit: Duration::ZERO }
    }

    fn wait_after(&mut self, sent: i64, now_ms: i64) -> Option<Duration> {
        if self.rate < 0.0 {
            return None;
        }
        let elapsed_seconds = (now_ms - self.started_ms) as f64 / 1000.0;
        if elapsed_seconds <= 0.0 || sent as f64 / elapsed_seconds <= self.rate {
            return None;
        }
        if self.rate == 0.0 {
            return Some(Duration::MAX);
        }
        self.deficit += Duration::from_secs_f64(1.0 / self.rate);
        (self.deficit >= MIN_SLEEP).then(|| std::mem::take(&mut self.deficit))
    }
}

/// A payload file's lines; messages go where the reference prints them.
fn read_payloads(file: &str, delimiter: &str, io: &mut Io) -> Result<Vec<String>, Failure> {
    let path = std::path::absolute(Path::new(file)).unwrap_or_else(|_| Path::new(file).to_owned());
    io.line(format!("Reading payloads from: {}", path.display()));
    let bytes = std::fs::read(&path).unwrap_or_default();
    if bytes.is_empty() {
        return Err(Failure::illegal_argument("File does not exist or empty file provided."));
    }
    let text = String::from_utf8_lossy(&bytes);
    let pattern = fancy_regex::Regex::new(delimiter)
        .map_err(|error| Failure::text("java.util.regex.PatternSyntaxException", error.to_string()))?;
    let mut lines: Vec<String> = pattern.split(&text).map_while(Result::ok).map(str::to_owned).collect();
    // A scanner gives nothing for a delimiter at the end.
    if lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    io.line(format!("Number of records read: {}", lines.len()));
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttle_saves_up_short_sleeps() {
        let mut free = Throttle::new(-1.0, 0);
        assert_eq!(free.wait_after(1_000_000, 1), None);
        let mut throttle = Throttle::new(1000.0, 0);
        assert_eq!(throttle.wait_after(5, 0), None);
        assert_eq!(throttle.wait_after(5, 1000), None);
        assert_eq!(throttle.wait_after(2000, 1000), None);
        assert_eq!(throttle.wait_after(2001, 1000), Some(Duration::from_millis(2)));
        assert_eq!(Throttle::new(0.0, 0).wait_after(1, 1), Some(Duration::MAX));
    }
}
