//! Counting what was acknowledged, by interval and in all.
//!
//! [`Reports`] is shared between the producer's task, which records, and the sending task, which prints. Latencies of
//! at most 500,000 records are kept, evenly spread over the run; memory is bounded by that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::java::fixed;

const MAX_SAMPLES: i64 = 500_000;
const MEGABYTE: f64 = 1024.0 * 1024.0;

/// What has to be known of a record when it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub sent_at: i64,
    pub bytes: usize,
    /// Sent after the warm-up.
    pub is_steady: bool,
}

#[derive(Debug)]
pub(super) enum News {
    Line(String),
    Error(String),
}

#[derive(Debug)]
struct Inner {
    all: Stats,
    steady: Option<Stats>,
    news: Vec<News>,
}

#[derive(Debug)]
pub(super) struct Reports {
    started_ms: i64,
    interval_ms: i64,
    has_news: AtomicBool,
    inner: Mutex<Inner>,
}

impl Reports {
    pub fn new(num_records: i64, interval_ms: i64, now_ms: i64) -> Self {
        let all = Stats::new(num_records, false, now_ms);
        let inner = Mutex::new(Inner { all, steady: None, news: Vec::new() });
        Reports { started_ms: now_ms, interval_ms, has_news: AtomicBool::new(false), inner }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time since the start in 32 bits, size in 31, and the flag.
    pub fn token(&self, sample: Sample) -> u64 {
        let elapsed = u64::try_from(sample.sent_at - self.started_ms).unwrap_or(0) & 0xFFFF_FFFF;
        elapsed << 32 | (sample.bytes as u64 & 0x7FFF_FFFF) << 1 | u64::from(sample.is_steady)
    }

    fn sample(&self, token: u64) -> Sample {
        Sample {
            sent_at: self.started_ms + (token >> 32) as i64,
            bytes: (token >> 1 & 0x7FFF_FFFF) as usize,
            is_steady: token & 1 == 1,
        }
    }

    pub fn start_steady_state(&self, num_records: i64, now_ms: i64) {
        let mut inner = self.lock();
        inner.steady = Some(Stats::new(num_records, true, now_ms));
        inner.all.is_silent = true;
    }

    pub fn record(&self, tokens: &[u64], now_ms: i64) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        for token in tokens {
            let sample = self.sample(*token);
            let latency = i32::try_from(now_ms - sample.sent_at).unwrap_or(i32::MAX);
            inner.all.record(latency, sample.bytes, now_ms, self.interval_ms, &mut inner.news);
            if let Some(steady) = inner.steady.as_mut().filter(|_| sample.is_steady) {
                steady.record(latency, sample.bytes, now_ms, self.interval_ms, &mut inner.news);
            }
        }
        self.has_news.store(!inner.news.is_empty(), Ordering::Release);
    }

    pub fn say_error(&self, message: String) {
        self.lock().news.push(News::Error(message));
        self.has_news.store(true, Ordering::Release);
    }

    pub fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Acquire)
    }

    pub fn take(&self) -> Vec<News> {
        let mut inner = self.lock();
        self.has_news.store(false, Ordering::Release);
        std::mem::take(&mut inner.news)
    }

    /// The lines at the end of a run.
    pub fn totals(&self, now_ms: i64) -> Vec<String> {
        let mut inner = self.lock();
        let all = inner.all.summary(now_ms).line();
        let steady = inner.steady.as_mut().map(|stats| stats.summary(now_ms).line());
        std::iter::once(all).chain(steady).collect()
    }

    pub fn values(&self, now_ms: i64) -> Vec<Value> {
        let mut inner = self.lock();
        let all = inner.all.summary(now_ms).value();
        let steady = inner.steady.as_mut().map(|stats| stats.summary(now_ms).value());
        std::iter::once(all).chain(steady).collect()
    }

    /// Records and bytes of values.
    pub fn counts(&self) -> (u64, u64) {
        let inner = self.lock();
        (inner.all.count, inner.all.bytes)
    }
}

/// Counters of one reporting interval.
#[derive(Debug)]
struct Window {
    started_ms: i64,
    count: u64,
    bytes: u64,
    latency_sum: i64,
    max_latency: i32,
}

impl Window {
    fn new(now_ms: i64) -> Self {
        Window { started_ms: now_ms, count: 0, bytes: 0, latency_sum: 0, max_latency: 0 }
    }

    fn line(&self, now_ms: i64) -> String {
        let seconds = (now_ms - self.started_ms) as f64 / 1000.0;
        format!(
            "{} records sent, {} records/sec ({} MB/sec), {} ms avg latency, {} ms max latency.",
            self.count,
            fixed(self.count as f64 / seconds, 1),
            fixed(self.bytes as f64 / seconds / MEGABYTE, 2),
            fixed(self.latency_sum as f64 / self.count as f64, 1),
            fixed(f64::from(self.max_latency), 1),
        )
    }
}

#[derive(Debug)]
struct Stats {
    started_ms: i64,
    is_steady: bool,
    is_silent: bool,
    sampling: i64,
    seen: i64,
    latencies: Vec<i32>,
    count: u64,
    bytes: u64,
    latency_sum: i64,
    max_latency: i32,
    window: Window,
}

impl Stats {
    fn new(num_records: i64, is_steady: bool, now_ms: i64) -> Self {
        Stats {
            started_ms: now_ms,
            is_steady,
            is_silent: false,
            sampling: (num_records / num_records.clamp(1, MAX_SAMPLES)).max(1),
            seen: 0,
            latencies: Vec::new(),
            count: 0,
            bytes: 0,
            latency_sum: 0,
            max_latency: 0,
            window: Window::new(now_ms),
        }
    }

    fn record(&mut self, latency: i32, bytes: usize, now_ms: i64, interval_ms: i64, news: &mut Vec<News>) {
        self.count += 1;
        self.bytes += bytes as u64;
        self.latency_sum += i64::from(latency);
        self.max_latency = self.max_latency.max(latency);
        let window = &mut self.window;
        window.count += 1;
        window.bytes += bytes as u64;
        window.latency_sum += i64::from(latency);
        window.max_latency = window.max_latency.max(latency);
        if self.seen % self.sampling == 0 {
            self.latencies.push(latency);
        }
        self.seen += 1;
        if now_ms - window.started_ms >= interval_ms {
            if self.is_steady && self.count == window.count {
                news.push(News::Line("In steady state.".to_owned()));
            }
            if !self.is_silent {
                news.push(News::Line(window.line(now_ms)));
            }
            *window = Window::new(now_ms);
        }
    }

    fn summary(&mut self, now_ms: i64) -> Summary {
        self.latencies.sort_unstable();
        let seconds = (now_ms - self.started_ms) as f64 / 1000.0;
        let size = self.latencies.len();
        let percentile =
            |share: f64| self.latencies.get((share * size as f64) as usize).copied().unwrap_or(0);
        Summary {
            count: self.count,
            is_steady: self.is_steady,
            records_per_second: self.count as f64 / seconds,
            megabytes_per_second: self.bytes as f64 / seconds / MEGABYTE,
            mean_latency_ms: self.latency_sum as f64 / self.count as f64,
            max_latency_ms: self.max_latency,
            percentiles_ms: [0.5, 0.95, 0.99, 0.999].map(percentile),
        }
    }
}

#[derive(Debug)]
struct Summary {
    count: u64,
    is_steady: bool,
    records_per_second: f64,
    megabytes_per_second: f64,
    mean_latency_ms: f64,
    max_latency_ms: i32,
    /// 50th, 95th, 99th and 99.9th.
    percentiles_ms: [i32; 4],
}

impl Summary {
    fn line(&self) -> String {
        let [p50, p95, p99, p999] = self.percentiles_ms;
        format!(
            "{}{} records sent, {} records/sec ({} MB/sec), {} ms avg latency, {} ms max latency, {p50} ms 50th, \
             {p95} ms 95th, {p99} ms 99th, {p999} ms 99.9th.",
            self.count,
            if self.is_steady { " steady state" } else { "" },
            fixed(self.records_per_second, 6),
            fixed(self.megabytes_per_second, 2),
            fixed(self.mean_latency_ms, 2),
            fixed(f64::from(self.max_latency_ms), 2),
        )
    }

    fn value(&self) -> Value {
        let [p50, p95, p99, p999] = self.percentiles_ms;
        json!({
            "records": self.count,
            "steadyState": self.is_steady,
            "recordsPerSecond": self.records_per_second,
            "megabytesPerSecond": self.megabytes_per_second,
            "meanLatencyMs": self.mean_latency_ms,
            "maxLatencyMs": self.max_latency_ms,
            "latencyMs": { "50": p50, "95": p95, "99": p99, "99.9": p999 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_carry_samples() {
        let reports = Reports::new(10, 5000, 1000);
        for sample in [
            Sample { sent_at: 1000, bytes: 0, is_steady: false },
            Sample { sent_at: 4_000_000, bytes: 100, is_steady: true },
            Sample { sent_at: 1001, bytes: 0x7FFF_FFFF, is_steady: true },
        ] {
            assert_eq!(reports.sample(reports.token(sample)), sample);
        }
    }

    #[test]
    fn lines_are_written_as_the_reference_writes_them() {
        let reports = Reports::new(4, 1000, 0);
        let token = |sent_at| reports.token(Sample { sent_at, bytes: 524_288, is_steady: false });
        reports.record(&[token(0), token(10)], 500);
        assert!(!reports.has_news());
        reports.record(&[token(900), token(1900)], 2000);
        let lines: Vec<String> = reports
            .take()
            .into_iter()
            .filter_map(|news| if let News::Line(line) = news { Some(line) } else { None })
            .collect();
        assert_eq!(
            lines,
            ["3 records sent, 1.5 records/sec (0.75 MB/sec), 696.7 ms avg latency, 1100.0 ms max latency."]
        );
        assert_eq!(
            reports.totals(4000),
            [
                "4 records sent, 1.000000 records/sec (0.50 MB/sec), 547.50 ms avg latency, 1100.00 ms max latency, 500 \
              ms 50th, 1100 ms 95th, 1100 ms 99th, 1100 ms 99.9th."
            ]
        );
    }
}
