//! kafka-configs: describe and alter the configuration of topics, brokers, groups, client metrics, and quotas.

mod options;
mod quotas;

use std::collections::{BTreeMap, BTreeSet};

use client::{ApiError, Target};
use protocol::ErrorCode;
use protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use protocol::messages::{IncrementalAlterConfigsRequest, ListConfigResourcesRequest, ListGroupsRequest};
use serde_json::{Value, json};

use crate::admin::{Admin, ResourceType, load_config};
use crate::failure::Failure;
use crate::io::{End, Io};
use crate::output::Format;
use crate::tools::common::timeout;
use options::Options;

const ILLEGAL_ARGUMENT: &str = "java.lang.IllegalArgumentException";
const INVALID_CONFIGURATION: &str = "org.apache.kafka.common.errors.InvalidConfigurationException";
/// Operations of IncrementalAlterConfigs.
const SET: i8 = 0;
const DELETE: i8 = 1;

/// DescribeConfigs' sources by their numbers.
const SOURCES: [&str; 9] = [
    "UNKNOWN",
    "DYNAMIC_TOPIC_CONFIG",
    "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER_CONFIG",
    "DEFAULT_CONFIG",
    "DYNAMIC_BROKER_LOGGER_CONFIG",
    "DYNAMIC_CLIENT_METRICS_CONFIG",
    "DYNAMIC_GROUP_CONFIG",
];

fn source_name(source: i8) -> &'static str {
    usize::try_from(source).ok().and_then(|index| SOURCES.get(index)).copied().unwrap_or("UNKNOWN")
}

pub async fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let result = act(arguments, io).await;
    result.map_err(|failure| {
        failure.report(|failure| match failure {
            Failure::Text {
                exception: ILLEGAL_ARGUMENT | INVALID_CONFIGURATION | "joptsimple.OptionException",
                message,
            } => io.error_line(message),
            Failure::Api(error) if error.code == ErrorCode::UNSUPPORTED_VERSION => {
                io.error_line(error.to_string())
            }
            other => {
                io.error_line(format!(
                    "Error while executing config command with args '{}'",
                    arguments.join(" ")
                ));
                let exception = other.as_exception();
                match other {
                    Failure::Api(_) => {
                        io.error_line(format!("java.util.concurrent.ExecutionException: {exception}"))
                    }
                    _ => io.error_line(exception),
                }
            }
        })
    })
}

async fn act(arguments: &[String], io: &mut Io) -> Result<(), Failure> {
    let options = Options::parse(arguments, io)?;
    let set = &options.command.options;
    let mut config = match set.given("command-config")? {
        Some(file) => load_config(&file)?,
        None => client::ClientConfig::new(),
    };
    match (set.given("bootstrap-server")?, set.given("bootstrap-controller")?) {
        (Some(servers), _) => drop(config.set("bootstrap.servers", servers)),
        (None, Some(controllers)) => {
            config.remove("bootstrap.servers");
            config.set("bootstrap.controllers", controllers);
        }
        (None, None) => {}
    }
    if options.command.has("alter") && options.types.len() != options.names.len() {
        return Err(Failure::illegal_argument("An entity name must be specified for every entity type"));
    }
    let admin = Admin::new(config, timeout(set)?)?;
    let tool = Tool { format: Format::of(set)?, options: &options, admin };
    if options.command.has("alter") { tool.alter(io).await } else { tool.describe(io).await }
}

struct Tool<'a> {
    options: &'a Options,
    admin: Admin,
    format: Format,
}

/// The resource an entity type stands for, and where its own values come from.
fn resource(entity_type: &str) -> Option<ResourceType> {
    match entity_type {
        "topics" => Some(ResourceType::Topic),
        "brokers" => Some(ResourceType::Broker),
        "broker-loggers" => Some(ResourceType::BrokerLogger),
        "client-metrics" => Some(ResourceType::ClientMetrics),
        "groups" => Some(ResourceType::Group),
        _ => None,
    }
}

fn dynamic_source(kind: ResourceType, name: &str) -> i8 {
    match kind {
        ResourceType::Topic => 1,
        ResourceType::Broker if name.is_empty() => 3,
        ResourceType::Broker => 2,
        ResourceType::BrokerLogger => 6,
        ResourceType::ClientMetrics => 7,
        ResourceType::Group => 8,
    }
}

/// `topics` → `topic`.
fn singular(entity_type: &str) -> &str {
    entity_type.get(..entity_type.len().saturating_sub(1)).unwrap_or_default()
}

impl Tool<'_> {
    async fn alter(&self, io: &mut Io) -> Result<(), Failure> {
        let added = self.options.configs_to_add()?;
        let deleted = self.options.configs_to_delete()?;
        let (Some(entity_type), Some(name)) = (self.options.types.first(), self.options.names.first()) else {
            return Err(Failure::illegal_argument("At least one entity type must be specified"));
        };
        match resource(entity_type) {
            Some(ResourceType::BrokerLogger) => {
                self.check_loggers(name, &added, &deleted).await?;
                self.alter_resource(ResourceType::BrokerLogger, name, &added, &deleted).await?;
            }
            Some(kind) => self.alter_resource(kind, name, &added, &deleted).await?,
            None => self.alter_quotas(&added, &deleted).await?,
        }
        if self.format.emit(|| json!({ "altered": { "type": entity_type, "name": name } }), io) {
            return Ok(());
        }
        if name.is_empty() {
            io.line(format!("Completed updating default config for {entity_type} in the cluster."));
        } else {
            io.line(format!("Completed updating config for {} {name}.", singular(entity_type)));
        }
        Ok(())
    }

    async fn check_loggers(
        &self,
        broker: &str,
        added: &BTreeMap<String, String>,
        deleted: &[String],
    ) -> Result<(), Failure> {
        let known = self.admin.describe_configs(ResourceType::BrokerLogger, broker, false).await?;
        let is_known = |name: &String| known.iter().any(|config| config.name == *name);
        let unknown: Vec<&String> =
            deleted.iter().chain(added.keys()).filter(|name| !is_known(name)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let listed: Vec<&str> = unknown.into_iter().map(String::as_str).collect();
        Err(Failure::text(INVALID_CONFIGURATION, format!("Invalid broker logger(s): {}", listed.join(","))))
    }

    async fn alter_resource(
        &self,
        kind: ResourceType,
        name: &str,
        added: &BTreeMap<String, String>,
        deleted: &[String],
    ) -> Result<(), Failure> {
        let operation = |name: &String, config_operation: i8, value: Option<String>| AlterableConfig {
            name: name.clone(),
            config_operation,
            value,
        };
        let mut configs: Vec<AlterableConfig> =
            deleted.iter().map(|name| operation(name, DELETE, Some(String::new()))).collect();
        configs.extend(added.iter().map(|(name, value)| operation(name, SET, Some(value.clone()))));
        let request = IncrementalAlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type: kind as i8,
                resource_name: name.to_owned(),
                configs,
            }],
            validate_only: false,
        };
        // A broker changes its own values itself; everything else goes to the controller.
        let target = match kind {
            ResourceType::Broker | ResourceType::BrokerLogger
                if !self.admin.cluster.is_controller_bootstrap() =>
            {
                name.parse().map_or(Target::Any, Target::Node)
            }
            _ => Target::Controller,
        };
        let response = match self.admin.send(target, &request).await {
            Err(failure) if failure.code() == Some(ErrorCode::UNSUPPORTED_VERSION) => {
                let message = "The INCREMENTAL_ALTER_CONFIGS API is not supported by the cluster. The API is supported \
                               starting from version 2.3.0. You may want to use an older version of this tool to \
                               interact with your cluster, or upgrade your brokers to version 2.3.0 or newer to avoid \
                               this error.";
                return Err(ApiError::new(ErrorCode::UNSUPPORTED_VERSION, Some(message.to_owned())).into());
            }
            other => other?,
        };
        for result in &response.responses {
            ApiError::check(result.error_code, result.error_message.as_ref())?;
        }
        Ok(())
    }

    async fn describe(&self, io: &mut Io) -> Result<(), Failure> {
        let entity_type = self.options.types.first().map(String::as_str).unwrap_or_default();
        let Some(kind) = resource(entity_type) else { return self.describe_quotas(io).await };
        let all = self.options.command.has("all");
        let name = self.options.names.first();
        if let Some(name) = name.filter(|_| !all)
            && !self.exists(kind, name).await?
        {
            let singular = singular(entity_type);
            io.line(format!("The {singular} '{name}' doesn't exist and doesn't have dynamic config."));
            return Ok(());
        }
        let entities = match name {
            Some(name) => vec![name.clone()],
            None => self.entities(kind).await?,
        };
        let mut values = Vec::new();
        for entity in entities {
            let mut configs = self.admin.describe_configs(kind, &entity, true).await?;
            let source = dynamic_source(kind, &entity);
            configs.retain(|config| all || config.config_source == source);
            configs.sort_by(|a, b| a.name.cmp(&b.name));
            if !self.format.is_table() {
                values.push(entity_value(entity_type, &entity, &configs));
                continue;
            }
            if entity.is_empty() {
                io.line(format!("Default configs for {entity_type} in the cluster are:"));
            } else {
                let which = if all { "All" } else { "Dynamic" };
                io.line(format!("{which} configs for {} {entity} are:", singular(entity_type)));
            }
            for config in &configs {
                let or_null = |value: &Option<String>| value.clone().unwrap_or_else(|| "null".to_owned());
                let synonym =
                    |synonym: &protocol::messages::describe_configs_response::DescribeConfigsSynonym| {
                        format!(
                            "{}:{}={}",
                            source_name(synonym.source),
                            synonym.name,
                            or_null(&synonym.value)
                        )
                    };
                let synonyms: Vec<String> = config.synonyms.iter().map(synonym).collect();
                io.line(format!(
                    "  {}={} sensitive={} synonyms={{{}}}",
                    config.name,
                    or_null(&config.value),
                    config.is_sensitive,
                    synonyms.join(", ")
                ));
            }
        }
        self.format.emit(|| Value::Array(values), io);
        Ok(())
    }

    async fn exists(&self, kind: ResourceType, name: &str) -> Result<bool, Failure> {
        Ok(match kind {
            ResourceType::Topic => {
                check_topic_name(name)?;
                self.admin.topic_names(true).await?.iter().any(|topic| topic == name)
            }
            ResourceType::Broker | ResourceType::BrokerLogger => {
                let nodes = self.admin.retry(|| self.admin.cluster.describe(false)).await?;
                name.is_empty() || nodes.iter().any(|node| node.id.to_string() == name)
            }
            ResourceType::ClientMetrics | ResourceType::Group => {
                self.entities(kind).await?.iter().any(|entity| entity == name)
            }
        })
    }

    /// All entities of a kind; the default entity has an empty name.
    async fn entities(&self, kind: ResourceType) -> Result<Vec<String>, Failure> {
        Ok(match kind {
            ResourceType::Topic => self.admin.topic_names(true).await?,
            ResourceType::Broker | ResourceType::BrokerLogger => {
                let nodes = self.admin.retry(|| self.admin.cluster.describe(false)).await?;
                nodes.iter().map(|node| node.id.to_string()).chain([String::new()]).collect()
            }
            ResourceType::ClientMetrics => self.listed_resources(kind).await?,
            ResourceType::Group => {
                let mut names: BTreeSet<String> = self.group_ids().await?.into_iter().collect();
                match self.listed_resources(kind).await {
                    Ok(resources) => names.extend(resources),
                    Err(Failure::Api(error))
                        if matches!(
                            error.code,
                            ErrorCode::UNSUPPORTED_VERSION | ErrorCode::CLUSTER_AUTHORIZATION_FAILED
                        ) => {}
                    Err(failure) => return Err(failure),
                }
                names.into_iter().collect()
            }
        })
    }

    async fn group_ids(&self) -> Result<Vec<String>, Failure> {
        self.admin.retry(|| self.admin.cluster.refresh_nodes()).await?;
        let mut groups = Vec::new();
        for node in self.admin.cluster.nodes() {
            let response = self.admin.send(Target::Node(node.id), &ListGroupsRequest::default()).await?;
            ApiError::check(response.error_code, None)?;
            groups.extend(response.groups.into_iter().map(|group| group.group_id));
        }
        Ok(groups)
    }

    async fn listed_resources(&self, kind: ResourceType) -> Result<Vec<String>, Failure> {
        let connection = self.admin.retry(|| self.admin.cluster.connection(Target::Any)).await?;
        let version = connection.version_of::<ListConfigResourcesRequest>()?;
        // Version 0 lists client metrics and nothing else (KIP-1142).
        if version == 0 && kind != ResourceType::ClientMetrics {
            return Err(ApiError::new(ErrorCode::UNSUPPORTED_VERSION, None).into());
        }
        let resource_types = if version == 0 { Vec::new() } else { vec![kind as i8] };
        let request = ListConfigResourcesRequest { resource_types };
        let response = connection.send_version(&request, version).await?;
        ApiError::check(response.error_code, None)?;
        Ok(response.config_resources.into_iter().map(|resource| resource.resource_name).collect())
    }
}

fn entity_value(
    entity_type: &str,
    entity: &str,
    configs: &[protocol::messages::describe_configs_response::DescribeConfigsResourceResult],
) -> Value {
    let config = |config: &protocol::messages::describe_configs_response::DescribeConfigsResourceResult| {
        json!({
            "name": config.name,
            "value": config.value,
            "source": source_name(config.config_source),
            "sensitive": config.is_sensitive,
            "readOnly": config.read_only,
        })
    };
    json!({
        "type": entity_type,
        "name": entity,
        "configs": configs.iter().map(config).collect::<Vec<_>>(),
    })
}

/// The reference refuses impossible topic names before it asks for them.
fn check_topic_name(name: &str) -> Result<(), Failure> {
    let valid = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let complaint = if name.is_empty() {
        "the empty string is not allowed".to_owned()
    } else if matches!(name, "." | "..") {
        format!("'{name}' is not allowed")
    } else if name.len() > 249 {
        format!("the length of '{name}' is longer than the max allowed length 249")
    } else if !name.chars().all(valid) {
        format!("'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")
    } else {
        return Ok(());
    };
    Err(Failure::text(
        "org.apache.kafka.common.errors.InvalidTopicException",
        format!("Topic name is invalid: {complaint}"),
    ))
}
