//! A broker process of the binary under test, with a folder and ports of its own, killed when dropped.
//!
//! Raw sockets on purpose: what is sent here no client library would send.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::disallowed_methods, reason = "tests wait for a process and its sockets")]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol::{Decoder, Encoder, Message, Request, RequestHeader};

pub const CLUSTER: &str = "5L6g3nShT-eMCtK--X86sw";
const PATIENCE: Duration = Duration::from_secs(30);

/// A new empty folder.
pub fn folder(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}-{number}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// Two neighbouring free ports.
pub fn ports() -> u16 {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        if port < u16::MAX && TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            return port;
        }
    }
}

pub fn bitacora(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bitacora"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Writes `server.properties` below `dir` and formats its data directory; `extra` are more lines.
pub fn formatted(dir: &Path, port: u16, extra: &str) -> PathBuf {
    let properties = dir.join("server.properties");
    let controller = port + 1;
    let text = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=127.0.0.1:{controller}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         controller.listener.names=CONTROLLER\nlog.dirs={}\noffsets.topic.num.partitions=1\n{extra}\n",
        dir.join("data").display()
    );
    fs::write(&properties, text).unwrap();
    let format = bitacora(&["storage", "format", "--standalone", "-t", CLUSTER, "-c"])
        .arg(&properties)
        .output()
        .unwrap();
    assert!(format.status.success(), "{format:?}");
    properties
}

pub struct Server {
    child: Option<Child>,
    pub dir: PathBuf,
    pub port: u16,
}

impl Server {
    /// With `$WIRE_PEER`, the port of a broker that runs already (the reference, to check what tests expect), that one.
    pub fn start(name: &str, extra: &str) -> Server {
        if let Some(port) = std::env::var("WIRE_PEER").ok().and_then(|port| port.parse().ok()) {
            return Server { child: None, dir: folder(name), port };
        }
        let (dir, port) = (folder(name), ports());
        formatted(&dir, port, extra);
        Server::open(dir, port)
    }

    /// Starts on a folder that is formatted.
    pub fn open(dir: PathBuf, port: u16) -> Server {
        let mut server = Server { child: None, dir, port };
        let started = server.try_start(bitacora(&["server"]));
        assert!(started, "it does not start:\n{}", server.log());
        server
    }

    /// As [`Server::open`] on a disk that fails as the file `faults` in the folder says (`examples/faulty.rs`).
    pub fn open_faulty(dir: PathBuf, port: u16) -> Server {
        let faulty = Path::new(env!("CARGO_BIN_EXE_bitacora")).with_file_name("examples").join("faulty");
        assert!(
            faulty.is_file(),
            "`cargo test --test ...` does not build it: cargo build -p bitacora --examples"
        );
        let mut command = Command::new(faulty);
        command.arg(dir.join("faults")).stdin(Stdio::null());
        let mut server = Server { child: None, dir, port };
        let started = server.try_start(command);
        assert!(started, "it does not start:\n{}", server.log());
        server
    }

    /// Waits until the process ends by itself; its exit code.
    pub fn wait_for_end(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        while self.is_alive() {
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child.take().and_then(|mut child| child.wait().unwrap().code())
    }

    fn try_start(&mut self, mut command: Command) -> bool {
        let log = fs::File::create(self.dir.join("server.log")).unwrap();
        let mut child = command
            .arg(self.dir.join("server.properties"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.log().contains("Kafka Server started") {
                self.child = Some(child);
                return true;
            }
            if child.try_wait().unwrap().is_some() || Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("server.log")).unwrap_or_default()
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| child.try_wait().unwrap().is_none())
    }

    /// kill -9; the folder stays.
    pub fn kill(mut self) -> PathBuf {
        self.end();
        std::mem::take(&mut self.dir)
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// A field of /proc/PID/status in KiB, such as VmRSS.
    pub fn memory_kib(&self, field: &str) -> u64 {
        let id = self.child.as_ref().unwrap().id();
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    pub fn connect(&self) -> Client {
        let socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { socket, next: 1 }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

pub struct Client {
    pub socket: TcpStream,
    next: i32,
}

impl Client {
    pub fn frame(&mut self, body: &[u8]) {
        let size = u32::try_from(body.len()).unwrap();
        // In one piece: a second packet would wait for the first one's acknowledgement.
        self.socket.write_all(&[&size.to_be_bytes()[..], body].concat()).unwrap();
    }

    /// The next answer, without its size.
    pub fn answer(&mut self) -> Bytes {
        let mut size = [0; 4];
        self.socket.read_exact(&mut size).unwrap();
        let mut body = vec![0; usize::try_from(u32::from_be_bytes(size)).unwrap()];
        self.socket.read_exact(&mut body).unwrap();
        body.into()
    }

    /// Whether the peer has closed, with nothing sent before.
    pub fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.socket.read(&mut byte) {
            Ok(read) => read == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    pub fn call<R: Request>(&mut self, request: &R, version: i16) -> R::Response {
        let id = self.next;
        self.next += 1;
        self.frame(&encode(request, version, id, Some("test")));
        decode::<R>(self.answer(), version, id)
    }
}

pub fn encode<R: Request>(request: &R, version: i16, id: i32, client_id: Option<&str>) -> Bytes {
    let mut w = Encoder::new();
    let header = RequestHeader {
        api_key: R::API_KEY,
        api_version: version,
        correlation_id: id,
        client_id: client_id.map(str::to_owned),
    };
    header.encode(&mut w).unwrap();
    request.encode(&mut w, version).unwrap();
    w.finish_contiguous().unwrap()
}

pub fn decode<R: Request>(body: Bytes, version: i16, id: i32) -> R::Response {
    let mut r = Decoder::new(body);
    assert_eq!(r.i32().unwrap(), id, "correlation id");
    if R::API_KEY.response_header_version(version) > 0 {
        assert_eq!(r.i8().unwrap(), 0, "no tags in the header");
    }
    R::Response::decode(&mut r, version).unwrap()
}

/// Runs the server until it ends by itself.
pub fn refused(properties: &Path) -> Output {
    let mut child =
        bitacora(&["server"]).arg(properties).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    child.wait_with_output().unwrap()
}
