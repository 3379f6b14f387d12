//! The programs that are measured: started in a folder of their own, read through `/proc`, ended by their own id.

use crate::wire::{self, Result};
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a run compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Bitacora,
    Kafka,
    Floor,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bitacora => "bitacora",
            Kind::Kafka => "kafka",
            Kind::Floor => "floor",
        }
    }
}

/// Where the programs are.
#[derive(Debug, Clone)]
pub struct Programs {
    pub bitacora: PathBuf,
    /// Directory with Apache Kafka's jars.
    pub kafka_libs: Option<PathBuf>,
    pub floor: PathBuf,
    /// Data directories are made in here.
    pub work: PathBuf,
    /// 0 = any free port.
    pub first_port: u16,
}

/// Memory and collector settings of Apache Kafka's own start script.
const JVM_OPTIONS: &[&str] = &[
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
];
/// How long the slowest start may take.
pub const START_LIMIT: Duration = Duration::from_secs(300);

/// A running program.
pub struct Subject {
    pub kind: Kind,
    pub port: u16,
    child: Child,
}

impl Programs {
    pub fn directory(&self, kind: Kind, purpose: &str) -> PathBuf {
        self.work.join(format!("{purpose}-{}", kind.name()))
    }

    fn java(&self) -> Result<Command> {
        let libs = self.kafka_libs.as_ref().ok_or("no reference: give --kafka-libs DIR")?;
        let mut command = Command::new("java");
        command.args(JVM_OPTIONS).arg("-cp").arg(format!("{}/*", libs.display()));
        Ok(command)
    }

    /// Removes the program's directory.
    pub fn remove(&self, kind: Kind, purpose: &str) -> Result<()> {
        match fs::remove_dir_all(self.directory(kind, purpose)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Makes the page cache forget the program's data: all of it where the kernel allows that, else file by file.
    pub fn forget_pages(&self, kind: Kind, purpose: &str) -> Result<()> {
        let data = self.directory(kind, purpose).join("data");
        for entry in fs::read_dir(data)? {
            let path = entry?.path();
            let files = if path.is_dir() { fs::read_dir(path)?.collect() } else { Vec::new() };
            for file in files {
                let file = File::open(file?.path())?;
                file.sync_all()?;
                // SAFETY: advice about a descriptor that is open.
                unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            }
        }
        if fs::write("/proc/sys/vm/drop_caches", "1").is_err() {
            println!(
                "  /proc/sys/vm/drop_caches is not ours to write: the files' pages were dropped by advice"
            );
        }
        Ok(())
    }

    /// Writes the properties and formats the directory.
    pub fn prepare(&self, kind: Kind, purpose: &str, settings: &str) -> Result<PathBuf> {
        self.remove(kind, purpose)?;
        let dir = self.directory(kind, purpose);
        fs::create_dir_all(&dir)?;
        let slot = self.first_port + 2 * kind as u16;
        let (port, controller) =
            if self.first_port == 0 { (free_port()?, free_port()?) } else { (slot, slot + 1) };
        fs::write(dir.join("port"), port.to_string())?;
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\nlog.dirs={}\n\
             offsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\nshare.coordinator.state.topic.replication.factor=1\n\
             share.coordinator.state.topic.min.isr=1\ngroup.initial.rebalance.delay.ms=0\n{settings}",
            dir.join("data").display()
        );
        let properties = dir.join("server.properties");
        fs::write(&properties, text)?;
        let mut format = match kind {
            Kind::Bitacora => {
                let mut command = Command::new(&self.bitacora);
                command.arg("storage");
                command
            }
            Kind::Kafka => {
                let mut command = self.java()?;
                command.arg("kafka.tools.StorageTool");
                command
            }
            Kind::Floor => return Ok(dir),
        };
        format.args(["format", "-t", "5L6g3nShT-eMCtK--X86sw", "--standalone", "-c"]).arg(&properties);
        let output = format.output()?;
        if !output.status.success() {
            return Err(format!("format: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(dir)
    }

    /// Starts the program on a prepared directory, without waiting for it.
    pub fn spawn(&self, kind: Kind, purpose: &str) -> Result<Subject> {
        let dir = self.directory(kind, purpose);
        let port: u16 = fs::read_to_string(dir.join("port"))?.trim().parse()?;
        let mut command = match kind {
            Kind::Bitacora => {
                let mut command = Command::new(&self.bitacora);
                command.arg("server").arg(dir.join("server.properties"));
                command
            }
            Kind::Kafka => {
                let mut command = self.java()?;
                command.arg("kafka.Kafka").arg(dir.join("server.properties"));
                command
            }
            Kind::Floor => {
                let mut command = Command::new(&self.floor);
                command.arg("floor").arg(port.to_string()).arg(dir.join("data"));
                command
            }
        };
        let log = File::create(dir.join("out.log"))?;
        let child =
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(&dir).spawn()?;
        Ok(Subject { kind, port, child })
    }

    /// Starts and waits for the first acknowledged record on a new topic; the time that took.
    pub fn start_fresh(&self, kind: Kind, purpose: &str) -> Result<(Subject, Duration)> {
        self.start_fresh_with(kind, purpose, "")
    }

    /// The same with more lines of properties.
    pub fn start_fresh_with(&self, kind: Kind, purpose: &str, settings: &str) -> Result<(Subject, Duration)> {
        self.prepare(kind, purpose, settings)?;
        self.start(kind, purpose, "first-ack", 0, true)
    }

    /// Starts on the directory as it is and waits for an acknowledged record on the partition.
    pub fn start(
        &self,
        kind: Kind,
        purpose: &str,
        topic: &str,
        index: i32,
        create: bool,
    ) -> Result<(Subject, Duration)> {
        let begin = Instant::now();
        let subject = self.spawn(kind, purpose)?;
        wire::first_ack(subject.port, topic, index, create, START_LIMIT)
            .map_err(|error| format!("{} did not start: {error}", kind.name()))?;
        Ok((subject, begin.elapsed()))
    }
}

impl Subject {
    fn proc(&self, file: &str) -> Result<String> {
        Ok(fs::read_to_string(format!("/proc/{}/{file}", self.child.id()))?)
    }

    /// CPU seconds used so far, user and system, all threads.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let stat = self.proc("stat")?;
        let after_name = stat.rsplit_once(')').ok_or("stat")?.1;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let ticks: u64 =
            fields.get(11).ok_or("utime")?.parse::<u64>()? + fields.get(12).ok_or("stime")?.parse::<u64>()?;
        // SAFETY: sysconf reads a constant of the system.
        let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        Ok(ticks as f64 / per_second as f64)
    }

    /// Bytes that were asked for with read and sendfile so far: whether a start reads the log.
    pub fn bytes_read(&self) -> Result<u64> {
        let io = self.proc("io")?;
        let line = io.lines().find_map(|line| line.strip_prefix("rchar:")).ok_or("rchar")?;
        Ok(line.trim().parse()?)
    }

    /// Resident memory in MB (10^6 bytes).
    pub fn rss_mb(&self) -> Result<f64> {
        let status = self.proc("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("VmRSS")?;
        let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib * 1024.0 / 1e6)
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, and waits for the end; the time that took.
    pub fn stop(mut self) -> Result<Duration> {
        let begin = Instant::now();
        // SAFETY: a signal to a child that has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        self.child.wait()?;
        Ok(begin.elapsed())
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // Fails when it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
