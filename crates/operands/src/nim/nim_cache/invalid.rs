//! Validation of a cache: each error with field, value and fix.

use capstan_api::common::PersistentVolumeClaim as ClaimSpec;
use capstan_plan::kit::proxy;
use capstan_plan::kit::storage::claim_faults;

use super::Cx;
use super::source::Source;

/// All errors, in field order.
pub(super) fn faults(cx: &Cx<'_>) -> Vec<String> {
    let mut faults = source(cx);
    match cx.spec().storage.pvc.as_ref().filter(|claim| **claim != ClaimSpec::default()) {
        Some(claim) => faults.extend(claim_faults(claim, "spec.storage.pvc")),
        None => faults.push("spec.storage.pvc is empty: set create: true and a size, or name a claim".into()),
    }
    if cx.spec().cert_config.is_some() {
        faults.push(
            "spec.certConfig is not supported any more: put the certificates into the ConfigMap of \
             spec.proxy.certConfigMap"
                .into(),
        );
    }
    faults.extend(cx.spec().proxy.iter().flat_map(|proxy| proxy::faults(proxy, "spec.proxy")));
    if cx.name.len() > 54 {
        let length = cx.name.len();
        faults.push(format!("metadata.name has {length} characters: use at most 54, names of its objects add to it"));
    }
    faults
}

fn source(cx: &Cx<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    let Source::Ngc(ngc) = Source::of(cx) else { return faults };
    for (field, value, what) in [
        ("authSecret", &ngc.auth_secret, "name the Secret with NGC_API_KEY"),
        ("modelPuller", &ngc.model_puller, "name the NIM image, such as nvcr.io/nim/meta/llama3-8b-instruct:1.0"),
    ] {
        if value.is_empty() {
            faults.push(format!("spec.source.ngc.{field} is empty: {what}"));
        }
    }
    let Some(model) = &ngc.model else { return faults };
    let named = model.profiles.as_deref().unwrap_or_default();
    if named.len() > 1 && named.iter().any(|profile| profile == "all") {
        faults.push(format!(
            "spec.source.ngc.model.profiles is {named:?}: \"all\" stands alone; remove it or the other ids"
        ));
    }
    if let Some(profile) = model.qos_profile.as_deref().filter(|profile| !profile.is_empty())
        && !["latency", "throughput"].contains(&profile)
    {
        faults.push(format!("spec.source.ngc.model.qosProfile is {profile:?}: use latency or throughput"));
    }
    if !named.is_empty() {
        let text = |value: &Option<String>| value.as_deref().is_some_and(|value| !value.is_empty());
        let filters = [
            ("precision", text(&model.precision)),
            ("engine", text(&model.engine)),
            ("tensorParallelism", text(&model.tensor_parallelism)),
            ("qosProfile", text(&model.qos_profile)),
            ("gpus", model.gpus.as_ref().is_some_and(|gpus| !gpus.is_empty())),
            ("lora", model.lora.is_some()),
            ("buildable", model.buildable.is_some()),
        ];
        for (field, _) in filters.iter().filter(|(_, set)| *set) {
            faults.push(format!(
                "spec.source.ngc.model.{field} is set beside profiles: profiles are taken as named; remove one of them"
            ));
        }
    }
    faults
}
