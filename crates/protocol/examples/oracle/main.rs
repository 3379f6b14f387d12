//! Compares our codec with Apache Kafka's own classes, instance by instance; `cargo xtask oracle` runs it.
//!
//! For every message and version the schema gives random instances. Java builds each from JSON and encodes it; we
//! decode Java's bytes, must see the very same values, and must encode to the very same bytes, which Java decodes to
//! an equal message. A third of the instances is also encoded at another version by both sides: the bytes, or the
//! refusal, must agree. Defaults of all structs, error codes and api keys are compared as well.
//! Prints every difference with the seed that repeats it; exits with 1 when there is one.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{BufReader, BufWriter, Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;

use bytes::Bytes;
use protocol::{ApiKey, Decoder, Encoder, ErrorCode, Listener, Message, ToJson};

use generate::{Generator, Random, Style};

mod generate;
#[allow(dead_code, reason = "shared with xtask, which also writes tables")]
#[path = "../../../xtask/src/schema.rs"]
mod schema;

type Result<T> = std::result::Result<T, String>;

/// Differences after which the rest is not worth printing.
const MAX_DIFFERENCES: usize = 40;
/// Questions in flight between the two processes.
const PIPELINE: usize = 512;

/// A message type with its name erased.
struct Codec {
    /// Decodes; gives the `Debug` text and what encoding at each of the versions gives.
    check: fn(Bytes, i16, &[i16]) -> Result<(String, Vec<Result<Bytes>>)>,
    fresh: fn() -> String,
}

fn check<M: Message + Debug>(
    bytes: Bytes,
    version: i16,
    encode_at: &[i16],
) -> Result<(String, Vec<Result<Bytes>>)> {
    let mut decoder = Decoder::new(bytes.clone());
    let message = M::decode(&mut decoder, version).map_err(|e| format!("cannot decode: {e}"))?;
    decoder.expect_end().map_err(|e| e.to_string())?;
    for cut in [bytes.len() / 2, bytes.len().saturating_sub(1)] {
        if cut < bytes.len() && M::decode(&mut Decoder::new(bytes.slice(..cut)), version).is_ok() {
            return Err(format!("decodes although cut after {cut} of {} bytes", bytes.len()));
        }
    }
    let encoded = encode_at.iter().map(|version| encode(&message, *version)).collect();
    Ok((format!("{message:?}"), encoded))
}

fn encode<M: Message>(message: &M, version: i16) -> Result<Bytes> {
    let mut encoder = Encoder::new();
    message.encode(&mut encoder, version).map_err(|e| e.to_string())?;
    let length = encoder.len();
    let bytes = encoder.finish_contiguous().map_err(|e| e.to_string())?;
    if bytes.len() == length {
        Ok(bytes)
    } else {
        Err(format!("announced {length} bytes, wrote {}", bytes.len()))
    }
}

macro_rules! codecs {
    ($($message:ty),* $(,)?) => {
        BTreeMap::from([$((<$message>::NAME, Codec {
            check: check::<$message>,
            fresh: || format!("{:?}", <$message>::default()),
        })),*])
    };
}

type ShowJson = fn(Bytes, i16) -> Result<String>;

fn show_json<M: Message + ToJson>(bytes: Bytes, version: i16) -> Result<String> {
    let message = M::decode(&mut Decoder::new(bytes), version).map_err(|e| format!("cannot decode: {e}"))?;
    Ok(message.to_json(version))
}

macro_rules! json_codecs {
    ($($message:ty),* $(,)?) => {
        BTreeMap::from([$((<$message>::NAME, show_json::<$message> as ShowJson)),*])
    };
}

enum Expected {
    Instance { name: String, version: i16, second: i16, seed: u64, debug: String },
    Second,
    Json { show: ShowJson },
    Fresh { name: String, nested: String, java: String, rust: String },
    Tables,
}

struct Question {
    operation: u8,
    version: i16,
    second: i16,
    name: String,
    rest: String,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [classpath, schema, instances, seed] = args.as_slice() else {
        eprintln!("usage: oracle CLASSPATH SCHEMA_DIR INSTANCES SEED");
        return ExitCode::FAILURE;
    };
    match run(classpath, schema, instances.parse().unwrap_or(1000), seed.parse().unwrap_or(1)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn read_schema(directory: &str) -> Result<Vec<schema::Message>> {
    let mut messages = Vec::new();
    let entries = std::fs::read_dir(directory).map_err(|e| format!("{directory}: {e}"))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        messages.extend(schema::parse(&text)?.into_iter().filter(|message| !message.versions.is_empty()));
    }
    Ok(messages)
}

fn run(classpath: &str, schema_dir: &str, instances: u64, seed: u64) -> Result<bool> {
    let messages = read_schema(schema_dir)?;
    let codecs = protocol::for_each_message!(codecs);
    if messages.len() != codecs.len() {
        return Err(format!("{} messages in the schema, {} in the crate", messages.len(), codecs.len()));
    }
    let mut java = Command::new("java")
        .args(["-XX:+UseSerialGC", "-Xmx256m", "-cp", classpath, "Oracle"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start java: {e}"))?;
    let (Some(stdin), Some(stdout)) = (java.stdin.take(), java.stdout.take()) else {
        return Err("java has no pipes".into());
    };
    let (send, receive) = mpsc::sync_channel(PIPELINE);
    let mut judge = Judge { codecs, counts: [0; 4], differences: 0, last: None, current: None };
    let outcome = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&messages, instances, seed, stdin, send));
        let judged = judge.judge_all(receive, BufReader::with_capacity(1 << 16, stdout));
        asking.join().map_err(|_| "the asking thread panicked".to_owned())?.and(judged)
    });
    let _ = java.kill();
    let _ = java.wait();
    let pairs: usize =
        messages.iter().map(|m| usize::try_from(m.versions.high - m.versions.low + 1).unwrap_or(0)).sum();
    println!(
        "oracle: {} messages, {pairs} versions, {} instances, {} encoded at another version, {} shown as JSON, {} \
         fresh structs, seed \
         {seed}: {} differences",
        messages.len(),
        judge.counts[0],
        judge.counts[1],
        judge.counts[3],
        judge.counts[2],
        judge.differences
    );
    outcome.map(|()| judge.differences == 0)
}

/// Sends one question, and tells the judge what must come back.
fn put(
    out: &mut BufWriter<impl Write>,
    expected: &mpsc::SyncSender<Expected>,
    question: &Question,
    answer: Expected,
) -> Result<()> {
    let mut frame = vec![question.operation];
    frame.extend((question.name.len() as u16).to_be_bytes());
    frame.extend(question.name.as_bytes());
    frame.extend(question.version.to_be_bytes());
    frame.extend(question.second.to_be_bytes());
    frame.extend(question.rest.as_bytes());
    let io = out.write_all(&(frame.len() as u32).to_be_bytes()).and_then(|()| out.write_all(&frame));
    io.map_err(|e| format!("java does not listen: {e}"))?;
    let stopped = match expected.try_send(answer) {
        Ok(()) => false,
        // The judge may wait for an answer to what still sits in this buffer.
        Err(mpsc::TrySendError::Full(answer)) => out.flush().is_err() || expected.send(answer).is_err(),
        Err(mpsc::TrySendError::Disconnected(_)) => true,
    };
    if stopped { Err("the judge has stopped".into()) } else { Ok(()) }
}

/// Sends all questions; what must come back goes to the judge in the same order.
fn ask(
    messages: &[schema::Message],
    instances: u64,
    seed: u64,
    stdin: impl Write,
    expected: mpsc::SyncSender<Expected>,
) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, stdin);
    let mut put = |question: Question, answer: Expected| put(&mut out, &expected, &question, answer);
    let question = |operation: u8, name: &str, version: i16, second: i16, rest: String| Question {
        operation,
        version,
        second,
        name: name.to_owned(),
        rest,
    };
    put(question(b'T', "", 0, 0, String::new()), Expected::Tables)?;
    for message in messages {
        let generator = Generator::new(message, message.versions.low, Style::Default, 0);
        let data =
            if matches!(message.kind.as_str(), "request" | "response" | "header") { "Data" } else { "" };
        let (rust, java) =
            generator.fresh(&message.name, &message.fields, &format!("{}{data}", message.name));
        let fresh = Expected::Fresh { name: message.name.clone(), nested: String::new(), java, rust };
        put(question(b'D', &message.name, 0, 0, String::new()), fresh)?;
        for nested in message.all_structs() {
            let (_, java) = generator.fresh(&nested.name, &nested.fields, &nested.name);
            let name = message.name.clone();
            let fresh = Expected::Fresh { name, nested: nested.name.clone(), java, rust: String::new() };
            put(question(b'D', &message.name, 0, 0, nested.name), fresh)?;
        }
    }
    let pairs: Vec<(&schema::Message, i16)> =
        messages.iter().flat_map(|m| (m.versions.low..=m.versions.high).map(move |v| (m, v))).collect();
    let shown = protocol::for_each_to_json!(json_codecs);
    for n in 0..instances {
        let (message, version) = pairs[(n % pairs.len() as u64) as usize];
        let style = match n / pairs.len() as u64 {
            0 => Style::Default,
            1 => Style::Full,
            _ => Style::Random,
        };
        let instance_seed = Random(seed.wrapping_mul(0x1_0000_0001).wrapping_add(n)).next();
        let value = Generator::new(message, version, style, instance_seed).instance();
        let count = u64::from(message.versions.high.abs_diff(message.versions.low)) + 1;
        let second = message.versions.low + Random(instance_seed ^ 1).below(count) as i16;
        let also_second = second != version && n % 3 == 0;
        let name = message.name.clone();
        let seed = instance_seed;
        let asked = if also_second { second } else { -1 };
        put(
            question(b'E', &name, version, 0, value.json.clone()),
            Expected::Instance { name: name.clone(), version, second: asked, seed, debug: value.debug },
        )?;
        if also_second {
            put(question(b'X', &name, version, second, value.json.clone()), Expected::Second)?;
        }
        if let Some(show) = shown.get(message.name.as_str()) {
            put(question(b'J', &name, version, 0, value.json), Expected::Json { show: *show })?;
        }
    }
    out.flush().map_err(|e| e.to_string())
}

struct Judge {
    codecs: BTreeMap<&'static str, Codec>,
    /// Instances, instances at another version, fresh structs, instances shown as JSON.
    counts: [u64; 4],
    differences: usize,
    /// The instance whose encoding at another version comes next: a label, and ours.
    current: Option<(String, Result<Bytes>)>,
    /// The last instance: its label, version and Java's bytes.
    last: Option<(String, i16, Bytes)>,
}

impl Judge {
    fn judge_all(&mut self, expected: mpsc::Receiver<Expected>, mut answers: impl Read) -> Result<()> {
        for expected in expected {
            let mut head = [0_u8; 5];
            answers.read_exact(&mut head).map_err(|e| format!("java has stopped: {e}"))?;
            let [a, b, c, d, status] = head;
            let mut body = vec![0_u8; u32::from_be_bytes([a, b, c, d]) as usize - 1];
            answers.read_exact(&mut body).map_err(|e| format!("java has stopped: {e}"))?;
            let answer =
                if status == 1 { Ok(Bytes::from(body)) } else { Err(String::from_utf8_lossy(&body).into()) };
            if let Err(difference) = self.judge(expected, answer) {
                self.differences += 1;
                if self.differences <= MAX_DIFFERENCES {
                    println!("DIFFERENT {difference}");
                }
            }
        }
        Ok(())
    }

    fn judge(&mut self, expected: Expected, java: Result<Bytes>) -> Result<()> {
        match expected {
            Expected::Tables => compare_tables(&String::from_utf8_lossy(&java?)),
            Expected::Fresh { name, nested, java: text, rust } => {
                self.counts[2] += 1;
                let java = java.map_err(|e| format!("{name} {nested}: {e}"))?;
                same(&format!("{name} {nested} fresh in Java"), &text, &String::from_utf8_lossy(&java))?;
                let codec = self.codecs.get(name.as_str()).ok_or_else(|| format!("no codec {name}"))?;
                if rust.is_empty() { Ok(()) } else { same(&format!("{name} fresh"), &rust, &(codec.fresh)()) }
            }
            Expected::Instance { name, version, second, seed, debug } => {
                self.counts[0] += 1;
                let label = format!("{name} v{version} (instance seed {seed})");
                let java = java.map_err(|e| format!("{label}: java: {e}"))?;
                let codec = self.codecs.get(name.as_str()).ok_or_else(|| format!("no codec {name}"))?;
                self.last = Some((label.clone(), version, java.clone()));
                let versions = [version, second];
                let versions = if second < 0 { &versions[..1] } else { &versions[..] };
                let checked = (codec.check)(java.clone(), version, versions);
                let (text, mut encoded) = checked.map_err(|e| format!("{label}: {e}; bytes {java:?}"))?;
                self.current = encoded.split_off(1).pop().map(|ours| (format!("{label} at v{second}"), ours));
                same(&label, &debug, &text)?;
                match encoded.pop() {
                    Some(Ok(ours)) if ours == java => Ok(()),
                    ours => Err(format!("{label}: java {java:?}\n  ours {ours:?}")),
                }
            }
            Expected::Json { show } => {
                self.counts[3] += 1;
                let (label, version, bytes) = self.last.clone().ok_or("JSON without an instance")?;
                let java = java.map_err(|e| format!("{label}: java's JSON: {e}"))?;
                same(&format!("{label} as JSON"), &String::from_utf8_lossy(&java), &show(bytes, version)?)
            }
            Expected::Second => {
                self.counts[1] += 1;
                match (self.current.take(), java) {
                    (Some((_, Ok(ours))), Ok(java)) if ours == java => Ok(()),
                    (Some((_, Err(_))), Err(_)) => Ok(()),
                    (Some((label, ours)), java) => Err(format!("{label}: java {java:?}\n  ours {ours:?}")),
                    (None, _) => Err("an answer without an instance".into()),
                }
            }
        }
    }
}

fn same(label: &str, expected: &str, found: &str) -> Result<()> {
    if expected == found {
        Ok(())
    } else {
        Err(format!("{label}:\n  expected {expected}\n  found    {found}"))
    }
}

fn compare_tables(java: &str) -> Result<()> {
    let mut ours = String::new();
    for code in ErrorCode::all() {
        ours.push_str(&format!(
            "error\t{}\t{}\t{}\t{}\t{}\t{}\n",
            code.code(),
            code.name(),
            code.is_retriable(),
            code.is_invalid_metadata(),
            code.exception_class(),
            code.message()
        ));
    }
    for key in ApiKey::all() {
        ours.push_str(&format!(
            "api\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            key.code(),
            key.name(),
            key.min_version(),
            key.max_version(),
            key.max_stable_version(),
            key.is_on(Listener::Broker),
            key.is_on(Listener::Controller)
        ));
        for version in key.min_version()..=key.max_version() {
            ours.push_str(&format!(
                "\t{},{}",
                key.request_header_version(version),
                key.response_header_version(version)
            ));
        }
        ours.push('\n');
    }
    for (listener, name) in [(Listener::Broker, "BROKER"), (Listener::Controller, "CONTROLLER")] {
        for unstable in [false, true] {
            for (key, min, max) in ApiKey::advertised(listener, unstable) {
                ours.push_str(&format!("advertised\t{name}\t{unstable}\t{}\t{min}\t{max}\n", key.code()));
            }
        }
    }
    for (ours, java) in ours.lines().zip(java.lines()) {
        same("tables", ours, java)?;
    }
    same(
        "number of errors and api keys",
        &ours.lines().count().to_string(),
        &java.lines().count().to_string(),
    )
}
