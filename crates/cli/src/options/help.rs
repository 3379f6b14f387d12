//! The usage text: two columns in 80 characters, options in alphabetical order, long lines wrapped with an indent.
//!
//! Scripts read the option names out of it, so names, argument placeholders and defaults stand where the reference
//! prints them.

use super::{Argument, Kind, Spec};

const WIDTH: usize = 80;
const GAP: usize = 1;
const INDENT: &str = "  ";

pub(super) fn usage(specs: &[Spec]) -> String {
    let mut rows: Vec<(String, String)> = specs.iter().map(|spec| (left(spec), right(spec))).collect();
    rows.sort_by(|a, b| a.0.trim_start_matches('-').cmp(b.0.trim_start_matches('-')));
    rows.insert(0, ("Option".to_owned(), "Description".to_owned()));
    rows.insert(1, ("------".to_owned(), "-----------".to_owned()));
    let widest = rows.iter().map(|row| row.0.chars().count()).max().unwrap_or(0);
    let left_width = widest.min((WIDTH - GAP) / 2);
    let right_width = WIDTH - GAP - left_width - 1;
    let mut text = String::new();
    for (left, right) in &rows {
        let left = wrap(left, left_width);
        let right = wrap(right, right_width);
        for line in 0..left.len().max(right.len()) {
            let cell = |column: &[String]| column.get(line).cloned().unwrap_or_default();
            text.push_str(&format!("{:<left_width$} {:<right_width$}\n", cell(&left), cell(&right)));
        }
    }
    text
}

fn left(spec: &Spec) -> String {
    let dashed =
        |name: &&str| if name.chars().count() == 1 { format!("-{name}") } else { format!("--{name}") };
    let names = spec.names.iter().map(dashed).collect::<Vec<_>>().join(", ");
    let described = match (spec.kind, spec.described_as) {
        (kind, "") => kind.name().to_owned(),
        (kind, described) => format!("{}: {described}", kind.name()),
    };
    match spec.argument {
        Argument::None => names,
        Argument::Required => format!("{names} <{described}>"),
        Argument::Optional => format!("{names} [{described}]"),
    }
}

fn right(spec: &Spec) -> String {
    match (&spec.default, spec.kind) {
        (Some(default), Kind::String | Kind::Integer | Kind::Long | Kind::Short) => {
            format!("{} (default: {default})", spec.description)
        }
        (None, _) => spec.description.clone(),
    }
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.split('\n') {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            let length = line.chars().count();
            if length > INDENT.len() && length + 1 + word.chars().count() > width {
                lines.push(std::mem::replace(&mut line, INDENT.to_owned()));
                line.push_str(word);
            } else {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::{flag, value};
    use super::*;

    #[test]
    fn options_are_sorted_and_long_descriptions_wrap_with_an_indent() {
        let long = "Reads every record of the topic that is named here, from its beginning to its end";
        let text = usage(&[flag("zeta", "Last."), value("alpha", long).described("topic"), flag("mid", "")]);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert!(lines[0].starts_with("Option") && lines[0].ends_with("Description"));
        assert!(lines[2].starts_with("--alpha <String: topic> Reads every record"));
        assert!(lines[3].trim_start().len() + 26 >= lines[3].len());
        assert!(lines.last().unwrap().starts_with("--zeta"));
    }
}
