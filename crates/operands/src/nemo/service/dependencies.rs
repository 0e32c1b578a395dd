//! What a service works with at run time: other services, and kinds of others. Nothing here holds a rollout up.

use capstan_plan::Ref;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::Cx;
use super::description::{Endpoint, Parts};

/// The custom resource that an endpoint may belong to: `http://NAME:80`, `http://NAME.NAMESPACE:80`, and the same
/// followed by `svc` and the domain of the cluster.
pub(super) fn candidate(cx: &Cx<'_>, endpoint: &Endpoint) -> Option<Ref> {
    let (_, rest) = endpoint.url.split_once("://")?;
    let host = rest.split(['/', ':', '?']).next().unwrap_or_default();
    let mut labels = host.split('.');
    let name = labels.next().filter(|name| !name.is_empty())?;
    let namespace = labels.next().unwrap_or(&cx.namespace);
    labels.next().is_none_or(|label| label == "svc").then(|| (endpoint.candidate)(namespace, name))
}

/// Whether services that are ours and that this one calls are ready; `None` if it calls none of ours.
pub(super) fn ready(cx: &Cx<'_>, parts: &Parts) -> Option<Result<String, String>> {
    let (mut ready, mut waiting) = (Vec::new(), Vec::new());
    for endpoint in &parts.endpoints {
        let Some(reference) = candidate(cx, endpoint) else { continue };
        let Some(live) = cx.live().get(&reference) else { continue };
        match live["status"]["state"].as_str().filter(|state| !state.is_empty()) {
            Some("Ready") => ready.push(reference.to_string()),
            state => waiting.push(format!(
                "{} is {reference}, which is {}",
                endpoint.field,
                state.unwrap_or("not reconciled yet")
            )),
        }
    }
    match (waiting.is_empty(), ready.is_empty()) {
        (true, true) => None,
        (true, false) => Some(Ok(format!("{} ready", ready.join(", ")))),
        (false, _) => Some(Err(waiting.join("; "))),
    }
}

/// Kinds of others that are not in this cluster.
pub(super) fn missing_apis(cx: &Cx<'_>, parts: &Parts) -> Vec<String> {
    let absent = parts.apis.iter().filter(|api| {
        let crd = Ref::of::<CustomResourceDefinition>("", api.crd);
        cx.live().get(&crd).is_none()
    });
    absent
        .map(|api| format!("{} needs CRD {}, which is not in this cluster: {}", api.needed_by, api.crd, api.fix))
        .collect()
}
