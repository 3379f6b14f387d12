//! What `kafka-storage` does: `format`, `info`, `random-uuid`, `version-mapping`, `feature-dependencies`.
//!
//! For a command line front end: parse the options into [`FormatOptions`] (or the plain arguments of the other
//! functions), read the properties file into a `config::ServerConfig`, call the function, print the lines it put into
//! `out` to stdout. On `Err(FormatError::Terse)` print the error to stderr; both kinds of error end with exit code 1.
//! [`FormatError::Uncaught`] is where the reference dies of an exception and prints a stack trace; one line will do.
//!
//! ```text
//! fn format(env: &Env, config: &ServerConfig, options: &FormatOptions, out: &mut Vec<String>) -> Result<(), FormatError>
//! fn info(env: &Env, config: &ServerConfig, out: &mut Vec<String>) -> i32            // the exit code
//! fn random_uuid(env: &Env) -> Uuid
//! fn version_mapping(release_version: Option<&str>, out: &mut Vec<String>) -> Result<(), FormatError>
//! fn feature_dependencies(features: &[String], out: &mut Vec<String>) -> Result<(), FormatError>
//! ```
//! Exclusive among each other (a usage error of the parser): `--standalone`, `--no-initial-controllers`,
//! `--initial-controllers`. Required: `--cluster-id` and `--config` for format.
//!
//! Invariants: nothing is written when the request is refused; `meta.properties` is the last thing a directory gets, so
//! a directory is formatted whole or not at all. Crash: leaves directories without `meta.properties`, which a second
//! format takes as empty.

mod dynamic_voters;
mod meta_properties;
mod scram;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;

use bytes::Bytes;
use config::ServerConfig;
use env::{Env, FileSystem};
use metadata::feature::{FEATURES, KRAFT_VERSION};
use metadata::version::METADATA_VERSION;
use metadata::{
    BootstrapMetadata, Feature, FormatFeatures, MetadataRecord, MetadataVersion, VersionedRecord,
};
use protocol::Uuid;

use crate::metadata_log::METADATA_LOG_DIR;
use crate::metadata_log::snapshot::{SnapshotHeader, SnapshotId, SnapshotWriter};

pub use dynamic_voters::{DynamicVoter, DynamicVoters};
pub use meta_properties::{MetaProperties, MetaPropertiesEnsemble};

/// The options of `format`, as given.
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    pub cluster_id: String,
    pub ignore_formatted: bool,
    pub standalone: bool,
    pub no_initial_controllers: bool,
    pub initial_controllers: Option<String>,
    /// Each `--add-scram`.
    pub add_scram: Vec<String>,
    /// Each `--feature`, `name=level`.
    pub features: Vec<String>,
    pub release_version: Option<String>,
}

/// Why a command failed; exit code 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// One line for stderr.
    Terse(String),
    /// The reference dies of this exception.
    Uncaught { exception: &'static str, message: String },
}

impl FormatError {
    fn runtime(message: impl Into<String>) -> Self {
        Self::Uncaught { exception: "java.lang.RuntimeException", message: message.into() }
    }

    fn illegal_argument(message: impl Into<String>) -> Self {
        Self::Uncaught { exception: "java.lang.IllegalArgumentException", message: message.into() }
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Terse(message) | Self::Uncaught { message, .. } => f.write_str(message),
        }
    }
}

impl std::error::Error for FormatError {}

fn terse<T>(message: impl Into<String>) -> Result<T, FormatError> {
    Err(FormatError::Terse(message.into()))
}

/// `kafka-storage random-uuid`.
pub fn random_uuid(env: &Env) -> Uuid {
    loop {
        let mut bytes = [0; 16];
        env.random.fill(&mut bytes);
        if let Some(id) = Uuid::from_random(bytes) {
            return id;
        }
    }
}

/// `kafka-storage format`.
pub fn format(
    env: &Env,
    config: &ServerConfig,
    options: &FormatOptions,
    out: &mut Vec<String>,
) -> Result<(), FormatError> {
    if config.process_roles().is_empty() {
        return terse(
            "The kafka configuration file appears to be for a legacy cluster. Formatting is only supported for \
             clusters in KRaft mode.",
        );
    }
    let unstable_enabled = config.unstable_feature_versions_enable;
    let release_version = match &options.release_version {
        None => None,
        Some(text) => match MetadataVersion::from_version_string(text, unstable_enabled) {
            Ok(version) => Some(version),
            Err(e) => return terse(e.to_string()),
        },
    };
    let features = parse_features(&options.features)?;
    let has_dynamic_quorum = config.quorum_voters().is_empty();
    let voters = initial_voters(env, config, options, has_dynamic_quorum)?;
    let Some(listener) = config.controller_listener_names.first() else {
        return terse("You must specify the name of the initial controller listener.");
    };
    let asked = FormatFeatures { release_version, features, unstable_enabled, has_dynamic_quorum };
    let (version, levels) = asked.effective_levels().map_err(|e| feature_error(&e.to_string()))?;
    let mut bootstrap = BootstrapMetadata::from_versions(version, &levels, "format command");
    if !options.add_scram.is_empty() {
        if !version.is_scram_supported() {
            let first =
                MetadataVersion::all().find(|v| v.is_scram_supported()).unwrap_or(MetadataVersion::MINIMUM);
            return terse(format!("SCRAM is only supported in metadata.version {first} or later."));
        }
        bootstrap = bootstrap.with_records(scram::parse(&*env.random, &options.add_scram)?);
    }
    let job = Job { env, config, options, bootstrap, levels, voters, listener };
    job.run(out)
}

/// The reference's formatter refuses with an exception of its own, but the feature table with another.
fn feature_error(message: &str) -> FormatError {
    if message.starts_with("No ") || message.contains("could not be set to") {
        FormatError::illegal_argument(message)
    } else {
        FormatError::Terse(message.to_owned())
    }
}

fn parse_features(arguments: &[String]) -> Result<BTreeMap<String, i16>, FormatError> {
    let mut features = BTreeMap::new();
    for argument in arguments {
        let Some((name, level)) = argument.split_once('=') else {
            return Err(FormatError::runtime(format!(
                "Can't parse feature=level string {argument}: equals sign not found."
            )));
        };
        let level = level.trim();
        let Ok(parsed) = level.parse() else {
            return Err(FormatError::runtime(format!(
                "Can't parse feature=level string {argument}: unable to parse {level} as a short."
            )));
        };
        features.insert(name.trim().to_owned(), parsed);
    }
    Ok(features)
}

fn initial_voters(
    env: &Env,
    config: &ServerConfig,
    options: &FormatOptions,
    has_dynamic_quorum: bool,
) -> Result<Option<DynamicVoters>, FormatError> {
    if !has_dynamic_quorum && (options.initial_controllers.is_some() || options.standalone) {
        return terse(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or \
             --standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify \
             controller.quorum.bootstrap.servers instead.",
        );
    }
    let mut voters = match &options.initial_controllers {
        Some(text) => Some(DynamicVoters::parse(text).map_err(FormatError::illegal_argument)?),
        None => None,
    };
    if options.standalone {
        voters = Some(standalone_voters(env, config)?);
    }
    if !options.no_initial_controllers && config.is_controller() && has_dynamic_quorum && voters.is_none() {
        return terse(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: \
             --standalone, --initial-controllers, or --no-initial-controllers.",
        );
    }
    Ok(voters)
}

fn standalone_voters(env: &Env, config: &ServerConfig) -> Result<DynamicVoters, FormatError> {
    if !config.is_controller() {
        return terse("You can only use --standalone on a controller.");
    }
    let Some(listener) = config.advertised_controller_listeners().first() else {
        return Err(FormatError::runtime("No controller listeners found."));
    };
    let host = listener.host.clone().unwrap_or_else(|| "localhost".to_owned());
    let Ok(port) = u16::try_from(listener.port) else {
        return Err(FormatError::illegal_argument(format!(
            "Invalid port {} in dynamic voter string.",
            listener.port
        )));
    };
    let voter = DynamicVoter { node_id: config.node_id, host, port, directory_id: random_uuid(env) };
    DynamicVoters::new([voter]).map_err(FormatError::illegal_argument)
}

/// A request that was accepted.
struct Job<'a> {
    env: &'a Env,
    config: &'a ServerConfig,
    options: &'a FormatOptions,
    bootstrap: BootstrapMetadata,
    levels: BTreeMap<String, i16>,
    voters: Option<DynamicVoters>,
    listener: &'a str,
}

impl Job<'_> {
    fn run(&self, out: &mut Vec<String>) -> Result<(), FormatError> {
        let (env, options) = (self.env, self.options);
        let directories = log_directories(self.config);
        let ensemble = MetaPropertiesEnsemble::load(&*env.fs, directories.iter().map(String::as_str));
        let verified = ensemble.verify(Some(&options.cluster_id), Some(self.config.node_id));
        verified.map_err(FormatError::runtime)?;
        if !options.ignore_formatted && !ensemble.log_dir_props.is_empty() {
            let dirs: Vec<&String> = ensemble.log_dir_props.keys().collect();
            let capacity = copied_map_capacity(dirs.len());
            let first = hash_order(dirs, capacity).first().map_or("", |dir| dir.as_str());
            return terse(format!(
                "Log directory {first} is already formatted. Use --ignore-formatted to ignore this directory and \
                 format the others."
            ));
        }
        if !ensemble.error_log_dirs.is_empty() {
            for dir in ensemble.error_log_dirs.keys() {
                out.push(format!("I/O error trying to read log directory {dir}. Ignoring..."));
            }
            if ensemble.empty_log_dirs.is_empty() && ensemble.log_dir_props.is_empty() {
                return terse("No available log directories to format.");
            }
        }
        if ensemble.empty_log_dirs.is_empty() {
            out.push("All of the log directories are already formatted.".to_owned());
            return Ok(());
        }
        out.push(format!("Bootstrap metadata: {}", describe(&self.bootstrap)));
        let empty: Vec<&String> = ensemble.empty_log_dirs.iter().collect();
        let capacity = growing_map_capacity(empty.len());
        for dir in hash_order(empty, capacity) {
            let kind = DirectoryType::of(dir, self.config, self.voters.as_ref());
            let version = self.bootstrap.metadata_version();
            out.push(format!("Formatting {} {dir} with metadata.version {version}.", kind.description()));
            let written = self.format_directory(Path::new(dir), kind);
            written.or_else(|e| terse(format!("Error while writing meta.properties file {dir}: {e}")))?;
        }
        Ok(())
    }

    fn format_directory(&self, dir: &Path, kind: DirectoryType) -> io::Result<()> {
        let env = self.env;
        create_dir_durably(&*env.fs, dir)?;
        if self.config.is_controller() && kind != DirectoryType::Log {
            self.write_bootstrap_snapshot(dir)?;
        }
        let node_id = self.config.node_id;
        let directory_id = match (kind, &self.voters) {
            (DirectoryType::DynamicMetadataVoter, Some(voters)) => {
                voters.get(node_id).map(|voter| voter.directory_id)
            }
            _ => None,
        };
        let properties = MetaProperties {
            version: 1,
            cluster_id: Some(self.options.cluster_id.clone()),
            node_id: Some(node_id),
            directory_id: Some(directory_id.unwrap_or_else(|| random_uuid(env))),
        };
        properties.write(env, dir)
    }

    fn write_bootstrap_snapshot(&self, dir: &Path) -> io::Result<()> {
        let env = self.env;
        let partition = dir.join(METADATA_LOG_DIR);
        create_dir_durably(&*env.fs, &partition)?;
        let header = SnapshotHeader {
            last_contained_log_timestamp: env.now().wall_ms,
            kraft_version: self.levels.get(KRAFT_VERSION).copied().unwrap_or(0),
            voters: self.voters.as_ref().map(|voters| voters.to_record(self.listener)),
        };
        let records =
            self.bootstrap.records().iter().map(VersionedRecord::encode).collect::<Result<Vec<Bytes>, _>>();
        let records = records.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
        let mut writer = SnapshotWriter::create(env, &partition, SnapshotId::BOOTSTRAP, &header)?;
        writer.append(&records)?;
        writer.freeze()?;
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirectoryType {
    Log,
    StaticMetadata,
    DynamicMetadataNonVoter,
    DynamicMetadataVoter,
}

impl DirectoryType {
    fn of(dir: &str, config: &ServerConfig, voters: Option<&DynamicVoters>) -> Self {
        if dir != config.metadata_log_dir() {
            return Self::Log;
        }
        match voters {
            None => Self::StaticMetadata,
            Some(voters) if voters.get(config.node_id).is_some() => Self::DynamicMetadataVoter,
            Some(_) => Self::DynamicMetadataNonVoter,
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Log => "data directory",
            Self::StaticMetadata => "metadata directory",
            Self::DynamicMetadataNonVoter => "dynamic metadata directory",
            Self::DynamicMetadataVoter => "dynamic metadata voter directory",
        }
    }
}

/// Creates a directory and those above it that are missing, and makes their names durable.
fn create_dir_durably(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    for ancestor in dir.ancestors().filter(|path| !path.as_os_str().is_empty()) {
        if fs.exists(ancestor)? {
            break;
        }
        missing.push(ancestor);
    }
    fs.create_dir_all(dir)?;
    for parent in missing.into_iter().filter_map(Path::parent) {
        fs.sync_dir(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
    }
    Ok(())
}

/// All directories of a node, sorted, the metadata directory among them.
fn log_directories(config: &ServerConfig) -> std::collections::BTreeSet<String> {
    config.log_dirs().iter().cloned().chain([config.metadata_log_dir().to_owned()]).collect()
}

/// The bootstrap records as the reference prints them.
fn describe(bootstrap: &BootstrapMetadata) -> String {
    let bytes = |bytes: &[u8]| {
        let signed: Vec<_> = bytes.iter().map(|byte| byte.cast_signed().to_string()).collect();
        format!("[{}]", signed.join(", "))
    };
    let record = |record: &VersionedRecord| {
        let text = match &record.record {
            MetadataRecord::FeatureLevelRecord(r) => {
                format!("FeatureLevelRecord(name='{}', featureLevel={})", r.name, r.feature_level)
            }
            MetadataRecord::UserScramCredentialRecord(r) => format!(
                "UserScramCredentialRecord(name='{}', mechanism={}, salt={}, storedKey={}, serverKey={}, iterations={})",
                r.name,
                r.mechanism,
                bytes(&r.salt),
                bytes(&r.stored_key),
                bytes(&r.server_key),
                r.iterations
            ),
            other => format!("{}()", other.name()),
        };
        format!("ApiMessageAndVersion({text} at version {})", record.version)
    };
    let records: Vec<_> = bootstrap.records().iter().map(record).collect();
    format!(
        "BootstrapMetadata(records=[{}], metadataVersionLevel={}, source={})",
        records.join(", "),
        bootstrap.metadata_version().feature_level(),
        bootstrap.source()
    )
}

/// Capacity of a hash map of the reference that was filled entry by entry.
fn growing_map_capacity(len: usize) -> usize {
    let mut capacity = 16;
    while len > capacity * 3 / 4 {
        capacity *= 2;
    }
    capacity
}

/// Capacity of one that was copied from another map.
fn copied_map_capacity(len: usize) -> usize {
    (len * 4 / 3 + 1).next_power_of_two()
}

/// The order in which the reference's hash map of that capacity lists these strings: the order of lines in its output.
fn hash_order(mut items: Vec<&String>, capacity: usize) -> Vec<&String> {
    let bucket = |text: &str| {
        let hash =
            text.encode_utf16().fold(0_u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)));
        (hash ^ (hash >> 16)) as usize & (capacity - 1)
    };
    items.sort_by_key(|item| bucket(item));
    items
}

/// `kafka-storage info`; returns the exit code.
pub fn info(env: &Env, config: &ServerConfig, out: &mut Vec<String>) -> i32 {
    let mut problems = Vec::new();
    let mut found = Vec::new();
    let mut first: Option<MetaProperties> = None;
    let directories = log_directories(config);
    for directory in &directories {
        let path = Path::new(directory);
        match env.fs.metadata(path) {
            Err(_) => {
                problems.push(format!("{directory} does not exist"));
                continue;
            }
            Ok(metadata) if !metadata.is_dir => {
                problems.push(format!("{directory} is not a directory"));
                continue;
            }
            Ok(_) => found.push(directory),
        }
        match (MetaProperties::read(&*env.fs, path), &first) {
            (Ok(None), _) => problems.push(format!("{directory} is not formatted.")),
            (Ok(Some(props)), None) => first = Some(props),
            (Ok(Some(props)), Some(first)) if first.cluster_id != props.cluster_id => {
                problems.push("Mismatched cluster IDs between storage directories.".to_owned());
            }
            (Ok(Some(props)), Some(first)) if first.node_id != props.node_id => {
                problems.push("Mismatched node IDs between storage directories.".to_owned());
            }
            (Ok(Some(_)), Some(_)) => {}
            (Err(e), _) => {
                problems.push(format!(
                    "Error loading {}: {e}",
                    path.join(crate::names::META_PROPERTIES_FILE).display()
                ));
            }
        }
    }
    if let Some(first) = &first {
        match (config.process_roles().is_empty(), first.version) {
            (false, 0) => problems.push(
                "The kafka configuration file appears to be for a cluster in KRaft mode, but the directories are \
                 formatted for legacy mode."
                    .to_owned(),
            ),
            (true, 1) => problems.push(
                "The kafka configuration file appears to be for a legacy cluster, but the directories are formatted \
                 for a cluster in KRaft mode."
                    .to_owned(),
            ),
            _ => {}
        }
    }
    if directories.is_empty() {
        out.push("No directories specified.".to_owned());
        return 0;
    }
    if !found.is_empty() {
        out.push(if found.len() == 1 { "Found log directory:" } else { "Found log directories:" }.to_owned());
        out.extend(found.iter().map(|directory| format!("  {directory}")));
        out.push(String::new());
    }
    if let Some(first) = first {
        out.push(format!("Found metadata: {first}"));
        out.push(String::new());
    }
    if problems.is_empty() {
        return 0;
    }
    out.push(if problems.len() == 1 { "Found problem:" } else { "Found problems:" }.to_owned());
    out.extend(problems.iter().map(|problem| format!("  {problem}")));
    out.push(String::new());
    1
}

/// `kafka-storage version-mapping`.
pub fn version_mapping(release_version: Option<&str>, out: &mut Vec<String>) -> Result<(), FormatError> {
    let latest = MetadataVersion::LATEST_PRODUCTION.to_string();
    let text = release_version.unwrap_or(&latest);
    let version = match MetadataVersion::from_version_string(text, true) {
        Ok(version) => version,
        Err(e) => return terse(e.to_string()),
    };
    out.push(format!("metadata.version={} ({text})", version.feature_level()));
    out.extend(FEATURES.iter().map(|feature| format!("{}={}", feature.name, feature.default_level(version))));
    Ok(())
}

/// `kafka-storage feature-dependencies`; each feature as `name=version`.
pub fn feature_dependencies(features: &[String], out: &mut Vec<String>) -> Result<(), FormatError> {
    for argument in features {
        let Some((name, text)) = argument.split_once('=') else {
            return terse(format!(
                "Invalid feature format: {argument}. Expected format: 'feature=version' (e.g. 'group.version=1')"
            ));
        };
        let (name, text) = (name.trim(), text.trim());
        let Ok(level) = text.parse::<i16>() else {
            return terse(format!("Invalid version format: {text} for feature {name}"));
        };
        if name == METADATA_VERSION {
            let Ok(version) = MetadataVersion::from_feature_level(level) else {
                return terse(format!("Unknown metadata.version {level}"));
            };
            out.push(format!("{name}={level} ({version}) has no dependencies."));
            continue;
        }
        let Some(feature) = Feature::from_name(name) else {
            return terse(format!("Unknown feature: {name}"));
        };
        let Ok(found) = feature.from_feature_level(level, true) else {
            return terse(format!("Feature level {level} is not supported for feature {name}"));
        };
        if found.dependencies.is_empty() {
            out.push(format!("{name}={level} has no dependencies."));
            continue;
        }
        out.push(format!("{name}={level} requires:"));
        for (dependency, needed) in found.dependencies {
            let version = MetadataVersion::from_feature_level(*needed);
            match version {
                Ok(version) if *dependency == METADATA_VERSION => {
                    out.push(format!("    {dependency}={needed} ({version})"));
                }
                _ => out.push(format!("    {dependency}={needed}")),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
