//! Decoding of request bodies as Go's decoder does it.
//!
//! kube-apiserver decodes built-in kinds into Go structs: a value of the wrong type is a decoder error, unknown fields
//! are dropped, and absent or zero fields are encoded by the struct's tags ([`capstan_schema::Absent`]).

use std::fmt;

use capstan_schema::Absent;
use capstan_semantics::field::At;
use jiff::Timestamp;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value, json};

use super::{Schema, Type, prune};

/// Parsed JSON, with the paths of duplicate fields, of which the last one is kept.
#[derive(Debug)]
pub struct Parsed {
    /// The value.
    pub value: Value,
    /// Paths of duplicate fields, in order.
    pub duplicates: Vec<String>,
}

/// Parses JSON.
pub fn parse(text: &[u8]) -> Result<Parsed, serde_json::Error> {
    let mut duplicates = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = Node { path: At::root(), duplicates: &mut duplicates }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(Parsed { value, duplicates })
}

/// Deserializes one value and records duplicates below it.
struct Node<'a> {
    path: At<'a>,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let Self { path, duplicates } = self;
        let mut items = Vec::new();
        loop {
            let path = path.index(items.len());
            match access.next_element_seed(Node { path, duplicates: &mut *duplicates })? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let Self { path, duplicates } = self;
        let mut fields = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            let path = path.child(&name);
            if fields.contains_key(&name) {
                let text = path.to_string();
                if !duplicates.contains(&text) {
                    duplicates.push(text);
                }
            }
            let value = access.next_value_seed(Node { path, duplicates: &mut *duplicates })?;
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

/// Normalizes a built-in object to the form in which Kubernetes encodes it; returns the paths of unknown fields.
///
/// Errors are worded as by Go's decoder.
pub fn typed(schema: &Schema, value: &mut Value) -> Result<Vec<String>, String> {
    check(schema, value, &mut Place::default())?;
    let unknown = prune::builtin(schema, value);
    shape(schema, value);
    Ok(unknown)
}

/// Decoder position: the struct, and the field names on the path.
#[derive(Default)]
struct Place<'a> {
    names: Vec<&'a str>,
    structs: Vec<&'a str>,
}

impl Place<'_> {
    fn mismatch(&self, found: &str, wanted: &str) -> String {
        match self.structs.last() {
            Some(owner) => {
                let path = self.names.join(".");
                format!("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}")
            }
            None => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
        }
    }
}

fn check<'a>(schema: &'a Schema, value: &'a Value, place: &mut Place<'a>) -> Result<(), String> {
    if value.is_null() || schema.type_ == Type::Any {
        return Ok(());
    }
    match (last_segment(&schema.name), value) {
        ("Time" | "MicroTime", Value::String(text)) => return check_time(text),
        ("Quantity", value) => return check_quantity(value),
        ("IntOrString", Value::String(_) | Value::Number(_)) => return Ok(()),
        ("RawExtension" | "FieldsV1" | "JSON", _) => return Ok(()),
        _ => {}
    }
    match (schema.type_, value) {
        (Type::Object, Value::Object(fields)) => check_fields(schema, fields, place),
        (Type::Array, Value::Array(items)) => {
            let Some(child) = schema.items() else { return Ok(()) };
            items.iter().try_for_each(|item| check(child, item, place))
        }
        (Type::String, Value::String(text)) if schema.source["format"] == "byte" => check_base64(text),
        (Type::String, Value::String(_)) | (Type::Boolean, Value::Bool(_)) | (Type::Number, Value::Number(_)) => Ok(()),
        (Type::Integer, Value::Number(number)) => {
            let wanted = go_type(schema);
            let fits = match wanted.as_str() {
                "int32" => number.as_i64().is_some_and(|whole| i32::try_from(whole).is_ok()),
                _ => number.is_i64(),
            };
            if fits { Ok(()) } else { Err(place.mismatch(&format!("number {number}"), &wanted)) }
        }
        _ => Err(place.mismatch(found(value), &go_type(schema))),
    }
}

fn check_fields<'a>(schema: &'a Schema, fields: &'a Map<String, Value>, place: &mut Place<'a>) -> Result<(), String> {
    let structure = !schema.properties.is_empty();
    if structure {
        place.structs.push(last_segment(&schema.name));
    }
    for (name, value) in fields {
        let Some(child) = schema.child(name) else { continue };
        // Go reports the struct fields on the path, but not map keys.
        if structure {
            place.names.push(name);
        }
        check(child, value, place)?;
        if structure {
            place.names.pop();
        }
    }
    if structure {
        place.structs.pop();
    }
    Ok(())
}

fn found(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn last_segment(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The Go type of a node in errors.
fn go_type(schema: &Schema) -> String {
    let mut parts = schema.name.rsplit('.');
    if let (Some(kind), Some(package)) = (parts.next().filter(|kind| !kind.is_empty()), parts.next()) {
        return format!("{package}.{kind}");
    }
    match schema.type_ {
        Type::String => "string".into(),
        Type::Boolean => "bool".into(),
        Type::Number => "float64".into(),
        Type::Integer if schema.source["format"] == "int32" => "int32".into(),
        Type::Integer => "int64".into(),
        Type::Array => format!("[]{}", schema.items().map_or("interface {}".into(), go_type)),
        Type::Object => format!("map[string]{}", schema.additional().map_or("interface {}".into(), go_type)),
        Type::IntOrString => "intstr.IntOrString".into(),
        Type::Any => "interface {}".into(),
    }
}

fn check_time(text: &str) -> Result<(), String> {
    if text.parse::<Timestamp>().is_ok() {
        return Ok(());
    }
    // Go reports where in the layout parsing failed; usually at the start.
    Err(format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""))
}

fn check_quantity(value: &Value) -> Result<(), String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::from("?"),
    };
    let digits = text.trim_start_matches(['+', '-']);
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    let exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|power| power.parse::<i32>().is_ok());
    const SUFFIXES: &[&str] = &["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let one_sign = text.len() - digits.len() <= 1;
    let has_digit = number.bytes().any(|byte| byte.is_ascii_digit());
    if !one_sign
        || !has_digit
        || number.matches('.').count() > 1
        || !suffix.chars().all(|c| "eEinumkKMGTP+-0123456789".contains(c))
    {
        let pattern = "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        return Err(format!("quantities must match the regular expression {pattern}"));
    }
    if exponent || SUFFIXES.contains(&suffix) { Ok(()) } else { Err("unable to parse quantity's suffix".into()) }
}

fn check_base64(text: &str) -> Result<(), String> {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    let clean: String = text.chars().filter(|c| *c != '\n' && *c != '\r').collect();
    STANDARD.decode(&clean).map(drop).map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            _ => clean.trim_end_matches('=').len() / 4 * 4,
        };
        format!("illegal base64 data at input byte {at}")
    })
}

/// Encodes absent and zero fields as a Go struct would.
fn shape(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) if !schema.properties.is_empty() => {
            fields.retain(|name, value| match schema.property(name) {
                Some(child) => shape_field(schema.absent.get(name).copied(), child, value),
                None => true,
            });
            add_absent(schema, fields);
        }
        Value::Object(fields) => {
            let Some(child) = schema.additional() else { return };
            for value in fields.values_mut() {
                if value.is_null() {
                    *value = zero(child);
                }
                shape(child, value);
            }
        }
        Value::Array(items) => {
            let Some(child) = schema.items() else { return };
            for item in items {
                if item.is_null() {
                    *item = zero(child);
                }
                shape(child, item);
            }
        }
        _ => {}
    }
}

/// Encodes a field as Go would. False: Go omits it.
fn shape_field(absent: Option<Absent>, child: &Schema, value: &mut Value) -> bool {
    let absent = absent.unwrap_or(Absent::Kept);
    if value.is_null() {
        if absent == Absent::Zero {
            *value = zero(child);
        }
        return matches!(absent, Absent::Null | Absent::Zero);
    }
    shape(child, value);
    match absent {
        Absent::Dropped => !is_zero(child, value) || distinguishes_empty_list(child),
        // The storage encoding (protobuf) does not distinguish an empty list from none.
        Absent::Zero if value.as_array().is_some_and(Vec::is_empty) => {
            *value = Value::Null;
            true
        }
        _ => true,
    }
}

/// Adds the fields that Go always encodes.
fn add_absent(schema: &Schema, fields: &mut Map<String, Value>) {
    for (name, absent) in &schema.absent {
        let value: fn(&Schema) -> Value = match absent {
            Absent::Null => |_| Value::Null,
            Absent::Zero => zero,
            Absent::Kept | Absent::Dropped => continue,
        };
        if let Some(child) = schema.property(name).filter(|_| !fields.contains_key(name)) {
            fields.insert(name.clone(), value(child));
        }
    }
}

/// Whether an absent list is defaulted and an empty one is invalid: only in autoscalers.
fn distinguishes_empty_list(list: &Schema) -> bool {
    list.items().is_some_and(|item| last_segment(&item.name) == "HPAScalingPolicy")
}

fn is_zero(schema: &Schema, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        // A present struct is never empty; only maps can be.
        Value::Object(fields) => fields.is_empty() && schema.properties.is_empty(),
    }
}

/// Go's encoding of an unset field.
fn zero(schema: &Schema) -> Value {
    match (last_segment(&schema.name), schema.type_) {
        ("Quantity", _) => "0".into(),
        ("IntOrString", _) => 0.into(),
        (_, Type::String) if schema.name.is_empty() && schema.source["format"] != "byte" => "".into(),
        (_, Type::Integer | Type::Number) => 0.into(),
        (_, Type::Boolean) => false.into(),
        (_, Type::Object) if !schema.properties.is_empty() => {
            let mut value = json!({});
            shape(schema, &mut value);
            value
        }
        // Structs without known fields; timestamps, lists, maps and raw values are null.
        (name, Type::Object) if !schema.name.is_empty() && name != "RawExtension" && name != "FieldsV1" => json!({}),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::definition;

    fn read(kind: &str, mut value: Value) -> Result<Value, String> {
        typed(definition(kind).expect("a built-in kind"), &mut value).map(|_| value)
    }

    #[test]
    fn duplicates_are_found_and_the_last_one_counts() {
        let parsed = parse(br#"{"a": 1, "b": [{"c": 1, "c": 2}], "a": 3}"#).expect("JSON");
        assert_eq!(parsed.value, json!({"a": 3, "b": [{"c": 2}]}));
        assert_eq!(parsed.duplicates, ["b[0].c", "a"]);
        assert!(parse(b"{} x").is_err());
    }

    #[test]
    fn wrong_types_are_told_in_the_words_of_the_decoder() {
        let deployment = "io.k8s.api.apps.v1.Deployment";
        for (value, error) in [
            (
                json!({"spec": {"replicas": "1"}}),
                "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                json!({"spec": {"replicas": 1.5}}),
                "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                json!({"spec": {"template": {"spec": {"containers": {}}}}}),
                "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
            ),
            (
                json!({"spec": {"template": {"spec": {"containers": [{"ports": [{"containerPort": "x"}]}]}}}}),
                "json: cannot unmarshal string into Go struct field ContainerPort.spec.template.spec.containers.ports.containerPort of type int32",
            ),
            (
                json!({"metadata": {"labels": {"a": 1}}}),
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            (
                json!({"metadata": {"creationTimestamp": "x"}}),
                r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#,
            ),
        ] {
            assert_eq!(read(deployment, value), Err(error.to_owned()));
        }
    }

    #[test]
    fn objects_are_written_back_as_go_writes_them() {
        let pod = read(
            "io.k8s.api.core.v1.Pod",
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {}, "creationTimestamp": null},
                "spec": {"hostNetwork": false, "terminationGracePeriodSeconds": 0, "volumes": [{"name": "v", "emptyDir": {}}],
                    "containers": [{"name": "c", "args": [], "unknown": 1}]},
            }),
        );
        assert_eq!(
            pod,
            Ok(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
                "spec": {"terminationGracePeriodSeconds": 0, "volumes": [{"name": "v", "emptyDir": {}}],
                    "containers": [{"name": "c", "resources": {}}]},
                "status": {},
            }))
        );
    }

    #[test]
    fn quantities() {
        for good in [json!("100m"), json!("1.5Gi"), json!(2), json!("1e3"), json!("-1"), json!(".5")] {
            assert_eq!(check_quantity(&good), Ok(()), "{good}");
        }
        assert_eq!(check_quantity(&json!("1Gb")).map_err(|error| error.starts_with("quantities must")), Err(true));
        assert_eq!(check_quantity(&json!("1iM")), Err("unable to parse quantity's suffix".to_owned()));
    }

    #[test]
    fn reading_twice_changes_nothing() {
        for resource in crate::registry::builtin::resources() {
            let mut once = json!({"apiVersion": resource.api_version(), "kind": &*resource.kind});
            typed(resource.schema(), &mut once).expect("an empty object can be read");
            let mut twice = once.clone();
            typed(resource.schema(), &mut twice).expect("what was written can be read");
            assert_eq!(once, twice, "{}", resource.kind);
        }
    }
}
