//! Namespace lifecycle: objects are created only in existing, active namespaces, and a namespace is removed only after
//! its content.

use serde_json::{Value, json};

use super::server::Profile;
use super::{Server, Target, meta};
use crate::error::{Result, Status};
use crate::registry::Resource;
use crate::store::TableKey;

/// Namespaces that cannot be deleted.
pub(crate) const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];
/// The finalizer in `spec.finalizers` that holds a namespace until it is empty.
pub(crate) const KUBERNETES_FINALIZER: &str = "kubernetes";
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Whether the resource is `namespaces`.
pub(super) fn is_namespaces(resource: &Resource) -> bool {
    resource.group.is_empty() && &*resource.plural == "namespaces"
}

/// Checks that the namespace of a new object exists and is not terminating.
pub(super) fn admit_create(server: &Server, target: &Target, name: &str) -> Result<()> {
    let (Some(namespace), true) = (&target.namespace, target.resource.namespaced) else { return Ok(()) };
    match server.store().get(&TableKey::new("", "namespaces"), "", namespace) {
        None => {
            let message = format!("namespaces \"{namespace}\" not found");
            Err(Status::new(404, "NotFound", message).with_details(json!({"name": namespace, "kind": "namespaces"})))
        }
        Some(object) if object.deleting => {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            let mut status = Status::forbidden(&target.resource, name, &why);
            status.details["causes"] = json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace",
            }]);
            Err(status)
        }
        Some(_) => Ok(()),
    }
}

/// Defaults of a namespace.
pub(super) fn complete(profile: &Profile, object: &mut Value) {
    let name = meta::text(object, "name").to_owned();
    if is_namespaces(&profile.resource) && !name.is_empty() {
        object["metadata"]["labels"][NAME_LABEL] = name.into();
    }
}

/// Sets the `kubernetes` finalizer of a new namespace.
pub(super) fn prepare_create(profile: &Profile, object: &mut Value) {
    if !is_namespaces(&profile.resource) {
        return;
    }
    complete(profile, object);
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    let finalizers = object["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|one| one == KUBERNETES_FINALIZER) {
        object["spec"]["finalizers"] = finalizers.into_iter().chain([KUBERNETES_FINALIZER.into()]).collect();
    }
}

/// Checks that a namespace may be deleted.
pub(super) fn admit_delete(target: &Target) -> Result<()> {
    let name = target.name.as_deref().unwrap_or_default();
    if is_namespaces(&target.resource) && IMMORTAL.contains(&name) {
        return Err(Status::forbidden(&target.resource, name, "this namespace may not be deleted"));
    }
    Ok(())
}

/// Whether a namespace still has the `kubernetes` finalizer.
pub(super) fn has_content(object: &Value) -> bool {
    object["spec"]["finalizers"].as_array().is_some_and(|all| !all.is_empty())
}
