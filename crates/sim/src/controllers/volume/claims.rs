//! PersistentVolumeClaims: binds each to the smallest matching volume, or to a provisioned one.

use std::sync::Arc;

use capstan_apiserver::error::Result;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use super::super::common::{Controller, Outcome, Reconciled, annotation, name_of, set_in};
use super::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, Provisioning, SELECTED_NODE, amount, claim_spec, class_name, default_class,
    is_for, phase, requested, volume_name,
};
use crate::context::Context;
use crate::events::reference;
use crate::informer::key_of;
use capstan_semantics::label_selector::selects;

pub(super) fn start(context: &Context, provisioning: Provisioning) {
    let controller = Controller::new(context, "persistent-volume-binder", "persistentvolume-controller");
    let caches = &context.caches;
    controller.watch(&caches.volume_claims);
    let (queue, claims) = (controller.queue.clone(), caches.volume_claims.clone());
    caches.volumes.subscribe(move |change| {
        let volume = change.last();
        let spec = volume.spec.as_ref();
        if let Some(claim) = spec.and_then(|spec| spec.claim_ref.as_ref()) {
            let (namespace, name) = (claim.namespace.as_deref(), claim.name.as_deref());
            queue.add(format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default()).into());
            return;
        }
        let class = spec.and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default();
        for claim in claims.list() {
            if annotation(&claim.metadata, BIND_COMPLETED).is_none() && class_name(&claim) == class {
                queue.add(key_of(&claim.metadata));
            }
        }
    });
    let (queue, claims) = (controller.queue.clone(), caches.volume_claims.clone());
    caches.storage_classes.subscribe(move |_| {
        for claim in claims.list() {
            if annotation(&claim.metadata, BIND_COMPLETED).is_none() {
                queue.add(key_of(&claim.metadata));
            }
        }
    });
    // One worker, so that two claims do not bind the same volume.
    controller.run(1, move |this, key| async move { reconcile(&this, &key, provisioning).await });
}

async fn reconcile(this: &Controller, key: &str, provisioning: Provisioning) -> Reconciled {
    let Some(claim) = this.context.caches.volume_claims.get(key) else { return Ok(Outcome::Done) };
    if annotation(&claim.metadata, BIND_COMPLETED).is_some() {
        sync_bound(this, claim).await?;
    } else if claim.metadata.deletion_timestamp.is_none() {
        sync_unbound(this, claim, provisioning).await?;
    }
    Ok(Outcome::Done)
}

/// A bound claim: it remains bound, or becomes `Lost` with its volume.
async fn sync_bound(this: &Controller, claim: Arc<PersistentVolumeClaim>) -> Result<()> {
    let volume = volume_name(&claim).and_then(|name| this.context.caches.volumes.get(name));
    match volume {
        None => {
            let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
            mark_lost(this, &claim, "ClaimLost", message).await
        }
        Some(volume) if is_free(&volume) || is_for(&volume, &claim) => {
            let (claim, volume) = bind(this, claim, volume).await?;
            expand(this, claim, volume).await
        }
        Some(_) => {
            let message = "Two claims are bound to the same volume, this one is bound incorrectly";
            mark_lost(this, &claim, "ClaimMisbound", message).await
        }
    }
}

async fn mark_lost(
    this: &Controller,
    claim: &Arc<PersistentVolumeClaim>,
    reason: &'static str,
    message: &str,
) -> Result<()> {
    let mut next = PersistentVolumeClaim::clone(claim);
    next.status.get_or_insert_default().phase = Some("Lost".to_owned());
    if next != **claim {
        this.warning(&**claim, reason, message);
    }
    this.writer.update_status(claim, &next).await.map(drop)
}

/// An unbound claim.
async fn sync_unbound(this: &Controller, claim: Arc<PersistentVolumeClaim>, provisioning: Provisioning) -> Result<()> {
    if let Some(name) = volume_name(&claim) {
        return match this.context.caches.volumes.get(name) {
            Some(volume) if is_free(&volume) || is_for(&volume, &claim) => bind(this, claim, volume).await.map(drop),
            Some(_) => {
                let message = format!("volume \"{name}\" already bound to a different claim.");
                this.warning(&*claim, "FailedBinding", message);
                Ok(())
            }
            None => Ok(()),
        };
    }
    let claim = with_class(this, claim).await?;
    let class = this.context.caches.storage_classes.get(class_name(&claim));
    let waits = class.as_ref().is_some_and(|class| waits_for_first_consumer(class))
        && annotation(&claim.metadata, SELECTED_NODE).is_none();
    if let Some(volume) = best_match(this, &claim, waits) {
        return bind(this, claim, volume).await.map(drop);
    }
    if waits {
        let message = "waiting for first consumer to be created before binding";
        this.normal(&*claim, "WaitForFirstConsumer", message);
        return Ok(());
    }
    match class {
        Some(class) => super::provision::provision(this, &claim, &class, provisioning).await,
        None if class_name(&claim).is_empty() => {
            let message = "no persistent volumes available for this claim and no storage class is set";
            this.normal(&*claim, "FailedBinding", message);
            Ok(())
        }
        None => {
            let message = format!("storageclass.storage.k8s.io \"{}\" not found", class_name(&claim));
            this.warning(&*claim, "ProvisioningFailed", message);
            Ok(())
        }
    }
}

/// Whether the class has `WaitForFirstConsumer`.
fn waits_for_first_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// Sets the default class on a claim that was created before there was one.
async fn with_class(this: &Controller, claim: Arc<PersistentVolumeClaim>) -> Result<Arc<PersistentVolumeClaim>> {
    if claim_spec(&claim).storage_class_name.is_some() {
        return Ok(claim);
    }
    let Some(class) = default_class(this) else { return Ok(claim) };
    let mut next = PersistentVolumeClaim::clone(&claim);
    next.spec.get_or_insert_default().storage_class_name.clone_from(&class.metadata.name);
    this.writer.update(&claim, &next).await
}

fn is_free(volume: &PersistentVolume) -> bool {
    volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none())
}

/// The volume that is pre-bound to a claim, or the smallest free one that matches. While a claim waits for its first
/// consumer, the scheduler selects.
fn best_match(this: &Controller, claim: &PersistentVolumeClaim, waits: bool) -> Option<Arc<PersistentVolume>> {
    let volumes = this.context.caches.volumes.list();
    let mine = |volume: &&Arc<PersistentVolume>| is_for(volume, claim) && volume.metadata.deletion_timestamp.is_none();
    if let Some(volume) = volumes.iter().find(mine) {
        return Some(volume.clone());
    }
    if waits {
        return None;
    }
    let free = volumes.iter().filter(|volume| is_free(volume) && matches_claim(volume, claim));
    let size = |volume: &PersistentVolume| amount(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()));
    free.min_by_key(|volume| (size(volume), name_of(&***volume).to_owned())).cloned()
}

fn matches_claim(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (theirs, ours) = (volume.spec.clone().unwrap_or_default(), claim_spec(claim));
    let modes = theirs.access_modes.unwrap_or_default();
    let mode = |mode: Option<String>| mode.unwrap_or_else(|| "Filesystem".to_owned());
    volume.metadata.deletion_timestamp.is_none()
        && matches!(phase(volume), "Available" | "Pending" | "")
        && theirs.storage_class_name.unwrap_or_default() == class_name(claim)
        && mode(theirs.volume_mode) == mode(ours.volume_mode)
        && ours.access_modes.iter().flatten().all(|mode| modes.contains(mode))
        && ours.selector.is_none_or(|selector| selects(&selector, volume.metadata.labels.as_ref()))
        && amount(theirs.capacity.as_ref()) >= requested(claim)
}

/// Binds claim and volume to each other.
async fn bind(
    this: &Controller,
    claim: Arc<PersistentVolumeClaim>,
    volume: Arc<PersistentVolume>,
) -> Result<(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>)> {
    let mut next = PersistentVolume::clone(&volume);
    let spec = next.spec.get_or_insert_default();
    if spec.claim_ref.as_ref().and_then(|one| one.uid.as_ref()) != claim.metadata.uid.as_ref() {
        let chosen = spec.claim_ref.is_none();
        spec.claim_ref = Some(reference(&*claim));
        if chosen {
            set_in(&mut next.metadata.annotations, BOUND_BY_CONTROLLER, "yes");
        }
    }
    let volume = this.writer.update(&volume, &next).await?;
    let volume = super::volumes::set_phase(this, volume, "Bound").await?;

    let mut next = PersistentVolumeClaim::clone(&claim);
    let chosen = volume_name(&claim).is_none();
    next.spec.get_or_insert_default().volume_name.clone_from(&volume.metadata.name);
    if chosen {
        set_in(&mut next.metadata.annotations, BOUND_BY_CONTROLLER, "yes");
    }
    set_in(&mut next.metadata.annotations, BIND_COMPLETED, "yes");
    let claim = this.writer.update(&claim, &next).await?;

    let mut next = PersistentVolumeClaim::clone(&claim);
    let spec = volume.spec.clone().unwrap_or_default();
    let status = next.status.get_or_insert_default();
    status.phase = Some("Bound".to_owned());
    status.access_modes = spec.access_modes;
    if status.capacity.is_none() {
        status.capacity = spec.capacity;
    }
    let claim = this.writer.update_status(&claim, &next).await?;
    Ok((claim, volume))
}

/// Expands the volume of a claim whose request grew.
async fn expand(this: &Controller, claim: Arc<PersistentVolumeClaim>, volume: Arc<PersistentVolume>) -> Result<()> {
    let wanted = requested(&claim);
    let has = amount(claim.status.as_ref().and_then(|status| status.capacity.as_ref()));
    let class = this.context.caches.storage_classes.get(class_name(&claim));
    if wanted <= has || class.is_none_or(|class| class.allow_volume_expansion != Some(true)) {
        return Ok(());
    }
    this.normal(&*claim, "Resizing", format!("External resizer is resizing volume {}", name_of(&*volume)));
    let size = Amount(wanted.to_string());
    if amount(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref())) < wanted {
        let mut next = PersistentVolume::clone(&volume);
        let capacity = next.spec.get_or_insert_default().capacity.get_or_insert_default();
        capacity.insert("storage".to_owned(), size.clone());
        this.writer.update(&volume, &next).await?;
    }
    let mut next = PersistentVolumeClaim::clone(&claim);
    let status = next.status.get_or_insert_default();
    status.capacity.get_or_insert_default().insert("storage".to_owned(), size);
    this.writer.update_status(&claim, &next).await?;
    this.normal(&*claim, "VolumeResizeSuccessful", "Resize volume succeeded");
    Ok(())
}
