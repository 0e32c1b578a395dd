//! `metadata`: fields that the server sets or preserves, and validation.

use serde_json::{Map, Value, json};

use super::server::Profile;
use super::strategy::{Generation, first_status};
use super::{Server, Target};
use crate::error::{Cause, Result, Status};
use crate::field::Path;
use capstan_semantics::names;

/// Maximum total bytes of annotations.
const MAX_ANNOTATIONS: usize = 256 * 1024;
/// Finalizers without a domain prefix.
const PLAIN_FINALIZERS: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

/// A string field of metadata, empty if absent.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The finalizers of an object.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Replaces the finalizers of an object.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    let meta = members(object);
    if finalizers.is_empty() {
        meta.remove("finalizers");
    } else {
        meta.insert("finalizers".into(), finalizers.into());
    }
}

/// The members of `metadata`.
pub(crate) fn members(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    object["metadata"].as_object_mut().expect("it was made an object")
}

/// Sets the namespace of an object from the request, or fails if they differ.
pub(super) fn fit_namespace(target: &Target, object: &mut Value) -> Result<()> {
    let requested = target.namespace.as_deref().unwrap_or_default();
    let given = text(object, "namespace");
    if given == requested {
        if given.is_empty() {
            members(object).remove("namespace");
        }
        return Ok(());
    }
    if !target.resource.namespaced {
        members(object).remove("namespace");
    } else if given.is_empty() {
        members(object).insert("namespace".into(), requested.into());
    } else {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message));
    }
    Ok(())
}

/// Checks that the name of an object matches the request.
pub(super) fn fit_name(target: &Target, object: &Value) -> Result<()> {
    let requested = target.name.as_deref().unwrap_or_default();
    match text(object, "name") {
        "" => {
            let message =
                format!("the name of the object ({requested} based on URL) was undeterminable: name must be provided");
            Err(Status::bad_request(message))
        }
        name if name == requested => Ok(()),
        name => {
            let message = format!("the name of the object ({name}) does not match the name on the URL ({requested})");
            Err(Status::bad_request(message))
        }
    }
}

/// Removes duplicate owner references, with a warning.
pub(super) fn dedupe_owners(object: &mut Value, warnings: &mut Vec<String>) {
    let Some(owners) = object["metadata"].get_mut("ownerReferences").and_then(Value::as_array_mut) else { return };
    let mut seen = std::collections::HashSet::new();
    let before = owners.len();
    let mut twice = Vec::new();
    owners.retain(|owner| {
        let uid = owner["uid"].as_str().unwrap_or_default().to_owned();
        let new = seen.insert(uid.clone());
        if !new {
            twice.push(uid);
        }
        new
    });
    if owners.len() < before {
        let uids = twice.join(", ");
        warnings.push(format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uids}"
        ));
    }
}

/// Sets the system fields of a new object.
pub(super) fn prepare_create(server: &Server, profile: &Profile, object: &mut Value) {
    let (strategy, now) = (profile.strategy, server.clock().rfc3339());
    let meta = members(object);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"] {
        meta.remove(field);
    }
    let generate = meta.get("generateName").and_then(Value::as_str).unwrap_or_default();
    if !generate.is_empty() && meta.get("name").and_then(Value::as_str).unwrap_or_default().is_empty() {
        let name = server.ids().name(generate);
        meta.insert("name".into(), name.into());
    }
    meta.insert("creationTimestamp".into(), now.into());
    meta.insert("uid".into(), server.new_uid().into());
    if strategy.generation == Generation::None {
        meta.remove("generation");
    } else {
        meta.insert("generation".into(), 1.into());
    }
    if strategy.splits_status && !strategy.status_on_create {
        match first_status(&profile.resource) {
            Some(status) => object["status"] = status,
            None => drop(object.as_object_mut().and_then(|members| members.remove("status"))),
        }
    }
}

/// Preserves the system fields of an updated object.
pub(super) fn prepare_update(profile: &Profile, subresource: &str, old: &Value, object: &mut Value) {
    keep(old, object, "generation");
    super::subresource::limit(profile, subresource, old, object);
    if text(object, "uid").is_empty() {
        keep(old, object, "uid");
    }
    keep(old, object, "creationTimestamp");
    if !old["metadata"]["deletionTimestamp"].is_null() {
        keep(old, object, "deletionTimestamp");
    }
    if object["metadata"]["deletionGracePeriodSeconds"].is_null() {
        keep(old, object, "deletionGracePeriodSeconds");
    }
    members(object).remove("selfLink");
    if subresource != "status" && profile.strategy.bumps(old, object) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        members(object).insert("generation".into(), generation.into());
    }
}

/// Restores a metadata field to its old value, or removes it.
pub(super) fn keep(old: &Value, object: &mut Value, field: &str) {
    match &old["metadata"][field] {
        Value::Null => drop(members(object).remove(field)),
        value => drop(members(object).insert(field.into(), value.clone())),
    }
}

/// Validates the metadata of any object.
pub(super) fn validate(profile: &Profile, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (name, generate) = (text(object, "name"), text(object, "generateName"));
    let strategy = profile.strategy;
    if !generate.is_empty() {
        for why in strategy.check_name(generate, true) {
            causes.push(invalid("metadata.generateName", generate, &why));
        }
    }
    if name.is_empty() {
        causes.push(required("metadata.name", "name or generateName is required"));
    } else {
        for why in strategy.check_name(name, false) {
            causes.push(invalid("metadata.name", name, &why));
        }
    }
    let namespace = text(object, "namespace");
    if profile.resource.namespaced {
        if namespace.is_empty() {
            causes.push(required("metadata.namespace", ""));
        } else {
            causes.extend(names::dns_label(namespace).iter().map(|why| invalid("metadata.namespace", namespace, why)));
        }
    } else if !namespace.is_empty() {
        causes.push(forbidden("metadata.namespace", "not allowed on this type"));
    }
    check_labels(object, &mut causes);
    check_annotations(object, &mut causes);
    check_owners(object, &mut causes);
    check_finalizers(profile, object, &mut causes);
    causes
}

/// Warnings about metadata.
pub(super) fn warnings(profile: &Profile, object: &Value) -> Vec<String> {
    if profile.resource.custom().is_none() {
        return Vec::new();
    }
    let plain = finalizers(object).into_iter().filter(|one| !one.contains('/') && !PLAIN_FINALIZERS.contains(one));
    let why = "prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers";
    plain.map(|one| format!("metadata.finalizers: {one:?}: {why}")).collect()
}

fn check_labels(object: &Value, causes: &mut Vec<Cause>) {
    for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        causes.extend(names::qualified_name(key).iter().map(|why| invalid("metadata.labels", key, why)));
        let value = value.as_str().unwrap_or_default();
        causes.extend(names::label_value(value).iter().map(|why| invalid("metadata.labels", value, why)));
    }
}

fn check_annotations(object: &Value, causes: &mut Vec<Cause>) {
    let mut size = 0;
    for (key, value) in object["metadata"]["annotations"].as_object().into_iter().flatten() {
        size += key.len() + value.as_str().unwrap_or_default().len();
        let lower = key.to_lowercase();
        causes.extend(names::qualified_name(&lower).iter().map(|why| invalid("metadata.annotations", key, why)));
    }
    if size > MAX_ANNOTATIONS {
        causes.push(Cause::too_long(&Path::new("metadata.annotations"), MAX_ANNOTATIONS));
    }
}

fn check_owners(object: &Value, causes: &mut Vec<Cause>) {
    let mut controller: Option<String> = None;
    let Some(owners) = object["metadata"]["ownerReferences"].as_array() else { return };
    for (at, owner) in owners.iter().enumerate() {
        let path = format!("metadata.ownerReferences[{at}]");
        let get = |field: &str| owner[field].as_str().unwrap_or_default();
        for field in ["apiVersion", "kind", "name", "uid"] {
            if get(field).is_empty() {
                causes.push(required(&format!("{path}.{field}"), "must not be empty"));
            }
        }
        if get("kind") == "Event" && matches!(get("apiVersion"), "v1" | "events.k8s.io/v1") {
            let (group, version) = crate::registry::group_version(get("apiVersion"));
            let why = format!("{group}/{version}, Kind=Event is disallowed from being an owner");
            causes.push(odd_owner(&path, &owner_text(owner), &why));
        }
        if owner["controller"] == true {
            let name = format!("{}/{}", get("kind"), get("name"));
            if let Some(first) = &controller {
                let all: Vec<String> = owners.iter().map(owner_text).collect();
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                );
                causes.push(odd_owner("metadata.ownerReferences", &format!("[{}]", all.join(",")), &why));
            } else {
                controller = Some(name);
            }
        }
    }
}

fn odd_owner(field: &str, value: &str, why: &str) -> Cause {
    Cause { reason: "FieldValueInvalid", message: format!("Invalid value: {value}: {why}"), field: field.to_owned() }
}

/// An owner reference as kube-apiserver prints it: in the order of its Go fields.
fn owner_text(owner: &Value) -> String {
    let always = ["apiVersion", "kind", "name", "uid"].map(|field| (field, true));
    let members = always.into_iter().chain(["controller", "blockOwnerDeletion"].map(|field| (field, false)));
    let members = members.filter(|(field, always)| *always || !owner[*field].is_null());
    let text = |field: &str| match &owner[field] {
        Value::Null => format!("{field:?}:\"\""),
        value => format!("{field:?}:{value}"),
    };
    format!("{{{}}}", members.map(|(field, _)| text(field)).collect::<Vec<_>>().join(","))
}

fn check_finalizers(profile: &Profile, object: &Value, causes: &mut Vec<Cause>) {
    let all = finalizers(object);
    // CRDs and APIServices are served by other components of kube-apiserver, which are less strict.
    let extends = ["apiextensions.k8s.io", "apiregistration.k8s.io"].contains(&&*profile.resource.group);
    let builtin = profile.resource.custom().is_none() && !extends;
    for (at, finalizer) in all.iter().enumerate() {
        for why in names::qualified_name(finalizer) {
            causes.push(invalid("metadata.finalizers", finalizer, &why));
        }
        if builtin && !finalizer.contains('/') && !PLAIN_FINALIZERS.contains(finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(invalid(&format!("metadata.finalizers[{at}]"), finalizer, why));
        }
    }
    if all.contains(&"orphan") && all.contains(&"foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(invalid_raw("metadata.finalizers", &json!(all), why));
    }
}

/// Validates a metadata update.
pub(super) fn validate_update(old: &Value, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !old["metadata"]["deletionTimestamp"].is_null() {
        let before = finalizers(old);
        let new: Vec<&str> = finalizers(object).into_iter().filter(|one| !before.contains(one)).collect();
        if !new.is_empty() {
            let list = new.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(", ");
            let why = "no new finalizers can be added if the object is being deleted, found new finalizers";
            causes.push(forbidden("metadata.finalizers", &format!("{why} []string{{{list}}}")));
        }
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (before, now) = (&old["metadata"][field], &object["metadata"][field]);
        if before != now {
            causes.push(invalid_raw(&format!("metadata.{field}"), now, "field is immutable"));
        }
    }
    causes
}

fn invalid(field: &str, value: &str, why: &str) -> Cause {
    Cause::invalid(&Path::new(field), &value.into(), why)
}

fn invalid_raw(field: &str, value: &Value, why: &str) -> Cause {
    Cause::invalid(&Path::new(field), value, why)
}

fn required(field: &str, why: &str) -> Cause {
    Cause::required(&Path::new(field), why)
}

fn forbidden(field: &str, why: &str) -> Cause {
    Cause::forbidden(&Path::new(field), why)
}
