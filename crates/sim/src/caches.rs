//! Informer caches: one row per kind that any component reads.

use std::sync::Arc;

use capstan_apiserver::ops::{Caller, Server};
use capstan_apiserver::registry::Registry;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, ResourceQuota, Service,
    ServiceAccount, Volume,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::api::storage::v1::StorageClass;

use crate::Pod;
use crate::context::Tasks;
use crate::gauges::Gauges;
use crate::informer::{Cache, Kind};

macro_rules! caches {
    ($($(#[doc = $doc:literal])* $field:ident: $kind:ty $(, where $selector:literal)? $(, with { $($body:tt)* })?;)*) => {
        /// One cache per kind.
        pub struct Caches {
            $($(#[doc = $doc])* pub $field: Cache<$kind>,)*
        }

        impl Caches {
            /// Empty caches.
            pub(crate) fn new(registry: &Registry) -> Self {
                Self { $($field: empty(registry, concat!($($selector)?)),)* }
            }

            /// Starts one watch per kind.
            pub(crate) fn feed(self: &Arc<Self>, server: &Server, caller: &Caller, tasks: &Tasks) {
                $(tasks.spawn(self.$field.clone().feed(server.clone(), caller.clone()));)*
            }

            /// Reports the number of cached objects as gauges.
            pub(crate) fn count(&self, gauges: &Gauges) {
                $(self.$field.count(stringify!($field), gauges);)*
            }

            /// Drops all subscribers. Subscribers hold caches that hold subscribers, so without this the reference
            /// cycle would never be freed.
            pub(crate) fn close(&self) {
                $(self.$field.close();)*
            }

            /// Waits until every cache has synced with the server.
            pub async fn synced(&self) {
                $(self.$field.synced().await;)*
            }
        }

        $(impl Kind for $kind {
            fn cache(caches: &Caches) -> Option<&Cache<Self>> {
                Some(&caches.$field)
            }

            $($($body)*)?
        })*
    };
}

caches! {
    /// Pods, without the service account token volume: in most pods that is the largest part, and only the kubelet
    /// needs it.
    pods: Pod, with {
        fn trim(&mut self) {
            let volumes = self.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
            if volumes.into_iter().any(brings_token) {
                let volumes = &mut self.spec_mut().volumes;
                let rest = volumes.take().into_iter().flatten().filter(|volume| !brings_token(volume));
                *volumes = Some(rest.collect::<Vec<_>>()).filter(|rest| !rest.is_empty());
            }
        }

        fn node(&self) -> Option<&str> {
            self.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
        }
    };
    /// Nodes, without `status.images`.
    nodes: Node, with {
        fn trim(&mut self) {
            if let Some(status) = &mut self.status {
                status.images = None;
            }
        }
    };
    /// Namespaces.
    namespaces: Namespace;
    /// Services.
    services: Service;
    /// Endpoints.
    endpoints: Endpoints;
    /// Endpoint slices.
    endpoint_slices: EndpointSlice;
    /// Service accounts.
    service_accounts: ServiceAccount;
    /// Only the `kube-root-ca.crt` ConfigMaps.
    root_ca_config_maps: ConfigMap, where "metadata.name=kube-root-ca.crt";
    /// PersistentVolumeClaims.
    volume_claims: PersistentVolumeClaim;
    /// PersistentVolumes.
    volumes: PersistentVolume;
    /// StorageClasses.
    storage_classes: StorageClass;
    /// Deployments.
    deployments: Deployment;
    /// ReplicaSets.
    replica_sets: ReplicaSet;
    /// StatefulSets.
    stateful_sets: StatefulSet;
    /// DaemonSets.
    daemon_sets: DaemonSet;
    /// ControllerRevisions of DaemonSets and StatefulSets.
    controller_revisions: ControllerRevision;
    /// Jobs.
    jobs: Job;
    /// CronJobs.
    cron_jobs: CronJob;
    /// HorizontalPodAutoscalers.
    autoscalers: HorizontalPodAutoscaler;
    /// ResourceQuotas.
    resource_quotas: ResourceQuota;
    /// PodDisruptionBudgets.
    disruption_budgets: PodDisruptionBudget;
    /// ResourceClaims.
    resource_claims: ResourceClaim;
    /// ResourceClaimTemplates.
    resource_claim_templates: ResourceClaimTemplate;
    /// ResourceSlices: the devices that DRA drivers publish.
    resource_slices: ResourceSlice;
    /// DeviceClasses.
    device_classes: DeviceClass;
}

impl Kind for Event {}

fn brings_token(volume: &Volume) -> bool {
    let mut sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    volume.name.starts_with("kube-api-access-") && sources.any(|source| source.service_account_token.is_some())
}

fn empty<K: Kind>(registry: &Registry, field_selector: &'static str) -> Cache<K> {
    let resource = registry.lookup(K::GROUP, K::VERSION, K::URL_PATH_SEGMENT);
    Cache::new(resource.expect("kinds with a cache are built in"), field_selector)
}
