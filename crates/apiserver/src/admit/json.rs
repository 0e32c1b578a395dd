//! Accessors of JSON objects with Go's zero values in mind: an absent string is an empty one, and a default replaces
//! both.

use serde_json::{Map, Value};

/// Reads members of an object; an absent member, or one of another type, reads as the zero value.
pub(super) trait Read {
    /// A string, or empty.
    fn text(&self, key: &str) -> &str;
    /// The items of a list, or none.
    fn list(&self, key: &str) -> &[Value];
    /// The members of an object, or none.
    fn members(&self, key: &str) -> impl Iterator<Item = (&String, &Value)>;
    /// Whether the member is present and not null.
    fn has(&self, key: &str) -> bool;
    /// Whether the member is true.
    fn flag(&self, key: &str) -> bool;
    /// An integer.
    fn number(&self, key: &str) -> Option<i64>;
}

impl Read for Value {
    fn text(&self, key: &str) -> &str {
        self.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    fn list(&self, key: &str) -> &[Value] {
        self.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn members(&self, key: &str) -> impl Iterator<Item = (&String, &Value)> {
        self.get(key).and_then(Value::as_object).into_iter().flatten()
    }

    fn has(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| !value.is_null())
    }

    fn flag(&self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    fn number(&self, key: &str) -> Option<i64> {
        self.get(key).and_then(Value::as_i64)
    }
}

/// Sets members of an object. Does nothing if the value is not an object.
pub(super) trait Fill {
    /// Sets a member that is absent or null.
    fn fill(&mut self, key: &str, value: impl Into<Value>);
    /// Sets a member that is absent, null, empty, zero or false: a non-pointer field in Go.
    fn fill_zero(&mut self, key: &str, value: impl Into<Value>);
    /// Sets a member.
    fn put(&mut self, key: &str, value: impl Into<Value>);
    /// Removes a member.
    fn drop(&mut self, key: &str) -> Option<Value>;
    /// An existing object member.
    fn inner(&mut self, key: &str) -> Option<&mut Value>;
    /// An object member, created if absent.
    fn inner_or_new(&mut self, key: &str) -> Option<&mut Value>;
    /// The items of a list.
    fn items(&mut self, key: &str) -> std::slice::IterMut<'_, Value>;
}

impl Fill for Value {
    fn fill(&mut self, key: &str, value: impl Into<Value>) {
        if self.is_object() && !self.has(key) {
            self.put(key, value);
        }
    }

    fn fill_zero(&mut self, key: &str, value: impl Into<Value>) {
        if self.is_object() && self.get(key).is_none_or(is_zero) {
            self.put(key, value);
        }
    }

    fn put(&mut self, key: &str, value: impl Into<Value>) {
        if let Some(object) = self.as_object_mut() {
            object.insert(key.to_owned(), value.into());
        }
    }

    fn drop(&mut self, key: &str) -> Option<Value> {
        self.as_object_mut().and_then(|object| object.remove(key))
    }

    fn inner(&mut self, key: &str) -> Option<&mut Value> {
        self.get_mut(key).filter(|value| value.is_object())
    }

    fn inner_or_new(&mut self, key: &str) -> Option<&mut Value> {
        self.fill(key, Map::new());
        self.inner(key)
    }

    fn items(&mut self, key: &str) -> std::slice::IterMut<'_, Value> {
        match self.get_mut(key).and_then(Value::as_array_mut) {
            Some(items) => items.iter_mut(),
            None => [].iter_mut(),
        }
    }
}

/// Whether Go's `omitempty` would omit the value.
pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}
