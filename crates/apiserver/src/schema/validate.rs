//! Schema validation of custom resources, with kube-apiserver's messages.
//!
//! On update, pre-existing errors in unchanged values are tolerated (ratcheting): `old` is correlated as far as
//! possible.

use std::collections::BTreeMap;

use capstan_semantics::field;
use serde_json::{Map, Value};

use super::checks::Checks;
use super::scalar::{enum_fault, number_faults, string_faults, type_fault};
use super::{Child, ListType, Schema, Type, format};
use crate::error::Cause;
use crate::field::Path;
use crate::golang;

/// Validates `value`. With `old`, errors in unchanged values are tolerated.
pub fn validate(schema: &Schema, value: &Value, old: Option<&Value>) -> Vec<Cause> {
    let walk = Walk { ratchet: old.is_some() };
    let root = Correlated { schema, value, old };
    walk.node(schema, value, "", old.map(|_| root)).faults.into_iter().map(Fault::into_cause).collect()
}

/// A validation error, before it becomes a cause.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// Path as the validator writes it; `None` for errors of logical junctors, which have no field in kube-apiserver.
    pub(super) name: Option<String>,
    pub(super) kind: Kind,
    /// The message; each is reported once.
    pub(super) message: String,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Required,
    Enum(Value, Vec<String>),
    TooLong(i64),
    TooMany(usize, i64),
    Type(Value),
    Invalid(Value),
}

impl Fault {
    pub(super) fn new(name: &str, kind: Kind, message: String) -> Self {
        Self { name: Some(name.to_owned()), kind, message }
    }

    fn into_cause(self) -> Cause {
        let Some(name) = self.name else { return Cause::invalid(&Path::root(), &"".into(), &self.message) };
        let path = Path::new(name.trim_start_matches('.'));
        match self.kind {
            Kind::Required => Cause::required(&path, ""),
            Kind::Enum(value, supported) => Cause::not_supported(&path, &value, &supported),
            Kind::TooLong(max) => Cause::too_long(&path, usize::try_from(max).unwrap_or_default()),
            Kind::TooMany(actual, max) => Cause::too_many(&path, actual, usize::try_from(max).unwrap_or_default()),
            Kind::Type(value) => Cause::type_invalid(&path, &value, &self.message),
            Kind::Invalid(value) => Cause::invalid(&path, &value, &self.message),
        }
    }
}

/// Errors, and a match count: of several alternatives, the errors of the best match are reported.
#[derive(Default)]
struct Outcome {
    faults: Vec<Fault>,
    matches: usize,
}

impl Outcome {
    fn add(&mut self, fault: Fault) {
        if !self.faults.iter().any(|known| known.message == fault.message) {
            self.faults.push(fault);
        }
    }

    fn merge(&mut self, other: Outcome) {
        self.matches += other.matches;
        other.faults.into_iter().for_each(|fault| self.add(fault));
    }

    fn good(&self) -> bool {
        self.faults.is_empty()
    }
}

/// A value correlated with its old value.
#[derive(Clone, Copy)]
pub(super) struct Correlated<'a> {
    pub(super) schema: &'a Schema,
    pub(super) value: &'a Value,
    pub(super) old: Option<&'a Value>,
}

impl<'a> Correlated<'a> {
    pub(super) fn field(self, name: &str) -> Option<Self> {
        let old = self.old?.as_object()?.get(name)?;
        let value = self.value.as_object()?.get(name)?;
        // `additionalProperties: true` has no schema to correlate by.
        let schema = self.schema.child(name).filter(|child| !child.source.is_null())?;
        Some(Self { schema, value, old: Some(old) })
    }

    pub(super) fn index(self, index: usize) -> Option<Self> {
        let ListType::Map(keys) = &self.schema.list else { return None };
        let value = self.value.as_array()?.get(index)?;
        let old = self.old?.as_array()?.iter().find(|old| same_keys(keys, old, value))?;
        Some(Self { schema: self.schema.items()?, value, old: Some(old) })
    }

    /// Whether the value is unchanged; items of list maps are correlated by their keys.
    pub(super) fn unchanged(self) -> bool {
        match (self.old, self.value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                old.len() == new.len() && new.keys().all(|name| self.field(name).is_some_and(Correlated::unchanged))
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                let by_key = matches!(self.schema.list, ListType::Map(_)) && self.schema.items.is_some();
                old.len() == new.len()
                    && if by_key {
                        (0..new.len()).all(|index| self.index(index).is_some_and(Correlated::unchanged))
                    } else {
                        old == new
                    }
            }
            (Some(old), new) => old == new,
            (None, _) => false,
        }
    }
}

/// Whether two items of a list map have the same keys.
pub(super) fn same_keys(keys: &[String], one: &Value, other: &Value) -> bool {
    one.is_object() && other.is_object() && keys.iter().all(|key| one.get(key) == other.get(key))
}

struct Walk {
    ratchet: bool,
}

impl Walk {
    fn node(&self, schema: &Schema, value: &Value, path: &str, correlated: Option<Correlated<'_>>) -> Outcome {
        let mut outcome = self.fresh(schema, value, path, correlated);
        if self.ratchet && !outcome.good() && correlated.is_some_and(Correlated::unchanged) {
            outcome.faults.clear();
        }
        outcome
    }

    fn fresh(&self, schema: &Schema, value: &Value, path: &str, correlated: Option<Correlated<'_>>) -> Outcome {
        let mut outcome = Outcome::default();
        let checks = schema.checks.as_deref();
        if value.is_null() {
            match type_fault(schema, checks, value, path) {
                Some(fault) => outcome.add(fault),
                None => outcome.matches += 1,
            }
            outcome.faults.extend(enum_fault(checks, value, path));
            return outcome;
        }
        if schema.type_ != Type::Any || checks.is_some_and(|checks| checks.format.is_some()) {
            match type_fault(schema, checks, value, path) {
                Some(fault) => outcome.add(fault),
                None => outcome.matches += 1,
            }
            outcome.matches += 1;
        }
        outcome.merge(self.alternatives(checks, value, path, correlated));
        outcome.matches += 1;
        match value {
            Value::String(text) => {
                string_faults(checks, text, path).into_iter().for_each(|fault| outcome.add(fault));
                let formatted = checks.and_then(|checks| checks.format.as_deref()).is_some_and(format::known);
                outcome.matches += 1 + usize::from(formatted);
            }
            Value::Number(_) => {
                number_faults(schema, checks, value, path).into_iter().for_each(|fault| outcome.add(fault));
                outcome.matches += 2;
            }
            Value::Array(items) => {
                outcome.merge(self.list(schema, checks, items, path, correlated));
                outcome.matches += 1;
            }
            _ => {}
        }
        enum_fault(checks, value, path).into_iter().for_each(|fault| outcome.add(fault));
        outcome.matches += 1;
        if let Value::Object(fields) = value {
            outcome.merge(self.object(schema, checks, fields, path, correlated));
            outcome.matches += 1;
        }
        outcome.matches += 1;
        outcome
    }

    fn alternatives(
        &self,
        checks: Option<&Checks>,
        value: &Value,
        path: &str,
        correlated: Option<Correlated<'_>>,
    ) -> Outcome {
        let mut outcome = Outcome { matches: 1, ..Outcome::default() };
        let Some(checks) = checks else { return outcome };
        // Children of alternatives are correlated with the old value, the alternatives themselves are not.
        let validate = |schema: &Schema| self.fresh(schema, value, path, correlated);
        let about = |text: String| Fault { name: None, kind: Kind::Required, message: text };
        let quoted = golang::quote(path);
        if !checks.any_of.is_empty() {
            let results = until_good(&checks.any_of, validate);
            if !results.last().is_some_and(Outcome::good) {
                outcome.add(about(format!("{quoted} must validate at least one schema (anyOf)")));
            }
            outcome.merge(best(results));
        }
        if !checks.one_of.is_empty() {
            let results: Vec<Outcome> = checks.one_of.iter().map(validate).collect();
            let good = results.iter().filter(|result| result.good()).count();
            let found = match good {
                0 => "Found none valid".to_owned(),
                n => format!("Found {n} valid alternatives"),
            };
            if good != 1 {
                outcome.add(about(format!("{quoted} must validate one and only one schema (oneOf). {found}")));
            }
            if good < 2 {
                outcome.merge(best(results));
            }
        }
        let results: Vec<Outcome> = checks.all_of.iter().map(validate).collect();
        let (good, all) = (results.iter().filter(|result| result.good()).count(), results.len());
        results.into_iter().for_each(|result| outcome.merge(result));
        if good != all {
            let none = if good == 0 { ". None validated" } else { "" };
            outcome.add(about(format!("{quoted} must validate all the schemas (allOf){none}")));
        }
        if checks.not.as_ref().is_some_and(|not| validate(not).good()) {
            outcome.add(about(format!("{quoted} must not validate the schema (not)")));
        }
        outcome
    }

    fn list(
        &self,
        schema: &Schema,
        checks: Option<&Checks>,
        items: &[Value],
        path: &str,
        correlated: Option<Correlated<'_>>,
    ) -> Outcome {
        let mut outcome = Outcome { matches: 1, ..Outcome::default() };
        if let Some(child) = schema.items() {
            for (index, item) in items.iter().enumerate() {
                let correlated = correlated.and_then(|correlated| correlated.index(index));
                outcome.merge(self.node(child, item, &field::item(path, index), correlated));
            }
        }
        let Some(checks) = checks else { return outcome };
        let count = items.len() as i64;
        if let Some(min) = checks.items.min.filter(|min| count < *min) {
            let message = format!("{path} in body should have at least {min} items");
            outcome.add(Fault::new(path, Kind::Invalid(count.into()), message));
        }
        if let Some(max) = checks.items.max.filter(|max| count > *max) {
            let message = format!("{path} in body should have at most {max} items");
            outcome.add(Fault::new(path, Kind::TooMany(items.len(), max), message));
        }
        let repeated = || items.iter().enumerate().any(|(index, item)| items[..index].contains(item));
        if checks.unique_items && repeated() {
            let message = format!("{path} in body shouldn't contain duplicates");
            outcome.add(Fault::new(path, Kind::Invalid("".into()), message));
        }
        outcome
    }

    fn object(
        &self,
        schema: &Schema,
        checks: Option<&Checks>,
        fields: &Map<String, Value>,
        path: &str,
        correlated: Option<Correlated<'_>>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let count = fields.len() as i64;
        let limits = checks.map(|checks| checks.properties).unwrap_or_default();
        if let Some(min) = limits.min.filter(|min| count < *min) {
            let message = format!("{path} in body should have at least {min} properties");
            outcome.add(Fault::new(path, Kind::Invalid(count.into()), message));
        }
        if let Some(max) = limits.max.filter(|max| count > *max) {
            let message = format!("{path} in body should have at most {max} properties");
            outcome.add(Fault::new(path, Kind::TooMany(fields.len(), max), message));
        }
        // `apiVersion` and `kind` of the root are never correlated: both objects were converted to one version.
        let child = |name: &str| {
            let type_meta = path.is_empty() && (name == "kind" || name == "apiVersion");
            correlated.filter(|_| !type_meta).and_then(|correlated| correlated.field(name))
        };
        if let Some(additional) = schema.additional() {
            for (name, value) in fields.iter().filter(|(name, _)| !schema.properties.contains_key(*name)) {
                outcome.merge(self.node(additional, value, &format!("{path}.{name}"), child(name)));
            }
        }
        let known: &BTreeMap<String, Child> = &schema.properties;
        for (name, property) in known {
            let Some(value) = fields.get(name) else { continue };
            let name_path = field::child(path, name);
            outcome.merge(self.node(property.schema(), value, &name_path, child(name)));
        }
        for name in schema.required.iter().filter(|name| !fields.contains_key(*name)) {
            let name = format!("{path}.{name}");
            outcome.add(Fault::new(&name, Kind::Required, format!("{name} in body is required")));
        }
        outcome
    }
}

/// Results up to and including the first valid one.
fn until_good(schemas: &[Schema], validate: impl Fn(&Schema) -> Outcome) -> Vec<Outcome> {
    let mut results = Vec::new();
    for schema in schemas {
        results.push(validate(schema));
        if results.last().is_some_and(Outcome::good) {
            break;
        }
    }
    results
}

/// The first valid result, or else the first of those with the highest match count.
fn best(results: Vec<Outcome>) -> Outcome {
    let mut best: Option<Outcome> = None;
    for result in results {
        if result.good() {
            return result;
        }
        if best.as_ref().is_none_or(|best| result.matches > best.matches) {
            best = Some(result);
        }
    }
    best.unwrap_or_default()
}
