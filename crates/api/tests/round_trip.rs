//! Decoding loses nothing: objects generated at random from each kind's own schema survive a round trip.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_api::crd::Entry;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Map, Value, json};

/// Depth up to which optional fields are filled in; below, only required ones.
const DEPTH: usize = 9;

struct Generator {
    rng: TestRng,
}

impl Generator {
    fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Self { rng: TestRng::from_seed(RngAlgorithm::ChaCha, &bytes) }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound
    }

    fn object(&mut self, kind: &Entry) -> Value {
        let mut object = self.value(&kind.described(), 0);
        object["apiVersion"] = format!("{}/{}", kind.group, kind.version).into();
        object["kind"] = kind.kind.into();
        object["metadata"] = json!({"name": "x"});
        object
    }

    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        if let Some(values) = schema["enum"].as_array() {
            return values[self.below(values.len() as u64) as usize].clone();
        }
        if schema["x-kubernetes-int-or-string"] == true {
            return if self.below(2) == 0 { json!(self.below(1000)) } else { json!("2") };
        }
        match schema["type"].as_str() {
            Some("object") => self.fields(schema, depth),
            Some("array") => {
                let items = self.below(3);
                (0..items).map(|_| self.value(&schema["items"], depth + 1)).collect()
            }
            Some("integer") => json!(self.below(4)),
            Some("number") => json!(self.below(1000) as f64 / 8.0),
            Some("boolean") => json!(self.below(2) == 0),
            Some("string") => match schema["format"].as_str() {
                Some("date-time") => "2026-01-02T03:04:05Z".into(),
                Some("byte") => "aGk=".into(),
                _ => ["", "a", "b/c", "é"][self.below(4) as usize].into(),
            },
            _ => json!({"any": ["thing", 1, null]}),
        }
    }

    fn fields(&mut self, schema: &Value, depth: usize) -> Value {
        let mut object = Map::new();
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let required = schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
            if required || (depth < DEPTH && self.below(3) == 0) {
                object.insert(name.clone(), self.value(field, depth + 1));
            }
        }
        if schema["additionalProperties"].is_object() {
            for key in ["k", "example.com/key"] {
                if self.below(2) == 0 {
                    object.insert(key.into(), self.value(&schema["additionalProperties"], depth + 1));
                }
            }
        } else if schema["x-kubernetes-preserve-unknown-fields"] == true {
            object.insert("unknownField".into(), json!([{"kept": true}]));
        }
        Value::Object(object)
    }
}

/// Finds a path of `wrote` that `read` lacks. A number may have become a string where a quantity is meant.
fn lost(wrote: &Value, read: &Value, path: &str) -> Option<String> {
    match (wrote, read) {
        (Value::Object(wrote), Value::Object(read)) => wrote.iter().find_map(|(name, value)| {
            let here = format!("{path}.{name}");
            match read.get(name) {
                Some(found) => lost(value, found, &here),
                None => Some(here),
            }
        }),
        (Value::Array(wrote), Value::Array(read)) if wrote.len() == read.len() => wrote
            .iter()
            .zip(read)
            .enumerate()
            .find_map(|(index, (wrote, read))| lost(wrote, read, &format!("{path}[{index}]"))),
        (Value::Number(wrote), Value::String(read)) if wrote.to_string() == *read => None,
        (Value::Number(wrote), Value::Number(read)) if wrote.as_f64() == read.as_f64() => None,
        _ if wrote == read => None,
        _ => Some(format!("{path}: wrote {wrote}, read {read}")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_a_user_wrote_is_lost(seed: u64) {
        for kind in capstan_api::kinds() {
            let wrote = Generator::new(seed).object(kind);
            let read = kind.round_trip(wrote.clone());
            let read = read.map_err(|error| TestCaseError::fail(format!("{}: {error}\n{wrote:#}", kind.kind)))?;
            prop_assert_eq!(lost(&wrote, &read, kind.kind), None);
            // A second round trip changes nothing.
            prop_assert_eq!(kind.round_trip(read.clone()).ok(), Some(read));
        }
    }
}

#[test]
fn an_object_without_spec_is_read_where_the_api_allows_it() {
    for kind in capstan_api::kinds() {
        let bare = json!({"apiVersion": format!("{}/{}", kind.group, kind.version), "kind": kind.kind, "metadata": {"name": "x"}});
        let spec_is_required = kind.described()["required"] == json!(["spec"]);
        assert_eq!(kind.round_trip(bare).is_err(), spec_is_required, "{}", kind.kind);
    }
}

#[test]
fn nulls_read_as_absent() {
    for kind in capstan_api::kinds() {
        let schema = kind.described();
        let required = &schema["properties"]["spec"]["required"];
        let fields = schema["properties"]["spec"]["properties"].as_object().cloned().unwrap_or_default();
        let optional = |name: &str| !required.as_array().is_some_and(|all| all.iter().any(|one| one == name));
        let nulls = fields.keys().filter(|name| optional(name)).map(|name| (name.clone(), Value::Null));
        let mut object = Generator::new(1).object(kind);
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.extend(nulls);
            assert!(kind.round_trip(object).is_ok(), "{}", kind.kind);
        }
    }
}

#[test]
fn another_kind_is_refused() {
    let object = json!({"apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMCache", "metadata": {"name": "x"}});
    let service = capstan_api::kinds().find(|kind| kind.kind == "NIMService").unwrap();
    let error = service.round_trip(object).unwrap_err().to_string();
    assert_eq!(error, r#"kind is "NIMCache", expected "NIMService""#);
}
