//! Validates chart values against the schema, with a suggestion for misspelled names. Helm reports the same later and
//! in less detail.

use capstan_semantics::field;
use serde_json::Value;

use crate::doctor::finding::{Finding, Scope};

/// The chart's schema.
const SCHEMA: &str = include_str!("../../../../../charts/capstan/values.schema.json");
/// The rule of these findings.
const RULE: &str = "helm-values";

/// Errors in chart values, read from a file of that name.
pub fn check(name: &str, text: &str) -> Vec<Finding> {
    let finding = |(what, fix): (String, String)| {
        let finding = Finding::new(name, what, Scope::Objects).object(format!("file {name}"));
        Finding { rule: RULE, ..finding.fix(fix) }
    };
    wrong(text).into_iter().map(finding).collect()
}

/// Errors in values, each with a fix.
fn wrong(text: &str) -> Vec<(String, String)> {
    let values: Value = match serde_saphyr::from_str(text) {
        Ok(values) => values,
        Err(error) => return vec![(format!("this is not YAML: {error}"), "correct the file".into())],
    };
    mistakes(&values)
}

/// The same for parsed values.
pub(super) fn mistakes(values: &Value) -> Vec<(String, String)> {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap_or_default();
    let mut all = Vec::new();
    Walk { root: &schema, found: &mut all }.value(values, &schema, "");
    all
}

struct Walk<'a> {
    root: &'a Value,
    found: &'a mut Vec<(String, String)>,
}

impl Walk<'_> {
    fn value(&mut self, value: &Value, schema: &Value, path: &str) {
        let root = self.root;
        let schema = match schema["$ref"].as_str().and_then(|at| at.strip_prefix('#')) {
            Some(at) => root.pointer(at).unwrap_or(&Value::Null),
            None => schema,
        };
        if let Some(choices) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
            let fits = |choice: &Value| {
                let mut found = Vec::new();
                Walk { root, found: &mut found }.value(value, choice, path);
                found.is_empty()
            };
            if !choices.iter().any(fits) {
                self.found.push((
                    format!("{path} has a form that is not known"),
                    format!("see values.yaml of the chart for {path}"),
                ));
            }
            return;
        }
        if let Some(allowed) = schema["enum"].as_array()
            && !allowed.contains(value)
        {
            let words: Vec<String> = allowed.iter().filter(|one| !one.is_null()).map(Value::to_string).collect();
            self.found.push((format!("{path} is {value}"), format!("set {path} to one of {}", words.join(", "))));
            return;
        }
        if !fits_type(value, &schema["type"]) {
            let wanted = types(&schema["type"]).join(" or ");
            self.found.push((
                format!("{path} is {}, and should be {wanted}", kind(value)),
                format!("set {path} to a value of type {wanted}"),
            ));
            return;
        }
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    self.field(name, field, schema, path);
                }
            }
            Value::Array(list) if schema["items"].is_object() => {
                for (index, one) in list.iter().enumerate() {
                    self.value(one, &schema["items"], &field::item(path, index));
                }
            }
            _ => {}
        }
    }

    fn field(&mut self, name: &str, field: &Value, schema: &Value, path: &str) {
        let here = field::child(path, name);
        let known = schema["properties"].as_object();
        if let Some(schema) = known.and_then(|known| known.get(name)) {
            return self.value(field, schema, &here);
        }
        match &schema["additionalProperties"] {
            Value::Bool(false) => {
                let names = known.into_iter().flatten().map(|(name, _)| name.as_str());
                let fix = match nearest(name, names) {
                    Some(near) if path.is_empty() => format!("did you mean {near}?"),
                    Some(near) => format!("did you mean {path}.{near}?"),
                    None => format!("remove {here}"),
                };
                self.found.push((format!("{here} is not known to the chart"), fix));
            }
            more @ Value::Object(_) => self.value(field, more, &here),
            _ => {}
        }
    }
}

/// The types that a schema allows.
fn types(schema: &Value) -> Vec<&str> {
    match schema {
        Value::String(one) => vec![one],
        Value::Array(list) => list.iter().filter_map(Value::as_str).filter(|one| *one != "null").collect(),
        _ => Vec::new(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// In Helm, null removes a value.
fn fits_type(value: &Value, schema: &Value) -> bool {
    let allowed = types(schema);
    let fits = |one: &&str| match *one {
        "integer" => value.is_i64() || value.is_u64(),
        other => other == kind(value),
    };
    value.is_null() || allowed.is_empty() || allowed.iter().any(fits)
}

/// The nearest known name, if one is near.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.map(|one| (distance(&name.to_lowercase(), &one.to_lowercase()), one)).min()?;
    (near.0 <= name.len() / 3 + 1).then_some(near.1)
}

/// Levenshtein distance.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut left = line + 1;
        let mut above_left = row[0];
        row[0] = left;
        for (column, there) in other.iter().enumerate() {
            let above = row[column + 1];
            left = (above_left + usize::from(letter != *there)).min(above + 1).min(left + 1);
            above_left = above;
            row[column + 1] = left;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_chart_are_right() {
        let values = include_str!("../../../../../charts/capstan/values.yaml");
        assert_eq!(wrong(values), []);
        assert_eq!(wrong(""), []);
    }

    #[test]
    fn a_name_that_is_nearly_right_is_suggested() {
        let one = |what: &str, fix: &str| vec![(what.to_owned(), fix.to_owned())];
        assert_eq!(
            wrong("imagePullSecret: []"),
            one("imagePullSecret is not known to the chart", "did you mean imagePullSecrets?")
        );
        assert_eq!(wrong("image: {repo: x}")[0].0, "image.repo is not known to the chart");
        assert_eq!(wrong("image: {tags: x}"), one("image.tags is not known to the chart", "did you mean image.tag?"));
    }

    #[test]
    fn wrong_types_and_choices_are_named_with_what_would_be_right() {
        let first = |text: &str| wrong(text).into_iter().next().unwrap();
        assert_eq!(first("image: {tag: 1.8}").0, "image.tag is number, and should be string");
        assert_eq!(first("agent: {layout: both}").1, "set agent.layout to one of \"combined\", \"per-component\"");
        assert!(first("image: [").0.starts_with("this is not YAML"));
    }

    #[test]
    fn letters_are_counted() {
        for (one, other, expected) in [("", "", 0), ("a", "", 1), ("kitten", "sitting", 3), ("flaw", "lawn", 2)] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }
}
