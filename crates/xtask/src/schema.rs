//! The message schemas as facts, and the text tables they are kept in (`crates/protocol/schema/*.txt`).
//!
//! Owns the in-memory form of a message and its one-line-per-field notation, both ways; `import` fills it from
//! Apache Kafka's jars, `codegen` and the Java oracle read it. `parse(print(m)) == m`.
//!
//! ```text
//! request FooRequest key=3 versions=0-5 flexible=3+ listeners=broker,controller unstable
//!   struct Common 0+
//!     Id int32 0+
//!   Topics []Topic 0+ null=1+ default=null ignorable tag=0 tagged=3+ flexible=none entity=topicName key zerocopy
//!     Name string 0+
//! ```

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    pub low: i16,
    pub high: i16,
}

impl Versions {
    pub const NONE: Versions = Versions { low: 0, high: -1 };

    pub fn parse(text: &str) -> Result<Versions, String> {
        let number = |t: &str| t.parse::<i16>().map_err(|_| format!("bad versions '{text}'"));
        if text == "none" {
            Ok(Versions::NONE)
        } else if let Some(low) = text.strip_suffix('+') {
            Ok(Versions { low: number(low)?, high: i16::MAX })
        } else if let Some((low, high)) = text.split_once('-') {
            Ok(Versions { low: number(low)?, high: number(high)? })
        } else {
            Ok(Versions { low: number(text)?, high: number(text)? })
        }
    }

    pub fn is_empty(self) -> bool {
        self.low > self.high
    }

    pub fn and(self, other: Versions) -> Versions {
        let both = Versions { low: self.low.max(other.low), high: self.high.min(other.high) };
        if both.is_empty() { Versions::NONE } else { both }
    }

    pub fn contains(self, version: i16) -> bool {
        self.low <= version && version <= self.high
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            v if v.is_empty() => f.write_str("none"),
            Versions { low, high: i16::MAX } => write!(f, "{low}+"),
            Versions { low, high } if low == high => write!(f, "{low}"),
            Versions { low, high } => write!(f, "{low}-{high}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    Bool,
    Int8,
    Int16,
    UInt16,
    Int32,
    UInt32,
    Int64,
    Float64,
    String,
    Bytes,
    Records,
    Uuid,
    Struct(String),
    Array(Box<Type>),
}

impl Type {
    pub fn parse(text: &str) -> Type {
        match text {
            "bool" => Type::Bool,
            "int8" => Type::Int8,
            "int16" => Type::Int16,
            "uint16" => Type::UInt16,
            "int32" => Type::Int32,
            "uint32" => Type::UInt32,
            "int64" => Type::Int64,
            "float64" => Type::Float64,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "records" => Type::Records,
            "uuid" => Type::Uuid,
            _ => match text.strip_prefix("[]") {
                Some(element) => Type::Array(Box::new(Type::parse(element))),
                None => Type::Struct(text.to_owned()),
            },
        }
    }

    pub fn element(&self) -> &Type {
        match self {
            Type::Array(element) => element,
            other => other,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Bool => "bool",
            Type::Int8 => "int8",
            Type::Int16 => "int16",
            Type::UInt16 => "uint16",
            Type::Int32 => "int32",
            Type::UInt32 => "uint32",
            Type::Int64 => "int64",
            Type::Float64 => "float64",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Records => "records",
            Type::Uuid => "uuid",
            Type::Struct(name) => name,
            Type::Array(element) => return write!(f, "[]{element}"),
        })
    }
}

/// A field. `default` is empty where the type's own default (zero, empty, all-default struct) holds, `null` for null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub ty: Type,
    pub versions: Versions,
    pub nullable: Versions,
    pub tagged: Versions,
    pub tag: Option<u32>,
    pub default: String,
    pub ignorable: bool,
    pub flexible: Option<Versions>,
    pub entity: Option<String>,
    pub map_key: bool,
    pub zero_copy: bool,
    pub fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Struct {
    pub name: String,
    pub versions: Versions,
    pub fields: Vec<Field>,
}

/// A message: `kind` is the schema's `type` (request, response, header, data, metadata, coordinator-key, …).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: String,
    pub name: String,
    pub key: Option<i16>,
    pub versions: Versions,
    pub flexible: Versions,
    pub unstable: bool,
    pub listeners: Vec<String>,
    pub structs: Vec<Struct>,
    pub fields: Vec<Field>,
}

impl Message {
    /// Every struct below the top one, with its fields and the versions in which it may occur.
    pub fn all_structs(&self) -> Vec<Struct> {
        fn walk(fields: &[Field], context: Versions, out: &mut Vec<Struct>) {
            for field in fields {
                if let (Type::Struct(name), false) = (field.ty.element(), field.fields.is_empty()) {
                    let versions = field.versions.and(context);
                    out.push(Struct { name: name.clone(), versions, fields: field.fields.clone() });
                    walk(&field.fields, versions, out);
                }
            }
        }
        let mut out = Vec::new();
        walk(&self.fields, self.versions, &mut out);
        for common in &self.structs {
            let versions = common.versions.and(self.versions);
            out.push(Struct { versions, ..common.clone() });
            walk(&common.fields, versions, &mut out);
        }
        out
    }
}

pub fn print(messages: &[Message]) -> String {
    let mut out = String::new();
    for message in messages {
        out.push_str(&format!("{} {}", message.kind, message.name));
        if let Some(key) = message.key {
            out.push_str(&format!(" key={key}"));
        }
        out.push_str(&format!(" versions={} flexible={}", message.versions, message.flexible));
        if !message.listeners.is_empty() {
            out.push_str(&format!(" listeners={}", message.listeners.join(",")));
        }
        if message.unstable {
            out.push_str(" unstable");
        }
        out.push('\n');
        for common in &message.structs {
            out.push_str(&format!("  struct {} {}\n", common.name, common.versions));
            common.fields.iter().for_each(|field| print_field(field, 4, &mut out));
        }
        message.fields.iter().for_each(|field| print_field(field, 2, &mut out));
        out.push('\n');
    }
    out
}

fn print_field(field: &Field, indent: usize, out: &mut String) {
    out.push_str(&format!("{:indent$}{} {} {}", "", field.name, field.ty, field.versions));
    if !field.nullable.is_empty() {
        out.push_str(&format!(" null={}", field.nullable));
    }
    if !field.default.is_empty() {
        out.push_str(&format!(" default={}", field.default));
    }
    if field.ignorable {
        out.push_str(" ignorable");
    }
    if let Some(tag) = field.tag {
        out.push_str(&format!(" tag={tag} tagged={}", field.tagged));
    }
    if let Some(flexible) = field.flexible {
        out.push_str(&format!(" flexible={flexible}"));
    }
    if let Some(entity) = &field.entity {
        out.push_str(&format!(" entity={entity}"));
    }
    if field.map_key {
        out.push_str(" key");
    }
    if field.zero_copy {
        out.push_str(" zerocopy");
    }
    out.push('\n');
    field.fields.iter().for_each(|field| print_field(field, indent + 2, out));
}

/// Reads a table. Lines that start with `#` are comments; messages are separated by blank lines.
pub fn parse(text: &str) -> Result<Vec<Message>, String> {
    let lines: Vec<(usize, usize, Vec<&str>)> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|(n, line)| (n + 1, line.len() - line.trim_start().len(), line.split_whitespace().collect()))
        .collect();
    let mut rest = lines.as_slice();
    let mut messages = Vec::new();
    while let Some(((n, indent, words), tail)) = rest.split_first() {
        if *indent != 0 {
            return Err(format!("line {n}: a message starts in the first column"));
        }
        let mut message = parse_message(words).map_err(|e| format!("line {n}: {e}"))?;
        rest = tail;
        while let Some(((n, 2, words), tail)) = rest.split_first()
            && let ["struct", name, versions] = words.as_slice()
        {
            rest = tail;
            let versions = Versions::parse(versions).map_err(|e| format!("line {n}: {e}"))?;
            let fields = parse_fields(&mut rest, 4)?;
            message.structs.push(Struct { name: (*name).to_owned(), versions, fields });
        }
        message.fields = parse_fields(&mut rest, 2)?;
        messages.push(message);
    }
    Ok(messages)
}

type Lines<'a> = &'a [(usize, usize, Vec<&'a str>)];

fn parse_fields(rest: &mut Lines<'_>, indent: usize) -> Result<Vec<Field>, String> {
    let mut fields = Vec::new();
    while let Some(((n, found, words), tail)) = rest.split_first()
        && *found == indent
    {
        let mut field = parse_field(words).map_err(|e| format!("line {n}: {e}"))?;
        *rest = tail;
        field.fields = parse_fields(rest, indent + 2)?;
        fields.push(field);
    }
    Ok(fields)
}

fn parse_message(words: &[&str]) -> Result<Message, String> {
    let [kind, name, attributes @ ..] = words else { return Err("a message needs a kind and a name".into()) };
    let mut message = Message {
        kind: (*kind).to_owned(),
        name: (*name).to_owned(),
        key: None,
        versions: Versions::NONE,
        flexible: Versions::NONE,
        unstable: false,
        listeners: Vec::new(),
        structs: Vec::new(),
        fields: Vec::new(),
    };
    for attribute in attributes {
        match attribute.split_once('=').unwrap_or((attribute, "")) {
            ("key", key) => message.key = Some(key.parse().map_err(|_| format!("bad key '{key}'"))?),
            ("versions", versions) => message.versions = Versions::parse(versions)?,
            ("flexible", versions) => message.flexible = Versions::parse(versions)?,
            ("listeners", names) => message.listeners = names.split(',').map(str::to_owned).collect(),
            ("unstable", "") => message.unstable = true,
            _ => return Err(format!("unknown attribute '{attribute}'")),
        }
    }
    Ok(message)
}

fn parse_field(words: &[&str]) -> Result<Field, String> {
    let [name, ty, versions, attributes @ ..] = words else {
        return Err("a field needs a name, a type and versions".into());
    };
    let mut field = Field {
        name: (*name).to_owned(),
        ty: Type::parse(ty),
        versions: Versions::parse(versions)?,
        nullable: Versions::NONE,
        tagged: Versions::NONE,
        tag: None,
        default: String::new(),
        ignorable: false,
        flexible: None,
        entity: None,
        map_key: false,
        zero_copy: false,
        fields: Vec::new(),
    };
    for attribute in attributes {
        match attribute.split_once('=').unwrap_or((attribute, "")) {
            ("null", versions) => field.nullable = Versions::parse(versions)?,
            ("default", value) => field.default = value.to_owned(),
            ("ignorable", "") => field.ignorable = true,
            ("tag", tag) => field.tag = Some(tag.parse().map_err(|_| format!("bad tag '{tag}'"))?),
            ("tagged", versions) => field.tagged = Versions::parse(versions)?,
            ("flexible", versions) => field.flexible = Some(Versions::parse(versions)?),
            ("entity", name) => field.entity = Some(name.to_owned()),
            ("key", "") => field.map_key = true,
            ("zerocopy", "") => field.zero_copy = true,
            _ => return Err(format!("unknown attribute '{attribute}'")),
        }
    }
    Ok(field)
}

/// `KRaftVersionFeature` → `k_raft_version_feature`: a word starts at an upper-case letter that follows a lower-case
/// one or a digit, or that precedes a lower-case one.
pub fn snake_case(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (i, c) in chars.iter().enumerate() {
        let after_lower = i > 0 && !chars[i - 1].is_uppercase();
        let before_lower = i > 0 && chars.get(i + 1).is_some_and(|next| next.is_lowercase());
        if c.is_uppercase() && (after_lower || before_lower) {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_survives_parsing_and_printing() {
        let table = "request FooRequest key=3 versions=0-5 flexible=3+ listeners=broker,controller unstable\n  \
                     struct Common 0+\n    Id int32 0+ default=-1\n  Topics []Topic 0+ null=1+ default=null \
                     ignorable tag=0 tagged=3+\n    Name string 2-4 flexible=none entity=topicName key\n    Data \
                     bytes 3 zerocopy\n  X Common 0+\n\n";
        assert_eq!(print(&parse(table).unwrap()), table);
    }

    #[test]
    fn names_become_snake_case() {
        for (name, expected) in [
            ("TopicId", "topic_id"),
            ("KRaftVersionFeature", "k_raft_version_feature"),
            ("group", "group"),
            ("CurrentISR", "current_isr"),
            ("ISRNodes", "isr_nodes"),
        ] {
            assert_eq!(snake_case(name), expected);
        }
    }
}
