//! What a schema of a CRD demands of values beyond their type: bounds, patterns, enums, alternatives.

use std::sync::Arc;

use regex::Regex;
use serde_json::{Map, Value};

use super::Schema;
use crate::golang;

/// Demands on the values of one node.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// Format, if Kubernetes knows it for the type of the node.
    pub format: Option<String>,
    /// Most and fewest characters of text.
    pub length: Range<i64>,
    /// Pattern of text.
    pub pattern: Option<Pattern>,
    /// Largest and smallest number.
    pub number: Range<f64>,
    /// Whether the largest number itself is too large.
    pub exclusive_maximum: bool,
    /// Whether the smallest number itself is too small.
    pub exclusive_minimum: bool,
    /// What a number must be a multiple of.
    pub multiple_of: Option<f64>,
    /// Most and fewest items of a list.
    pub items: Range<i64>,
    /// Whether all items of a list differ.
    pub unique_items: bool,
    /// Most and fewest fields of an object.
    pub properties: Range<i64>,
    /// The values that there are.
    pub enumeration: Vec<Value>,
    /// Schemas that must all hold.
    pub all_of: Vec<Schema>,
    /// Schemas of which one must hold.
    pub any_of: Vec<Schema>,
    /// Schemas of which exactly one must hold.
    pub one_of: Vec<Schema>,
    /// A schema that must not hold.
    pub not: Option<Arc<Schema>>,
}

/// Limits that are both optional.
#[derive(Clone, Copy, Debug, Default)]
pub struct Range<T> {
    /// Upper limit.
    pub max: Option<T>,
    /// Lower limit.
    pub min: Option<T>,
}

/// A pattern as written and as compiled.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// As the CRD has it.
    pub text: String,
    /// Compiled; `None` for a pattern that no CRD with checks could have brought in.
    pub regex: Option<Regex>,
}

impl Checks {
    /// Reads the keywords of a node; `None` when it demands nothing.
    pub(super) fn compile(map: &Map<String, Value>, node: fn(&Value) -> Schema) -> Option<Arc<Self>> {
        let whole = |key: &str| map.get(key).and_then(Value::as_i64);
        let number = |key: &str| map.get(key).and_then(Value::as_f64);
        let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
        let nodes = |key: &str| match map.get(key) {
            Some(Value::Array(list)) => list.iter().map(node).collect(),
            _ => Vec::new(),
        };
        let any = KEYWORDS.iter().any(|key| map.contains_key(*key));
        any.then(|| {
            Arc::new(Self {
                format: format(map),
                length: Range { max: whole("maxLength"), min: whole("minLength") },
                pattern: pattern(map),
                number: Range { max: number("maximum"), min: number("minimum") },
                exclusive_maximum: flag("exclusiveMaximum"),
                exclusive_minimum: flag("exclusiveMinimum"),
                multiple_of: number("multipleOf"),
                items: Range { max: whole("maxItems"), min: whole("minItems") },
                unique_items: flag("uniqueItems"),
                properties: Range { max: whole("maxProperties"), min: whole("minProperties") },
                enumeration: map.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
                all_of: nodes("allOf"),
                any_of: nodes("anyOf"),
                one_of: nodes("oneOf"),
                not: map.get("not").filter(|not| not.is_object()).map(|not| Arc::new(node(not))),
            })
        })
    }
}

const KEYWORDS: &[&str] = &[
    "allOf",
    "anyOf",
    "enum",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "uniqueItems",
];

/// The format, if a CRD may use it with that type; others are ignored.
fn format(map: &Map<String, Value>) -> Option<String> {
    let format = map.get("format")?.as_str()?;
    let int_or_string = map.get("x-kubernetes-int-or-string").is_some_and(|value| value == true);
    let known = match map.get("type").and_then(Value::as_str) {
        None if int_or_string => super::format::known(format),
        None | Some("string") => super::format::known(format),
        Some("integer") => ["int32", "int64"].contains(&format),
        Some("number") => ["float", "double"].contains(&format),
        Some(_) => false,
    };
    known.then(|| format.to_owned())
}

fn pattern(map: &Map<String, Value>) -> Option<Pattern> {
    let text = map.get("pattern")?.as_str().filter(|text| !text.is_empty())?;
    Some(Pattern { text: text.to_owned(), regex: golang::regex(text).ok() })
}
