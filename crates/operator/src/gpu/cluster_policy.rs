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
    type Surroundings = Cluster;

    const NAME: &'static str = "clusterpolicy";
    const CONCURRENCY: usize = 1;

    fn select<'a>(&self, policy: &ClusterPolicy, view: View<'a>) -> View<'a> {
        let revisions = upgrade::kept_revisions(view.objects());
        let named = cluster_policy::references(policy, &self.0.settings.namespace);
        named.iter().chain(&revisions).fold(view, |view, one| view.object(one))
    }

    fn surroundings(&self, policy: &ClusterPolicy) -> Cluster {
        let mut around = cluster::cluster(&self.0);
        if policy.spec.driver.use_precompiled == Some(true) {
            around.unsupported = cluster::unsupported(&self.0.runtime.cache);
        }
        around
    }

    fn plan(&self, policy: &ClusterPolicy, facts: &Facts, around: &Cluster) -> Plan<ClusterPolicyStatus> {
        cluster_policy::plan(policy, facts, around)
    }

    fn blocked(
        &self,
        policy: &ClusterPolicy,
        facts: &Facts,
        around: &Cluster,
        reason: &str,
        message: &str,
    ) -> Plan<ClusterPolicyStatus> {
        cluster_policy::blocked(policy, facts, around, reason, message)
    }

    fn affected(&self, cache: &Cache, change: &Change<'_>) -> Vec<Requeue> {
        let namespace = &self.0.settings.namespace;
        let all = |delay: Duration| Requeue::all(cache.keys(&Gvk::of::<ClusterPolicy>()), delay);
        let mut affected = diagnoses::urgency(change, namespace).map(all).unwrap_or_default();
        if cluster::is_about_kernels(change) || cluster::is_recounted(change) {
            affected.extend(all(NODE_DEBOUNCE));
        } else if (change.is::<ClusterPolicy>() || change.is::<GpuCluster>()) && !change.ours {
            // Which policy counts depends on the others.
            affected.extend(all(Duration::ZERO));
        } else if (change.is::<ConfigMap>() || change.is::<Secret>()) && *change.key.namespace == **namespace {
            affected.extend(mentioning(cache, namespace, change));
        } else if cluster::is_about_openshift(change) {
            affected.extend(all(Duration::ZERO));
        }
        affected
    }

    fn follow(&self, queue: &Queue<Key>) {
        self.0.reports.notify(Gvk::of::<ClusterPolicy>(), |_| "", &self.0.runtime.cache, queue);
    }

    fn planned(&self, policy: &ClusterPolicy, plan: &Plan<ClusterPolicyStatus>, around: &Cluster, now: Timestamp) {
        if around.active() == policy.metadata.name.as_deref() {
            self.0.settings.metrics.saw(&measures(policy, &plan.status, around), now);
        }
    }

    fn gone(&self) {
        let around = cluster::cluster(&self.0);
        if around.active().is_none() {
            self.0.settings.metrics.saw(&Measures::without_policy(&around), self.0.runtime.clock.now());
        }
    }
}

/// Policies that name what has changed.
fn mentioning(cache: &Cache, namespace: &str, change: &Change<'_>) -> Vec<Requeue> {
    let reference = change.kind.reference(namespace, &change.key.name);
    let names = |live: &capstan_plan::Live| {
        let read = serde_json::from_value::<ClusterPolicy>((**live).clone()).ok();
        read.is_some_and(|one| cluster_policy::references(&one, namespace).contains(&reference))
    };
    let all = cache.all(&Gvk::of::<ClusterPolicy>());
    all.iter().filter(|live| names(live)).map(|live| Requeue::now(Key::of(live))).collect()
}
