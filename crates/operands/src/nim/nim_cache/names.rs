//! Names, labels and annotations of the objects of a cache.

use std::collections::BTreeMap;

use capstan_api::nim::cache_source::ModelFilter;
use kube::ResourceExt;

use super::super::manifest::Manifest;
use super::super::nim_service::MANAGED_BY;
use super::Cx;

/// Annotation of a cache or its Job: the selected profiles, as a JSON list.
pub(super) const SELECTED: &str = "nvidia.com/selected-profiles";

/// Annotation of a cache: `Retain` keeps the created claim when the cache is deleted.
pub(super) const RETENTION: &str = "nvidia.com/pvc-retention";

/// ConfigMap with the manifest.
pub(super) fn manifest(cx: &Cx<'_>) -> String {
    format!("{}-manifest", cx.name)
}

/// Pod that prints the manifest.
pub(super) fn pod(cx: &Cx<'_>) -> String {
    format!("{}-pod", cx.name)
}

/// Job that downloads.
pub(super) fn job(cx: &Cx<'_>) -> String {
    format!("{}-job", cx.name)
}

/// Labels of all its objects.
pub(super) fn labels(cx: &Cx<'_>) -> BTreeMap<String, String> {
    let labels = [
        ("app", MANAGED_BY),
        ("app.kubernetes.io/name", cx.name.as_str()),
        ("app.kubernetes.io/managed-by", MANAGED_BY),
    ];
    labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Profiles of the cache's annotation.
pub(super) fn chosen(cx: &Cx<'_>) -> Result<Option<Vec<String>>, String> {
    let Some(text) = cx.cache.annotations().get(SELECTED) else { return Ok(None) };
    let chosen: Vec<String> = serde_json::from_str(text)
        .map_err(|_| format!("annotation {SELECTED} is {text:?}: give a JSON list of profile ids, or remove it"))?;
    Ok((!chosen.is_empty()).then_some(chosen))
}

/// The message if no profile matches, with the fix.
pub(super) fn no_profile(cx: &Cx<'_>, filter: &ModelFilter, manifest: Option<&Manifest>) -> String {
    let Some(manifest) = manifest else {
        return "the image has no manifest of profiles: set spec.source.ngc.modelEndpoint, or name the profiles in \
                spec.source.ngc.model.profiles"
            .into();
    };
    let wishes = serde_json::to_string(filter).unwrap_or_default();
    let products: Vec<&str> = cx.products.iter().map(String::as_str).collect();
    let gpus = if products.is_empty() { "none known".into() } else { products.join(", ") };
    format!(
        "no profiles are selected for caching: none of the {} profiles in ConfigMap {} fits spec.source.ngc.model {wishes} \
         (GPUs of the cluster: {gpus}); loosen the wishes or name the profiles",
        manifest.profiles.len(),
        self::manifest(cx),
    )
}
