//! The command line of kafka-configs: entities, what to add and what to delete, and the many checks between them.

use std::collections::{BTreeMap, BTreeSet};

use crate::failure::Failure;
use crate::io::Io;
use crate::options::{CommandOptions, Spec, flag, value};

/// In the order in which the reference lists them.
const ENTITY_TYPES: [&str; 8] =
    ["broker-loggers", "topics", "clients", "users", "brokers", "ips", "client-metrics", "groups"];

/// Options that name an entity together with its type.
const ENTITY_FLAGS: [(&str, &str); 8] = [
    ("topic", "topics"),
    ("client", "clients"),
    ("user", "users"),
    ("broker", "brokers"),
    ("broker-logger", "broker-loggers"),
    ("ip", "ips"),
    ("client-metrics", "client-metrics"),
    ("group", "groups"),
];

const DEFAULT_FLAGS: [(&str, &str); 4] = [
    ("client-defaults", "clients"),
    ("user-defaults", "users"),
    ("broker-defaults", "brokers"),
    ("ip-defaults", "ips"),
];

fn specs() -> Vec<Spec> {
    vec![
        value("bootstrap-server", "Brokers to start from.").described("server to connect to"),
        value("bootstrap-controller", "Controllers to start from.").described("controller to connect to"),
        value("command-config", "A file of client properties.").described("command config property file"),
        flag("alter", "Change the configuration of the entity."),
        flag("describe", "Show the configuration of entities."),
        flag("all", "Show all values, not only those set for the entity."),
        value(
            "entity-type",
            "topics, clients, users, brokers, broker-loggers, ips, client-metrics or groups",
        ),
        value("entity-name", "The name of the entity."),
        flag("entity-default", "The default of clients, users, brokers or ips."),
        value("add-config", "What to set: 'k1=v1,k2=[v1,v2],k3=v3'."),
        value("add-config-file", "A properties file of what to set."),
        value("delete-config", "What to remove: 'k1,k2'.").separated_by(','),
        value("topic", "The topic."),
        value("client", "The client id."),
        flag("client-defaults", "The defaults of all clients."),
        value("user", "The user principal's name."),
        flag("user-defaults", "The defaults of all users."),
        value("broker", "The broker id."),
        flag("broker-defaults", "The defaults of all brokers."),
        value("broker-logger", "The id of the broker whose loggers are meant."),
        flag("ip-defaults", "The defaults of all addresses."),
        value("ip", "The address."),
        value("group", "The group id."),
        value("client-metrics", "The client metrics resource."),
    ]
}

pub(super) struct Options {
    pub(super) command: CommandOptions,
    pub(super) types: Vec<String>,
    /// The default entity has an empty name.
    pub(super) names: Vec<String>,
}

fn refuse<T>(message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::illegal_argument(message))
}

impl Options {
    pub(super) fn parse(arguments: &[String], io: &mut Io) -> Result<Options, Failure> {
        let command = CommandOptions::parse(CommandOptions::declare(specs()), arguments)?;
        command.maybe_help_or_version(
            "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, \
             client-metrics or group",
            io,
        )?;
        let options = Options { types: types(&command)?, names: names(&command, arguments)?, command };
        options.check(io)?;
        Ok(options)
    }

    fn check(&self, io: &mut Io) -> Result<(), Failure> {
        let (command, types) = (&self.command, &self.types);
        if command.has("alter") == command.has("describe") {
            let message = "Command must include exactly one action: --describe, --alter";
            return Err(command.usage_and_exit(message, io).into());
        }
        command.check_invalid("describe", &["alter", "add-config", "delete-config"], io)?;
        let mut seen = BTreeSet::new();
        let duplicates: BTreeSet<&str> =
            types.iter().filter(|kind| !seen.insert(*kind)).map(String::as_str).collect();
        if !duplicates.is_empty() {
            let listed: Vec<&str> = duplicates.into_iter().collect();
            return refuse(format!("Duplicate entity type(s) specified: {}", listed.join(",")));
        }
        let (server, controller) = (command.has("bootstrap-server"), command.has("bootstrap-controller"));
        if !server && !controller {
            return refuse("Either --bootstrap-server or --bootstrap-controller must be specified.");
        }
        if let Some(wrong) = types.iter().find(|kind| !ENTITY_TYPES.contains(&kind.as_str())) {
            return refuse(format!(
                "Invalid entity type {wrong}, the entity type must be one of {} with a --bootstrap-server or \
                 --bootstrap-controller argument",
                ENTITY_TYPES.join(", ")
            ));
        }
        if types.is_empty() {
            return refuse("At least one entity type must be specified");
        }
        let both: BTreeSet<&str> = types.iter().map(String::as_str).collect();
        if types.len() > 1 && both != BTreeSet::from(["users", "clients"]) {
            return refuse("Only 'users' and 'clients' entity types may be specified together");
        }
        let plain = command.options.has_any(&["entity-name", "entity-type", "entity-default"]);
        let special = ENTITY_FLAGS.iter().chain(&DEFAULT_FLAGS).any(|(option, _)| command.has(option));
        if plain && special {
            return refuse(
                "--entity-{type,name,default} should not be used in conjunction with specific entity flags",
            );
        }
        if server && controller {
            return refuse("Only one of --bootstrap-server or --bootstrap-controller can be specified");
        }
        self.check_names()?;
        if command.has("describe") { self.check_describe() } else { self.check_alter() }
    }

    fn has_type(&self, wanted: &[&str]) -> bool {
        self.types.iter().any(|kind| wanted.contains(&kind.as_str()))
    }

    fn check_names(&self) -> Result<(), Failure> {
        let first = self.types.first().map(String::as_str).unwrap_or_default();
        if self.has_type(&["brokers", "broker-loggers"]) {
            for name in self.names.iter().filter(|name| !name.is_empty()) {
                if name.parse::<i32>().is_err() {
                    return refuse(format!(
                        "The entity name for {first} must be a valid integer broker id, but it is: {name}"
                    ));
                }
            }
        }
        if self.has_type(&["ips"]) {
            for name in self.names.iter().filter(|name| !name.is_empty()) {
                use std::net::ToSocketAddrs;
                if (name.as_str(), 0).to_socket_addrs().is_err() {
                    return refuse(format!(
                        "The entity name for {first} must be a valid IP or resolvable host, but it is: {name}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn has_name(&self) -> bool {
        self.names.iter().any(|name| !name.is_empty())
    }

    fn check_describe(&self) -> Result<(), Failure> {
        let listed = self.types.join(",");
        if !self.has_type(&["users", "clients", "brokers", "ips"]) && self.command.has("entity-default") {
            return refuse(format!("--entity-default must not be specified with --describe of {listed}"));
        }
        if self.has_type(&["broker-loggers"]) && !self.has_name() {
            return refuse(format!("An entity name must be specified with --describe of {listed}"));
        }
        Ok(())
    }

    fn check_alter(&self) -> Result<(), Failure> {
        if self.has_type(&["users", "clients", "brokers", "ips"]) {
            if self.names.is_empty() {
                return refuse(
                    "An entity-name or default entity must be specified with --alter of users, clients, brokers or ips",
                );
            }
        } else if !self.has_name() {
            let listed = self.types.join(",");
            return refuse(format!("An entity name must be specified with --alter of {listed}"));
        }
        let has = |option: &str| self.command.has(option);
        if has("add-config") && has("add-config-file") {
            return refuse("Only one of --add-config or --add-config-file must be specified");
        }
        if !(has("add-config") || has("add-config-file") || has("delete-config")) {
            return refuse(
                "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter",
            );
        }
        Ok(())
    }

    pub(super) fn configs_to_add(&self) -> Result<BTreeMap<String, String>, Failure> {
        let set = &self.command.options;
        let mut configs = BTreeMap::new();
        if let Some(file) = set.given("add-config-file")? {
            let text =
                std::fs::read(&file).map_err(|_| Failure::text("java.nio.file.NoSuchFileException", file))?;
            configs = client::config::parse_properties(&String::from_utf8_lossy(&text));
        }
        if let Some(text) = set.given("add-config")? {
            configs.extend(parse_added(&text)?);
        }
        let valid = |c: char| c.is_ascii_alphanumeric() || "$._-".contains(c);
        match configs.keys().find(|name| !name.chars().all(valid)) {
            Some(name) => refuse(format!("Invalid character found for config key: {name}")),
            None => Ok(configs),
        }
    }

    pub(super) fn configs_to_delete(&self) -> Result<Vec<String>, Failure> {
        let names = self.command.options.values_of("delete-config")?;
        Ok(names.iter().map(|name| name.trim().to_owned()).collect())
    }
}

fn types(command: &CommandOptions) -> Result<Vec<String>, Failure> {
    let mut types = command.options.values_of("entity-type")?;
    let flags = ENTITY_FLAGS.iter().chain(&DEFAULT_FLAGS);
    types.extend(flags.filter(|(option, _)| command.has(option)).map(|(_, kind)| (*kind).to_owned()));
    Ok(types)
}

/// Names and defaults in the order of the command line, since with two types they belong together by position.
fn names(command: &CommandOptions, arguments: &[String]) -> Result<Vec<String>, Failure> {
    let mut given = command.options.values_of("entity-name")?.into_iter();
    let mut names = Vec::new();
    for argument in arguments {
        let option = argument.trim_start_matches('-');
        let option = option.split('=').next().unwrap_or_default();
        match option {
            "entity-name" if argument.starts_with('-') => names.extend(given.next()),
            "entity-default" if argument.starts_with('-') => names.push(String::new()),
            _ => {}
        }
    }
    for (option, _) in ENTITY_FLAGS {
        names.extend(command.options.given(option)?);
    }
    names.extend(DEFAULT_FLAGS.iter().filter(|(option, _)| command.has(option)).map(|_| String::new()));
    Ok(names)
}

/// `k=v,k=[a,b]`: commas inside brackets belong to the value.
fn parse_added(text: &str) -> Result<BTreeMap<String, String>, Failure> {
    let mut pairs = vec![String::new()];
    let mut depth = 0usize;
    for c in text.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                pairs.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(pair) = pairs.last_mut() {
            pair.push(c);
        }
    }
    // Java's split drops empty strings at the end.
    while pairs.len() > 1 && pairs.last().is_some_and(String::is_empty) {
        pairs.pop();
    }
    let mut configs = BTreeMap::new();
    for pair in pairs {
        let outside: String = {
            let mut depth = 0usize;
            pair.chars()
                .filter(|c| {
                    match c {
                        '[' => depth += 1,
                        ']' => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    depth == 0
                })
                .collect()
        };
        match pair.split_once('=') {
            Some((name, value)) if outside.matches('=').count() == 1 => {
                configs.insert(name.trim().to_owned(), value.replace(['[', ']'], "").trim().to_owned());
            }
            _ => {
                return refuse(
                    "Invalid entity config: all configs to be added must be in the format \"key=val\" or  \
                     \"key=[val1,val2]\" to group values which contain commas.",
                );
            }
        }
    }
    Ok(configs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_group_values_with_commas() {
        let configs = parse_added("a=1,b=[x,y=z], c = 3 ").unwrap();
        let listed: Vec<String> = configs.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        assert_eq!(listed, ["a:1", "b:x,y=z", "c:3"]);
        for wrong in ["a", "a=b=c", "a=1,b"] {
            assert!(parse_added(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_added("a=").unwrap().get("a").map(String::as_str), Some(""));
    }
}
