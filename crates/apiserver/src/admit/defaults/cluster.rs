//! Defaults of Namespaces, Nodes, Secrets, LimitRanges and role bindings.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use crate::admit::json::{Fill, Read};

const RBAC: &str = "rbac.authorization.k8s.io";

/// A Secret: `stringData` becomes `data`.
pub(super) fn secret(secret: &mut Value) {
    if let Some(Value::Object(texts)) = secret.drop("stringData")
        && !texts.is_empty()
        && let Some(data) = secret.inner_or_new("data")
    {
        for (key, text) in texts {
            data.put(&key, BASE64_STANDARD.encode(text.as_str().unwrap_or_default()));
        }
    }
    secret.fill_zero("type", "Opaque");
}

/// A Namespace, which is labelled with its own name.
pub(super) fn namespace(namespace: &mut Value) {
    let name = namespace["metadata"].text("name").to_owned();
    if !name.is_empty()
        && let Some(labels) = namespace.inner("metadata").and_then(|meta| meta.inner_or_new("labels"))
    {
        labels.put("kubernetes.io/metadata.name", name);
    }
    namespace.fill("spec", Map::new());
    if let Some(status) = namespace.inner_or_new("status") {
        status.fill_zero("phase", "Active");
    }
}

/// A Node.
pub(super) fn node(node: &mut Value) {
    node.fill("spec", Map::new());
    node.fill("status", Map::new());
    if let Some(status) = node.inner("status")
        && status.has("capacity")
    {
        let capacity = status["capacity"].clone();
        status.fill("allocatable", capacity);
    }
    if let Some(spec) = node.inner("spec") {
        let (one, first) =
            (spec.text("podCIDR").to_owned(), spec["podCIDRs"][0].as_str().unwrap_or_default().to_owned());
        if one.is_empty() && !first.is_empty() {
            spec.put("podCIDR", first);
        } else if !one.is_empty() && one != first {
            spec.put("podCIDRs", json!([one]));
        }
    }
}

/// A LimitRange: limits of containers default one another.
pub(super) fn limit_range(range: &mut Value) {
    let Some(spec) = range.inner("spec") else { return };
    for item in spec.items("limits").filter(|item| item.text("type") == "Container") {
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let Some(Value::Object(values)) = item.get(from).cloned() else { continue };
            let Some(target) = item.inner_or_new(to) else { continue };
            for (name, value) in values {
                target.fill(&name, value);
            }
        }
    }
}

/// A RoleBinding or ClusterRoleBinding.
pub(super) fn role_binding(binding: &mut Value) {
    if let Some(role) = binding.inner("roleRef") {
        role.fill_zero("apiGroup", RBAC);
    }
    for subject in binding.items("subjects") {
        if ["User", "Group"].contains(&subject.text("kind")) {
            subject.fill_zero("apiGroup", RBAC);
        }
    }
}
