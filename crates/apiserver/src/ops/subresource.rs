//! Which fields an endpoint may change: the object without its status, only the status, or less.

use serde_json::{Value, json};

use super::meta;
use super::server::Profile;
use super::strategy::StatusMeta;

/// Resets all fields that the endpoint may not change.
pub(super) fn limit(profile: &Profile, subresource: &str, old: &Value, object: &mut Value) {
    match subresource {
        "" => limit_main(profile, old, object),
        "status" => limit_status(profile, old, object),
        "finalize" => {
            let finalizers = object["spec"]["finalizers"].clone();
            replace(old, object);
            set(object, &["spec", "finalizers"], finalizers);
        }
        "approval" => {
            let conditions = object["status"]["conditions"].clone();
            replace(old, object);
            set(object, &["status", "conditions"], conditions);
        }
        "ephemeralcontainers" => {
            let containers = object["spec"]["ephemeralContainers"].clone();
            replace(old, object);
            set(object, &["spec", "ephemeralContainers"], containers);
        }
        "resize" => limit_resize(old, object),
        _ => {}
    }
}

fn limit_main(profile: &Profile, old: &Value, object: &mut Value) {
    if profile.strategy.splits_status {
        put(old, object, "status");
    }
    if profile.stored.kind == "Namespace" && profile.stored.api_version == "v1" {
        set(object, &["spec", "finalizers"], old["spec"]["finalizers"].clone());
    }
}

fn limit_status(profile: &Profile, old: &Value, object: &mut Value) {
    match profile.strategy.status_meta {
        StatusMeta::Fixed => {
            let fields = object["metadata"]["managedFields"].clone();
            let status = object["status"].clone();
            replace(old, object);
            set(object, &["status"], status);
            set(object, &["metadata", "managedFields"], fields);
        }
        StatusMeta::Writable(fixed) => {
            let members: Vec<String> = old.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
            let added: Vec<String> = object.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
            for key in members.iter().chain(&added) {
                if !matches!(key.as_str(), "metadata" | "status" | "apiVersion" | "kind") {
                    put(old, object, key);
                }
            }
            for field in fixed {
                meta::keep(old, object, field);
            }
        }
    }
}

/// A resize changes only the resources and resize policy of existing containers.
fn limit_resize(old: &Value, object: &mut Value) {
    let requested = object["spec"].clone();
    replace(old, object);
    for list in ["containers", "initContainers"] {
        let Some(containers) = object["spec"].get_mut(list).and_then(Value::as_array_mut) else { continue };
        for container in containers {
            let same = |other: &&Value| other["name"] == container["name"];
            let Some(new) = requested[list].as_array().into_iter().flatten().find(same) else { continue };
            for field in ["resources", "resizePolicy"] {
                set(container, &[field], new[field].clone());
            }
        }
    }
    if !requested["resources"].is_null() {
        set(object, &["spec", "resources"], requested["resources"].clone());
    }
}

/// Restores everything but the resource version and managed fields.
fn replace(old: &Value, object: &mut Value) {
    let revision = object["metadata"]["resourceVersion"].clone();
    let fields = object["metadata"]["managedFields"].clone();
    *object = old.clone();
    set(object, &["metadata", "resourceVersion"], revision);
    set(object, &["metadata", "managedFields"], fields);
}

/// Restores a member to its old value, or removes it.
fn put(old: &Value, object: &mut Value, key: &str) {
    set(object, &[key], old[key].clone());
}

/// Sets a member, or removes it if the value is null.
fn set(object: &mut Value, path: &[&str], value: Value) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut at = object;
    for parent in parents {
        if !at[*parent].is_object() {
            if value.is_null() {
                return;
            }
            at[*parent] = json!({});
        }
        at = &mut at[*parent];
    }
    if let Some(members) = at.as_object_mut() {
        match value {
            Value::Null => drop(members.remove(*last)),
            value => drop(members.insert((*last).to_owned(), value)),
        }
    }
}
