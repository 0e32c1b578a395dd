//! CEL values. Objects and lists of the validated object stay JSON and are accessed through their schema, so that an
//! expression only converts what it reads.

use std::collections::BTreeMap;
use std::rc::Rc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube_cel::cel;
use serde_json::Value;

use super::access::Access;
use super::escape;
use crate::schema::validate::same_keys;
use crate::schema::{ListType, Schema, Type, format};

/// A value, or an error.
pub(super) type Outcome<'a> = Result<Val<'a>, Fault>;

/// Evaluation error.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    /// No overload for these argument types.
    Overload,
    /// The cost limit is exceeded.
    Limit,
    /// Any other error, worded as by cel-go.
    Other(String),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Overload => f.write_str("no such overload"),
            Self::Limit => f.write_str("operation cancelled: actual cost limit exceeded"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl Fault {
    pub(super) fn other<T>(text: impl Into<String>) -> Result<T, Self> {
        Err(Self::Other(text.into()))
    }
}

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    Text(Rc<str>),
    Bytes(Rc<[u8]>),
    /// A list created by the expression.
    List(Rc<Vec<Val<'a>>>),
    /// A list of the validated object, with its schema.
    Items(&'a [Value], &'a Schema),
    /// A map created by the expression.
    Map(Rc<BTreeMap<Key, Val<'a>>>),
    /// A struct or map of the validated object, with its schema.
    Object(&'a serde_json::Map<String, Value>, &'a Schema),
    /// Nanoseconds.
    Duration(i64),
    Time(Timestamp),
    Optional(Option<Rc<Val<'a>>>),
    /// A type, by its name.
    Type(Rc<str>),
    /// Data without a schema: it can only be compared.
    Unknown(&'a Value),
    /// Values by name, each of which may have failed.
    Named(Rc<BTreeMap<Rc<str>, Outcome<'a>>>),
    /// A constructed object: type name and fields.
    Constructed(Rc<str>, Rc<BTreeMap<Rc<str>, Val<'a>>>),
    /// An authorization check.
    Access(Rc<Access<'a>>),
    /// A library value: a quantity, an IP address …
    Foreign(cel::Value),
}

/// A key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Bool(bool),
    Int(i64),
    UInt(u64),
    Text(Rc<str>),
}

impl<'a> Val<'a> {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// Converts JSON without a schema.
    pub(super) fn json(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => Self::Int(number),
                (None, Some(number)) => Self::UInt(number),
                (None, None) => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Self::text(text),
            Value::Array(items) => Self::List(Rc::new(items.iter().map(Self::json).collect())),
            Value::Object(fields) => {
                let entry = |(name, value): (&String, &Value)| (Key::Text(name.as_str().into()), Self::json(value));
                Self::Map(Rc::new(fields.iter().map(entry).collect()))
            }
        }
    }

    /// A value of the validated object. Pruned nulls do not occur here.
    pub(super) fn node(value: &'a Value, schema: &'a Schema) -> Outcome<'a> {
        Ok(match (schema.type_, value) {
            (_, Value::Null) if schema.nullable => Self::Null,
            (_, Value::Null) => return Fault::other("invalid data, got null for schema with nullable=false"),
            (Type::IntOrString, Value::String(text)) | (Type::String, Value::String(text)) => {
                return formatted(text, schema);
            }
            (Type::IntOrString | Type::Integer, Value::Number(number)) if number.is_i64() => {
                Self::Int(number.as_i64().unwrap_or_default())
            }
            (Type::Number, Value::Number(number)) => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            (Type::Boolean, Value::Bool(value)) => Self::Bool(*value),
            (Type::Object, Value::Object(fields)) => Self::Object(fields, schema),
            (Type::Array, Value::Array(items)) if schema.items.is_some() => Self::Items(items, schema),
            (Type::Any, value) => Self::Unknown(value),
            (type_, value) => return Fault::other(format!("invalid data, expected {type_:?}, got {value}")),
        })
    }

    /// The number of items, fields, characters or bytes.
    pub(super) fn size(&self) -> Option<usize> {
        Some(match self {
            Self::Text(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(items) => items.len(),
            Self::Items(items, _) => items.len(),
            Self::Map(map) => map.len(),
            Self::Object(fields, schema) => fields.keys().filter(|name| known(schema, name)).count(),
            Self::Optional(Some(inner)) => return inner.size(),
            _ => return None,
        })
    }

    /// The items of a list.
    pub(super) fn items(&self) -> Option<Vec<Outcome<'a>>> {
        match self {
            Self::List(items) => Some(items.iter().cloned().map(Ok).collect()),
            Self::Items(items, schema) => {
                let child = schema.items()?;
                Some(items.iter().map(|item| Self::node(item, child)).collect())
            }
            _ => None,
        }
    }

    /// The keys of a map or struct, sorted.
    pub(super) fn keys(&self) -> Option<Vec<Key>> {
        match self {
            Self::Map(map) => Some(map.keys().cloned().collect()),
            Self::Object(fields, schema) => {
                let names = fields.keys().filter(|name| known(schema, name));
                Some(names.filter_map(|name| escaped_name(schema, name)).map(|name| Key::Text(name.into())).collect())
            }
            _ => None,
        }
    }

    /// The value of a key; `None` if absent.
    pub(super) fn get(&self, key: &Key) -> Option<Outcome<'a>> {
        match (self, key) {
            (Self::Map(map), key) => {
                let found = map.get(key).or_else(|| same_number(key).and_then(|key| map.get(&key)))?;
                Some(Ok(found.clone()))
            }
            (Self::Named(values), Key::Text(name)) => values.get(name).cloned(),
            (Self::Constructed(_, fields), Key::Text(name)) => fields.get(name).cloned().map(Ok),
            (Self::Object(fields, schema), Key::Text(name)) => {
                let name = if is_map(schema) { name.to_string() } else { escape::unescape(name)? };
                let value = fields.get(&name)?;
                let child = child(schema, &name)?;
                // A null field counts as absent, unless it is a nullable map value.
                if value.is_null() && !(is_map(schema) && child.nullable) {
                    return None;
                }
                Some(Self::node(value, child))
            }
            _ => None,
        }
    }

    /// The type name.
    pub(super) fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::UInt(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) | Self::Items(..) => "list",
            Self::Map(_) | Self::Object(..) => "map",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Time(_) => "google.protobuf.Timestamp",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Unknown(_) => "unknown",
            Self::Named(_) => "kubernetes.variables",
            Self::Access(access) => access.type_name(),
            Self::Constructed(name, _) => name,
            Self::Foreign(cel::Value::Opaque(opaque)) => opaque.runtime_type_name(),
            Self::Foreign(_) => "foreign",
        }
    }

    /// Converts a value to a map key, if possible.
    pub(super) fn as_key(&self) -> Option<Key> {
        Some(match self {
            Self::Bool(value) => Key::Bool(*value),
            Self::Int(value) => Key::Int(*value),
            Self::UInt(value) => Key::UInt(*value),
            Self::Double(value) if value.fract() == 0.0 => Key::Int(*value as i64),
            Self::Text(text) => Key::Text(text.clone()),
            _ => return None,
        })
    }

    /// Equality. Values of different types differ; lists of type set or map ignore order.
    pub(super) fn equals(&self, other: &Val<'a>) -> bool {
        use Val::{Bool, Bytes, Double, Duration, Foreign, Int, Null, Optional, Text, Time, UInt, Unknown};
        match (self, other) {
            (Null, Null) => true,
            (Bool(a), Bool(b)) => a == b,
            (Int(a), Int(b)) => a == b,
            (UInt(a), UInt(b)) => a == b,
            (Double(a), Double(b)) => a == b,
            (Int(a), UInt(b)) | (UInt(b), Int(a)) => u64::try_from(*a) == Ok(*b),
            (Int(a), Double(b)) | (Double(b), Int(a)) => *a as f64 == *b,
            (UInt(a), Double(b)) | (Double(b), UInt(a)) => *a as f64 == *b,
            (Text(a), Text(b)) => a == b,
            (Bytes(a), Bytes(b)) => a == b,
            (Duration(a), Duration(b)) => a == b,
            (Time(a), Time(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => a == b,
            (Optional(None), Optional(None)) => true,
            (Optional(Some(a)), Optional(Some(b))) => a.equals(b),
            (Unknown(a), Unknown(b)) => a == b,
            (Foreign(a), Foreign(b)) => a == b,
            (Self::List(_) | Self::Items(..), Self::List(_) | Self::Items(..)) => self.same_items(other),
            (Self::Map(_) | Self::Object(..), Self::Map(_) | Self::Object(..)) => self.same_fields(other),
            _ => false,
        }
    }

    fn same_fields(&self, other: &Val<'a>) -> bool {
        let (Some(keys), Some(theirs)) = (self.keys(), other.keys()) else { return false };
        keys.len() == theirs.len()
            && keys.iter().all(|key| match (self.get(key), other.get(key)) {
                (Some(Ok(mine)), Some(Ok(their))) => mine.equals(&their),
                (None, None) => true,
                _ => false,
            })
    }

    fn same_items(&self, other: &Val<'a>) -> bool {
        let (Some(mine), Some(theirs)) = (self.items(), other.items()) else { return false };
        if mine.len() != theirs.len() {
            return false;
        }
        let equal = |a: &Outcome<'a>, b: &Outcome<'a>| matches!((a, b), (Ok(a), Ok(b)) if a.equals(b));
        match self.list_type().or_else(|| other.list_type()) {
            Some(ListType::Set | ListType::Map(_)) => mine.iter().all(|a| theirs.iter().any(|b| equal(a, b))),
            _ => mine.iter().zip(&theirs).all(|(a, b)| equal(a, b)),
        }
    }

    /// The list type of a list in the validated object.
    pub(super) fn list_type(&self) -> Option<&'a ListType> {
        match self {
            Self::Items(_, schema) => Some(&schema.list).filter(|list| **list != ListType::Atomic),
            _ => None,
        }
    }
}

/// Converts strings by their format.
fn formatted<'a>(text: &str, schema: &Schema) -> Outcome<'a> {
    if schema.type_ != Type::String {
        return Ok(Val::text(text));
    }
    match schema.source["format"].as_str() {
        Some("duration") => match format::duration_nanoseconds(text) {
            Some(nanoseconds) => Ok(Val::Duration(nanoseconds)),
            None => Fault::other(format!("Invalid duration {text}: unable to parse {text} as duration")),
        },
        Some("date") => match format!("{text}T00:00:00Z").parse() {
            Ok(time) => Ok(Val::Time(time)),
            Err(error) => Fault::other(format!("Invalid date formatted string {text}: {error}")),
        },
        Some("date-time") => match text.parse() {
            Ok(time) => Ok(Val::Time(time)),
            Err(error) => Fault::other(format!("Invalid date-time formatted string {text}: {error}")),
        },
        Some("byte") => match STANDARD.decode(text) {
            Ok(bytes) => Ok(Val::Bytes(bytes.into())),
            Err(error) => Fault::other(format!("Invalid byte formatted string {text}: {error}")),
        },
        _ => Ok(Val::text(text)),
    }
}

/// Whether an object is a map with arbitrary keys, and not a struct.
pub(super) fn is_map(schema: &Schema) -> bool {
    schema.properties.is_empty() && !schema.embedded_resource
}

/// The schema of a field or map value; `None` if CEL cannot access it.
fn child<'a>(schema: &'a Schema, name: &str) -> Option<&'a Schema> {
    if is_map(schema) { schema.additional() } else { schema.property(name) }
}

fn known(schema: &Schema, name: &str) -> bool {
    child(schema, name).is_some()
}

/// The escaped name of a field.
fn escaped_name(schema: &Schema, name: &str) -> Option<String> {
    if is_map(schema) { Some(name.to_owned()) } else { escape::escape(name) }
}

/// The same number as the other integer type.
fn same_number(key: &Key) -> Option<Key> {
    match key {
        Key::Int(value) => u64::try_from(*value).ok().map(Key::UInt),
        Key::UInt(value) => i64::try_from(*value).ok().map(Key::Int),
        _ => None,
    }
}

/// Concatenation: union of sets, merge of list maps, append of other lists.
pub(super) fn join<'a>(one: &Val<'a>, other: &Val<'a>) -> Outcome<'a> {
    let (Some(mine), Some(theirs)) = (one.items(), other.items()) else { return Err(Fault::Overload) };
    let mut items = mine.into_iter().collect::<Result<Vec<_>, _>>()?;
    let theirs = theirs.into_iter().collect::<Result<Vec<_>, _>>()?;
    match one.list_type() {
        Some(ListType::Set) => {
            for item in theirs {
                if !items.iter().any(|known| known.equals(&item)) {
                    items.push(item);
                }
            }
        }
        Some(ListType::Map(keys)) => {
            for item in theirs {
                match items.iter_mut().find(|known| same_entry(keys, known, &item)) {
                    Some(known) => *known = item,
                    None => items.push(item),
                }
            }
        }
        _ => items.extend(theirs),
    }
    Ok(Val::List(Rc::new(items)))
}

fn same_entry(keys: &[String], one: &Val<'_>, other: &Val<'_>) -> bool {
    match (one, other) {
        (Val::Object(one, _), Val::Object(other, _)) => {
            let (one, other) = (Value::Object((*one).clone()), Value::Object((*other).clone()));
            same_keys(keys, &one, &other)
        }
        _ => false,
    }
}
