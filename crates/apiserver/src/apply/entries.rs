//! `metadata.managedFields`: decoding and encoding.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::path::Element;
use super::set::Set;
use crate::clock;

/// `operation` of a managedFields entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Identity of an entry. One manager has one Apply entry per subresource, whatever the version, and one Update entry
/// per version and subresource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub name: String,
    pub operation: Operation,
    /// Empty for [`Operation::Apply`].
    pub api_version: String,
    pub subresource: String,
}

impl Manager {
    /// The entry identity of a writer; the manager is `unknown` if unnamed.
    pub(crate) fn new(name: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let name = if name.is_empty() { "unknown" } else { name };
        let api_version = if operation == Operation::Apply { "" } else { api_version };
        Self { name: name.into(), operation, api_version: api_version.into(), subresource: subresource.into() }
    }
}

/// The fields of a manager. Most writes leave most managers alone, so sets are decoded only when needed.
#[derive(Clone, Debug)]
pub(crate) struct Owned<'a> {
    /// FieldsV1 as stored, while unchanged.
    raw: Option<&'a Value>,
    set: OnceCell<Set>,
    /// API version of the paths.
    pub api_version: String,
    /// `time`: when it last changed, as stored.
    pub time: Option<String>,
}

impl<'a> Owned<'a> {
    /// A new or changed entry.
    pub(crate) fn new(set: Set, api_version: &str, time: Option<String>) -> Self {
        Self { raw: None, set: OnceCell::from(set), api_version: api_version.to_owned(), time }
    }

    fn read(raw: &'a Value, api_version: &str, time: Option<String>) -> Result<Self, String> {
        let owned = Self { raw: Some(raw), set: OnceCell::new(), api_version: api_version.to_owned(), time };
        if !is_canonical(raw) {
            let set = Set::decode(raw).map_err(|fault| format!("error decoding set: {fault}"))?;
            return Ok(Self { raw: None, set: OnceCell::from(set), ..owned });
        }
        Ok(owned)
    }

    /// The field set.
    pub(crate) fn set(&self) -> &Set {
        self.set.get_or_init(|| self.raw.and_then(|raw| Set::decode(raw).ok()).unwrap_or_default())
    }

    /// Replaces the field set.
    pub(crate) fn put(&mut self, set: Set) {
        (self.raw, self.set) = (None, OnceCell::from(set));
    }

    /// Whether the field set intersects `change`.
    pub(crate) fn touches(&self, change: &Set) -> bool {
        match (self.raw, self.set.get()) {
            (Some(raw), None) => touches(raw, change),
            _ => self.set().intersects(change),
        }
    }

    fn is_empty(&self) -> bool {
        match (self.raw, self.set.get()) {
            (Some(raw), None) => raw.as_object().is_none_or(Map::is_empty),
            _ => self.set().is_empty(),
        }
    }

    fn encode(&self) -> Value {
        self.raw.cloned().unwrap_or_else(|| self.set().encode())
    }
}

/// Whether FieldsV1 is in canonical form, so that its keys can be compared as text.
fn is_canonical(raw: &Value) -> bool {
    let Value::Object(map) = raw else { return false };
    map.iter().all(|(key, below)| {
        let known = key.starts_with("f:")
            || key == "."
            || Element::decode(key).ok().flatten().is_some_and(|element| element.encode() == *key);
        known && is_canonical(below)
    })
}

fn touches(raw: &Value, change: &Set) -> bool {
    change.nodes().any(|(element, node)| {
        let Some(Value::Object(below)) = raw.get(element.encode()) else { return false };
        let member = below.is_empty() || below.contains_key(".");
        (node.member && member) || (!below.is_empty() && touches(&raw[element.encode()], &node.children))
    })
}

/// All entries of an object.
pub(crate) type Managers<'a> = BTreeMap<Manager, Owned<'a>>;

/// Drops managers that own nothing.
pub(crate) fn drop_empty(managers: &mut Managers<'_>) {
    managers.retain(|_, owned| !owned.is_empty());
}

/// Decodes a `managedFields` list.
pub(crate) fn decode(entries: Option<&Value>) -> Result<Managers<'_>, String> {
    static EMPTY: LazyLock<Value> = LazyLock::new(|| json!({}));
    let entries = entries.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut managers = Managers::new();
    for (i, entry) in entries.iter().enumerate() {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".into()),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err("apiVersion must not be empty".into());
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {i}")),
            other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {i}")),
        }
        let fields = entry.get("fieldsV1").filter(|fields| !fields.is_null()).unwrap_or(&EMPTY);
        let version = if operation == Operation::Apply { "" } else { api_version };
        let manager = Manager {
            name: text("manager").into(),
            operation,
            api_version: version.into(),
            subresource: text("subresource").into(),
        };
        let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
        managers.insert(manager, Owned::read(fields, api_version, time)?);
    }
    Ok(managers)
}

/// Encodes a `managedFields` list in the order of kube-apiserver: Apply first, then by time, name, version and
/// subresource.
pub(crate) fn encode<'m, 'a: 'm>(managers: impl IntoIterator<Item = (&'m Manager, &'m Owned<'a>)>) -> Vec<Value> {
    let mut sorted: Vec<(i64, &Manager, &Owned<'_>)> =
        managers.into_iter().map(|(manager, owned)| (unix(owned.time.as_deref()), manager, owned)).collect();
    sorted.sort_by(|(time, manager, owned), (other_time, other, other_owned)| {
        let order = manager.operation.cmp(&other.operation).then(time.cmp(other_time));
        let order = order.then_with(|| manager.name.cmp(&other.name));
        let order = order.then_with(|| owned.api_version.cmp(&other_owned.api_version));
        order.then_with(|| manager.subresource.cmp(&other.subresource))
    });
    sorted.into_iter().map(|(_, manager, owned)| encode_one(manager, owned)).collect()
}

fn encode_one(manager: &Manager, owned: &Owned<'_>) -> Value {
    let mut entry = Map::new();
    let mut put = |key: &str, text: &str| {
        if !text.is_empty() {
            entry.insert(key.into(), text.into());
        }
    };
    put("manager", &manager.name);
    put("operation", manager.operation.name());
    put("apiVersion", &owned.api_version);
    put("time", owned.time.as_deref().unwrap_or_default());
    put("fieldsType", "FieldsV1");
    put("subresource", &manager.subresource);
    entry.insert("fieldsV1".into(), owned.encode());
    Value::Object(entry)
}

/// Unix seconds; 0 if absent.
pub(crate) fn unix(time: Option<&str>) -> i64 {
    time.and_then(|time| time.parse::<Timestamp>().ok()).map(Timestamp::as_second).unwrap_or_default()
}

/// The `time` of an entry that changes now.
pub(crate) fn stamp(now: Timestamp) -> Option<String> {
    Some(clock::seconds(now))
}

/// The `managedFields` of `object`.
pub(crate) fn of(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Sets the `managedFields` of `object`; removes them if there are no entries.
pub(crate) fn put(object: &mut Value, managers: &Managers<'_>) {
    put_all(object, managers);
}

/// The same, but one manager may have two entries.
pub(crate) fn put_all<'m, 'a: 'm>(
    object: &mut Value,
    managers: impl IntoIterator<Item = (&'m Manager, &'m Owned<'a>)>,
) {
    let entries = encode(managers);
    match object.get_mut("metadata") {
        Some(Value::Object(metadata)) if entries.is_empty() => {
            metadata.remove("managedFields");
        }
        Some(Value::Object(metadata)) => {
            metadata.insert("managedFields".into(), entries.into());
        }
        _ if entries.is_empty() => {}
        _ => {
            if let Some(object) = object.as_object_mut() {
                object.insert("metadata".into(), json!({"managedFields": entries}));
            }
        }
    }
}

/// Removes and returns the `managedFields` of `object`.
pub(crate) fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata").and_then(Value::as_object_mut)?.remove("managedFields")
}
