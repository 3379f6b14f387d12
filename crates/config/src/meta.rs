//! Bitácora's own starting points: what `bitacora` serves with when it is told nothing.
//!
//! Pure: the caller decides about ports and directories and passes them in.

use crate::properties::Properties;

/// Where `bitacora` alone keeps its data, relative to where it is started.
pub const DEFAULT_DATA_DIR: &str = "./bitacora-data";
/// The port of Kafka.
pub const DEFAULT_PORT: u16 = 9092;
/// The controller's port; only this machine reaches it.
pub const DEFAULT_CONTROLLER_PORT: u16 = 9093;

/// One node, broker and controller in one process, reachable from this machine only. Port 0 lets the
/// system choose.
pub fn single_node_properties(data_dir: &str, port: u16, controller_port: u16) -> Properties {
    let listeners = format!("PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}");
    let mut properties = Properties::new();
    for (key, value) in [
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        ("listeners", &listeners),
        ("advertised.listeners", &format!("PLAINTEXT://127.0.0.1:{port}")),
        ("controller.listener.names", "CONTROLLER"),
        ("controller.quorum.bootstrap.servers", &format!("127.0.0.1:{controller_port}")),
        ("inter.broker.listener.name", "PLAINTEXT"),
        ("log.dirs", data_dir),
        // One node has nobody to wait for.
        ("group.initial.rebalance.delay.ms", "0"),
    ] {
        properties.set(key, value);
    }
    properties
}

/// What `bitacora` without any argument serves with.
pub fn default_properties() -> Properties {
    single_node_properties(DEFAULT_DATA_DIR, DEFAULT_PORT, DEFAULT_CONTROLLER_PORT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::ServerConfig;

    #[test]
    fn the_default_is_one_complete_node_on_loopback() {
        let config = ServerConfig::from_properties(&default_properties()).unwrap();
        assert!(config.is_broker() && config.is_controller());
        assert_eq!(config.log_dirs(), [DEFAULT_DATA_DIR]);
        assert!(config.listeners().iter().all(|e| e.host.as_deref() == Some("127.0.0.1")));
        assert!(config.warnings(&default_properties()).is_empty());
        assert!(!config.offsets_topic_replication_factor().is_explicit());
        ServerConfig::from_properties(&single_node_properties("/d", 0, 0)).unwrap();
    }
}
