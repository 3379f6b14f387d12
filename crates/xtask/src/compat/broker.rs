//! A broker process under test: formatted in a folder of its own, started, waited for, ended by its own id.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The line that says that the broker serves.
const READY: &str = "Kafka Server started";
const START_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Broker {
    child: Child,
    dir: PathBuf,
    port: u16,
    controller_port: u16,
}

impl Broker {
    /// Starts the binary with fresh data in `dir`; `settings` are added to the properties.
    #[allow(clippy::disallowed_methods)] // a test runner waits for a process
    pub fn start(binary: &Path, dir: &Path, settings: &[(&str, &str)]) -> Result<Self, String> {
        let _ = fs::remove_dir_all(dir);
        fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let (port, controller_port) = (free_port()?, free_port()?);
        let node_id = settings.iter().find(|(key, _)| *key == "node.id").map_or("1", |(_, value)| value);
        let mut text = format!(
            "process.roles=broker,controller\nnode.id={node_id}\ncontroller.quorum.bootstrap.servers=127.0.0.1:{controller_port}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
             controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\nlog.dirs={}\n\
             group.initial.rebalance.delay.ms=0\n",
            dir.join("data").display()
        );
        for (key, value) in settings.iter().filter(|(key, _)| *key != "node.id") {
            text.push_str(&format!("{key}={value}\n"));
        }
        let properties = dir.join("server.properties");
        fs::write(&properties, text).map_err(|error| error.to_string())?;
        let status = Command::new(binary)
            .args(["storage", "format", "--standalone", "-t", "5L6g3nShT-eMCtK--X86sw", "-c"])
            .arg(&properties)
            .stdout(Stdio::null())
            .status()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        if !status.success() {
            return Err(format!("formatting failed: {status}"));
        }
        let log = dir.join("server.log");
        let out = fs::File::create(&log).map_err(|error| error.to_string())?;
        let err = out.try_clone().map_err(|error| error.to_string())?;
        let child = Command::new(binary)
            .arg("server")
            .arg(&properties)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        let mut broker = Self { child, dir: dir.to_owned(), port, controller_port };
        let deadline = Instant::now() + START_TIMEOUT;
        while !fs::read_to_string(&log).unwrap_or_default().contains(READY) {
            if Instant::now() > deadline || broker.child.try_wait().ok().flatten().is_some() {
                return Err(format!("the broker did not start:\n{}", broker.log_tail()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(broker)
    }

    /// The ports of the broker's and of the controller's listener.
    pub fn ports(&self) -> [u16; 2] {
        [self.port, self.controller_port]
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The end of the broker's log.
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.dir.join("server.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// A panic in the broker is a failure of any suite.
    pub fn check_alive(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            ended => Err(format!("the broker ended ({ended:?}):\n{}", self.log_tail())),
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    Ok(listener.local_addr().map_err(|error| error.to_string())?.port())
}

/// Two neighbouring ports: a broker's and its controller's.
pub fn free_ports() -> Result<u16, String> {
    for _ in 0..100 {
        let port = free_port()?;
        if port.checked_add(1).is_some_and(|next| TcpListener::bind(("127.0.0.1", next)).is_ok()) {
            return Ok(port);
        }
    }
    Err("no two neighbouring ports are free".into())
}
