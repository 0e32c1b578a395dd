//! Volume provisioner for the real control plane: claims of the storage class get a volume, deleted with them.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

/// The provisioned StorageClass.
const CLASS: &str = "standard";

/// Provisions volumes for pending claims, and deletes released ones.
pub(super) async fn sync(client: &Client) -> kube::Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::all(client.clone());
    for claim in claims.list(&ListParams::default()).await? {
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
        let pending = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending");
        // The controller selects the provisioner by an annotation.
        let requested = claim.annotations().contains_key("volume.kubernetes.io/storage-provisioner");
        if class == Some(CLASS) && pending && requested {
            let _ = provision(client, &claim).await;
        }
    }
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    for volume in volumes.list(&ListParams::default()).await? {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase == Some("Released") && volume.name_any().starts_with("pvc-") {
            volumes.delete(&volume.name_any(), &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

async fn provision(client: &Client, claim: &PersistentVolumeClaim) -> kube::Result<()> {
    let spec = claim.spec.clone().unwrap_or_default();
    let size = spec.resources.and_then(|resources| resources.requests).and_then(|mut all| all.remove("storage"));
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": format!("pvc-{}", claim.uid().unwrap_or_default())},
        "spec": {
            "capacity": {"storage": size}, "accessModes": spec.access_modes, "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/nowhere"},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": claim.uid(),
                "namespace": claim.namespace(), "name": claim.name_any()},
        },
    });
    let volume = serde_json::from_value(volume).expect("a volume");
    Api::<PersistentVolume>::all(client.clone()).create(&PostParams::default(), &volume).await.map(drop)
}
