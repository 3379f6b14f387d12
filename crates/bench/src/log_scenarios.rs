//! The log's scenarios: many partitions, synchronous acknowledgements, recovery, reading from disk, clean restarts.
//!
//! The same plan as in `scenarios`: subjects alternate within a round, and one directory at a time is large, which is
//! removed before the next subject fills its own.

use crate::load;
use crate::scenarios::{LOAD_PARTITIONS, Run, SETTLE, SIZES, millis};
use crate::subject::{Kind, START_LIMIT, Subject};
use crate::wire::{self, Client, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Producers that each wait for their acknowledgement before they send the next record.
const FSYNC_PRODUCERS: usize = 16;
/// Longer than any run: recovery then has all of the log to read, however long filling it took.
const NO_RECOVERY_POINTS: &str = "log.flush.offset.checkpoint.interval.ms=86400000\n";
const FILL_TOPIC: &str = "fill";

impl Run<'_> {
    /// Produce to topics of 1, 100 and 2,000 partitions.
    pub fn wide(&mut self) -> Result<()> {
        let widths = [
            (1, ["wide_cpu_1", "wide_mb_1"]),
            (100, ["wide_cpu_100", "wide_mb_100"]),
            (2000, ["wide_cpu_2000", "wide_mb_2000"]),
        ];
        let mut subjects = Vec::new();
        for kind in self.brokers() {
            let (subject, _) = self.programs.start_fresh(kind, "wide")?;
            println!("warming {}", kind.name());
            self.warm(&subject)?;
            for (partitions, _) in widths {
                Client::connect(subject.port)?.create_topic(
                    &format!("wide-{partitions}"),
                    partitions,
                    &[],
                )?;
            }
            subjects.push(subject);
        }
        let size = SIZES[1];
        let count = self.plan.load_bytes / size as u64;
        let bytes = (count * size as u64) as f64;
        for round in 1..=self.plan.rounds {
            println!("wide, round {round}");
            for (partitions, [cpu, speed]) in widths {
                for subject in &subjects {
                    let before = subject.cpu_seconds()?;
                    let took =
                        load::produce(subject.port, &format!("wide-{partitions}"), partitions, size, count)?;
                    let used = subject.cpu_seconds()? - before;
                    self.add(cpu, subject, used * 1e9 / bytes);
                    self.add(speed, subject, bytes / 1e6 / took.as_secs_f64());
                }
            }
        }
        subjects.into_iter().try_for_each(Subject::kill)
    }

    /// `flush.messages=1`: every acknowledgement means that the record is on the disk.
    pub fn fsync(&mut self) -> Result<()> {
        let spreads = [
            (1, ["fsync_rate_1", "fsync_p50_1", "fsync_p99_1", "fsync_cpu_1"]),
            (16, ["fsync_rate_16", "fsync_p50_16", "fsync_p99_16", "fsync_cpu_16"]),
        ];
        let mut subjects = Vec::new();
        for kind in self.brokers() {
            let (subject, _) = self.programs.start_fresh(kind, "fsync")?;
            for (partitions, _) in spreads {
                let name = format!("fsync-{partitions}");
                Client::connect(subject.port)?.create_topic(&name, partitions, &[("flush.messages", "1")])?;
                wire::first_ack(subject.port, &name, partitions - 1, false, START_LIMIT)?;
            }
            subjects.push(subject);
        }
        for round in 0..=self.plan.rounds {
            println!("fsync, round {round}");
            for (partitions, metrics) in spreads {
                for subject in &subjects {
                    // Round 0 warms up.
                    let lasting = if round == 0 { SETTLE } else { self.plan.steady };
                    let before = subject.cpu_seconds()?;
                    let micros = closed_loop(subject.port, partitions, lasting)?;
                    let used = subject.cpu_seconds()? - before;
                    if round == 0 {
                        continue;
                    }
                    let latencies = load::Latencies::new(micros);
                    let count = latencies.len() as f64;
                    let values = [
                        count / lasting.as_secs_f64(),
                        latencies.percentile(50.0),
                        latencies.percentile(99.0),
                        used * 1e6 / count,
                    ];
                    for (metric, value) in metrics.into_iter().zip(values) {
                        self.add(metric, subject, value);
                    }
                }
            }
        }
        subjects.into_iter().try_for_each(Subject::kill)
    }

    /// A large log after SIGKILL, of which no recovery point was written: all of it is read, from the page cache.
    pub fn recovery(&mut self) -> Result<()> {
        for kind in self.brokers() {
            let mut subject = self.filled(kind, "recovery", NO_RECOVERY_POINTS)?;
            for round in 1..=self.plan.rounds {
                println!("recovery, {}, round {round}", kind.name());
                subject.kill()?;
                let time;
                (subject, time) = self.restart_filled(kind, "recovery")?;
                let gigabytes = self.plan.large_log_bytes as f64 / 1e9;
                self.add("recovery", &subject, millis(time));
                let (cpu, read) = (subject.cpu_seconds()?, subject.bytes_read()? as f64);
                self.add("recovery_cpu", &subject, cpu / gigabytes);
                self.add("recovery_read", &subject, read / 1e6);
            }
            subject.kill()?;
            self.programs.remove(kind, "recovery")?;
        }
        Ok(())
    }

    /// A large log after a clean stop.
    pub fn clean(&mut self) -> Result<()> {
        for kind in self.brokers() {
            let mut subject = self.filled(kind, "clean", "")?;
            for round in 1..=self.plan.rounds {
                println!("clean restart, {}, round {round}", kind.name());
                let stopping = subject.stop()?;
                self.results.add("stop", kind, millis(stopping));
                let time;
                (subject, time) = self.restart_filled(kind, "clean")?;
                self.add("restart_large", &subject, millis(time));
                let read = subject.bytes_read()? as f64 / 1e6;
                self.add("restart_large_read", &subject, read);
            }
            subject.kill()?;
            self.programs.remove(kind, "clean")?;
        }
        Ok(())
    }

    /// Consuming what the page cache does not hold.
    pub fn cold(&mut self) -> Result<()> {
        let size = SIZES[1];
        for kind in self.brokers() {
            let subject = self.filled(kind, "cold", "")?;
            let count = self.plan.large_log_bytes / size as u64;
            let bytes = (count * size as u64) as f64;
            for round in 1..=self.plan.rounds {
                println!("cold consume, {}, round {round}", kind.name());
                self.programs.forget_pages(kind, "cold")?;
                let before = subject.cpu_seconds()?;
                let took = load::consume(subject.port, FILL_TOPIC, LOAD_PARTITIONS, count)?;
                let used = subject.cpu_seconds()? - before;
                self.add("cold_mb", &subject, bytes / 1e6 / took.as_secs_f64());
                self.add("cold_cpu", &subject, used * 1e9 / bytes);
            }
            subject.kill()?;
            self.programs.remove(kind, "cold")?;
        }
        Ok(())
    }

    /// A broker with a log of the planned size.
    fn filled(&self, kind: Kind, purpose: &str, settings: &str) -> Result<Subject> {
        println!("filling {} MB, {}", self.plan.large_log_bytes / 1_000_000, kind.name());
        let (subject, _) = self.programs.start_fresh_with(kind, purpose, settings)?;
        Client::connect(subject.port)?.create_topic(FILL_TOPIC, LOAD_PARTITIONS, &[])?;
        let size = SIZES[1];
        let count = self.plan.large_log_bytes / size as u64;
        load::produce(subject.port, FILL_TOPIC, LOAD_PARTITIONS, size, count)?;
        Ok(subject)
    }

    /// Ends when every partition of the large topic acknowledges a record.
    fn restart_filled(&self, kind: Kind, purpose: &str) -> Result<(Subject, Duration)> {
        let begin = Instant::now();
        let (subject, _) = self.programs.start(kind, purpose, FILL_TOPIC, 0, false)?;
        for index in 1..LOAD_PARTITIONS {
            wire::first_ack(subject.port, FILL_TOPIC, index, false, START_LIMIT)?;
        }
        Ok((subject, begin.elapsed()))
    }
}

/// Producers that send one record at a time and wait for it; the latencies in microseconds.
fn closed_loop(port: u16, partitions: i32, lasting: Duration) -> Result<Vec<u32>> {
    let done = AtomicBool::new(false);
    let batch = wire::one_record_of(SIZES[0])?;
    let one = |producer: usize| -> Result<Vec<u32>> {
        let mut client = Client::connect(port)?;
        let (topic, index) = (format!("fsync-{partitions}"), producer as i32 % partitions);
        let mut micros = Vec::new();
        while !done.load(Ordering::Relaxed) {
            let begin = Instant::now();
            match client.produce(&topic, index, &batch)? {
                protocol::ErrorCode::NONE => micros.push(begin.elapsed().as_micros() as u32),
                error => return Err(error.name().into()),
            }
        }
        Ok(micros)
    };
    std::thread::scope(|scope| {
        let one = &one;
        let producers: Vec<_> =
            (0..FSYNC_PRODUCERS).map(|producer| scope.spawn(move || one(producer))).collect();
        std::thread::sleep(lasting);
        done.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for producer in producers {
            all.extend(producer.join().map_err(|_| "a producer failed")??);
        }
        Ok(all)
    })
}
