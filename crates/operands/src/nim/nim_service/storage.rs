//! Model storage: volume, claim, and readiness.

use capstan_api::common::PersistentVolumeClaim as ClaimSpec;
use capstan_api::nim::NimServiceSpec;
use capstan_api::nim::service::NimServiceStorage;
use capstan_plan::Object;
use capstan_plan::kit::{pod, storage};
use k8s_openapi::api::core::v1::Volume;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::parts::Stop;
use super::{Cx, model, names};

/// The source of the model store, in order of precedence.
#[derive(Debug, PartialEq)]
pub(super) enum Storage<'a> {
    /// A NIMCache.
    Cache(&'a str),
    /// A claim, ours or the user's.
    Claim(&'a ClaimSpec),
    /// An emptyDir.
    EmptyDir(Option<&'a Quantity>),
    /// A hostPath.
    HostPath(&'a str),
}

/// All sources that are set. Empty structs, which other operators write back, do not count.
pub(super) fn sources(spec: &NimServiceSpec) -> Vec<Storage<'_>> {
    let Some(storage) = spec.storage.as_ref() else { return Vec::new() };
    let claim = storage.pvc.as_ref().filter(|claim| **claim != ClaimSpec::default());
    let empty_dir = storage.empty_dir.as_ref().map(|directory| Storage::EmptyDir(directory.size_limit.as_ref()));
    [cache_name(spec).map(Storage::Cache), claim.map(Storage::Claim), empty_dir, path(storage).map(Storage::HostPath)]
        .into_iter()
        .flatten()
        .collect()
}

fn source<'a>(cx: &Cx<'a>) -> Option<Storage<'a>> {
    sources(cx.spec()).into_iter().next()
}

/// The referenced NIMCache.
pub(super) fn cache_name(spec: &NimServiceSpec) -> Option<&str> {
    let cache = spec.storage.as_ref()?.nim_cache.as_ref()?;
    cache.name.as_deref().filter(|name| !name.is_empty())
}

fn path(storage: &NimServiceStorage) -> Option<&str> {
    storage.host_path.as_deref().filter(|path| !path.is_empty())
}

/// The hostPath, if used.
pub(super) fn host_path<'a>(cx: &Cx<'a>) -> Option<&'a str> {
    match source(cx) {
        Some(Storage::HostPath(path)) => Some(path),
        _ => None,
    }
}

/// Why the model cannot be used yet.
pub(super) fn blocked_by(cx: &Cx<'_>) -> Option<Stop> {
    let Some(Storage::Cache(name)) = source(cx) else { return None };
    let Some(cache) = &cx.cache else {
        return Some(Stop::failed("NIMCacheNotFound", format!("NIMCache {name} not found: create it")));
    };
    let status = cache.status.clone().unwrap_or_default();
    match status.state.as_deref() {
        Some("Ready") if status.pvc.as_deref().unwrap_or_default().is_empty() => {
            Some(Stop::failed("NIMCacheFailed", format!("NIMCache {name} is Ready but names no claim in status.pvc")))
        }
        Some("Ready") => model::gpus(cx).err().map(|message| Stop::failed("InvalidProfile", message)),
        Some("Failed") => {
            let conditions = status.conditions.unwrap_or_default();
            let known = conditions
                .iter()
                .find(|condition| condition.status == "True" && condition.type_.to_lowercase().contains("failed"));
            let why = known.map_or("see its conditions", |condition| condition.message.as_str());
            Some(Stop::failed("NIMCacheFailed", format!("NIMCache {name} failed: {why}")))
        }
        _ => Some(Stop::wait("NIMCacheNotReady", format!("NIMCache {name} not ready"))),
    }
}

/// The claim with the model: name and sub-path.
fn used(cx: &Cx<'_>) -> Option<(String, Option<String>)> {
    let inside = |claim: &ClaimSpec| claim.sub_path.clone().filter(|path| !path.is_empty());
    match source(cx)? {
        Storage::Claim(own) => Some((storage::claim_name(own, &cx.name), inside(own))),
        Storage::Cache(_) => {
            let cache = cx.cache.as_ref()?;
            let own = cache.spec.storage.pvc.clone().unwrap_or_default();
            let known = cache.status.as_ref().and_then(|status| status.pvc.clone());
            let name = own.name.clone().filter(|name| !name.is_empty()).or(known)?;
            Some((name, inside(&own)))
        }
        Storage::EmptyDir(_) | Storage::HostPath(_) => None,
    }
}

/// Name of the claim with the model.
pub(super) fn used_claim(cx: &Cx<'_>) -> Option<String> {
    used(cx).map(|(name, _)| name)
}

/// Sub-path in the volume.
pub(super) fn sub_path(cx: &Cx<'_>) -> Option<String> {
    used(cx).and_then(|(_, inside)| inside)
}

/// The volume with the model.
pub(super) fn volume(cx: &Cx<'_>) -> Volume {
    let name = "model-store";
    if let Some((claim, _)) = used(cx) {
        let read_only = cx.spec().storage.as_ref().and_then(|storage| storage.read_only).filter(|value| *value);
        return storage::claim_volume(name, &claim, read_only);
    }
    match source(cx) {
        Some(Storage::EmptyDir(limit)) => storage::empty_dir(name, limit),
        Some(Storage::HostPath(path)) => pod::host_make(name, path),
        _ => Volume { name: name.into(), ..Volume::default() },
    }
}

/// The claim, if we create it.
pub(super) fn claim(cx: &Cx<'_>) -> Option<Object> {
    let Some(Storage::Claim(own)) = source(cx) else { return None };
    if own.create != Some(true) {
        return None;
    }
    let labels = names::map(&[
        ("app", names::MANAGED_BY),
        ("app.kubernetes.io/name", &cx.name),
        ("app.kubernetes.io/managed-by", names::MANAGED_BY),
    ]);
    Some(Object::new(&storage::claim(own, &cx.name, &cx.namespace, labels)).create_once())
}

/// Whether the claim that we create exists.
pub(super) fn has_made_claim(cx: &Cx<'_>) -> bool {
    let made = claim(cx).map(|claim| claim.reference);
    made.is_some_and(|reference| cx.facts.live.get(&reference).is_some())
}
