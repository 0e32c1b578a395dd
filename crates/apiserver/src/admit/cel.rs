//! Expressions of admission: match conditions of webhooks, and admission policies.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Program, Value as Cel};
use serde_json::Value;

/// An expression, compiled once.
pub(super) struct Expression {
    /// As written.
    pub(super) text: String,
    program: Result<Program, String>,
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Expression").field("text", &self.text).finish_non_exhaustive()
    }
}

/// What expressions may refer to.
pub(super) struct Scope(Context<'static>);

impl Scope {
    pub(super) fn new() -> Self {
        Self(Context::default().with_all())
    }

    /// Gives a name a value.
    pub(super) fn set(&mut self, name: &str, value: &Value) {
        self.set_cel(name, from_json(value));
    }

    /// The same with a value that an expression had.
    pub(super) fn set_cel(&mut self, name: &str, value: Cel) {
        // Adding fails only for values that cannot be converted, and these are converted already.
        let _ = self.0.add_variable(name, value);
    }
}

impl Expression {
    /// Compiles an expression. Whether it can be is known when it is evaluated.
    pub(super) fn new(text: &str) -> Self {
        let program = Program::compile(text).map_err(|error| error.to_string());
        Self { text: text.to_owned(), program }
    }

    /// Why it cannot be compiled.
    pub(super) fn mistake(&self) -> Option<&str> {
        self.program.as_ref().err().map(String::as_str)
    }

    /// Its value.
    pub(super) fn value(&self, scope: &Scope) -> Result<Cel, String> {
        let program = self.program.as_ref().map_err(|error| format!("compilation error: {error}"))?;
        let value = program.execute(&scope.0);
        value.map_err(|error| format!("expression '{}' resulted in error: {}", self.text, go_words(&error.to_string())))
    }

    /// Its value, which must be a truth.
    pub(super) fn holds(&self, scope: &Scope) -> Result<bool, String> {
        match self.value(scope)? {
            Cel::Bool(truth) => Ok(truth),
            _ => Err(format!("expression '{}' resulted in error: must evaluate to bool", self.text)),
        }
    }
}

/// Errors that people meet often, in the words of Go's evaluator.
fn go_words(error: &str) -> String {
    error.strip_prefix("No such key").map_or_else(|| error.to_owned(), |rest| format!("no such key{rest}"))
}

/// A map of values that expressions had.
pub(super) fn map(values: impl IntoIterator<Item = (String, Cel)>) -> Cel {
    let map: HashMap<Key, Cel> = values.into_iter().map(|(key, value)| (Key::String(Arc::new(key)), value)).collect();
    Cel::Map(Map { map: Arc::new(map) })
}

/// Names of fields are not escaped: admission sees objects as plain maps.
fn from_json(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(truth) => Cel::Bool(*truth),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Cel::Int(whole),
            (None, Some(whole)) => Cel::UInt(whole),
            (None, None) => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(from_json).collect())),
        Value::Object(members) => map(members.iter().map(|(key, value)| (key.clone(), from_json(value)))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn expressions_see_objects_as_they_are() {
        let mut scope = Scope::new();
        let object =
            json!({"metadata": {"name": "a", "namespace": "b", "labels": {"x.io/y-z": "1"}}, "spec": {"replicas": 3}});
        scope.set("object", &object);
        scope.set("oldObject", &Value::Null);
        for (text, expected) in [
            ("object.spec.replicas > 2", Ok(true)),
            ("object.metadata.namespace == 'b'", Ok(true)),
            ("object.metadata.labels['x.io/y-z'] == '1'", Ok(true)),
            ("'x.io/y-z' in object.metadata.labels", Ok(true)),
            ("has(object.spec.paused)", Ok(false)),
            ("oldObject == null", Ok(true)),
            ("quantity('1Gi').isGreaterThan(quantity('1M'))", Ok(true)),
            ("object.spec.other == 1", Err(())),
            ("object.spec.replicas", Err(())),
            ("object.(", Err(())),
        ] {
            assert_eq!(Expression::new(text).holds(&scope).map_err(drop), expected, "{text}");
        }
    }
}
