//! PersistentVolumes: available, bound or released.

use std::sync::Arc;

use capstan_apiserver::error::Result;
use capstan_apiserver::ops::DeleteOptions;
use k8s_openapi::api::core::v1::PersistentVolume;

use super::super::common::{Controller, Outcome, Reconciled, annotation, ignore_not_found, name_of, uid_of};
use super::{BOUND_BY_CONTROLLER, PROVISIONED_BY, is_bound_by_us, phase, volume_name};
use crate::context::Context;

pub(super) fn start(context: &Context) {
    let controller = Controller::new(context, "persistent-volume-binder", "persistentvolume-controller");
    let caches = &context.caches;
    controller.watch(&caches.volumes);
    let (queue, volumes) = (controller.queue.clone(), caches.volumes.clone());
    caches.volume_claims.subscribe(move |change| {
        let names = [change.old, change.new].map(|claim| claim.and_then(|claim| volume_name(claim)));
        for name in names.into_iter().flatten() {
            queue.add(name.into());
        }
        // A volume may reference a claim that does not reference it back.
        if change.new.is_none() {
            for volume in volumes.list().iter().filter(|volume| super::is_for(volume, change.last())) {
                queue.add(name_of(&**volume).into());
            }
        }
    });
    controller.run(1, |this, key| async move { reconcile(&this, &key).await });
}

async fn reconcile(this: &Controller, key: &str) -> Reconciled {
    let Some(volume) = this.context.caches.volumes.get(key) else { return Ok(Outcome::Done) };
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone());
    let Some(reference) = reference.filter(|one| one.uid.as_ref().is_some_and(|uid| !uid.is_empty())) else {
        set_phase(this, volume, "Available").await?;
        return Ok(Outcome::Done);
    };
    let (namespace, name) = (reference.namespace.unwrap_or_default(), reference.name.unwrap_or_default());
    let claim = this.context.caches.volume_claims.find(&namespace, &name);
    match claim.filter(|claim| Some(uid_of(&**claim)) == reference.uid.as_deref()) {
        None => release(this, volume).await?,
        Some(claim) => match volume_name(&claim) {
            Some(mine) if mine == key => {
                set_phase(this, volume, "Bound").await?;
            }
            // The claim controller binds it, or waits for the class.
            None => {}
            Some(_) => unbind(this, volume).await?,
        },
    }
    Ok(Outcome::Done)
}

/// The claim is bound to another volume.
async fn unbind(this: &Controller, volume: Arc<PersistentVolume>) -> Result<()> {
    if annotation(&volume.metadata, PROVISIONED_BY).is_some() {
        return release(this, volume).await;
    }
    if !is_bound_by_us(&volume.metadata) {
        return Ok(());
    }
    let mut next = PersistentVolume::clone(&volume);
    next.spec.get_or_insert_default().claim_ref = None;
    next.metadata.annotations.get_or_insert_default().remove(BOUND_BY_CONTROLLER);
    let volume = this.writer.update(&volume, &next).await?;
    set_phase(this, volume, "Available").await.map(drop)
}

/// The claim is deleted: the volume is retained or deleted by its reclaim policy.
async fn release(this: &Controller, volume: Arc<PersistentVolume>) -> Result<()> {
    let volume = set_phase(this, volume, "Released").await?;
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    if policy == Some("Delete") && volume.metadata.deletion_timestamp.is_none() {
        ignore_not_found(this.writer.delete(&*volume, DeleteOptions::default()).await)?;
    }
    Ok(())
}

/// Writes the phase of a volume.
pub(super) async fn set_phase(
    this: &Controller,
    volume: Arc<PersistentVolume>,
    wanted: &str,
) -> Result<Arc<PersistentVolume>> {
    if phase(&volume) == wanted {
        return Ok(volume);
    }
    let mut next = PersistentVolume::clone(&volume);
    let status = next.status.get_or_insert_default();
    status.phase = Some(wanted.to_owned());
    status.last_phase_transition_time = Some(this.now());
    this.writer.update_status(&volume, &next).await
}
