//! The forms of output: the reference's own text, or the same facts as JSON or YAML for programs.

use serde_json::Value;

use crate::failure::Failure;
use crate::io::Io;
use crate::options::OptionSet;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Table,
    Json,
    Yaml,
}

impl Format {
    pub fn of(options: &OptionSet) -> Result<Format, Failure> {
        match options.value_of("output")? {
            None => Ok(Format::Table),
            Some(name) => Format::parse(&name),
        }
    }

    pub fn parse(name: &str) -> Result<Format, Failure> {
        match name {
            "table" => Ok(Format::Table),
            "json" => Ok(Format::Json),
            "yaml" => Ok(Format::Yaml),
            other => Err(Failure::illegal_argument(format!(
                "Unknown output format '{other}'; the formats are table, json and yaml"
            ))),
        }
    }

    pub fn is_table(self) -> bool {
        self == Format::Table
    }

    /// Writes `value` when the format is for programs; says whether it did.
    pub fn emit(self, value: impl FnOnce() -> Value, io: &mut Io) -> bool {
        match self {
            Format::Table => return false,
            Format::Json => io.line(value().to_string()),
            Format::Yaml => io.print(serde_yaml_ng::to_string(&value()).unwrap_or_default()),
        }
        true
    }
}

/// The table of the reference's newer tools: columns padded to their widest cell, two blanks between them.
pub fn pretty_table(headers: &[&str], rows: &[Vec<String>], io: &mut Io) {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(headers.get(column).map(|header| header.len())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headers.len()).map(width).collect();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (cell, width) in cells.zip(&widths) {
            text.push_str(&format!("{cell:<width$}\t"));
        }
        io.line(text);
    };
    line(&mut headers.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
}
