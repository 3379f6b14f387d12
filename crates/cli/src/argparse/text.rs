//! Usage, help and error texts. argparse4j fills lines of 75 characters and stretches the blanks of every line but the
//! last of a paragraph to that width; scripts that read error messages see exactly that.

use super::{Action, Argument, Kind, Parser};

const WIDTH: usize = 75;
/// Where descriptions begin.
const INDENT: usize = 25;

/// `{a,b}`, which also is the placeholder of a value that must be one of them.
pub(super) fn choices(choices: &[&str]) -> String {
    format!("{{{}}}", choices.join(","))
}

/// `prog: error: message`, filled, with its newline.
pub(super) fn wrap_error(prog: &str, message: &str) -> String {
    wrap(&format!("{prog}: error: {message}\n"), 0, "")
}

/// Where a line may end: behind blanks, and behind a hyphen or dot inside a word.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let letters: Vec<(usize, char)> = text.char_indices().collect();
    for (position, (at, letter)) in letters.iter().enumerate().skip(1) {
        let before = letters.get(position - 1).map_or(' ', |(_, letter)| *letter);
        let breaks = match before {
            '\n' => true,
            ' ' => *letter != ' ' && *letter != '\n',
            '-' | '.' => letter.is_alphabetic(),
            _ => false,
        };
        if breaks {
            pieces.extend(text.get(start..*at));
            start = *at;
        }
    }
    pieces.extend(text.get(start..).filter(|rest| !rest.is_empty()));
    pieces
}

fn wrap(text: &str, offset: usize, indent: &str) -> String {
    let mut result = String::new();
    let mut line = String::new();
    let mut width = offset;
    for piece in pieces(text) {
        let piece_width = piece.chars().count();
        width += piece_width;
        if width > WIDTH {
            result.push_str(&stretch(&line, WIDTH, width - piece_width));
            result.push('\n');
            result.push_str(indent);
            line.clear();
            width = indent.len() + piece_width;
        }
        line.push_str(piece);
        if piece.ends_with('\n') {
            result.push_str(&line);
            result.push_str(indent);
            line.clear();
            width = indent.len();
        }
    }
    result + &line
}

/// Spreads what is missing to `width` over the blanks of a line, the odd ones in its middle.
fn stretch(line: &str, width: usize, current: usize) -> String {
    let trimmed = line.trim_matches(' ');
    let current = current - (line.len() - trimmed.len());
    let words: Vec<&str> = trimmed.split(' ').collect();
    let gaps = words.windows(2).filter(|pair| pair.last().is_some_and(|word| !word.is_empty())).count();
    if gaps == 0 {
        return trimmed.to_owned();
    }
    let missing = width.saturating_sub(current);
    let (each, rest) = (missing / gaps, missing % gaps);
    let first = (gaps - rest).div_ceil(2);
    let mut result = String::new();
    let mut gap = 0;
    let mut in_gap = false;
    for letter in trimmed.chars() {
        if letter == ' ' && !in_gap {
            let extra = usize::from((first..first + rest).contains(&gap));
            result.extend(std::iter::repeat_n(' ', each + extra));
            gap += 1;
        }
        in_gap = letter == ' ';
        result.push(letter);
    }
    result
}

impl Argument {
    fn placeholder(&self) -> String {
        let name = match (self.metavar, self.kind) {
            (Some(metavar), _) => metavar.to_owned(),
            (None, Kind::OneOf(allowed)) => choices(allowed),
            (None, _) => self.dest.to_uppercase(),
        };
        match self.action {
            Action::StoreTrue | Action::Help => String::new(),
            Action::StoreMany => format!(" {name} [{name} ...]"),
            Action::Store | Action::Append => format!(" {name}"),
        }
    }

    fn short_syntax(&self) -> String {
        format!("{}{}", self.flags.first().copied().unwrap_or_default(), self.placeholder())
    }

    fn bracketed_syntax(&self) -> String {
        match self.required {
            true => self.short_syntax(),
            false => format!("[{}]", self.short_syntax()),
        }
    }
}

impl Parser {
    pub(super) fn usage(&self, parents: &[&Parser]) -> String {
        let mut words: Vec<String> = Vec::new();
        for parent in parents {
            words.extend(parent.command.map(str::to_owned));
            words.extend(parent.syntax(true));
        }
        words.extend(self.command.map(str::to_owned));
        words.extend(self.syntax(false));
        if !self.commands.is_empty() {
            words.push(self.command_choices());
            words.push("...".to_owned());
        }
        let start = format!("usage: {}", self.prog);
        let narrow = start.len() > 30;
        let indent = if narrow { 6 } else { start.len() };
        let mut text = start;
        let mut width = indent;
        if narrow {
            text.push_str(&format!("\n{:indent$}", ""));
            width = 2 * indent;
        }
        for (index, word) in words.iter().enumerate() {
            let length = word.chars().count() + 1;
            if index > 0 && width + length > WIDTH {
                text.push_str(&format!("\n{:indent$}", ""));
                width = indent;
            }
            text.push(' ');
            text.push_str(word);
            width += length;
        }
        text + "\n"
    }

    /// The flags; only those that must be given when this is the parent of a command.
    fn syntax(&self, required_only: bool) -> Vec<String> {
        let is_exclusive =
            |argument: &&Argument| self.group_of(argument).is_some_and(|group| group.exclusive);
        let shown = |argument: &&Argument| !argument.own && (!required_only || argument.required);
        let plain = self.arguments.iter().filter(shown).filter(|argument| !is_exclusive(argument));
        let mut words: Vec<String> = plain.map(Argument::bracketed_syntax).collect();
        let groups = self.groups.iter().enumerate().filter(|(_, group)| group.exclusive);
        for (index, group) in groups.filter(|(_, group)| group.required || !required_only) {
            let members = self.arguments.iter().filter(|argument| argument.group == Some(index));
            let members: Vec<String> = members.map(Argument::short_syntax).collect();
            let (open, close) = if group.required { ("(", ")") } else { ("[", "]") };
            for (position, member) in members.iter().enumerate() {
                if position > 0 {
                    words.push("|".to_owned());
                }
                let open = if position == 0 { open } else { "" };
                let close = if position + 1 == members.len() { close } else { "" };
                words.push(format!("{open}{member}{close}"));
            }
        }
        words
    }

    fn command_choices(&self) -> String {
        let names: Vec<&str> = self.commands.iter().filter_map(|command| command.command).collect();
        choices(&names)
    }

    pub(super) fn help(&self, parents: &[&Parser]) -> String {
        let mut text = self.usage(parents);
        if self.command.is_none() && !self.description.is_empty() {
            text.push_str(&format!("\n{}\n", wrap(self.description, 0, "")));
        }
        if !self.commands.is_empty() {
            text.push_str("\npositional arguments:\n");
            text.push_str(&entry(&self.command_choices(), ""));
            for command in &self.commands {
                text.push_str(&entry(
                    &format!("  {}", command.command.unwrap_or_default()),
                    command.description,
                ));
            }
        }
        let titled =
            |argument: &&Argument| self.group_of(argument).is_some_and(|group| !group.title.is_empty());
        text.push_str("\noptional arguments:\n");
        for argument in self.arguments.iter().filter(|argument| !titled(argument) && !argument.own) {
            text.push_str(&self.help_of(argument));
        }
        for (index, group) in self.groups.iter().enumerate().filter(|(_, group)| !group.title.is_empty()) {
            text.push_str(&format!("\n{}:\n", group.title));
            for argument in self.arguments.iter().filter(|argument| argument.group == Some(index)) {
                text.push_str(&self.help_of(argument));
            }
        }
        if self.arguments.iter().any(|argument| argument.own) {
            text.push_str("\nalso:\n");
        }
        for argument in self.arguments.iter().filter(|argument| argument.own) {
            text.push_str(&self.help_of(argument));
        }
        text
    }

    fn help_of(&self, argument: &Argument) -> String {
        let placeholder = argument.placeholder();
        let flags: Vec<String> = argument.flags.iter().map(|flag| format!("{flag}{placeholder}")).collect();
        let switch = argument.action == Action::StoreTrue;
        let default = argument.default.or(switch.then_some("false"));
        let shown = default.filter(|_| self.shows_defaults || argument.own);
        let help = match shown {
            Some(default) => format!("{} (default: {default})", argument.help),
            None => argument.help.clone(),
        };
        entry(&flags.join(", "), help.trim_start())
    }
}

fn entry(title: &str, help: &str) -> String {
    if help.is_empty() {
        return format!("  {title}\n");
    }
    let blanks = " ".repeat(INDENT);
    let lead = match title.chars().count() {
        width if width <= 21 => format!("  {title:<23}"),
        _ => format!("  {title}\n{blanks}"),
    };
    format!("{lead}{}\n", wrap(help, INDENT, &blanks))
}

/// The nearest known words, when they are near.
pub(super) fn did_you_mean<'a>(body: &str, subjects: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    const FAR: usize = 7;
    let mut candidates: Vec<(usize, &str)> = subjects
        .map(|(subject, own)| (if own.starts_with(body) { 0 } else { distance(body, own) }, subject))
        .collect();
    candidates.sort_unstable();
    let Some(nearest) = candidates.first().map(|(distance, _)| *distance).filter(|nearest| *nearest < FAR)
    else {
        return String::new();
    };
    let listed = candidates.iter().take_while(|(distance, _)| *distance == nearest);
    listed.fold("\nDid you mean:\n".to_owned(), |text, (_, subject)| text + "\t" + subject + "\n")
}

/// Levenshtein with the weights of argparse4j: swapping is free, a change costs 2, an insertion 1, a deletion 4.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let same = a[i - 1] == b[j - 1];
            row[j] = last[j - 1] + if same { 0 } else { 2 };
            if i >= 2 && j >= 2 && !same && a[i - 2] == b[j - 1] && a[i - 1] == b[j - 2] {
                row[j] = row[j].min(before[j - 2]);
            }
            row[j] = row[j].min(last[j] + 4).min(row[j - 1] + 1);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}
