//! Java `.properties` text: reading, with line numbers, and writing.
//!
//! Reads bytes as Latin-1 with `\uXXXX` escapes, as `Properties.load(InputStream)` does, so that one file
//! means the same to both servers. A key that occurs twice has its last value. The line number is kept
//! for messages only. Pure; memory is bounded by the input.

use std::collections::BTreeMap;
use std::fmt;

/// A value and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub value: String,
    /// The line of the file, counted from 1; absent for overrides.
    pub line: Option<u32>,
}

/// Keys and values in order of key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    entries: BTreeMap<String, Entry>,
}

/// A file that is no `.properties` file, or an override that is no `key=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PropertiesError {
    /// A `\u` without four hexadecimal digits.
    MalformedUnicode { line: u32 },
    /// `--override` without `=`.
    MalformedOverride { argument: String },
}

impl fmt::Display for PropertiesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MalformedUnicode { line } => {
                write!(
                    f,
                    "Malformed \\uxxxx encoding. (line {line}: write four hexadecimal digits after \\u)"
                )
            }
            Self::MalformedOverride { argument } => {
                write!(f, "Invalid override '{argument}': write it as --override key=value")
            }
        }
    }
}

impl std::error::Error for PropertiesError {}

impl Properties {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the bytes of a file.
    pub fn parse(bytes: &[u8]) -> Result<Self, PropertiesError> {
        let text: Vec<char> = bytes.iter().map(|b| char::from(*b)).collect();
        Self::parse_chars(&text)
    }

    /// Reads text that is already decoded.
    pub fn parse_str(text: &str) -> Result<Self, PropertiesError> {
        let text: Vec<char> = text.chars().collect();
        Self::parse_chars(&text)
    }

    fn parse_chars(text: &[char]) -> Result<Self, PropertiesError> {
        let mut properties = Self::new();
        for (line, logical) in LogicalLines::new(text) {
            let (key, value) = split_key(&logical);
            let key = unescape(key).ok_or(PropertiesError::MalformedUnicode { line })?;
            let value = unescape(value).ok_or(PropertiesError::MalformedUnicode { line })?;
            properties.entries.insert(key, Entry { value, line: Some(line) });
        }
        Ok(properties)
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries.get(key).map(|entry| entry.value.as_str())
    }

    pub fn line_of(&self, key: &str) -> Option<u32> {
        self.entries.get(key).and_then(|entry| entry.line)
    }

    pub fn contains(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.entries.insert(key.into(), Entry { value: value.into(), line: None });
    }

    pub fn remove(&mut self, key: &str) -> Option<String> {
        self.entries.remove(key).map(|entry| entry.value)
    }

    /// Applies one `--override key=value`; the value may hold further `=` and may be empty.
    pub fn apply_override(&mut self, argument: &str) -> Result<(), PropertiesError> {
        match argument.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                self.set(key.trim(), value.trim());
                Ok(())
            }
            _ => Err(PropertiesError::MalformedOverride { argument: argument.to_owned() }),
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(key, entry)| (key.as_str(), entry.value.as_str()))
    }

    pub fn to_map(&self) -> BTreeMap<String, String> {
        self.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    }

    /// The text of a file that reads back as these properties; plain ASCII.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (key, value) in self.iter() {
            escape(&mut text, key, true);
            text.push('=');
            escape(&mut text, value, false);
            text.push('\n');
        }
        text
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Properties {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Self {
        let mut properties = Self::new();
        for (key, value) in pairs {
            properties.set(key, value);
        }
        properties
    }
}

/// Natural lines joined at continuations, without comments, blank lines and leading white space.
struct LogicalLines<'a> {
    text: &'a [char],
    at: usize,
    line: u32,
}

impl<'a> LogicalLines<'a> {
    fn new(text: &'a [char]) -> Self {
        Self { text, at: 0, line: 0 }
    }

    /// The next natural line without its terminator (`\n`, `\r` or `\r\n`), and whether the text ends with it.
    /// Java does not see the end behind a `\r\n`.
    fn natural(&mut self) -> Option<(&'a [char], bool)> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        self.line += 1;
        let end = rest.iter().position(|c| matches!(c, '\n' | '\r')).unwrap_or(rest.len());
        let terminator = match rest[end..] {
            [] => 0,
            ['\r', '\n', ..] => 2,
            _ => 1,
        };
        self.at += end + terminator;
        Some((&rest[..end], terminator < 2 && self.at == self.text.len()))
    }
}

impl Iterator for LogicalLines<'_> {
    type Item = (u32, Vec<char>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut logical: Vec<char> = Vec::new();
        let mut first = 0;
        while let Some((natural, is_last)) = self.natural() {
            let natural = trim_start(natural);
            if logical.is_empty() {
                // Also after a continuation that had nothing before it.
                first = self.line;
                if matches!(natural.first(), None | Some('#' | '!')) {
                    continue;
                }
            }
            logical.extend_from_slice(natural);
            let continued = is_continued(&logical);
            if continued {
                logical.pop();
            }
            if !continued || is_last {
                return Some((first, logical));
            }
        }
        (!logical.is_empty()).then_some((first, logical))
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

fn trim_start(line: &[char]) -> &[char] {
    let start = line.iter().position(|c| !is_space(*c)).unwrap_or(line.len());
    &line[start..]
}

/// An odd number of backslashes at the end continues the line.
fn is_continued(line: &[char]) -> bool {
    line.iter().rev().take_while(|c| **c == '\\').count() % 2 == 1
}

/// The key ends at the first unescaped `=`, `:` or white space; one separator is dropped with the space around it.
fn split_key(line: &[char]) -> (&[char], &[char]) {
    let mut escaped = false;
    let mut end = line.len();
    for (i, c) in line.iter().enumerate() {
        if !escaped && (is_space(*c) || matches!(c, '=' | ':')) {
            end = i;
            break;
        }
        escaped = *c == '\\' && !escaped;
    }
    let mut value = trim_start(&line[end..]);
    if matches!(value.first(), Some('=' | ':')) {
        value = trim_start(&value[1..]);
    }
    (&line[..end], value)
}

/// Resolves escapes; `None` for a malformed `\u`.
fn unescape(text: &[char]) -> Option<String> {
    // UTF-16 units, because an escape may hold half of a surrogate pair.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(c) = rest.next() {
        let plain = match (c, if c == '\\' { rest.next() } else { None }) {
            ('\\', None) => break,
            ('\\', Some('u')) => {
                let digits: String = rest.by_ref().take(4).collect();
                if digits.len() != 4 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return None;
                }
                units.push(u16::from_str_radix(&digits, 16).ok()?);
                continue;
            }
            ('\\', Some('t')) => '\t',
            ('\\', Some('r')) => '\r',
            ('\\', Some('n')) => '\n',
            ('\\', Some('f')) => '\x0c',
            ('\\', Some(other)) => other,
            (other, _) => other,
        };
        units.extend_from_slice(plain.encode_utf16(&mut [0; 2]));
    }
    Some(String::from_utf16_lossy(&units))
}

fn escape(out: &mut String, text: &str, is_key: bool) {
    for (i, c) in text.chars().enumerate() {
        match c {
            ' ' if is_key || i == 0 => out.push_str("\\ "),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\x0c' => out.push_str("\\f"),
            '\\' => out.push_str("\\\\"),
            '=' | ':' | '#' | '!' if is_key || (i == 0 && matches!(c, '=' | ':')) => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04X}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_as_java_reads_it() {
        let cases: &[(&str, &[(&str, &str)])] = &[
            ("a=b", &[("a", "b")]),
            ("a = b", &[("a", "b")]),
            ("a:b\nc d", &[("a", "b"), ("c", "d")]),
            ("a==b", &[("a", "=b")]),
            ("a : = b", &[("a", "= b")]),
            ("  a  b c  ", &[("a", "b c  ")]),
            ("a", &[("a", "")]),
            ("a=", &[("a", "")]),
            ("=b", &[("", "b")]),
            ("# c\n ! d\n\n\t\na=b", &[("a", "b")]),
            ("a=b\\\n   c", &[("a", "bc")]),
            ("a=b\\\\\nc=d", &[("a", "b\\"), ("c", "d")]),
            ("a=b\\\r\n c", &[("a", "bc")]),
            ("a=b\\\n# not a comment", &[("a", "b# not a comment")]),
            ("a\\ b=c", &[("a b", "c")]),
            ("a\\:b\\=c=d", &[("a:b=c", "d")]),
            ("a=\\u0041\\u00e4\\ud83d\\ude00\\t\\z", &[("a", "A\u{e4}\u{1f600}\tz")]),
            ("a=1\na=2", &[("a", "2")]),
            ("a=b\\", &[("a", "b")]),
            ("a=1\rb=2\r\nc=3", &[("a", "1"), ("b", "2"), ("c", "3")]),
            ("path=C:\\\\kafka", &[("path", "C:\\kafka")]),
            ("\\\n", &[("", "")]),
            ("\\\r\n", &[]),
            ("\\\n# comment\n\na=b", &[("a", "b")]),
            ("a\\\n\nb=c", &[("a", ""), ("b", "c")]),
        ];
        for (text, expected) in cases {
            let read = Properties::parse_str(text).unwrap();
            assert_eq!(read.iter().collect::<Vec<_>>(), *expected, "{text:?}");
        }
    }

    #[test]
    fn bytes_are_latin_1_and_lines_are_counted() {
        let read = Properties::parse(b"# c\na=\xe4\n\nb=1\\\n2\nc=3\n").unwrap();
        assert_eq!(read.get("a"), Some("\u{e4}"));
        assert_eq!([read.line_of("a"), read.line_of("b"), read.line_of("c")], [Some(2), Some(4), Some(6)]);
    }

    #[test]
    fn a_malformed_escape_names_its_line() {
        assert_eq!(
            Properties::parse_str("a=1\nb=\\u00g1"),
            Err(PropertiesError::MalformedUnicode { line: 2 })
        );
        assert_eq!(Properties::parse_str("b=\\u1"), Err(PropertiesError::MalformedUnicode { line: 1 }));
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut properties = Properties::new();
        for (key, value) in
            [("a b", " x = y "), ("#k", "!v"), ("ä:=", "€\n\t\\"), ("", ""), ("e", "=e"), ("z", "\u{1f600}")]
        {
            properties.set(key, value);
        }
        assert_eq!(Properties::parse(properties.to_text().as_bytes()).unwrap().to_map(), properties.to_map());
    }

    #[test]
    fn overrides_win() {
        let mut properties = Properties::parse_str("a=1").unwrap();
        properties.apply_override("a=2=3").unwrap();
        properties.apply_override("b=").unwrap();
        assert_eq!(properties.iter().collect::<Vec<_>>(), [("a", "2=3"), ("b", "")]);
        assert!(properties.apply_override("c").is_err());
    }
}
