//! PodDisruptionBudget controller: computes how many of the selected pods may be evicted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::error::Result;
use capstan_apiserver::ops::{GetOptions, Target};
use capstan_apiserver::registry::group_version;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::common::{Controller, Outcome, Reconciled, Round, name_of, namespace_of, scaled};
use super::pods;
use crate::Pod;
use crate::context::Context;
use crate::informer::{controller_of, key_of};
use crate::writer::is_not_found;
use capstan_semantics::label_selector::selects;

/// A pod that still exists this many seconds after its eviction was allowed was not evicted.
const DELETION_TIMEOUT_SECONDS: i64 = 120;

pub(crate) fn start(context: &Context) {
    let controller = Controller::new(context, "disruption-controller", "controllermanager");
    controller.watch(&context.caches.disruption_budgets);
    let (queue, budgets) = (controller.queue.clone(), context.caches.disruption_budgets.clone());
    context.caches.pods.subscribe(move |change| {
        let pods = [change.old, change.new];
        if let [Some(old), Some(new)] = pods
            && (pods::is_ready(old), pods::is_active(old), &old.metadata.labels)
                == (pods::is_ready(new), pods::is_active(new), &new.metadata.labels)
        {
            return;
        }
        for budget in budgets.in_namespace(namespace_of(&**change.last())) {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let covers =
                |pod: &&Arc<Pod>| selector.is_some_and(|selector| selects(selector, pod.metadata.labels.as_ref()));
            if pods.iter().flatten().any(covers) {
                queue.add(key_of(&budget.metadata));
            }
        }
    });
    watch_owners(&controller);
    controller.run(2, |this, key| async move { reconcile(&this, &key).await });
}

/// Scaling an owner changes the number of pods that a budget expects.
fn watch_owners(controller: &Controller) {
    let caches = &controller.context.caches;
    let enqueuer = || {
        let (queue, budgets) = (controller.queue.clone(), caches.disruption_budgets.clone());
        move |namespace: &str| {
            for budget in budgets.in_namespace(namespace) {
                queue.add(key_of(&budget.metadata));
            }
        }
    };
    let enqueue = enqueuer();
    caches.deployments.subscribe(move |change| {
        if change.old.map(|one| one.spec.replicas) != change.new.map(|one| one.spec.replicas) {
            enqueue(namespace_of(&**change.last()));
        }
    });
    let enqueue = enqueuer();
    caches.replica_sets.subscribe(move |change| {
        if change.old.map(|one| one.spec.replicas) != change.new.map(|one| one.spec.replicas) {
            enqueue(namespace_of(&**change.last()));
        }
    });
    let enqueue = enqueuer();
    caches.stateful_sets.subscribe(move |change| {
        if change.old.map(|one| one.spec.replicas) != change.new.map(|one| one.spec.replicas) {
            enqueue(namespace_of(&**change.last()));
        }
    });
}

async fn reconcile(this: &Controller, key: &str) -> Reconciled {
    let Some(budget) = this.context.caches.disruption_budgets.get(key) else { return Ok(Outcome::Done) };
    let spec = budget.spec.clone().unwrap_or_default();
    let mut pods = this.context.caches.pods.in_namespace(namespace_of(&*budget));
    pods.retain(|pod| {
        let covered = spec.selector.as_ref().is_some_and(|selector| selects(selector, pod.metadata.labels.as_ref()));
        covered && !pods::is_terminal(pod)
    });
    if pods.is_empty() {
        this.normal(&*budget, "NoPods", "No matching pods found");
    }
    let now = this.now();
    let (expected, desired) = match expectation(this, &spec, &pods).await {
        Ok(counts) => counts,
        Err(ScaleError::Unmanaged(message)) => {
            this.warning(&*budget, "CalculateExpectedPodCountFailed", message.clone());
            return fail(this, &budget, message, now).await;
        }
        Err(ScaleError::Server(error)) => return Err(error),
    };
    let (disrupted, wait) = still_disrupted(&budget, &pods, &now);
    let healthy = pods
        .iter()
        .filter(|pod| pods::is_ready(pod) && !pods::is_deleting(pod) && !disrupted.contains_key(name_of(&***pod)));
    let healthy = i32::try_from(healthy.count()).unwrap_or(i32::MAX);
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    let mut status = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        expected_pods: Some(expected),
        disruptions_allowed: Some(allowed),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        observed_generation: budget.metadata.generation,
        conditions: budget.status.as_ref().and_then(|status| status.conditions.clone()),
    };
    let (state, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    set(&mut status, state, reason, String::new(), budget.metadata.generation, now);
    write(this, &budget, status).await?;
    Ok(Outcome::requeue_after(wait))
}

enum ScaleError {
    /// The scale of the workload cannot be determined.
    Unmanaged(String),
    Server(capstan_apiserver::error::Status),
}

/// Expected pod count, and the minimum of healthy pods.
async fn expectation(
    this: &Controller,
    spec: &PodDisruptionBudgetSpec,
    pods: &[Arc<Pod>],
) -> Result<(i32, i32), ScaleError> {
    let count = i32::try_from(pods.len()).unwrap_or(i32::MAX);
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => {
            let expected = expected_scale(this, pods).await?;
            Ok((expected, (expected - scaled(Some(most), expected, Round::Up)).max(0)))
        }
        (None, Some(IntOrString::Int(least))) => Ok((count, *least)),
        (None, Some(least)) => {
            let expected = expected_scale(this, pods).await?;
            Ok((expected, scaled(Some(least), expected, Round::Up)))
        }
        (None, None) => Ok((count, 0)),
    }
}

/// Total scale of the controllers that own the pods.
async fn expected_scale(this: &Controller, pods: &[Arc<Pod>]) -> Result<i32, ScaleError> {
    let mut scales: BTreeMap<String, i32> = BTreeMap::new();
    for pod in pods {
        let Some(owner) = controller_of(&pod.metadata) else {
            let message = format!("found no controller ref for pod \"{}\"", name_of(&**pod));
            return Err(ScaleError::Unmanaged(message));
        };
        if scales.contains_key(&owner.uid) {
            continue;
        }
        let (uid, scale) = scale_of(this, namespace_of(&**pod), owner).await?;
        scales.insert(owner.uid.clone(), 0);
        scales.insert(uid, scale);
    }
    Ok(scales.values().sum())
}

/// UID and scale of the controller of a pod, or of that controller's own controller.
async fn scale_of(this: &Controller, namespace: &str, owner: &OwnerReference) -> Result<(String, i32), ScaleError> {
    let caches = &this.context.caches;
    if owner.kind == "ReplicaSet"
        && let Some(set) = caches.replica_sets.find(namespace, &owner.name)
    {
        let deployment = controller_of(&ReplicaSet::clone(&set).metadata).cloned();
        if let Some(owner) = deployment.filter(|owner| owner.kind == "Deployment")
            && let Some(deployment) = caches.deployments.find(namespace, &owner.name)
        {
            return Ok((owner.uid, deployment.spec.replicas.unwrap_or(1)));
        }
        return Ok((owner.uid.clone(), set.spec.replicas.unwrap_or(1)));
    }
    if owner.kind == "StatefulSet"
        && let Some(set) = caches.stateful_sets.find(namespace, &owner.name)
    {
        return Ok((owner.uid.clone(), set.spec.replicas.unwrap_or(1)));
    }
    let (group, version) = group_version(&owner.api_version);
    let resource = this.context.server.registry().by_kind(group, version, &owner.kind);
    let Some(resource) = resource.filter(|resource| resource.has("scale")) else {
        let message = format!("{}.{group} does not implement the scale subresource", owner.kind.to_lowercase());
        return Err(ScaleError::Unmanaged(message));
    };
    let target = Target::one(resource, Some(namespace), &owner.name).sub("scale");
    match this.context.server.get(this.writer.caller(), &target, &GetOptions::default()).await {
        Ok(scale) => {
            let replicas = scale.value()["spec"]["replicas"].as_i64().unwrap_or(0);
            Ok((owner.uid.clone(), i32::try_from(replicas).unwrap_or(i32::MAX)))
        }
        Err(error) if is_not_found(&error) => Ok((owner.uid.clone(), 0)),
        Err(error) => Err(ScaleError::Server(error)),
    }
}

/// Pods that still exist after their eviction was allowed, and when to check them again.
fn still_disrupted(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    now: &Time,
) -> (BTreeMap<String, Time>, Option<Duration>) {
    let mut disrupted = budget.status.as_ref().and_then(|status| status.disrupted_pods.clone()).unwrap_or_default();
    let mut wait = None::<Duration>;
    disrupted.retain(|name, since| {
        let waits = pods.iter().any(|pod| name_of(&**pod) == name && !pods::is_deleting(pod));
        let left = since.0.as_second() + DELETION_TIMEOUT_SECONDS - now.0.as_second();
        if waits && left > 0 {
            let left = Duration::from_secs(u64::try_from(left).unwrap_or(0));
            wait = Some(wait.map_or(left, |wait| wait.min(left)));
        }
        waits && left > 0
    });
    (disrupted, wait)
}

async fn fail(this: &Controller, budget: &Arc<PodDisruptionBudget>, message: String, now: Time) -> Reconciled {
    let mut status = budget.status.clone().unwrap_or_default();
    status.disruptions_allowed = Some(0);
    status.observed_generation = budget.metadata.generation;
    set(&mut status, "False", "SyncFailed", message, budget.metadata.generation, now);
    write(this, budget, status).await?;
    Ok(Outcome::Done)
}

fn set(
    status: &mut PodDisruptionBudgetStatus,
    state: &str,
    reason: &str,
    message: String,
    generation: Option<i64>,
    now: Time,
) {
    const KIND: &str = "DisruptionAllowed";
    let conditions = status.conditions.get_or_insert_default();
    let old = conditions.iter().find(|one| one.type_ == KIND && one.status == state);
    let condition = Condition {
        type_: KIND.to_owned(),
        status: state.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: old.map_or(now, |old| old.last_transition_time.clone()),
    };
    conditions.retain(|one| one.type_ != KIND);
    conditions.push(condition);
}

async fn write(this: &Controller, budget: &Arc<PodDisruptionBudget>, status: PodDisruptionBudgetStatus) -> Result<()> {
    let mut next = PodDisruptionBudget::clone(budget);
    next.status = Some(status);
    this.writer.update_status(budget, &next).await.map(drop)
}
