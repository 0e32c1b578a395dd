//! CustomResourceDefinitions: the resources that they serve, and their status.

mod status;
mod validate;

use std::sync::Arc;

use serde_json::Value;

use super::builtin::{SCALE, STATUS};
use super::{CustomVersion, Origin, Resource, Subresource};
use crate::schema::{Child, Schema, cel, compile};

pub use status::{Condition, condition, set_condition, settle};
pub use validate::{validate, warnings};

/// Group of CustomResourceDefinitions.
pub const GROUP: &str = "apiextensions.k8s.io";
/// Plural of CustomResourceDefinitions.
pub const PLURAL: &str = "customresourcedefinitions";
/// The finalizer that holds a CRD until all its objects are deleted.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Verbs of custom resources, in the order of discovery.
const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
/// Verbs of a terminating CRD.
const LAST_VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "watch"];

/// The resources that a CRD serves; none until its names are accepted.
pub fn resources(crd: &Value) -> Vec<Resource> {
    if condition(crd, "Established").is_none_or(|condition| condition["status"] != "True") {
        return Vec::new();
    }
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    versions.filter(|version| version["served"] == true).map(|version| resource(crd, version)).collect()
}

/// Whether the resource is `customresourcedefinitions`.
pub fn is_definitions(resource: &Resource) -> bool {
    &*resource.group == GROUP && &*resource.plural == PLURAL
}

/// Adds the storage version to `status.storedVersions`.
pub fn prepare(crd: &mut Value) {
    let storage = storage_version(crd).to_owned();
    let mut stored = texts(&crd["status"]["storedVersions"]);
    if !storage.is_empty() && !stored.contains(&storage) {
        stored.push(storage);
        crd["status"]["storedVersions"] = stored.into();
    }
}

/// Sets the Terminating condition and the cleanup finalizer of a CRD that is deleted.
pub fn begin_deletion(crd: &mut Value, now: &str) {
    let mut finalizers = texts(&crd["metadata"]["finalizers"]);
    if !finalizers.iter().any(|one| one == CLEANUP) {
        finalizers.push(CLEANUP.into());
    }
    crd["metadata"]["finalizers"] = finalizers.into();
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(crd, &Condition::new("Terminating", true, "InstanceDeletionPending", message), now);
}

/// The storage version.
pub fn storage_version(crd: &Value) -> &str {
    let mut versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    versions.find(|version| version["storage"] == true).map_or("", |version| text(&version["name"]))
}

fn resource(crd: &Value, version: &Value) -> Resource {
    let (spec, names) = (&crd["spec"], &crd["status"]["acceptedNames"]);
    let group: Arc<str> = text(&spec["group"]).into();
    let terminating = condition(crd, "Terminating").is_some_and(|condition| condition["status"] == "True");
    let declared = declared(crd, version);
    Resource {
        group: group.clone(),
        version: text(&version["name"]).into(),
        storage_group: group,
        storage_version: storage_version(crd).into(),
        kind: text(&names["kind"]).into(),
        list_kind: text(&names["listKind"]).into(),
        plural: text(&names["plural"]).into(),
        singular: text(&names["singular"]).into(),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: spec["scope"] == "Namespaced",
        verbs: if terminating { LAST_VERBS } else { VERBS },
        subresources: subresources(version),
        shape: Child::Inline(Arc::new(with_metadata(declared.clone()))),
        origin: Origin::Custom(Arc::new(custom(crd, version, declared, terminating))),
    }
}

fn subresources(version: &Value) -> Vec<Subresource> {
    let given = &version["subresources"];
    let known = [("scale", SCALE), ("status", STATUS)];
    known.into_iter().filter(|(name, _)| !given[name].is_null()).map(|(_, subresource)| subresource).collect()
}

fn declared(crd: &Value, version: &Value) -> Schema {
    let mut schema = match &version["schema"]["openAPIV3Schema"] {
        Value::Object(_) => compile(&version["schema"]["openAPIV3Schema"]),
        _ => Schema { preserve_unknown: true, ..Schema::default() },
    };
    schema.preserve_unknown |= crd["spec"]["preserveUnknownFields"] == true;
    schema
}

/// The schema plus `apiVersion`, `kind` and `metadata`; a CRD can only restrict the name further.
fn with_metadata(mut schema: Schema) -> Schema {
    let declared = schema.properties.remove("metadata");
    let checks = declared.filter(|metadata| !metadata.schema().properties.is_empty());
    let metadata = checks.map_or_else(|| Child::named(OBJECT_META), |checks| with_object_meta(checks.schema()));
    schema.properties.insert("metadata".into(), metadata);
    for name in ["apiVersion", "kind"] {
        let text = || Child::Inline(Arc::new(compile(&serde_json::json!({"type": "string"}))));
        schema.properties.entry(name.to_owned()).or_insert_with(text);
    }
    schema
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// All fields of metadata, with the CRD's restrictions of the name.
fn with_object_meta(checks: &Schema) -> Child {
    let mut schema = crate::schema::definition(OBJECT_META).cloned().unwrap_or_default();
    schema.properties.extend(checks.properties.clone());
    schema.required.clone_from(&checks.required);
    Child::Inline(Arc::new(schema))
}

fn custom(crd: &Value, version: &Value, declared: Schema, terminating: bool) -> CustomVersion {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let selectable = list(&version["selectableFields"]);
    CustomVersion {
        uid: text(&crd["metadata"]["uid"]).to_owned(),
        columns: list(&version["additionalPrinterColumns"]),
        scale: Some(version["subresources"]["scale"].clone()).filter(|scale| !scale.is_null()),
        selectable_fields: selectable.iter().map(|field| text(&field["jsonPath"]).to_owned()).collect(),
        deprecation: (version["deprecated"] == true).then(|| deprecation(crd, version)),
        terminating,
        declared: Arc::new(declared),
        rules: cel::Lazy::default(),
    }
}

/// The deprecation warning of a version: the CRD's own, or one that recommends a newer version.
fn deprecation(crd: &Value, version: &Value) -> String {
    if let Some(text) = version["deprecationWarning"].as_str() {
        return text.to_owned();
    }
    let (group, kind, name) =
        (text(&crd["spec"]["group"]), text(&crd["spec"]["names"]["kind"]), text(&version["name"]));
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let served = versions.filter(|other| other["served"] == true && other["deprecated"] != true);
    let newer = served.map(|other| text(&other["name"])).filter(|other| super::version_order(other, name).is_lt());
    match newer.min_by(|a, b| super::version_order(a, b)) {
        Some(newer) => format!("{group}/{name} {kind} is deprecated; use {group}/{newer} {kind}"),
        None => format!("{group}/{name} {kind} is deprecated"),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn crd() -> Value {
        let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
            "shortNames": ["wd"], "categories": ["all"]});
        json!({
            "metadata": {"name": "widgets.example.com", "uid": "u"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [
                {"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
                    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas"}}},
                {"name": "v1beta1", "served": true, "storage": false, "deprecated": true, "schema": {}},
                {"name": "v1alpha1", "served": false, "storage": false, "schema": {}},
            ]},
            "status": {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}]},
        })
    }

    #[test]
    fn served_versions_become_resources() {
        let found = resources(&crd());
        assert_eq!(
            found.iter().map(|r| r.api_version()).collect::<Vec<_>>(),
            ["example.com/v1", "example.com/v1beta1"]
        );
        assert!(found[0].has("status") && found[0].has("scale") && !found[1].has("status"));
        assert_eq!((&*found[1].storage_version, found[1].short_names.as_slice()), ("v1", &["wd".to_owned()][..]));
        let deprecation = found[1].custom().and_then(|custom| custom.deprecation.clone());
        assert_eq!(deprecation.as_deref(), Some("example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget"));
    }

    #[test]
    fn nothing_is_served_before_the_names_are_accepted() {
        let mut crd = crd();
        crd["status"]["conditions"] = json!([]);
        assert!(resources(&crd).is_empty());
    }

    #[test]
    fn objects_of_a_crd_that_goes_can_only_be_read_and_deleted() {
        let mut crd = crd();
        set_condition(&mut crd, &Condition::new("Terminating", true, "InstanceDeletionPending", ""), "now");
        assert!(!resources(&crd)[0].serves("create") && resources(&crd)[0].serves("delete"));
    }
}
