//! How a record shows itself as JSON: one `ToJson` for each of its structs.

use std::fmt::Write;

use super::structs::{Context, ident, is_default, negate};
use crate::schema::{Field, Message, Type};

/// Requests and responses have none: only tools that look into logs print JSON.
pub fn has_json(message: &Message) -> bool {
    !matches!(message.kind.as_str(), "request" | "response" | "header")
}

pub fn json_code(context: &Context<'_>, fields: &[Field]) -> Result<String, String> {
    let mut body = String::from("json.begin_object();\n");
    for field in fields {
        if field.versions.and(context.versions).is_empty() {
            continue;
        }
        let name = format!("self.{}", ident(field));
        let mut chars = field.name.chars();
        let key: String =
            chars.next().map_or(String::new(), |first| first.to_lowercase().chain(chars).collect());
        let value = if context.is_option(field) {
            let some = value_code(&field.ty, "value", true)?;
            format!("match &{name} {{ Some(value) => {some}, None => json.null(), }}")
        } else {
            value_code(&field.ty, &name, false)?
        };
        let mut conditions: Vec<String> = context.condition(field.versions).into_iter().collect();
        if field.tag.is_some() {
            conditions.push(negate(&is_default(context, field, &name)?));
        }
        let code = format!("json.field(\"{key}\");\n{value};");
        if conditions.is_empty() {
            let _ = writeln!(body, "{code}");
        } else {
            let _ = writeln!(body, "if {} {{ {code} }}", conditions.join(" && "));
        }
    }
    body.push_str("json.end_object();");
    let owner = context.owner;
    let version = if super::structs::uses(&body, "version") { "version" } else { "_version" };
    Ok(format!(
        "impl ToJson for {owner} {{ fn write_json(&self, json: &mut JsonWriter, {version}: i16) {{ {body} }} }}\n\n"
    ))
}

/// `name` is a place, or a reference when `by_reference`.
fn value_code(ty: &Type, name: &str, by_reference: bool) -> Result<String, String> {
    let reference = if by_reference { name.to_owned() } else { format!("&{name}") };
    let copy = if by_reference { format!("*{name}") } else { name.to_owned() };
    Ok(match ty {
        Type::Bool => format!("json.bool({copy})"),
        Type::Float64 => format!("json.double({copy})"),
        Type::String => format!("json.string({reference})"),
        Type::Bytes => format!("json.bytes({reference})"),
        Type::Uuid => format!("json.uuid({copy})"),
        Type::Struct(_) => format!("{name}.write_json(json, version)"),
        Type::Array(element) => {
            format!("json.array({reference}, |json, value| {})", value_code(element, "value", true)?)
        }
        Type::Records => return Err("records have no JSON".into()),
        _ => format!("json.number({copy})"),
    })
}
