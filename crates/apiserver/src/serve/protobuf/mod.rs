//! Decoding of protobuf request bodies, as sent by Go clients with generated types, such as kubectl. Responses are
//! JSON, which these clients accept as well.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::error::{Result, Status};
use crate::registry::builtin::definition_name;
use crate::registry::group_version;

/// Magic prefix of a body.
const MAGIC: &[u8] = b"k8s\0";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

const SCHEMA_OR: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOr";

/// A field of a message.
#[derive(Debug)]
struct Field {
    name: &'static str,
    kind: Kind,
    shape: Shape,
    /// Whether a zero value means absent.
    sparse: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    One,
    List,
    Map,
}

#[derive(Debug)]
enum Kind {
    Text,
    Bytes,
    Integer,
    Boolean,
    Double,
    Time,
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
    Raw,
    Message(String),
}

/// Fields by number; a message that is only a list has its items under 0.
type Fields = HashMap<u64, Field>;

static MESSAGES: LazyLock<HashMap<String, Fields>> = LazyLock::new(|| read(include_str!("fields.txt")));

/// A body as JSON text.
pub(super) fn to_json(body: &Bytes) -> Result<Bytes> {
    let value = decode(body).ok_or_else(|| Status::bad_request("the body of the request is no protobuf message"))?;
    Ok(serde_json::to_vec(&value).expect("a JSON value encodes").into())
}

/// Decodes the envelope (`runtime.Unknown`): `apiVersion` and `kind`, then the object.
fn decode(body: &[u8]) -> Option<Value> {
    let mut envelope = Reader(body.strip_prefix(MAGIC)?);
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &b""[..]);
    while let Some((number, wire)) = envelope.next()? {
        match (number, wire) {
            (1, Wire::Bytes(types)) => {
                let mut types = Reader(types);
                while let Some((number, wire)) = types.next()? {
                    match (number, wire) {
                        (1, Wire::Bytes(text)) => api_version = text_of(text)?,
                        (2, Wire::Bytes(text)) => kind = text_of(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let (group, version) = group_version(&api_version);
    let own = definition_name(group, version, &kind);
    // DeleteOptions have the group of the deleted resource.
    let name = if MESSAGES.contains_key(&own) { own } else { format!("{META}{kind}") };
    let mut value = message(&name, raw)?;
    value["apiVersion"] = api_version.into();
    value["kind"] = kind.into();
    Some(value)
}

/// A wire value.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed(u64),
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    /// The next field; `Some(None)` at the end, `None` if the message is malformed.
    fn next(&mut self) -> Option<Option<(u64, Wire<'a>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Fixed(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed(u32::from_le_bytes(self.take(4)?.try_into().ok()?).into()),
            _ => return None,
        };
        Some(Some((tag >> 3, wire)))
    }
}

fn text_of(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

/// Decodes a message. Unknown fields are skipped.
fn message(name: &str, bytes: &[u8]) -> Option<Value> {
    if name.starts_with(SCHEMA_OR) {
        return schema_or(bytes);
    }
    let Some(fields) = MESSAGES.get(name) else { return Some(json!({})) };
    let mut object = Map::new();
    let mut items = Vec::new();
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        if let (1, Some(item)) = (number, fields.get(&0)) {
            items.push(single(&item.kind, &wire)?);
            continue;
        }
        let Some(field) = fields.get(&number) else { continue };
        match field.shape {
            Shape::Map => {
                let Wire::Bytes(entry) = wire else { return None };
                let (key, value) = entry_of(&field.kind, entry)?;
                object.entry(field.name).or_insert_with(|| json!({}))[key] = value;
            }
            Shape::List => {
                let value = single(&field.kind, &wire)?;
                object.entry(field.name).or_insert_with(|| json!([])).as_array_mut()?.push(value);
            }
            Shape::One => {
                let value = single(&field.kind, &wire)?;
                if field.name == "^" {
                    object.extend(value.as_object().cloned().unwrap_or_default());
                } else if !(field.sparse && is_zero(&value)) {
                    object.insert(field.name.to_owned(), value);
                }
            }
        }
    }
    Some(if fields.contains_key(&0) { items.into() } else { object.into() })
}

/// A schema, a list of schemas or strings, or a boolean: the union types of JSON schemas in CRDs.
fn schema_or(bytes: &[u8]) -> Option<Value> {
    let schema = SCHEMA_OR.strip_suffix("Or").expect("that is how it ends");
    let (mut one, mut many, mut allowed) = (None, Vec::new(), None);
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        match (number, wire) {
            (1, Wire::Number(yes)) => allowed = Some(yes != 0),
            (1, Wire::Bytes(bytes)) => one = Some(message(schema, bytes)?),
            (2, Wire::Bytes(bytes)) if allowed.is_some() => one = Some(message(schema, bytes)?),
            (2, Wire::Bytes(bytes)) => many.push(message(schema, bytes).or_else(|| Some(text_of(bytes)?.into()))?),
            _ => {}
        }
    }
    let otherwise = || if many.is_empty() { allowed.unwrap_or(false).into() } else { Value::from(many.clone()) };
    Some(one.unwrap_or_else(otherwise))
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

/// Key and value of a map entry.
fn entry_of(kind: &Kind, bytes: &[u8]) -> Option<(String, Value)> {
    let (mut key, mut value) = (String::new(), None);
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        match (number, wire) {
            (1, Wire::Bytes(text)) => key = text_of(text)?,
            (2, wire) => value = Some(single(kind, &wire)?),
            _ => {}
        }
    }
    let otherwise = || match kind {
        Kind::Text | Kind::Bytes => Value::from(""),
        _ => json!({}),
    };
    Some((key, value.unwrap_or_else(otherwise)))
}

fn single(kind: &Kind, wire: &Wire) -> Option<Value> {
    Some(match (kind, wire) {
        (Kind::Text, Wire::Bytes(text)) => text_of(text)?.into(),
        (Kind::Bytes, Wire::Bytes(bytes)) => BASE64_STANDARD.encode(bytes).into(),
        (Kind::Integer, Wire::Number(number)) => (*number as i64).into(),
        (Kind::Boolean, Wire::Number(number)) => (*number != 0).into(),
        (Kind::Double, Wire::Fixed(bits)) => json!(f64::from_bits(*bits)),
        (Kind::Time, Wire::Bytes(bytes)) => time(bytes, crate::clock::seconds)?,
        (Kind::MicroTime, Wire::Bytes(bytes)) => {
            time(bytes, |time| time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())?
        }
        (Kind::Duration, Wire::Bytes(bytes)) => {
            let [nanoseconds, ..] = numbers(bytes)?;
            format!("{}ns", nanoseconds).into()
        }
        (Kind::Quantity, Wire::Bytes(bytes)) => texts(bytes)?.remove(&1).unwrap_or_default().into(),
        (Kind::IntOrString, Wire::Bytes(bytes)) => match numbers(bytes)? {
            [0, number, ..] => number.into(),
            _ => texts(bytes)?.remove(&3).unwrap_or_default().into(),
        },
        (Kind::Raw, Wire::Bytes(bytes)) => {
            let mut reader = Reader(bytes);
            match reader.next()? {
                Some((1, Wire::Bytes(text))) => serde_json::from_slice(text).ok()?,
                _ => Value::Null,
            }
        }
        (Kind::Message(name), Wire::Bytes(bytes)) => message(name, bytes)?,
        _ => return None,
    })
}

/// A timestamp; `Some(Null)` if the message is empty.
fn time(bytes: &[u8], write: impl FnOnce(Timestamp) -> String) -> Option<Value> {
    if bytes.is_empty() {
        return Some(Value::Null);
    }
    let [seconds, nanoseconds, ..] = numbers(bytes)?;
    let time = Timestamp::new(seconds, i32::try_from(nanoseconds).ok()?).ok()?;
    Some(write(time).into())
}

/// The first three varints of a message.
fn numbers(bytes: &[u8]) -> Option<[i64; 3]> {
    let mut numbers = [0_i64; 3];
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        if let (1..=3, Wire::Number(value)) = (number, wire) {
            numbers[usize::try_from(number).ok()? - 1] = value as i64;
        }
    }
    Some(numbers)
}

/// The strings of a message by field number.
fn texts(bytes: &[u8]) -> Option<HashMap<u64, String>> {
    let mut texts = HashMap::new();
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        if let Wire::Bytes(text) = wire {
            texts.insert(number, text_of(text)?);
        }
    }
    Some(texts)
}

/// Parses the table of messages.
fn read(text: &'static str) -> HashMap<String, Fields> {
    let mut messages = HashMap::new();
    let mut package = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('@') {
            package = name;
            continue;
        }
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let fields = words.clone().filter_map(|word| field(word, package)).collect::<Fields>();
        // `1 []string`: the message is only the list.
        let listed = words.next() == Some("1");
        let fields = match words.next().filter(|_| listed) {
            Some(items) => {
                let kind = kind(items.trim_start_matches("[]"), package);
                Fields::from([(0, Field { name: "", kind, shape: Shape::One, sparse: false })])
            }
            None => fields,
        };
        messages.insert(format!("{package}.{name}"), fields);
    }
    messages
}

fn field(word: &'static str, package: &str) -> Option<(u64, Field)> {
    let (number, rest) = word.split_once(':')?;
    let (name, kind_) = rest.split_once(':')?;
    let sparse = kind_.ends_with('?');
    let kind_ = kind_.trim_end_matches('?');
    let (shape, kind_) = match (kind_.strip_prefix("[]"), kind_.strip_prefix("{}")) {
        (Some(kind), _) => (Shape::List, kind),
        (_, Some(kind)) => (Shape::Map, kind),
        _ => (Shape::One, kind_),
    };
    Some((number.parse().ok()?, Field { name, kind: kind(kind_, package), shape, sparse }))
}

fn kind(text: &str, package: &str) -> Kind {
    match text {
        "string" => Kind::Text,
        "bytes" => Kind::Bytes,
        "int" => Kind::Integer,
        "bool" => Kind::Boolean,
        "double" => Kind::Double,
        "time" => Kind::Time,
        "micro" => Kind::MicroTime,
        "duration" => Kind::Duration,
        "quantity" => Kind::Quantity,
        "intstr" => Kind::IntOrString,
        "raw" => Kind::Raw,
        other => Kind::Message(match (other.strip_prefix('.'), other.strip_prefix("meta.")) {
            (Some(name), _) => format!("{package}.{name}"),
            (_, Some(name)) => format!("{META}{name}"),
            _ => other.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_one_of_the_definition() {
        let mut odd = Vec::new();
        for (name, fields) in MESSAGES.iter() {
            let Some(definition) = capstan_schema::definition(name) else { continue };
            let Some(properties) = definition["properties"].as_object() else { continue };
            for field in fields.values().filter(|field| !matches!(field.name, "" | "^")) {
                if !properties.contains_key(field.name) {
                    odd.push(format!("{name} {}", field.name));
                }
            }
        }
        odd.sort();
        // Fields of alpha features are in no document; `selfLink` was removed.
        odd.retain(|line| !line.ends_with(" selfLink"));
        assert!(odd.is_empty(), "{odd:#?}");
    }

    #[test]
    fn every_reference_is_known() {
        for fields in MESSAGES.values() {
            for field in fields.values() {
                if let Kind::Message(name) = &field.kind {
                    let odd = name.contains("JSONSchemaPropsOr");
                    assert!(odd || MESSAGES.contains_key(name), "{name}");
                }
            }
        }
    }

    /// A hand-encoded message: (field number, bytes) pairs.
    fn wire(fields: &[(u8, &[u8])]) -> Vec<u8> {
        fields.iter().flat_map(|(number, bytes)| [&[number << 3 | 2, bytes.len() as u8], *bytes].concat()).collect()
    }

    fn envelope(api_version: &[u8], kind: &[u8], raw: &[u8]) -> Vec<u8> {
        let types = wire(&[(1, api_version), (2, kind)]);
        [MAGIC, &wire(&[(1, &types), (2, raw)])].concat()
    }

    #[test]
    fn objects_are_read() {
        let meta = wire(&[(1, b"a"), (2, b""), (11, &wire(&[(1, b"k"), (2, b"v")]))]);
        let data = wire(&[(1, b"x"), (2, b"\x00\x01")]);
        let body = envelope(b"v1", b"Secret", &wire(&[(1, &meta), (2, &data), (3, b"Opaque")]));
        assert_eq!(
            decode(&body).unwrap(),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "labels": {"k": "v"}},
                "data": {"x": "AAE="}, "type": "Opaque"})
        );
        let body = envelope(b"apps/v1", b"DeleteOptions", &[&[8, 0], &wire(&[(4, b"Foreground")])[..]].concat());
        assert_eq!(
            decode(&body).unwrap(),
            json!({"apiVersion": "apps/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
                "propagationPolicy": "Foreground"})
        );
    }

    proptest::proptest! {
        #[test]
        fn no_body_is_too_odd(tail in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let types = wire(&[(1, b"v1"), (2, b"Pod")]);
            let _ = decode(&[MAGIC, &wire(&[(1, &types)]), &[18, tail.len() as u8], &tail].concat());
            let _ = decode(&[MAGIC, &tail].concat());
        }
    }

    #[test]
    fn broken_bodies_are_refused() {
        let good = envelope(b"v1", b"Secret", &wire(&[(3, b"Opaque")]));
        for cut in [&good[..3], &good[..good.len() - 1], b"", b"{}"] {
            assert_eq!(decode(cut), None);
        }
    }
}
