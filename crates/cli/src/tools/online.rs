//! What the tools with sub-commands share: bootstrap options, and an [`Admin`] from them.

use std::time::Duration;

use crate::admin::{Admin, load_config};
use crate::argparse::{Argument, Namespace, option};
use crate::failure::Failure;
use crate::output::Format;

/// `--bootstrap-server` and `--bootstrap-controller`, with their short forms where a tool has them.
pub(super) fn bootstrap_arguments(short: bool) -> Vec<Argument> {
    let flags =
        |long: &'static str, letter: &'static str| if short { vec![long, letter] } else { vec![long] };
    vec![
        option("bootstrap_server", &flags("--bootstrap-server", "-b"), "Brokers to start from."),
        option("bootstrap_controller", &flags("--bootstrap-controller", "-C"), "Controllers to start from."),
    ]
}

/// An `Admin` for the addresses of the command line; `file` holds further properties.
pub(super) fn admin(namespace: &Namespace, file: Option<&str>) -> Result<Admin, Failure> {
    let mut config = match file {
        Some(file) => load_config(file)?,
        None => client::ClientConfig::new(),
    };
    match (namespace.get("bootstrap_server"), namespace.get("bootstrap_controller")) {
        (Some(_), Some(_)) => {
            let message = "You cannot specify both --bootstrap-controller and --bootstrap-server.";
            return Err(Failure::text(BOOTSTRAP, message));
        }
        (Some(servers), None) => {
            config.remove("bootstrap.controllers");
            config.set("bootstrap.servers", servers);
        }
        (None, Some(controllers)) => {
            config.remove("bootstrap.servers");
            config.set("bootstrap.controllers", controllers);
        }
        (None, None) => {
            let message = "You must specify either --bootstrap-controller or --bootstrap-server.";
            return Err(Failure::text(BOOTSTRAP, message));
        }
    }
    let timeout = namespace.number::<u64>("timeout").unwrap_or(10_000);
    Admin::new(config, Duration::from_millis(timeout))
}

/// The exception of a command line without a usable address.
pub(super) const BOOTSTRAP: &str =
    "org.apache.kafka.server.util.CommandLineUtils$InitializeBootstrapException";

pub(super) fn format(namespace: &Namespace) -> Result<Format, Failure> {
    namespace.get("output").map_or(Ok(Format::Table), Format::parse)
}

/// A failure whose message stands alone, without a stack trace.
pub(super) fn terse(message: impl Into<String>) -> Failure {
    Failure::text(TERSE, message)
}

pub(super) const TERSE: &str = "org.apache.kafka.tools.TerseException";
