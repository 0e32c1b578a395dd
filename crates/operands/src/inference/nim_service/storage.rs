//! Where the model lies: which volume, and the claim for it.

use std::collections::BTreeMap;

use capstan_api::common::PersistentVolumeClaim as ClaimSpec;
use capstan_api::nim::service::NimServiceStorage;
use capstan_plan::Object;
use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, HostPathVolumeSource, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    PersistentVolumeClaimVolumeSource, Volume, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Cx, names};

/// Where the model store comes from, in the order in which a choice wins.
#[derive(Debug, PartialEq)]
pub(super) enum Storage<'a> {
    /// A NIMCache.
    Cache(&'a str),
    /// A claim, ours or the user's.
    Claim(&'a ClaimSpec),
    /// A directory that lives as long as the pod.
    EmptyDir(Option<&'a Quantity>),
    /// A directory of the host.
    HostPath(&'a str),
}

/// Every source that the user filled in. Empty structs, which other operators write back, do not count.
pub(super) fn sources<'a>(cx: &Cx<'a>) -> Vec<Storage<'a>> {
    let Some(storage) = cx.spec().storage.as_ref() else { return Vec::new() };
    let cache = storage.nim_cache.as_ref().and_then(|cache| cache.name.as_deref()).filter(|name| !name.is_empty());
    let claim = storage.pvc.as_ref().filter(|claim| **claim != ClaimSpec::default());
    let empty_dir = storage.empty_dir.as_ref().map(|directory| Storage::EmptyDir(directory.size_limit.as_ref()));
    [cache.map(Storage::Cache), claim.map(Storage::Claim), empty_dir, path(storage).map(Storage::HostPath)]
        .into_iter()
        .flatten()
        .collect()
}

fn path(storage: &NimServiceStorage) -> Option<&str> {
    storage.host_path.as_deref().filter(|path| !path.is_empty())
}

/// The directory of the host, where one is used.
pub(super) fn host_path<'a>(cx: &Cx<'a>) -> Option<&'a str> {
    match sources(cx).first() {
        Some(Storage::HostPath(path)) => Some(path),
        _ => None,
    }
}

/// Name of the claim: the user's, or one that follows from the service.
fn claim_name(cx: &Cx<'_>, claim: &ClaimSpec) -> String {
    claim.name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| format!("{}-pvc", cx.name))
}

/// Directory inside the volume.
pub(super) fn sub_path(cx: &Cx<'_>) -> Option<String> {
    match sources(cx).first() {
        Some(Storage::Claim(claim)) => claim.sub_path.clone().filter(|path| !path.is_empty()),
        _ => None,
    }
}

/// The volume with the model.
pub(super) fn volume(cx: &Cx<'_>) -> Volume {
    let mut volume = Volume { name: "model-store".into(), ..Volume::default() };
    match sources(cx).first() {
        Some(Storage::Claim(claim)) => {
            volume.persistent_volume_claim = Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim_name(cx, claim),
                read_only: cx.spec().storage.as_ref().and_then(|storage| storage.read_only).filter(|value| *value),
            });
        }
        Some(Storage::EmptyDir(limit)) => {
            volume.empty_dir = Some(EmptyDirVolumeSource {
                size_limit: limit.cloned(),
                medium: None,
                ..EmptyDirVolumeSource::default()
            });
        }
        Some(Storage::HostPath(path)) => {
            volume.host_path =
                Some(HostPathVolumeSource { path: (*path).into(), type_: Some("DirectoryOrCreate".into()) });
        }
        Some(Storage::Cache(_)) | None => {}
    }
    volume
}

/// The claim, where we are asked to make it.
pub(super) fn claim(cx: &Cx<'_>) -> Option<Object> {
    let Some(Storage::Claim(claim)) = sources(cx).into_iter().next() else { return None };
    if claim.create != Some(true) {
        return None;
    }
    let labels = [
        ("app", names::MANAGED_BY),
        ("app.kubernetes.io/name", cx.name.as_str()),
        ("app.kubernetes.io/managed-by", names::MANAGED_BY),
    ];
    let mode = claim.volume_access_mode.clone().filter(|mode| !mode.is_empty());
    let size = Quantity(claim.size.clone().unwrap_or_default());
    let object = PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(claim_name(cx, claim)),
            namespace: Some(cx.namespace.clone()),
            labels: Some(labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()),
            annotations: claim.annotations.clone(),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec![mode.unwrap_or_else(|| "ReadWriteOnce".into())]),
            storage_class_name: claim.storage_class.clone().filter(|name| !name.is_empty()),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), size)])),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    };
    Some(Object::new(&object).create_once())
}
