//! The objects of a service on one node.

use capstan_api::foreign::{GrpcRoute, HttpRoute, InferencePool, ServiceMonitor};
use capstan_plan::{Orchestrator, diff};
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;

use super::*;

fn routed() -> NimService {
    edited(|spec| {
        spec["expose"] = json!({
            "service": {"port": 8123, "grpcPort": 50051},
            "router": {
                "hostDomainName": "example.com", "annotations": {"route": "1"},
                "gateway": {"namespace": "infra", "name": "gateway", "grpcRoutesEnabled": true},
            },
        });
    })
}

#[test]
fn full_spec_on_a_ready_cache() {
    let full = cached("p1", |spec| {
        spec.as_object_mut().unwrap().remove("replicas");
        spec["expose"] = json!({
            "service": {"port": 8123, "metricsPort": 8002, "annotations": {"svc": "1"}},
            "router": {"hostDomainName": "example.com", "annotations": {"route": "1"}, "ingress": {"ingressClass": "nginx", "tlsSecretName": "tls"}},
        });
        spec["scale"] = json!({"enabled": true, "annotations": {"scale": "1"}, "hpa": {"minReplicas": 1, "maxReplicas": 10, "metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
            {"type": "Object", "object": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "1"}, "describedObject": {"kind": "Service", "name": "llama"}}},
        ]}});
        spec["metrics"] = json!({"enabled": true, "serviceMonitor": {"interval": "1m", "scrapeTimeout": "30s", "additionalLabels": {"release": "prometheus"}, "annotations": {"monitor": "1"}}});
        spec["initContainers"] = json!([{"name": "prepare", "image": {"repository": "busybox", "tag": "1", "pullSecrets": ["other", "ngc-secret"]}}]);
    });
    let facts = serving::<ServiceMonitor>(with([cache(ngc(), json!({}))]));
    insta::assert_yaml_snapshot!(bodies(&plan(&full, &facts)));
}

#[test]
fn gateway_routes() {
    let facts = serving::<GrpcRoute>(serving::<HttpRoute>(facts()));
    let plan = plan(&routed(), &facts);
    insta::assert_yaml_snapshot!([object(&plan, "HTTPRoute"), object(&plan, "GRPCRoute")]);
}

#[test]
fn without_the_crds_of_the_gateway_the_service_runs_and_says_what_is_missing() {
    let plan = plan(&routed(), &facts());
    assert!(!kinds(&plan).contains(&"HTTPRoute") && kinds(&plan).contains(&"Deployment"));
    let (_, _, message) = condition(&plan, "MissingAPI");
    assert!(
        message.starts_with(
            "spec.expose.router.gateway needs HTTPRoute (gateway.networking.k8s.io/v1), which this cluster does not \
             serve: install the CRDs of the Gateway API, or remove the field; "
        ),
        "{message}"
    );
}

#[test]
fn routes_are_off_when_they_are_switched_off() {
    let mut off = routed();
    let gateway = off.spec.expose.as_mut().unwrap().router.as_mut().unwrap().gateway.as_mut().unwrap();
    (gateway.http_routes_enabled, gateway.grpc_routes_enabled) = (Some(false), None);
    let plan = plan(&off, &serving::<GrpcRoute>(serving::<HttpRoute>(facts())));
    assert!(!kinds(&plan).iter().any(|kind| kind.ends_with("Route")));
}

fn picking(edit: impl FnOnce(&mut Value)) -> NimService {
    edited(|spec| {
        spec["expose"]["router"] = json!({
            "hostDomainName": "example.com",
            "gateway": {"namespace": "infra", "name": "gateway"},
            "eppConfig": {
                "containerSpec": {"name": "picker", "image": {"repository": "epp", "tag": "v1"}},
                "config": {
                    "plugins": [{"type": "queue-scorer"}, {"type": "prefix", "name": "p", "parameters": "eyJhIjoxfQ=="}],
                    "schedulingProfiles": [{"name": "default", "plugins": [{"pluginRef": "queue-scorer", "weight": 2}, {"pluginRef": "p"}]}],
                },
            },
        });
        edit(&mut spec["expose"]["router"]["eppConfig"]);
    })
}

#[test]
fn endpoint_picker() {
    let facts = serving::<InferencePool>(serving::<HttpRoute>(facts()));
    let plan = plan(&picking(|_| {}), &facts);
    let of_picker = |body: &&Value| {
        body["metadata"]["name"].as_str().is_some_and(|name| name.contains("-epp"))
            || ["InferencePool", "HTTPRoute"].contains(&body["kind"].as_str().unwrap())
    };
    insta::assert_yaml_snapshot!(bodies(&plan).into_iter().filter(of_picker).collect::<Vec<_>>());
}

#[test]
fn a_picker_with_other_ports_is_asked_there_and_one_without_configuration_is_refused() {
    let facts = serving::<InferencePool>(facts());
    let moved = plan(&picking(|epp| epp["ports"] = json!([{"name": "grpc", "containerPort": 7000}])), &facts);
    assert_eq!(object(&moved, "InferencePool")["spec"]["endpointPickerRef"]["port"]["number"], 7000);
    let none = plan(&picking(|epp| epp["config"] = Value::Null), &facts);
    assert_eq!(
        condition(&none, "Failed").2,
        "spec.expose.router.eppConfig has no configuration: set config, or configMapRef"
    );
}

#[test]
fn a_raw_ingress_is_used_as_it_is_and_wins() {
    let raw = json!({"ingressClassName": "x", "rules": [{"host": "h", "http": {"paths": [{"path": "/a", "pathType": "Exact", "backend": {"service": {"name": "llama", "port": {"number": 1}}}}]}}]});
    let both = edited(|spec| {
        spec["expose"]["ingress"] = json!({"enabled": true, "annotations": {"a": "b"}, "spec": raw});
        spec["expose"]["router"] = json!({"hostDomainName": "example.com", "ingress": {"ingressClass": "nginx"}});
    });
    let plan = plan(&both, &facts());
    assert_eq!(object(&plan, "Ingress")["spec"], raw);
    assert_eq!(object(&plan, "Ingress")["metadata"]["annotations"]["a"], "b");
}

#[test]
fn labels_of_the_service_alone_are_on_the_service_alone() {
    let labelled = edited(|spec| {
        spec["labels"] = json!({"shared": "spec", "nim-llm-role": "mine"});
        spec["expose"]["service"]["labels"] = json!({"shared": "service", "own": "1", "app.kubernetes.io/name": "x"});
    });
    let plan = plan(&labelled, &facts());
    let labels = &object(&plan, "Service")["metadata"]["labels"];
    assert_eq!((&labels["shared"], &labels["own"]), (&json!("spec"), &json!("1")));
    assert_eq!(labels["app.kubernetes.io/name"], "llama");
    let pods = &object(&plan, "Deployment")["spec"]["template"]["metadata"]["labels"];
    assert_eq!((&pods["own"], &pods["nim-llm-role"]), (&Value::Null, &Value::Null));
    assert_eq!(object(&plan, "Deployment")["metadata"]["labels"]["own"], Value::Null);
}

#[test]
fn an_autoscaler_sets_the_replicas_once_the_deployment_is_there() {
    let scaled = edited(|spec| {
        spec.as_object_mut().unwrap().remove("replicas");
        spec["scale"] = json!({"enabled": true, "hpa": {"minReplicas": 2, "maxReplicas": 5}});
    });
    let first = plan(&scaled, &facts());
    assert_eq!(object(&first, "Deployment")["spec"]["replicas"], 2);
    let facts = facts_after(&first, |reference, body| {
        if reference.gvk.kind == "Deployment" {
            body["spec"]["replicas"] = 4.into();
        }
    });
    assert!(diff("u-llama", &plan(&scaled, &facts).objects.unwrap(), &facts.live).is_empty());
    let off = plan(&edited(|spec| spec["replicas"] = 1.into()), &facts);
    let changes = diff("u-llama", off.objects.as_ref().unwrap(), &facts.live);
    let deployment = changes
        .apply
        .iter()
        .map(|write| &write.object)
        .find(|object| object.reference.gvk.kind == "Deployment")
        .unwrap();
    assert_eq!(deployment.body["spec"]["replicas"], 1);
    assert_eq!(changes.delete[0].reference.gvk.kind, "HorizontalPodAutoscaler");
}

#[test]
fn one_init_container_beside_certificates_gets_its_scratch() {
    let one = edited(|spec| {
        spec["proxy"] = json!({"certConfigMap": "trust"});
        spec["initContainers"] = json!([{"name": "prepare", "image": {"repository": "busybox", "tag": "1"}}]);
    });
    let plan = plan(&one, &facts());
    let volumes = object(&plan, "Deployment")["spec"]["template"]["spec"]["volumes"].as_array().unwrap().clone();
    let names: Vec<_> = volumes.iter().map(|volume| volume["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["dshm", "scratch", "model-store", "ca-cert-volume", "custom-ca"]);
}

#[test]
fn a_proxy_without_certificates_needs_no_other_constraint() {
    let plan = plan(&edited(|spec| spec["proxy"] = json!({"httpProxy": "http://p"})), &facts());
    assert_eq!(object(&plan, "Role")["rules"][0]["resourceNames"], json!(["nonroot"]));
    let pods = &object(&plan, "Deployment")["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(pods["openshift.io/required-scc"], "nonroot");
}

#[test]
fn pods_on_tanzu_name_a_seccomp_profile() {
    let facts = Facts { orchestrator: Orchestrator::of_node(["x", "node.vmware.com/tkg"]), ..facts() };
    let plan = plan(&service(plain()), &facts);
    let context = &object(&plan, "Deployment")["spec"]["template"]["spec"]["securityContext"];
    assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
}

#[test]
fn gpus_follow_from_the_profile_unless_the_user_says() {
    type Edit = fn(&mut Value);
    let cases: [(&str, Edit, Option<&str>); 6] = [
        ("p1", |_| {}, Some("4")),
        ("p2", |_| {}, Some("1")),
        ("p1", |spec| spec["resources"]["limits"]["nvidia.com/gpu"] = 2.into(), None),
        ("p1", |spec| spec["multiNode"] = json!({"parallelism": {"tensor": 2}}), Some("2")),
        ("unknown", |_| {}, None),
        ("p1", |spec| spec["draResources"] = json!([{"resourceClaimName": "c"}]), None),
    ];
    for (profile, edit, expected) in cases {
        let service = cached(profile, edit);
        let plan = plan(&service, &with([cache(ngc(), json!({}))]));
        let resources = &container(&plan)["resources"];
        assert_eq!(resources["requests"]["nvidia.com/gpu"].as_str(), expected, "{profile}");
        assert_eq!(resources["limits"]["cpu"], "8");
    }
    let plan = plan(&cached("p3", |_| {}), &with([cache(ngc(), json!({}))]));
    assert_eq!(
        condition(&plan, "Failed").2,
        "profile p3 says that it takes \"invalid\" GPUs: set nvidia.com/gpu in spec.resources.limits yourself"
    );
}

#[test]
fn a_changed_configuration_replaces_the_picker_and_leaves_the_model_alone() {
    let service = edited(|spec| {
        let container = json!({"name": "epp", "image": {"repository": "epp", "tag": "1"}});
        spec["expose"]["router"] =
            json!({"eppConfig": {"containerSpec": container, "configMapRef": {"name": "plugins", "key": "file"}}});
    });
    let config = |text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plugins", "namespace": "nim"}, "data": {"file": text}});
    let templates = |plan: &Plan<NimServiceStatus>| {
        let workloads = bodies(plan).into_iter().filter(|body| body["kind"] == "Deployment");
        workloads.map(|body| body["spec"]["template"].clone()).collect::<Vec<_>>()
    };
    let first = plan(&service, &with([config("a")]));
    let mut after = facts_after(&first, |_, _| {});
    after.live.insert(Ref::of::<k8s_openapi::api::core::v1::ConfigMap>("nim", "plugins"), Arc::new(config("b")));
    let second = plan(&service, &after);
    let (before, now) = (templates(&first), templates(&second));
    assert_ne!(before[0], now[0], "the picker reads its file once");
    assert_eq!(before[1], now[1]);
}

#[test]
fn what_kserve_decides_by_itself_is_told() {
    let service = edited(|spec| {
        spec["inferencePlatform"] = "kserve".into();
        spec["expose"]["service"]["labels"] = json!({"a": "b"});
        spec["scale"] = json!({"annotations": {"a": "b"}});
    });
    let (_, _, message) = condition(&plan(&service, &facts()), "IgnoredFields");
    assert_eq!(
        message,
        "KServe decides this by itself, so these fields have no effect: spec.expose.service.type, \
         spec.expose.service.labels, spec.scale.annotations"
    );
}

#[test]
fn what_is_switched_off_goes() {
    let full = edited(|spec| {
        spec["expose"]["router"] = json!({"hostDomainName": "example.com", "ingress": {"ingressClass": "nginx"}, "eppConfig": {
            "containerSpec": {"name": "epp", "image": {"repository": "epp", "tag": "1"}},
            "config": {"plugins": [], "schedulingProfiles": []},
        }});
        spec["metrics"] = json!({"enabled": true, "serviceMonitor": {"interval": "10s"}});
        spec["scale"] = json!({"enabled": true, "hpa": {"maxReplicas": 3}});
        spec.as_object_mut().unwrap().remove("replicas");
        spec["draResources"] = json!([{"claimCreationSpec": {"devices": [{"name": "gpu", "count": 1, "deviceClassName": "gpu.nvidia.com"}]}}]);
    });
    let all = serving::<InferencePool>(serving::<ServiceMonitor>(serving::<ResourceClaimTemplate>(facts())));
    let first = plan(&full, &all);
    let after = facts_after(&first, |_, body| body["metadata"]["uid"] = "x".into());
    let wanted = plan(&service(plain()), &after).objects.unwrap();
    let diff = capstan_plan::diff("u-llama", &wanted, &after.live);
    let mut gone: Vec<&str> = diff.delete.iter().map(|one| &*one.reference.gvk.kind).collect();
    gone.sort();
    let expected = [
        "ConfigMap",
        "Deployment",
        "HorizontalPodAutoscaler",
        "InferencePool",
        "Ingress",
        "ResourceClaimTemplate",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
    ];
    assert_eq!(gone, expected);
    assert!(diff.delete.iter().all(|one| {
        one.reference.name != "llama"
            || ["Ingress", "HorizontalPodAutoscaler", "InferencePool", "ServiceMonitor"]
                .contains(&&*one.reference.gvk.kind)
    }));
}

#[test]
fn a_claim_that_was_made_is_told() {
    let service = service(plain());
    let first = plan(&service, &facts());
    let told = condition(&plan(&service, &facts_after(&first, |_, _| {})), "NIM_CACHE_PVC_CREATED");
    assert_eq!(told, ("True".into(), "PVCCreated".into(), "The PVC has been created for storing NIM".into()));
    assert!(first.status.conditions.unwrap().iter().all(|one| one.type_ != "NIM_CACHE_PVC_CREATED"));
}

#[test]
fn a_claim_without_an_access_mode_is_for_one_node() {
    let service = edited(|spec| spec["storage"] = json!({"pvc": {"create": true, "size": "1Gi"}}));
    assert_eq!(
        object(&plan(&service, &facts()), "PersistentVolumeClaim")["spec"]["accessModes"],
        json!(["ReadWriteOnce"])
    );
}

#[test]
fn annotations_of_the_user_are_on_the_account() {
    let service = edited(|spec| spec["annotations"] = json!({"iam.example.com/role": "models"}));
    let plan = plan(&service, &facts());
    assert_eq!(object(&plan, "ServiceAccount")["metadata"]["annotations"], json!({"iam.example.com/role": "models"}));
}

#[test]
fn a_directory_of_the_host_is_made_if_need_be_and_needs_its_constraint() {
    let service = edited(|spec| spec["storage"] = json!({"hostPath": "/models"}));
    let plan = plan(&service, &facts());
    let pod = &object(&plan, "Deployment")["spec"]["template"];
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    let store = volumes.iter().find(|volume| volume["name"] == "model-store").unwrap();
    assert_eq!(store["hostPath"], json!({"path": "/models", "type": "DirectoryOrCreate"}));
    assert_eq!(pod["metadata"]["annotations"]["openshift.io/required-scc"], "hostmount-anyuid");
    assert_eq!(object(&plan, "Role")["rules"][0]["resourceNames"], json!(["hostmount-anyuid"]));
}

#[test]
fn words_that_look_like_something_else_stay_words() {
    let service =
        edited(|spec| spec["nodeSelector"] = json!({"gpu": "true", "rack": "1", "zone": "1e3", "none": "null"}));
    let plan = plan(&service, &facts());
    let selector = &object(&plan, "Deployment")["spec"]["template"]["spec"]["nodeSelector"];
    assert_eq!(*selector, json!({"gpu": "true", "rack": "1", "zone": "1e3", "none": "null"}));
}

#[test]
fn a_label_that_selects_pods_cannot_be_replaced() {
    let service = edited(|spec| spec["labels"] = json!({"app": "mine", "team": "search"}));
    let plan = plan(&service, &facts());
    let deployment = &object(&plan, "Deployment")["spec"];
    assert_eq!(deployment["selector"]["matchLabels"], json!({"app": "llama"}));
    let labels = &deployment["template"]["metadata"]["labels"];
    assert_eq!((&labels["app"], &labels["team"]), (&json!("llama"), &json!("search")));
}

#[test]
fn a_name_that_leaves_no_room_for_suffixes_is_refused() {
    let mut service = service(plain());
    for (length, errors) in [(59, 0), (60, 1)] {
        service.metadata.name = Some("m".repeat(length));
        assert_eq!(check(&service, None, &facts()).errors.len(), errors, "{length} characters");
    }
}

#[test]
fn a_service_may_be_called_true() {
    let mut service = service(plain());
    service.metadata.name = Some("true".into());
    let plan = plan(&service, &facts());
    let deployment = object(&plan, "Deployment");
    assert_eq!(deployment["metadata"]["name"], "true");
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], json!({"app": "true"}));
}

#[test]
fn gpus_of_a_profile_are_request_and_limit_beside_whatever_else_is_given() {
    let gpus = "nvidia.com/gpu";
    let cases = [
        (Value::Null, json!({gpus: "4"}), json!({gpus: "4"})),
        (json!({"limits": {"cpu": "8"}}), json!({gpus: "4"}), json!({"cpu": "8", gpus: "4"})),
        (json!({"requests": {"memory": "1Gi"}}), json!({"memory": "1Gi", gpus: "4"}), json!({gpus: "4"})),
        (json!({"limits": {gpus: 2}}), Value::Null, json!({gpus: "2"})),
    ];
    for (given, requests, limits) in cases {
        let service = cached("p1", |spec| spec["resources"] = given);
        let plan = plan(&service, &with([cache(ngc(), json!({}))]));
        let resources = &container(&plan)["resources"];
        assert_eq!((&resources["requests"], &resources["limits"]), (&requests, &limits));
    }
}

#[test]
fn a_route_leads_to_the_pool_of_the_picker_unless_the_user_says_otherwise() {
    let facts = serving::<InferencePool>(serving::<HttpRoute>(facts()));
    let backend = |service: &NimService| {
        object(&plan(service, &facts), "HTTPRoute")["spec"]["rules"][0]["backendRefs"][0].clone()
    };
    let usual = picking(|_| {});
    assert_eq!((&backend(&usual)["kind"], &backend(&usual)["name"]), (&json!("InferencePool"), &json!("llama")));
    let mut own = serde_json::to_value(&usual).unwrap();
    own["spec"]["expose"]["router"]["gateway"]["backendRef"] = json!({"name": "other", "port": 80});
    assert_eq!(backend(&serde_json::from_value(own).unwrap()), json!({"name": "other", "port": 80}));
}

#[test]
fn a_picker_may_do_little_and_asks_for_what_it_needs() {
    let plan = plan(&picking(|_| {}), &serving::<InferencePool>(facts()));
    let pod = &object(&plan, "Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["resources"]["requests"], json!({"cpu": "100m", "memory": "128Mi"}));
    assert_eq!(
        container["securityContext"],
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
    );
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
}

#[test]
fn without_the_crd_of_pools_requests_go_to_the_service_and_what_is_missing_is_said() {
    let plan = plan(&picking(|_| {}), &serving::<HttpRoute>(facts()));
    let (_, _, message) = condition(&plan, "MissingAPI");
    assert!(
        message.starts_with("spec.expose.router.eppConfig needs InferencePool (inference.networking.k8s.io/v1)"),
        "{message}"
    );
    let rules = &object(&plan, "HTTPRoute")["spec"]["rules"];
    assert_eq!(rules[0]["backendRefs"], json!([{"name": "llama", "port": 8000}]));
}

#[test]
fn routes_that_nobody_wants_any_more_go() {
    let first = plan(&routed(), &serving::<GrpcRoute>(serving::<HttpRoute>(facts())));
    let after = facts_after(&first, |_, body| body["metadata"]["uid"] = "x".into());
    let changes = diff("u-llama", &plan(&service(plain()), &after).objects.unwrap(), &after.live);
    let mut gone: Vec<&str> = changes.delete.iter().map(|one| &*one.reference.gvk.kind).collect();
    gone.sort_unstable();
    assert_eq!(gone, ["GRPCRoute", "HTTPRoute"]);
}
