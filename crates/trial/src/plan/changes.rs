//! Difference between two snapshots: pure, field by field.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Serialize;
use serde_json::Value;

use capstan_inspect::Snapshot;
use capstan_inspect::snapshot::named;
use capstan_semantics::field;

/// What happens to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It is created.
    Create,
    /// It is changed.
    Change,
    /// It is deleted.
    Delete,
}

/// An object that would change.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The action.
    pub action: Action,
    /// Kind and group: `DaemonSet.apps`.
    pub kind: String,
    /// Its namespace; empty if cluster-scoped.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Changed fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Field>,
}

/// A field that would change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Field {
    /// Path: `spec.template.spec.containers[driver].image`.
    pub path: String,
    /// The current value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The new value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// Kinds that Kubernetes derives from others, and events.
const DERIVED_KINDS: &[&str] = &[
    "ControllerRevision.apps",
    "EndpointSlice.discovery.k8s.io",
    "Endpoints",
    "Event",
    "Lease.coordination.k8s.io",
    "PersistentVolume",
    "Pod",
    "ReplicaSet.apps",
];

/// Metadata that the server maintains.
const SERVER_METADATA: &[&str] = &[
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generateName",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Annotations of Kubernetes controllers.
const CONTROLLER_ANNOTATIONS: &[&str] = &[
    "deployment.kubernetes.io/revision",
    "deprecated.daemonset.template.generation",
    "kubectl.kubernetes.io/last-applied-configuration",
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/selected-node",
    "volume.kubernetes.io/storage-provisioner",
];

/// Every object that differs, ordered by kind and name.
pub(super) fn between(before: &Snapshot, after: &Snapshot) -> Vec<Change> {
    let kinds = before.objects.keys().chain(after.objects.keys());
    let mut kinds: Vec<&String> = kinds.filter(|kind| !DERIVED_KINDS.contains(&kind.as_str())).collect();
    kinds.sort();
    kinds.dedup();
    kinds.into_iter().flat_map(|kind| of_kind(kind, &by_name(before, kind), &by_name(after, kind))).collect()
}

type Named<'a> = BTreeMap<(&'a str, &'a str), &'a Value>;

fn by_name<'a>(snapshot: &'a Snapshot, kind: &str) -> Named<'a> {
    snapshot.objects.get(kind).into_iter().flatten().map(|object| (named(object), object)).collect()
}

fn of_kind(kind: &str, before: &Named, after: &Named) -> Vec<Change> {
    let change = |(namespace, name): (&str, &str), action, fields| Change {
        action,
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        fields,
    };
    let mut changes = Vec::new();
    for (key, new) in after {
        match before.get(key) {
            None => changes.push(change(*key, Action::Create, Vec::new())),
            Some(old) => {
                let fields = fields(&wanted(kind, old), &wanted(kind, new));
                if !fields.is_empty() {
                    changes.push(change(*key, Action::Change, fields));
                }
            }
        }
    }
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    changes.extend(gone.map(|key| change(*key, Action::Delete, Vec::new())));
    changes.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    changes
}

/// An object without the fields that the server, controllers and nodes write.
fn wanted(kind: &str, object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    let metadata = &mut object["metadata"];
    if let Some(fields) = metadata.as_object_mut() {
        fields.retain(|name, _| !SERVER_METADATA.contains(&name.as_str()));
        for owner in fields.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
            owner.as_object_mut().map(|owner| owner.remove("uid"));
        }
    }
    for at in ["annotations", "labels"] {
        if let Some(entries) = metadata[at].as_object_mut() {
            entries.retain(|name, _| {
                !CONTROLLER_ANNOTATIONS.contains(&name.as_str()) && !name.starts_with("sim.capstan.dev/")
            });
        }
        if metadata[at].as_object().is_some_and(serde_json::Map::is_empty) || metadata[at].is_null() {
            metadata.as_object_mut().map(|fields| fields.remove(at));
        }
    }
    match kind {
        // The server allocates cluster IPs, a provisioner volumes.
        "Service" => drop_fields(&mut object["spec"], &["clusterIP", "clusterIPs"]),
        "PersistentVolumeClaim" => drop_fields(&mut object["spec"], &["volumeName"]),
        "Node" => drop_fields(&mut object["spec"], &["podCIDR", "podCIDRs", "providerID"]),
        "CustomResourceDefinition.apiextensions.k8s.io" => summarize(&mut object),
        _ => {}
    }
    object
}

fn drop_fields(value: &mut Value, names: &[&str]) {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|name, _| !names.contains(&name.as_str()));
    }
}

/// Schemas are thousands of lines: a hash is enough.
fn summarize(definition: &mut Value) {
    for version in definition["spec"]["versions"].as_array_mut().into_iter().flatten() {
        let text = version["schema"].to_string();
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        version["schema"] = format!("a schema of {} characters ({:016x})", text.len(), hasher.finish()).into();
    }
}

/// The differences of two values, as deep as both have the same shape.
pub(super) fn fields(before: &Value, after: &Value) -> Vec<Field> {
    let mut found = Vec::new();
    compare(String::new(), Some(before), Some(after), &mut found);
    found
}

fn compare(path: String, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Field>) {
    match (before, after) {
        (Some(one), Some(other)) if one == other => {}
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            let mut names: Vec<&String> = one.keys().chain(other.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let plain = name.chars().all(|char| char.is_alphanumeric() || "_-".contains(char));
                let step = if plain { field::child(&path, name) } else { field::item(&path, name) };
                compare(step, one.get(name), other.get(name), found);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) => lists(&path, one, other, found),
        (before, after) => found.push(Field { path, before: before.cloned(), after: after.cloned() }),
    }
}

/// Lists of named items are compared by name, others by index.
fn lists(path: &str, one: &[Value], other: &[Value], found: &mut Vec<Field>) {
    let key = ["name", "type", "key", "mountPath"].into_iter().find(|key| {
        let mut seen = std::collections::BTreeSet::new();
        let names = |list: &[Value]| list.iter().map(|item| item[*key].as_str().map(str::to_owned)).collect::<Vec<_>>();
        let unique = |names: Vec<Option<String>>, seen: &mut std::collections::BTreeSet<String>| {
            seen.clear();
            names.into_iter().all(|name| name.is_some_and(|name| seen.insert(name)))
        };
        unique(names(one), &mut seen) && unique(names(other), &mut seen)
    });
    match key {
        Some(key) => {
            let find = |list: &[Value], name: &Value| list.iter().find(|item| item[key] == *name).cloned();
            let mut names: Vec<&Value> = one.iter().map(|item| &item[key]).collect();
            names.extend(other.iter().map(|item| &item[key]).filter(|name| find(one, name).is_none()));
            for name in names {
                let step = field::item(path, name.as_str().unwrap_or_default());
                compare(step, find(one, name).as_ref(), find(other, name).as_ref(), found);
            }
        }
        None => {
            for place in 0..one.len().max(other.len()) {
                compare(field::item(path, place), one.get(place), other.get(place), found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(objects: &[Value]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        objects.iter().for_each(|object| snapshot.add(object.clone()));
        snapshot
    }

    fn set(name: &str, image: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": name, "namespace": "gpu", "resourceVersion": image, "generation": 3},
            "spec": {"template": {"spec": {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": image}]}}},
            "status": {"numberReady": image.len()},
        })
    }

    #[test]
    fn what_comes_changes_and_goes_is_told_with_fields() {
        let before = cluster(&[set("old", "b:1"), set("same", "b:1"), set("other", "b:1")]);
        let after = cluster(&[set("same", "b:1"), set("other", "b:2"), set("new", "b:1")]);
        let changes = between(&before, &after);
        let short: Vec<_> = changes.iter().map(|change| (change.action, change.name.as_str())).collect();
        assert_eq!(short, [(Action::Create, "new"), (Action::Delete, "old"), (Action::Change, "other")]);
        let field = &changes[2].fields[0];
        assert_eq!(field.path, "spec.template.spec.containers[b].image");
        assert_eq!((&field.before, &field.after), (&Some(json!("b:1")), &Some(json!("b:2"))));
    }

    #[test]
    fn status_pods_and_what_the_server_keeps_are_no_changes() {
        let mut later = set("a", "b:1");
        later["status"] = json!({"numberReady": 9});
        later["metadata"]["generation"] = 7.into();
        later["metadata"]["annotations"] = json!({"deprecated.daemonset.template.generation": "2"});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "gpu"}});
        assert_eq!(between(&cluster(&[set("a", "b:1")]), &cluster(&[later, pod])), []);
    }

    #[test]
    fn a_new_item_and_an_item_that_goes_are_named() {
        let found = fields(
            &json!({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "args": ["x", "y"]}),
            &json!({"env": [{"name": "B", "value": "2"}, {"name": "C", "value": "3"}], "args": ["x"]}),
        );
        let paths: Vec<_> =
            found.iter().map(|field| (field.path.as_str(), field.before.is_some(), field.after.is_some())).collect();
        assert_eq!(paths, [("args[1]", true, false), ("env[A]", true, false), ("env[C]", false, true)]);
    }

    #[test]
    fn keys_with_dots_stand_in_brackets() {
        let found = fields(&json!({"labels": {"a.b/c": "1"}}), &json!({"labels": {"a.b/c": "2"}}));
        assert_eq!(found[0].path, "labels[a.b/c]");
    }
}
