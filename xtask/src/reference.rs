//! Reference docs: one page per kind, every field with type, default and validation rules, from the schema of the CRD.

use std::fmt::Write as _;

use capstan_api::crd::Entry;
use capstan_api::ignored;
use serde_json::Value;

use crate::Generated;

const FOLDER: &str = "docs/reference";

/// All pages.
pub(crate) fn pages() -> Vec<Generated> {
    let mut pages: Vec<Generated> = capstan_api::kinds().map(|kind| (path(kind), page(kind))).collect();
    pages.push((format!("{FOLDER}/README.md").into(), index()));
    pages
}

fn file_name(kind: &Entry) -> String {
    format!("{}.md", kind.kind.to_lowercase())
}

fn path(kind: &Entry) -> std::path::PathBuf {
    format!("{FOLDER}/{}", file_name(kind)).into()
}

fn index() -> String {
    let mut text = String::from(
        "# API reference\n\nGenerated from the types by `cargo xtask gen`. One page per kind.\n\n\
         | Kind | API version | Fields | What it is |\n|---|---|---|---|\n",
    );
    for kind in capstan_api::kinds() {
        let schema = kind.described();
        let summary = first_line(&schema);
        let mut rows = Vec::new();
        collect(&schema, String::new(), &mut rows);
        let _ = writeln!(
            text,
            "| [{}]({}) | {}/{} | {} | {summary} |",
            kind.kind,
            file_name(kind),
            kind.group,
            kind.version,
            rows.len()
        );
    }
    text += "\n## Accepted, without effect yet\n\n\
             These fields are stored and validated, but nothing acts on them so far. An object that sets one says so in \
             its `IgnoredFields` condition.\n\n| Kind | Field and everything below it | Why, where it stays so |\n|---|---|---|\n";
    for row in ignored::IGNORED {
        let _ = writeln!(text, "| {} | `{}` | {} |", row.kind, row.path, row.reason);
    }
    text
}

fn page(kind: &Entry) -> String {
    let schema = kind.described();
    let crd = kind.generate();
    let mut text = format!("# {}\n\n{}\n\n", kind.kind, first_line(&schema));
    let _ = writeln!(text, "- API version: `{}/{}`", kind.group, kind.version);
    let _ = writeln!(text, "- Scope: {}", crd.spec.scope);
    let _ = writeln!(text, "- Resource: `{}`{}", kind.plural, short_names(kind));
    for rule in rules(&schema) {
        let _ = writeln!(text, "- Rule: {rule}");
    }
    text += "\n**Bold** fields are required where their parent is set. Types in *italics* are Kubernetes' own: \
             `kubectl explain` shows their fields.\n\n| Field | Type | Default | Rules | Meaning |\n|---|---|---|---|---|\n";
    let mut rows = Vec::new();
    collect(&schema, String::new(), &mut rows);
    for row in rows {
        text += &row;
    }
    text
}

fn short_names(kind: &Entry) -> String {
    if kind.short_names.is_empty() { String::new() } else { format!(" (short: `{}`)", kind.short_names.join("`, `")) }
}

fn first_line(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.split("\n\n").next().unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}

/// One table row per field below `schema`, depth first; Kubernetes' own types are not expanded.
fn collect(schema: &Value, path: String, rows: &mut Vec<String>) {
    let Some(properties) = schema["properties"].as_object() else { return };
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in properties {
        if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            continue;
        }
        let here = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let shown = if required.contains(&name.as_str()) { format!("**`{here}`**") } else { format!("`{here}`") };
        let default = field.get("default").map(|value| format!("`{value}`")).unwrap_or_default();
        let rules = rules(field).join("; ");
        let row = format!("| {shown} | {} | {default} | {rules} | {} |\n", type_of(field), first_line(field));
        rows.push(row);
        let (inner, suffix) = innermost(field);
        if kubernetes_type(inner).is_none() {
            collect(inner, here + &suffix, rows);
        }
    }
}

/// The innermost element of nested lists and maps, and its path suffix.
fn innermost(field: &Value) -> (&Value, String) {
    let (mut inner, mut suffix) = (field, String::new());
    while kubernetes_type(inner).is_none() {
        if inner["items"].is_object() {
            inner = &inner["items"];
            suffix += "[]";
        } else if inner["additionalProperties"].is_object() {
            inner = &inner["additionalProperties"];
            suffix += "{}";
        } else {
            break;
        }
    }
    (inner, suffix)
}

fn kubernetes_type(field: &Value) -> Option<&str> {
    field["x-type"].as_str().and_then(|name| name.rsplit('.').next())
}

fn type_of(field: &Value) -> String {
    if let Some(name) = kubernetes_type(field) {
        return format!("*{name}*");
    }
    if field["items"].is_object() {
        return format!("list of {}", type_of(&field["items"]));
    }
    if field["additionalProperties"].is_object() {
        return format!("map to {}", type_of(&field["additionalProperties"]));
    }
    match field["type"].as_str() {
        Some(name) => name.to_owned(),
        None if field["x-kubernetes-int-or-string"] == true => "integer or string".to_owned(),
        None => "any".to_owned(),
    }
}

fn rules(field: &Value) -> Vec<String> {
    let mut rules = Vec::new();
    if let Some(values) = field["enum"].as_array() {
        let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
        rules.push(format!("one of {}", values.join(", ")));
    }
    let bounds = [
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("minLength", "min length"),
        ("maxLength", "max length"),
        ("minItems", "min items"),
        ("maxItems", "max items"),
        ("format", "format"),
    ];
    for (key, words) in bounds {
        if let Some(bound) = field.get(key).filter(|_| kubernetes_type(field).is_none()) {
            rules.push(format!("{words} {}", bound.to_string().trim_matches('"')));
        }
    }
    if let Some(pattern) = field["pattern"].as_str().filter(|_| kubernetes_type(field).is_none()) {
        rules.push(format!("matches `{}`", pattern.replace('|', "\\|")));
    }
    for rule in field["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let text = rule["message"].as_str().or(rule["rule"].as_str()).unwrap_or_default();
        rules.push(text.replace('|', "\\|").replace('\n', " "));
    }
    rules
}
