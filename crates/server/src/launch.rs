//! From a configuration to a serving process and back to a clean stop.
//!
//! Exit codes: 0 after a clean stop, 1 with one line on stderr that says cause and cure.

use crate::logging;
use crate::shell::{NodeService, Shell};
use crate::threads::Threads;
use broker::{ListenerRole, Node, NodeEvent, StartOptions};
use config::{ConfigWarning, Endpoint, Properties, ServerConfig};
use env::Env;
use network::{Limits, Listener, ListenerConfig, Loops};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;

/// What to serve.
pub struct Launch {
    pub properties: Properties,
    /// Formats the directories when they are new; the cluster id to format with.
    pub format_when_new: Option<String>,
    /// Prints one line per listener with its real port, for callers that asked for port 0.
    pub print_ports: bool,
    /// Removed at the end, when the data are not to be kept.
    pub ephemeral_dir: Option<std::path::PathBuf>,
    /// What to say once in the log.
    pub notices: Vec<String>,
}

/// Serves until SIGTERM or SIGINT.
pub fn run(launch: Launch) -> ExitCode {
    run_on(launch, Env::real())
}

/// As [`run`] on another machine: tests put a disk under it that fails.
pub fn run_on(launch: Launch, env: Env) -> ExitCode {
    logging::init(std::env::var("KAFKA_LOG4J_ROOT_LOGLEVEL").ok().as_deref());
    raise_file_limit();
    let ephemeral = launch.ephemeral_dir.clone();
    let result = serve(launch, env);
    if let Some(dir) = ephemeral {
        let _ = std::fs::remove_dir_all(dir);
    }
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// Segments and connections each need a descriptor; the soft limit is for programs that use `select`. Java does the same.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // A refusal leaves the limit as it was, which the log's own errors tell of when it is reached.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn serve(launch: Launch, env: Env) -> Result<(), String> {
    let config = ServerConfig::from_properties(&launch.properties)
        .map_err(|error| format!("Invalid configuration: {error}"))?;
    for notice in &launch.notices {
        tracing::info!(target: "kafka.docker.KafkaDockerWrapper", "{notice}");
    }
    announce(&config, &launch.properties);
    config::topic::validate_broker_topic_defaults(&config)
        .map_err(|error| format!("Invalid configuration: {error}"))?;
    if let Some(cluster_id) = &launch.format_when_new {
        broker::format_when_new(&env, &config, cluster_id)?;
    }
    // Accepts, and waits for signals and events; connections live on loops of their own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("The runtime cannot start: {error}"))?;
    let result = runtime.block_on(serve_on(env, config, launch.print_ports));
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Says once what the operator should know of the configuration.
fn announce(config: &ServerConfig, properties: &Properties) {
    for warning in config.warnings(properties) {
        match warning {
            ConfigWarning::NotEffective { .. } => {
                tracing::info!(target: "kafka.server.KafkaConfig", "{warning}")
            }
            _ => tracing::warn!(target: "kafka.server.KafkaConfig", "{warning}"),
        }
    }
}

fn limits(config: &ServerConfig) -> Limits {
    let size = |value: i32| usize::try_from(value).ok();
    Limits {
        max_request_bytes: usize::try_from(config.socket_request_max_bytes).unwrap_or(0),
        max_connections: if config.max_connections == i32::MAX {
            usize::MAX
        } else {
            size(config.max_connections).unwrap_or(0)
        },
        max_connections_per_ip: size(config.max_connections_per_ip).unwrap_or(usize::MAX),
        max_idle: u64::try_from(config.connections_max_idle_ms)
            .ok()
            .filter(|ms| *ms > 0)
            .map(Duration::from_millis),
        send_buffer: size(config.socket_send_buffer_bytes),
        receive_buffer: size(config.socket_receive_buffer_bytes),
        backlog: config.socket_listen_backlog_size,
    }
}

struct Bound {
    role: ListenerRole,
    listener: Listener,
}

/// Binds every listener of the roles that this process has.
fn bind(config: &ServerConfig, limits: &Limits) -> Result<Vec<Bound>, String> {
    let brokers = config.broker_listeners().map(|endpoint| (ListenerRole::Broker, endpoint));
    let controllers = config.controller_listeners().map(|endpoint| (ListenerRole::Controller, endpoint));
    let mut bound = Vec::new();
    for (role, endpoint) in brokers.chain(controllers) {
        if endpoint.security_protocol.uses_tls() || endpoint.security_protocol.uses_sasl() {
            return Err(format!(
                "Listener {} has security protocol {}, which this version does not serve: only PLAINTEXT is. Change listener.security.protocol.map or listeners.",
                endpoint.listener,
                endpoint.security_protocol.name()
            ));
        }
        let port = u16::try_from(endpoint.port)
            .map_err(|_| format!("Listener {}: port {} is out of range", endpoint.listener, endpoint.port))?;
        let wanted = ListenerConfig {
            name: endpoint.listener.as_str().into(),
            host: endpoint.host.clone().unwrap_or_default(),
            port,
        };
        let listener = Listener::bind(&wanted, limits).map_err(|error| error.to_string())?;
        bound.push(Bound { role, listener });
    }
    Ok(bound)
}

/// The addresses to announce, with the ports that were really bound.
fn advertised(endpoints: &[Endpoint], bound: &[Bound]) -> Vec<Endpoint> {
    endpoints
        .iter()
        .map(|endpoint| {
            let mut endpoint = endpoint.clone();
            let real = bound
                .iter()
                .find(|b| **b.listener.name() == *endpoint.listener)
                .map(|b| b.listener.local_addr().port());
            if endpoint.port == 0 {
                endpoint.port = real.map_or(0, i32::from);
            }
            if endpoint.host.as_deref().is_none_or(str::is_empty) {
                endpoint.host = Some(host_name());
            }
            endpoint
        })
        .collect()
}

/// This machine's name as clients should resolve it.
fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_str().ok().filter(|name| !name.is_empty()).unwrap_or("localhost").to_owned()
}

async fn serve_on(env: Env, config: ServerConfig, print_ports: bool) -> Result<(), String> {
    let mut stop = Stop {
        terminate: signal(SignalKind::terminate()).map_err(|error| error.to_string())?,
        interrupt: signal(SignalKind::interrupt()).map_err(|error| error.to_string())?,
    };
    let limits = limits(&config);
    let node_id = config.node_id;
    let bound = bind(&config, &limits)?;
    let options = StartOptions {
        advertised_listeners: advertised(config.advertised_broker_listeners(), &bound),
        advertised_controller_listeners: advertised(config.advertised_controller_listeners(), &bound),
    };
    if print_ports {
        for b in &bound {
            println!("{}://{}", b.listener.name(), b.listener.local_addr());
        }
    }
    let (shell, mut events) = Shell::new();
    let opening = {
        let shell = shell.clone();
        tokio::task::spawn_blocking(move || Node::open(env, config, options, shell))
    };
    let node = Arc::new(opening.await.map_err(|error| error.to_string())??);
    let threads = Threads::start(&node, &shell).map_err(|error| error.to_string())?;
    let (loops, loop_threads) = Loops::start(network_loops())
        .map_err(|error| format!("The network threads cannot start: {error}"))?;
    let mut sockets = Sockets {
        node: node.clone(),
        shell: shell.clone(),
        limits,
        loops,
        waiting: bound,
        tasks: Vec::new(),
    };
    sockets.start(ListenerRole::Controller)?;
    let outcome = run_until_stopped(&node, &mut sockets, &mut stop, &mut events).await;
    if outcome.is_ok() {
        shut_down(&node, &mut stop, &mut events).await;
    }
    for task in sockets.tasks {
        task.abort();
    }
    shell.connections.close_all();
    tokio::task::spawn_blocking(move || loop_threads.stop()).await.map_err(|error| error.to_string())?;
    threads.stop();
    if outcome.is_ok() {
        let closing = node.clone();
        tokio::task::spawn_blocking(move || closing.close()).await.map_err(|error| error.to_string())??;
        tracing::info!(target: "kafka.server.BrokerServer", "[BrokerServer id={node_id}] shut down completed");
    }
    outcome
}

/// One per core; at least two, so that a long request does not hold up every other connection.
fn network_loops() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).max(2)
}

/// The signals that end the process.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    async fn requested(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The listeners, those that accept and those that wait for the node to be ready.
struct Sockets {
    node: Arc<Node>,
    shell: Arc<Shell>,
    limits: Limits,
    loops: Arc<Loops>,
    waiting: Vec<Bound>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Sockets {
    /// Starts to accept on the listeners of a kind.
    fn start(&mut self, role: ListenerRole) -> Result<(), String> {
        let (ready, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(|b| b.role == role);
        self.waiting = waiting;
        let ready: Vec<Bound> = ready;
        for Bound { role, listener } in ready {
            let service = Arc::new(NodeService { node: self.node.clone(), role });
            let name = listener.name().clone();
            let address = listener.local_addr();
            let started = listener.start(
                service,
                self.shell.connections.clone(),
                self.limits.clone(),
                self.loops.clone(),
            );
            self.tasks.extend(started.map_err(|error| format!("Listener {name}: {error}"))?);
            let kind = if role == ListenerRole::Broker { "BROKER" } else { "CONTROLLER" };
            tracing::info!(target: "kafka.network.SocketServer", "[SocketServer listenerType={kind}, nodeId={}] Accepting connections on {name}://{address}", self.node.node_id());
        }
        Ok(())
    }
}

/// Returns when the process shall end: `Ok` after a signal, the reason when the node failed.
async fn run_until_stopped(
    node: &Arc<Node>,
    sockets: &mut Sockets,
    stop: &mut Stop,
    events: &mut UnboundedReceiver<NodeEvent>,
) -> Result<(), String> {
    loop {
        tokio::select! {
            () = stop.requested() => return Ok(()),
            event = events.recv() => match event {
                Some(NodeEvent::CaughtUp) => {
                    sockets.start(ListenerRole::Broker)?;
                    node.set_ready();
                }
                Some(NodeEvent::Running) => {
                    tracing::info!(target: "kafka.server.KafkaRaftServer", "[KafkaRaftServer nodeId={}] Kafka Server started", node.node_id());
                }
                Some(NodeEvent::Failed(reason)) => return Err(reason),
                Some(NodeEvent::ShutDown) | None => return Ok(()),
            },
        }
    }
}

/// Waits for the controlled shutdown to end; a second signal ends the wait.
async fn shut_down(node: &Arc<Node>, stop: &mut Stop, events: &mut UnboundedReceiver<NodeEvent>) {
    tracing::info!(target: "kafka.server.BrokerServer", "[BrokerServer id={}] shutting down", node.node_id());
    node.begin_shutdown();
    loop {
        tokio::select! {
            () = stop.requested() => return,
            event = events.recv() => match event {
                Some(NodeEvent::ShutDown | NodeEvent::Failed(_)) | None => return,
                Some(_) => {}
            },
        }
    }
}
