//! Devices by DRA: names, ResourceClaimTemplates, assignment to containers, and claim status.
//!
//! The names are part of the API: running pods keep their claims only if names do not change.

use std::collections::BTreeMap;

use capstan_api::compute_domain::ComputeDomain;
use capstan_api::nim::dra::ClaimCreation;
use capstan_api::nim::service_status::{DraResourceStatus, ResourceClaimState, ResourceClaimTemplateState};
use capstan_plan::kit::hash;
use capstan_plan::{Gvk, Object};
use k8s_openapi::api::core::v1::{PodResourceClaim, PodSpec, ResourceClaim as ContainerClaim};
use k8s_openapi::api::resource::v1::{
    CELDeviceSelector, DeviceClaim, DeviceRequest, DeviceSelector, ExactDeviceRequest, ResourceClaim,
    ResourceClaimSpec, ResourceClaimTemplate, ResourceClaimTemplateSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::parts::{Parts, Stop, lacking};
use super::{Cx, multi_node, names, selectors};

/// Annotation with the pod claim name that a ResourceClaim was created for.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";

/// One entry of the pod's claims.
pub(super) struct Device<'a> {
    /// Name in the pod.
    pub(super) name: String,
    /// Its source.
    source: Source<'a>,
    /// Name of the claim or template.
    resource: String,
    /// Requests of containers; all if empty.
    requests: &'a [String],
}

/// The source of a pod claim.
#[derive(Clone, Copy)]
enum Source<'a> {
    Claim,
    Template,
    Created(&'a ClaimCreation),
    Domain,
}

/// All claims of the pod, in order.
pub(super) fn devices<'a>(cx: &Cx<'a>) -> Vec<Device<'a>> {
    let mut list = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut push = |source, resource: String, requests: &'a [String]| {
        let index = match source {
            Source::Claim => 0,
            Source::Template | Source::Created(_) => 1,
            Source::Domain => 2,
        };
        let prefix = format!("claim-{}-{index}-{}", short_hash(&cx.name), short_hash(&resource));
        let count = seen.entry(prefix.clone()).or_default();
        let name = format!("{prefix}-{count}");
        *count += 1;
        list.push(Device { name, source, resource, requests });
    };
    for (index, one) in cx.spec().dra_resources.iter().flatten().enumerate() {
        let requests = one.requests.as_deref().unwrap_or_default();
        if let Some(name) = &one.resource_claim_name {
            push(Source::Claim, name.clone(), requests);
        } else if let Some(name) = &one.resource_claim_template_name {
            push(Source::Template, name.clone(), requests);
        } else if let Some(creation) = &one.claim_creation_spec {
            push(Source::Created(creation), template_name(cx, creation, index), requests);
        }
    }
    if let Some(template) = multi_node::domain_template(cx) {
        push(Source::Domain, template, &[]);
    }
    list
}

/// Name of the template of an entry.
fn template_name(cx: &Cx<'_>, creation: &ClaimCreation, index: usize) -> String {
    let prefix = creation.generate_name.as_deref().filter(|name| !name.is_empty()).unwrap_or("claimtemplate");
    format!("{prefix}-{}-{index}", short_hash(&cx.name))
}

/// The first twelve characters of the hash.
pub(super) fn short_hash(text: &str) -> String {
    hash(text).chars().take(12).collect()
}

/// Why devices cannot be requested yet.
pub(super) fn blocked_by(cx: &Cx<'_>) -> Option<Stop> {
    if cx.spec().dra_resources.iter().flatten().any(|one| one.claim_creation_spec.is_some())
        && let Some(message) = lacking::<ResourceClaimTemplate>(cx, "spec.draResources")
    {
        return Some(Stop::wait("MissingAPI", message));
    }
    multi_node::blocked_by(cx)
}

/// Adds the templates that the spec describes.
pub(super) fn add(cx: &Cx<'_>, parts: &mut Parts) {
    for device in devices(cx) {
        if let Source::Created(creation) = device.source {
            // The spec of a template is immutable, and nothing in it can differ but labels.
            parts.objects.push(Object::new(&template(cx, creation, &device.resource)).preserve("/spec"));
        }
    }
}

fn template(cx: &Cx<'_>, creation: &ClaimCreation, name: &str) -> ResourceClaimTemplate {
    let requests = creation.devices.iter().map(|device| {
        // Requests with invalid selectors are rejected before.
        let expressions = selectors::expressions(device).unwrap_or_default();
        let selectors = expressions
            .into_iter()
            .map(|expression| DeviceSelector { cel: Some(CELDeviceSelector { expression }) })
            .collect();
        let exactly = ExactDeviceRequest {
            allocation_mode: Some("ExactCount".into()),
            count: Some(device.count.into()),
            device_class_name: device.device_class_name.clone(),
            selectors: Some(selectors),
            ..ExactDeviceRequest::default()
        };
        DeviceRequest { name: device.name.clone(), exactly: Some(exactly), ..DeviceRequest::default() }
    });
    ResourceClaimTemplate {
        metadata: names::named(cx, name),
        spec: Some(ResourceClaimTemplateSpec {
            metadata: Some(ObjectMeta {
                labels: Some(names::labels(cx)),
                annotations: Some(names::pod_annotations(cx)),
                ..ObjectMeta::default()
            }),
            spec: Some(ResourceClaimSpec {
                devices: Some(DeviceClaim { requests: Some(requests.collect()), ..DeviceClaim::default() }),
            }),
        }),
    }
}

/// Adds the claims to the pod and to all containers but init containers.
pub(super) fn assign(cx: &Cx<'_>, pod: &mut PodSpec) {
    for device in devices(cx) {
        let given: Vec<_> = match device.requests {
            [] => vec![ContainerClaim { name: device.name.clone(), request: None }],
            some => {
                let one =
                    |request: &String| ContainerClaim { name: device.name.clone(), request: Some(request.clone()) };
                some.iter().map(one).collect()
            }
        };
        for container in &mut pod.containers {
            let resources = container.resources.get_or_insert_default();
            resources.claims.get_or_insert_default().extend(given.clone());
        }
        let of_claim = matches!(device.source, Source::Claim);
        let (claim, template) = if of_claim { (Some(device.resource), None) } else { (None, Some(device.resource)) };
        pod.resource_claims.get_or_insert_default().push(PodResourceClaim {
            name: device.name,
            resource_claim_name: claim,
            resource_claim_template_name: template,
        });
    }
}

/// Claim status, by pod claim name.
pub(super) fn statuses(cx: &Cx<'_>) -> Option<Vec<DraResourceStatus>> {
    let kind = Gvk::of::<ResourceClaim>();
    let mut claims: Vec<&Value> =
        cx.facts.live.iter().filter(|(one, _)| one.gvk == kind).map(|(_, live)| &**live).collect();
    let text = |live: &Value, field: &str| live["metadata"][field].as_str().unwrap_or_default().to_owned();
    claims.sort_by_key(|live| (text(live, "creationTimestamp"), text(live, "name")));
    let claim_state = |live: &Value| ResourceClaimState { name: text(live, "name"), state: state(live) };
    let status = |device: Device<'_>| {
        let mut status = DraResourceStatus { name: device.name.clone(), ..DraResourceStatus::default() };
        if matches!(device.source, Source::Claim) {
            let found = claims.iter().find(|live| text(live, "name") == device.resource);
            let missing = || ResourceClaimState { name: device.resource.clone(), state: "missing".into() };
            status.resource_claim_status = Some(found.map_or_else(missing, |live| claim_state(live)));
        } else {
            let of_pods = claims.iter().filter(|live| live["metadata"]["annotations"][POD_CLAIM] == *device.name);
            let states: Vec<_> = of_pods.map(|live| claim_state(live)).collect();
            status.resource_claim_template_status = Some(ResourceClaimTemplateState {
                name: device.resource,
                resource_claim_statuses: Some(states).filter(|states| !states.is_empty()),
            });
        }
        status
    };
    Some(devices(cx).into_iter().map(status).collect::<Vec<_>>()).filter(|list| !list.is_empty())
}

/// Which of `deleted`, `pending`, `allocated` and `reserved` apply.
fn state(claim: &Value) -> String {
    let mut words = Vec::new();
    if !claim["metadata"]["deletionTimestamp"].is_null() {
        words.push("deleted");
    }
    if !claim["status"]["allocation"].is_null() {
        words.push("allocated");
        if claim["status"]["reservedFor"].as_array().is_some_and(|pods| !pods.is_empty()) {
            words.push("reserved");
        }
    } else if words.is_empty() {
        words.push("pending");
    }
    words.join(",")
}

/// Whether a live claim belongs to this service.
pub(super) fn is_ours(cx: &Cx<'_>, claim: &Value) -> bool {
    let annotated = &claim["metadata"]["annotations"][POD_CLAIM];
    let name = &claim["metadata"]["name"];
    devices(cx).iter().any(|device| match device.source {
        Source::Claim => *name == *device.resource,
        _ => *annotated == *device.name,
    })
}

/// The live ComputeDomain.
pub(super) fn domain(cx: &Cx<'_>, name: &str) -> Option<ComputeDomain> {
    cx.facts.live.typed(&cx.namespace, name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::state;

    #[test]
    fn the_state_of_a_claim_says_all_that_holds() {
        let cases = [
            (json!({}), "pending"),
            (json!({"status": {"allocation": {}}}), "allocated"),
            (json!({"status": {"allocation": {}, "reservedFor": [{"name": "p"}]}}), "allocated,reserved"),
            (json!({"metadata": {"deletionTimestamp": "x"}}), "deleted"),
            (
                json!({"metadata": {"deletionTimestamp": "x"}, "status": {"allocation": {}, "reservedFor": [{}]}}),
                "deleted,allocated,reserved",
            ),
        ];
        for (claim, expected) in cases {
            assert_eq!(state(&claim), expected, "{claim}");
        }
    }
}
