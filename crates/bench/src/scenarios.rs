//! What is measured, in which order. Subjects alternate within every round, so that a busy neighbour or a warm cache
//! meets all of them alike; values are CPU seconds of the broker's process wherever that is possible.

use crate::load;
use crate::results::Results;
use crate::subject::{Kind, Programs, START_LIMIT, Subject};
use crate::wire::{self, Client, Result};
use std::time::{Duration, Instant};

/// How much of everything.
#[derive(Debug, Clone)]
pub struct Plan {
    pub rounds: u32,
    /// Records that the brokers get before anything is counted.
    pub warm_records: u64,
    /// Payload bytes of one measured produce or consume.
    pub load_bytes: u64,
    /// Of one run of one-record requests.
    pub steady: Duration,
    pub rate: u64,
    pub idle: Duration,
    pub partitions: i32,
    /// The log's size for the restart after a clean stop.
    pub large_log_bytes: u64,
    pub subjects: Vec<Kind>,
}

/// Partitions of a topic under load.
pub const LOAD_PARTITIONS: i32 = 4;
pub const SIZES: [usize; 2] = [100, 1024];
/// Payload of a one-record request.
const SINGLE_SIZE: usize = 100;
/// Partitions per topic where there are thousands, and per request that creates or fills them.
const PARTITIONS_PER_TOPIC: i32 = 100;
/// A record opens its partition's file; more open files than a process usually may have are not what is measured.
const TOPICS_AT_ONCE: i32 = 150;
const UNTIL_IDLE_FILES_CLOSE: Duration = Duration::from_secs(32);
/// Waits for what a start leaves to do: class loading, background threads.
pub const SETTLE: Duration = Duration::from_secs(3);

pub struct Run<'a> {
    pub programs: &'a Programs,
    pub plan: &'a Plan,
    pub results: Results,
}

fn key(of: [&'static str; 2], size: usize) -> &'static str {
    if size == SIZES[0] { of[0] } else { of[1] }
}

pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Run<'_> {
    pub fn brokers(&self) -> Vec<Kind> {
        self.plan.subjects.iter().copied().filter(|kind| *kind != Kind::Floor).collect()
    }

    pub fn add(&mut self, metric: &'static str, subject: &Subject, value: f64) {
        self.results.add(metric, subject.kind, value);
    }

    /// Start to first ack, memory and CPU at rest.
    pub fn starts(&mut self) -> Result<()> {
        for round in 1..=self.plan.rounds {
            println!("start, round {round}");
            for kind in self.brokers() {
                let (subject, time) = self.programs.start_fresh(kind, "start")?;
                self.add("start", &subject, millis(time));
                std::thread::sleep(SETTLE);
                self.idle_cpu("cpu_idle", &subject)?;
                let rss = subject.rss_mb()?;
                self.add("rss_idle", &subject, rss);
                subject.stop()?;
            }
        }
        Ok(())
    }

    fn idle_cpu(&mut self, metric: &'static str, subject: &Subject) -> Result<()> {
        let (cpu, begin) = (subject.cpu_seconds()?, Instant::now());
        std::thread::sleep(self.plan.idle);
        let used = subject.cpu_seconds()? - cpu;
        self.add(metric, subject, used * 1e3 / begin.elapsed().as_secs_f64());
        Ok(())
    }

    /// Produce, consume and one-record requests on warm brokers, then a restart over the log that has grown.
    pub fn loads(&mut self) -> Result<()> {
        let mut subjects = Vec::new();
        for kind in self.brokers() {
            let (subject, _) = self.programs.start_fresh(kind, "load")?;
            println!("warming {}", kind.name());
            self.warm(&subject)?;
            subjects.push(subject);
        }
        if self.plan.subjects.contains(&Kind::Floor) {
            self.programs.prepare(Kind::Floor, "load", "")?;
            subjects.push(self.programs.spawn(Kind::Floor, "load")?);
            wire::wait_for_port(subjects.last().map_or(0, |floor| floor.port), START_LIMIT)?;
        }
        for round in 1..=self.plan.rounds {
            println!("load, round {round}");
            for subject in &subjects {
                self.load_once(subject, round)?;
            }
            for subject in &subjects {
                self.single_once(subject, round)?;
            }
            for subject in subjects.iter().filter(|subject| subject.kind != Kind::Floor) {
                let rss = subject.rss_mb()?;
                let metric = if round == 1 { "rss_load" } else { "rss_load_again" };
                self.add(metric, subject, rss);
            }
        }
        for subject in subjects {
            if subject.kind == Kind::Floor {
                subject.kill()?;
            } else {
                self.restart_large(subject)?;
            }
        }
        Ok(())
    }

    pub fn warm(&mut self, subject: &Subject) -> Result<()> {
        let mut left = self.plan.warm_records;
        let mut turn = 0;
        while left > 0 {
            let count = left.min(2_000_000);
            let topic = format!("warm-{turn}");
            Client::connect(subject.port)?.create_topic(&topic, LOAD_PARTITIONS, &[])?;
            load::produce(subject.port, &topic, LOAD_PARTITIONS, SIZES[0], count)?;
            load::consume(subject.port, &topic, LOAD_PARTITIONS, count)?;
            left -= count;
            turn += 1;
        }
        if turn > 0 {
            self.steady(subject, "warm-single", true)?;
        }
        Ok(())
    }

    fn load_once(&mut self, subject: &Subject, round: u32) -> Result<()> {
        for size in SIZES {
            let topic = format!("load-{size}-{round}");
            let count = self.plan.load_bytes / size as u64;
            let gigabytes = (count * size as u64) as f64 / 1e9;
            Client::connect(subject.port)?.create_topic(&topic, LOAD_PARTITIONS, &[])?;
            let before = subject.cpu_seconds()?;
            load::produce(subject.port, &topic, LOAD_PARTITIONS, size, count)?;
            let used = subject.cpu_seconds()? - before;
            self.add(key(["produce_gb_100", "produce_gb_1024"], size), subject, used / gigabytes);
            self.add(key(["produce_rec_100", "produce_rec_1024"], size), subject, used * 1e9 / count as f64);
            if subject.kind == Kind::Floor {
                continue;
            }
            let before = subject.cpu_seconds()?;
            load::consume(subject.port, &topic, LOAD_PARTITIONS, count)?;
            let used = subject.cpu_seconds()? - before;
            self.add(key(["consume_gb_100", "consume_gb_1024"], size), subject, used / gigabytes);
            self.add(key(["consume_rec_100", "consume_rec_1024"], size), subject, used * 1e9 / count as f64);
        }
        Ok(())
    }

    fn steady(&self, subject: &Subject, topic: &str, with_reader: bool) -> Result<(load::Steady, f64)> {
        Client::connect(subject.port)?.create_topic(topic, 1, &[])?;
        let (rate, lasting) = (self.plan.rate, self.plan.steady);
        let before = subject.cpu_seconds()?;
        let steady = load::one_record_requests(subject.port, topic, SINGLE_SIZE, rate, lasting, with_reader)?;
        let used = subject.cpu_seconds()? - before;
        Ok((steady, used * 1e6 / (rate as f64 * lasting.as_secs_f64())))
    }

    fn single_once(&mut self, subject: &Subject, round: u32) -> Result<()> {
        let (_, cpu) = self.steady(subject, &format!("single-{round}"), false)?;
        self.add("single_produce_cpu", subject, cpu);
        if subject.kind == Kind::Floor {
            return Ok(());
        }
        let (steady, cpu) = self.steady(subject, &format!("single-read-{round}"), true)?;
        self.add("single_cpu", subject, cpu);
        for (metric, percent) in [("ack_p50", 50.0), ("ack_p99", 99.0), ("ack_p999", 99.9)] {
            self.add(metric, subject, steady.ack.percentile(percent));
        }
        for (metric, percent) in [("e2e_p50", 50.0), ("e2e_p99", 99.0), ("e2e_p999", 99.9)] {
            self.add(metric, subject, steady.end_to_end.percentile(percent));
        }
        Ok(())
    }

    fn restart_large(&mut self, subject: Subject) -> Result<()> {
        let kind = subject.kind;
        let per_round = 2 * self.plan.load_bytes;
        let have = per_round * u64::from(self.plan.rounds) + self.plan.warm_records * SIZES[0] as u64;
        let missing = self.plan.large_log_bytes.saturating_sub(have);
        if missing > 0 {
            println!("filling the log of {}", kind.name());
            Client::connect(subject.port)?.create_topic("fill", LOAD_PARTITIONS, &[])?;
            let size = SIZES[1];
            load::produce(subject.port, "fill", LOAD_PARTITIONS, size, missing / size as u64)?;
        }
        let stopping = subject.stop()?;
        self.results.add("stop", kind, millis(stopping));
        for _ in 0..self.plan.rounds {
            let (subject, time) = self.programs.start(kind, "load", "first-ack", 0, false)?;
            self.add("restart_large", &subject, millis(time));
            let read = subject.bytes_read()? as f64 / 1e6;
            self.add("restart_large_read", &subject, read);
            subject.stop()?;
        }
        Ok(())
    }

    /// Thousands of partitions: creation, memory, restart after SIGKILL.
    pub fn partitions(&mut self) -> Result<()> {
        if self.plan.partitions == 0 {
            return Ok(());
        }
        let topics = (self.plan.partitions / PARTITIONS_PER_TOPIC).max(1);
        for kind in self.brokers() {
            println!("{} partitions, {}", self.plan.partitions, kind.name());
            let (mut subject, _) = self.programs.start_fresh(kind, "partitions")?;
            let (before, begin) = (subject.cpu_seconds()?, Instant::now());
            fill_partitions(&subject, topics)?;
            let used = subject.cpu_seconds()? - before;
            self.add("create_partitions", &subject, begin.elapsed().as_secs_f64());
            self.add("create_partitions_cpu", &subject, used);
            std::thread::sleep(SETTLE);
            self.idle_cpu("cpu_idle_partitions", &subject)?;
            let rss = subject.rss_mb()?;
            self.add("rss_partitions", &subject, rss);
            for _ in 0..self.plan.rounds {
                subject.kill()?;
                let time;
                (subject, time) = self.restart_partitions(kind, topics)?;
                self.add("restart_partitions", &subject, millis(time));
                let used = subject.cpu_seconds()?;
                self.add("restart_partitions_cpu", &subject, used);
            }
            for _ in 0..self.plan.rounds {
                let stopping = subject.stop()?;
                self.results.add("stop_partitions", kind, millis(stopping));
                let time;
                (subject, time) = self.restart_partitions(kind, topics)?;
                self.add("restart_partitions_clean", &subject, millis(time));
            }
            subject.kill()?;
            self.programs.remove(kind, "partitions")?;
        }
        Ok(())
    }

    /// Ends when one partition of every topic acknowledges a record.
    fn restart_partitions(&self, kind: Kind, topics: i32) -> Result<(Subject, Duration)> {
        let begin = Instant::now();
        let last = format!("many-{}", topics - 1);
        let (subject, _) = self.programs.start(kind, "partitions", &last, PARTITIONS_PER_TOPIC - 1, false)?;
        for topic in 0..topics {
            wire::first_ack(subject.port, &format!("many-{topic}"), 0, false, START_LIMIT)?;
        }
        Ok((subject, begin.elapsed()))
    }
}

/// Creates the topics and puts a record into every partition.
fn fill_partitions(subject: &Subject, topics: i32) -> Result<()> {
    let mut client = Client::connect(subject.port)?;
    let batch = wire::one_record()?;
    let indexes: Vec<i32> = (0..PARTITIONS_PER_TOPIC).collect();
    for topic in 0..topics {
        client.create_topic(&format!("many-{topic}"), PARTITIONS_PER_TOPIC, &[])?;
    }
    for topic in 0..topics {
        let name = format!("many-{topic}");
        let deadline = Instant::now() + START_LIMIT;
        while client.produce_many(&name, &indexes, &batch)? != protocol::ErrorCode::NONE {
            if Instant::now() > deadline {
                return Err(format!("{name} did not become writable").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if (topic + 1) % TOPICS_AT_ONCE == 0 && topic + 1 < topics {
            std::thread::sleep(UNTIL_IDLE_FILES_CLOSE);
        }
    }
    Ok(())
}
