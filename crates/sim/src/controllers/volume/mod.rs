//! Volume controllers: binding, provisioning and protection of volumes and claims.
//!
//! Storage is simulated: a volume exists as soon as the claim's class can provision it.

mod claims;
mod ephemeral;
mod protection;
mod provision;
mod volumes;

use std::sync::Arc;

use capstan_semantics::Quantity;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec};
use k8s_openapi::api::storage::v1::StorageClass;

use super::common::{Controller, annotation, created_at, name_of, namespace_of};
use crate::context::Context;

/// Annotation of claims and volumes: binding is complete.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation of claims and volumes: bound by the controller, not by the user.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Annotation of volumes: their provisioner.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Annotation of claims: the node of the first consumer.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotations of claims: the requested provisioner, in both spellings in use.
const PROVISIONER: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];

/// Simulation of storage provisioners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provisioning {
    /// Every class provisions volumes, whatever its provisioner.
    All,
    /// Volumes come from an external provisioner or a test.
    None,
}

pub(crate) fn start(context: &Context, provisioning: Provisioning) {
    claims::start(context, provisioning);
    volumes::start(context);
    protection::start(context);
    ephemeral::start(context);
}

fn claim_spec(claim: &PersistentVolumeClaim) -> PersistentVolumeClaimSpec {
    claim.spec.clone().unwrap_or_default()
}

/// `spec.volumeName` of a claim.
fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

fn class_name(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default()
}

fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether a volume is pre-bound to a claim: by name, and by UID if it is set.
fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(reference) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else { return false };
    reference.name.as_deref() == Some(name_of(claim))
        && reference.namespace.as_deref() == Some(namespace_of(claim))
        && reference.uid.as_ref().is_none_or(|uid| uid.is_empty() || Some(uid) == claim.metadata.uid.as_ref())
}

fn is_bound_by_us(annotations: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> bool {
    annotation(annotations, BOUND_BY_CONTROLLER).is_some()
}

/// The requested size of a claim.
fn requested(claim: &PersistentVolumeClaim) -> Quantity {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    amount(resources.and_then(|resources| resources.requests.as_ref()))
}

fn amount(
    resources: Option<&std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
) -> Quantity {
    let text = resources.and_then(|resources| resources.get("storage"));
    text.and_then(|text| Quantity::parse(&text.0).ok()).unwrap_or(Quantity::ZERO)
}

/// The default StorageClass: the newest of those with the annotation.
fn default_class(this: &Controller) -> Option<Arc<StorageClass>> {
    let classes = this.context.caches.storage_classes.list();
    let default = |class: &&Arc<StorageClass>| {
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
            .iter()
            .any(|key| annotation(&class.metadata, key) == Some("true"))
    };
    classes.iter().filter(default).max_by_key(|class| (created_at(&***class), name_of(&***class).to_owned())).cloned()
}
