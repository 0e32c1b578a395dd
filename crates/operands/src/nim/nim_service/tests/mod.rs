//! What a service turns into, for the specs that users write.

use std::sync::Arc;

use capstan_plan::{Facts, LiveObjects, Plan, Ref, ServerVersion};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::*;

mod admission;
mod devices;
mod env;
mod kserve;
mod multi_node;
mod objects;
mod progress;

fn service(spec: Value) -> NimService {
    let object = json!({
        "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMService",
        "metadata": {"name": "llama", "namespace": "nim", "uid": "u-llama", "generation": 3},
        "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

fn plain() -> Value {
    json!({
        "image": {"repository": "nvcr.io/nim/meta/llama-3.1-8b-instruct", "tag": "1.8", "pullSecrets": ["ngc-secret"]},
        "authSecret": "ngc-api-secret",
        "storage": {"pvc": {"create": true, "size": "50Gi", "volumeAccessMode": "ReadWriteMany"}},
        "replicas": 1,
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "expose": {"service": {"type": "ClusterIP", "port": 8000}},
    })
}

fn edited(edit: impl FnOnce(&mut Value)) -> NimService {
    let mut spec = plain();
    edit(&mut spec);
    service(spec)
}

/// A cache that is ready, with one profile.
fn cache(source: Value, status: Value) -> Value {
    let mut cache = json!({
        "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMCache",
        "metadata": {"name": "models", "namespace": "nim"},
        "spec": {"source": source, "storage": {"pvc": {"subPath": "llama"}}},
        "status": {
            "state": "Ready", "pvc": "models-pvc",
            "profiles": [{"name": "p1", "config": {"tp": "4"}}, {"name": "p2", "config": {}}, {"name": "p3", "config": {"tp": "invalid"}}],
        },
    });
    cache["status"].as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    cache
}

fn ngc() -> Value {
    json!({"ngc": {"authSecret": "ngc", "modelPuller": "nvcr.io/nim/meta/llama3:1.0"}})
}

fn hugging_face() -> Value {
    json!({"hf": {
        "endpoint": "https://huggingface.co", "namespace": "meta", "modelName": "llama", "authSecret": "hf",
        "modelPuller": "p", "pullSecret": "s",
    }})
}

/// Facts with these live objects.
fn with(objects: impl IntoIterator<Item = Value>) -> Facts {
    let mut facts = facts();
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = text(&object["apiVersion"]);
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let gvk = capstan_plan::Gvk {
            group: group.to_owned().into(),
            version: version.to_owned().into(),
            kind: text(&object["kind"]).into(),
        };
        let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
        facts.live.insert(Ref { gvk, namespace, name }, Arc::new(object));
    }
    facts
}

/// The same in a cluster that serves the kind of `K`.
fn serving<K: kube::Resource<DynamicType = ()>>(mut facts: Facts) -> Facts {
    facts.served.insert(capstan_plan::Gvk::of::<K>());
    facts
}

/// A service that uses the cache.
fn cached(profile: &str, edit: impl FnOnce(&mut Value)) -> NimService {
    edited(|spec| {
        spec["storage"] = json!({"nimCache": {"name": "models", "profile": profile}});
        spec["resources"] = json!({"limits": {"cpu": "8"}});
        edit(spec);
    })
}

fn container(plan: &Plan<NimServiceStatus>) -> &Value {
    &object(plan, "Deployment")["spec"]["template"]["spec"]["containers"][0]
}

fn kinds(plan: &Plan<NimServiceStatus>) -> Vec<&str> {
    plan.objects.as_ref().unwrap().iter().map(|object| &*object.reference.gvk.kind).collect()
}

fn bodies(plan: &Plan<NimServiceStatus>) -> Vec<&Value> {
    plan.objects.as_ref().unwrap().iter().map(|object| &object.body).collect()
}

fn facts() -> Facts {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    Facts { server: ServerVersion::parse("v1.37.1"), ..Facts::at(now) }
}

/// Facts in which everything that `plan` wants is there as the server would store it.
fn facts_after(plan: &Plan<NimServiceStatus>, edit: impl Fn(&Ref, &mut Value)) -> Facts {
    let mut facts = facts();
    let wanted = plan.objects.clone().unwrap();
    for capstan_plan::Write { object, .. } in capstan_plan::diff("u-llama", &wanted, &LiveObjects::default()).apply {
        let mut body = object.body;
        body["metadata"]["generation"] = 1.into();
        edit(&object.reference, &mut body);
        facts.live.insert(object.reference, Arc::new(body));
    }
    facts
}

fn object<'a>(plan: &'a Plan<NimServiceStatus>, kind: &str) -> &'a Value {
    let objects = plan.objects.as_ref().unwrap();
    &objects.iter().find(|object| object.reference.gvk.kind == kind).unwrap().body
}

fn condition(plan: &Plan<NimServiceStatus>, type_: &str) -> (String, String, String) {
    let list = plan.status.conditions.as_ref().unwrap();
    let found = list.iter().find(|condition| condition.type_ == type_).unwrap();
    (found.status.clone(), found.reason.clone(), found.message.clone())
}

#[test]
fn plain_service() {
    insta::assert_yaml_snapshot!(
        plan(&service(plain()), &facts()).objects.unwrap().iter().map(|o| &o.body).collect::<Vec<_>>()
    );
}

#[test]
fn service_with_everything_that_is_supported() {
    let full = edited(|spec| {
        spec["command"] = json!(["/opt/nim/start"]);
        spec["args"] = json!(["--verbose"]);
        spec["env"] = json!([{"name": "NIM_LOG_LEVEL", "value": "DEBUG"}, {"name": "EXTRA", "value": "1"}]);
        spec["labels"] = json!({"team": "search", "app": "mine", "app.kubernetes.io/name": "mine"});
        spec["annotations"] = json!({"note": "x"});
        spec["nodeSelector"] = json!({"gpu": "true"});
        spec["tolerations"] = json!([{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]);
        spec["runtimeClassName"] = "nvidia".into();
        spec["priorityClassName"] = "high".into();
        spec["schedulerName"] = "volcano".into();
        spec["userID"] = 0.into();
        spec["storage"] = json!({"hostPath": "/models", "sharedMemorySizeLimit": "16Gi"});
        spec["expose"]["service"] = json!({"type": "LoadBalancer", "port": 8123, "grpcPort": 8001, "metricsPort": 8002, "labels": {"team": "other", "svc": "1"}, "annotations": {"lb": "internal"}});
        spec["proxy"] = json!({"httpsProxy": "http://proxy:3128", "certConfigMap": "trust"});
        spec["initContainers"] = json!([{"name": "prepare", "image": {"repository": "busybox", "tag": "1"}, "env": [{"name": "EXTRA", "value": "2"}]}]);
        spec["sidecarContainers"] =
            json!([{"name": "logs", "image": {"repository": "fluent", "tag": "2", "pullPolicy": "Always"}}]);
        spec["livenessProbe"] = json!({"enabled": false});
        spec["readinessProbe"] = json!({"probe": {"tcpSocket": {"port": 8123}}});
    });
    insta::assert_yaml_snapshot!(plan(&full, &facts()).objects.unwrap().iter().map(|o| &o.body).collect::<Vec<_>>());
}

#[test]
fn a_number_of_gpus_is_enough() {
    let plan = plan(&service(plain()), &facts());
    let limits = &object(&plan, "Deployment")["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(limits["nvidia.com/gpu"], "1");
}

#[test]
fn structs_that_another_operator_wrote_back_empty_count_as_unset() {
    let taken_over = edited(|spec| {
        spec["expose"] = json!({"service": {"port": 8000}, "ingress": {}, "router": {}});
        spec["storage"] = json!({"nimCache": {}, "pvc": {"name": "models"}});
        spec["scale"] = json!({"hpa": {"maxReplicas": 0, "minReplicas": 1}});
        spec["metrics"] = json!({"serviceMonitor": {}});
    });
    let plan = plan(&taken_over, &facts());
    let volumes = object(&plan, "Deployment")["spec"]["template"]["spec"]["volumes"].clone();
    assert_eq!(volumes[1]["persistentVolumeClaim"]["claimName"], "models");
}

#[test]
fn a_second_look_wants_nothing_new() {
    let service = service(plain());
    let first = plan(&service, &facts());
    let facts = facts_after(&first, |_, body| body["metadata"]["uid"] = "x".into());
    let second = plan(&service, &facts);
    assert!(capstan_plan::diff("u-llama", &second.objects.unwrap(), &facts.live).is_empty());
}

#[test]
fn readiness_follows_the_rollout() {
    let service = service(plain());
    let first = plan(&service, &facts());
    assert_eq!(first.status.state.as_deref(), Some("NotReady"));
    let soon = "0 of 1 updated replicas are available...";
    assert!(condition(&first, "Ready").2.ends_with(soon), "{:?}", condition(&first, "Ready"));
    let cases = [
        (json!({}), "NotReady", soon),
        (json!({"observedGeneration": 1}), "NotReady", "0 out of 1 new replicas have been updated..."),
        (
            json!({"observedGeneration": 1, "updatedReplicas": 1}),
            "NotReady",
            "0 of 1 updated replicas are available...",
        ),
        (
            json!({"observedGeneration": 0, "updatedReplicas": 1, "availableReplicas": 1}),
            "NotReady",
            "spec update to be observed...",
        ),
        (
            json!({"conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]}),
            "NotReady",
            "exceeded its progress deadline",
        ),
        (
            json!({"observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": 1}),
            "Ready",
            "successfully rolled out",
        ),
    ];
    let idle = edited(|spec| spec["replicas"] = 0.into());
    let stopped = facts_after(&plan(&idle, &facts()), |_, _| {});
    assert!(condition(&plan(&idle, &stopped), "Ready").2.ends_with("is scaled down"));
    for (status, state, message) in cases {
        let facts = facts_after(&first, |reference, body| match &*reference.gvk.kind {
            "Deployment" => body["status"] = status.clone(),
            "Service" => body["spec"]["clusterIP"] = "10.0.0.7".into(),
            _ => {}
        });
        let now = plan(&service, &facts);
        assert_eq!(now.status.state.as_deref(), Some(state), "{status}");
        let (_, _, said) = condition(&now, "Ready");
        assert!(said.ends_with(message), "{said}");
        assert_eq!(now.status.model.unwrap().cluster_endpoint, "10.0.0.7:8000");
    }
}

#[test]
fn a_service_is_not_ready_while_an_update_is_on_its_way() {
    let first = plan(&service(plain()), &facts());
    let ready = json!({"observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": 1});
    let facts = facts_after(&first, |reference, body| {
        if *reference == Ref::of::<Deployment>("nim", "llama") {
            body["status"] = ready.clone();
        }
    });
    let newer = edited(|spec| spec["image"]["tag"] = "1.9".into());
    let (status, _, _) = condition(&plan(&newer, &facts), "Ready");
    assert_eq!(status, "False");
}

#[test]
fn mistakes_name_field_value_and_fix_and_leave_what_runs_alone() {
    type Edit = fn(&mut Value);
    let cases: [(Edit, &str); 6] = [
        (
            |spec| spec["storage"] = json!({}),
            "spec.storage names no place for the model: set nimCache, pvc, emptyDir or hostPath",
        ),
        (|spec| spec["storage"]["hostPath"] = "/m".into(), "spec.storage names 2 places for the model: keep one"),
        (
            |spec| spec["storage"]["pvc"]["size"] = "50 GB".into(),
            r#"spec.storage.pvc.size is "50 GB": give a size such as 50Gi"#,
        ),
        (
            |spec| spec["storage"]["pvc"]["volumeAccessMode"] = "RWX".into(),
            r#"spec.storage.pvc.volumeAccessMode is "RWX": use one of ReadWriteOnce, ReadOnlyMany, ReadWriteMany, ReadWriteOncePod"#,
        ),
        (
            |spec| spec["image"]["tag"] = "".into(),
            "spec.image.tag is empty: name the image to serve, such as nvcr.io/nim/meta/llama3 and 1.0",
        ),
        (
            |spec| spec["multiNode"] = json!({"parallelism": {"pipeline": 2}}),
            "spec.multiNode.parallelism.tensor is not set: set the number of GPUs to use on each node",
        ),
    ];
    for (edit, message) in cases {
        let plan = plan(&edited(edit), &facts());
        assert_eq!(plan.objects, None);
        assert_eq!(plan.status.state.as_deref(), Some("Failed"));
        assert_eq!(condition(&plan, "Failed").2, message);
        assert_eq!(plan.events[0].message, message);
    }
}

#[test]
fn fields_without_effect_are_reported() {
    let plan = plan(&edited(|spec| spec["expose"]["service"]["name"] = "other".into()), &facts());
    assert_eq!(
        condition(&plan, "IgnoredFields").2,
        "these fields are set but have no effect yet: spec.expose.service.name"
    );
}

#[test]
fn a_schema_of_another_version_is_a_condition() {
    let facts = Facts { skew: Some("the CRD is older".into()), ..facts() };
    assert_eq!(condition(&plan(&service(plain()), &facts), "SchemaSkew").2, "the CRD is older");
}

#[test]
fn an_event_is_told_once_per_transition() {
    let mut service = service(plain());
    let first = plan(&service, &facts());
    assert_eq!(first.events, [], "that a new service is not ready is no news");
    let ready = facts_after(&first, |reference, body| {
        if reference.gvk.kind == "Deployment" {
            body["status"] = json!({"observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": 1});
        }
    });
    for (facts, reason) in [(&ready, Some("Ready")), (&ready, None), (&facts(), Some("NotReady"))] {
        let next = plan(&service, facts);
        assert_eq!(next.events.first().map(|event| event.reason), reason);
        service.status = Some(next.status);
    }
}

#[test]
fn a_headless_service_has_no_endpoint() {
    let service = service(plain());
    let first = plan(&service, &facts());
    let facts = facts_after(&first, |reference, body| {
        if *reference == Ref::of::<Service>("nim", "llama") {
            body["spec"]["clusterIP"] = "None".into();
        }
    });
    assert_eq!(plan(&service, &facts).status.model, None);
}
