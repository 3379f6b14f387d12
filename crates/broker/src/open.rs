//! Opening and closing a node: identity, directories, metadata log.
//!
//! Every refusal is one line with cause and cure, and nothing on disk has been changed by it.

use crate::controller_service::ControllerService;
use crate::node::{Identity, Node};
use crate::raft_driver::{MetadataLogDriver, RaftDriverConfig};
use crate::reply::Outbox;
use compression::KafkaCodecs;
use config::{BrokerConfigs, Endpoint, ServerConfig};
use controller::{ControllerSettings, QuorumController};
use env::Env;
use metadata::{BootstrapMetadata, MetadataVersion};
use protocol::Uuid;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use storage::format::{FormatOptions, MetaPropertiesEnsemble, format};
use storage::{LogManager, LogManagerConfig};

/// What the shell knows and the configuration does not: the addresses with their real ports.
#[derive(Debug, Clone)]
pub struct StartOptions {
    pub advertised_listeners: Vec<Endpoint>,
    pub advertised_controller_listeners: Vec<Endpoint>,
}

/// Formats the directories of a node when none of them is formatted yet.
pub fn format_when_new(env: &Env, config: &ServerConfig, cluster_id: &str) -> Result<(), String> {
    let directories = all_directories(config);
    let found = MetaPropertiesEnsemble::load(&*env.fs, directories.iter().map(String::as_str));
    if !found.log_dir_props.is_empty() {
        return Ok(());
    }
    let dynamic = config.quorum_voters().is_empty();
    let options = FormatOptions {
        cluster_id: cluster_id.to_owned(),
        ignore_formatted: true,
        standalone: dynamic,
        ..FormatOptions::default()
    };
    let mut lines = Vec::new();
    format(env, config, &options, &mut lines).map_err(|error| error.to_string())?;
    for line in lines {
        tracing::info!(target: "kafka.tools.StorageTool", "{line}");
    }
    Ok(())
}

fn all_directories(config: &ServerConfig) -> Vec<String> {
    let mut directories = config.log_dirs().to_vec();
    let metadata = config.metadata_log_dir().to_owned();
    if !directories.contains(&metadata) {
        directories.push(metadata);
    }
    directories
}

/// Refuses what this version does not do, before anything is touched.
fn check_scope(config: &ServerConfig) -> Result<(), String> {
    if !(config.is_broker() && config.is_controller()) {
        return Err("process.roles must be broker,controller: this version runs one node that is both. Set process.roles=broker,controller.".into());
    }
    let others: Vec<String> =
        config.quorum_voters().keys().filter(|id| **id != config.node_id).map(ToString::to_string).collect();
    if !others.is_empty() {
        return Err(format!(
            "controller.quorum.voters names other nodes ({}): this version runs a quorum of one. Name only node {}.",
            others.join(","),
            config.node_id
        ));
    }
    Ok(())
}

impl Node {
    /// Opens the node's directories and its metadata log. Its threads are the caller's.
    pub fn open(
        env: Env,
        config: ServerConfig,
        options: StartOptions,
        outbox: Arc<dyn Outbox>,
    ) -> Result<Self, String> {
        check_scope(&config)?;
        let now = env.now();
        let directories = all_directories(&config);
        let ensemble = MetaPropertiesEnsemble::load(&*env.fs, directories.iter().map(String::as_str));
        if let Some(cause) = ensemble.error_log_dirs.get(config.metadata_log_dir()) {
            return Err(format!(
                "Encountered I/O error in metadata log directory {}. Cannot continue. Its meta.properties cannot be read: {}. Repair the file, which `kafka-storage info` shows.",
                config.metadata_log_dir(),
                cause.trim_end_matches('.')
            ));
        }
        ensemble.verify(None, Some(config.node_id))?;
        complete_meta_properties(&env, &ensemble)?;
        let Some(cluster_id) = ensemble.cluster_id().map(str::to_owned) else {
            return Err(format!(
                "No `meta.properties` found in {}: the directory is not formatted. Run `kafka-storage format` on it first.",
                directories.join(", ")
            ));
        };
        let logs = LogManager::new(env.clone(), Arc::new(KafkaCodecs), log_manager_config(&config))
            .map_err(|error| error.to_string())?;
        let metadata_path = absolute(config.metadata_log_dir());
        let metadata_dir = logs
            .log_dirs()
            .into_iter()
            .find(|dir| dir.path() == metadata_path && !dir.is_offline())
            .ok_or_else(|| format!("The metadata log directory {} is offline or not among log.dirs: repair it, or set metadata.log.dir to one of log.dirs.", metadata_path.display()))?;
        let identity = Identity {
            node_id: config.node_id,
            cluster_id: cluster_id.clone(),
            incarnation_id: storage::format::random_uuid(&env),
            advertised_listeners: options.advertised_listeners,
            advertised_controller_listeners: options.advertised_controller_listeners,
            previous_broker_epoch: logs.broker_epoch_of_clean_shutdown().unwrap_or(-1),
            metadata_log_dir: metadata_path,
        };
        let context = logs.context().clone();
        let directory_id = metadata_dir.id().unwrap_or(Uuid::ZERO);
        let mut raft = RaftDriverConfig::from_server(
            &config,
            &cluster_id,
            directory_id,
            "localhost",
            env.random.next_u64(),
        );
        if !config.was_set("controller.quorum.append.linger.ms") {
            // Events that queue up while the last round is synced share the next one, so waiting gains nothing.
            raft.raft.append_linger = Duration::ZERO;
        }
        let driver =
            MetadataLogDriver::open(&context, &metadata_dir, raft, now).map_err(|error| error.to_string())?;
        let voters: Vec<i32> = driver.node().voters().ids().collect();
        if voters.iter().any(|id| *id != config.node_id) {
            return Err(format!(
                "The metadata log names the voters {voters:?}: this version runs a quorum of one. Use the directory with the cluster it belongs to."
            ));
        }
        let config = Arc::new(config);
        let settings = ControllerSettings::new(&cluster_id, config.clone(), voters);
        let bootstrap = BootstrapMetadata::from_versions(
            MetadataVersion::LATEST_PRODUCTION,
            &BTreeMap::new(),
            "the default bootstrap",
        );
        let controller = ControllerService::new(QuorumController::new(settings, bootstrap), driver, context);
        let configs = BrokerConfigs::new(ServerConfig::clone(&config));
        let node = Self::assemble(env, configs, identity, Arc::new(logs), controller, outbox);
        node.watch_log_dirs();
        Ok(node)
    }

    /// Ends the node cleanly: logs and checkpoints are synced and marked as such.
    pub fn close(&self) -> Result<(), String> {
        let now = self.now();
        let epoch = self.broker_epoch();
        let metadata = self.controller.close(now);
        let logs = self.logs.shutdown(now, epoch).map_err(|error| error.to_string());
        metadata.and(logs)
    }
}

/// A directory as the administration requests name it.
pub(crate) fn absolute(dir: &str) -> PathBuf {
    std::path::absolute(dir).unwrap_or_else(|_| PathBuf::from(dir))
}

/// Refuses a directory that was added without being formatted, and gives one of an older version its id (KIP-858).
fn complete_meta_properties(env: &Env, ensemble: &MetaPropertiesEnsemble) -> Result<(), String> {
    if ensemble.log_dir_props.is_empty() {
        return Ok(());
    }
    if let Some(dir) = ensemble.empty_log_dirs.first() {
        return Err(format!(
            "No `meta.properties` found in {dir} (have you run `kafka-storage.sh` to format the directory?)"
        ));
    }
    for (dir, properties) in &ensemble.log_dir_props {
        if properties.directory_id.is_some() {
            continue;
        }
        let mut completed = properties.clone();
        completed.directory_id = Some(storage::format::random_uuid(env));
        tracing::info!(target: "kafka.server.KafkaRaftServer$", "Rewriting {dir}/meta.properties");
        completed
            .write(env, std::path::Path::new(dir))
            .map_err(|error| format!("{dir}/meta.properties cannot be written: {error}. Check the directory's permissions and free space."))?;
    }
    Ok(())
}

fn log_manager_config(config: &ServerConfig) -> LogManagerConfig {
    let mut manager = LogManagerConfig::new(config.log_dirs().iter().map(|dir| absolute(dir)).collect());
    if let Ok(topic) = config::LogConfig::new(config, &BTreeMap::new()) {
        manager.default_config = Arc::new(crate::log_config::log_config(&topic));
    }
    manager.num_recovery_threads_per_data_dir =
        usize::try_from(config.num_recovery_threads_per_data_dir).unwrap_or(1);
    manager.flush_scheduler_interval_ms = config.log_flush_scheduler_interval_ms;
    manager.flush_offset_checkpoint_interval_ms = i64::from(config.log_flush_offset_checkpoint_interval_ms);
    manager.flush_start_offset_checkpoint_interval_ms =
        i64::from(config.log_flush_start_offset_checkpoint_interval_ms);
    manager.high_watermark_checkpoint_interval_ms = config.replica_high_watermark_checkpoint_interval_ms;
    manager.retention_check_interval_ms = config.log_retention_check_interval_ms;
    manager.producer_id_expiration_ms = i64::from(config.producer_id_expiration_ms);
    manager.producer_id_expiration_check_interval_ms =
        i64::from(config.producer_id_expiration_check_interval_ms);
    manager.initial_task_delay_ms = config.log_initial_task_delay_ms;
    manager.cleaner = crate::log_config::cleaner_config(config);
    manager
}
