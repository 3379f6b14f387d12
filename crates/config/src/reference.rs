//! The reference page: every key of every scope in one Markdown text, made from the tables.
//!
//! `docs/configuration.md` is this text; `tests/reference_page.rs` fails when it is stale and can rewrite it.

use std::fmt::Write;

use crate::table::{
    ConfigKey, ConfigTable, DefaultValue, broker_table, client_metrics_table, group_table, topic_table,
};
use crate::topic::server_synonyms;

/// The whole page.
pub fn reference_page() -> String {
    let mut page = String::from(
        "# Configuration\n\n\
         Made from the tables in `crates/config/src/tables`; do not edit it here. Names, types, defaults and permitted\n\
         values are those of Apache Kafka 4.4.0. *Update* says how a key of a running broker changes: not at all\n\
         (read-only), for one broker, or for one broker and the whole cluster. Keys marked † are accepted and described,\n\
         but not in effect yet; the server names those you set once when it starts.\n",
    );
    section(
        &mut page,
        "Broker and controller",
        "Set in a server's `.properties` file, by `--override key=value`, or as a `KAFKA_…` variable of a container.",
        broker_table(),
        true,
    );
    section(
        &mut page,
        "Topics",
        "Set when a topic is created or altered; otherwise the broker's key in the last column decides.",
        topic_table(),
        false,
    );
    section(&mut page, "Groups", "Set with `kafka-configs --entity-type groups`.", group_table(), false);
    section(
        &mut page,
        "Client metrics",
        "Set with `kafka-configs --entity-type client-metrics`.",
        client_metrics_table(),
        false,
    );
    page
}

fn section(page: &mut String, title: &str, intro: &str, table: &ConfigTable, broker: bool) {
    let last = if broker { "Update" } else { "Broker's keys" };
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "\n## {title}\n\n{intro}\n\n| Key | Meaning | Type | Default | Permitted | {last} |\n|---|---|---|---|---|---|\n"
    );
    for key in table.keys().iter().filter(|key| !key.internal) {
        let mark = if key.effective { "" } else { " †" };
        let _ = writeln!(
            page,
            "| `{}`{mark} | {} | {} | {} | {} | {} |",
            key.name,
            escape(key.documentation),
            key.kind.to_string().to_lowercase(),
            default_cell(key),
            escape(&key.validator.describe()),
            if broker { key.update_mode.to_string() } else { synonyms_cell(key) },
        );
    }
}

fn default_cell(key: &ConfigKey) -> String {
    match key.default {
        DefaultValue::Required => "required".to_owned(),
        DefaultValue::Null => String::new(),
        DefaultValue::Text("") => "empty".to_owned(),
        DefaultValue::Text(text) => format!("`{text}`"),
    }
}

fn synonyms_cell(key: &ConfigKey) -> String {
    let mut names: Vec<&str> = server_synonyms(key.name).iter().map(|synonym| synonym.name).collect();
    names.extend(crate::group::broker_synonym(key.name));
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|")
}
