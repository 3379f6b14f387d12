//! kafka-features: shows and changes the levels of the cluster's features.

use std::collections::BTreeMap;

use client::{ApiError, Target};
use metadata::feature::{FEATURES, Feature};
use metadata::version::{METADATA_VERSION, MetadataVersion};
use protocol::messages::UpdateFeaturesRequest;
use protocol::messages::update_features_request::FeatureUpdateKey;
use serde_json::{Value, json};

use super::online::{BOOTSTRAP, admin, bootstrap_arguments, format, terse};
use crate::admin::Admin;
use crate::argparse::{Action, Argument, Kind, Namespace, Parser, Refusal, option};
use crate::failure::Failure;
use crate::io::{End, Io};

const UPGRADE: i8 = 1;
const SAFE_DOWNGRADE: i8 = 2;
const UNSAFE_DOWNGRADE: i8 = 3;

fn parser() -> Parser {
    let release = |text: &str| option("release_version", &["--release-version"], text);
    let metadata = || option("metadata", &["--metadata"], "Deprecated: the metadata.version to change to.");
    let feature = |text: &str| option("feature", &["--feature"], text).action(Action::Append);
    let switch = |dest: &'static str, flag: &'static str, text: &str| -> Argument {
        option(dest, &[flag], text).action(Action::StoreTrue)
    };
    let dry_run = || switch("dry_run", "--dry-run", "Check the change without making it.");
    let unsafe_ = || switch("unsafe", "--unsafe", "Do it even when metadata may be lost for good.");
    Parser::new("kafka-features", "Shows and changes feature levels.")
        .showing_defaults()
        .exclusive(false, bootstrap_arguments(false))
        .with(option("command_config", &["--command-config"], "A file of client properties."))
        .command(Parser::sub("describe", "Show the features in use.").with(
            option("node_id", &["--node-id"], "The node to ask; any one when not given.").kind(Kind::Integer),
        ))
        .command(
            Parser::sub("upgrade", "Raise feature levels.")
                .with(metadata())
                .with(release("Raise all features to the levels of this release."))
                .with(feature("A feature and its level: feature=level."))
                .with(dry_run()),
        )
        .command(
            Parser::sub("downgrade", "Lower feature levels.")
                .with(metadata())
                .with(release("Lower all features to the levels of this release."))
                .with(feature("A feature and its level: feature=level."))
                .with(unsafe_())
                .with(dry_run()),
        )
        .command(
            Parser::sub("disable", "Lower features to level 0.")
                .with(feature("A feature to disable."))
                .with(unsafe_())
                .with(dry_run()),
        )
        .command(
            Parser::sub("version-mapping", "Show the feature levels that belong to a release.")
                .with(release("The release; the latest one when not given.")),
        )
        .command(
            Parser::sub("feature-dependencies", "Show what a feature's level needs.")
                .with(feature("A feature and its level: feature=level.").required()),
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
        Err(Refusal::Error { message, .. }) => {
            io.error(&format!("Command line error: {message}. Type --help for help."));
            return Err(End::code(1));
        }
    };
    let result = act(&namespace, io).await;
    result.map_err(|failure| {
        failure.report(|failure| match failure {
            Failure::Text { exception: BOOTSTRAP, message } => {
                io.error(&format!("Command line error: {message}. Type --help for help."));
            }
            Failure::Api(_) => io.error_line(failure.as_exception()),
            other => io.error_line(other.to_string()),
        })
    })
}

async fn act(namespace: &Namespace, io: &mut Io) -> Result<(), Failure> {
    match namespace.command {
        Some("version-mapping") => return version_mapping(namespace, io),
        Some("feature-dependencies") => return dependencies(namespace, io),
        _ => {}
    }
    let admin = admin(namespace, namespace.get("command_config"))?;
    let downgrade = if namespace.has("unsafe") { UNSAFE_DOWNGRADE } else { SAFE_DOWNGRADE };
    match namespace.command {
        Some("describe") => describe(namespace, &admin, io).await,
        Some("upgrade") => {
            update("upgrade", namespace, &admin, wanted(namespace, true, io)?, UPGRADE, io).await
        }
        Some("downgrade") => {
            update("downgrade", namespace, &admin, wanted(namespace, false, io)?, downgrade, io).await
        }
        _ => {
            let mut levels = BTreeMap::new();
            for feature in namespace.list("feature").unwrap_or_default() {
                insert_once(&mut levels, feature.clone(), 0)?;
            }
            update("disable", namespace, &admin, levels, downgrade, io).await
        }
    }
}

fn insert_once(levels: &mut BTreeMap<String, i16>, feature: String, level: i16) -> Result<(), Failure> {
    if levels.contains_key(&feature) {
        return Err(terse(format!("Feature {feature} was specified more than once.")));
    }
    levels.insert(feature, level);
    Ok(())
}

/// A level as people know it: metadata versions by name.
fn level_text(feature: &str, level: i16) -> String {
    if feature != METADATA_VERSION {
        return level.to_string();
    }
    MetadataVersion::from_feature_level(level)
        .map_or_else(|_| format!("UNKNOWN {level}"), |version| version.name().to_owned())
}

async fn describe(namespace: &Namespace, admin: &Admin, io: &mut Io) -> Result<(), Failure> {
    let target = match namespace.number::<i32>("node_id") {
        Some(id) if id < 0 => {
            return Err(Failure::illegal_argument(format!("Invalid node id {id}: must be non-negative.")));
        }
        Some(id) => Target::Node(id),
        None => Target::Any,
    };
    let connection = admin.retry(|| admin.cluster.connection(target)).await?;
    let versions = connection.api_versions();
    let epoch = versions.finalized_features_epoch;
    let mut supported: Vec<_> = versions.supported_features.iter().collect();
    supported.sort_by(|a, b| a.name.cmp(&b.name));
    let finalized = |name: &str| {
        let found = versions.finalized_features.iter().find(|feature| feature.name == name);
        found.map_or(0, |feature| feature.max_version_level)
    };
    let value = || {
        let one = |feature: &&protocol::messages::api_versions_response::SupportedFeatureKey| {
            json!({
                "feature": feature.name,
                "supportedMinVersion": feature.min_version,
                "supportedMaxVersion": feature.max_version,
                "finalizedVersionLevel": finalized(&feature.name),
                "epoch": epoch,
            })
        };
        Value::Array(supported.iter().map(one).collect())
    };
    if format(namespace)?.emit(value, io) {
        return Ok(());
    }
    for feature in &supported {
        let name = &feature.name;
        let (min, max) = (level_text(name, feature.min_version), level_text(name, feature.max_version));
        let level = level_text(name, finalized(name));
        let epoch = if epoch >= 0 { epoch.to_string() } else { "-".to_owned() };
        io.line(format!(
            "Feature: {name:<40}  SupportedMinVersion: {min:<15}  SupportedMaxVersion: {max:<15}  \
             FinalizedVersionLevel: {level:<15}  Epoch: {epoch}"
        ));
    }
    Ok(())
}

fn version(text: &str) -> Result<MetadataVersion, Failure> {
    MetadataVersion::from_version_string(text, true).map_err(|error| terse(error.to_string()))
}

/// The levels a command asks for.
fn wanted(namespace: &Namespace, upgrade: bool, io: &mut Io) -> Result<BTreeMap<String, i16>, Failure> {
    let (metadata, features) = (namespace.get("metadata"), namespace.list("feature"));
    let mut levels = BTreeMap::new();
    if let Some(release) = namespace.get("release_version") {
        if metadata.is_some() || features.is_some() {
            return Err(terse("Can not specify `release-version` with other feature flags."));
        }
        let version = version(release)?;
        levels.insert(METADATA_VERSION.to_owned(), version.feature_level());
        for feature in &FEATURES {
            let level = feature.default_level(version);
            if !upgrade || level > 0 {
                levels.insert(feature.name.to_owned(), level);
            }
        }
    }
    if let Some(metadata) = metadata {
        io.line(" `metadata` flag is deprecated and may be removed in a future release.");
        levels.insert(METADATA_VERSION.to_owned(), version(metadata)?.feature_level());
    }
    for feature in features.unwrap_or_default() {
        let (name, level) = parse_level(feature)?;
        insert_once(&mut levels, name, level)?;
    }
    Ok(levels)
}

fn parse_level(text: &str) -> Result<(String, i16), Failure> {
    let Some((name, level)) = text.split_once('=') else {
        return Err(terse(format!("Can't parse feature=level string {text}: equals sign not found.")));
    };
    let (name, level) = (name.trim(), level.trim());
    let message = || format!("Can't parse feature=level string {text}: unable to parse {level} as a short.");
    Ok((name.to_owned(), level.parse().map_err(|_| terse(message()))?))
}

async fn update(
    op: &str,
    namespace: &Namespace,
    admin: &Admin,
    levels: BTreeMap<String, i16>,
    upgrade_type: i8,
    io: &mut Io,
) -> Result<(), Failure> {
    if levels.is_empty() {
        return Err(terse(format!("You must specify at least one feature to {op}")));
    }
    let dry_run = namespace.has("dry_run");
    let connection = admin.retry(|| admin.cluster.connection(Target::Controller)).await?;
    let wire_version = connection.version_of::<UpdateFeaturesRequest>()?;
    let updates = levels.iter().map(|(feature, level)| FeatureUpdateKey {
        feature: feature.clone(),
        max_version_level: *level,
        allow_downgrade: wire_version == 0 && upgrade_type != UPGRADE,
        upgrade_type: if wire_version == 0 { UPGRADE } else { upgrade_type },
    });
    let request = UpdateFeaturesRequest {
        timeout_ms: admin.timeout_ms(),
        feature_updates: updates.collect(),
        validate_only: dry_run,
    };
    let response = connection.send_version(&request, wire_version).await?;
    let top = ApiError::check(response.error_code, response.error_message.as_ref());
    let mut failures = 0;
    for (feature, level) in &levels {
        let own = response.results.iter().find(|result| result.feature == *feature);
        let result = top.clone().and_then(|()| match own {
            Some(own) => ApiError::check(own.error_code, own.error_message.as_ref()),
            None => Ok(()),
        });
        let disable = op == "disable";
        match result {
            Ok(()) => {
                let verb = if dry_run { "can be" } else { "was" };
                let done = if disable { "disabled.".to_owned() } else { format!("{op}d to {level}.") };
                io.line(format!("{feature} {verb} {done}"));
            }
            Err(error) => {
                let verb = if dry_run { "Can not" } else { "Could not" };
                let what =
                    if disable { format!("disable {feature}") } else { format!("{op} {feature} to {level}") };
                io.line(format!("{verb} {what}. {error}"));
                failures += 1;
            }
        }
    }
    match failures {
        0 => Ok(()),
        _ => Err(terse(format!("{failures} out of {} operation(s) failed.", levels.len()))),
    }
}

fn version_mapping(namespace: &Namespace, io: &mut Io) -> Result<(), Failure> {
    let latest = MetadataVersion::LATEST_PRODUCTION.name();
    let release = namespace.get("release_version").unwrap_or(latest);
    let version = version(release)?;
    let value = || {
        let mut levels = BTreeMap::from([(METADATA_VERSION, version.feature_level())]);
        levels.extend(FEATURES.iter().map(|feature| (feature.name, feature.default_level(version))));
        json!(levels)
    };
    if format(namespace)?.emit(value, io) {
        return Ok(());
    }
    io.line(format!("metadata.version={} ({release})", version.feature_level()));
    for feature in &FEATURES {
        io.line(format!("{}={}", feature.name, feature.default_level(version)));
    }
    Ok(())
}

fn dependencies(namespace: &Namespace, io: &mut Io) -> Result<(), Failure> {
    for text in namespace.list("feature").unwrap_or_default() {
        let (name, level) = parse_level(text)?;
        if name == METADATA_VERSION {
            let unknown = |_| terse(format!("Unknown metadata.version {level}"));
            let version = MetadataVersion::from_feature_level(level).map_err(unknown)?;
            io.line(format!("{name}={level} ({}) has no dependencies.", version.name()));
            continue;
        }
        let feature = Feature::from_name(&name).ok_or_else(|| terse(format!("Unknown feature: {name}")))?;
        let found = feature.from_feature_level(level, true).map_err(terse)?;
        if found.dependencies.is_empty() {
            io.line(format!("{name}={level} has no dependencies."));
            continue;
        }
        io.line(format!("{name}={level} requires:"));
        for (dependency, needed) in found.dependencies {
            let shown = match *dependency {
                METADATA_VERSION => format!(" ({})", level_text(METADATA_VERSION, *needed)),
                _ => String::new(),
            };
            io.line(format!("    {dependency}={needed}{shown}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_parsed_with_the_reference_complaints() {
        assert_eq!(parse_level(" a = 5").unwrap(), ("a".to_owned(), 5));
        let table = [
            ("a", "Can't parse feature=level string a: equals sign not found."),
            ("a=x", "Can't parse feature=level string a=x: unable to parse x as a short."),
        ];
        for (text, message) in table {
            assert_eq!(parse_level(text).unwrap_err().to_string(), message);
        }
        assert_eq!(level_text(METADATA_VERSION, 33), "4.4-IV2");
        assert_eq!(level_text(METADATA_VERSION, 999), "UNKNOWN 999");
    }
}
