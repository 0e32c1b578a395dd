//! Storage object in use protection: finalizers retain a claim while a pod uses it, and a volume while a claim does.

use std::sync::Arc;

use capstan_apiserver::error::Result;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::super::common::{Controller, Outcome, Reconciled, ignore_not_found, name_of, namespace_of};
use super::super::pods;
use super::phase;
use crate::Pod;
use crate::context::Context;
use crate::informer::Kind;

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";

pub(super) fn start(context: &Context) {
    let controller = Controller::new(context, "pvc-protection-controller", "pvc-protection-controller");
    controller.watch(&context.caches.volume_claims);
    let queue = controller.queue.clone();
    context.caches.pods.subscribe(move |change| {
        if change.new.is_none_or(|pod| pods::is_terminal(pod)) {
            for claim in claims_of(change.last()) {
                queue.add(format!("{}/{claim}", namespace_of(&**change.last())).into());
            }
        }
    });
    controller.run(1, |this, key| async move { reconcile_claim(&this, &key).await });

    let controller = Controller::new(context, "pv-protection-controller", "pv-protection-controller");
    controller.watch(&context.caches.volumes);
    controller.run(1, |this, key| async move { reconcile_volume(&this, &key).await });
}

/// The claims that a pod mounts.
pub(super) fn claims_of(pod: &Pod) -> impl Iterator<Item = String> + '_ {
    pods::spec(pod).volumes.iter().flatten().filter_map(|volume| {
        let generated = || volume.ephemeral.as_ref().map(|_| format!("{}-{}", name_of(pod), volume.name));
        volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone()).or_else(generated)
    })
}

async fn reconcile_claim(this: &Controller, key: &str) -> Reconciled {
    let Some(claim) = this.context.caches.volume_claims.get(key) else { return Ok(Outcome::Done) };
    if claim.metadata.deletion_timestamp.is_some() && !is_used(this, &claim) {
        release(this, &claim, CLAIM).await?;
    }
    Ok(Outcome::Done)
}

/// Whether a scheduled pod uses a claim. An unscheduled pod will not start with a terminating claim.
fn is_used(this: &Controller, claim: &PersistentVolumeClaim) -> bool {
    let pods = this.context.caches.pods.in_namespace(namespace_of(claim));
    let uses = |pod: &Arc<Pod>| {
        !pods::node_name(pod).is_empty() && !pods::is_terminal(pod) && claims_of(pod).any(|name| name == name_of(claim))
    };
    pods.iter().any(uses)
}

async fn reconcile_volume(this: &Controller, key: &str) -> Reconciled {
    let Some(volume) = this.context.caches.volumes.get(key) else { return Ok(Outcome::Done) };
    if volume.metadata.deletion_timestamp.is_some() && phase(&volume) != "Bound" {
        release::<PersistentVolume>(this, &volume, VOLUME).await?;
    }
    Ok(Outcome::Done)
}

async fn release<K: Kind>(this: &Controller, object: &Arc<K>, finalizer: &str) -> Result<()> {
    let mut next = K::clone(object);
    let finalizers = &mut next.metadata_mut().finalizers;
    if let Some(list) = finalizers {
        list.retain(|one| one != finalizer);
        if list.is_empty() {
            *finalizers = None;
        }
    }
    ignore_not_found(this.writer.update(object, &next).await.map(drop))
}
