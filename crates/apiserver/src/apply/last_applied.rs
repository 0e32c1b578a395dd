//! Migration from client-side to server-side apply for the manager `kubectl`: fields in its last-applied annotation do
//! not conflict, and the annotation is kept up to date by later applies.

use serde_json::Value;

use super::gofmt;
use super::managed::Write;
use super::shape::Shape;
use super::updater::Conflict;
use super::walk;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
const MANAGER: &str = "kubectl";

/// Maximum total size of annotations.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The remaining conflicts: fields that still have their last-applied value belong to kubectl.
pub(crate) fn unexpected(live: &Value, write: &Write<'_>, conflicts: Vec<Conflict>) -> Vec<Conflict> {
    if write.manager != MANAGER {
        return conflicts;
    }
    let Some(owned) = owned(live, write) else { return conflicts };
    conflicts.into_iter().filter(|(_, path)| !owned.has(path)).collect()
}

fn owned(live: &Value, write: &Write<'_>) -> Option<super::set::Set> {
    let text = annotation(live)?;
    let last: Value = serde_json::from_str(text).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(write.api_version) {
        return None;
    }
    let shape = Shape::root(write.versions.schema(write.api_version)?);
    walk::validate(shape, live).result().ok()?;
    walk::validate(shape, &last).result().ok()?;
    let change = walk::compare(shape, &last, live);
    let set = walk::fields_of(shape, &last);
    Some(set.difference(&change.modified).difference(&change.added).difference(&change.removed))
}

/// Writes `config` into the last-applied annotation of `object`, if it has one.
pub(crate) fn refresh(object: &mut Value, config: &Value, write: &Write<'_>) {
    if write.manager != MANAGER || annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    let text = format!("{}\n", gofmt::json(&config));
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.insert(ANNOTATION.into(), text.into());
        let size = |(key, value): (&String, &Value)| key.len() + value.as_str().unwrap_or_default().len();
        if annotations.iter().map(size).sum::<usize>() > MAX_ANNOTATIONS {
            annotations.remove(ANNOTATION);
        }
    }
}

fn annotation(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!text.is_empty()).then_some(text)
}
