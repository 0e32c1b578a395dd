//! Ephemeral volumes: a claim with the lifetime of its pod.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::common::{Controller, Outcome, Reconciled, name_of, namespace_is_terminating, namespace_of, uid_of};
use super::super::pods::{self, controller_ref};
use crate::Pod;
use crate::context::Context;
use crate::informer::controller_of;
use crate::writer::is_already_exists;

pub(super) fn start(context: &Context) {
    let controller = Controller::new(context, "ephemeral-volume-controller", "ephemeral_volume");
    let queue = controller.queue.clone();
    context.caches.pods.subscribe(move |change| {
        let wants = |pod: &Pod| pods::spec(pod).volumes.iter().flatten().any(|volume| volume.ephemeral.is_some());
        if change.old.is_none() && change.new.is_some_and(|pod| wants(pod)) {
            queue.add(change.key.clone());
        }
    });
    controller.run(1, |this, key| async move { reconcile(&this, &key).await });
}

async fn reconcile(this: &Controller, key: &str) -> Reconciled {
    let Some(pod) = this.context.caches.pods.get(key).filter(|pod| !pods::is_deleting(pod)) else {
        return Ok(Outcome::Done);
    };
    for volume in pods::spec(&pod).volumes.iter().flatten() {
        let template = volume.ephemeral.as_ref().and_then(|source| source.volume_claim_template.clone());
        let Some(template) = template else { continue };
        let name = format!("{}-{}", name_of(&*pod), volume.name);
        if let Some(claim) = this.context.caches.volume_claims.find(namespace_of(&*pod), &name) {
            if controller_of(&claim.metadata).is_none_or(|owner| owner.uid != uid_of(&*pod)) {
                let message =
                    format!("PVC {}/{name} was not created for pod {key} (pod is not owner)", namespace_of(&*pod));
                this.warning(&*pod, "EphemeralVolumeCreateFailed", message);
            }
            continue;
        }
        let meta = template.metadata.unwrap_or_default();
        let claim = PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: pod.metadata.namespace.clone(),
                labels: meta.labels,
                annotations: meta.annotations,
                owner_references: Some(vec![controller_ref(&*pod)]),
                ..ObjectMeta::default()
            },
            spec: Some(template.spec),
            status: None,
        };
        match this.writer.create(&claim).await {
            Err(error) if is_already_exists(&error) || namespace_is_terminating(&error) => {}
            other => other.map(drop)?,
        }
    }
    Ok(Outcome::Done)
}
