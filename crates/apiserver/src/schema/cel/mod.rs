//! Validation rules of CRDs (`x-kubernetes-validations`): compiled once per version, evaluated on every write.

mod access;
mod check;
mod construct;
mod cost;
mod declare;
mod escape;
mod estimate;
mod eval;
mod expand;
mod form;
mod functions;
mod infer;
mod lex;
mod literals;
mod macros;
mod operators;
mod parse;
mod program;
mod rule;
mod signatures;
mod source;
mod types;
mod value;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value, json};

pub use access::Authorize;
pub use check::check;
use eval::Scope;
pub use program::{Env, Failure, Program, ResultType, Run};
use rule::Rule;
use value::{Fault, Val};

use super::validate::{Correlated, same_keys};
use super::{Child, ListType, Schema, Type, compile};
use crate::error::Cause;
use crate::field::Path;

/// Cost limit of all rules for one object.
const BUDGET: u64 = 10_000_000;

/// The rules of one version, compiled on first use.
#[derive(Clone, Default)]
pub struct Lazy(Arc<OnceLock<Rules>>);

impl std::fmt::Debug for Lazy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lazy")
    }
}

impl Lazy {
    /// The rules in `schema`.
    pub fn get(&self, schema: &Schema) -> &Rules {
        self.0.get_or_init(|| Rules::compile(schema))
    }
}

/// All rules of a schema.
pub struct Rules {
    /// The schema as visible to expressions, with the type and name of objects.
    schema: Schema,
    root: Option<Node>,
}

/// The rules of a schema node, and of its children.
struct Node {
    rules: Vec<Rule>,
    properties: BTreeMap<String, Node>,
    additional: Option<Box<Node>>,
    items: Option<Box<Node>>,
}

impl Rules {
    /// Compiles the rules of a schema.
    pub fn compile(schema: &Schema) -> Self {
        let root = Node::compile(schema);
        Self { schema: if root.is_some() { visible(schema, true) } else { Schema::default() }, root }
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }
}

impl Node {
    fn compile(schema: &Schema) -> Option<Self> {
        let below = |child: Option<&Schema>| child.and_then(Self::compile).map(Box::new);
        let node = Self {
            rules: schema.source["x-kubernetes-validations"]
                .as_array()
                .into_iter()
                .flatten()
                .map(Rule::compile)
                .collect(),
            properties: schema
                .properties
                .iter()
                .filter_map(|(name, child)| Some((name.clone(), Self::compile(child.schema())?)))
                .collect(),
            additional: below(schema.additional()),
            items: below(schema.items()),
        };
        let empty =
            node.rules.is_empty() && node.properties.is_empty() && node.additional.is_none() && node.items.is_none();
        (!empty).then_some(node)
    }
}

/// The schema as visible to expressions: of an object's own fields only its type and name.
fn visible(schema: &Schema, root: bool) -> Schema {
    let inner = |child: &Child| Child::Inline(Arc::new(visible(child.schema(), false)));
    let mut seen = Schema {
        properties: schema.properties.iter().map(|(name, child)| (name.clone(), inner(child))).collect(),
        additional: schema.additional.as_ref().map(inner),
        items: schema.items.as_ref().map(inner),
        ..schema.clone()
    };
    if root || schema.embedded_resource {
        let text = json!({"type": "string"});
        let metadata = json!({"type": "object", "properties": {"name": text, "generateName": text}});
        for (name, source) in [("apiVersion", &text), ("kind", &text), ("metadata", &metadata)] {
            seen.properties.insert(name.to_owned(), Child::Inline(Arc::new(compile(source))));
        }
    }
    seen
}

/// Result of the evaluation for an object.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Failed rules.
    pub causes: Vec<Cause>,
    /// Failed rules that are tolerated, as they failed before on the unchanged value (ratcheting).
    pub warnings: Vec<String>,
    /// Total cost.
    pub cost: u64,
}

/// Evaluates all rules; transition rules only if there is an old value.
pub fn evaluate(rules: &Rules, declared: &Schema, object: &Value, old: Option<&Value>) -> Outcome {
    let mut run = Evaluation { outcome: Outcome::default(), exhausted: false };
    if let Some(root) = &rules.root {
        let correlated = old.map(|_| Correlated { schema: declared, value: object, old });
        let place = Place { path: Path::root(), ratchet: Ratchet { current: correlated, parent: None } };
        run.node(root, &rules.schema, object, old, &place);
    }
    run.outcome
}

/// Path of a value, and its old value.
struct Place<'a> {
    path: Path,
    ratchet: Ratchet<'a>,
}

/// Correlation of a value and its nearest correlatable ancestor with their old values.
#[derive(Clone, Copy)]
struct Ratchet<'a> {
    current: Option<Correlated<'a>>,
    parent: Option<Correlated<'a>>,
}

impl<'a> Ratchet<'a> {
    fn step(self, next: impl FnOnce(Correlated<'a>) -> Option<Correlated<'a>>) -> Self {
        match self.current {
            None => self,
            Some(current) => Self { current: next(current), parent: Some(current) },
        }
    }

    fn field(self, name: &str) -> Self {
        if self.current.is_some() && self.parent.is_none() && (name == "apiVersion" || name == "kind") {
            return Self { current: None, parent: None };
        }
        self.step(|current| current.field(name))
    }

    /// Whether a failure here is tolerated: it existed before, and the value is unchanged.
    fn applies(self) -> bool {
        self.current.or(self.parent).is_some_and(Correlated::unchanged)
    }
}

struct Evaluation {
    outcome: Outcome,
    exhausted: bool,
}

impl Evaluation {
    fn node(&mut self, node: &Node, schema: &Schema, value: &Value, old: Option<&Value>, place: &Place<'_>) {
        if value.is_null() || self.exhausted {
            return;
        }
        self.rules(node, schema, value, old.filter(|old| !old.is_null()), place);
        match value {
            Value::Array(items) => self.items(node, schema, items, old, place),
            Value::Object(fields) => self.fields(node, schema, fields, old, place),
            _ => {}
        }
    }

    fn items(&mut self, node: &Node, schema: &Schema, items: &[Value], old: Option<&Value>, place: &Place<'_>) {
        let (Some(below), Some(child)) = (&node.items, schema.items()) else { return };
        let before = old.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (index, item) in items.iter().enumerate() {
            let old = match &schema.list {
                ListType::Map(keys) => before.iter().find(|old| same_keys(keys, old, item)),
                _ => None,
            };
            let ratchet = place.ratchet.step(|current| current.index(index));
            self.node(below, child, item, old, &Place { path: place.path.index(index), ratchet });
        }
    }

    fn fields(
        &mut self,
        node: &Node,
        schema: &Schema,
        fields: &Map<String, Value>,
        old: Option<&Value>,
        place: &Place<'_>,
    ) {
        let before = |name: &str| old.and_then(|old| old.get(name));
        if let (Some(below), Some(child)) = (&node.additional, schema.additional()) {
            for (name, value) in fields {
                let place = Place { path: place.path.key(name), ratchet: place.ratchet.field(name) };
                self.node(below, child, value, before(name), &place);
            }
        }
        for (name, below) in &node.properties {
            let (Some(value), Some(child)) = (fields.get(name), schema.property(name)) else { continue };
            let place = Place { path: place.path.child(name), ratchet: place.ratchet.field(name) };
            self.node(below, child, value, before(name), &place);
        }
    }

    fn rules(&mut self, node: &Node, schema: &Schema, value: &Value, old: Option<&Value>, place: &Place<'_>) {
        let type_ = type_name(schema.type_);
        for rule in &node.rules {
            if self.exhausted {
                return;
            }
            if self.outcome.cost >= BUDGET {
                return self.exhaust(type_, &place.path);
            }
            if rule.uses_old && old.is_none() && !rule.optional_old {
                continue;
            }
            self.rule(rule, schema, value, old, place, type_);
        }
    }

    fn rule(
        &mut self,
        rule: &Rule,
        schema: &Schema,
        value: &Value,
        old: Option<&Value>,
        place: &Place<'_>,
        type_: &str,
    ) {
        let invalid = |text: String| Cause::invalid(&place.path, &type_.into(), &text);
        let expression = match &rule.expression {
            Ok(Some(expression)) => expression,
            Ok(None) => return,
            Err(error) => return self.outcome.causes.push(invalid(format!("rule compile error: {error}"))),
        };
        let mut scope = match bound(rule, schema, value, old) {
            Ok(scope) => scope,
            Err(fault) => {
                let text = format!("{fault} evaluating rule: {}", rule.shown());
                return self.outcome.causes.push(invalid(text));
            }
        };
        let result = scope.eval(expression);
        if scope.cost > BUDGET - self.outcome.cost {
            return self.exhaust(type_, &place.path);
        }
        self.outcome.cost += scope.cost;
        let text = match result {
            Ok(Val::Bool(true)) => return,
            Ok(Val::Bool(false)) => return self.broken(rule, schema, value, old, place),
            Ok(_) | Err(Fault::Overload) => format!(
                "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: {}",
                rule.shown()
            ),
            Err(Fault::Limit) => {
                self.exhausted = true;
                format!(
                    "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                    Fault::Limit,
                    rule.shown()
                )
            }
            Err(fault) => format!("{fault} evaluating rule: {}", rule.shown()),
        };
        self.outcome.causes.push(invalid(text));
    }

    /// Reports a failed rule.
    fn broken(&mut self, rule: &Rule, schema: &Schema, value: &Value, old: Option<&Value>, place: &Place<'_>) {
        let message = self.message(rule, schema, value, old).unwrap_or_else(|| rule.message());
        let path = match rule.field_path.as_str() {
            "" => place.path.clone(),
            field => place.path.child(field),
        };
        let hidden = matches!(schema.type_, Type::Object | Type::Array);
        let cause = match (rule.reason.as_str(), hidden) {
            ("FieldValueForbidden", _) => Cause::forbidden(&path, &message),
            ("FieldValueRequired", _) => Cause::required(&path, &message),
            ("FieldValueDuplicate", true) => Cause::duplicate_hidden(&path),
            ("FieldValueDuplicate", false) => Cause::duplicate(&path, value),
            (_, true) => Cause::invalid_hidden(&path, &message),
            (_, false) => Cause::invalid(&path, value, &message),
        };
        if !rule.uses_old && place.ratchet.applies() {
            self.outcome.warnings.push(format!("{}: {}", cause.field, cause.message));
        } else {
            self.outcome.causes.push(cause);
        }
    }

    /// The result of the message expression, if it is usable.
    fn message(&mut self, rule: &Rule, schema: &Schema, value: &Value, old: Option<&Value>) -> Option<String> {
        const LONGEST: usize = 5 * 1024;
        let expression = rule.message_expression.as_ref()?;
        let mut scope = bound(rule, schema, value, old).ok()?;
        let result = scope.eval(expression);
        self.outcome.cost += scope.cost;
        let Ok(Val::Text(text)) = result else { return None };
        let text = text.trim();
        (!text.is_empty() && text.len() <= LONGEST && !text.contains('\n')).then(|| text.to_owned())
    }

    fn exhaust(&mut self, type_: &str, path: &Path) {
        let text = "validation failed due to running out of cost budget, no further validation rules will be run";
        self.outcome.causes.push(Cause::invalid(path, &type_.into(), text));
        self.exhausted = true;
    }
}

/// The variables of a rule: `self` and `oldSelf`.
fn bound<'a>(rule: &Rule, schema: &'a Schema, value: &'a Value, old: Option<&'a Value>) -> Result<Scope<'a>, Fault> {
    let mut scope = Scope::new();
    scope.bind("self", Val::node(value, schema)?);
    if rule.uses_old {
        let old = old.map(|old| Val::node(old, schema)).transpose()?;
        match (rule.optional_old, old) {
            (true, old) => scope.bind("oldSelf", Val::Optional(old.map(std::rc::Rc::new))),
            (false, Some(old)) => scope.bind("oldSelf", old),
            (false, None) => {}
        }
    }
    Ok(scope)
}

fn type_name(type_: Type) -> &'static str {
    match type_ {
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::Any | Type::IntOrString => "",
    }
}

#[cfg(test)]
mod tests;
