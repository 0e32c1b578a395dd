//! Model properties: how it was cached, its layout, and the GPU count of its profile.

use std::collections::BTreeMap;

use capstan_api::nim::NimProfile;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::Cx;

/// The GPU resource.
pub(super) const GPU: &str = "nvidia.com/gpu";

/// Whether the model was cached with GPU-specific profiles, which have GPU counts.
pub(super) fn is_universal(cx: &Cx<'_>) -> bool {
    let source = cx.cache.as_ref().map(|cache| &cache.spec.source);
    source.is_some_and(|source| {
        source.hf.is_some() || source.ngc.as_ref().is_some_and(|ngc| has_endpoint(&ngc.model_endpoint))
    })
}

/// Whether the model was cached for certain GPUs: its profiles then say how many.
fn is_optimized(cx: &Cx<'_>) -> bool {
    let ngc = cx.cache.as_ref().and_then(|cache| cache.spec.source.ngc.as_ref());
    ngc.is_some_and(|ngc| !has_endpoint(&ngc.model_endpoint))
}

fn has_endpoint(endpoint: &Option<String>) -> bool {
    endpoint.as_deref().is_some_and(|url| !url.is_empty())
}

/// Whether the model was cached from Hugging Face: its token is then needed.
pub(super) fn is_from_hub(cx: &Cx<'_>) -> bool {
    let source = cx.cache.as_ref().map(|cache| &cache.spec.source);
    source.is_some_and(|source| source.hf.is_some() || source.data_store.is_some())
}

/// `hf://namespace/model` of a model from Hugging Face. A dataset has none.
pub(super) fn hub_path(cx: &Cx<'_>) -> Option<String> {
    let source = cx.cache.as_ref()?.spec.source.hf.as_ref()?;
    let model = source.model_name.as_deref().filter(|name| !name.is_empty())?;
    Some(format!("hf://{}/{model}", source.namespace))
}

/// Whether the model has the native layout.
pub(super) fn is_native(cx: &Cx<'_>) -> bool {
    if super::storage::cache_name(cx.spec()).is_none() {
        return super::image::is_native(cx);
    }
    let status = cx.cache.as_ref().and_then(|cache| cache.status.as_ref());
    status.is_some_and(|status| status.type_.as_deref() == Some("native"))
}

/// The profile that the user chose, by name.
pub(super) fn profile_name<'a>(cx: &Cx<'a>) -> Option<&'a str> {
    let cache = cx.spec().storage.as_ref()?.nim_cache.as_ref()?;
    super::storage::cache_name(cx.spec())?;
    cache.profile.as_deref().filter(|profile| !profile.is_empty())
}

fn profile<'a>(cx: &'a Cx<'_>) -> Option<&'a NimProfile> {
    let name = profile_name(cx)?;
    let profiles = cx.cache.as_ref()?.status.as_ref()?.profiles.as_ref()?;
    profiles.iter().find(|profile| profile.name.as_deref() == Some(name))
}

/// GPU count of the selected profile; `None` if the user has to set it.
pub(super) fn gpus(cx: &Cx<'_>) -> Result<Option<i64>, String> {
    let resources = cx.spec().resources.as_ref();
    let asked = |list: Option<&BTreeMap<String, Quantity>>| list.is_some_and(|list| list.contains_key(GPU));
    let by_user = resources.is_some_and(|own| asked(own.requests.as_ref()) || asked(own.limits.as_ref()));
    let by_claims = cx.spec().dra_resources.as_ref().is_some_and(|list| !list.is_empty());
    let Some(profile) = profile(cx).filter(|_| is_optimized(cx) && !by_user && !by_claims) else { return Ok(None) };
    if let Some(tensor) = cx.spec().multi_node.as_ref().and_then(|spread| spread.parallelism.tensor) {
        return Ok(Some(tensor.into()));
    }
    let tags = profile.config.as_ref();
    let tag = |name: &str| tags.and_then(|tags| tags.get(name)).filter(|value| !value.is_empty());
    let Some(count) = tag("tensorParallelism").or_else(|| tag("tp")) else { return Ok(Some(1)) };
    count.parse().map(Some).map_err(|_| {
        let name = profile.name.as_deref().unwrap_or_default();
        format!(
            "profile {name} says that it takes {count:?} GPUs: set nvidia.com/gpu in spec.resources.limits yourself"
        )
    })
}

/// Resources of the serving container: the user's, and the GPUs of the profile. Claims come from `draResources`.
pub(super) fn resources(cx: &Cx<'_>) -> Option<ResourceRequirements> {
    let own = cx.spec().resources.clone().map(|resources| ResourceRequirements { claims: None, ..resources });
    let Some(count) = gpus(cx).ok().flatten() else { return own };
    let mut resources = own.unwrap_or_default();
    for list in [&mut resources.requests, &mut resources.limits] {
        list.get_or_insert_default().insert(GPU.into(), Quantity(count.to_string()));
    }
    Some(resources)
}
