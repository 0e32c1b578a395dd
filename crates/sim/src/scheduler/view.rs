//! Objects that the scheduler reads besides nodes and pods.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::storage::v1::StorageClass;

use super::pod::PodInfo;
use crate::caches::Caches;
use crate::informer::controller_of;
use capstan_semantics::LabelSelector;

/// Objects that constrain scheduling. An empty view is `()`.
pub trait View {
    /// A PersistentVolumeClaim, by `NAMESPACE/NAME`.
    fn volume_claim(&self, key: &str) -> Option<Arc<PersistentVolumeClaim>> {
        let _ = key;
        None
    }

    /// A PersistentVolume.
    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        let _ = name;
        None
    }

    /// All PersistentVolumes.
    fn volumes(&self) -> Vec<Arc<PersistentVolume>> {
        Vec::new()
    }

    /// A StorageClass.
    fn storage_class(&self, name: &str) -> Option<Arc<StorageClass>> {
        let _ = name;
        None
    }

    /// A ResourceClaim, by `NAMESPACE/NAME`.
    fn resource_claim(&self, key: &str) -> Option<Arc<ResourceClaim>> {
        let _ = key;
        None
    }

    /// All ResourceClaims.
    fn resource_claims(&self) -> Vec<Arc<ResourceClaim>> {
        Vec::new()
    }

    /// All ResourceSlices.
    fn resource_slices(&self) -> Vec<Arc<ResourceSlice>> {
        Vec::new()
    }

    /// A DeviceClass.
    fn device_class(&self, name: &str) -> Option<Arc<DeviceClass>> {
        let _ = name;
        None
    }

    /// The PodDisruptionBudgets of a namespace.
    fn disruption_budgets(&self, namespace: &str) -> Vec<Arc<PodDisruptionBudget>> {
        let _ = namespace;
        Vec::new()
    }

    /// Selector of a pod's siblings: those of its Services and of its ReplicaSet or StatefulSet.
    fn siblings(&self, pod: &PodInfo) -> Option<LabelSelector> {
        let _ = pod;
        None
    }
}

impl View for () {}

impl View for Caches {
    fn volume_claim(&self, key: &str) -> Option<Arc<PersistentVolumeClaim>> {
        self.volume_claims.get(key)
    }

    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.volumes.get(name)
    }

    fn volumes(&self) -> Vec<Arc<PersistentVolume>> {
        self.volumes.list()
    }

    fn storage_class(&self, name: &str) -> Option<Arc<StorageClass>> {
        self.storage_classes.get(name)
    }

    fn resource_claim(&self, key: &str) -> Option<Arc<ResourceClaim>> {
        self.resource_claims.get(key)
    }

    fn resource_claims(&self) -> Vec<Arc<ResourceClaim>> {
        self.resource_claims.list()
    }

    fn resource_slices(&self) -> Vec<Arc<ResourceSlice>> {
        self.resource_slices.list()
    }

    fn device_class(&self, name: &str) -> Option<Arc<DeviceClass>> {
        self.device_classes.get(name)
    }

    fn disruption_budgets(&self, namespace: &str) -> Vec<Arc<PodDisruptionBudget>> {
        self.disruption_budgets.in_namespace(namespace)
    }

    fn siblings(&self, pod: &PodInfo) -> Option<LabelSelector> {
        let mut all = LabelSelector::default();
        for service in self.services.in_namespace(pod.namespace()) {
            let labels = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            if let Some(labels) = labels.filter(|labels| !labels.is_empty()) {
                let selector = LabelSelector::of_labels(labels);
                if selector.matches_labels(pod.labels()) {
                    all = all.and(selector);
                }
            }
        }
        if let Some(owner) = controller_of(&pod.pod.metadata) {
            let selector = match owner.kind.as_str() {
                "ReplicaSet" => {
                    let set = self.replica_sets.find(pod.namespace(), &owner.name);
                    set.map(|set| LabelSelector::new(&set.spec.selector))
                }
                "StatefulSet" => {
                    let set = self.stateful_sets.find(pod.namespace(), &owner.name);
                    set.map(|set| LabelSelector::new(&set.spec.selector))
                }
                _ => None,
            };
            if let Some(selector) = selector {
                all = all.and(selector);
            }
        }
        (!all.is_empty()).then_some(all)
    }
}
