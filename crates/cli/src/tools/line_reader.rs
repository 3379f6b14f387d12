//! Splits a line into headers, key and value, as the reference's LineMessageReader does.

use std::collections::BTreeMap;

use fancy_regex::Regex;

/// Settings of the reader.
#[derive(Debug)]
pub(super) struct LineReader {
    parse_key: bool,
    key_separator: String,
    parse_headers: bool,
    headers_delimiter: String,
    headers_separator: Regex,
    headers_key_separator: String,
    ignore_error: bool,
    null_marker: Option<String>,
}

/// A record's parts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) headers: Vec<(String, Option<String>)>,
    pub(super) key: Option<String>,
    pub(super) value: Option<String>,
}

impl Line {
    /// Sizes of key and value, for messages about this record: 0 for null, else the size plus one.
    pub(super) fn token(&self) -> u64 {
        let size = |field: &Option<String>| field.as_ref().map_or(0, |text| text.len() as u64 + 1);
        size(&self.key) << 32 | size(&self.value) & 0xffff_ffff
    }
}

impl LineReader {
    pub(super) fn new(properties: &BTreeMap<String, String>) -> Result<Self, String> {
        let is_true =
            |name: &str| properties.get(name).is_some_and(|text| text.trim().eq_ignore_ascii_case("true"));
        let text =
            |name: &str, default: &str| properties.get(name).map_or(default, String::as_str).to_owned();
        let key_separator = text("key.separator", "\t");
        let headers_delimiter = text("headers.delimiter", "\t");
        let headers_separator = text("headers.separator", ",");
        let headers_key_separator = text("headers.key.separator", ":");
        let null_marker = properties.get("null.marker").cloned();
        let null = null_marker.as_deref().unwrap_or("\0");
        let distinct = [
            (&headers_delimiter, headers_separator.as_str(), "headers.delimiter and headers.separator"),
            (&headers_delimiter, &headers_key_separator, "headers.delimiter and headers.key.separator"),
            (&headers_separator, &headers_key_separator, "headers.separator and headers.key.separator"),
            (&key_separator, null, "null.marker and key.separator"),
            (&headers_separator, null, "null.marker and headers.separator"),
            (&headers_delimiter, null, "null.marker and headers.delimiter"),
            (&headers_key_separator, null, "null.marker and headers.key.separator"),
        ];
        if let Some((.., names)) = distinct.iter().find(|(one, other, _)| one.as_str() == *other) {
            return Err(format!("{names} may not be equal"));
        }
        let headers_separator = Regex::new(&headers_separator)
            .map_err(|_| format!("headers.separator '{headers_separator}' is not a regular expression"))?;
        Ok(LineReader {
            parse_key: is_true("parse.key"),
            key_separator,
            parse_headers: is_true("parse.headers"),
            headers_delimiter,
            headers_separator,
            headers_key_separator,
            ignore_error: is_true("ignore.error"),
            null_marker,
        })
    }

    pub(super) fn parse(&self, line: &str, number: usize) -> Result<Line, String> {
        let (headers, rest) =
            self.cut(self.parse_headers, line, line, &self.headers_delimiter, "headers delimiter", number)?;
        let (key, value) =
            self.cut(self.parse_key, line, rest, &self.key_separator, "key separator", number)?;
        let headers = match headers {
            Some(headers) if !self.is_null(headers) => self.split_headers(headers, number)?,
            _ => Vec::new(),
        };
        Ok(Line { headers, key: key.and_then(|key| self.nullable(key)), value: self.nullable(value) })
    }

    fn is_null(&self, text: &str) -> bool {
        self.null_marker.as_deref() == Some(text)
    }

    fn nullable(&self, text: &str) -> Option<String> {
        (!self.is_null(text)).then(|| text.to_owned())
    }

    fn cut<'a>(
        &self,
        enabled: bool,
        line: &str,
        rest: &'a str,
        separator: &str,
        name: &str,
        number: usize,
    ) -> Result<(Option<&'a str>, &'a str), String> {
        if !enabled {
            return Ok((None, rest));
        }
        match rest.split_once(separator) {
            Some((before, after)) => Ok((Some(before), after)),
            None if self.ignore_error => Ok((None, rest)),
            None => Err(format!("No {name} found on line number {number}: '{line}'")),
        }
    }

    fn split_headers(&self, headers: &str, number: usize) -> Result<Vec<(String, Option<String>)>, String> {
        let mut pairs: Vec<&str> = self.headers_separator.split(headers).filter_map(Result::ok).collect();
        // Java's split drops empty strings at the end.
        while pairs.len() > 1 && pairs.last().is_some_and(|pair| pair.is_empty()) {
            pairs.pop();
        }
        let mut split = Vec::new();
        for pair in pairs {
            match pair.split_once(&self.headers_key_separator) {
                Some((key, _)) if self.is_null(key) => {
                    let marker = self.null_marker.as_deref().unwrap_or_default();
                    return Err(format!(
                        "Header keys should not be equal to the null marker '{marker}' as they can't be null"
                    ));
                }
                Some((key, value)) => split.push((key.to_owned(), self.nullable(value))),
                None if self.ignore_error => split.push((pair.to_owned(), None)),
                None => {
                    return Err(format!(
                        "No header key separator found in pair '{pair}' on line number {number}"
                    ));
                }
            }
        }
        Ok(split)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(properties: &[(&str, &str)], line: &str) -> Result<Line, String> {
        let properties =
            properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        LineReader::new(&properties)?.parse(line, 1)
    }

    #[test]
    fn headers_key_and_value_are_cut_in_that_order() {
        let all = [("parse.key", "true"), ("parse.headers", " TRUE "), ("null.marker", "N")];
        let line = parse(&all, "a:1,b:N\tk\tv").unwrap();
        assert_eq!(line.headers, [("a".to_owned(), Some("1".to_owned())), ("b".to_owned(), None)]);
        assert_eq!((line.key.as_deref(), line.value.as_deref()), (Some("k"), Some("v")));
        assert_eq!(parse(&all, "N\tN\tN").unwrap(), Line::default());
    }

    #[test]
    fn a_missing_separator_is_an_error_unless_errors_are_ignored() {
        let error = parse(&[("parse.key", "true")], "x").unwrap_err();
        assert_eq!(error, "No key separator found on line number 1: 'x'");
        let line = parse(&[("parse.key", "true"), ("ignore.error", "true")], "x").unwrap();
        assert_eq!((line.key, line.value.as_deref()), (None, Some("x")));
        let error = parse(&[("parse.headers", "true")], "h\tv").unwrap_err();
        assert_eq!(error, "No header key separator found in pair 'h' on line number 1");
        let error = parse(&[("key.separator", "-"), ("null.marker", "-")], "").unwrap_err();
        assert_eq!(error, "null.marker and key.separator may not be equal");
    }
}
