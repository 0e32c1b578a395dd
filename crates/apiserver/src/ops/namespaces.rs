//! What is special about namespaces: objects live only in those that are there to stay, and a namespace goes only after
//! everything in it.

use serde_json::{Value, json};

use super::server::Profile;
use super::{Server, Target, meta};
use crate::error::{Result, Status};
use crate::registry::Resource;
use crate::store::TableKey;

/// Namespaces that are always there.
pub(crate) const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];
/// The finalizer in `spec` that stands for the content of a namespace.
pub(crate) const CONTENT: &str = "kubernetes";
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Whether a resource is the namespaces themselves.
pub(super) fn is_namespaces(resource: &Resource) -> bool {
    resource.group.is_empty() && &*resource.plural == "namespaces"
}

/// Whether an object may be created in the namespace of a request.
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

/// A new namespace has content to be.
pub(super) fn prepare_create(profile: &Profile, object: &mut Value) {
    if !is_namespaces(&profile.resource) {
        return;
    }
    complete(profile, object);
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    let finalizers = object["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|one| one == CONTENT) {
        object["spec"]["finalizers"] = finalizers.into_iter().chain([CONTENT.into()]).collect();
    }
}

/// Whether a namespace may be deleted at all.
pub(super) fn admit_delete(target: &Target) -> Result<()> {
    let name = target.name.as_deref().unwrap_or_default();
    if is_namespaces(&target.resource) && IMMORTAL.contains(&name) {
        return Err(Status::forbidden(&target.resource, name, "this namespace may not be deleted"));
    }
    Ok(())
}

/// Whether a namespace still waits for its content.
pub(super) fn has_content(object: &Value) -> bool {
    object["spec"]["finalizers"].as_array().is_some_and(|all| !all.is_empty())
}
