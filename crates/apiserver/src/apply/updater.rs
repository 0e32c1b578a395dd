//! Field ownership after a write, by the rules of structured-merge-diff's updater.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::combine::{self, with_named};
use super::entries::{self, Manager, Managers, Owned};
use super::managed::{Force, Versions, Write};
use super::path::Path;
use super::set::Set;
use super::shape::Shape;
use super::walk::{self, Difference};
use super::zero;

/// A field of another manager.
pub(crate) type Conflict = (Manager, Path);

/// Why an apply failed.
#[derive(Debug)]
pub(crate) enum ApplyError {
    /// Other managers own fields that would change.
    Conflicts(Vec<Conflict>),
    /// The objects cannot be merged.
    Unmergeable(String),
}

/// An object in one version, with its shape.
#[derive(Clone)]
struct Typed<'a> {
    value: Cow<'a, Value>,
    shape: Shape<'a>,
}

fn typed<'a>(value: &'a Value, version: &str, versions: &'a dyn Versions) -> Option<Typed<'a>> {
    let shape = Shape::root(versions.schema(version)?);
    let value = match value.get("apiVersion").and_then(Value::as_str) {
        Some(current) if current != version => Cow::Owned(versions.convert(value, version)),
        _ => Cow::Borrowed(value),
    };
    Some(Typed { value, shape })
}

/// The difference of the objects in `version`, without reset fields.
fn difference(old: &Value, new: &Value, version: &str, write: &Write<'_>) -> Option<Difference> {
    let (old, new) = (typed(old, version, write.versions)?, typed(new, version, write.versions)?);
    let skeleton = zero::skeleton(version, write.kind);
    let (left, right) = (zero::filled(&old.value, skeleton), zero::filled(&new.value, skeleton));
    let found = walk::compare(old.shape, &left, &right);
    let allowed = |set: &Set| write.reset.filter(set, version == write.api_version);
    Some(Difference {
        removed: allowed(&found.removed),
        modified: allowed(&found.modified),
        added: allowed(&found.added),
    })
}

/// Removes changed and removed fields from the entries of all managers but `workflow`. Returns the difference in the
/// version of the request.
fn take(
    managers: &mut Managers<'_>,
    old: &Value,
    new: &Value,
    write: &Write<'_>,
    workflow: Option<&Manager>,
    force: Force,
) -> Result<Difference, Vec<Conflict>> {
    let mut versions: BTreeMap<String, Option<Difference>> = BTreeMap::new();
    let ours = difference(old, new, write.api_version, write).unwrap_or_default();
    versions.insert(write.api_version.to_owned(), Some(ours.clone()));
    managers.retain(|manager, owned| {
        let known = versions
            .entry(owned.api_version.clone())
            .or_insert_with(|| difference(old, new, &owned.api_version, write))
            .is_some();
        known || Some(manager) == workflow
    });

    let mut losses: Vec<(Manager, Set)> = Vec::new();
    let mut conflicts = Vec::new();
    for (manager, owned) in managers.iter().filter(|(manager, _)| Some(*manager) != workflow) {
        let Some(Some(change)) = versions.get(&owned.api_version) else { continue };
        if ![&change.modified, &change.added, &change.removed].into_iter().any(|set| owned.touches(set)) {
            continue;
        }
        let mut lost = owned.set().intersection(&change.modified);
        lost.extend(&owned.set().intersection(&change.added));
        conflicts.extend(lost.paths().into_iter().map(|path| (manager.clone(), path)));
        lost.extend(&change.removed);
        losses.push((manager.clone(), lost));
    }
    if force == Force::No && !conflicts.is_empty() {
        return Err(conflicts);
    }
    for (manager, lost) in losses {
        if let Some(owned) = managers.get_mut(&manager) {
            owned.put(owned.set().difference(&lost));
        }
    }
    entries::drop_empty(managers);
    Ok(ours)
}

/// Records the difference from `old` to `new`, in the version of the request; other managers lose those fields. Entries
/// of unknown versions are dropped.
pub(crate) fn update(managers: &mut Managers<'_>, old: &Value, new: &Value, write: &Write<'_>) -> Set {
    reconcile(managers, write);
    let change = take(managers, old, new, write, None, Force::Yes).unwrap_or_default();
    change.modified.union(&change.added)
}

/// Applies `config`, which is valid, to `live`.
pub(crate) fn apply(
    managers: &mut Managers<'_>,
    live: &Value,
    config: &Value,
    write: &Write<'_>,
    manager: &Manager,
    force: Force,
) -> Result<Value, ApplyError> {
    reconcile(managers, write);
    let unknown = || ApplyError::Unmergeable(format!("no corresponding type for {}", write.gvk()));
    let shape = Shape::root(write.versions.schema(write.api_version).ok_or_else(unknown)?);
    let merge_fault = |fault| ApplyError::Unmergeable(format!("failed to merge config: {fault}"));
    let merged = combine::merge(shape, live, config).map_err(merge_fault)?;
    let set = write.reset.filter(&walk::fields_of(shape, config), true);
    // The time is kept, unless the object changes.
    let time = managers.get(manager).and_then(|last| last.time.clone());
    let last = managers.insert(manager.clone(), Owned::new(set, write.api_version, time));
    // An apply that includes all fields of the previous one prunes nothing.
    let dropped = last.as_ref().filter(|last| {
        last.api_version != write.api_version
            || managers.get(manager).is_none_or(|now| !last.set().difference(now.set()).is_empty())
    });
    let new = prune(merged, managers, write, dropped);
    take(managers, live, &new, write, Some(manager), force).map_err(ApplyError::Conflicts)?;
    Ok(new)
}

/// Migrates field sets of custom resources to the current schemas, and drops entries of unknown versions.
fn reconcile(managers: &mut Managers<'_>, write: &Write<'_>) {
    managers.retain(|_, owned| {
        let Some(schema) = write.versions.schema(&owned.api_version) else { return false };
        if write.reset.custom
            && let Some(set) = combine::reconcile(Shape::root(schema), owned.set())
        {
            owned.put(set);
        }
        true
    });
}

/// Removes fields of the manager's previous apply that are absent now and have no other owner.
fn prune(merged: Value, managers: &Managers<'_>, write: &Write<'_>, last: Option<&Owned<'_>>) -> Value {
    let Some(last) = last.filter(|last| !last.set().is_empty()) else { return merged };
    let Some(base) = typed(&merged, &last.api_version, write.versions) else { return merged };
    let last_set = with_named(Some(base.shape), last.set());
    let base_set = with_named(Some(base.shape), &walk::fields_of(base.shape, &base.value));

    let bare = combine::remove(base.shape, &base.value, &last_set);
    let pruned = add_back_owned(&base.value, bare, &last.api_version, managers, write);
    // Only owned fields are removed: restore unowned fields that were below a removed one.
    let Some(pruned) = typed(&pruned, &last.api_version, write.versions) else { return merged };
    let pruned_set = with_named(Some(pruned.shape), &walk::fields_of(pruned.shape, &pruned.value));
    let gone = base_set.difference(&pruned_set).intersection(&last_set);
    let result = combine::remove(base.shape, &base.value, &gone);
    match last.api_version == write.api_version {
        true => result,
        false => write.versions.convert(&result, write.api_version),
    }
}

/// `pruned` with all owned fields restored from `merged`.
fn add_back_owned(merged: &Value, pruned: Value, version: &str, managers: &Managers<'_>, write: &Write<'_>) -> Value {
    let mut by_version: BTreeMap<&str, Set> = BTreeMap::new();
    for owned in managers.values() {
        by_version.entry(&owned.api_version).or_default().extend(owned.set());
    }
    // The version of `pruned` first, as conversion may need fields that were pruned.
    let own = by_version.remove(version).map(|set| (version, set));
    let mut pruned = pruned;
    for (version, set) in own.into_iter().chain(by_version) {
        let Some(base) = typed(merged, version, write.versions) else { continue };
        let Some(bare) = typed(&pruned, version, write.versions) else { continue };
        let named = |set: &Set| with_named(Some(base.shape), set);
        let mut keep = named(&walk::fields_of(bare.shape, &bare.value));
        keep.extend(&named(&set));
        let gone = named(&walk::fields_of(base.shape, &base.value)).difference(&keep);
        let next = combine::remove(base.shape, &base.value, &gone);
        pruned = next;
    }
    pruned
}
