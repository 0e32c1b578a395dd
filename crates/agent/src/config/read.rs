//! Reads a value tree field by field, so that every error names its field and unknown keys are reported.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::InvalidValue;
use super::values::{Choices, boolean, one_of};

/// A value and its path.
pub(super) struct Field<'a> {
    pub(super) path: String,
    pub(super) value: &'a Value,
}

impl<'a> Field<'a> {
    pub(super) fn new(path: impl Into<String>, value: &'a Value) -> Self {
        Self { path: path.into(), value }
    }

    /// An error about this value.
    pub(super) fn wrong(&self, why: &str) -> InvalidValue {
        let path = if self.path.is_empty() { "config file" } else { &self.path };
        InvalidValue::new(path, shortened(self.value), why)
    }

    /// Its keys; `None` if null.
    pub(super) fn table(&self) -> Result<Option<Table<'a>>, InvalidValue> {
        match self.value {
            Value::Null => Ok(None),
            Value::Object(map) => Ok(Some(Table { path: self.path.clone(), map, known: Vec::new() })),
            _ => Err(self.wrong("is no table of keys and values")),
        }
    }

    /// Its items; `None` if it is no list.
    pub(super) fn list(&self) -> Option<Vec<Field<'a>>> {
        let items = self.value.as_array()?;
        let named = |(place, value)| Field::new(format!("{}[{place}]", self.path), value);
        Some(items.iter().enumerate().map(named).collect())
    }

    pub(super) fn text(&self) -> Result<String, InvalidValue> {
        match self.value {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            _ => Err(self.wrong("is no text")),
        }
    }

    pub(super) fn boolean(&self) -> Result<bool, InvalidValue> {
        match self.value {
            Value::Bool(value) => Ok(*value),
            Value::String(text) => boolean(text).map_err(|why| self.wrong(&why)),
            _ => Err(self.wrong("is neither true nor false")),
        }
    }
}

/// A value in an error message: short, on one line.
fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// A map whose keys are consumed one by one.
pub(super) struct Table<'a> {
    path: String,
    map: &'a Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'a> Table<'a> {
    /// Consumes a key; null counts as missing.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Field<'a>> {
        self.known.push(key);
        let value = self.map.get(key).filter(|value| !value.is_null())?;
        Some(Field::new(self.path_of(key), value))
    }

    pub(super) fn boolean(&mut self, key: &'static str) -> Result<Option<bool>, InvalidValue> {
        self.take(key).map(|field| field.boolean()).transpose()
    }

    pub(super) fn path(&mut self, key: &'static str) -> Result<Option<PathBuf>, InvalidValue> {
        let text = self.take(key).map(|field| field.text()).transpose()?;
        Ok(text.filter(|text| !text.is_empty()).map(PathBuf::from))
    }

    /// Parses a value with fixed choices; an empty one counts as missing.
    pub(super) fn parsed<T: Copy>(
        &mut self,
        key: &'static str,
        choices: Choices<T>,
    ) -> Result<Option<T>, InvalidValue> {
        let Some(field) = self.take(key) else { return Ok(None) };
        match field.text()?.as_str() {
            "" => Ok(None),
            text => one_of(&field.path, text, choices).map(Some),
        }
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Adds a warning for every key that was not consumed.
    pub(super) fn finish(self, warnings: &mut Vec<String>) {
        let unknown = self.map.keys().filter(|key| !self.known.contains(&key.as_str()));
        warnings.extend(unknown.map(|key| format!("{}: unknown key, has no effect", self.path_of(key))));
    }
}
