//! The options found on one command line, with typed access.
//!
//! Values keep their order and stay text until they are asked for. Names of options here are those of the declaring
//! tool: asking for an undeclared one is a bug and panics.

use std::collections::BTreeMap;

use super::{OptionError, OptionParser, Spec};

/// What a command line said.
#[derive(Clone, Debug)]
pub struct OptionSet {
    parser: OptionParser,
    found: BTreeMap<&'static str, Vec<String>>,
    /// Arguments that belong to no option.
    pub operands: Vec<String>,
}

impl OptionSet {
    pub(super) fn new(parser: OptionParser) -> Self {
        OptionSet { parser, found: BTreeMap::new(), operands: Vec::new() }
    }

    pub(super) fn add(&mut self, spec: &Spec, value: Option<&str>) {
        let Some(key) = spec.names.first().copied() else { return };
        let values = self.found.entry(key).or_default();
        match (value, spec.separator) {
            (Some(value), Some(separator)) => values.extend(value.split(separator).map(str::to_owned)),
            (Some(value), None) => values.push(value.to_owned()),
            (None, _) => {}
        }
    }

    pub(super) fn check_availability(&self) -> Result<(), OptionError> {
        let help = self.parser.specs().iter().any(|spec| spec.for_help && self.found.contains_key(key(spec)));
        if help {
            return Ok(());
        }
        for spec in self.parser.specs() {
            let given = self.found.contains_key(key(spec));
            if given
                && !spec.available_if.is_empty()
                && !spec.available_if.iter().any(|other| self.has(other))
            {
                return Err(OptionError::Unavailable(spec.joined()));
            }
        }
        Ok(())
    }

    pub fn has(&self, name: &str) -> bool {
        self.found.contains_key(key(self.parser.spec(name)))
    }

    pub fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.has(name))
    }

    /// Whether the option was given together with a value.
    pub fn has_argument(&self, name: &str) -> bool {
        self.found.get(key(self.parser.spec(name))).is_some_and(|values| !values.is_empty())
    }

    /// All values, or the default when the option was not given.
    pub fn values_of(&self, name: &str) -> Result<Vec<String>, OptionError> {
        let spec = self.parser.spec(name);
        let values = match self.found.get(key(spec)) {
            Some(values) if !values.is_empty() => values.clone(),
            _ => spec.default.iter().cloned().collect(),
        };
        match values.iter().find(|value| !spec.kind.accepts(value)) {
            Some(value) => Err(OptionError::Unconvertible { argument: value.clone(), option: spec.joined() }),
            None => Ok(values),
        }
    }

    /// The one value, or the default.
    pub fn value_of(&self, name: &str) -> Result<Option<String>, OptionError> {
        let mut values = self.values_of(name)?;
        match values.len() {
            0 => Ok(None),
            1 => Ok(values.pop()),
            _ => Err(OptionError::Multiple(self.parser.spec(name).joined())),
        }
    }

    /// The value of an option that was given, without its default.
    pub fn given(&self, name: &str) -> Result<Option<String>, OptionError> {
        if self.has(name) { self.value_of(name) } else { Ok(None) }
    }

    pub fn integer(&self, name: &str) -> Result<Option<i32>, OptionError> {
        self.number(name)
    }

    pub fn long(&self, name: &str) -> Result<Option<i64>, OptionError> {
        self.number(name)
    }

    pub fn longs(&self, name: &str) -> Result<Vec<i64>, OptionError> {
        let spec = self.parser.spec(name);
        let convert = |argument: String| {
            argument.parse().map_err(|_| OptionError::Unconvertible { argument, option: spec.joined() })
        };
        self.values_of(name)?.into_iter().map(convert).collect()
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, OptionError> {
        let Some(argument) = self.value_of(name)? else { return Ok(None) };
        match argument.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(OptionError::Unconvertible { argument, option: self.parser.spec(name).joined() }),
        }
    }
}

fn key(spec: &Spec) -> &'static str {
    spec.names.first().copied().unwrap_or_default()
}
