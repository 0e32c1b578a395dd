//! Collection of field errors.
//!
//! A path costs nothing until an error is reported: it is a chain of borrowed segments that is formatted only then.

pub(super) use capstan_semantics::field::At;
use serde_json::Value;

use crate::error::Cause;
use crate::golang;

/// A value that errors print.
pub(super) trait Show {
    /// Formats the value as Go does: strings quoted, numbers plain, everything else as JSON.
    fn show(&self) -> String;
}

impl Show for str {
    fn show(&self) -> String {
        golang::quote(self)
    }
}

impl Show for String {
    fn show(&self) -> String {
        self.as_str().show()
    }
}

impl Show for i64 {
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Show for usize {
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Show for bool {
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Show for Value {
    fn show(&self) -> String {
        golang::value(self)
    }
}

/// Text that is printed as it is.
pub(super) struct Raw(pub(super) String);

impl Show for Raw {
    fn show(&self) -> String {
        self.0.clone()
    }
}

/// A Go struct as `%v` prints it: all fields, in their order, capitalized.
pub(super) struct GoStruct(String);

impl GoStruct {
    pub(super) fn new(value: &Value, fields: &[&str]) -> Self {
        let fields: Vec<String> = fields
            .iter()
            .map(|field| {
                let mut letters = field.chars();
                let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
                let shown = value.get(*field).unwrap_or(&Value::Null);
                format!("\"{first}{}\":{}", letters.as_str(), golang::json(shown))
            })
            .collect();
        Self(format!("{{{}}}", fields.join(",")))
    }
}

impl Show for GoStruct {
    fn show(&self) -> String {
        self.0.clone()
    }
}

/// The errors of an object.
#[derive(Debug, Default)]
pub(super) struct Errors(pub(super) Vec<Cause>);

impl Errors {
    fn add(&mut self, reason: &'static str, at: &At<'_>, head: String, detail: &str) {
        let message = if detail.is_empty() { head } else { format!("{head}: {detail}") };
        self.0.push(Cause { reason, message, field: at.to_string() });
    }

    /// A required value is missing.
    pub(super) fn required(&mut self, at: &At<'_>, detail: &str) {
        self.add("FieldValueRequired", at, "Required value".into(), detail);
    }

    /// A malformed value.
    pub(super) fn invalid<T: Show + ?Sized>(&mut self, at: &At<'_>, value: &T, detail: &str) {
        self.add("FieldValueInvalid", at, format!("Invalid value: {}", value.show()), detail);
    }

    /// A malformed value that is not printed.
    pub(super) fn invalid_hidden(&mut self, at: &At<'_>, detail: &str) {
        self.add("FieldValueInvalid", at, "Invalid value".into(), detail);
    }

    /// Several errors about one value.
    pub(super) fn invalid_all<T: Show + ?Sized>(&mut self, at: &At<'_>, value: &T, details: Vec<String>) {
        details.iter().for_each(|detail| self.invalid(at, value, detail));
    }

    /// A value that is not one of `supported`.
    pub(super) fn unsupported(&mut self, at: &At<'_>, value: &str, supported: &[&str]) {
        let values: Vec<String> = supported.iter().map(|one| one.show()).collect();
        let detail = format!("supported values: {}", values.join(", "));
        self.add("FieldValueNotSupported", at, format!("Unsupported value: {}", value.show()), &detail);
    }

    /// The same for a value that is not a string.
    pub(super) fn unsupported_value<T: Show + ?Sized>(&mut self, at: &At<'_>, value: &T, supported: &[&str]) {
        let values: Vec<String> = supported.iter().map(|one| one.show()).collect();
        let detail = format!("supported values: {}", values.join(", "));
        self.add("FieldValueNotSupported", at, format!("Unsupported value: {}", value.show()), &detail);
    }

    /// A value that is not permitted here.
    pub(super) fn forbidden(&mut self, at: &At<'_>, detail: &str) {
        self.add("FieldValueForbidden", at, "Forbidden".into(), detail);
    }

    /// A duplicate of a value that must be unique.
    pub(super) fn duplicate<T: Show + ?Sized>(&mut self, at: &At<'_>, value: &T) {
        self.add("FieldValueDuplicate", at, format!("Duplicate value: {}", value.show()), "");
    }

    /// The same, with a detail.
    pub(super) fn duplicate_because<T: Show + ?Sized>(&mut self, at: &At<'_>, value: &T, detail: &str) {
        self.add("FieldValueDuplicate", at, format!("Duplicate value: {}", value.show()), detail);
    }

    /// A reference to something that does not exist.
    pub(super) fn not_found<T: Show + ?Sized>(&mut self, at: &At<'_>, value: &T) {
        self.add("FieldValueNotFound", at, format!("Not found: {}", value.show()), "");
    }

    /// The same, with a detail.
    pub(super) fn not_found_because<T: Show + ?Sized>(&mut self, at: &At<'_>, value: &T, detail: &str) {
        self.add("FieldValueNotFound", at, format!("Not found: {}", value.show()), detail);
    }

    /// A string that is too long.
    pub(super) fn too_long(&mut self, at: &At<'_>, most: usize) {
        self.add("FieldValueTooLong", at, "Too long".into(), &format!("may not be more than {most} bytes"));
    }

    /// A list that is too long.
    pub(super) fn too_many(&mut self, at: &At<'_>, actual: usize, most: usize) {
        let items = if most == 1 { "item" } else { "items" };
        self.add("FieldValueTooMany", at, format!("Too many: {actual}"), &format!("must have at most {most} {items}"));
    }

    /// A change of an immutable field.
    pub(super) fn immutable(&mut self, at: &At<'_>, new: &Value, old: &Value) {
        if new != old {
            self.invalid(at, new, "field is immutable");
        }
    }

    /// The same for kinds with declarative validation, which does not print the value.
    pub(super) fn declared_immutable(&mut self, at: &At<'_>, new: &Value, old: &Value) {
        if new != old {
            self.invalid(at, &Value::Null, "field is immutable");
        }
    }
}
