//! Unreachable webhooks: requests that they admit fail, or are not checked.

use serde_json::Value;

use crate::doctor::finding::{Finding, Scope, Severity};
use crate::doctor::index::{Index, items, label, reference, text};
use crate::snapshot::named;

const GROUP: &str = "admissionregistration.k8s.io";

pub(super) fn check(index: &Index<'_>) -> Vec<Finding> {
    let validating = index.snapshot.of(GROUP, "ValidatingWebhookConfiguration").iter();
    let all = validating.chain(index.snapshot.of(GROUP, "MutatingWebhookConfiguration"));
    all.filter_map(|configuration| of_configuration(index, configuration)).collect()
}

/// One finding per webhook configuration: its webhooks share a server.
fn of_configuration(index: &Index<'_>, configuration: &Value) -> Option<Finding> {
    let hooks = items(&configuration["webhooks"]).iter().filter(|hook| concerns_us(hook));
    let (hook, what, line) = hooks.filter_map(|hook| unreachable(index, hook)).next()?;
    let (strict, name) = (hook["failurePolicy"] != "Ignore", named(configuration).1);
    let kinds: Vec<&str> = items(&hook["rules"]).iter().flat_map(|rule| items(&rule["resources"])).map(text).collect();
    let effect = if strict { "cannot be written" } else { "are not checked" };
    let finding = Finding::new(reference(configuration), what, if strict { Scope::Cluster } else { Scope::Objects });
    let severity = if strict { Severity::Error } else { Severity::Warning };
    let kind = text(&configuration["kind"]).to_lowercase();
    Some(
        finding
            .severity(severity)
            .object(reference(configuration))
            .evidence(line)
            .evidence(format!("webhook {}: {} {effect} until it answers", text(&hook["name"]), kinds.join(", ")))
            .fix(format!(
                "bring the operator back (kubectl get pods -A -l app.kubernetes.io/name=capstan); to go on without: \
                 kubectl delete {kind} {name}"
            )),
    )
}

/// Our own webhooks, and those that admit all pods.
fn concerns_us(hook: &Value) -> bool {
    let ours = |group: &Value| {
        let group = text(group);
        capstan_api::kinds().any(|entry| entry.group == group)
    };
    items(&hook["rules"]).iter().any(|rule| {
        let pods = items(&rule["resources"]).iter().any(|one| one == "pods") && hook["failurePolicy"] != "Ignore";
        items(&rule["apiGroups"]).iter().any(ours) || pods
    })
}

/// Why a webhook is unreachable: a summary, and the evidence.
fn unreachable<'a>(index: &Index<'_>, hook: &'a Value) -> Option<(&'a Value, String, String)> {
    let client = &hook["clientConfig"];
    let service = client["service"].as_object()?;
    let (namespace, name) = (text(service.get("namespace")?), text(service.get("name")?));
    let place = format!("Service {namespace}/{name}");
    if index.snapshot.find("", "Service", namespace, name).is_none() {
        return Some((hook, format!("its {place} does not exist"), format!("{place} is not there")));
    }
    let slices = index.snapshot.of("discovery.k8s.io", "EndpointSlice").iter();
    let own = slices.filter(|slice| named(slice).0 == namespace && label(slice, "kubernetes.io/service-name") == name);
    let mut endpoints = own.flat_map(|slice| items(&slice["endpoints"]));
    let ready = endpoints.any(|one| one["conditions"]["ready"] != false);
    if !ready && !index.snapshot.unread.contains_key("EndpointSlice.discovery.k8s.io") {
        return Some((hook, format!("its {place} has no ready endpoint"), format!("{place}: no ready endpoint")));
    }
    text(&client["caBundle"]).is_empty().then(|| {
        let line = format!("webhook {}: clientConfig.caBundle is empty", text(&hook["name"]));
        (hook, "it names no authority, so its certificate is not trusted".to_owned(), line)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::doctor::testing::{Cluster, assert_healthy, assert_only};

    fn hooks(bundle: &str, ready: bool) -> Cluster {
        Cluster::healthy()
            .add(json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "capstan"},
                "webhooks": [{
                    "name": "vnimservice-v1alpha1.kb.io", "failurePolicy": "Fail",
                    "clientConfig": {"caBundle": bundle, "service": {"namespace": "capstan", "name": "hook"}},
                    "rules": [{"apiGroups": ["apps.nvidia.com"], "resources": ["nimservices"]}],
                }],
            }))
            .add(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "capstan", "name": "hook"}}))
            .add(json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"namespace": "capstan", "name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
                "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}],
            }))
    }

    #[test]
    fn a_service_without_endpoints() {
        let report = assert_only(&hooks("Y2E=", false), "webhook-unreachable");
        assert!(report.causes[0].title.ends_with("its Service capstan/hook has no ready endpoint"), "{report:?}");
        assert_healthy(&hooks("Y2E=", true));
    }

    #[test]
    fn a_bundle_that_is_empty() {
        assert_only(&hooks("", true), "webhook-unreachable");
    }

    #[test]
    fn a_service_that_is_gone() {
        assert_only(&hooks("Y2E=", true).remove("Service", "hook"), "webhook-unreachable");
    }
}
