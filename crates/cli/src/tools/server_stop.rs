//! kafka-server-stop: asks the servers on this machine to stop, all of them or those with a role or an id (KIP-979).
//!
//! Servers are found in /proc by their command line: this program, started as a server. Their roles and ids are those
//! of their properties file, overrides and environment as they are now. Signals are all that is sent; whether a server
//! stops is its own affair. `SIGNAL` in the environment chooses another signal than TERM.

use std::collections::BTreeMap;
use std::path::Path;

use config::Properties;
use rustix::process::{Pid, Signal, kill_process};

use crate::io::{End, Io};

const USAGE: &str = "USAGE: kafka-server-stop [--process-role=broker|controller] [--node-id=ID]";
/// First arguments with which the program is a server.
const SERVER_COMMANDS: [&str; 4] = ["server", "container", "kafka-server-start", "kafka-server-start.sh"];

/// Which servers are meant.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    role: Option<String>,
    node_id: Option<String>,
}

/// What a server runs with, as far as it can be seen from outside.
#[derive(Debug)]
struct Found {
    pid: i32,
    roles: String,
    node_id: String,
}

pub fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let Some(wanted) = parse(arguments) else {
        io.error_line(USAGE);
        return Err(End::code(1));
    };
    let name = std::env::var("SIGNAL").unwrap_or_else(|_| "TERM".to_owned());
    let signal = signal(&name).ok_or_else(|| End::message(format!("Error: there is no signal {name}")))?;
    let servers = find(Path::new("/proc"));
    let chosen: Vec<&Found> = servers.iter().filter(|server| is_wanted(server, &wanted)).collect();
    if chosen.is_empty() {
        io.line("No kafka server to stop");
        return Err(End::code(1));
    }
    let mut failed = false;
    for server in chosen {
        let sent = Pid::from_raw(server.pid).map_or(Ok(()), |pid| kill_process(pid, signal));
        if let Err(error) = sent {
            io.error_line(format!("Error: process {} cannot be signalled: {error}", server.pid));
            failed = true;
        }
    }
    if failed { Err(End::code(1)) } else { Ok(()) }
}

/// `--option=value` or `--option value`.
fn parse(arguments: &[String]) -> Option<Wanted> {
    let mut wanted = Wanted::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => (argument.as_str(), rest.next()?.clone()),
        };
        match name {
            "--process-role" if matches!(value.as_str(), "broker" | "controller") => {
                wanted.role = Some(value)
            }
            "--node-id" if value.parse::<u32>().is_ok() => wanted.node_id = Some(value),
            _ => return None,
        }
    }
    Some(wanted)
}

fn signal(name: &str) -> Option<Signal> {
    Some(match name.strip_prefix("SIG").unwrap_or(name) {
        "TERM" | "15" => Signal::TERM,
        "INT" | "2" => Signal::INT,
        "HUP" | "1" => Signal::HUP,
        "QUIT" | "3" => Signal::QUIT,
        "KILL" | "9" => Signal::KILL,
        _ => return None,
    })
}

fn is_wanted(server: &Found, wanted: &Wanted) -> bool {
    let has_role = |role: &String| server.roles.split(',').any(|own| own.trim() == role);
    match (&wanted.node_id, &wanted.role) {
        // An id says more than a role, so it alone counts, as in the reference.
        (Some(id), _) => server.node_id == *id,
        (None, Some(role)) => has_role(role),
        (None, None) => true,
    }
}

fn find(proc: &Path) -> Vec<Found> {
    let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let own = i64::from(std::process::id());
    let mut found: Vec<Found> = pids
        .filter(|pid| i64::from(*pid) != own)
        .filter_map(|pid| {
            let directory = proc.join(pid.to_string());
            let words = |name: &str| -> Vec<String> {
                let bytes = std::fs::read(directory.join(name)).unwrap_or_default();
                let parts = bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty());
                parts.map(|part| String::from_utf8_lossy(part).into_owned()).collect()
            };
            let properties = server_properties(&words("cmdline"), &directory, || words("environ"))?;
            let value =
                |key: &str, default: &str| properties.get(key).map_or(default, |it| it.trim()).to_owned();
            Some(Found {
                pid,
                roles: value("process.roles", "broker,controller"),
                node_id: value("node.id", "1"),
            })
        })
        .collect();
    found.sort_by_key(|server| server.pid);
    found
}

/// The properties that say who a server is; `None` when the command line is not one of a server.
fn server_properties(
    command: &[String],
    process: &Path,
    environment: impl FnOnce() -> Vec<String>,
) -> Option<BTreeMap<String, String>> {
    let program = command.first()?.rsplit('/').next()?;
    let (command, rest) = match (program, command.get(1).map(String::as_str)) {
        ("kafka-server-start" | "kafka-server-start.sh", _) => ("server", command.get(1..)?),
        ("bitacora", None) => ("", &[][..]),
        ("bitacora", Some(first)) if SERVER_COMMANDS.contains(&first) => (first, command.get(2..)?),
        ("bitacora", Some(first)) if first.starts_with("--") && !matches!(first, "--help" | "--version") => {
            ("", command.get(1..)?)
        }
        _ => return None,
    };
    let mut properties = BTreeMap::new();
    let mut rest = rest.iter().peekable();
    while let Some(argument) = rest.next() {
        match argument.strip_prefix("--override") {
            Some("") => properties.extend(rest.next().and_then(|text| assignment(text))),
            Some(inline) => properties.extend(inline.strip_prefix('=').and_then(assignment)),
            None if !argument.starts_with('-') && command != "container" => {
                // Relative paths are relative to where the server was started.
                let file = process.join("cwd").join(argument);
                let file = std::fs::read(&file).or_else(|_| std::fs::read(argument)).unwrap_or_default();
                let file = Properties::parse(&file).map(|parsed| parsed.to_map()).unwrap_or_default();
                for (key, value) in file {
                    properties.entry(key).or_insert(value);
                }
            }
            None => {}
        }
    }
    if command == "container" {
        let variables = environment();
        for (variable, key) in [("KAFKA_NODE_ID=", "node.id"), ("KAFKA_PROCESS_ROLES=", "process.roles")] {
            if let Some(value) = variables.iter().find_map(|text| text.strip_prefix(variable)) {
                properties.insert(key.to_owned(), value.to_owned());
            }
        }
    }
    Some(properties)
}

fn assignment(text: &str) -> Option<(String, String)> {
    text.split_once('=').map(|(key, value)| (key.trim().to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn options_may_be_assigned_or_follow() {
        let both = Wanted { role: Some("broker".into()), node_id: Some("2".into()) };
        let table = [
            ("", Some(Wanted::default())),
            ("--process-role=broker --node-id 2", Some(both)),
            ("--node-id=x", None),
            ("--process-role=king", None),
            ("stop", None),
            ("--node-id", None),
        ];
        for (line, expected) in table {
            assert_eq!(parse(&words(line)), expected, "{line}");
        }
    }

    #[test]
    fn servers_are_told_from_tools_by_their_command_line() {
        let node = |line: &str| {
            let environment = || words("KAFKA_NODE_ID=7 KAFKA_PROCESS_ROLES=broker");
            let found = server_properties(&words(line), Path::new("/nowhere"), environment)?;
            Some(found.get("node.id").cloned().unwrap_or_default())
        };
        let table = [
            ("/usr/bin/bitacora", Some("")),
            ("bitacora --ephemeral", Some("")),
            ("bitacora server none.properties --override node.id=3", Some("3")),
            ("bitacora container", Some("7")),
            ("/opt/kafka/bin/kafka-server-start.sh none.properties --override=node.id=4", Some("4")),
            ("bitacora kafka-topics --list", None),
            ("kafka-server-stop.sh", None),
            ("bitacora --version", None),
            ("vi bitacora", None),
        ];
        for (line, expected) in table {
            assert_eq!(node(line).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn an_id_counts_more_than_a_role() {
        let server = Found { pid: 1, roles: "broker, controller".into(), node_id: "1".into() };
        let wanted = |role: Option<&str>, id: Option<&str>| {
            is_wanted(&server, &Wanted { role: role.map(str::to_owned), node_id: id.map(str::to_owned) })
        };
        assert!(wanted(None, None) && wanted(Some("controller"), None) && wanted(Some("x"), Some("1")));
        assert!(!wanted(Some("x"), None) && !wanted(Some("broker"), Some("2")));
    }
}
