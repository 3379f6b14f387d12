//! kafka-metadata-quorum: shows the metadata quorum, adds and removes its controllers.

use std::collections::BTreeMap;

use client::{ApiError, ClientConfig, Target};
use protocol::messages::describe_quorum_request::{
    PartitionData as WantedPartition, TopicData as WantedTopic,
};
use protocol::messages::describe_quorum_response::{Node, PartitionData, ReplicaState};
use protocol::messages::{
    AddRaftVoterRequest, DescribeQuorumRequest, RemoveRaftVoterRequest, UnregisterControllerRequest,
    add_raft_voter_request,
};
use protocol::{ErrorCode, Uuid};
use serde_json::{Value, json};

use super::online::{TERSE, admin, bootstrap_arguments, format, terse};
use crate::admin::{Admin, load_config};
use crate::argparse::{Action, Kind, Namespace, Parser, Refusal, option};
use crate::failure::Failure;
use crate::io::{End, Io};
use crate::output::pretty_table;

const METADATA_TOPIC: &str = "__cluster_metadata";

fn parser() -> Parser {
    let switch = |dest: &'static str, flag: &'static str, text: &str| {
        option(dest, &[flag], text).action(Action::StoreTrue)
    };
    let dry_run = || switch("dry_run", "--dry-run", "Say what would be done without doing it.");
    Parser::new("kafka-metadata-quorum", "Shows and changes the metadata quorum.")
        .showing_defaults()
        .exclusive(true, bootstrap_arguments(false))
        .with(option(
            "command_config",
            &["--command-config"],
            "A file of client properties; for add-controller also those of the controller.",
        ))
        .command(
            Parser::sub("describe", "Show the quorum.")
                .titled("Status", vec![switch("status", "--status", "A short summary.")])
                .titled(
                    "Replication",
                    vec![
                        switch("replication", "--replication", "The state of each replica."),
                        switch("human_readable", "--human-readable", "Times as durations."),
                    ],
                ),
        )
        .command(Parser::sub("add-controller", "Add a controller to the quorum.").with(dry_run()))
        .command(
            Parser::sub("remove-controller", "Remove a controller from the quorum.")
                .with(
                    option("controller_id", &["--controller-id", "-i"], "The controller to remove.")
                        .kind(Kind::Integer)
                        .required(),
                )
                .with(
                    option(
                        "controller_directory_id",
                        &["--controller-directory-id", "-d"],
                        "Its directory id.",
                    )
                    .required(),
                )
                .with(dry_run())
                .with(switch("unregister", "--unregister", "Also unregister the controller.")),
        )
        .online()
}

pub async fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
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
    let file = namespace.get("command_config");
    let admin = admin(namespace, file)?;
    let dry_run = namespace.has("dry_run");
    match namespace.command {
        Some("add-controller") => {
            let file = file.ok_or_else(|| {
                terse(
                    "You must supply the configuration file of the controller you are adding when using add-controller.",
                )
            })?;
            add_controller(&admin, dry_run, &load_config(file)?, io).await
        }
        Some("remove-controller") => remove_controller(&admin, namespace, dry_run, io).await,
        _ => {
            let (status, replication) = (namespace.has("status"), namespace.has("replication"));
            let human_readable = namespace.has("human_readable");
            match (status, replication) {
                (true, true) => Err(terse(
                    "Only one of --status or --replication should be specified with describe sub-command",
                )),
                (false, false) => {
                    Err(terse("One of --status or --replication must be specified with describe sub-command"))
                }
                (true, false) if human_readable => {
                    Err(terse("The option --human-readable is only supported along with --replication"))
                }
                (true, false) => status_view(namespace, &admin, io).await,
                (false, true) => replication_view(namespace, &admin, human_readable, io).await,
            }
        }
    }
}

struct Quorum {
    state: PartitionData,
    nodes: Vec<Node>,
}

impl Quorum {
    async fn ask(admin: &Admin) -> Result<Quorum, Failure> {
        let request = DescribeQuorumRequest {
            topics: vec![WantedTopic {
                topic_name: METADATA_TOPIC.to_owned(),
                partitions: vec![WantedPartition { partition_index: 0 }],
            }],
        };
        let response = admin.send(Target::Controller, &request).await?;
        ApiError::check(response.error_code, response.error_message.as_ref())?;
        let partition = response.topics.into_iter().flat_map(|topic| topic.partitions).next();
        let missing = || Failure::Api(ApiError::new(ErrorCode::UNKNOWN_SERVER_ERROR, None));
        let state = partition.ok_or_else(missing)?;
        ApiError::check(state.error_code, state.error_message.as_ref())?;
        Ok(Quorum { state, nodes: response.nodes })
    }

    fn leader(&self) -> Result<&ReplicaState, Failure> {
        let id = self.state.leader_id;
        let found = self.state.current_voters.iter().find(|voter| voter.replica_id == id);
        found.ok_or_else(|| Failure::text("java.util.NoSuchElementException", "No value present"))
    }

    fn member(&self, replica: &ReplicaState) -> String {
        let mut text = format!("{{\"id\": {}", replica.replica_id);
        if replica.replica_directory_id != Uuid::ZERO {
            text.push_str(&format!(", \"directoryId\": \"{}\"", replica.replica_directory_id));
        }
        let node = self.nodes.iter().find(|node| node.node_id == replica.replica_id);
        let listeners: Vec<String> = node
            .iter()
            .flat_map(|node| &node.listeners)
            .map(|listener| format!("\"{}\"", endpoint(&listener.name, &listener.host, listener.port)))
            .collect();
        if !listeners.is_empty() {
            text.push_str(&format!(", \"endpoints\": [{}]", listeners.join(", ")));
        }
        text.push('}');
        text
    }

    fn members(&self, replicas: &[ReplicaState]) -> String {
        let listed: Vec<String> = replicas.iter().map(|replica| self.member(replica)).collect();
        format!("[{}]", listed.join(", "))
    }
}

fn endpoint(name: &str, host: &str, port: u16) -> String {
    if host.contains(':') { format!("{name}://[{host}]:{port}") } else { format!("{name}://{host}:{port}") }
}

async fn status_view(namespace: &Namespace, admin: &Admin, io: &mut Io) -> Result<(), Failure> {
    admin.retry(|| admin.cluster.describe(false)).await?;
    let cluster_id = admin.cluster.cluster_id().unwrap_or_else(|| "null".to_owned());
    let quorum = Quorum::ask(admin).await?;
    let leader = quorum.leader()?;
    let slowest =
        quorum.state.current_voters.iter().min_by_key(|voter| voter.log_end_offset).unwrap_or(leader);
    let lag = leader.log_end_offset - slowest.log_end_offset;
    let lag_ms = if slowest.replica_id == leader.replica_id {
        0
    } else if leader.last_caught_up_timestamp >= 0 && slowest.last_caught_up_timestamp >= 0 {
        leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp
    } else {
        -1
    };
    let state = &quorum.state;
    let value = || {
        json!({
            "clusterId": cluster_id,
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "highWatermark": state.high_watermark,
            "maxFollowerLag": lag,
            "maxFollowerLagTimeMs": lag_ms,
            "currentVoters": state.current_voters.iter().map(|voter| voter.replica_id).collect::<Vec<_>>(),
            "currentObservers": state.observers.iter().map(|observer| observer.replica_id).collect::<Vec<_>>(),
        })
    };
    if format(namespace)?.emit(value, io) {
        return Ok(());
    }
    io.line(format!("ClusterId:              {cluster_id}"));
    io.line(format!("LeaderId:               {}", state.leader_id));
    io.line(format!("LeaderEpoch:            {}", state.leader_epoch));
    io.line(format!("HighWatermark:          {}", state.high_watermark));
    io.line(format!("MaxFollowerLag:         {lag}"));
    io.line(format!("MaxFollowerLagTimeMs:   {lag_ms}"));
    io.line(format!("CurrentVoters:          {}", quorum.members(&state.current_voters)));
    io.line(format!("CurrentObservers:       {}", quorum.members(&state.observers)));
    Ok(())
}

async fn replication_view(
    namespace: &Namespace,
    admin: &Admin,
    human_readable: bool,
    io: &mut Io,
) -> Result<(), Failure> {
    let quorum = Quorum::ask(admin).await?;
    let leader = quorum.leader()?;
    let others = quorum.state.current_voters.iter().filter(|voter| voter.replica_id != leader.replica_id);
    let replicas: Vec<(&ReplicaState, &str)> = std::iter::once((leader, "Leader"))
        .chain(others.map(|voter| (voter, "Follower")))
        .chain(quorum.state.observers.iter().map(|observer| (observer, "Observer")))
        .collect();
    let value = || {
        let one = |(replica, status): &(&ReplicaState, &str)| {
            json!({
                "nodeId": replica.replica_id,
                "directoryId": replica.replica_directory_id.to_string(),
                "logEndOffset": replica.log_end_offset,
                "lag": leader.log_end_offset - replica.log_end_offset,
                "lastFetchTimestamp": replica.last_fetch_timestamp,
                "lastCaughtUpTimestamp": replica.last_caught_up_timestamp,
                "status": status,
            })
        };
        Value::Array(replicas.iter().map(one).collect())
    };
    if format(namespace)?.emit(value, io) {
        return Ok(());
    }
    let now = crate::now_ms();
    let mut rows = Vec::new();
    for (replica, status) in &replicas {
        rows.push(vec![
            replica.replica_id.to_string(),
            replica.replica_directory_id.to_string(),
            replica.log_end_offset.to_string(),
            (leader.log_end_offset - replica.log_end_offset).to_string(),
            time(replica.last_fetch_timestamp, human_readable, now, "last fetch")?,
            time(replica.last_caught_up_timestamp, human_readable, now, "last caught up")?,
            (*status).to_owned(),
        ]);
    }
    let headers = [
        "NodeId",
        "DirectoryId",
        "LogEndOffset",
        "Lag",
        "LastFetchTimestamp",
        "LastCaughtUpTimestamp",
        "Status",
    ];
    pretty_table(&headers, &rows, io);
    Ok(())
}

fn time(timestamp: i64, human_readable: bool, now: i64, what: &str) -> Result<String, Failure> {
    if timestamp < 0 {
        return Ok("-1".to_owned());
    }
    if !human_readable {
        return Ok(timestamp.to_string());
    }
    if timestamp == 0 || timestamp > now {
        return Err(Failure::text(
            "org.apache.kafka.common.KafkaException",
            format!(
                "Error while computing relative time, possible drift in system clock.\nCurrent timestamp is {now}, \
                 {what} timestamp is {timestamp}"
            ),
        ));
    }
    Ok(format!("{} ms ago", now - timestamp))
}

/// What a controller's own properties and directory say of it.
struct Controller {
    id: i32,
    directory_id: Uuid,
    endpoints: Vec<(String, String, u16)>,
}

impl Controller {
    fn read(config: &ClientConfig) -> Result<Controller, Failure> {
        let hint = "Is this a valid controller configuration file?";
        let id = config
            .get("node.id")
            .ok_or_else(|| terse(format!("node.id not found in configuration file. {hint}")))?;
        let id: i32 = id.parse().map_err(|_| {
            Failure::text("java.lang.NumberFormatException", format!("For input string: \"{id}\""))
        })?;
        if id < 0 {
            return Err(terse(format!("node.id was negative in configuration file. {hint}")));
        }
        if !config.get("process.roles").unwrap_or_default().contains("controller") {
            let message = format!("process.roles did not contain 'controller' in configuration file. {hint}");
            return Err(terse(message));
        }
        let directory = config
            .get("metadata.log.dir")
            .or_else(|| config.get("log.dirs").and_then(|dirs| dirs.split(',').next()))
            .ok_or_else(|| terse(format!("Neither metadata.log.dir nor log.dirs were found. {hint}")))?;
        let meta = ClientConfig::from_file(&std::path::Path::new(directory).join("meta.properties"))
            .map_err(|_| terse(format!("Unable to read meta.properties from {directory}")))?;
        let directory_id = meta
            .get("directory.id")
            .and_then(|id| id.parse().ok())
            .ok_or_else(|| terse(format!("No directory id found in {directory}")))?;
        Ok(Controller { id, directory_id, endpoints: endpoints(config)? })
    }
}

fn endpoints(config: &ClientConfig) -> Result<Vec<(String, String, u16)>, Failure> {
    let mut listeners: BTreeMap<String, (String, u16)> = BTreeMap::new();
    for property in ["listeners", "advertised.listeners"] {
        let listed = config.get(property).unwrap_or_default();
        for url in listed.split(',').map(str::trim).filter(|url| !url.is_empty()) {
            let invalid = || Failure::illegal_argument(format!("Unable to parse {url} to a broker endpoint"));
            let (name, rest) = url.split_once("://").ok_or_else(invalid)?;
            let (host, port) = rest.rsplit_once(':').ok_or_else(invalid)?;
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            listeners.insert(name.to_uppercase(), (host, port.parse().map_err(|_| invalid())?));
        }
    }
    let names = config.get("controller.listener.names").ok_or_else(|| {
        terse("controller.listener.names was not found. Is this a valid controller configuration file?")
    })?;
    let mut found = Vec::new();
    for name in names.split(',').map(|name| name.trim().to_uppercase()) {
        let (host, port) = listeners.get(&name).cloned().ok_or_else(|| {
            terse(format!("Cannot find information about controller listener name: {name}"))
        })?;
        found.push((name, if host.is_empty() { "localhost".to_owned() } else { host }, port));
    }
    Ok(found)
}

async fn add_controller(
    admin: &Admin,
    dry_run: bool,
    config: &ClientConfig,
    io: &mut Io,
) -> Result<(), Failure> {
    let controller = Controller::read(config)?;
    if !dry_run {
        let listener = |(name, host, port): &(String, String, u16)| add_raft_voter_request::Listener {
            name: name.clone(),
            host: host.clone(),
            port: *port,
        };
        let request = AddRaftVoterRequest {
            cluster_id: None,
            timeout_ms: admin.timeout_ms(),
            voter_id: controller.id,
            voter_directory_id: controller.directory_id,
            listeners: controller.endpoints.iter().map(listener).collect(),
            ..Default::default()
        };
        let response = admin.send(Target::Controller, &request).await?;
        ApiError::check(response.error_code, response.error_message.as_ref())?;
    }
    let listed: Vec<String> =
        controller.endpoints.iter().map(|(name, host, port)| endpoint(name, host, *port)).collect();
    io.line(format!(
        "{} controller {} with directory id {} and endpoints: {}",
        if dry_run { "DRY RUN of adding" } else { "Added" },
        controller.id,
        controller.directory_id,
        listed.join(", ")
    ));
    Ok(())
}

async fn remove_controller(
    admin: &Admin,
    namespace: &Namespace,
    dry_run: bool,
    io: &mut Io,
) -> Result<(), Failure> {
    let id = namespace.number::<i32>("controller_id").unwrap_or(-1);
    if id < 0 {
        return Err(terse(format!("Invalid negative --controller-id: {id}")));
    }
    let text = namespace.get("controller_directory_id").unwrap_or_default();
    let directory_id: Uuid =
        text.parse().map_err(|error| terse(format!("Failed to parse --controller-directory-id: {error}")))?;
    let unregister = namespace.has("unregister");
    let advice = format!(
        ". To unregister the controller from the cluster, run `kafka-cluster.sh unregister-controller --id {id}`."
    );
    if !dry_run {
        let request =
            RemoveRaftVoterRequest { cluster_id: None, voter_id: id, voter_directory_id: directory_id };
        let answered = admin
            .send(Target::Controller, &request)
            .await
            .and_then(|response| Ok(ApiError::check(response.error_code, response.error_message.as_ref())?));
        match answered {
            Err(Failure::Api(error))
                if unregister
                    && matches!(error.code, ErrorCode::UNSUPPORTED_VERSION | ErrorCode::VOTER_NOT_FOUND) =>
            {
                return Err(terse(format!("Failed to remove KRaft voter {id}: {error}{advice}")));
            }
            other => other?,
        }
    }
    let verb = if dry_run { "DRY RUN of removing " } else { "Removed " };
    io.line(format!("{verb}KRaft controller {id} with directory id {directory_id}"));
    if unregister {
        if !dry_run {
            let request = UnregisterControllerRequest { controller_id: id };
            let answered = admin.send(Target::Controller, &request).await.and_then(|response| {
                Ok(ApiError::check(response.error_code, response.error_message.as_ref())?)
            });
            if let Err(failure) = answered {
                return Err(terse(format!("Failed to unregister controller {id}: {failure}{advice}")));
            }
        }
        let verb = if dry_run { "DRY RUN of unregistering " } else { "Unregistered " };
        io.line(format!("{verb}KRaft controller {id}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controllers_endpoints_prefer_what_is_advertised() {
        let mut config = ClientConfig::new();
        config.set("listeners", "controller://:1, PLAINTEXT://:2");
        config.set("controller.listener.names", "CONTROLLER");
        assert_eq!(endpoints(&config).unwrap(), [("CONTROLLER".to_owned(), "localhost".to_owned(), 1)]);
        config.set("advertised.listeners", "CONTROLLER://[::1]:3");
        assert_eq!(endpoints(&config).unwrap(), [("CONTROLLER".to_owned(), "::1".to_owned(), 3)]);
        config.set("controller.listener.names", "OTHER");
        assert!(endpoints(&config).is_err());
    }
}
