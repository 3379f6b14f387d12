//! The typed fields of a server's configuration, one line each, filled once when it is built.
//!
//! A field's type is checked against the table by a test; reading a field costs a load, so request
//! handlers may ask for it on every request.

use crate::table::broker_table;
use crate::value::ConfigValue;

/// How a field is read from a checked value. The type of the key makes the failure impossible.
pub(crate) trait FromValue: Sized {
    fn from_value(value: &ConfigValue) -> Option<Self>;
}

impl FromValue for bool {
    fn from_value(value: &ConfigValue) -> Option<Self> {
        value.as_bool()
    }
}

impl FromValue for i16 {
    fn from_value(value: &ConfigValue) -> Option<Self> {
        match value {
            ConfigValue::Short(v) => Some(*v),
            _ => None,
        }
    }
}

impl FromValue for i32 {
    fn from_value(value: &ConfigValue) -> Option<Self> {
        match value {
            ConfigValue::Int(v) => Some(*v),
            _ => None,
        }
    }
}

impl FromValue for i64 {
    fn from_value(value: &ConfigValue) -> Option<Self> {
        match value {
            ConfigValue::Long(v) => Some(*v),
            _ => None,
        }
    }
}

impl FromValue for f64 {
    fn from_value(value: &ConfigValue) -> Option<Self> {
        match value {
            ConfigValue::Double(v) => Some(*v),
            _ => None,
        }
    }
}

impl FromValue for String {
    fn from_value(value: &ConfigValue) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

impl FromValue for Vec<String> {
    fn from_value(value: &ConfigValue) -> Option<Self> {
        value.as_list().map(<[String]>::to_vec)
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &ConfigValue) -> Option<Self> {
        if value.is_null() { Some(None) } else { T::from_value(value).map(Some) }
    }
}

macro_rules! values {
    ($($name:ident: $kind:ty = $key:literal;)*) => {
        /// Every key of a server that has a use, under its own name; units are in the names.
        #[derive(Debug, Clone, PartialEq)]
        pub struct ServerValues {$(
            #[doc = concat!("`", $key, "`")]
            pub $name: $kind,
        )*}

        impl ServerValues {
            /// `values` is parallel to the keys of the broker's table.
            pub(crate) fn new(values: &[ConfigValue]) -> Self {
                let table = broker_table();
                let value = |key: &str| table.index_of(key).and_then(|i| values.get(i)).unwrap_or(&ConfigValue::Null);
                Self {$(
                    $name: FromValue::from_value(value($key)).unwrap_or_else(|| unreachable!(concat!($key, " has another type"))),
                )*}
            }
        }
    };
}

values! {
    // Identity and roles.
    node_id: i32 = "node.id";
    broker_rack: Option<String> = "broker.rack";
    inter_broker_listener_name_text: Option<String> = "inter.broker.listener.name";
    controller_listener_names: Vec<String> = "controller.listener.names";
    initial_broker_registration_timeout_ms: i32 = "initial.broker.registration.timeout.ms";
    broker_heartbeat_interval_ms: i32 = "broker.heartbeat.interval.ms";
    broker_session_timeout_ms: i32 = "broker.session.timeout.ms";
    server_max_startup_time_ms: i64 = "server.max.startup.time.ms";
    controlled_shutdown_enable: bool = "controlled.shutdown.enable";
    unstable_api_versions_enable: bool = "unstable.api.versions.enable";
    unstable_feature_versions_enable: bool = "unstable.feature.versions.enable";

    // Sockets and connections.
    socket_send_buffer_bytes: i32 = "socket.send.buffer.bytes";
    socket_receive_buffer_bytes: i32 = "socket.receive.buffer.bytes";
    socket_request_max_bytes: i32 = "socket.request.max.bytes";
    socket_listen_backlog_size: i32 = "socket.listen.backlog.size";
    socket_connection_setup_timeout_ms: i64 = "socket.connection.setup.timeout.ms";
    socket_connection_setup_timeout_max_ms: i64 = "socket.connection.setup.timeout.max.ms";
    connections_max_idle_ms: i64 = "connections.max.idle.ms";
    connections_max_reauth_ms: i64 = "connections.max.reauth.ms";
    connection_failed_authentication_delay_ms: i32 = "connection.failed.authentication.delay.ms";
    max_connections: i32 = "max.connections";
    max_connections_per_ip: i32 = "max.connections.per.ip";
    max_connection_creation_rate: i32 = "max.connection.creation.rate";
    queued_max_requests: i32 = "queued.max.requests";
    queued_max_request_bytes: i64 = "queued.max.request.bytes";
    request_timeout_ms: i32 = "request.timeout.ms";
    controller_socket_timeout_ms: i32 = "controller.socket.timeout.ms";
    num_network_threads: i32 = "num.network.threads";
    num_io_threads: i32 = "num.io.threads";
    background_threads: i32 = "background.threads";
    sasl_server_max_receive_size: i32 = "sasl.server.max.receive.size";
    sasl_enabled_mechanisms: Vec<String> = "sasl.enabled.mechanisms";

    // Requests.
    message_max_bytes: i32 = "message.max.bytes";
    max_decompressed_message_bytes: i32 = "max.decompressed.message.bytes";
    fetch_max_bytes: i32 = "fetch.max.bytes";
    max_incremental_fetch_session_cache_slots: i32 = "max.incremental.fetch.session.cache.slots";
    max_request_partition_size_limit: i32 = "max.request.partition.size.limit";
    producer_purgatory_purge_interval_requests: i32 = "producer.purgatory.purge.interval.requests";
    fetch_purgatory_purge_interval_requests: i32 = "fetch.purgatory.purge.interval.requests";
    delete_records_purgatory_purge_interval_requests: i32 = "delete.records.purgatory.purge.interval.requests";

    // Topics.
    num_partitions: i32 = "num.partitions";
    default_replication_factor: i32 = "default.replication.factor";
    auto_create_topics_enable: bool = "auto.create.topics.enable";
    delete_topic_enable: bool = "delete.topic.enable";
    min_insync_replicas: i32 = "min.insync.replicas";
    compression_type: String = "compression.type";
    compression_gzip_level: i32 = "compression.gzip.level";
    compression_lz4_level: i32 = "compression.lz4.level";
    compression_zstd_level: i32 = "compression.zstd.level";
    unclean_leader_election_enable: bool = "unclean.leader.election.enable";
    unclean_leader_election_interval_ms: i64 = "unclean.leader.election.interval.ms";
    auto_leader_rebalance_enable: bool = "auto.leader.rebalance.enable";
    leader_imbalance_check_interval_seconds: i64 = "leader.imbalance.check.interval.seconds";

    // The log.
    log_segment_bytes: i32 = "log.segment.bytes";
    log_roll_ms: Option<i64> = "log.roll.ms";
    log_roll_hours: i32 = "log.roll.hours";
    log_roll_jitter_ms: Option<i64> = "log.roll.jitter.ms";
    log_roll_jitter_hours: i32 = "log.roll.jitter.hours";
    log_retention_ms: Option<i64> = "log.retention.ms";
    log_retention_minutes: Option<i32> = "log.retention.minutes";
    log_retention_hours: i32 = "log.retention.hours";
    log_retention_bytes: i64 = "log.retention.bytes";
    log_retention_check_interval_ms: i64 = "log.retention.check.interval.ms";
    log_cleanup_policy: Vec<String> = "log.cleanup.policy";
    log_index_size_max_bytes: i32 = "log.index.size.max.bytes";
    log_index_interval_bytes: i32 = "log.index.interval.bytes";
    log_flush_interval_messages: i64 = "log.flush.interval.messages";
    log_flush_interval_ms: Option<i64> = "log.flush.interval.ms";
    log_flush_scheduler_interval_ms: i64 = "log.flush.scheduler.interval.ms";
    log_flush_offset_checkpoint_interval_ms: i32 = "log.flush.offset.checkpoint.interval.ms";
    log_flush_start_offset_checkpoint_interval_ms: i32 = "log.flush.start.offset.checkpoint.interval.ms";
    log_segment_delete_delay_ms: i64 = "log.segment.delete.delay.ms";
    log_initial_task_delay_ms: i64 = "log.initial.task.delay.ms";
    log_preallocate: bool = "log.preallocate";
    log_message_timestamp_type: String = "log.message.timestamp.type";
    log_message_timestamp_before_max_ms: i64 = "log.message.timestamp.before.max.ms";
    log_message_timestamp_after_max_ms: i64 = "log.message.timestamp.after.max.ms";
    log_dir_failure_timeout_ms: i64 = "log.dir.failure.timeout.ms";
    log_local_retention_ms: i64 = "log.local.retention.ms";
    log_local_retention_bytes: i64 = "log.local.retention.bytes";
    log_remote_copy_lag_ms: i64 = "log.remote.copy.lag.ms";
    log_remote_copy_lag_bytes: i64 = "log.remote.copy.lag.bytes";
    remote_log_storage_system_enable: bool = "remote.log.storage.system.enable";
    num_recovery_threads_per_data_dir: i32 = "num.recovery.threads.per.data.dir";
    num_replica_alter_log_dirs_threads: Option<i32> = "num.replica.alter.log.dirs.threads";

    // The cleaner.
    log_cleaner_enable: bool = "log.cleaner.enable";
    log_cleaner_threads: i32 = "log.cleaner.threads";
    log_cleaner_backoff_ms: i64 = "log.cleaner.backoff.ms";
    log_cleaner_dedupe_buffer_size: i64 = "log.cleaner.dedupe.buffer.size";
    log_cleaner_io_buffer_size: i32 = "log.cleaner.io.buffer.size";
    log_cleaner_io_buffer_load_factor: f64 = "log.cleaner.io.buffer.load.factor";
    log_cleaner_io_max_bytes_per_second: f64 = "log.cleaner.io.max.bytes.per.second";
    log_cleaner_delete_retention_ms: i64 = "log.cleaner.delete.retention.ms";
    log_cleaner_min_compaction_lag_ms: i64 = "log.cleaner.min.compaction.lag.ms";
    log_cleaner_max_compaction_lag_ms: i64 = "log.cleaner.max.compaction.lag.ms";
    log_cleaner_min_cleanable_ratio: f64 = "log.cleaner.min.cleanable.ratio";

    // Replication.
    replica_lag_time_max_ms: i64 = "replica.lag.time.max.ms";
    replica_socket_timeout_ms: i32 = "replica.socket.timeout.ms";
    replica_socket_receive_buffer_bytes: i32 = "replica.socket.receive.buffer.bytes";
    replica_fetch_max_bytes: i32 = "replica.fetch.max.bytes";
    replica_fetch_wait_max_ms: i32 = "replica.fetch.wait.max.ms";
    replica_fetch_min_bytes: i32 = "replica.fetch.min.bytes";
    replica_fetch_response_max_bytes: i32 = "replica.fetch.response.max.bytes";
    replica_fetch_backoff_ms: i32 = "replica.fetch.backoff.ms";
    replica_high_watermark_checkpoint_interval_ms: i64 = "replica.high.watermark.checkpoint.interval.ms";
    num_replica_fetchers: i32 = "num.replica.fetchers";

    // The producer's ids and transactions.
    producer_id_expiration_ms: i32 = "producer.id.expiration.ms";
    producer_id_expiration_check_interval_ms: i32 = "producer.id.expiration.check.interval.ms";
    transaction_max_timeout_ms: i32 = "transaction.max.timeout.ms";
    transaction_state_log_num_partitions: i32 = "transaction.state.log.num.partitions";
    transaction_state_log_segment_bytes: i32 = "transaction.state.log.segment.bytes";
    transaction_state_log_load_buffer_size: i32 = "transaction.state.log.load.buffer.size";
    transactional_id_expiration_ms: i32 = "transactional.id.expiration.ms";
    transaction_abort_timed_out_transaction_cleanup_interval_ms: i32 =
        "transaction.abort.timed.out.transaction.cleanup.interval.ms";
    transaction_remove_expired_transaction_cleanup_interval_ms: i32 =
        "transaction.remove.expired.transaction.cleanup.interval.ms";
    transaction_partition_verification_enable: bool = "transaction.partition.verification.enable";
    transaction_two_phase_commit_enable: bool = "transaction.two.phase.commit.enable";

    // Group coordination.
    group_min_session_timeout_ms: i32 = "group.min.session.timeout.ms";
    group_max_session_timeout_ms: i32 = "group.max.session.timeout.ms";
    group_initial_rebalance_delay_ms: i32 = "group.initial.rebalance.delay.ms";
    group_max_size: i32 = "group.max.size";
    group_coordinator_threads: i32 = "group.coordinator.threads";
    group_coordinator_background_threads: i32 = "group.coordinator.background.threads";
    group_coordinator_append_linger_ms: i32 = "group.coordinator.append.linger.ms";
    group_coordinator_rebalance_protocols: Vec<String> = "group.coordinator.rebalance.protocols";
    group_coordinator_cached_buffer_max_bytes: i32 = "group.coordinator.cached.buffer.max.bytes";
    offset_metadata_max_bytes: i32 = "offset.metadata.max.bytes";
    offsets_load_buffer_size: i32 = "offsets.load.buffer.size";
    offsets_commit_timeout_ms: i32 = "offsets.commit.timeout.ms";
    offsets_retention_minutes: i32 = "offsets.retention.minutes";
    offsets_retention_check_interval_ms: i64 = "offsets.retention.check.interval.ms";
    offsets_topic_num_partitions: i32 = "offsets.topic.num.partitions";
    offsets_topic_segment_bytes: i32 = "offsets.topic.segment.bytes";
    offsets_topic_compression_codec: i32 = "offsets.topic.compression.codec";
    group_consumer_session_timeout_ms: i32 = "group.consumer.session.timeout.ms";
    group_consumer_min_session_timeout_ms: i32 = "group.consumer.min.session.timeout.ms";
    group_consumer_max_session_timeout_ms: i32 = "group.consumer.max.session.timeout.ms";
    group_consumer_heartbeat_interval_ms: i32 = "group.consumer.heartbeat.interval.ms";
    group_consumer_min_heartbeat_interval_ms: i32 = "group.consumer.min.heartbeat.interval.ms";
    group_consumer_max_heartbeat_interval_ms: i32 = "group.consumer.max.heartbeat.interval.ms";
    group_consumer_assignment_interval_ms: i32 = "group.consumer.assignment.interval.ms";
    group_consumer_max_size: i32 = "group.consumer.max.size";
    group_consumer_assignors: Vec<String> = "group.consumer.assignors";
    group_consumer_migration_policy: String = "group.consumer.migration.policy";
    group_consumer_regex_refresh_interval_ms: i32 = "group.consumer.regex.refresh.interval.ms";
    group_streams_assignors: Vec<String> = "group.streams.assignors";

    // The controller, the quorum and the metadata log.
    controller_quorum_election_timeout_ms: i32 = "controller.quorum.election.timeout.ms";
    controller_quorum_election_backoff_max_ms: i32 = "controller.quorum.election.backoff.max.ms";
    controller_quorum_fetch_timeout_ms: i32 = "controller.quorum.fetch.timeout.ms";
    controller_quorum_append_linger_ms: i32 = "controller.quorum.append.linger.ms";
    controller_quorum_request_timeout_ms: i32 = "controller.quorum.request.timeout.ms";
    controller_quorum_retry_backoff_ms: i32 = "controller.quorum.retry.backoff.ms";
    controller_quorum_fetch_max_bytes: i32 = "controller.quorum.fetch.max.bytes";
    controller_quorum_fetch_snapshot_max_bytes: i32 = "controller.quorum.fetch.snapshot.max.bytes";
    controller_quorum_auto_join_enable: bool = "controller.quorum.auto.join.enable";
    controller_performance_sample_period_ms: i64 = "controller.performance.sample.period.ms";
    controller_performance_always_log_threshold_ms: i64 = "controller.performance.always.log.threshold.ms";
    metadata_log_segment_bytes: i32 = "metadata.log.segment.bytes";
    metadata_log_segment_ms: i64 = "metadata.log.segment.ms";
    internal_metadata_log_segment_bytes: Option<i32> = "internal.metadata.log.segment.bytes";
    internal_metadata_max_batch_size_in_bytes: i32 = "internal.metadata.max.batch.size.in.bytes";
    internal_metadata_delete_delay_millis: i64 = "internal.metadata.delete.delay.millis";
    metadata_log_max_record_bytes_between_snapshots: i64 = "metadata.log.max.record.bytes.between.snapshots";
    metadata_log_max_snapshot_interval_ms: i64 = "metadata.log.max.snapshot.interval.ms";
    metadata_max_retention_bytes: i64 = "metadata.max.retention.bytes";
    metadata_max_retention_ms: i64 = "metadata.max.retention.ms";
    metadata_max_idle_interval_ms: i32 = "metadata.max.idle.interval.ms";

    // Metrics and telemetry.
    metrics_num_samples: i32 = "metrics.num.samples";
    metrics_sample_window_ms: i64 = "metrics.sample.window.ms";
    telemetry_max_bytes: i32 = "telemetry.max.bytes";
}
