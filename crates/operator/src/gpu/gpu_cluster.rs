//! The controller of GPUClusters.

use std::sync::Arc;
use std::time::Duration;

use capstan_api::gpu::gpu_cluster::GpuClusterStatus;
use capstan_api::gpu::{ClusterPolicy, GpuCluster};
use capstan_operands::gpu::{Cluster, gpu_cluster};
use capstan_plan::{Facts, Gvk, Plan};
use capstan_runtime::cache::View;
use capstan_runtime::{Cache, Change, Requeue};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};

use super::{Cx, NODE_DEBOUNCE, cluster};
use crate::controller::{Controller, Finalizer};

pub(super) struct GpuClusters(pub(super) Arc<Cx>);

impl Controller for GpuClusters {
    type Object = GpuCluster;
    type Status = GpuClusterStatus;
    type Context = Cluster;

    const NAME: &'static str = "gpucluster";
    const CONCURRENCY: usize = 1;
    const FINALIZER: Finalizer = Finalizer::Own(gpu_cluster::FINALIZER);

    fn select<'a>(&self, one: &GpuCluster, view: View<'a>) -> View<'a> {
        gpu_cluster::references(one, &self.0.settings.namespace).iter().fold(view, |view, named| view.object(named))
    }

    fn context(&self, _: &GpuCluster) -> Cluster {
        cluster::cluster(&self.0)
    }

    fn plan(&self, one: &GpuCluster, facts: &Facts, context: &Cluster) -> Plan<GpuClusterStatus> {
        gpu_cluster::plan(one, facts, context)
    }

    fn blocked(
        &self,
        one: &GpuCluster,
        facts: &Facts,
        context: &Cluster,
        reason: &str,
        message: &str,
    ) -> Plan<GpuClusterStatus> {
        gpu_cluster::blocked(one, facts, context, reason, message)
    }

    /// It is removed once no claim of its driver is in use. Dependents are garbage-collected.
    fn teardown(&self, one: &GpuCluster, facts: &Facts, _: &Cluster) -> Option<Plan<GpuClusterStatus>> {
        let teardown = gpu_cluster::teardown(facts);
        (!teardown.draining.is_empty()).then(|| Plan {
            objects: Some(teardown.objects),
            status: one.status.clone().unwrap_or_default(),
            events: teardown.event.into_iter().collect(),
            requeue: None,
            queries: Vec::new(),
            transient: false,
        })
    }

    fn affected(&self, cache: &Cache, change: &Change<'_>) -> Vec<Requeue> {
        let namespace = &self.0.settings.namespace;
        let all = |delay: Duration| Requeue::all(cache.keys(&Gvk::of::<GpuCluster>()), delay);
        if cluster::is_recounted(change) {
            return all(NODE_DEBOUNCE);
        }
        let concerns = change.is::<ClusterPolicy>() && !change.own_write
            || change.is::<Namespace>() && *change.key.name == **namespace
            || change.is::<ConfigMap>() && *change.key.namespace == **namespace
            || cluster::is_about_openshift(change);
        if concerns { all(Duration::ZERO) } else { Vec::new() }
    }
}
