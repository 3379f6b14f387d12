//! Parsing. One pass over the arguments; a missing required flag is reported only when nothing else is wrong.

use std::collections::BTreeSet;

use super::{Action, Argument, Kind, Namespace, Parser, Refusal, text};

/// Where parsing stands; shared by a parser and its sub-command.
struct State {
    arguments: Vec<String>,
    index: usize,
    separator_seen: bool,
    /// The first complaint that waits for the end.
    deferred: Option<Refusal>,
}

impl State {
    fn current(&self) -> Option<&str> {
        self.arguments.get(self.index).map(String::as_str)
    }
}

impl Parser {
    /// Parses `arguments` (without the tool's name).
    pub fn parse(&self, arguments: &[String]) -> Result<Namespace, Refusal> {
        let arguments = if self.from_files { self.expand_files(arguments)? } else { arguments.to_vec() };
        let mut state = State { arguments, index: 0, separator_seen: false, deferred: None };
        let mut namespace = Namespace::default();
        self.parse_level(&[], &mut state, &mut namespace)?;
        match state.deferred {
            Some(refusal) => Err(refusal),
            None => Ok(namespace),
        }
    }

    /// An error of this parser, for tools that check more than the parser can.
    pub fn error(&self, message: &str) -> Refusal {
        self.refuse(&[], message)
    }

    fn refuse(&self, parents: &[&Parser], message: &str) -> Refusal {
        let text = format!("{}{}", self.usage(parents), text::wrap_error(self.prog, message));
        Refusal::Error { message: message.to_owned(), text }
    }

    fn refuse_argument(&self, parents: &[&Parser], argument: &Argument, message: &str) -> Refusal {
        self.refuse(parents, &format!("argument {}: {message}", argument.textual_name()))
    }

    fn expand_files(&self, arguments: &[String]) -> Result<Vec<String>, Refusal> {
        let mut expanded = Vec::new();
        for argument in arguments {
            match argument.strip_prefix('@').filter(|name| !name.is_empty()) {
                None => expanded.push(argument.clone()),
                Some(name) => match std::fs::read_to_string(name) {
                    Ok(content) => expanded.extend(content.lines().map(str::to_owned)),
                    Err(_) => {
                        return Err(self.refuse(&[], &format!("Could not read arguments from file '{name}'")));
                    }
                },
            }
        }
        Ok(expanded)
    }

    fn parse_level(
        &self,
        parents: &[&Parser],
        state: &mut State,
        namespace: &mut Namespace,
    ) -> Result<(), Refusal> {
        for argument in &self.arguments {
            if let Some(default) = argument.default {
                namespace.values.entry(argument.dest).or_insert_with(|| vec![default.to_owned()]);
            }
        }
        let mut level = Level { parser: self, parents, used: BTreeSet::new(), exclusive: Vec::new() };
        level.exclusive.resize(self.groups.len(), None);
        while let Some(term) = state.current().map(str::to_owned) {
            if term == "--" && !state.separator_seen {
                state.separator_seen = true;
                state.index += 1;
            } else if is_flag(&term, state.separator_seen) {
                level.take_flag(&term, state, namespace)?;
            } else if !state.separator_seen && !self.commands.is_empty() {
                level.check_required(state);
                return self.parse_command(parents, &term, state, namespace);
            } else {
                let rest = state.arguments.get(state.index..).unwrap_or_default().join(" ");
                return Err(self.refuse(parents, &format!("unrecognized arguments: '{rest}'")));
            }
        }
        if !self.commands.is_empty() {
            return Err(self.refuse(parents, "too few arguments"));
        }
        level.check_required(state);
        Ok(())
    }

    fn parse_command(
        &self,
        parents: &[&Parser],
        name: &str,
        state: &mut State,
        namespace: &mut Namespace,
    ) -> Result<(), Refusal> {
        let names = || self.commands.iter().filter_map(|command| command.command);
        let exact = self.commands.iter().find(|command| command.command == Some(name));
        let mut candidates: Vec<&Parser> = self
            .commands
            .iter()
            .filter(|it| !name.is_empty() && it.command.is_some_and(|own| own.starts_with(name)))
            .collect();
        candidates.sort_by_key(|command| command.command);
        let command = match (exact, candidates.as_slice()) {
            (Some(command), _) => command,
            (None, [command]) => command,
            (None, []) => {
                let known: Vec<String> = names().map(|name| format!("'{name}'")).collect();
                let message = format!("invalid choice: '{name}' (choose from {})", known.join(", "));
                let hint = text::did_you_mean(name, names().map(|name| (name, name)));
                return Err(with_hint(self.refuse(parents, &message), &hint));
            }
            (None, several) => {
                let several: Vec<&str> = several.iter().filter_map(|command| command.command).collect();
                let message = format!("ambiguous command: {name} could match {}", several.join(", "));
                return Err(self.refuse(parents, &message));
            }
        };
        state.index += 1;
        let parents: Vec<&Parser> = parents.iter().copied().chain([self]).collect();
        command.parse_level(&parents, state, namespace)?;
        namespace.command = command.command;
        Ok(())
    }

    fn exact(&self, flag: &str) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.flags.contains(&flag))
    }

    /// Whether `term` reads as several short flags in one.
    fn is_cluster(&self, term: &str) -> bool {
        let Some(letters) = term.strip_prefix('-').filter(|rest| !rest.is_empty() && !rest.starts_with('-'))
        else {
            return false;
        };
        for letter in letters.chars() {
            match self.exact(&format!("-{letter}")) {
                None => return false,
                Some(argument) if argument.takes_value() => return true,
                Some(_) => {}
            }
        }
        true
    }

    fn resolve(&self, parents: &[&Parser], flag: &str) -> Result<Option<&Argument>, Refusal> {
        if let Some(argument) = self.exact(flag) {
            return Ok(Some(argument));
        }
        let flags = self.arguments.iter().filter(|argument| !argument.own).flat_map(|it| it.flags.iter());
        let mut candidates: Vec<&str> = flags.copied().filter(|own| own.starts_with(flag)).collect();
        if candidates.is_empty() {
            return Ok(None);
        }
        let short = flag.char_indices().nth(2).map_or(flag, |(at, _)| flag.get(..at).unwrap_or(flag));
        if self.is_cluster(flag) {
            candidates.push(short);
        } else if let [one] = candidates.as_slice() {
            return Ok(self.exact(one));
        }
        candidates.sort_unstable();
        let message = format!("ambiguous option: {flag} could match {}", candidates.join(", "));
        Err(self.refuse(parents, &message))
    }
}

fn with_hint(refusal: Refusal, hint: &str) -> Refusal {
    match refusal {
        Refusal::Error { message, text } => Refusal::Error { message, text: text + hint },
        other => other,
    }
}

/// A flag begins with `-`; negative numbers are values.
fn is_flag(term: &str, separator_seen: bool) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    !separator_seen && term.strip_prefix('-').is_some_and(|rest| !rest.is_empty() && !number(rest))
}

/// One parser's pass.
struct Level<'a> {
    parser: &'a Parser,
    parents: &'a [&'a Parser],
    used: BTreeSet<&'static str>,
    /// By group: the flag that was given.
    exclusive: Vec<Option<String>>,
}

impl Level<'_> {
    fn take_flag(&mut self, term: &str, state: &mut State, into: &mut Namespace) -> Result<(), Refusal> {
        let (flag, inline) = match term.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (term, None),
        };
        let parser = self.parser;
        if let Some(argument) = parser.resolve(self.parents, flag)? {
            state.index += 1;
            return self.take(argument, inline, state, into);
        }
        if term.starts_with("--") {
            return Err(self.unrecognized(term));
        }
        for (at, letter) in term.char_indices().skip(1) {
            let Some(argument) = parser.exact(&format!("-{letter}")) else {
                return Err(self.unrecognized(term));
            };
            if argument.takes_value() {
                let rest = term.get(at + letter.len_utf8()..).filter(|rest| !rest.is_empty());
                state.index += 1;
                return self.take(argument, rest, state, into);
            }
            self.check_exclusive(argument)?;
            self.run(argument, into)?;
        }
        state.index += 1;
        Ok(())
    }

    fn unrecognized(&self, term: &str) -> Refusal {
        let refusal = self.parser.refuse(self.parents, &format!("unrecognized arguments: '{term}'"));
        let body = term.trim_start_matches('-');
        if body.chars().count() < 2 {
            return refusal;
        }
        let flags =
            self.parser.arguments.iter().filter(|argument| !argument.own).flat_map(|it| it.flags.iter());
        let subjects =
            flags.map(|flag| (*flag, flag.trim_start_matches('-'))).filter(|(_, body)| body.len() > 1);
        with_hint(refusal, &text::did_you_mean(body, subjects))
    }

    fn check_exclusive(&mut self, argument: &Argument) -> Result<(), Refusal> {
        let Some(index) = argument.group else { return Ok(()) };
        if !self.parser.group_of(argument).is_some_and(|group| group.exclusive) {
            return Ok(());
        }
        let name = argument.textual_name();
        match self.exclusive.get_mut(index) {
            Some(Some(other)) if *other != name => {
                let message = format!("not allowed with argument {other}");
                Err(self.parser.refuse_argument(self.parents, argument, &message))
            }
            Some(slot) => {
                *slot = Some(name);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn run(&mut self, argument: &Argument, into: &mut Namespace) -> Result<(), Refusal> {
        self.used.insert(argument.dest);
        if argument.action == Action::Help {
            return Err(Refusal::Help(self.parser.help(self.parents)));
        }
        into.flags.insert(argument.dest);
        Ok(())
    }

    fn take(
        &mut self,
        argument: &Argument,
        inline: Option<&str>,
        state: &mut State,
        into: &mut Namespace,
    ) -> Result<(), Refusal> {
        self.check_exclusive(argument)?;
        let refuse = |message: &str| self.parser.refuse_argument(self.parents, argument, message);
        if !argument.takes_value() {
            return match inline {
                None => self.run(argument, into),
                Some(value) => Err(refuse(&format!("ignore implicit argument '{value}'"))),
            };
        }
        let mut values: Vec<String> = inline.map(str::to_owned).into_iter().collect();
        let many = argument.action == Action::StoreMany;
        while inline.is_none() && (many || values.is_empty()) {
            match state.current().filter(|next| *next != "--" && !is_flag(next, state.separator_seen)) {
                Some(next) => values.push(next.to_owned()),
                None => break,
            }
            state.index += 1;
        }
        if values.is_empty() {
            return Err(refuse(if many { "expected 1 argument(s)" } else { "expected one argument" }));
        }
        for value in &values {
            check_value(argument.kind, value).map_err(|message| refuse(&message))?;
        }
        let replaces = argument.action != Action::Append || !self.used.contains(argument.dest);
        self.used.insert(argument.dest);
        let slot = into.values.entry(argument.dest).or_default();
        if replaces {
            slot.clear();
        }
        slot.extend(values);
        Ok(())
    }

    /// The last missing flag is the one that is named, as in argparse4j; a sub-command's complaint comes after its
    /// parent's.
    fn check_required(&self, state: &mut State) {
        if state.deferred.is_some() {
            return;
        }
        let missing = |argument: &&Argument| argument.required && !self.used.contains(argument.dest);
        if let Some(argument) = self.parser.arguments.iter().rev().find(missing) {
            let message = format!("argument {} is required", argument.textual_name());
            state.deferred = Some(self.parser.refuse(self.parents, &message));
            return;
        }
        let groups = self.parser.groups.iter().zip(&self.exclusive).enumerate();
        for (index, (group, given)) in groups {
            if group.required && group.exclusive && given.is_none() {
                let members = self.parser.arguments.iter().filter(|argument| argument.group == Some(index));
                let names: String = members.map(|argument| argument.textual_name() + " ").collect();
                let message = format!("one of the arguments {names}is required");
                state.deferred = Some(self.parser.refuse(self.parents, &message));
            }
        }
    }
}

fn check_value(kind: Kind, value: &str) -> Result<(), String> {
    let (valid, name) = match kind {
        Kind::String => return Ok(()),
        Kind::Integer => (value.parse::<i32>().is_ok(), "Integer"),
        Kind::Long => (value.parse::<i64>().is_ok(), "Long"),
        Kind::Double => (value.trim().parse::<f64>().is_ok(), "Double"),
        Kind::OneOf(choices) => {
            return match choices.contains(&value) {
                true => Ok(()),
                false => Err(format!("invalid choice: '{value}' (choose from {})", text::choices(choices))),
            };
        }
    };
    match valid {
        true => Ok(()),
        false => Err(format!("could not convert '{value}' to {name} (For input string: \"{value}\")")),
    }
}
