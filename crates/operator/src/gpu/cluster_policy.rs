//! The controller of ClusterPolicies.

use std::sync::Arc;
use std::time::Duration;

use capstan_api::gpu::cluster_policy::ClusterPolicyStatus;
use capstan_api::gpu::{ClusterPolicy, GpuCluster};
use capstan_operands::gpu::cluster_policy::measures::{Measures, measures};
use capstan_operands::gpu::{Cluster, cluster_policy, upgrade};
use capstan_plan::{Facts, Gvk, Plan};
use capstan_runtime::cache::View;
use capstan_runtime::queue::Queue;
use capstan_runtime::{Cache, Change, Key, Requeue};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use super::{Cx, NODE_DEBOUNCE, cluster, diagnoses};
use crate::controller::Controller;

pub(super) struct ClusterPolicies(pub(super) Arc<Cx>);

impl Controller for ClusterPolicies {
    type Object = ClusterPolicy;
    type Status = ClusterPolicyStatus;
    type Context = Cluster;

    const NAME: &'static str = "clusterpolicy";
    const CONCURRENCY: usize = 1;

    fn select<'a>(&self, policy: &ClusterPolicy, view: View<'a>) -> View<'a> {
        let revisions = upgrade::kept_revisions(view.objects());
        let named = cluster_policy::references(policy, &self.0.settings.namespace);
        named.iter().chain(&revisions).fold(view, |view, one| view.object(one))
    }

    fn context(&self, policy: &ClusterPolicy) -> Cluster {
        let mut context = cluster::cluster(&self.0);
        if policy.spec.driver.use_precompiled == Some(true) {
            context.unsupported = cluster::unsupported(&self.0.runtime.cache);
        }
        context
    }

    fn plan(&self, policy: &ClusterPolicy, facts: &Facts, context: &Cluster) -> Plan<ClusterPolicyStatus> {
        cluster_policy::plan(policy, facts, context)
    }

    fn blocked(
        &self,
        policy: &ClusterPolicy,
        facts: &Facts,
        context: &Cluster,
        reason: &str,
        message: &str,
    ) -> Plan<ClusterPolicyStatus> {
        cluster_policy::blocked(policy, facts, context, reason, message)
    }

    fn affected(&self, cache: &Cache, change: &Change<'_>) -> Vec<Requeue> {
        let namespace = &self.0.settings.namespace;
        let all = |delay: Duration| Requeue::all(cache.keys(&Gvk::of::<ClusterPolicy>()), delay);
        let mut affected = diagnoses::requeue_delay(change, namespace).map(all).unwrap_or_default();
        if cluster::is_about_kernels(change) || cluster::is_recounted(change) {
            affected.extend(all(NODE_DEBOUNCE));
        } else if (change.is::<ClusterPolicy>() || change.is::<GpuCluster>()) && !change.own_write {
            // Which policy is active depends on the others.
            affected.extend(all(Duration::ZERO));
        } else if (change.is::<ConfigMap>() || change.is::<Secret>()) && *change.key.namespace == **namespace {
            affected.extend(referencing(cache, namespace, change));
        } else if cluster::is_about_openshift(change) {
            affected.extend(all(Duration::ZERO));
        }
        affected
    }

    fn follow(&self, queue: &Queue<Key>) {
        self.0.reports.notify(Gvk::of::<ClusterPolicy>(), |_| "", &self.0.runtime.cache, queue);
    }

    fn planned(&self, policy: &ClusterPolicy, plan: &Plan<ClusterPolicyStatus>, context: &Cluster, now: Timestamp) {
        if context.active() == policy.metadata.name.as_deref() {
            self.0.settings.metrics.record(&measures(policy, &plan.status, context), now);
        }
    }

    fn gone(&self) {
        let context = cluster::cluster(&self.0);
        if context.active().is_none() {
            self.0.settings.metrics.record(&Measures::without_policy(&context), self.0.runtime.clock.now());
        }
    }
}

/// The policies that reference the changed object.
fn referencing(cache: &Cache, namespace: &str, change: &Change<'_>) -> Vec<Requeue> {
    let reference = change.kind.reference(namespace, &change.key.name);
    let names = |live: &capstan_plan::Live| {
        let read = serde_json::from_value::<ClusterPolicy>((**live).clone()).ok();
        read.is_some_and(|one| cluster_policy::references(&one, namespace).contains(&reference))
    };
    let all = cache.all(&Gvk::of::<ClusterPolicy>());
    all.iter().filter(|live| names(live)).map(|live| Requeue::now(Key::of(live))).collect()
}
