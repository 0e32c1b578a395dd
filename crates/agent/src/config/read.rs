//! Reads a tree of values field by field, so that every complaint names the field and unknown keys are noticed.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::Wrong;
use super::values::{Choices, boolean, one_of};

/// A value and where it is.
pub(super) struct Field<'a> {
    pub(super) path: String,
    pub(super) value: &'a Value,
}

impl<'a> Field<'a> {
    pub(super) fn new(path: impl Into<String>, value: &'a Value) -> Self {
        Self { path: path.into(), value }
    }

    /// A complaint about this value.
    pub(super) fn wrong(&self, why: &str) -> Wrong {
        let path = if self.path.is_empty() { "config file" } else { &self.path };
        Wrong::new(path, shown(self.value), why)
    }

    /// Its keys; `None` when nothing is said.
    pub(super) fn table(&self) -> Result<Option<Table<'a>>, Wrong> {
        match self.value {
            Value::Null => Ok(None),
            Value::Object(map) => Ok(Some(Table { path: self.path.clone(), map, known: Vec::new() })),
            _ => Err(self.wrong("is no table of keys and values")),
        }
    }

    /// Its items; `None` when it is no list.
    pub(super) fn list(&self) -> Option<Vec<Field<'a>>> {
        let items = self.value.as_array()?;
        let named = |(place, value)| Field::new(format!("{}[{place}]", self.path), value);
        Some(items.iter().enumerate().map(named).collect())
    }

    pub(super) fn text(&self) -> Result<String, Wrong> {
        match self.value {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            _ => Err(self.wrong("is no text")),
        }
    }

    pub(super) fn boolean(&self) -> Result<bool, Wrong> {
        match self.value {
            Value::Bool(value) => Ok(*value),
            Value::String(text) => boolean(text).map_err(|why| self.wrong(&why)),
            _ => Err(self.wrong("is neither true nor false")),
        }
    }
}

/// How a value looks in a complaint: short, on one line.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Keys and values, of which each one should be asked for.
pub(super) struct Table<'a> {
    path: String,
    map: &'a Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'a> Table<'a> {
    /// The value of a key; one that is null is not there.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Field<'a>> {
        self.known.push(key);
        let value = self.map.get(key).filter(|value| !value.is_null())?;
        Some(Field::new(self.path_of(key), value))
    }

    pub(super) fn boolean(&mut self, key: &'static str) -> Result<Option<bool>, Wrong> {
        self.take(key).map(|field| field.boolean()).transpose()
    }

    pub(super) fn path(&mut self, key: &'static str) -> Result<Option<PathBuf>, Wrong> {
        let text = self.take(key).map(|field| field.text()).transpose()?;
        Ok(text.filter(|text| !text.is_empty()).map(PathBuf::from))
    }

    /// One of a few words; an empty one is not there.
    pub(super) fn parsed<T: Copy>(&mut self, key: &'static str, choices: Choices<T>) -> Result<Option<T>, Wrong> {
        let Some(field) = self.take(key) else { return Ok(None) };
        match field.text()?.as_str() {
            "" => Ok(None),
            text => one_of(&field.path, text, choices).map(Some),
        }
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Remarks on the keys that no one asked for.
    pub(super) fn finish(self, remarks: &mut Vec<String>) {
        let unknown = self.map.keys().filter(|key| !self.known.contains(&key.as_str()));
        remarks.extend(unknown.map(|key| format!("{}: unknown key, has no effect", self.path_of(key))));
    }
}
