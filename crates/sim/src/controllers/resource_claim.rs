//! ResourceClaim controller: creates claims from templates for pods, and deallocates them when the pods terminate.

use std::sync::Arc;

use capstan_apiserver::error::Result;
use capstan_apiserver::ops::DeleteOptions;
use k8s_openapi::api::core::v1::{PodResourceClaim, PodResourceClaimStatus};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::common::{
    Controller, Outcome, Reconciled, annotation, ignore_not_found, name_of, namespace_is_terminating, namespace_of,
    set_in, uid_of,
};
use super::pods::{self, controller_ref};
use crate::Pod;
use crate::context::Context;
use crate::informer::{controller_of, key_of};

/// Annotation of a claim: the name of the pod's claim that it implements.
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// Retains a claim while devices are allocated to it.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
const COMPONENT: &str = "resource-claim-controller";

pub(crate) fn start(context: &Context) {
    start_pods(context);
    start_claims(context);
}

fn start_pods(context: &Context) {
    let controller = Controller::new(context, COMPONENT, "resource_claim");
    let caches = &context.caches;
    let queue = controller.queue.clone();
    caches.pods.subscribe(move |change| {
        if change.new.is_some_and(|pod| pods::spec(pod).resource_claims.is_some()) {
            queue.add(change.key.clone());
        }
    });
    let (queue, all) = (controller.queue.clone(), caches.pods.clone());
    caches.resource_claim_templates.subscribe(move |change| {
        for pod in all.in_namespace(namespace_of(&**change.last())) {
            let claims = pods::spec(&pod).resource_claims.iter().flatten();
            let name = Some(name_of(&**change.last()));
            if claims.into_iter().any(|claim| claim.resource_claim_template_name.as_deref() == name) {
                queue.add(key_of(&pod.metadata));
            }
        }
    });
    controller.watch_owned::<Pod, _>(&caches.resource_claims);
    controller.run(2, |this, key| async move { reconcile_pod(&this, &key).await });
}

fn start_claims(context: &Context) {
    let controller = Controller::new(context, COMPONENT, "resource_claim");
    let caches = &context.caches;
    controller.watch(&caches.resource_claims);
    let queue = controller.queue.clone();
    caches.pods.subscribe(move |change| {
        let pod = change.last();
        if change.new.is_some_and(|pod| !is_done(pod)) || pods::spec(pod).resource_claims.is_none() {
            return;
        }
        for name in claim_names(pod) {
            queue.add(format!("{}/{name}", namespace_of(&**pod)).into());
        }
    });
    controller.run(2, |this, key| async move { reconcile_claim(&this, &key).await });
}

/// Whether a pod no longer needs its devices.
fn is_done(pod: &Pod) -> bool {
    pods::is_terminal(pod) || (pods::is_deleting(pod) && pods::node_name(pod).is_empty())
}

fn statuses(pod: &Pod) -> &[PodResourceClaimStatus] {
    pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_deref()).unwrap_or_default()
}

/// Names of the existing claims of a pod.
fn claim_names(pod: &Pod) -> Vec<String> {
    let named = pods::spec(pod).resource_claims.iter().flatten().filter_map(|claim| claim.resource_claim_name.clone());
    named.chain(statuses(pod).iter().filter_map(|status| status.resource_claim_name.clone())).collect()
}

async fn reconcile_pod(this: &Controller, key: &str) -> Reconciled {
    let Some(pod) = this.context.caches.pods.get(key).filter(|pod| !pods::is_deleting(pod) && !pods::is_terminal(pod))
    else {
        return Ok(Outcome::Done);
    };
    let mut found = Vec::new();
    for wanted in pods::spec(&pod).resource_claims.iter().flatten() {
        let Some(template) = &wanted.resource_claim_template_name else { continue };
        let name = match existing(this, &pod, wanted) {
            Some(name) => Some(name),
            None => match create(this, &pod, wanted, template).await? {
                Some(claim) => Some(claim),
                None => continue,
            },
        };
        found.push(PodResourceClaimStatus { name: wanted.name.clone(), resource_claim_name: name });
    }
    if !found.is_empty() && found != statuses(&pod) {
        let mut next = Pod::clone(&pod);
        next.status.get_or_insert_default().resource_claim_statuses = Some(found);
        ignore_not_found(this.writer.update_status(&pod, &next).await.map(drop))?;
    }
    Ok(Outcome::Done)
}

/// The claim that was created for a pod, by the pod's status or the claim's annotation.
fn existing(this: &Controller, pod: &Pod, wanted: &PodResourceClaim) -> Option<String> {
    let caches = &this.context.caches;
    let noted =
        statuses(pod).iter().find(|status| status.name == wanted.name).and_then(|s| s.resource_claim_name.clone());
    if let Some(name) = noted.filter(|name| caches.resource_claims.find(namespace_of(pod), name).is_some()) {
        return Some(name);
    }
    let claims = caches.resource_claims.controlled_by(uid_of(pod));
    let mine = claims.iter().find(|claim| annotation(&claim.metadata, POD_CLAIM_NAME) == Some(wanted.name.as_str()));
    mine.map(|claim| name_of(&**claim).to_owned())
}

async fn create(
    this: &Controller,
    pod: &Arc<Pod>,
    wanted: &PodResourceClaim,
    template: &str,
) -> Result<Option<String>> {
    let found = this.context.caches.resource_claim_templates.find(namespace_of(&**pod), template);
    let Some(found) = found else {
        let message = format!(
            "PodResourceClaim {}: resource claim template \"{template}\": resourceclaimtemplate.resource.k8s.io \
             \"{template}\" not found",
            wanted.name
        );
        this.warning(&**pod, "FailedResourceClaimCreation", message);
        return Ok(None);
    };
    let spec = found.spec.clone().unwrap_or_default();
    let meta = spec.metadata.unwrap_or_default();
    let mut annotations = meta.annotations;
    set_in(&mut annotations, POD_CLAIM_NAME, wanted.name.as_str());
    let claim = ResourceClaim {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-{}-", name_of(&**pod), wanted.name)),
            namespace: pod.metadata.namespace.clone(),
            labels: meta.labels,
            annotations,
            owner_references: Some(vec![controller_ref(&**pod)]),
            ..ObjectMeta::default()
        },
        spec: spec.spec,
        status: None,
    };
    match this.writer.create(&claim).await {
        Ok(claim) => Ok(Some(name_of(&*claim).to_owned())),
        Err(error) if namespace_is_terminating(&error) => Ok(None),
        Err(error) => {
            let message = format!("PodResourceClaim {}: {error}", wanted.name);
            this.warning(&**pod, "FailedResourceClaimCreation", message);
            Err(error)
        }
    }
}

/// Deallocates claims that no pod uses, and deletes a claim whose pod has terminated.
async fn reconcile_claim(this: &Controller, key: &str) -> Reconciled {
    let Some(claim) = this.context.caches.resource_claims.get(key) else { return Ok(Outcome::Done) };
    let namespace = namespace_of(&*claim);
    let mut status = claim.status.clone().unwrap_or_default();
    let reserved = status.reserved_for.clone().unwrap_or_default();
    let consumers: Vec<_> = reserved
        .iter()
        .filter(|consumer| {
            let other =
                consumer.resource != "pods" || consumer.api_group.as_deref().is_some_and(|group| !group.is_empty());
            let pod = this.context.caches.pods.find(namespace, &consumer.name);
            other || pod.is_some_and(|pod| uid_of(&*pod) == consumer.uid && !is_done(&pod))
        })
        .cloned()
        .collect();
    let mut claim = claim;
    if consumers.len() < reserved.len() {
        if consumers.is_empty() {
            status.allocation = None;
            status.devices = None;
        }
        status.reserved_for = (!consumers.is_empty()).then_some(consumers.clone());
        let mut next = ResourceClaim::clone(&claim);
        next.status = Some(status.clone());
        claim = this.writer.update_status(&claim, &next).await?;
    } else if consumers.is_empty() && claim.metadata.deletion_timestamp.is_some() && status.allocation.is_some() {
        status.allocation = None;
        let mut next = ResourceClaim::clone(&claim);
        next.status = Some(status.clone());
        claim = this.writer.update_status(&claim, &next).await?;
    }
    if status.allocation.is_none() && claim.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER) {
        let mut next = ResourceClaim::clone(&claim);
        next.metadata.finalizers.get_or_insert_default().retain(|one| one != FINALIZER);
        if next.metadata.finalizers.as_ref().is_some_and(Vec::is_empty) {
            next.metadata.finalizers = None;
        }
        claim = this.writer.update(&claim, &next).await?;
    }
    if consumers.is_empty() && claim.metadata.deletion_timestamp.is_none() && owner_is_done(this, &claim) {
        ignore_not_found(this.writer.delete(&*claim, DeleteOptions::default()).await)?;
    }
    Ok(Outcome::Done)
}

fn owner_is_done(this: &Controller, claim: &ResourceClaim) -> bool {
    let Some(owner) = controller_of(&claim.metadata).filter(|owner| owner.kind == "Pod") else { return false };
    let pod = this.context.caches.pods.find(namespace_of(claim), &owner.name);
    pod.is_some_and(|pod| uid_of(&*pod) == owner.uid && is_done(&pod))
}
