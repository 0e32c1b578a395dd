//! Labels, annotations and selectors in objects.

use capstan_semantics::names;
use serde_json::Value;

use crate::admit::field::{At, Errors, Raw};
use crate::admit::json::Read;
use crate::golang;

const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The key of a label.
pub(super) fn key(errors: &mut Errors, at: &At<'_>, key: &str) {
    errors.invalid_all(at, key, names::qualified_name(key));
}

/// A map of labels.
pub(super) fn labels(errors: &mut Errors, at: &At<'_>, labels: &Value) {
    for (name, value) in labels.as_object().into_iter().flatten() {
        key(errors, at, name);
        let value = value.as_str().unwrap_or_default();
        errors.invalid_all(at, value, names::label_value(value));
    }
}

/// A map of annotations.
pub(super) fn annotations(errors: &mut Errors, at: &At<'_>, annotations: &Value) {
    let mut size = 0;
    for (name, value) in annotations.as_object().into_iter().flatten() {
        size += name.len() + value.as_str().unwrap_or_default().len();
        errors.invalid_all(at, name, names::qualified_name(&name.to_lowercase()));
    }
    if size > MAX_ANNOTATIONS {
        errors.too_long(at, MAX_ANNOTATIONS);
    }
}

/// A `metav1.LabelSelector`.
pub(super) fn selector(errors: &mut Errors, at: &At<'_>, selector: &Value) {
    labels(errors, &at.child("matchLabels"), &selector["matchLabels"]);
    let expressions = at.child("matchExpressions");
    for (index, expression) in selector.list("matchExpressions").iter().enumerate() {
        let at = expressions.index(index);
        let values = at.child("values");
        match expression.text("operator") {
            "In" | "NotIn" => {
                if expression.list("values").is_empty() {
                    errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
                }
            }
            "Exists" | "DoesNotExist" => {
                if !expression.list("values").is_empty() {
                    errors.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
                }
            }
            other => errors.invalid(&at.child("operator"), other, "not a valid selector operator"),
        }
        key(errors, &at.child("key"), expression.text("key"));
        for (index, value) in expression.list("values").iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            errors.invalid_all(&values.index(index), value, names::label_value(value));
        }
    }
}

/// Whether a selector is valid.
pub(super) fn is_usable(selector_: &Value) -> bool {
    let mut errors = Errors::default();
    selector(&mut errors, &At::new(""), selector_);
    errors.0.is_empty()
}

/// A selector as Go prints it: labels first.
pub(super) fn shown(selector: &Value) -> Raw {
    let part = |key: &str| selector.get(key).map(|value| format!("\"{key}\":{}", golang::json(value)));
    let parts: Vec<String> = ["matchLabels", "matchExpressions"].into_iter().filter_map(part).collect();
    Raw(if selector.is_null() { "null".into() } else { format!("{{{}}}", parts.join(",")) })
}

/// Whether a selector is empty.
pub(super) fn is_empty(selector: &Value) -> bool {
    selector.members("matchLabels").next().is_none() && selector.list("matchExpressions").is_empty()
}

/// An immutable selector.
pub(super) fn immutable(errors: &mut Errors, at: &At<'_>, spec: &Value, old: &Value) {
    if spec["selector"] != old["selector"] {
        errors.invalid(&at.child("selector"), &shown(&spec["selector"]), "field is immutable");
    }
}
