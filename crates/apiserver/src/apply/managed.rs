//! Server-side apply, and field ownership (`metadata.managedFields`).
//!
//! A write calls [`apply`] or [`update`] after the patch or the new object was decoded and before admission. Both
//! return the object with updated managed fields; [`unchanged`] then decides whether it needs to be stored at all.

use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::Value;

use super::entries::{self, Manager, Managers, Operation, Owned};
use super::set::Set;
use super::shape::Shape;
use super::updater::{self, ApplyError};
use super::{conflict, last_applied, walk};
use crate::error::{Result, Status};
use crate::schema::Schema;

pub use super::reset::Reset;

/// The API versions of one kind, served or not.
///
/// Entries of unknown versions are dropped from the managed fields of built-in objects. Managed fields of a custom
/// resource with such an entry are kept unchanged, and applies to it fail. Both as in kube-apiserver.
pub trait Versions {
    /// The schema of `api_version` (`apps/v1`); `None` if there is no such version.
    fn schema(&self, api_version: &str) -> Option<&Schema>;

    /// Converts `object` to `api_version`. The default is CRD conversion with strategy `None`.
    fn convert(&self, object: &Value, api_version: &str) -> Value {
        let mut object = object.clone();
        object["apiVersion"] = api_version.into();
        object
    }
}

/// Context of a write: manager, version and time.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// The versions of the object.
    pub versions: &'a dyn Versions,
    /// Version of the request, as in `apps/v1`. All objects are in this version.
    pub api_version: &'a str,
    /// Kind of the request.
    pub kind: &'a str,
    /// Name of the field manager; see [`default_manager`].
    pub manager: &'a str,
    /// Subresource, or empty.
    pub subresource: &'a str,
    /// Fields that this endpoint may not set.
    pub reset: &'a Reset,
    /// The current time.
    pub now: Timestamp,
}

impl Write<'_> {
    /// `apps/v1, Kind=Deployment`, as printed in errors.
    pub(crate) fn gvk(&self) -> String {
        gvk(self.api_version, self.kind)
    }

    fn manager(&self, operation: Operation) -> Manager {
        Manager::new(self.manager, operation, self.api_version, self.subresource)
    }
}

fn gvk(api_version: &str, kind: &str) -> String {
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={kind}")
}

/// Whether an apply takes over conflicting fields from other managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Conflicts are errors.
    No,
    /// Conflicting fields are taken over.
    Yes,
}

/// Maximum number of Update entries; the oldest are merged.
const MAX_UPDATERS: usize = 10;

/// Applies `config` to `live` (`None` on create) and returns the object with managed fields; it still has to be
/// defaulted and validated. If the apply changes nothing, the result equals `live`, and nothing needs to be written.
pub fn apply(live: Option<&Value>, config: &Value, write: &Write<'_>, force: Force) -> Result<Value> {
    let empty = empty(write);
    let live = live.unwrap_or(&empty);
    let mut managers = entries::decode(entries::of(live))
        .map_err(|fault| plain(format!("failed to decode managed fields: {fault}")))?;
    check(config, write)?;
    if let Some(version) = foreign(&managers, write) {
        return Err(plain(format!("request to convert CR to an invalid group/version: {version}")));
    }

    if managers.is_empty() {
        // No managed fields yet: existing fields are assigned to `before-first-apply`.
        let before = Write { manager: "before-first-apply", ..*write };
        track(&mut managers, &empty, live, &before);
    }
    let tracked = managers.clone();
    let manager = write.manager(Operation::Apply);
    let mut applied = updater::apply(&mut managers, live, config, write, &manager, force);
    if let Err(ApplyError::Conflicts(conflicts)) = applied {
        let left = last_applied::unexpected(live, write, conflicts);
        applied = if left.is_empty() {
            managers = tracked;
            updater::apply(&mut managers, live, config, write, &manager, Force::Yes)
        } else {
            Err(ApplyError::Conflicts(left))
        };
    }
    let mut object = applied.map_err(|refusal| match refusal {
        ApplyError::Conflicts(conflicts) => conflict::status(&conflicts),
        ApplyError::Unmergeable(fault) => plain(fault),
    })?;
    strip_meta(&mut managers, &manager);
    if !super::path::same(&object, live)
        && let Some(owned) = managers.get_mut(&manager)
    {
        owned.time = entries::stamp(write.now);
    }
    if !write.reset.custom {
        object = super::patch::without_nulls(&object);
    }
    entries::put(&mut object, &managers);
    last_applied::refresh(&mut object, config, write);
    Ok(object)
}

/// `new`, which is to replace `live` (`None` on create), with updated managed fields.
pub fn update(live: Option<&Value>, mut new: Value, write: &Write<'_>) -> Value {
    let empty = empty(write);
    let created = live.is_none_or(|live| live.pointer("/metadata/uid").is_none_or(|uid| uid == "" || uid.is_null()));
    let live = live.unwrap_or(&empty);
    let listed = entries::take(&mut new);
    let mut managers = known(live, listed.as_ref(), write);
    if foreign(&managers, write).is_some() {
        if let (Some(entries), Some(metadata)) =
            (entries::of(live), new.get_mut("metadata").and_then(Value::as_object_mut))
        {
            metadata.insert("managedFields".into(), entries.clone());
        }
        return new;
    }
    // An object without managed fields is not tracked until its first apply.
    if managers.is_empty() && !created {
        return new;
    }
    track(&mut managers, live, &new, write);
    entries::put(&mut new, &managers);
    new
}

/// Whether the write is a no-op: `new` and `old` differ only in `resourceVersion` and times of managed fields.
pub fn unchanged(old: &Value, new: &Value) -> bool {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return old == new };
    alike(old, new, |name, old, new| match (name, old, new) {
        ("metadata", Value::Object(old), Value::Object(new)) => {
            let bare = |metadata: &Fields| metadata.contains_key("resourceVersion");
            if bare(old) != bare(new) {
                let without = |metadata: &Fields| {
                    let mut metadata = metadata.clone();
                    metadata.remove("resourceVersion");
                    metadata
                };
                return alike(&without(old), &without(new), same_metadata);
            }
            alike(old, new, same_metadata)
        }
        _ => old == new,
    })
}

type Fields = serde_json::Map<String, Value>;

fn alike(old: &Fields, new: &Fields, same: impl Fn(&str, &Value, &Value) -> bool) -> bool {
    old.len() == new.len()
        && old.iter().zip(new).all(|((name, old), (other, new))| name == other && same(name, old, new))
}

fn same_metadata(name: &str, old: &Value, new: &Value) -> bool {
    match (name, old, new) {
        ("resourceVersion", ..) => true,
        ("managedFields", Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same_entry(old, new))
        }
        _ => old == new,
    }
}

fn same_entry(old: &Value, new: &Value) -> bool {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return old == new };
    let timeless = |entry: &'_ Fields| entry.iter().filter(|(key, _)| *key != "time").count();
    timeless(old) == timeless(new)
        && old.iter().filter(|(key, _)| *key != "time").all(|(key, value)| new.get(key) == Some(value))
}

/// Why the `managedFields` of an object are invalid, if they are: checked after mutating webhooks.
pub fn invalid(object: &Value) -> Option<String> {
    entries::decode(entries::of(object)).err()
}

/// The default field manager: the printable characters of the user agent up to the first `/`, at most 128 bytes.
pub fn default_manager(user_agent: &str) -> String {
    let first = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for c in first.chars().filter(|c| !c.is_control() && (*c == ' ' || !c.is_whitespace())) {
        if name.len() + c.len_utf8() > 128 {
            break;
        }
        name.push(c);
    }
    name
}

/// The managed fields before the write: from the request (`listed`), which may rewrite them, else from the live object.
fn known<'v>(live: &'v Value, listed: Option<&'v Value>, write: &Write<'_>) -> Managers<'v> {
    let before = || entries::decode(entries::of(live)).unwrap_or_default();
    if !write.subresource.is_empty() {
        return before();
    }
    match listed.and_then(Value::as_array).map(Vec::as_slice) {
        // For custom resources, an empty list is the same as none.
        Some([]) if !write.reset.custom => Managers::new(),
        Some([one]) if one.as_object().is_some_and(serde_json::Map::is_empty) => Managers::new(),
        _ => entries::decode(listed).ok().filter(|managers| !managers.is_empty()).unwrap_or_else(before),
    }
}

/// An unknown version of a custom resource that still owns fields.
fn foreign<'m>(managers: &'m Managers<'_>, write: &Write<'_>) -> Option<&'m str> {
    let mut versions = managers.values().map(|owned| owned.api_version.as_str()).filter(|_| write.reset.custom);
    versions.find(|version| write.versions.schema(version).is_none())
}

/// Records the changes from `live` to `new` for the writer.
fn track(managers: &mut Managers<'_>, live: &Value, new: &Value, write: &Write<'_>) {
    let changed = updater::update(managers, live, new, write).difference(&META);
    if !changed.is_empty() {
        let manager = write.manager(Operation::Update);
        let set = managers.get(&manager).map_or(changed.clone(), |owned| owned.set().union(&changed));
        managers.insert(manager, Owned::new(set, write.api_version, entries::stamp(write.now)));
    }
    cap(managers);
}

/// Merges the oldest Update entries of each version until the limit is met.
fn cap(managers: &mut Managers<'_>) {
    let mut updaters: Vec<Manager> =
        managers.keys().filter(|manager| manager.operation == Operation::Update).cloned().collect();
    let mut count = updaters.len();
    if count <= MAX_UPDATERS {
        return;
    }
    updaters.sort_by_cached_key(|manager| {
        let time = managers.get(manager).and_then(|owned| owned.time.as_deref());
        (entries::unix(time), manager.clone())
    });
    let mut first_of: std::collections::BTreeMap<String, Manager> = std::collections::BTreeMap::new();
    for manager in updaters {
        if count <= MAX_UPDATERS {
            break;
        }
        let version = manager.api_version.clone();
        let Some(first) = first_of.get(&version) else {
            first_of.insert(version, manager);
            continue;
        };
        let bucket = Manager::new("ancient-changes", Operation::Update, &version, "");
        if !managers.contains_key(&bucket)
            && let Some(owned) = managers.remove(first)
        {
            managers.insert(bucket.clone(), owned);
        }
        let Some(merged) = managers.remove(&manager) else { continue };
        match managers.get_mut(&bucket) {
            Some(owned) => {
                owned.put(owned.set().union(merged.set()));
                owned.time = merged.time;
            }
            None => {
                managers.insert(bucket, merged);
            }
        }
        count -= 1;
    }
}

/// Fields that are never owned: the server sets them.
static META: LazyLock<Set> = LazyLock::new(|| {
    let names = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let mut paths: Vec<Vec<&str>> = names.into_iter().map(|name| vec!["metadata", name]).collect();
    paths.extend([vec!["apiVersion"], vec!["kind"], vec!["metadata"]]);
    Set::of_fields(&paths.iter().map(Vec::as_slice).collect::<Vec<_>>())
});

fn strip_meta(managers: &mut Managers<'_>, manager: &Manager) {
    if let Some(owned) = managers.get_mut(manager) {
        owned.put(owned.set().difference(&META));
    }
    entries::drop_empty(managers);
}

/// Rejects configurations that cannot be applied.
fn check(config: &Value, write: &Write<'_>) -> Result<()> {
    let text = |pointer: &str| config.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    if (api_version, kind) != (write.api_version, write.kind) {
        return Err(Status::bad_request(format!("invalid object type: {}", gvk(api_version, kind))));
    }
    if entries::of(config).is_some_and(|entries| !entries.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let Some(schema) = write.versions.schema(write.api_version) else {
        return Err(plain(format!("no corresponding type for {}", write.gvk())));
    };
    walk::validate(Shape::root(schema), config).result().map_err(|fault| {
        let name = format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"));
        plain(format!("failed to create typed patch object ({name}; {}): {fault}", write.gvk()))
    })
}

/// An empty object of the kind: the base of a create.
fn empty(write: &Write<'_>) -> Value {
    serde_json::json!({"apiVersion": write.api_version, "kind": write.kind})
}

/// A 500 without a reason, as in kube-apiserver.
fn plain(message: String) -> Status {
    Status::new(500, "", message)
}
