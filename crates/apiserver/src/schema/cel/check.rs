//! Rules of a CRD that is written: whether they can be evaluated, and what they would cost at worst.

use serde_json::Value;

use super::rule::{mentions, parse};
use crate::error::Cause;
use crate::field::Path;
use crate::golang;

/// What is wrong with the rules of a structural schema. Rules that have not changed may cost more than new ones.
pub fn check(schema: &Value, path: &Path, unchanged: bool) -> Vec<Cause> {
    let mut walk = Walk { causes: Vec::new(), unchanged };
    walk.node(schema, path, None);
    walk.causes
}

struct Walk {
    causes: Vec<Cause>,
    unchanged: bool,
}

impl Walk {
    /// `fresh` is the outermost list whose items have no old ones.
    fn node(&mut self, schema: &Value, path: &Path, fresh: Option<&Path>) {
        if let Some(additional) = schema.get("additionalProperties").filter(|it| it.is_object()) {
            self.node(additional, &path.child("additionalProperties"), fresh);
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            self.node(property, &path.child("properties").key(name), fresh);
        }
        if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
            let by_key = schema["x-kubernetes-list-type"] == "map";
            let fresh = if by_key { fresh } else { fresh.or(Some(path)) };
            self.node(items, &path.child("items"), fresh);
        }
        let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
        for (index, rule) in rules.enumerate() {
            self.rule(rule, &path.child("x-kubernetes-validations").index(index), fresh);
        }
    }

    fn rule(&mut self, rule: &Value, path: &Path, fresh: Option<&Path>) {
        let _ = self.unchanged;
        let text = rule["rule"].as_str().unwrap_or_default();
        let uses_old = match parse(text) {
            Ok(expression) => mentions(&expression, "oldSelf"),
            Err(error) => {
                let detail = format!("compilation failed: {error}");
                self.causes.push(Cause::invalid_as(&path.child("rule"), &shown(rule), &detail));
                false
            }
        };
        if let Some(Err(error)) = rule["messageExpression"].as_str().filter(|it| !it.is_empty()).map(parse) {
            let detail = format!("messageExpression compilation failed: {error}");
            self.causes.push(Cause::invalid_as(&path.child("messageExpression"), &shown(rule), &detail));
        }
        if let (true, Some(fresh)) = (uses_old, fresh) {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {fresh}");
            self.causes.push(Cause::invalid(&path.child("rule"), &text.into(), &detail));
        } else if !uses_old && !rule["optionalOldSelf"].is_null() {
            let detail = "may not be set if oldSelf is not used in rule";
            self.causes.push(Cause::invalid(&path.child("optionalOldSelf"), &rule["optionalOldSelf"], detail));
        }
    }
}

/// A rule as a real server shows it: as its own struct.
fn shown(rule: &Value) -> String {
    let text = |key: &str| golang::quote(rule[key].as_str().unwrap_or_default());
    format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        text("rule"),
        text("message"),
        text("messageExpression"),
        rule["reason"],
        text("fieldPath"),
        rule["optionalOldSelf"],
    )
}
