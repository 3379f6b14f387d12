//! The ways to start a broker: `bitacora`, `bitacora server FILE`, `bitacora container`, `--ephemeral`.

use crate::launch::{Launch, run, run_on};
use config::Properties;
use config::container::{ContainerInput, configure};
use config::meta::{default_properties, single_node_properties};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Where the image expects a mounted configuration.
const MOUNTED_PROPERTIES: &str = "/mnt/shared/config/server.properties";

/// Kafka's default of 3 s would hold back the first message of every new group. The image's own configuration, which any
/// `KAFKA_*` variable discards, sets 0.
const REBALANCE_DELAY: &str = "group.initial.rebalance.delay.ms";

const USAGE: &str = "usage: bitacora [--ephemeral] [--override NAME=VALUE]...
       bitacora server FILE [--override NAME=VALUE]...
       bitacora container [NAME=VALUE]...
Without FILE it serves 127.0.0.1:9092 with data in ./bitacora-data, which is formatted when new.";

fn fail(message: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{message}");
    ExitCode::FAILURE
}

/// `bitacora` without a sub-command.
pub fn standalone(arguments: &[String]) -> ExitCode {
    let mut ephemeral = false;
    let mut overrides = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--ephemeral" => ephemeral = true,
            "--override" => match rest.next() {
                Some(value) => overrides.push(value.clone()),
                None => return fail("--override needs NAME=VALUE"),
            },
            "--help" | "-h" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            other => return fail(&format!("Unknown argument {other}\n{USAGE}")),
        }
    }
    let ephemeral_dir = if ephemeral {
        match temporary_dir() {
            Ok(dir) => Some(dir),
            Err(error) => return fail(&format!("No temporary directory can be made: {error}")),
        }
    } else {
        None
    };
    let mut properties = match &ephemeral_dir {
        Some(dir) => single_node_properties(&dir.display().to_string(), 0, 0),
        None => default_properties(),
    };
    if let Err(error) = apply(&mut properties, &overrides) {
        return fail(&error);
    }
    let cluster_id = storage::format::random_uuid(&env::Env::real()).to_string();
    run(Launch {
        properties,
        format_when_new: Some(cluster_id),
        print_ports: ephemeral,
        ephemeral_dir,
        notices: Vec::new(),
    })
}

/// `bitacora server FILE [--override NAME=VALUE]...`, which is also kafka-server-start.
pub fn server(arguments: &[String]) -> ExitCode {
    server_on(arguments, env::Env::real())
}

/// As [`server`] on another machine: tests put a disk under it that fails.
pub fn server_on(arguments: &[String], env: env::Env) -> ExitCode {
    let mut file = None;
    let mut overrides = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--override" => match rest.next() {
                Some(value) => overrides.push(value.clone()),
                None => return fail("Option override requires an argument"),
            },
            "-daemon" => {
                return fail(
                    "-daemon is not supported: start the process with your service manager, or with nohup ... &",
                );
            }
            other if file.is_none() => file = Some(other.to_owned()),
            other => return fail(&format!("Found non argument parameters: {other}")),
        }
    }
    let Some(file) = file else {
        return fail("USAGE: kafka-server-start server.properties [--override property=value]*");
    };
    let bytes = match std::fs::read(&file) {
        Ok(bytes) => bytes,
        Err(error) => return fail(&format!("The configuration {file} cannot be read: {error}")),
    };
    let mut properties = match Properties::parse(&bytes) {
        Ok(properties) => properties,
        Err(error) => return fail(&format!("{file}: {error}")),
    };
    if let Err(error) = apply(&mut properties, &overrides) {
        return fail(&error);
    }
    let launch = Launch {
        properties,
        format_when_new: None,
        print_ports: false,
        ephemeral_dir: None,
        notices: Vec::new(),
    };
    run_on(launch, env)
}

/// `bitacora container`: configured by `KAFKA_*` variables as the apache/kafka image is.
pub fn container(arguments: &[String]) -> ExitCode {
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    let mounted = std::fs::read(MOUNTED_PROPERTIES).ok();
    let read = |path: &str| std::fs::read(path).ok();
    let input = ContainerInput { environment, arguments, mounted: mounted.as_deref(), read: &read };
    let configured = match configure(input) {
        Ok(configured) => configured,
        Err(error) => return fail(&error.to_string()),
    };
    let mut properties = match Properties::parse(&configured.properties) {
        Ok(properties) => properties,
        Err(error) => return fail(&error.to_string()),
    };
    let mut notices = configured.notices;
    if !properties.contains(REBALANCE_DELAY) {
        properties.set(REBALANCE_DELAY, "0");
        notices.push(format!("{REBALANCE_DELAY} is not set and becomes 0, as in the image's own configuration: a group's first member does not wait for others"));
    }
    run(Launch {
        properties,
        format_when_new: Some(configured.cluster_id),
        print_ports: false,
        ephemeral_dir: None,
        notices,
    })
}

fn apply(properties: &mut Properties, overrides: &[String]) -> Result<(), String> {
    overrides
        .iter()
        .try_for_each(|argument| properties.apply_override(argument).map_err(|error| error.to_string()))
}

fn temporary_dir() -> std::io::Result<PathBuf> {
    let id = storage::format::random_uuid(&env::Env::real());
    let dir = std::env::temp_dir().join(format!("bitacora-{id}"));
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}
