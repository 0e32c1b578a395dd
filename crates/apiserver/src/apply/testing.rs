//! Test fixtures: a custom kind with every type of list and map, and random objects of it.

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::managed::{self, Force, Reset, Versions, Write};
use crate::error::Status;
use crate::schema::{self, Schema};

/// Any small JSON value.
pub(crate) fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3i64).prop_map(Value::from),
        "[a-c]".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

/// The kind `Widget` in `example.com/v1`.
pub(crate) struct Widget(Schema);

impl Versions for Widget {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        (api_version == "example.com/v1").then_some(&self.0)
    }
}

impl Widget {
    pub(crate) fn new() -> Self {
        let text = json!({"type": "string"});
        let item = json!({
            "type": "object", "required": ["name"],
            "properties": {"name": text, "value": text, "more": text},
        });
        let port = json!({
            "type": "object", "required": ["port"],
            "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": text},
        });
        Self(schema::compile(&json!({
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {
                        "size": {"type": "integer"},
                        "color": text,
                        "tags": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
                        "words": {"type": "array", "items": text},
                        "labels": {"type": "object", "additionalProperties": text},
                        "selector": {
                            "type": "object", "x-kubernetes-map-type": "atomic", "properties": {"app": text, "tier": text},
                        },
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "items": {
                            "type": "array", "items": item,
                            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                        },
                        "ports": {
                            "type": "array", "items": port,
                            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                        },
                    },
                },
                "status": {"type": "object", "properties": {"phase": text}},
            },
        })))
    }

    /// Runs `action` as a write of `manager` at minute `minute`.
    pub(crate) fn write<T>(&self, manager: &str, minute: i64, action: impl FnOnce(&Write<'_>) -> T) -> T {
        let reset = Reset::custom("", true);
        let now = Timestamp::from_second(1_700_000_000 + 60 * minute).expect("in range");
        let (api_version, kind, subresource) = ("example.com/v1", "Widget", "");
        action(&Write { versions: self, api_version, kind, manager, subresource, reset: &reset, now })
    }

    /// `live` after `manager` applied an object with `spec`.
    pub(crate) fn apply(
        &self,
        live: Option<&Value>,
        manager: &str,
        minute: i64,
        spec: &Value,
        force: Force,
    ) -> Result<Value, Status> {
        self.write(manager, minute, |write| managed::apply(live, &object(spec), write, force)).map(stored)
    }

    /// `live` after `manager` replaced it by an object with `spec`.
    pub(crate) fn update(&self, live: Option<&Value>, manager: &str, minute: i64, spec: &Value) -> Value {
        stored(self.write(manager, minute, |write| managed::update(live, object(spec), write)))
    }
}

/// A widget with `spec`.
pub(crate) fn object(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

fn stored(mut object: Value) -> Value {
    object["metadata"]["uid"] = "u".into();
    object
}

/// Any spec, with unique keys. Without nulls and empty values, to which the laws do not apply.
pub(crate) fn spec() -> impl Strategy<Value = Value> {
    let text = || "[a-c]".prop_map(Value::from);
    let names = || proptest::sample::subsequence(vec!["one", "two", "three"], 1..=3).prop_shuffle();
    let map =
        |value: BoxedStrategy<Value>| prop::collection::btree_map("[a-c]", value, 1..3).prop_map(|map| json!(map));
    let item = (proptest::option::of(text()), proptest::option::of(text()));
    let items = (names(), prop::collection::vec(item, 3)).prop_map(|(names, items)| {
        let item = |(name, (value, more)): (&str, (Option<Value>, Option<Value>))| {
            let fields = [("name", Some(name.into())), ("value", value), ("more", more)];
            Value::Object(fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
        };
        Value::Array(names.into_iter().zip(items).map(item).collect())
    });
    let ports = proptest::sample::subsequence(vec![(80, None), (80, Some("UDP")), (443, Some("TCP"))], 1..=3);
    let ports = ports.prop_map(|ports| {
        let port = |(port, protocol): (i64, Option<&str>)| match protocol {
            Some(protocol) => json!({"port": port, "protocol": protocol}),
            None => json!({"port": port}),
        };
        Value::Array(ports.into_iter().map(port).collect())
    });
    let tags =
        proptest::sample::subsequence(vec!["a", "b", "c", "d"], 1..=3).prop_shuffle().prop_map(|tags| json!(tags));
    let free = prop_oneof![text(), (0..3i64).prop_map(Value::from), map(text().boxed())];
    let fields: Vec<(&str, BoxedStrategy<Value>)> = vec![
        ("size", (0..3i64).prop_map(Value::from).boxed()),
        ("color", text().boxed()),
        ("tags", tags.boxed()),
        ("words", prop::collection::vec(text(), 1..3).prop_map(Value::from).boxed()),
        ("labels", map(text().boxed()).boxed()),
        ("selector", text().prop_map(|app| json!({"app": app})).boxed()),
        ("free", map(free.boxed()).boxed()),
        ("items", items.boxed()),
        ("ports", ports.boxed()),
    ];
    let (names, values): (Vec<&str>, Vec<BoxedStrategy<Value>>) = fields.into_iter().unzip();
    let optional: Vec<_> = values.into_iter().map(proptest::option::of).collect();
    optional.prop_map(move |values| {
        let mut spec = Map::new();
        for (name, value) in names.iter().zip(values) {
            if let Some(value) = value {
                spec.insert((*name).to_owned(), value);
            }
        }
        if spec.is_empty() {
            spec.insert("size".into(), 0.into());
        }
        Value::Object(spec)
    })
}
