//! The part every tool shares: `--help`, `--version`, the options of our own (`-o`, `--timeout`), the checks between
//! options, and usage messages that end the tool.

use std::collections::BTreeMap;

use super::{OptionError, OptionParser, OptionSet, Spec, flag, value};
use crate::io::{End, Io};

/// A parsed command line of a tool in the manner of the reference's `CommandDefaultOptions`.
#[derive(Debug)]
pub struct CommandOptions {
    pub parser: OptionParser,
    pub options: OptionSet,
    no_arguments: bool,
}

impl CommandOptions {
    /// Declares `specs` plus the shared options. A tool that has a `--timeout` of its own keeps its meaning.
    pub fn declare(mut specs: Vec<Spec>) -> OptionParser {
        specs.push(flag("help", "Print this text and leave.").for_help());
        specs.push(flag("version", "Print the version of Apache Kafka whose behaviour this is.").for_help());
        specs.push(value("o", "The form of the output: table (the default), json or yaml.").alias("output"));
        if !specs.iter().any(|spec| spec.names.contains(&"timeout")) {
            let text = "How long to wait for the cluster before giving up, in milliseconds.";
            let spec = value("timeout", text).kind(super::Kind::Long).described("timeout (ms)");
            specs.push(spec.default_value("10000"));
        }
        OptionParser::new(specs)
    }

    pub fn parse(parser: OptionParser, arguments: &[String]) -> Result<Self, OptionError> {
        let options = parser.parse(arguments)?;
        Ok(CommandOptions { parser, options, no_arguments: arguments.is_empty() })
    }

    /// As [`Self::parse`], for tools that print their usage when the command line is refused.
    pub fn parse_or_usage(parser: OptionParser, arguments: &[String], io: &mut Io) -> Result<Self, End> {
        let shown = parser.clone();
        Self::parse(parser, arguments).map_err(|error| usage_and_exit(&shown, &error.to_string(), io))
    }

    pub fn has(&self, name: &str) -> bool {
        self.options.has(name)
    }

    /// Prints usage or version when they are asked for, or usage when there is no argument at all.
    pub fn maybe_help_or_version(&self, message: &str, io: &mut Io) -> Result<(), End> {
        if self.no_arguments || self.has("help") {
            return Err(self.usage_and_exit(message, io));
        }
        if self.has("version") {
            io.line(crate::KAFKA_VERSION);
            return Err(End::code(0));
        }
        Ok(())
    }

    pub fn is_without_arguments(&self) -> bool {
        self.no_arguments
    }

    /// Writes `message` and the usage to stderr; the tool ends with code 1.
    #[must_use]
    pub fn usage_and_exit(&self, message: &str, io: &mut Io) -> End {
        usage_and_exit(&self.parser, message, io)
    }

    pub fn check_required(&self, names: &[&str], io: &mut Io) -> Result<(), End> {
        match names.iter().find(|name| !self.has(name)) {
            Some(name) => {
                let message = format!("Missing required argument \"{}\"", self.parser.spec(name));
                Err(self.usage_and_exit(&message, io))
            }
            None => Ok(()),
        }
    }

    /// None of `invalid` may stand beside `used`.
    pub fn check_invalid(&self, used: &str, invalid: &[&str], io: &mut Io) -> Result<(), End> {
        if !self.has(used) {
            return Ok(());
        }
        match invalid.iter().find(|name| self.has(name)) {
            Some(name) => {
                let (used, other) = (self.parser.spec(used), self.parser.spec(name));
                let message = format!("Option \"{used}\" can't be used with option \"{other}\"");
                Err(self.usage_and_exit(&message, io))
            }
            None => Ok(()),
        }
    }

    pub fn check_one_of(&self, names: &[&str], io: &mut Io) -> Result<(), End> {
        if names.iter().filter(|name| self.has(name)).count() == 1 {
            return Ok(());
        }
        let listed: Vec<String> = names.iter().map(|name| self.parser.spec(name).to_string()).collect();
        let message = format!("Exactly one of the following arguments is required: {}", listed.join(", "));
        Err(self.usage_and_exit(&message, io))
    }
}

fn usage_and_exit(parser: &OptionParser, message: &str, io: &mut Io) -> End {
    io.error_line(message);
    io.error(&parser.usage());
    End::code(1)
}

/// `key=value` arguments; a key without a value gets an empty one.
pub fn parse_key_value_args(arguments: &[String]) -> BTreeMap<String, String> {
    let split = |argument: &String| match argument.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (argument.clone(), String::new()),
    };
    arguments.iter().map(split).collect()
}
