//! Value validations of CRD schemas: bounds, patterns, enums, logical junctors.

use std::sync::Arc;

use regex::Regex;
use serde_json::{Map, Value};

use super::Schema;
use crate::golang;

/// Value validations of a schema node.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// Format, if supported for the type of the node.
    pub format: Option<String>,
    /// `maxLength` and `minLength`.
    pub length: Range<i64>,
    /// `pattern`.
    pub pattern: Option<Pattern>,
    /// `maximum` and `minimum`.
    pub number: Range<f64>,
    /// `exclusiveMaximum`.
    pub exclusive_maximum: bool,
    /// `exclusiveMinimum`.
    pub exclusive_minimum: bool,
    /// `multipleOf`.
    pub multiple_of: Option<f64>,
    /// `maxItems` and `minItems`.
    pub items: Range<i64>,
    /// `uniqueItems`.
    pub unique_items: bool,
    /// `maxProperties` and `minProperties`.
    pub properties: Range<i64>,
    /// `enum`.
    pub enumeration: Vec<Value>,
    /// `allOf`.
    pub all_of: Vec<Schema>,
    /// `anyOf`.
    pub any_of: Vec<Schema>,
    /// `oneOf`.
    pub one_of: Vec<Schema>,
    /// `not`.
    pub not: Option<Arc<Schema>>,
}

/// Optional bounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Range<T> {
    /// Upper bound.
    pub max: Option<T>,
    /// Lower bound.
    pub min: Option<T>,
}

/// A pattern, with its compiled form.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// As in the CRD.
    pub text: String,
    /// Compiled; `None` if invalid, which CRD validation rules out.
    pub regex: Option<Regex>,
}

impl Checks {
    /// Reads the keywords of a node; `None` if there are no value validations.
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

/// The format, if supported for that type; others are ignored.
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
