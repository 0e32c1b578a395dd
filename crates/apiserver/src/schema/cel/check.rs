//! Validation of a CRD's rules: type checking, and estimated worst-case cost.

use std::rc::Rc;

use serde_json::Value;

use super::declare::{Decl, LARGEST, Shape};
use super::escape;
use super::estimate::estimate;
use super::infer::{self, Checked, Names};
use super::types::Ty;
use crate::error::Cause;
use crate::field::Path;
use crate::golang;

/// Cost limit of one rule, over all values that it validates.
const LIMIT: u64 = 10_000_000;
/// Cost limit of all rules of a schema together.
const TOTAL_LIMIT: u64 = 100_000_000;
/// Maximum number of expensive rules to report.
const NAMED: usize = 4;
/// Prefix of type names in errors; kube-apiserver appends an arbitrary number.
const ROOT: &str = "selfType0";

/// Validates the rules of a structural schema with these other errors. Rules on or above an invalid node are skipped,
/// and cost limits of an unchanged schema are not enforced.
pub fn check(schema: &Value, path: &Path, unchanged: bool, faults: &[Cause]) -> Vec<Cause> {
    let faults = faults.iter().map(|fault| fault.field.clone()).collect();
    let mut walk = Walk { causes: Vec::new(), unchanged, faults, total: 0, expensive: Vec::new() };
    walk.node(schema, path, &Place { root: true, decl: None, count: Some(1), fresh: None });
    if walk.total > TOTAL_LIMIT {
        for (path, _) in &walk.expensive {
            let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            walk.causes.push(Cause::forbidden(path, why));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        walk.causes.push(Cause::forbidden(path, &too_much(what, walk.total, TOTAL_LIMIT)));
    }
    walk.causes
}

fn too_much(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

struct Walk {
    causes: Vec<Cause>,
    unchanged: bool,
    /// Field paths of other errors.
    faults: Vec<String>,
    total: u64,
    expensive: Vec<(Path, u64)>,
}

/// Context of a node.
struct Place<'a> {
    root: bool,
    /// Declaration of its values, if computed for rules above.
    decl: Option<Rc<Decl>>,
    /// Maximum number of such values in an object, if bounded.
    count: Option<u64>,
    /// The outermost list whose items cannot be correlated with old ones.
    fresh: Option<&'a Path>,
}

impl Walk {
    fn node(&mut self, schema: &Value, path: &Path, place: &Place<'_>) {
        let rules = schema["x-kubernetes-validations"].as_array().filter(|rules| !rules.is_empty());
        let root = place.root || schema["x-kubernetes-embedded-resource"] == true;
        let decl = match (&place.decl, rules) {
            (None, Some(_)) => Decl::of(schema, root),
            (known, _) => known.clone(),
        };
        let count = place.count.zip(most(schema)).map(|(count, most)| count.saturating_mul(most));
        let below = |decl: Option<Rc<Decl>>| Place { root: false, decl, count, fresh: place.fresh };
        let inner = match decl.as_deref().map(|decl| &decl.shape) {
            Some(Shape::List(of) | Shape::Map(of)) => Some(of.clone()),
            _ => None,
        };
        if let Some(additional) = schema.get("additionalProperties").filter(|it| it.is_object()) {
            self.node(additional, &path.child("additionalProperties"), &below(inner.clone()));
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let field = escape::escape(name).and_then(|name| decl.as_ref()?.field(&name));
            self.node(property, &path.child("properties").key(name), &below(field));
        }
        if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
            let by_key = schema["x-kubernetes-list-type"] == "map";
            let fresh = if by_key { place.fresh } else { place.fresh.or(Some(path)) };
            self.node(items, &path.child("items"), &Place { fresh, ..below(inner) });
        }
        let Some(rules) = rules else { return };
        let here = path.to_string();
        if self.faults.iter().any(|fault| fault.starts_with(&here)) {
            return;
        }
        let path = path.child("x-kubernetes-validations");
        let Some(decl) = decl else {
            let why = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            self.causes.push(Cause::internal(&path, why));
            return;
        };
        let count = place.count.unwrap_or_else(|| LARGEST / (decl.least + 1));
        for (index, rule) in rules.iter().enumerate() {
            self.rule(rule, &path.index(index), &decl, count, place.fresh);
        }
    }

    fn rule(&mut self, rule: &Value, path: &Path, decl: &Rc<Decl>, count: u64, fresh: Option<&Path>) {
        let text = rule["rule"].as_str().unwrap_or_default();
        if text.trim().is_empty() {
            return;
        }
        let names = names(decl, rule["optionalOldSelf"] == true);
        let compiled = compile(text, &names, &Ty::Bool, decl);
        let uses_old = match compiled {
            Ok((checked, cost)) => {
                self.cost(&path.child("rule"), "estimated rule cost", cost.saturating_mul(count));
                self.message(rule, path, &names, decl);
                checked.refers_to("oldSelf")
            }
            Err(why) => {
                self.causes.push(Cause::invalid_as(&path.child("rule"), &shown(rule), &why));
                false
            }
        };
        if let (true, Some(fresh)) = (uses_old, fresh) {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {fresh}");
            self.causes.push(Cause::invalid(&path.child("rule"), &text.into(), &detail));
        } else if !uses_old && !rule["optionalOldSelf"].is_null() {
            let detail = "may not be set if oldSelf is not used in rule";
            self.causes.push(Cause::invalid(&path.child("optionalOldSelf"), &rule["optionalOldSelf"], detail));
        }
    }

    fn message(&mut self, rule: &Value, path: &Path, names: &Names, decl: &Rc<Decl>) {
        let Some(text) = rule["messageExpression"].as_str().filter(|text| !text.is_empty()) else { return };
        let path = path.child("messageExpression");
        match compile(text, names, &Ty::Text, decl) {
            Ok((_, cost)) => self.cost(&path, "estimated messageExpression cost", cost),
            Err(why) => self.causes.push(Cause::invalid_as(&path, &shown(rule), &why)),
        }
    }

    fn cost(&mut self, path: &Path, what: &str, cost: u64) {
        if !self.unchanged && cost > LIMIT {
            self.causes.push(Cause::forbidden(path, &too_much(what, cost, LIMIT)));
        }
        self.total = self.total.saturating_add(cost);
        // Rules below a hundredth of the limit are not reported.
        if cost >= TOTAL_LIMIT / 100 {
            self.expensive.push((path.clone(), cost));
            self.expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.expensive.truncate(NAMED);
        }
    }
}

/// The variables of a rule: `self` and `oldSelf`.
fn names(decl: &Rc<Decl>, optional_old: bool) -> Names {
    let ty = decl.ty(ROOT);
    let old = if optional_old { Ty::optional(ty.clone()) } else { ty.clone() };
    Names(vec![("self".to_owned(), ty), ("oldSelf".to_owned(), old)])
}

/// Compiles an expression and estimates its cost.
fn compile(text: &str, names: &Names, wanted: &Ty, decl: &Rc<Decl>) -> Result<(Checked, u64), String> {
    let message = matches!(wanted, Ty::Text);
    let checked = infer::check(text, names).map_err(|why| {
        let what = if message { "messageExpression compilation" } else { "compilation" };
        format!("{what} failed: {why}")
    })?;
    if !checked.result().same(wanted) {
        return Err(match message {
            true => "messageExpression must evaluate to a string".to_owned(),
            false => "cel expression must evaluate to a bool".to_owned(),
        });
    }
    let cost = estimate(&checked, decl);
    Ok((checked, cost))
}

/// Maximum number of children per value; `None` if unbounded.
fn most(schema: &Value) -> Option<u64> {
    let limit = |key: &str| schema[key].as_i64().map(|limit| u64::try_from(limit).unwrap_or(0));
    match schema["type"].as_str() {
        Some("object") if !schema["additionalProperties"].is_null() => limit("maxProperties"),
        Some("array") => limit("maxItems"),
        _ => Some(1),
    }
}

/// A rule as kube-apiserver prints it: as a Go struct.
fn shown(rule: &Value) -> String {
    let text = |key: &str| golang::json(&rule[key].as_str().unwrap_or_default().into());
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

/// The recorded result of compiling an expression.
#[cfg(test)]
pub(super) fn compiled(schema: &Value, text: &str) -> String {
    let decl = Decl::of(schema, true).expect("the schema is one of objects");
    let (text, optional) = text.strip_prefix('?').map_or((text, false), |text| (text, true));
    match compile(text, &names(&decl, optional), &Ty::Bool, &decl) {
        Ok((checked, cost)) if checked.refers_to("oldSelf") => format!("{cost} old"),
        Ok((_, cost)) => cost.to_string(),
        Err(why) => why,
    }
}
