//! The controller of ClusterPolicies.

use std::time::Duration;

use capstan_api::gpu::ClusterPolicy;
use capstan_operands::gpu::cluster_policy::measures::{Measures, measures};
use capstan_operands::gpu::{cluster_policy as policy, upgrade};
use capstan_plan::{Gvk, Ref};
use capstan_runtime::queue::Queue;
use capstan_runtime::{Action, Cache, Change, Error, Key};
use kube::ResourceExt;

use super::{CROWD, Cx, cluster, troubles};
use crate::settle::settle;

/// Makes the cluster what the policy says, and says how far it is.
pub(super) async fn reconcile(cx: Cx, key: Key) -> Result<Action, Error> {
    let runtime = &cx.runtime;
    let one = runtime.cache.typed::<ClusterPolicy>(&key)?.filter(|one| one.metadata.deletion_timestamp.is_none());
    let Some(one) = one else {
        let cluster = cluster::cluster(&cx);
        if cluster.active().is_none() {
            cx.settings.metrics.saw(&Measures::without_policy(&cluster), runtime.clock.now());
        }
        return Ok(Action::Wait);
    };
    let uid = one.uid().unwrap_or_default();
    let reference = Ref::of::<ClusterPolicy>("", &key.name);
    let mut view = runtime.cache.view().owned_by(&uid);
    for named in policy::references(&one, &cx.settings.namespace) {
        view = view.object(&named);
    }
    for revision in upgrade::kept_revisions(&runtime.cache.owned_by(&uid)) {
        view = view.object(&revision);
    }
    let mut facts = view.facts(runtime.clock.now());
    facts.skew = cx.schemas.skew(&reference);
    let mut cluster = cluster::cluster(&cx);
    if one.spec.driver.use_precompiled == Some(true) {
        cluster.unsupported = cluster::unsupported(&runtime.cache);
    }
    let plan = policy::plan(&one, &facts, &cluster);
    if cluster.active() == Some(&*key.name) {
        cx.settings.metrics.saw(&measures(&one, &plan.status, &cluster), facts.now);
    }
    let blocked = |reason: &str, message: &str| policy::blocked(&one, &facts, &cluster, reason, message);
    settle(runtime, &reference, &uid, &facts, plan, blocked).await
}

/// Looks at the policies again when something changed that they depend on and do not own.
pub(super) fn concern(cache: &Cache, queue: &Queue<Key>, namespace: &str, change: &Change<'_>) {
    let all = |delay: Option<Duration>| {
        for key in cache.keys(&Gvk::of::<ClusterPolicy>()) {
            match delay {
                Some(delay) => queue.add_after(key, delay),
                None => queue.add(key),
            }
        }
    };
    if let Some(delay) = troubles::urgency(change, namespace) {
        all(Some(delay));
    }
    match change.kind.kind {
        _ if cluster::is_about_kernels(change) => all(Some(CROWD)),
        "Node" if cluster::counted(change.old) != cluster::counted(change.new) => all(Some(CROWD)),
        // Which policy counts depends on the others.
        "ClusterPolicy" | "GPUCluster" if !change.ours => all(None),
        "ConfigMap" | "Secret" if &*change.key.namespace == namespace => {
            let reference =
                Ref { gvk: change.kind.gvk(), namespace: namespace.into(), name: change.key.name.to_string() };
            for live in cache.all(&Gvk::of::<ClusterPolicy>()) {
                let read = serde_json::from_value::<ClusterPolicy>((*live).clone()).ok();
                if read.is_some_and(|one| policy::references(&one, namespace).contains(&reference)) {
                    queue.add(Key::of(&live));
                }
            }
        }
        kind if cluster::OPENSHIFT.contains(&kind) => all(None),
        _ => {}
    }
}
