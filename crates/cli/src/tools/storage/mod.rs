//! kafka-storage: formats a node's log directories and looks into them.
//!
//! A front end of `storage::format`, which owns every decision and message. Works offline on the directories that a
//! server's properties file names; what it writes and what a crash leaves is said there.

use config::{Properties, ServerConfig};
use env::Env;
use storage::format::{self, FormatError, FormatOptions};

use crate::argparse::{Action, Argument, Namespace, Parser, Refusal, option};
use crate::io::{End, Io};

fn switch(dest: &'static str, flags: &[&'static str], help: &str) -> Argument {
    option(dest, flags, help).action(Action::StoreTrue)
}

fn config_argument() -> Argument {
    option("config", &["--config", "-c"], "The server's properties file.").required()
}

fn format_parser() -> Parser {
    let cluster_id = option("cluster_id", &["--cluster-id", "-t"], "The id of the cluster.").required();
    let scram = "A SCRAM credential for the new cluster, such as SCRAM-SHA-256=[name=alice,password=secret].";
    let skip = "Leave directories that are formatted already as they are.";
    let release = "The release whose feature levels the cluster starts with; the latest one when not given.";
    let controllers = "The first voters of a dynamic quorum: id@host:port:directory-id, separated by commas.";
    Parser::sub("format", "Format the log directories of this node.")
        .with(config_argument())
        .with(cluster_id)
        .with(option("add_scram", &["--add-scram", "-S"], scram).action(Action::Append))
        .with(switch("ignore_formatted", &["--ignore-formatted", "-g"], skip))
        .with(option("release_version", &["--release-version", "-r"], release))
        .with(
            option("feature", &["--feature", "-f"], "A feature's level: name=level.").action(Action::Append),
        )
        .exclusive(
            false,
            vec![
                switch("standalone", &["--standalone", "-s"], "Start a dynamic quorum with this one voter."),
                switch(
                    "no_initial_controllers",
                    &["--no-initial-controllers", "-N"],
                    "Join a dynamic quorum later.",
                ),
                option("initial_controllers", &["--initial-controllers", "-I"], controllers),
            ],
        )
}

fn parser() -> Parser {
    let feature = option("feature", &["--feature", "-f"], "A feature's level: name=level; may be repeated.");
    Parser::new("kafka-storage", "Formats and shows the log directories of a node.")
        .reading_files()
        .command(Parser::sub("info", "Show the log directories of this node.").with(config_argument()))
        .command(format_parser())
        .command(Parser::sub("version-mapping", "Show the feature levels that belong to a release.").with(
            option(
                "release_version",
                &["--release-version", "-r"],
                "The release; the latest one when not given.",
            ),
        ))
        .command(
            Parser::sub("feature-dependencies", "Show what a feature's level needs.")
                .with(feature.action(Action::Append).required()),
        )
        .command(Parser::sub("random-uuid", "Print a new random id."))
}

pub fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let namespace = match parser().parse(arguments) {
        Ok(namespace) => namespace,
        Err(Refusal::Help(text)) => {
            io.print(text);
            return Ok(());
        }
        Err(Refusal::Error { text, .. }) => {
            io.error(&text);
            return Err(End::code(1));
        }
    };
    let env = Env::real();
    let mut out = Vec::new();
    let result = execute(&namespace, &env, &mut out);
    for line in &out {
        io.line(line);
    }
    match result {
        Ok(0) => Ok(()),
        Ok(code) => Err(End::code(u8::try_from(code).unwrap_or(1))),
        Err(FormatError::Terse(message)) => Err(End::message(message)),
        Err(FormatError::Uncaught { exception, message }) => Err(uncaught(exception, &message)),
    }
}

/// The reference dies of an exception here; this is the first line of what it prints.
fn uncaught(exception: &str, message: &str) -> End {
    End::message(format!("Exception in thread \"main\" {exception}: {message}"))
}

fn load(namespace: &Namespace) -> Result<Option<ServerConfig>, FormatError> {
    let Some(file) = namespace.get("config") else { return Ok(None) };
    let fail = |exception, message| FormatError::Uncaught { exception, message };
    let bytes = std::fs::read(file).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => fail("java.nio.file.NoSuchFileException", file.to_owned()),
        _ => fail("java.io.IOException", format!("{file}: {error}")),
    })?;
    let properties = Properties::parse(&bytes)
        .map_err(|error| fail("java.lang.IllegalArgumentException", format!("{file}: {error}")))?;
    let config = ServerConfig::from_properties(&properties)
        .map_err(|error| fail("org.apache.kafka.common.config.ConfigException", error.to_string()))?;
    Ok(Some(config))
}

fn execute(namespace: &Namespace, env: &Env, out: &mut Vec<String>) -> Result<i32, FormatError> {
    let config = load(namespace)?;
    let list = |dest| namespace.list(dest).unwrap_or_default().to_vec();
    match (namespace.command, &config) {
        (Some("format"), Some(config)) => {
            let options = FormatOptions {
                cluster_id: namespace.get("cluster_id").unwrap_or_default().to_owned(),
                ignore_formatted: namespace.has("ignore_formatted"),
                standalone: namespace.has("standalone"),
                no_initial_controllers: namespace.has("no_initial_controllers"),
                initial_controllers: namespace.get("initial_controllers").map(str::to_owned),
                add_scram: list("add_scram"),
                features: list("feature"),
                release_version: namespace.get("release_version").map(str::to_owned),
            };
            format::format(env, config, &options, out).map(|()| 0)
        }
        (Some("info"), Some(config)) => Ok(format::info(env, config, out)),
        (Some("version-mapping"), _) => {
            format::version_mapping(namespace.get("release_version"), out).map(|()| 0)
        }
        (Some("feature-dependencies"), _) => format::feature_dependencies(&list("feature"), out).map(|()| 0),
        _ => {
            out.push(format::random_uuid(env).to_string());
            Ok(0)
        }
    }
}
