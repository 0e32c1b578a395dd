//! The controller of NIMCaches.

use std::collections::BTreeSet;
use std::time::Duration;

use capstan_api::nim::{NimBuild, NimCache, NimCacheStatus};
use capstan_operands::nim::nim_cache;
use capstan_plan::{Facts, Gvk, Live, Plan, Ref};
use capstan_runtime::cache::View;
use capstan_runtime::{Cache, Change, Key, Requeue};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;

use crate::controller::{Controller, Finalizer};
use crate::orchestrator::Nodes;
use crate::states::StateMetric;

pub(super) struct NimCaches {
    /// The nodes, whose GPU products select the profiles.
    pub(super) nodes: Nodes,
}

impl Controller for NimCaches {
    type Object = NimCache;
    type Status = NimCacheStatus;
    /// Products of the GPUs in the cluster.
    type Context = BTreeSet<String>;

    const NAME: &'static str = "nimcache";
    const FINALIZER: Finalizer = Finalizer::Inherited("finalizer.nimcache.apps.nvidia.com");
    const STATE_METRIC: Option<StateMetric> = Some(StateMetric {
        name: "nimCache_status_total",
        states: &["Failed", "InProgress", "NotReady", "PVC-Created", "Pending", "Ready", "Started"],
    });

    fn select<'a>(&self, cache: &NimCache, view: View<'a>) -> View<'a> {
        let (namespace, name) = (cache.namespace().unwrap_or_default(), cache.name_any());
        view.owned_by_object(&Ref::of::<Job>(&namespace, &format!("{name}-job")))
            .in_namespace(&Gvk::of::<NimCache>(), &namespace)
            .in_namespace(&Gvk::of::<NimBuild>(), &namespace)
            .object(&Ref::of::<PersistentVolumeClaim>(&namespace, &nim_cache::claim_name(cache)))
            // Shared by all caches of a namespace.
            .object(&Ref::of::<ServiceAccount>(&namespace, "nim-cache-sa"))
            .object(&Ref::of::<Role>(&namespace, "nim-cache-role"))
            .object(&Ref::of::<RoleBinding>(&namespace, "nim-cache-rolebinding"))
    }

    fn context(&self, _: &NimCache) -> BTreeSet<String> {
        self.nodes.products()
    }

    fn plan(&self, cache: &NimCache, facts: &Facts, products: &BTreeSet<String>) -> Plan<NimCacheStatus> {
        nim_cache::plan(cache, facts, products)
    }

    fn blocked(
        &self,
        cache: &NimCache,
        facts: &Facts,
        products: &BTreeSet<String>,
        reason: &str,
        message: &str,
    ) -> Plan<NimCacheStatus> {
        nim_cache::blocked(cache, facts, products, reason, message)
    }

    /// Changes of Job pods, claims and builds affect their cache.
    fn affected(&self, cache: &Cache, change: &Change<'_>) -> Vec<Requeue> {
        let namespace = &change.key.namespace;
        let named = |name: Option<&str>| Requeue::all(name.map(|name| Key::new(namespace, name)), Duration::ZERO);
        if change.is::<Pod>() {
            let job = change.last()["metadata"]["labels"]["batch.kubernetes.io/job-name"].as_str();
            named(job.and_then(|job| job.strip_suffix("-job")))
        } else if change.is::<PersistentVolumeClaim>() {
            let all = cache.in_namespace(&Gvk::of::<NimCache>(), namespace);
            let uses = |live: &&Live| {
                let claim = live["spec"]["storage"]["pvc"]["name"].as_str().filter(|name| !name.is_empty());
                claim == Some(&*change.key.name)
            };
            all.iter().filter(uses).map(|live| Requeue::now(Key::of(live))).collect()
        } else if change.is::<NimBuild>() {
            named(change.last()["spec"]["nimCache"]["name"].as_str())
        } else {
            Vec::new()
        }
    }
}
