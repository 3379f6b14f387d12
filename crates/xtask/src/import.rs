//! `cargo xtask schema import JAR…`: reads the message schemas inside Apache Kafka's jars into our tables.
//!
//! Facts only (names, versions, types, defaults, tags); descriptions and comments are dropped.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Result;
use crate::schema::{self, Field, Message, Struct, Type, Versions};

/// Names of the tables; each becomes `crates/protocol/schema/<name>.txt`.
pub const TABLES: [&str; 9] =
    ["requests", "responses", "data", "metadata", "group", "transaction", "share", "raft", "storage"];

pub fn schema_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/schema")
}

pub fn run(jars: &[&str]) -> Result<()> {
    let mut tables: BTreeMap<&str, Vec<Message>> = BTreeMap::new();
    for jar in jars {
        let stem = Path::new(jar).file_name().and_then(|name| name.to_str()).unwrap_or(jar);
        let mut archive = zip::ZipArchive::new(File::open(jar).map_err(|e| format!("{jar}: {e}"))?)?;
        for index in 0..archive.len() {
            let mut entry = archive.by_index(index)?;
            let path = entry.name().to_owned();
            if !path.ends_with(".json") || !(path.contains("message/") || path.contains("metadata/")) {
                continue;
            }
            let mut text = String::new();
            entry.read_to_string(&mut text)?;
            let message = message(&parse_json(&text)?).map_err(|e| format!("{jar}: {path}: {e}"))?;
            tables.entry(table_of(stem, &message)).or_default().push(message);
        }
    }
    fs::create_dir_all(schema_dir())?;
    for name in TABLES {
        let mut messages =
            tables.remove(name).ok_or_else(|| format!("no messages for table '{name}'; missing jar?"))?;
        messages.sort_by(|a, b| (a.key, &a.name).cmp(&(b.key, &b.name)));
        let text = format!(
            "# Message schemas of Apache Kafka 4.4.0, one line per field. Written by `cargo xtask schema import`.\n\n{}",
            schema::print(&messages)
        );
        fs::write(schema_dir().join(format!("{name}.txt")), text.trim_end().to_owned() + "\n")?;
        println!("{name}: {} messages", messages.len());
    }
    Ok(())
}

/// Reads all tables; the pairs are (table name, its messages).
pub fn read_tables() -> Result<Vec<(&'static str, Vec<Message>)>> {
    TABLES
        .iter()
        .map(|name| {
            let path = schema_dir().join(format!("{name}.txt"));
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            Ok((*name, schema::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?))
        })
        .collect()
}

fn table_of(jar: &str, message: &Message) -> &'static str {
    const CONTROL: [&str; 7] = [
        "ControlRecordTypeSchema",
        "EndTxnMarker",
        "KRaftVersionRecord",
        "LeaderChangeMessage",
        "SnapshotFooterRecord",
        "SnapshotHeaderRecord",
        "VotersRecord",
    ];
    match (message.kind.as_str(), message.name.as_str()) {
        ("request", _) => "requests",
        ("response", _) => "responses",
        (_, name) if CONTROL.contains(&name) || jar.starts_with("kafka-raft") => "raft",
        (_, "AbortedTxn") => "storage",
        _ if jar.starts_with("kafka-clients") => "data",
        _ if jar.starts_with("kafka-metadata") => "metadata",
        _ if jar.starts_with("kafka-group-coordinator") => "group",
        _ if jar.starts_with("kafka-transaction-coordinator") => "transaction",
        _ if jar.starts_with("kafka-share-coordinator") => "share",
        _ => "storage",
    }
}

/// The schemas are JSON with whole-line `//` comments.
fn parse_json(text: &str) -> Result<Value> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    Ok(serde_json::from_str(&lines.join("\n"))?)
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value.get(key).and_then(Value::as_str).ok_or_else(|| format!("'{key}' is missing").into())
}

fn versions(value: &Value, key: &str) -> Result<Option<Versions>> {
    match value.get(key) {
        Some(versions) => Ok(Some(Versions::parse(versions.as_str().unwrap_or_default())?)),
        None => Ok(None),
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn message(json: &Value) -> Result<Message> {
    let valid = versions(json, "validVersions")?.ok_or("'validVersions' is missing")?;
    Ok(Message {
        kind: text(json, "type")?.to_owned(),
        name: text(json, "name")?.to_owned(),
        key: json.get("apiKey").and_then(Value::as_i64).map(i16::try_from).transpose()?,
        versions: valid,
        flexible: versions(json, "flexibleVersions")?.unwrap_or(Versions::NONE),
        unstable: json.get("latestVersionUnstable").and_then(Value::as_bool).unwrap_or(false),
        listeners: list(json, "listeners").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        structs: list(json, "commonStructs")
            .iter()
            .map(|common| {
                Ok(Struct {
                    name: text(common, "name")?.to_owned(),
                    versions: versions(common, "versions")?.ok_or("a common struct lacks 'versions'")?,
                    fields: fields(common)?,
                })
            })
            .collect::<Result<_>>()?,
        fields: fields(json)?,
    })
}

fn fields(json: &Value) -> Result<Vec<Field>> {
    list(json, "fields").iter().map(field).collect()
}

fn field(json: &Value) -> Result<Field> {
    let name = text(json, "name")?;
    let tagged = versions(json, "taggedVersions")?.unwrap_or(Versions::NONE);
    let flag = |key: &str| json.get(key).and_then(Value::as_bool).unwrap_or(false);
    Ok(Field {
        name: name.to_owned(),
        ty: Type::parse(text(json, "type")?),
        // A field that names only its tagged versions exists in exactly those.
        versions: versions(json, "versions")?.unwrap_or(tagged),
        nullable: versions(json, "nullableVersions")?.unwrap_or(Versions::NONE),
        tagged,
        tag: json.get("tag").and_then(Value::as_u64).map(u32::try_from).transpose()?,
        // A JSON null is no default at all; the null default is the string "null".
        default: match json.get("default") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(default)) => default.clone(),
            Some(other) => other.to_string(),
        },
        ignorable: flag("ignorable"),
        flexible: versions(json, "flexibleVersions")?,
        entity: json.get("entityType").and_then(Value::as_str).map(str::to_owned),
        map_key: flag("mapKey"),
        zero_copy: flag("zeroCopy"),
        fields: fields(json)?,
    })
}
