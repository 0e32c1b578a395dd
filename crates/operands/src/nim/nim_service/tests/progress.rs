//! What the status says while things happen.

use capstan_api::compute_domain::ComputeDomain;
use capstan_plan::{Gvk, Policy, Query, QueryResult};
use k8s_openapi::api::core::v1::Secret;

use super::*;

/// Facts in which the service is ready, changed by `edit`.
fn ready(service: &NimService, edit: impl Fn(&Ref, &mut Value)) -> Facts {
    let first = plan(service, &facts());
    facts_after(&first, |reference, body| {
        match &*reference.gvk.kind {
            "Deployment" => {
                body["status"] = json!({"observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": 1});
            }
            "Service" => body["spec"]["clusterIP"] = "10.0.0.7".into(),
            _ => {}
        }
        edit(reference, body);
    })
}

fn pod(name: &str, status: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "nim", "labels": {"app": "llama", "app.kubernetes.io/instance": "llama"}},
        "spec": {"containers": []}, "status": status,
    })
}

#[test]
fn a_pod_that_waits_says_why() {
    let waiting = |reason: &str, message: &str| {
        json!({"phase": "Pending", "containerStatuses": [{
            "name": "llama-ctr", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason, "message": message}},
        }]})
    };
    let mut crashed = waiting("CrashLoopBackOff", "back-off 20s restarting");
    crashed["containerStatuses"][0]["lastState"] = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
    let unschedulable = json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
    }]});
    let cases = [
        (unschedulable, "pod a: Unschedulable: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu."),
        (
            waiting("ImagePullBackOff", "Back-off pulling image \"x\""),
            "pod a: container llama-ctr: ImagePullBackOff: Back-off pulling image \"x\"",
        ),
        (
            waiting("CreateContainerConfigError", "secret \"ngc\" not found"),
            "pod a: container llama-ctr: CreateContainerConfigError: secret \"ngc\" not found",
        ),
        (crashed, "pod a: container llama-ctr: CrashLoopBackOff: last end was OOMKilled with exit code 137"),
        (waiting("ContainerCreating", ""), "pod a: waits for its volume: PersistentVolumeClaim llama-pvc is Pending"),
        (json!({"phase": "Failed", "reason": "Evicted", "message": "disk"}), "pod a: Evicted: disk"),
    ];
    for (status, expected) in cases {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "llama-pvc", "namespace": "nim"}, "status": {"phase": "Pending"},
        });
        let plan = plan(&service(plain()), &with([pod("a", status), claim]));
        let message = condition(&plan, "Ready").2;
        assert!(message.ends_with(expected), "{message}");
    }
    let two = with([pod("a", json!({"phase": "Failed"})), pod("b", json!({"phase": "Failed"}))]);
    assert!(condition(&plan(&service(plain()), &two), "Ready").2.ends_with("pod a: Failed (and 1 more)"));
}

#[test]
fn a_cache_that_is_not_usable_stops_the_workload_and_leaves_the_running_one() {
    let states = [
        (None, "Failed", "NIMCacheNotFound", "NIMCache models not found: create it"),
        (Some(json!({"state": "InProgress"})), "NotReady", "NIMCacheNotReady", "NIMCache models not ready"),
        (
            Some(
                json!({"state": "Failed", "conditions": [{"type": "NIM_CACHE_RECONCILE_FAILED", "status": "True", "reason": "x", "message": "no space", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
            ),
            "Failed",
            "NIMCacheFailed",
            "NIMCache models failed: no space",
        ),
        (
            Some(json!({"state": "Ready", "pvc": ""})),
            "Failed",
            "NIMCacheFailed",
            "NIMCache models is Ready but names no claim in status.pvc",
        ),
    ];
    for (status, state, reason, message) in states {
        let running =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "llama", "namespace": "nim"}});
        let live = status.map(|status| cache(ngc(), status)).into_iter().chain([running]);
        let plan = plan(&cached("", |_| {}), &with(live));
        assert_eq!(plan.status.state.as_deref(), Some(state));
        let type_ = if state == "Failed" { "Failed" } else { "Ready" };
        let (_, said, told) = condition(&plan, type_);
        assert_eq!((said.as_str(), told.as_str()), (reason, message));
        assert_eq!(plan.requeue, None, "a change of the cache is enough");
        let objects = plan.objects.unwrap();
        let deployment = objects.iter().find(|object| object.reference.gvk.kind == "Deployment").unwrap();
        assert_eq!(deployment.policy, Policy::Unmanaged);
        assert!(objects.iter().any(|object| object.reference.gvk.kind == "Service"));
    }
}

#[test]
fn a_ready_service_asks_for_its_model_and_shows_the_answer() {
    let service = service(plain());
    let mut facts = ready(&service, |_, _| {});
    let before = plan(&service, &facts);
    let [query] = before.queries.as_slice() else { panic!("{:?}", before.queries) };
    assert!(matches!(query, Query::Model { url, .. } if url == "http://10.0.0.7:8000"));
    assert_eq!((before.status.state.as_deref(), before.status.model.unwrap().name.as_str()), (Some("Ready"), ""));
    facts.query_results.insert(query.clone(), QueryResult::Model(Ok("meta/llama".into())));
    let named = plan(&service, &facts);
    assert_eq!(named.status.model.as_ref().unwrap().name, "meta/llama");
    let mut known = service.clone();
    known.status = Some(named.status);
    facts.query_results.insert(query.clone(), QueryResult::Model(Err("connection refused".into())));
    let silent = plan(&known, &facts);
    assert_eq!(silent.status.state.as_deref(), Some("Ready"));
    assert_eq!(silent.status.model.as_ref().unwrap().name, "meta/llama");
    assert_eq!(condition(&silent, "EndpointUnreachable").2, "http://10.0.0.7:8000 does not answer: connection refused");
    known.status = Some(silent.status);
    facts.query_results.insert(query.clone(), QueryResult::Model(Ok("meta/llama".into())));
    let back = plan(&known, &facts);
    assert!(back.status.conditions.unwrap().iter().all(|one| one.type_ != "EndpointUnreachable"));
}

#[test]
fn other_pods_are_asked_anew() {
    let revision = |service: &NimService| match plan(service, &ready(service, |_, _| {})).queries.remove(0) {
        Query::Model { revision, .. } => revision,
        other => panic!("{other:?}"),
    };
    let newer = edited(|spec| spec["image"]["tag"] = "1.9".into());
    let more = edited(|spec| spec["replicas"] = 1.into());
    assert_ne!(revision(&service(plain())), revision(&newer));
    assert_eq!(revision(&service(plain())), revision(&more));
}

#[test]
fn the_way_in_from_outside_is_told() {
    let balanced = edited(|spec| spec["expose"]["service"]["type"] = "LoadBalancer".into());
    let ingress = edited(|spec| {
        spec["expose"]["router"] = json!({"hostDomainName": "example.com", "ingress": {"ingressClass": "nginx"}})
    });
    let hostless = edited(|spec| {
        spec["expose"]["ingress"] = json!({"enabled": true, "spec": {"rules": [{"http": {"paths": []}}]}})
    });
    let status = |list: Value| json!({"loadBalancer": {"ingress": list}});
    let cases = [
        (service(plain()), "Service", Value::Null, ""),
        (balanced.clone(), "Service", Value::Null, ""),
        (balanced.clone(), "Service", status(json!([{"ip": "1.2.3.4"}])), "1.2.3.4:8000"),
        (balanced, "Service", status(json!([{"hostname": "lb.example"}])), "lb.example:8000"),
        (ingress, "Ingress", Value::Null, "llama.nim.example.com"),
        (hostless.clone(), "Ingress", status(json!([{"ip": "1.2.3.4"}])), "1.2.3.4"),
        (hostless, "Ingress", status(json!([{"hostname": "lb.example"}])), "lb.example"),
    ];
    for (service, kind, status, expected) in cases {
        let facts = ready(&service, |reference, body| {
            if reference.gvk.kind == kind {
                body["status"] = status.clone();
            }
        });
        assert_eq!(plan(&service, &facts).status.model.unwrap().external_endpoint, expected);
    }
}

#[test]
fn addresses_of_version_6_stand_in_brackets() {
    let service = service(plain());
    let facts = ready(&service, |reference, body| {
        if reference.gvk.kind == "Service" {
            body["spec"]["clusterIP"] = "fd00::7".into();
        }
    });
    assert_eq!(plan(&service, &facts).status.model.unwrap().cluster_endpoint, "[fd00::7]:8000");
}

#[test]
fn what_is_named_and_not_there_is_told_until_it_is() {
    let knows = |facts: Facts| serving::<Secret>(facts);
    let missing = plan(&service(plain()), &knows(facts()));
    assert_eq!(
        condition(&missing, "MissingReferences").2,
        "Secret nim/ngc-api-secret does not exist: create it, and the service goes on by itself"
    );
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ngc-api-secret", "namespace": "nim"}});
    let there = plan(&service(plain()), &knows(with([secret])));
    assert!(there.status.conditions.unwrap().iter().all(|one| one.type_ != "MissingReferences"));
}

#[test]
fn changes_of_what_a_service_names_are_changes_for_it() {
    let named = edited(|spec| {
        spec["env"] = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "own", "key": "k"}}}]);
        spec["proxy"] = json!({"certConfigMap": "trust"});
        spec["storage"] = json!({"nimCache": {"name": "models"}});
        spec["draResources"] = json!([{"resourceClaimName": "c"}, {"resourceClaimTemplateName": "t"}]);
    });
    let gvk = |kind: &str, group: &str, version: &str| Gvk {
        group: group.to_owned().into(),
        version: version.to_owned().into(),
        kind: kind.to_owned().into(),
    };
    let object = |name: &str| json!({"metadata": {"name": name, "namespace": "nim"}});
    let secret = gvk("Secret", "", "v1");
    for name in ["ngc-api-secret", "ngc-secret", "own"] {
        assert!(mentions(&named, &secret, &object(name)), "{name}");
    }
    assert!(!mentions(&named, &secret, &object("trust")));
    assert!(mentions(&named, &gvk("ConfigMap", "", "v1"), &object("trust")));
    assert!(mentions(&named, &gvk("NIMCache", "apps.nvidia.com", "v1alpha1"), &object("models")));
    let claim = gvk("ResourceClaim", "resource.k8s.io", "v1");
    assert!(mentions(&named, &claim, &object("c")));
    let mut made = object("llama-x");
    let pod_claim = format!("claim-{}-1-{}-0", capstan_plan::kit::hash("llama"), capstan_plan::kit::hash("t"));
    made["metadata"]["annotations"] = json!({"resource.kubernetes.io/pod-claim-name": pod_claim});
    assert!(mentions(&named, &claim, &made));
    assert!(!mentions(&named, &claim, &object("d")));
}

#[test]
fn only_a_change_of_what_pods_have_read_replaces_them() {
    let service = service(plain());
    let secret = |content: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ngc-api-secret", "namespace": "nim"}, "data": {"NGC_API_KEY": content}});
    let template = |plan: &Plan<NimServiceStatus>| object(plan, "Deployment")["spec"]["template"].clone();
    // What was stored for `plan`, in a world with these objects.
    let after = |plan: &Plan<NimServiceStatus>, objects: Vec<Value>| {
        let mut facts = with(objects);
        for (reference, live) in facts_after(plan, |_, _| {}).live.iter() {
            facts.live.insert(reference.clone(), live.clone());
        }
        facts
    };
    let without = plan(&service, &facts());
    let appeared = plan(&service, &after(&without, vec![secret("a")]));
    assert_eq!(template(&appeared), template(&without), "a secret that appears restarts nothing");
    let changed = plan(&service, &after(&appeared, vec![secret("b")]));
    assert_ne!(template(&changed), template(&appeared));
    let settled = plan(&service, &after(&changed, vec![secret("b")]));
    assert_eq!(template(&settled), template(&changed));
    let gone = plan(&service, &after(&settled, vec![]));
    assert_eq!(template(&gone), template(&changed), "a secret that goes restarts nothing");
    let back = plan(&service, &after(&gone, vec![secret("c")]));
    assert_ne!(template(&back), template(&changed));
}

/// Facts of a cluster where registries are asked; this one has answered if there is an answer.
fn inspecting(service: &NimService, live: Facts, answer: Option<Result<&str, &str>>) -> Facts {
    let mut facts = Facts { registries: true, ..live };
    let Some(answer) = answer else { return facts };
    let query = plan(service, &facts).queries.into_iter().find(|one| matches!(one, Query::Image(_))).unwrap();
    let labels = |value: &str| vec![[("com.nvidia.nim.model_download_protocol".into(), value.into())].into()];
    facts.query_results.insert(query, QueryResult::Image(answer.map(labels).map_err(str::to_owned)));
    facts
}

#[test]
fn a_service_without_a_cache_asks_how_its_image_gets_the_model() {
    let service = service(plain());
    let asking = plan(&service, &inspecting(&service, facts(), None));
    assert!(!kinds(&asking).contains(&"Deployment"));
    assert_eq!(asking.status, NimServiceStatus::default(), "nothing is told of a question that takes a second");
    let native = plan(&service, &inspecting(&service, facts(), Some(Ok("native-v1"))));
    assert_eq!(container(&native)["volumeMounts"][0]["mountPath"], "/model");
    let legacy = plan(&service, &inspecting(&service, facts(), Some(Ok(""))));
    assert_eq!(container(&legacy)["volumeMounts"][0]["mountPath"], "/model-store");
}

#[test]
fn a_registry_is_asked_once_for_each_image() {
    let service = service(plain());
    let first = plan(&service, &inspecting(&service, facts(), Some(Ok("native-v1"))));
    let after = Facts { registries: true, ..facts_after(&first, |_, _| {}) };
    let again = plan(&service, &after);
    assert!(!again.queries.iter().any(|one| matches!(one, Query::Image(_))));
    assert_eq!(container(&again), container(&first));
    let newer = edited(|spec| spec["image"]["tag"] = "1.9".into());
    assert!(plan(&newer, &after).queries.iter().any(|one| matches!(one, Query::Image(_))));
}

#[test]
fn a_registry_that_does_not_answer_is_told_and_what_runs_stays_as_it_is() {
    let service = service(plain());
    let failed = plan(&service, &inspecting(&service, facts(), Some(Err("no route to host"))));
    assert_eq!(container(&failed)["volumeMounts"][0]["mountPath"], "/model-store");
    assert!(condition(&failed, "ImageUnknown").2.starts_with("no route to host"));
    // A native workload that another operator made.
    let native = plan(&service, &inspecting(&service, facts(), Some(Ok("native-v1"))));
    let live = || {
        facts_after(&native, |_, body| {
            body["metadata"]["annotations"].as_object_mut().map(|all| all.remove("nvidia.com/model-download-protocol"));
        })
    };
    for answer in [None, Some(Err("no route to host"))] {
        assert_eq!(container(&plan(&service, &inspecting(&service, live(), answer))), container(&native));
    }
}

#[test]
fn who_leads_next_says_what_was_said_until_it_knows_better() {
    let mut service = service(plain());
    service.metadata.generation = Some(1);
    let mut facts = Facts { registries: true, ..ready(&service, |_, _| {}) };
    for query in plan(&service, &facts).queries {
        let answer = query.failed("no route to host".into()).unwrap();
        facts.query_results.insert(query, answer);
    }
    let told = plan(&service, &facts);
    for type_ in ["ImageUnknown", "EndpointUnreachable"] {
        assert!(condition(&told, type_).2.contains("no route to host"));
    }
    service.status = Some(told.status.clone());
    facts.query_results.clear();
    assert_eq!(plan(&service, &facts).status, told.status, "nobody has been asked yet");
    service.metadata.generation = Some(2);
    let another = plan(&service, &facts).status.conditions.unwrap();
    assert!(another.iter().all(|one| !["ImageUnknown", "EndpointUnreachable"].contains(&one.type_.as_str())));
}

#[test]
fn while_a_service_starts_nothing_has_failed() {
    let starting = plan(&service(plain()), &facts());
    assert_eq!(condition(&starting, "Failed"), ("False".into(), "Progressing".into(), String::new()));
    assert_eq!(condition(&starting, "Ready").1, "NotReady");
    let service = service(plain());
    let ready = plan(&service, &ready(&service, |_, _| {}));
    assert_eq!(condition(&ready, "Failed"), ("False".into(), "Ready".into(), String::new()));
    assert_eq!(ready.requeue, None, "whatever changes wakes it");
}

#[test]
fn no_address_is_told_before_there_is_a_way_in() {
    let ingress = edited(|spec| {
        spec["expose"]["router"] = json!({"hostDomainName": "example.com", "ingress": {"ingressClass": "nginx"}})
    });
    let all = ready(&ingress, |_, _| {});
    let without = |kind: &str| {
        let mut facts = facts();
        for (reference, live) in all.live.iter().filter(|(reference, _)| reference.gvk.kind != kind) {
            facts.live.insert(reference.clone(), live.clone());
        }
        plan(&ingress, &facts).status.model
    };
    assert_eq!(without("Service"), None);
    let model = without("Ingress").unwrap();
    assert_eq!((model.cluster_endpoint.as_str(), model.external_endpoint.as_str()), ("10.0.0.7:8000", ""));
}

#[test]
fn compute_domains_and_claims_of_templates_that_we_make_are_changes_too() {
    let spread = edited(|spec| {
        spec["multiNode"] = json!({"parallelism": {"pipeline": 2, "tensor": 1}, "computeDomain": {"name": "rack"}});
        spec["draResources"] =
            json!([{"claimCreationSpec": {"devices": [{"name": "g", "count": 1, "deviceClassName": "c"}]}}]);
    });
    let object = |name: &str| json!({"metadata": {"name": name, "namespace": "nim"}});
    let domain = Gvk::of::<ComputeDomain>();
    assert!(mentions(&spread, &domain, &object("rack")));
    assert!(!mentions(&spread, &domain, &object("other")));
    assert!(!mentions(&spread, &Gvk::of::<NimCache>(), &object("rack")), "something else of that name");
    let owner = capstan_plan::kit::hash("llama");
    let template = capstan_plan::kit::hash(&format!("claimtemplate-{owner}-0"));
    let mut claim = object("made-by-kubernetes");
    claim["metadata"]["annotations"] =
        json!({"resource.kubernetes.io/pod-claim-name": format!("claim-{owner}-1-{template}-0")});
    assert!(mentions(&spread, &Gvk::of::<k8s_openapi::api::resource::v1::ResourceClaim>(), &claim));
}
