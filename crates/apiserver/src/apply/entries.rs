//! `metadata.managedFields`: from JSON and back.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::set::Set;
use crate::clock;

/// How a manager came to own fields.
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

/// What tells entries apart. One manager has one entry per subresource for what it applies, whatever the version, and
/// one per version and subresource for what it updates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub name: String,
    pub operation: Operation,
    /// Empty for [`Operation::Apply`].
    pub api_version: String,
    pub subresource: String,
}

impl Manager {
    /// The entry of a writer. Who gives no name is `unknown`.
    pub(crate) fn new(name: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let name = if name.is_empty() { "unknown" } else { name };
        let api_version = if operation == Operation::Apply { "" } else { api_version };
        Self { name: name.into(), operation, api_version: api_version.into(), subresource: subresource.into() }
    }
}

/// What a manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    pub set: Set,
    /// Version in which the paths are meant.
    pub api_version: String,
    /// When it last changed, as written.
    pub time: Option<String>,
}

/// All entries of an object.
pub(crate) type Managers = BTreeMap<Manager, Owned>;

/// Reads a `managedFields` list.
pub(crate) fn decode(entries: Option<&Value>) -> Result<Managers, String> {
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
        let set = match entry.get("fieldsV1") {
            None | Some(Value::Null) => Set::default(),
            Some(fields) => Set::decode(fields).map_err(|fault| format!("error decoding set: {fault}"))?,
        };
        let version = if operation == Operation::Apply { "" } else { api_version };
        let manager = Manager {
            name: text("manager").into(),
            operation,
            api_version: version.into(),
            subresource: text("subresource").into(),
        };
        let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
        managers.insert(manager, Owned { set, api_version: api_version.into(), time });
    }
    Ok(managers)
}

/// Writes a `managedFields` list, in the order of a real server: applied first, then by time, name, version and
/// subresource.
pub(crate) fn encode(managers: &Managers) -> Vec<Value> {
    let mut sorted: Vec<(&Manager, &Owned)> = managers.iter().collect();
    sorted.sort_by_cached_key(|(manager, owned)| {
        let version = owned.api_version.clone();
        (manager.operation, unix(owned.time.as_deref()), manager.name.clone(), version, manager.subresource.clone())
    });
    sorted.into_iter().map(|(manager, owned)| encode_one(manager, owned)).collect()
}

fn encode_one(manager: &Manager, owned: &Owned) -> Value {
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
    entry.insert("fieldsV1".into(), owned.set.encode());
    Value::Object(entry)
}

/// Seconds since 1970; 0 for no time.
pub(crate) fn unix(time: Option<&str>) -> i64 {
    time.and_then(|time| time.parse::<Timestamp>().ok()).map(Timestamp::as_second).unwrap_or_default()
}

/// The time of an entry that changes now.
pub(crate) fn stamp(now: Timestamp) -> Option<String> {
    Some(clock::seconds(now))
}

/// The list in `object`.
pub(crate) fn of(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// `object` with these entries; with none, the list goes.
pub(crate) fn put(object: &mut Value, managers: &Managers) {
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

/// Takes the list out of `object`.
pub(crate) fn strip(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}
