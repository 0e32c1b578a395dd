//! The controller of NVIDIADrivers.

use std::sync::Arc;
use std::time::Duration;

use capstan_api::gpu::nvidia_driver::NvidiaDriverStatus;
use capstan_api::gpu::{ClusterPolicy, GpuCluster, NvidiaDriver};
use capstan_operands::gpu::nodes::{FINALIZER, Node as View, OWNER, outlives_its_deletion};
use capstan_operands::gpu::nvidia_driver::{self, DriverContext};
use capstan_operands::gpu::{Cluster, upgrade};
use capstan_plan::{Facts, Gvk, Note, Plan, Severity};
use capstan_runtime::queue::Queue;
use capstan_runtime::{Cache, Change, Key, Requeue, cache};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::ResourceExt;

use super::{Cx, NODE_DEBOUNCE, cluster, diagnoses, nodes};
use crate::controller::{Controller, Finalizer};

pub(super) struct NvidiaDrivers(pub(super) Arc<Cx>);

impl Controller for NvidiaDrivers {
    type Object = NvidiaDriver;
    type Status = NvidiaDriverStatus;
    type Context = (Cluster, DriverContext);

    const NAME: &'static str = "nvidiadriver";
    const CONCURRENCY: usize = 1;
    const FINALIZER: Finalizer = Finalizer::Own(FINALIZER);

    fn select<'a>(&self, one: &NvidiaDriver, view: cache::View<'a>) -> cache::View<'a> {
        let revisions = upgrade::kept_revisions(view.objects());
        let named = nvidia_driver::references(one, &self.0.settings.namespace);
        named.iter().chain(&revisions).fold(view, |view, one| view.object(one))
    }

    fn context(&self, one: &NvidiaDriver) -> (Cluster, DriverContext) {
        let cache = &self.0.runtime.cache;
        let mut cluster = cluster::cluster(&self.0);
        if one.spec.use_precompiled == Some(true) {
            cluster.unsupported = cluster::unsupported(cache);
        }
        let context = driver_context(cache, cluster.active());
        (cluster, context)
    }

    fn plan(
        &self,
        one: &NvidiaDriver,
        facts: &Facts,
        (cluster, context): &(Cluster, DriverContext),
    ) -> Plan<NvidiaDriverStatus> {
        nvidia_driver::plan(one, facts, cluster, context)
    }

    fn blocked(
        &self,
        one: &NvidiaDriver,
        facts: &Facts,
        (cluster, context): &(Cluster, DriverContext),
        reason: &str,
        message: &str,
    ) -> Plan<NvidiaDriverStatus> {
        nvidia_driver::blocked(one, facts, cluster, context, reason, message)
    }

    fn needs_teardown(&self, one: &NvidiaDriver, (_, context): &(Cluster, DriverContext)) -> bool {
        !context.disabled && outlives_its_deletion(one, &nodes::all(&self.0.runtime.cache))
    }

    /// Live objects stay until the last node has moved; the status keeps reporting progress.
    fn teardown(
        &self,
        one: &NvidiaDriver,
        facts: &Facts,
        context: &(Cluster, DriverContext),
    ) -> Option<Plan<NvidiaDriverStatus>> {
        let left = nodes_of(&self.0.runtime.cache, &one.name_any());
        (left > 0).then(|| {
            let mut plan = Plan { objects: None, ..self.plan(one, facts, context) };
            let message = format!("is deleted once its driver is gone from {left} nodes, as an upgrade of each");
            plan.events.push(Note { severity: Severity::Normal, reason: upgrade::EVENT, message });
            plan
        })
    }

    fn affected(&self, cache: &Cache, change: &Change<'_>) -> Vec<Requeue> {
        let namespace = &self.0.settings.namespace;
        let all = |delay: Duration| Requeue::all(cache.keys(&Gvk::of::<NvidiaDriver>()), delay);
        let mut affected = diagnoses::requeue_delay(change, namespace).map(all).unwrap_or_default();
        let ours = change.is::<ClusterPolicy>() || change.is::<GpuCluster>() || change.is::<NvidiaDriver>();
        let named = change.is::<ConfigMap>() || change.is::<Secret>();
        if cluster::is_about_kernels(change) || cluster::is_recounted(change) {
            affected.extend(all(NODE_DEBOUNCE));
        } else if ours && !change.own_write
            || named && *change.key.namespace == **namespace
            || cluster::is_about_openshift(change)
        {
            affected.extend(all(Duration::ZERO));
        }
        affected
    }

    fn follow(&self, queue: &Queue<Key>) {
        self.0.reports.notify(Gvk::of::<NvidiaDriver>(), |key| &key.name, &self.0.runtime.cache, queue);
    }
}

/// Number of nodes whose driver belongs to that NVIDIADriver.
fn nodes_of(cache: &Cache, driver: &str) -> usize {
    let nodes = cache.packed(&Gvk::of::<Node>());
    nodes.iter().filter(|node| View::of(*node).labels.is(OWNER, driver)).count()
}

/// Settings of other resources that matter for every driver.
fn driver_context(cache: &Cache, active: Option<&str>) -> DriverContext {
    let policy = active.and_then(|name| cache.typed::<ClusterPolicy>(&Key::new("", name)).ok().flatten());
    let paths = policy.as_ref().map(|policy| policy.spec.host_paths.clone().unwrap_or_default());
    DriverContext {
        disabled: policy.is_some_and(|policy| policy.spec.driver.use_nvidia_driver_crd != Some(true)),
        root: paths.map_or("/".into(), |paths| paths.root_fs.unwrap_or_default()),
        refusal: nodes::wanted(cache).refusal.map(|refusal| (refusal.reason, refusal.message)),
    }
}
