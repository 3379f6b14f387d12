//! The generated lists: module trees, the table of api keys, record enums, and the `for_each_*` macros.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Files, HEADER};
use crate::schema::{Message, snake_case};

pub fn modules(messages: &[&Message], records: &BTreeMap<&str, Vec<&Message>>, files: &mut Files) {
    files.insert(
        "mod.rs".into(),
        format!("{HEADER}pub mod api_keys;\nmod for_each;\npub mod messages;\npub mod records;\n"),
    );
    files.insert("messages/mod.rs".into(), HEADER.to_owned() + &module_list(messages));
    let mut root = String::from(HEADER);
    for (table, messages) in records {
        let _ = writeln!(root, "pub mod {table};");
        let mut text = HEADER.to_owned();
        text.push_str(&module_list(messages));
        text.push_str(&record_enums(table, messages));
        files.insert(format!("records/{table}/mod.rs"), text);
    }
    files.insert("records/mod.rs".into(), root);
}

fn module_list(messages: &[&Message]) -> String {
    let mut names: Vec<&str> = messages.iter().map(|message| message.name.as_str()).collect();
    names.sort_unstable();
    let mut out = String::new();
    for name in &names {
        let _ = writeln!(out, "pub mod {};", snake_case(name));
    }
    out.push('\n');
    for name in &names {
        let _ = writeln!(out, "pub use {}::{name};", snake_case(name));
    }
    out
}

fn record_enums(table: &str, messages: &[&Message]) -> String {
    let of_kind = |kind: &str| {
        let mut found: Vec<&&Message> = messages.iter().filter(|message| message.kind == kind).collect();
        found.sort_by_key(|message| message.key);
        found.iter().map(|m| format!("{} = {},", m.name, m.key.unwrap_or_default())).collect::<String>()
    };
    match table {
        "metadata" => {
            format!("\ncrate::records::framed_records! {{ MetadataRecord {{ {} }} }}\n", of_kind("metadata"))
        }
        "storage" => format!(
            "\ncrate::records::framed_records! {{ RemoteLogMetadataRecord {{ {} }} }}\n",
            of_kind("metadata")
        ),
        "group" | "transaction" | "share" => format!(
            "\ncrate::records::coordinator_records! {{ RecordKey {{ {} }} RecordValue {{ {} }} }}\n",
            of_kind("coordinator-key"),
            of_kind("coordinator-value")
        ),
        _ => String::new(),
    }
}

pub fn api_keys(all: &[&Message], files: &mut Files) {
    let mut requests: Vec<&&Message> = all.iter().filter(|message| message.kind == "request").collect();
    requests.sort_by_key(|message| message.key);
    let mut out = String::from(HEADER);
    out.push_str("use crate::api_key::ApiInfo;\n\n");
    out.push_str("/// Every API of the protocol; removed ones have no versions.\n");
    out.push_str("#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]\n#[repr(i16)]\npub enum ApiKey {\n");
    for request in &requests {
        let _ = writeln!(
            out,
            "{} = {},",
            request.name.trim_end_matches("Request"),
            request.key.unwrap_or_default()
        );
    }
    let _ = writeln!(out, "}}\n\npub(crate) static TABLE: [ApiInfo; {}] = [", requests.len());
    for request in &requests {
        let name = request.name.trim_end_matches("Request");
        let response = all.iter().find(|m| m.kind == "response" && m.key == request.key);
        let flexible = |m: &Message| if m.flexible.is_empty() { i16::MAX } else { m.flexible.low };
        let has = |listener: &str| request.listeners.iter().any(|l| l == listener);
        let _ = writeln!(
            out,
            "ApiInfo {{ key: ApiKey::{name}, name: \"{name}\", min: {}, max: {}, request_flexible: {}, \
             response_flexible: {}, unstable: {}, broker: {}, controller: {} }},",
            request.versions.low,
            request.versions.high,
            flexible(request),
            response.map_or(i16::MAX, |m| flexible(m)),
            request.unstable,
            has("broker"),
            has("controller"),
        );
    }
    out.push_str("];\n");
    files.insert("api_keys.rs".into(), out);
}

/// Macros that hand a callback macro all types at once, for dispatch tables in tests, fuzzers and tools.
pub fn for_each(messages: &[&Message], records: &BTreeMap<&str, Vec<&Message>>, files: &mut Files) {
    let mut out = String::from(HEADER);
    let of_kind = |kind: &str| -> Vec<String> {
        let found = messages.iter().filter(|message| kind.is_empty() || message.kind == kind);
        found.map(|message| format!("$crate::messages::{}", message.name)).collect()
    };
    let records: Vec<String> = records
        .iter()
        .flat_map(|(table, list)| list.iter().map(move |m| format!("$crate::records::{table}::{}", m.name)))
        .collect();
    let mut shown: Vec<String> = records.clone();
    shown.extend(of_kind("data"));
    let mut all = of_kind("");
    all.extend(records.iter().cloned());
    for (name, doc, types) in [
        ("for_each_message", "Calls `$each! { types… }` with every message and record.", all),
        ("for_each_request", "Calls `$each! { types… }` with every request.", of_kind("request")),
        ("for_each_response", "Calls `$each! { types… }` with every response.", of_kind("response")),
        (
            "for_each_to_json",
            "Calls `$each! { types… }` with every message that shows itself as JSON.",
            shown,
        ),
        ("for_each_record", "Calls `$each! { types… }` with every record.", records),
    ] {
        let _ = writeln!(
            out,
            "/// {doc}\n#[macro_export]\nmacro_rules! {name} {{\n($each:ident) => {{\n$each! {{\n{}\n}}\n}};\n}}\n",
            types.join(",\n")
        );
    }
    files.insert("for_each.rs".into(), out);
}
