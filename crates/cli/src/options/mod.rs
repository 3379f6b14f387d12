//! Command line options as the reference's tools read them.
//!
//! Owns the grammar of `--option value`, `--option=value`, `-option value`, optional and repeated values, value
//! separators and typed values, together with the exact messages of a refusal. Values are converted when they are asked
//! for, not when they are parsed, as in the reference: a wrong number is therefore reported by the part of a tool that
//! reads it. Pure; no output is written here except by [`CommandOptions`], which prints usage and ends the tool.

mod command;
mod help;
mod set;

pub use command::{CommandOptions, parse_key_value_args};
pub use set::OptionSet;

use std::fmt;

/// What follows an option's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    None,
    Required,
    Optional,
}

/// How an argument is converted; only used to name it in the usage text and to check it when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    String,
    Integer,
    Long,
    Short,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::String => "String",
            Kind::Integer => "Integer",
            Kind::Long => "Long",
            Kind::Short => "Short",
        }
    }

    /// Java's `Integer.valueOf` and friends: an optional sign and decimal digits, within the type's range.
    pub(crate) fn accepts(self, text: &str) -> bool {
        match self {
            Kind::String => true,
            Kind::Integer => text.parse::<i32>().is_ok(),
            Kind::Long => text.parse::<i64>().is_ok(),
            Kind::Short => text.parse::<i16>().is_ok(),
        }
    }

    fn is_number(self) -> bool {
        self != Kind::String
    }
}

/// One option.
#[derive(Clone, Debug)]
pub struct Spec {
    pub names: Vec<&'static str>,
    pub argument: Argument,
    pub kind: Kind,
    pub described_as: &'static str,
    pub description: String,
    pub default: Option<String>,
    pub separator: Option<char>,
    /// Only allowed when one of these options is given too.
    pub available_if: Vec<&'static str>,
    /// Options for which requirements between options are not checked (`--help`, `--version`).
    pub for_help: bool,
}

impl Spec {
    fn has_name(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// How messages name the option: `topic`, or `o, output` without brackets.
    fn joined(&self) -> String {
        self.names.join(", ")
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", self.joined())
    }
}

/// Builds a [`Spec`]; `flag("list", "…")`, `value("topic", "…").described("topic")`.
pub fn flag(name: &'static str, description: impl Into<String>) -> Spec {
    Spec {
        names: vec![name],
        argument: Argument::None,
        kind: Kind::String,
        described_as: "",
        description: description.into(),
        default: None,
        separator: None,
        available_if: Vec::new(),
        for_help: false,
    }
}

pub fn value(name: &'static str, description: impl Into<String>) -> Spec {
    Spec { argument: Argument::Required, ..flag(name, description) }
}

impl Spec {
    pub fn kind(self, kind: Kind) -> Self {
        Spec { kind, ..self }
    }

    pub fn described(self, described_as: &'static str) -> Self {
        Spec { described_as, ..self }
    }

    pub fn default_value(self, default: impl Into<String>) -> Self {
        Spec { default: Some(default.into()), ..self }
    }

    pub fn optional_argument(self) -> Self {
        Spec { argument: Argument::Optional, ..self }
    }

    pub fn separated_by(self, separator: char) -> Self {
        Spec { separator: Some(separator), ..self }
    }

    pub fn available_if(self, others: &[&'static str]) -> Self {
        Spec { available_if: others.to_vec(), ..self }
    }

    pub fn for_help(self) -> Self {
        Spec { for_help: true, ..self }
    }

    pub fn alias(mut self, name: &'static str) -> Self {
        self.names.push(name);
        self
    }
}

/// Why a command line was refused; `Display` is the reference's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionError {
    Unrecognized(String),
    MissingArgument(String),
    Unconvertible { argument: String, option: String },
    Multiple(String),
    Unavailable(String),
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionError::Unrecognized(option) => write!(f, "{option} is not a recognized option"),
            OptionError::MissingArgument(option) => write!(f, "Option {option} requires an argument"),
            OptionError::Unconvertible { argument, option } => {
                write!(f, "Cannot parse argument '{argument}' of option {option}")
            }
            OptionError::Multiple(option) => {
                write!(f, "Found multiple arguments for option {option}, but you asked for only one")
            }
            OptionError::Unavailable(options) => {
                write!(f, "Option(s) [{options}] are unavailable given other options on the command line")
            }
        }
    }
}

impl std::error::Error for OptionError {}

/// The options of one tool.
#[derive(Clone, Debug, Default)]
pub struct OptionParser {
    specs: Vec<Spec>,
}

impl OptionParser {
    pub fn new(specs: Vec<Spec>) -> Self {
        OptionParser { specs }
    }

    pub fn specs(&self) -> &[Spec] {
        &self.specs
    }

    /// The option a name stands for. Asking for an option that the tool has not declared is a bug of the tool.
    pub fn spec(&self, name: &str) -> &Spec {
        match self.find(name) {
            Some(spec) => spec,
            None => panic!("option {name} is not declared"),
        }
    }

    fn find(&self, name: &str) -> Option<&Spec> {
        self.specs.iter().find(|spec| spec.has_name(name))
    }

    pub fn usage(&self) -> String {
        help::usage(&self.specs)
    }

    /// Parses `arguments` (without the tool's name).
    pub fn parse(&self, arguments: &[String]) -> Result<OptionSet, OptionError> {
        let mut set = OptionSet::new(self.clone());
        let mut rest = arguments.iter().map(String::as_str).peekable();
        while let Some(argument) = rest.next() {
            if argument == "--" {
                set.operands.extend(rest.by_ref().map(str::to_owned));
            } else if let Some(long) = argument.strip_prefix("--") {
                let (name, value) = split_assignment(long);
                let spec = self.find(name).ok_or_else(|| OptionError::Unrecognized(name.to_owned()))?;
                self.take(spec, value, &mut rest, &mut set)?;
            } else if argument.len() > 1 && argument.starts_with('-') {
                self.parse_short(&argument[1..], &mut rest, &mut set)?;
            } else {
                set.operands.push(argument.to_owned());
            }
        }
        set.check_availability()?;
        Ok(set)
    }

    /// `-name`, `-name=value`, or a cluster of one-letter options of which the first with an argument takes the rest.
    fn parse_short<'a>(
        &self,
        token: &str,
        rest: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
        set: &mut OptionSet,
    ) -> Result<(), OptionError> {
        let (name, value) = split_assignment(token);
        if let Some(spec) = self.find(name) {
            return self.take(spec, value, rest, set);
        }
        for (at, letter) in token.char_indices() {
            let letter_end = at + letter.len_utf8();
            let name = &token[at..letter_end];
            let spec = self.find(name).ok_or_else(|| OptionError::Unrecognized(name.to_owned()))?;
            if spec.argument == Argument::None {
                set.add(spec, None);
                continue;
            }
            let remainder = &token[letter_end..];
            return self.take(spec, (!remainder.is_empty()).then_some(remainder), rest, set);
        }
        Ok(())
    }

    fn take<'a>(
        &self,
        spec: &Spec,
        inline: Option<&str>,
        rest: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
        set: &mut OptionSet,
    ) -> Result<(), OptionError> {
        match (spec.argument, inline) {
            (Argument::None, _) => set.add(spec, None),
            (_, Some(value)) if !value.is_empty() => set.add(spec, Some(value)),
            (Argument::Required, _) => match rest.next() {
                Some(value) => set.add(spec, Some(value)),
                None => return Err(OptionError::MissingArgument(spec.joined())),
            },
            (Argument::Optional, _) => {
                let wanted = |next: &str| {
                    let option_like = next.len() > 1 && next.starts_with('-');
                    spec.kind.accepts(next) && (!option_like || spec.kind.is_number())
                };
                let value = if rest.peek().is_some_and(|next| wanted(next)) { rest.next() } else { None };
                set.add(spec, value);
            }
        }
        Ok(())
    }
}

fn split_assignment(token: &str) -> (&str, Option<&str>) {
    match token.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (token, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parser() -> OptionParser {
        OptionParser::new(vec![
            flag("list", "").for_help(),
            value("topic", "").described("topic"),
            value("partitions", "").kind(Kind::Integer),
            value("state", "").optional_argument(),
            value("delete-config", "").separated_by(','),
            value("members", "").optional_argument().available_if(&["describe"]),
            flag("describe", ""),
            value("o", "").alias("output"),
        ])
    }

    fn parse(line: &str) -> Result<OptionSet, OptionError> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parser().parse(&arguments)
    }

    #[test]
    fn values_follow_or_are_assigned_and_repeat() {
        let set =
            parse("--topic a --topic=b -topic c operand --delete-config x,y --delete-config=z").unwrap();
        assert_eq!(set.values_of("topic").unwrap(), ["a", "b", "c"]);
        assert_eq!(set.values_of("delete-config").unwrap(), ["x", "y", "z"]);
        assert_eq!(set.operands, ["operand"]);
        assert_eq!(set.value_of("topic").unwrap_err(), OptionError::Multiple("topic".into()));
    }

    #[test]
    fn an_optional_value_is_never_an_option() {
        let set = parse("--state --list").unwrap();
        assert!(set.has("state") && set.has("list"));
        assert!(!set.has_argument("state"));
        assert_eq!(parse("--state Empty").unwrap().value_of("state").unwrap().as_deref(), Some("Empty"));
    }

    #[test]
    fn refusals_read_as_the_reference_writes_them() {
        let table = [
            ("--nosuch", "nosuch is not a recognized option"),
            ("--topic", "Option topic requires an argument"),
            ("--top x", "top is not a recognized option"),
            ("-xy", "x is not a recognized option"),
        ];
        for (line, message) in table {
            assert_eq!(parse(line).unwrap_err().to_string(), message, "{line}");
        }
        let set = parse("--partitions x").unwrap();
        let error = set.integer("partitions").unwrap_err();
        assert_eq!(error.to_string(), "Cannot parse argument 'x' of option partitions");
    }

    #[test]
    fn an_option_may_need_another_one() {
        assert!(parse("--members").is_err());
        assert!(parse("--members --describe").is_ok());
        assert!(parse("-ojson").unwrap().has("output"));
    }
}
