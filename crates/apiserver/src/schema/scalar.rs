//! Validation of scalars: type, bounds, pattern, format, enum.

use std::cmp::Ordering;

use serde_json::Value;

use super::checks::Checks;
use super::validate::{Fault, Kind};
use super::{Schema, Type, format};
use crate::golang;

pub(super) fn string_faults(checks: Option<&Checks>, text: &str, path: &str) -> Vec<Fault> {
    let Some(checks) = checks else { return Vec::new() };
    let mut faults = Vec::new();
    let invalid = |message: String| Fault::new(path, Kind::Invalid(text.into()), message);
    let length = text.chars().count() as i64;
    let too_long = checks.length.max.filter(|max| length > *max);
    let too_short = checks.length.min.filter(|min| length < *min);
    let mismatch = checks.pattern.as_ref().filter(|pattern| !pattern.regex.as_ref().is_some_and(|r| r.is_match(text)));
    // Only the first of the three is reported.
    if let Some(max) = too_long {
        let message = format!("{path} in body should be at most {max} chars long");
        faults.push(Fault::new(path, Kind::TooLong(max), message));
    } else if let Some(min) = too_short {
        faults.push(invalid(format!("{path} in body should be at least {min} chars long")));
    } else if let Some(pattern) = mismatch {
        faults.push(invalid(format!("{path} in body should match '{}'", pattern.text)));
    }
    if let Some(format) = checks.format.as_deref().filter(|format| !format::holds(format, text)) {
        let message = format!("{path} in body must be of type {format}: {}", golang::quote(text));
        faults.push(Fault::new(path, Kind::Type(text.into()), message));
    }
    faults
}

pub(super) fn number_faults(schema: &Schema, checks: Option<&Checks>, value: &Value, path: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let format = checks.and_then(|checks| checks.format.as_deref()).unwrap_or_default();
    let number = value.as_f64().unwrap_or(f64::NAN);
    if let Some(message) = out_of_range(schema.type_, format, value, "Checked", path) {
        faults.push(Fault { name: None, kind: Kind::Required, message });
    }
    let Some(checks) = checks else { return faults };
    let limits = [
        checks.multiple_of.map(|factor| (Bound::Multiple, "MultipleOf", factor, false)),
        checks.number.min.map(|min| (Bound::Min, "Minimum boundary", min, checks.exclusive_minimum)),
        checks.number.max.map(|max| (Bound::Max, "Maximum boundary", max, checks.exclusive_maximum)),
    ];
    for (bound, name, limit, exclusive) in limits.into_iter().flatten() {
        let mut limit = Limit { bound, limit, exclusive, number, whole: value.as_i64(), path };
        // A bound that the type cannot represent is reported each time, and compared as any number.
        if let Some(message) = out_of_range(schema.type_, format, &limit.limit.into(), name, path) {
            faults.push(Fault { name: None, kind: Kind::Required, message });
            limit.whole = None;
        }
        faults.extend(limit.fault());
    }
    faults
}

#[derive(Clone, Copy)]
enum Bound {
    Multiple,
    Min,
    Max,
}

/// A bound and the number to compare; `whole` if both are compared as integers.
struct Limit<'a> {
    bound: Bound,
    limit: f64,
    exclusive: bool,
    number: f64,
    whole: Option<i64>,
    path: &'a str,
}

impl Limit<'_> {
    fn fault(&self) -> Option<Fault> {
        let (path, shown) = (self.path, self.shown());
        let or_equal = if self.exclusive { "" } else { "or equal to " };
        let broken = |order: Ordering| self.order() == order || self.exclusive && self.order().is_eq();
        let text = match self.bound {
            // Go divides by an integer here, and there is none below 1.
            Bound::Multiple if self.whole.is_some() && self.limit < 1.0 => {
                let text = format!("factor MultipleOf declared for {path} must be positive: {shown}");
                return Some(Fault::new(path, Kind::Invalid((self.limit as i64).into()), text));
            }
            Bound::Multiple if !self.divides() => format!("{path} in body should be a multiple of {shown}"),
            Bound::Min if broken(Ordering::Less) => {
                format!("{path} in body should be greater than {or_equal}{shown}")
            }
            Bound::Max if broken(Ordering::Greater) => {
                format!("{path} in body should be less than {or_equal}{shown}")
            }
            _ => return None,
        };
        let value = self.whole.map_or_else(|| self.number.into(), Value::from);
        Some(Fault::new(path, Kind::Invalid(value), text))
    }

    fn shown(&self) -> String {
        if self.whole.is_some() { (self.limit as i64).to_string() } else { golang::float(self.limit) }
    }

    fn order(&self) -> Ordering {
        match self.whole {
            Some(whole) => whole.cmp(&(self.limit as i64)),
            None => self.number.partial_cmp(&self.limit).unwrap_or(Ordering::Equal),
        }
    }

    fn divides(&self) -> bool {
        match self.whole {
            Some(whole) => whole % (self.limit as i64) == 0,
            None if self.limit < 1.0 => is_whole(1.0 / self.limit * self.number),
            None => is_whole(self.number / self.limit),
        }
    }
}

/// The error for a number that its format cannot represent.
fn out_of_range(type_: Type, format: &str, value: &Value, what: &str, path: &str) -> Option<String> {
    let integer = type_ == Type::Integer;
    let whole = value.as_i64().or_else(|| value.as_f64().filter(|n| is_whole(*n)).map(|n| n as i64));
    let fits = match (type_, format) {
        (Type::Integer, "int32") => whole.is_some_and(|whole| i32::try_from(whole).is_ok()),
        (Type::Integer, _) => whole.is_some(),
        (Type::Number, "float") => value.as_f64().is_some_and(|number| number.abs() <= f64::from(f32::MAX)),
        _ => true,
    };
    let name = if integer { "integer" } else { "number" };
    (!fits).then(|| match format {
        "" => format!("{what} value must be of type {name} (default format) in {path}"),
        format => format!("{what} value must be of type {name} with format {format} in {path}"),
    })
}

/// The allowed types of a node, as kube-apiserver lists them.
fn type_names(type_: Type) -> &'static [&'static str] {
    match type_ {
        Type::Any => &[],
        Type::Object => &["object"],
        Type::Array => &["array"],
        Type::String => &["string"],
        Type::Integer => &["integer"],
        Type::Number => &["number"],
        Type::Boolean => &["boolean"],
        Type::IntOrString => &["integer", "string"],
    }
}

/// The JSON type of a value; a number with a fraction or exponent is a `number`.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

pub(super) fn type_fault(schema: &Schema, checks: Option<&Checks>, value: &Value, path: &str) -> Option<Fault> {
    let wanted = type_names(schema.type_);
    let actual = type_of(value);
    let fault = |wanted: &str, actual: &str| {
        let message = format!("{path} in body must be of type {wanted}: {}", golang::quote(actual));
        Some(Fault::new(path, Kind::Type(actual.into()), message))
    };
    if value.is_null() {
        return if wanted.is_empty() || schema.nullable { None } else { fault(&wanted.join(","), actual) };
    }
    let numeric = wanted.contains(&"integer") || wanted.contains(&"number");
    let whole = wanted.contains(&"integer") && value.as_f64().is_some_and(is_whole);
    let fits = wanted.contains(&actual) || whole || actual == "integer" && wanted.contains(&"number");
    if let Some(format) = checks.and_then(|checks| checks.format.as_deref()) {
        if !value.is_string() && !value.is_array() && !fits {
            let format_of = match actual {
                "integer" => "int64",
                "number" => "float64",
                _ => "",
            };
            return fault(format, format_of);
        }
        if !numeric && (value.is_string() || value.is_array()) {
            return None;
        }
    }
    if fits { None } else { fault(&wanted.join(","), actual) }
}

/// Whether a float is an integer that JSON represents exactly.
fn is_whole(number: f64) -> bool {
    number.is_finite() && number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0
}

pub(super) fn enum_fault(checks: Option<&Checks>, value: &Value, path: &str) -> Option<Fault> {
    let values = &checks?.enumeration;
    if values.is_empty() || values.iter().any(|known| equal(known, value)) {
        return None;
    }
    let shown = |value: &Value| value.as_str().map_or_else(|| golang::json(value), str::to_owned);
    let supported: Vec<String> = values.iter().map(shown).collect();
    let message = format!("{path} in body should be one of [{}]", supported.join(" "));
    Some(Fault::new(path, Kind::Enum(value.clone(), supported), message))
}

/// Equality after Go's conversion of the value to the enum's type: `1.5` equals `1` in an integer enum.
fn equal(known: &Value, value: &Value) -> bool {
    match (known.as_i64(), known.as_f64(), value.as_f64()) {
        (Some(known), _, Some(value)) => known == value as i64,
        (None, Some(known), Some(value)) => known == value,
        _ => known == value,
    }
}
