//! Cleanup after a story on a real control plane: deletes its objects and their dependents.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::real::HOME;

/// Deletes custom resources and the namespace, and returns when their pods are gone.
pub(super) async fn sweep(client: &Client, namespace: &str) {
    for kind in capstan_api::kinds() {
        let gvk = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural);
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        // Not served if no story needs the kind.
        for object in all.list(&ListParams::default()).await.into_iter().flatten() {
            let api = match object.namespace() {
                Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
                None => all.clone(),
            };
            // Its operator has stopped: remove the finalizers.
            let free = json!({"metadata": {"finalizers": null}});
            let _ = api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(free)).await;
            let _ = api.delete(&object.name_any(), &DeleteParams::default()).await;
        }
    }
    // Objects that were orphaned on purpose, as migrated drivers, are not garbage collected.
    let (now, all) = (DeleteParams::default(), ListParams::default());
    let _ = Api::<DaemonSet>::namespaced(client.clone(), HOME).delete_collection(&now, &all).await;
    let _ = Api::<Pod>::namespaced(client.clone(), HOME).delete_collection(&now, &all).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let _ = namespaces.delete(namespace, &DeleteParams::default()).await;
    while is_left(client, namespace).await {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Whether pods of the story, or controllers of pods, are left.
async fn is_left(client: &Client, namespace: &str) -> bool {
    let sets = Api::<DaemonSet>::namespaced(client.clone(), HOME).list(&ListParams::default()).await;
    let mut left = sets.is_ok_and(|sets| !sets.items.is_empty());
    for namespace in [namespace, HOME] {
        let pods = Api::<Pod>::namespaced(client.clone(), namespace).list(&ListParams::default()).await;
        left |= pods.is_ok_and(|pods| !pods.items.is_empty());
    }
    left
}
