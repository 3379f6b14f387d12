//! A container's environment as a server's `.properties`, as the `apache/kafka` image makes it.
//!
//! Covers what the image's `run` and `configure` scripts and its `KafkaDockerWrapper` do before the server starts:
//! arguments as variables, derived variables, key stores under `/etc/kafka/secrets`, the mapping of names, and which of
//! mounted file, environment and default file wins. Pure: the caller reads the environment and the files.

use std::collections::BTreeMap;

/// The cluster id the image formats with when none is given.
pub const DEFAULT_CLUSTER_ID: &str = "5L6g3nShT-eMCtK--X86sw";

/// Where the image looks for key stores and credentials.
const SECRETS: &str = "/etc/kafka/secrets/";

/// `KAFKA_` variables that are for the image's scripts and the JVM, not for the server.
const EXCLUDED: &[&str] = &[
    "KAFKA_VERSION",
    "KAFKA_HEAP_OPTS",
    "KAFKA_LOG4J_OPTS",
    "KAFKA_OPTS",
    "KAFKA_JMX_OPTS",
    "KAFKA_JVM_PERFORMANCE_OPTS",
    "KAFKA_GC_LOG_OPTS",
    "KAFKA_LOG4J_ROOT_LOGLEVEL",
    "KAFKA_LOG4J_LOGGERS",
    "KAFKA_TOOLS_LOG4J_LOGLEVEL",
    "KAFKA_JMX_HOSTNAME",
];

/// Variables that steer the JVM or its logging; accepted and without effect here.
const WITHOUT_EFFECT: &[&str] = &[
    "JMX_PORT",
    "KAFKA_HEAP_OPTS",
    "KAFKA_LOG4J_OPTS",
    "KAFKA_JMX_OPTS",
    "KAFKA_JVM_PERFORMANCE_OPTS",
    "KAFKA_GC_LOG_OPTS",
    "KAFKA_JMX_HOSTNAME",
];

/// The file that the image serves with when it is given neither environment nor file.
pub const DEFAULT_PROPERTIES: &str = "\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
";

/// What the caller read. `read` gives the bytes of a file, or nothing when there is none.
pub struct ContainerInput<'a> {
    pub environment: BTreeMap<String, String>,
    /// `NAME=value` arguments of the command; each becomes a variable.
    pub arguments: &'a [String],
    /// The mounted `server.properties`, if there is one.
    pub mounted: Option<&'a [u8]>,
    pub read: &'a dyn Fn(&str) -> Option<Vec<u8>>,
}

/// What the container serves with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerConfig {
    /// The final `server.properties`, ready for [`crate::Properties::parse`].
    pub properties: Vec<u8>,
    pub cluster_id: String,
    /// What to log, one line each: variables without effect, hints.
    pub notices: Vec<String>,
}

/// Why a container cannot start: the line to print before exiting with 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerError(pub String);

impl std::fmt::Display for ContainerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ContainerError {}

/// Makes the configuration.
pub fn configure(input: ContainerInput<'_>) -> Result<ContainerConfig, ContainerError> {
    let mut environment = input.environment;
    for argument in input.arguments {
        let (name, value) = argument
            .split_once('=')
            .ok_or_else(|| ContainerError(format!("Argument '{argument}' is no NAME=value")))?;
        environment.insert(name.to_owned(), value.to_owned());
    }
    // The image's defaults exist before its checks run; an empty id counts as missing.
    let cluster_id =
        environment.entry("CLUSTER_ID".to_owned()).or_insert_with(|| DEFAULT_CLUSTER_ID.to_owned());
    if cluster_id.is_empty() {
        *cluster_id = DEFAULT_CLUSTER_ID.to_owned();
    }
    let cluster_id = cluster_id.clone();
    derive_listeners(&mut environment)?;
    derive_key_stores(&mut environment, input.read)?;
    let mut notices = Vec::new();
    check_sasl(&environment, &mut notices)?;
    for name in WITHOUT_EFFECT.iter().filter(|name| environment.contains_key(**name)) {
        notices.push(format!("{name} is for the JVM and has no effect"));
    }
    Ok(ContainerConfig { properties: render(&environment, input.mounted), cluster_id, notices })
}

/// The non-empty value of a variable.
fn set<'a>(environment: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

fn ensure<'a>(environment: &'a BTreeMap<String, String>, name: &str) -> Result<&'a str, ContainerError> {
    set(environment, name).ok_or_else(|| ContainerError(format!("{name} environment variable not set")))
}

fn derive_listeners(environment: &mut BTreeMap<String, String>) -> Result<(), ContainerError> {
    const ADVERTISED: &str = "KAFKA_ADVERTISED_LISTENERS";
    let controller_only = set(environment, "KAFKA_PROCESS_ROLES") == Some("controller");
    if controller_only {
        if set(environment, ADVERTISED).is_some() {
            return Err(ContainerError(
                "KAFKA_ADVERTISED_LISTENERS is not supported on a KRaft controller.".into(),
            ));
        }
        environment.remove(ADVERTISED);
    }
    let underivable = controller_only || set(environment, "KAFKA_LISTENERS").is_some();
    if let Some(advertised) = set(environment, ADVERTISED).filter(|_| !underivable) {
        let listeners = listen_everywhere(advertised);
        environment.insert("KAFKA_LISTENERS".to_owned(), listeners);
    }
    Ok(())
}

/// `s|://[^:]*:|://0.0.0.0:|g`: an address in brackets loses only what stands before its first colon.
fn listen_everywhere(advertised: &str) -> String {
    let mut listeners = String::new();
    let mut rest = advertised;
    while let Some(start) = rest.find("://") {
        let host = &rest[start + 3..];
        let Some(colon) = host.find(':') else { break };
        listeners.push_str(&rest[..start]);
        listeners.push_str("://0.0.0.0:");
        rest = &host[colon + 1..];
    }
    listeners + rest
}

fn derive_key_stores(
    environment: &mut BTreeMap<String, String>,
    read: &dyn Fn(&str) -> Option<Vec<u8>>,
) -> Result<(), ContainerError> {
    if !set(environment, "KAFKA_ADVERTISED_LISTENERS").is_some_and(|listeners| listeners.contains("SSL://")) {
        return Ok(());
    }
    let location = |environment: &mut BTreeMap<String, String>, file: &str, variable: &str| {
        let path = format!("{SECRETS}{}", ensure(environment, file)?);
        read(&path).ok_or_else(|| ContainerError(format!("{path} file does not exist")))?;
        environment.insert(variable.to_owned(), path);
        Ok(())
    };
    let password = |environment: &mut BTreeMap<String, String>, file: &str, variable: &str| {
        let path = format!("{SECRETS}{}", ensure(environment, file)?);
        let bytes = read(&path).ok_or_else(|| ContainerError(format!("{path} file does not exist")))?;
        // A shell's `$(cat …)` drops the line ends at the end.
        let text = String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned();
        environment.insert(variable.to_owned(), text);
        Ok(())
    };
    location(environment, "KAFKA_SSL_KEYSTORE_FILENAME", "KAFKA_SSL_KEYSTORE_LOCATION")?;
    password(environment, "KAFKA_SSL_KEY_CREDENTIALS", "KAFKA_SSL_KEY_PASSWORD")?;
    password(environment, "KAFKA_SSL_KEYSTORE_CREDENTIALS", "KAFKA_SSL_KEYSTORE_PASSWORD")?;
    let client_auth = set(environment, "KAFKA_SSL_CLIENT_AUTH").unwrap_or_default();
    if client_auth.contains("required") || client_auth.contains("requested") {
        location(environment, "KAFKA_SSL_TRUSTSTORE_FILENAME", "KAFKA_SSL_TRUSTSTORE_LOCATION")?;
        password(environment, "KAFKA_SSL_TRUSTSTORE_CREDENTIALS", "KAFKA_SSL_TRUSTSTORE_PASSWORD")?;
    }
    Ok(())
}

fn check_sasl(
    environment: &BTreeMap<String, String>,
    notices: &mut Vec<String>,
) -> Result<(), ContainerError> {
    let advertised = set(environment, "KAFKA_ADVERTISED_LISTENERS").unwrap_or_default();
    let sasl = advertised.find("SASL_").is_some_and(|start| advertised[start..].contains("://"));
    if !sasl {
        return Ok(());
    }
    let options = ensure(environment, "KAFKA_OPTS")?;
    if !options.contains("java.security.auth.login.config") {
        notices.push("KAFKA_OPTS should contain 'java.security.auth.login.config' property.".to_owned());
    }
    Ok(())
}

/// The property that a variable names: `_` is a dot, `__` an underscore, `___` a dash.
pub fn property_name(variable: &str) -> Option<String> {
    if EXCLUDED.contains(&variable) {
        return None;
    }
    let name = variable.strip_prefix("KAFKA_")?;
    Some(name.to_lowercase().replace('_', ".").replace("...", "-").replace("..", "_"))
}

fn render(environment: &BTreeMap<String, String>, mounted: Option<&[u8]>) -> Vec<u8> {
    let lines: Vec<String> = environment
        .iter()
        .filter_map(|(variable, value)| property_name(variable).map(|name| format!("{name}={value}")))
        .collect();
    // A mounted file comes first, so that the environment's later lines win.
    let mut properties = mounted.unwrap_or_default().to_vec();
    if !lines.is_empty() {
        properties.push(b'\n');
        properties.extend_from_slice(lines.join("\n").as_bytes());
    }
    if properties.iter().all(|byte| *byte <= b' ') {
        return DEFAULT_PROPERTIES.as_bytes().to_vec();
    }
    properties
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::Properties;
    use crate::server::ServerConfig;

    fn run(
        environment: &[(&str, &str)],
        arguments: &[&str],
        mounted: Option<&str>,
        files: &[(&str, &str)],
    ) -> Result<(Properties, ContainerConfig), ContainerError> {
        let read = |path: &str| {
            files.iter().find(|(name, _)| *name == path).map(|(_, content)| content.as_bytes().to_vec())
        };
        let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
        let config = configure(ContainerInput {
            environment: environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            arguments: &arguments,
            mounted: mounted.map(str::as_bytes),
            read: &read,
        })?;
        Ok((Properties::parse(&config.properties).unwrap(), config))
    }

    #[test]
    fn names_are_mapped_as_the_image_maps_them() {
        for (variable, expected) in [
            ("KAFKA_NODE_ID", Some("node.id")),
            (
                "KAFKA_LISTENER_NAME_SASL__SSL_PLAIN_SASL_JAAS_CONFIG",
                Some("listener.name.sasl_ssl.plain.sasl.jaas.config"),
            ),
            (
                "KAFKA_LISTENER_NAME_X_SCRAM___SHA___256_SASL_JAAS_CONFIG",
                Some("listener.name.x.scram-sha-256.sasl.jaas.config"),
            ),
            ("KAFKA_A____B", Some("a-.b")),
            ("KAFKA_A_____B", Some("a-_b")),
            ("KAFKA_", Some("")),
            ("KAFKA_KAFKA_METRICS_REPORTERS", Some("kafka.metrics.reporters")),
            ("KAFKA_HEAP_OPTS", None),
            ("KAFKA_OPTS", None),
            ("KAFKA_JMX_HOSTNAME", None),
            ("KAFKA_JMX_PORT", Some("jmx.port")),
            ("MY_KAFKA_NODE_ID", None),
            ("PATH", None),
        ] {
            assert_eq!(property_name(variable).as_deref(), expected, "{variable}");
        }
    }

    #[test]
    fn the_common_quickstart_starts() {
        let environment = [
            ("KAFKA_NODE_ID", "1"),
            ("KAFKA_PROCESS_ROLES", "broker,controller"),
            ("KAFKA_LISTENERS", "PLAINTEXT://:9092,CONTROLLER://:9093"),
            ("KAFKA_ADVERTISED_LISTENERS", "PLAINTEXT://localhost:9092"),
            ("KAFKA_CONTROLLER_QUORUM_VOTERS", "1@localhost:9093"),
            ("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER"),
            ("PATH", "/bin"),
        ];
        let (properties, config) = run(&environment, &[], None, &[]).unwrap();
        assert_eq!(properties.len(), 6);
        assert_eq!(config.cluster_id, DEFAULT_CLUSTER_ID);
        let server = ServerConfig::from_properties(&properties).unwrap();
        assert_eq!(server.node_id, 1);
        assert_eq!(server.offsets_topic_replication_factor().for_live_brokers(1), 1);
    }

    #[test]
    fn environment_wins_over_the_mounted_file_and_the_default_file_is_last() {
        let (properties, _) =
            run(&[("KAFKA_NODE_ID", "2")], &["KAFKA_BROKER_RACK=r"], Some("node.id=1\na=b"), &[]).unwrap();
        assert_eq!(
            properties.iter().collect::<Vec<_>>(),
            [("a", "b"), ("broker.rack", "r"), ("node.id", "2")]
        );
        let (properties, _) = run(&[("KAFKA_NODE_ID", "2")], &[], None, &[]).unwrap();
        assert_eq!(properties.iter().collect::<Vec<_>>(), [("node.id", "2")], "nothing of the default file");
        for mounted in [None, Some(""), Some(" \n\n")] {
            let (properties, _) =
                run(&[("HOME", "/"), ("KAFKA_HEAP_OPTS", "-Xmx1G")], &[], mounted, &[]).unwrap();
            assert_eq!(properties.get("log.dirs"), Some("/tmp/kraft-combined-logs"));
            ServerConfig::from_properties(&properties).unwrap();
        }
    }

    #[test]
    fn listeners_are_derived_from_the_advertised_ones() {
        for (advertised, expected) in [
            ("PLAINTEXT://broker:9092", "PLAINTEXT://0.0.0.0:9092"),
            ("A://h:1,B://10.0.0.1:2", "A://0.0.0.0:1,B://0.0.0.0:2"),
            ("A://[::1]:1", "A://0.0.0.0::1]:1"),
        ] {
            let (properties, _) = run(&[("KAFKA_ADVERTISED_LISTENERS", advertised)], &[], None, &[]).unwrap();
            assert_eq!(properties.get("listeners"), Some(expected));
        }
        let set = [("KAFKA_ADVERTISED_LISTENERS", "A://h:1"), ("KAFKA_LISTENERS", "A://:5")];
        assert_eq!(run(&set, &[], None, &[]).unwrap().0.get("listeners"), Some("A://:5"));
    }

    #[test]
    fn a_controller_has_no_advertised_listeners() {
        let refused = [("KAFKA_PROCESS_ROLES", "controller"), ("KAFKA_ADVERTISED_LISTENERS", "A://h:1")];
        let message = "KAFKA_ADVERTISED_LISTENERS is not supported on a KRaft controller.";
        assert_eq!(run(&refused, &[], None, &[]).unwrap_err().to_string(), message);
        let empty = [("KAFKA_PROCESS_ROLES", "controller"), ("KAFKA_ADVERTISED_LISTENERS", "")];
        assert!(!run(&empty, &[], None, &[]).unwrap().0.contains("advertised.listeners"));
    }

    #[test]
    fn key_stores_and_their_passwords_come_from_files() {
        let environment = [
            ("KAFKA_ADVERTISED_LISTENERS", "SSL://h:9092"),
            ("KAFKA_SSL_KEYSTORE_FILENAME", "k.jks"),
            ("KAFKA_SSL_KEY_CREDENTIALS", "key"),
            ("KAFKA_SSL_KEYSTORE_CREDENTIALS", "store"),
        ];
        let files = [
            ("/etc/kafka/secrets/k.jks", ""),
            ("/etc/kafka/secrets/key", "a b\n\n"),
            ("/etc/kafka/secrets/store", "c"),
        ];
        let (properties, _) = run(&environment, &[], None, &files).unwrap();
        assert_eq!(properties.get("ssl.keystore.location"), Some("/etc/kafka/secrets/k.jks"));
        assert_eq!(properties.get("ssl.key.password"), Some("a b"));
        assert_eq!(properties.get("ssl.keystore.password"), Some("c"));
        let missing = run(&environment, &[], None, &files[..2]).unwrap_err().to_string();
        assert_eq!(missing, "/etc/kafka/secrets/store file does not exist");
        let unset = run(&environment[..3], &[], None, &files).unwrap_err().to_string();
        assert_eq!(unset, "KAFKA_SSL_KEYSTORE_CREDENTIALS environment variable not set");
        let auth =
            run(&environment, &["KAFKA_SSL_CLIENT_AUTH=required"], None, &files).unwrap_err().to_string();
        assert_eq!(auth, "KAFKA_SSL_TRUSTSTORE_FILENAME environment variable not set");
    }

    #[test]
    fn sasl_wants_its_login_configuration() {
        let sasl = [("KAFKA_ADVERTISED_LISTENERS", "SASL_PLAINTEXT://h:9092")];
        let error = run(&sasl, &[], None, &[]).unwrap_err().to_string();
        assert_eq!(error, "KAFKA_OPTS environment variable not set");
        let (_, config) = run(&sasl, &["KAFKA_OPTS=-Dx=y"], None, &[]).unwrap();
        assert_eq!(config.notices.len(), 1);
    }

    #[test]
    fn the_cluster_id_is_taken_or_made_up() {
        assert_eq!(run(&[("CLUSTER_ID", "abc")], &[], None, &[]).unwrap().1.cluster_id, "abc");
        assert_eq!(run(&[("CLUSTER_ID", "")], &["CLUSTER_ID=x=y"], None, &[]).unwrap().1.cluster_id, "x=y");
    }

    #[test]
    fn jvm_variables_are_accepted_and_named() {
        let (properties, config) =
            run(&[("KAFKA_HEAP_OPTS", "-Xmx1G"), ("KAFKA_NODE_ID", "1")], &[], None, &[]).unwrap();
        assert_eq!(properties.len(), 1);
        assert_eq!(config.notices, ["KAFKA_HEAP_OPTS is for the JVM and has no effect"]);
    }
}
