//! Table tests of a server's configuration.

use super::*;
use crate::properties::Properties;

const COMBINED: &str = "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n\
    controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@localhost:9093\n";

fn build(text: &str) -> Result<ServerConfig, ConfigError> {
    ServerConfig::from_properties(&Properties::parse_str(text).unwrap())
}

fn combined(extra: &str) -> ServerConfig {
    build(&format!("{COMBINED}{extra}")).unwrap()
}

#[test]
fn the_common_quickstart_is_understood() {
    let config = combined("advertised.listeners=PLAINTEXT://localhost:9092\n");
    assert!(config.is_broker() && config.is_controller());
    assert_eq!(config.node_id, 1);
    assert_eq!(config.listeners().len(), 2);
    assert_eq!(config.broker_listeners().map(|e| e.to_string()).collect::<Vec<_>>(), ["PLAINTEXT://:9092"]);
    assert_eq!(config.advertised_broker_listeners()[0].to_string(), "PLAINTEXT://localhost:9092");
    // The controller listens everywhere, so it is announced as the voter says.
    assert_eq!(config.advertised_controller_listeners()[0].to_string(), "CONTROLLER://localhost:9093");
    assert_eq!(config.inter_broker_listener_name(), "PLAINTEXT");
    assert_eq!(config.quorum_voters()[&1], ("localhost".to_owned(), 9093));
    assert_eq!(config.log_dirs(), ["/tmp/kafka-logs"]);
    assert_eq!(config.metadata_log_dir(), "/tmp/kafka-logs");
    assert!(config.early_start_listeners().contains("CONTROLLER"));
}

#[test]
fn replication_of_internal_topics_knows_whether_the_user_set_it() {
    let config = combined("transaction.state.log.replication.factor=3\ntransaction.state.log.min.isr=2\n");
    assert_eq!(config.offsets_topic_replication_factor(), ReplicationFactor::Auto { up_to: 3 });
    assert_eq!(config.transaction_state_log_replication_factor(), ReplicationFactor::Explicit(3));
    for (live, factor) in [(0, 1), (1, 1), (2, 2), (3, 3), (9, 3)] {
        assert_eq!(config.offsets_topic_replication_factor().for_live_brokers(live), factor);
        assert_eq!(config.transaction_state_log_replication_factor().for_live_brokers(live), 3);
    }
    assert_eq!(config.share_coordinator_state_topic_min_isr(1), 1);
    assert_eq!(config.share_coordinator_state_topic_min_isr(3), 2);
    assert_eq!(config.transaction_state_log_min_isr(1), 2);
}

#[test]
fn times_with_several_units_take_the_finest_that_is_set() {
    let config = combined("log.retention.minutes=2\nlog.retention.hours=5\nlog.roll.hours=1\n");
    assert_eq!(config.log_retention_time_ms(), 120_000);
    assert_eq!(config.log_roll_time_ms(), 3_600_000);
    assert_eq!(combined("log.retention.ms=-7\n").log_retention_time_ms(), -1);
    assert_eq!(combined("log.flush.scheduler.interval.ms=9\n").log_flush_time_ms(), 9);
}

#[test]
fn warnings_name_the_nearest_key_with_its_line() {
    let properties = Properties::parse_str(&format!(
        "{COMBINED}log.retention.hour=1\nssl.keystore.type=PEM\nretention.ms=1"
    ));
    let properties = properties.unwrap();
    let config = ServerConfig::from_properties(&properties).unwrap();
    let warnings: Vec<String> = config.warnings(&properties).iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "Unknown configuration 'log.retention.hour' (line 6): did you mean 'log.retention.hours'? It is ignored.",
            "Unknown configuration 'retention.ms' (line 8): did you mean 'log.retention.ms'? It is ignored.",
            "These configurations are known but not in effect yet: ssl.keystore.type",
        ]
    );
}

#[test]
fn a_key_of_one_listener_wins_over_the_general_one() {
    let config = combined("listener.name.plaintext.max.connections=7\n");
    assert_eq!(config.value_for_listener("PLAINTEXT", "max.connections"), Ok(ConfigValue::Int(7)));
    assert_eq!(config.value_for_listener("OTHER", "max.connections"), Ok(ConfigValue::Int(i32::MAX)));
}
