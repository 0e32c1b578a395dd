//! Devices by claims.

use k8s_openapi::api::resource::v1::ResourceClaimTemplate;

use super::*;

fn named(name: &str, resources: Value) -> NimService {
    let mut service = edited(|spec| spec["draResources"] = resources);
    service.metadata.name = Some(name.into());
    service
}

fn pod(plan: &Plan<NimServiceStatus>) -> &Value {
    &object(plan, "Deployment")["spec"]["template"]["spec"]
}

#[test]
fn claims_have_the_names_that_running_pods_know() {
    let plan = plan(
        &named(
            "test-service",
            json!([
                {"resourceClaimTemplateName": "test-template"},
                {"resourceClaimName": "test-claim", "requests": ["a", "b"]},
                {"resourceClaimTemplateName": "test-template"},
            ]),
        ),
        &facts(),
    );
    let expected = json!([
        {"name": "claim-8568b4fb55-1-5cb744997d-0", "resourceClaimTemplateName": "test-template"},
        {"name": "claim-8568b4fb55-0-9f8c8d9fb-0", "resourceClaimName": "test-claim"},
        {"name": "claim-8568b4fb55-1-5cb744997d-1", "resourceClaimTemplateName": "test-template"},
    ]);
    assert_eq!(pod(&plan)["resourceClaims"], expected);
    let claims = json!([
        {"name": "claim-8568b4fb55-1-5cb744997d-0"},
        {"name": "claim-8568b4fb55-0-9f8c8d9fb-0", "request": "a"},
        {"name": "claim-8568b4fb55-0-9f8c8d9fb-0", "request": "b"},
        {"name": "claim-8568b4fb55-1-5cb744997d-1"},
    ]);
    assert_eq!(pod(&plan)["containers"][0]["resources"]["claims"], claims);
}

fn created() -> NimService {
    named(
        "llama",
        json!([{"claimCreationSpec": {"generateName": "gpus", "devices": [{
            "name": "gpu", "count": 2, "deviceClassName": "gpu.nvidia.com",
            "attributeSelectors": [{"key": "productName", "op": "Equal", "value": {"stringValue": "H100"}}],
            "capacitySelectors": [{"key": "memory", "op": "GreaterThanOrEqual", "value": "1.5"}],
        }]}}]),
    )
}

#[test]
fn a_template_is_made_from_selectors() {
    let plan = plan(&created(), &serving::<ResourceClaimTemplate>(facts()));
    insta::assert_yaml_snapshot!(object(&plan, "ResourceClaimTemplate"));
    assert_eq!(
        object(&plan, "ResourceClaimTemplate")["metadata"]["name"],
        pod(&plan)["resourceClaims"][0]["resourceClaimTemplateName"]
    );
}

#[test]
fn a_template_that_is_there_is_not_changed_by_new_labels() {
    let first = plan(&created(), &serving::<ResourceClaimTemplate>(facts()));
    let facts = serving::<ResourceClaimTemplate>(facts_after(&first, |_, _| {}));
    let mut labelled = created();
    labelled.spec.labels = Some([("team".to_owned(), "search".to_owned())].into());
    let second = plan(&labelled, &facts);
    let changes = capstan_plan::diff("u-llama", second.objects.as_ref().unwrap(), &facts.live);
    let template = changes
        .apply
        .iter()
        .map(|write| &write.object)
        .find(|object| object.reference.gvk.kind == "ResourceClaimTemplate")
        .unwrap();
    assert_eq!(template.body["metadata"]["labels"]["team"], "search");
    assert_eq!(template.body["spec"], object(&first, "ResourceClaimTemplate")["spec"]);
}

#[test]
fn what_claims_cannot_be_is_failed_with_its_path() {
    let version = |value: &str| {
        json!([{"claimCreationSpec": {"devices": [{
            "name": "g", "count": 1, "deviceClassName": "c",
            "attributeSelectors": [{"key": "driverVersion", "op": "Equal", "value": {"versionValue": value}}],
        }]}}])
    };
    let twice = json!([{"resourceClaimName": "c"}, {"resourceClaimName": "c"}]);
    let cases = [
        (twice, "spec.draResources[1].resourceClaimName is \"c\" a second time: name it once"),
        (
            version("550.127.08"),
            "spec.draResources[0].claimCreationSpec.devices[0].attributeSelectors[0].value.versionValue is \"550.127.08\"",
        ),
    ];
    for (resources, expected) in cases {
        let plan = plan(&named("llama", resources), &facts());
        let (status, reason, message) = condition(&plan, "Failed");
        assert_eq!((status.as_str(), reason.as_str()), ("True", "DRAResourcesUnsupported"));
        assert!(message.starts_with(expected), "{message}");
    }
    let plan = plan(&named("llama", version("550.127.8")), &serving::<ResourceClaimTemplate>(facts()));
    assert_ne!(plan.status.state.as_deref(), Some("Failed"));
}

#[test]
fn an_old_server_has_no_claims_and_a_vendors_suffix_makes_none_old() {
    let claim = json!([{"resourceClaimName": "c"}]);
    let on = |version: &str| {
        let facts = Facts { server: ServerVersion::parse(version), ..facts() };
        plan(&named("llama", claim.clone()), &facts)
    };
    let (_, reason, message) = condition(&on("v1.30.5"), "Failed");
    assert_eq!(reason, "DRAResourcesUnsupported");
    assert!(message.contains("needs Kubernetes v1.34.0, and this one is v1.30.5"), "{message}");
    assert_eq!(on("v1.34.0-gke.1").status.state.as_deref(), Some("NotReady"));
}

#[test]
fn the_status_tells_each_claim_oldest_first() {
    let service = named(
        "test-service",
        json!([{"resourceClaimTemplateName": "test-template"}, {"resourceClaimName": "test-claim"}]),
    );
    let claim = |name: &str, made: &str, pod_claim: &str, status: Value| {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "nim", "creationTimestamp": made, "annotations": {"resource.kubernetes.io/pod-claim-name": pod_claim}},
            "status": status,
        })
    };
    let name = "claim-8568b4fb55-1-5cb744997d-0";
    let facts = with([
        claim("young", "2026-01-02T00:00:00Z", name, json!({})),
        claim("old", "2026-01-01T00:00:00Z", name, json!({"allocation": {}, "reservedFor": [{"name": "p"}]})),
        claim("other", "2026-01-01T00:00:00Z", "claim-of-another", json!({})),
    ]);
    let plan = plan(&service, &facts);
    insta::assert_yaml_snapshot!(plan.status.dra_resource_statuses);
}
