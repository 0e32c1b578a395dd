//! The paths that a NIMService can take: other workloads, other platforms, what it waits for.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_operator::queries::QueryBackend;
use capstan_plan::QueryResult;
use capstan_tests::nim::{API, FOREIGN, condition, service, state};
use capstan_tests::wire::Fault;
use capstan_tests::world::World;
use serde_json::{Value, json};

fn edited(edit: impl FnOnce(&mut Value)) -> Value {
    let mut service = service();
    edit(&mut service["spec"]);
    service
}

fn says(object: &Value, type_: &str, text: &str) -> bool {
    condition(object, type_)["message"].as_str().is_some_and(|message| message.contains(text))
}

#[tokio::test(start_paused = true)]
async fn an_autoscaler_takes_over_the_replicas_and_gives_them_back() {
    let world = World::start().await;
    let operator = world.operator(Fault::None).await;
    world.apply(service()).await;
    world.until(API, "NIMService", "llama", state("Ready")).await;
    let scaled = edited(|spec| {
        spec.as_object_mut().unwrap().remove("replicas");
        spec["scale"] = json!({"enabled": true, "hpa": {"minReplicas": 2, "maxReplicas": 4}});
    });
    world.apply(scaled).await;
    world.until("apps/v1", "Deployment", "llama", |object| object["spec"]["replicas"] == 2).await;
    world.until(API, "NIMService", "llama", |object| object["status"]["availableReplicas"] == 2).await;
    world.patch("apps/v1", "Deployment", "llama", json!({"spec": {"replicas": 3}})).await;
    world.settled(&operator).await;
    world.until("apps/v1", "Deployment", "llama", |object| object["spec"]["replicas"] == 3).await;
    world.apply(service()).await;
    world.until("apps/v1", "Deployment", "llama", |object| object["spec"]["replicas"] == 1).await;
    world.until_gone("autoscaling/v2", "HorizontalPodAutoscaler", "llama").await;
    world.patch("apps/v1", "Deployment", "llama", json!({"spec": {"replicas": 3}})).await;
    world.until("apps/v1", "Deployment", "llama", |object| object["spec"]["replicas"] == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_route_appears_as_soon_as_the_cluster_knows_routes_and_goes_when_it_is_not_wanted() {
    let (world, group) = (World::start().await, "gateway.networking.k8s.io");
    let _operator = world.operator(Fault::None).await;
    let router = json!({"hostDomainName": "example.com", "gateway": {"namespace": "infra", "name": "gateway"}});
    world.apply(edited(|spec| spec["expose"] = json!({"router": router}))).await;
    let missing = |object: &Value| {
        state("Ready")(object) && says(object, "MissingAPI", "needs HTTPRoute (gateway.networking.k8s.io/v1)")
    };
    world.until(API, "NIMService", "llama", missing).await;
    world.install(group, "v1", "HTTPRoute", "httproutes").await;
    world.until("gateway.networking.k8s.io/v1", "HTTPRoute", "llama", |_| true).await;
    let host = format!("llama.{}.example.com", world.namespace);
    let routed = |object: &Value| {
        object["status"]["model"]["externalEndpoint"] == host && condition(object, "MissingAPI").is_null()
    };
    world.until(API, "NIMService", "llama", routed).await;
    world.apply(service()).await;
    world.until_gone("gateway.networking.k8s.io/v1", "HTTPRoute", "llama").await;
}

#[tokio::test(start_paused = true)]
async fn another_platform_takes_over_and_nothing_is_left_behind() {
    let (world, kserve) = (World::start().await, "serving.kserve.io/v1beta1");
    world.install("serving.kserve.io", "v1beta1", "InferenceService", "inferenceservices").await;
    let _operator = world.operator(Fault::None).await;
    world.apply(service()).await;
    world.until(API, "NIMService", "llama", state("Ready")).await;
    world.apply(edited(|spec| spec["inferencePlatform"] = "kserve".into())).await;
    world.until(kserve, "InferenceService", "llama", |_| true).await;
    world.until_gone("apps/v1", "Deployment", "llama").await;
    world.until_gone("v1", "Service", "llama").await;
    let status = json!({
        "conditions": [{"type": "PredictorReady", "status": "True"}], "deploymentMode": "Standard",
        "url": "http://llama.example.com", "address": {"url": "http://llama.default.svc"},
    });
    world.write_status(kserve, "InferenceService", "llama", status).await;
    let served = |object: &Value| {
        state("Ready")(object) && object["status"]["model"]["externalEndpoint"] == "http://llama.example.com"
    };
    world.until(API, "NIMService", "llama", served).await;
    world.apply(edited(|spec| spec["inferencePlatform"] = "standalone".into())).await;
    world.until_gone(kserve, "InferenceService", "llama").await;
    let back = |object: &Value| state("Ready")(object) && object["status"]["model"]["externalEndpoint"] == "";
    world.until(API, "NIMService", "llama", back).await;
}

#[tokio::test(start_paused = true)]
async fn devices_that_nobody_has_are_told_and_found_when_they_come() {
    let world = World::start().await;
    let _operator = world.operator(Fault::None).await;
    let devices = json!([{"claimCreationSpec": {"devices": [{
        "name": "gpu", "count": 1, "deviceClassName": "gpu.nvidia.com",
        "attributeSelectors": [{"key": "productName", "op": "Equal", "value": {"stringValue": "H100"}}],
    }]}}]);
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"}, "spec": {}});
    world.apply(class).await;
    world
        .apply(edited(|spec| {
            spec["draResources"] = devices;
            spec.as_object_mut().unwrap().remove("resources");
        }))
        .await;
    let waiting = |object: &Value| {
        says(object, "Ready", "Unschedulable")
            && object["status"]["draResourceStatuses"][0]["resourceClaimTemplateStatus"]["resourceClaimStatuses"][0]["state"]
                == "pending"
    };
    world.until(API, "NIMService", "llama", waiting).await;
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "gpu-0-gpus"},
        "spec": {
            "driver": "gpu.nvidia.com", "nodeName": "gpu-0", "pool": {"name": "gpu-0", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu0", "attributes": {"productName": {"string": "H100"}}}],
        },
    });
    world.apply(slice).await;
    let ready = |object: &Value| {
        state("Ready")(object)
            && object["status"]["draResourceStatuses"][0]["resourceClaimTemplateStatus"]["resourceClaimStatuses"][0]["state"]
                == "allocated,reserved"
    };
    world.until(API, "NIMService", "llama", ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_model_over_several_nodes_gets_its_group_and_its_key() {
    let (world, lws) = (World::start().await, "leaderworkerset.x-k8s.io/v1");
    let operator = world.operator(Fault::None).await;
    world.apply(edited(|spec| spec["multiNode"] = json!({"parallelism": {"pipeline": 2, "tensor": 8}}))).await;
    world.until(API, "NIMService", "llama", |object| says(object, "Ready", "install LeaderWorkerSet")).await;
    world.install("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets").await;
    world.until(lws, "LeaderWorkerSet", "llama-lws", |_| true).await;
    let secrets = world.list("v1", "Secret").await;
    let secret = secrets.iter().find(|secret| secret["metadata"]["name"] == "llama-ssh-pk").unwrap();
    let key = secret["data"]["private.key"].clone();
    assert!(key.as_str().is_some_and(|key| key.len() > 100), "{key}");
    let available = json!({"conditions": [{"type": "Available", "status": "True"}], "replicas": 1, "readyReplicas": 1});
    world.write_status(lws, "LeaderWorkerSet", "llama-lws", available).await;
    world.until(API, "NIMService", "llama", state("Ready")).await;
    // Another operator finds the key and makes no other.
    operator.kill();
    let second = world.operator(Fault::None).await;
    assert_eq!(world.settled(&second).await, 0);
    let secret = world.until("v1", "Secret", "llama-ssh-pk", |_| true).await;
    assert_eq!(secret["data"]["private.key"], key);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_finds_no_gpu_says_so_and_a_smaller_wish_is_enough() {
    let world = World::start().await;
    let _operator = world.operator(Fault::None).await;
    world.apply(edited(|spec| spec["resources"] = json!({"limits": {"nvidia.com/gpu": 64}}))).await;
    world.until(API, "NIMService", "llama", |object| says(object, "Ready", "Insufficient nvidia.com/gpu")).await;
    world.apply(service()).await;
    world.until(API, "NIMService", "llama", state("Ready")).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_waits_for_its_cache_and_goes_on_by_itself() {
    let world = World::start().await;
    world.install_ours("NIMCache").await;
    let _operator = world.operator(Fault::None).await;
    world.apply(edited(|spec| spec["storage"] = json!({"nimCache": {"name": "models"}}))).await;
    let missing = |object: &Value| condition(object, "Failed")["reason"] == "NIMCacheNotFound";
    world.until(API, "NIMService", "llama", missing).await;
    let cache = json!({
        "apiVersion": API, "kind": "NIMCache", "metadata": {"name": "models"},
        "spec": {
            "source": {"ngc": {"authSecret": "ngc", "modelPuller": "nvcr.io/nim/meta/llama3:1.0"}},
            "storage": {"pvc": {"name": "models"}},
        },
    });
    world.apply(cache).await;
    let waiting = |object: &Value| condition(object, "Ready")["reason"] == "NIMCacheNotReady";
    world.until(API, "NIMService", "llama", waiting).await;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "models"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    world.apply(claim).await;
    world.write_status(API, "NIMCache", "models", json!({"state": "Ready", "pvc": "models"})).await;
    world.until(API, "NIMService", "llama", state("Ready")).await;
}

#[tokio::test(start_paused = true)]
async fn the_model_is_named_and_an_endpoint_that_falls_silent_is_told() {
    let world = World::start().await;
    let silent = Arc::new(AtomicBool::new(false));
    let told = silent.clone();
    let ask = QueryBackend(Arc::new(move |_| {
        let silent = told.load(Ordering::SeqCst);
        let answer = if silent {
            Err("connection refused".to_owned().into())
        } else {
            Ok(QueryResult::Model(Ok("meta/llama".into())))
        };
        Box::pin(async move { answer })
    }));
    let operator = world.operator_asking(Fault::None, ask).await;
    world.apply(service()).await;
    world.until(API, "NIMService", "llama", |object| object["status"]["model"]["name"] == "meta/llama").await;
    let writes = world.settled(&operator).await;
    assert_eq!(world.settled(&operator).await, writes, "asking costs the API server nothing");
    silent.store(true, Ordering::SeqCst);
    let refused = |object: &Value| state("Ready")(object) && says(object, "EndpointUnreachable", "connection refused");
    world.until(API, "NIMService", "llama", refused).await;
    silent.store(false, Ordering::SeqCst);
    world.until(API, "NIMService", "llama", |object| condition(object, "EndpointUnreachable").is_null()).await;
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_missing_is_named_until_it_is_there() {
    let world = World::start().await;
    let _operator = world.operator(Fault::None).await;
    // No GPU is that large, so that the service stays as it is.
    let waiting = edited(|spec| {
        spec["authSecret"] = "ngc".into();
        spec["resources"] = json!({"limits": {"nvidia.com/gpu": 64}});
    });
    world.apply(waiting).await;
    let missing = format!("Secret {}/ngc does not exist", world.namespace);
    world.until(API, "NIMService", "llama", |object| says(object, "MissingReferences", &missing)).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ngc"},
        "stringData": {"NGC_API_KEY": "k"},
    });
    world.apply(secret).await;
    world.until(API, "NIMService", "llama", |object| condition(object, "MissingReferences").is_null()).await;
}

#[tokio::test(start_paused = true)]
async fn every_example_is_accepted_and_every_field_of_it_acted_on() {
    let world = World::start().await;
    for (group, version, kind, plural) in FOREIGN {
        world.install(group, version, kind, plural).await;
    }
    world.install_ours("NIMCache").await;
    world.install_ours("ComputeDomain").await;
    let operator = world.operator(Fault::None).await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/nim");
    let mut names = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let example: Value = serde_saphyr::from_str(&text).unwrap();
        if example["kind"] != "NIMService" {
            continue;
        }
        names.push(example["metadata"]["name"].as_str().unwrap().to_owned());
        world.apply(example).await;
    }
    for name in &names {
        let seen = |object: &Value| !object["status"]["state"].is_null();
        let object = world.until(API, "NIMService", name, seen).await;
        for type_ in ["IgnoredFields", "InvalidFields", "MissingAPI"] {
            assert_eq!(condition(&object, type_), &Value::Null, "{name}");
        }
        let reason = &condition(&object, "Failed")["reason"];
        assert!(object["status"]["state"] != "Failed" || reason == "NIMCacheNotFound", "{name}: {reason}");
    }
    let writes = world.settled(&operator).await;
    assert_eq!(world.settled(&operator).await, writes);
    let made = |list: Vec<Value>, name: &str| list.iter().any(|object| object["metadata"]["name"] == name);
    for (api_version, kind, name) in [
        ("autoscaling/v2", "HorizontalPodAutoscaler", "autoscaling"),
        ("networking.k8s.io/v1", "Ingress", "ingress"),
        ("monitoring.coreos.com/v1", "ServiceMonitor", "ingress"),
        ("gateway.networking.k8s.io/v1", "HTTPRoute", "gateway"),
        ("gateway.networking.k8s.io/v1", "GRPCRoute", "gateway"),
        ("inference.networking.k8s.io/v1", "InferencePool", "gateway"),
        ("apps/v1", "Deployment", "gateway-epp"),
        ("apps/v1", "Deployment", "proxy"),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "multi-node-lws"),
        ("resource.nvidia.com/v1beta1", "ComputeDomain", "multi-node"),
        ("serving.kserve.io/v1beta1", "InferenceService", "kserve"),
    ] {
        assert!(made(world.list(api_version, kind).await, name), "{kind} {name}");
    }
    assert!(!world.list("resource.k8s.io/v1", "ResourceClaimTemplate").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn another_key_in_a_secret_replaces_the_pods() {
    let world = World::start().await;
    let operator = world.operator(Fault::None).await;
    let secret = |key: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ngc"},
            "stringData": {"NGC_API_KEY": key},
        })
    };
    world.apply(secret("a")).await;
    world.apply(edited(|spec| spec["authSecret"] = "ngc".into())).await;
    world.until(API, "NIMService", "llama", state("Ready")).await;
    world.settled(&operator).await;
    let before = world.list("v1", "Pod").await[0]["metadata"]["uid"].clone();
    world.patch("v1", "Secret", "ngc", json!({"metadata": {"labels": {"team": "search"}}})).await;
    world.settled(&operator).await;
    assert_eq!(world.list("v1", "Pod").await[0]["metadata"]["uid"], before, "a label is no content");
    world.apply(secret("b")).await;
    world.settled(&operator).await;
    let pods = world.list("v1", "Pod").await;
    assert!(pods.len() == 1 && pods[0]["metadata"]["uid"] != before, "{pods:#?}");
    world.until(API, "NIMService", "llama", state("Ready")).await;
}
