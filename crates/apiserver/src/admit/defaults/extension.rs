//! Defaults of API extensions: webhooks, admission policies, CRDs, ResourceClaims, priority levels.

use serde_json::{Map, Value, json};

use crate::admit::json::{Fill, Read};

/// A kind of `admissionregistration.k8s.io`.
pub(super) fn admission(kind: &str, object: &mut Value) {
    match kind {
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            for hook in object.items("webhooks") {
                webhook(hook);
                if kind == "MutatingWebhookConfiguration" {
                    hook.fill("reinvocationPolicy", "Never");
                }
            }
        }
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => {
            let Some(spec) = object.inner_or_new("spec") else { return };
            spec.fill("failurePolicy", "Fail");
            if let Some(constraints) = spec.inner("matchConstraints") {
                match_resources(constraints);
            }
        }
        _ => {
            if let Some(resources) = object.inner("spec").and_then(|spec| spec.inner("matchResources")) {
                match_resources(resources);
            }
        }
    }
}

fn webhook(hook: &mut Value) {
    hook.fill("failurePolicy", "Fail");
    hook.fill("matchPolicy", "Equivalent");
    hook.fill("namespaceSelector", Map::new());
    hook.fill("objectSelector", Map::new());
    hook.fill("timeoutSeconds", 10);
    hook.items("rules").for_each(|rule| rule.fill("scope", "*"));
    if let Some(service) = hook.inner("clientConfig").and_then(|config| config.inner("service")) {
        service.fill("port", 443);
    }
}

fn match_resources(resources: &mut Value) {
    resources.fill("matchPolicy", "Equivalent");
    resources.fill("namespaceSelector", Map::new());
    resources.fill("objectSelector", Map::new());
    for key in ["resourceRules", "excludeResourceRules"] {
        resources.items(key).for_each(|rule| rule.fill("scope", "*"));
    }
}

/// A CustomResourceDefinition.
pub(super) fn definition(definition: &mut Value) {
    let Some(spec) = definition.inner("spec") else { return };
    if let Some(names) = spec.inner("names") {
        let kind = names.text("kind").to_owned();
        if !kind.is_empty() {
            names.fill_zero("singular", kind.to_lowercase());
            names.fill_zero("listKind", format!("{kind}List"));
        }
    }
    spec.fill("conversion", json!({"strategy": "None"}));
    let webhook = spec.inner("conversion").and_then(|conversion| conversion.inner("webhook"));
    let config = webhook.and_then(|webhook| webhook.inner("clientConfig"));
    if let Some(service) = config.and_then(|config| config.inner("service")) {
        service.fill("port", 443);
    }
}

/// The device requests of a ResourceClaim.
pub(super) fn device_claim(spec: Option<&mut Value>) {
    let Some(devices) = spec.and_then(|spec| spec.inner("devices")) else { return };
    for request in devices.items("requests") {
        if let Some(exactly) = request.inner("exactly") {
            device_count(exactly);
        }
        request.items("firstAvailable").for_each(device_count);
    }
}

fn device_count(request: &mut Value) {
    request.fill_zero("allocationMode", "ExactCount");
    if request.text("allocationMode") == "ExactCount" {
        request.fill_zero("count", 1);
    }
    request.items("tolerations").for_each(|toleration| toleration.fill_zero("operator", "Equal"));
}

/// A PriorityLevelConfiguration.
pub(super) fn priority_level(level: &mut Value) {
    let Some(spec) = level.inner("spec") else { return };
    if let Some(limited) = spec.inner("limited") {
        limited.fill("nominalConcurrencyShares", 30);
        limited.fill("lendablePercent", 0);
        if let Some(queuing) = limited.inner("limitResponse").and_then(|response| response.inner("queuing")) {
            queuing.fill_zero("handSize", 8);
            queuing.fill_zero("queues", 64);
            queuing.fill_zero("queueLengthLimit", 50);
        }
    }
    if let Some(exempt) = spec.inner("exempt") {
        exempt.fill("nominalConcurrencyShares", 0);
        exempt.fill("lendablePercent", 0);
    }
}
