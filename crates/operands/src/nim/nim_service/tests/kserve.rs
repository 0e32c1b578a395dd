//! Services that KServe runs.

use capstan_api::foreign::{InferenceService, ServiceMonitor};
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;

use super::*;

fn kserve(edit: impl FnOnce(&mut Value)) -> NimService {
    edited(|spec| {
        spec["inferencePlatform"] = "kserve".into();
        edit(spec);
    })
}

fn served(objects: impl IntoIterator<Item = Value>) -> Facts {
    serving::<ServiceMonitor>(serving::<InferenceService>(with(objects)))
}

fn settings(namespace: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "inferenceservice-config", "namespace": namespace}, "data": data})
}

fn running(status: Value) -> Value {
    json!({
        "apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "llama", "namespace": "nim"}, "spec": {}, "status": status,
    })
}

fn mode(plan: &Plan<NimServiceStatus>) -> &Value {
    &object(plan, "InferenceService")["metadata"]["annotations"]["serving.kserve.io/deploymentMode"]
}

#[test]
fn standard() {
    let service = kserve(|spec| {
        spec.as_object_mut().unwrap().remove("replicas");
        spec["scale"] = json!({"enabled": true, "hpa": {"minReplicas": 1, "maxReplicas": 3, "metrics": [{"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "512Mi"}}}]}});
        spec["metrics"] = json!({"enabled": true, "serviceMonitor": {"interval": "1m"}});
        spec["command"] = json!(["/start"]);
    });
    insta::assert_yaml_snapshot!(bodies(&plan(&service, &served([]))));
}

#[test]
fn knative() {
    let service = kserve(|spec| {
        spec["annotations"] = json!({"serving.kserve.io/deploymentMode": "Knative"});
        spec["expose"]["service"]["grpcPort"] = 50051.into();
    });
    insta::assert_yaml_snapshot!(object(&plan(&service, &served([])), "InferenceService"));
}

#[test]
fn no_autoscaler_means_a_fixed_number() {
    let plan = plan(&kserve(|_| {}), &served([]));
    let predictor = &object(&plan, "InferenceService")["spec"]["predictor"];
    assert_eq!((&predictor["minReplicas"], &predictor["maxReplicas"]), (&json!(1), &json!(1)));
    let none = super::plan(&kserve(|spec| spec["replicas"] = 0.into()), &served([]));
    let predictor = &object(&none, "InferenceService")["spec"]["predictor"];
    assert_eq!((&predictor["minReplicas"], &predictor["maxReplicas"]), (&json!(0), &Value::Null));
}

#[test]
fn the_mode_comes_from_what_runs_then_from_the_user_then_from_kserve() {
    let annotated = |mode: &str| kserve(|spec| spec["annotations"] = json!({"serving.kserve.io/deploymentMode": mode}));
    let serverless = || settings("kserve", json!({"deploy": r#"{"defaultDeploymentMode":"Serverless"}"#}));
    let dropping = json!({
        "deploy": r#"{"defaultDeploymentMode":"RawDeployment"}"#,
        "inferenceService": r#"{"serviceAnnotationDisallowedList":["serving.kserve.io/deploymentMode"]}"#,
    });
    let cases = [
        (annotated("Knative"), vec![running(json!({"deploymentMode": "Standard"})), serverless()], "Standard"),
        (annotated("Knative"), vec![serverless()], "Knative"),
        (kserve(|_| {}), vec![serverless()], "Serverless"),
        (kserve(|_| {}), vec![settings("kserve", json!({}))], "Standard"),
        (kserve(|_| {}), vec![], "Standard"),
    ];
    for (service, live, expected) in cases {
        let plan = plan(&service, &served(live));
        let shown = mode(&plan).as_str().unwrap();
        // A mode that KServe does not change is told; the annotation stays the user's.
        let told = plan.status.conditions.as_ref().unwrap().iter().any(|one| one.type_ == "InvalidFields");
        assert!(shown == expected || told, "{shown} instead of {expected}");
    }
    let plan = plan(&annotated("Knative"), &served([settings("kserve", dropping)]));
    let predictor = &object(&plan, "InferenceService")["spec"]["predictor"];
    assert!(predictor["deploymentStrategy"].is_object(), "the dropped annotation still counts");
}

#[test]
fn a_mode_that_cannot_be_known_is_said() {
    let cases = [
        (
            vec![settings("kserve", json!({"deploy": "{"}))],
            "key deploy of ConfigMap inferenceservice-config is no JSON",
        ),
        (
            vec![settings("kserve", json!({"deploy": "{}"}))],
            "defaultDeploymentMode of ConfigMap inferenceservice-config is \"\"",
        ),
        (
            vec![settings("a", json!({})), settings("b", json!({}))],
            "ConfigMap inferenceservice-config is in several namespaces (a, b): set KSERVE_NAMESPACE to KServe's",
        ),
    ];
    for (live, expected) in cases {
        let (_, reason, message) = condition(&plan(&kserve(|_| {}), &served(live)), "Failed");
        assert_eq!(reason, "DeploymentModeUnknown");
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn only_an_exposed_service_is_visible_outside() {
    let label = "networking.kserve.io/visibility";
    let ingress = json!({"hostDomainName": "example.com", "ingress": {"ingressClass": "nginx"}});
    let cases = [
        (kserve(|_| {}), json!("cluster-local")),
        (kserve(|spec| spec["expose"]["router"] = ingress.clone()), Value::Null),
        (kserve(|spec| spec["labels"] = json!({label: "mine"})), json!("mine")),
        (
            kserve(|spec| {
                spec["labels"] = json!({label: "mine"});
                spec["expose"]["router"] = ingress.clone();
            }),
            json!("mine"),
        ),
    ];
    for (service, expected) in cases {
        let plan = plan(&service, &served([]));
        assert_eq!(object(&plan, "InferenceService")["metadata"]["labels"][label], expected);
    }
}

#[test]
fn helpers_get_no_environment_of_several_nodes() {
    let plan = plan(
        &kserve(|spec| spec["sidecarContainers"] = json!([{"name": "s", "image": {"repository": "r", "tag": "t"}}])),
        &served([]),
    );
    let sidecar = object(&plan, "InferenceService")["spec"]["predictor"]["containers"][1].to_string();
    assert!(sidecar.contains("NIM_CACHE_PATH") && !sidecar.contains("NIM_MULTI_NODE"), "{sidecar}");
}

#[test]
fn a_cluster_without_kserve_says_so() {
    let (_, reason, message) = condition(&plan(&kserve(|_| {}), &facts()), "Ready");
    assert_eq!(reason, "MissingAPI");
    assert!(
        message.contains("needs InferenceService (serving.kserve.io/v1beta1)") && message.contains("install KServe")
    );
}

#[test]
fn readiness_and_endpoints_are_those_of_kserve() {
    let service = kserve(|_| {});
    let first = plan(&service, &served([]));
    let look = |status: Value| {
        let mut facts = facts_after(&first, |reference, body| {
            if reference.gvk.kind == "InferenceService" {
                body["status"] = status.clone();
            }
        });
        facts = serving::<InferenceService>(facts);
        plan(&service, &facts)
    };
    assert_eq!(condition(&look(json!({})), "Ready").2, "waiting for the predictor of inferenceservice \"llama\"");
    let not = look(json!({"conditions": [{"type": "PredictorReady", "status": "False", "message": "no nodes"}]}));
    assert!(condition(&not, "Ready").2.ends_with("is not ready: no nodes"));
    let ready = look(json!({
        "conditions": [{"type": "PredictorReady", "status": "True"}], "deploymentMode": "Standard",
        "url": "http://llama.example.com", "address": {"url": "http://llama.nim.svc"},
    }));
    assert_eq!(ready.status.state.as_deref(), Some("Ready"));
    let model = ready.status.model.unwrap();
    assert_eq!(
        (model.cluster_endpoint.as_str(), model.external_endpoint.as_str()),
        ("http://llama.nim.svc", "http://llama.example.com")
    );
    assert!(matches!(&ready.queries[0], capstan_plan::Query::Model { url, .. } if url == "http://llama.nim.svc"));
}

#[test]
fn the_other_platform_leaves_nothing_behind() {
    let standalone = plan(&service(plain()), &facts());
    let facts = serving::<InferenceService>(facts_after(&standalone, |_, body| body["metadata"]["uid"] = "x".into()));
    let moved = plan(&kserve(|_| {}), &facts);
    let changes = capstan_plan::diff("u-llama", moved.objects.as_ref().unwrap(), &facts.live);
    let gone: Vec<_> = changes.delete.iter().map(|deletion| &*deletion.reference.gvk.kind).collect();
    assert_eq!(gone, ["Deployment", "Service"]);
    assert!(kinds(&moved).contains(&"InferenceService"));
}

#[test]
fn devices_helpers_and_certificates_are_in_the_predictor() {
    let service = kserve(|spec| {
        spec["image"]["pullPolicy"] = "Always".into();
        spec["draResources"] = json!([{"resourceClaimName": "gpu", "requests": ["a", "b"]}]);
        spec["proxy"] = json!({"httpProxy": "http://proxy:3128", "certConfigMap": "ca"});
        let helper = |name: &str| json!({"name": name, "image": {"repository": "helper", "tag": "1"}});
        spec["initContainers"] = json!([helper("first")]);
        spec["sidecarContainers"] = json!([helper("beside")]);
        spec["sidecarContainers"][0]["image"]["pullPolicy"] = "Never".into();
    });
    let plan = plan(&service, &serving::<ResourceClaimTemplate>(served([])));
    let predictor = &object(&plan, "InferenceService")["spec"]["predictor"];
    let named = |list: &str, field: &str| -> Vec<String> {
        let all = predictor[list].as_array().unwrap().iter();
        all.map(|one| one[field].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(named("initContainers", "name"), ["update-ca-certificates", "first"]);
    assert_eq!(named("initContainers", "imagePullPolicy"), ["Always", "Always"]);
    assert_eq!(named("containers", "imagePullPolicy"), ["Always", "Never"]);
    assert_eq!(predictor["resourceClaims"][0]["resourceClaimName"], "gpu");
    for container in predictor["containers"].as_array().unwrap() {
        let claims = container["resources"]["claims"].as_array().unwrap();
        assert_eq!(claims.iter().map(|claim| &claim["request"]).collect::<Vec<_>>(), ["a", "b"]);
    }
    let volumes = named("volumes", "name");
    assert!(volumes.contains(&"custom-ca".to_owned()) && volumes.contains(&"scratch".to_owned()), "{volumes:?}");
}

#[test]
fn the_predictor_has_the_environment_of_a_pod_of_ours() {
    let service = |edit: fn(&mut Value)| {
        kserve(|spec| {
            spec["storage"] = json!({"nimCache": {"name": "models"}});
            edit(spec);
        })
    };
    let main = |service: &NimService, source: Value| {
        let plan = plan(service, &served([cache(source, json!({}))]));
        object(&plan, "InferenceService")["spec"]["predictor"]["containers"][0].clone()
    };
    let names = |container: &Value| -> Vec<String> {
        let all = container["env"].as_array().unwrap().iter();
        all.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    let hub = main(&service(|_| {}), hugging_face());
    assert_eq!(names(&hub)[..2], ["NGC_API_KEY", "HF_TOKEN"]);
    assert_eq!(hub["env"][0]["valueFrom"]["secretKeyRef"]["optional"], true);
    for added in ["NIM_MODEL_NAME", "NIM_MODEL_PATH", "HF_HOME"] {
        assert!(names(&hub).contains(&added.to_owned()), "{added}");
        assert!(!names(&main(&service(|_| {}), ngc())).contains(&added.to_owned()), "{added}");
    }
    let behind = main(&service(|spec| spec["proxy"] = json!({"httpProxy": "http://proxy:3128"})), ngc());
    assert_eq!(names(&behind)[..3], ["NIM_SDK_USE_NATIVE_TLS", "HTTPS_PROXY", "HTTP_PROXY"]);
    let own = main(
        &service(|spec| {
            spec["command"] = json!(["/start"]);
            spec["args"] = json!(["--verbose"]);
        }),
        ngc(),
    );
    assert_eq!((&own["command"], &own["args"]), (&json!(["/start"]), &json!(["--verbose"])));
}

#[test]
fn devices_are_asked_for_and_refused_as_elsewhere() {
    let on = |version: &str, resources: Value| {
        let facts = serving::<ResourceClaimTemplate>(served([]));
        let facts = Facts { server: ServerVersion::parse(version), ..facts };
        plan(&kserve(|spec| spec["draResources"] = resources), &facts)
    };
    let old = on("v1.30.5", json!([{"resourceClaimName": "c"}]));
    assert_eq!(condition(&old, "Failed").1, "DRAResourcesUnsupported");
    let twice = on("v1.34.0", json!([{"resourceClaimName": "c"}, {"resourceClaimName": "c"}]));
    assert!(condition(&twice, "Failed").2.starts_with("spec.draResources[1].resourceClaimName"));
    let device = json!({"name": "gpu", "count": 1, "deviceClassName": "gpu.nvidia.com"});
    let made = on("v1.34.0", json!([{"claimCreationSpec": {"devices": [device]}}]));
    let claims = &object(&made, "InferenceService")["spec"]["predictor"]["resourceClaims"];
    assert_eq!(claims[0]["resourceClaimTemplateName"], object(&made, "ResourceClaimTemplate")["metadata"]["name"]);
}

#[test]
fn addresses_are_told_in_every_mode_once_kserve_knows_them() {
    for mode in ["Standard", "Knative"] {
        let service = kserve(|spec| spec["annotations"] = json!({"serving.kserve.io/deploymentMode": mode}));
        let told = |url: Value, address: Value| {
            let conditions = json!([{"type": "PredictorReady", "status": "True"}]);
            let status = json!({"conditions": conditions, "deploymentMode": mode, "url": url, "address": address});
            let model = plan(&service, &served([running(status)])).status.model;
            model.map(|model| (model.cluster_endpoint, model.external_endpoint))
        };
        let (outside, inside) = (json!("http://llama.example.com"), json!({"url": "http://llama.nim.svc"}));
        assert_eq!(told(outside.clone(), Value::Null), None, "{mode}");
        assert_eq!(told(Value::Null, inside.clone()), Some(("http://llama.nim.svc".into(), String::new())), "{mode}");
        let both = Some(("http://llama.nim.svc".to_owned(), "http://llama.example.com".to_owned()));
        assert_eq!(told(outside, inside), both, "{mode}");
    }
}

#[test]
fn a_service_without_its_inference_service_waits_for_it() {
    let plan = plan(&kserve(|_| {}), &served([]));
    assert_eq!(plan.status.state.as_deref(), Some("NotReady"));
    assert_eq!(condition(&plan, "Ready").2, "waiting for creation of inferenceservice \"llama\"");
}

#[test]
fn another_mode_than_the_one_that_runs_is_told_with_the_way_to_it() {
    let service = kserve(|spec| spec["annotations"] = json!({"serving.kserve.io/deploymentMode": "Knative"}));
    let plan = plan(&service, &served([running(json!({"deploymentMode": "Standard"}))]));
    let (_, _, message) = condition(&plan, "InvalidFields");
    assert!(message.contains("KServe runs the service as \"Standard\""), "{message}");
    assert!(message.ends_with("delete InferenceService llama to start anew"), "{message}");
    let predictor = &object(&plan, "InferenceService")["spec"]["predictor"];
    assert!(predictor["deploymentStrategy"].is_object(), "it goes on as it runs");
}

#[test]
fn a_mode_that_nobody_knows_is_refused() {
    let service = kserve(|spec| spec["annotations"] = json!({"serving.kserve.io/deploymentMode": "Fast"}));
    let expected = "spec.annotations[serving.kserve.io/deploymentMode] is \"Fast\": use one of Standard, Knative";
    let (_, reason, message) = condition(&plan(&service, &served([])), "Failed");
    assert_eq!(reason, "DeploymentModeUnknown");
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn knative_gets_one_port_even_where_there_are_several() {
    let service = kserve(|spec| {
        spec["annotations"] = json!({"serving.kserve.io/deploymentMode": "Serverless"});
        spec["expose"]["service"] = json!({"port": 8000, "grpcPort": 50051, "metricsPort": 8002});
    });
    let plan = plan(&service, &served([]));
    let container = &object(&plan, "InferenceService")["spec"]["predictor"]["containers"][0];
    assert_eq!(container["ports"], json!([{"containerPort": 8000, "protocol": "TCP"}]));
}
