//! Which parts of an object are kept: of objects that are many, what nobody reads is dropped before it is stored.

use serde_json::{Map, Value};

/// A field that is kept, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    All(&'static str),
    /// Parts of it.
    Of(&'static str, &'static [Part]),
    /// Entries of a map whose keys begin with one of these.
    Starting(&'static str, &'static [&'static str]),
    /// Entries of a map whose keys begin with none of these.
    Besides(&'static str, &'static [&'static str]),
    /// Items of a list of one of these types.
    Typed(&'static str, &'static [&'static str]),
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::All(name) | Self::Of(name, _) => name,
            Self::Starting(name, _) | Self::Besides(name, _) | Self::Typed(name, _) => name,
        }
    }

    fn trim(self, value: &mut Value) {
        let starts = |key: &str, with: &[&str]| with.iter().any(|prefix| key.starts_with(prefix));
        match (self, value) {
            (Self::Of(_, parts), Value::Object(fields)) => only(fields, parts),
            (Self::Starting(_, with), Value::Object(fields)) => fields.retain(|key, _| starts(key, with)),
            (Self::Besides(_, with), Value::Object(fields)) => fields.retain(|key, _| !starts(key, with)),
            (Self::Typed(_, types), Value::Array(items)) => {
                items.retain(|item| item["type"].as_str().is_some_and(|one| types.contains(&one)));
                items.shrink_to_fit();
            }
            _ => {}
        }
    }
}

/// Drops everything but `parts`.
pub(crate) fn only(fields: &mut Map<String, Value>, parts: &[Part]) {
    fields.retain(|name, value| match parts.iter().find(|part| part.name() == name) {
        Some(part) => {
            part.trim(value);
            true
        }
        None => false,
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_are_kept_and_the_rest_goes() {
        let parts = &[
            Part::All("name"),
            Part::Of("spec", &[Part::All("a")]),
            Part::Starting("notes", &["ours/"]),
            Part::Besides("labels", &["noise/"]),
            Part::Typed("conditions", &["Ready"]),
        ];
        let mut object = json!({
            "name": "n", "other": 1, "spec": {"a": {"deep": true}, "b": 2}, "notes": {"ours/x": "1", "theirs/x": "2"},
            "labels": {"noise/x": "1", "x": "2"}, "conditions": [{"type": "Ready", "k": 1}, {"type": "Other"}, 3],
        });
        only(object.as_object_mut().unwrap(), parts);
        assert_eq!(
            object,
            json!({
                "name": "n", "spec": {"a": {"deep": true}}, "notes": {"ours/x": "1"}, "labels": {"x": "2"},
                "conditions": [{"type": "Ready", "k": 1}],
            })
        );
    }

    #[test]
    fn a_field_of_another_shape_is_kept_as_it_is() {
        let mut object = json!({"spec": null, "conditions": "text"});
        only(object.as_object_mut().unwrap(), &[Part::Of("spec", &[]), Part::Typed("conditions", &[])]);
        assert_eq!(object, json!({"spec": null, "conditions": "text"}));
    }
}
