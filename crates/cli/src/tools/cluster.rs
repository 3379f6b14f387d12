//! kafka-cluster: the cluster's id, its endpoints and API versions; unregisters brokers and controllers.

use client::{ApiError, Target};
use protocol::ErrorCode;
use protocol::messages::{UnregisterBrokerRequest, UnregisterControllerRequest};
use serde_json::{Value, json};

use super::online::{TERSE, admin, bootstrap_arguments, format};
use crate::admin::Admin;
use crate::argparse::{Action, Kind, Namespace, Parser, Refusal, option};
use crate::failure::Failure;
use crate::io::{End, Io};

fn sub(command: &'static str, description: &'static str) -> Parser {
    Parser::sub(command, description)
        .exclusive(true, bootstrap_arguments(true))
        .with(option("config", &["--config"], "Deprecated, use --command-config."))
        .with(option("command_config", &["--command-config", "-c"], "A file of client properties."))
}

fn parser() -> Parser {
    let id = || option("id", &["--id", "-i"], "The id to unregister.").kind(Kind::Integer).required();
    let fenced = option("include_fenced_brokers", &["--include-fenced-brokers"], "Also list fenced brokers.");
    Parser::new("kafka-cluster", "Shows what a cluster is and takes nodes out of it.")
        .showing_defaults()
        .command(sub("cluster-id", "Show the id of the cluster."))
        .command(sub("unregister", "Unregister a broker.").with(id()))
        .command(sub("unregister-controller", "Unregister a controller.").with(id()))
        .command(sub("list-endpoints", "List endpoints.").with(fenced.action(Action::StoreTrue)))
        .command(sub("api-versions", "Show the API versions of brokers or controllers."))
        .online()
}

pub async fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let namespace = match parser().parse(arguments) {
        Ok(namespace) => namespace,
        // The reference ends with 1 even when help was asked for.
        Err(Refusal::Help(text)) => {
            io.print(text);
            return Err(End::code(1));
        }
        Err(Refusal::Error { text, .. }) => {
            io.error(&text);
            return Err(End::code(1));
        }
    };
    let result = act(&namespace, io).await;
    result.map_err(|failure| {
        failure.report(|failure| match failure {
            Failure::Text { exception: TERSE, message } => io.error_line(message),
            Failure::Api(_) => {
                io.error_line(failure.as_exception());
                io.error_line(format!(
                    "java.util.concurrent.ExecutionException: {}\n",
                    failure.as_exception()
                ));
            }
            other => {
                io.error_line(other.to_string());
                io.error_line(format!("{}\n", other.as_exception()));
            }
        })
    })
}

async fn act(namespace: &Namespace, io: &mut Io) -> Result<(), Failure> {
    let mut file = namespace.get("command_config");
    if let Some(old) = namespace.get("config") {
        if file.is_some() {
            let message = "--config and --command-config cannot be specified together.";
            return Err(Failure::text("net.sourceforge.argparse4j.inf.ArgumentParserException", message));
        }
        io.line(
            "Option --config has been deprecated and will be removed in a future version. Use --command-config instead.",
        );
        file = Some(old);
    }
    let admin = admin(namespace, file)?;
    let id = namespace.number::<i32>("id").unwrap_or(-1);
    match namespace.command {
        Some("cluster-id") => cluster_id(namespace, &admin, io).await,
        Some("unregister") => unregister_broker(&admin, id, io).await,
        Some("unregister-controller") => unregister_controller(&admin, id, io).await,
        Some("list-endpoints") => list_endpoints(namespace, &admin, io).await,
        _ => {
            admin.retry(|| admin.cluster.describe(false)).await?;
            super::api_versions::print_all(&admin, format(namespace)?, io).await
        }
    }
}

async fn cluster_id(namespace: &Namespace, admin: &Admin, io: &mut Io) -> Result<(), Failure> {
    admin.retry(|| admin.cluster.describe(false)).await?;
    let id = admin.cluster.cluster_id();
    if format(namespace)?.emit(|| json!({ "clusterId": id }), io) {
        return Ok(());
    }
    match id {
        Some(id) => io.line(format!("Cluster ID: {id}")),
        None => io.line("No cluster ID found. The Kafka version is probably too old."),
    }
    Ok(())
}

async fn unregister_broker(admin: &Admin, id: i32, io: &mut Io) -> Result<(), Failure> {
    let request = UnregisterBrokerRequest { broker_id: id };
    let answered = admin.send(Target::Controller, &request).await;
    let answered = answered
        .and_then(|response| Ok(ApiError::check(response.error_code, response.error_message.as_ref())?));
    if let Err(failure) = &answered
        && failure.code() == Some(ErrorCode::UNSUPPORTED_VERSION)
    {
        io.line("The target cluster does not support the broker unregistration API.");
    }
    answered?;
    io.line(format!("Broker {id} is no longer registered."));
    Ok(())
}

async fn unregister_controller(admin: &Admin, id: i32, io: &mut Io) -> Result<(), Failure> {
    let request = UnregisterControllerRequest { controller_id: id };
    let answered = admin.send(Target::Controller, &request).await;
    let answered = answered
        .and_then(|response| Ok(ApiError::check(response.error_code, response.error_message.as_ref())?));
    if let Err(failure) = &answered
        && failure.code() == Some(ErrorCode::UNSUPPORTED_VERSION)
    {
        io.line("The target cluster does not support the controller unregistration API.");
    }
    answered?;
    io.line(format!("Controller {id} is no longer registered."));
    Ok(())
}

async fn list_endpoints(namespace: &Namespace, admin: &Admin, io: &mut Io) -> Result<(), Failure> {
    let include_fenced = namespace.has("include_fenced_brokers");
    let controllers = admin.cluster.is_controller_bootstrap();
    if include_fenced && controllers {
        return Err(Failure::illegal_argument(
            "The option --include-fenced-brokers is only supported with --bootstrap-server option",
        ));
    }
    let nodes = admin.retry(|| admin.cluster.describe(include_fenced)).await?;
    let kind = if controllers { "controller" } else { "broker" };
    let value = || {
        let node = |node: &client::Node| {
            json!({
                "id": node.id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "fenced": node.is_fenced,
                "type": kind,
            })
        };
        Value::Array(nodes.iter().map(node).collect())
    };
    if format(namespace)?.emit(value, io) {
        return Ok(());
    }
    let host_width = nodes.iter().map(|node| node.host.len()).max().unwrap_or(100);
    let rack_width = nodes.iter().filter_map(|node| node.rack.as_ref().map(String::len)).max().unwrap_or(10);
    let mut line = |id: &str, host: &str, port: &str, rack: &str, state: &str, kind: &str| {
        let state = if controllers { String::new() } else { format!("{state:<10} ") };
        io.line(format!("{id:<10} {host:<host_width$} {port:<10} {rack:<rack_width$} {state}{kind:<15}"));
    };
    line("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE");
    for node in &nodes {
        let state = if node.is_fenced { "fenced" } else { "unfenced" };
        let rack = node.rack.as_deref().unwrap_or("null");
        line(&node.id.to_string(), &node.host, &node.port.to_string(), rack, state, kind);
    }
    Ok(())
}
