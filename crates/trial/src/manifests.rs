//! Manifests: parses YAML documents and applies them.

use std::path::Path;

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::{Error, Result};

/// The default manifest.
const EXAMPLE: &str = include_str!("../../../examples/nimservice.yaml");

const CLUSTER_POLICY: &str = include_str!("../../../examples/gpu/minimal.yaml");

/// An object to apply.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Its kind.
    pub kind: GroupVersionKind,
    /// The whole object.
    pub body: Value,
}

impl Manifest {
    /// The name of the object.
    pub fn name(&self) -> &str {
        self.body["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// The namespace of the object, if its kind is namespaced.
    pub fn namespace(&self) -> &str {
        self.body["metadata"]["namespace"].as_str().unwrap_or("default")
    }
}

/// A default StorageClass, as in a typical cluster.
pub fn storage_class() -> Manifest {
    let body = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "capstan.example/virtual", "volumeBindingMode": "WaitForFirstConsumer",
    });
    Manifest { kind: GroupVersionKind::gvk("storage.k8s.io", "v1", "StorageClass"), body }
}

/// The default ClusterPolicy, if the user's manifests have none.
pub fn cluster_policy() -> Result<Vec<Manifest>> {
    parse(CLUSTER_POLICY, Path::new("the built-in ClusterPolicy"))
}

/// A namespace.
pub fn namespace(name: &str) -> Manifest {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    Manifest { kind: GroupVersionKind::gvk("", "v1", "Namespace"), body }
}

/// The objects of these files, or of the example.
pub fn read(files: &[std::path::PathBuf]) -> Result<Vec<Manifest>> {
    if files.is_empty() {
        return parse(EXAMPLE, Path::new("the built-in example"));
    }
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|source| Error::Read { file: file.clone(), source })?;
        all.extend(parse(&text, file)?);
    }
    Ok(all)
}

fn parse(text: &str, file: &Path) -> Result<Vec<Manifest>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| Error::Invalid(format!("{} is not YAML: {error}", file.display())))?;
    let mut manifests = Vec::new();
    for (index, body) in documents.into_iter().filter(|body| !body.is_null()).enumerate() {
        let text = |value: &Value| value.as_str().map(str::to_owned).filter(|text| !text.is_empty());
        let (api_version, kind) = (text(&body["apiVersion"]), text(&body["kind"]));
        let (Some(api_version), Some(kind)) = (api_version, kind) else {
            let place = format!("{}: document {}", file.display(), index + 1);
            return Err(Error::Invalid(format!("{place} has no apiVersion or no kind")));
        };
        if text(&body["metadata"]["name"]).is_none() {
            let place = format!("{}: {kind} in document {}", file.display(), index + 1);
            return Err(Error::Invalid(format!("{place} has no metadata.name")));
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        manifests.push(Manifest { kind: GroupVersionKind::gvk(group, version, &kind), body });
    }
    Ok(manifests)
}

/// Whether the cluster serves the kind of a manifest.
pub async fn is_served(client: &Client, manifest: &Manifest) -> bool {
    kube::discovery::pinned_kind(client, &manifest.kind).await.is_ok()
}

/// Applies one manifest as `kubectl apply --server-side` does.
pub async fn apply(client: &Client, manifest: &Manifest) -> Result<()> {
    let what = format!("{} {}", manifest.kind.kind, manifest.name());
    let found = kube::discovery::pinned_kind(client, &manifest.kind).await;
    let (resource, capabilities) = match found {
        Ok(found) => found,
        Err(source) => return Err(Error::NotServed { what, source }),
    };
    let api: Api<DynamicObject> = match capabilities.scope {
        kube::discovery::Scope::Cluster => Api::all_with(client.clone(), &resource),
        kube::discovery::Scope::Namespaced => Api::namespaced_with(client.clone(), manifest.namespace(), &resource),
    };
    let object: DynamicObject = serde_json::from_value(manifest.body.clone())
        .map_err(|error| Error::Invalid(format!("{what} is no object: {error}")))?;
    let params = PatchParams::apply("kubectl").force();
    match api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(Error::Refused { what, why: status.message }),
        Err(source) => Err(Error::Request { what: format!("apply {what}"), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_a_service_with_what_it_needs() {
        let kinds: Vec<_> = read(&[]).unwrap().into_iter().map(|manifest| manifest.kind.kind).collect();
        assert_eq!(kinds, ["Namespace", "Secret", "NIMService"]);
    }

    #[test]
    fn mistakes_name_the_file_and_the_document() {
        let message = |text| parse(text, Path::new("a.yaml")).unwrap_err().to_string();
        assert_eq!(message("kind: X\nmetadata: {name: x}"), "a.yaml: document 1 has no apiVersion or no kind");
        assert_eq!(message("apiVersion: v1\nkind: Pod"), "a.yaml: Pod in document 1 has no metadata.name");
        assert!(message("a: [").starts_with("a.yaml is not YAML: "));
        assert!(read(&["missing.yaml".into()]).unwrap_err().to_string().starts_with("cannot read missing.yaml: "));
    }
}
