//! NIMService: on one node, over several, with KServe in both of its ways.

use capstan_api::compute_domain::ComputeDomain;
use capstan_api::foreign::volcano::PodGroup;
use capstan_api::foreign::{GrpcRoute, HttpRoute, InferencePool, InferenceService, LeaderWorkerSet, ServiceMonitor};
use capstan_operands::nim::nim_service::{check, plan};
use capstan_plan::{Gvk, Query, QueryResult, Ref};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use serde_json::{Value, json};

use super::{Case, Context, Observation, assert_alive, facts, object, ready_cache};

fn observe(value: &Value) -> Observation {
    let service = serde_json::from_value(value.clone()).unwrap();
    let served = [
        Gvk::of::<HttpRoute>(),
        Gvk::of::<GrpcRoute>(),
        Gvk::of::<InferencePool>(),
        Gvk::of::<InferenceService>(),
        Gvk::of::<LeaderWorkerSet>(),
        Gvk::of::<ServiceMonitor>(),
        Gvk::of::<ComputeDomain>(),
        Gvk::of::<ResourceClaimTemplate>(),
        Gvk::of::<PodGroup>(),
    ];
    let domain = |name: &str| {
        json!({
            "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain",
            "metadata": {"name": name, "namespace": "nim"},
            "spec": {"numNodes": 2, "channel": {"resourceClaimTemplate": {"name": format!("{name}-channel")}}},
        })
    };
    let mut facts = facts([ready_cache(), domain("walk-one"), domain("walk-two")], &served);
    let key = Query::PrivateKey { secret: Ref::of::<Secret>("nim", "llama-ssh-pk") };
    facts.query_results.insert(key, QueryResult::PrivateKey("key".into()));
    let verdict = check(&service, None, &facts);
    Observation::of(&plan(&service, &facts), verdict.errors, verdict.warnings)
}

fn base(edit: impl FnOnce(&mut Value)) -> Value {
    let mut object = object(
        "NIMService",
        "llama",
        json!({
            "image": {"repository": "nvcr.io/nim/meta/llama", "tag": "1.8"}, "authSecret": "ngc",
            "storage": {"emptyDir": {}},
        }),
    );
    edit(&mut object["spec"]);
    object
}

/// What must be there for fields below a path to matter.
const CONTEXTS: &[Context] = &[
    ("spec.scale", |value| value["spec"]["scale"] = json!({"enabled": true, "hpa": {"maxReplicas": 3}})),
    ("spec.metrics", |value| {
        value["spec"]["metrics"] = json!({"enabled": true, "serviceMonitor": {"interval": "10s"}});
    }),
    ("spec.expose.ingress", |value| value["spec"]["expose"]["ingress"] = json!({"enabled": true})),
    ("spec.expose.router", |value| value["spec"]["expose"]["router"]["hostDomainName"] = json!("example.com")),
    ("spec.expose.router.annotations", |value| {
        value["spec"]["expose"]["router"]["ingress"] = json!({"ingressClass": "c"})
    }),
    ("spec.expose.router.hostDomainName", |value| {
        value["spec"]["expose"]["router"]["ingress"] = json!({"ingressClass": "c"});
    }),
    ("spec.expose.router.gateway", |value| {
        value["spec"]["expose"]["service"] = json!({"grpcPort": 9000});
    }),
    ("spec.expose.router.eppConfig", |value| {
        let image = json!({"repository": "epp", "tag": "1"});
        value["spec"]["expose"]["router"]["eppConfig"] = json!({
            "containerSpec": {"name": "epp", "image": image}, "config": {"plugins": [], "schedulingProfiles": []},
        });
    }),
    ("spec.expose.router.eppConfig.configMapRef", |value| {
        let epp = &mut value["spec"]["expose"]["router"]["eppConfig"];
        epp.as_object_mut().unwrap().remove("config");
        epp["configMapRef"] = json!({"name": "mine", "key": "file"});
    }),
    ("spec.storage.pvc", |value| value["spec"]["storage"] = json!({"pvc": {"create": true, "size": "50Gi"}})),
    ("spec.storage.pvc.create", |value| value["spec"]["storage"] = json!({"pvc": {"name": "mine", "size": "50Gi"}})),
    ("spec.storage.readOnly", |value| value["spec"]["storage"] = json!({"pvc": {"name": "mine"}})),
    ("spec.storage.nimCache", |value| value["spec"]["storage"] = json!({"nimCache": {"name": "models"}})),
    ("spec.storage.hostPath", |value| value["spec"]["storage"] = json!({"hostPath": "/models"})),
    ("spec.multiNode.ray", |value| {
        value["spec"]["multiNode"] = json!({"parallelism": {"pipeline": 2, "tensor": 8}});
    }),
    ("spec.draResources", |value| value["spec"]["draResources"] = json!([{"resourceClaimTemplateName": "gpus"}])),
    ("spec.draResources.resourceClaimName", |value| {
        value["spec"]["draResources"] = json!([{"resourceClaimName": "gpus"}])
    }),
    ("spec.draResources.claimCreationSpec", |value| {
        let device = json!({"name": "gpu", "count": 1, "deviceClassName": "gpu.nvidia.com"});
        value["spec"]["draResources"] = json!([{"claimCreationSpec": {"devices": [device]}}]);
    }),
    ("spec.draResources.claimCreationSpec.devices.attributeSelectors.value.boolValue", |value| {
        selector(value, json!({"boolValue": false}))
    }),
    ("spec.draResources.claimCreationSpec.devices.attributeSelectors.value.intValue", |value| {
        selector(value, json!({"intValue": 1}))
    }),
    ("spec.draResources.claimCreationSpec.devices.attributeSelectors.value.stringValue", |value| {
        selector(value, json!({"stringValue": "a"}))
    }),
    ("spec.draResources.claimCreationSpec.devices.attributeSelectors.value.versionValue", |value| {
        selector(value, json!({"versionValue": "1.0.0"}));
    }),
    ("spec.draResources.claimCreationSpec.devices.attributeSelectors.key", |value| {
        selector(value, json!({"stringValue": "a"}))
    }),
    ("spec.draResources.claimCreationSpec.devices.attributeSelectors.op", |value| {
        selector(value, json!({"intValue": 1}))
    }),
];

fn selector(value: &mut Value, wanted: Value) {
    let device = &mut value["spec"]["draResources"][0]["claimCreationSpec"]["devices"][0];
    device["attributeSelectors"] = json!([{"key": "k", "op": "Equal", "value": wanted}]);
}

fn samples() -> Vec<(&'static str, Value)> {
    vec![
        ("spec.storage.pvc.size", json!("70Gi")),
        ("spec.storage.pvc.volumeAccessMode", json!("ReadOnlyMany")),
        ("spec.storage.nimCache.name", json!("models")),
        ("spec.storage.nimCache.profile", json!("p2")),
        ("spec.proxy.httpProxy", json!("http://proxy:3128")),
        ("spec.proxy.httpsProxy", json!("http://proxy:3129")),
        ("spec.proxy.noProxy", json!("example.com")),
        ("spec.expose.router.hostDomainName", json!("other.example.com")),
        ("attributeSelectors.value.versionValue", json!("2.0.0")),
        ("celExpressions", json!(["device.driver == \"x\""])),
        (
            "spec.draResources.claimCreationSpec.devices.attributeSelectors",
            json!({"key": "k", "op": "Equal", "value": {"intValue": 1}}),
        ),
        ("spec.draResources.resourceClaimTemplateName", json!("other")),
        ("pullPolicy", json!("Always")),
    ]
}

#[test]
fn every_field_of_a_service_does_something() {
    let settings: [(&str, Value, &[&str], &[&str]); 4] = [
        ("one node", base(|_| {}), &["spec.resources.claims"], &["spec.multiNode"]),
        (
            "several nodes",
            base(|spec| {
                spec["multiNode"] = json!({"parallelism": {"pipeline": 2, "tensor": 8}, "mpi": {"mpiStartTimeout": 5}})
            }),
            // Of the last, one of two fields must be set, and not both.
            &["spec.resources.claims", "spec.inferencePlatform", "spec.multiNode.computeDomain"],
            // The one has one value only; the other is refused by the schema.
            &["spec.multiNode.backendType", "spec.scale"],
        ),
        (
            "KServe",
            base(|spec| spec["inferencePlatform"] = "kserve".into()),
            &["spec.resources.claims", "spec.multiNode"],
            &[],
        ),
        (
            "KServe with Knative",
            base(|spec| {
                spec["inferencePlatform"] = "kserve".into();
                spec["annotations"] = json!({"serving.kserve.io/deploymentMode": "Knative"});
            }),
            &[
                "spec.resources.claims",
                "spec.multiNode",
                "spec.scale",
                "spec.metrics",
                "spec.expose.ingress",
                "spec.expose.router.annotations",
                "spec.expose.router.hostDomainName",
                "spec.expose.router.ingress",
                "spec.expose.router.gateway",
            ],
            &[],
        ),
    ];
    let samples = samples();
    let cases: Vec<Case<'_>> = settings
        .into_iter()
        .map(|(setting, base, refused, elsewhere)| Case {
            kind: "NIMService",
            setting,
            base,
            contexts: CONTEXTS,
            samples: &samples,
            refused,
            elsewhere,
            observe: &observe,
        })
        .collect();
    assert_alive(&cases);
}
