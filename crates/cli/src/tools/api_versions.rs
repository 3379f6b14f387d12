//! kafka-broker-api-versions, and the same view in kafka-cluster.

use std::collections::BTreeMap;

use client::{Node, Target};
use protocol::messages::ApiVersionsResponse;
use protocol::{ApiKey, Listener};
use serde_json::{Value, json};

use super::common::timeout;
use crate::admin::Admin;
use crate::failure::Failure;
use crate::io::{End, Io};
use crate::options::{CommandOptions, Spec, value};
use crate::output::Format;

fn specs() -> Vec<Spec> {
    vec![
        value("command-config", "A file of client properties.").described("command config property file"),
        value("bootstrap-server", "REQUIRED: a broker to start from.")
            .described("server(s) to use for bootstrapping"),
    ]
}

pub async fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let result = act(arguments, io).await;
    result.map_err(|failure| {
        failure.report(|failure| {
            io.error_line(failure.to_string());
            io.error_line(format!("{}\n", failure.as_exception()));
        })
    })
}

async fn act(arguments: &[String], io: &mut Io) -> Result<(), Failure> {
    let options = CommandOptions::parse(CommandOptions::declare(specs()), arguments)?;
    options.maybe_help_or_version("This tool helps to retrieve broker version information.", io)?;
    options.check_required(&["bootstrap-server"], io)?;
    let set = &options.options;
    let (bootstrap, file) = (set.value_of("bootstrap-server")?, set.given("command-config")?);
    let admin = Admin::connect(bootstrap.as_deref(), file.as_deref(), timeout(set)?)?;
    admin.retry(|| admin.cluster.refresh_nodes()).await?;
    print_all(&admin, Format::of(set)?, io).await
}

/// The APIs of every known node.
pub(super) async fn print_all(admin: &Admin, format: Format, io: &mut Io) -> Result<(), Failure> {
    let mut values = Vec::new();
    for node in admin.cluster.nodes() {
        let shown = describe(&node);
        match admin.retry(|| admin.cluster.connection(Target::Node(node.id))).await {
            Ok(connection) if format.is_table() => {
                io.print(format!("{shown} -> {}\n", apis_text(connection.api_versions())));
            }
            Ok(connection) => values.push(value_of(&node, connection.api_versions())),
            Err(failure) => io.print(format!("{shown} -> ERROR: {failure}\n")),
        }
    }
    format.emit(|| Value::Array(values), io);
    Ok(())
}

/// A node as the reference's `Node` prints itself.
pub(super) fn describe(node: &Node) -> String {
    let rack = node.rack.as_deref().unwrap_or("null");
    format!("{}:{} (id: {} rack: {rack} isFenced: {})", node.host, node.port, node.id, node.is_fenced)
}

fn apis_text(response: &ApiVersionsResponse) -> String {
    let mut lines: BTreeMap<i16, String> = BTreeMap::new();
    for api in &response.api_keys {
        let range = match api.min_version == api.max_version {
            true => api.min_version.to_string(),
            false => format!("{} to {}", api.min_version, api.max_version),
        };
        let line = match ApiKey::from_code(api.api_key) {
            None => format!("UNKNOWN({}): {range}", api.api_key),
            Some(key) => {
                let (oldest, latest) = (key.min_version(), key.max_version());
                let usable = if latest < api.min_version {
                    "unusable: node too new".to_owned()
                } else if api.max_version < oldest {
                    "unusable: node too old".to_owned()
                } else {
                    format!("usable: {}", latest.min(api.max_version))
                };
                format!("{}({}): {range} [{usable}]", key.name(), api.api_key)
            }
        };
        lines.insert(api.api_key, line);
    }
    for key in ApiKey::all().filter(|key| key.is_on(Listener::Broker)) {
        lines.entry(key.code()).or_insert_with(|| format!("{}({}): UNSUPPORTED", key.name(), key.code()));
    }
    let lines: Vec<String> = lines.into_values().collect();
    format!("(\n\t{}\n)", lines.join(",\n\t"))
}

fn value_of(node: &Node, response: &ApiVersionsResponse) -> Value {
    let api = |api: &protocol::messages::api_versions_response::ApiVersion| {
        json!({
            "key": api.api_key,
            "name": ApiKey::from_code(api.api_key).map(ApiKey::name),
            "minVersion": api.min_version,
            "maxVersion": api.max_version,
        })
    };
    json!({
        "node": node.id,
        "host": node.host,
        "port": node.port,
        "apis": response.api_keys.iter().map(api).collect::<Vec<_>>(),
    })
}
