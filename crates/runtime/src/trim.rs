//! Trimming: of numerous objects, unused fields are dropped before they are stored, and most are not even decoded.

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// A field to keep, and how much of it.
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
    /// Parts of every item of a list.
    Each(&'static str, &'static [Part]),
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::All(name) | Self::Of(name, _) | Self::Each(name, _) => name,
            Self::Starting(name, _) | Self::Besides(name, _) | Self::Typed(name, _) => name,
        }
    }

    fn trim(self, value: &mut Value) {
        let starts = |key: &str, with: &[&str]| with.iter().any(|prefix| key.starts_with(prefix));
        match (self, value) {
            (Self::Of(_, parts), Value::Object(fields)) => only(fields, parts),
            (Self::Each(_, parts), Value::Array(items)) => {
                items.iter_mut().filter_map(Value::as_object_mut).for_each(|fields| only(fields, parts));
            }
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

/// Decodes an object: only `parts` if given, and never `managedFields`. Skipped fields cost little more than finding
/// their end. If `read_on` returns false for the metadata, the fields after it are skipped too; servers write metadata
/// first.
pub(crate) fn read(
    text: &str,
    parts: Option<&'static [Part]>,
    read_on: &dyn Fn(&Value) -> bool,
) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let object = TrimmingVisitor { parts, depth: 0, read_on }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(object)
}

/// Decodes a value without the unwanted fields.
#[derive(Clone, Copy)]
struct TrimmingVisitor<'a> {
    parts: Option<&'static [Part]>,
    /// 0 for the object, 1 for its metadata, more for everything else.
    depth: usize,
    /// Whether to decode the rest, given the metadata.
    read_on: &'a dyn Fn(&Value) -> bool,
}

impl TrimmingVisitor<'_> {
    /// How a field is decoded; `None` if it is skipped.
    fn field(self, name: &str) -> Option<Self> {
        let depth = if self.depth == 0 && name == "metadata" { 1 } else { 2 };
        if self.depth == 1 && name == "managedFields" {
            return None;
        }
        let Some(parts) = self.parts else { return Some(Self { parts: None, depth, ..self }) };
        let parts = match parts.iter().find(|part| part.name() == name)? {
            Part::Of(_, parts) | Part::Each(_, parts) => Some(*parts),
            _ => None,
        };
        Some(Self { parts, depth, ..self })
    }

    fn reads_all(self) -> bool {
        self.parts.is_none() && self.depth == 2
    }
}

impl<'de> DeserializeSeed<'de> for TrimmingVisitor<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.reads_all() { Value::deserialize(deserializer) } else { deserializer.deserialize_any(self) }
    }
}

impl<'de> Visitor<'de> for TrimmingVisitor<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        let mut reading = true;
        while let Some(wanted) = map.next_key_seed(Name(self))? {
            match wanted.filter(|_| reading) {
                Some((name, visitor)) => {
                    let value = map.next_value_seed(visitor)?;
                    reading = visitor.depth != 1 || (self.read_on)(&value);
                    fields.insert(name, value);
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::Object(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
}

/// Decodes a field name, which is allocated only if the field is decoded.
struct Name<'a>(TrimmingVisitor<'a>);

impl<'de, 'a> DeserializeSeed<'de> for Name<'a> {
    type Value = Option<(String, TrimmingVisitor<'a>)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Name<'a> {
    type Value = Option<(String, TrimmingVisitor<'a>)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.field(name).map(|visitor| (name.to_owned(), visitor)))
    }
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

    #[test]
    fn what_is_not_wanted_is_not_even_read() {
        let parts = &[
            Part::Of("metadata", &[Part::All("name"), Part::All("managedFields")]),
            Part::Of("spec", &[Part::All("a"), Part::Each("list", &[Part::All("x")])]),
            Part::All("status"),
        ];
        let object = json!({
            "metadata": {"name": "n", "managedFields": [{"manager": "m"}], "uid": "u"},
            "spec": {"a": [1, -2, 2.5, null, true], "b": {"deep": []}, "list": [{"x": 1, "y": 2}, 3, {"y": 4}]},
            "status": {"managedFields": "not those", "text": "caf\u{e9}"},
            "other": 1,
        });
        let text = object.to_string();
        let sieved = json!({
            "metadata": {"name": "n"},
            "spec": {"a": [1, -2, 2.5, null, true], "list": [{"x": 1}, 3, {}]},
            "status": {"managedFields": "not those", "text": "caf\u{e9}"},
        });
        assert_eq!(read(&text, Some(parts), &|_| true).unwrap(), sieved);
        let mut whole = object;
        whole["metadata"].as_object_mut().unwrap().remove("managedFields");
        assert_eq!(read(&text, None, &|_| true).unwrap(), whole);
    }

    #[test]
    fn of_what_is_no_news_only_the_metadata_are_read() {
        let text = r#"{"kind": "A", "metadata": {"name": "n", "labels": {"metadata": "x"}}, "spec": {"a": 1}}"#;
        let named = |wanted: &'static str| move |metadata: &Value| metadata["name"] == wanted;
        assert_eq!(read(text, None, &named("n")).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        let head = json!({"kind": "A", "metadata": {"name": "n", "labels": {"metadata": "x"}}});
        assert_eq!(read(text, None, &named("other")).unwrap(), head);
    }

    #[test]
    fn what_is_no_json_is_refused_even_where_it_is_not_wanted() {
        for text in [r#"{"other": [1,}"#, r#"{"status": {}} more"#, ""] {
            assert!(read(text, Some(&[Part::All("status")]), &|_| true).is_err(), "{text}");
        }
    }
}
