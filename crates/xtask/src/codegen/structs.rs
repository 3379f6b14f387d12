//! One message → one Rust module: structs, defaults, and straight-line reading and writing for every version.

use std::fmt::Write;

use super::json;
use crate::schema::{Field, Message, Struct, Type, Versions, snake_case};

/// What the code of one struct depends on: the versions it can occur in and where flexible encoding starts.
pub struct Context<'a> {
    pub message: &'a Message,
    pub owner: &'a str,
    pub versions: Versions,
}

pub fn module(message: &Message) -> Result<String, String> {
    let mut body = String::new();
    let top =
        Struct { name: message.name.clone(), versions: message.versions, fields: message.fields.clone() };
    let mut all = vec![top];
    for nested in message.all_structs() {
        if all.iter().any(|known| known.name == nested.name) {
            return Err(format!("two structs are named {}", nested.name));
        }
        all.push(nested);
    }
    for item in &all {
        let context = Context { message, owner: &item.name, versions: item.versions };
        body.push_str(&struct_code(&context, &item.fields, &all)?);
        if json::has_json(message) {
            body.push_str(&json::json_code(&context, &item.fields)?);
        }
    }
    body.push_str(&message_impl(message));
    let mut names: Vec<&str> =
        ["DecodeError", "Decoder", "Encoder", "JsonWriter", "Records", "ToJson", "Uuid", "Wire"]
            .into_iter()
            .filter(|name| uses(&body, name))
            .collect();
    names.push("Message");
    if message.kind == "request" {
        names.extend(["ApiKey", "Request"]);
    }
    names.sort_unstable();
    let bytes = if uses(&body, "Bytes") || body.contains(": Bytes") { "use bytes::Bytes;\n\n" } else { "" };
    Ok(format!("{bytes}use crate::{{{}}};\n\n{body}", names.join(", ")))
}

fn message_impl(message: &Message) -> String {
    let name = &message.name;
    let flexible =
        if message.flexible.is_empty() { "i16::MAX".to_owned() } else { message.flexible.low.to_string() };
    let mut out = format!(
        "impl Message for {name} {{ const NAME: &'static str = \"{name}\"; const MIN_VERSION: i16 = {}; \
         const MAX_VERSION: i16 = {}; const FIRST_FLEXIBLE: i16 = {flexible}; }}\n",
        message.versions.low, message.versions.high
    );
    if let Some(base) = name.strip_suffix("Request").filter(|_| message.kind == "request") {
        let _ = write!(
            out,
            "\nimpl Request for {name} {{ const API_KEY: ApiKey = ApiKey::{base}; \
             type Response = crate::messages::{base}Response; }}\n"
        );
    }
    out
}

fn struct_code(context: &Context<'_>, fields: &[Field], all: &[Struct]) -> Result<String, String> {
    let owner = context.owner;
    let mut out = String::new();
    let simple = fields.iter().all(|field| has_plain_default(context, field));
    let _ = writeln!(
        out,
        "#[derive(Clone, Debug, {}PartialEq)]\npub struct {owner} {{",
        if simple { "Default, " } else { "" }
    );
    for field in fields {
        let _ = writeln!(out, "pub {}: {},", ident(field), rust_type(context, field));
    }
    out.push_str("}\n\n");
    if !simple {
        let _ = writeln!(out, "impl Default for {owner} {{ fn default() -> Self {{ {owner} {{");
        for field in fields {
            let _ = writeln!(out, "{}: {},", ident(field), default_value(context, field)?);
        }
        out.push_str("} } }\n\n");
    }
    let read = read_code(context, fields)?;
    let write = write_code(context, fields)?;
    let name = |code: &str| if uses(code, "version") { "version" } else { "_version" };
    let target =
        if fields.is_empty() && context.flexible_condition().as_deref() == Some("false") { "_" } else { "" };
    let _ = writeln!(
        out,
        "impl Wire for {owner} {{ const MIN_SIZE: usize = {};\n\nfn read({target}r: &mut Decoder, {}: i16) -> \
         Result<Self, DecodeError> {{ {read} }}\n\nfn write(&self, {target}w: &mut Encoder, {}: i16) {{ {write} }} }}\n",
        min_size(context, fields, all)?,
        name(&read),
        name(&write)
    );
    Ok(out)
}

fn read_code(context: &Context<'_>, fields: &[Field]) -> Result<String, String> {
    let mut body = String::new();
    let tagged: Vec<&Field> = tagged_fields(fields);
    for field in fields {
        let present = field.versions.and(context.versions);
        let default = default_value(context, field)?;
        let value = if field.tag.is_some() || present.is_empty() {
            default
        } else {
            let read = read_value(context, field, present, context.flexible_of(field))?;
            match context.condition(field.versions) {
                None => format!("{read}?"),
                Some(condition) => format!("if {condition} {{ {read}? }} else {{ {default} }}"),
            }
        };
        let _ = writeln!(body, "{}: {value},", ident(field));
    }
    let mutable = if tagged.is_empty() { "" } else { "mut " };
    let tags = match (context.flexible_condition().as_deref(), tagged.is_empty()) {
        (Some("false"), _) => String::new(),
        (condition, true) => guard(condition, "r.skip_tags()?;"),
        (condition, false) => guard(condition, &read_tags(context, &tagged)?),
    };
    let code = if tags.is_empty() {
        format!("Ok({} {{ {body} }})", context.owner)
    } else {
        format!("let {mutable}value = {} {{ {body} }};\n{tags}\nOk(value)", context.owner)
    };
    Ok(with_flex(context, code))
}

fn read_tags(context: &Context<'_>, tagged: &[&Field]) -> Result<String, String> {
    let mut arms = String::new();
    let mut conditional = Vec::new();
    for field in tagged {
        let tag = field.tag.unwrap_or_default();
        let present = field.tagged.and(context.versions);
        if present.is_empty() {
            conditional.push(tag.to_string());
            continue;
        }
        let read = read_value(context, field, present, "true")?;
        let within =
            Versions { low: context.versions.low.max(context.message.flexible.low), ..context.versions };
        let guard = match condition_within(field.tagged, within) {
            Some(condition) => {
                conditional.push(tag.to_string());
                format!(" if {condition}")
            }
            None => String::new(),
        };
        let _ = writeln!(arms, "{tag}{guard} => value.{} = {read}?,", ident(field));
    }
    if !conditional.is_empty() {
        let _ = writeln!(
            arms,
            "{} => return Err(DecodeError::InvalidTag {{ tag, version }}),",
            conditional.join(" | ")
        );
    }
    Ok(format!("r.tags(&mut |r, tag| {{ match tag {{ {arms} _ => {{}} }}\nOk(()) }})?;"))
}

fn write_code(context: &Context<'_>, fields: &[Field]) -> Result<String, String> {
    let mut body = String::new();
    for field in fields {
        let present = field.versions.and(context.versions);
        let name = format!("self.{}", ident(field));
        let absent = if field.ignorable {
            String::new()
        } else {
            let is_default = is_default(context, field, &name)?;
            format!("w.require_default({is_default}, \"{}\", version);", snake_case(&field.name))
        };
        let write = if field.tag.is_some() {
            String::new()
        } else {
            write_value(context, field, present, context.flexible_of(field), &name)? + ";"
        };
        let code = if present.is_empty() {
            absent
        } else {
            match (context.condition(field.versions), write.is_empty(), absent.is_empty()) {
                (None, ..) => write,
                (Some(_), true, true) => String::new(),
                (Some(condition), false, true) => format!("if {condition} {{ {write} }}"),
                (Some(condition), true, false) => format!("if {} {{ {absent} }}", negate(&condition)),
                (Some(condition), false, false) => {
                    format!("if {condition} {{ {write} }} else {{ {absent} }}")
                }
            }
        };
        if !code.is_empty() {
            let _ = writeln!(body, "{code}");
        }
    }
    let tagged = tagged_fields(fields);
    let tags = match (context.flexible_condition().as_deref(), tagged.is_empty()) {
        (Some("false"), _) => String::new(),
        (condition, true) => guard(condition, "w.no_tags();"),
        (condition, false) => guard(condition, &write_tags(context, &tagged)?),
    };
    Ok(with_flex(context, body + &tags))
}

fn write_tags(context: &Context<'_>, tagged: &[&Field]) -> Result<String, String> {
    let mut out = String::from("let mut tags = w.tags_start();\n");
    for field in tagged {
        let present = field.tagged.and(context.versions);
        if present.is_empty() {
            continue;
        }
        let name = format!("self.{}", ident(field));
        let write = write_value(context, field, present, "true", &name)?;
        let within =
            Versions { low: context.versions.low.max(context.message.flexible.low), ..context.versions };
        let different = negate(&is_default(context, field, &name)?);
        let condition = match condition_within(field.tagged, within) {
            Some(condition) => format!("{condition} && {different}"),
            None => different,
        };
        let tag = field.tag.unwrap_or_default();
        let _ = writeln!(out, "if {condition} {{ w.tag(&mut tags, {tag}, |w| {write}); }}");
    }
    out.push_str("w.tags_end(tags);");
    Ok(out)
}

impl Context<'_> {
    /// The condition under which a field of these versions is present; `None` when always.
    pub fn condition(&self, versions: Versions) -> Option<String> {
        condition_within(versions, self.versions)
    }

    /// `None` when every version of the struct is flexible, `"false"` when none is.
    fn flexible_condition(&self) -> Option<String> {
        if self.message.flexible.and(self.versions).is_empty() {
            Some("false".into())
        } else {
            self.condition(self.message.flexible).map(|_| "flex".into())
        }
    }

    fn flexible_of(&self, field: &Field) -> &'static str {
        if field.flexible.is_some_and(Versions::is_empty) {
            return "false";
        }
        match self.flexible_condition().as_deref() {
            None => "true",
            Some("false") => "false",
            Some(_) => "flex",
        }
    }

    pub fn is_option(&self, field: &Field) -> bool {
        field.ty == Type::Records || !field.nullable.is_empty()
    }
}

fn condition_within(versions: Versions, context: Versions) -> Option<String> {
    let both = versions.and(context);
    match (both.low > context.low, both.high < context.high) {
        (false, false) => None,
        (true, false) => Some(format!("version >= {}", both.low)),
        (false, true) => Some(format!("version <= {}", both.high)),
        (true, true) => Some(format!("({}..={}).contains(&version)", both.low, both.high)),
    }
}

fn guard(condition: Option<&str>, code: &str) -> String {
    match condition {
        None => code.to_owned(),
        Some(condition) => format!("if {condition} {{ {code} }}"),
    }
}

pub fn negate(condition: &str) -> String {
    if let Some(rest) = condition.strip_prefix('!') {
        rest.to_owned()
    } else if condition.contains(" == ") {
        condition.replacen(" == ", " != ", 1)
    } else if condition.contains(" >= ") {
        condition.replacen(" >= ", " < ", 1)
    } else if condition.contains(" <= ") {
        condition.replacen(" <= ", " > ", 1)
    } else if let Some(rest) = condition.strip_suffix(".is_none()") {
        format!("{rest}.is_some()")
    } else {
        format!("!{condition}")
    }
}

fn with_flex(context: &Context<'_>, code: String) -> String {
    match context.condition(context.message.flexible) {
        Some(condition) if code.contains("flex") => format!("let flex = {condition};\n{code}"),
        _ => code,
    }
}

fn tagged_fields(fields: &[Field]) -> Vec<&Field> {
    let mut tagged: Vec<&Field> = fields.iter().filter(|field| field.tag.is_some()).collect();
    tagged.sort_by_key(|field| field.tag);
    tagged
}

/// Whether the code uses a name, other than as a field's or in a text.
pub fn uses(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let before = code[..at].chars().next_back();
        let after = code[at + name.len()..].chars().next();
        let part_of_word = before.is_some_and(is_word) || after.is_some_and(is_word);
        let field = matches!(before, Some('.' | '"'))
            || (after == Some(':') && !code[at + name.len()..].starts_with("::"));
        !part_of_word && !field
    })
}

pub fn ident(field: &Field) -> String {
    const KEYWORDS: [&str; 8] = ["type", "match", "move", "ref", "where", "use", "loop", "in"];
    let name = snake_case(&field.name);
    if KEYWORDS.contains(&name.as_str()) { name + "_" } else { name }
}

fn base_type(ty: &Type) -> String {
    match ty {
        Type::Bool => "bool".into(),
        Type::Int8 => "i8".into(),
        Type::Int16 => "i16".into(),
        Type::UInt16 => "u16".into(),
        Type::Int32 => "i32".into(),
        Type::UInt32 => "u32".into(),
        Type::Int64 => "i64".into(),
        Type::Float64 => "f64".into(),
        Type::String => "String".into(),
        Type::Bytes => "Bytes".into(),
        Type::Records => "Records".into(),
        Type::Uuid => "Uuid".into(),
        Type::Struct(name) => name.clone(),
        Type::Array(element) => format!("Vec<{}>", base_type(element)),
    }
}

fn rust_type(context: &Context<'_>, field: &Field) -> String {
    let base = base_type(&field.ty);
    if context.is_option(field) { format!("Option<{base}>") } else { base }
}

fn number(field: &Field) -> Result<i64, String> {
    let text = field.default.as_str();
    let parsed = match text.strip_prefix("0x") {
        _ if text.is_empty() => Ok(0),
        Some(hex) => i64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("field {} has a bad default '{text}'", field.name))
}

fn default_value(context: &Context<'_>, field: &Field) -> Result<String, String> {
    if field.default == "null" || field.ty == Type::Records {
        return Ok("None".into());
    }
    let base = match &field.ty {
        Type::Bool => (field.default.to_lowercase() == "true").to_string(),
        Type::Float64 => format!("{}.0", number(field)?),
        Type::Int32 if number(field)? == i64::from(i32::MIN) => "i32::MIN".into(),
        Type::Int32 if number(field)? == i64::from(i32::MAX) => "i32::MAX".into(),
        Type::Int64 if number(field)? == i64::MAX => "i64::MAX".into(),
        Type::Int8 | Type::Int16 | Type::UInt16 | Type::Int32 | Type::UInt32 | Type::Int64 => {
            number(field)?.to_string()
        }
        _ if !field.default.is_empty() => {
            return Err(format!("field {} has a default of a kind we lack", field.name));
        }
        Type::String => "String::new()".into(),
        Type::Bytes => "Bytes::new()".into(),
        Type::Uuid => "Uuid::ZERO".into(),
        Type::Struct(name) => format!("{name}::default()"),
        Type::Array(_) => "Vec::new()".into(),
        Type::Records => "None".into(),
    };
    Ok(if context.is_option(field) { format!("Some({base})") } else { base })
}

/// Whether Rust's own `Default` gives the schema's default.
fn has_plain_default(context: &Context<'_>, field: &Field) -> bool {
    if context.is_option(field) {
        return field.default == "null" || field.ty == Type::Records;
    }
    match field.ty {
        Type::Bool => field.default.to_lowercase() != "true",
        Type::Struct(_) | Type::Array(_) | Type::String | Type::Bytes | Type::Uuid => true,
        _ => number(field) == Ok(0),
    }
}

pub fn is_default(context: &Context<'_>, field: &Field, name: &str) -> Result<String, String> {
    let default = default_value(context, field)?;
    Ok(match &field.ty {
        _ if default == "None" => format!("{name}.is_none()"),
        Type::String | Type::Bytes | Type::Array(_) if context.is_option(field) => {
            format!("{name}.as_ref().is_some_and(|value| value.is_empty())")
        }
        Type::String | Type::Bytes | Type::Array(_) => format!("{name}.is_empty()"),
        Type::Bool if default == "true" => name.to_owned(),
        Type::Bool => format!("!{name}"),
        Type::Uuid => format!("{name}.is_zero()"),
        _ => format!("{name} == {default}"),
    })
}

/// A nullable field may be null in only some of the versions that have it.
fn nullable(context: &Context<'_>, field: &Field, present: Versions) -> String {
    let nullable = field.nullable.and(present);
    if nullable.is_empty() {
        "false".into()
    } else {
        condition_within(field.nullable, present).map_or("true".into(), |condition| {
            debug_assert!(context.versions.contains(nullable.low));
            condition
        })
    }
}

fn primitive(ty: &Type) -> Option<&'static str> {
    Some(match ty {
        Type::Bool => "bool",
        Type::Int8 => "i8",
        Type::Int16 => "i16",
        Type::UInt16 => "u16",
        Type::Int32 => "i32",
        Type::UInt32 => "u32",
        Type::Int64 => "i64",
        Type::Float64 => "f64",
        Type::Uuid => "uuid",
        _ => return None,
    })
}

/// The expression that reads the field, without the `?`.
fn read_value(context: &Context<'_>, field: &Field, present: Versions, flex: &str) -> Result<String, String> {
    let option = context.is_option(field);
    let null = nullable(context, field, present);
    Ok(match &field.ty {
        ty if primitive(ty).is_some() && option => return Err(format!("nullable primitive {}", field.name)),
        ty if let Some(name) = primitive(ty) => format!("r.{name}()"),
        Type::String if option => format!("r.opt_string({flex}, {null})"),
        Type::String => format!("r.string({flex})"),
        Type::Bytes if option => format!("r.opt_bytes({flex}, {null})"),
        Type::Bytes => format!("r.bytes({flex})"),
        Type::Records => format!("r.records({flex}, {null})"),
        Type::Struct(_) if option && field.tag.is_some() => "r.tagged_struct(version)".into(),
        Type::Struct(_) if option => format!("r.opt_struct({null}, version)"),
        Type::Struct(name) => format!("{name}::read(r, version)"),
        Type::Array(element) => {
            let (start, head) =
                if option { ("r.opt_", format!("{flex}, {null}")) } else { ("r.", flex.to_owned()) };
            match element.as_ref() {
                Type::Struct(_) => format!("{start}structs({head}, version)"),
                Type::String => {
                    format!("{start}array({head}, {}, |r| r.string({flex}))", element_size(element))
                }
                ty if let Some(name) = primitive(ty) => {
                    format!("{start}array({head}, {}, Decoder::{name})", element_size(element))
                }
                _ => return Err(format!("an array of {element} in {}", field.name)),
            }
        }
        _ => return Err(format!("type {} of {}", field.ty, field.name)),
    })
}

/// The expression that writes the field.
fn write_value(
    context: &Context<'_>,
    field: &Field,
    present: Versions,
    flex: &str,
    name: &str,
) -> Result<String, String> {
    let option = context.is_option(field);
    let null = nullable(context, field, present);
    Ok(match &field.ty {
        ty if let Some(method) = primitive(ty) => format!("w.{method}({name})"),
        Type::String if option => format!("w.opt_string({flex}, {null}, {name}.as_deref())"),
        Type::String => format!("w.string({flex}, &{name})"),
        Type::Bytes if option => format!("w.opt_bytes({flex}, {null}, {name}.as_ref())"),
        Type::Bytes => format!("w.bytes({flex}, &{name})"),
        Type::Records => format!("w.records({flex}, {null}, {name}.as_ref())"),
        Type::Struct(_) if option && field.tag.is_some() => {
            format!("w.tagged_struct(version, {name}.as_ref())")
        }
        Type::Struct(_) if option => format!("w.opt_struct({null}, version, {name}.as_ref())"),
        Type::Struct(_) => format!("{name}.write(w, version)"),
        Type::Array(element) => {
            let (start, head, value) = if option {
                ("w.opt_", format!("{flex}, {null}"), format!("{name}.as_deref()"))
            } else {
                ("w.", flex.to_owned(), format!("&{name}"))
            };
            match element.as_ref() {
                Type::Struct(_) => format!("{start}structs({head}, version, {value})"),
                Type::String => format!("{start}array({head}, {value}, |w, value| w.string({flex}, value))"),
                ty if let Some(method) = primitive(ty) => {
                    format!("{start}array({head}, {value}, |w, value| w.{method}(*value))")
                }
                _ => return Err(format!("an array of {element} in {}", field.name)),
            }
        }
        _ => return Err(format!("type {} of {}", field.ty, field.name)),
    })
}

fn element_size(ty: &Type) -> usize {
    match ty {
        Type::Bool | Type::Int8 => 1,
        Type::Int16 | Type::UInt16 => 2,
        Type::Int32 | Type::UInt32 => 4,
        Type::Int64 | Type::Float64 => 8,
        Type::Uuid => 16,
        _ => 1,
    }
}

/// The least size of the struct over all its versions.
fn min_size(context: &Context<'_>, fields: &[Field], all: &[Struct]) -> Result<usize, String> {
    fn in_version(message: &Message, fields: &[Field], all: &[Struct], version: i16) -> usize {
        let flexible = message.flexible.contains(version);
        let mut size = usize::from(flexible);
        for field in fields.iter().filter(|field| field.tag.is_none() && field.versions.contains(version)) {
            size += match &field.ty {
                Type::Struct(_) if field.nullable.contains(version) => 1,
                Type::Struct(name) => all
                    .iter()
                    .find(|item| item.name == *name)
                    .map_or(0, |item| in_version(message, &item.fields, all, version)),
                ty if primitive(ty).is_some() => element_size(ty),
                Type::String if !flexible || field.flexible.is_some() => 2,
                _ if flexible => 1,
                _ => 4,
            };
        }
        size
    }
    (context.versions.low..=context.versions.high)
        .map(|version| in_version(context.message, fields, all, version))
        .min()
        .ok_or_else(|| format!("{} has no versions", context.owner))
}
